"""JSON from files that lie beside an image, a trace or a report: anybody may have changed them since."""

from __future__ import annotations

import json
from typing import Any


def loads(text: str | bytes) -> Any:
    """What a text says; ValueError where it is no JSON, or is nested deeper than anything that is meant."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
