"""The file of an undo log: its format, and what it says, read and judged against a device; see `undo`.

The file, little-endian, is a header, a place for what is known at the end, and records, only ever appended:

    header   8s "F2TUNDO\\0"   u32 version, 3   u64 size of the device before   16s a random id   u32 CRC-32 of these
    closed   u64 length of the file   u32 CRC-32 of it; zeros until the seal is durable.  Not there in version 1
    record   4s "F2UR"   u16 kind   u16 flags   u64 batch   u64 offset   u64 length   u32 CRC-32   then the kind's bytes

    kind 1, DATA    `length` bytes follow, which were at `offset`
    kind 2, HOLE    `length` bytes at `offset` were zeros; nothing follows
    kind 3, SIZE    the device is about to be made `offset` bytes long; nothing follows
    kind 4, HEAD    `length` bytes follow: 8 bytes of BLAKE2b for each sector of 512 from `offset` on, as they are about
                    to become; the first such record has them as they were
    kind 5, SEAL    `length` bytes follow: 8 bytes of BLAKE2b for each block of 4096 of the first 32 MiB, as far as the
                    device had them before, as they were when the log was closed
    kind 6, NEW     `length` bytes follow: a number of 4 bytes for each sector of 512 from `offset` on, as they are
                    about to become; see `announced`
    kind 7, ZEROED  `length` bytes at `offset` are about to become zeros; nothing follows
    kind 8, TRIMMED `length` bytes at `offset` are about to be given up, and may read as anything until a later record
                    says what is written there; nothing follows.  Where they read as zeros for certain it is ZEROED
    kind 9, PLACES  `length` bytes follow: u64 offset, u64 length, 8 bytes of BLAKE2b of each place that says in which
                    state the image is; see `places`.  One record for before the first change, one with the SEAL

Kinds 6 to 9 came with version 3.

A record's CRC-32, and that of the length, starts from that of the id and covers its header and its bytes.  The records
of one call are a batch, the last one has flag 1, and nothing is changed before all of them are durable: so a log may
end in a batch that is torn, whose changes were never made, but a bad record before a later batch means that the log is
damaged.

A log without a SEAL is that of a command that was killed, or was cut off since.  It was cut off if it says how long it
was when it was closed, or if the image is not as a batch found it that is torn.  Version 1 can't tell otherwise.

The HEAD records say which image the log belongs to.  The first 32 KiB of a device hold both superblocks; each sector
there must be what it was before or what the log was about to make of it, whatever the moment of a crash, and the size
must be one that the log knows.  That of several devices is with all of the last one, though the volume may end before;
older logs have it without what is behind the volume.

Whether something else changed the image since is told by these rules; an image that breaks one is refused:

 1. Each sector whose old content is in the log is as it was, or as the log announced it (version 3).
 2. After undoing, the places that say in which state the image is are where they were, and hold what they held.  So
    no later checkpoint and no later page of a log would be left that leads to what is gone (version 3).
 3. Of the places that say so now, each group has one whose old content is in the log, and that is as it was or as it
    was to be written, not only given up; or one that was as it is before the first change, or at the SEAL.  So nothing
    was made durable behind what the command wrote (version 3).
 4. After a SEAL, the blocks that it covers are as it says or as they were before.  Beside the other rules this serves
    images with something on them whose places are not known.

They hold for the log of a command that was killed at any moment, and for an undo that was interrupted, which can be
repeated.  Their cost is that of reading what is in the log, not that of the image.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.changes.announced import SECTOR, Announced
from f2tools.device.changes.appended import is_whole, is_whole_in
from f2tools.device.changes.places import Place, groups_of, places_of, unpacked
from f2tools.device.media.image import FileDevice
from f2tools.device.ranges import RangeSet
from f2tools.errors import DeviceError

MAGIC = b"F2TUNDO\0"
VERSION = 3
HEADER = struct.Struct("<8sIQ16sI")
CLOSED = struct.Struct("<QI")
RECORD = struct.Struct("<4sHHQQQI")
RECORD_MAGIC = b"F2UR"
DATA, HOLE, SIZE, HEAD, SEAL, NEW, ZEROED, TRIMMED, PLACES = range(1, 10)
FOLLOWED = (DATA, HEAD, SEAL, NEW, PLACES)  # kinds that bytes follow
LAST_OF_BATCH = 1

BLOCK = 4096
HEAD_BYTES = 32 << 10
SEAL_BYTES = 32 << 20
PLACES_BYTES = 4096  # far more than any has
DIGEST = 8
PIECE = 1 << 20
BUFFER = 4 << 20
MOST_LOOKED_THROUGH = 16  # records tried after a bad one: content may hold records too, but not nested so deep
CHANGED_BY = (
    ".  If that was a command with an undo log of its own, undo that one first.  --force restores all the same, and"
    " what was written since is lost"
)
PARTLY = "undoing only a part of the changes would leave neither the old image nor the new one"
_ROW = struct.Struct("<HBQQQQ")
_ROWS = np.dtype(
    [("kind", "<u2"), ("last", "u1"), ("batch", "<u8"), ("offset", "<u8"), ("length", "<u8"), ("position", "<u8")]
)
Ending = Literal["sealed", "killed", "unknown", "cut"]


@dataclass(frozen=True, slots=True)
class UndoReport:
    """What undoing did, or in a dry run would do; `torn` where the log ends in a batch that was never acted on.

    `ending`: "sealed"; "killed", where the command did not come to its end; "unknown", where it was killed or the log
    was cut off since; "cut", where it was cut off, and only a part could be undone.
    """

    records: int
    data_bytes: int
    hole_bytes: int
    size_before: int
    size_after: int
    torn: bool
    ending: Ending

    @property
    def resizes(self) -> bool:
        """Whether the device gets another size."""
        return self.size_before != self.size_after

    @property
    def does_nothing(self) -> bool:
        """Whether there was nothing to undo."""
        return not self.records and not self.resizes


@dataclass(frozen=True, slots=True)
class _Record:
    kind: int
    last: bool
    batch: int
    offset: int
    length: int
    position: int
    """Where its bytes are in the file."""
    head: bytes

    @property
    def end(self) -> int:
        return self.position + (self.length if self.kind in FOLLOWED else 0)


class ReadLog:
    """An undo log, read and judged."""

    def __init__(self, file: FileDevice) -> None:
        self.file = file
        self.torn = False
        self.size_bytes = -1
        self.version = 0
        self._identity = b""
        self._seed = 0
        self._tells_closed = False
        self._closed_at = 0  # how long the file was when it was closed; 0 where that isn't known
        rows = bytearray()
        end, last = self._read_header(), None
        while end and (record := self._record(end)) is not None:
            rows += _ROW.pack(record.kind, record.last, record.batch, record.offset, record.length, record.position)
            end, last = record.end, record
        self.records: NDArray[Any] = np.frombuffer(bytes(rows), _ROWS)
        self._whole_bytes = end
        self.torn = end < file.size_bytes or (last is not None and not last.last)
        if end < file.size_bytes:
            self._check_torn(end, last)
        self._sort()

    def _sort(self) -> None:
        """The content by where it was: each byte once, and within the image, as the log is written."""
        rows = self.records[np.isin(self.records["kind"], (DATA, HOLE)) & (self.records["length"] > 0)]
        size = np.uint64(max(self.size_bytes, 0))
        if (rows["offset"] > size).any() or (rows["length"] > size - np.minimum(rows["offset"], size)).any():
            raise DeviceError(f"{self.file.name}: damaged: it has content past the end of the image")
        self._content = rows[np.argsort(rows["offset"], kind="stable")]
        self._ends = self._content["offset"] + self._content["length"]
        if (self._content["offset"][1:] < self._ends[:-1]).any():
            raise DeviceError(f"{self.file.name}: damaged: it has content of the same place twice")

    def report(self, device: Device) -> UndoReport:
        """What undoing does."""
        rows = self.records
        data, hole = (rows["length"][rows["kind"] == kind] for kind in (DATA, HOLE))
        after = self.size_bytes if rows.size else device.size_bytes
        return UndoReport(
            len(data) + len(hole), int(data.sum()), int(hole.sum()), device.size_bytes, after, self.torn, self.ending
        )

    def touches(self, offset: int, length: int) -> bool:
        """Whether it has content of a range."""
        first = int(np.searchsorted(self._ends, offset, "right"))
        return first < self._ends.size and int(self._content["offset"][first]) < offset + length

    @property
    def sizes(self) -> set[int]:
        """How many bytes the device had at one time or another."""
        return {self.size_bytes, *self.records["offset"][self.records["kind"] == SIZE].tolist()}

    @property
    def ending(self) -> Ending:
        """How the log ends, as far as it alone tells."""
        if self.records.size and self.records[-1]["kind"] == SEAL:
            return "sealed"
        if self._closed_at:
            return "cut"
        return "killed" if self._tells_closed else "unknown"

    def check_not_cut(self) -> None:
        """DeviceError where the log was longer once."""
        if self.ending == "cut":
            raise DeviceError(
                f"{self.file.name}: this undo log was cut off: it had {self._closed_at} bytes, and {self._whole_bytes}"
                f" are left that can be used; {PARTLY}.  --force does it all the same"
            )

    def check_torn_batch(self, device: Device) -> None:
        """DeviceError where changes were made whose batch is torn: then the log was cut off."""
        last = np.flatnonzero(self.records["last"])
        torn = self.records[last[-1] + 1 :] if last.size else self.records
        for kind, _, _, at, length, position in map(np.void.item, torn):
            if kind in (DATA, HOLE) and not self._is_as_before(device, kind, at, length, position):
                raise DeviceError(
                    f"{self.file.name}: this undo log was cut off, or {device.name} was changed by something else: the"
                    f" log ends before the change at offset {at:#x}, which was made; {PARTLY}.  --force does it all"
                    " the same"
                )

    def _is_as_before(self, device: Device, kind: int, offset: int, length: int, position: int) -> bool:
        """Whether the device holds what a DATA or HOLE says."""
        if offset + length > device.size_bytes:
            return False
        parts = device.data_ranges(offset, length) if kind == HOLE else [(offset, length)]
        for start, size in parts:
            for at in range(start, start + size, PIECE):
                piece = min(PIECE, start + size - at)
                old = self.file.pread(position + at - offset, piece) if kind == DATA else bytes(piece)
                if device.pread(at, piece) != old:
                    return False
        return True

    def check_belongs(self, device: Device) -> None:
        """DeviceError unless the device is as the log may have left it."""
        if not self.records.size:  # killed before anything was changed
            return
        if device.size_bytes not in self.sizes:
            expected = " or ".join(str(size) for size in sorted(self.sizes)[:9])
            raise self._foreign(device, f"it is {device.size_bytes} bytes long, not {expected}")
        found = digests(device.pread(0, min(HEAD_BYTES, device.size_bytes)).ljust(HEAD_BYTES, b"\0"))
        known = [False] * (HEAD_BYTES // SECTOR)
        for row in self.records[self.records["kind"] == HEAD]:
            self._compare_head(int(row["offset"]), int(row["length"]), int(row["position"]), found, known)
        for sector, same in enumerate(known):
            if not same:
                raise self._changed(device, f"its bytes at offset {sector * SECTOR:#x} were changed")

    def check_sealed(self, device: Device) -> None:
        """DeviceError where something else changed the device after the log was closed."""
        if not self.records.size or self.records[-1]["kind"] != SEAL:
            return
        last = self.records[-1]
        wanted = self.file.pread(int(last["position"]), min(int(last["length"]), SEAL_BYTES // BLOCK * DIGEST))
        for block, digest in enumerate(seal(device, self.size_bytes)):
            if wanted[block * DIGEST : (block + 1) * DIGEST] != digest and not self._holds_old(device, block * BLOCK):
                raise self._changed(device, f"its block at offset {block * BLOCK:#x} was changed")

    def _holds_old(self, device: Device, offset: int) -> bool:
        """Whether a block is as it was before, such as after an undo that was interrupted."""
        end = min(offset + BLOCK, self.size_bytes)
        old, known = self._old(offset, end)
        return known == len(old) and padded(device, offset, end) == old

    def _old(self, offset: int, end: int) -> tuple[bytes, int]:
        """(what the log has of a range, zeros elsewhere; how many bytes it has)."""
        old, known = bytearray(end - offset), 0
        for start, stop, position in self.old_parts(offset, end):
            known += stop - start
            if position >= 0:
                old[start - offset : stop - offset] = self.file.pread(position, stop - start)
        return bytes(old), known

    def _compare_head(self, offset: int, length: int, position: int, found: bytes, known: list[bool]) -> None:
        """Note which sectors of the head are as a record has them."""
        raw = self.file.pread(position, min(length, HEAD_BYTES // SECTOR * DIGEST))
        for at in range(0, len(raw) - len(raw) % DIGEST, DIGEST):
            sector = offset // SECTOR + at // DIGEST
            if sector < len(known) and raw[at : at + DIGEST] == found[sector * DIGEST : (sector + 1) * DIGEST]:
                known[sector] = True

    def check_saved(self, device: Device) -> None:
        """DeviceError where a sector whose old content is in the log is neither as it was nor as the log announced."""
        if self.version < 3:
            return
        for start, stop in self._to_compare(device):
            for at in range(start, stop, PIECE):
                wrong = self._changed_sectors(device, at, min(at + PIECE, stop))
                if wrong.size:
                    raise self._changed(device, f"its bytes at offset {at + int(wrong[0]) * SECTOR:#x} were changed")

    @cached_property
    def _announced(self) -> Announced:
        rows = {kind: self.records[self.records["kind"] == kind] for kind in (NEW, ZEROED, TRIMMED)}
        return Announced(self.file, self._identity, rows[NEW], rows[ZEROED], rows[TRIMMED])

    def _to_compare(self, device: Device) -> Iterator[tuple[int, int]]:
        """The ranges, in whole sectors, where the device may hold something else than it did."""
        for kind, _, _, offset, length, _ in map(np.void.item, self._content):
            end = min(offset + length, device.size_bytes)  # what is not there was saved before the device was cut
            if end <= offset:
                continue
            parts = [(offset, end - offset)] if kind == DATA else device.data_ranges(offset, end - offset)
            last = min(self.size_bytes, device.size_bytes)
            for start, size in parts:
                yield start // SECTOR * SECTOR, min(last, -(-(start + size) // SECTOR) * SECTOR)

    def _changed_sectors(self, device: Device, at: int, end: int, *, given_up: bool = True) -> NDArray[np.intp]:
        """The numbers, from `at`, of the sectors that are neither as they were nor as announced."""
        old, found = self._old(at, end)[0], device.pread(at, end - at)
        if found == old:
            return np.empty(0, np.intp)
        size = -(-len(old) // SECTOR) * SECTOR
        was, now = (np.frombuffer(one.ljust(size, b"\0"), np.uint8).reshape(-1, SECTOR) for one in (old, found))
        return np.flatnonzero((was != now).any(1) & ~self._announced.has(at, found, given_up=given_up))

    def _accounts_for(self, device: Device, offset: int, length: int) -> bool:
        """Whether it has old content of a range, and what lies there now is that or what was to be written."""
        last, parts = min(self.size_bytes, device.size_bytes), 0
        for start, stop, _ in self.old_parts(offset, min(offset + length, last)):
            low, high = start // SECTOR * SECTOR, min(last, -(-stop // SECTOR) * SECTOR)
            if self._changed_sectors(device, low, high, given_up=False).size:
                return False
            parts += 1
        return bool(parts)

    def check_state(self, device: Device) -> None:
        """DeviceError where the image would not be in its old state, or is in a state that the log does not know."""
        if self.version < 3 or not self.records.size:
            return
        before, *sealed = self._places()
        if places_of(Before(self, device)) != before:
            raise self._changed(device, "what is on it was changed")
        known = {*before, *(place for places in sealed for place in places)}
        for group in groups_of(device) if known else []:
            if not any(self._accounts_for(device, offset, length) for offset, length in group) and not (
                known & set(places_of(device, [group]))
            ):
                raise self._changed(device, f"what is at offset {group[0][0]:#x} was written later")

    def _places(self) -> list[list[Place]]:
        """The places, as they were before the first change and when the log was closed."""
        rows = self.records[self.records["kind"] == PLACES][:2]
        found = [unpacked(self.file.pread(int(row["position"]), min(int(row["length"]), PLACES_BYTES))) for row in rows]
        return found or [[]]

    def old_parts(self, offset: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(offset, end, where it is in the file; -1 for zeros) of what the log has of a range."""
        first = int(np.searchsorted(self._ends, offset, "right"))
        until = int(np.searchsorted(self._content["offset"], end, "left"))
        for kind, _, _, at, length, position in map(np.void.item, self._content[first:until]):
            start, stop = max(offset, at), min(end, at + length)
            yield start, stop, position + start - at if kind == DATA else -1

    def _changed(self, device: Device, why: str) -> DeviceError:
        return self._foreign(device, f"{why} by something else", CHANGED_BY)

    def _foreign(self, device: Device, why: str, advice: str = "") -> DeviceError:
        cut = "" if self.ending == "sealed" else ", unless this log, which ends without its seal, was cut off"
        return DeviceError(
            f"{self.file.name}: this undo log doesn't belong to {device.name} as it is now: {why}{cut}{advice}"
        )

    def _read_header(self) -> int:
        """Where the records start; 0 where the header is torn, which is before anything was changed."""
        raw = self.file.pread(0, min(HEADER.size, self.file.size_bytes))
        if not raw.startswith(MAGIC[: len(raw)]):
            raise DeviceError(f"{self.file.name}: not an undo log")
        if len(raw) < HEADER.size:
            return 0
        _, version, size, identity, _ = HEADER.unpack(raw)
        if not is_whole(raw):
            raise DeviceError(f"{self.file.name}: damaged: its header has a wrong checksum")
        if not 1 <= version <= VERSION:
            raise DeviceError(f"{self.file.name}: an undo log of version {version}; those up to {VERSION} are known")
        self.version, self._identity = version, identity
        self._tells_closed = version > 1
        records = HEADER.size + CLOSED.size * self._tells_closed
        if self.file.size_bytes < records:
            return 0
        self.size_bytes = size
        self._seed = zlib.crc32(identity)
        if self._tells_closed:
            closed = self.file.pread(HEADER.size, CLOSED.size)
            self._closed_at = CLOSED.unpack(closed)[0] if is_whole(closed, self._seed) else 0
        return records

    def _record(self, at: int) -> _Record | None:
        """The record at an offset; None where there isn't a whole one."""
        record = self._head_of(at)
        if record is None or not is_whole_in(self.file, record.head, record.position, record.end, self._seed):
            return None
        return record

    def _head_of(self, at: int) -> _Record | None:
        """A plausible record at an offset, which fits in the file; its checksum isn't checked."""
        if at + RECORD.size > self.file.size_bytes:
            return None
        raw = self.file.pread(at, RECORD.size)
        magic, kind, flags, batch, offset, length, _ = RECORD.unpack(raw)
        record = _Record(kind, bool(flags & LAST_OF_BATCH), batch, offset, length, at + RECORD.size, raw)
        return record if magic == RECORD_MAGIC and record.end <= self.file.size_bytes else None

    def _check_torn(self, end: int, last: _Record | None) -> None:
        """DeviceError if what follows a bad record shows that its batch was whole once."""
        batch = last.batch + last.last if last else 0
        left = MOST_LOOKED_THROUGH * (self.file.size_bytes - end)
        for at in self._magics(end + 1):
            record = self._head_of(at)
            if record is None or record.batch <= batch:
                continue
            left -= record.end - at
            if left < 0:
                raise DeviceError(
                    f"{self.file.name}: damaged at offset {end:#x}: what follows holds records within records"
                )
            if self._record(at) is not None:
                raise DeviceError(f"{self.file.name}: damaged at offset {end:#x}: later records are whole; {PARTLY}")

    def _magics(self, start: int) -> Iterator[int]:
        overlap = len(RECORD_MAGIC) - 1
        for at in range(start, self.file.size_bytes, BUFFER):
            window = self.file.pread(at, min(BUFFER + overlap, self.file.size_bytes - at))
            found = window.find(RECORD_MAGIC)
            while found >= 0:
                yield at + found
                found = window.find(RECORD_MAGIC, found + 1)


class Before(Device):
    """A device as undoing would leave it; read-only, and the device stays open."""

    def __init__(self, log: ReadLog, device: Device) -> None:
        self.name = device.name
        self.size_bytes = log.size_bytes
        self.read_only = True
        self._device = device
        self._log = log

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        there = max(0, min(len(view), self._device.size_bytes - offset))
        if there:
            self._device.pread_into(offset, view[:there])
        view[there:] = bytes(len(view) - there)
        for start, stop, position in self._log.old_parts(offset, offset + len(view)):
            old = self._log.file.pread(position, stop - start) if position >= 0 else bytes(stop - start)
            view[start - offset : stop - offset] = old

    def pwrite(self, offset: int, data: Data) -> None:
        self.check_writable()

    def flush(self) -> None:
        return

    def close(self) -> None:
        return


def seal(device: Device, size_bytes: int) -> Iterator[bytes]:
    """A digest of each block that a SEAL covers; what the device doesn't have counts as zeros."""
    end = min(SEAL_BYTES, size_bytes)
    zeroes = blake2b(bytes(BLOCK), digest_size=DIGEST).digest()
    full = RangeSet()
    for start, length in device.data_ranges(0, min(end, device.size_bytes)):
        full.add(start // BLOCK, -(-(start + length) // BLOCK))
    for block in range(-(-end // BLOCK)):
        if block in full:
            content = padded(device, block * BLOCK, min(end, (block + 1) * BLOCK)).ljust(BLOCK, b"\0")
            yield blake2b(content, digest_size=DIGEST).digest()
        else:
            yield zeroes


def padded(device: Device, begin: int, end: int) -> bytes:
    there = max(0, min(end, device.size_bytes) - begin)
    return device.pread(begin, there).ljust(end - begin, b"\0") if there else bytes(end - begin)


def digests(head: bytes) -> bytes:
    return b"".join(blake2b(head[at : at + SECTOR], digest_size=DIGEST).digest() for at in range(0, HEAD_BYTES, SECTOR))
