"""Directories of a view that lost blocks: their names from what inodes and other versions of them say."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from f2tools.errors import DeviceError, F2fsError
from f2tools.f2fs.layout.constants import COMPRESS_ADDR, F2FS_ROOT_INO
from f2tools.f2fs.layout.file_type import file_type
from f2tools.f2fs.volume.dentries import Dentry, name_hash, parse_dentries
from f2tools.f2fs.volume.dir import DirReader
from f2tools.f2fs.volume.inode import Inode
from f2tools.forensics.content import Contents
from f2tools.forensics.names import LinkHistory
from f2tools.forensics.past import Life, Past, PastVolume

REMEMBERED = "blocks of the directory were written to since; names in them are from inodes and other versions"


class PastDirs(DirReader):
    """Reads directories of a view; where blocks can't be read, names that were there for sure take their place."""

    def __init__(self, past: Past, contents: Contents, view: PastVolume, age: int) -> None:
        super().__init__(past.geo, view.data, view.secrets)
        self._past = past
        self._contents = contents
        self._view = view
        self._age = age

    def entries(self, inode: Inode, problems: list[str] | None = None) -> Iterator[Dentry]:
        noted = problems if problems is not None else []
        said: list[str] = []
        try:
            found = list(super().entries(inode, said))
        except DeviceError:
            found = self._remembered(inode)
            said = [REMEMBERED]
        noted += said
        yield from found

    def lookup(self, inode: Inode, name: bytes) -> Dentry | None:
        try:
            return super().lookup(inode, name)
        except DeviceError:
            return next((entry for entry in self.entries(inode) if entry.name == name), None)

    def _remembered(self, inode: Inode) -> list[Dentry]:
        found = self._readable(inode)
        known = {entry.ino for entry in found}
        for life in self._past.lives:
            if life.ino in known or life.ino == F2FS_ROOT_INO or life.first.age > self._age or life.ends <= self._age:
                continue
            name = self._name_in(life, inode.ino)
            if name:
                mode = self._past.version_at(life, self._age).mode
                found.append(Dentry(name, life.ino, file_type(mode), name_hash(name), -1, 0))
                known.add(life.ino)
        return found

    def _readable(self, inode: Inode) -> list[Dentry]:
        """The entries of those blocks that can be read."""
        found: list[Dentry] = []
        try:
            rows = self._contents.map(self._view, inode).rows
        except F2fsError:
            return found
        for row in rows[rows["blkaddr"] != COMPRESS_ADDR]:
            try:
                block = self._view.device.read_range(int(row["blkaddr"]), 1, self._past.geo.block_size)
            except DeviceError:
                continue
            found += parse_dentries(np.ascontiguousarray(block[0]), int(row["fofs"]), [])
        return found

    def _name_in(self, life: Life, directory: int) -> bytes | None:
        """The name that a life had in a directory, where it is sure that it had one there."""
        links = [link for link in self._names.of_life[life.ino, life.generation] if link.dir == directory]
        for link in links:
            if link.since <= self._age < link.until:
                return link.name
        version = self._past.version_at(life, self._age)
        later = life.live or life.last.age > self._age
        if version.pino == directory and version.links and later and all(link.since > self._age for link in links):
            return version.name
        return None

    @cached_property
    def _names(self) -> LinkHistory:
        return LinkHistory(self._past, self._contents)
