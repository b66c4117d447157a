"""gcc's sanitizers of addresses and undefined behaviour have nothing to say of the compiled core.

They watch some of its tests here; `make sanitize` has all of them, and more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import judges
from tests.native import sanitized

pytestmark = pytest.mark.xdist_group("sanitized")  # it is built once

WATCHED = ("test_core.py", "test_fuse.py", "test_hostfiles.py", "test_listed.py", "test_live.py", "test_nodes.py")


@pytest.fixture(autouse=True)
def gcc() -> None:
    judges.need_tool("gcc")


def test_a_sanitizer_that_has_something_to_say_is_heard(capfd: pytest.CaptureFixture[str]) -> None:
    assert sanitized.run(["-c", "import ctypes; ctypes.string_at(8)"]) == 1
    assert "AddressSanitizer: SEGV" in capfd.readouterr().err
    assert sanitized.run(["-c", "import sys; sys.exit(3)"]) == 3


@pytest.mark.parametrize("watched", WATCHED)
def test_the_core_is_watched_and_nothing_is_said(watched: str, capfd: pytest.CaptureFixture[str]) -> None:
    looks = "from f2tools.native import core; assert core.__file__ == __import__('os').environ['F2_SANITIZED_CORE']"
    assert sanitized.run(["-c", looks]) == 0
    assert sanitized.run(["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"tests/native/{watched}"]) == 0, (
        capfd.readouterr()
    )


def test_damaged_volumes_are_repaired_and_nothing_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("base", "compress-lz4"):
        assert sanitized.run(["-m", "tests.fsck.fuzz", name, "1", "5", str(tmp_path)]) == 0, capfd.readouterr()
