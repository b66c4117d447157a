"""All campaigns, and which pieces belong to which shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.endurance import (
    audit,
    failing,
    fields,
    fsx,
    images,
    injected,
    kernel,
    lost_blocks,
    lost_writes,
    machine,
    nightly,
    parsers,
    power,
    xfstests,
)
from tests.endurance.campaign import Campaign

CAMPAIGNS: tuple[Campaign, ...] = (
    images.READ,
    images.REPAIRED,
    fsx.FSX,
    injected.INJECTED,
    power.POWER,
    kernel.KILLED,
    kernel.CRASHED,
    lost_blocks.LOST,
    fields.FIELDS,
    fields.TABLE_FIELDS,
    machine.MACHINE,
    parsers.PARSERS,
    xfstests.XFSTESTS,
    audit.AUDITED,
    failing.FAILING,
    nightly.NIGHTLY,
    lost_writes.FORGOTTEN,
)


@dataclass(frozen=True)
class Piece:
    """One piece of a campaign."""

    campaign: Campaign
    seed: int


def named(name: str) -> Campaign:
    """The campaign of that name."""
    found = {campaign.name: campaign for campaign in CAMPAIGNS}
    if name not in found:
        raise SystemExit(f"there is no campaign {name!r}; there are {', '.join(found)}")
    return found[name]


def shard(number: int, count: int, campaigns: Sequence[Campaign] = CAMPAIGNS) -> list[Piece]:
    """The pieces of shard `number`, from 1, of `count`.

    All campaigns go on at the same pace: after half of a shard half of each is done.
    """
    placed = [
        ((seed + 0.5) / campaign.pieces, index, seed)
        for index, campaign in enumerate(campaigns)
        for seed in range(campaign.pieces)
    ]
    return [Piece(campaigns[index], seed) for _, index, seed in sorted(placed)[number - 1 :: count]]
