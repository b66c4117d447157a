"""Files whose blocks stay where they are: pinned ones, and one that stands for a whole device."""

from __future__ import annotations

import errno
import os
import random
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.device import Device, open_device
from f2tools.device.base import Wrapper
from f2tools.errors import DeviceError
from f2tools.f2fs.layout.constants import F2FS_NODUMP_FL, F2FS_PIN_FILE
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.volume import Policy, WritableVolume, open_for_writing
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.model import BLOCK
from tests.f2fs.write.volumes import Above, fresh
from tests.mount.mounted import both_servers, mounted

ROOT = 3
MIB = 1 << 20


def pin(volume: WritableVolume, ino: int) -> None:
    """As F2FS_IOC_SET_PIN_FILE does."""
    inode = volume.live(ino)
    inode.set(i_inline=inode.i_inline | F2FS_PIN_FILE)
    volume.nodes.touch(inode)
    volume.sync()


def refusal(change: Callable[[], object]) -> int | None:
    """The errno with which something is refused."""
    try:
        change()
    except OSError as error:
        return error.errno
    return None


def places(volume: WritableVolume, ino: int) -> list[tuple[int, int, int]]:
    return [(run.fofs, run.blkaddr, run.count) for run in volume.data.extents(volume.live(ino))]


@pytest.mark.parametrize("ipu", ["never", "fsync"])
@pytest.mark.parametrize(("offset", "size"), [(0, 1), (40960, 5000), (123, 40 * BLOCK), (0, MIB)])
def test_what_is_written_to_a_pinned_file_stays_where_it_is(offset: int, size: int, ipu: str, tmp_path: Path) -> None:
    content = bytearray(b"a" * MIB)
    with open_for_writing(fresh(tmp_path), policy=Policy(ipu=ipu)) as volume:
        ino = volume.create(ROOT, b"swap", 0o600)
        volume.write(ino, 0, bytes(content))
        pin(volume, ino)
        before = places(volume, ino)
        for letter, make_safe in ((b"b", volume.sync), (b"c", partial(volume.fsync, ino)), (b"d", volume.balance)):
            assert volume.write(ino, offset, letter * size) == size
            content[offset : offset + size] = letter * size
            make_safe()
            assert places(volume, ino) == before
            assert volume.path("/swap").read() == content
    with f2tools.open(tmp_path / "image") as volume:
        assert volume.path("/swap").read() == content
        assert_consistent(volume)


def test_a_pinned_file_takes_nothing_where_it_has_no_block(tmp_path: Path) -> None:
    with open_for_writing(fresh(tmp_path)) as volume:
        ino = volume.create(ROOT, b"swap", 0o600)
        volume.write(ino, 0, bytes(BLOCK))
        volume.write(ino, 2 * BLOCK, bytes(BLOCK))
        pin(volume, ino)
        for offset, size in ((BLOCK, 1), (0, 2 * BLOCK), (3 * BLOCK, 1), (3 * BLOCK - 1, 2)):
            for write in (volume.write, volume.write_pages):
                assert refusal(partial(write, ino, offset, bytes(size))) == errno.EIO
        assert volume.live(ino).i_size == 3 * BLOCK


# -- one that stands for a device --------------------------------------------------------------------------------------


def aliased(directory: Path, name: str = "first.img", alias: str = "second.disk") -> tuple[Path, Path]:
    """A volume of two devices, the second of which is a file in its root, with something on it."""
    second = directory / "second.img"
    second.write_bytes(random.Random(3).randbytes(48 * MIB).ljust(64 * MIB, b"\0"))
    subprocess.run(
        ["f2tools", "mkfs", name, "--size", "64M", "-O", "device_alias,extra_attr", "-c",
         f"{second.name}@{alias}", "-q", "-f"],
        cwd=directory,  # the device table has room for a short path
        check=True,
    )  # fmt: skip
    return directory / name, second


def alias_of(volume: WritableVolume) -> LiveInode:
    return volume.live(volume.path("/second.disk").inode.ino)


def assert_sound(image: Path, second: Path) -> None:
    done = subprocess.run(["f2tools", "fsck", image, "--device", second], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@both_servers
def test_a_mount_writes_to_an_aliased_device_where_it_lies(server: str, tmp_path: Path) -> None:
    image, second = aliased(tmp_path)
    content = bytearray(second.read_bytes())
    with mounted(image, tmp_path / "mnt", "--device", str(second), server=server):
        file = tmp_path / "mnt" / "second.disk"
        for offset, data in ((5, b"HELLO"), (MIB - 3, b"x" * (2 * MIB + 5)), (len(content) - 4, b"last")):
            with file.open("r+b", buffering=0) as there:
                there.seek(offset)
                there.write(data)
            content[offset : offset + len(data)] = data
        with file.open("ab", buffering=0) as there:
            assert refusal(partial(there.write, b"beyond")) == errno.EIO
        assert refusal(partial(file.open, "wb")) == errno.EPERM
        for change in (file.unlink, partial(file.rename, file.with_name("new")), partial(os.link, file, f"{file}.2")):
            assert refusal(change) == errno.EPERM
        assert file.read_bytes() == content
    assert second.read_bytes() == content
    assert_sound(image, second)
    with mounted(image, tmp_path / "mnt", "--device", str(second), server=server):
        assert (tmp_path / "mnt" / "second.disk").read_bytes() == content


def test_an_aliased_device_keeps_its_size_and_its_place(tmp_path: Path) -> None:
    image, second = aliased(tmp_path)
    with open_for_writing(image, [second]) as volume:
        inode = alias_of(volume)
        extent, size = inode.cached_extent, inode.i_size
        for length in (0, size):
            assert refusal(partial(volume.truncate, inode.ino, length)) == errno.EPERM
        for mode in (0, 3):
            assert refusal(partial(volume.fallocate, inode.ino, mode, 0, BLOCK)) == errno.EOPNOTSUPP
        assert refusal(lambda: volume.write(inode.ino, size - 1, b"ab")) == errno.EIO
        assert volume.write(inode.ino, 1, b"safe") == 4
        volume.fsync(inode.ino)
        assert alias_of(volume).cached_extent == extent
        volume.abandon()
    assert second.read_bytes()[1:5] == b"safe"
    assert_sound(image, second)


def test_a_file_that_stands_for_a_device_keeps_its_name_and_its_flags(tmp_path: Path) -> None:
    """Linux 7.3: f2fs_link(), f2fs_unlink(), f2fs_rename() and f2fs_cross_rename(), f2fs_setflags_common()."""
    image, second = aliased(tmp_path)
    with open_for_writing(image, [second]) as volume:
        volume.create(ROOT, b"other", 0o600)
        volume.mkdir(ROOT, b"d", 0o755)
        ino, name = alias_of(volume).ino, b"second.disk"
        for change in (
            lambda: volume.link(ino, ROOT, b"new"),
            lambda: volume.unlink(ROOT, name),
            lambda: volume.rename(ROOT, name, ROOT, b"new"),
            lambda: volume.rename(ROOT, name, volume.path("/d").inode.ino, name),
            lambda: volume.rename(ROOT, b"other", ROOT, name),
            lambda: volume.rename(ROOT, b"other", ROOT, name, 2),
            lambda: volume.rename(ROOT, name, ROOT, b"other", 2),
            lambda: volume.set_flags(ino, F2FS_NODUMP_FL),
        ):
            assert refusal(change) == errno.EPERM
        volume.rename(ROOT, name, ROOT, name)
        assert alias_of(volume).i_links == 1
    assert_sound(image, second)


def test_what_is_pinned_gets_no_blocks_where_a_device_may_be_wanted_back(tmp_path: Path) -> None:
    """It is wanted back by the name that the device had."""
    image, second = aliased(tmp_path, alias="second.img")
    for removed in (False, True):
        if removed:
            with open_for_writing(image, [second]) as volume:
                volume.unlink(ROOT, b"second.img", alias=True)
        with open_for_writing(image, [second]) as volume:
            ino = volume.create(ROOT, b"swap%d" % removed, 0o600)
            volume.fallocate(ino, 0, 0, BLOCK)
            pin(volume, ino)
            said = refusal(partial(volume.fallocate, ino, 0, BLOCK, BLOCK))
            assert said == (None if removed else errno.EOPNOTSUPP)


ALIAS_OPERATIONS: dict[str, Callable[[WritableVolume], object]] = {
    "write": lambda volume: volume.write(alias_of(volume).ino, 5, b"new" * 3000),
    "unlink": lambda volume: volume.unlink(ROOT, b"second.disk", alias=True),
    "utimens": lambda volume: volume.setattr(alias_of(volume).ino, mtime_ns=5),
    "setxattr": lambda volume: volume.setxattr(alias_of(volume).ino, "user.new", b"v" * 3000),
    "fsync": lambda volume: volume.fsync(alias_of(volume).ino),
}


class BadSector(Wrapper):
    """A device that notes where it is read, and has a byte that can't be."""

    def __init__(self, base: Device) -> None:
        super().__init__(base)
        self.bad, self.read = -1, set[int]()

    def pread_into(self, offset: int, buffer: Any) -> None:
        self.read.add(offset)
        if offset <= self.bad < offset + memoryview(buffer).nbytes:
            raise DeviceError("a bad sector")
        self.base.pread_into(offset, buffer)


@pytest.mark.parametrize("name", ALIAS_OPERATIONS)
def test_what_cant_be_read_refuses_an_alias_something_and_ends_nothing(name: str, tmp_path: Path) -> None:
    image, second = aliased(tmp_path)

    def opened() -> tuple[WritableVolume, BadSector]:
        device = BadSector(Above(open_device(image, extra=[second])))
        volume = WritableVolume(Above(device), seed=1)
        device.read.clear()
        return volume, device

    volume, device = opened()
    ALIAS_OPERATIONS[name](volume)
    places = sorted(device.read)
    volume.abandon()
    for place in places:
        volume, device = opened()
        device.bad = place
        try:
            ALIAS_OPERATIONS[name](volume)
        except DeviceError:
            assert volume.broken is None
            device.bad = -1
            inode = alias_of(volume)
            assert (inode.cached_extent[2] > 0, inode.i_links, inode.i_xattr_nid) == (True, 1, 0)
            ALIAS_OPERATIONS[name](volume)
        assert volume.broken is None
        device.bad = -1
        volume.sync()
        volume.abandon()


@pytest.mark.parametrize("held", [False, True])
def test_removing_its_file_gives_a_device_to_the_volume(held: bool, tmp_path: Path) -> None:
    """See f2fs_do_truncate_blocks() in fs/f2fs/file.c."""
    image, second = aliased(tmp_path)
    with open_for_writing(image, [second]) as volume:
        inode = alias_of(volume)
        free, blocks = volume.statfs()["f_bfree"], inode.cached_extent[2]
        if held:
            volume.hold(inode.ino)
        volume.unlink(ROOT, b"second.disk", alias=True)
        if held:
            volume.sync()
            assert volume.statfs()["f_bfree"] == free
            volume.write(inode.ino, 0, b"still there")
            assert volume.read_at(inode.ino, 0, 11) == b"still there"
            volume.release(inode.ino)
        assert volume.statfs()["f_bfree"] >= free + blocks
        volume.sync()
        ino = volume.create(ROOT, b"large", 0o600)
        while volume.segments.free_sections > volume.segments.reserved_sections + 4:
            volume.write(ino, volume.live(ino).i_size, b"l" * MIB)
        assert volume.live(ino).i_size > 60 * MIB
    assert_sound(image, second)
    with f2tools.open(image, devices=[second]) as again:
        assert_consistent(again)


def test_a_device_comes_back_when_the_power_goes_while_its_removed_file_is_open(tmp_path: Path) -> None:
    image, second = aliased(tmp_path)
    with open_for_writing(image, [second]) as volume:
        ino = alias_of(volume).ino
        free = volume.statfs()["f_bfree"]
        volume.hold(ino)
        volume.unlink(ROOT, b"second.disk", alias=True)
        volume.sync()
        volume.abandon()
    with open_for_writing(image, [second]) as volume:
        assert volume.statfs()["f_bfree"] > free
    assert_sound(image, second)


def test_the_last_device_is_resized_once_its_file_is_removed(tmp_path: Path) -> None:
    image, second = aliased(tmp_path)
    resize = ["f2tools", "resize", image, "100M", "--device", second]
    refused = subprocess.run(resize, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "f2tools rm --device-alias" in refused.stderr
    remove = ["f2tools", "rm", f"{image}:/second.disk", "--device", second]
    refused = subprocess.run(remove, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "--device-alias" in refused.stderr
    subprocess.run([*remove, "--device-alias"], check=True)
    subprocess.run(resize, check=True, capture_output=True)
    assert_sound(image, second)
