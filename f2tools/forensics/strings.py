"""The strings in the main area, each with its place and whose block it is in.

A string goes on into the next block only where that is the next one of the same file, by the summaries: what merely
lies side by side isn't joined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from f2tools.forensics.remembered import Owner, Remembered
from f2tools.forensics.unowned import windows
from f2tools.volume.volume import Volume

_ASCII = rb"[\x20-\x7e\t]"
_UTF8 = rb"(?:[\x20-\x7e\t]|[\xc3-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})"
_UTF16 = rb"(?:[\x20-\x7e\t]\0)"
PATTERNS = {"ascii": (_ASCII, "ascii"), "utf-8": (_UTF8, "utf-8"), "utf-16": (_UTF16, "utf-16-le")}
MOST = 65536  # characters of one string; a longer one comes in parts


class String(NamedTuple):
    """A string: its offset in the image, whether a living file owns its block, and the owner by the summaries."""

    offset: int
    text: str
    live: bool
    owner: Owner | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        owner = None if self.owner is None else self.owner.as_dict()
        return {"offset": self.offset, "text": self.text, "live": self.live, "owner": owner}


def find_strings(
    volume: Volume,
    remembered: Remembered,
    least: int = 6,
    encoding: str = "ascii",
    *,
    free: bool = False,
    unreadable: list[int] | None = None,
) -> Iterator[String]:
    """The strings of `least` characters and more, by place; `free`: only in blocks that no living file owns."""
    unit, codec = PATTERNS[encoding]
    pattern = re.compile(b"%b{%d,%d}" % (unit, least, MOST))
    size = volume.geo.block_size
    for blocks in windows(volume, owned=False if free else None, unreadable=unreadable):
        types, entries, known = remembered.summaries.of(blocks.blkaddrs)
        live = volume.sit.valid(blocks.blkaddrs)
        nid, ofs = entries["nid"].astype(np.int64), entries["ofs_in_node"].astype(np.int64)
        joined = (np.diff(blocks.blkaddrs) == 1) & (np.diff(nid) == 0) & (np.diff(ofs) == 1) & (nid[1:] != 0)
        joined &= (live[1:] == live[:-1]) & (entries["version"][1:] == entries["version"][:-1])
        starts = [0, *(np.flatnonzero(~joined) + 1).tolist(), len(nid)]
        for first, last in pairwise(starts):
            content = blocks.content[first:last].reshape(-1).data
            for match in pattern.finditer(content):
                row = first + match.start() // size
                owner = remembered.owner(int(types[row]), *entries[row].item()) if known[row] else None
                offset = int(blocks.blkaddrs[first]) * size + match.start()
                yield String(offset, match[0].decode(codec, "replace"), bool(live[row]), owner)
