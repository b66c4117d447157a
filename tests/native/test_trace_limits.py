"""Forged traces around the last sector that a device can have: no traceback, and both paths say the same."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from f2tools.blktrace import ranges, windows
from f2tools.blktrace.records import MAX_SECTOR, MAX_TIME
from f2tools.trace import analyze as analysis
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests.native.test_core import in_python
from tests.native.test_trace import TWINS
from tests.trace import traces
from tests.trace.traces import DEVICE, DISCARD, FLUSH, READ, SYNC, WRITE, Ev, request

OTHER_DEVICE = DEVICE + 16
FUA = 1 << 15
FULL = 1 << 64  # of a field
MOST_SECTORS = (1 << 23) - 1  # of an event


def forged(seed: int, count: int = 240) -> list[Ev]:
    """Requests in few places that meet the limit, split, merged, given back and completed in parts; times that leap."""
    choice = random.Random(seed)
    origin = choice.choice([MAX_SECTOR - 64, MAX_SECTOR - 64, MAX_SECTOR - (1 << 23), 0])
    found: list[Ev] = []
    time = 1_000
    asked: list[Ev] = []
    for _ in range(count):
        time += choice.choice([0, 1, 500, 500, 20_000])
        if choice.random() < 0.02:
            time = max(time + choice.choice([-30_000, -1_000, 3 * 10**9, 1 << 61]), 0) % MAX_TIME
        kind = choice.choice([WRITE, WRITE, WRITE, READ, DISCARD | WRITE, FLUSH | WRITE, WRITE | FUA, WRITE | SYNC])
        one = Ev(
            time, choice.choice("QQQQDDGMFA"), origin + 8 * choice.randrange(10),
            choice.choice([0, 1, 8, 8, 8, 16, 24, 1024, MOST_SECTORS]), kind, choice.randrange(3),
            device=choice.choice([DEVICE] * 20 + [OTHER_DEVICE]), raw=choice.choice([{}] * 30 + [{"pdu_len": 3}]),
        )  # fmt: skip
        if asked and choice.random() < 0.7:
            before = choice.choice(asked[-6:])
            part = choice.randrange(before.sectors + 1)
            one = choice.choice([
                replace(before, time=time, op="D"), replace(before, time=time, op="C"),
                replace(before, time=time, op="C"), replace(before, time=time, op="R"),
                replace(before, time=time, op="C", sectors=part),
                replace(before, time=time, op="C", sector=(before.sector + part) % FULL, sectors=before.sectors - part),
                replace(before, time=time, op="D", sectors=min(before.sectors + 8, MOST_SECTORS)),
                replace(before, time=time, op="X", payload=((before.sector + part) % FULL).to_bytes(8, "big")),
                replace(before, time=time, sector=(before.sector + before.sectors) % FULL),
            ])  # fmt: skip
        if choice.random() < 0.01:
            one = replace(one, sector=choice.choice([MAX_SECTOR, MAX_SECTOR - 1, FULL - 1, FULL // 2]))
        if choice.random() < 0.005:
            one = replace(one, time=choice.choice([MAX_TIME, MAX_TIME + 1, FULL // 2, FULL - 1]))
        asked.append(one)
        found.append(one)
    return found


def written(directory: Path, seed: int) -> Path:
    """A file of them, of which some records are missing, twice there or in another order."""
    choice = random.Random(-seed)
    form = choice.choice([(7, "<"), (7, "<"), (7, ">"), (8, "<"), (8, ">")])
    several = choice.random() < 0.3
    events = [replace(event, cpu=choice.randrange(2) if several else 0) for event in forged(seed)]
    records = traces.records(events, *form)
    for _ in range(choice.choice([0, 0, 4])):
        at = choice.randrange(1, len(records) - 8)
        records[at : at + 6] = choice.choice([[], records[at : at + 6][::-1], records[at : at + 6] * 2])
    path = directory / "x.blktrace.0"
    path.write_bytes(b"".join(records))
    return path


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("window", [3, 1 << 16])
def test_no_place_and_no_time_ends_an_analysis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, window: int
) -> None:
    path = written(tmp_path, seed)
    monkeypatch.setattr(windows, "WINDOW", window)

    def reports() -> list[dict]:
        return [analyze(AnalysisRequest(str(path), issue_only=issue_only)).report for issue_only in (False, True)]

    found = reports()
    with in_python(*TWINS):
        assert reports() == found


@pytest.mark.parametrize("seed", [*range(12), 58])
def test_how_many_count_a_forged_trace_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Some of the pieces have no event that counts, some places at which it could be cut no time."""
    path = written(tmp_path, seed)
    monkeypatch.setattr(analysis, "cuts_of", lambda files: ranges.cuts_of(files, 700))
    for issue_only in (False, True):
        alone, shared = (
            analyze(AnalysisRequest(str(path), issue_only=issue_only, jobs=jobs)).report for jobs in (1, 2)
        )
        assert shared == alone


@pytest.mark.parametrize("form", [(7, "<"), (7, ">"), (8, "<"), (8, ">")])
def test_a_request_that_ends_behind_the_last_sector_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: tuple[int, str]
) -> None:
    """One that is completed up to there would be under way, in the next window, at a place that there is not."""
    monkeypatch.setattr(windows, "WINDOW", 3)
    last = MAX_SECTOR - 8
    ends = [*request(0, last), Ev(200_000, "D", last, 16), Ev(200_001, "C", last, 8), *request(300_000, 0)]
    path = traces.write(tmp_path, ends, *form)
    for several in (False, True):
        with in_python(*TWINS) if several else nullcontext():
            report = analyze(AnalysisRequest(str(path))).report
        assert report["damage"]["corrupt"] == 1
        text = report["damage"]["problems"][0]["text"]
        assert text == f"an event of 8192 bytes at sector {last} and 200000 ns"
        assert report["pairing"]["completions_without_issue"] == 1
        assert report["latency"]["d2c"]["write"]["count"] == 2


@pytest.mark.parametrize(("sectors", "read"), [(8, 1), (9, 0)])
def test_a_line_whose_event_ends_behind_the_last_sector_is_none(tmp_path: Path, sectors: int, read: int) -> None:
    lines = (f"  8,0    0    {n}    0.00000000{n}   1  Q   W {MAX_SECTOR - 8} + {sectors} [x]\n" for n in (1, 2))
    path = tmp_path / "x.blkparse.txt"
    path.write_text("".join(lines) + "  8,0    0    3    0.000000003   1  Q   W 0 + 8 [x]\n")
    report = analyze(AnalysisRequest(str(path))).report
    assert (report["events"], report["damage"]["unreadable"]) == (1 + 2 * read, 2 * (1 - read))
