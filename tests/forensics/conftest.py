"""Running the command as a user does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def run_f2tools() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_f2tools("scan", image)`: the finished process."""

    def run(*args: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["f2tools", *map(str, args)], check=False, capture_output=True, text=True)

    return run
