"""Repairs of random damage: they end, a second check and fsck.f2fs are silent, and what was not touched is there.

`make nightly` tries thousands: F2_FSCK_FUZZ is the number of cases for each image, F2_FSCK_FIRST the
first of them.  A failure names image and number; `python -m tests.fsck.fuzz IMAGE NUMBER -v` tells its story.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import judges
from tests.fsck import fuzz
from tests.hostile.exercise import in_child

IMAGES = ("base", "features", "casefold", "compress-lz4", "checksums", "plain", "noinline", "sections")
CASES = int(os.environ.get("F2_FSCK_FUZZ", "5"))
FIRST = int(os.environ.get("F2_FSCK_FIRST", "0"))
TOLD = 5


def _all(name: str, work: Path) -> list[str]:
    failures: list[str] = []
    for number in range(FIRST, FIRST + CASES):
        verdict = fuzz.judged(name, number, work)
        if verdict.wrong:
            failures.append(f"{name} {number}: {verdict.wrong}")
    return failures


@pytest.mark.peer
@pytest.mark.parametrize("name", IMAGES)
def test_what_random_damage_left_is_saved(name: str, tmp_path: Path) -> None:
    judges.need_tool("fsck.f2fs")
    print(f"{name}: cases {FIRST} to {FIRST + CASES - 1}")
    failures = in_child(lambda: _all(name, tmp_path))
    assert not failures, f"{len(failures)} failures\n" + "\n".join(failures[:TOLD])


def test_a_case_is_the_same_damage_every_time() -> None:
    assert fuzz.damage("base", 7) == fuzz.damage("base", 7)
    assert fuzz.damage("base", 7) != fuzz.damage("base", 8)
