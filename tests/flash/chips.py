"""Small chips and layers for tests, and the worlds after a power cut."""

from __future__ import annotations

import random
from collections.abc import Iterator

from f2tools.device.changes.record import MARK, WRITE, Recorder, replay_event
from f2tools.flash.nand import Faults, Geometry, Nand
from f2tools.flash.vsl import Shape, Vsl, create_on_device, open_vsl
from tests.device.memory import Memory

SMALL = Geometry(blocks=24, page_size=2048, spare_size=64, pages_per_block=16)
SHAPE = Shape(page_size=4096, pages_per_block=8, blocks=24)
SIZE = 256 << 10
TIGHT = Shape(page_size=4096, pages_per_block=8, blocks=13)  # hardly more than its data take
TIGHT_SIZE = 360 * 512
SECTOR = 512


def chip(faults: Faults | None = None, geometry: Geometry = SMALL) -> Nand:
    """A chip in memory."""
    return Nand(geometry, faults=faults)


def layer(shape: Shape = SHAPE, size: int = SIZE) -> Vsl:
    """A layer on a device in memory, which is `.medium.device`."""
    return create_on_device(Memory(shape.image_bytes), size, shape)


def recorded(shape: Shape = TIGHT, size: int = TIGHT_SIZE) -> tuple[Vsl, Recorder, bytes]:
    """A fresh layer whose device records what is done from now on, and what the device holds now."""
    made = layer(shape, size)
    made.checkpoint()
    before = bytes(made.medium.device.content)
    recorder = Recorder(Memory(before))
    return open_vsl(recorder), recorder, before


def blocks_of(vsl: Vsl) -> dict[int, bytes]:
    """All mapped blocks and their content."""
    found = {}
    for first, count in vsl.extents():
        content = vsl.read_vblocks(first, count)
        found.update({first + n: content[n * 512 : n * 512 + 512] for n in range(count)})
    return found


def after_cut(recorder: Recorder, before: bytes, count: int, chance: random.Random | None = None) -> Memory:
    """A device after so many events and a power cut; with `chance`, some of what wasn't flushed is lost or torn."""
    onto = Memory(before)
    lost: set[int] = set()
    if chance is not None:
        volatile = recorder.volatile(count)
        lost = {index for index in volatile if chance.random() < 0.5}
    for index in range(count):
        event = recorder.events[index]
        if index not in lost:
            replay_event(event, onto)
        elif event.kind == WRITE and chance is not None and chance.random() < 0.5:
            for at in range(0, event.length, SECTOR):
                if chance.random() < 0.5:
                    onto.pwrite(event.offset + at, event.data[at : at + SECTOR])
    return onto


def cuts(recorder: Recorder) -> Iterator[int]:
    """Every count of events worth a cut: after each that is no mark."""
    yield from (i + 1 for i, event in enumerate(recorder.events) if event.kind != MARK)
