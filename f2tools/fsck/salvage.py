"""Salvage: what can be read of a damaged volume is copied out, and the image stays as it is.

The repair is made in memory, all of it, and files are taken from its result by the engine that all extraction uses.  A
repair leaves holes where nothing is left, so what it removed is noted on the way: pointers that led nowhere, names
without an inode, blocks beyond the end of the image.  What then is still missing in the result was lost.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.copyout.extract import extract
from f2tools.copyout.keep import NOTHING, Keep
from f2tools.copyout.making import Report as Copied
from f2tools.copyout.making import byte_ranges
from f2tools.copyout.walk import shown
from f2tools.device import Device
from f2tools.device.base import Wrapper
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import DeviceError, F2fsError
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.recovered import recovered
from f2tools.fsck.check import DEFAULT_MEMORY, Report, check
from f2tools.fsck.checks.dir import Tree
from f2tools.fsck.facts.image import Image
from f2tools.fsck.repair.rounds import Kept, Outcome, Repairer
from f2tools.newfile import create_in, open_folder
from f2tools.text import printable

FILES, REPORT_JSON, REPORT_TEXT = "files", "report.json", "report.txt"
LOST_FOUND = b"lost+found"
SPAN = 1 << 16  # file blocks looked up at a time
SHOWN = 20
_DEFECTS = (F2fsError, OSError, ValueError, IndexError, KeyError, OverflowError)  # what a hostile image may provoke


@dataclass
class Partial:
    """A file of which something is missing: (offset, length) of that, none where the place is not known."""

    path: str
    ino: int | None
    reason: str
    ranges: tuple[tuple[int, int], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"path": self.path, "ino": self.ino, "reason": self.reason, "ranges": [list(r) for r in self.ranges]}


@dataclass
class Salvage:
    """What came of it.  Every file below `files` that is not among `partial` is whole."""

    image: str
    target: str
    copied: Copied
    repaired: bool = False
    notes: list[str] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    partial: list[Partial] = field(default_factory=list)
    doubtful: list[Partial] = field(default_factory=list)
    name_only: list[tuple[str, int]] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether all that the volume knew of is there, whole."""
        return not self.partial and not self.name_only and not self.copied.lost

    def as_dict(self) -> dict[str, Any]:
        """For JSON, under stable names."""
        copied = self.copied
        partly = sum(not item.path.endswith("/") for item in self.partial)
        return {
            "image": self.image,
            "files": os.path.join(self.target, FILES),
            "complete": self.complete,
            "whole": max(0, copied.files - partly),
            "copied": {
                "files": copied.files, "directories": copied.directories, "symlinks": copied.symlinks,
                "hard_links": copied.hard_links, "specials": copied.specials, "bytes": copied.bytes,
            },
            "partial": [item.as_dict() for item in self.partial],
            "doubtful": [item.as_dict() for item in self.doubtful],
            "name_only": [{"path": path, "ino": ino} for path, ino in self.name_only],
            "lost": [item.as_dict() for item in copied.lost],
            "unplaced": self.unplaced,
            "repair": {"complete": self.repaired, "left": self.left, "notes": self.notes},
        }  # fmt: skip


class Losses:
    """What the checks of a repair found to lead nowhere, by inode and by name."""

    def __init__(self) -> None:
        self.ranges: dict[int, dict[tuple[int, int], str]] = {}
        self.names: dict[str, int] = {}
        self.fewer: dict[int, int] = {}  # ino -> i_blocks, where that counts more than there is
        self.first: NDArray[np.int64] | None = None  # inodes that had a name before
        self.tree: Tree | None = None

    def watch(self, report: Report) -> None:
        """Note what one check found."""
        tree = report.tree
        if tree is None:
            return
        if self.first is None:
            self.first = np.sort(tree.scan.inode_nids[tree.reached])
        self._pointers(tree)
        for entry in np.flatnonzero(tree.named & (tree.target < 0)).tolist():
            path = tree.path_of_entry(entry)
            if path is not None:
                self.names.setdefault(path, int(tree.entries["ino"][entry]))
        for finding in report.findings:
            found, expected = finding.found, finding.expected
            if finding.code != "I004" or finding.ino is None:
                continue
            if isinstance(found, int) and isinstance(expected, int) and found > expected:
                self.fewer.setdefault(finding.ino, found)
        self.tree = tree

    def _pointers(self, tree: Tree) -> None:
        scan = tree.scan
        for edges in scan.bad_edges:
            for parent, slot, nid, _, _ in edges.tolist():
                self._add(tree, parent, scan.span_below(parent, slot), f"node {nid} is missing")
        for rows in scan.bad_pointers:
            for node, ofs, addr in rows.tolist():
                self._add(tree, node, (int(scan.fofs[node]) + ofs, 1), f"block address {addr:#x} leads nowhere")

    def _add(self, tree: Tree, node: int, span: tuple[int, int], reason: str) -> None:
        row = int(tree.scan.inode_of[node])
        if row >= 0 and span[1]:
            ino = int(tree.scan.nid[tree.scan.inodes["node"][row]])
            self.ranges.setdefault(ino, {}).setdefault(span, reason)

    @property
    def count(self) -> int:
        """How much was seen to lead nowhere."""
        return len(self.names) + sum(len(spans) for spans in self.ranges.values())


class Honest(Wrapper):
    """An overlay that says what it does not have: beyond the end of the image only what was written can be read."""

    def __init__(self, overlay: Overlay, real_size: int) -> None:
        super().__init__(overlay)
        self._real_size = real_size
        self._written = [(at, at + length) for at, length in overlay.dirty_ranges() if at + length > real_size]

    def pread_into(self, offset: int, buffer: Any) -> None:
        end = offset + memoryview(buffer).nbytes
        if end > self._real_size:
            start = max(offset, self._real_size)
            for low, high in self._written:
                start = high if low <= start < high else start
            if start < end:
                raise DeviceError(f"{self.name}: the image ends at {self._real_size:#x}, before {start:#x}")
        super().pread_into(offset, buffer)

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        return super().extent_source(offset, length) if offset + length <= self._real_size else None


def salvage(
    device: Device,
    image: str,
    target: str,
    *,
    keep: Keep = NOTHING,
    memory_bytes: int = DEFAULT_MEMORY,
    prepare: Callable[[Overlay, int], list[str]] | None = None,
    advance: Callable[[int], None] | None = None,
) -> Salvage:
    """Copy what can be read on `device` into the new or empty folder `target`; `device` is never written to.

    `keep` is that of `extract`.  `prepare` may change the overlay that the repair works on before it begins, and says
    what it did.
    FileExistsError where there is something in the folder; NotF2fs where not even a repair finds a volume; TargetFull.
    """
    folder, _ = open_folder(target, parents=True)
    try:
        if os.listdir(folder):
            raise FileExistsError(errno.ENOTEMPTY, "the folder is not empty; give a new one", target)
        result = _salvage(device, image, target, keep, memory_bytes, prepare, advance)
        _write(folder, REPORT_JSON, json.dumps(result.as_dict(), indent=1, default=str) + "\n")
        _write(folder, REPORT_TEXT, "\n".join(lines_of(result, everything=True)) + "\n")
    finally:
        os.close(folder)
    return result


def _salvage(
    device: Device,
    image: str,
    target: str,
    keep: Keep,
    memory_bytes: int,
    prepare: Callable[[Overlay, int], list[str]] | None,
    advance: Callable[[int], None] | None,
) -> Salvage:
    real_size = device.size_bytes
    losses = Losses()
    repairer = Repairer(device, memory_bytes, watch=losses.watch)
    prepared = prepare(repairer.overlay, memory_bytes) if prepare is not None else []
    outcome, trouble = _repair(repairer)
    volume = _volume(Honest(repairer.overlay, real_size))
    copied = extract(volume, os.path.join(target, FILES), keep=keep, advance=advance)
    result = Salvage(image, target, copied)
    if outcome is not None:
        result.repaired, result.left = outcome.complete, dict(outcome.left)
        losses.tree = outcome.after.tree or losses.tree
    result.notes = [*prepared, *volume.warnings, *repairer.done[:1000], *([trouble] if trouble else [])]
    _judge(result, losses, volume)
    return result


def _repair(repairer: Repairer) -> tuple[Outcome | None, str]:
    """The repair in memory; where even that goes wrong, what it reached counts."""
    try:
        before = check(Image(Kept(repairer.overlay)))
        before.tree = None
        return repairer.run(before), ""
    except F2fsError:
        raise
    except _DEFECTS as error:
        return None, f"the repair ended early: {error}"


def _volume(device: Device) -> Volume:
    """The repaired volume with what was fsync'ed after its checkpoint, or without where that can't be had."""
    with suppress(*_DEFECTS):
        return recovered(Kept(device))
    return Volume(device)


# -- what is whole, and what is not -----------------------------------------------------------------------------------


def _judge(result: Salvage, losses: Losses, volume: Volume) -> None:
    """Compare what was found to lead nowhere with what is there in the end."""
    paths = _Paths(losses.tree)
    for item in result.copied.partial:
        result.partial.append(Partial(shown(item.path), None, item.reason, item.ranges))
    known = {item.path for item in result.partial}
    for ino, spans in sorted(losses.ranges.items()):
        inode = _inode(volume, ino)
        path = paths.of(ino)
        if inode is None or path is None or path in known:
            continue
        gaps = [gap for span in spans for gap in _holes(volume, inode, span)]
        ranges = byte_ranges(gaps, volume.geo.block_size, inode.i_size)
        if ranges:
            known.add(path)
            result.partial.append(Partial(path, ino, next(iter(spans.values())), ranges))
    for path, ino in sorted(losses.names.items()):
        inode = _inode(volume, ino)
        where = paths.of(ino)
        if inode is None or where is None:
            if not _exists(volume, path):
                result.name_only.append((path, ino))
        elif where not in known and not inode.i_ctime and not inode.i_mtime:
            known.add(where)
            reason = "its inode is lost and was made anew: size, mode and owner are guesses"
            result.partial.append(Partial(where, ino, reason))
    for ino, blocks in sorted(losses.fewer.items()):
        inode = _inode(volume, ino)
        path = paths.of(ino)
        if inode is not None and path is not None and path not in known and inode.i_blocks < blocks:
            reason = f"its inode counted {blocks - inode.i_blocks} more blocks than were found"
            result.doubtful.append(Partial(path, ino, reason))
    result.unplaced = sorted(_unplaced(losses, paths))


class _Paths:
    """Paths by inode number, as the last check had them."""

    def __init__(self, tree: Tree | None) -> None:
        self._tree = tree

    def of(self, ino: int) -> str | None:
        if self._tree is None:
            return None
        row = self._tree.scan.inode_row(ino)
        with suppress(*_DEFECTS):
            if row >= 0:
                return self._tree.path(row)
        return None


def _inode(volume: Volume, ino: int) -> Inode | None:
    with suppress(*_DEFECTS):
        return volume.nodes.inode(ino)
    return None


def _exists(volume: Volume, path: str) -> bool:
    with suppress(*_DEFECTS):
        return volume.path(path, follow=False) is not None
    return False


def _holes(volume: Volume, inode: Inode, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """(first file block, count) of what nothing is mapped to within a span of a file."""
    if inode.has_inline_data or inode.has_inline_dentry:
        return
    first, end = span[0], min(sum(span), -(-inode.i_size // volume.geo.block_size))
    for at in range(first, end, SPAN):
        count = min(SPAN, end - at)
        try:
            missing = volume.data.addresses(inode, at, count) == 0
        except _DEFECTS:
            missing = np.ones(count, np.bool_)
        edges = np.flatnonzero(np.diff(np.concatenate(([False], missing, [False])).astype(np.int8)))
        for low, high in edges.reshape(-1, 2).tolist():
            yield at + low, high - low


def _unplaced(losses: Losses, paths: _Paths) -> Iterator[str]:
    """What had no place and was put into lost+found."""
    tree = losses.tree
    if tree is None:
        return
    before = losses.first if losses.first is not None else np.zeros(0, np.int64)
    for row in np.flatnonzero((tree.parent_entry >= 0) & ~np.isin(tree.scan.inode_nids, before)).tolist():
        entry = int(tree.parent_entry[row])
        above = int(tree.entries["dir"][entry])
        upper = int(tree.parent_entry[above])
        if upper < 0 or tree.ino(int(tree.entries["dir"][upper])) != F2FS_ROOT_INO:
            continue
        if tree.name(upper).startswith(LOST_FOUND):
            path = paths.of(tree.ino(row))
            if path is not None:
                yield path


# -- the report -------------------------------------------------------------------------------------------------------


def _write(folder: int, name: str, text: str) -> None:
    with open(create_in(folder, name), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def lines_of(result: Salvage, everything: bool = False) -> Iterator[str]:
    """The report for people; at most SHOWN of a kind unless `everything`."""
    told = result.as_dict()
    copied = result.copied
    yield printable(
        f"{result.image}: {told['whole']:,} files whole, {len(result.partial):,} only partly, "
        f"{len(result.name_only):,} by name only; {copied.directories:,} directories, {copied.symlinks:,} symbolic "
        f"links -> {told['files']}"
    )
    for title, rows in (
        ("only partly", [_partial_line(item) for item in result.partial]),
        ("perhaps only partly", [_partial_line(item) for item in result.doubtful]),
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


def _partial_line(item: Partial) -> str:
    some = ", ".join(f"{offset}+{length}" for offset, length in item.ranges[:8])
    more = f" and {len(item.ranges) - 8} more" if len(item.ranges) > 8 else ""
    return f"{item.path}: {item.reason}" + (f"; missing bytes {some}{more}" if item.ranges else "")


__all__ = ["Losses", "Salvage", "lines_of", "salvage"]
