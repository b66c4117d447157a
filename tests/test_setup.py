"""scripts/setup on machines that lack something: what is missing is named, and nothing is tried that can't be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ["sh", "env", "cat", "cut", "dirname", "id", "mkdir", "mktemp", "printf", "rm", "sha256sum", "tail"]


def bare_machine(directory: Path) -> dict[str, str]:
    """A project in this directory whose Python notes what it is asked for; no compiler, no apt-get, no pkg-config."""
    (directory / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", directory / "scripts")
    for name in ("requirements.lock", "requirements-mount.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, directory)
    (directory / "f2tools" / "native").mkdir(parents=True)
    for name in ("core.c", "core.h"):
        (directory / "f2tools" / "native" / name).write_text("")
    for place in (directory / "bin", directory / ".venv" / "bin"):
        place.mkdir(parents=True)
    for name in PROGRAMS:
        (directory / "bin" / name).symlink_to(shutil.which(name) or "/nowhere")
    for python in (directory / "bin" / "python3", directory / ".venv" / "bin" / "python"):
        python.write_text(f'#!/bin/sh\necho "$*" >> {directory}/asked\ncase "$*" in *Python.h*) exit 1 ;; esac\n')
        python.chmod(0o755)
    return {"PATH": str(directory / "bin")}


def test_pyfuse3_is_not_tried_where_nothing_can_be_compiled(tmp_path: Path) -> None:
    """It ended in forty lines of Python's, at every call of make."""
    environment = bare_machine(tmp_path)
    done = subprocess.run(
        ["sh", "scripts/setup", "demo"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    asked = (tmp_path / "asked").read_text()
    assert (done.returncode, "requirements.lock" in asked) == (0, True), done.stderr
    assert "requirements-mount.lock" not in asked
    assert "f2tools mount speaks with the kernel itself" in done.stderr
