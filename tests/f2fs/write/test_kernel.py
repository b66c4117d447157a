"""What the engine wrote, in the real kernel: it mounts, shows the same tree, writes on; then we read and write on.

A boot takes as many images as it has room for: features, sizes, sections and zones, active logs, fullness.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from f2tools.dump.manifest import manifest
from tests.f2fs.write.volumes import FULL, Twin, fresh, judge, reading, writable
from tests.f2fs.write.workload import Workload
from tests.images import with_whole_clusters
from tests.kernel.guest import MAX_IMAGES, Guest
from tests.kernel.log import assert_quiet
from tests.sweeps import ALL

FEW = ("small", "churn")
MANY = ("small", "links", "names", "xattrs", "flags", "holes", "churn")


@dataclass(frozen=True)
class Case:
    """A volume: how it is made, how the engine treats it, how full it gets, what is in it."""

    options: str
    active_logs: int = 6
    percent: float = 0.0
    adaptive: bool = True
    parts: tuple[str, ...] = FEW
    later: bool = False
    """Before the kernel with $F2_SWEEPS only: others have what it has."""


CASES = [
    Case("--size 64M", parts=MANY),
    Case("--size 64M", active_logs=2),
    Case("--size 64M", active_logs=4, later=True),
    Case(f"--size 64M -O {FULL}", parts=MANY),
    Case(f"--size 128M -O {FULL},lost_found,encrypt,verity", active_logs=4),
    Case("--size 64M -C utf8 -O extra_attr,inode_checksum", parts=("flags", *FEW)),
    Case("--size 64M -O extra_attr,compression,inode_checksum,project_quota", parts=("flags", *FEW)),
    Case("--size 64M -O quota", later=True),
    Case("--size 64M -O extra_attr,flexible_inline_xattr,inode_crtime", parts=("xattrs", *FEW), later=True),
    Case("--size 128M -g android -C utf8"),
    Case("--size 64M -i", later=True),
    Case("--size 512M -s 2", parts=("large", *FEW), later=True),
    Case("--size 1G -s 4 -z 2", later=True),
    Case("--size 512M -s 3 -z 2 -i -O extra_attr,quota"),
    Case("--size 2G -z 5", parts=("large", *FEW), later=True),
    Case("--size 64G", parts=("large", *FEW)),
    Case("--size 46M", parts=("small",)),
    Case("--size 64M", percent=60, later=True),
    Case("--size 64M", percent=90, later=True),
    Case(f"--size 64M -O {FULL}", percent=95),
    Case("--size 64M", percent=98),
    Case("--size 64M", percent=98, adaptive=False),
    Case("--size 128M -s 2", percent=95),
    Case("--size 128M", percent=98, active_logs=2, later=True),
]

# The kernel mounts, writes down, changes, writes down again: $LOGS and $MORE have a word for each image.
SCRIPT = """
set -e
logs=($LOGS); more=($MORE); count=${#IMAGES[@]}
for n in $(seq 0 $((count - 1))); do
    mkdir /mnt/$n; mount -t f2fs -o background_gc=off,active_logs=${logs[$n]} ${IMAGES[$n]} /mnt/$n
done
manifest /mnt/%d $OUT/%d-first.json $count
for n in $(seq 0 $((count - 1))); do
    if [ ${more[$n]} = tree ]; then mktree small /mnt/$n kernel > /dev/null; fi
    if [ ${more[$n]} != little ]; then
        for f in 1 2 3 4 5 6; do dd if=/dev/urandom of=/mnt/$n/kernel-$f bs=30k count=1 status=none; done
        rm /mnt/$n/kernel-3
    fi
    cd /mnt/$n/tree1
    echo changed by the kernel >> small/f13-36871
    dd if=/dev/urandom of=small/f12-4097 bs=4k count=2 conv=notrunc,fsync status=none
    rm small/f11-4096
    mkdir by-kernel; mv small/f10-4095 by-kernel/moved
    sync -f /mnt/$n
    echo more > by-kernel/more
    cd /
    umount /mnt/$n
    mount -t f2fs -o ro ${IMAGES[$n]} /mnt/$n
done
manifest /mnt/%d $OUT/%d-second.json $count
umount /mnt/*
"""


def tree_of(path: Path) -> dict[str, Any]:
    """Our manifest of an image."""
    with reading(path) as volume:
        return json.loads(json.dumps(manifest(volume)))


def assert_as_the_kernel(ours: dict[str, Any], kernel: dict[str, Any], context: str) -> None:
    """Two manifests tell of the same tree and the same room."""
    kernel = with_whole_clusters(kernel)
    said: list[Any] = [("errors", kernel["errors"])] if "errors" in kernel else []
    mine, theirs = ours["entries"], kernel["entries"]
    said += [(path, "only with us") for path in mine.keys() - theirs.keys()]
    said += [(path, "only with the kernel") for path in theirs.keys() - mine.keys()]
    for path in sorted(mine.keys() & theirs.keys()):
        a, b = mine[path], theirs[path]
        hashes, known = a.get("segment_sha256", []), b.get("segment_sha256", [])
        if None in known and len(hashes) == len(known):
            b = b | {"segment_sha256": [there or here for here, there in zip(hashes, known, strict=True)]}
        said += [(path, key, a.get(key), b.get(key)) for key in a.keys() | b.keys() if a.get(key) != b.get(key)]
    if ours["statfs"] != kernel["statfs"]:
        said.append(("statfs", ours["statfs"], kernel["statfs"]))
    assert not said, f"{context}: (path, what, we, the kernel)\n" + "\n".join(map(str, said[:30]))


def write_case(case: Case, path: Path) -> Twin:
    """Fill a volume as the case says and close it."""
    twin = Twin(writable(path, active_logs=case.active_logs, adaptive=case.adaptive))
    work = Workload(twin, 1)
    for part in case.parts:
        getattr(work, part)()
    if case.percent:
        filled = work.fill(case.percent)
        for n in range(60):  # on the full volume, here and there
            ino = filled[work.random.randrange(len(filled))]
            twin.do("write", ino, work.random.randrange(60) * 4096, b"%d" % n * 2000)
    twin.volume.close()
    return twin


def _more(case: Case) -> str:
    """How much the kernel writes: a tree, some files, or hardly anything where there is no room."""
    if case.percent or "46M" in case.options:
        return "little"
    return "tree" if case.parts == MANY else "some"


@pytest.mark.peer
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.options} {case.active_logs} {case.percent:g}%")
def test_what_is_written_is_clean_and_there(case: Case, tmp_path: Path) -> None:
    path = fresh(tmp_path, case.options)
    twin = write_case(case, path)
    judge(path, twin.model, context=case.options)


def test_the_kernel_reads_it_and_writes_on(guest: Guest, tmp_path: Path) -> None:
    cases = [case for case in CASES if ALL or not case.later]
    assert len(cases) <= MAX_IMAGES
    disks = []
    for number, case in enumerate(cases):
        disks.append(fresh(tmp_path, case.options, f"{number}.img"))
        write_case(case, disks[-1])
    before = [tree_of(disk) for disk in disks]
    env = {
        "LOGS": " ".join(str(case.active_logs) for case in cases),
        "MORE": " ".join(map(_more, cases)),
    }
    result = guest.run(SCRIPT, disks, timeout=900, env=env).must_succeed()
    assert_quiet(result)
    for number, (case, disk) in enumerate(zip(cases, disks, strict=True)):
        assert_as_the_kernel(before[number], result.json(f"{number}-first.json"), f"{case}, as written")
        assert_as_the_kernel(tree_of(disk), result.json(f"{number}-second.json"), f"{case}, as the kernel left it")
        judge(disk, context=shlex.quote(case.options))
        twin = Twin(writable(disk, active_logs=case.active_logs, adaptive=case.adaptive))
        if not case.percent:
            Workload(twin, 2).churn(rounds=30)
        twin.volume.close()
        judge(disk, twin.model, context=f"{case}, written on after the kernel")
        disk.unlink()
