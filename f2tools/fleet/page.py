"""A run as one HTML page: outliers, distributions, findings by code; no script, nothing fetched."""

from __future__ import annotations

from f2tools.fleet.summary import DISTRIBUTIONS, SHOWN, STANDS_OUT, Summary
from f2tools.pictures.svg import Line, Picture, svg
from f2tools.text import markup
from f2tools.trace.report.html import document, table

BLUE = "#0072b2"


def page(summary: Summary) -> str:
    """The whole file."""
    not_ok = summary.targets - summary.ok
    parts = [
        f"<h1>fleet {summary.verb}: {summary.targets:,} targets</h1>",
        f"<p>{summary.ok:,} ok, {not_ok:,} not; {summary.not_looked_at:,} could not be looked at;"
        f" {summary.findings:,} findings</p>",
        _outliers(summary, not_ok),
        _reasons(summary),
    ]
    for name, (title, edges) in DISTRIBUTIONS[summary.verb].items():
        counts = summary.bins[name]
        if any(counts):
            names = [f"≤ {edge:,.12g}" for edge in edges] + [f"> {edges[-1]:,.12g}"]
            parts.append(f"<h2>{markup(title)}</h2>{svg(_bars(name, title, 'targets', names, counts))}")
    if summary.codes:
        common = summary.targets_by_code.most_common(SHOWN)
        picture = _bars("codes", "Findings by code", "targets", [code for code, _ in common], [n for _, n in common])
        rows = [[code, summary.kinds.get(code, ""), f"{summary.codes[code]:,}", f"{count:,}"] for code, count in common]
        codes = table(["code", "what", "findings", "targets"], rows, ("what",))
        parts.append(f"<h2>Findings by code</h2>{svg(picture)}{codes}")
    return document(f"fleet {summary.verb}", "".join(parts))


def _outliers(summary: Summary, not_ok: int) -> str:
    columns = STANDS_OUT[summary.verb]
    outliers = summary.outliers
    rows = [
        [
            row["target"],
            "yes" if row["ok"] else "no",
            *(_cell(row.get(name)) for name in columns),
            (row["reason"] or "").removeprefix(f"{row['target']}: "),
        ]
        for row in outliers
    ]
    if not rows:
        return ""
    left = not_ok - sum(not row["ok"] for row in outliers)
    note = f'<p class="note">{left:,} more are not ok; the table has them all.</p>' if left else ""
    head = ["target", "ok", *columns, "reason"]
    return f"<h2>What stands out</h2>{table(head, rows, ('target', 'reason'))}{note}"


def _reasons(summary: Summary) -> str:
    rows = [[reason, f"{count:,}"] for reason, count in summary.reasons.most_common(SHOWN)]
    what = "Why targets could not be looked at"
    return f"<h2>{what}</h2>{table(['reason', 'targets'], rows, ('reason',))}" if rows else ""


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def _bars(name: str, title: str, what: str, names: list[str], counts: list[int]) -> Picture:
    bars = [float(count) for count in counts]
    return Picture(
        name, title, "bars", "", what, y_range=(0, max(bars)), lines=[Line(what, BLUE, [], bars)], names=names
    )
