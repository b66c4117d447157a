"""The fields of inodes, a batch at a time: what can be judged from the block alone, by the volume's features."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.compress import is_level
from f2tools.f2fs.layout.constants import (
    COMPRESS_ALGORITHMS,
    COMPRESS_LEVEL_OFFSET,
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_DATA_EXIST,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_COMPRESSION,
    F2FS_FEATURE_DEVICE_ALIAS,
    F2FS_FEATURE_ENCRYPT,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_FEATURE_INODE_CRTIME,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_FEATURE_VERITY,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_XATTR,
    F2FS_NAME_LEN,
    F2FS_PIN_FILE,
    FADVISE_ENC_NAME_BIT,
    FADVISE_ENCRYPT_BIT,
    FADVISE_VERITY_BIT,
    MAX_COMPRESS_LOG_SIZE,
    MIN_COMPRESS_LOG_SIZE,
    U32_MAX,
)
from f2tools.f2fs.layout.hashes import inode_checksums
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.fsck import problems
from f2tools.fsck.facts.arrays import any_within
from f2tools.fsck.facts.inodes import EXTRA_SIZES, MIN_INLINE_XATTR, InodeBatch, max_inline_xattr
from f2tools.fsck.facts.sound import KNOWN_FLAGS
from f2tools.fsck.findings import Finding, Problem
from f2tools.fsck.plans import (
    ClearFirstAddress,
    ClearNodePointers,
    FindAlgorithm,
    FindKind,
    ReplaceBlank,
    Reseal,
    SetField,
    SetFieldEarly,
    SetFieldLast,
    SetLevel,
)
from f2tools.volumes import MOST_ID

EARLIEST, LATEST = -62135596800, 253402300799  # seconds: the years 1 to 9999
LONGEST_TARGET = 4096  # of a symbolic link, PATH_MAX
NSEC = 1_000_000_000
SAID_LEVELS = ("i_atime", "i_ctime", "i_mtime")


def _each(
    batch: InodeBatch, bad: NDArray[np.bool_], problem: Problem, found: Any = None, expected: Any = None,
    field: str = "", note: str = "", plan: type[SetField] = SetField,
) -> Iterator[Finding]:  # fmt: skip
    """A finding for every inode in `bad`; `found` and `expected` are columns or values; `field` can be set to that."""
    for i in bad.nonzero()[0].tolist():
        want = _at(expected, i)
        ino = int(batch.nid[i])
        repair = plan(ino, field, want) if field else None
        yield Finding(
            problem, area="main", blkaddr=int(batch.blkaddr[i]), ino=ino, found=_at(found, i), expected=want,
            note=note, repair=repair,
        )  # fmt: skip


def _at(value: Any, i: int) -> Any:
    return value[i].item() if isinstance(value, np.ndarray) else value


def check_mode(batch: InodeBatch) -> Iterator[Finding]:
    """An inode is a file, directory, symlink, device, fifo or socket; and its block is not blank."""
    bad = ~batch.known
    if not bad.any():
        return
    blank = bad & (batch.head["i_mode"] == 0) & (batch.head["i_links"] == 0) & (batch.head["i_blocks"] == 0)
    yield from (replace(found, repair=ReplaceBlank()) for found in _each(batch, blank, problems.INODE_EMPTY))
    for i in np.flatnonzero(bad & ~blank).tolist():
        yield Finding(
            problems.INODE_MODE, area="main", blkaddr=int(batch.blkaddr[i]), ino=int(batch.nid[i]),
            found=f"{batch.head['i_mode'][i]:#o}", repair=FindKind(int(batch.nid[i])),
        )  # fmt: skip


def check_extra(batch: InodeBatch) -> Iterator[Finding]:
    """Extra attributes come with the feature, in a size that a kernel has written, and leave room for the rest."""
    head, geo = batch.head, batch.geo
    has = (head["i_inline"] & F2FS_EXTRA_ATTR) != 0
    if not geo.feature & F2FS_FEATURE_EXTRA_ATTR:
        flags = head["i_inline"]
        without = flags & np.uint8(~F2FS_EXTRA_ATTR & 0xFF)
        yield from _each(batch, has, problems.EXTRA_FLAG, flags, without, "i_inline", plan=SetFieldEarly)
        return
    flags = head["i_inline"]
    yield from _each(
        batch, batch.lost_extra, problems.EXTRA_FLAG, flags, flags | np.uint8(F2FS_EXTRA_ATTR), "i_inline",
        "it has extra attributes", SetFieldEarly,
    )  # fmt: skip
    has = has | batch.lost_extra
    if not has.any():
        return
    size = head["i_extra_isize"]
    odd = has & ~np.isin(size, EXTRA_SIZES)
    if odd.any():
        yield from _each(batch, odd, problems.EXTRA_SIZE, size, batch.extra, "i_extra_isize", plan=SetFieldEarly)
    if geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR:
        yield from _room_for_attributes(batch, has & ~odd)


def _room_for_attributes(batch: InodeBatch, has: NDArray[np.bool_]) -> Iterator[Finding]:
    """The room for attributes holds their header, where there are any, and leaves room for the rest."""
    flags, words = batch.head["i_inline"], batch.head["i_inline_xattr_size"]
    inline = has & (flags & F2FS_INLINE_XATTR != 0) & ~batch.no_xattr
    other = has & (batch.inline_xattr != words)  # the header of the attributes, and other inodes, say so
    small = inline & (words < MIN_INLINE_XATTR) & ~other
    yield from _each(
        batch, small, problems.INLINE_XATTR_SIZE, flags, flags & np.uint8(~F2FS_INLINE_XATTR & 0xFF), "i_inline",
        "something else lies there: i_inline", SetFieldEarly,
    )  # fmt: skip
    bad = other | (has & (words > max_inline_xattr(batch.geo)))
    better = np.where(other, batch.inline_xattr, DEFAULT_INLINE_XATTR_ADDRS)
    yield from _each(batch, bad, problems.INLINE_XATTR_SIZE, words, better, "i_inline_xattr_size", plan=SetFieldEarly)


def check_inline(batch: InodeBatch) -> Iterator[Finding]:
    """Inline data is for files and symlinks, inline entries for directories; it fits, and the reserved address is 0."""
    head, kind = batch.head, batch.kind
    data = (head["i_inline"] & F2FS_INLINE_DATA) != 0
    dentry = (head["i_inline"] & F2FS_INLINE_DENTRY) != 0
    known = batch.known
    bad = known & data & (dentry | ((kind != stat.S_IFREG) & (kind != stat.S_IFLNK)))
    bad |= known & dentry & (kind != stat.S_IFDIR)
    effective = batch.inline
    blocks = bad & (effective & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) == 0)
    yield from _each(batch, bad & ~blocks, problems.INLINE_FLAGS, found=head["i_inline"], field="i_inline")
    yield from _each(
        batch, blocks, problems.INLINE_FLAGS, head["i_inline"], effective & np.uint8(~F2FS_DATA_EXIST & 0xFF),
        "i_inline", "it has blocks",
    )  # fmt: skip
    wrongly = (data | dentry) & ~bad & known & (effective & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) == 0)
    yield from _each(
        batch, wrongly, problems.INLINE_FLAGS, head["i_inline"], effective & np.uint8(~F2FS_DATA_EXIST & 0xFF),
        "i_inline", "it has blocks",
    )  # fmt: skip
    flags = head["i_inline"]
    yield from _each(
        batch, batch.lost_xattr & known, problems.INLINE_FLAGS, flags, flags | np.uint8(F2FS_INLINE_XATTR),
        "i_inline", "it has room for attributes", SetFieldEarly,
    )  # fmt: skip
    yield from _each(
        batch, batch.lost_dentry, problems.INLINE_FLAGS, flags, flags | np.uint8(F2FS_INLINE_DENTRY), "i_inline",
        "it has entries inside", SetFieldEarly,
    )  # fmt: skip
    yield from _each(
        batch, batch.no_xattr & known, problems.INLINE_FLAGS, flags, flags & np.uint8(~F2FS_INLINE_XATTR & 0xFF),
        "i_inline", "it has no attributes inside", SetFieldEarly,
    )  # fmt: skip
    inline = (data | dentry) & ~bad & known & ~wrongly
    if not inline.any():
        return
    yield from _each(
        batch,
        inline & batch.has_nodes,
        problems.INLINE_FLAGS,
        found=head["i_inline"],
        note="it has nodes",
        field="i_inline",
        plan=ClearNodePointers,
    )
    rows = np.flatnonzero(inline)
    first = _words_at(batch, rows, INODE_ADDR_OFFSET + batch.extra[rows])
    reserved = np.zeros(inline.size, np.int64)
    reserved[rows] = first
    yield from _each(
        batch, inline & (reserved != 0), problems.INLINE_RESERVED, reserved, 0, "i_addr", plan=ClearFirstAddress
    )
    big = data & inline & (head["i_size"] > batch.inline_size.astype(np.uint64))
    yield from _each(batch, big, problems.INLINE_SIZE, head["i_size"], batch.inline_size, "i_size")
    yield from _bytes_behind_the_end(batch, data & inline & ~big & (kind == stat.S_IFREG))
    empty = data & inline & ~big & ((head["i_inline"] & F2FS_DATA_EXIST) == 0)
    empty[empty] = _filled(batch, np.flatnonzero(empty), np.int64(0))
    yield from _each(batch, empty, problems.DATA_EXIST, flags, flags | np.uint8(F2FS_DATA_EXIST), "i_inline")


def _bytes_behind_the_end(batch: InodeBatch, files: NDArray[np.bool_]) -> Iterator[Finding]:
    """Inline files with bytes behind i_size: what was cut off, or never written, must be zeros there.

    A single bit, with zeros before and behind it, is no content: that bit is wrong, not the size.
    """
    size = batch.head["i_size"]
    length = size.copy()
    hit = np.zeros(size.size, np.bool_)
    rows = np.flatnonzero(files)
    for i in rows[_filled(batch, rows, size[rows].astype(np.int64))].tolist():
        at, end = int(batch.inline_at[i]), int(size[i])
        behind = batch.blocks[i, at + end : at + int(batch.inline_size[i])]
        hit[i] = not behind[0] and np.unpackbits(behind).sum() == 1
        length[i] = end + len(behind.tobytes().rstrip(b"\0"))
    yield from _each(
        batch, (length != size) & ~hit, problems.SIZE_BEFORE_BLOCKS, size, length, "i_size", "inside its inode"
    )
    yield from _each(batch, hit, problems.BLOCKS_BEHIND_END, size, note="a single bit inside its inode")


def _filled(batch: InodeBatch, rows: NDArray[np.int64], start: NDArray[np.int64] | np.int64) -> NDArray[np.bool_]:
    """Whether the room for inline content of these inodes has anything but zeros from byte `start` of it on."""
    words = batch.blocks.view("<u4").reshape(-1)
    room = rows * batch.geo.block_size + batch.inline_at[rows]
    begin, end = room + start, room + batch.inline_size[rows]
    within = begin % 4  # bytes of the first word that lie before it
    first = words[begin // 4] >> (8 * within).astype(np.uint32)
    return any_within(words, -(-begin // 4), end // 4) | ((within != 0) & (first != 0))


def _words_at(batch: InodeBatch, rows: NDArray[np.integer], at: NDArray[Any]) -> NDArray[np.int64]:
    """The 32-bit words at byte offsets `at` (multiples of 4) of blocks `rows`."""
    return batch.blocks.view("<u4")[rows, at // 4].astype(np.int64)


def check_times(batch: InodeBatch) -> Iterator[Finding]:
    """Times lie within the years of four digits, and nanoseconds are less than a second."""
    for name in SAID_LEVELS:
        yield from _time(batch, name, np.ones(batch.nid.size, np.bool_))
    if batch.geo.feature & F2FS_FEATURE_INODE_CRTIME:
        yield from _time(batch, "i_crtime", batch.extra >= 24)


def _time(batch: InodeBatch, name: str, there: NDArray[np.bool_]) -> Iterator[Finding]:
    nsec = batch.head[f"{name}_nsec"]
    yield from _each(batch, there & (nsec >= NSEC), problems.INODE_NSEC, nsec, NSEC - 1, f"{name}_nsec", name)
    seconds = batch.head[name].view("<i8") if batch.head[name].flags.c_contiguous else batch.head[name].astype("<i8")
    bad = there & ((seconds < EARLIEST) | (seconds > LATEST))
    yield from _each(batch, bad, problems.INODE_TIME, seconds, note=name)


def check_flags(batch: InodeBatch) -> Iterator[Finding]:
    """Flags are known, and go with the kind of file and the features of the volume."""
    head, kind, feature = batch.head, batch.kind, batch.geo.feature
    flags = head["i_flags"]
    unknown = flags & np.uint32(~KNOWN_FLAGS & U32_MAX)
    kept = flags & np.uint32(KNOWN_FLAGS)
    yield from _each(batch, unknown != 0, problems.INODE_FLAG_UNKNOWN, unknown, kept, "i_flags")
    wrong = np.zeros(flags.size, np.uint32)
    wrong |= np.where((kind != stat.S_IFDIR) | (not feature & F2FS_FEATURE_CASEFOLD), flags & F2FS_CASEFOLD_FL, 0)
    if not feature & F2FS_FEATURE_COMPRESSION:
        wrong |= flags & np.uint32(F2FS_COMPR_FL)
    if not feature & F2FS_FEATURE_DEVICE_ALIAS:
        wrong |= flags & np.uint32(F2FS_DEVICE_ALIAS_FL)
    wrong |= np.where(
        (flags & F2FS_COMPR_FL != 0) & (batch.inline & F2FS_INLINE_DATA != 0) & (kind == stat.S_IFREG),
        flags & F2FS_COMPR_FL,
        0,
    ).astype(np.uint32)
    yield from _each(batch, wrong != 0, problems.INODE_FLAG, wrong, flags & ~wrong, "i_flags")
    advise = head["i_advise"]
    if not feature & F2FS_FEATURE_ENCRYPT:
        bad = advise & np.uint8(FADVISE_ENCRYPT_BIT | FADVISE_ENC_NAME_BIT)
        yield from _each(
            batch, bad != 0, problems.ENCRYPT_CONTEXT, advise, advise & ~bad, "i_advise", plan=SetFieldLast
        )
    if not feature & F2FS_FEATURE_VERITY:
        bad = advise & np.uint8(FADVISE_VERITY_BIT)
        yield from _each(batch, bad != 0, problems.VERITY, advise, advise & ~bad, "i_advise", plan=SetFieldLast)
    else:
        bad = np.where(kind != stat.S_IFREG, advise & np.uint8(FADVISE_VERITY_BIT), 0).astype(np.uint8)
        yield from _each(batch, bad != 0, problems.VERITY, advise, advise & ~bad, "i_advise", plan=SetFieldLast)


def check_owner(batch: InodeBatch) -> Iterator[Finding]:
    """Owner and group are numbers that chown can set; projects need their feature."""
    for name in ("i_uid", "i_gid"):
        value = batch.head[name]
        yield from _each(batch, value > MOST_ID, problems.INODE_OWNER, value, 0, name, name)
    if not batch.geo.feature & F2FS_FEATURE_PRJQUOTA:
        projid = np.where(batch.extra >= 8, batch.head["i_projid"], 0)
        yield from _each(batch, projid != 0, problems.INODE_PROJECT, projid, 0, "i_projid")


def check_compression(batch: InodeBatch) -> Iterator[Finding]:
    """A compressed file has an algorithm, a cluster size, and the flag; the marks of its clusters say the size too."""
    if not batch.geo.feature & F2FS_FEATURE_COMPRESSION:
        return
    yield from _compressed_dirs(batch)
    head = batch.head
    flags, size = head["i_flags"], head["i_log_cluster_size"]
    files = (batch.kind == stat.S_IFREG) & (batch.extra >= 36)
    flagged, packed = files & (flags & F2FS_COMPR_FL != 0), batch.cluster > 0
    yield from _each(
        batch, packed & ~flagged, problems.INODE_FLAG, flags, flags | np.uint32(F2FS_COMPR_FL), "i_flags",
        "it has compressed clusters", SetFieldEarly,
    )  # fmt: skip
    never = flagged & ~packed & ~batch.marked & (size == 0)  # with the flag comes a size
    without = flags & np.uint32(~F2FS_COMPR_FL & U32_MAX)
    yield from _each(
        batch, never, problems.INODE_FLAG, flags, without, "i_flags", "it has no cluster size", SetFieldEarly
    )
    flagged &= ~never
    other = packed & (size != batch.cluster)
    yield from _each(
        batch, other, problems.COMPRESS_PARAMETERS, size, batch.cluster, "i_log_cluster_size", "cluster size",
        SetFieldEarly,
    )  # fmt: skip
    bad = flagged & ~packed
    yield from _each(batch, bad, problems.COMPRESS_PARAMETERS, size, None, "i_log_cluster_size", "cluster size")
    yield from _algorithm(batch, flagged)


def _algorithm(batch: InodeBatch, flagged: NDArray[np.bool_]) -> Iterator[Finding]:
    """The algorithm of compressed files is one that there is, and their level one of its own."""
    algorithm, flag = batch.head["i_compress_algorithm"], batch.head["i_compress_flag"]
    bad = flagged & (algorithm >= len(COMPRESS_ALGORITHMS))
    yield from _each(
        batch, bad, problems.COMPRESS_PARAMETERS, algorithm, None, "i_compress_algorithm", "algorithm", FindAlgorithm
    )
    for i in np.flatnonzero(flagged & ~bad & (flag >= 1 << COMPRESS_LEVEL_OFFSET)).tolist():
        number, level = int(algorithm[i]), int(flag[i]) >> COMPRESS_LEVEL_OFFSET
        if not is_level(number, level):
            one = np.arange(flag.size) == i
            note = f"level {level} of {COMPRESS_ALGORITHMS[number]}"
            least = flag & np.uint16((1 << COMPRESS_LEVEL_OFFSET) - 1)
            yield from _each(batch, one, problems.COMPRESS_PARAMETERS, flag, least, "i_compress_flag", note, SetLevel)


def _compressed_dirs(batch: InodeBatch) -> Iterator[Finding]:
    """A directory that hands compression down has the fields for it too: the kernel refuses any inode by them.

    See sanity_check_compress_inode() in fs/f2fs/inode.c.
    """
    head = batch.head
    dirs = (batch.kind == stat.S_IFDIR) & (batch.extra >= 36) & (head["i_flags"] & F2FS_COMPR_FL != 0)
    if not dirs.any():
        return
    size = head["i_log_cluster_size"]
    bad = dirs & ((size < MIN_COMPRESS_LOG_SIZE) | (size > MAX_COMPRESS_LOG_SIZE))
    yield from _each(
        batch, bad, problems.COMPRESS_PARAMETERS, size, MIN_COMPRESS_LOG_SIZE, "i_log_cluster_size", "cluster size"
    )
    saved = head["i_compr_blocks"]
    yield from _each(batch, dirs & (saved > 0), problems.COMPRESS_BLOCKS, saved, 0, "i_compr_blocks", "", SetFieldLast)
    yield from _algorithm(batch, dirs)


def check_names(batch: InodeBatch) -> Iterator[Finding]:
    """The inode's own name is at most 255 bytes long."""
    length = batch.head["i_namelen"]
    yield from _each(batch, length > F2FS_NAME_LEN, problems.NAME_LENGTH, length, F2FS_NAME_LEN, "i_namelen")


def check_symlinks(batch: InodeBatch) -> Iterator[Finding]:
    """A symbolic link has a target, shorter than a block, and as long as the text that is there."""
    links = batch.kind == stat.S_IFLNK
    if not links.any():
        return
    size = batch.head["i_size"]
    limit = batch.geo.block_size
    odd = links & ((size == 0) | (size > limit))
    yield from _each(batch, odd, problems.SYMLINK_SIZE, size, None, "i_size")
    length = size.copy()
    encrypted = batch.head["i_advise"] & FADVISE_ENCRYPT_BIT != 0
    for i in np.flatnonzero(links & ~odd).tolist():
        length[i] = (cipher_length if encrypted[i] else text_length)(_text(batch, i), int(size[i]))
    yield from _each(batch, length != size, problems.SYMLINK_SIZE, size, length, "i_size")


def _text(batch: InodeBatch, i: int) -> bytes:
    """Where a link's target lies: the room of inline data, or its block; nothing where neither can be read."""
    if batch.inline[i] & F2FS_INLINE_DATA:
        at = int(batch.inline_at[i])
        return batch.blocks[i, at : at + int(batch.inline_size[i])].tobytes()
    first = int(_words_at(batch, np.array([i]), INODE_ADDR_OFFSET + batch.extra[[i]])[0])
    return batch.image.block(first).tobytes() if batch.geo.in_main(first) else b""


def cipher_length(area: bytes, size: int) -> int:
    """The length of an encrypted link's target, which begins with the length of what follows (fscrypt_symlink_data).

    That length may be wrong as well as the inode's size: what lies between the two decides.
    """
    follows = int.from_bytes(area[:2], "little")
    if not 0 < follows <= min(len(area) - 2, LONGEST_TARGET):
        return size
    length = 2 + follows
    return length if any(area[size:length]) or (length < size and not any(area[length:size])) else size


def text_length(area: bytes, size: int) -> int:
    """The length of a link's target, given the inode's size: longer where text goes on, shorter where only zeros
    follow.

    A zero in the middle says nothing about the size.
    """
    end = area.find(b"\0")
    length = len(area) if end < 0 else end
    return length if length and (length > size or not any(area[length:size])) else size


def check_special(batch: InodeBatch) -> Iterator[Finding]:
    """Devices, fifos and sockets have no size and no nodes."""
    special, tree = batch.special, batch.has_nodes
    if not special.any():
        return
    size = batch.head["i_size"]
    yield from _each(
        batch, special & tree, problems.SPECIAL_BLOCKS, size, 0, "i_size", "it has nodes", ClearNodePointers
    )
    yield from _each(batch, special & ~tree & (size != 0), problems.SPECIAL_BLOCKS, size, 0, "i_size")


def check_gc_failures(batch: InodeBatch) -> Iterator[Finding]:
    """A file that is not pinned has no failed moves counted."""
    plain = (batch.kind == stat.S_IFREG) & (batch.head["i_inline"] & F2FS_PIN_FILE == 0)
    failures = batch.head["i_current_depth"].astype(np.uint32) & np.uint32(0xFFFF)
    # old kernels started with 1
    yield from _each(batch, plain & (failures > 1), problems.GC_FAILURES, failures, 0, "i_current_depth")


def check_checksum(batch: InodeBatch) -> Iterator[Finding]:
    """With the feature inode_checksum every inode's CRC-32 is right."""
    if not batch.geo.feature & F2FS_FEATURE_INODE_CHKSUM:
        return
    have = np.flatnonzero(batch.extra >= 12)
    stored = batch.head["i_inode_checksum"][have]
    right = inode_checksums(batch.image.sb.uuid, batch.blocks if len(have) == len(batch.blocks) else batch.blocks[have])
    for at in np.flatnonzero(stored != right).tolist():
        i = int(have[at])
        ino = int(batch.nid[i])
        yield Finding(
            problems.INODE_CHECKSUM, area="main", blkaddr=int(batch.blkaddr[i]), ino=ino,
            found=f"{int(stored[at]):#010x}", expected=f"{int(right[at]):#010x}", repair=Reseal(ino),
        )  # fmt: skip


FIELD_CHECKS = (
    check_mode, check_extra, check_inline, check_times, check_flags, check_owner, check_compression, check_names,
    check_symlinks, check_special, check_gc_failures, check_checksum,
)  # fmt: skip


def check_fields(batch: InodeBatch) -> Iterator[Finding]:
    """All of these, unless the batch is known to be sound."""
    if batch.sound is None:
        for check in FIELD_CHECKS:
            yield from check(batch)


CHECKS = (check_fields,)
