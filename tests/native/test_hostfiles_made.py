"""Files that an image gives back, with the compiled core and without it: the same trees, reports and complaints."""

from __future__ import annotations

import os
import resource
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools import native
from f2tools.copyout import piece, together
from f2tools.copyout.extract import extract
from f2tools.copyout.keep import ALL
from f2tools.copyout.making import Replaced, TargetFull
from f2tools.copyout.piece import IN_BLOCKS, INSIDE, LINK, PLAIN_FILE
from f2tools.copyout.together import BEGUN, LEFT, MADE
from tests.mkfs.source_tools import populate
from tests.mkfs.tools import f2mkfs
from tests.native.test_core import in_python

core: Any = native.core
assert core is not None

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that a directory can hold, many small files, odd modes, owners and times."""
    work = tmp_path_factory.mktemp("made")
    top = populate(work / "tree")
    for number in range(700):
        (top / "dir" / f"{number}").write_bytes(bytes([number & 255]) * (number * 20))
    for number, mode in enumerate((0, 0o777, 0o4755, 0o2711, 0o1644, 0o400)):
        (top / f"mode-{number}").write_bytes(b"m" * 5000 * number)
        (top / f"mode-{number}").chmod(mode)
    for number, ns in enumerate((0, -1, -SECOND - 7, 2**62, 123_456_789)):
        (top / f"time-{number}").write_bytes(b"t" * 3000 * number)
        os.utime(top / f"time-{number}", ns=(ns, ns))
    for number in range(5):
        (top / "dir" / f"link-{number}").symlink_to(f"{number}")
    if os.geteuid() == 0:
        os.chown(top / "mode-1", 1234, 4321)
        os.chown(top / "dir" / "77", 1234, 4321)
    f2mkfs("-q", work / "image", "--size", "96M", "--from", top)
    return work / "image"


def said_of(top: Path, unfinished: set[str]) -> dict[str, Any]:
    """All that a tree on the host shows of itself; the times of regular files that were finished."""
    found: dict[str, Any] = {}
    for here, directories, files in os.walk(top):
        for name in directories + files:
            path = Path(here, name)
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            content = os.fsencode(os.readlink(path)) if path.is_symlink() else content
            times: tuple[int, ...] = ()
            if stat.S_ISREG(status.st_mode) and str(path.relative_to(top)) not in unfinished:
                times = (status.st_mtime_ns,)
                if status.st_nlink == 1:  # what was read by its other name has another atime now
                    times = (*times, status.st_atime_ns)
            xattrs = sorted(os.listxattr(path, follow_symlinks=False))
            found[str(path.relative_to(top))] = (
                status.st_mode, status.st_uid, status.st_gid, status.st_nlink, times, content, xattrs,
            )  # fmt: skip
    return found


def both(image: Path, tmp_path: Path, prepare: Callable[[Path], None], **asked: Any) -> tuple[Any, Any]:
    """The report with the core and the one without it, where the trees are the same."""
    found: list[Any] = []
    for way in ("core", "python"):
        target = tmp_path / way / "out"
        target.parent.mkdir()
        prepare(target)
        with f2tools.open(image) as volume, in_python(*[piece] if way == "python" else []):
            report = extract(volume, target, **asked).as_dict()
        assert report.pop("target") == str(target)
        tree = said_of(target, {item["path"].lstrip("/") for item in report["lost"]})
        found.append((tree, report))
    (one, _), (other, _) = found
    assert [path for path in one | other if one.get(path) != other.get(path)] == []
    return found[0][1], found[1][1]


def taken(target: Path) -> None:
    """Some names are there already, as files, links and directories."""
    (target / "dir").mkdir(parents=True)
    (target / "dir" / "5").write_text("mine")
    (target / "dir" / "6").symlink_to("/etc/passwd")
    (target / "dir" / "7").mkdir()
    os.mkfifo(target / "dir" / "8")


@pytest.mark.parametrize("asked", [{}, {"keep": ALL}, {"force": True}, {"exclude": ["1*"]}])
@pytest.mark.parametrize("prepare", [lambda target: None, taken], ids=["new", "taken"])
def test_the_same_tree_and_the_same_report(
    prepare: Callable[[Path], None], asked: dict[str, Any], image: Path, tmp_path: Path
) -> None:
    one, other = both(image, tmp_path, prepare, **asked)
    assert one == other
    assert one["files"] > (600 if "exclude" not in asked else 400)
    assert bool(one["lost"]) == (prepare is taken)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_umask_counts_alike(umask: int, image: Path, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        one, other = both(image, tmp_path, lambda target: None)
    finally:
        os.umask(before)
    assert one == other


def test_a_default_acl_and_a_set_group_id_of_the_target_count_alike(image: Path, tmp_path: Path) -> None:
    def prepare(target: Path) -> None:
        target.mkdir()
        target.chmod(0o2755)
        subprocess.run(["setfacl", "-d", "-m", "u:1234:rwx", target], check=False)

    one, other = both(image, tmp_path, prepare)
    assert one == other


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writing beyond a size fails with EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_takes_no_more_is_reported_and_the_others_are_made(image: Path, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with files_of_at_most(6000):
        one, other = both(image, tmp_path, lambda target: None, exclude=["holes", "only-hole"])
    assert one == other
    lost = {item["path"]: item["reason"] for item in one["lost"]}
    assert len(lost) > 200
    assert set(lost.values()) == {"can't be made: File too large"}
    for way in ("core", "python"):
        assert not any((tmp_path / way / "out" / path.lstrip("/")).exists() for path in lost)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_full_target_ends_the_run_with_the_same_words(image: Path, tmp_path: Path) -> None:
    if os.system(f"mount -t tmpfs -o size=3M none '{tmp_path}' 2>/dev/null"):
        pytest.skip("mounting is not allowed here; not tried: a target without room")
    said: list[str] = []
    try:
        for way in ("core", "python"):
            without = [piece] if way == "python" else []
            with f2tools.open(image) as volume, in_python(*without), pytest.raises(TargetFull) as error:
                extract(volume, tmp_path / "out")
            said.append(str(error.value))
            subprocess.run(["rm", "-r", tmp_path / "out"], check=True)
    finally:
        os.system(f"umount '{tmp_path}'")
    assert said[0] == said[1]
    assert "No space left on device" in said[0]


# -- the function itself --------------------------------------------------------------------------------------------


# Where the content lies; permissions, the mode in the end, owner, group, atime_ns, mtime_ns; the place of the content,
# its size, how many addresses it has; where its attributes lie in SET, and how many bytes they are.
New = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
NEW_FILE = struct.Struct("=12q")
assert NEW_FILE.size == 8 * PLAIN_FILE
BLOCK = 2  # bytes
SET = b"user.one\0\x03\0\0\0abcuser.two\0\0\0\0\0trusted.a\0\x01\0\0\0\xff"
FIRST, SECOND_ONE = (0, 16), (16, 13)


def new(mode: int = 0o644, atime: int = 0, mtime: int = 0, at: int = 0, size: int = 0, kind: int = INSIDE,
        xattrs: tuple[int, int] = (0, 0)) -> New:  # fmt: skip
    return kind, mode, -1, -1, -1, atime, mtime, at, size, -(-size // BLOCK), *xattrs


def given(*rights: int, at: int = 0, size: int = 0, mtime: int = 0) -> New:
    """`rights`: permissions, the mode in the end, owner, group."""
    mode, after, uid, gid = rights
    return INSIDE, mode, after, uid, gid, 0, mtime, at, size, 0, 0, 0


def made(
    directory: Path, files: dict[bytes, New], within: bytes, blocks: bytes = b"", first: int = 0, size: int = BLOCK
) -> list[int]:
    words = bytearray(4 * len(files))
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        done = core.make_files(
            fd, b"".join(name + b"\0" for name in files), b"".join(NEW_FILE.pack(*one) for one in files.values()),
            within, blocks, first, size, SET, words,
        )  # fmt: skip
    finally:
        os.close(fd)
    found = list(memoryview(words).cast("i"))
    all_made = [file for file, word in zip(files.values(), found, strict=True) if word == MADE]
    sizes = [file[8] for file in all_made if file[0] != LINK]
    assert done == (len(sizes), sum(sizes), len(all_made) - len(sizes))
    return found


def test_nothing_that_is_there_is_opened_or_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "link").symlink_to("victim")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    names = b"victim", b"link", b"dangling", b"pipe", b".", b"..", b"", b"x" * 256
    files = dict.fromkeys(names, new(0o644, 5, 6, 0, 3)) | {b"odd \xff\n": new(0o640, -1, 7, 1, 2)}
    assert made(tmp_path, files, b"abc") == [LEFT] * len(names) + [MADE]
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    odd = os.fsencode(tmp_path) + b"/odd \xff\n"
    status = os.stat(odd)
    assert (status.st_mode & 0o777, status.st_atime_ns, status.st_mtime_ns) == (0o640 & ~_umask(), -1, 7)
    assert Path(os.fsdecode(odd)).read_bytes() == b"bc"


def test_times_at_the_ends_of_what_is_possible_are_taken(tmp_path: Path) -> None:
    files = {b"first": new(0o644, -(2**63), -1), b"last": new(0o644, 2**63 - 1, -SECOND)}
    assert made(tmp_path, files, b"") == [MADE, MADE]
    assert [(tmp_path / name).stat().st_mtime_ns for name in ("first", "last")] == [-1, -SECOND]


def test_content_lies_in_either_buffer_and_the_mode_comes_last(tmp_path: Path) -> None:
    files = {
        b"one": given(0o600, 0o4751, -1, -1, at=2, size=2),
        b"two": new(0o600, at=8, size=3, kind=IN_BLOCKS),
        b"three": given(0o600, 0o000, -1, -1, at=0, size=2),
    }
    assert made(tmp_path, files, b"0123", b"abcdefgh", first=7) == [MADE, MADE, MADE]
    assert (tmp_path / "one").read_bytes() == b"23"
    assert (tmp_path / "one").stat().st_mode & 0o7777 == 0o4751
    assert (tmp_path / "two").read_bytes() == b"cde"
    assert (tmp_path / "three").stat().st_mode & 0o7777 == 0
    (tmp_path / "three").chmod(0o600)
    assert (tmp_path / "three").read_bytes() == b"01"


def test_a_link_is_made_with_its_times_and_leads_where_it_led(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    os.utime(tmp_path / "taken", ns=(1, 1))
    long = b"x" * 4095
    files = {
        b"one": new(0o777, 5, 6, 1, 5, LINK),
        b"taken": new(0o777, 5, 6, 1, 5, LINK),
        b"long": new(0o777, -1, -SECOND - 7, 7, 4095, LINK),
        b"file": new(0o600, 8, 9, 0, 2),
    }
    assert made(tmp_path, files, b".taken\0" + long) == [MADE, LEFT, MADE, MADE]
    statuses = [(tmp_path / name).lstat() for name in ("one", "long", "taken", "file")]
    assert [(status.st_atime_ns, status.st_mtime_ns) for status in statuses] == [
        (5, 6), (-1, -SECOND - 7), (1, 1), (8, 9),
    ]  # fmt: skip
    assert (tmp_path / "one").readlink() == Path("taken")
    assert os.readlink(os.fsencode(tmp_path) + b"/long") == long
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_of_a_link_is_set_and_not_that_of_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    row = LINK, 0o777, -1, 1234, 4321, 0, 7, 0, 6, 0, 0, 0
    assert made(tmp_path, {b"one": row}, b"victim") == [MADE]
    status, other = (tmp_path / "one").lstat(), (tmp_path / "victim").stat()
    assert (status.st_uid, status.st_gid, status.st_mtime_ns) == (1234, 4321, 7)
    assert (other.st_uid, other.st_gid) == (0, 0)


def test_a_link_that_can_not_be_finished_is_finished_in_python(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another user puts a file in its place."""

    class Fails:
        def make_files(self, directory: int, names: bytes, rows: Any, *rest: Any) -> tuple[int, int, int]:
            files, copied, _ = core.make_files(directory, names, rows, *rest)
            for row in [row for row in range(len(rows)) if rows[row, 0] == LINK]:
                assert rest[-1][row] == MADE
                rest[-1][row] = BEGUN
                os.utime(names.split(b"\0")[row], ns=(1, 1), dir_fd=directory, follow_symlinks=False)
                if len(swapped) < 2:
                    swapped.append(names.split(b"\0")[row])
                    os.unlink(swapped[-1], dir_fd=directory)
                    os.mkfifo(swapped[-1], dir_fd=directory)
            return files, copied, 0

    swapped: list[bytes] = []
    with f2tools.open(image) as volume:
        whole = extract(volume, tmp_path / "whole")
        monkeypatch.setattr(together, "core", Fails())
        report = extract(volume, tmp_path / "other")
    assert len(swapped) == 2 < whole.symlinks
    assert report.symlinks == whole.symlinks - 2
    assert len(report.lost) == len(whole.lost) + 2
    assert {item.reason for item in report.lost if item.path.rpartition(b"/")[2] in swapped} == {str(Replaced())}
    for path in (tmp_path / "whole").rglob("*"):
        other = tmp_path / "other" / path.relative_to(tmp_path / "whole")
        if path.is_symlink() and os.fsencode(path.name) not in swapped:
            assert other.readlink() == path.readlink()
            assert other.lstat().st_mtime_ns == path.lstat().st_mtime_ns


def test_attributes_are_set_and_a_file_that_does_not_take_one_is_left_open(tmp_path: Path) -> None:
    files = {b"one": new(mtime=7, xattrs=FIRST), b"both": new(0o400, mtime=8, xattrs=(0, 29)), b"none": new()}
    assert made(tmp_path, files, b"") == [MADE, MADE, MADE]
    xattrs = {name: {key: os.getxattr(tmp_path / name, key) for key in os.listxattr(tmp_path / name)}
              for name in ("one", "both", "none")}  # fmt: skip
    assert xattrs == {"one": {"user.one": b"abc"}, "both": {"user.one": b"abc", "user.two": b""}, "none": {}}
    assert [(tmp_path / name).stat().st_mtime_ns for name in ("one", "both")] == [7, 8]
    links = {b"link": new(0o777, size=1, kind=LINK, xattrs=FIRST), b"file": new(mtime=9)}
    assert made(tmp_path, links, b"x") == [BEGUN, MADE]  # no link takes an attribute of user
    long = b"user." + b"x" * 300 + b"\0\0\0\0\0"
    words = bytearray(8)
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    rows = NEW_FILE.pack(*new(xattrs=(0, len(long)))) + NEW_FILE.pack(*new())
    assert core.make_files(fd, b"long\0after\0", rows, b"", b"", 0, 1, long, words) == (0, 0, 0)
    opened, left = memoryview(words).cast("i")
    assert os.path.samestat(os.fstat(opened), (tmp_path / "long").stat())
    assert left == LEFT
    os.close(opened)
    os.close(fd)


def test_a_file_is_made_with_permissions_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert made(tmp_path, {b"one": new(0o7777)}, b"") == [MADE]
    finally:
        os.umask(before)
    assert (tmp_path / "one").stat().st_mode & 0o7777 == 0o777


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_owner_is_set_before_the_mode(tmp_path: Path) -> None:
    assert made(tmp_path, {b"one": given(0o600, 0o6755, 1234, 4321, size=3, mtime=7)}, b"abc") == [MADE]
    status = (tmp_path / "one").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (1234, 4321, 0o6755)
    assert status.st_mtime_ns == 7


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


@pytest.mark.parametrize(
    "file",
    [
        new(0o10000, size=1),
        new(-1, size=1),
        new(kind=0),
        new(kind=4),
        new(kind=-1),
        new(kind=LINK),
        new(size=11, kind=LINK),
        new(at=-1, size=3, kind=LINK),
        new(at=9, size=2, kind=LINK),
        new(at=-1, size=1),
        new(at=-(2**63), size=1),
        new(size=-1),
        new(at=8, size=3),
        new(at=11),
        new(at=2**63 - 1, size=2**63 - 1),
        new(size=2**63 - 1),
        new(at=4, size=1, kind=IN_BLOCKS),
        new(at=-(2**63), size=1, kind=IN_BLOCKS),
        new(at=9, size=3, kind=IN_BLOCKS),
        new(at=11, kind=IN_BLOCKS),
        new(at=2**63 - 1, size=1, kind=IN_BLOCKS),
        new(at=5, size=2**63 - 1, kind=IN_BLOCKS),
        new(at=5, size=-1, kind=IN_BLOCKS),
        given(0o644, 0o10000, -1, -1, size=1),
        given(0o644, -2, -1, -1, size=1),
        given(0o644, -1, 0, -1, size=1),
        given(0o644, -1, -1, 0, size=1),
        given(0o644, -1, 2**32 - 1, 0, size=1),
        new(xattrs=(-1, 16)),
        new(xattrs=(0, -1)),
        new(xattrs=(0, 15)),
        new(xattrs=(0, 17)),
        new(xattrs=(8, 8)),
        new(xattrs=(len(SET) + 1, 0)),
        new(xattrs=(16, 2**63 - 1)),
        new(xattrs=(2**63 - 1, 1)),
    ],
)
def test_contents_outside_of_the_buffer_and_rights_beyond_a_mode_are_an_error(file: New, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="do not agree"):
        made(tmp_path, {b"first": new(size=1), b"second": file}, b"0123456789", b"0123456789", first=5)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("first", "size"), [(-1, 2), (0, 0), (0, -1), (-(2**63), 2)])
def test_blocks_without_a_size_or_a_place_are_an_error(first: int, size: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="do not agree"):
        made(tmp_path, {b"first": new(size=1, kind=IN_BLOCKS)}, b"0123", b"0123", first, size)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("names", "files", "words"), [(b"a", 1, 1), (b"a\0", 2, 1), (b"a\0", 1, 2), (b"a\0b\0", 1, 1), (b"../a\0", 1, 1)]
)
def test_names_and_files_that_do_not_agree_are_an_error(names: bytes, files: int, words: int, tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(ValueError, match="do not agree"):
            core.make_files(fd, names, NEW_FILE.pack(*new()) * files, b"", b"", 0, 1, b"", bytearray(4 * words))
    finally:
        os.close(fd)
    assert os.listdir(tmp_path) == []
    assert not (tmp_path.parent / "a").exists()
