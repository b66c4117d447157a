"""A mount on a disk of which something can't be read: the call fails that needed it, and nothing else.

Each read of the image fails in turn, once and from then on, while one system call is made: some of them, all with
$F2_MOUNT_READS.  The mount goes on; what failed is done once the fault is gone; what is fsync'ed is there, the tree is
the one that a mount without the fault leaves, and the checkers are silent.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from f2tools.device import open_device
from f2tools.f2fs.volume.volume import Volume
from f2tools.fuse.options import SERVERS
from tests.dump.craft import f2
from tests.f2fs.write.refusals import BLOCK, LONG, image, seen, timeless
from tests.f2fs.write.test_no_room import safe_tree
from tests.f2fs.write.volumes import judge
from tests.f2fs.write.workload import noise
from tests.images import copy_sparse
from tests.mount.failing import COUNT, HITS, FailingMount, Faults, failing_mount

ALL, SOME = bool(os.environ.get("F2_MOUNT_READS")), 1
UNREADABLE = (errno.EIO, errno.EUCLEAN)
Call = Callable[[Path], Any]
MANY = "03 " + "a long name " * 20
QUOTA_GIVEN_UP = "quota is not counted any more and marked as out of date"
MARK = b"what was made safe"


def opened(path: Path, flags: int, use: Callable[[int], Any]) -> Any:
    """Use an open file; an error of close counts."""
    fd = os.open(path, flags, 0o644)
    try:
        found = use(fd)
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return found


def read(path: Path) -> bytes:
    def all_of_it(fd: int) -> bytes:
        found = b""
        while more := os.pread(fd, 1 << 17, len(found)):  # fewer bytes where what comes next can't be read
            found += more
        return found

    return opened(path, os.O_RDONLY, all_of_it)


def written(path: Path, at: int, data: bytes, then: Callable[[int], Any] = os.fsync) -> Any:
    def write(fd: int) -> Any:
        done = 0
        while done < len(data):  # fewer bytes where what comes next can't be read
            done += os.pwrite(fd, data[done:], at + done)
        then(fd)

    return opened(path, os.O_WRONLY, write)


CALLS: dict[str, Call] = {
    "lookup": lambda top: os.lstat(top / "blocks" / MANY).st_size,
    "no such name": lambda top: os.path.exists(top / "blocks" / "nobody"),
    "listdir": lambda top: sorted(os.listdir(top / "blocks")),
    "list and stat": lambda top: sorted(entry.name for entry in os.scandir(top) if entry.stat(follow_symlinks=False)),
    "read": lambda top: read(top / "large"),
    "read a cluster": lambda top: read(top / "packed"),
    "write": lambda top: written(top / "large", 5, noise("new", 3 * BLOCK)),
    "write behind the end": lambda top: written(top / "cut", 10 * BLOCK, b"new" * 700, lambda fd: None),
    "write far": lambda top: written(top / "large", 700 * BLOCK + 5, noise("new", 3 * BLOCK)),
    "write to a cluster": lambda top: written(top / "packed", 5 * BLOCK + 7, noise("new", 100)),
    "create": lambda top: opened(top / "blocks" / "new", os.O_CREAT | os.O_EXCL | os.O_RDWR, lambda fd: None),
    "create out of the inode": lambda top: opened(top / "tight" / os.fsdecode(LONG), os.O_CREAT | os.O_EXCL | os.O_RDWR,
                                                  os.fsync),
    "mkdir": lambda top: os.mkdir(top / "acl" / "new"),
    "symlink": lambda top: os.symlink("d/f", top / "folded" / "new"),
    "link": lambda top: os.link(top / "d" / "f", top / "blocks" / "new"),
    "unlink": lambda top: os.unlink(top / "blocks" / MANY),
    "unlink a large file": lambda top: os.unlink(top / "large"),
    "rmdir": lambda top: os.rmdir(top / "d" / "empty"),
    "rename": lambda top: os.rename(top / "d" / "f", top / "blocks" / "new"),
    "rename over": lambda top: os.rename(top / "d" / "f", top / "large"),
    "truncate": lambda top: os.truncate(top / "large", 5 * BLOCK + 5),
    "truncate to more": lambda top: os.truncate(top / "cut", 1 << 20),
    "fsync of a directory": lambda top: opened(top / "d", os.O_RDONLY | os.O_DIRECTORY, os.fsync),
    "statfs": lambda top: os.statvfs(top / "project").f_bsize,
    "chmod": lambda top: os.chmod(top / "acl", 0o750),
    "chown": lambda top: os.chown(top / "large", 2000, 2000),
    "setxattr": lambda top: os.setxattr(top / "attributes", "user.new", noise("new", 500)),
    "getxattr": lambda top: os.getxattr(top / "attributes", "user.a2"),
    "removexattr": lambda top: os.removexattr(top / "attributes", "user.a2"),
}  # fmt: skip

SERVED = [
    (name, server) for at, name in enumerate(CALLS) for server in (SERVERS if ALL else SERVERS[at % len(SERVERS) :][:1])
]


def done(call: Call, top: Path) -> tuple[Any, int]:
    """(what a call returns, its errno or 0)."""
    try:
        return call(top), 0
    except OSError as error:
        return None, error.errno or errno.EIO


def tree(path: Path) -> Any:
    with Volume(open_device(path)) as volume:
        return timeless(seen(volume))


class Case:
    """One call on a fresh image, with one read that fails, if any."""

    def __init__(self, directory: Path, name: str, server: str) -> None:
        self.path, self.top = directory / "card.img", directory / "mnt"
        self.name, self.call, self.server, self.faults = name, CALLS.get(name), server, Faults()

    def run(self, refused: int = -1, ever: bool = False) -> tuple[int, Any, Any, str]:
        """(how many reads the call made, what it returned, the tree that is left, what the server said)."""
        self.path.unlink(missing_ok=True)
        copy_sparse(image(), self.path)
        with failing_mount(self.path, self.top, self.server, self.faults) as mount:
            shown = self._called(mount, refused, ever)
            code = mount.unmount()
            assert code == 0, mount.said()
            assert "Traceback" not in mount.said()
            assert "read-only" not in mount.said()
        if QUOTA_GIVEN_UP in mount.said():
            assert f2("fsck", "-y", self.path).code == 1
        judge(self.path)
        return self.faults[COUNT], shown, tree(self.path), mount.said()

    def _called(self, mount: FailingMount, refused: int, ever: bool) -> Any:
        assert self.call is not None
        with self.faults.watched(refused, ever):
            shown, number = done(self.call, mount.directory)
            if ever and number:
                assert done(self.call, mount.directory)[1] in UNREADABLE
        hits = self.faults[HITS]
        print(f"{self.name} on {self.server}: read {refused} fails{' ever after' * ever}: {number} after {hits} hits")
        assert number in (UNREADABLE if hits else ()) or number == 0, os.strerror(number)
        if number:
            shown, number = done(self.call, mount.directory)
            assert number == 0, f"when all can be read again: {os.strerror(number)}\n{mount.said()}"
        (mount.directory / "safe").write_bytes(MARK)
        opened(mount.directory / "safe", os.O_RDWR, os.fsync)
        return shown


@pytest.mark.parametrize(("name", "server"), SERVED)
def test_what_cant_be_read_ends_the_call_and_nothing_else(name: str, server: str, tmp_path: Path) -> None:
    case = Case(tmp_path, name, server)
    count, shown, left, said = case.run()
    assert not said
    cases = [(number, ever) for number in range(count) for ever in (False, True)]
    for number, ever in cases if ALL else random.Random(name).sample(cases, min(len(cases), SOME)):
        _, now_shown, now_left, _ = case.run(number, ever)
        assert now_shown == shown
        assert now_left == left


@pytest.mark.parametrize("server", SERVERS if ALL else SERVERS[1:])
def test_what_cant_be_read_at_the_end_costs_nothing_that_was_safe(server: str, tmp_path: Path) -> None:
    path, faults = tmp_path / "card.img", Faults()

    def ended(refused: int, ever: bool) -> int:
        path.unlink(missing_ok=True)
        copy_sparse(image(), path)
        with failing_mount(path, tmp_path / "mnt", server, faults) as mount:
            written(mount.directory / "empty", 0, MARK)
            with open(mount.directory / "large", "rb"):
                os.unlink(mount.directory / "large")
            for number in range(20):
                (mount.directory / "blocks" / f"{number} {MANY}").touch()
            os.unlink(mount.directory / "packed")
            with faults.watched(refused, ever):
                code = mount.unmount()
            assert "Traceback" not in mount.said()
            assert code in (0, 8), mount.said()
            assert bool(code) <= bool(faults[HITS])
            print(f"read {refused} fails{' ever after' * ever} at the end on {server}: {code} {mount.said()}")
        if QUOTA_GIVEN_UP in mount.said():
            assert f2("fsck", "-y", path).code == 1
        if code:
            assert mount.said()
            assert safe_tree(open_device(path))[b"/empty"].node.size == len(MARK)
        else:
            judge(path)
            assert b"/large" not in tree(path)
        return faults[COUNT]

    cases = [(number, ever) for number in range(ended(-1, False)) for ever in (False, True)]
    for number, ever in cases if ALL else random.Random(server).sample(cases, min(len(cases), SOME)):
        ended(number, ever)
