"""A volume that was closed: nothing can be done with it, and nobody is told that something was."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import f2tools
from f2tools.edit.transaction import Edit
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO as ROOT
from f2tools.f2fs.write.volume import WritableVolume
from tests.f2fs.write.volumes import fresh, reading, writable
from tests.f2fs.write.workload import FILE


def changes(volume: WritableVolume, ino: int) -> list[Callable[[], object]]:
    return [
        lambda: volume.create(ROOT, b"late", FILE),
        lambda: volume.mkdir(ROOT, b"late", 0o755),
        lambda: volume.unlink(ROOT, b"file"),
        lambda: volume.rename(ROOT, b"file", ROOT, b"late"),
        lambda: volume.write(ino, 0, b"late"),
        lambda: volume.write(ino, 0, b"late" * 10_000),
        lambda: volume.truncate(ino, 1),
        lambda: volume.fallocate(ino, 0, 0, 5000),
        lambda: volume.setattr(ino, mode=0o600),
        lambda: volume.set_times(ino, mtime_ns=0),
        lambda: volume.setxattr(ino, "user.late", b""),
        lambda: volume.fsync(ino),
        volume.sync,
        volume.checkpoint,
        volume.__enter__,
    ]


@pytest.mark.parametrize("end", [WritableVolume.close, WritableVolume.abandon])
def test_no_change_of_a_closed_volume_succeeds(tmp_path: Path, end: Callable[[WritableVolume], None]) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        ino = volume.create(ROOT, b"file", FILE)
        volume.write(ino, 0, b"first")
        volume.sync()
        end(volume)
        for change in changes(volume, ino):
            with pytest.raises(ValueError, match="closed"):
                change()
        volume.close()
    with reading(image) as volume:
        assert volume.path("/file").read() == b"first"
        assert [entry.name for entry in volume.listdir(volume.root.inode)] == [b"file"]


@pytest.mark.parametrize("fails", [False, True])
def test_no_change_after_an_edit_succeeds(tmp_path: Path, fails: bool) -> None:
    image = fresh(tmp_path)
    edit = Edit(str(image))
    ino = edit.volume.create(ROOT, b"file", FILE)
    edit.volume.write(ino, 0, b"first")
    edit.__exit__(KeyError if fails else None)
    for change in changes(edit.volume, ino):
        with pytest.raises(ValueError, match="closed"):
            change()


def test_what_is_not_in_memory_is_not_read_from_a_closed_volume(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        volume.write(volume.create(ROOT, b"file", FILE), 0, os.urandom(10_000))
    with f2tools.open(image) as volume:
        pass
    with pytest.raises(ValueError, match="closed"):
        volume.path("/file").read()
    with pytest.raises(ValueError, match="closed"), volume:
        pass
    volume.close()


def test_what_is_not_in_memory_is_not_read_after_an_edit(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with Edit(str(image)) as edit:
        ino = edit.volume.create(ROOT, b"file", FILE)
        edit.volume.write(ino, 0, os.urandom(10_000))
    with pytest.raises(ValueError, match="closed"):
        edit.volume.read_at(ino, 0, 10_000)
