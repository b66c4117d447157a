#!/usr/bin/env python3
"""All benchmarks, one table: medians of runs that take turns with the C tools, whole commands included.

    bench/run.py [--full] [--dump PATH/dump.f2fs] [--directory DIR] [TOPIC ...]

TOPIC is startup, load, mkfs or extract; all unless named.  --full takes the sizes that figures are quoted for: 100,000
small files, 2 GiB, volumes up to 16 TiB.  Each topic is a script of its own with more options.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

import extract
import load
import mkfs
import startup
from report import Row, interleaved, print_table

PATH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


def startup_rows(given: argparse.Namespace) -> list[Row]:
    """How long the help takes."""
    return startup.measure(21 if given.full else 11)


def load_rows(given: argparse.Namespace) -> list[Row]:
    """How long the tables take."""
    return load.measure(5, "1T", given.directory)


def mkfs_rows(given: argparse.Namespace) -> list[Row]:
    """How long formatting takes."""
    rows = []
    there = shutil.which("mkfs.f2fs", path=PATH) is not None
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        image = Path(directory) / "image"
        for text in ("1G", "64G", "1T", "16T") if given.full else ("1G", "64G", "1T"):
            size = mkfs.size_of(text)
            _, peak = mkfs.ours(image, size)
            tools: list[Callable[[], float]] = [lambda size=size: mkfs.ours(image, size)[0]]
            if there:
                tools.append(lambda size=size: mkfs.theirs(image, size)[0])
            medians = [*interleaved(5, *tools), None]
            rows.append(Row(f"mkfs {text}", medians[0] or 0, "mkfs.f2fs", medians[1], peak >> 10))
    return rows


def extract_rows(given: argparse.Namespace) -> list[Row]:
    """How long taking everything out takes."""
    small, big = (100_000, 2048) if given.full else (10_000, 512)
    rows = []
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="f2tools-bench-") as name:
        directory = Path(name)
        for what, tree, fill, mib in (
            (f"extract {small:,} small files", directory / "small", extract.small_tree, small * 18_000 + (256 << 20)),
            (f"extract one file of {big} MiB", directory / "big", extract.big_file, (big * 5 // 4 + 256) << 20),
        ):
            fill(tree, small if fill is extract.small_tree else big)
            image = directory / f"{tree.name}.img"
            extract.image_of(tree, image, str(mib >> 20 << 20))
            rows.append(_extract_row(what, image, directory, given.dump))
    return rows


def _extract_row(what: str, image: Path, directory: Path, dump: str | None) -> Row:
    # every run has a directory of its own, and none is removed before the end: a file system makes files several times
    # slower for a while after many were removed
    fresh = (directory / f"{image.stem}-{number}" for number in count())

    def ours() -> float:
        out = next(fresh)
        return extract.timed([extract.OUR_COMMAND, "dump", "extract", image, "-o", out], out)[0]

    def theirs() -> float:
        assert dump is not None
        out = next(fresh)
        out.mkdir()
        return extract.timed([dump, "-P", "-L", "-r", "-y", "-o", out, image], out)[0]

    medians = [*interleaved(3, *([ours, theirs] if dump else [ours])), None]
    peak = extract.peak_memory([extract.OUR_COMMAND, "dump", "extract", image, "-o", next(fresh)])
    return Row(what, medians[0] or 0, "dump.f2fs -r" if dump else "no dump.f2fs with -r here", medians[1], peak)


def dump_that_extracts(wanted: str | None) -> str | None:
    """A dump.f2fs that knows -r, which came with f2fs-tools 1.16."""
    found = wanted or shutil.which("dump.f2fs", path=PATH)
    if found is None:
        return None
    usage = subprocess.run([found], capture_output=True, text=True, check=False)
    return found if " -r " in usage.stdout + usage.stderr else None


TOPICS = {"startup": startup_rows, "load": load_rows, "mkfs": mkfs_rows, "extract": extract_rows}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topics", nargs="*", choices=[*TOPICS, []], metavar="TOPIC", help=", ".join(TOPICS))
    parser.add_argument("--full", action="store_true", help="the sizes that figures are quoted for")
    parser.add_argument("--dump", help="a dump.f2fs that knows -r")
    parser.add_argument("--directory", type=Path, help="where images and trees go [the system's directory for such]")
    given = parser.parse_args()
    given.dump = dump_that_extracts(given.dump)
    print(f"Python {platform.python_version()}, {platform.system()} {platform.release()}, {os.cpu_count()} CPUs")
    print_table([row for topic in given.topics or TOPICS for row in TOPICS[topic](given)])


if __name__ == "__main__":
    main()
