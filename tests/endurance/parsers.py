"""Coverage-guided fuzzing of the parsers: an hour of a core for each kind of input, in twelve pieces.

A piece ends by its number of inputs and not by the clock, so that it does the same each time.  How many an hour is was
measured: by the processor's time, once fuzzing had found its way; another machine takes longer for the same, or less.
"""

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

HOUR = {  # inputs of each kind
    "volume": 96_000, "container": 504_000, "undo": 936_000, "overlay": 1_044_000, "tar": 480_000, "trace": 516_000,
    "requests": 1_188_000, "texts": 234_000, "vsl": 174_000, "dfs": 126_000, "dffs": 39_600, "index": 99_600,
    "fuse": 900_000, "http": 120_000,
}  # fmt: skip
PIECES_OF_A_KIND = 12
TOLD = 3000  # characters of what a fuzzer said
TOGETHER = (12, 2)  # kinds whose pieces take turns; those that came later have theirs behind all before


def kind_of(seed: int) -> str:
    """What a piece fuzzes: a new kind changes none of those before."""
    first = 0
    for count in TOGETHER:
        if seed < count * PIECES_OF_A_KIND:
            return KINDS[first + seed % count]
        first, seed = first + count, seed - count * PIECES_OF_A_KIND
    raise ValueError("there is no such piece")


def why_it_ended(said: str) -> str:
    """Of what a fuzzer said, the exception that an input ended in; the end, where it is none or it did not begin."""
    _, mark, uncaught = said.rpartition("=== Uncaught")
    return (mark + uncaught if mark else said)[-TOLD:]


def piece(seed: int, work: Path) -> Outcome:
    """A twelfth of an hour's inputs of one kind, from those on that the tests have."""
    if find_spec("atheris") is None:
        missing_judge("atheris is not installed", "what coverage-guided fuzzing finds; `make fuzz` installs it")
    kind = kind_of(seed)
    module = ["tests.hostile.fuzz", kind]
    options = [f"-runs={HOUR[kind] // PIECES_OF_A_KIND}", f"-seed={seed + 1}", f"-artifact_prefix={work}/found-"]
    environment = {**os.environ, "F2_FUZZ_WORK": f"{work}/fuzz", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", *module, *options], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    outcome = Outcome()
    if done.returncode:
        kept = {path.name: path.read_bytes() for path in work.glob("found-*")}
        told = f"{kind}: {why_it_ended(done.stdout)}"
        outcome.found.append(Found(told, operations=[f"{' '.join(module)} FILE"], files=kept))
    ran = re.findall(r"^#(\d+)", done.stdout, re.MULTILINE)
    outcome.done = int(ran[-1]) if ran else 0
    outcome.counts[kind] = outcome.done
    return outcome


PARSERS = Campaign(
    "parsers",
    "every parser of files that may come from anybody is fuzzed along the branches that an input takes (atheris), an"
    " hour of a core for each kind: volumes, containers, undo and overlay logs, archives, traces and those of other"
    " tools (requests), texts and JSON that lie beside them, storage layers, DFS, DFFS, indexes, requests to a mount"
    " (fuse), answers of web servers (http)",
    "inputs", sum(HOUR.values()), sum(HOUR.values()) // (PIECES_OF_A_KIND * len(KINDS)), piece, minutes=30,
    in_memory=True, count=PIECES_OF_A_KIND * len(KINDS), an_hour_of=HOUR,
)  # fmt: skip
