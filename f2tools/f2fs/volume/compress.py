"""Compressed clusters: the blocks of one cluster on the disk <-> its plain bytes.

A cluster is written as a header (`layout.compress.CompressData`), the compressed bytes, and zeros to the end of the
block.  Which blocks belong to a cluster, and what of it lies past the end of the file, is for the caller to know.
Whatever the input is, the output never exceeds the cluster, and nothing much larger is built on the way.
"""

from __future__ import annotations

import re
from typing import Any, cast

from f2tools.errors import Corrupt, Unsupported, Where
from f2tools.f2fs.layout.compress import COMPRESS_HEADER_SIZE, CompressData
from f2tools.f2fs.layout.hashes import f2fs_crc32

LZO, LZ4, ZSTD, LZORLE = range(4)  # i_compress_algorithm
ALGORITHMS = ("lzo", "lz4", "zstd", "lzo-rle")
F2FS_ZSTD_DEFAULT_CLEVEL = 1
_HEADER = CompressData.unpacker()[0]  # a file has one for every four blocks, too many for `CompressData.parse`

_LZO_BITSTREAM = 17  # first byte of a stream that names its version in the second
_LZO_VERSIONED_MIN = 5  # the kernel treats shorter ones as unversioned
_LZO_ZERO_RUN = rb"[\x18-\x1f][\xfc-\xff]\xff"  # what a run of zeros of LZO-RLE looks like
_LZO_UNBOUNDED_MAX = 64 << 20  # bytes that the library, which takes no limit, may build at the very worst


class _BadStream(Exception):
    """The compressed bytes can't be decoded; says why."""


def read_header(raw: bytes, where: Where | None = None) -> tuple[int, bytes]:
    """Checksum and compressed bytes of a cluster; Corrupt when its clen doesn't fit into the blocks that are there."""
    where = where or Where()
    if len(raw) < COMPRESS_HEADER_SIZE:
        raise Corrupt(where, "compressed cluster without blocks")
    clen, chksum, _ = _HEADER.unpack_from(raw)
    room = len(raw) - COMPRESS_HEADER_SIZE
    if not 0 < clen <= room:
        raise Corrupt(where, f"compressed cluster claims {clen} bytes, its blocks have room for {room}")
    return chksum, raw[COMPRESS_HEADER_SIZE : COMPRESS_HEADER_SIZE + clen]


def chksum_error(raw: bytes, where: Where | None = None) -> str | None:
    """What is wrong with the checksum of a cluster whose file has them (i_compress_flag bit 0); None if it is right."""
    chksum, cdata = read_header(raw, where)
    found = f2fs_crc32(cdata)
    if found == chksum:
        return None
    return f"checksum of the compressed cluster is {found:#010x}, its header says {chksum:#010x}"


def decompress_cluster(
    raw: bytes, algorithm: int, cluster_size_bytes: int, *, verify: bool = False, where: Where | None = None
) -> bytes:
    """The plain bytes of a cluster, cluster_size_bytes of them.

    raw: the compressed blocks one after the other.  verify: also hold them to the checksum in the header, which the
    kernel computes after decompression and only complains about.  Raises Corrupt, or Unsupported for an algorithm that
    doesn't exist.
    """
    where = where or Where()
    _, cdata = read_header(raw, where)
    if not 0 <= algorithm < len(ALGORITHMS):
        raise Unsupported(f"compression algorithm {algorithm}")
    if verify and (problem := chksum_error(raw, where)):
        raise Corrupt(where, problem)
    decode = (_lzo_decode, _lz4_decode, _zstd_decode, _lzo_decode)[algorithm]
    try:
        plain = decode(cdata, cluster_size_bytes)
    except _BadStream as error:
        raise Corrupt(where, f"compressed cluster ({ALGORITHMS[algorithm]}): {error}") from None
    if len(plain) != cluster_size_bytes:
        raise Corrupt(where, f"compressed cluster holds {len(plain)} bytes, must be {cluster_size_bytes}")
    return plain


def compress_cluster(
    data: bytes, algorithm: int, level: int = 0, *, chksum: bool = False, block_size: int = 4096
) -> bytes | None:
    """Blocks to write for a whole cluster of plain bytes; None when that would not save at least one block.

    level: as in i_compress_flag, 0 for the default; with LZ4 any other means LZ4HC.  chksum: what bit 0 of
    i_compress_flag asks for, else the field is zero.  LZO-RLE is written as plain LZO, which every reader of it takes.
    """
    if not 0 <= algorithm < len(ALGORITHMS):
        raise Unsupported(f"compression algorithm {algorithm}")
    encode = (_lzo_encode, _lz4_encode, _zstd_encode, _lzo_encode)[algorithm]
    cdata = encode(data, level)
    if COMPRESS_HEADER_SIZE + len(cdata) > len(data) - block_size:
        return None
    header = CompressData(clen=len(cdata), chksum=f2fs_crc32(cdata) if chksum else 0)
    padding = -(COMPRESS_HEADER_SIZE + len(cdata)) % block_size
    return header.build() + cdata + bytes(padding)


def _lz4_decode(cdata: bytes, limit: int) -> bytes:
    import lz4.block

    try:
        return lz4.block.decompress(cdata, uncompressed_size=limit)
    except lz4.block.LZ4BlockError:
        raise _BadStream("not a sound LZ4 block, or too long") from None


def _lz4_encode(data: bytes, level: int) -> bytes:
    import lz4.block

    if level:
        return lz4.block.compress(data, mode="high_compression", compression=level, store_size=False)
    return lz4.block.compress(data, store_size=False)


def _zstd_decode(cdata: bytes, limit: int) -> bytes:
    import zstandard

    # The size in the frame's header is not to be trusted: a reader takes no more than it is asked for.  The kernel too
    # bounds the window by the cluster, and does not look at what follows.
    try:
        with zstandard.ZstdDecompressor(max_window_size=limit).stream_reader(cdata) as reader:
            return reader.read(limit)
    except zstandard.ZstdError as error:
        raise _BadStream(str(error)) from None


def _zstd_encode(data: bytes, level: int) -> bytes:
    import zstandard

    # No content size, as the kernel's streaming compressor; the window is then at most the cluster.
    parameters = cast(Any, zstandard.ZstdCompressionParameters).from_level(  # its options are keywords without types
        level or F2FS_ZSTD_DEFAULT_CLEVEL, source_size=len(data), write_content_size=False, write_checksum=False
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def _lzo_encode(data: bytes, level: int) -> bytes:
    from lzallright import LZOCompressor

    return LZOCompressor().compress(data)


def _lzo_decode(cdata: bytes, limit: int) -> bytes:
    """LZO1X or LZO-RLE: the kernel tells them apart by the stream alone, whatever the inode says."""
    version = lzo_version(cdata)
    body = cdata if version is None else cdata[2:]
    if (version and re.search(_LZO_ZERO_RUN, body)) or _lzo_worst_case(body) > _LZO_UNBOUNDED_MAX:
        return lzo1x_decompress(body, limit, zero_runs=bool(version))
    from lzallright import LZOCompressor, LZOError

    try:
        return LZOCompressor.decompress(body, limit)
    except LZOError:
        raise _BadStream("not a sound LZO stream") from None


def lzo_version(cdata: bytes) -> int | None:
    """The version that a stream of LZO names; None where it names none.  That of LZO-RLE is 1."""
    return cdata[1] if len(cdata) >= _LZO_VERSIONED_MIN and cdata[0] == _LZO_BITSTREAM else None


def _lzo_worst_case(body: bytes) -> int:
    """Most bytes that a stream can decode to: 255 for each zero byte, else 288 for an instruction of 4 bytes."""
    return 255 * body.count(0) + 72 * len(body)


def lzo1x_decompress(body: bytes, limit: int, *, zero_runs: bool) -> bytes:
    """Decode an LZO1X stream, without its version bytes, to at most limit bytes.

    zero_runs: as LZO-RLE, which turns the longest distance into a run of zeros.  The format is described in
    Documentation/staging/lzo.rst of the kernel.
    """
    try:
        return _lzo1x(body, limit, zero_runs)
    except IndexError:
        raise _BadStream("the stream ends early") from None


def _lzo1x(body: bytes, limit: int, zero_runs: bool) -> bytes:
    out = bytearray()
    at = 0
    literals = 0  # bytes to copy as they are before the next instruction; more than 3 only from a run of them
    state = 0  # how many were copied last: 0, 1 to 3, or 4 for a run
    if body[0] > 17:
        literals, at = body[0] - 17, 1
        state = min(literals, 4)
    while True:
        if literals:
            if len(out) + literals > limit:
                raise _BadStream("too long")
            if at + literals > len(body):
                raise IndexError
            out += body[at : at + literals]
            at += literals
        op = body[at]
        at += 1
        if op < 16 and state == 0:
            literals, at = (op + 3, at) if op else _lzo_length(body, at, 15 + 3)
            state = 4
            continue
        if op >= 64:
            length, distance, low = (op >> 5) + 1, (op >> 2 & 7) + (body[at] << 3) + 1, op
            at += 1
        elif op >= 32:
            length, at = ((op & 31) + 2, at) if op & 31 else _lzo_length(body, at, 31 + 2)
            low = body[at] | body[at + 1] << 8
            distance = (low >> 2) + 1
            at += 2
        elif op >= 16:
            low = body[at] | body[at + 1] << 8
            if zero_runs and op & 0xF8 == 0x18 and low & 0xFFFC == 0xFFFC:
                length, distance = (op & 7 | body[at + 2] << 3) + 4, 0
                at += 3
            else:
                length, at = ((op & 7) + 2, at) if op & 7 else _lzo_length(body, at, 7 + 2)
                low = body[at] | body[at + 1] << 8
                at += 2
                distance = (low >> 2) + ((op & 8) << 11)
                if not distance:
                    break
                distance += 0x4000
        else:
            length, distance, low = (2, 1, op) if state < 4 else (3, 2049, op)
            distance += (op >> 2) + (body[at] << 2)
            at += 1
        if len(out) + length > limit:
            raise _BadStream("too long")
        if distance > len(out):
            raise _BadStream(f"refers to {distance} bytes back, {len(out)} are there")
        if distance == 0:
            out += bytes(length)
        elif distance >= length:
            start = len(out) - distance
            out += out[start : start + length]
        else:
            out += (out[-distance:] * (length // distance + 1))[:length]
        literals = state = low & 3
    if length != 3 or at != len(body):
        raise _BadStream("no proper end of the stream")
    return bytes(out)


def _lzo_length(body: bytes, at: int, base: int) -> tuple[int, int]:
    """A length that goes on in further bytes: (length, where the next byte is)."""
    start = at
    while body[at] == 0:
        at += 1
    return base + 255 * (at - start) + body[at], at + 1
