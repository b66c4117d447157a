"""Texts of blkparse 1.3 give the events of the trace, though completions of what was split are printed otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner

from f2tools.blktrace import completions
from f2tools.blktrace.records import OP_NUMBERS
from f2tools.cli import main
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests.blktrace.test_pairing import Played
from tests.trace import blkparse, traces
from tests.trace.traces import READ, WRITE, Ev, request

ALIKE = ("events", "reads", "writes", "discards", "flushes", "operations", "sizes", "discard_coverage",
         "small_discards", "merges", "pairing", "latency", "queue_depth", "seeks")  # fmt: skip


def lines(path: Path) -> list[str]:
    """What `trace events` prints of a trace, times from the first event, without processes."""
    done = CliRunner().invoke(main, ["trace", "events", str(path)], catch_exceptions=False)
    return [line.split(" [")[0] for line in blkparse.lines_of(done.output)]


def splits(sector: int, at: int, end: int, kind: int = WRITE, start: int = 0) -> list[Ev]:
    """A bio that is split, and both requests issued."""
    parts = [Ev(start + 3, "D", sector, at - sector, kind), Ev(start + 4, "D", at, end - at, kind)]
    split = Ev(start + 2, "X", sector, at - sector, kind, payload=at.to_bytes(8, "big"))
    return [Ev(start + 1, "Q", sector, end - sector, kind), split, *parts]


def both(directory: Path, events: list[Ev]) -> tuple[list[str], list[str], int]:
    """Lines of a trace, of its text as 1.3 prints it, and in how many of that text's lines both differ."""
    prefix, text = traces.write(directory, events), directory / "x.txt"
    old = [blkparse.with_short_splits(line) for line in traces.as_blkparse(events)]
    new = blkparse.as_1_3([line.rstrip("\n") for line in old])
    text.write_text("\n".join(new) + "\n")
    return lines(prefix), lines(text), sum(a.rstrip("\n") != b for a, b in zip(old, new, strict=True))


def test_a_text_of_blkparse_1_3_is_its_trace(tmp_path: Path) -> None:
    """Printed by Debian 13's; ten completions are changed in it."""
    prefix, text = traces.unpacked("fileserver", tmp_path), tmp_path / "x.txt"
    packed = traces.DIRECTORY / "fileserver" / "blkparse-1.3.txt.zst"
    text.write_bytes(zstandard.ZstdDecompressor().stream_reader(packed.read_bytes()).read())
    ours, theirs = lines(prefix), lines(text)
    assert len(ours) == 2_375
    assert theirs == ours
    assert sum(a.split(" [")[0] != b for a, b in zip(blkparse.lines_of(text.read_text()), ours, strict=True)) == 10
    of_trace, of_text = (analyze(AnalysisRequest(str(path))).report for path in (prefix, text))
    assert of_text["damage"]["problems"] == []
    assert {key: of_text[key] for key in ALIKE} == {key: of_trace[key] for key in ALIKE}


@pytest.mark.peer
@pytest.mark.parametrize("name", ["churn", "nilfs2-randwrite"])
def test_what_the_installed_blkparse_prints_is_its_trace(tmp_path: Path, name: str) -> None:
    prefix, text = traces.unpacked(name, tmp_path), tmp_path / "x.txt"
    text.write_text(blkparse.printed(prefix))
    assert lines(text) == lines(prefix)


@pytest.mark.parametrize("start", [1 << 33, (1 << 32) - 20, (1 << 53) + 1000])
def test_a_split_beyond_2_tib_is_read_where_it_was(tmp_path: Path, start: int) -> None:
    """blkparse prints the second of its places with 32 bits."""
    at, end = start + 40, start + 200
    ours, theirs, changed = both(
        tmp_path, [*splits(start, at, end), Ev(10, "C", start, 40, WRITE), Ev(11, "C", at, 160, WRITE)]
    )
    assert changed == 1
    assert theirs == ours


@pytest.mark.parametrize("places", [20, 200, 100_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_played_device_is_read_as_it_was(tmp_path: Path, seed: int, places: int) -> None:
    """Merges, splits, requeues and partial ends; never two requests of a kind at one place."""
    device = Played(seed, places)
    device.play(3_000)
    ours, theirs, changed = both(tmp_path, device.events)
    assert changed > 50
    assert theirs == ours


def test_a_place_once_split_is_remembered(tmp_path: Path) -> None:
    """A later request there, also of another kind and in parts, is printed from the same beginning."""
    events = [*splits(100, 140, 180), Ev(10, "C", 140, 40), Ev(11, "C", 100, 40)]
    events += request(100, 140, 32, READ) + request(200_000, 100, 80)
    events += [Ev(400_000, "D", 140, 40), Ev(400_001, "C", 140, 8), Ev(400_002, "C", 148, 32)]
    events += [*splits(140, 150, 160, start=500_000), Ev(500_010, "C", 150, 10), Ev(500_011, "C", 140, 10)]
    ours, theirs, changed = both(tmp_path, events)
    assert changed == 5
    assert theirs == ours


def test_a_second_end_without_bytes_has_none(tmp_path: Path) -> None:
    """A write with a flush behind it ends twice, here where the second part began."""
    events = splits(100, 140, 180)
    events += [Ev(10, "C", 100, 40), Ev(11, "C", 140, 0), Ev(12, "C", 140, 40), Ev(13, "C", 180, 0)]
    ours, theirs, changed = both(tmp_path, events)
    assert changed == 2
    assert theirs == ours


def test_what_is_more_than_4_gib_behind_the_beginning_is_found(tmp_path: Path) -> None:
    """blkparse adds up bytes in 32 bits."""
    far = 3 << 22
    events = splits(0, 6 << 20, far, WRITE) + splits(6 << 20, far - 8, far, WRITE, 100)
    events = [e for e in events if e.op == "X"]
    events += [Ev(200, "D", far - 8, 8), Ev(300, "C", far - 8, 8)]
    ours, theirs, changed = both(tmp_path, events)
    assert changed == 1
    assert theirs == ours


def test_a_completion_that_fits_a_request_as_printed_stays(tmp_path: Path) -> None:
    """A text of 1.2 is right as it is, also where requests overlap or are missing."""
    events = splits(100, 140, 180)[:3]
    events += [Ev(5, "D", 100, 80), Ev(6, "D", 140, 40), Ev(7, "C", 100, 80), Ev(8, "C", 140, 40), Ev(9, "C", 100, 40)]
    events += [Ev(20, "C", 100, 80), Ev(21, "C", 900, 8)]  # whose issue is not in the trace
    (tmp_path / "x.txt").write_text("".join(traces.as_blkparse(events)))
    assert lines(tmp_path / "x.txt") == lines(traces.write(tmp_path, events))


def test_very_many_splits_and_requests_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_PARTS", "MAX_UNDER_WAY", "MAX_ENDED"):
        monkeypatch.setattr(completions, name, 10)
    found = completions.Completions()
    for n in range(100):
        events = [("X", 100 * n, 50), ("D", 100 * n, 50), ("D", 100 * n + 50, 50)]
        for op, sector, sectors in events:
            assert found.follow(OP_NUMBERS[op], 1, WRITE, sector, sectors) == (sector, sectors)
    assert found.follow(OP_NUMBERS["C"], 1, WRITE, 9900, 100) == (9950, 50)
    assert found.follow(OP_NUMBERS["C"], 1, WRITE, 0, 100) == (0, 100)
