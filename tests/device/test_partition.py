"""Partitioned disks: what sfdisk wrote is what is read, and nothing outside of a partition is ever touched."""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

import f2tools
from f2tools.device import open_device
from f2tools.device.base import Device, Wrapper
from f2tools.device.containers.partition import Partition, Slice, read_partitions
from f2tools.device.containers.unlisted import unlisted_volumes
from f2tools.device.media.image import create_image
from f2tools.device.open import file_and_part
from f2tools.errors import DeviceError, NotF2fs, Usage
from f2tools.fsck.facts.image import Image
from tests import images
from tests.dump.craft import f2

DATA = Path(__file__).parent / "data"
MIB = 1 << 20


def disk(kind: str, directory: Path, volumes: dict[int, str] | None = None) -> Path:
    """A disk with that table, and reference images at these sectors."""
    path = directory / f"{kind}.img"
    with path.open("wb") as out, (DATA / f"{kind}.zst").open("rb") as packed:
        reader = zstandard.ZstdDecompressor().stream_reader(packed)
        at = 0
        while chunk := reader.read(MIB):
            if chunk.count(0) != len(chunk):
                out.seek(at)
                out.write(chunk)
            at += len(chunk)
        out.truncate(at)
        for sector, name in (volumes or {}).items():
            with images.reference(name).path.open("rb") as image:
                out.seek(sector * 512)
                out.write(image.read())
    return path


def places(path: Path) -> list[tuple[int, int, int, str]]:
    with open_device(path, whole=True) as device:
        return [(one.number, one.start // 512, one.length // 512, one.name) for one in read_partitions(device)]


def test_a_gpt_is_what_sfdisk_wrote(tmp_path: Path) -> None:
    wanted = [(1, 2048, 8192, "boot"), (2, 16384, 131072, "userdata"), (3, 163840, 131072, "spare µSD")]
    path = disk("gpt", tmp_path)
    assert places(path) == wanted
    with path.open("r+b") as file:  # the first copy damaged
        file.seek(512 + 40)
        file.write(b"\xff")
    assert places(path) == wanted
    with path.open("r+b") as file:
        file.seek(-512 + 40, 2)
        file.write(b"\xff")
    assert places(path) == []


def test_an_mbr_with_logical_partitions_is_what_sfdisk_wrote(tmp_path: Path) -> None:
    wanted = [(1, 2048, 8192, ""), (5, 18432, 131072, ""), (6, 163840, 131072, "")]
    assert places(disk("mbr", tmp_path)) == wanted


def gpt_4k(path: Path, *names: str) -> None:
    """A disk of 96 MiB with sectors of 4096 bytes and partitions of these names, of 64 MiB and from sector 2048 on."""
    table = b""
    for number, name in enumerate(names, 1):
        table += uuid.UUID(int=1).bytes_le + uuid.UUID(int=1 + number).bytes_le
        table += struct.pack("<QQQ", 2047 + number, 2047 + number + 16383, 0) + name.encode("utf-16-le").ljust(
            72, b"\0"
        )
    table = table.ljust(128 * 128, b"\0")
    head = struct.pack("<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, 0, 0, 1, 0, 6, 0, bytes(16), 2, 128, 128,
                       zlib.crc32(table))  # fmt: skip
    head = head[:16] + struct.pack("<I", zlib.crc32(head)) + head[20:]
    with path.open("wb") as out:
        out.truncate(96 * MIB)
        out.seek(4096)
        out.write(head)
        out.seek(2 * 4096)
        out.write(table)


def test_a_gpt_with_sectors_of_4096_bytes_is_read_too(tmp_path: Path) -> None:
    gpt_4k(tmp_path / "disk", "data")
    with open_device(tmp_path / "disk") as device:
        found = read_partitions(device)
    assert [(one.number, one.start, one.length, one.name) for one in found] == [(1, 8 * MIB, 64 * MIB, "data")]


def test_whatever_labels_say_each_partition_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    gpt_4k(path, "3", "x@2", "2", "7")
    for part, number in (("1", 1), ("2", 2), ("3", 3), ("x@2", 2), ("7", 4)):
        with open_device(f"{path}@{part}") as device:
            assert isinstance(device, Slice)
            assert device.start == (2047 + number) * 4096
    (tmp_path / "disk@x").write_bytes(path.read_bytes())
    assert file_and_part(f"{path}@x@2") == (f"{path}@x", "2")


@pytest.mark.parametrize(("kind", "part"), [("gpt", "2"), ("gpt", "userdata"), ("mbr", "5"), ("mbr", "+9437184")])
def test_a_partition_is_named_after_the_image(kind: str, part: str, tmp_path: Path) -> None:
    case = images.reference("base")
    path = disk(kind, tmp_path, {16384 if kind == "gpt" else 18432: "base"})
    result = f2("dump", "manifest", f"{path}@{part}")
    assert result.code == 0, result.err
    assert json.loads(result.out)["entries"] == case.manifest()["entries"]


def test_a_name_a_guid_and_an_offset_lead_to_the_same_volume(tmp_path: Path) -> None:
    path = disk("gpt", tmp_path, {16384: "base", 163840: "casefold"})
    base, plain = (f2("dump", "info", images.reference(name).path, "--json").out for name in ("base", "casefold"))
    for part in ("@2", "@11111111-2222-3333-4444-555555555502", "@+8388608", "@+0x800000", "@+8M", "@+16384s"):
        assert json.loads(f2("dump", "info", f"{path}{part}", "--json").out)["uuid"] == json.loads(base)["uuid"]
    assert json.loads(f2("dump", "info", path, "--offset", "8M", "--json").out)["uuid"] == json.loads(base)["uuid"]
    found = json.loads(f2("dump", "info", f"{path}@spare µSD", "--json").out)
    assert found["uuid"] == json.loads(plain)["uuid"]
    assert found["device_bytes"] == 64 * MIB


def test_a_path_in_a_partition_is_written_as_one_in_an_image(tmp_path: Path) -> None:
    path = disk("gpt", tmp_path, {16384: "base", 163840: "casefold"})
    for part in ("@2", "@userdata", "@+8M"):
        wanted = f2("dump", "ls", f"{path}{part}", "/")
        assert wanted.code == 0, wanted.err
        assert f2("dump", "ls", f"{path}{part}:/").out == wanted.out
    assert f2("mkdir", f"{path}@+8M:/one").code == 0
    assert f2("mkdir", f"{path}:/two", "--offset", "16384s").code == 0
    assert f2("edit", path, "--offset", "8M", "-c", "rmdir /one").code == 0
    assert f2("cp", f"{path}:/two", "-r", tmp_path / "out", "--offset", "8M").code == 0
    assert (tmp_path / "out").is_dir()
    result = f2("mkdir", f"{path}@2:/three", "--offset", "8M")
    assert (result.code, "says it twice" in result.err) == (2, True)


def test_the_only_volume_of_a_disk_need_not_be_named_but_one_of_several_must(tmp_path: Path) -> None:
    path = disk("gpt", tmp_path, {163840: "casefold"})
    with f2tools.open(path) as volume:
        assert volume.device.name == f"{path}@3"
        assert not volume.warnings
    disk("gpt", tmp_path, {16384: "base", 163840: "casefold"})
    result = f2("dump", "ls", path)
    assert result.code == 2
    assert "@2 'userdata'" in result.err
    assert "@3 'spare µSD'" in result.err
    assert "@1" not in result.err
    result = f2("dump", "ls", f"{path}@4")
    assert (result.code, "@1 'boot'" in result.err) == (2, True)
    assert f2("dump", "ls", f"{path}@1").code == 8
    with pytest.raises(NotF2fs):
        f2tools.open(disk("mbr", tmp_path))


def test_a_file_with_an_at_in_its_name_is_just_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "a@2").write_bytes(b"")
    assert file_and_part(tmp_path / "a@2") == (f"{tmp_path}/a@2", "")
    assert file_and_part(tmp_path / "a@3") == (f"{tmp_path}/a", "3")
    assert file_and_part(tmp_path / "b@3") == (f"{tmp_path}/b@3", "")
    assert file_and_part(tmp_path / "a@") == (f"{tmp_path}/a@", "")


def _painted(path: Path) -> None:
    """Everything on the disk that lies outside of partition 2 and is zero gets a colour."""
    content = bytearray(path.read_bytes())
    first, end = 16384 * 512, (16384 + 131072) * 512
    for low, high in ((64 * 512, first), (end, len(content) - 64 * 512)):
        content[low:high] = b"\xa5" * (high - low)
    path.write_bytes(content)


def _outside(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha256(content[: 16384 * 512] + content[(16384 + 131072) * 512 :]).hexdigest()


def test_what_is_written_to_a_partition_stays_inside(tmp_path: Path) -> None:
    path = disk("gpt", tmp_path)
    _painted(path)
    before = _outside(path)
    part = f"{path}@userdata"
    (tmp_path / "file").write_bytes(b"x" * 3 * MIB)
    assert f2("mkfs", "-q", part).code == 0
    assert f2("cp", tmp_path / "file", f"{part}:/file").code == 0
    with f2tools.open(part, write=True) as volume:
        ino = volume.create(volume.root.inode.ino, b"more", 0o644)
        for at in range(2):
            volume.write(ino, at * 4 * MIB, b"y" * 4 * MIB)
    with f2tools.open(path) as volume:
        assert volume.path("/more").inode.i_size == 8 * MIB
        assert volume.path("/file").read() == b"x" * 3 * MIB
        offset = volume.geo.main_blkaddr * 4096
    with path.open("r+b") as file:  # damage that fsck mends, inside
        file.seek(16384 * 512 + 1024 + 64)
        file.write(b"\xff" * 8)
    assert offset
    assert f2("fsck", "-y", part).code in (0, 1)
    assert f2("clean", part).code == 0
    assert _outside(path) == before
    assert f2("fsck", part).code == 0


def test_a_slice_refuses_what_lies_outside(tmp_path: Path) -> None:
    with create_image(tmp_path / "disk", 64 * 1024) as base, Slice(base, 4096, 8192) as part:
        part.pwrite(0, b"a" * 8192)
        assert part.pread(8191, 1) == b"a"
        for change in (
            lambda: part.pwrite(8191, b"bb"),
            lambda: part.pwrite(-1, b"b"),
            lambda: part.discard(4096, 8192),
            lambda: part.write_zeroes(8192, 1),
            lambda: part.trim(0, 8193),
            lambda: part.resize(16384),
            lambda: part.pread(8192, 1),
            lambda: part.extent_source(8000, 4096),
        ):
            with pytest.raises(DeviceError):
                change()
        assert list(part.data_ranges(0, 8192)) == [(0, 8192)]
        assert base.pread(4095, 1) == base.pread(4096 + 8192, 1) == b"\0"
        assert Slice(base, 60 * 1024, 1 << 30).size_bytes == 4096
        with pytest.raises(DeviceError, match="begins at byte"):
            Slice(base, 64 * 1024)


def test_tables_made_to_hurt_do_not(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    sector = bytearray(512)
    sector[510:] = b"\x55\xaa"
    sector[446:462] = struct.pack("<B3xB3xII", 0, 0x05, 1, 8)
    again = bytearray(sector)
    again[446:462] = struct.pack("<B3xB3xII", 0, 0x83, 1, 0xFFFFFFFF)
    again[462:478] = struct.pack("<B3xB3xII", 0, 0x05, 0, 8)  # leads to itself
    path.write_bytes(bytes(sector) + bytes(again) + bytes(8192))
    with open_device(path, whole=True) as device:
        assert read_partitions(device) == [Partition(5, 1024, 0xFFFFFFFF * 512, "0x83")]
    with pytest.raises(Usage):
        open_device(f"{path}@7")
    with open_device(f"{path}@5") as device:
        assert device.size_bytes == path.stat().st_size - 1024
    head = struct.pack(
        "<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, 0, 0, 1, 0, 6, 0, bytes(16), 2, 1 << 30, 1 << 30, 0
    )
    head = head[:16] + struct.pack("<I", zlib.crc32(head)) + head[20:]
    path.write_bytes(bytes(512) + head + bytes(8192))
    assert places(path) == []


@pytest.mark.parametrize("start", [MIB, 63 * 512, 11 * MIB])
def test_a_volume_is_found_where_the_partition_table_is_gone(start: int, tmp_path: Path) -> None:
    image = without_table(tmp_path, start)
    name = f"{image}@+{start}"
    assert name in f2("dump", "ls", image).err
    said = f2("doctor", image).text
    assert f"f2tools doctor {name}" in said
    assert name in f2("fsck", "--rescue", "--salvage", tmp_path / "out", image).err
    assert name in f2("fsck", "--rescue", "--layout", "start=1M", image).err
    assert f2("fsck", name).code == 0


def test_all_volumes_are_named_and_none_that_lies_in_another(tmp_path: Path) -> None:
    image = without_table(tmp_path, MIB, 80 * MIB)
    with image.open("r+b") as file:
        superblocks = images.reference("base").path.read_bytes()[: 2 * 4096]
        file.seek(40 * MIB)
        file.write(superblocks)
    with open_device(image) as device:
        assert [one.start for one in unlisted_volumes(device)] == [MIB, 80 * MIB]
        assert [one.start for one in unlisted_volumes(Slice(device, 512))] == [MIB - 512, 80 * MIB - 512]
        assert {one.name for one in unlisted_volumes(Slice(device, 512))} == {
            f"{image}@+{MIB}",
            f"{image}@+{80 * MIB}",
        }


def test_far_behind_the_start_a_volume_is_looked_for_by_the_mebibyte_and_in_every_sector_if_asked(
    tmp_path: Path,
) -> None:
    image = without_table(tmp_path, 150 * MIB, 250 * MIB + 512)
    with image.open("r+b") as file:
        file.write(b"\xa5" * (80 * MIB))
    with open_device(image) as device:
        assert [one.start for one in unlisted_volumes(device)] == [150 * MIB]
        assert [one.start for one in unlisted_volumes(device, everywhere=True)] == [150 * MIB, 250 * MIB + 512]


class Vast(Wrapper):
    """The space of a storage layer, 2^73 bytes, of which a device is the end."""

    def __init__(self, end: Device) -> None:
        super().__init__(end)
        self.size_bytes = 1 << 73
        self.begin = self.size_bytes - end.size_bytes

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        yield self.begin, self.size_bytes - self.begin

    def pread_into(self, offset: int, buffer: Any) -> None:
        super().pread_into(offset - self.begin, buffer)


def test_a_volume_far_beyond_the_numbers_of_files_is_found(tmp_path: Path) -> None:
    with Vast(open_device(without_table(tmp_path, MIB))) as device:
        assert [one.start for one in unlisted_volumes(device)] == [device.begin + MIB]


class Counted(Wrapper):
    """A device that counts what is read of it."""

    read = 0

    def pread_into(self, offset: int, buffer: Any) -> None:
        self.read += len(buffer)
        super().pread_into(offset, buffer)


def test_of_a_url_only_the_start_is_looked_through(tmp_path: Path) -> None:
    image = without_table(tmp_path, 150 * MIB)
    with image.open("r+b") as file:
        file.write(b"\xa5" * (80 * MIB))
    with Counted(open_device(image)) as device:
        device.name = "https://host/card.img"
        assert list(unlisted_volumes(device)) == []
        assert device.read <= 16 * MIB
        assert len(list(unlisted_volumes(device, everywhere=True))) == 1


def test_a_check_looks_for_volumes_once(tmp_path: Path) -> None:
    (image := tmp_path / "noise").write_bytes(b"\xa5" * (20 * MIB))
    with Counted(open_device(image)) as device:
        with pytest.raises(NotF2fs):
            Image(device)
        assert device.read < 30 * MIB


def test_one_copy_of_a_superblock_is_no_volume(tmp_path: Path) -> None:
    image = without_table(tmp_path, MIB)
    with image.open("r+b") as file:
        file.seek(MIB + 4096)
        file.write(bytes(4096))
    with open_device(image) as device:
        assert list(unlisted_volumes(device, everywhere=True)) == []


def test_a_file_in_another_system_is_no_volume_of_the_disk(tmp_path: Path) -> None:
    """The other system is named first, and no step leads to a repair in the middle of it."""
    image = without_table(tmp_path, MIB)
    with image.open("r+b") as file:
        file.seek(1080)
        file.write(b"\x53\xef")  # s_magic of ext2
    name = f"{image}@+{MIB}"
    for said in (f2("dump", "ls", image).err, f2("doctor", image).text):
        assert "it holds ext2" in said
        assert name not in said
    assert "may be a file in that" in (said := f2("fsck", "--rescue", image).err)
    assert name in said


def without_table(directory: Path, *starts: int) -> Path:
    """A disk with a volume at each of these bytes, and no partition table."""
    image, volume = directory / "card.img", images.reference("base").path.read_bytes()
    with image.open("wb") as file:
        for start in starts:
            for at in range(0, len(volume), MIB):
                if any(volume[at : at + MIB]):
                    file.seek(start + at)
                    file.write(volume[at : at + MIB])
        file.truncate(starts[-1] + len(volume) + 4 * MIB)
    return image
