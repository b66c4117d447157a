#!/usr/bin/env python3
"""`f2tools dump extract` beside `dump.f2fs -r`: medians of interleaved runs, whole commands included.

    bench/extract.py [--dump PATH/dump.f2fs] [--small 20000] [--big 1024] [--runs 3] [--directory DIR]

Makes its images with mkfs.f2fs and sload.f2fs below --directory and removes them at the end, and only then: ext4 makes
files several times slower for half a minute after many were removed.  `dump.f2fs -r` came with f2fs-tools 1.16;
without one, only our own figures are printed.  The page cache is warm for both.  Where there is a C compiler, a bare
loop (bare_files.c) makes the same files in turns with them: what the host's file system takes of the time, which no
program can save.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OUR_COMMAND = Path(sys.executable).parent / "f2tools"


def small_tree(top: Path, count: int) -> None:
    """`count` files of 0 to 16 KiB, 120 to a directory, 1 % symbolic links."""
    rng = random.Random(20260101)
    pool = rng.randbytes(1 << 20)
    for number in range(count):
        directory = top / f"a{number // 120 % 32:02d}" / f"b{number // 120:05d}"
        if number % 120 == 0:
            directory.mkdir(parents=True)
        path = directory / f"file-{number:06d}.{'txt' if number % 3 else 'jpg'}"
        if number % 100 == 99:
            path.symlink_to("elsewhere")
            continue
        draw = rng.random()
        size = 0 if draw < 0.02 else rng.randrange(1, 3000) if draw < 0.6 else rng.randrange(3000, 16384)
        start = rng.randrange(0, len(pool) - size)
        path.write_bytes(pool[start : start + size])


def big_file(top: Path, mib: int) -> None:
    """One file that can't be compressed."""
    top.mkdir()
    pool = random.Random(20260101).randbytes(1 << 20)
    with (top / "big").open("wb") as file:
        for number in range(mib):
            file.write(number.to_bytes(4, "little") + pool[4:])


def image_of(tree: Path, image: Path, size: str) -> None:
    """Format an image and put a tree into it with the C tools."""
    with image.open("wb") as file:
        file.truncate(int(size))
    subprocess.run(["mkfs.f2fs", "-q", image], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["sload.f2fs", "-P", "-f", tree, image], check=False, stdout=subprocess.DEVNULL)


def timed(command: list[str | os.PathLike[str]], out: Path, **settings: object) -> tuple[float, float, int]:
    """(seconds, CPU seconds, files made) of a command that fills `out`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **settings)  # type: ignore[call-overload]
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    made = sum(len(files) for _, _, files in os.walk(out))
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, made


def bare_loop(directory: Path) -> Path | None:
    """The compiled loop that makes files and does nothing else."""
    compiler, program = shutil.which("cc"), directory / "bare_files"
    if compiler is None:
        return None
    subprocess.run([compiler, "-O2", "-o", program, Path(__file__).with_name("bare_files.c")], check=True)
    return program


def lines_of(top: Path) -> bytes:
    """A tree as the bare loop reads it: names without spaces only, each directory before what is in it."""
    lines: list[str] = []
    for here, directories, files in os.walk(top):
        directories.sort()
        inside = os.path.relpath(here, top)
        lines += [f"d {inside}"] if inside != "." else []
        for name in sorted(files):
            path = os.path.join(here, name)
            word = f"l {os.readlink(path)}" if os.path.islink(path) else f"f {os.stat(path).st_size}"
            lines.append(f"{word} {os.path.normpath(os.path.join(inside, name))}")
    return "".join(f"{line}\n" for line in lines).encode()


def peak_memory(command: list[str | os.PathLike[str]]) -> int:
    """Peak resident memory of a command, MiB."""
    program = (
        "import os, resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", program, *command], check=True, capture_output=True, text=True)
    return int(done.stdout) >> 10


def compare(what: str, tree: Path, image: Path, directory: Path, dump: str | None, runs: int) -> None:
    """Run all in turn and print medians."""
    ours: list[tuple[float, float, int]] = []
    theirs: list[tuple[float, float, int]] = []
    bare: list[tuple[float, float, int]] = []
    loop, listed = bare_loop(directory), lines_of(tree)
    for number in range(runs):
        out = directory / f"{image.stem}-ours-{number}"
        ours.append(timed([OUR_COMMAND, "dump", "extract", image, "-o", out], out))
        if dump:
            out = directory / f"{image.stem}-theirs-{number}"
            out.mkdir()
            theirs.append(timed([dump, "-P", "-L", "-r", "-y", "-o", out, image], out))
        if loop is not None:
            out = directory / f"{image.stem}-bare-{number}"
            out.mkdir()
            bare.append(timed([loop], out, cwd=out, input=listed))
    print(f"{what}: {ours[0][2]} files")
    for name, found in (("f2tools dump extract", ours), ("dump.f2fs -r", theirs), ("a bare loop in C", bare)):
        if found:
            wall, cpu = (statistics.median(item[i] for item in found) for i in (0, 1))
            print(f"  {name:22} {wall:8.2f} s wall  {cpu:8.2f} s CPU  ({len(found)} runs, {found[0][2]} files)")
    if theirs:
        ratio = statistics.median(item[0] for item in ours) / statistics.median(item[0] for item in theirs)
        print(f"  ratio {ratio:.2f}")
    out = directory / f"{image.stem}-peak"
    print(f"  peak memory {peak_memory([OUR_COMMAND, 'dump', 'extract', image, '-o', out])} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", default=shutil.which("dump.f2fs"), help="a dump.f2fs that knows -r")
    parser.add_argument("--small", type=int, default=20_000, help="small files")
    parser.add_argument("--big", type=int, default=1024, help="MiB of the big file")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where trees and images lie, in a directory of their own")
    options = parser.parse_args()
    dump = options.dump
    if dump and " -r " not in subprocess.run([dump], capture_output=True, text=True, check=False).stdout:
        print(f"{dump} has no -r; only our own figures follow")
        dump = None
    options.directory = Path(tempfile.mkdtemp(prefix="f2tools-bench-", dir=options.directory))
    try:
        if options.small:
            small_tree(options.directory / "many", options.small)
            image = options.directory / "small.img"
            image_of(options.directory / "many", image, str((options.small * 18_000 + (256 << 20)) >> 20 << 20))
            compare("small files", options.directory / "many", image, options.directory, dump, options.runs)
        if options.big:
            big_file(options.directory / "tree", options.big)
            image = options.directory / "big.img"
            image_of(options.directory / "tree", image, str((options.big * 5 // 4 + 256) << 20))
            compare("one big file", options.directory / "tree", image, options.directory, dump, options.runs)
    finally:
        shutil.rmtree(options.directory)


if __name__ == "__main__":
    main()
