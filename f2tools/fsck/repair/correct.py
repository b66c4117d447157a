"""Repairs of what is there and wrong: fields of inodes, addresses, attributes."""

from __future__ import annotations

import stat

import numpy as np
from numpy.typing import NDArray

from f2tools.f2fs.layout.constants import (
    COMPRESS_ADDR,
    F2FS_INLINE_DATA,
    F2FS_INLINE_DENTRY,
    FADVISE_ENCRYPT_BIT,
    MIN_COMPRESS_LOG_SIZE,
    NULL_ADDR,
    OFFSET_BIT_SHIFT,
    XATTR_NODE_OFFSET,
)
from f2tools.f2fs.layout.footers import body_of
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.layout.xattr import FSCRYPT_NONCE_SIZE, XATTR_INDEX_ENCRYPTION, xattr_places
from f2tools.fsck.checks.inode import cipher_length
from f2tools.fsck.facts.checksums import wrong_byte
from f2tools.fsck.facts.nodes import DIRECT, INODE
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import (
    ClearAdvise,
    ClearExtent,
    ClearFirstAddress,
    ClearNodePointers,
    CopyBlock,
    FindBlocks,
    FindKind,
    KeepSoundXattrs,
    Reseal,
    SetBlocks,
    SetField,
    SetKind,
    SetMarks,
    SetPolicy,
)
from f2tools.fsck.repair.attributes import sound_xattrs
from f2tools.fsck.repair.contents import lost_heads
from f2tools.fsck.repair.work import EXTENT, Work


def restore_byte(work: Work, finding: Finding, plan: Reseal) -> bool:
    """The one byte of an inode that makes its checksum right again."""
    blkaddr = work.surgery.node_addr(plan.ino)
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


def set_inode_field(work: Work, finding: Finding, plan: SetField) -> bool:
    """Set a field to its right value; where that is not known, to a possible one."""
    if plan.field == "i_size" and plan.ino in work.guesses.strays:
        return False
    value = _other_value(work, plan.ino, plan.field) if plan.value is None else plan.value
    if value is None:
        return False
    work.note(finding, f"{plan.field} = {value}")
    return work.surgery.set_field(plan.ino, plan.field, int(value))


def clear_first_address(work: Work, finding: Finding, plan: ClearFirstAddress) -> bool:
    """Clear the address before the content of an inode that holds its own."""
    if work.surgery.node_addr(plan.ino) is None:
        return False
    at = INODE_ADDR_OFFSET + 4 * work.start_word(plan.ino)
    return _clear_bytes(work, finding, plan.ino, slice(at, at + 4))


def clear_extent(work: Work, finding: Finding, plan: ClearExtent) -> bool:
    """Clear the extent: it is only a cache."""
    return _clear_bytes(work, finding, plan.ino, EXTENT)


def clear_node_pointers(work: Work, finding: Finding, plan: ClearNodePointers) -> bool:
    """Clear all five pointers to nodes."""
    at = INODE_ADDR_OFFSET + 4 * work.image.geo.addrs_per_inode
    return _clear_bytes(work, finding, plan.ino, slice(at, at + 20), "pointers to nodes cleared")


def _clear_bytes(work: Work, finding: Finding, ino: int, where: slice, said: str = "cleared") -> bool:
    work.note(finding, said)
    return work.surgery.edit_node(ino, lambda block: block.__setitem__(where, 0))


def _other_value(work: Work, ino: int, name: str) -> int | None:
    """A possible value for a field that is known to be wrong; None where there is none."""
    row = work.scan.inode_row(ino)
    addr = work.surgery.node_addr(ino)
    if row < 0 or addr is None:
        return None
    block = work.surgery.read(addr)
    inode = work.scan.inodes[row]
    if name == "i_log_cluster_size":
        if inode["bad_clusters"]:  # marks that agree on no size
            work.guesses.doubtful[ino] = "how many blocks its compressed clusters have can't be told"
        return MIN_COMPRESS_LOG_SIZE
    if name == "i_size" and inode["mode"] >> 12 == stat.S_IFLNK >> 12:
        at = INODE_ADDR_OFFSET + 4 * int(inode["start"]) + 4
        if inode["inline"] & F2FS_INLINE_DATA:
            text = block[at : at + 4000].tobytes()
        else:
            first = int.from_bytes(block[at - 4 : at].tobytes(), "little")
            text = work.surgery.read(first).tobytes() if work.image.geo.in_main(first) else b""
        if inode["advise"] & FADVISE_ENCRYPT_BIT:
            return cipher_length(text, 1)
        return max(1, text.find(b"\0"))
    if name == "i_inline":
        kind = stat.S_IFMT(int(inode["mode"]))
        gone = F2FS_INLINE_DATA | F2FS_INLINE_DENTRY
        if kind == stat.S_IFDIR:
            gone = F2FS_INLINE_DATA
        elif kind in (stat.S_IFREG, stat.S_IFLNK):
            gone = F2FS_INLINE_DENTRY
        return int(block[3]) & ~gone
    return None


def inode_mode(work: Work, finding: Finding, plan: FindKind | SetKind) -> bool:
    """The file type that its witnesses agree on; a regular file where there are none."""
    ino = plan.ino
    row = work.scan.inode_row(ino)
    kind = plan.kind if isinstance(plan, SetKind) else work.tree.outvoted.get(row, stat.S_IFREG)
    work.note(finding, "type taken from what all else says of it")
    return work.surgery.set_field(ino, "i_mode", kind | int(work.scan.inodes["mode"][row]) & 0o7777)


def inode_advise(work: Work, finding: Finding, plan: ClearAdvise) -> bool:
    """Clear a mark of i_advise."""
    ino, bit = plan.ino, plan.bit
    row = work.scan.inode_row(ino)
    work.note(finding, "mark taken away")
    return work.surgery.set_field(ino, "i_advise", int(work.scan.inodes["advise"][row]) & ~bit & ~0x08)


def reseal(work: Work, finding: Finding, plan: Reseal) -> bool:
    """Compute an inode's checksum anew."""
    work.note(finding, "checksum computed anew")
    return work.surgery.edit_node(plan.ino, lambda block: None)


def data_pointers(work: Work, finding: Finding, plan: FindBlocks) -> bool:
    """Replace addresses that lead nowhere by the blocks whose summaries name that place; what is not found is cleared,
    or left by a careful repair.
    """
    nid = plan.nid
    row = int(work.scan.inode_of[work.scan.row_of(nid)])
    words, addresses = work.node_words(nid), dict[int, int]()
    for ofs in plan.ofs:
        lost = work.leaks.data.get((nid, ofs))
        address = lost[0].blkaddr if lost else NULL_ADDR
        addresses[ofs] = address
        words[ofs : ofs + 1] = address  # a place beyond those that the node has is none of its words
    heads = lost_heads(work, row, words) if row >= 0 else []
    addresses |= {ofs: COMPRESS_ADDR for ofs in heads if ofs in addresses}
    if work.careful:
        addresses = {ofs: address for ofs, address in addresses.items() if address != NULL_ADDR}
        if not addresses:
            return False
    work.surgery.set_addresses(nid, addresses, work.start_word(nid))
    found = sum(address != NULL_ADDR for address in addresses.values())
    others = "left" if work.careful else "cleared"
    work.note(finding, f"{found} of {len(plan.ofs)} addresses found by the summaries, the others {others}")
    return True


def cluster_marks(work: Work, finding: Finding, plan: SetMarks) -> bool:
    """Put back the marks of compressed clusters; a careful repair does only where a count speaks for it."""
    if work.careful and not plan.sure:
        return False
    places = dict[int, list[int]]()
    for nid, ofs in plan.places:
        places.setdefault(nid, []).append(ofs)
    for nid, some in places.items():
        work.surgery.set_addresses(nid, dict.fromkeys(some, COMPRESS_ADDR), work.start_word(nid))
    work.note(finding, "put back, by what lies behind it")
    return True


def shared_block(work: Work, finding: Finding, plan: CopyBlock) -> bool:
    """The block that the loser's summary names; where there is none, a copy is made of the shared one."""
    inode = int(work.scan.inode_of[work.scan.row_of(plan.nid)])
    if inode in work.lost_inline:
        return False  # what looks like an address is content: it stays as it is, and gets its flag
    if inode >= 0 and int(work.scan.inode_nids[inode]) in work.guesses.strays:
        return False
    lost = work.leaks.data.get((plan.nid, plan.ofs))
    start = work.start_word(plan.nid)
    if lost:
        work.note(finding, f"its own block {lost[0].blkaddr:#x} found by the summary")
        return work.surgery.set_address(plan.nid, plan.ofs, lost[0].blkaddr, start)
    copy = work.room.block(node=False)
    work.surgery.write(copy, work.surgery.read(plan.blkaddr))
    work.note(finding, f"a copy made at {copy:#x}")
    return work.surgery.set_address(plan.nid, plan.ofs, copy, start)


def lost_pointers(work: Work, finding: Finding, plan: SetBlocks) -> bool:
    """Put back lost addresses: i_blocks is too high by just as many blocks as the summaries name for this file.

    Where the two do not agree nothing is believed, and i_blocks is counted anew later.
    """
    row = work.scan.inode_row(plan.ino)
    missing = int(finding.found or 0) - int(finding.expected or 0)
    if row < 0 or missing <= 0 or work.scan.inodes["inline"][row] & (F2FS_INLINE_DATA | F2FS_INLINE_DENTRY):
        return False
    if row in work.scan.aliases | work.scan.released:  # its extent is all that leads to blocks
        return False
    mine = (work.scan.inode_of == row) & np.isin(work.scan.kind, (INODE, DIRECT))
    nids = {int(work.scan.nid[node]): node for node in np.flatnonzero(mine).tolist()}
    lost = [
        (nid, ofs, found[0])
        for (nid, ofs), found in work.leaks.data.items()
        if nid in nids and _is_empty(work, nid, ofs)
    ]
    heads = [(nid, ofs) for nid in nids for ofs in lost_heads(work, row, work.node_words(nid))] if not lost else []
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


def _is_empty(work: Work, nid: int, ofs: int) -> bool:
    """Whether a node leads nowhere at this place: what it leads to would be lost in turn."""
    words = work.node_words(nid)
    return ofs < words.size and not words[ofs]


def xattrs(work: Work, finding: Finding, plan: KeepSoundXattrs) -> bool:
    """Keep the attributes that are sound, in order, and zero everything else; a careful repair does not give any up."""
    ino = plan.ino
    row = work.scan.inode_row(ino)
    addr = work.surgery.node_addr(ino)
    if row < 0 or addr is None:
        return False
    inode = work.scan.inodes[row]
    stray = work.scan.footer[work.scan.unreferenced]
    waiting = (stray["ino"] == ino) & (stray["flag"] >> OFFSET_BIT_SHIFT == XATTR_NODE_OFFSET)
    if not inode["xattr_nid"] and waiting.any():
        return False  # once their node is back, the attributes are whole
    attributes = _Attributes(work, row, addr)
    area = attributes.area
    clean = np.frombuffer(sound_xattrs(area), np.uint8)
    if work.careful and np.count_nonzero(clean) < len(area) - area.count(0):
        return False
    attributes.write(clean)
    work.note(finding, "sound attributes kept, the rest cleared")
    return True


def encryption_policy(work: Work, finding: Finding, plan: SetPolicy) -> bool:
    """Put the policy of its neighbours into the encryption context of an inode."""
    row, addr = work.scan.inode_row(plan.ino), work.surgery.node_addr(plan.ino)
    if row < 0 or addr is None:
        return False
    attributes, policy = _Attributes(work, row, addr), bytes.fromhex(plan.policy)
    area = bytearray(attributes.area)
    for place in xattr_places(attributes.area):
        name = area[place.name_at : place.value_at]
        size = min(place.end, len(area)) - place.value_at
        if place.name_index == XATTR_INDEX_ENCRYPTION and name == b"c" and size == len(policy) + FSCRYPT_NONCE_SIZE:
            area[place.value_at : place.value_at + len(policy)] = policy
            attributes.write(np.frombuffer(area, np.uint8))
            work.note(finding, "the policy of the others put back; its nonce is what it was")
            return True
    return False


class _Attributes:
    """The extended attributes of an inode as one area: those in it, then those in their node."""

    def __init__(self, work: Work, row: int, addr: int) -> None:
        inode, self._surgery, self._addr = work.scan.inodes[row], work.surgery, addr
        end = INODE_ADDR_OFFSET + 4 * work.image.geo.addrs_per_inode
        self._inline = slice(end - 4 * int(inode["inline_xattr"]), end)
        self._block = work.surgery.read(addr)
        self._node = work.surgery.node_addr(int(inode["xattr_nid"])) if inode["xattr_nid"] else None
        self._tail = work.surgery.read(self._node) if self._node is not None else None
        self.area = self._block[self._inline].tobytes()
        if self._tail is not None:
            self.area += body_of(self._tail).tobytes()

    def write(self, area: NDArray[np.uint8]) -> None:
        """Write an area of the same size."""
        inline = self._inline.stop - self._inline.start
        self._block[self._inline] = area[:inline]
        self._surgery.seal(self._block)
        self._surgery.write(self._addr, self._block)
        if self._tail is not None and self._node is not None:
            body_of(self._tail)[:] = area[inline:]
            self._surgery.write(self._node, self._tail)
