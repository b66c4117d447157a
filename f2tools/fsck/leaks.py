"""What the segment table holds for valid and nobody owns: lost nodes by their footers, lost data by their summaries.

This is where content is that a damaged pointer or table entry no longer leads to.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.fsck.checks.summary import summaries_of
from f2tools.fsck.image import Image
from f2tools.fsck.scan import Scan
from f2tools.layout.constants import F2FS_FEATURE_RO, NR_CURSEG_DATA_TYPE, OFFSET_BIT_SHIFT
from f2tools.layout.node import NodeFooter

STEP = 256  # segments at a time


class LostNode(NamedTuple):
    """A node block without an entry that leads to it, by its own footer."""

    cp_ver: int
    blkaddr: int
    ino: int
    offset: int


class LostData(NamedTuple):
    """A data block without a pointer, by its summary."""

    blkaddr: int
    version: int


class Leaks:
    """See the module's docstring: `nodes` by nid, `data` by (nid, ofs_in_node)."""

    def __init__(self, scan: Scan) -> None:
        self._image = scan.image
        self.nodes: dict[int, list[LostNode]] = {}
        self.data: dict[tuple[int, int], list[LostData]] = {}
        self.versions: dict[int, int] = {}
        sit = scan.image.sit
        segnos = np.flatnonzero(sit.vblocks)
        for first in range(0, segnos.size, STEP):
            some = segnos[first : first + STEP]
            valid = np.unpackbits(sit.valid_map(some), axis=1).astype(np.bool_)
            nid, _ = scan.owners.of_segments(some)
            lost = valid & (nid == 0)
            for i in np.flatnonzero(lost.any(axis=1)).tolist():
                self._segment(scan.image, int(some[i]), np.flatnonzero(lost[i]), int(sit.types[some[i]]))

    def _segment(self, image: Image, segno: int, offsets: NDArray[Any], kind: int) -> None:
        start = int(image.geo.start_block(segno))
        if kind >= NR_CURSEG_DATA_TYPE:
            self._add_nodes(image, start + offsets)
            return
        if image.geo.feature & F2FS_FEATURE_RO:
            return
        entries, _ = summaries_of(image, np.array([segno]))
        for at in offsets.tolist():
            entry = entries[0, at]
            nid, version = int(entry["nid"]), int(entry["version"])
            if nid:
                self.data.setdefault((nid, int(entry["ofs_in_node"])), []).append(LostData(start + at, version))
                self.versions[nid] = version

    def _add_nodes(self, image: Image, blkaddrs: NDArray[np.int64]) -> None:
        footers = image.read(blkaddrs)[:, -NodeFooter.size :].copy().view(NodeFooter.dtype)[:, 0]
        for blkaddr, footer in zip(blkaddrs.tolist(), footers, strict=True):
            if 0 < footer["nid"] < image.geo.max_nid and footer["ino"]:
                found = LostNode(
                    int(footer["cp_ver"]) & 0xFFFFFFFF, blkaddr, int(footer["ino"]),
                    int(footer["flag"]) >> OFFSET_BIT_SHIFT,
                )  # fmt: skip
                self.nodes.setdefault(int(footer["nid"]), []).append(found)

    def node(self, nid: int) -> LostNode | None:
        """The newest lost block of a node."""
        found = self.nodes.get(nid)
        return max(found) if found else None

    def of_inode(self, ino: int, offset: int) -> int | None:
        """The nid of the lost node with this place in a file."""
        for nid, found in self.nodes.items():
            if any(item.ino == ino and item.offset == offset for item in found):
                return nid
        return None
