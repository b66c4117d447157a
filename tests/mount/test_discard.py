"""What a mount gives back to the device below it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.f2fs.write.volumes import fresh, judge
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
