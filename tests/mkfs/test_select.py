"""What is left out, whose files they become, and in which order they are laid out."""

from __future__ import annotations

import stat
import struct
from pathlib import Path

import pytest

from f2tools.copyin.select import Excludes, OwnerMap, in_order, parse_owner_rule
from f2tools.copyin.source import read_directory
from f2tools.errors import Usage
from f2tools.f2fs.write.bulk.tree import SourceEntry
from tests.mkfs.source_tools import ACL


@pytest.mark.parametrize(
    ("pattern", "path", "is_dir", "left_out"),
    [
        ("*.o", "a.o", False, True),
        ("*.o", "src/deep/a.o", False, True),
        ("*.o", "src/a.obj", False, False),
        ("*.o", ".o", False, True),
        ("?.o", "ab.o", False, False),
        ("[ab].o", "b.o", False, True),
        ("[!ab].o", "b.o", False, False),
        ("[^ab].o", "c.o", False, True),
        ("[]x]", "]", False, True),
        ("[a-c]", "b", False, True),
        ("[", "[", False, True),
        (r"\*", "*", False, True),
        (r"\*", "x", False, False),
        ("/top", "top", False, True),
        ("/top", "sub/top", False, False),
        ("./top", "top", False, True),
        ("sub/top", "sub/top", False, True),
        ("sub/top", "more/sub/top", False, False),
        ("sub/*", "sub/a", False, True),
        ("sub/*", "sub/a/b", False, False),
        ("sub/**", "sub/a/b", False, True),
        ("**/top", "top", False, True),
        ("**/top", "a/b/top", False, True),
        ("a/**/z", "a/z", False, True),
        ("a/**/z", "a/b/c/z", False, True),
        ("build/", "build", True, True),
        ("build/", "build", False, False),
        ("build/", "sub/build", True, True),
        ("/sub/build/", "sub/build", True, True),
        ("a.b", "axb", False, False),
        ("a*b", "a\nb", False, True),
        ("ä*", "ärger", False, True),
    ],
)
def test_a_pattern(pattern: str, path: str, is_dir: bool, left_out: bool) -> None:
    assert Excludes([pattern.encode()])(path.encode(), is_dir) is left_out


def test_what_is_in_a_directory_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "keep" / "cache").mkdir(parents=True)
    (tmp_path / "keep" / "cache" / "file").write_bytes(b"x")
    (tmp_path / "keep" / "file").write_bytes(b"x")
    excludes = Excludes([b"cache/"])
    found = [entry.path for entry in read_directory(str(tmp_path), excluded=excludes).entries]
    assert found == [b"", b"keep", b"keep/file"]
    assert excludes.with_parents(b"keep/cache/file", False)
    assert not excludes.with_parents(b"keep/file", False)


@pytest.mark.parametrize("pattern", ["", "/", "[z-a]"])
def test_a_pattern_without_sense_is_refused(pattern: str) -> None:
    with pytest.raises(Usage, match="--exclude"):
        Excludes([pattern.encode()])


def owners(*texts: str) -> OwnerMap:
    return OwnerMap([rule for text in texts for rule in parse_owner_rule(text)])


def test_owners_become_others() -> None:
    mapped = owners("1000:0", "u:5:6", "g:5:7", "100000-165535:1", "all:99")
    assert [mapped.uid(n) for n in (1000, 5, 100000, 165535, 7)] == [0, 6, 1, 65536, 99]
    assert [mapped.gid(n) for n in (1000, 5, 100009)] == [0, 7, 10]


def test_numbers_without_a_rule_stay() -> None:
    assert owners("u:1000:0").gid(1000) == 1000
    assert owners().uid(42) == 42


def test_everything_becomes_root(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {owners("all:0").uid(n) for n in (0, 1, 1000, 2**32 - 2)} == {0}
    monkeypatch.setattr("os.getuid", lambda: 1234)
    monkeypatch.setattr("os.getgid", lambda: 4321)
    mapped = owners("me:0")
    assert (mapped.uid(1234), mapped.gid(4321), mapped.uid(4321)) == (0, 0, 4321)


@pytest.mark.parametrize(
    "text", ["", "1000", "1000:", ":0", "a:0", "5-3:0", "0-9:4294967290", "u:1000", "-5:0", "1:4294967295", "1:0:0"]
)
def test_a_rule_without_sense_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="--map-owner"):
        parse_owner_rule(text)


def test_acls_and_capabilities_change_their_owners_too() -> None:
    capability = struct.pack("<6I", 0x03000001, 0x2000, 0, 0, 0, 100_000)
    entry = SourceEntry(
        b"a", stat.S_IFREG, 100_000, 100_001,
        xattrs={"system.posix_acl_access": ACL, "security.capability": capability, "user.x": b"y"},
    )  # fmt: skip
    before = dict(entry.xattrs)
    owners("100000-165535:0", "1234:77").apply(entry)
    assert (entry.uid, entry.gid) == (0, 1)
    assert entry.xattrs["system.posix_acl_access"] == ACL.replace(struct.pack("<I", 1234), struct.pack("<I", 77))
    assert entry.xattrs["security.capability"] == struct.pack("<5I", 0x02000001, 0x2000, 0, 0, 0)
    assert entry.xattrs["user.x"] == b"y"
    assert before["security.capability"] == capability


def tree() -> list[SourceEntry]:
    file, directory = stat.S_IFREG, stat.S_IFDIR
    return [
        SourceEntry(b"", directory),
        SourceEntry(b"a", directory),
        SourceEntry(b"a/big", file, size=1000),
        SourceEntry(b"a/small", file, size=1),
        SourceEntry(b"b", file, size=10),
        SourceEntry(b"c", file, link_to=b"a/big"),
        SourceEntry(b"d", directory),
        SourceEntry(b"d/e", file, size=5),
    ]


def test_order_by_size() -> None:
    assert [e.path for e in in_order(tree(), "size")] == [b"", b"a", b"d", b"a/small", b"d/e", b"b", b"a/big", b"c"]


def test_order_by_name() -> None:
    assert [e.path for e in in_order(tree(), "name")] == [e.path for e in tree()]


def test_order_by_a_list(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("# first what boots\n/d\n\n./b\n")
    found = [entry.path for entry in in_order(tree(), str(tmp_path / "list"))]
    assert found == [b"", b"a", b"d", b"d/e", b"b", b"a/big", b"a/small", b"c"]


def test_a_list_with_what_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("b\nnothing\n")
    with pytest.raises(Usage, match="nothing is not in the source"):
        in_order(tree(), str(tmp_path / "list"))
    with pytest.raises(Usage, match="No such file"):
        in_order(tree(), str(tmp_path / "none"))
