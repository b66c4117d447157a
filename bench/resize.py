#!/usr/bin/env python3
"""`f2tools resize` beside `resize.f2fs`: seconds and MB/s of moved blocks, and what becomes of the data.

    bench/resize.py [--size 1G] [--runs 5] [--data] [--kill 20] [--directory DIR]

The volume was filled with small files, of which a third is left.  It grows to twice its size, which moves the metadata
areas, and shrinks to two thirds (`resize.f2fs -s`, which leaves them).  Whole commands are timed, in turns; ours with
the check that it begins with and without.  What a run wrote is made durable before its time is taken: `resize.f2fs`
leaves that to the system, ours does it at each step.

--data takes volumes that a kernel aged (tests/reference) through the same: is the tree what it was, and what do
fsck.f2fs and f2tools fsck say?  --kill stops each tool so many times at a random moment of its work and asks the same.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from clean import make
from fsck import OUR_COMMAND, PATH

from f2tools.dump.manifest import manifest
from f2tools.errors import F2fsError
from f2tools.f2fs.volume.volume import open_volume
from f2tools.options import parse_size

MIB = 1 << 20
AGED = ("base", "fragmented", "full", "sections", "features", "checksums", "casefold", "compress-lz4", "phone",
        "active-logs-2", "multi-device", "crash-several", "crash-orphan")  # fmt: skip
PATIENCE = 120  # seconds; resize.f2fs was seen to hang


def tree(path: Path, extra: Sequence[Path] = ()) -> dict[str, Any]:
    """All that is in a volume but where it lies and when its directories changed."""
    with open_volume(path, extra) as volume:
        return {
            name: (entry["type"], entry["mode"], entry.get("size"), entry.get("sha256"), entry.get("xattrs"))
            for name, entry in manifest(volume)["entries"].items()
        }


def timed(command: Sequence[object], image: Path) -> float:
    """Seconds until a command is done and what it wrote is on the disk."""
    begun = time.perf_counter()
    subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    with open(image, "rb") as file:
        os.fsync(file.fileno())
    return time.perf_counter() - begun


def ours(image: Path, size: int, *options: str) -> float:
    return timed([OUR_COMMAND, "resize", image, size, *options], image)


def theirs(tool: str, image: Path, size: int) -> float:
    if size > image.stat().st_size:
        os.truncate(image, size)
        return timed([tool, image], image)
    return timed([tool, "-s", "-t", size // 512, image], image)


def speed(given: argparse.Namespace, directory: Path, tool: str | None) -> None:
    """Print seconds of each, and what of the main area moved."""
    image, copy = directory / "image", directory / "copy"
    make(image, given.size)
    before, size = tree(image), parse_size(given.size)
    for what, wanted in (("grow to twice its size", size * 2), ("shrink to two thirds", size * 2 // 3 >> 21 << 21)):
        runs: dict[str, Callable[[int], float]] = {
            "f2tools resize": lambda wanted: ours(copy, wanted),
            "f2tools resize --no-check": lambda wanted: ours(copy, wanted, "--no-check"),
        }
        if tool:
            runs["resize.f2fs"] = lambda wanted, tool=tool: theirs(tool, copy, wanted)
        found: dict[str, list[float]] = {name: [] for name in runs}
        said: dict[str, str] = {}
        for _ in range(given.runs):
            for name, run in runs.items():
                subprocess.run(["cp", "--sparse=always", image, copy], check=True)
                found[name].append(run(wanted))
                said[name] = "data the same" if tree(copy) == before else "DATA NOT THE SAME"
        moved = moved_bytes(image, wanted)
        for name, times in found.items():
            median = statistics.median(times)
            print(f"{what:24} {name:26} {median:7.2f} s {moved / 1e6 / median:8.1f} MB/s  {said[name]}")


def moved_bytes(image: Path, size: int) -> int:
    """Bytes of the main area that ours moves."""
    import json

    done = subprocess.run([OUR_COMMAND, "resize", image, str(size), "--dry-run", "--json", "--no-check"],
                          capture_output=True, check=True)  # fmt: skip
    return json.loads(done.stdout)["blocks_moved"] * 4096


def data(directory: Path, tool: str | None) -> None:
    """Print what became of volumes that a kernel aged."""
    from tests import images

    tools: dict[str, Callable[[Path, Sequence[Path], int], str]] = {"f2tools resize": with_ours}
    if tool:
        tools["resize.f2fs"] = lambda path, extra, size: with_theirs(tool, path, extra, size)
    print(f"{'volume':16} {'to':>8}  " + "  ".join(f"{name:44}" for name in tools))
    for name in AGED:
        for text in ("3G", "75%"):
            shown: list[str] = []
            label = text
            for run in tools.values():
                place = directory / "aged"
                shutil.rmtree(place, ignore_errors=True)
                case = images.reference(name).copy(place)
                last = ([case.path, *case.extra])[-1]
                size = 3 << 30 if text == "3G" else last.stat().st_size * 3 // 4 >> 21 << 21
                label = text if text == "3G" else f"{size // MIB}M"
                before = recovered(case.path, case.extra)
                said = run(case.path, case.extra, size)
                shown.append(f"{said}; {verdict(case.path, case.extra, before)}")
            print(f"{name:16} {label:>8}  " + "  ".join(f"{one:44}" for one in shown))


def kill(given: argparse.Namespace, directory: Path, tool: str | None) -> None:
    """Print what becomes of a volume whose resize is killed at a random moment, the page cache being kept."""
    image, copy = directory / "image", directory / "copy"
    make(image, given.size)
    before, size = recovered(image, ()), parse_size(given.size)
    chance = random.Random(1)
    for what, wanted in (("grow", size * 2), ("shrink", size * 2 // 3 >> 21 << 21)):
        commands: dict[str, list[object]] = {"f2tools resize": [OUR_COMMAND, "resize", copy, wanted, "--no-check"]}
        if tool:
            commands["resize.f2fs"] = [tool, copy] if wanted > size else [tool, "-s", "-t", wanted // 512, copy]
        for name, command in commands.items():
            whole = 0.0
            said: Counter[str] = Counter()
            for number in range(given.kill + 1):  # the first one is left to finish
                subprocess.run(["cp", "--sparse=always", image, copy], check=True)
                if name == "resize.f2fs" and wanted > size:
                    os.truncate(copy, wanted)
                begun = time.perf_counter()
                run = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
                try:
                    run.wait(chance.uniform(0, whole) if number else None)
                except subprocess.TimeoutExpired:
                    run.kill()
                    run.wait()
                if not number:
                    whole = time.perf_counter() - begun
                else:
                    said[verdict(copy, (), before)] += 1
            print(f"{what:8} {name:16} killed {given.kill} times: " + "; ".join(f"{n} {t}" for t, n in said.items()))


def recovered(path: Path, extra: Sequence[Path]) -> dict[str, Any]:
    """The tree as a mount shows it."""
    from f2tools.device import open_device
    from f2tools.device.changes.overlay import Overlay
    from f2tools.f2fs.volume.volume import Volume
    from f2tools.f2fs.write.volume import WritableVolume

    with open_device(path, extra=list(extra)) as device:
        top = Overlay(device)
        WritableVolume(top).sync()
        with Volume(top) as volume:
            return {
                name: (entry["type"], entry["mode"], entry.get("size"), entry.get("sha256"), entry.get("xattrs"))
                for name, entry in manifest(volume)["entries"].items()
            }


def with_ours(path: Path, extra: Sequence[Path], size: int) -> str:
    words = [word for one in extra for word in ("--device", str(one))]
    done = subprocess.run([OUR_COMMAND, "resize", path, str(size), *words], capture_output=True, check=False)
    return "done" if done.returncode == 0 else f"refused ({done.returncode})"


def with_theirs(tool: str, path: Path, extra: Sequence[Path], size: int) -> str:
    if extra:
        return "knows one device only"
    options: list[str] = ["-s", "-t", str(size // 512)] if size < path.stat().st_size else []
    if not options:
        os.truncate(path, size)
    try:
        done = subprocess.run([tool, *options, path], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=PATIENCE, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return "hung"
    return "done" if done.returncode == 0 else f"failed ({done.returncode})"


def verdict(path: Path, extra: Sequence[Path], before: dict[str, Any]) -> str:
    """Whether the data is what it was, and whether either fsck complains."""
    try:
        after = recovered(path, extra)
        same = "same data" if after == before else f"{lost(before, after)} of {len(before)} files differ"
    except (F2fsError, OSError) as error:
        same = f"can't be read: {error}"[:40]
    words = [word for one in extra for word in ("--device", str(one))]
    # a pack that resize.f2fs wiped on purpose is no fault
    command = [OUR_COMMAND, "fsck", "--skip", "C001", path, *words]
    bad = ["f2tools fsck"] if subprocess.run(command, capture_output=True, check=False).returncode else []
    peer = shutil.which("fsck.f2fs", path=PATH)
    if peer and not extra:  # it would look for the second device under the name that it had in the guest
        other = subprocess.run([peer, "--dry-run", path], input=b"n\n" * 50, capture_output=True, check=False)
        if other.returncode or b"[Fail]" in other.stdout or b"[ASSERT]" in other.stdout:
            bad.append("fsck.f2fs")
    return f"{same}{', ' + ' and '.join(bad) + ' complains' if bad else ', sound'}"


def lost(before: dict[str, Any], after: dict[str, Any]) -> int:
    return sum(after.get(name) != entry for name, entry in before.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", default="1G")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--data", action="store_true")
    parser.add_argument("--kill", type=int, metavar="TIMES")
    parser.add_argument("--directory", type=Path, default=None)
    given = parser.parse_args()
    tool = shutil.which("resize.f2fs", path=PATH)
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="f2-resize-") as name:
        if given.data:
            data(Path(name), tool)
        elif given.kill:
            kill(given, Path(name), tool)
        else:
            speed(given, Path(name), tool)


if __name__ == "__main__":
    main()
