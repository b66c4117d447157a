"""A disk image in pieces, `image.001`, `image.002` and so on: one after the other they are the disk.  Read-only."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.containers.beside import beside
from f2tools.device.media.image import ImageFile, open_image
from f2tools.errors import DeviceError
from f2tools.text import command_line

if TYPE_CHECKING:
    from pathlib import Path

_FIRST = re.compile(r"(.*\.)(0*[01])", re.DOTALL)


def pieces_of(path: str | Path) -> list[str]:
    """All pieces of a split image whose first is `path`; none where it isn't one.  DeviceError where one is missing."""
    match = _FIRST.fullmatch(os.fspath(path))
    if match is None or len(match[2]) < 3:
        return []
    stem, width, number = match[1], len(match[2]), int(match[2])
    directory = os.path.dirname(stem) or "."
    others = re.compile(re.escape(os.path.basename(stem)) + rf"(\d{{{width}}})")
    found = sorted(int(m[1]) for name in os.listdir(directory) if (m := others.fullmatch(name)))
    found = [other for other in found if other >= number]
    if len(found) < 2 or (number == 1 and os.path.exists(f"{stem}{0:0{width}}")):
        return []
    for expected, other in enumerate(found, number):
        if other != expected:
            raise DeviceError(f"{stem}{expected:0{width}}: this piece of the image is missing")
    first = f"{stem}{number:0{width}}"
    return [first, *(beside(first, os.path.basename(f"{stem}{other:0{width}}")) for other in found[1:])]


def joined_by(pieces: Sequence[str]) -> str:
    """A command that makes one file, COPY, of the pieces."""
    match = _FIRST.fullmatch(pieces[0])
    assert match is not None
    width = len(match[2])
    return f"{command_line('cat', pieces[0][:-width])}{'[0-9]' * width} > COPY"


class SplitImage(Device):
    """The pieces as one device."""

    def __init__(self, pieces: Sequence[Device]) -> None:
        self._pieces = list(pieces)
        self._starts = [0]
        for piece in self._pieces:
            self._starts.append(self._starts[-1] + piece.size_bytes)
        self.name = self._pieces[0].name
        self.size_bytes = self._starts.pop()
        self.read_only = True

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        done = 0
        for piece, at, length in self._parts(offset, len(view)):
            piece.pread_into(at, view[done : done + length])
            done += length

    def files(self) -> list[str]:
        return [piece.name for piece in self._pieces]

    def pwrite(self, offset: int, data: Data) -> None:
        self.check_writable()

    def flush(self) -> None:
        return None

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        for piece, at, part in self._parts(offset, min(length, self.size_bytes - offset)):
            for start, size in piece.data_ranges(at, part):
                yield offset + start - at, size
            offset += part

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        parts = list(self._parts(offset, length))
        return parts[0][0].extent_source(*parts[0][1:]) if len(parts) == 1 else None

    def close(self) -> None:
        for piece in self._pieces:
            piece.close()

    def _parts(self, offset: int, length: int) -> Iterator[tuple[Device, int, int]]:
        """(piece, offset in it, length) of a range, in order."""
        index = bisect_right(self._starts, offset) - 1
        while length > 0:
            piece, at = self._pieces[index], offset - self._starts[index]
            part = min(length, piece.size_bytes - at)
            if part > 0:
                yield piece, at, part
            offset, length, index = offset + part, length - part, index + 1


def open_split(pieces: Sequence[str]) -> SplitImage:
    """The image in these pieces."""
    opened: list[ImageFile] = []
    try:
        opened += (open_image(piece) for piece in pieces)
        return SplitImage(opened)
    except BaseException:
        for piece in opened:
            piece.close()
        raise
