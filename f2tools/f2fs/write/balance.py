"""Room before each operation, and the moments when everything is made safe."""

from __future__ import annotations

import errno
import os
from functools import cached_property
from itertools import product
from threading import get_ident

import numpy as np

from f2tools.errors import DeviceError, F2fsError, NoFreeSegment
from f2tools.f2fs.layout.constants import (
    CP_DISABLED_FLAG,
    CP_DISABLED_QUICK_FLAG,
    CP_QUOTA_NEED_FSCK_FLAG,
    F2FS_IMMUTABLE_FL,
    LOG_BLOCKS_PER_SEG,
)
from f2tools.f2fs.write.charge import Charging
from f2tools.f2fs.write.gc import CantBeRead, Pinned, make_room
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.parts import fail
from f2tools.f2fs.write.unused import discard_unused

DIRTY_NODES_HELD = 8192
KEPT_SECTIONS = 2  # of those that are spare, where a change takes many and gives them back at once
BRIEFLY = -1  # as the thread within an operation: whichever it is, it will be out soon
CLOSED = -2  # as that: the volume is closed, and no thread gets in any more
# With these the engine refuses what it has begun, after taking it back.  An OSError of a signal's handler has others.
TAKEN_BACK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EINVAL, errno.EOPNOTSUPP)
SPARE_BLOCKS = 128  # of a device that may be full before its end: for checkpoints, and for what wins room


class Operation:
    """One change of a volume.  Inodes that it hands out stay good until it ends.

    Nodes are dropped from memory only on entering, so an inode must not be kept from one operation to the next.

    An operation looks first, and says `vol.midway = True` before its first change.  Until then an error is a refusal,
    and the volume is as it was.  From there on whatever ends it ends all writing, as the volume may be half changed.
    Only what it was made for does not: an OSError of TAKEN_BACK.  So it reads what it will need before it begins.
    """

    __slots__ = ("_adds", "_blocks", "_vol")

    def __init__(self, vol: Balance, blocks: int, adds: bool) -> None:
        self._vol = vol
        self._blocks = blocks
        self._adds = adds

    def __enter__(self) -> Operation:
        vol = self._vol
        vol.alone()
        vol.midway = False
        vol.written_before = vol.segments.written_blocks
        try:
            vol.begin(self._blocks, self._adds)
        except BaseException as error:
            vol.ended(error, reads_first=True)
            vol.inside = 0
            raise
        vol.midway = False
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._vol.ended(error)
        self._vol.inside = 0

    def live(self, ino: int) -> LiveInode:
        """The inode with this number, to be changed."""
        return self._vol.nodes.live(ino)

    def directory(self, ino: int) -> LiveInode:
        """A directory whose names are about to change; OSError ENOTDIR, ENOENT, EPERM."""
        inode = self._vol.nodes.live(ino)
        if not inode.is_dir:
            fail(errno.ENOTDIR)
        if not inode.i_links:
            fail(errno.ENOENT)
        if inode.i_flags & F2FS_IMMUTABLE_FL:
            fail(errno.EPERM)
        return inode


class Balance(Charging):
    """Operations begin here: with write-back, cleaning or a checkpoint where memory or free sections run short."""

    inside = 0  # the thread that is within an operation, or BRIEFLY, or CLOSED
    midway = False  # an operation has begun to change something
    written_before = 0  # segments.written_blocks when it began

    def operation(self, blocks: int, adds: bool = True) -> Operation:
        """A change that writes about so many blocks; entering it makes room, or raises OSError ENOSPC or EROFS.

        `adds`: what is in use grows by them.  Other changes may use what is kept spare on a device.
        """
        return Operation(self, blocks, adds)

    def alone(self) -> None:
        """This thread is within an operation from now on; RuntimeError where another one is, ValueError once closed."""
        me = get_ident()
        inside = self.inside  # between this look and the change nothing is called, so no other thread has its turn
        if inside and inside != me:
            self.must_be_open()
            raise RuntimeError(
                "another thread is within an operation on this volume; a volume is for one thread at a time, so let a "
                "lock go around all that is done with it"
            )
        self.inside = me

    def usable(self) -> None:
        """OSError EROFS where nothing is written any more; ValueError once closed."""
        self.must_be_open()
        super().usable()

    def begin(self, blocks: int, adds: bool = True) -> None:
        """Before an operation: the volume is usable, and there are free sections for what it will write."""
        if self._broken is not None:
            self.usable()
        if not self._calm(blocks):
            self.balance(blocks)
            if adds and blocks and not self._busy and self.short_of_room(blocks):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._changed = True

    def ended(self, error: BaseException, reads_first: bool = False) -> None:
        """An error has ended an operation: where that was midway, nothing is written any more.

        `reads_first`: until a block was written, an F2fsError leaves all as it was.
        """
        refused = isinstance(error, OSError) and error.errno in TAKEN_BACK
        if reads_first and isinstance(error, F2fsError):
            refused = self.segments.written_blocks == self.written_before
        if isinstance(error, NoFreeSegment) or (self.midway and not refused):
            self.stop_writing(_why(error))

    def tend(self) -> None:
        """`balance` between operations.  DeviceError, OSError ENOSPC: nothing has changed, or nothing is written any
        more."""
        self.alone()
        self.midway = False
        self.written_before = self.segments.written_blocks
        try:
            self.balance()
        except BaseException as error:
            self.ended(error, reads_first=True)
            raise
        finally:
            self.inside = 0

    def balance(self, blocks: int = 0) -> None:
        """Write back when much is in memory, and clean when free sections run out; see f2fs_balance_fs()."""
        if self._busy or self._calm(blocks):
            return
        self.midway = True
        if self.short_of_room(blocks) and self.unsaved:
            self.checkpoint()
            self.discard_free()
        if self.files.page_count >= self._pages_held:
            pages, segments = self.files.page_count, self.segments
            # before the holes run out: a checkpoint makes holes of what was overwritten since the last one
            if segments.threading and segments.data_holes() < 2 * pages <= 2 * segments.waiting_holes:
                self.checkpoint()
            self.files.write_back_all()
        if len(self.nodes.dirty) >= self._nodes_held:
            self.nodes.write(list(self.nodes.dirty))
        self.nodes.shrink()
        if self._enough(blocks):
            return
        self._busy = True
        try:
            self.files.write_back_all()
            self.nodes.write(list(self.nodes.dirty))
            make_room(self.cleaner, self.segments, lambda more: self._enough(blocks, more), self._checkpoint_within)
        except NoFreeSegment as error:
            self._broken = "no segment is free"
            raise OSError(errno.ENOSPC, self._broken) from error
        finally:
            self._busy = False
        if not self.segments.free_sections and self._needed(blocks) > 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _calm(self, blocks: int) -> bool:
        """Whether nothing is due, seen from counters alone; asked before each operation."""
        pages, nodes, segments = self.files.page_count, self.nodes, self.segments
        dirty = len(nodes.dirty)
        if pages >= self._pages_held or dirty >= self._nodes_held or nodes.holds_much:
            return False
        if self._may_be_full and self.short_of_room(blocks):
            return False
        left = segments.free_sections - segments.reserved_sections - 2
        return left > (dirty + pages + blocks + 8) // self._blocks_per_section

    def short_of_room(self, blocks: int) -> bool:
        """Whether the device may be full before what is in memory, and so many blocks more, are safe.

        Each block may need another one of the tables that lead to it.
        """
        room = self.device.room_bytes
        if room is None:
            return False
        waiting = self.files.page_count + len(self.nodes.dirty) + blocks
        waiting += self.segments.node_blocks_written - self._nodes_at_checkpoint  # recovery would write them anew
        return room < (2 * waiting + SPARE_BLOCKS) * self.geo.block_size

    def discard_free(self) -> None:
        """Right after a checkpoint: discard what it doesn't need, on a device that may be full before its end."""
        if self._may_be_full:
            discard_unused(self.device, self.geo, self.segments.valid_map)

    def win_room(self) -> bool:
        """A checkpoint, and `discard_free`: whether the device has more room then."""
        before = self.device.room_bytes
        self.sync()
        self.discard_free()
        return before is not None and (self.device.room_bytes or 0) > before

    @cached_property
    def _may_be_full(self) -> bool:
        return self.device.room_bytes is not None

    def _checkpoint_within(self) -> None:
        self.checkpoint()
        self._busy = True

    @cached_property
    def _pages_held(self) -> int:
        """Dirty pages, or nodes, that are held at most: few on a small volume, whose reserve they must fit in."""
        return max(64, min(8192, self.geo.segment_count_main * 8))

    @cached_property
    def _nodes_held(self) -> int:
        return min(DIRTY_NODES_HELD, self._pages_held)

    @cached_property
    def _blocks_per_section(self) -> int:
        return self.geo.segs_per_sec << LOG_BLOCKS_PER_SEG

    def _needed(self, blocks: int) -> int:
        """Free sections that what is in memory and `blocks` more may take, beyond the room in the open logs.

        Data that goes into holes takes none.
        """
        per = self._blocks_per_section
        segments = self.segments
        nodes, pages = len(self.nodes.dirty) + 8, self.files.page_count + blocks
        sections = 0
        if nodes > min(segments.room_in_log(kind) for kind in self._node_logs):
            sections += -(-nodes // per)
        threaded = segments.threading and not segments.holes_ran_out
        if threaded and blocks > per:  # so many at once, which a checkpoint can't stand between
            threaded = segments.data_holes() >= pages
        if not threaded and pages > min(segments.room_in_log(kind) for kind in self._data_logs):
            sections += -(-pages // per)
        return sections

    @cached_property
    def _node_logs(self) -> set[int]:
        policy = self.policy
        return {policy.node_log(direct, directory) for direct in (False, True) for directory in (False, True)}

    @cached_property
    def _data_logs(self) -> set[int]:
        policy = self.policy
        return {policy.data_log(directory, cold, hot) for directory, cold, hot in product((False, True), repeat=3)}

    def _enough(self, blocks: int, more: int = 0) -> bool:
        segments, per = self.segments, self._blocks_per_section
        left = segments.free_sections + more - segments.reserved_sections
        nodes, pages = len(self.nodes.dirty) + 8, self.files.page_count + blocks
        if left > -(-nodes // per) + -(-pages // per):  # even with no room in the open logs
            return True
        return left > self._needed(blocks)

    def require_places(self, blocks: int, cleaned: bool = True) -> None:
        """OSError ENOSPC unless so many blocks of data, and what is in memory, have places before a checkpoint.

        Without `cleaned`: unless they would have, were every hole won by cleaning.
        """
        segments = self.segments
        if not cleaned:
            sections = segments.sections - segments.reserved_sections
            if self.space.valid_blocks + blocks > sections * self._blocks_per_section:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return
        # What is spare may serve: the checkpoint behind the change gives back as much as that took.  Its nodes, and
        # what cleaning begins with, need some.
        per = self._blocks_per_section
        nodes = len(self.nodes.dirty) + blocks // self.geo.addrs_per_block + 8
        kept = min(segments.reserved_sections, KEPT_SECTIONS + -(-nodes // per))
        places = max(0, segments.free_sections - kept) * per
        if segments.may_thread:
            places += segments.data_holes()
        if blocks + self.files.page_count > places:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def clean_section(self, section: int) -> int:
        """Move what is valid out of a section, which the next checkpoint makes free: how many blocks.

        Pinned, or CantBeRead, and what could not be moved stays.
        """
        with self.operation(0):
            self._busy = self.midway = True
            try:
                return self.cleaner.clean(section)
            except (Pinned, CantBeRead):
                self.midway = False  # between two segments
                raise
            finally:
                self._busy = False

    def flush(self) -> None:
        """Make durable what was written; after a device that can't, nothing is written any more."""
        try:
            self.device.flush()
        except DeviceError as error:
            self.stop_writing(str(error))
            raise

    def sync(self) -> None:
        """Make everything safe: a checkpoint, if anything has changed since the last one."""
        self.usable()
        if self.unsaved:
            self.checkpoint()

    @property
    def unsaved(self) -> bool:
        """Whether anything has changed since the last checkpoint."""
        return self._changed or bool(self.files.pages) or bool(self.nodes.dirty)

    def checkpoint(self, unmount: bool = False) -> None:
        """Write all that is in memory and a checkpoint that holds it."""
        self.usable()
        within = self.inside
        self.alone()
        self._busy = True
        try:
            self.files.write_back_all()
            self._flush_quota()
            self.nodes.write(list(self.nodes.dirty))
            orphans = np.array(sorted(self._nameless), np.uint32)
            self.committer.extra_info = self._extra_info()
            self.pack = self.committer.write(
                orphans,
                unmount,
                clear_flags=CP_DISABLED_FLAG | CP_DISABLED_QUICK_FLAG,
                set_flags=CP_QUOTA_NEED_FSCK_FLAG if self.quota_lost else 0,
            )
        except BaseException as error:
            self.stop_writing(_why(error))
            raise
        finally:
            self._busy = False
            self.inside = within
        self.cp = self.pack.cp
        self._nodes_at_checkpoint = self.segments.node_blocks_written
        self._reset_free_zones()
        self.names.forget_blocks()
        self.names.pending.clear()
        self.nodes.unmarked.clear()
        self._synced.clear()
        self.nodes.lost_nodes.clear()
        self._gave_up_names.clear()
        self._need_checkpoint = False
        self._changed = False


def _why(error: BaseException) -> str:
    """What has ended writing, in words."""
    if isinstance(error, F2fsError):
        return str(error)
    return f"an operation was cut off by {type(error).__name__}" + (f" ({error})" if str(error) else "")
