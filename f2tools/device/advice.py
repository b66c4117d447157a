"""What to say about a device without a volume: what is there instead, and what can be done next.

Nothing that is advised here writes to the device.
"""

from __future__ import annotations

import os
import stat
from itertools import islice

from f2tools.device.base import Device
from f2tools.device.containers.partition import Partition, Slice, holds_f2fs, read_partitions
from f2tools.device.containers.unlisted import Unlisted, unlisted_volumes
from f2tools.device.known import DFFS, DFS, Signature, find_signatures
from f2tools.errors import DeviceError
from f2tools.text import command_line, pasted

MOST_ZEROS = 256 << 20  # bytes looked through for anything but zeros
PIECE = 4 << 20
MOST_PARTITIONS = 16  # named in a message
GUESSED_BY = 8192  # bytes that `filetype` looks at

UNPACK = {
    "gzip file": "gzip -dk {}",
    "xz file": "xz -dk {}",
    "zstd file": "zstd -d {}",
    "lz4 file": "lz4 -dk {}",
    "bzip2 file": "bzip2 -dk {}",
    "7z archive": "7z x {}",
    "zip archive": "unzip {}",
    "tar archive": "tar -xf {}",
}
OPEN_FIRST = {
    "LUKS": "open it (cryptsetup open --readonly) and name the device below /dev/mapper",
    "BitLocker": "open it (cryptsetup open --readonly --type bitlk) and name the device below /dev/mapper",
    "LVM physical volume": "activate it (vgchange -ay) and name the logical volume",
    "Linux RAID": "assemble it (mdadm --assemble --readonly) and name the device",
    "Intel RAID": "assemble it (mdadm --assemble --readonly) and name the device",
    "DDF RAID": "assemble it (mdadm --assemble --readonly) and name the device",
    "VDI disk image": "convert it: qemu-img convert -O raw",
    "Android super partition": "take it apart: lpunpack",
    "Android boot image": "it holds a kernel and a ramdisk, no volume",
    "swap space": "it holds memory that was swapped out, no files",
}
READ_BY = {
    DFS: "f2tools dfs fsck",
    DFFS: "f2tools dffs fsck",
    "ext2": "e2fsck -fn",
    "ext3": "e2fsck -fn",
    "ext4": "e2fsck -fn",
    "XFS": "xfs_repair -n",
    "Btrfs": "btrfs check --readonly",
    "FAT": "fsck.fat -n",
    "exFAT": "fsck.exfat -n",
    "NTFS": "ntfsfix -n",
    "SquashFS": "unsquashfs -l",
    "EROFS": "fsck.erofs",
}
TABLES = ("partition table", "partition map", "disk label")  # how the names end of what says where volumes lie
EXTRACTED_BY = {DFS: "f2tools dfs dump extract", DFFS: "f2tools dffs dump extract"}


def foreign(device: Device) -> list[Signature]:
    """What begins on a device other than F2FS, the likeliest first; what only lies at its end doesn't count."""
    try:
        found = find_signatures(device)
    except DeviceError:
        return []
    return [one for one in found if one.name != "F2FS" and one.offset < device.size_bytes // 2]


def what_is_there(device: Device) -> str:
    """What is on a device that is no volume, and what to do about it: the end of an error message."""
    if not device.size_bytes:
        return "it is empty, 0 bytes long; copy it again from where it came"
    partitions = read_partitions(device)
    if partitions:
        return _partitioned(device, partitions)
    found = foreign(device)
    volumes = [] if _other_system(found) else list(islice(unlisted_volumes(device), MOST_PARTITIONS))
    if volumes:
        return f"{unlisted(volumes)}; where that is a file in a lost one: {_rescue(device)}"
    if found:
        return _named(device, found[0].name)
    zeros = zeros_before_data(device)
    if zeros == device.size_bytes:
        return "it holds nothing but zeros: nothing was written to it yet, or all of it is lost"
    if zeros >= 1 << 20:
        return f"it begins with {zeros >> 20} MiB of zeros; {_rescue(device)}"
    kind = _guessed(device)
    if kind:
        return f"it begins like a file of type {kind}"
    return f"no superblock has the magic 0xf2f52010, and nothing else that is known is there; {_rescue(device)}"


def _other_system(found: list[Signature]) -> str:
    """What has the whole device, by what begins on it; empty where that may be a disk with volumes."""
    return found[0].name if found and not found[0].name.endswith(TABLES) else ""


def unlisted(volumes: list[Unlisted], device: Device | None = None) -> str:
    """That volumes lie on a disk, and what to name them; of a `device` with another system, they may be its files."""
    names = ", ".join(pasted(one.name) for one in volumes)
    other = _other_system(foreign(device)) if device is not None else ""
    if other:
        return f"it holds {other}; what looks like a volume may be a file in that, or older than it: {names}"
    if len(volumes) == 1:
        return f"it has no partition table, and a volume begins at byte {volumes[0].start}; name it {names}"
    return f"it has no partition table, and {len(volumes)} volumes lie on it; name one of them: {names}"


def instead(device: Device, other: str) -> str:
    """What is on a device that has none of the volumes that a command is for: the end of an error message.

    `other` is what to say where nothing known is there.
    """
    try:
        found = find_signatures(device)
    except DeviceError:
        return other
    if not found:
        return other
    name = found[0].name
    command = command_line("f2tools fsck", device.name) if name == "F2FS" else _reader(device, name)
    return f"it holds {name}" + (f"; use `{command}`" if command else "")


def steps(device: Device) -> list[tuple[str, str]]:
    """What can be done next with a device that is no volume, as (command, what it does); empty where nothing can."""
    name = device.name
    found: list[tuple[str, str]] = []
    if not device.size_bytes or zeros_before_data(device) == device.size_bytes:
        return found
    partitions = read_partitions(device)
    others = foreign(device)
    found += [
        (command_line("f2tools doctor", f"{name}@{one.number}"), f"looks at partition {one.number}")
        for one in partitions[:MOST_PARTITIONS]
    ]
    if not partitions and not _other_system(others):
        found += [
            (command_line("f2tools doctor", one.name), f"looks at the volume that begins at byte {one.start}")
            for one in islice(unlisted_volumes(device), MOST_PARTITIONS)
        ]
    is_other = False
    for other in others[: 0 if partitions else 1]:
        if other.name in UNPACK:
            return [(UNPACK[other.name].format(pasted(name)), "unpacks it; then look at what was in it")]
        is_other = True
        command = _reader(device, other.name)
        if command:
            found.append((command, "checks what is there, and writes nothing"))
        if other.name in EXTRACTED_BY:
            found.append((f"{command_line(EXTRACTED_BY[other.name], name)} -o DIR", "copies all files out"))
    mistake = "if it was made over a volume by mistake: " if is_other else ""
    rescue = command_line("f2tools fsck --rescue", name)
    found.append((rescue, f"{mistake}looks for the remains of one in every block"))
    found.append((command_line("f2tools carve", name), f"{mistake}looks for files by how they begin"))
    return found


def _named(device: Device, name: str) -> str:
    if name in UNPACK:
        return f"it is a {name}; unpack it first: {UNPACK[name].format(pasted(device.name))}"
    lost = f"if it was made over a volume by mistake: {_rescue(device)}"
    if name in OPEN_FIRST:
        return f"it holds {name}; {OPEN_FIRST[name]}; {lost}"
    command = _reader(device, name)
    look = f"; `{command}` looks at it" if command else f"; {READ_BY[name]} looks at it" if name in READ_BY else ""
    return f"it holds {name}{look}; {lost}"


def _reader(device: Device, name: str) -> str:
    """The command that looks at another system; empty where its program can't open what f2tools can.

    Programs of others know neither partitions behind an @ nor URLs nor containers.
    """
    program = READ_BY.get(name, "")
    if program and (program.startswith("f2tools ") or _is_raw(device)):
        return command_line(program, device.name)
    return ""


def _is_raw(device: Device) -> bool:
    """Whether the device's name is that of a file with the same bytes, or of a block device."""
    try:
        status = os.stat(device.name)
    except OSError:
        return False
    return stat.S_ISBLK(status.st_mode) or status.st_size == device.size_bytes


def _rescue(device: Device) -> str:
    command = command_line("f2tools fsck --rescue --salvage DIR", device.name)
    return f"`{command}` looks in every block for what is left of a volume, and writes nothing to the image"


def _partitioned(device: Device, partitions: list[Partition]) -> str:
    words = [f"@{one.number} ({_kind(device, one)})" for one in partitions[:MOST_PARTITIONS]]
    if len(partitions) > MOST_PARTITIONS:
        words.append(f"{len(partitions) - MOST_PARTITIONS} more")
    with_f2fs = [one.number for one in partitions if holds_f2fs(device, one.start, one.length)]
    if with_f2fs:
        name = pasted(f"{device.name}@{with_f2fs[0]}")
        return f"it is a disk with the partitions {', '.join(words)}; the volume is {name}"
    return (
        f"it is a disk with the partitions {', '.join(words)}, none of which holds F2FS; to look into one, write its"
        f" number behind the name: {pasted(f'{device.name}@{partitions[0].number}')}"
    )


def _kind(device: Device, one: Partition) -> str:
    """What a partition holds, in a word."""
    if holds_f2fs(device, one.start, one.length):
        return "F2FS"
    try:
        found = foreign(Slice(device, one.start, one.length))
    except DeviceError:
        return "past the end of the image"
    return found[0].name if found else "nothing known"


def zeros_before_data(device: Device) -> int:
    """How many bytes from the start on are zeros or holes; at most MOST_ZEROS are read for it."""
    read = 0
    for start, length in device.data_ranges(0, device.size_bytes):
        for at in range(start, start + length, PIECE):
            size = min(PIECE, start + length - at)
            try:
                data = device.pread(at, size)
            except DeviceError:
                return at
            if data.count(0) != size:
                return at + len(data) - len(data.lstrip(b"\0"))
            read += size
            if read >= MOST_ZEROS:
                return at + size
    return device.size_bytes


def _guessed(device: Device) -> str:
    """The type of a file by its first bytes, as MIME has it; empty where nothing is known."""
    try:
        head = device.pread(0, min(GUESSED_BY, device.size_bytes))
    except DeviceError:
        return ""
    import filetype  # 14 ms, and few volumes need it

    return filetype.guess_mime(head) or ""
