"""What a mount gives back to the device below it."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from f2tools.flash.vsl import create_vsl
from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh, judge
from tests.mkfs.tools import f2mkfs
from tests.mount.mounted import both_servers, mounted

MIB = 1 << 20


def filled_and_emptied(directory: Path, size: int) -> None:
    """A file that comes and goes within one checkpoint of the mount's own, though not of the volume's."""
    path = directory / "passing"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(fd, bytes(range(256)) * (size // 256))
    os.fsync(fd)
    os.close(fd)
    synced(directory)
    path.unlink()
    synced(directory)


def synced(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def taken(image: Path) -> int:
    return image.stat().st_blocks * 512


def becomes(true: Callable[[], bool]) -> bool:
    """Whether it does within some seconds."""
    end = time.monotonic() + 20
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@both_servers
def test_what_was_filled_and_emptied_between_two_checkpoints_is_given_back(tmp_path: Path, server: str) -> None:
    image = fresh(tmp_path)
    before = taken(image)
    with mounted(image, tmp_path / "mnt", "-o", "commit=1", server=server) as mount:
        filled_and_emptied(mount.directory, 16 * MIB)
        assert becomes(lambda: taken(image) < before + 8 * MIB)
    judge(image)


@pytest.mark.parametrize("option", ["discard", "nodiscard"])
def test_an_unmount_gives_back_what_its_checkpoint_makes_free(tmp_path: Path, option: str) -> None:
    image = fresh(tmp_path)
    before = taken(image)
    with mounted(image, tmp_path / "mnt", "-o", f"commit=3600,{option}") as mount:
        filled_and_emptied(mount.directory, 16 * MIB)
        (mount.directory / "second").write_bytes(os.urandom(6 * MIB))
        synced(mount.directory)
        (mount.directory / "second").unlink()
    assert (taken(image) < before + 8 * MIB) == (option == "discard")
    judge(image)


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """A volume of 256 MiB on a storage layer that holds 32."""
    path = tmp_path / "layer.vsl"
    create_vsl(path, 32 * MIB, space_blocks=256 * MIB // 512).close()
    f2mkfs("-q", path)
    return path


@both_servers
def test_files_that_come_and_go_do_not_fill_a_storage_layer(layer: Path, tmp_path: Path, server: str) -> None:
    with mounted(layer, tmp_path / "mnt", server=server) as mount:
        for _ in range(5):
            filled_and_emptied(mount.directory, 20 * MIB)
    assert f2("fsck", layer).code == 0


@both_servers
def test_a_full_layer_is_no_space_left_and_removing_makes_room(layer: Path, tmp_path: Path, server: str) -> None:
    with mounted(layer, tmp_path / "mnt", server=server) as mount:
        assert full_after(mount.directory, "first") > 20
        for number in range(20):
            (mount.directory / f"first{number}").unlink()
        synced(mount.directory)
        assert full_after(mount.directory, "second") > 15
    assert f2("fsck", layer).code == 0
    assert f2("vsl", "check", layer).code == 0
    with mounted(layer, tmp_path / "mnt", server=server) as mount:
        assert (mount.directory / "second0").read_bytes() == bytes(range(256)) * (MIB // 256)


def full_after(directory: Path, prefix: str) -> int:
    """How many files of 1 MiB are made safe before there is no space left."""
    number = 0
    while True:
        try:
            fd = os.open(directory / f"{prefix}{number}", os.O_WRONLY | os.O_CREAT)
            try:
                if os.write(fd, bytes(range(256)) * (MIB // 256)) < MIB:
                    continue
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return number
        number += 1
