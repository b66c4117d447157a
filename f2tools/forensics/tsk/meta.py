"""What The Sleuth Kit calls metadata: an inode by its address, living or not, and its times as it prints them.

The address of what a path leads to is the inode number.  A number is used again, so that of a deleted file or of an
older version is `INO-BLKADDR`, with the block that holds the inode; the form is that of NTFS addresses there.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from f2tools.errors import DeviceError, F2fsError, Usage
from f2tools.f2fs.layout.constants import COMPRESS_ADDR, NULL_ADDR
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.forensics.index import Index, open_index
from f2tools.forensics.past import InodeVersion
from f2tools.forensics.undelete import Found, Undelete

KINDS = {
    stat.S_IFREG: "r", stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFIFO: "p", stat.S_IFCHR: "c", stat.S_IFBLK: "b",
    stat.S_IFSOCK: "h",
}  # fmt: skip
NEVER = "0000-00-00 00:00:00"


@dataclass(frozen=True)
class Meta:
    """The fields of an inode that are printed."""

    ino: int
    address: str
    mode: int
    links: int
    uid: int
    gid: int
    size: int
    generation: int
    blkaddr: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    crtime_ns: int | None

    @classmethod
    def living(cls, inode: Inode) -> Meta:
        """The fields of an inode that a path leads to."""
        return cls(
            inode.ino, str(inode.ino), inode.i_mode, inode.i_links, inode.i_uid, inode.i_gid, inode.i_size,
            inode.i_generation, inode.blkaddr, inode.atime_ns, inode.mtime_ns, inode.ctime_ns, inode.crtime_ns,
        )  # fmt: skip

    @classmethod
    def past(cls, version: InodeVersion) -> Meta:
        """The fields of a block that was an inode once."""
        return cls(
            version.ino, f"{version.ino}-{version.blkaddr}", version.mode, version.links, version.uid, version.gid,
            version.size, version.generation, version.blkaddr, version.atime_ns, version.mtime_ns, version.ctime_ns,
            version.crtime_ns,
        )  # fmt: skip

    @property
    def kind(self) -> str:
        """The letter of its type."""
        return KINDS.get(stat.S_IFMT(self.mode), "-")

    @property
    def filemode(self) -> str:
        """`rrw-r--r--`: the letter, then the permissions."""
        return self.kind + stat.filemode(self.mode)[1:]


@dataclass(frozen=True)
class Clock:
    """How times are printed: in a zone, `skew` seconds taken off."""

    zone: tzinfo = UTC
    skew: int = 0

    def seconds(self, time_ns: int | None) -> int:
        """Whole seconds since 1970, 0 for none."""
        return max(0, (time_ns or 0) // 1_000_000_000 - self.skew) if time_ns else 0

    def text(self, time_ns: int | None, fraction: bool = False) -> str:
        """`2024-03-01 12:00:00 (UTC)`."""
        name = datetime.now(self.zone).tzname()
        if not time_ns:
            return f"{NEVER} ({name})"
        try:
            found = datetime.fromtimestamp(time_ns // 1_000_000_000, self.zone) - timedelta(seconds=self.skew)
        except (OverflowError, ValueError, OSError):
            return f"{NEVER} ({name})"
        rest = f".{time_ns % 1_000_000_000:09d}" if fraction else ""
        return f"{found:%Y-%m-%d %H:%M:%S}{rest} ({found.tzname()})"


class Case:
    """A volume, and its past as soon as that is asked for."""

    def __init__(self, volume: Volume, index_path: str | None = None) -> None:
        self.volume = volume
        self._index_path = index_path
        self._index: Index | None = None
        self._run: Undelete | None = None

    @property
    def run(self) -> Undelete:
        """What is known about deleted files; scans the volume unless an index was given."""
        if self._run is None:
            self._index = open_index(self.volume, self._index_path)
            self._run = Undelete(self.volume, self._index)
        return self._run

    def close(self) -> None:
        if self._index is not None:
            self._index.close()

    def __enter__(self) -> Case:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def file(self, address: str) -> File:
        """What an address stands for: `99` the living inode, else the last that had the number; `99-4567` that block.

        Usage where it is no address, F2fsError where nothing is there.
        """
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?:-\d+)?)?", address)
        if match is None:
            raise Usage(f"{address!r} is no address; one is INO or INO-BLOCK, as fls prints them")
        ino, blkaddr = int(match[1]), match[2] and int(match[2])
        if blkaddr is None:
            try:
                return File(self, Meta.living(inode := self.volume.nodes.inode(ino)), inode, None)
            except DeviceError:
                raise  # it may be living, and is not to be called deleted
            except F2fsError:
                pass
        for life in reversed(self.run.past.lives_of.get(ino, [])):
            if blkaddr is None:
                version = self.run.last_state(life)
            else:
                version = next((one for one in life.versions if one.blkaddr == blkaddr), None)
            if version is None:
                continue
            found = self.run.found(life, version, "older" if self.run.is_living(life) else "deleted")
            if found.state == "deleted":
                found.deleted_by_ns = self.run.gone_by(life)
            return File(self, Meta.past(version), self.run.past.inode(version), found)
        raise F2fsError(f"{address}: no inode is left that has this address")


@dataclass(frozen=True)
class File:
    """An inode and how to read it; `found` unless it is living."""

    case: Case
    meta: Meta
    inode: Inode
    found: Found | None

    def chunks(self) -> Iterator[tuple[int, bytes | memoryview]]:
        """(byte offset, bytes) of what is there, neither holes nor what is gone; for a directory its blocks."""
        volume = self.case.volume
        if self.found is not None and self.found.content is not None and not self.inode.has_inline_dentry:
            yield from self.case.run.contents.chunks(self.found.content)
        elif self.inode.has_inline_dentry:
            yield 0, self.inode.inline_area.tobytes()
        elif self.inode.is_dir:
            yield from volume.data.chunks(self.inode)
        else:
            yield from volume.inode(self.meta.ino).chunks()

    def slack(self) -> bytes:
        """What stands behind the end in the last block."""
        size, block = self.meta.size, self.case.volume.geo.block_size
        if not size % block or self.inode.has_inline_data or self.inode.has_inline_dentry:
            return b""
        addresses = list(self.addresses())
        last = addresses[-1] if len(addresses) == -(-size // block) else 0
        if not last:
            return b""
        return self.case.volume.device.read_range(last, 1, block)[0].tobytes()[size % block :]

    def addresses(self) -> Iterator[int]:
        """The address of each block of the content in file order, 0 for a hole and what is not known."""
        pairs = self._living()
        if self.found is not None:
            pairs = iter(sorted(self.found.content.addresses().items() if self.found.content else ()))
        at = 0
        for fofs, blkaddr in pairs:
            if blkaddr == NULL_ADDR:
                continue
            yield from (0 for _ in range(fofs - at))
            yield blkaddr if blkaddr < COMPRESS_ADDR else 0
            at = fofs + 1
        if at:
            yield from (0 for _ in range(-(-self.meta.size // self.case.volume.geo.block_size) - at))

    def _living(self) -> Iterator[tuple[int, int]]:
        for extent in self.case.volume.data.extents(self.inode):
            yield from ((extent.fofs + n, extent.blkaddr + n) for n in range(extent.count))
