"""One of several programs that use the same volume at once, each sure of its own files; run with directory and seed.

It makes, links, renames, exchanges and deletes files and whole directories across parents that all share, and holds
what it finds against what it did.  Exit code 0: everything was as expected.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import shutil
import sys
from pathlib import Path

NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
MANY = 2000  # files at a time, where it is not told otherwise
LIBC = ctypes.CDLL(None, use_errno=True)


def renameat2(old: Path, new: Path, flags: int) -> int:
    """0, or the errno."""
    done = LIBC.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags)
    return ctypes.get_errno() if done else 0


class Program:
    """Its files, by path below the directory: content."""

    def __init__(self, top: Path, seed: int, many: int) -> None:
        self.top, self.seed, self.many = top, seed, many
        self.chance = random.Random(seed)
        self.parents = [top / f"shared-{number}" for number in range(4)]
        for parent in self.parents:
            parent.mkdir(exist_ok=True)
        self.homes = [self.parents[number] / self.name(f"home-{number}") for number in range(3)]
        for home in self.homes:
            home.mkdir()
        self.files: dict[Path, bytes] = {}

    def name(self, text: str) -> str:
        long = self.chance.choice((0, 0, 30, 200))
        return f"{self.seed}-{text}-" + "n" * long

    def content(self) -> bytes:
        return self.chance.randbytes(self.chance.choice((0, 9, 3000, 5000, 20_000, 150_000)))

    def step(self, number: int) -> None:
        chance = self.chance
        if len(self.files) >= self.many:
            self.remove(number)
        chance.choice((self.make, self.make, self.change, self.rename, self.move_home, self.exchange, self.link,
                       self.remove, self.look, self.whiteout))(number)  # fmt: skip

    def place(self, number: int) -> Path:
        return self.chance.choice(self.homes + self.parents) / self.name(f"{number}")

    def make(self, number: int) -> None:
        path, data = self.place(number), self.content()
        path.write_bytes(data)
        self.files[path] = data
        if self.chance.random() < 0.1:
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)

    def some(self) -> Path | None:
        return self.chance.choice(sorted(self.files)) if self.files else None

    def change(self, number: int) -> None:
        path = self.some()
        if path is None:
            return
        data = self.content()
        offset = self.chance.randrange(len(self.files[path]) + 1)
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(data)
        old = self.files[path]
        new = old[:offset] + data + old[offset + len(data) :]
        inode = path.stat().st_ino
        for other in [p for p in self.files if self.files[p] is old and p.stat().st_ino == inode]:
            self.files[other] = new

    def rename(self, number: int) -> None:
        path = self.some()
        if path is None:
            return
        new = self.some() if self.chance.random() < 0.3 else self.place(number)
        assert new is not None
        if new in self.files and self.chance.random() < 0.5:
            assert renameat2(path, new, NOREPLACE) == errno.EEXIST
            return
        same = new in self.files and path.stat().st_ino == new.stat().st_ino
        path.rename(new)
        if not same:
            self.files[new] = self.files.pop(path)

    def move_home(self, number: int) -> None:
        """A directory, with all that is in it, to another parent."""
        which = self.chance.randrange(len(self.homes))
        old = self.homes[which]
        new = self.chance.choice(self.parents + [h for h in self.homes if h.parent in self.parents and h != old])
        new = new / self.name(f"moved-{number}")
        inside = [home for home in self.homes if home.is_relative_to(old)]
        if new.is_relative_to(old) or len(str(new)) > 2000:
            return
        old.rename(new)
        for home in inside:
            self.homes[self.homes.index(home)] = new / home.relative_to(old)
        for path in [p for p in self.files if p.is_relative_to(old)]:
            self.files[new / path.relative_to(old)] = self.files.pop(path)
        assert new.parent.stat().st_ino == (new / "..").stat().st_ino

    def exchange(self, number: int) -> None:
        one, other = self.some(), self.some()
        if one is None or other is None:
            return
        assert renameat2(one, other, EXCHANGE) == 0
        self.files[one], self.files[other] = self.files[other], self.files[one]

    def whiteout(self, number: int) -> None:
        path = self.some()
        if path is None or os.geteuid():
            return
        new = self.place(number)
        said = renameat2(path, new, WHITEOUT)
        assert said in (0, errno.EINVAL), said
        if not said:
            self.files[new] = self.files.pop(path)
            assert path.stat().st_rdev == 0
            assert path.is_char_device()
            path.unlink()

    def link(self, number: int) -> None:
        path = self.some()
        if path is None:
            return
        new = self.place(number)
        os.link(path, new)
        self.files[new] = self.files[path]
        assert path.stat().st_nlink >= 2

    def remove(self, number: int) -> None:
        path = self.some()
        if path is not None:
            path.unlink()
            del self.files[path]

    def look(self, number: int) -> None:
        path = self.some()
        if path is not None:
            assert path.read_bytes() == self.files[path], path
            assert path.name in os.listdir(path.parent)

    def look_at_all(self) -> None:
        for path, data in self.files.items():
            assert path.read_bytes() == data, path
        found = {
            Path(directory, name)
            for parent in self.parents
            for directory, _, names in os.walk(parent)
            for name in names
            if name.startswith(f"{self.seed}-")
        }
        assert found == set(self.files), found ^ set(self.files)


def main() -> None:
    """DIRECTORY SEED STEPS [leave [FILES]]: with `leave` the files stay; so many are there at most at a time."""
    top, seed, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    program = Program(top, seed, int(sys.argv[5]) if sys.argv[5:] else MANY)
    for number in range(steps):
        program.step(number)
    program.look_at_all()
    if sys.argv[4:5] != ["leave"]:
        for path in program.files:
            path.unlink()
        for home in program.homes:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
