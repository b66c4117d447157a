"""Salvage: what can be read of a damaged volume is copied out, and the image stays as it is.

The repair is made in memory, and files are taken from its result by the engine that all extraction uses.  A
repair leaves holes where nothing is left, so what it removed is noted on the way: pointers that led nowhere, names
without an inode, blocks beyond the end of the image.  What is still missing in the result was lost.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from f2tools.copyout.extract import extract
from f2tools.copyout.keep import NOTHING, Keep
from f2tools.copyout.report import CopyReport
from f2tools.copyout.walk import shown
from f2tools.device import Device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.wrappers import StaysOpen
from f2tools.errors import F2fsError, NotF2fs
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.recovered import recovered
from f2tools.fsck.check import DEFAULT_MEMORY, check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.fates import (
    DEFECTS,
    CutOffOverlay,
    Fate,
    Fates,
    State,
    fates,
    in_lost_found,
    missing_bytes,
    percent_there,
)
from f2tools.fsck.losses import Losses
from f2tools.fsck.newer import Newer, give_up_older
from f2tools.fsck.repair.outcome import Outcome
from f2tools.fsck.repair.rounds import Repairer
from f2tools.fsck.rescue import prepare as rescue
from f2tools.newfile import create_in, open_directory
from f2tools.text import counted, printable

FILES, NEWER, REPORT_JSON, REPORT_TEXT = "files", "newer", "report.json", "report.txt"
SHOWN = 20
# changes the overlay within so much memory, before anything is copied; says what it did
Preparation = Callable[[Overlay, int], list[str]]


@dataclass
class Partial:
    """A file of which something is missing: (offset, length) of that, none where the place is not known."""

    path: str
    ino: int | None
    reason: str
    ranges: tuple[tuple[int, int], ...] = ()
    size: int | None = None
    there: int | None = None

    @classmethod
    def of(cls, fate: Fate) -> Partial:
        """What a fate says of a file that is there."""
        return cls(fate.now or "?", fate.ino, fate.reason, fate.ranges, fate.size, fate.there)

    @property
    def percent(self) -> int | None:
        """How much of it is there."""
        return percent_there(self.there, self.ranges)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "path": self.path, "ino": self.ino, "reason": self.reason, "ranges": [list(r) for r in self.ranges],
            "size": self.size, "there": self.there, "percent": self.percent,
        }  # fmt: skip


@dataclass
class Salvage:
    """What was copied.  Every file below `files` that is in none of the lists is whole.

    Of `guessed` files everything known of is there, with a size or attributes that are guesses; of `doubtful` ones
    something says that there was more, or that they are older than they were; of `partial` ones a part is there, of
    `empty` ones no byte.  `behind`: what is newer than all of these and lies behind a checkpoint that was hit; it is
    copied as `newer`, or a note says why not.
    """

    image: str
    target: str
    copied: CopyReport
    repaired: bool = False
    notes: list[str] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    partial: list[Partial] = field(default_factory=list)
    guessed: list[Partial] = field(default_factory=list)
    doubtful: list[Partial] = field(default_factory=list)
    empty: list[Partial] = field(default_factory=list)
    name_only: list[tuple[str, int]] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    behind: Newer | None = None
    newer: Salvage | None = None

    @property
    def complete(self) -> bool:
        """Whether all that the volume knew of is there, whole."""
        lost = self.partial or self.empty or self.guessed or self.name_only or self.copied.lost
        return not lost and self.behind is None

    def as_dict(self) -> dict[str, Any]:
        """For JSON, under stable names."""
        copied = self.copied
        lists = (self.partial, self.guessed, self.doubtful, self.empty)
        others = {item.path for some in lists for item in some if not item.path.endswith("/")}
        return {
            "image": self.image,
            "files": os.path.join(self.target, FILES),
            "complete": self.complete,
            "whole": max(0, copied.files - len(others)),
            "copied": {
                "files": copied.files, "directories": copied.directories, "symlinks": copied.symlinks,
                "hard_links": copied.hard_links, "specials": copied.specials, "bytes": copied.bytes,
            },
            "partial": [item.as_dict() for item in self.partial],
            "guessed": [item.as_dict() for item in self.guessed],
            "doubtful": [item.as_dict() for item in self.doubtful],
            "empty": [item.as_dict() for item in self.empty],
            "name_only": [{"path": path, "ino": ino} for path, ino in self.name_only],
            "lost": [item.as_dict() for item in copied.lost],
            "unplaced": self.unplaced,
            "newer": self.newer and self.newer.as_dict(),
            "repair": {"complete": self.repaired, "left": self.left, "notes": self.notes},
        }  # fmt: skip


def salvage(
    device: Device,
    image: str,
    target: str,
    *,
    keep: Keep = NOTHING,
    memory_bytes: int = DEFAULT_MEMORY,
    prepare: Preparation | None = None,
    advance: Callable[[int], None] | None = None,
) -> Salvage:
    """Copy what can be read on `device` into the new or empty directory `target`; `device` is never written to.

    `keep` is that of `extract`.  `prepare` may change the overlay that the repair works on before it begins, and says
    what it did.
    FileExistsError where something is in the directory; NotF2fs where not even a repair finds a volume; TargetFull.
    """
    directory, _ = open_directory(target, parents=True)
    try:
        if os.listdir(directory):
            raise FileExistsError(errno.ENOTEMPTY, "the directory is not empty; give a new one", target)
        result = _salvage(device, image, target, keep, memory_bytes, prepare, advance)
        if result.behind is not None:
            below, prepare = os.path.join(target, NEWER), _newer(prepare, result.behind)
            os.mkdir(NEWER, 0o700, dir_fd=directory)
            try:
                result.newer = _salvage(device, image, below, keep, memory_bytes, prepare, advance)
            except F2fsError as error:
                result.notes.append(f"the newer state can't be copied: {error}")
        _write(directory, REPORT_JSON, json.dumps(result.as_dict(), indent=1, default=str) + "\n")
        _write(directory, REPORT_TEXT, "\n".join(lines_of(result, everything=True)) + "\n")
    finally:
        os.close(directory)
    return result


def _rescued(prepare: Preparation | None) -> Preparation:
    """The same preparation, and then that of a rescue."""

    def prepared(overlay: Overlay, memory_bytes: int) -> list[str]:
        return [*(prepare(overlay, memory_bytes) if prepare is not None else []), *rescue(overlay, memory_bytes)]

    return prepared


def _newer(prepare: Preparation | None, newer: Newer) -> Preparation:
    """The same preparation, and then the newer state counts, not the checkpoint in use."""

    def prepared(overlay: Overlay, memory_bytes: int) -> list[str]:
        notes = prepare(overlay, memory_bytes) if prepare is not None else []
        give_up_older(overlay, Image(StaysOpen(overlay)), newer)
        return notes

    return prepared


def _salvage(
    device: Device,
    image: str,
    target: str,
    keep: Keep,
    memory_bytes: int,
    prepare: Preparation | None,
    advance: Callable[[int], None] | None,
    rescued: bool = False,
) -> Salvage:
    losses = Losses(device)
    repairer = Repairer(device, memory_bytes, watch=losses.watch)
    prepared = prepare(repairer.overlay, memory_bytes) if prepare is not None else []
    outcome, trouble = _repair(repairer)
    try:
        volume = _volume(CutOffOverlay(repairer.overlay))
    except NotF2fs:  # the repair gave up, and no checkpoint is valid
        if rescued:
            raise
        return _salvage(device, image, target, keep, memory_bytes, _rescued(prepare), advance, rescued=True)
    copied = extract(volume, os.path.join(target, FILES), keep=keep, advance=advance)
    result = Salvage(image, target, copied, behind=repairer.newer)
    if outcome is not None:
        result.repaired, result.left = outcome.complete, dict(outcome.left)
        losses.tree = outcome.after.tree or losses.tree
    result.notes = [*prepared, *volume.warnings, *repairer.done[:1000], *([trouble] if trouble else [])]
    found = fates(losses, repairer.guesses, volume, device)
    _judge(result, found)
    return result


def _repair(repairer: Repairer) -> tuple[Outcome | None, str]:
    """The repair in memory; where it fails, as far as it got."""
    try:
        before = check(Image(StaysOpen(repairer.overlay)))
        before.tree = None
        return repairer.run(before), ""
    except F2fsError:
        raise
    except DEFECTS as error:
        return None, f"the repair ended early: {error}"


def _volume(device: Device) -> Volume:
    """The repaired volume with what was fsync'ed after its checkpoint, or without where that can't be recovered."""
    with suppress(*DEFECTS):
        return recovered(StaysOpen(device))
    return Volume(device)


# -- what is whole, and what is not -----------------------------------------------------------------------------------


def _judge(result: Salvage, found: Fates) -> None:
    """Put what became of the files beside what could not be copied whole."""
    known: set[str | None] = set()
    for item in result.copied.partial:
        path = shown(item.path)
        fate = next((fate for fate in found.files if fate.now == path), Fate(path, path, 0))
        known.add(path)
        result.partial.append(_partial(result, path, fate, item.reason, item.ranges))
    for fate in found.files:
        if fate.state is State.GONE:
            result.name_only.append((fate.path or "?", fate.ino))
        elif fate.now is not None and fate.now not in known and fate.state is not State.WHOLE:
            lists = {
                State.GUESSED: result.guessed, State.DOUBTFUL: result.doubtful, State.OLDER: result.doubtful,
                State.EMPTY: result.empty,
            }  # fmt: skip
            lists.get(fate.state, result.partial).append(Partial.of(fate))
        if fate.moved and fate.now is not None and in_lost_found(fate.now):
            result.unplaced.append(fate.now)
    result.empty += [item for item in result.partial if item.there == 0]
    result.partial = [item for item in result.partial if item.there != 0]
    result.unplaced.sort()


def _partial(result: Salvage, path: str, fate: Fate, reason: str, ranges: tuple[tuple[int, int], ...]) -> Partial:
    """A file that could be copied only in part: what is there is told by the copy."""
    with suppress(OSError):
        copy = os.stat(os.path.join(result.target, FILES, path.lstrip("/")), follow_symlinks=False)
        missing = sum(length for _, length in ranges)
        there = min(copy.st_blocks * 512, copy.st_size, max(0, copy.st_size - missing))
        return Partial(path, fate.ino or None, reason, ranges, copy.st_size, there)
    return Partial(path, fate.ino or None, reason, ranges)


# -- the report -------------------------------------------------------------------------------------------------------


def _write(directory: int, name: str, text: str) -> None:
    with open(create_in(directory, name), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def lines_of(result: Salvage, everything: bool = False) -> Iterator[str]:
    """The report for people; at most SHOWN of a kind unless `everything`."""
    told = result.as_dict()
    copied = result.copied
    yield printable(
        f"{result.image}: {counted(told['whole'], 'file')} whole, {len(result.guessed):,} whole but size guessed, "
        f"{len(result.doubtful):,} perhaps only partly, {len(result.partial):,} only partly, "
        f"{len(result.empty):,} with nothing there, {len(result.name_only):,} by name only; "
        f"{counted(copied.directories, 'directory', 'directories')}, "
        f"{counted(copied.symlinks, 'symbolic link')} -> {told['files']}"
    )
    for title, rows in (
        ("whole but size guessed", [_partial_line(item) for item in result.guessed]),
        ("perhaps only partly", [_partial_line(item) for item in result.doubtful]),
        ("only partly", [_partial_line(item) for item in result.partial]),
        ("nothing there", [f"{item.path}: {item.reason}" for item in result.empty]),
        ("name only", [f"{path} (inode {ino})" for path, ino in result.name_only]),
        ("not copied", [f"{shown(item.path)}: {item.reason}" for item in copied.lost]),
        ("without a place, now in lost+found", result.unplaced),
    ):
        for row in rows if everything else rows[:SHOWN]:
            yield f"{title}: {printable(row)}"
        if not everything and len(rows) > SHOWN:
            yield f"{title}: ... and {len(rows) - SHOWN:,} more, see {REPORT_TEXT}"
    if copied.left_out:
        yield copied.left_out
    if not result.repaired:
        left = ", ".join(f"{code} ({count})" for code, count in sorted(result.left.items())) or "see the notes"
        yield f"the repair in memory was not complete: {left}"
    if everything:
        for note in result.notes:
            yield f"note: {printable(note)}"
    if result.behind is not None:
        copied_to = "what is found of it is copied, too:" if result.newer else f"not copied, see {REPORT_TEXT}"
        yield f"behind a checkpoint that was hit there is a newer state, {result.behind}; {copied_to}"
    if result.newer is not None:
        yield from lines_of(result.newer, everything)


def _partial_line(item: Partial) -> str:
    some = f"{item.percent} % there, " if item.ranges and item.percent is not None else ""
    return f"{item.path}: {some}{item.reason}" + (f"; {missing_bytes(item.ranges)}" if item.ranges else "")


__all__ = ["Salvage", "lines_of", "salvage"]
