"""New crashes: the kernel under a random load loses its power, and recovers what we recover.

All volumes of a round are crashed at one moment in one boot, and judged in another.  F2_CRASHES says how many volumes.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from f2tools.device import open_device
from f2tools.dump.manifest import manifest
from f2tools.errors import NotF2fs
from f2tools.f2fs.volume.volume import open_volume
from f2tools.f2fs.write.recovered import open_recovered
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.recover.older import judge_older
from tests import judges
from tests.f2fs.write.consistency import problems
from tests.f2fs.write.test_kernel import assert_as_the_kernel
from tests.images import copy_sparse
from tests.kernel.guest import Guest, Result
from tests.kernel.log import assert_nothing_recovered, has_recovered
from tests.mkfs.tools import f2mkfs

CRASHES = int(os.environ.get("F2_CRASHES", "5"))
ROUND = 10  # volumes that are judged in one boot, each twice
LONGEST = 5.0  # seconds that the load goes on
NOW = 4_000_000_000 * 10**9
WORKLOAD = Path(__file__).with_name("crash_workload.py")
MANY = "extra_attr,compression,inode_checksum,inode_crtime,sb_checksum,flexible_inline_xattr,lost_found"


@dataclass(frozen=True)
class Kind:
    """How a volume is made and mounted, and how often of 100 operations something is made safe."""

    make: str = ""
    mount: str = ""
    syncs: int = 15
    devices: int = 1


KINDS = (
    Kind(),
    Kind("-O extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,project_quota,quota,sb_checksum", syncs=30),
    Kind(devices=2),
    Kind("-s 2 -z 2", "fsync_mode=strict"),
    Kind("-O extra_attr,compression,inode_checksum", "compress_extension=*,compress_algorithm=lz4"),
    Kind(mount="active_logs=4", syncs=50),
    Kind(mount="active_logs=2", syncs=8),
    Kind(mount="noinline_data,noinline_dentry,noinline_xattr"),
    Kind(mount="mode=lfs"),
    Kind("-C utf8 -O casefold,extra_attr,lost_found", syncs=5),
    Kind(mount="mode=fragment:block", syncs=20),
    Kind("-i", "fsync_mode=nobarrier,background_gc=sync"),
    Kind(f"-O {MANY},quota,project_quota", "compress_extension=*,compress_algorithm=zstd,compress_chksum", syncs=25),
    Kind("-O extra_attr,flexible_inline_xattr", "inline_xattr_size=60,fsync_mode=strict", syncs=40),
    Kind(mount="alloc_mode=reuse,data_flush,checkpoint_merge", syncs=60),
    Kind("-C utf8 -O casefold,extra_attr,quota,verity,encrypt", "mode=fragment:segment,atgc", syncs=20),
    Kind("-s 2", "mode=lfs,gc_merge,noextent_cache", syncs=25),
    Kind("-O quota", "noinline_dentry,fsync_mode=nobarrier", syncs=35),
)  # fmt: skip

CRASH = """
set -e
words=($MOUNTS); disks=($DISKS); count=${#disks[@]}
for n in $(seq 0 $((count - 1))); do
    mkdir /mnt/$n
    mount -t f2fs -o ${words[$n]} ${IMAGES[${disks[$n]}]} /mnt/$n
done
exec python3 /share/workload $SEED $SYNCS
"""

# The kernel's cleaner would move what we compare the places of.
JUDGE = """
set -e
disks=($DISKS); count=${#disks[@]}
for n in $(seq 0 $((count - 1))); do
    mkdir /mnt/$n
    mount -t f2fs -o background_gc=off ${IMAGES[${disks[$n]}]} /mnt/$n
done
manifest /mnt/%d $OUT/%d.json $count
umount /mnt/*
"""


@dataclass
class Crashed:
    """A volume that lost its power."""

    label: str
    paths: list[Path]

    def copy(self, directory: Path, word: str) -> list[Path]:
        return [copy_sparse(path, directory / f"{word}-{path.name}") for path in self.paths]


def blank(kind: Kind, name: str, directory: Path, disk: int) -> list[Path]:
    """A fresh volume that will be attached as disk number `disk` and following."""
    paths = [directory / f"{name}-{n}.img" for n in range(kind.devices)]
    words: list[Any] = ["-q", paths[0], "--size", "128M" if "-s" in kind.make else "64M", *kind.make.split()]
    for path in paths[1:]:
        words += ["--size", "64M", "-c", path]
    if kind.devices > 1:
        for n in range(kind.devices):
            words += ["--device-path", _disk(disk + n)]
    f2mkfs(*words)
    return paths


def _disk(number: int) -> str:
    return f"/dev/vd{chr(ord('a') + number)}"


def crash(guest: Guest, kinds: list[Kind], seed: str, directory: Path) -> list[Crashed]:
    """Volumes that a kernel was writing to when its power was cut."""
    chance = random.Random(seed)
    volumes: list[Crashed] = []
    first: list[int] = []
    for number, kind in enumerate(kinds):
        first.append(sum(len(volume.paths) for volume in volumes))
        label = f"crash {seed}-{number}: mkfs {kind.make or 'plain'}, mount {kind.mount or 'plain'}"
        volumes.append(Crashed(label, blank(kind, f"{number}", directory, first[-1])))
    env = {
        "MOUNTS": " ".join(kind.mount or "rw" for kind in kinds),
        "SYNCS": " ".join(str(kind.syncs) for kind in kinds),
        "DISKS": " ".join(map(str, first)),
        "SEED": seed,
    }
    disks = [path for volume in volumes for path in volume.paths]
    after = chance.uniform(0.0, LONGEST)
    files = {"workload": WORKLOAD.read_text()}
    result = guest.run(CRASH, disks, env=env, files=files, cut_after=("go", after), timeout=600, cpus=2)
    assert result.crashed, result.must_succeed()
    return volumes


def place(path: Path, disks: list[Path]) -> str:
    return _disk(disks.index(path))


def timeless(entries: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Without what recovery itself decides: times of a directory that got a name back, the place of an inode."""
    found: dict[str, Any] = {}
    for path, entry in entries.items():
        kept = dict(entry)
        if path in ours and ours[path]["mtime_ns"] >= NOW:
            kept = {key: value for key, value in kept.items() if key not in ("mtime_ns", "ctime_ns", "atime_ns")}
        kept["extents"] = [e for e in entry.get("extents", ()) if not e[3] & 0x200]
        found[path] = kept
    return found


def back_to_the_older(volume: Crashed, directory: Path) -> Path | None:
    """A copy that went back to its older checkpoint; None where that is gone."""
    (path,) = volume.copy(directory, "older")
    try:
        with open_volume(path, (), "older") as older, open_volume(path) as newest:
            if not judge_older(older, newest).possible:
                return None
    except NotF2fs:  # the power went while a checkpoint was written
        return None
    WritableVolume(open_device(path, write=True), clock=lambda: NOW, which="older").close()
    judges.fsck_clean(path)
    return path


def judge_round(guest: Guest, volumes: list[Crashed], directory: Path) -> tuple[int, list[str]]:
    """Hold our recovery against the kernel's: (how many volumes had something to roll forward, what is not equal)."""
    ours = [volume.copy(directory, "ours") for volume in volumes]
    looked: list[dict[str, Any]] = []
    for volume, paths in zip(volumes, ours, strict=True):
        with open_recovered(volume.paths[0], volume.paths[1:]) as read:
            looked.append(manifest(read))
            found = set(problems(read))
        with open_volume(volume.paths[0], volume.paths[1:]) as read:
            found -= set(problems(read))  # the kernel leaves indirect nodes without children
        assert not found, f"{volume.label}: recovered, but {found}"
        device = open_device(paths[0], write=True, extra=paths[1:])
        WritableVolume(device, clock=lambda: NOW).close()
        judges.fsck_clean(paths[0], *paths[1:])
    trees = []
    for paths in ours:
        with open_volume(paths[0], paths[1:]) as read:
            trees.append(manifest(read))
    disks = [path for volume, paths in zip(volumes, ours, strict=True) for path in (*volume.paths, *paths)]
    single = next(volume for volume in volumes if len(volume.paths) == 1)
    older = back_to_the_older(single, directory)
    disks += [older] if older else []
    for paths in [volume.paths for volume in volumes if len(volume.paths) > 1] + [p for p in ours if len(p) > 1]:
        judges.set_device_paths(paths[0], [Path(place(path, disks)) for path in paths])
    heads = [disks.index(paths[0]) for pair in zip((v.paths for v in volumes), ours, strict=True) for paths in pair]
    was: dict[str, Any] = {}
    if older:
        heads.append(disks.index(older))
        with open_volume(older) as read:
            was = manifest(read)
    env = {"DISKS": " ".join(map(str, heads))}
    result = guest.run(JUDGE, disks, env=env, timeout=900).must_succeed()
    rolled, wrong = 0, []
    for number, volume in enumerate(volumes):
        try:
            judge(result, number, trees[number], looked[number], place(ours[number][0], disks))
            judges.fsck_clean(volume.paths[0], *volume.paths[1:])
            judges.fsck_clean(ours[number][0], *ours[number][1:])
        except AssertionError as error:
            wrong.append(f"{volume.label}: {error}")
        rolled += has_recovered(result, place(volume.paths[0], disks))
    if older:
        assert_as_the_kernel(was, result.json(f"{len(heads) - 1}.json"), f"{single.label}: the older state")
        assert_nothing_recovered(result, place(older, disks))
        judges.fsck_clean(older)
    return rolled, wrong


def judge(result: Result, number: int, tree: dict[str, Any], looked: dict[str, Any], disk: str) -> None:
    """One volume: the kernel's recovery, ours, and ours in memory."""
    theirs, mine = result.json(f"{2 * number}.json"), result.json(f"{2 * number + 1}.json")
    assert_as_the_kernel(tree, mine, "recovered by us")
    entries = tree["entries"]
    for context, one in (("recovered by us", tree), ("recovered in memory", looked)):
        left = {"entries": timeless(one["entries"], entries), "statfs": one["statfs"]}
        right = {**theirs, "entries": timeless(theirs["entries"], entries)}
        assert_as_the_kernel(left, right, f"{context}, against the kernel's recovery")
    assert_nothing_recovered(result, disk)


def test_the_kernel_recovers_what_we_recover(guest: Guest, tmp_path: Path) -> None:
    seed = f"{time.time_ns():x}"
    kinds = [KINDS[n % len(KINDS)] for n in range(CRASHES)]
    rolled, wrong = 0, []
    for number, start in enumerate(range(0, CRASHES, ROUND)):
        directory = tmp_path / f"{number}"
        directory.mkdir()
        volumes = crash(guest, kinds[start : start + ROUND], f"{seed}-{number}", directory)
        for volume in volumes:  # to be looked at, should they not be recovered as they must
            volume.copy(directory, "crashed")
        found, bad = judge_round(guest, volumes, directory)
        rolled, wrong = rolled + found, wrong + bad
        for text in bad:
            print(f"{directory}: {text}")
        if not bad:
            shutil.rmtree(directory)
    print(f"{CRASHES} crashes, {rolled} with something to roll forward, seed {seed}")
    assert not wrong, "\n\n".join(wrong)
    assert rolled or CRASHES < ROUND, "no crash left anything to roll forward: the load is too light"
