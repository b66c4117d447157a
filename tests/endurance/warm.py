"""A process in which everything is loaded, and that forks a piece of a campaign whenever it is told to.

To load what commands and judges need takes a second or two of the processor, which is more than many pieces take.  A
piece is a process and a group of processes of its own all the same.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.endurance.plan import named
from tests.images import ROOT


class Warm:
    """The process; it is started with the first piece, and anew where it has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, campaign: str, seed: int, kept: Path, out: Path, seconds: float) -> int | None:
        """Run a piece, what it says going to a file: how it ended, or None where it was killed after so long."""
        process = self._process
        if process is None or process.poll() is not None:
            command = [sys.executable, "-m", "tests.endurance", "warm"]
            process = self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([campaign, seed, str(kept), str(out)]).encode() + b"\n")
        line = process.stdout.readline()
        if not line:
            return process.wait()
        group = int(line)
        late = not select.select([process.stdout], [], [], seconds)[0]
        if late:
            os.killpg(group, signal.SIGKILL)
        line = process.stdout.readline()
        return None if late else int(line) if line else process.wait()

    def close(self) -> None:
        """Let the process end; it has nothing to do."""
        if self._process is not None:
            self._process.communicate()
            self._process = None


def serve(run: Callable[[str, int, Path], int]) -> int:
    """Be that process: for each line of standard input a piece, of which the process and then its end are told."""
    told = os.dup(1)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="f2-endurance-warm-") as work:
        tempfile.tempdir = work
        warmed: set[str] = set()
        for line in sys.stdin.buffer:
            name, seed, kept, out = json.loads(line)
            try:
                campaign = named(name)
            except SystemExit:
                campaign = None  # the piece says so itself
            if campaign is not None and campaign.warm is not None and name not in warmed:
                campaign.warm()
                warmed.add(name)
                gc.freeze()  # a collection in a piece would take all these pages for itself
            pid = os.fork()
            if not pid:
                os.close(told)
                _be(lambda: run(name, seed, Path(kept)), Path(out))  # noqa: B023 (called at once)
            os.write(told, b"%d\n" % pid)
            _, status = os.waitpid(pid, 0)
            os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
    return 0


def _be(piece: Callable[[], int], out: Path) -> None:
    """Run a piece in this process, and end it."""
    code = 1
    try:
        os.setsid()
        with out.open("wb") as file, open("/dev/null", "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        try:
            code = piece()
        except SystemExit as stop:
            print(stop.code)
        except BaseException:
            traceback.print_exc()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)
