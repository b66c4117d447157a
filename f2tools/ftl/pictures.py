"""The results of simulations as pictures: plain data, which `pictures` draws."""

from __future__ import annotations

from f2tools.ftl import theory
from f2tools.ftl.replay import Result
from f2tools.pictures.svg import Line, Picture

# Okabe and Ito's colours, told apart by people who see colours differently
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")


def colour(number: int) -> str:
    """One of few colours, again and again."""
    return COLOURS[number % len(COLOURS)]


def every(found: list[Result]) -> list[Picture]:
    """All pictures of several runs."""
    made = [amplification(found), over_time(found), wear(found)]
    if any(any(one.report["merges"].values()) for one in found):
        made.insert(1, merges(found))
    if any(one.report["victims"]["count"] for one in found):
        made.append(victims(found))
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


def over_time(found: list[Result]) -> Picture:
    """The WAF of window after window."""
    lines = []
    for n, one in enumerate(found):
        page = one.report["device"]["page_bytes"]
        points = [(at * page, waf) for at, waf in one.over_time]
        if points:
            lines.append(Line(one.report["name"], colour(n), [x for x, _ in points], [y for _, y in points]))
    right = max((max(line.x) for line in lines), default=1.0)
    top = max((max(line.y) for line in lines), default=1.0)
    return Picture(
        "over-time", "Write amplification over time", "lines", "written by the host", "WAF", (0, right),
        (0, top * 1.05), x_size=True, lines=lines,
    )  # fmt: skip


def victims(found: list[Result]) -> Picture:
    """How many blocks were cleaned with how many valid pages."""
    lines = []
    for n, one in enumerate(found):
        counts = one.report["victims"]["valid_histogram"]
        whole = sum(counts)
        if whole:
            ys = [count / whole * 100 for count in counts]
            xs = [at / max(len(counts) - 1, 1) * 100 for at in range(len(counts))]
            lines.append(Line(one.report["name"], colour(n), xs, ys))
    top = max((max(line.y) for line in lines), default=1.0)
    return Picture(
        "victims", "Valid pages of the blocks that were cleaned", "lines", "% of a block's pages valid",
        "% of the blocks", (0, 100), (0, top * 1.05), lines=lines,
    )  # fmt: skip


def sweep(rows: dict[str, list[tuple[float, float]]], pages_per_block: int, uniform: bool) -> Picture:
    """WAF over over-provisioning, by model; for uniform writes with theory beside it."""
    lines = [
        Line(name, colour(n), [op * 100 for op, _ in points], [waf for _, waf in points])
        for n, (name, points) in enumerate(rows.items())
        if points
    ]
    ops = sorted({op for points in rows.values() for op, _ in points})
    if uniform and ops:
        curves = {"greedy, in theory": lambda op: theory.greedy(op, pages_per_block), "FIFO, in theory": theory.fifo}
        for n, (name, form) in enumerate(curves.items()):
            lines.append(Line(name, COLOURS[6 + n], [op * 100 for op in ops], [form(op) for op in ops]))
    top = max((max(line.y) for line in lines), default=1.0)
    span = (ops[0] * 100, ops[-1] * 100) if ops else (0.0, 1.0)
    return Picture(
        "sweep", "Write amplification over over-provisioning", "lines", "over-provisioning (T-U)/U, %", "WAF", span,
        (0, top * 1.05), lines=lines,
    )  # fmt: skip
