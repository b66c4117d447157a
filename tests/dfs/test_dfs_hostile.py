"""Damaged and hostile volumes: each damage has its finding, and nothing ends in a traceback, a hang, an escape."""

from __future__ import annotations

import os
import random
import tarfile
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from zlib import crc32

import pytest

from f2tools.copyout.tree_extract import extract
from f2tools.copyout.tree_show import manifest
from f2tools.copyout.tree_tar import write_tar
from f2tools.dfs.buckets import bucket_of
from f2tools.dfs.check import check
from f2tools.dfs.dentries import EMPTY, entries_of, with_entry, with_target, without_entry
from f2tools.dfs.layout import ROOT_INO, SUPER_PLACES, WAL_START, InodeBlock
from f2tools.dfs.volume import NotDfs, Volume
from f2tools.dfs.wal import Transaction, write_transaction
from f2tools.dfs.write import WritableVolume
from f2tools.errors import F2fsError
from f2tools.flash.vsl import Vsl, open_vsl
from tests.device.memory import Memory
from tests.dfs import volumes
from tests.dfs.volumes import FILE, FOLDER, INNER, change_block, clock, content, geometry, sample, volume

pytestmark = pytest.mark.usefixtures("directories")

GEO = geometry()


def damaged(change: Callable[[Vsl], object]) -> bytes:
    layer = open_vsl(Memory(sample()))
    change(layer)
    layer.close()
    return bytes(layer.medium.device.content)  # type: ignore[attr-defined]


def inode_with(ino: int, **fields: int | bytes) -> Callable[[Vsl], None]:
    """Change fields of an inode, whose checksum fits afterwards."""

    def change(layer: Vsl) -> None:
        block = InodeBlock.parse(layer.read_vblocks(GEO.inode_block(ino), 1))
        for name, value in fields.items():
            assert getattr(block, name) != value
            setattr(block, name, value)
        block.i_crc = 0
        block.i_crc = crc32(block.build())
        layer.write_vblocks(GEO.inode_block(ino), block.build())

    return change


def block_of(name: bytes, directory: int = FOLDER) -> int:
    """The block of a directory in which a name stands, or would."""
    return GEO.own_chunk(directory) + (bucket_of(GEO, bytes(16), name) if volumes.hashed else 0)


def entry_at(block: bytes, name: bytes) -> int:
    return next(e.offset for e in entries_of(block, 0) if e.name == name)


def directory_with(
    change: Callable[[bytes], bytes], name: bytes = b".", directory: int = FOLDER
) -> Callable[[Vsl], None]:
    """Change the block in which a name stands, or would."""

    def apply(layer: Vsl) -> None:
        block = layer.read_vblocks(block_of(name, directory), 1)
        layer.write_vblocks(block_of(name, directory), change(block if any(block) else EMPTY))

    return apply


def retarget(name: bytes, ino: int, kind: int) -> Callable[[Vsl], None]:
    return directory_with(lambda block: with_target(block, entry_at(block, name), ino, kind), name)


def add(name: bytes, ino: int, kind: int) -> Callable[[Vsl], None]:
    return directory_with(lambda block: with_entry(block, name, ino, kind)[0], name)


def remove(name: bytes) -> Callable[[Vsl], None]:
    return directory_with(lambda block: without_entry(block, entry_at(block, name)), name)


def elsewhere(layer: Vsl) -> None:
    """The entry of the file stands in another bucket than its own."""
    remove(b"file")(layer)
    directory_with(lambda block: with_entry(block, b"file", FILE, 8)[0], b"another")(layer)


def flip(block: int) -> Callable[[Vsl], None]:
    def change(data: bytearray) -> None:
        data[20] ^= 0xFF

    return lambda layer: change_block(layer, block, change)


def circle(layer: Vsl) -> None:
    """`directory` and `inner` hold each other, and the root neither."""
    name = b"folder"
    directory_with(lambda block: without_entry(block, entry_at(block, name)), name, ROOT_INO)(layer)
    directory_with(lambda block: with_entry(block, name, FOLDER, 4)[0], name, INNER)(layer)


DAMAGE: dict[str, tuple[Callable[[Vsl], object], set[str]]] = {
    "a superblock": (flip(SUPER_PLACES[0]), {"DFS001"}),
    "the log's head": (flip(WAL_START), {"DFS003"}),
    "an inode's bits": (flip(GEO.inode_block(FILE)), {"DFS010", "DFS024"}),
    "an inode's base": (inode_with(FILE, i_base=GEO.slot(FILE) + 1), {"DFS010", "DFS024"}),
    "an inode's size": (inode_with(FILE, i_size=1 << 40), {"DFS010", "DFS024"}),
    "an inode's mode": (inode_with(FILE, i_mode=0o170644), {"DFS010", "DFS024"}),
    "an inode's number": (inode_with(FILE, i_number=9), {"DFS010", "DFS024"}),
    "an inode's links": (inode_with(FILE, i_links=7), {"DFS011"}),
    "an open file": (inode_with(FILE, i_links=0), {"DFS011", "DFS013"}),
    "a directory's links": (inode_with(FOLDER, i_links=2), {"DFS011"}),
    "a directory's size": (inode_with(FOLDER, i_size=64 << 20), {"DFS021"}),
    "a file's end": (inode_with(FILE, i_size=100), {"DFS040"}),
    "a name": (remove(b"file"), {"DFS012"}),
    "a name of a directory": (remove(b"inner"), {"DFS011", "DFS012"}),
    "no `..`": (remove(b".."), {"DFS027"}),
    "a wrong `..`": (retarget(b"..", INNER, 4), {"DFS026"}),
    "a wrong `.`": (retarget(b".", 1, 4), {"DFS026"}),
    "a type": (retarget(b"file", FILE, 4), {"DFS025"}),
    "a target": (retarget(b"file", 900, 8), {"DFS012", "DFS024"}),
    "a number beyond": (retarget(b"file", 0xFFFFFFFF, 8), {"DFS012", "DFS022"}),
    "a slash": (directory_with(lambda block: with_entry(block, b"../up", FILE, 8)[0]), {"DFS022"}),
    "a name twice": (add(b"file", FILE, 8), {"DFS023"}),
    "a directory twice": (add(b"again", INNER, 4), {"DFS028"}),
    "the root within": (add(b"root", ROOT_INO, 4), {"DFS028"}),
    "a chain": (directory_with(lambda block: b"\xff" * 512, b"file"), {"DFS012", "DFS020"}),
    "no root": (inode_with(ROOT_INO, i_mode=0o100755), {"DFS012", "DFS030"}),
    "a circle": (circle, {"DFS011", "DFS029"}),
    "a free place": (lambda layer: layer.write_vblocks(GEO.slot(77), b"x" * 512), {"DFS040"}),
    "nobody's place": (lambda layer: layer.write_vblocks((1 << 64) - 1, b"x" * 512), {"DFS041"}),
    "between": (lambda layer: layer.write_vblocks(GEO.inode_block(0), b"x" * 512), {"DFS041"}),
    "no first block": (directory_with(lambda block: EMPTY), {"DFS027"}),
    "an empty block": (directory_with(lambda block: EMPTY, b"file"), {"DFS012"}),
    "another bucket": (elsewhere, {"DFS031"}),
    "no bucket": (lambda layer: layer.trim_vblocks(block_of(b"file"), 1), {"DFS012"}),
}
ONLY_LOG, ONLY_HASHED = {"the log's head"}, {"another bucket", "no bucket"}
OF_HASHED = {"a directory's size": {"DFS032"}}
CASES = [(kind, what) for kind in ("log", "hashed") for what in sorted(DAMAGE)
         if what not in (ONLY_HASHED if kind == "log" else ONLY_LOG)]  # fmt: skip


@pytest.mark.parametrize(("directories", "what"), CASES, indirect=["directories"])
def test_each_kind_of_damage_has_its_finding(directories: str, what: str, tmp_path: Path) -> None:
    change, expected = DAMAGE[what]
    expected = OF_HASHED.get(what, expected) if directories == "hashed" else expected
    image = damaged(change)
    seen = Volume(open_vsl(Memory(image)))
    report = check(seen)
    assert {finding.code for finding in report.findings} >= expected, report.findings
    look_at_all_of(image, tmp_path)


def look_at_all_of(image: bytes, directory: Path) -> None:
    """Everything that reads; errors are those that say what is wrong."""
    for look in (
        lambda v: manifest(v, b"/", {}),
        lambda v: write_tar(v, BytesIO()),
        lambda v: extract(v, str(directory / "target")),
        lambda v: check(v),
    ):
        with suppress(F2fsError, OSError):
            look(Volume(open_vsl(Memory(image))))
    assert not (directory / "up").exists()


def test_damage_by_chance_ends_in_findings_and_errors_never_in_anything_else(tmp_path: Path) -> None:
    image = sample()
    known = open_vsl(Memory(image))
    blocks = [block for start, count in known.extents() for block in range(start, start + count)]
    interesting = [block for block in blocks if not WAL_START < block < 1 << 16]
    said: set[str] = set()
    for seed in range(120):
        chance = random.Random(seed)
        layer = open_vsl(Memory(image))
        for _ in range(chance.randrange(1, 4)):
            block = chance.choice(interesting)
            data = bytearray(layer.read_vblocks(block, 1))
            for _ in range(chance.randrange(1, 6)):
                data[chance.randrange(512)] = chance.randrange(256)
            layer.write_vblocks(block, bytes(data))
        layer.close()
        changed = bytes(layer.medium.device.content)  # type: ignore[attr-defined]
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            check(Volume(open_vsl(Memory(changed))))
            look_at_all_of(changed, directory)
            after = WritableVolume(open_vsl(Memory(changed)), clock=clock())
            after.create(ROOT_INO, b"new", 0o644)
            after.unlink(FOLDER, b"file")
            after.close()
        except (F2fsError, OSError) as error:
            said.add(type(error).__name__)
    assert "Corrupt" in said


@pytest.mark.parametrize("directories", ["log"], indirect=True)
def test_a_transaction_that_reaches_outside_of_files_is_refused(directories: str) -> None:
    for start, count in ((SUPER_PLACES[0], 1), ((1 << 64) - 1, 2)):
        layer = open_vsl(Memory(sample()))
        write_transaction(layer, Transaction(9, {}, [(start, count)]))
        layer.flush()
        seen = Volume(layer)
        assert "DFS003" in {finding.code for finding in check(seen).findings}


def test_what_is_no_volume_is_said_to_be_none() -> None:
    layer = open_vsl(Memory(sample()))
    for place in SUPER_PLACES:
        layer.trim_vblocks(place, 1)
    with pytest.raises(NotDfs, match="dfs mkfs"):
        Volume(layer)


def test_an_archive_and_a_copy_hold_what_the_volume_holds(tmp_path: Path) -> None:
    made = volume(chunk=None, slot=None)
    directory = made.mkdir(ROOT_INO, b"folder", 0o700)
    file = made.create(directory, b"file", 0o4640)
    made.write(file, 0, b"begin")
    made.write(file, 1 << 30, b"end")
    made.link(file, ROOT_INO, b"linked")
    made.symlink(ROOT_INO, b"link", b"folder/file")
    made.setxattr(file, "user.name", b"value")
    made.close()
    out = BytesIO()
    seen = Volume(open_vsl(Memory(content(made))))
    assert write_tar(seen, out).lost == []
    assert len(out.getvalue()) < 100_000
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        found = {member.name: member for member in archive}
        assert set(found) == {".", "folder", "folder/file", "link", "linked"}
        assert (found["folder/file"].size, found["linked"].islnk()) == ((1 << 30) + 3, True)
        assert found["folder/file"].pax_headers["SCHILY.xattr.user.name"] == "value"
    report = extract(seen, str(tmp_path / "target"))
    assert (report.lost, report.left_out, report.hard_links) == ([], 1, 1)
    copied = tmp_path / "target" / "folder" / "file"
    assert copied.stat().st_size == (1 << 30) + 3
    assert copied.stat().st_blocks < 100
    assert copied.stat().st_mode & 0o7000 == 0
    assert os.readlink(tmp_path / "target" / "link") == "folder/file"
    assert (tmp_path / "target" / "linked").stat().st_ino == copied.stat().st_ino
