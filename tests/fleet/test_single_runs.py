"""What a fleet says of each of two hundred images is what the command for one image prints of it alone.

They are the reference images, their damaged ones, and all of them hurt in two more ways.  F2_FLEET_IMAGES=all takes
every one for every verb; else each verb has a share of the small ones.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from distributed import LocalCluster

from f2tools.f2fs.volume.volume import open_volume
from tests import images
from tests.dump.craft import f2
from tests.images import Reference, copy_sparse

pytestmark = pytest.mark.xdist_group("fleet")
ALL = os.environ.get("F2_FLEET_IMAGES") == "all"
SHARE, SMALL_MIB = 20, 100
WAYS = ("checkpoint", "nat")
BLOCK = 4096


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, silence_logs=50, dashboard_address="127.0.0.1:0"
    ) as local:
        yield local.scheduler_address


def everything() -> list[tuple[str, str | None]]:
    """(name, how it is hurt besides) of all there are."""
    known = [(name, None) for name in (*images.CASES, *images.DAMAGED)]
    return [*known, *((name, way) for name in images.CASES for way in WAYS)]


def is_small(name: str) -> bool:
    return name in images.DAMAGED or sum(images.case_of(name).get("mib", [SMALL_MIB + 1])) <= SMALL_MIB


def made(name: str, way: str | None, directory: Path) -> Reference:
    """The image; a hurt one is a copy."""
    directory.mkdir(parents=True)
    if name in images.DAMAGED:
        return images.damaged(name, directory)
    image = images.reference(name)
    if way is None:
        return image
    copy = copy_sparse(image.path, directory / image.path.name)
    at = copy.stat().st_size // 2 // BLOCK * BLOCK  # of a sparse image, whose blocks lie anywhere
    if name not in images.SPARSE:
        with open_volume(image.path, list(image.extra)) as volume:
            at = (volume.geo.cp_blkaddr if way == "checkpoint" else volume.geo.nat_blkaddr) * BLOCK
    with copy.open("r+b") as file:
        file.seek(at)
        block = file.read(BLOCK)
        file.seek(at)
        file.write(bytes(byte ^ 0xA5 for byte in block))
    return Reference(name, (copy, *image.extra), image.directory, image.case)


def alone(verb: str, image: Reference, scratch: Path) -> tuple[int, dict[str, Any], str]:
    """(exit code, numbers, what is said of an error) of the command for one image."""
    more = [word for device in image.extra for word in ("--device", device)]
    if verb == "info":
        done = f2("dump", "info", image.path, *more, "--json")
        shown = json.loads(done.out) if done.out else {}
        same = ("label", "uuid", "format", "size_bytes", "device_bytes", "kbytes_written", "version")
        return done.code, {
            **{name: shown[name] for name in same if shown}, **(shown.get("space") or {}), **(shown.get("state") or {}),
        }, done.err  # fmt: skip
    if verb == "check":
        done = f2("fsck", image.path, *more, "--json")
        lines = [json.loads(line) for line in done.out.splitlines()]
        if not lines or lines[-1]["record"] != "summary":
            return done.code, {}, done.err
        counts = Counter(lines[-1]["severities"])
        found = {name: lines[-1][name] for name in ("inodes", "nodes", "dentries")}
        levels = {"warnings": counts["warning"], "fatal": counts["fatal"]}
        return done.code, {**found, **levels, "errors": counts["error"] + counts["fatal"]}, done.err
    if verb == "scan":
        done = f2("scan", image.path, *more, "-o", scratch / "index", "--force", "--json")
        return done.code, json.loads(done.out) if done.out else {}, done.err
    if verb == "undelete":
        done = f2("undelete", image.path, *more, "--json")
        grades = Counter(json.loads(line)["grade"].replace(" ", "_") for line in done.out.splitlines())
        levels = {name: grades[name] for name in ("certain", "probable", "partial", "name_only")}
        return done.code, {"files": grades.total(), **levels}, done.err
    done = f2("dump", "manifest", image.path, *more)
    return done.code, {"sha256": hashlib.sha256(done.out).hexdigest()} if done.out else {}, done.err


def compared(verb: str, row: dict[str, Any], image: Reference, scratch: Path) -> int:
    """How many numbers the row and the command for one image have in common; all are the same."""
    code, numbers, said = alone(verb, image, scratch)
    if not row["looked_at"]:
        assert code not in (0, 1) or not numbers, (row, numbers)
        assert row["reason"]
        return 0
    assert code in ((0,) if row["ok"] else (0, 1, 4, 8)), (row, said)
    both = row.keys() & numbers.keys()
    assert {name: row[name] for name in both} == {name: numbers[name] for name in both}, row["target"]
    return len(both)


@pytest.mark.parametrize(("verb", "least"), [("check", 6), ("info", 12), ("scan", 8), ("undelete", 5), ("manifest", 1)])
def test_a_row_has_the_numbers_of_the_command_for_one_image(
    verb: str, least: int, scheduler: str, tmp_path: Path
) -> None:
    known = everything()
    assert len(known) >= 199
    first = ("check", "info", "scan", "undelete", "manifest").index(verb) * (SHARE // 5)
    chosen = known if ALL else [one for one in known if is_small(one[0])][first::SHARE]
    of: dict[str, Reference] = {}
    for number, (name, way) in enumerate(chosen):
        image = made(name, way, tmp_path / str(number))
        of[",".join(map(str, image.devices))] = image
    out = tmp_path / "out.parquet"
    done = f2("fleet", verb, *of, "--scheduler", scheduler, "-o", out)
    assert done.code in (0, 1), done.err
    found = pq.read_table(out).to_pylist()
    assert [row["target"] for row in found] == list(of)
    numbers = [compared(verb, row, of[row["target"]], tmp_path) for row in found]
    assert max(numbers) >= least
    assert sum(map(bool, numbers)) >= len(chosen) * 2 // 3
