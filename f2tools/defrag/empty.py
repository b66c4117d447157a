"""Emptying sections, so that a file finds a free run: what lies in them goes into holes elsewhere.

Only whole fragments are moved, each into one hole, so the files that make room don't get worse.  A section in which
anything lies that may not move, or that no file is known to own, is left alone, as are those of nodes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from f2tools.defrag.files import FileMap, Runs, chosen_files, map_file
from f2tools.defrag.move import Move, Task, log_of
from f2tools.defrag.plan import MOST_NODES
from f2tools.defrag.room import Room
from f2tools.f2fs.layout.constants import NR_CURSEG_DATA_TYPE
from f2tools.f2fs.volume.quota import quota_inos
from f2tools.f2fs.write.volume import WritableVolume

WINDOWS_TRIED = 16
NEVER = 1 << 40  # blocks; more than any section has


class Emptier:
    """Knows all fragments of a volume, as it is right after a checkpoint."""

    def __init__(self, volume: WritableVolume, stays: Callable[[FileMap], bool]) -> None:
        self._volume = volume
        geo = volume.geo
        self._per = geo.segs_per_sec * geo.blocks_per_seg
        files = chosen_files(volume)
        files += [map_file(volume, volume.live(ino), b"") for ino in quota_inos(volume.sb).values()]
        self._files = [file for file in files if file.fragments]
        sizes = [file.fragments for file in self._files]
        self._owner = np.repeat(np.arange(len(sizes)), sizes)
        self._number = np.concatenate([np.arange(size) for size in sizes]) if sizes else np.zeros(0, np.int64)
        runs: Runs = np.concatenate([file.runs for file in self._files]) if sizes else np.zeros((0, 2), np.int64)
        order = np.argsort(runs[:, 0])
        self._runs, self._owner, self._number = runs[order], self._owner[order], self._number[order]
        fixed = np.array([stays(file) for file in self._files], np.bool_)
        self._valid = self._valid_in_sections(fixed)

    def _valid_in_sections(self, fixed: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Valid blocks of each section, NEVER where it can't be emptied."""
        segments, geo = self._volume.segments, self._volume.geo
        count, per = segments.sections, geo.segs_per_sec
        vblocks = segments.vblocks[: count * per].reshape(count, per)
        nodes = (segments.types[: count * per].reshape(count, per) >= NR_CURSEG_DATA_TYPE) & (vblocks > 0)
        valid = vblocks.sum(axis=1, dtype=np.int64)
        known = np.zeros(count, np.int64)
        stays: NDArray[np.bool_] = np.array(nodes.any(axis=1))
        first = (self._runs[:, 0] - geo.main_blkaddr) // self._per
        last = (self._runs.sum(axis=1) - 1 - geo.main_blkaddr) // self._per
        for (start, length), owner, low, high in zip(
            self._runs.tolist(), self._owner.tolist(), first.tolist(), last.tolist(), strict=True
        ):
            for section in range(low, high + 1):
                begin = geo.main_blkaddr + section * self._per
                known[section] += min(start + length, begin + self._per) - max(start, begin)
                stays[section] |= fixed[owner]
        open_sections = [curseg.segno // per for curseg in segments.cursegs if curseg.segno // per < count]
        stays[open_sections] = True
        return np.where(stays | (known != valid), NEVER, valid)

    def plan(self, file: FileMap) -> tuple[list[Task], list[int]] | None:
        """How to win a run for a file, or for a part of it, and which sections that empties; None if there is no way.

        The longest run that can be won of those for the whole file, half of it, and so on down to one section.
        """
        wanted = min(-(-file.blocks // self._per), self._valid.size)
        mine = self._of_file(file)
        while wanted:
            found = self._window(wanted, mine)
            if found is not None or wanted == 1:
                return found
            wanted //= 2
        return None

    def cheapest(self) -> tuple[list[Task], list[int]] | None:
        """How to empty the section that costs least; None if none can be emptied."""
        return self._window(1, np.zeros(0, np.int64)) if self._valid.size else None

    def _window(self, wanted: int, mine: NDArray[np.int64]) -> tuple[list[Task], list[int]] | None:
        """The given number of neighbouring sections that can be emptied at the least cost."""
        costs = sliding_window_view(self._valid, wanted).sum(axis=1)
        for at in np.argsort(costs, kind="stable")[:WINDOWS_TRIED].tolist():
            if costs[at] >= min(NEVER, wanted * self._per):
                return None
            sections = list(range(at, at + wanted))
            if costs[at] and not np.isin(sections, mine).all():
                tasks = self._emptied(sections)
                if tasks is not None:
                    return tasks, [section for section in sections if self._valid[section]]
        return None

    def _of_file(self, file: FileMap) -> NDArray[np.int64]:
        """Sections in which a file lies."""
        return np.unique((file.runs[:, 0] - self._volume.geo.main_blkaddr) // self._per)

    def _emptied(self, sections: list[int]) -> list[Task] | None:
        """Each fragment that touches some neighbouring sections into a hole; None where one has no hole."""
        geo = self._volume.geo
        low = geo.main_blkaddr + sections[0] * self._per
        high = low + len(sections) * self._per
        room = Room(self._volume, frozenset(sections), keep=self._volume.segments.reserved_sections)
        room.whole.count[:] = 0  # holes only: taking a free section wins none
        begin = int(np.searchsorted(self._runs[:, 0] + self._runs[:, 1], low, side="right"))
        moves: dict[int, list[Move]] = {}
        while begin < len(self._runs) and self._runs[begin, 0] < high:
            count, owner, number = int(self._runs[begin, 1]), int(self._owner[begin]), int(self._number[begin])
            file = self._files[owner]
            kind = log_of(self._volume, self._volume.live(file.ino))
            place = room.fits(kind, count)
            if place is None or count > room.device_blocks:
                return None
            room.take(kind, place, count)
            moves.setdefault(owner, []).append(Move(int(file.runs[:number, 1].sum()), count, place))
            begin += 1
        tasks: list[Task] = []
        for owner, some in moves.items():
            file = self._files[owner]
            inode = self._volume.live(file.ino)
            nodes = int(file.nodes[:, 1].sum()) + 1
            if not room.pledge(self._volume.policy.node_log(True, inode.is_dir), nodes):
                return None
            tasks.append(Task(file.ino, log_of(self._volume, inode), tuple(some), nodes))
        return tasks if tasks and sum(task.nodes for task in tasks) <= MOST_NODES else None
