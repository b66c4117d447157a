"""What a kernel does and our engine doesn't: inodes that are written before their data; nothing of it is certain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from f2tools.forensics.undelete import Found
from tests.f2fs.write.workload import noise
from tests.forensics.past_of import HOUR, ROOT, Life, living, undeleted

OLD, NEW = noise(1, 20_000), noise(2, 20_000)


def checkpoint(life: Life) -> None:
    """As the kernel makes one by itself: with the inodes, but without the data that waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(life.volume.files, "write_back_all", lambda: None)
        life.volume.checkpoint()


def lost_data(directory: Path, before: Callable[[Life], None], after: Callable[[Life, int], None]) -> Found:
    """A file in a directory of which the data was never written, both deleted a second later; what is said of it."""
    with living(directory) as (life, image):
        volume = life.volume
        before(life)
        above = volume.mkdir(ROOT, b"above", 0o755)
        ino = life.file(b"file", NEW, above)
        after(life, ino)
        checkpoint(life)
        life.clock.now += 10**9
        volume.files.drop_pages(ino)
        volume.unlink(above, b"file")
        volume.rmdir(ROOT, b"above")
        life.later()
        life.file(b"something else", b"x")
        life.later()
    return undeleted(image)["above/file"]


def nothing(*_: object) -> None:
    """Nothing is done."""


def clock_goes_back(life: Life) -> None:
    life.file(b"of tomorrow", b"x")
    life.volume.sync()
    life.clock.now -= 24 * HOUR


def times_of_a_copy(life: Life, ino: int) -> None:
    """As cp -p sets them."""
    life.volume.set_times(ino, 10**18, 10**18)


@pytest.mark.parametrize(
    ("before", "after"), [(nothing, nothing), (clock_goes_back, nothing), (nothing, times_of_a_copy)]
)
def test_a_file_whose_data_waited_when_its_directory_went(
    tmp_path: Path, before: Callable[[Life], None], after: Callable[[Life, int], None]
) -> None:
    found = lost_data(tmp_path, before, after)
    assert found.grade == "probable"
    assert found.reasons == ["some blocks were reserved and not written yet"]


def test_an_fdatasync_that_leaves_the_mtime_as_it_was(tmp_path: Path) -> None:
    """The kernel writes the addresses, not the times: the content is newer than they say."""
    with living(tmp_path, ipu="never") as (life, image):
        volume = life.volume
        ino = life.file(b"file", OLD)
        volume.fsync(ino)
        mtime = volume.live(ino).mtime_ns
        volume.write(ino, 0, NEW)
        volume.set_times(ino, mtime, mtime)
        volume.fsync(ino)
        volume.unlink(ROOT, b"file")
        life.later()
    found = undeleted(image)["file"]
    assert found.grade == "probable"
    assert "newer" in found.reasons[0]


def test_a_file_that_left_its_inode_is_written_as_it_was_before(tmp_path: Path) -> None:
    """The kernel writes the first block at once, without the change that made it leave."""
    with living(tmp_path) as (life, image):
        volume = life.volume
        ino = life.file(b"file", OLD[:60])
        volume.fsync(ino)
        inode = volume.live(ino)
        volume.files.convert_inline(inode)
        volume.files.write_back(inode)
        volume.write(ino, 0, NEW[:4096])
        checkpoint(life)
        volume.files.drop_pages(ino)
        volume.unlink(ROOT, b"file")
        life.later()
    found = undeleted(image)["file"]
    assert found.inode is not None
    assert found.inode.size == 4096
    assert found.grade == "probable"
