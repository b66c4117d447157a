"""What a file system offers whose trees are to be listed, archived and copied out: paths, children, content.

The walk trusts neither names nor shape, needs no recursion, and keeps only the names of each directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from f2tools.copyout.parts import Part
from f2tools.copyout.walk import MORE_NAMES, SECOND_ENTRY, Lost, name_problem, shortened, too_deep
from f2tools.errors import F2fsError
from f2tools.text import expanded, join

PIECE = 1 << 20
LEAST = 512  # bytes that are given up together where one of them can't be read


class Node(Protocol):
    """An inode; times are nanoseconds since 1970, a device's major number is the upper half of `rdev`."""

    ino: int
    mode: int
    uid: int
    gid: int
    size: int
    links: int
    rdev: int
    atime: int
    mtime: int
    ctime: int
    crtime: int
    xattrs: dict[str, bytes]

    @property
    def kind(self) -> str:
        """file, dir, symlink, char, block, fifo or socket."""
        ...

    @property
    def is_dir(self) -> bool: ...

    @property
    def is_file(self) -> bool: ...

    @property
    def is_link(self) -> bool: ...


class Tree(Protocol):
    """A volume."""

    @property
    def root(self) -> Any: ...

    def at_path(self, path: bytes, *, follow: bool = True) -> Any:
        """The inode behind a path; OSError where there is none."""
        ...

    def names_in(self, directory: Any, problems: list[str]) -> Iterable[tuple[bytes, int]]:
        """(name, key) of the entries of a directory except `.` and `..`; what can't be used is noted."""
        ...

    def opened(self, key: int) -> Any:
        """The inode that a key leads to; F2fsError."""
        ...

    def data_ranges(self, inode: Any, unknown: list[Part] | None = None) -> Iterator[tuple[int, int]]:
        """(offset, length) of what is not a hole in a file.

        Where that can't be told, it is added to `unknown` and passed over; F2fsError where that is None.
        """
        ...

    def read_content(self, inode: Any, offset: int, length: int) -> bytes: ...

    def readlink(self, inode: Any) -> bytes: ...

    def bytes_taken(self, inode: Any) -> int:
        """How much room a file takes."""
        ...


def parts(volume: Tree, inode: Any, offset: int, length: int) -> Iterator[Part]:
    """The parts of a range of a file, in order; around what can't be read, all that can."""
    for start in range(offset, offset + length, PIECE):
        todo = [(start, min(PIECE, offset + length - start))]
        while todo:
            at, size = todo.pop()
            try:
                part = Part(at, size, volume.read_content(inode, at, size))
            except F2fsError as error:
                if size > LEAST:
                    middle = max((at + size // 2) // LEAST, at // LEAST + 1) * LEAST
                    todo += [(middle, at + size - middle), (at, middle - at)]
                    continue
                part = Part(at, size, b"", error)
            yield part


def content(volume: Tree, inode: Any) -> Iterator[Part]:
    """The parts of a file that are no holes; around what can't be read, all that can."""
    unknown: list[Part] = []
    end = 0
    try:
        for offset, length in volume.data_ranges(inode, unknown):
            yield from parts(volume, inode, offset, length)
            end = offset + length
    except F2fsError as error:
        unknown.append(Part(end, inode.size - end, b"", error))
    yield from unknown


def children(volume: Tree, directory: Node, path: bytes, lost: list[Lost]) -> list[tuple[bytes, int]]:
    """(name, key) of what is in a directory, sorted by name; what can't be used is noted."""
    problems: list[str] = []
    names: dict[bytes, int] = {}
    try:
        for name, key in volume.names_in(directory, problems):
            problem = name_problem(name)
            if problem is not None:
                lost.append(Lost(path, problem))
            elif name in names:
                lost.append(Lost(join(path, name), SECOND_ENTRY))
            else:
                names[name] = key
    except F2fsError as error:
        problems.append(str(error))
    lost += [Lost(path, text) for text in problems]
    return sorted(names.items())


def expand_all(volume: Tree, paths: Iterable[str]) -> tuple[bytes, ...]:
    """The paths that patterns of a command line mean; one that matches nothing stays, to be reported as not there."""

    def is_there(path: bytes) -> bool:
        try:
            volume.at_path(path, follow=False)
        except (OSError, F2fsError):
            return False
        return True

    def names_in(path: bytes) -> list[bytes]:
        try:
            directory = volume.at_path(path)
        except (OSError, F2fsError):
            return []
        return [name for name, _ in children(volume, directory, path, [])] if directory.is_dir else []

    return tuple(path for text in map(os.fsencode, paths) for path in expanded(text, is_there, names_in) or [text])


def walk(volume: Tree, top: Node, path: bytes, lost: list[Lost]) -> Iterator[tuple[bytes, Any]]:
    """(path, inode) of everything from `top` on, a directory right before all that is in it."""
    yield path, top
    if not top.is_dir:
        return
    todo: list[tuple[bytes, int]] = [(join(path, name), key) for name, key in children(volume, top, path, lost)[::-1]]
    met: set[int] = {top.ino}
    copied: set[int] = set()
    while todo:
        here, key = todo.pop()
        try:
            inode = volume.opened(key)
        except F2fsError as error:
            lost.append(Lost(here, str(error)))
            continue
        if inode.is_dir and inode.ino in met:
            lost.append(Lost(here, "the directory stands at a second place; not followed"))
            continue
        if not inode.is_dir and inode.links < 2 and inode.ino in copied:
            lost.append(Lost(here, MORE_NAMES))
            continue
        (met if inode.is_dir else copied).add(inode.ino)
        yield here, inode
        if not inode.is_dir:
            continue
        reason = too_deep(here)
        if reason is not None:
            lost.append(Lost(shortened(here), reason))
            continue
        todo += [(join(here, name), below) for name, below in children(volume, inode, here, lost)[::-1]]


def listed(
    volume: Tree, paths: Iterable[bytes], recursive: bool, lost: list[Lost]
) -> Iterator[tuple[bytes, Any]]:  # fmt: skip
    """(path, inode) of what `ls` shows of these paths."""
    for path in paths:
        top = volume.at_path(path)
        if recursive:
            yield from walk(volume, top, path, lost)
        elif not top.is_dir:
            yield path, top
        else:
            for name, key in children(volume, top, path, lost):
                try:
                    yield join(path, name), volume.opened(key)
                except F2fsError as error:
                    lost.append(Lost(join(path, name), str(error)))
