"""Fixtures that every test may use: reference images, their damaged forms, the guest with the real kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import images


@pytest.fixture(scope="session")
def reference() -> Callable[[str], images.Reference]:
    """`reference("plain")`: the reference image of that name, unpacked, for reading; `.copy(folder)` to write to it."""
    return images.reference


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[[str], images.Reference]:
    """`damaged("inode-nlink")`: a private copy of the base image with that damage."""
    return lambda name: images.damaged(name, tmp_path / name)
