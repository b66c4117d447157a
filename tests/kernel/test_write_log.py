"""The logs of what the kernel wrote: they are what QEMU takes down, and lead to volumes that are sound."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.device.changes.record import DISCARD, FLUSH, WRITE, Event, Recorder
from tests import judges
from tests.f2fs.write.volumes import fresh
from tests.kernel import write_log
from tests.kernel.guest import Guest

WORK = """
mount -t f2fs $IMAGES /mnt
echo one > /mnt/one; sync /mnt/one
rm /mnt/one; echo two > /mnt/two
umount /mnt
"""


def replayed(events: list[Event], path: Path, size: int) -> bytes:
    with path.open("wb") as file:
        file.truncate(size)
    with open_device(path, write=True) as device:
        recorder = Recorder(device)
        recorder.events = events
        recorder.replay(len(events), device)
    return path.read_bytes()


def test_a_log_is_read_as_it_was_written_and_ends_where_it_is_torn() -> None:
    events = [
        Event(WRITE, 4096, 8192, os.urandom(8192)),
        Event(FLUSH),
        Event(DISCARD, 0, 4096),
        Event(WRITE, 0, 512, b"a" * 512),
    ]
    log = write_log.log_of(events)
    assert list(write_log.events_of(log)) == events
    assert list(write_log.events_of(log[:-1])) == events[:-1]


def test_what_is_taken_down_of_a_guest_is_what_it_wrote(guest: Guest, tmp_path: Path) -> None:
    image = fresh(tmp_path, name="disk.img")
    before = list(write_log.content_of(image))
    write_log.LoggedGuest(guest._built, tmp_path).run(WORK, [image]).must_succeed()
    events = [*before, *write_log.events_of(image.with_suffix(".log").read_bytes())]
    assert sum(event.kind == FLUSH for event in events) > 2
    assert replayed(events, tmp_path / "again.img", image.stat().st_size) == image.read_bytes()


@pytest.mark.peer
@pytest.mark.parametrize("number", range(len(write_log.KEPT)))
def test_a_log_that_is_kept_leads_to_a_sound_volume(number: int, tmp_path: Path) -> None:
    events = write_log.kept(number)
    assert sum(event.kind == FLUSH for event in events[write_log.made(number) :]) > 50
    size = max(event.offset + event.length for event in events)
    replayed(events, tmp_path / "image", -(-size // (2 << 20)) * (2 << 20))
    judges.fsck_clean(tmp_path / "image")
