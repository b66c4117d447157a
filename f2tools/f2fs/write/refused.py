"""What was fsync'ed and can't be brought back: which files, from which node on; tried in memory.

The kernel refuses a volume on which one such node can't be right.  Files are fsync'ed each for itself, so the others
come back without it, and the file itself as it was at the fsync before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from f2tools.device import Device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.wrappers import StaysOpen
from f2tools.f2fs.volume.recovery import Contested, find_fsync_chain
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.recovery import NotApplied
from f2tools.f2fs.write.volume import WritableVolume

EACH_TRY = 512  # opening a volume takes as long as so many nodes
MOST_NODES = 1 << 16  # that are brought back in vain, half a minute; what lies behind the next bad one is not tried


@dataclass
class Refused:
    """The nodes that can't be right, and the `until` of a WritableVolume that opens without them.

    `contested`: what two of the files that come back have, then.
    """

    nodes: list[NotApplied] = field(default_factory=list)
    stops: dict[int, int] = field(default_factory=dict)
    contested: list[Contested] = field(default_factory=list)


def find_refused(device: Device) -> Refused:
    """Bring back what was fsync'ed, in memory, without more and more until it succeeds; never writes to `device`.

    The volume must be sound otherwise.  Errors that do not tell of a node are raised.
    """
    found = Refused()
    tried = 0
    while True:
        trial = Overlay(StaysOpen(device))
        try:
            volume = WritableVolume(trial, until=found.stops, despite={"tables"})
            volume.abandon()
        except NotApplied as error:
            # a new one, as the frames of this one hold the volume
            found.nodes.append(NotApplied(error.node, error.index, error.why))
            found.stops[error.node.ino] = error.index
            if tried > MOST_NODES:
                _give_up_behind(device, error.index, found)
            tried += error.index + EACH_TRY
        else:
            found.contested = volume.recovered.contested if volume.recovered is not None else []
            return found
        finally:
            trial.close()


def _give_up_behind(device: Device, last: int, found: Refused) -> None:
    """Refuse whatever was fsync'ed behind this node."""
    with Volume(StaysOpen(device)) as volume:
        recovery = find_fsync_chain(volume).without(found.stops)
    for file in recovery.files.values():
        behind = [index for index in file.nodes if index > last]
        if behind:
            found.stops[file.ino] = behind[0]
            why = "it comes after many nodes that can't be right"
            found.nodes.append(NotApplied(recovery.chain[behind[0]], behind[0], why))
