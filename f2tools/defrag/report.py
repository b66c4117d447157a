"""How fragmented files and free space are, without changing anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.defrag.defrag import free_runs_dict
from f2tools.defrag.files import FileMap, chosen_files
from f2tools.defrag.picture import file_lines, heat_lines
from f2tools.defrag.room import free_histogram
from f2tools.f2fs.volume.volume import Volume
from f2tools.options import human_size
from f2tools.text import bar, printable_name

BAR = 24
LISTED = 20  # files in the text
DRAWN = 3


@dataclass(frozen=True)
class FragmentReport:
    """Files, the worst first, and the free runs of a volume."""

    files: tuple[FileMap, ...]
    free_runs: list[tuple[int, int, int]]
    vblocks: NDArray[np.int32]
    blocks_per_seg: int
    block_size: int
    problems: tuple[tuple[bytes, str], ...]

    @property
    def fragmented(self) -> list[FileMap]:
        """Files in more fragments than need be."""
        return [file for file in self.files if file.fragments > file.ideal]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        with_data = [file for file in self.files if file.blocks]
        return {
            "files": len(self.files),
            "files_with_blocks": len(with_data),
            "files_fragmented": len(self.fragmented),
            "blocks": sum(file.blocks for file in with_data),
            "fragments": sum(file.fragments for file in with_data),
            "ideal": sum(file.ideal for file in with_data),
            "free_runs": free_runs_dict(self.free_runs),
            "problems": [{"path": path, "message": text} for path, text in self.problems],
            "list": [file.as_dict() for file in with_data],
        }

    def lines(self, listed: int = LISTED) -> Iterator[str]:
        """For people."""
        worst = self.fragmented
        if worst:
            yield f"{'fragments':>9} {'ideal':>5} {'score':>6} {'size':>10}  file"
        for file in worst[:listed]:
            note = f"  ({file.why_fixed})" if file.why_fixed else ""
            size = human_size(file.blocks * self.block_size)
            name = printable_name(file.shown)
            yield f"{file.fragments:>9} {file.ideal:>5} {file.score:>6.1f} {size:>10}  {name}{note}"
        if len(worst) > listed:
            yield f"... and {len(worst) - listed} more files"
        if worst:
            yield ""
            yield from file_lines((file, None) for file in worst[:DRAWN])
            yield ""
        yield from free_lines(self.free_runs, self.block_size)
        yield ""
        yield "valid blocks in segments:"
        yield from heat_lines(self.vblocks, self.blocks_per_seg)
        yield ""
        with_data = sum(1 for file in self.files if file.blocks)
        yield (
            f"{len(worst)} of {with_data} files with blocks are in more fragments than need be; "
            f"{sum(file.fragments for file in self.files)} fragments in all"
        )
        for path, text in self.problems:
            yield f"not read: {printable_name(path.decode('utf-8', 'surrogateescape'))}: {text}"


def free_lines(bins: Sequence[tuple[int, int, int]], block_size: int) -> Iterator[str]:
    """Free runs by length, as bars of the room in them."""
    yield f"{'free runs of':>15}  {'runs':>7} {'room':>10}"
    most = max((blocks for _, _, blocks in bins), default=1) or 1
    for low, runs, blocks in bins:
        if runs:
            room = f"{human_size(blocks * block_size):>10}  {bar(blocks, most, BAR)}"
            yield f"{low:>7} - {2 * low - 1:>5}  {runs:>7} {room}"


def report(volume: Volume, paths: Sequence[str | bytes] = ("/",)) -> FragmentReport:
    """How the files at and below some paths lie, and what is free; OSError where a path leads nowhere."""
    problems: list[tuple[bytes, str]] = []
    files = chosen_files(volume, paths, problems)
    files.sort(key=lambda file: (-(file.fragments - file.ideal), file.path))
    return FragmentReport(
        tuple(files), free_histogram(volume), volume.sit.vblocks, volume.geo.blocks_per_seg, volume.geo.block_size,
        tuple(problems),
    )  # fmt: skip
