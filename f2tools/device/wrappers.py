"""Devices over another one that several tools need and that change nothing below."""

from __future__ import annotations

from f2tools.device.base import Wrapper


class NotClosed(Wrapper):
    """A device that stays open when what stands on it is closed."""

    def close(self) -> None:
        return
