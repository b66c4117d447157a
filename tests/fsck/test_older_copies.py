"""Files and directories of which only an older copy is left: what was deleted, moved or cut off since stays so."""

from __future__ import annotations

import os
import random
import struct
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from f2tools.device import open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.wrappers import StaysOpen
from f2tools.dump.manifest import manifest
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.write.holes import FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE
from f2tools.f2fs.write.volume import WritableVolume, open_for_writing
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import open_image
from tests import judges
from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh, reading

NAMES = 300  # more than fit into an inode


def _tree(image: Path) -> dict[str, object]:
    with reading(image) as volume:
        return {
            path: {name: entry[name] for name in ("type", "ino", "size", "nlink", "sha256") if name in entry}
            for path, entry in manifest(volume)["entries"].items()
        }


def _lose(image: Path, ino: int) -> None:
    with reading(image) as volume:
        blkaddr = volume.nat.lookup(ino)[2]
    with image.open("r+b") as file:
        file.seek(blkaddr * 4096)
        file.write(bytes(4096))


@pytest.mark.peer
@pytest.mark.parametrize("more", [0, NAMES], ids=["inline", "blocks"])
@pytest.mark.parametrize("link", [False, True], ids=["moved", "linked"])
def test_what_was_deleted_or_moved_since_stays_so(more: int, link: bool, tmp_path: Path) -> None:
    judges.need_tool("fsck.f2fs")
    image = fresh(tmp_path)
    with open_for_writing(image) as volume:
        one, two = (volume.mkdir(F2FS_ROOT_INO, name, 0o755) for name in (b"one", b"two"))
        for name in (b"stays", b"moves", b"goes", b"linked"):
            volume.write(volume.create(one, name, 0o644), 0, random.Random(name).randbytes(9000))
        volume.create(one, b"goes too, empty", 0o644)
        below = volume.mkdir(one, b"below", 0o755)
        volume.create(below, b"file", 0o644)
        volume.mkdir(one, b"empty", 0o755)
        for number in range(more):
            volume.create(one, b"%d" % number, 0o644)
    with open_for_writing(image) as volume:
        volume.rename(one, b"moves", two, b"moved")
        volume.rename(one, b"below", two, b"below")
        volume.unlink(one, b"goes")
        volume.unlink(one, b"goes too, empty")
        volume.rmdir(one, b"empty")
        if link:
            volume.link(volume.lookup(one, b"linked"), two, b"linked")
        volume.write(volume.create(one, b"new", 0o644), 0, b"new")
    wanted = _tree(image)
    _lose(image, one)
    said = f2("fsck", "-y", image)
    assert said.code == 1
    assert " gone" not in said.text
    assert _tree(image) == wanted
    again = judges.fsck(image)
    assert not again.rc
    assert not judges.complaints_in_words(again.output)
    assert f2("fsck", image).code == 0


@pytest.mark.peer
def test_an_older_copy_of_a_file_gets_nothing_back_that_it_no_longer_had(tmp_path: Path) -> None:
    """Blocks and nodes that the tables have free are not its own, and its end is that of the blocks that it has."""
    judges.need_tool("fsck.f2fs")
    image, blocks = fresh(tmp_path), {b"shorter": 9, b"much shorter": 1500, b"punched": 9, b"longer": 3, b"sparse": 1}
    with open_for_writing(image) as volume:
        inos = {name: volume.create(F2FS_ROOT_INO, name, 0o644) for name in blocks}
        for name, count in blocks.items():
            volume.write(inos[name], 0, random.Random(name).randbytes(4096 * count))
        volume.truncate(inos[b"sparse"], 100 * 4096)
    with open_for_writing(image) as volume:
        volume.truncate(inos[b"shorter"], 2 * 4096)
        volume.truncate(inos[b"much shorter"], 100 * 4096)
        volume.fallocate(inos[b"punched"], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 8192)
        volume.write(inos[b"punched"], 0, b"new" * 1000)
        volume.write(inos[b"longer"], 3 * 4096, b"more" * 1024 * 1500)
        volume.write(inos[b"sparse"], 0, b"new")
    wanted = _tree(image)
    for ino in inos.values():
        _lose(image, ino)
    assert f2("fsck", "-y", image).code == 1
    assert _tree(image) == wanted
    again = judges.fsck(image)
    assert not again.rc
    assert not judges.complaints_in_words(again.output)
    assert f2("fsck", image).code == 0


@pytest.mark.peer
def test_where_inodes_are_missing_what_an_older_directory_names_is_looked_for(tmp_path: Path) -> None:
    """The entry of a file in the node address table is lost, too."""
    image = fresh(tmp_path)
    with open_for_writing(image) as volume:
        one = volume.mkdir(F2FS_ROOT_INO, b"one", 0o755)
        ino = volume.create(one, b"file", 0o644)
        volume.write(ino, 0, b"file" * 3000)
        for number in range(60):  # more than a journal has room for
            volume.create(F2FS_ROOT_INO, b"%d" % number, 0o644)
    with open_for_writing(image) as volume:
        volume.create(one, b"new", 0o644)
    wanted = _tree(image)
    _lose(image, one)
    with reading(image) as volume:
        assert ino not in volume.summaries.journals.nat["nid"]
        entry = int(volume.nat.blkaddrs[0]) * 4096 + 9 * ino
    with image.open("r+b") as file:
        file.seek(entry)
        file.write(bytes(9))
    assert f2("fsck", "-y", image).code == 1
    assert _tree(image) == wanted
    assert f2("fsck", image).code == 0


def test_copies_of_directories_that_no_checkpoint_had_keep_no_name_from_being_set_right(tmp_path: Path) -> None:
    """They are newer than what the table leads to, and lie where the log was before a crash."""
    image = fresh(tmp_path, "--size 128M")
    with open_for_writing(image) as volume:
        dirs = [volume.mkdir(F2FS_ROOT_INO, b"%d" % number, 0o755) for number in range(700)]
        for number in range(20):
            volume.write(volume.create(dirs[number], b"keep%d" % number, 0o644), 0, b"%d" % number)
    crashed = Overlay(open_device(image))
    volume = WritableVolume(StaysOpen(crashed))
    for round_ in range(3):
        for directory in dirs:
            volume.create(directory, b"new%d" % round_, 0o644)
    del volume
    crashed.apply(open_device(image, write=True))
    for _ in range(2):  # both packs are of after the crash
        with open_for_writing(image) as volume:
            volume.create(dirs[0], os.urandom(8).hex().encode(), 0o644)
    wanted = _tree(image)
    with closing(open_image(image)) as opened:
        heads = [pack.blkaddr * 4096 + 8 for pack in opened.packs]
        tree = check(opened).tree
        assert tree is not None
        places = {tree.name(entry): tree.entries[entry] for entry in np.flatnonzero(tree.named).tolist()}
    row = places[b"keep7"]
    with image.open("r+b") as file:
        for head in heads:
            file.seek(head)
            file.write(b"\xff\xff")
        file.seek(int(row["blkaddr"]) * 4096)
        at = file.read(4096).index(struct.pack("<IH", int(row["ino"]), len(b"keep7")))
        file.seek(int(row["blkaddr"]) * 4096 + at)
        file.write(struct.pack("<I", int(places[b"keep3"]["ino"])))
    assert f2("fsck", "-y", image).code == 1
    assert _tree(image) == wanted
