"""What a tree will be in a volume: numbers and names, blocks of each file, clusters, paths of nodes, xattrs.

Nothing is written here but the numbers of inodes taken; `mkfs --size auto` asks the same functions.
"""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    F2FS_FEATURE_COMPRESSION,
    F2FS_FEATURE_RO,
    F2FS_FT_DIR,
    F2FS_ROOT_INO,
)
from f2tools.f2fs.layout.file_type import file_type
from f2tools.f2fs.layout.node_tree import node_path
from f2tools.f2fs.layout.xattr import XATTR_INDEX_ADVISE
from f2tools.f2fs.volume.compress import compress_cluster
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.write.bulk.tree import CompressPolicy, Content, SourceEntry
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.f2fs.write.xattr import build_area, parse_name, room_of, split, stored_value
from f2tools.lazy import dataclass

INODES_AT_ONCE = 1024
BLOCKS_AT_ONCE = 256  # of data, in memory at a time: what stays in a processor's cache is copied several times faster
_NONE = np.zeros(0, np.int64)

NO_ROOT = SourceEntry(b"", stat.S_IFDIR)  # where the source says nothing of the root


@dataclass(frozen=True)
class Names:
    """The names in a directory, the inodes that they stand for, and these inodes' F2FS_FT_*."""

    names: list[bytes] = field(default_factory=list)
    inos: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)

    def add(self, name: bytes, ino: int, kind: int) -> None:
        self.names.append(name)
        self.inos.append(ino)
        self.kinds.append(kind)


NO_NAMES = Names()  # of what is no directory


@dataclasses.dataclass(slots=True)
class NewFile:
    """An inode to be made."""

    entry: SourceEntry
    ino: int
    parent: int
    name: bytes
    links: int = 1
    children: Names = NO_NAMES  # of a directory
    inline: bytes | None = None  # the inline part of its xattrs
    xattr_node: bytes | None = None
    row: int = 0  # in the batch of inodes
    advise: int = 0
    mode: int = 0
    reported: int = 0  # bytes that `progress` was told of


@dataclass(frozen=True)
class Batch:
    """Inodes that are made together, by columns: a row each, in the order of their numbers."""

    names: list[bytes]
    inos: NDArray[np.int64]
    parents: NDArray[np.int64]  # their numbers
    links: NDArray[np.int64]
    modes: NDArray[np.int64]
    uids: NDArray[np.int64]
    gids: NDArray[np.int64]
    sizes: NDArray[np.int64]  # of regular files
    times: dict[str, NDArray[np.int64]]  # nanoseconds: atime, ctime, mtime, crtime
    files: list[NewFile]  # those that there is an object for
    at: list[int]  # their rows
    plain: Plain | None = None  # where the others are read


class Plain(Protocol):
    """Small files of the host without holes that are read together, by their places in a batch."""

    def rows(self) -> NDArray[np.int64]:
        """Their rows in the batch."""
        ...

    def paths(self, rows: NDArray[np.int64]) -> bytes:
        """Where some of them are, a NUL behind each path."""
        ...

    def known(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """`dev`, `ino`, `size` and `mtime_ns` of some of them, by which they are known again."""
        ...

    def content(self, row: int) -> Content:
        """One of them, to be read by itself."""
        ...


class Planned(Protocol):
    """The inodes of a tree, with their numbers."""

    root: NewFile

    def __len__(self) -> int: ...

    def batches(self) -> Iterator[Batch]:
        """All but the root, INODES_AT_ONCE at a time."""
        ...


class PlannedEntries:
    """A tree with an object for each file."""

    def __init__(self, vol: WritableVolume, entries: Iterable[SourceEntry]) -> None:
        self._files, self.root = plan(vol, entries)

    def __len__(self) -> int:
        return len(self._files)

    def batches(self) -> Iterator[Batch]:
        """All but the root, INODES_AT_ONCE at a time."""
        for start in range(0, len(self._files), INODES_AT_ONCE):
            yield _batch_of(self._files[start : start + INODES_AT_ONCE])


def _batch_of(files: list[NewFile]) -> Batch:
    entries = [file.entry for file in files]
    return Batch(
        names=[file.name for file in files],
        inos=_numbers(files, "ino"),
        parents=_numbers(files, "parent"),
        links=_numbers(files, "links"),
        modes=_numbers(entries, "mode"),
        uids=_numbers(entries, "uid"),
        gids=_numbers(entries, "gid"),
        sizes=_numbers(entries, "size"),
        times={name: _times(entries, f"{name}_ns") for name in ("atime", "ctime", "mtime", "crtime")},
        files=files,
        at=list(range(len(files))),
    )


def _numbers(items: Sequence[object], name: str) -> NDArray[np.int64]:
    """One attribute of many things."""
    return np.fromiter(map(attrgetter(name), items), np.int64, len(items))


def _times(entries: Sequence[SourceEntry], name: str) -> NDArray[np.int64]:
    """One of the times of many entries, the mtime where it isn't given."""
    times = list(map(attrgetter(name), entries))
    if times.count(None) == len(times):
        return _numbers(entries, "mtime_ns")
    return np.array([e.mtime_ns if ns is None else ns for e, ns in zip(entries, times, strict=True)], np.int64)


def new_root(vol: WritableVolume) -> NewFile:
    """The root directory of a fresh volume, with the names that it has of its own."""
    root = NewFile(NO_ROOT, F2FS_ROOT_INO, F2FS_ROOT_INO, b"", 2, Names())
    for dentry in vol.dirs.entries(vol.live(F2FS_ROOT_INO)):
        if dentry.name not in (b".", b".."):
            root.children.add(dentry.name, dentry.ino, dentry.file_type)
            root.links += int(dentry.file_type == F2FS_FT_DIR)
    return root


def of_its_own(path: bytes) -> F2fsError:
    """What is said of a name that the root directory has already."""
    return F2fsError(f"{os.fsdecode(path)}: the volume has this name of its own")


def twice(path: bytes) -> F2fsError:
    """What is said of a name that a directory has already."""
    return F2fsError(f"{os.fsdecode(path)}: the name is there twice")


def plan(vol: WritableVolume, entries: Iterable[SourceEntry]) -> tuple[list[NewFile], NewFile]:
    """(files, root): every file gets its number, every directory its names. F2fsError for an impossible tree."""
    root_inode = vol.live(F2FS_ROOT_INO)
    root = new_root(vol)
    own = set(root.children.names)
    by_path: dict[bytes, NewFile] = {b"": root}
    files: list[NewFile] = []
    directories = [root]
    numbers = iter(Numbers(vol))
    here, directory, children = b"", root, root.children
    kinds: dict[int, int] = {}  # F2FS_FT_* of modes
    for entry in entries:
        path, mode = entry.path, entry.mode
        if not path:
            root.entry = entry
            continue
        directory_path, _, name = path.rpartition(b"/")
        if directory_path != here or not here:
            above = by_path.get(directory_path)
            if above is None or not stat.S_ISDIR(above.entry.mode):
                raise F2fsError(f"{os.fsdecode(path)}: its directory is not among the files, or no directory")
            here, directory, children = directory_path, above, above.children
        if directory is root and name in own:
            raise of_its_own(path)
        if entry.link_to is not None:
            file = by_path.get(entry.link_to)
            if file is None or stat.S_ISDIR(file.entry.mode):
                raise F2fsError(f"{os.fsdecode(path)}: a hard link to {os.fsdecode(entry.link_to)!r}, which is no file")
            file.links += 1
            kind = file_type(file.entry.mode)
        else:
            file = NewFile(entry, next(numbers), directory.ino, name)
            if stat.S_ISDIR(mode):
                file.links, file.children = 2, Names()
                directory.links += 1
                directories.append(file)
            files.append(file)
            kind = kinds.get(mode) or kinds.setdefault(mode, file_type(mode))
        if path in by_path:
            raise twice(path)
        by_path[path] = file
        children.names.append(name)
        children.inos.append(file.ino)
        children.kinds.append(kind)
    for directory in directories:
        vol.names.check_names(root_inode, directory.children.names)
    return files, root


class Numbers:
    """Free inode numbers, taken in larger pieces."""

    def __init__(self, vol: WritableVolume) -> None:
        self._vol = vol

    def many(self, count: int) -> list[int]:
        """So many of them; OSError ENOSPC where there are fewer."""
        found: list[int] = []
        while len(found) < count:
            found += self._some()
        self._vol.nat.put_back(found[count:])
        return found[:count]

    def _some(self) -> list[int]:
        try:
            return self._vol.nat.take(INODES_AT_ONCE)
        except OSError:
            return self._vol.nat.take(1)

    def __iter__(self) -> Iterator[int]:
        while True:
            taken = self._some()
            for at, number in enumerate(taken):
                try:
                    yield number
                except GeneratorExit:
                    self._vol.nat.put_back(taken[at + 1 :])
                    raise


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

    On a volume with the feature ro a file with holes is not: the kernel remembers their clusters as extents from block
    0 on, and fails to read them; see f2fs_cluster_blocks_are_contiguous() in fs/f2fs/compress.c.
    """
    if how is None or entry.content is None or not geo.feature & F2FS_FEATURE_COMPRESSION:
        return False
    if entry.size < geo.block_size << how.log_cluster_size:
        return False
    lower = entry.path.rpartition(b"/")[2].lower()
    if how.extensions and not _ends_with(lower, how.extensions):
        return False
    if _ends_with(lower, how.unless):
        return False
    if not geo.feature & F2FS_FEATURE_RO:
        return True
    return block_runs(entry.content, geo.block_size) == [(0, -(-entry.size // geo.block_size))]


def _ends_with(name: bytes, extensions: tuple[bytes, ...]) -> bool:
    return any(name.endswith(b"." + extension.lower()) for extension in extensions)


def cluster_bounds(fofs: NDArray[np.int64], log_cluster: int) -> NDArray[np.int64]:
    """Where among the blocks of a file each cluster begins, and where the last one ends.

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
        path = tuple(node_path(number, addrs_per_block))
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
    """Blocks that compression saves in a file whose clusters have these blocks, found out by compressing it."""
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
            less = cluster - len(raw) // block_size if raw is not None else 0
            saved += less if less >= how.least_saved else 0
    if entry.content is not None:
        entry.content.close()
    return saved
