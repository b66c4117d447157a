"""The power goes at every write of a cleaning: whatever was lost or torn, the tree is what it was."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from f2tools.clean.clean import Goal
from f2tools.clean.clean import clean as clean_volume
from f2tools.device import open_device
from tests.f2fs.write.volumes import Above
from tests.f2fs.write.workload import Workload, noise
from tests.power.recording import Recording, crowded, record

CUTS = int(os.environ.get("F2_CLEAN_CUTS", "16"))  # of each kind, of each case; `make nightly` has every one
FULL = "--size 64M -O extra_attr,inode_checksum,quota,project_quota,flexible_inline_xattr"
BLOCK = 4096


def holey(work: Workload) -> None:
    """Of most files that were written one after the other a few are left, with attributes and links."""
    work.xattrs()
    work.links()
    files = {b"h%d" % n: work.file(work.top, b"h%d" % n, noise(n, (1 + n % 9) * 4 * BLOCK)) for n in range(90)}
    work.sync()
    for name in files:
        if work.random.random() < 0.6:
            work.do("unlink", work.top, name)


@dataclass(frozen=True)
class Case:
    """A volume, and how it is cleaned."""

    options: str = "--size 64M"
    victims: str = "greedy"
    goal: Goal | None = None
    before: Callable[[Workload], None] = holey
    policy: dict[str, Any] = field(default_factory=dict)


CASES = {
    "plain": Case(),
    "full": Case(FULL, "cost-benefit"),
    "sections": Case("--size 128M -s 2 -z 2"),
    "crowded": Case(before=crowded, goal=Goal(sections=6)),
    "two-logs": Case(victims="age-threshold", policy={"active_logs": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_power_may_fail_at_every_write_of_a_cleaning(name: str, tmp_path: Path) -> None:
    case = CASES[name]

    def work(load: Workload) -> None:
        outcome = clean_volume(load.twin.volume, case.victims, case.goal, discard=True)
        assert outcome.sections
        load.done("sync", None)

    recording = record(tmp_path, case.options, work, case.before, **case.policy)
    count = len(recording.recorder.events)
    chance = random.Random(name)
    every = list(range(count + 1))
    cuts = every if len(every) <= CUTS else sorted({0, count, *chance.sample(every, CUTS)})
    after_each_prefix(recording, set(cuts), tmp_path)
    for cut in cuts:
        with open_device(recording.image) as base:
            top = Above(base)
            lost = recording.torn(cut, top, chance)
            recording.must_survive(top, cut, f"after event {cut} {lost}")


def after_each_prefix(recording: Recording, cuts: set[int], directory: Path) -> None:
    with open_device(recording.at(0, directory / "prefix"), write=True) as onto:
        for count in recording.recorder.prefixes(onto):
            if count in cuts:
                recording.must_survive(onto, count, f"after event {count}")
