"""Images damaged at random, from one field to hundreds: the check ends, in little memory, without a traceback."""

from __future__ import annotations

import os
import random
import resource
import signal
import traceback
from pathlib import Path

import pytest

import f2tools
from f2tools.errors import F2fsError
from f2tools.fsck.check import check
from f2tools.fsck.image import open_image
from f2tools.fsck.report import lines_of
from tests.hostile.damage import flips, patched, resealed
from tests.hostile.exercise import in_child
from tests.hostile.targets import structures
from tests.images import reference

ROUNDS = int(os.environ.get("F2TOOLS_HOSTILE_ROUNDS", "1"))
PER_KIND = 4
SECONDS = 30
MEMORY_BYTES = 700 << 20
IMAGES = (
    "base", "compress-lz4", "compress-zstd", "crash-namespace", "crash-orphan", "crash-xattr", "features", "fragmented",
    "full", "sections", "zoned", "active-logs-2", "blocks16k-compress", "packed-ssa", "casefold", "fscrypt", "phone",
    "device-alias",
)  # fmt: skip


class TooLong(BaseException):
    """The check took longer than any check of so small an image may."""


def _alarm(*_: object) -> None:
    raise TooLong


def _examine(image: Path, extra: tuple[Path, ...]) -> str | None:
    before = signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(SECONDS)
    try:
        opened = open_image(image, extra)
        try:
            report = check(opened, content=True)
            for line in lines_of(report, "x", opened.geo):
                line.encode("utf-8")
            for finding in report.findings:
                finding.as_dict()
        finally:
            opened.close()
    except F2fsError:
        return None
    except BaseException:
        return traceback.format_exc(limit=-8)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 > MEMORY_BYTES:
        return f"more than {MEMORY_BYTES >> 20} MiB"
    return None


def _attack(name: str, work: Path) -> list[str]:
    rng = random.Random(f"fsck-{name}")
    copied = reference(name).copy(work)
    image, extra = copied.path, copied.extra
    with f2tools.open(image, list(extra)) as vol:
        places = structures(vol)
    everywhere = [place for where in places.values() for place in where if place[0] < image.stat().st_size - 4096]
    failures: list[str] = []
    for kind, where in [*sorted(places.items()), ("anything", everywhere)]:
        inside = [place for place in where if place[0] + place[1] <= image.stat().st_size]
        for number in range(PER_KIND * ROUNDS):
            patches = flips(rng, image, inside, rng.choice((1, 1, 4, 20, 200)))
            if kind in ("superblock", "checkpoint head") and number % 4:
                patches = resealed(image, patches, where, kind)
            with patched(image, patches):
                said = _examine(image, extra)
            if said:
                failures.append(f"{kind}, {patches[:6]}\n{said}")
    return failures


@pytest.mark.parametrize("name", IMAGES)
def test_random_damage_is_judged(name: str, tmp_path: Path) -> None:
    failures = in_child(lambda: _attack(name, tmp_path))
    assert not failures, f"{len(failures)} failures\n" + "\n\n".join(failures[:4])


def test_a_truncated_image_is_judged(tmp_path: Path) -> None:
    image = reference("base").copy(tmp_path).path
    rng = random.Random(7)
    size = image.stat().st_size
    for cut in sorted((rng.randrange(size) for _ in range(25)), reverse=True):
        os.truncate(image, cut)
        assert _examine(image, ()) is None
