"""The commands: what they make, print and refuse, and what they end with."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
import zstandard

from f2tools.device.open import open_device
from f2tools.dffs.volume import open_volume
from f2tools.dffs.write import open_for_writing
from tests.dump.craft import f2
from tests.mount.mounted import need_fuse


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
    assert "\nfilled with " in done.text
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


@pytest.mark.parametrize("system", ["dfs", "dffs"])
def test_an_archive_is_packed_as_its_name_says(system: str, tmp_path: Path) -> None:
    image = tmp_path / "image"
    assert f2(system, "mkfs", image, "--size", "8M", "--from", files_in(tmp_path)).code == 0
    plain = f2(system, "dump", "tar", image).out
    for name, unpacked in (
        ("a.tar", bytes), ("a.tar.gz", gzip.decompress), ("a.tgz", gzip.decompress),
        ("a.tar.zst", lambda raw: zstandard.ZstdDecompressor().decompressobj().decompress(raw)),
    ):  # fmt: skip
        assert f2(system, "dump", "tar", image, "-o", tmp_path / name).code == 0
        assert unpacked((tmp_path / name).read_bytes()) == plain


def test_an_image_of_another_kind_is_refused_at_once_and_named(tmp_path: Path) -> None:
    dfs, dffs, layer, huge = (tmp_path / name for name in ("a.dfs", "a.nand", "a.vsl", "huge"))
    assert f2("dfs", "mkfs", dfs, "--size", "4M").code == 0
    assert f2("dffs", "mkfs", dffs, "--size", "8M").code == 0
    assert f2("vsl", "create", layer, "--size", "4M", "--space", "max").code == 0
    huge.touch()
    os.truncate(huge, 1 << 42)
    for words in (["fsck"], ["fsck", "-y"], ["dump", "info"]):
        done = f2("dffs", *words, dfs)
        assert (done.code, "a virtualized storage layer; it holds DFS" in done.err) == (8, True)
        assert f"`f2tools dfs fsck {dfs}`" in done.err
        done = f2("dfs", *words, dffs)
        assert (done.code, f"it holds DFFS (Direct Flash File System); use `f2tools dffs fsck {dffs}`" in done.err) == (
            8, True,
        )  # fmt: skip
        for other in (layer, huge):  # neither is looked through to its end
            assert f2("dffs", *words, other).code == 8


def test_a_mount_that_fails_in_the_background_says_why_once(tmp_path: Path) -> None:
    need_fuse()
    dffs, dfs = tmp_path / "a.nand", tmp_path / "a.dfs"
    assert f2("dffs", "mkfs", dffs, "--size", "8M").code == 0
    assert f2("dfs", "mkfs", dfs, "--size", "4M").code == 0
    for system, image, other in (("dfs", dffs, "it holds DFFS"), ("dffs", dfs, "a virtualized storage layer")):
        done = f2(system, "mount", image, tmp_path)
        assert (done.code, done.err.count("\n"), done.err.startswith("f2tools: ")) == (8, 1, True)
        assert other in done.err


@pytest.mark.parametrize("group", ["dfs", "dffs"])
def test_the_help_of_a_mount_promises_nothing_that_only_f2fs_has(group: str) -> None:
    text = f2(group, "mount", "--help").text
    assert "--server" in text
    assert not any(word in text for word in ("fallocate", "lsattr", "O_TMPFILE", "fstrim", "times of birth"))


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
    assert f2("dffs", "mkfs", image, "--size", "8M").code == 1
    for words in (["dump", "info"], ["fsck"], ["mkfs"]):
        done = f2(*words, image)
        assert done.code != 0
        assert "Direct Flash File System" in done.err, words
    assert "f2tools dffs fsck" in f2("dump", "info", image).err


def test_a_dump_with_a_bad_block_left_out_ends_with_8_and_names_what_is_missing(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole", tmp_path / "card.nand"
    assert f2("dffs", "mkfs", whole, "--size", "8M", "--bad", 3).code == 0
    data, block = whole.read_bytes(), 64 * 2112
    path.write_bytes(data[: 3 * block] + data[4 * block :])
    for words in (("fsck",), ("fsck", "-y"), ("dump", "ls")):
        done = f2("dffs", *words, path)
        assert done.code == 8, done.text
        assert f"so {block} are missing, one erase block" in done.err
    flipped = bytearray(data)
    flipped[2048 + 5] ^= 1
    path.write_bytes(flipped)
    done = f2("dffs", "fsck", path)
    assert (done.code, "1 spare areas have a wrong bit in their tag or code" in done.text) == (0, True)


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


def test_a_dump_in_pieces_is_read_and_what_would_change_it_says_that_it_has_to_be_joined(tmp_path: Path) -> None:
    whole = tmp_path / "card.nand"
    assert f2("dffs", "mkfs", whole, "--size", "8M", "--from", files_in(tmp_path)).code == 0
    content, third = whole.read_bytes(), whole.stat().st_size // 3 + 1
    for number in range(3):
        (tmp_path / f"piece.{number + 1:03}").write_bytes(content[number * third : (number + 1) * third])
    first = tmp_path / "piece.001"
    assert f2("dffs", "dump", "manifest", first).text.replace("piece.001", "card.nand") == (
        f2("dffs", "dump", "manifest", whole).text
    )
    assert f2("dffs", "fsck", first).code == 0
    with open_volume(str(whole)) as seen:
        root = seen.root.page * 2112
    first.write_bytes(content[:root] + os.urandom(2048) + content[root + 2048 : third])
    rehearsed = f2("dffs", "fsck", "-y", "--dry-run", first)
    assert (rehearsed.code, "nothing was written" in rehearsed.text) == (4, True)
    for words in (["fsck", "-y", first], ["mount", "-f", first, tmp_path]):
        done = f2("dffs", *words)
        assert done.code != 0, words
        assert "an image in 3 pieces is only read" in done.err, words


def test_a_volume_in_a_partition_of_a_dump_is_changed_there_and_nowhere_else(tmp_path: Path) -> None:
    part, chip = tmp_path / "part.nand", tmp_path / "chip.nand"
    assert f2("dffs", "mkfs", part, "--size", "8M").code == 0
    size, before = part.stat().st_size, os.urandom(135168)
    volume = open_for_writing(open_device(part, write=True, whole=True))
    volume.create(1, b"safe", 0o644)
    volume.sync()
    volume.abandon()
    chip.write_bytes(before + part.read_bytes() + before)
    place = f"{chip}@+{len(before)}"
    assert "put in order" in f2("dffs", "recover", place, "--apply").text
    assert f2("dffs", "fsck", place).code == 0
    assert f2("dffs", "dump", "ls", place).text == "safe\n"
    after = chip.read_bytes()
    assert (after[: len(before)], after[len(before) + size :]) == (before, before)
