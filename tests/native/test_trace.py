"""What the compiled core counts of a trace, and its twins in Python."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools import native
from f2tools.blktrace import records, scan, windows
from f2tools.blktrace.damage import Damage, Gap
from f2tools.blktrace.pairing import Pairer
from f2tools.blktrace.records import DISCARD, FLUSH, MAX_SECTOR, READ, WRITE, C, D, Events, M, Q, R, X, classes
from f2tools.trace.analyze import AnalysisRequest, analyze
from f2tools.trace.measure import border, histogram, intervals, measure, sequential, told
from f2tools.trace.measure.border import MAX_DEPTH, QueueDepth
from f2tools.trace.measure.histogram import LatencyHistogram, Raster, SizeCounts, TimeSeries, sums_by
from f2tools.trace.measure.sequential import Following, Seeks, SequentialCounts
from tests.native.test_core import in_python
from tests.trace.traces import Ev, note, record, unpacked

TWINS = (border, histogram, intervals, measure, records, scan, sequential, told, windows)

NEAR = sequential.NEAR_SECTORS
# places and lengths by which requests often begin at, or just inside or outside of what is near an earlier end
PLACES = st.integers(0, 6).map(lambda n: n * NEAR // 2) | st.sampled_from([NEAR - 1, NEAR + 1, 1 << 41, (1 << 53) + 8])
REQUESTS = st.lists(st.tuples(PLACES, st.sampled_from([1, 8, NEAR, 1024, 1 << 20])), max_size=160)


@given(REQUESTS, st.integers(0, 160), st.integers(0, 160))
def test_how_sequential_requests_are(requests: list[tuple[int, int]], first: int, second: int) -> None:
    def counted() -> list[object]:
        start = np.array([place for place, _ in requests], np.int64)
        end = start + np.array([length for _, length in requests], np.int64)
        counts, later = SequentialCounts(), SequentialCounts()
        for low, high in ((0, first), (first, second)):
            counts.add(start[low:high], end[low:high])
        later.add(start[second:], end[second:])
        alone = dict(later.counts)
        counts.merge(later)
        return [counts.counts, counts.sizes, counts.requests, counts.bytes, alone]

    found = counted()
    with in_python(sequential):
        assert found == counted()


@pytest.mark.parametrize("wrong", [{"history": 4}, {"starts": 16}, {"ends": 7}, {"counts": 48}, {"sizes": 64}])
def test_requests_in_buffers_that_do_not_agree_are_an_error(wrong: dict[str, int]) -> None:
    assert native.core is not None
    given = {"history": 8, "starts": 8, "ends": 8, "counts": 56, "sizes": 56} | wrong
    with pytest.raises(ValueError, match="do not agree"):
        native.core.sequential(*(bytearray(length) for length in given.values()))


# a few places and lengths, so that many intervals meet, at two ends of all places
EVENTS = st.lists(
    st.tuples(
        st.sampled_from([Q, Q, D, D, C, C, M, R, X]), st.sampled_from([0, 8, 16, 24, 1 << 42, MAX_SECTOR - 32]),
        st.sampled_from([0, 1, 4096, 4096, 8192, 16384]), st.sampled_from([WRITE, WRITE, READ, FLUSH, DISCARD | WRITE]),
        st.sampled_from([8 << 20, 8 << 20, 8 << 20 | 16]),
    ),
    max_size=120,
)  # fmt: skip


def events_of(rows: list[tuple[int, int, int, int, int]], start: int) -> Events:
    op, sector, size, category, device = np.array(rows, np.int64).reshape(-1, 5).T
    empty = [np.zeros(0, dtype) for dtype in (np.uint32, np.uint32, np.uint16, np.uint32, np.uint64)]
    time = start + np.arange(len(rows)) * 10
    splits = {row: int(sector[row] + 3).to_bytes(8, "big") for row in np.flatnonzero(op == X).tolist()}
    columns = (time, sector, size, category.astype(np.uint32), op.astype(np.uint8), empty[0], device.astype(np.uint32))
    return Events.of([*map(np.ascontiguousarray, columns), *empty[1:]], splits)


@given(EVENTS, EVENTS, st.booleans(), st.sampled_from([3, 16, 1 << 16]), st.booleans())
def test_pairs(first: list[Any], second: list[Any], with_bios: bool, window: int, gap: bool) -> None:
    def paired() -> list[object]:
        pairer, found = Pairer(with_bios), []
        for number, rows in enumerate((first, second)):
            events = events_of(rows, number * 10_000)
            if gap and number:
                pairer.add_gaps([Gap("x", 0, 500, 10_030, 1)])
            tables = pairer.feed(events, classes(events.category, events.bytes))
            found += [[column.tolist() for column in vars(table).values()] for table in tables]
            found += [list(pairer.partial), pairer.pending, (pairer._queued, pairer._live)]
        return [*found, pairer.under_way(), pairer.counts]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW", window)
        found = paired()
        with in_python(windows):
            assert found == paired()


def flat(value: Any) -> Any:
    """The same without arrays."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [flat(each) for each in vars(value).values()] if hasattr(value, "__dict__") else value


@given(EVENTS, st.integers(0, 8), st.booleans())
def test_windows_told_apart(rows: list[Any], odd: int, several: bool) -> None:
    events = events_of(rows, 0)
    events.category |= np.uint32(odd) << np.uint32(15 if several else 9)

    def apart() -> list[object]:
        cls = classes(events.category, events.bytes)
        return [cls.tolist(), flat(told.told(events, cls))]

    found = apart()
    with in_python(told, records):
        assert found == apart()


@given(EVENTS, st.sampled_from([0, 1, 1 << 31]), st.sampled_from([3, 256]))
def test_requests_by_process(rows: list[Any], far: int, room: int) -> None:
    events = events_of(rows, 0)
    pids = (events.sector // 8 * 7 + far).astype(np.uint32)
    queued = told.told(events, classes(events.category, events.bytes)).queued

    def tables() -> list[Any]:
        table: dict[int, Any] = {}
        for _ in range(2 if len(queued) else 0):
            measure._add_by(table, pids, queued)
        return [(name, found.tolist()) for name, found in table.items()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "MAX_AT_ONCE", room)
        found = tables()
        with in_python(measure):
            assert found == tables()


TELL = (3, 3, 24, 24, 24, 12, 10240, 160, 8, 120, 3, 120, 3, 3, 32)


@pytest.mark.parametrize("wrong", range(-1, len(TELL)))
def test_events_told_apart_into_buffers_that_do_not_agree_are_an_error(wrong: int) -> None:
    assert native.core is not None
    native.core.tell_apart(*map(bytearray, TELL))
    buffers = [bytearray(length + (number == wrong)) for number, length in enumerate(TELL)]
    if wrong < 0:
        buffers[1][2] = 5  # a class that there is not
    with pytest.raises(ValueError, match="do not agree"):
        native.core.tell_apart(*buffers)


@given(st.lists(st.sampled_from([0, 512, 4096, 4 << 20, (4 << 20) + 512, 1 << 31]), max_size=20))
def test_sizes(sizes: list[int]) -> None:
    def counted() -> list[object]:
        counts = SizeCounts()
        for part in (sizes[:5], sizes[5:]):
            counts.add(np.array(part, np.int64))
        return flat(counts)

    found = counted()
    with in_python(histogram):
        assert found == counted()


PLACED = st.lists(
    st.tuples(st.integers(0, 1 << 33), st.integers(0, (1 << 42) - 1), st.integers(0, 1 << 32)), max_size=20
)


@given(PLACED, st.integers(0, 20), st.integers(0, 3))
def test_bytes_by_time_and_place(events: list[tuple[int, int, int]], cut: int, back: int) -> None:
    time, place, size = np.array(events, np.int64).reshape(-1, 3).T

    def counted() -> list[object]:
        raster, series = Raster(1), TimeSeries(2)
        series.start = raster.start = back
        for part in (slice(0, cut), slice(cut, None)):
            raster.add(0, time[part], place[part], size[part])
            series.add_both(0, 1, time[part], size[part])
        return [raster.sums.tolist(), raster.time_shift, raster.place_shift, series.sums.tolist(), series.shift]

    found = counted()
    with in_python(histogram):
        assert found == counted()


PAIR = {
    "op": 3, "cls": 3, "kinds": 256, "bytes": 24, "sector": 24, "time": 24, "devices": 0, "pending": 40, "rows": 24,
    "requests": 128, "request_cls": 4, "bios": 160, "bio_cls": 4, "left": 64, "ended": 64, "exact": 64, "summary": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    "wrong", [{}, *({name: length + 1} for name, length in PAIR.items()), {"first": -1}, {"first": 4}]
)
def test_events_in_buffers_that_do_not_agree_are_an_error(wrong: dict[str, int]) -> None:
    assert native.core is not None
    given = PAIR | {"first": 0} | wrong
    *lengths, first = given.values()
    buffers = [bytearray(length) for length in lengths]
    if not wrong:
        buffers[4][7] = 1  # a sector beyond all devices
    with pytest.raises(ValueError, match="do not agree"):
        native.core.pair(*buffers, first, 0, True)


MAGIC = (0x65617407).to_bytes(4, "little")
RECORDS = st.lists(
    st.builds(
        Ev, st.integers(0, 2000) | st.sampled_from([10**12, 10**12 + 1, (1 << 62) + 1, (1 << 64) - 1]),
        st.sampled_from(["Q", "D", "D", "C", "C", "M", "A", "X"]), st.integers(0, 99),
        category=st.sampled_from([WRITE, READ]), cpu=st.sampled_from([0, 0, 0, 1]), error=st.sampled_from([0, 0, 5]),
        cgroup=st.sampled_from([0, 0, 0, 7]), device=st.sampled_from([8, 8, 8, 9]),
        payload=st.sampled_from([b"", b"", b"", bytes(8), bytes(3), b"1234" + MAGIC + b"5678"]),
        sequence=st.sampled_from([None, None, None, 0, 5]),
        raw=st.sampled_from([{}, {}, {}, {}, {"pdu_len": 1000}, {"pdu_len": 48}, {"magic": 1}]),
    ) | st.builds(note, st.integers(0, 2000), st.integers(0, 2), st.sampled_from([b"name", b"odd", MAGIC])),
    max_size=40,
)  # fmt: skip
EDITS = st.lists(
    st.tuples(st.integers(0, 4000), st.sampled_from([b"", b"\0", MAGIC, bytes(7), b"\xff" * 8])), max_size=3
)
FORMATS = st.sampled_from([(7, "<"), (7, ">"), (8, "<"), (8, ">")])


@given(RECORDS, EDITS, FORMATS, st.booleans(), st.booleans(), st.integers(0, 40), st.booleans())
def test_records_of_a_damaged_trace(
    events: list[Ev], edits: list[tuple[int, bytes]], form: tuple[int, str], lean: bool, some: bool, plain: int,
    whole: bool,
) -> None:  # fmt: skip
    events = [Ev(n, "D", 8 * n) for n in range(plain)] + events
    data = bytearray().join(record(event, number, *form) for number, event in enumerate(events, 1))
    for place, text in edits:
        data[place : place + len(text) // 2] = text
    wanted = np.isin(np.arange(256), [D, C, X]) if some else None

    def read() -> list[object]:
        damage = Damage()
        scanner = scan.Scanner(
            io.BytesIO(data).readinto, "x", damage, wanted=wanted, lean=lean, payloads=not lean, from_one=whole
        )
        tables = [
            [each.tolist() if isinstance(each, np.ndarray) else each for each in vars(table).values()]
            for table in scanner
        ]
        return [tables, damage, scanner.notes, scanner.records, scanner.operations.tolist(), scanner.numbers]

    if scan.sniff(bytes(data)) is None:
        return
    found = read()
    with in_python(scan):
        assert found == read()


RECORDS_IN = {"buffer": bytes(96), "at": 0, "filled": 96, "format": (0x65617407, False, 7, 48, 8, 7, 9), "offsets": 16}


@pytest.mark.parametrize(
    "wrong", [{"at": 97}, {"at": -1}, {"filled": 97}, {"format": (0, False, 9, 48, 8, 7, 9)}, {"offsets": 9},
              {"format": (0, False, 7, 48, 8, 7, 10)}, {"format": (0, False, 7, 48, 12, 7, 9)}],
)  # fmt: skip
def test_places_of_records_that_do_not_agree_are_an_error(wrong: dict[str, Any]) -> None:
    assert native.core is not None
    given = RECORDS_IN | wrong
    with pytest.raises(ValueError, match="do not agree"):
        native.core.records(*(bytearray(each) if name == "offsets" else each for name, each in given.items()))


@pytest.mark.parametrize("place", [-1, 49, 1 << 62])
@pytest.mark.parametrize("words", [36, 16])
def test_a_record_outside_of_its_buffer_is_an_error(place: int, words: int) -> None:
    assert native.core is not None
    form, tables = RECORDS_IN["format"], [bytearray(size) for size in (2048, 24, 36, 1, 4, 120)]
    native.core.columns(bytes(96), np.array([48]), form, bytes(256), *tables)
    with pytest.raises(ValueError, match="do not agree"):
        native.core.columns(bytes(96), np.array([place]), form, bytes(256), *tables)
    for which in range(6):
        wrong = [table[: len(table) - (n == which)] for n, table in enumerate(tables)]
        with pytest.raises(ValueError, match="do not agree"):
            native.core.columns(bytes(96), np.array([48]), form, bytes(256), *wrong)


@pytest.mark.parametrize("name", ["f2fs-fileserver", "nilfs2-randwrite", "churn"])
def test_reports(name: str, tmp_path: Path) -> None:
    for issue_only in (False, True):
        request = AnalysisRequest(str(unpacked(name, tmp_path)), issue_only=issue_only)
        report = analyze(request).report
        with in_python(*TWINS):
            assert analyze(request).report == report


TIMES = st.lists(st.integers(0, 30), max_size=20)


@given(st.lists(TIMES, min_size=2, max_size=10), st.booleans(), st.booleans(), st.integers(1, 10), st.integers(0, 40))
def test_streams_become_one(times: list[list[int]], ordered: bool, grouped: bool, width: int, later: int) -> None:
    parts: list[Events] = []
    for number, column in enumerate(times):
        events = events_of([(X if row % 5 == 0 else D, row, 512, WRITE, 8) for row in range(len(column))], 0)
        events.time = np.array(sorted(column) if ordered else column, np.int64) + number // width * later
        events.error = np.broadcast_to(np.full(1, number // 2, np.uint16), len(column))
        events.device = np.broadcast_to(np.full(1, 8, np.uint32), len(column))
        if grouped and number % 2:
            events.cgroup = np.full(len(column), number, np.uint64)
        parts.append(events)

    rounds = [parts[at : at + width] for at in range(0, len(parts), width)]

    def merged() -> list[object]:
        whole = Events.merged(rounds)
        return [each.tolist() if isinstance(each, np.ndarray) else each for each in vars(whole).values()]

    found = merged()
    with in_python(records):
        assert found == merged()


@pytest.mark.parametrize(
    ("streams", "merged"), [
        ((), (8,)), (((8,),), ()), (((),), (8,)), (((8,),) * 9, (72,)), (((7,),), (8,)), (((16,), (8,)), (16,)),
        (((8, 4), (8, 8)), (16, 8)), (((8, 4), (8,)), (16, 8)), (((8, 4), (8, 4, 4)), (16, 8)), (((8, 3),), (8, 3)),
        (((8,) * 13,), (8,) * 13), (((0,),), (0,)), (((8, 4),), (8, 5)),
    ],
)  # fmt: skip
def test_streams_and_what_they_become_that_do_not_agree_are_an_error(streams: Any, merged: Any) -> None:
    assert native.core is not None
    with pytest.raises(ValueError, match="do not agree"):
        native.core.merge(tuple(tuple(map(bytes, each)) for each in streams), tuple(map(bytearray, merged)))


def test_what_is_no_buffer_is_no_stream() -> None:
    assert native.core is not None
    with pytest.raises(TypeError):
        native.core.merge(((bytes(8), 5),), (bytearray(8), bytearray(4)))  # type: ignore[arg-type]
    with pytest.raises((TypeError, BufferError)):
        native.core.merge(((bytes(8),),), (bytes(8),))


SPANS = st.lists(st.sampled_from([-5, 0, 1, 2, 511, 4097, 10**9, (1 << 53) + 1, 1 << 61]), max_size=30)


@given(SPANS, SPANS)
def test_latencies(first: list[int], second: list[int]) -> None:
    def counted() -> list[object]:
        every = [LatencyHistogram(bits) for bits in (4, 6, 6, 6)]
        for values in (np.array(first, np.int64), np.array(second, np.int64)):
            every[0].add(values)
            LatencyHistogram.add_by(every[1:], values, (values % 2).astype(np.uint8) * np.uint8(2))
        return [(each.counts.tolist(), each.count, each.sum, each.min, each.max) for each in every]

    found = counted()
    with in_python(histogram):
        assert found == counted()


@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from([-1, 0, 1, 1])), min_size=1, max_size=60),
    st.integers(0, 59),
)
def test_depths(steps: list[tuple[int, int]], cut: int) -> None:
    time = np.cumsum([away for away, _ in steps])
    change = np.array([change for _, change in steps], np.int8)

    def counted() -> list[object]:
        depth = QueueDepth(MAX_DEPTH - 2 if cut % 2 else 0)
        for part in (slice(0, cut), slice(cut, None)):
            if len(time[part]):
                depth.add(time[part], change[part])
        return [each.tolist() if isinstance(each, np.ndarray) else each for each in vars(depth).values()]

    found = counted()
    with in_python(border):
        assert found == counted()


@given(
    st.lists(st.tuples(st.integers(0, 1 << 33), st.integers(0, 1 << 31)), min_size=1, max_size=20), st.integers(0, 3)
)
def test_time_in_flight_and_sums(spans: list[tuple[int, int]], back: int) -> None:
    first = np.array([start for start, _ in spans], np.int64)
    last = first + np.array([length for _, length in spans], np.int64)

    def counted() -> list[object]:
        series = TimeSeries(1)
        series.start = max(int(first.min()) - 1 + back, 0)
        series.add_spans(0, first, last)
        sums = sums_by((first % 5).astype(np.uint8), last << 20, 5)
        return [series.sums.tolist(), series.shift, *(each.tolist() for each in sums)]

    found = counted()
    with in_python(histogram):
        assert found == counted()


@given(REQUESTS, st.integers(0, 160))
def test_distances(requests: list[tuple[int, int]], cut: int) -> None:
    start = np.array([place for place, _ in requests], np.int64)
    end = start + np.array([length for _, length in requests], np.int64)

    def counted() -> list[object]:
        every: list[Any] = [Seeks, Following]
        found: list[object] = []
        for kind in every:
            counts, later = kind(), kind()
            counts.add(start[:cut], end[:cut])
            later.add(start[cut:], end[cut:])
            counts.merge(later)
            found.append(counts)
        return found

    found = counted()
    with in_python(sequential):
        assert found == counted()


INTERVALS = st.lists(
    st.tuples(
        st.integers(0, 40) | st.sampled_from([1 << 41, 1 << 61, -(1 << 62)]),
        st.sampled_from([-1, 0, 1, 1, 2, 8, 1 << 23, 1 << 60]),
    ),
    max_size=40,
)  # fmt: skip


@given(INTERVALS, INTERVALS, st.booleans(), st.booleans())
def test_unions(first: list[Any], second: list[Any], ordered: bool, near: bool) -> None:
    parts = [
        np.array([(start, start + length) for start, length in (sorted(rows) if ordered else rows)
                  if not near or 0 <= start < 99], np.int64).reshape(-1, 2).T
        for rows in (first, second)
    ]  # fmt: skip

    def united() -> list[object]:
        one, other = (intervals.union(*part) for part in parts)
        both = intervals._united([one, other])
        return [each.tolist() for each in (*one, *other, *both)]

    found = united()
    with in_python(intervals):
        assert found == united()


def test_columns_and_counts_that_do_not_agree_are_an_error() -> None:
    core = native.core
    assert core is not None
    times = np.array([5, 1 << 40])
    for call in (
        lambda: core.latencies(times, bytes(1), 4, bytearray(8 * 1008), bytearray(32)),
        lambda: core.latencies(times, bytes(2), 4, bytearray(8 * 100), bytearray(32)),
        lambda: core.latencies(times, b"\0\2", 4, bytearray(16 * 1008), bytearray(64)),
        lambda: core.latencies(times, b"", 60, bytearray(8 * 1008), bytearray(32)),
        lambda: core.depths(times, bytes(3), 0, bytearray(80), bytearray(56)),
        lambda: core.depths(times, bytes(2), 0, bytearray(0), bytearray(56)),
        lambda: core.depths(times, bytes(2), 0, bytearray(80), bytearray(55)),
        lambda: core.sizes(times, bytearray(81), bytearray(32)),
        lambda: core.sizes(times[:0], bytearray(80), bytearray(32)),
        lambda: core.sizes(np.array([-1]), bytearray(80), bytearray(32)),
        lambda: core.sizes(times, bytearray(80), bytearray(24)),
        lambda: core.binned(times, times, 0, 10, bytearray(80), bytearray(80)),
        lambda: core.binned(times, times[:1], 0, 40, bytearray(80), bytearray(80)),
        lambda: core.binned(times, times, 0, 63, bytearray(80), bytearray(80)),
        lambda: core.binned(times, times, 0, 40, bytearray(80), bytearray(72)),
        lambda: core.raster(times, times, times, 0, 10, 40, 10, bytearray(800)),
        lambda: core.raster(times, times, times, 0, 40, 10, 10, bytearray(800)),
        lambda: core.raster(times, -times, times, 0, 40, 40, 10, bytearray(800)),
        lambda: core.raster(times, times, times, 0, 40, 40, 0, bytearray(800)),
        lambda: core.raster(times, times, times, 0, 40, 40, 11, bytearray(800)),
        lambda: core.raster(times, times, times[:1], 0, 40, 40, 10, bytearray(800)),
        lambda: core.raster(times, times, times, 0, -1, 40, 10, bytearray(800)),
        lambda: core.following(times, times[:1], 0, bytearray(16)),
        lambda: core.following(times, times, 0, bytearray(8)),
        lambda: core.classes(bytes(8), times, bytes(65536), bytearray(1)),
        lambda: core.classes(bytes(8), times, bytes(65535), bytearray(2)),
        lambda: core.grouped(bytes(8), np.array([0, 2]), bytes(2), times, bytearray(8), bytearray(80)),
        lambda: core.grouped(bytes(8), np.array([0, -1]), bytes(2), times, bytearray(8), bytearray(80)),
        lambda: core.grouped(bytes(8), np.array([0, 1]), b"\0\5", times, bytearray(8), bytearray(80)),
        lambda: core.grouped(bytes(8), np.array([0, 1]), bytes(1), times, bytearray(8), bytearray(80)),
        lambda: core.grouped(bytes(8), np.array([0, 1]), bytes(2), times, bytearray(8), bytearray(72)),
        lambda: core.grouped(bytes(8), np.array([0, 1]), bytes(2), times, bytearray(4104), bytearray(41040)),
        lambda: core.binned(times, b"", 0, 10, bytearray(80), bytearray(80)),
        lambda: core.binned(times, b"", 0, 40, bytearray(80), bytearray(72)),
        lambda: core.binned(times, b"", 0, 64, bytearray(80), bytearray(80)),
        lambda: core.sums(times, times, bytearray(80), bytearray(80)),
        lambda: core.sums(np.array([-1]), times[:1], bytearray(80), bytearray(80)),
        lambda: core.sums(times, times[:1], bytearray(80), bytearray(80)),
        lambda: core.unite(times, times[:1], bytearray(32)),
        lambda: core.unite(times, times, bytearray(31)),
        lambda: core.unite(bytes(9), bytes(9), bytearray(18)),
        lambda: core.distances(times, times[:1], 0, 0, bytearray(16)),
        lambda: core.distances(times, times, 0, 0, bytearray(15)),
    ):
        with pytest.raises(ValueError, match="do not agree"):
            call()
