"""A file that was made shorter, fsync'ed, and then found by recovery."""

from __future__ import annotations

from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from tests.f2fs.write.volumes import fresh, judge, writable

LONG, SHORT = 8 << 20, 5 << 20


@pytest.mark.parametrize("begins", ["checkpoint", "fsync"])
@pytest.mark.parametrize("shortened_to", [0, SHORT])
def test_a_file_that_was_cut_and_synced_ends_there_after_a_crash(
    tmp_path: Path, begins: str, shortened_to: int
) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        ino = volume.create(F2FS_ROOT_INO, b"a", 0o644)
    volume = writable(image)
    volume.write(ino, 0, b"x" * LONG)
    volume.sync() if begins == "checkpoint" else volume.fsync(ino)
    volume.truncate(ino, shortened_to)
    volume.write(ino, 0, b"y" * SHORT)
    volume.fsync(ino)
    volume.abandon()
    with writable(image) as volume:
        assert volume.live(ino).i_size == SHORT
        volume.truncate(ino, LONG)
        assert volume.read_at(ino, SHORT, LONG) == bytes(LONG - SHORT), "what was cut off is back"
    judge(image)
