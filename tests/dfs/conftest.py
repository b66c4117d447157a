"""Volumes with both kinds of directories: tests that ask for `directories` run once with each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dfs import volumes


@pytest.fixture(params=["log", "hashed"])
def directories(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kind with which `volumes` makes volumes in this test."""
    volumes.hashed = request.param == "hashed"
    yield request.param
    volumes.hashed = False
