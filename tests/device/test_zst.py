"""Images packed with zstd: read like the image in them, never written, and refused where they are not whole."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import zstandard

from f2tools.device import open_device
from f2tools.errors import DeviceError
from tests.device.test_containers import unpacked
from tests.dump.craft import f2
from tests.images import reference
from tests.judges import need_tool


@pytest.fixture(scope="module")
def raw() -> Path:
    return reference("base").path


@pytest.fixture(scope="module")
def packed(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two frames with one of another program between them, as pzstd and others write it."""
    path = tmp_path_factory.mktemp("zst") / "base.img.zst"
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    with raw.open("rb") as image, path.open("wb") as out:
        out.write(compressor.compress(image.read(5 << 20)))
        out.write(b"\x52\x2a\x4d\x18\x04\0\0\0skip")
        compressor.copy_stream(image, out)  # of no known size
    return path


def test_a_packed_image_reads_as_the_image_in_it(raw: Path, packed: Path) -> None:
    assert f2("dump", "manifest", packed).out == f2("dump", "manifest", raw).out
    with open_device(packed) as device, open_device(raw) as plain:
        assert device.size_bytes == plain.size_bytes
        for at in (0, 4096, (5 << 20) - 3, plain.size_bytes - 100):
            assert device.pread(at, 100) == plain.pread(at, 100)
        assert device.read_only
        assert device.files() == [str(packed)]
        told = sum(length for _, length in device.data_ranges(0, device.size_bytes))
        assert told < device.size_bytes // 2  # zeros take no room
    assert f2("undelete", packed).code == 0


def test_a_report_has_the_hashes_of_both(raw: Path, packed: Path) -> None:
    from f2tools.forensics.report import _image

    found = _image(str(packed), True)
    with raw.open("rb") as image:
        assert found["content"]["sha256"] == hashlib.file_digest(image, "sha256").hexdigest()
    assert found["file"]["sha256"] == hashlib.sha256(packed.read_bytes()).hexdigest()


def test_reading_a_packed_image_leaves_its_time_of_access(packed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "base.img.zst"
    shutil.copy(packed, copy)
    times = (10**18, 2 * 10**18)  # read before it was written: any mount but one with noatime would set the first
    os.utime(copy, ns=times)
    for command in (("dump", "ls"), ("fsck", "-n"), ("info",)):
        assert f2(*command, copy).code == 0
        assert (copy.stat().st_atime_ns, copy.stat().st_mtime_ns) == times, command


def test_a_packed_image_is_not_written(packed: Path) -> None:
    before = packed.read_bytes()
    for words in (("label", packed, "NEW"), ("mkdir", f"{packed}:/x")):
        done = f2(*words)
        assert done.code != 0
        assert "packed with zstd is only read" in done.err
    assert packed.read_bytes() == before


@pytest.mark.parametrize("left", [6, 1000, -3, -5000])
def test_one_that_is_cut_off_says_so(packed: Path, tmp_path: Path, left: int) -> None:
    cut = tmp_path / "cut.zst"
    cut.write_bytes(packed.read_bytes()[:left])
    with pytest.raises(DeviceError, match=r"cut off|is not zstd: not enough data"):
        open_device(cut)


def test_of_one_that_is_cut_off_what_is_there_can_be_unpacked_and_salvaged(raw: Path, tmp_path: Path) -> None:
    need_tool("zstd")
    cut = tmp_path / "cut.zst"
    subprocess.run(["zstd", "-q", raw, "-o", cut], check=True)
    cut.write_bytes(cut.read_bytes()[:-1000])
    said = f2("doctor", cut).err
    command = f"zstd -dc {cut} > COPY"
    assert f"`{command}` unpacks what is there, and `f2tools fsck --salvage DIR COPY` copies" in said
    subprocess.run(command, shell=True, cwd=tmp_path, check=False)
    assert f2("fsck", "--salvage", tmp_path / "out", tmp_path / "COPY").code in (0, 4)
    assert any((tmp_path / "out" / "files").iterdir())


@pytest.mark.parametrize("command", [("doctor",), ("fsck", "--rescue", "--salvage", "DIR"), ("info",)], ids=" ".join)
def test_a_packed_image_of_another_kind_is_to_be_unpacked_first(command: tuple[str, ...], tmp_path: Path) -> None:
    inner, path = unpacked("small.qcow2", tmp_path), tmp_path / "card.qcow2.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(inner.read_bytes()))
    done = f2(*(tmp_path / word if word == "DIR" else word for word in command), path)
    assert done.code in (1, 8)
    assert done.err == (
        f"f2tools: {path}: what is packed in it is no raw image; unpack it first: `zstd -d {path} -o COPY`\n"
    )


def test_one_that_is_damaged_says_so_and_leaves_nothing(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "room"))
    (tmp_path / "room").mkdir()
    content = bytearray(packed.read_bytes())
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "bad.zst").write_bytes(content)
    with pytest.raises(DeviceError):
        open_device(tmp_path / "bad.zst")
    with open_device(packed):
        assert os.listdir(tmp_path / "room") == []  # the file that it is unpacked into has no name


def test_where_there_is_no_room_it_is_said_what_to_do(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("f2tools.device.containers.zst.os.pwrite", full)
    with pytest.raises(DeviceError, match=r"no room to unpack it .*TMPDIR"):
        open_device(packed)
