"""Damage is found, counted exactly and located; nothing makes a traceback."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from f2tools.blktrace import trace, windows
from f2tools.blktrace.clocks import ClockCheck
from f2tools.blktrace.damage import Damage
from f2tools.blktrace.scan import MAX_RECORD
from f2tools.cli import main
from f2tools.errors import Corrupt, F2fsError
from f2tools.trace.analyze import AnalysisRequest, analyze, must_be_whole
from f2tools.trace.report.html import page
from f2tools.trace.report.text import lines
from tests.native.test_core import in_python
from tests.native.test_trace import TWINS
from tests.trace import traces
from tests.trace.traces import Ev, request

SIZE = 48


def plain(count: int = 500) -> list[Ev]:
    return [event for n in range(count) for event in request(1_000 + n * 200_000, 4096 + n * 64)]


def sorted_records(events: list[Ev]) -> list[bytes]:
    return traces.records(sorted(events, key=lambda event: event.time))


def report_of(directory: Path, data: bytes) -> dict:
    path = directory / "x.blktrace.0"
    path.write_bytes(data)
    return analyze(AnalysisRequest(str(path))).report


def counts(report: dict) -> dict[str, int]:
    damage = report["damage"]
    kinds = ("lost", "truncated", "corrupt", "disordered", "duplicate", "unreadable")
    return {kind: damage[kind] for kind in kinds if damage[kind]}


def test_a_whole_trace_has_nothing_wrong(tmp_path: Path) -> None:
    assert counts(report_of(tmp_path, b"".join(sorted_records(plain())))) == {}


def test_a_cpu_without_a_file_is_told_and_one_with_an_empty_file_is_not(tmp_path: Path) -> None:
    events = [event for cpu in range(4) for event in request(cpu * 200_000, cpu * 64, cpu=cpu)]
    prefix = traces.write(tmp_path, events)
    Path(f"{prefix}.blktrace.1").write_bytes(b"")
    assert analyze(AnalysisRequest(str(prefix))).trace.damage.clean
    Path(f"{prefix}.blktrace.0").unlink()
    Path(f"{prefix}.blktrace.2").unlink()
    for given in (prefix, tmp_path):
        done = analyze(AnalysisRequest(str(given)))
        assert done.report["damage"]["missing"] == 2
        assert [one["stream"] for one in done.report["damage"]["problems"]] == ["t.blktrace.0"]
        with pytest.raises(Corrupt, match="2 CPUs without a file; first: no file of CPU 0, nor of 1 other"):
            must_be_whole(done.trace)
    assert analyze(AnalysisRequest(f"{prefix}.blktrace.3")).trace.damage.clean


@pytest.mark.parametrize("seed", range(5))
def test_deleted_events_are_counted_exactly(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    records = sorted_records(plain())
    gone: set[int] = set()
    for _ in range(20):
        start = choice.randrange(len(records) - 40)
        gone |= set(range(start, start + choice.randrange(1, 30)))
    gone.discard(len(records) - 1)
    report = report_of(tmp_path, b"".join(r for n, r in enumerate(records) if n not in gone))
    assert counts(report) == {"lost": len(gone)}
    assert report["lost_events"] == len(gone)
    assert report["damage"]["lost_by_cpu"] == {"0": len(gone)}


def test_a_request_across_a_gap_is_in_no_latency(tmp_path: Path) -> None:
    """As long as nothing says otherwise, a completion behind a gap may be that of a later request."""
    records = sorted_records(plain(100))
    report = report_of(tmp_path, b"".join(records[:202] + records[206:]))  # issue ... completion of a few
    latency = report["latency"]["d2c"]["write"]
    assert latency["max"] == latency["min"] == 100_000
    assert counts(report) == {"lost": 4}
    first = report["damage"]["problems"][0]
    assert (first["offset"], first["stream"]) == (202 * SIZE, "x.blktrace.0")


def at_one_place(*events: tuple[str, int, int]) -> list[bytes]:
    """Events of an operation, a time and sectors at sector 64; those of no sectors are lost."""
    found = [Ev(time, op, 64, sectors, sequence=n + 1) for n, (op, time, sectors) in enumerate(events) if sectors]
    return traces.records([*found, Ev(10_000, "Q", 1 << 20, sequence=len(events) + 1)])


@pytest.mark.parametrize(
    ("events", "latencies"),
    [
        # one lost event is no other request that ended there
        ([("D", 1_000, 8), ("?", 0, 0), ("C", 3_000, 8)], [2_000]),
        ([("D", 1_000, 8), ("?", 0, 0), ("?", 0, 0), ("C", 3_000, 8)], []),
        # the first completion may be that of either, and is lost
        ([("D", 1_000, 8), ("D", 1_500, 8), ("?", 0, 0), ("C", 3_000, 8)], []),
        # the end of the first one is lost, and the others would be parts of it
        ([("D", 1_000, 16), ("?", 0, 0), ("D", 2_000, 8), ("C", 3_000, 8), ("D", 4_000, 8), ("C", 5_000, 8)], [1_000]),
        # nothing says that the other part is not that of another one
        ([("D", 1_000, 16), ("C", 2_000, 8), ("?", 0, 0), ("C", 3_000, 16)], []),
    ],
)
@pytest.mark.parametrize("window", [1, 1 << 16])
def test_only_a_completion_that_can_be_no_others_ends_a_request_across_a_gap(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    events: list[tuple[str, int, int]],
    latencies: list[int],
    window: int,
) -> None:
    monkeypatch.setattr(windows, "WINDOW", window)
    found = report_of(tmp_path, b"".join(at_one_place(*events)))["latency"]["d2c"].get("write", {"count": 0})
    assert found["count"] == len(latencies)
    assert not latencies or (found["min"], found["max"]) == (min(latencies), max(latencies))


def test_latencies_across_single_losses_are_those_that_the_requests_had(tmp_path: Path) -> None:
    """Of 8 CPUs that lose an event now and then; without the long requests the mean would be far too low."""
    choice = random.Random(3)
    took = [choice.randrange(20_000, 3_000_000) for _ in range(2_000)]
    events = [
        replace(event, cpu=choice.randrange(8))
        for n, each in enumerate(took)
        for event in request(1_000 + n * 50_000, n * 64, took=each)
    ]
    prefix = traces.write(tmp_path, events)
    for cpu in range(8):
        path = Path(f"{prefix}.blktrace.{cpu}")
        data = path.read_bytes()
        gone = {SIZE * choice.randrange(1, len(data) // SIZE - 1) for _ in range(2)}
        path.write_bytes(b"".join(data[at : at + SIZE] for at in range(0, len(data), SIZE) if at not in gone))
    report = analyze(AnalysisRequest(str(prefix))).report
    found, left_out = report["latency"]["d2c"]["write"], report["pairing"]["spanning_gap"]
    assert found["count"] + left_out > 1_980
    assert found["count"] > 1_850
    assert abs(found["mean"] / (sum(took) / len(took)) - 1) < 0.03
    said = f"across losses: {left_out} requests are in no latency; long ones are missing more often"
    assert said in "\n".join(lines(report))
    assert said in page(analyze(AnalysisRequest(str(prefix))))
    assert "across losses" not in "\n".join(lines(report_of(tmp_path, b"".join(sorted_records(plain())))))


def test_where_ftrace_does_not_say_how_many_events_it_lost_they_may_be_many(tmp_path: Path) -> None:
    lines = traces.as_ftrace(plain(5)).splitlines(keepends=True)
    at = next(row for row, line in enumerate(lines[6:], 6) if "block_rq_complete" in line)
    for said, count in (("1 ", 5), ("", 4)):
        (tmp_path / "x.txt").write_text("".join([*lines[:at], f"CPU:0 [LOST {said}EVENTS]\n", *lines[at:]]))
        report = analyze(AnalysisRequest(str(tmp_path / "x.txt"))).report
        assert report["latency"]["d2c"]["write"]["count"] == count


@pytest.mark.parametrize("cut", [1, 20, 47])
def test_a_cut_tail_is_located(tmp_path: Path, cut: int) -> None:
    data = b"".join(sorted_records(plain(20)))
    report = report_of(tmp_path, data[:-cut])
    assert counts(report) == {"truncated": 1}
    assert report["damage"]["problems"][0]["offset"] == len(data) - SIZE
    assert report["events"] == 79


@pytest.mark.parametrize("seed", range(4))
def test_flipped_magics_are_counted_exactly(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    records = sorted_records(plain(300))
    chosen = choice.sample(range(2, len(records) - 2, 3), 25)
    data = bytearray(b"".join(records))
    for number in chosen:
        data[number * SIZE + choice.randrange(4)] ^= 1 << choice.randrange(8)
    report = report_of(tmp_path, bytes(data))
    assert counts(report) == {"corrupt": 25, "lost": 25}
    assert report["damage"]["skipped_bytes"] == 25 * SIZE
    corrupt = [p["offset"] for p in report["damage"]["problems"] if p["kind"] == "corrupt"]
    assert corrupt == [number * SIZE for number in sorted(chosen)]


def test_a_length_that_leads_nowhere_costs_no_other_record(tmp_path: Path) -> None:
    records = sorted_records(plain(50))
    data = bytearray(b"".join(records))
    data[60 * SIZE + 46 : 60 * SIZE + 48] = (1000).to_bytes(2, "little")
    report = report_of(tmp_path, bytes(data))
    assert counts(report) == {"corrupt": 1}
    assert report["events"] == 200


def test_a_wrong_sequence_number_is_no_loss_of_a_billion(tmp_path: Path) -> None:
    records = sorted_records(plain(50))
    data = bytearray(b"".join(records))
    data[70 * SIZE + 7] ^= 0x40
    assert counts(report_of(tmp_path, bytes(data))) == {"corrupt": 1}


def test_wrong_order_is_counted_and_put_right(tmp_path: Path) -> None:
    records = sorted_records(plain(100))
    for at in (40, 122, 300):
        records[at], records[at + 1] = records[at + 1], records[at]
    report = report_of(tmp_path, b"".join(records))
    assert counts(report) == {"disordered": 3}
    assert report["latency"]["d2c"]["write"]["count"] == 100
    assert report["pairing"]["completions_without_issue"] == 0


def test_a_record_that_comes_twice_is_said(tmp_path: Path) -> None:
    records = sorted_records(plain(30))
    records.insert(31, records[30])
    assert counts(report_of(tmp_path, b"".join(records))) == {"duplicate": 1}


def fallen_back(by: int, cpu: int = 0) -> list[Ev]:
    """A trace of two CPUs, the clock of one of which goes back in the middle."""
    events = [e for n in range(200) for e in request(10**11 + n * 200_000, n * 64, cpu=n % 2)]
    middle = events[400].time
    return [replace(e, time=e.time - by) if e.cpu == cpu and e.time >= middle else e for e in events]


@pytest.mark.parametrize("by", [400_000, 10**6, 10**8, 999 * 10**6, 11 * 10**8, 2 * 10**9])
@pytest.mark.parametrize("cpu", [0, 1])
@pytest.mark.parametrize("form", [(7, "<"), (7, ">"), (8, "<")])
def test_a_clock_that_goes_back_is_told(tmp_path: Path, by: int, cpu: int, form: tuple[int, str]) -> None:
    events = fallen_back(by, cpu)
    for number in (0, 1):
        data = traces.records([e for e in events if e.cpu == number], *form)
        (tmp_path / f"x.blktrace.{number}").write_bytes(b"".join(data))
    for several in (False, True):
        with in_python(*TWINS) if several else nullcontext():
            done = analyze(AnalysisRequest(str(tmp_path / "x"), issue_only=several))
        assert counts(done.report) == {"disordered": 1}
        problem = done.report["damage"]["problems"][0]
        assert (problem["stream"], problem["offset"]) == (f"x.blktrace.{cpu}", 200 * len(data[0]))
        assert f"CPU {cpu}: the clock goes back by" in problem["text"]
        with pytest.raises(Corrupt, match="1 events before their predecessor"):
            must_be_whole(done.trace)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("window", [1, 1 << 22])
def test_each_time_a_clock_goes_back_is_counted_once_wherever_windows_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, jobs: int
) -> None:
    """Back by 1 ms at every hundredth event, and by 2 s where a window of the least size ends."""
    monkeypatch.setattr(trace, "WINDOW", window)
    monkeypatch.setattr(trace, "MIN_WINDOW", window)
    least = 2 * MAX_RECORD // SIZE
    records, time, falls = [], 10**12, 0
    for n in range(3 * least):
        back = 2 * 10**9 if n in (least, least + 1, 2 * least - 1) else 10**6 if n % 100 == 99 else -1_000
        falls += back > 0
        time -= back
        records.append(Ev(time, "QGDC"[n % 4], n // 4 * 64))
    path = tmp_path / "x.blktrace.0"
    path.write_bytes(b"".join(traces.records(records)))
    for several in (False, True):
        with in_python(*TWINS) if several else nullcontext():
            report = analyze(AnalysisRequest(str(path), jobs=jobs)).report
        assert counts(report) == {"disordered": falls}


@pytest.mark.parametrize("at", [0, 1, 200, 398, 399])
@pytest.mark.parametrize("to", [0, 1 << 60])
@pytest.mark.parametrize("op", "DG")
def test_a_time_that_is_wrong_alone_is_corrupt_and_no_clock_that_goes_back(
    tmp_path: Path, at: int, to: int, op: str
) -> None:
    events = [e for n in range(100) for e in request(10**11 + n * 200_000, n * 64)]
    at = next(n for n in (at, at - 1, at + 1, at - 2, at + 2, at + 3) if 0 <= n < 400 and events[n].op == op)
    events[at] = replace(events[at], time=to)
    report = report_of(tmp_path, b"".join(traces.records(events)))
    alone = counts(report)
    if not (at == 0 and to == 0) and not (at >= 398 and to):  # the first one may be early, and the last one late
        assert alone == {"corrupt": 1}
        assert report["damage"]["problems"][0]["offset"] == at * SIZE


def test_comparing_strictly_takes_any_damage_as_an_error(tmp_path: Path) -> None:
    prefix = traces.write(tmp_path, [])
    for cpu in (0, 1):
        data = b"".join(traces.records([e for e in fallen_back(10**6) if e.cpu == cpu]))
        (tmp_path / f"t.blktrace.{cpu}").write_bytes(data)
    words = ["trace", "compare", str(prefix), str(prefix), "--strict"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    assert "damaged; see `f2tools trace analyze`" in done.stderr


def test_a_time_that_leaps_does_not_stop_the_others(tmp_path: Path) -> None:
    one = [event for n in range(100) for event in request(1_000 + n * 200_000, n * 64)]
    two = [event for n in range(100) for event in request(51_000 + n * 200_000, 100_000 + n * 64, cpu=1)]
    prefix = traces.write(tmp_path, one + two)
    path = Path(f"{prefix}.blktrace.1")
    data = bytearray(path.read_bytes())
    data[50 * SIZE + 8 + 6] ^= 0x10
    path.write_bytes(data)
    report = analyze(AnalysisRequest(str(prefix))).report
    assert counts(report) == {"corrupt": 1}
    assert report["latency"]["d2c"]["write"]["count"] == 200
    assert report["duration_ns"] < 10**9


def test_strict_fails_and_says_where(tmp_path: Path) -> None:
    records = sorted_records(plain(20))
    path = tmp_path / "x.blktrace.0"
    path.write_bytes(b"".join(records[:30] + records[33:]))
    done = analyze(AnalysisRequest(str(path)))
    with pytest.raises(Corrupt, match="3 events lost"):
        must_be_whole(done.trace)


def test_a_compressed_file_that_is_cut_is_said(tmp_path: Path) -> None:
    import gzip

    packed = gzip.compress(b"".join(sorted_records(plain(3000))))
    (tmp_path / "x.blktrace.0.gz").write_bytes(packed[: len(packed) * 3 // 4])
    report = analyze(AnalysisRequest(str(tmp_path / "x"))).report
    assert report["damage"]["truncated"] >= 1
    assert 1000 < report["events"] < 12_000


@pytest.mark.parametrize("seed", range(60))
def test_noise_makes_no_traceback(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    events = plain(60) + [traces.note(5_000_000 + n, 2, bytes(choice.randrange(70))) for n in range(20)]
    data = bytearray(
        b"".join(traces.records(sorted(events, key=lambda e: e.time), choice.choice((7, 8)), choice.choice("<>")))
    )
    for _ in range(choice.randrange(1, 60)):
        kind, at = choice.randrange(4), choice.randrange(len(data))
        if kind == 0:
            data[at] ^= 1 << choice.randrange(8)
        elif kind == 1:
            del data[at : at + choice.randrange(200)]
        elif kind == 2:
            data[at:at] = choice.randbytes(choice.randrange(200))
        else:
            data[at : at + 8] = choice.randbytes(8)
    try:
        report = report_of(tmp_path, bytes(data))
    except F2fsError:
        return
    assert report["events"] <= 400


@pytest.mark.parametrize("seed", range(30))
def test_noise_in_text_makes_no_traceback(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    line = "  8,16   0  {}     0.00{:07d}   100  {}  WS {} + 8 [fio]\n"
    lines = [line.format(n + 1, n, "QGDC"[n % 4], n // 4 * 64) for n in range(400)]
    data = bytearray("".join(lines).encode())
    for _ in range(choice.randrange(1, 80)):
        at = choice.randrange(len(data))
        data[at : at + choice.randrange(9)] = choice.randbytes(choice.randrange(9))
    path = tmp_path / "x.blkparse.txt"
    path.write_bytes(data.replace(b"\0", b"0"))
    report = analyze(AnalysisRequest(str(path))).report
    assert report["events"] <= 400


def forged(name: str, count: int = 5_000) -> list[Ev]:
    """Traces that no kernel writes."""
    choice = random.Random(1)
    kinds = {
        "one issue again and again": lambda n: Ev(n + 1, "D", 0),
        "one bio again and again": lambda n: Ev(n + 1, "Q", 0),
        "stairs": lambda n: Ev(n + 1, "QD"[n % 2], n * 4, 80),
        "requeues": lambda n: Ev(n + 1, "DR"[n % 2], n // 2 % 50, 8),
        "nested": lambda n: Ev(n + 1, "QDC"[n % 3], n % 997, 100_000),
        "giants": lambda n: Ev(n + 1, "QDC"[n % 3], n * 5, (1 << 23) - 1),
        "dice": lambda n: Ev(
            n + 1, choice.choice("QDCRXMF"), choice.randrange(3000), choice.randrange(900), choice.choice((1, 2, 8194))
        ),
    }  # fmt: skip
    return [kinds[name](n) for n in range(count)]


@pytest.mark.parametrize(
    "name", ["one issue again and again", "one bio again and again", "stairs", "requeues", "nested", "giants", "dice"]
)
def test_forged_traces_are_read_to_their_end(tmp_path: Path, name: str) -> None:
    events = forged(name)
    report = analyze(AnalysisRequest(str(traces.write(tmp_path, events)))).report
    assert report["events"] == len(events)
    assert counts(report) == {}


SAID_BESIDES = """Input file x.blktrace.0 added
CPU0 (x):
 Reads Queued:           6,       24KiB\t Writes Queued:         822,    71296KiB
 Read depth:             2        \t Write depth:            26
 IO unplugs:             0        \t Timer unplugs:          16

f2fs_ckpt-254:0 (150)
 PC Reads Queued:        0,        0KiB\t PC Writes Queued:        0,        0KiB
 Dispatch wait:          0        \t Dispatch wait:           0
python3 (162, ...)
Throughput (R/W): 14KiB/s / 13710KiB/s
Events (x): 3712 entries
Skips: 0 forward (0 -   0.0%)
"""


def test_lines_that_blkparse_does_not_print_are_counted_with_their_numbers(tmp_path: Path) -> None:
    text = tmp_path / "x.txt"
    events = "".join(traces.as_blkparse(plain(50)))
    text.write_text(events + SAID_BESIDES)
    assert counts(analyze(AnalysisRequest(str(text))).report) == {}
    text.write_bytes(b"garbage line\n%%%\n" + events.encode() + b"hello\n" + SAID_BESIDES.encode() + b"\xff\xfe\x01")
    report = analyze(AnalysisRequest(str(text))).report
    assert counts(report) == {"unreadable": 4}
    last = 2 + 200 + 1 + SAID_BESIDES.count("\n") + 1
    assert [one["offset"] for one in report["damage"]["problems"]] == [1, 2, 203, last]


def test_of_very_many_strange_lines_all_are_counted(tmp_path: Path) -> None:
    text = tmp_path / "x.txt"
    text.write_text("strange\n" * 1000 + "".join(traces.as_blkparse(plain(50))))
    assert counts(analyze(AnalysisRequest(str(text))).report) == {"unreadable": 1000}


def test_what_ftrace_says_it_lost_is_lost(tmp_path: Path) -> None:
    """What was under way there is in no latency."""
    lines = traces.as_ftrace(plain(5)).splitlines(keepends=True)
    at = next(row for row, line in enumerate(lines[6:], 6) if "block_rq_complete" in line)
    cpu = int(lines[at].partition("[")[2][:3])
    whole, lossy = tmp_path / "whole.txt", tmp_path / "lossy.txt"
    whole.write_text("".join(lines))
    lossy.write_text("".join([*lines[:at], f"CPU:{cpu} [LOST 42 EVENTS]\n", *lines[at:]]))
    sound, found = (analyze(AnalysisRequest(str(path))).report for path in (whole, lossy))
    assert counts(found) == {"lost": 42}
    assert found["damage"]["lost_by_cpu"] == {str(cpu): 42}
    assert found["damage"]["problems"][0]["offset"] == at + 1
    assert found["latency"]["d2c"]["write"]["count"] == sound["latency"]["d2c"]["write"]["count"] - 1


def test_lines_of_other_events_in_a_text_of_ftrace_are_none_of_ours(tmp_path: Path) -> None:
    text = tmp_path / "x.txt"
    text.write_text("sh-1 [000] d..2 1.000000: sched_switch: x\n" + traces.as_ftrace(plain(5)) + " => do_idle\n")
    assert counts(analyze(AnalysisRequest(str(text))).report) == {}


def test_the_end_of_a_flush_without_a_sector_is_no_damage(tmp_path: Path) -> None:
    """Linux 6.1 has the sector of such a request there as it is, all ones."""
    lines = (
        "dd-588 [000] ..... 49.343479: block_bio_queue: 254,0 FWS 0 + 0 [dd]",
        "dd-588 [000] ..... 49.343742: block_rq_issue: 254,0 FF 0 () 0 + 0 [dd]",
        f"dd-588 [000] d.h1. 49.343820: block_rq_complete: 254,0 FF () {(1 << 64) - 1} + 0 [0]",
    )
    text = tmp_path / "x.txt"
    text.write_text("\n".join(lines) + "\n")
    report = analyze(AnalysisRequest(str(text))).report
    assert counts(report) == {}
    assert report["latency"]["d2c"]["flush"]["mean"] == 78_000


def test_a_line_that_is_no_event_is_shown_with_its_end(tmp_path: Path) -> None:
    text = tmp_path / "x.txt"
    wrong = f"a-long-name-588 [000] ..... {' ' * 100} 49.343479: block_rq_complete: 254,0 WS () {1 << 63} + 8 [0]"
    text.write_text(traces.as_ftrace(plain(5)) + wrong + "\n")
    report = analyze(AnalysisRequest(str(text))).report
    assert counts(report) == {"unreadable": 1}
    assert f"{1 << 63} + 8 [0]" in report["damage"]["problems"][0]["text"]
    assert len(report["damage"]["problems"][0]["text"]) < 160


def test_an_impossible_time_is_none_that_a_clock_goes_on_from() -> None:
    clock = ClockCheck("x", Damage())
    assert not clock.goes_straight_on((8, 0), -1), "2^64 - 1, as an event of the file has it"
    assert clock.goes_straight_on((8, 0), 0)
