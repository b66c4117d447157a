"""Damage to private copies of reference images: flips aimed at structures, checksums put right again, truncation."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.hashes import f2fs_crc32
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.checkpoint import checkpoint_crc
from tests.hostile.targets import Place

LENGTHS = (1, 1, 1, 2, 4, 4, 8, 64)


@contextmanager
def patched(image: Path, patches: list[tuple[int, bytes]]) -> Iterator[None]:
    """The image with some bytes changed; as before afterwards."""
    fd = os.open(image, os.O_RDWR)
    try:
        old = [(offset, os.pread(fd, len(data), offset)) for offset, data in patches]
        for offset, data in patches:
            os.pwrite(fd, data, offset)
        try:
            yield
        finally:
            for offset, data in reversed(old):
                os.pwrite(fd, data, offset)
    finally:
        os.close(fd)


def flips(rng: random.Random, image: Path, places: list[Place], count: int) -> list[tuple[int, bytes]]:
    """`count` changes within these places: bits, extreme values, small numbers, noise."""
    made: list[tuple[int, bytes]] = []
    with image.open("rb") as file:
        for _ in range(count):
            start, length = rng.choice(places)
            size = min(rng.choice(LENGTHS), length)
            offset = start + rng.randrange(length - size + 1) // (size if size <= 8 else 1) * (size if size <= 8 else 1)
            file.seek(offset)
            old = file.read(size)
            kind = rng.randrange(5)
            if kind == 0:
                bit = rng.randrange(8 * size)
                new = (int.from_bytes(old, "little") ^ 1 << bit).to_bytes(size, "little")
            elif kind == 1:
                new = b"\xff" * size
            elif kind == 2:
                new = bytes(size)
            elif kind == 3:
                new = rng.randrange(1 << min(8 * size, 16)).to_bytes(size, "little")
            else:
                new = rng.randbytes(size)
            made.append((offset, new))
    return made


def resealed(image: Path, patches: list[tuple[int, bytes]], places: list[Place], kind: str) -> list[tuple[int, bytes]]:
    """The patches with the checksums of superblock or checkpoint made right, so that the damage gets past them."""
    with image.open("rb") as file:
        sealed = list(patches)
        for start, _ in places:
            file.seek(start)
            raw = bytearray(file.read(4096 if kind.startswith("checkpoint") else SuperBlock.size))
            for offset, data in patches:
                if start <= offset and offset + len(data) <= start + len(raw):
                    raw[offset - start : offset - start + len(data)] = data
            if kind == "superblock":
                sealed.append((start + SuperBlock.size - 4, f2fs_crc32(bytes(raw[:-4])).to_bytes(4, "little")))
                continue
            cp = Checkpoint.parse(bytes(raw))
            if 192 <= cp.checksum_offset <= 4092:
                crc = checkpoint_crc(bytes(raw), cp.checksum_offset).to_bytes(4, "little")
                sealed.append((start + cp.checksum_offset, crc))
                raw[cp.checksum_offset : cp.checksum_offset + 4] = crc
                tail = start + (cp.cp_pack_total_block_count - 1) * 4096
                if 0 < tail < image.stat().st_size - 4096:
                    sealed.append((tail, bytes(raw)))
    return sealed
