"""The parts of a volume that is written, and the state that its operations share: managers, clock, what has changed."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from functools import cached_property
from operator import index
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.f2fs.layout.constants import (
    CURSEG_HOT_NODE,
    U64_MAX,
)
from f2tools.f2fs.layout.summary import ExtraInfo, SummaryBlock
from f2tools.f2fs.volume.checkpoint import Which, choose_pack
from f2tools.f2fs.volume.nat import LiveNat
from f2tools.f2fs.volume.volume import RESERVED_NODES, Volume
from f2tools.f2fs.write.checkpoint import Committer
from f2tools.f2fs.write.dir import Directories
from f2tools.f2fs.write.gc import Cleaner
from f2tools.f2fs.write.holes import Holes
from f2tools.f2fs.write.inode import CompressOptions, InodeMaker
from f2tools.f2fs.write.live_data import LiveData
from f2tools.f2fs.write.mapping import Mapper
from f2tools.f2fs.write.node import LiveInode, NodeManager
from f2tools.f2fs.write.policy import Policy
from f2tools.f2fs.write.segment import SegmentManager
from f2tools.f2fs.write.space import Space
from f2tools.volumes import MOST_ID, StopsAtErrors

DRAWN = 64  # generations


class Parts(StopsAtErrors, Volume):
    """A volume whose readers are replaced by parts that can change."""

    def __init__(
        self, device: Device, which: Which, policy: Policy, clock: Callable[[], int], seed: int | None
    ) -> None:
        super().__init__(device, which)
        self.policy = policy
        self.clock = clock
        self._random = random.Random(seed) if seed is not None else random.SystemRandom()
        self._generations: list[int] = []  # drawn, and not yet used
        self._drawn_at_once = DRAWN if seed is None else 1  # asking the system for one takes as long as for many
        self.compress_options = CompressOptions()
        self._held: dict[int, int] = {}  # ino -> how often it is held
        self._nameless: set[int] = set()
        self._synced: dict[int, bytes] = {}  # inodes fsync'ed since the last checkpoint, and what they were then
        self._gave_up_names: set[int] = set()  # directories with names of files that may have others since then
        self._need_checkpoint = False  # what fsync can't bring back has changed
        self._changed = False
        self._nodes_at_checkpoint = 0  # node blocks written before the last checkpoint, since the volume was opened
        self._busy = False  # the cleaner or a checkpoint is at work

    def _start(self) -> None:
        """Read what writing needs, once it is known that the volume may be written."""
        self._written_kib = self._kbytes_written()
        self.committer = Committer(
            self.device, self.geo, self.pack, self.nat, self.segments, self.space, self.summaries.journals.sit["segno"]
        )
        self.committer.version = choose_pack(self.packs).cp.checkpoint_ver

    @cached_property
    def nat(self) -> LiveNat:
        return LiveNat(self.device, self.geo, self.pack, self.summaries.journals.nat, self.policy.kept_nids)

    @cached_property
    def segments(self) -> SegmentManager:
        """Valid blocks, free segments, open logs."""
        return SegmentManager(
            self.device, self.geo, self.pack, self.sit, self.summaries, self.policy, lambda: self.clock() / 1e9
        )

    @cached_property
    def space(self) -> Space:
        """What is in use and what may be taken."""
        return Space(self.cp, self.geo.max_nid - RESERVED_NODES)

    @cached_property
    def nodes(self) -> NodeManager:
        return NodeManager(
            self.device, self.geo, self.nat, self.segments, self.space, self.sb.uuid, lambda: self.committer.cp_ver
        )

    @cached_property
    def data(self) -> LiveData:
        return LiveData(self.device, self.geo, self.nodes)

    @cached_property
    def mapper(self) -> Mapper:
        """Addresses of file blocks."""
        return Mapper(self.geo, self.nodes, self.segments, self.space)

    @cached_property
    def files(self) -> Holes:
        """Content of files."""
        return Holes(self.device, self.geo, self.nodes, self.mapper, self.segments, self.data)

    @cached_property
    def names(self) -> Directories:
        """Entries of directories."""
        return Directories(self.geo, self.nodes, self.mapper, self.files, self.sb.s_encoding_flags)

    @cached_property
    def maker(self) -> InodeMaker:
        """New inodes."""
        return InodeMaker(self.sb, self.geo, self.nodes, self.space)

    @cached_property
    def cleaner(self) -> Cleaner:
        """Moves valid blocks out of sections."""
        return Cleaner(self.device, self.geo, self.nodes, self.segments, self.files)

    def live(self, ino: int) -> LiveInode:
        """The inode with this number, to be changed."""
        return self.nodes.live(ino)

    def new_generation(self) -> int:
        """The generation of a new inode, which tells it from an older one of the same number."""
        if not self._generations:
            self._generations = self.new_generations(self._drawn_at_once).tolist()
        return self._generations.pop()

    def new_generations(self, count: int) -> NDArray[np.uint32]:
        """As `new_generation`, of so many inodes one after the other."""
        return np.frombuffer(self._random.getrandbits(32 * count).to_bytes(4 * count, "little"), "<u4")

    def stamp(self, inode: LiveInode, modified: bool = False) -> None:
        """The inode changes now, and with `modified` its content."""
        self.stamp_at(inode, self.clock(), modified)

    def stamp_at(self, inode: LiveInode, now: int, modified: bool = False) -> None:
        """The inode changed at this time, and with `modified` its content."""
        inode.stamp(now, modified)
        if not modified and inode.is_dir:
            self.names.pending.changed(inode.ino)
        self.nodes.touch(inode)

    def _kbytes_written(self) -> int:
        """KiB written in the volume's life, from the summary of the hot node log; 0 where it is not kept."""
        curseg = next(c for c in self.summaries.cursegs if c.kind == CURSEG_HOT_NODE)
        if curseg.blkaddr is None:
            return 0
        size = self.geo.sum_block_size
        row = SummaryBlock.at(size).table(self.device.read_range(curseg.blkaddr, 1, self.geo.block_size)[0][:size])[0]
        return ExtraInfo.at(size).parse(row["journal"].tobytes()).kbytes_written

    def _extra_info(self) -> bytes:
        written = self._written_kib + self.segments.written_blocks * self.geo.block_size // 1024
        return ExtraInfo.at(self.geo.sum_block_size)(kbytes_written=min(written, U64_MAX)).build()


def check_ids(*numbers: int | None) -> None:
    """OSError EINVAL for what can't be the number of a user or group; None is no number."""
    for number in numbers:
        if number is not None and not 0 <= index(number) <= MOST_ID:
            fail(errno.EINVAL)


def fail(number: int, name: bytes | None = None) -> NoReturn:
    """OSError with this errno, about a name where there is one."""
    if name is None:
        raise OSError(number, os.strerror(number))
    raise OSError(number, os.strerror(number), os.fsdecode(name))
