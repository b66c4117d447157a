"""Android sparse images, as fastboot takes them: an image as a list of chunks.

A header, then chunks in the order of the image: RAW (bytes), FILL (four bytes over and over), DONT_CARE (nothing; read
as zeros here, but a target keeps what it had) and CRC32 (of all before).  Reading is random access through an index of
the chunks, which is never bigger than the file.  A file that is cut off opens all the same: what is there can be read,
what is not is a DeviceError.  Checksums are looked at only by `SparseImage.verify`,
as reading all is needed for them.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from f2tools import newfile
from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.media.image import open_source
from f2tools.errors import DeviceError, Unsupported, Usage

MAGIC = 0xED26FF3A
FILE_HEADER = struct.Struct("<IHHHHIIII")  # magic, version, sizes of both headers, block size, blocks, chunks, CRC-32
CHUNK_HEADER = struct.Struct("<HHII")  # type, reserved, blocks in the image, bytes in the file with this header
RAW, FILL, DONT_CARE, CRC32 = 0xCAC1, 0xCAC2, 0xCAC3, 0xCAC4
MAX_BLOCK_SIZE = 64 << 20  # keeps offsets within 63 bits
MAX_RAW_BYTES = 1 << 30  # a chunk's size is a 32-bit number
WINDOW = 4 << 20
CRC_POLYNOMIAL = 0xEDB88320


class SparseImage(Device):
    """What an Android sparse image unpacks to, read-only; see the module's docstring.

    `readable_bytes` is less than `size_bytes` where the file is cut off.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = open_source(path)
        self.name = self._file.name
        self.read_only = True
        try:
            self._read_header()
            self._read_index()
        except BaseException:
            self._file.close()
            raise

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self._check_there(offset, len(view))
        done = 0
        for kind, value, at, length in self._pieces(offset, len(view)):
            part = view[done : done + length]
            if kind == RAW:
                self._file.pread_into(value + at, part)
            else:
                _fill(part, value, at)
            done += length

    @property
    def missing_bytes(self) -> int:
        return self.size_bytes - self.readable_bytes

    @property
    def loss(self) -> str:
        return f"it is cut off: only the first {self.readable_bytes} bytes are there" if self.missing_bytes else ""

    def pwrite(self, offset: int, data: Data) -> None:
        raise DeviceError(f"{self.name}: an Android sparse image can't be changed in place")

    def discard(self, offset: int, length: int) -> None:
        self.pwrite(offset, b"")

    def write_zeroes(self, offset: int, length: int) -> None:
        self.pwrite(offset, b"")

    def flush(self) -> None:
        """Nothing to do: nothing is ever written."""

    def close(self) -> None:
        self._file.close()

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        end = min(offset + length, self.size_bytes)
        start = None
        for kind, value, _, size in self._pieces(offset, min(end, self.readable_bytes) - offset):
            if kind == RAW or value:
                start = offset if start is None else start
            elif start is not None:
                yield start, offset - start
                start = None
            offset += size
        if end > self.readable_bytes:  # not known to be zero: reading it is an error
            start = offset if start is None else start
            offset = end
        if start is not None:
            yield start, offset - start

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        self._check_there(offset, length)
        pieces = list(self._pieces(offset, length))
        if len(pieces) != 1 or pieces[0][0] != RAW:
            return None
        _, value, at, length = pieces[0]
        return self._file.extent_source(value + at, length)

    def verify(self) -> int:
        """Check every checksum in the file; how many there were.  DeviceError for the first that is wrong."""
        if self.readable_bytes < self.size_bytes:
            self._check_there(0, self.size_bytes)
        checks = [*self._checks, *([(self.size_bytes, self._checksum)] if self._checksum else [])]
        crc = at = 0
        for end, expected in checks:
            crc, at = self._crc_of(at, end, crc), end
            if crc != expected:
                raise DeviceError(f"{self.name}: bytes up to {end:#x} have CRC-32 {crc:#010x}, not {expected:#010x}")
        return len(checks)

    def wrong_checksums(self) -> Iterator[str]:
        try:
            self.verify()
        except DeviceError as error:
            yield str(error)

    def _crc_of(self, offset: int, end: int, crc: int) -> int:
        for kind, value, at, length in self._pieces(offset, end - offset):
            if kind == RAW:
                for start in range(0, length, WINDOW):
                    crc = zlib.crc32(self._file.pread(value + at + start, min(WINDOW, length - start)), crc)
            else:
                crc = crc32_of_repeats(crc, struct.pack("<I", value), length // 4)
        return crc

    def _read_header(self) -> None:
        file = self._file
        if file.size_bytes < FILE_HEADER.size:
            raise DeviceError(f"{self.name}: {file.size_bytes} bytes are too few for an Android sparse image")
        found = FILE_HEADER.unpack(file.pread(0, FILE_HEADER.size))
        magic, major, minor, self._file_header_size, self._chunk_header_size = found[:5]
        self.block_size, self._blocks, self._chunks, self._checksum = found[5:]
        if magic != MAGIC:
            raise DeviceError(f"{self.name}: not an Android sparse image: it begins with {magic:#010x}")
        if major != 1:
            raise Unsupported(f"{self.name}: an Android sparse image of version {major}.{minor}; only 1.x is known")
        if self._file_header_size < FILE_HEADER.size or self._chunk_header_size < CHUNK_HEADER.size:
            sizes = f"{self._file_header_size} and {self._chunk_header_size}"
            raise DeviceError(f"{self.name}: headers of {sizes} bytes are too small for an Android sparse image")
        if not 0 < self.block_size <= MAX_BLOCK_SIZE or self.block_size % 4:
            raise DeviceError(f"{self.name}: {self.block_size} is no block size for an Android sparse image")
        self.size_bytes = self._blocks * self.block_size

    def _read_index(self) -> None:
        starts, kinds, values = array("q"), array("H"), array("q")
        self._checks: list[tuple[int, int]] = []
        at, position = 0, self._file_header_size
        for index in range(self._chunks):
            chunk = self._chunk(index, position)
            if chunk is None:
                break
            kind, size, stored, value = chunk
            if at + size > self.size_bytes:
                raise self._bad(index, position, f"goes past the image's end ({self._blocks} blocks)")
            if kind == CRC32:
                self._checks.append((at, value))
            elif size and not (kinds and kind == FILL == kinds[-1] and value == values[-1]):
                starts.append(at)
                kinds.append(kind)
                values.append(value)
            position += stored
            at += size
            if position > self._file.size_bytes:  # cut off within this chunk, which can only be RAW
                at -= min(size, position - self._file.size_bytes)
                break
        else:
            if at != self.size_bytes:
                held = f"{self._chunks} chunks hold {at // self.block_size} blocks"
                raise DeviceError(f"{self.name}: its {held}, its header says {self._blocks}")
        self.readable_bytes = at
        self._starts = np.frombuffer(starts, np.int64) if starts else np.zeros(0, np.int64)
        self._kinds, self._values = kinds, values

    def _chunk(self, index: int, position: int) -> tuple[int, int, int, int] | None:
        """(kind, bytes of the image, bytes of the file, where they are or what is repeated); None where cut off.

        DONT_CARE comes as FILL with zeros, which is how it reads.
        """
        want = min(self._chunk_header_size + 4, self._file.size_bytes - position)
        if want < self._chunk_header_size:
            return None
        raw = self._file.pread(position, want)
        kind, _, blocks, stored = CHUNK_HEADER.unpack_from(raw)
        size = blocks * self.block_size
        held = {RAW: size, FILL: 4, DONT_CARE: 0, CRC32: 4}.get(kind)
        if held is None:
            raise self._bad(index, position, f"is of unknown type {kind:#06x}")
        if stored != self._chunk_header_size + held:
            raise self._bad(index, position, f"takes {stored} bytes, not {self._chunk_header_size + held}")
        if kind == RAW:
            return RAW, size, stored, position + self._chunk_header_size
        if kind == DONT_CARE:
            return FILL, size, stored, 0
        if want < self._chunk_header_size + 4:
            return None
        (value,) = struct.unpack_from("<I", raw, self._chunk_header_size)
        return kind, 0 if kind == CRC32 else size, stored, value

    def _pieces(self, offset: int, length: int) -> Iterator[tuple[int, int, int, int]]:
        """(RAW or FILL, where the chunk is or what it repeats, offset in the chunk, length) of a readable range."""
        if length <= 0:
            return
        index = int(np.searchsorted(self._starts, offset, side="right")) - 1
        while length:
            start = int(self._starts[index])
            end = int(self._starts[index + 1]) if index + 1 < len(self._starts) else self.readable_bytes
            part = min(length, end - offset)
            yield self._kinds[index], self._values[index], offset - start, part
            offset, length, index = offset + part, length - part, index + 1

    def _check_there(self, offset: int, length: int) -> None:
        self.check_range(offset, length)
        if length and offset + length > self.readable_bytes:
            raise DeviceError(
                f"{self.name}: the file is cut off: only the first {self.readable_bytes} of {self.size_bytes} bytes of"
                f" the image are in it; {length} bytes at offset {offset:#x} are wanted"
            )

    def _bad(self, index: int, position: int, what: str) -> DeviceError:
        return DeviceError(f"{self.name}: chunk {index} at offset {position:#x} {what}")


def open_sparse(path: str | Path) -> SparseImage:
    """Open an Android sparse image for reading; DeviceError where the file contradicts the format."""
    return SparseImage(path)


def write_sparse(
    src: Device,
    out_path: str | Path,
    block_size: int = 4096,
    *,
    dont_care: Sequence[tuple[int, int]] | None = None,
    checksum: bool = False,
) -> int:
    """Write a device as an Android sparse image, all or nothing; the size of the file in bytes.

    Blocks that repeat four bytes become FILL, zeros too, so that a target that was used before gets them.  DONT_CARE
    are zero blocks wholly within one of the ranges `dont_care`, (offset, length), or by default within a hole of `src`.
    A last block that isn't whole is filled up with zeros.  `checksum` adds a CRC32 chunk.
    """
    if block_size < 1024 or block_size % 4 or block_size > MAX_BLOCK_SIZE:
        raise Usage(f"{block_size} is no block size for an Android sparse image")
    blocks = -(-src.size_bytes // block_size)
    if blocks >> 32:
        raise Usage(f"{src.size_bytes} bytes are too many for an Android sparse image with blocks of {block_size}")
    out = os.fspath(out_path)
    try:
        with newfile.Unnamed(out, 0o666) as unnamed:
            with os.fdopen(unnamed.fd, "wb") as stream:
                writer = _Writer(stream, block_size, blocks, checksum)
                _write_chunks(src, writer, dont_care)
                size = writer.finish()
                stream.flush()
                os.fsync(unnamed.fd)
            unnamed.publish(over=True)
    except OSError as error:
        raise DeviceError(f"{out}: writing failed: {error.strerror}") from None
    return size


class _Writer:
    """Chunks to a file, runs that follow each other merged; a RAW chunk's header is set right when it ends."""

    def __init__(self, stream: BinaryIO, block_size: int, blocks: int, checksum: bool) -> None:
        self._stream = stream
        self.block_size = block_size
        self._blocks = blocks
        self._chunks = 0
        self._kind, self._value, self._count = 0, 0, 0  # the run at hand
        self._crc = 0 if checksum else None
        stream.write(bytes(FILE_HEADER.size))

    def repeat(self, kind: int, value: int, count: int) -> None:
        """`count` blocks of FILL with `value`, or of DONT_CARE."""
        if (kind, value) != (self._kind, self._value):
            self._end_run()
        self._kind, self._value, self._count = kind, value, self._count + count
        if self._crc is not None:
            self._crc = crc32_of_repeats(self._crc, struct.pack("<I", value), count * self.block_size // 4)

    def raw(self, data: memoryview) -> None:
        """Whole blocks as they are, fewer than MAX_RAW_BYTES."""
        if self._kind != RAW or self._count * self.block_size + len(data) > MAX_RAW_BYTES:
            self._end_run()
            self._stream.write(bytes(CHUNK_HEADER.size))
        self._kind, self._value, self._count = RAW, 0, self._count + len(data) // self.block_size
        self._stream.write(data)
        if self._crc is not None:
            self._crc = zlib.crc32(data, self._crc)

    def finish(self) -> int:
        """Write what is pending and the header; the size of the file."""
        self._end_run()
        if self._crc is not None:
            self._stream.write(CHUNK_HEADER.pack(CRC32, 0, 0, CHUNK_HEADER.size + 4) + struct.pack("<I", self._crc))
            self._chunks += 1
        size = self._stream.tell()
        self._stream.seek(0)
        sizes = FILE_HEADER.size, CHUNK_HEADER.size
        self._stream.write(FILE_HEADER.pack(MAGIC, 1, 0, *sizes, self.block_size, self._blocks, self._chunks, 0))
        return size

    def _end_run(self) -> None:
        if not self._count:
            return
        if self._kind == RAW:
            stored = CHUNK_HEADER.size + self._count * self.block_size
            self._stream.seek(-stored, os.SEEK_CUR)
            self._stream.write(CHUNK_HEADER.pack(RAW, 0, self._count, stored))
            self._stream.seek(0, os.SEEK_END)
        else:
            body = struct.pack("<I", self._value) if self._kind == FILL else b""
            self._stream.write(CHUNK_HEADER.pack(self._kind, 0, self._count, CHUNK_HEADER.size + len(body)) + body)
        self._chunks += 1
        self._kind, self._count = 0, 0


def _write_chunks(src: Device, writer: _Writer, dont_care: Sequence[tuple[int, int]] | None) -> None:
    size, at = writer.block_size, 0
    skipped = None if dont_care is None else _whole_blocks(dont_care, size)
    for start, end in _data_blocks(src, size):
        _write_zeroes(writer, at, start, skipped)
        step = max(1, WINDOW // size)
        for first in range(start, end, step):
            _write_window(src, writer, first, min(end, first + step), skipped)
        at = end
    _write_zeroes(writer, at, -(-src.size_bytes // size), skipped)


def _data_blocks(src: Device, block_size: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of runs of blocks that may hold data."""
    pending: tuple[int, int] | None = None
    for offset, length in src.data_ranges(0, src.size_bytes):
        begin, end = offset // block_size, -(-(offset + length) // block_size)
        if pending and begin <= pending[1]:
            pending = pending[0], end
            continue
        if pending:
            yield pending
        pending = begin, end
    if pending:
        yield pending


def _whole_blocks(ranges: Sequence[tuple[int, int]], block_size: int) -> list[tuple[int, int]]:
    """(begin, end) of the blocks wholly within each range, in order, overlaps merged."""
    merged: list[tuple[int, int]] = []
    for offset, length in sorted(ranges):
        if merged and offset <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], offset + length)
        else:
            merged.append((offset, offset + length))
    whole = ((-(-begin // block_size), end // block_size) for begin, end in merged)
    return [(begin, end) for begin, end in whole if begin < end]


def _write_zeroes(writer: _Writer, begin: int, end: int, skipped: list[tuple[int, int]] | None) -> None:
    """Blocks known to be zero: DONT_CARE where that is allowed (None: everywhere), else FILL."""
    for first, last in [(begin, end)] if skipped is None else skipped:
        first, last = max(first, begin), min(last, end)
        if first >= last:
            continue
        if begin < first:
            writer.repeat(FILL, 0, first - begin)
        writer.repeat(DONT_CARE, 0, last - first)
        begin = last
    if begin < end:
        writer.repeat(FILL, 0, end - begin)


def _write_window(src: Device, writer: _Writer, begin: int, end: int, skipped: list[tuple[int, int]] | None) -> None:
    size = writer.block_size
    data = np.zeros((end - begin, size), np.uint8)
    src.pread_into(begin * size, byte_view(data)[: src.size_bytes - begin * size])
    fills = _fill_values(data.view("<u4"))
    edges = np.flatnonzero(np.append(True, fills[1:] != fills[:-1])).tolist()
    for first, last in pairwise([*edges, end - begin]):
        value = int(fills[first])
        if value < 0:
            writer.raw(byte_view(data[first:last]))
        elif value or skipped is None:
            writer.repeat(FILL, value, last - first)
        else:
            _write_zeroes(writer, begin + first, begin + last, skipped)


def _fill_values(words: NDArray[np.uint32]) -> NDArray[np.int64]:
    """For each row, the word that it repeats, or -1."""
    values = np.full(len(words), -1, np.int64)
    likely = np.flatnonzero((words[:, 0] == words[:, -1]) & (words[:, 0] == words[:, words.shape[1] // 2]))
    same = likely[(words[likely] == words[likely, :1]).all(axis=1)]
    values[same] = words[same, 0]
    return values


def _fill(part: memoryview, value: int, at: int) -> None:
    """Fill a buffer with the four bytes of `value` over and over, starting `at` bytes into that."""
    pattern = np.frombuffer(struct.pack("<I", value), np.uint8)
    target = np.frombuffer(part, np.uint8)
    for place in range(4 if value else 1):
        target[place :: 4 if value else 1] = pattern[(at + place) % 4]


def crc32_of_repeats(crc: int, pattern: bytes, count: int) -> int:
    """CRC-32 after `count` more times `pattern`, in steps that grow with the logarithm of `count`."""
    piece, power = zlib.crc32(pattern), _x_to_the(8 * len(pattern))
    while count:
        if count & 1:
            crc = _times(crc, power) ^ piece
        piece = _times(piece, power) ^ piece
        power = _times(power, power)
        count >>= 1
    return crc


def _x_to_the(exponent: int) -> int:
    """x**exponent modulo the polynomial of CRC-32; the highest bit of a number is x**0."""
    result, square = 1 << 31, 1 << 30
    while exponent:
        if exponent & 1:
            result = _times(result, square)
        square = _times(square, square)
        exponent >>= 1
    return result


def _times(a: int, b: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (CRC_POLYNOMIAL if b & 1 else 0)
    return product
