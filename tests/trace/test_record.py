"""Recording, with a stand-in for blktrace: what is kept, and that analyze finds it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from f2tools.trace.record import capture as recording
from tests import images
from tests.trace import traces

STAND_IN = """#!/bin/sh
# blktrace -d DEVICE -D DIRECTORY -o NAME -b SIZE
cp {source}.blktrace.0 "$4/$6.blktrace.0"
trap 'echo "  Total: 3712 events (dropped {dropped}), 175 KiB data"; exit 0' INT
while :; do sleep 0.05; done
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory for PATH with a blktrace that gives a known trace."""
    source = traces.unpacked("churn", tmp_path / "source")
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "blktrace").write_text(STAND_IN.format(source=source, dropped=0))
    (directory / "blktrace").chmod(0o755)
    return directory


def record(tools: Path, *args: object) -> subprocess.CompletedProcess[str]:
    code = "from f2tools.cli import run; run()"
    command = [sys.executable, "-c", code, "trace", "record", *map(str, args)]
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PATH": path}, timeout=120)


def test_a_recording_is_one_directory_that_analyze_reads(tmp_path: Path, tools: Path) -> None:
    device = images.copy_sparse(traces.image("churn", "after"), tmp_path / "disk.img")
    written = tmp_path / "written"
    command = ["dd", "if=/dev/zero", f"of={written}", "bs=64k", "count=16", "conv=fsync"]
    done = record(tools, device, "-o", tmp_path / "run", "--", *command)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "run" / "record.json").read_text())
    assert kept["exit_status"] == 0
    assert kept["io"]["wchar"] >= 1 << 20
    assert kept["app_bytes"] == 0 or 1 << 20 <= kept["app_bytes"] < 2 << 20  # a file system in memory counts nothing
    assert kept["tracer"] == {"kind": "blktrace", "dropped": 0, "problems": []}
    (tmp_path / "run" / "record.json").write_text(json.dumps(kept | {"app_bytes": 1 << 20}))
    code = "from f2tools.cli import run; run()"
    command = [sys.executable, "-c", code, "trace", "analyze", str(tmp_path / "run"), "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert report["app_bytes"] == 1 << 20
    assert report["areas"]["main"] > 0
    assert report["files"]


def test_copies_of_metadata_are_small_and_say_the_same(tmp_path: Path) -> None:
    from f2tools.trace.analyze import AnalysisRequest, analyze
    from f2tools.trace.record.metadata import copy_metadata

    pair = []
    for which in ("before", "after"):
        original = traces.image("fileserver", which)
        assert copy_metadata(str(original), tmp_path / f"{which}.img")
        pair.append(str(tmp_path / f"{which}.img"))
        assert os.stat(pair[-1]).st_blocks < os.stat(original).st_blocks
    originals = [str(traces.image("fileserver", which)) for which in ("before", "after")]
    directory = str(traces.DIRECTORY / "fileserver")
    ours, theirs = (analyze(AnalysisRequest(directory, *both, top=0)).report for both in (pair, originals))
    for key in ("areas", "logs", "ambiguous", "files", "valid_block_histogram"):
        assert ours[key] == theirs[key], key


def test_a_command_that_fails_is_recorded_all_the_same(tmp_path: Path, tools: Path) -> None:
    device = tmp_path / "disk.img"
    device.write_bytes(bytes(1 << 20))
    done = record(tools, device, "-o", tmp_path / "run", "--", "sh", "-c", "exit 7")
    assert done.returncode == 7
    kept = json.loads((tmp_path / "run" / "record.json").read_text())
    assert kept["exit_status"] == 7
    assert "no F2FS volume" in kept["notes"][0]
    again = record(tools, device, "-o", tmp_path / "run", "--", "true")
    assert again.returncode == 1
    assert "not empty" in again.stderr


@pytest.mark.parametrize("given", [None, "3"])
def test_the_command_that_is_recorded_has_the_threads_that_it_would_have(
    given: str | None, tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    device = tmp_path / "disk.img"
    device.write_bytes(bytes(1 << 20))
    said = tmp_path / "said"
    done = record(tools, device, "-o", tmp_path / "run", "--", "sh", "-c", f"echo $OPENBLAS_NUM_THREADS > {said}")
    assert done.returncode == 0, done.stderr
    assert said.read_text() == f"{given or ''}\n"


def test_a_tracer_ends_when_it_is_told_to_where_interrupts_are_ignored(tmp_path: Path, tools: Path) -> None:
    device = tmp_path / "disk.img"
    device.write_bytes(bytes(1 << 20))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a job that a shell runs in the background
    try:
        done = record(tools, device, "-o", tmp_path / "run", "--", "true")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "record.json").read_text())["tracer"] == {
        "kind": "blktrace",
        "dropped": 0,
        "problems": [],
    }
    assert "Total: 3712 events" in (tmp_path / "run" / "blktrace.txt").read_text()


def test_dropped_events_are_said(tmp_path: Path, tools: Path) -> None:
    script = tools / "blktrace"
    script.write_text(script.read_text().replace("dropped 0", "dropped 17"))
    device = tmp_path / "disk.img"
    device.write_bytes(bytes(1 << 20))
    done = record(tools, device, "-o", tmp_path / "run", "--no-metadata", "--", "sleep", "1")
    assert "dropped 17 events" in done.stderr
    assert json.loads((tmp_path / "run" / "record.json").read_text())["tracer"]["dropped"] == 17


def test_a_tracer_that_does_not_start_is_an_error_with_its_words(tmp_path: Path, tools: Path) -> None:
    (tools / "blktrace").write_text("#!/bin/sh\necho 'BLKTRACESETUP: no such thing'; exit 1\n")
    device = tmp_path / "disk.img"
    device.write_bytes(bytes(1 << 20))
    done = record(tools, device, "-o", tmp_path / "run", "--no-metadata", "--", "touch", tmp_path / "ran")
    assert done.returncode == 8
    assert "BLKTRACESETUP" in done.stderr
    assert not (tmp_path / "ran").exists()
    assert record(tools, tmp_path / "missing", "--", "true").returncode == 1
    assert record(tools, device, "-o", tmp_path / "other", "--", "no-such-command").returncode == 1


def test_counters_are_read_by_name() -> None:
    text = "    91 0 2408 50 43791 2043 1011872 123338 0 7572 123688 7 0 4204376 11 1293 288\n"
    found = recording.parse_stat(text)
    assert (found["writes"], found["write_sectors"], found["flushes"]) == (43791, 1011872, 1293)
    assert "flushes" not in recording.parse_stat("1 2 3 4 5 6 7 8 9 10 11")


def test_the_device_s_own_counters_give_its_amplification() -> None:
    from f2tools.trace.metrics.traffic import device_waf

    rows = [
        {"id": 241, "name": "Host_Writes_GiB", "raw": {"value": 100}},
        {"id": 233, "name": "NAND_Writes_GiB", "raw": {"value": 150}},
    ]
    before = recording.parse_smart(json.dumps({"ata_smart_attributes": {"table": rows}}))
    assert before == {"host_bytes": 100 << 30, "media_bytes": 150 << 30}
    after = {"host_bytes": 110 << 30, "media_bytes": 175 << 30}
    found = device_waf({"before": {"nand": before}, "after": {"nand": after}})
    assert found is not None
    assert found["ratio"] == 2.5
    assert recording.parse_smart("not JSON") is None
    assert device_waf({}) is None


def analyzed(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    code = "from f2tools.cli import run; run()"
    return subprocess.run(
        [sys.executable, "-c", code, "trace", "analyze", str(directory), *options], capture_output=True, text=True
    )


def test_what_blktrace_says_of_its_failures_is_told_and_is_damage(tmp_path: Path, tools: Path) -> None:
    script = tools / "blktrace"
    words = "setup_mmap: mmap: Invalid argument"
    script.write_text(script.read_text().replace("trap", f'echo "{words}"\necho "=== vda ==="\ntrap'))
    device = tmp_path / "disk.img"
    device.write_bytes(bytes(1 << 20))
    done = record(tools, device, "-o", tmp_path / "run", "--no-metadata", "--", "sleep", "1")
    assert done.returncode == 0
    assert f"blktrace said: {words}" in done.stderr
    assert "===" not in done.stderr
    kept = json.loads((tmp_path / "run" / "record.json").read_text())
    assert kept["notes"] == kept["tracer"]["problems"] == [f"blktrace said: {words}"]
    assert words in " ".join(analyzed(tmp_path / "run").stdout.split())
    strict = analyzed(tmp_path / "run", "--strict")
    assert strict.returncode != 0
    assert words in strict.stderr


def test_events_that_blktrace_dropped_are_lost(tmp_path: Path, tools: Path) -> None:
    script = tools / "blktrace"
    script.write_text(script.read_text().replace("dropped 0", "dropped 17"))
    device = tmp_path / "disk.img"
    device.write_bytes(bytes(1 << 20))
    record(tools, device, "-o", tmp_path / "run", "--no-metadata", "--", "sleep", "1")
    report = json.loads(analyzed(tmp_path / "run", "--json").stdout)
    assert report["lost_events"] == 17


@pytest.mark.parametrize("missing", [0, 4096])
def test_requests_that_only_the_counters_have_are_said_when_recorded_and_when_analyzed(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: int
) -> None:
    """A file of a CPU that blktrace could not write has no gap in its numbers."""
    facts = traces.facts("churn")["counters"]
    facts["after"]["write_sectors"] += missing // 512
    states = [{"stat": facts["before"] | {"in_flight": 0}}, {"stat": facts["after"]}]
    monkeypatch.setattr(recording, "block_counters", lambda _: states.pop(0))
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    script = tools / "blktrace"
    copies = 'for n in {source}.blktrace.*; do cp $n "$4/$6.blktrace.${{n##*.}}"; done\ntrap'
    source = traces.unpacked("churn", tmp_path / "all")
    script.write_text(script.read_text().replace("trap", copies.format(source=source)))
    device = tmp_path / "disk.img"
    device.write_bytes(bytes(1 << 20))
    directory = tmp_path / "run"
    assert recording.record(recording.Recording(str(device), directory, ["sleep", "1"], metadata=False)) == 0
    notes = json.loads((directory / "record.json").read_text())["notes"]
    text = f"requests of {missing:,} bytes, which the device's own counters have, are not in the trace"
    assert notes == ([text] if missing else [])
    assert (text in capsys.readouterr().err) == bool(missing)
    for options in ((), ("--jobs", "2"), ("--issue-only",)):
        strict = analyzed(directory, "--strict", *options)
        assert (strict.returncode != 0) == bool(missing), strict.stderr
        assert (text in strict.stderr) == bool(missing)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in traces.DIRECTORY.glob("*/trace.json")))
def test_no_real_trace_lacks_what_the_kernel_counted(tmp_path: Path, name: str) -> None:
    from f2tools.trace.analyze import AnalysisRequest, analyze
    from f2tools.trace.counters import counted_bytes, missing_bytes

    counters = {when: {"stat": stat} for when, stat in traces.facts(name)["counters"].items()}
    measures = analyze(AnalysisRequest(str(traces.DIRECTORY / name))).measures
    queued, issued = (sum(each.bytes for each in sizes.values()) for sizes in (measures.queued, measures.issued))
    completed = int(measures.completed[:, 1].sum())
    assert counted_bytes(counters)
    counters["before"]["stat"]["in_flight"] = 0
    assert missing_bytes(counters, queued, issued, completed) == 0
    assert missing_bytes(counters, queued // 2, issued // 2, completed) > 0


def test_a_copy_of_the_trace_onto_a_full_target_goes_on_and_says_so(tmp_path: Path) -> None:
    """Through tracefs the trace is copied by a thread, which must go on to empty the kernel's buffers."""
    tracer = object.__new__(recording.Tracefs)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    tracer.__dict__ |= {"_instance": tmp_path / "instance", "_pipe": reading, "_error": None}
    tracer._instance.mkdir()
    tracer._out = open("/dev/full", "wb")  # noqa: SIM115 - closed by stop()
    tracer._begin()
    for _ in range(4):
        os.write(writing, bytes(1 << 15))
    said = tracer.stop()
    os.close(writing)
    assert said["kind"] == "tracefs"
    assert said["problems"] == ["ftrace.txt: not all of the trace is in it: No space left on device"]
    assert not tracer._thread.is_alive()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)
