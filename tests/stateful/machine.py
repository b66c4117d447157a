"""Random operations on the engine and on a plain-dict model, with checkpoints, remounts and power cuts between them.

The device is a recorder over an overlay over an image file.  The image file holds what was durable when the volume was
last opened; a power cut does some of what was recorded since to that file, and opens it anew.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from f2tools.device import open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.record import Recorder
from f2tools.f2fs.layout.constants import (
    F2FS_CASEFOLD_FL,
    F2FS_COMPR_FL,
    F2FS_NOATIME_FL,
    F2FS_NODUMP_FL,
    F2FS_PROJINHERIT_FL,
    F2FS_ROOT_INO,
    F2FS_SYNC_FL,
)
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import Policy, WritableVolume
from tests.f2fs.write import model as m
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.model import BLOCK, Model, Node
from tests.f2fs.write.promises import Step, assert_promises_kept, named_only
from tests.f2fs.write.volumes import FULL, Ticks, Twin, assert_same, fresh, judge, writable
from tests.f2fs.write.workload import Workload
from tests.images import copy_sparse, lasting_directory

FLAVOURS = {
    "plain": "--size 64M",
    "full": f"--size 64M -O {FULL}",
    "casefold": "--size 64M -C utf8 -O extra_attr,inode_checksum",
    "compressed": "--size 64M -O extra_attr,compression,inode_checksum,project_quota,quota",
    "sections": "--size 128M -s 2 -O lost_found",
    "crowded": "--size 64M",  # filled but for the last blocks: it threads, cleans, and says that it is full
}

NAMES = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"file",
    b"FILE",
    b"File.db",
    b"video.mp4",
    b"x" * 255,
    b"y" * 200,
    b"\xff\xfe",
    b"a b",
]
NAMES += ["Größe".encode(), "GRÖSSE".encode(), "größe".encode(), b"eight888", b"nine99999"]
names = st.sampled_from(NAMES)
picks = st.integers(0, 1 << 30)
modes = st.sampled_from([0o644, 0o600, 0o755, 0o000, 0o777])
owners = st.sampled_from([(0, 0), (1000, 1000), (1000, 100), (70000, 0)])
FAR = [100 << 20, 5 << 30, 3 << 40]
offsets = st.one_of(
    st.integers(0, 6000),
    st.integers(0, 64).map(lambda n: n * BLOCK),
    st.integers(0, 300_000),
    st.sampled_from([923 * BLOCK - 1, 923 * BLOCK, (923 + 1018) * BLOCK - 3, (923 + 2 * 1018) * BLOCK, *FAR]),
)
lengths = st.one_of(st.integers(1, 300), st.integers(1, 12000), st.sampled_from([BLOCK, 8 * BLOCK, 70 * BLOCK]))
blocks = st.integers(0, 40).map(lambda n: n * BLOCK)
values = st.one_of(st.binary(max_size=40), st.integers(0, 60).map(lambda n: b"v" * 7 * n))
XATTRS = ["one", "two", "three", "n" * 100]


def content(seed: int, length: int) -> bytes:
    """Bytes by a seed: noise, text, or zeros within."""
    kind = seed % 4
    if kind == 0:
        return random.Random(seed).randbytes(length)
    if kind == 1:
        return (b"%08d the quick brown fox " % seed * (length // 25 + 1))[:length]
    if kind == 2:
        return bytes(length // 2) + bytes([seed % 255 + 1]) * (length - length // 2)
    return bytes([seed % 255 + 1]) * length


@cache
def crowded_image() -> Path:
    """A volume with room for some 250 more blocks, to be copied."""
    path = fresh(lasting_directory("f2-crowded-"), FLAVOURS["crowded"])
    twin = Twin(writable(path))
    Workload(twin, 0).fill(95)
    twin.volume.close()
    return path


class Machine(RuleBasedStateMachine):
    """See the module's docstring."""

    flavours: tuple[str, ...] = tuple(FLAVOURS)
    judged_by_fsck = 4  # of so many remounts, one

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="f2-stateful-"))
        self.twin: Twin | None = None
        self.operations = 0
        self.remounts = 0
        self.clock = Ticks()

    def teardown(self) -> None:
        try:
            if self.twin is not None:
                self.remount(fsck=True)
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    # -- mounting -----------------------------------------------------------------------------------------------

    @initialize(data=st.data())
    def format(self, data: Any) -> None:
        self.flavour = data.draw(st.sampled_from(self.flavours), label="flavour")
        self.policy = Policy(
            active_logs=data.draw(st.sampled_from([6, 6, 4, 2]), label="active_logs"),
            adaptive=data.draw(st.booleans(), label="adaptive"),
        )
        if self.flavour == "crowded":
            self.image = copy_sparse(crowded_image(), self.directory / "image")
        else:
            self.image = fresh(self.directory, FLAVOURS[self.flavour])
        self.mount(None)

    def mount(self, model: Model | None) -> None:
        self.base = open_device(self.image)
        self.recorder = Recorder(Overlay(self.base))
        volume = WritableVolume(self.recorder, self.policy, self.clock, seed=1)
        self.twin = Twin(volume, model)
        self.model = named_only(self.model)
        self.steps = [Step("mount", self.model.copy(), len(self.recorder.events), self.version)]

    @property
    def vol(self) -> WritableVolume:
        assert self.twin is not None
        return self.twin.volume

    @property
    def model(self) -> Model:
        assert self.twin is not None
        return self.twin.model

    @model.setter
    def model(self, value: Model) -> None:
        assert self.twin is not None
        self.twin.model = value

    @property
    def version(self) -> int:
        return int(self.vol.cp.checkpoint_ver)

    def step(self, kind: str, fsynced: int | None = None, datasync: bool = False) -> None:
        """Note what the call before has left."""
        self.operations += 1
        self.steps.append(Step(kind, self.model.copy(), len(self.recorder.events), self.version, fsynced, datasync))

    def do(self, name: str, *args: Any, **keywords: Any) -> Any:
        """One call to both; None where both refuse."""
        assert self.twin is not None
        result = self.twin.attempt(name, *args, **keywords)
        self.step(name)
        return result

    def keep_events(self, count: int, without: set[int] | frozenset[int] = frozenset()) -> None:
        """Let the image file hold what was done up to an event, and the volume be gone."""
        self.base.close()
        with open_device(self.image, write=True) as onto:
            self.recorder.replay(count, onto, without=without)

    # -- choosing -----------------------------------------------------------------------------------------------

    def choose(self, pick: int, wanted: Callable[[Node], bool]) -> int | None:
        found = [ino for ino, node in self.model.nodes.items() if wanted(node)]
        return sorted(found)[pick % len(found)] if found else None

    def directory_of(self, pick: int) -> int:
        found = self.choose(pick, lambda node: node.is_dir and bool(node.links))
        return F2FS_ROOT_INO if found is None else found

    def some_file(self, pick: int) -> int | None:
        return self.choose(pick, lambda node: node.is_file)

    def some_name(self, pick: int) -> tuple[int, bytes] | None:
        found = sorted((ino, name) for ino, node in self.model.nodes.items() for name in node.children)
        return found[pick % len(found)] if found else None

    # -- names --------------------------------------------------------------------------------------------------

    @rule(where=picks, name=names, mode=modes, owner=owners)
    def create(self, where: int, name: bytes, mode: int, owner: tuple[int, int]) -> None:
        self.do("create", self.directory_of(where), name, stat.S_IFREG | mode, *owner)

    @rule(where=picks, name=names, mode=modes, owner=owners, offset=offsets, length=lengths, seed=picks)
    def create_and_write(
        self, where: int, name: bytes, mode: int, owner: tuple[int, int], offset: int, length: int, seed: int
    ) -> None:
        ino = self.do("create", self.directory_of(where), name, stat.S_IFREG | mode, *owner)
        if ino:
            self.do("write", ino, offset, content(seed, length))

    @rule(where=picks, name=names, mode=modes, owner=owners)
    def mkdir(self, where: int, name: bytes, mode: int, owner: tuple[int, int]) -> None:
        self.do("mkdir", self.directory_of(where), name, mode, *owner)

    @rule(where=picks, name=names, length=st.sampled_from([1, 20, 60, 255, 3000, 3500, 4095]))
    def symlink(self, where: int, name: bytes, length: int) -> None:
        self.do("symlink", self.directory_of(where), name, (b"to/where" * 600)[:length])

    @rule(
        where=picks,
        name=names,
        kind=st.sampled_from([stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK]),
        rdev=st.sampled_from([(1, 3), (8, 1), (259, 70000)]),
    )
    def mknod(self, where: int, name: bytes, kind: int, rdev: tuple[int, int]) -> None:
        device = kind in (stat.S_IFCHR, stat.S_IFBLK)
        self.do("create", self.directory_of(where), name, kind | 0o640, 0, 0, rdev if device else (0, 0))

    @rule(what=picks, where=picks, name=names)
    def link(self, what: int, where: int, name: bytes) -> None:
        ino = self.choose(what, lambda node: bool(node.links))
        if ino is not None:
            self.do("link", ino, self.directory_of(where), name)

    @rule(what=picks)
    def remove(self, what: int) -> None:
        found = self.some_name(what)
        if found is not None:
            directory, name = found
            is_dir = self.model.nodes[self.model.nodes[directory].children[name]].is_dir
            self.do("rmdir" if is_dir else "unlink", directory, name)

    @rule(where=picks, name=names, call=st.sampled_from(["unlink", "rmdir", "lookup"]))
    def name_something(self, where: int, name: bytes, call: str) -> None:
        self.do(call, self.directory_of(where), name)

    @rule(what=picks, where=picks, name=names, flags=st.sampled_from([0, 0, 0, 1, 2, 4]))
    def rename(self, what: int, where: int, name: bytes, flags: int) -> None:
        found = self.some_name(what)
        if found is not None:
            self.do("rename", *found, self.directory_of(where), name, flags)

    @rule(what=picks, onto=picks, flags=st.sampled_from([0, 2, 2]))
    def rename_onto(self, what: int, onto: int, flags: int) -> None:
        found, other = self.some_name(what), self.some_name(onto)
        if found is not None and other is not None:
            self.do("rename", *found, *other, flags)

    @rule(where=picks, count=st.integers(20, 250), length=st.sampled_from([1, 8, 40, 230]), keep=st.integers(0, 3))
    def crowd(self, where: int, count: int, length: int, keep: int) -> None:
        """Many names in one directory, some of which go again."""
        directory = self.directory_of(where)
        if len(self.model.nodes) > 1500:
            return
        made = [b"%0*d" % (length, n) for n in range(count)]
        for name in made:
            self.do("create", directory, name, stat.S_IFREG | 0o644)
        for index, name in enumerate(made):
            if keep == 0 or index % (keep + 1):
                self.do("unlink", directory, name)

    @rule(what=picks)
    def hold(self, what: int) -> None:
        ino = self.choose(what, lambda node: bool(node.links))
        if ino is not None and ino not in self.model.held and ino != F2FS_ROOT_INO:
            self.do("hold", ino)

    @precondition(lambda self: self.twin is not None and self.model.held)
    @rule(what=picks)
    def release(self, what: int) -> None:
        held = sorted(self.model.held)
        self.do("release", held[what % len(held)])

    # -- content ------------------------------------------------------------------------------------------------

    @rule(what=picks, offset=offsets, length=lengths, seed=picks)
    def write(self, what: int, offset: int, length: int, seed: int) -> None:
        ino = self.some_file(what)
        if ino is not None:
            self.do("write", ino, offset, content(seed, length))

    @rule(what=picks, length=lengths, seed=picks)
    def append(self, what: int, length: int, seed: int) -> None:
        ino = self.some_file(what)
        if ino is not None:
            self.do("write", ino, self.model.nodes[ino].size, content(seed, length))

    @rule(what=picks, offset=offsets, length=lengths)
    def read(self, what: int, offset: int, length: int) -> None:
        ino = self.some_file(what)
        if ino is not None:
            self.do("read_at", ino, offset, length)

    @rule(what=picks, size=offsets)
    def truncate(self, what: int, size: int) -> None:
        ino = self.some_file(what)
        if ino is not None:
            self.do("truncate", ino, size)

    @rule(what=picks, mode=st.sampled_from([0, 1, 3, 16, 17]), offset=offsets, length=lengths)
    def fallocate(self, what: int, mode: int, offset: int, length: int) -> None:
        ino = self.some_file(what)
        if ino is not None and (offset < 100 << 20 or mode == 3):
            self.allocate(ino, mode, offset, length)

    @rule(what=picks, mode=st.sampled_from([8, 32]), offset=blocks, length=blocks)
    def shift(self, what: int, mode: int, offset: int, length: int) -> None:
        ino = self.some_file(what)
        if ino is not None and self.model.nodes[ino].size < 1 << 30:
            self.allocate(ino, mode, offset, length)

    def allocate(self, ino: int, mode: int, offset: int, length: int) -> None:
        """fallocate; a compressed file may refuse what would tear its clusters."""
        if self.model.nodes[ino].flags & F2FS_COMPR_FL and mode & ~1:
            before = self.model.copy()
            try:
                self.vol.fallocate(ino, mode, offset, length)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
                self.step("fallocate")
                return
            self.model = before
            self.model.fallocate(ino, mode, offset, length)
            self.step("fallocate")
            return
        self.do("fallocate", ino, mode, offset, length)

    @rule(what=picks)
    def look_for_data_and_holes(self, what: int) -> None:
        """What lseek calls a hole has no data in it."""
        ino = self.some_file(what)
        if ino is None:
            return
        node = self.model.nodes[ino]
        at, met = 0, set()
        while at < node.size and len(met) < 100:
            try:
                start = self.vol.seek(ino, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break
                raise
            end = self.vol.seek(ino, start, os.SEEK_HOLE)
            assert at <= start < end <= node.size
            met.update(range(start // BLOCK, -(-end // BLOCK)) if end - start < 1 << 24 else [])
            at = end
        assert len(met) >= 100 or node.blocks.keys() <= met
        self.step("seek")

    # -- attributes ---------------------------------------------------------------------------------------------

    @rule(what=picks, mode=modes)
    def chmod(self, what: int, mode: int) -> None:
        ino = self.choose(what, lambda node: node.kind != stat.S_IFLNK)
        if ino is not None:
            self.do("setattr", ino, mode=mode)

    @rule(what=picks, owner=owners)
    def chown(self, what: int, owner: tuple[int, int]) -> None:
        ino = self.choose(what, lambda node: True)
        if ino is not None:
            self.do("setattr", ino, uid=owner[0], gid=owner[1])

    @rule(what=picks, seconds=st.integers(-(1 << 33), 1 << 35), nanoseconds=st.integers(0, 10**9 - 1))
    def utimens(self, what: int, seconds: int, nanoseconds: int) -> None:
        ino = self.choose(what, lambda node: True)
        if ino is not None:
            self.do("setattr", ino, atime_ns=seconds * 10**9 + nanoseconds, mtime_ns=seconds * 10**9)

    @rule(what=picks, flags=st.sampled_from([F2FS_NODUMP_FL, F2FS_NOATIME_FL, F2FS_SYNC_FL | F2FS_NODUMP_FL, 0]))
    def chattr(self, what: int, flags: int) -> None:
        ino = self.choose(what, lambda node: node.is_dir or node.is_file)
        if ino is not None:
            kept = self.model.nodes[ino].flags & (F2FS_CASEFOLD_FL | F2FS_COMPR_FL | F2FS_PROJINHERIT_FL)
            self.do("set_flags", ino, flags | kept)

    @precondition(lambda self: self.twin is not None and "casefold" in self.model.features)
    @rule(what=picks)
    def casefold(self, what: int) -> None:
        ino = self.choose(what, lambda node: node.is_dir and not node.children and bool(node.links))
        if ino is not None:
            self.do("set_flags", ino, self.model.nodes[ino].flags ^ F2FS_CASEFOLD_FL)

    @precondition(lambda self: self.twin is not None and "compression" in self.model.features)
    @rule(what=picks, name=names)
    def compress(self, what: int, name: bytes) -> None:
        """A directory hands it down; a file can begin with it as long as it has no blocks."""
        ino = self.directory_of(what)
        if name[0] > ord("b"):
            ino = self.do("create", ino, name, stat.S_IFREG | 0o644)
        if ino is not None:
            self.do("set_flags", ino, self.model.nodes[ino].flags | F2FS_COMPR_FL)

    @precondition(lambda self: self.twin is not None and "project_quota" in self.model.features)
    @rule(what=picks, projid=st.sampled_from([0, 7, 70000]), inherit=st.booleans())
    def project(self, what: int, projid: int, inherit: bool) -> None:
        ino = self.choose(what, lambda node: node.is_dir or node.is_file)
        if ino is not None:
            self.do("set_projid", ino, projid)
            if self.model.nodes[ino].is_dir:
                flags = self.model.nodes[ino].flags & ~F2FS_PROJINHERIT_FL
                self.do("set_flags", ino, flags | (F2FS_PROJINHERIT_FL if inherit else 0))

    def attribute(self, ino: int, name: str) -> str:
        node = self.model.nodes[ino]
        return f"{'user' if node.is_dir or node.is_file else 'trusted'}.{name}"

    @rule(what=picks, name=st.sampled_from(XATTRS), value=values, flags=st.sampled_from([0, 0, 0, 1, 2]))
    def setxattr(self, what: int, name: str, value: bytes, flags: int) -> None:
        ino = self.choose(what, lambda node: True)
        if ino is not None:
            self.do("setxattr", ino, self.attribute(ino, name), value, flags)

    @rule(what=picks, name=st.sampled_from(XATTRS))
    def removexattr(self, what: int, name: str) -> None:
        ino = self.choose(what, lambda node: bool(node.xattrs)) or self.choose(what, lambda node: True)
        if ino is not None:
            self.do("removexattr", ino, self.attribute(ino, name))

    @rule(what=picks, name=st.sampled_from(XATTRS))
    def getxattr(self, what: int, name: str) -> None:
        ino = self.choose(what, lambda node: True)
        if ino is not None:
            self.do("getxattr", ino, self.attribute(ino, name))
            self.do("listxattr", ino)

    @rule(what=picks, bits=st.integers(0, 0o777), named=st.booleans(), default=st.booleans())
    def set_acl(self, what: int, bits: int, named: bool, default: bool) -> None:
        ino = self.choose(what, lambda node: node.is_dir or node.is_file)
        if ino is None:
            return
        more = [(m.USER, 7, 1000), (m.GROUP_OBJ, bits >> 3 & 7, -1), (m.GROUP, 5, 100), (m.MASK, 6, -1)]
        entries = more if named else [(m.GROUP_OBJ, bits >> 3 & 7, -1)]
        value = m.acl((m.USER_OBJ, bits >> 6, -1), *entries, (m.OTHER, bits & 7, -1))
        default = default and self.model.nodes[ino].is_dir
        self.do("setxattr", ino, m.ACL_DEFAULT if default else m.ACL_ACCESS, value)

    # -- checkpoints, remounts, power cuts ----------------------------------------------------------------------

    @rule(what=picks, datasync=st.booleans())
    def fsync(self, what: int, datasync: bool) -> None:
        ino = self.choose(what, lambda node: node.is_file or node.is_dir)
        if ino is not None:
            self.vol.fsync(ino, datasync)
            self.step("fsync", ino, datasync)

    @rule(what=picks, offset=offsets, length=lengths, seed=picks, datasync=st.booleans())
    def write_and_fsync(self, what: int, offset: int, length: int, seed: int, datasync: bool) -> None:
        ino = self.some_file(what)
        if ino is not None:
            self.do("write", ino, offset, content(seed, length))
            self.vol.fsync(ino, datasync)
            self.step("fsync", ino, datasync)

    @rule()
    def sync(self) -> None:
        self.vol.sync()
        self.step("sync")
        with self.on_disk(len(self.recorder.events)) as volume:
            assert_consistent(volume, "after sync")

    @rule()
    def compare(self) -> None:
        """What is written is read back at once."""
        assert_same(self.vol, self.model, "before anything is synced")

    @rule()
    def remount(self, fsck: bool = False) -> None:
        """Close and open: the tree is the model's, and nothing complains."""
        for ino in sorted(self.model.held):
            self.do("release", ino)
        self.vol.close()
        self.keep_events(len(self.recorder.events))
        self.remounts += 1
        judge(self.image, self.model, fsck=fsck or self.remounts % self.judged_by_fsck == 0, context="after a remount")
        self.mount(self.model)

    @rule(data=st.data())
    def power_cut(self, data: Any) -> None:
        """Lose what came last, and of what no flush made durable anything; then everything promised must be there."""
        events = self.recorder.events
        count = len(events) - data.draw(st.integers(0, min(len(events), 60)), label="events lost")
        volatile = self.recorder.volatile(count)
        lost = data.draw(st.sampled_from(["none", "all", "some"]), label="of the volatile ones")
        chance = random.Random(data.draw(picks, label="chance"))
        without = {i for i in volatile if lost == "all" or (lost == "some" and chance.random() < 0.5)}
        self.survive(count, without)

    def on_disk(self, count: int, without: set[int] | frozenset[int] = frozenset()) -> Volume:
        """The volume that is on the disk after some events; to be read."""
        device = Overlay(open_device(self.image))
        self.recorder.replay(count, device, without=without)
        return Volume(device)

    def survive(self, count: int, without: set[int]) -> None:
        with self.on_disk(count, without) as volume:
            assert_consistent(volume, "after a power cut, before recovery")
            version = int(volume.cp.checkpoint_ver)
        self.keep_events(count, without)
        self.twin = None
        self.base = open_device(self.image)
        self.recorder = Recorder(Overlay(self.base))
        volume = WritableVolume(self.recorder, self.policy, self.clock, seed=1)
        where = f"after a power cut at event {count} of {len(self.steps)} steps"
        found = assert_promises_kept(volume, self.steps, version, count, where)
        for ino, node in list(found.nodes.items()):
            if node.is_dir:  # recovery may be cut too, and comes later then
                found.change(ino, mtime_ns=None)
        self.twin = Twin(volume, found)
        self.operations += 1
        self.steps = [Step("mount", found.copy(), len(self.recorder.events), self.version)]

    @invariant()
    def nothing_was_refused_for_room(self) -> None:
        if self.twin is not None and self.flavour != "crowded":
            assert not self.twin.full, "the volume is not full, and said that it is"
