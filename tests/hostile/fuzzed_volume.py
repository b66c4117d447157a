"""A volume that a fuzzer damages: patches to a small reference image in memory, then every read.

The input is a list of patches, so that the fuzzer spends its time beyond the checksums: those of superblock and
checkpoint are made right again.  What the engine may raise is `F2fsError` and `OSError`; anything else is a finding.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import f2tools
from f2tools.device.base import Data, Device
from f2tools.errors import DeviceError, F2fsError
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.hashes import f2fs_crc32
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.checkpoint import checkpoint_crc
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File, Volume
from tests.hostile.patches import patches_of
from tests.hostile.targets import Place, structures
from tests.images import reference

IMAGE = "compress-lzo-rle"
READ_AT_MOST = 1 << 20  # bytes of one file


class Patched(Device):
    """An image in memory, only the blocks with data, with patches laid over it."""

    def __init__(self, blocks: dict[int, bytes], size_bytes: int) -> None:
        self.name = "patched"
        self.size_bytes = size_bytes
        self.read_only = True
        self._blocks = dict(blocks)

    def patch(self, offset: int, data: bytes) -> None:
        number, at = divmod(offset, 4096)
        block = bytearray(self._blocks.get(number, bytes(4096)))
        block[at : at + len(data)] = data[: 4096 - at]
        self._blocks[number] = bytes(block)

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = memoryview(buffer).cast("B")
        self.check_range(offset, len(view))
        done = 0
        while done < len(view):
            number, at = divmod(offset + done, 4096)
            count = min(4096 - at, len(view) - done)
            block = self._blocks.get(number)
            view[done : done + count] = block[at : at + count] if block else bytes(count)
            done += count

    def pwrite(self, offset: int, data: Data) -> None:
        raise DeviceError("reading never writes")

    def flush(self) -> None:
        return

    def close(self) -> None:
        return


@cache
def _loaded() -> tuple[dict[int, bytes], int, list[Place]]:
    path = reference(IMAGE).path
    with f2tools.open(path) as vol:
        kinds = structures(vol)
    raw = np.fromfile(path, np.uint8).reshape(-1, 4096)
    blocks = {int(i): raw[i].tobytes() for i in np.flatnonzero(raw.any(axis=1))}
    places = [place for kind in sorted(kinds) for place in kinds[kind][:4]]
    return blocks, raw.size, places


def _seal(device: Patched) -> None:
    for offset in (1024, 4096 + 1024):
        raw = device.pread(offset, SuperBlock.size)
        device.patch(offset + SuperBlock.size - 4, f2fs_crc32(raw[:-4]).to_bytes(4, "little"))
    for number in (512, 1024):
        head = device.pread(number * 4096, 4096)
        cp = Checkpoint.parse(head)
        if not 192 <= cp.checksum_offset <= 4092:
            continue
        crc = checkpoint_crc(head, cp.checksum_offset).to_bytes(4, "little")
        device.patch(number * 4096 + cp.checksum_offset, crc)
        device.patch(
            (number + max(1, min(cp.cp_pack_total_block_count, 512)) - 1) * 4096, device.pread(number * 4096, 4096)
        )


def look_at_everything(vol: Volume) -> None:
    """Read whatever a reader can ask for."""
    vol.statfs()
    vol.orphans()
    vol.summaries.ssa(np.arange(min(4, vol.geo.segment_count_main)))
    for path, inode, entries in vol.walk():
        for entry in entries:
            if not isinstance(entry.inode, Inode):
                continue
            try:
                _look_at_file(File(vol, entry.inode, path))
                vol.dirs.lookup(inode, entry.dentry.name)
            except (F2fsError, OSError):
                continue


def _look_at_file(file: File) -> None:
    file.stat()
    file.xattrs()
    if file.inode.kind == "symlink":
        file.readlink()
    elif file.inode.is_file:
        total = 0
        for _, data in file.chunks():
            total += len(data)
            if total > READ_AT_MOST:
                break


def one_input(data: bytes) -> None:
    """One run: patches from the input, then every read."""
    blocks, size, places = _loaded()
    device = Patched(blocks, size)
    for offset, new in patches_of(data, places):
        device.patch(offset, new)
    _seal(device)
    try:
        look_at_everything(Volume(device))
    except (F2fsError, OSError):
        return
