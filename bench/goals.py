#!/usr/bin/env python3
"""The aims for speed, each beside its peer: one table, Markdown, for bench/README.md.

    bench/goals.py [--runs 5] [--dump PATH/dump.f2fs] [--only mkfs,from] [--directory /dev/shm]

Whole commands, the start of Python included.  A command and its peer take turns, and a ratio is the median of the
ratios of the turns (below 1: f2tools takes less); seconds are medians.  Trees and images lie below --directory, in
memory, where a disk's moods don't count; it takes 8 GiB.  `dump.f2fs -r` came with f2fs-tools 1.16: --dump names one.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from trace import count_of, generate, tools  # of this directory

import extract
import mount
import readers
import resize
import trace_jobs
from extract import OUR_COMMAND, small_tree
from report import PATH, Cost, cost_of

from_ = importlib.import_module("from")
MANY, MILLION = 100_000, 1_000_000
EVENTS = "10M"
# CPU seconds that the readers took of 100,000 small files when their aims were set; each is to take a third
ONCE = {"ls": 6, "tar": 24, "manifest": 30, "timeline": 21, "undelete": 15, "history": 15, "clean": 52}
MOUNTED = {
    "create-3k": "create 5,000 files of 3 KB in a directory",
    "untar": "unpack this project's files",
    "random-write-fsync": "300 writes of 4 KiB, an fsync each",
    "sqlite-inserts": "300 transactions of SQLite",
}


@dataclass(frozen=True)
class Aim:
    """A row: what is compared, by the clock or by CPU, ours and the peer's seconds, their ratio, and the aim for it."""

    what: str
    measure: str
    ours: float
    peer_name: str
    peer: float
    ratio: float
    aim: float

    def line(self) -> str:
        """The row in Markdown."""
        cells = [self.what, self.measure, f"{self.ours:.3g} s", self.peer_name, f"{self.peer:.3g} s"]
        met = "yes" if self.ratio <= self.aim else "no"
        return f"| {' | '.join(cells)} | {self.ratio:.2g} | {self.aim:.3g} | {met} |"


@dataclass(frozen=True)
class Place:
    """Where a topic works, how often, and with which peer for extracting."""

    directory: Path
    runs: int
    dump: str | None


def in_turns(runs: int, *commands: Callable[[], Cost]) -> list[list[Cost]]:
    """What each command took in each turn, after one that is not counted."""
    for command in commands:
        command()
    turns = [[command() for command in commands] for _ in range(runs)]
    return [list(costs) for costs in zip(*turns, strict=True)]


def aim(what: str, measure: str, ours: list[Cost], peer: str, theirs: list[Cost], wanted: float) -> Aim:
    """A row of the medians of turns."""
    mine, others = ([getattr(cost, measure.lower()) for cost in costs] for costs in (ours, theirs))
    ratio = statistics.median(one / other for one, other in zip(mine, others, strict=True))
    return Aim(what, measure, statistics.median(mine), peer, statistics.median(others), ratio, wanted)


def fixed(what: str, measure: str, costs: list[Cost], aimed: str, seconds: float) -> Aim:
    """A row whose aim is a number of seconds."""
    median = statistics.median(getattr(cost, measure.lower()) for cost in costs)
    return Aim(what, measure, median, aimed, seconds, median / seconds, 1)


def start_rows(place: Place) -> Iterator[Aim]:
    """What a start takes beside Python's own and that of click, of which the aims are 1.1 and 60 of 52 ms."""
    image = place.directory / "empty.img"
    click = [sys.executable, "-c", "import click"]
    for words, wanted in ((["--help"], 1.1), (["mkfs", "-q", "-f", image, "--size", "1G"], 1.15)):
        ours, theirs = in_turns(
            place.runs * 4, lambda words=words: cost_of([OUR_COMMAND, *words]), lambda: cost_of(click)
        )
        shown = " ".join(str(word) for word in words if word != image)
        yield aim(f"`f2tools {shown}`", "CPU", ours, "`python -c 'import click'`", theirs, wanted)


def from_rows(place: Place) -> Iterator[Aim]:
    """A volume formatted and filled."""
    cases = (
        ("20,000 small files", lambda tree: small_tree(tree, 20_000), 20_000 * 18_000, 0.2, 0.25),
        ("100,000 small files", lambda tree: small_tree(tree, MANY), MANY * 18_000, 0.15, 0.2),
        ("2 GiB in 4 files", lambda tree: from_.big_tree(tree, 2048), 2048 * 5 // 4 << 20, 0.1, 0.1),
    )
    for what, fill, size, *aims in cases:
        tree, image = place.directory / "tree", place.directory / "image"
        fill(tree)
        room = (size + (256 << 20)) >> 20 << 20
        ours, theirs = in_turns(
            min(place.runs, 3),
            lambda tree=tree, image=image, room=room: from_.ours(tree, image, room),
            lambda tree=tree, image=image, room=room: from_.theirs(tree, image, room),
        )
        for measure, wanted in zip(("wall", "CPU"), aims, strict=True):
            yield aim(f"`f2tools mkfs --from`, {what}", measure, ours, "`mkfs.f2fs`, `sload.f2fs`", theirs, wanted)
        shutil.rmtree(tree)
        image.unlink()


def fsck_rows(place: Place) -> Iterator[Aim]:
    """A check of files made by the C tools, and of a million that an archive has."""
    for what, make in ((f"{MANY:,} small files", _many), (f"{MILLION:,} files of 0.2 to 1.7 KB", _million)):
        image = make(place.directory)
        ours, theirs = in_turns(
            place.runs,
            lambda image=image: cost_of([OUR_COMMAND, "fsck", image]),
            lambda image=image: cost_of(["fsck.f2fs", "--dry-run", image]),
        )
        yield aim(f"`f2tools fsck`, {what}", "CPU", ours, "`fsck.f2fs --dry-run`", theirs, 0.7)
        image.unlink()


def _many(directory: Path) -> Path:
    tree, image = directory / "tree", directory / "many.img"
    small_tree(tree, MANY)
    extract.image_of(tree, image, str((MANY * 18_000 + (256 << 20)) >> 20 << 20))
    shutil.rmtree(tree)
    return image


def _million(directory: Path) -> Path:
    image = directory / "million.img"
    command = [OUR_COMMAND, "mkfs", "-q", image, "--size", "12G", "--from", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as making:
        assert making.stdin is not None
        with tarfile.open(fileobj=making.stdin, mode="w|") as archive:
            for number in range(MILLION):
                member = tarfile.TarInfo(f"d{number // 500:04}/file-{number:07}.txt")
                member.size = 200 + number * 7919 % 1500
                member.mtime = 1_700_000_000
                archive.addfile(member, io.BytesIO(b"x" * member.size))
    if making.returncode:
        raise SystemExit(f"mkfs --from ended with {making.returncode}")
    return image


def extract_rows(place: Place) -> Iterator[Aim]:
    """All files of an image; the floor is what the host's file system takes for making them."""
    if place.dump is None:
        print("no dump.f2fs with -r here: --dump names one", file=sys.stderr)
        return
    tree, image = place.directory / "tree", place.directory / "many.img"
    small_tree(tree, MANY)
    listed, loop = extract.lines_of(tree), extract.bare_loop(place.directory)
    extract.image_of(tree, image, str((MANY * 18_000 + (256 << 20)) >> 20 << 20))
    shutil.rmtree(tree)
    fresh = (place.directory / f"out-{number}" for number in count())

    def into(run: Callable[[Path], Cost], made: bool) -> Cost:
        out = next(fresh)
        if made:
            out.mkdir()
        try:
            return run(out)
        finally:
            shutil.rmtree(out)

    theirs_is = [place.dump, "-P", "-L", "-r", "-y", "-o"]
    commands = [
        lambda: into(lambda out: cost_of([OUR_COMMAND, "dump", "extract", image, "-o", out]), made=False),
        lambda: into(lambda out: cost_of([*theirs_is, out, image]), made=True),
    ]
    if loop is not None:
        commands.append(lambda: into(lambda out: cost_of([loop], cwd=out, given=listed), made=True))
    ours, theirs, *floor = in_turns(place.runs, *commands)
    peer = "`dump.f2fs -r`"
    yield aim(f"`f2tools dump extract`, {MANY:,} small files", "CPU", ours, peer, theirs, 0.7)
    for costs in floor:
        yield aim("a bare loop in C that makes these files", "CPU", costs, peer, theirs, 0.7)


def resize_rows(place: Place) -> Iterator[Aim]:
    """A volume grown to twice its size; the aim is in seconds."""
    image, copy = place.directory / "image", place.directory / "copy"
    resize.make(image, "1G")

    def ours() -> Cost:
        subprocess.run(["cp", "--sparse=always", image, copy], check=True)
        return cost_of([OUR_COMMAND, "resize", copy, "2G"])

    (costs,) = in_turns(place.runs, ours)
    yield fixed("`f2tools resize`, 1 GiB to 2 GiB", "wall", costs, "the aim", 0.6)


def trace_rows(place: Place) -> Iterator[Aim]:
    """Reports of a trace of ten million events; the aims are 15 and 10 times the events of the peer in a second."""
    prefix = place.directory / "t"
    generate(prefix, count_of(EVENTS))
    commands = tools(prefix, place.directory)
    names = "f2tools trace analyze --issue-only", "f2tools trace analyze", "blkparse -d + btt"

    def shell(name: str) -> Callable[[], Cost]:
        return lambda: cost_of(["sh", "-c", commands[name]])

    *ours, theirs = in_turns(min(place.runs, 3), *[shell(name) for name in names])
    for name, costs, wanted in zip(names, ours, (1 / 15, 1 / 10), strict=False):
        yield aim(f"`{name}`, {EVENTS} events", "CPU", costs, "`blkparse -d`, `btt`", theirs, wanted)
    ways = {
        jobs: [Cost(clock, trace_jobs.way(seen, jobs), 0) for seen, clock in runs]
        for jobs, runs in trace_jobs.in_turns(prefix, 2, place.runs).items()
    }
    yield aim("`f2tools trace analyze --jobs 2`, the longest way", "CPU", ways[2], "one process", ways[1], 1 / 1.7)


def reader_rows(place: Place) -> Iterator[Aim]:
    """Commands that read a whole volume; the aim is a third of what they took once."""
    tree, image = place.directory / "tree", place.directory / "image"
    small_tree(tree, MANY)
    size = str(MANY * (20 << 10))
    subprocess.run([OUR_COMMAND, "mkfs", "-q", image, "--size", size, "--from", tree], check=True)
    shutil.rmtree(tree)
    for reader in readers.READERS:
        if reader.name in ONCE:
            (costs,) = in_turns(1, lambda reader=reader: cost_of([OUR_COMMAND, *readers.ours(reader, image)]))
            shown = " ".join(word for word in reader.words if word != "{}")
            yield fixed(f"`f2tools {shown}`, {MANY:,} small files", "CPU", costs, "the aim", ONCE[reader.name] / 3)


def mount_rows(place: Place) -> Iterator[Aim]:
    """A mount by both servers beside fuse2fs, with ext4."""
    scale = mount.Scale(64, 5000, place.directory)
    names = [*mount.SERVERS, "fuse2fs"]
    volumes = [mount.Volume(name, place.directory, 1 << 30, None) for name in names]
    try:
        for volume in volumes:
            volume.mount()
        for name, what in MOUNTED.items():
            took = mount.turns(mount.MEASURES[name][0], volumes, scale, place.runs)
            costs = {server: [Cost(wall, cpu, 0) for wall, cpu in found] for server, found in took.items()}
            for server in mount.SERVERS:
                yield aim(f"mount by {server}: {what}", "wall", costs[server], "`fuse2fs`", costs["fuse2fs"], 1)
    finally:
        for volume in volumes:
            if os.path.ismount(volume.directory):
                volume.unmount()


TOPICS: dict[str, Callable[[Place], Iterator[Aim]]] = {
    "start": start_rows, "from": from_rows, "fsck": fsck_rows, "extract": extract_rows, "resize": resize_rows,
    "trace": trace_rows, "readers": reader_rows, "mount": mount_rows,
}  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dump", default=shutil.which("dump.f2fs", path=PATH), help="a dump.f2fs that knows -r")
    parser.add_argument("--only", default=",".join(TOPICS), help=", ".join(TOPICS))
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    given = parser.parse_args()
    os.environ["PATH"] = PATH
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    usage = subprocess.run([given.dump], capture_output=True, text=True, check=False) if given.dump else None
    dump = given.dump if usage and " -r " in usage.stdout + usage.stderr else None
    print("| what | measure | f2tools | beside | takes | ratio | aim | met |")
    print("|---|---|---:|---|---:|---:|---:|---|", flush=True)
    for topic in given.only.split(","):
        with tempfile.TemporaryDirectory(dir=given.directory, prefix="f2tools-bench-") as name:
            for row in TOPICS[topic](Place(Path(name), given.runs, dump)):
                print(row.line(), flush=True)


if __name__ == "__main__":
    main()
