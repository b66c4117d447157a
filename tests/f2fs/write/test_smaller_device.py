"""A volume on a device that holds less than its size: a storage layer whose space is larger than what it can map."""

from __future__ import annotations

import errno
import json
import random
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.device.base import Wrapper
from f2tools.device.media.image import FileDevice
from f2tools.errors import DeviceError, NoRoom
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import WritableVolume, discard_unneeded
from f2tools.flash.vsl import Vsl
from tests.dump.craft import f2
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.volumes import thin_layer
from tests.mkfs.tools import f2mkfs

MIB = 1 << 20
HELD = 24 * MIB
SPACE = 256 * MIB


class Silent(Wrapper):
    """A device that doesn't tell how much room it has, and is told of nothing that is free."""

    @property
    def room_bytes(self) -> int | None:
        return None

    def trim(self, offset: int, length: int) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power is cut here: what the layer has written can be read."""
    monkeypatch.setattr(FileDevice, "flush", lambda self: None)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return thin_layer(tmp_path, HELD, SPACE)


def opened(image: Path) -> Vsl:
    layer = open_device(image, write=True)
    assert isinstance(layer, Vsl)
    return layer


def content(name: str, size: int) -> bytes:
    return random.Random(name).randbytes(size)


def filled(volume: WritableVolume, prefix: str, size: int, fsync: bool = True) -> tuple[list[str], OSError]:
    """Files of that size until there is no room: the names of those that were written as a whole, and the error."""
    names: list[str] = []
    while True:
        name = f"{prefix}{len(names)}"
        try:
            ino = volume.create(F2FS_ROOT_INO, name.encode(), 0o100644)
            if volume.write(ino, 0, content(name, size)) < size:
                continue
            if fsync:
                volume.fsync(ino)
        except OSError as error:
            return names, error
        names.append(name)


def assert_there(volume: Volume, names: list[str], size: int) -> None:
    root = volume.file(F2FS_ROOT_INO) if isinstance(volume, WritableVolume) else volume.root
    for name in names:
        assert root.child(name.encode()).read() == content(name, size), name


def must_be_sound(image: Path) -> None:
    with Volume(open_device(image)) as volume:
        assert_consistent(volume)
    assert f2("vsl", "check", image).code == 0
    assert f2("fsck", image).code == 0


def overfilled(image: Path, size: int, passing: int = HELD // 2) -> list[str]:
    """The layer is filled by somebody who doesn't ask for room, up to its last block: what was fsync'ed by then.

    Before that, a file of `passing` bytes came and went, which the layer was not told of.
    """
    layer = opened(image)
    volume = WritableVolume(Silent(layer), seed=1)
    volume.write(volume.create(F2FS_ROOT_INO, b"passing", 0o100644), 0, content("passing", passing))
    volume.sync()
    volume.unlink(F2FS_ROOT_INO, b"passing")
    volume.sync()
    names: list[str] = []

    def fill() -> None:
        while True:
            name = f"last{len(names)}"
            ino = volume.create(F2FS_ROOT_INO, name.encode(), 0o100644)
            volume.write(ino, 0, content(name, size))
            volume.fsync(ino)
            names.append(name)

    with pytest.raises(NoRoom, match="clean --discard"):
        fill()
    assert volume.broken
    layer.flush()
    layer.abandon()
    return names


@pytest.mark.parametrize("size", [5000, 300_000])
def test_a_full_device_is_no_space_left_and_what_is_removed_makes_room(image: Path, size: int) -> None:
    with WritableVolume(opened(image), seed=1) as volume:
        names, error = filled(volume, "a", size)
        assert error.errno == errno.ENOSPC
        assert len(names) * (-(-size // 4096) + 1) * 4096 > HELD * 0.9
        assert not volume.broken
        for name in names[::2]:  # so that hardly any segment gets free as a whole
            volume.unlink(F2FS_ROOT_INO, name.encode())
        more, error = filled(volume, "b", size)
        assert error.errno == errno.ENOSPC
        assert len(more) > len(names) // 4
        kept = names[1::2] + more
        volume.setattr(volume.lookup(F2FS_ROOT_INO, kept[0].encode()), mode=0o600)
        volume.sync()
        assert_there(volume, kept, size)
    must_be_sound(image)
    with WritableVolume(opened(image), seed=1) as volume:
        assert_there(volume, kept, size)
        volume.unlink(F2FS_ROOT_INO, kept[0].encode())
    must_be_sound(image)


@pytest.mark.parametrize("size", [5000, 100_000])
def test_after_a_crash_of_a_full_volume_there_is_room_for_recovery(image: Path, size: int) -> None:
    layer = opened(image)
    volume = WritableVolume(layer, seed=1)
    names, _ = filled(volume, "a", size)
    layer.flush()
    layer.abandon()
    with WritableVolume(opened(image), seed=1) as volume:
        assert_there(volume, names, size)
    must_be_sound(image)


def test_files_come_and_go_through_a_device_many_times(image: Path) -> None:
    with WritableVolume(opened(image), seed=1) as volume:
        for n in range(12):
            ino = volume.create(F2FS_ROOT_INO, b"file", 0o100644)
            assert volume.write(ino, 0, content(str(n), HELD // 2)) == HELD // 2
            volume.fsync(ino)
            assert volume.file(ino).read() == content(str(n), HELD // 2)
            volume.unlink(F2FS_ROOT_INO, b"file")
    must_be_sound(image)


def test_a_full_device_is_opened_again_when_what_is_unneeded_makes_room(image: Path) -> None:
    names = overfilled(image, 100_000)
    assert names
    with WritableVolume(opened(image), seed=1) as volume:
        assert volume.recovered is not None
        assert volume.recovered.needed
        assert_there(volume, names, 100_000)
        assert volume.device.room_bytes > HELD // 4
    must_be_sound(image)


def test_what_is_unneeded_is_discarded_without_a_write(image: Path) -> None:
    names = overfilled(image, 100_000)
    with opened(image) as layer:
        before = layer.mapped_blocks
        assert discard_unneeded(Volume(layer)) > HELD
        assert layer.mapped_blocks < before - HELD // 4 // 512
        assert not layer.blocks_written
    with WritableVolume(opened(image), seed=1) as volume:  # nothing of what was fsync'ed is lost
        assert_there(volume, names, 100_000)


def test_clean_discard_empties_a_full_layer(image: Path, tmp_path: Path) -> None:
    names = overfilled(image, 100_000)
    before = image.read_bytes()
    rehearsed = f2("clean", image, "--discard", "--dry-run", "--json")
    assert rehearsed.code == 0
    assert image.read_bytes() == before
    done = f2("clean", image, "--discard", "--json", "--undo", tmp_path / "undo")
    assert done.code == 0
    assert json.loads(done.text)["discarded_bytes"] > HELD
    with Volume(open_device(image)) as volume:
        assert volume.device.room_bytes > HELD // 4
        assert_there(volume, names, 100_000)
    must_be_sound(image)


def test_a_rollback_gives_up_what_keeps_a_full_device_from_being_opened(image: Path) -> None:
    overfilled(image, 5000, passing=5000)
    assert f2("clean", image, "--discard").code == DeviceError.exit_code
    assert f2("recover", image, "--rollback").code == 0
    must_be_sound(image)


def test_of_a_plain_image_whole_segments_are_discarded(tmp_path: Path) -> None:
    image = tmp_path / "image"
    f2mkfs("-q", "--size", "64M", image)
    layer = open_device(image, write=True)
    volume = WritableVolume(layer, seed=1)
    ino = volume.create(F2FS_ROOT_INO, b"file", 0o100644)
    volume.write(ino, 0, content("file", 5 * MIB))
    volume.sync()
    volume.write(ino, 0, bytes(MIB))
    volume.fsync(ino)
    volume.write(ino, MIB, bytes(MIB))
    volume.fsync(ino)
    volume.abandon()
    with open_device(image, write=True) as device:
        assert discard_unneeded(Volume(device)) % (2 * MIB) == 0
    with WritableVolume(open_device(image, write=True), seed=1) as volume:
        assert volume.file(ino).read() == bytes(2 * MIB) + content("file", 5 * MIB)[2 * MIB :]
    with Volume(open_device(image)) as volume:
        assert_consistent(volume)
