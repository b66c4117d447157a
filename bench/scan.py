"""How fast `f2tools scan` is and what memory it takes: a full volume of 2 GiB, a sparse one of 64 GiB.

    .venv/bin/python bench/scan.py [DIR]      # needs 3 GB there; the images are removed

Beside each run stands the plain reading of as many bytes by `dd`, in turns.  Figures are medians of CPU seconds (user
and system), since a shared machine says little otherwise; all is in the page cache.
"""

from __future__ import annotations

import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from f2tools.device import open_device
from f2tools.f2fs.write.volume import WritableVolume

F2TOOLS = Path(sys.executable).parent / "f2tools"
ROOT = 3
ROUNDS = 5
MIB = 1 << 20


def filled(image: Path, size: str, large_mib: int, directories: int) -> None:
    """A volume with some large files, and directories of 100 small ones, half of which are deleted again."""
    subprocess.run([F2TOOLS, "mkfs", "-q", image, "--size", size], check=True)
    generator = random.Random(1)
    noise = generator.randbytes(16 * MIB)
    with WritableVolume(open_device(image, write=True), seed=1) as volume:
        for number in range(large_mib // 64):
            ino = volume.create(ROOT, b"large-%d" % number, 0o100644)
            for part in range(4):
                volume.write(ino, part * len(noise), noise)
        for number in range(directories):
            directory = volume.mkdir(ROOT, b"folder-%d" % number, 0o755)
            for index in range(100):
                ino = volume.create(directory, b"file-%d" % index, 0o100644)
                volume.write(ino, 0, noise[index : index + generator.randrange(100, 9000)])
            volume.sync()
            if number % 2:
                for index in range(100):
                    volume.unlink(directory, b"file-%d" % index)
                volume.rmdir(ROOT, b"folder-%d" % number)


def measured(command: list[str | Path]) -> tuple[float, int]:
    """(CPU seconds, peak memory in KiB) of a command."""
    done = subprocess.run(["/usr/bin/time", "-v", *command], check=True, capture_output=True, text=True)
    seconds = sum(float(number) for number in re.findall(r"(?:User|System) time \(seconds\): ([0-9.]+)", done.stderr))
    found = re.search(r"Maximum resident set size \(kbytes\): (\d+)", done.stderr)
    assert found
    return seconds, int(found[1])


def main() -> None:
    """Make the images, run, print a table."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        directory = Path(name)
        print("| image | data | scan | MB/s | dd | MB/s | peak memory | nodes | index |")
        print("|---|---|---|---|---|---|---|---|---|")
        for title, size, large, directories in (("2 GiB, full", "2G", 1472, 100), ("64 GiB, sparse", "64G", 256, 100)):
            image = directory / "image"
            filled(image, size, large, directories)
            data = image.stat().st_blocks * 512
            scans: list[float] = []
            reads: list[float] = []
            memory = 0
            for _ in range(ROUNDS):
                index = directory / "index"
                index.unlink(missing_ok=True)
                taken, peak = measured([F2TOOLS, "scan", image, "-o", index])
                scans.append(taken)
                memory = max(memory, peak)
                count = min(data, image.stat().st_size) // MIB
                reads.append(measured(["dd", f"if={image}", "of=/dev/null", "bs=8M", f"count={count // 8}"])[0])
            nodes = subprocess.run(
                ["sqlite3", index, "SELECT count(*) FROM node"], check=False, capture_output=True, text=True
            ).stdout.strip()
            scan, read = statistics.median(scans), statistics.median(reads)
            print(
                f"| {title} | {data / MIB:.0f} MiB | {scan:.2f} s | {data / scan / 1e6:.0f} | {read:.2f} s "
                f"| {data / read / 1e6:.0f} | {memory / 1024:.0f} MiB | {nodes or '?'} "
                f"| {index.stat().st_size / MIB:.1f} MiB |"
            )
            image.unlink()


if __name__ == "__main__":
    main()
