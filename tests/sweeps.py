"""How much of a sweep a test runs: some of its cases in `make test`, all of them with $F2_SWEEPS, as in `make nightly`.

Which ones is fixed, so that a run can be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

ALL = bool(os.environ.get("F2_SWEEPS"))
T = TypeVar("T")


def some(cases: Iterable[T], number: int) -> Sequence[T]:
    """So many of the cases, spread evenly, the first and the last among them; or all of them."""
    there = list(cases)
    if ALL or len(there) <= number:
        return there
    return [there[at * (len(there) - 1) // (number - 1)] for at in range(number)]
