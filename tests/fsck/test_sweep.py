"""Every block of metadata is lost in turn, alone and with another: the whole tree comes back, to the last byte.

`make nightly` tries all of them (F2_FSCK_EVERY); here it is every so manieth, from another one on for each way.
`python -m tests.fsck.sweep IMAGE KIND WAY BLKADDR -v` tells the story of one.
"""

from __future__ import annotations

import os

import pytest

from tests.fsck import sweep
from tests.fsck.sweep import WAYS

ALL = bool(int(os.environ.get("F2_FSCK_EVERY", "0")))
IMAGES = ("base", "features", *(("checksums", "casefold", "compress-lz4", "sections", "multi-device") if ALL else ()))
SINGLES, PAIRS = (1 << 30, 400) if ALL else (5, 2)  # cases of an image and a way
TOLD = 5


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", IMAGES)
def test_what_one_lost_block_does_not_hold_is_all_there(name: str, way: str) -> None:
    cases = [block for block, _ in sweep.cases(name, ways=(way,))]
    step = max(1, len(cases) // SINGLES)
    failures = [
        f"{block.kind} {block.blkaddr}: {wrong[:TOLD]}"
        for block in cases[WAYS.index(way) % step :: step]
        if (wrong := sweep.judged(name, [block], way)[0])
    ]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("way", WAYS[:2])
@pytest.mark.parametrize("name", IMAGES)
def test_what_two_lost_blocks_do_not_hold_is_all_there(name: str, way: str) -> None:
    pairs = sweep.pairs(name)
    step = max(1, len(pairs) // PAIRS)
    failures = [
        f"{[(block.kind, block.blkaddr) for block in pair]}: {wrong[:TOLD]}"
        for pair in pairs[step // 2 :: step]
        if (wrong := sweep.judged(name, pair, way)[0])
    ]
    assert not failures, "\n".join(failures)
