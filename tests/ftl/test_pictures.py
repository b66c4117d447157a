"""The pictures of `f2tools ftl`: what stands in them can be read, and what they show be told apart."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from f2tools.pictures.svg import Line, Picture, document
from tests.ftl.test_commands import run

LETTER = 5.5  # of the small font at least, on average: a text is as wide as this or wider
Box = tuple[float, float, float, float]  # left, top, right, bottom


def pictures(page: str) -> list[ElementTree.Element]:
    """The pictures in a file."""
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def texts(picture: ElementTree.Element) -> list[tuple[str, Box]]:
    """The level texts with where they are at least."""
    found = []
    for each in picture.iter():
        if each.tag.endswith("text") and each.get("transform") is None:
            name = each.text or ""
            wide, x, y = LETTER * len(name), float(each.get("x", "0")), float(each.get("y", "0"))
            left = {"end": x - wide, "middle": x - wide / 2}.get(each.get("text-anchor", ""), x)
            found.append((name, (left, y - 8, left + wide, y)))
    return found


def assert_readable(picture: ElementTree.Element) -> None:
    """No text is cut off or lies over another; slanting ones don't either; no two lines look the same."""
    x, y, width, height = map(float, (picture.get("viewBox") or "").split())
    boxes = texts(picture)
    for n, (name, (left, top, right, bottom)) in enumerate(boxes):
        assert x <= left, name
        assert right <= x + width, name
        assert y <= top, name
        assert bottom <= y + height, name
        for other, (its_left, its_top, its_right, its_bottom) in boxes[:n]:
            apart = right <= its_left or its_right <= left or bottom <= its_top or its_bottom <= top
            assert apart, (name, other)
    starts = []
    for each in picture.iter():
        if "rotate(-45)" in (turned := each.get("transform", "")):
            at = float(re.findall(r"[\d.]+", turned)[0])
            assert at - LETTER * 0.7 * len(each.text or "") >= x, each.text
            starts.append(at)
    assert all(after - before >= 10 for before, after in pairwise(starts))
    lines = Counter(
        (each.get("stroke"), each.get("stroke-dasharray")) for each in picture.iter() if each.tag.endswith("polyline")
    )
    assert set(lines.values()) <= {1}, lines


LOAD = ("--workload", "uniform", "--blocks", 100, "--pages-per-block", 8, "--engine", "python", "--times", 0.5,
        "--warm-up", 0.5)  # fmt: skip


def test_a_sweep_of_several_models_can_be_read(tmp_path: Path) -> None:
    models = ("--model", "page", "--model", "bast", "--model", "dftl", "--page", 512)
    words = ("sweep", *LOAD, *models, "--op", "15..45%", "--html")
    run(*words, tmp_path / "s.html")
    page = (tmp_path / "s.html").read_text()
    found = {picture.get("aria-label"): picture for picture in pictures(page)}
    for picture in found.values():
        assert_readable(picture)
    over_op = found["Write amplification over over-provisioning"]
    assert [name for name, _ in texts(over_op)][:5] == ["FIFO, in theory", "greedy, in theory", "dftl", "bast", "page"]
    for model in ("page", "bast", "dftl"):
        shares = [name for name, _ in texts(found[f"Write amplification over time: {model}"]) if name.endswith("%")]
        assert shares == [f"{op:g}%" for op in range(45, 14, -3)]
        assert f"Valid pages of the blocks that were cleaned: {model}" in found
    assert "Merges: bast" in found
    assert "Merges: page" not in found
    run(*words, tmp_path / "again.html")
    again = (tmp_path / "again.html").read_text()
    assert pictures_of(again) == pictures_of(page), "the same sweep looks the same"


def pictures_of(page: str) -> str:
    """What is behind the table, which has the time that it took."""
    return page[page.index("<svg") :]


def test_a_sweep_of_very_many_steps_or_one_can_be_read(tmp_path: Path) -> None:
    run("sweep", *LOAD, "--op", "20..60%:1", "--html", tmp_path / "s.html")
    found = {picture.get("aria-label"): picture for picture in pictures((tmp_path / "s.html").read_text())}
    for picture in found.values():
        assert_readable(picture)
    shares = [name for name, _ in texts(found["Write amplification over time"]) if name.endswith("%")]
    assert len(shares) == 12
    assert {"20%", "60%"} <= set(shares)
    run("sweep", *LOAD, "--op", "20..21%:2", "--svg", tmp_path / "one.svg")
    assert "<circle" in (tmp_path / "one.svg").read_text()


def test_many_runs_side_by_side_can_be_read(tmp_path: Path) -> None:
    name = "a-rather-long-name-of-a-trace-as-people-give-them"
    for n in range(4):
        lines = "".join(f"f write {at * 4096} 4096\n" for at in [*range(400), *range(0, 400, 3)])
        (tmp_path / f"{name}-{n}").write_text(f"fio version 2 iolog\n{lines}")
    run("compare", *(tmp_path / f"{name}-{n}" for n in range(4)), "--engine", "python", "--op", "30%",
        "--pages-per-block", 8, "--html", tmp_path / "c.html", "--png", tmp_path / "c.png")  # fmt: skip
    made = pictures((tmp_path / "c.html").read_text())
    assert len(made) == 5
    for picture in made:
        assert_readable(picture)


@pytest.mark.parametrize("count", [1, 3, 20, 60, 200])
def test_a_legend_and_names_below_bars_fit_however_many_there_are(count: int) -> None:
    names = [f"run {n} of many <&>" for n in range(count)]
    bars = Picture("b", "Bars", "bars", "", "pages", lines=[Line("WAF", "#000", [], [0.5] * count)], names=names)
    lines = [Line(name, f"#{n:06x}", [0, 1], [0, 1]) for n, name in enumerate(names)]
    for what in (bars, Picture("l", "Lines", "lines", "seconds", "pages", lines=lines)):
        picture = ElementTree.fromstring(document(what).partition("?>")[2])
        assert_readable(picture)
        shown = [each.text for each in picture.iter() if each.tag.endswith(("text", "title"))]
        assert all(any(name in (text or "") for text in shown) for name in names)
