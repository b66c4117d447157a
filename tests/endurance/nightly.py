"""What `make test` does in small, with all that there is: whole files of tests, and the papers' evaluations.

Each file runs with the variables that say how much it does.  Power cuts, crashes of the kernel, repairs of random
damage and random operations are campaigns of their own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from f2tools.experiment.registry import EXPERIMENTS, experiment
from tests.endurance.campaign import Campaign, Found, Outcome
from tests.images import ROOT
from tests.judges import missing_judge

TESTS = {  # a file, or one test of it: its variables
    "tests/defrag/test_random.py": "F2_DEFRAG_SEEDS=200",
    "tests/dffs/test_dffs_mount.py": "F2_SUITE_FACTOR=25",
    "tests/dfs/test_dfs_mount.py": "F2_SUITE_FACTOR=25",
    "tests/edit/test_hostile.py": "F2TOOLS_HOSTILE_ROUNDS=10",
    "tests/experiment/test_guest.py": "F2_REAL_DEVICES=all",
    "tests/f2fs/write/test_overwrite.py": "F2_OVERWRITES=10",
    "tests/fleet/test_fleet.py": "F2_FLEET_IMAGES=all",
    "tests/fleet/test_single_runs.py": "F2_FLEET_IMAGES=all",
    "tests/forensics/test_kernel_lives.py": "F2_FORENSIC_SECONDS=120",
    "tests/forensics/test_random_past.py": "F2_FORENSIC_LIVES=200",
    "tests/forensics/test_scan.py": "F2_FORENSIC_DAMAGES=300",
    "tests/fsck/test_fields.py": "F2_FSCK_EVERY=1",
    "tests/fsck/test_hostile.py": "F2TOOLS_HOSTILE_ROUNDS=16",
    "tests/fsck/test_kernel.py": "F2_FSCK_EVERY=1",
    "tests/fsck/test_rescue.py": "F2_FSCK_EVERY=1",
    "tests/fsck/test_start_gone.py": "F2_START_GONE=1",
    "tests/fsck/test_sweep.py": "F2_FSCK_EVERY=1",
    "tests/ftl/test_closed_forms.py": "F2_FTL_BLOCKS=8192",
    "tests/hostile/test_damage.py": "F2TOOLS_HOSTILE_ROUNDS=20",
    "tests/kernel/test_real_devices.py": "F2_REAL_DEVICES=all",
    "tests/mount/test_hostile.py": "F2_SUITE_FACTOR=25",
    "tests/mount/test_mount.py": "F2_SUITE_FACTOR=25",
    "tests/mount/test_suites.py": "F2_SUITE_FACTOR=5",  # 200,000 operations of fsx in each of its ways
    "tests/resize/test_kernel.py": "F2_RESIZE_KERNEL=24",
    "tests/resize/test_resize.py": "F2_RESIZE_SEQUENCES=60 F2_RESIZE_STEPS=8",
    "tests/trace/test_reference.py": "F2_TRACE_SEEDS=20",
    "tests/tune/test_kernel.py": "F2_TUNE_SWITCHES=all",
}
ELSEWHERE = {  # the campaign that has what this file does in small
    "tests/clean/test_power.py": "power",
    "tests/defrag/test_defrag.py": "power",
    "tests/fsck/test_careful.py": "repairs",
    "tests/fsck/test_crashes.py": "repairs",
    "tests/fsck/test_fuzz.py": "repairs",
    "tests/fsck/test_power.py": "power",
    "tests/fsck/test_table_fields.py": "tables",
    "tests/power/test_power_cut.py": "power",
    "tests/recover/test_kernel_crashes.py": "crashes",
    "tests/resize/test_power.py": "power",
    "tests/stateful/test_stateful.py": "machine",
    "tests/tune/test_tune.py": "power",
    "tests/fsck/test_lost_writes.py": "lost-writes",
}
PLACES = ("engine", "guest")
STUDIES = tuple((place, name) for place in PLACES for name in EXPERIMENTS if place in experiment(name).places)
LATER_TESTS = {
    "tests/f2fs/write/test_no_room.py": "F2_REFUSALS=all",
    "tests/edit/test_failing_reads.py": "F2_REFUSALS=all",
    "tests/mount/test_failing_reads.py": "F2_MOUNT_READS=all",
    "tests/fsck/test_pairs.py": "F2_PAIRS=all",
    "tests/recover/test_kernel_writes.py": "F2_TORN=300",
    "tests/defrag/test_kernel.py": "F2_SWEEPS=all",
    "tests/dffs/test_dffs_refused.py": "F2_SWEEPS=all",
    "tests/dfs/test_dfs_refused.py": "F2_SWEEPS=all",
    "tests/experiment/test_command.py": "F2_SWEEPS=all",
    "tests/f2fs/write/test_kernel.py": "F2_SWEEPS=all",
    "tests/fsck/test_policies.py": "F2_SWEEPS=all",
    "tests/mkfs/test_from_kernel.py": "F2_SWEEPS=all",
    "tests/mkfs/test_kernel_mounts.py": "F2_SWEEPS=all",
    "tests/native/test_plain_files.py": "F2_SWEEPS=all",
    "tests/native/test_taken.py": "F2_SWEEPS=all",
    "tests/power/test_kernel.py": "F2_SWEEPS=all",
    "tests/test_killed.py": "F2_SWEEPS=all",
}  # behind the experiments, which keep their numbers
SCALE = "1/64"
TOLD = 3000  # characters of what was printed


def piece(seed: int, work: Path) -> Outcome:
    """A file of tests, or behind the first of them an experiment in one place."""
    parts = [*TESTS.items(), *STUDIES, *LATER_TESTS.items()]
    if len(TESTS) <= seed < len(TESTS) + len(STUDIES):
        return _study(*parts[seed])
    return _tests(*parts[seed], work)


def _tests(name: str, variables: str, work: Path) -> Outcome:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", f"--basetemp={work}/tests"]
    done = subprocess.run(
        [*command, name], cwd=ROOT, env=os.environ | dict(word.split("=") for word in variables.split()),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    outcome = Outcome(1)
    last = (done.stdout.strip().splitlines() or [""])[-1]
    passed, skipped = re.search(r"(\d+) passed", last), re.search(r"(\d+) skipped", last)
    if done.returncode or not (passed or skipped):
        outcome.found.append(Found(f"{variables} pytest {name}\n{done.stdout[-TOLD:]}"))
    elif skipped:
        missing_judge(f"{skipped[0]} of {name}", done.stdout[-500:])
    outcome.counts["tests passed"] = int(passed[1]) if passed else 0
    return outcome


def _study(place: str, name: str) -> Outcome:
    """An experiment comes to its end; how many of the papers' claims it shows is counted, and is no failure."""
    words = ["f2tools", "experiment", name, "--on", place, "--scale", SCALE, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    outcome = Outcome(1)
    if done.returncode:
        outcome.found.append(Found(f"{' '.join(words)} ended with {done.returncode}\n{done.stderr[-TOLD:]}"))
    else:
        verdicts = Counter(claim["verdict"] for claim in json.loads(done.stdout)["claims"])
        outcome.counts.update({f"claims: {verdict}": count for verdict, count in verdicts.items()})
    return outcome


NIGHTLY = Campaign(
    "nightly",
    "what `make test` does in small, with all there is: each file of tests that can do more, and each of the papers'"
    f" experiments on the engine and in the kernel, at {SCALE} of their size",
    "parts", len(TESTS) + len(STUDIES) + len(LATER_TESTS), 1, piece, minutes=55,
)  # fmt: skip
