"""`fsck -i`, at a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.images import damaged

F2TOOLS = Path(sys.executable).parent / "f2tools"


def answered(answer: bytes, *words: str | Path) -> int:
    """The exit code of a command that gets the same answer to all that it asks."""
    ours, its = pty.openpty()
    with subprocess.Popen([F2TOOLS, *words], stdin=its, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        os.close(its)
        os.write(ours, answer * 9)
        code = run.wait()
    os.close(ours)
    return code


def test_who_says_no_to_everything_keeps_no_undo_file_and_may_start_again_with_its_name(tmp_path: Path) -> None:
    image, undo = damaged("inode-blocks", tmp_path).path, tmp_path / "undo"
    before = image.read_bytes()
    assert answered(b"n\n", "fsck", "-i", "--undo", undo, image) == 4
    assert not undo.exists()
    assert image.read_bytes() == before
    assert answered(b"y\n", "fsck", "-i", "--undo", undo, image) == 1
    assert undo.exists()
