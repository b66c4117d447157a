"""Split images and containers: what other tools wrapped is read byte for byte, and never written."""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from urllib.parse import quote

import pytest
import zstandard

import f2tools
from f2tools.device import open_device
from f2tools.device.containers.aff4 import snappy
from f2tools.device.containers.sparse import write_sparse
from f2tools.device.containers.split import joined_by, pieces_of
from f2tools.errors import DeviceError, F2fsError, Unsupported
from tests.dump.craft import f2

DATA = Path(__file__).parent / "data"
CONTAINERS = (
    "small.qcow2", "small-zstd.qcow2", "small.vmdk", "small.vhdx", "small.E01", "small-zlib.aff4", "small-snappy.aff4",
    "small-lz4.aff4", "small-map.aff4",
)  # fmt: skip
PLAIN = "ba6f8afa16eec851993ecb9f6b726d6538ad55af1762e5747335d706d34e999e"


def unpacked(name: str, directory: Path) -> Path:
    path = directory / name
    with (DATA / f"{name}.zst").open("rb") as packed, path.open("wb") as out:
        zstandard.ZstdDecompressor().copy_stream(packed, out)
    return path


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_holds_the_volume_that_was_put_in(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    before = path.stat()
    digest = hashlib.sha256()
    with open_device(path) as device:
        assert device.read_only
        for offset in range(0, device.size_bytes, 1 << 22):
            digest.update(device.pread(offset, min(1 << 22, device.size_bytes - offset)))
        assert digest.hexdigest() == PLAIN
        draw = random.Random(3)
        whole = device.pread(8 << 20, 4 << 20)
        for _ in range(60):
            at, length = draw.randrange(3 << 20), draw.randrange(1 << 18)
            assert device.pread((8 << 20) + at, length) == whole[at : at + length]
        if "qcow2" in name or "map" in name:  # which know their holes
            image = bytearray(device.size_bytes)
            for at, length in device.data_ranges(0, device.size_bytes):
                image[at : at + length] = device.pread(at, length)
            assert hashlib.sha256(image).hexdigest() == PLAIN
        with pytest.raises(DeviceError, match="past its end"):
            device.pread(device.size_bytes - 1, 2)
        with pytest.raises(DeviceError, match="read-only"):
            device.pwrite(0, b"x")
    with f2tools.open(path) as volume:
        assert volume.path("/hello.txt").read() == b"hello from inside\n"
    after = path.stat()
    assert (after.st_mtime_ns, after.st_atime_ns, after.st_size) == (
        before.st_mtime_ns,
        before.st_atime_ns,
        before.st_size,
    )


@pytest.mark.parametrize("name", CONTAINERS)
def test_what_writes_refuses_a_container(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    for command in (("mkfs", "-f", path), ("rm", f"{path}:/hello.txt"), ("clean", path)):
        result = f2(*command)
        assert result.code != 0
        assert "is only read" in result.err, command
    assert f2("fsck", path).code == 0


def test_a_container_that_is_cut_off_or_damaged_is_an_error_and_no_crash(tmp_path: Path) -> None:
    draw = random.Random(11)
    for name in CONTAINERS:
        content = unpacked(name, tmp_path).read_bytes()
        for number in range(6):
            broken = bytearray(content)
            if number % 2:
                broken = broken[: draw.randrange(8, len(broken))]
            else:
                for _ in range(50):
                    broken[draw.randrange(8, min(len(broken), 1 << 16))] = draw.randrange(256)
            path = tmp_path / f"broken{number}{Path(name).suffix}"
            path.write_bytes(broken)
            try:
                with open_device(path) as device:
                    device.pread(0, min(device.size_bytes, 1 << 20))
            except F2fsError:
                pass
            path.unlink()


def test_without_the_library_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyewf", None)
    path = unpacked("small.E01", tmp_path)
    with pytest.raises(Unsupported, match=r"pip install 'f2tools\[containers\]'"):
        open_device(path)


def test_a_virtualbox_image_is_named_and_refused(tmp_path: Path) -> None:
    (tmp_path / "disk.vdi").write_bytes(b"<<< Oracle VM VirtualBox Disk Image >>>\n".ljust(4096, b"\0"))
    with pytest.raises(Unsupported, match="VirtualBox"):
        open_device(tmp_path / "disk.vdi")


def test_a_qcow2_image_on_top_of_another_one_shows_what_is_below(tmp_path: Path) -> None:
    below = unpacked("small.qcow2", tmp_path)
    size, name = 48 << 20, below.name.encode()
    head = struct.pack(">4sIQIIQIIQQIIQ", b"QFI\xfb", 2, 72, len(name), 16, size, 0, 1, 65536, 131072, 1, 0, 0)
    table = struct.pack(">Q", 3 << 16)  # one table of clusters, with one cluster of zeros
    over = tmp_path / "over.qcow2"
    first = struct.pack(">Q", 4 << 16).ljust(65536, b"\0")
    over.write_bytes((head + name).ljust(65536, b"\0") + table.ljust(131072, b"\0") + first + b"\x77" * 65536)
    with open_device(over, whole=True) as device, open_device(below) as plain:
        assert device.pread(0, 65536) == b"\x77" * 65536
        assert device.pread(65536, 4 << 20) == plain.pread(65536, 4 << 20)
        assert device.pread(65000, 2000) == b"\x77" * 536 + plain.pread(65536, 1464)
    over.write_bytes(
        head.replace(struct.pack(">I", len(name)), struct.pack(">I", 10)) + b"over.qcow2".ljust(300000, b"\0")
    )
    with pytest.raises(DeviceError, match="builds on"):
        open_device(over)


def test_an_aff4_image_of_a_disk_is_a_map_of_streams(tmp_path: Path) -> None:
    """As imagers write it: the disk names a map, which lays out a stream and fillings; other names, packed metadata."""
    chunks = [bytes([i]) * 4096 for i in range(1, 11)]
    disk, layout, data = (f"aff4://{digit * 8}-0000" for digit in "123")
    turtle = f"""@prefix aff4: <http://aff4.org/Schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
<{disk}>
\ta aff4:DiskImage , aff4:Image ;
\taff4:dataStream <{layout}> ; # a remark
\taff4:hash "00ff"^^aff4:SHA1 , "aa; bb. "^^aff4:MD5;
\taff4:size "65536"^^xsd:long .
<{layout}> a aff4:Map ; aff4:size "65536"^^xsd:long; aff4:dependentStream <{data}>.
<{data}> a aff4:ImageStream ; aff4:chunkSize "4096"^^xsd:int ; aff4:chunksInSegment 4 ; aff4:size 40960 ;
  aff4:compressionMethod <https://tools.ietf.org/html/rfc1951> .
"""
    ranges = [(0, 4096, 8192, 0), (4096, 8192, 1, 1), (16384, 40960, 0, 0), (57344, 4096, 0, 2)]
    path = tmp_path / "disk.aff4"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("container.description", "aff4://own")
        archive.writestr("information.turtle", turtle, zipfile.ZIP_DEFLATED)
        stem = quote(layout, safe="")
        archive.writestr(f"{stem}/map", b"".join(struct.pack("<QQQI", *one) for one in ranges), zipfile.ZIP_DEFLATED)
        fillings = ("SymbolicStream41", "UnreadableData")
        archive.writestr(f"{stem}/idx", "\n".join([data, *(f"http://aff4.org/Schema#{one}" for one in fillings)]))
        for bevy in range(3):
            some, index = b"", b""
            for chunk in chunks[4 * bevy : 4 * bevy + 4]:
                packed = zlib.compress(chunk)[2:-4]
                index += struct.pack("<QI", len(some), len(packed))
                some += packed
            archive.writestr(f"{quote(data, safe='')}/{bevy:08d}", some)
            archive.writestr(f"{quote(data, safe='')}/{bevy:08d}.index", index, zipfile.ZIP_DEFLATED)
    wanted = chunks[2] + b"A" * 8192 + bytes(4096) + b"".join(chunks) + bytes(8192)
    with open_device(path) as device:
        assert device.pread(0, device.size_bytes) == wanted
        assert list(device.data_ranges(0, 65536)) == [(0, 4096), (4096, 8192), (16384, 40960)]
    other = tmp_path / "just.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("version.txt", "1")
    with pytest.raises(Unsupported, match="not an AFF4 image"):
        open_device(other)
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme", "a zip file is no image")
    with open_device(other) as device:
        assert device.pread(0, 4) == b"PK\x03\x04"


def test_snappy_by_its_description() -> None:
    assert snappy(b"\x0b\x08abc\x11\x03", 100) == b"abcabcabcab"  # three literals, eight bytes from three back
    assert snappy(b"\x05\xf0\x04hello", 100) == b"hello"
    assert snappy(b"\x08\x0cabcd\x0e\x04\0", 100) == b"abcdabcd"
    for wrong in (b"", b"\x05\x10hel", b"\x08\x08abc\x15\x09", b"\xff\xff\x7f"):
        with pytest.raises((ValueError, IndexError)):
            snappy(wrong, 100)


def test_a_split_image_is_read_as_one(tmp_path: Path) -> None:
    image = unpacked("small.img", tmp_path).read_bytes()
    for number, at in enumerate(range(0, len(image), 10_000_001), 1):
        (tmp_path / f"disk.{number:03}").write_bytes(image[at : at + 10_000_001])
    (tmp_path / "disk.001.txt").write_text("a log")
    first = tmp_path / "disk.001"
    with open_device(first) as device:
        assert device.size_bytes == len(image)
        assert device.pread(0, len(image)) == image
        assert device.pread(9_999_990, 10_000_100) == image[9_999_990:20_000_090]
        assert device.extent_source(9_999_990, 100) is None
        with pytest.raises(DeviceError):
            device.pread(len(image) - 1, 2)
    assert f2("dump", "cat", first, "/hello.txt").out == b"hello from inside\n"
    assert f2("dump", "extract", first, "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out/docs/noise").stat().st_size == 30000
    result = f2("mkfs", "-f", first)
    assert result.code != 0
    assert "pieces is only read" in result.err
    os.unlink(tmp_path / "disk.003")
    with pytest.raises(DeviceError, match=r"disk\.003: this piece"):
        open_device(first)


def test_a_report_looks_at_the_checksums_that_reading_leaves_out(tmp_path: Path) -> None:
    with open_device(unpacked("small.img", tmp_path)) as device:
        write_sparse(device, tmp_path / "small.simg", checksum=True)
    for name, at, wanted in (
        ("small.simg", -2, "have CRC-32"),
        ("small-lz4.aff4", 155707, "is damaged: Bad CRC-32"),
    ):
        path = tmp_path / name if (tmp_path / name).exists() else unpacked(name, tmp_path)
        assert f2("report", path, "-o", tmp_path / f"{name}.sound").code == 0
        content = bytearray(path.read_bytes())
        content[at] ^= 0xFF
        path.write_bytes(content)
        done = f2("report", path, "-o", tmp_path / f"{name}.damaged")
        assert done.code == 1
        assert wanted in done.err
        found = json.loads((tmp_path / f"{name}.damaged/report.json").read_text())
        assert any(wanted in text for text in found["warnings"])


SIZES = {  # MiB of each piece, and which one is named
    "one in the middle is short": ((8, 8, 3, 8, 8), 3, "shorter"),
    "one is short, and the last one as much longer": ((8, 8, 3, 8, 13), 3, "shorter"),
    "the first one is short": ((3, 8), 2, "longer"),
    "one is long": ((8, 8, 9, 8), 3, "longer"),
    "the last one is long": ((8, 8, 9), 3, "longer"),
}


@pytest.mark.parametrize("how", SIZES)
def test_pieces_that_do_not_fit_are_refused(how: str, tmp_path: Path) -> None:
    sizes, number, said = SIZES[how]
    for index, size in enumerate(sizes, 1):
        with (tmp_path / f"disk.{index:03}").open("wb") as piece:
            piece.truncate(size << 20)
    wanted = rf"disk\.{number:03}: this piece of the image has {sizes[number - 1] << 20} bytes, and is {said} than"
    with pytest.raises(DeviceError, match=wanted):
        open_device(tmp_path / "disk.001")
    assert "cut off" not in f2("dump", "ls", tmp_path / "disk.001").err


def test_piece_1000_follows_999_and_a_link_to_the_first_is_as_good(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for number in range(1, 1003):
        (tmp_path / "parts" / f"disk.{number:03}").write_bytes(number.to_bytes(2, "little") * 256)
    (tmp_path / "parts" / "disk.20240101").touch()
    first = tmp_path / "parts" / "disk.001"
    (tmp_path / "link").symlink_to(first)
    for name in (first, tmp_path / "link"):
        with open_device(name, whole=True) as device:
            assert device.size_bytes == 1002 * 512
            assert device.pread(1001 * 512, 2) == (1002).to_bytes(2, "little")
    joined = joined_by(pieces_of(first)).replace("COPY", str(tmp_path / "whole"))
    assert subprocess.run(["sh", "-c", joined], check=False).returncode == 0
    assert (tmp_path / "whole").stat().st_size == 1002 * 512


def test_what_only_looks_like_a_piece_is_an_image(tmp_path: Path) -> None:
    for name in ("one.001", "two.1", "two.2", "three.002", "three.003"):
        (tmp_path / name).write_bytes(bytes(4096))
    assert [pieces_of(tmp_path / name) for name in ("one.001", "two.1", "three.002")] == [[], [], []]
    (tmp_path / "zero.000").touch()
    (tmp_path / "zero.001").touch()
    assert len(pieces_of(tmp_path / "zero.000")) == 2
    assert pieces_of(tmp_path / "zero.001") == []
