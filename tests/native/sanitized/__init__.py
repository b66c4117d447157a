"""The compiled core as gcc's sanitizers of addresses and undefined behaviour watch it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.images import ROOT

WORK = ROOT / ".cache" / "sanitized"
FLAGS = "-fsanitize=address,undefined -fno-omit-frame-pointer -g -O1"
LOGS = 10_000  # characters that are told
# What is said of programs with stacks of their own, such as QEMU, which some tests start.
HARMLESS = (
    "makecontext/swapcontext", "ignoring requested __asan_handle_no_return", "False positive error reports may follow",
    "see https://github.com/google/sanitizers/issues/189",
)  # fmt: skip


def build() -> Path:
    """The core, built with the sanitizers where a source is newer; one process builds it, and others wait."""
    native = ROOT / "f2tools" / "native"
    built = WORK / "lib" / "f2tools" / "native" / "_core.abi3.so"
    newest = max(path.stat().st_mtime for pattern in ("*.c", "*.h") for path in native.glob(pattern))
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists() or built.stat().st_mtime < newest:
            python = [sys.executable, "-W", "ignore", "-c", "from setuptools import setup; setup()"]
            subprocess.run(
                [*python, "-q", "build_ext", "--force", "--build-lib", WORK / "lib", "--build-temp", WORK / "temp"],
                cwd=ROOT,
                env=os.environ | {"CFLAGS": FLAGS},
                check=True,
                stdout=subprocess.DEVNULL,
            )
    return built


def runtime(name: str) -> str:
    """Where gcc has a library of its own."""
    asked = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def environment(logs: Path) -> dict[str, str]:
    """What a Python, and each that it starts, needs to run with that core; `logs` is where the sanitizers write."""
    where = os.pathsep.join(filter(None, [str(Path(__file__).parent), str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {
        "F2_SANITIZED_CORE": str(build()),
        "PYTHONPATH": where,
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        # leaks are the interpreter's; a failed malloc is to be met as one
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:log_path={logs}/address",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={logs}/undefined",
        "PYTHONMALLOC": "malloc",  # so that bytes and arrays of Python's have edges as well
    }


def run(arguments: list[str]) -> int:
    """Run Python with that core; its exit code, or 1 where a sanitizer had something to say."""
    logs = Path(tempfile.mkdtemp())
    try:
        code = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment(logs), check=False).returncode
        lines = [line for path in sorted(logs.iterdir()) for line in path.read_text(errors="replace").splitlines()]
        told = "\n".join(line for line in lines if line and not any(words in line for words in HARMLESS))
        if told:
            print(told[:LOGS], file=sys.stderr)
        return 1 if told else code
    finally:
        shutil.rmtree(logs)
