"""NAT, SIT, SSA and checkpoint of images that the kernel wrote: they must agree with each other and with its counts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import f2tools
from f2tools.device import Device
from f2tools.errors import NotF2fs
from f2tools.f2fs.layout.constants import (
    CP_DISABLED_FLAG,
    F2FS_FEATURE_RO,
    NEW_ADDR,
    SUM_TYPE_DATA,
    SUM_TYPE_NODE,
)
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.checkpoint import read_nat_bits
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.nat import Nat
from f2tools.f2fs.volume.volume import Volume
from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh
from tests.hostile.exercise import grown_bytes, in_child
from tests.images import CLEAN, CRASH, FSCRYPT, HISTORY, SLOADED, Reference, reference

ALL = (*CLEAN, *CRASH, *FSCRYPT, *HISTORY, *SLOADED)
FSCK_LEFT_COUNTS = ("blocks16k-compress",)  # sload counts blocks that compression saves; no SIT bit stands for them


def opened(case: Reference) -> Volume:
    return f2tools.open(case.path, case.extra)


@pytest.mark.parametrize("name", ALL)
def test_the_sit_counts_what_its_bitmaps_hold(name: str) -> None:
    with opened(reference(name)) as vol:
        bits = np.unpackbits(vol.sit.valid_map(), axis=1).sum(axis=1)
        assert (bits == vol.sit.vblocks).all()
        assert (bits == vol.sit.counts).all()
        # blocks reserved but not written, and those that compression saved, are counted by the checkpoint alone
        reserved = vol.cp.valid_block_count - int(bits.sum())
        assert reserved >= 0
        if name not in FSCK_LEFT_COUNTS:
            assert reserved == reserved_blocks(vol)


def test_the_bitmaps_of_a_large_volume_are_not_copied_to_be_counted(tmp_path: Path) -> None:
    with f2tools.open(fresh(tmp_path, "--size 512G")) as vol:
        assert len(vol.sit) > 1 << 17
        vol.sit.counts.sum()  # what is imported stays
        del vol.sit.counts
        tracemalloc.start()
        try:
            assert (vol.sit.counts == vol.sit.vblocks).all()
            assert tracemalloc.get_traced_memory()[1] < 4 << 20  # of 16 MiB of bitmaps
        finally:
            tracemalloc.stop()


def reserved_blocks(vol: Volume) -> int:
    """Blocks that files own without a place on the disk: NEW_ADDR, and what compression saved and nobody released."""
    inodes = [vol.root.inode]
    for _, _, entries in vol.walk():
        inodes += [entry.inode for entry in entries if isinstance(entry.inode, Inode)]
    unique = {inode.ino: inode for inode in inodes}
    unique |= {int(ino): vol.nodes.inode(int(ino)) for ino in (*vol.sb.qf_ino, *vol.orphans()) if ino}
    total = 0
    for inode in unique.values():
        if inode.has_inline_data or inode.has_inline_dentry or inode.kind not in ("file", "dir", "symlink"):
            continue
        for _, addrs in vol.data.spans(inode, 0, 1 << 30):
            total += int((addrs == NEW_ADDR).sum())
        if inode.compressed and not inode.i_inline & 0x80:
            # COMPRESS_ADDR itself stands for a block too
            total += sum(int((addrs == 0xFFFFFFFE).sum()) for _, addrs in vol.data.spans(inode, 0, 1 << 30))
    return total


@pytest.mark.parametrize("name", ALL)
def test_the_nat_holds_as_many_nodes_as_the_checkpoint_says(name: str) -> None:
    with opened(reference(name)) as vol:
        used = vol.nat.used()
        entries = vol.nat.lookup(used)
        real = used > 2
        assert real.sum() == vol.cp.valid_node_count
        assert (entries["ino"][real] == used[real]).sum() == vol.cp.valid_inode_count
        written = real & (entries["block_addr"] != NEW_ADDR)
        assert vol.geo.in_main(entries["block_addr"][written]).all()
        assert vol.sit.valid(entries["block_addr"][written]).all()
        lazily = opened(reference(name))
        assert (lazily.nat.lookup(used[::7]) == entries[::7]).all(), "read in part, the table is the same"
        lazily.close()


@pytest.mark.parametrize("name", ALL)
def test_nat_bits_agree_with_the_table(name: str) -> None:
    with opened(reference(name)) as vol:
        bits = read_nat_bits(vol.device, vol.geo, vol.pack)
        if bits is None or not bits.matches:
            return
        per = vol.geo.nat_entries_per_block
        live = vol.nat.entries()["block_addr"].reshape(-1, per) != 0
        journalled = np.unique(vol.summaries.journals.nat["nid"] // per)
        sure = np.setdiff1d(np.arange(len(live)), journalled)  # the journal is newer than the bits
        assert not (bits.empty[sure] & live[sure].any(axis=1)).any()
        assert not (bits.full[sure] & ~live[sure].all(axis=1))[1:].any()


@pytest.mark.parametrize("name", ALL)
def test_the_summaries_name_the_owner_of_every_block(name: str) -> None:
    with opened(reference(name)) as vol:
        if vol.sb.feature & F2FS_FEATURE_RO:
            pytest.fail("no reference image is read-only; this test needs a branch for them")
        nids = vol.nat.used()
        nids = nids[nids > 2]
        entries = vol.nat.lookup(nids)
        for nid, addr in zip(nids.tolist(), entries["block_addr"].tolist(), strict=True):
            if addr == NEW_ADDR:
                continue
            kind, owner, _, _ = vol.summaries.owner(addr)
            assert (kind, owner) == (SUM_TYPE_NODE, nid)
        for ino in np.unique(entries["ino"])[:200].tolist():
            inode = vol.nodes.inode(ino)
            if inode.has_inline_data or inode.has_inline_dentry or inode.kind not in ("file", "dir"):
                continue
            if inode.i_flags & 0x80000000:
                continue  # a device alias has neither addresses nor summaries
            extra = inode.extra_isize // 4
            for ofs, addr in enumerate(inode.addrs[:40].tolist()):
                if vol.geo.in_main(addr):
                    version = vol.nat.get(ino)[0]
                    # data blocks count addresses from the first one in use, after the extra attributes
                    assert vol.summaries.owner(addr) == (SUM_TYPE_DATA, ino, version, ofs), (inode, extra)


@pytest.mark.parametrize("name", [n for n in (*CLEAN, *CRASH) if n != "checkpoint-disabled"])
def test_open_logs_stand_where_the_checkpoint_says(name: str) -> None:
    with opened(reference(name)) as vol:
        assert not vol.cp.ckpt_flags & CP_DISABLED_FLAG
        for curseg in vol.summaries.cursegs:
            if not curseg.alloc_type:
                bits = np.unpackbits(vol.sit.valid_map(np.array([curseg.segno])))
                assert not bits[curseg.next_blkoff :].any(), f"{curseg.name}: nothing may be valid ahead of the log"


def test_the_older_checkpoint_can_be_asked_for() -> None:
    image = reference("base").path
    with f2tools.open(image) as now, f2tools.open(image, checkpoint="older") as before:
        assert before.cp.checkpoint_ver < now.cp.checkpoint_ver
        assert before.pack.index != now.pack.index
        assert before.root.inode.is_dir


@pytest.mark.parametrize("damage", ["superblock-both", "checkpoint-both"])
def test_a_volume_without_a_usable_head_says_so(damage: str, damaged) -> None:
    with pytest.raises(NotF2fs, match=r"superblock|checkpoint"):
        f2tools.open(damaged(damage).path)


@pytest.mark.parametrize("damage", ["superblock-first", "checkpoint-crc", "checkpoint-footer"])
def test_one_copy_is_enough(damage: str, damaged) -> None:
    with f2tools.open(damaged(damage).path) as vol:
        assert vol.warnings
        assert vol.path("/small").inode.is_dir


def test_an_unknown_feature_is_read_with_a_warning(tmp_path) -> None:
    image = reference("base").copy(tmp_path).path
    at = SuperBlock.offset_of("feature")
    with image.open("r+b") as file:
        for start in (1024, 4096 + 1024):  # this volume has no checksum in its superblock
            file.seek(start + at)
            file.write((1 << 30).to_bytes(4, "little"))
    with f2tools.open(image) as vol:
        assert any("unknown feature bits 0x40000000" in text for text in vol.warnings)
        assert vol.path("/small").inode.is_dir
        assert vol.device.read_only


class AllData:
    """A device of which nothing is known to be a hole."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        yield offset, length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


def test_a_table_of_zeros_takes_no_memory(tmp_path: Path) -> None:
    """The NAT of a volume for many nodes has 440 MiB; mkfs.f2fs writes all of it."""
    image = tmp_path / "large.img"
    assert f2("mkfs", image, "--size", "1T", "-i").code == 0

    def most() -> list[str]:
        with f2tools.open(image) as volume:
            nat = Nat(cast(Device, AllData(volume.device)), volume.geo, volume.pack, volume.summaries.journals.nat)
            assert nat.used().tolist() == volume.nat.used().tolist()
            assert nat.in_use().sum() == nat.used().size
            return [f"{volume.geo.nat_blocks >> 8} {grown_bytes() >> 20}"]

    table, grown = map(int, in_child(most)[0].split())
    assert (table > 400, grown < 60) == (True, True), (table, grown)
