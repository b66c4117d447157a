"""E01 images that are sound as files and hostile inside: chunks, tables and sizes that are made up."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.limits import limited

CHUNK_SECTORS = 64
PACKED = 1 << 31  # of an entry of a table: the chunk is compressed
ZEROS = zlib.compress(bytes(CHUNK_SECTORS * 512))
ANY = list  # entries as they are


def summed(data: bytes) -> bytes:
    return data + struct.pack("<I", zlib.adler32(data))


def section(kind: bytes, at: int, data: bytes, following: int | None = None) -> bytes:
    """A section that begins at a place; the next one follows, or is elsewhere."""
    end = at + 76 + len(data)
    head = kind.ljust(16, b"\0") + struct.pack("<QQ40x", end if following is None else following, 76 + len(data))
    return summed(head) + data


def e01(
    path: Path,
    chunks: list[bytes],
    *,
    chunk_sectors: int = CHUNK_SECTORS,
    sectors: int | None = None,
    count: int | None = None,
    entries: Callable[[list[int]], list[int]] = ANY,
    base: int = 0,
    loop: bool = False,
) -> Path:
    """An image of compressed chunks, with what is said otherwise."""
    out = b"EVF\x09\x0d\x0a\xff\x00" + struct.pack("<BHH", 1, 1, 0)
    out += section(b"header", len(out), zlib.compress(b"1\r\nmain\r\nc\tn\r\n\t\r\n\r\n"))
    media = struct.pack(
        "<B3xIIIQ", 1, len(chunks) if count is None else count, chunk_sectors, 512,
        len(chunks) * CHUNK_SECTORS if sectors is None else sectors,
    )  # fmt: skip
    out += section(b"volume", len(out), summed(media.ljust(1048, b"\0")))
    at, offsets = len(out) + 76, []
    for chunk in chunks:
        offsets.append(at | PACKED)
        at += len(chunk)
    out += section(b"sectors", len(out), b"".join(chunks))
    table = entries(offsets)
    content = summed(struct.pack("<I4xQ4x", len(table), base)) + summed(struct.pack(f"<{len(table)}I", *table))
    for kind in (b"table", b"table2"):
        out += section(kind, len(out), content)
    path.write_bytes(out + section(b"done", len(out), b"", 13 if loop else len(out)))
    return path


HOSTILE = {
    "chunks of 300 MB": {"chunks": [zlib.compress(bytes(300 << 20), 1)] * 2},
    "a chunk of 2 TB": {"chunks": [ZEROS], "chunk_sectors": 0xFFFFFFFF},
    "a chunk of 2 GB": {"chunks": [ZEROS], "chunk_sectors": 0x3FFFFF},
    "a disk of 2^71 bytes": {"chunks": [ZEROS], "sectors": 1 << 62},
    "a disk of 512 TB": {"chunks": [ZEROS], "sectors": 1 << 40},
    "four thousand million chunks": {"chunks": [ZEROS], "count": 0xFFFFFFFF, "sectors": 1 << 36},
    "chunks outside of the file": {"chunks": [ZEROS] * 64, "entries": lambda found: [at + (1 << 24) for at in found]},
    "chunks within each other": {"chunks": [ZEROS] * 64, "entries": lambda found: [found[0] + i for i in range(64)]},
    "chunks that are all the same": {"chunks": [ZEROS] * 64, "entries": lambda found: found[:1] * 64},
    "chunks that are sections": {"chunks": [ZEROS] * 64, "entries": lambda _: [13 | PACKED] * 64},
    "tables far away": {"chunks": [ZEROS] * 64, "base": 1 << 62},
    "sections that lead back": {"chunks": [ZEROS] * 64, "loop": True},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_e01_image_ends_with_a_word(what: str, tmp_path: Path) -> None:
    done = limited("dump", "info", e01(tmp_path / "image.E01", **HOSTILE[what]))
    assert done.code != 0
    assert done.err.startswith("f2tools: ")
    assert len(done.err.splitlines()) == 1


def test_a_sound_e01_image_made_so_is_read(tmp_path: Path) -> None:
    done = limited("dump", "info", e01(tmp_path / "image.E01", [ZEROS] * 64))
    assert "nothing but zeros" in done.err


def test_an_e01_image_with_a_table_of_millions_is_refused(tmp_path: Path) -> None:
    """12 MB of entries that are all the same chunk took half a gigabyte."""
    many = 3 << 20
    image = e01(tmp_path / "image.E01", [ZEROS], count=many, sectors=64 * many, entries=lambda found: found * many)
    done = limited("dump", "info", image)
    assert done.code != 0
    assert "more than any program writes" in done.err
