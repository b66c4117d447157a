"""A directory that no longer ignores the case of names, and what is synced in it."""

from __future__ import annotations

from pathlib import Path

from f2tools.f2fs.layout.constants import F2FS_CASEFOLD_FL
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO as ROOT
from tests.f2fs.write.volumes import fresh, judge, writable
from tests.f2fs.write.workload import FILE


def test_names_that_differ_in_case_are_both_there_after_a_power_cut(tmp_path: Path) -> None:
    image = fresh(tmp_path, "--size 64M -C utf8")
    with writable(image) as volume:
        home = volume.mkdir(ROOT, b"home", 0o755)
        volume.set_flags(home, F2FS_CASEFOLD_FL)
    volume = writable(image)
    volume.set_flags(home, 0)
    for name in (b"name", b"NAME"):
        ino = volume.create(home, name, FILE)
        volume.write(ino, 0, name)
        volume.fsync(ino)
    volume.abandon()
    with writable(image) as volume:
        for name in (b"name", b"NAME"):
            assert volume.read_at(volume.lookup(home, name), 0, 9) == name
    judge(image)
