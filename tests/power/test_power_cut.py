"""The power goes at every write: what is there afterwards is consistent, and has all that was synced or fsync'ed."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from f2tools.device import open_device
from tests.power.recording import Recording, mixed, record
from tests.write.volumes import Above

FULL = "--size 64M -O extra_attr,inode_checksum,quota,project_quota,inode_crtime,flexible_inline_xattr"
SAMPLES = int(os.environ.get("F2_POWER_SAMPLES", "60"))

CASES = {
    "plain": ("--size 64M", {}),
    "full": (FULL, {}),
    "two-logs": ("--size 64M", {"active_logs": 2}),
    "sections": ("--size 128M -s 2", {}),
    "threaded": ("--size 64M", {"min_free_percent": 100.0}),
}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    return {}


def recording_of(name: str, recordings: dict[str, Recording], tmp_path_factory: pytest.TempPathFactory) -> Recording:
    if name not in recordings:
        options, policy = CASES[name]
        recordings[name] = record(tmp_path_factory.mktemp(name), options, mixed, **policy)
    return recordings[name]


@pytest.mark.parametrize("name", ["full"])
def test_every_prefix_is_a_volume_with_all_that_was_promised(
    name: str, recordings: dict[str, Recording], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    recording = recording_of(name, recordings, tmp_path_factory)
    with open_device(recording.at(0, tmp_path / "image"), write=True) as onto:
        for count in recording.recorder.prefixes(onto):
            recording.must_survive(onto, count, f"after event {count}")


@pytest.mark.parametrize("name", CASES)
def test_writes_that_no_flush_came_after_may_be_lost_or_torn(
    name: str, recordings: dict[str, Recording], tmp_path_factory: pytest.TempPathFactory
) -> None:
    recording = recording_of(name, recordings, tmp_path_factory)
    chance = random.Random(name)
    with open_device(recording.image) as base:
        for _ in range(SAMPLES):
            count = chance.randrange(len(recording.recorder.events) + 1)
            top = Above(base)
            lost = recording.torn(count, top, chance)
            recording.must_survive(top, count, f"after event {count} {lost}")
            top.close()
