"""Run a command on hostile input in a process of its own: how it ended, what it said, and how much memory it took."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

F2TOOLS = Path(sys.executable).parent / "f2tools"
HANGS = 90  # seconds after which a command that takes one or two is taken for one that never ends
MOST_BYTES = 512 << 20
# A forked process begins with the peak of the one that forked it, here of a test run with all that it holds.  A small
# process stands between: it forks again, and writes on the descriptor that it is given what its own child took.
BETWEEN = """
import os, sys
told = int(sys.argv[1])
os.set_inheritable(told, False)
child = os.fork()
if not child:
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(child, 0)
os.write(told, b"%d %d" % (os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024))
"""


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
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as told:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BETWEEN, str(told.fileno()), F2TOOLS, *map(str, words)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=[told.fileno()], start_new_session=True,
        )  # fmt: skip
        timer = threading.Timer(HANGS, os.killpg, (child.pid, signal.SIGKILL))
        timer.start()
        ended = child.wait()
        timer.cancel()
        texts = []
        for file in (out, err, told):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
        code, peak_bytes = map(int, texts[2].split()) if ended == 0 else (ended, 0)
        done = Done(code, texts[0], texts[1], peak_bytes)
    what = f"f2tools {' '.join(map(str, words))}"
    assert done.code != -9, f"{what}: still running after {HANGS} s"
    assert "Traceback" not in done.err, done.err
    assert done.peak_bytes <= MOST_BYTES, f"{what}: {done.peak_bytes >> 20} MiB"
    return done
