"""The real kernel mounts what we make, writes to it, and fsck.f2fs still finds nothing."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests import judges
from tests.kernel.guest import Guest
from tests.mkfs.tools import f2mkfs
from tests.sweeps import some

ALL = "encrypt,extra_attr,project_quota,inode_checksum,flexible_inline_xattr,quota,inode_crtime,verity,sb_checksum"

# mounted, filled and unmounted in one boot each: features; sizes, sections and zones
# (each second one; all with $F2_SWEEPS)
FEATURES = [
    "--size 64M",
    "--size 128M -O extra_attr,inode_checksum,sb_checksum",
    "--size 128M -O extra_attr,inode_crtime,flexible_inline_xattr",
    "--size 128M -O quota",
    "--size 128M -O quota,lost_found -R 1000:2000",
    "--size 128M -O extra_attr,project_quota",
    "--size 128M -O extra_attr,compression",
    "--size 128M -O lost_found,encrypt,verity",
    "--size 128M -C utf8",
    "--size 128M -C utf8:strict -O sb_checksum",
    "--size 128M -O casefold,extra_attr,compression",
    f"--size 256M -O {ALL}",
    f"--size 1G -O {ALL},lost_found,compression,casefold",
    "--size 128M -g android",
    "--size 256M -g android -C utf8 -i",
    "--size 128M -i -l LABEL",
    "--size 128M -t 0 -e abc -E def",
    "--size 128M -o 30",
    "--size 46M",
]
SHAPES = [
    "--size 512M -s 3 -z 2 -i -O extra_attr,quota -l label -C utf8",
    "--size 512M -s 2",
    "--size 1G -s 4 -z 2",
    "--size 2G -z 5",
    "--size 2G --erase-block 4M",
    "--size 4G --erase-block 6M --partition-start 1M",
    "--size 8G -s 16",
    "--size 64G",
    "--size 64G -s 4 -O quota,extra_attr,inode_checksum",
    "--size 256G -i",
    "--size 1T",
    "--size 1T -i -s 32",
    "--size 1T -O extra_attr,inode_checksum,quota -z 8",
]

FILL = """
set -e
for disk in "${IMAGES[@]}"; do
    echo "$disk"
    mount -t f2fs $disk /mnt
    mkdir -p /mnt/a/b/c
    for n in $(seq 40); do echo "content $n" > /mnt/a/file$n; done
    pieces=$(($(cat /sys/block/${disk#/dev/}/size) < 100000 ? 8 : 80))  # the smallest volume has 2 MiB for files
    dd if=/dev/urandom of=/mnt/a/b/large bs=64k count=$pieces status=none
    ln /mnt/a/file1 /mnt/a/b/hard; ln -s ../file2 /mnt/a/b/soft; mv /mnt/a/file3 /mnt/a/b/c/moved; rm /mnt/a/file4
    sync -f /mnt
    echo again >> /mnt/a/file5
    sum=$(sha256sum < /mnt/a/b/large)
    umount /mnt
    mount -t f2fs $disk /mnt
    test "$(cat /mnt/a/b/c/moved)" = "content 3"
    test "$(tail -n 1 /mnt/a/file5)" = again
    test "$sum" = "$(sha256sum < /mnt/a/b/large)"
    test ! -e /mnt/a/file4
    umount /mnt
done
"""


@pytest.mark.parametrize("cases", [some(FEATURES, 10), some(SHAPES, 7)], ids=["features", "shapes"])
def test_it_mounts_writes_and_leaves_nothing_for_fsck(cases: list[str], guest: Guest, tmp_path: Path) -> None:
    disks = [tmp_path / f"{number}.img" for number in range(len(cases))]
    for disk, options in zip(disks, cases, strict=True):
        f2mkfs("-q", disk, *shlex.split(options))
    result = guest.run(FILL, disks, timeout=900).must_succeed()
    assert "F2FS-fs" not in "\n".join(line for line in result.dmesg.splitlines() if "rror" in line), result.dmesg
    for disk, options in zip(disks, cases, strict=True):
        run = judges.fsck_clean(disk)
        assert "unmount" in run.output, options
        disk.unlink()


def test_devices_and_read_only_volumes(guest: Guest, tmp_path: Path) -> None:
    """Volumes on two and on three devices, one with quotas and checksums; a volume with the feature ro."""
    disks = [tmp_path / f"{number}.img" for number in range(6)]
    two = ("--device-path", "/dev/vda", "--device-path", "/dev/vdb")
    three = ("--device-path", "/dev/vdc", "--device-path", "/dev/vdd", "--device-path", "/dev/vde")
    f2mkfs("-q", disks[0], "--size", "64M", "--size", "256M", "-c", disks[1], *two)
    options = ("-O", "extra_attr,inode_checksum,sb_checksum,quota", "-s", 2)
    sizes = ("--size", "128M", "--size", "64G", "--size", "100M")
    f2mkfs("-q", disks[2], *sizes, "-c", disks[3], "-c", disks[4], *three, *options)
    f2mkfs("-q", disks[5], "--size", "128M", "-O", "ro")
    script = f"""
        both=(${{IMAGES[0]}} ${{IMAGES[2]}}); only=${{IMAGES[5]}}
        IMAGES=("${{both[@]}}")
        {FILL}
        mount -t f2fs -o ro $only /mnt
        ls -la /mnt
        umount /mnt
    """
    guest.run(script, disks, timeout=300).must_succeed()
    judges.fsck_clean(disks[0], disks[1])
    judges.fsck_clean(disks[2], disks[3], disks[4])
    judges.fsck_clean(disks[5])


def test_casefolding_and_quotas_work_on_it(guest: Guest, tmp_path: Path) -> None:
    disks = [tmp_path / "casefold", tmp_path / "quota", tmp_path / "compress"]
    f2mkfs("-q", disks[0], "--size", "128M", "-C", "utf8", "-O", "extra_attr,inode_checksum")
    f2mkfs("-q", disks[1], "--size", "128M", "-O", "quota,extra_attr,project_quota,lost_found", "-R", "1000:2000")
    f2mkfs("-q", disks[2], "--size", "128M", "-O", "extra_attr,compression")
    script = """
        set -ex
        mount -t f2fs ${IMAGES[0]} /mnt; mktree casefold /mnt seed; umount /mnt
        mount -t f2fs ${IMAGES[1]} /mnt; mktree links /mnt seed small /mnt seed; umount /mnt
        mount -t f2fs ${IMAGES[2]} /mnt; mktree compress /mnt seed; umount /mnt
    """
    guest.run(script, disks, timeout=300).must_succeed()
    for disk in disks:
        judges.fsck_clean(disk)


ZONED = """
set -e
modprobe configfs; mount -t configfs c /sys/kernel/config || true
modprobe null_blk nr_devices=0
n=0
for disk in "${IMAGES[@]}"; do
    conventional=$(echo $CONVENTIONAL | cut -d' ' -f$((n + 1)))
    made=/sys/kernel/config/nullb/nullb$n; mkdir $made
    for setting in size=256 blocksize=4096 memory_backed=1 zoned=1 zone_size=4 zone_nr_conv=$conventional power=1; do
        echo ${setting#*=} > $made/${setting%=*}
    done
    zoned=/dev/nullb$n
    dd if=$disk of=$zoned bs=4M count=$conventional oflag=direct status=none
    for zone in $(seq $conventional $((conventional + 7))); do  # the logs' first zones: one used block in each, if any
        dd if=$disk of=/tmp/block bs=4k skip=$((zone * 1024)) count=1 status=none
        if ! cmp -s -n 4096 /tmp/block /dev/zero; then
            dd if=/tmp/block of=$zoned bs=4k seek=$((zone * 1024)) oflag=direct status=none
        fi
    done
    echo "fresh $zoned"; fsck.f2fs --dry-run $zoned
    mount -t f2fs $zoned /mnt
    mkdir /mnt/a; for f in $(seq 30); do dd if=/dev/urandom of=/mnt/a/$f bs=64k count=8 status=none; done
    rm /mnt/a/7; sync -f /mnt
    umount /mnt
    mount -t f2fs $zoned /mnt; test $(ls /mnt/a | wc -l) = 29; umount /mnt
    echo "used $zoned"; fsck.f2fs --dry-run $zoned
    n=$((n + 1))
done
"""


def test_a_zoned_image_works_on_a_zoned_device(guest: Guest, tmp_path: Path) -> None:
    """With the logs in conventional zones, and in sequential ones.  On a plain disk the kernel refuses it."""
    conventional = ("12", "6")
    disks = [tmp_path / count for count in conventional]
    for disk, count in zip(disks, conventional, strict=True):
        f2mkfs("-q", disk, "--size", "256M", "-m", "--zone-size", "4M", "--conventional-zones", count)
    result = guest.run(ZONED, disks, env={"CONVENTIONAL": " ".join(conventional)}).must_succeed()
    judged = result.stdout.replace("used /dev", "fresh /dev").split("fresh /dev")[1:]
    assert len(judged) == 2 * len(disks)
    for said in judged:
        body = said.partition("\n")[2]
        assert "other corrupted bugs                           [Ok..]" in body
        assert "[Fail]" not in body, body
