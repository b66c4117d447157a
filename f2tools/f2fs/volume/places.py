"""Where a volume says in which state it is: its checkpoint, and what was fsync'ed after that; for undo logs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from f2tools.device import Device
from f2tools.f2fs.layout.constants import CURSEG_WARM_NODE
from f2tools.f2fs.layout.footers import footers_of
from f2tools.f2fs.volume.behind import version_of_chain
from f2tools.f2fs.volume.checkpoint import choose_pack, read_packs
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.super import choose_superblock, read_superblocks


def places(device: Device) -> Iterator[list[tuple[int, int]]]:
    """(offset, length) in groups: head and tail of the newest checkpoint pack, and the first block of the chain of
    nodes that were written after it, if there is one.  NotF2fs where there is no volume that can be read."""
    sb = choose_superblock(read_superblocks(device), device).sb
    assert sb is not None
    geo = Geometry.of(sb)
    pack = choose_pack(read_packs(device, geo), name=device.name)
    size = geo.block_size
    tail = pack.blkaddr + pack.cp.cp_pack_total_block_count - 1
    yield [(pack.blkaddr * size, size), (tail * size, size)]
    segno, blkoff, _ = pack.curseg(CURSEG_WARM_NODE)
    first = geo.start_block(segno) + blkoff
    if not geo.in_main(first) or (first + 1) * size > device.size_bytes:
        return
    footer = footers_of(np.frombuffer(device.pread(first * size, size), np.uint8).reshape(1, size))[0]
    version, mask = version_of_chain(pack.cp, pack.crc)
    if int(footer["cp_ver"]) & mask == version:
        yield [(first * size, size)]
