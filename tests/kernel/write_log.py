"""What the kernel writes to its disks, write by write, and the flushes between: QEMU's blklogwrites takes it down.

The format is that of Linux's dm-log-writes (Documentation/admin-guide/device-mapper/log-writes.rst): a sector with
magic, version, number of entries and size of a sector, then for each entry a sector with place, length and flags, and
behind it the data.  A log that is kept begins with what mkfs wrote, and needs no image to begin with.

`python -m tests.kernel.write_log DIRECTORY SEED` records the workload of tests/recover on volumes of several kinds.
"""

from __future__ import annotations

import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import zstandard

from f2tools.device.changes.record import DISCARD, FLUSH, WRITE, Event
from tests.images import DIRECTORY
from tests.kernel.guest import Guest
from tests.recover.test_kernel_crashes import CRASH, KINDS, WORKLOAD, blank

MAGIC, VERSION = 0x6A736677736872, 1
SECTOR = 512
HEAD, ENTRY = struct.Struct("<QQQI"), struct.Struct("<QQQQ")
LOG_FLUSH, LOG_FUA, LOG_DISCARD = 1, 2, 4
KINDS_RECORDED = 8  # at least
SECONDS = 15.0
# in the workload: what it writes, and instead what can be packed
NOISE, TEXT = "self.random.randbytes(64 * BLOCK)", "b''.join(b'%015d\\n' % n for n in range(4 * BLOCK))"


class LoggedGuest(Guest):
    """A guest that takes down what is written to each image, in a file beside it that ends in .log."""

    def _command(self, share: Path, images: Sequence[Path], *rest: Any, **more: Any) -> list[str]:
        command = super()._command(share, images, *rest, **more)
        for number, image in enumerate(images):
            log = image.with_suffix(".log")
            log.write_bytes(b"")
            at = next(at for at, word in enumerate(command) if f"id=disk{number}," in word)
            command[at] = (
                f"if=none,id=disk{number},driver=blklogwrites,file.driver=raw,file.file.driver=file,"
                f"file.file.filename={image},log.driver=file,log.filename={log},cache=writeback,discard=unmap"
            )
        return command


def events_of(log: bytes) -> Iterator[Event]:
    """The entries of a log, as far as they are whole: the power may have gone while one was written."""
    magic, version, _, size = HEAD.unpack_from(log)
    assert (magic, version, size) == (MAGIC, VERSION, SECTOR)
    at = SECTOR
    while at + SECTOR <= len(log):
        sector, count, flags, _ = ENTRY.unpack_from(log, at)
        at += SECTOR
        if flags & LOG_DISCARD:
            yield Event(DISCARD, sector * SECTOR, count * SECTOR)
        elif count:
            data = log[at : at + count * SECTOR]
            if len(data) < count * SECTOR:
                return
            yield Event(WRITE, sector * SECTOR, len(data), data)
            at += len(data)
        if flags & (LOG_FLUSH | LOG_FUA):
            yield Event(FLUSH)


KEPT = tuple(sorted((DIRECTORY / "writes").glob("*.zst")))


@cache
def kept(number: int) -> list[Event]:
    """The events of one of the logs that are kept."""
    return list(events_of(zstandard.ZstdDecompressor().decompress(KEPT[number].read_bytes(), 1 << 28)))


def made(number: int) -> int:
    """How many of these events are mkfs's."""
    return next(at for at, event in enumerate(kept(number)) if event.kind == FLUSH) + 1


def log_of(events: Sequence[Event]) -> bytes:
    """A log with these entries."""
    flags = {WRITE: 0, FLUSH: LOG_FLUSH, DISCARD: LOG_DISCARD}
    parts = [HEAD.pack(MAGIC, VERSION, len(events), SECTOR).ljust(SECTOR, b"\0")]
    for event in events:
        entry = ENTRY.pack(event.offset // SECTOR, event.length // SECTOR, flags[event.kind], 0)
        parts += [entry.ljust(SECTOR, b"\0"), event.data]
    return b"".join(parts)


def content_of(image: Path) -> Iterator[Event]:
    """What is in an image, as writes to an empty one."""
    with image.open("rb") as file:
        for at in range(0, image.stat().st_size, 4096):
            data = file.read(4096)
            if any(data):
                yield Event(WRITE, at, len(data), data)
    yield Event(FLUSH)


def record(guest: Guest, seed: str, directory: Path) -> dict[str, bytes]:
    """Logs of the kernel under a random load until its power goes, by the kind of the volume."""
    kinds = [kind for kind in KINDS if kind.devices == 1][:: len(KINDS) // KINDS_RECORDED]
    images = [blank(kind, str(number), directory, number)[0] for number, kind in enumerate(kinds)]
    fresh = [list(content_of(image)) for image in images]
    env = {
        "MOUNTS": " ".join(kind.mount or "rw" for kind in kinds),
        "SYNCS": " ".join(str(kind.syncs) for kind in kinds),
        "DISKS": " ".join(map(str, range(len(kinds)))),
        "SEED": seed,
    }
    workload = WORKLOAD.read_text()
    assert NOISE in workload
    files = {"workload": workload.replace(NOISE, TEXT)}
    result = guest.run(CRASH, images, env=env, files=files, cut_after=("go", SECONDS), timeout=600)
    assert result.crashed, result.must_succeed()
    logs: dict[str, bytes] = {}
    for kind, image, before in zip(kinds, images, fresh, strict=True):
        events = [*before, *events_of(image.with_suffix(".log").read_bytes())]
        logs[f"{kind.make} {kind.mount}".strip() or "plain"] = log_of(events)
    return logs


def main(directory: str, seed: str) -> None:
    """Record, and pack the logs into a directory, numbered."""
    with tempfile.TemporaryDirectory() as work:
        logs = record(LoggedGuest.ready(Path(work)), seed, Path(work))
    for number, (kind, log) in enumerate(logs.items()):
        packed = zstandard.ZstdCompressor(level=19).compress(log)
        (Path(directory) / f"{number}.zst").write_bytes(packed)
        print(f"{number}.zst: {kind}; {len(log):,} bytes, {len(packed):,} packed")


if __name__ == "__main__":
    main(*sys.argv[1:])
