"""An image that holds something else than F2FS: every command says what is there, and nothing harms it."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import re
import shlex
import struct
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import f2tools
from f2tools.cli import main
from tests import judges
from tests.command_lines import CHANGING, FORMATTING, NO_IMAGE, OTHERS, READING, SERVED, filled, named
from tests.dump.craft import f2
from tests.fsck.disk import joined
from tests.images import copy_sparse, reference

MIB = 1 << 20
# these lines don't open the image as a volume, or name a file that an earlier line would have made
NOT_ASKED = ("undo", "history", "trace compare", "trace export")
NAMES_IT = ("info",)  # this one answers with it
# these read what is left of a volume below whatever else is there
LOOKS_BELOW = (
    "scan", "undelete", "timeline", "carve", "strings", "fls", "icat", "istat", "blkcat", "fsstat", "hashes",
    "dump metadata",
)  # fmt: skip


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def old_volume(directory: Path) -> Path:
    """An F2FS volume of 64 MiB with files in it."""
    image = directory / "old.img"
    assert f2("mkfs", "-q", image, "--size", "64M").code == 0
    with f2tools.open(image, write=True) as volume:
        ino = volume.create(3, b"photo.jpg", 0o100644)
        volume.write(ino, 0, bytes(range(256)) * 4096)
    return image


def with_ext4(directory: Path) -> Path:
    """ext4 made over an F2FS volume, whose blocks mostly lie where they lay."""
    image = old_volume(directory)
    tool = judges.need_tool("mke2fs")
    subprocess.run([tool, "-q", "-F", "-t", "ext4", "-b", "4096", "-E", "nodiscard", image], check=True)
    return image


def with_swap(directory: Path) -> Path:
    """Swap space made over a volume: the second superblock and all files are still there."""
    image = old_volume(directory)
    header = bytearray(4096)
    header[1024:1036] = struct.pack("<3I", 1, 64 * MIB // 4096 - 1, 0)
    header[-10:] = b"SWAPSPACE2"
    with image.open("r+b") as file:
        file.write(header)
    return image


def leaves(group: click.Group = main, path: str = "") -> list[str]:
    """Every command of the tree."""
    found: list[str] = []
    context = click.Context(group, info_name="f2tools")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found += leaves(command, f"{path}{name} ") if isinstance(command, click.Group) else [f"{path}{name}"]
    return found


def test_every_command_has_its_line() -> None:
    known = {named(line) for line in (*CHANGING, *READING, *FORMATTING)} | {*NO_IMAGE, *SERVED}
    assert known == {name for name in leaves() if not name.startswith(OTHERS)}


def places(image: Path, directory: Path) -> dict[str, str]:
    outside, trace = directory / "outside", directory / "trace"
    outside.write_bytes(b"x" * 5000)
    trace.write_text("  8,0    1        1     0.000000000   100  Q   W 2048 + 8 [cp]\n")
    return {"i": str(image), "d": str(directory), "f": str(outside), "t": str(trace)}


@pytest.mark.peer
def test_every_command_names_ext4_and_none_harms_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what is advised keeps its undo logs there
    image = with_ext4(tmp_path)
    before = digest(image)
    words = places(image, tmp_path)
    followed: set[str] = set()
    for line in (*CHANGING, *READING, "mkfs {i}", "fsck -y --rescue {i}", "fsck -p {i}", "fsck -f -y {i}"):
        if named(line) in NOT_ASKED:
            continue
        done = f2(*filled(line, **words))
        assert done.code or "--salvage" in line or named(line) in LOOKS_BELOW + NAMES_IT, (line, done)
        answers = named(line) == "doctor"  # and need not say it twice
        assert "ext4" in (os.fsdecode(done.out) if answers else done.err), (line, done)
        assert digest(image) == before, line
        followed |= set(re.findall(r"`(f2tools [^`]*)`", done.err + os.fsdecode(done.out)))
    assert followed
    assert not [command for command in followed if " -y" in command], "a repair destroys ext4"
    for number, command in enumerate(sorted(followed)):
        _, *advised = shlex.split(command.replace("DIR", str(tmp_path / f"advised-{number}")))
        f2(*advised)
        assert digest(image) == before, command
    assert judges.run_tool(judges.need_tool("e2fsck"), "-fn", image).rc == 0


@pytest.mark.parametrize(
    "line", [line for line in CHANGING if named(line) not in ("undo", "recover") and "--minimum" not in line]
)
def test_a_volume_below_swap_space_is_not_written_to(line: str, swapped: Path, tmp_path: Path) -> None:
    image = copy_sparse(swapped, tmp_path / "card.img")
    before = digest(image)
    done = f2(*filled(line, **places(image, tmp_path)))
    assert done.code
    assert "swap space" in done.err
    assert digest(image) == before


@pytest.fixture(scope="module")
def swapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_swap(tmp_path_factory.mktemp("swapped"))


def test_what_lies_below_swap_space_is_shown_with_a_warning(swapped: Path) -> None:
    done = f2("dump", "ls", swapped)
    assert done.code == 0
    assert "photo.jpg" in done.text
    assert "swap space was made over this volume" in done.err


def test_force_repairs_over_swap_space_and_undo_brings_it_back(swapped: Path, tmp_path: Path) -> None:
    image = copy_sparse(swapped, tmp_path / "card.img")
    before = digest(image)
    log = tmp_path / "log.undo"
    done = f2("fsck", "-y", "--force", "--undo", log, image)
    assert done.code == 1, done.err
    assert "photo.jpg" in f2("dump", "ls", image).text
    assert f2("undo", log, image).code == 0
    assert digest(image) == before


# -- what is there ----------------------------------------------------------------------------------------------------


def packed(write: Callable[[bytes], bytes]) -> Callable[[Path, bytes], None]:
    return lambda path, data: [path.write_bytes(write(data)), None][1]


def as_tar(path: Path, data: bytes) -> None:
    inner = path.with_name("inner.img")
    inner.write_bytes(data)
    with tarfile.open(path, "w") as archive:
        archive.add(inner, "inner.img")


def as_zip(path: Path, data: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.img", data)


@pytest.mark.parametrize(
    ("name", "write", "command"),
    [
        ("card.img.gz", packed(gzip.compress), "gzip -dk "),
        ("card.img.xz", packed(lzma.compress), "xz -dk "),
        ("card.img.bz2", packed(bz2.compress), "bzip2 -dk "),
        ("card img.tar", as_tar, "tar -xf "),
        ("card.zip", as_zip, "unzip "),
    ],
)
def test_a_packed_image_is_named_with_the_command_that_unpacks_it(
    name: str, write: Callable[[Path, bytes], None], command: str, tmp_path: Path
) -> None:
    image = tmp_path / name
    write(image, reference("base").path.read_bytes()[: 4 * MIB])
    for words in (("fsck",), ("dump", "info"), ("fsck", "-y", "--rescue")):
        done = f2(*words, image)
        assert done.code in (8, 16)
        if "--rescue" not in words:
            assert f"{command}{shlex.quote(str(image))}" in done.err, done.err
    salvaged = f2("fsck", "--rescue", "--salvage", tmp_path / "out", image)
    assert (salvaged.code, "older F2FS volume" in salvaged.err) == (8, False), "none was found"


MAGIC = {
    "XFS": (0, b"XFSB", "xfs_repair -n"),
    "Btrfs": (0x10040, b"_BHRfS_M", "btrfs check"),
    "NTFS": (3, b"NTFS    ", "ntfsfix -n"),
    "exFAT": (3, b"EXFAT   ", "fsck.exfat"),
    "FAT": (82, b"FAT32   ", "fsck.fat"),
    "SquashFS": (0, b"hsqs", "unsquashfs"),
    "EROFS": (1024, b"\xe2\xe1\xf5\xe0", "fsck.erofs"),
    "swap space": (4086, b"SWAPSPACE2", "memory that was swapped out"),
    "LUKS": (0, b"LUKS\xba\xbe", "cryptsetup open"),
}


@pytest.mark.parametrize("name", MAGIC)
def test_a_file_system_is_named_with_what_reads_it(name: str, tmp_path: Path) -> None:
    offset, magic, advice = MAGIC[name]
    image = tmp_path / "other.img"
    with image.open("wb") as file:
        file.truncate(8 * MIB)
        file.seek(offset)
        file.write(magic)
    done = f2("dump", "info", image)
    assert done.code == 8
    assert f"not an F2FS image: it holds {name}" in done.err
    assert advice in done.err
    assert "fsck --rescue --salvage DIR" in done.err


def test_an_lvm_volume_is_named(tmp_path: Path) -> None:
    image = tmp_path / "pv.img"
    image.write_bytes((bytes(512) + b"LABELONE" + bytes(16) + b"LVM2 001").ljust(MIB, b"\0"))
    assert "LVM physical volume; activate it (vgchange -ay)" in f2("dump", "info", image).err


def test_an_empty_file_and_one_of_zeros_are_told_apart_from_noise(tmp_path: Path) -> None:
    image = tmp_path / "x.img"
    image.touch()
    assert "it is empty, 0 bytes long" in f2("fsck", image).err
    image.write_bytes(bytes(4 * MIB))
    assert "nothing but zeros" in f2("fsck", image).err
    image.write_bytes(bytes(2 * MIB) + b"\x17\x93 noise" * MIB)
    assert "begins with 2 MiB of zeros" in f2("fsck", image).err
    image.write_bytes(b"\x17\x93 noise" * MIB)
    assert "nothing else that is known is there" in f2("fsck", image).err
    image.write_bytes(b"\xff\xd8\xff\xe0" + bytes(MIB))
    assert "image/jpeg" in f2("fsck", image).err


def test_a_disk_without_f2fs_says_what_its_partitions_hold(tmp_path: Path) -> None:
    parts = []
    for number, (offset, magic, _) in enumerate((MAGIC["FAT"], MAGIC["EROFS"])):
        part = tmp_path / f"part{number}"
        part.write_bytes((bytes(offset) + magic).ljust(4 * MIB, b"\0"))
        parts.append(part)
    disk = tmp_path / "disk.img"
    joined(parts, disk)
    done = f2("dump", "info", disk)
    assert done.code == 8
    assert "a disk with the partitions @1 (FAT), @2 (EROFS), none of which holds F2FS" in done.err
    assert "it holds EROFS" in f2("dump", "info", f"{disk}@2").err


def test_a_volume_of_8_kib_blocks_without_its_first_superblock_is_found_on_a_disk(tmp_path: Path) -> None:
    volume = tmp_path / "volume.img"
    assert f2("mkfs", "-q", "--block-size", "8192", volume, "--size", "96M").code == 0
    with volume.open("r+b") as file:
        file.write(bytes(4096))
    assert f2("mkfs", volume).code == 1, "mkfs sees that there is a volume"
    other = tmp_path / "other.img"
    other.write_bytes(bytes(MIB))
    disk = tmp_path / "disk.img"
    joined([other, volume], disk)
    assert f2("dump", "info", disk).code == 0
