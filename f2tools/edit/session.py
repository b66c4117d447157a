"""The state that verbs work on: an open image, its paths, and what was done to it so far."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from f2tools.edit.errors import EditFailed
from f2tools.edit.modes import change_mode
from f2tools.edit.paths import Inside, Outside, parse_path
from f2tools.edit.transaction import Edit
from f2tools.errors import Corrupt, NoFreeSegment, Where
from f2tools.f2fs.volume.glob import expand
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.text import join, printable, printable_name

LINKS_FOLLOWED = 40


@dataclass
class Session:
    """A volume that is being changed, and what was done to it so far."""

    edit: Edit
    volume: WritableVolume
    image: str
    owner: tuple[int, int] = (0, 0)  # of new files
    umask: int = 0o022
    done: list[dict[str, Any]] = field(default_factory=list)

    # -- paths ----------------------------------------------------------------------------------------------------

    def find(self, path: Inside, follow: bool = True) -> LiveInode:
        """The inode behind a path; EditFailed where there is none."""
        return self.live(self._ino(path.path, follow))

    def find_or_none(self, path: Inside, follow: bool = True) -> LiveInode | None:
        """The inode behind a path, None where there is nothing by that name; its directory must be there."""
        try:
            return self.live(self._ino(path.path, follow))
        except FileNotFoundError:
            return None

    def matching(self, paths: Sequence[Any]) -> tuple[Any, ...]:
        """The paths that patterns in this image mean, as a shell has it: one that matches nothing stays as it is, and
        so does what is on the host, in another image or no path."""
        found: list[Any] = []
        for path in paths:
            if not isinstance(path, Inside) or path.image not in ("", self.image):
                found.append(path)
                continue
            found += [Inside(path.image, one) for one in expand(self.volume, path.path) or [path.path]]
        return tuple(found)

    def parent(self, path: Inside) -> tuple[int, bytes]:
        """(directory, name) of a path whose last part need not be there."""
        directory, _, name = path.path.rstrip(b"/").rpartition(b"/")
        if name in (b"", b".", b".."):
            raise OSError(errno.EINVAL, "this names no entry of a directory")
        ino = self._ino(directory or b"/", follow=True)
        if not self.live(ino).is_dir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return ino, name

    def where_it_leads(self, path: Inside) -> tuple[int, bytes]:
        """(directory, name) meant by a path whose last part may be a symbolic link, even a dangling one."""
        for _ in range(LINKS_FOLLOWED):
            parent, name = self.parent(path)
            there = self.volume.names.find(self.live(parent), name)
            if there is None or self.live(there.ino).kind != "symlink":
                return parent, name
            target = self.volume.file(there.ino).readlink()
            directory = path.path.rstrip(b"/").rpartition(b"/")[0]
            path = Inside(path.image, target if target.startswith(b"/") else directory + b"/" + target)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def live(self, ino: int) -> LiveInode:
        return self.volume.live(ino)

    def _ino(self, path: bytes, follow: bool) -> int:
        """The inode number behind a path; one that ends in a slash means a directory."""
        inode = self.volume.path(path, follow or path.endswith(b"/")).inode
        if path.endswith(b"/") and not inode.is_dir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return inode.ino

    def names_in(self, directory: LiveInode) -> list[tuple[bytes, int]]:
        """(name, inode number) of what is in a directory, `.` and `..` left out; encrypted names as they are shown."""
        dirs = self.volume.dirs
        found = [entry for entry in dirs.entries(directory) if entry.name not in (b".", b"..")]
        return [(name, entry.ino) for name, entry in zip(dirs.shown(directory, found), found, strict=True)]

    def below(self, ino: int, path: bytes) -> Iterator[tuple[bytes, int]]:
        """(path, inode number) of a directory and everything in it, parents first; links are not followed.

        No inode may be held from one to the next: those that were read go again where they are many.
        """
        met: set[int] = set()
        todo = [(path, ino)]
        while todo:
            here, number = todo.pop()
            yield here, number
            self.volume.nodes.shrink()
            inode = self.live(number)
            if not inode.is_dir:
                continue
            if number in met:
                raise Corrupt(Where(ino=number, path=self.shown(here)), "a directory with two names; run f2tools fsck")
            met.add(number)
            names = self.names_in(inode)
            todo += [(join(here, name), child) for name, child in reversed(names)]

    # -- making ---------------------------------------------------------------------------------------------------

    def mkdir(self, path: Inside, mode: str | None = None) -> int:
        """A new directory; without a mode it is what umask or default ACL leave."""
        return self.mkdir_in(*self.parent(path), path, mode)

    def mkdir_in(self, parent: int, name: bytes, path: Inside, mode: str | None = None) -> int:
        """The same in a directory by number; `path` is for the report."""
        ino = self.volume.mkdir(parent, name, 0o777, *self.owner, umask=self.umask)
        if mode is not None:
            inherited = self.live(ino).i_mode & stat.S_ISGID
            self.volume.setattr(ino, mode=change_mode(mode, 0o777 | inherited, True, self.umask))
        self.note("mkdir", path)
        return ino

    def create(self, path: Inside, kind: int, rdev: tuple[int, int] = (0, 0), mode: int | None = None) -> int:
        """A new file of the type S_IF*; the rest as for `mkdir`."""
        if path.path.endswith(b"/"):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        ino = self.volume.create(*self.where_it_leads(path), kind | 0o666, *self.owner, rdev, umask=self.umask)
        if mode is not None:
            self.volume.setattr(ino, mode=mode)
        self.note("create", path, kind=self.live(ino).kind)
        return ino

    def same(self, target: str, ino: int) -> bool:
        """Whether a path in this image leads to this file."""
        place = parse_path(target, only_inside=True)
        assert isinstance(place, Inside)
        found = self.find_or_none(place, follow=False)
        return found is not None and found.ino == ino

    # -- reporting ------------------------------------------------------------------------------------------------

    def note(self, verb: str, path: Inside | bytes, **more: Any) -> None:
        """Remember that something was done."""
        raw = path.path if isinstance(path, Inside) else path
        self.done.append({"verb": verb, "path": os.fsdecode(raw), **more})

    @contextmanager
    def doing(self, what: Inside | Outside | bytes | str) -> Iterator[None]:
        """Errors of the engine in here are about this path."""
        try:
            yield
        except EditFailed:
            raise
        except NoFreeSegment:
            raise EditFailed(f"{self.shown(what)}: {os.strerror(errno.ENOSPC)}") from None
        except OSError as error:
            raise EditFailed(f"{self.shown(what)}: {error.strerror or error}") from None

    @contextmanager
    def about(self, what: str) -> Iterator[None]:
        """Errors of the engine in here say what they are about."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, f"{what}: {error.strerror or error}") from None

    def shown(self, what: Inside | Outside | bytes | str) -> str:
        """A path for messages; bytes are a path in the image, text one on the host."""
        if isinstance(what, Inside):
            what = what.path
        if isinstance(what, bytes):
            return printable_name(f"{self.image}:{os.fsdecode(what)}")
        return printable(str(what))


@contextmanager
def session(
    image: str, devices: tuple[str, ...] = (), *, dry_run: bool = False, undo: str | None = None
) -> Iterator[Session]:
    """Open an image for one change: it is written when the block ends well, and else stays as it is."""
    try:
        with Edit(image, devices=devices, dry_run=dry_run, undo=undo) as edit:
            yield Session(edit, edit.volume, image, umask=_umask())
    except EditFailed as error:
        said = EditFailed(f"{error}; nothing was changed")
        said.exit_code = error.exit_code
        raise said from None


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
