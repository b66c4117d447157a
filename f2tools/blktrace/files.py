"""The bytes of one file of a trace: a part of it, from a URL or standard input, decompressed where it is compressed."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from typing import Any, cast

from f2tools.blktrace.ranges import FileParts, FileRange
from f2tools.device.media.remote import DeviceFile, is_url, open_remote
from f2tools.errors import DeviceError, Unsupported


class _Prefixed(io.RawIOBase):
    """A stream whose beginning has been read already; it ends where it can't be decompressed further."""

    def __init__(self, head: bytes, rest: Any, *below: Any) -> None:
        self._head = memoryview(head)
        self._rest = rest
        self._below = below  # what `rest` reads and does not close
        self.error: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer)
        if self._head:
            count = min(len(view), len(self._head))
            view[:count] = self._head[:count]
            self._head = self._head[count:]
            return count
        if self.error is not None:
            return 0
        try:
            if not isinstance(self._rest, gzip.GzipFile):
                return self._rest.readinto(view) or 0
            data = self._rest.read1(len(view))  # `readinto` loses what comes ahead of an error
            view[: len(data)] = data
            return len(data)
        except _decompression_errors() as error:
            self.error = error
            return 0

    def close(self) -> None:
        for one in (self._rest, *self._below):
            one.close()
        super().close()


class _Parts(io.RawIOBase):
    """Some of the bytes of a file, one part after another."""

    def __init__(self, path: FileRange | FileParts) -> None:
        self._file: Any = DeviceFile(open_remote(path)) if is_url(path) else open(path, "rb", buffering=0)  # noqa: SIM115 (closed in close)
        self._parts = iter([(path.start, path.end)] if isinstance(path, FileRange) else path.parts)
        self._left = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._left:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._file.seek(part[0])
            self._left = part[1] - part[0]
        view = memoryview(buffer)[: self._left]
        count = self._file.readinto(view) or 0
        self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def open_stream(path: str) -> tuple[_Prefixed, bytes]:
    """A file decompressed, and its first bytes."""
    try:
        opened: object
        if isinstance(path, (FileRange, FileParts)):
            opened = _Parts(path)
        elif is_url(path):
            opened = DeviceFile(open_remote(path))
        else:
            opened = sys.stdin.buffer.raw if path == "-" else open(path, "rb", buffering=0)  # type: ignore[attr-defined]  # noqa: SIM115
    except OSError as error:
        raise DeviceError(f"{path}: {error.strerror}") from error
    raw = cast(Any, opened)
    head: bytes = raw.read(4) or b""
    source: Any = _Prefixed(head, raw)
    if head[:2] == b"\x1f\x8b":
        source = gzip.GzipFile(fileobj=io.BufferedReader(source, 1 << 16))
    elif head == b"\x28\xb5\x2f\xfd":
        import zstandard

        source = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(source, read_across_frames=True)
    start = bytearray()
    try:
        while len(start) < 4096 and (data := _some(source, 4096 - len(start))):
            start += data
    except _decompression_errors() as error:
        if not start:
            raise Unsupported(f"{path}: can't be decompressed: {error}") from error
    return _Prefixed(bytes(start), source, raw), bytes(start)


def _some(source: Any, count: int) -> bytes:
    return source.read1(count) if isinstance(source, gzip.GzipFile) else source.read(count)


def _decompression_errors() -> tuple[type[Exception], ...]:
    found: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, zlib.error)
    if "zstandard" in sys.modules:
        import zstandard

        found = (*found, zstandard.ZstdError)
    return found
