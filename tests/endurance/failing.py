"""Real disks that fail, in the guest: the kernel's device mapper gives errors for ranges, or for all writes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.endurance.campaign import Campaign, Found, Outcome
from tests.endurance.kernel import guest

CASES = 8  # of a kind
FAILURES = 2 * CASES + 2 * CASES + CASES // 4  # reading, writing, mounted
SCRIPT = """
cd /run/project
python -m pytest -q -p no:cacheprovider tests/kernel/onboard/failing.py
"""


def piece(seed: int, work: Path) -> Outcome:
    """One boot."""
    machine = guest(work)
    disks = [work / "disk", work / "kept"]
    for disk in disks:
        with disk.open("wb") as file:
            file.truncate(64 << 20)
    given = {"F2_FAILING_SEED": str(seed), "F2_FAILING_CASES": str(CASES)}
    done = machine.run(SCRIPT, disks, env=given, with_f2tools=True, timeout=1500)
    outcome = Outcome(FAILURES)
    if done.rc != 0 or not re.search(r"^3 passed", done.stdout, re.MULTILINE):
        outcome.found.append(Found(done.stdout[-3000:] + done.stderr[-1000:]))
    return outcome


FAILING = Campaign(
    "failing-disks",
    "a disk of the real kernel fails, in places or at every write, under commands that read, commands that change and a"
    " mount: who works with it is told, and on a sound disk the volume can be repaired",
    "failures", 1020, FAILURES, piece, minutes=30,
)  # fmt: skip
