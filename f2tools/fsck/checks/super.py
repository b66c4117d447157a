"""Both superblock copies, and whether they agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    DEFAULT_INLINE_XATTR_ADDRS,
    ENCODINGS,
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_FEATURE_QUOTA_INO,
    F2FS_FEATURE_RO,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_XATTR,
    FADVISE_ENCRYPT_BIT,
    FADVISE_VERITY_BIT,
    FEATURES,
    QUOTA_NAMES,
)
from f2tools.f2fs.layout.footers import footer_in, inodes_in
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.layout.quota import QUOTA_MAGICS, QuotaHeader
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.layout.xattr import F2FS_XATTR_MAGIC
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.super import SuperCopy, error_names, stop_reasons, unknown_features
from f2tools.fsck import problems
from f2tools.fsck.derive.derive import sample_of_inodes, with_extra_attr
from f2tools.fsck.facts.columns import Columns
from f2tools.fsck.facts.image import Image
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import (
    ClearQuotaIno,
    ClearRecords,
    CopySuperblock,
    Lengthen,
    SetEncoding,
    SetFeature,
    SetPayload,
)

NEED_EXTRA = ("project_quota", "inode_checksum", "flexible_inline_xattr", "inode_crtime", "compression")


class Mark(NamedTuple):
    """By which bits of a column of the table of inodes a feature may be in use; by any with 0."""

    feature: str
    column: str
    bits: int

    def of(self, table: Columns) -> NDArray[np.bool_]:
        """Which inodes have the mark."""
        values = table[self.column]
        return (values & np.uint32(self.bits) if self.bits else values) != 0


MARKS = (
    Mark("compression", "flags", F2FS_COMPR_FL), Mark("casefold", "flags", F2FS_CASEFOLD_FL),
    Mark("encrypt", "advise", FADVISE_ENCRYPT_BIT), Mark("verity", "advise", FADVISE_VERITY_BIT),
    Mark("project_quota", "projid", 0), Mark("device_alias", "flags", F2FS_DEVICE_ALIAS_FL),
)  # fmt: skip
_RECORDS = ("s_stop_reason", "s_errors")  # written by a kernel in trouble, one copy at a time


def check_copies(image: Image) -> Iterator[Finding]:
    """Each copy starts with the magic, passes its checksum, and its fields hold together."""
    for copy in image.super_copies:
        repair = CopySuperblock(copy.index)
        place = {"area": "sb", "blkaddr": copy.index, "repair": repair}
        for text in copy.problems:
            if "magic" in text:
                yield Finding(problems.SB_MAGIC, **place, note=text)
            elif "checksum" in text:
                yield Finding(problems.SB_CHECKSUM, **place, note=text)
            else:
                yield Finding(problems.SB_GEOMETRY, **place, note=text)


def check_lost(image: Image) -> Iterator[Finding]:
    """At least one copy can be used, or put together."""
    if image.doubted_block_size:
        yield Finding(
            problems.SB_GEOMETRY, area="sb", blkaddr=image.super_index, found=image.doubted_block_size,
            expected=image.sb.log_blocksize, note="log_blocksize: no node is where the node address table says",
            repair=CopySuperblock(image.super_index),
        )  # fmt: skip
    if image.payload_was is not None:
        yield Finding(
            problems.SB_PAYLOAD, area="sb", blkaddr=image.super_index, found=image.payload_was,
            expected=image.sb.cp_payload, repair=SetPayload(),
        )  # fmt: skip
    if image.super_derived:
        said = f"main area at {image.sb.main_blkaddr:#x}, {image.sb.segment_count_main} segments"
        yield Finding(problems.SB_LOST, area="sb", blkaddr=0, note=said, repair=CopySuperblock(0))


def check_end(image: Image) -> Iterator[Finding]:
    """A block address leads to the end of the volume."""
    if image.geo.too_long:
        yield Finding(problems.SB_TOO_LONG, area="sb", blkaddr=image.super_index, found=f"{image.geo.end_blkaddr:#x}")


def check_agreement(image: Image) -> Iterator[Finding]:
    """Both copies say the same, except for records of errors."""
    first, second = image.super_copies
    if not (first.valid and second.valid):
        return
    differing = [name for name in _differing(first, second) if name not in _RECORDS]
    if differing:
        other = 1 - image.super_index
        repair = CopySuperblock(other)
        yield Finding(problems.SB_DIFFERS, area="sb", blkaddr=other, note=", ".join(differing), repair=repair)


def _differing(first: SuperCopy, second: SuperCopy) -> list[str]:
    assert first.sb is not None
    assert second.sb is not None
    a, b = first.sb.build(), second.sb.build()
    return [
        item.name
        for item in SuperBlock.fields
        if a[item.offset : item.offset + item.size] != b[item.offset : item.offset + item.size] and item.name != "crc"
    ]


def check_features(image: Image) -> Iterator[Finding]:
    """Every feature bit is known, and those that it needs are set."""
    sb = image.sb
    copy = image.super_index
    unknown = unknown_features(sb)
    if unknown:
        yield Finding(problems.SB_FEATURE_UNKNOWN, area="sb", blkaddr=copy, found=f"{unknown:#x}")
    other = image.super_copies[1 - copy]
    contradicted = other.valid and other.sb is not None and not other.sb.feature & F2FS_FEATURE_RO
    doubted = contradicted or sb.segment_count_ssa  # mkfs makes none, nor reserves anything
    if sb.feature & F2FS_FEATURE_RO and doubted and image.pack is not None and image.cp.rsvd_segment_count:
        reserved = image.cp.rsvd_segment_count
        why = "the other copy does not say so" if contradicted else f"{sb.segment_count_ssa} segments are the SSA's"
        note = f"ro: {why}, and {reserved} segments are reserved for cleaning"
        yield Finding(
            problems.SB_FEATURE_CLASH, area="sb", blkaddr=copy, note=note, repair=SetFeature(F2FS_FEATURE_RO, False)
        )
    if not sb.feature & F2FS_FEATURE_EXTRA_ATTR:
        with_extra, inodes = _extra_attr_use(image)
        lost = 2 * with_extra > inodes
        repair = SetFeature(F2FS_FEATURE_EXTRA_ATTR, True)
        if lost:
            note = f"{with_extra} of {inodes} inodes looked at have extra attributes"
            yield Finding(problems.SB_FEATURE_CLASH, area="sb", blkaddr=copy, note=note, repair=repair)
        else:
            repair = SetFeature(sum(FEATURES[name] for name in NEED_EXTRA), False)
        for name in NEED_EXTRA:
            if sb.feature & FEATURES[name]:
                note = f"{name} needs extra_attr"
                yield Finding(problems.SB_FEATURE_CLASH, area="sb", blkaddr=copy, note=note, repair=repair)
    elif sb.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR:
        with_extra, inodes = _extra_attr_use(image)
        if 2 * with_extra < inodes:  # Linux 6.1 refuses those without
            note = f"flexible_inline_xattr needs extra attributes; {with_extra} of {inodes} inodes looked at have them"
            repair = SetFeature(F2FS_FEATURE_FLEXIBLE_INLINE_XATTR, False)
            yield Finding(problems.SB_FEATURE_CLASH, area="sb", blkaddr=copy, note=note, repair=repair)
    if sb.feature & F2FS_FEATURE_CASEFOLD and sb.s_encoding not in ENCODINGS.values():
        yield Finding(
            problems.SB_ENCODING, area="sb", blkaddr=copy, found=sb.s_encoding, expected=1, repair=SetEncoding()
        )


def _extra_attr_use(image: Image) -> tuple[int, int]:
    """(inodes with extra attributes, inodes) in a small sample."""
    if image.pack is None:
        return 0, 0
    return with_extra_attr(sample_of_inodes(image.device, image.geo, image.nat))


def check_room(image: Image) -> Iterator[Finding]:
    """Without flexible_inline_xattr every inode keeps the usual room for attributes."""
    feature = image.geo.feature
    if image.pack is None or feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR or not feature & F2FS_FEATURE_EXTRA_ATTR:
        return
    odd, inodes = _other_room(sample_of_inodes(image.device, image.geo, image.nat), image.geo)
    if odd:
        yield feature_lost(
            image, "flexible_inline_xattr", f"{odd} of {inodes} inodes looked at keep another room for attributes"
        )


def _other_room(blocks: NDArray[np.uint8], geo: Geometry) -> tuple[int, int]:
    """(inodes with another room than the usual one, inodes) among these blocks.

    Most must say so, or attributes must begin there.  `tune` leaves the words where all have the usual room.
    """
    rows = inodes_in(blocks)
    at = INODE_ADDR_OFFSET
    extra = InodeExtra.table(np.ascontiguousarray(blocks[:, at : at + InodeExtra.size]))
    said, size = extra["i_inline_xattr_size"].astype(np.int64), extra["i_extra_isize"].astype(np.int64)
    has = rows["i_inline"] & F2FS_EXTRA_ATTR != 0
    usual = np.where(rows["i_inline"] & (F2FS_INLINE_XATTR | F2FS_INLINE_DENTRY) != 0, DEFAULT_INLINE_XATTR_ADDRS, 0)
    odd = has & (said > 0) & (said != usual) & (said < geo.addrs_per_inode - size // 4)
    words, some = np.ascontiguousarray(blocks).view("<u4"), np.flatnonzero(odd)
    begins = words[some, at // 4 + geo.addrs_per_inode - said[some]] == F2FS_XATTR_MAGIC
    count = int(np.count_nonzero(odd))
    return (count if begins.any() or 2 * count > np.count_nonzero(has) else 0), len(blocks)


def feature_lost(image: Image, name: str, why: str) -> Finding:
    """A feature that is used and not set is set again."""
    return Finding(
        problems.SB_FEATURE_LOST, area="sb", blkaddr=image.super_index, note=f"{name}: {why}",
        repair=SetFeature(FEATURES[name], True),
    )  # fmt: skip


def check_records(image: Image) -> Iterator[Finding]:
    """No kernel has recorded an error."""
    reasons = [*stop_reasons(image.sb), *error_names(image.sb)]
    if reasons:
        yield Finding(
            problems.SB_STOPPED, area="sb", blkaddr=image.super_index, note=", ".join(reasons),
            repair=ClearRecords(),
        )  # fmt: skip


def check_size(image: Image) -> Iterator[Finding]:
    """The device is as long as the volume."""
    if image.missing_bytes:
        starts = [start for _, start, _ in image.raw.gaps]
        yield Finding(
            problems.SB_CUT_OFF, area="sb", blkaddr=min([*starts, image.there_bytes]) // image.block_size,
            note=", ".join(f"{name} lacks {length} bytes" for name, length in image.missing) if starts else "",
            found=image.end_bytes - image.missing_bytes, expected=image.end_bytes, repair=Lengthen(),
        )  # fmt: skip


def check_quota_inos(image: Image) -> Iterator[Finding]:
    """Each quota file has a node number of its own, and there are some only with the feature quota."""
    has = image.sb.feature & F2FS_FEATURE_QUOTA_INO
    seen: set[int] = set()
    for name, magic, number in zip(QUOTA_NAMES, QUOTA_MAGICS, image.sb.qf_ino.tolist(), strict=True):
        is_one = _is_quota_file(image, number, magic)
        if number and not has and is_one:
            note = f"quota: {number} is the {name} quota file"
            repair = SetFeature(F2FS_FEATURE_QUOTA_INO, True)
            yield Finding(problems.SB_FEATURE_CLASH, area="sb", blkaddr=image.super_index, note=note, repair=repair)
        elif number and (not has or not 3 < number < image.geo.max_nid or number in seen or is_one is False):
            yield Finding(
                problems.SB_QUOTA_INO, area="sb", blkaddr=image.super_index, note=name, found=number,
                repair=ClearQuotaIno(name),
            )  # fmt: skip
        seen.add(number)


def _is_quota_file(image: Image, ino: int, magic: int) -> bool | None:
    """Whether an inode is that of a quota file; None where nothing says so, or not.

    It is a regular file that no directory has, so that it remembers no name.
    """
    addr = image.nat.get(ino)[2] if image.pack is not None and 3 < ino < image.geo.max_nid else 0
    if not image.geo.in_main(addr):
        return None
    block = image.block(addr)
    footer = footer_in(block)
    if footer["nid"] != ino or footer["ino"] != ino:
        return None
    inode = Inode(image.geo, block, ino, addr)
    if not inode.is_file or inode.i_namelen:
        return False
    first = 0 if inode.has_inline_data or not inode.addrs.size else int(inode.addrs[0])
    if not image.geo.in_main(first):
        return None
    return True if QuotaHeader.parse(image.block(first).tobytes()).dqh_magic == magic else None


CHECKS = (
    check_copies, check_lost, check_end, check_agreement, check_features, check_room, check_records, check_size,
    check_quota_inos,
)  # fmt: skip
