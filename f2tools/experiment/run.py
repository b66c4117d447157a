"""Runs the parts of experiments, several at a time, and keeps what each found, so that an interrupted run goes on.

Below the directory of a report: `asked.json` says what was asked for; `parts/EXPERIMENT/PART.json` has the numbers of
a part that has ended with what was asked of it, `traces/EXPERIMENT/PART/` its block trace.  A part is run again only
where something else is asked, and a directory with the report of something else is left as it is.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from f2tools import newfile
from f2tools.errors import Corrupt, F2fsError, Taken, Usage, Where
from f2tools.experiment import kept
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
from f2tools.experiment.studies.traffic import rows_of
from f2tools.pictures.svg import svg
from f2tools.version import __version__

STEPS = 1000  # of the progress bar, for a part of weight 1
LOOK_SECONDS = 0.5
ASKED = "asked.json"
_MORE = ("experiments", "fs")  # of what is asked, lists that a later run may make longer
OURS = (ASKED, "parts", "traces", "figures", "report.html", "report.json")
# what reckoning with forged numbers ends in
FORGED = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, zlib.error)
STOP_SECONDS = 20  # that a worker may take to clear up
PR_SET_PDEATHSIG = 1
# of a worker: shares that are done, in steps, of all workers together; whether it has a part
_done: Any = None
_busy = False


@dataclass(frozen=True)
class Found:
    """What a part found, and what that took; without numbers, why it was given up."""

    numbers: Numbers
    seconds: float
    cpu_seconds: float  # of processes that it started too, such as QEMU
    given_up: str = ""

    def as_dict(self) -> Numbers:
        """For JSON."""
        return {"numbers": self.numbers, "seconds": round(self.seconds, 1), "cpu_seconds": round(self.cpu_seconds, 1)}


class Store:
    """The directory of a report; None keeps nothing.  One run at a time has it, from `begin` on."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self._lock: int | None = None
        if directory is None:
            return
        newfile.create_directory(str(directory))
        strange = sorted(set(os.listdir(directory)) - set(OURS))
        if strange:
            raise Usage(f"{directory}: {strange[0]} in it is not of a report; a report has a directory of its own")

    def begin(self, experiments: list[Experiment], setting: Setting, force: bool = False) -> None:
        """Taken where the directory has what was found when something else was asked for; `force` removes that, but
        nothing that isn't known to be a report.
        """
        if self.directory is None:
            return
        self._lock = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._claim({"experiments": [one.name for one in experiments], **setting.as_dict()}, force)
        except BaseException:
            self.end()
            raise

    def _claim(self, asked: Numbers, force: bool) -> None:
        assert self.directory is not None
        assert self._lock is not None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Taken(f"{self.directory}: another run writes its report there now") from None
        before = self._asked_before()
        if before is not None and not _goes_on(before, asked):
            if not force:
                raise Taken(
                    f"{self.directory} has the report of {_in_words(before)}; give another directory for "
                    f"{_in_words(asked)}, or --force, which removes what is there"
                )
            self._remove()
        with newfile.replacing(str(self.directory / ASKED)) as file:
            file.write(json.dumps(asked).encode())

    def end(self) -> None:
        """Another run may write there."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _asked_before(self) -> Numbers | None:
        """What was asked for when the directory was written to; None for an empty one, Taken where it doesn't say."""
        assert self.directory is not None
        if not os.listdir(self.directory):
            return None
        try:
            before = kept.read_json(self.directory / ASKED)
            told = all(isinstance(before[name], list) and all(isinstance(one, str) for one in before[name])
                       for name in _MORE)  # fmt: skip
        except (OSError, ValueError, LookupError, TypeError):
            before, told = {}, False
        if not told:
            raise Taken(
                f"{self.directory}: no {ASKED} in it says that it is a report, so nothing in it is replaced;"
                " give another directory"
            )
        return before

    def _remove(self) -> None:
        assert self.directory is not None
        for name in reversed(OURS):  # what says that it is a report goes last
            path = self.directory / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def found(self, experiment: str, part: Part, setting: Setting, say: Callable[[str], None]) -> Found | None:
        """What a part found before, if the same was asked of it; `say` tells of a file that is damaged."""
        if self.directory is None:
            return None
        path = self._path(experiment, part)
        try:
            there = kept.read(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            say(f"{path} is damaged, and its part is run again: {error}")
            return None
        same = there["asked"] == _asked(part, setting)
        return Found(there["numbers"], there["seconds"], there["cpu_seconds"]) if same else None

    def keep(self, experiment: str, part: Part, setting: Setting, found: Found) -> None:
        """Write down what a part found."""
        if self.directory is None:
            return
        kept.write(self._path(experiment, part), {"asked": _asked(part, setting), **found.as_dict()})

    def _path(self, experiment: str, part: Part) -> Path:
        assert self.directory is not None
        return self.directory / "parts" / experiment / f"{part.name}.json"

    def forged(self, experiment: str, parts: list[str], error: Exception) -> F2fsError:
        """Numbers that were kept are of no use, though their checksums are right."""
        assert self.directory is not None
        files = [str(self.directory / "parts" / experiment / f"{name}.json") for name in parts]
        return Corrupt(
            Where(path=files[0] if len(files) == 1 else os.path.dirname(files[0])),
            f"no report can be made of the numbers that are kept there ({type(error).__name__}: {error}); without "
            f"{'that file its part is' if len(files) == 1 else 'that directory its parts are'} run again",
        )

    def traces(self, experiment: str, part: Part) -> Path | None:
        """An empty directory for the trace of a part."""
        if self.directory is None:
            return None
        path = self.directory / "traces" / experiment / part.name
        if path.exists():
            shutil.rmtree(path)
        newfile.create_directory(str(path))
        return path


def _goes_on(before: Numbers, asked: Numbers) -> bool:
    """Whether a report of what was asked for before becomes one of what is asked now: of the same, or of more."""
    return {name for name in asked if before.get(name) != asked[name]} <= set(_MORE) and all(
        set(before[name]) <= set(asked[name]) for name in _MORE
    )


def _in_words(asked: Numbers) -> str:
    """What was asked for, as in the options."""
    names = asked.get("experiments", [])
    what = names[0] if len(names) == 1 else f"{len(names)} experiments"
    said = f"{what} --scale {asked.get('scale')} --on {asked.get('on')} --seed {asked.get('seed')}"
    return said if asked.get("on") == "engine" else f"{said} --fs {','.join(asked.get('fs', []))}"


def _asked(part: Part, setting: Setting) -> Numbers:
    """What the numbers of a part depend on, as JSON has it."""
    given = {"version": __version__, "scale": str(setting.scale), "on": setting.on, "seed": setting.seed}
    return json.loads(json.dumps(given | {"given": part.given}))


def run(
    experiments: Iterable[Experiment], setting: Setting, store: Store, jobs: int,
    progress: Callable[[str, int], Any], say: Callable[[str], None] = lambda _: None,
) -> Iterator[ExperimentReport]:  # fmt: skip
    """Run what has not been run yet, and judge; `progress(name, total)` makes a bar, `say` tells what is taken over."""
    for one in experiments:
        yield _run_one(one, setting, store, jobs, progress, say)


def _run_one(
    experiment: Experiment, setting: Setting, store: Store, jobs: int, progress: Callable[[str, int], Any],
    say: Callable[[str], None],
) -> ExperimentReport:  # fmt: skip
    parts = experiment.parts(setting)
    there: dict[str, Found] = {}
    for part in parts:
        before = store.found(experiment.name, part, setting, say)
        if before is not None:
            there[part.name] = before
    old = list(there)
    if there:
        say(f"{experiment.name}: {len(there)} of {len(parts)} parts are there from an earlier run")
    # the longest first: what is left at the end is short, and no worker waits for long
    left = sorted((part for part in parts if part.name not in there), key=lambda part: -part.weight)
    total = int(sum(part.weight for part in left) * STEPS)

    given_up: dict[str, str] = {}

    def ended(part: Part, found: Found) -> None:
        if found.given_up:
            given_up[part.name] = found.given_up
            say(f"{experiment.name}: {found.given_up}; the next run tries it again")
            return
        plain = json.loads(json.dumps(found.numbers, default=lambda value: value.tolist()))
        there[part.name] = replace(found, numbers=plain)
        store.keep(experiment.name, part, setting, there[part.name])

    with progress(experiment.name, total) as bar:
        if jobs == 1 or len(left) < 2:
            for part in left:
                steps = _Steps(part.weight, bar.advance)
                work = Work(setting, store.traces(experiment.name, part), steps)
                ended(part, _tried(part, work))
        else:
            _in_processes(experiment.name, left, setting, store, jobs, bar.advance, ended)
    numbers = {part.name: there[part.name].numbers for part in parts if part.name in there}
    try:
        outcome = _judged(experiment, setting, parts, numbers, given_up)
        for picture in outcome.pictures:
            svg(picture)
    except FORGED as error:
        if not old:
            raise
        raise store.forged(experiment.name, old, error) from error
    seconds, cpu_seconds = (sum(getattr(one, name) for one in there.values()) for name in ("seconds", "cpu_seconds"))
    return ExperimentReport(experiment, setting, numbers, outcome, seconds, cpu_seconds)


def _tried(part: Part, work: Work) -> Found:
    """What a part finds, or why it was given up."""
    begun, used = time.monotonic(), _cpu_seconds()
    numbers, given_up = {}, ""
    try:
        numbers = part.function(work, **part.given)
    except Unfinished as error:
        given_up = str(error)
    return Found(numbers, time.monotonic() - begun, _cpu_seconds() - used, given_up)


def _cpu_seconds() -> float:
    """Processor time of this process and of those that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _judged(
    experiment: Experiment, setting: Setting, parts: list[Part], numbers: dict[str, Numbers], given_up: dict[str, str]
) -> Outcome:
    """What the parts say.  Another file system than F2FS may be missing among them; nothing is judged without F2FS."""
    needed = [part.name for part in parts if part.name in given_up and part.given.get("fs", "f2fs") == "f2fs"]
    if needed:
        outcome = Outcome([], [])
    elif any(part.given.get("fs", "f2fs") == "f2fs" for part in parts):
        outcome = experiment.judge(setting, numbers)
    else:
        outcome = Outcome([cant_tell("what F2FS does", "-", f"{setting.on} lies on another file system")],
                          rows_of(numbers))  # fmt: skip
    claims = [cant_tell(f"what {name} does", "-", why) for name, why in given_up.items()]
    return replace(outcome, claims=[*outcome.claims, *claims], rows=[*outcome.rows, *_counters(numbers)])


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
    ended: Callable[[Part, Found], None],
) -> None:  # fmt: skip
    done = multiprocessing.Value("q", 0)
    shown = 0
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=(done,)) as pool:
        waiting: dict[Future[Found], Part] = {
            pool.submit(_work, part, setting, store.traces(name, part)): part for part in parts
        }
        try:
            while waiting:
                finished, _ = wait(waiting, LOOK_SECONDS, FIRST_COMPLETED)
                now = int(done.value)
                advance(now - shown)
                shown = now
                # what has ended well is kept before one that failed at the same moment ends the run
                for one in sorted(finished, key=lambda one: one.exception() is not None):
                    ended(waiting.pop(one), one.result())
        except BrokenProcessPool:
            names = ", ".join(part.name for part in waiting.values())
            why = f"a process was killed, for lack of memory perhaps, at {names}; try --jobs 1"
            raise F2fsError(f"{name}: {why}") from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            workers = multiprocessing.active_children()
            for process in workers:
                process.terminate()
            for process in workers:
                process.join(STOP_SECONDS)
            raise


class _Stopped(BaseException):
    """A worker is to end: through every `finally` on the way, as a guest runs in it and files of its own lie about."""


def _begin(done: Any) -> None:
    """A worker.  Ctrl-C is for the process that has started it, which says what is to be done; it ends with that."""
    global _done
    _done = done
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))


def _stop(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the kernel sends one for each thread that the parent loses
    if not _busy:
        os._exit(1)
    raise _Stopped


def _work(part: Part, setting: Setting, traces: Path | None) -> Found:
    global _busy

    def advance(steps: int) -> None:
        with _done.get_lock():
            _done.value += steps

    try:
        _busy = True
        return _tried(part, Work(setting, traces, _Steps(part.weight, advance)))
    except _Stopped:
        os._exit(1)
    finally:
        _busy = False
