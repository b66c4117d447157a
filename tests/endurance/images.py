"""Images damaged at random: read, checked, salvaged and mounted read-only; and repaired, with what was not hit kept.

The damage is that of `tests.fsck.fuzz`: the name of a reference image and a number.
"""

from __future__ import annotations

import importlib
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from tests.endurance.campaign import Campaign, Found, Outcome, Patch
from tests.endurance.outside import Watch
from tests.fsck import crashes, fuzz
from tests.hostile.damage import patched
from tests.hostile.exercise import COMMANDS, exercise, in_child
from tests.images import CRASH, copy_sparse, reference
from tests.mount.hostile import live_with
from tests.mount.mounted import need_fuse

SMALL = (  # a fifth of a second each, so these come four times as often
    "features", "blocks16k-compress", "compress-lz4", "compress-lzo-rle", "compress-zstd", "crash-namespace",
    "crash-orphan", "crash-stress-1", "crash-xattr", "fragmented", "full", "active-logs-2", "sections", "zoned",
)  # fmt: skip
LARGE = (
    "base", "casefold", "checksums", "fscrypt", "history-a", "noinline", "packed-ssa", "plain", "blocks16k-casefold",
)  # fmt: skip
LOOKED_AT = (*SMALL, *LARGE, *SMALL, *SMALL, *SMALL)
WARM = "compress-lz4"
SERVERS = ("pyfuse3", "direct")
REPAIRABLE = ("base", "features", "casefold", "compress-lz4", "checksums", "plain", "noinline", "sections")
FURTHER = (  # from piece FURTHER_FROM on
    "noinline-xattr", "inline-xattr-size", "active-logs-2", "full", "fscrypt", "packed-ssa", "phone", "zoned",
    "history-a", "blocks16k-casefold", "compress-released",
)  # fmt: skip
FURTHER_FROM = 10_000
# from piece CRASHED_FROM on; all that a power cut left
CRASHED_FROM = 12_500
MORE = (  # beside those that `dump` has
    ("info", "{image}"), ("doctor", "{image}"), ("fls", "-r", "{image}"),
    ("fsstat", "{image}"), ("recover", "{image}"), ("hashes", "{image}"), ("fsck", "--rescue", "{image}"),
    ("fsck", "-y", "--dry-run", "{image}"),
    ("undelete", "{image}", "-o", "{work}/out"), ("carve", "{image}", "-o", "{work}/out"),
    ("strings", "{image}"), ("slack", "{image}", "-o", "{work}/out"), ("timeline", "{image}", "-o", "{work}/out"),
    ("scan", "{image}", "-o", "{work}/out"), ("defrag", "--report", "{image}"), ("clean", "--dry-run", "{image}"),
    ("resize", "--dry-run", "--minimum", "{image}"), ("tune", "{image}"),
)  # fmt: skip
ALWAYS = (
    ("read", ("dump", "manifest", "{image}")),
    ("checked", ("fsck", "{image}")),
    ("salvaged", ("fsck", "--salvage", "{work}/out", "{image}")),
)
FIRST = 1_000_000  # of the numbers of damages; those below belong to the tests
IMAGES, REPAIRS = 25, 10  # in a piece
SMALLER_SECONDS = 120  # for what is found to be shown with less
ROOM_BYTES = 2 << 30  # of addresses beyond those of the process: what asks for more dies of it, and not the machine
Commands = tuple[tuple[str, ...], ...]


@cache
def _watch() -> Watch:
    return Watch()


def _look(image: Path, work: Path, seed: int, commands: Commands) -> list[str]:
    """Commands that only read, in a process of their own: what may not happen.

    A process that has run one command may keep memory of it; so where it was too much, each has a process of its own.
    """

    def within(commands: Commands) -> list[str]:
        os.chdir(work)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + ROOM_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        with _watch().only_in([work]):
            said = exercise(image, work, 3 + seed % 60, 512 * (seed % 9), commands)
            return said + [f"a write outside: {line}" for line in _watch().said]

    before = image.stat().st_mtime_ns
    said = in_child(lambda: within(commands))
    if any(line.endswith(" MiB") for line in said):
        said = [line for words in commands for line in in_child(lambda words=words: within((words,)))]
    if image.stat().st_mtime_ns != before:
        said.append("the image was written to")
    return said


def _smallest(image: Path, patches: Sequence[Patch], fails: Callable[[], bool]) -> list[Patch]:
    """Of the damage as little as still shows it, in at most so many tries and so much time: each may hang."""
    left, tries, end = list(patches), 40, time.monotonic() + SMALLER_SECONDS
    size = max(1, len(left) // 2)
    while len(left) > 1 and tries:
        for start in range(0, len(left), size):
            fewer = left[:start] + left[start + size :]
            tries = tries - 1 if time.monotonic() < end else 0
            if not tries:
                break
            with patched(image, fewer):
                shown = bool(fewer) and fails()
            if shown:
                left = fewer
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return left


@cache
def warm() -> None:
    """Load what commands and mounts need, once for all the processes that are forked."""
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        image = copy_sparse(reference(WARM).path, work / "warm")
        said = exercise(image, work, 3, 0, (*(words for _, words in ALWAYS), *COMMANDS, *MORE))
    assert not said, said
    for name in ("mount.session", "mount.options", "fuse.pyfuse", "fuse.direct.server"):
        importlib.import_module(f"f2tools.{name}")


def read(seed: int, work: Path) -> Outcome:
    """A piece: one reference image, damaged in so many ways."""
    need_fuse()
    warm()
    name = LOOKED_AT[seed % len(LOOKED_AT)]
    image = copy_sparse(reference(name).path, work / "image")
    outcome = Outcome()
    sound = _look(image, work, seed, tuple(words for _, words in ALWAYS)) + _mount(image, work, seed)
    assert not sound, sound
    for number in range(FIRST + seed * IMAGES, FIRST + (seed + 1) * IMAGES):
        chance = random.Random(number)
        patches = fuzz.damage(name, number)
        commands = (*(words for _, words in ALWAYS), chance.choice(COMMANDS), chance.choice(MORE))
        with patched(image, patches):
            said = _look(image, work, number, commands) + _mount(image, work, number)
        outcome.counts.update([*(word for word, _ in ALWAYS), "mounted"])
        outcome.done += 1
        if said:
            outcome.found.append(_story(name, image, work, number, patches, commands, said))
    return outcome


def _mount(image: Path, work: Path, seed: int) -> list[str]:
    """Mount it read-only by one of the servers: what may not happen."""
    before = image.stat().st_mtime_ns
    said = live_with(image, work / "m", seed, "ro", f"server={SERVERS[seed % 2]}")
    return said + (["the mount wrote to the image"] if image.stat().st_mtime_ns != before else [])


def _story(
    name: str, image: Path, work: Path, number: int, patches: list[Patch], commands: Commands, said: list[str]
) -> Found:
    """What was found, once more and with as little as will do."""
    with patched(image, patches):
        mounted = _mount(image, work, number)
    if mounted:
        few = _smallest(image, patches, lambda: bool(_mount(image, work, number)))
        server = SERVERS[number % 2]
        return Found("\n".join(mounted), name, few, [f"f2tools mount -o ro --server {server} {{image}} DIRECTORY"])
    guilty = [words for words in commands if any(" ".join(words[:2]).replace(" {image}", "") in line for line in said)]
    for words in guilty:
        with patched(image, patches):
            again = _look(image, work, number, (words,))
        if again:
            few = _smallest(image, patches, lambda words=words: bool(_look(image, work, number, (words,))))
            return Found("\n".join(again), name, few, ["f2tools " + " ".join(words)])
    return Found(f"{name}, damage {number}, was not seen a second time:\n" + "\n".join(said), name, patches)


def repaired(seed: int, work: Path) -> Outcome:
    """A piece: repairs of one reference image; fsck.f2fs is silent then, and what was not hit is all there."""
    crashed = seed >= CRASHED_FROM
    some = CRASH if crashed else REPAIRABLE if seed < FURTHER_FROM else FURTHER
    judge = crashes if crashed else fuzz
    name = some[seed % len(some)]
    outcome = Outcome()
    for number in range(FIRST + seed * REPAIRS, FIRST + (seed + 1) * REPAIRS):
        verdict = judge.judged(name, number, work)
        outcome.done += 1
        outcome.counts["findings repaired"] += sum(verdict.found.values())
        if verdict.wrong:
            what = f"{verdict.wrong}\nagain: python -m {judge.__name__} {name} {number} -v"
            outcome.found.append(Found(what, name, judge.damage(name, number), ["f2tools fsck -y {image}"]))
    return outcome


READ = Campaign(
    "images",
    "images damaged at random are read, checked, salvaged, mounted read-only by one of the servers, and given to two"
    " more commands: no traceback, nothing over 10 s of the processor or 448 MiB, no write but to where the command was"
    " told to",
    "images", 1_000_000, IMAGES, read, minutes=40, warm=warm, in_memory=True,
)  # fmt: skip
REPAIRED = Campaign(
    "repairs",
    "images damaged at random are repaired: a second check and fsck.f2fs are silent, and each file of which no block"
    " was hit is as it was; of those that a power cut left, what was fsync'ed comes back, or that it does not is said",
    "repairs", 150_000, REPAIRS, repaired, in_memory=True,
)  # fmt: skip
