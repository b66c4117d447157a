"""The commands: what they print, what they refuse, what they end with."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from f2tools.device.open import open_device
from f2tools.dfs.dentries import with_entry
from f2tools.dfs.layout import INODE_START, Geometry
from f2tools.dfs.problems import PROBLEMS
from f2tools.dfs.volume import newest_super
from f2tools.dfs.wal import Transaction, write_transaction
from f2tools.dfs.write import open_for_writing
from f2tools.flash.vsl import Vsl
from tests.dump.craft import f2

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dfs.md"


def opened(image: Path) -> Vsl:
    device = open_device(image, write=True, whole=True)
    assert isinstance(device, Vsl)
    return device


def geometry_of(layer: Vsl) -> Geometry:
    sb = newest_super(layer)
    return Geometry(sb.chunk_bits, sb.slot_blocks, sb.wal_blocks)


def made(directory: Path) -> Path:
    """An image with some files, made and filled as the manual says."""
    image = directory / "card.dfs"
    done = f2("dfs", "mkfs", image, "--size", "4M")
    assert (done.code, "files up to 2 TiB" in done.text) == (0, True)
    with open_for_writing(opened(image)) as volume:
        inner = volume.mkdir(1, b"folder", 0o755)
        file = volume.create(inner, b"evil\x1b[2J", 0o644)
        volume.write(file, 1 << 40, b"at one TiB")
        volume.symlink(1, b"link", b"folder")
        volume.write(volume.create(1, b"plain", 0o600), 0, b"text\n")
        volume.fsync(file)
    return image


def test_a_volume_is_made_filled_listed_and_copied_out(tmp_path: Path) -> None:
    image = made(tmp_path)
    assert f2("dfs", "fsck", image).code == 0
    listed = f2("dfs", "dump", "ls", "-lR", image).text
    assert "\x1b" not in listed
    assert "link -> folder" in listed
    assert f2("dfs", "dump", "cat", image, "/plain").out == b"text\n"
    assert f2("dfs", "dump", "ls", image, "/link/").text == "evil\\x1b[2J\n"
    assert "(chunk)" in f2("dfs", "dump", "map", image, "ino:3").text
    assert "idle" in f2("dfs", "dump", "wal", image).text
    assert "closed" in f2("dfs", "dump", "info", image).text
    done = f2("dfs", "dump", "extract", image, "-o", tmp_path / "out")
    assert (done.code, done.err) == (0, "")
    copied = tmp_path / "out" / "folder" / "evil\x1b[2J"
    assert (copied.stat().st_size, copied.stat().st_blocks < 100) == ((1 << 40) + 10, True)
    assert os.readlink(tmp_path / "out" / "link") == "folder"
    again = f2("dfs", "dump", "extract", image, "-o", tmp_path / "out")
    assert (again.code, f"f2tools: {tmp_path}/out/plain: File exists" in again.err) == (1, True)
    archive = f2("dfs", "dump", "tar", image, "/plain").out
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        assert found.getnames() == ["plain"]
    manifest = json.loads(f2("dfs", "dump", "manifest", image).text)
    assert manifest["entries"]["plain"]["sha256"].startswith("b9e68e1b")
    assert manifest["entries"]["folder/evil\x1b[2J"]["segments"] == [[1 << 40, 10]]
    assert f2("vsl", "check", image).code == 0


def test_reading_a_volume_after_a_power_cut_changes_nothing_and_says_what_comes(tmp_path: Path) -> None:
    image = made(tmp_path)
    volume = open_for_writing(opened(image))
    volume.create(1, b"safe", 0o644)
    volume.sync()
    volume.write(volume.create(1, b"unsafe", 0o644), 0, b"lost" * 1000)
    volume.layer.flush()
    volume.abandon()
    before = image.read_bytes()
    done = f2("dfs", "fsck", image)
    assert done.code == 0
    assert "8 blocks of content that never became part of a file" in done.text
    assert "safe" in f2("dfs", "dump", "ls", image).text.split()
    assert image.read_bytes() == before
    open_for_writing(opened(image)).close()
    assert "not closed" not in f2("dfs", "fsck", image).text


def test_damage_ends_with_4_and_what_is_no_volume_with_8(tmp_path: Path) -> None:
    image = made(tmp_path)
    with opened(image) as layer:
        layer.write_vblocks(INODE_START + 3, b"\xff" * 512)
    done = f2("dfs", "fsck", image)
    assert done.code == 4
    assert "DFS010: inode 3" in done.text
    told = f2("dfs", "dump", "manifest", image)
    assert (told.code, told.err) == (1, 'f2tools: 1 could not be read in full; see "errors"\n')
    done = f2("dfs", "dump", "ls", "-R", image)
    assert (done.code, "inode can't be used" in done.err) == (1, True)
    other = tmp_path / "other"
    other.write_bytes(bytes(1 << 20))
    for words in (["fsck"], ["dump", "info"], ["dump", "ls"]):
        done = f2("dfs", *words, other)
        assert (done.code, "no Direct File System" in done.err) == (8, True)
    assert f2("vsl", "create", tmp_path / "empty.vsl", "--size", "1M", "--space", "max").code == 0
    assert f2("dfs", "fsck", tmp_path / "empty.vsl").code == 8


def test_a_repair_is_rehearsed_said_made_and_taken_back(tmp_path: Path) -> None:
    image = made(tmp_path)
    with opened(image) as layer:
        layer.write_vblocks(INODE_START + 3, b"\xff" * 512)
    before = image.read_bytes()
    undo = tmp_path / "before.undo"
    for words in (["--undo", undo], ["--dry-run"], ["-y", "-n"]):
        assert f2("dfs", "fsck", image, *words).code == 16
    done = f2("dfs", "fsck", "-y", "--dry-run", "--undo", image, image)
    assert (done.code, "is there already" in done.err) == (8, True)
    done = f2("dfs", "fsck", "-y", "--dry-run", "--undo", undo, image)
    assert (done.code, "would be done: inode 3 written anew" in done.text) == (4, True)
    assert image.read_bytes() == before
    done = f2("dfs", "fsck", "-y", "--undo", undo, image)
    assert (done.code, "lost: owner" in done.text, "sound after that" in done.text) == (1, True, True)
    assert f2("dfs", "fsck", image).code == 0
    said = json.loads(f2("dfs", "fsck", "-y", "--json", image).text)
    assert (said["sound"], "repair" in said) == (True, False)
    assert f2("undo", undo, image).code == 0
    assert image.read_bytes() == before
    said = json.loads(f2("dfs", "fsck", "-y", "--json", image).text)
    assert (said["repair"]["complete"], bool(said["repair"]["done"])) == (True, True)


def test_checks_end_with_the_codes_of_fsck_where_1_would_say_that_errors_were_corrected(tmp_path: Path) -> None:
    image = made(tmp_path)
    cut, garbled, nothing = tmp_path / "cut", tmp_path / "garbled", tmp_path / "nothing"
    nothing.write_bytes(bytes(1 << 20))
    cut.write_bytes(image.read_bytes()[:100_000])
    content = bytearray(image.read_bytes())
    content[8192:-8192] = b"\xa5" * (len(content) - 16384)
    garbled.write_bytes(content)
    for command in (["dfs", "fsck"], ["vsl", "check"]):
        assert f2(*command, cut).code == 4
        assert f2(*command, garbled).code == 4
        assert f2(*command, nothing).code == 8
        assert f2(*command, tmp_path / "missing").code == 8
        assert f2(*command, image, "--nonsense").code == 16
        assert f2(*command, tmp_path).code == 8
    with pytest.MonkeyPatch.context() as patch:
        for module, command in (("f2tools.dfs.check", ["dfs", "fsck"]), ("f2tools.vsl.check", ["vsl", "check"])):
            patch.setattr(f"{module}.check", Mock(side_effect=KeyboardInterrupt))
            assert f2(*command, image).code == 32


def test_what_an_image_is_called_and_what_is_called_so_in_it_is_printed_on_one_line_and_obeyed_by_no_terminal(
    tmp_path: Path,
) -> None:
    name = "evil\x1b[2J\n\u202egnp"
    directory = tmp_path / name
    directory.mkdir()
    image = made(directory)
    with opened(image) as layer:
        block = layer.read_vblocks(geometry_of(layer).own_chunk(2), 1)
        layer.write_vblocks(geometry_of(layer).own_chunk(2), with_entry(block, os.fsencode(name), 77, 8)[0])
    said = [f2("dfs", "fsck", image), f2("vsl", "check", image), f2("dfs", "dump", "ls", "-lR", image)]
    said += [f2("dfs", "dump", "extract", image, "-o", directory / "out"), f2("vsl", "trim", image, "1M", "512K")]
    said += [
        f2("dfs", "mkfs", directory / "new", "--size", "4M"),
        f2("vsl", "create", directory / "layer", "--size", "1M"),
    ]
    said += [f2("vsl", "export", image, directory / "raw", "--length", "1M")]
    assert "DFS024" in said[0].text
    for done in said:
        text = done.text + done.err
        assert text
        assert all(line.isprintable() for line in text.splitlines()), text
        assert "\\x1b[2J\\x0a" in text


def test_an_image_that_is_there_is_not_made_anew_and_sizes_that_can_not_be_leave_nothing(tmp_path: Path) -> None:
    image = made(tmp_path)
    before = image.read_bytes()
    assert f2("dfs", "mkfs", image, "--size", "4M").code == 1
    assert image.read_bytes() == before
    for words in (["--size", "1K"], ["--size", "1M", "--chunk", "3M"], ["--size", "1M", "--small-file", "100"]):
        assert f2("dfs", "mkfs", tmp_path / "new", *words).code == 2
        assert not (tmp_path / "new").exists()


def test_the_commands_of_f2fs_name_what_they_met_and_leave_it_alone(tmp_path: Path) -> None:
    image = made(tmp_path)
    before = image.read_bytes()
    for words in (["dump", "info"], ["fsck"], ["mkfs"], ["recover"], ["rm"]):
        done = f2(*words, f"{image}:/a" if words == ["rm"] else image)
        assert done.code != 0
        assert "DFS (Direct File System)" in done.err, words
    assert "f2tools dfs fsck" in f2("dump", "info", image).err
    assert image.read_bytes() == before


def test_a_volume_with_hashed_directories_says_so_and_that_it_has_no_log(tmp_path: Path) -> None:
    image = tmp_path / "card.dfs"
    assert f2("dfs", "mkfs", image, "--size", "1M", "--directories", "hashed").code == 0
    assert "directories: hashed" in f2("dfs", "dump", "info", image).text
    assert json.loads(f2("dfs", "dump", "info", image, "--json").text)["directories"] == "hashed"
    assert "no write-ahead log" in f2("dfs", "dump", "wal", image).text
    assert json.loads(f2("dfs", "dump", "wal", image, "--json").text)["blocks"] == 0


def test_the_manual_lists_every_finding() -> None:
    page = PAGE.read_text()
    assert all(f"| {problem.code} | {problem.text} |" in page for problem in PROBLEMS.values())


def test_what_a_power_cut_left_is_explained_and_put_in_order_on_request(tmp_path: Path) -> None:
    image = made(tmp_path)
    assert "nothing to recover" in f2("dfs", "recover", image, "--apply").text
    volume = open_for_writing(opened(image))
    volume.create(1, b"safe\x1b[2J", 0o644)
    volume.unlink(1, b"plain")
    volume.sync()
    volume.create(1, b"late", 0o644)
    volume.rename(1, b"link", 2, b"moved")
    written = volume.journal
    write_transaction(volume.layer, Transaction(written.seq + 1, dict(written.dirty), list(written.trims)))
    volume.write(volume.create(1, b"unsafe", 0o644), 0, b"lost" * 1000)
    volume.layer.flush()
    volume.abandon()
    before = image.read_bytes()
    assert f2("dfs", "recover", image, "--undo", tmp_path / "undo").code == 2
    done = f2("dfs", "recover", image)
    assert (done.code, image.read_bytes() == before) == (0, True)
    for said in ("+ late -> inode", "- link", "+ moved ->", "a new file of 0 bytes", "8 blocks: its inode is free"):
        assert said in done.text, said
    assert "\x1b" not in done.text
    assert "nothing was written" in f2("dfs", "recover", image, "--apply", "--dry-run").text
    assert image.read_bytes() == before
    said = json.loads(f2("dfs", "recover", image, "--apply", "--undo", tmp_path / "undo", "--json").text)
    assert (said["applied"], said["needed"], len(said["given_up"])) == (True, True, 1)
    assert "not closed" not in f2("dfs", "fsck", image).text
    assert "moved" in f2("dfs", "dump", "ls", image, "/folder").text
    assert f2("undo", tmp_path / "undo", image).code == 0
    assert image.read_bytes() == before
