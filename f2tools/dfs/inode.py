"""One inode in memory, and its block: its fields, its checksum, the link target or the attributes that it holds."""

from __future__ import annotations

import stat
import struct
from dataclasses import dataclass, field
from zlib import crc32

from f2tools.dfs.layout import BLOCK, Geometry, InodeBlock, XattrRecord
from f2tools.errors import Corrupt, Where
from f2tools.volumes import KINDS, Typed

_FORM = InodeBlock.unpacker()[0]
_NAMES = tuple(item.name.removeprefix("i_") for item in InodeBlock.fields)
_CRC_AT = InodeBlock.offset_of("i_crc")
_SPARE_AT = InodeBlock.offset_of("i_spare")
SPARE = BLOCK - _SPARE_AT
_MASK = (1 << 64) - 1  # times before 1970 are stored as two's complement
_XATTR = XattrRecord.unpacker()[0]


@dataclass(slots=True)
class Inode(Typed):
    """See the module's docstring; times are nanoseconds since 1970."""

    ino: int
    base: int
    mode: int
    links: int
    size: int = 0
    uid: int = 0
    gid: int = 0
    flags: int = 0
    generation: int = 0
    atime: int = 0
    mtime: int = 0
    ctime: int = 0
    crtime: int = 0
    rdev: int = 0
    inline: bytes = b""
    xattrs: dict[str, bytes] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        """How many blocks its size reaches over."""
        return -(-self.size // BLOCK)

    def build(self) -> bytes:
        """The block."""
        attributes = xattr_bytes(self.xattrs)
        made = bytearray(
            _FORM.pack(
                self.ino, self.base, self.mode, self.links, self.size, self.uid, self.gid, self.flags, self.generation,
                *(time & _MASK for time in (self.atime, self.mtime, self.ctime, self.crtime)), 0, self.rdev,
                len(self.inline), len(attributes),
                self.inline + attributes,
            )
        )  # fmt: skip
        struct.pack_into("<I", made, _CRC_AT, crc32(made))
        return bytes(made)


def xattr_room(inode: Inode) -> int:
    """How many bytes of extended attributes there is room for."""
    return SPARE - len(inode.inline)


def xattr_bytes(xattrs: dict[str, bytes]) -> bytes:
    """Extended attributes as they stand in the spare bytes."""
    return b"".join(
        _XATTR.pack(len(name), len(value)) + name + value
        for name, value in ((name.encode("utf-8", "surrogateescape"), value) for name, value in xattrs.items())
    )


def inode_problem(geo: Geometry, ino: int, block: bytes) -> str | None:
    """Why a block is not the inode with that number; None where it is."""
    values = dict(zip(_NAMES, _FORM.unpack(block), strict=True))
    if crc32(block[:_CRC_AT] + bytes(4) + block[_CRC_AT + 4 :]) != values["crc"]:
        return "its checksum is wrong"
    if values["number"] != ino:
        return f"it says that it is inode {values['number']}"
    kind = stat.S_IFMT(values["mode"])
    if kind not in KINDS:
        return f"mode {values['mode']:#o} is of no kind of file"
    if values["inline_len"] + values["xattr_len"] > SPARE:
        return "link and attributes take more room than there is"
    if kind == stat.S_IFLNK and values["inline_len"]:
        if values["base"] or values["size"] != values["inline_len"]:
            return "a link within the inode, and content elsewhere"
    elif values["inline_len"]:
        return "a link's target in what is no link"
    elif kind in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
        room = geo.place_blocks(ino, values["base"])
        if not room:
            return f"base {values['base']:#x} is neither its slot nor its chunk"
        if values["size"] > room * BLOCK:
            return f"size {values['size']} is more than its base has room for"
        if kind == stat.S_IFDIR and (values["base"] != geo.own_chunk(ino) or values["size"] % BLOCK):
            return "a directory that is not whole blocks in its own chunk"
    elif values["base"] or values["size"]:
        return "content in what can have none"
    at = values["inline_len"]
    return _xattr_problem(values["spare"][at : at + values["xattr_len"]])


def _xattr_problem(raw: bytes) -> str | None:
    at, names = 0, set()
    while at < len(raw):
        if at + _XATTR.size > len(raw):
            return "an extended attribute is cut off"
        name_len, value_len = _XATTR.unpack_from(raw, at)
        name = raw[at + _XATTR.size : at + _XATTR.size + name_len]
        at += _XATTR.size + name_len + value_len
        if at > len(raw) or not name_len or b"\0" in name:
            return "an extended attribute is malformed"
        if name in names:
            return "an extended attribute stands there twice"
        names.add(name)
    return None


def parse_inode(geo: Geometry, ino: int, block: bytes) -> Inode:
    """The inode in a block; Corrupt where it holds none."""
    if not any(block):
        raise Corrupt(Where(ino=ino), "the inode is free")
    problem = inode_problem(geo, ino, block)
    if problem:
        raise Corrupt(Where(ino=ino), f"the inode can't be used: {problem}")
    values = dict(zip(_NAMES, _FORM.unpack(block), strict=True))
    inline_len, xattr_len, spare = values.pop("inline_len"), values.pop("xattr_len"), values.pop("spare")
    del values["number"], values["crc"]
    for name in ("atime", "mtime", "ctime", "crtime"):
        values[name] -= values[name] >> 63 << 64
    xattrs = xattrs_in(spare[inline_len : inline_len + xattr_len])
    return Inode(ino=ino, inline=spare[:inline_len], xattrs=xattrs, **values)


def xattrs_in(raw: bytes) -> dict[str, bytes]:
    """The extended attributes in spare bytes; none where these are malformed."""
    found: dict[str, bytes] = {}
    at = 0 if _xattr_problem(raw) is None else len(raw)
    while at < len(raw):
        name_len, value_len = _XATTR.unpack_from(raw, at)
        at += _XATTR.size
        name = raw[at : at + name_len].decode("utf-8", "surrogateescape")
        found[name] = raw[at + name_len : at + name_len + value_len]
        at += name_len + value_len
    return found
