"""Block devices: what the kernel answers is decoded right; and, where one can be had, a real loop device."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from f2tools.device import open_device
from f2tools.device.media import block as block_module
from f2tools.device.media.block import (
    BLKGETSIZE64,
    BLKGETZONESZ,
    BLKREPORTZONE,
    REPORT_HEADER,
    ZONE,
    BlockDevice,
    Zone,
    decode_zones,
    device_size,
)
from f2tools.errors import DeviceError

SIZE = 8 << 20
MIB = 1 << 20


class KernelZone(ctypes.Structure):
    """struct blk_zone, declared again."""

    _fields_ = [
        ("start", ctypes.c_uint64),
        ("len", ctypes.c_uint64),
        ("wp", ctypes.c_uint64),
        ("type", ctypes.c_uint8),
        ("cond", ctypes.c_uint8),
        ("non_seq", ctypes.c_uint8),
        ("reset", ctypes.c_uint8),
        ("resv", ctypes.c_uint8 * 4),
        ("capacity", ctypes.c_uint64),
        ("reserved", ctypes.c_uint8 * 24),
    ]


def report(zones: list[KernelZone], flags: int) -> bytes:
    return struct.pack("=QII", zones[0].start if zones else 0, len(zones), flags) + b"".join(map(bytes, zones))


def ioctl_number(direction: int, kind: int, number: int, size: int) -> int:
    """_IOC() of asm-generic/ioctl.h."""
    return direction << 30 | size << 16 | kind << 8 | number


def test_the_requests_are_those_of_the_kernel_headers() -> None:
    assert ctypes.sizeof(KernelZone) == ZONE.size == 64
    assert ioctl_number(2, 0x12, 114, 8) == BLKGETSIZE64
    assert ioctl_number(3, 0x12, 130, REPORT_HEADER.size) == BLKREPORTZONE
    assert ioctl_number(2, 0x12, 132, 4) == BLKGETZONESZ


def test_zones_are_decoded() -> None:
    zones = [KernelZone(0, 0x80000, 0xFFFFFFFFFFFFFFFF, 1, 0), KernelZone(0x80000, 0x80000, 0x80010, 2, 2)]
    zones += [KernelZone(0x100000, 0x80000, 0x180000, 2, 0xE), KernelZone(0x180000, 0x80000, 0x180000, 9, 9)]
    for zone in zones:
        zone.capacity = 0x70000
    found = list(decode_zones(report(zones, 1)))
    assert found[1] == Zone(
        256 * MIB, 256 * MIB, 224 * MIB, 256 * MIB + 8192, "sequential-write-required", "implicit-open"
    )
    assert [zone.sequential for zone in found] == [False, True, True, False]
    assert [zone.condition for zone in found] == ["not-write-pointer", "implicit-open", "full", "condition 0x9"]
    assert found[3].type == "type 0x9"
    assert [zone.capacity for zone in decode_zones(report(zones, 0))] == [256 * MIB] * 4, (
        "older kernels say no capacity"
    )
    assert len(list(decode_zones(report(zones, 1)[:-1]))) == 3, "no further than the buffer"


def test_all_zones_of_a_device_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regular file in the place of a zoned device of 10 zones, of which the kernel reports 4 at a time."""
    path = tmp_path / "zoned"
    with path.open("wb") as file:
        file.truncate(10 * MIB - 512)
    sectors = MIB // 512

    def ioctl(fd: int, request: int, argument: bytearray, mutate: bool = True) -> int:
        if request == BLKGETSIZE64:
            argument[:] = struct.pack("=Q", 10 * MIB - 512)
        elif request == BLKGETZONESZ:
            argument[:] = struct.pack("=I", sectors)
        elif request == BLKREPORTZONE:
            first = struct.unpack_from("=Q", argument)[0] // sectors
            zones = [
                KernelZone(n * sectors, sectors - (n == 9), n * sectors, 2, 1) for n in range(first, min(first + 4, 10))
            ]
            argument[: 16 + 64 * len(zones)] = report(zones, 0)
        else:
            raise OSError(25, "Inappropriate ioctl for device")
        return 0

    monkeypatch.setattr(block_module.fcntl, "ioctl", ioctl)
    with BlockDevice(path, os.open(path, os.O_RDONLY), write=False) as device:
        assert device.size_bytes == 10 * MIB - 512
        assert (device.sector_size, device.physical_sector_size) == (512, 512)
        assert device.zone_size == MIB
        assert [zone.start for zone in device.zones()] == [n * MIB for n in range(10)]


def test_the_size_without_the_ioctl(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(777))
    with (tmp_path / "file").open("rb") as file:
        assert device_size(file.fileno()) == 777


def test_a_device_that_can_neither_discard_nor_zero_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A regular file knows none of the requests; the fallbacks must do."""
    path = tmp_path / "dumb"
    monkeypatch.setattr(block_module, "punch_hole", lambda *_: False)
    for what in ("discard", "write_zeroes"):
        path.write_bytes(b"x" * 10000)
        with BlockDevice(path, os.open(path, os.O_RDWR), write=True) as device:
            getattr(device, what)(100, 5000)
            getattr(device, what)(6000, 0)
            getattr(device, what)(7000, 10)
            device.trim(0, 10000)
        assert path.read_bytes() == b"x" * 100 + bytes(5000) + b"x" * 1900 + bytes(10) + b"x" * 2990


def test_what_reads_as_zeros_is_never_given_up_before_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    path = tmp_path / "disk"
    path.write_bytes(b"x" * 10000)
    monkeypatch.setattr(block_module, "punch_hole", lambda *_: False)

    def ioctl(_fd: int, request: int, *_: object) -> int:
        asked.append(request)
        raise OSError(25, "Inappropriate ioctl for device")

    with BlockDevice(path, os.open(path, os.O_RDWR), write=True) as device:
        monkeypatch.setattr(block_module.fcntl, "ioctl", ioctl)
        device.discard(0, 8192)
    assert path.read_bytes() == bytes(8192) + b"x" * 1808
    assert block_module.BLKDISCARD not in asked


# ---- the real thing -------------------------------------------------------------------------------------------


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """(loop device, its file), if this machine lets us have one."""
    losetup = shutil.which("losetup", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    backing = tmp_path / "backing"
    backing.write_bytes(np.random.default_rng(0).integers(1, 256, SIZE, np.uint8).tobytes())
    found = losetup and subprocess.run(
        [losetup, "--find", "--show", "--direct-io=off", backing], capture_output=True, text=True, check=False
    )
    if not losetup or not found or found.returncode:
        why = found.stderr.strip() if found else "there is no losetup"
        pytest.skip(f"no loop device to be had here ({why}); not tried: the ioctls on a real block device")
    device = Path(found.stdout.strip())
    yield device, backing
    subprocess.run([losetup, "--detach", device], check=True)


def test_a_block_device_is_read_and_never_written(loop: tuple[Path, Path]) -> None:
    path, backing = loop
    with open_device(path) as device:
        assert isinstance(device, BlockDevice)
        assert device.read_only
        assert device.size_bytes == SIZE
        assert device.sector_size == 512
        assert device.physical_sector_size >= 512
        assert device.zone_size == 0
        assert device.zones() == []
        assert device.read_range(3, 5, 4096).tobytes() == backing.read_bytes()[3 * 4096 : 8 * 4096]
        with pytest.raises(DeviceError, match="opened read-only"):
            device.discard(0, 4096)
        with pytest.raises(DeviceError, match="past its end"):
            device.pread(SIZE, 1)


def test_a_block_device_is_written(loop: tuple[Path, Path]) -> None:
    path, backing = loop
    model = bytearray(backing.read_bytes())
    with open_device(path, write=True) as device:
        for what, offset, length in (
            ("pwrite", 5000, 100),
            ("discard", 65536, 65536),
            ("discard", MIB + 1, 10000),
            ("discard", 2 * MIB + 3, 5),
            ("write_zeroes", 3 * MIB - 77, 99999),
            ("write_zeroes", SIZE - 300, 300),
        ):
            data = b"w" * length if what == "pwrite" else bytes(length)
            if what == "pwrite":
                device.pwrite(offset, data)
            else:
                getattr(device, what)(offset, length)
            model[offset : offset + length] = data
        device.trim(4 * MIB, MIB)
        device.flush()
        found = bytearray(device.pread(0, SIZE))
    assert found[: 4 * MIB] == model[: 4 * MIB]
    assert found[5 * MIB :] == model[5 * MIB :]
    assert backing.read_bytes() == found
    assert backing.stat().st_blocks * 512 < SIZE - MIB, "what was given back is a hole of the file"


def test_a_device_in_use_is_refused(loop: tuple[Path, Path]) -> None:
    path, _ = loop
    with open_device(path, write=True):
        with pytest.raises(DeviceError, match="in use: mounted, or held by another program"):
            open_device(path, write=True)
        open_device(path).close()
    open_device(path, write=True).close()
