"""The numbers of a mount: whose they are, and what is made of those that can't be."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from f2tools.fuse import status
from f2tools.mount.status import ask
from tests.f2fs.write.volumes import fresh
from tests.fuse.test_status import WHOLE, answering, place  # noqa: F401
from tests.judges import missing_judge
from tests.mount.mounted import mounted
from tests.mount.test_mount import f2tools

ASKING = """
import os, socket, sys
asking = socket.socket(socket.AF_UNIX)
os.setuid(65534)
asking.connect(sys.argv[1])
print(asking.recv(100))
"""


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("more", [{"read_only": False, "blocks": {}}, {"blocks": [], "logs": 5}], ids=str)
def test_numbers_that_can_not_be_printed_are_none(more: dict[str, object]) -> None:
    with answering(json.dumps(WHOLE | more).encode()):
        assert ask("/mnt") is None


def test_another_user_gets_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        missing_judge("only root can become somebody else", "who gets answers")
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        with mounted(fresh(tmp_path), tmp_path / "mnt") as mount:
            path = status.socket_path(str(mount.directory))
            assert [stat.S_IMODE(directory.stat().st_mode) for directory in path.parents[:2]] == [0o700, 0o700]
            assert f2tools("mount", "--stats", mount.directory).returncode == 0
            for opened in (*path.parents[:2], path):  # as if he could get there
                opened.chmod(0o777)
            done = subprocess.run([sys.executable, "-c", ASKING, path], capture_output=True, text=True, check=False)
            assert done.stdout == "b''\n", done
