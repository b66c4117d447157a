"""Runs inside the guest: do things at random to several mounted volumes, one after the other, until the power goes.

After the first few, and a sync, it tells the host by the mark "go" that the time until then has begun.

python3 crash_workload.py SEED SYNCS... : directories /mnt/0, /mnt/1, ...; SYNCS of each is how often of 100 it syncs.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import random
import sys
from contextlib import suppress
from pathlib import Path

FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_COLLAPSE, FALLOC_ZERO, FALLOC_INSERT = 1, 2, 8, 16, 32
AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
START_ATOMIC, COMMIT_ATOMIC, ABORT_ATOMIC = 0xF501, 0xF502, 0xF505  # F2FS_IOC_..._WRITE
GETFLAGS, SETFLAGS = 0x80086601, 0x40086602
NODUMP_FL, NOATIME_FL, SYNC_FL = 0x40, 0x80, 0x8
FSGETXATTR, FSSETXATTR = 0x801C581F, 0x401C5820
BLOCK = 4096
libc = ctypes.CDLL(None, use_errno=True)


class Churn:
    """Random operations on one volume."""

    def __init__(self, root: str, seed: str, syncs: int) -> None:
        self.root, self.random, self.syncs = root, random.Random(seed), syncs
        self.count = 0
        self.directories = [root]
        self.files: list[str] = []
        self.held: list[int] = []
        self.moved: set[str] = set()  # files that were renamed or have several names
        self.noise = self.random.randbytes(64 * BLOCK)
        self.doing = {
            self.create: 14, self.write: 20, self.append: 12, self.overwrite: 14, self.truncate: 4, self.punch: 3,
            self.fallocate: 2, self.unlink: 5, self.rename: 5, self.replace: 3, self.link: 2, self.symlink: 1,
            self.mkdir: 3, self.rmdir: 1, self.attributes: 5, self.xattr: 5, self.hold: 2, self.release: 1,
            self.nameless: 3, self.atomic: 2, self.reshape: 3, self.exchange: 2, self.storm: 1, self.again: 4,
            self.mapped: 2, self.direct: 2, self.all_attributes_go: 1, self.flags: 1, self.project: 1,
            self.reuse: 1, self.special: 1,
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
            os.sync() if chance < 0.002 else self.fsync(self.random.choice(self.directories))
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
        return f"{self.random.choice(self.directories)}/{'n' * width}{self.count}"

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
        if len(self.directories) < 12:
            path = self.new_name()
            os.mkdir(path)
            self.directories.append(path)

    def rmdir(self) -> None:
        path = self.random.choice(self.directories[1:])
        os.rmdir(path)
        self.directories.remove(path)

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

    def nameless(self) -> None:
        """A file that gets its name after it was written, or made safe, or never."""
        fd = os.open(self.random.choice(self.directories), os.O_TMPFILE | os.O_RDWR, 0o600)
        os.pwrite(fd, self.bytes(self.random.choice((10, 3000, 20_000))), 0)
        if self.random.random() < 0.3:
            os.fsync(fd)
        if self.random.random() < 0.2:
            self.held.append(fd)
            return
        path = self.new_name()
        source = f"/proc/self/fd/{fd}".encode()
        if libc.linkat(AT_FDCWD, source, AT_FDCWD, path.encode(), AT_SYMLINK_FOLLOW) == 0:
            self.files.append(path)
        if self.random.random() < 0.6:
            os.fsync(fd)
        os.close(fd)

    def atomic(self) -> None:
        """Writes that come about together, or not at all."""
        path = self.a_file()
        fd = os.open(path, os.O_RDWR)
        try:
            fcntl.ioctl(fd, START_ATOMIC)
            for _ in range(self.random.choice((1, 3, 9))):
                os.pwrite(fd, self.bytes(BLOCK), self.random.randrange(30) * BLOCK)
            fcntl.ioctl(fd, COMMIT_ATOMIC if self.random.random() < 0.8 else ABORT_ATOMIC)
        finally:
            os.close(fd)

    def reshape(self) -> None:
        """Cut a piece out, put one in, zeros in the place of one."""
        path, mode = self.a_file(), self.random.choice((FALLOC_COLLAPSE, FALLOC_INSERT, FALLOC_ZERO))
        fd = os.open(path, os.O_RDWR)
        try:
            at, length = (self.random.randrange(1, 12) * BLOCK for _ in range(2))
            if self.random.random() < 0.5:
                os.fsync(fd)
            libc.fallocate(fd, mode, ctypes.c_long(at - BLOCK), ctypes.c_long(length))
            if self.random.random() < 0.5:
                os.fsync(fd)
        finally:
            os.close(fd)

    def exchange(self) -> None:
        """Two names change places, or one leaves a mark behind."""
        a, b = self.a_file(), self.random.choice(self.files)
        how = self.random.choice((RENAME_EXCHANGE, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT))
        if how != RENAME_EXCHANGE:
            b = self.new_name()
        if libc.renameat2(AT_FDCWD, a.encode(), AT_FDCWD, b.encode(), how) == 0:
            self.moved |= {a, b}
            if how != RENAME_EXCHANGE:
                self.files[self.files.index(a)] = b

    def storm(self) -> None:
        """One file goes through many names, made safe on the way."""
        path = self.a_file()
        for _ in range(8):
            new = self.new_name()
            os.rename(path, new)
            self.files[self.files.index(path)] = path = new
            self.moved.add(new)
            if self.random.random() < 0.15:
                self.fsync(path)

    def again(self) -> None:
        """One file is changed and made safe several times."""
        path = self.a_file()
        for _ in range(self.random.choice((2, 3, 6))):
            size = os.stat(path).st_size
            step = self.random.randrange(6)
            if step == 0:
                os.truncate(path, self.random.choice((0, size // 2, size + 9000)))
            elif step == 1:
                self._fallocate(path, FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE)
            elif step == 2:
                self._fallocate(path, FALLOC_KEEP_SIZE)
            elif step == 3:
                os.setxattr(path, "user.more", self.bytes(self.random.choice((20, 2500))))
            else:
                self.put(path, self.random.randrange(size + BLOCK), self.random.choice((10, BLOCK, 15_000)))
            if path in self.moved and self.random.random() < 0.8:
                return
            self.fsync(path, data_only=self.random.random() < 0.5)

    def mapped(self) -> None:
        path = self.a_file()
        fd = os.open(path, os.O_RDWR)
        try:
            with mmap.mmap(fd, os.fstat(fd).st_size) as view:
                at = self.random.randrange(len(view))
                view[at : at + 100] = self.bytes(len(view[at : at + 100]))
                if self.random.random() < 0.5:
                    view.flush()
        except ValueError:  # an empty file
            pass
        finally:
            os.close(fd)

    def direct(self) -> None:
        """Past the page cache, or each write made safe."""
        path, how = self.a_file(), self.random.choice((os.O_DIRECT, os.O_SYNC, os.O_DSYNC, os.O_DIRECT | os.O_SYNC))
        if how & (os.O_SYNC | os.O_DSYNC) and path in self.moved:
            how = os.O_DIRECT
        fd = os.open(path, os.O_WRONLY | how)
        try:
            with mmap.mmap(-1, 4 * BLOCK) as aligned:
                aligned[:] = self.noise[: 4 * BLOCK]
                os.pwritev(fd, [memoryview(aligned)[: self.random.choice((1, 4)) * BLOCK]],
                           self.random.randrange(20) * BLOCK)  # fmt: skip
        except BufferError:
            pass
        finally:
            os.close(fd)

    def all_attributes_go(self) -> None:
        path = self.a_file()
        for name in os.listxattr(path):
            os.removexattr(path, name)
        if path not in self.moved:
            self.fsync(path)

    def flags(self) -> None:
        fd = os.open(self.a_file(), os.O_RDONLY)
        try:
            flags = int.from_bytes(fcntl.ioctl(fd, GETFLAGS, bytes(8))[:4], "little")
            flags ^= self.random.choice((NODUMP_FL, NOATIME_FL, SYNC_FL))
            fcntl.ioctl(fd, SETFLAGS, flags.to_bytes(8, "little"))
        finally:
            os.close(fd)

    def project(self) -> None:
        fd = os.open(self.a_file(), os.O_RDONLY)
        try:
            known = bytearray(fcntl.ioctl(fd, FSGETXATTR, bytes(28)))
            known[12:16] = self.random.randrange(3).to_bytes(4, "little")
            fcntl.ioctl(fd, FSSETXATTR, bytes(known))
        finally:
            os.close(fd)

    def reuse(self) -> None:
        """Numbers of inodes that went are given to others, over a checkpoint."""
        for _ in range(6):
            if self.files:
                self.unlink()
        if self.random.random() < 0.3:
            os.sync()
        for _ in range(6):
            self.create()
            if self.random.random() < 0.4:
                self.fsync(self.files[-1])

    def special(self) -> None:
        os.mkfifo(self.new_name())


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
