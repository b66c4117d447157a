"""Archives as the source of a volume: what GNU tar, bsdtar and Python pack and unpack is the judge."""

from __future__ import annotations

import io
import os
import random
import shutil
import stat
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest

from f2tools.copyin.select import Excludes
from f2tools.copyin.source import SourceError, Tree, checked, read_directory
from f2tools.copyin.source_tar import read_tar
from f2tools.errors import F2fsError
from tests.judges import missing_judge
from tests.mkfs.source_tools import ACL, content_of, facts, populate, run
from tests.mkfs.tools import f2mkfs

NUMERIC = ("--numeric-owner",)
GNU_FORMS = {
    "gnu": ("--format=gnu",),
    "pax": ("--format=pax", "--xattrs", "--acls"),
    "pax-sparse-0.0": ("--format=pax", "--sparse", "--sparse-version=0.0"),
    "pax-sparse-0.1": ("--format=pax", "--sparse", "--sparse-version=0.1"),
    "pax-sparse-1.0": ("--format=pax", "--sparse", "--sparse-version=1.0", "--xattrs"),
    "gnu-sparse": ("--format=gnu", "--sparse"),
    "oldgnu-sparse": ("--format=oldgnu", "--sparse"),
    "unsorted": ("--format=pax", "--sort=none", "--xattrs", "--acls"),
}
BSD_FORMS = {"pax": ("--format=pax",), "gnutar": ("--format=gnutar",)}


def need(name: str) -> str:
    return shutil.which(name) or missing_judge(f"{name} is not installed", f"archives that {name} makes")


@contextmanager
def opened(path: Path | str, **options: object) -> Iterator[Tree]:
    tree = read_tar(str(path), **options)  # type: ignore[arg-type]
    try:
        checked(tree.entries)
        yield tree
        tree.verify()
    finally:
        tree.close()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return populate(tmp_path_factory.mktemp("source") / "top")


def assert_same(archive: Path, directory: Path, *, whole_seconds: bool, xattrs: bool, holes: bool = False) -> None:
    host = read_directory(str(directory))
    with opened(archive) as tree:
        mine, theirs = (facts(one, whole_seconds=whole_seconds, xattrs=xattrs) for one in (tree, host))
        for found in (mine, theirs):
            for fact in found.values():
                fact.get("xattrs", {}).pop("security.selinux", None)
        assert mine == theirs
        assert tree.made_up == []
        if holes:
            sparse = next(entry for entry in tree.entries if entry.path == b"holes")
            assert sparse.content is not None
            assert sum(length for _, length in sparse.content.extents()) < 100_000


@pytest.mark.parametrize("name", GNU_FORMS)
def test_what_gnu_tar_packed_is_the_directory(name: str, directory: Path, tmp_path: Path) -> None:
    options = GNU_FORMS[name]
    run(need("tar"), *NUMERIC, *options, "-cf", tmp_path / "a.tar", "-C", directory, ".")
    pax, sparse = "pax" in options[0], "--sparse" in options
    assert_same(tmp_path / "a.tar", directory, whole_seconds=not pax,
                xattrs="--xattrs" in options and "--acls" in options, holes=sparse)  # fmt: skip


@pytest.mark.parametrize("name", BSD_FORMS)
def test_what_bsdtar_packed_is_the_directory(name: str, directory: Path, tmp_path: Path) -> None:
    run(need("bsdtar"), *NUMERIC, *BSD_FORMS[name], "-cf", tmp_path / "a.tar", "-C", directory, ".")
    assert_same(
        tmp_path / "a.tar", directory, whole_seconds=name == "gnutar", xattrs=name == "pax", holes=name == "pax"
    )


def test_an_archive_is_the_directory_entry_by_entry(directory: Path, tmp_path: Path) -> None:
    """Nothing is left that would let the volumes differ."""
    times = ("--pax-option=delete=atime,delete=ctime",)
    run(need("tar"), *NUMERIC, "--format=pax", *times, "--sparse", "--xattrs", "--acls", "-cf", tmp_path / "a", "-C",
        directory, ".")  # fmt: skip
    with opened(tmp_path / "a") as tree:
        for mine, theirs in zip(tree.entries, read_directory(str(directory)).entries, strict=True):
            for item in fields(mine):
                if item.name not in ("content", "xattrs"):
                    assert getattr(mine, item.name) == getattr(theirs, item.name), (mine.path, item.name)
            assert (mine.content is None) == (theirs.content is None)
            if mine.content and theirs.content:
                assert list(mine.content.extents()) == list(theirs.content.extents())


def test_what_python_packed_is_the_directory(directory: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(directory, ".")
    assert_same(tmp_path / "a.tar", directory, whole_seconds=True, xattrs=False)


def test_what_f2tools_packed_is_the_directory(tmp_path: Path) -> None:
    from f2tools.dump.tar import write_tar
    from tests import images

    case = images.reference("features")
    kernel = case.manifest()["entries"]
    out = io.BytesIO()
    import f2tools

    with f2tools.open(case.path, case.extra) as volume:
        write_tar(volume, out)
    (tmp_path / "a.tar").write_bytes(out.getvalue())
    with opened(tmp_path / "a.tar") as tree:
        names = {os.fsdecode(entry.path) or "." for entry in tree.entries}
        assert names == {path for path, entry in kernel.items() if entry["type"] != "socket"}
        for entry in tree.entries:
            told = kernel[os.fsdecode(entry.path) or "."]
            if entry.link_to is None and stat.S_ISREG(entry.mode):
                assert entry.size == told["size"]
                assert (entry.mtime_ns, entry.atime_ns) == (told["mtime_ns"], told["atime_ns"])


# -- compression and pipes ------------------------------------------------------------------------------------------


PACKERS = {
    "gz": ("gzip", "-c"), "zst": ("zstd", "-qc"), "xz": ("xz", "-1c"), "bz2": ("bzip2", "-c"), "tar": ("cat",),
}  # fmt: skip


@pytest.fixture(scope="module")
def plain(directory: Path) -> Path:
    path = directory.parent / "plain.tar"
    run(need("tar"), *NUMERIC, "--format=pax", "--sparse", "--xattrs", "--acls", "-cf", path, "-C", directory, ".")
    return path


@pytest.mark.parametrize("kind", PACKERS)
def test_a_compressed_archive_is_the_same(kind: str, plain: Path, tmp_path: Path) -> None:
    need(PACKERS[kind][0])
    (tmp_path / "a").write_bytes(run(*PACKERS[kind], plain))
    with opened(plain) as one, opened(tmp_path / "a") as other:
        assert facts(one) == facts(other)


@pytest.mark.parametrize("kind", ["gz", "zst", "xz", "bz2"])
def test_several_compressed_parts_one_after_the_other(kind: str, plain: Path, tmp_path: Path) -> None:
    data = plain.read_bytes()
    middle = len(data) // 2
    (tmp_path / "1").write_bytes(data[:middle])
    (tmp_path / "2").write_bytes(data[middle:])
    (tmp_path / "a").write_bytes(run(*PACKERS[kind], tmp_path / "1") + run(*PACKERS[kind], tmp_path / "2"))
    with opened(plain) as one, opened(tmp_path / "a") as other:
        assert facts(one) == facts(other)


def test_a_pipe_that_gives_little_at_first(plain: Path, tmp_path: Path) -> None:
    """What an archive is compressed with is known from its first six bytes, however they arrive."""
    data = run("gzip", "-c", plain)
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for piece in (data[:1], data[1:3], data[3:700], data[700:]):
            child.stdin.write(piece)
            child.stdin.flush()
            time.sleep(0.05)
        child.stdin.close()
        said = child.stdout.read().decode()
    with opened(plain) as tree:
        assert said == f"{len(tree.entries)} {sum(entry.size for entry in tree.entries)}\n"


def test_a_zstd_frame_that_is_to_be_skipped(plain: Path, tmp_path: Path) -> None:
    frame = b"\x5a\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note"
    (tmp_path / "a").write_bytes(frame + run("zstd", "-qc", plain))
    with opened(plain) as one, opened(tmp_path / "a") as other:
        assert facts(one) == facts(other)


def test_lz4(plain: Path, tmp_path: Path) -> None:
    import lz4.frame

    (tmp_path / "a").write_bytes(lz4.frame.compress(plain.read_bytes()))
    with opened(plain) as one, opened(tmp_path / "a") as other:
        assert facts(one) == facts(other)


@pytest.mark.parametrize("kind", ["gz", "zst", "xz", "bz2"])
@pytest.mark.parametrize("part", [0.5, 0.9])
def test_a_compressed_archive_that_was_cut_short(kind: str, part: float, plain: Path, tmp_path: Path) -> None:
    data = run(*PACKERS[kind], plain)
    (tmp_path / "a").write_bytes(data[: int(len(data) * part)])
    with pytest.raises(SourceError, match=str(tmp_path / "a")):
        read_tar(str(tmp_path / "a"))


def test_a_plain_archive_that_was_cut_short(plain: Path, tmp_path: Path) -> None:
    """Nothing of it is taken for complete: it is refused, or, cut between two files, said to have no end mark."""
    data = plain.read_bytes()
    with tarfile.open(plain) as tar:
        last = tar.getmembers()[-1]
    end = last.offset_data + -(-last.size // 512) * 512
    for cut in (100, 511, 700, 1024 + 256, end // 2, end - 1, end):
        (tmp_path / "a").write_bytes(data[:cut])
        said = ""
        try:
            with opened(tmp_path / "a") as tree:
                said = tree.notes[0]
        except SourceError as error:
            said = str(error)
        assert any(words in said for words in ("no end mark", "ends", "not a tar archive", "not in the archive"))


SCRIPT = """
import sys
from f2tools.copyin.source_tar import read_tar
tree = read_tar("-")
print(len(tree.entries), sum(e.size for e in tree.entries))
"""


@pytest.mark.parametrize("kind", ["tar", "zst"])
@pytest.mark.parametrize("pipe", [True, False], ids=["pipe", "redirected"])
def test_standard_input(kind: str, pipe: bool, plain: Path, tmp_path: Path) -> None:
    data = run(*PACKERS[kind], plain)
    (tmp_path / "a").write_bytes(data)
    with opened(plain) as tree:
        wanted = f"{len(tree.entries)} {sum(entry.size for entry in tree.entries)}\n"
    command = [sys.executable, "-c", SCRIPT]
    if pipe:
        done = subprocess.run(command, input=data, capture_output=True, check=True)
    else:
        with (tmp_path / "a").open("rb") as file:
            done = subprocess.run(command, stdin=file, capture_output=True, check=True)
    assert done.stdout.decode() == wanted


def test_whoever_writes_into_the_pipe_can_end(plain: Path, tmp_path: Path) -> None:
    """The padding after the end mark is read too."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    wrote: list[int] = []

    def write() -> None:
        with fifo.open("wb", buffering=0) as out:
            wrote.append(out.write(plain.read_bytes()))
            wrote.extend(out.write(bytes(65536)) for _ in range(100))

    writer = threading.Thread(target=write)
    writer.start()
    with opened(fifo) as tree:
        assert len(tree.entries) > 10
    writer.join(30)
    assert len(wrote) == 101


# -- rules of names -------------------------------------------------------------------------------------------------


def member(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", **fields: object) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    for key, value in ({"mtime": 1_600_000_000} | fields).items():
        setattr(info, key, value)
    return info.tobuf(tarfile.PAX_FORMAT) + data + bytes(-len(data) % 512)


def archive(path: Path, *members: bytes) -> Path:
    path.write_bytes(b"".join(members) + bytes(1024))
    return path


DIR, LINK, SYMLINK = tarfile.DIRTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE

STORIES: dict[str, tuple[bytes, ...]] = {
    "the later entry of a name counts": (member("a", data=b"old"), member("b"), member("a", data=b"newer")),
    "a directory comes again": (member("d/", DIR, mode=0o700), member("d/f", data=b"x"), member("d/", DIR, mode=0o755)),
    "a hard link": (member("f", data=b"x"), member("l", LINK, linkname="f")),
    "a hard link to a hard link": (
        member("f", data=b"x"), member("k", LINK, linkname="f"), member("j", LINK, linkname="./k"),
    ),
    "a hard link to a file that is replaced later": (
        member("f", data=b"x"), member("l", LINK, linkname="f"), member("f", data=b"another"),
    ),
    "a hard link to a symbolic link": (member("s", SYMLINK, linkname="x", mode=0o777), member("l", LINK, linkname="s")),
    "a hard link replaces a file": (member("l", data=b"old"), member("f", data=b"x"), member("l", LINK, linkname="f")),
    "names with dots and slashes": (member("./a//b/./c", data=b"x"), member("a/", DIR), member("a/b", DIR)),
    "parents come later": (member("a/b/c", data=b"x"), member("a/b/", DIR), member("a/", DIR)),
    "a file becomes a folder": (member("a", data=b"x"), member("a", DIR), member("a/b", data=b"y")),
    "an old header with a slash is a folder": (member("v7/", tarfile.AREGTYPE), member("v7/file", data=b"y")),
    "contiguous files": (member("c", tarfile.CONTTYPE, data=b"cc"),),
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_gnu_tar_unpacks_the_same(name: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", member("./", DIR), *STORIES[name])
    (tmp_path / "out").mkdir()
    run(need("tar"), "-xpf", path, *NUMERIC, cwd=tmp_path / "out")
    host = facts(read_directory(str(tmp_path / "out")), whole_seconds=True, xattrs=False)
    with opened(path) as tree:
        mine = facts(tree, whole_seconds=True, xattrs=False)
    for found in (host, mine):
        for fact in found.values():
            fact.pop("owner", None)
            if stat.S_ISDIR(fact.get("mode", 0)):
                fact.pop("size"), fact.pop("mtime")
    assert {path: fact for path, fact in mine.items() if path} == {path: fact for path, fact in host.items() if path}


def test_a_hard_link_may_come_before_its_file(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a", member("a", LINK, linkname="m"), member("m", LINK, linkname="z"), member("z", data=b"x")
    )
    with opened(path) as tree:
        found = {entry.path: (entry.link_to, entry.size) for entry in tree.entries}
    assert found == {b"": (None, 0), b"a": (None, 1), b"m": (b"a", 0), b"z": (b"a", 0)}


def test_a_hard_link_with_content_of_its_own(directory: Path, tmp_path: Path) -> None:
    """POSIX lets a link carry the content again; cpio-like writers do."""
    link = member("l", LINK, linkname="f", size=600) + b"x" * 600 + bytes(424)
    path = archive(tmp_path / "a", member("f", data=b"x" * 600), link, member("after", data=b"y"))
    with opened(path) as tree:
        assert [entry.path for entry in tree.entries] == [b"", b"after", b"f", b"l"]


def test_a_hard_link_that_only_announces_content(tmp_path: Path) -> None:
    path = archive(tmp_path / "a", member("f", data=b"x"), member("l", LINK, linkname="f", size=1), member("z"))
    with opened(path) as tree:
        assert [entry.path for entry in tree.entries] == [b"", b"f", b"l", b"z"]


def test_an_absolute_name_lies_below_the_root(tmp_path: Path) -> None:
    with opened(archive(tmp_path / "a", member("/etc/passwd", data=b"x"))) as tree:
        assert [entry.path for entry in tree.entries] == [b"", b"etc", b"etc/passwd"]


def test_missing_parents_are_made_with_the_owner_of_the_root(tmp_path: Path) -> None:
    path = archive(tmp_path / "a", member(".", DIR, uid=5, gid=6), member("a/b/c", data=b"x", uid=9, mtime=77))
    with opened(path) as tree:
        made = {entry.path: (entry.mode, entry.uid, entry.gid, entry.mtime_ns) for entry in tree.made_up}
    assert made == dict.fromkeys((b"a", b"a/b"), (0o40755, 5, 6, 1_600_000_000 * 10**9))


def test_a_root_that_is_not_in_the_archive_is_made(tmp_path: Path) -> None:
    with opened(archive(tmp_path / "a", member("f", data=b"x"))) as tree:
        assert [entry.path for entry in tree.made_up] == [b""]
        assert tree.entries[0].mode == 0o40755


def test_an_empty_archive_is_an_empty_tree(tmp_path: Path) -> None:
    with opened(archive(tmp_path / "a")) as tree:
        assert [entry.path for entry in tree.entries] == [b""]
    (tmp_path / "b").write_bytes(bytes(10240))  # as tar writes it
    with opened(tmp_path / "b") as tree:
        assert [entry.path for entry in tree.entries] == [b""]


def test_an_archive_without_an_end_mark_is_said_to_be_odd(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(member("f", data=b"x"))
    with opened(tmp_path / "a") as tree:
        assert "no end mark" in tree.notes[0]


def test_excludes_and_hard_links(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a", member("d/f", data=b"x"), member("l", LINK, linkname="d/f"), member("d/g"), member("z.o")
    )
    with opened(path, excluded=Excludes([b"/d", b"*.o"]).with_parents) as tree:
        assert [(entry.path, entry.link_to) for entry in tree.entries] == [(b"", None), (b"l", None)]
        assert content_of(tree.entries[1]) == b"x"


def test_a_time_that_no_volume_can_hold_is_refused_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, mtime in (("a/good", 1), ("a/bad", 1 << 34)):
            member = tarfile.TarInfo(name)
            member.mtime = mtime
            archive.addfile(member)
    with pytest.raises(SourceError, match=r"^a/bad: the mtime is not between"), opened(path) as tree:
        checked(tree.entries)


def test_times_before_1970_and_to_the_nanosecond(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a",
        member("a", pax_headers={"mtime": "-1.25", "atime": "5.1234567899", "ctime": "-0.0000000001"}),
        member("b", pax_headers={"mtime": "1234567890.123456789", "LIBARCHIVE.creationtime": "7"}),
    )
    with opened(path) as tree:
        _, a, b = tree.entries
    assert (a.mtime_ns, a.atime_ns, a.ctime_ns) == (-1_250_000_000, 5_123_456_789, -1)
    assert (b.mtime_ns, b.crtime_ns) == (1_234_567_890_123_456_789, 7_000_000_000)


def test_attributes_in_all_their_records(tmp_path: Path) -> None:
    records = {
        "SCHILY.xattr.user.one": "1",
        "SCHILY.xattr.user.a%3Db%25": "2",
        "LIBARCHIVE.xattr.user.tw%6F": "AAECgA",
        "RHT.security.selinux": "u:object_r:x:s0",
        "SCHILY.xattr.btrfs.compression": "lzo",
    }
    with opened(archive(tmp_path / "a", member("a", pax_headers=records))) as tree:
        assert tree.entries[1].xattrs == {
            "security.selinux": b"u:object_r:x:s0\0", "user.a=b%": b"2", "user.one": b"1", "user.two": b"\0\1\2\x80",
        }  # fmt: skip
    with opened(tmp_path / "a", xattrs=False) as tree:
        assert tree.entries[1].xattrs == {}


@pytest.mark.parametrize(
    "text",
    [
        "user::rwx,user:1234:r-x,group::r-x,mask::r-x,other::---",
        "user::rwx\ngroup::r-x\nother:---\nmask:r-x\nuser:lisa:r-x:1234\n",
        "u::rwx,g::r-x,o::---,m::r-x,u:1234:r-x\t#effective:r-x",
    ],
)
def test_an_acl_in_text(text: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "a", member("a", pax_headers={"SCHILY.acl.access": text}))
    with opened(path) as tree:
        assert tree.entries[1].xattrs == {"system.posix_acl_access": ACL}


def test_an_acl_that_only_says_the_mode_is_none(tmp_path: Path) -> None:
    records = {"SCHILY.acl.access": "user::rwx,group::r-x,other::---"}
    with opened(archive(tmp_path / "a", member("a", mode=0o750, pax_headers=records))) as tree:
        assert tree.entries[1].xattrs == {}
    with opened(archive(tmp_path / "a", member("a", pax_headers={"SCHILY.acl.access": "user:1:rwx"}))) as tree:
        assert list(tree.entries[1].xattrs) == ["system.posix_acl_access"]  # not valid, as the loader will say


def test_a_message_holds_no_control_characters(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        read_tar(str(archive(tmp_path / "a", member("a\x1b[31m\n", b"Z"))))
    assert "a\\x1b[31m\\x0a" in str(caught.value)


def test_an_archive_that_changes_is_found(tmp_path: Path) -> None:
    path = archive(tmp_path / "a", member("f", data=b"x" * 100))
    tree = read_tar(str(path))
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(SourceError, match="it changed while it was read"):
        tree.verify()
    path.write_bytes(b"")
    with pytest.raises(SourceError, match="f: the archive became shorter"):
        content_of(tree.entries[1])
    tree.close()


# -- what is refused ------------------------------------------------------------------------------------------------


def sparse(size: int, *numbers: int, data: bytes = b"x" * 10) -> bytes:
    records = {"GNU.sparse.size": str(size), "GNU.sparse.map": ",".join(map(str, numbers))}
    return member("s", data=data, pax_headers=records)


def broken_sum(data: bytes) -> bytes:
    return data[:148] + b"0000000\0" + data[156:]


def with_field(data: bytes, at: int, value: bytes) -> bytes:
    changed = bytearray(data)
    changed[at : at + len(value)] = value
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed[:512])
    return bytes(changed)


REFUSED = {
    "dots": ((member("../etc/passwd"),), r"\.\."),
    "dots inside": ((member("a/../../b"),), r"\.\."),
    "nul": ((member("a", pax_headers={"path": "a\0b"}),), "NUL"),
    "link to dots": ((member("a", LINK, linkname="../b"),), r"\.\."),
    "link to nothing": ((member("a", LINK, linkname="b"),), "a hard link to b, which is not in the archive"),
    "link to itself": ((member("a", LINK, linkname="./a"),), "itself"),
    "links in a circle": ((member("a", LINK, linkname="b"), member("b", LINK, linkname="a")), "not in the archive"),
    "link to a folder": ((member("d", DIR), member("a", LINK, linkname="d")), "a directory"),
    "late link to a folder": ((member("a", LINK, linkname="d"), member("d", DIR)), "a directory"),
    "below a link": ((member("a", SYMLINK, linkname="/etc"), member("a/passwd")), "a is no directory"),
    "below a file": ((member("a/b"), member("a")), "a is no directory"),
    "the root is a file": ((member("./"), ), "root"),
    "symlink to nothing": ((member("a", SYMLINK),), "symbolic link"),
    "device": ((member("a", tarfile.CHRTYPE, devmajor=4096),), "4096:0"),
    "type": ((member("a", b"Z"),), "'Z'"),
    "multi volume": ((member("a", b"M"),), "'M'"),
    "negative size": ((with_field(member("a"), 124, b"\xff" * 12),), "size of -1"),
    "a size beyond the end": ((with_field(member("a"), 124, b"00077777777\0"),), "ends in the middle"),
    "no number": ((with_field(member("a"), 124, b"0000089 \0"),), "no octal number"),
    "owner": ((member("a", pax_headers={"uid": str(2**32)}),), "beyond"),
    "owner no number": ((member("a", pax_headers={"uid": "-5"}),), "no number"),
    "time": ((member("a", pax_headers={"mtime": "9" * 19}),), "between the years"),
    "time no number": ((member("a", pax_headers={"mtime": "soon"}),), "'soon' is no number"),
    "checksum": ((member("a"), broken_sum(member("b"))), "header 2 is damaged"),
    "not tar": ((b"hello" * 1000,), "not a tar archive"),
    "pax without an entry": ((member("a", b"x", data=b"10 a=bbbb\n"),), "after an extended header"),
    "pax damaged": ((member("a", b"x", data=b"99 a=b\n"), member("b")), "damaged"),
    "pax length": ((member("a", b"x", data=b"-1 a=b\n"), member("b")), "damaged"),
    "pax without value": ((member("a", b"x", data=b"8 abcde\n"), member("b")), "without a value"),
    "long pax": ((with_field(member("a", b"x"), 124, b"77777777777\0"),), "extended header of 8589934591"),
    "long name": ((member("n" * 300),), "longer than 255"),
    "sparse overlap": ((sparse(100, 0, 5, 4, 5),), "contradicts itself"),
    "sparse beyond": ((sparse(5, 0, 10),), "contradicts itself"),
    "sparse sum": ((sparse(100, 0, 5),), "10 bytes are there"),
    "sparse odd": ((sparse(100, 0, 5, 6),), "3 numbers"),
    "sparse word": ((member("s", pax_headers={"GNU.sparse.size": "1", "GNU.sparse.map": "a,b"}),), "no number"),
    "sparse huge map": (
        (member("s", data=b"9999999999\n".ljust(512, b"\0"),
                pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}),), "runs"),
    "sparse endless map": (
        (member("s", data=b"300\n" + b"1\n" * 200,
                pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}),),
        "no end"),
    "acl by name": ((member("a", pax_headers={"SCHILY.acl.access": "user:lisa:rwx"}),), "--numeric-owner"),
    "acl": ((member("a", pax_headers={"SCHILY.acl.access": "queen::rwx"}),), "not understood"),
    "base64": ((member("a", pax_headers={"LIBARCHIVE.xattr.user.a": "!!"}),), "base64"),
    "attributes": ((member("a", pax_headers={"SCHILY.xattr.user.a": "x" * 200_000}),), "more than F2FS holds"),
    "empty file": ((), "not a tar archive"),
    "image": ((bytes(1024), b"\x10\x20\xf5\xf2"), "begins with zeros"),
    "image with superblocks far away": ((bytes(65600), b"_BHRfS_M"), "begins with zeros"),
    "image behind a loader": ((bytes(300 << 10), b"\x10\x20\xf5\xf2"), "begins with zeros"),
    "zeros without end": ((bytes(2 << 20),), "begins with zeros"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "stream"])
def test_refused(name: str, packed: bool, tmp_path: Path) -> None:
    members, said = REFUSED[name]
    path = tmp_path / "a"
    data = b"".join(members) + (bytes(1024) if members else b"")
    if packed:
        import zstandard

        data = zstandard.ZstdCompressor().compress(data)
    path.write_bytes(data)
    with pytest.raises(SourceError, match=said), opened(path):
        pass


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ((sparse(2**63 - 1, data=b""),), "^s: larger than a file of F2FS can be"),
        ((sparse(4 << 40, (4 << 40) - 10, 10),), "^s: larger than a file of F2FS can be"),
        ((member("a", pax_headers={"SCHILY.xattr.user.": "x"}),), "^a: the attribute user.: Invalid argument"),
        ((member("a", SYMLINK, linkname="x" * 5000),), "^a: a symbolic link to 5000 bytes"),
    ],
)
def test_what_an_archive_may_say_and_f2fs_can_not_hold(members: tuple[bytes, ...], said: str, tmp_path: Path) -> None:
    image = tmp_path / "image"
    with pytest.raises(F2fsError, match=said):
        f2mkfs(image, "--size", "64M", "--from", archive(tmp_path / "a", *members), "-q")
    assert not image.exists()


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "stream"])
def test_whatever_is_damaged_there_is_no_traceback(packed: bool, plain: Path, tmp_path: Path) -> None:
    """Bytes of headers are changed at random; an archive is read or refused."""
    data = plain.read_bytes()
    rng = random.Random(7)
    heads = [at for at in range(0, len(data), 512) if data[at + 257 : at + 262] == b"ustar"]
    refused = 0
    for number in range(150):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 2, 5))):
            head = rng.choice(heads)
            at = head + rng.randrange(rng.choice((512, 1024)))
            if at < len(changed):
                changed[at] = rng.choice((0, 0xFF, 0x80, 0x39, rng.randrange(256)))
            if rng.random() < 0.9 and head + 512 <= len(changed):
                changed[head : head + 512] = with_field(bytes(changed[head : head + 512]), 0, b"")
        raw = bytes(changed)
        path = tmp_path / f"{number}.tar"
        if packed:
            import gzip

            raw = gzip.compress(raw, 1)
        path.write_bytes(raw)
        try:
            with opened(path) as tree:
                for entry in tree.entries:
                    if entry.size < 20 << 20:
                        content_of(entry)
        except SourceError:
            refused += 1
        path.unlink()
    assert 0 < refused < 150


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Ten thousand headers that say much, all of which is forgotten."""
    code = """
import resource, sys
from f2tools.copyin.source_tar import read_tar
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tree = read_tar(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, len(tree.entries))
"""
    block = member("same", data=b"x" * 100, pax_headers={"comment": "y" * 100_000})
    with (tmp_path / "a").open("wb") as file:
        for _ in range(2000):
            file.write(block)
        file.write(bytes(1024))
    used, count = run(sys.executable, "-c", code, tmp_path / "a").split()
    assert int(count) == 2
    assert int(used) < 20_000
