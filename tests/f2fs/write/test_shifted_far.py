"""Ranges are taken out of a large file, or put into it, on a volume that may have no room for what moves."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

import f2tools
from f2tools.errors import F2fsError, NoFreeSegment
from f2tools.f2fs.write.volume import open_for_writing
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.model import BLOCK
from tests.f2fs.write.volumes import fresh
from tests.mount.ways import COLLAPSE, INSERT

ROOT = 3
MIB = 1 << 20


@pytest.mark.parametrize("mode", [COLLAPSE, INSERT])
@pytest.mark.parametrize("mib", [12, 20, 28, 36])
def test_what_has_no_room_to_move_is_refused_and_all_goes_on(mib: int, mode: int, tmp_path: Path) -> None:
    image = fresh(tmp_path, "--size 100M")
    content = random.Random(mib).randbytes(mib * MIB)
    with open_for_writing(image) as volume:
        ino = volume.create(ROOT, b"large", 0o600)
        volume.write(ino, 0, content)
        volume.sync()
        other = volume.create(ROOT, b"other", 0o600)
        volume.write(other, 0, b"not synced")
        refused = None
        try:
            volume.fallocate(ino, mode, BLOCK, BLOCK)
        except OSError as error:
            refused = error.errno
        if mib == 12:
            assert refused is None
        elif mib == 36:
            assert refused == errno.ENOSPC
        else:
            assert refused in (None, errno.ENOSPC)
        if refused is None:
            behind = content[2 * BLOCK :] if mode == COLLAPSE else bytes(BLOCK) + content[BLOCK:]
            content = content[:BLOCK] + behind
        volume.write(other, 10, b", but later")
    with f2tools.open(image) as volume:
        assert volume.path("/large").read() == content
        assert volume.path("/other").read() == b"not synced, but later"
        assert_consistent(volume)


@pytest.mark.parametrize("mode", [COLLAPSE, INSERT])
def test_room_is_won_by_cleaning_first(mode: int, tmp_path: Path) -> None:
    """Half of each segment is free, and no whole one: there are holes enough."""
    image = fresh(tmp_path, "--size 100M")
    piece = random.Random(1).randbytes(64 * BLOCK)
    with open_for_writing(image) as volume:
        ino = volume.create(ROOT, b"large", 0o600)
        volume.write(ino, 0, piece * 32)
        kept = 0
        try:
            while True:
                made = volume.create(ROOT, b"%d" % kept, 0o600)
                assert volume.write(made, 0, piece) == len(piece)
                kept += 1
        except (OSError, AssertionError):
            volume.unlink(ROOT, b"%d" % kept)
        volume.sync()
        for number in range(0, kept, 2):
            volume.unlink(ROOT, b"%d" % number)
        volume.sync()
        volume.fallocate(ino, mode, 0, 64 * BLOCK)
        assert volume.path("/large").read() == (piece * 31 if mode == COLLAPSE else bytes(len(piece)) + piece * 32)
    with f2tools.open(image) as volume:
        assert_consistent(volume)


def test_no_free_segment_is_an_error_with_words() -> None:
    assert issubclass(NoFreeSegment, F2fsError)
    assert "no segment is free" in str(NoFreeSegment())
