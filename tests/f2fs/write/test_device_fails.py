"""A device that fails once, in the midst of something: nothing is written after that, and what was safe stays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from f2tools.device import open_device
from f2tools.device.base import Wrapper
from f2tools.errors import Corrupt, DeviceError
from f2tools.f2fs.layout.constants import CP_QUOTA_NEED_FSCK_FLAG, F2FS_COMPR_FL
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO as ROOT
from f2tools.f2fs.volume.quota import quota_inos
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import Policy, WritableVolume
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.model import BLOCK
from tests.f2fs.write.volumes import FULL, Above, Ticks, fresh, judge, reading, writable
from tests.f2fs.write.workload import FILE, noise


class FailsOnce(Wrapper):
    """A device that refuses one write or flush, and then goes on as if nothing had been."""

    left: int | None = None  # until then

    def _count(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left == -1:
                raise DeviceError("a loose contact")

    def pwrite(self, offset: int, data: Any) -> None:
        self._count()
        self.base.pwrite(offset, data)

    def write_blocks(self, blkaddrs: Any, data: Any, block_size: int) -> None:
        self._count()
        self.base.write_blocks(blkaddrs, data, block_size)

    def flush(self) -> None:
        self._count()
        self.base.flush()


@pytest.mark.parametrize("options", ["", f"-O {FULL}"], ids=["plain", "quota"])
def test_after_a_write_that_failed_nothing_is_promised_and_the_volume_is_consistent(
    options: str, tmp_path: Path
) -> None:
    image = fresh(tmp_path, f"--size 64M {options}")
    with writable(image) as volume:
        volume.write(volume.create(ROOT, b"old", FILE), 0, b"A" * 20 * BLOCK)
    with open_device(image) as base:
        for moment in range(100):
            top = Above(base)
            device = FailsOnce(top)
            volume = WritableVolume(device, Policy(), Ticks(), seed=1)
            device.left = moment
            safe = what_was_made_safe(volume)
            with Volume(Above(top)) as read:
                assert_consistent(read, f"write {moment} failed")
            after = WritableVolume(Above(top), Policy(), Ticks(), seed=1)
            for name, content in safe.items():
                assert after.read_at(after.lookup(ROOT, name), 0, 1 << 20) == content, (moment, name)
            after.sync()
            with Volume(Above(after.device)) as read:
                assert_consistent(read, f"write {moment} failed, recovered")
            if device.left >= 0:
                return
            assert volume.broken
    raise AssertionError("it writes on and on")


def what_was_made_safe(volume: WritableVolume) -> dict[bytes, bytes]:
    """Write to three files, each of them synced, and on after an error: what an fsync said was safe, by name."""
    safe: dict[bytes, bytes] = {}
    for name, blocks in ((b"old", 12), (b"many", 40), (b"few", 1), (b"old", 3)):
        with suppress(DeviceError, OSError):
            ino = volume.lookup(ROOT, name) if name == b"old" else volume.create(ROOT, name, FILE)
            volume.write(ino, 0, name[:1] * blocks * BLOCK)
            now = volume.read_at(ino, 0, 1 << 20)
            volume.fsync(ino)
            safe[name] = now
    with suppress(DeviceError, OSError):
        volume.sync()
    return safe


@pytest.mark.parametrize("flags", [0, F2FS_COMPR_FL], ids=["plain", "compressed"])
@pytest.mark.parametrize("operation", ["write", "write behind", "truncate"])
def test_a_block_that_can_not_be_read_does_not_end_writing(
    operation: str, flags: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compressed file has blocks as they are too, where what is in them does not become smaller."""
    with writable(fresh(tmp_path, f"--size 64M -O {FULL},compression")) as volume:
        ino = volume.create(ROOT, b"file", FILE)
        volume.set_flags(ino, flags)
        before = noise("file", 6 * BLOCK + 500)
        volume.write(ino, 0, before)
        volume.sync()

        def change() -> None:
            if operation == "truncate":
                volume.truncate(ino, BLOCK + 10)
            else:
                volume.write(ino, *((BLOCK + 10, b"B") if operation == "write" else (6 * BLOCK + 10, b"B" * 2 * BLOCK)))

        with monkeypatch.context() as broken:
            broken.setattr(type(volume.device), "read_range", _bad_sector)
            with pytest.raises(DeviceError):
                change()
        assert volume.broken is None
        assert volume.read_at(ino, 0, 1 << 20) == before
        change()
        after = volume.read_at(ino, 0, 1 << 20)
        assert after[: BLOCK + 10] == before[: BLOCK + 10]
        assert (
            after[BLOCK + 10 :]
            == {
                "truncate": b"",
                "write": b"B" + before[BLOCK + 11 :],
                "write behind": before[BLOCK + 10 : 6 * BLOCK + 10] + b"B" * 2 * BLOCK,
            }[operation]
        )


@pytest.mark.parametrize(
    "change",
    [
        lambda volume, ino: volume.write(ino, 4000, b"B" * 100),
        lambda volume, ino: volume.write(ino, 4000, b"B" * 9000),
        lambda volume, ino: volume.truncate(ino, 9000),
        lambda volume, ino: volume.fallocate(ino, 0, 0, 9000),
        lambda volume, ino: volume.fallocate(ino, 3, 5, 100),
        lambda volume, ino: volume.fallocate(ino, 8, 0, BLOCK),
    ],
    ids=["write", "write much", "truncate", "allocate", "punch", "collapse"],
)
def test_an_inode_that_is_damaged_does_not_end_writing(
    change: Callable[[WritableVolume, int], object], tmp_path: Path
) -> None:
    """It says that it holds more than it has room for."""
    with writable(fresh(tmp_path)) as volume:
        ino = volume.create(ROOT, b"file", FILE)
        volume.write(ino, 0, b"A" * 100)
        volume.sync()
        volume.live(ino).set(i_size=5000)
        with pytest.raises(Corrupt, match="inline data of 5000 bytes"):
            change(volume, ino)
        assert volume.broken is None
        volume.live(ino).set(i_size=100)
        assert volume.read_at(ino, 0, BLOCK) == b"A" * 100


def test_a_file_whose_directory_can_not_be_read_is_not_made_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        with monkeypatch.context() as broken:
            broken.setattr(volume.names, "room", _bad_sector)
            for number in range(3):
                with pytest.raises(DeviceError):
                    volume.create(ROOT, b"file%d" % number, FILE)
                with pytest.raises(DeviceError):
                    volume.mkdir(ROOT, b"dir%d" % number, 0o755)
        volume.create(ROOT, b"file0", FILE)
    with reading(image) as volume:
        assert_consistent(volume)
        assert {entry.name for entry in volume.dirs.entries(volume.root.inode)} >= {b"file0"}
    judge(image)


def _bad_sector(*_: Any) -> None:
    raise DeviceError("a bad sector")


class OneBlockLost(Wrapper):
    """A device of which one block can't be read."""

    lost: int | None = None  # its address

    def pread_into(self, offset: int, buffer: Any) -> None:
        if self.lost is not None and offset < (self.lost + 1) * BLOCK and self.lost * BLOCK < offset + len(buffer):
            raise DeviceError(f"block {self.lost:#x} can't be read")
        self.base.pread_into(offset, buffer)


def test_nodes_that_the_nat_may_have_elsewhere_are_not_handed_out_where_it_cannot_be_read(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    names = [b"%d" % number for number in range(1000)]
    with writable(image) as volume:
        for name in names:
            volume.write(volume.create(ROOT, name, FILE), 0, name)
    with open_device(image) as base:
        top = Above(base)
        with Volume(Above(top)) as read:
            lost = int(read.nat.blkaddrs[2])  # nodes of old files, and the first free ones
        device = OneBlockLost(Above(top))
        device.lost = lost
        volume = WritableVolume(device, Policy(), Ticks(), seed=1)
        hidden = 2 * volume.geo.nat_entries_per_block + 1
        assert volume.nodes.inode(hidden - volume.geo.nat_entries_per_block).i_size == 3  # of the block before
        for _ in range(2):
            with pytest.raises(DeviceError, match="the NAT can't be read: block"):
                volume.nodes.inode(hidden)
        with pytest.raises(DeviceError, match="the NAT can't be read: block"):
            volume.create(ROOT, b"new", FILE)
        with suppress(DeviceError):
            volume.close()
        with Volume(Above(top)) as read:
            assert_consistent(read, "a block of the NAT could not be read")
            assert {file.path.strip(b"/") for file in read.root.iterdir()} >= set(names)
        reader = OneBlockLost(Above(top))
        reader.lost = lost
        with Volume(reader) as read, pytest.raises(DeviceError, match="the NAT can't be read: block"):
            read.nodes.inode(hidden)


def test_a_volume_of_which_the_sit_cannot_be_read_is_not_written_to(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        volume.write(volume.create(ROOT, b"file", FILE), 0, bytes(range(1, 256)) * 80_000)  # more than the journal has
    with open_device(image) as base:
        device = OneBlockLost(Above(base))
        with Volume(device) as read:
            device.lost = int(read.sit.blkaddrs[0])
        with pytest.raises(DeviceError, match=r"the SIT can't be read: .* not written to"):
            WritableVolume(device, Policy(), Ticks(), seed=1)


@pytest.mark.parametrize("part", ["head", "tail"])
def test_a_volume_of_which_the_newest_checkpoint_cannot_be_read_is_not_written_to(tmp_path: Path, part: str) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        volume.create(ROOT, b"in both", FILE)
        volume.sync()
        volume.create(ROOT, b"in the newest", FILE)
    with open_device(image) as base:
        for newest in (True, False):
            device = OneBlockLost(Above(base))
            with Volume(Above(base)) as read:
                pack = read.pack if newest else read.packs[1 - read.pack.index]
                device.lost = pack.blkaddr + (pack.cp.cp_pack_total_block_count - 1 if part == "tail" else 0)
            with Volume(device) as read:
                assert read.pack.index == (1 - pack.index)
            if newest or part == "head":  # by the head of the older one it is seen that it is the older one
                with pytest.raises(DeviceError, match=r"may be the newest: .*can't be read: .* not written to"):
                    WritableVolume(device, Policy(), Ticks(), seed=1)
            else:
                WritableVolume(device, Policy(), Ticks(), seed=1)


def test_a_file_without_a_name_that_can_not_be_read_keeps_nothing_else_from_being_made_safe(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with open_device(image) as base:
        device = OneBlockLost(Above(base))
        volume = WritableVolume(device, Policy(), Ticks(), seed=1)
        gone = volume.create(ROOT, b"gone", FILE)
        volume.write(gone, 0, b"x" * 1500 * BLOCK)
        volume.hold(gone)
        volume.sync()
        volume.unlink(ROOT, b"gone")
        volume.create(ROOT, b"new", FILE)
        nid = int(volume.live(gone).nids[0])
        device.lost = volume.nat.get(nid)[2]
        volume.nodes._blocks.pop(nid)  # as where memory is short
        with pytest.raises(DeviceError):
            volume.release(gone)
        volume.create(ROOT, b"newer", FILE)
        volume.finish()
        device.lost = None
        with Volume(Above(device)) as read:
            assert_consistent(read)
            assert {file.path.strip(b"/") for file in read.root.iterdir()} == {b"new", b"newer"}
            assert read.orphans().tolist() == [gone]
        again = WritableVolume(Above(device), Policy(), Ticks(), seed=1)
        again.finish()
        with Volume(Above(again.device)) as read:
            assert_consistent(read)
            assert not read.orphans().size


def test_a_write_says_how_much_is_written_before_what_cannot_be_read(tmp_path: Path) -> None:
    image, step = fresh(tmp_path), 512 * BLOCK
    with writable(image) as volume:
        ino = volume.create(ROOT, b"file", FILE)
        volume.write(ino, 0, noise("old", step + 3 * BLOCK))
    device = OneBlockLost(open_device(image, write=True))
    volume = WritableVolume(device, Policy(), Ticks(1_800_000_000 * 10**9), seed=1)
    device.lost = volume.mapper.get_one(volume.live(ino), 513)
    before = volume.live(ino).mtime_ns
    assert volume.write(ino, step - BLOCK, b"n" * (2 * BLOCK + 100)) == BLOCK
    assert volume.live(ino).mtime_ns > before
    with pytest.raises(DeviceError):
        volume.write(ino, step, b"n" * (BLOCK + 100))
    assert volume.broken is None
    device.lost = None
    assert volume.read_at(ino, step - BLOCK, 2 * BLOCK) == b"n" * BLOCK + noise("old", step + 3 * BLOCK)[step:][:BLOCK]
    volume.close()
    judge(image)


def test_a_quota_file_that_cannot_be_read_as_it_is_written_ends_no_later_checkpoint(tmp_path: Path) -> None:
    image = fresh(tmp_path, f"--size 64M -O {FULL}")
    device = OneBlockLost(open_device(image, write=True))
    volume = WritableVolume(device, Policy(), Ticks(), seed=1)
    volume.create(ROOT, b"one", FILE)
    volume.sync()
    ino = min(quota_inos(volume.sb).values())
    last = (volume.live(ino).i_size - 1) // BLOCK
    device.lost = volume.mapper.get_one(volume.live(ino), last)
    volume.create(ROOT, b"two", FILE)
    volume.sync()
    assert "can't be read" in volume.quota_lost
    volume.create(ROOT, b"three", FILE)
    volume.sync()
    assert volume.broken is None
    device.lost = None
    volume.close()
    with Volume(open_device(image)) as found:
        assert found.cp.ckpt_flags & CP_QUOTA_NEED_FSCK_FLAG
