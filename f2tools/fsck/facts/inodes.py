"""Inodes in batches: their fixed fields as columns, read rightly even where a field that shifts the others is wrong.

What comes in are blocks, what comes out follows from them and from the geometry.  Nothing else is read, but for the
nodes of a file of which it is in doubt whether its inode keeps room for attributes.
"""

from __future__ import annotations

import stat
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    DEF_INLINE_RESERVED_SIZE,
    DEFAULT_INLINE_XATTR_ADDRS,
    F2FS_CASEFOLD_FL,
    F2FS_DATA_EXIST,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_CASEFOLD,
    F2FS_FEATURE_COMPRESSION,
    F2FS_FEATURE_DEVICE_ALIAS,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_FLEXIBLE_INLINE_XATTR,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_INLINE_XATTR,
    F2FS_NAME_LEN,
    F2FS_PIN_FILE,
)
from f2tools.f2fs.layout.file_type import S_IFMT, S_IFMTS
from f2tools.f2fs.layout.hashes import dentry_hashes_padded
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.node_tree import branches
from f2tools.f2fs.layout.xattr import F2FS_XATTR_MAGIC, XattrHeader
from f2tools.f2fs.volume.dentries import DentryArea
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.fsck.facts.arrays import bytes_before
from f2tools.fsck.facts.clusters import cluster_logs
from f2tools.fsck.facts.columns import Columns
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.sound import FACTS, Sound, sound_inodes
from f2tools.lazy import dataclass
from f2tools.native import core

EXTRA_SIZES = (4, 8, 12, 24, 36)  # where the extra attributes of released kernels and tools end
MIN_INLINE_DENTRY_SIZE = 40  # bytes
MIN_INLINE_XATTR = XattrHeader.size // 4  # words, where there are attributes inside; see fs/f2fs/xattr.h
MIN_INLINE_DENTRIES = 40  # bytes; a directory inside its inode has more
HEAD_BYTES = INODE_ADDR_OFFSET + InodeExtra.size + 4
SPECIAL = (stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK)
_KNOWN, _SPECIAL = (np.isin(np.arange(16) << 12, kinds) for kinds in (S_IFMTS, SPECIAL))  # by i_mode >> 12
_NAME_AT = InodeLayout.offset_of("i_name")
NAMES_HELD = 4 << 20  # bytes of names that wait to be hashed together

_FIELDS = [item.name for item in InodeLayout.fields if item.offset < INODE_ADDR_OFFSET and item.name != "i_ext"]
HEAD = np.dtype(
    {
        "names": [*_FIELDS, "ext_fofs", "ext_blk", "ext_len", *(item.name for item in InodeExtra.fields), "first"],
        "formats": [
            *(InodeLayout.dtype[name] for name in _FIELDS),
            "<u4", "<u4", "<u4",
            *(InodeExtra.dtype[item.name] for item in InodeExtra.fields),
            "<u4",
        ],
        "offsets": [
            *(InodeLayout.offset_of(name) for name in _FIELDS),
            *(InodeLayout.offset_of("i_ext") + 4 * i for i in range(3)),
            *(INODE_ADDR_OFFSET + item.offset for item in InodeExtra.fields),
            INODE_ADDR_OFFSET + InodeExtra.size,
        ],
        "itemsize": HEAD_BYTES,
    }
)  # fmt: skip
ROW = np.dtype(
    [
        ("node", "i4"), ("mode", "u2"), ("advise", "u1"), ("inline", "u1"), ("uid", "u4"), ("gid", "u4"),
        ("projid", "u4"), ("links", "u4"), ("size", "u8"), ("blocks", "u8"), ("depth", "u4"), ("xattr_nid", "u4"),
        ("flags", "u4"), ("pino", "u4"), ("namelen", "u4"), ("dir_level", "u1"), ("cluster", "u2"),
        ("compr_blocks", "u8"), ("ext_fofs", "u4"), ("ext_blk", "u4"), ("ext_len", "u4"), ("name_hash", "u4"),
        ("start", "u2"), ("count", "u2"), ("inline_xattr", "u2"), ("compressed", "?"),
        # counted
        ("data", "i8"), ("nodes", "i4"), ("last", "i8"), ("last_written", "i8"), ("ext_hits", "i8"), ("saved", "i8"),
        ("bad", "i4"), ("bad_clusters", "i4"), ("empty_clusters", "i4"),
        ("headless", "i4"),
    ]
)  # fmt: skip
PLACES = ("extra", "inline_xattr", "inline_at", "inline_size")
IN_BOTH = [name for name in FACTS.names or () if name in (ROW.names or ())]  # and of the same type there
IN_FACTS = np.array([field[1] for name, field in (FACTS.fields or {}).items() if name in IN_BOTH])  # bytes into a row


@dataclass(frozen=True)
class InodeBatch:
    """Some inodes at once: `rows` of the table of inodes, columns of their fixed fields, and their blocks."""

    image: Image
    rows: NDArray[np.int64]
    nid: NDArray[np.int64]
    blkaddr: NDArray[np.int64]
    blocks: NDArray[np.uint8]
    extra: NDArray[np.integer]  # bytes of extra attributes, 0 where i_extra_isize can't be
    inline_xattr: NDArray[np.integer]  # words
    inline_at: NDArray[np.integer]  # bytes from the start of the block
    inline_size: NDArray[np.integer]  # bytes that fit inline
    lost_extra: NDArray[np.bool_]  # whether the flag of extra attributes was lost
    lost_xattr: NDArray[np.bool_]  # whether the flag of inline attributes was lost
    no_xattr: NDArray[np.bool_]  # whether it is there, and contradicts what lies there
    lost_dentry: NDArray[np.bool_]  # whether the flag of entries inside was lost
    cluster: NDArray[np.int64]  # log2 of the blocks in a cluster of a compressed file; 0 for others
    marked: NDArray[np.bool_]  # whether marks of clusters were seen, where the fields say no size
    sound: Sound | None = None  # what there is to know of them, where nothing of their fields needs a check

    @cached_property
    def head(self) -> NDArray[np.void]:
        """Their fixed fields, dtype HEAD."""
        return heads_of(self.blocks)

    @property
    def geo(self) -> Geometry:
        """The geometry of the volume."""
        return self.image.geo

    @cached_property
    def inline(self) -> NDArray[np.uint8]:
        """i_inline, with the flags put right that contradict what lies in the inode."""
        if self.sound is not None:
            return self.sound.facts["inline"]
        flags = self.head["i_inline"].copy()
        flags[_wrongly_inline(self)] &= np.uint8(~(F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) & 0xFF)
        flags[self.lost_dentry] |= np.uint8(F2FS_INLINE_DENTRY)
        flags[self.lost_xattr] |= np.uint8(F2FS_INLINE_XATTR)
        flags[self.no_xattr] &= np.uint8(~F2FS_INLINE_XATTR & 0xFF)
        return flags

    @property
    def advise(self) -> NDArray[np.uint8]:
        """i_advise."""
        return self.head["i_advise"] if self.sound is None else self.sound.facts["advise"]

    @cached_property
    def kind(self) -> NDArray[np.uint16]:
        """The file type bits of i_mode."""
        if self.sound is not None:
            return self.sound.facts["mode"] & S_IFMT
        return self.head["i_mode"] & S_IFMT

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Whether they are those of a type that there is."""
        return _KNOWN[self.kind >> 12]

    @cached_property
    def special(self) -> NDArray[np.bool_]:
        """Devices, fifos and sockets."""
        return _SPECIAL[self.kind >> 12]

    @cached_property
    def node_pointers(self) -> NDArray[np.uint32]:
        """i_nid, shape (n, 5)."""
        if self.sound is not None:
            return self.sound.facts["nids"]
        at = INODE_ADDR_OFFSET + 4 * self.geo.addrs_per_inode
        return np.ascontiguousarray(self.blocks[:, at : at + 20]).view("<u4")

    @cached_property
    def has_nodes(self) -> NDArray[np.bool_]:
        """Whether any of i_nid is not 0."""
        if self.sound is not None:
            return self.sound.facts["has_nodes"]
        return np.logical_or.reduce(self.node_pointers != 0, axis=1)

    @cached_property
    def has_attributes(self) -> NDArray[np.bool_]:
        """Whether there are attributes inside, and they are all that the inode has."""
        if self.sound is not None:
            return self.sound.facts["has_attributes"]
        head, end = self.head, INODE_ADDR_OFFSET // 4 + self.geo.addrs_per_inode
        has = (head["i_inline"] & F2FS_INLINE_XATTR != 0) & (head["i_xattr_nid"] == 0) & (self.inline_xattr > 6)
        rows = np.flatnonzero(has)
        words, start = self.blocks.view("<u4"), end - self.inline_xattr[rows]
        has[rows] = (words[rows, start] | words[rows, np.minimum(start + 6, end - 1)]) != 0
        return has


def heads_of(blocks: NDArray[np.uint8]) -> NDArray[np.void]:
    """The fixed fields of inodes, dtype HEAD."""
    return np.ascontiguousarray(blocks[:, :HEAD_BYTES]).view(HEAD)[:, 0]


def batch_of(
    image: Image,
    numbers: NDArray[np.int64],
    nid: NDArray[np.int64],
    blkaddr: NDArray[np.int64],
    blocks: NDArray[np.uint8],
) -> InodeBatch:
    """Inodes from their blocks; `numbers` are their rows in the table."""
    geo = image.geo
    sound = sound_inodes(image, blocks)
    if sound is not None:
        return sound_batch(image, numbers, nid, blkaddr, blocks, sound)
    head = heads_of(blocks)
    words = geo.addrs_per_inode
    has_extra = (head["i_inline"] & F2FS_EXTRA_ATTR) != 0
    if not geo.feature & F2FS_FEATURE_EXTRA_ATTR:  # then the flag is wrong, and the bytes that follow are content
        has_extra[:] = False
    lost_extra = _lost_extra(geo, head, blocks, has_extra)
    has_extra |= lost_extra
    extra = np.where(has_extra, head["i_extra_isize"], 0).astype(np.int64)
    odd = has_extra & ~np.isin(extra, EXTRA_SIZES) if has_extra.any() else has_extra
    if odd.any():  # a wrong size shifts all that follows; what the volume's other inodes have is the better guess
        usual = extra[has_extra & ~odd]
        extra[odd] = int(np.bincount(usual).argmax()) if usual.size else InodeExtra.size
    lost_xattr = _lost_inline_xattr(image, head, blocks, extra)
    no_xattr = _no_inline_xattr(image, head, blocks, extra)
    inline = (head["i_inline"] & F2FS_INLINE_XATTR != 0) & ~no_xattr
    inline |= (head["i_inline"] & F2FS_INLINE_DENTRY != 0) | lost_xattr
    flexible = np.full(nid.size, -1, np.int64)
    if geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR:
        flexible = np.where(extra >= 4, _flexible_words(image, head, blocks, extra), flexible)
    at = INODE_ADDR_OFFSET + extra + 4 * DEF_INLINE_RESERVED_SIZE
    empty = _without_blocks(head, blocks, extra)  # directories that may have lost the flag of entries inside
    _, size = _rooms(geo, inline | empty, flexible, extra)
    for row in np.flatnonzero(empty).tolist():
        empty[row] = _has_itself(geo, blocks[row], int(nid[row]), int(at[row]), int(size[row]))
    xattr, size = _rooms(geo, inline | empty, flexible, extra)
    cluster, marked = cluster_logs(image, head, nid, blocks, extra, np.maximum(words - extra // 4 - xattr, 0))
    return InodeBatch(
        image, numbers, nid, blkaddr, blocks, extra, xattr, at, size, lost_extra, lost_xattr, no_xattr, empty, cluster,
        marked,
    )  # fmt: skip


def _rooms(
    geo: Geometry, inline: NDArray[np.bool_], flexible: NDArray[np.int64], extra: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Words kept for attributes, and bytes that fit inline: where `inline` says so, or by their own number, if any."""
    words = geo.addrs_per_inode
    xattr = np.where(flexible < 0, np.where(inline, DEFAULT_INLINE_XATTR_ADDRS, 0), flexible).astype(np.int64)
    xattr = np.minimum(xattr, np.maximum(words - extra // 4 - 1, 0))
    return xattr, np.maximum(4 * (words - extra // 4 - xattr - DEF_INLINE_RESERVED_SIZE), 0)


def sound_batch(
    image: Image,
    rows: NDArray[np.int64],
    nid: NDArray[np.int64],
    blkaddr: NDArray[np.int64],
    blocks: NDArray[np.uint8],
    sound: Sound,
) -> InodeBatch:
    """Inodes of which all is known."""
    extra, xattr, at, size = (sound.facts[name] for name in PLACES)
    none = np.zeros(nid.size, np.bool_)
    unpacked = np.zeros(nid.size, np.int64)
    return InodeBatch(
        image, rows, nid, blkaddr, blocks, extra, xattr, at, size, none, none, none, none, unpacked, none, sound
    )


def _lost_extra(
    geo: Geometry, head: NDArray[np.void], blocks: NDArray[np.uint8], has_extra: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Inodes that have extra attributes, as most others do, but not the flag: a right size, and no addresses.

    Without extra attributes an inode begins with addresses, or with a 0 where content is inside.  With
    flexible_inline_xattr there is no inode without them; see sanity_check_inode() in fs/f2fs/inode.c.
    """
    lost = np.zeros(has_extra.size, np.bool_)
    others = 2 * np.count_nonzero(has_extra) >= has_extra.size - 1
    if not geo.feature & F2FS_FEATURE_EXTRA_ATTR or not others:
        return lost
    alias = head["i_flags"] & np.uint32(F2FS_DEVICE_ALIAS_FL) != 0  # mkfs.f2fs writes a size, and no flag
    likely = ~has_extra & ~alias & np.isin(head["i_extra_isize"], EXTRA_SIZES)
    if geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR:
        return likely
    rows = np.flatnonzero(likely)
    if rows.size:
        at, count = INODE_ADDR_OFFSET // 4, InodeExtra.size // 4
        words = blocks.view("<u4")[rows, at : at + count].astype(np.int64)
        within = np.arange(count) < head["i_extra_isize"][rows, None] // 4
        no_address = (words != 0) & ~geo.in_main(words) & (words < COMPRESS_ADDR)
        lost[rows] = (no_address & within).any(axis=1)
    return lost


def max_inline_xattr(geo: Geometry) -> int:
    """Words that attributes inside an inode may have; see MAX_INLINE_XATTR_SIZE in fs/f2fs/xattr.h."""
    return geo.addrs_per_inode - EXTRA_SIZES[-1] // 4 - DEF_INLINE_RESERVED_SIZE - MIN_INLINE_DENTRY_SIZE // 4


def _flexible_words(
    image: Image, head: NDArray[np.void], blocks: NDArray[np.uint8], extra: NDArray[np.int64]
) -> NDArray[np.int64]:
    """i_inline_xattr_size; that of most inodes where it is impossible, or contradicts what lies in the inode.

    The header of attributes may lie elsewhere, or addresses where attributes would.  Any size is legal that holds the
    header, and without the flag of attributes a smaller one: a mount may have had another.
    """
    geo = image.geo
    said, most = head["i_inline_xattr_size"].astype(np.int64), max_inline_xattr(geo)
    flagged = (head["i_inline"] & F2FS_INLINE_XATTR != 0) & (extra >= 4)
    small = flagged & (said < MIN_INLINE_XATTR)
    possible = said[(extra >= 4) & (said <= most) & ~small]
    if not possible.size and not small.any():
        return said
    usual = int(np.bincount(possible).argmax()) if possible.size else DEFAULT_INLINE_XATTR_ADDRS
    end = INODE_ADDR_OFFSET // 4 + geo.addrs_per_inode
    words, rows = blocks.view("<u4"), np.arange(said.size)
    stands = words[rows, end - np.minimum(said, most)] == F2FS_XATTR_MAGIC
    shifted = (words[:, end - usual] == F2FS_XATTR_MAGIC) & ~stands & (head["i_inline"] & F2FS_INLINE_XATTR != 0)
    others = (head["i_inline"] & F2FS_INLINE_XATTR != 0) & (extra >= 4) & (said != usual)
    doubted = others & ~stands & (said <= most)
    for row in np.flatnonzero(doubted).tolist():
        room = words[row, end - max(int(said[row]), usual) : end].astype(np.int64)
        shifted[row] |= bool(
            said[row] > usual and room.any() and (geo.in_main(room) | (room >= COMPRESS_ADDR) | (room == 0)).all()
        )
    words_of = np.where((said > most) | shifted, usual, said)
    room = usual if usual >= MIN_INLINE_XATTR else DEFAULT_INLINE_XATTR_ADDRS
    for row in np.flatnonzero(small & ~shifted).tolist():
        inside = words[row, end - room : end - int(said[row])]
        if inside[0] == F2FS_XATTR_MAGIC or not inside.any():  # else something is there, and the flag is wrong
            words_of[row] = room
    return words_of


def _lost_inline_xattr(
    image: Image, head: NDArray[np.void], blocks: NDArray[np.uint8], extra: NDArray[np.int64]
) -> NDArray[Any]:
    """Inodes that have inline attributes, or a hole of just that size before their nodes, but not the flag.

    Without the flag the addresses in nodes would stand for other blocks of the file, and attributes behind the end
    of a file inside its inode for bytes of it.  Any file may have such a hole: it counts where the last block would
    lie behind the end of the file, and with the flag does not.
    """
    geo = image.geo
    without = head["i_inline"] & F2FS_INLINE_XATTR == 0
    rows = np.flatnonzero(without)
    if not rows.size:
        return without
    end = INODE_ADDR_OFFSET // 4 + geo.addrs_per_inode
    if geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR:  # a size says where they begin, whatever the flag says
        said = _flexible_words(image, head, blocks, extra)[rows]
        fits = (said > 0) & (said < geo.addrs_per_inode - extra[rows] // 4)
        without[rows] = fits & (blocks.view("<u4")[rows, end - np.where(fits, said, 1)] == F2FS_XATTR_MAGIC)
        return without
    begin = end - DEFAULT_INLINE_XATTR_ADDRS
    words = blocks.view("<u4")[rows, begin - 1 : end + 5]
    room = words[:, 1:-5]
    hole = (words[:, 0] != 0) & words[:, -5:].any(axis=1)
    hole[hole] = ~room[hole].any(axis=1)
    hole &= head["i_inline"][rows] & F2FS_INLINE_DENTRY == 0  # entries inside leave the room free, flag or not
    for i in np.flatnonzero(hole).tolist():
        row = int(rows[i])
        most = -(-int(head["i_size"][row]) // geo.block_size)
        last = _last_in_nodes(image, words[i, -5:].tolist(), geo.addrs_per_inode - int(extra[row]) // 4)
        hole[i] = most <= last < most + DEFAULT_INLINE_XATTR_ADDRS
    content = head["i_inline"][rows] & F2FS_INLINE_DATA != 0
    before_room = geo.addrs_per_inode - DEFAULT_INLINE_XATTR_ADDRS - DEF_INLINE_RESERVED_SIZE - extra[rows] // 4
    content &= head["i_size"][rows] > (4 * before_room).astype(np.uint64)
    content &= blocks.view("<u4")[rows, INODE_ADDR_OFFSET // 4 + extra[rows] // 4] == 0  # else an address
    without[rows] = ((room[:, 0] == F2FS_XATTR_MAGIC) & ~content) | hole
    return without


def _no_inline_xattr(
    image: Image, head: NDArray[np.void], blocks: NDArray[np.uint8], extra: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Inodes with the flag of inline attributes, and something else where these would lie: addresses, content that
    would not fit, or nothing while the attributes begin in their node.
    """
    geo = image.geo
    wrong = head["i_inline"] & F2FS_INLINE_XATTR != 0
    end = INODE_ADDR_OFFSET // 4 + geo.addrs_per_inode
    flexible = geo.feature & F2FS_FEATURE_FLEXIBLE_INLINE_XATTR
    said = head["i_inline_xattr_size"].astype(np.int64) if flexible else np.full(wrong.size, DEFAULT_INLINE_XATTR_ADDRS)
    wrong &= said < geo.addrs_per_inode - extra // 4
    rows = np.flatnonzero(wrong)
    words = blocks.view("<u4")
    rows = rows[words[rows, end - np.maximum(said[rows], 1)] != F2FS_XATTR_MAGIC]
    doubted = head["i_xattr_nid"][rows] != 0
    if not flexible:
        doubted |= words[rows, end - DEFAULT_INLINE_XATTR_ADDRS : end].any(axis=1)
    rows = rows[doubted]
    wrong[:] = False
    for row in rows.tolist():
        room = words[row, end - int(said[row]) : end].astype(np.int64)
        wrong[row] = _begins_in_node(image, int(head["i_xattr_nid"][row]))
        if wrong[row] or flexible or not room.any():
            continue
        inline = int(head["i_inline"][row])
        if inline & F2FS_INLINE_DATA:
            without = 4 * (geo.addrs_per_inode - int(extra[row]) // 4 - DEF_INLINE_RESERVED_SIZE)
            wrong[row] = without - 4 * DEFAULT_INLINE_XATTR_ADDRS < int(head["i_size"][row]) <= without
        elif not inline & F2FS_INLINE_DENTRY:
            wrong[row] = bool((geo.in_main(room) | (room >= COMPRESS_ADDR) | (room == 0)).all())
    return wrong


def _begins_in_node(image: Image, nid: int) -> bool:
    """Whether a node begins with the header of attributes."""
    if not 0 < nid < image.geo.max_nid:
        return False
    blkaddr = int(image.nat.lookup([nid])["block_addr"][0])
    return image.geo.in_main(blkaddr) and int(image.block(blkaddr)[:4].view("<u4")[0]) == F2FS_XATTR_MAGIC


def _without_blocks(head: NDArray[np.void], blocks: NDArray[np.uint8], extra: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Directories without entries inside, by their flags, and without a first block."""
    found = (head["i_mode"] & S_IFMT == stat.S_IFDIR) & (head["i_inline"] & F2FS_INLINE_DENTRY == 0)
    rows = np.flatnonzero(found)
    found[rows] = blocks.view("<u4")[rows, (INODE_ADDR_OFFSET + extra[rows]) // 4] == 0
    return found


def _last_in_nodes(image: Image, nids: list[int], first: int) -> int:
    """The last file block that nodes map, of which the first stands for `first`; -1 where they map none."""
    per = image.geo.addrs_per_block
    for nid, branch in reversed(list(zip(nids, branches(per), strict=True))):
        level, at = branch.level, first + per * branch.first
        found = -1
        while nid:
            blkaddr = int(image.nat.lookup([nid])["block_addr"][0]) if nid < image.geo.max_nid else 0
            words = image.block(blkaddr)[: 4 * per].view("<u4") if image.geo.in_main(blkaddr) else np.zeros(0, "<u4")
            used = np.flatnonzero(words)
            if not used.size:
                break
            at += int(used[-1]) * per**level
            found, nid, level = (-1, int(words[used[-1]]), level - 1) if level else (at, 0, 0)
        if found >= 0:
            return found
    return -1


def fill(table: Columns, batch: InodeBatch, nodes: NDArray[np.int64]) -> None:
    """Rows of the table of inodes, of dtype ROW, from a batch; `nodes` are their rows in the table of nodes."""
    table["node"] = nodes
    if batch.sound is not None:
        assert core is not None
        facts = batch.sound.facts
        core.spread(facts.view(np.uint8), FACTS.itemsize, len(facts), IN_FACTS, table.columns(IN_BOTH))
        return
    geo, head = batch.geo, batch.head
    for name in ("mode", "advise", "uid", "gid", "links", "size", "blocks", "xattr_nid", "flags", "pino",
                 "namelen", "dir_level"):  # fmt: skip
        table[name] = head[f"i_{name}"]
    table["inline"] = batch.inline
    table["depth"] = head["i_current_depth"]
    table["ext_fofs"], table["ext_blk"], table["ext_len"] = head["ext_fofs"], head["ext_blk"], head["ext_len"]
    table["projid"] = np.where(batch.extra >= 8, head["i_projid"], 0)
    table["inline_xattr"] = np.where(table["inline"] & F2FS_INLINE_XATTR, batch.inline_xattr, 0)
    compressed = batch.cluster > 0
    if geo.feature & F2FS_FEATURE_COMPRESSION:
        table["compr_blocks"] = np.where(compressed, head["i_compr_blocks"], 0)
    table["compressed"] = compressed
    cluster = 1 << batch.cluster
    table["cluster"] = cluster
    count = np.maximum(geo.addrs_per_inode - batch.extra // 4 - batch.inline_xattr, 0)
    table["start"] = batch.extra // 4
    table["count"] = count - count % cluster
    table["last"] = table["last_written"] = -1


def _wrongly_inline(batch: InodeBatch) -> NDArray[np.intp]:
    """Files and directories with the inline flag, and nodes or an address where inline content starts.

    They have more bytes than fit, too, or i_blocks speaks of data.
    """
    geo, head = batch.geo, batch.head
    data = (head["i_inline"] & F2FS_INLINE_DATA != 0) & (batch.kind != stat.S_IFDIR)
    dentries = (head["i_inline"] & F2FS_INLINE_DENTRY != 0) & (batch.kind == stat.S_IFDIR)
    counted = head["i_blocks"] > 1 + (head["i_xattr_nid"] != 0)
    rows = np.flatnonzero((data | dentries) & ((head["i_size"] > batch.inline_size.astype(np.uint64)) | counted))
    if rows.size:
        words = batch.blocks.view("<u4")
        first = words[rows, (INODE_ADDR_OFFSET + batch.extra[rows]) // 4].astype(np.int64)
        at = INODE_ADDR_OFFSET // 4 + geo.addrs_per_inode
        rows = rows[geo.in_main(first) | (first >= COMPRESS_ADDR) | words[rows, at : at + 5].any(axis=1)]
    wrong = [row for row in rows.tolist() if not (dentries[row] and _begins_with_itself(batch, row))]
    said_empty = head["i_inline"] & F2FS_DATA_EXIST == 0
    large = head["i_size"] > batch.inline_size.astype(np.uint64)
    wrong = [row for row in wrong if dentries[row] or said_empty[row] or large[row] or _only_addresses(batch, row)]
    if geo.feature & F2FS_FEATURE_DEVICE_ALIAS:
        released = (head["i_size"] == 0) & (head["i_inline"] & F2FS_PIN_FILE != 0)
        alias = (head["i_flags"] & np.uint32(F2FS_DEVICE_ALIAS_FL) != 0) & ((head["ext_len"] != 0) | released)
        wrong += np.flatnonzero(data & alias).tolist()
    return np.array(sorted(set(wrong)), np.intp)


def _only_addresses(batch: InodeBatch, row: int) -> bool:
    """Whether all that lies where content inside an inode would lie are addresses."""
    at = int(batch.inline_at[row])
    area = batch.blocks[row, at : at + int(batch.inline_size[row])].view("<u4").astype(np.int64)
    return bool((batch.geo.in_main(area) | (area == 0) | (area >= COMPRESS_ADDR)).all())


def _begins_with_itself(batch: InodeBatch, row: int) -> bool:
    """Whether the first entry inside a directory is `.`, and leads to it: whatever else is wrong, entries are there."""
    at, size = int(batch.inline_at[row]), int(batch.inline_size[row])
    return _has_itself(batch.geo, batch.blocks[row], int(batch.nid[row]), at, size)


def _has_itself(geo: Geometry, block: NDArray[np.uint8], nid: int, at: int, size: int) -> bool:
    if size <= MIN_INLINE_DENTRIES or at + size > geo.block_size:
        return False
    entry = next(iter(DentryArea(block[at : at + size].copy()).entries()), None)
    return entry is not None and entry.name == b"." and entry.ino == nid


def casefolded(geo: Geometry, table: Columns) -> NDArray[np.bool_]:
    """Directories whose names are casefolded."""
    if not geo.feature & F2FS_FEATURE_CASEFOLD:
        return np.zeros(len(table), np.bool_)
    return (table["flags"] & F2FS_CASEFOLD_FL) != 0


def maps_blocks(table: Columns) -> NDArray[np.bool_]:
    """Inodes that map blocks.  One without a known type counts as a file, as it may have been one."""
    return ~_SPECIAL[table["mode"] >> 12] & (table["inline"] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) == 0)


class NameHashes:
    """Hashes of the names that inodes remember: collected by length, hashed many at a time."""

    def __init__(self) -> None:
        self._parts: dict[int, list[tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]]] = {}
        self._bytes = 0

    def add(self, batch: InodeBatch, table: Columns) -> None:
        """Add the names of a batch; `table` gets hashes once there are many."""
        if batch.sound is not None:  # they came with all else
            return
        lengths = np.minimum(batch.head["i_namelen"], F2FS_NAME_LEN).astype(np.int64)
        if core is not None:
            named = np.flatnonzero(lengths)
            found = np.empty(named.size, np.uint32)
            core.name_hashes(batch.blocks, named * batch.geo.block_size + _NAME_AT, lengths[named], found)
            table["name_hash"][batch.rows[named]] = found
            return
        pieces = (lengths + 15) // 16
        for count in np.flatnonzero(np.bincount(pieces)).tolist():
            if not count:
                continue
            which = np.flatnonzero(pieces == count)
            wide = np.zeros((which.size, 16 * count), np.uint8)
            taken = min(16 * count, F2FS_NAME_LEN)
            wide[:, :taken] = batch.head["i_name"][which, :taken]
            words = wide.view(np.uint64)
            words &= bytes_before(lengths[which], words.shape[1])
            self._parts.setdefault(count, []).append((batch.rows[which], wide, lengths[which]))
            self._bytes += wide.size
        if self._bytes > NAMES_HELD:
            self.flush(table)

    def flush(self, table: Columns) -> None:
        """Write the hashes of what is collected into the table of inodes."""
        for parts in self._parts.values():
            rows, names, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
            table["name_hash"][rows] = dentry_hashes_padded(names, lengths)
        self._parts.clear()
        self._bytes = 0
