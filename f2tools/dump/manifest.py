"""A whole tree as JSON with hashes, in the words of the system calls that would tell it on a mounted volume.

Keys: format, statfs, entries (path from the root, "." being the root itself, to its facts) and errors (path to the
errno of what could not be read).  An entry has type mode uid gid size nlink ino blocks *_ns, and where they apply rdev
target xattrs flags projid statx_attributes extents segments sha256 segment_sha256 verity compress policy nonce
open_error read_error xattr_error.  Files above 64 MiB are hashed by segment, so holes cost nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from f2tools.copyout.walk import Lost, shown, walk
from f2tools.errors import Corrupt, F2fsError, Unsupported
from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    F2FS_APPEND_FL,
    F2FS_COMPR_FL,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_IMMUTABLE_FL,
    F2FS_NODUMP_FL,
    F2FS_ROOT_INO,
    NEW_ADDR,
    NULL_ADDR,
)
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.layout.node_tree import max_blocks
from f2tools.f2fs.volume.data import Cluster, Extent
from f2tools.f2fs.volume.flags import ioctl_flags
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.verity import read_verity
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.f2fs.volume.xattr import may_have_xattrs

_ENCODER = json.JSONEncoder(separators=(",", ":"))
WHOLE_HASH_LIMIT = 64 << 20
MAX_EXTENTS = 64
PATH_MAX = 4096  # beyond, the system calls that this stands for would say ENAMETOOLONG
_ZEROS = bytes(1 << 20)
MOST_ZERO_STATES = 64  # MiB
_ZERO_STATES = [hashlib.sha256()]

STATX_ATTR_ENCRYPTED, STATX_ATTR_MOUNT_ROOT, STATX_ATTR_VERITY = 0x800, 0x2000, 0x100000
_STATX_OF_FLAG = {F2FS_COMPR_FL: 0x4, F2FS_IMMUTABLE_FL: 0x10, F2FS_APPEND_FL: 0x20, F2FS_NODUMP_FL: 0x40}

FIEMAP_EXTENT_LAST, FIEMAP_EXTENT_ENCODED, FIEMAP_EXTENT_ENCRYPTED = 0x1, 0x8, 0x80
FIEMAP_EXTENT_INLINE, FIEMAP_EXTENT_UNWRITTEN, FIEMAP_EXTENT_MERGED = 0x300, 0x800, 0x1000


def manifest(volume: Volume, top: str = "/", *, advance: Any = None) -> dict[str, Any]:
    """The manifest as one value; `write_manifest` is for trees that are large."""
    entries, errors = _collect(volume, top, advance)
    doc: dict[str, Any] = {"format": 1, "statfs": volume.statfs()}
    doc["entries"] = {shown(path): json.loads(text) for path, text in entries}
    if errors:
        doc["errors"] = errors
    return doc


def write_manifest(volume: Volume, out: IO[str], top: str = "/", *, advance: Any = None) -> dict[str, str]:
    """Write the manifest as JSON, an entry a line; returns the errors in it."""
    entries, errors = _collect(volume, top, advance)
    out.write('{"format":1,\n"statfs":' + json.dumps(volume.statfs(), separators=(",", ":")) + ',\n"entries":{')
    for index, (path, text) in enumerate(entries):
        out.write((",\n" if index else "\n") + json.dumps(shown(path)) + ":" + text)
    out.write("}")
    if errors:
        out.write(',\n"errors":' + json.dumps(errors, indent=0))
    out.write("}\n")
    return errors


def _collect(volume: Volume, top: str, advance: Any) -> tuple[list[tuple[bytes, str]], dict[str, str]]:
    """Entries as JSON text, sorted by path, and errors.  The names of one inode share one text."""
    volume.data.limit()
    lost: list[Lost] = []
    entries: list[tuple[bytes, str]] = []
    by_ino: dict[int, str] = {}
    errors: dict[str, str] = {}
    for path, inode in walk(volume, volume.path(top, follow=False), lost, max_path=PATH_MAX):
        relative = path.lstrip(b"/") or b"."
        if len(path) > PATH_MAX:
            errors[shown(relative)] = "ENAMETOOLONG"
            continue
        text = by_ino.get(inode.ino)
        if text is None:
            file = File(volume, inode, path)
            text, problem = _plain(file) or _encoded(entry_of(file))
            by_ino[inode.ino] = text
            if problem:
                errors[shown(relative)] = problem
        entries.append((relative, text))
        if advance:
            advance()
    for item in lost:
        errors.setdefault(shown(item.path.lstrip(b"/") or b"."), "EUCLEAN")
    # text order, as the kernel-side tool sorts: lone surrogates come after all else
    return sorted(entries, key=lambda item: shown(item[0])), errors


def entry_of(file: File, *, content: bool = True) -> dict[str, Any]:
    """What lstat, statx, the ioctls and, with `content`, the mapping and the bytes of one file say."""
    inode = file.inode
    volume = file.volume
    kind = inode.kind
    entry: dict[str, Any] = {
        "type": kind,
        "mode": f"{inode.i_mode & 0o7777:04o}",
        "uid": inode.i_uid,
        "gid": inode.i_gid,
        "size": inode.i_size,
        "nlink": inode.i_links,
        "ino": inode.ino,
        "blocks": inode.st_blocks,
        "mtime_ns": inode.mtime_ns,
        "ctime_ns": inode.ctime_ns,
        "atime_ns": inode.atime_ns,
    }
    try:
        birth = inode.crtime_ns
        if birth is not None:
            entry["btime_ns"] = birth
        attributes = statx_attributes(inode)
        if attributes:
            entry["statx_attributes"] = attributes
        if kind in ("char", "block"):
            entry["rdev"] = list(inode.rdev)
        if kind == "symlink":
            target = file.readlink()
            entry["target"] = shown(target)
            if inode.encrypted:
                entry["size"] = len(target)  # as the kernel's getattr for encrypted links
    except F2fsError as error:
        entry["read_error"] = errno_of(error)
    try:
        xattrs = file.xattrs()
        if xattrs:
            entry["xattrs"] = {name: (xattrs[name] or b"").hex() for name in sorted(xattrs)}
        if inode.encrypted and (inode.is_file or inode.is_dir):
            entry.update(encryption_policy(file.encryption_context() or b""))
    except F2fsError as error:
        entry["xattr_error"] = errno_of(error)
    if inode.is_file and volume.locked(inode):
        entry["open_error"] = "ENOKEY"
    elif inode.is_file or inode.is_dir:
        entry["flags"] = ioctl_flags(inode)
        entry["projid"] = inode.extra.get("i_projid", 0) if volume.geo.feature & F2FS_FEATURE_PRJQUOTA else 0
        if inode.is_file and content:
            _content(file, entry)
    return entry


def _encoded(entry: dict[str, Any]) -> tuple[str, str | None]:
    """An entry as JSON, and what could not be read of it."""
    return _ENCODER.encode(entry), entry.get("read_error") or entry.get("xattr_error")


def _plain(file: File) -> tuple[str, str | None] | None:
    """What `entry_of` has of a file of one piece without attributes, as most are, as JSON at once; None of others."""
    inode, volume = file.inode, file.volume
    if not inode.is_file or inode.i_flags or inode.encrypted or inode.verity or inode.i_size > WHOLE_HASH_LIMIT:
        return None
    try:
        if may_have_xattrs(inode):
            return None
        few = volume.data.few(inode)
        if not inode.has_inline_data and not _covers(few, inode.i_size, volume.geo.block_size):
            return None
        birth, extents = inode.crtime_ns, fiemap(file, few=few)
        blocks, flags = inode.st_blocks, ioctl_flags(inode)
    except F2fsError:
        return None  # `entry_of` meets it again, and says where
    projid = inode.extra.get("i_projid", 0) if volume.geo.feature & F2FS_FEATURE_PRJQUOTA else 0
    born = "" if birth is None else f',"btime_ns":{birth}'
    listed = ",".join([f"[{at},{physical},{length},{kind}]" for at, physical, length, kind in extents])
    problem = None
    try:
        told = f'"sha256":"{digest(file, 0, inode.i_size, few)}"'
    except F2fsError as error:
        problem = errno_of(error)
        told = f'"read_error":"{problem}"'
    return (
        f'{{"type":"file","mode":"{inode.i_mode & 0o7777:04o}","uid":{inode.i_uid},"gid":{inode.i_gid},'
        f'"size":{inode.i_size},"nlink":{inode.i_links},"ino":{inode.ino},"blocks":{blocks},'
        f'"mtime_ns":{inode.mtime_ns},"ctime_ns":{inode.ctime_ns},"atime_ns":{inode.atime_ns}{born},'
        f'"flags":{flags},"projid":{projid},"extents":[{listed}],{told}}}',
        problem,
    )


def _covers(few: list[Extent] | None, size: int, block_size: int) -> bool:
    """Whether a file's bytes are all in one run of written blocks, or it has none."""
    if few is None:
        return False
    if not size:
        return True
    return len(few) == 1 and not few[0].fofs and few[0].blkaddr != NEW_ADDR and few[0].count * block_size >= size


def errno_of(error: F2fsError) -> str:
    """The name of the errno that the kernel has for this."""
    return "EUCLEAN" if isinstance(error, Corrupt) else "EOPNOTSUPP" if isinstance(error, Unsupported) else "EIO"


def statx_attributes(inode: Inode) -> int:
    """stx_attributes; the root is where a volume is mounted."""
    flags = inode.i_flags
    found = sum(value for flag, value in _STATX_OF_FLAG.items() if flags & flag) if flags else 0
    if inode.encrypted:
        found |= STATX_ATTR_ENCRYPTED
    if inode.verity:
        found |= STATX_ATTR_VERITY
    if inode.ino == F2FS_ROOT_INO:
        found |= STATX_ATTR_MOUNT_ROOT
    return found


def encryption_policy(context: bytes) -> dict[str, str]:
    """Policy as FS_IOC_GET_ENCRYPTION_POLICY_EX returns it, and nonce; both in hex."""
    size = {1: 12, 2: 24}.get(context[0] if context else 0)
    if size is None or len(context) != size + 16:
        return {}
    # a context of version 1 belongs to a policy that calls itself version 0
    version = bytes([0 if context[0] == 1 else context[0]])
    return {"policy": (version + context[1:size]).hex(), "nonce": context[size:].hex()}


def _content(file: File, entry: dict[str, Any]) -> None:
    inode = file.inode
    try:
        few = file.volume.data.few(inode)
        extents = fiemap(file, few=few)
        entry["extents"] = [list(item) for item in extents]
        if inode.compressed:
            entry["compress"] = {
                "algorithm": inode.extra["i_compress_algorithm"],
                "log_cluster_size": inode.extra["i_log_cluster_size"],
                "saved_blocks": inode.extra["i_compr_blocks"],
            }
        if inode.verity and (verity := read_verity(file.volume.nodes, file.volume.data, inode)):
            entry["verity"] = {"algorithm": verity.algorithm, "digest": verity.digest.hex()}
        found = segments(file, few)
        if found != ([(0, inode.i_size)] if inode.i_size else []):
            entry["segments"] = [list(item) for item in found]
        if inode.i_size <= WHOLE_HASH_LIMIT:
            entry["sha256"] = digest(file, 0, inode.i_size, few)
        else:
            entry["segment_sha256"] = [digest(file, start, length) for start, length in found]
    except F2fsError as error:
        entry["read_error"] = errno_of(error)


def digest(file: File, start: int, length: int, few: list[Extent] | None = None) -> str:
    """SHA-256 of a range of a file, holes as zeros; `few` as for `segments`."""
    hashing = None
    at = start
    for offset, data in file.volume.data.chunks(file.inode, start, start + length, few):
        if hashing is None and offset == at:
            hashing = hashlib.sha256(data)
        else:
            if hashing is None:
                hashing = _hashed_zeros(offset - at)
            else:
                _hash_zeros(hashing, offset - at)
            hashing.update(data)
        at = offset + len(data)
    if hashing is None:
        return _hashed_zeros(length).hexdigest()
    _hash_zeros(hashing, start + length - at)
    return hashing.hexdigest()


def _hashed_zeros(count: int) -> Any:
    """SHA-256 of that many zeros, to go on from; files that start with a hole share the work."""
    whole, rest = divmod(count, len(_ZEROS))
    while len(_ZERO_STATES) <= min(whole, MOST_ZERO_STATES):
        state = _ZERO_STATES[-1].copy()
        state.update(_ZEROS)
        _ZERO_STATES.append(state)
    known = min(whole, MOST_ZERO_STATES)
    hashing = _ZERO_STATES[known].copy()
    _hash_zeros(hashing, (whole - known) * len(_ZEROS) + rest)
    return hashing


def _hash_zeros(hashing: Any, count: int) -> None:
    while count > 0:
        hashing.update(_ZEROS[: min(count, len(_ZEROS))])
        count -= len(_ZEROS)


# -- SEEK_DATA and SEEK_HOLE ------------------------------------------------------------------------------------------


def segments(file: File, few: list[Extent] | None = None) -> list[tuple[int, int]]:
    """(offset, length) of what is not a hole, as lseek tells; see f2fs_seek_block() in fs/f2fs/file.c of Linux 6.12.

    `few`: what `DataReader.few` says of the file, where it was asked before.
    Data starts at a written block and ends at an unmapped one; a reserved block starts nothing and ends nothing.  A
    compressed cluster is data as a whole, where Linux 6.1 has a hole at its head, and at what was released of it.
    """
    inode = file.inode
    if not inode.i_size:
        return []
    if inode.has_inline_data:
        return [(0, inode.i_size)]
    size = file.volume.geo.block_size
    found: list[tuple[int, int]] = []
    begin = end = -1  # of the data met last, in blocks
    for fofs, count, written in _not_null(file, few):
        if fofs != end:
            if begin >= 0:
                found.append((begin * size, (end - begin) * size))
            begin = -1
        if begin < 0 and written:
            begin = fofs
        end = fofs + count
    if begin >= 0:
        found.append((begin * size, (end - begin) * size))
    if found and sum(found[-1]) > inode.i_size:
        found[-1] = (found[-1][0], inode.i_size - found[-1][0])
    return found


def _not_null(file: File, few: list[Extent] | None) -> Iterator[tuple[int, int, bool]]:
    """(file block, blocks, whether they were written) of the mapped runs up to i_size."""
    inode, data = file.inode, file.volume.data
    count = data.block_count(inode)
    if few is not None:
        for item in few:
            if item.fofs < count:
                yield item.fofs, min(item.count, count - item.fofs), item.blkaddr != NEW_ADDR
        return
    for item in data.layout(inode, 0, count):
        if item.fofs >= count:  # of a compressed file, the rest of the cluster that i_size lies in
            return
        blocks = item.count if isinstance(item, Extent) else inode.cluster_size
        yield item.fofs, min(blocks, count - item.fofs), isinstance(item, Cluster) or item.blkaddr != NEW_ADDR


# -- FIEMAP -----------------------------------------------------------------------------------------------------------


class FiemapExtent(NamedTuple):
    """One extent as FIEMAP reports it, in bytes."""

    logical: int
    physical: int
    length: int
    flags: int


def fiemap(file: File, limit: int = MAX_EXTENTS, few: list[Extent] | None = None) -> list[FiemapExtent]:
    """The first extents of a file as f2fs_fiemap() in fs/f2fs/data.c reports them; `few` as for `segments`."""
    inode = file.inode
    size = file.volume.geo.block_size
    if inode.has_inline_data:
        length = min(inode.inline_area.size, inode.i_size)
        physical = inode.blkaddr * size + INODE_ADDR_OFFSET + inode.extra_isize + 4
        flags = FIEMAP_EXTENT_INLINE | FIEMAP_EXTENT_LAST
        return [FiemapExtent(0, physical, length, flags)] if length else []
    extents: list[FiemapExtent] = []
    # who says that data is encrypted says that it can't be read from the device, see fiemap_fill_next_extent()
    common = FIEMAP_EXTENT_MERGED | (FIEMAP_EXTENT_ENCRYPTED | FIEMAP_EXTENT_ENCODED if inode.encrypted else 0)
    for fofs, blkaddr, count, flags in _mapped(file, few):
        if len(extents) == limit:
            return extents
        physical = 0 if blkaddr in (NEW_ADDR, NULL_ADDR, COMPRESS_ADDR) else blkaddr * size
        extents.append(FiemapExtent(fofs * size, physical, count * size, flags | common))
    if extents:
        last = extents[-1]
        extents[-1] = last._replace(flags=last.flags | FIEMAP_EXTENT_LAST)
    return extents


def _mapped(file: File, few: list[Extent] | None) -> Iterator[tuple[int, int, int, int]]:
    """(file block, address, blocks, flags) of the pieces that the kernel's mapping yields one after the other.

    Verity and fallocate put blocks beyond i_size, which count too, compressed or not.
    """
    inode = file.inode
    data = file.volume.data
    alias = bool(inode.i_flags & F2FS_DEVICE_ALIAS_FL)
    stop = None if alias or few is not None else _furthest(inode)
    for item in data.layout(inode, 0, stop) if few is None else few:
        if isinstance(item, Extent):
            flags = FIEMAP_EXTENT_UNWRITTEN if item.blkaddr == NEW_ADDR else 0
            for piece in _cut_at_cache(inode, item):
                yield piece.fofs, piece.blkaddr, piece.count, flags
        else:
            yield from _cluster_pieces(item.fofs, item.blkaddrs.tolist(), inode.cluster_size)


def _furthest(inode: Inode) -> int:
    """How many blocks an inode can map at most."""
    return max_blocks(inode.geo.addrs_per_block, inode.addrs_per_block, inode.addrs_per_inode)


def _cut_at_cache(inode: Inode, extent: Extent) -> Iterator[Extent]:
    """The kernel answers from the extent that the inode remembers, and only up to its end."""
    fofs, blkaddr, count = inode.cached_extent
    end = fofs + count
    if (
        count
        and not inode.compressed
        and fofs <= extent.fofs < end < extent.fofs + extent.count
        and extent.blkaddr == blkaddr + extent.fofs - fofs
    ):
        head = end - extent.fofs
        yield Extent(extent.fofs, extent.blkaddr, head)
        yield Extent(end, extent.blkaddr + head, extent.count - head)
        return
    yield extent


def _cluster_pieces(fofs: int, blkaddrs: list[int], cluster_size: int) -> Iterator[tuple[int, int, int, int]]:
    """A compressed cluster: what is saved is added to its last piece; further pieces start a block early."""
    runs: list[list[int]] = []
    for addr in blkaddrs:
        if runs and runs[-1][0] + runs[-1][1] == addr:
            runs[-1][1] += 1
        else:
            runs.append([addr, 1])
    at = fofs
    for index, (addr, count) in enumerate(runs):
        length = fofs + cluster_size - at if index == len(runs) - 1 else count
        yield at, addr, length, FIEMAP_EXTENT_ENCODED
        at += count
