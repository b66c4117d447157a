"""One change of an image: open it, do everything, then one checkpoint; or nothing, when something can't be done."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from f2tools.device import open_for_change
from f2tools.edit.paths import Inside
from f2tools.errors import F2fsError
from f2tools.layout.constants import F2FS_ROOT_INO
from f2tools.options import printable
from f2tools.volume.nodecache import LiveInode
from f2tools.volume.writer import WritableVolume

LINKS_FOLLOWED = 40


class EditError(F2fsError):
    """What was asked can't be done; the image is as it was."""

    exit_code = 1


@dataclass
class Session:
    """A volume that is being changed, and what was done to it so far."""

    volume: WritableVolume
    image: str
    owner: tuple[int, int] = (0, 0)  # of new files
    umask: int = 0o022
    done: list[dict[str, Any]] = field(default_factory=list)

    # -- paths ----------------------------------------------------------------------------------------------------

    def find(self, path: Inside, follow: bool = True) -> LiveInode:
        """The inode behind a path; EditError where there is none."""
        return self.live(self._walk(path.path, follow)[-1])

    def find_or_none(self, path: Inside, follow: bool = True) -> LiveInode | None:
        """The same, None where there is nothing by that name; its directory must be there."""
        try:
            return self.live(self._walk(path.path, follow)[-1])
        except FileNotFoundError:
            return None

    def parent(self, path: Inside) -> tuple[int, bytes]:
        """(directory, name) of a path whose last part need not be there."""
        folder, _, name = path.path.rstrip(b"/").rpartition(b"/")
        if not name:
            raise OSError(errno.EBUSY, "the root directory itself can't be changed so")
        ino = self._walk(folder or b"/", follow=True)[-1]
        if not self.live(ino).is_dir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return ino, name

    def live(self, ino: int) -> LiveInode:
        return self.volume.live(ino)

    def _walk(self, path: bytes, follow: bool) -> list[int]:
        """The inodes from the root to a path."""
        stack = [F2FS_ROOT_INO]
        todo = [part for part in path.split(b"/") if part][::-1]
        links = 0
        while todo:
            part = todo.pop()
            if part == b".":
                continue
            if part == b"..":
                stack = stack[:-1] or stack
                continue
            ino = self.volume.lookup(stack[-1], part)
            inode = self.live(ino)
            if inode.kind == "symlink" and (todo or follow):
                links += 1
                if links > LINKS_FOLLOWED:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                target = self.volume.file(ino).readlink()
                stack = [F2FS_ROOT_INO] if target.startswith(b"/") else stack
                todo += [step for step in target.split(b"/") if step][::-1]
                continue
            stack.append(ino)
        return stack

    def names_in(self, folder: LiveInode) -> list[tuple[bytes, int]]:
        """(name, inode number) of what is in a directory, `.` and `..` left out."""
        found = self.volume.dirs.entries(folder)
        return [(entry.name, entry.ino) for entry in found if entry.name not in (b".", b"..")]

    def below(self, ino: int, path: bytes) -> Iterator[tuple[bytes, int]]:
        """(path, inode number) of a directory and everything in it, parents first; links are not followed."""
        met: set[int] = set()
        todo = [(path, ino)]
        while todo:
            here, number = todo.pop()
            yield here, number
            inode = self.live(number)
            if not inode.is_dir or number in met:
                continue
            met.add(number)
            names = self.names_in(inode)
            todo += [(here.rstrip(b"/") + b"/" + name, child) for name, child in reversed(names)]

    # -- reporting ------------------------------------------------------------------------------------------------

    def note(self, verb: str, path: Inside | bytes, **more: Any) -> None:
        """Remember that something was done."""
        raw = path.path if isinstance(path, Inside) else path
        self.done.append({"verb": verb, "path": os.fsdecode(raw), **more})

    @contextmanager
    def doing(self, what: object) -> Iterator[None]:
        """Errors of the engine in here are about this path."""
        try:
            yield
        except EditError:
            raise
        except OSError as error:
            shown = error.filename if isinstance(what, str) and error.filename else what
            text = error.strerror or str(error)
            hint = "; --in-steps does it in several" if "in one step" in text else ""
            raise EditError(f"{printable(str(shown))}: {text}{hint}") from None


@contextmanager
def session(
    image: str, devices: tuple[str, ...] = (), *, dry_run: bool = False, undo: str | None = None, in_steps: bool = False
) -> Iterator[Session]:
    """Open an image for one change.  Everything is written with one checkpoint when the block ends well."""
    device = open_for_change(image, extra=devices, dry_run=dry_run, undo=undo)
    try:
        volume = WritableVolume(device)
    except BaseException:
        device.close()
        raise
    volume.atomic = not in_steps
    here = Session(volume, image)
    try:
        yield here
        volume.atomic = False  # the one checkpoint comes now
    except BaseException:
        volume.abandon()
        raise
    with here.doing(image):
        volume.close()
