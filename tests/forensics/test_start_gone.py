"""Without a superblock, a checkpoint, a node table: what an examiner asks is answered from nodes and data."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest

import f2tools
from tests.dump.craft import f2
from tests.f2fs.write.workload import FILE, noise

MIB = 1 << 20
ROOT = 3
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
WARNING = "no superblock is left"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Two files, a deleted one, a picture; the log went on since."""
    path = tmp_path / "image"
    assert f2("mkfs", "-q", path, "--size", "128M").code == 0
    with f2tools.open(path, write=True) as volume:
        directory = volume.mkdir(ROOT, b"folder", 0o755)
        for name in (b"letter", b"notes", b"gone"):
            volume.write(volume.create(directory, name, FILE), 0, noise(name, 30_000))
        volume.write(volume.create(directory, b"picture.jpg", FILE), 0, JPEG + noise("picture", 50_000))
        volume.sync()
        volume.unlink(directory, b"gone")
    return path


def zero(path: Path, count: int) -> None:
    with path.open("r+b") as file:
        file.write(bytes(count))


def undeleted(path: Path, *more: str) -> dict[str, str]:
    """Path to digest of what undelete finds."""
    done = f2("undelete", "--json", *more, path)
    assert done.code == 0, done.err
    assert WARNING in done.err
    found = [json.loads(line) for line in done.out.splitlines()]
    return {item["path"]: item["sha256"] for item in found if item["type"] == "file"}


def test_undelete_tells_deleted_from_living_as_long_as_the_tables_are_left(image: Path) -> None:
    zero(image, MIB)
    assert undeleted(image) == {"folder/gone": sha256(noise(b"gone", 30_000)).hexdigest()}


def test_undelete_finds_every_file_where_no_table_is_left(image: Path, tmp_path: Path) -> None:
    zero(image, 16 * MIB)
    found = undeleted(image)
    for name in (b"letter", b"notes", b"gone"):
        assert found["folder/" + os.fsdecode(name)] == sha256(noise(name, 30_000)).hexdigest()
    done = f2("undelete", image, "-o", tmp_path / "out")
    assert "no node table is left" in done.err
    assert (tmp_path / "out" / "folder" / "letter").read_bytes() == noise(b"letter", 30_000)


def test_undelete_finds_files_whose_directories_are_gone_with_the_root(image: Path) -> None:
    zero(image, 17 * MIB)
    assert sha256(noise(b"letter", 30_000)).hexdigest() in undeleted(image).values()


def test_carve_finds_a_picture_where_nothing_else_is_left(image: Path) -> None:
    zero(image, 17 * MIB)
    done = f2("carve", "--json", image)
    assert done.code == 0, done.err
    assert WARNING in done.err
    assert "image/jpeg" in {json.loads(line)["mime"] for line in done.out.splitlines()}


@pytest.mark.parametrize("command", [("scan", "-o", "index"), ("timeline",), ("strings", "-n", "20")])
def test_the_others_look_at_what_is_left(command: tuple[str, ...], image: Path, tmp_path: Path) -> None:
    zero(image, 16 * MIB)
    words = [str(tmp_path / word) if word == "index" else word for word in command]
    done = f2(*words, "--layout", "size=128M", image)
    assert done.code == 0, done.err
    assert WARNING in done.err


def test_an_index_fits_the_volume_that_is_found_again(image: Path, tmp_path: Path) -> None:
    zero(image, 16 * MIB)
    assert f2("scan", image, "-o", tmp_path / "index").code == 0
    assert "folder/letter" in undeleted(image, "--index", str(tmp_path / "index"))


def test_what_holds_no_nodes_is_said(tmp_path: Path) -> None:
    path = tmp_path / "noise"
    path.write_bytes(noise("none", 4 * MIB))
    done = f2("undelete", path)
    assert done.code != 0
    assert "no nodes of a volume are found either" in done.err
    assert "Traceback" not in done.err
