"""Copying trees into an image, as cp(1) does: what is there is written over in place, directories are merged.

Without `keep` new files belong to the session's owner and have the mode without the umask's bits.  With it owners,
modes, times, extended attributes, ACLs and hard links are kept.  Holes always are.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from dataclasses import dataclass

from f2tools.edit.acls import drop_acls
from f2tools.edit.errors import EditFailed
from f2tools.edit.items import HostItem, ImageItem, Item, StreamItem, total_size
from f2tools.edit.paths import Inside, Outside
from f2tools.edit.session import Session
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume, open_volume
from f2tools.remarks import said_of_state
from f2tools.text import join


@dataclass
class _Todo:
    """A file to be copied, or, with `made`, a directory whose attributes come last."""

    item: Item
    parent: int
    name: bytes
    path: bytes
    made: int | None = None


class Copier:
    """One `cp`: what is kept, and which hard links were seen."""

    def __init__(self, session: Session, recursive: bool = False, keep: bool = False) -> None:
        self._session = session
        self._vol = session.volume
        self._recursive = recursive
        self._keep = keep
        self._linked: dict[tuple[object, int], int] = {}
        self._poured: list[Item] = []  # directories of which what is in them goes into the target
        self._others: dict[str, Volume] = {}  # images that are copied from
        self._image = _identity(session.image)
        self._bar = session.edit.bar("copying", 0)

    def run(self, sources: list[Inside | Outside], target: Inside) -> None:
        """Copy the sources to a target: into it where it is a directory, else, a single one, as it."""
        try:
            self._run(sources, target)
        finally:
            for volume in self._others.values():
                volume.close()

    def _run(self, sources: list[Inside | Outside], target: Inside) -> None:
        session = self._session
        with session.doing(target):
            there = session.find_or_none(target)
        inside = there is not None and there.is_dir
        items: list[Item] = []
        for source in sources:
            with session.doing(source):
                items += self._items(source, inside)
        with session.doing(target):
            if not inside and target.path.endswith(b"/") and not (len(items) == 1 and stat.S_ISDIR(items[0].mode)):
                why = errno.ENOENT if there is None else errno.ENOTDIR
                raise OSError(why, os.strerror(why))
        if len(sources) > 1 and not inside:
            shown = session.shown(target)
            raise EditFailed(f"{shown}: several files can only be copied into a directory, which this is not")
        total = total_size(items) if sys.stderr.isatty() else None
        with session.edit.bar("copying", total) as self._bar:
            for item in items:
                if inside:
                    assert there is not None
                    if item.name in (b"", b".", b".."):
                        raise EditFailed(f"{item.shown} has no name; name the copy")
                    self._put(item, there.ino, item.name, join(target.path, item.name))
                else:
                    with session.doing(target):
                        parent, name = session.parent(target)
                    self._put(item, parent, name, target.path)
            if self._keep and there is not None:
                for item in self._poured:
                    with session.doing(target):
                        self._dress(item, there.ino)

    def _items(self, source: Inside | Outside, inside: bool) -> list[Item]:
        """What a source names; for a directory written as `directory/.`, what is in it, to go into another one."""
        if isinstance(source, Inside):
            found: Item = self._image_item(source)
            contents = source.path.endswith(b"/.")
        elif source.path == "-":
            return [StreamItem()]
        else:
            found = HostItem(os.fsencode(source.path), follow=not self._recursive)
            contents = source.path.rstrip("/").endswith("/.") or source.path.rstrip("/") == "."
        if not (contents and inside and self._recursive and stat.S_ISDIR(found.mode)):
            return [found]
        self._poured.append(found)
        return found.children()

    def _image_item(self, source: Inside) -> ImageItem:
        session, follow = self._session, not self._recursive
        if not source.image or _same(source.image, session.image):
            inode = session.find(source, follow)
            return ImageItem(self._vol, inode, source.path, session.image)
        if source.image not in self._others:
            self._others[source.image] = other = open_volume(source.image)
            session.edit.notes += [*other.warnings, *said_of_state(other, source.image)]
        volume = self._others[source.image]
        return ImageItem(volume, volume.path(source.path, follow).inode, source.path, source.image)

    def _put(self, item: Item, parent: int, name: bytes, path: bytes) -> None:
        """Copy one file, with everything below it, under this name."""
        todo = [_Todo(item, parent, name, path)]
        met = set[object]()  # directories of an image, which a damaged one may have at many places, also in itself
        if stat.S_ISDIR(item.mode):
            if not self._recursive:
                raise EditFailed(f"{item.shown}: is a directory; -r copies it with all in it")
            self._check_outside(item, parent)
        while todo:
            one = todo.pop()
            with self._session.doing(one.path):
                if one.made is not None:
                    self._dress(one.item, one.made)
                elif stat.S_ISDIR(one.item.mode):
                    if isinstance(one.item, ImageItem) and one.item.identity in met:
                        raise EditFailed(f"{one.item.shown}: the directory stands at a second place; fsck its image")
                    met.add(one.item.identity)
                    made = self._directory(one)
                    children = one.item.children()
                    if self._keep:
                        todo.append(_Todo(one.item, one.parent, one.name, one.path, made))
                    todo += [_Todo(x, made, x.name, join(one.path, x.name)) for x in reversed(children)]
                else:
                    self._one(one)

    def _check_outside(self, item: Item, parent: int) -> None:
        """Refuse to copy a directory into itself."""
        if not isinstance(item, ImageItem) or item.identity[0] != id(self._vol):
            return
        ino, seen = parent, set[int]()
        while ino not in seen:
            if ino == item.identity[1]:
                raise EditFailed(f"{item.shown}: a directory can't be copied into itself")
            seen.add(ino)
            ino = self._vol.lookup(ino, b"..")

    def _existing(self, parent: int, name: bytes) -> Inode | None:
        found = self._vol.names.find(self._vol.live(parent), name)
        return None if found is None else self._vol.nodes.inode(found.ino)

    def _directory(self, one: _Todo) -> int:
        there = self._existing(one.parent, one.name)
        if there is not None:
            if not there.is_dir:
                raise OSError(errno.ENOTDIR, "a directory can't take the place of what is there")
            return there.ino
        mode = stat.S_IMODE(one.item.mode) & 0o1777
        ino = self._vol.mkdir(one.parent, one.name, mode, *self._session.owner, umask=self._umask)
        self._session.note("mkdir", one.path, ino=ino)
        return ino

    @property
    def _umask(self) -> int:
        return 0o077 if self._keep else self._session.umask

    def _one(self, one: _Todo) -> None:
        item, mode = one.item, one.item.mode
        if item.identity == self._image:
            self._session.edit.notes.append(f"{item.shown} is the image itself, and was left out")
            return
        if self._keep and item.links > 1 and item.identity in self._linked:
            self._link(one, self._linked[item.identity])
            return
        there = self._existing(one.parent, one.name)
        if there is not None and there.is_dir:
            raise OSError(errno.EISDIR, "a file can't take the place of a directory")
        if there is not None and item.identity == (id(self._vol), there.ino):
            raise OSError(errno.EINVAL, f"is the same file as {item.shown}")
        if stat.S_ISREG(mode):
            ino = self._regular(one, there)
        else:
            if there is not None:
                self._vol.unlink(one.parent, one.name)
            if stat.S_ISLNK(mode):
                target = item.target()
                ino = self._vol.symlink(one.parent, one.name, target, *self._session.owner)
                self._session.note("symlink", one.path, target=os.fsdecode(target))
            else:
                ino = self._vol.create(
                    one.parent, one.name, stat.S_IFMT(mode) | mode & 0o777, *self._session.owner,
                    rdev=item.rdev, umask=self._umask,
                )  # fmt: skip
                self._session.note("create", one.path, kind=self._vol.nodes.inode(ino).kind)
        if self._keep:
            self._dress(item, ino)
            if item.links > 1:
                self._linked[item.identity] = ino

    def _link(self, one: _Todo, ino: int) -> None:
        there = self._existing(one.parent, one.name)
        if there is not None and there.ino == ino:
            return
        if there is not None:
            self._vol.unlink(one.parent, one.name)
        self._vol.link(ino, one.parent, one.name)
        self._session.note("link", one.path, ino=ino)

    def _regular(self, one: _Todo, there: Inode | None) -> int:
        vol, item = self._vol, one.item
        parent, name = one.parent, one.name
        if there is not None and there.kind == "symlink":  # it is written to where the link leads
            parent, name = self._session.where_it_leads(Inside("", one.path))
            there = self._existing(parent, name)
            if there is not None and item.identity == (id(vol), there.ino):
                raise OSError(errno.EINVAL, f"is the same file as {item.shown}")
        if there is None:
            mode = stat.S_IFREG | item.mode & 0o777
            ino = vol.create(parent, name, mode, *self._session.owner, umask=self._umask)
        elif there.is_file:
            ino = there.ino
            vol.truncate(ino, 0)
        else:
            raise OSError(errno.EEXIST, f"there is a {there.kind} by that name")
        end = 0
        for offset, data in item.chunks():
            written = vol.write(ino, offset, data)
            if written != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            end = offset + written
            self._bar.advance(written)
        if end < item.size:
            vol.truncate(ino, item.size)
        self._session.note("write" if there is not None else "create", one.path, kind="file", size=max(end, item.size))
        return ino

    def _dress(self, item: Item, ino: int) -> None:
        """Owner, attributes, mode and times; an ACL sets the mode, and the mode keeps the ACL.

        ACLs are the source's only, as they say who may read the copy; other attributes of what is there stay.
        """
        vol, xattrs = self._vol, item.xattrs()
        vol.setattr(ino, uid=item.uid, gid=item.gid)
        drop_acls(vol, ino, xattrs)
        for name, value in xattrs.items():
            with self._session.about(f"attribute {name}"):
                vol.setxattr(ino, name, value)
        mode = None if stat.S_ISLNK(item.mode) else stat.S_IMODE(item.mode)
        vol.setattr(ino, mode=mode, atime_ns=item.atime_ns, mtime_ns=item.mtime_ns)


def _same(one: str, other: str) -> bool:
    identity = _identity(one)
    return identity is not None and identity == _identity(other)


def _identity(path: str) -> tuple[object, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
