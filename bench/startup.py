#!/usr/bin/env python3
"""How long `f2tools --help` takes, beside a Python that only imports click.

    bench/startup.py [--runs 21]

The aim is twice the time of the bare import or less.  tests/test_startup.py guards it by counting modules.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from report import Row, interleaved, print_table

OUR_COMMAND = str(Path(sys.executable).parent / "f2tools")


def seconds_of(*command: str) -> float:
    """The wall time of a command that must succeed."""
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def measure(runs: int) -> list[Row]:
    """Rows for the help of the whole and of a command, and for the version."""
    rows = []
    for arguments in (["--help"], ["mkfs", "--help"], ["dump", "info", "--help"]):
        ours, peer = interleaved(
            runs,
            lambda arguments=arguments: seconds_of(OUR_COMMAND, *arguments),
            lambda: seconds_of(sys.executable, "-c", "import click"),
        )
        rows.append(Row(f"f2tools {' '.join(arguments)}", ours, "python -c 'import click'", peer))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=21)
    print_table(measure(parser.parse_args().runs))


if __name__ == "__main__":
    main()
