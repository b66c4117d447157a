"""The error correction that Linux computes in software for raw NAND: Hamming's code, 3 bytes for each 256.

It corrects one wrong bit in each 256 bytes and notices two.  Where it lies in the spare area is the kernel's layout
for large pages (nand_ooblayout_lp in drivers/mtd/nand/raw/nand_base.c): at its end, behind the two bytes of the bad
block mark and whatever else there is; the order of the bytes is the kernel's own, not SmartMedia's.
"""

from __future__ import annotations

import numpy as np

STEP = 256
CODE = 3
MARK_BYTES = 2  # of the bad block mark, at the beginning of the spare area


def code_bytes(page_size: int) -> int:
    """How many bytes of the spare area the code of a page takes."""
    return page_size // STEP * CODE


_INDEX = np.arange(STEP)
# by byte: which of the line parities, rp0 to rp15 in the kernel, it counts for; a product of matrices adds them up
_LINES = np.array([(_INDEX >> (line >> 1) & 1) == (line & 1) for line in range(16)], np.float32).T.copy()
_PARITY = np.array([bin(byte).count("1") & 1 for byte in range(256)], np.uint8)
_COLUMNS = (0x55, 0xAA, 0x33, 0xCC, 0x0F, 0xF0)  # the bits of a byte that column parities are over
_THIRD = np.array(
    [~sum(int(_PARITY[byte & mask]) << place for place, mask in enumerate(_COLUMNS, 2)) & 0xFF | 3
     for byte in range(256)], np.uint8,
)  # fmt: skip


def code(data: bytes | memoryview) -> bytes:
    """The code of one or more pages, whole steps of 256 bytes."""
    rows = np.frombuffer(data, np.uint8).reshape(-1, STEP)
    sums = _PARITY[rows].astype(np.float32) @ _LINES
    lines = np.packbits(sums.astype(np.uint8) & 1, axis=1, bitorder="little")
    folded = np.bitwise_xor.reduce(rows.view(np.uint64), axis=1).view(np.uint8).reshape(-1, 8)
    found = np.empty((len(rows), CODE), np.uint8)
    found[:, 0] = ~lines[:, 1]
    found[:, 1] = ~lines[:, 0]
    found[:, 2] = _THIRD[np.bitwise_xor.reduce(folded, axis=1)]
    return found.tobytes()


def mended(data: bytes, stored: bytes) -> bytes | None:
    """A page with the bits corrected that its stored code shows to be wrong; None where there are too many."""
    effects = np.frombuffer(code(data), np.uint8) ^ np.frombuffer(stored, np.uint8)
    if not effects.any():
        return data
    right = bytearray(data)
    for step, (high, low, column) in enumerate(effects.reshape(-1, CODE).tolist()):
        lines = high << 8 | low
        column &= 0xFC
        pairs = [lines >> (2 * k) & 3 for k in range(8)] + [column >> (2 * k) & 3 for k in range(1, 4)]
        if not any(pairs):
            continue
        if all(pair in (1, 2) for pair in pairs):
            byte = sum((pairs[k] >> 1) << k for k in range(8))
            bit = sum((pairs[8 + k] >> 1) << k for k in range(3))
            right[step * STEP + byte] ^= 1 << bit
        elif bin(lines | column << 16).count("1") > 1:
            return None  # one bit: a wrong bit of the code itself; more: several wrong bits
    return bytes(right)
