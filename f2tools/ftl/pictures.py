"""The results of simulations as pictures: plain data, which `pictures` draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from f2tools.ftl import theory
from f2tools.ftl.replay import Result
from f2tools.pictures.colours import colour, dash, ramp
from f2tools.pictures.svg import Line, Picture

MOST = 12  # lines of a ramp that can be told apart
IN_THEORY = "#777777"


@dataclass(frozen=True)
class Shown:
    """What a line is of, and how it is told from others."""

    result: Result
    name: str
    colour: str
    dash: str = ""

    def line(self, xs: list[float], ys: list[float]) -> Line:
        """Its line in a picture."""
        return Line(self.name, self.colour, xs, ys, self.dash)


def every(found: list[Result]) -> list[Picture]:
    """All pictures of several runs."""
    shown = [Shown(one, one.report["name"], colour(n), dash(n)) for n, one in enumerate(found)]
    made = [amplification(found), over_time(shown), wear(found)]
    if any(any(one.report["merges"].values()) for one in found):
        made.insert(1, merges(found))
    if any(one.report["victims"]["count"] for one in found):
        made.append(victims(shown))
    return made


def amplification(found: list[Result]) -> Picture:
    """WAF side by side."""
    values = [one.report["waf"] or 0.0 for one in found]
    return _bars("waf", "Write amplification", "pages programmed for each of the host", found, {"WAF": values})


def merges(found: list[Result]) -> Picture:
    """Merges side by side, by kind."""
    rows = {kind: [float(one.report["merges"][kind]) for one in found] for kind in ("switch", "partial", "full")}
    return _bars("merges", "Merges", "merges", found, rows)


def wear(found: list[Result]) -> Picture:
    """The least and the most worn block."""
    rows = {which: [float(one.report["wear"][which]) for one in found] for which in ("min", "mean", "max")}
    return _bars("wear", "Erases of a block", "erases", found, rows)


def _bars(name: str, title: str, label: str, found: list[Result], rows: dict[str, list[float]]) -> Picture:
    top = max((value for values in rows.values() for value in values), default=0.0) or 1.0
    lines = [Line(row, colour(n), [], values) for n, (row, values) in enumerate(rows.items())]
    names = [one.report["name"] for one in found]
    return Picture(name, title, "bars", "", label, y_range=(0, top * 1.05), lines=lines, names=names)


def over_time(shown: list[Shown], of: str = "") -> Picture:
    """The WAF of window after window."""
    lines = []
    for one in shown:
        page = one.result.report["device"]["page_bytes"]
        points = one.result.over_time
        if points:
            lines.append(one.line([at * page for at, _ in points], [waf for _, waf in points]))
    right = max((max(line.x) for line in lines), default=1.0)
    top = max((max(line.y) for line in lines), default=1.0)
    return Picture(
        "over-time", f"Write amplification over time{of}", "lines", "written by the host", "WAF", (0, right),
        (0, top * 1.05), x_size=True, lines=lines,
    )  # fmt: skip


def victims(shown: list[Shown], of: str = "") -> Picture:
    """How many blocks were cleaned with how many valid pages."""
    lines = []
    for one in shown:
        counts = one.result.report["victims"]["valid_histogram"]
        whole = sum(counts)
        if whole:
            ys = [count / whole * 100 for count in counts]
            lines.append(one.line([at / max(len(counts) - 1, 1) * 100 for at in range(len(counts))], ys))
    top = max((max(line.y) for line in lines), default=1.0)
    return Picture(
        "victims", f"Valid pages of the blocks that were cleaned{of}", "lines", "% of a block's pages valid",
        "% of the blocks", (0, 100), (0, top * 1.05), lines=lines,
    )  # fmt: skip


def swept(found: dict[str, list[Result]], uniform: bool) -> list[Picture]:
    """The runs of each model over their over-provisioning; what has no single number, in a picture for each model."""
    made = [sweep(found, uniform), worn(found)]
    for model, runs in found.items():
        of = f": {model}" if len(found) > 1 else ""
        shown = _in_order(runs)
        if any(any(one.report["merges"].values()) for one in runs):
            made.append(merges_over_op(runs, of))
        made.append(over_time(shown, of))
        if any(one.report["victims"]["count"] for one in runs):
            made.append(victims(shown, of))
    return made


def _in_order(runs: list[Result]) -> list[Shown]:
    """Runs with rising over-provisioning, of many some."""
    count = min(len(runs), MOST)
    chosen = [runs[n * (len(runs) - 1) // max(count - 1, 1)] for n in range(count)]
    return [Shown(one, f"{one.setting.op * 100:g}%", ramp(n, count)) for n, one in enumerate(chosen)]


def sweep(found: dict[str, list[Result]], uniform: bool) -> Picture:
    """WAF over over-provisioning, by model; for uniform writes with theory beside it."""
    lines = [
        _over_op(model, n, [one for one in runs if one.report["waf"] is not None], lambda one: one.report["waf"])
        for n, (model, runs) in enumerate(found.items())
    ]
    runs = next(iter(found.values()), [])
    if uniform and runs:
        pages = runs[0].setting.pages_per_block
        ops = [one.setting.op for one in runs]
        for style, name, form in (
            ("7 3", "greedy, in theory", lambda op: theory.greedy(op, pages)),
            ("2 2", "FIFO, in theory", theory.fifo),
        ):
            lines.append(Line(name, IN_THEORY, [op * 100 for op in ops], [form(op) for op in ops], style))
    return _lines_over_op("sweep", "Write amplification over over-provisioning", "WAF", lines)


def worn(found: dict[str, list[Result]]) -> Picture:
    """The most worn block over over-provisioning, by model."""
    lines = [
        _over_op(model, n, runs, lambda one: one.report["wear"]["max"]) for n, (model, runs) in enumerate(found.items())
    ]
    return _lines_over_op("wear", "Erases of the most worn block", "erases", lines)


def merges_over_op(runs: list[Result], of: str) -> Picture:
    """The merges of one model over over-provisioning, by kind."""
    kinds = ("switch", "partial", "full")
    lines = [_over_op(kind, n, runs, lambda one, kind=kind: one.report["merges"][kind]) for n, kind in enumerate(kinds)]
    return _lines_over_op("merges", f"Merges{of}", "merges", lines)


def _over_op(name: str, number: int, runs: list[Result], value: Callable[[Result], float]) -> Line:
    return Line(name, colour(number), [one.setting.op * 100 for one in runs], [float(value(one)) for one in runs])


def _lines_over_op(name: str, title: str, label: str, lines: list[Line]) -> Picture:
    lines = [line for line in lines if line.x]
    top = max((max(line.y) for line in lines), default=0.0) or 1.0
    ops = [x for line in lines for x in line.x]
    span = (min(ops), max(ops)) if ops else (0.0, 1.0)
    return Picture(name, title, "lines", "over-provisioning (T-U)/U, %", label, span, (0, top * 1.05), lines=lines)
