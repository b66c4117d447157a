"""Run commands on a damaged image within this process, and say of each how it ended.

Every command must end with one of the documented exit codes: a traceback is a failure of ours, whatever the image
holds.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from f2tools.cli import run

SECONDS = 10  # of the processor's time, so that a machine with much to do is not a hang
WAITS = 120  # seconds by the clock, for what hangs without doing anything
MEMORY_BYTES = 448 << 20  # beyond what the process had before
READ_AT_MOST = 64 << 20  # of what a command prints: a file may be a hole of terabytes
EXIT_CODES = {0, 1, 2, 8}
FOUND = 4  # of those that check, which say what they found on standard output
CHECKS = {"fsck", "doctor", "recover", "check"}  # also of `dfs`, `dffs`, `vsl`

COMMANDS = (
    ("dump", "info", "{image}"),
    ("dump", "superblock", "{image}", "--json"),
    ("dump", "checkpoint", "{image}"),
    ("dump", "nat", "{image}", "--json"),
    ("dump", "sit", "{image}", "--csv"),
    ("dump", "ssa", "{image}", "0"),
    ("dump", "segments", "{image}"),
    ("dump", "tree", "{image}"),
    ("dump", "manifest", "{image}"),
    ("dump", "manifest", "{image}", "--checkpoint", "older"),
    ("dump", "tar", "{image}", "-o", "{work}/x.tar"),
    ("dump", "extract", "{image}", "-o", "{work}/out"),
    ("dump", "verify", "{image}"),
    ("dump", "inode", "{image}", "/", "--json"),
    ("dump", "node", "{image}", "{nid}"),
    ("dump", "dentries", "{image}", "/"),
    ("dump", "block", "{image}", "{blkaddr}"),
    ("dump", "map", "{image}", "ino:{nid}"),
    ("dump", "stat", "{image}", "ino:{nid}"),
    ("dump", "cat", "{image}", "ino:{nid}"),
)


_before_bytes = 0  # the most that this process had when it began: a forked one starts with its parent's
_SPARE = tempfile.TemporaryFile()  # noqa: SIM115 - stands in for the descriptor of standard output, to the end


class _TooLong(BaseException):
    pass


class _Reader(io.RawIOBase):
    """Whoever reads our standard output: takes so much, then goes away, as `head` does."""

    def __init__(self) -> None:
        self.taken = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.taken += len(data)
        if self.taken > READ_AT_MOST:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        return len(data)

    def fileno(self) -> int:
        return _SPARE.fileno()


def exercise(image: Path, work: Path, nid: int, blkaddr: int, commands: tuple[tuple[str, ...], ...]) -> list[str]:
    """Run the commands; return a line for each that did what no command may do."""
    failures: list[str] = []
    for command in commands:
        words = [w.format(image=image, work=work, nid=nid, blkaddr=blkaddr) for w in command]
        why = ended(lambda words=words: _main(words), bool(CHECKS & set(words[:2])))
        if why:
            failures.append(f"f2tools {' '.join(words)}: {why}")
        if os.path.lexists(work / "out"):
            subprocess.run(["rm", "-rf", work / "out"], check=False)  # shutil can't go as deep as a forged tree
    return failures


def _main(words: list[str]) -> None:
    sys.argv = ["f2tools", *words]
    run()


def ended(call: Callable[[], None], checks: bool = False) -> str | None:
    """How a call has ended that did what none may do; `checks`: it may also say that it has found something."""

    def alarm(*_: object) -> None:
        raise _TooLong

    before = [signal.signal(one, alarm) for one in (signal.SIGALRM, signal.SIGPROF)]
    signal.alarm(WAITS)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    reader = _Reader()
    out, err = io.TextIOWrapper(io.BufferedWriter(reader), write_through=True), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            call()
        code: object = 0
    except SystemExit as stop:
        code = stop.code or 0
    except _TooLong:
        return f"still running after {SECONDS} s of the processor, or {WAITS} s:\n{traceback.format_exc(limit=-6)}"
    except BaseException:
        return traceback.format_exc(limit=-8)
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for one, handler in zip((signal.SIGALRM, signal.SIGPROF), before, strict=True):
            signal.signal(one, handler)
    if reader.taken > READ_AT_MOST and code == 141:
        return None
    if code not in EXIT_CODES and not (checks and code == FOUND):
        return f"exit code {code}: {err.getvalue()[-2000:]}"
    if code and not err.getvalue().strip() and not (checks and reader.taken):
        return f"exit code {code} without a word on stderr"
    if "Traceback" in err.getvalue() or "RuntimeWarning" in err.getvalue():  # the latter is numpy's, of an overflow
        return err.getvalue()
    if grown_bytes() > MEMORY_BYTES:
        return f"more than {MEMORY_BYTES >> 20} MiB"
    return None


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def grown_bytes() -> int:
    """The most memory that a task run by `in_child` had, beyond what its process began with."""
    return _peak_bytes() - _before_bytes


def measure_from_here() -> None:
    """Count memory from what this process has had until now."""
    global _before_bytes
    _before_bytes = _peak_bytes()


def in_child(task: Callable[[], list[str]]) -> list[str]:
    """Run a task in a forked process, so that its memory is measured alone; its lines come back."""
    reader, writer = os.pipe()
    # What the process has and does not use would hide as much of what the task takes: free memory is given back here,
    # and what is garbage stays.
    ctypes.CDLL(None).malloc_trim(0)
    pid = os.fork()
    if not pid:
        os.close(reader)
        gc.freeze()
        measure_from_here()
        lines = ["died"]
        try:
            lines = task()
        except BaseException:
            lines = [traceback.format_exc()]
        finally:
            with os.fdopen(writer, "w") as pipe:
                pipe.write("\x1e".join(lines))
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    lines = said.split("\x1e") if said else []
    if status:
        lines.append(f"the process died with status {status}")
    return lines
