"""The first blocks of the main area: root directory, quota files, lost+found, aliases; and who owns which block.

`Contents` keeps what the checkpoint needs to know about them: how far each log is filled, NAT and SIT journal entries,
summaries.  The order in which files take blocks is that of mkfs.f2fs.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator
from typing import Any

from f2tools.codec import LayoutType
from f2tools.f2fs.layout.constants import (
    BLOCKS_PER_SEG,
    CURSEG_COLD_DATA,
    CURSEG_COLD_NODE,
    CURSEG_HOT_DATA,
    CURSEG_HOT_NODE,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_FEATURE_INODE_CRTIME,
    F2FS_FT_DIR,
    F2FS_FT_REG_FILE,
    F2FS_IMMUTABLE_FL,
    F2FS_NOATIME_FL,
    F2FS_PIN_FILE,
    F2FS_ROOT_INO,
    F2FS_SLOT_LEN,
    NR_CURSEG_TYPE,
)
from f2tools.f2fs.layout.dentry import DentryBlock, DirEntry
from f2tools.f2fs.layout.hashes import INODE_CHECKSUM_OFFSET, dentry_hash, inode_checksum
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.layout.node import Extent, Inode, InodeExtra, NodeFooter
from f2tools.f2fs.layout.quota import (
    QUOTA_BLOCK_SIZE,
    QUOTA_MAGICS,
    QUOTA_TREE_DEPTH,
    QUOTA_TREE_ROOT,
    QuotaEntry,
    QuotaHeader,
    QuotaInfo,
    QuotaLeafHeader,
)
from f2tools.f2fs.layout.sit import SIT_VBLOCK_MAP_SIZE, SIT_VBLOCKS_SHIFT, SitBlock, SitEntry
from f2tools.f2fs.layout.summary import Summary
from f2tools.mkfs.plan import VolumePlan, extra_isize

LOST_FOUND = b"lost+found"
MODE_ROOT, MODE_LOST_FOUND, MODE_QUOTA, MODE_ALIAS = 0o040755, 0o040700, 0o100600, 0o100700
QUOTA_FILE_BLOCKS = 2 + QUOTA_TREE_DEPTH  # header, a tree node per level, one leaf
QUOTA_FILE_SIZE = QUOTA_FILE_BLOCKS * QUOTA_BLOCK_SIZE
QUOTA_GRACE_SECONDS = 7 * 24 * 60 * 60
SIT_WRITE_BLOCKS = 4096


def packed(layout: LayoutType, **values: Any) -> bytes:
    """The bytes of a structure with these fields, the rest zero; arrays and nested structures are given as bytes.

    Without numpy, which takes longer to import than formatting takes.
    """
    kind: Any = layout
    form, names = kind.unpacker()
    unknown = values.keys() - set(names)
    if unknown:
        raise TypeError(f"{layout.__name__} has no field {', '.join(sorted(unknown))}")
    one_number = {item.name for item in kind.fields if item.count is None and hasattr(item.kind, "size")}
    nested = {item.name for item in kind.fields if isinstance(item.kind, LayoutType)}
    return form.pack(*(values.get(n, 0 if n in one_number and n not in nested else b"") for n in names))


def u32s(*values: int) -> bytes:
    """An array of __le32."""
    return struct.pack(f"<{len(values)}I", *values)


class Contents:
    """The files of a new volume; see the module's docstring."""

    def __init__(self, plan: VolumePlan) -> None:
        self.plan = plan
        self.geo = plan.geometry
        self.blocks: list[tuple[int, bytes]] = []  # (blkaddr, block)
        self.used = [0] * NR_CURSEG_TYPE
        self.summaries: list[list[bytes]] = [[] for _ in range(NR_CURSEG_TYPE)]
        self.nat_journal: list[tuple[int, bytes]] = []  # (nid, NAT entry)
        self._root()
        for kind, ino in enumerate(plan.qf_ino):
            if ino:
                self._quota_file(kind, ino)
        if plan.lost_found_ino:
            self._lost_found()
        for index, ino in enumerate(plan.alias_inos):
            if ino:
                self._alias(index, ino)

    @property
    def valid_node_count(self) -> int:
        return self.used[CURSEG_HOT_NODE] + self.used[CURSEG_COLD_NODE]

    @property
    def valid_block_count(self) -> int:
        return sum(self.used) + self.plan.aliased_segments * BLOCKS_PER_SEG

    def sit_entry(self, log: int) -> bytes:
        """The SIT entry of the segment where a log starts."""
        used = self.used[log]
        bits = ((1 << used) - 1) << (8 * SIT_VBLOCK_MAP_SIZE - used)  # most significant bit first
        return packed(
            SitEntry,
            vblocks=log << SIT_VBLOCKS_SHIFT | used,
            valid_map=bits.to_bytes(SIT_VBLOCK_MAP_SIZE, "big"),
        )

    def alias_sit_blocks(self) -> Iterator[tuple[int, bytes]]:
        """(blkaddr, blocks) of the SIT where aliased devices fill their segments, as runs of blocks."""
        per_block = self.geo.sit_entries_per_block
        full = packed(
            SitEntry,
            vblocks=CURSEG_COLD_DATA << SIT_VBLOCKS_SHIFT | BLOCKS_PER_SEG,
            valid_map=b"\xff" * SIT_VBLOCK_MAP_SIZE,
            mtime=self.plan.options.timestamp,
        )
        ranges = [
            (self.geo.segno(device.start_blkaddr), self.geo.segno(device.end_blkaddr + 1))
            for device in self.plan.devices
            if device.spec.alias
        ]
        touched = sorted({block for first, end in ranges for block in range(first // per_block, -(-end // per_block))})
        for run in _runs(touched):
            content = b"".join(self._sit_block(number, ranges, full) for number in run)
            yield self.geo.sit_blkaddr + run.start, content

    def _sit_block(self, number: int, ranges: list[tuple[int, int]], full: bytes) -> bytes:
        per_block = self.geo.sit_entries_per_block
        begin, end = number * per_block, (number + 1) * per_block
        entries = bytearray(SitBlock.at(self.geo.block_size).size)
        for first, last in ranges:
            low, high = max(first, begin), min(last, end)
            if low < high:
                at = (low - begin) * len(full)
                entries[at : at + (high - low) * len(full)] = full * (high - low)
        return bytes(entries)

    # ---- blocks ----

    def _take(self, log: int, nid: int, ofs_in_node: int = 0) -> int:
        """The next block of a log, owned by that node; its address."""
        blkaddr = self.geo.start_block(self.plan.cursegs[log]) + self.used[log]
        self.used[log] += 1
        self.summaries[log].append(packed(Summary, nid=nid, ofs_in_node=ofs_in_node))
        return blkaddr

    def _inode(self, log: int, blkaddr: int, ino: int, mode: int, addrs: list[int], **fields: Any) -> None:
        """Write an inode block and its NAT entry; see f2fs_init_inode() in f2fs_fs.h."""
        plan, feature, now = self.plan, self.plan.feature, self.plan.options.timestamp
        is_dir = stat.S_ISDIR(mode)
        words = b""
        inline = fields.pop("i_inline", 0)
        if feature & F2FS_FEATURE_EXTRA_ATTR:
            size = extra_isize(feature)
            crtime = now if feature & F2FS_FEATURE_INODE_CRTIME else 0
            # mkfs.f2fs drops this bit from the inode of an alias, whose addresses then start in the extra attributes.
            inline |= F2FS_EXTRA_ATTR
            words = packed(InodeExtra, i_extra_isize=size, i_crtime=crtime)[:size]
        values: dict[str, Any] = {
            "i_mode": mode,
            "i_inline": inline,
            "i_uid": plan.options.root_uid,
            "i_gid": plan.options.root_gid,
            "i_links": 2 if is_dir else 1,
            "i_size": self.geo.block_size,
            "i_blocks": 2,
            "i_atime": now,
            "i_ctime": now,
            "i_mtime": now,
            "i_current_depth": 1 if is_dir else 0,
            "i_addr": words + u32s(*addrs),
            "footer": packed(NodeFooter, nid=ino, ino=ino, cp_ver=1, next_blkaddr=blkaddr + 1),
        }
        block = bytearray(packed(Inode.at(self.geo.block_size), **(values | fields)))
        if feature & F2FS_FEATURE_INODE_CHKSUM:
            struct.pack_into("<I", block, INODE_CHECKSUM_OFFSET, inode_checksum(plan.options.uuid, block))
        self.blocks.append((blkaddr, bytes(block)))
        self.nat_journal.append((ino, packed(NatEntry, ino=ino, block_addr=blkaddr)))

    def _directory(self, ino: int, entries: list[tuple[bytes, int, int]]) -> int:
        """Write a directory of one block with (name, ino, file type) entries; its address."""
        layout: Any = DentryBlock.at(self.geo.block_size)
        block = bytearray(layout.size)
        first_entry, first_name = layout.offset_of("dentry"), layout.offset_of("filename")
        slot = 0
        for name, target, file_type in entries:
            entry = packed(DirEntry, hash_code=dentry_hash(name), ino=target, name_len=len(name), file_type=file_type)
            at = first_entry + slot * DirEntry.size
            block[at : at + len(entry)] = entry
            at = first_name + slot * F2FS_SLOT_LEN
            block[at : at + len(name)] = name
            for used in range(slot, slot + -(-len(name) // F2FS_SLOT_LEN)):
                block[used // 8] |= 1 << used % 8
                slot = used + 1
        blkaddr = self._take(CURSEG_HOT_DATA, ino)
        self.blocks.append((blkaddr, bytes(block)))
        return blkaddr

    # ---- files ----

    def _root(self) -> None:
        plan, ino = self.plan, F2FS_ROOT_INO
        entries = [(b".", ino, F2FS_FT_DIR), (b"..", ino, F2FS_FT_DIR)]
        if plan.lost_found_ino:
            entries.append((LOST_FOUND, plan.lost_found_ino, F2FS_FT_DIR))
        for device, alias_ino in zip(plan.devices, plan.alias_inos, strict=True):
            if device.spec.alias:
                entries.append((_name(device.spec.alias), alias_ino, F2FS_FT_REG_FILE))
        data = self._directory(ino, entries)
        node = self._take(CURSEG_HOT_NODE, ino)
        self._inode(CURSEG_HOT_NODE, node, ino, MODE_ROOT, [data], i_links=3 if plan.lost_found_ino else 2)

    def _lost_found(self) -> None:
        ino = self.plan.lost_found_ino
        node = self._take(CURSEG_HOT_NODE, ino)
        # mkfs.f2fs lets ".." name lost+found itself.
        data = self._directory(ino, [(b".", ino, F2FS_FT_DIR), (b"..", F2FS_ROOT_INO, F2FS_FT_DIR)])
        name = {"i_pino": F2FS_ROOT_INO, "i_namelen": len(LOST_FOUND), "i_name": LOST_FOUND}
        self._inode(CURSEG_HOT_NODE, node, ino, MODE_LOST_FOUND, [data], **name)

    def _quota_file(self, kind: int, ino: int) -> None:
        options = self.plan.options
        node = self._take(CURSEG_HOT_NODE, ino)
        content = self._quota_content(kind, (options.root_uid, options.root_gid, 0)[kind])
        size = self.geo.block_size
        addrs: list[int] = []
        for index, at in enumerate(range(0, len(content), size)):
            addrs.append(self._take(CURSEG_HOT_DATA, ino, index))
            self.blocks.append((addrs[-1], content[at : at + size].ljust(size, b"\0")))
        self._inode(
            CURSEG_HOT_NODE,
            node,
            ino,
            MODE_QUOTA,
            addrs,
            i_size=QUOTA_FILE_SIZE,
            i_blocks=1 + len(addrs),
            i_flags=F2FS_NOATIME_FL | F2FS_IMMUTABLE_FL,
        )

    def _quota_content(self, kind: int, owner: int) -> bytes:
        """A quota file with the use of one id: the root directory, lost+found and the aliases are its."""
        plan = self.plan
        inodes = 1 + bool(plan.lost_found_ino) + sum(1 for ino in plan.alias_inos if ino)
        blocks = 1 + bool(plan.lost_found_ino) + plan.aliased_segments * BLOCKS_PER_SEG
        leaf = QUOTA_TREE_ROOT + QUOTA_TREE_DEPTH
        content = bytearray(QUOTA_FILE_SIZE)
        info = packed(
            QuotaInfo,
            dqi_bgrace=QUOTA_GRACE_SECONDS,
            dqi_igrace=QUOTA_GRACE_SECONDS,
            dqi_blocks=QUOTA_FILE_BLOCKS,
            dqi_free_entry=leaf,
        )
        head = packed(QuotaHeader, dqh_magic=QUOTA_MAGICS[kind], dqh_version=1) + info
        content[: len(head)] = head
        # mkfs.f2fs always takes the path of id 0, where the kernel doesn't find the entry of another owner.
        for level, byte in enumerate(owner.to_bytes(QUOTA_TREE_DEPTH, "big")):
            at = (QUOTA_TREE_ROOT + level) * QUOTA_BLOCK_SIZE + 4 * byte
            content[at : at + 4] = u32s(QUOTA_TREE_ROOT + level + 1)
        entry = packed(QuotaEntry, dqb_id=owner, dqb_curinodes=inodes, dqb_curspace=blocks * self.geo.block_size)
        last = packed(QuotaLeafHeader, dqdh_entries=1) + entry
        content[leaf * QUOTA_BLOCK_SIZE : leaf * QUOTA_BLOCK_SIZE + len(last)] = last
        return bytes(content)

    def _alias(self, index: int, ino: int) -> None:
        """The alias of a whole device: one extent, no addresses."""
        device = self.plan.devices[index]
        name = _name(device.spec.alias or "")
        blocks = device.total_segments * BLOCKS_PER_SEG
        node = self._take(CURSEG_COLD_NODE, ino)
        self._inode(
            CURSEG_COLD_NODE,
            node,
            ino,
            MODE_ALIAS,
            [],
            i_inline=F2FS_PIN_FILE,
            i_flags=F2FS_DEVICE_ALIAS_FL,
            i_pino=F2FS_ROOT_INO,
            i_namelen=len(name),
            i_name=name,
            i_size=blocks * self.geo.block_size,
            i_blocks=blocks + 1,
            i_ext=packed(Extent, blk_addr=device.start_blkaddr, len=blocks),
        )


def _name(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _runs(numbers: list[int]) -> Iterator[range]:
    """Runs of adjacent numbers, none longer than what is written at once."""
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1 or at - start == SIT_WRITE_BLOCKS:
            yield range(numbers[start], numbers[at - 1] + 1)
            start = at
