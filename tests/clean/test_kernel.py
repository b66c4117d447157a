"""The real kernel mounts what was cleaned, shows the same tree and writes on; all volumes in one boot."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from f2tools.clean.clean import clean as clean_volume
from f2tools.device import open_device
from f2tools.dump.manifest import manifest
from f2tools.f2fs.layout.constants import NR_CURSEG_TYPE
from f2tools.f2fs.volume.volume import open_volume
from f2tools.f2fs.write.gc import Pinned
from f2tools.f2fs.write.volume import WritableVolume
from tests import images, judges
from tests.clean.aged import overwritten, scattered, sound, tree, without_free_sections
from tests.f2fs.write.test_kernel import assert_as_the_kernel
from tests.kernel.guest import Guest
from tests.kernel.log import assert_quiet

FULL = "-O extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,project_quota,quota,sb_checksum"
ZONE_BLOCKS, CONVENTIONAL_ZONES = 1024, 12  # of the zoned reference image

# A zoned device takes its sequential zones from the start up to where something was written, and no further.
SCRIPT = """
set -e
heads=($HEADS); count=${#heads[@]}
modprobe configfs; mount -t configfs c /sys/kernel/config || true
modprobe null_blk nr_devices=0
made=/sys/kernel/config/nullb/nullb0; mkdir $made
for setting in size=256 blocksize=4096 memory_backed=1 zoned=1 zone_size=4 zone_nr_conv=12 power=1; do
    echo ${setting#*=} > $made/${setting%=*}
done
zoned=${heads[$((count - 1))]}
dd if=$zoned of=/dev/nullb0 bs=4M count=12 oflag=direct status=none
for pair in $ZONES; do
    zone=${pair%=*}; blocks=${pair#*=}
    dd if=$zoned of=/dev/nullb0 bs=4k skip=$((zone * 1024)) seek=$((zone * 1024)) count=$blocks oflag=direct status=none
done
heads[$((count - 1))]=/dev/nullb0
for n in $(seq 0 $((count - 1))); do
    gc=off
    [ $n != $((count - 1)) ] || gc=on  # Linux 6.12 mounts no zoned device without it
    mkdir /mnt/$n; mount -t f2fs -o background_gc=$gc ${heads[$n]} /mnt/$n
done
manifest /mnt/%d $OUT/%d-first.json $count
for n in $(seq 0 $((count - 1))); do
    mkdir /mnt/$n/by-kernel
    for f in 1 2 3; do dd if=/dev/urandom of=/mnt/$n/by-kernel/$f bs=100k count=2 status=none; done
    rm /mnt/$n/by-kernel/2
    dd if=/dev/urandom of=/mnt/$n/by-kernel/1 bs=4k seek=5 count=3 conv=notrunc,fsync status=none
    umount /mnt/$n
    mount -t f2fs -o ro ${heads[$n]} /mnt/$n
done
manifest /mnt/%d $OUT/%d-second.json $count
umount /mnt/*
fsck.f2fs --dry-run /dev/nullb0
"""


@dataclass
class Cleaned:
    """A volume that was cleaned."""

    label: str
    paths: list[Path]
    policy: str

    def clean(self) -> None:
        """Clean it, and hold the tree against what it was."""
        before = tree(self.paths[0], self.paths[1:])
        device = open_device(self.paths[0], write=True, extra=self.paths[1:])
        with WritableVolume(device) as volume:
            if not clean_volume(volume, self.policy, discard=True).sections:  # nothing can be won: move all the same
                for kind in range(NR_CURSEG_TYPE):
                    volume.segments.move_log(kind)
                for section in volume.cleaner.candidates()[0].tolist():
                    with suppress(Pinned):
                        volume.cleaner.clean(section)
                volume.checkpoint()
            done = volume.cleaner.done
        assert done.data_blocks, f"{self.label}: nothing was moved"
        assert tree(self.paths[0], self.paths[1:]) == before, self.label
        sound(self.paths[0], self.paths[1:])

    def manifest(self) -> dict[str, Any]:
        with open_volume(self.paths[0], self.paths[1:]) as volume:
            return json.loads(json.dumps(manifest(volume)))


def volumes(directory: Path) -> list[Cleaned]:
    """Made by the engine, and by the kernel; the zoned one last."""

    def reference(name: str) -> list[Path]:
        return list(images.reference(name).copy(directory / f"kernel-{name}").devices)

    made: list[tuple[str, Callable[[], list[Path]], str]] = [
        ("plain", lambda: [scattered(directory, "--size 64M", name="plain")], "greedy"),
        ("sections", lambda: [scattered(directory, "--size 256M -s 2 -z 2", name="sections")], "cost-benefit"),
        ("features", lambda: [scattered(directory, f"--size 64M {FULL}", name="full")], "cost-benefit"),
        ("no free section", lambda: [without_free_sections(directory, 0)], "greedy"),
        ("95 % full", lambda: [overwritten(directory, 95, True, size="64M")], "greedy"),
        ("fragmented by the kernel", lambda: reference("fragmented"), "greedy"),
        ("sections of the kernel", lambda: reference("sections"), "cost-benefit"),
        ("compressed by the kernel", lambda: reference("compress-lz4"), "greedy"),
        ("several devices", lambda: reference("multi-device"), "greedy"),
        ("zoned", lambda: reference("zoned"), "greedy"),
    ]
    return [Cleaned(label, make(), policy) for label, make, policy in made]


def zones_of(path: Path) -> str:
    """The sequential zones that hold something, and how many blocks from their start were written."""
    with open_volume(path) as volume:
        geo, sit = volume.geo, volume.sit
        bits = np.unpackbits(sit.valid_map(), axis=1)[:, : geo.blocks_per_seg].reshape(-1)
        first = -(-geo.main_blkaddr // ZONE_BLOCKS) * ZONE_BLOCKS - geo.main_blkaddr
        written: dict[int, int] = {}
        for place in np.flatnonzero(bits).tolist():
            zone, inside = divmod(geo.main_blkaddr + place, ZONE_BLOCKS)
            written[zone] = max(written.get(zone, 0), inside + 1)
        for curseg in volume.summaries.cursegs:
            zone, inside = divmod(geo.start_block(curseg.segno) + curseg.next_blkoff, ZONE_BLOCKS)
            if inside:
                written[zone] = inside
        assert first >= 0
    return " ".join(f"{zone}={count}" for zone, count in sorted(written.items()) if zone >= CONVENTIONAL_ZONES)


def disk(number: int) -> str:
    return f"/dev/vd{chr(ord('a') + number)}"


def test_the_kernel_mounts_what_was_cleaned_and_writes_on(guest: Guest, tmp_path: Path) -> None:
    cleaned = volumes(tmp_path)
    for one in cleaned:
        one.clean()
    disks = [path for one in cleaned for path in one.paths]
    for one in cleaned:
        if len(one.paths) > 1:
            judges.set_device_paths(one.paths[0], [Path(disk(disks.index(path))) for path in one.paths])
    before = [one.manifest() for one in cleaned]
    env = {
        "HEADS": " ".join(disk(disks.index(one.paths[0])) for one in cleaned),
        "ZONES": zones_of(cleaned[-1].paths[0]),
    }
    result = guest.run(SCRIPT, disks, env=env, timeout=900).must_succeed()
    assert_quiet(result)
    for number, one in enumerate(cleaned):
        assert_as_the_kernel(before[number], result.json(f"{number}-first.json"), f"{one.label}, as cleaned")
        if one.label != "zoned":  # what the kernel wrote to the zoned device has gone with the guest
            assert_as_the_kernel(
                one.manifest(), result.json(f"{number}-second.json"), f"{one.label}, as the kernel left it"
            )
            sound(one.paths[0], one.paths[1:])
    assert "other corrupted bugs                           [Ok..]" in result.stdout
    assert "[Fail]" not in result.stdout
    shutil.rmtree(tmp_path)
