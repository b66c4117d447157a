"""Runs inside the guest: do things at random to several mounted volumes, one after the other, until the power goes.

After the first few, and a sync, it tells the host by the mark "go" that the time until then has begun.

python3 crash_workload.py SEED SYNCS... : folders /mnt/0, /mnt/1, ...; SYNCS of each is how often of 100 it syncs.
"""

from __future__ import annotations

import os
import random
import sys
from contextlib import suppress
from pathlib import Path

FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE = 1, 2
BLOCK = 4096


class Churn:
    """Random operations on one volume."""

    def __init__(self, root: str, seed: str, syncs: int) -> None:
        self.root, self.random, self.syncs = root, random.Random(seed), syncs
        self.count = 0
        self.folders = [root]
        self.files: list[str] = []
        self.held: list[int] = []
        self.moved: set[str] = set()  # files that were renamed or have several names
        self.noise = self.random.randbytes(64 * BLOCK)
        self.doing = {
            self.create: 14, self.write: 20, self.append: 12, self.overwrite: 14, self.truncate: 4, self.punch: 3,
            self.fallocate: 2, self.unlink: 5, self.rename: 5, self.replace: 3, self.link: 2, self.symlink: 1,
            self.mkdir: 3, self.rmdir: 1, self.attributes: 5, self.xattr: 5, self.hold: 2, self.release: 1,
        }  # fmt: skip

    def step(self) -> None:
        """Do one thing, and perhaps make it safe."""
        (operation,) = self.random.choices(list(self.doing), list(self.doing.values()))
        with suppress(OSError, IndexError):  # as of a file that is gone, or where there is none
            operation()
        if self.random.randrange(100) < self.syncs:
            with suppress(OSError):
                self.make_safe()

    def make_safe(self) -> None:
        chance = self.random.random()
        if chance < 0.02:  # a checkpoint
            os.sync() if chance < 0.002 else self.fsync(self.random.choice(self.folders))
            return
        for _ in range(self.random.choice((1, 1, 1, 3))):
            path = self.a_file()
            if path in self.moved and self.random.random() < 0.95:
                continue  # it would be made safe by a checkpoint
            self.fsync(path, data_only=self.random.random() < 0.3)

    def fsync(self, path: str, data_only: bool = False) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            (os.fdatasync if data_only else os.fsync)(fd)
        finally:
            os.close(fd)

    def a_file(self) -> str:
        if not self.files:
            self.create()
        # of late ones more
        back = int(self.random.expovariate(1 / 12))
        return self.files[max(0, len(self.files) - 1 - back)]

    def new_name(self) -> str:
        self.count += 1
        width = self.random.choice((1, 1, 1, 40, 200))
        return f"{self.random.choice(self.folders)}/{'n' * width}{self.count}"

    def bytes(self, length: int) -> bytes:
        return self.noise[self.random.randrange(BLOCK) :][:length]

    def put(self, path: str, offset: int, length: int) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o640)
        try:
            os.pwrite(fd, self.bytes(length), offset)
        finally:
            os.close(fd)

    def create(self) -> None:
        path = self.new_name()
        self.put(path, 0, self.random.choice((0, 10, 300, 3400, 5000, 40000)))
        self.files.append(path)
        if len(self.files) > 150:
            self.unlink()

    def write(self) -> None:
        """Anywhere, beyond the end too; sometimes far beyond, so that there are direct nodes of every level."""
        if self.random.random() < 0.8:
            at = self.random.randrange(self.random.choice((3000, 40_000, 120_000)))
        else:  # larger than what a manifest reads the holes of
            at = self.random.choice((0, 64 << 20)) + self.random.randrange(self.random.choice((8 << 20, 4 << 30)))
        self.put(self.a_file(), at, self.random.choice((100, BLOCK, 30_000)))

    def append(self) -> None:
        path = self.a_file()
        self.put(path, os.stat(path).st_size, self.random.choice((50, 700, 3000, 20_000)))

    def overwrite(self) -> None:
        path = self.a_file()
        blocks = os.stat(path).st_size // BLOCK
        self.put(path, self.random.randrange(max(1, min(blocks, 1000))) * BLOCK, BLOCK)

    def truncate(self) -> None:
        path = self.a_file()
        os.truncate(path, self.random.choice((0, 100, 5000, os.stat(path).st_size // 2, 90_000)))

    def punch(self) -> None:
        path = self.a_file()
        self._fallocate(path, FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE)

    def fallocate(self) -> None:
        self._fallocate(self.a_file(), self.random.choice((0, FALLOC_KEEP_SIZE)))

    def _fallocate(self, path: str, mode: int) -> None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        fd = os.open(path, os.O_RDWR)
        try:
            offset = self.random.randrange(60_000)
            libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(self.random.randrange(1, 60_000)))
        finally:
            os.close(fd)

    def unlink(self) -> None:
        path = self.random.choice(self.files)
        self.files.remove(path)
        os.unlink(path)

    def rename(self) -> None:
        path, new = self.a_file(), self.new_name()
        os.rename(path, new)
        self.files[self.files.index(path)] = new
        self.moved.add(new)

    def replace(self) -> None:
        """The way in which programs save: a new file, made safe, takes the place of the old one."""
        target, new = self.a_file(), self.new_name()
        self.put(new, 0, self.random.choice((200, 6000)))
        if self.random.random() < 0.8:
            self.fsync(new)
        os.rename(new, target)
        self.moved.add(target)
        if self.random.random() < 0.3:
            self.fsync(os.path.dirname(target))

    def link(self) -> None:
        new = self.new_name()
        path = self.a_file()
        os.link(path, new)
        self.files.append(new)
        self.moved |= {path, new}

    def symlink(self) -> None:
        os.symlink("x" * self.random.choice((5, 900)), self.new_name())

    def mkdir(self) -> None:
        if len(self.folders) < 12:
            path = self.new_name()
            os.mkdir(path)
            self.folders.append(path)

    def rmdir(self) -> None:
        path = self.random.choice(self.folders[1:])
        os.rmdir(path)
        self.folders.remove(path)

    def attributes(self) -> None:
        path = self.a_file()
        os.chmod(path, self.random.choice((0o600, 0o644, 0o755)))
        os.chown(path, self.random.randrange(4), self.random.randrange(4))
        if self.random.random() < 0.3:
            os.utime(path, (self.random.randrange(1 << 30), self.random.randrange(1 << 30)))

    def xattr(self) -> None:
        path, name = self.a_file(), f"user.{self.random.randrange(4)}"
        if self.random.random() < 0.2:
            os.removexattr(path, name)
        else:
            os.setxattr(path, name, self.bytes(self.random.choice((5, 100, 1500))))

    def hold(self) -> None:
        """A file that is open and has no name: an orphan, should there be a checkpoint."""
        path = self.new_name()
        self.put(path, 0, 20_000)
        self.held.append(os.open(path, os.O_RDONLY))
        os.unlink(path)

    def release(self) -> None:
        if self.held:
            os.close(self.held.pop(0))


def main() -> None:
    seed, syncs = sys.argv[1], [int(word) for word in sys.argv[2:]]
    volumes = [Churn(f"/mnt/{n}", f"{seed}-{n}", each) for n, each in enumerate(syncs)]
    chance = random.Random(seed)
    for volume in volumes:
        for _ in range(60):
            volume.step()
    os.sync()
    Path(os.environ["OUT"], ".mark-go").touch()
    while True:
        chance.choice(volumes).step()


if __name__ == "__main__":
    main()
