"""What a mount does between requests, on a device of which something can't be read.

Sections that hold what can't be read are not cleaned, and that ends no cleaning, and no mount.  Nor does a file without
a name that can't be read whole, or memory that can't be given back now.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from f2tools.device import Device, open_device
from f2tools.errors import DeviceError
from f2tools.f2fs.layout.constants import NR_CURSEG_DATA_TYPE
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.write.gc import make_room
from f2tools.f2fs.write.volume import Policy, WritableVolume
from f2tools.fuse.background import Tending
from f2tools.fuse.served import Served
from f2tools.mount import background
from f2tools.mount.options import MountOptions
from f2tools.mount.tree import LiveTree
from tests.clean.aged import overwritten, scattered, sound
from tests.f2fs.write.test_device_fails import OneBlockLost
from tests.f2fs.write.volumes import Ticks, fresh, writable


def with_a_block_lost(directory: Path, kind: str) -> tuple[Path, WritableVolume, int]:
    """A volume in which much can be cleaned, and a section that will be, of which one block can't be read."""
    image = scattered(directory, "--size 160M", 1100 if kind == "node" else 300)
    lossy: list[OneBlockLost] = []

    def wrap(device: Device) -> Device:
        lossy.append(OneBlockLost(device))
        return lossy[0]

    volume = WritableVolume(wrap(open_device(image, write=True)), Policy(adaptive=False), Ticks(), seed=1)
    among = volume.cleaner.look()
    nodes = volume.segments.types[among.sections] >= NR_CURSEG_DATA_TYPE
    section = int(among.sections[nodes if kind == "node" else ~nodes][0])
    if kind == "summary":
        lossy[0].lost = volume.geo.ssa_blkaddr + section
    else:
        lossy[0].lost = volume.geo.start_block(section) + int(_valid(volume, section)[-1])
    return image, volume, section


def _valid(volume: WritableVolume, section: int) -> list[int]:
    return np.flatnonzero(np.unpackbits(volume.segments.valid_map[section])).tolist()


@pytest.mark.parametrize("kind", ["data", "node", "summary"])
def test_a_mount_cleans_the_other_sections(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "worth_the_trouble", lambda _: True)
    image, volume, section = with_a_block_lost(tmp_path, kind)
    volume.cleaner.worthwhile = volume.cleaner.look  # type: ignore[method-assign]
    monkeypatch.setattr(background, "cost_benefit", _first_then(section, background.cost_benefit))
    tree = LiveTree(volume)
    tending = Tending(Served(tree, MountOptions()))
    for _ in range(5):
        assert tending._clean()
    assert volume.broken is None
    assert caplog.text.count(f"section {section} stays as it is") == 1
    assert volume.cleaner.done.sections == 4
    volume.device.lost = None  # type: ignore[attr-defined]
    tree.close()
    sound(image)


@pytest.mark.parametrize("kind", ["data", "node", "summary"])
def test_room_is_made_by_cleaning_the_other_sections(kind: str, tmp_path: Path) -> None:
    image, volume, section = with_a_block_lost(tmp_path, kind)
    wanted = volume.segments.free_sections + 2
    volume.cleaner.victim = _first_then(section, volume.cleaner.victim)  # type: ignore[method-assign]
    with volume.operation(0):
        volume.midway = True
        assert make_room(volume.cleaner, volume.segments, lambda more: volume.segments.free_sections + more >= wanted,
                         volume._checkpoint_within)  # fmt: skip
    assert volume.broken is None
    volume.device.lost = None  # type: ignore[attr-defined]
    volume.close()
    sound(image)


def test_sections_that_could_not_be_read_for_a_while_are_cleaned_when_nothing_else_is_left(tmp_path: Path) -> None:
    image, volume, _ = with_a_block_lost(tmp_path, "data")
    segments, wanted = volume.segments, volume.segments.free_sections + 2
    sections = len(volume.cleaner.candidates()[0])

    def made() -> bool:
        with volume.operation(0):
            volume.midway = True
            return make_room(volume.cleaner, segments, lambda more: segments.free_sections + more >= wanted,
                             volume._checkpoint_within)  # fmt: skip

    class NothingCanBeRead(OneBlockLost):
        asked = 0

        def pread_into(self, offset: int, buffer: Any) -> None:
            self.asked += 1
            raise DeviceError("the cable is out")

    lossy, volume.cleaner._device = volume.device, NothingCanBeRead(volume.device)
    volume.nodes._device = volume.cleaner._device
    assert not made()
    assert volume.cleaner._device.asked <= 2 * sections
    volume.cleaner._device = volume.nodes._device = lossy
    assert made()
    assert volume.broken is None
    lossy.lost = None  # type: ignore[attr-defined]
    volume.close()
    sound(image)


def _first_then(section: int, others: Callable[..., int | None]) -> Any:
    """A choice of the cleaner's, after a first one."""
    first = [section]
    return lambda *among: first.pop() if first else others(*among)


def test_memory_that_cant_be_given_back_now_ends_writing_only_where_something_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = fresh(tmp_path)
    tree = LiveTree(writable(image))
    volume, tending = tree.volume, Tending(Served(tree, MountOptions()))
    ino = tree.create(3, b"file", 0o100644, 0, 0)

    def bad() -> None:
        raise DeviceError("a bad sector")

    def written_before(real: Callable[[], None] = volume.files.write_back_all) -> None:
        real()
        bad()

    for failing, broken in ((bad, None), (written_before, "a bad sector")):
        with monkeypatch.context() as patched:
            patched.setattr(volume.files, "write_back_all", failing)
            while volume.files.page_count < volume._pages_held:
                volume.write(ino, 4096 * volume.files.page_count, bytes(4096))
            tending._balance()
            assert volume.broken == broken
    tree.close()


def test_no_log_goes_on_where_the_owners_of_blocks_cant_be_read(tmp_path: Path) -> None:
    image = overwritten(tmp_path, 90, True)
    lossy = OneBlockLost(open_device(image, write=True))
    tree = LiveTree(WritableVolume(lossy, Policy(), Ticks(), seed=1))
    volume, tending = tree.volume, Tending(Served(tree, MountOptions()))
    segments, ino = volume.segments, tree.create(3, b"file", 0o100644, 0, 0)
    assert segments.threading
    log = segments.cursegs[volume.policy.data_log(directory=False, cold=False)]
    best = segments._victim(log)
    assert best is not None
    lossy.lost = volume.geo.ssa_blkaddr + best
    opened: set[int] = set()
    for block in range(1000):
        volume.write(ino, block * 4096, bytes([block % 251]) * 4096)
        tending._balance()
        opened.add(log.segno)
        assert volume.broken is None
    assert len(opened) > 2
    assert best not in opened
    lossy.lost = None
    tree.close()
    sound(image)


@pytest.mark.parametrize("at_once", [1, 20])
def test_blocks_that_were_given_out_before_a_log_went_on_end_writing(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = writable(fresh(tmp_path))
    segments, log = volume.segments, 1
    before = segments.written_blocks
    segments.allocate(log, np.zeros(segments.room_in_log(log) - at_once, Summary.dtype))

    def bad(*_: object) -> None:
        raise DeviceError("a bad sector")

    monkeypatch.setattr(segments, "_open_next", bad)
    volume.midway, volume.written_before = True, segments.written_blocks
    owners = np.zeros(at_once, Summary.dtype)
    give = partial(segments.allocate_one, log, (5, 0, 0)) if at_once == 1 else partial(segments.allocate, log, owners)
    with pytest.raises(DeviceError) as raised:
        give()
    volume.ended(raised.value, reads_first=True)
    assert segments.written_blocks > before
    assert volume.broken == "a bad sector"
    volume.abandon()


def test_a_deleted_file_that_cant_be_read_hinders_no_other_from_giving_its_space_back(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        first, second = (volume.create(3, name, 0o100644) for name in (b"first", b"second"))
        for ino in (first, second):
            volume.write(ino, 0, bytes(1500 * 4096))
    lossy = OneBlockLost(open_device(image, write=True))
    tree = LiveTree(WritableVolume(lossy))
    served, volume = Served(tree, MountOptions()), tree.volume
    for name, ino in ((b"first", first), (b"second", second)):
        served.told(ino)
        tree.unlink(3, name)
    volume.nodes._blocks.clear()
    volume.nodes._inodes.clear()
    lossy.lost = volume.nodes.nat.get(int(volume.live(first).nids[0]))[2]
    before = volume.space.valid_blocks
    assert served.give_back_deleted()
    assert volume.space.valid_blocks <= before - 1500
    assert not served.give_back_deleted()
    assert tree.broken is None
    lossy.lost = None
    tree.close()
    sound(image)


def test_a_file_without_a_name_that_cant_be_read_whole_goes_later(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        before = volume.space.valid_inodes
        large = volume.create(3, b"large", 0o100644)
        volume.write(large, 0, bytes(1500 * 4096))
    lossy = OneBlockLost(open_device(image, write=True))
    tree = LiveTree(WritableVolume(lossy))
    served = Served(tree, MountOptions())
    served.told(large)
    tree.unlink(3, b"large")
    volume = tree.volume
    volume.nodes._blocks.clear()
    volume.nodes._inodes.clear()
    lossy.lost = volume.nodes.nat.get(int(volume.live(large).nids[0]))[2]
    served.forgotten(large, 1)
    assert tree.broken is None
    lossy.lost = None
    tree.close()
    sound(image)
    with writable(image) as volume:
        assert volume.space.valid_inodes == before
