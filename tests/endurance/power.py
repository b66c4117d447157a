"""Power cuts of everything that writes: the tests that cut it, each first at many writes, then at all of them.

Each is a test of its own, which pytest runs with the variables that say how often it cuts.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.clean import test_power as clean
from tests.defrag import test_defrag as defrag
from tests.endurance.campaign import Campaign, Found, Outcome
from tests.fsck.test_repair import TABLE
from tests.images import ROOT
from tests.power import test_power_cut as power
from tests.resize import test_power as resize
from tests.tune import test_tune as tune

VARIABLES = ("F2_POWER_SAMPLES", "F2_CLEAN_CUTS", "F2_RESIZE_CUTS", "F2_FSCK_CUTS")
MANY, ALL = "60", "100000"


LATER = ("discarding", "little-room")  # cases that have their pieces behind all others, which keep their numbers


def each(test: object, *names: str) -> Iterator[str]:
    path = f"{test.__module__.replace('.', '/')}.py::{test.__name__}"  # type: ignore[attr-defined]
    yield from (f"{path}[{name}]" for name in names)


def _but_later(cases: Iterable[str]) -> list[str]:
    return [name for name in cases if name not in LATER]


def _tests() -> Iterator[str]:
    yield from each(power.test_every_prefix_is_a_volume_with_all_that_was_promised, *_but_later(power.EVERY_PREFIX))
    yield from each(power.test_writes_that_no_flush_came_after_may_be_lost_or_torn, *_but_later(power.CASES))
    yield from each(clean.test_the_power_may_fail_at_every_write_of_a_cleaning, *clean.CASES)
    yield from each(resize.test_the_volume_is_whole_after_every_write, *resize.CASES)
    yield from each(resize.test_what_no_flush_came_after_may_be_lost_or_torn, *resize.CASES)
    yield from each(tune.test_the_power_may_fail_at_any_time, *tune.CHANGES)
    works = (defrag.everything, defrag.in_order, defrag.a_range, defrag.with_little_room)
    names = [f"{work.__name__}-{lost}" for work in works for lost in (False, True)]
    yield from each(defrag.test_the_power_may_fail_at_any_time, *names)
    rows = [change.__name__ for change in TABLE]
    yield from (f"tests/fsck/test_power.py::test_a_repair_that_was_cut_off_can_be_finished[{row}]" for row in rows)
    yield "tests/edit/test_transaction.py -k moment"
    yield "tests/mkfs/test_format.py -k cut_short"


TESTS = tuple(_tests())
LATER_TESTS = (
    *each(
        power.test_every_prefix_is_a_volume_with_all_that_was_promised,
        *(name for name in LATER if name in power.EVERY_PREFIX),
    ),
    *each(power.test_writes_that_no_flush_came_after_may_be_lost_or_torn, *LATER),
)


def which(seed: int) -> tuple[str, str]:
    """(test, cuts) of a piece: each test twice, the second time with every cut."""
    first = 2 * len(TESTS)
    tests, number = (TESTS, seed) if seed < first else (LATER_TESTS, seed - first)
    return tests[number % len(tests)], MANY if number < len(tests) else ALL


def piece(seed: int, work: Path) -> Outcome:
    """One test."""
    test, cuts = which(seed)
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", f"--basetemp={work}/tests"]
    done = subprocess.run(
        [*command, *test.split()], cwd=ROOT, env={**os.environ, **dict.fromkeys(VARIABLES, cuts)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    if "skipped" in (last := done.stdout.strip().splitlines()[-1]):
        pytest.skip(done.stdout[-500:])
    if done.returncode:
        variables = " ".join(f"{name}={cuts}" for name in VARIABLES)
        return Outcome(1, found=[Found(f"{variables} pytest {test}\n{done.stdout[-3000:]}")])
    passed = re.search(r"(\d+) passed", last)
    assert passed is not None, done.stdout
    outcome = Outcome(1)
    outcome.counts[f"{test.split('/')[1]}, {'many' if cuts == MANY else 'all'} writes"] += 1
    return outcome


POWER = Campaign(
    "power",
    f"the power is cut while a volume is written, cleaned, defragmented, resized, tuned, edited, repaired, formatted:"
    f" what is there is whole and has what was promised; pieces 0 to {len(TESTS) - 1}, and"
    f" {2 * len(TESTS)} to {2 * len(TESTS) + len(LATER_TESTS) - 1}, cut at up to {MANY} writes of a case, the others at"
    " each; and as many times a part of what was not flushed is lost",
    "cases", 2 * len(TESTS) + 2 * len(LATER_TESTS), 1, piece, minutes=50,
)  # fmt: skip
