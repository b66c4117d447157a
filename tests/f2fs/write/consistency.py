"""A cross-check of a whole volume under its checkpoint, in numpy, on nothing but the read-only engine.

Every table is held against what can be reached: NAT against the node trees, SIT bitmaps and SSA against the blocks
that the trees refer to, the checkpoint's counters against the sums, directories against the inodes, quota files
against what every owner has.  It shares no code with the writers, nor with fsck.f2fs, which is the other judge.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt, F2fsError, Where
from f2tools.f2fs.layout.casefold import casefold
from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    CP_DISABLED_FLAG,
    F2FS_COMPR_FL,
    F2FS_COMPRESS_RELEASED,
    F2FS_DATA_EXIST,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_FEATURE_COMPRESSION,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_FEATURE_RO,
    F2FS_ROOT_INO,
    LFS,
    MAX_COMPRESS_LOG_SIZE,
    MIN_COMPRESS_LOG_SIZE,
    NEW_ADDR,
    NR_CURSEG_DATA_TYPE,
    NR_CURSEG_TYPE,
    NULL_ADDR,
    OFFSET_BIT_SHIFT,
    SUM_TYPE_DATA,
    SUM_TYPE_NODE,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.hashes import dentry_hash, inode_checksum
from f2tools.f2fs.layout.node import NODE_FOOTER_SIZE
from f2tools.f2fs.layout.xattr import F2FS_XATTR_MAGIC
from f2tools.f2fs.volume.checkpoint import read_nat_bits
from f2tools.f2fs.volume.dir import Dentry, bucket_blocks
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.node import footers_of
from f2tools.f2fs.volume.quota import quota_inos, read_quotas
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.volume.xattr import parse_xattrs, raw_xattrs

MOST = 60  # findings shown of one volume
READ_AT_ONCE = 8192
RESERVED_NIDS = (1, 2)
FILE_TYPES = {"file": 1, "dir": 2, "char": 3, "block": 4, "fifo": 5, "socket": 6, "symlink": 7}
HOLDERS = ("file", "dir", "symlink")  # whose i_addr are addresses


def problems(volume: Volume) -> list[str]:
    """All that does not fit together, in words; nothing of a sound volume."""
    return _Check(volume).run()


def assert_consistent(volume: Volume, context: str = "") -> None:
    """Fail with what does not fit together."""
    found = problems(volume)
    assert not found, f"{context}: the volume is not consistent:\n" + "\n".join(found[:MOST])


class _Check:
    """One volume; `noted` gathers the findings."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self.geo = volume.geo
        self.noted: list[str] = []
        self.orphans = set(volume.orphans().tolist())
        self.inodes: dict[int, Inode] = {}
        self.node_count: Counter[int] = Counter()
        self.data_count: Counter[int] = Counter()
        self.blocks_of: dict[int, int] = {}  # computed i_blocks

    def note(self, text: str) -> None:
        if len(self.noted) < 10 * MOST:
            self.noted.append(text)

    def run(self) -> list[str]:
        self.note_table_problems()
        self.read_nodes()
        self.walk_node_trees()
        self.gather_blocks()
        self.check_segments()
        self.check_summaries()
        self.check_cursegs()
        self.check_inodes()
        self.check_counters()
        self.check_nat_bits()
        self.check_names()
        self.check_quotas()
        return self.noted

    def note_table_problems(self) -> None:
        volume = self.volume
        for text in (*volume.nat.problems, *volume.sit.problems, *volume.summaries.journals.problems):
            self.note(text)

    # -- nodes --------------------------------------------------------------------------------------------------

    def read_nodes(self) -> None:
        """The block of every nid in use, and what the NAT says of it."""
        geo, volume = self.geo, self.volume
        entries = volume.nat.entries()
        used = volume.nat.used()
        for nid in RESERVED_NIDS:
            if entries["block_addr"][nid] != 1:
                self.note(f"NAT entry {nid} has the address {entries['block_addr'][nid]:#x}, not 1")
        if entries["block_addr"][0]:
            self.note("NAT entry 0 is in use")
        used = used[used > max(RESERVED_NIDS)]
        addrs = entries["block_addr"][used].astype(np.int64)
        outside = ~geo.in_main(addrs)
        for nid, addr in zip(used[outside].tolist(), addrs[outside].tolist(), strict=True):
            self.note(f"nid {nid} has the address {addr:#x}, outside the main area")
        used, addrs = used[~outside], addrs[~outside]
        self.nids, self.node_addrs = used, addrs
        self.versions = entries["version"][used]
        self.nat_inos = entries["ino"][used].astype(np.int64)
        self.row = np.full(geo.max_nid, -1, np.int64)
        self.row[used] = np.arange(used.size)
        self.blocks = np.zeros((used.size, geo.block_size), np.uint8)
        for at in range(0, used.size, READ_AT_ONCE):
            piece = slice(at, at + READ_AT_ONCE)
            self.blocks[piece] = volume.device.read_blocks(addrs[piece], geo.block_size)
        self.footers = footers_of(self.blocks)
        for i in np.flatnonzero((self.footers["nid"] != used) | (self.footers["ino"] != self.nat_inos)).tolist():
            footer = self.footers[i]
            self.note(
                f"nid {used[i]} of inode {self.nat_inos[i]} at {addrs[i]:#x}: "
                f"the footer names nid {footer['nid']} of inode {footer['ino']}"
            )

    def walk_node_trees(self) -> None:
        """Follow the nids of every inode; each node is reached once, at the offset that its footer states."""
        per = self.geo.addrs_per_block
        self.reached = np.zeros(self.nids.size, np.int64)
        self.direct: list[tuple[int, int, int]] = []  # (ino, row, offset of the node in the file)
        for i in np.flatnonzero(self.nat_inos == self.nids).tolist():
            ino = int(self.nids[i])
            inode = Inode(self.geo, self.blocks[i], ino, int(self.node_addrs[i]))
            self.inodes[ino] = inode
            self._visit(ino, ino, 0)
            if inode.i_xattr_nid:
                self._visit(ino, inode.i_xattr_nid, XATTR_NODE_OFFSET)
            for offset, level, nid in zip(
                (1, 2, 3, 4 + per, 5 + 2 * per), (0, 0, 1, 1, 2), inode.nids.tolist(), strict=True
            ):
                if nid:
                    self._descend(ino, nid, offset, level)
        for i in np.flatnonzero(self.reached != 1).tolist():
            self.note(f"nid {self.nids[i]} of inode {self.nat_inos[i]} is reached {self.reached[i]} times")

    def _visit(self, ino: int, nid: int, offset: int) -> int | None:
        row = int(self.row[nid]) if 0 < nid < self.geo.max_nid else -1
        if row < 0:
            self.note(f"inode {ino} has a node {nid}, which the NAT doesn't have")
            return None
        self.reached[row] += 1
        self.node_count[ino] += 1
        if self.nat_inos[row] != ino:
            self.note(f"inode {ino} has the node {nid} of inode {self.nat_inos[row]}")
            return None
        found = int(self.footers["flag"][row]) >> OFFSET_BIT_SHIFT
        if found != offset:
            self.note(f"nid {nid} of inode {ino} is at offset {offset} in its file, the footer says {found}")
        return row if self.reached[row] == 1 else None

    def _descend(self, ino: int, nid: int, offset: int, level: int) -> None:
        row = self._visit(ino, nid, offset)
        if row is None:
            return
        if level == 0:
            self.direct.append((ino, row, offset))
            return
        per = self.geo.addrs_per_block
        children = self.blocks[row, : 4 * per].view("<u4")
        step = 1 if level == 1 else per + 1
        if not children.any():
            self.note(f"nid {nid} of inode {ino} is an indirect node without children")
        for k in np.flatnonzero(children).tolist():
            self._descend(ino, int(children[k]), offset + 1 + k * step, level - 1)

    # -- blocks -------------------------------------------------------------------------------------------------

    def gather_blocks(self) -> None:
        """All references to blocks of the main area: address, owner's nid, version and offset, data or node."""
        nodes = (self.node_addrs, self.nids, np.zeros(self.nids.size, np.int64), np.zeros(self.nids.size, np.int64))
        parts: list[tuple[Any, ...]] = []
        self.reserved: Counter[int] = Counter()  # NEW_ADDR by inode
        self.clusters: Counter[int] = Counter()  # COMPRESS_ADDR by inode
        self.saved: Counter[int] = Counter()
        for ino, inode in self.inodes.items():
            if inode.i_flags & F2FS_DEVICE_ALIAS_FL:
                self.note(f"inode {ino} is a device alias, which this check knows nothing of")
            elif inode.kind in HOLDERS and not inode.has_inline_data and not inode.has_inline_dentry:
                self._addresses(parts, ino, int(self.row[ino]), inode.addrs)
        for ino, row, _ in self.direct:
            inode = self.inodes[ino]
            count = inode.addrs_per_block
            self._addresses(parts, ino, row, self.blocks[row, : 4 * count].view("<u4"))
            if self.blocks[row, 4 * count : -NODE_FOOTER_SIZE].any():
                self.note(f"nid {self.nids[row]} of inode {ino} has addresses beyond the last whole cluster")
        joined = [np.concatenate([p[k] for p in parts]) if parts else np.zeros(0, np.int64) for k in range(4)]
        self.addr = np.concatenate([nodes[0], joined[0]])
        self.owner = np.concatenate([nodes[1], joined[1]])
        self.version = np.concatenate([nodes[2], joined[2]])
        self.offset = np.concatenate([nodes[3], joined[3]])
        self.is_node = np.arange(self.addr.size) < self.nids.size
        outside = ~self.geo.in_main(self.addr)
        for i in np.flatnonzero(outside).tolist():
            self.note(
                f"nid {self.owner[i]} has the address {self.addr[i]:#x} at {self.offset[i]}, outside the main area"
            )
        for name in ("addr", "owner", "version", "offset", "is_node"):
            setattr(self, name, getattr(self, name)[~outside])
        order = np.argsort(self.addr, kind="stable")
        twice = np.flatnonzero(np.diff(self.addr[order]) == 0)
        for i in twice.tolist():
            a, b = order[i], order[i + 1]
            self.note(f"block {self.addr[a]:#x} belongs to nid {self.owner[a]} and to nid {self.owner[b]}")

    def _addresses(self, parts: list[tuple[Any, ...]], ino: int, row: int, words: NDArray[Any]) -> None:
        if not words.any():
            return
        addrs = words.astype(np.int64)
        mapped = np.flatnonzero((addrs != NULL_ADDR) & (addrs != NEW_ADDR) & (addrs != COMPRESS_ADDR))
        self.reserved[ino] += int(np.count_nonzero(addrs == NEW_ADDR))
        self.data_count[ino] += mapped.size
        heads = np.flatnonzero(addrs == COMPRESS_ADDR)
        if heads.size:
            self._note_clusters(ino, addrs, heads)
        nid = np.full(mapped.size, self.nids[row])
        parts.append((addrs[mapped], nid, np.full(mapped.size, self.versions[row], np.int64), mapped))

    def _note_clusters(self, ino: int, addrs: NDArray[Any], heads: NDArray[Any]) -> None:
        inode = self.inodes[ino]
        size = inode.cluster_size
        self.clusters[ino] += heads.size
        if size == 1 or (heads % size).any():
            self.note(f"inode {ino} has COMPRESS_ADDR elsewhere than at the head of a cluster")
            return
        for head in heads.tolist():
            body = addrs[head + 1 : head + size]
            used = int(np.count_nonzero((body != NULL_ADDR) & (body != NEW_ADDR)))
            self.saved[ino] += size - used if not inode.i_inline & F2FS_COMPRESS_RELEASED else 0

    # -- segments -----------------------------------------------------------------------------------------------

    def check_segments(self) -> None:
        """SIT: the bitmap is exactly what is reached, the count its population, the type that of the content."""
        geo, sit = self.geo, self.volume.sit
        reached = np.zeros((len(sit), geo.blocks_per_seg), np.bool_)
        segno, offset = np.divmod(self.addr - geo.main_blkaddr, geo.blocks_per_seg)
        reached[segno, offset] = True
        marked = np.unpackbits(sit.valid_map(), axis=1).astype(np.bool_)
        for seg, off in np.argwhere(reached & ~marked)[:MOST].tolist():
            self.note(f"block {geo.start_block(seg) + off:#x} is in use, and free in the SIT (segment {seg})")
        for seg, off in np.argwhere(~reached & marked)[:MOST].tolist():
            self.note(
                f"block {geo.start_block(seg) + off:#x} is in use for the SIT (segment {seg}) and belongs to nobody"
            )
        for seg in np.flatnonzero(marked.sum(axis=1) != sit.vblocks).tolist():
            self.note(f"segment {seg}: {sit.vblocks[seg]} valid blocks, {marked[seg].sum()} in the bitmap")
        holds_node = np.zeros(len(sit), np.bool_)
        holds_node[segno[self.is_node]] = True
        holds_data = np.zeros(len(sit), np.bool_)
        holds_data[segno[~self.is_node]] = True
        for seg in np.flatnonzero(holds_node & (sit.types < NR_CURSEG_DATA_TYPE)).tolist():
            self.note(f"segment {seg} of type {sit.types[seg]} holds nodes")
        for seg in np.flatnonzero(holds_data & (sit.types >= NR_CURSEG_DATA_TYPE)).tolist():
            self.note(f"segment {seg} of type {sit.types[seg]} holds data")
        for seg in np.flatnonzero(sit.types >= NR_CURSEG_TYPE).tolist():
            self.note(f"segment {seg} has the type {sit.types[seg]}")
        self.segno, self.in_segment = segno, offset

    def check_summaries(self) -> None:
        """SSA: every valid block's entry names its owner."""
        volume = self.volume
        if self.geo.feature & F2FS_FEATURE_RO or not self.addr.size:
            return
        segnos = np.unique(self.segno)
        rows = volume.summaries.ssa(segnos)
        entries = rows["entries"][:, : self.geo.blocks_per_seg].copy()
        types = rows["footer"]["entry_type"].copy()
        for curseg in volume.summaries.cursegs:
            at = np.flatnonzero(segnos == curseg.segno)
            entries[at] = curseg.entries
            types[at] = curseg.entry_type
        place = np.searchsorted(segnos, self.segno)
        entry = entries[place, self.in_segment]
        expected_type = np.where(self.is_node, SUM_TYPE_NODE, SUM_TYPE_DATA)
        for i in np.flatnonzero(types[place] != expected_type)[:MOST].tolist():
            self.note(
                f"segment {self.segno[i]}: summary type {types[place][i]}, its block {self.addr[i]:#x} is otherwise"
            )
        wrong = entry["nid"] != self.owner
        data = ~self.is_node
        wrong |= data & ((entry["ofs_in_node"] != self.offset) | (entry["version"] != self.version))
        for i in np.flatnonzero(wrong)[:MOST].tolist():
            nid, version, offset = entry[i].item()
            self.note(
                f"block {self.addr[i]:#x}: the summary says nid {nid} version {version} offset {offset}, "
                f"it belongs to nid {self.owner[i]} version {self.version[i]} offset {self.offset[i]}"
            )

    def check_cursegs(self) -> None:
        """The open logs: type, distinct segments, and nothing valid where they will append."""
        geo, sit, pack = self.geo, self.volume.sit, self.volume.pack
        kinds = (0, 3) if geo.feature & F2FS_FEATURE_RO else range(NR_CURSEG_TYPE)
        marked = np.unpackbits(sit.valid_map(), axis=1).astype(np.bool_)
        seen: dict[int, int] = {}
        for kind in kinds:
            segno, blkoff, alloc_type = pack.curseg(kind)
            if segno in seen:
                self.note(f"logs {seen[segno]} and {kind} are both in segment {segno}")
            seen[segno] = kind
            if sit.types[segno] != kind and marked[segno].any():
                self.note(f"log {kind} is in segment {segno} of type {sit.types[segno]}")
            if alloc_type == LFS and marked[segno, blkoff:].any():
                self.note(f"log {kind} in segment {segno}: valid blocks at or after the next one, {blkoff}")
            elif blkoff < geo.blocks_per_seg and marked[segno, blkoff]:
                self.note(f"log {kind} in segment {segno}: the next block {blkoff} is valid")
        self.open_segments = set(seen)

    # -- inodes and counters ------------------------------------------------------------------------------------

    def check_inodes(self) -> None:
        """i_blocks, i_compr_blocks, the cached extent, checksums, inline flags, attributes."""
        for ino, inode in self.inodes.items():
            count = self.node_count[ino] + self.data_count[ino] + self.reserved[ino]
            if not inode.i_inline & F2FS_COMPRESS_RELEASED:
                count += self.clusters[ino]
            self.blocks_of[ino] = count
            if inode.i_blocks != count:
                self.note(f"inode {ino} ({inode.kind}): i_blocks {inode.i_blocks}, in use are {count}")
            if inode.compressed and inode.extra["i_compr_blocks"] != self.saved[ino]:
                self.note(f"inode {ino}: i_compr_blocks {inode.extra['i_compr_blocks']}, saved are {self.saved[ino]}")
            for text in self._inode_problems(inode):
                self.note(f"inode {ino} ({inode.kind}): {text}")

    def _inode_problems(self, inode: Inode) -> Iterator[str]:
        if inode.kind == "unknown":
            yield f"mode {inode.i_mode:o}"
            return
        if self.geo.feature & F2FS_FEATURE_INODE_CHKSUM and "i_inode_checksum" in inode.extra:
            wanted = inode_checksum(bytes(self.volume.sb.uuid), inode.block.tobytes())
            if inode.extra["i_inode_checksum"] != wanted:
                yield f"checksum {inode.extra['i_inode_checksum']:#x}, must be {wanted:#x}"
        if self.geo.feature & F2FS_FEATURE_COMPRESSION and inode.i_flags & F2FS_COMPR_FL:
            log = inode.extra.get("i_log_cluster_size")  # sanity_check_compress_inode() asks it of directories too
            if log is not None and not MIN_COMPRESS_LOG_SIZE <= log <= MAX_COMPRESS_LOG_SIZE:
                yield f"i_log_cluster_size is {log}"
        for name in ("i_atime_nsec", "i_ctime_nsec", "i_mtime_nsec"):
            if getattr(inode, name) >= 10**9:
                yield f"{name} {getattr(inode, name)}"
        yield from self._inline_problems(inode)
        fofs, blkaddr, count = inode.cached_extent
        if count and inode.kind == "file" and not inode.compressed:
            if inode.has_inline_data:
                yield "a cached extent beside inline data"
            else:
                found = self.volume.data.addresses(inode, fofs, count)
                if not np.array_equal(found, np.arange(blkaddr, blkaddr + count, dtype=np.uint32)):
                    yield f"the cached extent {fofs}+{count} at {blkaddr:#x} is not in the file"
        try:
            area = raw_xattrs(self.volume.nodes, inode)
            listed = list(parse_xattrs(area, Where(ino=inode.ino)))
        except F2fsError as error:
            yield f"attributes: {error}"
            return
        if any(area) and int.from_bytes(area[:4], "little") != F2FS_XATTR_MAGIC:
            yield "attributes without the magic number"
        names = [(item.index, item.name) for item in listed]
        if len(set(names)) != len(names):
            yield "an attribute stands twice"

    def _inline_problems(self, inode: Inode) -> Iterator[str]:
        if inode.has_inline_data:
            area = inode.inline_area
            if inode.i_size > area.size:
                yield f"inline data of {inode.i_size} bytes, {area.size} fit"
            if inode.is_dir or self.node_count[inode.ino] > 1 + bool(inode.i_xattr_nid):
                yield "inline data beside other nodes"
            if inode.i_size and area[: inode.i_size].any() and not inode.i_inline & F2FS_DATA_EXIST:
                yield "inline data without F2FS_DATA_EXIST"
            if area[inode.i_size :].any():
                yield "inline data goes on behind i_size"
            start = 360 + inode.extra_isize
            if inode.block[start : start + 4].any():
                yield "the reserved address before inline data is not 0"
        if inode.has_inline_dentry and inode.i_size != inode.inline_area.size and inode.ino not in self.orphans:
            yield f"an inline directory of size {inode.i_size}, must be {inode.inline_area.size}"
        if inode.kind == "symlink" and not inode.i_size:
            yield "an empty symbolic link"

    def check_counters(self) -> None:
        """The checkpoint's numbers are the sums over what is there."""
        cp, geo, sit = self.volume.cp, self.geo, self.volume.sit
        free = np.ones(len(sit), np.bool_)
        free[sit.vblocks > 0] = False
        free[list(self.open_segments)] = False
        for name, wanted in (
            ("valid_block_count", sum(self.blocks_of.values())),
            ("valid_node_count", self.nids.size),
            ("valid_inode_count", len(self.inodes)),
            ("free_segment_count", int(free.sum())),
        ):
            if getattr(cp, name) != wanted:
                self.note(f"checkpoint: {name} is {getattr(cp, name)}, must be {wanted}")
        if cp.valid_block_count > cp.user_block_count and not cp.ckpt_flags & CP_DISABLED_FLAG:
            self.note(f"checkpoint: {cp.valid_block_count} valid blocks, users may have {cp.user_block_count}")
        if cp.next_free_nid >= geo.max_nid:
            self.note(f"checkpoint: next_free_nid {cp.next_free_nid} is beyond the table")

    def check_nat_bits(self) -> None:
        """nat_bits, where the kernel would believe them, are those of the NAT."""
        bits = read_nat_bits(self.volume.device, self.geo, self.volume.pack)
        if bits is None or not bits.matches:
            return
        entries = self.volume.nat.entries()["block_addr"].reshape(-1, self.geo.nat_entries_per_block)
        used = (entries != 0).sum(axis=1)
        used[0] += 1  # nid 0 counts as used
        full, empty = used == self.geo.nat_entries_per_block, used == 0
        for name, said, true in (("full", bits.full, full), ("empty", bits.empty, empty)):
            for i in np.flatnonzero(said[: true.size] & ~true).tolist():
                self.note(f"nat_bits: NAT block {i} is not {name}, {used[i]} entries are in use")

    # -- names --------------------------------------------------------------------------------------------------

    def check_names(self) -> None:
        """Directories: every name once, in its bucket, of an inode that is there; links and parents agree."""
        hidden = set(quota_inos(self.volume.sb).values())
        links: Counter[int] = Counter()
        self.parents: dict[int, int] = {}
        subdirectories: Counter[int] = Counter()
        for ino, inode in self.inodes.items():
            if not inode.is_dir or ino in self.orphans:  # of a removed directory the size is 0 already
                continue
            for entry in self._entries(inode):
                child = self.inodes.get(entry.ino)
                where = f"directory {ino}, {entry.name!r}"
                if child is None:
                    self.note(f"{where}: there is no inode {entry.ino}")
                    continue
                if entry.file_type != FILE_TYPES.get(child.kind):
                    self.note(f"{where}: type {entry.file_type}, inode {entry.ino} is a {child.kind}")
                links[entry.ino] += 1
                if child.is_dir:
                    subdirectories[ino] += 1
                    if entry.ino in self.parents:
                        self.note(f"{where}: the directory {entry.ino} stands in {self.parents[entry.ino]} too")
                    if child.i_pino != ino:
                        self.note(f"{where}: i_pino is {child.i_pino}")
                self.parents[entry.ino] = ino
        for ino, inode in self.inodes.items():
            if ino in hidden:
                continue
            wanted = 2 + subdirectories[ino] if inode.is_dir else links[ino]
            if ino in self.orphans and not links[ino]:
                wanted = 0
            if inode.is_dir and ino != F2FS_ROOT_INO and links[ino] != 1 and ino not in self.orphans:
                self.note(f"directory {ino} stands at {links[ino]} places")
            if inode.i_links != wanted:
                self.note(f"inode {ino} ({inode.kind}): i_links {inode.i_links}, must be {wanted}")
            if not inode.i_links and ino not in self.orphans:
                self.note(f"inode {ino} ({inode.kind}): without a name, and no orphan")
            if ino in self.orphans and inode.i_links:
                self.note(f"inode {ino} ({inode.kind}): an orphan with {inode.i_links} links")
        for ino in sorted(self.orphans - self.inodes.keys()):
            self.note(f"orphan {ino} is no inode")
        self._note_unreachable()

    def _note_unreachable(self) -> None:
        for ino in self.inodes:
            at, steps = ino, 0
            while at in self.parents and steps <= len(self.parents):
                at, steps = self.parents[at], steps + 1
            if steps > len(self.parents):
                self.note(f"inode {ino} is in a circle of directories")

    def _entries(self, inode: Inode) -> list[Dentry]:
        """The entries but `.` and `..`, which are looked at here, as are hashes, places and doubles."""
        volume, said = self.volume, []
        try:
            found = list(volume.dirs.entries(inode, said))
        except F2fsError as error:
            said.append(str(error))
            found = []
        for text in said:
            self.note(f"directory {inode.ino}: {text}")
        if inode.i_size % self.geo.block_size and not inode.has_inline_dentry:
            self.note(f"directory {inode.ino}: size {inode.i_size}")
        dots = {name: [e for e in found if e.name == name] for name in (b".", b"..")}
        for name, entries in dots.items():
            if len(entries) != 1:
                self.note(f"directory {inode.ino}: {len(entries)} entries {name!r}")
        for entry in dots[b"."]:
            if entry.ino != inode.ino:
                self.note(f"directory {inode.ino}: '.' is {entry.ino}")
        for entry in dots[b".."]:
            if entry.ino != inode.i_pino and inode.ino != F2FS_ROOT_INO:
                self.note(f"directory {inode.ino}: '..' is {entry.ino}, i_pino {inode.i_pino}")
        rest = [entry for entry in found if entry.name not in dots]
        self._check_places(inode, rest)
        return rest

    def _check_places(self, inode: Inode, entries: list[Dentry]) -> None:
        folding = self.volume.dirs.casefolded(inode)
        met: set[bytes] = set()
        deepest = 0
        for entry in entries:
            folded = (casefold(entry.name) or entry.name) if folding else entry.name
            if folded in met:
                self.note(f"directory {inode.ino}: {entry.name!r} stands in it twice")
            met.add(folded)
            if not inode.encrypted and (b"/" in entry.name or b"\0" in entry.name):
                self.note(f"directory {inode.ino}: a name {entry.name!r}")
            if inode.encrypted and folding:
                continue
            wanted = dentry_hash(entry.name if inode.encrypted else folded)
            if entry.hash_code != wanted:
                self.note(
                    f"directory {inode.ino}: {entry.name!r} has the hash {entry.hash_code:#x}, must be {wanted:#x}"
                )
            if entry.block < 0:
                continue
            level = self._level_of(inode, entry)
            if level is None:
                self.note(
                    f"directory {inode.ino}: {entry.name!r} is in block {entry.block}, which is none of its buckets"
                )
            else:
                deepest = max(deepest, level)
        if not inode.has_inline_dentry and inode.i_current_depth < deepest + 1:
            self.note(f"directory {inode.ino}: i_current_depth {inode.i_current_depth}, level {deepest} is in use")

    def _level_of(self, inode: Inode, entry: Dentry) -> int | None:
        for level in range(64):
            first, count = bucket_blocks(level, inode.i_dir_level, entry.hash_code)
            if first > entry.block:
                return None
            if first <= entry.block < first + count:
                return level
        return None

    # -- quotas -------------------------------------------------------------------------------------------------

    def check_quotas(self) -> None:
        """Every quota file says what each owner has: inodes, and bytes of all their blocks but the inodes."""
        volume = self.volume
        hidden = set(quota_inos(volume.sb).values())
        if not hidden:
            return
        try:
            files = read_quotas(volume.sb, volume.nodes, volume.data)
        except Corrupt as error:
            self.note(f"quota: {error}")
            return
        for file in files:
            space: defaultdict[int, int] = defaultdict(int)
            count: Counter[int] = Counter()
            for ino, inode in self.inodes.items():
                if ino in hidden or ino in RESERVED_NIDS:
                    continue
                number = self._quota_id(inode, file.kind)
                count[number] += 1
                space[number] += (self.blocks_of[ino] - 1) * self.geo.block_size
            said = {entry.id: entry for entry in file.entries}
            for number in sorted(count.keys() | said.keys()):
                entry = said.get(number)
                have = (entry.inodes, entry.space) if entry else (0, 0)
                if have != (count[number], space[number]):
                    self.note(
                        f"{file.kind} quota of {number}: {have[0]} inodes, {have[1]} bytes; "
                        f"there are {count[number]}, {space[number]}"
                    )

    def _quota_id(self, inode: Inode, kind: str) -> int:
        if kind == "user":
            return inode.i_uid
        if kind == "group":
            return inode.i_gid
        return inode.extra.get("i_projid", 0) if self.geo.feature & F2FS_FEATURE_PRJQUOTA else 0


__all__ = ["assert_consistent", "problems"]
