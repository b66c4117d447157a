"""A trace that is cut anywhere, counted in pieces and joined in any grouping gives the report of the whole."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from f2tools.blktrace import ranges
from f2tools.blktrace.ranges import Cuts, cuts_of
from f2tools.blktrace.records import X
from f2tools.blktrace.sources import open_trace
from f2tools.trace import analyze as analysis
from f2tools.trace import pieces
from f2tools.trace.analyze import AnalysisRequest, analysis_of, analyze
from f2tools.trace.measure.measure import METRIC_OPS
from f2tools.trace.pieces import Piece, Task, Whole, count, merge, task_of
from tests.images import DIRECTORY
from tests.trace import traces
from tests.trace.test_jobs import damaged
from tests.trace.traces import WRITE, Ev, request

TRACES = sorted(path.parent.name for path in DIRECTORY.glob("traces/*/x.blktrace.0.zst"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: traces.unpacked(name, tmp_path_factory.mktemp("traces")) for name in TRACES}


def task(prefix: Path, piece: int) -> Task:
    trace = open_trace(str(prefix))
    cuts = cuts_of(trace.files, piece)
    assert cuts is not None
    return task_of(trace, cuts, (*METRIC_OPS, X), True)


def numbers(piece: Piece, *, exact: bool = False) -> str:
    """The report; how many events were paired one by one depends on where windows end, so on the cuts."""
    report = analysis_of(piece, AnalysisRequest("x")).report
    report.pop("trace_files")
    if not exact:
        report["pairing"].pop("exact")
    return json.dumps(report)


def chosen(cuts: Cuts, keep: set[int]) -> Cuts:
    """Some of the cuts."""
    at = sorted(number for number in keep if number < len(cuts.times))
    return replace(cuts, times=tuple(cuts.times[n] for n in at))


def in_any_grouping(work: Task, some: list[Piece], choice: random.Random) -> Piece:
    """Neighbours joined two at a time, in an order by chance."""
    while len(some) > 1:
        at = choice.randrange(len(some) - 1)
        some[at : at + 2] = [merge(work, some[at], some[at + 1])]
    return some[0]


@settings(max_examples=10, derandomize=True)
@given(data=st.data())
def test_any_cuts_and_any_grouping_give_the_report_of_the_whole(unpacked: dict[str, Path], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(TRACES))
    fine = task(unpacked[name], 8 << 10)
    cuts = chosen(fine.cuts, data.draw(st.sets(st.integers(0, len(fine.cuts.times) - 1), min_size=1, max_size=6)))
    work = replace(fine, cuts=cuts)
    whole = count(work, 0, cuts.pieces)
    runs = [count(work, n, n + 1) for n in range(cuts.pieces)]
    joined = in_any_grouping(work, runs, random.Random(data.draw(st.integers(0, 99))))
    assert numbers(joined, exact=True) == numbers(whole, exact=True)
    assert numbers(joined) == numbers(count(replace(work, cuts=chosen(cuts, set())), 0, 1))


@pytest.mark.parametrize("name", TRACES)
def test_several_jobs_print_what_one_prints(
    name: str, unpacked: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "cuts_of", lambda files: cuts_of(files, 40 << 10))
    alone = json.dumps(analyze(AnalysisRequest(str(unpacked[name]))).report)
    joined: list[int] = []
    monkeypatch.setattr(pieces, "joined", lambda *args: joined.append(1) or _joined(*args))
    assert json.dumps(analyze(AnalysisRequest(str(unpacked[name]), jobs=3)).report) == alone
    assert joined


_joined = pieces.joined


def test_events_of_a_cut_trace_are_those_of_the_whole(unpacked: dict[str, Path]) -> None:
    prefix = unpacked["f2fs-varmail"]
    cuts = task(prefix, 20 << 10).cuts
    assert cuts.pieces > 50
    whole = sum(len(events) for events in open_trace(str(prefix)).events())
    found = 0
    for n in range(cuts.pieces):
        low, high = cuts.times_of(n, n + 1)
        for events in pieces.Trace("x", cuts.ranges(n, n + 1)).events():
            assert low <= events.time.min() <= events.time.max() < high
            found += len(events)
    assert found == whole


def long_lived(tmp_path: Path, lost: bool = False) -> Path:
    """Requests that are under way for very long, at places that later ones overlap; flushes are rare."""
    events: list[Ev] = []
    for n in range(1200):
        start = 1_000 + n * 9_000
        events += request(start, 4096 + (n % 37) * 16, 8 + n % 3 * 8, WRITE, n % 2, 5_000 if n % 50 else 4_000_000)
    prefix = traces.write(tmp_path / "long", sorted(events, key=lambda event: event.time))
    if lost:
        path = Path(f"{prefix}.blktrace.1")
        data = bytearray(path.read_bytes())
        del data[48 * 700 : 48 * 705]
        path.write_bytes(data)
    return prefix


def test_what_is_under_way_across_many_cuts_is_counted_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = task(long_lived(tmp_path), 12 << 10)
    anew: list[int] = []
    real = pieces._anew
    monkeypatch.setattr(pieces, "_anew", lambda *args: anew.append(1) or real(*args))
    runs = [count(work, n, n + 1) for n in range(work.cuts.pieces)]
    joined = in_any_grouping(work, runs, random.Random(5))
    assert anew
    assert numbers(joined, exact=True) == numbers(count(work, 0, work.cuts.pieces), exact=True)


def test_lost_events_at_a_border_are_not_overlooked(tmp_path: Path) -> None:
    work = task(long_lived(tmp_path), 12 << 10)
    first, second = count(work, 0, 1), count(work, 1, 2)
    check = next(iter(second.trace.numbers.values()))
    key = next(iter(check.first))
    check.first[key] += 1
    with pytest.raises(Whole):
        merge(work, first, second)


@pytest.mark.parametrize("jobs", [2, 3])
def test_a_damaged_trace_is_read_as_a_whole(tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "cuts_of", lambda files: cuts_of(files, 16 << 10))
    for prefix in (damaged(tmp_path), long_lived(tmp_path, lost=True)):
        one, several = (json.dumps(analyze(AnalysisRequest(str(prefix), jobs=n)).report) for n in (1, jobs))
        assert one == several
        assert json.loads(one)["damage"]["lost"]


def test_what_can_not_be_cut_has_no_cuts(tmp_path: Path) -> None:
    prefix = long_lived(tmp_path)
    files = open_trace(str(prefix)).files
    assert cuts_of(files) is None  # too small
    text = tmp_path / "a.blkparse.txt"
    text.write_text("  8,16   0        1     0.000000000   100  Q   W 0 + 8 [fio]\n" * 1000)
    assert cuts_of([str(text)], 1 << 10) is None
    assert cuts_of(["-"], 1) is None


def test_eight_workers_have_the_same_work_to_a_tenth(unpacked: dict[str, Path]) -> None:
    # as of 100 M events, in proportion: a piece is a fortieth of what a worker has
    prefix = unpacked["f2fs-varmail"]
    size = sum(Path(name).stat().st_size for name in open_trace(str(prefix)).files)
    work = task(prefix, size // 320)
    done = [count(work, *run).work for run in work.cuts.runs(8)]
    assert max(done) <= 1.1 * sum(done) / len(done)
    whole = open_trace(str(prefix))
    assert sum(1 for _ in whole.events())
    assert sum(done) <= 1.05 * whole.records


def test_places_are_those_of_the_first_event_of_that_time(unpacked: dict[str, Path]) -> None:
    for piece in (5 << 10, 33 << 10):
        cuts = task(unpacked["nilfs2-randwrite"], piece).cuts
        assert list(cuts.times) == sorted(set(cuts.times))
        parts = [cuts.ranges(n, n + 1) for n in range(cuts.pieces)]
        for number, size in enumerate(cuts.sizes):
            mine = [part[number] for part in parts]
            assert [part.end for part in mine] == [*(part.start for part in mine[1:]), size]
            assert min(part.end - part.start for part in mine) >= 0
        assert ranges.PIECE == 4 << 20
