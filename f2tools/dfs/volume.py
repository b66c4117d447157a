"""Reading a volume: superblock, inodes, directories, content.  Nothing is written.

A transaction that a power cut left in the write-ahead log is seen as if it were in its place.  Reading a byte of a file
takes its inode and that byte's block, at any offset: the address is the base plus the offset.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID
from zlib import crc32

from f2tools.device.advice import instead
from f2tools.device.base import Device
from f2tools.device.open import open_device
from f2tools.dfs.buckets import BUCKET_BLOCKS, bucket_of
from f2tools.dfs.dentries import Dentry, Malformed, entries_of, entry_problem
from f2tools.dfs.inode import Inode, parse_inode
from f2tools.dfs.layout import (
    BLOCK,
    INODE_START,
    LEAST_CHUNK_BITS,
    LEAST_WAL_BLOCKS,
    MAGIC,
    MOST_CHUNK_BITS,
    MOST_SLOT_BLOCKS,
    MOST_WAL_BLOCKS,
    ROOT_INO,
    SUPER_PLACES,
    VERSION,
    VERSION_HASHED,
    Geometry,
    Superblock,
)
from f2tools.dfs.wal import Transaction, read_transaction
from f2tools.errors import Corrupt, F2fsError, Unsupported, Where
from f2tools.flash.vsl import WHOLE_SPACE, Vsl

if TYPE_CHECKING:
    from f2tools.copyout.parts import Part

FIRST_WINDOW, MOST_RUNS = 1 << 12, 512  # of a directory that is looked through
MAX_LINKS = 40  # symbolic links on the way to a file, as the kernel has it


class NotDfs(F2fsError):
    """There is no Direct File System here."""


def not_dfs(device: Device, other: str = "`f2tools dfs mkfs` makes one") -> NotDfs:
    """The error for a device without a volume: what is there instead, or `other`."""
    return NotDfs(f"{device.name}: no Direct File System; {instead(device, other)}")


def read_super(layer: Vsl, place: int) -> Superblock:
    """One copy of the superblock; Corrupt where it is not whole."""
    sb = Superblock.parse(layer.read_vblocks(place, 1))
    where = Where(area="superblock", blkaddr=place)
    if sb.magic != MAGIC or sb.crc != crc32(sb.build()[:-4]):
        raise Corrupt(where, "no superblock of a Direct File System")
    if sb.version not in (VERSION, VERSION_HASHED):
        raise Unsupported(f"{layer.name}: version {sb.version} of the format; 1 and 2 are known here")
    if not LEAST_CHUNK_BITS <= sb.chunk_bits <= MOST_CHUNK_BITS:
        raise Corrupt(where, f"chunks of 2^{sb.chunk_bits} blocks")
    if sb.slot_blocks & (sb.slot_blocks - 1) or not 1 <= sb.slot_blocks <= MOST_SLOT_BLOCKS:
        raise Corrupt(where, f"slots of {sb.slot_blocks} blocks")
    least, most = (LEAST_WAL_BLOCKS, MOST_WAL_BLOCKS) if sb.version == VERSION else (0, 0)
    if not least <= sb.wal_blocks <= most:
        raise Corrupt(where, f"a write-ahead log of {sb.wal_blocks} blocks")
    return sb


def newest_super(layer: Vsl) -> Superblock:
    """The superblock that counts; NotDfs where there is none."""
    if layer.space_blocks != WHOLE_SPACE:
        raise not_dfs(layer, "one needs all of the layer's 2^64 blocks")
    if layer.mapped_blocks > min(layer.capacity_blocks, layer.medium.blocks * layer.log.slots_per_block):
        raise Corrupt(Where(area="storage layer"), "more blocks are mapped than it has; `f2tools vsl check` says more")
    found: list[Superblock] = []
    for place in SUPER_PLACES:
        try:
            found.append(read_super(layer, place))
        except (Corrupt, F2fsError) as error:
            if isinstance(error, Unsupported):
                raise
    if not found:
        raise not_dfs(layer)
    return max(found, key=lambda sb: sb.seq)


def fail(number: int, name: bytes | str | None = None) -> OSError:
    """An error of a system call."""
    shown = os.fsdecode(name) if name is not None else None
    return OSError(number, os.strerror(number), shown) if shown is not None else OSError(number, os.strerror(number))


class Volume:
    """A Direct File System on a layer, which it owns; see the module's docstring."""

    def __init__(self, layer: Vsl) -> None:
        self.layer = layer
        self.name = layer.name
        self.sb = newest_super(layer)
        self.geo = Geometry(self.sb.chunk_bits, self.sb.slot_blocks, self.sb.wal_blocks)
        self.uuid = UUID(bytes=self.sb.uuid)
        self.hash_key = self.sb.uuid

    @cached_property
    def waiting(self) -> Transaction | None:
        """What a power cut left in the write-ahead log, if there is one."""
        return None if self.geo.hashed else read_transaction(self.layer, self.geo.wal_blocks)

    @property
    def doubt(self) -> str | None:
        """What is to be said of a volume of which the layer lost something and can't tell what."""
        count = self.layer.lost_pages
        if not count:
            return None
        pages = "1 page" if count == 1 else f"{count} pages"
        return (
            f"{pages} of the storage layer can't be read, and nothing tells what was there: content may be missing or "
            "older; `f2tools dfs fsck` says more"
        )

    @property
    def clean(self) -> bool:
        """Whether the volume was closed."""
        return bool(self.sb.clean)

    def close(self) -> None:
        self.layer.close()

    def __enter__(self) -> Volume:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- blocks

    def block(self, address: int) -> bytes:
        """A block of inodes or directories, as it is after the write-ahead log."""
        if self.waiting is not None:
            if address in self.waiting.images:
                return self.waiting.images[address]
            if any(start <= address < start + count for start, count in self.waiting.trims):
                return bytes(BLOCK)
        return self.layer.read_vblocks(address, 1)

    def mapped(self, start: int, count: int) -> list[tuple[int, int]]:
        """(first block, count) of what has content in a range, as it is after the write-ahead log."""
        found = self.layer.extents(start, count)
        if self.waiting is None:
            return found
        for first, length in self.waiting.trims:
            found = [part for run in found for part in _without(run, first, length)]
        extra = [(block, 1) for block in self.waiting.images if start <= block < start + count]
        return joined(found + extra)

    # -- inodes

    def inode(self, ino: int) -> Inode:
        """The inode with this number; Corrupt where there is none that can be used."""
        if not 0 < ino <= self.geo.max_ino:
            raise Corrupt(Where(ino=ino), f"no inode has this number; the highest is {self.geo.max_ino}")
        return parse_inode(self.geo, ino, self.block(self.geo.inode_block(ino)))

    def inode_numbers(self) -> Iterator[int]:
        """The numbers of all inodes that are not free."""
        for start, count in self.mapped(INODE_START, self.geo.max_ino + 1):
            yield from range(start - INODE_START, start - INODE_START + count)

    def mapped_blocks(self, inode: Inode) -> int:
        """How many blocks a file's content takes."""
        return sum(count for _, count in self.content_extents(inode))

    def content_extents(self, inode: Inode) -> list[tuple[int, int]]:
        """(first block, count) of a file's content, in the space."""
        return self.mapped(inode.base, self.reach(inode)) if inode.base and inode.size else []

    def reach(self, inode: Inode) -> int:
        """How many blocks from its base on may have content: all of the chunk where that is a hashed directory's."""
        return self.geo.chunk_blocks if inode.is_dir and self.geo.hashed else inode.blocks

    # -- content

    def read_content(self, inode: Inode, offset: int, length: int) -> bytes:
        """Bytes of a file or a link, cut at its end."""
        length = max(0, min(length, inode.size - offset))
        if not length:
            return b""
        if inode.inline:
            return inode.inline[offset : offset + length]
        if inode.is_dir:
            return b"".join(self.block(inode.base + n) for n in range(offset // BLOCK, -(-(offset + length) // BLOCK)))
        return self.layer.pread(inode.base * BLOCK + offset, length)

    def empty_blocks(self, inode: Inode) -> int:
        """How many blocks of a file read as zeros and take no room."""
        return inode.blocks - self.mapped_blocks(inode) if inode.is_file and not inode.inline else 0

    def data_ranges(self, inode: Inode, unknown: list[Part] | None = None) -> Iterator[tuple[int, int]]:
        """(offset, length) of what is not a hole in a file; nothing of that is `unknown`, the layer's map tells it."""
        for start, count in self.content_extents(inode):
            offset = (start - inode.base) * BLOCK
            yield offset, min(count * BLOCK, inode.size - offset)

    def readlink(self, inode: Inode) -> bytes:
        """Where a symbolic link leads."""
        if not inode.is_link:
            raise fail(errno.EINVAL)
        if inode.size > 4096:
            raise Corrupt(Where(ino=inode.ino), f"a link of {inode.size} bytes")
        return self.read_content(inode, 0, inode.size)

    # -- as a tree that is listed and copied out

    @property
    def root(self) -> Inode:
        return self.inode(ROOT_INO)

    def names_in(self, directory: Inode, problems: list[str]) -> Iterator[tuple[bytes, int]]:
        """(name, inode number) of the entries of a directory except `.` and `..`; what can't be used is noted."""
        return (
            (one.name, one.ino) for one in self.dentries(directory, problems=problems) if one.name not in (b".", b"..")
        )

    def opened(self, key: int) -> Inode:
        """The inode with this number."""
        return self.inode(key)

    def bytes_taken(self, inode: Inode) -> int:
        """How much room a file's content takes."""
        return self.mapped_blocks(inode) * BLOCK

    # -- directories

    def dentries(self, inode: Inode, start: int = 0, problems: list[str] | None = None) -> Iterator[Dentry]:
        """The entries of a directory that stand at byte `start` or behind it, `.` and `..` too.

        Nonsense is Corrupt, or with `problems` noted there and passed over.
        """
        first = inode.base + start // BLOCK
        for block in self._mapped_in(first, inode.base + self.reach(inode)):
            at = (block - inode.base) * BLOCK
            for entry in self._entries_of(inode, block, at, problems):
                if entry.offset >= start:
                    yield entry

    def _mapped_in(self, start: int, end: int) -> Iterator[int]:
        """The mapped blocks of a range, which may be a chunk with little in it: not all are looked up at once."""
        window = FIRST_WINDOW
        while start < end:
            runs = self.mapped(start, min(window, end - start))
            yield from (block for first, count in runs for block in range(first, first + count))
            start += window
            window = window * 16 if not runs else max(window // 4, BUCKET_BLOCKS) if len(runs) > MOST_RUNS else window

    def _entries_of(self, inode: Inode, block: int, at: int, problems: list[str] | None) -> Iterator[Dentry]:
        try:
            entries = entries_of(self.block(block), at)
        except (Malformed, F2fsError) as error:
            if problems is None:
                raise Corrupt(Where(ino=inode.ino, offset=at), f"a directory block is damaged: {error}") from None
            problems.append(f"the block at {at:#x} is damaged: {error}")
            return
        for entry in entries:
            problem = entry_problem(self.geo, entry)
            if problem is None:
                yield entry
            elif problems is None:
                raise Corrupt(Where(ino=inode.ino, offset=entry.offset), problem)
            else:
                problems.append(problem)

    def find(self, inode: Inode, name: bytes) -> Dentry | None:
        """The entry of that name."""
        if not inode.is_dir:
            raise fail(errno.ENOTDIR, name)
        if not self.geo.hashed:
            return next((entry for entry in self.dentries(inode) if entry.name == name), None)
        first = inode.base + bucket_of(self.geo, self.hash_key, name)
        for start, count in self.mapped(first, BUCKET_BLOCKS):
            for block in range(start, start + count):
                for entry in self._entries_of(inode, block, (block - inode.base) * BLOCK, None):
                    if entry.name == name:
                        return entry
        return None

    def at_path(self, path: bytes, *, follow: bool = True) -> Inode:
        """The inode behind a path from the root; `ino:NUMBER` is one by its number.  ENOENT, ENOTDIR, ELOOP."""
        if path.startswith(b"ino:") and path[4:].isdigit():
            return self.inode(int(path[4:]))
        here = self.inode(ROOT_INO)
        todo = [part for part in path.split(b"/") if part][::-1]
        links = 0
        while todo:
            name = todo.pop()
            entry = self.find(here, name)
            if entry is None:
                raise fail(errno.ENOENT, path)
            inode = self.inode(entry.ino)
            if inode.is_link and (todo or follow):
                links += 1
                if links > MAX_LINKS:
                    raise fail(errno.ELOOP, path)
                target = self.readlink(inode)
                todo += [part for part in target.split(b"/") if part][::-1]
                here = self.inode(ROOT_INO) if target.startswith(b"/") else here
                continue
            here = inode
        return here


def joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs in order, those that touch or overlap as one."""
    found: list[tuple[int, int]] = []
    for start, count in sorted(runs):
        if found and sum(found[-1]) >= start:
            end = max(sum(found[-1]), start + count)
            found[-1] = (found[-1][0], end - found[-1][0])
        else:
            found.append((start, count))
    return found


def _without(run: tuple[int, int], first: int, length: int) -> list[tuple[int, int]]:
    """What is left of a run without a range."""
    start, end = run[0], run[0] + run[1]
    parts = (start, min(end, first)), (max(start, first + length), end)
    return [(low, high - low) for low, high in parts if low < high]


def open_volume(path: str) -> Volume:
    """The Direct File System in an image, for reading; NotDfs where there is none."""
    device = open_device(path, whole=True)
    try:
        if not isinstance(device, Vsl):
            raise not_dfs(device)
        return Volume(device)
    except BaseException:
        device.close()
        raise
