"""Repairs that look for what was lost: nodes by their footers, tables by their other copy; nothing is given up here."""

from __future__ import annotations

from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from f2tools.device.vectors import distinct
from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    F2FS_COMPRESS_RELEASED,
    F2FS_FEATURE_INODE_CHKSUM,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    FADVISE_ENCRYPT_BIT,
    NEW_ADDR,
    OFFSET_BIT_SHIFT,
)
from f2tools.f2fs.layout.footers import CP_VER_LOW, footer_in, low_cp_ver
from f2tools.f2fs.layout.nat import NatBlock
from f2tools.fsck.checks.checkpoint import count_inodes
from f2tools.fsck.checks.clusters import Clusters
from f2tools.fsck.checks.summary import named_by_summaries, summaries_of
from f2tools.fsck.facts.leaks import LostNode, looks_like_inode
from f2tools.fsck.facts.newest import ahead_of_log
from f2tools.fsck.facts.nodes import DIRECT, INODE
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import (
    CountNodes,
    FindChild,
    FindNatBlock,
    FindNode,
    FindTarget,
    JudgeFooter,
    JudgeLeaked,
    SetFooter,
    SetNatAddress,
    SetNatIno,
    TakeNewer,
)
from f2tools.fsck.problems import NODE_MISSING, NODE_TWICE
from f2tools.fsck.repair.copies import is_copy
from f2tools.fsck.repair.give_up import rebuild_node
from f2tools.fsck.repair.work import Work
from f2tools.text import counted

PLACEHOLDER = 1  # block address of nids that have no node


def find_node(work: Work, finding: Finding, plan: FindNode | FindTarget) -> bool:
    """Let the NAT lead to the node's block again."""
    nid = plan.target if isinstance(plan, FindTarget) else plan.nid
    if work.adopt(nid, inode=isinstance(plan, FindTarget)):
        work.note(finding, f"nid {nid} found by its footer")
        return True
    return False


def stray_node(work: Work, finding: Finding, plan: JudgeFooter) -> bool:
    """A block whose footer is no longer that of its node: where the summary still names the node, the footer is wrong.

    Otherwise, and where the block is another node that was written to a wrong place, it is looked for elsewhere.
    """
    nid, blkaddr = plan.nid, finding.blkaddr or 0
    row = work.scan.row_of(nid)
    block = work.surgery.read(blkaddr)
    own = footer_in(block)
    other = work.scan.row_of(int(own["nid"]))
    if other >= 0 and _older_is_free(work, int(work.scan.addr[other]), blkaddr) and _named_by_both(work, blkaddr):
        work.surgery.set_nat(int(own["nid"]), int(own["ino"]), blkaddr)
        work.note(finding, f"it is the newer block of nid {own['nid']}")
        return True
    if work.misdirected.node_in(nid) is not None:
        return find_node(work, finding, plan)
    named = named_by_summaries(work.image, [blkaddr])[0].tolist() == [nid] and row >= 0
    taken = other >= 0 and work.scan.addr[other] == blkaddr
    if not named or taken or not plausible(work, block, work.scan.nat_ino[row] == nid):
        return find_node(work, finding, plan)
    ino = int(work.scan.nat_ino[row])
    work.surgery.set_footer(nid, "nid", nid)
    work.note(finding, f"footer corrected: the summary names nid {nid} too")
    return work.surgery.set_footer(nid, "ino", ino)


def plausible(work: Work, block: NDArray[np.uint8], is_inode: bool) -> bool:
    """Whether a block without a right footer may be the node that the summary says: neither blank nor noise."""
    if is_inode:
        return looks_like_inode(block)
    words = block[: 4 * work.image.geo.addrs_per_block].view("<u4").astype(np.int64)
    words = words[words != 0]
    good = work.image.geo.in_main(words) | (words >= COMPRESS_ADDR) | (words < work.image.geo.max_nid)
    return bool(words.size and 2 * good.sum() > words.size)


def find_nat_block(work: Work, finding: Finding, plan: FindNatBlock) -> bool:
    """Find all lost nodes of a NAT block, and what its other copy still leads to."""
    per, number = work.image.geo.nat_entries_per_block, plan.number
    count = 0
    for nid in range(max(3, number * per), min((number + 1) * per, work.image.geo.max_nid)):
        if work.scan.row_of(nid) < 0 and nid not in work.adopted and work.adopt(nid):
            count += 1
    if number == 0:
        for nid in (1, 2):
            work.surgery.set_nat(nid, nid, 1)
    if count:
        work.note(finding, f"{counted(count, 'entry', 'entries')} rebuilt from the footers of their nodes")
    return bool(count)


def nat_entry(work: Work, finding: Finding, plan: SetNatAddress | SetNatIno) -> bool:
    """Set fields of a NAT entry."""
    if isinstance(plan, SetNatAddress):
        work.surgery.set_nat(plan.nid, block_addr=plan.block_addr)
    else:
        work.surgery.set_nat(plan.nid, ino=plan.ino)
    work.note(finding, "entry corrected")
    return True


def newer_node(work: Work, finding: Finding, plan: TakeNewer) -> bool:
    """Let the NAT lead to the newest copy of a node; all of them in one round, as older ones contradict these."""
    work.surgery.set_nat(plan.nid, plan.ino, plan.block_addr)
    work.note(finding, f"leads to {plan.block_addr:#x}, the newest copy")
    return True


def footer(work: Work, finding: Finding, plan: SetFooter) -> bool:
    """Correct a node's footer, unless the summary too says that the block is another node's: then the NAT is wrong.

    Where the block is another node of the file, written to a wrong place, the node is made anew from what it led to.
    """
    if plan.field == "nid" and work.misdirected.node_in(plan.nid) is not None:
        return _make_anew(work, finding, plan.nid)
    lost = work.leaks.node(plan.nid) if plan.field == "nid" else None
    if lost is not None and lost.named and _named_by_both(work, finding.blkaddr or 0) and work.take(plan.nid, lost):
        work.note(finding, f"nid {plan.nid} found by its footer: this block is another node's")
        return True
    work.note(finding, f"{plan.field} corrected")
    return work.surgery.set_footer(plan.nid, plan.field, plan.value)


def _make_anew(work: Work, finding: Finding, nid: int) -> bool:
    """A node in whose block there is another node of its file: as it lies elsewhere, else around what it led to."""
    scan, row = work.scan, work.scan.row_of(nid)
    known = work.misdirected.place_of(nid) is not None or work.leaks.node(nid) is not None
    parent, slot = int(scan.nid[scan.parent[row]]), int(scan.slot[row])
    if (not known and rebuild_node(work, finding, parent, slot, nid)) or find_node(work, finding, FindNode(nid)):
        return True
    if work.careful:
        return False
    work.make_node(nid, finding.ino or 0, int(scan.offset[row]), {})
    work.guesses.doubtful[finding.ino or 0] = f"in the block of its node {nid} another one was"
    work.note(finding, f"the block is another node; nid {nid} begins anew")
    return True


def _older_is_free(work: Work, older: int, blkaddr: int) -> bool:
    """Whether the segment table calls the block that the NAT has for a node free, and the other one valid.

    It may be the older one all the same, where the valid block was to hold another node and never did: versions tell.
    """
    geo = work.image.geo
    if not geo.in_main(older) or not geo.in_main(blkaddr):
        return False
    known, found = (footer_in(work.surgery.read(place)) for place in (older, blkaddr))
    if known["nid"] == found["nid"] and low_cp_ver(known) > low_cp_ver(found):
        return False
    segno, at = np.divmod(np.array([older, blkaddr]) - geo.main_blkaddr, geo.blocks_per_seg)
    valid = np.unpackbits(work.image.sit.valid_map(segno), axis=1)[np.arange(2), at]
    return valid.tolist() == [0, 1]


def _named_by_both(work: Work, blkaddr: int) -> bool:
    """Whether footer and summary of a block name the same node."""
    return named_by_summaries(work.image, [blkaddr])[0].tolist() == [int(footer_in(work.surgery.read(blkaddr))["nid"])]


def find_child(work: Work, finding: Finding, plan: FindChild) -> bool:
    """Find the right node for a pointer: the one that the NAT lost, or one whose footer says that it belongs there."""
    parent, slot, child = plan.nid, plan.slot, plan.child
    if finding.problem is NODE_TWICE:
        parent, slot = _wrong_of_two(work, parent, slot, child)
    if finding.problem is NODE_MISSING and work.adopt(child):
        work.note(finding, f"nid {child} found by its footer")
        return True
    ino = finding.ino or 0
    offset = work.child_offset(parent, slot)
    for row in work.scan.unreferenced.tolist():
        own = work.scan.footer[row]
        if int(own["ino"]) == ino and int(own["flag"]) >> 3 == offset and own["nid"] == work.scan.nid[row]:
            work.note(finding, f"nid {work.scan.nid[row]} belongs there")
            return work.surgery.set_pointer(parent, slot, int(work.scan.nid[row]))
    nid = work.leaks.of_inode(ino, offset)
    if nid is not None and work.scan.row_of(nid) < 0 and work.adopt(nid):
        work.note(finding, f"nid {nid} found by its footer")
        return work.surgery.set_pointer(parent, slot, nid)
    return False


def _wrong_of_two(work: Work, parent: int, slot: int, child: int) -> tuple[int, int]:
    """Which of two pointers (nid, slot) to a node is wrong: the other one, where the footer says that it is here."""
    scan, row = work.scan, work.scan.row_of(child)
    said = int(scan.footer["flag"][row]) >> OFFSET_BIT_SHIFT
    if scan.parent[row] < 0 or said != work.child_offset(parent, slot) or said == scan.offset[row]:
        return parent, slot
    return int(scan.nid[scan.parent[row]]), int(scan.slot[row])


def blocks_of_places(work: Work, finding: Finding, _plan: JudgeLeaked) -> bool:
    """Put back blocks without an owner whose summaries name a place that is only reserved, or that leads astray.

    A reserved place was written there, and where there is the mark of a compressed cluster no such cluster begins.  An
    address leads astray where the segment table calls the block free, and its summary names another place: that is
    three against one, unless the tables are behind the log: then neither is taken.  The first finding of a round does
    it for all.
    """
    if work.places_looked_at:
        return False
    work.places_looked_at = True
    newer = _newer_nodes(work)
    if newer:
        work.note(finding, f"{newer} newer nodes found; the table led to older copies, in blocks that are free")
        return True
    written = astray = marked = 0
    clusters = Clusters(work.scan)
    segnos = distinct(work.image.geo.segno(np.array([lost[0].blkaddr for lost in work.leaks.data.values()], np.int64)))
    garbled = set(segnos[work.image.sit.contradicts_itself(segnos)].tolist())
    for (nid, ofs), lost in work.leaks.data.items():
        row = work.scan.row_of(nid)
        if row < 0 or work.scan.kind[row] not in (INODE, DIRECT) or lost[0].version != work.scan.version[row]:
            continue
        if int(work.image.geo.segno(lost[0].blkaddr)) in garbled:
            continue  # what the table calls valid there may be an older copy
        owner = int(work.scan.inode_of[row])
        if owner >= 0 and work.scan.inodes["inline"][owner] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY):
            continue
        words = work.node_words(nid)
        if ofs >= words.size:
            continue
        if words[ofs] == COMPRESS_ADDR and owner >= 0 and not _begins_cluster(work, clusters, owner, ofs, words):
            marked += work.surgery.set_address(nid, ofs, lost[0].blkaddr, work.start_word(nid))
        elif words[ofs] == NEW_ADDR and not work.guesses.journals_lost:
            written += work.surgery.set_address(nid, ofs, lost[0].blkaddr, work.start_word(nid))
        elif _leads_astray(work, nid, ofs, int(words[ofs]), lost[0].blkaddr):
            astray += work.surgery.set_address(nid, ofs, lost[0].blkaddr, work.start_word(nid))
    if marked:
        work.note(
            finding,
            f"{counted(marked, 'block')} found by their summaries where a mark was that no compressed cluster has",
        )
    if written:
        work.note(
            finding, f"{counted(written, 'written block')} found by their summaries where space was only reserved"
        )
    if astray:
        work.note(
            finding,
            f"{counted(astray, 'block')} found by their summaries; the addresses led to free ones, of other places",
        )
    return bool(written or astray or marked)


def _begins_cluster(work: Work, clusters: Clusters, row: int, ofs: int, words: NDArray[np.uint32]) -> bool:
    """Whether a mark may be right.

    It is wrong where none can stand; and where what lies behind it can't be decompressed, and the inode counts fewer
    blocks as saved, or, of a file whose saved blocks were released, more as its own.
    """
    inode = work.scan.inodes[row]
    if not inode["compressed"] or ofs % int(inode["cluster"]):
        return False
    if inode["advise"] & FADVISE_ENCRYPT_BIT or clusters.begin_at(row, ofs, words):
        return True
    if inode["inline"] & F2FS_COMPRESS_RELEASED:
        return int(inode["blocks"]) <= 1 + int(inode["nodes"]) + int(inode["data"])
    return int(inode["compr_blocks"]) >= int(inode["saved"])


def _newer_nodes(work: Work) -> int:
    """Let the NAT lead to what is valid, and not younger, where it leads to a copy of a node in a block that is free.

    The summary of the newer block names the node, too; where the table of valid blocks may be behind the log, only its
    version says that it is newer.  Of two copies of one version in one segment the first is the older one, whatever a
    garbled table says.  How many there were.
    """
    scan, geo, count = work.scan, work.image.geo, 0
    for nid, copies in work.leaks.nodes.items():
        row, best = scan.row_of(nid), max(copies)
        if row < 0 or not best.named or best.ino != scan.footer["ino"][row] or not geo.in_main(int(scan.addr[row])):
            continue
        segno, at = divmod(int(scan.addr[row]) - geo.main_blkaddr, geo.blocks_per_seg)
        free = not np.unpackbits(work.image.sit.valid_map(np.array([segno]))[0])[at]
        block = work.image.block(int(scan.addr[row]))
        if is_copy(block, work.image.block(best.blkaddr), bool(geo.feature & F2FS_FEATURE_INODE_CHKSUM)):
            continue
        own = int(low_cp_ver(footer_in(block)))
        before = int(geo.segno(best.blkaddr)) == segno and best.blkaddr < scan.addr[row]  # a log goes upwards
        if free and (best.cp_ver > own or (best.cp_ver == own and not before and not work.guesses.journals_lost)):
            count += work.take(nid, best)
    return count


def _leads_astray(work: Work, nid: int, ofs: int, blkaddr: int, lost: int) -> bool:
    """Whether an address leads to a block that is free by the segment table, and of another place by its summary.

    A summary that is blank may have been lost; where the table calls the whole segment empty, a log has not come so
    far, or all valid blocks of the segment have summaries, nothing was ever there, and where the extent that the inode
    remembers has the lost block in this place, that is a witness more.
    """
    geo = work.image.geo
    if work.guesses.journals_lost or not geo.in_main(blkaddr):
        return False
    segno, at = divmod(blkaddr - geo.main_blkaddr, geo.blocks_per_seg)
    valid = np.unpackbits(work.image.sit.valid_map(np.array([segno]))[0])
    named, places = named_by_summaries(work.image, [blkaddr])
    other = (
        (int(named[0]), int(places[0])) != (nid, ofs)
        if named[0]
        else summaries_of(work.image, np.array([segno]))[0][0]["nid"][valid.astype(np.bool_)].all()
        or ahead_of_log(work.image, blkaddr)
        or _remembered(work, nid, ofs) == lost
    )
    return not valid[at] and other


def _remembered(work: Work, nid: int, ofs: int) -> int:
    """The block that the extent of an inode has in this place of a node; 0 where it does not reach there."""
    row = work.scan.row_of(nid)
    inode = work.scan.inodes[int(work.scan.inode_of[row])]
    at = int(work.scan.fofs[row]) + ofs - int(inode["ext_fofs"])
    return int(inode["ext_blk"]) + at if 0 <= at < int(inode["ext_len"]) else 0


def lost_nodes(work: Work, finding: Finding, _plan: CountNodes) -> bool:
    """Find as many nodes as the checkpoint counts and the table lacks; all, where nothing is left of the checkpoint.

    Valid blocks count first: those that their summaries name, as many as there are where the count itself was hit; that
    no summary names; of which one names another.  Then, where the segment table was lost too, any that the log has of
    the nids in a lost block of the table.  Among those the ones that the table's other copy knows, whose parent is
    there, that are newer.
    """
    wanted, there = int(finding.found or 0), int(finding.expected or 0)
    missing, everything = wanted - there, work.guesses.pack_derived
    hit = wanted < max(there, work.image.cp.valid_inode_count)  # no fewer than there are, and than inodes
    count = _last_inodes(work)
    if count or (missing <= 0 and not (everything or hit)):
        if count:
            work.note(
                finding, f"{counted(count, 'inode')} found that the checkpoint with the lost journals had written"
            )
        return bool(count)
    valid = {nid: max(found) for nid, found in work.leaks.nodes.items()}
    most = len(valid) if everything else missing
    count = _adopt_best(work, valid, len(valid) if hit else most, _Named.ITSELF)
    for named in (_Named.NOBODY, _Named.ANOTHER):
        count += _adopt_best(work, valid, most - count, named)
    if (count < missing or everything) and not (count and work.guesses.journals_lost):  # else once these are known
        old = _old_candidates(work, is_counted=not everything)
        most = len(old) if everything else missing - count
        for named in (_Named.ITSELF, _Named.NOBODY):
            most -= (more := _adopt_best(work, old, most, named))
            count += more
        if not everything:
            count += _inodes_of_journal(work, missing - count)
    if count:
        work.note(finding, f"{count} lost nodes found by their footers and summaries")
    return bool(count)


def _last_inodes(work: Work) -> int:
    """Find inodes that were written for the checkpoint of which the journals were lost, and that the table never had.

    Deleted ones that it still has make the checkpoint's count too low to say how many there are.
    """
    if not work.guesses.journals_lost or work.guesses.pack_derived:
        return 0
    before = (work.image.cp.checkpoint_ver - 1) & CP_VER_LOW
    last = {nid: node for nid, node in work.leaks.newest_old().items() if node.ino == nid and node.cp_ver == before}
    return sum(_adopt_best(work, last, len(last), named) for named in (_Named.ITSELF, _Named.NOBODY))


def _inodes_of_journal(work: Work, most: int) -> int:
    """Find inodes that only the lost journals had, as many as the checkpoint counts; how many it was.

    Their other nodes are found by their pointers.
    """
    if not work.guesses.journals_lost:
        return 0
    old = {nid: node for nid, node in work.leaks.newest_old().items() if node.ino == nid}
    most = min(most, work.image.cp.valid_inode_count - count_inodes(work.scan))
    found = _adopt_best(work, old, most, _Named.ITSELF)
    return found + _adopt_best(work, old, most - found, _Named.NOBODY)


class _Named(Enum):
    """Whom the summary of a node's block names."""

    ITSELF = auto()
    NOBODY = auto()
    ANOTHER = auto()  # the summary was hit, or the footer


def _old_candidates(work: Work, is_counted: bool) -> dict[int, LostNode]:
    """The newest copy, valid or not, of each node that was in a lost block of the NAT; else a wrong count is no reason
    to take a node.

    Where the journals were lost, the segment table is behind the log, and what the other copy of a NAT block has in use
    counts as well, wherever the node was then.
    """
    per, lost = work.image.geo.nat_entries_per_block, _lost_nat_blocks(work, is_counted)

    def may_be_lost(nid: int, node: LostNode) -> bool:
        if work.scan.row_of(nid) >= 0:
            return False
        return nid // per in lost or (work.guesses.journals_lost and work.other_nat_copy(nid)[1] == node.ino)

    return {nid: node for nid, node in work.leaks.newest_old().items() if may_be_lost(nid, node)}


def _lost_nat_blocks(work: Work, is_counted: bool) -> set[int]:
    """Numbers of the NAT blocks with entries that lead nowhere, or in which nothing is in use.

    The latter only where it is known how many nodes are lost: such blocks are full of what was deleted.  Where the
    journals were lost the live copy may be the older one, and the other, if it is noise, the one that was lost.
    """
    geo, nids = work.image.geo, work.scan.nid
    numbers = np.arange(geo.nat_blocks)
    lost = ~np.isin(numbers, nids // geo.nat_entries_per_block) & is_counted
    lost[np.unique(nids[~work.scan.usable] // geo.nat_entries_per_block)] = True
    if work.guesses.journals_lost:
        lost |= [_is_noise(work, work.other_nat_block(number)) for number in numbers.tolist()]
    return set(np.flatnonzero(lost).tolist())


def _is_noise(work: Work, block: NDArray[np.uint8]) -> bool:
    """Whether most entries in use of a NAT block lead to no place for a node."""
    geo = work.image.geo
    addrs = NatBlock.at(geo.block_size).table(block)["entries"]["block_addr"].astype(np.int64)
    used = addrs[addrs > PLACEHOLDER]
    return bool(2 * np.count_nonzero(geo.in_main(used)) < used.size)


def _other_copy_knows(work: Work, nid: int, node: LostNode) -> bool:
    return work.other_nat_copy(nid)[1:] == (node.ino, node.blkaddr)


def _adopt_best(work: Work, found: dict[int, LostNode], most: int, named: _Named) -> int:
    """Let the NAT lead to at most so many of these nodes, of those whose summaries name such a nid; how many it was.

    Where the summary names another, something else must confirm the footer: the table's other copy, or that it is an
    inode's, which has its number twice.
    """
    lost = [nid for nid in found if most > 0 and work.scan.row_of(nid) < 0 and nid not in work.adopted]
    names, _ = named_by_summaries(work.image, [found[nid].blkaddr for nid in lost])
    lost = [nid for nid, name in zip(lost, names.tolist(), strict=True) if _named(nid, name) is named]

    def rank(nid: int) -> tuple[bool, bool, bool, int]:
        node = found[nid]
        owned = node.ino == nid or node.ino in found or work.scan.row_of(node.ino) >= 0
        return work.wanted(nid, node), _other_copy_knows(work, nid, node), owned, node.cp_ver

    if named is _Named.ANOTHER:
        lost = [nid for nid in lost if nid == found[nid].ino or _other_copy_knows(work, nid, found[nid])]
    return sum(work.take(nid, found[nid]) for nid in sorted(lost, key=rank, reverse=True)[: max(most, 0)])


def _named(nid: int, name: int) -> _Named:
    if name == nid:
        return _Named.ITSELF
    return _Named.ANOTHER if name else _Named.NOBODY
