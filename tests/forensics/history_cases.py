"""The recorded cases as tests use them: the image unpacked once, and what undelete finds in it, computed once."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import f2tools
from f2tools.forensics.index import open_index
from f2tools.forensics.undelete import Undelete, as_dict
from tests.forensics.score import Score, score
from tests.images import unpacked

CASES = Path(__file__).parent / "cases"
NAMES = tuple(sorted(path.name for path in CASES.iterdir() if path.is_dir() and (path / "image.zst").exists()))


def image_of(name: str) -> Path:
    """The image of a case, read-only."""
    return unpacked(CASES / name / "image.zst")


@cache
def found_in(name: str) -> list[dict[str, Any]]:
    """What `undelete --versions --json` would print."""
    with f2tools.open(image_of(name)) as volume, open_index(volume) as index:
        run = Undelete(volume, index)
        result = []
        for found in run.deleted():
            run.digest(found)
            result.append(as_dict(found))
        result += [as_dict(found) for found in run.older()]
    return result


@cache
def score_of(name: str) -> Score:
    """How that compares with what is there."""
    return score(CASES / name, found_in(name))
