"""A mounted volume beside fuse2fs on ext4: all mounted at once, every measure taken in turns, medians.

    .venv/bin/python bench/mount.py                 256 MiB files, 5,000 small ones
    .venv/bin/python bench/mount.py --full          1 GiB and 20,000
    .venv/bin/python bench/mount.py --only random-read --profile /tmp/profile
    .venv/bin/python bench/mount.py --options writeback_cache
    .venv/bin/python bench/mount.py --server pyfuse3 direct     both servers of ours, in one run
    .venv/bin/python bench/mount.py --floor --only unlink       beside bench/floor.c, which does nothing but answer

It takes fuse2fs and mkfs.ext4, mkfs.f2fs (Debian: apt install fuse2fs e2fsprogs f2fs-tools fuse3), git and tar.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
MIB = 1 << 20
RANDOM = 2000  # requests of each random measure
RANDOM_SYNCED = 300
ROWS = 300
SERVERS = "pyfuse3", "direct"
FLOOR = "floor"


class Volume:
    """One of the file systems; ours go by their server's name."""

    def __init__(self, name: str, work: Path, size: int, profile: str | None, options: str = "") -> None:
        self.name = name
        self.options = options
        self.image = work / f"{name}.img"
        self.directory = work / name
        self.profile = profile
        self.directory.mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        if name == FLOOR:
            subprocess.run(["cc", "-O2", "-o", self.image, REPOSITORY / "bench" / "floor.c"], check=True)
            return
        with self.image.open("wb") as file:  # like a device in use: the host has nothing to allocate
            for _ in range(size // (8 * MIB)):
                file.write(bytes(8 * MIB))
            os.fsync(file.fileno())
        if name == "fuse2fs":
            subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", self.image], check=True)
        else:
            subprocess.run(["mkfs.f2fs", "-q", "-t", "0", self.image], check=True, stdout=subprocess.DEVNULL)

    def mount(self) -> None:
        """Mounted, and seen to be."""
        if self.name == "fuse2fs":
            command = ["fuse2fs", "-f", "-o", "fakeroot,allow_other", str(self.image), str(self.directory)]
        elif self.name == FLOOR:
            command = [str(self.image), str(self.directory)]
        else:
            profiler = [self.profile, f"{self.image}.prof"] if self.profile else []
            command = [sys.executable, *profiler, str(Path(sys.executable).parent / "f2tools")]
            command += ["mount", "-f", "--server", self.name, str(self.image), str(self.directory)]
            command += ["-o", f"allow_other,{self.options}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=REPOSITORY)
        while not os.path.ismount(self.directory):
            assert self.process.poll() is None, command
            time.sleep(0.02)

    def unmount(self) -> None:
        """Unmounted, and its program ended."""
        command = ["umount"] if self.name == FLOOR else ["fusermount3", "-u"]
        subprocess.run([*command, self.directory], check=True)
        assert self.process is not None
        self.process.wait()

    def cold(self) -> None:
        """Nothing of it in the kernel's caches: mounted anew, and the image read from memory as before."""
        self.unmount()
        self.mount()

    def cpu(self) -> float:
        """Seconds of processor time that its program has had."""
        assert self.process is not None
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")  # in nanoseconds; `stat` has ticks
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def timed(volume: Volume, work: Callable[[], object]) -> tuple[float, float]:
    """(seconds, seconds of processor time of the serving program)."""
    before, began = volume.cpu(), time.perf_counter()
    work()
    return time.perf_counter() - began, volume.cpu() - before


# -- measures: a function of a volume, a name and a scale that prepares and returns seconds -------------------------


def sequential_write(volume: Volume, scale: Scale) -> tuple[float, float]:
    path = volume.directory / "big"
    path.unlink(missing_ok=True)
    block = os.urandom(MIB)

    def work() -> None:
        with path.open("wb", buffering=0) as file:
            for _ in range(scale.mib):
                file.write(block)
            os.fsync(file.fileno())

    return timed(volume, work)


def sequential_read(volume: Volume, scale: Scale) -> tuple[float, float]:
    path = _big(volume, scale)
    volume.cold()

    def work() -> None:
        with path.open("rb", buffering=0) as file:
            while file.read(MIB):
                pass

    return timed(volume, work)


def random_read(volume: Volume, scale: Scale) -> tuple[float, float]:
    path = _big(volume, scale)
    volume.cold()
    places = random.Random(1).sample(range(scale.mib * 256), RANDOM)

    def work() -> None:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for place in places:
            os.pread(fd, 4096, place * 4096)
        os.close(fd)

    return timed(volume, work)


def random_write(volume: Volume, scale: Scale) -> tuple[float, float]:
    path = _big(volume, scale)
    places = random.Random(2).sample(range(scale.mib * 256), RANDOM)
    block = os.urandom(4096)

    def work() -> None:
        fd = os.open(path, os.O_RDWR)
        for place in places:
            os.pwrite(fd, block, place * 4096)
        os.fsync(fd)
        os.close(fd)

    return timed(volume, work)


def random_write_fsync(volume: Volume, scale: Scale) -> tuple[float, float]:
    path = _big(volume, scale)
    places = random.Random(3).sample(range(scale.mib * 256), RANDOM_SYNCED)
    block = os.urandom(4096)

    def work() -> None:
        fd = os.open(path, os.O_RDWR)
        for place in places:
            os.pwrite(fd, block, place * 4096)
            os.fsync(fd)
        os.close(fd)

    return timed(volume, work)


def create(volume: Volume, scale: Scale) -> tuple[float, float]:
    directory = volume.directory / "many"
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir()

    def work() -> None:
        for number in range(scale.files):
            os.close(os.open(directory / f"file-{number:06}", os.O_WRONLY | os.O_CREAT | os.O_EXCL))

    return timed(volume, work)


def create_3k(volume: Volume, scale: Scale) -> tuple[float, float]:
    directory = volume.directory / "written"
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir()
    content = os.urandom(3000)

    def work() -> None:
        for number in range(scale.files):
            (directory / f"file-{number:06}").write_bytes(content)

    return timed(volume, work)


def stat_cold(volume: Volume, scale: Scale) -> tuple[float, float]:
    directory = _many(volume, scale)
    volume.cold()

    def work() -> None:
        for number in range(scale.files):
            os.stat(directory / f"file-{number:06}")

    return timed(volume, work)


def list_cold(volume: Volume, scale: Scale) -> tuple[float, float]:
    directory = _many(volume, scale)
    volume.cold()

    def work() -> None:
        for entry in os.scandir(directory):
            entry.stat()

    return timed(volume, work)


def unlink(volume: Volume, scale: Scale) -> tuple[float, float]:
    directory = _many(volume, scale)

    def work() -> None:
        for number in range(scale.files):
            os.unlink(directory / f"file-{number:06}")

    took = timed(volume, work)
    directory.rmdir()
    return took


def untar(volume: Volume, scale: Scale) -> tuple[float, float]:
    directory = volume.directory / "tree"
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir()
    return timed(volume, lambda: subprocess.run(["tar", "-xf", scale.archive, "-C", directory], check=True))


def git_clone(volume: Volume, scale: Scale) -> tuple[float, float]:
    directory = volume.directory / "clone"
    if directory.exists():
        shutil.rmtree(directory)
    command = ["git", "-c", "safe.directory=*", "clone", "-q", "--no-hardlinks", scale.repository, directory]
    return timed(volume, lambda: subprocess.run(command, check=True))


def sqlite_inserts(volume: Volume, scale: Scale) -> tuple[float, float]:
    path = volume.directory / "database"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")

    def work() -> None:
        for number in range(ROWS):
            with connection:
                connection.execute("INSERT INTO t VALUES (?, ?)", (number, "x" * 100))

    took = timed(volume, work)
    connection.close()
    return took


def _big(volume: Volume, scale: Scale) -> Path:
    path = volume.directory / "big"
    if not path.exists():
        sequential_write(volume, scale)
    return path


def _many(volume: Volume, scale: Scale) -> Path:
    directory = volume.directory / "many"
    if not directory.exists():
        create(volume, scale)
    return directory


MEASURES: dict[str, tuple[Callable[[Volume, Scale], tuple[float, float]], float]] = {  # and the ratio that is aimed at
    "sequential-write": (sequential_write, 1),
    "sequential-read": (sequential_read, 1),
    "random-read": (random_read, 2),
    "random-write": (random_write, 2),
    "random-write-fsync": (random_write_fsync, 2),
    "create": (create, 2),
    "create-3k": (create_3k, 2),
    "stat-cold": (stat_cold, 1),
    "list-cold": (list_cold, 1),
    "unlink": (unlink, 2),
    "untar": (untar, 2),
    "git-clone": (git_clone, 2),
    "sqlite-inserts": (sqlite_inserts, 2),
}


class Scale:
    """How much."""

    def __init__(self, mib: int, files: int, work: Path) -> None:
        self.mib = mib
        self.files = files
        self.archive = work / "source.tar"
        self.repository = work / "source.git"
        with tarfile.open(self.archive, "w") as tar:
            for part in ("f2tools", "tests", "docs", "bench"):
                tar.add(REPOSITORY / part, part, filter=lambda item: None if "__pycache__" in item.name else item)
        source = work / "source"
        source.mkdir()
        with tarfile.open(self.archive) as tar:
            tar.extractall(source, filter="data")
        identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.org"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
            subprocess.run(["git", *identity, *words], cwd=source, check=True)
        subprocess.run(["git", "clone", "-q", "--bare", source, self.repository], check=True)
        shutil.rmtree(source)


def _medians(took: list[tuple[float, float]]) -> tuple[float, float]:
    if not took:
        return float("nan"), float("nan")
    return statistics.median(seconds for seconds, _ in took), statistics.median(cpu for _, cpu in took)


def turns(
    measure: Callable[[Volume, Scale], tuple[float, float]], volumes: list[Volume], scale: Scale, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """What a measure took on each volume, by name; they take turns, forwards and backwards."""
    took: dict[str, list[tuple[float, float]]] = {volume.name: [] for volume in volumes}
    for turn in range(rounds):
        for volume in volumes if turn % 2 == 0 else volumes[::-1]:
            took[volume.name].append(measure(volume, scale))
    return took


def _require(names: list[str]) -> None:
    """Ends with a sentence where a program is missing."""
    tools = ["fusermount3", "git", "tar", "mkfs.f2fs", *(["fuse2fs", "mkfs.ext4"] if "fuse2fs" in names else [])]
    tools += ["cc"] if FLOOR in names else []
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        sys.exit(
            f"bench/mount.py: {', '.join(missing)} not installed (Debian: apt install fuse3 fuse2fs e2fsprogs"
            " f2fs-tools git tar); with --profile fuse2fs is not needed, and there is nothing to compare with"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--mib", type=int, help="of the large file")
    parser.add_argument("--files", type=int, help="small ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(MEASURES), choices=MEASURES)
    parser.add_argument("--server", nargs="+", default=["pyfuse3"], choices=SERVERS, help="of our own mount")
    parser.add_argument("--profile", help="of our own mount, by cProfile; without fuse2fs")
    parser.add_argument("--work", type=Path, default=None, help="where images and mounts lie")
    parser.add_argument(
        "--floor", action="store_true", help="beside a server that only answers, which takes cc and root"
    )
    parser.add_argument("--options", default="", help="of our own mount, beside allow_other")
    args = parser.parse_args()
    names = [*args.server, *([] if args.profile else ["fuse2fs"]), *([FLOOR] if args.floor else [])]
    _require(names)
    work = Path(tempfile.mkdtemp(prefix="f2bench-", dir=args.work))
    volumes: list[Volume] = []
    try:
        scale = Scale(args.mib or (1024 if args.full else 256), args.files or (20000 if args.full else 5000), work)
        size = (4 << 30) if args.full else (1 << 30)
        volumes = [Volume(name, work, size, args.profile, args.options) for name in names]
        for volume in volumes:
            volume.mount()
        heads = "".join(f" {name:>9} {'cpu':>8}" + f" {'ratio':>6}" * (name in SERVERS) for name in names)
        print(f"{'measure':20}{heads} {'aim':>5}")
        for name in args.only:
            measure, aim = MEASURES[name]
            took = turns(measure, volumes, scale, args.rounds)
            peer = _medians(took.get("fuse2fs", []))[0]
            line, mark = f"{name:20}", ""
            for server in names:
                seconds, cpu = _medians(took[server])
                line += f" {seconds:8.3f}s {cpu:8.3f}"
                if server in SERVERS:
                    line += f" {seconds / peer:6.2f}"
                    mark = " !" if seconds / peer > aim else mark
            print(f"{line} {aim:5.1f}{mark}", flush=True)
    finally:
        for volume in volumes:
            if os.path.ismount(volume.directory):
                volume.unmount()
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
