"""Files in blocks that no living file owns, found by their first bytes, and their owners by the summaries.

A file goes on in the blocks that follow, as long as the summaries name the same owner and the next offset, and then
wherever the summaries say that the next offsets of this owner lie, where only one block claims that.  Nothing else is
known of it: for names, times, and files whose inodes are still there, `undelete` is better.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import filetype
import numpy as np
from numpy.typing import NDArray

from f2tools import newfile
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.layout.constants import SUM_TYPE_NODE
from f2tools.f2fs.layout.footers import footers_of
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.forensics.endings import end_of
from f2tools.forensics.remembered import Owner, Remembered
from f2tools.forensics.unowned import windows

HEAD_BYTES = 8192  # first bytes that tell a type
MOST_BYTES = 64 << 20  # of one file whose end is not known
WRITE_AT_ONCE = 1 << 20


@dataclass
class Carved:
    """A file that was found: its blocks in the order of the file."""

    blkaddrs: list[int]
    mime: str
    extension: str
    owner: Owner | None
    inline: int | None = None  # it lies in an inode: the byte in the block where it begins
    size: int = 0  # bytes; whole blocks where the end isn't known
    end_by: str | None = None  # what tells its end: format, or inode; None where nothing does
    gathered: int = 0  # blocks that don't follow the one before them on the disk
    file: str | None = None

    def as_dict(self, block_size: int) -> dict[str, Any]:
        """For JSON."""
        return {
            "blkaddr": self.blkaddrs[0],
            "offset": self.blkaddrs[0] * block_size + (self.inline or 0),
            "mime": self.mime,
            "extension": self.extension,
            "size": self.size,
            "end_by": self.end_by,
            "blocks": len(self.blkaddrs),
            "gathered": self.gathered,
            "inline": self.inline is not None,
            "extents": [list(run) for run in runs(self.blkaddrs)],
            "owner": self.owner.as_dict() if self.owner else None,
            "file": self.file,
        }


def runs(blkaddrs: list[int]) -> list[tuple[int, int]]:
    """(first block, blocks) of what lies in a row."""
    found: list[tuple[int, int]] = []
    for blkaddr in blkaddrs:
        if found and sum(found[-1]) == blkaddr:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((blkaddr, 1))
    return found


class Carver:
    """Carves one volume; `remembered` knows the owners."""

    def __init__(self, volume: Volume, remembered: Remembered, wanted: tuple[str, ...] = ()) -> None:
        known = {kind.extension for kind in filetype.TYPES} | {kind.mime.partition("/")[0] for kind in filetype.TYPES}
        for name in wanted:
            if name not in known:
                raise Usage(f"no type is called {name!r}; there are {', '.join(sorted(known))}")
        self._written: set[str] = set()  # names of files
        self.volume = volume
        self._remembered = remembered
        self._wanted = set(wanted)
        self._most = MOST_BYTES // volume.geo.block_size
        self.unreadable: list[int] = []

    def run(self, advance: Callable[[int], None] | None = None) -> list[Carved]:
        """Everything that is found, in the order of the disk."""
        found: list[Carved] = []
        going: Carved | None = None
        before: tuple[int, Any] | None = None  # address and summary of the block before
        for blocks in windows(self.volume, owned=False, unreadable=self.unreadable, advance=advance):
            types, entries, known = self._remembered.summaries.of(blocks.blkaddrs)
            is_node = self._nodes(types, entries, blocks.content)
            rows = zip(blocks.blkaddrs.tolist(), entries.tolist(), known.tolist(), is_node.tolist(), strict=True)
            for i, (blkaddr, entry, there, node) in enumerate(rows):
                if node:
                    inside = self._inline(blkaddr, blocks.content[i], int(types[i]), entry)
                    found += [inside] if inside else []
                    continue
                mark = entry if there and entry[0] else None
                adjacent = before is not None and before[0] + 1 == blkaddr
                unknown = adjacent and before is not None and mark is None and before[1] is None
                goes_on = adjacent and before is not None and mark is not None and _next(before[1]) == mark
                before = (blkaddr, mark)
                kind = None
                if not goes_on and (mark is None or not mark[2]):  # a file doesn't begin in the middle of a node
                    kind = self._begins(blocks.content, i)
                if goes_on or (unknown and kind is None):
                    if going is not None and len(going.blkaddrs) < self._most:
                        going.blkaddrs.append(blkaddr)
                    continue
                going = None
                if kind is None:
                    continue
                owner = self._remembered.owner(int(types[i]), *mark) if mark else None
                going = Carved([blkaddr], kind.mime, kind.extension, owner)
                found.append(going)
        self._gather([carved for carved in found if carved.owner is not None and carved.inline is None])
        for carved in found:
            self._measure(carved)
        return found

    def _nodes(self, types: NDArray[np.uint8], entries: NDArray[Any], content: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which blocks are nodes: by the summary and by their footers."""
        footers = footers_of(content)
        return (types == SUM_TYPE_NODE) & (entries["nid"] == footers["nid"]) & (entries["nid"] != 0)

    def _begins(self, content: NDArray[np.uint8], i: int) -> Any:
        """The type of file that begins in row i; None where none does, or another one is wanted."""
        return self._type(content[i : i + max(1, HEAD_BYTES // content.shape[1])].tobytes())

    def _type(self, data: bytes) -> Any:
        kind = filetype.guess(data)
        if kind is None or not self._wanted or self._wanted & {kind.extension, kind.mime.partition("/")[0]}:
            return kind
        return None

    def _inline(self, blkaddr: int, block: NDArray[np.uint8], entry_type: int, entry: Any) -> Carved | None:
        """A file inside an inode that is no longer in use."""
        ino = int.from_bytes(block[-NodeFooter.size + 4 : -NodeFooter.size + 8].tobytes(), "little")
        if entry[0] != ino:
            return None
        inode = Inode(self.volume.geo, block, ino, blkaddr)
        try:
            if not inode.is_file or not inode.has_inline_data or not inode.i_size:
                return None
            data = inode.inline_data()
            at = inode.inline_area.ctypes.data - block.ctypes.data
        except F2fsError:
            return None
        kind = self._type(data)
        if kind is None:
            return None
        owner = self._remembered.owner(entry_type, *entry)
        return Carved([blkaddr], kind.mime, kind.extension, owner, inline=at, size=len(data), end_by="inode")

    def _gather(self, carved: list[Carved]) -> None:
        """Add blocks that lie elsewhere, where the summaries name exactly one free block as the next of its owner."""
        wanted = {(one.owner.nid, one.owner.version) for one in carved if one.owner}
        if not wanted:
            return
        nids = np.array(sorted({nid for nid, _ in wanted}), np.uint32)
        places: dict[tuple[int, int, int], list[int]] = {}
        geo = self.volume.geo
        for first in range(geo.main_blkaddr, geo.end_blkaddr, 1 << 16):
            blkaddrs = np.arange(first, min(first + (1 << 16), geo.end_blkaddr), dtype=np.int64)
            blkaddrs = blkaddrs[~self.volume.sit.valid(blkaddrs)]
            types, entries, known = self._remembered.summaries.of(blkaddrs)
            chosen = known & (types != SUM_TYPE_NODE) & np.isin(entries["nid"], nids)
            for blkaddr, entry in zip(blkaddrs[chosen].tolist(), entries[chosen].tolist(), strict=True):
                if entry[:2] in wanted:
                    places.setdefault(entry, []).append(blkaddr)
        for one in carved:
            assert one.owner is not None
            ofs = one.owner.ofs_in_node + len(one.blkaddrs)
            while len(one.blkaddrs) < self._most:
                claims = places.get((one.owner.nid, one.owner.version, ofs), [])
                if len(claims) != 1 or claims[0] in one.blkaddrs[-1:]:
                    break
                one.blkaddrs.append(claims[0])
                one.gathered += 1
                ofs += 1

    def _measure(self, carved: Carved) -> None:
        """Find the end, and drop the blocks behind it."""
        if carved.inline is not None:
            return
        block = self.volume.geo.block_size
        data = b"".join(self._pieces(carved))
        end = end_of(carved.extension, data)
        carved.end_by = None if end is None else "format"
        if end is None and carved.owner is not None and carved.owner.ino is not None:
            # a size that needs another number of blocks is another version's, or of the number's next use
            sizes = [size for size in self._remembered.sizes(carved.owner.ino) if 0 < size <= len(data)]
            if sizes and all(-(-size // block) == len(carved.blkaddrs) for size in sizes):
                end, carved.end_by = sizes[-1], "inode"
        carved.size = len(data) if end is None else end
        carved.blkaddrs = carved.blkaddrs[: -(-carved.size // block)]
        carved.gathered = sum(1 for a, b in zip(carved.blkaddrs, carved.blkaddrs[1:], strict=False) if a + 1 != b)

    def _pieces(self, carved: Carved) -> Iterator[bytes]:
        size = self.volume.geo.block_size
        step = WRITE_AT_ONCE // size
        for at in range(0, len(carved.blkaddrs), step):
            addrs = np.array(carved.blkaddrs[at : at + step], np.int64)
            try:
                yield self.volume.device.read_blocks(addrs, size).tobytes()
            except F2fsError:
                yield bytes(addrs.size * size)

    def write(self, carved: Carved, directory: str) -> str:
        """Put a file into a directory, under its block address; the path.

        A file of that name that was there before is replaced, one that this carver wrote is not.
        """
        name = stem = os.path.join(directory, f"{carved.blkaddrs[0]:08x}")
        for number in range(1, 2 + len(self._written)):
            name = f"{stem}.{carved.extension}" if number == 1 else f"{stem}~{number}.{carved.extension}"
            if name not in self._written:
                break
        self._written.add(name)
        with newfile.replacing(name) as out:
            left = carved.size
            start = carved.inline or 0
            for data in self._pieces(carved):
                out.write(data[start : start + left])
                left -= len(data) - start
                start = 0
        carved.file = name
        return name


def _next(mark: Any) -> Any:
    """The summary of the block that follows in the file, as far as the same node goes."""
    return None if mark is None else (mark[0], mark[1], mark[2] + 1)
