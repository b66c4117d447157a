"""Below the volume: zones with write pointers, and blocks that can't be read."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import f2tools
from f2tools.device import Device, open_device
from f2tools.device.base import Wrapper
from f2tools.device.changes.overlay import Overlay
from f2tools.device.media.block import Zone
from f2tools.errors import DeviceError, Unsupported
from f2tools.f2fs.layout.constants import F2FS_SUPER_OFFSET
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.super import lost_devices
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.fsck.check import CheckReport, check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.repair.rounds import Repairer, StaysOpen
from tests.dump.craft import f2
from tests.fsck.craft import Patient, bad, codes, examine, said
from tests.fsck.trees import tree_of
from tests.images import reference


class Zoned(Wrapper):
    """An image as if its sections were zones: written up to the last valid block, or to where the open log goes on.

    `moved`: by how many blocks the write pointer of the zone of the first log is elsewhere.
    """

    def __init__(self, path: Path, moved: int = 0) -> None:
        super().__init__(Overlay(open_device(path)))
        self._path, self._moved = path, moved
        self._zones = self._now()

    def zones(self) -> list[Zone]:
        return self._zones

    def pwrite(self, offset: int, data: Any) -> None:
        """As a real one: no write in place where blocks are written one after the other."""
        end = offset + memoryview(data).nbytes
        assert not any(offset < zone.start + zone.length and zone.start < end for zone in self._zones)
        super().pwrite(offset, data)

    def _now(self) -> list[Zone]:
        with f2tools.open(self._path) as volume:
            geo, logs = volume.geo, volume.summaries.cursegs
            valid = np.unpackbits(volume.sit.valid_map()).reshape(-1, geo.segs_per_sec * geo.blocks_per_seg)
            pointers = valid.shape[1] - np.argmax(valid[:, ::-1], axis=1)
            pointers[~valid.any(axis=1)] = 0
            for number, log in enumerate(logs):
                at = (log.segno % geo.segs_per_sec) * geo.blocks_per_seg + log.next_blkoff
                pointers[log.segno // geo.segs_per_sec] = at + (self._moved if number == 0 else 0)
            length = valid.shape[1] * geo.block_size
            return [
                Zone(
                    start=(start := geo.main_blkaddr * geo.block_size + number * length), length=length,
                    capacity=length, write_pointer=start + int(pointer) * geo.block_size,
                    type="sequential-write-required", condition="full" if pointer == valid.shape[1] else "closed",
                )
                for number, pointer in enumerate(pointers)
            ]  # fmt: skip


def _examined(device: Device) -> CheckReport:
    image = Image(device)
    try:
        return check(image)
    finally:
        image.close()


def test_write_pointers_of_a_sound_zoned_volume_are_silent() -> None:
    report = _examined(Zoned(reference("zoned").path))
    assert not bad(report), said(report)


def test_a_write_pointer_that_is_not_where_the_log_goes_on_is_found() -> None:
    report = _examined(Zoned(reference("zoned").path, moved=1))
    assert set(codes(report)) == {"W001"}, said(report)


def test_valid_blocks_beyond_the_write_pointer_are_found() -> None:
    report = _examined(Zoned(reference("zoned").path, moved=-3))
    found = bad(report)
    assert {finding.code for finding in found} == {"W001"}
    assert any("beyond the write pointer" in finding.note for finding in found), said(report)


def test_a_log_that_left_its_write_pointer_gets_a_new_zone_in_place() -> None:
    device = Zoned(reference("zoned").path, moved=1)
    good = _tree(device)
    repairer = Repairer(device)
    assert repairer.run(_examined(StaysOpen(device))).complete
    repairer.commit(device)
    report = _examined(StaysOpen(device))
    assert not bad(report), said(report)
    assert _tree(device) == good


def test_what_lies_in_a_sequential_zone_is_not_changed_in_place(tmp_path: Path) -> None:
    p = Patient("zoned", tmp_path)
    ino = p.vol.root.inode
    p.put(ino.blkaddr * p.size + 12, 4, ino.i_links + 1)
    p.close()
    device = Zoned(p.path)
    repairer = Repairer(device)
    assert repairer.run(_examined(StaysOpen(device))).complete
    with pytest.raises(Unsupported, match="sequential zone"):
        repairer.commit(device)


def _tree(device: Device) -> dict[bytes, bytes]:
    with Volume(StaysOpen(device)) as volume:
        return {
            directory + b"/" + entry.name: File(volume, entry.inode, entry.name).read() if entry.inode.is_file else b""
            for directory, _, entries in volume.walk()
            for entry in entries
            if isinstance(entry.inode, Inode)
        }


class Torn(Wrapper):
    """A device of which one block can't be read, until it is written."""

    def __init__(self, base: Device, blkaddr: int) -> None:
        super().__init__(base)
        self._bad = range(blkaddr * 4096, (blkaddr + 1) * 4096)

    def pread_into(self, offset: int, buffer: Any) -> None:
        length = memoryview(buffer).nbytes
        if offset < self._bad.stop and offset + length > self._bad.start:
            raise DeviceError(f"reading at {offset:#x} failed: Input/output error")
        super().pread_into(offset, buffer)

    def pwrite(self, offset: int, data: Any) -> None:
        if offset <= self._bad.start and offset + memoryview(data).nbytes >= self._bad.stop:
            self._bad = range(0)
        super().pwrite(offset, data)


def test_a_block_that_can_not_be_read_is_written_by_a_repair() -> None:
    device = Torn(Overlay(open_device(reference("base").path)), 0x125B)
    before = _examined(StaysOpen(device))
    assert "H001" in codes(before)
    careful = Repairer(device, careful=True).run(before)
    assert "H001" in careful.left
    repairer = Repairer(device)
    assert repairer.run(before).complete
    repairer.commit(device)
    report = _examined(StaysOpen(device))
    assert not bad(report), said(report)


def test_a_block_that_cannot_be_read_is_told_and_the_rest_is_checked(tmp_path: Path) -> None:
    blkaddr = 0x125B  # the inode of /medium/one
    report = _examined(Torn(open_device(reference("base").path), blkaddr))
    found = {finding.code: finding for finding in bad(report)}
    assert found["H001"].blkaddr == blkaddr
    assert found["F010"].nid == 43
    assert report.inodes == 158


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_check_of_a_cut_off_image_names_the_files_whose_data_is_missing(share: float, tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    blocks = {}
    for directory, _, entries in p.vol.walk():
        for entry in entries:
            inode = entry.inode
            assert isinstance(inode, Inode)
            path = (directory.rstrip(b"/") + b"/" + entry.name).decode()
            mapped = [(first + i, int(a)) for first, some in p.vol.data.spans(inode) for i, a in enumerate(some)]
            blocks[path] = inode, [(number, blkaddr) for number, blkaddr in mapped if p.geo.in_main(blkaddr)]
    every = sorted(blkaddr for _, some in blocks.values() for _, blkaddr in some)
    end = every[int(len(every) * share)]
    p.close()
    os.truncate(p.path, end * p.size)
    found = {f.ino: f for f in examine(p.path).findings if f.code == "B004"}
    whole = {path: inode for path, (inode, _) in blocks.items() if inode.blkaddr < end}
    missing = {path: [at for at, blkaddr in blocks[path][1] if blkaddr >= end] for path in whole}
    missing = {path: some for path, some in missing.items() if some}
    assert missing
    assert set(found) <= {whole[path].ino for path in missing}
    for path, some in missing.items():
        inode = whole[path]
        if any(inode.nids):  # what lies below a node that is missing too is told of the node
            continue
        finding = found[inode.ino]
        assert finding.path == path or inode.i_links > 1
        assert str(finding.found).startswith(f"bytes {some[0] * p.size} to ")


def test_the_first_superblock_loses_its_table_of_devices_and_what_is_advised_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command took the volume for one on one device, and said to leave the other out."""
    image = reference("multi-device").copy(tmp_path)
    good = tree_of(image.path, *image.extra)
    with image.path.open("r+b") as file:
        file.seek(F2FS_SUPER_OFFSET + SuperBlock.offset_of("devs"))
        file.write(bytes(SuperBlock.size - SuperBlock.offset_of("devs")))
    assert "this volume is on 2 devices" in f2("fsck", image.path).err
    report = f2("fsck", image.path, *(word for path in image.extra for word in ("--device", path)))
    assert report.code == 4
    salvage, repair, undo = re.findall(r"`f2tools ([^`]+)`", report.text)
    before = [path.read_bytes() for path in image.devices]
    assert f2(*shlex.split(salvage.replace("DIR", str(tmp_path / "out")))).code == 0
    monkeypatch.chdir(tmp_path)
    assert f2(*shlex.split(repair)).code == 1
    assert not bad(examine(image.path, *image.extra))
    assert tree_of(image.path, *image.extra) == good
    assert f2(*shlex.split(undo)).code == 0
    assert [path.read_bytes() for path in image.devices] == before


@pytest.mark.parametrize("copy", [0, 1])
def test_a_byte_in_the_path_of_a_device_that_there_is_not_asks_for_none(copy: int, tmp_path: Path) -> None:
    """Every command named it, and asked for it with --device."""
    image = reference("multi-device").copy(tmp_path)
    good = tree_of(image.path, *image.extra)
    size = (SuperBlock.offset_of("qf_ino") - SuperBlock.offset_of("devs")) // 8
    with image.path.open("r+b") as file:
        file.seek(F2FS_SUPER_OFFSET + 4096 * copy + SuperBlock.offset_of("devs") + 2 * size)
        file.write(b"x")
    given = [word for path in image.extra for word in ("--device", path)]
    assert f2("info", image.path, *given).code == 0
    assert "device 2 has no segments" in f2("fsck", image.path, *given).text
    assert f2("fsck", "-y", image.path, *given).code == 1
    assert not bad(examine(image.path, *image.extra))
    assert tree_of(image.path, *image.extra) == good


def test_a_table_of_devices_in_the_superblock_of_another_volume_counts_for_nothing() -> None:
    with f2tools.open(reference("multi-device").path, list(reference("multi-device").extra)) as volume:
        sound, lost, stale = (SuperBlock.parse(volume.sb.build()) for _ in range(3))
    lost.devs[0].path = bytes(len(lost.devs[0].path))
    stale.uuid = bytes(16)
    assert lost_devices(lost, sound)
    assert not lost_devices(lost, stale)
    assert not lost_devices(sound, lost)
