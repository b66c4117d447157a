"""Blocks that an fsync made safe, and then became free: nothing else is written there before the next checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO as ROOT
from f2tools.f2fs.write.volume import WritableVolume
from tests.f2fs.write.model import BLOCK
from tests.f2fs.write.volumes import fresh, judge, writable
from tests.f2fs.write.workload import FILE

SAFE = 40 * BLOCK


def full_of_holes(volume: WritableVolume) -> None:
    """Many small files of which every other one is gone again."""
    for number in range(600):
        volume.write(volume.create(ROOT, b"%d" % number, FILE), 0, b"x" * 4 * BLOCK)
    volume.sync()
    for number in range(0, 600, 2):
        volume.unlink(ROOT, b"%d" % number)
    volume.sync()


def test_what_was_synced_and_written_anew_is_not_another_file_s_content_after_a_power_cut(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    volume = writable(image, min_free_percent=100.0)  # data goes into holes
    full_of_holes(volume)
    safe, other = volume.create(ROOT, b"safe", FILE), volume.create(ROOT, b"other", FILE)
    volume.sync()
    version = volume.cp.checkpoint_ver
    volume.write(safe, 0, b"A" * SAFE)
    volume.fsync(safe)
    volume.write(safe, 0, b"a" * SAFE)
    start, threaded = 0, volume.segments.threaded_blocks
    while volume.cp.checkpoint_ver == version and start < 64 * SAFE:
        volume.write(other, start, b"B" * SAFE)
        start += SAFE
    assert volume.segments.threaded_blocks > threaded
    volume.abandon()
    with writable(image) as volume:
        assert set(volume.read_at(safe, 0, SAFE)) <= set(b"Aa")
    judge(image)


def test_every_block_that_became_free_since_a_checkpoint_waits_for_the_next(tmp_path: Path) -> None:
    with writable(fresh(tmp_path)) as volume:
        segments = volume.segments
        ino = volume.create(ROOT, b"file", FILE)
        for content in (b"a", b"b", b"c"):  # by few blocks, by many, and by the file's end
            for blocks in (2, 40):
                volume.write(ino, 0, content * blocks * BLOCK)
                volume.files.write_back_all()
        places = volume.mapper.get(volume.live(ino), np.arange(40))
        volume.truncate(ino, 0)
        segno = int(volume.geo.segno(int(places[0])))
        waiting = int(segments.held[segno])
        assert waiting >= 40
        assert not np.isin(places - volume.geo.start_block(segno), segments._holes(segno)).any()
        volume.sync()
        assert not segments.held.any()
        assert np.isin(places - volume.geo.start_block(segno), segments._holes(segno)).all()
