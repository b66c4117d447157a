"""Where an archive goes that a command writes: standard output, or a new file, compressed as its name says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from f2tools import newfile
from f2tools.errors import Usage


@contextmanager
def open_archive(path: str | None) -> Iterator[IO[bytes]]:
    """Where an archive goes: standard output, or a file, compressed if its name ends in .gz or .zst."""
    if path is None or path == "-":
        if sys.stdout.isatty():
            raise Usage("an archive is not for a terminal; give -o FILE or redirect the output")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with newfile.replacing(path) as file:
        if path.endswith((".gz", ".tgz")):
            import gzip

            # no name and no time, so that equal trees give equal archives
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                yield packed  # type: ignore[misc]
        elif path.endswith((".zst", ".tzst")):
            import zstandard

            with zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield file
