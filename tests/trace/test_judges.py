"""blkparse and btt as judges: the same events, counts and times, to the last digit that they print."""

from __future__ import annotations

import random
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from f2tools.cli import main
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests import judges
from tests.trace import blkparse, traces
from tests.trace.traces import READ, SYNC, WRITE, Ev, note, request

REAL = ("f2fs-fileserver", "nilfs2-randwrite", "churn", "varmail")


def btt(prefix: Path) -> str:
    """What btt prints of the merged trace."""
    directory = prefix.parent
    merged = [judges.need_tool("blkparse"), "-q", "-O", "-i", prefix.name, "-d", "merged.bin"]
    subprocess.run(merged, cwd=directory, capture_output=True, check=True)
    command = [judges.need_tool("btt"), "-i", "merged.bin"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout


def row(text: str, name: str) -> tuple[str, str, str, int]:
    """(min, avg, max, n) as printed."""
    found = re.search(rf"^(?:{name})\s+(\S+)\s+(\S+)\s+(\S+)\s+(\d+)\s*$", text, re.MULTILINE)
    assert found is not None, f"btt has no {name}"
    return found[1], found[2], found[3], int(found[4])


def seconds(values: dict[str, Any]) -> tuple[str, str, str, int]:
    """Ours in btt's form."""
    return f"{values['min'] / 1e9:.9f}", f"{values['mean'] / 1e9:.9f}", f"{values['max'] / 1e9:.9f}", values["count"]


def seeks(text: str, which: str) -> tuple[int, str]:
    """(count, mean) of btt's seeks."""
    part = text.split(f"Device {which} Seek Information")[1]
    found = re.search(r"\(\s*\d+,\s*\d+\) \|\s+(\d+)\s+([\d.]+)", part)
    assert found is not None
    return int(found[1]), found[2]


def apart(count: int, seed: int = 1) -> list[Ev]:
    """A trace in which no two requests are under way at one place."""
    choice = random.Random(seed)
    found = [note(0, 1, (1_700_000_000).to_bytes(4, "little") + bytes(4)), note(1, 0, b"fio".ljust(16, b"\0"), 100)]
    for n in range(count):
        start, kind = 1_000 + n * 20_000, choice.choice((READ, WRITE, WRITE | SYNC))
        sector = n * 2048 + choice.randrange(1000)
        took = choice.randrange(10_000, 900_000)
        found += request(start, sector, 8 * choice.randrange(1, 60), kind, n % 2, took)
    return found


@pytest.mark.peer
@pytest.mark.parametrize("name", REAL)
def test_events_are_printed_as_blkparse_prints_them(tmp_path: Path, name: str) -> None:
    prefix = traces.unpacked(name, tmp_path)
    done = CliRunner().invoke(main, ["trace", "events", str(prefix)], catch_exceptions=False)
    assert done.output.splitlines() == blkparse.recorded(prefix)


@pytest.mark.peer
@pytest.mark.parametrize("name", REAL)
def test_counts_by_operation_are_those_of_blkparse(tmp_path: Path, name: str) -> None:
    prefix = traces.unpacked(name, tmp_path)
    report = analyze(AnalysisRequest(str(prefix))).report
    theirs = Counter(line.split()[5] for line in blkparse.recorded(prefix))
    assert report["events_by_operation"] == dict(theirs)
    assert report["events"] == sum(theirs.values())


@pytest.mark.peer
@pytest.mark.parametrize("name", REAL)
def test_what_blkparse_prints_gives_the_same_report(tmp_path: Path, name: str) -> None:
    prefix = traces.unpacked(name, tmp_path)
    text = tmp_path / "blkparse.txt"
    text.write_text(blkparse.printed(prefix))
    ours, theirs = (analyze(AnalysisRequest(str(path))).report for path in (prefix, text))
    assert theirs["damage"]["problems"] == []
    for key in (
        "reads",
        "writes",
        "discards",
        "flushes",
        "operations",
        "sizes",
        "discard_coverage",
        "small_discards",
        "merges",
    ):
        assert theirs[key] == ours[key], key
    assert theirs["latency"]["d2c"] == ours["latency"]["d2c"]


@pytest.mark.peer
def test_without_overlaps_btt_says_the_same_to_the_last_digit(tmp_path: Path) -> None:
    prefix = traces.write(tmp_path, apart(400))
    report, text = analyze(AnalysisRequest(str(prefix))).report, btt(prefix)
    whole = {}
    for kind in ("d2c", "q2c"):
        parts = report["latency"][kind].values()
        count = sum(part["count"] for part in parts)
        whole[kind] = {
            "min": min(part["min"] for part in parts), "max": max(part["max"] for part in parts), "count": count,
            "mean": sum(part["mean"] * part["count"] for part in parts) / count,
        }  # fmt: skip
    assert seconds(whole["q2c"]) == row(text, r"Q2Cdm|Q2C")
    assert seconds(whole["d2c"]) == row(text, "D2C")
    for which in ("Q2Q", "D2D"):
        mine = report["seeks"][which.lower()]
        assert (mine["count"], f"{mine['mean']:.1f}") == seeks(text, which)


@pytest.mark.peer
@pytest.mark.parametrize("name", REAL)
def test_on_real_traces_each_difference_to_btt_is_known(tmp_path: Path, name: str) -> None:
    """Seeks are equal.  btt drops bios that it loses sight of; ours are all there, as many as queued and as split."""
    prefix = traces.unpacked(name, tmp_path)
    report, text = analyze(AnalysisRequest(str(prefix))).report, btt(prefix)
    for which in ("Q2Q", "D2D"):
        mine = report["seeks"][which.lower()]
        assert (mine["count"], f"{mine['mean']:.1f}") == seeks(text, which)
    counts = report["pairing"]
    assert counts["completions_without_issue"] == counts["never_completed"] == counts["never_issued"] == 0
    mine = sum(part["count"] for part in report["latency"]["q2c"].values())
    queued = sum(report["sizes"][kind]["queued"]["count"] for kind in ("read", "write", "discard"))
    assert mine == queued + report["merges"]["splits"]
    theirs = row(text, "Q2Cdm|Q2C")
    assert theirs[3] <= mine
    if theirs[3] == mine:
        assert theirs[2] == f"{max(part['max'] for part in report['latency']['q2c'].values()) / 1e9:.9f}"


def test_the_cgroup_that_blktrace_1_3_prints_changes_nothing(tmp_path: Path) -> None:
    """It stands between process and action, of events and of messages."""
    events = "254,0 1 1 0.000000100 149 {}Q R 8 + 8 [m]\n254,0 1 2 0.000000200 149 {}D R 8 + 8 [m]\n"
    text = events + "254,0 0 0 0.000000300 149 {}m N phase run\n254,0 1 3 0.000000400 0 {}C R 8 + 8 [0]\n"
    reports = []
    for cgroup in ("", "1,0  ", "1f2a,1b  "):
        (tmp_path / "x.txt").write_text(text.replace("{}", cgroup))
        reports.append(analyze(AnalysisRequest(str(tmp_path / "x.txt"))).report)
    assert reports[0]["events"] == 3
    assert reports[0] == reports[1] == reports[2]
