"""Traces with one request a line: which form a text has, and its lines as columns.

A line that can't be read is an error that names the line and the reason: a simulation of half a trace would look like
one of the whole.  Texts are read in bounded pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import Unsupported, Usage
from f2tools.text import printable

PIECE = 1 << 20
MAX_LINE = 1 << 16
MAX_BYTES = 1 << 51
SECTOR = 512
FILETIME_1970 = 116_444_736_000_000_000  # units of 100 ns since 1601
READ, WRITE, DISCARD = range(3)

Row = tuple[int, int, int, int, str]  # time in ns, offset, size in bytes, kind, device


class BadLine(ValueError):
    """What is wrong with a line."""


@dataclass(frozen=True)
class Form:
    """A kind of text; `row` reads a line, None where it has no request."""

    name: str
    pattern: re.Pattern[str]  # of a line with a request
    row: Callable[[str], Row | None]
    header: re.Pattern[str] | None = None  # of what the first line is then


def _letters(text: str) -> int:
    first = text[:1].lower()
    if first not in ("r", "w"):
        raise BadLine(f"the operation {text!r} is neither a read nor a write")
    return READ if first == "r" else WRITE


def _digit(text: str, write: str) -> int:
    if text not in ("0", "1"):
        raise BadLine(f"the type {text!r} is neither 0 nor 1")
    return WRITE if text == write else READ


def _fields(line: str, count: int, separator: str | None = ",") -> list[str]:
    found = [each.strip() for each in line.split(separator)]
    if len(found) < count:
        raise BadLine(f"{len(found)} fields, {count} are needed")
    return found


def _number(text: str) -> int:
    if not re.fullmatch(r"\d{1,19}", text):
        raise BadLine(f"{text!r} is no number from 0 on")
    return int(text)


def _seconds(text: str) -> int:
    if not re.fullmatch(r"\d{1,12}(\.\d*)?", text):
        raise BadLine(f"{text!r} is no time in seconds")
    whole, _, part = text.partition(".")
    return int(whole) * 10**9 + int((part + "0" * 9)[:9])


def _msr(line: str) -> Row:
    f = _fields(line, 6)
    time = _number(f[0])
    since_1970 = time - FILETIME_1970 if time >= FILETIME_1970 else time
    return since_1970 * 100, _number(f[4]), _number(f[5]), _letters(f[3]), f"{f[1]}/{f[2]}"


def _spc(line: str) -> Row:
    f = _fields(line, 5)
    return _seconds(f[4]), _number(f[1]) * SECTOR, _number(f[2]), _letters(f[3]), f[0]


def _alibaba(line: str) -> Row:
    f = _fields(line, 5)
    return _number(f[4]) * 1000, _number(f[2]), _number(f[3]), _letters(f[1]), f[0]


def _tencent(line: str) -> Row:
    f = _fields(line, 5)
    return _number(f[0]) * 10**9, _number(f[1]) * SECTOR, _number(f[2]) * SECTOR, _digit(f[3], "1"), f[4]


def _fiu(line: str) -> Row:
    f = _fields(line, 8, None)
    return _number(f[0]), _number(f[3]) * SECTOR, _number(f[4]) * SECTOR, _letters(f[5]), f"{f[6]},{f[7]}"


def _mqsim(line: str) -> Row:
    f = _fields(line, 5, None)
    return _number(f[0]), _number(f[2]) * SECTOR, _number(f[3]) * SECTOR, _digit(f[4], "0"), f[1]


FIO = {"read": READ, "write": WRITE, "trim": DISCARD}
FIO_OTHER = ("add", "open", "close", "wait", "sync", "datasync")


def _fio(words: list[str], time: int) -> Row | None:
    if len(words) < 2:
        raise BadLine("a file name and an action are needed")
    name, action = words[0], words[1]
    if action in FIO_OTHER:
        return None
    if action not in FIO:
        raise BadLine(f"fio knows no action {action!r}")
    if len(words) < 4:
        raise BadLine(f"{action} without offset and length")
    return time, _number(words[2]), _number(words[3]), FIO[action], name


def _fio2(line: str) -> Row | None:
    return _fio(line.split(), 0)


def _fio3(line: str) -> Row | None:
    words = line.split()
    if not words:
        return None
    return _fio(words[1:], _number(words[0]) * 1000)  # microseconds, as fio writes them


NUMBER = r"\s*[-+]?\d+\s*"  # a sign is refused by `row`, which names the line
FORMS = (
    Form("fio iolog v2", re.compile(r"(?!)"), _fio2, re.compile(r"fio version 2 iolog\s*$")),
    Form("fio iolog v3", re.compile(r"(?!)"), _fio3, re.compile(r"fio version 3 iolog\s*$")),
    Form("MSR Cambridge", re.compile(rf"{NUMBER},[^,]+,{NUMBER},\s*(?i:read|write)\s*,{NUMBER},{NUMBER}(,|$)"), _msr),
    Form("SPC", re.compile(rf"{NUMBER},{NUMBER},{NUMBER},\s*[rRwW]\s*,\s*\d+(\.\d*)?\s*(,|$)"), _spc),
    Form("Alibaba", re.compile(rf"[^,]+,\s*[rRwW]\s*,{NUMBER},{NUMBER},{NUMBER}$"), _alibaba),
    Form("Tencent", re.compile(rf"{NUMBER},{NUMBER},{NUMBER},\s*[01]\s*,[^,]+$"), _tencent),
    Form("FIU", re.compile(r"\s*\d+\s+\d+\s+\S+\s+[-+]?\d+\s+[-+]?\d+\s+(?i:r|w|read|write)\s+\d+\s+\d+(\s|$)"), _fiu),
    Form("MQSim", re.compile(r"\s*[-+]?\d+\s+\d+\s+[-+]?\d+\s+[-+]?\d+\s+[01]\s*$"), _mqsim),
)


def form_of(head: bytes) -> Form | None:
    """The form of a text that begins like this; None for blktrace's own, binary or text."""
    if b"\0" in head:
        return None
    lines = head.decode("utf-8-sig", "replace").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("#")][:3]
    for form in FORMS:
        if form.header is not None and lines and form.header.match(lines[0]):
            return form
        # the first line may be a heading
        if any(form.pattern.match(line.rstrip()) for line in lines[:2]):
            return form
    return None


class LineReader:
    """A text as columns, window by window."""

    def __init__(self, read: Callable[[int], bytes], name: str, form: Form, device: str | None) -> None:
        self._read = read
        self._name = name
        self._form = form
        self._device = device  # the only device that is wanted
        self._chosen = device is not None
        self._line = 0
        self._seen: set[str] = set()

    def __iter__(self) -> Iterator[tuple[NDArray[Any], ...]]:
        rest = b""
        while True:
            piece = self._read(PIECE)
            lines = (rest + (piece or b"")).split(b"\n")
            rest = lines.pop() if piece else b""
            if len(rest) > MAX_LINE:
                raise self._bad("a line without an end")
            rows = [row for row in map(self._row, lines) if row is not None]
            if rows:
                time, offset, size, kind, _ = zip(*rows, strict=True)
                yield (
                    np.array(time, np.int64), np.array(offset, np.int64), np.array(size, np.int64),
                    np.array(kind, np.int8),
                )  # fmt: skip
            if not piece:
                break
        if self._chosen and not self._device_seen:
            known = ", ".join(sorted(printable(each) for each in self._seen)[:20])
            raise Usage(f"{self._name}: nothing of device {self._device!r} in it; there are: {known}")

    @property
    def _device_seen(self) -> bool:
        return self._device in self._seen

    def _row(self, line: bytes) -> Row | None:
        self._line += 1
        text = line.decode("utf-8-sig" if self._line == 1 else "utf-8", "replace").strip()
        if not text or text.startswith("#") or (self._line == 1 and self._is_heading(text)):
            return None
        try:
            row = self._form.row(text)
        except BadLine as error:
            raise self._bad(str(error)) from None
        if row is None:
            return None
        if row[1] + row[2] > MAX_BYTES or row[0] >= 1 << 62:
            raise self._bad(f"a request at byte {row[1]} of {row[2]} bytes")
        device = row[4]
        if device not in self._seen and len(self._seen) < 10_000:
            self._seen.add(device)
        if self._device is None:
            self._device = device
        if device != self._device:
            if not self._chosen:
                raise self._bad(
                    f"a second device, {printable(device)!r} after {printable(self._device)!r}; each has addresses of "
                    "its own: choose one with --device"
                )
            return None
        return row if row[2] else None

    def _is_heading(self, text: str) -> bool:
        """Whether this first line has names and no numbers; else it is a request, or one that can't be read."""
        fields = text.split(",") if "," in text else text.split()
        return bool(self._form.header) or not any(re.fullmatch(r"\s*[-+]?\d[\d.]*\s*", each) for each in fields)

    def _bad(self, reason: str) -> Unsupported:
        return Unsupported(f"{self._name}: line {self._line}: {reason} (read as {self._form.name})")
