"""What is written is there: at once, after a checkpoint, after a remount; nothing else changed; fsck.f2fs is silent."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_DIRSYNC_FL,
    F2FS_IMMUTABLE_FL,
    F2FS_NODUMP_FL,
    F2FS_PROJINHERIT_FL,
    F2FS_ROOT_INO,
    F2FS_SYNC_FL,
)
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.inode import has_extension
from f2tools.f2fs.write.namei import RENAME_EXCHANGE
from f2tools.f2fs.write.volume import WritableVolume
from tests import judges
from tests.f2fs.write import model as m
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.model import BLOCK
from tests.f2fs.write.volumes import FULL, Twin, assert_same, fresh, judge, model_of, reading, writable
from tests.f2fs.write.workload import FILE, Workload, noise, text
from tests.mkfs.tools import f2mkfs

ROOT = F2FS_ROOT_INO
LARGEST = (2 * 1018 + 2 * 1018**2 + 1018**3) * BLOCK  # what nodes below the inode map; max_file_blocks() in the kernel
FLAVOURS = {
    "plain": "--size 64M",
    "full": f"--size 64M -O {FULL}",
    "casefold": "--size 64M -C utf8 -O extra_attr,inode_checksum",
    "compressed": "--size 64M -O extra_attr,compression,inode_checksum,project_quota",
    "android": "--size 128M -g android",
    "sections": "--size 128M -s 2",
    "large-nat-bitmap": "--size 64M -i",
}
PARTS = ("small", "large", "holes", "links", "names", "xattrs", "flags", "churn")


def closed_and_judged(path: Path, twin: Twin) -> None:
    """The same before it is closed, after, and for fsck.f2fs."""
    assert_same(twin.volume, twin.model, "at once")
    twin.volume.close()
    judge(path, twin.model)


@pytest.mark.peer
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("flavour", ["plain", "full"])
def test_a_part(flavour: str, part: str, tmp_path: Path) -> None:
    path = fresh(tmp_path, FLAVOURS[flavour])
    twin = Twin(writable(path))
    getattr(Workload(twin, 1), part)()
    closed_and_judged(path, twin)


@pytest.mark.peer
@pytest.mark.parametrize("logs", [6, 4, 2])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_everything(flavour: str, logs: int, tmp_path: Path) -> None:
    path = fresh(tmp_path, FLAVOURS[flavour])
    twin = Twin(writable(path, active_logs=logs))
    Workload(twin, 1).everything()
    closed_and_judged(path, twin)


@pytest.mark.peer
def test_an_untouched_volume_stays_clean(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    with reading(path) as volume:
        before = model_of(volume)
    writable(path).close()
    judge(path, before)


@pytest.mark.parametrize("options", ["-b 16384", "-b 16384 -O packed_ssa,extra_attr,inode_checksum,quota"])
def test_larger_blocks(options: str, tmp_path: Path) -> None:
    """No C tool here reads them; the read-only engine, which is held against images that a newer one made, does."""
    path = fresh(tmp_path, f"--size 256M {options}")
    twin = Twin(writable(path))
    work = Workload(twin, 1)
    for part in (work.small, work.links, work.names, work.xattrs, work.churn):
        part()
    assert_same(twin.volume, twin.model, "at once")
    twin.volume.close()
    judge(path, twin.model, fsck=False)


@pytest.mark.peer
def test_a_volume_on_two_devices(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    f2mkfs(
        "-q",
        first,
        "--size",
        "64M",
        "--size",
        "64M",
        "-c",
        second,
        "-r",
        "-R",
        "0:0",
        "--device-path",
        "a",
        "--device-path",
        "b",
    )
    twin = Twin(WritableVolume(open_device(first, write=True, extra=[second])))
    Workload(twin, 1).everything()
    files = Workload(twin, 2).fill(80)
    twin.volume.close()
    assert len(files) > 100
    with Volume(open_device(first, extra=[second])) as volume:
        assert_consistent(volume)
        assert_same(volume, twin.model)
    judges.fsck_clean(first, second)


@pytest.mark.peer
def test_many_sessions_one_after_the_other(tmp_path: Path) -> None:
    path = fresh(tmp_path, FLAVOURS["full"])
    model = None
    for seed in range(8):
        twin = Twin(writable(path, active_logs=(6, 4, 2)[seed % 3]), model)
        Workload(twin, seed).churn(rounds=25)
        model = twin.model
        twin.volume.close()
        judge(path, model, fsck=seed % 3 == 2)


@pytest.mark.peer
def test_a_directory_grows_through_its_hash_levels_and_shrinks(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    twin = Twin(writable(path))
    top = twin.mkdir(ROOT, b"many", 0o755)
    volume = twin.volume
    numbers = {b"name-%05d-%s" % (n, b"x" * (n % 100)): 0 for n in range(3000)}
    for name in numbers:
        numbers[name] = volume.create(top, name, FILE)
    volume.sync()
    with open_device(path) as device:
        read = Volume(device)
        assert_consistent(read)
        assert {e.name: e.dentry.ino for e in read.listdir(read.path("/many").inode)} == numbers
        assert read.path("/many").inode.i_current_depth > 3
    for name in sorted(numbers)[::2]:
        volume.unlink(top, name)
        del numbers[name]
    volume.close()
    judge(path)
    with reading(path) as read:
        assert {e.name: e.dentry.ino for e in read.listdir(read.path("/many").inode)} == numbers


def test_an_unlinked_file_lives_as_long_as_it_is_held(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    twin = Twin(writable(path))
    ino = twin.create(ROOT, b"open", FILE)
    twin.write(ino, 0, noise("open", 50000))
    twin.hold(ino)
    twin.unlink(ROOT, b"open")
    twin.write(ino, 50000, b"still")
    assert twin.read_at(ino, 49990, 100)[-5:] == b"still"
    twin.volume.sync()
    with open_device(path) as device:
        volume = Volume(device)
        assert volume.orphans().tolist() == [ino]
        assert_consistent(volume)
    twin.release(ino)
    closed_and_judged(path, twin)


def test_orphans_of_a_power_cut_are_freed_at_the_next_mount(tmp_path: Path) -> None:
    path = fresh(tmp_path, FLAVOURS["full"])
    twin = Twin(writable(path))
    twin.volume.sync()
    before = twin.volume.statfs()
    for n in range(5):
        ino = twin.create(ROOT, b"open%d" % n, FILE)
        twin.write(ino, n * 5000 * BLOCK, noise(n, 30000))
        twin.setxattr(ino, "user.long", b"v" * 1000)
        twin.hold(ino)
        twin.unlink(ROOT, b"open%d" % n)
    twin.volume.sync()
    twin.volume.abandon()
    again = Twin(writable(path))
    assert again.volume.statfs() == before
    again.volume.close()
    judge(path)


@pytest.mark.parametrize("datasync", [False, True])
def test_a_file_that_was_fsynced_survives_without_a_checkpoint(datasync: bool, tmp_path: Path) -> None:
    path = fresh(tmp_path, FLAVOURS["full"])
    twin = Twin(writable(path))
    old = twin.create(ROOT, b"old", FILE)
    twin.write(old, 0, text("old", 100000))
    twin.volume.sync()
    version = int(twin.volume.cp.checkpoint_ver)
    new = twin.create(ROOT, b"new", FILE, 1000, 1000)
    twin.write(new, 0, text("new", 70000))
    twin.volume.fsync(new, datasync)
    twin.write(old, 20000, b"changed")
    twin.write(old, 200000, b"appended")
    twin.volume.fsync(old, datasync)
    expected = twin.model.copy()
    twin.write(old, 0, b"never synced")
    twin.create(ROOT, b"lost", FILE)
    assert int(twin.volume.cp.checkpoint_ver) == version, "fsync made a checkpoint"
    twin.volume.abandon()
    again = writable(path)
    expected.change(ROOT, mtime_ns=None)
    assert_same(again, expected)
    again.close()
    judge(path, expected)


def test_errors_are_those_of_the_system_calls(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    twin = Twin(writable(path))
    volume = twin.volume
    directory = twin.mkdir(ROOT, b"folder", 0o755)
    inner = twin.mkdir(directory, b"inner", 0o755)
    ino = twin.create(ROOT, b"file", FILE)
    for name, arguments, expected in (
        ("lookup", (ROOT, b"none"), errno.ENOENT),
        ("lookup", (ino, b"none"), errno.ENOTDIR),
        ("create", (ROOT, b"file", FILE), errno.EEXIST),
        ("create", (ROOT, b"n" * 256, FILE), errno.ENAMETOOLONG),
        ("create", (ino, b"x", FILE), errno.ENOTDIR),
        ("mkdir", (ROOT, b"file", 0o755), errno.EEXIST),
        ("link", (directory, ROOT, b"x"), errno.EPERM),
        ("link", (ino, ROOT, b"folder"), errno.EEXIST),
        ("unlink", (ROOT, b"folder"), errno.EISDIR),
        ("unlink", (ROOT, b"none"), errno.ENOENT),
        ("rmdir", (ROOT, b"file"), errno.ENOTDIR),
        ("rmdir", (ROOT, b"folder"), errno.ENOTEMPTY),
        ("rename", (ROOT, b"folder", inner, b"x"), errno.EINVAL),
        ("rename", (ROOT, b"file", ROOT, b"folder"), errno.EISDIR),
        ("rename", (ROOT, b"folder", ROOT, b"file"), errno.ENOTDIR),
        ("rename", (ROOT, b"file", ROOT, b"folder", 1), errno.EEXIST),
        ("rename", (ROOT, b"file", ROOT, b"none", 2), errno.ENOENT),
        ("rename", (directory, b"inner", ROOT, b"folder"), errno.ENOTEMPTY),
        ("symlink", (ROOT, b"long", b"t" * BLOCK), errno.ENAMETOOLONG),
        ("write", (directory, 0, b"x"), errno.EISDIR),
        ("getxattr", (ino, "user.none"), errno.ENODATA),
        ("removexattr", (ino, "user.none"), errno.ENODATA),
        ("setxattr", (ino, "user.none", b"x", m.XATTR_REPLACE), errno.ENODATA),
        ("fallocate", (ino, m.COLLAPSE_RANGE, 0, BLOCK), errno.EINVAL),
        ("fallocate", (ino, m.INSERT_RANGE, 1, BLOCK), errno.EINVAL),
        ("fallocate", (ino, 0, 0, 0), errno.EINVAL),
    ):
        with pytest.raises(OSError) as caught:
            twin.do(name, *arguments)
        assert caught.value.errno == expected, f"{name}{arguments}: {caught.value!r}"
    for call in (
        lambda: volume.write(ino, LARGEST, b"x"),
        lambda: volume.truncate(ino, LARGEST + 1),
    ):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EFBIG
    closed_and_judged(path, twin)


@pytest.mark.peer
def test_the_last_byte_of_the_largest_file(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    twin = Twin(writable(path))
    ino = twin.create(ROOT, b"largest", FILE)
    twin.write(ino, LARGEST - 7, b"the end")
    twin.write(ino, 0, b"the beginning")
    assert twin.read_at(ino, LARGEST - 7, 10) == b"the end"
    closed_and_judged(path, twin)


@pytest.mark.peer
def test_attributes_up_to_the_limit(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    twin = Twin(writable(path))
    ino = twin.create(ROOT, b"file", FILE)
    twin.setxattr(ino, "user.large", b"v" * 3500)
    with pytest.raises(OSError) as caught:
        twin.volume.setxattr(ino, "user.more", b"w" * 3000)
    assert caught.value.errno in (errno.ENOSPC, errno.E2BIG)
    for n in range(8):
        twin.setxattr(ino, f"user.k{n}", b"%d" % n * 10)
    twin.removexattr(ino, "user.large")
    for n in range(60):
        twin.setxattr(ino, f"user.k{n}", b"%d" % n * 10)
    for n in range(60):
        twin.removexattr(ino, f"user.k{n}")
    assert twin.listxattr(ino) == []
    closed_and_judged(path, twin)


@pytest.mark.peer
def test_quotas_follow_owners_and_projects(tmp_path: Path) -> None:
    path = fresh(tmp_path, FLAVOURS["full"])
    twin = Twin(writable(path))
    top = twin.mkdir(ROOT, b"project", 0o755)
    twin.set_projid(top, 42)
    twin.set_flags(top, F2FS_PROJINHERIT_FL)
    for n in range(40):
        ino = twin.create(top, b"f%d" % n, FILE, 1000 + n * 97, n % 5)
        twin.write(ino, 0, noise(n, n * 3000))
    for n in range(0, 40, 2):
        ino = twin.lookup(top, b"f%d" % n)
        twin.setattr(ino, uid=5, gid=6)
    for n in range(0, 40, 5):
        twin.unlink(top, b"f%d" % n)
    with pytest.raises(OSError) as caught:
        twin.link(twin.create(ROOT, b"outside", FILE), top, b"inside")
    assert caught.value.errno == errno.EXDEV
    closed_and_judged(path, twin)


def test_flags_for_directories_are_refused_to_others(tmp_path: Path) -> None:
    path = fresh(tmp_path, f"--size 64M -C utf8 -O {FULL}")
    with writable(path) as volume:
        file, fifo, directory = (
            volume.create(ROOT, b"file", FILE), volume.create(ROOT, b"fifo", stat.S_IFIFO | 0o644),
            volume.mkdir(ROOT, b"directory", 0o755),
        )  # fmt: skip
        for ino, flags in (
            (file, F2FS_PROJINHERIT_FL), (file, F2FS_CASEFOLD_FL), (file, F2FS_DIRSYNC_FL | F2FS_NODUMP_FL),
            (fifo, F2FS_SYNC_FL),
        ):  # fmt: skip
            with pytest.raises(OSError) as caught:
                volume.set_flags(ino, flags)
            assert caught.value.errno == errno.EOPNOTSUPP
            assert not volume.live(ino).i_flags
        volume.set_flags(fifo, F2FS_NODUMP_FL)
        volume.set_flags(directory, F2FS_PROJINHERIT_FL | F2FS_CASEFOLD_FL | F2FS_DIRSYNC_FL)
        volume.live(file).set(i_flags=F2FS_PROJINHERIT_FL)  # as it was taken before
        volume.set_flags(file, F2FS_NODUMP_FL)
        assert volume.live(file).i_flags == F2FS_NODUMP_FL
    judge(path)


def test_an_immutable_file_can_be_counted_for_another_project(tmp_path: Path) -> None:
    path = fresh(tmp_path, f"--size 64M -O {FULL}")
    with writable(path) as volume:
        ino = volume.create(ROOT, b"file", FILE)
        volume.set_flags(ino, F2FS_IMMUTABLE_FL)
        volume.set_projid(ino, 7)
        assert volume.live(ino).extra["i_projid"] == 7
    judge(path)


@pytest.mark.parametrize("mode", [0, 1, 3, 8, 16, 32])
def test_fallocate_beyond_the_largest_size_is_refused_in_every_mode(mode: int, tmp_path: Path) -> None:
    with writable(fresh(tmp_path)) as volume:
        ino = volume.create(ROOT, b"file", FILE)
        volume.write(ino, 0, b"content")
        most = volume.mapper.max_blocks(volume.live(ino)) * BLOCK
        for offset, length in ((0, most + BLOCK), (most, BLOCK), (1 << 62, 1 << 62)):
            with pytest.raises(OSError) as caught:
                volume.fallocate(ino, mode, offset, length)
            assert caught.value.errno == errno.EFBIG
        assert volume.read_at(ino, 0, 10) == b"content"
        volume.fallocate(ino, 3, 0, most)
        assert volume.read_at(ino, 0, 10) == bytes(7)


def test_a_directory_is_not_exchanged_with_one_in_it_whatever_their_projects(tmp_path: Path) -> None:
    with writable(fresh(tmp_path, f"--size 64M -O {FULL}")) as volume:
        outer = volume.mkdir(ROOT, b"outer", 0o755)
        volume.set_projid(ROOT, 7)
        volume.set_flags(ROOT, F2FS_PROJINHERIT_FL)
        volume.mkdir(outer, b"inner", 0o755)
        with pytest.raises(OSError, match="inner") as caught:
            volume.rename(outer, b"inner", ROOT, b"outer", RENAME_EXCHANGE)
    assert caught.value.errno == errno.EINVAL  # as the kernel's VFS says before it asks F2FS


@pytest.mark.peer
def test_compressed_files_save_blocks_and_are_rewritten(tmp_path: Path) -> None:
    path = fresh(tmp_path, FLAVOURS["compressed"])
    twin = Twin(writable(path))
    top = twin.mkdir(ROOT, b"packed", 0o755)
    twin.set_flags(top, F2FS_COMPR_FL)
    ino = twin.create(top, b"text", FILE)
    twin.write(ino, 0, text("text", 400_000))
    twin.volume.sync()
    assert twin.volume.inode(ino).inode.extra["i_compr_blocks"] > 20
    for n in range(30):
        twin.write(ino, n * 13_337, noise(n, 100))
        if n % 10 == 9:
            twin.volume.sync()
    twin.truncate(ino, 123_456)
    twin.truncate(ino, 200_000)
    twin.write(ino, 180_000, text("more", 100_000))
    closed_and_judged(path, twin)


def test_holes_are_found(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    volume = writable(path)
    ino = volume.create(ROOT, b"holes", FILE)
    for block in (3, 4, 10, 2000):
        volume.write(ino, block * BLOCK, b"x" * BLOCK)
    found, at = [], 0
    while True:
        try:
            start = volume.seek(ino, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break
        at = volume.seek(ino, start, os.SEEK_HOLE)
        found.append((start // BLOCK, at // BLOCK))
    assert found == [(3, 5), (10, 11), (2000, 2001)]
    volume.close()


def test_what_can_not_be_written_safely_is_refused(tmp_path: Path) -> None:
    """A read-only volume, and one with a feature that nobody knows."""
    path = fresh(tmp_path, "--size 128M -O ro")
    with pytest.raises((OSError, F2fsError)):
        writable(path)
    path = fresh(tmp_path, "--size 64M", "unknown")
    with path.open("r+b") as file:
        for start in (1024, 4096 + 1024):
            file.seek(start + 2180 + 3)
            file.write(b"\x40")
    with pytest.raises(F2fsError):
        writable(path)
    assert stat.S_ISREG(path.stat().st_mode)


def test_a_picture_is_cold_and_the_log_of_a_database_hot_by_how_their_extensions_begin(tmp_path: Path) -> None:
    """What a kernel 6.1 wrote into i_advise of these names on a volume of mkfs.f2fs."""
    advice = {
        b"a.jp": 1, b"b.jpg": 1, b"C.JPEG": 1, b"d.jpg.tmp": 1, b"e.mp4": 1, b"f.ogg": 1, b"g.avi": 1, b"h.avix": 1,
        b"i.xjp": 0, b"j.txt": 0, b"k.db": 32, b"l.db-wal": 32, b"m.dbx": 32, b".jpg": 0,
    }  # fmt: skip
    with writable(fresh(tmp_path, FLAVOURS["plain"])) as volume:
        assert {name: volume.live(volume.create(ROOT, name, 0o644)).i_advise for name in advice} == advice


def test_an_extension_may_have_dots() -> None:
    """As is_extension_exist() of fs/f2fs/namei.c compares at each dot."""
    names = [b"a.tar.gz", b"b.x.TAR.GZ.part", b"c.tar", b"d.tar.xz", b".tar.gz", b"e.gz"]
    assert [has_extension(name, (b"tar.gz",)) for name in names] == [True, True, False, False, False, False]


@pytest.mark.parametrize("datasync", [False, True])
def test_an_fsync_of_what_was_written_back_before_it_is_not_lost(datasync: bool, tmp_path: Path) -> None:
    path = fresh(tmp_path)
    volume = writable(path)
    ino = volume.create(ROOT, b"file", FILE)
    volume.write(ino, 0, text("old", 100000))
    volume.sync()
    volume.fsync(ino)
    content = text("new", 100000)
    volume.write(ino, 0, content)
    volume.files.write_back_all()  # as where memory runs short
    volume.nodes.write(list(volume.nodes.dirty))
    volume.fsync(ino, datasync)
    volume.abandon()
    with writable(path) as volume:
        assert volume.read_at(ino, 0, len(content)) == content


def test_inodes_read_together_are_those_in_memory_before_they_are_written(tmp_path: Path) -> None:
    path = fresh(tmp_path)
    twin = Twin(writable(path))
    old = twin.create(ROOT, b"old", FILE)
    untouched = twin.create(ROOT, b"untouched", FILE)
    twin.volume.close()
    volume = writable(path)
    volume.setattr(old, mode=0o600)
    new = volume.create(ROOT, b"new", stat.S_IFIFO | 0o640)
    asked = [new, 0, untouched, old, 1 << 30, ROOT]
    found = volume.nodes.inode_blocks(asked)
    assert sorted(found.place.tolist()) == [0, 2, 3, 5]
    assert [asked[at] for at in found.place.tolist()] == found.inos.tolist()
    assert sorted(found.wrong) == [1, 4]
    root = volume.nodes.live(ROOT).i_mode
    now = {0: stat.S_IFIFO | 0o640, 2: FILE, 3: stat.S_IFREG | 0o600, 5: root}
    modes = volume.nodes.modes(asked)
    assert {at: mode for at, mode in enumerate(modes) if isinstance(mode, int)} == now
    assert [str(modes[at]) for at in (1, 4)] == [str(found.wrong[at]) for at in (1, 4)]
    assert [getattr(inode, "i_mode", None) for inode in volume.nodes.inodes([new, old])] == [now[0], now[3]]
    volume.close()


def test_a_range_goes_out_of_a_file_of_terabytes_and_comes_into_it(tmp_path: Path) -> None:
    """Where such a file has holes nothing is to be moved, and no node is needed."""
    path, far = fresh(tmp_path), 1 << 40
    with writable(path) as volume:
        ino = volume.create(F2FS_ROOT_INO, b"f", FILE)
        for offset in (0, 3000 * BLOCK, far, 3 * far + 7 * BLOCK):
            volume.write(ino, offset, b"%d" % offset)
        volume.fallocate(ino, m.COLLAPSE_RANGE, BLOCK, 4 * BLOCK)
        volume.fallocate(ino, m.COLLAPSE_RANGE, far // 2, far // 4)
        volume.fallocate(ino, m.INSERT_RANGE, BLOCK, far // 4 + 4 * BLOCK)
    with reading(path) as volume:
        data = b"".join(bytes(data) for _, data in volume.path("/f").chunks())
        places = {offset: bytes(data).rstrip(b"\0") for offset, data in volume.path("/f").chunks()}
    assert len(data) < far
    moved = far // 4 + 3000 * BLOCK
    assert {place: text for place, text in places.items() if text} == {
        0: b"0", moved: b"%d" % (3000 * BLOCK), far: b"%d" % far, 3 * far + 7 * BLOCK: b"%d" % (3 * far + 7 * BLOCK)
    }  # fmt: skip
    judge(path)
