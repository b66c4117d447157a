"""Devices over another one that several tools need and that change nothing below."""

from __future__ import annotations

from f2tools.device.base import Wrapper


class NotClosed(Wrapper):
    """A device that stays open when what stands on it is closed."""

    def close(self) -> None:
        return


class StaysOpen(NotClosed):
    """A device that stays open when its user closes it.

    Everything above it happens in memory, where zones can be written in any order; `commit` looks before it writes.
    """

    @property
    def has_write_pointers(self) -> bool:
        return False
