"""fsync_mode=strict: a new file that is made safe takes along the names that were moved in its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO as ROOT
from tests.f2fs.write.volumes import fresh, judge, writable


@pytest.mark.parametrize("how", ["rename", "rename elsewhere", "link", "rename over another"])
def test_a_file_that_made_way_for_a_new_one_of_its_name_is_still_there_after_a_crash(how: str, tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        volume.write(volume.create(ROOT, b"name", 0o644), 0, b"old")
        home = volume.mkdir(ROOT, b"elsewhere", 0o755) if how == "rename elsewhere" else ROOT
        if how == "rename over another":
            volume.create(ROOT, b"other", 0o644)
    volume = writable(image, fsync_mode="strict")
    if how == "link":
        volume.link(volume.lookup(ROOT, b"name"), home, b"other")
        volume.unlink(ROOT, b"name")
    else:
        volume.rename(ROOT, b"name", home, b"other")
    new = volume.create(ROOT, b"name", 0o644)
    volume.write(new, 0, b"new")
    volume.fsync(new)
    volume.abandon()
    with writable(image) as volume:
        assert volume.read_at(volume.lookup(ROOT, b"name"), 0, 9) == b"new"
        assert volume.read_at(volume.lookup(home, b"other"), 0, 9) == b"old"
    judge(image)
