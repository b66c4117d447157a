"""What is left in places that living files own but don't use: freed slots of directories, tails of blocks and inodes.

Only what isn't zero is reported.  The kernel clears the rest of a page when it writes it, so tails mostly come from
other writers, from files that shrank, and from inline content that did.  Tails of compressed clusters are not looked
at; those of encrypted files are decrypted where there is a key, and else left out, as they can't be told from zeros.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import F2FS_DEVICE_ALIAS_FL, F2FS_SLOT_LEN, FT_NAMES, NEW_ADDR
from f2tools.f2fs.layout.dentry import dentry_shape
from f2tools.f2fs.layout.footers import body_of
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.f2fs.layout.xattr import XattrHeader, has_xattrs, xattr_places
from f2tools.f2fs.volume.data import Extent
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.forensics.slots import read_slots
from f2tools.text import join, printable_name

BATCH = 512  # last blocks read at a time


@dataclass(frozen=True)
class Slack:
    """A piece: where in the image it is, whose, and its bytes; of a freed slot the name."""

    kind: str  # dentry, tail, inline, xattr
    path: bytes  # of the file or directory that owns the place
    ino: int
    blkaddr: int
    offset: int  # in the image
    data: bytes
    gone_ino: int | None = None
    gone_type: str | None = None
    shown: bytes | None = None  # the name as a reader would see it, where the directory is encrypted

    def name_text(self) -> str:
        """The name in a freed slot."""
        return printable_name((self.shown or self.data).decode("utf-8", "surrogateescape"))

    def preview(self) -> str:
        """The beginning, for a terminal."""
        return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in self.data[:48])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {
            "kind": self.kind,
            "path": self.path.decode("utf-8", "surrogateescape"),
            "ino": self.ino,
            "blkaddr": self.blkaddr,
            "offset": self.offset,
            "length": len(self.data),
            "hex": self.data.hex(),
        }
        if self.kind == "dentry":
            name = (self.shown or self.data).decode("utf-8", "surrogateescape")
            found |= {"name": name, "gone_ino": self.gone_ino, "gone_type": self.gone_type}
        return found


def find_slack(
    volume: Volume, kinds: Collection[str] = (), problems: list[tuple[bytes, str]] | None = None
) -> Iterator[Slack]:
    """The slack of all living files, directory by directory; `kinds`: all if empty.  `problems`: what can't be read."""
    noted = problems if problems is not None else []
    finder = _Finder(volume, set(kinds) or {"dentry", "tail", "inline", "xattr"}, noted)
    met: set[int] = set()
    started: set[int] = set()
    for path, directory, entries in volume.walk("/", noted):
        if directory.ino not in started:
            started.add(directory.ino)
            yield from finder.of_directory(path, directory)
        files: list[tuple[bytes, Inode]] = []
        for entry in entries:
            if isinstance(entry.inode, Inode) and not entry.inode.is_dir and entry.inode.ino not in met:
                if entry.inode.i_links > 1:
                    met.add(entry.inode.ino)
                files.append((join(path, entry.name), entry.inode))
        yield from finder.of_files(files)


class _Finder:
    def __init__(self, volume: Volume, kinds: set[str], problems: list[tuple[bytes, str]]) -> None:
        self._volume = volume
        self._kinds = kinds
        self._problems = problems
        self._size = volume.geo.block_size

    def of_directory(self, path: bytes, directory: Inode) -> Iterator[Slack]:
        """The freed slots of a directory, and behind its attributes."""
        try:
            if "dentry" in self._kinds:
                yield from self._slots(path, directory)
            yield from self._xattrs(path, directory)
        except F2fsError as error:
            self._problems.append((path, str(error)))

    def of_files(self, files: list[tuple[bytes, Inode]]) -> Iterator[Slack]:
        """The tails of files."""
        last: list[tuple[bytes, Inode, int]] = []
        for path, inode in files:
            try:
                yield from self._xattrs(path, inode)
                if inode.is_file and inode.has_inline_data:
                    yield from self._behind_inline(path, inode)
                elif (blkaddr := self._last_block(inode)) is not None:
                    last.append((path, inode, blkaddr))
            except F2fsError as error:
                self._problems.append((path, str(error)))
        for at in range(0, len(last), BATCH):
            yield from self._tails(last[at : at + BATCH])

    # -- directories ------------------------------------------------------------------------------------------------

    def _slots(self, path: bytes, directory: Inode) -> Iterator[Slack]:
        for blkaddr, at, area in self._areas(directory):
            for slot in read_slots(area, self._volume.geo.max_nid):
                if slot.live or not slot.sound:
                    continue
                kind = FT_NAMES[slot.file_type] if slot.file_type < len(FT_NAMES) else None
                offset = blkaddr * self._size + at + _name_at(area.size, slot.slot)
                plain = self._plain(directory, slot.name)
                yield Slack("dentry", path, directory.ino, blkaddr, offset, slot.name, slot.ino, kind, plain)

    def _areas(self, directory: Inode) -> Iterator[tuple[int, int, NDArray[np.uint8]]]:
        """(block address, first byte in the block, bytes) of what holds entries."""
        if directory.has_inline_dentry:
            area = directory.inline_area
            yield directory.blkaddr, area.ctypes.data - directory.block.ctypes.data, area
            return
        for extent in self._volume.data.extents(directory):
            if extent.blkaddr == NEW_ADDR:
                continue
            for i in range(extent.count):
                yield extent.blkaddr + i, 0, self._volume.device.read_range(extent.blkaddr + i, 1, self._size)[0]

    def _plain(self, directory: Inode, name: bytes) -> bytes | None:
        key = self._volume.secrets.of(directory) if self._volume.dirs.encrypted(directory) else None
        try:
            return None if key is None else key.decrypt_name(name)
        except ValueError:
            return None

    # -- tails ------------------------------------------------------------------------------------------------------

    def _behind_inline(self, path: bytes, inode: Inode) -> Iterator[Slack]:
        if "inline" not in self._kinds:
            return
        area = inode.inline_area
        at = area.ctypes.data - inode.block.ctypes.data
        yield from self._piece("inline", path, inode, inode.blkaddr, at + inode.i_size, area[inode.i_size :])

    def _last_block(self, inode: Inode) -> int | None:
        """The address of the last block of a file, where there is room behind the end."""
        plain = inode.is_file and not inode.compressed and not inode.i_flags & F2FS_DEVICE_ALIAS_FL
        if "tail" not in self._kinds or not plain or not inode.i_size % self._size:
            return None
        if self._volume.locked(inode):
            return None
        fofs = inode.i_size // self._size
        item = next(iter(self._volume.data.layout(inode, fofs, fofs + 1)), None)
        if not isinstance(item, Extent) or not self._volume.geo.in_main(np.array([item.blkaddr])).all():
            return None
        return item.blkaddr

    def _tails(self, last: list[tuple[bytes, Inode, int]]) -> Iterator[Slack]:
        blkaddrs = np.array([blkaddr for _, _, blkaddr in last], np.int64)
        try:
            blocks = self._volume.device.read_blocks(blkaddrs, self._size)
        except F2fsError:
            if len(last) == 1:
                self._problems.append((last[0][0], f"its last block {last[0][2]:#x} can't be read"))
                return
            for one in last:
                yield from self._tails([one])
            return
        for (path, inode, blkaddr), block in zip(last, blocks, strict=True):
            key = self._volume.secrets.of(inode) if inode.encrypted else None
            if key is not None:
                block = key.decrypt_blocks(block[None], inode.i_size // self._size)[0]
            at = inode.i_size % self._size
            yield from self._piece("tail", path, inode, blkaddr, at, block[at:])

    # -- attributes -------------------------------------------------------------------------------------------------

    def _xattrs(self, path: bytes, inode: Inode) -> Iterator[Slack]:
        """What stands behind the last attribute, in the inode and in the node for attributes."""
        if "xattr" not in self._kinds:
            return
        inline = inode.inline_xattr_area
        area = inline
        node = None
        if inode.i_xattr_nid:
            node = self._volume.nodes.read([inode.i_xattr_nid], inode.ino)[0]
            area = np.concatenate((inline, body_of(node)))
        end = _end_of_xattrs(area.tobytes())
        if end is None:
            return
        if end < inline.size:
            at = inline.ctypes.data - inode.block.ctypes.data
            yield from self._piece("xattr", path, inode, inode.blkaddr, at + end, inline[end:])
        if node is not None:
            start = max(0, end - inline.size)
            blkaddr = self._volume.nodes.address(inode.i_xattr_nid)
            yield from self._piece("xattr", path, inode, blkaddr, start, node[start : -NodeFooter.size])

    def _piece(
        self, kind: str, path: bytes, inode: Inode, blkaddr: int, at: int, area: NDArray[np.uint8]
    ) -> Iterator[Slack]:
        """From the first byte that isn't zero to the last one; nothing where all are."""
        there = np.flatnonzero(area)
        if there.size:
            first, last = int(there[0]), int(there[-1])
            offset = blkaddr * self._size + at + first
            yield Slack(kind, path, inode.ino, blkaddr, offset, area[first : last + 1].tobytes())


def _name_at(area_size: int, slot: int) -> int:
    """Where in an area the name of a slot is."""
    return dentry_shape(area_size).names_at + F2FS_SLOT_LEN * slot


def _end_of_xattrs(area: bytes) -> int | None:
    """Where the list of attributes ends; None where there is none, or it can't be followed."""
    if not has_xattrs(area):
        return None
    at = XattrHeader.size
    for place in xattr_places(area):
        at = place.following
    return min(len(area), at + 4) if at <= len(area) else None
