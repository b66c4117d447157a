"""Compressed clusters: those of the kernel, our own, and hostile ones."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools.errors import Corrupt, Unsupported
from f2tools.f2fs.volume import compress as cluster
from f2tools.f2fs.volume.compress import (
    ALGORITHMS,
    LZ4,
    LZO,
    LZORLE,
    ZSTD,
    chksum_error,
    compress_cluster,
    decompress_cluster,
    lzo1x_decompress,
    read_header,
)

DATA = Path(__file__).parent / "data"
SIZE = 16384
HEADER = 24


def kernel_clusters() -> list[tuple[str, int, int, int, bytes, str]]:
    """(name, algorithm, i_compress_flag, bytes of the cluster, blocks, SHA-256 of the plain bytes)."""
    blocks = zlib.decompress((DATA / "clusters.bin.z").read_bytes())
    rows, at = [], 0
    for name, algorithm, flag, size, length, digest in json.loads((DATA / "clusters.json").read_text()):
        rows.append((name, algorithm, flag, size, blocks[at : at + length], digest))
        at += length
    return rows


KERNEL = kernel_clusters()
by_name = pytest.mark.parametrize("row", KERNEL, ids=[row[0] for row in KERNEL])


def raw_cluster(cdata: bytes, blocks: int = 3) -> bytes:
    return (struct.pack("<II16x", len(cdata), 0) + cdata).ljust(blocks * 4096, b"\0")


def text(size: int) -> bytes:
    words = random.Random(1)
    return b" ".join(b"%d" % words.randrange(500) for _ in range(size))[:size]


@by_name
def test_the_kernels_clusters_are_decoded(row: tuple[str, int, int, int, bytes, str]) -> None:
    _, algorithm, flag, size, raw, digest = row
    plain = decompress_cluster(raw, algorithm, size, verify=bool(flag & 1))
    assert hashlib.sha256(plain).hexdigest() == digest


def test_the_vectors_have_every_algorithm_and_zero_runs() -> None:
    assert {row[1] for row in KERNEL} == {LZO, LZ4, ZSTD, LZORLE}
    runs = [raw for _, algorithm, _, _, raw, _ in KERNEL if algorithm == LZORLE]
    assert any(re.search(cluster._LZO_ZERO_RUN, raw) for raw in runs)


@by_name
def test_the_python_lzo_decoder_is_the_same(row: tuple[str, int, int, int, bytes, str]) -> None:
    _, algorithm, _, size, raw, digest = row
    if algorithm not in (LZO, LZORLE):
        return
    _, cdata = read_header(raw)
    versioned = cdata[0] == 17
    plain = lzo1x_decompress(cdata[2:] if versioned else cdata, size, zero_runs=versioned)
    assert hashlib.sha256(plain).hexdigest() == digest


@pytest.mark.parametrize("algorithm", range(4), ids=ALGORITHMS)
@pytest.mark.parametrize("level", [0, 1, 9])
@pytest.mark.parametrize("size", [SIZE, 1 << 20])
def test_what_was_compressed_comes_back(algorithm: int, level: int, size: int) -> None:
    for plain in (bytes(size), text(size), b"ab" * (size // 2)):
        raw = compress_cluster(plain, algorithm, level, chksum=True)
        assert raw is not None
        assert len(raw) % 4096 == 0
        assert len(raw) <= size - 4096
        assert chksum_error(raw) is None
        assert decompress_cluster(raw, algorithm, size, verify=True) == plain
        assert read_header(compress_cluster(plain, algorithm, level) or b"")[0] == 0


@pytest.mark.parametrize("algorithm", range(4), ids=ALGORITHMS)
def test_noise_is_not_compressed(algorithm: int) -> None:
    assert compress_cluster(random.Random(2).randbytes(SIZE), algorithm) is None


@pytest.mark.parametrize("algorithm", range(4), ids=ALGORITHMS)
def test_a_cluster_that_saves_just_one_block_is_kept(algorithm: int) -> None:
    plain = random.Random(3).randbytes(SIZE - 4400) + bytes(4400)
    raw = compress_cluster(plain, algorithm)
    assert raw is not None
    assert len(raw) == SIZE - 4096
    assert decompress_cluster(raw, algorithm, SIZE) == plain


def test_lz4hc_is_smaller_than_lz4() -> None:
    plain = text(SIZE)
    sizes = [len(read_header(compress_cluster(plain, LZ4, level) or b"")[1]) for level in (0, 9)]
    assert sizes[1] < sizes[0]


@given(st.binary(min_size=1, max_size=300), st.integers(1, 200), st.sampled_from(range(4)))
def test_any_compressible_cluster_survives(piece: bytes, zeros: int, algorithm: int) -> None:
    plain = ((piece + bytes(zeros)) * SIZE)[:SIZE]
    raw = compress_cluster(plain, algorithm, chksum=True)
    assert raw is not None
    assert decompress_cluster(raw, algorithm, SIZE, verify=True) == plain


def test_a_wrong_checksum_is_corrupt_only_when_asked() -> None:
    plain = text(SIZE)
    raw = bytearray(compress_cluster(plain, LZ4, chksum=True) or b"")
    raw[4] ^= 1
    assert decompress_cluster(bytes(raw), LZ4, SIZE) == plain
    assert chksum_error(bytes(raw))
    with pytest.raises(Corrupt, match="checksum"):
        decompress_cluster(bytes(raw), LZ4, SIZE, verify=True)


@pytest.mark.parametrize("clen", [0, 4096 - HEADER + 1, 0xFFFFFFFF])
def test_a_clen_that_does_not_fit_is_corrupt(clen: int) -> None:
    raw = struct.pack("<II16x", clen, 0).ljust(4096, b"\0")
    for algorithm in range(4):
        with pytest.raises(Corrupt, match="claims"):
            decompress_cluster(raw, algorithm, SIZE)


def test_a_cluster_without_blocks_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="without blocks"):
        decompress_cluster(b"", LZ4, SIZE)


@pytest.mark.parametrize("algorithm", [-1, 4, 99])
def test_an_algorithm_that_does_not_exist_is_unsupported(algorithm: int) -> None:
    with pytest.raises(Unsupported):
        decompress_cluster(raw_cluster(b"abcd"), algorithm, SIZE)
    with pytest.raises(Unsupported):
        compress_cluster(bytes(SIZE), algorithm)


@pytest.mark.parametrize("algorithm", range(4), ids=ALGORITHMS)
def test_content_of_another_size_is_corrupt(algorithm: int) -> None:
    raw = compress_cluster(text(SIZE), algorithm)
    assert raw is not None
    for size in (SIZE // 2, SIZE * 2):
        with pytest.raises(Corrupt):
            decompress_cluster(raw, algorithm, size)


@pytest.mark.parametrize("algorithm", [LZO, LZORLE])
def test_an_lzo_bomb_is_refused_before_it_grows(algorithm: int) -> None:
    bomb = b"\x15abcd\x20" + bytes(1 << 20) + b"\x01\x00\x00\x11\x00\x00"  # would be 256 MiB
    with pytest.raises(Corrupt, match="too long"):
        decompress_cluster(raw_cluster(bomb, 300), algorithm, 1 << 20)


def test_a_zstd_bomb_is_refused() -> None:
    import zstandard

    with pytest.raises(Corrupt):
        decompress_cluster(raw_cluster(zstandard.ZstdCompressor().compress(bytes(1 << 26))), ZSTD, SIZE)
    # a frame that claims more than any machine has
    with pytest.raises(Corrupt):
        decompress_cluster(raw_cluster(b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x7f" + b"\x03\0\0a"), ZSTD, SIZE)


def test_an_lzo_stream_may_not_refer_to_before_its_start() -> None:
    with pytest.raises(Corrupt):
        decompress_cluster(raw_cluster(b"\x16abcde\x40\xff\x11\x00\x00"), LZO, SIZE)


def test_damaged_clusters_give_a_cluster_or_are_corrupt() -> None:
    chance = random.Random(4)
    for _ in range(3000):
        _, algorithm, _, size, raw, _ = chance.choice(KERNEL)
        damaged = bytearray(raw)
        clen = struct.unpack_from("<I", raw)[0]
        for _ in range(chance.randrange(1, 4)):
            at = HEADER + chance.randrange(min(clen, chance.choice((24, clen))))
            damaged[at] = chance.choice((0, 0xFF, chance.randrange(256)))
        try:
            plain = decompress_cluster(bytes(damaged), chance.choice((algorithm, algorithm, chance.randrange(4))), size)
        except Corrupt:
            continue
        assert len(plain) == size


@given(
    st.binary(min_size=1, max_size=80),
    st.sampled_from(range(4)),
    st.sampled_from([b"", b"\x11\x01", b"\x28\xb5\x2f\xfd"]),
)
def test_any_bytes_give_a_cluster_or_are_corrupt(cdata: bytes, algorithm: int, start: bytes) -> None:
    with contextlib.suppress(Corrupt):
        assert len(decompress_cluster(raw_cluster(start + cdata, 1), algorithm, SIZE)) == SIZE


@given(st.binary(max_size=60))
def test_both_lzo_decoders_say_the_same(cdata: bytes) -> None:
    from lzallright import LZOCompressor, LZOError

    stream = b"\x16abcde" + cdata + b"\x11\x00\x00"
    try:
        expected = LZOCompressor.decompress(stream)
    except LZOError:
        expected = None
    try:
        found = lzo1x_decompress(stream, 1 << 20, zero_runs=False)
    except cluster._BadStream:
        found = None
    assert found == expected
