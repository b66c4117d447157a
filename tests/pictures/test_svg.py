"""Pictures: what their axes say."""

from __future__ import annotations

import pytest

from f2tools.pictures.svg import log_ticks

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
