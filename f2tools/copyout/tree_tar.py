"""A `Tree` as a tar archive: pax with times to the nanosecond, extended attributes, holes and hard links; a stream."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO

from f2tools.copyout.parts import Missing, Part
from f2tools.copyout.tree import PIECE, Node, Tree, parts, walk
from f2tools.copyout.walk import Lost
from f2tools.errors import F2fsError

BLOCK = 512  # of an archive
_TYPES = {
    "dir": tarfile.DIRTYPE, "file": tarfile.REGTYPE, "symlink": tarfile.SYMTYPE, "char": tarfile.CHRTYPE,
    "block": tarfile.BLKTYPE, "fifo": tarfile.FIFOTYPE,
}  # fmt: skip


@dataclass
class TarReport:
    """What went into the archive and what did not."""

    entries: int = 0
    sockets: int = 0
    lost: list[Lost] = field(default_factory=list)


class _Content(io.RawIOBase):
    """Parts of a file one after the other, behind a head; what can't be read is zeros, and noted."""

    def __init__(self, volume: Tree, inode: Node, head: bytes, runs: list[tuple[int, int]]) -> None:
        self.volume = volume
        self.inode = inode
        self.missing = Missing()
        self._ready = head
        self._runs = runs[::-1]

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        read: list[bytes] = []
        wanted = size
        while wanted > 0:
            if not self._ready and not self._next():
                break
            some, self._ready = self._ready[:wanted], self._ready[wanted:]
            read.append(some)
            wanted -= len(some)
        return b"".join(read)

    def _next(self) -> bool:
        if not self._runs:
            return False
        offset, length = self._runs.pop()
        take = min(length, PIECE)
        if take < length:
            self._runs.append((offset + take, length - take))
        pieces: list[bytes] = []
        for part in parts(self.volume, self.inode, offset, take):
            self.missing.note(part)
            pieces.append(part.content.ljust(part.length, b"\0"))
        self._ready = b"".join(pieces)
        return True


def write_tar(
    volume: Tree, out: IO[bytes], paths: tuple[bytes, ...] = (), advance: Callable[[int], None] = lambda _: None
) -> TarReport:
    """Write the archive; names are relative to the root of the volume."""
    report = TarReport()
    linked: dict[int, str] = {}
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, encoding="utf-8") as archive:
        for raw in paths or (b"/",):
            for found, inode in walk(volume, volume.at_path(raw, follow=False), _absolute(raw), report.lost):
                try:
                    _add(volume, archive, found, inode, linked, report)
                except F2fsError as error:
                    report.lost.append(Lost(found, str(error)))
                advance(1)
    return report


def _absolute(path: bytes) -> bytes:
    return path if path.startswith((b"/", b"ino:")) else b"/" + path


def _add(
    volume: Tree, archive: tarfile.TarFile, path: bytes, inode: Node, linked: dict[int, str], report: TarReport
) -> None:  # fmt: skip
    if inode.kind == "socket":
        report.sockets += 1
        return
    name = (path.strip(b"/") or b".").decode("utf-8", "surrogateescape")
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.uid, info.gid = _TYPES[inode.kind], inode.mode & 0o7777, inode.uid, inode.gid
    info.mtime = inode.mtime // 1_000_000_000
    info.pax_headers = {
        key: _time(value) for key, value in (("mtime", inode.mtime), ("atime", inode.atime), ("ctime", inode.ctime))
    }
    report.entries += 1
    if inode.links > 1 and not inode.is_dir:
        if inode.ino in linked:
            info.type, info.linkname = tarfile.LNKTYPE, linked[inode.ino]
            archive.addfile(info)
            return
        linked[inode.ino] = name
    for key, value in inode.xattrs.items():
        if any("\udc80" <= c <= "\udcff" for c in key):
            report.lost.append(Lost(path, "an extended attribute whose name is no UTF-8, which an archive can't hold"))
            continue
        escaped = key.replace("%", "%25").replace("=", "%3D")
        info.pax_headers[f"SCHILY.xattr.{escaped}"] = value.decode("utf-8", "surrogateescape")
    if inode.is_link:
        info.linkname = volume.readlink(inode).decode("utf-8", "surrogateescape")
    info.devmajor, info.devminor = inode.rdev >> 32, inode.rdev & 0xFFFFFFFF
    if not inode.is_file:
        archive.addfile(info)
        return
    unknown: list[Part] = []
    runs, head = list(volume.data_ranges(inode, unknown)), b""
    used = sum(length for _, length in runs)
    if used != inode.size:
        head = _sparse_map(runs, inode.size)
        info.pax_headers |= {
            "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": name,
            "GNU.sparse.realsize": str(inode.size),
        }  # fmt: skip
        directory, _, last = name.rpartition("/")
        info.name = (directory + "/" if directory else "") + "GNUSparseFile.0/" + last
    info.size = len(head) + used
    content = _Content(volume, inode, head, runs)
    archive.addfile(info, content)  # type: ignore[arg-type]
    for part in unknown:
        content.missing.note(part)
    report.lost += [
        lost._replace(reason=f"{lost.reason}; what could not be read is zeros")
        for lost in content.missing.of(path, inode.size)
    ]


def _sparse_map(runs: list[tuple[int, int]], size: int) -> bytes:
    """The table in front of the data of a sparse file, GNU format 1.0: decimal numbers, a line each."""
    if not runs or sum(runs[-1]) < size:
        runs = [*runs, (size, 0)]
    table = b"%d\n" % len(runs) + b"".join(b"%d\n%d\n" % run for run in runs)
    return table.ljust(-(-len(table) // BLOCK) * BLOCK, b"\0")


def _time(ns: int) -> str:
    seconds, rest = divmod(abs(ns), 1_000_000_000)
    return f"{'-' if ns < 0 else ''}{seconds}.{rest:09d}"
