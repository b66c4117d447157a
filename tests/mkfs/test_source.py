"""A directory as the source of a volume: all that it holds, in an order of its own, and what changes meanwhile."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from f2tools.copyin.columns import read_columns
from f2tools.copyin.source import FILES_AHEAD, SourceError, Tree, checked, order_of, read_ahead, read_directory
from f2tools.f2fs.write.bulk.tree import SourceEntry
from f2tools.native import core
from tests.mkfs.source_tools import WHEN, content_of, facts, populate


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return populate(tmp_path_factory.mktemp("source") / "top")


def entry_of(tree: Tree, path: bytes) -> SourceEntry:
    return next(entry for entry in tree.entries if entry.path == path)


def test_everything_in_a_directory_is_found(directory: Path) -> None:
    tree = read_directory(str(directory))
    checked(tree.entries)
    found = facts(tree)
    names = {b""}
    for top, directories, files in os.walk(os.fsencode(directory)):
        names |= {os.path.relpath(os.path.join(top, name), os.fsencode(directory)) for name in (*directories, *files)}
    assert found.keys() == names
    for path, fact in found.items():
        full = os.path.join(os.fsencode(directory), path)
        status = os.lstat(full)
        if "link_to" in fact:
            assert os.path.samefile(full, os.path.join(os.fsencode(directory), fact["link_to"]))
            continue
        assert (fact["mode"], fact["owner"]) == (status.st_mode, (status.st_uid, status.st_gid))
        assert fact["mtime"] == status.st_mtime_ns
        if stat.S_ISREG(status.st_mode):
            assert fact["content"] == Path(os.fsdecode(full)).read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            assert fact["target"] == os.readlink(full)
        elif stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            assert os.makedev(*fact["rdev"]) == status.st_rdev
        listed = {n for n in os.listxattr(full, follow_symlinks=False) if not n.startswith("security.selinux")}
        assert {n: os.getxattr(full, n, follow_symlinks=False) for n in listed} == {
            n: v for n, v in fact["xattrs"].items() if n != "security.selinux"
        }


def test_the_order_is_that_of_the_names_and_parents_come_first(directory: Path) -> None:
    paths = [entry.path for entry in read_directory(str(directory)).entries]
    assert paths[0] == b""
    assert paths == sorted(paths, key=order_of)
    assert paths.index(b"dir/sub/further") < paths.index(b"dir-")


def test_the_first_name_in_that_order_is_the_file_and_the_others_are_links(directory: Path) -> None:
    tree = read_directory(str(directory))
    assert entry_of(tree, b"dir/sub/further").link_to is None
    assert entry_of(tree, b"small.txt").link_to == b"dir/sub/further"
    assert entry_of(tree, b"z-first").link_to == b"dir/sub/further"


def test_holes_stay_holes(directory: Path) -> None:
    tree = read_directory(str(directory))
    holes = entry_of(tree, b"holes")
    assert holes.content is not None
    assert sum(length for _, length in holes.content.extents()) < 100_000
    empty = entry_of(tree, b"only-hole")
    assert empty.content is not None
    assert list(empty.content.extents()) == []
    assert empty.size == 1_000_000


def test_only_the_mtime_of_a_directory_on_disk_counts(directory: Path) -> None:
    for entry in read_directory(str(directory)).entries:
        assert (entry.atime_ns, entry.ctime_ns, entry.crtime_ns) == (None, None, None)
    assert read_directory(str(directory)).entries[0].mtime_ns == WHEN


def test_a_copy_of_a_directory_gives_the_same_tree(directory: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert os.system(f"cp -a --sparse=always '{directory}' '{other}'") == 0
    assert facts(read_directory(str(other))) == facts(read_directory(str(directory)))


def test_extended_attributes_can_be_left_out(directory: Path) -> None:
    assert not any(entry.xattrs for entry in read_directory(str(directory), xattrs=False).entries)


def test_sockets_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("sock")
    assert stat.S_ISSOCK(entry_of(read_directory("."), b"sock").mode)


def test_the_image_that_is_written_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"old")
    (tmp_path / "file").write_bytes(b"kept")
    status = (tmp_path / "image").stat()
    tree = read_directory(str(tmp_path), skip=[(status.st_dev, status.st_ino)])
    assert [entry.path for entry in tree.entries] == [b"", b"file"]
    assert "image is what is being written" in tree.notes[0]


def test_another_file_system_is_an_empty_directory(tmp_path: Path) -> None:
    inside = tmp_path / "top" / "mounted"
    inside.mkdir(parents=True)
    if os.system(f"mount -t tmpfs none '{inside}' 2>/dev/null"):
        pytest.skip("mounting is not allowed here; not tried: --one-file-system")
    try:
        (inside / "file").write_bytes(b"x")
        with_it = [entry.path for entry in read_directory(str(tmp_path / "top")).entries]
        without = [e.path for e in read_directory(str(tmp_path / "top"), one_file_system=True).entries]
    finally:
        os.system(f"umount '{inside}'")
    assert with_it == [b"", b"mounted", b"mounted/file"]
    assert without == [b"", b"mounted"]


def test_files_are_opened_ahead_of_their_turn_and_closed_after_it(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number:03d}").write_bytes(b"x" * number)
    before = len(os.listdir("/proc/self/fd"))
    tree = read_directory(str(tmp_path))
    read_ahead(tree.entries)
    most = 0
    for entry in tree.entries:
        if stat.S_ISREG(entry.mode):
            assert content_of(entry) == b"x" * entry.size
            most = max(most, len(os.listdir("/proc/self/fd")))
    assert before + 10 < most <= before + FILES_AHEAD + 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_opened_ahead_that_has_gone_is_named(tmp_path: Path) -> None:
    for number in range(FILES_AHEAD + 2):
        (tmp_path / f"{number:03d}").write_bytes(b"x")
    tree = read_directory(str(tmp_path))
    read_ahead(tree.entries)
    (tmp_path / f"{FILES_AHEAD:03d}").unlink()
    with pytest.raises(SourceError, match=f"{FILES_AHEAD:03d}: No such file"):
        facts(tree)
    tree.close()


def test_what_is_left_open_is_closed_with_the_tree(tmp_path: Path) -> None:
    for number in range(FILES_AHEAD + 20):
        (tmp_path / f"{number:03d}").write_bytes(b"x")
    before = len(os.listdir("/proc/self/fd"))
    tree = read_directory(str(tmp_path))
    read_ahead(tree.entries)
    for entry in tree.entries[1:20]:
        content_of(entry)
    assert len(os.listdir("/proc/self/fd")) > before
    tree.close()
    assert len(os.listdir("/proc/self/fd")) == before


# -- what goes wrong ------------------------------------------------------------------------------------------------


def big(tmp_path: Path) -> tuple[Path, SourceEntry]:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(20_000))
    return path, entry_of(read_directory(str(tmp_path)), b"file")


def test_a_file_that_becomes_shorter_is_named(tmp_path: Path) -> None:
    path, entry = big(tmp_path)
    os.truncate(path, 100)
    with pytest.raises(SourceError, match="file: it became shorter"):
        content_of(entry)


def test_a_file_that_grows_is_named(tmp_path: Path) -> None:
    path, entry = big(tmp_path)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(SourceError, match="file: it changed"):
        content_of(entry)


def test_a_file_that_is_overwritten_is_named(tmp_path: Path) -> None:
    path, entry = big(tmp_path)
    os.utime(path, ns=(0, 12345))
    with pytest.raises(SourceError, match="file: it changed"):
        content_of(entry)


def test_a_file_that_is_replaced_is_named(tmp_path: Path) -> None:
    path, entry = big(tmp_path)
    status = path.stat()
    (tmp_path / "new").write_bytes(os.urandom(20_000))
    os.utime(tmp_path / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(tmp_path / "new", path)
    with pytest.raises(SourceError, match="file: it was replaced"):
        content_of(entry)


@pytest.mark.parametrize("kind", ["gone", "symlink", "fifo"])
def test_a_file_that_is_something_else_now_is_named(kind: str, tmp_path: Path) -> None:
    path, entry = big(tmp_path)
    path.unlink()
    if kind == "symlink":
        path.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(SourceError, match="/file: "):
        content_of(entry)


def test_a_directory_that_can_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    listdir = os.listdir

    def refuse(path: bytes) -> object:
        """Root may read everything; others are told this."""
        if path.endswith(b"closed"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(SourceError, match="closed: Permission denied"):
        read_directory(str(tmp_path))


def test_a_source_that_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        read_directory(str(tmp_path / "nothing"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SourceError, match="not a directory"):
        read_directory(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (SourceEntry(b"n" * 256, stat.S_IFREG), "longer than 255"),
        (SourceEntry(b"a", stat.S_IFREG, uid=2**32 - 1), "owner"),
        (SourceEntry(b"a", stat.S_IFREG, gid=-1), "owner"),
        (SourceEntry(b"a", stat.S_IFREG, mtime_ns=1 << 63), "mtime"),
        (SourceEntry(b"a", stat.S_IFREG, crtime_ns=-(1 << 63) - 1), "crtime"),
        (SourceEntry(b"nowhere/a", stat.S_IFREG), "nowhere is no directory"),
    ],
)
def test_what_no_volume_can_hold_is_named(entry: SourceEntry, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        checked([SourceEntry(b"", stat.S_IFDIR), entry])


@pytest.mark.parametrize("compiled", [False, True])
def test_files_that_do_not_say_their_size_are_not_taken_for_empty_ones(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr("f2tools.copyin.source.core", None)
    readers = [read_directory] if core is None or not compiled else [read_directory, read_columns]
    for read in readers:
        with pytest.raises(SourceError, match=r"/proc/sys/kernel/random/\w+: it has more than the 0 bytes"):
            read("/proc/sys/kernel/random")
