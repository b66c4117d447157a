"""What the tests on board use: f2tools in a child of this process, the kernel's tools, devices of every kind.

They run in the guest, as root, under pytest (see tests/kernel/test_real_devices.py).  A Python takes seconds to start
there, so a command of f2tools is forked off from this one, which has loaded it already.
"""

from __future__ import annotations

import importlib
import itertools
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools import cli

MIB = 1 << 20
NULLB = Path("/sys/kernel/config/nullb")
NOT_LOADED = re.compile(r"f2tools\.(mount|forensics|pictures)")  # rarely wanted, and slow to load
_numbers = itertools.count()


@dataclass(frozen=True)
class Done:
    """How a command of f2tools ended."""

    code: int
    out: str
    err: str


def load_all() -> None:
    """Load what the commands need, once for all children."""
    for module in pkgutil.walk_packages(f2tools.__path__, "f2tools."):
        if not NOT_LOADED.match(module.name):
            importlib.import_module(module.name)


load_all()


def f2(*args: object, code: int | None = 0) -> Done:
    """`f2tools ARGS` in a child; an AssertionError with all it said where it ends with anything but `code`."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            status = 99
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
                sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
                sys.argv = ["f2tools", *map(str, args)]
                try:
                    cli.run()
                except SystemExit as stop:
                    status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
                except BaseException:
                    traceback.print_exc()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    done = Done(ended, *texts)
    assert "Traceback" not in done.err, f"f2tools {args}: {done.err}"
    assert code is None or done.code == code, f"f2tools {args} ended with {done.code}\n{done.out[-3000:]}\n{done.err}"
    return done


def sh(command: str, check: bool = True, **more: Any) -> str:
    """What a shell command prints; an AssertionError with all it said where it fails."""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, **more)
    assert not check or done.returncode == 0, (
        f"{command}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    )
    return done.stdout


def fsck_f2fs(device: str, *more: str) -> None:
    """The C checker has nothing to complain of."""
    done = subprocess.run(["fsck.f2fs", "--dry-run", device, *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for sign in ("[Fail]", "[ASSERT]", "[FIX]"):
        assert sign not in done.stdout, done.stdout


@contextmanager
def mounted(device: str, options: str = "") -> Iterator[Path]:
    """The device mounted by the kernel."""
    where = Path(tempfile.mkdtemp(prefix="mnt-", dir="/mnt"))
    sh(f"mount -t f2fs {f'-o {options}' if options else ''} {device} {where}")
    try:
        yield where
    finally:
        sh(f"umount {where}")
        where.rmdir()


def used_by_the_kernel(device: str, keep: bool = False) -> None:
    """The kernel mounts it, writes, overwrites, removes; fsck.f2fs and f2tools agree that all is well."""
    with mounted(device) as where:
        fill(where / "by-kernel")
        if not keep:
            shutil.rmtree(where / "by-kernel")
    fsck_f2fs(device)
    f2("fsck", device)


def fill(directory: Path, files: int = 12, size: int = 60_000) -> None:
    """Files, some overwritten, some removed."""
    directory.mkdir(exist_ok=True)
    for n in range(files):
        (directory / f"file{n}").write_bytes(os.urandom(size))
    for n in range(0, files, 3):
        with open(directory / f"file{n}", "r+b") as file:
            file.seek(8192)
            file.write(os.urandom(5000))
            os.fsync(file.fileno())
    for n in range(1, files, 4):
        (directory / f"file{n}").unlink()


def tree(where: Path) -> dict[str, bytes | None]:
    """Paths with the content of files."""
    return {str(p.relative_to(where)): p.read_bytes() if p.is_file() else None for p in sorted(where.rglob("*"))}


# -- devices ----------------------------------------------------------------------------------------------------------


@contextmanager
def nullb(size_mib: int, blocksize: int = 512, **settings: int) -> Iterator[str]:
    """A disk in memory by null_blk: `zoned=1, zone_size=4, zone_nr_conv=12`, `discard=1`, `read_only`, ..."""
    if not NULLB.exists():
        sh("modprobe configfs; mount -t configfs c /sys/kernel/config 2>/dev/null; modprobe null_blk nr_devices=0")
    name = f"t{next(_numbers)}"
    directory = NULLB / name
    directory.mkdir()
    try:
        for key, value in {
            "memory_backed": 1,
            "size": size_mib,
            "blocksize": blocksize,
            **settings,
            "power": 1,
        }.items():
            (directory / key).write_text(str(value))
        found = (directory / "index").read_text().strip()
        yield next(f"/dev/{n}" for n in (f"nullb{found}", name) if os.path.exists(f"/sys/block/{n}"))
    finally:
        (directory / "power").write_text("0")
        directory.rmdir()


@contextmanager
def loop(file: Path, *options: str) -> Iterator[str]:
    """A loop device on a file."""
    device = sh(f"modprobe loop; losetup --find --show {' '.join(options)} {file}").strip()
    try:
        yield device
    finally:
        sh(f"losetup --detach {device}")


@contextmanager
def scsi_debug(**parameters: int | str) -> Iterator[str]:
    """A SCSI disk in memory: `sector_size=4096`, `lbpu=1` for discards, `zbc=managed`, ..."""
    given = " ".join(f"{key}={value}" for key, value in parameters.items())
    sh(f"modprobe sd_mod; modprobe scsi_debug {given}")
    try:
        for _ in range(200):
            found = [p.name for p in Path("/sys/block").glob("sd*")]
            if found and os.path.exists(f"/dev/{found[0]}"):
                break
            sh("sleep 0.05")
        else:
            pytest.fail("scsi_debug made no disk")
        yield f"/dev/{found[0]}"
    finally:
        with suppress(AssertionError):
            sh("for n in 1 2 3 4 5 6 7 8 9; do rmmod scsi_debug && break; sleep 0.1; done")
