"""Pictures: what their axes say, and what they leave out."""

from __future__ import annotations

from io import BytesIO
from typing import Any
from xml.etree import ElementTree

import pytest

from f2tools.pictures.png import write_png
from f2tools.pictures.svg import HEIGHT, Line, Picture, document, log_ticks, svg

NAMESPACE = "http://www.w3.org/2000/svg"
US = 1e3  # in ns


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (20 * US, 900 * US, "20 us, 50 us, 100 us, 200 us, 500 us"),
        (2 * US, 30 * US, "2 us, 5 us, 10 us, 20 us"),
        (1.0, 1e10, "1 ns, 10 ns, 100 ns, 1 us, 10 us, 100 us, 1 ms, 10 ms, 100 ms, 1 s, 10 s"),
    ],
)
def test_times_on_a_narrow_axis_are_labelled_between_powers_of_ten(low: float, high: float, texts: str) -> None:
    found = log_ticks(low, high)
    assert ", ".join(text for _, text in found) == texts
    assert all(low <= value * 1.000001 and value <= high * 1.000001 for value, _ in found)


@pytest.mark.parametrize(("low", "high"), [(100 * US, 100 * US * 2**0.25), (610 * US, 900 * US), (3.0, 4.5)])
def test_an_axis_within_an_octave_has_labels_too(low: float, high: float) -> None:
    assert len(log_ticks(low, high)) >= 3


def cut(**options: Any) -> Picture:
    """A picture of two lines, one of which goes far beyond the top."""
    lines = [Line("low", "#000000", [0, 1], [1, 2]), Line("high", "#0072b2", [0, 1], [1, 30 << 30])]
    return Picture("p", "Cut", "lines", "seconds", "bytes a second", y_range=(0, 2 << 20), lines=lines, **options)


def test_what_is_cut_off_at_the_top_is_said_in_the_picture() -> None:
    said = "Cut off at the top (bytes a second): high goes up to 30 GiB."
    assert cut(y_size=True).said == said
    assert said in document(cut(y_size=True))
    assert f"A note. {said}" in document(cut(y_size=True, note="A note."))
    whole = cut()
    whole.y_range = (0, 30 << 30)
    assert whole.said == ""
    assert document(whole).count("<text") == svg(whole).count("<text") + 1  # the title


def test_a_long_note_is_drawn_in_lines_below_the_picture() -> None:
    words = " ".join(f"word{n}" for n in range(60))
    root = ElementTree.fromstring(document(cut(note=words)))
    height = float(root.attrib["viewBox"].split()[3])
    notes = [text for text in root.iter(f"{{{NAMESPACE}}}text") if float(text.get("y", 0)) > HEIGHT]
    assert len(notes) > 2
    assert " ".join(text.text or "" for text in notes).startswith(words)
    assert all(float(text.attrib["y"]) < height for text in notes)


def test_a_png_says_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="matplotlib is an extra")
    said: list[str] = []
    monkeypatch.setattr(figure.Figure, "supxlabel", lambda _self, text, **_how: said.append(text))
    write_png(cut(), BytesIO())
    assert said == ["Cut off at the top (bytes a second): high goes up to 3.22123e+10."]
