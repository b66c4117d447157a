"""Damaged images are changed, or refused with a word; never with a traceback, and never half."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import f2tools
from tests.hostile.damage import flips, patched, resealed
from tests.hostile.exercise import exercise, in_child
from tests.hostile.targets import structures
from tests.images import DAMAGED, damaged, reference

ROUNDS = int(os.environ.get("F2TOOLS_HOSTILE_ROUNDS", "1"))
FLIPS_PER_KIND = 4
COMMANDS = (
    ("cp", "-r", "--dry-run", str(Path(__file__).parent), "{image}:/copied"),
    ("cp", "-a", "--dry-run", "{image}:/.", "{image}:/again"),
    ("rm", "-r", "--dry-run", "{image}:/."),
    ("edit", "{image}", "--dry-run", "-c", "chmod -R 755 /", "-c", "chown -R 5:5 /", "-c", "setfacl -R -m u:5:r /"),
    ("mkdir", "-p", "--dry-run", "--json", "{image}:/a/b/c"),
)


def _attack(name: str, work: Path) -> list[str]:
    rng = random.Random(f"edit-{name}")
    image = reference(name).copy(work).path
    with f2tools.open(image) as vol:
        places = structures(vol)
    before = image.read_bytes()
    failures: list[str] = []
    for kind, where in sorted(places.items()):
        for number in range(FLIPS_PER_KIND * ROUNDS):
            patches = flips(rng, image, where, rng.choice((1, 1, 2, 8)))
            if kind in ("superblock", "checkpoint head") and number % 4:
                patches = resealed(image, patches, where, kind)
            with patched(image, patches):
                commands = tuple(rng.sample(COMMANDS, 2))
                said = in_child(lambda commands=commands: exercise(image, work, 3, 0, commands))
            failures += [f"{kind} {[(at, data[:16].hex()) for at, data in patches]}\n{line}" for line in said]
    assert image.read_bytes() == before, "a rehearsal wrote"
    return failures


@pytest.mark.parametrize("name", ["features", "fragmented", "crash-namespace", "compress-lz4"])
def test_random_damage_is_survived(name: str, tmp_path: Path) -> None:
    failures = _attack(name, tmp_path)
    assert not failures, "\n\n".join(failures[:10])


def _each(directory: Path) -> list[str]:
    """Two of the commands in turn on each; all of them on each with more rounds."""
    failures: list[str] = []
    for number, name in enumerate(DAMAGED):
        commands = COMMANDS if ROUNDS > 1 else tuple(COMMANDS[(number + step) % len(COMMANDS)] for step in (0, 2))
        image = damaged(name, directory / name).path
        failures += [f"{name}: {line}" for line in exercise(image, directory, 3, 0, commands)]
        image.unlink()
    return failures


def test_every_known_damage_is_survived(tmp_path: Path) -> None:
    failures = in_child(lambda: _each(tmp_path))
    assert not failures, "\n\n".join(failures[:10])
