"""Files in one piece, and on request in an order: batch after batch, each made safe by a checkpoint.

A batch moves what has room at the time, on the volume and on the device; its checkpoint frees the old places, and the
next batch has them too.  Where no run is long enough for what is left, sections are emptied first, by moving whole
fragments of files into holes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.defrag.empty import Emptier
from f2tools.defrag.files import FileMap, map_file
from f2tools.defrag.move import Mover, Task, log_of
from f2tools.defrag.plan import MOST_NODES, Cursor, in_fewer_pieces, in_one_piece, jumps_of, lie_in_order
from f2tools.defrag.room import Room, device_room, free_histogram
from f2tools.f2fs.layout.constants import F2FS_FEATURE_BLKZONED
from f2tools.f2fs.write.volume import WritableVolume

NO_RUN = "no free run is long enough, nor can sections be emptied for one; f2tools clean may win some"
NO_ROOM = "no free sections for the nodes"
NO_ROOM_BELOW = "the storage layer has no room for a second copy of it"
PARTLY = "no free run is long enough for all of it"
PINNED = "pinned"
PLENTY = 5  # a share of one in so many free sections beside the reserve
EMPTYING_ROUNDS = 64  # each looks through the whole volume


@dataclass(frozen=True)
class State:
    """The state of a volume at one time."""

    vblocks: NDArray[np.int32]
    free_sections: int
    free_runs: list[tuple[int, int, int]]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"free_sections": self.free_sections, "free_runs": free_runs_dict(self.free_runs)}


@dataclass(frozen=True)
class Outcome:
    """What was moved, and the result; `before` and `after` are the chosen files, in the order asked for."""

    before: tuple[FileMap, ...]
    after: tuple[FileMap, ...]
    left: tuple[tuple[FileMap, str], ...]  # files that are worse than they could be, and why
    moved_files: int
    data_blocks: int
    node_blocks: int
    emptied_sections: int
    checkpoints: int
    state_before: State
    state_after: State

    @property
    def fragments(self) -> tuple[int, int]:
        """Of all files together, before and after."""
        return sum(file.fragments for file in self.before), sum(file.fragments for file in self.after)

    @property
    def jumps(self) -> tuple[int, int]:
        """How often a reader of all files in order goes elsewhere, before and after."""
        return jumps_of(self.before), jumps_of(self.after)

    def as_dict(self, files: int | None = None) -> dict[str, Any]:
        """For JSON; of the files that changed, so many."""
        changed = [
            {"path": old.shown, "ino": old.ino, "blocks": old.blocks, "fragments": [old.fragments, new.fragments],
             "node_fragments": [len(old.nodes), len(new.nodes)], "runs": [old.runs.tolist(), new.runs.tolist()]}
            for old, new in zip(self.before, self.after, strict=True)
            if old.runs.tolist() != new.runs.tolist() or old.nodes.tolist() != new.nodes.tolist()
        ]  # fmt: skip
        pairs = {"fragments": self.fragments, "jumps": self.jumps}
        return {
            "files": len(self.before),
            "files_moved": self.moved_files,
            "data_blocks_moved": self.data_blocks,
            "node_blocks_moved": self.node_blocks,
            "sections_emptied": self.emptied_sections,
            "checkpoints": self.checkpoints,
            **{name: {"before": pair[0], "after": pair[1]} for name, pair in pairs.items()},
            "volume": {"before": self.state_before.as_dict(), "after": self.state_after.as_dict()},
            "left": [{"path": file.shown, "fragments": file.fragments, "why": why} for file, why in self.left],
            "changed": changed[:files],
        }


def free_runs_dict(bins: Iterable[tuple[int, int, int]]) -> list[dict[str, int]]:
    """Free runs by length, for JSON."""
    return [{"from": low, "runs": runs, "blocks": blocks} for low, runs, blocks in bins]


def state_of(volume: WritableVolume) -> State:
    """The state of the volume now."""
    return State(volume.segments.vblocks.copy(), volume.segments.free_sections, free_histogram(volume))


def nodes_scattered(file: FileMap) -> bool:
    """Whether the direct nodes of a file are in more pieces than the ends of segments explain."""
    count = int(file.nodes[:, 1].sum())
    return len(file.nodes) > 1 + -(-count // 512)


def to_write(file: FileMap) -> int:
    """Blocks that moving a whole file writes, each node with a block of the NAT."""
    return file.blocks + 2 * (int(file.nodes[:, 1].sum()) + 1)


class Defrag:
    """One run over one volume, which is open for writing; `advance` is told of moved blocks."""

    def __init__(
        self, volume: WritableVolume, pinned: bool = False, advance: Callable[[int], None] | None = None
    ) -> None:
        self._volume = volume
        self._pinned = pinned
        self._mover = Mover(volume, advance)
        self._section_blocks = volume.geo.segs_per_sec * volume.geo.blocks_per_seg
        self._moved: set[int] = set()
        self._emptied = 0
        self._rounds = 0

    # -- all in one piece ---------------------------------------------------------------------------------------------

    def contiguous(self, files: Sequence[FileMap]) -> Outcome:
        """Every file into as few fragments as there is room for."""
        self._mover.settle()
        before = state_of(self._volume)
        now = {file.ino: file for file in files}
        queue = sorted((f for f in files if self._wanted(f)), key=lambda f: (f.blocks, f.ino))
        while queue:
            moved = self._batch(queue, now) or self._empty_for(queue, now)
            if not moved:
                break
            queue = [now[file.ino] for file in queue if self._wanted(now[file.ino])]
        self._win_back(before.free_sections, now)
        left = [(now[file.ino], self._why(now[file.ino])) for file in files if now[file.ino].fragments > file.ideal]
        return self._outcome(files, now, left, before)

    def _wanted(self, file: FileMap) -> bool:
        if self._stays(file):
            return False
        return file.fragments > file.ideal or (file.ino not in self._moved and nodes_scattered(file))

    def _stays(self, file: FileMap) -> bool:
        return file.why_fixed is not None and not (self._pinned and file.why_fixed == PINNED)

    def _why(self, file: FileMap) -> str:
        if self._stays(file):
            return str(file.why_fixed)
        if to_write(file) > device_room(self._volume):
            return NO_ROOM_BELOW
        return PARTLY if file.ino in self._moved else NO_RUN

    def _batch(self, queue: Sequence[FileMap], now: dict[int, FileMap]) -> bool:
        """Move what has room; whether anything had."""
        room = self._room()
        tasks: list[Task] = []
        nodes = 0
        for file in queue:
            if nodes >= MOST_NODES or (tasks and to_write(file) > room.device_blocks):
                break
            task = self._task(file, room)
            if task is not None:
                tasks.append(task)
                nodes += task.nodes
        return self._do(tasks, now)

    def _task(self, file: FileMap, room: Room) -> Task | None:
        inode = self._volume.live(file.ino)
        kind = log_of(self._volume, inode)
        nodes = int(file.nodes[:, 1].sum()) + 1
        node_log = self._volume.policy.node_log(True, inode.is_dir)
        if file.fragments <= file.ideal:
            threaded = self._volume.segments.cursegs[node_log].holes is not None
            return None if threaded or not room.pledge(node_log, nodes) else Task(file.ino, kind, (), nodes)
        if not room.pledge(node_log, nodes):
            return None
        moves = in_one_piece(file, kind, room) or in_fewer_pieces(file, kind, room)
        if not moves:
            room.pledge(node_log, -nodes)
            return None
        return Task(file.ino, kind, moves, nodes)

    def _room(self, avoid: frozenset[int] = frozenset()) -> Room:
        return Room(self._volume, avoid)

    def _do(self, tasks: Sequence[Task], now: dict[int, FileMap]) -> bool:
        if not tasks:
            return False
        self._mover.move(tasks)
        self._mover.checkpoint()
        for task in tasks:
            old = now.get(task.ino)
            if old is not None:
                self._moved.add(task.ino)
                now[task.ino] = map_file(self._volume, self._volume.live(task.ino), old.path)
        return True

    def _empty_for(self, queue: Sequence[FileMap], now: dict[int, FileMap]) -> bool:
        """Empty sections for the smallest file that has no room; whether that was done."""
        if not self._may_empty():
            return False
        emptier = self._emptier()
        for file in queue:
            found = emptier.plan(file)
            if found is not None:
                self._empty(found, now)
                return self._batch([now[file.ino]], now)
        return False

    def _may_empty(self) -> bool:
        """In zones there is no hole to move into."""
        return not self._volume.geo.feature & F2FS_FEATURE_BLKZONED and self._rounds < EMPTYING_ROUNDS

    def _emptier(self) -> Emptier:
        self._rounds += 1
        return Emptier(self._volume, self._stays)

    def _empty(self, found: tuple[list[Task], list[int]], now: dict[int, FileMap]) -> None:
        """Move what lies in some sections; it makes room and gains nothing."""
        tasks, sections = found
        moved = set(self._moved)
        self._do(tasks, now)
        self._moved = moved
        self._emptied += len(sections)

    def _win_back(self, free_sections: int, now: dict[int, FileMap]) -> None:
        """Where free sections are few, empty the emptiest until there are as many as at first, if that works."""
        segments = self._volume.segments
        few = segments.reserved_sections + segments.sections // PLENTY
        free_sections, last = min(free_sections, few), -1
        while last < segments.free_sections < free_sections and self._may_empty():
            last = segments.free_sections
            found = self._emptier().cheapest()
            if found is not None:
                self._empty(found, now)

    # -- in order -----------------------------------------------------------------------------------------------------

    def ordered(self, files: Sequence[FileMap]) -> Outcome:
        """The files one behind the other, as they are given; those of each log together."""
        self._mover.settle()
        before = state_of(self._volume)
        now = {file.ino: file for file in files}
        logs: dict[int, list[FileMap]] = {}
        for file in files:
            if file.blocks and not self._stays(file):
                logs.setdefault(log_of(self._volume, self._volume.live(file.ino)), []).append(file)
        left: list[tuple[FileMap, str]] = [(file, str(file.why_fixed)) for file in files if self._stays(file)]
        for kind, some in sorted(logs.items()):
            if not lie_in_order(some, self._section_blocks):
                left += ((file, self._why(file)) for file in self._lay_down(kind, some, now))
        return self._outcome(files, now, left, before)

    def _lay_down(self, kind: int, files: Sequence[FileMap], now: dict[int, FileMap]) -> list[FileMap]:
        """Lay files of one log down in order; those for which there is no room."""
        queue, cursor = list(files), Cursor(kind)
        while queue:
            room, tasks, later, nodes = self._room(), list[Task](), list[FileMap](), 0
            total = sum(file.blocks for file in queue)
            for index, file in enumerate(queue):
                if nodes >= MOST_NODES or (tasks and to_write(file) > room.device_blocks):
                    later += queue[index:]
                    break
                inode = self._volume.live(file.ino)
                wanted = int(file.nodes[:, 1].sum()) + 1
                log = self._volume.policy.node_log(True, inode.is_dir)
                if not room.pledge(log, wanted):
                    later += queue[index:]
                    break
                moves = cursor.place(file, total, room)
                total -= file.blocks
                if moves:
                    tasks.append(Task(file.ino, kind, moves, wanted))
                    nodes += wanted
                else:
                    room.pledge(log, -wanted)
                    later.append(file)
            if not self._do(tasks, now):
                break
            queue = later
        return queue

    # -- the end ------------------------------------------------------------------------------------------------------

    def _outcome(
        self, files: Sequence[FileMap], now: dict[int, FileMap], left: list[tuple[FileMap, str]], before: State
    ) -> Outcome:
        if self._mover.checkpoints:
            self._mover.checkpoint(unmount=True)
        after = tuple(now[file.ino] for file in files)
        return Outcome(
            tuple(files), after, tuple(left), len(self._moved), self._mover.data_blocks, self._mover.node_blocks,
            self._emptied, self._mover.checkpoints, before, state_of(self._volume),
        )  # fmt: skip
