"""One load on DFS, over the storage layer, on a simulated device: what reaches the device, the layer's own included."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from f2tools.dfs.layout import BLOCK, ROOT_INO
from f2tools.dfs.mkfs import format_layer, geometry_for
from f2tools.dfs.write import WritableVolume
from f2tools.experiment.disk import Disk
from f2tools.experiment.engine import BIRTH, Clock, VolumeFiles
from f2tools.experiment.files import Watch
from f2tools.experiment.loads import LOADS
from f2tools.experiment.measure import traced
from f2tools.experiment.model import Advance, Numbers, Work
from f2tools.flash.vsl import WHOLE_SPACE, create_on_device, shape_for


class DfsFiles(VolumeFiles):
    """The files of a volume of DFS."""

    def __init__(self, volume: WritableVolume) -> None:
        super().__init__(volume, ROOT_INO)
        self.volume = volume

    def size(self, file: int) -> int:
        return self.volume.inode(file).size


def fresh_dfs(size_bytes: int, seed: int) -> tuple[WritableVolume, Disk]:
    """An empty volume that holds so much, on a device with room for the layer besides."""
    shape = shape_for(size_bytes)
    disk = Disk(shape.image_bytes)
    layer = create_on_device(disk, size_bytes, shape, space_blocks=WHOLE_SPACE)
    uuid = seed.to_bytes(16, "big")
    format_layer(layer, geometry_for(size_bytes // BLOCK), uuid=uuid, now=BIRTH * 1_000_000_000)
    return WritableVolume(layer, clock=Clock()), disk


class _Rounds(Watch):
    """The counters of the device at the end of each round."""

    def __init__(self, disk: Disk, advance: Advance) -> None:
        self._disk, self._advance = disk, advance
        self.kept = [disk.log.settle().as_dict()]

    def advance(self, share: float) -> None:
        self._advance(share)

    def round(self) -> None:
        self.kept.append(self._disk.log.settle().as_dict())


def on_dfs(work: Work, load: str, params: Numbers, size: int) -> Numbers:
    """Prepare and run a load on a fresh volume that holds so many bytes."""
    volume, disk = fresh_dfs(size, work.setting.seed)
    files, doing = DfsFiles(volume), LOADS[load](params, work.setting.seed)
    with ExitStack() as stack:
        kept = work.directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="f2tools-experiment-")))
        doing.prepare(files)
        volume.sync()
        disk.log.begin(kept)
        files.calls.clear()
        watch = _Rounds(disk, work.advance)
        doing.run(files, watch)
        volume.close()
        return {
            "calls": dict(files.calls), "size_bytes": size,
            "run": between(watch.kept[0], disk.log.settle().as_dict()),
            "rounds": [between(a, b) for a, b in pairwise(watch.kept)], "trace": traced(str(kept)),
        }  # fmt: skip


def between(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What was counted from one moment to another."""
    return {name: value - before[name] for name, value in after.items()}
