#!/usr/bin/env python3
"""What making things safe costs the engine itself, without FUSE: processor time, writes and barriers of each.

    bench/sync.py [--runs 5] [--only fsync sqlite] [--profile 25] [--files 5000]

Of each measure the median of the runs, for one operation.  `fsync` overwrites 4 KiB and makes it safe, `append` does so
with 4 KiB more at the end; `directory` makes a file and syncs its directory, which is a checkpoint; `create` makes a
file of 3 KB, all of them in one directory; `sqlite` is what SQLite asks for in a transaction with a rollback journal.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from f2tools.device import open_device
from f2tools.device.base import Data, Wrapper
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.write.volume import Policy, WritableVolume
from f2tools.mount.tree import LiveTree

OUR_COMMAND = str(Path(sys.executable).parent / "f2tools")
BLOCK = 4096
MODE = 0o100644
FIRST_FILES = 2000  # a volume in use, not an empty one


class Counted(Wrapper):
    """Counts what reaches the device."""

    writes = flushes = 0

    def pwrite(self, offset: int, data: Data) -> None:
        self.writes += 1
        super().pwrite(offset, data)

    def flush(self) -> None:
        self.flushes += 1
        super().flush()


class Bench:
    """A volume in use, and what is done to it."""

    def __init__(self, image: Path, files: int) -> None:
        self.device = Counted(open_device(image, write=True))
        self.volume = WritableVolume(self.device, Policy(fsync_mode="posix"))
        self.tree = LiveTree(self.volume)
        self.files = files
        self._rounds = 0
        self._home = self.tree.mkdir(F2FS_ROOT_INO, b"home", 0o755, 0, 0)
        for number in range(FIRST_FILES):
            self.tree.write(self._make(self._home, b"first-%d" % number), 0, b"x" * 5000)
        self._big = self._make(self._home, b"big")
        self.tree.write(self._big, 0, bytes(2048 * BLOCK))
        self.tree.sync()

    def _make(self, parent: int, name: bytes) -> int:
        return self.tree.create(parent, name, MODE, 0, 0)

    def _new_directory(self) -> int:
        self._rounds += 1
        made = self.tree.mkdir(F2FS_ROOT_INO, b"round-%d" % self._rounds, 0o755, 0, 0)
        self.tree.sync()
        return made

    def fsync(self, times: int) -> Callable[[], None]:
        block = os.urandom(BLOCK)

        def work() -> None:
            for number in range(times):
                self.tree.write(self._big, number * 613 % 2048 * BLOCK, block)
                self.tree.fsync(self._big)

        return work

    def append(self, times: int) -> Callable[[], None]:
        ino, block = self._make(self._new_directory(), b"log"), os.urandom(BLOCK)
        self.tree.sync()

        def work() -> None:
            for number in range(times):
                self.tree.write(ino, number * BLOCK, block)
                self.tree.fsync(ino)

        return work

    def directory(self, times: int) -> Callable[[], None]:
        parent = self._new_directory()

        def work() -> None:
            for number in range(times):
                self._make(parent, b"file-%d" % number)
                self.tree.fsync(parent)

        return work

    def create(self, times: int) -> Callable[[], None]:
        parent, content = self._new_directory(), os.urandom(3000)

        def work() -> None:
            for number in range(times):
                self.tree.write(self._make(parent, b"file-%06d" % number), 0, content)
            self.tree.sync()

        return work

    def sqlite(self, times: int) -> Callable[[], None]:
        parent, block = self._new_directory(), os.urandom(BLOCK)
        database, journal = self._make(parent, b"database"), b"database-journal"
        self.tree.write(database, 0, bytes(8 * BLOCK))
        self.tree.sync()

        def work() -> None:
            for number in range(times):
                ino = self._make(parent, journal)
                self.tree.hold(ino)
                for offset, length in ((0, 512), (512, 4), (516, BLOCK), (516 + BLOCK, 4)):
                    self.tree.write(ino, offset, block[:length])
                self.tree.fsync(ino, datasync=True)
                self.tree.fsync(parent, datasync=True)
                self.tree.write(ino, 0, block[:12])
                self.tree.fsync(ino, datasync=True)
                for page in (0, number % 8):
                    self.tree.write(database, page * BLOCK, block)
                self.tree.fsync(database, datasync=True)
                self.tree.unlink(parent, journal)
                self.tree.release(ino)

        return work


MEASURES = {"fsync": 1000, "append": 1000, "directory": 300, "create": 0, "sqlite": 300}  # and how often; 0: --files


def measured(bench: Bench, name: str, times: int, profile: cProfile.Profile | None) -> tuple[float, float, float]:
    """(ms of processor time, writes, barriers) of one operation."""
    work = getattr(bench, name)(times)
    device = bench.device
    writes, flushes, began = device.writes, device.flushes, time.process_time()
    if profile:
        profile.enable()
    work()
    if profile:
        profile.disable()
    took = time.process_time() - began
    return took / times * 1e3, (device.writes - writes) / times, (device.flushes - flushes) / times


def main() -> None:
    """Print the table, and with --profile where the time goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--files", type=int, default=5000, help="of `create`")
    parser.add_argument("--only", nargs="*", default=list(MEASURES), choices=MEASURES)
    parser.add_argument("--profile", type=int, metavar="LINES", help="of each measure, by time within a function")
    parser.add_argument("--work", type=Path, help="where the image lies")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="f2bench-", dir=args.work) as work:
        image = Path(work) / "image"
        subprocess.run([OUR_COMMAND, "mkfs", image, "--size", "1G"], check=True, stdout=subprocess.DEVNULL)
        bench = Bench(image, args.files)
        print(f"{'one of':12} {'CPU':>9} {'writes':>8} {'barriers':>9}")
        for name in args.only:
            profile = cProfile.Profile() if args.profile else None
            times = MEASURES[name] or args.files
            took = [measured(bench, name, times, profile) for _ in range(args.runs)]
            cpu, writes, flushes = (statistics.median(column) for column in zip(*took, strict=True))
            print(f"{name:12} {cpu:6.3f} ms {writes:8.2f} {flushes:9.2f}", flush=True)
            if profile:
                pstats.Stats(profile).sort_stats("tottime").print_stats(args.profile)


if __name__ == "__main__":
    main()
