"""Images damaged at random, from one field to hundreds: the check ends, in little memory, without a traceback."""

from __future__ import annotations

import os
import random
import shutil
import signal
import traceback
from pathlib import Path

import pytest

import f2tools
from f2tools.device import open_device
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import open_image
from f2tools.fsck.repair.rounds import Repairer
from f2tools.fsck.report import lines_of
from tests import judges
from tests.fsck.craft import examine
from tests.fsck.test_repair import repair, tree_of
from tests.hostile.damage import flips, patched, resealed
from tests.hostile.exercise import grown_bytes, in_child
from tests.hostile.targets import structures
from tests.images import reference

ROUNDS = int(os.environ.get("F2TOOLS_HOSTILE_ROUNDS", "1"))
PER_KIND = 2
SECONDS = 30
MEMORY_BYTES = 640 << 20  # beyond what the process had before
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
    if grown_bytes() > MEMORY_BYTES:
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

    def cut_off() -> list[str]:
        failures: list[str] = []
        for cut in sorted((rng.randrange(size) for _ in range(25)), reverse=True):
            os.truncate(image, cut)
            failures += [f"cut at {cut}: {said}" for said in (_examine(image, ()),) if said]
        return failures

    assert not in_child(cut_off)


# -- repair -----------------------------------------------------------------------------------------------------------

REPAIRED = ("base", "compress-lz4", "features", "casefold", "sections", "plain")
PER_IMAGE = 5


def _mend(image: Path, work: Path, judge: bool) -> str | None:
    """Repair; a line when it did not end in a sound volume although one can be had, or was refused by fsck.f2fs."""
    before = signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(SECONDS)
    try:
        report = examine(image)
        if report.sound:
            return None
        with open_device(image) as device:
            repairer = Repairer(device)
            outcome = repairer.run(report)
            if not outcome.complete:
                return None if set(outcome.left) <= BEYOND else f"left: {dict(outcome.left)}"
            copy = work / "repaired.img"
            copy.unlink(missing_ok=True)
            shutil.copy(image, copy)
            with open_device(copy, write=True) as target:
                repairer.commit(target)
    except F2fsError:
        return None
    except BaseException:
        return traceback.format_exc(limit=-8)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    again = examine(copy)
    if not again.sound:
        return f"a second check finds {dict(again.counts)}"
    if judge:
        run = judges.fsck(copy)
        bad = judges.complaints_in_words(run.output)
        if run.rc or bad:
            return f"fsck.f2fs: {run.rc} {bad[:3]}"
    return None


BEYOND = {"C002", "C003", "S003", "S006", "S007"}  # no checkpoint left at all, or features that nobody knows


def _mend_all(name: str, work: Path, judge: bool) -> list[str]:
    rng = random.Random(f"mend-{name}")
    image = reference(name).copy(work).path
    with f2tools.open(image) as vol:
        places = structures(vol)
    inside = [place for where in places.values() for place in where if sum(place) <= image.stat().st_size]
    failures: list[str] = []
    for number in range(PER_IMAGE * ROUNDS):
        kind = rng.choice([*sorted(places), "anything"])
        where = [place for place in places.get(kind, inside) if sum(place) <= image.stat().st_size]
        patches = flips(rng, image, where or inside, rng.choice((1, 2, 5, 20, 60)))
        with patched(image, patches):
            said = _mend(image, work, judge and number % 3 == 0)
        if said:
            failures.append(f"{kind}, {len(patches)} patches, {patches[:4]}\n{said}")
    return failures


@pytest.mark.peer
@pytest.mark.parametrize("name", REPAIRED)
def test_random_damage_is_mended(name: str, tmp_path: Path) -> None:
    judge = judges.find_tool("fsck.f2fs") is not None or judges.need_tool("fsck.f2fs") != ""
    failures = in_child(lambda: _mend_all(name, tmp_path, judge))
    assert not failures, f"{len(failures)} failures\n" + "\n\n".join(failures[:4])


# -- what a repair may cost -------------------------------------------------------------------------------------------

TABLES = ("nat", "sit", "ssa", "node footer", "checkpoint summaries", "checkpoint tail", "superblock")


def _nothing_lost(name: str, work: Path) -> list[str]:
    rng = random.Random(f"kept-{name}")
    image = reference(name).copy(work).path
    good = tree_of(image)
    with f2tools.open(image) as vol:
        places = structures(vol)
    failures: list[str] = []
    for _ in range(PER_IMAGE * ROUNDS):
        kind = rng.choice(TABLES)
        patches = flips(rng, image, places[kind], rng.choice((1, 2, 4, 10, 40)))
        with patched(image, patches):
            if examine(image).sound:
                continue
            copy = work / "repaired.img"
            copy.unlink(missing_ok=True)
            shutil.copy(image, copy)
            if not repair(copy).better:
                failures.append(f"{kind}, {len(patches)} patches, {patches[:4]}: not repaired")
                continue
            now = tree_of(copy)
        lost = [path for path, shown in good.items() if now.get(path) != shown]
        if lost:
            failures.append(f"{kind}, {len(patches)} patches, {patches[:4]}: {len(lost)} files, such as {lost[:3]}")
    return failures


@pytest.mark.parametrize("name", ["base", "checksums", "sections"])
def test_damaged_tables_cost_no_file(name: str, tmp_path: Path) -> None:
    failures = in_child(lambda: _nothing_lost(name, tmp_path))
    assert not failures, f"{len(failures)} failures\n" + "\n\n".join(failures[:4])


@pytest.mark.parametrize("time", [(1 << 64) - 1, (1 << 64) - 86400, 1 << 63])
def test_a_clock_near_its_end_is_checked(time: int, tmp_path: Path) -> None:
    """A year later is more than 64 bits hold."""
    image = reference("plain").copy(tmp_path).path
    with f2tools.open(image) as volume:
        places = structures(volume)["checkpoint head"]
    clocks = [(start + Checkpoint.offset_of("elapsed_time"), time.to_bytes(8, "little")) for start, _ in places]
    with patched(image, resealed(image, clocks, places, "checkpoint head")):
        opened = open_image(image)
        assert opened.pack is not None
        assert opened.pack.cp.elapsed_time == time
        assert check(opened).sound
        opened.device.close()
