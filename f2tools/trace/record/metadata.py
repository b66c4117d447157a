"""A copy of what attribution needs of a volume: the metadata areas, and the nodes and directories that name its files.

The copy is a sparse image with every block in its own place; file contents are holes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from f2tools import newfile
from f2tools.device import Device, open_device
from f2tools.device.base import Wrapper
from f2tools.errors import F2fsError, NotF2fs
from f2tools.f2fs.volume.volume import Volume

CHUNK = 4 << 20


class _Tee(Wrapper):
    """A device that keeps what is read from it in a file, in its place."""

    def __init__(self, base: Device, fd: int) -> None:
        super().__init__(base)
        self._fd = fd

    def pread_into(self, offset: int, buffer: Any) -> None:
        super().pread_into(offset, buffer)
        data = memoryview(buffer).cast("B")
        if (data.nbytes and any(data[:4096])) or data.nbytes > 4096:
            os.pwrite(self._fd, data, offset)


def copy_metadata(device: str, target: Path) -> bool:
    """Copy a volume's metadata into a sparse image; False where there is no F2FS volume."""
    base = open_device(device)
    fd = newfile.create(str(target))
    try:
        os.ftruncate(fd, base.size_bytes)
        tee = _Tee(base, fd)
        try:
            volume = Volume(tee)
        except NotF2fs:
            return False
        geo = volume.geo
        for offset, length in base.data_ranges(0, geo.main_blkaddr * geo.block_size):
            for at in range(offset, offset + length, CHUNK):
                tee.pread(at, min(CHUNK, offset + length - at))
        volume.nat.load()
        _ = volume.sit.vblocks, volume.summaries.cursegs
        try:
            for _ in volume.walk(problems=[]):
                pass  # reading is keeping
        except (F2fsError, OSError):
            pass  # a volume in use can change below; what was read is what there is
        os.fsync(fd)
        return True
    finally:
        os.close(fd)
        base.close()
