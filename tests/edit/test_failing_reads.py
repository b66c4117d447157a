"""A command that changes an image of which something can't be read: it is done, or says why not, and changes nothing.

Each read of the image fails in turn, once and from then on: some of them, all with $F2_REFUSALS.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from f2tools.device import open_device
from f2tools.device.media.image import FileDevice
from f2tools.errors import DeviceError
from tests.dump.craft import Result, f2
from tests.f2fs.write.refusals import PEOPLE, image, timeless
from tests.f2fs.write.test_no_room import safe_tree
from tests.images import copy_sparse

ALL, SOME = bool(os.environ.get("F2_REFUSALS")), 2
COMMANDS: dict[str, tuple[str, ...]] = {
    "cp": ("cp", "{host}/file", "{image}:/d/new"),
    "cp over": ("cp", "{host}/file", "{image}:/large"),
    "cp a tree": ("cp", "-a", "{host}/.", "{image}:/e"),
    "cp a tree out of the inode": ("cp", "-r", "{host}/tree", "{image}:/tight"),
    "cp inside": ("cp", "-a", "{image}:/large", "{image}:/tight/copy"),
    "cp a tree inside": ("cp", "-a", "{image}:/d", "{image}:/e"),
    "cp attributes inside": ("cp", "-a", "{image}:/attributes", "{image}:/acl"),
    "cp clusters inside": ("cp", "-a", "{image}:/packed", "{image}:/d/copy"),
    "mv": ("mv", "{image}:/d/f", "{image}:/e"),
    "mv over": ("mv", "{image}:/d/f", "{image}:/large"),
    "mv a directory": ("mv", "{image}:/d", "{image}:/blocks"),
    "ln": ("ln", "{image}:/large", "{image}:/blocks/new"),
    "ln -s": ("ln", "-sf", "somewhere", "{image}:/large"),
    "mkdir -p": ("mkdir", "-p", "{image}:/d/one/two/three"),
    "rm": ("rm", "{image}:/large"),
    "rm -r": ("rm", "-r", "{image}:/d", "{image}:/blocks"),
    "mknod": ("mknod", "{image}:/tight/null", "c", "1", "3"),
    "chmod": ("chmod", "-R", "u+x", "{image}:/acl", "{image}:/d"),
    "chown": ("chown", "-R", f"{PEOPLE + 5}:7", "{image}:/d", "{image}:/large"),
    "touch": ("touch", "-d", "2024-05-06", "{image}:/large", "{image}:/new"),
    "truncate": ("truncate", "-s", "5000", "{image}:/large"),
    "truncate to more": ("truncate", "-s", "5M", "{image}:/d/f"),
    "setfattr": ("setfattr", "-n", "user.new", "-v", "0s" + "QUJD" * 200, "{image}:/attributes"),
    "setfacl": ("setfacl", "-m", "u:5:rw", "{image}:/acl"),
    "chattr": ("chattr", "+c", "{image}:/empty"),
    "load": ("load", "{image}", "--from", "{host}"),
    "edit": ("edit", "{image}", "-c", "rm /large", "-c", "mkdir /new", "-c", "mv /d /new", "-c", "chmod 700 /new/d/f"),
}  # fmt: skip


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A tree outside."""
    random_ = random.Random(1)
    host = tmp_path / "host"
    (host / "tree" / "below").mkdir(parents=True)
    (host / "file").write_bytes(random_.randbytes(70_000))
    for n in range(12):
        (host / "tree" / f"{n:02} {'a long name ' * 15}").write_bytes(random_.randbytes(n * 1000))
    (host / "tree" / "below" / "link").symlink_to("../file")
    os.link(host / "file", host / "tree" / "below" / "second")
    return host


class Reads:
    """Counts the reads of one file, and lets one of them fail, once, or `ever` after at its place."""

    def __init__(self, path: Path, refused: int = -1, ever: bool = False) -> None:
        self.path, self.refused, self.ever = path, refused, ever
        self.count = 0
        self.bad: int | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        real = FileDevice.pread_into

        def pread_into(device: Any, offset: int, buffer: Any) -> None:
            if device.name == str(self.path):
                self.count += 1
                if self.count == self.refused + 1:
                    self.bad = offset
                hit = self.ever and self.bad is not None and offset <= self.bad < offset + memoryview(buffer).nbytes
                if hit or self.count == self.refused + 1:
                    raise DeviceError(f"{self.path}: a bad sector at {offset}")
            real(device, offset, buffer)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(FileDevice, "pread_into", pread_into)
            yield


def done(name: str, path: Path, host: Path, reads: Reads) -> Result:
    words = [word.format(image=path, host=host) for word in COMMANDS[name]]
    with reads.watched():
        return f2(*words)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_cant_read_something_changes_nothing_or_is_done(name: str, host: Path, tmp_path: Path) -> None:
    path = tmp_path / "card.img"

    def fresh() -> None:
        path.unlink(missing_ok=True)
        copy_sparse(image(), path)

    fresh()
    before, reads = digest(path), Reads(path)
    assert done(name, path, host, reads).code == 0
    after = timeless(safe_tree(open_device(path)))
    cases = [(number, ever) for number in range(reads.count) for ever in (False, True)]
    for number, ever in cases if ALL else random.Random(name).sample(cases, SOME):
        fresh()
        ended = done(name, path, host, Reads(path, number, ever))
        print(f"{name}: read {number} of {reads.count} fails{' ever after' * ever}: {ended.code} {ended.err}")
        if ended.code:
            assert "a bad sector" in ended.err
            assert digest(path) == before
        else:
            if "quota is not counted any more and marked as out of date" in ended.err:
                assert f2("fsck", "-y", path).code == 1
            assert timeless(safe_tree(open_device(path))) == after
