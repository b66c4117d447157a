"""The parts of answers to the kernel: attributes, entries, errors; and a request as a value."""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn

from f2tools.errors import Corrupt
from f2tools.fuse.direct.protocol import ATTR_OUT, ENTRY_OUT
from f2tools.fuse.options import ServeOptions
from f2tools.fuse.served import KNOWN_FOR_SECONDS, ROOT_NODE, Served, in_group
from f2tools.native import core
from f2tools.vfs import Attributes, FileSystem

NS = 1_000_000_000
CAPABILITY = b"security.capability"
CACHED_NODES = 4096


class Asked(NamedTuple):
    """A request: the caller, the operation, the inode, and what follows the header."""

    node: int
    uid: int
    gid: int
    pid: int
    body: memoryview


def refuse(number: int) -> NoReturn:
    """Answer with this errno."""
    raise OSError(number, os.strerror(number))


def strings(body: memoryview, start: int) -> list[bytes]:
    """The strings that a request ends with, each with a zero behind it."""
    return bytes(body[start:]).split(b"\0")


class NodeCache:
    """Some of the nodes of which something is known; others take their places, and it is found out again."""

    def __init__(self) -> None:
        self.nodes = array("Q", bytes(8 * CACHED_NODES))  # each at its number modulo their number; 0 is nobody

    def __contains__(self, node: int) -> bool:
        return self.nodes[node % CACHED_NODES] == node

    def add(self, node: int) -> None:
        """Remember a node."""
        self.nodes[node % CACHED_NODES] = node

    def discard(self, node: int) -> None:
        """Forget a node, if it was remembered."""
        if node in self:
            self.nodes[node % CACHED_NODES] = 0


class Answers(Served):
    """What the operations share."""

    def __init__(self, files: FileSystem, options: ServeOptions) -> None:
        super().__init__(files, options)
        self.without_capability = NodeCache()  # inodes that have no such attribute
        self.immutable: set[int] = set()  # inodes that became so here: somebody may have them open for writing
        self.invalidate: Callable[[int], None] = lambda node: None  # the attributes that the kernel has of an inode

    # -- attributes -------------------------------------------------------------------------------------------------

    def attr_out(self, found: Attributes) -> bytes:
        """An answer with attributes."""
        if core is not None and self._plain:
            made = core.fuse_attr_out(found, KNOWN_FOR_SECONDS)
            if made is not None:
                return made
        return ATTR_OUT.pack(KNOWN_FOR_SECONDS, 0, *self.attributes_of(found))

    def entry_out(self, found: Attributes, node: int, entry_known: int) -> bytes:
        """An answer with an inode and its attributes; `entry_known`: for how long its name is remembered."""
        if core is not None and self._plain:
            made = core.fuse_entry_out(found, node, entry_known, KNOWN_FOR_SECONDS)
            if made is not None:
                return made
        return ENTRY_OUT.pack(node, found.generation, entry_known, KNOWN_FOR_SECONDS, 0, 0, *self.attributes_of(found))

    def attributes_of(self, found: Attributes) -> tuple[int, ...]:
        """The fields of fuse_attr."""
        ino, _, mode, nlink, uid, gid, rdev, size, blksize, blocks, atime, mtime, ctime = found
        if not self._plain:
            options = self.options
            mode &= ~options.umask
            uid = uid if options.uid is None else options.uid
            gid = gid if options.gid is None else options.gid
        # fmt: off
        return (ino, size, blocks, atime // NS, mtime // NS, ctime // NS, atime % NS, mtime % NS, ctime % NS,
                mode, nlink, uid, gid, rdev & 0xFFFFFFFF, blksize, 0)
        # fmt: on

    def attributes(self, node: int) -> bytes:
        """A whole answer with the attributes of an inode."""
        return self.attr_out(self.files.attributes(self.ino_of(node)))

    def entry(self, ino: int, parent: int | None = None) -> bytes:
        """A whole answer with an inode that the kernel is told of from now on."""
        found = self.files.attributes(ino)
        self.told(ino)
        known = 0 if parent is not None and self.files.folds_names(parent) else KNOWN_FOR_SECONDS
        return self.entry_out(found, self.node_of(ino), known)

    def node_of(self, ino: int) -> int:
        """What FUSE calls an inode."""
        return ROOT_NODE if ino == self._root_ino else ino

    def by_handle(self, ino: int) -> bytes:
        """Check an inode to which somebody holds a handle, such as an NFS client, as it may be gone."""
        try:
            return self.entry(ino)
        except (OSError, Corrupt):
            refuse(errno.ESTALE)

    # -- privileges -------------------------------------------------------------------------------------------------

    def strip(self, asked: Asked, ino: int, bits: bool) -> None:
        """Drop a file's capabilities as its content or owner changes, and with `bits` set-user-ID and set-group-ID."""
        changed = bits and self.lose_privileges(ino, lambda group: in_group(group, asked.uid, asked.gid, asked.pid))
        if ino not in self.without_capability:
            with suppress(OSError):
                if self.files.getxattr(ino, CAPABILITY) is not None:
                    self.files.removexattr(ino, CAPABILITY)
                    changed = True
            self.without_capability.add(ino)
        if changed:
            self.invalidate(self.node_of(ino))

    def forgotten(self, node: int, times: int) -> None:
        super().forgotten(node, times)
        ino = self.ino_of(node)
        self.without_capability.discard(ino)
        if ino not in self._known:
            self.immutable.discard(ino)
