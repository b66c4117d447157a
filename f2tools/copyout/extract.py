"""Copying files out of a volume: mode, owner, times, links, holes, extended attributes, special files.

Nothing is ever made outside the target directory: every name is made relative to an open directory, never through a
symbolic link, and only where nothing stood before.  What can't be read is reported, and the rest is copied.  Small
files are read hundreds at a time.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from f2tools.copyout.attributes import Attributes
from f2tools.copyout.keep import NOTHING, Keep
from f2tools.copyout.making import OPEN_DIRECTORY, Directory, Maker, TargetFull
from f2tools.copyout.met import Inodes
from f2tools.copyout.piece import SMALL_BLOCKS, Piece, piece_of, read_piece
from f2tools.copyout.report import CopyReport
from f2tools.copyout.together import Small, is_for_python, make_small
from f2tools.copyout.walk import (
    MORE_NAMES,
    SAME_NAME,
    SECOND_ENTRY,
    Lost,
    SeenNames,
    name_problem,
    shortened,
    shown,
    too_deep,
)
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import F2FS_DEVICE_ALIAS_FL, F2FS_ROOT_INO
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.newfile import open_directory
from f2tools.text import join

KEPT_INODES = 256  # of directories, which need not be read again
OPEN_DIRECTORIES = 128  # levels of directories kept open; deeper trees close the upper ones and come back through `..`


@dataclass
class _Directory(Directory):
    """A directory that is being filled: where it is in the image and in the target."""

    name: bytes
    inode: Inode
    key: tuple[int, int]  # st_dev and st_ino in the target
    inside: bool  # whether everything in it is wanted, not only what leads to a wanted path
    new: bool = True  # whether it was made here
    owned: bool = True  # whether its own mode, owner and times are to be set
    todo: list[tuple[bytes, int]] | None = None
    directories: set[bytes] = field(default_factory=set)
    files: set[bytes] = field(default_factory=set)  # kept with `force` only


def extract(
    volume: Volume,
    target: str | os.PathLike[str],
    paths: Sequence[str | File] = (),
    *,
    keep: Keep = NOTHING,
    force: bool = False,
    over_files: bool = True,
    exclude: Iterable[str] = (),
    advance: Callable[[int], None] | None = None,
) -> CopyReport:
    """Copy `paths` (all of the volume if none are given) below the directory `target`, under their paths in the image.

    A `File` among the paths is put into `target` itself, under the last name of its path or the one its inode has.
    Directories that are there keep their mode and owner, unless `keep.directories`; a new target is for its owner
    alone.  `keep`: which of the image's rights the copy gets, `ALL` for all of them. `force`: replace what is in the
    way, except directories; `over_files`: a directory may replace a file, too.  `exclude`: patterns of fnmatch for
    paths or names.  TargetFull when there is no room left; everything else that goes wrong is in the report.
    """
    run = _Run(volume, os.fspath(target), keep, force, exclude, advance)
    run.over_files = over_files
    before = os.umask(run.maker.umask)
    try:
        return run.all(paths)
    finally:
        os.umask(before)
        run.close()


class _Run:
    def __init__(
        self,
        volume: Volume,
        target: str,
        keep: Keep,
        force: bool,
        exclude: Iterable[str],
        advance: Callable[[int], None] | None,
    ) -> None:
        self.volume = volume
        self.report = CopyReport(target)
        self.over_files = True
        self.maker = Maker(volume, self.report, keep, force)
        self.attributes = Attributes(self.maker)
        volume.data.limit()
        self.exclude = [re.compile(fnmatch.translate(pattern)) for pattern in exclude]
        self.advance = advance or (lambda count: None)
        self.block_size = volume.geo.block_size
        self.stack: list[_Directory] = []
        self.met: set[int] = set()
        self.made: set[int] = set()  # the directories that were made, by st_dev and st_ino in one number
        self.kept: dict[int, Inode] = {}  # of directories that are still to be entered
        self.copied = Inodes(volume)
        self.wanted: dict[bytes, set[bytes]] = {}  # directory -> names in it that are wanted or lead to what is
        self.ends: set[bytes] = set()  # wanted paths

    def close(self) -> None:
        for directory in self.stack:
            if directory.fd >= 0:
                os.close(directory.fd)
        self.stack = []

    # -- the tree -----------------------------------------------------------------------------------------------

    def all(self, paths: Sequence[str | File]) -> CopyReport:
        by_path = [path for path in paths if not isinstance(path, File)]
        for path in by_path:
            self._want(path)
        top = self._open_target(whole=not paths)
        self.stack.append(top)
        single = [item for item in paths if isinstance(item, File)]
        if single:
            self._singles(top, single)
        if paths and not by_path:
            top.todo = top.todo or []
        while self.stack:
            directory = self.stack[-1]
            if directory.todo is None:
                directory.todo = self._fill(directory)[::-1]
            if directory.todo:
                self._enter(directory, *directory.todo.pop())
            else:
                self._leave()
        return self.report

    def _want(self, path: str) -> None:
        """Note a path, by the names that are really in the directories."""
        inode = self.volume.root.inode
        here = b"/"
        found = self.volume.path(path, follow=False)
        for part in [part for part in (found.path or b"").split(b"/") if part]:
            entry = self.volume.dirs.find(inode, part)
            name = entry[0] if entry else part
            self.wanted.setdefault(here, set()).add(name)
            inode = File(self.volume, inode, here).child(part).inode
            here = join(here, name)
        self.ends.add(here)

    def _open_target(self, whole: bool) -> _Directory:
        fd, made = open_directory(self.report.target)
        self.maker.top_fd = fd
        status = os.fstat(fd)
        self.maker.heed(fd)
        whole = whole or b"/" in self.ends
        owned = whole and (made or self.maker.keep.directories) and self.maker.keep.modes
        root = self.volume.root
        self.met.add(root.inode.ino)
        return _Directory(b"/", fd, b"", root.inode, (status.st_dev, status.st_ino), whole, made, owned)

    def _singles(self, top: _Directory, files: list[File]) -> None:
        directories: list[tuple[bytes, int]] = []
        for file in files:
            name = (file.path or b"").rpartition(b"/")[2] or file.inode.name
            if not name or name_problem(name):
                name = b"ino-%d" % file.inode.ino
            if file.inode.is_dir:
                if file.inode.ino == F2FS_ROOT_INO:
                    self.report.lost.append(Lost(b"/", "the root has no name to be put under; leave out the path"))
                    continue
                self.met.add(file.inode.ino)
                directories.append((name, file.inode.ino))
            else:
                piece = piece_of(self.volume, name, file.inode)
                self._entries(top, piece, piece.others())
        top.todo = directories or top.todo

    def _fill(self, directory: _Directory) -> list[tuple[bytes, int]]:
        """Make everything in a directory except other directories; those are returned."""
        below: list[tuple[bytes, int]] = []
        problems: list[str] = []
        met = SeenNames()
        try:
            for names, inos in self.volume.scan_numbers(directory.inode, problems):
                piece = read_piece(self.volume, names, inos)
                self._entries(directory, piece, self._chosen(directory, piece, met, below))
                self.advance(len(names))
        except F2fsError as error:
            if isinstance(error, TargetFull):
                raise
            self.report.lost.append(Lost(directory.path, str(error)))
        self.report.lost += [Lost(directory.path, text) for text in problems]
        return below

    def _chosen(self, directory: _Directory, piece: Piece, met: SeenNames, below: list[tuple[bytes, int]]) -> list[int]:
        """Which entries of a piece are to be made here that are no plain files; of these, others than those that are
        wanted are dropped.  Directories are added to `below`."""
        wanted = None if directory.inside else self.wanted.get(directory.path, set())
        alike = wanted is None and not self.exclude and met.all_new_and_sound(piece.names)
        chosen: list[int] = []
        dropped = False
        others = set(piece.others())
        for place in sorted(others) if alike else range(len(piece.names)):
            name = piece.names[place]
            inode = piece.inode(place) if place in others else None
            if not self._is_chosen(directory, name, inode, wanted, None if alike else met):
                if inode is None:
                    piece.drop(place)
                    dropped = True
            elif isinstance(inode, Inode) and inode.is_dir:
                below.append((name, inode.ino))
                if len(self.kept) < KEPT_INODES:  # its own block: the others are not to stay with it
                    self.kept[inode.ino] = Inode(inode.geo, inode.block.copy(), inode.ino, inode.blkaddr)
            elif inode is not None:
                chosen.append(place)
        if dropped:
            piece.keep_only_theirs()
        return chosen

    def _is_chosen(
        self,
        directory: _Directory,
        name: bytes,
        inode: Inode | F2fsError | None,
        wanted: set[bytes] | None,
        met: SeenNames | None,
    ) -> bool:
        """Whether an entry is to be made; where it is wanted and can't be, that is noted."""
        if wanted is not None and name not in wanted:
            return False
        reason = name_problem(name)
        if reason is not None:
            self.report.lost.append(Lost(directory.path, reason))
        elif met is not None and met.again(name):
            self.maker.lose(directory, name, SECOND_ENTRY)
        elif isinstance(inode, F2fsError):
            self.maker.lose(directory, name, str(inode))
        elif self.exclude and self._excluded(directory, name):
            self.report.excluded += 1
        elif inode is not None and inode.is_dir and inode.ino in self.met:
            self.maker.lose(directory, name, "the directory stands at a second place; not followed")
        else:
            if inode is not None and inode.is_dir:
                self.met.add(inode.ino)
            return True
        return False

    def _excluded(self, directory: _Directory, name: bytes) -> bool:
        path = shown(join(directory.path, name)).lstrip("/")
        return any(pattern.match(path) or pattern.match(shown(name)) for pattern in self.exclude)

    def _enter(self, directory: _Directory, name: bytes, ino: int) -> None:
        path = join(directory.path, name)
        if (reason := too_deep(path)) is not None:
            self.report.lost.append(Lost(shortened(path), reason))
            return
        try:
            inode = self.kept.pop(ino, None) or self.volume.nodes.inode(ino)
            fd, made = self._make_directory(directory, name)
        except F2fsError as error:
            if isinstance(error, TargetFull):
                raise
            self.maker.lose(directory, name, str(error))
            return
        except OSError as error:
            self.maker.failed(directory, name, error)
            return
        status = os.fstat(fd)
        inside = directory.inside or path in self.ends or path not in self.wanted
        key = status.st_dev, status.st_ino
        number = key[0] << 64 | key[1]
        if made:
            self.made.add(number)
        elif number in self.made:
            os.close(fd)
            self.maker.lose(directory, name, SAME_NAME)
            return
        else:
            self.maker.heed(fd)
        self.stack.append(_Directory(path, fd, name, inode, key, inside, made, made or self.maker.keep.directories))
        self.report.directories += 1
        if len(self.stack) > OPEN_DIRECTORIES:
            far = self.stack[-OPEN_DIRECTORIES]
            if far is not self.stack[0] and far.fd >= 0:
                os.close(far.fd)
                far.fd = -1

    def _make_directory(self, directory: _Directory, name: bytes) -> tuple[int, bool]:
        """(descriptor, whether it is new) of a directory."""
        if name in directory.directories or name in directory.files:
            raise FileExistsError(errno.EEXIST, "a second entry of that name")
        made = True
        try:
            os.mkdir(name, 0o700, dir_fd=directory.fd)
        except FileExistsError:
            kind = stat.S_IFMT(os.stat(name, dir_fd=directory.fd, follow_symlinks=False).st_mode)
            if kind != stat.S_IFDIR:
                if not self.maker.force:
                    raise
                if not self.over_files:
                    raise OSError(errno.ENOTDIR, "a directory does not replace what is there") from None
                self.maker.clear(directory, name)
                os.mkdir(name, 0o700, dir_fd=directory.fd)
            else:
                made = False
        directory.directories.add(name)
        return os.open(name, OPEN_DIRECTORY, dir_fd=directory.fd), made

    def _leave(self) -> None:
        directory = self.stack[-1]
        parent = self.stack[-2] if len(self.stack) > 1 else None
        if parent is not None and parent.fd < 0:
            parent.fd = os.open(b"..", OPEN_DIRECTORY, dir_fd=directory.fd)
            status = os.fstat(parent.fd)
            if (status.st_dev, status.st_ino) != parent.key:
                raise F2fsError(f"{self.report.target}: somebody moves directories in it while it is filled; stopped")
        self.stack.pop()
        try:
            if directory.owned:
                self.maker.finish(directory.fd, directory.inode, lambda: directory.path, new=directory.new)
        except OSError as error:
            self.report.lost.append(Lost(directory.path, f"mode, owner or times can't be set: {error.strerror}"))
        finally:
            os.close(directory.fd)

    # -- the files of a directory ----------------------------------------------------------------------------------

    def _entries(self, directory: _Directory, piece: Piece, chosen: list[int]) -> None:
        """Make the plain files of a piece, and the others that are chosen."""
        alone = piece.plain() if is_for_python(self.maker, piece) else self.attributes.note(piece)
        if alone:
            piece.drop(alone)
            piece.keep_only_theirs()
        if piece.has_plain and not self._all_new(directory, piece):
            alone += piece.plain()
            piece.drop(piece.plain())
        if alone:
            chosen = sorted([*chosen, *alone])
        small: dict[int, Small] = {}
        for place in chosen:
            found = self._other(directory, piece.names[place], piece.file(place))
            if found is not None:
                small[place] = found
        make_small(self.maker, directory, piece, self.attributes, small)

    def _all_new(self, directory: _Directory, piece: Piece) -> bool:
        """Whether the plain files of a piece are copied for the first time, under names that stand there once."""
        if not self.copied.all_new(np.asarray(piece.inos, np.int64)[piece.is_plain()]):
            return False
        if self.maker.force:
            names = [piece.names[place] for place in piece.plain()]
            if not directory.files.isdisjoint(names):
                return False
            directory.files.update(names)
        return True

    def _other(self, directory: _Directory, name: bytes, inode: Inode) -> Small | None:
        """Make something that is no plain small file; what is a small one all the same is left to be made."""
        if self.maker.force:
            if name in directory.files:
                self.maker.lose(directory, name, "a second entry of that name")
                return None
            directory.files.add(name)
        if inode.i_links > 1 and self.maker.link(directory, name, inode):
            return None
        if stat.S_ISLNK(inode.i_mode) and inode.i_links < 2:
            return Small(inode, b"")
        if not stat.S_ISREG(inode.i_mode):
            self.maker.other(directory, name, inode)
            return None
        if inode.i_links < 2 and self.copied.again(inode.ino):
            self.maker.lose(directory, name, MORE_NAMES)
            return None
        try:
            if self.volume.locked(inode):
                self.maker.lose(directory, name, f"the content is {self.volume.secrets.why_locked(inode)}")
            elif inode.has_inline_data or not inode.i_size:
                data = inode.inline_data() if inode.has_inline_data else b""
                if inode.i_links < 2:
                    return Small(inode, data)
                self.maker.create(directory, name, inode, data)
            elif inode.i_links < 2 and (addrs := self._few_blocks(inode)) is not None:
                return Small(inode, b"", addrs)
            else:
                self.maker.large(directory, name, inode)
        except F2fsError as error:
            if isinstance(error, TargetFull):
                raise
            self.maker.lose(directory, name, str(error))
        return None

    def _few_blocks(self, inode: Inode) -> Any:
        """The addresses of a small file that lie in the inode itself; None for all other files.

        Not for a file of several names: its first one must be there when the next one comes.
        """
        count = -(-inode.i_size // self.block_size)
        if count > SMALL_BLOCKS or inode.i_flags & F2FS_DEVICE_ALIAS_FL or inode.compressed or inode.encrypted:
            return None
        return inode.addrs[:count] if count <= inode.addrs_per_inode else None
