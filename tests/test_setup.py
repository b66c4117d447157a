"""scripts/setup on machines that lack something: what is missing is named, and nothing is tried that can't be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ["sh", "env", "cat", "cut", "dirname", "id", "ls", "mkdir", "mktemp", "printf", "rm", "sha256sum", "tail"]


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
    for python in ("bin/python3", ".venv/bin/python"):
        program(
            directory / python,
            f'echo "$*" >> {directory}/asked; case "$*" in *Python.h*) [ -e {directory}/bin/gcc ]; esac',
        )
    program(directory / ".venv" / "bin" / "f2tools", "exit 0")
    return {"PATH": str(directory / "bin")}


def program(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


def asked_for(directory: Path, environment: dict[str, str]) -> tuple[str, str]:
    """(what Python was asked for, what was said) in one run of scripts/setup."""
    (directory / "asked").unlink(missing_ok=True)
    command = ["sh", "scripts/setup", "demo"]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (directory / "asked").read_text(), done.stderr


def test_pyfuse3_is_not_tried_where_nothing_can_be_compiled(tmp_path: Path) -> None:
    """It ended in forty lines of Python's, at every call of make."""
    asked, said = asked_for(tmp_path, bare_machine(tmp_path))
    assert "-r requirements.lock" in asked
    assert "requirements-mount.lock" not in asked
    assert "f2tools mount speaks with the kernel itself" in said


def test_the_core_is_compiled_once_there_is_a_compiler(tmp_path: Path) -> None:
    """Who installed gcc as setup said stayed without the core."""
    environment = bare_machine(tmp_path)
    assert "--editable ." in asked_for(tmp_path, environment)[0]
    assert "--editable ." not in asked_for(tmp_path, environment)[0]
    program(tmp_path / "bin" / "gcc", "exit 0")
    assert "--editable ." in asked_for(tmp_path, environment)[0]
    (tmp_path / "f2tools" / "native" / "_core.abi3.so").touch()
    assert "--editable ." not in asked_for(tmp_path, environment)[0]
