"""A trace that several processes work on gives the report that one makes, whatever is wrong with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from f2tools.blktrace.ahead import StreamAhead
from f2tools.blktrace.ranges import PIECE, cuts_of
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


RECORD = np.dtype([
    ("magic", "<u4"), ("sequence", "<u4"), ("time", "<u8"), ("sector", "<u8"), ("bytes", "<u4"), ("action", "<u4"),
    ("pid", "<u4"), ("device", "<u4"), ("cpu", "<u4"), ("error", "<u2"), ("pdu_len", "<u2"),
])  # fmt: skip


def long_enough_to_be_cut(directory: Path) -> Path:
    """Writes of 4 KiB on two CPUs, each queued, issued and completed; as long as a trace that is cut."""
    count = 3 * PIECE // (3 * RECORD.itemsize)
    random = np.random.default_rng(3)
    start, sector = np.arange(count) * 20_000 + 1_000, random.integers(0, 1 << 20, count) * 8
    for cpu in range(2):
        mine = np.flatnonzero(np.arange(count) % 2 == cpu)
        parts = []
        for op, shift, later in ((1, 4, 0), (7, 6, 3_000), (8, 7, 90_000)):  # Q, D, C and their categories
            part = np.zeros(len(mine), RECORD)
            part["action"] = (WRITE | 1 << shift) << 16 | op
            part["time"], part["sector"] = start[mine] + later, sector[mine]
            parts.append(part)
        every = np.concatenate(parts)
        every = every[np.argsort(every["time"], kind="stable")]
        every["magic"], every["bytes"], every["pid"], every["device"], every["cpu"] = 0x65617407, 4096, 77, 8 << 20, cpu
        every["sequence"] = np.arange(1, len(every) + 1)
        every.tofile(directory / f"long.blktrace.{cpu}")
    return directory / "long"


def printed(path: Path, *words: str) -> bytes:
    """What `trace analyze --json` prints; it has no field of time taken or memory used."""
    command = ["f2tools", "trace", "analyze", path, "--json", *words]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def test_two_calls_print_the_same_with_jobs_and_without(tmp_path: Path) -> None:
    cut = long_enough_to_be_cut(tmp_path)
    cuts = cuts_of(open_trace(str(cut)).files)
    assert cuts is not None
    assert cuts.pieces > 1
    alone = printed(cut)
    assert json.loads(alone)["writes"]["requests"] == 3 * PIECE // (3 * RECORD.itemsize)
    assert printed(cut, "--jobs", "2") == alone
    (tmp_path / "long.blktrace.1").rename(tmp_path / "long.blktrace.2")
    alone = printed(cut)
    assert json.loads(alone)["damage"]["missing"] == 1
    assert printed(cut, "--jobs", "2") == alone
    for name in ("f2fs-varmail", "nilfs2-randwrite"):
        prefix = traces.unpacked(name, tmp_path)
        assert printed(prefix, "--jobs", "2") == printed(prefix)
