"""A program that makes files safe and says so: run with a directory, a file for what it says, and a seed.

Its words, a line each: `has NAME BYTES` once a file is safe with so many bytes, `grows NAME` and `goes NAME` before it
is made longer or taken away.  The content of a file is its first name, again and again.  A full volume is waited out.
"""

from __future__ import annotations

import errno
import os
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path

SIZES = (10, 3000, 5000, 70000)
MANY = 100  # files at a time


def content(name: str, size: int) -> bytes:
    """What the file of that name begins with."""
    first = name.partition("-")[0].encode()
    return (first * (size // len(first) + 1))[:size]


def promised(lines: Iterable[str]) -> dict[str, tuple[int, bool]]:
    """What must be there: name -> (bytes that are safe, whether there may be more)."""
    there: dict[str, tuple[int, bool]] = {}
    for line in lines:
        word, name, *size = line.split()
        if word == "has":
            there[name] = (int(size[0]), False)
        elif word == "grows":
            there[name] = (there.get(name, (0, True))[0], True)
        else:
            there.pop(name, None)
    return there


class Program:
    """What it has, and one change after the other."""

    def __init__(self, top: Path, said: int, seed: int) -> None:
        self.top, self.said, self.chance = top, said, random.Random(seed)
        self.sizes: dict[str, int] = {}
        self.count = 0

    def step(self) -> None:
        """One change, made safe."""
        name = self.chance.choice(list(self.sizes)) if self.sizes else ""
        draw = self.chance.random() if name else 0.0
        if len(self.sizes) >= MANY or draw > 0.9:
            self._say("goes", name)
            del self.sizes[name]
            os.unlink(self.top / name)
        elif draw < 0.5:
            self.count += 1
            self._longer(f"n{self.count}", self.chance.choice(SIZES))
        elif draw < 0.75:
            self._say("grows", name)
            self._longer(name, self.sizes[name] + self.chance.choice(SIZES))
        else:
            self._say("goes", name)
            new = f"{name.partition('-')[0]}-{self.count}-{self.chance.getrandbits(30)}"
            os.rename(self.top / name, self.top / new)
            self._safe(self.top)
            self.sizes[new] = self.sizes.pop(name)
            self._say("has", f"{new} {self.sizes[new]}")

    def _say(self, word: str, what: str) -> None:
        os.write(self.said, f"{word} {what}\n".encode())

    def _longer(self, name: str, size: int) -> None:
        with open(self.top / name, "ab", buffering=0) as file:
            done = file.tell()
            file.write(content(name, size)[done:])
            assert file.tell() == size, "written in part"
            os.fsync(file.fileno())
        self.sizes[name] = size
        self._say("has", f"{name} {size}")

    def _safe(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def main() -> None:
    """Go on until the mount ends."""
    top = Path(sys.argv[1])
    said = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    program = Program(top, said, int(sys.argv[3]))
    while True:
        try:
            program.step()
        except (OSError, AssertionError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOSPC:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    main()
