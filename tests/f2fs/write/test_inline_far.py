"""A small file whose content lies in its inode, and that is written to far beyond its end."""

from __future__ import annotations

from pathlib import Path

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from tests.f2fs.write.volumes import fresh, writable


def test_a_byte_far_beyond_the_end_of_a_small_file_needs_no_room_for_the_hole(tmp_path: Path) -> None:
    with writable(fresh(tmp_path)) as volume:
        ino = volume.create(F2FS_ROOT_INO, b"a", 0o644)
        volume.write(ino, 0, b"x")
        assert volume.write(ino, 3 << 40, b"y") == 1
        assert volume.read_at(ino, 0, 2) == b"x\0"
        assert volume.read_at(ino, 3 << 40, 2) == b"y"
