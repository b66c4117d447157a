"""Encrypted directories without their keys: what is in them can be removed, as the kernel allows it, and no more."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.write.volume import WritableVolume
from tests import images
from tests.dump.craft import f2
from tests.f2fs.write.volumes import judge, writable
from tests.f2fs.write.workload import FILE
from tests.mount.mounted import both_servers, mounted

ROOT = F2FS_ROOT_INO


def copy_of(name: str, directory: Path) -> Path:
    return images.copy_sparse(images.reference(name).path, directory / "image")


def shown(volume: WritableVolume, ino: int) -> list[tuple[bytes, int]]:
    """(name, inode number) of what is in a directory, as it is listed."""
    inode = volume.live(ino)
    entries = [entry for entry in volume.dirs.entries(inode) if entry.name not in (b".", b"..")]
    return list(zip(volume.dirs.shown(inode, entries), (entry.ino for entry in entries), strict=True))


def locked(volume: WritableVolume) -> Iterator[tuple[bytes, int]]:
    for name, ino in shown(volume, ROOT):
        if volume.live(ino).is_dir and volume.live(ino).encrypted:
            yield name, ino


def remove_all(volume: WritableVolume, parent: int) -> int:
    names = shown(volume, parent)
    for name, ino in names:
        assert volume.lookup(parent, name) == ino
        if volume.live(ino).is_dir:
            remove_all(volume, ino)
            volume.rmdir(parent, name)
        else:
            volume.unlink(parent, name)
    return len(names)


@pytest.mark.parametrize("name", images.FSCRYPT)
def test_all_files_of_locked_directories_can_be_removed(name: str, tmp_path: Path) -> None:
    path = copy_of(name, tmp_path)
    with writable(path) as volume:
        blocks = volume.space.valid_blocks
        directories = list(locked(volume))
        assert sum(remove_all(volume, ino) for _, ino in directories) > len(directories)
        for last, _ in directories:
            volume.rmdir(ROOT, last)
        assert not list(locked(volume))
        assert volume.space.valid_blocks < blocks
    judge(path)


def test_names_in_a_locked_directory_can_only_be_removed(tmp_path: Path) -> None:
    path = copy_of("fscrypt-android", tmp_path)
    with writable(path) as volume:
        plain = volume.create(ROOT, b"plain", FILE)
        (_, first), (_, second), *_ = locked(volume)
        here, there = shown(volume, first)[0][0], shown(volume, second)[0][0]
        for call, *arguments in (
            ("rename", first, here, ROOT, b"out"),
            ("rename", first, here, first, b"other"),
            ("rename", ROOT, b"plain", first, b"in"),
            ("rename", ROOT, b"plain", first, here),
            ("rename", first, here, second, there, 2),
            ("link", plain, first, b"in"),
            ("create", first, b"new", FILE),
            ("tmpfile", first, FILE),
        ):
            with pytest.raises(OSError) as caught:
                getattr(volume, call)(*arguments)
            assert caught.value.errno == errno.ENOKEY, call
        for call, *arguments in (
            ("unlink", first, b"no such name"),
            ("unlink", first, b"\xff"),
            ("rename", first, b"nothing", first, b"other"),
            ("lookup", first, here[:-1]),
        ):
            with pytest.raises(FileNotFoundError):
                getattr(volume, call)(*arguments)
    judge(path)


def test_rm_removes_a_locked_directory(tmp_path: Path) -> None:
    path = copy_of("fscrypt-android", tmp_path)
    done = f2("rm", "-r", f"{path}:/v2-adiantum")
    assert done.code == 0, done.err
    assert f2("dump", "ls", path, "/v2-adiantum").code != 0
    judge(path)


@both_servers
def test_a_mount_lets_files_of_locked_directories_be_removed(server: str, tmp_path: Path) -> None:
    path = copy_of("fscrypt-android", tmp_path)
    with mounted(path, tmp_path / "mnt", server=server) as mount:
        directory = mount.directory / "v2-adiantum"
        first = next(file for file in directory.iterdir() if file.is_file())
        with pytest.raises(OSError) as caught:
            first.rename(mount.directory / "out")
        assert caught.value.errno == errno.ENOKEY
        first.unlink()
        assert not os.path.lexists(first)
        assert first.name not in os.listdir(directory)
    judge(path)
