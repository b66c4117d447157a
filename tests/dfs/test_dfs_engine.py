"""The engine: what POSIX says of names and content, what stays when nothing is closed, and where space comes back."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from f2tools.dfs.write import RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, WritableVolume
from tests.device.interrupt import interrupted
from tests.dfs.volumes import TIGHT, TIGHT_SIZE, codes, content, reading, report, tree, volume, writing

pytestmark = pytest.mark.usefixtures("directories")

ROOT = 1


def fails(number: int, call: object, *args: object) -> None:
    with pytest.raises(OSError) as caught:
        call(*args)  # type: ignore[operator]
    assert caught.value.errno == number


def test_what_was_written_is_read_again_after_closing() -> None:
    made = volume()
    directory = made.mkdir(ROOT, b"d", 0o750, 3, 4)
    file = made.create(directory, b"f", 0o640)
    made.write(file, 5, b"hello")
    made.symlink(directory, b"short", b"f")
    made.symlink(directory, b"long", b"x" * 900)
    made.setxattr(file, "user.a", b"\0\xff")
    expected = tree(made)
    assert made.read_at(file, 0, 100) == bytes(5) + b"hello"
    made.close()
    image = content(made)
    assert codes(image) == set()
    again = reading(image)
    assert again.clean
    assert tree(again) == expected
    inode = again.at_path(b"/d/f")
    assert (inode.mode, inode.xattrs) == (stat.S_IFREG | 0o640, {"user.a": b"\0\xff"})
    assert again.at_path(b"/d").uid == 3
    assert again.at_path(b"/d/short").ino == inode.ino


def test_no_change_of_a_closed_volume_succeeds() -> None:
    made = volume()
    file = made.create(1, b"f", 0o644)
    made.close()
    for change in (lambda: made.create(1, b"late", 0o644), lambda: made.write(file, 0, b"late"), made.sync):
        with pytest.raises(ValueError, match="closed"):
            change()
    made.close()


def test_a_file_that_outgrows_its_slot_moves_and_leaves_nothing_behind() -> None:
    made = volume()
    file = made.create(ROOT, b"f", 0o644)
    made.write(file, 0, b"a" * 2048)
    slot = made.geo.slot(file)
    assert made.inode(file).base == slot
    made.sync()
    made.write(file, 2047, b"bc")
    assert made.inode(file).base == made.geo.own_chunk(file)
    assert made.read_at(file, 0, 5000) == b"a" * 2047 + b"bc"
    made.sync()
    assert made.layer.extents(slot, made.geo.slot_blocks) == []


def test_holes_take_no_room_at_any_offset_and_deleting_gives_back_exactly_what_was_mapped() -> None:
    made = volume(chunk=None, slot=None)
    made.sync()
    before = made.layer.mapped_blocks
    file = made.create(ROOT, b"sparse", 0o644)
    made.truncate(file, 2 << 40)
    made.write(file, (2 << 40) - 1, b"z")
    made.write(file, 1 << 40, b"middle")
    made.sync()
    assert made.layer.mapped_blocks == before + 3 + made.geo.hashed  # two blocks and the inode, and the name's bucket
    assert made.read_at(file, (2 << 40) - 2, 9) == b"\0z"
    assert made.seek(file, 0, os.SEEK_DATA) == 1 << 40
    assert made.seek(file, 1 << 40, os.SEEK_HOLE) == (1 << 40) + 512
    fails(errno.EFBIG, made.write, file, 2 << 40, b"x")
    made.unlink(ROOT, b"sparse")
    made.sync()
    assert made.layer.mapped_blocks == before


def test_what_lay_behind_the_end_of_a_file_is_never_seen_again() -> None:
    made = volume()
    file = made.create(ROOT, b"f", 0o644)
    made.write(file, 0, b"s" * 2000)
    made.truncate(file, 100)
    made.truncate(file, 2000)
    assert made.read_at(file, 0, 2000) == b"s" * 100 + bytes(1900)
    made.write(file, 100, b"t" * 1900)
    made.truncate(file, 600)
    made.sync()
    made.write(file, 1000, b"end")
    assert made.read_at(file, 590, 420) == b"t" * 10 + bytes(400) + b"end"


def test_names_follow_posix() -> None:
    made = volume()
    directory = made.mkdir(ROOT, b"d", 0o755)
    file = made.create(directory, b"f", 0o644)
    fails(errno.EEXIST, made.create, directory, b"f", 0o644)
    fails(errno.ENOENT, made.unlink, ROOT, b"nothing")
    fails(errno.EISDIR, made.unlink, ROOT, b"d")
    fails(errno.ENOTEMPTY, made.rmdir, ROOT, b"d")
    fails(errno.ENOTDIR, made.rmdir, directory, b"f")
    fails(errno.ENOTDIR, made.create, file, b"x", 0o644)
    fails(errno.EPERM, made.link, directory, ROOT, b"e")
    fails(errno.ENAMETOOLONG, made.create, ROOT, b"n" * 256, 0o644)
    fails(errno.EINVAL, made.rename, ROOT, b"d", directory, b"inside")
    fails(errno.EEXIST, made.rename, directory, b"f", ROOT, b"d", RENAME_NOREPLACE)
    fails(errno.EISDIR, made.rename, directory, b"f", ROOT, b"d")
    fails(errno.EINVAL, made.rename, directory, b"f", ROOT, b"g", RENAME_EXCHANGE | RENAME_NOREPLACE)
    fails(errno.EOPNOTSUPP, made.setxattr, file, "system.other", b"")
    fails(errno.ENOSPC, made.setxattr, file, "user.big", bytes(500))
    made.create(ROOT, b"n" * 255, 0o644)
    made.link(file, ROOT, b"again")
    assert made.inode(file).links == 2
    made.close()
    assert codes(content(made)) == set()


def test_renaming_moves_replaces_exchanges_and_leaves_whiteouts() -> None:
    made = volume()
    one, two = made.mkdir(ROOT, b"one", 0o755), made.mkdir(ROOT, b"two", 0o755)
    inner = made.mkdir(one, b"inner", 0o755)
    file = made.create(one, b"f", 0o644)
    made.rename(one, b"inner", two, b"moved")
    assert made.lookup(inner, b"..") == two
    assert (made.inode(one).links, made.inode(two).links) == (2, 3)
    made.rename(one, b"f", two, b"moved", RENAME_EXCHANGE)
    assert (made.lookup(two, b"moved"), made.lookup(one, b"f"), made.lookup(inner, b"..")) == (file, inner, one)
    made.rename(two, b"moved", two, b"white", RENAME_WHITEOUT)
    assert stat.S_ISCHR(made.inode(made.lookup(two, b"moved")).mode)
    other = made.mkdir(ROOT, b"empty", 0o755)
    made.rename(one, b"f", ROOT, b"empty")
    assert made.lookup(ROOT, b"empty") == inner
    made.close()
    again = reading(content(made))
    assert codes(content(made)) == set()
    assert again.block(again.geo.inode_block(other)) == bytes(512)


def test_a_file_that_is_held_stays_without_a_name_and_goes_at_the_release_or_after_a_crash() -> None:
    made = volume()
    file = made.create(ROOT, b"f", 0o644)
    made.write(file, 0, b"still there")
    made.hold(file)
    made.unlink(ROOT, b"f")
    made.sync()
    assert made.nameless == [file]
    assert made.read_at(file, 0, 100) == b"still there"
    image = content(made)
    assert report(image).nameless == 1
    after = writing(image)
    after.close()
    assert codes(content(after)) == set()
    assert report(content(after)).inodes == 1
    made.release(file)
    made.close()
    assert report(content(made)).inodes == 1


def test_a_full_volume_says_so_keeps_what_it_has_and_takes_more_after_a_deletion() -> None:
    made = volume(shape=TIGHT, size=TIGHT_SIZE)
    file = made.create(ROOT, b"f", 0o644)
    wrote = made.write(file, 0, bytes(range(256)) * 2000)
    assert 0 < wrote < 512000
    assert wrote % 512 == 0
    fails(errno.ENOSPC, made.write, file, wrote, b"more")
    fails(errno.ENOSPC, made.create, ROOT, b"g", 0o644)
    assert made.read_at(file, 0, 1 << 20) == (bytes(range(256)) * 2000)[:wrote]
    assert made.statfs()["f_bfree"] == 0
    made.sync()
    made.write(file, 0, b"over")  # what is there can always be written over
    made.truncate(file, 512)
    again = made.create(ROOT, b"g", 0o644)
    assert made.write(again, 0, bytes(10000)) == 10000
    made.close()
    assert codes(content(made)) == set()


def test_what_needs_more_than_its_share_of_the_log_is_made_safe_in_several_transactions() -> None:
    made = volume(shape=TIGHT, size=TIGHT_SIZE)
    for number in range(100):
        made.create(ROOT, b"file %d" % number, 0o644)
    assert made.journal.through_log + made.journal.as_one > 1
    for number in range(0, 100, 2):
        made.unlink(ROOT, b"file %d" % number)
    made.close()
    image = content(made)
    assert codes(image) == set()
    assert len(tree(reading(image))) == 51


def test_an_fsync_of_a_file_alone_goes_without_the_log() -> None:
    made = volume()
    file = made.create(ROOT, b"f", 0o644)
    made.fsync(file)
    through = made.journal.through_log + made.journal.as_one
    made.write(file, 0, b"x")
    made.fsync(file)
    assert made.journal.through_log + made.journal.as_one == through
    assert made.journal.commits == 2


def test_an_fsync_makes_a_write_safe_that_had_to_make_a_shorter_end_safe_first() -> None:
    for grow in ("write", "truncate", "full"):
        made = volume(shape=TIGHT, size=TIGHT_SIZE)
        file = made.create(ROOT, b"f", 0o644)
        made.write(file, 0, bytes(2000) if grow != "full" else bytes(1 << 20))
        made.truncate(file, 10)
        if grow == "truncate":
            made.truncate(file, 100)
        else:
            made.write(file, 10, b"n" * (90 if grow == "write" else 100_000))
        expected = tree(made)
        assert made.unsaved
        made.fsync(file)
        assert not made.unsaved
        assert tree(reading(content(made))) == expected, grow


def test_the_number_of_a_deleted_file_is_not_given_out_before_that_is_safe() -> None:
    made = volume()
    made._cursor = made.geo.max_ino - 1
    last = made.create(ROOT, b"last", 0o644)
    assert last == made.geo.max_ino
    made.write(last, 0, b"old")
    made.unlink(ROOT, b"last")
    made._cursor = made.geo.max_ino - 1
    assert made.create(ROOT, b"next", 0o644) == 2
    made.sync()
    made._cursor = made.geo.max_ino - 1
    assert made.create(ROOT, b"again", 0o644) == last
    assert made.read_at(last, 0, 10) == b""


def test_after_an_error_of_the_device_nothing_is_written_any_more() -> None:
    made: WritableVolume = volume()
    made.create(ROOT, b"f", 0o644)
    made.sync()
    made.stop_writing("the test says so")
    fails(errno.EROFS, made.create, ROOT, b"g", 0o644)
    fails(errno.EROFS, made.sync)
    made.close()
    assert tree(reading(content(made))) == {b"/": 2, b"/f": b""}


def test_a_change_that_was_cut_off_by_ctrl_c_is_not_made_safe() -> None:
    def change(made: WritableVolume) -> None:
        directory = made.mkdir(ROOT, b"folder", 0o755)
        for number in range(4):
            made.write(made.create(directory, b"%d" % number, 0o644), 0, b"new" * 900)
        made.unlink(ROOT, b"kept")
        made.rename(directory, b"1", ROOT, b"kept")

    cut = 0
    for calls in range(1, 2000, 23):
        made = volume()
        made.write(made.create(ROOT, b"kept", 0o644), 0, b"old" * 900)
        made.sync()
        if not interrupted("dfs", calls, lambda made=made: change(made)):
            break
        cut += 1
        made.close()
        assert codes(content(made)) == set(), calls
    assert cut > 10
