"""Attributes as they are written: against areas of the real kernel, against a dict, and ACLs against what it does."""

from __future__ import annotations

import base64
import errno
import json
import os
import random
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import f2tools
from f2tools.acl import (
    ACL_GROUP,
    ACL_GROUP_OBJ,
    ACL_MASK,
    ACL_OTHER,
    ACL_UNDEFINED_ID,
    ACL_USER,
    ACL_USER_OBJ,
    AclEntry,
    chmod_acl,
    inherit,
    mode_of_acl,
)
from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.f2fs.volume.acl import build_disk, parse_disk
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.volume.xattr import parse_xattrs, raw_xattrs, xattrs_of
from f2tools.f2fs.write.xattr import (
    XATTR_CREATE,
    XATTR_REPLACE,
    advised,
    build_area,
    change,
    parse_name,
    room_of,
    split,
    stored_value,
)
from tests.images import CASES, SPARSE, reference
from tests.kernel.guest import Guest
from tests.mkfs.tools import f2mkfs

READABLE = [name for name in CASES if name not in SPARSE]
ROOM = room_of(200)
FILE, DIRECTORY, LINK, PIPE = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777, stat.S_IFIFO | 0o644


def xattr_form(*entries: tuple[int, int, int] | tuple[int, int]) -> bytes:
    """An ACL as setxattr takes it."""
    full = [(*entry, ACL_UNDEFINED_ID)[:3] for entry in entries]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in full)


MINIMAL = ((ACL_USER_OBJ, 6), (ACL_GROUP_OBJ, 4), (ACL_OTHER, 0))
NAMED = ((ACL_USER_OBJ, 7), (ACL_USER, 6, 1000), (ACL_GROUP_OBJ, 5), (ACL_GROUP, 4, 50), (ACL_MASK, 6), (ACL_OTHER, 1))


# -- areas of images ------------------------------------------------------------------------------------------------


def inodes(vol: Volume) -> Iterator[Inode]:
    for _, inode, entries in vol.walk():
        yield inode
        yield from (entry.inode for entry in entries if isinstance(entry.inode, Inode) and not entry.inode.is_dir)


def parts_of(vol: Volume, inode: Inode) -> tuple[bytes, bytes | None]:
    """Inline part and xattr node as they lie on the disk."""
    inline = inode.inline_xattr_area.tobytes()
    whole = raw_xattrs(vol.nodes, inode)
    return inline, whole[len(inline) :] if inode.i_xattr_nid else None


@pytest.mark.parametrize("name", READABLE)
def test_areas_of_images_come_out_byte_for_byte(name: str) -> None:
    case = reference(name)
    with f2tools.open(case.path, case.extra) as vol:
        for inode in inodes(vol):
            items = [(item.index, item.name, item.value) for item in xattrs_of(vol.nodes, inode)]
            if not items:
                continue
            inline, node = parts_of(vol, inode)
            room = room_of(len(inline), vol.geo.block_size)
            whole = build_area(items, room)
            assert split(whole, len(inline), vol.geo.block_size) == (inline, node), inode
            assert split(inline + (node or b""), len(inline), vol.geo.block_size) == (inline, node)
            # each set after the other gives the same
            area = b""
            for index, key, value in items:
                changed = change(area, index, key, value, XATTR_CREATE, room=room)
                assert changed is not None
                area = changed
                assert change(area, index, key, value, XATTR_REPLACE, room=room) is None
            assert area == whole


# -- the area against a dict ----------------------------------------------------------------------------------------

keys = st.tuples(st.sampled_from((1, 4, 6)), st.binary(max_size=12) | st.binary(min_size=255, max_size=255))
values = st.binary(max_size=40) | st.integers(0, 4300).map(lambda n: b"v" * n)


@given(
    st.lists(st.tuples(keys, values | st.none(), st.sampled_from((0, 0, XATTR_CREATE, XATTR_REPLACE))), max_size=40),
    st.sampled_from((0, 24, 200, 1000)),
)
@settings(max_examples=150)
def test_an_area_behaves_as_a_dict(steps: list[tuple[tuple[int, bytes], bytes | None, int]], inline_size: int) -> None:
    room = room_of(inline_size)
    area, model = b"", {}
    for key, value, flags in steps:
        sizes = {k: -(-(4 + len(k[1]) + len(v)) // 4) * 4 for k, v in model.items() if k != key}
        expected = 0
        if value is not None and len(value) > room - 28:
            expected = errno.E2BIG
        elif value is not None and key in model and flags & XATTR_CREATE:
            expected = errno.EEXIST
        elif key not in model and (value is None or flags & XATTR_REPLACE):
            expected = errno.ENODATA
        elif value is not None and model.get(key) != value:
            need = -(-(4 + len(key[1]) + len(value)) // 4) * 4
            expected = errno.E2BIG if 24 + sum(sizes.values()) + need > room else 0
        if expected:
            with pytest.raises(OSError) as caught:
                change(area, *key, value, flags, room=room)
            assert caught.value.errno == expected
            continue
        changed = change(area, *key, value, flags, room=room)
        if changed is None:
            assert model.get(key) == value
            continue
        area = changed
        model.pop(key, None)
        if value is not None:
            model[key] = value
        assert [((x.index, x.name), x.value) for x in parse_xattrs(area, Where())] == list(model.items())
        inline, node = split(area, inline_size)
        assert len(inline) == inline_size
        assert (node is None) == (len(area) <= inline_size)
        assert node is None or len(node) == 4096 - NodeFooter.size
        assert (inline + (node or b"")).rstrip(b"\0") == area.rstrip(b"\0")
        area = inline + (node or b"")  # as it comes back from the disk


def test_the_parts_begin_with_one_header() -> None:
    area = change(b"", 1, b"a", b"x" * 300, room=ROOM)
    assert area is not None
    assert area[:24] == bytes.fromhex("1120f5f2 01000000") + bytes(16)
    inline, node = split(area, 200)
    assert node is not None
    assert inline + node == area + bytes(ROOM - len(area))
    assert split(area, 0) == (b"", area + bytes(4072 - len(area)))
    small = change(area, 1, b"a", b"x", room=ROOM)
    assert small is not None
    assert split(small, 200)[1] is None
    assert split(small, 0, 16384) == (b"", small + bytes(16384 - 24 - len(small)))
    gone = change(small, 1, b"a", None, room=ROOM)
    assert gone is not None
    assert gone == area[:24]
    assert split(gone, 200) == (area[:24] + bytes(176), None)


def test_errors_are_those_of_setxattr() -> None:
    def number(*args: Any, room: int = ROOM) -> int | None:
        with pytest.raises(OSError) as caught:
            change(*args, room=room)
        return caught.value.errno

    area = change(b"", 1, b"a", b"1", room=ROOM) or b""
    assert number(area, 1, b"a", b"2", XATTR_CREATE) == errno.EEXIST
    assert number(area, 1, b"b", b"2", XATTR_REPLACE) == errno.ENODATA
    assert number(area, 4, b"a", None) == errno.ENODATA
    assert number(area, 1, b"n" * 256, b"") == errno.ERANGE
    assert number(area, 1, b"b", b"x" * (ROOM - 27)) == errno.E2BIG
    assert number(area, 1, b"b", b"x" * (ROOM - 36)) == errno.E2BIG
    assert change(area, 2, b"", None, room=ROOM) is None  # to remove an ACL that isn't there is no error
    assert change(area, 1, b"a", b"x" * (ROOM - 29), room=ROOM) is not None
    broken = area[:26] + b"\xff\xff" + area[28:]
    with pytest.raises(Corrupt):
        change(broken, 1, b"a", b"2", room=ROOM)
    large = [(1, b"a", bytes(2200)), (1, b"b", bytes(2200))]
    for items in ([(1, b"n" * 256, b"")], [(1, b"a", bytes(1 << 16))], large):
        with pytest.raises(OSError):
            build_area(items, ROOM)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("user.x", (1, b"x")),
        ("user.\udcff", (1, b"\xff")),
        (b"trusted.a.b", (4, b"a.b")),
        ("security.selinux", (6, b"selinux")),
        ("system.posix_acl_access", (2, b"")),
        ("system.posix_acl_default", (3, b"")),
        ("system.advise", (7, b"")),
        ("user.", errno.EINVAL),
        ("user", errno.EOPNOTSUPP),
        ("system.posix_acl_accessx", errno.EOPNOTSUPP),
        ("encryption.c", errno.EOPNOTSUPP),
        ("", errno.ERANGE),
        ("user." + "x" * 251, errno.ERANGE),
    ],
)
def test_names_of_the_system_call(name: str | bytes, expected: tuple[int, bytes] | int) -> None:
    if isinstance(expected, tuple):
        assert parse_name(name) == expected
    else:
        with pytest.raises(OSError) as caught:
            parse_name(name)
        assert caught.value.errno == expected


def test_advice_is_a_byte_of_the_inode() -> None:
    assert advised(0x40, b"\x01") == 0x41
    assert advised(0x61, b"\x00") == 0x40
    for value in (None, b"", b"\x02"):
        with pytest.raises(OSError, match="Invalid"):
            advised(0, value)


# -- ACLs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "value", "mode", "expected"),
    [
        (1, b"x", FILE, (FILE, b"x")),
        (1, b"x", PIPE, errno.EPERM),
        (1, b"x", LINK, errno.EPERM),
        (4, b"x", LINK, (LINK, b"x")),
        (2, xattr_form(*MINIMAL), LINK, errno.EOPNOTSUPP),
        (2, xattr_form(*MINIMAL), FILE, (stat.S_IFREG | 0o640, None)),
        (2, xattr_form(*NAMED), FILE | stat.S_ISUID, (stat.S_IFREG | stat.S_ISUID | 0o761, "kept")),
        (2, xattr_form(*NAMED), PIPE, (stat.S_IFIFO | 0o761, "kept")),
        (2, b"\x02\0\0\0", FILE, (FILE, None)),
        (2, b"", FILE, errno.EINVAL),
        (2, None, FILE, (FILE, None)),
        (2, xattr_form(*MINIMAL[:2]), FILE, errno.EINVAL),
        (3, xattr_form(*NAMED), DIRECTORY, (DIRECTORY, "kept")),
        (3, xattr_form(*MINIMAL), DIRECTORY, (DIRECTORY, build_disk([AclEntry(*entry) for entry in MINIMAL]))),
        (3, xattr_form(*NAMED), FILE, errno.EACCES),
        (3, None, FILE, (FILE, None)),
    ],
)
def test_what_an_entry_holds_and_what_becomes_of_the_mode(
    index: int, value: bytes | None, mode: int, expected: tuple[int, Any] | int
) -> None:
    if isinstance(expected, int):
        with pytest.raises(OSError) as caught:
            stored_value(index, value, mode)
        assert caught.value.errno == expected
        return
    kept = build_disk([AclEntry(*entry) for entry in NAMED]) if expected[1] == "kept" else expected[1]
    assert stored_value(index, value, mode) == (expected[0], kept)


def test_chmod_and_inheritance() -> None:
    named, minimal = ([AclEntry(*entry) for entry in entries] for entries in (NAMED, MINIMAL))
    assert [entry.perm for entry in chmod_acl(named, 0o4251)] == [2, 6, 5, 4, 5, 1]
    assert [entry.perm for entry in chmod_acl(minimal, 0o251)] == [2, 5, 1]
    mode, access, default = inherit(named, stat.S_IFREG | 0o2640)
    assert (oct(mode), default) == (oct(stat.S_IFREG | 0o2640), None)
    assert [entry.perm for entry in access or []] == [6, 6, 5, 4, 4, 0]
    mode, access, default = inherit(named, stat.S_IFDIR | 0o777)
    assert (oct(mode), default) == (oct(stat.S_IFDIR | 0o761), named)
    assert access == named
    assert inherit(minimal, stat.S_IFDIR | 0o777) == (stat.S_IFDIR | 0o640, None, minimal)
    assert inherit(minimal, stat.S_IFREG | 0o604) == (stat.S_IFREG | 0o600, None, None)
    assert inherit(named, LINK) == (LINK, None, None)
    assert inherit(None, FILE) == inherit([], FILE) == (FILE, None, None)


@given(st.lists(st.integers(0, 7), min_size=6, max_size=6), st.integers(0, 0o7777))
def test_mode_and_acl_agree(perms: list[int], mode: int) -> None:
    acl = [AclEntry(*entry)._replace(perm=perm) for entry, perm in zip(NAMED, perms, strict=True)]
    assert mode_of_acl(chmod_acl(acl, mode), mode) == (mode, chmod_acl(acl, mode))
    new, access, _ = inherit(acl, stat.S_IFREG | mode)
    assert access is not None
    assert mode_of_acl(access, stat.S_IFREG | mode) == (new, access)
    assert not new & ~(stat.S_IFREG | mode)


# -- the kernel as judge --------------------------------------------------------------------------------------------

PLAY = """
import base64, json, os, sys
os.umask(0)
done = []
for kind, path, name, value, number in json.load(open("/share/steps.json")):
    path, value = f"/mnt/{path}", None if value is None else base64.b85decode(value)
    try:
        if kind == "file":
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, number))
        elif kind == "dir":
            os.mkdir(path, number)
        elif kind == "link":
            os.symlink("there", path)
        elif kind == "pipe":
            os.mkfifo(path, number)
        elif kind == "chmod":
            os.chmod(path, number)
        elif kind == "remove":
            os.removexattr(path, name, follow_symlinks=False)
        else:
            os.setxattr(path, name, value, number, follow_symlinks=False)
        done.append(0)
    except OSError as error:
        done.append(error.errno)
json.dump(done, open(os.environ["OUT"] + "/" + sys.argv[1], "w"))
"""
SCRIPT = """
set -e
export OUT
mount -t f2fs ${IMAGES[0]} /mnt; python3 /share/play.py plain; umount /mnt
mount -t f2fs -o noinline_xattr,noinline_dentry ${IMAGES[1]} /mnt; python3 /share/play.py noinline; umount /mnt
mount -t f2fs -o inline_xattr_size=100 ${IMAGES[2]} /mnt; python3 /share/play.py flexible; umount /mnt
"""
Step = tuple[str, str, str, bytes | None, int]
NAMES = [f"user.{letter * length}" for letter in "ab" for length in (1, 6, 40, 250)]
NAMES += ["trusted.t", "trusted.", "security.s", "nonsense.x", "user.no" * 40]
ACL_NAMES = ["system.posix_acl_access", "system.posix_acl_default"]
MAKERS = {"file": stat.S_IFREG, "dir": stat.S_IFDIR, "link": stat.S_IFLNK, "pipe": stat.S_IFIFO}


def random_acl(rng: random.Random) -> bytes:
    users = [(ACL_USER, rng.randrange(8), rng.randrange(5000)) for _ in range(rng.choice((0, 0, 1, 3)))]
    groups = [(ACL_GROUP, rng.randrange(8), rng.randrange(5000)) for _ in range(rng.choice((0, 0, 1, 2)))]
    mask = [(ACL_MASK, rng.randrange(8))] if users or groups or rng.random() < 0.3 else []
    entries: list[Any] = [(ACL_USER_OBJ, rng.randrange(8)), *users, (ACL_GROUP_OBJ, rng.randrange(8)), *groups, *mask]
    if rng.random() < 0.9:  # or it is not valid
        entries.append((ACL_OTHER, rng.randrange(8)))
    return xattr_form(*entries) if rng.random() < 0.9 else rng.choice((b"", xattr_form()))


def random_steps(rng: random.Random) -> list[Step]:
    """Folders, files in them, and what setxattr, removexattr and chmod do to these."""
    steps: list[Step] = []
    paths: list[str] = []
    directories: list[str] = []
    links: list[str] = []
    for number in range(1500):
        if number < 12 or rng.random() < 0.08:
            kind = rng.choice(("dir", "file", "dir", "file", "link", "pipe")) if number >= 4 else "dir"
            path = f"{rng.choice(directories)}/{number}" if directories and rng.random() < 0.7 else str(number)
            paths.append(path)
            if kind == "dir":
                directories.append(path)
            if kind == "link":
                links.append(path)
            steps.append((kind, path, "", None, 0o777 if kind == "link" else rng.randrange(0o1000)))
            continue
        path = rng.choice(paths)
        if rng.random() < 0.1 and path not in links:
            steps.append(("chmod", path, "", None, rng.randrange(0o1000)))
            continue
        value = rng.randbytes(rng.choice((0, 3, 30, 30, 150, 1500, 4050, 5000)))
        name = rng.choice(NAMES)
        if rng.random() < 0.3:
            name, value = rng.choice(ACL_NAMES), random_acl(rng)
        if rng.random() < 0.2:
            steps.append(("remove", path, name, None, 0))
        else:
            steps.append(("set", path, name, value, rng.choice((0, 0, 0, 0, XATTR_CREATE, XATTR_REPLACE))))
    return steps


def removes_acls_by_nothing(steps: list[Step], results: list[int]) -> bool:
    """Whether setxattr of an ACL takes no bytes at all for "remove it", as Linux does since 6.2; before, for EINVAL."""
    tried = [done for step, done in zip(steps, results, strict=True) if step[0] == "set" and _is_acl_of_nothing(step)]
    assert tried
    return 0 in tried


def _is_acl_of_nothing(step: Step) -> bool:
    return step[2] in ACL_NAMES and step[3] == b""


class Model:
    """What the files are by our own functions: mode and area of each path."""

    def __init__(self, inline_size: int, block_size: int) -> None:
        self.inline_size, self.block_size = inline_size, block_size
        self.room = room_of(inline_size, block_size)
        self.modes: dict[str, int] = {}
        self.areas: dict[str, bytes] = {}
        self.nodes: set[str] = set()

    def step(self, kind: str, path: str, name: str, value: bytes | None, number: int) -> None:
        if kind in MAKERS:
            self.create(path, MAKERS[kind] | number)
        elif kind == "chmod":
            self.modes[path] = stat.S_IFMT(self.modes[path]) | number
            acl = self.acl(path, 2)
            if acl:
                self.change(path, 2, b"", build_disk(chmod_acl(acl, number)), 0)
        else:
            index, key = parse_name(name)
            mode, stored = stored_value(index, value, self.modes[path])
            self.change(path, index, key, stored, number if index not in (2, 3) else 0)
            self.modes[path] = mode

    def create(self, path: str, mode: int) -> None:
        directory = os.path.dirname(path)
        self.modes[path], access, default = inherit(self.acl(directory, 3), mode)
        self.areas[path] = b""
        for index, acl in ((3, default), (2, access)):
            if acl is not None:
                self.change(path, index, b"", build_disk(acl), 0)

    def acl(self, path: str, index: int) -> list[AclEntry] | None:
        found = (item.value for item in parse_xattrs(self.areas.get(path, b""), Where()) if item.index == index)
        value = next(found, None)
        return None if value is None else parse_disk(value)

    def change(self, path: str, index: int, name: bytes, value: bytes | None, flags: int) -> None:
        area = change(self.areas[path], index, name, value, flags, room=self.room)
        if area is not None:
            inline, node = split(area, self.inline_size, self.block_size)
            self.areas[path] = inline + (node or b"")


def test_the_kernel_does_the_same(guest: Guest, tmp_path: Path) -> None:
    rng = random.Random(20240301)
    steps = random_steps(rng)
    disks = {name: tmp_path / name for name in ("plain", "noinline", "flexible")}
    for name, disk in disks.items():
        features = ("-O", "extra_attr,flexible_inline_xattr") if name == "flexible" else ()
        f2mkfs("-q", disk, "--size", "64M", *features)
    shown = [(*step[:3], None if step[3] is None else base64.b85encode(step[3]).decode(), step[4]) for step in steps]
    files = {"steps.json": json.dumps(shown), "play.py": PLAY}
    result = guest.run(SCRIPT, list(disks.values()), files=files, env={"PYTHONUTF8": "1"}).must_succeed()
    for name, disk in disks.items():
        theirs = result.json(name)
        with f2tools.open(disk) as vol:
            model = Model({"plain": 200, "noinline": 0, "flexible": 400}[name], vol.geo.block_size)
            ours: list[int | None] = []
            removes = removes_acls_by_nothing(steps, theirs)
            for step in steps:
                try:
                    model.step(*step[:3], None if removes and _is_acl_of_nothing(step) else step[3], step[4])
                    ours.append(0)
                except OSError as error:
                    ours.append(error.errno)
            assert [(*rest, step) for *rest, step in zip(ours, theirs, steps, strict=True) if rest[0] != rest[1]] == []
            for path, area in model.areas.items():
                inode = vol.path(f"/{path}", follow=False).inode
                assert (path, oct(inode.i_mode)) == (path, oct(model.modes[path]))
                inline, node = parts_of(vol, inode)
                assert len(inline) == model.inline_size
                whole = inline + (node or b"")
                if not area and whole.rstrip(b"\0") == build_area([], model.room).rstrip(b"\0"):
                    continue  # an ACL was removed that wasn't there: the kernel then writes a header alone
                assert (path, whole.ljust(len(area), b"\0")) == (path, area.ljust(len(whole), b"\0"))
                assert (path, node is None) == (path, len(area) <= model.inline_size)
