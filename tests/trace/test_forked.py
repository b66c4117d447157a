"""A value that another process makes comes back whole, or it is known that it doesn't."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import numpy as np
import psutil
import pytest

from f2tools.trace import analyze as analysis
from f2tools.trace import pieces
from f2tools.trace.analyze import AnalysisRequest, analyze
from f2tools.trace.forked import Forked, Lost
from tests.trace.test_pieces import cuts_of, long_lived

ORPHAN = """
import time
from f2tools.trace.forked import Forked
other = Forked(lambda: time.sleep(600))
print(other._process, flush=True)
time.sleep(600)
"""


def is_gone(process: int) -> bool:
    return not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_arrays_come_back_as_they_were_and_can_be_changed() -> None:
    made = [np.arange(5), np.zeros(0), np.ones((3, 4), np.float32), np.arange(10)[::2], {"a": np.array([1 << 62])}]
    with Forked(lambda: made) as other:
        got = other.result()
    assert repr(got) == repr(made)
    got[0] += 1
    assert got[0].tolist() == [1, 2, 3, 4, 5]
    with Forked(lambda: np.zeros(0)) as other:
        assert len(other.result()) == 0


def test_what_is_raised_there_is_raised_here_and_says_where() -> None:
    with Forked(lambda: {}["x"]) as other, pytest.raises(KeyError) as found:
        other.result()
    assert "in a process that counted a part" in found.value.__notes__[0]


def test_a_process_that_dies_is_lost() -> None:
    with Forked(die) as other, pytest.raises(Lost, match="-9"):
        other.result()
    with Forked(lambda: lambda: 0) as other, pytest.raises(Lost):  # a value that can't be sent
        other.result()


def test_who_is_interrupted_leaves_no_process() -> None:
    other = Forked(lambda: time.sleep(600))
    process = other._process

    def interrupted() -> NoReturn:
        with other:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert is_gone(process)


def test_a_process_ends_with_the_one_that_began_it() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        process = int(first.stdout.readline())
        first.kill()
    until = time.monotonic() + 60
    while not is_gone(process) and time.monotonic() < until:
        time.sleep(0.05)
    assert is_gone(process)


def test_a_part_whose_process_is_killed_is_counted_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "cuts_of", lambda files: cuts_of(files, 12 << 10))
    prefix = long_lived(tmp_path)
    alone = json.dumps(analyze(AnalysisRequest(str(prefix))).report)
    here, count = os.getpid(), pieces.count
    counted: list[int] = []

    def dying(task: pieces.Task, first: int, after: int, start: pieces.State | None = None) -> pieces.Piece:
        done = count(task, first, after, start)
        if os.getpid() != here:
            die()
        counted.append(first)
        return done

    monkeypatch.setattr(pieces, "count", dying)
    assert json.dumps(analyze(AnalysisRequest(str(prefix), jobs=3)).report) == alone
    assert len(set(counted)) == 3
