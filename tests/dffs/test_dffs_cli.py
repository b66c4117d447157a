"""The commands: what they make, print and refuse, and what they end with."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

from f2tools.device.open import open_device
from f2tools.dffs.write import open_for_writing
from tests.dump.craft import f2


def files_in(directory: Path) -> Path:
    """A directory with some of everything."""
    top = directory / "files"
    (top / "inner").mkdir(parents=True)
    (top / "inner" / "evil\x1b[2J").write_bytes(b"content" * 1000)
    (top / "small").write_bytes(b"text\n")
    os.link(top / "small", top / "inner" / "again")
    os.symlink("inner", top / "link")
    (top / "sparse").write_bytes(b"")
    os.truncate(top / "sparse", 5 << 20)
    return top


def test_a_volume_is_filled_listed_checked_and_copied_out(tmp_path: Path) -> None:
    image, source = tmp_path / "card.nand", files_in(tmp_path)
    done = f2("dffs", "mkfs", image, "--size", "8M", "--from", source)
    assert done.code == 0, done.err
    assert f2("dffs", "fsck", image).code == 0
    listed = f2("dffs", "dump", "ls", "-lR", image).text
    assert "\x1b" not in listed
    assert "link -> inner" in listed
    assert f2("dffs", "dump", "cat", image, "/inner/again").out == b"text\n"
    manifest = json.loads(f2("dffs", "dump", "manifest", image).text)
    assert (manifest["entries"]["small"]["nlink"], manifest["entries"]["sparse"]["segments"]) == (2, [])
    assert "logical id" in f2("dffs", "dump", "map", image, "/small").text
    done = f2("dffs", "dump", "extract", image, "-o", tmp_path / "out")
    assert (done.code, done.err) == (0, "")
    out = tmp_path / "out"
    assert (out / "inner" / "evil\x1b[2J").read_bytes() == b"content" * 1000
    assert (out / "small").stat().st_ino == (out / "inner" / "again").stat().st_ino
    archive = f2("dffs", "dump", "tar", image).out
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        assert "inner/evil\x1b[2J" in found.getnames()


def test_what_does_not_fit_or_can_not_be_leaves_nothing(tmp_path: Path) -> None:
    source = files_in(tmp_path)
    (source / "large").write_bytes(os.urandom(9 << 20))
    sizes = (["--size", "1000"], ["--size", "256K"], ["--size", "8M", "--pages", "1K"])
    for words in (["--size", "8M", "--from", source], *sizes):
        done = f2("dffs", "mkfs", tmp_path / "new", *words)
        assert done.code == 2, done.err
        assert not (tmp_path / "new").exists()


def test_what_is_no_volume_ends_with_8_and_the_commands_of_f2fs_name_what_they_met(tmp_path: Path) -> None:
    other, image = tmp_path / "other", tmp_path / "card.nand"
    other.write_bytes(bytes(1 << 20))
    for words in (["fsck"], ["dump", "info"], ["dump", "ls"]):
        done = f2("dffs", *words, other)
        assert (done.code, "no Direct Flash File System" in done.err) == (8, True)
    assert f2("dffs", "fsck").code == 16
    assert f2("dffs", "mkfs", image, "--size", "8M").code == 0
    assert f2("dffs", "mkfs", image, "--size", "8M").code == 8
    for words in (["dump", "info"], ["fsck"], ["mkfs"]):
        done = f2(*words, image)
        assert done.code != 0
        assert "Direct Flash File System" in done.err, words
    assert "f2tools dffs dump info" in f2("dump", "info", image).err


def test_what_a_power_cut_left_is_told_put_in_order_on_request_and_taken_back(tmp_path: Path) -> None:
    image, undo = tmp_path / "card.nand", tmp_path / "undo"
    assert f2("dffs", "mkfs", image, "--size", "8M").code == 0
    volume = open_for_writing(open_device(image, write=True, whole=True))
    volume.create(1, b"safe", 0o644)
    volume.sync()
    volume.abandon()
    before = image.read_bytes()
    done = f2("dffs", "recover", image)
    assert (done.code, "2 pages were committed and count, 0 never were" in done.text) == (0, True)
    assert image.read_bytes() == before
    assert "put in order" in f2("dffs", "recover", image, "--apply", "--undo", undo).text
    assert "nothing to do" in f2("dffs", "recover", image).text
    assert f2("dffs", "dump", "ls", image).text == "safe\n"
    assert f2("undo", undo, image).code == 0
    assert image.read_bytes() == before
