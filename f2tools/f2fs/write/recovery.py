"""Roll-forward: what was fsync'ed after the last checkpoint, found in the log and brought back.

An fsync writes a file's direct nodes to the warm node log and marks the inode's.  Each node names the place of the next
one, so that the chain can be followed from where the checkpoint left the log (section 2.7 of the paper and
fs/f2fs/recovery.c).  `find_fsync_chain` looks, on any volume; `recover` applies what it finds to one that is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Corrupt, F2fsError, Where
from f2tools.f2fs.layout.constants import (
    CP_CRC_RECOVERY_FLAG,
    CP_DISABLED_FLAG,
    CP_NOCRC_RECOVERY_FLAG,
    CURSEG_COLD_DATA,
    CURSEG_WARM_DATA,
    CURSEG_WARM_NODE,
    DENT_BIT_SHIFT,
    F2FS_DATA_EXIST,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_INLINE_DATA,
    F2FS_INLINE_XATTR,
    F2FS_NAME_LEN,
    F2FS_PIN_FILE,
    F2FS_ROOT_INO,
    FADVISE_KEEP_SIZE_BIT,
    FSYNC_BIT_SHIFT,
    NEW_ADDR,
    NR_CURSEG_DATA_TYPE,
    NULL_ADDR,
    OFFSET_BIT_SHIFT,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.volume.dentries import Dentry
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import RESERVED_NODES, Volume
from f2tools.f2fs.write.dir import file_type
from f2tools.f2fs.write.node import LiveInode, is_dnode

if TYPE_CHECKING:
    from f2tools.f2fs.write.volume import WritableVolume

WINDOW = 128  # node blocks read ahead at most; the chain mostly goes on at the next block
FIRST_WINDOW = 4  # and at first: mostly there is no chain
LOST_FOUND = b"lost+found"
_HEAD = InodeLayout.offset_of("i_ext")


@dataclass(frozen=True)
class ChainNode:
    """A node block of the chain, in the order of the log."""

    blkaddr: int
    nid: int
    ino: int
    offset: int  # of the node in its file; 0 for the inode
    fsync: bool
    dentry: bool
    next_blkaddr: int

    @property
    def is_inode(self) -> bool:
        return self.nid == self.ino


@dataclass
class Fsynced:
    """A file that was fsync'ed after the checkpoint."""

    ino: int
    last: int  # index in the chain of its last marked node: what comes after does not count
    dentry: int | None = None  # index of the last inode block that asks for its name to be added
    created: int | None = None  # index of the inode block from which an inode unknown to the checkpoint is made
    nodes: list[int] = field(default_factory=list)  # indices of what is applied


@dataclass
class Recovery:
    """The chain of a volume: where it starts, its nodes, why it ends, and the files that it brings back."""

    start_blkaddr: int
    end_blkaddr: int
    end_reason: str
    looped: bool  # it leads back into itself: the kernel then brings nothing back
    chain: list[ChainNode]
    files: dict[int, Fsynced]  # by inode number, in the order of their first mark
    dropped: list[int]  # inodes with marked nodes that are not in the checkpoint, nor anywhere in the chain as a whole

    @property
    def needed(self) -> bool:
        """Whether anything was fsync'ed after the checkpoint."""
        return bool(self.files)


# -- finding ----------------------------------------------------------------------------------------------------------


def find_fsync_chain(volume: Volume, until: int | None = None) -> Recovery:
    """Follow the chain from the end of the warm node log; reads only, and never a block twice.

    `until`: only the first so many nodes count.
    """
    segno, blkoff, _ = volume.pack.curseg(CURSEG_WARM_NODE)
    start = volume.geo.start_block(segno) + blkoff
    if volume.cp.ckpt_flags & CP_DISABLED_FLAG:
        return Recovery(start, start, "checkpoints are disabled: nothing is rolled forward", False, [], {}, [])
    chain: list[ChainNode] = []
    end, reason, looped = start, "", False
    for item in _walk(volume, start):
        if len(chain) == until:
            end, reason = chain[-1].next_blkaddr if chain else start, f"{until} nodes were asked for"
            break
        if isinstance(item, ChainNode):
            chain.append(item)
        else:
            end, reason, looped = item
    files = _files(volume, chain)
    lost = [ino for ino, file in files.items() if file.created is None and not _is_known(volume, ino)]
    dropped = [(ino, files.pop(ino)) for ino in lost]
    for index, node in enumerate(chain):
        file = files.get(node.ino)
        if file is not None and index <= file.last:
            file.nodes.append(index)
    return Recovery(start, end, reason, looped, chain, files, [ino for ino, _ in dropped])


def _files(volume: Volume, chain: list[ChainNode]) -> dict[int, Fsynced]:
    """What the marks say; see find_fsync_dnodes() in fs/f2fs/recovery.c."""
    files: dict[int, Fsynced] = {}
    for index, node in enumerate(chain):
        if not node.fsync:
            continue
        file = files.setdefault(node.ino, Fsynced(node.ino, index))
        file.last = index
        if node.is_inode and node.dentry:
            file.dentry = index
            if file.created is None and not _is_known(volume, node.ino):
                file.created = index
    return files


def _is_known(volume: Volume, ino: int) -> bool:
    """Whether the checkpoint has a node with this number."""
    return 0 < ino < volume.geo.max_nid and volume.nat.get(ino)[2] not in (NULL_ADDR, NEW_ADDR)


def _walk(volume: Volume, start: int) -> Iterator[ChainNode | tuple[int, str, bool]]:
    """The nodes of the chain, then (block address, why it ends there, whether it is a loop)."""
    geo = volume.geo
    met: set[int] = set()
    window = np.zeros(0, NodeFooter.dtype)
    first = blkaddr = start
    ahead = FIRST_WINDOW // 2
    while True:
        if not geo.in_main(blkaddr):
            yield blkaddr, f"the next block {blkaddr:#x} lies outside the main area", False
            return
        if blkaddr in met:
            yield blkaddr, f"the chain leads back to block {blkaddr:#x}", True
            return
        met.add(blkaddr)
        if not first <= blkaddr < first + window.size:
            # A chain that jumps about is read in small pieces; see adjust_por_ra_blocks().
            ahead = min(WINDOW, ahead * 2) if blkaddr == first + window.size else max(1, ahead // 2)
            first = blkaddr
            try:
                blocks = volume.device.read_range(first, min(ahead, geo.end_blkaddr - first), geo.block_size)
            except F2fsError as error:
                yield blkaddr, f"block {blkaddr:#x} can't be read: {error}", False
                return
            window = blocks[:, -NodeFooter.size :].copy().view(NodeFooter.dtype)[:, 0]
        nid, ino, flag, cp_ver, following = window[blkaddr - first].item()
        if not _of_this_checkpoint(volume, cp_ver):
            yield blkaddr, f"block {blkaddr:#x} was not written after this checkpoint", False
            return
        marks = bool(flag >> FSYNC_BIT_SHIFT & 1), bool(flag >> DENT_BIT_SHIFT & 1)
        yield ChainNode(blkaddr, nid, ino, flag >> OFFSET_BIT_SHIFT, *marks, following)
        blkaddr = following


def _of_this_checkpoint(volume: Volume, cp_ver: int) -> bool:
    """See is_recoverable_dnode() in fs/f2fs/node.h."""
    flags, version = volume.cp.ckpt_flags, volume.cp.checkpoint_ver
    low = (1 << 32) - 1
    if flags & CP_NOCRC_RECOVERY_FLAG:
        return cp_ver & low == version & low
    if flags & CP_CRC_RECOVERY_FLAG:
        version |= volume.pack.crc << 32
    return cp_ver == version & (1 << 64) - 1


# -- applying ---------------------------------------------------------------------------------------------------------


def recover(volume: WritableVolume, recovery: Recovery | None = None) -> Recovery:
    """Bring back what was fsync'ed and write a checkpoint with it; nothing is written when there is nothing.

    Until that checkpoint is complete the chain stays as it is, so a recovery that is interrupted starts again.  Corrupt
    for a chain that can't be right, before anything is written.
    """
    found = recovery or find_fsync_chain(volume)
    if found.looped:
        raise Corrupt(Where(blkaddr=found.end_blkaddr), f"{found.end_reason}; run f2tools fsck")
    if found.needed:
        with _without_limits(volume):
            _Applier(volume, found).run()
        volume.checkpoint()
    return found


@contextmanager
def _without_limits(volume: WritableVolume) -> Iterator[None]:
    """What was written once is charged again, whatever the limits: it is the system that does it."""
    if volume.quotas is not None:
        volume.quotas.privileged = True
    try:
        yield
    finally:
        if volume.quotas is not None:
            volume.quotas.privileged = False


class _Applier:
    def __init__(self, volume: WritableVolume, recovery: Recovery) -> None:
        self._vol = volume
        self._geo = volume.geo
        self._found = recovery
        self._segnos = sorted({self._geo.segno(node.blkaddr) for node in recovery.chain})

    def run(self) -> None:
        chain, files = self._found.chain, self._found.files
        self._vol.segments.keep_until_checkpoint(self._segnos)
        for file in files.values():
            if file.created is not None:
                self._make_inode(chain[file.created])
        for index, node in enumerate(chain):
            file = files.get(node.ino)
            if file is not None and index <= file.last:
                self._apply(file, index, node)
        self._vol.segments.leave_after_recovery(CURSEG_WARM_NODE)
        self._vol.align_logs()

    def _corrupt(self, node: ChainNode, message: str) -> Corrupt:
        where = Where(ino=node.ino, nid=node.nid, blkaddr=node.blkaddr)
        return Corrupt(where, f"can't recover: {message}; run f2tools fsck")

    def _block(self, node: ChainNode) -> NDArray[np.uint8]:
        return self._vol.device.read_range(node.blkaddr, 1, self._geo.block_size)[0]

    def _make_inode(self, node: ChainNode) -> None:
        """An inode that the checkpoint does not know; see f2fs_recover_inode_page()."""
        vol = self._vol
        if not RESERVED_NODES <= node.ino < self._geo.max_nid:
            raise self._corrupt(node, f"no file can have inode number {node.ino}")
        source = Inode(self._geo, self._block(node), node.ino, node.blkaddr)
        vol.nat.note_fresh(node.ino)
        block = vol.nodes.new_block(node.ino, node.ino, 0, source.is_dir)
        block[:_HEAD] = source.block[:_HEAD]
        block[INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + source.extra_isize] = source.block[
            INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + source.extra_isize
        ]
        inode = vol.live(node.ino)
        inode.set(
            i_size=0, i_blocks=1, i_links=1, i_xattr_nid=0,
            i_inline=source.i_inline & (F2FS_INLINE_XATTR | F2FS_EXTRA_ATTR),
        )  # fmt: skip
        if "i_compr_blocks" in inode.extra:
            inode.set(i_compr_blocks=0)
        vol.space.add_inode(inode)

    def _apply(self, file: Fsynced, index: int, node: ChainNode) -> None:
        """Take over one node; see do_recover_data() in fs/f2fs/recovery.c."""
        inode = self._vol.live(file.ino)
        block = self._block(node)
        source = Inode(self._geo, block, node.ino, node.blkaddr) if node.is_inode else None
        if not inode.is_file or (source is not None and not source.is_file):
            raise self._corrupt(node, "only regular files are fsync'ed without a checkpoint")
        if source is not None:
            if source.extra_isize != inode.extra_isize or source.compressed != inode.compressed:
                raise self._corrupt(node, "the inode has another layout than in the checkpoint")
            if source.i_size > (self._vol.mapper.max_blocks(inode) + inode.addrs_per_inode) * self._geo.block_size:
                raise self._corrupt(node, f"a size of {source.i_size} bytes is more than an inode can map")
            self._fields(inode, source)
            if file.dentry == index:
                self._name(node, inode, source)
            self._inline_xattr(inode, source)
        elif node.offset == XATTR_NODE_OFFSET:
            self._xattr_node(inode, block)
            return
        if self._inline_data(node, inode, source):
            return
        if source is not None:
            self._addresses(node, inode, -1, source.addrs)
            return
        n = self._geo.addrs_per_block
        number = number_of(node.offset, n)
        if not is_dnode(node.offset, n) or not 0 <= number < 2 + 2 * n + n * n:
            raise self._corrupt(node, f"a direct node has no offset {node.offset}")
        self._addresses(node, inode, number, block[: 4 * inode.addrs_per_block].view("<u4"))

    def _fields(self, inode: LiveInode, source: Inode) -> None:
        """See recover_inode() in fs/f2fs/recovery.c."""
        vol = self._vol
        vol.transfer(inode, source.i_uid, source.i_gid, source.extra.get("i_projid"))
        names = (
            "i_mode", "i_uid", "i_gid", "i_size", "i_atime", "i_ctime", "i_mtime", "i_atime_nsec", "i_ctime_nsec",
            "i_mtime_nsec", "i_advise", "i_flags",
            "i_current_depth",  # of a regular file: i_gc_failures
        )  # fmt: skip
        inode.set(**{name: getattr(source, name) for name in names})
        if self._geo.feature & F2FS_FEATURE_PRJQUOTA and "i_projid" in inode.extra and "i_projid" in source.extra:
            inode.set(i_projid=source.extra["i_projid"])
        kept = F2FS_PIN_FILE | F2FS_DATA_EXIST
        inode.set(i_inline=inode.i_inline & ~kept | source.i_inline & kept)
        vol.nodes.touch(inode)

    def _name(self, node: ChainNode, inode: LiveInode, source: Inode) -> None:
        """Add the name that the inode remembers, in the place of another file's; see recover_dentry()."""
        vol = self._vol
        folder, name = vol.live(source.i_pino), source.name
        odd = name in (b"", b".", b"..") or (not folder.encrypted and (b"/" in name or b"\0" in name))
        if not folder.is_dir or odd or source.i_namelen > F2FS_NAME_LEN:
            raise self._corrupt(node, f"no name {os.fsdecode(name)!r} can be in inode {folder.ino}")
        code = self._stored_hash(folder, source)
        there = vol.names.find(folder, name, code)
        if there is not None and there.ino == inode.ino:
            return
        if there is not None:
            self._replace(folder, there)
        inode.set(i_pino=folder.ino, i_name=source.i_name, i_namelen=len(name))
        place = vol.names.room(folder, name, code)
        vol.names.add(folder, place, name, inode.ino, file_type(inode.i_mode), code)
        vol.stamp(folder, modified=True)

    def _stored_hash(self, folder: LiveInode, source: Inode) -> int | None:
        """Without the key the hash of an encrypted name that ignores case is known from the inode alone."""
        if not folder.encrypted or not self._vol.names.casefolded(folder):
            return None
        at = source.i_namelen
        return int.from_bytes(source.i_name[at : at + 4], "little")

    def _replace(self, folder: LiveInode, there: Dentry) -> None:
        """The file that had the name before was removed after the checkpoint.

        Of a directory it is not known where its files have gone since: one that is not empty is kept, as a lost one.
        """
        vol = self._vol
        other = vol.live(there.ino)
        if not other.is_dir or vol.names.is_empty(other):
            vol.remove_name(folder, there)
            return
        found = vol.names.find(vol.live(F2FS_ROOT_INO), LOST_FOUND)
        home = folder if found is None else vol.live(found.ino)
        name = b"#%d" % other.ino
        place = vol.names.room(home, name)
        vol.names.remove(folder, there)
        vol.names.add(home, place, name, other.ino, file_type(other.i_mode))
        other.set(i_pino=home.ino, i_name=name, i_namelen=len(name))
        vol.nodes.touch(other)
        if home is not folder:
            vol.names.set_parent(other, home.ino)
            folder.set(i_links=max(folder.i_links - 1, 2))
            home.set(i_links=home.i_links + 1)
            vol.stamp(home, modified=True)

    def _inline_xattr(self, inode: LiveInode, source: Inode) -> None:
        """See f2fs_recover_inline_xattr(): the node of xattrs stays, even if the file had none any more."""
        if source.i_inline & F2FS_INLINE_XATTR:
            inode.set(i_inline=inode.i_inline | F2FS_INLINE_XATTR)
            if inode.inline_xattr_area.size == source.inline_xattr_area.size:
                inode.inline_xattr_area[:] = source.inline_xattr_area
        elif inode.i_inline & F2FS_INLINE_XATTR:
            inode.inline_xattr_area[:] = 0
            inode.set(i_inline=inode.i_inline & ~F2FS_INLINE_XATTR)

    def _xattr_node(self, inode: LiveInode, block: NDArray[np.uint8]) -> None:
        nodes = self._vol.nodes
        if inode.i_xattr_nid:
            nid, mine = inode.i_xattr_nid, nodes.block(inode.i_xattr_nid, inode.ino)
        else:
            nid, mine = nodes.new_node(inode, XATTR_NODE_OFFSET)
            inode.set(i_xattr_nid=nid)
        mine[: -NodeFooter.size] = block[: -NodeFooter.size]
        nodes.mark_dirty(nid, inode.ino)

    def _inline_data(self, node: ChainNode, inode: LiveInode, source: Inode | None) -> bool:
        """Whether the content is inside the inode; see f2fs_recover_inline_data().

        A direct node (`source` None) is met before its inode where a file has grown out of the inode.
        """
        if source is None or not source.has_inline_data:
            if inode.has_inline_data:
                inode.inline_area[:] = 0
                inode.set(i_inline=inode.i_inline & ~(F2FS_INLINE_DATA | F2FS_DATA_EXIST))
                self._vol.nodes.touch(inode)
            return False
        if not inode.has_inline_data:
            self._vol.mapper.truncate(inode, 0)
            inode.set(i_size=source.i_size, i_inline=inode.i_inline | F2FS_INLINE_DATA)
        if source.inline_area.size != inode.inline_area.size or source.i_size > inode.inline_area.size:
            raise self._corrupt(node, f"{source.i_size} bytes do not fit into the inode")
        inode.inline_area[:] = source.inline_area
        return True

    def _addresses(self, chain_node: ChainNode, inode: LiveInode, number: int, wanted: NDArray[Any]) -> None:
        """Take over the addresses of one node; see do_recover_data()."""
        vol, geo = self._vol, self._geo
        have = vol.mapper.node(inode, number)
        if have is None and not wanted.any():
            return
        node = have or vol.mapper.node(inode, number, create=True)
        assert node is not None
        new = wanted.astype(np.int64)
        old = node.addrs.astype(np.int64)
        if new.size != old.size:
            raise self._corrupt(chain_node, f"{new.size} addresses where the checkpoint has {old.size}")
        changed = np.flatnonzero(old != new)
        if not changed.size:
            return
        src, dest = old[changed], new[changed]
        valid = self._valid_targets(chain_node, dest)
        grown = int(np.count_nonzero(dest != NULL_ADDR)) - int(np.count_nonzero(src != NULL_ADDR))
        vol.space.add_blocks(inode, grown)
        inode.set(i_blocks=max(inode.i_blocks + grown, 1))
        vol.segments.invalidate(src[geo.in_main(src)])
        node.addrs[changed] = np.where(valid, NEW_ADDR, dest)
        self._adopt(node.nid, changed[valid], dest[valid], src[valid])
        node.addrs[changed] = dest
        fofs = node.first + changed
        last = int(fofs[dest != NULL_ADDR][-1]) if (dest != NULL_ADDR).any() else -1
        size = geo.block_size
        if last >= 0 and not inode.i_advise & FADVISE_KEEP_SIZE_BIT and inode.i_size <= last * size:
            inode.set(i_size=(last + 1) * size)
        inode.forget_extent()
        vol.nodes.mark_dirty(node.nid, inode.ino)
        vol.nodes.touch(inode)

    def _valid_targets(self, chain_node: ChainNode, dest: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these new addresses are blocks, all others being holes or promises."""
        geo, segments = self._geo, self._vol.segments
        valid = geo.in_main(dest)
        blocks = dest[valid]
        odd = dest[~valid & (dest != NULL_ADDR) & (dest != NEW_ADDR)]
        if odd.size:
            raise self._corrupt(chain_node, f"address {int(odd[0]):#x} is out of the main area")
        if np.unique(blocks).size != blocks.size:
            raise self._corrupt(chain_node, "a block stands twice among its addresses")
        segnos = geo.segno(blocks)
        of_nodes = segments.in_use[segnos] & (segments.types[segnos] >= NR_CURSEG_DATA_TYPE)
        of_nodes |= np.isin(segnos, self._segnos)
        if of_nodes.any():
            raise self._corrupt(chain_node, f"block {int(blocks[of_nodes][0]):#x} lies in a log of nodes")
        return valid

    def _adopt(self, nid: int, offsets: NDArray[np.int64], dest: NDArray[np.int64], src: NDArray[np.int64]) -> None:
        """Blocks that were written after the checkpoint become valid."""
        vol = self._vol
        if not dest.size:
            return
        taken = vol.segments.is_valid(dest)
        for blkaddr in dest[taken].tolist():
            self._take_away(blkaddr)
        owners = np.zeros(dest.size, Summary.dtype)
        owners["nid"], owners["version"] = nid, vol.nat.get(nid)[0]
        owners["ofs_in_node"] = offsets
        for fresh, kind in ((src == NULL_ADDR, CURSEG_COLD_DATA), (src != NULL_ADDR, CURSEG_WARM_DATA)):
            vol.segments.adopt(dest[fresh], owners[fresh], kind)

    def _take_away(self, blkaddr: int) -> None:
        """A block that another place of a file had at the checkpoint; see check_index_in_prev_nodes()."""
        vol, geo = self._vol, self._geo
        segno = geo.segno(blkaddr)
        _, entries = vol.segments.owners(segno)
        nid, _, offset = entries[blkaddr - geo.start_block(segno)].item()
        ino = vol.nat.get(nid)[1]
        where = Where(blkaddr=blkaddr, nid=nid)
        if not ino:
            raise Corrupt(where, "a block that is to be recovered belongs to nobody; run f2tools fsck")
        inode = vol.live(ino)
        addrs = inode.addrs if nid == ino else vol.nodes.block(nid, ino)[: 4 * inode.addrs_per_block].view("<u4")
        if offset >= addrs.size or int(addrs[offset]) != blkaddr:
            raise Corrupt(where, f"a block to be recovered is valid, but not in inode {ino}; run f2tools fsck")
        addrs[offset] = NULL_ADDR
        vol.segments.invalidate(np.array([blkaddr]))
        vol.space.add_blocks(inode, -1)
        inode.set(i_blocks=max(inode.i_blocks - 1, 1))
        inode.forget_extent()
        vol.nodes.mark_dirty(nid, ino)
        vol.nodes.touch(inode)


def number_of(offset: int, n: int) -> int:
    """The number of the direct node (from 0 in file order) with this offset in its file's tree."""
    if offset in (1, 2):
        return offset - 1
    if offset < 4 + n:
        return 2 + offset - 4
    if offset < 5 + 2 * n:
        return 2 + n + offset - (5 + n)
    branch, inside = divmod(offset - (6 + 2 * n), n + 1)
    return 2 + 2 * n + branch * n + inside - 1


def describe(volume: Volume, recovery: Recovery) -> list[str]:
    """What recovery would do, a line a file."""
    lines: list[str] = []
    for file in recovery.files.values():
        last = recovery.chain[file.last]
        text = f"inode {file.ino}: {len(file.nodes)} node blocks, the last at {last.blkaddr:#x}"
        if file.dentry is not None:
            block = volume.device.read_range(recovery.chain[file.dentry].blkaddr, 1, volume.geo.block_size)[0]
            source = Inode(volume.geo, block, file.ino, 0)
            text += f"; its name {os.fsdecode(source.name)!r} in inode {source.i_pino}"
        lines.append(text)
    lines += [f"inode {ino}: lost, as its inode was never written" for ino in recovery.dropped]
    return lines


__all__ = ["ChainNode", "Fsynced", "Recovery", "describe", "find_fsync_chain", "number_of", "recover"]
