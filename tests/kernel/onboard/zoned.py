"""Zoned devices (null_blk, host-managed): made by f2tools, used by the kernel, their write pointers read back.

/dev/vda is an empty disk of 256 MiB.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from f2tools.device import open_device
from f2tools.device.media.block import BlockDevice
from f2tools.f2fs.volume.volume import open_volume
from tests.kernel.onboard.aboard import MIB, f2, fill, fsck_f2fs, mounted, nullb, sh, tree

DISK = "/dev/vda"
ZONED = {"zoned": 1, "zone_size": 4}


def findings(device: str, *more: str) -> list[dict[str, str]]:
    lines = f2("fsck", "--json", device, *more, code=None).out.splitlines()
    return [found for found in map(json.loads, lines) if found.get("severity") not in ("info", None)]


def pointers(device: str) -> dict[int, int]:
    """Start of each sequential zone -> bytes from there to its write pointer."""
    with open_device(device) as opened:
        assert isinstance(opened, BlockDevice)
        return {zone.start: zone.write_pointer - zone.start for zone in opened.zones() if zone.sequential}


def put_in_use(disk: str, *more: str) -> dict[str, bytes | None]:
    """Format it, and let the kernel write; the tree."""
    f2("mkfs", "-q", "-f", disk, "-m", "-l", "ZONED", *more)
    with mounted(disk) as where:
        fill(where / "a", files=24, size=500_000)
        return tree(where)


def write_beyond_the_log(disk: str) -> None:
    """What a power cut leaves: blocks behind the end of a log, of which the checkpoint knows nothing."""
    with open_volume(disk) as volume:
        logs = [int(volume.geo.start_block(log.segno)) + log.next_blkoff for log in volume.summaries.cursegs]
    ends = {(start + at) // 4096 for start, at in pointers(disk).items() if at < 4 * MIB}
    log = next(blkaddr for blkaddr in logs if blkaddr in ends)
    sh(f"dd if=/dev/urandom of={disk} bs=4k count=3 seek={log} oflag=direct status=none")
    assert {one["code"] for one in findings(disk)} == {"W001"}


def test_a_zoned_device_is_made_used_and_made_again() -> None:
    with nullb(256, 4096, zone_nr_conv=12, **ZONED) as disk:
        told = sh(f"blkzone report {disk}")
        assert len(pointers(disk)) == told.count("SEQ_WRITE_REQUIRED") == 52
        f2("mkfs", "-q", disk, "-m")
        assert findings(disk) == []
        fsck_f2fs(disk)
        put_in_use(disk)  # every zone is reset first
        assert findings(disk) == []
        fsck_f2fs(disk)
        assert "file0" in f2("dump", "ls", disk, "/a").out
        assert "holds F2FS" in f2("mkfs", disk, "-m", code=None).err
        put_in_use(disk)
        f2("label", disk, "NEW")  # in a conventional zone
        f2("clean", disk, "--dry-run", code=None)
        assert findings(disk) == []


def test_a_zoned_device_that_lost_power() -> None:
    with nullb(256, 4096, zone_nr_conv=12, **ZONED) as disk:
        before = put_in_use(disk)
        write_beyond_the_log(disk)
        with mounted(disk) as where:  # the kernel goes on in another zone
            assert tree(where) == before
            fill(where / "b")
            before = tree(where)
        assert findings(disk) == []
        fsck_f2fs(disk)
        write_beyond_the_log(disk)  # and so do we
        f2("fsck", "-y", disk, code=1)
        assert findings(disk) == []
        with mounted(disk) as where:  # a mount resets the zone that nothing is in any more
            assert tree(where) == before
            fill(where / "c")
        assert findings(disk) == []
        fsck_f2fs(disk)


def test_two_devices_the_second_without_conventional_zones() -> None:
    with nullb(128, 512, zone_nr_conv=0, **ZONED) as disk:
        done = f2("mkfs", "-q", disk, "-m", code=None)
        assert done.code not in (0, 1)
        assert "conventional" in done.err, done.err
        put_in_use(DISK, "-c", disk)
        both = ("--device", disk)
        assert findings(DISK, *both) == []
        fsck_f2fs(DISK)
        assert "file0" in f2("dump", "ls", DISK, *both, "/a").out
        with mounted(DISK) as where:
            sh(f"rm -r {where}/a")
            fill(where / "b", files=24, size=500_000)
            before = tree(where)
        f2("clean", DISK, *both, code=None)
        sound(DISK, *both)
        with mounted(DISK) as where:
            assert tree(where) == before


def sound(disk: str, *more: str) -> None:
    found = findings(disk, *more)
    assert not found, "\n".join(map(str, found))
    fsck_f2fs(disk)


def test_a_zoned_device_is_cleaned() -> None:
    """Zones are reset, logs append; a power cut leaves a log whose zone goes on elsewhere."""
    with nullb(256, 4096, zone_nr_conv=12, **ZONED) as disk:
        put_in_use(disk)
        with mounted(disk) as where:
            for n in range(8):
                fill(where / f"b{n}", files=30, size=200_000)
            for n in range(1, 8, 2):
                sh(f"rm -r {where}/b{n}")
            before = tree(where)
        used = sum(at > 0 for at in pointers(disk).values())
        f2("clean", disk, "--dry-run", code=None)
        assert sum(at > 0 for at in pointers(disk).values()) == used
        for command in (
            ("mkdir", f"{disk}:/no"), ("defrag", disk), ("resize", disk, "200M"),
            ("clean", disk, "--undo", "/tmp/undo-zoned"),
        ):  # fmt: skip
            assert "zoned" in f2(*command, code=1).err, command
        done = json.loads(f2("clean", disk, "--json", code=None).out)
        assert done["sections_cleaned"] > 0, done
        sound(disk)
        assert sum(at > 0 for at in pointers(disk).values()) < used  # what became free is reset
        write_beyond_the_log(disk)
        f2("clean", disk, "--sections", "1", "--discard", code=None)
        f2("recover", disk, "--apply")
        with mounted(disk) as where:
            assert tree(where) == before
            fill(where / "by-kernel")
        sound(disk)


def test_what_was_synced_on_a_zoned_device_is_brought_back() -> None:
    """The zones of a volume in use are copied while it is mounted: a crash, for whoever has the copy."""
    with nullb(256, 4096, zone_nr_conv=12, **ZONED) as disk, nullb(256, 4096, zone_nr_conv=12, **ZONED) as copy:
        before = put_in_use(disk)
        with mounted(disk) as where:
            sh("sync")
            for n in range(5):
                with open(where / f"synced{n}", "wb") as file:
                    file.write(bytes([n]) * 30_000)
                    os.fsync(file.fileno())
            copy_zones(disk, copy)
        plan = f2("recover", copy, "--plan").out
        assert "synced4" in plan
        f2("recover", copy, "--apply")
        sound(copy)
        with mounted(copy) as where:
            now = tree(where)
            assert {path: now.get(path) for path in before} == before
            for n in range(5):
                assert now[f"synced{n}"] == bytes([n]) * 30_000
            fill(where / "by-kernel")
        sound(copy)


def copy_zones(disk: str, copy: str) -> None:
    sh(f"dd if={disk} of={copy} bs=4M count=12 iflag=direct oflag=direct status=none")
    for start, at in pointers(disk).items():
        if at:
            first = start // 4096
            where = f"skip={first} seek={first} count={at // 4096}"
            sh(f"dd if={disk} of={copy} bs=4k {where} iflag=direct oflag=direct status=none")


def test_a_directory_on_a_zoned_device() -> None:
    directory = Path("/tmp/from-zoned")
    fill(directory)
    with nullb(256, 4096, zone_nr_conv=12, **ZONED) as disk:
        f2("mkfs", "-q", disk, "-m", "--from", directory)
        sound(disk)
        with mounted(disk) as where:
            assert tree(where) == tree(directory)
            fill(where / "by-kernel")
        sound(disk)
