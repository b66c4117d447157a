"""Writes that a disk forgot though it had said that they were flushed: what none of them held comes back."""

from __future__ import annotations

from pathlib import Path

from tests.endurance.campaign import Campaign, Found, Outcome
from tests.fsck import lost_writes

CASES, TOGETHER = 20_000, 20


def piece(seed: int, work: Path) -> Outcome:
    """So many cases, one after the other."""
    outcome = Outcome(TOGETHER)
    for number in range(seed * TOGETHER, (seed + 1) * TOGETHER):
        verdict = lost_writes.judged(number, work)
        outcome.counts["findings repaired"] += sum(verdict.found.values())
        if verdict.wrong:
            what = f"case {number}, {lost_writes.case(number).what}: {verdict.wrong[:2000]}"
            outcome.found.append(Found(what, operations=[f"python -m tests.fsck.lost_writes {number}"]))
    return outcome


FORGOTTEN = Campaign(
    "lost-writes",
    "a recorded workload of ours, or from piece 500 on of the kernel's, at some moment: some of the last blocks never"
    " arrived, whatever was flushed, a whole erase block is as it was, or blocks lie where others belong; after a"
    " repair each file of which no block was hit is as it was, and fsck.f2fs is silent",
    "cases", CASES, TOGETHER, piece, warm=lost_writes.load,
)  # fmt: skip
