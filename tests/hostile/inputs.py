"""What is done with an input of a fuzzer: each kind of file is given to a command, and volumes to every reader.

The command must end with a documented exit code and a word, whatever the file holds; the limits are those of
`tests.hostile.exercise`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from f2tools.device.changes.overlay import Overlay
from f2tools.errors import F2fsError
from tests.device.memory import Memory
from tests.hostile import fuzzed_volume
from tests.hostile.exercise import exercise, measure_from_here
from tests.images import copy_sparse, reference

TARGETS = {
    "container": ("dump", "info", "{work}/input"),
    "undo": ("undo", "{work}/input", "{image}", "--dry-run"),
    "tar": ("mkfs", "-q", "{work}/out", "--from", "{work}/input", "--size", "64M", "-f"),
    "trace": ("trace", "events", "{work}/input"),
}


def given_to(command: tuple[str, ...], work: Path) -> Callable[[], None]:
    """A run of a command on work/input."""
    image = copy_sparse(reference("plain").path, work / "image")

    def run() -> None:
        said = exercise(image, work, 3, 0, (command,))
        (work / "out").unlink(missing_ok=True)
        if said:
            raise AssertionError("\n".join(said))

    return run


def overlaid(work: Path) -> None:
    """An overlay opened on a log: it is refused, or read to its end."""
    try:
        with Overlay(Memory(1 << 20), work / "input") as overlay:
            overlay.pread(0, min(overlay.size_bytes, 1 << 21))
    except (F2fsError, OSError):
        return


def judge_of(kind: str, work: Path) -> Callable[[bytes], None]:
    """What takes an input of this kind, and raises where that has shown a mistake of ours."""
    if kind == "volume":
        return fuzzed_volume.one_input
    run = (lambda: overlaid(work)) if kind == "overlay" else given_to(TARGETS[kind], work)

    def one(data: bytes) -> None:
        (work / "input").write_bytes(data)
        measure_from_here()  # what inputs before left to the collector is not this one's
        run()

    return one
