"""A report as one HTML file: tables, pictures, definitions; no script, nothing fetched, readable without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from f2tools.blktrace.damage import KINDS
from f2tools.options import human_size
from f2tools.pictures.svg import Line, Picture, svg
from f2tools.text import PAGE_HEAD, markup
from f2tools.trace.analyze import Analysis
from f2tools.trace.metrics.catalogue import METRICS, label, meaning_of, shown
from f2tools.trace.metrics.metric import duration, percent
from f2tools.trace.report.compare import cell, rows_of, short_names
from f2tools.trace.report.overlay import overlays
from f2tools.trace.report.pictures import every
from f2tools.trace.report.text import missing_latencies, where

if TYPE_CHECKING:
    from f2tools.trace.report.compare import Comparison

STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;max-width:1000px;margin:1.5em auto;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.4em;overflow-wrap:anywhere}h2{font-size:1.1em;margin:1.8em 0 .4em}
table{border-collapse:collapse;margin:.5em 0}th,td{padding:.15em .7em;text-align:right;border-bottom:1px solid #8884}
th:first-child,td:first-child{text-align:left}th,td{white-space:nowrap}thead th{border-bottom:2px solid #8888}
td.sentence,th.sentence{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:12em}
.wide{overflow-x:auto}.damage{border-left:4px solid #d33;padding:.3em .8em;background:#d331}
.note{color:#777;font-size:.9em}
svg{width:100%;height:auto;margin:.6em 0}summary{cursor:pointer}dt{font-weight:600;margin-top:.6em}dd{margin-left:1.2em}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181a1b}}
@media print{details{display:none}}
"""


def page(done: Analysis) -> str:
    """The whole file."""
    report = done.report
    devices = _text(", ".join(report["devices"]) or "-")
    parts = [
        f"<h1>{_text(report['trace'])}</h1>",
        f"<p>{report['events']:,} events in {duration(report['duration_ns'])}, device {devices}</p>",
        _damage(report),
        "<h2>Traffic</h2>", _traffic(report), _facts(report),
    ]  # fmt: skip
    if report["areas"]:
        parts += ["<h2>Areas and logs</h2>", _areas(report)]
    for what in every(done):
        parts.append(_with_note(what))
    parts += ["<h2>Latency</h2>", _latency(report), "<h2>How sequential</h2>", _sequential(report)]
    if report["files"]:
        parts += ["<h2>Files</h2>", _files(report)]
    parts += ["<h2>Processes</h2>", _processes(report), "<h2>What the words mean</h2>", _definitions()]
    return document(f"Block trace {report['trace']}", "".join(parts))


def document(title: str, body: str) -> str:
    """A page around its body."""
    return (
        PAGE_HEAD + '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_text(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _with_note(what: Picture) -> str:
    note = f'<p class="note">{_text(what.said)}</p>' if what.said else ""
    return f"<h2>{_text(what.title)}</h2>{svg(what)}{note}"


def _text(value: object) -> str:
    return markup(str(value))


def table(head: list[str], rows: list[list[str]], sentences: tuple[str, ...] = ()) -> str:
    """A table; cells are texts, not markup.  Those in columns of `sentences` have lines as long as there is room."""
    open_tags = ['<td class="sentence">' if name in sentences else "<td>" for name in head]
    top = "".join(f"<th{tag[3:]}{_cell_head(name)}</th>" for name, tag in zip(head, open_tags, strict=True))
    body = "".join(
        "<tr>" + "".join(f"{tag}{_text(cell)}</td>" for tag, cell in zip(open_tags, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell_head(name: str) -> str:
    meaning = meaning_of(name)
    return f'<abbr title="{markup(meaning)}">{_text(name)}</abbr>' if meaning else _text(name)


def _damage(report: dict[str, Any]) -> str:
    damage = report["damage"]
    found = [f"{damage[kind]:,} {kind}" for kind in KINDS if damage[kind]]
    if not found:
        return ""
    places = "".join(f"<li>{_text(where(problem))}</li>" for problem in damage["problems"][:20])
    return f'<div class="damage"><p>The trace is damaged: {", ".join(found)}.</p><ul>{places}</ul></div>'


def _traffic(report: dict[str, Any]) -> str:
    rows = []
    for name in ("read", "write", "discard"):
        requests = "requests_with_data" if name == "write" else "requests"
        sizes = [shown(report, f"sizes.{name}.issued.{which}", 0) for which in ("mean", "median", "max")]
        rows.append([f"{name}s", shown(report, f"{name}s.{requests}"), shown(report, f"{name}s.bytes"), *sizes])
    rows.append(["flushes", shown(report, "flushes"), "", "", "", ""])
    return table(["", "requests", "bytes", "mean", "median", "largest"], rows)


def _facts(report: dict[str, Any]) -> str:
    both = {"size_512k": "size_512k", "size_512k, or more": "size_512k.at_least",
            "small_discards": "small_discards.issued"}  # fmt: skip
    rows = [
        [name, shown(report, f"{path}.request_share"), shown(report, f"{path}.byte_share")]
        for name, path in both.items()
    ]
    rows += [
        [name, "", shown(report, f"{name}.byte_share")]
        for name in ("discard_coverage", "sequentialised", "threaded_share")
        if report[name]
    ]
    if report["fs_waf"] is not None:
        rows.append(["fs_waf", "", shown(report, "fs_waf")])
    return table(["metric", "of requests", "of bytes"], rows)


def _areas(report: dict[str, Any]) -> str:
    whole = sum(report["areas"].values()) or 1
    rows = [[name, human_size(size), percent(size / whole, 2)] for name, size in report["areas"].items()]
    if report["logs"]:
        rows += [[name, human_size(size), percent(size / whole, 2)] for name, size in report["logs"].items()]
        rows.append(["ambiguous", human_size(report["ambiguous"]), percent(report["ambiguous"] / whole, 2)])
    return table(["written", "bytes", "share"], rows)


def _latency(report: dict[str, Any]) -> str:
    names = ["mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"]
    rows = [
        [f"{kind.upper()} {name}", f"{row['count']:,}", *(duration(row[key]) for key in names)]
        for kind in ("d2c", "q2c", "q2d")
        for name, row in report["latency"][kind].items()
    ]
    missing = missing_latencies(report)
    return table(["", "count", *names], rows) + (f'<p class="note">{_text(missing)}</p>' if missing else "")


def _sequential(report: dict[str, Any]) -> str:
    found = report["sequentiality"]
    names = ["strict", "last_8", "last_16", "last_32", "last_64", "near_32_128k", "large_512k"]
    rows = [
        [
            f"{op}s",
            *(f"{_number(found[op][n]['request_share'])} / {_number(found[op][n]['byte_share'])}" for n in names),
        ]
        for op in ("read", "write", "discard")
        if report[f"{op}s"]["requests"]
    ]
    text = table(["requests / bytes, %", *names], rows)
    if found["per_log"]:
        text += table(
            ["at the tail of its own log", "requests", "bytes"],
            [
                [name, percent(row["request_share"]), percent(row["byte_share"])]
                for name, row in found["per_log"].items()
            ],
        )
    return text


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.1f}"


def _files(report: dict[str, Any]) -> str:
    rows = [
        [
            str(ino),
            human_size(f["bytes"]),
            human_size(f["data"]),
            human_size(f["nodes"]),
            f["path"] or "(no path any more)",
        ]
        for ino, f in report["files"].items()
    ]
    return table(["inode", "written", "data", "nodes", "path"], rows)


def _processes(report: dict[str, Any]) -> str:
    rows = [
        [p["name"] or "?", str(p["pid"]), *(human_size(p[op]["bytes"]) for op in ("reads", "writes", "discards"))]
        for p in report["processes"]
    ]
    return table(["process", "pid", "read", "written", "discarded"], rows)


def _definitions() -> str:
    items = "".join(f"<dt>{_text(m.name)}</dt><dd>{_text(m.definition)}</dd>" for m in METRICS.values())
    return f"<details><summary>Every metric, exactly</summary><dl>{items}</dl></details>"


def comparison_page(found: Comparison) -> str:
    """Several traces as one file."""
    names = list(found.reports)
    shown = short_names(names)
    at = names.index(found.baseline)
    main = rows_of(found, False)
    head = ["", *(f"{name} *" if n == at else name for n, name in enumerate(shown))]
    rows = [[label(metric), *(cell(metric, value, values[at]) for value in values)] for metric, values in main]
    parts = [f"<h1>{_text(' · '.join(shown))}</h1>", table(head, rows)]
    parts.append(f'<p class="note">* what the ratios in brackets and the pictures are to: {_text(found.baseline)}</p>')
    parts += [_with_note(what) for what in overlays(found)]
    for metric, values in main:
        base = values[at]
        if not base or metric.startswith("write_reduction") or any(value is None for value in values):
            continue
        bars = [value / base for value in values]
        title = f"{label(metric)}, {shown[at]} = 1"
        what = Picture(
            metric, title, "bars", "", "ratio", y_range=(0, max(bars) or 1),
            lines=[Line(label(metric), "#0072b2", [], bars)], names=shown,
        )  # fmt: skip
        parts.append(f"<h2>{_text(title[:1].upper() + title[1:])}</h2>{svg(what)}")
    return document("Block traces compared", "".join(parts))
