"""What became of each file in a repair: whole, whole except for a guess, partly there, empty, moved, or gone.

Three things are compared: the names that the first check found and those of the last, what led nowhere on the way
(`Losses`), and what the repair had to guess (`Guesses`).  How much of a file is there is read from the repaired volume.
A file that is whole and where it was is only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.copyout.walk import byte_ranges
from f2tools.device.base import Device, Wrapper
from f2tools.device.changes.overlay import Overlay
from f2tools.device.wrappers import StaysOpen
from f2tools.errors import DeviceError, F2fsError
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO, NULL_ADDR
from f2tools.f2fs.layout.file_type import kind_of_mode, mode_of_type
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.super import missing_of
from f2tools.f2fs.volume.volume import Volume
from f2tools.fsck.checks.device import cut_off_blocks
from f2tools.fsck.facts.tree import Tree
from f2tools.fsck.losses import Losses, NamesBefore
from f2tools.fsck.repair.guesses import Guesses
from f2tools.fsck.repair.rounds import Repairer
from f2tools.text import counted

LOST_FOUND = "/lost+found"
_GIVEN_UP = "what was fsync'ed of it can't be brought back"
_SPAN = 1 << 16  # file blocks looked up at a time
DEFECTS = (F2fsError, OSError, ValueError, IndexError, KeyError, OverflowError)  # what a hostile image may provoke


class State(StrEnum):
    """What became of a file's content."""

    WHOLE = "whole"
    GUESSED = "guessed"  # all there, with a size or attributes that are guesses
    DOUBTFUL = "doubtful"  # everything known of is there, and something says that there was more
    OLDER = "older"  # as it was before it was fsync'ed last
    PARTIAL = "partial"
    EMPTY = "empty"  # it had content, and no byte of it is left
    GONE = "gone"


WORDS = {
    State.WHOLE: "whole",
    State.GUESSED: "whole but size guessed",
    State.DOUBTFUL: "perhaps only partly there",
    State.OLDER: "as it was before",
    State.PARTIAL: "partly there",
    State.EMPTY: "nothing there",
    State.GONE: "gone",
}


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one file.  `path` is where it was, `now` where it is; None where that is not known, or nowhere.

    `ranges` are (offset, length) of what is missing; `there` counts the bytes that are not.
    """

    path: str | None
    now: str | None
    ino: int
    type: str = "file"
    state: State = State.WHOLE
    size: int | None = None
    there: int | None = None
    ranges: tuple[tuple[int, int], ...] = ()
    reason: str = ""

    @property
    def moved(self) -> bool:
        """Whether it is elsewhere than it was, or was put into lost+found."""
        return self.now is not None and self.path != self.now and (self.path is not None or in_lost_found(self.now))

    @property
    def percent(self) -> int | None:
        """How much of it is there, in percent; 100 and 0 mean exactly all and nothing."""
        return percent_there(self.there, self.ranges)

    @property
    def message(self) -> str:
        """One line: the path and what became of it."""
        words = "attributes guessed" if self.state is State.GUESSED and self.type != "file" else WORDS[self.state]
        if self.state is State.PARTIAL and self.percent is not None:
            words = f"{self.percent} % there"
        if self.ranges:
            words += f", {missing_bytes(self.ranges)}"
        if self.moved:
            words += f", now {self.now}" if self.path is not None else ", it had no place"
        return f"{self.path or self.now or f'inode {self.ino}'}: {words}" + (f" ({self.reason})" if self.reason else "")

    def as_dict(self) -> dict[str, Any]:
        """For JSON, under stable names."""
        return {
            "path": self.path, "now": self.now, "ino": self.ino, "type": self.type, "state": str(self.state),
            "moved": self.moved, "size": self.size, "there": self.there, "percent": self.percent,
            "ranges": [list(item) for item in self.ranges], "reason": self.reason,
        }  # fmt: skip


@dataclass
class Fates:
    """What became of the files: how many are whole and where they were, and each of the others."""

    untouched: int = 0
    files: list[Fate] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        """How many there are of each state, and how many were moved."""
        found = Counter(str(item.state) for item in self.files)
        found["moved"] = sum(item.moved for item in self.files)
        return +found

    @property
    def summary(self) -> str:
        """One line with the counts."""
        counts = self.counts
        parts = [
            f"{counted(self.untouched, 'file')} whole and where {'it was' if self.untouched == 1 else 'they were'}"
        ]
        found = counts[State.WHOLE]
        parts += [f"{found:,} found again or moved, whole"] if found else []
        parts += [f"{counts[state]:,} {WORDS[state]}" for state in State if state is not State.WHOLE and counts[state]]
        return "; ".join(parts)


def percent_there(there: int | None, ranges: tuple[tuple[int, int], ...]) -> int | None:
    """How much of a file is there, in percent; 100 and 0 mean exactly all and nothing, None unknown."""
    missing = sum(length for _, length in ranges)
    if there is None or not missing:
        return None if there is None else 100
    return min(99, max(1, 100 * there // (there + missing))) if there else 0


def missing_bytes(ranges: tuple[tuple[int, int], ...], most: int = 8) -> str:
    """What is missing, first and last byte of each piece, in words."""
    pieces = ", ".join(f"{at} to {at + length - 1}" for at, length in ranges[:most])
    more = f" and {counted(len(ranges) - most, 'more piece')}" if len(ranges) > most else ""
    return f"bytes {pieces}{more} missing"


def in_lost_found(path: str) -> bool:
    """Whether a path lies in lost+found, or in what takes its place where a file has that name."""
    return path.startswith(LOST_FOUND) and path.count("/") > 1


class CutOffOverlay(Wrapper):
    """An overlay that admits what the device below lacks: where an image or one of several devices is cut off, only
    what was written can be read."""

    def __init__(self, overlay: Overlay) -> None:
        """`overlay` has been looked at, so it is known which part of a volume is on which device."""
        super().__init__(overlay)
        below = overlay.base
        self._lacks = [(start, start + length, f"{name} is cut off") for name, start, length in below.gaps]
        end = below.size_bytes
        if end < overlay.size_bytes:
            self._lacks.append((end, overlay.size_bytes, f"{self.name}: the image ends at {end:#x}"))
        ranges = list(overlay.dirty_ranges()) if self._lacks else []
        self._written = [
            (at, at + length)
            for at, length in ranges
            if any(at < stop and at + length > start for start, stop, _ in self._lacks)
        ]

    def pread_into(self, offset: int, buffer: Any) -> None:
        end = offset + memoryview(buffer).nbytes
        for low, high, why in self._lacks:
            start = max(offset, low)
            for first, stop in self._written:
                start = stop if first <= start < stop else start
            if start < min(end, high):
                raise DeviceError(f"{why}, before {start:#x}")
        super().pread_into(offset, buffer)

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        lacks = any(offset < high and offset + length > low for low, high, _ in self._lacks)
        return None if lacks else super().extent_source(offset, length)


def fates(losses: Losses, guesses: Guesses, volume: Volume, before: Device) -> Fates:
    """What became of the files of a volume, now that `volume` is the repaired one.

    `before` is the device as it was: what it lacks was never read.
    """
    tree = losses.tree
    if tree is None:
        return Fates()
    judge = _Judge(losses, guesses, volume, tree)
    judge.names()
    judge.nameless()
    judge.contents(_cut_off(tree, before))
    judge.given_up()
    return judge.result()


def fates_of(losses: Losses, repairer: Repairer) -> Fates | None:
    """What becomes of the files of a volume by the repair that is in memory; None where that can't be told."""
    with suppress(*DEFECTS):
        volume = Volume(StaysOpen(CutOffOverlay(repairer.overlay)))
        return fates(losses, repairer.guesses, volume, repairer.device)
    return None


def _cut_off(tree: Tree, before: Device) -> dict[int, list[int]]:
    """Inode number -> file blocks that the device lacks."""
    found: dict[int, list[int]] = {}
    if missing_of(before, tree.scan.geo.end_blkaddr * tree.scan.geo.block_size):
        for _ in tree.scan.windows():
            for ino, blocks in cut_off_blocks(tree.scan, before.size_bytes, before.gaps).items():
                found.setdefault(ino, []).extend(blocks.tolist())
    return found


class _Judge:
    """Puts together what became of each inode and each name."""

    def __init__(self, losses: Losses, guesses: Guesses, volume: Volume, tree: Tree) -> None:
        self._losses, self._guesses, self._volume, self._tree = losses, guesses, volume, tree
        self._found: dict[int, Fate] = {}
        self._gone: list[Fate] = []
        self._size = volume.geo.block_size
        self._last = NamesBefore(tree, volume.device.pread)

    # -- names ----------------------------------------------------------------------------------------------------

    def names(self) -> None:
        """Which files have another name than before, or none any more."""
        first, last = self._losses.first, self._last
        new: dict[int, list[str]] = {}
        for entry in last.not_in(first).tolist() if first is not None else ():
            path = last.path(entry)
            if path is not None and path.rstrip("/") != LOST_FOUND:
                new.setdefault(int(last.entries["ino"][entry]), []).append(path)
        for entry in first.not_in(last).tolist() if first is not None else ():
            assert first is not None
            path, ino = first.path(entry), int(first.entries["ino"][entry])
            if path is not None and not self._moved(path, ino, new):
                self._lost(path, ino, _type_of(int(first.entries["type"][entry])))
        for path, ino in sorted(self._losses.names.items()):
            if ino in self._guesses.deleted:
                continue
            if not any(item.path == path for item in self._gone) and not self._moved(path, ino, new):
                self._lost(path, ino, "file")
        for ino, paths in sorted(new.items()):
            if ino not in self._found:
                where = None if in_lost_found(paths[0]) else paths[0]
                reason = "" if where is None else "found again"
                self._found[ino] = Fate(where, paths[0], ino, self._type(ino), reason=reason)

    def _moved(self, path: str, ino: int, new: dict[int, list[str]]) -> bool:
        """Whether the file that had this path now has another path, which it did not have before."""
        if ino in new and path not in new[ino]:
            self._found.setdefault(ino, Fate(path, new[ino][0], ino, self._type(ino)))
            return True
        return False

    def _lost(self, path: str, ino: int, kind: str) -> None:
        """A name that is gone, unless another inode has taken it, as it should have been."""
        with suppress(*DEFECTS):
            self._volume.path(path, follow=False)
            return
        other = self._path(ino)
        reason = "" if other is None else f"the name was taken away; its inode is {other}"
        if other == path:
            reason = "its inode was not found; the name is left"
        self._gone.append(Fate(path, None, ino, kind, State.GONE, reason=reason))

    def nameless(self) -> None:
        """What the tables had and nothing was found of, not even a name."""
        told = {*self._found, *(item.ino for item in self._gone), *self._guesses.deleted}
        reason = "neither its inode nor a name of it was found"
        if self._guesses.journals_lost:
            reason += ", and it may have been deleted"
        for ino in sorted(self._guesses.cleared - told):
            if self._inode(ino) is None:
                self._gone.append(Fate(None, None, ino, state=State.GONE, reason=reason))

    # -- contents -------------------------------------------------------------------------------------------------

    def contents(self, cut_off: dict[int, list[int]]) -> None:
        """How much is there of each file of which something was lost or guessed."""
        losses, guesses = self._losses, self._guesses
        guessed = {*guesses.made, *guesses.sized, *guesses.older, *guesses.doubtful}
        for ino in sorted({*losses.ranges, *losses.fewer, *cut_off, *guessed}):
            inode = self._inode(ino)
            path = self._path(ino)
            if inode is None or path is None or ino == F2FS_ROOT_INO:
                continue
            known = self._found.get(ino, Fate(path, path, ino, self._type(ino)))
            judged = self._content(known, inode, cut_off.get(ino, []))
            if judged.state is not State.WHOLE:
                self._found[ino] = judged

    def _content(self, fate: Fate, inode: Inode, cut_off: list[int]) -> Fate:
        ino = fate.ino
        spans = self._losses.ranges.get(ino, {})
        gaps = [gap for span in spans for gap in self._holes(inode, span)]
        ranges = byte_ranges([*gaps, *((at, 1) for at in cut_off)], self._size, inode.i_size)
        if not inode.is_file:
            ranges = ()
        lost = sum(length for _, length in ranges)
        there = self._bytes_there(inode, len(cut_off))
        fate = replace(fate, size=inode.i_size, there=there, ranges=ranges)
        if ranges:
            reason = next(iter(spans.values()), "it lies beyond the end of the image")
            return replace(fate, state=State.PARTIAL if there and lost < inode.i_size else State.EMPTY, reason=reason)
        if ino in self._guesses.made:
            if inode.is_file and not there:
                return replace(fate, state=State.EMPTY, reason="its inode is lost and nothing else was found")
            reason = "its inode is lost and was made anew: size, mode and owner are guesses"
            return replace(fate, state=State.GUESSED, reason=reason)
        if ino in self._guesses.older:
            return replace(fate, state=State.DOUBTFUL, reason="an older copy of a node was taken")
        fewer = self._losses.fewer.get(ino, 0) - inode.i_blocks
        if fewer > 0:
            return replace(fate, state=State.DOUBTFUL, reason=f"its inode counted {fewer} more blocks than were found")
        if ino in self._guesses.doubtful:
            return replace(fate, state=State.DOUBTFUL, reason=self._guesses.doubtful[ino])
        if ino in self._guesses.sized:
            return replace(fate, state=State.GUESSED, reason="its size is made to fit its blocks")
        return fate

    def _holes(self, inode: Inode, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """(first file block, count) of the holes within a span of a file."""
        if inode.has_inline_data or inode.has_inline_dentry:
            return
        at, end = span[0], min(sum(span), -(-inode.i_size // self._size))
        with suppress(*DEFECTS):
            for first, addresses in self._volume.data.spans(inode, at, end):
                start, stop = max(first, at), min(first + addresses.size, end)
                if start > at:
                    yield at, start - at
                yield from _zeros(start, addresses[start - first : stop - first])
                at = max(stop, at)
            if at < end:
                yield at, end - at
            return
        for start in range(at, end, _SPAN):  # a node is damaged: what lies beside it is there all the same
            count = min(_SPAN, end - start)
            try:
                addresses = self._volume.data.addresses(inode, start, count)
            except DEFECTS:
                addresses = np.zeros(count, np.uint32)
            yield from _zeros(start, addresses)

    def _bytes_there(self, inode: Inode, cut_off: int) -> int:
        """Bytes of a file that are mapped to blocks of the image."""
        if inode.has_inline_data:
            return inode.i_size
        blocks, end = 0, -(-inode.i_size // self._size)
        with suppress(*DEFECTS):
            for first, addresses in self._volume.data.spans(inode):
                blocks += int(np.count_nonzero(self._volume.geo.in_main(addresses[: max(0, end - first)])))
        return min(inode.i_size, max(0, blocks - cut_off) * self._size)

    def given_up(self) -> None:
        """Files of which something that was fsync'ed can't be brought back: they are older, or were never there."""
        for ino, plan in sorted(self._losses.given_up.items()):
            path = self._path(ino)
            if path is not None and self._inode(ino) is not None:
                known = self._found.get(ino, Fate(path, path, ino, self._type(ino)))
                if known.state in (State.WHOLE, State.GUESSED):
                    self._found[ino] = replace(known, state=State.OLDER, reason=_GIVEN_UP)
            elif plan.new:
                above = self._path(plan.pino) if plan.pino != F2FS_ROOT_INO else ""
                path = None if above is None else f"{above}/{plan.new}"
                self._gone.append(Fate(path, None, ino, state=State.GONE, reason=_GIVEN_UP))

    # -- what is asked of the volume ------------------------------------------------------------------------------

    def result(self) -> Fates:
        """All of it, by path."""
        files = [*self._found.values(), *self._gone]
        files.sort(key=lambda item: (item.state is State.WHOLE, item.path or item.now or "", item.ino))
        regular = (self._tree.scan.inodes["mode"] >> 12 == 8) & self._tree.reached
        regular[self._tree.quota] = False
        told = sum(item.now is not None and item.type == "file" for item in self._found.values())
        return Fates(max(0, int(np.count_nonzero(regular)) - told), files)

    def _inode(self, ino: int) -> Inode | None:
        with suppress(*DEFECTS):
            return self._volume.nodes.inode(ino)
        return None

    def _type(self, ino: int) -> str:
        inode = self._inode(ino)
        return "file" if inode is None else inode.kind

    def _path(self, ino: int) -> str | None:
        """The path of an inode now."""
        return self._last.path_of(ino)


def _zeros(first: int, addresses: NDArray[np.uint32]) -> Iterator[tuple[int, int]]:
    """(first file block, count) of the runs of blocks without an address; `first` is the block of the first address."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], addresses == NULL_ADDR, [False])).astype(np.int8)))
    for low, high in edges.reshape(-1, 2).tolist():
        yield first + low, high - low


def _type_of(file_type: int) -> str:
    return kind_of_mode(mode_of_type(file_type) or 0)


__all__ = ["CutOffOverlay", "Fate", "Fates", "State", "fates", "fates_of"]
