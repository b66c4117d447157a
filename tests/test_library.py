"""f2tools as a library: what its functions take, what they raise, and what becomes of what was not closed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import f2tools
from f2tools.errors import DeviceError
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO as ROOT
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.volume.volume import File
from tests.images import copy_sparse, reference


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Two directories with a file each, whose content lies in the inode and in blocks."""
    path = tmp_path / "image"
    f2tools.make_image(path, "64M")
    with f2tools.open(path, write=True) as volume:
        for name, content in ((b"a", b"0123456789"), (b"b", b"0123456789" * 1000)):
            directory = volume.mkdir(ROOT, name, 0o755)
            volume.write(volume.create(directory, b"file", 0o644), 0, content)
    return path


# -- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/a/file", "/b/file"])
@pytest.mark.parametrize("write", [False, True])
def test_a_length_of_minus_one_is_all_and_other_negative_numbers_are_errors(
    image: Path, path: str, write: bool
) -> None:
    with f2tools.open(image, write=write) as volume:
        file: File = volume.path(path)
        whole = file.read()
        assert file.read(-1) == whole
        assert file.read(-1, 4) == file.read(None, 4) == whole[4:]
        for length, offset in ((-2, 0), (4, -4), (None, -4), (-1, -1), (0, -1)):
            with pytest.raises(OSError, match="Invalid argument") as refused:
                file.read(length, offset)
            assert refused.value.errno == errno.EINVAL


def test_a_walk_does_not_end_as_if_all_had_been_seen_when_the_volume_is_closed(image: Path) -> None:
    volume = f2tools.open(image)
    walk = volume.walk()
    assert next(walk)[0] == b"/"
    volume.close()
    with pytest.raises(DeviceError):
        list(walk)


def test_a_walk_ends_with_an_error_where_the_image_shrinks_unless_problems_are_collected(tmp_path: Path) -> None:
    path = copy_sparse(reference("base").path, tmp_path / "image")
    with f2tools.open(path) as volume:
        directories = [inode.ino for _, inode, _ in volume.walk()]
        last = max(volume.nat.get(ino)[2] for ino in directories if ino != ROOT)
        os.truncate(path, last * volume.geo.block_size)
        with pytest.raises(DeviceError, match="it shrank"):
            list(volume.walk())
        noted: list[tuple[bytes, str]] = []
        assert len(list(volume.walk("/", noted))) < len(directories)
        assert "it shrank" in noted[0][1]


# -- what is given ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["/a", b"/a", Path("/a"), ["/a"]], ids=lambda given: type(given).__name__)
def test_a_single_path_is_one_path(image: Path, tmp_path: Path, given: object) -> None:
    report = f2tools.extract(image, tmp_path / "out", given)  # type: ignore[arg-type]
    assert report.files == 1


def test_a_single_device_feature_or_key_is_one(tmp_path: Path) -> None:
    path = tmp_path / "new"
    f2tools.make_image(path, "64M", features="extra_attr")
    with f2tools.open(path) as volume:
        assert volume.geo.feature
    for arguments in ({"devices": "second.img"}, {"keys": "master.key"}):
        with pytest.raises(Exception, match=r"second\.img|master\.key"):
            f2tools.open(path, **arguments)  # type: ignore[call-overload]
    with pytest.raises(DeviceError, match=r"second\.img"):
        f2tools.check(path, "second.img")


def test_a_checkpoint_is_the_newest_or_the_older_one(image: Path) -> None:
    for write in (False, True):
        with pytest.raises(ValueError, match="'newest' or 'older', not 'foo'"):
            f2tools.open(image, checkpoint="foo", write=write)  # type: ignore[call-overload]


def test_a_field_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="NatEntry has no field 'nix'"):
        NatEntry.offset_of("nix")


def test_what_the_package_offers_is_listed() -> None:
    assert set(f2tools.__all__) <= set(dir(f2tools))
