"""Ctrl-C at a chosen moment: at the n-th call of a function of a package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def interrupted(package: str, calls: int, do: Callable[[], object]) -> bool:
    """Whether `do` was cut off by a KeyboardInterrupt at that call; False where it came to its end before."""
    left = calls

    def trace(frame: FrameType, event: str, _: Any) -> None:
        nonlocal left
        if event == "call" and f"/f2tools/{package}/" in frame.f_code.co_filename:
            left -= 1
            if not left:
                raise KeyboardInterrupt

    sys.settrace(trace)
    try:
        do()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False
