"""Directories while a volume is written: find a name, make room for one, add, remove; out of the inode when it is full.

A name's place follows from its hash: a bucket on each level, and the first one with room is taken.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.casefold import casefold
from f2tools.f2fs.layout.constants import (
    F2FS_CASEFOLD_FL,
    F2FS_ENC_STRICT_MODE_FL,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_ENCRYPT,
    F2FS_INLINE_DENTRY,
    F2FS_NAME_LEN,
    NEW_ADDR,
    NULL_ADDR,
)
from f2tools.f2fs.volume.dentries import (
    DOTS,
    Dentry,
    DentryArea,
    in_bucket,
    inline_to_blocks,
    levels,
    name_hash,
    name_hashes,
    slots_for,
)
from f2tools.f2fs.volume.dir import nokey_hash, nokey_name
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.write.data import FileData
from f2tools.f2fs.write.mapping import Mapper
from f2tools.f2fs.write.node import LiveInode, NodeManager
from f2tools.f2fs.write.pending import PendingNames

CLEAN_BLOCKS_HELD = 4096
ASKED_OFTEN = 8  # for a name, before all names of a small directory are kept
BLOCKS_AT_ONCE = 256
NAMES_HELD = 500_000  # of all directories; a name takes about 150 bytes
SLOT_BITS = 16
SLASH = ord("/")


class Place(NamedTuple):
    """Where an entry can go: the block (-1: inline), the slot, the levels that the directory then has."""

    block: int
    slot: int
    depth: int


class NamePlaces:
    """Where the names of a directory with many look-ups are, and which of its blocks were seen to have no room."""

    def __init__(self, places: dict[bytes, int]) -> None:
        self.places = places  # name -> block << SLOT_BITS | slot
        self.full: dict[int, int] = {}  # block -> so many slots don't fit


class Directories:
    """Looks names up and changes them; one for a volume."""

    def __init__(self, geo: Geometry, nodes: NodeManager, mapper: Mapper, data: FileData, encoding_flags: int) -> None:
        self.geo = geo
        self._nodes = nodes
        self._mapper = mapper
        self._data = data
        self._strict = bool(encoding_flags & F2FS_ENC_STRICT_MODE_FL)
        self._clean: dict[tuple[int, int], NDArray[np.uint8]] = {}
        self._names: dict[int, NamePlaces] = {}
        self._names_held = 0  # in all of them
        self._asked: dict[int, int] = {}  # how often for a name in a directory
        self.pending = PendingNames()

    # -- names ----------------------------------------------------------------------------------------------------

    def casefolded(self, inode: LiveInode) -> bool:
        """Whether names are compared without regard to case."""
        return bool(self.geo.feature & F2FS_FEATURE_CASEFOLD and inode.i_flags & F2FS_CASEFOLD_FL)

    def encrypted(self, inode: LiveInode) -> bool:
        """Whether the names in this directory are ciphertext, for which others stand without the key."""
        return inode.encrypted and bool(self.geo.feature & F2FS_FEATURE_ENCRYPT)

    def check_name(self, inode: LiveInode, name: bytes) -> None:
        """Raise OSError if this can't be a new name: EEXIST, EINVAL, ENAMETOOLONG, ENOENT, ENOKEY."""
        if not isinstance(name, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a name is bytes, not {type(name).__name__}")
        if len(name) > F2FS_NAME_LEN:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), os.fsdecode(name))
        if not name:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), "")
        if SLASH in name or 0 in name:  # as numbers, which bytes find without first failing to take them for one
            raise OSError(errno.EINVAL, "a name holds no '/' and no NUL", os.fsdecode(name))
        if name in (b".", b".."):
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(name))
        if inode.encrypted:
            raise OSError(errno.ENOKEY, "the directory is encrypted and there is no key", os.fsdecode(name))
        if self._strict and self.casefolded(inode) and _not_utf8(name):
            raise OSError(errno.EINVAL, "the directory takes UTF-8 only", os.fsdecode(name))

    def check_names(self, inode: LiveInode, names: Sequence[bytes]) -> None:
        """`check_name` of many names: those that are plainly right are not looked at one by one."""
        joined = b"\0".join(names)
        plain = joined.count(b"\0") == len(names) - 1 and b"/" not in joined and max(map(len, names)) <= F2FS_NAME_LEN
        plain = plain and not any(name in names for name in (b"", b".", b".."))
        if plain and not self._strict and not inode.encrypted:
            return
        for name in names:
            self.check_name(inode, name)

    # -- looking --------------------------------------------------------------------------------------------------

    def find(self, inode: LiveInode, name: bytes, known_hash: int | None = None) -> Dentry | None:
        """The entry with this name, `.` and `..` included; ENOTDIR for what is no directory.

        Encrypted names are asked for as a reader without the key sees them.  known_hash: of an encrypted name that is
        compared as it is.
        """
        if not inode.is_dir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if known_hash is None and self.encrypted(inode) and name not in (b".", b".."):
            return self._find_shown(inode, name)
        folding = self.casefolded(inode)
        if not folding and known_hash is None and not inode.has_inline_dentry and name not in (b".", b".."):
            names = self._names.get(inode.ino) or self._names_if_worth(inode)
            if names is not None:
                return self._found(inode, name, names)
        same = _same_folded(name) if folding and known_hash is None and name not in (b".", b"..") else None
        code = name_hash(name, folding) if known_hash is None else known_hash
        if not inode.has_inline_dentry and name in (b".", b".."):
            block = self._block(inode, 0)
            return None if block is None else DentryArea(block).find(name, 0, 0)
        return self._hashed(inode, name, code, same)

    def find_stored(self, inode: LiveInode, name: bytes, code: int | None = None) -> Dentry | None:
        """`find` by a name as it is stored: where names are encrypted, ciphertext.  `code`: its hash by a key."""
        if code is None and self.encrypted(inode) and not self.casefolded(inode):
            code = name_hash(name)
        return self.find(inode, name, code)

    def _find_shown(self, inode: LiveInode, shown: bytes) -> Dentry | None:
        """An entry by what stands for its encrypted name; see fscrypt_setup_filename() and fscrypt_match_name()."""
        code = nokey_hash(shown)
        if code is None:
            return None
        return self._hashed(inode, shown, code, lambda found: nokey_name(found, code) == shown)

    def _hashed(self, inode: LiveInode, name: bytes, code: int, same: Callable[[bytes], bool] | None) -> Dentry | None:
        if inode.has_inline_dentry:
            return DentryArea(inode.inline_area).find(name, code, same=same)
        for number in self._bucket(inode, code):
            block = self._block(inode, number)
            if block is not None:
                found = DentryArea(block).find(name, code, number, same=same)
                if found is not None:
                    return found
        return None

    def _found(self, inode: LiveInode, name: bytes, names: NamePlaces) -> Dentry | None:
        place = names.places.get(name)
        if place is None:
            return None
        number, slot = place >> SLOT_BITS, place & (1 << SLOT_BITS) - 1
        block = self._block(inode, number)
        assert block is not None
        code, ino, _, kind = DentryArea(block).entry_at(slot)
        return Dentry(name, ino, kind, code, number, slot)

    def _names_if_worth(self, inode: LiveInode) -> NamePlaces | None:
        """The names of a directory of several blocks, after as many look-ups in it as it has blocks.

        A look-up costs about as much as reading the names of a block, so this at most doubles what look-ups cost.
        """
        have = -(-inode.i_size // self.geo.block_size)
        if have <= 2:
            return None
        asked = self._asked[inode.ino] = self._asked.get(inode.ino, 0) + 1
        if asked < max(ASKED_OFTEN, have):
            return None
        self._asked.pop(inode.ino)
        places = self._places(inode)
        if places is None:
            self._asked[inode.ino] = -sys.maxsize
            return None
        if self._names_held + len(places) > NAMES_HELD:
            self._forget_all_names()
        names = self._names[inode.ino] = NamePlaces(places)
        self._names_held += len(places)
        return names

    def _places(self, inode: LiveInode) -> dict[bytes, int] | None:
        """Where each name is; None where they are too many to be kept, or only looking finds what the kernel does.

        That is so where one is there twice, or where no look-up by its hash would meet it.
        """
        places: dict[bytes, int] = {}
        count = 0
        areas = self.areas(inode)
        while several := list(islice(areas, BLOCKS_AT_ONCE)):
            found = [entry for number, area in several for entry in DentryArea(area).entries(number)]
            found = [entry for entry in found if entry.name not in DOTS]
            codes = name_hashes([entry.name for entry in found]).astype(np.int64)
            blocks = np.array([entry.block for entry in found], np.int64)
            hashed = np.array([entry.hash_code for entry in found], np.int64)
            if not np.all((hashed == codes) & in_bucket(blocks, codes, inode.i_dir_level, inode.i_current_depth)):
                return None
            places.update((entry.name, entry.block << SLOT_BITS | entry.slot) for entry in found)
            count += len(found)
            if count > NAMES_HELD:
                return None
        return places if len(places) == count else None

    def forget_names(self, ino: int) -> None:
        """Forget a directory that is gone; another one may get its number."""
        names = self._names.pop(ino, None)
        if names is not None:
            self._names_held -= len(names.places)
        self._asked.pop(ino, None)

    def _forget_all_names(self) -> None:
        self._names.clear()
        self._names_held = 0

    def _bucket(self, inode: LiveInode, code: int) -> Iterable[int]:
        """The blocks in which a name with this hash may be."""
        have = -(-inode.i_size // self.geo.block_size)
        if have <= 2 and not inode.i_dir_level:  # the first level has one bucket, of two blocks
            return range(have if inode.i_current_depth else 0)
        return self._buckets(inode, code, have)

    def _buckets(self, inode: LiveInode, code: int, have: int) -> Iterator[int]:
        for start, buckets, count in levels(inode.i_dir_level)[: inode.i_current_depth]:
            first = start + code % buckets * count
            if first >= have:
                return
            yield from range(first, min(first + count, have))

    def is_empty(self, inode: LiveInode) -> bool:
        """Whether nothing but `.` and `..` is in a directory."""
        if inode.has_inline_dentry:
            return DentryArea(inode.inline_area).is_empty()
        for number in self._blocks(inode):
            block = self._block(inode, number)
            if block is None:
                continue
            area = DentryArea(block)
            if not (area.is_empty() if number == 0 else area.is_unused()):
                return False
        return True

    def areas(self, inode: LiveInode, first: int = 0) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """(block, area) of all that holds entries, from block `first` on; the block is -1 for the area in the inode."""
        if inode.has_inline_dentry:
            yield -1, inode.inline_area
            return
        for number in self._blocks(inode, first):
            block = self._block(inode, number)
            if block is not None:
                yield number, block

    def _blocks(self, inode: LiveInode, first: int = 0) -> Iterator[int]:
        """The blocks that a directory has, from `first` on."""
        end = -(-inode.i_size // self.geo.block_size)
        for node, low, high in self._mapper.nodes_within(inode, first, end):
            yield from (node.first + low + np.flatnonzero(node.addrs[low:high])).tolist()

    def _block(self, inode: LiveInode, number: int) -> NDArray[np.uint8] | None:
        """A block to look at; None where there is a hole."""
        pages = self._data.pages.get(inode.ino)
        if pages is not None and number in pages:
            return pages[number]
        addr = self._mapper.get_one(inode, number)
        if addr in (NULL_ADDR, NEW_ADDR):
            return None
        key = (inode.ino, addr)
        found = self._clean.get(key)
        if found is None:
            if len(self._clean) >= CLEAN_BLOCKS_HELD:
                self._clean.clear()
            found = self._clean[key] = self._data.page_as_written(addr)
        return found

    def forget_blocks(self) -> None:
        """Forget blocks that were read: a checkpoint frees old ones, and they may be reused."""
        self._clean.clear()

    # -- changing -------------------------------------------------------------------------------------------------

    def room(self, inode: LiveInode, name: bytes, known_hash: int | None = None) -> Place:
        """Make room for a name and say where; ENOSPC or EDQUOT when there is none.  The directory stays as it is."""
        slots = slots_for(name)
        code = name_hash(name, self.casefolded(inode)) if known_hash is None else known_hash
        if inode.has_inline_dentry:
            slot = DentryArea(inode.inline_area).room_for(slots)
            if slot is not None:
                return Place(-1, slot, 0)
            self.leave_inode(inode)
        size = self.geo.block_size
        names = self._names.get(inode.ino)
        full = {} if names is None else names.full
        for level, (start, buckets, count) in enumerate(levels(inode.i_dir_level)):
            first = start + code % buckets * count
            for number in range(first, first + count):
                if full.get(number, slots + 1) <= slots:
                    continue
                block = self._block(inode, number)
                slot = 0 if block is None else DentryArea(block).room_for(slots)
                if slot is None:
                    full[number] = slots
                    continue
                if block is None:
                    self._mapper.reserve(inode, np.array([number]))
                    self._data.page(inode, number)
                    inode.set(i_size=max(inode.i_size, (number + 1) * size))
                    self._nodes.touch(inode)
                elif number not in self._data.pages.get(inode.ino, ()):
                    self._data.load(inode, number)
                return Place(number, slot, max(inode.i_current_depth, level + 1))
        raise OSError(errno.ENOSPC, "all levels of the directory are full")

    def add(
        self, inode: LiveInode, place: Place, name: bytes, ino: int, kind: int, known_hash: int | None = None
    ) -> None:
        """Write an entry where `room` said."""
        code = name_hash(name, self.casefolded(inode)) if known_hash is None else known_hash
        self._area(inode, place.block).put(place.slot, name, code, ino, kind)
        self.pending.added(inode.ino, name, ino)
        names = self._names.get(inode.ino)
        if names is not None:
            if name not in names.places:
                names.places[name] = place.block << SLOT_BITS | place.slot
                self._names_held += 1
            if self._names_held > NAMES_HELD:
                self._forget_all_names()
        if inode.i_current_depth != place.depth:
            inode.set(i_current_depth=place.depth)
        self._nodes.touch(inode)

    def remove(self, inode: LiveInode, entry: Dentry, of_gone_file: bool = False) -> None:
        """Remove an entry, with `of_gone_file` a regular file's only one; a block that becomes empty is given back."""
        area = self._area(inode, entry.block)
        area.clear(entry.slot)
        self.pending.removed(inode.ino, entry.name, of_gone_file)
        names = self._names.get(inode.ino)
        if names is not None:
            names.full.pop(entry.block, None)
            if names.places.get(entry.name) == entry.block << SLOT_BITS | entry.slot:
                del names.places[entry.name]
                self._names_held -= 1
        if entry.block >= 0 and area.is_unused():
            self._data.drop_pages(inode.ino, entry.block, entry.block + 1)
            self._mapper.release(inode, entry.block, entry.block + 1)
        self._nodes.touch(inode)

    def load(self, inode: LiveInode, entry: Dentry | None) -> None:
        """Read what `remove` or `redirect` of an entry changes, before anything has changed."""
        if entry is not None and entry.block >= 0:
            self._data.load(inode, entry.block)

    def redirect(self, inode: LiveInode, entry: Dentry, ino: int, kind: int) -> None:
        """Let an entry lead to another inode."""
        self._area(inode, entry.block).set_ino(entry.slot, ino, kind)
        self.pending.changed(inode.ino)
        self._nodes.touch(inode)

    def set_parent(self, inode: LiveInode, parent: int) -> None:
        """Let `..` lead to another directory."""
        found = self.find(inode, b"..")
        if found is not None:
            self.redirect(inode, found, parent, 2)

    def fill_new(self, inode: LiveInode, parent: int) -> None:
        """Write `.` and `..` into a new directory, whose inode holds its entries."""
        self.forget_names(inode.ino)
        area = DentryArea(inode.inline_area)
        area.put(0, b".", 0, inode.ino, 2)
        area.put(1, b"..", 0, parent, 2)

    def _area(self, inode: LiveInode, block: int) -> DentryArea:
        """A part of a directory that is about to change."""
        if block < 0:
            return DentryArea(inode.inline_area)
        return DentryArea(self._data.page(inode, block))

    def leave_inode(self, inode: LiveInode) -> None:
        """Move the entries out of the inode into blocks; see f2fs_convert_inline_dir()."""
        area = inode.inline_area
        built = inline_to_blocks(area, inode.i_dir_level, self.geo.block_size)
        kept, flags = area.copy(), inode.i_inline
        area[:] = 0
        inode.set(i_inline=flags & ~F2FS_INLINE_DENTRY)
        try:
            self._mapper.reserve(inode, built.indices)
        except (OSError, F2fsError):
            inode.set(i_inline=flags)
            inode.inline_area[:] = kept
            raise
        for number, block in zip(built.indices.tolist(), built.blocks, strict=True):
            self._data.page(inode, number, fresh=True)[:] = block
        inode.set(i_size=built.i_size, i_current_depth=built.i_current_depth)
        self._nodes.touch(inode)


def _same_folded(name: bytes) -> Callable[[bytes], bool]:
    """A function that tells whether another name is the same without regard to case."""
    wanted = casefold(name) or name
    return lambda found: found == name or (casefold(found) or found) == wanted


def _not_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return True
    return False
