"""Images damaged at random in every structure: a clear word and an exit code, never a traceback or a hang."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import f2tools
from tests.hostile.damage import flips, patched, resealed
from tests.hostile.exercise import COMMANDS, exercise, in_child
from tests.hostile.targets import structures
from tests.images import reference

ROUNDS = int(os.environ.get("F2TOOLS_HOSTILE_ROUNDS", "1"))  # 1: some 450 damaged images
FLIPS_PER_KIND = 2
SMALL = (
    "compress-lz4", "compress-lzo-rle", "compress-zstd", "crash-namespace", "crash-orphan", "crash-xattr",
    "features", "fragmented", "full", "sections", "zoned", "active-logs-2", "blocks16k-compress", "packed-ssa",
)  # fmt: skip


def _short(patches: list[tuple[int, bytes]]) -> str:
    return ", ".join(f"{data[:16].hex()}{'...' if len(data) > 16 else ''} at {offset}" for offset, data in patches)


def _attack(name: str, work: Path, seed: int) -> list[str]:
    rng = random.Random(f"{name}-{seed}")
    image = reference(name).copy(work).path
    with f2tools.open(image) as vol:
        places = structures(vol)
        nids = vol.nat.used().tolist()
    failures: list[str] = []
    for kind, where in sorted(places.items()):
        for number in range(FLIPS_PER_KIND * ROUNDS):
            patches = flips(rng, image, where, rng.choice((1, 1, 2, 8)))
            if kind in ("superblock", "checkpoint head") and number % 4:
                patches = resealed(image, patches, where, kind)
            with patched(image, patches):
                commands = (*rng.sample(COMMANDS, 3), ("dump", "manifest", "{image}"))
                said = exercise(image, work, rng.choice(nids), patches[0][0] // 4096, commands)
            failures += [f"{kind}, {_short(patches)}\n{line}" for line in said]
    return failures


@pytest.mark.parametrize("name", SMALL)
def test_random_damage_is_survived(name: str, tmp_path: Path) -> None:
    failures = in_child(lambda: _attack(name, tmp_path, 0))
    assert not failures, "\n\n".join(failures[:10])


def _truncate(name: str, work: Path) -> list[str]:
    rng = random.Random(name)
    image = reference(name).copy(work).path
    size = image.stat().st_size
    cuts = [0, 1, 1023, 1024, 1028, 4095, 4096, 5120, 8192, *(rng.randrange(size) for _ in range(min(12, 5 * ROUNDS)))]
    cuts += [rng.randrange(size >> 9) << 9 for _ in range(min(8, 3 * ROUNDS))]
    failures: list[str] = []
    for cut in sorted(cuts, reverse=True):
        os.truncate(image, cut)
        said = exercise(image, work, 3, cut // 4096, (*rng.sample(COMMANDS, 4), ("dump", "manifest", "{image}")))
        failures += [f"cut at {cut}\n{line}" for line in said]
    return failures


@pytest.mark.parametrize("name", ["base", *SMALL])
def test_a_truncated_image_is_survived(name: str, tmp_path: Path) -> None:
    failures = in_child(lambda: _truncate(name, tmp_path))
    assert not failures, "\n\n".join(failures[:10])
