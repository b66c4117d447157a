"""What is there before a module of these tests is left alone by the garbage collector, which a resize calls often."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def _collected_before() -> None:
    gc.collect()
    gc.freeze()
