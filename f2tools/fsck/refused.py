"""Whether what was fsync'ed can be brought back: a check that takes the engine, so it comes last."""

from __future__ import annotations

import os
from collections.abc import Iterator

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import NULL_ADDR
from f2tools.f2fs.layout.footers import footer_in, inode_in
from f2tools.f2fs.write.refused import find_refused
from f2tools.fsck import problems
from f2tools.fsck.facts.image import Image
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import LeaveOut


def check_refused(image: Image) -> Iterator[Finding]:
    """What was fsync'ed after the checkpoint can be brought back: it is tried, in memory, on a volume that is sound."""
    try:
        refused = find_refused(image.device)
    except (F2fsError, OSError):
        return  # no node is at fault: there is no room, or the volume is not written to at all
    for error in refused.nodes:
        node = error.node
        yield Finding(
            problems.FSYNC_REFUSED, area="main", blkaddr=node.blkaddr, nid=node.nid, ino=node.ino,
            note=error.why + _new_name(image, node.ino, node.blkaddr), repair=LeaveOut(node.ino, node.blkaddr),
        )  # fmt: skip


def _new_name(image: Image, ino: int, blkaddr: int) -> str:
    """What the inode in this block says of its name, where the checkpoint does not have it."""
    block = image.block(blkaddr)
    if footer_in(block)["nid"] != ino or (0 < ino < image.geo.max_nid and image.nat.get(ino)[2] != NULL_ADDR):
        return ""
    inode = inode_in(block)
    name = inode["i_name"].tobytes()[: int(inode["i_namelen"])]
    return f"; a new file, {os.fsdecode(name)!r} in directory {int(inode['i_pino'])}"
