"""The strings in the main area, each with its place and the owner of its block.

A string goes on into the next block only where that is the next one of the same file, by the summaries: blocks that are
merely neighbours aren't joined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.volume.volume import Volume
from f2tools.forensics.remembered import Owner, Remembered
from f2tools.forensics.unowned import windows

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
        breaks = (np.flatnonzero(~joined) + 1) * size
        flat = blocks.content.reshape(-1)
        content = flat.data
        last, place, alive, owner = -1, 0, False, None
        for start, end in _pieces(*_candidates(flat, encoding, least), breaks):
            for match in pattern.finditer(content, start, end):
                row, inside = divmod(match.start(), size)
                if row != last:
                    last, place, alive = row, int(blocks.blkaddrs[row]) * size, bool(live[row])
                    owner = remembered.owner(int(types[row]), *entries[row].item()) if known[row] else None
                yield String(place + inside, match[0].decode(codec, "replace"), alive, owner)


_PRINTABLE = np.zeros(256, np.bool_)
_PRINTABLE[0x20:0x7F] = _PRINTABLE[0x09] = True
_LEADS = ((2, 0xC3, 0xDF), (3, 0xE0, 0xEF), (4, 0xF0, 0xF4))  # of UTF-8: bytes of the character, first bytes


def _candidates(data: NDArray[np.uint8], encoding: str, least: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and ends of where a string may be: runs of bytes that can be in one.  Much quicker than the pattern."""
    stride = 1
    if encoding == "utf-16":
        stride = 2
        fitting = _PRINTABLE[data[:-1]] & (data[1:] == 0)
    else:
        fitting = _PRINTABLE[data]
        if encoding == "utf-8":
            _add_characters(fitting, data)
    width = 1
    while width < least:  # a place is kept where as many as `least` fitting ones follow
        step = min(width, least - width)
        fitting = fitting[: -step * stride] & fitting[step * stride :]
        width += step
    found = np.flatnonzero(fitting)
    if not found.size:
        return found, found
    cuts = np.flatnonzero(np.diff(found) > stride) + 1
    firsts, lasts = found[np.append(0, cuts)], found[np.append(cuts - 1, found.size - 1)]
    return firsts, lasts + least * stride


def _add_characters(fitting: NDArray[np.bool_], data: NDArray[np.uint8]) -> None:
    """Mark the bytes of characters that take several."""
    follows = data & 0xC0 == 0x80
    for length, low, high in _LEADS:
        begins = (data >= low) & (data <= high)
        begins[data.size - length + 1 :] = False
        at = np.flatnonzero(begins)
        for i in range(1, length):
            at = at[follows[at + i]]
        for i in range(length):
            fitting[at + i] = True


def _pieces(starts: NDArray[np.int64], ends: NDArray[np.int64], breaks: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """The ranges, cut where one file ends and another begins."""
    # Ranges don't overlap, so their ends and the cuts within them are in order when they are sorted each by itself.
    after = np.searchsorted(starts, breaks, "left") - 1  # the range that begins before a break
    within = breaks[(after >= 0) & (breaks < ends[after])] if starts.size else breaks[:0]
    yield from zip(
        np.sort(np.concatenate((starts, within))).tolist(),
        np.sort(np.concatenate((ends, within))).tolist(),
        strict=True,
    )
