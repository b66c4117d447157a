"""An Android sparse image as a raw one, to be changed: it is packed again when that went well."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from f2tools.device import open_device
from f2tools.device.containers.sparse import SparseImage, write_sparse

PIECE = 4 << 20


@contextmanager
def unpacked(path: str, write: bool = True) -> Iterator[str]:
    """The path itself; for a sparse image, that of a raw copy beside it, which is packed in its place at the end."""
    with open_device(path, whole=True) as image:
        block_size = image.block_size if isinstance(image, SparseImage) else 0
    if not block_size:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix=".f2tools-", dir=os.path.dirname(path) or ".") as directory:
        raw = os.path.join(directory, "raw")
        _unpack(path, raw)
        yield raw
        if write:
            with open_device(raw, whole=True) as changed:
                write_sparse(changed, path, block_size)


def _unpack(path: str, raw: str) -> None:
    with open_device(path, whole=True) as image, open_device(raw, create_size=image.size_bytes, whole=True) as copy:
        for offset, length in image.data_ranges(0, image.size_bytes):
            for at in range(offset, offset + length, PIECE):
                copy.pwrite(at, image.pread(at, min(PIECE, offset + length - at)))
