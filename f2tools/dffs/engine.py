"""What every change of a volume goes through: operations, room for them, recovery after a power cut.

What changed collects in memory (`waiting`) and is written together (`commits`, `checkpoints`).  After an error of the
flash, or one in the midst of a change, nothing is written any more.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from f2tools.device.base import Device
from f2tools.dffs.checkpoints import Checkpoints
from f2tools.dffs.cleaning import clean, clean_once
from f2tools.dffs.layout import SPACE
from f2tools.dffs.nodes import Directory, File
from f2tools.dffs.opening import go_on, recover
from f2tools.dffs.space import Policy
from f2tools.dffs.volume import KEPT_NODES, fail
from f2tools.flash.nand import Nand
from f2tools.volumes import StopsAtErrors

MOST_FRESH = 512  # pages of content that wait in memory
MOST_WAITING = 4096  # nodes
SHARE_WON_IDLE = 8  # one part in so many of the blocks is won while idle


class Engine(StopsAtErrors, Checkpoints):
    """A volume that is open for writing; see the module's docstring."""

    def __init__(
        self,
        device: Device | Nand,
        *,
        clock: Callable[[], int] = time.time_ns,
        keep_nodes: int = KEPT_NODES,
        policy: Policy = "greedy",
    ) -> None:
        super().__init__(device, clock=clock, keep_nodes=keep_nodes, policy=policy)
        self._changed = False
        self._closed = False
        self._generation = self.clock() // 1_000_000
        self._settle()

    def _settle(self) -> None:
        """Put what a power cut left in order."""
        if not self.clean:
            with self._guarded():
                recover(self)

    # -- files that are held

    def release(self, ino: int) -> None:
        """Release an inode once; without a name it is then removed."""
        count = self._held.get(ino, 0) - 1
        if count > 0:
            self._held[ino] = count
            return
        self._held.pop(ino, None)
        place = self._pinned.pop(ino, None)
        if place is not None:
            self._recent[ino] = place
        gone = self._nameless.get(ino)
        if gone is not None and self._broken is None:
            with self._operation(0):
                self.midway = True
                self._evict(gone)

    # -- making it safe

    def fsync(self, ino: int, datasync: bool = False) -> None:
        """Make one file or directory safe, and everything else with it."""
        self.sync()

    def sync(self) -> None:
        """Make everything safe."""
        self._usable()
        if self._changed:
            with self._guarded():
                self.commit()
                self.midway = True
                self.log.chip.flush()
                self._changed = False

    @property
    def unsaved(self) -> bool:
        """Whether anything has changed since the last sync."""
        return self._changed

    def close(self) -> None:
        """Make everything safe, write a checkpoint that says so, and close the device."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._broken is None and self._loaded:
                for ino in self.nameless:
                    self._evict(self._nameless[ino])
                self.commit()
                if self.log.since or not self.state.head.clean:
                    self.checkpoint(clean=True)
        finally:
            self.pages.close()

    def abandon(self) -> None:
        """Close the device without writing anything more, as a power cut would."""
        self._closed = True
        self.pages.close()

    # -- operations

    def _usable(self) -> None:
        """OSError EROFS where nothing is written any more; ValueError once closed."""
        if self._closed:
            raise ValueError("the volume is closed")
        self.usable()

    @contextmanager
    def _operation(self, pages: int) -> Iterator[None]:
        """One change; it first makes sure of room for so many pages more.

        Within, all that can be refused comes first, and then `midway`; see `StopsAtErrors`.
        """
        self._usable()
        with self._guarded():
            self._load()
            self.make_room(pages)
            self._changed = self._inside = True
            try:
                yield
            finally:
                self._inside = False
                while len(self._nodes) > self.keep_nodes:
                    self._nodes.popitem(last=False)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """An error that is no refusal ends all writing."""
        self.midway = False
        try:
            yield
        except BaseException as error:
            self.ended(error)
            raise

    def commit(self) -> None:
        before, self.midway = self.midway, True
        super().commit()
        self.midway = before

    def checkpoint(self, clean: bool = False) -> None:
        before, self.midway = self.midway, True
        super().checkpoint(clean)
        self.midway = before

    def make_room(self, pages: int) -> None:
        """Make sure that so many pages can be written and be in use, and a checkpoint after them; ENOSPC."""
        if self._fresh >= MOST_FRESH or self.waiting + pages > self.log.room // 3:
            self.commit()
        if self.space.used + self.waiting + pages > self.capacity:
            self.commit()
            if pages and self.space.used + pages > self.capacity:
                raise fail(errno.ENOSPC)
        if not self._fits(pages):
            self.commit()
            self.checkpoint()
            if not self._fits(pages):
                clean(self, lambda: self._fits(pages))
            elif self.space.resting(self.log.busy) is not None:
                clean_once(self, most=1)
            if pages and not self._fits(pages):
                raise fail(errno.ENOSPC)

    def balance(self) -> None:
        """Write what waits where it is much."""
        if self._fresh >= MOST_FRESH or self.waiting > MOST_WAITING:
            with self._guarded():
                self.commit()

    def clean_idle(self) -> bool:
        """Empty a block while idle, where few are free; whether there may be more to do."""
        if self._broken is not None or not self._loaded:
            return False
        free = len(self.space.free(self.log.busy)) + len(self.log.chain)
        if free * SHARE_WON_IDLE >= self.shape.blocks or self.space.used * 2 < self.space.log_pages:
            return False
        with self._guarded():
            return clean_once(self, most=1) > 0

    # -- opening

    def _load(self) -> None:
        """Before the first change: what is in use, and whether the log can go on where it is."""
        if self._loaded:
            return
        pages = [
            self.pages.read(page, (SPACE,))[0] if page else bytes(self.shape.page_size) for page in self.state.space
        ]
        self.space.load(pages, [*self.state.table, *self.state.space])
        go_on(self)
        self._loaded = True

    # -- what goes

    def _evict(self, gone: Directory | File) -> None:
        """Give back the pages of a file or directory without a name."""
        self._nameless.pop(gone.ino, None)
        self._recent.pop(gone.ino, None)
        if isinstance(gone, File):
            self.free_content(gone, 0)

    def free_content(self, file: File, keep: int) -> None:
        """Give back the pages of a file from page `keep` on."""
        raise NotImplementedError
