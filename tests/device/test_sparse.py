"""Android sparse images, read and written; img2simg and simg2img are the judges of both directions."""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from f2tools.device import open_device
from f2tools.device.containers.sparse import (
    CHUNK_HEADER,
    CRC32,
    DONT_CARE,
    FILE_HEADER,
    FILL,
    MAGIC,
    RAW,
    crc32_of_repeats,
    open_sparse,
    write_sparse,
)
from f2tools.device.media.image import create_image, open_image
from f2tools.errors import DeviceError, Unsupported, Usage
from tests.device.memory import Memory
from tests.judges import missing_judge

BLOCK = 4096
Chunk = tuple[int, int, bytes]  # type, blocks, what follows the header


def sparse_file(
    chunks: Iterable[Chunk], block_size: int = BLOCK, file_header: int = 28, chunk_header: int = 12
) -> bytes:
    chunks = list(chunks)
    blocks = sum(count for _, count, _ in chunks)
    sizes = file_header, chunk_header
    out = FILE_HEADER.pack(MAGIC, 1, 0, *sizes, block_size, blocks, len(chunks), 0).ljust(file_header, b"\xaa")
    for kind, count, body in chunks:
        out += CHUNK_HEADER.pack(kind, 0, count, chunk_header + len(body)).ljust(chunk_header, b"\xbb") + body
    return out


def patched(data: bytes, offset: int, fmt: str, value: int) -> bytes:
    new = struct.pack(fmt, value)
    assert data[offset : offset + len(new)] != new
    return data[:offset] + new + data[offset + len(new) :]


def unpacked(chunks: Iterable[Chunk], block_size: int = BLOCK) -> bytes:
    out = b""
    for kind, count, body in chunks:
        out += {RAW: body, FILL: body * (count * block_size // 4), DONT_CARE: bytes(count * block_size)}.get(kind, b"")
    return out


def some_bytes(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).tobytes()


def judge(name: str) -> str:
    found = shutil.which(name)
    return found or missing_judge(name, "whether the Android tools agree about sparse images")


EVERY_KIND: list[Chunk] = [
    (RAW, 2, some_bytes(2 * BLOCK)),
    (FILL, 3, b"\x01\x02\x03\x04"),
    (DONT_CARE, 4, b""),
    (FILL, 1, bytes(4)),
    (RAW, 0, b""),
    (RAW, 1, some_bytes(BLOCK, 1)),
    (FILL, 1, b"abcd"),
    (FILL, 2, b"abcd"),
    (DONT_CARE, 1, b""),
]


@pytest.mark.parametrize(("file_header", "chunk_header"), [(28, 12), (32, 12), (28, 16), (64, 40)])
def test_every_kind_of_chunk_reads_at_every_offset(tmp_path: Path, file_header: int, chunk_header: int) -> None:
    path = tmp_path / "x.simg"
    path.write_bytes(sparse_file(EVERY_KIND, file_header=file_header, chunk_header=chunk_header))
    whole = unpacked(EVERY_KIND)
    with open_sparse(path) as image:
        assert image.size_bytes == image.readable_bytes == len(whole)
        assert image.pread(0, len(whole)) == whole
        for length in (1, 3, 4096, 9001):
            for offset in range(0, len(whole) - length, 1237):
                assert image.pread(offset, length) == whole[offset : offset + length]
        assert list(image.data_ranges(0, 1 << 40)) == [(0, 5 * BLOCK), (10 * BLOCK, 4 * BLOCK)]
        assert list(image.data_ranges(4 * BLOCK + 1, 2 * BLOCK)) == [(4 * BLOCK + 1, BLOCK - 1)]
        blocks = image.read_blocks(np.array([13, 0, 4, 5, 14, 4]), BLOCK)
        assert blocks.tobytes() == b"".join(whole[b * BLOCK :][:BLOCK] for b in (13, 0, 4, 5, 14, 4))
        assert image.verify() == 0


def test_where_raw_bytes_can_be_copied_from(tmp_path: Path) -> None:
    path = tmp_path / "x.simg"
    path.write_bytes(sparse_file(EVERY_KIND))
    with open_sparse(path) as image:
        source = image.extent_source(100, 8000)
        assert source is not None
        assert source[1] == 28 + 12 + 100
        assert image.extent_source(BLOCK, 2 * BLOCK) is None
        assert image.extent_source(3 * BLOCK, 4) is None


def test_it_is_never_written_to(tmp_path: Path) -> None:
    path = tmp_path / "x.simg"
    path.write_bytes(before := sparse_file(EVERY_KIND))
    with open_device(path) as image:
        image.flush()
        for change in (image.discard, image.write_zeroes):
            with pytest.raises(DeviceError, match="can't be changed in place"):
                change(0, 4096)
        with pytest.raises(DeviceError, match="can't be changed in place"):
            image.pwrite(0, b"x")
    with pytest.raises(Unsupported, match="make a raw copy: `simg2img "):
        open_device(path, write=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("cut", [*range(28, 60), 28 + 12 + 2 * BLOCK - 1, -BLOCK, -100, -30, -13, -12, -1])
def test_of_a_file_that_is_cut_off_what_is_there_can_be_read(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "x.simg"
    path.write_bytes(sparse_file(EVERY_KIND)[:cut])
    whole = unpacked(EVERY_KIND)
    with open_sparse(path) as image:
        there = image.readable_bytes
        assert image.size_bytes == len(whole)
        assert there < len(whole)
        assert image.pread(0, there) == whole[:there]
        assert (image.missing_bytes, "cut off" in image.loss) == (len(whole) - there, True)
        for offset in (0, there - 1, there, len(whole) - 1):
            if offset >= 0:
                with pytest.raises(DeviceError, match=r"cut off: only the first \d+ of \d+ bytes"):
                    image.pread(offset, len(whole) - offset)
        with pytest.raises(DeviceError, match="cut off"):
            image.verify()
        known_zero = np.ones(len(whole), bool)
        for offset, length in image.data_ranges(0, len(whole)):
            known_zero[offset : offset + length] = False
        assert not known_zero[there:].any(), "what is missing is not known to be zero"


WHOLE = sparse_file(EVERY_KIND)


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (b"\x3a\xff\x26\xed", DeviceError, "too few"),
        (patched(WHOLE, 0, "<I", 1), DeviceError, "not an Android sparse image"),
        (patched(WHOLE, 4, "<H", 2), Unsupported, "version 2.0"),
        (patched(WHOLE, 8, "<H", 27), DeviceError, "too small"),
        (patched(WHOLE, 10, "<H", 11), DeviceError, "too small"),
        (patched(WHOLE, 12, "<I", 0), DeviceError, "no block size"),
        (patched(WHOLE, 12, "<I", 4098), DeviceError, "no block size"),
        (patched(WHOLE, 12, "<I", 0xFFFFFFFC), DeviceError, "no block size"),
        (patched(WHOLE, 16, "<I", 14), DeviceError, "past the image's end"),
        (patched(WHOLE, 16, "<I", 16), DeviceError, "chunks hold 15 blocks, its header says 16"),
        (patched(WHOLE, 20, "<I", 5), DeviceError, "its 5 chunks hold 10 blocks"),
        (patched(WHOLE, 28, "<H", 0xCAC5), DeviceError, "chunk 0 at offset 0x1c is of unknown type 0xcac5"),
        (patched(WHOLE, 32, "<I", 1), DeviceError, "takes 8204 bytes, not 4108"),
        (patched(WHOLE, 32, "<I", 0xFFFFFFFF), DeviceError, "takes"),
        (patched(WHOLE, 36, "<I", 0xFFFFFFFF), DeviceError, "takes"),
        (sparse_file([(FILL, 1, b"abcdefgh")]), DeviceError, "takes 20 bytes, not 16"),
        (sparse_file([(DONT_CARE, 1, b"abcd")]), DeviceError, "takes 16 bytes, not 12"),
        (sparse_file([(CRC32, 0, b"")]), DeviceError, "takes 12 bytes, not 16"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    tmp_path: Path, content: bytes, error: type[Exception], says: str
) -> None:
    path = tmp_path / "x.simg"
    path.write_bytes(content)
    with pytest.raises(error, match=says) as caught:
        open_sparse(path)
    assert str(path) in str(caught.value)


def test_more_chunks_than_the_file_can_hold_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.simg"
    path.write_bytes(patched(WHOLE, 20, "<I", 0xFFFFFFFF))
    with open_sparse(path) as image:
        assert image.readable_bytes == image.size_bytes


def test_no_blocks_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.simg"
    path.write_bytes(sparse_file([]))
    with open_sparse(path) as image:
        assert image.size_bytes == 0
        assert image.pread(0, 0) == b""
        assert list(image.data_ranges(0, 10)) == []
        with pytest.raises(DeviceError, match="past its end"):
            image.pread(0, 1)


def crc_chunk(chunks: list[Chunk]) -> Chunk:
    return CRC32, 0, struct.pack("<I", zlib.crc32(unpacked(chunks)))


def test_checksums_are_looked_at_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "x.simg"
    good = [*EVERY_KIND[:3], crc_chunk(EVERY_KIND[:3]), *EVERY_KIND[3:], crc_chunk(EVERY_KIND)]
    content = patched(sparse_file(good), 24, "<I", zlib.crc32(unpacked(EVERY_KIND)))
    path.write_bytes(content)
    with open_sparse(path) as image:
        assert image.verify() == 3
    for bad in (
        patched(content, 24, "<I", 77),
        patched(content, len(content) - 4, "<I", 77),
        patched(content, 28 + 12, "<I", 77),
    ):
        path.write_bytes(bad)
        with open_sparse(path) as image, pytest.raises(DeviceError, match=r"have CRC-32 0x[0-9a-f]{8}, not 0x"):
            image.verify()


def test_the_checksum_of_a_huge_hole_takes_no_time(tmp_path: Path) -> None:
    path = tmp_path / "x.simg"
    path.write_bytes(patched(sparse_file([(DONT_CARE, 0xFFFFFFF0, b"")], 65536), 24, "<I", 77))
    with open_sparse(path) as image, pytest.raises(DeviceError, match="CRC-32"):
        image.verify()


@given(st.integers(0, 2**32 - 1), st.binary(min_size=1, max_size=9), st.integers(0, 3000))
def test_checksums_of_repetitions(crc: int, pattern: bytes, count: int) -> None:
    assert crc32_of_repeats(crc, pattern, count) == zlib.crc32(pattern * count, crc)


# --- writing


def image_of(blocks: str, path: Path) -> bytes:
    """A file from letters: "." a hole, "0" written zeros, a-z a fill, A-Z noise; one block each."""
    content = b""
    with path.open("wb") as f:
        for i, letter in enumerate(blocks):
            if letter in ".0":
                block = bytes(BLOCK)
            elif letter.islower():
                block = (letter * 2 + "\0x").encode() * (BLOCK // 4)
            else:
                block = some_bytes(BLOCK, ord(letter))
            content += block
            if letter != ".":
                f.seek(i * BLOCK)
                f.write(block)
        f.truncate(len(blocks) * BLOCK)
    return content


def chunks_of(path: Path) -> list[tuple[int, int]]:
    data = path.read_bytes()
    found, at = [], 28
    for _ in range(FILE_HEADER.unpack_from(data)[7]):
        kind, _, blocks, size = CHUNK_HEADER.unpack_from(data, at)
        found.append((kind, blocks))
        at += size
    assert at == len(data)
    return found


def written(blocks: str, directory: Path, **options: Any) -> tuple[bytes, Path]:
    content = image_of(blocks, directory / "raw")
    with open_image(directory / "raw") as src:
        size = write_sparse(src, directory / "x.simg", **options)
    assert size == (directory / "x.simg").stat().st_size
    return content, directory / "x.simg"


def test_holes_fills_and_the_rest_become_the_right_chunks(tmp_path: Path) -> None:
    content, path = written("...AAB.aab00..C0", tmp_path)
    hole, fill = DONT_CARE, FILL
    assert chunks_of(path) == [
        (hole, 3), (RAW, 3), (hole, 1), (fill, 2), (fill, 1), (fill, 2), (hole, 2), (RAW, 1), (fill, 1)
    ]  # fmt: skip
    with open_sparse(path) as image:
        assert image.pread(0, image.size_bytes) == content


def test_which_zeros_may_be_left_out_can_be_said(tmp_path: Path) -> None:
    content, path = written("..A.0.B0", tmp_path, dont_care=[(3 * BLOCK, 3 * BLOCK), (6 * BLOCK, 2 * BLOCK - 1)])
    assert chunks_of(path) == [(FILL, 2), (RAW, 1), (DONT_CARE, 3), (RAW, 1), (FILL, 1)]
    assert open_sparse(path).pread(0, len(content)) == content
    _, path = written("..A.0.B0", tmp_path, dont_care=[])
    assert [kind for kind, _ in chunks_of(path)] == [FILL, RAW, FILL, RAW, FILL]
    _, path = written("..A.0.B0", tmp_path, dont_care=[(5 * BLOCK, 3 * BLOCK), (0, 99 * BLOCK), (1, 7)])
    assert [kind for kind, _ in chunks_of(path)] == [DONT_CARE, RAW, DONT_CARE, RAW, DONT_CARE]


def test_a_last_block_that_is_not_whole_is_filled_up(tmp_path: Path) -> None:
    write_sparse(Memory(b"x" * 5000), tmp_path / "x.simg")
    assert open_sparse(tmp_path / "x.simg").pread(0, 8192) == b"x" * 5000 + bytes(3192)


def test_a_chunk_can_be_checksummed(tmp_path: Path) -> None:
    _, path = written("..AAaa00.B", tmp_path, checksum=True)
    assert open_sparse(path).verify() == 1


def test_a_sparse_image_can_be_written_again(tmp_path: Path) -> None:
    _, path = written("..AAaa00.B", tmp_path)
    with open_sparse(path) as image:
        write_sparse(image, tmp_path / "again", dont_care=[(0, 2 * BLOCK), (8 * BLOCK, BLOCK)])
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    class Failing(Memory):
        def pread_into(self, offset: int, buffer: Any) -> None:
            raise DeviceError("broken cable")

    target = tmp_path / "x.simg"
    target.write_text("what was there")
    with pytest.raises(DeviceError, match="broken cable"):
        write_sparse(Failing(1 << 20), target)
    assert target.read_text() == "what was there"
    assert [p.name for p in tmp_path.iterdir()] == ["x.simg"]


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="No such file"):
        write_sparse(Memory(4096), tmp_path / "missing" / "x")
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(DeviceError, match="writing failed"):
        write_sparse(Memory(4096), tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    for size in (0, 1000, 4098):
        with pytest.raises(Usage, match="block size"):
            write_sparse(Memory(4096), tmp_path / "x", size)
    big = Memory(0)
    big.size_bytes = 1 << 44
    with pytest.raises(Usage, match="too many"):
        write_sparse(big, tmp_path / "x")


letters = st.text(st.sampled_from("..00aabAAB"), max_size=40)


@settings(max_examples=60)
@given(letters)
def test_what_is_written_reads_back(tmp_path_factory: pytest.TempPathFactory, blocks: str) -> None:
    content, path = written(blocks, tmp_path_factory.mktemp("sparse"))
    with open_sparse(path) as image:
        assert image.pread(0, image.size_bytes) == content
    assert len(chunks_of(path)) <= len(blocks)


@settings(max_examples=25)
@given(letters.filter(bool), st.booleans())
def test_simg2img_unpacks_what_we_write(tmp_path_factory: pytest.TempPathFactory, blocks: str, checksum: bool) -> None:
    directory = tmp_path_factory.mktemp("sparse")
    content, path = written(blocks, directory, checksum=checksum)
    subprocess.run([judge("simg2img"), path, directory / "out"], check=True, capture_output=True)
    assert (directory / "out").read_bytes() == content


@settings(max_examples=25)
@given(letters.filter(bool))
def test_we_read_what_img2simg_writes(tmp_path_factory: pytest.TempPathFactory, blocks: str) -> None:
    directory = tmp_path_factory.mktemp("sparse")
    content = image_of(blocks, directory / "raw")
    subprocess.run([judge("img2simg"), directory / "raw", directory / "x.simg"], check=True, capture_output=True)
    with open_device(directory / "x.simg") as image:
        assert image.pread(0, image.size_bytes) == content


def test_the_reference_image_of_a_phone(reference: Callable[[str], Any], tmp_path: Path) -> None:
    case = reference("sparse-phone")
    with open_device(case.path) as image, create_image(tmp_path / "raw", image.size_bytes) as out:
        whole = hashlib.sha256()
        for at in range(0, image.size_bytes, 1 << 20):
            piece = image.pread(at, min(1 << 20, image.size_bytes - at))
            whole.update(piece)
            if any(piece):
                out.pwrite(at, piece)
        assert whole.hexdigest() == case.case["raw_sha256"]
        write_sparse(out, tmp_path / "again")
    subprocess.run([judge("simg2img"), tmp_path / "again", tmp_path / "back"], check=True, capture_output=True)
    with (tmp_path / "back").open("rb") as f:
        assert hashlib.file_digest(f, "sha256").hexdigest() == case.case["raw_sha256"]
