"""Who owns a block of the main area, and the names of an inode: what the summaries say, held against NAT and nodes.

A summary names the owner at the time of writing.  Whether the block still counts is decided by the owner itself: by the
NAT for a node block, by the address in the owning node for a data block.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    F2FS_DEVICE_ALIAS_FL,
    F2FS_FEATURE_DEVICE_ALIAS,
    F2FS_FEATURE_RO,
    F2FS_ROOT_INO,
    OFFSET_BIT_SHIFT,
    SUM_TYPE_NODE,
)
from f2tools.f2fs.layout.footers import footer_of
from f2tools.f2fs.layout.node_tree import kind_of_node, number_of
from f2tools.f2fs.volume.inode import Inode
from f2tools.lazy import dataclass
from f2tools.text import join, upward

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from f2tools.f2fs.volume.inode import Inode
    from f2tools.f2fs.volume.volume import Volume

MAX_DEPTH = 4096  # directories between a file and the root; i_pino chains may run in a circle


@dataclass
class Owner:
    """The owner of one block: `kind` is node or data; `live` says whether the owner still points here, `why` why."""

    kind: str
    nid: int
    version: int
    ofs_in_node: int
    live: bool = False
    why: str = ""
    ino: int | None = None
    fofs: int | None = None  # data: block in the file
    paths: list[str] = field(default_factory=list)
    path_verified: bool = False


def owner_of(vol: Volume, blkaddr: int) -> Owner | None:
    """The owner of a block of the main area; None on a volume without summaries (feature ro)."""
    if vol.geo.feature & F2FS_FEATURE_RO:
        return None
    alias = _alias_of(vol, blkaddr)
    if alias is not None:
        return alias
    entry_type, nid, version, ofs = vol.summaries.owner(blkaddr)
    owner = Owner("node" if entry_type == SUM_TYPE_NODE else "data", nid, version, ofs)
    if nid == 0 and not vol.sit.valid(_array([blkaddr]))[0]:
        owner.why = "the summary names nobody"
        return owner
    if not 0 < nid < vol.geo.max_nid:
        owner.why = f"there is no node {nid}"
        return owner
    nat_version, ino, address = vol.nat.get(nid)
    if owner.kind == "node":
        owner.ino = ino or None
        owner.live = address == blkaddr
        owner.why = (
            f"the NAT has node {nid} here" if owner.live else f"the NAT has node {nid} {_place(address)}, not here"
        )
    else:
        _judge_data(vol, owner, blkaddr, nat_version, address)
    if owner.ino:
        owner.paths, owner.path_verified = paths_of(vol, owner.ino, search=owner.live)
    return owner


def _alias_of(vol: Volume, blkaddr: int) -> Owner | None:
    """The file in the root directory that stands for the device this block is on; its blocks have no summaries."""
    if not vol.geo.feature & F2FS_FEATURE_DEVICE_ALIAS:
        return None
    try:
        entries = vol.listdir(vol.root.inode)
    except F2fsError:
        return None
    for entry in entries:
        if not isinstance(entry.inode, Inode) or not entry.inode.i_flags & F2FS_DEVICE_ALIAS_FL:
            continue
        fofs, start, count = entry.inode.cached_extent
        if start <= blkaddr < start + count:
            ino = entry.inode.ino
            path = os.fsdecode(b"/" + entry.name)
            why = f"inode {ino} is an alias of the device that holds this block"
            return Owner("data", ino, 0, 0, True, why, ino, fofs + blkaddr - start, [path], True)
    return None


def _judge_data(vol: Volume, owner: Owner, blkaddr: int, nat_version: int, address: int) -> None:
    """Whether the node that the summary names still points to this data block."""
    if not vol.geo.in_main(address):
        owner.why = f"node {owner.nid}, which pointed here, is {'free' if not address else 'nowhere'}"
        return
    try:
        block = vol.device.read_range(address, 1, vol.geo.block_size)[0]
    except F2fsError as error:
        owner.why = str(error)
        return
    footer = footer_of(block)
    owner.ino = footer.ino
    addrs, first = addresses_in(vol, block, address)
    found = int(addrs[owner.ofs_in_node]) if owner.ofs_in_node < addrs.size else None
    if first is not None:
        owner.fofs = first + owner.ofs_in_node
    if found == blkaddr:
        owner.live = True
        owner.why = f"address {owner.ofs_in_node} of node {owner.nid} points here"
        if nat_version != owner.version:
            owner.why += f"; but the summary is of version {owner.version} of that node, the NAT has {nat_version}"
    elif nat_version != owner.version:
        owner.why = f"node {owner.nid} was used again: version {nat_version} now, {owner.version} when this was written"
    elif found is None:
        owner.why = f"node {owner.nid} has no address {owner.ofs_in_node}"
    else:
        owner.why = f"address {owner.ofs_in_node} of node {owner.nid} is now {found:#x}"


def addresses_in(vol: Volume, block: NDArray[np.uint8], blkaddr: int) -> tuple[NDArray[Any], int | None]:
    """(data block addresses of a node block, file block of the first; None where it maps none or that isn't known)."""
    footer = footer_of(block)
    if footer.nid == footer.ino:
        try:
            return Inode(vol.geo, block, footer.ino, blkaddr).addrs, 0
        except F2fsError:
            return block[:0].view("<u4"), None
    addrs = block[: 4 * vol.geo.addrs_per_block].view("<u4")
    ofs = footer.flag >> OFFSET_BIT_SHIFT
    if kind_of_node(ofs, vol.geo.addrs_per_block) != "direct":
        return addrs, None
    try:
        return addrs, first_file_block(ofs, vol.nodes.inode(footer.ino))
    except F2fsError:
        return addrs, None


def first_file_block(ofs: int, inode: Inode) -> int:
    """The first file block that the direct node with this offset maps; see f2fs_start_bidx_of_node()."""
    if ofs == 0:
        return 0
    number = number_of(ofs, inode.geo.addrs_per_block)
    return number * inode.addrs_per_block + inode.addrs_per_inode


def paths_of(vol: Volume, ino: int, *, everywhere: bool = False, search: bool = True) -> tuple[list[str], bool]:
    """(paths of an inode, whether directories confirm them).

    The inode's own memory (i_name, i_pino) is followed and held against the directories; where they differ, or with
    `everywhere` for all hard links, the tree is searched (unless `search` is off).  Without any entry: what the inode
    remembers, unconfirmed.
    """
    try:
        remembered, confirmed = _climb(vol, ino)
    except F2fsError:
        return [], False
    if (confirmed and not everywhere) or not search:
        return ([remembered] if remembered else []), confirmed
    found = _search(vol, ino)
    if found:
        return found, True
    return ([remembered] if remembered else []), confirmed


def _climb(vol: Volume, ino: int) -> tuple[str, bool]:
    """(path by the i_pino chain, whether every step stands in the directory above it)."""
    parts: list[bytes] = []
    confirmed = True
    met: set[int] = set()
    while ino != F2FS_ROOT_INO:
        if ino in met or len(parts) > MAX_DEPTH:
            return _joined(parts, False), False
        met.add(ino)
        inode = vol.nodes.inode(ino)
        name = None
        try:
            parent = vol.nodes.inode(inode.i_pino)
            name = _name_in(vol, parent, inode) if parent.is_dir else None
        except F2fsError:
            parts.append(inode.name)
            return _joined(parts, False), False
        confirmed = confirmed and name is not None
        parts.append(inode.name if name is None else name)
        ino = parent.ino
    return _joined(parts, True), confirmed


def _name_in(vol: Volume, parent: Inode, child: Inode) -> bytes | None:
    """The name as shown that a directory has for an inode; the remembered one where there are several."""
    if not parent.encrypted:
        found = vol.dirs.lookup(parent, child.name)
        if found is not None and found.ino == child.ino:
            return child.name
    entry = next((e for e in vol.dirs.entries(parent) if e.ino == child.ino and e.name not in (b".", b"..")), None)
    if entry is None:
        return None
    return vol.dirs.shown(parent, [entry])[0]


def _search(vol: Volume, ino: int) -> list[str]:
    """Every path of an inode, from walking the whole tree."""
    found: list[str] = []
    try:
        for path, _, entries in vol.walk(problems=[]):
            found += [os.fsdecode(join(path, entry.name)) for entry in entries if entry.dentry.ino == ino]
    except F2fsError:
        return found  # the root directory itself can't be read
    return found


def _joined(parts: list[bytes], whole: bool) -> str:
    return os.fsdecode(upward(parts, b"/" if whole else b".../"))


def _place(address: int) -> str:
    return "nowhere (free)" if address == 0 else f"at {address:#x}"


def _array(values: list[int]) -> Any:
    return np.array(values, np.int64)
