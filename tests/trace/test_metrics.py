"""Metrics by their definitions, and real traces by the counters of the disk they were recorded on."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from f2tools.blktrace.records import MAX_SECTOR
from f2tools.trace.analyze import AnalysisRequest, analyze
from f2tools.trace.measure.histogram import LatencyHistogram, Raster, SizeCounts, TimeSeries
from f2tools.trace.measure.intervals import IntervalSet, common, union
from f2tools.trace.measure.sequential import Seeks, SequentialCounts
from tests.native.test_core import in_python
from tests.native.test_trace import TWINS
from tests.trace import traces
from tests.trace.traces import DISCARD, FLUSH, READ, WRITE, Ev, request

REAL = ("f2fs-fileserver", "f2fs-varmail", "nilfs2-randwrite", "churn", "fileserver", "varmail")


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("issue_only", [False, True])
def test_totals_are_those_of_the_disk(name: str, issue_only: bool) -> None:
    report = analyze(AnalysisRequest(str(traces.DIRECTORY / name), issue_only=issue_only)).report
    disk = traces.counted(name)
    for ours, theirs in (("reads", "read"), ("writes", "write"), ("discards", "discard")):
        assert report[ours]["bytes"] == disk[f"{theirs}_sectors"] * 512
        if not (issue_only and ours == "writes"):
            assert report[ours]["requests"] == disk[ours]
    assert report["flushes"] == disk["flushes"]
    assert report["lost_events"] == 0
    if not issue_only:
        assert report["merges"]["back"] + report["merges"]["front"] == sum(
            disk[f"{kind}_merges"] for kind in ("read", "write", "discard")
        )


def test_write_amplification_is_written_by_given() -> None:
    given = traces.facts("churn")["application_bytes"]
    report = analyze(AnalysisRequest(str(traces.DIRECTORY / "churn"), app_bytes=given)).report
    assert report["fs_waf"] == pytest.approx(67158016 / 99871199)


def write_all(sizes: list[tuple[int, int]], kind: int = WRITE) -> list[Ev]:
    return [e for n, (sector, count) in enumerate(sizes) for e in request(1_000 + n * 300_000, sector, count, kind)]


def report_of(directory: Path, events: list[Ev]) -> dict:
    return analyze(AnalysisRequest(str(traces.write(directory, events)))).report


def test_sizes_of_512_kib(tmp_path: Path) -> None:
    report = report_of(tmp_path, write_all([(0, 1024), (5000, 8), (9000, 2048), (20000, 1024)]))
    found = report["size_512k"]
    assert (found["requests"], found["bytes"], found["request_share"]) == (2, 1 << 20, 0.5)
    assert (found["at_least"]["requests"], found["at_least"]["bytes"]) == (3, 2 << 20)
    assert (found["largest"]["size"], found["largest"]["requests"]) == (1 << 20, 1)


def test_discards_cover_what_was_written(tmp_path: Path) -> None:
    events = write_all([(0, 100), (50, 100), (1000, 50)])
    events += [
        e.__class__(**{**vars(e), "time": e.time + 10**9}) for e in write_all([(100, 400), (1020, 8)], WRITE | DISCARD)
    ]
    report = report_of(tmp_path, events)
    cover = report["discard_coverage"]
    assert (cover["bytes"], cover["of_bytes"]) == ((50 + 8) * 512, 200 * 512)
    assert cover["volume_share"] == pytest.approx(408 / 250)
    assert report["small_discards"]["issued"]["requests"] == 2


def test_fsync_cost_is_what_lies_between_flushes(tmp_path: Path) -> None:
    flush = FLUSH | READ
    events = [*request(1_000, 0), Ev(200_000, "D", 0, 0, flush), Ev(201_000, "C", 0, 0, flush)]
    events += [*request(300_000, 64, 16), *request(500_000, 128, 8), Ev(700_000, "D", 0, 0, flush)]
    found = report_of(tmp_path, events)["fsync_cost"]
    assert (found["count"], found["min"], found["max"], found["bytes"]) == (2, 4096, 12288, 16384)


def test_reads_and_discards_overlap_as_long_as_both_are_under_way(tmp_path: Path) -> None:
    events = [Ev(0, "D", 0, 8, READ), Ev(100, "D", 900, 8, WRITE | DISCARD), Ev(150, "D", 64, 8, READ)]
    events += [Ev(200, "C", 0, 8, READ), Ev(260, "C", 900, 8, WRITE | DISCARD), Ev(300, "C", 64, 8, READ)]
    found = report_of(tmp_path, events)["discard_read_overlap"]
    assert (found["time_ns"], found["discard_time_ns"], found["read_time_ns"]) == (160, 160, 300)


def several_disks(directory: Path, count: int) -> Path:
    """Disks that are written in turns, each from one sector on without a gap and with the same sectors."""
    events = []
    for n in range(40):
        for disk in range(count):
            events += request(1_000 + (n * count + disk) * 1_000_000, n * 8, category=WRITE)[2:]
    for at, event in enumerate(events):
        events[at] = replace(event, device=8 << 20 | 16 * (at // 2 % count))
    return traces.write(directory, events)


@pytest.mark.parametrize("count", [1, 2, 9])
def test_each_of_several_disks_is_sequential_on_its_own(tmp_path: Path, count: int) -> None:
    report = analyze(AnalysisRequest(str(several_disks(tmp_path, count)))).report
    assert len(report["devices"]) == count
    for found in (report["sequentiality"]["write"]["strict"], report["sequentiality"]["any"]):
        assert (found["requests"], found["bytes"]) == (39 * count, 39 * count * 4096)
    assert report["sequentiality"]["write"]["near_32_128k"]["requests"] == 39 * count
    # as btt does, that of the first request of a disk is 0, as it begins at sector 0
    assert report["seeks"]["d2d"] == {"count": 40 * count, "mean": 0.0, "zero": 40 * count}


def test_unions_of_sectors_are_of_one_disk_each(tmp_path: Path) -> None:
    """The ninth disk is discarded where all of them were written."""
    prefix = several_disks(tmp_path, 9)
    gone = [replace(e, device=8 << 20 | 16 * 8) for e in request(10**9, 0, 40 * 8, WRITE | DISCARD)[2:]]
    traces.write(tmp_path, gone, name="u")
    report = analyze(AnalysisRequest(str(prefix.parent))).report
    found = report["discard_coverage"]
    assert (found["of_bytes"], found["bytes"]) == (9 * 40 * 4096, 40 * 4096)


def test_a_flush_ends_what_its_own_disk_wrote(tmp_path: Path) -> None:
    one, two = (replace(e, device=8 << 20 | 16 * disk) for disk in (0, 1) for e in request(0, 0)[2:3])
    events = [replace(each, time=1_000 * n, sector=8 * n) for n in range(10) for each in (one, two)]
    flush = Ev(20_000, "D", 0, 0, FLUSH, device=one.device)
    report = analyze(AnalysisRequest(str(traces.write(tmp_path, [*events, flush])))).report
    assert (report["fsync_cost"]["count"], report["fsync_cost"]["mean"]) == (1, 10 * 4096)


def test_queue_depth(tmp_path: Path) -> None:
    events = [Ev(0, "D", 0), Ev(100, "D", 64), Ev(200, "C", 0), Ev(300, "C", 64)]
    found = report_of(tmp_path, events)["queue_depth"]
    assert (found["max"], found["mean_over_time"], found["mean_at_issue"]) == (2, 4 / 3, 1.5)


def test_processes_and_cgroups(tmp_path: Path) -> None:
    events = [traces.note(0, 0, b"one", 5), *request(10, 0, pid=5), *request(200_000, 64, 16, READ, pid=6)]
    events += [Ev(400_000, "Q", 640, 8, WRITE, 5, cgroup=99)]
    report = report_of(tmp_path, events)
    assert [(p["pid"], p["name"], p["writes"]["bytes"], p["reads"]["bytes"]) for p in report["processes"]] == [
        (5, "one", 8192, 0),
        (6, "", 0, 8192),
    ]
    assert report["cgroups"][0]["cgroup"] in (0, 99)
    assert {g["cgroup"]: g["writes"]["bytes"] for g in report["cgroups"]}[99] == 4096


def slow_sequence(starts: list[int], ends: list[int]) -> dict[str, int]:
    """The definitions, word by word."""
    found = dict.fromkeys(("strict", "last_8", "last_16", "last_32", "last_64", "near_32_128k"), 0)
    for n, start in enumerate(starts):
        found["strict"] += n > 0 and start == ends[n - 1]
        for k in (8, 16, 32, 64):
            found[f"last_{k}"] += start in ends[max(n - k, 0) : n]
        found["near_32_128k"] += any(abs(start - end) <= 256 for end in ends[max(n - 32, 0) : n])
    return found


@pytest.mark.parametrize("seed", range(8))
def test_sequential_by_every_definition(seed: int) -> None:
    choice = random.Random(seed)
    heads = [n * 100_000 for n in range(9)]
    starts, ends = [], []
    for _ in range(700):
        which = choice.randrange(12)
        size = choice.choice((8, 64, 1024))
        start = heads[which] if which < 9 else choice.randrange(900_000)
        if which < 9:
            heads[which] += size + choice.choice((0, 0, 0, 100, 300))
        starts.append(start)
        ends.append(start + size)
    sequence, at = SequentialCounts(), 0
    while at < len(starts):
        step = choice.randrange(1, 200)
        sequence.add(np.array(starts[at : at + step]), np.array(ends[at : at + step]))
        at += step
    slow = slow_sequence(starts, ends)
    assert {name: sequence.counts[name] for name in slow} == slow


@pytest.mark.parametrize("last", [1 << 30, MAX_SECTOR])
def test_distances_of_any_length_are_added_up_exactly(last: int) -> None:
    start = np.tile(np.array([0, last - 8]), 1_000)
    for several in (False, True):
        with in_python(*TWINS) if several else nullcontext():
            seeks = Seeks()
            seeks.add(start, start + 8)
            seeks.add(start, start + 8)
        # ahead from the end of the one before, back from its start
        assert (seeks.count, seeks.zero, seeks.sum) == (4_000, 1, 2_000 * (last - 16) + 1_999 * (last - 8))


@pytest.mark.parametrize("spilled", [False, True])
def test_unions_are_those_of_sets(monkeypatch: pytest.MonkeyPatch, spilled: bool) -> None:
    from f2tools.trace.measure import intervals

    if spilled:
        monkeypatch.setattr(intervals, "BUFFERED", 50)
        monkeypatch.setattr(intervals, "LARGE", 30)
        monkeypatch.setattr(intervals, "PART", 40)
    choice = random.Random(3)
    made, plain = [IntervalSet(), IntervalSet()], [set(), set()]
    for _ in range(120):
        which = choice.randrange(2)
        starts = np.array([choice.randrange(20_000) for _ in range(choice.randrange(1, 30))])
        ends = starts + np.array([choice.randrange(0, 30) for _ in starts])
        made[which].add(starts, ends)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            plain[which] |= set(range(start, end))
    assert [each.total for each in made] == [len(each) for each in plain]
    assert made[0].overlap(made[1]) == made[1].overlap(made[0]) == len(plain[0] & plain[1])
    made[0].merge(made[1])
    assert made[0].total == len(plain[0] | plain[1])
    assert common(*union(np.zeros(0, int), np.zeros(0, int)), np.array([1]), np.array([2])) == 0


def test_latencies_merge_and_are_exact_to_a_thousandth() -> None:
    values = np.random.default_rng(1).lognormal(12, 2, 50_000).astype(np.int64)
    whole, parts = LatencyHistogram(), [LatencyHistogram(), LatencyHistogram()]
    whole.add(values)
    parts[0].add(values[:20_000])
    parts[1].add(values[20_000:])
    parts[0].merge(parts[1])
    assert parts[0].result() == whole.result()
    for percent in (50, 90, 99, 99.9):
        exact = np.sort(values)[int(np.ceil(len(values) * percent / 100)) - 1]
        assert whole.quantile(percent) == pytest.approx(exact, rel=0.0011)
    assert (whole.min, whole.max, whole.sum) == (values.min(), values.max(), values.sum())


def test_sizes_merge() -> None:
    one, two, both = SizeCounts(), SizeCounts(), SizeCounts()
    one.add(np.array([4096, 512]))
    two.add(np.array([8 << 20, 4096, 4096]))
    both.add(np.array([4096, 512, 8 << 20, 4096, 4096]))
    one.merge(two)
    assert one.result() == both.result()
    assert one.result()["median"] == 4096


def test_series_and_rasters_widen_and_merge() -> None:
    times = np.arange(0, 10**12, 7 * 10**8)
    whole, one, two = TimeSeries(1), TimeSeries(1), TimeSeries(1)
    whole.add(0, whole.bins(times), np.full(len(times), 3))
    half = len(times) // 2
    one.add(0, one.bins(times[:half]), np.full(half, 3))
    two.add(0, two.bins(times[half:]), np.full(len(times) - half, 3))
    one.merge(two)
    assert one.sums.sum() == whole.sums.sum() == 3 * len(times)
    assert one.width >= times[-1] // 512
    raster, first, second = Raster(1), Raster(1), Raster(1)
    places, weights = times % 10**9, np.ones(len(times))
    raster.add(0, times, places, weights)
    first.add(0, times[:half], places[:half], weights[:half])
    second.add(0, times[half:], places[half:], weights[half:])
    first.merge(second)
    assert first.sums.sum() == raster.sums.sum() == len(times)
    assert first.sums.shape == raster.sums.shape
