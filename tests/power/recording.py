"""A mixed workload, recorded write by write, and the image at every moment a power cut may leave."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from f2tools.device import Device, open_device
from f2tools.device.base import Wrapper
from f2tools.device.buffers import Data, byte_view
from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.record import DISCARD, WRITE, Recorder, replay_event
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import Policy, WritableVolume
from f2tools.mount.background import Upkeep
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.model import BLOCK
from tests.f2fs.write.promises import Step, assert_promises_kept
from tests.f2fs.write.volumes import SECTOR, Above, Ticks, Twin, fresh, writable
from tests.f2fs.write.workload import Workload, noise
from tests.images import copy_sparse


class Small(Wrapper):
    """A device that can be full before its end."""

    def __init__(self, base: Device, holds: int) -> None:
        super().__init__(base)
        self._holds = holds
        self._written: set[int] = set()  # blocks

    @property
    def room_bytes(self) -> int:
        return self._holds - len(self._written) * BLOCK

    def pwrite(self, offset: int, data: Data) -> None:
        self._written.update(range(offset // BLOCK, -(-(offset + len(byte_view(data))) // BLOCK)))
        assert self.room_bytes >= 0
        self.base.pwrite(offset, data)

    def discard(self, offset: int, length: int) -> None:
        self._written.difference_update(range(-(-offset // BLOCK), (offset + length) // BLOCK))
        self.base.discard(offset, length)


@dataclass
class Recording:
    """The image before, what was done to it, and what was promised when."""

    image: Path
    recorder: Recorder
    policy: dict[str, Any]
    main_offset: int
    steps: list[Step] = field(default_factory=list)

    def at(self, count: int, path: Path) -> Path:
        """An image file as a power cut after that many events leaves it, nothing being lost before."""
        copy_sparse(self.image, path)
        with open_device(path, write=True) as device:
            self.recorder.replay(count, device)
        return path

    def must_survive(self, device: Device, count: int, context: str) -> None:
        """What is on the device is consistent, and recovered has what was promised by event `count`."""
        with Volume(Above(device)) as volume:
            assert_consistent(volume, f"{context}, before recovery")
            version = int(volume.cp.checkpoint_ver)
        top = Above(device)
        volume = WritableVolume(top, Policy(**self.policy), Ticks(), seed=1)
        found = assert_promises_kept(volume, self.steps, version, count, context)
        volume.sync()
        with Volume(Above(top)) as read:
            assert_consistent(read, f"{context}, after recovery")
            assert_promises_kept(read, [Step("sync", found, 0, version)], version, 0, f"{context}, on the disk")

    def torn(self, count: int, onto: Device, chance: random.Random) -> str:
        """Do the first `count` events, of those that no flush came after some not, some in part; says what was lost.

        A write tears between sectors, in the main area between blocks: nodes have no checksum, and the format needs
        disks that write a block whole.
        """
        volatile = self.recorder.volatile(count)
        lost = {i for i in volatile if chance.random() < 0.5}
        partly = {i for i in lost if self.recorder.events[i].kind == WRITE and chance.random() < 0.5}
        first = volatile[0] if volatile else count
        self.recorder.replay(first, onto)
        order = [i for i in volatile if i not in lost or i in partly]
        for index in sorted(order):
            event = self.recorder.events[index]
            if index not in partly:
                replay_event(event, onto)
                continue
            unit = BLOCK if event.offset >= self.main_offset else SECTOR
            for at in range(0, event.length, unit):  # each arrives, or doesn't
                if chance.random() < 0.5:
                    onto.pwrite(event.offset + at, event.data[at : at + unit])
        return f"without {sorted(lost)}, torn {sorted(partly)}"


def record(
    directory: Path,
    options: str,
    work: Callable[[Workload], None],
    before: Callable[[Workload], None] | None = None,
    room: int | None = None,
    **policy: Any,
) -> Recording:
    """Run a workload on a fresh volume, or on what `before` left, and write down all that happens.

    `room`: so many bytes can be written to the device until some are discarded.
    """
    image = fresh(directory, options)
    if before is not None:
        twin = Twin(writable(image, **policy))
        before(Workload(twin, 0))
        twin.volume.close()
    below = Overlay(open_device(image))
    recorder = Recorder(below if room is None else Small(below, room))
    volume = WritableVolume(recorder, Policy(**policy), Ticks(), seed=1)
    twin = Twin(volume)
    recording = Recording(image, recorder, policy, volume.geo.main_blkaddr * BLOCK)

    def done(kind: str, fsynced: int | None) -> None:
        version = int(volume.cp.checkpoint_ver)
        recording.steps.append(Step(kind, twin.model.copy(), len(recorder.events), version, fsynced))

    done("mount", None)
    work(Workload(twin, 1, done))
    done("sync", None)
    return recording


def crowded(work: Workload) -> None:
    """A volume with hardly any room left, and that in holes."""
    _overwrite(work, work.fill(96), 2000, 2)


def overwriting(work: Workload) -> None:
    """Overwrites of files that fill the volume, so that it threads, cleans and makes checkpoints by itself."""
    top = work.twin.volume.lookup(work.twin.volume.lookup(F2FS_ROOT_INO, b"tree0"), b"fill")
    files = sorted(work.twin.model.nodes[top].children.values())
    for n in range(12):
        _overwrite(work, files, 70, 4)
        work.fsync(files[n])
        if n % 5 == 4:
            work.sync()


def _overwrite(work: Workload, files: list[int], times: int, longest: int) -> None:
    for n in range(times):
        ino = files[work.random.randrange(len(files))]
        last = work.twin.model.nodes[ino].size // BLOCK - longest
        block = work.random.randrange(max(1, last))
        work.do("write", ino, block * BLOCK, noise(n, work.random.randrange(1, longest + 1) * BLOCK))


def journals(work: Workload) -> None:
    """A file that is changed under a journal, as SQLite does it: a new one each time, under one name."""
    home = work.make(work.top, b"home")
    database = work.file(home, b"database", bytes(4 * BLOCK))
    work.sync()
    for n in range(5):
        journal = work.file(home, b"journal", b"what was there before %d" % n * 300)
        work.fsync(journal, datasync=True)
        work.fsync(home, datasync=True)
        work.do("write", journal, 0, b"complete")
        work.fsync(journal, datasync=True)
        work.do("write", database, n % 4 * BLOCK, noise(n, BLOCK))
        work.fsync(database, datasync=True)
        work.do("unlink", home, b"journal")
        if n == 3:
            work.fsync(home, datasync=True)


def discarding(work: Workload) -> None:
    """Segments that are filled and emptied, and discarded after each checkpoint, as a mount does it."""
    upkeep = Upkeep(work.twin.volume)
    for n in range(6):
        large = work.file(work.top, b"large", noise(n, 1100 * BLOCK))
        work.fsync(large)
        small = work.file(work.top, b"small%d" % n, noise(n, 5 * BLOCK))
        if n % 2:
            work.sync()  # the large file gets into a checkpoint
            upkeep.discard()
        work.do("unlink", work.top, b"large")
        work.do("write", small, BLOCK, noise(n + 1, BLOCK))
        work.fsync(small)
        work.sync()
        upkeep.discard()
        work.do("write", small, 0, noise(n + 2, BLOCK))
        work.fsync(small)
    assert upkeep.discarded_bytes >= 6 * 2 << 20


def in_little_room(work: Workload) -> None:
    """Files that come and go, and that stay, on a device that is full again and again."""
    device = work.twin.volume.device
    work.file(work.top, b"stays", noise(0, 100 * BLOCK))
    for n in range(12):
        large = work.file(work.top, b"large", noise(n, 250 * BLOCK))
        if n % 3:
            work.fsync(large)
        small = work.file(work.top, b"small%d" % n, noise(n, 5 * BLOCK))
        work.fsync(small)
        work.do("write", large, 20 * BLOCK, noise(n + 1, 30 * BLOCK))
        work.fsync(large)
        work.do("unlink", work.top, b"large")
        work.do("write", small, BLOCK, noise(n + 1, BLOCK))
        work.fsync(small)
        if n % 4 == 3:
            work.sync()
    assert isinstance(device, Recorder)
    assert sum(event.length for event in device.events if event.kind == DISCARD) >= 6 << 20


def mixed(work: Workload) -> None:
    """Names, data, attributes and fsyncs, and a few checkpoints: something of everything in a few hundred writes."""
    work.links()
    work.sync()
    work.xattrs()
    work.churn(rounds=45, files=5, largest=5 * BLOCK)
    top = work.make(work.top, b"after")
    for n in range(6):  # new files in a new directory, each made durable by itself
        ino = work.file(top, b"new%d" % n, b"content %d" % n * 500 * n)
        work.fsync(ino)
        if n % 2:
            work.do("write", ino, 100, b"changed")
            work.do("setxattr", ino, "user.n", b"%d" % n)
            work.fsync(ino)
    work.do("rename", top, b"new1", work.top, b"renamed")
    work.fsync(work.twin.volume.lookup(work.top, b"renamed"))
    work.do("unlink", top, b"new2")
    work.do("truncate", work.twin.volume.lookup(top, b"new3"), 10)
    work.fsync(work.twin.volume.lookup(top, b"new3"))
    held = work.twin.volume.lookup(top, b"new4")
    work.do("hold", held)
    work.do("unlink", top, b"new4")
    work.sync()
    work.do("release", held)
    journals(work)
    work.file(work.top, b"last", b"never synced" * 1000)
