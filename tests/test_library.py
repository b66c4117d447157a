"""f2tools as a library: what its functions take, what they raise, and what becomes of what was not closed."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import subprocess
import sys
import warnings
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
    with pytest.raises(ValueError, match="closed"):
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


# -- what is raised ---------------------------------------------------------------------------------------------------


def test_an_image_that_cannot_be_opened_says_with_which_errno(image: Path, tmp_path: Path) -> None:
    for path, number in ((tmp_path / "nowhere", errno.ENOENT), (tmp_path, errno.EISDIR), ("a\0b", errno.EINVAL)):
        with pytest.raises(DeviceError) as failed:
            f2tools.open(path)
        assert failed.value.errno == number
    assert pickle.loads(pickle.dumps(failed.value)).errno == errno.EINVAL
    with f2tools.open(image, write=True), pytest.raises(DeviceError) as failed:
        f2tools.open(image, write=True)
    assert failed.value.errno == errno.EBUSY


def test_another_program_is_told_from_this_one_where_an_image_is_being_written(image: Path) -> None:
    with f2tools.open(image, write=True):
        with pytest.raises(DeviceError, match="this program has it open for writing already; close that first"):
            f2tools.open(image, write=True)
        other = "import f2tools, sys; f2tools.open(sys.argv[1], write=True)"
        found = subprocess.run([sys.executable, "-c", other, image], capture_output=True, text=True, check=False)
        assert "another program is writing to it" in found.stderr


# -- what was not closed ----------------------------------------------------------------------------------------------


def test_a_volume_that_nobody_has_any_more_is_closed_and_said_not_to_have_been(image: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(10):
            f2tools.open(image).path("/a/file")
        writer = f2tools.open(image, write=True)
        writer.create(ROOT, b"lost", 0o644)
        del writer
        gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    assert [warning.category for warning in said] == [ResourceWarning] * 11
    assert "image: was not closed" in str(said[0].message)
    with f2tools.open(image, write=True) as again, pytest.raises(FileNotFoundError):
        again.lookup(ROOT, b"lost")


def test_a_volume_that_was_closed_says_nothing(image: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with f2tools.open(image) as volume:
            volume.path("/a/file")
        f2tools.check(image)
        del volume
        gc.collect()
