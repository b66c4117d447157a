"""A mount under load that is stopped each minute: what its image is at that moment is what a power cut would leave.

The copy must check clean, be recovered, have every file that was safe by then, and check clean again.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from f2tools.errors import F2fsError
from f2tools.f2fs.volume.volume import Volume
from tests import judges
from tests.endurance import suite
from tests.endurance.campaign import Campaign, Found, Outcome
from tests.endurance.injected import AFTER_A_CUT, codes_of
from tests.endurance.promising import content, promised
from tests.f2fs.write.volumes import reading
from tests.images import copy_open
from tests.mount.mounted import Mount, mounted
from tests.mount.suite_tools import mount_point

SERVERS = ("direct", "pyfuse3")
FORMATS = ("", "-O extra_attr,inode_checksum,sb_checksum", "-s 2", "-O quota,project_quota,extra_attr")
OPTIONS = ("allow_other", "allow_other,writeback_cache", "allow_other,fsync_mode=strict", "allow_other,active_logs=2")
MINUTES, SECONDS = 10, 60
PROMISING = Path(__file__).with_name("promising.py")
SYS_PIDFD_GETFD = 438  # on every machine
LIBC = ctypes.CDLL(None, use_errno=True)


class Audited:
    """A mount with programs on it."""

    def __init__(self, image: Path, mount: Mount, work: Path) -> None:
        self.image, self.mount, self.work = image, mount, work
        self.said = work / "said"
        self.held = 0  # files that were safe and had to be there, over all audits

    def audit(self) -> str:
        """What is wrong with the image as it is at this moment; nothing if all is well."""
        copy = self.work / "copy.img"
        self.mount.process.send_signal(signal.SIGSTOP)
        try:
            while not Path(f"/proc/{self.mount.process.pid}/stat").read_text().rpartition(")")[2].startswith(" T"):
                time.sleep(0.01)
            lines = self.said.read_text().splitlines() if self.said.exists() else []
            with _descriptor_of(self.mount.process.pid, self.image) as fd:
                copy_open(fd, copy)
        finally:
            self.mount.process.send_signal(signal.SIGCONT)
        try:
            return self._judged(copy, promised(lines))
        finally:
            copy.unlink()

    def _judged(self, copy: Path, wanted: dict[str, tuple[int, bool]]) -> str:
        codes = set(codes_of(str(copy))) - AFTER_A_CUT
        if codes:
            return f"before recovery there is {sorted(codes)}"
        done = _f2tools("recover", "--apply", copy)
        if done.returncode:
            return f"recover ended with {done.returncode}: {done.stdout}{done.stderr}"
        with reading(copy) as volume:
            for name, (size, more) in wanted.items():
                wrong = _held_against(volume, name, size, more)
                if wrong:
                    return f"{name}, of which {size} bytes were safe: {wrong}"
        self.held += len(wanted)
        return _checked(copy)


@contextmanager
def _descriptor_of(pid: int, path: Path) -> Iterator[int]:
    """The descriptor by which a process has a file open, here, its offset afterwards as it was.

    Who opened the file anew would ask for the lease that a mount has on its image, and wait for 45 seconds if that is
    stopped.
    """
    number = next(int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir() if one.exists() and one.samefile(path))
    process = os.pidfd_open(pid)
    fd = LIBC.syscall(SYS_PIDFD_GETFD, process, number, 0)
    os.close(process)
    if fd < 0:
        raise OSError(ctypes.get_errno(), f"no descriptor {number} of process {pid}")
    before = os.lseek(fd, 0, os.SEEK_CUR)
    try:
        yield fd
    finally:
        os.lseek(fd, before, os.SEEK_SET)
        os.close(fd)


def _held_against(volume: Volume, name: str, size: int, more: bool) -> str:
    try:
        data = volume.path(f"/safe/{name}").read()
    except (F2fsError, OSError) as error:
        return str(error)
    if data != content(name, len(data)):
        return "its content is another"
    return "" if len(data) == size or (more and len(data) > size) else f"it has {len(data)}"


def _checked(image: Path) -> str:
    done = _f2tools("fsck", image)
    if done.returncode:
        return f"fsck ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    try:
        judges.fsck_clean(image)
    except AssertionError as error:
        return f"fsck.f2fs: {error}"
    return ""


def _f2tools(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["f2tools", *words], capture_output=True, text=True, check=False)


def audited(
    image: Path, work: Path, load: Sequence[str | Path], options: Sequence[str], server: str, times: int, seconds: float
) -> tuple[list[str], int]:
    """What is wrong, in words, and how many files were held to what was promised; `load` is run in the mount."""
    wrong = []
    with mount_point() as directory, mounted(image, directory, *options, server=server) as mount:
        for name in ("safe", "load"):
            (mount.directory / name).mkdir()
        here = Audited(image, mount, work)
        commands = [[*load], [sys.executable, PROMISING, mount.directory / "safe", here.said, str(len(options))]]
        programs = [subprocess.Popen(c, cwd=mount.directory / "load", stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, start_new_session=True) for c in commands]  # fmt: skip
        try:
            for number in range(times):
                time.sleep(seconds)
                ended = [program.args for program in programs if program.poll() is not None]
                said = f"ended by itself: {ended}" if ended else here.audit()
                if said:
                    wrong.append(f"audit {number}: {said}")
                    break
        finally:
            for program in programs:
                with suppress(ProcessLookupError):  # it has ended by itself
                    os.killpg(program.pid, signal.SIGKILL)
                program.wait()
    said = _checked(image)
    return [*wrong, *([f"after unmounting: {said}"] if said else [])], here.held


def piece(seed: int, work: Path) -> Outcome:
    """Ten minutes under fsstress."""
    server, options, form = SERVERS[seed % 2], OPTIONS[seed // 2 % 4], FORMATS[seed // 8 % 4]
    image = work / "image"
    subprocess.run(["f2tools", "mkfs", "-q", image, "--size", "512M", *form.split()], check=True)
    # again and again from an empty directory: the volume is not full for long
    load = [suite.fsstress(), "-d", ".", "-c", "-l", "0", "-n", "2000", "-p", "3", "-s", str(seed)]
    wrong, held = audited(image, work, load, ("-o", options), server, MINUTES, SECONDS)
    outcome = Outcome(MINUTES)
    outcome.counts[f"minutes by {server}"] = MINUTES
    outcome.counts["files that were safe"] = held
    outcome.found += [Found(f"{server}, mount -o {options}, mkfs {form or 'plain'}: {text}") for text in wrong]
    return outcome


AUDITED = Campaign(
    "audits",
    "a mount by either server under fsstress and a program that makes files safe is stopped each minute: its image is"
    " recovered and has every file that was safe, and our fsck and fsck.f2fs are silent",
    "minutes", 24 * 60, MINUTES, piece, minutes=40,
)  # fmt: skip
