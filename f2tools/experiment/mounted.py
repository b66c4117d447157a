"""One load on this machine's own kernel: in a directory that is mounted, or on a spare device formatted for it.

The measured half runs under `trace record`, so it takes root and a block device that can be traced.  In a directory the
load has one of its own, which is removed afterwards.  A device is overwritten; the caller has asked its owner.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from f2tools.device.media.mounted import in_use, mount_table
from f2tools.errors import DeviceError, SeveralLines, Usage
from f2tools.experiment.measure import traced
from f2tools.experiment.model import Numbers, Work
from f2tools.experiment.onguest import TOOLS, between
from f2tools.guest.build import NoGuest, which
from f2tools.options import human_size
from f2tools.trace.record.capture import Recording, record, start_tracer

LOADS = (sys.executable, "-m", "f2tools.experiment.loads")
MOST = 4  # times the wanted size that a device may have: more is no share of the paper's


def is_device(path: str) -> bool:
    """Whether this is a block device; Usage where it is neither that nor a directory."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise Usage(f"--on {path}: {error.strerror}; engine, guest, a directory or a block device are wanted") from None
    if not (stat.S_ISBLK(mode) or stat.S_ISDIR(mode)):
        raise Usage(f"--on {path}: neither a directory nor a block device, and neither engine nor guest")
    return stat.S_ISBLK(mode)


def source_of(directory: str) -> tuple[str, str]:
    """(device, file system) that a directory lies on; Usage where that is no file system on a block device."""
    number = os.stat(directory).st_dev
    device = os.path.realpath(f"/dev/block/{os.major(number)}:{os.minor(number)}")
    kind = ""
    for mount in mount_table():
        if mount.number == f"{os.major(number)}:{os.minor(number)}":
            kind, device = mount.kind, mount.source
    if kind not in TOOLS or not os.path.exists(device):
        found = kind or "no block device below it"
        raise Usage(
            f"--on {directory}: {found}; a directory on {', '.join(TOOLS)} is wanted, a spare device, or --on guest"
        )
    return device, kind


def check_place(on: str, file_systems: tuple[str, ...]) -> None:
    """Usage, NoGuest or DeviceError where nothing can be run there; asked before anything is overwritten."""
    device = on if is_device(on) else source_of(on)[0]
    if os.geteuid():
        raise Usage(f"--on {on}: only root can trace {device}; use sudo, or --on guest, which needs no root")
    if device == on:
        why = in_use(on)
        if why:
            raise DeviceError(f"{on}: {why}; it is not overwritten")
        for fs in file_systems:
            program, package, *_ = TOOLS[fs]
            if which(program) is None:
                raise NoGuest(f"{program} is not installed here; apt-get install {package}, or leave {fs} out of --fs")
            if not _kernel_has(fs):
                what = "" if fs == "f2fs" else f"leave {fs} out of --fs, or "
                raise DeviceError(f"the kernel here has no {fs}; {what}take --on guest, which has a kernel of its own")
    with tempfile.TemporaryDirectory() as name:  # a tracer begins, and is stopped
        start_tracer(Recording(device, Path(name), ["true"])).stop()


def _kernel_has(fs: str) -> bool:
    with open("/proc/filesystems") as lines:
        if fs in (line.split()[-1] for line in lines):
            return True
    try:
        return subprocess.run(["modprobe", "-n", "-q", fs]).returncode == 0
    except FileNotFoundError:
        return False


def check_size(device: str, size: int) -> None:
    """Usage where a device has not about the size that an experiment wants."""
    with open(device, "rb") as file:
        there = file.seek(0, os.SEEK_END)
    if not size <= there <= MOST * size:
        raise Usage(
            f"{device} has {human_size(there)}; at this scale {human_size(size)} to {human_size(MOST * size)} are "
            "wanted: name a partition of about that size, or another --scale"
        )


def on_mounted(work: Work, fs: str, mount: str, load: str, params: Numbers, size: int) -> Numbers:
    """Prepare and run a load where `on` of the setting says."""
    on = work.setting.on
    with _place(on, fs, mount, size) as (device, root), tempfile.TemporaryDirectory() as name:
        given = Path(name) / "given.json"
        given.write_text(json.dumps({"params": params, "seed": work.setting.seed}))
        prepared = _prepare(load, given, root)
        os.sync()
        kept = Path(name) / "recorded"
        printed = Path(name) / "run.json"
        number = os.stat(device).st_rdev
        counters = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat"
        # a shell, as what is recorded prints to our own standard output, which is for the report
        words = [*LOADS, "RUN", load, str(given), root, counters]
        state = record(
            Recording(device, kept, ["sh", "-c", 'out=$1; shift; "$@" > "$out"', "sh", str(printed), *words])
        )
        if state:
            raise DeviceError(f"{load} on {on}: the load ended with {state}")
        work.advance(1.0)
        run, told = json.loads(printed.read_text()), json.loads((kept / "record.json").read_text())
        before, after = (list(told["counters"][when]["stat"].values()) for when in ("before", "after"))
        rounds = run["rounds"]
        found: Numbers = {
            "calls": run["calls"], "size_bytes": size, "full": prepared["full"], "kernel": os.uname().release,
            "run": between(before, after), "rounds": [between(a, b) for a, b in pairwise(rounds)],
            "enospc_in_round": 0 if prepared["enospc"] else run["enospc_in_round"],
            "enospc_before": prepared["enospc"], "trace": traced(str(kept), bool(params.get("map"))),
        }  # fmt: skip
        if work.directory is not None:
            shutil.copytree(kept, work.directory, dirs_exist_ok=True)
        return found


def _prepare(load: str, given: Path, root: str) -> Numbers:
    words = [*LOADS, "PREPARE", load, str(given), root]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SeveralLines(f"{load} could not be prepared in {root}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


@contextmanager
def _place(on: str, fs: str, mount: str, size: int) -> Iterator[tuple[str, str]]:
    """(device, directory for the load); both are as before afterwards, but for what a device held."""
    if not is_device(on):
        if mount:
            raise Usage(f"--on {on}: {fs} would have to be mounted with {mount}; a spare device can be, or --on guest")
        device, _ = source_of(on)
        root = tempfile.mkdtemp(prefix="f2tools-experiment-", dir=on)
        try:
            yield device, root
        finally:
            shutil.rmtree(root)
        return
    check_size(on, size)
    program, _, options, mounted = TOOLS[fs]
    why = in_use(on)
    if why:
        raise DeviceError(f"{on}: {why}; it is not overwritten")
    _do([program, *options.split(), on])
    root = tempfile.mkdtemp(prefix="f2tools-experiment-")
    try:
        _do(["mount", "-i", "-t", fs, "-o", ",".join(filter(None, (mounted, mount))), on, root])
        try:
            yield on, root
        finally:
            _do(["umount", root])
    finally:
        os.rmdir(root)


def _do(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SeveralLines(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-500:]}")
