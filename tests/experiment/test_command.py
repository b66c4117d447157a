"""`f2tools experiment`: what it lists and prints, what it keeps, how it goes on."""

from __future__ import annotations

import base64
import contextlib
import errno
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from f2tools.errors import Taken, Usage
from f2tools.experiment import kept
from f2tools.experiment import report as reporting
from f2tools.experiment import run as running
from f2tools.experiment.model import (
    CANT_BE_TOLD,
    REPRODUCED,
    VERDICTS,
    Claim,
    Experiment,
    ExperimentReport,
    Outcome,
    Part,
    Setting,
    Unfinished,
    Work,
)
from f2tools.experiment.registry import EXPERIMENTS, experiment
from f2tools.options import progress
from f2tools.pictures.svg import Line, Picture
from tests.dump.craft import Result, f2
from tests.images import ROOT
from tests.sweeps import ALL


def test_the_list_names_every_experiment_and_where_it_can_be_run() -> None:
    listed = json.loads(f2("experiment", "list", "--json").out)
    assert [one["name"] for one in listed] == list(EXPERIMENTS)
    assert all("engine" in one["places"] and one["setup"] and one["section"] for one in listed)
    assert all(experiment(name).name == name for name in EXPERIMENTS)


def test_an_experiment_prints_claims_with_verdicts_and_keeps_report_figures_numbers_and_trace(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = f2("experiment", "iozone", "--scale", "1/512", "--seed", "7", "--json", "--jobs", "1", "-o", out)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert all(set(claim) == {"claim", "paper", "here", "verdict", "reason"} for claim in found["claims"])
    assert {claim["verdict"] for claim in found["claims"]} <= set(VERDICTS)
    assert (found["seed"], found["scale"], found["on"]) == (7, "1/512", "engine")
    assert json.loads((out / "report.json").read_text()) == found
    assert found["rows"][-1]["here"] == "the same in 1 of 1 parts"
    page = (out / "report.html").read_text()
    assert "reproduced" in page
    assert not re.search(r"(src|href)=[\"']?https?:", page)
    assert (out / "figures" / "iozone-sizes.svg").read_text().startswith("<?xml")
    done = f2("trace", "analyze", out / "traces" / "iozone" / "f2fs", "--strict", "--json")
    assert done.code == 0, done.err
    analyzed = json.loads(done.out)
    assert analyzed["writes"]["bytes"] == found["parts"]["f2fs"]["run"]["write_bytes"]


def test_a_trace_that_has_not_what_its_device_counted_is_said(tmp_path: Path) -> None:
    def torn(work: Work, written: int) -> dict[str, Any]:
        return {"run": {"write_bytes": 4096}, "trace": {"writes": {"bytes": written}}}

    given = Experiment(
        "x", "X", "nowhere", "nothing", ("engine",),
        lambda _: [Part("whole", torn, {"written": 4096}), Part("torn", torn, {"written": 512})],
        lambda _, found: Outcome([], [], []),
    )  # fmt: skip
    report = next(running.run([given], Setting(), running.Store(tmp_path / "out"), 1, progress))
    assert [row.here for row in report.outcome.rows] == ["the same in 1 of 2 parts; other in torn: don't rely on those"]


def test_the_page_says_where_a_picture_is_cut_off() -> None:
    lines = [Line("high", "#0072b2", [0, 1], [1, 3000])]
    picture = Picture("p", "Cut", "lines", "run", "blocks", y_range=(0, 100), lines=lines, note="A note.")
    outcome = Outcome([], [], [picture])
    page = reporting.page([ExperimentReport(experiment("fileserver"), Setting(), {}, outcome, 1, 1)], of_all=False)
    assert "A note. Cut off at the top (blocks): high goes up to 3000." in page


def test_what_is_no_scale_or_no_place_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    assert "is no scale" in f2("experiment", "iozone", "--scale", "3").err
    refused = f2("experiment", "cleaning", "--on", "nowhere", "-o", tmp_path / "out")
    assert refused.code == 2
    assert not (tmp_path / "out").exists()
    refused = f2("experiment", "iozone", "--on", "/proc", "-o", tmp_path / "out")
    assert (refused.code, "a directory on f2fs, ext3, ext4, btrfs, nilfs2 is wanted" in refused.err) == (2, True)
    refused = f2("experiment", "iozone", "--on", "guest", "--fs", "ext4")
    assert (refused.code, "f2fs, and beside it" in refused.err) == (2, True)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-mother").write_text("dear")
    refused = f2("experiment", "iozone", "-o", tmp_path / "letters")
    assert (refused.code, "a directory of its own" in refused.err) == (2, True)


def one_part(work: Work, name: str, log: str, after: str | None) -> dict[str, Any]:
    """`b` fails at first, once the file `after` is there."""
    with open(log, "a") as file:
        file.write(name)
    if name == "b" and not Path(log + ".mended").exists():
        while after is not None and not Path(after).exists():
            time.sleep(0.01)
        raise Usage("the power went")
    work.advance(1.0)
    return {"name": name}


def may_hang(work: Work, fs: str, log: str) -> dict[str, Any]:
    if fs == Path(log).read_text():
        raise Unfinished(f"the load on {fs} was not done within 9 s")
    return {"fs": fs}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_system_that_comes_to_no_end_is_left_out_of_the_verdicts_and_tried_again(
    jobs: int, tmp_path: Path
) -> None:
    log = tmp_path / "hangs"
    given = Experiment(
        "x", "X", "nowhere", "nothing", ("guest",),
        lambda _: [Part(fs, may_hang, {"fs": fs, "log": str(log)}) for fs in ("f2fs", "ext4", "nilfs2")],
        lambda _, found: Outcome([Claim("those that ended", "", " ".join(sorted(found)), REPRODUCED)], [], []),
    )  # fmt: skip

    def claims(hangs: str) -> list[tuple[str, str, str]]:
        log.write_text(hangs)
        store = running.Store(tmp_path / "out")
        report = next(running.run([given], Setting(on="guest"), store, jobs, progress))
        return [(claim.here, claim.verdict, claim.reason) for claim in report.outcome.claims]

    assert claims("f2fs") == [("-", CANT_BE_TOLD, "the load on f2fs was not done within 9 s")], (
        "nothing to stand beside"
    )
    (tmp_path / "out" / "parts" / "x" / "nilfs2.json").unlink()
    assert claims("nilfs2") == [
        ("ext4 f2fs", REPRODUCED, ""), ("-", CANT_BE_TOLD, "the load on nilfs2 was not done within 9 s"),
    ]  # fmt: skip
    assert claims("") == [("ext4 f2fs nilfs2", REPRODUCED, "")]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_was_interrupted_goes_on_where_it_was(jobs: int, tmp_path: Path) -> None:
    log, kept = str(tmp_path / "log"), str(tmp_path / "out" / "parts" / "x" / "a.json")
    given = Experiment(
        "x", "X", "nowhere", "nothing", ("engine",),
        lambda _: [Part(name, one_part, {"name": name, "log": log, "after": kept}, 3.0 if name == "a" else 1.0)
                   for name in "abc"],
        lambda _, found: Outcome([], [], []),
    )  # fmt: skip

    def go(setting: Setting) -> list[Any]:
        return list(running.run([given], setting, running.Store(tmp_path / "out"), jobs, progress))

    with pytest.raises(Usage, match="the power went"):
        go(Setting())
    Path(log + ".mended").touch()
    before = Path(log).read_text()
    assert "a" in before
    report = go(Setting())[0]
    assert {name: numbers["name"] for name, numbers in report.numbers.items()} == {"a": "a", "b": "b", "c": "c"}
    assert Path(log).read_text().count("a") == 1, "what had ended is not run again"
    go(Setting(scale=Fraction(1, 2)))
    assert Path(log).read_text().count("a") == 2, "another scale is another run"


def test_what_ends_at_the_moment_another_part_fails_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, names = str(tmp_path / "log"), "abcdefghij"
    given = Experiment(
        "x", "X", "nowhere", "nothing", ("engine",),
        lambda _: [Part(name, one_part, {"name": name, "log": log, "after": None}) for name in names],
        lambda _, found: Outcome([], [], []),
    )  # fmt: skip
    monkeypatch.setattr(running, "wait", lambda waiting, *_: futures.wait(waiting))  # all are seen to end together
    with pytest.raises(Usage, match="the power went"):
        list(running.run([given], Setting(), running.Store(tmp_path / "out"), 2, progress))
    parts = tmp_path / "out" / "parts" / "x"
    assert {path.stem for path in parts.iterdir()} == set(names) - {"b"}


def test_a_report_is_not_replaced_by_that_of_another_run_unless_forced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    small = ("--scale", "1/512", "--jobs", "1", "-o", out)
    assert f2("experiment", "iozone", *small).code == 0
    before = (out / "report.html").read_text()
    for other in (("--seed", "2"), ("--scale", "1/1024")):
        refused = f2("experiment", "iozone", *small, *other)
        assert (refused.code, "has the report of iozone --scale 1/512 --on engine --seed 1" in refused.err) == (1, True)
    assert f2("experiment", "fsync", *small).code == 1
    assert (out / "report.html").read_text() == before
    assert "1 of 1 parts are there from an earlier run" in f2("experiment", "iozone", *small).err
    assert f2("experiment", "fsync", *small, "--force").code == 0
    assert sorted(path.name for path in (out / "traces").iterdir()) == ["fsync"], "the other run is gone"


@pytest.mark.parametrize(
    "asked",
    [
        None,
        "",
        "[]",
        '{"scale": "1/512"}',
        '{"experiments": [[]], "fs": [{}]}',
        "[" * 100_000,
        '{"experiments": {"a": 1}, "fs": {"f2fs": 1}}',
    ],
)
def test_what_is_not_known_to_be_a_report_is_never_removed(asked: str | None, tmp_path: Path) -> None:
    mine = tmp_path / "out" / "traces" / "sdb.blktrace.0"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"precious")
    if asked is not None:
        (tmp_path / "out" / "asked.json").write_text(asked)
    words = ("experiment", "iozone", "--scale", "1/512", "-o", tmp_path / "out")
    for force in ((), ("--force",)):
        refused = f2(*words, *force)
        assert (refused.code, "no asked.json in it says that it is a report" in refused.err) == (1, True)
    assert mine.read_bytes() == b"precious"


def test_a_run_of_more_goes_on_from_one_of_less_and_two_do_not_write_at_once(tmp_path: Path) -> None:
    def begin(names: str, fs: tuple[str, ...]) -> running.Store:
        store = running.Store(tmp_path / "out")
        store.begin([experiment(name) for name in names.split()], Setting(on="guest", fs=fs))
        return store

    first = begin("iozone", ("f2fs", "ext4"))
    with pytest.raises(Taken, match="another run writes its report there now"):
        begin("iozone", ("f2fs", "ext4"))
    first.end()
    begin("iozone sqlite", ("f2fs", "ext4", "btrfs")).end()
    with pytest.raises(Taken, match="2 experiments --scale 1/64 --on guest --seed 1 --fs f2fs,ext4,btrfs"):
        begin("iozone sqlite", ("f2fs", "ext4"))


def test_an_experiment_that_is_not_there_is_answered_with_one_that_is(tmp_path: Path) -> None:
    refused = f2("experiment", "cleanin")
    assert (refused.code, "f2tools experiment cleaning`?" in refused.err) == (2, True)


def test_a_full_directory_is_named_and_what_had_ended_is_used_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ("experiment", "iozone", "--scale", "1/512", "--jobs", "1", "-o", tmp_path / "out")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("f2tools.experiment.report.write", full)
        stopped = f2(*small)
    assert (stopped.code, f"{tmp_path / 'out'}: No space left on device; what has ended is kept" in stopped.err) == (
        8, True,
    )  # fmt: skip
    assert "1 of 1 parts are there" in f2(*small).err


NEW = object()  # the place of a member is to be empty


def changed(path: Path, change: Callable[[Any], Any], seal: bool = False) -> None:
    """Change the file of a part; `seal`: and have its checksum say that it is as it was written."""
    there = change(json.loads(path.read_text()))
    path.write_text(json.dumps(there))
    if seal:
        there.pop(kept.SUM)
        kept.write(path, there)


def without_numbers(there: Any) -> Any:
    del there["numbers"]
    return there


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "no text": lambda path: path.write_bytes(b"\xff" * 100),
    "a list": lambda path: path.write_text("[]"),
    "nested": lambda path: path.write_text('{"numbers":' * 100_000),
    "a digit": lambda path: path.write_text(path.read_text().replace('"write_bytes": ', '"write_bytes": 9')),
    "NaN": lambda path: changed(path, lambda there: there | {"seconds": math.nan}, seal=True),
    "endless": lambda path: changed(path, lambda there: there | {"cpu_seconds": math.inf}, seal=True),
    "huge": lambda path: changed(path, lambda there: there | {"seconds": 10**4000}, seal=True),
    "no number": lambda path: changed(path, lambda there: there | {"seconds": "long"}, seal=True),
    "numbers that are a list": lambda path: changed(path, lambda there: there | {"numbers": [1]}, seal=True),
    "no numbers": lambda path: changed(path, without_numbers, seal=True),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "too large": lambda path: path.write_bytes(b" " * (kept.MOST_BYTES + 1)),
}  # fmt: skip


@pytest.fixture(scope="module")
def small_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a file server, with a picture of its trace."""
    out = tmp_path_factory.mktemp("report") / "out"
    assert f2("experiment", "fileserver", "--scale", "1/1024", "--jobs", "1", "-o", out).code == 0
    return out


@pytest.mark.parametrize("what", DAMAGE)
def test_a_part_whose_file_is_damaged_is_run_again_and_that_is_said(
    what: str, small_report: Path, tmp_path: Path
) -> None:
    shutil.copytree(small_report, tmp_path / "out")
    path = tmp_path / "out" / "parts" / "fileserver" / "f2fs.json"
    before = json.loads(path.read_text())["numbers"]
    DAMAGE[what](path)
    done = f2("experiment", "fileserver", "--scale", "1/1024", "--jobs", "1", "-o", tmp_path / "out")
    assert (done.code, f"{path} is damaged, and its part is run again: " in done.err) == (0, True), done.err
    assert json.loads(path.read_text())["numbers"] == before


def test_numbers_under_whole_numbers_are_read_again(tmp_path: Path) -> None:
    found = {"asked": {}, "numbers": {2: 1, 10: 1}, "seconds": 1.0, "cpu_seconds": 1.0}
    kept.write(tmp_path / "part.json", found)
    assert kept.read(tmp_path / "part.json")["numbers"] == {"2": 1, "10": 1}


def test_a_part_of_the_largest_seed_is_kept_and_a_larger_one_is_refused(tmp_path: Path) -> None:
    run = ("experiment", "fileserver", "--scale", "1/1024", "--jobs", "1", "-o", tmp_path / "out", "--seed")
    assert f2(*run, kept.MOST).code == 0
    assert "1 of 1 parts are there" in f2(*run, kept.MOST).err
    assert f2(*run, kept.MOST + 1).code == 2


def test_forged_numbers_with_a_right_checksum_end_in_an_error_that_names_the_file(
    small_report: Path, tmp_path: Path
) -> None:
    shutil.copytree(small_report, tmp_path / "out")
    path = tmp_path / "out" / "parts" / "fileserver" / "f2fs.json"
    whole = json.loads(path.read_text())
    some = random.Random(1).sample([*places(whole["numbers"])], 40 if ALL else 20)
    ended = Counter[int]()
    for place, value in zip(some, itertools.cycle((NEW, None, "x\ud800", [], {"a": 1}, -1, kept.MOST, 1e-300))):
        path.write_text(json.dumps(whole))
        changed(path, lambda there, place=place, value=value: put(there, place, value), seal=True)
        done = f2("experiment", "fileserver", "--scale", "1/1024", "--jobs", "1", "-o", tmp_path / "out")
        assert done.code == 0 or f"path {path}: no report can be made of the numbers that are kept there" in done.err
        assert "without that file its part is run again" in done.err or "are there from an earlier run" in done.err
        ended[done.code] += 1
    assert set(ended) == {0, 1}
    assert ended[1] > 5


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something lies in JSON; of a list, its first two."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for name, one in inner:
        yield (*at, name)
        yield from places(one, (*at, name))


def put(there: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Numbers of a part with another value at a place, or with none."""
    around = there["numbers"]
    for name in place[:-1]:
        around = around[name]
    if value is NEW:
        del around[place[-1]]
    else:
        around[place[-1]] = value
    return there


def test_a_bomb_in_place_of_a_picture_is_not_unpacked(small_report: Path, tmp_path: Path) -> None:
    shutil.copytree(small_report, tmp_path / "out")
    path = tmp_path / "out" / "parts" / "fileserver" / "f2fs.json"
    bomb = base64.b64encode(zlib.compress(bytes(1 << 28))).decode()
    changed(path, lambda there: put(there, ("trace", "map", "pixels"), bomb), seal=True)
    done, peak = peak_of("experiment", "fileserver", "--scale", "1/1024", "--jobs", "1", "-o", tmp_path / "out")
    assert (done.code, "no report can be made of the numbers" in done.err) == (1, True)
    assert peak < 1 << 26


def peak_of(*words: object) -> tuple[Result, int]:
    """A command, and the bytes of Python's memory that it had at most."""
    tracemalloc.start()
    try:
        return f2(*words), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class ToldTwice(tempfile.TemporaryDirectory[str]):
    """A directory at whose removal the process is told to stop once more, as by the threads of a killed parent."""

    def cleanup(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        super().cleanup()


def hangs(work: Work, log: str) -> dict[str, Any]:
    with ToldTwice(dir=os.path.dirname(log)):
        with open(log, "a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(600)
    return {}


def until_stopped(log: str) -> None:
    """The program that is stopped: an experiment of three parts, of which two run at a time."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    given = Experiment(
        "x", "X", "nowhere", "nothing", ("engine",),
        lambda _: [Part(name, hangs, {"log": log}) for name in "abc"], lambda _, found: Outcome([], [], []),
    )  # fmt: skip
    signal.signal(signal.SIGTERM, stopped)
    with contextlib.suppress(KeyboardInterrupt):
        list(running.run([given], Setting(), running.Store(None), 2, progress))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_parts_that_are_stopped_leave_no_processes_and_no_files(number: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = f"from {__name__} import until_stopped; until_stopped({str(log)!r})"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL) as main:
        workers: list[str] = []
        until = time.monotonic() + 120
        while len(workers) < 2 and main.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
            workers = log.read_text().split() if log.exists() else []
        main.send_signal(number)
    until = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{pid}") for pid in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert [pid for pid in workers if os.path.exists(f"/proc/{pid}")] == []
    assert len(workers) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["log"], "what they had made for themselves is gone"


def test_the_file_server_comes_with_the_papers_figure_of_its_block_trace(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert f2("experiment", "fileserver", "--scale", "1/1024", "--jobs", "1", "-o", out).code == 0
    assert "data:image/png;base64," in (out / "figures" / "fileserver-trace-f2fs.svg").read_text()
    assert "Fig. 5: block trace of fileserver on f2fs" in (out / "report.html").read_text()
    (row, _) = json.loads((out / "report.json").read_text())["rows"]
    assert row["paper"].startswith("6.9 % of the requests of 512 KiB")
    assert re.match(r"[\d.]+ MiB written of [\d.]+ MiB asked for; ", row["here"])
