"""Filling a fresh volume with a tree of files: everything is written once, in its final place, in log order.

Where the general operations change a tree name by name, here the whole tree is known: directories are built at once,
inodes in arrays, data in long runs.  The logs are those of `segment`: directory blocks and hot extensions hot, cold
extensions and compressed files cold, other data warm.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    COLD_BIT_SHIFT,
    COMPRESS_ADDR,
    DEF_INLINE_RESERVED_SIZE,
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_COMPR_FL,
    F2FS_COMPRESS_RELEASED,
    F2FS_DATA_EXIST,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_COMPRESSION,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_FEATURE_RO,
    F2FS_INDEX_FL,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_XATTR,
    F2FS_ROOT_INO,
    FADVISE_COLD_BIT,
    FADVISE_HOT_BIT,
    NEW_ADDR,
    OFFSET_BIT_SHIFT,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.file_type import file_type
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.layout.xattr import XATTR_INDEX_ADVISE
from f2tools.f2fs.volume.dentries import build_directory, build_inline, name_hashes
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.write.bulk.tree import CompressPolicy, Content, SourceEntry
from f2tools.f2fs.write.inode import device_words
from f2tools.f2fs.write.mapping import path_of
from f2tools.f2fs.write.node import is_dnode
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.f2fs.write.xattr import build_area, parse_name, room_of, split, stored_value

INODES_AT_ONCE = 1024
BLOCKS_AT_ONCE = 256  # of data, in memory at a time: what stays in a processor's cache is copied several times faster
_NAME = InodeLayout.offset_of("i_name")
_EXT = InodeLayout.offset_of("i_ext")

_NONE = np.zeros(0, np.int64)

Progress = Callable[[int], None]  # told how many bytes and files more are done


@dataclass(slots=True)
class _File:
    """An inode to be made."""

    entry: SourceEntry
    ino: int
    parent: int
    name: bytes
    links: int = 1
    children: list[_Child] = field(default_factory=list)  # of a directory
    inline: bytes | None = None  # the inline part of its xattrs
    xattr_node: bytes | None = None
    row: int = 0  # in the batch of inodes
    advise: int = 0
    mode: int = 0
    reported: int = 0  # bytes that `progress` was told of


@dataclass(slots=True)
class _Child:
    """A name in a directory."""

    name: bytes
    ino: int
    kind: int


def load(
    vol: WritableVolume,
    entries: Iterable[SourceEntry],
    *,
    compress: CompressPolicy | None = None,
    progress: Progress | None = None,
) -> int:
    """Fill the root directory of a fresh volume with a tree: how many inodes were made.  The caller closes the volume.

    OSError ENOSPC when the tree is more than the volume holds; the volume is then of no use.  F2fsError naming a file
    that can't be read.
    """
    return _Loader(vol, compress, progress or (lambda _: None)).run(entries)


def lay_out_xattrs(entry: SourceEntry, inline_size: int, block_size: int) -> tuple[int, bytes, bytes | None]:
    """(mode afterwards, inline part, node without its footer or None) for the extended attributes of a file."""
    items: list[tuple[int, bytes, bytes]] = []
    mode = entry.mode
    for name, value in sorted(entry.xattrs.items()):
        try:
            index, inner = parse_name(name)
            if index == XATTR_INDEX_ADVISE:
                continue
            mode, stored = stored_value(index, value, mode)
            if stored is not None:
                items.append((index, inner, stored))
        except OSError as error:
            raise F2fsError(f"{os.fsdecode(entry.path)}: the attribute {name}: {error.strerror}") from None
    if not items:
        return mode, b"", None
    try:
        area = build_area(items, room_of(inline_size, block_size))
    except OSError:
        raise F2fsError(f"{os.fsdecode(entry.path)}: its extended attributes are more than F2FS holds") from None
    return mode, *split(area, inline_size, block_size)


def block_runs(content: Content | None, block_size: int) -> list[tuple[int, int]]:
    """(first block, blocks) of what is not a hole, joined where two share a block."""
    runs: list[tuple[int, int]] = []
    for offset, length in content.extents() if content is not None else ():
        first, end = offset // block_size, -(-(offset + length) // block_size)
        if runs and first <= runs[-1][0] + runs[-1][1]:
            before = runs.pop()
            first, end = before[0], max(end, before[0] + before[1])
        runs.append((first, end - first))
    return runs


def blocks_of(runs: list[tuple[int, int]]) -> NDArray[np.int64]:
    """The block numbers of such runs."""
    return np.concatenate([np.arange(first, first + count) for first, count in runs]) if runs else _NONE


def compresses(how: CompressPolicy | None, geo: Geometry, entry: SourceEntry) -> bool:
    """Whether a regular file is written compressed: it has a whole cluster at least, and is otherwise better inline.

    On a volume with the feature ro not one with holes: the kernel remembers their clusters as extents from block 0 on,
    and fails to read them; see f2fs_cluster_blocks_are_contiguous() in fs/f2fs/compress.c.
    """
    if how is None or entry.content is None or not geo.feature & F2FS_FEATURE_COMPRESSION:
        return False
    if entry.size < geo.block_size << how.log_cluster_size:
        return False
    lower = entry.path.rpartition(b"/")[2].lower()
    if how.extensions and not any(lower.endswith(b"." + extension.lower()) for extension in how.extensions):
        return False
    if not geo.feature & F2FS_FEATURE_RO:
        return True
    return block_runs(entry.content, geo.block_size) == [(0, -(-entry.size // geo.block_size))]


def cluster_bounds(fofs: NDArray[np.int64], log_cluster: int) -> NDArray[np.int64]:
    """Where among the blocks of a file each cluster begins, and at last where they end.

    Only a cluster all of whose blocks are there can be compressed: holes stay holes, and so does what is past the end;
    see f2fs_cluster_can_merge_page() and cluster_may_compress() in fs/f2fs/compress.c.
    """
    return np.append(np.flatnonzero(np.diff(fofs >> log_cluster, prepend=-1)), fofs.size)


def cluster_batches(bounds: NDArray[np.int64], log_cluster: int) -> Iterator[NDArray[np.int64]]:
    """The bounds in pieces of about BLOCKS_AT_ONCE blocks."""
    step = max(1, BLOCKS_AT_ONCE >> log_cluster)
    for first in range(0, bounds.size - 1, step):
        yield bounds[first : first + step + 1]


def node_paths(numbers: list[int], addrs_per_block: int) -> dict[tuple[tuple[int, int], ...], int]:
    """The paths from the inode to these direct nodes and all nodes above them, each with 0; OSError EFBIG."""
    paths: dict[tuple[tuple[int, int], ...], int] = {}
    for number in numbers:
        path = tuple(path_of(number, addrs_per_block))
        for depth in range(1, len(path) + 1):
            paths.setdefault(path[:depth], 0)
    return paths


def read_content(entry: SourceEntry, fofs: NDArray[np.int64], rows: NDArray[np.uint8]) -> None:
    """The content of these blocks of a file, what lies beyond its end as zeros; rows of a block each."""
    content, size = entry.content, rows.shape[1]
    if content is None or not fofs.size:
        return
    cuts = np.flatnonzero(np.diff(fofs) != 1) + 1
    at = 0
    for part in np.split(fofs, cuts):
        flat: Any = rows[at : at + part.size].reshape(-1)
        first = int(part[0]) * size
        length = min(part.size * size, entry.size - first)
        content.read_into(first, memoryview(flat)[:length])
        flat[length:] = 0
        at += part.size


def saved_blocks(entry: SourceEntry, fofs: NDArray[np.int64], how: CompressPolicy, block_size: int) -> int:
    """Blocks that compression saves in a file whose clusters have these blocks: it is compressed to find out."""
    from f2tools.f2fs.volume.compress import compress_cluster

    cluster = 1 << how.log_cluster_size
    saved = 0
    for bounds in cluster_batches(cluster_bounds(fofs, how.log_cluster_size), how.log_cluster_size):
        part = fofs[bounds[0] : bounds[-1]]
        plain = np.zeros((part.size, block_size), np.uint8)
        read_content(entry, part, plain)
        starts = bounds - bounds[0]
        for at in starts[:-1][np.diff(starts) == cluster].tolist():
            raw = compress_cluster(
                plain[at : at + cluster].tobytes(), how.algorithm, how.level, chksum=how.chksum, block_size=block_size
            )
            saved += cluster - len(raw) // block_size if raw is not None else 0
    if entry.content is not None:
        entry.content.close()
    return saved


class _Loader:
    def __init__(self, vol: WritableVolume, compress: CompressPolicy | None, progress: Progress) -> None:
        self.vol = vol
        self.geo = vol.geo
        self.compress = compress
        self.progress = progress
        self._extra = InodeExtra.size if self.geo.feature & F2FS_FEATURE_EXTRA_ATTR else 0
        self._inline_size = 4 * DEFAULT_INLINE_XATTR_ADDRS
        words = self.geo.addrs_per_inode - self._extra // 4 - DEFAULT_INLINE_XATTR_ADDRS
        self.addrs_per_inode = words
        self.inline_room = 4 * (words - DEF_INLINE_RESERVED_SIZE)
        self._addr_at = INODE_ADDR_OFFSET + self._extra
        self._inline_at = self._addr_at + 4 * DEF_INLINE_RESERVED_SIZE
        self._xattr_areas: dict[tuple[tuple[str, bytes], ...], tuple[int, bytes, bytes | None]] = {}
        self._inode_blocks = np.empty((INODES_AT_ONCE, self.geo.block_size), np.uint8)
        self.buffers: dict[int, NDArray[np.uint8]] = {}  # data on its way to each log; fresh memory costs page faults
        self._no_root = SourceEntry(b"", stat.S_IFDIR)  # a source need not say anything of the root
        self.usage: dict[tuple[int, int, int], list[int]] = {}

    def run(self, entries: Iterable[SourceEntry]) -> int:
        files, root = self._plan(entries)
        self._finish_root(root, self._fill_root(root))
        for start in range(0, len(files), INODES_AT_ONCE):
            self._batch(files[start : start + INODES_AT_ONCE])
        self.vol.note_usage(self.usage)
        return len(files)

    def report(self, file: _File, count: int) -> None:
        """So many more bytes of a file are done; of its holes the rest at its end."""
        count = min(count, file.entry.size - file.reported)
        file.reported += count
        self.progress(count)

    # -- names and numbers ----------------------------------------------------------------------------------------

    def _plan(self, entries: Iterable[SourceEntry]) -> tuple[list[_File], _File]:
        """Every file gets its number, every directory its names."""
        root_inode = self.vol.live(F2FS_ROOT_INO)
        root = _File(self._no_root, F2FS_ROOT_INO, F2FS_ROOT_INO, b"", 2)
        for dentry in self.vol.dirs.entries(root_inode):
            if dentry.name not in (b".", b".."):
                root.children.append(_Child(dentry.name, dentry.ino, dentry.file_type))
                root.links += int(dentry.file_type == 2)
        own = {child.name for child in root.children}
        by_path: dict[bytes, _File] = {b"": root}
        files: list[_File] = []
        numbers = iter(_Numbers(self.vol))
        for entry in entries:
            path = entry.path
            if not path:
                root.entry = entry
                continue
            folder_path, _, name = path.rpartition(b"/")
            folder = by_path.get(folder_path)
            if folder is None or not stat.S_ISDIR(folder.entry.mode):
                raise F2fsError(f"{os.fsdecode(path)}: its directory is not among the files, or no directory")
            self.vol.names.check_name(root_inode, name)
            if folder is root and name in own:
                raise F2fsError(f"{os.fsdecode(path)}: the volume has this name of its own")
            if entry.link_to is not None:
                file = by_path.get(entry.link_to)
                if file is None or stat.S_ISDIR(file.entry.mode):
                    raise F2fsError(
                        f"{os.fsdecode(path)}: a hard link to {os.fsdecode(entry.link_to)!r}, which is no file"
                    )
                file.links += 1
            else:
                is_dir = stat.S_ISDIR(entry.mode)
                file = _File(entry, next(numbers), folder.ino, name, 2 if is_dir else 1)
                folder.links += int(is_dir)
                files.append(file)
            if path in by_path:
                raise F2fsError(f"{os.fsdecode(path)}: the name is there twice")
            by_path[path] = file
            folder.children.append(_Child(name, file.ino, file_type(file.entry.mode)))
        return files, root

    def _directory(self, file: _File) -> tuple[bytes | None, Any]:
        """(inline area or None, Built or None) of a directory."""
        names = [child.name for child in file.children]
        inos = [child.ino for child in file.children]
        kinds = [child.kind for child in file.children]
        hashes = name_hashes(names)
        inline = build_inline(self.inline_room, names, inos, kinds, hashes, file.ino, file.parent)
        if inline is not None:
            return inline, None
        built = build_directory(
            names, inos, kinds, hashes, self_ino=file.ino, parent_ino=file.parent, block_size=self.geo.block_size
        )
        return None, built

    def _fill_root(self, root: _File) -> Any:
        """The root was made by the format, with its entries in a block."""
        names = [child.name for child in root.children]
        return build_directory(
            names,
            [child.ino for child in root.children],
            [child.kind for child in root.children],
            name_hashes(names),
            self_ino=root.ino,
            parent_ino=root.ino,
            dir_level=self.vol.live(root.ino).i_dir_level,
            block_size=self.geo.block_size,
        )

    def _finish_root(self, root: _File, built: Any) -> None:
        vol, entry = self.vol, root.entry
        inode = vol.live(root.ino)
        vol.mapper.reserve(inode, built.indices)
        for number, block in zip(built.indices.tolist(), built.blocks, strict=True):
            vol.files.page(inode, number, fresh=True)[:] = block
        inode.set(i_size=built.i_size, i_current_depth=built.i_current_depth, i_links=root.links)
        if entry is not self._no_root:
            vol.transfer(inode, entry.uid, entry.gid, None)
            inode.set(i_mode=stat.S_IFDIR | stat.S_IMODE(entry.mode), i_uid=entry.uid, i_gid=entry.gid)
            for name, value in sorted(entry.xattrs.items()):
                vol.setxattr(root.ino, name, value)
            inode.set(**_times(entry))
        vol.nodes.touch(inode)

    # -- inodes ---------------------------------------------------------------------------------------------------

    def _batch(self, files: list[_File]) -> None:
        """Make some inodes, with all that belongs to them."""
        blocks = self._inode_blocks[: len(files)]
        blocks[:] = 0
        self._xattrs(files)
        self._fields(files, blocks)
        stream = _DataStream(self, blocks)
        for row, file in enumerate(files):
            file.row = row
            self._content(file, blocks[row], stream)
        stream.finish()
        self._count(files, blocks)
        self._write_nodes(files, blocks)
        self.progress(len(files))

    def _fields(self, files: list[_File], blocks: NDArray[np.uint8]) -> None:
        """What an inode says besides its content, field by field for all of them."""
        rows = blocks.view(InodeLayout.at(self.geo.block_size).dtype)[:, 0]
        for name in ("i_uid", "i_gid"):
            rows[name] = [getattr(file.entry, name[2:]) for file in files]
        rows["i_mode"] = [file.mode for file in files]
        rows["i_links"] = [file.links for file in files]
        rows["i_pino"] = [file.parent for file in files]
        rows["i_blocks"] = 1
        rows["i_generation"] = [self.vol.new_generation() for _ in files]
        rows["i_namelen"] = [len(file.name) for file in files]
        rows["i_name"] = np.array([file.name for file in files], "S255").view(np.uint8).reshape(len(files), 255)
        rows["i_inline"] = F2FS_INLINE_XATTR | (F2FS_EXTRA_ATTR if self._extra else 0)
        rows["i_advise"] = [file.advise for file in files]
        is_dir = np.array([stat.S_ISDIR(file.mode) for file in files])
        rows["i_flags"] = np.where(is_dir, F2FS_INDEX_FL, 0)
        for name, values in (
            ("atime", [f.entry.mtime_ns if f.entry.atime_ns is None else f.entry.atime_ns for f in files]),
            ("ctime", [f.entry.mtime_ns if f.entry.ctime_ns is None else f.entry.ctime_ns for f in files]),
            ("mtime", [f.entry.mtime_ns for f in files]),
        ):
            seconds, nsec = np.divmod(np.array(values, np.int64), 1_000_000_000)
            rows[f"i_{name}"], rows[f"i_{name}_nsec"] = seconds.view(np.uint64), nsec
        if self._extra:
            self._extra_fields(files, blocks)
        footers = blocks[:, -NodeFooter.size :].view(NodeFooter.dtype)[:, 0]
        footers["nid"] = footers["ino"] = [file.ino for file in files]
        footers["flag"] = np.where(is_dir, 0, 1 << COLD_BIT_SHIFT)
        inline = [file.inline or b"" for file in files]
        end = INODE_ADDR_OFFSET + 4 * self.geo.addrs_per_inode
        for row, area in enumerate(inline):
            if area:
                blocks[row, end - self._inline_size : end] = np.frombuffer(area, np.uint8)

    def _extra_fields(self, files: list[_File], blocks: NDArray[np.uint8]) -> None:
        extra = blocks[:, INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + InodeExtra.size].view(InodeExtra.dtype)[:, 0]
        extra["i_extra_isize"] = InodeExtra.size
        if self.geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR:
            extra["i_inline_xattr_size"] = DEFAULT_INLINE_XATTR_ADDRS
        if self.geo.feature & 0x100:
            born = [f.entry.mtime_ns if f.entry.crtime_ns is None else f.entry.crtime_ns for f in files]
            seconds, nsec = np.divmod(np.array(born, np.int64), 1_000_000_000)
            extra["i_crtime"], extra["i_crtime_nsec"] = seconds.view(np.uint64), nsec

    def _xattrs(self, files: list[_File]) -> None:
        """Lay the xattrs out; equal sets are laid out once."""
        for file in files:
            file.mode = file.entry.mode
            if stat.S_ISREG(file.mode):
                file.advise = self.vol.maker.advice(file.name)
            if not file.entry.xattrs:
                continue
            key = (("", bytes([file.mode >> 8, file.mode & 255])), *sorted(file.entry.xattrs.items()))
            found = self._xattr_areas.get(key)
            if found is None:
                found = lay_out_xattrs(file.entry, self._inline_size, self.geo.block_size)
                self._xattr_areas[key] = found
            file.mode, file.inline, file.xattr_node = found

    # -- content --------------------------------------------------------------------------------------------------

    def _content(self, file: _File, block: NDArray[np.uint8], stream: _DataStream) -> None:
        entry = file.entry
        if stat.S_ISDIR(file.mode):
            self._directory_content(file, block, stream)
        elif stat.S_ISREG(file.mode):
            n = self.geo.addrs_per_block
            if entry.size > n * (2 + 2 * n + n * n) * self.geo.block_size:  # max_file_blocks() in fs/f2fs/super.c
                raise OSError(errno.EFBIG, f"{os.fsdecode(entry.path)}: larger than a file of F2FS can be")
            if self._compressed(file):
                stream.add_compressed(file, block, self.compress)
            elif entry.size <= self.inline_room:
                block[3] |= F2FS_INLINE_DATA | (F2FS_DATA_EXIST if entry.size else 0)
                if entry.content is not None:
                    room: Any = block[self._inline_at : self._inline_at + entry.size]
                    for offset, length in entry.content.extents():
                        entry.content.read_into(offset, memoryview(room)[offset : offset + length])
            else:
                stream.add(file, block)
            block[16:24].view("<u8")[0] = entry.size
            if entry.content is not None:
                entry.content.close()
            self.report(file, entry.size)
        elif stat.S_ISLNK(file.mode):
            self._link_content(file, block, stream)
        elif stat.S_ISCHR(file.mode) or stat.S_ISBLK(file.mode):
            block[self._addr_at : self._addr_at + 12].view("<u4")[:] = device_words(*entry.rdev)

    def _compressed(self, file: _File) -> bool:
        return compresses(self.compress, self.geo, file.entry)

    def _link_content(self, file: _File, block: NDArray[np.uint8], stream: _DataStream) -> None:
        target = file.entry.target
        if not target or len(target) >= self.geo.block_size:
            raise F2fsError(f"{os.fsdecode(file.entry.path)}: a symbolic link to {len(target)} bytes")
        block[16:24].view("<u8")[0] = len(target)
        if len(target) <= self.inline_room:
            block[3] |= F2FS_INLINE_DATA | F2FS_DATA_EXIST
            block[self._inline_at : self._inline_at + len(target)] = np.frombuffer(target, np.uint8)
            return
        rows = np.zeros((1, self.geo.block_size), np.uint8)
        rows[0, : len(target)] = np.frombuffer(target, np.uint8)
        stream.add_rows(file, np.zeros(1, np.int64), rows, self._log(file))

    def _directory_content(self, file: _File, block: NDArray[np.uint8], stream: _DataStream) -> None:
        inline, built = self._directory(file)
        file.children = []
        rows = block.view(InodeLayout.at(self.geo.block_size).dtype)[0]
        if inline is not None:
            block[3] |= F2FS_INLINE_DENTRY
            block[self._inline_at : self._inline_at + len(inline)] = np.frombuffer(inline, np.uint8)
            rows["i_size"] = len(inline)
            rows["i_current_depth"] = 1
            return
        rows["i_size"], rows["i_current_depth"] = built.i_size, built.i_current_depth
        stream.add_rows(file, built.indices, built.blocks, self._log(file))

    def _log(self, file: _File, compressed: bool = False) -> int:
        cold = compressed or bool(file.advise & FADVISE_COLD_BIT)
        return self.vol.policy.data_log(stat.S_ISDIR(file.mode), cold, bool(file.advise & FADVISE_HOT_BIT))

    # -- the end of a batch ---------------------------------------------------------------------------------------

    def _count(self, files: list[_File], blocks: NDArray[np.uint8]) -> None:
        """The inodes themselves; data and further nodes were counted when they were written."""
        space = self.vol.space
        space.require(len(files), len(files))
        space.valid_blocks += len(files)
        space.valid_nodes += len(files)
        space.valid_inodes += len(files)
        rows = blocks.view(InodeLayout.at(self.geo.block_size).dtype)[:, 0]
        for uid, gid, count in zip(
            rows["i_uid"].tolist(), rows["i_gid"].tolist(), rows["i_blocks"].tolist(), strict=True
        ):
            used = self.usage.setdefault((uid, gid, 0), [0, 0])
            used[0] += 1
            used[1] += count - 1

    def _write_nodes(self, files: list[_File], blocks: NDArray[np.uint8]) -> None:
        policy, nodes = self.vol.policy, self.vol.nodes
        extra: list[_File] = [file for file in files if file.xattr_node is not None]
        if extra:
            self.vol.space.require(len(extra), len(extra))
            nids = np.array(self.vol.nat.take(len(extra)), np.int64)
            rows = np.zeros((len(extra), self.geo.block_size), np.uint8)
            for row, nid, file in zip(rows, nids.tolist(), extra, strict=True):
                assert file.xattr_node is not None
                row[: len(file.xattr_node)] = np.frombuffer(file.xattr_node, np.uint8)
                _set_footer(row, nid, file.ino, XATTR_NODE_OFFSET, stat.S_ISDIR(file.mode))
                inode = blocks[file.row].view(InodeLayout.at(self.geo.block_size).dtype)[0]
                inode["i_xattr_nid"] = nid
                inode["i_blocks"] += 1
                self.usage[(file.entry.uid, file.entry.gid, 0)][1] += 1
            self.vol.space.valid_blocks += len(extra)
            self.vol.space.valid_nodes += len(extra)
            are_dirs = np.array([stat.S_ISDIR(file.mode) for file in extra])
            for directory in (True, False):
                if (are_dirs == directory).any():
                    kind = policy.node_log(direct=True, directory=directory)
                    nodes.write_blocks(kind, nids[are_dirs == directory], rows[are_dirs == directory])
        inos = np.array([file.ino for file in files], np.int64)
        are_dirs = np.array([stat.S_ISDIR(file.mode) for file in files])
        for directory in (True, False):
            chosen = are_dirs == directory
            if chosen.all():
                nodes.write_blocks(policy.node_log(direct=True, directory=directory), inos, blocks)
            elif chosen.any():
                nodes.write_blocks(policy.node_log(direct=True, directory=directory), inos[chosen], blocks[chosen])


class _Numbers:
    """Free inode numbers, taken in larger pieces."""

    def __init__(self, vol: WritableVolume) -> None:
        self._vol = vol

    def __iter__(self) -> Iterator[int]:
        while True:
            try:
                taken = self._vol.nat.take(INODES_AT_ONCE)
            except OSError:
                taken = self._vol.nat.take(1)
            for at, number in enumerate(taken):
                try:
                    yield number
                except GeneratorExit:
                    self._vol.nat.put_back(taken[at + 1 :])
                    raise


class _DataStream:
    """The data of a batch of files: blocks of small files collect, and are placed together."""

    def __init__(self, loader: _Loader, inodes: NDArray[np.uint8]) -> None:
        self._loader = loader
        self._geo = loader.geo
        self._vol = loader.vol
        self._inodes = inodes
        self._logs: dict[int, _Collected] = {}

    def buffer(self, kind: int) -> NDArray[np.uint8]:
        """Room for the blocks that go to a log together; -1: for those of one large file."""
        found = self._loader.buffers.get(kind)
        if found is None:
            found = self._loader.buffers[kind] = np.empty((BLOCKS_AT_ONCE, self._geo.block_size), np.uint8)
        return found

    # -- in -------------------------------------------------------------------------------------------------------

    def add(self, file: _File, block: NDArray[np.uint8]) -> None:
        """A regular file: only what is not a hole gets blocks."""
        entry = file.entry
        runs = block_runs(entry.content, self._geo.block_size)
        total = sum(count for _, count in runs)
        kind = self._loader._log(file)
        last = runs[-1][0] + runs[-1][1] if runs else 0
        if total <= BLOCKS_AT_ONCE // 2 and last <= self._loader.addrs_per_inode:
            rows = self._logs.setdefault(kind, _Collected(self, kind)).room(total)
            fofs = blocks_of(runs)
            read_content(entry, fofs, rows)
            self._logs[kind].add(file.row, file.ino, fofs)
            return
        tree = _Tree(self._loader, file, blocks_of(runs))
        buffer = self.buffer(-1)
        for start in range(0, total, BLOCKS_AT_ONCE):
            fofs = tree.fofs[start : start + BLOCKS_AT_ONCE]
            rows = buffer[: fofs.size]
            read_content(entry, fofs, rows)
            tree.place(start, rows, kind)
            self._loader.report(file, rows.nbytes)
        tree.finish(block)

    def add_rows(self, file: _File, fofs: NDArray[np.int64], rows: NDArray[np.uint8], kind: int) -> None:
        """Blocks that are in memory."""
        if fofs.size <= BLOCKS_AT_ONCE // 2 and fofs.size and int(fofs[-1]) < self._loader.addrs_per_inode:
            self._logs.setdefault(kind, _Collected(self, kind)).room(fofs.size)[:] = rows
            self._logs[kind].add(file.row, file.ino, fofs)
            return
        tree = _Tree(self._loader, file, fofs)
        for start in range(0, fofs.size, BLOCKS_AT_ONCE):
            tree.place(start, rows[start : start + BLOCKS_AT_ONCE], kind)
        tree.finish(self._inodes[file.row])

    def add_compressed(self, file: _File, block: NDArray[np.uint8], how: CompressPolicy | None) -> None:
        """A file in clusters, each compressed where that saves a block."""
        assert how is not None
        geo, size, entry = self._geo, self._geo.block_size, file.entry
        cluster = 1 << how.log_cluster_size
        extra = block[INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + InodeExtra.size].view(InodeExtra.dtype)[0]
        extra["i_compress_algorithm"], extra["i_log_cluster_size"] = how.algorithm, how.log_cluster_size
        extra["i_compress_flag"] = how.level << 8 | int(how.chksum)
        rows = block.view(InodeLayout.at(size).dtype)[0]
        rows["i_flags"] |= F2FS_COMPR_FL
        kind = self._loader._log(file, compressed=True)
        fofs = blocks_of(block_runs(entry.content, size))
        own = self._loader.addrs_per_inode - self._loader.addrs_per_inode % cluster
        per = geo.addrs_per_block - geo.addrs_per_block % cluster
        tree = _Tree(self._loader, file, fofs, own, per, how.release)
        saved = 0
        for bounds in cluster_batches(cluster_bounds(fofs, how.log_cluster_size), how.log_cluster_size):
            part = fofs[bounds[0] : bounds[-1]]
            plain = np.zeros((part.size, size), np.uint8)
            read_content(entry, part, plain)
            saved += self._compress(tree, bounds, plain, how, kind)
            self._loader.report(file, plain.nbytes)
        if how.release and saved:
            block[3] |= F2FS_COMPRESS_RELEASED
            tree.release()
        extra["i_compr_blocks"] = 0 if how.release else saved
        tree.finish(block)

    def _compress(
        self, tree: _Tree, bounds: NDArray[np.int64], plain: NDArray[np.uint8], how: CompressPolicy, kind: int
    ) -> int:
        """Place some clusters: how many blocks were saved."""
        from f2tools.f2fs.volume.compress import compress_cluster

        cluster, size = 1 << how.log_cluster_size, self._geo.block_size
        indices: list[NDArray[np.int64]] = []
        rows: list[NDArray[np.uint8]] = []
        saved = 0
        starts = bounds.tolist()
        for start, end in pairwise(starts):
            members = np.arange(start, end)
            at = start - starts[0]
            raw = None
            if members.size == cluster:
                raw = compress_cluster(
                    plain[at : at + cluster].tobytes(), how.algorithm, how.level, chksum=how.chksum, block_size=size
                )
            if raw is None:
                indices.append(members)
                rows.append(plain[at : at + members.size])
                continue
            count = len(raw) // size
            tree.addrs[members[0]] = COMPRESS_ADDR
            tree.addrs[members[1 + count :]] = NEW_ADDR
            indices.append(members[1 : 1 + count])
            rows.append(np.frombuffer(raw, np.uint8).reshape(count, size))
            saved += cluster - count
        tree.place_some(np.concatenate(indices), np.concatenate(rows), kind)
        return saved

    # -- out ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Place what has been collected."""
        for collected in self._logs.values():
            collected.flush()
        self._logs.clear()

    def placed(self, kind: int, members: list[tuple[int, int, NDArray[np.int64]]], rows: NDArray[np.uint8]) -> None:
        """Write blocks of several files, all mapped by their inodes, one after the other."""
        counts = np.array([fofs.size for _, _, fofs in members], np.int64)
        fofs = np.concatenate([fofs for _, _, fofs in members])
        owners = np.zeros(fofs.size, Summary.dtype)
        owners["nid"] = np.repeat(np.array([ino for _, ino, _ in members], np.int64), counts)
        owners["ofs_in_node"] = fofs
        self._vol.space.require(fofs.size)
        self._vol.space.valid_blocks += fofs.size
        blkaddrs = self._vol.segments.allocate(kind, owners)
        self._vol.device.write_blocks(blkaddrs, rows, self._geo.block_size)
        at_row = np.repeat(np.array([row for row, _, _ in members], np.int64), counts)
        words = self._inodes.view("<u4")
        words[at_row, self._loader._addr_at // 4 + fofs] = blkaddrs
        inode_rows = self._inodes.view(InodeLayout.at(self._geo.block_size).dtype)[:, 0]
        starts = np.cumsum(counts) - counts
        for (row, _, mine), start in zip(members, starts.tolist(), strict=True):
            inode_rows["i_blocks"][row] += mine.size
            _remember_extent(self._inodes[row], mine, blkaddrs[start : start + mine.size])


class _Collected:
    """Blocks of small files on their way to one log."""

    def __init__(self, stream: _DataStream, kind: int) -> None:
        self._stream = stream
        self._kind = kind
        self._rows = stream.buffer(kind)
        self._used = 0
        self._members: list[tuple[int, int, NDArray[np.int64]]] = []

    def room(self, count: int) -> NDArray[np.uint8]:
        """Room for that many blocks, which `add` then says the owner of."""
        if self._used + count > len(self._rows):
            self.flush()
        return self._rows[self._used : self._used + count]

    def add(self, row: int, ino: int, fofs: NDArray[np.int64]) -> None:
        if fofs.size:
            self._members.append((row, ino, fofs))
            self._used += fofs.size

    def flush(self) -> None:
        if self._members:
            self._stream.placed(self._kind, self._members, self._rows[: self._used])
        self._members, self._used = [], 0


class _Tree:
    """One large file: its blocks, and the nodes that map them."""

    def __init__(
        self,
        loader: _Loader,
        file: _File,
        fofs: NDArray[np.int64],
        own: int | None = None,
        per: int | None = None,
        release: bool = False,
    ) -> None:
        self._loader = loader
        self._vol = loader.vol
        self._geo = loader.geo
        self._file = file
        self.fofs = fofs
        self.addrs = np.zeros(fofs.size, np.int64)
        self._own = loader.addrs_per_inode if own is None else own
        self._per = loader.geo.addrs_per_block if per is None else per
        beyond = fofs[fofs >= self._own]
        numbers = np.unique((beyond - self._own) // self._per)
        n = loader.geo.addrs_per_block
        try:
            self._paths = node_paths(numbers.tolist(), n)  # path from the inode -> nid
        except OSError:
            text = f"{os.fsdecode(file.entry.path)}: larger than a file of F2FS can be"
            raise OSError(errno.EFBIG, text) from None
        wanted = list(self._paths)
        self._vol.space.require(len(wanted) if release else fofs.size + len(wanted), len(wanted))
        for path, nid in zip(wanted, self._vol.nat.take(len(wanted)) if wanted else [], strict=True):
            self._paths[path] = nid
        self._numbers = numbers
        direct = np.array([self._paths[tuple(path_of(number, n))] for number in numbers.tolist()], np.int64)
        inside = fofs < self._own
        which = np.searchsorted(numbers, (fofs - self._own) // self._per)
        padded = np.append(direct, 0)
        self._nids = np.where(inside, file.ino, padded[np.minimum(which, direct.size)])
        self._places = np.where(inside, fofs, (fofs - self._own) % self._per)
        self._released = 0

    def place(self, start: int, rows: NDArray[np.uint8], kind: int) -> None:
        """Write the next blocks of the file."""
        self.place_some(np.arange(start, start + len(rows)), rows, kind)

    def place_some(self, indices: NDArray[np.int64], rows: NDArray[np.uint8], kind: int) -> None:
        """Write some of its blocks, by their place among `fofs`."""
        owners = np.zeros(indices.size, Summary.dtype)
        owners["nid"] = self._nids[indices]
        owners["ofs_in_node"] = self._places[indices]
        blkaddrs = self._vol.segments.allocate(kind, owners)
        self._vol.device.write_blocks(blkaddrs, rows, self._geo.block_size)
        self.addrs[indices] = blkaddrs

    def release(self) -> None:
        """Give the blocks free that compression saved."""
        reserved = self.addrs == NEW_ADDR
        self._released = int(reserved.sum()) + int((self.addrs == COMPRESS_ADDR).sum())
        self.addrs[reserved] = 0

    def finish(self, block: NDArray[np.uint8]) -> None:
        """Write the nodes; the inode's block gets its addresses, node numbers and counts."""
        geo, vol, n = self._geo, self._vol, self._geo.addrs_per_block
        directory = stat.S_ISDIR(self._file.mode)
        inode = block.view(InodeLayout.at(geo.block_size).dtype)[0]
        inside = self.fofs < self._own
        words = block.view("<u4")
        words[self._loader._addr_at // 4 + self.fofs[inside]] = self.addrs[inside]
        count = self.fofs.size - self._released
        vol.space.require(count + len(self._paths), len(self._paths))
        inode["i_blocks"] += count + len(self._paths)
        vol.space.valid_blocks += count + len(self._paths)
        vol.space.valid_nodes += len(self._paths)
        if not inode["i_flags"] & F2FS_COMPR_FL:
            _remember_extent(block, self.fofs, self.addrs)
        if not self._paths:
            return
        paths = list(self._paths)
        nids = np.array([self._paths[path] for path in paths], np.int64)
        row_of = {path: row for row, path in enumerate(paths)}
        offsets = np.array([path[-1][1] for path in paths], np.int64)
        direct = np.array([is_dnode(offset, n) for offset in offsets.tolist()])
        indirect: dict[int, NDArray[np.uint8]] = {
            row: np.zeros(geo.block_size, np.uint8) for row in np.flatnonzero(~direct).tolist()
        }
        for path in paths:
            nid = self._paths[path]
            if len(path) == 1:
                inode["i_nid"][path[0][0]] = nid
            else:
                indirect[row_of[path[:-1]]].view("<u4")[path[-1][0]] = nid
        self._write_direct(paths, nids, offsets, np.flatnonzero(direct), directory)
        if indirect:
            rows = np.stack(list(indirect.values()))
            numbers = np.array(list(indirect), np.int64)
            _set_footers(rows, nids[numbers], self._file.ino, offsets[numbers], directory)
            vol.nodes.write_blocks(vol.policy.node_log(direct=False, directory=directory), nids[numbers], rows)

    def _write_direct(
        self,
        paths: list[tuple[tuple[int, int], ...]],
        nids: NDArray[np.int64],
        offsets: NDArray[np.int64],
        direct: NDArray[np.int64],
        directory: bool,
    ) -> None:
        """The direct nodes, whose order in `paths` is the order of the file."""
        geo, vol = self._geo, self._vol
        kind = vol.policy.node_log(direct=True, directory=directory)
        outside = np.flatnonzero(self.fofs >= self._own)
        which = np.searchsorted(self._numbers, (self.fofs[outside] - self._own) // self._per)
        for start in range(0, direct.size, BLOCKS_AT_ONCE):
            some = direct[start : start + BLOCKS_AT_ONCE]
            low, high = np.searchsorted(which, (start, start + some.size))
            rows = np.zeros((some.size, geo.block_size), np.uint8)
            part = outside[low:high]
            rows.view("<u4")[which[low:high] - start, self._places[part]] = self.addrs[part]
            _set_footers(rows, nids[some], self._file.ino, offsets[some], directory)
            vol.nodes.write_blocks(kind, nids[some], rows)


def _set_footers(
    rows: NDArray[np.uint8], nids: NDArray[np.int64], ino: int, offsets: NDArray[np.int64], directory: bool
) -> None:
    footers = rows[:, -NodeFooter.size :].view(NodeFooter.dtype)[:, 0]
    footers["nid"], footers["ino"] = nids, ino
    footers["flag"] = offsets << OFFSET_BIT_SHIFT & 0xFFFFFFFF | (0 if directory else 1 << COLD_BIT_SHIFT)


def _set_footer(row: NDArray[np.uint8], nid: int, ino: int, offset: int, directory: bool) -> None:
    _set_footers(row[None, :], np.array([nid]), ino, np.array([offset]), directory)


def _remember_extent(block: NDArray[np.uint8], fofs: NDArray[np.int64], addrs: NDArray[np.int64]) -> None:
    """Let an inode remember its longest extent."""
    if not fofs.size:
        return
    if int(addrs[-1] - addrs[0]) == fofs.size - 1 == int(fofs[-1] - fofs[0]) and addrs[0] < COMPRESS_ADDR:
        block[_EXT : _EXT + 12].view("<u4")[:] = (fofs[0], addrs[0], fofs.size)
        return
    cuts = np.flatnonzero((np.diff(fofs) != 1) | (np.diff(addrs) != 1)) + 1
    starts = np.concatenate(([0], cuts))
    lengths = np.diff(np.append(starts, fofs.size))
    longest = int(np.argmax(lengths))
    start = int(starts[longest])
    block[_EXT : _EXT + 12].view("<u4")[:] = (fofs[start], addrs[start], lengths[longest])


def _times(entry: SourceEntry) -> dict[str, int]:
    values: dict[str, int] = {}
    for name, ns in (("atime", entry.atime_ns), ("ctime", entry.ctime_ns), ("mtime", entry.mtime_ns)):
        seconds, nsec = divmod(entry.mtime_ns if ns is None else ns, 1_000_000_000)
        values |= {f"i_{name}": seconds % (1 << 64), f"i_{name}_nsec": nsec}
    return values


__all__ = ["CompressPolicy", "SourceEntry", "load"]
