"""Volumes whose files were moved, and whose features were switched, in the real kernel: one boot for all of them.

It mounts them, shows the tree that we do, and writes on; then both checkers and we look again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from f2tools.defrag.block_range import Range, move_range
from f2tools.defrag.defrag import Defrag
from f2tools.defrag.files import chosen_files
from f2tools.device import open_device
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.tune.tune import TuneRequest, apply, plan
from tests import images
from tests.f2fs.write.test_kernel import assert_as_the_kernel, tree_of
from tests.f2fs.write.volumes import FULL, Twin, fresh, judge, writable
from tests.f2fs.write.workload import Workload
from tests.kernel.guest import Guest
from tests.kernel.log import assert_quiet
from tests.sweeps import some

SCRIPT = """
set -e
count=${#IMAGES[@]}
for n in $(seq 0 $((count - 1))); do mkdir /mnt/$n; mount -t f2fs -o background_gc=off ${IMAGES[$n]} /mnt/$n; done
manifest /mnt/%d $OUT/%d-first.json $count
for n in $(seq 0 $((count - 1))); do
    mkdir /mnt/$n/kernel
    for f in 1 2 3 4; do dd if=/dev/urandom of=/mnt/$n/kernel/$f bs=30k count=2 status=none; done
    rm /mnt/$n/kernel/2
    for f in $(find /mnt/$n -xdev -type f -size +3k | head -5); do
        if dd if=/dev/urandom of=$f bs=4k count=1 seek=1 conv=notrunc status=none; then true; fi
    done 2> /dev/null
    sync -f /mnt/$n
    umount /mnt/$n
    mount -t f2fs -o ro ${IMAGES[$n]} /mnt/$n
done
manifest /mnt/%d $OUT/%d-second.json $count
umount /mnt/*
"""
MOVED = {  # and whether all files were put in order
    "fragmented": False, "sections": True, "compress-lz4": True, "full": False, "features": True,
}  # fmt: skip


def moved(path: Path, ordered: bool) -> None:
    with WritableVolume(open_device(path, write=True)) as volume:
        files = chosen_files(volume)
        run = Defrag(volume)
        outcome = run.ordered(sorted(files, key=lambda file: file.path)) if ordered else run.contiguous(files)
    assert outcome.data_blocks + outcome.node_blocks


def range_moved(path: Path) -> None:
    with WritableVolume(open_device(path, write=True)) as volume:
        geo = volume.geo
        move_range(volume, Range(geo.main_blkaddr, 512 * 12, geo.end_blkaddr, left=True), force=True)


def tuned(request: TuneRequest) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with open_device(path, write=True) as device:
            apply(device, plan(Volume(device), request))

    return change


TUNED = {
    "extra": (
        "--size 64M",
        TuneRequest(on=("extra_attr", "inode_checksum", "inode_crtime", "compression", "sb_checksum")),
    ),
    "names": ("--size 64M", TuneRequest(on=("casefold", "encrypt", "verity", "lost_found", "quota"), label="switched")),
    "uuid": (f"--size 64M -O {FULL}", TuneRequest(uuid=bytes(range(16)), on=("compression", "lost_found"))),
    "xattrs": (
        "--size 64M -O extra_attr,inode_crtime",
        TuneRequest(on=("flexible_inline_xattr", "project_quota", "quota")),
    ),
    "off": (
        f"--size 64M -O {FULL}",
        TuneRequest(off=("flexible_inline_xattr", "quota", "inode_checksum", "sb_checksum")),
    ),
}


def test_the_kernel_reads_and_writes_what_was_moved_and_switched(guest: Guest, tmp_path: Path) -> None:
    disks: list[Path] = []
    for name, ordered in some(MOVED.items(), 3):
        disks.append(images.reference(name).copy(tmp_path / name).path)
        moved(disks[-1], ordered)
    disks.append(images.reference("fragmented").copy(tmp_path / "range").path)
    range_moved(disks[-1])
    for name, (options, request) in some(TUNED.items(), 3):
        disks.append(fresh(tmp_path, options, name))
        twin = Twin(writable(disks[-1]))
        work = Workload(twin, 0)
        work.links()
        work.file(work.top, b"long", b"0123456789abcdef" * 40000)
        twin.volume.close()
        tuned(request)(disks[-1])
    trees = [tree_of(disk) for disk in disks]
    result = guest.run(SCRIPT, disks, timeout=600).must_succeed()
    assert_quiet(result)
    for number, (disk, tree) in enumerate(zip(disks, trees, strict=True)):
        assert_as_the_kernel(tree, result.json(f"{number}-first.json"), f"{disk} before the kernel wrote")
        judge(disk, context=f"{disk} after the kernel")
        assert_as_the_kernel(tree_of(disk), result.json(f"{number}-second.json"), f"{disk} after the kernel wrote")
