"""A damaged image under a mount, and somebody who walks, reads and writes there: what may not happen, as sentences.

The mount and its user are processes of their own, since either may hang; both are forks, so that a mount takes a
fraction of a second.
"""

from __future__ import annotations

import ctypes
import logging
import os
import random
import signal
import stat
import subprocess
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from f2tools.errors import F2fsError

SECONDS = 60  # for the mount to be usable, for its user, for the end
MEMORY_BYTES = 512 << 20  # beyond what is forked
ENTRIES = 1500  # that are looked at
READ_BYTES = 1 << 18
MNT_DETACH = 2


def live_with(image: Path, directory: Path, seed: int, *options: str) -> list[str]:
    """Mount, use and unmount an image: a line for each thing that may not happen, whatever the image holds."""
    directory.mkdir(exist_ok=True)
    log = directory.with_name(directory.name + ".log")
    server = _fork(lambda: _serve(image, directory, log, options))
    said: list[str] = []
    ended, status = _wait(server, lambda: _is_mounted(directory))
    if ended is None and not _is_mounted(directory):
        said.append(f"not mounted after {SECONDS} s")
    elif ended is None:
        user = _fork(lambda: use(directory, seed))
        code, _ = _wait(user)
        if code is None:
            said.append(f"who uses it still waits after {SECONDS} s")
            os.kill(server, signal.SIGKILL)
            os.kill(user, signal.SIGKILL)
            os.waitpid(user, 0)
        elif code:
            said.append(f"who uses it ended with {code}:\n{(directory.parent / 'user.log').read_text()}")
        _unmount(directory)
        ended, status = _wait(server)
    if ended is None:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        said.append(f"the mount has not ended after {SECONDS} s")
    elif ended not in (0, 1, 2, 8):
        said.append(f"the mount ended with {ended}")
    if _is_mounted(directory):
        _unmount(directory)
    text = log.read_text(errors="replace") if log.exists() else ""
    if "Traceback" in text:
        said.append(text[-3000:])
    if status > MEMORY_BYTES + resident_bytes():
        said.append(f"it took {status >> 20} MiB")
    return said


def _serve(image: Path, directory: Path, log: Path, options: tuple[str, ...]) -> int:
    from f2tools.mount.options import parse_options
    from f2tools.mount.session import MountRequest, serve

    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(out, number)
    logging.basicConfig(format="f2tools mount: %(message)s", level=logging.WARNING, force=True)
    request = MountRequest(str(image), str(directory), parse_options(options))
    try:
        serve(request, lambda: None)
    except F2fsError as error:
        return error.exit_code
    except OSError:
        return 1
    return 0


def _unmount(directory: Path) -> None:
    """Take a mount away, whoever uses it; root needs no program for that."""
    if ctypes.CDLL(None).umount2(os.fsencode(directory), MNT_DETACH):
        subprocess.run(["fusermount3", "-u", "-z", directory], capture_output=True, check=False)


def resident_bytes() -> int:
    """Memory of this process, which is that of a forked one to begin with."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _fork(work: Callable[[], int]) -> int:
    pid = os.fork()
    if not pid:
        code = 99
        try:
            code = work()
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    return pid


def _wait(pid: int, or_until: Callable[[], bool] = lambda: False) -> tuple[int | None, int]:
    """(exit code, peak memory in bytes) of a child; (None, 0) when the time is over or something else has happened."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and not or_until():
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024
        time.sleep(0.005)
    return None, 0


def _is_mounted(directory: Path) -> bool:
    return any(line.split()[4] == str(directory) for line in open("/proc/self/mountinfo", errors="surrogateescape"))


def use(top: Path, seed: int) -> int:
    """Look at everything, then change this and that; whatever is refused is refused."""
    log = os.open(top.parent / "user.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 2)
    chance = random.Random(seed)
    files, directories = _look(top)
    with suppress(OSError):
        os.statvfs(top)
    for number in range(30):
        with suppress(OSError):
            _change(chance, files or [top / "none"], directories, number)
    return 0


def _change(chance: random.Random, files: list[Path], directories: list[Path], number: int) -> None:
    path, directory = chance.choice(files), chance.choice(directories)
    new = chance.choice(directories) / f"new-{number}"
    data = chance.randbytes(chance.choice((5, 4096, 50_000, 400_000)))
    chance.choice((
        lambda: new.mkdir(),
        lambda: _write(new, 0, data),
        lambda: _write(path, chance.choice((0, 5000, 1 << 20)), data),
        lambda: os.truncate(path, chance.choice((0, 100, 1 << 20))),
        lambda: path.unlink(),
        lambda: path.rename(new),
        lambda: directory.rename(new),
        lambda: directory.rmdir(),
        lambda: os.setxattr(path, "user.new", data[:3000]),
        lambda: os.link(path, new),
        lambda: os.chmod(path, 0o600),
        lambda: os.sync() if number == 7 else os.listdir(directory),
    ))()  # fmt: skip


def _look(top: Path) -> tuple[list[Path], list[Path]]:
    """(files, directories), of which everything was asked that can be."""
    files: list[Path] = []
    directories = [top]
    left, at = ENTRIES, 0
    while at < len(directories) and left > 0:
        directory = directories[at]
        at += 1
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in names[:left]:
            left -= 1
            path = directory / name
            with suppress(OSError):
                os.listxattr(path, follow_symlinks=False)
            with suppress(OSError):
                mode = path.lstat().st_mode
                if stat.S_ISDIR(mode) and len(str(path)) < 3000:
                    directories.append(path)
                elif stat.S_ISLNK(mode):
                    os.readlink(path)
                elif stat.S_ISREG(mode):
                    files.append(path)
                    _read(path)
    return files, directories


def _read(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        for offset in (0, size // 2, max(0, size - READ_BYTES)):
            with suppress(OSError):
                os.pread(fd, READ_BYTES, offset)
    finally:
        os.close(fd)


def _write(path: Path, offset: int, data: bytes) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(fd, data, offset)
        os.fsync(fd)
    finally:
        os.close(fd)
