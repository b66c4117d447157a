"""The content of a file as a stream, for the standard output."""

from __future__ import annotations

from typing import IO

from f2tools.f2fs.volume.volume import File

_ZEROS = bytes(1 << 16)


def copy_content(file: File, out: IO[bytes]) -> None:
    """Write the content of a file, holes as zeros; memory is bounded, and clusters that share blocks are."""
    at = 0
    file.volume.data.limit()
    for offset, data in file.chunks():
        _zeros(out, offset - at)
        out.write(data)
        at = offset + len(data)
    _zeros(out, file.inode.i_size - at)


def _zeros(out: IO[bytes], count: int) -> None:
    while count > 0:
        out.write(_ZEROS[: min(count, len(_ZEROS))])
        count -= len(_ZEROS)
