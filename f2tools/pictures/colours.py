"""Colours by which lines are told apart: those of things that have no order, and a ramp for those that have one."""

from __future__ import annotations

# Okabe and Ito's colours, told apart by people who see colours differently; in place of their yellow and black, which
# can't be seen on white and on black, grey and brown
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777", "#8c510a")
DASHES = ("", "7 3", "2 2", "9 3 2 3")  # where the colours are not enough
# from violet to yellow, neither too dark nor too light to be seen on black and on white
RAMP = ((106, 31, 176), (168, 50, 155), (204, 71, 120), (237, 121, 83), (245, 165, 45))


def colour(number: int) -> str:
    """One of few colours, again and again; `dash` tells those apart that have the same."""
    return COLOURS[number % len(COLOURS)]


def dash(number: int) -> str:
    """How a line with the colour of this number is dashed."""
    return DASHES[number // len(COLOURS) % len(DASHES)]


def ramp(number: int, count: int) -> str:
    """The colour of one of `count` things in their order."""
    place = number / max(count - 1, 1) * (len(RAMP) - 1)
    at = min(int(place), len(RAMP) - 2)
    mixed = [round(a + (b - a) * (place - at)) for a, b in zip(RAMP[at], RAMP[at + 1], strict=True)]
    return "#" + "".join(f"{part:02x}" for part in mixed)
