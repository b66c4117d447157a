"""Requests that fail, in every command: each read, write and flush of an image or of what is written beside it.

A request fails with EIO or ENOSPC, or is done in part, as the kernel may; then a command ends with a documented exit
code and a word, a partial request changes nothing of the outcome, and what has read something wrong says so.  Or the
command is killed in its place.  A change that failed or was killed leaves what a power cut may leave, and its undo log
gives every byte back.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from f2tools.cli import run as run_cli
from f2tools.device.base import Device
from f2tools.device.media.image import FileDevice
from tests.command_lines import CHANGING, READING, exit_codes, filled, named
from tests.endurance.campaign import Campaign, Found, Outcome
from tests.hostile.exercise import in_child
from tests.images import copy_sparse, data_ranges, reference

NO_TRACE = [line for line in READING if not line.startswith("trace ")]
LINES = (*CHANGING, *NO_TRACE, "mkfs -f {i}", "mkfs -q {d}/filled --from {f} --size 64M")
CASES = 12  # in a piece
PIECE = 1 << 16  # bytes of a file that are looked at together
TEXT = 1 << 20  # bytes; shorter files may be text, with the names of directories and the time in it
NOW = re.compile(time.strftime(r"%Y-%m-%d[T ]\d\d:\d\d(:\d\d)?|in [\d.]+ s\b(, [\d.]+ [KMG]iB/s)?").encode())
READ_ERROR = os.strerror(errno.EIO).encode()
COUNTED = Path(__file__).with_name("requests.json")  # how many failures each command can have
READS, WRITES, FLUSHES = ("pread", "preadv"), ("pwrite", "pwritev", "write", "sendfile"), ("fsync", "fdatasync")
WAYS = {**dict.fromkeys(READS, ("EIO", "short")), **dict.fromkeys(WRITES, ("EIO", "ENOSPC", "short", "killed")),
        **dict.fromkeys(FLUSHES, ("EIO", "killed")), "ftruncate": ("ENOSPC", "killed")}  # fmt: skip
KILLED = 137
# what a power cut may leave that no mount minds: one copy of the superblock, a torn pack, the count of free segments
AFTER_A_CUT = {"S001", "S002", "S003", "S004", "C001", "C007"}


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it left."""

    code: int
    out: str  # digest of standard output
    err: str
    written: str  # digest of all that lies in its directory
    requests: list[str]
    told: bool = False  # of an error in reading, on standard output or in a report

    @property
    def plain(self) -> tuple[int, str, str]:
        """What must be the same where nothing went wrong."""
        return self.code, self.out, self.written


class Requests:
    """Counts the requests for files below a directory, and lets one of them fail."""

    def __init__(self, below: Path, fails: int = -1, way: str = "") -> None:
        self.below, self.fails, self.way = f"{below}/", fails, way
        self.seen: list[str] = []

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        """`os` with the requests that are counted; the core, which asks by itself, reads no file."""
        real = {name: getattr(os, name) for name in WAYS}
        plain_file, FileDevice.plain_file = FileDevice.plain_file, Device.plain_file
        for name, call in real.items():
            setattr(os, name, self._instead(name, call))
        try:
            yield
        finally:
            for name, call in real.items():
                setattr(os, name, call)
            FileDevice.plain_file = plain_file

    def _instead(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def request(fd: int, *arguments: Any) -> Any:
            if not os.readlink(f"/proc/self/fd/{fd}").startswith(self.below):
                return call(fd, *arguments)
            self.seen.append(name)
            if len(self.seen) - 1 != self.fails:
                return call(fd, *arguments)
            if self.way == "short":
                return call(fd, *_half(name, arguments))
            if self.way == "killed":
                os._exit(KILLED)
            number = getattr(errno, self.way)
            raise OSError(number, os.strerror(number))

        return request


def _half(name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    first, *rest = arguments
    if name == "pread":
        return (max(1, first // 2), *rest)
    if name == "sendfile":
        return (*arguments[:2], max(1, arguments[2] // 2))
    if name in ("preadv", "pwritev"):
        view = memoryview(first[0]).cast("B")
        return ([view[: max(1, len(view) // 2)]], *rest)
    view = memoryview(first).cast("B")
    return (view[: max(1, len(view) // 2)], *rest)


def _run(words: list[str], work: Path, requests: Requests) -> Ended:
    """Run a command in this process."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape", write_through=True), io.StringIO()
    sys.argv = ["f2tools", *words]
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), requests.patched():
            run_cli()
    except SystemExit as stop:
        code = stop.code or 0
    text = out.buffer.getvalue().replace(os.fsencode(work), b"WORK")  # type: ignore[attr-defined]
    digest = hashlib.sha256()
    for path in sorted((work / "d").rglob("*")):
        digest.update(os.fsencode(path.relative_to(work)) + b"\0")
        if path.is_file() and not path.is_symlink() and path.suffix != ".undo":
            digest.update(_content(path, work))
    said = hashlib.sha256(NOW.sub(b"NOW", text)).hexdigest()
    written = (path for path in (work / "d").rglob("*.json") if path.is_file())
    told = READ_ERROR in text or any(READ_ERROR in path.read_bytes() for path in written)
    return Ended(int(str(code)), said, err.getvalue(), digest.hexdigest(), requests.seen, told)


def _content(path: Path, work: Path) -> bytes:
    """A digest of size and content, of which holes, however long, cost nothing; a report may name its directory."""
    size, done = path.stat().st_size, 0
    if size <= TEXT:
        return hashlib.sha256(NOW.sub(b"NOW", path.read_bytes().replace(os.fsencode(work), b"WORK"))).digest()
    digest = hashlib.sha256(b"%d" % size)
    with path.open("rb") as file:
        for start, length in data_ranges(file.fileno(), size):
            for at in range(max(done, start // PIECE * PIECE), start + length, PIECE):
                piece, done = os.pread(file.fileno(), PIECE, at), at + PIECE
                if piece.strip(b"\0"):
                    digest.update(b"%d:" % at + piece)
    return digest.digest()


def in_a_child(words: list[str], work: Path, fails: int = -1, way: str = "") -> Ended:
    """Run a command in a process of its own; a traceback is an AssertionError."""

    def task() -> list[str]:
        ended = _run(words, work, Requests(work, fails, way))
        return [json.dumps([ended.code, ended.out, ended.err, ended.written, ended.requests, ended.told])]

    said, *more = [*in_child(task), ""]
    if way == "killed":
        return Ended(KILLED, "", "", "", [])
    more.pop()
    assert said.startswith("["), said
    assert not more, more
    ended = Ended(*json.loads(said))
    assert "Traceback" not in ended.err, ended.err
    assert "mistake in f2tools" not in ended.err, ended.err
    return ended


def piece(seed: int, work: Path) -> Outcome:
    """So many failures of one command; the last piece of a command has what there is."""
    line, first, last = places()[seed]
    before = _before(line)
    usual = _usual(line, before, work)
    every = _in_turn(line, _failures(usual), usual)
    outcome = Outcome()
    for number, way in every[first : None if last else first + CASES]:
        here = _fresh(before, work / "here")
        name = usual.requests[number]
        words = filled(line, **_places(here))
        try:
            wrong = _judged(line, words, here, usual, (number, name, way))
        except AssertionError as error:
            wrong = str(error)
        outcome.done += 1
        outcome.counts[f"{name} {way}"] += 1
        if wrong:
            what = f"f2tools {line}: request {number} of {len(usual.requests)} ({name}) fails by {way}: {wrong}"
            outcome.found.append(Found(what, operations=[line]))
    return outcome


def _usual(line: str, before: Path, work: Path) -> Ended:
    """A command to which nothing happens."""
    here = _fresh(before, work / "here")  # where failures happen, too: an index has the name of its image
    return in_a_child(filled(line, **_places(here)), here)


def _failures(usual: Ended) -> list[tuple[int, str]]:
    return [(number, way) for number, name in enumerate(usual.requests) for way in WAYS[name]]


@cache
def places() -> list[tuple[str, int, bool]]:
    """Of each piece its command, its first failure, and whether it is the last; the first pieces of all come first."""
    counts = json.loads(COUNTED.read_text())
    return [
        (line, first, first + CASES >= counts[line])
        for first in range(0, max(counts.values()), CASES)
        for line in LINES
        if first < counts[line]
    ]


def write_counts() -> None:
    """Count the failures that each command can have; needed when commands or what they read has changed."""
    with tempfile.TemporaryDirectory(prefix="f2-endurance-") as work:
        counts = {line: len(_failures(_usual(line, _before(line), Path(work)))) for line in LINES}
    COUNTED.write_text(json.dumps(counts, indent=1) + "\n")


def _in_turn(line: str, every: list[tuple[int, str]], usual: Ended) -> list[tuple[int, str]]:
    """All failures of a command, shuffled, reads and others by turns."""
    random.Random(line).shuffle(every)
    reads = [case for case in every if usual.requests[case[0]] in READS]
    others = [case for case in every if usual.requests[case[0]] not in READS]
    least = min(len(reads), len(others))
    by_turns = [case for pair in zip(others, reads, strict=False) for case in pair]
    return [*by_turns, *others[least:], *reads[least:]]


def _places(work: Path) -> dict[str, str]:
    return {"i": f"{work}/image", "d": f"{work}/d", "f": f"{work}/f", "t": f"{work}/t"}


@cache
def warm() -> tuple[Path, ...]:
    """Directories with the image as each of the changing commands finds it, the ones before it having been run."""
    whole = Path(tempfile.mkdtemp(prefix="f2-endurance-images-"))
    now = whole / "now"
    (now / "d").mkdir(parents=True)
    (now / "f").write_bytes(random.Random(1).randbytes(90_000))
    copy_sparse(reference("features").path, now / "image")
    found: list[Path] = []
    for line in CHANGING:
        found.append(_fresh(now, whole / str(len(found))))
        in_a_child(filled(line, **_places(now)), now)
    return tuple(found)


def _before(line: str) -> Path:
    return warm()[min(LINES.index(line), len(CHANGING) - 1)]


def _fresh(before: Path, work: Path) -> Path:
    """The same in another directory; of undo logs only those that an `undo` takes."""
    os.system(f"rm -rf {work}")
    os.system(f"cp -a --sparse=always {before} {work}")
    return work


def _judged(line: str, words: list[str], work: Path, usual: Ended, case: tuple[int, str, str]) -> str:
    number, name, way = case
    image = work / "image"
    old = _content(image, work)
    ended = in_a_child(words, work, number, way)
    if way == "killed":
        return _after_a_kill(line, words, work, old)
    tool = named(line).split()[0]
    if ended.code not in exit_codes(tool):
        return f"exit code {ended.code}\n{ended.err}"
    if way == "short":
        return "" if ended.code == usual.code else f"exit code {ended.code}, not {usual.code}\n{ended.err}"
    changes = line in CHANGING
    new = _content(image, work)
    if not changes and not line.startswith("mkfs"):
        if new != old:
            return "the image was changed"
        if name in READS and ended.err == usual.err and not ended.told and ended.plain != usual.plain:
            return f"silent, but the outcome is another (exit code {ended.code})"
    made_otherwise = name == "sendfile" and ended.plain == usual.plain
    if name not in READS and ended.code == usual.code and ended.err == usual.err and not made_otherwise:
        return f"the failure is not told: exit code {ended.code}\n{ended.err}"
    if ended.code == 8 and not ended.err.strip() and tool != "fsck":
        return "exit code 8 without a word"
    return _afterwards(words, work, old, new) if changes and ended.code != usual.code else ""


def _after_a_kill(line: str, words: list[str], work: Path, old: bytes) -> str:
    image = work / "image"
    new = _content(image, work)
    if line in CHANGING:
        return _afterwards(words, work, old, new)
    if line.startswith("mkfs"):
        made = image if "{i}" in line else work / "d" / "filled"
        codes = set(codes_of(str(made))) - AFTER_A_CUT if made.exists() else set()
        if "S005" in codes:  # the superblocks come last: there is no volume yet
            return ""
        return f"what it made is there, with {sorted(codes)}" if codes else ""
    return "the image was changed" if new != old else ""


def _afterwards(words: list[str], work: Path, old: bytes, new: bytes) -> str:
    """What a change that failed leaves."""
    image = str(work / "image")
    if "--undo" in words and old != new and words[0] != "undo":
        copy_sparse(work / "image", work / "copy")
        done = in_a_child(["undo", words[words.index("--undo") + 1], str(work / "copy")], work)
        if done.code or _content(work / "copy", work) != old:
            return f"its undo log does not give the old image back: exit code {done.code}\n{done.err}"
    if words[0] == "undo":
        return ""
    checked = in_a_child(["fsck", "--json", image], work)
    codes = set(codes_of(image)) - AFTER_A_CUT
    if codes and words[0] != "fsck":
        return f"the image is left with {sorted(codes)}"
    if checked.code:
        repaired = in_a_child(["fsck", "-y", image], work)
        again = in_a_child(["fsck", image], work)
        if again.code:
            return f"fsck -y ended with {repaired.code}, and a second check with {again.code}"
    return ""


def codes_of(image: str) -> list[str]:
    """What our check finds; nothing where there is no volume."""

    def task() -> list[str]:
        from f2tools.device import open_device
        from f2tools.errors import NotF2fs
        from f2tools.fsck.check import check
        from f2tools.fsck.facts.image import Image
        from f2tools.fsck.findings import Severity

        with open_device(image) as device, contextlib.suppress(NotF2fs):
            return sorted({f.code for f in check(Image(device)).findings if f.severity >= Severity.WARNING})
        return []

    found = in_child(task)
    assert all(len(code) == 4 for code in found), found
    return found


INJECTED = Campaign(
    "injected",
    "a read, write, flush or growth of a file fails in one of the commands, by EIO, ENOSPC or done in part, or the"
    " command is killed there: it ends with a word and a documented exit code, what was read wrong is told, what it"
    " leaves can be undone and repaired",
    "failures", sum(json.loads(COUNTED.read_text()).values()), CASES, piece, warm=warm, in_memory=True,
    count=len(places()),
)  # fmt: skip
