"""Roll-forward: each crash image, opened for writing, becomes what the real kernel made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.device import open_device
from f2tools.device.overlay import Overlay
from f2tools.dump.manifest import manifest
from f2tools.volume.recovery import find_fsync_chain
from f2tools.volume.writer import WritableVolume
from tests import images, judges

NOW = 4_000_000_000
EXTENT_FLAG_INLINE = 0x200  # FIEMAP_EXTENT_DATA_INLINE: its place is the inode's, which is written anew


@pytest.mark.peer
@pytest.mark.parametrize("name", images.CRASH)
def test_a_crash_image_becomes_what_the_kernel_made_of_it(name: str, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    WritableVolume(open_device(case.path, write=True), clock=lambda: NOW * 10**9).close()
    with f2tools.open(case.path) as volume:
        assert volume.clean
        assert not find_fsync_chain(volume).needed
        ours = manifest(volume)["entries"]
    kernel = case.manifest("manifest-recovered")["entries"]
    assert ours.keys() == kernel.keys()
    for path, entry in ours.items():
        assert comparable(entry, entry) == comparable(kernel[path], entry), path
    judges.fsck_clean(case.path)


def comparable(entry: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """What must be equal: not the moment of the recovery itself, which a directory that got names back shows, ..."""
    kept = dict(entry)
    if ours["mtime_ns"] >= NOW * 10**9:
        del kept["mtime_ns"], kept["ctime_ns"]
    kept["extents"] = [e for e in entry.get("extents", ()) if not e[3] & EXTENT_FLAG_INLINE]
    return kept


@pytest.mark.parametrize("name", images.CRASH)
def test_looking_for_the_chain_writes_nothing_and_ends(name: str) -> None:
    with f2tools.open(images.reference(name).path) as volume:
        found = find_fsync_chain(volume)
        assert len({node.blkaddr for node in found.chain}) == len(found.chain)
        assert all(file.last < len(found.chain) for file in found.files.values())
        assert found.end_reason


def test_a_clean_volume_needs_nothing() -> None:
    with f2tools.open(images.reference("base").path) as volume:
        assert not find_fsync_chain(volume).needed


def test_a_recovery_that_is_cut_off_starts_again(tmp_path: Path) -> None:
    """Everything that a recovery writes before its checkpoint is complete leaves the chain as it was."""
    from f2tools.device.record import Recorder

    case = images.reference("crash-several").copy(tmp_path)
    recorder = Recorder(Overlay(open_device(case.path)))
    WritableVolume(recorder, clock=lambda: NOW * 10**9).abandon()
    wanted: dict[str, Any] = {}
    for upto in range(0, len(recorder.events) + 1, max(1, len(recorder.events) // 12)):
        trial = Overlay(open_device(case.path))
        recorder.replay(upto, trial)
        volume = WritableVolume(trial, clock=lambda: NOW * 10**9)
        entries = {p: comparable(e, e) for p, e in manifest(volume)["entries"].items()}
        wanted = wanted or entries
        assert entries == wanted, upto
        volume.abandon()
