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
from tests.kernel.guest import MAX_IMAGES, Guest, Result
from tests.write.volumes import FULL, Twin, fresh, judge, reading, writable
from tests.write.workload import Workload


@dataclass(frozen=True)
class Case:
    """A volume: how it is made, how the engine treats it, how full it gets."""

    options: str
    active_logs: int = 6
    percent: float = 0.0
    adaptive: bool = True
    parts: tuple[str, ...] = ("small", "links", "names", "xattrs", "flags", "holes", "churn")


FEW = ("small", "churn")
CASES = [
    Case("--size 64M"),
    Case("--size 64M", active_logs=2),
    Case("--size 64M", active_logs=4),
    Case(f"--size 64M -O {FULL}"),
    Case(f"--size 128M -O {FULL},lost_found,encrypt,verity", active_logs=4),
    Case("--size 64M -C utf8 -O extra_attr,inode_checksum"),
    Case("--size 64M -O extra_attr,compression,inode_checksum,project_quota"),
    Case("--size 64M -O quota"),
    Case("--size 64M -O extra_attr,flexible_inline_xattr,inode_crtime"),
    Case("--size 128M -g android -C utf8"),
    Case("--size 64M -i"),
    Case("--size 512M -s 2", parts=("everything",)),
    Case("--size 1G -s 4 -z 2", parts=("everything",)),
    Case("--size 512M -s 3 -z 2 -i -O extra_attr,quota"),
    Case("--size 2G -z 5", parts=("small", "large")),
    Case("--size 64G", parts=("small", "large")),
    Case("--size 46M", parts=("small",)),
    Case("--size 64M", percent=60, parts=FEW),
    Case("--size 64M", percent=90, parts=FEW),
    Case(f"--size 64M -O {FULL}", percent=95, parts=FEW),
    Case("--size 64M", percent=98, parts=FEW),
    Case("--size 64M", percent=98, adaptive=False, parts=FEW),
    Case("--size 128M -s 2", percent=95, parts=FEW),
    Case("--size 128M", percent=98, active_logs=2, parts=FEW),
]

HARMLESS = ("Mounted with checkpoint version", "Found nat_bits in checkpoint", "Using encoding defined by superblock")
HARMLESS += (
    "recover fsync data",
    "recovered fsync",
    "checkpoint: version",
    "recover_inode:",
    "recover_dentry:",
    "recover_data:",
)

# The kernel mounts, writes down, changes, writes down again: $LOGS and $FULL have a word for each image.
SCRIPT = """
set -e
logs=($LOGS); full=($FULL); n=0
for disk in "${IMAGES[@]}"; do
    mount -t f2fs -o active_logs=${logs[$n]} $disk /mnt
    manifest /mnt $OUT/$n-first.json
    if [ ${full[$n]} = 0 ]; then
        mktree small /mnt kernel > /dev/null
        for f in $(seq 12); do dd if=/dev/urandom of=/mnt/kernel-$f bs=30k count=1 status=none; done
        rm /mnt/kernel-3 /mnt/kernel-7
    fi
    echo changed by the kernel >> /mnt/tree1/small/f13-36871
    dd if=/dev/urandom of=/mnt/tree1/small/f12-4097 bs=4k count=2 conv=notrunc,fsync status=none
    rm /mnt/tree1/small/f11-4096
    mkdir /mnt/tree1/by-kernel; mv /mnt/tree1/small/f10-4095 /mnt/tree1/by-kernel/moved
    sync -f /mnt
    echo more > /mnt/tree1/by-kernel/more
    umount /mnt
    mount -t f2fs -o ro $disk /mnt
    manifest /mnt $OUT/$n-second.json
    umount /mnt
    n=$((n + 1))
done
"""


def tree_of(path: Path) -> dict[str, Any]:
    """Our manifest of an image."""
    with reading(path) as volume:
        return json.loads(json.dumps(manifest(volume)))


def assert_as_the_kernel(ours: dict[str, Any], kernel: dict[str, Any], context: str) -> None:
    """Two manifests tell of the same tree and the same room."""
    said: list[Any] = [("errors", kernel["errors"])] if "errors" in kernel else []
    mine, theirs = ours["entries"], kernel["entries"]
    said += [(path, "only with us") for path in mine.keys() - theirs.keys()]
    said += [(path, "only with the kernel") for path in theirs.keys() - mine.keys()]
    for path in sorted(mine.keys() & theirs.keys()):
        a, b = mine[path], theirs[path]
        said += [(path, key, a.get(key), b.get(key)) for key in a.keys() | b.keys() if a.get(key) != b.get(key)]
    if ours["statfs"] != kernel["statfs"]:
        said.append(("statfs", ours["statfs"], kernel["statfs"]))
    assert not said, f"{context}: (path, what, we, the kernel)\n" + "\n".join(map(str, said[:30]))


def assert_quiet(result: Result) -> None:
    """The kernel had nothing to complain of."""
    said = (line for line in result.dmesg.splitlines() if "F2FS-fs" in line)
    bad = [line for line in said if not any(word in line for word in HARMLESS)]
    bad += [line for line in result.dmesg.splitlines() if "WARNING:" in line or "BUG:" in line]
    assert not bad, "\n".join(bad[:40])


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


@pytest.mark.peer
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.options} {case.active_logs} {case.percent:g}%")
def test_what_is_written_is_clean_and_there(case: Case, tmp_path: Path) -> None:
    path = fresh(tmp_path, case.options)
    twin = write_case(case, path)
    judge(path, twin.model, context=case.options)


def test_the_kernel_reads_it_and_writes_on(guest: Guest, tmp_path: Path) -> None:
    assert len(CASES) <= MAX_IMAGES
    disks = []
    for number, case in enumerate(CASES):
        disks.append(fresh(tmp_path, case.options, f"{number}.img"))
        write_case(case, disks[-1])
    before = [tree_of(disk) for disk in disks]
    env = {
        "LOGS": " ".join(str(case.active_logs) for case in CASES),
        "FULL": " ".join(str(int(case.percent > 0 or "46M" in case.options)) for case in CASES),
    }
    result = guest.run(SCRIPT, disks, timeout=900, env=env).must_succeed()
    assert_quiet(result)
    for number, (case, disk) in enumerate(zip(CASES, disks, strict=True)):
        assert_as_the_kernel(before[number], result.json(f"{number}-first.json"), f"{case}, as written")
        assert_as_the_kernel(tree_of(disk), result.json(f"{number}-second.json"), f"{case}, as the kernel left it")
        judge(disk, context=shlex.quote(case.options))
        twin = Twin(writable(disk, active_logs=case.active_logs, adaptive=case.adaptive))
        if not case.percent:
            Workload(twin, 2).churn(rounds=30)
        twin.volume.close()
        judge(disk, twin.model, context=f"{case}, written on after the kernel")
        disk.unlink()
