"""Small volumes with a past of a few steps, made with our own engine: what was deleted is known exactly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import f2tools
from f2tools.device import open_device
from f2tools.f2fs.write.volume import Policy, WritableVolume
from f2tools.forensics.index import open_index
from f2tools.forensics.undelete import Found, Undelete
from tests.f2fs.write.volumes import Ticks, fresh

ROOT = 3
HOUR = 3600 * 10**9


class Life:
    """A volume that is being used; `later` lets an hour pass and makes a checkpoint."""

    def __init__(self, image: Path, **policy: Any) -> None:
        self.clock = Ticks()
        self.volume = WritableVolume(open_device(image, write=True), Policy(**policy), self.clock, seed=1)

    def file(self, name: bytes, content: bytes, parent: int = ROOT, mode: int = 0o644) -> int:
        """A new file."""
        ino = self.volume.create(parent, name, mode | 0o100000)
        if content:
            self.volume.write(ino, 0, content)
        return ino

    def later(self) -> None:
        """Time passes."""
        self.volume.sync()
        self.clock.now += HOUR


@contextmanager
def living(directory: Path, options: str = "--size 64M", **policy: Any) -> Iterator[tuple[Life, Path]]:
    """A fresh volume to live on; unmounted at the end."""
    image = fresh(directory, options)
    life = Life(image, **policy)
    with life.volume:
        yield life, image


def undeleted(image: Path, versions: bool = False) -> dict[str, Found]:
    """Path -> what is found, content read."""
    with f2tools.open(image) as volume, open_index(volume) as index:
        run = Undelete(volume, index)
        every = list(run.deleted())
        for found in every:
            run.digest(found)
        every += list(run.older()) if versions else []
        return {found.path.decode("utf-8", "surrogateescape"): found for found in every}
