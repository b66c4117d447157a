"""Files of the host with the compiled core and without it: the same trees, the same images, the same complaints."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools import native
from f2tools.copyin import source
from f2tools.copyin.source import PLAIN_FILE, read_directory
from f2tools.errors import F2fsError
from f2tools.f2fs.layout import hashes
from f2tools.f2fs.write.bulk import together
from f2tools.f2fs.write.bulk.together import WANTED
from f2tools.mkfs import populate as populating
from tests.mkfs.from_tools import same_bytes
from tests.mkfs.source_tools import facts, populate
from tests.mkfs.tools import f2mkfs
from tests.native.test_core import in_python

core: Any = native.core
assert core is not None


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that a directory can hold, and small files of every size around the borders that matter."""
    top = populate(tmp_path_factory.mktemp("source") / "tree")
    rng = random.Random(7)
    for number, size in enumerate((1, 3487, 3488, 3489, 3690, 4095, 4096, 4097, 8191, 16384, 524288, 524289)):
        for suffix in ("", ".jpg", ".db"):
            (top / f"sized-{number}{suffix}").write_bytes(rng.randbytes(size))
    for number in range(1100):  # more than a batch of inodes
        (top / "dir" / f"{number}").write_bytes(rng.randbytes(rng.randrange(6000)))
    os.setxattr(top / "dir" / "7", "user.colour", b"blue")
    return top


def test_a_directory_is_the_same_tree(directory: Path) -> None:
    found = facts(read_directory(str(directory)))
    with in_python(source):
        assert facts(read_directory(str(directory))) == found


def test_excludes_the_image_itself_and_no_xattrs_are_alike(directory: Path) -> None:
    left_out = [(directory / name).stat() for name in ("small.txt", "dir/5")]
    asked = {
        "excluded": lambda path, is_dir: path.endswith(b"7") and not is_dir,
        "skip": [(status.st_dev, status.st_ino) for status in left_out],
        "xattrs": False,
    }
    one = read_directory(str(directory), **asked)
    with in_python(source):
        other = read_directory(str(directory), **asked)
    assert one.entries[0] == other.entries[0]
    assert facts(one) == facts(other)
    assert one.notes == other.notes != []


@pytest.mark.parametrize(
    "options",
    ["", "-O extra_attr,inode_checksum,inode_crtime,flexible_inline_xattr", "--compress lz4", "-O ro", "--sort size"],
)
def test_an_image_is_the_same_to_the_byte(options: str, directory: Path, tmp_path: Path) -> None:
    f2mkfs("-q", tmp_path / "one", "--size", "96M", "--from", directory, *options.split())
    with in_python(source, together, hashes):
        f2mkfs("-q", tmp_path / "other", "--size", "96M", "--from", directory, *options.split())
    assert same_bytes(tmp_path / "one", tmp_path / "other")


def _replaced(path: Path) -> None:
    before = path.stat()
    path.with_name("new").write_bytes(bytes(before.st_size))
    os.utime(path.with_name("new"), ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(path.with_name("new"), path)


def _linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _made_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "grows": lambda path: path.write_bytes(b"y" * (path.stat().st_size + 1)),
    "shrinks": lambda path: os.truncate(path, 5),
    "goes": Path.unlink,
    "touched": lambda path: os.utime(path, ns=(5, 5)),
    "replaced": _replaced,
    "linked": _linked,
    "pipe": _made_a_pipe,
}


@pytest.mark.parametrize("size", [1000, 10_000])
@pytest.mark.parametrize("what", CHANGES)
def test_what_is_said_of_a_file_that_changed_is_the_same(
    what: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    reading = populating.read_source

    def then(*args: object, **keywords: object) -> object:
        tree = reading(*args, **keywords)  # type: ignore[arg-type]
        CHANGES[what](top / "m")
        return tree

    monkeypatch.setattr("f2tools.mkfs.make.read_source", then)

    def said() -> str:
        top.mkdir()
        for name in "am", "m", "z":
            (top / name).write_bytes(b"x" * size)
        with pytest.raises(F2fsError) as error:
            f2mkfs(tmp_path / "image", "--size", "64M", "--from", top)
        assert os.listdir(tmp_path) == ["top"]
        top.rename(tmp_path.with_name(f"{tmp_path.name}-{len(os.listdir(tmp_path.parent))}"))
        return str(error.value)

    before = len(os.listdir("/proc/self/fd"))
    with_core = said()
    assert "/m: " in with_core
    with in_python(source, together):
        assert said() == with_core
    assert len(os.listdir("/proc/self/fd")) == before


# -- the functions themselves ---------------------------------------------------------------------------------------


@given(st.lists(st.binary(min_size=1, max_size=5000).map(lambda name: name.replace(b"\0", b"/")), max_size=20))
def test_names_of_any_bytes_and_length_are_looked_at_without_harm(names: list[bytes]) -> None:
    found = bytearray(PLAIN_FILE.size * len(names))
    core.plain_files(b"/proc/self/", b"".join(name + b"\0" for name in names), True, found)
    for name, (plain, mode, *_) in zip(names, PLAIN_FILE.iter_unpack(found), strict=True):
        assert not plain or os.lstat(b"/proc/self/" + name).st_mode == mode


@pytest.mark.parametrize(
    ("prefix", "names", "room"),
    [
        (b"/", b"a\0b", 112),  # no NUL behind the last one
        (b"/", b"a\0b\0", 111),
        (b"/", b"a\0b\0", 56),
        (b"/", b"", 56),
        (b"/\0", b"a\0", 56),
    ],
)
def test_names_and_records_that_do_not_agree_are_an_error(prefix: bytes, names: bytes, room: int) -> None:
    with pytest.raises(ValueError, match="do not agree"):
        core.plain_files(prefix, names, True, bytearray(room))


@pytest.mark.parametrize(
    ("size", "at", "room"),
    [
        (-1, 0, 10),
        (11, 0, 10),
        (5, -1, 10),
        (5, 91, 10),
        (5, 0, 101),
        (5, 2**63 - 1, 10),
        (5, 10, 2**63 - 1),
        (2**63 - 1, 0, 2**63 - 1),
    ],
)
def test_a_place_outside_of_the_buffer_is_an_error(size: int, at: int, room: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5)
    files = bytearray(WANTED.pack(1, 2, 5, 3, 0, 10) + WANTED.pack(1, 2, size, 3, at, room))
    with pytest.raises(ValueError, match="do not agree"):
        core.read_files(os.fsencode(path) + b"\0" + os.fsencode(path) + b"\0", files, bytearray(100), bytearray(2))


@pytest.mark.parametrize(("paths", "files", "done"), [(b"a", 1, 1), (b"a\0", 2, 1), (b"a\0", 1, 2), (b"a\0b\0", 1, 1)])
def test_paths_and_files_that_do_not_agree_are_an_error(paths: bytes, files: int, done: int) -> None:
    wanted = bytearray(WANTED.pack(0, 0, 0, 0, 0, 0) * files)
    with pytest.raises(ValueError, match="do not agree"):
        core.read_files(paths, wanted, bytearray(10), bytearray(done))


def test_more_files_than_are_open_at_a_time_are_read_each_to_its_place(tmp_path: Path) -> None:
    paths, wanted, at, whole = b"", bytearray(), 3, b"---"
    for number in range(150):
        path = tmp_path / f"{number}"
        path.write_bytes(bytes([number]) * number)
        status = path.stat()
        paths += os.fsencode(path) + b"\0"
        wanted += WANTED.pack(status.st_dev, status.st_ino, number, status.st_mtime_ns, at, number + 2)
        at += number + 2
        whole += bytes([number]) * number + b"\0\0"
    (tmp_path / "70").unlink()
    (tmp_path / "71").write_bytes(b"shorter")
    into, done = bytearray(b"-" * (at + 1)), bytearray(b"\7" * 150)
    before = len(os.listdir("/proc/self/fd"))
    core.read_files(paths, wanted, into, done)
    assert len(os.listdir("/proc/self/fd")) == before
    assert [number for number in range(150) if not done[number]] == [70, 71]
    start, end = whole.index(bytes([70]) * 70), whole.index(bytes([72]) * 72)
    assert (into[:start], into[end:]) == (whole[:start], whole[end:] + b"-")


@pytest.mark.parametrize("seed", range(20))
def test_files_are_read_wherever_they_are(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.chdir(tmp_path)
    paths: list[bytes] = []
    for where in ("", "a/", "a/b/", "ab/", "a/b/c/"):
        os.makedirs(where or ".", exist_ok=True)
        for name in "xyz":
            Path(where + name).write_bytes(os.fsencode(where + name) * 3)
            forms = where + name, "./" + where + name, f"{tmp_path}/{where}{name}", f"{tmp_path}//{where}/{name}"
            paths += [os.fsencode(form) for form in forms]
    os.symlink("a", tmp_path / "s")
    paths += [b"s/x", b"s/y", b"s", b"a/", b"a//", b"/", b"a/none", b"none/x", b"none/y", b"a/" + b"n" * 5000, b""]
    some = [rng.choice(paths) for _ in range(rng.randrange(1, 120))]
    if rng.random() < 0.7:
        some.sort()
    expected, wanted = [], bytearray()
    for number, path in enumerate(some):
        good = path[-1:] in (b"x", b"y", b"z") and os.path.isfile(path)
        status = os.stat(path) if good else os.stat(".")
        size = status.st_size if good else 5
        wanted += WANTED.pack(status.st_dev, status.st_ino, size, status.st_mtime_ns, 50 * number, 50)
        expected.append(Path(os.fsdecode(path)).read_bytes().ljust(50, b"\0") if good else None)
    into, done = bytearray(50 * len(some)), bytearray(len(some))
    before = len(os.listdir("/proc/self/fd"))
    core.read_files(b"".join(path + b"\0" for path in some), wanted, into, done)
    assert len(os.listdir("/proc/self/fd")) == before
    for number, content in enumerate(expected):
        assert bool(done[number]) == (content is not None), some[number]
        assert content is None or into[50 * number : 50 * number + 50] == content
