"""A trace that several processes work on gives the report that one makes, whatever is wrong with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from f2tools.blktrace.ahead import StreamAhead
from f2tools.blktrace.sources import open_trace
from f2tools.errors import DeviceError
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests.images import DIRECTORY
from tests.trace import traces
from tests.trace.traces import WRITE, Ev, note, request

TRACES = sorted(path.parent.name for path in DIRECTORY.glob("traces/*/x.blktrace.0.zst"))


def report(path: Path, jobs: int) -> str:
    return json.dumps(analyze(AnalysisRequest(str(path), jobs=jobs)).report)


@pytest.mark.parametrize("name", TRACES)
def test_real_traces_give_the_same_report(name: str, tmp_path: Path) -> None:
    directory = traces.unpacked(name, tmp_path)
    alone = report(directory, 1)
    assert alone == report(directory, 2) == report(directory, 5)


def damaged(tmp_path: Path) -> Path:
    """Two CPUs with names and messages; events lost, bytes that are no record, a tail cut off."""
    events: list[Ev] = [note(1, 0, b"fio\0".ljust(16, b"\0"), 100), note(2, 2, b"words")]
    for n in range(3000):
        events += request(1_000 + n * 7_000, 4096 + n * 64, 8, WRITE, n % 2, 5_000 + n * 10)
    prefix = traces.write(tmp_path / "damaged", events)
    for number, path in enumerate(sorted((tmp_path / "damaged").iterdir())):
        data = bytearray(path.read_bytes())
        del data[48 * 900 : 48 * (905 + number)]
        data[48 * 2000 : 48 * 2000 + 30] = b"\xff" * 30
        path.write_bytes(data[:-17])
    return prefix


def test_damage_is_found_at_the_same_places(tmp_path: Path) -> None:
    prefix = damaged(tmp_path)
    alone = report(prefix, 1)
    assert alone == report(prefix, 2) == report(prefix, 3)
    found = json.loads(alone)["damage"]
    assert all(found[kind] for kind in ("lost", "corrupt", "truncated"))
    assert len(found["problems"]) > 3


@pytest.mark.parametrize("jobs", [1, 3])
def test_what_is_no_trace_is_said_so(tmp_path: Path, jobs: int) -> None:
    for cpu in range(2):
        (tmp_path / f"x.blktrace.{cpu}").write_bytes(os.urandom(2000) + b"\0")
    done = subprocess.run(
        ["f2tools", "trace", "analyze", tmp_path, "--jobs", str(jobs)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "f2tools: x.blktrace.0: not a block trace of version 7 or 8\n"


def test_standard_input_is_read_by_another_process(tmp_path: Path) -> None:
    prefix = traces.write(tmp_path / "one", request(1_000, 4096, 8, WRITE))
    data = Path(f"{prefix}.blktrace.0").read_bytes()
    done = subprocess.run(
        ["f2tools", "trace", "analyze", "-", "--json", "--jobs", "2"], input=data, capture_output=True, check=True
    )
    assert json.loads(done.stdout)["writes"]["requests"] == 1


def test_a_process_that_dies_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = open_trace(str(damaged(tmp_path)))
    begin = StreamAhead.__init__

    def killed(self: StreamAhead, *arguments: object) -> None:
        begin(self, *arguments)  # type: ignore[arg-type]
        os.kill(self._process.pid or 0, signal.SIGKILL)
        self._process.join()

    monkeypatch.setattr(StreamAhead, "__init__", killed)
    with pytest.raises(DeviceError, match=r"died \(-9\)"):
        list(trace.events(jobs=2))
    assert not StreamAhead._open


def test_who_stops_reading_leaves_no_process(tmp_path: Path) -> None:
    windows = open_trace(str(damaged(tmp_path))).events(jobs=3)
    next(windows)
    windows.close()  # type: ignore[attr-defined]
    assert not StreamAhead._open
