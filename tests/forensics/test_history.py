"""History and timeline of files."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import stat
import subprocess
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import f2tools
from f2tools.forensics.history import History
from f2tools.forensics.index import open_index
from f2tools.forensics.times import iso, iso_times
from f2tools.forensics.undelete import Undelete
from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh
from tests.forensics.history_cases import CASES, image_of
from tests.forensics.past_of import ROOT, living
from tests.forensics.score import load
from tests.judges import need_tool

DELETION = " (deleted by this time)"
TICK_NS = 10_000_000  # the clock of inodes is coarser than that of the record


def test_times_in_bulk_are_written_as_single_ones_are() -> None:
    limit = np.iinfo(np.int64)
    times = [0, 1, -1, 999_999_999, -1_000_000_000, 1_709_294_407_123_456_789, limit.max, limit.min + 1, limit.min]
    assert iso_times(np.array(times, np.int64)) == [iso(time) for time in times]


def test_times_that_the_index_can_not_hold_are_not_told_as_others(tmp_path: Path, run_f2tools: Any) -> None:
    image = fresh(tmp_path)
    script = "touch -d 1500-01-01T00:00:00 /early", "touch -d 2300-01-01T00:00:00 /late"
    run_f2tools("edit", image, "-c", script[0], "-c", script[1])
    said = {"early": "before 1677-09-21T00:12:44Z", "late": "after 2262-04-11T23:47:16Z"}
    events = map(json.loads, run_f2tools("timeline", image, "--json").stdout.splitlines())
    assert {e["path"][1:]: e["time"] for e in events if e["event"] == "modified" and e["path"] != "/"} == said
    rows = run_f2tools("timeline", image, "--format", "l2tcsv").stdout
    assert [text in rows for text in said.values()] == [True, True]
    for name, text in said.items():
        assert text in run_f2tools("history", image, f"/{name}").stdout


def test_versions_are_those_that_were_synced() -> None:
    """Of every file with three versions and more, those fixed by sync or fsync are in its history, in order."""
    recorded: dict[tuple[int, int], list[Any]] = {}
    for version in load(CASES / "history-lfs" / "versions.jsonl.gz"):
        if version["type"] == "file" and version["how"] != "unsynced":
            recorded.setdefault((version["ino"], version["gen"]), []).append(version)
    with f2tools.open(image_of("history-lfs")) as volume, open_index(volume) as index:
        history = History(Undelete(volume, index))
        looked_at = 0
        for (ino, generation), versions in recorded.items():
            if len(versions) < 3:
                continue
            looked_at += 1
            found = [item.inode for item in history.of(f"ino:{ino}") if item.inode.generation == generation]
            states = [(inode.size, inode.mtime_ns) for inode in found]
            at = 0
            for version in versions:
                at = states.index((version["size"], version["mtime_ns"]), at)
        assert looked_at > 20


def test_history_says_what_changed(tmp_path: Path, run_f2tools: Any) -> None:
    with living(tmp_path, ipu="never") as (life, image):
        ino = life.file(b"letter", b"Dear Ann,\n")
        life.later()
        life.volume.write(ino, 10, b"how are you?\n")
        life.later()
        life.volume.setattr(ino, mode=0o600)
        life.later()
        life.volume.rename(ROOT, b"letter", ROOT, b"letter.txt")
        life.later()
    versions = json.loads(run_f2tools("history", image, "/letter", "--json").stdout)
    assert [version["version"] for version in versions] == ["1", "2", "3", "4"]
    assert versions[1]["changes"] == ["size 10 -> 23", "content written"]
    assert versions[2]["changes"] == ["mode 0644 -> 0600"]
    assert versions[3]["changes"] == ["was letter"]
    assert [version["state"] for version in versions] == ["older", "older", "older", "live"]
    assert run_f2tools("history", image, "letter", "--extract", "1").stdout == "Dear Ann,\n"
    diff = run_f2tools("history", image, str(ino), "--diff", "1", "2").stdout
    assert "size: 10 -> 23" in diff
    assert "+how are you?" in diff
    target = tmp_path / "old"
    run_f2tools("history", image, "letter", "--extract", "1", "-o", target)
    assert target.read_bytes() == b"Dear Ann,\n"
    assert run_f2tools("history", image, "letter", "--extract", "1", "-o", target).returncode == 1  # it is there
    assert run_f2tools("history", image, "letter", "--extract", "9").returncode == 2
    assert run_f2tools("history", image, "no-such-file").returncode == 1


def test_the_history_of_a_directory_says_what_came_and_went(tmp_path: Path, run_f2tools: Any) -> None:
    with living(tmp_path) as (life, image):
        directory = life.volume.mkdir(ROOT, b"folder", 0o755)
        life.later()
        life.file(b"first", b"1", directory)
        life.later()
        life.file(b"second", b"2", directory)
        life.volume.unlink(directory, b"first")
        life.later()
    said = run_f2tools("history", image, "folder").stdout
    assert said.index("+ first") < said.index("+ second")
    assert "- first" in said


def test_versions_of_undelete_are_numbered_as_in_history(run_f2tools: Any) -> None:
    image = image_of("history-a")
    lines = run_f2tools("undelete", image, "small08.txt", "--list", "--versions", "--json").stdout.splitlines()
    for item in map(json.loads, lines):
        if item["state"] == "older" and item["grade"] == "certain":
            done = run_f2tools("history", image, f"ino:{item['ino']}", "--extract", item["version"])
            assert hashlib.sha256(done.stdout.encode()).hexdigest() == item["sha256"]


@pytest.fixture(scope="module")
def timelines() -> dict[str, str]:
    """The timeline of history-d in each format."""
    from f2tools.forensics.timeline import FORMATS, write

    with f2tools.open(image_of("history-d")) as volume, open_index(volume) as index:
        run = Undelete(volume, index)
        return {form: "\n".join(write(run, form)) + "\n" for form in FORMATS}


def test_a_bodyfile_is_one_for_mactime(timelines: dict[str, str]) -> None:
    rows = [line.split("|") for line in timelines["bodyfile"].splitlines()]
    assert {len(row) for row in rows} == {11}
    for row in rows:
        assert row[1].startswith("/")
        assert row[1].endswith(")")
        assert all(field.isdigit() for field in (row[2], *row[4:]))
    names = "\n".join(row[1] for row in rows)
    for which in ("(live)", "(deleted)", "(older version 1)"):
        assert which in names


def test_a_bodyfile_has_the_deletions_and_mactime_shows_them(timelines: dict[str, str], tmp_path: Path) -> None:
    rows = [line.split("|") for line in timelines["bodyfile"].splitlines()]
    deletions = {(row[1], int(row[9])) for row in rows if row[1].endswith(DELETION)}
    events = [one for one in map(json.loads, timelines["jsonl"].splitlines()) if one["event"] == "deleted"]
    assert deletions == {(one["path"] + DELETION, one["time_ns"] // 10**9) for one in events}
    assert len(deletions) > 200
    assert {(row[7], row[8], row[10]) for row in rows if row[1].endswith(DELETION)} == {("0", "0", "0")}
    mactime = need_tool("mactime")
    (tmp_path / "body").write_text(timelines["bodyfile"])
    command = [mactime, "-b", tmp_path / "body", "-d", "-y", "-z", "UTC"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    dated = {(row["Date"], row["File Name"]) for row in csv.DictReader(io.StringIO(said.stdout)) if "c" in row["Type"]}
    assert dated >= {(f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%SZ}", path) for path, second in deletions}


def test_a_time_that_the_index_can_not_hold_is_exact_in_a_bodyfile(tmp_path: Path) -> None:
    far = 13_000_000_000
    with living(tmp_path) as (life, image):
        life.volume.set_times(life.file(b"far", b"text"), 0, far * 10**9)
        life.later()
    of_timeline = f2("timeline", image, "--format", "bodyfile").text
    of_fls = f2("fls", "-m", "/", image).text
    for text in (of_timeline, of_fls):
        (row,) = (line.split("|") for line in text.splitlines() if "/far" in line)
        assert row[7:9] == ["0", str(far)]


def test_json_means_json_lines(timelines: dict[str, str], run_f2tools: Any) -> None:
    assert run_f2tools("timeline", image_of("history-d"), "--json").stdout == timelines["jsonl"]


def test_csv_and_json_lines_say_the_same(timelines: dict[str, str]) -> None:
    rows = list(csv.DictReader(io.StringIO(timelines["csv"])))
    events = [json.loads(line) for line in timelines["jsonl"].splitlines()]
    assert [row["path"] for row in rows] == [event["path"] for event in events]
    assert [event["time_ns"] for event in events] == sorted(event["time_ns"] for event in events)
    assert {event["event"] for event in events} == {"modified", "accessed", "changed", "deleted"}
    assert {event["state"] for event in events} >= {"live", "deleted", "older"}


def test_deletions_are_dated_by_the_directory() -> None:
    """A deletion that the timeline dates happened no later than that, and after the last checkpoint before."""
    truth = {(e["ino"], e["gen"]): e for e in load(CASES / "history-a" / "recoverable.json.gz")["deleted"]}
    from f2tools.forensics.states import lines

    with f2tools.open(image_of("history-a")) as volume, open_index(volume) as index:
        dated = [line for line in lines(Undelete(volume, index)) if line.deleted_ns and line.inode]
    assert len(dated) > 200
    for line in dated:
        assert line.inode is not None
        assert line.deleted_ns is not None
        if stat.S_ISREG(line.inode.mode):
            happened = truth[line.ino, line.inode.generation]["deleted_t"]
            assert line.deleted_ns >= happened - TICK_NS


def test_dfxml_is_sound(timelines: dict[str, str]) -> None:
    tree = ElementTree.fromstring(timelines["dfxml"])
    space = "{http://www.forensicswiki.org/wiki/Category:Digital_Forensics_XML}"
    objects = tree.findall(f".//{space}fileobject")
    states = [line for line in timelines["bodyfile"].splitlines() if DELETION not in line]
    assert sum(len(one.findall(f"{space}filename")) for one in objects) == len(states)
    assert {item.findtext(f"{space}alloc") for item in objects} == {"0", "1"}
