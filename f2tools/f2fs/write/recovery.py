"""Roll-forward: what was fsync'ed after the last checkpoint is brought back to a volume that is written.

`f2fs.volume.recovery` finds the chain of fsync'ed nodes; here it is applied, as fs/f2fs/recovery.c does (section 2.7 of
the paper).
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device.vectors import distinct
from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.constants import (
    CURSEG_COLD_DATA,
    CURSEG_WARM_DATA,
    CURSEG_WARM_NODE,
    F2FS_DATA_EXIST,
    F2FS_EXTRA_ATTR,
    F2FS_FEATURE_PRJQUOTA,
    F2FS_INLINE_DATA,
    F2FS_INLINE_XATTR,
    F2FS_NAME_LEN,
    F2FS_PIN_FILE,
    F2FS_ROOT_INO,
    FADVISE_KEEP_SIZE_BIT,
    NEW_ADDR,
    NR_CURSEG_DATA_TYPE,
    NULL_ADDR,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.file_type import file_type
from f2tools.f2fs.layout.footers import body_of, hash_behind
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.node_tree import direct_nodes, is_dnode, number_of
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.volume.dentries import Dentry, name_hash
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.recovery import ChainNode, Contested, Fsynced, Recovery, find_fsync_chain
from f2tools.f2fs.volume.volume import RESERVED_NODES
from f2tools.f2fs.write.namei import Namei
from f2tools.f2fs.write.node import LiveInode

LOST_FOUND = b"lost+found"
COMPRESSION = ("i_compress_algorithm", "i_log_cluster_size", "i_compress_flag")
_HEAD = InodeLayout.offset_of("i_ext")


class NotApplied(Corrupt):
    """A node of the chain can't be right; `index` is its place there."""

    def __init__(self, node: ChainNode, index: int, why: str) -> None:
        where = Where(ino=node.ino, nid=node.nid, blkaddr=node.blkaddr)
        super().__init__(where, f"can't recover: {why}; run f2tools fsck")
        self.node, self.index, self.why = node, index, why

    def __reduce__(self) -> tuple[type[NotApplied], tuple[ChainNode, int, str]]:  # type: ignore[override]
        return type(self), (self.node, self.index, self.why)


def recover(volume: Namei, recovery: Recovery | None = None) -> Recovery:
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
def _without_limits(volume: Namei) -> Generator[None, None, None]:
    """What was written before is charged again, whatever the limits: the system itself does it."""
    volume.privileged = True
    try:
        yield
    finally:
        volume.privileged = False


class _Wrong(Exception):
    """What is wrong with the node that is being taken over."""


class _Applier:
    def __init__(self, volume: Namei, recovery: Recovery) -> None:
        self._vol = volume
        self._geo = volume.geo
        self._found = recovery
        self._segnos = sorted({self._geo.segno(node.blkaddr) for node in recovery.chain})

    def run(self) -> None:
        chain, files = self._found.chain, self._found.files
        self._vol.segments.keep_until_checkpoint(self._segnos)
        for file in files.values():
            if file.created is not None:
                with self._taking_over(file.created):
                    self._make_inode(chain[file.created])
        for index, node in enumerate(chain):
            file = files.get(node.ino)
            if file is not None and index <= file.last:
                with self._taking_over(index):
                    self._apply(file, index, node)
        self._vol.segments.leave_after_recovery(CURSEG_WARM_NODE)
        self._vol.align_logs()

    @contextmanager
    def _taking_over(self, index: int) -> Generator[None, None, None]:
        """What goes wrong is told as NotApplied, with the place of this node."""
        try:
            yield
        except _Wrong as error:
            raise NotApplied(self._found.chain[index], index, str(error)) from None
        except (Corrupt, ValueError, IndexError) as error:
            raise NotApplied(self._found.chain[index], index, str(error)) from error

    def _block(self, node: ChainNode) -> NDArray[np.uint8]:
        return self._vol.device.read_range(node.blkaddr, 1, self._geo.block_size)[0]

    def _make_inode(self, node: ChainNode) -> None:
        """An inode that the checkpoint does not know; see f2fs_recover_inode_page()."""
        vol = self._vol
        if not RESERVED_NODES <= node.ino < self._geo.max_nid:
            raise _Wrong(f"no file can have inode number {node.ino}")
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
            raise _Wrong("only regular files are fsync'ed without a checkpoint")
        if inode.i_blocks <= 1 + bool(inode.i_xattr_nid):
            self._switch_compression(file, index, inode)
        if source is not None:
            if source.extra_isize != inode.extra_isize or source.compressed != inode.compressed:
                raise _Wrong("the inode has another layout than in the checkpoint")
            if source.i_size > (self._vol.mapper.max_blocks(inode) + inode.addrs_per_inode) * self._geo.block_size:
                raise _Wrong(f"a size of {source.i_size} bytes is more than an inode can map")
            self._fields(inode, source)
            if file.dentry == index:
                self._name(inode, source, new=file.created is not None)
            self._inline_xattr(inode, source)
        elif node.offset == XATTR_NODE_OFFSET:
            self._xattr_node(inode, block)
            return
        if self._inline_data(inode, source):
            return
        if source is not None:
            self._addresses(inode, -1, source.addrs)
            return
        n = self._geo.addrs_per_block
        number = number_of(node.offset, n)
        if not is_dnode(node.offset, n) or not 0 <= number < direct_nodes(n):
            raise _Wrong(f"a direct node has no offset {node.offset}")
        self._addresses(inode, number, block[: 4 * inode.addrs_per_block].view("<u4"))

    def _switch_compression(self, file: Fsynced, index: int, inode: LiveInode) -> None:
        """An empty file may be compressed, or not, from here on: the next inode block of the log says so."""
        chain = self._found.chain
        coming = next((chain[at] for at in file.nodes if at >= index and chain[at].is_inode), None)
        if coming is None:
            return
        source = Inode(self._geo, self._block(coming), coming.ino, coming.blkaddr)
        if source.is_file and source.compressed != inode.compressed and source.extra_isize == inode.extra_isize:
            names = [name for name in COMPRESSION if name in source.extra and name in inode.extra]
            inode.set(i_flags=source.i_flags, **{name: source.extra[name] for name in names})

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

    def _name(self, inode: LiveInode, source: Inode, new: bool) -> None:
        """Add the name that the inode remembers, in the place of another file's; see recover_dentry().

        Only an inode that is `new` since the checkpoint asks for its name: f2fs_need_dentry_mark().  Of another one the
        mark was hit, and the name may be one that it had before a rename: nobody's file goes for it.
        """
        vol = self._vol
        directory, name = vol.live(source.i_pino), source.name
        odd = name in (b"", b".", b"..") or (not directory.encrypted and (b"/" in name or b"\0" in name))
        if not directory.is_dir or odd or source.i_namelen > F2FS_NAME_LEN:
            raise _Wrong(f"no name {os.fsdecode(name)!r} can be in inode {directory.ino}")
        code = self._stored_hash(directory, source)
        there = vol.names.find(directory, name, code)
        if there is not None and (there.ino == inode.ino or not new):
            return
        if there is not None:
            self._replace(directory, there)
        inode.set(i_pino=directory.ino, i_name=source.i_name, i_namelen=len(name))
        place = vol.names.room(directory, name, code)
        vol.names.add(directory, place, name, inode.ino, file_type(inode.i_mode), code)
        vol.stamp(directory, modified=True)

    def _stored_hash(self, directory: LiveInode, source: Inode) -> int | None:
        """The hash of an encrypted name; where case is ignored it is known, without the key, from the inode alone."""
        if not directory.encrypted:
            return None
        if not self._vol.names.casefolded(directory):
            return name_hash(source.name)
        return hash_behind(source.i_name, source.i_namelen)

    def _replace(self, directory: LiveInode, there: Dentry) -> None:
        """The file that had the name before was removed after the checkpoint.  Where the files of a directory have gone
        since is not known: one that is not empty is kept, as a lost one.  So is any file where the name is one that it
        may have had long before.
        """
        vol = self._vol
        other = vol.live(there.ino)
        if directory.ino not in vol.policy.old_names and (not other.is_dir or vol.names.is_empty(other)):
            vol.remove_name(directory, there)
            return
        found = vol.names.find(vol.live(F2FS_ROOT_INO), LOST_FOUND)
        home = directory if found is None else vol.live(found.ino)
        name = b"#%d" % other.ino
        place = vol.names.room(home, name)
        vol.names.remove(directory, there)
        vol.names.add(home, place, name, other.ino, file_type(other.i_mode))
        other.set(i_pino=home.ino, i_name=name, i_namelen=len(name))
        vol.nodes.touch(other)
        if home is not directory and other.is_dir:
            vol.names.set_parent(other, home.ino)
            directory.set(i_links=max(directory.i_links - 1, 2))
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
        body_of(mine)[:] = body_of(block)
        nodes.mark_dirty(nid, inode.ino)

    def _inline_data(self, inode: LiveInode, source: Inode | None) -> bool:
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
            raise _Wrong(f"{source.i_size} bytes do not fit into the inode")
        inode.inline_area[:] = source.inline_area
        return True

    def _addresses(self, inode: LiveInode, number: int, wanted: NDArray[Any]) -> None:
        """Take over the addresses of one node; see do_recover_data()."""
        vol, geo = self._vol, self._geo
        # Also for a node without an address, as a collapsed range leaves many: it is a block of the file.
        node = vol.mapper.node(inode, number, create=True)
        assert node is not None
        new = wanted.astype(np.int64)
        old = node.addrs.astype(np.int64)
        if new.size != old.size:
            raise _Wrong(f"{new.size} addresses where the checkpoint has {old.size}")
        changed = np.flatnonzero(old != new)
        if not changed.size:
            return
        src, dest = old[changed], new[changed]
        valid = self._valid_targets(dest)
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

    def _valid_targets(self, dest: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these new addresses are blocks; all others are holes or reserved."""
        geo, segments = self._geo, self._vol.segments
        valid = geo.in_main(dest)
        blocks = dest[valid]
        odd = dest[~valid & (dest != NULL_ADDR) & (dest != NEW_ADDR)]
        if odd.size:
            raise _Wrong(f"address {int(odd[0]):#x} is out of the main area")
        if distinct(blocks).size != blocks.size:
            raise _Wrong("a block stands twice among its addresses")
        segnos = geo.segno(blocks)
        of_nodes = segments.in_use[segnos] & (segments.types[segnos] >= NR_CURSEG_DATA_TYPE)
        of_nodes |= np.isin(segnos, self._segnos)
        if of_nodes.any():
            raise _Wrong(f"block {int(blocks[of_nodes][0]):#x} lies in a log of nodes")
        return valid

    def _adopt(self, nid: int, offsets: NDArray[np.int64], dest: NDArray[np.int64], src: NDArray[np.int64]) -> None:
        """Blocks that were written after the checkpoint become valid."""
        vol = self._vol
        if not dest.size:
            return
        taken = vol.segments.is_valid(dest)
        for blkaddr in dest[taken].tolist():
            self._take_away(blkaddr, vol.nat.get(nid)[1])
        owners = np.zeros(dest.size, Summary.dtype)
        owners["nid"], owners["version"] = nid, vol.nat.get(nid)[0]
        owners["ofs_in_node"] = offsets
        for fresh, kind in ((src == NULL_ADDR, CURSEG_COLD_DATA), (src != NULL_ADDR, CURSEG_WARM_DATA)):
            vol.segments.adopt(dest[fresh], owners[fresh], kind)

    def _take_away(self, blkaddr: int, mine: int) -> None:
        """A block that another place had before; see check_index_in_prev_nodes().

        Of another file, it is one that came back with that file: what the checkpoint knows no file takes over from
        another without copying it, see __read_out_blkaddrs() in fs/f2fs/file.c.
        """
        vol, geo = self._vol, self._geo
        segno = geo.segno(blkaddr)
        _, entries = vol.segments.owners(segno)
        nid, _, offset = entries[blkaddr - geo.start_block(segno)].item()
        ino = vol.nat.get(nid)[1]
        if not ino:
            raise _Wrong(f"block {blkaddr:#x}, which is in use, belongs to nobody")
        if ino != mine and vol.sit.valid(np.array([blkaddr]))[0]:
            raise _Wrong(f"block {blkaddr:#x} is that of another file, inode {ino}")
        inode = vol.live(ino)
        addrs = inode.addrs if nid == ino else vol.nodes.block(nid, ino)[: 4 * inode.addrs_per_block].view("<u4")
        if offset >= addrs.size or int(addrs[offset]) != blkaddr:
            raise _Wrong(f"block {blkaddr:#x} is in use, but not in inode {ino}")
        if ino != mine:
            self._found.contested.append(Contested(blkaddr, ino, mine))
        addrs[offset] = NULL_ADDR
        vol.segments.invalidate(np.array([blkaddr]))
        vol.space.add_blocks(inode, -1)
        inode.set(i_blocks=max(inode.i_blocks - 1, 1))
        inode.forget_extent()
        vol.nodes.mark_dirty(nid, ino)
        vol.nodes.touch(inode)
