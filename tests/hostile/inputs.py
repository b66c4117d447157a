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
from tests.hostile import (
    fuzzed_flash,
    fuzzed_fuse,
    fuzzed_http,
    fuzzed_index,
    fuzzed_layer,
    fuzzed_texts,
    fuzzed_volume,
    sealed,
)
from tests.hostile.corpus import small_image
from tests.hostile.exercise import exercise, measure_from_here
from tests.hostile.fuzzed_layer import damaged

TARGETS = {
    "container": ("dump", "info", "{work}/input"),
    "undo": ("undo", "{work}/input", "{image}", "--dry-run"),
    "tar": ("mkfs", "-q", "{work}/out", "--from", "{work}/input", "--size", "64M", "-f"),
    "trace": ("trace", "events", "{work}/input"),
    "requests": ("ftl", "export", "{work}/input", "-o", "{work}/out", "-f"),
}
CHANGES: dict[str, tuple[Callable[[bytes], bytes], tuple[tuple[str, ...], ...]]] = {
    "vsl": (lambda data: damaged(fuzzed_layer.layers(), data), (
        ("vsl", "check", "{work}/input"), ("vsl", "info", "{work}/input"),
        ("vsl", "map", "{work}/input", "--length", "64K"),
        ("vsl", "export", "{work}/input", "{work}/out", "--length", "64K"),
        ("vsl", "trim", "{work}/input", "0", "64K", "--dry-run"), ("info", "{work}/input"),
    )),
    "dfs": (lambda data: damaged(fuzzed_layer.file_systems(), data), (
        ("dfs", "fsck", "{work}/input"), ("dfs", "fsck", "-y", "--dry-run", "{work}/input"),
        ("dfs", "recover", "{work}/input"), ("dfs", "dump", "info", "{work}/input"),
        ("dfs", "dump", "manifest", "{work}/input"), ("dfs", "dump", "tar", "{work}/input", "-o", "{work}/out"),
        ("dfs", "dump", "extract", "{work}/input", "-o", "{work}/out"), ("dfs", "dump", "wal", "{work}/input"),
        ("dfs", "dump", "map", "{work}/input", "/folder"), ("dfs", "dump", "inode", "{work}/input", "/folder/file"),
    )),
    "dffs": (lambda data: damaged(fuzzed_flash.dumps(), data), (
        ("dffs", "fsck", "{work}/input"), ("dffs", "fsck", "-y", "--dry-run", "{work}/input"),
        ("dffs", "recover", "{work}/input"), ("dffs", "dump", "info", "{work}/input"),
        ("dffs", "dump", "manifest", "{work}/input"), ("dffs", "dump", "tar", "{work}/input", "-o", "{work}/out"),
        ("dffs", "dump", "extract", "{work}/input", "-o", "{work}/out"),
        ("dffs", "dump", "map", "{work}/input", "/folder/inner"), ("dffs", "dump", "page", "{work}/input", "16"),
    )),
    "index": (fuzzed_index.forged, (
        ("undelete", "{image}", "--list", "--index", "{work}/input"),
        ("timeline", "{image}", "--index", "{work}/input"),
        ("history", "{image}", "/", "--index", "{work}/input"), ("history", "{image}", "4", "--index", "{work}/input"),
    )),
}  # fmt: skip
"""Kinds whose inputs say how a sound file is changed: what makes that file, and the commands that it is given to."""


OWN: dict[str, Callable[[Path], Callable[[bytes], None]]] = {
    "texts": fuzzed_texts.judge, "http": fuzzed_http.judge, "fuse": lambda _: fuzzed_fuse.one_input,
}  # fmt: skip
"""Kinds with a judge of their own."""

SEALS = {
    "tar": sealed.tar, "undo": sealed.undo_log, "overlay": sealed.overlay, "container": sealed.partitions,
}  # fmt: skip


def given_to(commands: tuple[tuple[str, ...], ...], image: Path, work: Path) -> Callable[[int], None]:
    """A run of one of the commands on work/input."""

    def run(number: int) -> None:
        said = exercise(image, work, 3, 0, (commands[number % len(commands)],))
        (work / "out").unlink(missing_ok=True)
        if said:
            raise AssertionError("\n".join(said))

    return run


def overlaid(work: Path) -> None:
    """An overlay opened on a log: it is refused, or read to its end."""
    try:
        with Overlay(Memory(sealed.OVERLAID_BYTES), work / "input") as overlay:
            overlay.pread(0, min(overlay.size_bytes, 1 << 21))
    except (F2fsError, OSError):
        return


def judge_of(kind: str, work: Path) -> Callable[[bytes], None]:
    """What takes an input of this kind, and raises where that has shown a mistake of ours."""
    if kind == "volume":
        return fuzzed_volume.one_input
    if kind in OWN:
        judge = OWN[kind](work)
    else:
        judge = (_changed if kind in CHANGES else _plain)(kind, work)

    def one(data: bytes) -> None:
        measure_from_here()  # what inputs before left to the collector is not this one's
        judge(data)

    return one


def _plain(kind: str, work: Path) -> Callable[[bytes], None]:
    """The input is the file itself, but for checksums."""
    run, seal = None, SEALS.get(kind, bytes)
    if kind != "overlay":
        run = given_to((TARGETS[kind],), small_image(work / "image"), work)

    def one(data: bytes) -> None:
        (work / "input").write_bytes(seal(data))
        overlaid(work) if run is None else run(0)

    return one


def _changed(kind: str, work: Path) -> Callable[[bytes], None]:
    """The first byte of the input says which command, the rest how the file is changed."""
    made, commands = CHANGES[kind]
    run = given_to(commands, fuzzed_index.image(), work)

    def one(data: bytes) -> None:
        (work / "input").write_bytes(made(data[1:]))
        run(data[0] if data else 0)

    return one
