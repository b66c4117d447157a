"""What the real kernel leaves behind, fresh: unmounted, after a power cut, and after its own recovery."""

from __future__ import annotations

import shutil
from pathlib import Path

from f2tools.fsck.findings import Severity
from tests import judges
from tests.fsck.craft import bad, examine, said
from tests.kernel.guest import Guest

FORMATS = (
    ["-q"],
    ["-q", "-O", "extra_attr,inode_checksum,sb_checksum,inode_crtime,flexible_inline_xattr,compression,verity"],
    ["-q", "-O", "extra_attr,project_quota,quota,encrypt,lost_found"],
    ["-q", "-C", "utf8", "-O", "casefold,extra_attr,compression"],
    ["-q", "-s", "2"],
)
WORK = """
set -e
modprobe f2fs
for disk in "${IMAGES[@]}"; do
    mount -t f2fs $disk /mnt
    mktree small /mnt 5; mktree bigdir /mnt 6; mktree links /mnt 7; mktree names /mnt 8
    mktree xattrs /mnt 9; mktree churn /mnt 10
    sync -f /mnt
    mv /mnt/small /mnt/links/moved; mv /mnt/bigdir /mnt/other; ln /mnt/churn/* /mnt/names/
    for n in $(seq 60); do echo "line $n" > /mnt/f$n; mv /mnt/f$n /mnt/g$((n % 9)); done
    rm -rf /mnt/xattrs/*; truncate -s 5M /mnt/g1; fallocate -p -o 4096 -l 8192 /mnt/g2 || true
    if test "$CUT" = ""; then umount /mnt; continue; fi
    exec 7<> /mnt/g3; rm /mnt/g3; echo held >&7
    sync -f /mnt
    for n in $(seq 20); do echo "synced $n" > /mnt/s$n; sync /mnt/s$n; done
done
if test "$CUT" = ""; then exit 0; fi
crash
"""
RECOVER = """
set -e
for disk in "${IMAGES[@]}"; do mount -t f2fs $disk /mnt; ls -lR /mnt > /dev/null; umount /mnt; done
"""


def _formatted(folder: Path, formats: tuple[list[str], ...]) -> list[Path]:
    disks = [folder / f"{number}.img" for number in range(len(formats))]
    for disk, options in zip(disks, formats, strict=True):
        judges.mkfs(disk, *options, size=192 << 20)
    return disks


def test_what_the_kernel_writes_is_sound(guest: Guest, tmp_path: Path) -> None:
    disks = _formatted(tmp_path, FORMATS)
    guest.run(WORK, disks, timeout=900, env={"CUT": ""}).must_succeed()
    for disk in disks:
        report = examine(disk, content=True)
        assert report.inodes > 100
        assert not bad(report), f"{disk.name}\n{said(report)}"


def test_after_a_power_cut_and_after_recovery_nothing_is_damage(guest: Guest, tmp_path: Path) -> None:
    disks = _formatted(tmp_path, FORMATS[1:2])
    assert guest.run(WORK, disks, timeout=900, env={"CUT": "yes"}).crashed
    for disk in disks:
        report = examine(disk)
        assert report.inodes > 100
        assert not bad(report, Severity.ERROR), f"{disk.name}\n{said(report)}"
        shutil.copy(disk, disk.with_suffix(".cut"))
    guest.run(RECOVER, disks, timeout=300).must_succeed()
    for disk in disks:
        report = examine(disk, content=True)
        assert not bad(report), f"{disk.name}\n{said(report)}"
