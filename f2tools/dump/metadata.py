"""A copy of a volume's metadata without its files' content, for a report of a bug: sparse, every block at its place.

Copied are the superblocks, both checkpoint packs, the tables, and of the main area what nodes there are, the blocks of
directories, quota files and symbolic links, and what seals a file (verity).  Which these are is found by the node
table, the types of segments, the chain of what was fsync'ed, and the nodes' own footers, so that a damaged volume gives
as much of itself as a check would look at.  Content that lies inside an inode is zero in the copy.  With a `Scrambler`
names tell nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.media.image import ImageFile
from f2tools.device.media.multi import MultiDevice
from f2tools.dump.scramble import MOST_BITS, Scrambler, is_plausible
from f2tools.errors import DeviceError, F2fsError
from f2tools.f2fs.layout.constants import (
    CP_NAT_BITS_FLAG,
    CURSEG_HOT_NODE,
    F2FS_CASEFOLD_FL,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_FEATURE_RO,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_NAME_LEN,
    F2FS_ROOT_INO,
    F2FS_SUPER_OFFSET,
    MAX_DIR_HASH_DEPTH,
    NEW_ADDR,
    OFFSET_BIT_SHIFT,
    SUM_TYPE_NODE,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.footers import body_of, footers_in, footers_of
from f2tools.f2fs.layout.hashes import INODE_CHECKSUM_OFFSET, inode_checksum
from f2tools.f2fs.layout.nat import NatBlock
from f2tools.f2fs.layout.node import I_INLINE_OFFSET, INODE_ADDR_OFFSET, NODE_FOOTER_SIZE
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.node_tree import is_dnode
from f2tools.f2fs.layout.sit import SIT_VBLOCKS_MASK, SIT_VBLOCKS_SHIFT, SitBlock
from f2tools.f2fs.layout.summary import SummaryBlock
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.dentries import level_start, parse_dentries
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.recovery import find_fsync_chain
from f2tools.f2fs.volume.super import shares_of
from f2tools.f2fs.volume.verity import descriptor_place
from f2tools.f2fs.volume.volume import Volume
from f2tools.newfile import replacing

WINDOW = 1024  # blocks held at a time
_NAME_AT = InodeLayout.offset_of("i_name")
_OTHER, _DIRECTORY, _LINK, _QUOTA = 0, 1, 2, 3
_TYPES = 6  # of segments
_TYPES_OF_MODE = (
    stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK
)  # fmt: skip
Blocks = NDArray[np.uint8]
Addresses = NDArray[np.int64]


@dataclass
class MetadataCopy:
    """What was copied, in blocks, and what could not be."""

    targets: list[str]
    size_bytes: int
    tables: int = 0
    nodes: int = 0
    directory_blocks: int = 0
    other_blocks: int = 0  # of quota files, symbolic links, and descriptors of sealed files
    inline_cleared: int = 0  # inodes whose content was left out
    names_scrambled: int | None = None
    names_kept: int = 0
    stored_bytes: int = 0
    lost: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def copy_metadata(volume: Volume, target: str, scrambler: Scrambler | None = None) -> MetadataCopy:
    """Write the copy of an open volume to a new file, which takes its name when it is whole.

    A volume on several devices becomes as many files: `target`, `target.1` and so on.
    """
    below = volume.device
    while isinstance(below, Overlay):  # what was made up to find the nodes is not what is there
        below = below.base
    shares = shares_of(volume.sb, volume.geo) if isinstance(below, MultiDevice) else [(0, below.size_bytes)]
    targets = [target, *(f"{target}.{number}" for number in range(1, len(shares)))]
    made = MetadataCopy(targets, below.size_bytes)
    with ExitStack() as stack:
        files = [stack.enter_context(replacing(name)) for name in targets]
        images: list[Device] = []
        for name, file, (_, size) in zip(targets, files, shares, strict=True):
            images.append(stack.enter_context(ImageFile(name, os.dup(file.fileno()), 0, write=True)))
            images[-1].resize(size)
        output = images[0]
        if len(images) > 1:
            output = MultiDevice(images)
            output.set_layout(shares)
        _Copying(volume, below, output, scrambler, made).run()
        made.stored_bytes = sum(os.fstat(file.fileno()).st_blocks * 512 for file in files)
    return made


@dataclass
class _Directory:
    """What of a directory is needed to give its entries new names."""

    inline_at: list[int] = field(default_factory=list)  # blocks of its inode, where the entries lie in that
    blocks: list[int] = field(default_factory=list)
    folding: bool = False
    encrypted: bool = False
    bits: int = 0  # of a hash by which its largest table has a bucket


class _Copying:
    """One copy on its way; the passes are in the order of `run`."""

    def __init__(
        self, volume: Volume, source: Device, output: Device, scrambler: Scrambler | None, made: MetadataCopy
    ) -> None:
        self._volume, self._geo = volume, volume.geo
        self._source, self._output = source, output
        self._scrambler, self._made = scrambler, made
        self._sealed: list[int] = []  # inodes with verity
        self._kinds = np.zeros(volume.geo.max_nid, np.uint8)
        self._directories: dict[int, _Directory] = {}
        self._pointed: list[tuple[int, int, int, bool]] = []  # (inode, block, node, whether the node is live)
        quota = [ino for ino in volume.sb.qf_ino if 0 < ino < volume.geo.max_nid]
        self._kinds[quota] = _QUOTA

    def run(self) -> None:
        """Tables; then what nodes say; then directories and the like; then the nodes themselves."""
        self._tables()
        nodes, live = self._node_blocks()
        self._look_at(nodes, live)
        self._contents()
        self._write_nodes(nodes)
        if self._scrambler is not None:
            self._made.names_scrambled = self._scrambler.scrambled
            self._made.names_kept = self._scrambler.kept
        self._output.flush()

    # -- superblocks, checkpoints, tables ---------------------------------------------------------------------------

    def _tables(self) -> None:
        geo = self._geo
        for copy in (F2FS_SUPER_OFFSET, geo.block_size + F2FS_SUPER_OFFSET):
            try:
                self._output.pwrite(copy, self._source.pread(copy, SuperBlock.size))
            except DeviceError as error:
                self._made.lost.append(str(error))
        for first, count in self._checkpoint_parts():
            self._copy_table(first, count)
        volume = self._volume
        older = self._older()
        nat = np.concatenate((volume.nat.blkaddrs, older.nat.blkaddrs if older else volume.nat.blkaddrs))
        self._copy_table(geo.sit_blkaddr, geo.nat_blkaddr - geo.sit_blkaddr, self._is_sit, volume.sit.blkaddrs)
        self._copy_table(geo.nat_blkaddr, geo.ssa_blkaddr - geo.nat_blkaddr, self._is_nat, nat)
        used = np.flatnonzero(volume.sit.vblocks)
        ssa = volume.summaries.ssa_place(used)[0] if not geo.feature & F2FS_FEATURE_RO else used[:0]
        self._copy_table(geo.ssa_blkaddr, geo.main_blkaddr - geo.ssa_blkaddr, self._is_ssa, ssa)

    def _checkpoint_parts(self) -> Iterator[tuple[int, int]]:
        """(first block, count) of what belongs to the packs; all of the area where one of them is not sound."""
        geo = self._geo
        packs = self._volume.packs
        if isinstance(self._volume.device, Overlay) or not all(pack.valid for pack in packs):
            yield geo.cp_blkaddr, geo.sit_blkaddr - geo.cp_blkaddr
            return
        for pack in packs:
            count = min(pack.cp.cp_pack_total_block_count, geo.blocks_per_seg)
            yield pack.blkaddr, count
            if pack.cp.ckpt_flags & CP_NAT_BITS_FLAG:
                bits = -(-(2 * (geo.nat_blocks // 8) + 8) // geo.block_size)
                yield pack.blkaddr + geo.blocks_per_seg - bits, bits

    def _older(self) -> Volume | None:
        """The volume under its older checkpoint, None where that is not sound; the device is not its own."""
        try:
            return Volume(self._volume.device, "older")
        except F2fsError:
            return None

    def _copy_table(self, first: int, count: int, plausible: Any = None, live: Addresses | None = None) -> None:
        """Copy what of a range is not zero; of a table only what is live, or can be a table at all."""
        known = np.zeros(count, np.bool_) if plausible else np.ones(count, np.bool_)
        if live is not None:
            known[live[(live >= first) & (live < first + count)] - first] = True
        for at, blocks in self._windows(first, count):
            keep = blocks.any(axis=1)
            if plausible:
                keep &= known[at - first : at - first + len(blocks)] | plausible(blocks)
            self._put(at + np.flatnonzero(keep), blocks[keep])
            self._made.tables += int(keep.sum())

    def _is_sit(self, blocks: Blocks) -> NDArray[np.bool_]:
        words = blocks.view(SitBlock.at(self._geo.block_size).dtype)[:, 0]["entries"]["vblocks"]
        full = self._geo.blocks_per_seg
        return np.all((words & SIT_VBLOCKS_MASK <= full) & (words >> SIT_VBLOCKS_SHIFT < _TYPES), axis=1)

    def _is_nat(self, blocks: Blocks) -> NDArray[np.bool_]:
        rows = blocks.view(NatBlock.at(self._geo.block_size).dtype)[:, 0]["entries"]
        places = (rows["block_addr"] < self._geo.end_blkaddr) | (rows["block_addr"] == NEW_ADDR)
        return np.all((rows["ino"] < self._geo.max_nid) & places, axis=1)

    def _is_ssa(self, blocks: Blocks) -> NDArray[np.bool_]:
        size = self._geo.sum_block_size
        rows = blocks.reshape(-1, size).view(SummaryBlock.at(size).dtype)[:, 0]
        fine = np.all(rows["entries"]["nid"] < self._geo.max_nid, axis=1)
        fine &= rows["footer"]["entry_type"] <= SUM_TYPE_NODE
        return np.all(fine.reshape(len(blocks), -1), axis=1)

    # -- which blocks are nodes -------------------------------------------------------------------------------------

    def _node_blocks(self) -> tuple[Addresses, NDArray[np.bool_]]:
        """(addresses of what may be nodes, rising; whether the node table has each)."""
        geo, volume = self._geo, self._volume
        live = self._addresses_of(volume)
        segments = np.zeros(len(volume.sit), np.bool_)
        segments |= volume.sit.types >= CURSEG_HOT_NODE
        for curseg in volume.summaries.cursegs:
            segments[curseg.segno] |= curseg.kind >= CURSEG_HOT_NODE
        if not live.size:  # no table leads to any: each block is asked
            segments[:] = True
        older = self._older()
        places = [live, self._chain(), *([self._addresses_of(older)] if older else [])]
        starts = geo.start_block(np.flatnonzero(segments)).tolist()
        places += (self._with_data(start, geo.blocks_per_seg) for start in starts)
        every = np.unique(np.concatenate(places))
        return every, np.isin(every, live)

    def _addresses_of(self, volume: Volume) -> Addresses:
        nids = volume.nat.used()
        places = volume.nat.lookup(nids)["block_addr"].astype(np.int64)
        return np.unique(places[self._geo.in_main(places)])

    def _chain(self) -> Addresses:
        """What was fsync'ed after the checkpoint, which may lie in segments that were free."""
        try:
            return np.array([node.blkaddr for node in find_fsync_chain(self._volume).chain], np.int64)
        except F2fsError:
            return np.zeros(0, np.int64)

    def _with_data(self, first: int, count: int) -> Addresses:
        """The blocks of a range that are no holes."""
        size = self._geo.block_size
        length = min((first + count) * size, self._source.size_bytes) - first * size
        found = [np.zeros(0, np.int64)]
        for offset, part in self._source.data_ranges(first * size, max(0, length)):
            found.append(np.arange(offset // size, -(-(offset + part) // size), dtype=np.int64))
        return np.concatenate(found)

    # -- what the nodes lead to -------------------------------------------------------------------------------------

    def _look_at(self, nodes: Addresses, live: NDArray[np.bool_]) -> None:
        """Note which inodes are directories or links, and which blocks they and their nodes point to."""
        direct: list[NDArray[Any]] = []
        for at, blocks, is_live in self._read(nodes, live):
            footers = footers_of(blocks)
            plausible = self._plausible(footers)
            inos = self._inos_of(blocks, footers, at)
            for row in np.flatnonzero(plausible & (inos > 0)).tolist():
                self._look_at_inode(blocks[row], int(inos[row]), int(at[row]), bool(is_live[row]))
            others = plausible & (inos == 0)
            direct.append(np.array([at[others], footers["ino"][others], is_live[others]], np.int64))
        if not direct:
            return
        places, inos, alive = np.concatenate(direct, axis=1)
        wanted = np.flatnonzero(self._kinds[inos] != _OTHER)
        for at, blocks, is_live in self._read(places[wanted], alive[wanted].astype(np.bool_)):
            footers = footers_of(blocks)
            for row in range(len(at)):
                offset = int(footers["flag"][row]) >> OFFSET_BIT_SHIFT
                if offset == XATTR_NODE_OFFSET or not is_dnode(offset, self._geo.addrs_per_block):
                    continue
                ino, nid = int(footers["ino"][row]), int(footers["nid"][row])
                self._point(ino, body_of(blocks[row]).view("<u4"), nid, bool(is_live[row]))

    def _inos_of(self, blocks: Blocks, footers: NDArray[np.void], at: Addresses) -> Addresses:
        """The inode that each block is, 0 for other nodes: by its footer, or where that is damaged by the NAT."""
        inos = np.where(footers["nid"] == footers["ino"], footers["nid"], 0).astype(np.int64)
        places, nids = self._inodes_of_nat
        if places.size:
            found = np.minimum(np.searchsorted(places, at), places.size - 1)
            first = footers["flag"] >> OFFSET_BIT_SHIFT == 0
            by_table = (places[found] == at) & (inos == 0) & first & _have_type(blocks)
            inos[by_table] = nids[found[by_table]]
        return inos

    @cached_property
    def _inodes_of_nat(self) -> tuple[Addresses, Addresses]:
        """(rising block addresses, numbers) of what the node table calls inodes."""
        nat = self._volume.nat
        nids = nat.used()
        rows = nat.lookup(nids)
        chosen = (rows["ino"] == nids) & self._geo.in_main(rows["block_addr"].astype(np.int64))
        places = rows["block_addr"][chosen].astype(np.int64)
        order = np.argsort(places)
        return places[order], nids[chosen][order]

    def _look_at_inode(self, block: Blocks, ino: int, blkaddr: int, live: bool) -> None:
        inode = Inode(self._geo, block, ino, blkaddr)
        kind = _DIRECTORY if inode.is_dir else _LINK if stat.S_ISLNK(inode.i_mode) else _OTHER
        if self._kinds[ino] == _QUOTA:
            kind = _QUOTA
        if kind == _OTHER:
            if live and inode.verity:
                self._sealed.append(ino)
            return
        self._kinds[ino] = kind
        if kind == _DIRECTORY:
            known = self._directories.setdefault(ino, _Directory())
            known.folding |= bool(inode.i_flags & F2FS_CASEFOLD_FL)
            known.encrypted |= inode.encrypted
            known.bits = max(known.bits, self._bucket_bits(inode))
            if inode.has_inline_dentry:
                known.inline_at.append(blkaddr)
        if inode.has_inline_dentry or inode.has_inline_data:
            return
        try:
            self._point(ino, inode.addrs, ino, live)
        except F2fsError:
            return  # its own fields contradict each other: nobody finds its blocks

    def _bucket_bits(self, inode: Inode) -> int:
        """The bits of a hash that choose the bucket in the largest table, by its depth or by its size."""
        level, blocks = 0, inode.i_size // self._geo.block_size
        dir_level = min(inode.i_dir_level, MAX_DIR_HASH_DEPTH)
        while level + 1 < MOST_BITS and level_start(level + 1, dir_level) < blocks:
            level += 1
        return max(level, min(inode.i_current_depth, MAX_DIR_HASH_DEPTH) - 1) + dir_level

    def _point(self, ino: int, places: NDArray[Any], nid: int, live: bool) -> None:
        for place in places[self._geo.in_main(places)].tolist():
            self._pointed.append((ino, place, nid, live))

    # -- directories, links, quota ----------------------------------------------------------------------------------

    def _contents(self) -> None:
        """Copy the blocks that were pointed to: a damaged pointer must not make it copy a file's content."""
        seen: set[int] = set()
        chosen: list[tuple[int, int, int]] = []
        for ino, place, nid, live in sorted(self._pointed, key=lambda one: not one[3]):
            if place in seen or not (live or self._volume.sit.valid(np.array([place]))[0]):
                continue
            seen.add(place)
            chosen.append((ino, place, nid))
        self._pointed.clear()
        if self._scrambler is not None:
            self._name_directories(chosen)
        for start in range(0, len(chosen), WINDOW):
            part = chosen[start : start + WINDOW]
            places = np.array([place for _, place, _ in part], np.int64)
            for at, blocks, rows in self._read(places, np.arange(len(part))):
                keep = [self._content(part[row], block) for row, block in zip(rows.tolist(), blocks, strict=True)]
                self._put(at[keep], blocks[keep])
        for ino in self._sealed:
            self._copy_seal(ino)

    def _copy_seal(self, ino: int) -> None:
        """Copy the verity descriptor of a file, which lies beyond its end: a check asks for it."""
        volume, size = self._volume, self._geo.block_size
        try:
            inode = volume.nodes.inode(ino)
            place = descriptor_place(volume.nodes, inode)
            if place is None:
                return
            first, end = place[0] // size, -(-(place[0] + place[1]) // size)
            places = volume.data.addresses(inode, first, end - first).astype(np.int64)
        except F2fsError:
            return
        for at, blocks, _ in self._read(places[self._geo.in_main(places)]):
            self._put(at, blocks)
            self._made.other_blocks += len(at)

    def _content(self, pointed: tuple[int, int, int], block: Blocks) -> bool:
        """Whether a block is copied; it is changed to what is copied."""
        ino, place, nid = pointed
        kind = int(self._kinds[ino])
        if kind == _DIRECTORY:
            if not (is_plausible(block, self._geo.max_nid) or self._is_owner(place, nid)):
                return False
            self._made.directory_blocks += 1
            known = self._directories.get(ino)
            if self._scrambler is not None and not (known and known.encrypted):
                self._scrambler.dentries(block, ino, bool(known and known.folding))
            return True
        if not self._is_owner(place, nid):
            return False
        self._made.other_blocks += 1
        if kind == _LINK and self._scrambler is not None:
            self._scramble_target(block, ino)
        return True

    def _is_owner(self, place: int, nid: int) -> bool:
        """Whether the summaries say, too, that this node points to this block."""
        try:
            return bool(self._geo.feature & F2FS_FEATURE_RO) or self._volume.summaries.owner(place)[1] == nid
        except F2fsError:
            return False

    def _name_directories(self, chosen: Iterable[tuple[int, int, int]]) -> None:
        """Find new names for all entries of each directory at once."""
        assert self._scrambler is not None
        for ino, place, _ in chosen:
            if self._kinds[ino] == _DIRECTORY:
                self._directories.setdefault(ino, _Directory()).blocks.append(place)
        for ino, known in self._directories.items():
            if known.encrypted:
                continue
            names: list[bytes] = []
            for at, blocks, _ in self._read(np.array(known.inline_at, np.int64)):
                for block, place in zip(blocks, at.tolist(), strict=True):
                    names += (entry.name for entry in parse_dentries(self._inline_area(block, ino, place), -1, []))
            for _, blocks, _ in self._read(np.array(known.blocks, np.int64)):
                for block in blocks:
                    names += (entry.name for entry in parse_dentries(block, -1, []))
            self._scrambler.add_directory(ino, names, known.folding, max(0, known.bits))

    def _inline_area(self, block: Blocks, ino: int, blkaddr: int) -> Blocks:
        try:
            return Inode(self._geo, block, ino, blkaddr).inline_area
        except F2fsError:
            return block[:0]

    def _scramble_target(self, area: Blocks, ino: int) -> None:
        assert self._scrambler is not None
        target = area.tobytes().split(b"\0", 1)[0]
        area[:] = 0
        area[: len(target)] = np.frombuffer(self._scrambler.target(ino, target), np.uint8)

    # -- nodes ------------------------------------------------------------------------------------------------------

    def _write_nodes(self, nodes: Addresses) -> None:
        """Copy the nodes, without content; of a block that is none its footer, as that is what a check reads of it."""
        for at, blocks, _ in self._read(nodes):
            footers = footers_in(blocks)
            plausible = self._plausible(footers)
            blocks[~plausible, :-NODE_FOOTER_SIZE] = 0
            inos = self._inos_of(blocks, footers, at)
            for row in np.flatnonzero(plausible).tolist():
                if inos[row]:
                    self._clean_inode(blocks[row], int(inos[row]), int(at[row]))
                elif self._scrambler is not None and footers["flag"][row] >> OFFSET_BIT_SHIFT == XATTR_NODE_OFFSET:
                    self._scramble_xattr_node(blocks[row], int(footers["ino"][row]))
            keep = blocks.any(axis=1)
            self._made.nodes += int((plausible & keep).sum())
            self._put(at[keep], blocks[keep])

    def _plausible(self, footers: NDArray[np.void]) -> NDArray[np.bool_]:
        nids, inos = footers["nid"], footers["ino"]
        return (nids > 0) & (nids < self._geo.max_nid) & (inos > 0) & (inos < self._geo.max_nid)

    def _clean_inode(self, block: Blocks, ino: int, blkaddr: int) -> None:
        """Take content out of an inode block, and what tells something, if that is asked."""
        before = block.copy()
        inode = Inode(self._geo, before, ino, blkaddr)
        new = Inode(self._geo, block, ino, blkaddr)
        try:
            self._clean_inline(inode, new)
            if self._scrambler is not None:
                self._scramble_inode(inode, new, block)
        except F2fsError:  # its own fields contradict each other: what is where can't be said
            block[_NAME_AT : _NAME_AT + F2FS_NAME_LEN] = 0
            block[INODE_ADDR_OFFSET:-NODE_FOOTER_SIZE] = 0
        if self._geo.feature & F2FS_FEATURE_INODE_CHKSUM and before[I_INLINE_OFFSET] & F2FS_EXTRA_ATTR:
            self._keep_checksum(before, block)

    def _clean_inline(self, inode: Inode, new: Inode) -> None:
        if not inode.i_inline & F2FS_INLINE_DATA or inode.i_inline & F2FS_INLINE_DENTRY:
            return
        if inode.i_size > inode.inline_area.size:  # so much fits in no inode: these are addresses
            return
        if stat.S_ISLNK(inode.i_mode):
            if self._scrambler is not None and not inode.encrypted:
                self._scramble_target(new.inline_area, inode.ino)
            return
        if new.inline_area.any():
            new.inline_area[:] = 0
            self._made.inline_cleared += 1

    def _scramble_inode(self, inode: Inode, new: Inode, block: Blocks) -> None:
        assert self._scrambler is not None
        folding = bool(inode.i_flags & F2FS_CASEFOLD_FL)
        if inode.i_inline & F2FS_INLINE_DENTRY and not inode.encrypted:
            self._scrambler.dentries(new.inline_area, inode.ino, folding)
        if not inode.encrypted_name and inode.ino != F2FS_ROOT_INO:
            name = self._scrambler.name(inode.i_pino, inode.name)
            place = block[_NAME_AT : _NAME_AT + F2FS_NAME_LEN]
            place[:] = 0
            place[: len(name)] = np.frombuffer(name, np.uint8)
        inline = new.inline_xattr_area
        if inline.size:
            whole = self._scrambler.xattrs(self._xattr_area(inode), inode.ino)
            inline[:] = np.frombuffer(whole[: inline.size], np.uint8)

    def _xattr_area(self, inode: Inode) -> bytes:
        """The attribute area of an inode, as far as there is one."""
        area = inode.inline_xattr_area.tobytes()
        if inode.i_xattr_nid:
            with suppress(F2fsError):
                area += body_of(self._volume.nodes.read([inode.i_xattr_nid])[0]).tobytes()
        return area

    def _scramble_xattr_node(self, block: Blocks, ino: int) -> None:
        assert self._scrambler is not None
        try:
            inline = self._volume.nodes.inode(ino).inline_xattr_area.tobytes()
        except F2fsError:
            inline = b""
        body = body_of(block)
        whole = self._scrambler.xattrs(inline + body.tobytes(), ino)
        body[:] = np.frombuffer(whole[len(inline) :], np.uint8)

    def _keep_checksum(self, before: Blocks, block: Blocks) -> None:
        """Let the checksum be as right, or as wrong, as it was."""
        uuid = self._volume.sb.uuid
        was, new = inode_checksum(uuid, before.tobytes()), inode_checksum(uuid, block.tobytes())
        place = block[INODE_CHECKSUM_OFFSET : INODE_CHECKSUM_OFFSET + 4].view("<u4")
        place[0] ^= was ^ new

    # -- reading and writing ----------------------------------------------------------------------------------------

    def _windows(self, first: int, count: int) -> Iterator[tuple[int, Blocks]]:
        """(address, blocks) of what of a range is no hole and can be read."""
        for start in range(first, first + count, WINDOW):
            places = self._with_data(start, min(WINDOW, first + count - start))
            if places.size:
                at, last = int(places[0]), int(places[-1])
                for where, blocks, _ in self._read(np.arange(at, last + 1)):
                    yield int(where[0]), blocks

    def _read(self, places: Addresses, *beside: NDArray[Any]) -> Iterator[tuple[Addresses, Blocks, Any]]:
        """(addresses, blocks, what stands beside them) of what can be read, in pieces."""
        size = self._geo.block_size
        extra = beside[0] if beside else places
        for start in range(0, places.size, WINDOW):
            at, others = places[start : start + WINDOW], extra[start : start + WINDOW]
            try:
                yield at, self._source.read_blocks(at, size), others
            except DeviceError:
                for one in range(at.size):
                    try:
                        yield at[one : one + 1], self._source.read_range(int(at[one]), 1, size), others[one : one + 1]
                    except DeviceError as error:
                        self._made.lost.append(str(error))

    def _put(self, places: Addresses, blocks: Blocks) -> None:
        inside = (places + 1) * self._geo.block_size <= self._output.size_bytes
        self._output.write_blocks(places[inside], blocks[inside], self._geo.block_size)


def _have_type(blocks: Blocks) -> NDArray[np.bool_]:
    """Which blocks begin as inodes do, with a mode that names a type."""
    return np.isin(blocks[:, 1] >> 4, [kind >> 12 for kind in _TYPES_OF_MODE])
