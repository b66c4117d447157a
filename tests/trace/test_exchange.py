"""What is exported as Parquet answers questions in SQL with the numbers of the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from f2tools.trace import exchange
from tests.dump.craft import f2
from tests.images import ROOT
from tests.trace import traces

SQL = re.search(r"```sql\n(.*?)```", (ROOT / "docs" / "trace.md").read_text(), re.DOTALL)


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
    assert f2("trace", "export", prefix, "-o", tmp_path / "out").code == 2  # not empty
