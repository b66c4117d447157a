"""`f2tools experiment`: what it lists and prints, what it keeps, how it goes on."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from f2tools.errors import Usage
from f2tools.experiment import run as running
from f2tools.experiment.model import (
    CANT_BE_TOLD,
    REPRODUCED,
    VERDICTS,
    Claim,
    Experiment,
    Outcome,
    Part,
    Setting,
    Unfinished,
    Work,
)
from f2tools.experiment.registry import EXPERIMENTS, experiment
from f2tools.options import progress
from tests.dump.craft import f2


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
    analyzed = json.loads(f2("trace", "analyze", out / "traces" / "iozone" / "f2fs", "--json").out)
    assert analyzed["writes"]["bytes"] == found["parts"]["f2fs"]["run"]["write_bytes"]


def test_a_trace_that_has_not_what_its_device_counted_is_said(tmp_path: Path) -> None:
    def torn(work: Work, written: int) -> dict[str, Any]:
        return {"run": {"write_bytes": 4096}, "trace": {"writes": {"bytes": written}}}

    given = Experiment(
        "x", "X", "nowhere", "nothing", ("engine",),
        lambda _: [Part("whole", torn, {"written": 4096}), Part("torn", torn, {"written": 512})],
        lambda _, found: Outcome([], [], []),
    )  # fmt: skip
    report = running.run([given], Setting(), running.Store(tmp_path / "out"), 1, progress)[0]
    assert [row.here for row in report.outcome.rows] == ["the same in 1 of 2 parts; other in torn: don't rely on those"]


def test_what_is_no_scale_or_no_place_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    assert "is no scale" in f2("experiment", "iozone", "--scale", "3").err
    refused = f2("experiment", "cleaning", "--on", "nowhere", "-o", tmp_path / "out")
    assert refused.code == 2
    assert not (tmp_path / "out").exists()
    refused = f2("experiment", "iozone", "--on", "/proc", "-o", tmp_path / "out")
    assert (refused.code, "a directory on F2FS is wanted" in refused.err) == (2, True)
    refused = f2("experiment", "iozone", "--on", "guest", "--fs", "ext4")
    assert (refused.code, "f2fs, and beside it" in refused.err) == (2, True)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-mother").write_text("dear")
    refused = f2("experiment", "iozone", "-o", tmp_path / "letters")
    assert (refused.code, "a directory of its own" in refused.err) == (2, True)


def one_part(work: Work, name: str, log: str) -> dict[str, Any]:
    with open(log, "a") as file:
        file.write(name)
    if name == "b" and not Path(log + ".mended").exists():
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
        report = running.run([given], Setting(on="guest"), store, jobs, progress)[0]
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
    log = str(tmp_path / "log")
    given = Experiment(
        "x", "X", "nowhere", "nothing", ("engine",),
        lambda _: [Part(name, one_part, {"name": name, "log": log}, 3.0 if name == "a" else 1.0) for name in "abc"],
        lambda _, found: Outcome([], [], []),
    )  # fmt: skip

    def go(setting: Setting) -> list[Any]:
        return running.run([given], setting, running.Store(tmp_path / "out"), jobs, progress)

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
