"""Where a storage layer says in which state it is: the end of its log; for undo logs."""

from __future__ import annotations

from f2tools.device.base import Device
from f2tools.device.wrappers import NotClosed
from f2tools.flash.medium import open_file
from f2tools.flash.replay import end_of_log


def places(device: Device) -> list[list[tuple[int, int]]]:
    """(offset, length) in groups: the last page of the log that counts, which is the newest; Corrupt where there is no
    log."""
    medium = open_file(NotClosed(device))
    block, end = end_of_log(medium)
    return [[medium.place(block, end - 1)]]
