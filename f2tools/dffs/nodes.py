"""Directories, files, virtual inodes and links in memory, and their pages: the meaning of fields, and which values are
impossible.

Reading a page takes nothing on trust: a node from here has lengths that fit and a right checksum.  What it leads to is
not checked.
"""

from __future__ import annotations

import stat
import struct
from array import array
from dataclasses import dataclass, field
from hashlib import sha1
from itertools import islice
from zlib import crc32

from f2tools.dffs.layout import (
    BY_ID,
    COLLISION,
    DIRECTORY,
    FILE,
    INLINE,
    INODE_MAGIC,
    LINK,
    LINK_MAGIC,
    NAME_LEN,
    POINTER_BITS,
    POINTER_MASK,
    VIRTUAL,
    VIRTUAL_MAGIC,
    InodeHead,
    LinkPage,
    Shape,
    VirtualHead,
    XattrRecord,
)
from f2tools.volumes import KINDS, Typed

_HEAD = InodeHead.unpacker()[0]
_VIRTUAL = VirtualHead.unpacker()[0]
_LINK = LinkPage.unpacker()[0]
_XATTR = XattrRecord.unpacker()[0]
_CRC_AT = InodeHead.offset_of("i_crc")  # of all three
MOST_COUNTED = 1 << 30
_MASK = (1 << 64) - 1  # times before 1970 are stored as two's complement
assert VirtualHead.offset_of("v_crc") == LinkPage.offset_of("l_crc") == _CRC_AT


class Malformed(Exception):
    """A page is not what it should be; its text says why."""


def name_hash(name: bytes) -> int:
    """The hash of a name: the first four bytes of its SHA-1.  Its bucket is that modulo the number of buckets."""
    return int.from_bytes(sha1(name, usedforsecurity=False).digest()[:4], "big")


def by_id(number: int) -> int:
    """The pointer to a directory, or to a file with several names."""
    return BY_ID << POINTER_BITS | number


@dataclass(slots=True, eq=False)
class Inode(Typed):
    """The common part of directories and files; times are nanoseconds since 1970."""

    ino: int
    mode: int
    id: int = 0
    parent: int = 0
    name: bytes = b""
    links: int = 1
    uid: int = 0
    gid: int = 0
    size: int = 0
    rdev: int = 0
    atime: int = 0
    mtime: int = 0
    ctime: int = 0
    crtime: int = 0
    generation: int = 0
    pages: int = 0
    xattrs: dict[str, bytes] = field(default_factory=dict)
    page: int = 0
    """Where it lies; 0 for nowhere yet."""
    dirty: bool = False

    def text(self) -> bytes:
        """Name and extended attributes, as they stand in the page."""
        return self.name + xattr_bytes(self.xattrs)

    def head(self, flags: int, first: int) -> bytes:
        """The head of its page, without the checksum."""
        return _HEAD.pack(
            INODE_MAGIC, 0, self.id, self.parent, len(self.name), len(xattr_bytes(self.xattrs)), self.ino, self.mode,
            flags, max(0, self.links), self.uid, self.gid, self.size, self.rdev,
            *(time & _MASK for time in (self.atime, self.mtime, self.ctime, self.crtime)),
            self.generation, max(0, self.pages), first, b"",
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class Directory(Inode):
    """A directory: `primary` has what each bucket leads to, `secondary` where its chain begins if it has one."""

    primary: array[int] = field(default_factory=lambda: array("I"))
    secondary: bytearray = field(default_factory=bytearray)
    first: int = 0

    page_kind = DIRECTORY

    def build(self, shape: Shape) -> bytes:
        """The page."""
        made = self.head(0, self.first) + self.text().ljust(shape.dir_text, b"\0")
        return _sealed((made + _le(self.primary) + self.secondary).ljust(shape.page_size, b"\0"))


@dataclass(slots=True, eq=False)
class File(Inode):
    """A file of any kind but a directory: `inline` is its content, or `slots` the addresses of pages."""

    inline: bytes | None = b""
    slots: array[int] = field(default_factory=lambda: array("I"))
    token: int = 0
    """What its directory's bucket holds while it is only in memory."""
    fresh: dict[int, bytearray] = field(default_factory=dict)
    """Pages of its content that were written and are not on the flash."""
    index: dict[tuple[int, int], array[int]] = field(default_factory=dict)
    """Index pages that changed, by level and number."""

    page_kind = FILE

    def build(self, shape: Shape) -> bytes:
        """The page."""
        flags = 0 if self.inline is None else INLINE
        body = _le(self.slots) if self.inline is None else self.inline
        made = self.head(flags, 0) + self.text().ljust(shape.file_text, b"\0") + body
        return _sealed(made.ljust(shape.page_size, b"\0"))


@dataclass(slots=True, eq=False)
class Link:
    """A further name of a file, which has a logical id then."""

    parent: int
    name: bytes
    target: int
    page: int = 0
    dirty: bool = False
    token: int = 0

    page_kind = LINK
    ino = id = 0

    def build(self, shape: Shape) -> bytes:
        """The page."""
        made = _LINK.pack(LINK_MAGIC, 0, self.parent, self.target, len(self.name), self.name)
        return _sealed(made.ljust(shape.page_size, b"\0"))


@dataclass(slots=True, eq=False)
class Virtual:
    """A virtual inode: slots with what they lead to, the name's hash, and the next slot of the chain (from 1; 0 ends).

    A slot is free where it leads to nothing.
    """

    id: int
    dir: int
    prev: int = 0
    next: int = 0
    pointers: array[int] = field(default_factory=lambda: array("I"))
    hashes: array[int] = field(default_factory=lambda: array("I"))
    nexts: bytearray = field(default_factory=bytearray)
    page: int = 0
    dirty: bool = False

    page_kind = VIRTUAL
    ino = 0

    @property
    def parent(self) -> int:
        """The directory."""
        return self.dir

    @property
    def free(self) -> int:
        """How many slots are free."""
        return self.pointers.count(0)

    def build(self, shape: Shape) -> bytes:
        """The page."""
        made = _VIRTUAL.pack(VIRTUAL_MAGIC, 0, self.id, self.dir, self.prev, self.next, b"")
        return _sealed((made + _le(self.pointers) + _le(self.hashes) + self.nexts).ljust(shape.page_size, b"\0"))

    def chain(self, start: int) -> list[int]:
        """The slots of a chain, from 0; Malformed where it leads out of the page or in a circle."""
        found: list[int] = []
        while start:
            if start > len(self.pointers) or len(found) >= len(self.pointers) or not self.pointers[start - 1]:
                raise Malformed("the chain of a bucket leads in a circle or to no slot")
            found.append(start - 1)
            start = self.nexts[start - 1]
        return found


Node = Directory | File | Link | Virtual


def new_directory(shape: Shape, number: int, mode: int) -> Directory:
    """An empty directory."""
    made = Directory(number, mode, id=number, links=2)
    made.primary = array("I", bytes(4 * shape.buckets))
    made.secondary = bytearray(shape.buckets)
    return made


def new_virtual(shape: Shape, number: int, directory: int) -> Virtual:
    """A virtual inode with all slots free."""
    zeroes = bytes(4 * shape.slots)
    return Virtual(
        number, directory, pointers=array("I", zeroes), hashes=array("I", zeroes), nexts=bytearray(shape.slots)
    )


def new_slots(shape: Shape) -> array[int]:
    """The addresses of a file of holes."""
    return array("I", bytes(4 * (shape.direct + 3)))


def xattr_bytes(xattrs: dict[str, bytes]) -> bytes:
    """Extended attributes as they stand in a page."""
    return b"".join(
        _XATTR.pack(len(name), len(value)) + name + value
        for name, value in ((name.encode("utf-8", "surrogateescape"), value) for name, value in xattrs.items())
    )


def parse_node(shape: Shape, page: int, data: bytes) -> Node:
    """The node in a page; Malformed where it holds none."""
    magic = int.from_bytes(data[:4], "little")
    if magic not in (INODE_MAGIC, VIRTUAL_MAGIC, LINK_MAGIC):
        raise Malformed("it is no inode, virtual inode or link")
    stored = int.from_bytes(data[_CRC_AT : _CRC_AT + 4], "little")
    if crc32(data[:_CRC_AT] + bytes(4) + data[_CRC_AT + 4 :]) != stored:
        raise Malformed("its checksum is wrong")
    if magic == VIRTUAL_MAGIC:
        made: Node = _virtual(shape, data)
    elif magic == LINK_MAGIC:
        made = _link(data)
    else:
        made = _inode(shape, data)
    made.page = page
    return made


def _inode(shape: Shape, data: bytes) -> Directory | File:
    (_, _, number, parent, name_len, xattr_len, ino, mode, flags, links, uid, gid, size, rdev, *times, generation,
     pages, first, _) = _HEAD.unpack_from(data)  # fmt: skip
    if stat.S_IFMT(mode) not in KINDS:
        raise Malformed(f"mode {mode:#o} is of no kind of file")
    room = shape.dir_text if stat.S_ISDIR(mode) else shape.file_text
    if name_len > NAME_LEN or name_len + xattr_len > room:
        raise Malformed("name and extended attributes take more room than there is")
    at = InodeHead.size
    name, rest = data[at : at + name_len], data[at + name_len : at + name_len + xattr_len]
    if max(links, pages) > MOST_COUNTED or (stat.S_ISDIR(mode) and size > MOST_COUNTED):
        raise Malformed("it counts more links, pages or children than anything can have")
    problem = _name_problem(name) if name else None
    if problem:
        raise Malformed(problem)
    common = {
        "ino": ino, "mode": mode, "id": number, "parent": parent, "name": name, "links": links, "uid": uid, "gid": gid,
        "size": size, "rdev": rdev, "generation": generation, "pages": pages, "xattrs": _xattrs(rest),
        **{key: time - (time >> 63 << 64)
           for key, time in zip(("atime", "mtime", "ctime", "crtime"), times, strict=True)},
    }  # fmt: skip
    at += room
    if stat.S_ISDIR(mode):
        primary = _numbers(data[at : at + 4 * shape.buckets])
        at += 4 * shape.buckets
        return Directory(**common, primary=primary, secondary=bytearray(data[at : at + shape.buckets]), first=first)
    made = File(**common)
    if flags & INLINE:
        if size > shape.body:
            raise Malformed(f"content of {size} bytes in the page, where there is room for {shape.body}")
        made.inline = data[at : at + size]
    else:
        if size > shape.max_size:
            raise Malformed(f"a size of {size} bytes; {shape.max_size} are the most")
        made.inline = None
        made.slots = _numbers(data[at : at + 4 * (shape.direct + 3)])
    return made


def _virtual(shape: Shape, data: bytes) -> Virtual:
    _, _, number, directory, before, after, _ = _VIRTUAL.unpack_from(data)
    at, size = VirtualHead.size, 4 * shape.slots
    pointers, hashes = _numbers(data[at : at + size]), _numbers(data[at + size : at + 2 * size])
    nexts = bytearray(data[at + 2 * size : at + 2 * size + shape.slots])
    return Virtual(number, directory, before, after, pointers, hashes, nexts)


def _link(data: bytes) -> Link:
    _, _, parent, target, length, name = _LINK.unpack_from(data)
    problem = "its name is too long" if length > NAME_LEN else _name_problem(name[:length])
    if problem:
        raise Malformed(problem)
    return Link(parent, name[:length], target)


def _name_problem(name: bytes) -> str | None:
    if not name or name in (b".", b"..") or b"/" in name or b"\0" in name:
        return f"{name!r} can't be a name"
    return None


def _xattrs(raw: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    at = 0
    while at < len(raw):
        if at + _XATTR.size > len(raw):
            raise Malformed("an extended attribute is cut off")
        name_len, value_len = _XATTR.unpack_from(raw, at)
        at += _XATTR.size
        name = raw[at : at + name_len].decode("utf-8", "surrogateescape")
        if at + name_len + value_len > len(raw) or not name or "\0" in name or name in found:
            raise Malformed("an extended attribute is malformed")
        found[name] = raw[at + name_len : at + name_len + value_len]
        at += name_len + value_len
    return found


def _sealed(page: bytes) -> bytes:
    return page[:_CRC_AT] + struct.pack("<I", crc32(page)) + page[_CRC_AT + 4 :]


def _le(numbers: array[int]) -> bytes:
    return numbers.tobytes()


def _numbers(raw: bytes) -> array[int]:
    return array("I", raw)


def slots_of(directory: Directory, virtual: Virtual | None, bucket: int) -> list[tuple[int, int | None]]:
    """(what it leads to, hash of the name where that is known) of each child in a bucket; Malformed."""
    pointer = directory.primary[bucket]
    if pointer >> POINTER_BITS != COLLISION:
        return [(pointer, None)] if pointer else []
    if virtual is None or virtual.id != pointer & POINTER_MASK or virtual.dir != directory.id:
        raise Malformed(f"bucket {bucket} leads to a virtual inode that is not this directory's")
    chain = virtual.chain(directory.secondary[bucket])
    return [(virtual.pointers[slot], virtual.hashes[slot]) for slot in islice(chain, len(virtual.pointers))]
