"""What a power cut left of a volume, and putting it in order, as the next opening for writing would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from f2tools.device.open import open_for_change
from f2tools.dffs.volume import open_volume
from f2tools.dffs.write import open_for_writing


@dataclass(frozen=True)
class DffsRecovery:
    """What was written after the last checkpoint, and whether there is anything to do."""

    needed: bool
    checkpoint: int
    committed_pages: int
    given_up_pages: int
    ids_written: int
    blocks_entered: list[int]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


def look(path: str) -> DffsRecovery:
    """What a power cut left; nothing is written."""
    with open_volume(path) as volume:
        rolled = volume.rolled
        return DffsRecovery(
            not volume.clean, int(volume.state.head.number), rolled.committed, rolled.pages - rolled.committed,
            len(rolled.ids), rolled.blocks,
        )  # fmt: skip


def put_in_order(path: str, undo: str | None = None, *, dry_run: bool = False) -> None:
    """Let what was committed be in a checkpoint; with `undo`, what is overwritten is kept in that new file; with
    `dry_run` all of it is in memory.  Corrupt where the volume is damaged."""
    device = open_for_change(path, dry_run=dry_run, undo=undo, whole=True)
    try:
        volume = open_for_writing(device)
    except BaseException:
        device.close()
        raise
    volume.close()
