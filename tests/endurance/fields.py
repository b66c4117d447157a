"""One wrong field at a time: of every reference image that is a whole volume, the whole tree is compared after the
repair.

Two campaigns: what belongs to files (tests/fsck/fields.py), and what holds a volume together (table_fields.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.endurance.campaign import Campaign, Found, Outcome
from tests.fsck import fields, table_fields

# image -> pieces, of some minutes each
FILES = {
    "base": 6, "plain": 4, "checksums": 6, "features": 6, "casefold": 2, "compress-lz4": 2, "compress-released": 2,
    "compress-user": 2, "blocks16k-compress": 5, "blocks16k-casefold": 5, "device-alias-16k": 8, "packed-ssa": 4,
    "noinline": 6, "noinline-xattr": 6, "inline-xattr-size": 6, "fscrypt": 6, "fscrypt-android": 12, "phone": 2,
    "sparse-phone": 2, "history-a": 2, "multi-device": 2, "sections": 1, "zoned": 2, "full": 2, "fragmented": 1,
    "checkpoint-disabled": 1, "active-logs-2": 1,
}  # fmt: skip
TABLES = {
    "base": 20, "plain": 20, "checksums": 20, "features": 24, "blocks16k-compress": 24, "packed-ssa": 20,
    "multi-device": 20, "zoned": 16, "sections": 16, "phone": 20, "checkpoint-disabled": 16, "crash-orphan": 16,
    "crash-append-inline": 16, "crash-several": 16, "crash-xattr": 16, "crash-stress-3": 16,
}  # fmt: skip
TOLD = 5


def _pieces(source: Any, slices: dict[str, int]) -> tuple[int, Callable[[int, Path], Outcome]]:
    """(How many, what runs one): a piece is every so manieth case of one image."""
    pieces = [(name, number) for name, count in slices.items() for number in range(count)]

    def piece(seed: int, work: Path) -> Outcome:
        del work
        name, number = pieces[seed]
        outcome = Outcome(1)
        for case in source.cases(name)[number :: slices[name]]:
            wrong, _ = source.judged(name, case)
            outcome.counts["fields"] += 1
            if wrong:
                what = f"{name}: {case}: {wrong[:TOLD]}\nagain: python -m {source.__name__} {name} 1 '{case}'"
                outcome.found.append(Found(what, name, source.patch(name, case)))
        return outcome

    return len(pieces), piece


_OF_FILES, _file_piece = _pieces(fields, FILES)
_OF_TABLES, _table_piece = _pieces(table_fields, TABLES)

FIELDS = Campaign(
    "fields",
    "every field of inodes, footers and directory entries, and every kind of word in nodes, is set to several wrong"
    " values, one at a time: after the repair the whole tree is there but for what only that field told",
    "slices", _OF_FILES, 1, _file_piece, minutes=45,
)  # fmt: skip
TABLE_FIELDS = Campaign(
    "tables",
    "every field of superblocks, checkpoints, tables, journals, summaries, lists of orphans and attributes is set to"
    " several wrong values, one at a time: reading bears it, and after the repair the whole tree is there but for what"
    " only that field told",
    "slices", _OF_TABLES, 1, _table_piece, minutes=45,
)  # fmt: skip
