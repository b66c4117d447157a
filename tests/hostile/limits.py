"""Run a command on hostile input in a process of its own: how it ended, what it said, and how much memory it took."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

F2TOOLS = Path(sys.executable).parent / "f2tools"
HANGS = 90  # seconds after which a command that takes one or two is taken for one that never ends
MOST_BYTES = 512 << 20


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str
    peak_bytes: int

    @property
    def text(self) -> str:
        return self.out + self.err


def limited(*words: object) -> Done:
    """Run `f2tools WORDS`; a command that hangs, dies of a traceback or takes more than MOST_BYTES fails the test."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen([F2TOOLS, *map(str, words)], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        timer = threading.Timer(HANGS, child.kill)
        timer.start()
        _, status, usage = os.wait4(child.pid, 0)
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        done = Done(
            child.returncode, out.read().decode("utf-8", "replace"), err.read().decode("utf-8", "replace"),
            usage.ru_maxrss * 1024,
        )  # fmt: skip
    what = f"f2tools {' '.join(map(str, words))}"
    assert done.code != -9, f"{what}: still running after {HANGS} s"
    assert "Traceback" not in done.err, done.err
    assert done.peak_bytes <= MOST_BYTES, f"{what}: {done.peak_bytes >> 20} MiB"
    return done
