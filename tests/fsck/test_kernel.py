"""What the real kernel leaves behind, fresh: unmounted, after a power cut, and after its own recovery."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, NodeFooter
from f2tools.f2fs.volume.recovery import ChainNode, find_fsync_chain
from f2tools.fsck.findings import Finding, Severity
from tests import judges
from tests.f2fs.write.volumes import reading
from tests.fsck import fuzz
from tests.fsck.craft import Patient, bad, examine, said
from tests.fsck.disk import joined
from tests.fsck.test_fsynced import hit
from tests.fsck.test_one_field import CONTENT
from tests.fsck.test_repair import REPAIRED, TABLE, repair, worst
from tests.images import reference
from tests.kernel.guest import Guest
from tests.kernel.log import complaints

FORMATS = (
    ["-q"],
    ["-q", "-O", "extra_attr,inode_checksum,sb_checksum,inode_crtime,flexible_inline_xattr,compression,verity"],
    ["-q", "-O", "extra_attr,project_quota,quota,encrypt,lost_found"],
    ["-q", "-C", "utf8", "-O", "casefold,extra_attr,compression"],
)

WORK = """
set -e
modprobe f2fs
for disk in "${IMAGES[@]}"; do
    mount -t f2fs $disk /mnt
    mktree small /mnt 5 bigdir /mnt 6 links /mnt 7 names /mnt 8 xattrs /mnt 9 churn /mnt 10
    sync -f /mnt
    mv /mnt/small /mnt/links/moved; mv /mnt/bigdir /mnt/other; ln /mnt/churn/* /mnt/names/
    for n in $(seq 60); do echo "line $n" > /mnt/f$n; mv /mnt/f$n /mnt/g$((n % 9)); done
    rm -rf /mnt/xattrs/*; truncate -s 5M /mnt/g1; fallocate -p -o 4096 -l 8192 /mnt/g2 || true
    if test "$CUT" = ""; then umount /mnt; continue; fi
    exec 7<> /mnt/g3; rm /mnt/g3; echo held >&7
    mkdir /mnt/gone /mnt/larger; touch /mnt/larger/name{1..300}; rm /mnt/larger/*
    exec 8< /mnt/gone 9< /mnt/larger; rmdir /mnt/gone /mnt/larger
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


def _formatted(directory: Path, formats: tuple[list[str], ...]) -> list[Path]:
    disks = [directory / f"{number}.img" for number in range(len(formats))]
    for disk, options in zip(disks, formats, strict=True):
        judges.mkfs(disk, *options, size=192 << 20)
    return disks


def _orphaned_lost_found(finding: Finding) -> bool:
    """mkfs.f2fs of 2026 lets the `..` of lost+found lead to lost+found itself, where fsck.f2fs asserts too."""
    return finding.code == "D010" and finding.path == "/lost+found/.." and finding.found == finding.ino


def test_what_the_kernel_writes_is_sound(guest: Guest, tmp_path: Path) -> None:
    disks = _formatted(tmp_path, FORMATS)
    made_so = [bad(examine(disk)) for disk in disks]
    assert all(map(_orphaned_lost_found, chain.from_iterable(made_so))), made_so
    guest.run(WORK, disks, timeout=900, env={"CUT": ""}).must_succeed()
    for disk, made in zip(disks, made_so, strict=True):
        report = examine(disk, content=True)
        assert report.inodes > 100
        left = [finding for finding in bad(report) if not (made and _orphaned_lost_found(finding))]
        assert not left, f"{disk.name}\n{said(report)}"


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


MOUNT = """
set -e
count=${#IMAGES[@]}
for n in $(seq 0 $((count - 1))); do mkdir /mnt/$n; mount -t f2fs -o background_gc=off ${IMAGES[$n]} /mnt/$n; done
manifest /mnt/%d $OUT/manifest-%d.json $count
for n in $(seq 0 $((count - 1))); do
    cd /mnt/$n
    echo written > after-repair; sync after-repair; mkdir new; mv after-repair new/
    cd /
    umount /mnt/$n
done
"""
COMPARED = ("type", "mode", "uid", "gid", "size", "nlink", "sha256", "segment_sha256", "target", "xattrs", "rdev")
SKIPPED = {"inode_of_a_directory_zeroed"}  # its mode is lost


def test_the_kernel_mounts_reads_and_writes_what_was_repaired(guest: Guest, tmp_path: Path) -> None:
    rows = [change for change in TABLE if change.__name__ not in SKIPPED][:: 1 if ALL else 2]
    disks: list[Path] = []
    for change in rows:
        p = Patient("base", tmp_path / change.__name__)
        change(p)
        p.close()
        assert repair(p.path).complete
        disks.append(p.path)
    result = guest.run(MOUNT, disks, timeout=900).must_succeed()
    good = reference("base").manifest()["entries"]
    for number, (change, disk) in enumerate(zip(rows, disks, strict=True)):
        found = result.json(f"manifest-{number}.json")
        assert not found.get("errors"), change.__name__
        assert found["entries"].keys() == good.keys(), change.__name__
        for path, entry in good.items():
            if path == ".":
                continue
            shown = {key: found["entries"][path].get(key) for key in COMPARED}
            assert shown == {key: entry.get(key) for key in COMPARED}, f"{change.__name__}: {path}"
        report = examine(disk)
        assert not bad(report), f"{change.__name__}\n{said(report)}"


def _next_lost(image: Path) -> None:
    """Let a node in the midst of what was fsync'ed lead astray."""
    chain = _chain(image)
    place = (chain[len(chain) // 2].blkaddr + 1) * 4096 - NodeFooter.size + NodeFooter.offset_of("next_blkaddr")
    _write(image, place, b"\x77" * 4)


def _addresses_lost(image: Path) -> None:
    """Let the last of the nodes that were fsync'ed have addresses that can't be."""
    _write(image, _chain(image)[-1].blkaddr * 4096 + INODE_ADDR_OFFSET + 8, b"\xff\xff\0\0" * 6)


def _mark_wrong(image: Path) -> None:
    """Let the last of them have a wrong field, and the segment table one, too."""
    hit(image, field="i_advise", wrong=b"\xff")


def _chain(image: Path) -> Sequence[ChainNode]:
    with reading(image) as volume:
        return find_fsync_chain(volume).chain


def _write(image: Path, offset: int, data: bytes) -> None:
    with image.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_the_kernel_has_the_files_that_were_fsynced_and_repaired(guest: Guest, tmp_path: Path) -> None:
    """As it brings them back itself where nothing is damaged."""
    disks: list[tuple[Path, int]] = []  # and the inode that was hit, 0 for none
    for name in ("crash-several", "crash-xattr"):
        for change in (None, _next_lost, _addresses_lost, _mark_wrong):
            image = reference(name).copy(tmp_path / f"{name}-{len(disks)}").path
            victim = 0
            if change is not None:
                victim = 0 if change is _next_lost else _chain(image)[-1].ino
                change(image)
                assert repair(image).complete, change.__name__
            disks.append((image, victim))
    result = guest.run(MOUNT, [image for image, _ in disks], timeout=900).must_succeed()
    wanted: dict[str, dict[str, object]] = {}
    inos: dict[str, int] = {}
    for number, (image, victim) in enumerate(disks):
        found = result.json(f"manifest-{number}.json")
        assert not found.get("errors"), image
        entries = {path: {key: entry.get(key) for key in COMPARED} for path, entry in found["entries"].items()}
        if number % 4 == 0:
            wanted, inos = entries, {path: entry["ino"] for path, entry in found["entries"].items()}
            continue
        others = {path: entry for path, entry in wanted.items() if inos[path] != victim}
        assert {path: entries.get(path) for path in others} == others, image
        assert entries.keys() <= wanted.keys(), image


ACCEPTED = """
modprobe f2fs
for n in $(seq $COUNT); do
    {
        mount -t f2fs /dev/vda$n /mnt &&
        { find /mnt -xdev -type f -size -4096k -exec cat {} + 2>&1 > /dev/null | { ! grep -v "Required key not"; }; } &&
        mkdir /mnt/after-repair && echo written > /mnt/after-repair/x && sync /mnt/after-repair/x &&
        mv /mnt/after-repair/x /mnt/after-repair/y && rm -r /mnt/after-repair && umount /mnt && echo "accepted $n"
    } 2>&1 || { echo "refused $n"; umount /mnt 2> /dev/null; }
done
"""
AS_REPAIRED = ("Disable nat_bits", "Enable checkpoint", "Clear s_stop_reason")  # said of what a repair leaves
FUZZED = ("base", "features", "compress-lz4")
UNKNOWN_TO_KERNEL = {"device-alias"}  # Linux 6.1 mounts no such volume
PARTITIONS = 120
ALL = bool(int(os.environ.get("F2_FSCK_EVERY", "0")))  # make nightly: every code, and more damage at random
ROUNDS = 100 if ALL else 3
EVERY = 1 if ALL else 8


def test_the_kernel_accepts_what_was_repaired(guest: Guest, tmp_path: Path) -> None:
    images: list[tuple[str, Path]] = []
    cases = [case for case in REPAIRED if worst(case[2]) and case[1] not in UNKNOWN_TO_KERNEL]
    for name, image, code, change, _ in cases[::EVERY]:
        p = Patient(image, tmp_path / name)
        change(p)
        p.close()
        assert repair(p.path, content=code in CONTENT).complete, name
        images.append((f"{code} {name}", p.path))
    for number in range(ROUNDS):
        for name in FUZZED:
            kept = tmp_path / f"{name}-{number}.img"
            verdict = fuzz.judged(name, number, tmp_path, peer=False, keep=kept)
            assert not verdict.wrong, f"{name} {number}: {verdict.wrong}"
            if kept.exists():
                images.append((f"{name} {number}", kept))
    for first in range(0, len(images), PARTITIONS):
        some = images[first : first + PARTITIONS]
        disk = tmp_path / "all.img"
        joined([path for _, path in some], disk)
        result = guest.run(ACCEPTED, [disk], timeout=1800, env={"COUNT": str(len(some))}).must_succeed()
        told = complaints(result.dmesg.splitlines(), *AS_REPAIRED)
        wrong = {name: [line for line in told if f"(vda{n}):" in line] for n, (name, _) in enumerate(some, 1)}
        accepted = {int(n) for n in re.findall(r"^accepted (\d+)$", result.stdout, re.MULTILINE)}
        refused = [name for n, (name, _) in enumerate(some, 1) if n not in accepted or wrong[name]]
        assert not refused, f"{ {name: wrong[name] for name in refused} }\n{result.stdout[-2000:]}"
