"""One screen in plain words: sound, damaged, crashed, none at all; and nothing is written."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import f2tools
from f2tools.compat.fsck import main as like_the_c_tool
from tests.dump.craft import f2
from tests.images import Reference, reference
from tests.unreadable import lose


def test_a_sound_volume_is_called_sound(tmp_path: Path) -> None:
    image = tmp_path / "image"
    assert f2("mkfs", "-q", image, "--size", "64M").code == 0
    before = image.read_bytes()
    done = f2("doctor", image)
    text = done.out.decode()
    assert done.code == 0
    assert "  Sound: " in text
    assert "At risk" not in text
    assert len(text.splitlines()) <= 24
    assert image.read_bytes() == before


def test_the_size_is_that_of_the_volume(tmp_path: Path) -> None:
    assert f2("mkfs", tmp_path / "x", "--size", "64M").code == 0
    for size in (15 << 40, 54 << 20):
        os.truncate(tmp_path / "x", size)
        assert "An F2FS volume without a label, 64 MiB." in f2("doctor", tmp_path / "x").text


def test_of_encrypted_files_the_keys_are_wanted() -> None:
    found = json.loads(f2("doctor", "--json", reference("fscrypt").path).out)
    assert "1,944 of them are encrypted." in found["what"]
    (extract,) = [step for step in found["steps"] if "dump extract" in step["command"]]
    assert "--key FILE" in extract["command"]
    assert "left out without their keys" in extract["text"]
    assert "encrypted" not in f2("doctor", reference("base").path).text


def test_what_cleaning_needs_is_not_counted_as_files(tmp_path: Path) -> None:
    image = tmp_path / "image"
    assert f2("mkfs", "-q", image, "--size", "46M").code == 0
    text = f2("doctor", image).out.decode()
    assert "  0 files and directories take 8 KiB of 2 MiB" in text
    assert "At risk" not in text


def test_a_damaged_volume_is_copied_out_before_it_is_repaired(damaged: Callable[[str], Reference]) -> None:
    done = f2("doctor", damaged("inode-nlink").path)
    text = done.out.decode()
    assert done.code == 1
    assert "  DAMAGED: " in text
    assert "link count is not the number of names (I002)" in text
    assert text.index("--salvage") < text.index("-y --undo") < text.index("undo ", text.index("-y --undo") + 12)


def without(image: Path, lost: str) -> None:
    """Zero both superblocks, or both checkpoint packs, or only the heads of these."""
    with f2tools.open(image) as volume:
        start, per, size = volume.geo.cp_blkaddr, volume.geo.blocks_per_seg, volume.geo.block_size
    places = {"superblocks": [(0, 2)], "checkpoints": [(start, 2 * per)], "heads": [(start, 1), (start + per, 1)]}
    with image.open("r+b") as file:
        for blkaddr, count in places[lost]:
            file.seek(blkaddr * size)
            file.write(bytes(count * size))


@pytest.mark.parametrize("lost", ["superblocks", "checkpoints", "heads"])
def test_what_is_advised_where_both_are_lost_brings_everything_back(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = reference("plain").copy(tmp_path).path
    monkeypatch.chdir(tmp_path)
    whole = json.loads(f2("dump", "manifest", image).out)["entries"]
    without(image, lost)
    found = json.loads(f2("doctor", "--json", image).out)
    named = "superblocks" if lost == "superblocks" else "checkpoints"
    assert found["what"] == ["An F2FS volume, 128 MiB.", f"Both {named} are lost, so it can't be mounted as it is."]
    salvage, repair, undo = [shlex.split(step["command"])[1:] for step in found["steps"]]
    before = image.read_bytes()
    assert "423 files whole, 0 whole but" in f2(*salvage).text
    assert image.read_bytes() == before
    assert f2(*repair).code == 1
    assert json.loads(f2("dump", "manifest", image).out)["entries"] == whole
    assert f2(*undo).code == 0
    assert image.read_bytes() == before


def test_where_all_of_them_are_lost_the_way_is_a_search_that_says_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = reference("plain").copy(tmp_path).path
    monkeypatch.chdir(tmp_path)
    without(image, "checkpoints")
    with image.open("r+b") as file:
        file.write(bytes(2 * 4096))
    rescue, _ = (shlex.split(step["command"])[1:] for step in json.loads(f2("doctor", "--json", image).out)["steps"])
    said = f2(*rescue)
    assert "would be repaired" in said.err
    for command in re.findall("`f2tools ([^`]*)`", said.err.partition("next: ")[2]):
        assert f2(*shlex.split(command)).code in (0, 1)
    assert len([path for path in (tmp_path / "DIR/files").rglob("*") if path.is_file()]) > 400
    assert f2("fsck", image).code == 0


def test_what_a_crash_left_is_at_risk() -> None:
    done = f2("doctor", "--json", reference("crash-new-file").path)
    found = json.loads(done.out)
    assert found["healthy"] is True
    assert any("saved after the last checkpoint" in text for text in found["risks"])
    assert any(step["command"].startswith("f2tools recover") for step in found["steps"])
    assert any(step["command"].startswith("f2tools dump extract --recovered") for step in found["steps"])
    assert "It was unmounted properly." not in found["what"]


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"text" * 4096])
def test_what_is_no_volume_is_said_so(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    done = f2("doctor", os.path.relpath(tmp_path / "x"))
    assert done.code == 1
    assert "What it is:\n  Not an F2FS image: " in done.out.decode()
    assert "can't be opened as an F2FS volume" in done.out.decode()
    assert f2("doctor", tmp_path / "none").code == 8


@pytest.mark.parametrize(("system", "size"), [("dfs", "16M"), ("dffs", "32M")])
def test_an_image_of_a_sister_system_is_sent_to_its_own_commands(system: str, size: str, tmp_path: Path) -> None:
    image = tmp_path / "card ö"
    assert f2(system, "mkfs", image, "--size", size).code == 0
    before = image.read_bytes()
    done = f2("doctor", "--json", image)
    found = json.loads(done.out)
    assert (done.code, found["healthy"], found["health"][0][:6]) == (0, True, "Sound:")
    assert "It was closed properly." in found["what"]
    assert [step["text"] for step in found["steps"]][:2] == [
        "checks what is there, and writes nothing", "copies all files out",
    ]  # fmt: skip
    for step in found["steps"][:2]:
        _, *words = shlex.split(step["command"].replace(" DIR", f" {shlex.quote(str(tmp_path / 'out'))}"))
        assert f2(*words).code == 0, step
    assert all(step["text"].startswith("if it was made over a volume") for step in found["steps"][2:])
    assert image.read_bytes() == before


def filled(system: str, directory: Path) -> Path:
    """An image of a sister system with a file, whose content is at its beginning."""
    (directory / "files").mkdir()
    (directory / "files" / "file").write_bytes(b"content" * 1000)
    image = directory / "card"
    assert f2(system, "mkfs", image, "--size", "16M", "--from", directory / "files").code == 0
    return image


@pytest.mark.parametrize("system", ["dfs", "dffs"])
def test_of_a_sister_system_that_is_cut_off_a_longer_copy_is_made_and_can_be_read(
    system: str, tmp_path: Path
) -> None:  # fmt: skip
    image = filled(system, tmp_path)
    os.truncate(image, image.stat().st_size - 300_000)
    done = f2("doctor", "--json", image)
    found = json.loads(done.out)
    assert (done.code, found["healthy"]) == (1, False)
    copy, longer, look = (step["command"] for step in found["steps"])
    subprocess.run(f"{copy} && {longer}", shell=True, cwd=tmp_path, check=True)
    assert look == "f2tools doctor COPY"
    assert f2("doctor", tmp_path / "COPY").code == 0
    assert f2(system, "dump", "extract", tmp_path / "COPY", "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "file").read_bytes() == b"content" * 1000
    said = f2(system, "dump", "ls", image).err
    assert ("truncate -s" if system == "dfs" else "bytes of 0xff") in said


def test_a_damaged_sister_is_copied_out_before_it_is_repaired(tmp_path: Path) -> None:
    image = filled("dffs", tmp_path)
    raw = bytearray(image.read_bytes())
    at = raw.index(b"content" * 20)
    raw[at : at + 2112] = b"\xff" * 2112
    image.write_bytes(bytes(raw))
    done = f2("doctor", "--json", image)
    found = json.loads(done.out)
    assert (done.code, found["health"][0], "DFF045" in found["health"][1]) == (1, "DAMAGED: 1 finding.", True)
    extract, repair, undo = (shlex.split(step["command"].replace("DIR", "out")) for step in found["steps"])
    for words, code in ((extract, 1), (repair, 1), (undo, 0)):
        done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True)
        assert done.returncode == code, done
    assert image.read_bytes() == bytes(raw)


def test_a_sister_without_a_checkpoint_is_sent_to_the_repair_that_makes_one(tmp_path: Path) -> None:
    image = filled("dffs", tmp_path)
    raw = bytearray(image.read_bytes())
    while (at := raw.find(b"F2DFFSCP")) >= 0:
        raw[at : at + 2048] = b"\xa5" * 2048
    image.write_bytes(bytes(raw))
    done = f2("doctor", "--json", image)
    found = json.loads(done.out)
    assert (done.code, found["health"][0]) == (1, "DAMAGED: it can't be opened.")
    repair, undo = (shlex.split(step["command"]) for step in found["steps"])
    for words, code in ((repair, 1), (undo, 0)):
        assert subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True).returncode == code
    assert image.read_bytes() == bytes(raw)


def test_a_disk_is_sent_to_its_partitions_and_zeros_to_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    parts = [struct.pack("<B3xB3xII", 0, 0x83, start << 11, 4 << 11) for start in (1, 5)]
    disk.write_bytes((bytes(446) + b"".join(parts) + bytes(32) + b"\x55\xaa").ljust(9 << 20, b"\0"))
    steps = json.loads(f2("doctor", "--json", disk).out)["steps"]
    assert [step["command"] for step in steps[:2]] == [f"f2tools doctor {disk}@{number}" for number in (1, 2)]
    assert "nothing but zeros" in f2("doctor", f"{disk}@2").out.decode()
    (tmp_path / "zeros").write_bytes(bytes(1 << 20))
    assert json.loads(f2("doctor", "--json", tmp_path / "zeros").out)["steps"] == []


def test_a_program_of_others_is_not_sent_to_a_partition_that_it_cannot_name(tmp_path: Path) -> None:
    ext4 = bytearray(4 << 20)
    ext4[1024 + 56 : 1024 + 58] = b"\x53\xef"
    ext4[1024 + 96] = 0x40  # extents
    part = struct.pack("<B3xB3xII", 0, 0x83, 1 << 11, 4 << 11)
    disk, alone = tmp_path / "disk", tmp_path / "alone"
    disk.write_bytes((bytes(446) + part + bytes(48) + b"\x55\xaa").ljust(1 << 20, b"\0") + ext4)
    alone.write_bytes(ext4)
    there = json.loads(f2("doctor", "--json", alone).out)
    assert there["steps"][0]["command"] == f"e2fsck -fn {alone}"
    there = json.loads(f2("doctor", "--json", f"{disk}@1").out)
    assert "e2fsck -fn looks at it" in there["what"][0]
    assert all(step["command"].startswith("f2tools ") for step in there["steps"])


def test_a_medium_that_fails_is_copied_before_anything_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    path = reference("base").path
    with f2tools.open(path) as volume:
        lost = volume.pack.blkaddr * volume.geo.block_size
    lose(monkeypatch, lost)
    text = f2("doctor", path).out.decode()
    assert "ddrescue -r3 " in text
    assert "fsck -y" not in text
    checked = f2("fsck", path)
    assert checked.code == 4
    last = checked.out.decode().splitlines()[-1]
    assert last.startswith(f"next: `ddrescue -r3 {path} COPY COPY.map` copies what can be read")
    assert "nothing takes that back" in last
    why = f"a block of {path} can't be read: a repair writes over what is there, and no undo file has it"
    assert f"warning: {why}" in f2("fsck", "-y", "--dry-run", path).err


@pytest.mark.parametrize("how", ["-y", "-p"])
def test_a_medium_that_fails_is_not_repaired_unless_that_is_forced(
    how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "failing.img"
    shutil.copy(reference("base").path, path)
    before = path.read_bytes()
    with f2tools.open(path) as volume:
        lost = volume.pack.blkaddr * volume.geo.block_size
    with monkeypatch.context() as failing:
        lose(failing, lost)
        refused = f2("fsck", how, path)
        assert refused.code == 4
        assert "Nothing was written: `ddrescue -r3 " in refused.err
        assert f"`f2tools fsck {how} --force {path}` repairs all the same" in refused.err
        result = json.loads(f2("fsck", how, "--json", path).out.splitlines()[-1])
        assert (result["record"], result["written"], result["left"]["H001"]) == ("result", False, 1)
        assert like_the_c_tool("fsck.f2fs", ["-a" if how == "-p" else "-f", str(path)]) == 4
        assert path.read_bytes() == before
        assert f2("fsck", how, "--force", path).code == 1
    assert f2("fsck", path).code == 0


def test_of_a_sparse_image_that_is_cut_off_another_copy_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for number in range(40):
        (tmp_path / "files" / str(number)).write_bytes(os.urandom(5000))
    image = tmp_path / "sparse.img"
    assert f2("mkfs", "-q", image, "-S", "64M", "--from", tmp_path / "files").code == 0
    os.truncate(image, image.stat().st_size // 4)
    for command in ("fsck", "doctor"):
        said = f2(command, image).text
        assert "ddrescue" not in said
        assert "get a whole copy of it" in said or "copy it again" in said, said


def test_a_partition_that_is_too_short_is_not_sent_to_a_repair(tmp_path: Path) -> None:
    volume = reference("base").path.read_bytes()
    part = struct.pack("<B3xB3xII", 0, 0x83, 1 << 11, len(volume) >> 9)
    disk = tmp_path / "disk"
    disk.write_bytes((bytes(446) + part + bytes(48) + b"\x55\xaa").ljust(1 << 20, b"\0") + volume[: -8 << 20])
    before, name = disk.read_bytes(), f"{disk}@1"
    steps = json.loads(f2("doctor", "--json", name).out)["steps"]
    assert [step["command"] for step in steps] == [f"f2tools fsck --salvage DIR {name}", "f2tools doctor COPY"]
    told = f2("fsck", name).out.decode().splitlines()[-1]
    assert told.endswith("it can't be made longer: to repair, copy it to a file, then `f2tools fsck COPY`")
    repaired = f2("fsck", "-y", "--undo", tmp_path / "undo", name)
    assert (repaired.code, "left: S009 (1); get a whole copy of it" in repaired.err) == (4, True)
    assert disk.read_bytes() == before


def test_of_several_devices_one_that_is_too_short_is_to_be_made_longer_in_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the superblock has 64 bytes for the name of a device
    first, second, third = "a.img", "b.img", "c.img"
    made = f2("mkfs", "-q", first, "--size", "64M", "-c", second, "--size", "64M", "-c", third, "--size", "64M")
    assert made.code == 0, made.err
    os.truncate(second, 30 << 20)
    said = json.loads(f2("doctor", "--json", first, "--device", second, "--device", third).out)
    assert [step["command"] for step in said["steps"]][1:] == ["truncate -s SIZE COPY"]
    assert said["risks"][0].startswith(f"{second} is cut off"), said["risks"]
    told = f2("fsck", first, "--device", second, "--device", third).out.decode().splitlines()[-1]
    assert told.endswith("such as with truncate(1), and name it instead")
    copy = shutil.copy(second, "copy")
    os.truncate(copy, 64 << 20)
    assert f2("fsck", first, "--device", copy, "--device", third).code == 0
