"""Operations on a volume that has something of everything, and what a user sees of it: for judges of refusals."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from f2tools.device import Device, open_device
from f2tools.f2fs.layout.constants import (
    F2FS_APPEND_FL,
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_PIN_FILE,
    F2FS_PROJINHERIT_FL,
    F2FS_ROOT_INO,
)
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import Policy, WritableVolume
from tests.f2fs.write.model import ACL_ACCESS, ACL_DEFAULT, GROUP, GROUP_OBJ, MASK, OTHER, USER_OBJ, Node, acl
from tests.f2fs.write.model import BLOCK as BLOCK
from tests.f2fs.write.volumes import FULL, Above, Ticks, formatted, node_of
from tests.f2fs.write.workload import FILE, noise, text
from tests.images import copy_sparse

ROOT = F2FS_ROOT_INO
OPTIONS = f"--size 64M -C utf8 -O {FULL},compression"
PEOPLE, OTHERS, PROJECT = 1000, 2000, 7
KEEP, PUNCH, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32  # modes of fallocate(2)
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4  # flags of renameat2(2)
IN_INODE, IN_NODE = 923, 1018  # blocks that an inode and a node map, at most
LONG = b"a name that is as long as a name can be, nearly " * 5
SMALL_ACL = acl((USER_OBJ, 6, -1), (GROUP_OBJ, 6, -1), (GROUP, 4, 100), (MASK, 6, -1), (OTHER, 4, -1))
GROUPS = [(GROUP, 4, 100 + n) for n in range(60)]
LARGE_ACL = acl((USER_OBJ, 7, -1), (GROUP_OBJ, 5, -1), *GROUPS, (MASK, 5, -1), (OTHER, 5, -1))
NODE_END = (IN_INODE + IN_NODE) * BLOCK
Operation = Callable[[WritableVolume], object]


def at(volume: WritableVolume, path: str) -> int:
    return volume.path(path).inode.ino


OPERATIONS: dict[str, Operation] = {
    "create": lambda v: v.create(at(v, "/d"), b"new", FILE, PEOPLE, PEOPLE),
    "create out of the inode": lambda v: v.create(at(v, "/tight"), LONG, FILE, PEOPLE, PEOPLE),
    "create in blocks": lambda v: v.create(at(v, "/blocks"), LONG, FILE, PEOPLE, PEOPLE),
    "create a device": lambda v: v.create(ROOT, b"new", stat.S_IFCHR | 0o600, PEOPLE, PEOPLE, (8, 300)),
    "create with ACLs": lambda v: v.create(at(v, "/acl"), b"new", FILE, PEOPLE, PEOPLE),
    "create folded": lambda v: v.create(at(v, "/folded"), b"new", FILE, PEOPLE, PEOPLE),
    "create in a project": lambda v: v.create(at(v, "/project"), b"new", FILE, PEOPLE, PEOPLE),
    "tmpfile": lambda v: v.hold(v.tmpfile(at(v, "/d"), FILE, PEOPLE, PEOPLE)),
    "tmpfile with ACLs": lambda v: v.hold(v.tmpfile(at(v, "/acl"), FILE, PEOPLE, PEOPLE)),
    "mkdir": lambda v: v.mkdir(at(v, "/d"), b"new", 0o755, PEOPLE, PEOPLE),
    "mkdir out of the inode": lambda v: v.mkdir(at(v, "/tight"), LONG, 0o755, PEOPLE, PEOPLE),
    "mkdir with ACLs": lambda v: v.mkdir(at(v, "/acl"), b"new", 0o775, PEOPLE, PEOPLE),
    "symlink": lambda v: v.symlink(ROOT, b"new", b"d/f", PEOPLE, PEOPLE),
    "symlink of a block": lambda v: v.symlink(ROOT, b"new", b"t" * 4000, PEOPLE, PEOPLE),
    "symlink of a block, out of the inode": lambda v: v.symlink(at(v, "/tight"), LONG, b"t" * 4000, PEOPLE, PEOPLE),
    "link": lambda v: v.link(at(v, "/d/f"), at(v, "/e"), b"new"),
    "link out of the inode": lambda v: v.link(at(v, "/d/f"), at(v, "/tight"), LONG),
    "link of a file without a name": lambda v: v.link(v.nameless[0], at(v, "/tight"), LONG),
    "unlink": lambda v: v.unlink(at(v, "/d"), b"f"),
    "unlink one of two": lambda v: v.unlink(ROOT, b"one"),
    "unlink a large one": lambda v: v.unlink(ROOT, b"large"),
    "unlink a held one": lambda v: v.unlink(ROOT, b"open"),
    "unlink in blocks": lambda v: v.unlink(at(v, "/blocks"), b"03 " + b"a long name " * 20),
    "rmdir": lambda v: v.rmdir(at(v, "/d"), b"empty"),
    "rename": lambda v: v.rename(at(v, "/d"), b"f", at(v, "/e"), b"g"),
    "rename in place": lambda v: v.rename(at(v, "/d"), b"f", at(v, "/d"), b"g"),
    "rename out of the inode": lambda v: v.rename(at(v, "/d"), b"f", at(v, "/tight"), LONG),
    "rename in place, out of the inode": lambda v: v.rename(at(v, "/tight"), b"first", at(v, "/tight"), LONG),
    "rename in blocks": lambda v: v.rename(at(v, "/blocks"), b"03 " + b"a long name " * 20, at(v, "/blocks"), LONG),
    "rename by case": lambda v: v.rename(at(v, "/folded"), b"name", at(v, "/folded"), b"NAME"),
    "rename a directory": lambda v: v.rename(at(v, "/d"), b"sub", at(v, "/e"), b"g"),
    "rename over a file": lambda v: v.rename(at(v, "/d"), b"f", ROOT, b"large"),
    "rename over a held file": lambda v: v.rename(at(v, "/d"), b"f", ROOT, b"open"),
    "rename over a directory": lambda v: v.rename(at(v, "/d"), b"sub", at(v, "/d"), b"empty"),
    "exchange": lambda v: v.rename(at(v, "/d"), b"f", at(v, "/e"), b"other", EXCHANGE),
    "exchange directories": lambda v: v.rename(at(v, "/d"), b"sub", ROOT, b"e", EXCHANGE),
    "whiteout": lambda v: v.rename(at(v, "/d"), b"f", at(v, "/e"), b"g", WHITEOUT),
    "whiteout out of the inode": lambda v: v.rename(at(v, "/d"), b"f", at(v, "/tight"), LONG, WHITEOUT),
    "whiteout over a file": lambda v: v.rename(at(v, "/d"), b"f", ROOT, b"large", WHITEOUT),
    "write": lambda v: v.write(at(v, "/d/f"), 10, b"new" * 100),
    "write out of the inode": lambda v: v.write(at(v, "/d/f"), 1000, noise("new", 9000)),
    "write far out of the inode": lambda v: v.write(at(v, "/d/f"), (IN_INODE + 2 * IN_NODE + 5) * BLOCK, b"far"),
    "write behind the end": lambda v: v.write(at(v, "/cut"), 10 * BLOCK, b"new" * 700),
    "write into a hole": lambda v: v.write(at(v, "/large"), 700 * BLOCK + 5, noise("new", 3 * BLOCK)),
    "write over": lambda v: v.write(at(v, "/large"), 5, noise("new", 3 * BLOCK)),
    "write a run over": lambda v: v.write(at(v, "/large"), 5, noise("new", 39 * BLOCK)),
    "write from one node to the next": lambda v: v.write(at(v, "/large"), NODE_END - BLOCK, noise("n", 3 * BLOCK)),
    "write a long run": lambda v: v.write(at(v, "/cut"), 3 * BLOCK, noise("new", 600 * BLOCK)),
    "write to what is pinned": lambda v: v.write(at(v, "/pinned"), 5, noise("new", 5 * BLOCK)),
    "append": lambda v: v.write(at(v, "/append"), 3000, noise("new", 3000)),
    "write to a cluster": lambda v: v.write(at(v, "/packed"), 5 * BLOCK + 7, noise("new", 100)),
    "write a new cluster": lambda v: v.write(at(v, "/packed"), 40 * BLOCK, text("new", 8 * BLOCK)),
    "truncate": lambda v: v.truncate(at(v, "/large"), 5 * BLOCK + 5),
    "truncate to nothing": lambda v: v.truncate(at(v, "/large"), 0),
    "truncate to more": lambda v: v.truncate(at(v, "/d/f"), 100_000),
    "truncate a cluster": lambda v: v.truncate(at(v, "/packed"), 6 * BLOCK + 5),
    "truncate what is pinned": lambda v: v.truncate(at(v, "/pinned"), 0),
    "allocate": lambda v: v.fallocate(at(v, "/cut"), 0, 5, 20 * BLOCK),
    "allocate out of the inode": lambda v: v.fallocate(at(v, "/d/f"), KEEP, 0, 20 * BLOCK),
    "allocate nodes": lambda v: v.fallocate(at(v, "/cut"), 0, 900 * BLOCK, (IN_NODE + 100) * BLOCK),
    "punch": lambda v: v.fallocate(at(v, "/large"), PUNCH | KEEP, 5, 1010 * BLOCK),
    "punch out of the inode": lambda v: v.fallocate(at(v, "/d/f"), PUNCH | KEEP, 5, 100),
    "zero": lambda v: v.fallocate(at(v, "/large"), ZERO, 5, 1010 * BLOCK),
    "zero out of the inode": lambda v: v.fallocate(at(v, "/d/f"), ZERO, 5, 9000),
    "collapse": lambda v: v.fallocate(at(v, "/large"), COLLAPSE, 2 * BLOCK, 10 * BLOCK),
    "insert": lambda v: v.fallocate(at(v, "/large"), INSERT, 2 * BLOCK, 10 * BLOCK),
    "insert nodes": lambda v: v.fallocate(at(v, "/large"), INSERT, 2 * BLOCK, 2100 * BLOCK),
    "insert what is reserved": lambda v: v.fallocate(at(v, "/reserved"), INSERT, BLOCK, 950 * BLOCK),
    "chmod": lambda v: v.setattr(at(v, "/acl"), mode=0o700),
    "chown": lambda v: v.setattr(at(v, "/large"), uid=OTHERS, gid=OTHERS),
    "utimens": lambda v: v.setattr(at(v, "/d/f"), atime_ns=5, mtime_ns=6),
    "change the project": lambda v: v.set_projid(at(v, "/large"), PROJECT),
    "chattr": lambda v: v.set_flags(at(v, "/empty"), F2FS_COMPR_FL),
    "setxattr": lambda v: v.setxattr(at(v, "/d/f"), "user.new", b"value"),
    "setxattr of a node": lambda v: v.setxattr(at(v, "/d/f"), "user.new", noise("new", 3000)),
    "setxattr of another value": lambda v: v.setxattr(at(v, "/attributes"), "user.a0", noise("new", 1000)),
    "setxattr of an ACL": lambda v: v.setxattr(at(v, "/d/f"), ACL_ACCESS, LARGE_ACL),
    "removexattr": lambda v: v.removexattr(at(v, "/attributes"), "user.a1"),
    "removexattr of a node": lambda v: v.removexattr(at(v, "/attributes"), "user.a2"),
    "set a limit": lambda v: v.set_quota("user", OTHERS + 1, space_hard=1 << 30),
    "release": lambda v: v.release(v.nameless[0]),
    "give back": lambda v: v.give_back(v.nameless[0]),
    "fsync": lambda v: v.fsync(at(v, "/cut")),
    "fsync of a directory": lambda v: v.fsync(at(v, "/d")),
    "sync": lambda v: v.sync(),
}  # fmt: skip


def filled(volume: WritableVolume) -> None:
    """Something of everything, all of it PEOPLE's."""

    def make(directory: int, name: bytes, content: bytes = b"") -> int:
        ino = volume.create(directory, name, FILE, PEOPLE, PEOPLE)
        assert volume.write(ino, 0, content) == len(content)
        return ino

    def directory(parent: int, name: bytes) -> int:
        return volume.mkdir(parent, name, 0o755, PEOPLE, PEOPLE)

    d, e, tight, blocks = (directory(ROOT, name) for name in (b"d", b"e", b"tight", b"blocks"))
    volume.setxattr(make(d, b"f", text("small", 3000)), "user.old", b"old")
    make(directory(d, b"sub"), b"below")
    directory(d, b"empty")
    make(e, b"other", text("other", 100))
    make(tight, b"first")
    for n in range(14):
        make(tight, b"%02d " % n + b"a long name " * 18)
    many = make(blocks, b"file")
    for n in range(17):
        volume.link(many, blocks, b"%02d " % n + b"a long name " * 20)
    large = make(ROOT, b"large", noise("large", 40 * BLOCK))
    for block in (IN_INODE + 100, IN_INODE + IN_NODE + 3, IN_INODE + 2 * IN_NODE + 7):
        volume.write(large, block * BLOCK, noise(block, 4 * BLOCK))
    volume.fallocate(large, KEEP, 4 * IN_NODE * BLOCK, 2 * BLOCK)
    volume.fallocate(make(ROOT, b"reserved"), 0, 0, 9 * BLOCK)
    volume.link(make(ROOT, b"one", b"1"), ROOT, b"two")
    make(ROOT, b"cut", noise("cut", 2 * BLOCK + 500))
    make(ROOT, b"open", noise("open", 3 * BLOCK))
    make(ROOT, b"empty")
    attributes = make(ROOT, b"attributes")
    for n, length in enumerate((100, 20, 3000)):
        volume.setxattr(attributes, f"user.a{n}", noise(n, length))
    acls = directory(ROOT, b"acl")
    volume.setxattr(acls, ACL_DEFAULT, LARGE_ACL)
    volume.setxattr(acls, ACL_ACCESS, SMALL_ACL)
    packed = make(ROOT, b"packed")
    volume.set_flags(packed, F2FS_COMPR_FL)
    volume.write(packed, 0, text("packed", 18 * BLOCK + 700))
    folded = directory(ROOT, b"folded")
    volume.set_flags(folded, F2FS_CASEFOLD_FL)
    make(folded, b"name")
    project = directory(ROOT, b"project")
    volume.set_projid(project, PROJECT)
    volume.set_flags(project, F2FS_PROJINHERIT_FL)
    pinned = volume.live(make(ROOT, b"pinned", noise("pinned", 9 * BLOCK)))
    volume.sync()
    pinned.set(i_inline=pinned.i_inline | F2FS_PIN_FILE)
    volume.nodes.touch(pinned)
    volume.set_flags(make(ROOT, b"append", text("append", 3000)), F2FS_APPEND_FL)
    for kind, number in (("user", PEOPLE), ("group", PEOPLE), ("user", OTHERS), ("project", PROJECT)):
        volume.set_quota(kind, number, space_hard=1 << 40, inodes_hard=1 << 20)


@cache
def image() -> Path:
    """An image of it."""
    path = copy_sparse(formatted(OPTIONS), formatted(OPTIONS).with_suffix(".filled"))
    with WritableVolume(open_device(path, write=True), Policy(), Ticks(), seed=1) as volume:
        filled(volume)
    return path


@cache
def base() -> Device:
    return open_device(image())


@cache
def full(left: int) -> Device:
    """The same, with so many blocks to spare."""
    path = copy_sparse(image(), image().with_suffix(f".full{left}"))
    with WritableVolume(open_device(path, write=True), Policy(), Ticks(), seed=1) as volume:
        filler = volume.create(ROOT, b"filler", FILE)
        while spare := volume.space.free_blocks - left:
            volume.fallocate(filler, 0, volume.live(filler).i_size, max(1, spare - spare // IN_NODE - 4) * BLOCK)
    return open_device(path)


def opened(below: Device | None = None, policy: Policy | None = None) -> WritableVolume:
    """A writer in memory that has not been asked anything yet."""
    return WritableVolume(Above(below or base()), policy or Policy(), Ticks(), seed=1)


def begun(below: Device | None = None, policy: Policy | None = None) -> WritableVolume:
    """A writer in memory, with changes that are not safe yet and a file that is held without a name."""
    volume = opened(below, policy)
    volume.write(at(volume, "/cut"), 100, b"changed")
    held = volume.create(ROOT, b"held", FILE, PEOPLE, PEOPLE)
    volume.hold(held)
    volume.write(held, 0, noise("held", 3 * BLOCK))
    volume.unlink(ROOT, b"held")
    volume.hold(at(volume, "/open"))
    return volume


@dataclass(frozen=True)
class Seen:
    """All that a user can see of a file, but for its inode number and what is read."""

    node: Node
    times: tuple[int, int, int]
    blocks: int


def seen(volume: Volume) -> dict[bytes, Seen]:
    """By path."""
    problems: list[tuple[bytes, str]] = []
    root = volume.root.inode
    known = {root.ino: _seen(volume, root)}
    found = {b"/": known[root.ino]}
    for path, _, entries in volume.walk(problems=problems):
        for entry in entries:
            assert isinstance(entry.inode, Inode), f"{entry.name!r}: {entry.inode}"
            ino = entry.inode.ino
            if ino not in known:
                known[ino] = _seen(volume, entry.inode)
            found[path.rstrip(b"/") + b"/" + entry.name] = known[ino]
    assert not problems, problems
    return found


def _seen(volume: Volume, inode: Inode) -> Seen:
    node = replace(node_of(volume, inode), atime_ns=None, mtime_ns=None)
    return Seen(node, (inode.atime_ns, inode.mtime_ns, inode.ctime_ns), inode.i_blocks)


def timeless(found: dict[bytes, Seen]) -> dict[bytes, Node]:
    return {path: one.node for path, one in found.items()}


@dataclass(frozen=True)
class Counts:
    """What is in use, and by whom."""

    blocks: int
    nodes: int
    inodes: int
    owners: tuple[tuple[int, int], ...]


def counts(volume: WritableVolume) -> Counts:
    owners = [(kind, number) for kind in ("user", "group") for number in (0, PEOPLE, OTHERS)]
    quotas = (volume.quota(kind, number) for kind, number in (*owners, ("project", 0), ("project", PROJECT)))
    space = volume.space
    return Counts(
        space.valid_blocks, space.valid_nodes, space.valid_inodes,
        tuple((0, 0) if quota is None else (quota.inodes, quota.space) for quota in quotas),
    )  # fmt: skip
