"""An E01 image in several files, made of one in a single file: the same chunks, other sections around them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

HEAD, SECTION, TABLE = 13, 76, 24


def sections(image: bytes) -> Iterator[tuple[str, int, int]]:
    """(type, where it begins, where the next one does) of each section."""
    at = HEAD
    while True:
        kind, following = struct.unpack_from("<16sQ", image, at)
        yield kind.rstrip(b"\0").decode(), at, following
        if following <= at:
            return
        at = following


def summed(data: bytes) -> bytes:
    return data + struct.pack("<I", zlib.adler32(data))


def split(image: bytes, first: Path, files: int, packed: bool = True, smart: bool = False) -> list[Path]:
    """Spread the chunks over so many files, FIRST.E01 and those after it; those that are not `packed` as they are.

    `smart`: as SMART writes them, FIRST.s01 and those after it, with the chunks in the tables.
    """
    places = {kind: (at, following) for kind, at, following in sections(image)}
    count, base = struct.unpack_from("<I4xQ", image, places["table"][0] + SECTION)
    words = struct.unpack_from(f"<{count}I", image, places["table"][0] + SECTION + TABLE)
    ends = [*(base + (word & 0x7FFFFFFF) for word in words), places["table"][0]]
    chunks = [image[start:end] for start, end in pairwise(ends)]
    if not packed:
        chunks = [summed(zlib.decompress(chunk)) for chunk in chunks]
    share = -(-count // files)
    paths = [first.with_suffix(f".{'s' if smart else 'E'}{number:02}") for number in range(1, files + 1)]
    for number, path in enumerate(paths):
        out = bytearray(image[:9] + struct.pack("<H", number + 1) + image[11:HEAD])

        def section(kind: str, body: bytes, out: bytearray = out) -> None:
            following = len(out) + (0 if kind in ("next", "done") and not smart else SECTION + len(body))
            out += summed(struct.pack("<16sQQ40x", kind.encode(), following, SECTION + len(body))) + body

        for kind in ("header2", "header", "volume") if number == 0 else ():
            at, following = places[kind]
            body = image[at + SECTION : following]
            section(kind, summed(body[:85] + b"SMART") if smart and kind == "volume" else body)
        some = chunks[number * share : (number + 1) * share]
        at, entries = len(out) + SECTION + (TABLE + 4 * len(some) if smart else 0), []
        for chunk in some:
            entries.append(at | (0x80000000 if packed else 0))
            at += len(chunk)
        words, table = struct.pack(f"<{len(some)}I", *entries), summed(struct.pack("<I16x", len(some)))
        if smart:
            section("table", table + words + b"".join(some))
        else:
            table += summed(words)
            section("sectors", b"".join(some))
            section("table", table)
            section("table2", table)
        if number == files - 1:
            at, following = places["hash"]
            section("hash", image[at + SECTION : following])
        section("done" if number == files - 1 else "next", b"")
        path.write_bytes(out)
    return paths
