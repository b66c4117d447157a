#!/usr/bin/env python3
"""What a command takes that has next to nothing to do, beside a Python that only imports click and beside the C tools.

    bench/startup.py [--runs 21] [--cold]

Processor time, user and system together: on a shared machine it says more than the clock.  The modules are compiled
beforehand, as they are after an installation (warm); --cold measures starts that find none of ours compiled and keep
nothing, as where PYTHONDONTWRITEBYTECODE is set before the first start.  The aims are 1.1 times the bare import for
help, and 60 ms for mkfs.  tests/test_startup.py guards both by counting modules.
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from report import Row, interleaved, print_table

import f2tools

PACKAGE = str(Path(f2tools.__file__).parent)
RUN = "import sys; sys.argv[0] = 'f2tools'; from f2tools.cli import run; run()"
CLICK = "python -c 'import click'"
PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


def cpu_seconds_of(command: list[str], cold: bool) -> float:
    """User and system time of a command that must succeed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if cold:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment | {"PATH": PATH})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(runs: int, cold: bool = False) -> list[Row]:
    """Rows for help, formatting 1 GiB, and a check and a list of what is then empty."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        # A tree of its own for the cold starts: that of the project keeps what it has compiled.
        if cold:
            shutil.copytree(PACKAGE, place / "f2tools", ignore=shutil.ignore_patterns("__pycache__"))
        else:
            compileall.compile_dir(PACKAGE, quiet=2)
        image, theirs = str(place / "ours.img"), str(place / "theirs.img")
        for path in (image, theirs):
            with open(path, "wb") as file:
                file.truncate(1 << 30)
        python = [sys.executable, "-c"]
        run = f"import sys; sys.path.insert(0, {name if cold else os.path.dirname(PACKAGE)!r}); {RUN}"
        click = [*python, "import click"]
        cases = [
            (["--help"], CLICK, click),
            (["mkfs", "--help"], CLICK, click),
            (["mkfs", "-q", "-f", image], "mkfs.f2fs", ["mkfs.f2fs", "-q", "-f", theirs]),
            (["fsck", image], "fsck.f2fs", ["fsck.f2fs", image]),
            (["dump", "ls", image], "python -c 'import numpy'", [*python, "import numpy"]),
            (["dump", "info", image], "dump.f2fs -d 1", ["dump.f2fs", "-d", "1", image]),
            (["info", image], CLICK, click),
        ]
        rows = []
        for words, peer_name, peer in cases:
            there = shutil.which(peer[0], path=PATH) is not None
            tools = [lambda words=words: cpu_seconds_of([*python, run, *words], cold)]
            if there:
                tools.append(lambda peer=peer: cpu_seconds_of(peer, False))
            ours, *others = interleaved(runs, *tools)
            shown = " ".join("1 GiB" if word == image else word for word in words)
            rows.append(Row(f"f2tools {shown}", ours, peer_name, others[0] if there else None))
        return rows


def main() -> None:
    """Print the table, and which state it is of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--cold", action="store_true")
    asked = parser.parse_args()
    rows = measure(asked.runs, asked.cold)
    print("cold: our modules are compiled at every start" if asked.cold else "warm: all modules are compiled already")
    print_table(rows)


if __name__ == "__main__":
    main()
