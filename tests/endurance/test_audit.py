"""The audit judged: it finds what was safe, and a file that was promised and is not there."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.endurance.audit import audited
from tests.endurance.promising import content, promised
from tests.f2fs.write.volumes import fresh

STORM = Path(__file__).parents[1] / "mount" / "storm.py"


def test_a_mount_under_load_has_at_any_moment_what_was_safe(tmp_path: Path) -> None:
    load = [sys.executable, STORM, ".", "1", "100000", "leave", "200"]  # a fast machine does not fill it
    wrong, held = audited(fresh(tmp_path), tmp_path, load, ("-o", "allow_other"), "direct", 2, 1.5)
    assert not wrong
    assert held > 5


def test_a_file_that_was_promised_and_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "said").write_text("has never 10\n")
    wrong, _ = audited(fresh(tmp_path), tmp_path, ["sleep", "60"], ("-o", "allow_other"), "direct", 1, 0.5)
    assert len(wrong) == 1
    assert "never, of which 10 bytes were safe" in wrong[0]


def test_a_load_that_ends_by_itself_is_told(tmp_path: Path) -> None:
    wrong, _ = audited(fresh(tmp_path), tmp_path, ["true"], ("-o", "allow_other"), "direct", 1, 0.5)
    assert wrong == ["audit 0: ended by itself: [['true']]"]


def test_what_is_promised_follows_from_what_was_said() -> None:
    lines = ["has a 10", "has b 20", "grows b", "has c 5", "goes c", "goes a", "has a-1 10"]
    assert promised(lines) == {"b": (20, True), "a-1": (10, False)}
    assert content("a-1", 4) == b"aaaa"
