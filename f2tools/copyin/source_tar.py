"""Tar archives as the source of a volume: ustar, pax, GNU and star headers, sparse files, xattrs, ACLs; also streams.

A later entry of a path takes the place of an earlier one, as when an archive is extracted.  Names are bytes, taken from
the root of the volume: `/` at their start, `.` and empty parts are ignored, `..` is refused.  Directories that
are not in the archive but hold something are made with mode 0755.

Memory grows with the number of entries only, whatever an archive claims.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from typing import NoReturn
from urllib.parse import unquote_to_bytes

from f2tools.acl import ACL_UNDEFINED_ID
from f2tools.copyin.archive import Archive, SparseContent, StoredContent, open_archive
from f2tools.copyin.source import ACLS, LAST_NS, SourceError, Tree, further_name, keeps, order_of, shown
from f2tools.f2fs.write.bulk.tree import SourceEntry

BLOCK = 512
MOST_HEADER = 16 << 20  # bytes of a pax header, or of all global ones: a sparse map may be long
MOST_XATTRS = 128 << 10  # bytes of the attributes of one file; F2FS holds less
MOST_RUNS = 1 << 20  # of data in a sparse file
MOST_SIZE = (1 << 63) - 1
MOST_PATH = 1 << 16  # bytes of a name with all its directories
MOST_MAJOR, MOST_MINOR = (1 << 12) - 1, (1 << 20) - 1  # of a device number in Linux
MINIMAL_ACL = {1, 4, 32}  # tags of an ACL that says no more than the mode does
DIRECTORY_MODE = stat.S_IFDIR | 0o755

_HEADER = struct.Struct("100s8s8s8s12s12s8sc100s6s2s32s32s8s8s155s12s")
_ZEROS = bytes(BLOCK)
_MOST_ZEROS = 1 << 20  # behind the end mark of an archive without members: a record of tar has no more
_KINDS = {
    b"0": stat.S_IFREG, b"\0": stat.S_IFREG, b"7": stat.S_IFREG, b"S": stat.S_IFREG, b"2": stat.S_IFLNK,
    b"3": stat.S_IFCHR, b"4": stat.S_IFBLK, b"5": stat.S_IFDIR, b"D": stat.S_IFDIR, b"6": stat.S_IFIFO,
}  # fmt: skip
_TIME = re.compile(rb"(-?)(\d{1,20})(?:\.(\d{0,40}))?")
_NUMBER = re.compile(rb"\d{1,20}")
_ACL_TAGS = {b"user": (1, 2), b"u": (1, 2), b"group": (4, 8), b"g": (4, 8), b"mask": (16,), b"m": (16,),
             b"other": (32,), b"o": (32,)}  # fmt: skip  # without and with a name


def read_tar(
    path: str,
    *,
    excluded: Callable[[bytes, bool], bool] | None = None,
    xattrs: bool = True,
    spool_directory: str | None = None,
) -> Tree:
    """The tree in an archive, `-` being standard input; `excluded` is asked with whole paths.

    SourceError if it can't be read or is no tar archive.  The tree holds a file open until it is closed.
    """
    archive = open_archive(path, spool_directory)
    try:
        return _TarReader(archive, excluded, xattrs).read()
    except BaseException:
        archive.close()
        raise


# -- headers --------------------------------------------------------------------------------------------------------


class _TarReader:
    def __init__(self, archive: Archive, excluded: Callable[[bytes, bool], bool] | None, xattrs: bool) -> None:
        self._archive = archive
        self._excluded = excluded
        self._xattrs = xattrs
        self._files: dict[bytes, SourceEntry] = {}
        self._waiting: dict[bytes, bytes] = {}  # hard links to what has not come yet
        self._globals: dict[bytes, bytes] = {}
        self._notes: list[str] = []
        self._count = 0
        self._forget()

    def _forget(self) -> None:
        """Forget what was said ahead of an entry, as it counts for that entry alone."""
        self._local: dict[bytes, bytes] = {}
        self._sparse: list[bytes] = []  # GNU.sparse 0.0: offset, numbytes, offset, ...
        self._long_name: bytes | None = None
        self._long_link: bytes | None = None
        self._pax = False

    def _fail(self, message: str) -> NoReturn:
        raise SourceError(f"{self._archive.name}: {message}")

    def read(self) -> Tree:
        while True:
            head = self._next_header()
            if head is None:
                break
            self._member(head)
        if self._pax or self._long_name is not None or self._long_link is not None:
            self._fail("the archive ends after an extended header")
        self._archive.finish()
        return self._tree()

    def _next_header(self) -> bytes | None:
        """The next header; None at the end mark, two blocks of zeros, or where the archive simply ends."""
        head = self._archive.read(BLOCK)
        if head == _ZEROS:
            following = self._archive.read(BLOCK)
            if following in (b"", _ZEROS):
                behind = self._archive.read(_MOST_ZEROS + 1) if not self._count else b""
                if len(behind) > _MOST_ZEROS or any(behind):
                    self._fail("not a tar archive: it begins with zeros, as images of file systems do")
                return None
            head = following
        if not head:
            if not self._count:
                self._fail("not a tar archive: it is empty")
            self._notes.append(f"{self._archive.name}: the archive has no end mark; is it complete?")
            return None
        if len(head) < BLOCK:
            self._fail("the archive ends in the middle of a header" if self._count else "not a tar archive")
        if not _sum_fits(head):
            self._fail("not a tar archive" if not self._count else f"header {self._count + 1} is damaged")
        self._count += 1
        return head

    def _member(self, head: bytes) -> None:
        kind = head[156:157]
        if kind in (b"x", b"X", b"g", b"L", b"K"):
            self._extended(kind, self._number(head[124:136], "size"))
            return
        if kind == b"V":
            self._skip(self._number(head[124:136], "size"))
            self._forget()
            return
        self._entry(head, kind)
        self._forget()

    def _number(self, raw: bytes, what: str) -> int:
        """A number of a header: octal, or binary where it begins with a set bit."""
        if raw[0] & 0x80:
            bits = 8 * len(raw) - 1
            value = int.from_bytes(raw, "big") & (1 << bits) - 1
            return value - (1 << bits) if value >> bits - 1 else value
        text = raw.split(b"\0", 1)[0].strip(b" ")
        if text.strip(b"01234567"):
            self._fail(f"header {self._count}: the {what} {text!r} is no octal number")
        return int(text, 8) if text else 0

    def _skip(self, size: int) -> None:
        if size < 0:
            self._fail(f"header {self._count}: a negative size")
        self._archive.skip(size + -size % BLOCK)

    def _extended(self, kind: bytes, size: int) -> None:
        """Take what is said ahead of an entry: pax records or a long name."""
        if not 0 <= size <= MOST_HEADER:
            self._fail(f"header {self._count}: an extended header of {size} bytes")
        body = self._archive.read(size + -size % BLOCK)
        if len(body) < size + -size % BLOCK:
            self._fail("the archive ends in the middle of an extended header")
        body = body[:size]
        if kind == b"L":
            self._long_name = body.split(b"\0", 1)[0]
        elif kind == b"K":
            self._long_link = body.split(b"\0", 1)[0]
        elif kind == b"g":
            self._globals.update(self._records(body))
            if sum(len(key) + len(value) for key, value in self._globals.items()) > MOST_HEADER:
                self._fail(f"header {self._count}: global headers of more than {MOST_HEADER} bytes")
        else:
            self._pax = True
            for key, value in self._records(body):
                if key in (b"GNU.sparse.offset", b"GNU.sparse.numbytes"):
                    self._sparse.append(value)
                else:
                    self._local[key] = value

    def _records(self, body: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pax records: a decimal length that counts itself, a blank, key=value, a newline."""
        at = 0
        while at < len(body):
            blank = body.find(b" ", at, at + 21)
            digits = body[at:blank] if blank > 0 else b""
            end = at + int(digits) if digits.isdigit() else 0
            if not at < blank < end <= len(body) or body[end - 1] != 10:
                if body[at:].strip(b"\0"):
                    self._fail(f"header {self._count}: the pax records are damaged")
                return
            key, equals, value = body[blank + 1 : end - 1].partition(b"=")
            if not equals:
                self._fail(f"header {self._count}: a pax record without a value")
            yield key, value
            at = end

    def _said(self, key: bytes) -> bytes | None:
        """A pax record, of this entry or of all; an empty one takes a global one back."""
        value = self._local.get(key)
        if value is None and self._globals:
            value = self._globals.get(key)
        return value or None

    # -- entries --------------------------------------------------------------------------------------------------

    def _entry(self, head: bytes, kind: bytes) -> None:
        (name, mode, uid, gid, size, mtime, _, _, link, magic, version, _, _, major, minor, prefix, rest) = (
            _HEADER.unpack(head)
        )
        said = self._said
        raw = said(b"GNU.sparse.name") or said(b"path") or self._long_name
        if raw is None:
            raw = name.split(b"\0", 1)[0]
            if magic == b"ustar\0":
                if rest[8:] == b"tar\0":  # star: times follow a shorter prefix
                    prefix = prefix[:131]
                prefix = prefix.split(b"\0", 1)[0]
                raw = prefix + b"/" + raw if prefix else raw
        if kind == b"\0" and raw.endswith(b"/"):
            kind = b"5"
        path = self._path(raw)
        size_said = said(b"size")
        length = self._decimal(size_said, path, "size") if size_said else self._number(size, "size")
        if not 0 <= length <= MOST_SIZE:
            self._fail(f"{shown(path)}: a size of {length}")
        if kind == b"1":
            self._link(path, said(b"linkpath") or self._long_link or link.split(b"\0", 1)[0], length)
            return
        form = _KINDS.get(kind)
        if form is None:
            self._fail(f"{shown(path)}: an entry of the type {kind.decode('latin-1')!r}, which is not known")
        entry = SourceEntry(
            path,
            form | self._number(mode, "mode") & 0o7777,
            self._id(said(b"uid"), uid, path),
            self._id(said(b"gid"), gid, path),
            self._time(said(b"mtime"), path) if said(b"mtime") else self._number(mtime, "mtime") * 1_000_000_000,
        )
        if self._local or self._globals:
            self._more(entry)
        if magic == b"ustar " and version == b" \0":
            self._gnu_times(entry, prefix)
        if form == stat.S_IFREG:
            self._content(entry, head, kind, length)
        elif form == stat.S_IFLNK:
            entry.target = said(b"linkpath") or self._long_link or link.split(b"\0", 1)[0]
            if not entry.target or b"\0" in entry.target:
                self._fail(f"{shown(path)}: a symbolic link to nothing, or to a name with a NUL in it")
        elif form in (stat.S_IFCHR, stat.S_IFBLK):
            entry.rdev = self._number(major, "major number"), self._number(minor, "minor number")
            if not (0 <= entry.rdev[0] <= MOST_MAJOR and 0 <= entry.rdev[1] <= MOST_MINOR):
                self._fail(f"{shown(path)}: no device has the number {entry.rdev[0]}:{entry.rdev[1]}")
        elif kind == b"D":
            self._skip(length)
        if not path and form != stat.S_IFDIR:
            self._fail(f"{os.fsdecode(raw)!r}: this is the root, which must be a directory")
        self._files[path] = entry
        self._waiting.pop(path, None)

    def _path(self, raw: bytes) -> bytes:
        parts = [part for part in raw.split(b"/") if part and part != b"."]
        if b".." in parts or b"\0" in raw:
            self._fail(f"{os.fsdecode(raw)!r}: names with '..' or NUL in them are refused")
        path = b"/".join(parts)
        if len(path) > MOST_PATH:
            self._fail(f"{shown(path[:80])}...: a name of {len(path)} bytes")
        return path

    def _decimal(self, text: bytes, path: bytes, what: str) -> int:
        if not _NUMBER.fullmatch(text):
            self._fail(f"{shown(path)}: the {what} {text[:40]!r} is no number")
        return int(text)

    def _id(self, said: bytes | None, raw: bytes, path: bytes) -> int:
        return self._decimal(said, path, "owner") if said else self._number(raw, "owner")

    def _time(self, text: bytes | None, path: bytes) -> int:
        """Nanoseconds of a time in seconds, rounded down."""
        match = _TIME.fullmatch(text or b"")
        if match is None:
            self._fail(f"{shown(path)}: the time {(text or b'')[:40]!r} is no number")
        fraction = (match[3] or b"").ljust(9, b"0")
        ns = int(match[2]) * 1_000_000_000 + int(fraction[:9])
        if not match[1]:
            return ns
        return -ns - (1 if fraction[9:].strip(b"0") else 0)

    def _gnu_times(self, entry: SourceEntry, prefix: bytes) -> None:
        """GNU headers have atime and ctime where ustar has the prefix, if they have them at all."""
        for name, raw in (("atime_ns", prefix[:12]), ("ctime_ns", prefix[12:24])):
            if raw.strip(b"\0 ") and getattr(entry, name) is None:
                setattr(entry, name, self._number(raw, name[:5]) * 1_000_000_000)

    def _more(self, entry: SourceEntry) -> None:
        """Times and extended attributes from pax records."""
        for name, key in (
            ("atime_ns", b"atime"),
            ("ctime_ns", b"ctime"),
            ("crtime_ns", b"LIBARCHIVE.creationtime"),
        ):
            value = self._said(key)
            if value:
                setattr(entry, name, self._time(value, entry.path))
        if self._xattrs:
            found = self._attributes(entry)
            if found:
                entry.xattrs = found

    def _attributes(self, entry: SourceEntry) -> dict[str, bytes]:
        from f2tools.copyin.select import acl_bytes

        records = {**self._globals, **self._local} if self._globals else self._local
        found: dict[str, bytes] = {}
        path = entry.path
        for key, value in records.items():
            if key.startswith(b"LIBARCHIVE.xattr."):
                name = os.fsdecode(unquote_to_bytes(key[17:]))
                try:
                    found.setdefault(name, base64.b64decode(value + b"=" * (-len(value) % 4), validate=True))
                except (binascii.Error, ValueError):
                    self._fail(f"{shown(path)}: the attribute {name} is not in base64")
            elif key.startswith(b"SCHILY.xattr."):
                found[os.fsdecode(key[13:].replace(b"%3D", b"=").replace(b"%25", b"%"))] = value
            elif key == b"RHT.security.selinux":
                found.setdefault("security.selinux", value.rstrip(b"\0") + b"\0")
        for name, key in zip(ACLS, (b"SCHILY.acl.access", b"SCHILY.acl.default"), strict=True):
            text = records.get(key)
            if text and name not in found:
                if name == ACLS[1] and not stat.S_ISDIR(entry.mode):
                    continue
                acl = self._acl(text, path)
                if name == ACLS[1] or {tag for tag, _, _ in acl} != MINIMAL_ACL:
                    found[name] = acl_bytes(acl)
        found = {name: found[name] for name in sorted(found) if keeps(name)}
        if sum(map(len, found.values())) > MOST_XATTRS:
            self._fail(f"{shown(path)}: its extended attributes are more than F2FS holds")
        return found

    def _acl(self, text: bytes, path: bytes) -> list[tuple[int, int, int]]:
        """(tag, permissions, id) of an ACL in text; a name in it must come with its number, as star writes it."""
        entries: list[tuple[int, int, int]] = []
        for part in re.split(rb"[,\n]", text):
            words = part.partition(b"#")[0].strip().split(b":")
            if words == [b""]:
                continue
            words = words[1:] if words[0] in (b"default", b"d") else words
            tags = _ACL_TAGS.get(words[0], ())
            if len(words) == 2 and len(tags) == 1:
                words = [words[0], b"", words[1]]  # mask:rwx
            named = len(words) > 1 and bool(words[1])
            if len(words) not in (3, 4) or len(tags) <= named or words[2].strip(b"rwx-"):
                self._fail(f"{shown(path)}: the ACL entry {part[:80]!r} is not understood")
            number = ACL_UNDEFINED_ID
            if named:
                digits = words[3] if len(words) == 4 else words[1]
                if not digits.isdigit() or len(digits) > 10:
                    self._fail(
                        f"{shown(path)}: the ACL names {os.fsdecode(words[1])!r} without a number; "
                        "make the archive with --numeric-owner"
                    )
                number = int(digits)
                if number >= ACL_UNDEFINED_ID:
                    self._fail(f"{shown(path)}: the ACL names the number {number}")
            perm = sum(bit for letter, bit in ((b"r", 4), (b"w", 2), (b"x", 1)) if letter in words[2])
            entries.append((tags[named], perm, number))
        return sorted(entries, key=lambda one: (one[0], one[2]))

    def _link(self, path: bytes, raw: bytes, length: int) -> None:
        """A hard link; one may carry the content again, which some writers announce without doing it."""
        if length:
            following = self._archive.read(BLOCK)
            self._archive.push_back(following)
            if len(following) == BLOCK and following != _ZEROS and not _sum_fits(following):
                self._skip(length)
        target = self._path(raw)
        if target == path:
            self._fail(f"{shown(path)}: a hard link to itself")
        file = self._files.get(target)
        if file is None:
            self._files.pop(path, None)
            self._waiting[path] = target
            return
        if stat.S_ISDIR(file.mode):
            self._fail(f"{shown(path)}: a hard link to {shown(target)}, which is a directory")
        self._files[path] = file
        self._waiting.pop(path, None)

    # -- content --------------------------------------------------------------------------------------------------

    def _content(self, entry: SourceEntry, head: bytes, kind: bytes, length: int) -> None:
        runs: list[tuple[int, int]] | None = None
        if kind == b"S":
            runs = self._gnu_map(entry, head)
        elif self._local and (self._local.get(b"GNU.sparse.major") or self._said(b"GNU.sparse.size")):
            runs, used = self._pax_map(entry, length)
            length -= used
        if runs is None:
            entry.size = length
            if length:
                entry.content = StoredContent(self._archive, entry.path, self._archive.keep(length), length)
                self._pad(length)
            return
        end = stored = 0
        for offset, count in runs:
            if offset < end or offset + count > entry.size:
                self._fail(f"{shown(entry.path)}: the map of its holes contradicts itself")
            end = offset + count
            stored += count
        if stored != length:
            self._fail(f"{shown(entry.path)}: {length} bytes are there, the map of its holes says {stored}")
        at = self._archive.keep(length)
        self._pad(length)
        if entry.size:
            entry.content = SparseContent(self._archive, entry.path, at, [run for run in runs if run[1]])

    def _pad(self, length: int) -> None:
        self._archive.skip(-length % BLOCK)

    def _gnu_map(self, entry: SourceEntry, head: bytes) -> list[tuple[int, int]]:
        """The map of the old GNU format: four runs in the header, 21 in each block that follows."""
        entry.size = self._number(head[483:495], "size")
        runs = self._runs_in(head[386:482])
        more = head[482]
        while more and more != 0x30:
            block = self._archive.read(BLOCK)
            if len(block) < BLOCK:
                self._fail("the archive ends in the middle of a sparse map")
            runs += self._runs_in(block[:504])
            more = block[504]
            if len(runs) > MOST_RUNS:
                self._fail(f"{shown(entry.path)}: more than {MOST_RUNS} runs of data")
        if not 0 <= entry.size <= MOST_SIZE:
            self._fail(f"{shown(entry.path)}: a size of {entry.size}")
        return runs

    def _runs_in(self, table: bytes) -> list[tuple[int, int]]:
        runs: list[tuple[int, int]] = []
        for at in range(0, len(table), 24):
            if not table[at] or not table[at + 12]:
                break
            run = self._number(table[at : at + 12], "offset"), self._number(table[at + 12 : at + 24], "length")
            if run[0] < 0 or run[1] < 0:
                self._fail(f"header {self._count}: a negative offset in a sparse map")
            runs.append(run)
        return runs

    def _pax_map(self, entry: SourceEntry, length: int) -> tuple[list[tuple[int, int]], int]:
        """(runs, bytes of the map in front of the data) of the GNU formats 0.0, 0.1 and 1.0."""
        path = entry.path
        size = self._said(b"GNU.sparse.realsize") or self._said(b"GNU.sparse.size")
        entry.size = self._decimal(size, path, "size") if size else 0
        if entry.size > MOST_SIZE:
            self._fail(f"{shown(path)}: a size of {entry.size}")
        used = 0
        if self._local.get(b"GNU.sparse.major", b"0") != b"0":
            numbers, used = self._map_in_data(path, length)
        elif b"GNU.sparse.map" in self._local:
            text = self._local[b"GNU.sparse.map"]
            numbers = [self._decimal(word, path, "offset") for word in text.split(b",")] if text else []
        else:
            numbers = [self._decimal(word, path, "offset") for word in self._sparse]
        if len(numbers) % 2 or len(numbers) > 2 * MOST_RUNS:
            self._fail(f"{shown(path)}: the map of its holes has {len(numbers)} numbers")
        return list(zip(numbers[::2], numbers[1::2], strict=True)), used

    def _map_in_data(self, path: bytes, length: int) -> tuple[list[int], int]:
        """Decimal numbers, a line each, the first one saying how many runs follow; whole blocks."""
        lines: list[bytes] = []
        rest = b""
        used, wanted = 0, 1
        while len(lines) < wanted:
            if used + BLOCK > length + -length % BLOCK:
                self._fail(f"{shown(path)}: the map of its holes has no end")
            block = self._archive.read(BLOCK)
            used += BLOCK
            if len(block) < BLOCK:
                self._fail("the archive ends in the middle of a sparse map")
            *complete, rest = (rest + block).split(b"\n")
            lines += complete
            if len(rest) > BLOCK and len(lines) < wanted:
                self._fail(f"{shown(path)}: the map of its holes is damaged")
            if wanted == 1 and lines:
                count = self._decimal(lines[0], path, "number of runs")
                if count > MOST_RUNS:
                    self._fail(f"{shown(path)}: more than {MOST_RUNS} runs of data")
                wanted = 1 + 2 * count
        return [self._decimal(line, path, "offset") for line in lines[1:wanted]], used

    # -- the whole ------------------------------------------------------------------------------------------------

    def _tree(self) -> Tree:
        for path, target in self._waiting.items():
            self._files[path] = self._found(path, target)
        files = self._files
        if self._excluded is not None:
            excluded = self._excluded
            files = {
                path: file for path, file in files.items() if not path or not excluded(path, stat.S_ISDIR(file.mode))
            }
        # a time that no volume can hold is refused of the file that has it, not of a directory that gets it by this
        newest = max((file.mtime_ns for file in files.values() if file.mtime_ns <= LAST_NS), default=0)
        made_up: list[SourceEntry] = []
        for path in [b"/", *files]:
            while (path := path.rpartition(b"/")[0]) not in files:
                files[path] = SourceEntry(path, DIRECTORY_MODE, mtime_ns=newest)
                made_up.append(files[path])
        root = files[b""]
        for directory in made_up:
            directory.uid, directory.gid = root.uid, root.gid
        entries: list[SourceEntry] = []
        first: dict[int, bytes] = {}
        for path in sorted(files, key=order_of):
            file = files[path]
            named = first.setdefault(id(file), path)
            if named is path:
                file.path = path
                entries.append(file)
            else:
                entries.append(further_name(file, named, path))
        return Tree(entries, self._notes, self._archive.verify, self._archive.close, made_up)

    def _found(self, path: bytes, target: bytes) -> SourceEntry:
        """What a link to a later entry refers to."""
        seen = {path}
        while target not in self._files:
            if target in seen or target not in self._waiting:
                self._fail(f"{shown(path)}: a hard link to {shown(target)}, which is not in the archive")
            seen.add(target)
            target = self._waiting[target]
        file = self._files[target]
        if stat.S_ISDIR(file.mode):
            self._fail(f"{shown(path)}: a hard link to {shown(target)}, which is a directory")
        return file


def _sum_fits(head: bytes) -> bool:
    """Whether the checksum of a header is right, by unsigned or, as some old programs do it, signed bytes."""
    text = head[148:156].split(b"\0", 1)[0].strip(b" ")
    if not text.isdigit():
        return False
    try:
        said = int(text, 8)
    except ValueError:
        return False
    unsigned = sum(head) - sum(head[148:156]) + 8 * 32
    if said == unsigned:
        return True
    return said == unsigned - 256 * sum(byte > 127 for byte in head[:148] + head[156:])
