"""Carrying out a plan: each step opens the volume, takes it to its next valid state, and closes it.

An interruption leaves a volume that a kernel mounts and that holds everything it held.  The next run plans anew from
there.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.wrappers import NotClosed
from f2tools.errors import DeviceError, F2fsError, NoFreeSegment, Unsupported
from f2tools.f2fs.layout.constants import (
    CP_LARGE_NAT_BITMAP_FLAG,
    CP_RESIZEFS_FLAG,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_FEATURE_DEVICE_ALIAS,
    F2FS_FEATURE_RO,
    F2FS_PIN_FILE,
    SUM_TYPE_NODE,
)
from f2tools.f2fs.layout.sit import SitBlock
from f2tools.f2fs.volume.areas import Reserve, best_reserve
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.super import choose_superblock, devices_of, must_be_in_place, read_superblocks, shares_of
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.balance import DIRTY_NODES_HELD
from f2tools.f2fs.write.gc import Pinned, make_room
from f2tools.f2fs.write.trusted import Obstacle, must_be_writable
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.options import human_size
from f2tools.resize.lay import lay_down, superblock_for, switch
from f2tools.resize.plan import DoesNotFit, Empty, Mode, MoveAreas, ResizePlan, SetEnd, State, Step, make_plan, minimum

# a volume that is too long is made shorter; between two steps the checkpoint counts the segments of the size before
LAID_ANEW: Collection[Obstacle] = ("too_long", "tables")
KEPT_FREE = 4  # sections: a data log and three node logs may each need one while a section is emptied
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Usage:
    """Where everything is at one time: the areas, and the valid blocks of each segment of the main area."""

    geometry: Geometry
    vblocks: NDArray[np.int32]
    user_block_count: int
    valid_block_count: int


@dataclass(frozen=True)
class Outcome:
    """What was done."""

    plan: ResizePlan
    blocks_moved: int
    blocks_written: int  # to the main area, nodes that point to what moved included
    last_bytes: int  # of the volume's only device, or of its last one
    before: Usage
    after: Usage
    finished: bool  # whether nothing was done but what an interrupted run had left

    def as_dict(self) -> dict[str, Any]:
        """For JSON; addresses and counts are in blocks unless named."""
        return {
            "size_bytes": self.last_bytes,
            "steps": [_step_dict(step) for step in self.plan.steps],
            "areas_moved": self.plan.moves_areas,
            "blocks_moved": self.blocks_moved,
            "blocks_written": self.blocks_written,
            "before": _usage_dict(self.before),
            "after": _usage_dict(self.after),
            "finished": self.finished,
        }


def _step_dict(step: Step) -> dict[str, Any]:
    if isinstance(step, Empty):
        return {"step": "empty", "start": step.start, "end": step.end}
    name = "set-end" if isinstance(step, SetEnd) else "move-areas"
    return {"step": name, "main_blkaddr": step.geometry.main_blkaddr, "end_blkaddr": step.geometry.end_blkaddr}


def _usage_dict(usage: Usage) -> dict[str, Any]:
    geo = usage.geometry
    return {
        "block_size": geo.block_size,
        "block_count": geo.block_count,
        "segment_count": geo.segment_count,
        "segment_count_main": geo.segment_count_main,
        "areas": {name: {"blkaddr": start, "blocks": count} for name, (start, count) in geo.areas().items()},
        "user_block_count": usage.user_block_count,
        "valid_block_count": usage.valid_block_count,
    }


# -- looking --------------------------------------------------------------------------------------------------------


def state_of(device: Device) -> State:
    """What a plan has to know about the volume on a device, recovered if it was not unmounted; nothing is changed."""
    with WritableVolume(Overlay(NotClosed(device)), despite=LAID_ANEW) as volume:
        return _state(volume)


def usage_of(volume: Volume) -> Usage:
    """Where everything is on a volume that was made safe."""
    vblocks = volume.sit.vblocks.astype(np.int32)
    return Usage(volume.geo, vblocks, volume.cp.user_block_count, volume.cp.valid_block_count)


def bytes_with(state: State, last_bytes: int) -> int:
    """Bytes of all devices when the last one, or the only one, has so many."""
    return _start_of_last(state) + last_bytes


def _start_of_last(state: State) -> int:
    if not state.device_segments:
        return 0
    before = sum(state.device_segments[:-1]) * state.geometry.blocks_per_seg
    return (state.geometry.segment0_blkaddr + before) * state.geometry.block_size


def _state(volume: WritableVolume) -> State:
    used = np.flatnonzero(volume.nat.in_use())  # blocks
    return State(
        geometry=volume.geo,
        valid_blocks=max(volume.space.valid_blocks, int(volume.segments.vblocks.sum())),
        max_used_nid=(int(used[-1]) + 1) * volume.geo.nat_entries_per_block - 1 if used.size else 0,
        large_nat_bitmap=bool(volume.cp.ckpt_flags & CP_LARGE_NAT_BITMAP_FLAG),
        device_segments=tuple(count for _, count in devices_of(volume.sb)),
    )


def refuse_what_cannot_be(volume: Volume) -> None:
    """Unsupported for a volume that has no other size."""
    if volume.geo.feature & F2FS_FEATURE_RO:
        raise Unsupported("a volume with the feature ro is made as large as it is; make it anew with f2tools mkfs")
    if not volume.geo.feature & F2FS_FEATURE_DEVICE_ALIAS:
        return
    table = devices_of(volume.sb)
    last = volume.geo.segment0_blkaddr + sum(count for _, count in table[:-1]) * volume.geo.blocks_per_seg
    for file in volume.root.iterdir():
        extent = file.inode.cached_extent if file.inode.i_flags & F2FS_DEVICE_ALIAS_FL else None
        if extent is not None and extent[2] and extent[1] >= last:  # one that is released has no blocks
            raise Unsupported(
                "the last device is a file of the volume (a device alias); remove that file first, with f2tools rm "
                "--device-alias"
            )


# -- doing ----------------------------------------------------------------------------------------------------------


def resize(
    device: Device,
    last_bytes: int | None,
    mode: Mode = "auto",
    advance: Advance | None = None,
    total: Callable[[int], None] | None = None,
) -> Outcome:
    """Bring the volume on `device` to so many bytes (of its last device, if it has several), None for the fewest.

    The device is made longer first; making it shorter is left to the caller.  `total` is told how many blocks will be
    moved about, `advance` how many just were.  DoesNotFit or Unsupported where it can't be done; then, and whatever
    else goes wrong, the volume holds everything that it held.
    """
    tell = advance or (lambda count: None)
    with Volume(NotClosed(device)) as volume:  # what an interrupted run left is no contradiction
        must_be_writable(volume, despite=("too_long",))
    heal_superblocks(device)
    # closing it makes safe what a crash left to recover
    with WritableVolume(NotClosed(device), despite=LAID_ANEW) as volume:
        refuse_what_cannot_be(volume)
        state = _state(volume)
        underway = bool(volume.cp.ckpt_flags & CP_RESIZEFS_FLAG)
    with Volume(NotClosed(device)) as volume:
        before = usage_of(volume)
    plan = _plan(state, last_bytes, mode)
    if plan.steps and plan.size_bytes > device.size_bytes:
        _lengthen(device, plan.size_bytes, bytes_with(state, 0))
    if total is not None:
        total(_to_move(device, plan))
    run = _Run(device, tell)
    for step in plan.steps:
        run.do(step)
    if not plan.steps and underway:
        run.finish()
    with Volume(NotClosed(device)) as volume:
        after = usage_of(volume)
    finished = not plan.steps and underway
    return Outcome(plan, run.moved, run.written, plan.size_bytes - bytes_with(state, 0), before, after, finished)


def _lengthen(device: Device, size_bytes: int, start_of_last: int) -> None:
    """Let the device of a volume, or the last one, be as long as it will have to be."""
    try:
        device.resize(size_bytes)
    except DeviceError:
        if device.resizable:
            raise
        have, wanted = device.size_bytes - start_of_last, size_bytes - start_of_last
        raise DoesNotFit(f"{device.name}: has {have} bytes, {wanted} are wanted, and it can't be made longer") from None


def heal_superblocks(device: Device) -> None:
    """Make both copies say what the first sound one says: a switch may have been interrupted between them."""
    copies = read_superblocks(device)
    chosen = choose_superblock(copies, device)
    must_be_in_place(device, copies)
    assert chosen.sb is not None
    raw = chosen.sb.build()
    if all(copy.valid and copy.sb is not None and copy.sb.build() == raw for copy in copies):
        return
    geo = Geometry.of(chosen.sb)
    if chosen.index == 0:
        device.pwrite(copies[1].offset, raw)
        device.flush()
    else:
        switch(device, raw, geo.block_size)


def _to_move(device: Device, plan: ResizePlan) -> int:
    """Blocks that the steps will move, as far as can be told before."""
    with Volume(NotClosed(device)) as volume:
        starts = volume.geo.start_block(np.arange(volume.geo.segment_count_main, dtype=np.int64))
        counts = volume.sit.vblocks.astype(np.int64)
        return sum(
            int(counts[(starts < step.start) | (starts >= step.end)].sum())
            for step in plan.steps
            if isinstance(step, Empty)
        )


def _plan(state: State, last_bytes: int | None, mode: Mode) -> ResizePlan:
    if last_bytes is None:
        return minimum(state, mode)
    wanted = bytes_with(state, last_bytes)
    try:
        return make_plan(state, wanted, mode)
    except DoesNotFit as error:
        least = minimum(state, mode).size_bytes - bytes_with(state, 0)
        if last_bytes >= least:
            raise
        raise DoesNotFit(f"{error}; the smallest size is {human_size(least)} ({least} bytes)") from None


class _Run:
    """The steps of one plan."""

    def __init__(self, device: Device, advance: Advance) -> None:
        self._device = device
        self._advance = advance
        self.moved = 0
        self.written = 0

    def do(self, step: Step) -> None:
        """One step, durable when this returns."""
        if isinstance(step, Empty):
            self._empty(step)
        elif isinstance(step, SetEnd):
            self._set_end(step)
        else:
            self._move_areas(step)

    @contextmanager
    def _open(self) -> Iterator[WritableVolume]:
        gc.collect()  # volumes that are closed hold each other's parts, in tables as long as the device
        with WritableVolume(NotClosed(self._device), despite=LAID_ANEW) as volume:
            before = volume.segments.written_blocks
            yield volume
        self.written += volume.segments.written_blocks - before

    def _empty(self, step: Empty) -> None:
        with self._open() as volume:
            try:
                self.moved += empty(volume, step.start, step.end, self._advance)
            except NoFreeSegment:
                raise DoesNotFit(
                    "no room is left to move blocks into; nothing is lost, the volume is as large as it was:"
                    " free some space in it, or ask for another size"
                ) from None

    def _set_end(self, step: SetEnd) -> None:
        switch(self._device, *self._restated(step))
        self.finish(step.reserve)

    def _restated(self, step: SetEnd) -> tuple[bytes, int]:
        """The superblock with the new end, once a checkpoint allows for both ends; and the block size."""
        with self._open() as volume:
            before, after = volume.geo, step.geometry
            flags = volume.committer.pack.cp.ckpt_flags | CP_RESIZEFS_FLAG
            shrinks = after.end_blkaddr < before.end_blkaddr
            volume.committer.restate(ckpt_flags=flags, **(_fields(step.reserve) if shrinks else {}))
            volume.committer.sit_journal = False  # an entry of a segment that goes would be beyond the table
            volume.checkpoint(unmount=True)
            if not shrinks:
                _clear_sit(volume, after)
            return superblock_for(volume.sb, before, after), before.block_size

    def _move_areas(self, step: MoveAreas) -> None:
        with self._open() as volume:
            if not volume.clean:
                volume.checkpoint(unmount=True)
            after = step.geometry
            underway = after.segment0_blkaddr != _home(volume.geo)
            lay_down(volume, after, step.reserve, underway)
            raw = superblock_for(volume.sb, volume.geo, after)
        switch(self._device, raw, after.block_size)

    def finish(self, reserve: Reserve | None = None) -> None:
        """A checkpoint that knows of the new end; `reserve`, or one that fits."""
        with self._open() as volume:
            geo, committer = volume.geo, volume.committer
            found = reserve or best_reserve(geo.segment_count_main, geo.segs_per_sec)
            fits = found is not None and found.user_block_count >= volume.space.valid_blocks
            flags = committer.pack.cp.ckpt_flags & ~CP_RESIZEFS_FLAG
            committer.restate(ckpt_flags=flags, **(_fields(found) if fits else {}))
            volume.checkpoint(unmount=True)


def _home(geo: Geometry) -> int:
    return State(geo, 0, 0, False, ()).home


def _fields(reserve: Reserve | None) -> dict[str, int]:
    """The fields of a checkpoint that say what files don't get."""
    if reserve is None:
        return {}
    return {
        "user_block_count": reserve.user_block_count,
        "rsvd_segment_count": reserve.rsvd_segment_count,
        "overprov_segment_count": reserve.overprov_segment_count,
    }


def _clear_sit(volume: WritableVolume, after: Geometry) -> None:
    """Clear the SIT entries of new segments: the volume may have been larger once.

    Nothing reads yet what is written: whole blocks, and in the last one in use the bytes after its last entry.
    """
    before, device, size = volume.geo, volume.device, volume.geo.block_size
    per = before.sit_entries_per_block
    copies = before.segment_count_sit // 2 * before.blocks_per_seg
    for start in (before.sit_blkaddr, before.sit_blkaddr + copies):
        device.write_zeroes((start + before.sit_blocks) * size, (after.sit_blocks - before.sit_blocks) * size)
        used = before.segment_count_main - (before.sit_blocks - 1) * per
        if used < per:
            entry = SitBlock.at(size).size // per  # 74, the rest of the block is padding
            at = (start + before.sit_blocks - 1) * size
            raw = device.pread(at, size)
            if any(raw[used * entry :]):
                device.pwrite(at + used * entry, bytes(size - used * entry))
    device.flush()


# -- moving blocks --------------------------------------------------------------------------------------------------


def empty(volume: WritableVolume, start: int, end: int, advance: Advance) -> int:
    """Move everything that is valid in the main area to the blocks from `start` up to `end`, and make it safe: how
    many.

    NoFreeSegment where room runs out, DoesNotFit where that of the device does, Unsupported where something may not
    move; the last checkpoint counts then.
    """
    segments, per = volume.segments, volume.geo.segs_per_sec
    first = volume.geo.start_block(np.arange(segments.sections, dtype=np.int64) * per)
    outside = (first < start) | (first + per * volume.geo.blocks_per_seg > end)
    if not _used(volume, outside).size and not any(outside[log.segno // per] for log in segments.cursegs):
        return 0
    segments.bar(outside)
    moved = 0
    while (sections := _used(volume, outside)).size:
        for section in sections.tolist():
            _leave(volume, outside)
            _make_room(volume)
            _room_below(volume, section)
            try:
                count = volume.cleaner.clean(section)
            except Pinned:
                raise Unsupported(_who_is_pinned(volume, section)) from None
            moved += count
            advance(count)
        volume.files.write_back_all()
        volume.nodes.write(list(volume.nodes.dirty))
        if np.array_equal(sections, _used(volume, outside)):
            raise F2fsError("blocks stay that nothing points to; run f2tools fsck")
    _leave(volume, outside)
    volume.checkpoint(unmount=True)
    return moved


def _used(volume: WritableVolume, sections: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Which of these sections hold valid blocks."""
    segments, per = volume.segments, volume.geo.segs_per_sec
    valid = segments.vblocks[: segments.sections * per].reshape(-1, per).any(axis=1)
    return np.flatnonzero(valid & sections)


def _leave(volume: WritableVolume, sections: NDArray[np.bool_]) -> None:
    """Take the logs out of sections that nothing new may go to."""
    for curseg in volume.segments.cursegs:
        if sections[curseg.segno // volume.geo.segs_per_sec]:
            _make_room(volume)
            volume.segments.move_log(curseg.kind)


def _make_room(volume: WritableVolume) -> None:
    """Free sections for what a section holds and for the nodes that point to it, as far as there are any."""
    segments = volume.segments
    if len(volume.nodes.dirty) >= DIRTY_NODES_HELD:
        volume.nodes.write(list(volume.nodes.dirty))
    volume.nodes.shrink()
    blocks = volume.geo.segs_per_sec * volume.geo.blocks_per_seg

    def enough(more: int) -> bool:
        return segments.free_sections + more > KEPT_FREE + len(volume.nodes.dirty) // blocks

    if not enough(0):
        make_room(volume.cleaner, segments, enough, volume.checkpoint)


def _room_below(volume: WritableVolume, section: int) -> None:
    """Room for what a section holds on a device that may be full before its end."""
    per = volume.geo.segs_per_sec
    while volume.short_of_room(int(volume.segments.vblocks[section * per : (section + 1) * per].sum())):
        if not volume.win_room():
            raise DoesNotFit(
                "the storage layer has no room to move blocks into; nothing is lost, the volume is as large as it was:"
                " free some space in it, or ask for another size"
            )


def _who_is_pinned(volume: WritableVolume, section: int) -> str:
    """The message about a section with a file that must stay where it is."""
    geo = volume.geo
    for segno in range(section * geo.segs_per_sec, (section + 1) * geo.segs_per_sec):
        entry_type, entries = volume.segments.owners(segno)
        if entry_type == SUM_TYPE_NODE:
            continue
        valid = np.unpackbits(volume.segments.valid_map[segno]).astype(bool)
        rows: Any = volume.nat.lookup(np.unique(entries["nid"][valid]))
        for ino in np.unique(rows["ino"]).tolist():
            inode = volume.live(ino)
            if inode.i_inline & F2FS_PIN_FILE or inode.i_flags & F2FS_DEVICE_ALIAS_FL:
                return f"inode {ino} is pinned to blocks that have to move: unpin it first (f2fs_io pinfile unset)"
    return "a pinned file lies in a part that has to be emptied"


def cut_file(device: Device, outcome: Outcome, file_bytes: int) -> None:
    """Cut off what the volume no longer uses of its file (its last one), which has so many bytes."""
    first = outcome.plan.size_bytes - outcome.last_bytes
    if file_bytes <= outcome.last_bytes:
        return
    set_layout = getattr(device, "set_layout", None)
    if set_layout is not None:  # as if the volume still had all of it, so that an undo log keeps what goes
        with Volume(NotClosed(device)) as volume:
            shares = shares_of(volume.sb, volume.geo)
        set_layout([*shares[:-1], (first, file_bytes)])
    device.resize(outcome.plan.size_bytes)
    device.flush()


__all__ = ["Outcome", "cut_file", "resize", "state_of"]
