"""Runs inside the guest: files live and die at random on several mounted volumes, and every state is written down.

A record (a JSON line in $OUT/N.jsonl) is a state that a file had: inode number, generation, size, mtime, SHA-256 of the
content, and its paths.  Contents are random, so that no two states are alike by chance.

python3 life_workload.py SEED SECONDS COUNT: directories /mnt/0, /mnt/1, ... COUNT of them.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import mmap
import os
import random
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

GETVERSION = 0x80087601
START_ATOMIC, COMMIT_ATOMIC = 0xF501, 0xF502
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_COLLAPSE, FALLOC_ZERO, FALLOC_INSERT = 1, 2, 8, 16, 32
RENAME_EXCHANGE = 2
BLOCK = 4096
MOST = 300_000
libc = ctypes.CDLL(None, use_errno=True)


class Lives:
    """One volume."""

    def __init__(self, root: str, seed: str, out: Path) -> None:
        self.root, self.random = root, random.Random(seed)
        self.out = out.open("w")
        self.count = 0
        self.model: dict[int, bytearray] = {}  # inode number -> content
        self.names: dict[int, list[str]] = {}
        self.directories = [root]
        self.open: list[tuple[int, int]] = []
        self.doing = {
            self.create: 16, self.write: 14, self.append: 10, self.overwrite: 14, self.rewrite: 8, self.truncate: 5,
            self.unlink: 9, self.rename: 4, self.replace: 4, self.link: 2, self.mkdir: 3, self.rmtree: 1, self.punch: 2,
            self.reshape: 2, self.exchange: 1, self.fsync: 10, self.sync: 1, self.checkpoint: 3, self.xattr: 2,
            self.mapped: 3, self.direct: 3, self.atomic: 2, self.touch: 2, self.hold: 1, self.fill: 1, self.chmod: 2,
            self.symlink: 1, self.rename_directory: 1,
        }  # fmt: skip

    def step(self) -> None:
        (operation,) = self.random.choices(list(self.doing), list(self.doing.values()))
        with suppress(OSError, IndexError, ValueError):
            operation()

    # -- what is known ----------------------------------------------------------------------------------------------

    def note(self, fd: int, ino: int, **more: Any) -> None:
        """Write down the state of a file that is open."""
        seen = os.fstat(fd)
        generation = int.from_bytes(fcntl.ioctl(fd, GETVERSION, bytes(8))[:4], "little")
        record = {
            "ino": ino, "generation": generation, "size": seen.st_size, "mtime_ns": seen.st_mtime_ns,
            "sha256": hashlib.sha256(self.model[ino]).hexdigest(), "paths": self.relative(ino), **more,
        }  # fmt: skip
        assert seen.st_size == len(self.model[ino]), (seen.st_size, len(self.model[ino]))
        self.out.write(json.dumps(record) + "\n")

    def noted(self, path: str, **more: Any) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            self.note(fd, os.fstat(fd).st_ino, **more)
        finally:
            os.close(fd)

    def relative(self, ino: int) -> list[str]:
        return [name[len(self.root) + 1 :] for name in self.names.get(ino, [])]

    def a_file(self) -> tuple[int, str]:
        ino = self.random.choice(list(self.names)[-self.random.choice((5, 40, 1000)) :])
        return ino, self.random.choice(self.names[ino])

    def new_name(self) -> str:
        self.count += 1
        word = self.random.choice(("note", "img", "page", "x" * 60))
        directory, ending = self.random.choice(self.directories), self.random.choice(("", ".txt", ".jpg", ".db"))
        return f"{directory}/{word}-{self.count}{ending}"

    def data(self, length: int) -> bytes:
        return self.random.randbytes(length)

    def some(self) -> int:
        return self.random.choice((1, 60, 700, 3000, 5000, 20_000, 60_000))

    # -- deeds ------------------------------------------------------------------------------------------------------

    def create(self) -> str:
        if len(self.names) > 160:
            self.unlink()
        path = self.new_name()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            ino = os.fstat(fd).st_ino
            self.model[ino], self.names[ino] = bytearray(), [path]
            if self.random.random() < 0.95:
                data = self.data(self.some())
                self.pwrite(fd, ino, data, 0)
            self.note(fd, ino)
            if self.random.random() < 0.3:
                os.fsync(fd)
        finally:
            os.close(fd)
        return path

    def pwrite(self, fd: int, ino: int, data: bytes, offset: int) -> None:
        done = os.pwrite(fd, data, offset)
        self.changed(ino, offset, data[:done])

    def changed(self, ino: int, offset: int, data: bytes) -> None:
        model = self.model[ino]
        if offset > len(model):
            model += bytes(offset - len(model))
        model[offset : offset + len(data)] = data

    def put(self, offset: int, data: bytes, flags: int = 0) -> None:
        ino, path = self.a_file()
        fd = os.open(path, os.O_RDWR | flags)
        try:
            self.pwrite(fd, ino, data, min(offset, len(self.model[ino]) + 9000))
            self.note(fd, ino)
            if self.random.random() < 0.2:
                os.fsync(fd) if self.random.random() < 0.5 else os.fdatasync(fd)
                self.note(fd, ino)
        finally:
            os.close(fd)

    def write(self) -> None:
        self.put(self.random.randrange(MOST), self.data(self.some()))

    def append(self) -> None:
        ino, path = self.a_file()
        if len(self.model[ino]) > MOST:
            return
        fd = os.open(path, os.O_RDWR)
        try:
            self.pwrite(fd, ino, self.data(self.some()), len(self.model[ino]))
            self.note(fd, ino)
        finally:
            os.close(fd)

    def overwrite(self) -> None:
        """Blocks that are there, in place perhaps."""
        ino, path = self.a_file()
        blocks = len(self.model[ino]) // BLOCK
        at = self.random.randrange(max(1, blocks)) * BLOCK
        fd = os.open(path, os.O_RDWR)
        try:
            self.pwrite(fd, ino, self.data(BLOCK), at)
            self.note(fd, ino)
            if self.random.random() < 0.4:
                os.fdatasync(fd)
        finally:
            os.close(fd)

    def rewrite(self) -> None:
        """All of it anew, the way editors do: truncated first."""
        ino, path = self.a_file()
        fd = os.open(path, os.O_RDWR | os.O_TRUNC)
        try:
            self.model[ino] = bytearray()
            self.note(fd, ino)
            self.pwrite(fd, ino, self.data(self.some()), 0)
            self.note(fd, ino)
        finally:
            os.close(fd)

    def truncate(self) -> None:
        ino, path = self.a_file()
        size = self.random.choice((0, 100, 5000, len(self.model[ino]) // 2, len(self.model[ino]) + 5000))
        os.truncate(path, size)
        model = self.model[ino]
        self.model[ino] = model[:size] + bytes(max(0, size - len(model)))
        self.noted(path)

    def unlink(self) -> None:
        ino = self.random.choice(list(self.names))
        for name in self.names[ino]:
            os.unlink(name)
        del self.names[ino], self.model[ino]

    def rename(self) -> None:
        ino, path = self.a_file()
        new = self.new_name()
        os.rename(path, new)
        self.names[ino][self.names[ino].index(path)] = new
        self.noted(new)

    def replace(self) -> None:
        """A new file takes the place of an old one."""
        old, target = self.a_file()
        path = self.create()
        ino = os.stat(path).st_ino
        if ino == old:
            return
        os.rename(path, target)
        self.names[ino] = [target]
        self.names[old].remove(target)
        if not self.names[old]:
            del self.names[old], self.model[old]
        self.noted(target)

    def link(self) -> None:
        ino, path = self.a_file()
        new = self.new_name()
        os.link(path, new)
        self.names[ino].append(new)
        self.noted(new)

    def mkdir(self) -> None:
        if len(self.directories) < 14:
            path = self.new_name()
            os.mkdir(path)
            self.directories.append(path)

    def rmtree(self) -> None:
        path = self.random.choice(self.directories[1:])
        shutil.rmtree(path)
        self.directories = [directory for directory in self.directories if not (directory + "/").startswith(path + "/")]
        for ino in list(self.names):
            self.names[ino] = [name for name in self.names[ino] if not name.startswith(path + "/")]
            if not self.names[ino]:
                del self.names[ino], self.model[ino]

    def rename_directory(self) -> None:
        path = self.random.choice(self.directories[1:])
        new = f"{self.root}/moved-{self.count}"
        self.count += 1
        os.rename(path, new)
        self.directories = [new + f[len(path) :] if (f + "/").startswith(path + "/") else f for f in self.directories]
        changed = []
        for ino, names in self.names.items():
            self.names[ino] = [new + n[len(path) :] if n.startswith(path + "/") else n for n in names]
            changed += [ino] if self.names[ino] != names else []
        for ino in changed:
            self.noted(self.names[ino][0])

    def fallocate(self, fd: int, mode: int, offset: int, length: int) -> bool:
        return libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) == 0

    def punch(self) -> None:
        ino, path = self.a_file()
        offset, length = self.random.randrange(max(1, len(self.model[ino]))), self.random.randrange(1, 30_000)
        fd = os.open(path, os.O_RDWR)
        try:
            mode = self.random.choice((FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE, FALLOC_KEEP_SIZE | FALLOC_ZERO))
            if self.fallocate(fd, mode, offset, length):
                end = min(offset + length, len(self.model[ino]))
                self.model[ino][offset:end] = bytes(end - offset)
            self.note(fd, ino)
        finally:
            os.close(fd)

    def reshape(self) -> None:
        ino, path = self.a_file()
        blocks = len(self.model[ino]) // BLOCK
        at, length = self.random.randrange(max(1, blocks)) * BLOCK, self.random.randrange(1, 5) * BLOCK
        fd = os.open(path, os.O_RDWR)
        try:
            if self.random.random() < 0.5:
                if self.fallocate(fd, FALLOC_COLLAPSE, at, length):
                    del self.model[ino][at : at + length]
            elif self.fallocate(fd, FALLOC_INSERT, at, length):
                self.model[ino][at:at] = bytes(length)
            self.note(fd, ino)
        finally:
            os.close(fd)

    def exchange(self) -> None:
        (a, one), (b, other) = self.a_file(), self.a_file()
        if a != b and libc.renameat2(-100, one.encode(), -100, other.encode(), RENAME_EXCHANGE) == 0:
            self.names[a][self.names[a].index(one)] = other
            self.names[b][self.names[b].index(other)] = one
            self.noted(one)
            self.noted(other)

    def fsync(self) -> None:
        _, path = self.a_file()
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd) if self.random.random() < 0.6 else os.fdatasync(fd)
            self.note(fd, os.fstat(fd).st_ino)
        finally:
            os.close(fd)

    def sync(self) -> None:
        os.sync()

    def checkpoint(self) -> None:
        """Of everything but the data that waits."""
        fd = os.open(self.random.choice(self.directories), os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def xattr(self) -> None:
        _, path = self.a_file()
        os.setxattr(path, "user.tag", self.data(self.random.choice((10, 1500))))
        self.noted(path)

    def mapped(self) -> None:
        ino, path = self.a_file()
        fd = os.open(path, os.O_RDWR)
        try:
            with mmap.mmap(fd, len(self.model[ino])) as view:
                at = self.random.randrange(len(view))
                data = self.data(300)[: len(view) - at]
                view[at : at + len(data)] = data
                self.changed(ino, at, data)
                self.note(fd, ino)
                if self.random.random() < 0.5:
                    view.flush()
                    self.note(fd, ino)
        finally:
            os.close(fd)

    def direct(self) -> None:
        ino, path = self.a_file()
        fd = os.open(path, os.O_RDWR | os.O_DIRECT)
        try:
            with mmap.mmap(-1, 4 * BLOCK) as aligned:
                data = self.data(self.random.choice((1, 4)) * BLOCK)
                aligned[: len(data)] = data
                at = self.random.randrange(len(self.model[ino]) // BLOCK) * BLOCK
                if at + len(data) > len(self.model[ino]):  # growing, it would leave no trace of what it wrote in place
                    return
                view = memoryview(aligned)[: len(data)]
                done = os.pwritev(fd, [view], at)
                view.release()
                self.changed(ino, at, data[:done])
            self.note(fd, ino)
        finally:
            os.close(fd)

    def atomic(self) -> None:
        ino, path = self.a_file()
        fd = os.open(path, os.O_RDWR)
        try:
            fcntl.ioctl(fd, START_ATOMIC)
            blocks = len(self.model[ino]) // BLOCK
            for _ in range(3):
                self.pwrite(fd, ino, self.data(BLOCK), self.random.randrange(max(1, blocks)) * BLOCK)
            fcntl.ioctl(fd, COMMIT_ATOMIC)
            self.note(fd, ino)
        finally:
            os.close(fd)

    def touch(self) -> None:
        _, path = self.a_file()
        if self.random.random() < 0.3:
            os.utime(path, (1e9, 1e9 + self.random.randrange(10**6)))
        else:
            os.utime(path)
        self.noted(path)

    def chmod(self) -> None:
        _, path = self.a_file()
        os.chmod(path, self.random.choice((0o600, 0o640, 0o755)))
        self.noted(path)

    def hold(self) -> None:
        """A file that goes on being written when its name is gone."""
        path = self.create()
        fd = os.open(path, os.O_RDWR)
        ino = os.fstat(fd).st_ino
        os.unlink(path)
        del self.names[ino]
        self.pwrite(fd, ino, self.data(3000), 0)
        self.note(fd, ino, held=True)
        self.open.append((fd, ino))
        if len(self.open) > 3:
            gone, number = self.open.pop(0)
            os.close(gone)
            del self.model[number]

    def fill(self) -> None:
        """Much that comes and goes, so that the log is used again."""
        path = f"{self.root}/fill"
        with suppress(OSError), open(path, "wb") as file:
            for _ in range(self.random.randrange(1, 24)):
                file.write(self.data(1 << 20))
            os.fsync(file.fileno())
        os.unlink(path)

    def symlink(self) -> None:
        os.symlink("t" * self.random.choice((5, 900)), self.new_name())


def main() -> None:
    seed, seconds, count = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    out = Path(os.environ["OUT"])
    volumes = [Lives(f"/mnt/{n}", f"{seed}-{n}", out / f"{n}.jsonl") for n in range(count)]
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    steps = 0
    while time.monotonic() < end:
        chance.choice(volumes).step()
        steps += 1
    print(steps, "steps")
    for volume in volumes:
        volume.out.close()


if __name__ == "__main__":
    main()
