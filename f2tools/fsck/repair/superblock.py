"""Repairs of the superblock: both copies from the one in use, and single fields of both."""

from __future__ import annotations

from collections.abc import Callable

from f2tools.f2fs.layout.constants import (
    F2FS_FEATURE_SB_CHKSUM,
    F2FS_SUPER_OFFSET,
    QUOTA_NAMES,
)
from f2tools.f2fs.layout.hashes import f2fs_crc32
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.fsck.facts.image import SECTOR
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import ClearQuotaIno, CopySuperblock, SetEncoding, SetFeature
from f2tools.fsck.repair.work import Work


def copy_superblock(work: Work, finding: Finding, _plan: CopySuperblock) -> bool:
    """Both copies from the one in use; their blocks are written whole, as a block that can't be read is only so."""
    chosen, device, size = work.image.super_copies[work.image.super_index], work.image.device, work.image.geo.block_size
    raw = bytearray(device.pread(chosen.offset, SuperBlock.size))
    _seal(work, raw)
    behind = F2FS_SUPER_OFFSET + SuperBlock.size
    for start in (0, size):
        if device.pread(start + F2FS_SUPER_OFFSET, SuperBlock.size) != bytes(raw):
            # by sectors, of which one may be lost
            before = [device.pread(start + at, SECTOR) for at in range(0, F2FS_SUPER_OFFSET, SECTOR)]
            device.pwrite(start, b"".join([*before, raw, device.pread(start + behind, size - behind)]))
            work.surgery.changed += 1
    work.note(finding, f"both copies are as copy {chosen.index}")
    return True


def set_feature(work: Work, finding: Finding, plan: SetFeature) -> bool:
    """Switch features on or off in both copies."""

    def change(word: int) -> int:
        return word | plan.bits if plan.on else word & ~plan.bits

    return _change_copies(work, finding, SuperBlock.offset_of("feature"), 4, change)


def set_encoding(work: Work, finding: Finding, _plan: SetEncoding) -> bool:
    """UTF-8 12.1: there is no other."""
    return _change_copies(work, finding, SuperBlock.offset_of("s_encoding"), 2, lambda word: 1)


def clear_quota_ino(work: Work, finding: Finding, plan: ClearQuotaIno) -> bool:
    """No quota file of this kind."""
    at = SuperBlock.offset_of("qf_ino") + 4 * QUOTA_NAMES.index(plan.kind)
    return _change_copies(work, finding, at, 4, lambda word: 0)


def _change_copies(work: Work, finding: Finding, at: int, size: int, change: Callable[[int], int]) -> bool:
    for copy in work.image.super_copies:
        if copy.sb is None:
            continue
        raw = bytearray(work.image.device.pread(copy.offset, SuperBlock.size))
        raw[at : at + size] = change(int.from_bytes(raw[at : at + size], "little")).to_bytes(size, "little")
        _seal(work, raw)
        work.image.device.pwrite(copy.offset, bytes(raw))
    work.surgery.changed += 1
    work.note(finding, "set")
    return True


def _seal(work: Work, raw: bytearray) -> None:
    if work.image.geo.feature & F2FS_FEATURE_SB_CHKSUM:
        raw[-4:] = f2fs_crc32(bytes(raw[:-4])).to_bytes(4, "little")
