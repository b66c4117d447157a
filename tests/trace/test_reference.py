"""Every metric held against a slow reading of its definition (tests/trace/slow.py), on real traces and played ones."""

from __future__ import annotations

import os
import random
import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from f2tools.f2fs.layout.super import SuperBlock
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests.blktrace.test_pairing import Played
from tests.native.test_core import in_python
from tests.native.test_trace import TWINS
from tests.trace import blkparse, slow, traces
from tests.trace.traces import FLUSH, READ, WRITE, Ev, note

FUA = 32768
SEEDS = int(os.environ.get("F2_TRACE_SEEDS", "1"))  # with more, the longer real traces too
REAL = (
    "f2fs-fileserver",
    "nilfs2-randwrite",
    "churn",
    "fileserver",
    *(("f2fs-varmail", "varmail") if SEEDS > 1 else ()),
)


def printed(*prefixes: Path) -> str:
    """What blkparse prints of the events, of one trace or of several, each at its place in the records."""
    return "\n".join(blkparse.recorded(*prefixes))


def bounds_of(image: Path, offset: int = 0) -> list[int]:
    """Where the areas of a volume begin, and where the last ends, in sectors."""
    with image.open("rb") as file:
        file.seek(1024)
        sb = SuperBlock.parse(file.read(SuperBlock.size))
    main_end = sb.main_blkaddr + (sb.segment_count_main << sb.log_blocks_per_seg)
    blocks = (0, sb.cp_blkaddr, sb.sit_blkaddr, sb.nat_blkaddr, sb.ssa_blkaddr, sb.main_blkaddr, main_end)
    return [offset + (at << sb.log_blocksize >> 9) for at in blocks]


@pytest.mark.peer
@pytest.mark.parametrize("name", REAL)
def test_real_traces(name: str, tmp_path: Path) -> None:
    prefix = traces.unpacked(name, tmp_path)
    given = AnalysisRequest(str(prefix), app_bytes=12_345_678, top=0)
    bounds = None
    if name in ("churn", "fileserver", "varmail"):
        given.image_after = str(traces.image(name, "after"))
        bounds = bounds_of(traces.image(name, "after"))
    report = analyze(given).report
    assert slow.differences(report, slow.metrics(printed(prefix), bounds, 12_345_678)) == []


def played(seed: int, steps: int, places: int, device: int = traces.DEVICE) -> list[Ev]:
    """Merges, splits, requeues, partial ends, overlaps, flushes and FUA writes on two CPUs."""
    one = Played(seed, places)
    one.play(steps)
    choice = random.Random(seed)
    flush = FLUSH | READ
    found = [note(0, 1, struct.pack("<II", 1_700_000_000, 0)), note(1, 0, b"fio\0".ljust(16, b"\0"), 100)]
    for event in one.events:
        fua = FUA if event.op == "D" and event.category == WRITE and choice.random() < 0.1 else 0
        found.append(replace(event, pid=100 + event.sector % 3, cpu=choice.randrange(2), category=event.category | fua))
    last = one.now
    for n in range(steps // 40):
        at = last + 1_000 * n
        found += [Ev(at, "Q", 0, 0, FLUSH | WRITE), Ev(at + 10, "D", 0, 0, flush), Ev(at + 300, "C", 0, 0, flush)]
        found += [Ev(at + 301, "C", 0, 0, WRITE), *traces.request(at + 400, 99_000 + 1024 * n, 1024, took=50)]
    return [replace(event, device=device) for event in sorted(found, key=lambda each: each.time)]


def variants(directory: Path, events: Sequence[Ev]) -> list[Path]:
    """The same events in both versions and both byte orders, with cgroups and without."""
    found = []
    for version in (7, 8):
        for order in "<>":
            for cgroup in (0, 77):
                ones = [replace(e, cgroup=cgroup) if e.sequence is None else e for e in events]
                found.append(traces.write(directory / f"{version}{ord(order)}{cgroup}", ones, version, order))
    return found


@pytest.mark.peer
@pytest.mark.parametrize("places", [30, 300, 100_000])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_played_traces_in_every_form(tmp_path: Path, seed: int, places: int) -> None:
    events = played(seed, 2_000, places)
    every = variants(tmp_path, events)
    expected = slow.metrics(printed(every[0]))
    for prefix in every:
        report = analyze(AnalysisRequest(str(prefix), top=0)).report
        assert report["damage"]["problems"] == []
        assert slow.differences(report, expected) == [], prefix
    assert report["cgroups"][0]["writes"] == {
        "requests": sum(row["writes"]["requests"] for row in expected["processes"].values()),
        "bytes": sum(row["writes"]["bytes"] for row in expected["processes"].values()),
    }


@pytest.mark.peer
def test_two_devices_in_one_directory(tmp_path: Path) -> None:
    """Equal sectors of two devices are two places."""
    one, two = played(5, 1_500, 300), played(6, 1_500, 300, 8 << 20 | 32)
    # no two events at one time, as their order is anybody's
    one, two = ([replace(e, time=2 * e.time + odd) for e in events] for odd, events in enumerate((one, two)))
    prefixes = [traces.write(tmp_path, events, name=name) for name, events in (("a", one), ("b", two))]
    report = analyze(AnalysisRequest(str(tmp_path), top=0)).report
    assert len(report["devices"]) == 2
    assert slow.differences(report, slow.metrics(printed(*prefixes))) == []


@pytest.mark.peer
@pytest.mark.parametrize("seed", range(SEEDS))
def test_requests_far_from_the_beginning_of_a_device_are_read_like_others(tmp_path: Path, seed: int) -> None:
    """Reads are at 4 EiB, beyond what a key holds beside a class and a position."""
    events, far = played(seed, 2_000, 300), 1 << 53
    for at, event in enumerate(events):
        if event.category & READ and event.sectors:
            payload = event.payload
            if event.op == "X":
                payload = (int.from_bytes(payload, "big") + far).to_bytes(8, "big")
            events[at] = replace(event, sector=event.sector + far, payload=payload)
    prefix = traces.write(tmp_path, events)
    expected = slow.metrics(printed(prefix))
    for several in (False, True):
        with in_python(*TWINS) if several else nullcontext():
            report = analyze(AnalysisRequest(str(prefix), top=0)).report
        assert report["damage"]["problems"] == []
        assert slow.differences(report, expected) == []


@pytest.mark.parametrize("longest", [1, 7])
@pytest.mark.parametrize("seed", range(4))
def test_what_may_be_mistaken_for_another_and_nothing_else_is_left_out_of_latency(
    tmp_path: Path, seed: int, longest: int
) -> None:
    """What was played is known: each request in which at most one event is lost has the latency that it had."""
    device = Played(seed, 100_000)
    device.play(3_000)
    choice = random.Random(seed)
    gone: set[int] = set()
    for _ in range(12):
        first = choice.randrange(100, len(device.events) - 100)
        gone |= set(range(first, first + choice.randrange(1, longest + 1)))
    kept = [(n, event) for n, event in enumerate(device.events) if n not in gone]
    numbered = [replace(event, sequence=n + 1) for n, event in kept]
    gaps = [(a.time, b.time, n - m - 1) for (m, a), (n, b) in pairwise(kept) if n - m > 1]
    seen = {(event.time, event.op) for _, event in kept}
    ends = Counter((event.time, event.sector, event.sectors) for _, event in kept if event.op == "C")
    report = analyze(AnalysisRequest(str(traces.write(tmp_path, numbered)))).report

    def sure(start: int, end: int, *place: int) -> bool:
        lost = sum(count for low, high, count in gaps if low <= end and high >= start)
        at_once = (end, *place) in ends  # in one part
        return (start, "D") in seen and (end, "C") in seen and lost < (2 if at_once else 1)

    took = sorted(end - start for start, end, *place in device.requests if sure(start, end, *place))
    rows = list(report["latency"]["d2c"].values())
    assert report["lost_events"] == len(gone)
    assert sum(row["count"] for row in rows) == len(took)
    assert sum(round(row["mean"] * row["count"]) for row in rows) == sum(took)
    assert max(row["max"] for row in rows) == took[-1]
    left_out = [r for r in device.requests if (r[0], "D") in seen and (r[1], "C") in seen and not sure(*r)]
    assert len(left_out) - 12 <= report["pairing"]["spanning_gap"] <= len(left_out) + 12


def test_a_request_that_is_requeued_long_after_its_issue_counts_once(tmp_path: Path) -> None:
    """Its issue and its requeue are in windows of their own."""
    filler = [event for n in range(4_000) for event in traces.request(10_000 + n * 200, n * 64, took=50)]
    odd = [Ev(1, "Q", 1 << 30), Ev(2, "D", 1 << 30)]
    odd += [Ev(10**9, "R", 1 << 30), Ev(10**9 + 5, "D", 1 << 30), Ev(10**9 + 9, "C", 1 << 30)]
    report = analyze(AnalysisRequest(str(traces.write(tmp_path, odd + filler)))).report
    assert report["writes"] == {"requests": 4_001, "bytes": 4_001 * 4096, "requests_with_data": 4_001}
    assert report["sizes"]["write"]["issued"]["count"] == 4_001
    assert report["pairing"]["requeued"] == 1
    assert report["queue_depth"]["max"] == 2
