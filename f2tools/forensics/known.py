"""Sets of hashes of known files: plain lists, md5sum's output, hashdeep's, and the CSV of NSRL's RDS; read and written.

A set may have hundreds of millions of rows, an image has fewer files: the hashes of the image's files are kept in
memory, and the set is read once.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Any

from f2tools.copyout.walk import shown, walk
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.volume.volume import Volume
from f2tools.forensics.content import HASHED_TIMES, not_hashed, zeros_into
from f2tools.forensics.undelete import CERTAIN, PROBABLE, Undelete
from f2tools.text import csv_line, printable, printable_name

HASHES = ("md5", "sha1", "sha256")
FORMS = ("hashdeep", "md5", "sha1", "sha256", "nsrl")
_BY_LENGTH = {32: "md5", 40: "sha1", 64: "sha256"}
_COLUMNS = {"md5": "md5", "sha-1": "sha1", "sha1": "sha1", "sha-256": "sha256", "sha256": "sha256"}
_HASHDEEP = "%%%% HASHDEEP-1.0"
_WORD = re.compile(r"\\?([0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{64})(?:\s.*)?")
MOST_LINE = 1 << 16  # characters


@dataclass
class Hashed:
    """A file of an image with its hashes, and the sets that have one of them."""

    path: bytes
    size: int
    state: str  # live, deleted
    sums: dict[str, str]
    known: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"path": shown(self.path), "size": self.size, "state": self.state, **self.sums, "known": self.known}


# ---- hashing ----------------------------------------------------------------------------------------------------


def living(volume: Volume, problems: list[str]) -> Iterator[Hashed]:
    """The files that a mount shows, with their hashes; what can't be read is noted in `problems`."""
    lost: list[Any] = []
    left = (
        HASHED_TIMES * volume.geo.block_count * volume.geo.block_size
    )  # zeros: in forged files there is no end to them
    for found in walk(volume, volume.root, lost):
        if not found.inode.is_file:
            continue
        if volume.locked(found.inode):
            problems.append(f"{shown(found.path)}: the content is {volume.secrets.why_locked(found.inode)}")
            continue
        try:
            sums, zeros = _sums(volume.inode(found.inode.ino, found.path).chunks(), found.inode.i_size, left)
        except (F2fsError, OSError) as error:
            problems.append(f"{shown(found.path)}: {error}")
            continue
        left -= zeros
        yield Hashed(found.path, found.inode.i_size, "live", sums)
    problems += [f"{shown(one.path)}: {one.reason}" for one in lost]


def _sums(chunks: Iterable[tuple[int, bytes | memoryview]], size: int, most: int) -> tuple[dict[str, str], int]:
    """The hashes of a file, and how many zeros its holes took; F2fsError where these are more than `most`."""
    sums = {name: hashlib.new(name, usedforsecurity=False) for name in HASHES}
    at = zeros = 0
    for offset, data in chain(chunks, [(size, b"")]):
        zeros += max(offset - at, 0)
        if zeros > most:
            raise F2fsError(
                f"{not_hashed(size)}; if they are meant to be there, pipe `f2tools dump cat` into a program that hashes"
            )
        for one in sums.values():
            zeros_into(one, offset - at)
            one.update(data)
        at = offset + len(data)
    return {name: one.hexdigest() for name, one in sums.items()}, zeros


def deleted(run: Undelete, problems: list[str]) -> Iterator[Hashed]:
    """Deleted files whose content is complete, with their hashes; why one has none is noted in `problems`."""
    for found in run.deleted():
        before = len(found.reasons)
        sums = run.hashes(found, HASHES)
        why = found.reasons[before:]
        if found.locked and found.type == "file" and found.grade in (CERTAIN, PROBABLE):
            why.append(found.locked)
        problems += [f"{shown(b'/' + found.path)}: {reason}" for reason in why]
        if sums is not None and found.inode is not None:
            yield Hashed(b"/" + found.path, found.inode.size, "deleted", sums)


# ---- reading sets -----------------------------------------------------------------------------------------------


def mark(files: Iterable[Hashed], sets: Iterable[str]) -> list[str]:
    """Note in each file which of these sets know it; Usage for a file that is not a set of hashes.

    What was left out of the sets is handed back, in sentences.
    """
    notes: list[str] = []
    wanted: dict[str, list[Hashed]] = {}
    for one in files:
        for value in one.sums.values():
            wanted.setdefault(value, []).append(one)
    for path in sets:
        name = os.path.basename(path)
        for value in read_set(path, notes):
            for one in wanted.get(value, ()):
                if name not in one.known:
                    one.known.append(name)
    return notes


def read_set(path: str, notes: list[str]) -> Iterator[str]:
    """The hashes of a set, in lower case; Usage where it is none.  Lines that are left out are counted in `notes`."""
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        first = file.readline(MOST_LINE)
        if first.startswith(_HASHDEEP):
            yield from _hashdeep(path, file)
        elif _columns(first):
            yield from _table(path, file, _columns(first))
        else:
            yield from _plain(path, first, file, notes)


def _columns(header: str) -> list[int]:
    """Which columns of a table are hashes; none where this is no header of one."""
    names = next(csv.reader([header.lstrip("\ufeff")]), [])
    return [at for at, name in enumerate(names) if name.strip().lower() in _COLUMNS]


def _table(path: str, file: IO[str], columns: list[int]) -> Iterator[str]:
    rows = csv.reader(file)
    try:
        for row in rows:
            for at in columns:
                if at < len(row) and len(row[at]) in _BY_LENGTH:
                    yield row[at].lower()
    except csv.Error as error:
        raise Usage(f"{path}, line {rows.line_num + 1}: {error}") from None


def _hashdeep(path: str, file: IO[str]) -> Iterator[str]:
    head = file.readline(MOST_LINE)
    names = head.removeprefix("%%%%").strip().split(",")
    columns = [at for at, name in enumerate(names) if name in HASHES]
    if not columns:
        raise Usage(f"{path}: a hashdeep file with none of {', '.join(HASHES)}")
    for line in file:
        if line.startswith(("#", "%")):
            continue
        row = line.rstrip("\r\n").split(",", len(names) - 1)
        yield from (row[at].lower() for at in columns if at < len(row))


def _plain(path: str, first: str, file: IO[str], notes: list[str]) -> Iterator[str]:
    number, met, named, skipped = 0, False, False, 0
    while first or number == 0:
        line = first.strip().lstrip("\ufeff")
        number += 1
        match = _WORD.fullmatch(line)
        if match:
            met, named = True, len(line.lstrip("\\")) > len(match[1])
            yield match[1].lower()
        elif not line or line.startswith(("#", ";")):
            pass
        elif named:  # md5deep writes names as they are, also those with a newline
            skipped += 1
        else:
            raise Usage(
                f"{path}, line {number}: no MD5, SHA-1 or SHA-256; a set is a list of them, output of md5sum or "
                "hashdeep, or a CSV with a header as NSRL has it"
            )
        first = file.readline(MOST_LINE)
    if not met:
        raise Usage(f"{path}: it holds no hashes")
    if skipped:
        notes.append(f"{path}: lines without a hash, as a name with a newline leaves them: {skipped}")


# ---- writing them -----------------------------------------------------------------------------------------------


def set_lines(files: Iterable[Hashed], form: str, for_terminal: bool = False) -> Iterator[str]:
    """A set of hashes as text, a line at a time; paths without the slash at their beginning.

    What md5sum and its kin check has names as they are, but none that could steer a terminal.
    """
    if form == "hashdeep":
        yield _HASHDEEP
        yield "%%%% size,md5,sha1,sha256,filename"
        yield "## made by f2tools"
    elif form == "nsrl":
        yield csv_line(("SHA-1", "MD5", "FileName", "FileSize"))
    for one in files:
        path = shown(one.path.lstrip(b"/"))
        if form == "hashdeep":
            yield f"{one.size},{','.join(one.sums[name] for name in HASHES)},{printable_name(path)}"
        elif form == "nsrl":
            yield csv_line((one.sums["sha1"].upper(), one.sums["md5"].upper(), path.rpartition("/")[2], one.size))
        else:
            special = any(c in path for c in "\\\n\r")
            name = path.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
            line = f"{chr(92) if special else ''}{one.sums[form]}  {name}"
            yield printable(line) if for_terminal else line
