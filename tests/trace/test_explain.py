"""Every label that a report prints can be explained."""

from __future__ import annotations

import csv
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from f2tools.cli import main
from f2tools.trace.analyze import AnalysisRequest
from f2tools.trace.metrics.catalogue import METRICS, explain, meaning_of, unit
from f2tools.trace.metrics.metric import BYTES, NS, SHARE
from f2tools.trace.report.compare import compare, lines
from tests.trace import traces
from tests.trace.traces import request

CHURN = str(traces.DIRECTORY / "churn")
VALUE = re.compile(r"-?[\d,.]+(?:x|%)?|-|[▁▂▃▄▅▆▇█]+")
UNITS = {"B", "KiB", "MiB", "GiB", "ns", "us", "ms", "s", "%"}
JOINTS = {"of", "in", "for", "a", "are", "what", "was", "which", "them", "as", "device", "counts"}


def trace(*args: object) -> str:
    """What a command prints."""
    return CliRunner().invoke(main, ["trace", *map(str, args)], catch_exceptions=False).output


@pytest.fixture(scope="module", params=["with images", "without", "tracepoints"])
def analyzed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Path]:
    """(report as text, as JSON, a directory with the rest) of a trace."""
    directory = tmp_path_factory.mktemp("explain")
    args: list[object] = [CHURN]
    if request.param == "with images":
        args += ["--image", traces.image("churn", "before"), "--image-after", traces.image("churn", "after")]
        args += ["--app-bytes", "1M"]
    elif request.param == "tracepoints":
        args = [traces.DIRECTORY / "churn" / "ftrace.txt.zst"]
    report = json.loads(
        trace("analyze", *args, "--json", "--csv", directory / "csv", "--html", directory / "page.html")
    )
    return trace("analyze", *args), report, directory


def names_in(value: Any, path: str = "") -> Iterator[str]:
    """The dotted name of every place in a report."""
    if isinstance(value, list):
        for each in value:
            yield from names_in(each, path)
    elif isinstance(value, dict):
        for key, each in value.items():
            name = f"{path}.{key}" if path else key
            yield name
            yield from names_in(each, name)


def unexplained(text: str, data: set[str]) -> list[str]:
    """The words of a text that are neither values nor data nor joints, and that no explained label has in it."""
    for each in sorted(data, key=len, reverse=True):
        text = text.replace(each, " 0 ")
    words = [word.strip("():;") for word in text.replace(",", ", ").split()]
    words = [word for word in words if word]
    left, at = [], 0
    while at < len(words):
        label = next((n for n in range(8, 0, -1) if meaning_of(" ".join(words[at : at + n]).strip(",;:"))), 0)
        word = words[at].strip(",")
        if not label and word not in JOINTS and word not in UNITS and not VALUE.fullmatch(word or "-"):
            left.append(word)
        at += label or 1
    return left


def test_every_name_in_the_json_is_explained(analyzed: tuple[str, Any, Path]) -> None:
    names = set(names_in(analyzed[1]))
    assert len(names) > 100
    assert [name for name in names if not meaning_of(name)] == []


def test_every_label_of_the_text_is_explained(analyzed: tuple[str, Any, Path]) -> None:
    text, report, _ = analyzed
    data = {report["trace"], *report["devices"], *(row["name"] for row in report["processes"] if row["name"])}
    data |= {row["path"] for row in (report["files"] or {}).values() if row["path"]}
    assert unexplained(text, data) == []


def test_what_is_damaged_is_explained_by_the_word_that_is_printed(tmp_path: Path) -> None:
    prefix = traces.write(tmp_path, request(10, 0))
    with Path(f"{prefix}.blktrace.0").open("ab") as file:
        file.write(b"\x07taeb" * 20)
    line = next(line for line in trace("analyze", prefix).splitlines() if line.startswith("DAMAGED"))
    assert unexplained(line.split("; first in")[0], set()) == []


def test_every_label_of_the_page_is_explained(analyzed: tuple[str, Any, Path]) -> None:
    page = (analyzed[2] / "page.html").read_text()
    heads = re.findall(r"<th>(.*?)</th>", page)
    assert len(heads) > 20
    assert all(head == "" or head.startswith('<abbr title="') for head in heads)
    titles = re.findall(r"<h2>([^<]*)</h2><svg", page)
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", page)
    facts = page.split("<h2>Traffic</h2>")[1].split("<h2>")[0]
    rows = re.findall(r"<tr><td>([^<]+)</td>", facts + page.split("<h2>Latency</h2>")[1].split("<h2>Files")[0])
    labels = {html.unescape(label).split(", per ")[0] for label in (*titles, *drawn, *rows[:30])}
    processes = {row["name"] or "?" for row in analyzed[1]["processes"]}
    sizes = re.compile(r"(?:[≤>] )?[\d.,]+(?:e-\d+)?(?: (?:%|B|KiB|MiB|GiB|ns|us|ms|s))?")
    assert sorted(each for each in labels - processes if not sizes.fullmatch(each) and not meaning_of(each)) == []


def test_every_name_in_the_tables_is_explained(analyzed: tuple[str, Any, Path]) -> None:
    tables = {path.stem: list(csv.DictReader(path.open())) for path in (analyzed[2] / "csv").iterdir()}
    assert len(tables["metrics"]) > 100
    labels = {column for rows in tables.values() for column in rows[0]}
    labels |= {row["metric"] for row in tables["metrics"]}
    for table, column in (("latency", "kind"), ("latency", "operation"), ("sizes", "at"), ("areas", "area")):
        labels |= {row[column] for row in tables.get(table, [])}
    assert [label for label in labels if not meaning_of(label)] == []


@pytest.mark.parametrize("every", [[], ["--all"]])
def test_every_line_of_a_comparison_is_explained(every: list[str]) -> None:
    requests = [AnalysisRequest(name) for name in (CHURN, str(traces.DIRECTORY / "f2fs-varmail"))]
    text = lines(compare(requests, CHURN), bool(every), width=1000)
    labels = [line.split("  ")[0] for line in text[1:-1]]
    assert len(labels) > 20
    assert [label for label in labels if not meaning_of(label)] == []


def test_a_number_is_explained_word_by_word_with_its_unit() -> None:
    said = trace("analyze", "--explain", "latency.d2c.write.p99.9")
    assert said.startswith("latency.d2c.write.p99.9 (ns): ")
    assert "  p99.9: 99.9 % of them are not larger." in said
    assert "  write: Writes with data" in said
    assert trace("analyze", "--explain", "512 KiB writes, of requests").startswith(
        "512 KiB writes, of requests: size_512k.request_share (share"
    )
    assert (unit("latency.d2c.write.p99"), unit("sizes.write.issued.mean"), unit("fs_waf").name) == (NS, BYTES, "ratio")
    assert unit("sequentiality.per_log.hot_data.byte_share") is SHARE


def test_every_label_leads_to_a_place_that_has_a_meaning() -> None:
    for metric in METRICS.values():
        for label, place in metric.labels.items():
            assert meaning_of(f"{metric.name}.{place}".rstrip(".")), label
            assert explain(label)


def test_what_is_no_label_is_not_explained() -> None:
    for name in ("latency.d2c.write.p98", "writes.nothing", "melded", "", "*", "sizes.*"):
        assert meaning_of(name) == "", name
