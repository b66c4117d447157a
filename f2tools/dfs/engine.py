"""What every change of a volume goes through: operations, the journal, inodes in memory, order after a power cut.

Changed blocks of inodes and directories become safe together: at an fsync or sync, when the journal is full, and before
a file grows into room that was freed but not given back yet.  After an error of the device, or one in the midst of a
change, nothing is written any more.
"""

from __future__ import annotations

import errno
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from zlib import crc32

from f2tools.dfs.hashed import HashedDirectories
from f2tools.dfs.inode import Inode, parse_inode
from f2tools.dfs.journal import Journal
from f2tools.dfs.layout import BLOCK, INODE_START, ROOT_INO, SUPER_PLACES
from f2tools.dfs.leftover import leftovers
from f2tools.dfs.names import Directories, ListedDirectories
from f2tools.dfs.volume import Volume, fail, joined
from f2tools.dfs.wal import put_in_place, read_head
from f2tools.errors import Corrupt, Where
from f2tools.flash.vsl import Full, Vsl
from f2tools.volumes import StopsAtErrors

KEPT_INODES = 4096
SEARCH = 4096  # inodes looked at together for a free one


class Engine(StopsAtErrors, Volume):
    """A volume that is open for writing; see the module's docstring."""

    def __init__(self, layer: Vsl, *, clock: Callable[[], int] = time.time_ns) -> None:
        """Corrupt where the layer has lost what it can't tell: putting the rest in order could cost more."""
        super().__init__(layer)
        if self.doubt is not None:
            raise Corrupt(Where(area="storage layer"), self.doubt)
        self.clock = clock
        waiting = self.waiting
        seq = waiting.seq if waiting is not None else 0 if self.geo.hashed else read_head(layer).seq
        self.left_over = 0
        self.journal = Journal(layer, self.geo, seq)
        kind = HashedDirectories if self.geo.hashed else ListedDirectories
        self.names: Directories = kind(self, self.journal, self._put)
        self._inodes: OrderedDict[int, Inode] = OrderedDict()
        self._held: dict[int, int] = {}
        self._nameless: set[int] = set()
        self._settling: set[int] = set()  # files that became shorter, or were removed, since the last commit
        self._cursor = ROOT_INO
        self._changed = False
        self._closed = False
        self._marked = False
        self._generation = self.clock() // 1_000_000
        if waiting is not None:
            put_in_place(layer, waiting)
            self.waiting = None
        self.inodes_used = sum(count for _, count in layer.extents(INODE_START, self.geo.max_ino + 1))
        if not self.clean:
            self._sweep()

    # -- looking

    def block(self, address: int) -> bytes:
        found = self.journal.dirty.get(address)
        return self.layer.read_vblocks(address, 1) if found is None else found

    def mapped(self, start: int, count: int) -> list[tuple[int, int]]:
        fresh = self.journal.fresh_in(start, count)
        return self.layer.extents(start, count) if not fresh else self._merged(start, count, fresh)

    def _merged(self, start: int, count: int, fresh: list[int]) -> list[tuple[int, int]]:
        return joined(self.layer.extents(start, count) + [(block, 1) for block in fresh])

    def inode(self, ino: int) -> Inode:
        found = self._inodes.get(ino)
        if found is not None:
            self._inodes.move_to_end(ino)
            return found
        if 0 < ino <= self.geo.max_ino:
            found = parse_inode(self.geo, ino, self.block(self.geo.inode_block(ino)))
        else:
            raise Corrupt(Where(ino=ino), "no inode has this number")
        self._keep(found)
        return found

    # -- inodes that are held

    def hold(self, ino: int) -> None:
        """Hold an inode: it stays when its last name goes."""
        self._held[ino] = self._held.get(ino, 0) + 1

    def release(self, ino: int) -> None:
        """Release an inode once; without a name it is then removed."""
        count = self._held.get(ino, 0) - 1
        if count > 0:
            self._held[ino] = count
            return
        self._held.pop(ino, None)
        if ino in self._nameless and self._broken is None:
            with self._operation(0):
                inode = self.inode(ino)
                self.midway = True
                self._evict(inode)

    @property
    def nameless(self) -> list[int]:
        """The inodes without a name that are held."""
        return sorted(self._nameless)

    # -- making it safe

    def fsync(self, ino: int, datasync: bool = False) -> None:
        """Make one file or directory safe, and everything else with it."""
        self.inode(ino)
        self.sync()

    def sync(self) -> None:
        """Make everything safe."""
        self._usable()
        if self._changed:
            with self._guarded():
                self._commit()
                self._changed = False

    @property
    def unsaved(self) -> bool:
        """Whether anything has changed since the last sync."""
        return self._changed

    def close(self) -> None:
        """Make everything safe, mark the volume as closed, and close the layer."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._broken is None:
                for ino in self.nameless:
                    self._evict(self.inode(ino))
                if self._changed or not self.journal.empty:
                    self._commit()
                if self._marked or not self.clean:
                    self._write_super(clean=1)
                    self.layer.flush()
        except BaseException:
            self.layer.abandon()
            raise
        if self._broken is None:
            self.layer.close()
        else:
            self.layer.abandon()

    def abandon(self) -> None:
        """Close the layer without writing anything more, as a power cut would."""
        self._closed = True
        self.layer.abandon()

    # -- inside: operations

    def _usable(self) -> None:
        """OSError EROFS where nothing is written any more; ValueError once closed."""
        if self._closed:
            raise ValueError("the volume is closed")
        self.usable()

    @contextmanager
    def _operation(self, blocks: int) -> Iterator[None]:
        """One change, which becomes safe as a whole; it first makes sure of room for so many new blocks.

        Within, all that can be refused comes first, and then `midway`; see `StopsAtErrors`.
        """
        self._usable()
        with self._guarded():
            if self.journal.full:
                self._commit()
            if blocks and self.journal.free_blocks < blocks:
                self._give_back()
                if self.journal.free_blocks < blocks:
                    raise fail(errno.ENOSPC)
            if not self._marked:
                self.midway = True
                self._write_super(clean=0)
                self._marked, self.midway = True, False
            self._changed = True
            yield

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """An error that is no refusal ends all writing."""
        self.midway = False
        try:
            yield
        except Full as error:
            self.stop_writing(str(error))
            raise fail(errno.ENOSPC) from error
        except BaseException as error:
            self.ended(error)
            raise

    def _commit(self) -> None:
        """Make safe what has changed; within an operation, not what it changes later."""
        before, self.midway = self.midway, True
        self.journal.commit()
        self._settling.clear()
        self.midway = before

    def _give_back(self) -> None:
        """Make what was freed available."""
        if self.journal.trims:
            self._commit()

    def _write_super(self, clean: int) -> None:
        self.sb.seq += 1
        self.sb.clean = clean
        self.sb.crc = crc32(self.sb.build()[:-4])
        for place in SUPER_PLACES:
            self.layer.write_vblocks(place, self.sb.build().ljust(BLOCK, b"\0"))

    def _sweep(self) -> None:
        """After a power cut, remove files without a name, and blocks that belong to no file."""
        for ino in list(self.inode_numbers()):
            try:
                inode = self.inode(ino)
            except Corrupt:
                continue
            if not inode.links:
                with self._operation(0):
                    self.midway = True
                    self._evict(inode)
        self._commit()
        found = [(item.start, item.count) for item in leftovers(self)]
        self.left_over = sum(count for _, count in found)
        for start, count in found:
            self.layer.trim_vblocks(start, count)
        self.layer.flush()
        self._changed = False

    # -- inside: inodes

    def _keep(self, inode: Inode) -> None:
        self._inodes[inode.ino] = inode
        while len(self._inodes) > KEPT_INODES:
            self._inodes.popitem(last=False)

    def _put(self, inode: Inode) -> None:
        """Note that an inode has changed."""
        self.journal.write(self.geo.inode_block(inode.ino), inode.build())
        self._keep(inode)

    def _stamp(self, inode: Inode, now: int, modified: bool = False) -> None:
        inode.ctime = now
        if modified:
            inode.mtime = now
        self._put(inode)

    def _free_ino(self) -> int:
        """An inode number that is free, the next one behind the last that was given out."""
        if self.inodes_used >= self.geo.max_ino:
            raise fail(errno.ENOSPC)
        ino, looked = self._cursor + 1, 0
        while looked <= self.geo.max_ino:
            if ino > self.geo.max_ino:
                ino = ROOT_INO + 1
            block = self.geo.inode_block(ino)
            taken = self.layer.extents(block, SEARCH)
            step = taken[0][1] if taken and taken[0][0] == block else 0
            if not step and block not in self.journal.dirty and ino not in self._settling:
                return ino
            ino, looked = ino + max(1, step), looked + max(1, step)
        raise fail(errno.ENOSPC)

    def _evict(self, inode: Inode) -> None:
        """Give back the inode block and the whole place of a file that is gone."""
        ino = inode.ino
        self._nameless.discard(ino)
        self._inodes.pop(ino, None)
        self.names.forget(ino)
        self._settling.add(ino)
        self.inodes_used -= 1
        if inode.base:
            self.journal.trim(inode.base, self.geo.place_blocks(ino, inode.base))
        if self.geo.hashed:
            inode.links = 0
            self.journal.bury(self.geo.inode_block(ino), inode.build())
        else:
            self.journal.trim(self.geo.inode_block(ino), 1)
