"""The ciphers of fscrypt over arrays of data units: AES and SM4 in XTS, CBC and CTS, Adiantum, HCTR2.

A cipher has a key and turns `units`, shape (n, bytes), with one initialisation vector each, shape (n, iv_size), into as
many bytes.  AES and SM4 come from the `cryptography` library; what it lacks is built from them here.

Sources: Adiantum: Crowley
and Biggers, "Adiantum: length-preserving encryption for entry-level processors"; HCTR2: Crowley, Huckleberry and
Biggers, "Length-preserving encryption with HCTR2".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers import Cipher as _Cipher
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from numpy.typing import NDArray

__all__ = [
    "Adiantum", "AesCbcEssiv", "AesXts", "Cipher", "Cts", "Hctr2", "Sm4Xts", "UnsupportedAlgorithm", "aes_ecb",
]  # fmt: skip

Bytes = NDArray[np.uint8]
BLOCK = 16
_M128 = (1 << 128) - 1


class Cipher(Protocol):
    """Encrypts and decrypts units of at least 16 bytes; the result has the shape of `units`."""

    iv_size: int

    def decrypt(self, units: Bytes, ivs: Bytes) -> Bytes: ...

    def encrypt(self, units: Bytes, ivs: Bytes) -> Bytes: ...


class _Ecb:
    """A block cipher without a mode."""

    def __init__(self, key: bytes, *, sm4: bool = False) -> None:
        self._cipher: Any = _Cipher(algorithms.SM4(key) if sm4 else algorithms.AES(key), modes.ECB())
        if sm4:
            self._cipher.encryptor()  # UnsupportedAlgorithm where the library was built without

    def encrypt(self, data: bytes) -> bytes:
        return self._cipher.encryptor().update(data)

    def decrypt(self, data: bytes) -> bytes:
        return self._cipher.decryptor().update(data)


def aes_ecb(key: bytes, data: bytes) -> bytes:
    """Whole blocks, each encrypted by itself."""
    return _Ecb(key).encrypt(data)


def _xor(a: bytes, b: bytes) -> bytes:
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")


class AesXts:
    """AES-XTS: the library does a unit at a time."""

    iv_size = 16

    def __init__(self, key: bytes) -> None:
        self._key = algorithms.AES(key)

    def decrypt(self, units: Bytes, ivs: Bytes) -> Bytes:
        return self._each(units, ivs, decrypting=True)

    def encrypt(self, units: Bytes, ivs: Bytes) -> Bytes:
        return self._each(units, ivs, decrypting=False)

    def _each(self, units: Bytes, ivs: Bytes, *, decrypting: bool) -> Bytes:
        out = np.empty((len(units), units.shape[1] + BLOCK - 1), np.uint8)  # update_into wants room for a block more
        for row, unit, iv in zip(out, units, ivs, strict=True):
            cipher = _Cipher(self._key, modes.XTS(iv.tobytes()))
            (cipher.decryptor() if decrypting else cipher.encryptor()).update_into(unit.data, row.data)
        return out[:, : units.shape[1]]


class Sm4Xts:
    """XTS over SM4, which the library has without this mode."""

    iv_size = 16

    def __init__(self, key: bytes, *, sm4: bool = True) -> None:
        half = len(key) // 2
        self._data, self._tweak = _Ecb(key[:half], sm4=sm4), _Ecb(key[half:], sm4=sm4)

    def decrypt(self, units: Bytes, ivs: Bytes) -> Bytes:
        return self._run(units, ivs, self._data.decrypt)

    def encrypt(self, units: Bytes, ivs: Bytes) -> Bytes:
        return self._run(units, ivs, self._data.encrypt)

    def _run(self, units: Bytes, ivs: Bytes, ecb: Any) -> Bytes:
        count = units.shape[1] // BLOCK
        masks = np.empty((len(units), count, 2), np.uint64)
        tweak = np.frombuffer(self._tweak.encrypt(ivs.tobytes()), "<u8").reshape(-1, 2).copy()
        for index in range(count):
            masks[:, index] = tweak
            low, high = tweak[:, 0].copy(), tweak[:, 1].copy()
            tweak[:, 0] = low << np.uint64(1) ^ (high >> np.uint64(63)) * np.uint64(0x87)
            tweak[:, 1] = high << np.uint64(1) | low >> np.uint64(63)
        flat = masks.view(np.uint8).reshape(units.shape)
        return np.frombuffer(ecb((units ^ flat).tobytes()), np.uint8).reshape(units.shape) ^ flat


class AesCbcEssiv:
    """AES-CBC whose initialisation vectors are encrypted with the SHA-256 of the key."""

    iv_size = 16

    def __init__(self, key: bytes) -> None:
        self._key = algorithms.AES(key)
        self._data, self._essiv = _Ecb(key), _Ecb(hashlib.sha256(key).digest())

    def decrypt(self, units: Bytes, ivs: Bytes) -> Bytes:
        plain = np.frombuffer(self._data.decrypt(units.tobytes()), np.uint8).reshape(units.shape).copy()
        plain[:, :BLOCK] ^= self._started(ivs)
        plain[:, BLOCK:] ^= units[:, :-BLOCK]
        return plain

    def encrypt(self, units: Bytes, ivs: Bytes) -> Bytes:
        out = np.empty_like(units)
        for row, unit, iv in zip(out, units, self._started(ivs), strict=True):
            cipher: Any = _Cipher(self._key, modes.CBC(iv.tobytes())).encryptor()
            row[:] = np.frombuffer(cipher.update(unit.tobytes()), np.uint8)
        return out

    def _started(self, ivs: Bytes) -> Bytes:
        return np.frombuffer(self._essiv.encrypt(ivs.tobytes()), np.uint8).reshape(ivs.shape)


class Cts:
    """CBC with ciphertext stealing, the last two blocks always exchanged (CS3), over AES or SM4."""

    iv_size = 16

    def __init__(self, key: bytes, *, sm4: bool = False) -> None:
        self._ecb = _Ecb(key, sm4=sm4)

    def decrypt(self, units: Bytes, ivs: Bytes) -> Bytes:
        return _each(self._decrypt, units, ivs)

    def encrypt(self, units: Bytes, ivs: Bytes) -> Bytes:
        return _each(self._encrypt, units, ivs)

    def _decrypt(self, data: bytes, iv: bytes) -> bytes:
        if len(data) == BLOCK:
            return _xor(self._ecb.decrypt(data), iv)
        whole = (len(data) - 1) // BLOCK * BLOCK  # all but the last block, which may be short
        head, last, stolen = data[: whole - BLOCK], data[whole - BLOCK : whole], data[whole:]
        mixed = self._ecb.decrypt(last)
        before = stolen + mixed[len(stolen) :]
        body = head + before
        return _xor(self._ecb.decrypt(body), iv + body[:-BLOCK]) + _xor(mixed[: len(stolen)], stolen)

    def _encrypt(self, data: bytes, iv: bytes) -> bytes:
        padded = data + bytes(-len(data) % BLOCK)
        done = bytearray()
        for at in range(0, len(padded), BLOCK):
            iv = self._ecb.encrypt(_xor(padded[at : at + BLOCK], iv))
            done += iv
        if len(data) == BLOCK:
            return bytes(done)
        left = len(data) - len(padded) + BLOCK
        return bytes(done[: -2 * BLOCK] + done[-BLOCK:] + done[-2 * BLOCK : len(done) - 2 * BLOCK + left])


def _each(run: Callable[[bytes, bytes], bytes], units: Bytes, ivs: Bytes) -> Bytes:
    """A function of bytes over every unit."""
    rows = [run(unit.tobytes(), iv.tobytes()) for unit, iv in zip(units, ivs, strict=True)]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(units.shape)


# -- Adiantum ---------------------------------------------------------------------------------------------------------

_SIGMA = np.frombuffer(b"expand 32-byte k", "<u4")
_ROUNDS = 12
_POLY1305 = (1 << 130) - 5
_CLAMP = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
_NH_CHUNK, _NH_PASSES = 1024, 4
_NH_KEY = _NH_CHUNK + BLOCK * (_NH_PASSES - 1)
_AT_ONCE = 64  # units; more would leave the processor's cache


class Adiantum:
    """Adiantum with XChaCha12 and AES-256, wide as the unit: NH and Poly1305 around a stream cipher."""

    iv_size = 32

    def __init__(self, key: bytes) -> None:
        self._key = np.frombuffer(key, "<u4").reshape(8, 1)
        nonce = np.zeros((8, 1), np.uint32)
        nonce[0] = 1
        derived = self._stream(nonce, 2 * BLOCK + 2 * BLOCK + _NH_KEY)[0].tobytes()
        self._block = _Ecb(derived[:32])
        self._header_r = int.from_bytes(derived[32:48], "little") & _CLAMP
        self._message_r = int.from_bytes(derived[48:64], "little") & _CLAMP
        words = np.frombuffer(derived[64:], "<u4")
        shifted = [words[4 * p : 4 * p + _NH_CHUNK // 4].reshape(-1, 4) for p in range(_NH_PASSES)]
        self._nh_keys = np.stack(shifted)  # (pass, 16 bytes of a chunk, word)

    def decrypt(self, units: Bytes, ivs: Bytes) -> Bytes:
        return self._in_parts(units, ivs, decrypting=True)

    def encrypt(self, units: Bytes, ivs: Bytes) -> Bytes:
        return self._in_parts(units, ivs, decrypting=False)

    def _in_parts(self, units: Bytes, ivs: Bytes, *, decrypting: bool) -> Bytes:
        out = np.empty(units.shape, np.uint8)
        for at in range(0, len(units), _AT_ONCE):
            part = slice(at, at + _AT_ONCE)
            out[part] = self._run(units[part], ivs[part], decrypting=decrypting)
        return out

    def _run(self, units: Bytes, ivs: Bytes, *, decrypting: bool) -> Bytes:
        bulk, tails = units[:, :-BLOCK], units[:, -BLOCK:]
        headers = [self._header_hash(bulk.shape[1], iv.tobytes()) for iv in ivs]
        middle = _add(tails.tobytes(), headers, self._message_hashes(bulk))
        # the nonce of the stream is what the block cipher makes (or made) of the middle
        other = self._block.decrypt(middle) if decrypting else self._block.encrypt(middle)
        secret, back = (middle, other) if decrypting else (other, other)
        nonces = np.zeros((8, len(units)), np.uint32)
        nonces[:4] = np.frombuffer(secret, "<u4").reshape(-1, 4).T
        nonces[4] = 1
        out = np.empty(units.shape, np.uint8)
        out[:, :-BLOCK] = bulk ^ self._stream(nonces, bulk.shape[1]) if bulk.shape[1] else bulk
        negative = [-h for h in headers]
        hashes = [-h for h in self._message_hashes(out[:, :-BLOCK])]
        out[:, -BLOCK:] = np.frombuffer(_add(back, negative, hashes), np.uint8).reshape(-1, BLOCK)
        return out

    def _stream(self, nonces: NDArray[np.uint32], length: int) -> Bytes:
        """XChaCha12 for each nonce, shape (8 words, n): (n, length) bytes."""
        count = nonces.shape[1]
        state = np.empty((16, count), np.uint32)
        state[:4], state[4:12], state[12:] = _SIGMA[:, None], self._key, nonces[:4]
        mixed = _chacha(state.reshape(4, 4, count)).reshape(16, count)
        blocks = -(-length // 64)
        start = np.zeros((16, count, blocks), np.uint32)
        start[:4] = _SIGMA[:, None, None]
        start[4:8], start[8:12] = mixed[:4, :, None], mixed[12:, :, None]
        start[12] = np.arange(blocks, dtype=np.uint32)
        start[14:] = nonces[4:6, :, None]
        start = start.reshape(4, 4, count * blocks)
        stream = (_chacha(start) + start).reshape(16, count, blocks)
        return np.ascontiguousarray(stream.transpose(1, 2, 0)).view(np.uint8).reshape(count, -1)[:, :length]

    def _header_hash(self, bulk_size: int, tweak: bytes) -> int:
        r = self._header_r
        total = 0
        for piece in ((8 * bulk_size).to_bytes(BLOCK, "little"), tweak[:BLOCK], tweak[BLOCK:]):
            total = (total + int.from_bytes(piece, "little") + (1 << 128)) * r % _POLY1305
        return total

    def _message_hashes(self, bulk: Bytes) -> list[int]:
        """NHPoly1305 of each row."""
        count, size = bulk.shape
        words = np.zeros((count, -(-size // BLOCK) * 4), np.uint32)
        words.view(np.uint8)[:, :size] = bulk
        words = words.reshape(count, -1, 4)
        whole = words.shape[1] // (_NH_CHUNK // BLOCK) * (_NH_CHUNK // BLOCK)
        parts: list[NDArray[Any]] = []
        if whole:
            parts.append(self._nh(words[:, :whole].reshape(count, -1, _NH_CHUNK // BLOCK, 4)))
        if whole < words.shape[1]:
            parts.append(self._nh(words[:, None, whole:]))
        r = self._message_r
        hashes: list[int] = []
        sums = np.concatenate(parts, axis=1).tobytes() if parts else b""
        row = len(sums) // count
        for begin in range(0, len(sums), row) if row else ():
            total = 0
            for at in range(begin, begin + row, BLOCK):
                total = (total + int.from_bytes(sums[at : at + BLOCK], "little") + (1 << 128)) * r % _POLY1305
            hashes.append(total)
        return hashes or [0] * count

    def _nh(self, words: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """NH of chunks, shape (n, chunks, 16-byte pieces, 4): (n, chunks, 4 sums)."""
        sums = np.empty((*words.shape[:2], _NH_PASSES), np.uint64)
        for index, key in enumerate(self._nh_keys):
            added = (words + key[: words.shape[2]]).astype(np.uint64)
            sums[:, :, index] = (added[..., :2] * added[..., 2:]).sum(axis=(2, 3), dtype=np.uint64)
        return sums


def _chacha(state: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The permutation of ChaCha12 over states in columns, shape (4 rows, 4 words, n)."""
    a, b, c, d = (row.copy() for row in state)
    for _ in range(_ROUNDS // 2):
        _quarter_rounds(a, b, c, d)
        b, c, d = b[[1, 2, 3, 0]], c[[2, 3, 0, 1]], d[[3, 0, 1, 2]]
        _quarter_rounds(a, b, c, d)
        b, c, d = b[[3, 0, 1, 2]], c[[2, 3, 0, 1]], d[[1, 2, 3, 0]]
    return np.stack((a, b, c, d))


def _quarter_rounds(a: Any, b: Any, c: Any, d: Any) -> None:
    for x, y, z, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x += y
        z ^= x
        high = z << np.uint32(bits)
        z >>= np.uint32(32 - bits)
        z |= high


def _add(data: bytes, *terms: list[int]) -> bytes:
    """16-byte numbers one after the other, each the sum of the terms with its index, modulo 2^128."""
    added = bytearray()
    for index, at in enumerate(range(0, len(data), BLOCK)):
        total = int.from_bytes(data[at : at + BLOCK], "little") + sum(term[index] for term in terms)
        added += (total & _M128).to_bytes(BLOCK, "little")
    return bytes(added)


# -- HCTR2 ------------------------------------------------------------------------------------------------------------

_POLYVAL = 1 << 128 | 1 << 127 | 1 << 126 | 1 << 121 | 1


class Hctr2:
    """AES-256-HCTR2: a counter mode between two POLYVAL hashes."""

    iv_size = 32

    def __init__(self, key: bytes) -> None:
        self._ecb = _Ecb(key)
        self._hash_key = int.from_bytes(self._ecb.encrypt(bytes(BLOCK)), "little")
        self._l = int.from_bytes(self._ecb.encrypt((1).to_bytes(BLOCK, "little")), "little")

    def decrypt(self, units: Bytes, ivs: Bytes) -> Bytes:
        return _each(lambda data, tweak: self._run(data, tweak, self._ecb.decrypt), units, ivs)

    def encrypt(self, units: Bytes, ivs: Bytes) -> Bytes:
        return _each(lambda data, tweak: self._run(data, tweak, self._ecb.encrypt), units, ivs)

    def _run(self, data: bytes, tweak: bytes, ecb: Any) -> bytes:
        head, rest = int.from_bytes(data[:BLOCK], "little"), data[BLOCK:]
        before = head ^ self._hash(tweak, rest)
        after = int.from_bytes(ecb(before.to_bytes(BLOCK, "little")), "little")
        start = before ^ after ^ self._l
        counters = b"".join((start ^ i).to_bytes(BLOCK, "little") for i in range(1, -(-len(rest) // BLOCK) + 1))
        out = _xor(rest, self._ecb.encrypt(counters)[: len(rest)])
        return (after ^ self._hash(tweak, out)).to_bytes(BLOCK, "little") + out

    def _hash(self, tweak: bytes, data: bytes) -> int:
        odd = len(data) % BLOCK
        message = (16 * len(tweak) + (3 if odd else 2)).to_bytes(BLOCK, "little") + tweak + bytes(-len(tweak) % BLOCK)
        message += data + (b"\x01" + bytes(BLOCK - 1 - odd) if odd else b"")
        total = 0
        for at in range(0, len(message), BLOCK):
            total = _polyval_dot(total ^ int.from_bytes(message[at : at + BLOCK], "little"), self._hash_key)
        return total


def _polyval_dot(a: int, b: int) -> int:
    """a * b * x^-128 in the field of POLYVAL (RFC 8452)."""
    product = 0
    while a:
        low = a & -a
        product ^= b * low
        a ^= low
    for _ in range(128):
        if product & 1:
            product ^= _POLYVAL
        product >>= 1
    return product
