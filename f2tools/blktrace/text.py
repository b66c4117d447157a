"""Events from text: what blkparse prints in its default format, and block and f2fs events of ftrace and perf script.

Lines are read in bounded pieces.  A line that begins like an event and can't be read is counted, and in a text of
blkparse any other that it doesn't print itself, such as its totals.  Of ftrace and perf the rest (headings, other
events, stacks) is passed over.  What `blkparse -a` left out can't be told from losses, so a text with
gaps everywhere counts as a selection without losses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.blktrace.completions import FOLLOWED, Completions
from f2tools.blktrace.damage import KEPT, UNSEEN, Damage, Gap
from f2tools.blktrace.numbers import device_of
from f2tools.blktrace.records import (
    AHEAD,
    DISCARD,
    FLUSH,
    FS,
    FUA,
    META,
    NOTIFY_MESSAGE,
    OP_NUMBERS,
    PC,
    READ,
    SECTOR,
    SYNC,
    WRITE,
    A,
    C,
    Events,
    is_beyond,
)
from f2tools.blktrace.scan import Note
from f2tools.blktrace.sequences import SequenceCheck
from f2tools.errors import Unsupported

PIECE = 1 << 20
MAX_LINE = 1 << 16
GAPS = 5  # so few are losses, however short the text is
MAX_INOS = 1 << 18
MAX_LOGS = 64
MAX_NAMES = 100_000  # of processes
UNKNOWN = 1 << 20  # events that may be lost where their number isn't said
NUMBER = rb"\d{1,18}"
SPLIT_WRAP = 1 << 32  # sectors
MAX_SPLIT = 1 << 31  # sectors; a bio has less, and what seems to have more is damage
NO_SECTOR = (1 << 64) - 1  # of a request that has none, such as a flush; blktrace has 0, see blk_rq_trace_sector()
SHOWN = 60, 60  # bytes at the beginning and at the end of a line that can't be read

BLKPARSE = re.compile(
    rb"\s*(\d{1,5}),(\d{1,7})\s+(\d{1,6})\s+(" + NUMBER + rb")\s+(\d{1,10})\.(\d{1,9})\s+(\d{1,10})"
    rb"(?:\s+[0-9a-f]{1,16},[0-9a-f]{1,16})?\s+([A-Za-z]{1,2})"  # blktrace 1.3: the cgroup, if one is known
    rb"(?:\s+(\w{1,8}))?(?:\s+(" + NUMBER + rb")(?:\s+([+/])\s+(" + NUMBER + rb"))?(?:\s|$))?(.*)$"
)
STARTS_LIKE_BLKPARSE = re.compile(rb"\s*\d+,\d+\s")
TOTALS = (b"CPU", b"Total", b"Throughput", b"Events")
# what blkparse prints besides: totals, and with -s those of a process below its name and number
SAID_BY_BLKPARSE = re.compile(
    rb"CPU\d+ \(|Total \(|Throughput \(|Events \(|Skips: |Input file |Trace started | [A-Z][A-Za-z ]{1,30}:\s"
    rb"|.{0,64} \(\d{1,10}(?:, \.\.\.)?\)\s*$"
)
# runs of blanks are taken whole (`*+`): trying every split of a long run would never end
FTRACE = re.compile(
    rb"\s*+(.{0,64}?)[-\s]\s*+(\d{1,10})\s++(?:\(.{0,12}\)\s++)?\[(\d{1,5})\]\s++(?:[^\s:]{3,8}\s++)?"
    rb"(\d{1,10})\.(\d{1,9}):\s++(?:\w++:)?(block_\w+|f2fs_submit_page_\w+|tracing_mark_write):\s*+(.*)$"
)
# what ftrace prints where a CPU's buffer was full: of all events, those of the block layer or others
LOST = re.compile(rb"\s*CPU:(\d{1,5}) \[LOST (?:(\d{1,18}) )?EVENTS\]")
BLOCK_EVENT = re.compile(
    rb"(\d{1,5}),(\d{1,7})\s+(\w{1,8})\s+(?:(" + NUMBER + rb")\s+)?(?:\([^)]{0,200}\)\s+)?(\d{1,20})\s+([+/])\s+"
    rb"(" + NUMBER + rb")\s*(.*)$"
)
F2FS_PAGE = re.compile(
    rb"dev = \((\d+),(\d+)\), ino = (\d{1,10}), page_index = (0x[0-9a-f]+), oldaddr = (0x[0-9a-f]+), "
    rb"newaddr = (0x[0-9a-f]+), rw = (\w+)\(.*?\), type = (\w{1,32}+)"
)
# Of an event: time, sector, bytes, category, op, pid, device, cpu, error, sequence, payload, line.
Row = tuple[int, int, int, int, int, int, int, int, int, int, bytes, int]
BLOCK_OPS = {
    b"block_bio_queue": "Q", b"block_bio_backmerge": "M", b"block_bio_frontmerge": "F", b"block_getrq": "G",
    b"block_sleeprq": "S", b"block_rq_requeue": "R", b"block_rq_issue": "D", b"block_rq_complete": "C",
    b"block_rq_insert": "I", b"block_split": "X", b"block_bio_remap": "A", b"block_rq_remap": "A",
}  # fmt: skip
LETTERS = {"A": AHEAD, "S": SYNC, "M": META}
ON_REQUESTS = {OP_NUMBERS[name] for name in "DCIR"}


@dataclass
class PageWrites:
    """What the kernel itself says about the blocks that F2FS writes: f2fs_submit_page_write, summed up."""

    logs: Counter[str] = field(default_factory=Counter)  # blocks by temperature and type, `meta` for metadata
    inos: Counter[int] = field(default_factory=Counter)  # blocks by inode; 1 is all nodes, 2 all metadata
    count: int = 0

    def add(self, log: str, ino: int) -> None:
        """Count a block; of very many inodes the rest is counted as 0, of very many logs as `other`."""
        self.count += 1
        self.logs[log if log in self.logs or len(self.logs) < MAX_LOGS else "other"] += 1
        self.inos[ino if ino in self.inos or len(self.inos) < MAX_INOS else 0] += 1

    def update(self, other: PageWrites) -> None:
        """Add those of another text."""
        self.count += other.count
        self.logs.update(other.logs)
        self.inos.update(other.inos)


class TextReader:
    """One text as columns."""

    def __init__(self, read: Callable[[int], bytes], name: str, damage: Damage) -> None:
        self._read = read
        self._name = name
        self._damage = damage
        self._sequences = SequenceCheck(name, damage, from_one=False)  # with `blkparse -w` it begins later
        self._completions = Completions()
        self._other = False  # lines that are neither events nor headings
        self.selection: bool | None = None
        self._over = False
        self._is_blkparse: bool | None = None  # None before the first event
        self._strange: list[tuple[int, bytes]] = []  # lines before it that blkparse doesn't print, the first ones
        self._strange_more = 0
        self._line = 0
        self._yielded = np.zeros(0, np.int64), np.zeros(0, np.int64)  # times and lines of what was yielded last
        self._last: dict[int, int] = {}
        self._lost: dict[int, int] = {}  # CPU -> events of which ftrace says that they are lost, before its next one
        self.notes: list[Note] = []
        self.names: dict[int, str] = {}
        self.pages = PageWrites()
        self.records = 0
        self.operations = np.zeros(256, np.int64)

    def __iter__(self) -> Iterator[Events]:
        rest = b""
        while True:
            piece = self._read(PIECE)
            lines = (rest + piece).split(b"\n")
            rest = lines.pop() if piece else b""
            if len(rest) > MAX_LINE:
                self._damage.note("unreadable", self._name, self._line, "a line without an end")
                rest = b""
            rows = [row for row in map(self._row, lines) if row is not None]
            if rows:
                yield self._events(rows)
            if not piece:
                break
        if self._other and not self.records and not self.notes and not self.pages.count:
            raise Unsupported(
                f"{self._name}: no block event in this text is as blkparse prints it by default (without its options "
                "-f and -F), or as ftrace and perf script print it"
            )

    def place_before(self, time: int) -> int | None:
        """In which line what was yielded last has its first event before that time."""
        found = np.flatnonzero(self._yielded[0] < time)
        return int(self._yielded[1][found[0]]) if len(found) else None

    def _events(self, rows: list[Row]) -> Events:
        self.records += len(rows)
        columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True))
        dtypes = (np.int64, np.int64, np.int64, np.uint32, np.uint8, np.uint32, np.uint32, np.uint32, np.uint16)
        pairs = zip(columns[:9], dtypes, strict=True)
        arrays: list[NDArray[Any]] = [np.array(column, dtype) for column, dtype in pairs]
        sequence = np.array(columns[9], np.uint32)
        offsets = np.array(columns[11], np.int64)
        self._yielded = arrays[0], offsets
        self.operations += np.bincount(arrays[4], minlength=256)
        payload = {row: data for row, data in enumerate(columns[10]) if data}
        numbered = sequence > 0
        if self.selection is None and numbered.any():
            self.selection = _full_of_gaps(arrays[6][numbered], arrays[7][numbered], sequence[numbered])
        if numbered.any() and not self.selection:
            self._sequences.feed(
                arrays[6][numbered],
                arrays[7][numbered],
                sequence[numbered],
                arrays[0][numbered],
                offsets[numbered],
            )
        return Events.of([*arrays, sequence, np.zeros(len(rows), np.uint64)], payload)

    def _row(self, line: bytes) -> Row | None:
        self._line += 1
        if line[:1] == b"#" or not line.strip():
            return None
        if STARTS_LIKE_BLKPARSE.match(line):
            row = None if len(line) > MAX_LINE else self._blkparse(line)
            if row is not None and self._is_blkparse is None:
                self._begin_blkparse()
            if row is None and not self._over:
                self._note_line(self._line, line)
            return row or None
        if b": " in line and (match := FTRACE.match(line[:MAX_LINE])):
            self._is_blkparse = self._is_blkparse or False
            row = self._ftrace(match)
            if row is None:
                self._note_line(self._line, line)
            return row or None
        if line.startswith(b"CPU:") and (match := LOST.match(line)):
            self._lose(int(match[1]), int(match[2] or 1), known=match[2] is not None)
            return None
        if line.startswith(TOTALS):
            self._over = True
        self._other = True
        if self._is_blkparse is not False and not SAID_BY_BLKPARSE.match(line):
            self._note_strange(line)
        return None

    def _note_line(self, number: int, line: bytes) -> None:
        self._damage.note("unreadable", self._name, number, f"not an event: {_shown(line)!r}")

    def _note_strange(self, line: bytes) -> None:
        """Note a line that blkparse doesn't print, or keep it until it is known whose text this is."""
        if self._is_blkparse:
            self._note_line(self._line, line)
        elif len(self._strange) < KEPT:
            self._strange.append((self._line, _shown(line)))
        else:
            self._strange_more += 1

    def _begin_blkparse(self) -> None:
        self._is_blkparse = True
        for number, line in self._strange:
            self._note_line(number, line)
        self._damage.counts["unreadable"] += self._strange_more
        self._strange = []

    # -- blkparse -----------------------------------------------------------------------------------------------

    def _blkparse(self, line: bytes) -> Row | tuple[()] | None:
        match = BLKPARSE.match(line)
        if match is None:
            return None
        major, minor, cpu, sequence, seconds, fraction, pid, name, letters, sector, sign, size, rest = match.groups()
        time = int(seconds) * 10**9 + int(fraction.ljust(9, b"0"))
        if name == b"m":
            self.notes.append(
                Note(time, NOTIFY_MESSAGE, int(pid), line.split(b" m ", 1)[-1].split(b"N", 1)[-1].strip())
            )
            return ()
        op = OP_NUMBERS.get(name.decode())
        if op is None:
            return None
        device = device_of(int(major), int(minor))
        category = categories(letters or b"", op)
        start, count, payload = int(sector or 0), (int(size) if size else 0), b""
        if sign == b"/":
            second = _whole_place(count, start)
            payload, count = second.to_bytes(8, "big"), max(second - start, 0)
        if op in FOLLOWED:
            start, count = self._completions.follow(op, device, category, start, count)
        if op == A and (source := re.search(rb"<- \((\d{1,5}),(\d{1,7})\) (" + NUMBER + rb")", rest)):
            payload = _remap(source, device)
        error = re.search(rb"\[(-?\d{1,5})\]\s*$", line) if op == C else None
        if op != C and (comm := re.search(rb"\[(.{1,32})\]", rest)):
            self._keep_name(int(pid), comm[1])
        return self._checked((
            time, start, count * SECTOR, category, op, int(pid) & 0xFFFFFFFF, device, int(cpu),
            abs(int(error[1])) & 0xFFFF if error else 0, int(sequence) & 0xFFFFFFFF, payload, self._line,
        ))  # fmt: skip

    # -- ftrace, perf -------------------------------------------------------------------------------------------

    def _ftrace(self, match: re.Match[bytes]) -> Row | tuple[()] | None:
        comm, pid, cpu, seconds, fraction, event, rest = match.groups()
        time = int(seconds) * 10**9 + int(fraction.ljust(9, b"0"))
        self._in_order(int(cpu), time)
        self._keep_name(int(pid), comm.strip())
        if event == b"tracing_mark_write":
            self.notes.append(Note(time, NOTIFY_MESSAGE, int(pid), rest.strip()))
            return ()
        if event.startswith(b"f2fs_submit_page"):
            return self._page(event, rest)
        op = BLOCK_OPS.get(event)
        if op is None:
            return ()
        number = OP_NUMBERS[op]
        found = BLOCK_EVENT.match(rest)
        if found is None:
            return None
        major, minor, letters, command, sector, sign, size, tail = found.groups()
        device = device_of(int(major), int(minor))
        start, count, payload = int(sector), int(size), b""
        if start == NO_SECTOR:
            start = 0
        if sign == b"/":
            payload, count = count.to_bytes(8, "big"), max(count - start, 0)
        if number == A and (source := re.search(rb"<- \((\d{1,5}),(\d{1,7})\) (" + NUMBER + rb")", tail)):
            payload = _remap(source, device)
        error = re.search(rb"\[(-?\d{1,5})\]", tail) if number == C else None
        if count == 0 and command and int(command):
            count = 0
        return self._checked((
            time, start, count * SECTOR, categories(letters, number), number, int(pid) & 0xFFFFFFFF, device,
            int(cpu), abs(int(error[1])) & 0xFFFF if error else 0, 0, payload, self._line,
        ))  # fmt: skip

    def _keep_name(self, pid: int, name: bytes) -> None:
        if len(self.names) < MAX_NAMES:
            self.names.setdefault(pid, name.decode("utf-8", "replace"))

    def _lose(self, cpu: int, count: int, known: bool) -> None:
        self._damage.note("lost", self._name, self._line, f"CPU {cpu}: {count} events lost", count)
        self._damage.lost_by_cpu[cpu] = self._damage.lost_by_cpu.get(cpu, 0) + count
        self._lost[cpu] = self._lost.get(cpu, 0) + (count if known else UNKNOWN)

    def _in_order(self, cpu: int, time: int) -> None:
        if cpu in self._lost:
            start = self._last.get(cpu, time - UNSEEN)
            self._damage.gaps.append(Gap(self._name, cpu, start, time, self._lost.pop(cpu)))
        if time < self._last.get(cpu, 0):
            self._damage.note("disordered", self._name, self._line, f"CPU {cpu}: an event before its predecessor")
        self._last[cpu] = max(time, self._last.get(cpu, 0))

    def _page(self, event: bytes, rest: bytes) -> tuple[()] | None:
        if not event.startswith((b"f2fs_submit_page_write", b"f2fs_submit_page_bio")):
            return ()
        found = F2FS_PAGE.match(rest)
        if found is None:
            return None
        ino, direction, kind = found[3], found[7], found[8]
        if direction == b"WRITE":
            self.pages.add(kind.decode().lower(), int(ino))
        return ()

    def _checked(self, row: Row) -> Row | None:
        time, sector, size, *_ = row
        return None if is_beyond(sector, size, time) else row


def _shown(line: bytes) -> bytes:
    """A line, or its beginning and its end: what is wrong is behind the process, the CPU and the time."""
    first, last = SHOWN
    return line if len(line) <= first + last else line[:first] + b" ... " + line[-last:]


def _full_of_gaps(device: NDArray[Any], cpu: NDArray[Any], sequence: NDArray[Any]) -> bool:
    """Whether one in a hundred events lacks its predecessor; losses take very many events at a time."""
    order = np.lexsort((sequence, cpu, device))
    device, cpu, sequence = device[order], cpu[order], sequence[order]
    gaps = (sequence[1:] > sequence[:-1] + 1) & (device[1:] == device[:-1]) & (cpu[1:] == cpu[:-1])
    return max(GAPS, len(sequence) // 100) < int(np.count_nonzero(gaps))


def _remap(source: re.Match[bytes], device: int) -> bytes:
    """The payload that the binary format has."""
    origin = device_of(int(source[1]), int(source[2]))
    return origin.to_bytes(4, "big") + device.to_bytes(4, "big") + int(source[3]).to_bytes(8, "big")


def _whole_place(second: int, first: int) -> int:
    """Where the second part of a split begins, of which blkparse prints 32 bits (get_pdu_int() in its source)."""
    sectors = (second - first) % SPLIT_WRAP
    return first + sectors if second < first and sectors < MAX_SPLIT else second


def categories(letters: bytes, op: int) -> int:
    """The category bits that `WSM`, `FN`, `DS` stand for; the first F is a flush, one behind the operation FUA."""
    text = letters.decode("ascii", "replace")
    found = FS if op in ON_REQUESTS else 0
    if op in ON_REQUESTS and "P" in text:
        found = PC
    if text.startswith("F") and len(text) > 1:
        found |= FLUSH
        text = text[1:]
    kind, rest = text[:1], text[1:]
    if kind == "D":
        found |= DISCARD | WRITE
        if rest.startswith("E"):
            rest = rest[1:]
    elif kind == "W":
        found |= WRITE
    elif kind == "R":
        found |= READ
    elif kind == "F":
        found |= FLUSH
    if "F" in rest:
        found |= FUA
    for letter, bit in LETTERS.items():
        if letter in rest:
            found |= bit
    return found
