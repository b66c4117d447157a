"""Whether what was fsync'ed can be brought back: a check that takes the engine, so it comes last."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from f2tools.device.changes.overlay import Overlay
from f2tools.device.wrappers import StaysOpen
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.footers import inode_in
from f2tools.f2fs.volume.recovery import Recovery, find_fsync_chain
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.refused import find_refused
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.fsck import problems
from f2tools.fsck.facts.image import Image
from f2tools.fsck.findings import Finding, Severity
from f2tools.fsck.plans import LeaveOut


def check_refused(image: Image, check: Callable[[Image], list[Finding]]) -> Iterator[Finding]:
    """What was fsync'ed after the checkpoint can be brought back: it is tried, in memory, on a volume that is sound.

    `check` is made of the result.
    """
    try:
        refused = find_refused(image.device)
    except (F2fsError, OSError):
        return  # no node is at fault: there is no room, or the volume is not written to at all
    with Volume(StaysOpen(image.device)) as volume:
        recovery = find_fsync_chain(volume)
    if not recovery.files:  # nobody knows any of them: nothing comes back, and the chain stays
        return
    for one in refused.contested:
        yield Finding(problems.FSYNC_CONTESTED, area="main", blkaddr=one.blkaddr, ino=one.first, note=str(one))
    if not refused.nodes:
        yield from _comes_back_wrong(image, check)
        return
    for error in refused.nodes:
        node, (pino, new) = error.node, _new_name(image, recovery, error.node.ino)
        yield Finding(
            problems.FSYNC_REFUSED, area="main", blkaddr=node.blkaddr, nid=node.nid, ino=node.ino,
            note=error.why + (f"; a new file, {new!r} in directory {pino}" if new else ""),
            repair=LeaveOut(node.ino, node.blkaddr, pino, new),
        )  # fmt: skip


def _comes_back_wrong(image: Image, check: Callable[[Image], list[Finding]]) -> Iterator[Finding]:
    """What is wrong on the volume, which is sound, once all has come back: in memory."""
    with Overlay(StaysOpen(image.device)) as trial:
        WritableVolume(StaysOpen(trial), despite={"tables"}).close()
        findings = check(Image(StaysOpen(trial)))
    with Volume(StaysOpen(image.device)) as volume:
        places = {node.ino: node.blkaddr for node in find_fsync_chain(volume).chain}
    for found in findings:
        if found.severity >= Severity.WARNING:
            blkaddr = None if found.ino is None else places.get(found.ino)
            yield Finding(
                problems.FSYNC_DEFECT, area="main", blkaddr=blkaddr, ino=found.ino, path=found.path,
                note=f"{found.code} {found.message}",
            )  # fmt: skip


def _new_name(image: Image, recovery: Recovery, ino: int) -> tuple[int, str]:
    """Directory and name of a file that the checkpoint does not have, as it says; (0, "") of others."""
    file = recovery.files.get(ino)
    if file is None or file.created is None:
        return 0, ""
    inode = inode_in(image.block(recovery.chain[file.created].blkaddr))
    return int(inode["i_pino"]), os.fsdecode(inode["i_name"].tobytes()[: int(inode["i_namelen"])])
