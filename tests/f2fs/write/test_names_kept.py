"""The names of a directory that is asked often are kept: when, and that they say what looking would."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.volume.dentries import DentryArea, name_hash
from f2tools.f2fs.write import dir
from f2tools.f2fs.write.dir import Directories
from f2tools.f2fs.write.volume import WritableVolume
from tests.f2fs.write.volumes import fresh, writable

NAMES = [b"name-%05d" % number for number in range(3000)]


@pytest.fixture
def read_whole(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The directories that were read whole."""
    read: list[int] = []
    areas = Directories.areas

    def noted(self: Directories, inode: Any, first: int = 0) -> Iterator[Any]:
        read.append(inode.ino)
        return areas(self, inode, first)

    monkeypatch.setattr(Directories, "areas", noted)
    return read


def large(image: Path, top: int = F2FS_ROOT_INO) -> int:
    """A directory with NAMES; its inode number."""
    with writable(image) as volume:
        made = volume.mkdir(top, b"large", 0o755, 0, 0)
        for name in NAMES:
            volume.create(made, name, stat.S_IFREG | 0o644, 0, 0)
    return made


def found(volume: WritableVolume, ino: int, names: list[bytes]) -> list[int | None]:
    places = (volume.names.find(volume.live(ino), name) for name in names)
    return [None if place is None else place.ino for place in places]


def test_a_few_look_ups_do_not_read_a_whole_large_directory(tmp_path: Path, read_whole: list[int]) -> None:
    image = fresh(tmp_path)
    ino = large(image)
    with writable(image) as volume:
        blocks = -(-volume.live(ino).i_size // 4096)
        assert blocks > 20
        read_whole.clear()
        assert None not in found(volume, ino, NAMES[: blocks - 1])
        assert not read_whole
        assert None not in found(volume, ino, NAMES[-1:])
        assert read_whole == [ino]


def test_names_that_are_kept_are_those_that_looking_finds(tmp_path: Path, read_whole: list[int]) -> None:
    image = fresh(tmp_path)
    ino = large(image)
    some = [*NAMES, b"not there", b".", b".."]
    with writable(image) as volume:
        volume.names._asked[ino] = -(10**9)
        by_looking = found(volume, ino, some)
    with writable(image) as volume:
        found(volume, ino, NAMES)
        read_whole.clear()
        assert found(volume, ino, some) == by_looking
        assert not read_whole
        assert len(volume.names._names[ino].places) == len(NAMES)


def test_names_are_not_kept_where_one_lies_in_a_block_in_which_no_look_up_comes(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    ino = large(image)
    name = NAMES[7] + b"x"
    code = name_hash(name)
    with writable(image) as volume:
        directory, names = volume.live(ino), volume.names
        right = set(names._bucket(directory, code))
        rooms = ((number, DentryArea(area).room_for(2)) for number, area in names.areas(directory))
        number, slot = next((number, slot) for number, slot in rooms if slot is not None and number not in right)
        names._data.load(directory, number)
        DentryArea(names._data.page(directory, number)).put(slot, name, code, ino, 1)
        assert found(volume, ino, [*NAMES, name])[-1] is None
        assert ino not in names._names
        assert None not in found(volume, ino, NAMES)
        volume.abandon()


def test_no_more_names_are_kept_than_fit_however_a_directory_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = 2000
    monkeypatch.setattr(dir, "NAMES_HELD", held)
    with writable(fresh(tmp_path)) as volume:

        def kept() -> int:
            return sum(len(names.places) for names in volume.names._names.values())

        grown, small = (volume.mkdir(F2FS_ROOT_INO, name, 0o755, 0, 0) for name in (b"grown", b"small"))
        most = 0
        for name in NAMES:
            volume.names.find(volume.live(grown), name)
            volume.create(grown, name, stat.S_IFREG | 0o644, 0, 0)
            most = max(most, kept())
        assert held // 2 < most <= held
        assert None not in found(volume, grown, NAMES)
        for name in NAMES[:1500]:
            volume.create(small, name, stat.S_IFREG | 0o644, 0, 0)
        found(volume, small, NAMES[:1500])
        assert kept() == volume.names._names_held == 1500, "a directory that is small enough is kept"
        for name in NAMES[:100]:
            volume.unlink(small, name)
        assert kept() == volume.names._names_held == 1400
