"""Runs the parts of experiments, several at a time, and keeps what each found, so that an interrupted run goes on.

Below the directory of a report: `parts/EXPERIMENT/PART.json` has the numbers of a part that has ended with what was
asked of it, `traces/EXPERIMENT/PART/` its block trace.  A part is run again only where something else is asked.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

from f2tools import newfile
from f2tools.errors import Usage
from f2tools.experiment.model import (
    Experiment,
    ExperimentReport,
    Numbers,
    Outcome,
    Part,
    Row,
    Setting,
    Unfinished,
    Work,
    cant_tell,
)
from f2tools.version import __version__

STEPS = 1000  # of the progress bar, for a part of weight 1
LOOK_SECONDS = 0.5
GIVEN_UP = "given_up"  # why, instead of numbers
OURS = ("parts", "traces", "figures", "report.html", "report.json")
_done: Any = None  # of a worker: shares that are done, in steps, of all workers together


class Store:
    """The directory of a report; None keeps nothing."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        if directory is None:
            return
        newfile.create_directory(str(directory))
        strange = sorted(set(os.listdir(directory)) - set(OURS))
        if strange:
            raise Usage(f"{directory}: {strange[0]} in it is not of a report; a report has a directory of its own")

    def found(self, experiment: str, part: Part, setting: Setting) -> Numbers | None:
        """What a part found before, if the same was asked of it."""
        if self.directory is None:
            return None
        try:
            kept = json.loads(self._path(experiment, part).read_text())
        except (OSError, ValueError):
            return None
        asked = _asked(part, setting)
        return kept["numbers"] if isinstance(kept, dict) and kept.get("asked") == asked else None

    def keep(self, experiment: str, part: Part, setting: Setting, numbers: Numbers) -> None:
        """Write down what a part found."""
        if self.directory is None:
            return
        path = self._path(experiment, part)
        newfile.create_directory(str(path.parent))
        with newfile.replacing(str(path)) as file:
            file.write(json.dumps({"asked": _asked(part, setting), "numbers": numbers}).encode())

    def _path(self, experiment: str, part: Part) -> Path:
        assert self.directory is not None
        return self.directory / "parts" / experiment / f"{part.name}.json"

    def traces(self, experiment: str, part: Part) -> Path | None:
        """An empty directory for the trace of a part."""
        if self.directory is None:
            return None
        path = self.directory / "traces" / experiment / part.name
        if path.exists():
            shutil.rmtree(path)
        newfile.create_directory(str(path))
        return path


def _asked(part: Part, setting: Setting) -> Numbers:
    """What the numbers of a part depend on, as JSON has it."""
    given = {"version": __version__, "scale": str(setting.scale), "on": setting.on, "seed": setting.seed}
    return json.loads(json.dumps(given | {"given": part.given}))


def run(
    experiments: Iterable[Experiment], setting: Setting, store: Store, jobs: int,
    progress: Callable[[str, int], Any], say: Callable[[str], None] = lambda _: None,
) -> list[ExperimentReport]:  # fmt: skip
    """Run what has not been run yet, and judge; `progress(name, total)` makes a bar, `say` tells what is taken over."""
    return [_run_one(one, setting, store, jobs, progress, say) for one in experiments]


def _run_one(
    experiment: Experiment, setting: Setting, store: Store, jobs: int, progress: Callable[[str, int], Any],
    say: Callable[[str], None],
) -> ExperimentReport:  # fmt: skip
    begun = time.monotonic()
    parts = experiment.parts(setting)
    numbers: dict[str, Numbers] = {}
    for part in parts:
        kept = store.found(experiment.name, part, setting)
        if kept is not None:
            numbers[part.name] = kept
    if numbers:
        say(f"{experiment.name}: {len(numbers)} of {len(parts)} parts are there from an earlier run")
    # the longest first: what is left at the end is short, and no worker waits for long
    left = sorted((part for part in parts if part.name not in numbers), key=lambda part: -part.weight)
    total = int(sum(part.weight for part in left) * STEPS)

    given_up: dict[str, str] = {}

    def ended(part: Part, found: Numbers) -> None:
        if GIVEN_UP in found:
            given_up[part.name] = found[GIVEN_UP]
            say(f"{experiment.name}: {found[GIVEN_UP]}; the next run tries it again")
            return
        numbers[part.name] = json.loads(json.dumps(found, default=lambda value: value.tolist()))
        store.keep(experiment.name, part, setting, numbers[part.name])

    with progress(experiment.name, total) as bar:
        if jobs == 1 or len(left) < 2:
            for part in left:
                steps = _Steps(part.weight, bar.advance)
                work = Work(setting, store.traces(experiment.name, part), steps)
                ended(part, _tried(part, work))
        else:
            _in_processes(experiment.name, left, setting, store, jobs, bar.advance, ended)
    outcome = _judged(experiment, setting, parts, numbers, given_up)
    return ExperimentReport(experiment, setting, numbers, outcome, time.monotonic() - begun)


def _tried(part: Part, work: Work) -> Numbers:
    """What a part finds, or why it was given up."""
    try:
        return part.function(work, **part.given)
    except Unfinished as error:
        return {GIVEN_UP: str(error)}


def _judged(
    experiment: Experiment, setting: Setting, parts: list[Part], numbers: dict[str, Numbers], given_up: dict[str, str]
) -> Outcome:
    """What the parts say.  Another file system than F2FS may be missing among them; nothing is judged without F2FS."""
    there = {part.name: numbers[part.name] for part in parts if part.name in numbers}
    needed = [part.name for part in parts if part.name in given_up and part.given.get("fs", "f2fs") == "f2fs"]
    outcome = experiment.judge(setting, there) if not needed else Outcome([], [])
    claims = [cant_tell(f"what {name} does", "-", why) for name, why in given_up.items()]
    return replace(outcome, claims=[*outcome.claims, *claims], rows=[*outcome.rows, *_counters(there)])


def _counters(there: dict[str, Numbers]) -> list[Row]:
    """Whether the block traces have the bytes that the devices counted themselves."""
    both = {name: one for name, one in there.items() if "trace" in one and "run" in one}
    if not both:
        return []
    torn = [name for name, one in both.items() if one["trace"]["writes"]["bytes"] != one["run"]["write_bytes"]]
    said = f"the same in {len(both) - len(torn)} of {len(both)} parts"
    if torn:
        said += f"; other in {', '.join(torn)}: don't rely on those"
    return [Row("bytes written by the block traces, and as the devices counted them", "-", said)]


class _Steps:
    """Turns shares of a part into whole steps of the bar."""

    def __init__(self, weight: float, advance: Callable[[int], None]) -> None:
        self._weight, self._advance = weight, advance
        self._left = 0.0

    def __call__(self, share: float) -> None:
        self._left += share * self._weight * STEPS
        if self._left >= 1:
            self._advance(int(self._left))
            self._left %= 1


def _in_processes(
    name: str, parts: list[Part], setting: Setting, store: Store, jobs: int, advance: Callable[[int], None],
    ended: Callable[[Part, Numbers], None],
) -> None:  # fmt: skip
    done = multiprocessing.Value("q", 0)
    shown = 0
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=(done,)) as pool:
        waiting: dict[Future[Numbers], Part] = {
            pool.submit(_work, part, setting, store.traces(name, part)): part for part in parts
        }
        try:
            while waiting:
                finished, _ = wait(waiting, LOOK_SECONDS, FIRST_COMPLETED)
                now = int(done.value)
                advance(now - shown)
                shown = now
                for one in finished:
                    ended(waiting.pop(one), one.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _begin(done: Any) -> None:
    global _done
    _done = done


def _work(part: Part, setting: Setting, traces: Path | None) -> Numbers:
    def advance(steps: int) -> None:
        with _done.get_lock():
            _done.value += steps

    return _tried(part, Work(setting, traces, _Steps(part.weight, advance)))
