"""A directory by columns and by entries: the same trees, the same digest, the same image to the byte."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools import native
from f2tools.copyin import columns as reading
from f2tools.copyin.columns import PLAIN, checked_columns, read_columns
from f2tools.copyin.source import PLAIN_FILE, SourceError, Tree, checked, read_directory
from f2tools.errors import F2fsError
from f2tools.f2fs.write.bulk import stream, together
from f2tools.f2fs.write.bulk.columns import PLAIN_MOST
from f2tools.mkfs import populate as populating
from f2tools.mkfs.populate import Fill, digest_of, filling_of, newest, set_times
from tests.mkfs.from_tools import same_bytes
from tests.mkfs.source_tools import facts, populate
from tests.mkfs.tools import f2mkfs
from tests.native.test_core import in_python
from tests.walking import below

core = native.core
assert core is not None

SUFFIXES = ("", "", ".txt", ".jpg", ".db", ".tar.gz", ".apk", "-journal", ".", ".x.JPG")
SIZES = (0, 1, 100, 3000, 3487, 3488, 3690, 4096, 5000, 9000, 20_000, 130_000, PLAIN_MOST, PLAIN_MOST + 1, 540_000)


def grown(top: Path, seed: int) -> Path:
    """A tree of files of any kind, with sizes and names around all borders, in some order of directories."""
    rng = random.Random(seed)
    top.mkdir()
    directories, files = [top], []
    for number in range(rng.choice((30, 700, 1500))):
        where = rng.choice(directories)
        name = (
            rng.choice(("", "a", "A-", ".", "ü")) + f"{number}" + "n" * rng.choice((0, 0, 3, 60)) + rng.choice(SUFFIXES)
        )
        path, kind = where / name, rng.random()
        if kind < 0.08:
            path.mkdir()
            directories.append(path)
        elif kind < 0.12 and files:
            path.hardlink_to(rng.choice(files))
        elif kind < 0.15:
            path.symlink_to("to" * rng.choice((1, 100, 2000)))
        elif kind < 0.17:
            os.mkfifo(path)
        elif kind < 0.19:
            with path.open("wb") as file:
                file.truncate(rng.choice(SIZES))
                file.seek(rng.choice(SIZES))
                file.write(b"not a hole")
        else:
            size = rng.choice(SIZES if number % 8 else SIZES[:8])
            path.write_bytes(rng.randbytes(size))
            files.append(path)
            if kind > 0.97:
                os.setxattr(path, "user.more", rng.randbytes(rng.choice((3, 300))))
    many = rng.choice(directories) / "many"
    many.mkdir()
    for number in range(rng.choice((0, 1, 150, 2500))):
        (many / f"{number}{'y' * rng.choice((1, 30))}.db").write_bytes(b"")
    for number, path in enumerate(sorted(below(top))):
        os.utime(path, ns=(number, rng.randrange(-(10**18), 2 * 10**18)), follow_symlinks=False)
    os.utime(top, ns=(1, 10**18))
    return top


@pytest.fixture(scope="module", params=range(6))
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("grown") / f"top{request.param}"
    return populate(top) if not request.param else grown(top, request.param)


def both(directory: Path, **asked: Any) -> tuple[Tree, Tree]:
    """The tree by columns and by entries."""
    return read_columns(str(directory), **asked), read_directory(str(directory), **asked)


def test_the_tree_is_the_same(directory: Path) -> None:
    columns, entries = both(directory)
    assert columns.columns is not None
    assert columns.columns.paths().split(b"\0") == [entry.path for entry in entries.entries]
    plain = columns.columns.known["plain"].astype(bool)
    assert [row for row in range(len(plain)) if not plain[row]] == list(columns.columns.special)
    assert digest_of(columns) == digest_of(entries)
    assert newest(columns) == newest(entries)
    fill = Fill(str(directory))
    assert filling_of(fill, columns) == filling_of(fill, entries)
    checked_columns(columns.columns)
    assert facts(columns) == facts(entries)
    assert columns.columns is None


@pytest.mark.parametrize(("timestamp", "epoch"), [(7, None), (None, 10**8), (3, 5), (None, None)])
def test_times_are_set_alike(timestamp: int | None, epoch: int | None, directory: Path) -> None:
    trees = both(directory, xattrs=False)
    for tree in trees:
        set_times(tree, timestamp, epoch)
    assert digest_of(trees[0]) == digest_of(trees[1])
    assert facts(trees[0]) == facts(trees[1])


def test_what_is_written_is_left_out_alike(directory: Path) -> None:
    rng = random.Random(3)
    every = [path for path in below(directory) if path.is_symlink() or not path.is_dir()]
    left_out = [path.lstat() for path in rng.sample(every, min(9, len(every)))]
    columns, entries = both(directory, skip=[(status.st_dev, status.st_ino) for status in left_out])
    assert digest_of(columns) == digest_of(entries)
    assert facts(columns) == facts(entries)
    assert sorted(columns.notes) == sorted(entries.notes) != []


def test_another_file_system_is_not_entered(tmp_path: Path) -> None:
    asked = {"one_file_system": True, "xattrs": False}
    columns, entries = both(Path("/dev"), **asked)
    assert [entry.path for entry in columns.entries] == [entry.path for entry in entries.entries]


OPTIONS = [
    "", "-g android", "-O extra_attr,inode_checksum,inode_crtime,flexible_inline_xattr", "-O ro", "-s 4", "-T 5",
    "-R 1000:1001", "--compress lz4", "-O quota,extra_attr,project_quota,lost_found", "--no-xattrs",
]  # fmt: skip


def test_the_image_is_the_same(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = int(directory.name[-1]) % 3  # a third of them for each tree
    for number, options in enumerate(OPTIONS[start::3]):
        monkeypatch.setattr(stream, "MOST_WAITING", 1024 if number % 2 else 2)
        one, other = tmp_path / f"one{number}", tmp_path / f"other{number}"
        f2mkfs("-q", one, "--size", "256M", "--from", directory, *options.split())
        with in_python(together):
            f2mkfs("-q", other, "--size", "256M", "--from", directory, *options.split())
        assert same_bytes(one, other), options
        one.unlink()
        other.unlink()


def test_the_smallest_size_is_the_same(directory: Path, tmp_path: Path) -> None:
    f2mkfs("-q", tmp_path / "one", "--size", "auto", "--from", directory)
    with in_python(together):
        f2mkfs("-q", tmp_path / "other", "--size", "auto", "--from", directory)
    assert same_bytes(tmp_path / "one", tmp_path / "other")


# -- what can't be --------------------------------------------------------------------------------------------------


def said(do: Callable[[], object]) -> str:
    with pytest.raises(F2fsError) as error:
        do()
    return str(error.value)


def test_an_owner_beyond_all_is_named_alike(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"x")
    tree = read_columns(str(tmp_path))
    assert tree.columns is not None
    tree.columns.uids[2] = 0xFFFFFFFF
    words = said(lambda: checked_columns(tree.columns))  # type: ignore[arg-type]
    entries = read_directory(str(tmp_path)).entries
    entries[2].uid = 0xFFFFFFFF
    assert words == said(lambda: checked(entries)) != ""
    assert "a/b: the owner 4294967295:" in words


def test_a_name_that_is_there_twice_or_the_volumes_own_is_said_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    (top / "in").mkdir(parents=True)
    (top / "in" / "file").write_bytes(b"x")
    (top / "lost+found").mkdir()
    words = said(lambda: f2mkfs("-q", tmp_path / "i", "--size", "64M", "--from", top, "-O", "lost_found"))
    with in_python(together):
        assert words == said(lambda: f2mkfs("-q", tmp_path / "i", "--size", "64M", "--from", top, "-O", "lost_found"))
    assert "lost+found: the volume has this name of its own" in words
    listing = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listing(path) * (2 if path.endswith(b"in") else 1))
    words = said(lambda: f2mkfs("-q", tmp_path / "i", "--size", "64M", "--from", top))
    with in_python(together):
        assert words == said(lambda: f2mkfs("-q", tmp_path / "i", "--size", "64M", "--from", top))
    assert "in/file: the name is there twice" in words


def test_a_directory_that_goes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    listing = os.listdir

    def listed(path: bytes) -> list[bytes]:
        if path == os.fsencode(tmp_path):
            found = listing(path)
            (tmp_path / "gone").rmdir()
            return found
        return listing(path)

    monkeypatch.setattr(os, "listdir", listed)
    with pytest.raises(SourceError, match="gone: No such file or directory"):
        read_columns(str(tmp_path))
    assert reading.core is core


# -- the text that the digest is of ---------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=6).map(lambda name: name.replace(b"\0", b"'")), min_size=1))
def test_names_are_listed_as_python_does(names: list[bytes]) -> None:
    assert populating._listed_names(b"\0".join(names)) == repr(names).encode()


# -- the records ----------------------------------------------------------------------------------------------------


def test_a_plain_file_is_one_record_to_both() -> None:
    values = (1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert PLAIN_FILE.pack(*values) == np.array([values], PLAIN).tobytes()
