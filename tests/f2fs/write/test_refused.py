"""Operations under pressure: many files in memory, names that differ in case only, no room for the volume or an owner.

What is refused has changed nothing, and what is done is done whole.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import F2FS_CASEFOLD_FL, F2FS_ROOT_INO
from f2tools.f2fs.write.node import CLEAN_NODES_HELD
from f2tools.f2fs.write.volume import WritableVolume
from tests.f2fs.write.model import ACL_ACCESS, BLOCK, GROUP, GROUP_OBJ, MASK, OTHER, USER_OBJ, acl
from tests.f2fs.write.volumes import FULL, Twin, assert_same, fresh, judge, reading, writable
from tests.f2fs.write.workload import FILE, noise, text

ROOT = F2FS_ROOT_INO
CASEFOLD = "--size 64M -C utf8 -O extra_attr,inode_checksum"
PEOPLE = 1000


def look_at_many(volume: WritableVolume) -> None:
    """As a user who lists a large tree: more inodes than are kept in memory."""
    inos = [volume.create(ROOT, b"seen%d" % n, FILE) for n in range(CLEAN_NODES_HELD // 8)]
    volume.sync()
    for ino in inos:
        volume.live(ino)


@pytest.fixture
def few_nodes_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The border at which nodes are dropped, so low that a small tree crosses it."""
    monkeypatch.setattr("f2tools.f2fs.write.node.CLEAN_NODES_HELD", CLEAN_NODES_HELD // 16)


@pytest.mark.usefixtures("few_nodes_held")
def test_fsync_of_an_unchanged_file_after_looking_at_many(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    volume = writable(path)
    ino = volume.create(ROOT, b"file", FILE)
    volume.write(ino, 0, text("file", 100_000))
    volume.sync()
    look_at_many(volume)
    volume.fsync(ino)
    volume.write(ino, 100_000, b"and on")
    volume.fsync(ino)
    assert volume.read_at(ino, 99_990, 100)[10:] == b"and on"
    volume.close()
    judge(path)


@pytest.mark.usefixtures("few_nodes_held")
def test_a_held_file_gives_its_blocks_back_after_looking_at_many(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    volume = writable(path)
    ino = volume.create(ROOT, b"held", FILE)
    volume.write(ino, 0, noise("held", 8_000_000))
    volume.hold(ino)
    volume.unlink(ROOT, b"held")
    volume.sync()
    look_at_many(volume)
    free = volume.space.free_blocks
    assert volume.give_back(ino)
    assert volume.space.free_blocks >= free + 8_000_000 // BLOCK
    assert volume.live(ino).i_blocks == 1
    volume.sync()
    with reading(path) as read:
        assert read.inode(ino).inode.i_blocks == 1
    volume.release(ino)
    volume.close()
    judge(path)


@pytest.mark.parametrize("others", [0, 400], ids=["in the inode", "in blocks"])
def test_a_name_changes_its_case_only_where_a_free_place_lies_before_it(others: int, tmp_path: Path) -> None:
    path = fresh(tmp_path, CASEFOLD)
    twin = Twin(writable(path))
    directory = twin.mkdir(ROOT, b"folded", 0o755)
    twin.set_flags(directory, F2FS_CASEFOLD_FL)
    for n in range(others):
        twin.volume.create(directory, b"other%d" % n, FILE)
    twin = Twin(twin.volume)
    names = [b"Picture%d" % n for n in range(40)]
    for name in names:
        twin.create(directory, name, FILE)
    for name in names[::2]:
        twin.unlink(directory, name)
    for name in names[1::2]:
        twin.rename(directory, name, directory, name.upper())
    for name in names[1::2]:
        twin.rename(directory, name, directory, name.lower())
    assert_same(twin.volume, twin.model)
    twin.volume.close()
    judge(path, twin.model)


def full_volume(path: Path, files: dict[bytes, bytes], left: int, volume: WritableVolume | None = None) -> Twin:
    """A volume with these files in their inodes, and after that only so many blocks to spare."""
    twin = Twin(volume or writable(path))
    for name, content in files.items():
        twin.write(twin.create(ROOT, name, FILE), 0, content)
    filler = twin.create(ROOT, b"filler", FILE)
    twin.volume.sync()
    while (spare := twin.volume.space.free_blocks - left) > 0:
        count = min(512, max(1, spare - 8))  # nodes take some
        twin.volume.write(filler, twin.volume.live(filler).i_size, noise(spare, count * BLOCK))
    twin.volume.sync()
    assert twin.volume.space.free_blocks == left
    return Twin(twin.volume)


@pytest.mark.parametrize(
    ("offset", "length", "left"),
    [(3000, 3000, 0), (3000, 3000, 1), (3 * BLOCK, 100, 1), (3000, 2 * BLOCK, 0), (5000 * BLOCK, 1, 3)],
)
def test_a_small_file_is_as_it_was_when_the_full_volume_refuses_a_write(
    offset: int, length: int, left: int, tmp_path: Path
) -> None:
    path = fresh(tmp_path)
    content = text("small", 3000)
    twin = full_volume(path, {b"small": content}, left)
    volume = twin.volume
    ino = volume.lookup(ROOT, b"small")
    free = volume.space.free_blocks
    before = volume.live(ino).block.tobytes()
    with pytest.raises(OSError) as caught:
        volume.write(ino, offset, noise("more", length))
    assert caught.value.errno == errno.ENOSPC
    assert volume.live(ino).block.tobytes() == before
    assert volume.space.free_blocks == free
    assert_same(volume, twin.model)
    volume.close()
    judge(path, twin.model)


@pytest.mark.parametrize("left", range(1, 6))
@pytest.mark.parametrize("size", [0, 3000])
def test_a_write_that_the_quota_refuses_takes_no_block(size: int, left: int, tmp_path: Path) -> None:
    """A write that needs a data block and nodes for it, with so many blocks left to the owner."""
    path = fresh(tmp_path, f"--size 64M -O {FULL}")
    twin = Twin(writable(path))
    ino = twin.create(ROOT, b"file", FILE, PEOPLE, PEOPLE)
    twin.write(ino, 0, text("file", size))
    volume = twin.volume
    volume.set_quota("user", PEOPLE, space_hard=left * BLOCK)
    before = volume.live(ino).block.tobytes()
    free = volume.space.free_blocks
    needed = 3 + bool(size)  # the block, two nodes above it, and one for what was in the inode
    if left >= needed:
        twin.write(ino, 5000 * BLOCK, b"far away")
        assert volume.space.free_blocks == free - needed
    else:
        with pytest.raises(OSError) as caught:
            volume.write(ino, 5000 * BLOCK, b"far away")
        assert caught.value.errno == errno.EDQUOT
        assert volume.live(ino).block.tobytes() == before
        assert volume.space.free_blocks == free
    assert_same(volume, twin.model)
    volume.close()
    judge(path, twin.model)


def full_tree(path: Path, left: int = 0) -> tuple[Twin, int, int]:
    """A full volume with files and two directories, the second with its entries in blocks."""
    twin = Twin(writable(path))
    small, large = (twin.mkdir(ROOT, name, 0o755) for name in (b"small", b"large"))
    for n in range(300):
        twin.volume.create(large, b"a file of a rather long name, so that many fill a block %d" % n, FILE)
    for n in range(20):
        twin.volume.mkdir(large, b"directory%d" % n, 0o755)
        twin.volume.create(small, b"file%d" % n, FILE)
    twin.volume.sync()
    return full_volume(path, {b"a": b"a", b"b": noise("b", 3 * BLOCK)}, left, twin.volume), small, large


def test_a_full_volume_renames(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    twin, small, large = full_tree(path)
    twin.rename(ROOT, b"a", ROOT, b"a2")
    twin.rename(ROOT, b"a2", small, b"a")
    twin.rename(small, b"a", large, b"a")
    twin.rename(large, b"directory1", small, b"directory")
    twin.rename(large, b"directory2", small, b"directory")
    twin.rename(small, b"directory", large, b"directory1")
    twin.rename(large, b"a", small, b"file1", 2)
    twin.rename(small, b"file1", ROOT, b"b")  # frees its blocks
    assert twin.volume.space.free_blocks == 5  # 3, two nodes of directories that were replaced
    assert not twin.full
    assert_same(twin.volume, twin.model)
    twin.volume.close()
    judge(path, twin.model)


@pytest.mark.parametrize("left", range(3))
def test_a_rename_on_a_full_volume_is_done_or_not(left: int, tmp_path: Path) -> None:
    """Names of which some need a block of the directory, others don't; whiteouts, which are inodes."""
    path = fresh(tmp_path)
    twin, small, large = full_tree(path, left)
    for n in range(20):
        twin.attempt("rename", ROOT, b"a", small, b"a long name that needs room %d" % n * 8)
        twin.attempt("rename", small, b"a long name that needs room %d" % n * 8, ROOT, b"a")
        twin.attempt("rename", large, b"directory%d" % n, small, b"wide%d" % n * 40)
        name = b"a file of a rather long name, so that many fill a block %d" % n
        free, full = twin.volume.space.free_blocks, twin.full
        twin.attempt("rename", large, name, small, b"ghost%d" % n * 35, 4)
        assert twin.volume.space.free_blocks == free or twin.full == full
        twin.attempt("rename", large, name + b"0", large, b"moved %d" % n * 30)
    assert twin.full
    assert_same(twin.volume, twin.model)
    twin.volume.close()
    judge(path, twin.model)


def test_a_full_volume_lets_its_user_tidy_up(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    twin, small, large = full_tree(path)
    volume = twin.volume
    ino = volume.lookup(ROOT, b"b")
    twin.setattr(ino, mode=0o600, uid=7, gid=7)
    twin.setattr(large, atime_ns=5, mtime_ns=6)
    twin.truncate(ino, BLOCK + 100)
    twin.fallocate(ino, 3, 100, 100)
    twin.link(ino, small, b"link")
    twin.unlink(ROOT, b"b")
    twin.unlink(small, b"link")
    twin.rmdir(large, b"directory3")
    twin.unlink(small, b"file0")
    volume.fsync(volume.lookup(small, b"file1"))
    volume.sync()
    assert not twin.full
    assert_same(volume, twin.model)
    volume.close()
    judge(path, twin.model)


def test_attributes_of_a_full_volume_change_and_go(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    twin = Twin(writable(path))
    rules = acl((USER_OBJ, 6, -1), (GROUP_OBJ, 6, -1), (GROUP, 4, 100), (MASK, 6, -1), (OTHER, 4, -1))
    ino = twin.create(ROOT, b"with attributes", FILE)
    twin.setxattr(ino, ACL_ACCESS, rules)
    for n in range(3):
        twin.setxattr(ino, f"user.a{n}", noise(n, 1000))
    twin = full_volume(path, {}, 0, twin.volume)
    twin.setattr(ino, mode=0o640)
    twin.setxattr(ino, "user.a0", noise("other", 1000))
    for n in range(3):
        twin.removexattr(ino, f"user.a{n}")
    twin.removexattr(ino, ACL_ACCESS)
    assert twin.volume.space.free_blocks == 1
    assert not twin.full
    twin.volume.close()
    judge(path, twin.model)


@pytest.mark.parametrize("left", range(4))
def test_a_full_volume_takes_what_has_room(left: int, tmp_path: Path) -> None:
    """A directory that is full of short names needs a block for a long one; a file is one block."""
    path = fresh(tmp_path)
    twin, _, large = full_tree(path, left)
    done = 0
    for n in range(5):
        done += twin.attempt("create", ROOT, b"new%d" % n, FILE) is not None
    assert done == left
    assert twin.volume.space.free_blocks == 0
    assert twin.attempt("mkdir", large, b"a directory of a name that is long" * 7, 0o755) is None
    assert_same(twin.volume, twin.model)
    twin.volume.close()
    judge(path, twin.model)


@pytest.mark.parametrize("kind", ["file", "link", "acl"])
def test_a_file_that_the_quota_refuses_takes_nothing(kind: str, tmp_path: Path) -> None:
    path = fresh(tmp_path, f"--size 64M -O {FULL}")
    twin = Twin(writable(path))
    top = twin.mkdir(ROOT, b"top", 0o777, PEOPLE, PEOPLE)
    if kind == "acl":
        many = [(GROUP, 4, 100 + n) for n in range(60)]
        twin.setxattr(top, "system.posix_acl_default",
                      acl((USER_OBJ, 6, -1), (GROUP_OBJ, 6, -1), *many, (MASK, 6, -1), (OTHER, 4, -1)))  # fmt: skip
    volume = twin.volume
    used = volume.quota("user", PEOPLE)
    inodes, blocks = (17, 50) if kind == "file" else (40, 2)  # 16 such names fill two blocks
    volume.set_quota("user", PEOPLE, inodes_hard=inodes, space_hard=used.space + blocks * BLOCK)
    for n in range(60):
        free, full = volume.space.free_blocks, twin.full
        name = b"name %02d " % n * 25
        if kind == "link":
            twin.attempt("symlink", top, name, b"/x" * 1900, PEOPLE, PEOPLE)
        else:
            twin.attempt("create", top, name, FILE, PEOPLE, PEOPLE)
        assert volume.space.free_blocks == free or twin.full == full
    assert twin.full > 10
    assert_same(volume, twin.model)
    volume.close()
    judge(path, twin.model)
