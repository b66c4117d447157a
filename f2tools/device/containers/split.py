"""A disk image in pieces, `image.001`, `image.002` and so on: one after the other they are the disk.  Read-only."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.containers.beside import beside
from f2tools.device.media.image import ImageFile, open_image
from f2tools.errors import DeviceError
from f2tools.text import pasted

if TYPE_CHECKING:
    from pathlib import Path

_FIRST = re.compile(r"(.*\.)(0*[01])", re.DOTALL)


def pieces_of(path: str | Path) -> list[str]:
    """All pieces of a split image whose first is `path`, or what that links to; none where it isn't one.

    DeviceError where one is missing.
    """
    name = os.fspath(path)
    found = _pieces_named(name)
    return found or (_pieces_named(os.path.realpath(name)) if os.path.islink(name) else [])


def _pieces_named(first: str) -> list[str]:
    match = _FIRST.fullmatch(first)
    if match is None or len(match[2]) < 3:
        return []
    stem, width, number = match[1], len(match[2]), int(match[2])
    directory = os.path.dirname(stem) or "."
    others = re.compile(re.escape(os.path.basename(stem)) + rf"(\d{{{width}}})")
    found = sorted(int(m[1]) for name in os.listdir(directory) if (m := others.fullmatch(name)))
    found = [other for other in found if other >= number]
    if len(found) < 2 or (number == 1 and os.path.exists(f"{stem}{0:0{width}}")):
        return []
    while found[-1] >= 10**width - 1 and os.path.exists(f"{stem}{found[-1] + 1}"):  # .1000 is behind .999
        found.append(found[-1] + 1)
    for expected, other in enumerate(found, number):
        if other != expected:
            raise DeviceError(f"{stem}{expected:0{width}}: this piece of the image is missing")
    return [first, *(beside(first, os.path.basename(f"{stem}{other:0{width}}")) for other in found[1:])]


def joined_by(pieces: Sequence[str]) -> str:
    """A command that makes one file, COPY, of the pieces."""
    match = _FIRST.fullmatch(pieces[0])
    assert match is not None
    stem, width = match[1], len(match[2])
    longest = len(os.path.basename(pieces[-1])) - len(os.path.basename(stem))
    globs = (f"{pasted(stem)}{'[0-9]' * digits}" for digits in range(width, longest + 1))
    return f"cat {' '.join(globs)} > COPY"


def _must_fit(pieces: Sequence[Device]) -> None:
    """DeviceError unless all pieces are of one size and only the last one is smaller: else what follows one moves."""
    sizes = Counter(piece.size_bytes for piece in pieces[:-1])
    usual = max(sizes, key=lambda size: (sizes[size], size))
    odd = next((piece for piece in pieces[:-1] if piece.size_bytes != usual), None)
    if odd is None and pieces[-1].size_bytes > usual:
        odd = pieces[-1]
    if odd is None:
        return
    how = "shorter" if odd.size_bytes < usual else "longer"
    raise DeviceError(
        f"{odd.name}: this piece of the image has {odd.size_bytes} bytes, and is {how} than the others, which have"
        f" {usual}: what is behind it would be in the wrong place; get a whole copy of it, or, if the pieces are meant"
        f" to differ, join them: `{joined_by([piece.name for piece in pieces])}`"
    )


class SplitImage(Device):
    """The pieces as one device; DeviceError where one is shorter or longer than the others."""

    def __init__(self, pieces: Sequence[Device]) -> None:
        _must_fit(pieces)
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
