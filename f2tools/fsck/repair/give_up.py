"""Repairs for what can't be found: it is made anew from what is left of it, else what leads there is removed."""

from __future__ import annotations

import stat

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    F2FS_ROOT_INO,
    NULL_ADDR,
    OFFSET_BIT_SHIFT,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.file_type import mode_of_type
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.layout.node_tree import leads_to_nodes, place_of
from f2tools.fsck.facts.inodes import maps_blocks
from f2tools.fsck.facts.nodes import DIRECT, INODE, UNKNOWN
from f2tools.fsck.facts.owners import ALIAS, NODE
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import (
    ClearClusters,
    FindChild,
    FindNode,
    FindTarget,
    ReattachNode,
    RebuildRoot,
    ReplaceBlank,
    Unmix,
)
from f2tools.fsck.repair.contents import lost_heads
from f2tools.fsck.repair.dentries import remove_dentry
from f2tools.fsck.repair.work import Work, all_nodes_are_there, set_field
from f2tools.text import counted


def clear_nat(work: Work, finding: Finding, plan: FindNode) -> bool:
    """Clear the entry of a node that can't be found."""
    nid = plan.nid
    if nid in work.adopted:
        return False
    other = work.misdirected.node_in(nid)
    if other is not None and work.scan.row_of(other) < 0:
        work.free(other)  # a copy of what was deleted, which nothing else has brought back by now
    if work.scan.nat_ino[work.scan.row_of(nid)] == nid:
        if was_dir(work, nid):
            return rebuild_dir(work, finding, nid)
        if rebuild_file(work, finding, nid):
            return True
        work.guesses.cleared.add(nid)
    work.free(nid)
    work.note(finding, f"entry of nid {nid} cleared")
    return True


def was_dir(work: Work, ino: int) -> bool:
    """Whether a lost inode was a directory: others remember it as their parent, or its entry says so."""
    table = work.tree.entries
    entry = np.flatnonzero(work.tree.named & (table["ino"] == ino))
    said = bool(entry.size and table["type"][entry[0]] == 2)
    return ino == F2FS_ROOT_INO or said or bool((work.scan.inodes["pino"] == ino).any())


def rebuild_dir(work: Work, finding: Finding, ino: int) -> bool:
    """A directory whose inode is lost, for the children that remember it: name and place from its old entry."""
    table = work.tree.entries
    entries = np.flatnonzero(work.tree.named & (table["ino"] == ino))
    parent, name = F2FS_ROOT_INO, b""
    if entries.size:
        parent = work.tree.ino(int(table["dir"][entries[0]]))
        name = work.tree.name(int(entries[0]))
    work.make_dir(ino, parent, name)
    work.note(finding, f"directory {ino} rebuilt")
    return True


def missing_inode(work: Work, finding: Finding, plan: FindTarget) -> bool:
    """An entry that leads to no inode: a directory that others remember is rebuilt, else the entry is removed."""
    target = plan.target
    if target in work.made or bad_block(work, target):
        return False  # its block is judged first
    if _was_deleted(work, plan):
        work.guesses.deleted.add(target)
        return remove_dentry(work, finding, plan)
    if 3 < target < work.image.geo.max_nid and was_dir(work, target):
        if work.surgery.node_addr(target) is not None and work.scan.row_of(target) >= 0:
            return False
        return rebuild_dir(work, finding, target)
    free = 3 < target < work.image.geo.max_nid and work.scan.row_of(target) < 0
    if free and work.take_from_log(target, plan.dir):
        work.note(finding, f"nid {target} found by its footer")
        return True
    return (free and rebuild_file(work, finding, target)) or remove_dentry(work, finding, plan)


def _was_deleted(work: Work, plan: FindTarget) -> bool:
    """Whether an entry in an older copy of a directory leads to what was deleted since: nothing else speaks for it."""
    if plan.dir not in work.guesses.older or not all_nodes_are_there(work) or work.scan.row_of(plan.target) >= 0:
        return False
    known = work.leaks.node(plan.target) is not None or work.lost_addresses(plan.target)
    return not known and not (work.scan.inodes["pino"] == plan.target).any()


def bad_block(work: Work, nid: int) -> bool:
    """Whether the NAT leads to a block that is not this node, or to a blank inode: there is a finding of its own."""
    row = work.scan.row_of(nid)
    if row < 0 or work.scan.kind[row] != UNKNOWN:
        return False
    blank = work.scan.nat_ino[row] == nid and work.scan.inode_row(nid) < 0
    return bool(work.scan.footer["nid"][row] != nid or blank)


def root(work: Work, finding: Finding, _plan: RebuildRoot) -> bool:
    """A new root, for all that remember it."""
    if not work.adopt(F2FS_ROOT_INO):
        work.make_dir(F2FS_ROOT_INO, F2FS_ROOT_INO, b"")
        work.surgery.set_field(F2FS_ROOT_INO, "i_pino", 0)
    work.note(finding, "root directory rebuilt")
    return True


def rebuild_file(work: Work, finding: Finding, ino: int) -> bool:
    """A file or symbolic link whose inode is lost while its blocks are known: content and name come back, the rest does
    not.

    Where no name is left either, it is a file, for lost+found.
    """
    blocks, nodes = work.lost_addresses(ino), work.has_nodes(ino)
    table = work.tree.entries
    entries = np.flatnonzero(work.tree.named & (table["ino"] == ino))
    kind = mode_of_type(int(table["type"][entries[0]])) if entries.size else stat.S_IFREG
    if not (blocks or nodes) or kind not in (stat.S_IFREG, stat.S_IFLNK):
        return False
    name, parent = b"", 0
    if entries.size:
        name = work.tree.name(int(entries[0]))
        parent = work.tree.ino(int(table["dir"][entries[0]]))
    words = work.xattr_words(work.extra_size, blocks)
    size = work.size_of_nodes(ino, work.image.geo.addrs_per_inode - work.extra_size // 4 - words)
    mode = kind | (0o600 if kind == stat.S_IFREG else 0o777)

    def change(block: NDArray[np.uint8], _extra: int) -> None:
        set_field(block, "i_size", size)
        set_field(block, "i_pino", parent)
        set_field(block, "i_namelen", len(name))
        block[92 : 92 + len(name)] = np.frombuffer(name, np.uint8)

    work.make_inode(ino, mode, 0, change, words)
    if blocks:
        work.take_back(ino, blocks)
    if kind == stat.S_IFLNK and 0 in blocks:
        target = work.surgery.read(blocks[0]).tobytes()
        work.surgery.set_field(ino, "i_size", max(1, target.find(b"\0")))
    more = " and the nodes" if nodes else ""
    work.note(finding, f"file {ino} rebuilt around {counted(len(blocks), 'block')}{more} that were its own")
    return True


def blank_inode(work: Work, finding: Finding, _plan: ReplaceBlank) -> bool:
    """An inode block without content: a directory that others remember is rebuilt, else it is freed."""
    ino = finding.ino or 0
    if work.adopt(ino):
        work.note(finding, "an older copy found in the log")
        return True
    if was_dir(work, ino):
        return rebuild_dir(work, finding, ino)
    if rebuild_file(work, finding, ino):
        return True
    work.free(ino)
    work.note(finding, "freed")
    return True


def clear_pointer(work: Work, finding: Finding, plan: FindChild) -> bool:
    """A pointer to a lost node: the node is made anew from what it led to, else the pointer is cleared."""
    if rebuild_node(work, finding, plan.nid, plan.slot, plan.child):
        return True
    work.note(finding, "pointer cleared")
    return work.surgery.set_pointer(plan.nid, plan.slot, 0)


def rebuild_node(work: Work, finding: Finding, parent: int, slot: int, child: int) -> bool:
    """A lost node that led to other nodes, or to data: those know their place in the file."""
    ino, per = finding.ino or 0, work.image.geo.addrs_per_block
    row = work.scan.row_of(child)
    free = row < 0 or (work.scan.kind[row] == UNKNOWN and work.scan.footer["nid"][row] != child)
    free |= work.misdirected.node_in(child) is not None
    if not ino or not 2 < child < work.image.geo.max_nid or not free:
        return False
    offset = work.child_offset(parent, slot)
    below: dict[int, int] = {}
    if offset == XATTR_NODE_OFFSET:
        return False
    if leads_to_nodes(offset, per):
        for stray in work.scan.unreferenced.tolist():
            own = work.scan.footer[stray]
            place = place_of(int(own["flag"]) >> OFFSET_BIT_SHIFT, per)
            if int(own["ino"]) == ino and own["nid"] == work.scan.nid[stray] and place and place[0] == offset:
                below[place[1]] = int(work.scan.nid[stray])
    else:
        below = {ofs: address for ofs, address in work.lost_addresses(child).items() if ofs < per}
    if not below:
        return False
    if not leads_to_nodes(offset, per):
        words = np.zeros(per, np.uint32)
        words[list(below)] = list(below.values())
        inode_row = work.scan.inode_row(ino)
        below |= dict.fromkeys(lost_heads(work, inode_row, words) if inode_row >= 0 else (), COMPRESS_ADDR)
    work.make_node(child, ino, offset, below)
    if leads_to_nodes(offset, per):
        work.placed.update(below.values())
    work.note(finding, f"nid {child} rebuilt around {len(below)} of what it led to")
    return True


def reattach(work: Work, finding: Finding, plan: ReattachNode) -> bool:
    """A node that nothing points to: back into its place where that is empty, else freed.

    Where the node above is lost too, another is made; where that one waits for its own place, this one waits with it.
    """
    nid = plan.nid
    if nid in work.placed:
        return False
    own = work.scan.footer[work.scan.row_of(nid)]
    ino, offset = int(own["ino"]), int(own["flag"]) >> OFFSET_BIT_SHIFT
    done = put_in_place(work, ino, offset, nid)
    if done is None:
        work.free(nid)
    if done is not False:
        work.note(finding, "freed" if done is None else f"put back into inode {ino}")
    return done is not False


def put_in_place(work: Work, ino: int, offset: int, nid: int) -> bool | None:
    """Let the node above lead to a node again; False where it does, or must wait, None where there is no place."""
    inode_row = work.scan.inode_row(ino)
    if inode_row < 0:
        return False if ino in work.made or bad_block(work, ino) else None
    inode = work.scan.inodes[inode_row]
    for slot in range(6):
        if work.child_offset(ino, slot) == offset:
            at = INODE_ADDR_OFFSET + 4 * (work.image.geo.addrs_per_inode + slot)
            block = work.surgery.read(int(work.scan.inode_addrs[inode_row]))
            taken = inode["xattr_nid"] if slot == 5 else block[at : at + 4].any()
            if taken:
                return False if (ino, offset) in work.expected else None
            if slot < 5 and not maps_blocks(work.scan.inodes[inode_row : inode_row + 1])[0]:
                return None
            return work.place(ino, slot, nid)
    place = place_of(offset, work.image.geo.addrs_per_block)
    if place is None:
        return None
    for above in work.nodes_at(ino, place[0]):
        blkaddr = work.surgery.node_addr(above)
        if blkaddr is None:
            continue
        there = int(work.surgery.read(blkaddr)[4 * place[1] : 4 * place[1] + 4].view("<u4")[0])
        if not there:
            return work.place(above, place[1], nid)
        return False if there == nid or (ino, offset) in work.expected else None
    if (ino, place[0]) in work.expected:
        return False  # the repair of that pointer comes first
    made = work.free_nid()
    work.make_node(made, ino, place[0], {place[1]: nid})
    done = put_in_place(work, ino, place[0], made)
    if done:
        work.placed.add(nid)
    else:
        work.unmake(made, ino, place[0])
    return done


def clear_clusters(work: Work, finding: Finding, plan: ClearClusters) -> bool:
    """Clear the addresses of impossible clusters in all nodes of the file."""
    row = work.scan.inode_row(plan.ino)
    if row < 0:
        return False
    cluster = int(work.scan.inodes["cluster"][row])
    for node in np.flatnonzero((work.scan.inode_of == row) & np.isin(work.scan.kind, (INODE, DIRECT))).tolist():
        nid, is_inode = int(work.scan.nid[node]), work.scan.kind[node] == INODE
        start = INODE_ADDR_OFFSET + 4 * work.start_word(nid) if is_inode else 0
        count = int(work.scan.inodes["count"][row]) if is_inode else work.image.geo.addrs_per_block // cluster * cluster

        def change(block: NDArray[np.uint8], start: int = start, count: int = count) -> None:
            words = block[start : start + 4 * count].view("<u4")
            heads = words == COMPRESS_ADDR
            place = np.arange(count) % cluster == 0 if cluster > 1 else np.zeros(count, np.bool_)
            words[heads & ~place] = 0
            for at in np.flatnonzero(heads & place).tolist():
                body = words[at + 1 : at + cluster]
                if not work.image.geo.in_main(body.astype(np.int64)).any():
                    words[at : at + cluster] = 0

        work.surgery.edit_node(nid, change)
    work.note(finding, "addresses cleared")
    return True


def unmix(work: Work, finding: Finding, _plan: Unmix) -> bool:
    """A segment with nodes and data: the few of the other kind are moved out, data to where its summary says."""
    segno, geo = finding.segno or 0, work.image.geo
    nid, ofs = (column[0] for column in work.scan.owners.of_segments(np.array([segno])))
    nodes, datas = (nid != 0) & (ofs == NODE), (nid != 0) & (ofs < ALIAS)
    if not nodes.any() or not datas.any():
        return False
    start = int(geo.start_block(segno))
    few = nodes if nodes.sum() < datas.sum() else datas
    for at in np.flatnonzero(few).tolist():
        owner, place = int(nid[at]), int(ofs[at])
        if few is nodes:
            fresh = work.room.block()
            work.surgery.write(fresh, work.surgery.read(start + at))
            work.surgery.set_nat(owner, block_addr=fresh)
            continue
        lost = work.leaks.data.get((owner, place))
        address = lost[0].blkaddr if lost else NULL_ADDR
        if not lost and work.image.sit.vblocks[segno]:
            valid = np.unpackbits(work.image.sit.valid_map(np.array([segno]))[0])
            if valid[at]:  # its owner is unknown: it is kept, in a place of its own
                address = work.room.block(node=False)
                work.surgery.write(address, work.surgery.read(start + at))
        work.surgery.set_address(owner, place, address, work.start_word(owner))
    work.note(finding, f"{counted(int(few.sum()), 'block')} of the other kind moved out")
    return True
