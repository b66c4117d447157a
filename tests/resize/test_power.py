"""The power goes at every write of a resize: the volume is whole, and running it again finishes.

What a cut may leave beside a volume without fault is known: one copy of the superblock that is old or half written, a
checkpoint pack that is half written, and, where the areas stay, between the superblock and the checkpoint that follows
it a count of free segments that does not know of the new end yet.  None of it keeps a kernel from mounting.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.record import Recorder
from f2tools.errors import F2fsError
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.volume import Volume
from f2tools.resize.plan import Empty, SetEnd
from f2tools.resize.resize import Mode, resize
from tests.f2fs.write.volumes import FULL, Above, fresh
from tests.power.recording import Recording
from tests.resize.looking import MIB, Kept, codes_on, entries_of, fill, sound_on, tree_on

CUTS = int(os.environ.get("F2_RESIZE_CUTS", "6"))  # of each case, spread over all writes; and as many torn ones
ONE_COPY = {"S001", "S002", "S003", "S004"}
TORN_PACK = {"C001"}
OLD_COUNT = {"C007"}


@dataclass(frozen=True)
class Case:
    """A volume and the sizes it is to go through; None: as small as can be."""

    options: str
    mib: int | None
    mode: Mode = "auto"
    first_mib: int | None = None  # before it is recorded


CASES = {
    "grow": Case("--size 64M", 200),
    "grow-areas": Case(f"--size 64M -O {FULL}", 3000),
    "grow-areas-no-checksum": Case("--size 64M", 3000, "fit"),
    "shrink": Case("--size 128M -s 2", None),
    "shrink-areas": Case("--size 2500M -i", 100, "fit"),
    "again": Case("--size 64M", 900, first_mib=1000),
}


@dataclass(frozen=True)
class Done:
    """A resize that was recorded."""

    recording: Recording
    expected: dict[str, Any]
    geometry: Geometry
    mib: int | None
    mode: Mode
    moved: bool  # the areas moved, and with them came the right count

    def must_survive(self, device: Device, context: str) -> None:
        """The volume on the device is what a cut may leave, and can be finished."""
        top = Above(device)
        found = codes_on(top) - ONE_COPY - TORN_PACK - (set() if self.moved else OLD_COUNT)
        assert not found, f"{context}: {sorted(found)}"
        assert tree_on(top) == self.expected, context
        again = Above(device)
        resize(again, None if self.mib is None else self.mib * MIB, self.mode)
        sound_on(again, f"{context}, finished", TORN_PACK)
        with Volume(Kept(again)) as volume:
            assert entries_of(volume) == self.expected, f"{context}, finished"
            if self.mib is not None:
                assert volume.geo.block_count == self.geometry.block_count, f"{context}, finished"
                assert volume.geo.segment0_blkaddr == self.geometry.segment0_blkaddr, f"{context}, finished"
        again.close()
        top.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Done]:
    """Each case recorded once: `recorded("grow")`."""

    @cache
    def record(name: str) -> Done:
        case = CASES[name]
        image = fresh(tmp_path_factory.mktemp(name), case.options)
        fill(image, files=24, seed=5)
        if case.first_mib is not None:
            with open_device(image, write=True) as device:
                resize(device, case.first_mib * MIB)
        with open_device(image) as device:
            expected = tree_on(device)
        recorder = Recorder(Overlay(open_device(image)))
        outcome = resize(recorder, None if case.mib is None else case.mib * MIB, case.mode)
        sound_on(recorder)
        starts = [outcome.plan.before.main_blkaddr]
        starts += [step.geometry.main_blkaddr for step in outcome.plan.steps if not isinstance(step, Empty)]
        recording = Recording(image, recorder, {}, max(starts) * 4096)
        moved = not any(isinstance(step, SetEnd) for step in outcome.plan.steps)
        return Done(recording, expected, outcome.plan.after, case.mib, case.mode, moved)

    return record


def spread(count: int, wanted: int) -> set[int]:
    """So many of the first `count` numbers, the last ones among them: there the superblocks are written."""
    step = max(1, count // wanted)
    return set(range(0, count + 1, step)) | {count}


@pytest.mark.parametrize("name", CASES)
def test_the_volume_is_whole_after_every_write(name: str, recorded: Callable[[str], Done], tmp_path: Path) -> None:
    done = recorded(name)
    events = done.recording.recorder.events
    wanted = spread(len(events), CUTS) | _around_superblocks(done)
    with open_device(done.recording.image) as base:
        onto = Above(base)
        for count in done.recording.recorder.prefixes(onto):
            if count in wanted:
                done.must_survive(onto, f"{name}: after event {count} of {len(events)}")
        onto.close()


def _around_superblocks(done: Done) -> set[int]:
    """Of the moments at which a superblock is written, as many as there is time for."""
    events = done.recording.recorder.events
    found = [index + 1 for index, event in enumerate(events) if event.kind == "write" and event.offset < 2 * 4096]
    return set(found if len(found) <= CUTS else random.Random(len(found)).sample(found, CUTS))


@pytest.mark.parametrize("name", CASES)
def test_what_no_flush_came_after_may_be_lost_or_torn(name: str, recorded: Callable[[str], Done]) -> None:
    done, chance = recorded(name), random.Random(name)
    with open_device(done.recording.image) as base:
        for _ in range(min(CUTS, len(done.recording.recorder.events))):
            count = chance.randrange(len(done.recording.recorder.events) + 1)
            top = Above(base)
            lost = done.recording.torn(count, top, chance)
            done.must_survive(top, f"{name}: after event {count} {lost}")
            top.close()


def test_a_resize_that_never_flushes_is_caught(
    monkeypatch: pytest.MonkeyPatch, recorded: Callable[[str], Done], tmp_path: Path
) -> None:
    """The judge judged: without flushes any write may be lost, and that is noticed."""
    image = fresh(tmp_path, "--size 64M")
    fill(image, files=24, seed=5)
    with open_device(image) as device:
        expected = tree_on(device)
    monkeypatch.setattr(Recorder, "flush", lambda self: None)
    recorder = Recorder(Overlay(open_device(image)))
    outcome = resize(recorder, 3000 * MIB)
    done = Done(Recording(image, recorder, {}, 1 << 40), expected, outcome.plan.after, 3000, "auto", False)
    chance = random.Random(1)

    def twenty(base: Device) -> None:
        for _ in range(20):
            top = Above(base)
            lost = done.recording.torn(len(recorder.events), top, chance)
            done.must_survive(top, str(lost))

    with open_device(image) as base, pytest.raises((AssertionError, F2fsError, OSError)):
        twenty(base)
