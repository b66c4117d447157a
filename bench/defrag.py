#!/usr/bin/env python3
"""`f2tools defrag -s -l -t` beside `defrag.f2fs`: a range of valid blocks moved to free ones, whole commands included.

    bench/defrag.py [--mib 64] [--runs 3] [--directory DIR]

The image is made with mkfs.f2fs and sload.f2fs; each run has a fresh copy of it, and the tools take turns.  Besides,
what `f2tools defrag --sort size` moves in the same volume.  Seconds are medians; MB are those of the blocks that moved.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from report import interleaved

OUR_COMMAND = Path(sys.executable).parent / "f2tools"
PATH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
BLOCK = 4096


def made(directory: Path, mib: int) -> Path:
    """A volume four times as large as the files in it, which lie one behind the other."""
    tree, image = directory / "tree", directory / "image"
    tree.mkdir()
    for number in range(max(1, mib // 4)):
        (tree / f"f{number:04}").write_bytes(os.urandom(4 << 20))
    with image.open("wb") as file:
        file.truncate(max(256, 4 * mib) << 20)
    subprocess.run(["mkfs.f2fs", "-q", "-f", image], check=True, stdout=subprocess.DEVNULL, env=_environment())
    subprocess.run(["sload.f2fs", "-P", "-f", tree, image], check=False, stdout=subprocess.DEVNULL, env=_environment())
    return image


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {"PATH": PATH}


def data_range(image: Path) -> tuple[int, int, int]:
    """(start, count, target): the segments full of data, and where free ones begin behind them."""
    import numpy as np

    import f2tools

    with f2tools.open(image) as volume:
        geo, sit = volume.geo, volume.sit
        full = np.flatnonzero((sit.vblocks == geo.blocks_per_seg) & (sit.types < 3))
        run = max(np.split(full, np.flatnonzero(np.diff(full) != 1) + 1), key=len)
        count = run.size * geo.blocks_per_seg
        return int(geo.start_block(run[0])), count, int(geo.start_block(np.flatnonzero(sit.vblocks)[-1] + 1))


def on_a_copy(image: Path, command: Callable[[Path], list[str | os.PathLike[str]]]) -> Callable[[], float]:
    """Seconds of a command on a fresh copy of the image."""

    def run() -> float:
        copy = image.with_name("copy")
        shutil.copyfile(image, copy)
        os.sync()
        begun = time.perf_counter()
        subprocess.run(command(copy), check=False, stdout=subprocess.DEVNULL, env=_environment())
        return time.perf_counter() - begun

    return run


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64, help="MiB of files")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        image = made(Path(name), given.mib)
        start, count, target = data_range(image)
        where: list[str | os.PathLike[str]] = ["-s", hex(start), "-l", hex(count), "-t", hex(target)]
        tools = [on_a_copy(image, lambda copy: [OUR_COMMAND, "defrag", copy, *where, "--force"])]
        if shutil.which("defrag.f2fs", path=PATH):
            tools.append(on_a_copy(image, lambda copy: ["defrag.f2fs", *where, copy]))
        found = interleaved(given.runs, *tools)
        for tool, seconds in zip(("f2tools defrag -s -l -t", "defrag.f2fs"), found, strict=False):
            print(f"{tool:28} {count} blocks in {seconds:.2f} s: {count * BLOCK / 1e6 / seconds:.1f} MB/s")
        sort = on_a_copy(image, lambda copy: [OUR_COMMAND, "defrag", copy, "--sort", "size"])
        (seconds,) = interleaved(given.runs, sort)
        said = subprocess.run([OUR_COMMAND, "defrag", image, "--sort", "size", "--dry-run", "--json"], check=False,
                              stdout=subprocess.PIPE, env=_environment())  # fmt: skip
        count = json.loads(said.stdout)["data_blocks_moved"]
        print(f"{'f2tools defrag --sort size':28} {count} blocks in {seconds:.2f} s: "
              f"{count * BLOCK / 1e6 / seconds:.1f} MB/s")  # fmt: skip


if __name__ == "__main__":
    main()
