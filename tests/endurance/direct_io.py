"""Random reads and writes with O_DIRECT, held against a copy in memory; run with DIRECTORY SEED RUNS OPERATIONS FILES.

A run is so many operations on one of the files.  Between those with O_DIRECT, some of them at odd borders, as FUSE
takes them, come buffered ones, truncations and fsyncs, so that the page cache and what goes by it meet.
"""

from __future__ import annotations

import mmap
import os
import random
import sys

BLOCK = 4096
# the longest file and the most bytes of one operation: small ones are cheap, and meet more borders
SMALL = (6_000, 2_000), (20_000, 3_000), (1 << 16, 1 << 13), (1 << 18, 1 << 13)
LARGE = (1 << 18, 1 << 16), (1 << 20, 1 << 16)
SIZES = *SMALL * 3, *LARGE
KINDS = ("write", "read", "buffered write", "buffered read", "truncate", "fsync")
OFTEN = (30, 60, 70, 80, 84, 85)  # each with those before it
POOL = 1 << 20  # random bytes, of which what is written is a part


def main(directory: str, seed: int, runs: int, operations: int, files: int) -> None:
    """Exit code 0: every byte was what was written."""
    chance = random.Random(seed)
    pool = chance.randbytes(POOL)
    for number in range(runs):
        longest, most = chance.choice(SIZES)
        run(f"{directory}/file{number % files}", chance, pool, operations, longest, most)


def run(path: str, chance: random.Random, pool: bytes, operations: int, longest: int, most: int) -> None:
    """So many operations on one file, which is emptied before."""
    buffered = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    direct = os.open(path, os.O_RDWR | os.O_DIRECT)
    room = mmap.mmap(-1, most + BLOCK)  # aligned, as O_DIRECT wants it elsewhere
    whole = memoryview(room)
    model = bytearray()
    kinds = chance.choices(KINDS, cum_weights=OFTEN, k=operations)
    for number, kind in enumerate(kinds):
        at = chance.randrange(longest)
        length = 1 + chance.randrange(min(most, longest - at))
        if kind in ("write", "read") and chance.random() < 0.7:
            at -= at % BLOCK
            length = -(-length // BLOCK) * BLOCK
        source = chance.randrange(POOL - most - BLOCK)
        if kind == "write":
            data = pool[source : source + length]
            whole[:length] = data
            assert os.pwritev(direct, [whole[:length]], at) == length
            put(model, at, data)
        elif kind == "read":
            got = os.preadv(direct, [whole[:length]], at)
            expect(path, number, kind, at, model[at : at + length], room[:got])
        elif kind == "buffered write":
            data = pool[source : source + length]
            assert os.pwrite(buffered, data, at) == length
            put(model, at, data)
        elif kind == "buffered read":
            expect(path, number, kind, at, model[at : at + length], os.pread(buffered, length, at))
        elif kind == "truncate":
            os.ftruncate(buffered, at)
            model[at:] = bytes(max(0, at - len(model)))
        else:
            os.fsync(buffered)
        size = os.fstat(direct).st_size
        assert size == len(model), f"{path}: operation {number}: {kind} at {at}: size {size}, not {len(model)}"
    expect(path, operations, "end", 0, model, os.pread(buffered, longest + most + BLOCK, 0))
    os.close(direct)
    os.close(buffered)


def put(model: bytearray, offset: int, data: bytes) -> None:
    """Write to the model, with zeros where it ended before."""
    if len(model) < offset:
        model.extend(bytes(offset - len(model)))
    model[offset : offset + len(data)] = data


def expect(path: str, number: int, kind: str, offset: int, wanted: bytearray, found: bytes) -> None:
    """The bytes must be those of the model."""
    if wanted != found:
        length = min(len(wanted), len(found))
        first = next((n for n in range(length) if wanted[n] != found[n]), length)
        sys.exit(
            f"{path}: operation {number}: {kind} at {offset}: byte {offset + first} of {len(wanted)}, {len(found)} read"
        )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
