"""Block devices under f2tools: disks, partitions, loop devices; sectors of 512 and 4096 bytes; odd and read-only ones.

/dev/vda is an empty disk of 256 MiB that takes discards, /dev/vdb another one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.device.media.block import BlockDevice
from tests.kernel.onboard.aboard import (
    MIB,
    f2,
    fill,
    fsck_f2fs,
    loop,
    mounted,
    nullb,
    scsi_debug,
    sh,
    tree,
    used_by_the_kernel,
)  # fmt: skip

DISK, OTHER = "/dev/vda", "/dev/vdb"


def bytes_of(device: str) -> int:
    return int(sh(f"blockdev --getsize64 {device}"))


# -- every command on one disk ----------------------------------------------------------------------------------------


def test_a_disk_is_made_used_tended_and_checked() -> None:
    f2("mkfs", "-q", DISK, "-l", "REAL", "-O", "extra_attr,inode_checksum,sb_checksum")
    with mounted(DISK) as where:
        fill(where / "a")
        fill(where / "b", files=30, size=300_000)
        before = tree(where)
        # what would write is refused, what looks is not
        for command in (
            ("mkfs", "-f", DISK), ("clean", DISK), ("defrag", DISK), ("resize", DISK, "100M"),
            ("label", DISK, "NO"), ("tune", DISK, "-L", "NO"), ("recover", DISK, "--apply"), ("mkdir", f"{DISK}:/no"),
        ):  # fmt: skip
            done = f2(*command, code=None)
            assert done.code not in (0, 1), command
            assert "mounted" in done.err, (command, done.err)
        assert "REAL" in f2("label", DISK).out
        assert f"mounted on {where}" in f2("fsck", "-y", DISK).err  # it found nothing to write
        assert "file0" in f2("dump", "ls", DISK, "/a").out
    fsck_f2fs(DISK)
    f2("fsck", DISK)
    f2("clean", DISK, "--discard")
    f2("defrag", DISK)
    f2("resize", DISK, "150M")
    f2("resize", DISK)
    f2("label", DISK, "OTHER")
    f2("mkdir", f"{DISK}:/new")
    f2("cp", "/proc/version", f"{DISK}:/new/", code=None)
    f2("recover", DISK, "--apply")
    f2("fsck", DISK)
    fsck_f2fs(DISK)
    with mounted(DISK, "ro") as where:
        after = tree(where)
        assert {path: after.get(path) for path in before} == before
        assert "new" in after
    used_by_the_kernel(DISK)


def test_what_the_kernel_writes_while_mounted_is_seen_the_next_time() -> None:
    """The pages of a device that was read once are not those that the file system writes."""
    f2("mkfs", "-q", "-f", DISK)
    with mounted(DISK) as where:
        for n in range(3):
            (where / f"number{n}").write_bytes(bytes([n]) * 9000)
            sh("sync")
            names = f2("dump", "ls", DISK, "/").out
            assert all(f"number{one}" in names for one in range(n + 1)), names
            assert f2("dump", "cat", DISK, f"/number{n}").out == chr(n) * 9000


def test_a_volume_grows_into_its_disk_and_shrinks_again() -> None:
    f2("mkfs", "-q", "-f", DISK, 128 * MIB // 512)
    with mounted(DISK) as where:
        fill(where / "a")
        before = tree(where)
    minimum = f2("resize", DISK, "--minimum").out
    assert minimum
    for size in ("max", "minimum", "max"):
        f2("resize", DISK, size)
        fsck_f2fs(DISK)
        with mounted(DISK, "ro") as where:
            assert tree(where) == before
    f2("resize", DISK, "1G", code=None)
    f2("fsck", DISK)
    used_by_the_kernel(DISK)


def test_a_repair_is_taken_back() -> None:
    f2("mkfs", "-q", "-f", DISK)
    with mounted(DISK) as where:
        fill(where / "a")
    with open_device(DISK, write=True) as device:
        good = device.pread(0, 8 * MIB)
        device.pwrite(1024, bytes(512))
        device.flush()
    broken = sh(f"head -c {8 * MIB} {DISK} | md5sum")
    f2("fsck", DISK, code=4)
    undo = Path("/tmp/undo")
    f2("fsck", "-y", "--undo", undo, DISK, code=1)
    with open_device(DISK) as device:
        assert device.pread(1024, 512) == good[1024:1536]
    f2("undo", undo, DISK)
    assert sh(f"head -c {8 * MIB} {DISK} | md5sum") == broken
    f2("fsck", "-y", DISK, code=1)
    used_by_the_kernel(DISK)


def test_from_a_directory_onto_a_disk() -> None:
    directory = Path("/tmp/from")
    fill(directory)
    f2("mkfs", "-q", "-f", DISK, "--from", directory)
    with mounted(DISK, "ro") as where:
        assert tree(where) == tree(directory)
    used_by_the_kernel(DISK)


# -- read-only --------------------------------------------------------------------------------------------------------


def test_a_disk_that_is_set_read_only() -> None:
    f2("mkfs", "-q", "-f", DISK, "-l", "KEPT")
    before = sh(f"md5sum {DISK}")
    sh(f"blockdev --setro {DISK}")
    try:
        for command in (
            ("mkfs", "-f", DISK), ("clean", DISK), ("defrag", DISK), ("resize", DISK, "100M"),
            ("label", DISK, "NO"), ("mkdir", f"{DISK}:/no"),
        ):  # fmt: skip
            done = f2(*command, code=None)
            assert done.code not in (0, 1), command
            assert "read-only" in done.err, (command, done.err)
        f2("fsck", DISK)
        assert "KEPT" in f2("label", DISK).out
        f2("clean", DISK, "--dry-run")
    finally:
        sh(f"blockdev --setrw {DISK}")
    assert sh(f"md5sum {DISK}") == before


# -- partitions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def partitioned() -> Iterator[str]:
    """OTHER with a GPT: a partition of 100 MiB called first, one of odd size called second."""
    table = "label: gpt\nstart=2048, size=204800, name=first\nsize=150001, name=second\n"
    sh(f"sfdisk --wipe always {OTHER} <<'END'\n{table}END")
    sh(f"for n in 1 2 3 4 5 6; do [ -e {OTHER}2 ] && break; sleep 0.2; done")
    yield OTHER
    sh(f"sfdisk --delete {OTHER}; dd if=/dev/zero of={OTHER} bs=1M count=4 status=none; blockdev --rereadpt {OTHER}")


def test_partitions_of_a_disk(partitioned: str) -> None:
    first, second = f"{partitioned}1", f"{partitioned}2"
    f2("mkfs", "-q", first, "-l", "FIRST", "--align", "auto")
    f2("mkfs", "-q", second, "-l", "SECOND")
    for part in (first, second):
        used_by_the_kernel(part, keep=True)
    for name in (first, f"{partitioned}@1", f"{partitioned}@first", f"{partitioned}@+1048576"):
        assert "FIRST" in f2("label", name).out
    assert "SECOND" in f2("label", f"{partitioned}@second").out
    assert "which of its volumes" in f2("dump", "ls", partitioned, code=None).err
    f2("scan", first, "-o", "/tmp/index")
    f2("label", f"{partitioned}@2", "THIRD")
    assert "THIRD" in f2("label", second).out  # through the other door
    with mounted(second):
        for name in (second, f"{partitioned}@2", f"{partitioned}@1", partitioned):
            assert "in use" in f2("label", name, "NO", code=8).err
        f2("label", first, "FOURTH")
        assert f2("mkfs", "-f", partitioned, code=None).code not in (0, 1)
    assert "holds GPT partition table" in f2("mkfs", partitioned, code=None).err
    f2("resize", second, "64M")
    f2("fsck", "-y", f"{partitioned}@second")
    used_by_the_kernel(second)


# -- other kinds of devices -------------------------------------------------------------------------------------------


def exercise(path: str, sector: int) -> None:
    """Reads, writes, zeros and discards at every odd place, held against a model."""
    size = bytes_of(path)
    span = min(size, 16 * MIB)
    with open_device(path, write=True, whole=True) as device:
        assert isinstance(device, BlockDevice)
        assert (device.size_bytes, device.sector_size) == (size, sector)
        model = bytearray(os.urandom(span))
        device.pwrite(0, model)
        for what, offset, length in (
            ("pwrite", 5000, 100), ("pwrite", 0, 1), ("discard", 65536, 65536), ("discard", MIB + 1, 10000),
            ("discard", 2 * MIB + 3, 5), ("discard", 3 * MIB + 512, 3 * 512), ("discard", 4 * MIB, 4 * MIB),
            ("write_zeroes", 9 * MIB - 77, 99999), ("write_zeroes", 10 * MIB, MIB), ("write_zeroes", span - 300, 300),
        ):  # fmt: skip
            data = os.urandom(length) if what == "pwrite" else bytes(length)
            if what == "pwrite":
                device.pwrite(offset, data)
            else:
                getattr(device, what)(offset, length)
            model[offset : offset + length] = data
            assert device.pread(0, span) == model, what
        device.trim(12 * MIB, MIB)
        device.pwrite(size - 100, b"z" * 100)
        device.flush()
        model[12 * MIB : 13 * MIB] = device.pread(12 * MIB, MIB)
        if span == size:
            model[-100:] = b"z" * 100
    sh("echo 3 > /proc/sys/vm/drop_caches")
    with open_device(path, whole=True) as device:
        assert device.pread(0, span) == model
        assert device.pread(size - 100, 100) == b"z" * 100
        device.close()


def test_sectors_of_512_bytes_with_discards() -> None:
    with nullb(128, 512, discard=1) as disk:
        exercise(disk, 512)
        f2("mkfs", "-q", "-f", disk)
        used_by_the_kernel(disk)


def test_sectors_of_4096_bytes() -> None:
    for discard in (0, 1):
        with nullb(128, 4096, discard=discard) as disk:
            exercise(disk, 4096)
            f2("mkfs", "-q", "-f", disk)
            assert "log_sectorsize" in f2("dump", "superblock", disk).out
            used_by_the_kernel(disk)
            f2("resize", disk, "100M")
            f2("clean", disk, "--discard")
            used_by_the_kernel(disk)


def test_a_scsi_disk() -> None:
    with scsi_debug(dev_size_mb=96, sector_size=4096, lbpu=1, lbprz=1) as disk:
        exercise(disk, 4096)
        f2("mkfs", "-q", "-f", disk)
        used_by_the_kernel(disk)


def test_a_disk_that_shows_old_data_after_a_discard() -> None:
    with scsi_debug(dev_size_mb=96, lbpws=1, lbprz=0) as disk:
        exercise(disk, 512)
        f2("mkfs", "-q", "-f", disk)
        used_by_the_kernel(disk)


@pytest.mark.parametrize("tail", [0, 512, 777, 3 * 4096 + 1536])
def test_a_loop_device_of_any_size(tail: int) -> None:
    image = Path(f"/tmp/odd{tail}.img")
    with image.open("wb") as file:
        file.truncate(64 * MIB + tail)
    with loop(image) as disk:
        assert "attached to /dev/loop" in f2("mkfs", image, code=None).err
        f2("mkfs", "-q", disk)
        used_by_the_kernel(disk, keep=True)
        f2("resize", disk, "minimum")
        f2("resize", disk)
        used_by_the_kernel(disk)
    f2("fsck", image)
    image.unlink()
