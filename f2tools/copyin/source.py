"""A tree of files to fill a volume with: what is common to all sources, and the reader of directories.

What comes out depends on the files alone, not on the order in which a directory lists them, on the locale or on the
time: entries are sorted by the bytes of their names, the first name of a hard link is the first in that order, and of
the times of a directory on disk only the mtime counts, since reading changes the others.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NoReturn

from f2tools.errors import F2fsError
from f2tools.f2fs.write.bulk.tree import SourceEntry
from f2tools.native import core
from f2tools.text import printable
from f2tools.volumes import MOST_ID

if TYPE_CHECKING:
    from f2tools.f2fs.write.bulk.columns import Columns

ACLS = ("system.posix_acl_access", "system.posix_acl_default")
MOST_NAME = 255
FILES_AHEAD = 48  # open at a time
BYTES_AHEAD = 1 << 20  # of each of them
LOOKED_AT = 1024  # names at a time
# What `core.plain_files` says of a regular file with one name and without extended attributes: 1, mode, uid, gid; dev,
# ino; size, mtime_ns, blocks of 512 bytes.  Zeros for all others.
PLAIN_FILE = struct.Struct("=4I2Q3q")
NO_XATTRS: dict[str, bytes] = {}  # shared; never changed

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NAME_SPACES = ("user.", "trusted.", "security.")
FIRST_NS, LAST_NS = -1 << 63, (1 << 63) - 1
_TIMES = ("mtime_ns", "atime_ns", "ctime_ns", "crtime_ns")
_NO_TIMES: tuple[str, ...] = ()
_NO_XATTRS_HERE = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


class SourceError(F2fsError):
    """A source can't be read, changed while it was read, or holds what a volume can't."""


class Tree:
    """The files of a source: sorted, parents first, the root before all."""

    def __init__(
        self,
        entries: list[SourceEntry],
        notes: list[str] | None = None,
        verify: Callable[[], None] = lambda: None,
        close: Callable[[], None] = lambda: None,
        made_up: list[SourceEntry] | None = None,
        columns: Columns | None = None,
    ) -> None:
        self._entries = entries
        self.columns = columns  # instead of entries, as long as nobody asks for these
        self.notes = notes if notes is not None else []
        self.verify = verify  # SourceError where the source changed since it was opened
        self.close = close
        self.made_up = made_up if made_up is not None else []  # directories that the source says nothing about

    @property
    def entries(self) -> list[SourceEntry]:
        """All files, to be changed too: they take the place of columns."""
        if self.columns is not None:
            self._entries, self.columns = list(self.columns.entries()), None
            read_ahead(self._entries)
        return self._entries

    @entries.setter
    def entries(self, entries: list[SourceEntry]) -> None:
        self._entries, self.columns = entries, None

    def each(self) -> Iterator[SourceEntry]:
        """All files, to be looked at only."""
        return self.columns.entries() if self.columns is not None else iter(self._entries)


def order_of(path: bytes) -> bytes:
    """The key by which paths are sorted: name after name, so that a directory comes right before what is in it."""
    return path.replace(b"/", b"\0")


def shown(path: bytes) -> str:
    """A path of a source for messages."""
    return printable(os.fsdecode(path)) or "."


def further_name(file: SourceEntry, first: bytes, path: bytes | None = None) -> SourceEntry:
    """An entry for one more name of a file; alike for every source."""
    return SourceEntry(file.path if path is None else path, file.mode, xattrs=NO_XATTRS, link_to=first)


def keeps(name: str) -> bool:
    """Whether F2FS can hold an extended attribute of this name."""
    return name.startswith(_NAME_SPACES) or name in ACLS


# -- directories ----------------------------------------------------------------------------------------------------


class FileContent:
    """A regular file in a directory, opened when its turn comes; `blocks` of 512 bytes are on the disk."""

    __slots__ = ("_fd", "_known", "_later", "_size", "_sparse")

    def __init__(self, path: bytes, dev: int, ino: int, size: int, mtime_ns: int, blocks: int) -> None:
        self._known = path, dev, ino, mtime_ns
        self._size = size
        self._sparse = blocks * 512 < size
        self._fd = -1
        self._later: FileContent | None = None  # the file to open ahead of its turn when this one is read

    def extents(self) -> Iterator[tuple[int, int]]:
        """(offset, length) of what is not a hole."""
        if not self._sparse:
            yield 0, self._size
            return
        at = 0
        while at < self._size:
            try:
                start = os.lseek(self._opened(), at, os.SEEK_DATA)
                at = min(os.lseek(self._fd, start, os.SEEK_HOLE), self._size)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                self._fail(error.strerror)
            if start < at:
                yield start, at - start

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """The bytes from an offset on; SourceError where the file has become shorter."""
        fd = self._opened()
        while len(buffer):
            try:
                count = os.preadv(fd, [buffer], offset)
            except OSError as error:
                self._fail(error.strerror)
            if not count:
                self._fail("it became shorter while it was read")
            buffer = buffer[count:]
            offset += count

    def source(self) -> int | None:
        """The file itself."""
        return self._opened()

    def together(self) -> tuple[bytes, int, int, int] | None:
        """What the file should be when it is opened with others; None where it has holes."""
        if self._sparse:
            return None
        self._later = None
        if self._fd >= 0:
            self._shut()
        return self._known

    def close(self) -> None:
        """SourceError where the file is another one now, or was written to."""
        if self._fd < 0:
            return
        status = os.fstat(self._fd)
        _, dev, ino, mtime_ns = self._known
        if (status.st_ino, status.st_dev) != (ino, dev):
            self._fail("it was replaced while the source was read")
        if status.st_size != self._size or status.st_mtime_ns != mtime_ns:
            self._fail("it changed while the source was read")
        self._shut()

    def _opened(self) -> int:
        if self._fd < 0:
            try:
                self._fd = os.open(self._known[0], _OPEN)
            except OSError as error:
                self._fail(error.strerror)
        if self._later is not None:
            self._later._expect()
            self._later = None
        return self._fd

    def _expect(self) -> None:
        """Open the file and let the kernel read it meanwhile; an error comes again in its turn."""
        if self._fd < 0:
            try:
                self._fd = os.open(self._known[0], _OPEN)
                os.posix_fadvise(self._fd, 0, min(self._size, BYTES_AHEAD), os.POSIX_FADV_WILLNEED)
            except OSError:
                return

    def _fail(self, reason: str | None) -> NoReturn:
        self._shut()
        raise SourceError(f"{shown(self._known[0])}: {reason}") from None

    def _shut(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_ahead(entries: Iterable[SourceEntry]) -> None:
    """Start reading small files before their turn comes, if they are read in this order."""
    files = [entry.content for entry in entries if isinstance(entry.content, FileContent)]
    for one, later in zip(files, files[FILES_AHEAD:], strict=False):
        one._later = later


def close_all(entries: Iterable[SourceEntry]) -> None:
    """Close what is open of these files."""
    for entry in entries:
        if isinstance(entry.content, FileContent):
            entry.content._shut()


def read_directory(
    directory: str,
    *,
    excluded: Callable[[bytes, bool], bool] | None = None,
    one_file_system: bool = False,
    xattrs: bool = True,
    skip: Iterable[tuple[int, int]] = (),
) -> Tree:
    """The tree below a directory, the directory itself being the root; `skip`: (st_dev, st_ino) of files to leave out.

    SourceError naming what can't be read.  Contents are read later, and whether they changed is found then.
    """
    return DirectoryReader(directory, excluded, one_file_system, xattrs, frozenset(skip)).read()


class DirectoryReader:
    """Reads the tree below a directory."""

    def __init__(
        self,
        directory: str,
        excluded: Callable[[bytes, bool], bool] | None,
        one_file_system: bool,
        xattrs: bool,
        skip: frozenset[tuple[int, int]],
    ) -> None:
        self._top = os.fsencode(directory)
        self._excluded = excluded
        self._one_file_system = one_file_system
        self._xattrs = xattrs
        self._skip = skip
        self._without_xattrs: set[int] = set()  # st_dev of file systems that have none
        self._links: dict[tuple[int, int], list[SourceEntry]] = {}
        self._entries: list[SourceEntry] = []
        self._notes: list[str] = []
        self._sizes_in: tuple[bytes, bool] = b"", True  # a directory, and whether files there say their size

    def read(self) -> Tree:
        """The whole tree; SourceError."""
        status = self._root()
        self._entries.append(self._entry(b"", os.path.join(self._top, b"."), status))
        directories: list[tuple[bytes, bytes]] = [(self._top, b"")]
        while directories:
            directory, path = directories.pop()
            directories += self._directory(directory, path)
        self._entries.sort(key=lambda entry: order_of(entry.path))
        self._join_links()
        entries = self._entries
        return Tree(entries, self._notes, close=lambda: close_all(entries))

    def _root(self) -> os.stat_result:
        try:
            status = os.stat(self._top)
        except OSError as error:
            raise SourceError(f"{shown(self._top)}: {error.strerror}") from None
        if not stat.S_ISDIR(status.st_mode):
            raise SourceError(f"{shown(self._top)}: not a directory")
        self._device = status.st_dev
        return status

    def _directory(self, directory: bytes, path: bytes) -> list[tuple[bytes, bytes]]:
        """Add the entries of a directory; returns the directories among them."""
        prefix = path + b"/" if path else b""
        directories: list[tuple[bytes, bytes]] = []
        before = os.path.join(directory, b"")
        found: bytes = directory
        add, no_xattrs = self._entries.append, NO_XATTRS
        try:
            for name, plain in _looked_at(before, os.listdir(directory), self._xattrs):
                found, inside = before + name, prefix + name
                if plain is not None:
                    _, mode, uid, gid, dev, ino, size, mtime_ns, blocks = plain
                    if (self._excluded or self._skip) and self._left_out(inside, found, False, dev, ino):
                        continue
                    content = FileContent(found, dev, ino, size, mtime_ns, blocks) if size else None
                    if not size:
                        self._must_be_empty(found)
                    add(SourceEntry(inside, mode, uid, gid, mtime_ns, size=size, xattrs=no_xattrs, content=content))
                    continue
                status = os.lstat(found)
                is_dir = stat.S_ISDIR(status.st_mode)
                if self._left_out(inside, found, is_dir, status.st_dev, status.st_ino):
                    continue
                add(self._entry(inside, found, status))
                if is_dir and not (self._one_file_system and status.st_dev != self._device):
                    directories.append((found, inside))
        except OSError as error:
            raise SourceError(f"{shown(found)}: {error.strerror}") from None
        return directories

    def _left_out(self, inside: bytes, found: bytes, is_dir: bool, dev: int, ino: int) -> bool:
        if self._excluded is not None and self._excluded(inside, is_dir):
            return True
        if (dev, ino) in self._skip:
            self._notes.append(f"{shown(found)} is what is being written, and was left out")
            return True
        return False

    def _entry(self, path: bytes, full: bytes, status: os.stat_result) -> SourceEntry:
        mode = status.st_mode
        entry = SourceEntry(
            path,
            mode,
            status.st_uid,
            status.st_gid,
            status.st_mtime_ns,
            xattrs=self._xattrs_of(full, status) if self._xattrs else NO_XATTRS,
        )
        if stat.S_ISREG(mode):
            entry.size = status.st_size
            if entry.size:
                entry.content = FileContent(
                    full, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_blocks
                )
            else:
                self._must_be_empty(full)
        elif stat.S_ISLNK(mode):
            entry.target = os.readlink(full)
        elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            entry.rdev = os.major(status.st_rdev), os.minor(status.st_rdev)
        if status.st_nlink > 1 and not stat.S_ISDIR(mode):
            self._links.setdefault((status.st_dev, status.st_ino), []).append(entry)
        return entry

    def _must_be_empty(self, full: bytes) -> None:
        """SourceError for a file that says 0 bytes and has more, as on procfs, which has no blocks either."""
        directory = os.path.dirname(full)
        if directory != self._sizes_in[0]:
            self._sizes_in = directory, os.statvfs(directory).f_blocks > 0
        if self._sizes_in[1]:
            return
        try:
            fd = os.open(full, _OPEN)
        except OSError:
            return
        try:
            more = os.read(fd, 1)
        except OSError:
            more = b""
        finally:
            os.close(fd)
        if more:
            raise SourceError(
                f"{shown(full)}: it has more than the 0 bytes that it says, as files of procfs do; copy such files "
                "into a directory first (cp -r), or leave their file system out"
            )

    def _xattrs_of(self, full: bytes, status: os.stat_result) -> dict[str, bytes]:
        if status.st_dev in self._without_xattrs:
            return NO_XATTRS
        try:
            names = os.listxattr(full, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_XATTRS_HERE:
                raise SourceError(f"{shown(full)}: extended attributes: {error.strerror}") from None
            self._without_xattrs.add(status.st_dev)
            return NO_XATTRS
        if not names:
            return NO_XATTRS
        found: dict[str, bytes] = {}
        for name in sorted(filter(keeps, names)):
            try:
                found[name] = os.getxattr(full, name, follow_symlinks=False)
            except OSError as error:
                if error.errno != errno.ENODATA:
                    raise SourceError(f"{shown(full)}: the attribute {name}: {error.strerror}") from None
        return found

    def _first_names(self) -> dict[int, bytes]:
        """The first name of the file that an entry is a further name of, by the entry's id."""
        first_of: dict[int, bytes] = {}
        for entries in self._links.values():
            first = min(entries, key=lambda entry: order_of(entry.path))
            first_of |= {id(entry): first.path for entry in entries if entry is not first}
        return first_of

    def _join_links(self) -> None:
        """The further names of a file refer to its first one, and say no more than that."""
        first_of = self._first_names()
        if first_of:
            self._entries = [
                further_name(entry, first_of[id(entry)]) if id(entry) in first_of else entry for entry in self._entries
            ]


def _looked_at(
    before: bytes, names: list[bytes], xattrs: bool
) -> Iterator[tuple[bytes, tuple[int, int, int, int, int, int, int, int, int] | None]]:
    """Each name of a directory with what PLAIN_FILE says of it; None where the caller is to look for itself."""
    if core is None:
        yield from ((name, None) for name in names)
        return
    for start in range(0, len(names), LOOKED_AT):
        some = names[start : start + LOOKED_AT]
        found = bytearray(PLAIN_FILE.size * len(some))
        core.plain_files(before, b"\0".join(some) + b"\0", xattrs, found)
        for name, plain in zip(some, PLAIN_FILE.iter_unpack(found), strict=True):
            yield name, plain if plain[0] else None


# -- any source -----------------------------------------------------------------------------------------------------


def checked(entries: Iterable[SourceEntry]) -> None:
    """SourceError naming the first entry that no volume can hold, whatever its size."""
    seen: dict[bytes, int] = {}
    for entry in entries:
        path = entry.path
        if len(path) > MOST_NAME and len(path.rpartition(b"/")[2]) > MOST_NAME:
            raise SourceError(f"{shown(path)}: the name is longer than {MOST_NAME} bytes")
        if not 0 <= entry.uid <= MOST_ID or not 0 <= entry.gid <= MOST_ID:
            raise SourceError(f"{shown(path)}: the owner {entry.uid}:{entry.gid} is beyond {MOST_ID}")
        if FIRST_NS <= entry.mtime_ns <= LAST_NS and entry.atime_ns is entry.ctime_ns is entry.crtime_ns is None:
            names = _NO_TIMES
        else:
            names = _TIMES
        for name in names:
            value = getattr(entry, name)
            if value is not None and not FIRST_NS <= value <= LAST_NS:
                raise SourceError(f"{shown(path)}: the {name[:-3]} is not between the years 1678 and 2262")
        if path:
            parent = path.rpartition(b"/")[0]
            if not stat.S_ISDIR(seen.get(parent, 0)):
                raise SourceError(f"{shown(path)}: {shown(parent)} is no directory in the source")
        seen[path] = 0 if entry.link_to is not None else entry.mode
