"""Hashed directories: the place of a name in its directory's chunk.

A name's hash leads to a bucket, some neighbouring blocks of the sparse chunk; of these only those are mapped that hold
entries, so a name is found with one read in a directory of any size, and an empty bucket costs nothing.  The hash has
the volume's UUID as its key: without knowing that, nobody can make names that fall into one bucket.
"""

from __future__ import annotations

from hashlib import blake2b

from f2tools.dfs.layout import DOTS, Geometry

BUCKET_BLOCKS = 16


def bucket_of(geo: Geometry, key: bytes, name: bytes) -> int:
    """The first block, counted from the directory's base, of the bucket for a name; `.` and `..` are in the first."""
    if name in DOTS:
        return 0
    number = int.from_bytes(blake2b(name, digest_size=8, key=key).digest(), "little")
    return (1 + number % (geo.chunk_blocks // BUCKET_BLOCKS - 1)) * BUCKET_BLOCKS
