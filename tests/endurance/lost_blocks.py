"""Every metadata block of five images lost in turn, in each way; the whole tree is compared after the repair."""

from __future__ import annotations

from pathlib import Path

from tests.endurance.campaign import Campaign, Found, Outcome
from tests.fsck import sweep

IMAGES = ("base", "features", "checksums", "casefold", "compress-lz4")
SLICES = 24  # pieces of an image and a way


def piece(seed: int, work: Path) -> Outcome:
    """Every so manieth block of one image, lost in one way."""
    name, way = IMAGES[seed % len(IMAGES)], sweep.WAYS[seed // len(IMAGES) % len(sweep.WAYS)]
    outcome = Outcome(1)
    for block, _ in sweep.cases(name, ways=(way,))[seed // (len(IMAGES) * len(sweep.WAYS)) :: SLICES]:
        wrong, _ = sweep.judged(name, [block], way)
        outcome.counts["blocks lost"] += 1
        if wrong:
            what = f"{name}: {block.kind} {block.blkaddr} {way}: {wrong[:5]}"
            again = f"python -m tests.fsck.sweep {name} {block.kind} {way} {block.blkaddr} -v"
            change = sweep.patch(name, block, way)
            outcome.found.append(Found(f"{what}\nagain: {again}", name, [change] if change else []))
    return outcome


LOST = Campaign(
    "lost-blocks",
    "every metadata block of five images is lost in turn, to zeros, noise, half of it, an older version: after the"
    " repair the whole tree is there but for what only that block held",
    "slices", len(IMAGES) * len(sweep.WAYS) * SLICES, 1, piece, minutes=30,
)  # fmt: skip
