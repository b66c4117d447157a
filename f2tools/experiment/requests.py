"""What a simulated device was asked for, as a block trace: requests as the block layer would send them.

Requests that follow each other in time and place are one, up to MAX_REQUEST bytes, as bios are that wait in a plug.
The counts are kept beside the trace, so that the one can be held against the other.  Times are those of a made-up
device, SETUP_NS for each request and NS_PER_KIB besides: they order the events and measure nothing.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zstandard

from f2tools import newfile
from f2tools.blktrace.records import CATEGORY_SHIFT, FLUSH, MAGIC, READ, SECTOR, WRITE, C, D, Q

MAX_REQUEST = 512 << 10
SETUP_NS, NS_PER_KIB = 20_000, 2_000
NUMBER = 8 << 20  # of the device
HELD = 1 << 16  # requests between two writes to the file
KINDS = (READ, WRITE, FLUSH)
STEPS = ((1 << 4, Q), (1 << 6, D), (1 << 7, C))  # with the category by which blkparse selects each
READS, WRITES, FLUSHES = range(3)

RECORD = np.dtype(
    [("magic", "<u4"), ("sequence", "<u4"), ("time", "<u8"), ("sector", "<u8"), ("bytes", "<u4"), ("action", "<u4"),
     ("pid", "<u4"), ("device", "<u4"), ("cpu", "<u4"), ("error", "<u2"), ("pdu_len", "<u2")]
)  # fmt: skip


class Counts:
    """Requests and bytes so far: of reads, of writes; and flushes."""

    def __init__(self) -> None:
        self.requests = [0, 0, 0]
        self.bytes = [0, 0, 0]

    def as_dict(self) -> dict[str, int]:
        """By name, as in the JSON."""
        return {
            "reads": self.requests[READS], "read_bytes": self.bytes[READS], "writes": self.requests[WRITES],
            "write_bytes": self.bytes[WRITES], "flushes": self.requests[FLUSHES],
        }  # fmt: skip


class RequestLog:
    """Requests in the order in which they came; written to a trace while one is open."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._kind = -1  # of the request that waits for what may follow it
        self._start = self._end = 0
        self._held: list[tuple[int, int, int]] = []
        self._file: zstandard.ZstdCompressionWriter | None = None
        self._now = 0
        self._sequence = 0  # of the last event; the kernel numbers those of a CPU from 1

    def add(self, kind: int, start: int, length: int) -> None:
        """Bytes from `start` on are read or written."""
        end = start + length
        if kind == self._kind and start == self._end:
            self._end = end
        else:
            self._send()
            self._kind, self._start, self._end = kind, start, end
        while self._end - self._start > MAX_REQUEST:
            self._count(kind, self._start, MAX_REQUEST)
            self._start += MAX_REQUEST

    def flush(self) -> None:
        """What waits is sent, and the cache is flushed."""
        self._send()
        self._count(FLUSHES, 0, 0)

    def _send(self) -> None:
        if self._kind >= 0 and self._end > self._start:
            self._count(self._kind, self._start, self._end - self._start)
        self._kind = -1

    def _count(self, kind: int, start: int, length: int) -> None:
        self.counts.requests[kind] += 1
        self.counts.bytes[kind] += length
        if self._file is not None:
            self._held.append((kind, start, length))
            if len(self._held) >= HELD:
                self._write()

    def settle(self) -> Counts:
        """Send what waits; the counts."""
        self._send()
        return self.counts

    def begin(self, directory: Path) -> None:
        """From here on requests go to a trace in this directory."""
        self._send()
        self._now = self._sequence = 0
        path = str(directory / "trace.blktrace.0.zst")
        self._raw = open(newfile.create(path), "wb")  # noqa: SIM115 - until end()
        self._file = zstandard.ZstdCompressor(level=3).stream_writer(self._raw)

    def end(self) -> None:
        """The trace is complete."""
        self._send()
        if self._file is None:
            return
        self._write()
        self._file.close()
        self._raw.close()
        self._file = None

    def _write(self) -> None:
        """Queued, issued and completed one after the other: nobody waits for anybody on this device."""
        assert self._file is not None
        if not self._held:
            return
        kind, start, length = np.array(self._held, np.int64).T
        count = kind.size
        self._held.clear()
        took = SETUP_NS + length * NS_PER_KIB // 1024
        issued = self._now + np.cumsum(took) - took
        rows = np.zeros((count, 3), RECORD)
        rows["magic"] = MAGIC | 7
        rows["sequence"] = self._sequence + 1 + np.arange(3 * count).reshape(count, 3)
        rows["time"] = np.stack((issued, issued + 1000, issued + took - 1), axis=1)
        rows["sector"] = (start // SECTOR)[:, None]
        rows["bytes"] = length[:, None]
        category = np.array(KINDS)[kind][:, None] | np.array([category for category, _ in STEPS])
        rows["action"] = category << CATEGORY_SHIFT | np.array([op for _, op in STEPS])
        rows["pid"] = 1
        rows["device"] = NUMBER
        self._now, self._sequence = int(issued[-1] + took[-1]), self._sequence + 3 * count
        self._file.write(rows.tobytes())
