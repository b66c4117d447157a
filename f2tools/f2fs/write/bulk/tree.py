"""A tree of files on its way into a volume: what a source says of each of them, and how its content is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import field
from typing import Protocol

from f2tools.lazy import dataclass


class Content(Protocol):
    """The bytes of a regular file; F2fsError naming the file when they can't be read or have changed meanwhile."""

    def extents(self) -> Iterator[tuple[int, int]]:
        """(offset, length) of what is not a hole, in order, not touching each other."""
        ...

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes from an offset on, all of which lie inside the file."""
        ...

    def source(self) -> int | None:
        """A descriptor from which the kernel can copy, with the same offsets; None where there is none."""
        ...

    def together(self) -> tuple[bytes, int, int, int] | None:
        """Where it can be read with others in one go, because it is a file of the host without holes: its path, its
        st_dev, st_ino and mtime, by which it is known again.  None otherwise."""
        ...

    def close(self) -> None:
        """The content was read: the last chance to find that the file changed."""
        ...


@dataclasses.dataclass(slots=True)
class SourceEntry:
    """One file of a source; parents come before what is in them."""

    path: bytes  # relative, no slash at either end; empty for the root
    mode: int
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    atime_ns: int | None = None  # None: the mtime
    ctime_ns: int | None = None
    crtime_ns: int | None = None
    size: int = 0
    rdev: tuple[int, int] = (0, 0)
    target: bytes = b""  # of a symbolic link
    xattrs: dict[str, bytes] = field(default_factory=dict)  # by the names that getxattr knows, values as it gives them
    link_to: bytes | None = None  # path of the first name, for a further name of a file
    content: Content | None = None  # of a regular file that is not empty


@dataclass
class Saving:
    """What compression has done so far, in files and blocks."""

    files: int = 0  # that were written in clusters
    blocks: int = 0  # of their content
    saved: int = 0  # of these

    def add(self, blocks: int, saved: int) -> None:
        """Count one file."""
        self.files += 1
        self.blocks += blocks
        self.saved += saved


@dataclass(frozen=True)
class CompressPolicy:
    """Which files are written compressed, and how."""

    algorithm: int  # i_compress_algorithm
    level: int = 0
    log_cluster_size: int = 2
    chksum: bool = False
    extensions: tuple[bytes, ...] = ()  # of file names; empty for all files
    release: bool = False  # free the saved blocks, which makes the files immutable
    unless: tuple[bytes, ...] = ()  # extensions of files that are left as they are
    least_saved: int = 1  # blocks that a cluster must save
    saving: Saving = field(default_factory=Saving, compare=False)  # counted while files are written
