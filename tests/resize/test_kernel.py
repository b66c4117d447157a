"""Resized volumes in the real kernel: it mounts them, shows the same tree, writes on; then both checkers look again.

All in one boot: volumes that the kernel aged and ours, made a little larger, much larger, smaller, as small as can be;
volumes on several devices and on a zoned one; and the states in which a power cut leaves a volume on its way.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from f2tools.device import open_device
from f2tools.f2fs.volume.volume import open_volume
from f2tools.resize import resize as tool
from f2tools.resize.plan import MoveAreas
from f2tools.resize.resize import resize
from tests import images
from tests.f2fs.write.test_kernel import assert_as_the_kernel, tree_of
from tests.f2fs.write.volumes import FULL, fresh
from tests.kernel.guest import MAX_IMAGES, Guest
from tests.kernel.log import assert_quiet
from tests.resize.looking import MIB, fill, named, run, sound

SCRIPT = """
set -e
count=$COUNT
for n in $(seq 0 $((count - 1))); do mkdir /mnt/$n; mount -t f2fs -o ro ${IMAGES[$n]} /mnt/$n; done
manifest /mnt/%d $OUT/%d-first.json $count
for n in $(seq 0 $((count - 1))); do
    umount /mnt/$n; mount -t f2fs ${IMAGES[$n]} /mnt/$n
    mkdir /mnt/$n/by-kernel
    for f in 1 2 3 4 5 6; do dd if=/dev/urandom of=/mnt/$n/by-kernel/$f bs=30k count=1 status=none; done
    rm /mnt/$n/by-kernel/3; sync -f /mnt/$n
    echo more > /mnt/$n/by-kernel/more
    umount /mnt/$n
done

# two disks, of which the kernel knows the second by the name that it has here
mkdir /mnt/many; mount -t f2fs /dev/vda /mnt/many; manifest /mnt/many $OUT/many.json
dd if=/dev/urandom of=/mnt/many/by-kernel bs=1M count=20 status=none
umount /mnt/many

# a null_blk device with the zones that the volume was made for, written in order as far as they are used
modprobe configfs; mount -t configfs c /sys/kernel/config || true
modprobe null_blk nr_devices=0
made=/sys/kernel/config/nullb/nullb0; mkdir $made
for setting in size=$ZONED_MIB blocksize=4096 memory_backed=1 zoned=1 zone_size=4 zone_nr_conv=12 power=1; do
    echo ${setting#*=} > $made/${setting%=*}
done
while read start blocks; do
    dd if=${IMAGES[-1]} of=/dev/nullb0 bs=4k skip=$start seek=$start count=$blocks oflag=direct status=none
done < /share/zones
mkdir /mnt/zoned; mount -t f2fs -o ro /dev/nullb0 /mnt/zoned; manifest /mnt/zoned $OUT/zoned.json
umount /mnt/zoned; mount -t f2fs /dev/nullb0 /mnt/zoned
dd if=/dev/urandom of=/mnt/zoned/by-kernel bs=64k count=20 status=none
umount /mnt/zoned
fsck.f2fs --dry-run /dev/nullb0
"""


EXPECTED = (
    "Magic Mismatch", "Can't find valid F2FS filesystem in 1th superblock", "Try to recover",  # with_one_superblock
    "Disable nat_bits due to incorrect cp_ver",  # its own doing: a read-only mount with quota writes a checkpoint
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A reference image by name, or a volume made with mkfs options; the sizes it goes through."""

    source: str
    sizes: tuple[str, ...]
    interrupt: Callable[[Path], None] | None = field(default=None)  # in the place of the last size


def between_superblock_and_checkpoint(path: Path) -> None:
    with open_device(path, write=True) as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tool._Run, "finish", lambda *_: None)
        resize(device, 900 * MIB)


def with_the_areas_on_their_way(path: Path) -> None:
    """The metadata areas lie where they are only passing through."""

    class Enough(Exception):
        pass

    done = tool._Run._move_areas

    def once(self: tool._Run, step: MoveAreas) -> None:
        done(self, step)
        raise Enough

    with open_device(path, write=True) as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tool._Run, "_move_areas", once)
        with pytest.raises(Enough):
            resize(device, 3000 * MIB)
    with open_volume(path) as volume:
        assert volume.geo.segment0_blkaddr > 512


def with_one_superblock(path: Path) -> None:
    run(path, "3G", "--no-check")
    with open(path, "r+b") as file:
        file.seek(1024)
        file.write(bytes(512))


def cut_off_while_shrinking(path: Path) -> None:
    """The superblock says that the volume is smaller, the checkpoint does not know yet."""
    with open_device(path, write=True) as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tool._Run, "finish", lambda *_: None)
        resize(device, 56 * MIB)


COUNT = int(os.environ.get("F2_RESIZE_KERNEL", "6"))  # of these, the most telling first
CASES = (
    Case(f"--size 64M -O {FULL}", (), with_the_areas_on_their_way),
    Case("base", ("1500M",)),
    Case("--size 64M", (), with_one_superblock),
    Case("full", ("minimum",)),
    Case("--size 256M -i", ("5G",)),
    Case("casefold", ("1500M", "100M")),
    Case("--size 512M -s 2 -z 2", ("5G", "300M")),
    Case("features", ("3G",)),
    Case("compress-lz4", ("2G", "minimum")),
    Case(f"--size 64M -O {FULL}", (), between_superblock_and_checkpoint),
    Case("--size 64M", (), cut_off_while_shrinking),
    Case("base", ("69M",)),
    Case("base", ("minimum",)),
    Case("fragmented", ("3G", "minimum")),
    Case("full", ("2G",)),
    Case("checksums", ("100M",)),
    Case("compress-zstd", ("1500M",)),
    Case("sections", ("1500M", "minimum")),
    Case("active-logs-2", ("3G",)),
    Case("checkpoint-disabled", ("200M",)),
    Case("--size 48M", ("200G",)),
)[:COUNT]


def make(case: Case, path: Path) -> Path:
    """The image of a case, resized."""
    if case.source.startswith("--"):
        fresh(path.parent, case.source, path.name)
        fill(path, files=30)
    else:
        images.copy_sparse(images.reference(case.source).path, path)
        path.chmod(0o644)
    for size in case.sizes:
        run(path, size, "--no-check")
    if case.interrupt is not None:
        case.interrupt(path)
    return path


def zones_in_use(path: Path) -> str:
    """(first block, blocks) of each zone of 4 MiB as far as it was written, metadata as a whole."""
    lines: list[str] = []
    with open_volume(path) as volume:
        geo = volume.geo
        lines.append(f"0 {geo.main_blkaddr}")
        per = geo.segs_per_zone * geo.blocks_per_seg
        ends = np.zeros(geo.segment_count_main // geo.segs_per_zone, np.int64)
        maps = np.unpackbits(volume.sit.valid_map()).reshape(len(ends), per)
        for zone in np.flatnonzero(maps.any(axis=1)).tolist():
            ends[zone] = int(np.flatnonzero(maps[zone])[-1]) + 1
        for log in volume.summaries.cursegs:
            zone, segment = divmod(log.segno, geo.segs_per_zone)
            ends[zone] = segment * geo.blocks_per_seg + log.next_blkoff
        lines += [f"{geo.main_blkaddr + zone * per} {count}" for zone, count in enumerate(ends.tolist()) if count]
    return "\n".join(lines) + "\n"


def unwritten(entries: dict[str, Any]) -> dict[str, Any]:
    """What the kernel was not told to change; it may have moved it."""
    return {
        path: {key: value for key, value in entry.items() if key != "extents"}
        for path, entry in entries.items()
        if path != "." and not path.startswith("by-kernel")
    }


def test_the_kernel_mounts_what_was_resized_and_writes_on(guest: Guest, tmp_path: Path) -> None:
    several = images.reference("multi-device").copy(tmp_path / "several")
    run(several.path, "3G", *named(several.extra))
    zoned = images.reference("zoned").copy(tmp_path / "zoned").path
    run(zoned, "200M")
    disks = [make(case, tmp_path / f"{number}.img") for number, case in enumerate(CASES)]
    everything = [several.path, *several.extra, *disks, zoned]
    assert len(everything) <= MAX_IMAGES
    before = [tree_of(disk) for disk in disks]
    script = f'ALL=("${{IMAGES[@]}}"); IMAGES=("${{ALL[@]:2}}")\n{SCRIPT}'
    files = {"zones": zones_in_use(zoned)}
    env = {"COUNT": str(len(CASES)), "ZONED_MIB": "200"}
    result = guest.run(script, everything, timeout=900, env=env, files=files).must_succeed()
    assert_quiet(result, *EXPECTED)
    for number, (case, disk) in enumerate(zip(CASES, disks, strict=True)):
        assert_as_the_kernel(before[number], result.json(f"{number}-first.json"), f"{case}, as resized")
        sound(disk)
        after = tree_of(disk)["entries"]
        assert sum(path.startswith("by-kernel/") for path in after) == 6, case
        assert unwritten(after) == unwritten(before[number]["entries"]), f"{case}, as the kernel left it"
    for kept, found in (("multi-device", "many.json"), ("zoned", "zoned.json")):
        shown, known = result.json(found)["entries"], images.reference(kept).manifest("manifest")["entries"]
        assert {path: entry.get("sha256") for path, entry in shown.items()} == {
            path: entry.get("sha256") for path, entry in known.items()
        }
    sound(several.path, several.extra)
    assert "other corrupted bugs                           [Ok..]" in result.stdout
    assert "[Fail]" not in result.stdout
    for path in everything:
        path.unlink()
