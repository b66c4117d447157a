"""Every form in which a trace comes gives the same events."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from f2tools.blktrace.files import open_stream
from f2tools.blktrace.records import COLUMNS, Events
from f2tools.blktrace.sources import open_trace
from f2tools.blktrace.trace import Trace
from f2tools.errors import Unsupported
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests.trace import traces
from tests.trace.traces import (
    DISCARD,
    FLUSH,
    READ,
    SYNC,
    WRITE,
    Ev,
    as_blkparse,
    as_ftrace,
    as_perf,
    note,
    request,
)

MESSAGES = [note(0, 1, struct.pack("<II", 1_700_000_000, 5)), note(1, 0, b"fio\0".ljust(16, b"\0"), 100)]


def some_events() -> list[Ev]:
    """A bit of everything, on two CPUs."""
    found = [*MESSAGES, note(10, 2, b"a message of odd length")]
    for n in range(200):
        kind = (WRITE | SYNC, READ, WRITE | DISCARD, WRITE)[n % 4]
        found += request(1_000 + n * 7_000, 4096 + n * 64, 8 * (1 + n % 5), kind, n % 2, 5_000 + n * 10)
    found += [
        Ev(2_000_000, "A", 99_000, 8, WRITE, payload=struct.pack(">IIQ", 8 << 20 | 17, traces.DEVICE, 1_000)),
        Ev(2_000_010, "Q", 99_000, 8, WRITE, cgroup=77),
        Ev(2_000_020, "X", 99_000, 4, WRITE, payload=struct.pack(">Q", 99_004)),
        Ev(2_000_030, "D", 0, 0, FLUSH | READ),
        Ev(2_000_040, "C", 0, 0, FLUSH | READ),
        Ev(2_000_050, "U", 0, 0, 0, payload=struct.pack(">Q", 3)),
    ]
    return found


def all_of(trace: Trace) -> Events:
    return Events.concatenate(list(trace.events(payloads=True)))


def assert_same(one: Events, other: Events, columns: tuple[str, ...] = COLUMNS) -> None:
    for name in columns:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert one.payload == other.payload


@pytest.fixture
def expected(tmp_path: Path) -> Events:
    return all_of(open_trace(str(traces.write(tmp_path / "expected", some_events()))))


@pytest.mark.parametrize("version", [7, 8])
@pytest.mark.parametrize("order", ["<", ">"])
def test_versions_and_byte_orders_give_the_same(tmp_path: Path, expected: Events, version: int, order: str) -> None:
    prefix = traces.write(tmp_path, some_events(), version, order)
    trace = open_trace(str(prefix))
    assert_same(all_of(trace), expected)
    assert len(expected) == 806
    assert trace.damage.clean
    assert trace.names == {100: "fio"}
    assert [n.payload for n in trace.messages] == [b"a message of odd length"]


@pytest.mark.parametrize("version", [7, 8])
def test_reports_of_both_versions_are_equal(tmp_path: Path, version: int) -> None:
    reports = []
    for which in (7, version):
        prefix = traces.write(tmp_path / str(which), some_events(), which, ">" if which == 8 else "<")
        report = analyze(AnalysisRequest(str(prefix))).report
        reports.append({k: v for k, v in report.items() if k not in ("trace", "trace_files")})
    assert reports[0] == reports[1]
    assert json.dumps(reports[0])


def test_a_zone_append_of_version_8_is_a_write(tmp_path: Path) -> None:
    events = [
        Ev(1, "D", 64, 8, 1 << 16),
        Ev(2, "C", 64, 8, 1 << 16),
        Ev(3, "D", 0, 0, 1 << 17),
        Ev(4, "C", 0, 0, 1 << 17),
    ]
    report = analyze(AnalysisRequest(str(traces.write(tmp_path, events, 8)))).report
    assert report["writes"] == {"requests": 1, "bytes": 4096, "requests_with_data": 1}


def test_a_directory_a_prefix_and_compressed_files_are_one_trace(tmp_path: Path, expected: Events) -> None:
    prefix = traces.write(tmp_path / "plain", some_events())
    packed = tmp_path / "packed"
    packed.mkdir()
    raw = [Path(f"{prefix}.blktrace.{cpu}").read_bytes() for cpu in (0, 1)]
    (packed / "t.blktrace.0.gz").write_bytes(gzip.compress(raw[0]))
    (packed / "t.blktrace.1.zst").write_bytes(zstandard.compress(raw[1]))
    for given in (prefix.parent, prefix, packed, packed / "t"):
        assert_same(all_of(open_trace(str(given))), expected)


def test_standard_input_is_read_as_it_comes(tmp_path: Path) -> None:
    prefix = traces.write(tmp_path, [e for e in some_events() if e.cpu == 0])
    code = "from f2tools.cli import run; run()"
    command = [sys.executable, "-c", code, "trace", "analyze", "-", "--json"]
    raw = Path(f"{prefix}.blktrace.0").read_bytes()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for at in range(0, len(raw), 1000):  # in pieces that no record ends with
        process.stdin.write(raw[at : at + 1000])
        process.stdin.flush()
    process.stdin.close()
    piped = json.loads(process.stdout.read())
    assert process.wait() == 0
    direct = analyze(AnalysisRequest(f"{prefix}.blktrace.0")).report
    assert {k: piped[k] for k in ("reads", "writes", "events", "latency")} == json.loads(
        json.dumps({k: direct[k] for k in ("reads", "writes", "events", "latency")})
    )


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_a_stream_that_is_closed_holds_no_file_open(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "trace"
    path.write_bytes(pack(bytes(10000)))
    stream, head = open_stream(str(path))
    assert head == bytes(4096)
    stream.close()
    assert str(path) not in {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}
    assert stream.closed  # which is still there: the file is not closed by being forgotten


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("jobs", [1, 2])
def test_cpus_that_write_in_turns_are_put_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, packed: bool
) -> None:
    """`blktrace -o -` writes what one CPU has gathered, then that of another, whatever lies between in time."""
    from f2tools.blktrace import trace

    monkeypatch.setattr(trace, "WINDOW", 1)
    monkeypatch.setattr(trace, "MIN_WINDOW", 1)
    events = [e for n in range(3_000) for e in request(1_000 + n * 10_000_000, n * 64, took=5_000_000)]
    events = [replace(e, cpu=n % 3 % 2) for n, e in enumerate(sorted(events, key=lambda e: e.time))]
    prefix = traces.write(tmp_path / "apart", events)
    raw = [Path(f"{prefix}.blktrace.{cpu}").read_bytes() for cpu in (0, 1)]
    size = 48 * 400
    turns = [one[at : at + size] for at in range(0, max(map(len, raw)), size) for one in raw]
    live_bytes = b"".join(turns)
    (tmp_path / "live.bin").write_bytes(gzip.compress(live_bytes, 1) if packed else live_bytes)
    apart, live = (analyze(AnalysisRequest(str(path), jobs=jobs)).report for path in (prefix, tmp_path / "live.bin"))
    assert live["damage"]["problems"] == []
    for key in ("latency", "sequentiality", "seeks", "queue_depth", "writes", "windows", "first_ns", "duration_ns"):
        assert live[key] == apart[key], key
    assert live["latency"]["d2c"]["write"]["count"] == 3_000


ONE_BEHIND_ANOTHER = [e for n in range(3_000) for e in request(1_000 + n * 10_000_000, n * 64, cpu=n % 2)]


def one_behind_another(directory: Path, order: tuple[int, ...] = (0, 1), version: int = 7) -> tuple[Path, Path]:
    """The prefix of a trace, and all its files in one, which is longer than what is held back."""
    prefix = traces.write(directory, ONE_BEHIND_ANOTHER, version)
    whole = directory / "whole.bin"
    whole.write_bytes(b"".join(Path(f"{prefix}.blktrace.{cpu}").read_bytes() for cpu in order))
    return prefix, whole


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    from f2tools.blktrace import trace

    monkeypatch.setattr(trace, "WINDOW", 1)
    monkeypatch.setattr(trace, "MIN_WINDOW", 1)


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("version", [7, 8])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_files_of_cpus_one_behind_another_are_read_like_the_files(
    tmp_path: Path, order: tuple[int, ...], version: int, jobs: int
) -> None:
    prefix, whole = one_behind_another(tmp_path, order, version)
    reports = [analyze(AnalysisRequest(str(path), jobs=jobs)).report for path in (prefix, whole)]
    for report in reports:
        for key in ("trace", "trace_files"):
            del report[key]
    assert reports[1] == reports[0]
    assert_same(all_of(open_trace(str(whole))), all_of(open_trace(str(prefix))))


@pytest.mark.usefixtures("small_windows")
def test_a_few_events_of_a_cpu_at_the_end_of_a_file_are_found(tmp_path: Path) -> None:
    prefix, _ = one_behind_another(tmp_path)
    few = traces.write(tmp_path / "few", [replace(e, cpu=2, time=e.time + 7) for e in ONE_BEHIND_ANOTHER[:1]])
    (tmp_path / "t.blktrace.2").write_bytes(Path(f"{few}.blktrace.2").read_bytes())
    whole = tmp_path / "long.bin"
    whole.write_bytes(b"".join(Path(f"{prefix}.blktrace.{cpu}").read_bytes() for cpu in (0, 2)))
    found = all_of(open_trace(str(whole)))
    assert (np.diff(found.time) >= 0).all()
    assert int(np.count_nonzero(found.cpu == 2)) == 1


@pytest.mark.usefixtures("small_windows")
def test_damage_is_located_where_it_is_in_such_a_file(tmp_path: Path) -> None:
    prefix, whole = one_behind_another(tmp_path)
    data = bytearray(whole.read_bytes())
    at = len(Path(f"{prefix}.blktrace.0").read_bytes()) + 48 * 100
    data[at : at + 4] = b"\xff" * 4
    whole.write_bytes(data)
    trace = open_trace(str(whole))
    all_of(trace)
    assert [(p.kind, p.offset) for p in trace.damage.problems] == [("corrupt", at), ("lost", at + 48)]


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("jobs", [1, 2])
def test_what_nobody_can_put_in_order_is_damage_with_its_place(tmp_path: Path, jobs: int) -> None:
    prefix, whole = one_behind_another(tmp_path)
    packed = tmp_path / "whole.bin.gz"
    packed.write_bytes(gzip.compress(whole.read_bytes(), 1))
    report = analyze(AnalysisRequest(str(packed), jobs=jobs)).report
    damage = report["damage"]
    assert damage["disordered"] > 1_000
    assert damage["problems"][0]["offset"] == len(Path(f"{prefix}.blktrace.0").read_bytes())
    assert "give the files of the CPUs apart" in damage["problems"][0]["text"]
    assert report["writes"]["requests"] == 3_000


@pytest.mark.usefixtures("small_windows")
def test_events_until_a_time_are_all_found_where_later_ones_come_first(tmp_path: Path) -> None:
    from io import StringIO

    from f2tools.trace.events import EventFilter, stream

    prefix, whole = one_behind_another(tmp_path)
    packed = tmp_path / "whole.bin.gz"
    packed.write_bytes(gzip.compress(whole.read_bytes(), 1))
    chosen = EventFilter.of(2, 3, ("D",), (), (), None, None)
    lines = []
    for path in (prefix, whole, packed):
        out = StringIO()
        stream(str(path), chosen, None, False, out)
        lines.append(out.getvalue().splitlines())
    assert len(lines[0]) == 100
    assert lines[1] == lines[0]
    assert sorted(lines[2]) == sorted(lines[0])


def test_a_window_that_ends_within_a_record_changes_nothing(tmp_path: Path, expected: Events) -> None:
    from f2tools.blktrace import scan
    from f2tools.blktrace.damage import Damage

    on_one = [replace(e, cpu=0) for e in sorted(some_events(), key=lambda e: e.time)]
    data = b"".join(traces.records(on_one))
    parts = []
    for size in (1, 47, 1000, 1 << 20):
        source = memoryview(data)
        at = 0

        def read(buffer: memoryview, size: int = size, source: memoryview = source) -> int:
            nonlocal at
            count = min(size, len(buffer), len(source) - at)
            buffer[:count] = source[at : at + count]
            at += count
            return count

        damage = Damage()
        parts.append(Events.concatenate(list(scan.Scanner(read, "x", damage, window=1, payloads=True))))
        assert damage.clean
    for part in parts:
        assert_same(part, expected, tuple(name for name in COLUMNS if name not in ("sequence", "cpu")))


def test_a_magic_inside_of_a_message_is_no_record(tmp_path: Path) -> None:
    forged = traces.record(Ev(5, "D", 64), 9)
    events = [note(1, 2, b"see " + forged), *request(10, 64), note(300_000, 2, b"odd" + forged[:40])]
    trace = open_trace(str(traces.write(tmp_path, events)))
    assert len(all_of(trace)) == 4
    assert trace.damage.clean


def test_ftrace_and_perf_text_are_the_same_trace(tmp_path: Path) -> None:
    events = [e for n in range(50) for e in request(1_000 + n * 9_000, n * 64, 8, (READ, WRITE | SYNC)[n % 2], n % 2)]
    expected = all_of(open_trace(str(traces.write(tmp_path, events))))
    text = tmp_path / "ftrace.txt"
    text.write_text(as_ftrace(events))
    columns = ("time", "sector", "bytes", "op", "pid", "cpu", "device")
    trace = open_trace(str(text))
    assert_same(all_of(trace), expected, columns)
    assert trace.names == {100: "fio"}
    text.write_text(as_perf(events))
    assert_same(all_of(open_trace(str(text))), expected, columns)


def test_f2fs_tracepoints_are_summed_up() -> None:
    report = analyze(AnalysisRequest(str(traces.DIRECTORY / "churn" / "ftrace.txt.zst"))).report
    assert report["tracepoints"]["blocks"] == 386
    assert report["tracepoints"]["logs"]["warm_node"] == 207
    assert report["tracepoints"]["inodes"]["17"] == 45


def test_a_trace_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    code = "from f2tools.cli import run; run()"

    def run(*args: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, "trace", "analyze", *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True)

    (tmp_path / "zeros").write_bytes(bytes(100_000))
    (tmp_path / "empty.blktrace.0").write_bytes(b"")
    missing = run(tmp_path / "missing")
    assert missing.returncode == 8
    assert "no file of this name" in missing.stderr
    found = run(tmp_path / "zeros")
    assert found.returncode == 1
    assert "not a block trace" in found.stderr
    assert "Traceback" not in found.stderr
    empty = run(tmp_path / "empty", "--json")
    assert empty.returncode == 0
    assert json.loads(empty.stdout)["events"] == 0
    assert run(tmp_path / "empty").returncode == 0


def plain_events(count: int = 300) -> list[Ev]:
    return [event for n in range(count) for event in request(1_000 + n * 9_000, 4096 + n * 64, 8, WRITE, n % 2)]


@pytest.mark.parametrize("letters", ["DC", "D", "QC"])
def test_a_text_from_which_blkparse_left_out_operations_has_no_losses(tmp_path: Path, letters: str) -> None:
    text = tmp_path / "x.txt"
    text.write_text("".join(line for line in as_blkparse(plain_events()) if line.split()[5] in letters))
    report = analyze(AnalysisRequest(str(text))).report
    assert report["selection"] is True
    assert report["damage"]["problems"] == []
    assert report["writes"]["requests"] == 300
    assert report["latency"]["d2c"].get("write", {}).get("count", 0) == (300 if letters == "DC" else 0)


def test_a_text_that_begins_in_the_middle_has_no_losses_and_one_with_a_hole_has(tmp_path: Path) -> None:
    lines = as_blkparse(plain_events())
    text = tmp_path / "x.txt"
    text.write_text("".join(lines[100:]))
    report = analyze(AnalysisRequest(str(text))).report
    assert (report["lost_events"], report["selection"]) == (0, False)
    text.write_text("".join(lines[:500] + lines[530:]))
    report = analyze(AnalysisRequest(str(text))).report
    assert (report["lost_events"], report["selection"]) == (30, False)


@pytest.mark.parametrize(
    "line", ["    0.000148360 D 0 8", "254,0,0,1,Q", "CPU0 (x):\n Reads Queued: 0,  0KiB", "hello world"]
)
def test_a_text_in_a_format_of_its_own_is_refused(tmp_path: Path, line: str) -> None:
    text = tmp_path / "x.txt"
    text.write_text(f"{line}\n" * 50)
    with pytest.raises(Unsupported, match="as blkparse prints it by default"):
        analyze(AnalysisRequest(str(text)))
    text.write_text("# tracer: nop\n#\n\n")
    assert analyze(AnalysisRequest(str(text))).report["events"] == 0
