"""Names put back through the engine, on a volume that is otherwise consistent: lost files, wrong buckets, twins."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import F2FS_IMMUTABLE_FL, F2FS_ROOT_INO
from f2tools.f2fs.layout.file_type import file_type
from f2tools.f2fs.layout.footers import hash_behind
from f2tools.f2fs.layout.xattr import FSCRYPT_NONCE_SIZE
from f2tools.f2fs.volume.dentries import bucket_blocks, level_start
from f2tools.f2fs.volume.xattr import encryption_context
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.fsck.checks.policy import ENCRYPTED, LAYOUTS
from f2tools.fsck.facts.dentries import may_be_name
from f2tools.fsck.facts.leaks import OldName
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import Reconnect
from f2tools.fsck.problems import UNREACHABLE_DIR

LOST_FOUND = b"lost+found"


class NameRepairs:
    """Puts names where they belong, on a volume that is otherwise consistent."""

    def __init__(self, volume: WritableVolume, done: list[str]) -> None:
        self._vol = volume
        self._done = done

    def reconnect(self, lost: list[tuple[Finding, Reconnect]]) -> None:
        """Give inodes without a name the one they remember, in the directory they remember; else in lost+found."""
        for finding, plan in sorted(lost, key=lambda item: item[0].problem is not UNREACHABLE_DIR):
            ino, pino = plan.ino, plan.pino
            inode = self._vol.live(ino)
            name = inode.name
            directory = self._directory(pino, ino)
            code = None
            if directory is not None and self._opens_nothing_in(directory, inode):
                directory, name = None, b""  # which is ciphertext
            if directory is not None and self._is_secret(directory):
                code = hash_behind(inode.i_name, inode.i_namelen)
                if not code:  # it never had a name in such a directory: there no key would find it
                    directory = None
            if directory is not None and not may_be_name(name, encrypted=directory.encrypted):
                directory = None
            if directory is not None and self._vol.names.find_stored(directory, name, code) is not None:
                directory = None
            if directory is None:
                code = None
                directory = self._lost_found()
                name = name if may_be_name(name) else b"#%d" % ino
                if self._vol.names.find_stored(directory, name) is not None:
                    name = name[:240] + b"#%d" % ino
            self._attach(directory, name, inode, code)
            self._done.append(f"{finding.code} ino {ino}: named {os.fsdecode(name)!r} in directory {directory.ino}")

    def _opens_nothing_in(self, directory: Any, inode: Any) -> bool:
        """Whether an inode lacks the policy of an encrypted directory, and has a type that is not opened there so."""
        if not directory.encrypted or stat.S_IFMT(inode.i_mode) not in ENCRYPTED:
            return False
        try:
            context = encryption_context(self._vol.nodes, inode) if inode.encrypted else None
            above = encryption_context(self._vol.nodes, directory)
        except F2fsError:  # one has attributes, and they can't be read
            return False
        if context is None or len(context) not in LAYOUTS:
            return True
        if above is None or len(above) not in LAYOUTS:
            return False
        return context[:-FSCRYPT_NONCE_SIZE] != above[:-FSCRYPT_NONCE_SIZE]

    def _is_secret(self, directory: Any) -> bool:
        """Whether the hashes of its names need a key."""
        return bool(directory.encrypted and self._vol.names.casefolded(directory))

    def remember(self, missing: dict[int, int], old: Iterable[OldName]) -> None:
        """Further names of files that have fewer than links, from older copies of directory blocks.

        `missing`: inode number -> names that are wanted.  They are believed only where just as many are found: else the
        number of links is wrong, and a deleted name would come back.
        """
        found: dict[int, dict[tuple[int, bytes], int]] = {ino: {} for ino in missing}
        for directory_ino, name, ino, kind in old:
            if ino in missing and len(found[ino]) <= missing[ino] and self._lacks(directory_ino, name, ino, kind):
                found[ino][directory_ino, name] = kind
        for ino, names in found.items():
            if len(names) != missing[ino]:
                continue
            for (directory_ino, name), kind in names.items():
                with suppress(F2fsError, OSError):
                    self._vol.balance(64)
                    directory = self._vol.live(directory_ino)
                    self._vol.names.add(directory, self._vol.names.room(directory, name), name, ino, kind)
                    self._vol.nodes.touch(directory)
                    self._done.append(f"I002 ino {ino}: named {os.fsdecode(name)!r} in directory {directory_ino} again")

    def _lacks(self, directory_ino: int, name: bytes, ino: int, kind: int) -> bool:
        """Whether a directory could have this entry for a file, and has none of that name."""
        with suppress(F2fsError, OSError):
            directory, inode = self._vol.live(directory_ino), self._vol.live(ino)
            fits = directory.is_dir and not inode.is_dir and file_type(inode.i_mode) == kind
            possible = may_be_name(name, encrypted=directory.encrypted)
            return fits and possible and self._vol.names.find_stored(directory, name) is None
        return False

    def _directory(self, pino: int, ino: int) -> Any:
        """The directory of this number, unless it can't be used or lies below `ino` itself."""
        if not 3 <= pino < self._vol.geo.max_nid:
            return None
        with suppress(F2fsError, OSError):
            directory = self._vol.live(pino)
            if not directory.is_dir or not directory.i_links:
                return None
            seen = {ino}
            above = pino
            while above != F2FS_ROOT_INO:
                if above in seen:
                    return None
                seen.add(above)
                above = self._vol.live(above).i_pino
            return directory
        return None

    def _lost_found(self) -> Any:
        root_dir = self._vol.live(F2FS_ROOT_INO)
        name = LOST_FOUND
        while (found := self._vol.names.find_stored(root_dir, name)) is not None:
            directory = self._vol.live(found.ino)
            if directory.is_dir and not directory.encrypted:
                return directory
            name += b".fsck"
        flags = root_dir.i_flags
        root_dir.set(i_flags=flags & ~F2FS_IMMUTABLE_FL)  # a lost file needs a place in a root that nobody may change
        try:
            ino = self._vol.mkdir(F2FS_ROOT_INO, name, 0o700)
        finally:
            self._vol.live(F2FS_ROOT_INO).set(i_flags=flags)
        return self._vol.live(ino)

    def _attach(self, directory: Any, name: bytes, inode: Any, code: int | None = None) -> None:
        vol = self._vol
        vol.balance(64)
        directory, inode = vol.live(directory.ino), vol.live(inode.ino)
        place = vol.names.room(directory, name, code)
        vol.names.add(directory, place, name, inode.ino, file_type(inode.i_mode), code)
        if inode.is_dir:
            vol.names.set_parent(inode, directory.ino)
        if inode.i_pino != directory.ino or inode.name != name:
            inode.set(i_pino=directory.ino, i_name=name, i_namelen=len(name))
        vol.nodes.touch(inode)
        vol.nodes.touch(directory)

    def rearrange(self, ino: int) -> None:
        """Move the entries of a directory that stand in wrong buckets; rename those whose name stands twice."""
        vol = self._vol
        directory = vol.live(ino)
        entries = [entry for entry in vol.dirs.entries(directory) if entry.name not in (b".", b"..")]
        keepers = self._keepers(directory, entries)
        seen: dict[bytes, int] = {}
        for entry in entries:
            fits = entry.block < 0
            for level in range(63):
                if fits or level_start(level, directory.i_dir_level) > entry.block:
                    break
                first, count = bucket_blocks(level, directory.i_dir_level, entry.hash_code)
                fits = first <= entry.block < first + count
            keeper = keepers[entry.name]
            twice = entry is not keeper
            if fits and not twice:
                seen[entry.name] = entry.ino
                continue
            vol.names.remove(directory, entry)
            if twice and keeper.ino == entry.ino:
                self._done.append(f"D008 ino {ino}: second entry {os.fsdecode(entry.name)!r} removed")
                continue
            name = self._other_name(directory, entry, seen) if twice else entry.name
            vol.balance(64)
            directory = vol.live(ino)
            code = entry.hash_code if name == entry.name and self._is_secret(directory) else None
            vol.names.add(directory, vol.names.room(directory, name, code), name, entry.ino, entry.file_type, code)
            seen[name] = entry.ino
            self._done.append(f"D006 ino {ino}: entry {os.fsdecode(name)!r} moved")

    def _keepers(self, directory: Any, entries: list[Any]) -> dict[bytes, Any]:
        """Name -> the entry that keeps it: one whose inode remembers it, else the first."""
        found: dict[bytes, Any] = {}
        for entry in entries:
            first = found.setdefault(entry.name, entry)
            if first is not entry and self._remembers(directory, first) != entry.name == self._remembers(
                directory, entry
            ):
                found[entry.name] = entry
        return found

    def _remembers(self, directory: Any, entry: Any) -> bytes | None:
        """The name that an entry's inode remembers in this directory."""
        with suppress(F2fsError, OSError):
            inode = self._vol.live(entry.ino)
            if inode.i_pino == directory.ino and may_be_name(inode.name, encrypted=directory.encrypted):
                return bytes(inode.name)
        return None

    def _other_name(self, directory: Any, entry: Any, seen: dict[bytes, int]) -> bytes:
        """A name for an entry whose own is taken: what its inode remembers, where that is free, else a number more."""
        name = self._remembers(directory, entry) or entry.name
        number = 1
        while name in seen or self._vol.names.find_stored(directory, name) is not None:
            number += 1
            name = entry.name[:240] + b"~%d" % number
        return name
