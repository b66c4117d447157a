"""What is there already is recognised: by magic number, and made by the real formatters where they are installed."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.device.known import HEAD_BYTES, MAGICS, describe, find_signatures
from tests import images, judges
from tests.mkfs.tools import MIB, blank, f2mkfs

SIZE = 64 * MIB


class Bytes:
    """A device of zeros with these pieces in it."""

    def __init__(self, *pieces: tuple[int, bytes], size: int = 4 * MIB) -> None:
        self.size_bytes = size
        self._data = bytearray(size)
        for offset, data in pieces:
            self._data[offset : offset + len(data)] = data

    def pread(self, offset: int, length: int) -> bytes:
        return bytes(self._data[offset : offset + length])


def names(*pieces: tuple[int, bytes], size: int = 4 * MIB) -> str:
    return describe(find_signatures(Bytes(*pieces, size=size)))


def test_nothing_is_found_in_zeros_and_noise() -> None:
    assert names() == ""
    assert names(size=512) == ""
    assert names((0, b"text " * 1000)) == ""


@pytest.mark.parametrize(("name", "offset", "magic"), MAGICS)
def test_every_magic_number_is_found_where_it_lies(name: str, offset: int, magic: bytes) -> None:
    found = find_signatures(Bytes((offset, magic)))
    assert (name, offset) in [(s.name, s.offset) for s in found]


@pytest.mark.parametrize(
    ("compat", "incompat", "ro_compat", "name"),
    [(0, 2, 1, "ext2"), (4, 2, 1, "ext3"), (4, 0x42, 1, "ext4"), (4, 2, 8, "ext4"), (0, 8, 0, "ext journal")],
)
def test_the_ext_family_is_told_apart(compat: int, incompat: int, ro_compat: int, name: str) -> None:
    assert names((1080, b"\x53\xef"), (1024 + 92, struct.pack("<3I", compat, incompat, ro_compat))) == name


@pytest.mark.parametrize("page", [4096, 8192, 16384, 65536])
def test_swap_of_every_page_size(page: int) -> None:
    assert names((page - 10, b"SWAPSPACE2")) == "swap space"


@pytest.mark.parametrize("sector", [0, 512, 1024, 1536])
def test_lvm_labels_lie_in_the_first_four_sectors(sector: int) -> None:
    assert names((sector, b"LABELONE"), (sector + 24, b"LVM2 001")) == "LVM physical volume"


def test_partition_tables() -> None:
    entry = bytes([0x80, 0, 0, 0, 0x83, 0, 0, 0]) + struct.pack("<II", 2048, 4096)
    assert names((446, entry), (510, b"\x55\xaa")) == "MBR partition table"
    assert names((510, b"\x55\xaa")) == ""
    assert names((512, b"EFI PART")) == "GPT partition table"
    assert names((4 * MIB - 512, b"EFI PART")) == "GPT partition table (backup)"


def test_raid_and_zfs_at_the_end() -> None:
    for offset in (4 * MIB - 65536, 4 * MIB - 8192):
        assert names((offset, b"\xfc\x4e\x2b\xa9")) == "Linux RAID"
    assert names((4 * MIB - (256 << 10) + (128 << 10), b"\x0c\xb1\xba\0\0\0\0\0")) == "ZFS"
    assert names(((130 << 10), b"\0\0\0\0\0\xba\xb1\x0c")) == "ZFS"


def test_a_fat_without_its_name() -> None:
    boot = bytearray(512)
    boot[0], boot[21], boot[510:512] = 0xEB, 0xF8, b"\x55\xaa"
    struct.pack_into("<HBHB", boot, 11, 512, 4, 1, 2)
    assert names((0, bytes(boot))) == "FAT"


def test_small_and_odd_sizes_are_read_without_an_error() -> None:
    for size in (1, 511, 513, 4097, HEAD_BYTES - 1, HEAD_BYTES + 1, MIB + 7):
        assert names(size=size) == ""


FORMATTERS = [
    (["mke2fs", "-q", "-F", "-t", "ext2"], "ext2"),
    (["mke2fs", "-q", "-F", "-t", "ext3"], "ext3"),
    (["mke2fs", "-q", "-F", "-t", "ext4"], "ext4"),
    (["mkswap", "-q"], "swap space"),
    (["mkfs.vfat"], "FAT"),
    (["mkfs.xfs", "-q"], "XFS"),
    (["mkfs.btrfs", "-q"], "Btrfs"),
    (["mkfs.minix"], "Minix"),
    (["mkfs.f2fs", "-q"], "F2FS"),
]


@pytest.mark.peer
def test_what_the_formatters_of_this_system_make_is_recognised(tmp_path: Path) -> None:
    tried = 0
    for command, name in FORMATTERS:
        program = judges.find_tool(command[0])
        if program is None:
            continue
        image = blank(tmp_path / "image", 128 * MIB)
        done = subprocess.run([program, *command[1:], image], capture_output=True, env={**os.environ, "LC_ALL": "C"})
        if done.returncode:
            continue
        tried += 1
        with open_device(image) as device:
            assert name in describe(find_signatures(device)), command
    assert tried, "not even mkfs.f2fs is installed"


@pytest.mark.parametrize("name", ["plain", "zoned", "blocks16k", "crash-orphan"])
def test_reference_volumes_are_recognised(name: str) -> None:
    with open_device(images.reference(name).path) as device:
        assert describe(find_signatures(device)) == "F2FS"


def test_force_leaves_nothing_of_the_old_signatures(tmp_path: Path) -> None:
    image = tmp_path / "image"
    for discard in (0, 1):
        with image.open("wb") as f:
            f.truncate(SIZE)
            for offset, magic in ((0x10040, b"_BHRfS_M"), (512, b"EFI PART"), (SIZE - 512, b"EFI PART")):
                f.seek(offset)
                f.write(magic)
        f2mkfs("-q", "-f", "-t", discard, image)
        with open_device(image) as device:
            assert {s.name for s in find_signatures(device)} == {"F2FS"}
