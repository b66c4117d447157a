"""What a repair had to guess, and says afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from f2tools.f2fs.volume.recovery import Contested


@dataclass
class Guesses:
    """What a repair had to guess, over all its rounds: of which inodes something, and the checkpoint."""

    made: set[int] = field(default_factory=set)  # inodes that are made anew: size, mode, owner and times
    sized: set[int] = field(default_factory=set)  # inodes whose i_size comes from the blocks that they have
    older: set[int] = field(default_factory=set)  # inodes of which a node is an older copy from the log
    deleted: set[int] = field(default_factory=set)  # inodes that only an older directory still names
    cleared: set[int] = field(default_factory=set)  # inodes of which neither a copy nor anything of them was found
    doubtful: dict[int, str] = field(default_factory=dict)  # inodes of files that may not be whole, and why
    strays: set[int] = field(default_factory=set)  # inodes with an address that is another's, and stays
    changed: bool = False  # whether a repair has looked for, set or made anything but what misleads all others
    journals_lost: bool = False  # neither pack was valid, or its journals were hit: the tables may be behind the log
    journals_of: int = -1  # version of the checkpoint of which the journals were hit: the first repair sets them right
    pack_derived: bool = False  # nothing of the packs could be used

    def note_contested(self, blocks: Sequence[Contested]) -> list[str]:
        """Blocks that files lost to others as they came back, in words; both files are in doubt then."""
        for one in blocks:
            for ino in (one.first, one.second):
                self.doubtful[ino] = f"block {one.blkaddr:#x} was fsync'ed in inode {one.first} and in {one.second}"
        return [f"R006 {one}" for one in blocks]
