"""A volume on a storage layer that holds less than its size: what moves is there twice until a checkpoint."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from f2tools.clean.clean import NOTHING_LEFT, clean
from f2tools.defrag.block_range import NoRoom, Range, move_range
from f2tools.defrag.defrag import NO_ROOM_BELOW, Defrag
from f2tools.defrag.files import chosen_files
from f2tools.device import open_device
from f2tools.device.media.image import FileDevice
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.volume.volume import open_volume
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.resize.plan import DoesNotFit
from f2tools.resize.resize import resize
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.volumes import thin_layer, writable

MIB = 1 << 20
PIECE = 128 << 10
HELD = 24 * MIB
SPACE = 256 * MIB


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power is cut here: what the layer has written can be read."""
    monkeypatch.setattr(FileDevice, "flush", lambda self: None)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return thin_layer(tmp_path, HELD, SPACE)


def content(name: str, size: int) -> bytes:
    return random.Random(name).randbytes(size)


def interleaved(volume: WritableVolume, sizes: dict[str, int]) -> None:
    """Files of these sizes, a piece of each in turn."""
    files = [(volume.create(F2FS_ROOT_INO, name.encode(), 0o100644), content(name, sizes[name])) for name in sizes]
    for at in range(0, max(sizes.values()), PIECE):
        for ino, data in files:
            volume.write(ino, at, data[at : at + PIECE])
            volume.fsync(ino)
    volume.sync()


def half_empty(image: Path, filler: int) -> dict[str, int]:
    """Sections of which half is valid, 6 MiB in all, and a file of so many bytes; the sizes of files."""
    sizes = {f"f{index}": 2 * MIB for index in range(6)}
    with writable(image) as volume:
        interleaved(volume, sizes)
        for name in ("f0", "f2", "f4"):
            volume.unlink(F2FS_ROOT_INO, name.encode())
            del sizes[name]
        volume.sync()
        interleaved(volume, {"filler": filler})
    return sizes | {"filler": filler}


def assert_there(image: Path, sizes: dict[str, int]) -> None:
    with open_volume(image) as volume:
        for name, size in sizes.items():
            assert volume.root.child(name.encode()).read() == content(name, size), name
        assert_consistent(volume)


@pytest.mark.parametrize("ordered", [False, True])
def test_files_that_the_layer_has_no_room_for_at_once_are_moved_one_by_one(image: Path, ordered: bool) -> None:
    sizes = {f"f{index}": 2560 << 10 for index in range(6)}
    with writable(image) as volume:
        interleaved(volume, sizes)
    with writable(image) as volume:
        files = chosen_files(volume)
        run = Defrag(volume)
        outcome = run.ordered(files) if ordered else run.contiguous(files)
    assert not outcome.left
    assert all(file.fragments <= file.ideal for file in outcome.after)
    assert outcome.jumps[1] <= 2 or not ordered
    assert outcome.checkpoints > 2
    assert_there(image, sizes)


def test_a_file_of_which_the_layer_has_no_room_for_a_second_copy_is_said_to_be_left(image: Path) -> None:
    sizes = {"large": 13 * MIB, "small": 2 * MIB}
    with writable(image) as volume:
        interleaved(volume, sizes)
    with writable(image) as volume:
        outcome = Defrag(volume).contiguous(chosen_files(volume))
    assert [(file.path, why) for file, why in outcome.left] == [(b"/large", NO_ROOM_BELOW)]
    assert outcome.fragments[1] < outcome.fragments[0]
    assert_there(image, sizes)


def test_a_range_of_which_the_layer_has_no_room_for_a_second_copy_is_refused(image: Path) -> None:
    sizes = {"large": 14 * MIB}
    with writable(image) as volume:
        interleaved(volume, sizes)
    with writable(image) as volume:
        runs = chosen_files(volume)[-1].runs
        start, count = int(runs[0, 0]), int(runs[-1].sum() - runs[0, 0])
        with pytest.raises(NoRoom, match="no room for a second copy of"):
            move_range(volume, Range(start, count, volume.geo.main_blkaddr), force=True)
        assert not volume.unsaved
    assert_there(image, sizes)


def test_cleaning_gives_back_what_it_emptied_when_the_layer_needs_it(image: Path) -> None:
    sizes = half_empty(image, 12 * MIB)
    with writable(image) as volume:
        volume.win_room()
        assert (volume.device.room_bytes or 0) < 6 * MIB
        outcome = clean(volume)
    assert outcome.stopped == NOTHING_LEFT
    assert outcome.data_blocks >= 6 * MIB // 4096
    assert_there(image, sizes)


def test_shrinking_gives_back_what_it_emptied_when_the_layer_needs_it(image: Path) -> None:
    sizes = {"one": 15 * MIB}
    with writable(image) as volume:
        interleaved(volume, {"gone": 4 * MIB, **sizes})
    with open_device(image, write=True) as device:
        resize(device, 100 * MIB)
    assert_there(image, sizes)


def test_a_layer_without_room_to_move_blocks_is_why_a_volume_does_not_shrink(image: Path) -> None:
    sizes = {"one": 21 * MIB}
    with writable(image) as volume:
        interleaved(volume, sizes)
    with open_device(image, write=True) as device, pytest.raises(DoesNotFit, match="storage layer has no room"):
        resize(device, 100 * MIB)
    assert_there(image, sizes)
