"""An image under `f2tools mount`, for the length of a `with`: mounted in the foreground, unmounted, its words kept."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.judges import missing_judge

READY_SECONDS = 60
END_SECONDS = 180


both_servers = pytest.mark.parametrize("server", ["pyfuse3", "direct"])


def need_fuse(server: str = "pyfuse3") -> None:
    """The end of the test where FUSE can't be had, or what serves it."""
    if server == "pyfuse3" and find_spec("pyfuse3") is None:
        missing_judge("pyfuse3 is not installed", "f2tools mount")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or shutil.which("fusermount3") is None:
        missing_judge("FUSE (/dev/fuse, fusermount3) is not there", "f2tools mount")


def need_namespaces(consequence: str) -> None:
    """The end of the test where no mount namespace can be made: without root's rights, or below chroot(8)."""
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        missing_judge(f"a namespace of mounts can't be made here ({done.stderr.strip()})", consequence)


USER = os.geteuid() or 65534  # somebody who is not root
FOR_USER = () if os.geteuid() else ("-o", "allow_other")  # options of a mount that this one is to use


@contextmanager
def as_user(directory: Path) -> Iterator[None]:
    """Be USER, in this directory; what leads to it need not be open to him."""
    before = Path.cwd()
    os.chdir(directory)
    me = os.geteuid()
    os.seteuid(USER)
    try:
        yield
    finally:
        os.seteuid(me)
        os.chdir(before)


@dataclass
class Mount:
    """A running mount."""

    process: subprocess.Popen[bytes]
    directory: Path
    log: Path
    killed: bool = False

    def said(self) -> str:
        """All that the command has printed."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL, and the dead mount point taken away."""
        self.killed = True
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(END_SECONDS)
        subprocess.run(["fusermount3", "-u", "-z", self.directory], capture_output=True, check=False)


@contextmanager
def mounted(
    image: Path, directory: Path, *options: str, server: str = "pyfuse3", longest_file: int = -1, ends_with: int = 0,
    may_say: str = "",
) -> Iterator[Mount]:  # fmt: skip
    """Mount `image` on `directory`; at the end it is unmounted, and the command must have ended with 0, silent.

    `longest_file`: bytes, beyond which the image can't be written.  `may_say`: of a line that may be said all the same.
    """
    need_fuse(server)
    directory.mkdir(exist_ok=True)
    log = directory.with_name(directory.name + ".log")
    command = ["f2tools", "mount", "-f", "--server", server, *options, str(image), str(directory)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (longest_file, longest_file))
    mount = Mount(process, directory, log)
    try:
        _wait(lambda: _is_mounted(directory) or process.poll() is not None, READY_SECONDS)
        assert process.poll() is None, f"{' '.join(command)}\nended with {process.returncode}:\n{mount.said()}"
        yield mount
        if not mount.killed:
            assert process.poll() is None, f"the mount died with {process.returncode}:\n{mount.said()}"
            _unmount(directory)
            process.wait(END_SECONDS)
            assert process.returncode == ends_with, f"{process.returncode}: {mount.said()}"
            said = [line for line in mount.said().splitlines() if not may_say or may_say not in line]
            assert bool(said) == bool(ends_with), mount.said()
    finally:
        if process.poll() is None:
            mount.kill()


def _is_mounted(directory: Path) -> bool:
    """Asks the kernel's table, not the mount point: a server that hangs would take the test with it."""
    return any(line.split()[4] == str(directory) for line in open("/proc/self/mountinfo", errors="surrogateescape"))


def _unmount(directory: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        done = subprocess.run(["fusermount3", "-u", directory], capture_output=True, check=False)
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stderr.decode()  # a program of the test may be just leaving
        time.sleep(0.1)


def _wait(happened: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)
