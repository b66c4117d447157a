"""The repairs of structures, by problem: what was lost is looked for, fields are corrected, the rest is given up.

Each takes a round's `Work` and a finding, changes structures through `Surgery`, and notes what it did.  The groups at
the end say which repair goes with which code; `repair` applies them.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    F2FS_FEATURE_EXTRA_ATTR,
    F2FS_FEATURE_RO,
    F2FS_FEATURE_SB_CHKSUM,
    F2FS_IMMUTABLE_FL,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    F2FS_NAME_LEN,
    F2FS_ROOT_INO,
    FEATURES,
    NEW_ADDR,
    NULL_ADDR,
    OFFSET_BIT_SHIFT,
    QUOTA_NAMES,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.file_type import S_IFMTS, mode_of_type
from f2tools.f2fs.layout.hashes import f2fs_crc32
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.node_tree import leads_to_nodes, place_of
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.layout.xattr import F2FS_XATTR_MAGIC, XattrHeader
from f2tools.f2fs.volume.acl import parse_disk
from f2tools.f2fs.volume.dentries import DentryArea
from f2tools.f2fs.volume.quota import read_quota
from f2tools.f2fs.write.quota_tree import Limits, fresh
from f2tools.fsck.checks.contents import Readers, use_of
from f2tools.fsck.checks.dir import Tree
from f2tools.fsck.checks.summary import summaries_of
from f2tools.fsck.checks.super import NEED_EXTRA
from f2tools.fsck.facts.checksums import wrong_byte
from f2tools.fsck.facts.leaks import LostNode
from f2tools.fsck.facts.owners import ALIAS, NODE
from f2tools.fsck.facts.scan import DIRECT, INODE, UNKNOWN
from f2tools.fsck.findings import Finding
from f2tools.fsck.repair.contents import alias_extent, cluster, lost_head, lost_heads, rewrite, seal
from f2tools.fsck.repair.dentries import dentry_bits, dentry_name, dentry_target, dentry_type, remove_dentry
from f2tools.fsck.repair.work import Work, set_field

# -- group 1: look for what was lost ----------------------------------------------------------------------------------


def find_node(work: Work, finding: Finding) -> bool:
    """Let the NAT lead to the node's block again."""
    assert finding.repair is not None
    nid = finding.repair.data.get("nid") or finding.repair.data.get("target") or 0
    if work.adopt(nid):
        work.note(finding, f"nid {nid} found by its footer")
        return True
    return False


def stray_node(work: Work, finding: Finding) -> bool:
    """A block whose footer is no longer that of its node: where the summary still names the node, the footer is wrong.

    Otherwise the node is looked for elsewhere.
    """
    assert finding.repair is not None
    nid, blkaddr = finding.repair.data["nid"], finding.blkaddr or 0
    segno, at = divmod(blkaddr - work.image.geo.main_blkaddr, work.image.geo.blocks_per_seg)
    entries, _ = summaries_of(work.image, np.array([segno]))
    row = work.scan.row_of(nid)
    block = work.surgery.read(blkaddr)
    own = block[-NodeFooter.size :].view(NodeFooter.dtype)[0]
    other = work.scan.row_of(int(own["nid"]))
    named = int(entries[0, at]["nid"]) == nid and row >= 0
    taken = other >= 0 and work.scan.addr[other] == blkaddr
    if not named or taken or not plausible(work, block, work.scan.nat_ino[row] == nid):
        return find_node(work, finding)
    ino = int(work.scan.nat_ino[row])
    work.surgery.set_footer(nid, "nid", nid)
    work.note(finding, f"footer corrected: the summary names nid {nid} too")
    return work.surgery.set_footer(nid, "ino", ino)


def plausible(work: Work, block: NDArray[np.uint8], is_inode: bool) -> bool:
    """Whether a block without a right footer may be the node that it is said to be: not blank, and no noise."""
    if is_inode:
        inode = InodeLayout.at(work.image.geo.block_size).table(block)[0]
        signs = (
            inode["i_mode"] & 0xF000 in S_IFMTS, 0 < inode["i_links"] < 1 << 20, inode["i_namelen"] <= F2FS_NAME_LEN,
            inode["i_size"] < 1 << 48, 0 < inode["i_blocks"] < 1 << 32,
        )  # fmt: skip
        return sum(signs) >= len(signs) - 1
    words = block[: 4 * work.image.geo.addrs_per_block].view("<u4").astype(np.int64)
    words = words[words != 0]
    good = work.image.geo.in_main(words) | (words >= COMPRESS_ADDR) | (words < work.image.geo.max_nid)
    return bool(words.size and 2 * good.sum() > words.size)


def find_nat_block(work: Work, finding: Finding) -> bool:
    """All lost nodes of a NAT block, and what its other copy still leads to."""
    assert finding.repair is not None
    per, number = work.image.geo.nat_entries_per_block, finding.repair.data["number"]
    count = 0
    for nid in range(max(3, number * per), min((number + 1) * per, work.image.geo.max_nid)):
        if work.scan.row_of(nid) < 0 and nid not in work.adopted and work.adopt(nid):
            count += 1
    if number == 0:
        for nid in (1, 2):
            work.surgery.set_nat(nid, nid, 1)
    if count:
        work.note(finding, f"{count} entries rebuilt from the footers of their nodes")
    return bool(count)


def nat_entry(work: Work, finding: Finding) -> bool:
    """Set fields of a NAT entry."""
    assert finding.repair is not None
    data = dict(finding.repair.data)
    work.surgery.set_nat(data.pop("nid"), **data)
    work.note(finding, "entry corrected")
    return True


def footer(work: Work, finding: Finding) -> bool:
    """Correct a node's footer."""
    assert finding.repair is not None
    data = finding.repair.data
    work.note(finding, f"{data['field']} corrected")
    return work.surgery.set_footer(data["nid"], data["field"], data["value"])


def find_child(work: Work, finding: Finding) -> bool:
    """The right node for a pointer: where the NAT lost it; else a node that says of itself that it belongs there."""
    assert finding.repair is not None
    data = finding.repair.data
    parent, slot, child = data["nid"], data["slot"], data["child"]
    if finding.code == "F007":
        parent, slot = _wrong_of_two(work, parent, slot, child)
    if finding.code == "F005" and work.adopt(child):
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


def reserved_places(work: Work, finding: Finding) -> bool:
    """Blocks without an owner whose summaries name a place that is only reserved: they are what was written there.

    The first finding of a round does it for all.
    """
    if work.reserved_looked_at:
        return False
    work.reserved_looked_at = True
    found = 0
    for (nid, ofs), lost in work.leaks.data.items():
        row = work.scan.row_of(nid)
        if row < 0 or work.scan.kind[row] not in (INODE, DIRECT) or lost[0].version != work.scan.version[row]:
            continue
        words = node_words(work, nid)
        if ofs < words.size and words[ofs] == NEW_ADDR:
            found += work.surgery.set_address(nid, ofs, lost[0].blkaddr, work.start_word(nid))
    if found:
        work.note(finding, f"{found} written blocks found by their summaries where space was only reserved")
    return bool(found)


def lost_nodes(work: Work, finding: Finding) -> bool:
    """As many nodes as the checkpoint counts and the table lacks, of those whose footer and summary agree.

    Valid blocks count first; then, where the segment table was lost too, any that the log has of the nids in a lost
    block of the table.  Among those the ones that the table's other copy knows, whose parent is there, that are newer.
    """
    missing = int(finding.found or 0) - int(finding.expected or 0)
    everything = work.image.pack_derived
    if missing <= 0 and not everything:
        return False
    valid = {nid: max(found) for nid, found in work.leaks.nodes.items()}
    most = len(valid) if everything else missing
    count = _adopt_best(work, valid, most)
    if count < most:
        count += _adopt_best(work, valid, most - count, blank=True)
    if count < missing:
        old = {nid: node for nid, node in work.leaks.newest_old().items() if _in_lost_block(work, nid)}
        count += _adopt_best(work, old, missing - count)
        if count < missing:
            count += _adopt_best(work, old, missing - count, blank=True)
    if count:
        work.note(finding, f"{count} lost nodes found by their footers and summaries")
    return bool(count)


def _in_lost_block(work: Work, nid: int) -> bool:
    """Whether the block of the table with a nid has nothing, or what can't be; else a wrong count is no reason."""
    number = nid // work.image.geo.nat_entries_per_block
    return number not in work.used_nat_blocks or number in work.bad_nat_blocks


def _adopt_best(work: Work, found: dict[int, LostNode], most: int, blank: bool = False) -> int:
    """Let the NAT lead to at most so many of these nodes; the number of them.

    Their summaries must name them; or, with `blank`, nobody.
    """
    lost = [nid for nid in found if work.scan.row_of(nid) < 0 and nid not in work.adopted]
    named = summaries_of_blocks(work, [found[nid].blkaddr for nid in lost])
    lost = [nid for nid, name in zip(lost, named, strict=True) if name == (0 if blank else nid)]

    def rank(nid: int) -> tuple[bool, bool, int]:
        node = found[nid]
        known = work.other_nat_copy(nid)[1:] == (node.ino, node.blkaddr)
        owned = node.ino != nid and (node.ino in found or work.scan.row_of(node.ino) >= 0)
        return known, owned or nid == node.ino, node.cp_ver

    return sum(work.take(nid, found[nid]) for nid in sorted(lost, key=rank, reverse=True)[:most])


def summaries_of_blocks(work: Work, blkaddrs: list[int]) -> list[int]:
    """The nids that the summaries name for these blocks."""
    geo = work.image.geo
    if geo.feature & F2FS_FEATURE_RO or not blkaddrs:
        return [0] * len(blkaddrs)
    segno, at = np.divmod(np.array(blkaddrs) - geo.main_blkaddr, geo.blocks_per_seg)
    segnos, inverse = np.unique(segno, return_inverse=True)
    entries, _ = summaries_of(work.image, segnos)
    return entries["nid"][inverse, at].tolist()


def restore_byte(work: Work, finding: Finding) -> bool:
    """The one byte of an inode that makes its checksum right again."""
    assert finding.repair is not None
    blkaddr = work.surgery.node_addr(finding.repair.data["ino"])
    if blkaddr is None:
        return False
    block = work.surgery.read(blkaddr)
    found = wrong_byte(work.image.sb.uuid, block)
    if found is None:
        return False
    offset, value = found
    work.note(finding, f"byte {offset} is {value:#04x} again: with it the checksum is right")
    block[offset] = value
    work.surgery.write(blkaddr, block)
    return True


# -- group 2: correct fields ------------------------------------------------------------------------------------------


def inode_field(work: Work, finding: Finding) -> bool:
    """Set a field to what it must be."""
    assert finding.repair is not None
    data = finding.repair.data
    ino, name, value = data["ino"], data["field"], data["value"]
    if name == "i_addr":
        block = work.surgery.node_addr(ino)
        if block is None:
            return False
        start = work.start_word(ino)
        work.note(finding, "cleared")
        return work.surgery.edit_node(ino, lambda b: b.__setitem__(slice(360 + 4 * start, 364 + 4 * start), 0))
    if name == "i_ext":
        work.note(finding, "cleared")
        return work.surgery.edit_node(ino, lambda b: b.__setitem__(slice(348, 360), 0))
    if finding.note == "it has nodes":
        at = INODE_ADDR_OFFSET + 4 * work.image.geo.addrs_per_inode
        work.note(finding, "pointers to nodes cleared")
        return work.surgery.edit_node(ino, lambda b: b.__setitem__(slice(at, at + 20), 0))
    if value is None:
        value = _other_value(work, ino, name)
    if value is None:
        return False
    work.note(finding, f"{name} = {value}")
    return work.surgery.set_field(ino, name, int(value))


def _other_value(work: Work, ino: int, name: str) -> int | None:
    """A value for a field of which is only known that it is wrong."""
    row = work.scan.inode_row(ino)
    addr = work.surgery.node_addr(ino)
    if row < 0 or addr is None:
        return None
    block = work.surgery.read(addr)
    inode = work.scan.inodes[row]
    if name in ("i_atime", "i_ctime", "i_mtime", "i_crtime"):
        for other in ("i_ctime", "i_mtime", "i_atime"):
            item = next(item for item in InodeLayout.fields if item.name == other)
            seconds = int.from_bytes(block[item.offset : item.offset + 8].tobytes(), "little", signed=True)
            if other != name and 0 < seconds < 1 << 34:
                return seconds
        return 0
    if name == "i_compress_algorithm":
        return 1
    if name == "i_log_cluster_size":
        return 2
    if name == "i_size" and inode["mode"] >> 12 == stat.S_IFLNK >> 12:
        at = INODE_ADDR_OFFSET + 4 * int(inode["start"]) + 4
        if inode["inline"] & F2FS_INLINE_DATA:
            text = block[at : at + 4000].tobytes()
        else:
            first = int.from_bytes(block[at - 4 : at].tobytes(), "little")
            text = work.surgery.read(first).tobytes() if work.image.geo.in_main(first) else b""
        return max(1, text.find(b"\0"))
    if name == "i_inline":
        kind = int(inode["mode"]) & 0xF000
        gone = F2FS_INLINE_DATA | F2FS_INLINE_DENTRY
        if kind == stat.S_IFDIR:
            gone = F2FS_INLINE_DATA
        elif kind in (stat.S_IFREG, stat.S_IFLNK):
            gone = F2FS_INLINE_DENTRY
        return int(block[3]) & ~gone
    return None


def inode_mode(work: Work, finding: Finding) -> bool:
    """The file type that its witnesses agree on; a regular file where there are none."""
    assert finding.repair is not None
    ino = finding.repair.data["ino"]
    row = work.scan.inode_row(ino)
    kind = finding.repair.data.get("kind") or work.tree.outvoted.get(row, stat.S_IFREG)
    work.note(finding, "type taken from what all else says of it")
    return work.surgery.set_field(ino, "i_mode", kind | int(work.scan.inodes["mode"][row]) & 0o7777)


def inode_advise(work: Work, finding: Finding) -> bool:
    """Take a mark away."""
    assert finding.repair is not None
    ino, bit = finding.repair.data["ino"], finding.repair.data["bit"]
    row = work.scan.inode_row(ino)
    work.note(finding, "mark taken away")
    return work.surgery.set_field(ino, "i_advise", int(work.scan.inodes["advise"][row]) & ~bit & ~0x08)


def reseal(work: Work, finding: Finding) -> bool:
    """Compute an inode's checksum anew."""
    assert finding.repair is not None
    work.note(finding, "checksum computed anew")
    return work.surgery.edit_node(finding.repair.data["ino"], lambda block: None)


def data_pointers(work: Work, finding: Finding) -> bool:
    """Addresses that lead nowhere: the blocks whose summaries name that place; what is not found is cleared."""
    assert finding.repair is not None
    data = finding.repair.data
    nid, found = data["nid"], 0
    start = work.start_word(nid)
    row = int(work.scan.inode_of[work.scan.row_of(nid)])
    for ofs in data["ofs"]:
        lost = work.leaks.data.get((nid, ofs))
        address = lost[0].blkaddr if lost else NULL_ADDR
        if not lost and row >= 0 and lost_head(work, row, ofs, node_words(work, nid)[ofs:]):
            address = COMPRESS_ADDR
        found += address != NULL_ADDR
        work.surgery.set_address(nid, ofs, address, start)
    work.note(finding, f"{found} of {len(data['ofs'])} addresses found by the summaries, the others cleared")
    return True


def node_words(work: Work, nid: int) -> NDArray[np.uint32]:
    """The addresses in an inode or a direct node, as they are now."""
    blkaddr, row = work.surgery.node_addr(nid), work.scan.inode_row(nid)
    if blkaddr is None:
        return np.zeros(0, np.uint32)
    start, count = 0, work.image.geo.addrs_per_block
    if row >= 0:
        start, count = INODE_ADDR_OFFSET + 4 * work.start_word(nid), int(work.scan.inodes["count"][row])
    return work.surgery.read(blkaddr)[start : start + 4 * count].view("<u4")


def shared_block(work: Work, finding: Finding) -> bool:
    """The block that the loser's summary names; where there is none, a copy is made of the shared one."""
    assert finding.repair is not None
    data = finding.repair.data
    lost = work.leaks.data.get((data["nid"], data["ofs"]))
    start = work.start_word(data["nid"])
    if lost:
        work.note(finding, f"its own block {lost[0].blkaddr:#x} found by the summary")
        return work.surgery.set_address(data["nid"], data["ofs"], lost[0].blkaddr, start)
    copy = work.free_block(node=False)
    work.surgery.write(copy, work.surgery.read(data["blkaddr"]))
    work.note(finding, f"a copy made at {copy:#x}")
    return work.surgery.set_address(data["nid"], data["ofs"], copy, start)


def lost_pointers(work: Work, finding: Finding) -> bool:
    """Addresses that were lost: i_blocks is too high by just as many blocks as the summaries name for this file.

    Where the two do not agree nothing is believed, and i_blocks is counted anew later.
    """
    row = work.scan.inode_row(finding.ino or 0)
    missing = int(finding.found or 0) - int(finding.expected or 0)
    if row < 0 or missing <= 0 or work.scan.inodes["inline"][row] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY):
        return False
    mine = (work.scan.inode_of == row) & np.isin(work.scan.kind, (INODE, DIRECT))
    nids = {int(work.scan.nid[node]): node for node in np.flatnonzero(mine).tolist()}
    lost = [(nid, ofs, found[0]) for (nid, ofs), found in work.leaks.data.items() if nid in nids]
    heads = [(nid, ofs) for nid in nids for ofs in _heads_of(work, row, nid)] if not lost else []
    if len(heads) == missing:
        for nid, ofs in heads:
            work.surgery.set_address(nid, ofs, COMPRESS_ADDR, work.start_word(nid))
        work.note(finding, f"{missing} compressed clusters found by what they hold")
        return True
    if len(lost) != missing or any(found.version != work.scan.version[nids[nid]] for nid, _, found in lost):
        return False
    for nid, ofs, found in lost:
        work.surgery.set_address(nid, ofs, found.blkaddr, work.start_word(nid))
    work.note(finding, f"{missing} lost blocks found by the summaries")
    return True


def _heads_of(work: Work, row: int, nid: int) -> list[int]:
    """Places of a node of a compressed file where the mark of a cluster is lost."""
    return lost_heads(work, row, node_words(work, nid)) if work.scan.inodes["compressed"][row] else []


def xattrs(work: Work, finding: Finding) -> bool:
    """Keep the attributes that are sound, in order; everything else is zeroed."""
    assert finding.repair is not None
    ino = finding.repair.data["ino"]
    row = work.scan.inode_row(ino)
    addr = work.surgery.node_addr(ino)
    if row < 0 or addr is None:
        return False
    inode = work.scan.inodes[row]
    stray = work.scan.footer[work.scan.unreferenced]
    waiting = (stray["ino"] == ino) & (stray["flag"] >> OFFSET_BIT_SHIFT == XATTR_NODE_OFFSET)
    if not inode["xattr_nid"] and waiting.any():
        return False  # once their node is back, the attributes are whole
    end = INODE_ADDR_OFFSET + 4 * work.image.geo.addrs_per_inode
    inline = 4 * int(inode["inline_xattr"])
    block = work.surgery.read(addr)
    area = block[end - inline : end].tobytes()
    node = work.surgery.node_addr(int(inode["xattr_nid"])) if inode["xattr_nid"] else None
    tail = work.surgery.read(node) if node is not None else None
    if tail is not None:
        area += tail[: -NodeFooter.size].tobytes()
    clean = np.frombuffer(_sound_xattrs(area), np.uint8)
    block[end - inline : end] = clean[:inline]
    work.surgery.seal(block)
    work.surgery.write(addr, block)
    if tail is not None and node is not None:
        tail[: -NodeFooter.size] = clean[inline:]
        work.surgery.write(node, tail)
    work.note(finding, "sound attributes kept, the rest cleared")
    return True


def _sound_xattrs(area: bytes) -> bytes:
    kept = bytearray(struct.pack("<II", F2FS_XATTR_MAGIC, 1).ljust(XattrHeader.size, b"\0"))
    at, seen = XattrHeader.size, set()
    while at + 4 <= len(area) and area[at : at + 4] != bytes(4):
        index, name_len, value_len = struct.unpack_from("<BBH", area, at)
        end = at + 4 + name_len + value_len
        if end > len(area):
            break
        name = area[at + 4 : at + 4 + name_len]
        acl = index in (2, 3)
        good = index in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11) and acl == (not name) and (index, name) not in seen
        if acl and good:
            try:
                parse_disk(area[at + 4 + name_len : end])
            except F2fsError:
                good = False
        after = -(-end // 4) * 4
        if good:
            seen.add((index, name))
            kept += area[at:end].ljust(after - at, b"\0")
        at = after
    if len(kept) == XattrHeader.size:
        kept[:] = b""
    return bytes(kept).ljust(len(area), b"\0")


# -- group 3: give up what is not there -------------------------------------------------------------------------------


def clear_nat(work: Work, finding: Finding) -> bool:
    """A node that is not to be found: its entry is cleared."""
    assert finding.repair is not None
    nid = finding.repair.data["nid"]
    if nid in work.adopted:
        return False
    if work.scan.nat_ino[work.scan.row_of(nid)] == nid:
        if was_dir(work, nid):
            return rebuild_dir(work, finding, nid)
        if rebuild_file(work, finding, nid):
            return True
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


def missing_inode(work: Work, finding: Finding) -> bool:
    """An entry that leads to no inode: a directory that others remember is rebuilt, else the entry goes."""
    assert finding.repair is not None
    target = finding.repair.data["target"]
    if target in work.made or bad_block(work, target):
        return False  # its block is judged first
    if 3 < target < work.image.geo.max_nid and was_dir(work, target):
        if work.surgery.node_addr(target) is not None and work.scan.row_of(target) >= 0:
            return False
        return rebuild_dir(work, finding, target)
    free = 3 < target < work.image.geo.max_nid and work.scan.row_of(target) < 0
    return (free and rebuild_file(work, finding, target)) or remove_dentry(work, finding)


def bad_block(work: Work, nid: int) -> bool:
    """Whether the NAT leads to a block that is not this node, or to a blank inode: there is a finding of its own."""
    row = work.scan.row_of(nid)
    if row < 0 or work.scan.kind[row] != UNKNOWN:
        return False
    blank = work.scan.nat_ino[row] == nid and work.scan.inode_row(nid) < 0
    return bool(work.scan.footer["nid"][row] != nid or blank)


def root(work: Work, finding: Finding) -> bool:
    """A new root, for all that remember it."""
    if not work.adopt(F2FS_ROOT_INO):
        work.make_dir(F2FS_ROOT_INO, F2FS_ROOT_INO, b"")
        work.surgery.set_field(F2FS_ROOT_INO, "i_pino", 0)
    work.note(finding, "root directory rebuilt")
    return True


def rebuild_file(work: Work, finding: Finding, ino: int) -> bool:
    """A file or symbolic link whose inode is lost while its blocks are known: content and name come back, the rest not.

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
    work.note(finding, f"file {ino} rebuilt around {len(blocks)} blocks{more} that were its own")
    return True


def blank_inode(work: Work, finding: Finding) -> bool:
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


def clear_pointer(work: Work, finding: Finding) -> bool:
    """A pointer to a node that is not to be found: it is made anew of what it led to, else the pointer goes."""
    assert finding.repair is not None
    data = finding.repair.data
    if rebuild_node(work, finding, data["nid"], data["slot"], data["child"]):
        return True
    work.note(finding, "pointer cleared")
    return work.surgery.set_pointer(data["nid"], data["slot"], 0)


def rebuild_node(work: Work, finding: Finding, parent: int, slot: int, child: int) -> bool:
    """A lost node that led to other nodes, or to data: those know their place in the file."""
    ino, per = finding.ino or 0, work.image.geo.addrs_per_block
    row = work.scan.row_of(child)
    free = row < 0 or (work.scan.kind[row] == UNKNOWN and work.scan.footer["nid"][row] != child)
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


def reattach(work: Work, finding: Finding) -> bool:
    """A node that nothing points to: back into its place where that is empty, else freed.

    Where the node above is lost too, another is made; where that one waits for its own place, this one waits with it.
    """
    assert finding.repair is not None
    nid = finding.repair.data["nid"]
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
            if inode["inline"] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY) and slot < 5:
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
        return False  # whoever looks after that pointer comes first
    made = work.free_nid()
    work.make_node(made, ino, place[0], {place[1]: nid})
    done = put_in_place(work, ino, place[0], made)
    if done:
        work.placed.add(nid)
    else:
        work.unmake(made, ino, place[0])
    return done


def clear_clusters(work: Work, finding: Finding) -> bool:
    """Addresses of clusters that can't be: cleared in all nodes of the file."""
    row = work.scan.inode_row(finding.ino or 0)
    if row < 0:
        return False
    cluster = int(work.scan.inodes["cluster"][row])
    for node in np.flatnonzero((work.scan.inode_of == row) & np.isin(work.scan.kind, (1, 2))).tolist():
        nid, is_inode = int(work.scan.nid[node]), work.scan.kind[node] == 1
        start = INODE_ADDR_OFFSET + 4 * work.start_word(nid) if is_inode else 0
        count = int(work.scan.inodes["count"][row]) if is_inode else work.image.geo.addrs_per_block // cluster * cluster

        def change(block: NDArray[np.uint8], start: int = start, count: int = count) -> None:
            words = block[start : start + 4 * count].view("<u4")
            heads = words == 0xFFFFFFFE
            place = np.arange(count) % cluster == 0 if cluster > 1 else np.zeros(count, np.bool_)
            words[heads & ~place] = 0
            for at in np.flatnonzero(heads & place).tolist():
                body = words[at + 1 : at + cluster]
                if not work.image.geo.in_main(body.astype(np.int64)).any():
                    words[at : at + cluster] = 0

        work.surgery.edit_node(nid, change)
    work.note(finding, "addresses cleared")
    return True


def unmix(work: Work, finding: Finding) -> bool:
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
            fresh = work.free_block()
            work.surgery.write(fresh, work.surgery.read(start + at))
            work.surgery.set_nat(owner, block_addr=fresh)
            continue
        lost = work.leaks.data.get((owner, place))
        address = lost[0].blkaddr if lost else NULL_ADDR
        if not lost and work.image.sit.vblocks[segno]:
            valid = np.unpackbits(work.image.sit.valid_map(np.array([segno]))[0])
            if valid[at]:  # who knows: it is kept, in a place of its own
                address = work.free_block(node=False)
                work.surgery.write(address, work.surgery.read(start + at))
        work.surgery.set_address(owner, place, address, work.start_word(owner))
    work.note(finding, f"{int(few.sum())} blocks of the other kind moved out")
    return True


def lost_quota(work: Work, finding: Finding) -> bool:
    """A quota file whose inode is lost: an empty one, to be filled later."""
    ino = finding.ino or 0
    if not 3 < ino < work.image.geo.max_nid or work.scan.inode_row(ino) >= 0 or work.adopt(ino):
        return False
    work.make_inode(ino, stat.S_IFREG | 0o600, F2FS_IMMUTABLE_FL)
    work.note(finding, "an empty quota file made")
    return True


def cut_chain(work: Work, finding: Finding) -> bool:
    """Let the chain of fsync'ed nodes end before it goes astray."""
    assert finding.repair is not None

    def change(block: NDArray[np.uint8]) -> None:
        block[-NodeFooter.size :].view(NodeFooter.dtype)["next_blkaddr"] = NEW_ADDR

    work.surgery.edit(finding.repair.data["blkaddr"], change)
    work.note(finding, "cut there")
    return True


def superblock(work: Work, finding: Finding) -> bool:
    """Both copies from the one in use."""
    chosen = work.image.super_copies[work.image.super_index]
    size = work.image.geo.block_size
    raw = bytearray(work.image.device.pread(chosen.offset, SuperBlock.size))
    if work.image.geo.feature & F2FS_FEATURE_SB_CHKSUM:
        raw[-4:] = f2fs_crc32(bytes(raw[:-4])).to_bytes(4, "little")
    for offset in (1024, size + 1024):
        if work.image.device.pread(offset, SuperBlock.size) != bytes(raw):
            work.image.device.pwrite(offset, bytes(raw))
            work.surgery.changed += 1
    work.note(finding, f"both copies are as copy {chosen.index}")
    return True


def super_field(work: Work, finding: Finding) -> bool:
    """A field of both copies."""
    for copy in work.image.super_copies:
        if copy.sb is None:
            continue
        raw = bytearray(work.image.device.pread(copy.offset, SuperBlock.size))
        if finding.code == "S011":
            at = SuperBlock.offset_of("s_encoding")
            raw[at : at + 2] = (1).to_bytes(2, "little")
        elif finding.code == "S007":
            assert finding.repair is not None
            at = SuperBlock.offset_of("feature")
            word = int.from_bytes(raw[at : at + 4], "little")
            if finding.repair.data["extra_attr"]:
                word |= F2FS_FEATURE_EXTRA_ATTR
            else:
                word &= ~sum(FEATURES[name] for name in NEED_EXTRA)
            raw[at : at + 4] = word.to_bytes(4, "little")
        else:
            at = SuperBlock.offset_of("qf_ino") + 4 * QUOTA_NAMES.index(finding.note)
            raw[at : at + 4] = bytes(4)
        if work.image.geo.feature & F2FS_FEATURE_SB_CHKSUM:
            raw[-4:] = f2fs_crc32(bytes(raw[:-4])).to_bytes(4, "little")
        work.image.device.pwrite(copy.offset, bytes(raw))
    work.surgery.changed += 1
    work.note(finding, "set")
    return True


def add_dots(work: Work, finding: Finding) -> bool:
    """Put `.` and `..` into a directory, into its first block or the inode; a directory without a block gets one."""
    ino = finding.ino or 0
    row = work.scan.inode_row(ino)
    addr = work.surgery.node_addr(ino)
    if row < 0 or addr is None:
        return False
    blocks = work.lost_addresses(ino)
    if finding.code == "D014" and blocks:
        work.take_back(ino, blocks)
        work.note(finding, f"{len(blocks)} lost blocks found by the summaries")
        return True
    inode = work.scan.inodes[row]
    entry = int(work.tree.parent_entry[row])
    parent = work.tree.ino(int(work.tree.entries["dir"][entry])) if entry >= 0 else int(inode["pino"])
    parent = F2FS_ROOT_INO if ino == F2FS_ROOT_INO else parent
    if inode["inline"] & F2FS_INLINE_DENTRY:
        blkaddr = addr
    else:
        at = INODE_ADDR_OFFSET + 4 * int(inode["start"])
        blkaddr = int(work.surgery.read(addr)[at : at + 4].view("<u4")[0])
        if not work.image.geo.in_main(blkaddr):
            blkaddr = work.free_block(node=False)
            work.surgery.write(blkaddr, np.zeros(work.image.geo.block_size, np.uint8))
            work.surgery.set_address(ino, 0, blkaddr, int(inode["start"]))
            work.surgery.set_field(ino, "i_size", max(int(inode["size"]), work.image.geo.block_size))

    def change(area: DentryArea, view: memoryview, slot: int) -> None:
        have = {found.name for found in area.entries()}
        for name, target in ((b".", ino), (b"..", parent)):
            room = area.room_for(1)
            if name not in have and room is not None:
                area.put(room, name, 0, target, 2)
                work.note(finding, f"{os.fsdecode(name)} added")

    return work.edit_area({"dir": ino, "blkaddr": blkaddr, "slot": 0}, change)


def drop_dots(work: Work, finding: Finding) -> bool:
    """Keep the first `.` and the first `..`; other names that stand twice are for the engine."""
    if finding.repair is None or finding.repair.name != "drop-dots":
        return False
    row = work.scan.inode_row(finding.ino or 0)
    table = work.tree.entries
    which = 1 if finding.note == "." else 2
    for i in np.flatnonzero((table["dir"] == row) & (table["dots"] == which))[1:].tolist():
        data = {"dir": finding.ino, "blkaddr": int(table["blkaddr"][i]), "slot": int(table["slot"][i])}

        def change(area: DentryArea, view: memoryview, slot: int) -> None:
            area.clear(slot)

        work.edit_area(data, change)
    work.note(finding, "the further ones removed")
    return True


def advise(work: Work, finding: Finding) -> bool:
    """Take a mark away that the volume, or the inode, can't have."""
    assert finding.repair is not None
    return (inode_advise if finding.repair.name == "inode-advise" else inode_field)(work, finding)


# -- the groups -------------------------------------------------------------------------------------------------------

Handler = Callable[[Work, Finding], bool]
# what computing the tables anew takes care of
TABLES = frozenset(
    ("C001", "C004", "C005", "C006", "C007", "C008", "C010", "C012", "C013", "C015", "J001", "J002", "G001", "G002",
     "G003", "G004", "G005", "A001", "A002", "A003", "A004", "L001", "L002", "L003", "L004", "L005", "L006", "O001",
     "O002", "O003", "W001")
)  # fmt: skip
SEALED: dict[str, Handler] = {"I014": restore_byte}
# what misleads all that comes after
WITNESSED: dict[str, Handler] = {"I012": inode_field, "I013": inode_field, "I040": inode_mode, "D015": dentry_target}
FIND: dict[str, Handler] = {
    "C005": lost_nodes, "R002": cut_chain,
    "S001": superblock, "S002": superblock, "S003": superblock, "S004": superblock,
    "G003": reserved_places, "S005": superblock, "S007": super_field, "S010": super_field, "S011": super_field,
    "N001": nat_entry, "N002": nat_entry, "N003": find_node, "N004": find_node, "N005": find_node,
    "N006": find_nat_block, "F001": footer, "F002": footer, "F010": stray_node, "F005": find_child, "F006": find_child,
    "F007": find_child, "F008": find_child, "F009": find_child, "D001": find_node,
}  # fmt: skip
CORRECT: dict[str, Handler] = {
    "I001": inode_mode, "I005": inode_field, "I006": inode_field, "I007": inode_field, "I008": inode_field,
    "I009": inode_field, "I010": inode_field, "I011": inode_field,
    "I004": lost_pointers,
    "I015": inode_field, "I016": inode_field, "I017": inode_field, "I018": inode_field, "I021": inode_field,
    "I022": inode_field, "I023": inode_field, "I024": inode_field, "I027": inode_field, "I028": inode_field,
    "I030": inode_field, "I031": inode_field, "I034": inode_field, "I037": inode_field, "I039": inode_field,
    "F003": footer, "F004": footer, "B001": data_pointers, "B002": shared_block, "D002": dentry_type,
    "D003": dentry_name, "D004": dentry_name, "D005": dentry_name, "D007": dentry_name, "D010": dentry_target,
    "D011": dentry_bits,
    "X001": xattrs, "X002": xattrs, "X003": xattrs, "X004": xattrs, "X005": xattrs, "X006": xattrs, "X007": xattrs,
}  # fmt: skip
GIVE_UP: dict[str, Handler] = {
    "U004": root, "N003": clear_nat, "N004": clear_nat, "N005": clear_nat, "F010": clear_nat, "I038": blank_inode,
    "D001": missing_inode, "F005": clear_pointer, "F006": clear_pointer, "F007": clear_pointer, "F008": clear_pointer,
    "F009": clear_pointer, "U003": reattach, "B003": clear_clusters, "Z001": clear_clusters, "D003": remove_dentry,
    "D004": remove_dentry, "D012": remove_dentry, "D013": remove_dentry, "G005": unmix, "Q001": lost_quota,
    "H001": rewrite,
}  # fmt: skip
COUNT: dict[str, Handler] = {
    "I002": inode_field, "I003": inode_field, "I004": inode_field, "I019": inode_field, "I029": inode_field,
    "I025": advise, "V001": advise, "I014": reseal,
}  # fmt: skip
CORRECT |= {"I036": alias_extent, "Z002": cluster, "V002": seal, "D009": add_dots, "D014": add_dots, "D008": drop_dots}
WITHOUT_PLAN = ("I038", "D014", "S011", "G003")  # findings that need no plan to be repaired


def quota_file(tree: Tree, kind: str, ino: int) -> bytes:
    """A quota file with the use that there is, and the limits of the old one where that can be read."""
    readers = Readers(tree.scan)
    limits: dict[int, Limits] = {}
    with suppress(F2fsError, ValueError):
        for entry in read_quota(readers.data, readers.nodes.inode(ino), kind).entries:
            limits[entry.id] = Limits(entry.inodes_soft, entry.inodes_hard, entry.space_soft, entry.space_hard)
    limits = {number: limit for number, limit in limits.items() if limit != Limits()}
    return fresh(kind, use_of(tree, kind), limits)
