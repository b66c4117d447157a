"""`clean --simulate`: what policies and logs cost under a load, close to what the engine does, and nothing changes."""

from __future__ import annotations

import hashlib
import json
import random
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from f2tools.clean.simulate import WORKLOADS, Load, Setting, simulate
from f2tools.device import open_device
from f2tools.f2fs.volume.volume import open_volume
from f2tools.f2fs.write.gc import POLICIES
from f2tools.f2fs.write.volume import Policy, WritableVolume
from tests import images
from tests.clean.aged import BLOCK, FILE_BLOCKS, noise, overwritten
from tests.dump.craft import f2
from tests.f2fs.write.volumes import Above, Ticks

FEW = [Setting("greedy", 6, True), Setting("cost-benefit", 2, False)]


def report(*args: object) -> dict[str, Any]:
    result = f2("clean", "--simulate", "--json", *args)
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return overwritten(tmp_path_factory.mktemp("aged"), 90, True, size="64M")


def test_every_setting_is_compared_and_nothing_changes(aged: Path, tmp_path: Path) -> None:
    before = hashlib.sha256(aged.read_bytes()).hexdigest()
    drawn = ("--svg", tmp_path / "waf.svg", "--png", tmp_path / "waf.png")
    said = report(aged, "--workload", "hot-cold", "--times", "1.5", *drawn)
    assert hashlib.sha256(aged.read_bytes()).hexdigest() == before
    costs = {(one["policy"], one["logs"], one["adaptive"]): one for one in said["costs"]}
    assert costs.keys() == {(name, logs, on) for name in POLICIES for logs in (2, 4, 6) for on in (True, False)}
    for (name, logs, on), one in costs.items():
        assert one["finished"]
        assert one["waf"] == (one["data_blocks"] + one["moved_data"]) / one["data_blocks"]
        assert (one["threaded_blocks"] > said["load"]["blocks"] / 4) == on  # holes open at checkpoints only
        if on:
            assert one["waf"] < costs[name, logs, False]["waf"] / 1.5
    assert len({one["waf"] for one in costs.values() if not one["adaptive"]}) == 9, "all cost the same"
    assert ElementTree.parse(tmp_path / "waf.svg") is not None
    assert (tmp_path / "waf.png").read_bytes().startswith(b"\x89PNG")
    assert report(aged, "--workload", "hot-cold", "--times", "1.5")["costs"] == said["costs"]


def test_the_table_says_the_model(aged: Path) -> None:
    text = f2("clean", aged, "--simulate", "--times", "0.2", "--workload", "zipf").text
    assert "Zipf" in text
    assert "in 30 days" in text
    assert all(name in text for name in POLICIES)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_load_is_what_it_says(workload: str) -> None:
    count = 1000
    written = np.bincount(np.concatenate(list(Load(workload, times=50).targets(count))), minlength=count)
    assert written.sum() == 50 * count
    most = np.sort(written)[::-1]
    tenth = most[: count // 10].sum() / written.sum()
    low, high = {"uniform": (0.1, 0.15), "zipf": (0.6, 0.75), "hot-cold": (0.88, 0.92)}[workload]
    assert low < tenth < high


@pytest.mark.parametrize("adaptive", [True, False])
def test_the_engine_costs_what_the_simulation_says(adaptive: bool, aged: Path) -> None:
    load = Load("uniform", times=1.0, days=0.1)
    with open_volume(aged) as volume:
        (said,) = simulate(volume, load, [Setting("greedy", 6, adaptive)])
    with open_device(aged) as base:
        volume = WritableVolume(Above(base), Policy(adaptive=adaptive), Ticks(), seed=1)
        files = [entry.dentry.ino for entry in volume.listdir(volume.root.inode) if entry.name.startswith(b"f")]
        chance, blocks = random.Random(2), int(load.times * len(files) * FILE_BLOCKS)
        data, before = noise(1), volume.segments.written_blocks
        for n in range(blocks):
            volume.write(chance.choice(files), chance.randrange(FILE_BLOCKS) * BLOCK, data)
            if n % load.sync_every == load.sync_every - 1:
                volume.sync()
        volume.sync()
        moved = volume.cleaner.done.data_blocks
        everything = (volume.segments.written_blocks - before) / blocks
    assert said.waf is not None
    assert said.waf_all is not None
    assert said.waf == pytest.approx(1 + moved / blocks, rel=0.15)
    assert said.waf_all == pytest.approx(everything, rel=0.15)


@pytest.mark.parametrize("name", ["fragmented", "sections", "zoned", "multi-device", "compress-lz4", "blocks16k",
                                  "packed-ssa", "crash-several", "full", "active-logs-2"])  # fmt: skip
def test_volumes_of_every_kind_can_be_looked_at(name: str) -> None:
    case = images.reference(name)
    with open_volume(case.path, case.extra) as volume:
        costs = simulate(volume, Load("uniform", times=0.5), FEW)
    assert [one.finished for one in costs] == [True, True]
    assert all(one.data_blocks for one in costs)


@pytest.mark.parametrize("options", [("--target-free", "5%"), ("--sections", "3"), ("--discard",), ("--undo", "x")])
def test_what_is_for_cleaning_is_refused(options: tuple[str, ...], aged: Path) -> None:
    assert f2("clean", aged, "--simulate", *options).code == 2


def test_a_nearly_empty_volume_is_said_to_give_nothing_to_compare(tmp_path: Path) -> None:
    assert f2("mkfs", "-q", tmp_path / "empty", "--size", "128M").code == 0
    done = f2("clean", "--simulate", tmp_path / "empty")
    assert done.code == 0
    assert done.text.startswith("there is nothing to compare: ")
    assert "--times" in done.text
    assert "policy" not in done.text.splitlines()[1]
