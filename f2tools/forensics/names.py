"""Which names each inode had, when, and in which directory: the past of all directories, version by version.

A directory's entries are compared from checkpoint to checkpoint; an entry that was there in some of them is a *link*.
Where no version of a directory tells, freed slots and the inode's own i_name and i_pino do.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from stat import S_ISDIR

import numpy as np

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO, FADVISE_ENCRYPT_BIT
from f2tools.f2fs.volume.dentries import name_hash
from f2tools.f2fs.volume.dir import nokey_name
from f2tools.f2fs.volume.fscrypt import NAME_MIN_BYTES, FileKey
from f2tools.f2fs.volume.inode import Inode
from f2tools.forensics.content import LOST, Contents
from f2tools.forensics.past import FOREVER, InodeVersion, Life, Past, is_root
from f2tools.forensics.slots import DOTS, Slot, read_slots
from f2tools.process import without_collector
from f2tools.text import join

MAX_DEPTH = 512
MAX_PATH = 4096
PATHS_KEPT = 1 << 14
MAX_DIRECTORIES_ABOVE = 256  # that are asked whether they were there
UNKNOWN_PARENT = b"#%d"


@dataclass(slots=True)
class Link:
    """A name of an inode number in a directory, from one age to another (the first without it)."""

    dir: int
    name: bytes
    ino: int
    file_type: int
    since: int
    until: int = FOREVER
    lives: int = 0  # how many lives it was given to


class LinkHistory:
    """All links, and paths at any age."""

    def __init__(self, past: Past, contents: Contents) -> None:
        self.past = past
        self.contents = contents
        self.links: dict[int, list[Link]] = defaultdict(list)  # by inode number, in the order of time
        self._keys: dict[int, tuple[bool, FileKey | None]] = {}
        for ino in sorted({version.ino for life in past.lives for version in life.versions if S_ISDIR(version.mode)}):
            self._directory(ino)
        for links in self.links.values():
            if len(links) > 1:
                links.sort(key=lambda link: (link.since, link.until))
        self.of_life: dict[tuple[int, int], list[Link]] = {}
        self._lived: dict[tuple[int, int], int] = {}
        self._paths: dict[tuple[int, int], tuple[bytes, int]] = {}  # (directory, age): its path, how deep
        with without_collector():
            self._give()

    # -- directories ----------------------------------------------------------------------------------------------

    def _directory(self, ino: int) -> None:
        """Follow a directory through its versions."""
        past = self.past
        ranks = past.nodes_of(ino)
        known: dict[tuple[bytes, int], Link] = {}
        before: dict[int, int] = {}
        slots: dict[int, list[Slot]] = {}
        for age in np.unique(past.ages[ranks]).tolist():
            life = past.life_at(ino, age)
            assert life is not None
            version = past.version_at(life, age)
            here: dict[int, int] = {}
            if version.is_dir and version.links and version.age <= age:
                here = self._blocks(life, version, past.rank_at(age), before)
            if here == before:
                continue
            gone = set(before.values()) - set(here.values())
            come = {addr: self._slots(version, addr) for addr in set(here.values()) - set(before.values())}
            entries = {(slot.name, slot.ino): slot for found in come.values() for slot in found}
            for slot in (slot for addr in gone for slot in slots.pop(addr)):
                key = (slot.name, slot.ino)
                if key in known and key not in entries:
                    known.pop(key).until = age
            for key, slot in entries.items():
                if key not in known:
                    known[key] = Link(ino, slot.name, slot.ino, slot.file_type, age)
                    self.links[slot.ino].append(known[key])
            slots |= come
            before = here

    def _blocks(self, life: Life, version: InodeVersion, limit: int, before: dict[int, int]) -> dict[int, int]:
        """Directory block -> address, for those that still hold what they held then; -1: the inode itself.

        A lost block counts with its state before, as nothing says that its entries were removed.
        """
        inode = self.past.inode(version)
        if inode.has_inline_dentry:
            return {-1: version.blkaddr}
        try:
            rows = self.contents.map(self.past.volume_of(life, version, limit), inode).rows
        except F2fsError:
            return {}
        states = self.contents.states(rows, life, version)
        here = dict(zip(rows["fofs"].tolist(), rows["blkaddr"].tolist(), strict=True))
        for fofs in rows["fofs"][states >= LOST].tolist():
            del here[fofs]
            if fofs in before:
                here[fofs] = before[fofs]
        return here

    def _slots(self, version: InodeVersion, addr: int) -> list[Slot]:
        """The entries of a directory block, or of the inode itself; `.` and `..` left out."""
        block = self.past.volume.device.read_range(addr, 1, self.past.geo.block_size)[0]
        if addr == version.blkaddr:
            try:
                block = Inode(self.past.geo, block, version.ino, addr).inline_area
            except F2fsError:
                return []
        found = read_slots(block, self.past.geo.max_nid, live_only=True)
        return [slot for slot in found if slot.name not in DOTS]

    # -- whose names they are ---------------------------------------------------------------------------------------

    def _give(self) -> None:
        """Give each link to the lives of its number that it can belong to."""
        for life in self.past.lives:
            self.of_life[life.ino, life.generation] = []
        for ino, links in self.links.items():
            lives = self.past.lives_of.get(ino, [])
            if len(lives) == len(links) == 1 and self._belongs(lives[0], links[0]):
                self.of_life[ino, lives[0].generation] = links
                links[0].lives = 1
                continue
            for life in lives:
                mine = self.of_life[ino, life.generation]
                for link in links:
                    if self._belongs(life, link):
                        mine.append(link)
                        link.lives += 1

    def _belongs(self, life: Life, link: Link) -> bool:
        """A new name changes the inode, so a life has a version of the age when the name came; or it knows the name."""
        if link.until <= life.first.age or link.since >= life.ends:
            return False
        for version in life.versions:
            if version.age == link.since or (version.pino == link.dir and version.name == link.name):
                return True
        if link.until == FOREVER:
            return life.live
        return link.since > life.first.age and link.until < life.last.age

    # -- paths ------------------------------------------------------------------------------------------------------

    def shown(self, directory: int, name: bytes) -> bytes:
        """A name as it is shown: that of an encrypted directory decrypted, or encoded where there is no key."""
        if directory not in self._keys:
            self._keys[directory] = self._key_of(directory)
        encrypted, key = self._keys[directory]
        if not encrypted or name in DOTS:
            return name
        if key is not None and len(name) >= NAME_MIN_BYTES:
            return key.decrypt_name(name)
        return nokey_name(name, self._code(directory, name))

    def _key_of(self, directory: int) -> tuple[bool, FileKey | None]:
        """Whether names in a directory are ciphertext, and the key for them if it was given."""
        for life in reversed(self.past.lives_of.get(directory, [])):
            version = life.last
            if not version.is_dir or not version.advise & FADVISE_ENCRYPT_BIT:
                continue
            try:
                inode = self.past.inode(version)
            except F2fsError:
                return True, None
            return True, self.past.volume_of(life, version, self.past.nodes.size).secrets.of(inode)
        return False, None

    def _code(self, directory: int, name: bytes) -> int:
        """The hash that stands with a name; only a key could compute that of an encrypted name that ignores case."""
        code = self.past.index.tables.hash_of(directory, name)
        return name_hash(name) if code is None else code

    def link_at(self, life: Life, age: int) -> Link | None:
        """The name of a life at an age; else the last one before, else the first one."""
        links = self.of_life[life.ino, life.generation]
        for link in reversed(links):
            if link.since <= age < link.until:
                return link
        before = [link for link in links if link.since <= age]
        if before:
            return max(before, key=lambda link: (link.until, link.since))
        return links[0] if links else None

    def directory_path(self, ino: int, age: int) -> bytes:
        """The path of a directory at an age, without slashes at its ends; `#number` where it ends in the unknown.

        A very deep or very long path also begins at a directory by its number.
        """
        below: dict[int, bytes] = {}  # the way up, with the name of each
        top = ino
        while (top, age) not in self._paths:
            parent, name = self._above(top, age) if top not in below else (0, b"")  # they may lead in a circle
            if not parent:
                self._paths[top, age] = (b"" if top == F2FS_ROOT_INO else UNKNOWN_PARENT % top, 0)
                below.pop(top, None)
                break
            below[top] = self.shown(parent, name)
            top = parent
        path, depth = self._paths[top, age]
        if len(self._paths) > PATHS_KEPT:
            self._paths.clear()
        for number, name in reversed(below.items()):
            path, depth = join(path, name), depth + 1
            if depth > MAX_DEPTH or len(path) > MAX_PATH:
                path, depth = UNKNOWN_PARENT % number, 0
            self._paths[number, age] = (path, depth)
        return path

    def _above(self, ino: int, age: int) -> tuple[int, bytes]:
        """(parent, name) of a directory at an age; 0 where it is the root, or not known."""
        life = self.past.life_at(ino, age) if ino != F2FS_ROOT_INO else None
        if life is None:
            return 0, b""
        parent, name = self.place(life, self.past.version_at(life, age), age)
        return (parent, name) if name else (0, b"")

    def place(self, life: Life, version: InodeVersion, age: int) -> tuple[int, bytes]:
        """(parent, name) of a life at an age, for which `version` is the state of the inode."""
        link = self.link_at(life, age)
        if link is not None and not (link.until <= version.age and version.links and version.name):
            return link.dir, link.name
        if version.name and version.links:
            return version.pino, version.name
        if link is not None:
            return link.dir, link.name
        return version.pino, version.name

    def paths(self, life: Life, version: InodeVersion, *, first: bool = False) -> list[bytes]:
        """The paths of a version, the most likely one first; never none.

        Those at the end of its time, or with `first` those when it was written.
        """
        age = version.age
        following = life.after(version)
        if following is not None and following.age == age and version.name and version.links:
            return [self.path_of(version.pino, version.name, age, life.ino)]
        if not first:
            age = self.seen_until(life, version)
        place = self.place(life, version, age)
        found = {self.path_of(*place, age, life.ino): None}  # in their order
        for link in self.of_life[life.ino, life.generation]:
            if link.since <= age < link.until and (link.dir, link.name) != place:
                found[self.path_of(link.dir, link.name, age, life.ino)] = None
        return list(found)

    def lasting_path(self, life: Life) -> bytes | None:
        """The only path of a life of one version and one name, whenever it is asked for; None of any other life."""
        links = self.of_life[life.ino, life.generation]
        if len(links) != 1 or len(life.versions) != 1 or life.ends != FOREVER:
            return None
        link, age = links[0], life.versions[0].age
        if link.until != FOREVER or life.ino == F2FS_ROOT_INO:
            return None
        directory = self.directory_path(link.dir, max(age, 0))
        if age < 0 and self.directory_path(link.dir, age) != directory:
            return None
        return join(directory, self.shown(link.dir, link.name))

    def paths_at(self, life: Life, version: InodeVersion, age: int) -> list[bytes]:
        """The paths at an age for which a directory entry speaks; none where no entry does."""
        links = self.of_life[life.ino, life.generation]
        return [self.path_of(link.dir, link.name, age, life.ino) for link in links if link.since <= age < link.until]

    def path_of(self, parent: int, name: bytes, age: int, ino: int) -> bytes:
        """The path of a name in a directory as it was called at an age."""
        if ino == F2FS_ROOT_INO:
            return b""
        if not name:
            return join(self.directory_path(parent, age), UNKNOWN_PARENT % ino) if parent else UNKNOWN_PARENT % ino
        return join(self.directory_path(parent, age), self.shown(parent, name))

    def lived_until(self, life: Life, depth: int = 0) -> int:
        """The age before which a life is known to have been there: by its own versions, and by those that name it."""
        key = (life.ino, life.generation)
        if key in self._lived:
            return self._lived[key]
        if depth > MAX_DIRECTORIES_ABOVE:
            return life.last.age
        if life.live or life.orphan or is_root(life.ino):
            self._lived[key] = 0
            return 0
        self._lived[key] = known = life.last.age  # also where directories lead in a circle
        for link in self.of_life[key]:
            if link.lives == 1:
                known = max(known, self._there_until(link, depth))
        self._lived[key] = min(known, life.ends, 0)
        return self._lived[key]

    def _there_until(self, link: Link, depth: int) -> int:
        """The age before which a name is known to have been there.

        Where a directory was removed with everything in it, no version lacks the name: it goes with the directory.
        """
        directory = self.past.life_at(link.dir, link.since)
        if directory is None:
            return link.since
        version = self.past.version_at(directory, link.until - 1)
        until = link.until if link.until != FOREVER else self.lived_until(directory, depth + 1)
        return version.age if self.past.newer_may_be_lost(version, min(until, 0)) else until

    def seen_until(self, life: Life, version: InodeVersion) -> int:
        """The last age at which a version was the newest one and had a name."""
        after = life.after(version)
        following = life.ends if after is None else after.age
        ages = [
            min(link.until, following) - 1
            for link in self.of_life[life.ino, life.generation]
            if link.since < following and link.until > version.age
        ]
        return max(version.age, min(0, max(ages))) if ages else version.age
