"""Coverage-guided fuzzing of the parsers: volumes, containers, undo and overlay logs, archives, traces."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.endurance.campaign import Campaign, Found, Outcome
from tests.hostile.corpus import KINDS
from tests.images import ROOT
from tests.judges import missing_judge

INPUTS = 10_000  # in a piece; the start alone costs as much as a thousand


def piece(seed: int, work: Path) -> Outcome:
    """So many inputs of one kind, from those on that the tests have."""
    if find_spec("atheris") is None:
        missing_judge("atheris is not installed", "what coverage-guided fuzzing finds; `make fuzz` installs it")
    kind = KINDS[seed % len(KINDS)]
    module = ["tests.hostile.fuzz", kind]
    options = [f"-runs={INPUTS}", f"-seed={seed + 1}", f"-artifact_prefix={work}/found-"]
    environment = {**os.environ, "F2_FUZZ_WORK": f"{work}/fuzz", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", *module, *options], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    outcome = Outcome()
    if done.returncode:
        kept = {path.name: path.read_bytes() for path in work.glob("found-*")}
        said = done.stdout[done.stdout.find("=== Uncaught") :][-3000:]
        outcome.found.append(Found(f"{kind}: {said}", operations=[f"{' '.join(module)} FILE"], files=kept))
    ran = re.findall(r"^#(\d+)", done.stdout, re.MULTILINE)
    outcome.done = int(ran[-1]) if ran else 0
    outcome.counts[kind] = outcome.done
    return outcome


PARSERS = Campaign(
    "parsers",
    "every parser is fuzzed along the branches that an input takes (atheris): volumes, containers, undo and overlay"
    " logs, archives, traces",
    "inputs", 1_200_000, INPUTS, piece, minutes=30, in_memory=True,
)  # fmt: skip
