"""The bytes of an archive: of a plain file in place; of a stream, compressed or not, from a temporary file.

And the contents of files that refer to bytes in either of them.
"""

from __future__ import annotations

import io
import os
import re
import stat
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import IO, Any, NoReturn, Protocol

from f2tools.copyin.source import SourceError, shown

PIECE = 1 << 20
XZ_MEMORY = 512 << 20
MAGIC_SIZE = 6


class Archive(Protocol):
    """The bytes of an archive from front to end, and those that were kept again by their place."""

    name: str

    def read(self, count: int) -> bytes:
        """The next bytes; fewer only where the archive ends."""
        ...

    def push_back(self, data: bytes) -> None:
        """Let these bytes, the last ones read, be read again."""
        ...

    def keep(self, count: int) -> int:
        """Pass over bytes that `read_kept` will be asked for; returns their place."""
        ...

    def skip(self, count: int) -> None: ...

    def read_kept(self, at: int, buffer: memoryview, path: bytes) -> None: ...

    def finish(self) -> None:
        """The archive was read to its end mark."""
        ...

    def verify(self) -> None: ...

    def close(self) -> None: ...


def _read_kept(fd: int, at: int, buffer: memoryview, name: str, path: bytes) -> None:
    while len(buffer):
        try:
            count = os.preadv(fd, [buffer], at)
        except OSError as error:
            raise SourceError(f"{name}: {shown(path)}: {error.strerror}") from None
        if not count:
            raise SourceError(f"{name}: {shown(path)}: the archive became shorter while it was read")
        buffer = buffer[count:]
        at += count


class _PlainFile:
    """An archive that is a file and not compressed."""

    def __init__(self, name: str, fd: int, start: int) -> None:
        self.name = name
        self._fd = fd
        self._status = os.fstat(fd)
        self._end = self._status.st_size
        self._at = start
        self._window = b""
        self._window_at = start

    def read(self, count: int) -> bytes:
        inside = self._at - self._window_at
        if not 0 <= inside <= inside + count <= len(self._window):
            self._window_at, inside = self._at, 0
            try:
                self._window = os.pread(self._fd, max(count, 1 << 18), self._at)
            except OSError as error:
                raise SourceError(f"{self.name}: {error.strerror}") from None
        data = self._window[inside : inside + count]
        self._at += len(data)
        return data

    def push_back(self, data: bytes) -> None:
        self._at -= len(data)

    def keep(self, count: int) -> int:
        at = self._at
        self.skip(count)
        return at

    def skip(self, count: int) -> None:
        if self._at + count > self._end:
            raise SourceError(f"{self.name}: the archive ends in the middle of a file")
        self._at += count

    def read_kept(self, at: int, buffer: memoryview, path: bytes) -> None:
        _read_kept(self._fd, at, buffer, self.name, path)

    def finish(self) -> None:
        return None

    def verify(self) -> None:
        now = os.fstat(self._fd)
        if (now.st_size, now.st_mtime_ns) != (self._status.st_size, self._status.st_mtime_ns):
            raise SourceError(f"{self.name}: it changed while it was read")

    def close(self) -> None:
        if self._fd > 2:
            os.close(self._fd)


class _Stream:
    """An archive that can be read once: what is kept goes to a temporary file."""

    def __init__(self, name: str, source: Any, directory: str | None) -> None:
        self.name = name
        self._source = source
        self._pushed = b""
        try:
            self._spool: IO[bytes] = tempfile.TemporaryFile(dir=directory, buffering=PIECE)  # noqa: SIM115
        except OSError as error:
            raise SourceError(f"{directory or tempfile.gettempdir()}: {error.strerror}") from None
        self._kept = 0
        self._flushed = False

    def read(self, count: int) -> bytes:
        if self._pushed:
            data, self._pushed = self._pushed[:count], self._pushed[count:]
            return data + self.read(count - len(data)) if len(data) < count else data
        try:
            data = self._source.read(count)
            while data and len(data) < count:
                more = self._source.read(count - len(data))
                if not more:
                    break
                data += more
        except (OSError, EOFError, ValueError, RuntimeError, MemoryError) as error:
            self._damaged(error)
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("zlib", "lzma", "_lzma", "zstandard", "zstd"):
                raise
            self._damaged(error)
        return data

    def _damaged(self, error: Exception) -> NoReturn:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise SourceError(f"{self.name}: {said}") from None

    def push_back(self, data: bytes) -> None:
        self._pushed = data + self._pushed

    def keep(self, count: int) -> int:
        at = self._kept
        self._pass(count, self._store)
        self._kept += count
        return at

    def _store(self, data: bytes) -> None:
        try:
            self._spool.write(data)
        except OSError as error:
            raise SourceError(f"{self.name}: a temporary file for its contents: {error.strerror}") from None

    def skip(self, count: int) -> None:
        self._pass(count, lambda data: None)

    def _pass(self, count: int, take: Callable[[bytes], None]) -> None:
        while count:
            data = self.read(min(count, PIECE))
            if not data:
                raise SourceError(f"{self.name}: the archive ends in the middle of a file")
            take(data)
            count -= len(data)

    def read_kept(self, at: int, buffer: memoryview, path: bytes) -> None:
        if not self._flushed:
            self._store(b"")
            self._spool.flush()
            self._flushed = True
        _read_kept(self._spool.fileno(), at, buffer, self.name, path)

    def finish(self) -> None:
        """Read what follows, so that a writer into a pipe can end, and checksums at the end are checked."""
        while self.read(PIECE):
            pass
        try:
            self._spool.flush()
        except OSError as error:
            raise SourceError(f"{self.name}: a temporary file for its contents: {error.strerror}") from None

    def verify(self) -> None:
        return None

    def close(self) -> None:
        self._spool.close()


class _Xz:
    """One xz stream after the other, with a bound on memory, which LZMAFile lacks."""

    def __init__(self, source: Any) -> None:
        import lzma

        self._lzma = lzma
        self._source = source
        self._decoder: Any = None
        self._input = b""

    def read(self, count: int) -> bytes:
        while True:
            if self._decoder is None or self._decoder.eof:
                if self._decoder is not None:
                    self._input = self._decoder.unused_data.lstrip(b"\0")  # padding between streams
                self._input = self._input or self._source.read(PIECE)
                if not self._input:
                    return b""
                self._decoder = self._lzma.LZMADecompressor(self._lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
            if self._decoder.needs_input and not self._input:
                self._input = self._source.read(PIECE)
                if not self._input:
                    raise EOFError("it ends before the end of the compressed data")
            data = self._decoder.decompress(self._input, count)
            self._input = b""
            if data:
                return data


def open_archive(path: str, directory: str | None) -> Archive:
    """Any archive, decompressed by what its first bytes say."""
    name = "standard input" if path == "-" else path
    try:
        fd = 0 if path == "-" else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(fd)
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror}") from None
    if path == "-" and os.isatty(fd):
        raise SourceError("an archive is expected on standard input, which is a terminal")
    if stat.S_ISREG(status.st_mode):
        start = os.lseek(fd, 0, os.SEEK_CUR)
        if _compression(os.pread(fd, MAGIC_SIZE, start)) is None:
            return _PlainFile(name, fd, start)
    raw: Any = io.FileIO(fd, closefd=fd > 2)
    magic = b""
    try:
        while len(magic) < MAGIC_SIZE and (more := raw.read(MAGIC_SIZE - len(magic))):  # a pipe may give it bit by bit
            magic += more
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror}") from None
    return _Stream(name, _decompressed(_compression(magic), io.BufferedReader(_Again(magic, raw), PIECE)), directory)


class _Again(io.RawIOBase):
    """A stream whose first bytes were read already."""

    def __init__(self, first: bytes, rest: io.FileIO) -> None:
        self._first = first
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if not self._first:
            return self._rest.readinto(buffer)
        count = min(len(buffer), len(self._first))
        buffer[:count], self._first = self._first[:count], self._first[count:]
        return count

    def close(self) -> None:
        self._rest.close()
        super().close()


def _compression(magic: bytes) -> str | None:
    if magic.startswith(b"\x1f\x8b"):
        return "gzip"
    if magic.startswith(b"\x28\xb5\x2f\xfd") or re.match(rb"[\x50-\x5f]\x2a\x4d\x18", magic):
        return "zstd"  # the second one begins a frame to be skipped, as pzstd writes it
    if magic.startswith(b"\xfd7zXZ\0"):
        return "xz"
    if re.match(rb"BZh[1-9]", magic):
        return "bzip2"
    return "lz4" if magic.startswith(b"\x04\x22\x4d\x18") else None


def _decompressed(kind: str | None, raw: Any) -> Any:
    if kind == "gzip":
        import gzip

        return io.BufferedReader(gzip.GzipFile(fileobj=raw), PIECE)  # type: ignore[arg-type]
    if kind == "zstd":
        import zstandard

        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True), PIECE)  # type: ignore[arg-type]
    if kind == "bzip2":
        import bz2

        return bz2.BZ2File(raw)
    if kind == "lz4":
        import lz4.frame

        return lz4.frame.LZ4FrameFile(raw)
    return _Xz(raw) if kind == "xz" else raw


# -- contents -------------------------------------------------------------------------------------------------------


class StoredContent:
    """The content of a file, in one piece."""

    __slots__ = ("_archive", "_at", "_path", "_size")

    def __init__(self, archive: Archive, path: bytes, at: int, size: int) -> None:
        self._archive, self._path, self._at, self._size = archive, path, at, size

    def extents(self) -> Iterator[tuple[int, int]]:
        """(offset, length): all of it."""
        yield 0, self._size

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """The bytes from an offset on."""
        self._archive.read_kept(self._at + offset, buffer, self._path)

    def source(self) -> None:
        """What an archive keeps has other offsets, and may be packed."""

    def together(self) -> None:
        """What an archive keeps is no file."""

    def close(self) -> None:
        """An archive that changed is found when all of it was read."""


class SparseContent:
    """The content of a file with holes: runs of data that follow each other in the archive."""

    __slots__ = ("_archive", "_at", "_lengths", "_offsets", "_path")

    def __init__(self, archive: Archive, path: bytes, at: int, runs: list[tuple[int, int]]) -> None:
        self._archive, self._path = archive, path
        self._offsets = array("Q", [offset for offset, _ in runs])
        self._lengths = array("Q", [length for _, length in runs])
        self._at = array("Q")
        for length in self._lengths:
            self._at.append(at)
            at += length

    def extents(self) -> Iterator[tuple[int, int]]:
        """(offset, length) of what is not a hole, those joined that touch."""
        start = end = 0
        for offset, length in zip(self._offsets, self._lengths, strict=True):
            if offset != end or start == end:
                if start < end:
                    yield start, end - start
                start = offset
            end = offset + length
        if start < end:
            yield start, end - start

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """The bytes from an offset on, zeros in holes."""
        buffer[:] = bytes(len(buffer))
        end = offset + len(buffer)
        index = max(0, bisect_right(self._offsets, offset) - 1)
        while index < len(self._offsets) and self._offsets[index] < end:
            first = max(offset, self._offsets[index])
            last = min(end, self._offsets[index] + self._lengths[index])
            if first < last:
                place = self._at[index] + first - self._offsets[index]
                self._archive.read_kept(place, buffer[first - offset : last - offset], self._path)
            index += 1

    def source(self) -> None:
        """What an archive keeps has other offsets, and may be packed."""

    def together(self) -> None:
        """What an archive keeps is no file."""

    def close(self) -> None:
        """An archive that changed is found when all of it was read."""
