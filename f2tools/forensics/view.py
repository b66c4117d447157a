"""The tree as of any checkpoint of which enough is left: a volume whose node addresses are those of that moment.

A checkpoint that is still on the disk is read as it lies.  An older one is rebuilt from the log: of each node the
newest block written before it.  Blocks that were written to since are known by later claims and by the summaries;
reading one is an error, so that nothing newer is shown as old (`lost_dirs` reads such directories).
What was overwritten in place can't be told.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import f2tools
from f2tools.copyout.walk import Found, Lost, walk
from f2tools.device import Device
from f2tools.device.base import Wrapper
from f2tools.device.buffers import byte_view
from f2tools.errors import DeviceError, F2fsError, Usage
from f2tools.f2fs.layout.constants import SUM_TYPE_DATA
from f2tools.f2fs.volume.volume import Volume
from f2tools.forensics.claims import Claims
from f2tools.forensics.content import REWRITTEN, Contents
from f2tools.forensics.index import Index, open_index
from f2tools.forensics.lost_dirs import PastDirs
from f2tools.forensics.past import Past, PastVolume, TimeNat
from f2tools.forensics.times import iso, parse_time
from f2tools.text import counted

CHUNK = 1 << 16


@dataclass
class Sureness:
    """How certain a view is: which part of its tree was found."""

    cp_ver: int
    exact: bool  # the checkpoint is still there
    directories: int = 0
    files: int = 0
    lost: list[Lost] = field(default_factory=list)  # names and directories that can't be read
    gaps: list[bytes] = field(default_factory=list)  # files of which blocks are gone
    doubtful: list[bytes] = field(default_factory=list)  # files that share blocks with a later version of other mtime
    overwritten: bool = False  # newer nodes of that time may have been overwritten

    @property
    def grade(self) -> str:
        """certain (the checkpoint is there), probable (rebuilt, nothing is missing) or partial."""
        if self.exact:
            return "certain"
        return "partial" if self.lost or self.gaps or self.overwritten else "probable"

    def words(self) -> str:
        """One line for people."""
        if self.exact:
            return f"checkpoint {self.cp_ver} is on the disk"
        parts = [f"{counted(self.directories, 'directory', 'directories')} and {counted(self.files, 'file')} found"]
        if self.lost:
            parts.append(f"{counted(len(self.lost), 'name or directory', 'names or directories')} lost or in doubt")
        if self.gaps:
            parts.append(f"{counted(len(self.gaps), 'file')} with gaps")
        if self.doubtful:
            parts.append(f"{counted(len(self.doubtful), 'file')} that may have been overwritten in place later")
        if self.overwritten:
            parts.append("some nodes of that time may have been overwritten")
        return f"checkpoint {self.cp_ver} was rebuilt from the log ({self.grade}): {', '.join(parts)}"


class BadBlocks(Wrapper):
    """A device of which some blocks are not what they were: reading one of them is an error."""

    def __init__(self, base: Device, block_size: int, first: int, bad: NDArray[np.bool_]) -> None:
        super().__init__(base)
        self._size = block_size
        self._first = first
        self._bad = bad

    def pread_into(self, offset: int, buffer: Any) -> None:
        length = byte_view(buffer).nbytes
        at = self._bad_in(offset, length)
        if at is not None:
            raise DeviceError(f"block {at:#x} was written to since, or was discarded")
        self.base.pread_into(offset, buffer)

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        return None if self._bad_in(offset, length) is not None else self.base.extent_source(offset, length)

    def any_bad(self, blkaddrs: NDArray[Any]) -> bool:
        """Whether some of these blocks of the main area can't be read."""
        return bool(self._bad[blkaddrs.astype(np.int64) - self._first].any())

    def _bad_in(self, offset: int, length: int) -> int | None:
        low = max(0, offset // self._size - self._first)
        high = min(self._bad.size, -(-(offset + length) // self._size) - self._first)
        if low >= high or not self._bad[low:high].any():
            return None
        return self._first + low + int(np.flatnonzero(self._bad[low:high])[0])


def checkpoints(past: Past) -> list[tuple[int, int]]:
    """(cp_ver, latest time written by then in ns) of the checkpoints of which something is left, oldest first."""
    current = past.volume.cp.checkpoint_ver
    return [(current + age + 1, time) for age, time in past.clock if age < 0]


def cp_ver_of(past: Past, when: int | str) -> int:
    """The checkpoint version that a version or a time means: the last one made by that time.  Usage otherwise."""
    known = checkpoints(past)
    if not known:
        raise Usage("nothing of the past is left")
    if isinstance(when, str):
        text = when.strip()
        if text.isdigit() or text.lower().startswith("0x"):
            when = int(text, 0)
        else:
            time = parse_time(text)
            before = [version for version, latest in known if latest <= time]
            if not before:
                raise Usage(f"nothing is left from before {text}; the oldest is of {iso(known[0][1])}")
            return past.volume.cp.checkpoint_ver if len(before) == len(known) else before[-1]
    if when > past.volume.cp.checkpoint_ver or when < known[0][0]:
        raise Usage(f"checkpoint {when} is not one of those that can be rebuilt, {known[0][0]} to {known[-1][0]}")
    return when


def as_of(volume: Volume, when: int | str, index: Index | None = None) -> Volume:
    """The volume as of a checkpoint version or an ISO time, read-only; `warnings` say how certain that is.

    Closing it closes the device of `volume`, which it stands on.  Usage where nothing of that time is left.
    """
    found = open_index(volume) if index is None else index
    try:
        past = Past(volume, found)
        return view_of(past, cp_ver_of(past, when))[0]
    finally:
        if index is None:
            found.close()


def view_of(past: Past, cp_ver: int) -> tuple[Volume, Sureness]:
    """The view of one checkpoint version, and how certain it is."""
    base = past.volume
    for which in ("newest", "older"):
        try:
            there = Volume(base.device, which, base.keyring)
        except F2fsError:
            continue
        if there.cp.checkpoint_ver == cp_ver:
            sure = Sureness(cp_ver, exact=True)
            there.warnings = [*base.warnings, sure.words()]
            return there, sure
    age = cp_ver - base.cp.checkpoint_ver - 1
    limit = past.rank_at(age)
    view = PastVolume(base, TimeNat(past, limit))
    contents = Contents(past)
    bad = _written_since(past, contents, limit)
    view.device = BadBlocks(base.device, past.geo.block_size, past.geo.main_blkaddr, bad)
    vars(view)["dirs"] = PastDirs(past, contents, view, age)
    sure = _look_through(past, contents, view, cp_ver, age)
    view.warnings = [*base.warnings, sure.words()]
    return view, sure


def _written_since(past: Past, contents: Contents, limit: int) -> NDArray[np.bool_]:
    """Blocks of the main area that held data of some node before a rank, and hold something else now."""
    geo = past.geo
    then, now = Claims(past, limit), contents.claims
    claimed = np.flatnonzero(then.rank)
    bad = np.zeros(then.rank.size, np.bool_)
    for first in range(0, claimed.size, CHUNK):
        index = claimed[first : first + CHUNK]
        addrs = index + geo.main_blkaddr
        wrong = (then.nid[index] != now.nid[index]) | (then.ofs[index] != now.ofs[index])
        types, owner, known = past.owners.of(addrs)
        agrees = (
            (types == SUM_TYPE_DATA) & (owner["nid"] == then.nid[index]) & (owner["ofs_in_node"] == then.ofs[index])
        )
        wrong |= known & ~agrees & ~contents.unsure(addrs)
        free = np.flatnonzero(~wrong & ~past.volume.sit.valid(addrs))
        if free.size and contents.discards:
            wrong[free] = contents.zero(addrs[free])
        bad[index[wrong]] = True
    nodes = past.nodes["blkaddr"] - geo.main_blkaddr
    bad[nodes[limit:]] |= then.rank[nodes[limit:]] > 0
    bad[nodes[:limit]] = False
    return bad


def _look_through(past: Past, contents: Contents, view: PastVolume, cp_ver: int, age: int) -> Sureness:
    """Walk the tree of a view to see which part of it is there."""
    sure = Sureness(cp_ver, exact=False)
    sure.overwritten = past.may_be_lost_before(age)
    try:
        for found in walk(view, view.root, sure.lost):
            if found.inode.is_dir:
                sure.directories += 1
                continue
            sure.files += 1
            if found.inode.is_file:
                _look_at(past, contents, view, age, found, sure)
    except F2fsError as error:
        sure.lost.append(Lost(b"/", str(error)))
    return sure


def _look_at(past: Past, contents: Contents, view: PastVolume, age: int, found: Found, sure: Sureness) -> None:
    """Whether the blocks of a file are still what they were."""
    life = past.life_at(found.inode.ino, age)
    try:
        mapped = contents.map(view, found.inode)
        if life is None:
            return
        states = contents.states(mapped.rows, life, past.version_at(life, age))
    except F2fsError:
        sure.gaps.append(found.path)
        return
    addrs = mapped.rows["blkaddr"]
    device: Any = view.device
    if mapped.missing or device.any_bad(addrs[past.geo.in_main(addrs.astype(np.int64))]):
        sure.gaps.append(found.path)
    elif (states == REWRITTEN).any():
        sure.doubtful.append(found.path)


def open_as_of(
    path: str | os.PathLike[str], when: int | str, devices: Sequence[str | os.PathLike[str]] = (), **how: Any
) -> Volume:
    """Open an image as of a checkpoint version or a time; `how` as for `f2tools.open`."""
    volume = f2tools.open(path, devices, **how)
    try:
        return as_of(volume, when)
    except BaseException:
        volume.close()
        raise
