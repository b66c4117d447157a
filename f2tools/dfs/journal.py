"""What has changed and is not safe yet: blocks of inodes and directories, and ranges to be trimmed.

All of it becomes safe at once: through the write-ahead log, or without one by one atomic write of the layer; a single
block is simply written.  What is trimmed stays until the change that frees it is safe.  Room for all of it is reserved
beforehand, so that making it safe never fails for lack of it.
"""

from __future__ import annotations

from f2tools.dfs.layout import BLOCK, MOST_WAL_BLOCKS, Geometry
from f2tools.dfs.wal import Transaction, blocks_for, neighbours, put_in_place, write_transaction
from f2tools.flash.vsl import Vsl

MARGIN = 24  # blocks that one operation changes at most, and ranges that it trims


class Journal:
    """See the module's docstring."""

    def __init__(self, layer: Vsl, geo: Geometry, seq: int) -> None:
        self.layer = layer
        self.geo = geo
        self.seq = seq
        self.dirty: dict[int, bytes] = {}
        self.trims: list[tuple[int, int]] = []
        self.commits = 0
        self.through_log = 0
        self.as_one = 0
        self._fresh: set[int] = set()  # dirty blocks that are not mapped yet
        self._buried: set[int] = set()  # dirty blocks that are trimmed once their content is safe

    @property
    def free_blocks(self) -> int:
        """How many more blocks may get content."""
        return self.layer.free_blocks - len(self._fresh)

    @property
    def full(self) -> bool:
        """Whether the next operation might not fit into the log, or the atomic write, any more."""
        if self.geo.hashed:
            return len(self.dirty) + MARGIN > min(self.layer.atomic_bytes // BLOCK, MOST_WAL_BLOCKS)
        return blocks_for(len(self.dirty) + MARGIN, len(self.trims) + MARGIN) > self.geo.wal_blocks

    @property
    def empty(self) -> bool:
        """Whether nothing has changed."""
        return not self.dirty and not self.trims

    def fresh_in(self, start: int, count: int) -> list[int]:
        """The changed blocks of a range that are not mapped yet."""
        if count < len(self._fresh):
            return [block for block in range(start, start + count) if block in self._fresh]
        return [block for block in self._fresh if start <= block < start + count]

    def read(self, block: int) -> bytes:
        """A block as it is now."""
        found = self.dirty.get(block)
        return self.layer.read_vblocks(block, 1) if found is None else found

    def write(self, block: int, data: bytes) -> None:
        """Change a block."""
        assert len(data) == BLOCK
        if block not in self.dirty and not self.layer.extents(block, 1):
            self._fresh.add(block)
        self.dirty[block] = data
        self._buried.discard(block)

    def bury(self, block: int, data: bytes) -> None:
        """Change a block for the last time: it is trimmed afterwards, and may be found with this content until then.

        Trims are not part of an atomic write, so this content must mean as much as none.
        """
        if block in self._fresh:
            self._forget(block)
        elif block in self.dirty or self.layer.extents(block, 1):
            self.dirty[block] = data
            self._buried.add(block)

    def trim(self, start: int, count: int) -> None:
        """Give a range back, when that is safe."""
        gone = [start] if count == 1 else [block for block in self.dirty if start <= block < start + count]
        for block in gone:
            self._forget(block)
        if self.layer.extents(start, count):
            self.trims.append((start, count))

    def commit(self) -> None:
        """Make everything safe, and what was written to the layer before."""
        if self.empty:
            self.layer.flush()
            return
        self.commits += 1
        if len(self.dirty) == 1 and not self.trims and not self._buried:
            ((block, data),) = self.dirty.items()
            self.layer.write_vblocks(block, data)
            self.layer.flush()
        elif self.geo.hashed:
            self._write_as_one()
        else:
            self.seq += 1
            self.through_log += 1
            wanted = Transaction(self.seq, dict(self.dirty), list(self.trims))
            write_transaction(self.layer, wanted)
            self.layer.flush()
            put_in_place(self.layer, wanted)
        self.dirty.clear()
        self.trims.clear()
        self._fresh.clear()
        self._buried.clear()

    def _write_as_one(self) -> None:
        self.as_one += 1
        self.layer.write_atomic(neighbours(self.dirty))
        for start, count in [*self.trims, *((block, 1) for block in sorted(self._buried))]:
            self.layer.trim_vblocks(start, count)
        self.layer.flush()

    def _forget(self, block: int) -> None:
        self.dirty.pop(block, None)
        self._fresh.discard(block)
        self._buried.discard(block)
