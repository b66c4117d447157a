"""The real kernel in QEMU as the tests want it: with their programs, and with f2tools itself where they ask for it.

In a script, `manifest MOUNTPOINT $OUT/NAME.json` writes down a tree and `mktree KIND DIRECTORY SEED` makes one;
either does many at once, in much less time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from f2tools.guest.boot import MAX_IMAGES, GuestFailed, Result
from f2tools.guest.boot import Guest as AnyGuest
from f2tools.guest.build import NoGuest
from tests.kernel.build_guest import build
from tests.kernel.build_tools import PRELUDE, build_tools, pack


class Guest(AnyGuest):
    """As that of the package."""

    @classmethod
    def ready(cls, work: Path) -> Guest:
        """Build what is missing; NoGuest says why it can't be had.  Shares and results lie under `work`."""
        return cls(build(), work)

    def run(
        self, script: str, images: Sequence[Path] = (), *, with_f2tools: bool = False, cpus: int = 1, **more: Any
    ) -> Result:
        """As that of the package; `with_f2tools`: with the commands `f2tools` and `python`, which has pytest and
        imports f2tools and tests.  One processor takes a fifth
        less of the host's time than two."""
        doing = _WithF2tools(self._built, self._work) if with_f2tools else self
        return AnyGuest.run(doing, script, images, cpus=cpus, **more)


class _WithF2tools(AnyGuest):
    def _ahead(self, share: Path) -> tuple[str, list[tuple[str, Path]]]:
        pack(share / "project.tar")
        return PRELUDE, [("guest-tools", build_tools())]


__all__ = ["MAX_IMAGES", "Guest", "GuestFailed", "NoGuest", "Result"]
