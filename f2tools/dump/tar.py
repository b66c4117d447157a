"""A volume, or part of it, as a tar archive: pax with times to the nanosecond, extended attributes, holes, hard links.

Written as a stream in one pass with bounded memory.  The records are those that GNU tar, bsdtar and Python read:
SCHILY.xattr.* for attributes, SCHILY.acl.* for ACLs, GNU.sparse.* 1.0 for holes.  Names stay the bytes that they are.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, Any

from f2tools.acl import acl_text, parse_xattr
from f2tools.copyout.met import Inodes
from f2tools.copyout.walk import MAX_REASONS, MORE_NAMES, Lost, mapped, walk
from f2tools.dump.listing import file_at
from f2tools.dump.tar_together import (
    MAX_BLOCKS,
    MAX_FILES,
    Small,
    content_of,
    entries_together,
    read_together,
    small,
)
from f2tools.errors import Corrupt, DeviceError, F2fsError, Unsupported, Where
from f2tools.f2fs.layout.constants import NEW_ADDR
from f2tools.f2fs.volume.data import FEW, Extent
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.f2fs.volume.xattr import may_have_xattrs, visible_xattrs
from f2tools.native import core
from f2tools.text import join

BLOCK = 512
RECORD = 20 * BLOCK
ZEROS = bytes(1 << 16)
MAX_RUNS = 1 << 20  # of data in a sparse file; holes beyond are written as zeros

_TYPES = {"file": b"0", "symlink": b"2", "char": b"3", "block": b"4", "dir": b"5", "fifo": b"6"}
_LINK = b"1"
_TO_ASCII = bytes(c if 32 < c < 127 else 95 for c in range(256))
_ACL_RECORDS = {
    "system.posix_acl_access": b"SCHILY.acl.access",
    "system.posix_acl_default": b"SCHILY.acl.default",
}


@dataclass
class TarReport:
    """What went into the archive and what did not."""

    entries: int = 0
    lost: list[Lost] = field(default_factory=list)
    partial: list[Lost] = field(default_factory=list)
    sockets: int = 0

    @property
    def complete(self) -> bool:
        """Whether everything could be read."""
        return not self.lost and not self.partial


def write_tar(
    volume: Volume, out: IO[bytes], paths: Sequence[str] = (), *, advance: Callable[[int], None] | None = None
) -> TarReport:
    """Write the archive; `out` needs only `write`.  Names are relative to the root of the volume."""
    return _Writer(volume, out, advance or (lambda count: None)).all(paths or ("/",))


class _Writer:
    def __init__(self, volume: Volume, out: IO[bytes], advance: Callable[[int], None]) -> None:
        self.volume = volume
        self.out = out
        self.advance = advance
        self.report = TarReport()
        self.linked: dict[int, bytes] = {}
        self.copied = Inodes(volume)
        self.written = 0
        self.left = volume.data.most_blocks  # that may still be written: forged files may all share the same ones
        self.held: list[Small] = []  # small files that are the next to be written
        self.held_blocks = 0

    def all(self, paths: Sequence[str]) -> TarReport:
        for path in paths:
            for found in walk(self.volume, self._top(path), self.report.lost):
                self._entry(found.path, found.inode)
                self.advance(1)
        self._release()
        self._write(bytes(2 * BLOCK))
        self._write(bytes(-self.written % RECORD))
        return self.report

    def _top(self, path: str) -> File:
        file = file_at(self.volume, path, follow=False)
        return file if file.path else File(self.volume, file.inode, b"/ino-%d" % file.inode.ino)

    def _entry(self, path: bytes, inode: Inode) -> None:
        name = path.lstrip(b"/") or b"."
        file = small(self.volume, path, name, inode)
        if file is not None and len(file.blkaddrs) <= self.left and not self.copied.again(inode.ino):
            self._hold(file)
            return
        self._release()
        kind = inode.kind
        if kind == "socket":
            self.report.sockets += 1
            return
        if kind not in _TYPES:
            self.report.lost.append(Lost(path, f"mode {inode.i_mode:#o} is of no kind of file"))
            return
        try:
            if inode.i_links > 1 and kind != "dir" and inode.ino in self.linked:
                self._header(name, inode, _LINK, link=self.linked[inode.ino], attributes=False)
            elif kind == "file" and inode.i_links < 2 and self.copied.again(inode.ino):
                self.report.lost.append(Lost(path, MORE_NAMES))
                return
            elif kind == "file":
                if not self._file(path, name, inode):
                    return
            elif kind == "symlink":
                if self.volume.locked(inode):
                    raise Unsupported(f"the link is {self.volume.secrets.why_locked(inode)}")
                self._header(name, inode, _TYPES[kind], link=File(self.volume, inode).readlink())
            else:
                self._header(name + b"/" if kind == "dir" else name, inode, _TYPES[kind])
        except F2fsError as error:
            self.report.lost.append(Lost(path, str(error)))
            return
        self.report.entries += 1
        if inode.i_links > 1 and kind != "dir":
            self.linked.setdefault(inode.ino, name)

    # -- small files --------------------------------------------------------------------------------------------

    def _hold(self, file: Small) -> None:
        self.held.append(file)
        self.held_blocks += len(file.blkaddrs)
        self.left -= len(file.blkaddrs)
        if len(self.held) >= MAX_FILES or self.held_blocks >= MAX_BLOCKS:
            self._release()

    def _release(self) -> None:
        """Write the small files that are held."""
        if not self.held:
            return
        files, self.held, self.held_blocks = self.held, [], 0
        try:
            blocks = read_together(self.volume, files)
        except DeviceError:  # one by one, to see which of them
            self._one_by_one(files)
            return
        self.report.entries += len(files)
        if core is not None:
            self._write(entries_together(files, blocks, self.volume.geo.block_size))
            return
        first = 0
        for file in files:
            content = content_of(file, blocks, first)
            first += len(file.blkaddrs)
            self._header(file.name, file.inode, b"0", size=len(content), content=content)

    def _one_by_one(self, files: list[Small]) -> None:
        self.left += sum(len(file.blkaddrs) for file in files)
        for file in files:
            try:
                self.report.entries += self._file(file.path, file.name, file.inode)
            except F2fsError as error:
                self.report.lost.append(Lost(file.path, str(error)))

    # -- content ------------------------------------------------------------------------------------------------

    def _file(self, path: bytes, name: bytes, inode: Inode) -> bool:
        """A regular file; False where nothing of it was written."""
        if self.volume.locked(inode):
            raise Unsupported(f"the content is {self.volume.secrets.why_locked(inode)}")
        if inode.has_inline_data:
            content = inode.inline_data()
            self._header(name, inode, b"0", size=len(content), content=content)
            return True
        reasons: list[str] = []
        runs, blocks, known = self._runs(inode, reasons)
        if blocks > self.left:  # found out before the header: what that announces must follow, if need be as zeros
            raise Corrupt(Where(ino=inode.ino), "not read: the files have more blocks than the volume; they share them")
        self.left -= blocks
        used = sum(runs[1::2])
        if used == inode.i_size:
            self._header(name, inode, b"0", size=used)
        else:
            table = _sparse_map(runs, inode.i_size)
            records = {
                b"GNU.sparse.major": b"1",
                b"GNU.sparse.minor": b"0",
                b"GNU.sparse.name": name,
                b"GNU.sparse.realsize": b"%d" % inode.i_size,
            }
            directory, _, last = name.rpartition(b"/")
            stand_in = join(join(directory, b"GNUSparseFile.0"), last)
            self._header(stand_in, inode, b"0", size=len(table) + used, records=records)
            self._write(table)
        reasons += self._stream(inode, runs, known)
        self._write(bytes(-used % BLOCK))
        if reasons:
            self.report.partial.append(Lost(path, f"{reasons[0]}; what could not be read is zeros"))
        return True

    def _runs(self, inode: Inode, reasons: list[str]) -> tuple[Any, int, list[Extent] | None]:
        """Start, length, start, length ... in bytes of what is not a hole; how many blocks that costs; its layout.

        The layout is None where it has more than a few runs, or could not be read whole.
        """
        size = self.volume.geo.block_size
        runs, blocks = array("Q"), 0
        known: list[Extent] = []
        items = 0
        for item in mapped(self.volume, inode, reasons):
            items += 1
            if isinstance(item, Extent) and items <= FEW:
                known.append(item)
            if isinstance(item, Extent):
                if item.blkaddr == NEW_ADDR:
                    continue
                start, length = item.fofs * size, item.count * size
            else:
                start, length = item.fofs * size, inode.cluster_size * size
            blocks += self.volume.data.cost(inode, item)
            length = min(length, inode.i_size - start)
            if len(runs) >= 2 * MAX_RUNS:
                blocks += (start - runs[-2] - runs[-1]) // size
            if runs and (runs[-2] + runs[-1] == start or len(runs) >= 2 * MAX_RUNS):
                runs[-1] = start + length - runs[-2]
            elif length > 0:
                runs.extend((start, length))
        return runs, blocks, known if len(known) == items and not reasons else None

    def _stream(self, inode: Inode, runs: Any, known: list[Extent] | None) -> list[str]:
        """The bytes of all runs; what can't be read is zeros, or the archive would be out of step."""
        reasons: list[str] = []
        for index in range(0, len(runs), 2):
            at, end = runs[index], runs[index] + runs[index + 1]
            step = inode.cluster_size * self.volume.geo.block_size
            while at < end:
                try:
                    for offset, piece in self.volume.data.chunks(inode, at, end, known):
                        self._zeros(offset - at)
                        self._write(piece)
                        at = offset + len(piece)
                        step = inode.cluster_size * self.volume.geo.block_size
                    self._zeros(end - at)
                    at = end
                except F2fsError as error:
                    if len(reasons) < MAX_REASONS:
                        reasons.append(str(error))
                    skipped = min(end, (at // step + 1) * step) - at
                    self._zeros(skipped)
                    at += skipped
                    step *= 2
        return reasons

    def _zeros(self, count: int) -> None:
        while count > 0:
            self._write(ZEROS[: min(count, len(ZEROS))])
            count -= len(ZEROS)

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self.out.write(data)
        self.written += len(data)

    # -- headers ------------------------------------------------------------------------------------------------

    def _header(
        self,
        name: bytes,
        inode: Inode,
        kind: bytes,
        *,
        size: int = 0,
        link: bytes = b"",
        records: dict[bytes, bytes] | None = None,
        attributes: bool = True,
        content: bytes = b"",
    ) -> None:
        """Write what stands before a file's content, and the content where it is small and known."""
        pax: dict[bytes, bytes] = {}
        mtime_ns, atime_ns, ctime_ns = inode.mtime_ns, inode.atime_ns, inode.ctime_ns
        mtime = _time(mtime_ns)
        atime = mtime if atime_ns == mtime_ns else _time(atime_ns)
        ctime = mtime if ctime_ns == mtime_ns else _time(ctime_ns)
        prefix, short = _split(name)
        # a name in the header stays as it is; one in a pax record is text, which bsdtar normalises
        if short is None:
            pax[b"path"] = name
        if len(link) > 100:
            pax[b"linkpath"] = link
        if size >= 8**11:
            pax[b"size"] = b"%d" % size
        if inode.i_uid >= 8**7:
            pax[b"uid"] = b"%d" % inode.i_uid
        if inode.i_gid >= 8**7:
            pax[b"gid"] = b"%d" % inode.i_gid
        if attributes and may_have_xattrs(inode):
            try:
                for attribute, value in visible_xattrs(self.volume.nodes, inode).items():
                    pax[b"SCHILY.xattr." + _keyword(os.fsencode(attribute))] = value
                    if attribute in _ACL_RECORDS:  # other programs take ACLs from these alone
                        pax[_ACL_RECORDS[attribute]] = acl_text(parse_xattr(value))
            except F2fsError as error:
                self.report.partial.append(Lost(b"/" + name, f"extended attributes: {error}"))
        body = _TIMES % (10 + len(mtime), mtime, 10 + len(atime), atime, 10 + len(ctime), ctime)
        if records:
            body = b"".join([_record(key, value) for key, value in records.items()]) + body
        if pax:
            body += b"".join([_record(key, value) for key, value in pax.items()])
        if (b"path" in pax and not _is_utf8(pax[b"path"])) or (b"linkpath" in pax and not _is_utf8(pax[b"linkpath"])):
            body = _record(b"hdrcharset", b"BINARY") + body  # with this record POSIX takes names as bytes
        rdev = inode.rdev if kind in (b"3", b"4") else (0, 0)
        head = _ustar(
            short if short is not None else name[:100],
            _before_size(inode.i_mode & 0o7777, inode.i_uid, inode.i_gid),
            size,
            mtime_ns // 1_000_000_000,
            _after_checksum(kind, link[:100], rdev, prefix if short is not None else b""),
        )
        extended = _ustar(b"./PaxHeaders/" + _ascii(name)[-80:], _EXTENDED_START, len(body), 0, _EXTENDED_END)
        parts = (extended, body, ZEROS[: -len(body) % BLOCK], head)
        self._write(b"".join((*parts, content, ZEROS[: -len(content) % BLOCK])))


def _sparse_map(runs: Any, size: int) -> bytes:
    """The table in front of the data of a sparse file, GNU format 1.0: decimal numbers, a line each."""
    numbers = list(runs)
    if not numbers or numbers[-2] + numbers[-1] < size:
        numbers += [size, 0]  # as GNU tar ends a file with a hole
    lines = [b"%d\n" % (len(numbers) // 2)]
    lines += [b"%d\n" % number for number in numbers]
    table = b"".join(lines)
    return table + bytes(-len(table) % BLOCK)


def _split(name: bytes) -> tuple[bytes, bytes | None]:
    """(prefix, name) as they fit a ustar header; name None where they don't."""
    if len(name) <= 100:
        return b"", name
    at = name.rfind(b"/", 0, 156)
    if at > 0 and 0 < len(name) - at - 1 <= 100:
        return name[:at], name[at + 1 :]
    at = name.find(b"/", max(0, len(name) - 101))
    if 0 < at <= 155 and len(name) - at - 1 > 0:
        return name[:at], name[at + 1 :]
    return b"", None


_TIMES = (
    b"%d mtime=%b\n%d atime=%b\n%d ctime=%b\n"  # `_record` of each; no time has so many digits that its length had 3
)


def _record(key: bytes, value: bytes) -> bytes:
    """One pax record; its length counts itself."""
    rest = len(key) + len(value) + 3
    if 9 <= rest < 98:
        return b"%d %b=%b\n" % (rest + 2, key, value)
    length = rest + (1 if rest < 9 else 3 if rest < 997 else 0)
    if length == rest:
        length = rest + len(str(rest))
        length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, key, value)


def _time(ns: int) -> bytes:
    seconds, rest = divmod(abs(ns), 1_000_000_000)
    sign = b"-" if ns < 0 else b""
    return (b"%b%d.%09d" % (sign, seconds, rest)).rstrip(b"0") if rest else b"%b%d" % (sign, seconds)


def _keyword(name: bytes) -> bytes:
    """A name within a pax keyword, which ends at the first `=`; GNU tar escapes it so."""
    return name.replace(b"%", b"%25").replace(b"=", b"%3D")


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _ascii(name: bytes) -> bytes:
    return name.strip(b"/").rpartition(b"/")[2].translate(_TO_ASCII)


@lru_cache(1 << 12)  # modes, owners and small sizes come again and again
def _octal(value: int, width: int) -> bytes:
    """A number for a header; what doesn't fit stands in the pax record."""
    return b"%0*o\0" % (width - 1, value) if 0 <= value < 8 ** (width - 1) else b"0" * (width - 1) + b"\0"


_NAMED = struct.Struct("<100s24s12s12s8s")
_TRAILER = struct.Struct("<1s100s8s64x8s8s155s12x")
_MAGIC = b"ustar\x0000"
_BLANKS = sum(b"        ")  # what the checksum counts itself as

_Part = tuple[bytes, int]  # some fields of a header, and the sum of their bytes


@lru_cache(1 << 12)
def _before_size(mode: int, uid: int, gid: int) -> _Part:
    """The fields of a ustar header between name and size."""
    fields = _octal(mode, 8) + _octal(uid, 8) + _octal(gid, 8)
    return fields, sum(fields)


@lru_cache(1 << 8)  # the prefix is that of a directory, and most files are no links
def _after_checksum(kind: bytes, link: bytes, rdev: tuple[int, int], prefix: bytes) -> _Part:
    """The fields of a ustar header behind its checksum."""
    fields = _TRAILER.pack(kind, link, _MAGIC, _octal(rdev[0], 8), _octal(rdev[1], 8), prefix)
    return fields, sum(fields)


def _ustar(name: bytes, before: _Part, size: int, mtime: int, after: _Part) -> bytes:
    """A header's block."""
    length, time = _octal(size, 12), _octal(mtime, 12)
    total = sum(name) + before[1] + sum(length) + sum(time) + _BLANKS + after[1]
    return _NAMED.pack(name, before[0], length, time, b"%06o\0 " % total) + after[0]


_EXTENDED_START, _EXTENDED_END = _before_size(0o644, 0, 0), _after_checksum(b"x", b"", (0, 0), b"")
