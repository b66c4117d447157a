"""One wrong field at a time, of every reference image that is a whole volume; the whole tree is compared after the
repair.

A module that has such cases gives them by the name of an image, judges one, and says what it writes: `SOURCES`.
"""

from __future__ import annotations

from pathlib import Path

from tests.endurance.campaign import Campaign, Found, Outcome
from tests.fsck import fields

SOURCES = (fields,)  # each with cases(name), judged(name, case), patch(name, case)
# image -> pieces, of some minutes each
SLICES = {
    "base": 6, "plain": 4, "checksums": 6, "features": 6, "casefold": 2, "compress-lz4": 2, "compress-released": 2,
    "compress-user": 2, "blocks16k-compress": 5, "blocks16k-casefold": 5, "device-alias-16k": 8, "packed-ssa": 4,
    "noinline": 6, "noinline-xattr": 6, "inline-xattr-size": 6, "fscrypt": 6, "fscrypt-android": 12, "phone": 2,
    "sparse-phone": 2, "history-a": 2, "multi-device": 2, "sections": 1, "zoned": 2, "full": 2, "fragmented": 1,
    "checkpoint-disabled": 1, "active-logs-2": 1,
}  # fmt: skip
PIECES = [(name, number) for name, count in SLICES.items() for number in range(count)]
TOLD = 5


def piece(seed: int, work: Path) -> Outcome:
    """Every so manieth case of one image."""
    name, number = PIECES[seed % len(PIECES)]
    outcome = Outcome(1)
    for source in SOURCES:
        for case in source.cases(name)[number :: SLICES[name]]:
            wrong, _ = source.judged(name, case)
            outcome.counts["fields"] += 1
            if wrong:
                what = f"{name}: {case}: {wrong[:TOLD]}\nagain: python -m {source.__name__} {name} 1 {case}"
                outcome.found.append(Found(what, name, source.patch(name, case)))
    return outcome


FIELDS = Campaign(
    "fields",
    "every field of inodes, footers and directory entries, and every kind of word in nodes, is set to several wrong"
    " values, one at a time: after the repair the whole tree is there but for what only that field told",
    "slices", len(PIECES), 1, piece, minutes=45,
)  # fmt: skip
