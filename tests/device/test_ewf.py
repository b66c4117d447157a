"""E01 images that are damaged: what can't be trusted is an error that says where, and never zeros."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.errors import DeviceError
from tests.device.craft_ewf import sections, split, summed
from tests.device.test_containers import PLAIN, unpacked
from tests.dump.craft import f2

CHUNK = 32768


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return unpacked("small.E01", tmp_path)


def inverted(path: Path, at: int) -> Path:
    """A copy in which four bytes are others."""
    content = bytearray(path.read_bytes())
    content[at : at + 4] = bytes(byte ^ 0xFF for byte in content[at : at + 4])
    copy = path.with_stem("damaged")
    copy.write_bytes(content)
    return copy


def test_a_damaged_chunk_is_an_error_and_no_zeros(image: Path) -> None:
    damaged = inverted(image, 60000)
    with open_device(damaged) as device, open_device(image) as sound:
        with pytest.raises(DeviceError, match=r"the chunk at offset 0x1e00000 is damaged: its checksum is wrong"):
            device.pread(0x1E00000 + 5, 1)
        for at in (0x1E00000 - 100, 0x1E00000 + CHUNK):
            assert device.pread(at, 100) == sound.pread(at, 100)
        with pytest.raises(DeviceError, match="is damaged"):
            device.pread(0x1E00000 - 1, 2)
    hashes = f2("hashes", damaged, "--living", "--format", "sha256")
    assert hashes.code == 1
    assert b"docs/noise" not in hashes.out
    assert "/docs/noise" in hashes.err
    assert "is damaged" in hashes.err


def test_a_damaged_chunk_that_is_not_packed_is_an_error(image: Path) -> None:
    first, second = split(image.read_bytes(), image.with_stem("raw"), 2, packed=False)
    content = bytearray(second.read_bytes())
    content[CHUNK * 3] ^= 1
    second.write_bytes(content)
    with open_device(first) as device, pytest.raises(DeviceError, match=r"is damaged: its checksum is wrong, in .*E02"):
        device.pread(device.size_bytes // 2, device.size_bytes // 2)


def test_a_report_compares_with_the_hashes_of_the_acquisition(image: Path, tmp_path: Path) -> None:
    content = image.read_bytes()
    (stored,) = (at + 76 for kind, at, _ in sections(content) if kind == "hash")
    md5 = content[stored : stored + 16]
    assert f2("report", image, "-o", tmp_path / "sound").code == 0
    acquired = json.loads((tmp_path / "sound/report.json").read_text())["images"][0]["acquired"]
    assert acquired == {"stored": {"md5": md5.hex()}, "read": {"md5": md5.hex()}, "same": True}
    assert f"{md5.hex()}, as now" in (tmp_path / "sound/report.html").read_text()
    body = content[stored : stored + 16 + 16]
    other = summed(b"\x11" * 16 + body[16:])
    image.write_bytes(content[:stored] + other + content[stored + len(other) :])
    done = f2("report", image, "-o", tmp_path / "other")
    assert done.code == 1
    assert f"its MD5 was {'11' * 16} when it was acquired, and is {md5.hex()}" in done.err
    found = json.loads((tmp_path / "other/report.json").read_text())
    assert not found["images"][0]["acquired"]["same"]
    assert any("when it was acquired" in text for text in found["warnings"])
    assert "NOW" in (tmp_path / "other/report.html").read_text()


def test_a_report_on_an_image_with_a_damaged_chunk_has_no_hash_and_says_why(image: Path, tmp_path: Path) -> None:
    done = f2("report", inverted(image, 60000), "-o", tmp_path / "out")
    assert done.code == 1
    assert "the chunk at offset 0x1e00000 is damaged" in done.err
    found = json.loads((tmp_path / "out/report.json").read_text())["images"][0]
    assert "content" not in found
    assert "not all of it can be read" in found["unhashed"]
    assert found["file"]["sha256"]


def test_where_the_superblock_is_damaged_that_is_said(image: Path) -> None:
    damaged = inverted(image, 2000)
    for command in (("dump", "ls"), ("info",), ("undelete",), ("fsck", "-n", "--json")):
        result = f2(*command, damaged)
        assert result.code != 0
        assert "zeros" not in result.err, command
    assert "the chunk at offset 0x0 is damaged" in f2("dump", "ls", damaged).err
    said = f2("fsck", "-n", damaged)
    assert b"H001" in said.out
    assert b"ddrescue" not in said.out
    assert b"get a whole copy of it" in said.out


@pytest.mark.parametrize("command", [("dump", "ls"), ("info",), ("fsck", "-n"), ("hashes",)], ids=" ".join)
def test_half_an_image_is_said_to_be_cut_off(image: Path, command: tuple[str, ...]) -> None:
    half = image.with_stem("half")
    half.write_bytes(image.read_bytes()[: image.stat().st_size // 2])
    result = f2(*command, half)
    assert result.code == 8
    assert "this E01 image is cut off" in result.err
    assert "zeros" not in result.err


@pytest.mark.parametrize("smart", [False, True])
@pytest.mark.parametrize("packed", [True, False])
def test_an_image_in_several_files_is_read_whole(image: Path, packed: bool, smart: bool) -> None:
    first = split(image.read_bytes(), image.with_stem("parts"), 3, packed, smart)[0]
    with open_device(first) as device:
        assert len(device.files()) == 3
        assert device.missing_bytes == 0
        assert hashlib.sha256(device.pread(0, device.size_bytes)).hexdigest() == PLAIN


def test_what_lies_behind_a_file_that_is_cut_off_does_not_move_up(image: Path) -> None:
    first, second, _ = split(image.read_bytes(), image.with_stem("parts"), 3)
    second.write_bytes(second.read_bytes()[:-20000])
    with open_device(first) as device, open_device(image) as sound:
        assert device.pread(0, 512 * CHUNK) == sound.pread(0, 512 * CHUNK)
        for at in range(512 * CHUNK, device.size_bytes, 1 << 20):
            with pytest.raises(DeviceError, match=r"parts\.E02: this E01 image is cut off"):
                device.pread(at, 100)


@pytest.mark.parametrize("kept", [[0, 1], [0, 2]], ids=["the last file", "one between"])
def test_a_file_of_an_image_that_is_not_there_is_named_and_damage(image: Path, kept: list[int], tmp_path: Path) -> None:
    files = split(image.read_bytes(), image.with_stem("parts"), 3)
    for number in {0, 1, 2} - {*kept}:
        files[number].unlink()
    first, gone = files[0], files[2 if 1 in kept else 1]
    there = 512 * CHUNK * (2 if 1 in kept else 1)
    with open_device(first) as device:
        assert device.missing_bytes == device.size_bytes - there
        device.pread(there - 100, 100)
        with pytest.raises(DeviceError, match=f"the file after it, {gone.name}, is missing"):
            device.pread(there, 100)
    checked = f2("fsck", first)
    assert (checked.code, b"S009" in checked.out, gone.name in checked.err) == (4, True, True)
    assert b"parts.E01 is cut off; get a whole copy of it" in checked.out
    found = json.loads(f2("doctor", "--json", first).out)
    assert (found["healthy"], len(found["steps"])) == (False, 1)
    assert any(gone.name in text for text in found["risks"])
    scanned = f2("scan", first, "-o", tmp_path / "index")
    assert (scanned.code, "blocks could not be read" in scanned.err) == (1, True)


def test_damage_anywhere_is_an_error_or_does_no_harm(image: Path) -> None:
    """In chunks, tables, their copies, the heads of sections: the content is right, or there is an error."""
    content = image.read_bytes()
    places = [place for _, at, _ in sections(content) for place in (at, at + 20, at + 80, at + 100)]
    places += range(30, len(content) - 4, 6007)
    for at in places:
        if at + 4 > len(content):
            continue
        damaged = inverted(image, at)
        try:
            with open_device(damaged, whole=True) as device:
                digest = hashlib.sha256(device.pread(0, device.size_bytes)).hexdigest()
        except DeviceError:
            continue
        assert digest == PLAIN, at
