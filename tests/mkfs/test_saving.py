"""What `--compress` says that it saved, against what stands on the volume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import f2tools
from tests.dump.craft import f2


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    path.mkdir()
    (path / "text").write_text("what is said again and again, " * 20000)
    (path / "noise").write_bytes(bytes((i * i * 7919 >> 5) % 251 for i in range(40000)))
    (path / "small").write_text("small")
    return path


def saved_on(image: Path) -> int:
    """Bytes that the inodes say compression saved."""
    with f2tools.open(image) as volume:
        inodes = [entry.inode for _, _, entries in volume.walk() for entry in entries]
        return sum(inode.extra.get("i_compr_blocks", 0) for inode in inodes) * 4096


def test_mkfs_says_what_compression_saved_and_what_release_would_give(tree: Path, tmp_path: Path) -> None:
    image = tmp_path / "image"
    done = f2("mkfs", image, "--size", "64M", "--from", tree, "--compress", "zstd")
    assert done.code == 0, done.err
    (line,) = (line for line in done.text.splitlines() if line.strip().startswith("compressed"))
    assert "--release would free them" in line
    as_json = f2("mkfs", image, "-f", "--from", tree, "--compress", "zstd", "--json")
    filled = json.loads(as_json.out)["filled"]
    assert filled["saved_bytes"] == saved_on(image) > 400_000
    assert filled["compressed_bytes"] >= 600_000


def test_what_release_gave_is_free(tree: Path, tmp_path: Path) -> None:
    free = {}
    for options in ((), ("--release",)):
        image = tmp_path / f"image{len(options)}"
        done = f2("mkfs", image, "--size", "64M", "--from", tree, "--compress", "lz4", "--json", *options)
        filled = json.loads(done.out)["filled"]
        with f2tools.open(image) as volume:
            free[options] = volume.statfs()["f_bfree"] * 4096
    assert free["--release",] - free[()] == filled["saved_bytes"] > 0
    assert (
        "are free, and the files immutable"
        in f2("mkfs", tmp_path / "again", "--size", "64M", "--from", tree, "--compress", "lz4", "--release").text
    )


def test_load_says_what_compression_saved_also_beside_other_files(tree: Path, tmp_path: Path) -> None:
    image = tmp_path / "image"
    assert f2("mkfs", "-q", image, "--size", "64M", "-O", "extra_attr,compression").code == 0
    assert f2("cp", tree / "small", f"{image}:/other").code == 0
    done = f2("load", image, "--from", tree, "--compress", "zstd", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["saved_bytes"] == saved_on(image) > 400_000
