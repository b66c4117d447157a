"""blkparse as a judge, 1.2 and 1.3: what each prints, and the two things that 1.3 prints otherwise.

1.3 counts time from the first message, 1.2 from the first event.  And 1.3 prints a completion at a sector where a bio
was once split from where that bio began (fixup_complete() in its source, with the places of log_track_split()).
"""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

from tests import judges

EVENT = re.compile(r"( *(\d+),(\d+) +(\d+) +(\d+) +)(\d+)\.(\d{9})( +\d+ +([A-Z]{1,2}) .*)$")
MESSAGE = re.compile(r"  m  +N ")
SPLIT = re.compile(r" (\d+) / (\d+)(?= )")
PLACE = re.compile(r" (\d+)(?: \+ (\d+))?(?= \[-?\d+\]$)")
BYTES_WRAP = 1 << 32
PLACES_WRAP = 1 << 32
HEAD = struct.Struct("<IIQQIIIIIHH")  # of a record of version 7
COMPLETE, CGROUP, NOTIFY = 8, 1 << 8, 1 << 10 + 16


def version() -> tuple[int, ...]:
    """Of the installed blkparse."""
    command = [judges.need_tool("blkparse"), "-V"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return tuple(map(int, (said.stdout + said.stderr).split()[-1].split(".")))


def printed(*prefixes: Path, options: tuple[str, ...] = ()) -> str:
    """What it prints by default or with some options, of one trace or of several."""
    given = [word for prefix in prefixes for word in ("-i", prefix.name)]
    command = [judges.need_tool("blkparse"), *options, *given]
    return subprocess.run(command, cwd=prefixes[0].parent, capture_output=True, text=True, check=True).stdout


def lines_of(text: str) -> list[str]:
    """Its lines of events, with times from the first of them; messages are no events."""
    found, first = [], None
    for line in text.splitlines():
        if not re.match(r" *\d+,\d+ ", line) or MESSAGE.search(line):
            continue
        match = EVENT.match(line)
        assert match is not None, f"no event: {line!r}"
        time = int(match[6]) * 10**9 + int(match[7])
        first = time if first is None else first
        second, nano = divmod(time - first, 10**9)
        found.append(f"{match[1]}{second:{len(match[6])}}.{nano:09}{match[8]}")
    return found


def with_short_splits(line: str) -> str:
    """A line with the second place of a split as both versions print it."""
    return SPLIT.sub(lambda split: f" {split[1]} / {int(split[2]) % PLACES_WRAP}", line, count=1)


def as_1_3(lines: list[str]) -> list[str]:
    """Lines of 1.2 as 1.3 prints them: whatever completes where a part of a bio began counts from its first part."""
    firsts: dict[tuple[str, int], int] = {}
    found = []
    for line in lines:
        match = EVENT.match(line)
        assert match is not None
        device, op = f"{match[2]},{match[3]}", match[9]
        if op == "X" and (split := SPLIT.search(line)):
            at = int(split[1])
            second = at + (int(split[2]) - at) % PLACES_WRAP  # the second is printed with 32 bits, and known with 64
            firsts.setdefault((device, second), firsts.setdefault((device, at), at))
        if op == "C" and (place := PLACE.search(line)):
            at = int(place[1])
            first = firsts.get((device, at), at)
            line = line[: place.start()] + _place(first, int(place[2] or 0) + at - first) + line[place.end() :]
        found.append(line)
    return found


def _place(sector: int, sectors: int) -> str:
    sectors = sectors * 512 % BYTES_WRAP // 512
    return f" {sector} + {sectors}" if sectors else f" {sector}"


def recorded(*prefixes: Path) -> list[str]:
    """The lines of `lines_of`, completions at the places in the records (of version 7, little endian).

    1.2 prints these.  Of 1.3 each line must be what `as_1_3` makes of it.
    """
    theirs = lines_of(printed(*prefixes))
    if version() < (1, 3):
        return theirs
    places = completions(*prefixes)
    found = []
    for line in theirs:
        match = EVENT.match(line)
        assert match is not None
        if match[9] == "C" and (place := PLACE.search(line)):
            major, minor, cpu, sequence = (int(match[n]) for n in range(2, 6))
            kept = _place(*places[major << 20 | minor, cpu, sequence])
            line = line[: place.start()] + kept + line[place.end() :]
        found.append(line)
    assert as_1_3(found) == theirs
    return found


def completions(*prefixes: Path) -> dict[tuple[int, int, int], tuple[int, int]]:
    """(sector, sectors) by device, CPU and sequence number, from the bytes of the files."""
    found = {}
    for path in (path for prefix in prefixes for path in prefix.parent.glob(f"{prefix.name}.blktrace.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            _, sequence, _, sector, size, action, _, device, cpu, _, length = HEAD.unpack_from(data, at)
            if action & 0xFFFF & ~CGROUP == COMPLETE and not action & NOTIFY:
                found[device, cpu, sequence] = sector, size // 512
            at += HEAD.size + length
    return found
