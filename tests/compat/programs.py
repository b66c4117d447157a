"""What the tests of the C tools' names share: our program and the C tool, run alike."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path

from f2tools.compat.names import PROGRAMS
from tests.judges import ANSI, Run, need_tool

TIMEOUT = 300
MIB = 1 << 20


def ours(name: str, *args: object, cwd: Path | None = None, answer: str = "") -> Run:
    """Our program in this process; what is printed to both streams."""
    before, stdin = os.getcwd(), sys.stdin
    said = io.StringIO()
    words = [str(arg) for arg in args]
    try:
        os.chdir(cwd or before)
        sys.stdin = io.StringIO(answer)
        with redirect_stdout(said), redirect_stderr(said):
            code = import_module(f"f2tools.compat.{PROGRAMS[name]}").main(name, words)
    finally:
        sys.stdin = stdin
        os.chdir(before)
    return Run((name, *words), code, said.getvalue())


def theirs(name: str, *args: object, cwd: Path | None = None, answer: str = "n\n") -> Run:
    """The C tool of this name; f2fs-tools has one program for all but mkfs, told by the name."""
    command = (need_tool(name), *map(str, args))
    done = subprocess.run(
        command, input=answer.encode() * 20, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cwd, timeout=TIMEOUT
    )
    return Run(command, done.returncode, ANSI.sub("", done.stdout.decode(errors="replace")))


def blank(path: Path, size: int = 64 * MIB) -> Path:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    return path


def tree(directory: Path) -> Path:
    """A tree with what the C tool can load: files, directories, links; times in whole seconds."""
    (directory / "system/bin").mkdir(parents=True)
    (directory / "system/lib").mkdir()
    (directory / "empty").mkdir()
    (directory / "system/bin/sh").write_bytes(b"#!" * 4000)
    (directory / "system/bin/sh").chmod(0o4755)
    os.link(directory / "system/bin/sh", directory / "system/bin/ash")
    os.symlink("sh", directory / "system/bin/bash")
    (directory / "system/lib/libc.so").write_bytes(bytes(range(256)) * 600)
    (directory / "text.txt").write_bytes(b"the same line again and again\n" * 3000)
    (directory / "small").write_bytes(b"inline")
    for path in sorted(directory.rglob("*"), reverse=True):
        os.utime(path, (1_600_000_000, 1_600_000_000), follow_symlinks=False)
    return directory


def linked(directory: Path) -> dict[str, str]:
    """An environment in which our programs come first, by the links that users make."""
    program = Path(sys.executable).parent / "f2tools"
    assert shutil.which(str(program)), f"{program} is not installed"
    done = subprocess.run([program, "links", directory], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return os.environ | {"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}:/usr/sbin:/sbin"}
