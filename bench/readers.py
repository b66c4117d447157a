#!/usr/bin/env python3
"""The commands that read a whole volume of small files: CPU seconds and peak memory, beside tools that read the tree.

    bench/readers.py [--files 100000] [--runs 3] [--only tar,timeline] [--before CHECKOUT] [--directory DIR]

The image is made once, with `f2tools mkfs --from`, and is in the page cache.  Peers read the same tree of files from
the host's file system, by its own fast paths and without looking at blocks: the least that such a listing or archive
costs.  --before: the same commands of another checkout of f2tools too, in turns with ours, and the ratio of both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from extract import OUR_COMMAND, small_tree

RUN = "import sys; from f2tools.cli import run; sys.argv[0] = 'f2tools'; run()"


class Reader(NamedTuple):
    """A command of ours, with the image where {} stands, and what reads the tree {} for a similar answer."""

    name: str
    words: tuple[str, ...]
    peer: tuple[str, ...] = ()


class Cost(NamedTuple):
    """What a run took."""

    cpu: float
    peak_mib: int


READERS = (
    Reader("ls", ("dump", "ls", "-R", "{}"), ("ls", "-R", "{}")),
    Reader("long", ("dump", "ls", "-lR", "{}"), ("ls", "-lnR", "{}")),
    Reader("tar", ("dump", "tar", "{}"), ("tar", "--format=pax", "-cf", "-", "{}")),
    Reader("manifest", ("dump", "manifest", "{}"), ("find", "{}", "-type", "f", "-exec", "sha256sum", "{}", "+")),
    Reader("timeline", ("timeline", "{}"), ("find", "{}", "-printf", "%T@ %A@ %C@ %B@ %p %i %s %m %U %G %n\\n")),
    Reader("undelete", ("undelete", "{}")),
    Reader("history", ("history", "{}", "/")),
    Reader("clean", ("clean", "--simulate", "{}")),
)


def cost_of(command: list[str], checkout: Path | None = None) -> Cost:
    """Run a command; its output goes through a pipe, as GNU tar reads no file when it sees /dev/null."""
    environment = dict(os.environ)
    if checkout is not None:
        environment["PYTHONPATH"] = str(checkout)
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, env=environment)
        assert process.stdout is not None
        while process.stdout.read(1 << 20):
            pass
        process.stdout.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"{command[0]} ended with {process.returncode}: {said.read().decode(errors='replace')}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss >> 10)


def ours(reader: Reader, image: Path) -> list[str]:
    """The command line of one of our commands."""
    return [word.replace("{}", str(image)) for word in reader.words]


def beside(reader: Reader, tree: Path) -> list[str]:
    """The command line of its peer."""
    first = reader.peer.index("{}")
    return [*reader.peer[:first], str(tree), *reader.peer[first + 1 :]]


def measure(reader: Reader, image: Path, tree: Path, runs: int, before: Path | None) -> str:
    """Run a command and what stands beside it in turns; a row of the table."""
    mine: list[Cost] = []
    theirs: list[Cost] = []
    earlier: list[Cost] = []
    for _ in range(runs):
        if before is not None:
            earlier.append(cost_of([sys.executable, "-c", RUN, *ours(reader, image)], before))
        mine.append(cost_of([str(OUR_COMMAND), *ours(reader, image)]))
        if reader.peer:
            theirs.append(cost_of(beside(reader, tree)))
    cpu = statistics.median(cost.cpu for cost in mine)
    cells = [f"`f2tools {' '.join(word for word in reader.words if word != '{}')}`", f"{cpu:.2f}"]
    cells.append(str(max(cost.peak_mib for cost in mine)))
    if before is not None:
        was = statistics.median(cost.cpu for cost in earlier)
        cells += [f"{was:.2f}", f"{cpu / was:.2f}"]
    peer = statistics.median(cost.cpu for cost in theirs) if theirs else None
    cells += [f"`{reader.peer[0]}`", f"{peer:.2f}", f"{cpu / peer:.1f}"] if peer else ["-", "-", "-"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(reader.name for reader in READERS))
    parser.add_argument("--before", type=Path)
    parser.add_argument("--directory", type=Path)
    chosen = parser.parse_args()
    if chosen.before is not None and not (chosen.before / "f2tools" / "cli.py").exists():
        raise SystemExit(f"{chosen.before}: no checkout of f2tools; `git worktree add` makes one")
    top = Path(tempfile.mkdtemp(prefix="f2tools-readers-", dir=chosen.directory))
    try:
        tree, image = top / "tree", top / "image"
        tree.mkdir()
        small_tree(tree, chosen.files)
        size = max(256 << 20, chosen.files * (20 << 10))
        subprocess.run([OUR_COMMAND, "mkfs", "-q", image, "--size", str(size), "--from", tree], check=True)
        earlier = "before | ratio | " if chosen.before else ""
        print(f"{chosen.files} files, CPU seconds, medians of {chosen.runs}; load {os.getloadavg()[0]:.0f}\n")
        print(f"| | CPU | MiB | {earlier}peer | CPU | ratio |")
        print(f"|---|{'---:|' * (4 if chosen.before else 2)}---|---:|---:|")
        for reader in READERS:
            if reader.name in chosen.only.split(","):
                print(measure(reader, image, tree, chosen.runs, chosen.before), flush=True)
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
