"""Whether the devices of a volume were named in the order of its device table.

No device but the first says which one it is.  What tells: a few nodes, each of which says its number; names of image
files, where the table has the same ones; and lengths, where two devices fit only the other way round.  Where only the
content of files lies on them and the names are others, nothing tells, and nothing is said.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.base import Wrapper
from f2tools.errors import DeviceError, Usage
from f2tools.f2fs.layout.footers import footer_of
from f2tools.f2fs.layout.summary import NatJournalEntry
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.checkpoint import Pack
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.nat import Nat
from f2tools.f2fs.volume.super import devices_of, shares_of
from f2tools.lazy import dataclass

NAT_BLOCKS = 16  # of the table, that are looked at
NODES = 4  # of each device


@dataclass(frozen=True)
class _Member:
    """One of the devices, and what the table says of the one in its place."""

    device: Device
    start: int  # first byte of the volume on it
    share: int  # bytes
    path: str  # in the table

    @property
    def name(self) -> str:
        return os.path.basename(self.device.name)

    @property
    def fits(self) -> bool:
        return self.device.size_bytes >= self.share


def check_order(device: Device, sb: SuperBlock, geo: Geometry, pack: Pack | None) -> None:
    """Usage where devices of a volume are certainly not those that its device table has in their places.

    `pack` is that of a checkpoint, with which a few nodes can be found; None where there is none.
    """
    table = devices_of(sb)
    if len(table) <= 1:
        return
    below: Any = device
    while isinstance(below, Wrapper):
        below = below.base
    parts = zip(below.members, shares_of(sb, geo), table, strict=True)
    members = [_Member(member, start, share, path) for member, (start, share), (path, _) in parts]
    order = f"name the devices in the order of this volume's device table: {', '.join(path for path, _ in table)}"
    right: set[int] = set()
    for index, nodes in _some_nodes(device, geo, pack, members).items():
        place = _where_they_are(device, geo, members, index, nodes)
        if place == index:
            right.add(index)
        elif place is not None:
            raise Usage(f"{members[place].device.name} holds what belongs on {members[index].path}; {order}")
    why = _by_name(members, right) or _by_length(members, right)
    if why:
        raise Usage(f"{why}; {order}")


def _some_nodes(
    device: Device, geo: Geometry, pack: Pack | None, members: Sequence[_Member]
) -> dict[int, list[tuple[int, int]]]:
    """(nid, block address) of a few nodes on each device but the first, by its place.

    What the journal has is left out: an older place of a node mostly still holds it, and never another one's device.
    """
    if pack is None:
        return {}
    nat = Nat(device, geo, pack, np.zeros(0, NatJournalEntry.dtype))
    per, last = geo.nat_entries_per_block, max(pack.cp.next_free_nid, pack.cp.valid_node_count)
    numbers = np.unique(np.linspace(0, min(geo.nat_blocks - 1, last // per), NAT_BLOCKS).astype(np.int64))
    nids = (numbers[:, None] * per + np.arange(per)).reshape(-1)
    addrs = nat.lookup(nids)["block_addr"].astype(np.int64)
    found: dict[int, list[tuple[int, int]]] = {}
    for index, member in enumerate(members[1:], start=1):
        first, end = member.start // geo.block_size, (member.start + member.share) // geo.block_size
        here = np.flatnonzero((addrs >= first) & (addrs < end))
        if here.size:
            some: NDArray[np.int64] = here[np.unique(np.linspace(0, here.size - 1, NODES).astype(np.int64))]
            found[index] = list(zip(nids[some].tolist(), addrs[some].tolist(), strict=True))
    return found


def _where_they_are(
    device: Device, geo: Geometry, members: Sequence[_Member], index: int, nodes: list[tuple[int, int]]
) -> int | None:
    """The place of the device that holds nodes that belong on device `index`: that one where it has any of them."""
    size = geo.block_size
    if any(_is_node(device, blkaddr * size, size, nid) for nid, blkaddr in nodes):
        return index
    for place, member in enumerate(members[1:], start=1):
        offsets = [(nid, blkaddr * size - members[index].start) for nid, blkaddr in nodes]
        if place != index and any(_is_node(member.device, offset, size, nid) for nid, offset in offsets):
            return place
    return None


def _is_node(device: Device, offset: int, size: int, nid: int) -> bool:
    try:
        return footer_of(device.pread(offset, size)).nid == nid
    except DeviceError:  # it is shorter, or bad there
        return False


def _by_name(members: Sequence[_Member], right: set[int]) -> str:
    """What names say against the order; those of the kernel (`/dev/sdb`) mean another device after each start."""
    names = ["" if os.path.dirname(one.path) == "/dev" else os.path.basename(one.path) for one in members]
    for index, member in enumerate(members[1:], start=1):
        if index in right or names.count(member.name) != 1 or _is_block(member.device):
            continue
        place = names.index(member.name)
        if place not in (0, index) and place not in right:
            return f"{member.device.name} was named in the place of {member.path}"
    return ""


def _by_length(members: Sequence[_Member], right: set[int]) -> str:
    """Two devices of which one is too short, and that fit when they change places."""
    unknown = [
        one
        for index, one in enumerate(members)
        if index and index not in right and one.name != os.path.basename(one.path)
    ]
    for short in unknown:
        for other in unknown:
            changed = other.device.size_bytes >= short.share and short.device.size_bytes >= other.share
            if not short.fits and changed and other.share < short.share:
                sizes = f"has {short.device.size_bytes} bytes where {short.share} are needed"
                return f"{short.device.name} {sizes}, and would fit in the place of {other.path}"
    return ""


def _is_block(device: Device) -> bool:
    try:
        return stat.S_ISBLK(os.stat(device.name).st_mode)
    except (OSError, ValueError):
        return False
