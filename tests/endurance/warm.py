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

from tests.endurance.plan import Piece, named
from tests.images import ROOT

MEMORY = "/dev/shm"
ROOM_BYTES = 4 << 30


class Warm:
    """Such processes, one for each campaign that loads something of its own, and one for all others.

    What is loaded can change what a piece does: Hypothesis likes the constants of all modules.  A process is started
    with its first piece, and anew where it has died.
    """

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, piece: Piece, kept: Path, out: Path, seconds: float) -> int | None:
        """Run a piece, what it says going to a file: how it ended, or None where it was killed after so long."""
        name = piece.campaign.name
        kind = name if piece.campaign.warm else ""
        process = self._processes.get(kind)
        if process is None or process.poll() is not None:
            command = [sys.executable, "-m", "tests.endurance", "warm", kind]
            process = self._processes[kind] = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
            )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([name, piece.seed, str(kept), str(out)]).encode() + b"\n")
        line = process.stdout.readline()
        if not line:
            return process.wait()
        group = int(line)
        late = not select.select([process.stdout], [], [], seconds)[0]
        if late:
            os.killpg(group, signal.SIGKILL)
        line = process.stdout.readline()
        if late:  # what lies in memory would stay there; a mount in it is dead
            left = Path(MEMORY).glob(f"{prefix(group)}*")
            subprocess.run(["rm", "-rf", "--one-file-system", *left], stderr=subprocess.DEVNULL, check=False)
        return None if late else int(line) if line else process.wait()

    def close(self) -> None:
        """Let the processes end; they have nothing to do."""
        for process in self._processes.values():
            process.communicate()
        self._processes.clear()


def serve(kind: str, run: Callable[[str, int, Path], int]) -> int:
    """Be such a process: for each line of standard input a piece, of which the process and then its end are told."""
    told = os.dup(1)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="f2-endurance-warm-", dir=in_memory()) as work:
        tempfile.tempdir = work
        if kind and (warm := named(kind).warm) is not None:
            warm()
        gc.freeze()  # a collection in a piece would take all these pages for itself
        for line in sys.stdin.buffer:
            name, seed, kept, out = json.loads(line)
            pid = os.fork()
            if not pid:
                os.setsid()
                os.write(told, b"%d\n" % os.getpid())
                os.close(told)
                _be(lambda: run(name, seed, Path(kept)), Path(out))  # noqa: B023 (called at once)
            _, status = os.waitpid(pid, 0)
            os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
    return 0


def prefix(pid: int) -> str:
    """How the name of a piece's directory begins."""
    return f"f2-endurance-{pid}-"


def in_memory() -> str | None:
    """Where files need no disk, while there is much room."""
    try:
        room = os.statvfs(MEMORY)
    except OSError:
        return None
    return MEMORY if room.f_bavail * room.f_frsize >= ROOM_BYTES and os.access(MEMORY, os.W_OK) else None


def _be(piece: Callable[[], int], out: Path) -> None:
    """Run a piece in this process, and end it."""
    code = 1
    try:
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
