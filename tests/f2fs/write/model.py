"""A file system in plain dicts that the engine is held against: the calls of the engine, with the rules of Linux.

A `Model` is cheap to copy, so that a test can keep one for every moment a power cut may throw it back to.  Inode
numbers come from the engine.  Times are known only where they were set; None stands for "whatever it is".
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from f2tools.f2fs.layout.casefold import casefold
from f2tools.f2fs.layout.constants import (
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_DIRSYNC_FL,
    F2FS_NOATIME_FL,
    F2FS_NOCOMP_FL,
    F2FS_NODUMP_FL,
    F2FS_PROJINHERIT_FL,
    F2FS_ROOT_INO,
    F2FS_SYNC_FL,
)

BLOCK = 4096
NAME_MAX, LINK_MAX = 255, 32000
KEEP_SIZE, PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE = 1, 2, 8, 16, 32
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
XATTR_CREATE, XATTR_REPLACE = 1, 2
ACL_ACCESS, ACL_DEFAULT = "system.posix_acl_access", "system.posix_acl_default"

# fs/f2fs/f2fs.h: F2FS_FL_INHERITED and f2fs_mask_flags()
INHERITED = (
    F2FS_SYNC_FL | F2FS_NODUMP_FL | F2FS_NOATIME_FL | F2FS_DIRSYNC_FL | F2FS_PROJINHERIT_FL | F2FS_CASEFOLD_FL
    | F2FS_COMPR_FL | F2FS_NOCOMP_FL
)  # fmt: skip
ONLY_DIRECTORIES = F2FS_DIRSYNC_FL | F2FS_PROJINHERIT_FL | F2FS_CASEFOLD_FL
OTHERS_TOO = F2FS_NODUMP_FL | F2FS_NOATIME_FL

Blocks = Mapping[int, bytes]


@dataclass(frozen=True)
class Node:
    """One inode; `blocks` has the blocks that are not all zero, `children` the names of a directory."""

    kind: int  # S_IFMT
    mode: int  # 07777
    uid: int = 0
    gid: int = 0
    links: int = 1
    size: int = 0
    blocks: Blocks = field(default_factory=dict)
    target: bytes = b""
    rdev: tuple[int, int] = (0, 0)
    children: Mapping[bytes, int] = field(default_factory=dict)
    parent: int = 0
    xattrs: Mapping[str, bytes] = field(default_factory=dict)
    flags: int = 0
    projid: int = 0
    atime_ns: int | None = None
    mtime_ns: int | None = None

    @property
    def is_dir(self) -> bool:
        return self.kind == stat.S_IFDIR

    @property
    def is_file(self) -> bool:
        return self.kind == stat.S_IFREG

    @property
    def folds(self) -> bool:
        return bool(self.flags & F2FS_CASEFOLD_FL)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes, cut at the size."""
        end = min(offset + length, self.size)
        if end <= offset:
            return b""
        first, last = offset // BLOCK, -(-end // BLOCK)
        whole = b"".join(self.blocks.get(n, bytes(BLOCK)) for n in range(first, last))
        return whole[offset - first * BLOCK : end - first * BLOCK]


def put(blocks: Blocks, offset: int, data: bytes) -> Blocks:
    """Blocks with `data` written at `offset`."""
    result = dict(blocks)
    at = 0
    while at < len(data):
        number, skip = divmod(offset + at, BLOCK)
        piece = data[at : at + BLOCK - skip]
        old = result.get(number, bytes(BLOCK))
        new = old[:skip] + piece + old[skip + len(piece) :]
        if any(new):
            result[number] = new
        else:
            result.pop(number, None)
        at += len(piece)
    return result


def zeroed(blocks: Blocks, offset: int, length: int) -> Blocks:
    """Blocks with a range of zeros."""
    first, last = -(-offset // BLOCK), (offset + length) // BLOCK
    if first > last:
        return put(blocks, offset, bytes(length))
    result = {n: data for n, data in blocks.items() if not first <= n < last}
    result = put(result, offset, bytes(first * BLOCK - offset))
    return put(result, last * BLOCK, bytes(offset + length - last * BLOCK))


def cut(blocks: Blocks, size: int) -> Blocks:
    """Blocks with nothing at or behind `size`."""
    last = -(-size // BLOCK)
    result = {n: data for n, data in blocks.items() if n < last}
    return put(result, size, bytes(-size % BLOCK)) if last - 1 in result else result


def fail(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


class Model:
    """All inodes by number.  The methods are the engine's; those that make an inode take its number as `ino`."""

    def __init__(self, features: frozenset[str] = frozenset(), root: Node | None = None) -> None:
        self.features = features
        self.nodes: dict[int, Node] = {F2FS_ROOT_INO: root or Node(stat.S_IFDIR, 0o755, links=2, parent=F2FS_ROOT_INO)}
        self.held: set[int] = set()

    def copy(self) -> Model:
        """Another one, equal and independent."""
        other = Model(self.features)
        other.nodes = dict(self.nodes)
        other.held = set(self.held)
        return other

    # -- looking --------------------------------------------------------------------------------------------------

    def key(self, directory: Node, name: bytes) -> bytes | None:
        """The name under which a directory has this one, which may differ in case."""
        if name in directory.children:
            return name
        if directory.folds:
            wanted = casefold(name)
            for known in directory.children:
                if wanted is not None and casefold(known) == wanted:
                    return known
        return None

    def lookup(self, parent: int, name: bytes) -> int:
        directory = self.directory(parent)
        if len(name) > NAME_MAX:
            fail(errno.ENAMETOOLONG)
        key = self.key(directory, name)
        if key is None:
            fail(errno.ENOENT)
        return directory.children[key]

    def directory(self, ino: int) -> Node:
        node = self.nodes[ino]
        if not node.is_dir:
            fail(errno.ENOTDIR)
        return node

    def paths(self) -> dict[bytes, int]:
        """Path -> inode number of all that has a name; the root is b"/"."""
        found = {b"/": F2FS_ROOT_INO}
        todo = [(b"", F2FS_ROOT_INO)]
        while todo:
            prefix, ino = todo.pop()
            for name, child in self.nodes[ino].children.items():
                path = prefix + b"/" + name
                found[path] = child
                if self.nodes[child].is_dir:
                    todo.append((path, child))
        return found

    def names_of(self, ino: int) -> list[tuple[int, bytes]]:
        """(directory, name) of all names of an inode."""
        return [
            (number, name)
            for number, node in self.nodes.items()
            if node.is_dir
            for name, child in node.children.items()
            if child == ino
        ]

    # -- making and removing names --------------------------------------------------------------------------------

    def change(self, ino: int, **fields: Any) -> None:
        self.nodes[ino] = replace(self.nodes[ino], **fields)

    def _enter(self, parent: int, name: bytes, ino: int) -> None:
        children = dict(self.nodes[parent].children)
        children[name] = ino
        self.change(parent, children=children, mtime_ns=None)

    def _leave(self, parent: int, name: bytes) -> None:
        children = dict(self.nodes[parent].children)
        del children[name]
        self.change(parent, children=children, mtime_ns=None)

    def _room_for(self, parent: int, name: bytes) -> Node:
        directory = self.directory(parent)
        if len(name) > NAME_MAX:
            fail(errno.ENAMETOOLONG)
        if name in (b".", b"..") or self.key(directory, name) is not None:
            fail(errno.EEXIST)
        return directory

    def _born(self, parent: int, kind: int, mode: int, uid: int, gid: int) -> Node:
        directory = self.nodes[parent]
        flags = directory.flags & INHERITED
        if kind == stat.S_IFREG:
            flags &= ~ONLY_DIRECTORIES
        elif kind != stat.S_IFDIR:
            flags &= OTHERS_TOO
        node = Node(kind, mode & 0o7777, uid, gid, flags=flags, parent=parent)
        if directory.flags & F2FS_PROJINHERIT_FL:
            node = replace(node, projid=directory.projid)
        if kind != stat.S_IFLNK and ACL_DEFAULT in directory.xattrs:
            node = inherit_acl(node, directory.xattrs[ACL_DEFAULT])
        return node

    def create(
        self,
        parent: int,
        name: bytes,
        mode: int,
        uid: int = 0,
        gid: int = 0,
        rdev: tuple[int, int] = (0, 0),
        *,
        ino: int,
    ) -> None:
        self._room_for(parent, name)
        self.nodes[ino] = replace(self._born(parent, stat.S_IFMT(mode), mode, uid, gid), rdev=rdev)
        self._enter(parent, name, ino)

    def mkdir(self, parent: int, name: bytes, mode: int, uid: int = 0, gid: int = 0, *, ino: int) -> None:
        self._room_for(parent, name)
        self.nodes[ino] = replace(self._born(parent, stat.S_IFDIR, mode, uid, gid), links=2)
        self._enter(parent, name, ino)
        self.change(parent, links=self.nodes[parent].links + 1)

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int = 0, gid: int = 0, *, ino: int) -> None:
        self._room_for(parent, name)
        if not target:
            fail(errno.ENOENT)
        if len(target) >= BLOCK:
            fail(errno.ENAMETOOLONG)
        born = self._born(parent, stat.S_IFLNK, 0o777, uid, gid)
        self.nodes[ino] = replace(born, target=target, size=len(target))
        self._enter(parent, name, ino)

    def link(self, ino: int, parent: int, name: bytes) -> None:
        node, directory = self.nodes[ino], self._room_for(parent, name)
        if node.is_dir:
            fail(errno.EPERM)
        self._same_project(directory, ino)
        self._enter(parent, name, ino)
        self.change(ino, links=node.links + 1)

    def unlink(self, parent: int, name: bytes) -> None:
        ino = self.lookup(parent, name)
        if self.nodes[ino].is_dir:
            fail(errno.EISDIR)
        self._leave(parent, self.key(self.nodes[parent], name) or name)
        self._drop(ino)

    def rmdir(self, parent: int, name: bytes) -> None:
        if name == b".":
            fail(errno.EINVAL)
        ino = self.lookup(parent, name)
        if not self.nodes[ino].is_dir:
            fail(errno.ENOTDIR)
        if self.nodes[ino].children:
            fail(errno.ENOTEMPTY)
        self._leave(parent, self.key(self.nodes[parent], name) or name)
        self._drop(ino)
        self.change(parent, links=self.nodes[parent].links - 1)

    def _drop(self, ino: int) -> None:
        """One name less; without any, the inode goes unless it is held."""
        node = self.nodes[ino]
        links = 0 if node.is_dir else node.links - 1
        if links or ino in self.held:
            self.change(ino, links=links)
        else:
            del self.nodes[ino]

    def hold(self, ino: int) -> None:
        self.held.add(ino)

    def release(self, ino: int) -> None:
        self.held.discard(ino)
        if not self.nodes[ino].links:
            del self.nodes[ino]

    def rename(
        self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int = 0, *, ino: int = 0
    ) -> None:
        """`ino` is the number of the whiteout with RENAME_WHITEOUT."""
        source, target = self.directory(parent), self.directory(new_parent)
        if len(new_name) > NAME_MAX:
            fail(errno.ENAMETOOLONG)
        moved = self.lookup(parent, name)
        name = self.key(source, name) or name
        taken = self.key(target, new_name)
        if flags & RENAME_EXCHANGE:
            self._exchange(parent, name, moved, new_parent, taken)
            return
        if taken is not None and flags & RENAME_NOREPLACE:
            fail(errno.EEXIST)
        if self._inside(moved, new_parent):
            fail(errno.EINVAL)
        over = target.children[taken] if taken is not None else None
        if over != moved:
            self._same_project(target, moved)
        if over is not None and taken is not None:
            folded = parent == new_parent and taken == name and taken != new_name and not flags & RENAME_WHITEOUT
            if over == moved and not folded:
                return  # two names of one file: nothing happens
            if over != moved:
                self._replace(moved, over, new_parent, taken)
        self._leave(parent, name)
        self._enter(new_parent, new_name if over is None or over == moved else taken or new_name, moved)
        if self.nodes[moved].is_dir and parent != new_parent:
            self.change(moved, parent=new_parent)
            self.change(parent, links=self.nodes[parent].links - 1)
            self.change(new_parent, links=self.nodes[new_parent].links + 1)
        if flags & RENAME_WHITEOUT:
            born = self._born(parent, stat.S_IFCHR, 0, 0, 0)
            self.nodes[ino] = replace(born, xattrs={})
            self._enter(parent, name, ino)

    def _replace(self, moved: int, over: int, new_parent: int, taken: bytes) -> None:
        if self.nodes[over].is_dir:
            if not self.nodes[moved].is_dir:
                fail(errno.EISDIR)
            if self.nodes[over].children:
                fail(errno.ENOTEMPTY)
            self.change(new_parent, links=self.nodes[new_parent].links - 1)
        elif self.nodes[moved].is_dir:
            fail(errno.ENOTDIR)
        self._leave(new_parent, taken)
        self._drop(over)

    def _exchange(self, parent: int, name: bytes, moved: int, new_parent: int, taken: bytes | None) -> None:
        if taken is None:
            fail(errno.ENOENT)
        other = self.nodes[new_parent].children[taken]
        if self._inside(moved, new_parent) or self._inside(other, parent):
            fail(errno.EINVAL)
        self._same_project(self.nodes[new_parent], moved)
        self._same_project(self.nodes[parent], other)
        self._enter(parent, name, other)
        self._enter(new_parent, taken, moved)
        for ino, old, new in ((moved, parent, new_parent), (other, new_parent, parent)):
            if self.nodes[ino].is_dir and old != new:
                self.change(ino, parent=new)
                self.change(old, links=self.nodes[old].links - 1)
                self.change(new, links=self.nodes[new].links + 1)

    def _same_project(self, directory: Node, ino: int) -> None:
        if directory.flags & F2FS_PROJINHERIT_FL and directory.projid != self.nodes[ino].projid:
            fail(errno.EXDEV)

    def _inside(self, ino: int, directory: int) -> bool:
        """Whether a directory is, or lies below, the inode."""
        while True:
            if directory == ino:
                return True
            if directory == F2FS_ROOT_INO:
                return False
            directory = self.nodes[directory].parent

    # -- content --------------------------------------------------------------------------------------------------

    def _file(self, ino: int) -> Node:
        node = self.nodes[ino]
        if node.is_dir:
            fail(errno.EISDIR)
        if not node.is_file:
            fail(errno.EINVAL)
        return node

    def read_at(self, ino: int, offset: int, length: int) -> bytes:
        return self._file(ino).read(offset, length)

    def write(self, ino: int, offset: int, data: bytes) -> int:
        node = self._file(ino)
        if data:
            blocks = put(node.blocks, offset, data)
            self.change(ino, blocks=blocks, size=max(node.size, offset + len(data)), mtime_ns=None)
        return len(data)

    def truncate(self, ino: int, size: int) -> None:
        node = self._file(ino)
        self.change(ino, blocks=cut(node.blocks, size), size=size, mtime_ns=None)

    def fallocate(self, ino: int, mode: int, offset: int, length: int) -> None:
        node = self._file(ino)
        if length <= 0 or offset < 0:
            fail(errno.EINVAL)
        end = offset + length
        blocks, size = node.blocks, node.size
        if mode & PUNCH_HOLE:
            if not mode & KEEP_SIZE:
                fail(errno.EOPNOTSUPP)
            blocks = cut(zeroed(blocks, offset, length), size)
        elif mode & ZERO_RANGE:
            blocks = zeroed(blocks, offset, length)
            size = size if mode & KEEP_SIZE else max(size, end)
        elif mode & (COLLAPSE_RANGE | INSERT_RANGE):
            first, count = offset // BLOCK, length // BLOCK
            if offset % BLOCK or length % BLOCK:
                fail(errno.EINVAL)
            if mode & COLLAPSE_RANGE:
                if end >= size:
                    fail(errno.EINVAL)
                kept = {n: data for n, data in blocks.items() if n < first}
                blocks = kept | {n - count: data for n, data in blocks.items() if n >= first + count}
                size -= length
            else:
                if offset >= size:
                    fail(errno.EINVAL)
                blocks = {n if n < first else n + count: data for n, data in blocks.items()}
                size += length
        elif not mode & KEEP_SIZE:
            size = max(size, end)
        self.change(ino, blocks=blocks, size=size, mtime_ns=None)

    # -- attributes -----------------------------------------------------------------------------------------------

    def setattr(
        self,
        ino: int,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        atime_ns: int | None = None,
        mtime_ns: int | None = None,
    ) -> None:
        given = {"uid": uid, "gid": gid, "atime_ns": atime_ns, "mtime_ns": mtime_ns}
        self.change(ino, **{name: value for name, value in given.items() if value is not None})
        if mode is not None:
            node = self.nodes[ino]
            xattrs = dict(node.xattrs)
            if ACL_ACCESS in xattrs:
                xattrs[ACL_ACCESS] = chmod_acl(xattrs[ACL_ACCESS], mode)
            self.change(ino, mode=mode & 0o7777, xattrs=xattrs)

    def set_flags(self, ino: int, flags: int) -> None:
        self.change(ino, flags=flags)

    def set_projid(self, ino: int, projid: int) -> None:
        self.change(ino, projid=projid)

    def getxattr(self, ino: int, name: str) -> bytes:
        if name not in self.nodes[ino].xattrs:
            fail(errno.ENODATA)
        return self.nodes[ino].xattrs[name]

    def listxattr(self, ino: int) -> list[str]:
        return sorted(self.nodes[ino].xattrs)

    def setxattr(self, ino: int, name: str, value: bytes, flags: int = 0) -> None:
        node = self.nodes[ino]
        if flags & XATTR_CREATE and name in node.xattrs:
            fail(errno.EEXIST)
        if flags & XATTR_REPLACE and name not in node.xattrs:
            fail(errno.ENODATA)
        xattrs = dict(node.xattrs)
        xattrs[name] = value
        if name == ACL_ACCESS:
            mode, extended = mode_of_acl(value, node.mode)
            if not extended:
                del xattrs[name]
            self.change(ino, mode=mode)
        elif name == ACL_DEFAULT and not node.is_dir:
            fail(errno.EACCES)
        self.change(ino, xattrs=xattrs)

    def removexattr(self, ino: int, name: str) -> None:
        xattrs = dict(self.nodes[ino].xattrs)
        if name not in xattrs:
            if name in (ACL_ACCESS, ACL_DEFAULT):
                return
            fail(errno.ENODATA)
        del xattrs[name]
        self.change(ino, xattrs=xattrs)


# -- POSIX ACLs, as setxattr takes them -------------------------------------------------------------------------------

USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20


def acl(*entries: tuple[int, int, int]) -> bytes:
    """An ACL of (tag, permissions, id); -1 as the id of an entry without."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, perm, id & 0xFFFFFFFF) for tag, perm, id in entries)


def acl_entries(value: bytes) -> list[tuple[int, int, int]]:
    return list(struct.iter_unpack("<HHI", value[4:]))


def mode_of_acl(value: bytes, mode: int) -> tuple[int, bool]:
    """(mode that an access ACL gives, whether it says more than the mode can); see posix_acl_equiv_mode()."""
    perms = {tag: perm for tag, perm, _ in acl_entries(value) if tag not in (USER, GROUP)}
    group = perms.get(MASK, perms[GROUP_OBJ])
    extended = any(tag in (USER, GROUP, MASK) for tag, _, _ in acl_entries(value))
    return mode & ~0o777 | perms[USER_OBJ] << 6 | group << 3 | perms[OTHER], extended


def chmod_acl(value: bytes, mode: int) -> bytes:
    """An access ACL after chmod; see __posix_acl_chmod_masq()."""
    entries = acl_entries(value)
    masked = any(tag == MASK for tag, _, _ in entries)
    new = {USER_OBJ: mode >> 6 & 7, OTHER: mode & 7, MASK if masked else GROUP_OBJ: mode >> 3 & 7}
    return acl(*((tag, new.get(tag, perm), number) for tag, perm, number in entries))


def inherit_acl(node: Node, default: bytes) -> Node:
    """A new inode under a directory with a default ACL; see posix_acl_create_masq()."""
    entries = acl_entries(default)
    masked = any(tag == MASK for tag, _, _ in entries)
    shifts = {USER_OBJ: 6, OTHER: 0, MASK if masked else GROUP_OBJ: 3}
    made: list[tuple[int, int, int]] = []
    mode = node.mode
    for tag, perm, number in entries:
        if tag in shifts:
            perm &= mode >> shifts[tag] & 7
            mode &= ~(7 << shifts[tag]) | perm << shifts[tag]
        made.append((tag, perm, number))
    xattrs: dict[str, bytes] = {}
    if any(tag in (USER, GROUP, MASK) for tag, _, _ in made):
        xattrs[ACL_ACCESS] = acl(*made)
    if node.is_dir:
        xattrs[ACL_DEFAULT] = default
    return replace(node, mode=mode, xattrs=xattrs)
