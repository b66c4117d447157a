"""The power goes at every write: what is there afterwards is consistent, and has all that was synced or fsync'ed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from f2tools.device import open_device
from f2tools.device.changes.record import Recorder
from f2tools.errors import F2fsError
from tests.f2fs.write.volumes import Above
from tests.f2fs.write.workload import Workload
from tests.power.recording import Recording, crowded, discarding, in_little_room, mixed, overwriting, record

FULL = "--size 64M -O extra_attr,inode_checksum,quota,project_quota,inode_crtime,flexible_inline_xattr"
SAMPLES = int(os.environ.get("F2_POWER_SAMPLES", "16"))  # of lost and torn writes
PREFIXES = 4 * SAMPLES  # of a longer recording only so many are tried, evenly spread


@dataclass(frozen=True)
class Case:
    """A volume, how it is treated, what is done to it before and while it is recorded."""

    options: str = "--size 64M"
    policy: dict[str, Any] = field(default_factory=dict)
    work: Callable[[Workload], None] = mixed
    before: Callable[[Workload], None] | None = None
    room: int | None = None


CASES = {
    "plain": Case(),
    "full": Case(FULL),
    "two-logs": Case(policy={"active_logs": 2}),
    "sections": Case("--size 128M -s 2"),
    "threaded": Case(policy={"min_free_percent": 100.0}, work=overwriting, before=crowded),
    "in-place-never": Case(policy={"ipu": "never"}),
    "crowded": Case(work=overwriting, before=crowded),
    "discarding": Case(work=discarding),
    "little-room": Case(work=in_little_room, room=7 << 20),
    "crowded-append": Case(policy={"adaptive": False}, work=overwriting, before=crowded),
}
EVERY_PREFIX = ["full", "crowded", "little-room"]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Recording]:
    """Each case recorded once: `recordings("plain")`."""

    @cache
    def recorded(name: str) -> Recording:
        case = CASES[name]
        return record(tmp_path_factory.mktemp(name), case.options, case.work, case.before, case.room, **case.policy)

    return recorded


@pytest.mark.parametrize("name", EVERY_PREFIX)
def test_every_prefix_is_a_volume_with_all_that_was_promised(
    name: str, recordings: Callable[[str], Recording], tmp_path: Path
) -> None:
    recording = recordings(name)
    step = max(1, len(recording.recorder.events) // PREFIXES)
    with open_device(recording.at(0, tmp_path / "image"), write=True) as onto:
        for count in recording.recorder.prefixes(onto):
            if count % step:
                continue
            recording.must_survive(onto, count, f"after event {count}")


@pytest.mark.parametrize("name", CASES)
def test_writes_that_no_flush_came_after_may_be_lost_or_torn(name: str, recordings: Callable[[str], Recording]) -> None:
    lose_and_tear(recordings(name), random.Random(name), SAMPLES)


def lose_and_tear(recording: Recording, chance: random.Random, times: int) -> None:
    """Cut the power so many times, at most once for each event, each time somewhere, and look what is there."""
    with open_device(recording.image) as base:
        for _ in range(min(times, len(recording.recorder.events))):
            count = chance.randrange(len(recording.recorder.events) + 1)
            top = Above(base)
            lost = recording.torn(count, top, chance)
            recording.must_survive(top, count, f"after event {count} {lost}")
            top.close()


def test_a_writer_that_never_flushes_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The judge judged: without flushes any write may be lost, and that is noticed."""
    monkeypatch.setattr(Recorder, "flush", lambda self: None)
    recording = record(tmp_path, "--size 64M", mixed)
    with pytest.raises((AssertionError, F2fsError)):
        lose_and_tear(recording, random.Random(3), 20)
