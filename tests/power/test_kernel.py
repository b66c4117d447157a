"""Power cuts in the engine's writes, before the real kernel: it recovers what we do, and our recovery mounts."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

from tests.f2fs.write.test_kernel import assert_as_the_kernel, tree_of
from tests.f2fs.write.volumes import judge, writable
from tests.kernel.guest import Guest
from tests.kernel.log import assert_quiet
from tests.power.recording import Recording, crowded, mixed, overwriting, record
from tests.sweeps import ALL

OPTIONS = "--size 64M -O extra_attr,inode_checksum,quota,inode_crtime"

SCRIPT = """
set -e
count=${#IMAGES[@]}
for n in $(seq 0 $((count - 1))); do mkdir /mnt/$n; mount -t f2fs -o background_gc=off ${IMAGES[$n]} /mnt/$n; done
manifest /mnt/%d $OUT/%d.json $count
for n in $(seq 0 $((count - 1))); do touch /mnt/$n/the-kernel-was-here; done
umount /mnt/*
"""


def without_what_recovery_decides(tree: dict[str, Any], cleaned: bool = False) -> dict[str, Any]:
    """A manifest without the times of directories, into which recovery may have put a name, and without the free room.

    `cleaned`: nor where blocks lie, for the kernel may have had to clean before it could go on.
    """
    entries: dict[str, Any] = {}
    for path, entry in tree["entries"].items():
        decided = {"mtime_ns", "ctime_ns", "atime_ns"} if entry["type"] == "dir" else set[str]()
        if cleaned:
            decided.add("extents")
        entries[path] = {key: value for key, value in entry.items() if key not in decided}
    return {"entries": entries, "statfs": {}}


def some_cuts(recording: Recording, number: int) -> list[int]:
    """Event counts to cut at: the end, and others by chance."""
    events = len(recording.recorder.events)
    chance = random.Random(7)
    return sorted({events, *(chance.randrange(events + 1) for _ in range(number - 1))})


def test_the_kernel_recovers_what_we_recover(guest: Guest, tmp_path: Path) -> None:
    recordings = {
        "mixed": (record(tmp_path / "mixed", OPTIONS, mixed), 8 if ALL else 5),
        "crowded": (record(tmp_path / "crowded", "--size 64M", overwriting, crowded), 4 if ALL else 3),
    }
    disks: list[Path] = []
    labels: list[str] = []
    for name, (recording, number) in recordings.items():
        for count in some_cuts(recording, number):
            cut = recording.at(count, tmp_path / f"{name}-{count}.img")
            ours = Path(shutil.copyfile(cut, tmp_path / f"{name}-{count}-recovered.img"))
            writable(ours).close()
            judge(ours, context=f"{name} after event {count}, recovered and closed")
            disks += [cut, ours]
            labels.append(f"{name} after event {count}")
    trees = [tree_of(disk) for disk in disks[1::2]]
    result = guest.run(SCRIPT, disks, timeout=600).must_succeed()
    assert_quiet(result, "invalid crc_offset", "recover_dentry:", "invalid crc value")  # of a pack that is cut off
    for number, (label, tree) in enumerate(zip(labels, trees, strict=True)):
        assert_as_the_kernel(tree, result.json(f"{2 * number + 1}.json"), f"{label}, recovered by us")
        cleaned = label.startswith("crowded")
        theirs = without_what_recovery_decides(result.json(f"{2 * number}.json"), cleaned)
        assert_as_the_kernel(without_what_recovery_decides(tree, cleaned), theirs, f"{label}, recovered by the kernel")
    for disk in disks:
        judge(disk, context=f"{disk.name} after the kernel")
        disk.unlink()
