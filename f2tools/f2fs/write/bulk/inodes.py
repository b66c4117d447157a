"""Filling a fresh volume with a tree of files: everything is written once, in its final place, in log order.

Where the general operations change a tree name by name, here the whole tree is known: directories are built at once,
inodes in arrays, data in long runs.  The logs are those of `segment`: directory blocks and hot extensions hot, cold
extensions and compressed files cold, other data warm.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device.vectors import distinct, new_blocks
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    COLD_BIT_SHIFT,
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_DATA_EXIST,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_FEATURE_INODE_CRTIME,
    F2FS_INDEX_FL,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_XATTR,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.file_type import S_IFMT, device_words
from f2tools.f2fs.layout.footers import footers_in, inode_in, inodes_in
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.node_tree import max_blocks
from f2tools.f2fs.volume.dentries import (
    Built,
    build_directory,
    build_inline,
    inline_fits,
    name_hashes,
)
from f2tools.f2fs.write.bulk.columns import Columns, PlannedColumns
from f2tools.f2fs.write.bulk.directories import Listing, build_directories
from f2tools.f2fs.write.bulk.nodes import set_footer
from f2tools.f2fs.write.bulk.plan import (
    INODES_AT_ONCE,
    NO_NAMES,
    NO_ROOT,
    Batch,
    NewFile,
    Plain,
    Planned,
    PlannedEntries,
    compresses,
    lay_out_xattrs,
)
from f2tools.f2fs.write.bulk.stream import DataStream
from f2tools.f2fs.write.bulk.target import Progress, Target
from f2tools.f2fs.write.bulk.together import Together, known_together, reads_together
from f2tools.f2fs.write.bulk.tree import CompressPolicy, SourceEntry
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.native import core

_INLINE = InodeLayout.offset_of("i_inline")
_SIZE = slice(InodeLayout.offset_of("i_size"), InodeLayout.offset_of("i_size") + 8)
_BUILT = 16384  # names in directories that are built together
_HASHED = 4096  # names at a time: more don't stay in a processor's cache
_AREAS_HELD = 1024  # layouts of xattrs that are remembered: most files of a tree have one of a few
_NO_HASHES = np.zeros(0, np.uint32)


def load(
    vol: WritableVolume,
    entries: Iterable[SourceEntry] | Columns,
    *,
    compress: CompressPolicy | None = None,
    progress: Progress | None = None,
) -> int:
    """Fill the root directory of a fresh volume with a tree: how many inodes were made.  The caller closes the volume.

    OSError ENOSPC when the tree does not fit into the volume, which is then unusable. F2fsError naming a file that
    can't be read.
    """
    planned: Planned
    # a file that is compressed is not read with others
    if isinstance(entries, Columns) and compress is None and reads_together():
        planned = PlannedColumns(vol, entries)
    else:
        planned = PlannedEntries(vol, entries.entries() if isinstance(entries, Columns) else entries)
    return _Loader(Target(vol, compress, progress or (lambda _: None))).run(planned)


class _Loader:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.vol = target.vol
        self.geo = target.geo
        self._xattr_areas: dict[tuple[tuple[str, bytes], ...], tuple[int, bytes, bytes | None]] = {}
        self._inode_blocks = new_blocks(INODES_AT_ONCE, self.geo.block_size)
        self._flat = memoryview(self._inode_blocks).cast("B")  # type: ignore[arg-type]
        self._together = Together(self._flat)  # files whose content lies in their inodes
        self._advice = _Advice(self.vol)
        n = self.geo.addrs_per_block
        self._most = max_blocks(n, n) * self.geo.block_size
        self.usage: dict[tuple[int, int, int], list[int]] = {}

    def run(self, planned: Planned) -> int:
        self._finish_root(planned.root, self._fill_root(planned.root))
        for batch in planned.batches():
            self._batch(batch)
        self.vol.note_usage(self.usage)
        return len(planned)

    # -- directories ----------------------------------------------------------------------------------------------

    def _hashes(self, directories: list[NewFile]) -> list[NDArray[np.uint32]]:
        """The hashes of the names in each directory, computed for many at once."""
        names = [name for directory in directories for name in directory.children.names]
        if not names:
            return [_NO_HASHES] * len(directories)
        hashes = np.concatenate([name_hashes(names[at : at + _HASHED]) for at in range(0, len(names), _HASHED)])
        return np.split(hashes, np.cumsum([len(directory.children.names) for directory in directories])[:-1])

    def _directories(self, files: list[NewFile]) -> Iterator[tuple[bytes | None, Built | None]]:
        """(inline area or None, blocks or None) of directories in their order; many are built at once."""
        room, size = self.target.inline_room, self.geo.block_size
        waiting: list[tuple[bool, Listing]] = []
        total = 0
        for number, (file, hashes) in enumerate(zip(files, self._hashes(files), strict=True), 1):
            names = file.children.names
            one = Listing(names, file.children.inos, file.children.kinds, hashes, file.ino, file.parent)
            waiting.append((inline_fits(names, room), one))
            file.children = NO_NAMES
            total += len(names)
            if total < _BUILT and number < len(files):
                continue
            built = iter(build_directories([one for inside, one in waiting if not inside], size))
            for inside, one in waiting:
                yield (build_inline(room, *one), None) if inside else (None, next(built))
            waiting, total = [], 0

    def _fill_root(self, root: NewFile) -> Any:
        """The root was made by the format, with its entries in a block."""
        names = root.children.names
        return build_directory(
            names,
            root.children.inos,
            root.children.kinds,
            name_hashes(names),
            self_ino=root.ino,
            parent_ino=root.ino,
            dir_level=self.vol.live(root.ino).i_dir_level,
            block_size=self.geo.block_size,
        )

    def _finish_root(self, root: NewFile, built: Any) -> None:
        vol, entry = self.vol, root.entry
        inode = vol.live(root.ino)
        vol.mapper.reserve(inode, built.indices)
        for number, block in zip(built.indices.tolist(), built.blocks, strict=True):
            vol.files.page(inode, number, fresh=True)[:] = block
        inode.set(i_size=built.i_size, i_current_depth=built.i_current_depth, i_links=root.links)
        if entry is not NO_ROOT:
            vol.transfer(inode, entry.uid, entry.gid, None)
            inode.set(i_mode=stat.S_IFDIR | stat.S_IMODE(entry.mode), i_uid=entry.uid, i_gid=entry.gid)
            for name, value in sorted(entry.xattrs.items()):
                vol.setxattr(root.ino, name, value)
            inode.set(**inode_times(entry))
        vol.nodes.touch(inode)

    # -- inodes ---------------------------------------------------------------------------------------------------

    def _batch(self, batch: Batch) -> None:
        """Make some inodes, with all that belongs to them; directories lie first, as they go to another log."""
        files, count = batch.files, len(batch.names)
        blocks = self._inode_blocks[:count]
        blocks[:] = 0
        self._xattrs(batch)
        advice = self._advise(batch)
        are_dirs = (batch.modes & S_IFMT) == stat.S_IFDIR
        rows = np.argsort(~are_dirs, kind="stable")
        order = np.empty(count, np.int64)
        order[rows] = np.arange(count)
        for file, at in zip(files, batch.at, strict=True):
            file.row, file.advise = int(order[at]), int(advice[at])
        self._fields(batch, rows, advice, blocks)
        inodes_in(blocks)["i_generation"][order] = self.vol.new_generations(count)
        stream = DataStream(self.target, blocks)
        if batch.plain is None:
            self._contents(files, blocks, stream)
        else:
            self._contents_between(batch, batch.plain, order, advice, stream)
        stream.finish()
        self._together.read()
        self._count(blocks, order)
        self._write_xattr_nodes(files, blocks)
        inos = footers_in(blocks)["ino"].astype(np.int64)
        directories = int(are_dirs.sum())
        for first, end, directory in ((0, directories, True), (directories, count, False)):
            if first < end:
                kind = self.vol.policy.node_log(direct=True, directory=directory)
                self.vol.nodes.write_blocks(kind, inos[first:end], blocks[first:end])
        regular = (batch.modes & S_IFMT) == stat.S_IFREG
        self.target.progress(int(batch.sizes[regular].sum()) - sum(file.reported for file in files) + count)

    def _fields(
        self, batch: Batch, order: NDArray[np.int64], advice: NDArray[np.int64], blocks: NDArray[np.uint8]
    ) -> None:
        """What an inode says besides its content, field by field for all of them; `order`: which lies in each row."""
        rows, count = inodes_in(blocks), len(order)
        rows["i_uid"], rows["i_gid"] = batch.uids[order], batch.gids[order]
        modes = rows["i_mode"] = batch.modes[order]
        rows["i_links"], rows["i_pino"] = batch.links[order], batch.parents[order]
        rows["i_blocks"] = 1
        rows["i_namelen"] = np.fromiter(map(len, batch.names), np.int64, count)[order]
        rows["i_name"] = np.array(batch.names, "S255").view(np.uint8).reshape(count, 255)[order]
        rows["i_inline"] = F2FS_INLINE_XATTR | (F2FS_EXTRA_ATTR if self.target.extra else 0)
        rows["i_advise"] = advice[order]
        kinds = modes & S_IFMT
        is_dir = kinds == stat.S_IFDIR
        rows["i_size"] = np.where(kinds == stat.S_IFREG, batch.sizes[order], 0)
        rows["i_flags"] = np.where(is_dir, F2FS_INDEX_FL, 0)
        for name in ("atime", "ctime", "mtime"):
            seconds, nsec = np.divmod(batch.times[name][order], 1_000_000_000)
            rows[f"i_{name}"], rows[f"i_{name}_nsec"] = seconds.view(np.uint64), nsec
        if self.target.extra:
            self._extra_fields(batch.times["crtime"][order], blocks)
        footers = footers_in(blocks)
        footers["nid"] = footers["ino"] = batch.inos[order]
        footers["flag"] = np.where(is_dir, 0, 1 << COLD_BIT_SHIFT)
        end = INODE_ADDR_OFFSET + 4 * self.geo.addrs_per_inode
        for file in batch.files:
            if file.inline:
                blocks[file.row, end - self.target.inline_xattr_size : end] = np.frombuffer(file.inline, np.uint8)

    def _extra_fields(self, crtimes: NDArray[np.int64], blocks: NDArray[np.uint8]) -> None:
        extra = blocks[:, INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + InodeExtra.size].view(InodeExtra.dtype)[:, 0]
        extra["i_extra_isize"] = InodeExtra.size
        if self.geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR:
            extra["i_inline_xattr_size"] = DEFAULT_INLINE_XATTR_ADDRS
        if self.geo.feature & F2FS_FEATURE_INODE_CRTIME:
            seconds, nsec = np.divmod(crtimes, 1_000_000_000)
            extra["i_crtime"], extra["i_crtime_nsec"] = seconds.view(np.uint64), nsec

    def _xattrs(self, batch: Batch) -> None:
        """Lay out the xattrs; equal sets are laid out once."""
        for file, at in zip(batch.files, batch.at, strict=True):
            file.mode = file.entry.mode
            if not file.entry.xattrs:
                continue
            key = (("", bytes([file.mode >> 8, file.mode & 255])), *sorted(file.entry.xattrs.items()))
            found = self._xattr_areas.get(key)
            if found is None:
                if len(self._xattr_areas) >= _AREAS_HELD:
                    self._xattr_areas.clear()
                found = lay_out_xattrs(file.entry, self.target.inline_xattr_size, self.geo.block_size)
                self._xattr_areas[key] = found
            file.mode, file.inline, file.xattr_node = found
            batch.modes[at] = file.mode

    def _advise(self, batch: Batch) -> NDArray[np.int64]:
        """Which files are hot and cold, by what stands behind the first dot of their names."""
        like = first_alike(batch.names)
        firsts: list[int] = distinct(like).tolist()
        advice = np.zeros(like.size, np.int64)
        advice[firsts] = [self._advice[tail_of(batch.names[row])] for row in firsts]
        return np.where((batch.modes & S_IFMT) == stat.S_IFREG, advice[like], 0)

    # -- content --------------------------------------------------------------------------------------------------

    def _contents(self, files: list[NewFile], blocks: NDArray[np.uint8], stream: DataStream) -> None:
        """The content of files with an object each, one after the other."""
        directories = self._directories([file for file in files if stat.S_ISDIR(file.mode)])
        for file in files:
            if stat.S_ISREG(file.mode):
                self._file_content(file, stream)
            elif stat.S_ISDIR(file.mode):
                built = self._directory_content(next(directories), blocks[file.row])
                if built is not None:
                    stream.add_rows(file, built.indices, built.blocks, self.target.log_of(file))
            else:
                self._other_content(file, blocks[file.row], stream)

    def _contents_between(
        self, batch: Batch, plain: Plain, order: NDArray[np.int64], advice: NDArray[np.int64], stream: DataStream
    ) -> None:
        """As `_contents`, where there are plain files between those with an object."""
        blocks, rows = self._inode_blocks[: len(batch.names)], plain.rows()
        sizes = batch.sizes[rows]
        inside = sizes <= self.target.inline_room
        self._inline_contents(plain, rows[inside], sizes[inside], order)
        beside = rows[~inside]
        run = stream.run(plain, beside, order[beside], batch.inos[beside], sizes[~inside], advice[beside])
        directories = self._directories([file for file in batch.files if stat.S_ISDIR(file.mode)])
        for file, at in zip(batch.files, batch.at, strict=True):
            if stat.S_ISDIR(file.mode):
                built = self._directory_content(next(directories), blocks[file.row])
                if built is None or run.take(at, file, built.indices, built.blocks):
                    continue
                run.place(at)
                stream.add_rows(file, built.indices, built.blocks, self.target.log_of(file))
                continue
            if (file.entry.size if stat.S_ISREG(file.mode) else len(file.entry.target)) > self.target.inline_room:
                run.place(at)
            if stat.S_ISREG(file.mode):
                self._file_content(file, stream)
            else:
                self._other_content(file, blocks[file.row], stream)
        run.place(len(batch.names))

    def _inline_contents(
        self, plain: Plain, rows: NDArray[np.int64], sizes: NDArray[np.int64], order: NDArray[np.int64]
    ) -> None:
        """Plain files whose content lies in their inodes."""
        places, some = order[rows], sizes > 0
        flags = inodes_in(self._inode_blocks)["i_inline"]
        flags[places] |= np.uint8(F2FS_INLINE_DATA)
        flags[places[some]] |= np.uint8(F2FS_DATA_EXIST)
        starts = places[some] * self.geo.block_size + self.target.inline_at
        self._together.take_plain(plain, rows[some], starts, sizes[some])

    def _file_content(self, file: NewFile, stream: DataStream) -> None:
        entry, size = file.entry, file.entry.size
        if size <= self.target.inline_room:  # less than a cluster
            self._inline_content(file)
            return
        if size > self._most:
            raise OSError(errno.EFBIG, f"{os.fsdecode(entry.path)}: larger than a file of F2FS can be")
        block = self._inode_blocks[file.row]
        if self._compressed(file):
            stream.add_compressed(file, block, self.target.compress)
        else:
            stream.add(file, block)
        if entry.content is not None:
            entry.content.close()

    def _inline_content(self, file: NewFile) -> None:
        """A regular file whose content lies in its inode."""
        content, start = file.entry.content, file.row * self.geo.block_size
        self._flat[start + _INLINE] |= F2FS_INLINE_DATA | (F2FS_DATA_EXIST if file.entry.size else 0)
        if content is None:
            return
        start += self.target.inline_at
        known = known_together(content)
        if known is not None:
            self._together.take(content, known, file.entry.size, start, file.entry.size)
            return
        for offset, length in content.extents():
            content.read_into(offset, self._flat[start + offset : start + offset + length])
        content.close()

    def _other_content(self, file: NewFile, block: NDArray[np.uint8], stream: DataStream) -> None:
        entry = file.entry
        if stat.S_ISLNK(file.mode):
            self._link_content(file, block, stream)
        elif stat.S_ISCHR(file.mode) or stat.S_ISBLK(file.mode):
            block[self.target.addr_at : self.target.addr_at + 12].view("<u4")[:] = device_words(*entry.rdev)

    def _compressed(self, file: NewFile) -> bool:
        how = self.target.compress
        return how is not None and compresses(how, self.geo, file.entry)

    def _link_content(self, file: NewFile, block: NDArray[np.uint8], stream: DataStream) -> None:
        target = file.entry.target
        if not target or len(target) >= self.geo.block_size:
            raise F2fsError(f"{os.fsdecode(file.entry.path)}: a symbolic link to {len(target)} bytes")
        block[_SIZE].view("<u8")[0] = len(target)
        if len(target) <= self.target.inline_room:
            block[_INLINE] |= F2FS_INLINE_DATA | F2FS_DATA_EXIST
            block[self.target.inline_at : self.target.inline_at + len(target)] = np.frombuffer(target, np.uint8)
            return
        rows = np.zeros((1, self.geo.block_size), np.uint8)
        rows[0, : len(target)] = np.frombuffer(target, np.uint8)
        stream.add_rows(file, np.zeros(1, np.int64), rows, self.target.log_of(file))

    def _directory_content(self, made: tuple[bytes | None, Built | None], block: NDArray[np.uint8]) -> Built | None:
        """The blocks of a directory; None where it lies in its inode."""
        inline, built = made
        rows = inode_in(block)
        if built is None:
            assert inline is not None
            block[_INLINE] |= F2FS_INLINE_DENTRY
            block[self.target.inline_at : self.target.inline_at + len(inline)] = np.frombuffer(inline, np.uint8)
            rows["i_size"] = len(inline)
            rows["i_current_depth"] = 1
            return None
        rows["i_size"], rows["i_current_depth"] = built.i_size, built.i_current_depth
        return built

    # -- the end of a batch ---------------------------------------------------------------------------------------

    def _count(self, blocks: NDArray[np.uint8], order: NDArray[np.int64]) -> None:
        """The inodes themselves; data and further nodes were counted when they were written."""
        space = self.vol.space
        space.require(len(blocks), len(blocks))
        space.valid_blocks += len(blocks)
        space.valid_nodes += len(blocks)
        space.valid_inodes += len(blocks)
        rows = inodes_in(blocks)
        uids, gids, counts = rows["i_uid"][order], rows["i_gid"][order], rows["i_blocks"][order]
        if (uids == uids[0]).all() and (gids == gids[0]).all():  # as nearly always
            used = self.usage.setdefault((int(uids[0]), int(gids[0]), 0), [0, 0])
            used[0] += len(blocks)
            used[1] += int(counts.sum()) - len(blocks)
            return
        for uid, gid, count in zip(uids.tolist(), gids.tolist(), counts.tolist(), strict=True):
            used = self.usage.setdefault((uid, gid, 0), [0, 0])
            used[0] += 1
            used[1] += count - 1

    def _write_xattr_nodes(self, files: list[NewFile], blocks: NDArray[np.uint8]) -> None:
        policy, nodes = self.vol.policy, self.vol.nodes
        extra: list[NewFile] = [file for file in files if file.xattr_node is not None]
        if not extra:
            return
        self.vol.space.require(len(extra), len(extra))
        nids = np.array(self.vol.nat.take(len(extra)), np.int64)
        rows = np.zeros((len(extra), self.geo.block_size), np.uint8)
        for row, nid, file in zip(rows, nids.tolist(), extra, strict=True):
            assert file.xattr_node is not None
            row[: len(file.xattr_node)] = np.frombuffer(file.xattr_node, np.uint8)
            set_footer(row, nid, file.ino, XATTR_NODE_OFFSET, stat.S_ISDIR(file.mode))
            inode = inode_in(blocks[file.row])
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
        for file in extra:
            file.xattr_node = None  # the files themselves stay to the end


def tail_of(name: bytes) -> bytes:
    """All that stands behind the first dot of a name, the dot included; one that it begins with doesn't count."""
    dot = name.find(b".", 1)
    return name[dot:] if dot > 0 else b""


def first_alike(names: list[bytes]) -> NDArray[np.int64]:
    """For each name the row of the first one with the same tail."""
    found = np.empty(len(names), np.int64)
    if core is not None:
        core.tails(b"\0".join([*names, b""]), found)
        return found
    first: dict[bytes, int] = {}
    found[:] = [first.setdefault(tail_of(name), row) for row, name in enumerate(names)]
    return found


class _Advice(dict[bytes, int]):
    """i_advise by all that stands behind the first dot of a name, the dot included."""

    def __init__(self, vol: WritableVolume) -> None:
        super().__init__()
        self._maker = vol.maker

    def __missing__(self, tail: bytes) -> int:
        found = self[tail] = self._maker.advice(b"x" + tail)
        return found


def inode_times(entry: SourceEntry) -> dict[str, int]:
    values: dict[str, int] = {}
    for name, ns in (("atime", entry.atime_ns), ("ctime", entry.ctime_ns), ("mtime", entry.mtime_ns)):
        seconds, nsec = divmod(entry.mtime_ns if ns is None else ns, 1_000_000_000)
        values |= {f"i_{name}": seconds % (1 << 64), f"i_{name}_nsec": nsec}
    return values
