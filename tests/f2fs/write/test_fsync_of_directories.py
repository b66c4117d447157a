"""An fdatasync of a directory: no checkpoint where recovery brings its new names back, one where it would not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.write.volume import WritableVolume
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.volumes import fresh, reading, writable
from tests.f2fs.write.workload import FILE


def made_safe(volume: WritableVolume, parent: int, name: bytes, content: bytes) -> int:
    """A new file that was fsync'ed."""
    ino = volume.create(parent, name, FILE)
    volume.write(ino, 0, content)
    volume.fsync(ino)
    return ino


def version_of(volume: WritableVolume) -> int:
    return int(volume.cp.checkpoint_ver)


def test_a_directory_whose_new_files_were_made_safe_needs_no_checkpoint(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    volume = writable(image)
    home = volume.mkdir(F2FS_ROOT_INO, b"home", 0o755)
    volume.sync()
    version = version_of(volume)
    for number in range(3):  # the one before is unlinked, and the new one takes its place
        made_safe(volume, home, b"journal", b"%d" % number)
        volume.fsync(home, datasync=True)
        if number < 2:
            volume.unlink(home, b"journal")
    assert version_of(volume) == version
    volume.abandon()
    with writable(image) as volume:
        assert volume.read_at(volume.lookup(home, b"journal"), 0, 10) == b"2"
    with reading(image) as read:
        assert_consistent(read, "recovered")
        assert read.cp.valid_inode_count == 3


def test_an_fsync_of_a_directory_makes_everything_safe_whatever_has_changed_in_it(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    volume = writable(image)
    home = volume.mkdir(F2FS_ROOT_INO, b"home", 0o755)
    volume.sync()
    made_safe(volume, home, b"safe", b"safe")
    volume.create(F2FS_ROOT_INO, b"elsewhere", FILE)
    volume.fsync(home)
    volume.abandon()
    with writable(image) as volume:
        volume.lookup(F2FS_ROOT_INO, b"elsewhere")


CHANGES: dict[str, Callable[[WritableVolume, int], object]] = {
    "a new file": lambda volume, home: volume.create(home, b"new", FILE),
    "a new directory": lambda volume, home: volume.mkdir(home, b"new", 0o755),
    "a new symlink": lambda volume, home: volume.symlink(home, b"new", b"target"),
    "a name less": lambda volume, home: volume.unlink(home, b"old"),
    "another name": lambda volume, home: volume.rename(home, b"old", home, b"new"),
    "a further name": lambda volume, home: volume.link(volume.lookup(home, b"old"), home, b"new"),
    "a new file that is gone again": lambda volume, home: (
        made_safe(volume, home, b"new", b"new"),
        volume.unlink(home, b"new"),
    ),
    "permissions": lambda volume, home: volume.setattr(home, mode=0o700),
    "times": lambda volume, home: volume.set_times(home, mtime_ns=1),
    "an attribute": lambda volume, home: volume.setxattr(home, "user.a", b"b"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_directory_that_has_changed_in_another_way_is_as_it_was_synced_after_a_power_cut(
    change: Callable[[WritableVolume, int], object], tmp_path: Path
) -> None:
    image = fresh(tmp_path)
    volume = writable(image)
    home = volume.mkdir(F2FS_ROOT_INO, b"home", 0o755)
    made_safe(volume, home, b"old", b"old")
    volume.sync()
    version = version_of(volume)
    change(volume, home)
    made_safe(volume, home, b"safe", b"safe")
    volume.fsync(home, datasync=True)
    names, inode = sorted(entry.name for entry in volume.dirs.entries(volume.live(home))), volume.live(home)
    said = inode.i_mode, inode.i_mtime
    assert version_of(volume) == version + 1
    volume.abandon()
    with writable(image) as volume:
        assert sorted(entry.name for entry in volume.dirs.entries(volume.live(home))) == names
        assert (volume.live(home).i_mode, volume.live(home).i_mtime) == said
    with reading(image) as read:
        assert_consistent(read, "recovered")


@pytest.mark.parametrize("how", ["rename", "link"])
def test_a_file_whose_name_a_new_one_has_taken_is_not_lost_under_its_other_name(how: str, tmp_path: Path) -> None:
    image = fresh(tmp_path)
    volume = writable(image)
    home, other = (volume.mkdir(F2FS_ROOT_INO, name, 0o755) for name in (b"home", b"other"))
    made_safe(volume, home, b"name", b"precious")
    volume.sync()
    if how == "rename":
        volume.rename(home, b"name", other, b"kept")
    else:
        volume.link(volume.lookup(home, b"name"), other, b"kept")
        volume.unlink(home, b"name")
    made_safe(volume, home, b"name", b"new")
    volume.fsync(home, datasync=True)
    volume.abandon()
    with writable(image) as volume:
        assert volume.read_at(volume.lookup(home, b"name"), 0, 10) == b"new"
        assert volume.read_at(volume.lookup(other, b"kept"), 0, 10) == b"precious"
