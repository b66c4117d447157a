"""Images damaged at random: read, checked, salvaged and mounted read-only; and repaired, with what was not hit kept.

The damage is that of `tests.fsck.fuzz`: the name of a reference image and a number.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from tests.endurance.campaign import Campaign, Found, Outcome, Patch
from tests.endurance.outside import Watch
from tests.fsck import fuzz
from tests.hostile.damage import patched
from tests.hostile.exercise import COMMANDS, exercise, in_child
from tests.images import copy_sparse, reference
from tests.mount.hostile import live_with
from tests.mount.mounted import need_fuse

LOOKED_AT = (
    "base", "features", "casefold", "checksums", "compress-lz4", "compress-lzo-rle", "compress-zstd",
    "crash-namespace", "crash-orphan", "crash-stress-1", "crash-xattr", "fragmented", "fscrypt", "full", "history-a",
    "noinline", "active-logs-2", "packed-ssa", "plain", "sections", "zoned",
)  # fmt: skip
REPAIRABLE = ("base", "features", "casefold", "compress-lz4", "checksums", "plain", "noinline", "sections")
MORE = (  # beside those that `dump` has
    ("info", "{image}"), ("doctor", "{image}"), ("fls", "-r", "{image}"),
    ("fsstat", "{image}"), ("recover", "{image}"), ("fsck", "--rescue", "{image}"),
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
IMAGES, REPAIRS = 10, 10  # in a piece
Commands = tuple[tuple[str, ...], ...]


@cache
def _watch() -> Watch:
    return Watch()


def _look(image: Path, work: Path, seed: int, commands: Commands) -> list[str]:
    """Commands that only read, in a process of their own: what may not happen."""

    def within() -> list[str]:
        os.chdir(work)
        with _watch().only_in([work]):
            said = exercise(image, work, 3 + seed % 60, 512 * (seed % 9), commands)
            return said + [f"a write outside: {line}" for line in _watch().said]

    before = image.stat().st_mtime_ns
    said = in_child(within)
    if image.stat().st_mtime_ns != before:
        said.append("the image was written to")
    return said


def _smallest(image: Path, patches: Sequence[Patch], fails: Callable[[], bool]) -> list[Patch]:
    """Of the damage as little as still shows it, in at most so many tries."""
    left, tries = list(patches), 40
    size = max(1, len(left) // 2)
    while len(left) > 1 and tries:
        for start in range(0, len(left), size):
            fewer = left[:start] + left[start + size :]
            tries -= 1
            with patched(image, fewer):
                shown = bool(fewer) and fails()
            if shown:
                left = fewer
                break
            if not tries:
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return left


def read(seed: int, work: Path) -> Outcome:
    """A piece: one reference image, damaged in so many ways."""
    name = LOOKED_AT[seed % len(LOOKED_AT)]
    image = copy_sparse(reference(name).path, work / "image")
    outcome = Outcome()
    sound = _look(image, work, seed, tuple(words for _, words in ALWAYS) + MORE)
    assert not sound, sound  # also loads what the commands need, once for all
    for number in range(FIRST + seed * IMAGES, FIRST + (seed + 1) * IMAGES):
        chance = random.Random(number)
        patches = fuzz.damage(name, number)
        commands = (*(words for _, words in ALWAYS), *chance.sample(COMMANDS, 2), *chance.sample(MORE, 2))
        with patched(image, patches):
            said = _look(image, work, number, commands)
            if number % 5 == 0:
                said += _mount(image, work, number, outcome.counts)
        outcome.counts.update([word for word, _ in ALWAYS])
        outcome.done += 1
        if said:
            outcome.found.append(_story(name, image, work, number, patches, commands, said))
    return outcome


def _mount(image: Path, work: Path, seed: int, counts: Counter[str]) -> list[str]:
    need_fuse()
    before = image.stat().st_mtime_ns
    said = live_with(image, work / "m", seed, "ro")
    counts["mounted"] += 1
    return said + (["the mount wrote to the image"] if image.stat().st_mtime_ns != before else [])


def _story(
    name: str, image: Path, work: Path, number: int, patches: list[Patch], commands: Commands, said: list[str]
) -> Found:
    """What was found, once more and with as little as will do."""
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
    name = REPAIRABLE[seed % len(REPAIRABLE)]
    outcome = Outcome()
    for number in range(FIRST + seed * REPAIRS, FIRST + (seed + 1) * REPAIRS):
        verdict = fuzz.judged(name, number, work)
        outcome.done += 1
        outcome.counts["findings repaired"] += sum(verdict.found.values())
        if verdict.wrong:
            what = f"{verdict.wrong}\nagain: python -m tests.fsck.fuzz {name} {number} -v"
            outcome.found.append(Found(what, name, fuzz.damage(name, number), ["f2tools fsck -y {image}"]))
    return outcome


READ = Campaign(
    "images",
    "images damaged at random are read, checked and salvaged, each fifth mounted read-only: no traceback, nothing over"
    " 10 s or 448 MiB, no write but to where the command was told to",
    "images", 1_000_000, IMAGES, read,
)  # fmt: skip
REPAIRED = Campaign(
    "repairs",
    "images damaged at random are repaired: a second check and fsck.f2fs are silent, and each file of which no block"
    " was hit is as it was",
    "repairs", 100_000, REPAIRS, repaired,
)  # fmt: skip
