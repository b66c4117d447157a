"""Node blocks that were written to a wrong place: no file gets the content of another, and nothing is called whole."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from f2tools.dump.manifest import manifest
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.write.volume import open_for_writing
from tests.dump.craft import f2
from tests.f2fs.write.volumes import FULL, fresh, reading

SIZE = 4096
FILES = ("small1", "small2", "large1", "large2", "dir1/one1", "dir1/two1", "dir2/one2", "dir2/two2")
KINDS = {"plain": "--size 64M", "sealed": f"--size 64M -O {FULL}"}


def _tree(image: Path) -> dict[str, dict[str, object]]:
    with reading(image) as volume:
        return {
            path: {name: entry[name] for name in ("type", "ino", "size", "nlink", "sha256", "target") if name in entry}
            for path, entry in manifest(volume)["entries"].items()
        }


def _made(tmp_path: Path, kind: str) -> Path:
    """Two of each kind: small files, links, directories, files with two nodes of addresses."""
    image = fresh(tmp_path, KINDS[kind])
    with open_for_writing(image) as volume:
        for number in (1, 2):
            volume.write(volume.create(F2FS_ROOT_INO, b"small%d" % number, 0o644), 0, b"x%d" % number)
            volume.symlink(F2FS_ROOT_INO, b"link%d" % number, b"target%d" % number)
            below = volume.mkdir(F2FS_ROOT_INO, b"dir%d" % number, 0o755)
            for name in (b"one", b"two"):
                volume.write(volume.create(below, name + b"%d" % number, 0o644), 0, name * number)
            large = volume.create(F2FS_ROOT_INO, b"large%d" % number, 0o644)
            volume.write(large, 0, random.Random(number).randbytes(SIZE * (2000 + 10 * number)))
    return image


def _block_of(image: Path, path: str, node: int | None = None) -> int:
    with reading(image) as volume:
        inode = volume.path(path, follow=False).inode
        return inode.blkaddr if node is None else int(volume.nat.lookup(int(inode.nids[node]))[2])


def _copy(image: Path, source: int, to: int) -> None:
    raw = bytearray(image.read_bytes())
    raw[to * SIZE : (to + 1) * SIZE] = raw[source * SIZE : (source + 1) * SIZE]
    image.write_bytes(raw)


def _exchange(image: Path, *places: int) -> None:
    """Each block to the next place, the last one to the first."""
    raw = bytearray(image.read_bytes())
    blocks = [raw[at * SIZE : (at + 1) * SIZE] for at in places]
    for at, block in zip(places[1:] + places[:1], blocks, strict=True):
        raw[at * SIZE : (at + 1) * SIZE] = block
    image.write_bytes(raw)


def _whole(image: Path, target: Path) -> tuple[int, dict[str, bytes]]:
    """What salvage calls whole, and what it has copied."""
    f2("fsck", "--salvage", target, image)
    said = json.loads((target / "report.json").read_text())
    files = {str(p.relative_to(target / "files")): p for p in (target / "files").rglob("*")}
    return said["whole"], {name: p.read_bytes() for name, p in files.items() if p.is_file() and not p.is_symlink()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_whose_inode_is_another_ones_is_given_up(kind: str, tmp_path: Path) -> None:
    image = _made(tmp_path, kind)
    wanted = _tree(image)
    _copy(image, _block_of(image, "/small2"), _block_of(image, "/small1"))
    whole, copied = _whole(image, tmp_path / "salvaged")
    assert "small1" not in copied
    assert whole == len(FILES) - 1
    said = f2("fsck", "-y", image)
    assert "/small1: gone" in said.text
    assert "footer corrected" not in said.text
    del wanted["small1"]
    assert _tree(image) == wanted
    assert f2("fsck", image).code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_does_not_become_a_file(kind: str, tmp_path: Path) -> None:
    image = _made(tmp_path, kind)
    wanted = _tree(image)
    _copy(image, _block_of(image, "/small2"), _block_of(image, "/link1"))
    whole, copied = _whole(image, tmp_path / "salvaged")
    assert whole == len(FILES)
    assert set(copied) == set(FILES)
    assert "/link1: gone" in f2("fsck", "-y", image).text
    del wanted["link1"]
    assert _tree(image) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_gets_no_names_of_another(kind: str, tmp_path: Path) -> None:
    """It is made anew for its own files, which remember it."""
    image = _made(tmp_path, kind)
    wanted = _tree(image)
    _copy(image, _block_of(image, "/dir2"), _block_of(image, "/dir1"))
    f2("fsck", "-y", image)
    found = _tree(image)
    assert {path: entry for path, entry in found.items() if path != "lost+found"} == wanted
    assert f2("fsck", image).code == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("source", "to"), [("/large2", "/large1"), ("/large1", "/large1")], ids=["other", "same"])
@pytest.mark.parametrize(("node", "into"), [(0, 1), (1, 0)])
def test_addresses_of_another_node_are_not_those_of_a_file(
    source: str, to: str, node: int, into: int, kind: str, tmp_path: Path
) -> None:
    """The node is made anew from the blocks that are its own."""
    image = _made(tmp_path, kind)
    wanted = _tree(image)
    _copy(image, _block_of(image, source, node), _block_of(image, to, into))
    assert f2("fsck", "-y", image).code == 1
    assert _tree(image) == wanted
    assert f2("fsck", image).code == 0


PAIRS = {
    "files": [("/small1", None), ("/small2", None)],
    "three files": [("/small1", None), ("/small2", None), ("/large1", None)],
    "link and file": [("/link1", None), ("/small2", None)],
    "directories": [("/dir1", None), ("/dir2", None)],
    "directory and file": [("/dir1", None), ("/large2", None)],
    "nodes": [("/large1", 0), ("/large2", 1)],
    "nodes of one file": [("/large1", 0), ("/large1", 1)],
    "inode and node": [("/small1", None), ("/large2", 1)],
    "inode and its node": [("/large2", None), ("/large2", 0)],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_of_blocks_that_were_exchanged_nothing_is_lost(
    pair: list[tuple[str, int | None]], kind: str, tmp_path: Path
) -> None:
    image = _made(tmp_path, kind)
    wanted = _tree(image)
    _exchange(image, *(_block_of(image, path, node) for path, node in pair))
    assert f2("fsck", image).code == 4
    said = f2("fsck", "-y", image)
    assert said.code == 1
    whole = re.findall(r"(\d+) (?:files whole|found again or moved, whole)", said.text.splitlines()[-1])
    assert sum(map(int, whole)) == len(FILES)
    assert _tree(image) == wanted
    assert f2("fsck", image).code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_older_copy_takes_the_place_of_a_lost_node_and_is_called_so(kind: str, tmp_path: Path) -> None:
    image = _made(tmp_path, kind)
    with open_for_writing(image) as volume:
        volume.write(volume.lookup(F2FS_ROOT_INO, b"small1"), 0, b"newer")
    _copy(image, _block_of(image, "/small2"), _block_of(image, "/small1"))
    said = f2("fsck", "-y", image)
    assert "/small1: perhaps only partly there (an older copy of a node was taken)" in said.text
    with reading(image) as volume:
        assert b"".join(bytes(data) for _, data in volume.path("/small1").chunks()) == b"x1"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("node", [None, 1], ids=["inode", "node"])
def test_what_was_deleted_is_no_part_of_another_file(node: int | None, kind: str, tmp_path: Path) -> None:
    image = _made(tmp_path, kind)
    with open_for_writing(image) as volume:
        volume.write(volume.create(F2FS_ROOT_INO, b"deleted", 0o644), 0, b"deleted" * 1_500_000)
    block = _block_of(image, "/deleted", node)
    with open_for_writing(image) as volume:
        volume.unlink(F2FS_ROOT_INO, b"deleted")
    wanted = _tree(image)
    _copy(image, block, _block_of(image, "/small1" if node is None else "/large1", node))
    f2("fsck", "-y", image)
    if node is None:
        del wanted["small1"]
    assert _tree(image) == wanted
    assert f2("fsck", image).code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_footer_that_was_hit_is_corrected(kind: str, tmp_path: Path) -> None:
    """Both of its numbers are another file's; the inode's content is its own."""
    image = _made(tmp_path, kind)
    wanted = _tree(image)
    one, two = _block_of(image, "/small1"), _block_of(image, "/small2")
    raw = bytearray(image.read_bytes())
    raw[(one + 1) * SIZE - 24 : (one + 1) * SIZE - 16] = raw[(two + 1) * SIZE - 24 : (two + 1) * SIZE - 16]
    image.write_bytes(raw)
    f2("fsck", "-y", image)
    assert _tree(image) == wanted
    assert f2("fsck", image).code == 0
