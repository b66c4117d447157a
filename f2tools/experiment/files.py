"""What a load asks of a file system, and the one that needs none of our code: a directory of this machine.

It uses the standard library alone, as the guest runs it too.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import Counter

BLOCK = 4096
PIECE = 1 << 20  # of a long write


class Files:
    """What a load asks of a file system, and a count of it.  `made` is called where the loads say so."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def mkdir(self, path: str) -> None:
        """A directory."""
        raise NotImplementedError

    def create(self, path: str) -> int:
        """A new file, open; what stands for it."""
        raise NotImplementedError

    def open(self, path: str) -> int:
        """Open an existing file."""
        raise NotImplementedError

    def close(self, file: int) -> None:
        """Close a file."""
        raise NotImplementedError

    def write(self, file: int, offset: int, size: int) -> None:
        """So many bytes at an offset; OSError ENOSPC."""
        raise NotImplementedError

    def overwrite(self, file: int, blocks: list[int]) -> None:
        """Blocks of 4 KiB of a file that has them already, one after the other."""
        for block in blocks:
            self.write(file, block * BLOCK, BLOCK)

    def read(self, file: int, offset: int, size: int) -> None:
        """So many bytes."""
        raise NotImplementedError

    def fsync(self, file: int) -> None:
        """Make a file safe."""
        raise NotImplementedError

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory safe."""
        raise NotImplementedError

    def unlink(self, path: str) -> None:
        """Remove a file."""
        raise NotImplementedError

    def sync(self) -> None:
        """Make everything safe."""
        raise NotImplementedError

    def size(self, file: int) -> int:
        """How long a file is."""
        raise NotImplementedError

    def free(self) -> int:
        """Bytes that files may still take."""
        raise NotImplementedError

    def note(self, call: str, size: int = 0) -> None:
        """Count a call."""
        self.calls[call] += 1
        if size:
            self.calls[f"{call}_bytes"] += size


class Directory(Files):
    """The files below a directory of this machine."""

    def __init__(self, root: str, sync_each: bool = False, pause: float = 0.0, direct: bool = False) -> None:
        """`sync_each`: all is made safe where a file is to be.  `pause`: seconds after each of that.

        `direct`: new files are written past the page cache; offsets and sizes must be whole blocks.
        """
        super().__init__()
        self.root = root
        self._sync_each, self._pause = sync_each, pause
        self._direct = os.O_DIRECT if direct else 0
        self._zeroes = memoryview(mmap.mmap(-1, PIECE))  # in whole pages of memory, as O_DIRECT wants it

    def _at(self, path: str) -> str:
        return os.path.join(self.root, path)

    def mkdir(self, path: str) -> None:
        self.note("mkdir")
        os.mkdir(self._at(path))

    def create(self, path: str) -> int:
        self.note("create")
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | self._direct, 0o644)

    def open(self, path: str) -> int:
        return os.open(self._at(path), os.O_RDWR | os.O_NOFOLLOW)

    def close(self, file: int) -> None:
        os.close(file)

    def write(self, file: int, offset: int, size: int) -> None:
        self.note("write", size)
        end = offset + size
        while offset < end:
            offset += os.pwrite(file, self._zeroes[: end - offset], offset)

    def read(self, file: int, offset: int, size: int) -> None:
        self.note("read", size)
        while size > 0:
            got = len(os.pread(file, min(size, PIECE), offset))
            if not got:
                return
            offset, size = offset + got, size - got

    def fsync(self, file: int) -> None:
        self.note("fsync")
        if self._sync_each:
            os.sync()
        else:
            os.fsync(file)
        if self._pause:
            time.sleep(self._pause)

    def fsync_directory(self, path: str) -> None:
        directory = os.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.fsync(directory)
        finally:
            os.close(directory)

    def unlink(self, path: str) -> None:
        self.note("unlink")
        os.unlink(self._at(path))

    def sync(self) -> None:
        os.sync()

    def size(self, file: int) -> int:
        return os.fstat(file).st_size

    def free(self) -> int:
        told = os.statvfs(self.root)
        return told.f_bavail * told.f_frsize


class Watch:
    """The receiver of a load's progress and of the ends of its rounds."""

    def advance(self, share: float) -> None:
        """So much of the run, of 1, is done besides."""

    def round(self) -> None:
        """A round has ended, and all of it is on the device."""


class Rounds(Watch):
    """Counters of a block device at the end of each round, from /sys/dev/block/MAJOR:MINOR/stat."""

    def __init__(self, stat: str | None) -> None:
        self.stat = stat
        self.kept: list[list[int]] = []
        self.round(first=True)

    def round(self, first: bool = False) -> None:
        if self.stat is not None:
            with open(self.stat) as file:
                self.kept.append([int(word) for word in file.read().split()])
