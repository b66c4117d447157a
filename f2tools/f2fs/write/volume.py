"""A volume opened for writing: what its callers see, from opening to the last checkpoint.

Changes live in memory and in the logs until a checkpoint (`sync`, `close`) makes them the volume's state; `fsync` makes
one file safe without one, where the kernel's recovery can bring it back.  Whatever a power cut interrupts, the volume
is in the state of the last checkpoint, plus what was fsync'ed since.

The operations stand in files of their own, named as in fs/f2fs, each on the one before: `parts` (managers and state),
`zoned`, `charge` (quota), `balance` (room, checkpoints, where an operation begins), `orphan`, `attr`, `file`, `namei`.
`guard` says who may change content.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import numpy as np

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.media.zones import ZoneOrder
from f2tools.device.vectors import distinct
from f2tools.errors import Corrupt, F2fsError, NoFreeSegment, Unsupported
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import CP_UMOUNT_FLAG
from f2tools.f2fs.volume.checkpoint import Which, choose_pack, resealed
from f2tools.f2fs.volume.newer import newer_state
from f2tools.f2fs.volume.recovery import find_fsync_chain, fsynced_behind
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.f2fs.write.balance import CLOSED
from f2tools.f2fs.write.inode import CompressOptions
from f2tools.f2fs.write.namei import Namei
from f2tools.f2fs.write.policy import Policy
from f2tools.f2fs.write.recovery import recover as roll_forward_on
from f2tools.f2fs.write.trusted import Obstacle, check_counts, must_be_writable
from f2tools.f2fs.write.unused import discard_unused, mark

if TYPE_CHECKING:
    from pathlib import Path

    from f2tools.f2fs.volume.recovery import Recovery
    from f2tools.f2fs.write.node import LiveInode


def discard_unneeded(volume: Volume) -> int:
    """Discard what neither the volume's checkpoint nor what was fsync'ed after it needs; how many bytes.

    Nothing is written, so a device that is full gets room again.  On one that can't be full before its end only whole
    segments are discarded.  Errors as of `WritableVolume`; Corrupt where the segment table can't be believed.
    """
    must_be_writable(volume)
    return _discard_unneeded(volume)


def _discard_unneeded(volume: Volume, roll_forward: bool = True, until: int | Mapping[int, int] | None = None) -> int:
    device, geo = volume.device, volume.geo
    if device.has_write_pointers:
        return 0
    used = volume.sit.valid_map()
    found = find_fsync_chain(volume, until if isinstance(until, int) else None)
    if roll_forward and found.needed:  # what its nodes lead to is what recovery takes over
        mark(used, geo, np.array([node.blkaddr for node in found.chain], np.int64))
        used |= WritableVolume(Overlay(device), until=until).segments.valid_map
    if device.room_bytes is None:
        used[used.any(axis=1)] = 0xFF
    return discard_unused(device, geo, used)


class WritableVolume(Namei):
    """An F2FS volume that can be changed.

    Opening it frees the files that were left open without a name, and brings back what was fsync'ed after the last
    checkpoint.  `close` makes the last checkpoint; leaving a `with` block because of an exception does not.
    """

    def __init__(
        self,
        device: Device,
        policy: Policy | None = None,
        clock: Callable[[], int] = time.time_ns,
        *,
        recover: bool | Literal["orphans"] = True,
        until: int | Mapping[int, int] | None = None,
        seed: int | None = None,
        despite: Collection[Obstacle] = (),
        which: Which = "newest",
    ) -> None:
        """`clock` gives nanoseconds since 1970.  `seed`: generation numbers that are the same every time.

        Without `recover` nothing happens on opening, and files without a name go only when the volume is closed; with
        "orphans" these go, and what was fsync'ed after the checkpoint is given up; with `until`, what comes after so
        many nodes, or of each of these files (inode number) what comes from that node of the chain on.

        `which`: the checkpoint to start from; where it is the older one, the newer one is given up before anything else
        is written.  `despite`: what does not keep the volume from being written: "ro", as it is being filled;
        "too_long", as it is made smaller; "tables", as they are being repaired, or it is only shown: these must agree
        with themselves, and need not with the checkpoint.

        DeviceError where a part of the volume is missing; Unsupported for a volume with unknown features; OSError EROFS
        for one with the feature ro; ENOSPC where no segment is free for what comes back; Corrupt where what is in use
        can't be told.
        """
        if device.has_write_pointers and not isinstance(device, ZoneOrder):
            raise Unsupported("this does not write to zoned devices; mkfs --from, clean and recover do")
        super().__init__(device, which, policy or Policy(), clock, seed)
        must_be_writable(self, which, despite)
        self._start()
        self._follow_zones()
        self.recovered: Recovery | None = None  # what was brought back when the volume was opened
        if self.pack is not choose_pack(self.packs):
            self._give_up_newest()
        if not recover:
            self._nameless.update(self.orphans().tolist())
            return
        try:
            self._recover(recover != "orphans", until)
        except NoFreeSegment as error:
            raise OSError(errno.ENOSPC, "no segment is free for what was fsync'ed after the checkpoint") from error

    def statfs(self, ino: int | None = None, unused: Sequence[int] = ()) -> dict[str, int]:
        """As `Volume.statfs`, of the present state; for an inode within the limits of the project it hands down.

        `unused`: files without a name that are about to go, and count no longer.
        """
        gone: list[LiveInode] = []
        for one in unused:
            with suppress(F2fsError):  # one that can't be read stays
                gone.append(self.live(one))
        self.cp.valid_block_count = self.space.valid_blocks - sum(one.i_blocks for one in gone)
        self.cp.valid_node_count = self.space.valid_nodes - len(gone)
        self.cp.valid_inode_count = self.space.valid_inodes - len(gone)
        said = super().statfs()
        return said if ino is None else self.within_limits(said, self.live(ino), gone)

    def _orphan_blocks(self) -> int:
        return 0  # their blocks are given back, or they are in use

    def close(self) -> None:
        """Make the last checkpoint, and close the device; errors as of `finish`.  More than once is fine."""
        if self.closed:
            return
        self.alone()
        try:
            self.finish()
        finally:
            self.abandon()

    def finish(self) -> None:
        """Make the last checkpoint, which says that nothing is to be recovered.

        OSError EROFS, and no checkpoint, where an error has ended writing: what was not made safe before is lost.
        """
        self.usable()
        for ino in self.nameless:
            with suppress(F2fsError):  # one that can't be read stays an orphan, and all else is made safe
                self._must_be_whole(self.live(ino))
                self._nameless.discard(ino)
            if ino not in self._nameless:
                self._evict(self.live(ino))
        self._held.clear()
        if self.unsaved or not self.cp.ckpt_flags & CP_UMOUNT_FLAG:
            self.checkpoint(unmount=True)

    def abandon(self) -> None:
        """Close the device without a checkpoint: what was not made safe is lost."""
        self.inside = CLOSED
        super().close()

    def __exit__(self, kind: object = None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _give_up_newest(self) -> None:
        """Make the newer pack invalid: it must not come back when what it refers to has been written over.

        Its head gets version 0, which no checkpoint has, and its tail one from before the older pack, as it had there:
        nobody takes them for those of a newer checkpoint that was hit.
        """
        newest = choose_pack(self.packs)
        for place, version in enumerate((0, (self.cp.checkpoint_ver - 1) % (1 << 64))):
            given_up = Checkpoint.parse(newest.head)
            given_up.checkpoint_ver = version
            self.device.pwrite(*resealed(newest, given_up, self.geo.block_size)[place])
            self.device.flush()
        self._changed = True

    def _recover(self, roll_forward: bool, until: int | Mapping[int, int] | None) -> None:
        """Free files that were open without a name; bring back what was fsync'ed after the checkpoint."""
        if self._may_be_full and self.short_of_room(2 * len(find_fsync_chain(self).chain)):
            with suppress(Corrupt):  # then the table of what is in use is not to be believed
                check_counts(self)
                _discard_unneeded(self, roll_forward, until)
        for ino in distinct(self.orphans()).tolist():
            inode = self.live(ino)
            if inode.i_links:
                continue
            self._changed = True
            self._evict(inode)
        # even where the checkpoint was made by an unmount: files may have been fsync'ed since, and nothing else written
        if roll_forward:
            found = find_fsync_chain(self, until if isinstance(until, int) else None)
            if until is None and not self.clean:
                self._warn_of_what_lies_behind(found)
            if until is None:
                self._warn_of_lost_pack(found)
            self.recovered = roll_forward_on(self, found.without(until) if isinstance(until, Mapping) else found)
            self.warnings += self.recovered.notes
        if self.recovered is None or not self.recovered.needed:
            self.align_logs()

    def _warn_of_what_lies_behind(self, found: Recovery) -> None:
        """As the kernel does, recovery ends at a damaged node; what comes behind it goes with the next checkpoint."""
        behind = {node.ino for node in fsynced_behind(self, found)}
        if behind:
            files = "1 file lies" if len(behind) == 1 else f"{len(behind):,} files lie"
            self.warnings.append(
                f"what was fsync'ed of {files} behind a damaged node, where no recovery comes, and is given up by any"
                " change but that of `f2tools fsck -y`, which brings back what it can (R004)"
            )

    def _warn_of_lost_pack(self, found: Recovery) -> None:
        """Nodes that no checkpoint has may be of one that is gone: a pack of zeros is left by no mkfs and no power cut.

        Of one that has anything in it `warnings` speaks as it is.
        """
        other = self.packs[1 - self.pack.index]
        if not other.empty:
            return
        chain = [node.blkaddr for node in found.chain]
        with suppress(F2fsError):  # what can't be read says nothing
            newer = newer_state(self.device, self.geo, self.packs, self.pack, self.nat, lambda: chain)
            if newer is not None and not newer.sure:
                self.warnings.append(
                    f"checkpoint pack {other.index + 1} is gone, and what it had may go with it: {newer}; what is"
                    " written from now on goes over that, and `f2tools undelete` finds what is left (C019)"
                )

    def file(self, ino: int) -> File:
        """A file by inode number, for reading."""
        return File(self, self.live(ino))


def open_for_writing(
    path: str | Path, devices: Sequence[str | Path] = (), policy: Policy | None = None
) -> WritableVolume:
    """Open an image or a device for writing; NotF2fs where there is no volume."""
    device = open_device(path, write=True, extra=list(devices))
    try:
        return WritableVolume(device, policy)
    except BaseException:
        device.close()
        raise


__all__ = ["CompressOptions", "Policy", "WritableVolume", "open_for_writing"]
