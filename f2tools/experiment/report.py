"""A report on experiments: as text, as one HTML file that needs nothing else, as JSON, and its figures as files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from f2tools import newfile
from f2tools.experiment.model import VERDICTS, ExperimentReport
from f2tools.pictures.png import write_png
from f2tools.pictures.svg import Picture, svg
from f2tools.pictures.svg import document as svg_document
from f2tools.text import markup
from f2tools.trace.report.html import document as html_document

STYLE = """
td,th{text-align:left;vertical-align:top;white-space:normal}table{width:100%}
.v0{color:#080}.v1{color:#a60}.v2{color:#c00}.v3{color:#777}td.v0,td.v1,td.v2,td.v3{white-space:nowrap;font-weight:600}
@media(prefers-color-scheme:dark){.v0{color:#6c6}.v2{color:#f66}}
"""
SUM = "What is claimed, and what was seen"


def lines_of(report: ExperimentReport) -> Iterator[str]:
    """One experiment for a terminal."""
    it = report.experiment
    yield f"{it.name}: {it.title} ({it.section})"
    yield f"  in the paper: {it.setup}"
    yield f"  here: {said_of(report)}"
    yield ""
    for claim in report.outcome.claims:
        yield f"  {claim.verdict.upper()}: {claim.claim}"
        yield f"    paper: {claim.paper}; here: {claim.here}"
        if claim.reason:
            yield f"    {claim.reason}"
    if report.outcome.rows:
        yield ""
    for row in report.outcome.rows:
        yield f"  {row.what}: {row.here}" + (f" (paper: {row.paper})" if row.paper not in ("", "-") else "")


def said_of(report: ExperimentReport) -> str:
    """Where it was run, and how large."""
    setting = report.setting
    fs = "" if setting.on == "engine" or os.path.isdir(setting.on) else f", {', '.join(setting.fs)}"
    took = f"{report.cpu_seconds:.0f} s of processor time"
    return f"on {setting.on}{fs}, scale {setting.scale}, seed {setting.seed}, {took}"


def page(reports: list[ExperimentReport], of_all: bool) -> str:
    """All of them as one HTML file, or one of them."""
    title = "The papers' evaluations" if of_all else reports[0].experiment.title
    body = [f"<h1>{markup(title)}</h1>"]
    if of_all:
        body.append(f"<h2>{SUM}</h2>" + _table(
            ["experiment", "claim", "paper", "here", "verdict"],
            [[r.experiment.name, c.claim, c.paper, c.here, (c.verdict,)] for r in reports for c in r.outcome.claims],
        ))  # fmt: skip
    body += [_section(report) for report in reports]
    return html_document(title, f"<style>{STYLE}</style>{''.join(body)}")


def _section(report: ExperimentReport) -> str:
    it, outcome = report.experiment, report.outcome
    claims = [[c.claim, c.paper, c.here, (c.verdict,), c.reason] for c in outcome.claims]
    parts = [
        f"<h2>{markup(it.name)}: {markup(it.title)}</h2>",
        f'<p class="note">{markup(it.section)}. In the paper: {markup(it.setup)}.<br>'
        f"Here: {markup(said_of(report))}.</p>",
        _table(["claim", "paper", "here", "verdict", "why"], claims),
    ]
    if outcome.rows:
        rows: list[list[Any]] = [[r.what, r.paper, r.here, r.why] for r in outcome.rows]
        parts.append("<h3>In numbers</h3>" + _table(["", "paper", "here", "why they differ"], rows))
    for picture in outcome.pictures:
        parts.append(f"<h3>{markup(picture.title)}</h3>{svg(picture)}")
        if picture.said:
            parts.append(f'<p class="note">{markup(picture.said)}</p>')
    return "".join(parts)


def _table(head: list[str], rows: list[list[Any]]) -> str:
    """Cells are texts; a verdict stands in a tuple."""
    top = "".join(f"<th>{markup(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: Any) -> str:
    if isinstance(cell, tuple):
        return f'<td class="v{VERDICTS.index(cell[0])}">{markup(cell[0])}</td>'
    return f"<td>{markup(str(cell))}</td>"


def document(reports: list[ExperimentReport], of_all: bool) -> Any:
    """What --json prints: an experiment's own object, or one with a list of them."""
    if not of_all:
        return reports[0].as_dict()
    return {
        "experiments": [one.as_dict() for one in reports],
        "claims": [{"experiment": r.experiment.name, **c.as_dict()} for r in reports for c in r.outcome.claims],
    }  # fmt: skip


def write(reports: list[ExperimentReport], directory: Path, of_all: bool) -> None:
    """report.html, report.json and the figures, as SVG and where matplotlib is there as PNG."""
    numbers = json.dumps(document(reports, of_all), indent=1) + "\n"
    for name, text in (("report.html", page(reports, of_all)), ("report.json", numbers)):
        with newfile.replacing(str(directory / name)) as file:
            file.write(text.encode(errors="replace"))
    pictures = [picture for report in reports for picture in report.outcome.pictures]
    if not pictures:
        return
    figures = directory / "figures"
    newfile.create_directory(str(figures))
    for picture in pictures:
        _draw(picture, figures)


def _draw(picture: Picture, figures: Path) -> None:
    with newfile.replacing(str(figures / f"{picture.name}.svg")) as file:
        file.write(svg_document(picture).encode())
    if have_matplotlib():
        with newfile.replacing(str(figures / f"{picture.name}.png")) as file:
            write_png(picture, file)


def have_matplotlib() -> bool:
    """Whether figures can be drawn as PNG too."""
    return find_spec("matplotlib") is not None
