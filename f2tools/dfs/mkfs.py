"""A new volume: a layer with all of its space, two superblocks, an idle write-ahead log, the root directory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from zlib import crc32

from f2tools.device.media.new_image import new_image
from f2tools.dfs.dentries import first_block
from f2tools.dfs.inode import Inode
from f2tools.dfs.layout import (
    BLOCK,
    CHUNK_BITS,
    LEAST_CHUNK_BITS,
    LEAST_WAL_BLOCKS,
    MAGIC,
    MOST_CHUNK_BITS,
    MOST_SLOT_BLOCKS,
    MOST_WAL_BLOCKS,
    ROOT_INO,
    SLOT_BLOCKS,
    SUPER_PLACES,
    VERSION,
    VERSION_HASHED,
    WAL_START,
    Geometry,
    Superblock,
)
from f2tools.dfs.wal import idle_head
from f2tools.errors import Usage
from f2tools.flash.vsl import OVERPROVISION, WHOLE_SPACE, Vsl, create_on_device, shape_for

DIR_MODE = 0o040755
LEAST_BLOCKS = 2 * LEAST_WAL_BLOCKS
SHARE_OF_WAL = 64  # of the capacity


def geometry_for(
    capacity_blocks: int, chunk_bytes: int | None = None, slot_bytes: int | None = None, *, hashed: bool = False
) -> Geometry:
    """The geometry of a volume that holds so much, its directories hashed or with a log; Usage where there is none."""
    chunk_blocks, rest = divmod(BLOCK << CHUNK_BITS if chunk_bytes is None else chunk_bytes, BLOCK)
    chunk_bits = chunk_blocks.bit_length() - 1
    if rest or chunk_blocks != 1 << chunk_bits or not LEAST_CHUNK_BITS <= chunk_bits <= MOST_CHUNK_BITS:
        least, most = BLOCK << LEAST_CHUNK_BITS, BLOCK << MOST_CHUNK_BITS
        raise Usage(f"chunks of {chunk_bytes} bytes; it must be a power of two from {least} (64M) to {most}")
    slot_blocks, rest = divmod(SLOT_BLOCKS * BLOCK if slot_bytes is None else slot_bytes, BLOCK)
    if rest or slot_blocks & (slot_blocks - 1) or not 1 <= slot_blocks <= MOST_SLOT_BLOCKS:
        raise Usage(
            f"small files up to {slot_bytes} bytes; it must be a power of two from 512 to {MOST_SLOT_BLOCKS * BLOCK}"
        )
    if capacity_blocks < LEAST_BLOCKS:
        raise Usage(f"{capacity_blocks * BLOCK} bytes are too few for a volume; {LEAST_BLOCKS * BLOCK} are the least")
    wal_blocks = min(max(capacity_blocks // SHARE_OF_WAL, LEAST_WAL_BLOCKS), MOST_WAL_BLOCKS)
    return Geometry(chunk_bits, slot_blocks, 0 if hashed else wal_blocks)


def format_layer(
    layer: Vsl, geo: Geometry, *, uuid: bytes | None = None, now: int | None = None, uid: int = 0, gid: int = 0,
    closed: bool = True,
) -> None:  # fmt: skip
    """Write an empty volume into an empty layer, and make it safe; not `closed` where it is to be filled yet."""
    if layer.space_blocks != WHOLE_SPACE:
        raise Usage(f"{layer.name}: a volume needs all of the layer's 2^64 blocks")
    if layer.mapped_blocks:
        raise Usage(f"{layer.name}: the layer is not empty")
    now = time.time_ns() if now is None else now
    sb = Superblock(
        magic=MAGIC, version=VERSION_HASHED if geo.hashed else VERSION, chunk_bits=geo.chunk_bits,
        slot_blocks=geo.slot_blocks, wal_blocks=geo.wal_blocks, uuid=uuid or os.urandom(16), made=now, seq=1,
        clean=int(closed),
    )  # fmt: skip
    sb.crc = crc32(sb.build()[:-4])
    root = Inode(
        ROOT_INO, geo.own_chunk(ROOT_INO), DIR_MODE, 2, size=BLOCK, uid=uid, gid=gid, atime=now, mtime=now, ctime=now,
        crtime=now,
    )  # fmt: skip
    layer.write_vblocks(root.base, first_block(ROOT_INO, ROOT_INO, DIR_MODE >> 12))
    layer.write_vblocks(geo.inode_block(ROOT_INO), root.build())
    if not geo.hashed:
        # all of the log is mapped from the start, so that there is always room for what goes into it
        layer.write_vblocks(WAL_START + 1, bytes((geo.wal_blocks - 1) * BLOCK))
        layer.write_vblocks(WAL_START, idle_head(0))
    for place in SUPER_PLACES:
        layer.write_vblocks(place, sb.build().ljust(BLOCK, b"\0"))
    layer.flush()


def make_image(
    path: str,
    size_bytes: int,
    *,
    chunk_bytes: int | None = None,
    slot_bytes: int | None = None,
    hashed: bool = False,
    overprovision: float = OVERPROVISION,
    filled: Callable[[Vsl], None] | None = None,
) -> Geometry:
    """Make an image file with an empty volume that holds so much; nothing is left of it where that fails.

    `hashed` makes its directories hashed ones.  `filled` is called with the layer, to put files into the volume, and
    closes it.
    """
    shape = shape_for(size_bytes, overprovision=overprovision)
    geo = geometry_for(size_bytes // BLOCK, chunk_bytes, slot_bytes, hashed=hashed)
    with new_image(path, shape.image_bytes) as image:
        layer = create_on_device(image, size_bytes, shape, space_blocks=WHOLE_SPACE)
        try:
            format_layer(layer, geo, closed=filled is None)
            (filled or Vsl.close)(layer)
        except BaseException:
            layer.abandon()
            raise
    return geo
