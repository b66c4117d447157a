"""Labels by file_contexts, as libselinux finds them, and owners by fs_config."""

from __future__ import annotations

import os
import random
import re
import stat
import struct
from pathlib import Path

import pytest

from f2tools.errors import Usage
from f2tools.f2fs.write.bulk.tree import SourceEntry
from f2tools.mkfs.android import (
    Config,
    FileContexts,
    _literal,
    _prefixes,
    _python_regex,
    dress,
    mounted,
    read_file_contexts,
    read_fs_config,
)
from tests.judges import find_tool, missing_judge
from tests.mkfs.source_tools import run

FORMS = {
    "f": stat.S_IFREG, "d": stat.S_IFDIR, "l": stat.S_IFLNK, "p": stat.S_IFIFO, "c": stat.S_IFCHR, "b": stat.S_IFBLK,
    "s": stat.S_IFSOCK,
}  # fmt: skip

ANDROID = r"""
# as on a phone
/                                   u:object_r:rootfs:s0
/system(/.*)?                       u:object_r:system_file:s0
/system/apex/com.android.art        u:object_r:art_apex_dir:s0
/(system|product)/lib(64)?(/.*)?    u:object_r:system_lib_file:s0
/system/bin/mke2fs          --      u:object_r:e2fs_exec:s0
/system/bin/e2fsck          --      u:object_r:fsck_exec:s0
/system/bin/fsck\.(f2fs|exfat)  --  u:object_r:fsck_exec:s0
/system/bin/.*\.sh          --      u:object_r:shell_exec:s0
/system/bin/sh              -l      u:object_r:shell_link:s0
/system/etc/selinux(/.*)?           u:object_r:sepolicy_file:s0
/system/etc/selinux/plat_file_contexts u:object_r:file_contexts_file:s0
/(vendor|system/vendor)(/.*)?       u:object_r:vendor_file:s0
/(vendor|system/vendor)/bin/hw/android\.hardware\.health@2\.[01]-service(\.device)? u:object_r:hal_health_exec:s0
/vendor/lib(64)?/hw/.*\.so          u:object_r:vendor_hal_file:s0
/(odm|vendor/odm)?/etc(/.*)?        u:object_r:vendor_configs_file:s0
/data/.*\.tmp|/cache/.*             u:object_r:tmp:s0
/dev/[^/]*                  -c      u:object_r:device:s0
/dev/tty[0-9]+                      u:object_r:tty_device:s0
/dev/tty[[:digit:]]a                u:object_r:ttya_device:s0
/dev/block/by-name/[a-z_]+  -b      u:object_r:block:s0
/dev/socket                 -d      u:object_r:socket_dir:s0
/dev/socket/.*              -s      u:object_r:socket:s0
/dev/fifo.?                 -p      u:object_r:fifo:s0
/lost\+found                        u:object_r:rootfs:s0
/mnt/.*/nothing                     <<none>>
/mnt(/.*)?                          u:object_r:mnt:s0
/mnt/(a|b)+x?                       u:object_r:ab:s0
/x{2}y*z?                           u:object_r:xyz:s0
^/hat                               u:object_r:hat:s0
.*/everywhere                       u:object_r:every:s0
"""
PATHS_TEXT = (
    "/ /system /system/ /systemx /system/x /system/apex/com.android.art /system/apex/comxandroid.art /system/lib "
    "/system/lib64/x /product/lib/y /product/liby /system/bin/mke2fs /system/bin/e2fsck /system/bin/fsck.f2fs "
    "/system/bin/fsckxf2fs /system/bin/a.sh /system/bin/deep/a.sh /system/bin/sh /system/etc/selinux "
    "/system/etc/selinux/plat_file_contexts /vendor /vendor/x /system/vendor "
    "/system/vendor/bin/hw/android.hardware.health@2.0-service "
    "/vendor/bin/hw/android.hardware.health@2.1-service.device /vendor/bin/hw/android.hardware.health@2.2-service "
    "/vendor/lib/hw/a.so /vendor/lib64/hw/b.so /vendor/lib64/hw/b.sox /etc /etc/x /odm/etc /odm/etc/y "
    "/vendor/odm/etc/z /data/a.tmp /data/b/c.tmp /data/a.tmpx /cache/x /cache /dev/null /dev/a/b /dev/tty12 "
    "/dev/tty1a /dev/ttyxa /dev/block/by-name/boot_a /dev/socket /dev/socket/zygote /dev/fifo /dev/fifo1 "
    "/dev/fifo12 /lost+found /lostxfound /mnt /mnt/a /mnt/x/nothing /mnt/nothing /mnt/ab /mnt/abbax /mnt/abx/x "
    "/xx /xxyyz /xxz /xyz /hat /hat/x /a/everywhere /everywhere /system/everywhere /nowhere"
)
PATHS = PATHS_TEXT.split()


def judge(contexts: Path, form: str, paths: list[str]) -> list[str]:
    """What libselinux says of these paths."""
    tool = find_tool("matchpathcon") or missing_judge("matchpathcon is not installed", "labels as libselinux has them")
    lines = run(tool, "-N", "-f", contexts, "-m", form, *paths).decode().splitlines()
    return [line.rsplit("\t", 1)[1] for line in lines]


def ours(contexts: FileContexts, form: str, paths: list[str]) -> list[str]:
    found = [contexts.lookup(path.rstrip("/").encode() or b"/", FORMS[form] | 0o644) for path in paths]
    return [(label or b"<<none>>").decode() for label in found]


def is_reworked(directory: Path) -> bool:
    """Whether libselinux is one of 3.8, which reads some lines otherwise than those up to 3.7.

    A backslash and a letter make an expression, where they were as good as a path that is spelled out; `<<none>>`
    counts before a later line with fewer directories that are spelled out; of `//a|/b` no first slash is split off.
    """
    (directory / "probe").write_text("/\\w\tu:object_r:spelled:s0\n/.*\tu:object_r:later:s0\n")
    return judge(directory / "probe", "f", ["/a"]) == ["u:object_r:later:s0"]


@pytest.mark.parametrize("form", FORMS)
def test_labels_of_a_phone(form: str, tmp_path: Path) -> None:
    (tmp_path / "fc").write_text(ANDROID)
    contexts = read_file_contexts([str(tmp_path / "fc")])
    wanted = judge(tmp_path / "fc", form, PATHS)
    if is_reworked(tmp_path):
        later = PATHS.index("/mnt/x/nothing")
        assert wanted[later] == "<<none>>"
        wanted[later] = "u:object_r:mnt:s0"
    assert dict(zip(PATHS, ours(contexts, form, PATHS), strict=True)) == dict(zip(PATHS, wanted, strict=True))
    assert len(set(wanted)) > 5


WORDS = ("a", "b", "ab", "a.b", "lib", "lib64", "x+y")
PIECES = (
    "a", "b", "lib", r"a\.b", r"x\+y", "(a|b)", "(a|ab)?", "[ab]", "[^a]", ".*", ".", "a?", "b*", "lib(64)?", "(/.*)?",
    "/a", "/", "(a|(b|lib))", "a{1,2}", "(lib|a)+", "(?:a|b)", "(a|b)*", "(a|)", "b+", r"\w", "(a|.b)?",
)  # fmt: skip


def is_read_otherwise(pattern: str) -> bool:
    """Whether libselinux 3.8 reads it otherwise than older ones: `\\w` as all that is special, or two slashes first."""
    only_letters = r"\w" in pattern and not set(re.sub(r"\\.", "", pattern)) & set(".^$?*+|[({")
    return only_letters or (pattern.startswith("//") and "|" in pattern)


@pytest.mark.parametrize("seed", range(12))
def test_labels_by_chance(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    rules: dict[tuple[str, str], str] = {}
    for number in range(40):
        pattern = "/" + "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 6)))
        if rng.random() < 0.05:
            pattern += "|/" + rng.choice(PIECES)
        kind = rng.choice(("", "", "", "--", "-d"))
        rules.setdefault((pattern, kind), f"u:object_r:t{number}:s0")
    if is_reworked(tmp_path):
        rules = {rule: label for rule, label in rules.items() if not is_read_otherwise(rule[0])}
    lines = [f"{pattern}\t{kind}\t{label}" for (pattern, kind), label in rules.items()]
    (tmp_path / "fc").write_text("\n".join(lines) + "\n")
    paths = ["/" + "/".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 4))) for _ in range(150)]
    contexts = read_file_contexts([str(tmp_path / "fc")])
    for form in ("f", "d"):
        wanted = judge(tmp_path / "fc", form, paths)
        found = ours(contexts, form, paths)
        differing = {p: (f, w) for p, f, w in zip(paths, found, wanted, strict=True) if f != w}
        assert differing == {}, "\n".join(lines)


@pytest.mark.parametrize("seed", range(5))
def test_the_beginnings_of_an_expression_are_those_of_all_that_it_matches(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(400):
        pattern = ("/" + "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 6)))).encode()
        regex = re.compile(_python_regex(pattern), re.DOTALL)
        literal = _literal(pattern)
        prefixes = tuple(_prefixes(pattern))
        for _ in range(60):
            path = ("/" + "/".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 4)))).encode()
            if regex.fullmatch(path):
                assert path.startswith(prefixes), (pattern, path)
                assert literal in (None, path)


def test_many_rules_and_many_paths() -> None:
    """Rules are found by the directory that they speak of; what remains to be tried for a path is little."""
    lines = [f"/system/dir{n}/file{m}(\\.so)? u:object_r:t{n}:s0".encode() for n in range(100) for m in range(20)]
    contexts = FileContexts([b"/system(/.*)? u:object_r:system:s0", *lines])
    for n in range(100):
        assert contexts.lookup(b"/system/dir%d/file7.so" % n, stat.S_IFREG) == b"u:object_r:t%d:s0" % n
        assert contexts.lookup(b"/system/dir%d/other" % n, stat.S_IFREG) == b"u:object_r:system:s0"
        assert len(contexts._directories[b"/system/dir%d" % n]) == 21


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/a", "label are needed"),
        ("/a -z x", "label are needed"),
        ("/a(b x", "regular expression"),
        ("/a[ x", "regular"),
    ],
)
def test_a_line_that_is_not_understood(line: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "fc").write_text(f"# comment\n{line}\n")
    with pytest.raises(Usage, match=f"fc:2: .*{said}"):
        read_file_contexts([str(tmp_path / "fc")])


def test_a_compiled_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fc.bin").write_bytes(struct.pack("<I", 0xF97CFF8A) + bytes(100))
    with pytest.raises(Usage, match="compiled"):
        read_file_contexts([str(tmp_path / "fc.bin")])
    with pytest.raises(Usage, match="No such file"):
        read_file_contexts([str(tmp_path / "none")])


@pytest.mark.parametrize(
    ("mount_point", "path", "where"),
    [
        ("/", b"", b"/"), ("/", b"a/b", b"/a/b"), ("/system", b"", b"/system"), ("system/", b"a", b"/system/a"),
        ("/mnt/vendor", b"a", b"/mnt/vendor/a"),
    ],
)  # fmt: skip
def test_where_a_file_will_be(mount_point: str, path: bytes, where: bytes) -> None:
    assert mounted(mount_point, path) == where


CONFIG = """
system 0 0 0755
system/bin 0 2000 0751
system/bin/run-as 0 2000 0750 capabilities=0xc0
/system/a name with 3 words 1 2 644
system/bin/su 0 2000 04750 selabel=u:object_r:su_exec:s0 capabilities=0x100000002
"""


def entries() -> list[SourceEntry]:
    return [
        SourceEntry(b"", stat.S_IFDIR | 0o700, 5, 5),
        SourceEntry(b"a name with 3 words", stat.S_IFREG | 0o600, 5, 5, xattrs={"user.a": b"kept"}),
        SourceEntry(b"bin", stat.S_IFDIR | 0o700, 5, 5),
        SourceEntry(b"bin/link", stat.S_IFREG, link_to=b"a name with 3 words"),
        SourceEntry(b"bin/run-as", stat.S_IFREG | 0o700, 5, 5),
        SourceEntry(b"bin/su", stat.S_IFREG | 0o700, 5, 5),
        SourceEntry(b"other", stat.S_IFREG | 0o640, 5, 6),
    ]


def test_owners_modes_and_capabilities(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(CONFIG)
    found = entries()
    notes = dress(found, "/system", None, read_fs_config(str(tmp_path / "config")))
    by_path = {entry.path: entry for entry in found}
    told = {path: (oct(entry.mode), entry.uid, entry.gid) for path, entry in by_path.items() if entry.link_to is None}
    assert told == {
        b"": ("0o40755", 0, 0),
        b"a name with 3 words": ("0o100644", 1, 2),
        b"bin": ("0o40751", 0, 2000),
        b"bin/run-as": ("0o100750", 0, 2000),
        b"bin/su": ("0o104750", 0, 2000),
        b"other": ("0o100640", 5, 6),
    }
    assert by_path[b"a name with 3 words"].xattrs == {"user.a": b"kept"}
    assert by_path[b"bin/run-as"].xattrs == {"security.capability": bytes.fromhex("01000002c0" + "00" * 15)}
    assert by_path[b"bin/su"].xattrs == {
        "security.capability": struct.pack("<5I", 0x02000001, 2, 0, 1, 0),
        "security.selinux": b"u:object_r:su_exec:s0\0",
    }
    assert notes == ["no line in fs_config for 1 file: owner and mode stay"]


def test_a_capability_is_what_the_kernel_takes(tmp_path: Path) -> None:
    """CAP_SETUID and CAP_SETGID, as setcap writes them."""
    if os.geteuid():
        pytest.skip("needs root: setting capabilities; not tried: whether the kernel takes them")
    (tmp_path / "config").write_text("file 0 0 0755 capabilities=0xc0\n")
    entry = SourceEntry(b"file", stat.S_IFREG)
    dress([entry], "/", None, read_fs_config(str(tmp_path / "config")))
    (tmp_path / "file").write_bytes(b"")
    os.setxattr(tmp_path / "file", "security.capability", entry.xattrs["security.capability"])
    getcap = find_tool("getcap") or missing_judge("getcap is not installed", "capabilities as libcap shows them")
    assert b"cap_setgid,cap_setuid=ep" in run(getcap, tmp_path / "file")


def test_labels_are_set_and_others_kept() -> None:
    found = entries()
    found[-1].xattrs = {"security.selinux": b"as it was\0"}
    contexts = FileContexts([b"/system(/bin.*)? u:object_r:system:s0"])
    notes = dress(found, "/system", contexts, None)
    labels = {entry.path: entry.xattrs.get("security.selinux") for entry in found}
    label = b"u:object_r:system:s0\0"
    assert labels == {
        b"": label, b"bin": label, b"bin/run-as": label, b"bin/su": label, b"bin/link": None,
        b"a name with 3 words": None, b"other": b"as it was\0",
    }  # fmt: skip
    assert notes == ["no label in file_contexts for 2 files"]


@pytest.mark.parametrize(
    "line", ["a 0 0", "a 0 0 0999", "a 0 0 0755 nonsense=1", "a 0 0 0755 capabilities=x", "a 4294967296 0 0755",
             "a 0 0 17777", "a b c 0755"]
)  # fmt: skip
def test_a_line_of_fs_config_that_is_not_understood(line: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(line + "\n")
    with pytest.raises(Usage, match="--fs-config"):
        read_fs_config(str(tmp_path / "config"))


def test_the_root_may_be_called_slash_or_nothing(tmp_path: Path) -> None:
    for name in ("/", ""):
        (tmp_path / "config").write_text(f"{name} 1 2 0700\n")
        assert read_fs_config(str(tmp_path / "config")) == {b"": Config(1, 2, 0o700)}
