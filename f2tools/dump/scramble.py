"""Names, link targets and attribute values that tell nothing, in a volume that every check judges as before.

A name keeps its length, and its hash the bits that choose its bucket; equal names in one directory become equal names,
so that what is there twice stays there twice.  A hash or a checksum that was wrong before is wrong after, by the same
difference.  What is encrypted is ciphertext already and stays, as do names with a meaning of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO, F2FS_SLOT_LEN
from f2tools.f2fs.layout.dentry import DirEntry, bitmap_size, dentry_shape
from f2tools.f2fs.layout.xattr import (
    XATTR_INDEX_ADVISE,
    XATTR_INDEX_ENCRYPTION,
    XATTR_INDEX_POSIX_ACL_ACCESS,
    XATTR_INDEX_POSIX_ACL_DEFAULT,
    XATTR_INDEX_SECURITY,
    XATTR_INDEX_VERITY,
    has_xattrs,
    xattr_places,
)
from f2tools.f2fs.volume.dentries import name_hashes, parse_dentries

LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789"
_TO_LETTERS = bytes(LETTERS[value % len(LETTERS)] for value in range(256))
KEPT_NAMES = (b".", b"..")
KEPT_IN_ROOT = b"lost+found"  # fsck.f2fs and the kernel know it by its name
# Attributes whose values have a structure that is checked, or say nothing of the owner's matters.
KEPT_VALUES = frozenset(
    (
        XATTR_INDEX_POSIX_ACL_ACCESS, XATTR_INDEX_POSIX_ACL_DEFAULT, XATTR_INDEX_SECURITY, XATTR_INDEX_ADVISE,
        XATTR_INDEX_ENCRYPTION, XATTR_INDEX_VERITY,
    )
)  # fmt: skip
ROUNDS = 64  # rounds of random names, before one stays as it is
POOL = 1 << 16  # names tried in a round at most
MOST_BITS = 14  # of a hash that a new name must share: more buckets need millions of files in one directory


@dataclass
class Scrambler:
    """New names for old ones; `key` decides which, and without it there is no way back."""

    key: bytes
    scrambled: int = 0  # names
    kept: int = 0  # names for which there was no other of their length in their bucket
    _names: dict[tuple[int, bytes], bytes] = field(default_factory=dict)

    def add_directory(self, ino: int, names: Iterable[bytes], folding: bool, bits: int) -> None:
        """Find new names for those of a directory whose entries share the lowest `bits` of their hashes with them."""
        old = [name for name in dict.fromkeys(names) if not self._stays(ino, name)]
        taken = set(old)  # a name that must stay as it is must not meet another's new one
        by_length: dict[int, list[bytes]] = {}
        for name in old:
            by_length.setdefault(len(name), []).append(name)
        for length, members in by_length.items():
            found = self._found(ino, length, members, taken, folding, min(bits, MOST_BITS))
            for name in members:
                self._names[ino, name] = found.get(name, name)
            self.scrambled += len(found)
            self.kept += len(members) - len(found)

    def name(self, directory: int, name: bytes) -> bytes:
        """The new name of an entry of a directory, also of one that is not known there any more."""
        if self._stays(directory, name):
            return name
        return self._names.get((directory, name)) or self.text(len(name), directory, name)

    def text(self, length: int, number: int, secret: bytes) -> bytes:
        """`length` letters that follow from a number and a secret."""
        message = self.key + number.to_bytes(8, "little") + secret
        return hashlib.shake_256(message).digest(length).translate(_TO_LETTERS)

    def dentries(self, area: NDArray[np.uint8], directory: int, folding: bool) -> None:
        """Give the entries of a block or an inline area new names; what no entry has is cleared."""
        entries = parse_dentries(area, -1, [])
        shape = dentry_shape(area.size)
        table = area[shape.table_at : shape.names_at].view(DirEntry.dtype)
        names = area[shape.names_at : shape.names_at + shape.slots * F2FS_SLOT_LEN]
        old_names = [entry.name for entry in entries]
        new_names = [self.name(directory, name) for name in old_names]
        differ = name_hashes(old_names, folding) ^ name_hashes(new_names, folding)
        used = np.unpackbits(area[: bitmap_size(shape.slots)], bitorder="little")[: shape.slots].astype(np.bool_)
        table[~used] = np.zeros(1, DirEntry.dtype)
        names[:] = 0
        for entry, new, difference in zip(entries, new_names, differ.tolist(), strict=True):
            table["hash_code"][entry.slot] = entry.hash_code ^ difference
            at = entry.slot * F2FS_SLOT_LEN
            names[at : at + len(new)] = np.frombuffer(new, np.uint8)

    def target(self, ino: int, target: bytes) -> bytes:
        """Where a symbolic link leads, with as many steps of the same lengths."""
        steps = target.split(b"/")
        return b"/".join(s if s in (b"", *KEPT_NAMES) else self.text(len(s), ino, s) for s in steps)

    def xattrs(self, area: bytes, ino: int) -> bytes:
        """An attribute area with other values of the same lengths; its names, and what lists them, stay."""
        if not has_xattrs(area):
            return area
        new = bytearray(area)
        end = 0
        for place in xattr_places(area):
            if place.end > len(area):  # damaged: whatever it is, it may be a value
                new[place.name_at :] = self.text(len(area) - place.name_at, ino, area[place.name_at :])
                return bytes(new)
            if place.name_index not in KEPT_VALUES:
                value = area[place.value_at : place.end]
                new[place.value_at : place.end] = self.text(len(value), ino, value)
            end = place.following
        new[end:] = bytes(len(area) - end) if end else new[end:]
        return bytes(new)

    def _stays(self, directory: int, name: bytes) -> bool:
        return name in KEPT_NAMES or (directory == F2FS_ROOT_INO and name == KEPT_IN_ROOT)

    def _found(
        self, ino: int, length: int, members: Sequence[bytes], taken: set[bytes], folding: bool, bits: int
    ) -> dict[bytes, bytes]:
        """A new name for each of these names of one length, as far as there are any; they are added to `taken`."""
        mask = (1 << bits) - 1
        waiting: dict[int, list[bytes]] = {}
        codes = name_hashes(members, folding).tolist() if mask else [0] * len(members)
        for name, code in zip(members, codes, strict=True):
            waiting.setdefault(code & mask, []).append(name)
        found: dict[bytes, bytes] = {}
        for pool in self._pools(ino, length, len(members), bits):
            codes = name_hashes(pool, folding).tolist() if mask else [0] * len(pool)
            for candidate, code in zip(pool, codes, strict=True):
                here = waiting.get(code & mask)
                if here and candidate not in taken:
                    found[here.pop()] = candidate
                    taken.add(candidate)
            if len(found) == len(members):
                break
        return found

    def _pools(self, ino: int, length: int, count: int, bits: int) -> Iterator[list[bytes]]:
        """Names of this length to choose from, a list after the other."""
        seed = hashlib.sha256(self.key + ino.to_bytes(8, "little") + bytes([length])).digest()
        rng = np.random.default_rng(int.from_bytes(seed, "little"))
        if length <= 2:
            every = [bytes(letters) for letters in product(LETTERS, repeat=length)]
            yield [every[at] for at in rng.permutation(len(every)).tolist()]
            return
        letters = np.frombuffer(LETTERS, np.uint8)
        size = min(max(2 * count, (4 << bits) if bits else 0, 8), POOL)
        for _ in range(ROUNDS):
            rows = letters[rng.integers(0, len(LETTERS), (size, length))]
            yield [row.tobytes() for row in rows]


def is_plausible(area: NDArray[np.uint8], max_nid: int) -> bool:
    """Whether a block may be one of a directory: what content looks like one?"""
    problems: list[str] = []
    shape = dentry_shape(area.size)
    reserved = area[bitmap_size(shape.slots) : shape.table_at]
    entries = parse_dentries(area, -1, problems)
    if problems or reserved.any():
        return False
    return all(entry.ino < max_nid and entry.file_type < 16 for entry in entries)
