"""Files that are open without a name: no more than a checkpoint holds, which whoever makes one too many is told."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import f2tools
from f2tools.errors import F2fsError
from f2tools.f2fs.write.checkpoint import Committer
from f2tools.f2fs.write.volume import WritableVolume, open_for_writing
from tests.f2fs.write.volumes import fresh

ROOT = 3
MOST = 4


@pytest.fixture
def _room_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Committer, "max_orphans", MOST)


@contextmanager
def full(image: Path) -> Iterator[WritableVolume]:
    """A volume with as many files without a name as there may be, and some that are held, with a name."""
    with open_for_writing(image) as volume:
        for number in range(MOST):
            volume.hold(volume.tmpfile(ROOT, 0o600))
            name = b"%d" % number
            volume.hold(volume.create(ROOT, name, 0o600))
        volume.hold(volume.mkdir(ROOT, b"directory", 0o700))
        volume.create(ROOT, b"closed", 0o600)
        volume.sync()
        yield volume


WAYS: dict[str, Callable[[WritableVolume], object]] = {
    "tmpfile": lambda volume: volume.tmpfile(ROOT, 0o600),
    "unlink": lambda volume: volume.unlink(ROOT, b"0"),
    "rename": lambda volume: volume.rename(ROOT, b"closed", ROOT, b"0"),
    "rmdir": lambda volume: volume.rmdir(ROOT, b"directory"),
}


@pytest.mark.usefixtures("_room_for_few")
@pytest.mark.parametrize("way", WAYS)
def test_one_too_many_is_refused_and_nothing_else_is_lost(way: str, tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with full(image) as volume:
        volume.write(volume.lookup(ROOT, b"1"), 0, b"precious")
        with pytest.raises(OSError, match="No space left") as refused:
            WAYS[way](volume)
        assert refused.value.errno == errno.ENOSPC
        volume.sync()
        volume.release(volume.nameless[0])
        WAYS[way](volume)
        volume.sync()
    with f2tools.open(image) as volume:
        assert volume.path("/1").read() == b"precious"


@pytest.mark.usefixtures("_room_for_few")
def test_names_that_leave_no_such_file_still_go(tmp_path: Path) -> None:
    with full(fresh(tmp_path)) as volume:
        volume.link(volume.lookup(ROOT, b"0"), ROOT, b"other")
        volume.unlink(ROOT, b"0")  # it has another one
        volume.unlink(ROOT, b"closed")  # nobody holds it
        volume.sync()


@pytest.mark.parametrize("options", ["--size 64M", "--size 64M -i", "--size 64G"])
def test_a_checkpoint_holds_as_many_as_the_kernel_says(options: str, tmp_path: Path) -> None:
    """max_orphans of the kernel, and one more."""
    with open_for_writing(fresh(tmp_path, options)) as volume:
        most = (512 - 2 - 6 - volume.geo.cp_payload) * 1020
        assert volume.committer.max_orphans == most
        volume.committer.write(np.arange(4, most + 4, dtype=np.uint32), unmount=False)
        with pytest.raises(F2fsError, match="don't fit into a checkpoint"):
            volume.committer.write(np.arange(4, most + 5, dtype=np.uint32), unmount=False)
        volume.abandon()
