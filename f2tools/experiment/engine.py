"""The write engine on a simulated device: a fresh volume, its files for the loads, and its counters."""

from __future__ import annotations

import os
from stat import S_IFREG
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from f2tools.experiment.disk import BLOCK, Disk
from f2tools.experiment.files import Files
from f2tools.f2fs.write.volume import Policy, WritableVolume
from f2tools.mkfs.format import build, write
from f2tools.mkfs.plan import make_plan
from f2tools.mkfs.request import DeviceSpec, Options

ROOT = 3
BIRTH = 1_700_000_000  # seconds since 1970: when every volume of an experiment was made
ZEROES = 4 << 20  # bytes that are written at once


class Clock:
    """A clock that advances by a microsecond at each reading, and by more when told to."""

    def __init__(self) -> None:
        self.now = BIRTH * 1_000_000_000

    def __call__(self) -> int:
        self.now += 1000
        return self.now


def fresh(size_bytes: int, policy: Policy, seed: int, overprovision: float = 0.0) -> tuple[WritableVolume, Disk]:
    """An empty volume of this size on a device of its own, always the same one; 0 percent leaves that to mkfs."""
    disk = Disk(size_bytes)
    options = Options(
        uuid=seed.to_bytes(16, "big"), timestamp=BIRTH, overprovision=overprovision, discard=False,
        checkpoint_ver=1,
    )  # fmt: skip
    plan = make_plan(options, [DeviceSpec(disk.name, disk.size_bytes)])
    write(build(plan), [disk])
    return WritableVolume(disk, policy, Clock(), seed=seed), disk


class Volume(Protocol):
    """What the engines of all our file systems have in common."""

    def lookup(self, parent: int, name: bytes) -> int: ...
    def create(self, parent: int, name: bytes, mode: int) -> int: ...
    def mkdir(self, parent: int, name: bytes, mode: int) -> int: ...
    def unlink(self, parent: int, name: bytes) -> None: ...
    def write(self, ino: int, offset: int, data: memoryview) -> int: ...
    def read_at(self, ino: int, offset: int, length: int) -> bytes: ...
    def fsync(self, ino: int) -> None: ...
    def sync(self) -> None: ...
    def statfs(self) -> dict[str, int]: ...


class VolumeFiles(Files):
    """The files of a volume on our engine.  Their content is zeros."""

    def __init__(self, volume: Volume, root: int) -> None:
        super().__init__()
        self._volume = volume
        self._directories = {"": root}
        self._zeroes = memoryview(bytes(ZEROES))

    def _place(self, path: str) -> tuple[int, bytes]:
        directory, name = os.path.split(path)
        return self._directories[directory], name.encode()

    def mkdir(self, path: str) -> None:
        self.note("mkdir")
        self._directories[path] = self._volume.mkdir(*self._place(path), 0o755)

    def create(self, path: str) -> int:
        self.note("create")
        return self._volume.create(*self._place(path), S_IFREG | 0o644)

    def open(self, path: str) -> int:
        return self._volume.lookup(*self._place(path))

    def close(self, file: int) -> None:
        pass

    def write(self, file: int, offset: int, size: int) -> None:
        self.note("write", size)
        end = offset + size
        while offset < end:
            offset += self._volume.write(file, offset, self._zeroes[: end - offset])

    def read(self, file: int, offset: int, size: int) -> None:
        self.note("read", size)
        self._volume.read_at(file, offset, size)

    def fsync(self, file: int) -> None:
        self.note("fsync")
        self._volume.fsync(file)

    def fsync_directory(self, path: str) -> None:
        self.fsync(self._directories[path])

    def unlink(self, path: str) -> None:
        self.note("unlink")
        self._volume.unlink(*self._place(path))

    def sync(self) -> None:
        self._volume.sync()

    def free(self) -> int:
        told = self._volume.statfs()
        return told["f_bavail"] * told["f_frsize"]


class EngineFiles(VolumeFiles):
    """The files of a volume of F2FS.  Reads go to the device: only what is dirty is cached."""

    def __init__(self, volume: WritableVolume, checkpoint_each: bool = False) -> None:
        """`checkpoint_each`: an fsync is a checkpoint, and never left to roll-forward."""
        super().__init__(volume, ROOT)
        self.volume = volume
        self._checkpoint_each = checkpoint_each
        self._block: NDArray[np.uint8] = np.zeros(volume.geo.block_size, np.uint8)

    def overwrite(self, file: int, blocks: list[int]) -> None:
        self.calls["write"] += len(blocks)
        self.calls["write_bytes"] += len(blocks) * BLOCK
        with self.volume.operation(len(blocks)) as op:
            self.volume.midway = True
            self.volume.files.overwrite(op.live(file), np.array(blocks, np.int64), self._block)
            self.volume.stamp(op.live(file), modified=True)

    def fsync(self, file: int) -> None:
        if not self._checkpoint_each:
            super().fsync(file)
            return
        self.note("fsync")
        self.volume.sync()

    def size(self, file: int) -> int:
        return self.volume.live(file).i_size
