"""Nothing that looks into the past writes to the image, not a byte and not a time."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forensics.history_cases import image_of
from tests.images import copy_sparse

COMMANDS = (
    ("scan", "IMAGE", "-o", "OUT/index"),
    ("undelete", "IMAGE", "--versions", "--json"),
    ("undelete", "IMAGE", "-o", "OUT/files"),
    ("history", "IMAGE", "docs"),
    ("history", "IMAGE", "docs/2022/edited.txt", "--json"),
    ("timeline", "IMAGE", "--format", "bodyfile"),
    ("dump", "manifest", "IMAGE", "--as-of", "2024-03-02", "-o", "OUT/manifest"),
)
# Runs a command with a hook that sees every file that Python opens; what opens the image to write ends it.
WATCHED = """
import os, sys
image = os.path.realpath(sys.argv[1])
def watch(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)) and os.path.realpath(os.fsdecode(args[0])) == image:
        flags = args[2] or 0
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & (os.O_TRUNC | os.O_CREAT):
            os._exit(99)
        sys.stderr.write("image opened to read\\n")
    elif event in ("os.truncate", "os.utime", "os.rename", "os.remove", "os.chmod", "os.chown", "os.setxattr"):
        if isinstance(args[0], (str, bytes)) and os.path.realpath(os.fsdecode(args[0])) == image:
            os._exit(98)
sys.addaudithook(watch)
from f2tools.cli import run
sys.argv = ["f2tools", *sys.argv[2:]]
run()
"""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "-".join(command[:2]) + str(len(command)))
def test_the_image_is_only_read(tmp_path: Path, command: tuple[str, ...]) -> None:
    image = copy_sparse(image_of("history-d"), tmp_path / "image")
    os.utime(image, ns=(10**18, 10**18))
    os.chmod(image, 0o444)
    before = (hashlib.sha256(image.read_bytes()).hexdigest(), times(image))
    os.utime(image, ns=(10**18, 10**18))
    before = (before[0], times(image))
    out = tmp_path / "out"
    out.mkdir()
    words = [word.replace("IMAGE", str(image)).replace("OUT", str(out)) for word in command]
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(image), *words], check=False, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr
    assert "image opened to read" in done.stderr
    after = times(image)
    assert (hashlib.sha256(image.read_bytes()).hexdigest(), after) == before


def times(path: Path) -> tuple[int, int, int, int]:
    """What stat says, atime included: the image is opened so that even that stays."""
    status = path.stat()
    return status.st_atime_ns, status.st_mtime_ns, status.st_size, status.st_mode


def test_the_hook_sees_a_write(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"x")
    code = WATCHED.replace("from f2tools.cli import run\n", "open(image, 'r+b')\n")
    done = subprocess.run([sys.executable, "-c", code, str(image)], check=False, capture_output=True)
    assert done.returncode == 99


def unused(value: Any) -> Any:
    return value
