#!/usr/bin/env python3
"""The virtualized storage layer: its map by itself, and a layer with scattered blocks.

    bench/vsl.py [--mapped 10M] [--layer 1M] [--directory DIR]

The map: bytes an extent, lookups and changes a second, beside `sortedcontainers.SortedDict` with a tenth of it.
The layer: blocks of 512 bytes in random order, so that each is an extent of its own; then opened from its checkpoint,
and from all of its log.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sortedcontainers import SortedDict

from f2tools.device.media.image import open_image
from f2tools.flash.extents import ExtentMap
from f2tools.flash.vsl import Vsl, create_vsl, open_vsl

SPACE = 1 << 40
OPERATIONS = 200_000


def number(text: str) -> int:
    """10M as a number."""
    return int(float(text.rstrip("kM")) * {"k": 1000, "M": 1_000_000}.get(text[-1], 1))


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def rate(count: int, work: Callable[[], None]) -> str:
    """How many a second of processor time."""
    began = time.process_time()
    work()
    return f"{count / (time.process_time() - began):,.0f}/s"


def keys(count: int) -> np.ndarray:
    """So many different block numbers, none next to another."""
    return np.unique(np.random.default_rng(1).integers(0, SPACE // 2, count * 11 // 10, np.uint64))[:count] * np.uint64(
        2
    )


def print_map(name: str, count: int, loaded: int, rates: tuple[str, str, str]) -> None:
    """One line."""
    lookups, overwrites, new = rates
    print(f"{name}, {count:,} extents: {loaded / count:.1f} bytes each;", end=" ")
    print(f"lookups {lookups}, overwrites {overwrites}, new {new}", flush=True)


def arrays(count: int) -> None:
    """The map that the layer has."""
    starts = np.sort(keys(count))
    mapped = ExtentMap.of_arrays(starts, np.ones(count, np.uint32), np.random.default_rng(2).permutation(count))
    loaded = mapped.memory_bytes()
    chance = random.Random(3)
    some = chance.choices(starts.tolist(), k=OPERATIONS)
    fresh = [chance.randrange(SPACE) for _ in range(OPERATIONS)]
    looked = rate(OPERATIONS, lambda: [mapped.lookup(key, 1) for key in some] and None)
    changed = rate(OPERATIONS, lambda: [mapped.set(key, 1, key) for key in some] and None)
    added = rate(OPERATIONS, lambda: [mapped.set(key, 1, key) for key in fresh] and None)
    print_map("arrays", count, loaded, (looked, changed, added))


def sorted_dict(count: int) -> None:
    """A well-kept library in its place: start -> (count, address)."""
    starts = np.sort(keys(count)).tolist()
    before = resident()
    mapped = SortedDict((start | 1, (1, 1000 + n)) for n, start in enumerate(starts))
    loaded = resident() - before
    chance = random.Random(3)
    some = chance.choices(starts, k=OPERATIONS)
    fresh = [chance.randrange(SPACE) for _ in range(OPERATIONS)]

    def lookup(key: int) -> None:
        at = mapped.bisect_right(key) - 1
        start = mapped.keys()[at]
        mapped[start]

    looked = rate(OPERATIONS, lambda: [lookup(key) for key in some] and None)
    changed = rate(OPERATIONS, lambda: [mapped.__setitem__(key, (1, key)) for key in some] and None)
    added = rate(OPERATIONS, lambda: [mapped.__setitem__(key, (1, key)) for key in fresh] and None)
    print_map("SortedDict", count, loaded, (looked, changed, added))


def layer(count: int, directory: str | None) -> None:
    """An image with so many scattered blocks."""
    with tempfile.TemporaryDirectory(dir=directory) as name:
        path = Path(name) / "bench.vsl"
        size = count * 512 * 5 // 4
        vsl = create_vsl(path, size, space_blocks=SPACE)
        starts = keys(count)
        content = os.urandom(512)
        plain = min(count, OPERATIONS)
        print(
            f"single blocks of 512 bytes written: {rate(plain, lambda: write(vsl, starts[:plain].tolist(), content))}"
        )
        began = time.process_time()
        for at in range(plain, count, 4000):
            part = starts[at : at + 4000]
            vsl.write_scattered(part, content * len(part))
        print(f"many at once: {(count - plain) / max(time.process_time() - began, 1e-9):,.0f}/s")
        some = random.Random(5).choices(starts.tolist(), k=20_000)
        print(f"read: {rate(len(some), lambda: [vsl.read_vblocks(key, 1) for key in some] and None)}")
        began = time.process_time()
        vsl.close()
        print(f"closed, with a checkpoint of {vsl.map.extents:,} extents: {time.process_time() - began:.2f} s")
        for how in (True, False):
            began = time.process_time()
            with open_vsl(open_image(path), use_checkpoint=how) as again:
                assert again.opened.from_checkpoint is how
                assert again.mapped_blocks == count
            print(f"opened from {'its checkpoint' if how else 'all of its log'}: {time.process_time() - began:.2f} s")


def write(vsl: Vsl, starts: list[int], content: bytes) -> None:
    """One block after the other."""
    for start in starts:
        vsl.write_vblocks(start, content)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mapped", type=number, default=number("10M"))
    parser.add_argument("--layer", type=number, default=number("1M"))
    parser.add_argument("--directory")
    given = parser.parse_args()
    arrays(given.mapped)
    sorted_dict(given.mapped // 10)
    layer(given.layer, given.directory)


if __name__ == "__main__":
    main()
