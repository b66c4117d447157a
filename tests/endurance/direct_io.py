"""Random reads and writes of one file with O_DIRECT, held against a copy in memory; run with PATH SEED OPERATIONS.

Between them come buffered ones, truncations and fsyncs, so that the page cache and what goes by it meet.
"""

from __future__ import annotations

import mmap
import os
import random
import sys

BLOCK = 4096
LONGEST = 256 * BLOCK  # of the file
MOST = 16 * BLOCK  # of one operation


def main(path: str, seed: int, operations: int) -> None:
    """Exit code 0: every byte was what was written."""
    chance = random.Random(seed)
    buffered = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    direct = os.open(path, os.O_RDWR | os.O_DIRECT)
    room = mmap.mmap(-1, MOST)  # aligned, as O_DIRECT wants it
    model = bytearray()
    for number in range(operations):
        kind = chance.choices(("write", "read", "buffered write", "buffered read", "truncate", "fsync"),
                              (30, 30, 10, 10, 4, 1))[0]  # fmt: skip
        offset = chance.randrange(LONGEST // BLOCK) * BLOCK
        length = min(chance.randint(1, MOST // BLOCK) * BLOCK, LONGEST - offset)
        at = chance.randrange(LONGEST - MOST)
        few = chance.randint(1, MOST)
        if kind == "write":
            room[:length] = chance.randbytes(length)
            assert os.pwritev(direct, [memoryview(room)[:length]], offset) == length
            put(model, offset, room[:length])
        elif kind == "read":
            got = os.preadv(direct, [memoryview(room)[:length]], offset)
            expect(number, kind, offset, model[offset : offset + length], room[:got])
        elif kind == "buffered write":
            data = chance.randbytes(few)
            assert os.pwrite(buffered, data, at) == few
            put(model, at, data)
        elif kind == "buffered read":
            expect(number, kind, at, model[at : at + few], os.pread(buffered, few, at))
        elif kind == "truncate":
            os.ftruncate(buffered, at)
            model[at:] = bytes(max(0, at - len(model)))
        else:
            os.fsync(buffered)
        assert os.fstat(direct).st_size == len(model), f"operation {number}: {kind} at {offset}: size"
    expect(operations, "end", 0, model, os.pread(buffered, LONGEST + 1, 0))
    os.close(direct)
    os.close(buffered)


def put(model: bytearray, offset: int, data: bytes) -> None:
    """Write to the model, with zeros where it ended before."""
    if len(model) < offset:
        model.extend(bytes(offset - len(model)))
    model[offset : offset + len(data)] = data


def expect(number: int, kind: str, offset: int, wanted: bytes | bytearray, found: bytes) -> None:
    """The bytes must be those of the model."""
    if bytes(wanted) != found:
        length = min(len(wanted), len(found))
        first = next((n for n in range(length) if wanted[n] != found[n]), length)
        sys.exit(f"operation {number}: {kind} at {offset}: byte {offset + first} of {len(wanted)}, {len(found)} read")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
