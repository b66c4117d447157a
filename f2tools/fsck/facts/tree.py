"""The tree of names with the verdicts of witnesses: what checks and repairs of directories need."""

from __future__ import annotations

from functools import cached_property

from f2tools.fsck.facts.reach import Reach
from f2tools.fsck.facts.witnesses import claimed_entries, outvoted_kinds


class Tree(Reach):
    """Names and inodes, and where the majority of witnesses contradicts what stands there."""

    @cached_property
    def outvoted(self) -> dict[int, int]:
        """Inode row -> its type, where everything else speaks against i_mode."""
        return outvoted_kinds(self)

    @cached_property
    def claimed(self) -> dict[int, int]:
        """Entry -> inode row that it should lead to."""
        return claimed_entries(self)
