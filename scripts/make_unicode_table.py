#!/usr/bin/env python3
"""Make f2tools/f2fs/layout/unicode12_1.bin: which code points existed in Unicode 12.1, and which of them are ignorable.

Reads DerivedAge.txt and DerivedCoreProperties.txt of any later Unicode version (Debian: package unicode-data); age and
the properties of old characters don't change, so the result is the same from each.  The file is a list of ranges in
ascending order without overlaps, 7 bytes each: first and last code point (3 bytes, little-endian), and a kind, 1 for
assigned and 2 for ignorable (Default_Ignorable_Code_Point, assigned or not).  What is in no range was unassigned.

    python3 scripts/make_unicode_table.py [/usr/share/unicode] [f2tools/f2fs/layout/unicode12_1.bin]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = (12, 1)
ASSIGNED, IGNORABLE = 1, 2
LINE = re.compile(r"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*([^#]*?)\s*(?:#|$)")
# Unassigned and not ignorable in 12.1; Unicode 14 put a variation selector there.
LATER_IGNORABLE = {0x180F}


def properties(path: Path) -> Iterator[tuple[range, str]]:
    """(code points, value) of each line."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if found := LINE.match(line):
            first = int(found[1], 16)
            yield range(first, int(found[2] or found[1], 16) + 1), found[3]


def kinds(directory: Path) -> bytearray:
    """Kind of every code point."""
    table = bytearray(0x110000)
    for points, age in properties(directory / "DerivedAge.txt"):
        if tuple(int(part) for part in age.split(".")) <= VERSION:
            table[points.start : points.stop] = bytes([ASSIGNED]) * len(points)
    for points, name in properties(directory / "DerivedCoreProperties.txt"):
        if name == "Default_Ignorable_Code_Point":
            for point in set(points) - LATER_IGNORABLE:
                table[point] = IGNORABLE
    return table


def packed(table: bytearray) -> bytes:
    """The ranges."""
    out = bytearray()
    for found in re.finditer(rb"\x01+|\x02+", table):
        out += found.start().to_bytes(3, "little") + (found.end() - 1).to_bytes(3, "little") + found[0][:1]
    return bytes(out)


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode")
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "f2tools/f2fs/layout/unicode12_1.bin"
    target.write_bytes(packed(kinds(directory)))


if __name__ == "__main__":
    main()
