"""A state of the volume that is newer than the checkpoint in use, behind a pack that is not usable any more.

The packs take turns, so what is in such a pack is either what came before the checkpoint in use or what came right
after it.  The next one was complete where its tail says so, or where a node has its version: those are written behind
it.  One that a power cut left unfinished (`was_begun`) has neither.  Where nothing of the pack says which it is, nodes
that were written since, and are not in the way of what was fsync'ed, are the only trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from f2tools.device.base import Device
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE, U32_MAX
from f2tools.f2fs.layout.footers import low_cp_ver
from f2tools.f2fs.volume.checkpoint import Pack, stored_crc, was_begun
from f2tools.f2fs.volume.derived import crc_right, nodes_in_log, sound_tails
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.nat import Nat

SECTOR = 512
MOST_OLDER = 1 << 31  # checkpoints


class Newer(NamedTuple):
    """What was written after the checkpoint in use, and is not shown: node blocks, and inodes that have them."""

    nodes: int
    files: int
    sure: bool  # else it may be what a power cut left without any checkpoint
    whole: bool  # enough of its checkpoint is left to put that together; else only nodes are

    @property
    def much(self) -> str:
        """How much it is, in words."""
        files = "1 file or directory" if self.files == 1 else f"{self.files:,} files and directories"
        return f"{self.nodes:,} node block{'' if self.nodes == 1 else 's'} of {files}"

    def __str__(self) -> str:
        return self.much if self.sure else f"{self.much}, or what a power cut left of no checkpoint"


def newer_than_shown(newer: Newer) -> str:
    """That there is such a state, for whoever reads or writes the volume."""
    return f"a newer state lies behind a checkpoint that was hit: {newer}"


class _Said(Enum):
    """What an unusable pack says of itself."""

    OLDER = "it is from before the checkpoint in use"
    NEXT = "it is the next one, and that was written to its end"
    TORN = "it is the next one, and its end was hit, or not written"
    UNFINISHED = "it may be the next one, not written to its end"
    NOTHING = "nothing is left of it"


def newer_state(
    device: Device, geo: Geometry, packs: tuple[Pack, Pack], pack: Pack, nat: Nat,
    synced: Callable[[], Sequence[int]],
) -> Newer | None:  # fmt: skip
    """The state behind the pack that is not in use; None where there is none, or nothing was written since.

    The log is looked through only where that pack is damaged and may be the newer one.  `synced` gives the addresses of
    the nodes that a mount brings back.
    """
    other = packs[1 - pack.index]
    if other.valid:
        return None
    said, crcs = _said_by(device, geo, pack, other)
    if said is _Said.OLDER or was_begun(device, geo, other, pack):
        return None
    logs = [pack.curseg(kind)[0] for kind in range(NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE)]
    found = list(nodes_in_log(device, geo, logs))
    if not found:
        return None
    places = np.concatenate([part[0] for part in found])
    footers: NDArray[Any] = np.concatenate([part[1] for part in found])
    version = pack.cp.checkpoint_ver
    behind = _written_behind(footers, version + 1, crcs)
    sure = said is _Said.NEXT or bool(behind.any())
    if not sure and said is _Said.UNFINISHED:
        return None
    known = nat.lookup(footers["nid"].astype(np.int64))["block_addr"]
    since = _written_behind(footers, version, {pack.crc}) & (known != places)
    if not sure:  # a mount brings these back
        since &= ~np.isin(places, np.array(synced(), np.int64))
    new = footers[behind | since]
    return Newer(new.size, np.unique(new["ino"]).size, sure, bool(crcs)) if new.size else None


def _written_behind(footers: NDArray[Any], version: int, crcs: set[int]) -> NDArray[np.bool_]:
    """Which nodes were written behind a checkpoint of this version, the checksum of which is one of `crcs` if known."""
    right = low_cp_ver(footers) == version & U32_MAX
    return right & np.isin(footers["cp_ver"] >> np.uint64(32), [0, *crcs]) if crcs else right


def _said_by(device: Device, geo: Geometry, pack: Pack, other: Pack) -> tuple[_Said, set[int]]:
    """What a pack says of itself, and the checksums of its head and tail as far as they are right."""
    size = geo.block_size
    following = (pack.cp.checkpoint_ver + 1) % (1 << 64)
    blocks = device.read_range(other.blkaddr, geo.blocks_per_seg, size)
    head = Checkpoint.parse(blocks[0])
    found = [(cp.checkpoint_ver, stored_crc(cp, block)) for cp, block in sound_tails(blocks, geo)]
    tails = {crc for version, crc in found if version == following}
    if not crc_right(blocks[0].tobytes(), head):
        before = any(version == (following - 2) % (1 << 64) for version, _ in found)  # the next one has no tail then
        return _Said.NEXT if tails else _Said.UNFINISHED if before else _Said.NOTHING, tails
    if not head.checkpoint_ver:  # it was given up, or there never was one
        return _Said.OLDER, tails
    if head.checkpoint_ver != following:
        return _Said.NEXT if tails else _Said.OLDER, tails
    head_block = blocks[0].tobytes()
    own = stored_crc(head, head_block)
    tail = blocks[(head.cp_pack_total_block_count - 1) % geo.blocks_per_seg].tobytes()
    last = tail[-SECTOR:] == head_block[-SECTOR:] and not _begins_as_before(tail, head_block, following)
    # the checksum has come, and with it what stands beside it or the version; else it may have been torn
    written = stored_crc(head, tail) == own and (last or Checkpoint.parse(tail).checkpoint_ver == following)
    if tails or written:
        return _Said.NEXT, {own, *tails}
    return _Said.TORN, {own}  # nor is there what was before: `was_begun`


def _begins_as_before(tail: bytes, head: bytes, version: int) -> bool:
    """Whether the first sector of a pack's tail, whose head has this version, is that of the tail of an older pack.

    Where merely the version was hit, all else in it is as in the head.
    """
    at, before = Checkpoint.offset_of("checkpoint_ver") + 8, Checkpoint.parse(tail).checkpoint_ver
    older = before and 1 < (version - before) % (1 << 64) < MOST_OLDER  # zeros are what a copy has for a bad sector
    return bool(older) and tail[at:SECTOR] != head[at:SECTOR]
