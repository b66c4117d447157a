"""An operation that ends in its midst, whatever ended it: nothing of it reaches the image, and nobody is left to guess.

What is refused before anything changes leaves the volume as it was, and writing goes on.
"""

from __future__ import annotations

import errno
import stat
import struct
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import f2tools
from f2tools.edit.errors import EditFailed
from f2tools.edit.transaction import Edit
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO as ROOT
from f2tools.f2fs.write.node import LiveInode
from f2tools.f2fs.write.volume import WritableVolume
from tests.f2fs.write.model import BLOCK
from tests.f2fs.write.volumes import fresh, writable
from tests.f2fs.write.workload import FILE
from tests.images import copy_sparse

Call = Callable[[WritableVolume], object]
REFUSED: dict[str, Call] = {
    "owner below 0": lambda volume: volume.create(ROOT, b"new", FILE, uid=-1),
    "owner beyond 32 bits": lambda volume: volume.create(ROOT, b"new", FILE, gid=1 << 32),
    "owner that chown takes for none": lambda volume: volume.create(ROOT, b"new", FILE, uid=(1 << 32) - 1),
    "owner that is no number": lambda volume: volume.create(ROOT, b"new", FILE, uid="root"),  # type: ignore[arg-type]
    "owner of a directory": lambda volume: volume.mkdir(ROOT, b"new", 0o755, gid=1 << 32),
    "owner of a link": lambda volume: volume.symlink(ROOT, b"new", b"target", uid=-1),
    "owner of no name": lambda volume: volume.tmpfile(ROOT, FILE, uid=-1),
    "mode beyond 16 bits": lambda volume: volume.create(ROOT, b"new", 0o200000),
    "mode below 0": lambda volume: volume.create(ROOT, b"new", -1),
    "device beyond 32 bits": lambda volume: volume.create(ROOT, b"new", stat.S_IFCHR, rdev=(1 << 12, 0)),
    "name in characters": lambda volume: volume.create(ROOT, "new", FILE),  # type: ignore[arg-type]
    "name that can change": lambda volume: volume.create(ROOT, bytearray(b"new"), FILE),  # type: ignore[arg-type]
    "target in characters": lambda volume: volume.symlink(ROOT, b"new", "target"),  # type: ignore[arg-type]
    "target with a NUL": lambda volume: volume.symlink(ROOT, b"new", b"tar\0get"),
    "new owner": lambda volume: volume.setattr(ROOT, uid=1 << 32),
    "new owner that chown takes for none": lambda volume: volume.setattr(ROOT, gid=(1 << 32) - 1),
    "time beyond 64 bits": lambda volume: volume.setattr(ROOT, mtime_ns=1 << 100),
    "time that is no number": lambda volume: volume.set_times(ROOT, atime_ns=1.5),  # type: ignore[arg-type]
    "project": lambda volume: volume.set_projid(ROOT, -1),
    "size that is no number": lambda volume: volume.truncate(volume.lookup(ROOT, b"file"), 1.5),  # type: ignore[arg-type]
    "value in characters": lambda volume: volume.setxattr(ROOT, "user.a", "value"),  # type: ignore[arg-type]
    "name that is taken": lambda volume: volume.mkdir(ROOT, b"file", 0o755),
    "name that is not there": lambda volume: volume.unlink(ROOT, b"nowhere"),
    "inode that is not there": lambda volume: volume.write(99999, 0, b"x"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_changes_nothing_and_writing_goes_on(tmp_path: Path, what: str) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        volume.create(ROOT, b"file", FILE)
        with pytest.raises(Exception) as refused:
            REFUSED[what](volume)
        assert not isinstance(refused.value, struct.error)
        assert volume.broken is None
        volume.create(ROOT, b"after", FILE)
    assert f2tools.check(image).findings == []
    with f2tools.open(image) as read:
        assert sorted(child.path for child in read.root.iterdir()) == [b"/after", b"/file"]


def filled(volume: WritableVolume) -> None:
    """A small directory and a large one, a file with content in the inode and one with many blocks."""
    for name in (b"small", b"large"):
        directory = volume.mkdir(ROOT, name, 0o755)
        for number in range(600 if name == b"large" else 3):
            volume.write(volume.create(directory, b"file-%d" % number, FILE), 0, b"%d" % number)
    volume.write(volume.create(ROOT, b"blocks", FILE), 0, bytes(range(256)) * 16 * 1100)


def at(volume: WritableVolume, path: str) -> int:
    return volume.path(path).inode.ino


CHANGES: dict[str, Call] = {
    "create": lambda volume: volume.create(at(volume, "/large"), b"new", FILE),
    "create, out of the inode": lambda volume: volume.create(at(volume, "/small"), b"n" * 255, FILE),
    "mkdir": lambda volume: volume.mkdir(ROOT, b"new", 0o755),
    "symlink": lambda volume: volume.symlink(ROOT, b"new", b"t" * 4000),
    "device": lambda volume: volume.create(ROOT, b"new", stat.S_IFCHR, rdev=(8, 300)),
    "write": lambda volume: volume.write(at(volume, "/small/file-1"), 0, b"x" * 9000),
    "write into a page": lambda volume: volume.write(at(volume, "/small/file-1"), 3000, b"x" * 4000),
    "write runs": lambda volume: volume.write(at(volume, "/blocks"), 5, b"x" * 70 * BLOCK),
    "truncate": lambda volume: volume.truncate(at(volume, "/blocks"), 900 * BLOCK + 5),
    "fallocate": lambda volume: volume.fallocate(at(volume, "/blocks"), 3, BLOCK, 1000 * BLOCK),
    "unlink": lambda volume: volume.unlink(ROOT, b"blocks"),
    "rename": lambda volume: volume.rename(at(volume, "/large"), b"file-9", ROOT, b"blocks"),
    "exchange": lambda volume: volume.rename(ROOT, b"small", at(volume, "/large"), b"file-9", 2),
    "link": lambda volume: volume.link(at(volume, "/blocks"), at(volume, "/large"), b"new"),
    "setxattr": lambda volume: volume.setxattr(at(volume, "/blocks"), "user.a", b"x" * 3000),
    "setattr": lambda volume: volume.setattr(at(volume, "/blocks"), mode=0o600, uid=7, mtime_ns=5),
    "fsync": lambda volume: volume.fsync(at(volume, "/blocks")),
    "sync": lambda volume: volume.sync(),
}


class Alarm:
    """Raises an error at the n-th line of the engine, as the handler of a signal may."""

    def __init__(self, moment: int, error: BaseException) -> None:
        self.left = moment
        self._error = error

    def __call__(self, frame: FrameType, event: str, _: Any) -> Alarm | None:
        if "/f2tools/f2fs/" not in frame.f_code.co_filename:
            return None
        if event in ("call", "line"):
            self.left -= 1
            if self.left == 0:
                raise self._error
        return self

    def during(self, do: Callable[[], object]) -> bool:
        """Whether it went off, or `do` came to its end before."""
        sys.settrace(self)
        try:
            do()
        except type(self._error):
            return True
        finally:
            sys.settrace(None)
        return False


@pytest.mark.parametrize("what", CHANGES)
def test_an_operation_that_was_cut_off_never_leaves_a_damaged_volume(tmp_path: Path, what: str) -> None:
    base = tmp_path / "base"
    fresh(tmp_path, name="base")
    with writable(base) as volume:
        filled(volume)
    assert any(_stopped(base, what, each) for each in (6, 24, 96))  # closer where the change was not met


def _stopped(base: Path, what: str, each: int) -> int:
    """Cut an operation off at moments that lie apart by a fraction of the time until then; how many ended writing."""
    moment, stopped = 1, 0
    errors = (KeyboardInterrupt(), TimeoutError("too slow"), MemoryError())
    while True:
        image = copy_sparse(base, base.with_name("image"))
        volume = writable(image)
        volume.create(ROOT, b"first", FILE)  # of which nothing may be left where the operation was cut off
        alarm = Alarm(moment, errors[moment % len(errors)])
        went_off = alarm.during(partial(CHANGES[what], volume))
        if volume.broken is None:
            volume.close()
        else:
            stopped += 1
            with pytest.raises(OSError, match=r"what was not made safe before is lost.*open it again") as said:
                volume.close()
            assert said.value.errno == errno.EROFS
        with f2tools.open(image, write=True):
            pass  # brings back what was fsync'ed
        assert f2tools.check(image).findings == [], f"{what}, cut off at line {moment}"
        if not went_off:
            return stopped
        moment += max(1, moment // each)


def test_an_operation_that_fails_midway_for_an_unknown_reason_is_named_when_the_volume_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = fresh(tmp_path)

    def fails(*_: object) -> None:
        raise ValueError("a bug")

    volume = writable(image)
    volume.create(ROOT, b"first", FILE)
    with monkeypatch.context() as patched:
        patched.setattr(LiveInode, "stamp", fails)
        with pytest.raises(ValueError, match="a bug"):
            volume.create(ROOT, b"second", FILE)
    with pytest.raises(OSError, match="read-only") as refused:
        volume.create(ROOT, b"third", FILE)
    assert refused.value.errno == errno.EROFS
    with pytest.raises(OSError, match=r"cut off by ValueError \(a bug\)"):
        volume.close()
    with f2tools.open(image) as read:
        assert list(read.root.iterdir()) == []


def test_a_symbolic_link_for_whose_target_there_is_no_room_leaves_no_name(tmp_path: Path) -> None:
    with writable(fresh(tmp_path)) as volume:
        volume.create(ROOT, b"full", FILE)
        with pytest.MonkeyPatch.context() as patched:

            def full(*_: object) -> None:
                raise OSError(errno.EDQUOT, "quota")

            patched.setattr(volume.files, "write", full)
            with pytest.raises(OSError, match="quota"):
                volume.symlink(ROOT, b"link", b"target")
        assert volume.broken is None
        with pytest.raises(FileNotFoundError):
            volume.lookup(ROOT, b"link")
    assert f2tools.check(tmp_path / "image").findings == []


def test_an_edit_with_an_operation_that_was_cut_off_leaves_the_image_byte_for_byte(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    before = image.read_bytes()
    edit = Edit(str(image))
    edit.volume.create(ROOT, b"first", FILE)
    edit.volume.checkpoint()
    assert Alarm(300, KeyboardInterrupt()).during(partial(CHANGES["mkdir"], edit.volume))
    assert edit.volume.broken is not None
    with pytest.raises(EditFailed, match="what was not made safe before is lost"):
        edit.__exit__()
    assert image.read_bytes() == before
