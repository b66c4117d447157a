"""Devices are judged on a file system of a disk: holes, direct reads and what it refuses are not those of memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory on a disk, also where those of the other tests lie in memory."""
    with tempfile.TemporaryDirectory(prefix="f2-device-", dir="/var/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)
