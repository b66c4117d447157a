"""`f2tools trace record` with the real blktrace and the real tracepoints, held against the kernel's own counters.

/dev/vda is an empty disk of 256 MiB, /dev/vdb another one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.onboard.aboard import f2, mounted, sh

DISK, OTHER = "/dev/vda", "/dev/vdb"
TRACERS = ("blktrace", "tracefs")
INSTANCES = Path("/sys/kernel/tracing/instances")
WORK = (
    "for n in 1 2 3 4; do dd if=/dev/urandom of={0}/file$n bs=64k count=16 conv=fsync status=none; done; "
    "rm {0}/file2; sync; dd if=/dev/urandom of={0}/file1 bs=4k seek=10 count=20 conv=notrunc,fsync status=none; "
    "echo 3 > /proc/sys/vm/drop_caches; cat {0}/file3 > /dev/null"
)


@pytest.fixture(params=TRACERS)
def tracer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A PATH with blktrace, and one without it; nothing is left over afterwards."""
    sh("grep -q ' /sys/kernel/tracing ' /proc/mounts || mount -t tracefs tracefs /sys/kernel/tracing")
    if request.param == "tracefs":
        hide_blktrace(monkeypatch)
    yield request.param
    nothing_left()


def hide_blktrace(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Path("/tmp/no-blktrace")
    if not directory.exists():
        directory.mkdir()
        for place in os.environ["PATH"].split(":"):
            for program in Path(place).glob("*"):
                if program.name != "blktrace" and not os.path.lexists(directory / program.name):
                    (directory / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(directory))


def nothing_left() -> None:
    """No blktrace runs, no device is traced, no instance of ftrace is there."""
    running = [p for p in Path("/proc").glob("[0-9]*/comm") if p.read_text().strip() == "blktrace"]
    assert not running
    assert not list(INSTANCES.glob("f2tools*"))
    assert "1" not in sh("cat /sys/block/vd*/trace/enable")


def recorded(directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    kept = json.loads((directory / "record.json").read_text())
    return kept, json.loads(f2("trace", "analyze", directory, "--json").out)


def delta(kept: dict[str, Any]) -> dict[str, int]:
    before, after = (kept["counters"][when]["stat"] for when in ("before", "after"))
    return {name: after[name] - before[name] for name in before}


def equal_to_the_counters(kept: dict[str, Any], report: dict[str, Any]) -> None:
    moved = delta(kept)
    for ours, theirs in (("reads", "read"), ("writes", "write"), ("discards", "discard")):
        assert report[ours]["bytes"] == moved[f"{theirs}_sectors"] * 512, (ours, report[ours], moved)
    assert report["reads"]["requests"] == moved["reads"], moved
    assert report["writes"]["requests"] == moved["writes"], moved
    assert report["discards"]["requests"] == moved["discards"], moved
    assert report["lost_events"] == 0


def test_a_workload_on_a_mounted_volume(tracer: str) -> None:
    run = Path(f"/tmp/run-{tracer}")
    f2("mkfs", "-q", "-f", DISK)
    with mounted(DISK) as where:
        sh(f"dd if=/dev/urandom of={where}/old bs=1M count=3 status=none; sync")
        f2("dump", "ls", DISK)  # whoever looked at the device before must not make the copies old
        started = stat_line(DISK)
        f2("trace", "record", DISK, "-o", run, "--", "sh", "-c", WORK.format(where))
        ended = stat_line(DISK)
        assert sorted(path.name for path in where.iterdir()) == ["file1", "file3", "file4", "old"]
    kept, report = recorded(run)
    assert kept["tracer"]["kind"] == tracer
    assert kept["mounted"]
    assert kept["notes"] == []
    assert kept["app_bytes"] >= 4 * 16 * 65536
    equal_to_the_counters(kept, report)
    assert report["writes"]["bytes"] >= 4 * 16 * 65536
    assert report["reads"]["bytes"] >= 16 * 65536
    assert (ended[6] - started[6]) * 512 >= report["writes"]["bytes"]
    # attribution by the two copies
    assert sum(report["areas"].values()) == report["writes"]["bytes"]
    paths = {one["path"] for one in report["files"].values()}
    assert {"/file1", "/file3", "/file4"} <= paths, paths
    assert report["logs"]["warm_data"] >= 3 * 16 * 65536, report["logs"]
    assert (run / "f2fs-before.txt").read_text() != (run / "f2fs-after.txt").read_text()
    f2("trace", "analyze", run, "--html", "/tmp/report.html")


def stat_line(device: str) -> list[int]:
    return [int(word) for word in Path(f"/sys/block/{Path(device).name}/stat").read_text().split()]


def test_a_partition(tracer: str) -> None:
    run = Path(f"/tmp/part-{tracer}")
    sh(f"sfdisk -q --wipe always {OTHER} <<'END'\nlabel: dos\nstart=2048, size=180000\nsize=180000\nEND\nsleep 0.5")
    f2("mkfs", "-q", "-f", f"{OTHER}1")
    f2("mkfs", "-q", "-f", f"{OTHER}2")
    with mounted(f"{OTHER}1") as first, mounted(f"{OTHER}2") as second:
        work = f"{WORK.format(second)}; dd if=/dev/urandom of={first}/x bs=64k count=5 conv=fsync status=none"
        f2("trace", "record", f"{OTHER}2", "-o", run, "--", "sh", "-c", work)
    kept, report = recorded(run)
    assert kept["offset"] == int(Path("/sys/class/block/vdb2/start").read_text()) > 180000
    moved = delta(kept)
    assert report["writes"]["bytes"] == moved["write_sectors"] * 512, (report["writes"], moved)
    assert report["reads"]["bytes"] == moved["read_sectors"] * 512, (report["reads"], moved)
    assert sum(report["areas"].values()) == report["writes"]["bytes"]
    assert {"/file1", "/file3", "/file4"} <= {one["path"] for one in report["files"].values()}


def test_a_command_that_fails(tracer: str) -> None:
    run = Path(f"/tmp/fails-{tracer}")
    f2("mkfs", "-q", "-f", DISK)
    work = f"dd if=/dev/zero of={DISK} bs=4k seek=9000 count=7 conv=fsync status=none; exit 5"
    f2("trace", "record", DISK, "-o", run, "--", "sh", "-c", work, code=5)
    kept, report = recorded(run)
    assert kept["exit_status"] == 5
    assert report["writes"]["bytes"] == 7 * 4096
    equal_to_the_counters(kept, report)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_is_told_to_stop(tracer: str, number: signal.Signals) -> None:
    """The command gets the signal; what was recorded until then is kept."""
    run = Path(f"/tmp/stopped-{tracer}-{number}")
    process = started(run)
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    kept, report = recorded(run)
    assert kept["exit_status"] == 128 + number
    assert report["writes"]["bytes"] >= 4096
    equal_to_the_counters(kept, report)
    assert not sh("pgrep -f 'sleep 54[3]'", check=False)


def test_it_is_killed(tracer: str) -> None:
    """Nobody can clean up after a SIGKILL at once: blktrace ends all the same, and the next recording starts."""
    run = Path(f"/tmp/killed-{tracer}")
    process = started(run)
    process.kill()
    process.wait()
    sh("pkill -x -f 'sleep 543'", check=False)
    again = Path(f"/tmp/again-{tracer}")
    f2("trace", "record", OTHER, "-o", again, "--no-metadata", "--", "true")
    if tracer == "blktrace":
        for _ in range(100):
            if not sh("pgrep -x blktrace", check=False):
                break
            time.sleep(0.1)
        f2("trace", "analyze", run)
    f2("trace", "record", DISK, "-o", f"{again}2", "--no-metadata", "--", "true")


def started(directory: Path) -> subprocess.Popen[bytes]:
    """A recording whose command has written a block and goes on for ever."""
    ready = Path("/tmp/ready")
    ready.unlink(missing_ok=True)
    work = f"dd if=/dev/zero of={DISK} bs=4k seek=9000 count=1 conv=fsync status=none; touch {ready}; exec sleep 543"
    process = subprocess.Popen(
        ["f2tools", "trace", "record", DISK, "-o", directory, "--no-metadata", "--", "sh", "-c", work]
    )
    until = time.monotonic() + 60
    while not ready.exists() and time.monotonic() < until:
        assert process.poll() is None
        time.sleep(0.05)
    return process


def test_two_at_once(tracer: str) -> None:
    f2("mkfs", "-q", "-f", DISK)
    process = started(Path(f"/tmp/one-{tracer}"))
    work = f"dd if=/dev/zero of={OTHER} bs=4k seek=9000 count=3 conv=fsync status=none"
    f2("trace", "record", OTHER, "-o", f"/tmp/two-{tracer}", "--no-metadata", "--", "sh", "-c", work)
    kept, report = recorded(Path(f"/tmp/two-{tracer}"))
    equal_to_the_counters(kept, report)
    assert report["writes"]["bytes"] == 3 * 4096
    process.terminate()
    process.wait(60)


def test_neither_blktrace_nor_tracefs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what is missing, does not run the command and leaves no directory."""
    hide_blktrace(monkeypatch)
    sh("umount /sys/kernel/tracing; umount /sys/kernel/debug/tracing; umount /sys/kernel/debug", check=False)
    try:
        done = f2("trace", "record", DISK, "-o", "/tmp/none", "--", "touch", "/tmp/was-run", code=8)
        assert "install blktrace" in done.err
        assert not Path("/tmp/none").exists()
        assert not Path("/tmp/was-run").exists()
    finally:
        sh("mount -t debugfs debug /sys/kernel/debug; mount -t tracefs tracefs /sys/kernel/tracing", check=False)


def test_blktrace_that_can_t_trace() -> None:
    """Of a regular file it says why not; the next recording into the same directory finds it free."""
    image = Path("/tmp/image")
    shutil.copyfile("/proc/version", image)
    done = f2("trace", "record", image, "-o", "/tmp/refused", "--", "true", code=8)
    assert "f2tools: " in done.err
    assert not Path("/tmp/refused").exists()
