"""Traces for the tests: a writer of the binary format in both versions and byte orders, and the reference traces."""

from __future__ import annotations

import json
import lzma
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import zstandard
from click.testing import CliRunner

from f2tools.blktrace.records import OP_NUMBERS
from f2tools.cli import main
from tests import images

DIRECTORY = Path(__file__).parent.parent / "reference" / "traces"
READ, WRITE, FLUSH, SYNC, NOTIFY, DISCARD, FS = 1, 2, 4, 8, 1024, 8192, 256
DEVICE = 8 << 20 | 16


@dataclass(frozen=True)
class Ev:
    """One event as the kernel would record it; the sequence number is given out by `records`."""

    time: int
    op: str
    sector: int = 0
    sectors: int = 8
    category: int = WRITE
    pid: int = 100
    cpu: int = 0
    error: int = 0
    payload: bytes = b""
    cgroup: int = 0
    device: int = DEVICE
    sequence: int | None = None
    raw: dict[str, int] = field(default_factory=dict)  # header fields to be forged


def note(time: int, op: int, payload: bytes, pid: int = 0) -> Ev:
    """A process name (0), the wall clock (1) or a message (2)."""
    return Ev(time, "", 0, 0, NOTIFY, pid, payload=payload, sequence=0, raw={"op": op})


def record(event: Ev, sequence: int, version: int = 7, order: str = "<") -> bytes:
    """One record with its payload."""
    op = event.raw.get("op", OP_NUMBERS.get(event.op, 0))
    payload = event.payload
    category = event.category | (FS if event.op in ("D", "C", "I", "R") else 0)
    action = category << 16 | op
    if event.cgroup:
        action |= 0x100
        payload = struct.pack(f"{order}Q", event.cgroup) + payload
    magic = event.raw.get("magic", 0x65617400 | version)
    length = event.raw.get("pdu_len", len(payload))
    sectors = event.sectors * 512
    if version == 7:
        head = struct.pack(
            f"{order}IIQQIIIIIHH", magic, sequence, event.time, event.sector, sectors, action & 0xFFFFFFFF, event.pid,
            event.device, event.cpu, event.error, length,
        )  # fmt: skip
    else:
        head = struct.pack(
            f"{order}IIQQIIQIIHH12x", magic, sequence, event.time, event.sector, sectors, event.pid, action,
            event.device,
            event.cpu, event.error, length,
        )  # fmt: skip
    return head + payload


def records(events: Iterable[Ev], version: int = 7, order: str = "<") -> list[bytes]:
    """The records of one CPU's file, numbered from 1."""
    found, number = [], 0
    for event in events:
        if event.sequence is None:
            number += 1
        found.append(record(event, number if event.sequence is None else event.sequence, version, order))
    return found


def write(directory: Path, events: Iterable[Ev], version: int = 7, order: str = "<", name: str = "t") -> Path:
    """A file for each CPU; the prefix."""
    directory.mkdir(parents=True, exist_ok=True)
    ordered = sorted(events, key=lambda event: event.time)
    for cpu in sorted({event.cpu for event in ordered}):
        data = b"".join(records((e for e in ordered if e.cpu == cpu), version, order))
        (directory / f"{name}.blktrace.{cpu}").write_bytes(data)
    return directory / name


def request(
    start: int, sector: int, sectors: int = 8, category: int = WRITE, cpu: int = 0, took: int = 100_000, pid: int = 100
) -> list[Ev]:
    """A bio that becomes a request of its own: Q, G, D, C."""
    one = Ev(start, "Q", sector, sectors, category, pid, cpu)
    return [one, *(replace(one, time=start + at, op=op) for at, op in ((500, "G"), (2_000, "D"), (2_000 + took, "C")))]


def as_ftrace(events: list[Ev]) -> str:
    """The same in the words of ftrace."""
    names = {"Q": "block_bio_queue", "G": "block_getrq", "D": "block_rq_issue", "C": "block_rq_complete"}
    lines = ["# tracer: nop", "#"]
    for e in sorted(events, key=lambda event: event.time):
        letters = ("D" if e.category & DISCARD else "W" if e.category & WRITE else "R") + "S" * bool(e.category & SYNC)
        size = f"{e.sectors * 512} " if e.op == "D" else ""
        middle = f"{size}() " if e.op in "DC" else ""
        tail = "[0]" if e.op == "C" else "[fio]"
        lines.append(
            f"             fio-{e.pid:<5} [{e.cpu:03}] d..1. {e.time / 1e9:12.9f}: {names[e.op]}: "
            f"8,16 {letters} {middle}{e.sector} + {e.sectors} {tail}"
        )
    return "\n".join(lines) + "\n"


def as_perf(events: list[Ev]) -> str:
    """The same in the words of perf script; all events are of process 100."""
    return as_ftrace(events).replace("-100 ", "   100 ").replace(" d..1.", "").replace("block_", "block:block_")


def as_blkparse(events: list[Ev]) -> list[str]:
    """The lines of blkparse's text that `trace events` prints."""
    with TemporaryDirectory() as directory:
        prefix = write(Path(directory), events)
        return (
            CliRunner().invoke(main, ["trace", "events", str(prefix)], catch_exceptions=False).output.splitlines(True)
        )


def unpacked(name: str, directory: Path) -> Path:
    """A reference trace as blktrace left it; the prefix."""
    target = directory / name
    target.mkdir(parents=True, exist_ok=True)
    for packed in (DIRECTORY / name).glob("x.blktrace.*.zst"):
        data = zstandard.ZstdDecompressor().stream_reader(packed.read_bytes()).read()
        (target / packed.name.removesuffix(".zst")).write_bytes(data)
    return target / "x"


def facts(name: str) -> dict[str, Any]:
    """What is known of a reference trace beside it: counters, the application's bytes."""
    return json.loads((DIRECTORY / name / "trace.json").read_text())


def counted(name: str) -> dict[str, int]:
    """How far the disk's counters went on while it was traced."""
    both = facts(name)["counters"]
    return {key: both["after"][key] - both["before"][key] for key in both["after"]}


def truth(name: str) -> dict[str, Any]:
    """The kernel's own word on every block."""
    return json.loads(lzma.decompress((DIRECTORY / name / "truth.json.xz").read_bytes()))


def image(name: str, which: str) -> Path:
    """The volume `before` or `after`."""
    return images.unpacked(DIRECTORY / name / f"{which}.img.zst")
