"""Checksums and name hashes: CRC-32 as f2fs seeds it, the checksum of an inode block, the hash of a directory entry.

Names arrive as the bytes that are hashed.  Which bytes those are depends on the directory: the name itself; its folded
form in a casefolded one (`casefold`); the ciphertext in an encrypted one; where it is both, the folded plaintext goes
through SipHash with the directory's own key.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from f2tools.f2fs.layout.constants import F2FS_SUPER_MAGIC, U32_MAX
from f2tools.native import core

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

INODE_CHECKSUM_OFFSET = 368  # i_inode_checksum in the inode block
INODE_GENERATION_OFFSET = 68  # i_generation
FOOTER_INO_OFFSET = -20  # node_footer.ino, from the end of the block

_U64 = 0xFFFFFFFFFFFFFFFF
_CHUNK = 16  # bytes of a name that one TEA round takes
_TEA_DELTA = 0x9E3779B9
_TEA_ROUNDS = 16
_TEA_TOTALS = tuple(_TEA_DELTA * count & 0xFFFFFFFF for count in range(1, _TEA_ROUNDS + 1))
_TEA_SEED = (0x67452301, 0xEFCDAB89)
_DOTS = (b".", b"..")


def f2fs_crc32(data: bytes | bytearray | memoryview, seed: int = F2FS_SUPER_MAGIC) -> int:
    """CRC-32 (polynomial 0xEDB88320) from this seed, without the inversions that zlib makes at both ends."""
    return zlib.crc32(data, seed ^ U32_MAX) ^ U32_MAX


def inode_checksum(
    uuid: bytes, block: bytes | bytearray | memoryview, checksum_offset: int = INODE_CHECKSUM_OFFSET
) -> int:
    """What i_inode_checksum must be: over uuid, ino of the footer, i_generation, and the block with that field zero."""
    view = memoryview(block)
    ino = len(view) + FOOTER_INO_OFFSET
    # zlib's own inversions cancel out from step to step; what remains is one at the end.
    crc = zlib.crc32(uuid)
    crc = zlib.crc32(view[ino : ino + 4], crc)
    crc = zlib.crc32(view[INODE_GENERATION_OFFSET : INODE_GENERATION_OFFSET + 4], crc)
    crc = zlib.crc32(view[:checksum_offset], crc)
    crc = zlib.crc32(b"\0\0\0\0", crc)
    return zlib.crc32(view[checksum_offset + 4 :], crc) ^ U32_MAX


def inode_checksums(
    uuid: bytes, blocks: NDArray[np.uint8], checksum_offset: int = INODE_CHECKSUM_OFFSET
) -> NDArray[np.uint32]:
    """`inode_checksum` of each row of `blocks`, of shape (inodes, block size)."""
    import numpy as np

    if core is not None:
        found = np.empty(len(blocks), np.uint32)
        core.inode_checksums(uuid, np.ascontiguousarray(blocks), blocks.shape[1], checksum_offset, found)
        return found
    sums = [inode_checksum(uuid, memoryview(block), checksum_offset) for block in blocks]
    return np.array(sums, np.uint32)


def dentry_hash(name: bytes) -> int:
    """hash_code of a directory entry: the first word of a TEA over pieces of 16 bytes; "." and ".." have 0."""
    return core.dentry_hash(name) if core is not None else _dentry_hash(name)


def _dentry_hash(name: bytes) -> int:
    if name in (b".", b".."):
        return 0
    first, second = _TEA_SEED
    for start in range(0, max(len(name), 1), _CHUNK):
        first, second = _tea(first, second, _words(name[start : start + _CHUNK], len(name) - start))
    # The kernel also clears F2FS_HASH_COL_BIT, which is bit 63: no bit of a 32-bit hash.
    return first


def _words(piece: bytes, left: int) -> tuple[int, int, int, int]:
    """Four words, big-endian; bytes that are not there are filled from the front with the length left."""
    pad = (left | left << 8) & U32_MAX
    pad = (pad | pad << 16) & U32_MAX
    words = [pad] * 4
    for index in range(0, len(piece), 4):
        part = piece[index : index + 4]
        words[index // 4] = (pad << 8 * len(part) | int.from_bytes(part, "big")) & U32_MAX
    return words[0], words[1], words[2], words[3]


def _tea(first: int, second: int, key: tuple[int, int, int, int]) -> tuple[int, int]:
    a, b, c, d = key
    x, y, mask = first, second, U32_MAX
    for total in _TEA_TOTALS:
        x = x + ((y << 4) + a ^ y + total ^ (y >> 5) + b) & mask
        y = y + ((x << 4) + c ^ x + total ^ (x >> 5) + d) & mask
    return first + x & U32_MAX, second + y & U32_MAX


def dentry_hashes(names: Sequence[bytes]) -> NDArray[np.uint32]:
    """`dentry_hash` of every name, as one uint32 array in the same order; names of as many pieces go together."""
    import numpy as np

    hashes = np.zeros(len(names), np.uint32)
    if not names:
        return hashes
    lengths = np.fromiter(map(len, names), np.int64, len(names))
    dots = [index for index in np.flatnonzero(lengths <= len(_DOTS)).tolist() if names[index] in _DOTS]
    if core is not None:
        core.name_hashes(b"".join(names), np.cumsum(lengths) - lengths, lengths, hashes)
        hashes[dots] = 0
        return hashes
    pieces = np.maximum((lengths + _CHUNK - 1) // _CHUNK, 1)
    for count in np.unique(pieces):
        members = np.flatnonzero(pieces == count)
        padded = np.array([names[member] for member in members.tolist()], dtype=f"S{int(count) * _CHUNK}")
        hashes[members] = _hash_padded(padded.view(">u4").reshape(len(members), -1), lengths[members])
    hashes[dots] = 0
    return hashes


def dentry_hashes_padded(names: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """`dentry_hash` of names as rows of bytes, zeros after their end, all of as many 16-byte pieces; not of "."."""
    if core is not None:
        import numpy as np

        found = np.empty(len(names), np.uint32)
        starts = np.arange(len(names)) * names.shape[1]
        core.name_hashes(np.ascontiguousarray(names), starts, np.ascontiguousarray(lengths, np.int64), found)
        return found
    return _hash_padded(names.view(">u4").reshape(len(names), -1), lengths)


def _hash_padded(words: NDArray[np.uint32], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Hash of names as rows of big-endian words, zeros after their end."""
    import numpy as np

    first = np.full(len(words), _TEA_SEED[0], np.uint32)
    second = np.full(len(words), _TEA_SEED[1], np.uint32)
    for start in range(0, words.shape[1], 4):
        first, second = _tea_rows(first, second, _key(words[:, start : start + 4], lengths - 4 * start))
    return first


def beginning_hashes(text: bytes) -> NDArray[np.uint32]:
    """`dentry_hash` of the first byte, the first two, three ... of a text; what they share is hashed once."""
    import numpy as np

    lengths = np.arange(1, len(text) + 1, dtype=np.int64)
    if core is not None:
        found = np.empty(len(text), np.uint32)
        core.name_hashes(text, np.zeros(len(text), np.int64), lengths, found)
        return found
    last = (lengths - 1) // _CHUNK
    states: list[tuple[int, int]] = [_TEA_SEED]
    for start in range(0, len(text) - _CHUNK, _CHUNK):
        states.append(_tea(*states[-1], _words(text[start : start + _CHUNK], _CHUNK)))
    pieces = np.frombuffer(text.ljust(-(-len(text) // _CHUNK) * _CHUNK, b"\0"), np.uint8).reshape(-1, _CHUNK)[last]
    left = lengths - _CHUNK * last
    words = np.where(np.arange(_CHUNK) < left[:, None], pieces, np.uint8(0)).view(">u4")
    before = np.array(states, np.uint32)[last]
    return _tea_rows(before[:, 0], before[:, 1], _key(words, left))[0]


def _key(words: NDArray[np.uint32], left: NDArray[np.int64]) -> list[NDArray[np.uint32]]:
    """Rows of a piece of each name as four columns; bytes that are not there are filled as in `_words`."""
    import numpy as np

    pad = (left | left << 8) & U32_MAX
    pad = (pad | pad << 16) & U32_MAX
    key: list[NDArray[np.uint32]] = []
    for index in range(4):
        there = np.clip(left - 4 * index, 0, 4)
        value = words[:, index].astype(np.int64) >> 8 * (4 - there) | pad << 8 * there
        key.append((value & U32_MAX).astype(np.uint32))
    return key


def _tea_rows(
    first: NDArray[np.uint32], second: NDArray[np.uint32], key: list[NDArray[np.uint32]]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    import numpy as np

    a, b, c, d = key
    x, y, total = first.copy(), second.copy(), 0
    for _ in range(_TEA_ROUNDS):
        total = total + _TEA_DELTA & U32_MAX
        x += ((y << 4) + a) ^ (y + np.uint32(total)) ^ ((y >> 5) + b)
        y += ((x << 4) + c) ^ (x + np.uint32(total)) ^ ((x >> 5) + d)
    return first + x, second + y


def dentry_siphash(name: bytes, key: bytes) -> int:
    """hash_code in a directory that is encrypted and casefolded: the low half of SipHash of the folded plaintext."""
    return siphash24(name, key) & U32_MAX


def siphash24(data: bytes, key: bytes) -> int:
    """SipHash-2-4, 64 bits, key of 16 bytes."""
    k0, k1 = struct.unpack("<QQ", key)
    state = (k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573)
    tail = len(data) % 8
    last = data[len(data) - tail :] + bytes(7 - tail) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", data[: len(data) - tail] + last):
        v0, v1, v2, v3 = state
        v0, v1, v2, v3 = _sip_rounds((v0, v1, v2, v3 ^ word), 2)
        state = (v0 ^ word, v1, v2, v3)
    v0, v1, v2, v3 = _sip_rounds((state[0], state[1], state[2] ^ 0xFF, state[3]), 4)
    return v0 ^ v1 ^ v2 ^ v3


def _sip_rounds(state: tuple[int, int, int, int], count: int) -> tuple[int, int, int, int]:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 = v0 + v1 & _U64
        v2 = v2 + v3 & _U64
        v1 = _rotated(v1, 13) ^ v0
        v3 = _rotated(v3, 16) ^ v2
        v0 = _rotated(v0, 32)
        v2 = v2 + v1 & _U64
        v0 = v0 + v3 & _U64
        v1 = _rotated(v1, 17) ^ v2
        v3 = _rotated(v3, 21) ^ v0
        v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _U64
