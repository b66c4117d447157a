"""Damaged and fuzzed images under a mount: no traceback, no hang, no process left, memory as for a sound one."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import f2tools
from tests.hostile.damage import flips, patched, resealed
from tests.hostile.targets import structures
from tests.images import DAMAGED, copy_sparse, damaged, reference
from tests.mount.hostile import live_with
from tests.mount.mounted import need_fuse

FACTOR = int(os.environ.get("F2_SUITE_FACTOR", "1"))
FUZZED = ("features", "compress-lz4", "crash-namespace", "fragmented")


DAMAGE = DAMAGED if FACTOR > 1 else DAMAGED[1::8]


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_image_is_mounted_or_refused(name: str, tmp_path: Path) -> None:
    need_fuse()
    image = damaged(name, tmp_path).path
    for number, options in enumerate(((), ("ro",), ("norecovery",), ("checkpoint=older",))[: 4 if FACTOR > 1 else 1]):
        work = copy_sparse(image, tmp_path / "work.img")
        assert not live_with(work, tmp_path / "m", number, *options)


def test_fuzzed_images_are_mounted_or_refused(tmp_path: Path) -> None:
    need_fuse()
    failures: list[str] = []
    for name in FUZZED:
        chance = random.Random(f"{name}-{FACTOR}")
        image = reference(name).copy(tmp_path).path
        with f2tools.open(image) as volume:
            places = structures(volume)
        for number in range(3 * FACTOR):
            kind = chance.choice(sorted(places))
            patches = flips(chance, image, places[kind], chance.choice((1, 2, 8)))
            if kind in ("superblock", "checkpoint head"):
                patches = resealed(image, patches, places[kind], kind)
            with patched(image, patches):
                work = copy_sparse(image, tmp_path / "work.img")
            said = live_with(work, tmp_path / "m", number)
            what = ", ".join(f"{data[:16].hex()} at {offset}" for offset, data in patches)
            failures += [f"{name}, {kind}: {what}\n{line}" for line in said]
    assert not failures, "\n\n".join(failures[:10])
