"""What lies on a device, by the magic numbers of file systems, volumes, partition tables, archives and disk images.

It errs on the side of caution: a find is a reason to ask before anything is written, not a proof.  The whole list of
libblkid is not the aim; what a disk, a card or an image file is likely to hold is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from f2tools.device.containers.partition import F2FS_MAGIC, SUPERBLOCK_PLACES
from f2tools.lazy import dataclass

HEAD_BYTES = 272 << 10
TAIL_BYTES = 1 << 20
PAGE_SIZES = (4096, 8192, 16384, 65536)
ZFS_UBERBLOCKS = (128 << 10, 256 << 10)
MD_MAGIC = b"\xfc\x4e\x2b\xa9"
DFS, DFFS = "DFS (Direct File System)", "DFFS (Direct Flash File System)"


class Readable(Protocol):
    """What detection needs of a device."""

    size_bytes: int

    def pread(self, offset: int, length: int) -> bytes: ...


@dataclass(frozen=True)
class Signature:
    """Something that was found: what it is, and where its magic number lies."""

    name: str
    offset: int
    length: int


# (name, offset from the start, magic); a file system that others embed comes after them
MAGICS: tuple[tuple[str, int, bytes], ...] = (
    *(("F2FS", place, F2FS_MAGIC) for place in SUPERBLOCK_PLACES),
    (DFS, 8192, b"F2DFSIMG"),
    (DFFS, 0, b"F2DFFSIM"),
    ("XFS", 0, b"XFSB"),
    ("Btrfs", 0x10040, b"_BHRfS_M"),
    ("bcachefs or bcache", 4096 + 24, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")),
    ("bcachefs", 4096 + 24, bytes.fromhex("c68573f666ce90a96a60cf803df7ef18")),
    ("NTFS", 3, b"NTFS    "),
    ("exFAT", 3, b"EXFAT   "),
    ("ReFS", 3, b"ReFS\0\0\0\0"),
    ("BitLocker", 3, b"-FVE-FS-"),
    ("FAT", 82, b"FAT32   "),
    ("FAT", 54, b"FAT16   "),
    ("FAT", 54, b"FAT12   "),
    ("FAT", 54, b"FAT     "),
    ("SquashFS", 0, b"hsqs"),
    ("SquashFS", 0, b"sqsh"),
    ("EROFS", 1024, b"\xe2\xe1\xf5\xe0"),
    ("cramfs", 0, b"\x45\x3d\xcd\x28"),
    ("cramfs", 512, b"\x45\x3d\xcd\x28"),
    ("romfs", 0, b"-rom1fs-"),
    ("ISO 9660", 32769, b"CD001"),
    ("UDF", 32769, b"BEA01"),
    ("UDF", 32769 + 2048, b"NSR0"),
    ("UDF", 32769 + 4096, b"NSR0"),
    ("High Sierra", 32777, b"CDROM"),
    ("JFS", 32768, b"JFS1"),
    ("ReiserFS", 65536 + 52, b"ReIsEr"),
    ("ReiserFS", 8192 + 52, b"ReIsEr"),
    ("Reiser4", 65536, b"ReIsEr4"),
    ("GFS2", 65536, b"\x01\x16\x19\x70"),
    ("OCFS2", 1024, b"OCFSV2"),
    ("OCFS2", 2048, b"OCFSV2"),
    ("OCFS2", 4096, b"OCFSV2"),
    ("OCFS2", 8192, b"OCFSV2"),
    ("APFS", 32, b"NXSB"),
    ("HFS+", 1024, b"H+\0\4"),
    ("HFS+", 1024, b"HX\0\5"),
    ("HFS", 1024, b"BD"),
    ("UFS", 8192 + 1372, b"\x54\x19\x01\0"),
    ("UFS", 65536 + 1372, b"\x19\x01\x54\x19"),
    ("VxFS", 1024, b"\xf5\xfc\x01\xa5"),
    ("BFS", 0, b"\xce\xfa\xad\x1b"),
    ("BeFS", 544, b"1SFB"),
    ("HPFS", 0x2000, b"\x49\xe8\x95\xf9"),
    ("zonefs", 0, b"SFOZ"),
    ("UBI", 0, b"UBI#"),
    ("UBIFS", 0, b"\x31\x18\x10\x06"),
    ("JFFS2", 0, b"\x85\x19\x03\x20"),
    ("JFFS2", 0, b"\x85\x19\x01\xe0"),
    ("JFFS2", 0, b"\x85\x19\x02\xe0"),
    ("VMFS", 0x200000, b"\x5e\xf1\xab\x2f"),
    ("Ceph BlueStore", 0, b"bluestore block device"),
    ("LUKS", 0, b"LUKS\xba\xbe"),
    ("LUKS", 0, b"SKUL\xba\xbe"),
    ("dm-verity", 0, b"verity\0\0"),
    ("dm-integrity", 0, b"integrt\0"),
    ("device-mapper snapshot", 0, b"SnAp"),
    ("VDO", 0, b"dmvdo001"),
    ("Stratis", 528, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("Linux RAID", 0, MD_MAGIC),
    ("Linux RAID", 4096, MD_MAGIC),
    ("GPT partition table", 512, b"EFI PART"),
    ("GPT partition table", 4096, b"EFI PART"),
    ("Apple partition map", 512, b"PM\0\0"),
    ("SGI disk label", 0, b"\x0b\xe5\xa9\x41"),
    ("BSD disk label", 0, b"\x57\x45\x56\x82"),
    ("BSD disk label", 512, b"\x57\x45\x56\x82"),
    ("Android sparse image", 0, b"\x3a\xff\x26\xed"),
    ("Android boot image", 0, b"ANDROID!"),
    ("Android verified boot image", 0, b"AVB0"),
    ("Android super partition", 4096, b"gDla"),
    ("QEMU disk image", 0, b"QFI\xfb"),
    ("VHDX disk image", 0, b"vhdxfile"),
    ("VMDK disk image", 0, b"KDMV"),
    ("VDI disk image", 0x40, b"\x7f\x10\xda\xbe"),
    ("E01 disk image", 0, b"EVF\x09\x0d\x0a\xff\x00"),
    ("Ex01 disk image", 0, b"EVF2\x0d\x0a\x81\x00"),
    ("gzip file", 0, b"\x1f\x8b\x08"),
    ("xz file", 0, b"\xfd7zXZ\0"),
    ("zstd file", 0, b"\x28\xb5\x2f\xfd"),
    ("lz4 file", 0, b"\x04\x22\x4d\x18"),
    ("bzip2 file", 4, b"1AY&SY"),
    ("7z archive", 0, b"7z\xbc\xaf\x27\x1c"),
    ("zip archive", 0, b"PK\3\4"),
    ("tar archive", 257, b"ustar"),
)


def find_signatures(device: Readable) -> list[Signature]:
    """What can be recognised on a device, the likeliest first; empty where there is nothing known."""
    head = device.pread(0, min(HEAD_BYTES, device.size_bytes))
    if device.size_bytes <= HEAD_BYTES and not head.strip(b"\0"):
        return []
    found = [s for look in HEAD_CHECKS for s in look(head)]
    if device.size_bytes > len(head):
        found += _far_magics(device)
        found += _tail(device)
    return list({(s.name, s.offset, s.length): s for s in found}.values())


def _table(head: bytes) -> Iterator[Signature]:
    for name, offset, magic in MAGICS:
        if head.startswith(magic, offset):
            yield Signature(name, offset, len(magic))


def _far_magics(device: Readable) -> Iterator[Signature]:
    for name, offset, magic in MAGICS:
        if HEAD_BYTES < offset + len(magic) <= device.size_bytes and device.pread(offset, len(magic)) == magic:
            yield Signature(name, offset, len(magic))


def _ext(head: bytes) -> Iterator[Signature]:
    if len(head) < 2048 or head[1080:1082] != b"\x53\xef":
        return
    compat, incompat, ro_compat = struct.unpack_from("<3I", head, 1024 + 92)
    if incompat & 0x8:
        name = "ext journal"
    elif incompat & ~0x16 or ro_compat & ~0x7:
        name = "ext4"
    else:
        name = "ext3" if compat & 0x4 else "ext2"
    yield Signature(name, 1080, 2)


def _swap(head: bytes) -> Iterator[Signature]:
    for page in PAGE_SIZES:
        if head[page - 10 : page] in (b"SWAPSPACE2", b"SWAP-SPACE"):
            yield Signature("swap space", page - 10, 10)
        if head[page - 10 : page - 1] in (b"S1SUSPEND", b"S2SUSPEND"):
            yield Signature("hibernated system", page - 10, 10)


def _lvm(head: bytes) -> Iterator[Signature]:
    for at in range(0, 2048, 512):
        if head.startswith(b"LABELONE", at) and head.startswith(b"LVM2 001", at + 24):
            yield Signature("LVM physical volume", at, 32)


def _nilfs(head: bytes) -> Iterator[Signature]:
    if len(head) >= 1032 and head[1024:1028] == b"\2\0\0\0" and head[1030:1032] == b"\x34\x34":
        yield Signature("NILFS2", 1030, 2)


def _minix(head: bytes) -> Iterator[Signature]:
    if head[1040:1042] in (b"\x7f\x13", b"\x8f\x13", b"\x68\x24", b"\x78\x24"):
        yield Signature("Minix", 1040, 2)
    elif head[1048:1050] == b"\x5a\x4d":
        yield Signature("Minix", 1048, 2)


def _zfs(head: bytes) -> Iterator[Signature]:
    for at in range(ZFS_UBERBLOCKS[0], min(ZFS_UBERBLOCKS[1], len(head)), 1024):
        if head[at : at + 8] in (b"\x0c\xb1\xba\0\0\0\0\0", b"\0\0\0\0\0\xba\xb1\x0c"):
            yield Signature("ZFS", at, 8)


def _fat_without_name(head: bytes) -> Iterator[Signature]:
    """A boot sector whose numbers make a FAT, though old formatters left the name out."""
    if len(head) < 512 or head[0] not in (0xE9, 0xEB) or head[510:512] != b"\x55\xaa" or head[54:57] == b"FAT":
        return
    sector, cluster, reserved, fats = struct.unpack_from("<HBHB", head, 11)
    power_of_two = cluster and cluster & cluster - 1 == 0
    if sector in (512, 1024, 2048, 4096) and power_of_two and reserved and fats in (1, 2) and head[21] >= 0xF0:
        yield Signature("FAT", 0, 512)


def _mbr(head: bytes) -> Iterator[Signature]:
    if len(head) < 512 or head[510:512] != b"\x55\xaa":
        return
    entries = [head[at : at + 16] for at in range(446, 510, 16)]
    used = [entry for entry in entries if entry[4] and struct.unpack_from("<I", entry, 12)[0]]
    if used and all(entry[0] in (0, 0x80) for entry in entries):
        yield Signature("MBR partition table", 446, 66)


HEAD_CHECKS: tuple[Callable[[bytes], Iterator[Signature]], ...] = (
    _table, _ext, _swap, _lvm, _nilfs, _zfs, _fat_without_name, _mbr, _minix,
)  # fmt: skip


def _tail(device: Readable) -> Iterator[Signature]:
    """What lies at the end of a device: RAID metadata, copies of ZFS labels and of the GPT."""
    size = device.size_bytes
    begin = max(0, size - TAIL_BYTES)
    tail = device.pread(begin, size - begin)

    def at(offset: int, magic: bytes) -> bool:
        return offset >= begin and tail.startswith(magic, offset - begin)

    for sector in (512, 4096):
        if at(size - sector, b"EFI PART"):
            yield Signature("GPT partition table (backup)", size - sector, 8)
        if at(size - sector, b"\xde\x11\xde\x11"):
            yield Signature("DDF RAID", size - sector, 4)
    if at(size - 1024, b"Intel Raid ISM Cfg Sig."):
        yield Signature("Intel RAID", size - 1024, 24)
    for offset in ((size & ~0xFFFF) - 0x10000, (size - 8192) & ~4095):
        if at(offset, MD_MAGIC):
            yield Signature("Linux RAID", offset, 4)
    labels = size & ~(256 * 1024 - 1)
    for label in (labels - (512 << 10), labels - (256 << 10)):
        for offset in range(label + ZFS_UBERBLOCKS[0], label + ZFS_UBERBLOCKS[1], 1024):
            if at(offset, b"\x0c\xb1\xba\0\0\0\0\0") or at(offset, b"\0\0\0\0\0\xba\xb1\x0c"):
                yield Signature("ZFS", offset, 8)


def describe(found: Sequence[Signature]) -> str:
    """`ext4, GPT partition table`: what was found, each thing once."""
    return ", ".join(dict.fromkeys(signature.name for signature in found))
