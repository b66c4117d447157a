"""What is exported as Parquet answers questions in SQL, and is a trace again, with the numbers of the report."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest

from f2tools.blktrace.exported import MANIFEST
from f2tools.blktrace.records import MAX_SECTOR
from f2tools.trace import analyze as analysis
from f2tools.trace import exchange
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests.dump.craft import f2
from tests.images import DIRECTORY, ROOT
from tests.trace import traces
from tests.trace.test_jobs import damaged
from tests.trace.test_pieces import cuts_of, long_lived

SQL = re.search(r"```sql\n(.*?)```", (ROOT / "docs" / "trace.md").read_text(), re.DOTALL)
TRACES = sorted(path.parent.name for path in DIRECTORY.glob("traces/*/x.blktrace.0.zst"))


def test_the_questions_of_the_page_have_the_answers_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MINUTE", 10**9)  # so that there are several
    prefix = traces.unpacked("f2fs-varmail", tmp_path)
    report = json.loads(f2("trace", "analyze", prefix, "--json").out)
    done = f2("trace", "export", prefix, "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert len(list((tmp_path / "out" / "events").iterdir())) > 3
    monkeypatch.chdir(tmp_path / "out")
    assert SQL is not None
    statements = [text for text in SQL[1].split(";") if text.strip()]
    sums, slowest, by_size, queued, issued = (duckdb.sql(text).fetchall() for text in statements)
    found: dict[str, Any] = {row[0]: row[1:] for row in sums}
    assert found["read"][1] == report["reads"]["bytes"]
    assert found["write"][0] == report["latency"]["d2c"]["write"]["count"]
    assert slowest[0][3] == max(row["max"] for row in report["latency"]["d2c"].values())
    assert by_size
    by_pid = {row["pid"]: row["writes"]["bytes"] for row in report["processes"]}
    assert {pid: size for pid, kind, size in queued if kind == "write"}.items() >= by_pid.items() - {
        item for item in by_pid.items() if not item[1]
    }
    whole = sum(report[f"{kind}s"]["bytes"] for kind in ("read", "write", "discard"))
    assert sum(size for _, size in issued) == whole
    assert f2("trace", "export", prefix, "-o", tmp_path / "out").code == 1  # not empty


def numbers(trace: Path | str, **more: Any) -> str:
    """A report without the names of what it is about."""
    report = analyze(AnalysisRequest(str(trace), **more)).report
    return json.dumps({name: value for name, value in report.items() if name not in ("trace", "trace_files")})


def exported(prefix: Path, at: Path) -> Path:
    done = f2("trace", "export", prefix, "-o", at)
    assert done.code == 0, done.err
    return at


@pytest.mark.parametrize("name", TRACES)
def test_an_export_is_read_back_with_the_report_of_the_trace(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MINUTE", 10**9)
    for module in (analysis, exchange):  # with cuts, and with windows that end elsewhere
        monkeypatch.setattr(module, "cuts_of", lambda files: cuts_of(files, 40 << 10))
    prefix = traces.unpacked(name, tmp_path)
    out = exported(prefix, tmp_path / "out")
    assert numbers(out) == numbers(prefix)
    assert numbers(out, issue_only=True, jobs=2) == numbers(prefix, issue_only=True)


@pytest.mark.parametrize("name", ["churn", "varmail"])
def test_an_export_is_attributed_to_logs_and_files_as_the_trace_is(name: str, tmp_path: Path) -> None:
    prefix = traces.unpacked(name, tmp_path)
    known = {"image": str(traces.image(name, "before")), "image_after": str(traces.image(name, "after"))}
    assert numbers(exported(prefix, tmp_path / "out"), **known) == numbers(prefix, **known)


def test_events_of_an_export_are_those_of_the_trace_and_it_can_be_exported_again(tmp_path: Path) -> None:
    prefix = traces.unpacked("churn", tmp_path)
    out = exported(prefix, tmp_path / "out")
    assert f2("trace", "events", out).out == f2("trace", "events", prefix).out
    again = exported(out, tmp_path / "again")
    assert (again / MANIFEST).read_bytes() == (out / MANIFEST).read_bytes()


def without_a_cpu(path: Path) -> Path:
    prefix = traces.write(path, [event for cpu in range(2) for event in traces.request(cpu * 10**6, 8, cpu=cpu)])
    Path(f"{prefix}.blktrace.0").unlink()
    return prefix


@pytest.mark.parametrize(
    "make", [damaged, lambda path: long_lived(path, lost=True), without_a_cpu], ids=["damaged", "lost", "missing"]
)
def test_what_is_wrong_with_a_trace_is_exported_with_it(make: Callable[[Path], Path], tmp_path: Path) -> None:
    prefix = make(tmp_path)
    report = numbers(prefix)
    assert json.loads(report)["damage"]["problems"]
    out = exported(prefix, tmp_path / "out")
    assert numbers(out) == report
    assert f2("trace", "analyze", out, "--strict").code == 1


def test_a_text_is_exported_with_its_names_and_page_writes(tmp_path: Path) -> None:
    text = DIRECTORY / "traces" / "churn" / "ftrace.txt.zst"
    report = numbers(text)
    assert json.loads(report)["tracepoints"]
    assert numbers(exported(text, tmp_path / "out")) == report


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return exported(traces.unpacked("f2fs-varmail", tmp_path), tmp_path / "out")


def changed(export: Path, do: Callable[[dict[str, Any]], None]) -> None:
    kept = json.loads((export / MANIFEST).read_text())
    do(kept)
    (export / MANIFEST).write_text(json.dumps(kept))


def refused(export: Path, *words: str) -> None:
    done = f2("trace", "analyze", export)
    assert (done.code, done.out, len(done.err.splitlines())) == (1, b"", 1)
    for word in words:
        assert word in done.err


def test_an_export_that_is_not_whole_is_said_so(export: Path) -> None:
    (part,) = export.glob("events/*/part.parquet")
    table = pq.read_table(part)
    pq.write_table(table.slice(0, 100), part)
    refused(export, str(part), f"has 100 rows and not the {len(table):,}", "export the trace again")
    pq.write_table(table.drop_columns(["pid"]), part)
    refused(export, "has no column pid")
    at = table.schema.get_field_index("sector")
    pq.write_table(table.set_column(at, "sector", table["sector"].cast("double")), part)
    refused(export, "has double in the column sector, not int64")
    far = np.full(len(table), MAX_SECTOR - 1)  # of events longer than a sector
    pq.write_table(table.set_column(at, "sector", pyarrow.array(far)), part)
    refused(export, "has an event at a place or a time that no device and no clock has")
    part.write_bytes(part.read_bytes()[:-100])
    refused(export, str(part), "can't be read as Parquet")
    part.unlink()
    assert str(part) in f2("trace", "analyze", export).err


@pytest.mark.parametrize(
    "do",
    [
        lambda kept: kept.update(format=2),
        lambda kept: kept.pop("notes"),
        lambda kept: kept["operations"].update({"999": 1}),
        lambda kept: kept["damage"].update(gaps=[{"stream": "x", "cpu": "0", "start": 0, "end": 1, "count": 1}]),
        lambda kept: kept["damage"].update(problems=[3]),
        lambda kept: kept["rows"].update(events=[1]),
    ],
)
def test_a_forged_beside_file_is_an_error_in_one_line(export: Path, do: Callable[[dict[str, Any]], None]) -> None:
    changed(export, do)
    refused(export, MANIFEST, "is not what `trace export` of this f2tools writes")


def test_an_export_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "new"
    assert f2("trace", "export", tmp_path / "none", "-o", out).code == 8
    assert not out.exists()
    prefix = traces.unpacked("f2fs-varmail", tmp_path)
    monkeypatch.setattr(exchange, "manifest_of", lambda *_: 1 / 0)
    for before in (False, True):
        if before:
            out.mkdir()
        with pytest.raises(ZeroDivisionError):
            exchange.export(str(prefix), str(out))
        assert out.exists() == before
        assert not before or not list(out.iterdir())
    shutil.rmtree(out)
