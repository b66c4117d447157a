"""Capturing a trace while a command runs, with everything else that analysis can use, in one directory."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from f2tools import newfile, untrusted_json
from f2tools.blktrace.numbers import device_of
from f2tools.device.media.mounted import mount_table
from f2tools.errors import DeviceError, F2fsError, Taken
from f2tools.process import environment_of_others

STAT_NAMES = (
    "reads", "read_merges", "read_sectors", "read_ms", "writes", "write_merges", "write_sectors", "write_ms",
    "in_flight",
    "io_ms", "queue_ms", "discards", "discard_merges", "discard_sectors", "discard_ms", "flushes", "flush_ms",
)  # fmt: skip
START_SECONDS, STOP_SECONDS, TOOL_SECONDS = 10, 30, 20
TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
INSTANCE = "f2tools"
BLOCK_EVENTS = (
    "bio_queue", "bio_backmerge", "bio_frontmerge", "getrq", "rq_insert", "rq_issue", "rq_complete", "rq_requeue",
    "split", "bio_remap",
)  # fmt: skip
BLKTRACESTART = 0x1274  # linux/fs.h
PR_SET_PDEATHSIG = 1
# what blktrace prints in the end, one line for each device and CPU; anything else is a failure
SAID_BY_BLKTRACE = re.compile(
    r"|=== .* ===|CPU\s*\d+:\s+\d+ events,.*|Total:\s+\d+ events \(.*|You have .*dropped events"
    r"|Consider using a larger buffer size .*"
)
MOST_SAID = 20  # lines
ROOM = 32 << 10  # bytes that record.json needs at most
NVME_UNIT = 512_000  # data units written are thousands of 512 bytes


@dataclass
class Recording:
    """A request to record, and its result."""

    device: str
    directory: Path
    command: list[str]
    metadata: bool = True
    buffer_kib: int = 1024
    notes: list[str] = field(default_factory=list)


def record(asked: Recording) -> int:
    """Record; the command's exit status.  OSError and F2fsError where it can't begin; then nothing is left behind."""
    device, directory = asked.device, asked.directory
    if not os.path.exists(device):
        raise FileNotFoundError(2, os.strerror(2), device)
    if shutil.which(asked.command[0]) is None:
        raise FileNotFoundError(2, os.strerror(2), asked.command[0])
    made = not directory.exists()
    newfile.create_directory(
        str(directory)
    )  # blktrace opens its files by name, so nobody else may change this directory
    if any(directory.iterdir()):
        raise Taken(f"{directory}: not empty; a recording has a directory of its own")
    kept: dict[str, Any] = {"format": 1, "device": device, "command": asked.command, "started": time.time()}
    kept["offset"] = partition_offset(device)
    with Signals() as signals:
        try:
            kept["mounted"] = f2fs_status(device, directory, "before")
            before = nand_counters(device)
            _copy(asked, "before.img")
            room = _reserved(directory)
            tracer = start_tracer(asked)
        except BaseException:
            _empty(directory, made)
            raise
        # From here to the other end every request is in the trace and in the counters.
        try:
            counters = kept["counters"] = {"before": block_counters(device)}
            status_code, io, seconds = run_command(asked.command, signals)
            os.sync()  # what the command left in memory was written by it, too
            counters["after"] = block_counters(device)
        finally:
            tracer_said = kept["tracer"] = tracer.stop()
            room.close()
        for when, nand in (("before", before), ("after", nand_counters(device))):
            counters[when] |= {"nand": nand} if nand else {}
        try:
            f2fs_status(device, directory, "after")
        except OSError as error:
            (directory / "f2fs-after.txt").unlink(missing_ok=True)
            asked.notes.append(f"f2fs-after.txt: {error.strerror}")
        _copy(asked, "after.img")
    if isinstance(tracer, Blktrace):
        _compare(asked, counters, tracer_said["problems"])
    for problem in tracer_said["problems"]:
        asked.notes.append(problem)
        print(f"f2tools: {problem}", file=sys.stderr)
    kept |= {"io": io, "app_bytes": application_bytes(io), "exit_status": status_code, "seconds": seconds}
    kept["notes"] = asked.notes
    _keep(directory / "record.json", json.dumps(kept, indent=1) + "\n")
    return status_code


def _reserved(directory: Path) -> IO[bytes]:
    """A file without a name, whose room is that of what is written in the end, however much the trace takes."""
    room = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closed when the trace has ended
    with suppress(OSError):
        os.posix_fallocate(room.fileno(), 0, ROOM)
    return room


def _compare(asked: Recording, counters: dict[str, Any], problems: list[str]) -> None:
    """Say what the trace lacks of that which the kernel has counted."""
    from f2tools.trace.counters import missing_in, missing_text

    try:
        missing = missing_in(str(asked.directory / "trace"), counters)
    except (F2fsError, OSError) as error:
        problems.append(f"the trace can't be read: {error}")
        return
    if missing:
        asked.notes.append(missing_text(missing))
        print(f"f2tools: {asked.notes[-1]}; blktrace's own words are in blktrace.txt", file=sys.stderr)


def _keep(path: Path, text: str) -> None:
    with open(newfile.create(str(path)), "w", encoding="utf-8") as file:
        file.write(text)


def _empty(directory: Path, made: bool) -> None:
    """Remove what a recording that did not begin has left."""
    for path in directory.iterdir():
        path.unlink()
    if made:
        directory.rmdir()


class Signals:
    """Pass signals to stop on to the command while one runs; else end, with everything cleaned up."""

    TAKEN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.command: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in self.TAKEN:
                if signal.getsignal(number) != signal.SIG_IGN:  # nohup
                    self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: object) -> None:
        if self.command is None:
            sys.exit(128 + number)
        if not (number == signal.SIGINT and _at_the_terminal()):  # Ctrl-C reaches the command by itself
            self.command.send_signal(number)


def _at_the_terminal() -> bool:
    """Whether this process and its children get what is typed at the terminal."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)


def application_bytes(io: dict[str, int]) -> int | None:
    """What the command and its children sent to storage: dirtied pages, less those that were thrown away."""
    if "write_bytes" not in io:
        return None
    return max(io["write_bytes"] - io.get("cancelled_write_bytes", 0), 0)


def run_command(command: list[str], signals: Signals) -> tuple[int, dict[str, int], float]:
    """(exit status, /proc/PID/io, seconds) of a command; its counters have those of its children in them."""
    started = time.monotonic()
    process = signals.command = subprocess.Popen(command, env=environment_of_others())
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, but not yet reaped
    signals.command = None
    seconds = time.monotonic() - started
    try:
        text = Path(f"/proc/{process.pid}/io").read_text()
        io = {name.strip(): int(value) for name, value in (line.split(":") for line in text.splitlines())}
    except (OSError, ValueError):
        io = {}
    code = process.wait()
    return (128 - code if code < 0 else code), io, seconds


def _copy(asked: Recording, name: str) -> None:
    if not asked.metadata:
        return
    from f2tools.trace.record.metadata import copy_metadata

    os.sync()
    target = asked.directory / name
    try:
        if not copy_metadata(asked.device, target):
            target.unlink(missing_ok=True)
            asked.notes.append("no F2FS volume on the device: no copies of its metadata")
    except (F2fsError, OSError) as error:
        target.unlink(missing_ok=True)
        asked.notes.append(f"{name}: {error}")


# -- counters and state -------------------------------------------------------------------------------------------


def _number(device: str) -> tuple[int, int] | None:
    mode = os.stat(device)
    return (os.major(mode.st_rdev), os.minor(mode.st_rdev)) if stat.S_ISBLK(mode.st_mode) else None


def _sysfs(device: str) -> Path | None:
    number = _number(device)
    path = Path(f"/sys/dev/block/{number[0]}:{number[1]}") if number else None
    return path if path is not None and path.exists() else None


def partition_offset(device: str) -> int:
    """Sectors between the start of the disk and of the partition: a trace of a partition has the disk's sectors."""
    return _told(device, "start")


def partition_sectors(device: str) -> int:
    """How many sectors of 512 bytes a block device has; 0 where that is not known."""
    return _told(device, "size")


def _told(device: str, name: str) -> int:
    """A number that the kernel has for a block device; 0 where it has none."""
    path = _sysfs(device)
    try:
        return int((path / name).read_text()) if path is not None else 0
    except (OSError, ValueError):
        return 0


def block_counters(device: str) -> dict[str, Any]:
    """The kernel's counters of a device."""
    path = _sysfs(device)
    if path is not None:
        with suppress(OSError):
            return {"stat": parse_stat((path / "stat").read_text())}
    return {}


def parse_stat(text: str) -> dict[str, int]:
    """/sys/block/DEVICE/stat by name; older kernels have fewer numbers."""
    return dict(zip(STAT_NAMES, map(int, text.split()), strict=False))


def nand_counters(device: str) -> dict[str, int] | None:
    """Bytes from the host and bytes to the flash, by nvme-cli, smartctl; of eMMC the wear by mmc-utils."""
    name = os.path.basename(os.path.realpath(device))
    if name.startswith("nvme"):
        return _nvme(device)
    if name.startswith("mmcblk"):
        text = _output("mmc", "extcsd", "read", device)
        wear = re.search(r"LIFE_TIME_EST(?:IMATION)?_TYP_A[^\n]*?(0x[0-9a-fA-F]+)\s*$", text, re.MULTILINE)
        return {"life_time_a": int(wear[1], 16)} if wear else None
    return parse_smart(_output("smartctl", "-A", "-j", device))


def _nvme(device: str) -> dict[str, int] | None:
    found: dict[str, int] = {}
    smart = _json(_output("nvme", "smart-log", "-o", "json", device))
    if isinstance(smart.get("data_units_written"), int):
        found["host_bytes"] = smart["data_units_written"] * NVME_UNIT
    ocp = _json(_output("nvme", "ocp", "smart-add-log", "-o", "json", device))
    for key, value in ocp.items():
        if "physical media units written" in key.lower().replace("_", " "):
            found["media_bytes"] = value["lo"] + (value["hi"] << 64) if isinstance(value, dict) else int(value)
    return found or None


def parse_smart(text: str) -> dict[str, int] | None:
    """Host and flash bytes from smartctl's JSON, by attributes that vendors agree on: 241, and 249 or 233."""
    table = _json(text).get("ata_smart_attributes")
    rows = table.get("table", []) if isinstance(table, dict) else []
    found: dict[str, int] = {}
    for row in rows:
        name, number, raw = str(row.get("name", "")), row.get("id"), row.get("raw", {}).get("value", 0)
        unit = (
            1 << 30
            if "GiB" in name or "GB" in name
            else 32 << 20
            if "32MiB" in name
            else 512
            if "LBA" in name
            else None
        )
        if number == 241 and unit is not None:
            found["host_bytes"] = raw * unit
        elif number in (233, 249) and "NAND" in name and unit is not None:
            found["media_bytes"] = raw * unit
    return found or None


def _json(text: str) -> dict[str, Any]:
    try:
        found = untrusted_json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _output(*command: str) -> str:
    """What a tool prints; empty where there is no such tool or it has nothing to say."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, timeout=TOOL_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def f2fs_status(device: str, directory: Path, when: str) -> str | None:
    """Keep what the kernel says of a mounted F2FS volume; where it is mounted."""
    number = _number(device)
    mounted = _mount_point(number) if number else None
    if mounted is None:
        return None
    name = os.path.basename(os.path.realpath(device))
    parts = []
    proc = Path(f"/proc/fs/f2fs/{name}")
    for path in (Path("/sys/kernel/debug/f2fs/status"), proc / "iostat_info", proc / "segment_info"):
        try:
            parts.append(f"== {path}\n{path.read_text(errors='replace')}")
        except OSError:
            continue
    for path in sorted(Path(f"/sys/fs/f2fs/{name}").glob("*")):
        try:
            parts.append(f"{path.name} {path.read_text(errors='replace').strip()}\n")
        except OSError:
            continue
    _keep(directory / f"f2fs-{when}.txt", "".join(parts))
    return mounted


def _mount_point(number: tuple[int, int]) -> str | None:
    wanted = f"{number[0]}:{number[1]}"
    return next((one.directory for one in mount_table() if one.number == wanted and one.kind == "f2fs"), None)


# -- tracers ------------------------------------------------------------------------------------------------------


def start_tracer(asked: Recording) -> Blktrace | Tracefs:
    """blktrace, or the kernel's own tracepoints where that is not installed."""
    if shutil.which("blktrace"):
        return Blktrace(asked)
    for path in TRACEFS:
        if os.access(path, os.W_OK) and Path(path, "instances").is_dir():
            return Tracefs(asked, Path(path))
    raise DeviceError("there is neither blktrace nor a writable tracefs; install blktrace, and be root")


class Blktrace:
    """Run blktrace, writing into the directory, until it is told to stop."""

    def __init__(self, asked: Recording) -> None:
        self._directory = asked.directory
        self._device = asked.device
        self._log = open(newfile.create(str(asked.directory / "blktrace.txt")), "wb")  # noqa: SIM115 - until stop()
        command = [
            "blktrace",
            "-d",
            asked.device,
            "-D",
            str(asked.directory),
            "-o",
            "trace",
            "-b",
            str(asked.buffer_kib),
        ]
        # In a session of its own: a Ctrl-C is not for it, it goes on until the command has ended.
        self._process = subprocess.Popen(
            command,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,
            preexec_fn=_interrupt_when_orphan,
        )
        try:
            self._wait_until_started()
        except BaseException:
            self._end()
            self._log.close()
            raise

    def _wait_until_started(self) -> None:
        until = time.monotonic() + START_SECONDS
        while not list(self._directory.glob("trace.blktrace.*")):
            if self._process.poll() is not None or time.monotonic() > until:
                raise self._failed()
            time.sleep(0.02)
        time.sleep(0.1)
        if self._process.poll() is not None:
            raise self._failed()
        # It opens its files before it starts the trace; nothing of the command may be missed in between.
        with suppress(OSError):
            fd = os.open(self._device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.ioctl(fd, BLKTRACESTART)
            finally:
                os.close(fd)

    def _failed(self) -> DeviceError:
        said = self._said().strip() or "it says nothing"
        if "resource busy" in said:
            said += f"; somebody traces the device already (`blktrace -d {self._device} -k` ends that)"
        return DeviceError(f"blktrace did not start: {said}")

    def _said(self) -> str:
        return (self._directory / "blktrace.txt").read_text(errors="replace")

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def stop(self) -> dict[str, Any]:
        """End it; returns what it says about events that it dropped."""
        early = self._process.poll() is not None
        self._end()
        self._log.close()
        text = self._said()
        strange = [line.strip() for line in text.splitlines() if not SAID_BY_BLKTRACE.fullmatch(line.strip())]
        problems = [f"blktrace said: {line}" for line in strange[:MOST_SAID]]
        if early:
            problems.insert(0, f"blktrace ended before the command: {text.strip() or 'it says nothing'}")
        dropped = sum(int(number) for number in re.findall(r"dropped (\d+)", text))
        if dropped:
            print(f"f2tools: blktrace dropped {dropped} events; try a larger --buffer", file=sys.stderr)
        return {"kind": "blktrace", "dropped": dropped, "problems": problems}


def _interrupt_when_orphan() -> None:
    """In the child: be told to end when f2tools is killed, so that the device does not stay traced for ever."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a shell ignores for what it runs in the background
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGINT))


class Tracefs:
    """An instance of ftrace with the block and F2FS write tracepoints, copied to a file by a thread."""

    def __init__(self, asked: Recording, root: Path) -> None:
        number = _number(asked.device)
        if number is None:
            raise DeviceError(f"{asked.device}: not a block device; only those have requests to trace")
        _remove_orphans(root / "instances")
        self._instance = root / "instances" / f"{INSTANCE}-{os.getpid()}"
        self._instance.mkdir()
        self._pipe = -1
        self._error: OSError | None = None  # of the file
        try:
            self._write("buffer_size_kb", str(asked.buffer_kib))
            self._write("trace_clock", "mono")
            for event in BLOCK_EVENTS:
                self._write(f"events/block/block_{event}/filter", event_filter(asked.device, number))
                self._write(f"events/block/block_{event}/enable", "1")
            self._write("events/f2fs/f2fs_submit_page_write/filter", f"dev == {device_of(*number)}")
            self._write("events/f2fs/f2fs_submit_page_write/enable", "1")
            self._pipe = os.open(self._instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
            self._out = open(newfile.create(str(asked.directory / "ftrace.txt")), "wb")  # noqa: SIM115 - until stop()
        except BaseException:
            self._remove()
            raise
        self._begin()

    def _begin(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _write(self, name: str, text: str) -> None:
        try:
            (self._instance / name).write_text(text)
        except OSError:
            return  # a kernel without this event

    def _remove(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
        with suppress(OSError):
            self._instance.rmdir()

    def _copy(self) -> None:
        while True:
            ending = self._stop.is_set()
            try:
                data = os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                data = b""
            if data:
                self._put(data)
            elif ending:
                return
            else:
                time.sleep(0.01)

    def _put(self, data: bytes) -> None:
        """Write to the file; after an error the rest is dropped, so that the trace in it has no hole."""
        if self._error is None:
            try:
                self._out.write(data)
            except OSError as error:
                self._error = error

    def stop(self) -> dict[str, Any]:
        """End it; returns what the kernel says about events that it lost, and whether all could be kept."""
        self._write("tracing_on", "0")
        self._stop.set()
        self._thread.join(STOP_SECONDS)
        try:
            self._out.close()
        except OSError as error:
            self._error = self._error or error
        problems = [] if self._error is None else [f"ftrace.txt: not all of the trace is in it: {self._error.strerror}"]
        lost = 0
        for path in self._instance.glob("per_cpu/cpu*/stats"):
            found = re.search(r"overrun: (\d+)", path.read_text())
            lost += int(found[1]) if found else 0
        self._remove()
        if lost:
            print(f"f2tools: the kernel lost {lost} events; try a larger --buffer", file=sys.stderr)
        return {"kind": "tracefs", "dropped": lost, "problems": problems}


def event_filter(device: str, number: tuple[int, int]) -> str:
    """The words in an event of this device.  Events of requests name the disk, even where it is a partition."""
    own = f"dev == {device_of(*number)}"
    path = _sysfs(device)
    if path is None or not (path / "partition").exists():
        return own
    major, minor = map(int, (path.resolve().parent / "dev").read_text().split(":"))
    first = partition_offset(device)
    inside = f"sector >= {first} && sector < {first + partition_sectors(device)}"
    return f"{own} || (dev == {device_of(major, minor)} && {inside})"


def _remove_orphans(instances: Path) -> None:
    """Remove what killed recordings left behind."""
    for path in instances.glob(f"{INSTANCE}-*"):
        pid = path.name.rpartition("-")[2]
        if not Path("/proc", pid).exists():
            with suppress(OSError):
                path.rmdir()
