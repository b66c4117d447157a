"""The file systems for flash: the articles' claims come out, and their loads are the same calls everywhere."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from f2tools.dfs.report import LOADS
from f2tools.dfs.volume import Volume
from f2tools.experiment.disk import Disk
from f2tools.experiment.files import Directory, Watch
from f2tools.experiment.loads import Replay
from f2tools.experiment.model import CANT_BE_TOLD, REPRODUCED, Setting, Work
from f2tools.experiment.ondfs import DfsFiles, fresh_dfs, on_dfs
from f2tools.experiment.registry import experiment
from f2tools.experiment.studies.dfs import ALIKE, calls_of
from f2tools.flash.vsl import open_vsl
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests.dump.craft import f2

MIB = 1 << 20
MANUAL = Path(__file__).resolve().parents[2] / "docs" / "experiments.md"
FEW = [
    [["create", "a"], ["write", "a", 0, 10000], ["fsync", "a"], ["fsync", ""]],
    [["mkdir", "d"], ["create", "d/b"], ["write", "d/b", 5000, 100], ["create", "gone"], ["unlink", "gone"]],
]


def told(name: str, scale: Fraction) -> tuple[dict[str, str], Any]:
    found = json.loads(f2("experiment", name, "--scale", str(scale), "--jobs", "1", "--json").out)
    return {claim["claim"]: claim["verdict"] for claim in found["claims"]}, found


def test_dffs_mounts_and_opens_and_changes_with_the_pages_that_the_paper_counts() -> None:
    verdicts, found = told("dffs", Fraction(1, 3200))
    assert list(verdicts.values()) == [REPRODUCED] * 6 + [CANT_BE_TOLD] * 3
    assert found["parts"]["mount-10000"]["found"]["files"] == 200
    mounted = [part["found"] for name, part in found["parts"].items() if name.startswith("mount-")]
    said = re.search(r"(\d+) pages and spare areas, some (\d+) KiB each time", MANUAL.read_text())
    assert said
    assert {one["pages_read"] + one["spares_read"] for one in mounted} == {int(said[1])}
    for one in mounted:  # other releases of Python take a little more or less
        assert one["bytes"] / 1024 == pytest.approx(int(said[2]), rel=0.03)
    postmark = found["parts"]["postmark"]["found"]
    assert postmark["pages_written"] == sum(one["pages_written"] for one in postmark["phases"].values())


def test_dfs_finds_a_block_without_an_index_and_appends_what_is_written_at_random() -> None:
    verdicts, found = told("dfs", Fraction(1, 64))
    assert list(verdicts.values()).count(REPRODUCED) >= 4
    for name in ("dfs", "f2fs"):
        part = found["parts"][name]
        assert len(part["rounds"]) == len(LOADS)
        assert part["trace"]["writes"]["bytes"] == part["run"]["write_bytes"]
    assert found["parts"]["dfs"]["calls"] == found["parts"]["f2fs"]["calls"]


def test_the_counts_of_dfs_are_those_of_the_block_trace(tmp_path: Path) -> None:
    work = Work(Setting(), tmp_path, lambda _: None)
    found = on_dfs(work, "replay", {"rounds": FEW}, 32 * MIB)
    traced = analyze(AnalysisRequest(str(tmp_path))).report
    assert found["run"]["write_bytes"] == traced["writes"]["bytes"] >= 10100
    assert found["run"]["writes"] == traced["writes"]["requests_with_data"]
    assert found["run"]["flushes"] == traced["flushes"] >= 4
    assert traced["damage"]["problems"] == []
    again = on_dfs(Work(Setting(), None, lambda _: None), "replay", {"rounds": FEW}, 32 * MIB)
    assert again == found


def test_calls_that_were_written_down_are_played_to_any_directory(tmp_path: Path) -> None:
    files, load = Directory(str(tmp_path)), Replay({"rounds": FEW}, 1)
    load.prepare(files)
    load.run(files, Watch())
    assert {str(path.relative_to(tmp_path)): path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()} == {
        "r0/a": 10000, "r1/d/b": 5100,
    }  # fmt: skip
    assert (files.calls["fsync"], files.calls["unlink"]) == (2, 1)


def left(disk: Disk, path: bytes) -> dict[bytes, int]:
    volume = Volume(open_vsl(disk))
    entries = volume.dentries(volume.at_path(path))
    return {entry.name: volume.inode(entry.ino).size for entry in entries if entry.name not in (b".", b"..")}


@pytest.mark.parametrize("name", list(LOADS))
def test_the_calls_of_a_load_leave_what_the_load_itself_leaves(name: str) -> None:
    direct, disk = fresh_dfs(32 * MIB, 1)
    LOADS[name](direct)
    direct.close()
    played, other = fresh_dfs(32 * MIB, 1)
    load = Replay({"rounds": [calls_of(LOADS[name])]}, 1)
    load.prepare(files := DfsFiles(played))
    load.run(files, Watch())
    played.close()
    assert left(disk, b"/") == left(other, b"/r0") != {}


def test_in_the_guest_ext3_stands_beside_dfs() -> None:
    names = [part.name for part in experiment("dfs").parts(Setting(on="guest"))]
    assert names == ["article", "dfs", "f2fs", "ext4", "btrfs", "nilfs2", ALIKE]
