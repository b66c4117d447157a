"""The commands as a user runs them."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from f2tools.blktrace.records import DISCARD, WRITE
from f2tools.cli import main
from f2tools.errors import Taken, Usage
from f2tools.trace.metrics.catalogue import METRICS
from f2tools.trace.report.text import FIRST_COLUMNS, lines
from tests import judges
from tests.trace import traces
from tests.trace.traces import request

CHURN = str(traces.DIRECTORY / "churn")


def trace(*args: object) -> Result:
    """Run a command in this process; what is no error of the user's is raised."""
    return CliRunner().invoke(main, ["trace", *map(str, args)], catch_exceptions=False)


def run(*args: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    code = "from f2tools.cli import run; run()"
    return subprocess.run([sys.executable, "-c", code, "trace", *map(str, args)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def images() -> tuple[str, ...]:
    return "--image", str(traces.image("churn", "before")), "--image-after", str(traces.image("churn", "after"))


def test_the_report_fits_a_screen(images: tuple[str, ...]) -> None:
    done = trace("analyze", CHURN, *images, "--app-bytes", "99871199")
    shown = done.output.splitlines()
    assert len(shown) <= 44
    assert max(map(len, shown)) <= 80
    assert "WAF 0.672" in done.output
    assert "hot_data" in done.output
    assert "/job1/f0.jpg" in done.output


def test_on_a_small_terminal_the_report_is_what_matters_most(images: tuple[str, ...]) -> None:
    report = json.loads(trace("analyze", CHURN, *images, "--json").output)
    whole, part = lines(report), lines(report, 23)
    assert len(part) == 23
    assert part == [line for line in whole if line in part and line]
    first = [line.split()[0] for line in part if line]
    at = first.index("reads")  # behind a heading that is as long as the path of the trace
    assert first[at : at + 3] == ["reads", "writes", "discards"]
    assert any("D2C write" in line for line in part)
    assert lines(report, 200) == whole


def test_json_has_every_metric_under_its_name(images: tuple[str, ...]) -> None:
    report = json.loads(trace("analyze", CHURN, *images, "--json").output)
    assert list(METRICS) == sorted(report, key=list(METRICS).index)
    assert report["writes"]["bytes"] == 67158016
    assert list(report["logs"]) == ["hot_data", "warm_data", "cold_data", "hot_node", "warm_node", "cold_node"]
    assert list(report["areas"]) == ["sb", "cp", "sit", "nat", "ssa", "main"]


def test_every_metric_is_explained() -> None:
    for name in METRICS:
        assert trace("analyze", "--explain", name).output.startswith(f"{name}: ")
    assert run("analyze", "--explain", "nonsense").returncode == 2
    assert len(trace("analyze", "--explain", "all").output.splitlines()) > len(METRICS)


def test_fio_says_what_the_application_wrote(tmp_path: Path) -> None:
    fio = tmp_path / "fio.json"
    fio.write_text('fio: a warning\n{"jobs": [{"write": {"io_bytes": 1000}}, {"write": {"io_bytes": 67157016}}]}')
    assert json.loads(trace("analyze", CHURN, "--fio", fio, "--json").output)["fs_waf"] == 1.0
    for wrong in ("{}", '{"jobs": [{"write": {"io_bytes": Infinity}}]}', '{"jobs":' + "[" * 100_000):
        fio.write_text(wrong)
        refused = run("analyze", CHURN, "--fio", fio)
        assert (refused.returncode, "not fio's JSON output" in refused.stderr) == (2, True)


def test_notes_beside_a_trace_that_are_nested_without_end_are_refused(tmp_path: Path) -> None:
    traces.write(tmp_path, traces.request(1_000, 64))
    (tmp_path / "record.json").write_text("[" * 100_000)
    refused = run("analyze", tmp_path)
    assert (refused.returncode, "record.json: it is nested too deeply" in refused.stderr) == (2, True)


def test_tables_are_written(tmp_path: Path, images: tuple[str, ...]) -> None:
    trace("analyze", CHURN, *images, "--csv", tmp_path / "csv", "--json")
    with (tmp_path / "csv" / "metrics.csv").open() as file:
        metrics = {row["metric"]: row["value"] for row in csv.DictReader(file)}
    assert metrics["writes.bytes"] == "67158016"
    with (tmp_path / "csv" / "areas.csv").open() as file:
        assert {row["area"]: int(row["bytes"]) for row in csv.DictReader(file)}["ssa"] == 131072


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_are_written_again_but_over_no_others(tmp_path: Path, images: tuple[str, ...], form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    for _ in range(2):
        trace("analyze", CHURN, *images, f"--{form}", tmp_path, "--json")
    assert {path.stem for path in tmp_path.iterdir()} == set(FIRST_COLUMNS)
    shutil.copy(tmp_path / f"areas.{form}", tmp_path / f"latency.{form}")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(Taken, match=f"latency.{form}: is there already, and is no table"):
        trace("analyze", CHURN, f"--{form}", tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_parquet_holds_the_same(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    trace("analyze", CHURN, "--parquet", tmp_path, "--json")
    rows = {row["metric"]: row["value"] for row in parquet.read_table(tmp_path / "metrics.parquet").to_pylist()}
    assert rows["writes.bytes"] == 67158016


def test_the_html_is_one_file_that_fetches_nothing(tmp_path: Path, images: tuple[str, ...]) -> None:
    page = tmp_path / "r.html"
    trace("analyze", CHURN, *images, "--html", page)
    text = page.read_text()
    assert text.count("<svg") == 9
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="(?!data:)', text)
    for match in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(match)
    for title in ("by operation", "writes by log", "Throughput", "Requests by size", "Latency", "Discard map"):
        assert title in text


def test_only_a_page_that_f2tools_made_is_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "mine.html"
    mine.write_text("<!DOCTYPE html><p>mine</p>")
    for words in (("analyze", CHURN), ("compare", CHURN, CHURN)):
        with pytest.raises(Taken, match="is not an HTML page that f2tools made"):
            trace(*words, "--html", mine)
        for _ in range(2):
            trace(*words, "--html", tmp_path / "made.html")
    assert mine.read_text() == "<!DOCTYPE html><p>mine</p>"


@pytest.mark.parametrize(
    "outputs", ["--html {0}/a --svg {0}/a", "--csv {0} --html {0}/areas.csv", "--svg {0}/b --png {0}/../{1}/b"]
)
def test_two_outputs_have_two_names(tmp_path: Path, outputs: str) -> None:
    with pytest.raises(Usage, match="two outputs have this name"):
        trace("analyze", CHURN, *outputs.format(tmp_path, tmp_path.name).split())
    assert list(tmp_path.iterdir()) == []


def test_names_in_a_trace_are_no_markup(tmp_path: Path) -> None:
    evil = b"<img src=x>\x1b[2J"
    events = [traces.note(0, 0, evil, 100), traces.note(1, 2, evil), *request(10, 0)]
    prefix = traces.write(tmp_path, events)
    trace("analyze", prefix, "--html", tmp_path / "r.html")
    assert "<img" not in (tmp_path / "r.html").read_text()
    for output in (trace("analyze", prefix).output, trace("events", prefix).output):
        assert "\x1b" not in output


@pytest.mark.peer
def test_a_real_browser_shows_the_html(tmp_path: Path, images: tuple[str, ...]) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        judges.missing_judge("chromium is not installed", "whether a browser shows the HTML report")
    page, shot = tmp_path / "r.html", tmp_path / "r.png"
    trace("analyze", CHURN, *images, "--html", page)
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/chrome"]
    dumped = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120)
    assert "Block address over time" in dumped.stdout
    shooting = [*command, f"--screenshot={shot}", "--window-size=1000,3000", page.as_uri()]
    said = subprocess.run(shooting, capture_output=True, text=True, timeout=120)
    assert shot.stat().st_size > 50_000
    assert "Refused to" not in said.stderr


@pytest.mark.parametrize("picture", ["address", "logs", "throughput", "sizes", "latency", "discards"])
def test_each_picture_is_sound_svg_and_png(tmp_path: Path, images: tuple[str, ...], picture: str) -> None:
    done = trace("analyze", CHURN, *images, "--svg", tmp_path / "p.svg", "--picture", picture)
    assert done.exit_code == 0
    root = ElementTree.parse(tmp_path / "p.svg").getroot()
    assert root.tag.endswith("svg")
    pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    trace("analyze", CHURN, *images, "--png", tmp_path / "p.png", "--picture", picture)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def with_a_burst(directory: Path, category: int) -> Path:
    """A trace whose last requests are far larger than all else."""
    events = [event for n in range(600) for event in request(1_000 + n * 1_000_000, n * 64)]
    events += [event for n in range(4) for event in request(600_000_000 + n, 0, 1 << 22, category)]
    return traces.write(directory / "burst", events)


@pytest.mark.parametrize("picture", ["throughput", "discards"])
def test_what_a_picture_cuts_off_is_said_everywhere(tmp_path: Path, picture: str) -> None:
    burst = with_a_burst(tmp_path, WRITE | DISCARD)
    done = trace("analyze", burst, "--svg", tmp_path / "p.svg", "--html", tmp_path / "p.html", "--picture", picture)
    picture_said = r"Cut off at the top \([\w /]+\): discard goes up to [\d.]+ [GT]iB\."
    said = re.search(picture_said, (tmp_path / "p.svg").read_text())
    assert said is not None
    assert said[0] in (tmp_path / "p.html").read_text()
    assert f"f2tools: note: {tmp_path}/p.svg: {said[0]}" in done.stderr
    done = trace("analyze", burst, "--svg", tmp_path / "p.svg", "--picture", "iops")
    assert done.stderr == ""


def test_what_a_comparison_cuts_off_is_said_everywhere(tmp_path: Path) -> None:
    burst = with_a_burst(tmp_path, WRITE)
    done = trace("compare", burst, CHURN, "--svg", tmp_path / "p.svg", "--html", tmp_path / "p.html")
    picture_said = r"Cut off at the top \([\w /]+\): t goes up to [\d.]+ [GT]iB\."
    said = re.search(picture_said, (tmp_path / "p.svg").read_text())
    assert said is not None
    assert said[0] in (tmp_path / "p.html").read_text()
    assert said[0] in done.stderr


def test_comparing_gives_ratios_to_the_baseline(tmp_path: Path) -> None:
    names = [str(traces.DIRECTORY / name) for name in ("f2fs-varmail", "churn")]
    found = json.loads(trace("compare", *names, "--baseline", names[1], "--json").output)
    row = found["metrics"]["writes.bytes"]
    assert row[names[1]]["ratio"] == 1
    assert row[names[0]]["ratio"] == pytest.approx(125112 * 512 / 67158016)
    assert found["metrics"]["write_reduction.bytes"][names[0]]["value"] == pytest.approx(1 - 125112 * 512 / 67158016)
    several = trace("compare", *names, "--jobs", "2", "--html", tmp_path / "c.html").output
    assert "f2fs-varmail *" in {re.split("  +", line)[0] for line in several.splitlines()}
    assert "<th>f2fs-varmail *</th>" in (tmp_path / "c.html").read_text()
    assert several == trace("compare", *names).output
    assert "<svg" in (tmp_path / "c.html").read_text()
    assert run("compare", *names, "--baseline", "other").returncode == 2


def test_a_wide_comparison_has_traces_in_rows(tmp_path: Path) -> None:
    names = []
    for name in ("a", "b, with a name that is longer than thirty characters", "c"):
        (tmp_path / name).mkdir()
        for piece in Path(CHURN).glob("*.blktrace.*"):
            (tmp_path / name / piece.name).symlink_to(piece)
        names.append(str(tmp_path / name))
    for every in ([], ["--all"]):
        text = trace("compare", *names, *every).output
        assert max(map(len, text.splitlines())) <= 80
        rows = [re.split("  +", line) for line in text.splitlines()]
        values = {name: [row[1:] for row in rows if row[0] == name] for name in ("a *", "c")}
        assert [len(row) for row in values["a *"]] == [len(row) for row in values["c"]]
        assert sum(map(len, values["c"])) >= (22 if not every else 300)
        assert any(row[0].startswith("...") and row[0].endswith("thirty characters") for row in rows)


@pytest.mark.parametrize("name", ["f2fs-varmail", "f2fs-varmail *", str(traces.DIRECTORY / "f2fs-varmail")])
def test_the_baseline_may_be_named_as_the_table_has_it(name: str) -> None:
    names = [CHURN, str(traces.DIRECTORY / "f2fs-varmail")]
    assert json.loads(trace("compare", *names, "--baseline", name, "--json").output)["baseline"] == names[1]


def test_traces_are_drawn_over_one_time(tmp_path: Path) -> None:
    names = [CHURN, str(traces.DIRECTORY / "f2fs-varmail")]
    done = trace("compare", *names, "--svg", tmp_path / "p.svg", "--picture", "queue", "--html", tmp_path / "p.html")
    assert done.exit_code == 0
    root = ElementTree.parse(tmp_path / "p.svg").getroot()
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["churn", "f2fs-varmail"]
    assert "seconds from the beginning of each trace" in (tmp_path / "p.html").read_text()


def test_the_time_at_the_device_is_that_of_all_requests() -> None:
    for name in ("churn", "f2fs-varmail"):
        report = json.loads(trace("analyze", traces.DIRECTORY / name, "--json").output)
        windows = report["windows"]
        assert sum(windows["in_flight_ns"]) == sum(windows["d2c_sum"])
        assert max(windows["in_flight_ns"]) <= report["queue_depth"]["max"] * windows["width_ns"]


@pytest.mark.parametrize(("option", "package"), [("--parquet", "pyarrow"), ("--png", "matplotlib")])
def test_a_missing_package_is_said_before_the_trace_is_read(
    option: str, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Usage, match=f"needs {package}"):
        trace("analyze", tmp_path / "no such trace", option, tmp_path / "out")


def test_events_are_filtered(images: tuple[str, ...]) -> None:
    every = [json.loads(line) for line in trace("events", CHURN, "--json").output.splitlines()]
    assert len(every) == 3712

    def some(*options: str) -> list[dict]:
        return [json.loads(line) for line in trace("events", CHURN, "--json", *options).output.splitlines()]

    assert some("--op", "D", "--op", "discard") == [e for e in every if e["op"] == "D" and e["class"] == "discard"]
    assert some("--since", "2", "--until", "4") == [e for e in every if 2 <= e["seconds"] < 4]
    assert len(some("--limit", "7")) == 7
    assert some("--process", "150") == [e for e in every if e["pid"] == 150]
    ssa = some("--op", "D", "--op", "write", "--area", "ssa", *images[:2])
    assert sum(e["bytes"] for e in ssa) == 131072
    assert {e["area"] for e in ssa} == {"ssa"}
    assert run("events", CHURN, "--op", "nonsense").returncode == 2
    assert run("events", CHURN, "--area", "cp").returncode == 2


def test_strict_fails_where_events_are_missing(tmp_path: Path) -> None:
    records = traces.records(request(10, 0) + request(300_000, 64))
    (tmp_path / "x.blktrace.0").write_bytes(b"".join(records[:3] + records[4:]))
    lenient, strict = run("analyze", tmp_path / "x"), run("analyze", tmp_path / "x", "--strict")
    assert (lenient.returncode, strict.returncode) == (0, 1)
    assert "DAMAGED: 1 lost" in lenient.stdout
    assert "1 events lost" in strict.stderr
    assert run("events", tmp_path / "x", "--strict").returncode == 1
    assert run("compare", tmp_path / "x", "--strict").returncode == 1


def test_a_reader_that_leaves_is_no_error() -> None:
    code = "from f2tools.cli import run; run()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "trace", "events", CHURN],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141


def test_clocks_of_cpus_that_differ_are_seen_in_the_report(tmp_path: Path) -> None:
    """Then completions come before their issues."""
    events = [each for n in range(50) for each in request(10**7 * n, 64 * n)]
    skewed = [replace(each, cpu=1, time=each.time + 10**6) if each.op == "D" else each for each in events]
    sound, wrong = (traces.write(tmp_path / name, some) for name, some in (("sound", events), ("wrong", skewed[:-4])))
    assert "unpaired" not in trace("analyze", sound).output
    found = " ".join(trace("analyze", wrong).output.split())
    assert "unpaired: 49 completions without an issue, 49 issues without a completion" in found
    assert "pairing: How events were joined" in trace("analyze", "--explain", "unpaired").output
