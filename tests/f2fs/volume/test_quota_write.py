"""Quota files that are changed: against a dictionary, against the kernel's files, against what fsck.f2fs rebuilds."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import f2tools
from f2tools.device import open_device
from f2tools.errors import Corrupt
from f2tools.f2fs.layout.constants import CP_QUOTA_NEED_FSCK_FLAG, QUOTA_NAMES
from f2tools.f2fs.layout.quota import QUOTA_ENTRIES_PER_LEAF
from f2tools.f2fs.volume.quota import Quota, QuotaFile, quota_inos, read_quota, read_quotas
from f2tools.f2fs.write.quota import Quotas
from f2tools.f2fs.write.quota_tree import GRACE_SECONDS, Limits, QuotaTree, fresh
from f2tools.f2fs.write.volume import WritableVolume
from tests import images, judges

NOW = 1_700_000_000
BLOCK = 1024
WITH_QUOTA = ("features", "phone", "fscrypt-android", "blocks16k-casefold")
EVERY_BYTE = [0, 1, 255, 256, 1000, 65535, 65536, 1 << 24, 0x01020304, 0xFFFFFFFF]


class Held:
    """The bytes of a quota file, read by f2tools.f2fs.volume.quota as if they lay on a volume."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, _: Any, offset: int, length: int) -> bytes:
        return self.content[offset : offset + length]

    def file(self, kind: str = "user") -> QuotaFile:
        return read_quota(cast(Any, self), cast(Any, SimpleNamespace(ino=4, i_size=len(self.content))), kind)

    def entries(self) -> dict[int, Quota]:
        return {entry.id: entry for entry in self.file().entries}


def stored(content: bytes, tree: QuotaTree) -> bytes:
    """The file after the changes were written to it."""
    image = bytearray(content.ljust(tree.size, b"\0"))
    for offset, data in tree.changes():
        assert (len(data), offset % BLOCK) == (BLOCK, 0)
        image[offset : offset + BLOCK] = data
    return bytes(image)


def tree_of(content: bytes, now: int = NOW) -> QuotaTree:
    return QuotaTree(content, now=lambda: now)


def check_structure(content: bytes) -> None:
    """Every block is a node, a leaf, or free, exactly once; leaves with room are listed both ways; counts are right."""
    _, _, _, _, _, count, free_block, free_entry = struct.unpack_from("<8I", content)
    assert len(content) >= count * BLOCK
    nodes, leaves = {1}, dict[int, int]()
    level = [1]
    for depth in range(4):
        below: list[int] = []
        for block in level:
            refs = np.frombuffer(content, "<u4", BLOCK // 4, block * BLOCK)
            found = refs[refs != 0].tolist()
            assert found or block == 1, f"node {block} is empty"
            below += found
        if depth < 3:
            assert len(set(below)) == len(below)
            nodes |= set(below)
            level = below
        else:
            for leaf in below:
                leaves[leaf] = leaves.get(leaf, 0) + 1
    heads = {leaf: struct.unpack_from("<IIH", content, leaf * BLOCK) for leaf in leaves}
    for leaf, used in leaves.items():
        rows = [content[leaf * BLOCK + 16 + 72 * slot :][:72] for slot in range(QUOTA_ENTRIES_PER_LEAF)]
        assert heads[leaf][2] == used == sum(any(row) for row in rows), leaf
    free: list[int] = []
    while free_block:
        assert free_block not in free
        free.append(free_block)
        free_block = struct.unpack_from("<I", content, free_block * BLOCK)[0]
    assert sorted([*nodes, *leaves, *free]) == list(range(1, count))
    listed: list[int] = []
    while free_entry:
        assert free_entry not in listed
        assert heads[free_entry][1] == (listed[-1] if listed else 0)
        listed.append(free_entry)
        free_entry = heads[free_entry][0]
    assert set(listed) == {leaf for leaf, used in leaves.items() if used < QUOTA_ENTRIES_PER_LEAF}
    assert all(heads[leaf][:2] == (0, 0) for leaf in leaves if leaf not in listed)


# -- against a dictionary ---------------------------------------------------------------------------------------------

ids = st.one_of(st.sampled_from(EVERY_BYTE), st.integers(0, 40), st.integers(0, 2**32 - 1))
changes = st.tuples(st.integers(-3, 5), st.integers(-(1 << 14), 1 << 16))
limit = st.one_of(st.none(), st.integers(0, 8), st.integers(0, 1 << 17))


class TreeMachine(RuleBasedStateMachine):
    """Charges, limits, files written and opened again; the dictionary knows the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.content = fresh("user", {0: (2, 4096)})
        self.tree = tree_of(self.content)
        self.model: dict[int, Quota] = {0: Quota(0, 2, 0, 0, 4096, 0, 0, 0, 0)}

    def model_of(self, number: int) -> dict[str, int]:
        return dict(vars(self.model.get(number, Quota(number, *[0] * 8))))

    def keep(self, new: Quota) -> None:
        self.model[new.id] = new
        if not any((new.inodes, new.space, new.inodes_soft, new.inodes_hard, new.space_soft, new.space_hard)):
            del self.model[new.id]

    @rule(deltas=st.dictionaries(ids, changes, max_size=20))
    def charge(self, deltas: dict[int, tuple[int, int]]) -> None:
        self.tree.charge(deltas)
        for number, (inodes, space) in deltas.items():
            have = self.model_of(number)
            for name, more in (("inodes", inodes), ("space", space)):
                soft, used = have[name + "_soft"], have[name] + more
                have[name] = max(used, 0)
                if more > 0 and soft and used > soft:
                    have[name + "_grace_end"] = have[name + "_grace_end"] or NOW + GRACE_SECONDS
                elif more < 0 and max(used, 0) <= soft:
                    have[name + "_grace_end"] = 0
            self.keep(Quota(**have))

    @rule(first=st.integers(0, 2**32 - 300), count=st.integers(1, 300), step=st.sampled_from([1, 256, 65536]))
    def charge_many(self, first: int, count: int, step: int) -> None:
        numbers = [number for number in range(first, first + count * step, step) if number < 2**32]
        self.charge(dict.fromkeys(numbers, (1, 4096)))

    @rule(part=st.integers(1, 4))
    def give_back(self, part: int) -> None:
        self.charge(dict.fromkeys(sorted(self.model)[::part], (-(1 << 40), -(1 << 50))))

    @rule(number=ids, isoft=limit, ihard=limit, bsoft=limit, bhard=limit)
    def limits(self, number: int, isoft: int | None, ihard: int | None, bsoft: int | None, bhard: int | None) -> None:
        self.tree.set_limits(number, inodes_soft=isoft, inodes_hard=ihard, space_soft=bsoft, space_hard=bhard)
        have = self.model_of(number)
        given = {"inodes_soft": isoft, "inodes_hard": ihard, "space_soft": bsoft, "space_hard": bhard}
        for name, value in given.items():
            if value is not None:
                have[name] = (value + 1023) // 1024 * 1024 if name.startswith("space") else value
        for name in ("inodes", "space"):
            if given[name + "_soft"] is not None or given[name + "_hard"] is not None:
                over = have[name + "_soft"] and have[name] > have[name + "_soft"]
                have[name + "_grace_end"] = NOW + GRACE_SECONDS if over else 0
        self.keep(Quota(**have))

    @rule(again=st.booleans())
    def write(self, again: bool) -> None:
        self.content = stored(self.content, self.tree)
        check_structure(self.content)
        assert Held(self.content).entries() == self.model
        self.tree.written()
        assert self.tree.changes() == []
        if again:
            self.tree = tree_of(self.content)

    @rule(number=ids)
    def ask(self, number: int) -> None:
        assert self.tree.get(number) == self.model.get(number)

    @invariant()
    def size_fits(self) -> None:
        assert self.tree.size % BLOCK == 0

    def teardown(self) -> None:
        self.write(True)
        assert {number: self.tree.get(number) for number in self.model} == self.model


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=60, stateful_step_count=20)


@given(usages=st.dictionaries(ids, st.tuples(st.integers(0, 9), st.integers(0, 1 << 40)), max_size=120))
@settings(max_examples=200)
def test_a_fresh_file_is_what_adding_the_ids_one_by_one_gives(usages: dict[int, tuple[int, int]]) -> None:
    made = fresh("user", usages)
    check_structure(made)
    assert {number: (e.inodes, e.space) for number, e in Held(made).entries().items()} == {
        number: use for number, use in usages.items() if any(use)
    }
    empty = fresh("user", {})
    tree = tree_of(empty)
    for number in sorted(usages):
        tree.charge({number: usages[number]})
    assert stored(empty, tree) == made


def test_a_fresh_file_has_room_for_a_hundred_thousand_ids() -> None:
    usages = {number * 40_009 % (1 << 32): (number + 1, number * 4096) for number in range(100_000)}
    made = fresh("group", usages)
    assert made == fresh("group", dict(reversed(usages.items())))
    found = {entry.id: (entry.inodes, entry.space) for entry in Held(made).file("group").entries}
    assert found == usages


def test_limits_and_running_graces_stand_in_a_fresh_file() -> None:
    limits = {7: Limits(space_soft=5000, space_hard=1 << 20), 8: Limits(inodes_soft=2, inodes_hard=9), 9: Limits()}
    made = fresh("user", {7: (1, 8192), 8: (2, 0), 9: (1, 0)}, limits, now=lambda: NOW)
    assert Held(made).entries() == {
        7: Quota(7, 1, 0, 0, 8192, 5120, 1 << 20, 0, NOW + GRACE_SECONDS),
        8: Quota(8, 2, 2, 9, 0, 0, 0, 0, 0),
        9: Quota(9, 1, 0, 0, 0, 0, 0, 0, 0),
    }


# -- limits -----------------------------------------------------------------------------------------------------------


def test_a_hard_limit_is_the_last_that_may_be_taken() -> None:
    tree = tree_of(fresh("user", {5: (3, 8192)}, {5: Limits(inodes_hard=4, space_hard=16384)}))
    assert tree.would_exceed(5, 1, 8192) is None
    assert tree.would_exceed(5, 2, 0) == errno.EDQUOT
    assert tree.would_exceed(5, 0, 8193) == errno.EDQUOT
    assert tree.would_exceed(5, 2, 8193, privileged=True) is None
    assert tree.would_exceed(5, -1, -1) is None
    assert tree.would_exceed(6, 1 << 40, 1 << 60) is None


def test_a_soft_limit_may_be_exceeded_until_its_grace_ends() -> None:
    now = NOW
    content = fresh("user", {5: (1, 4096)}, {5: Limits(space_soft=8192)})
    tree = QuotaTree(content, now=lambda: now)
    tree.charge({5: (0, 4096)})
    assert tree.get(5) == Quota(5, 1, 0, 0, 8192, 8192, 0, 0, 0)  # at the limit is not above it
    tree.charge({5: (0, 4096)})
    assert tree.get(5) == Quota(5, 1, 0, 0, 12288, 8192, 0, 0, NOW + GRACE_SECONDS)
    now += 100
    tree.charge({5: (0, 4096)})
    assert tree.get(5) == Quota(5, 1, 0, 0, 16384, 8192, 0, 0, NOW + GRACE_SECONDS)  # it does not start again
    assert tree.would_exceed(5, 0, 4096) is None
    now = NOW + GRACE_SECONDS
    assert tree.would_exceed(5, 0, 4096) == errno.EDQUOT
    assert tree.would_exceed(5, 1, 0) is None
    tree.charge({5: (0, -8192)})
    assert tree.get(5) == Quota(5, 1, 0, 0, 8192, 8192, 0, 0, 0)
    assert tree.would_exceed(5, 0, 4096) is None


def test_grace_periods_of_the_file_can_be_set() -> None:
    content = fresh("user", {5: (1, 4096)})
    tree = tree_of(content)
    tree.set_grace(space_grace=60, inodes_grace=120)
    tree.set_limits(5, space_soft=1024, inodes_soft=9)
    tree.charge({5: (9, 0)})
    content = stored(content, tree)
    file = Held(content).file()
    assert (file.space_grace, file.inodes_grace) == (60, 120)
    assert file.entries == [Quota(5, 10, 9, 0, 4096, 1024, 0, NOW + 120, NOW + 60)]


def test_a_limit_that_no_number_of_the_kernel_holds_is_out_of_range() -> None:
    tree = tree_of(fresh("user", {}))
    with pytest.raises(OSError) as caught:
        tree.set_limits(5, space_hard=1 << 63)
    assert caught.value.errno == errno.ERANGE


def test_an_id_that_uses_nothing_keeps_its_entry_while_it_has_a_limit() -> None:
    content = fresh("user", {0: (1, 0)})
    tree = tree_of(content)
    tree.set_limits(0, space_hard=4096)
    tree.charge({0: (-1, 0)})
    assert tree.get(0) == Quota(0, 0, 0, 0, 0, 0, 4096, 0, 0)
    tree.set_limits(0, space_hard=0)
    assert tree.get(0) is None
    assert Held(stored(content, tree)).entries() == {}


# -- the kernel's files -----------------------------------------------------------------------------------------------


def quota_contents(path: Path) -> dict[str, bytes]:
    with f2tools.open(path) as volume:
        inodes = {kind: volume.nodes.inode(ino) for kind, ino in quota_inos(volume.sb).items()}
        return {kind: volume.data.read(inode, 0, inode.i_size) for kind, inode in inodes.items()}


@pytest.mark.parametrize("name", WITH_QUOTA)
def test_a_file_of_the_kernel_stays_as_it_is(name: str) -> None:
    for kind, content in quota_contents(images.reference(name).path).items():
        check_structure(content)
        tree = tree_of(content)
        assert tree.kind == kind
        numbers = [entry.id for entry in Held(content).file(kind).entries]
        for number in numbers:
            assert tree.get(number)
        assert tree.changes() == []
        tree.charge(dict.fromkeys(numbers, (5, 1 << 20)))
        assert tree.changes()
        tree.charge(dict.fromkeys(numbers, (-5, -(1 << 20))))
        assert tree.changes() == []


@pytest.mark.parametrize("kind", QUOTA_NAMES)
def test_the_same_ids_in_the_same_order_give_the_kernels_file(kind: str, tmp_path: Path) -> None:
    """From the file that mkfs.f2fs makes to that of the kernel: the leaf tells in which order ids came."""
    content = quota_contents(images.reference("features").path)[kind]
    leaf = 5
    rows = [content[leaf * BLOCK + 16 + 72 * slot :][:72] for slot in range(QUOTA_ENTRIES_PER_LEAF)]
    order = [struct.unpack_from("<I", row)[0] for row in rows if any(row)]
    wanted = Held(content).file(kind).entries
    begin = fresh(kind, {0: (1, 4096)})
    tree = tree_of(begin)
    for number in order:
        entry = next(entry for entry in wanted if entry.id == number)
        have = tree.get(number) or Quota(number, *[0] * 8)
        tree.charge({number: (entry.inodes - have.inodes, entry.space - have.space)})
        if any((entry.space_soft, entry.space_hard, entry.inodes_soft, entry.inodes_hard)):
            tree.set_limits(
                number,
                inodes_soft=entry.inodes_soft, inodes_hard=entry.inodes_hard,
                space_soft=entry.space_soft, space_hard=entry.space_hard,
            )  # fmt: skip
    assert stored(begin, tree) == content


def test_what_fsck_rebuilds_is_a_fresh_file(tmp_path: Path) -> None:
    case = images.reference("features").copy(tmp_path)
    before = quota_contents(case.path)
    with f2tools.open(case.path) as volume:
        at = [
            int(volume.data.addresses(volume.nodes.inode(ino), 0, 1)[0]) * volume.geo.block_size
            for ino in quota_inos(volume.sb).values()
        ]
    with case.path.open("r+b") as file:
        for offset in at:
            file.seek(offset + BLOCK)
            file.write(bytes(BLOCK))  # the root of the tree
    run = judges.run_tool("fsck.f2fs", "-f", "-y", case.path)
    assert "Fixing Quota file" in run.output, str(run)
    for kind, content in quota_contents(case.path).items():
        usages = {entry.id: (entry.inodes, entry.space) for entry in Held(before[kind]).file(kind).entries}
        assert content == fresh(kind, usages).ljust(len(content), b"\0"), kind


# -- the files of a volume --------------------------------------------------------------------------------------------


def owner(uid: int, gid: int = 0, projid: int = 0, ino: int = 9, i_blocks: int = 1) -> Any:
    return SimpleNamespace(ino=ino, i_uid=uid, i_gid=gid, i_blocks=i_blocks, extra={"i_projid": projid})


def quotas_of(limits: dict[int, Limits] | None = None) -> Quotas:
    trees = {kind: tree_of(fresh(kind, {0: (1, 4096)}, limits)) for kind in QUOTA_NAMES}
    return Quotas(trees, 4096, [4, 5, 6])


def use_of(quotas: Quotas, *numbers: int) -> list[tuple[int, int]]:
    found = [quotas.get(kind, number) for kind, number in zip(QUOTA_NAMES, numbers, strict=True)]
    return [(entry.inodes, entry.space) if entry else (0, 0) for entry in found]


def test_user_group_and_project_pay_for_a_file() -> None:
    quotas = quotas_of()
    file = owner(1, 2, 3)
    quotas.charge(file, 1, 0)
    quotas.charge(file, 0, 5)
    quotas.charge(owner(1, 2, 3, ino=4), 1, 100)  # a quota file
    assert use_of(quotas, 1, 2, 3) == [(1, 20480)] * 3
    file.i_blocks = 6
    quotas.transfer(file, uid=7)
    quotas.transfer(file, gid=2, projid=8)
    assert use_of(quotas, 7, 2, 8) == [(1, 20480)] * 3
    assert use_of(quotas, 1, 0, 3) == [(0, 0), (1, 4096), (0, 0)]
    quotas.add_usage({(7, 2, 8): (2, 1)})
    assert use_of(quotas, 7, 2, 8) == [(3, 24576)] * 3
    assert sorted(quotas.changes()) == sorted(QUOTA_NAMES)
    quotas.written()
    assert quotas.changes() == {}


def test_whoever_is_at_a_limit_changes_nothing() -> None:
    quotas = quotas_of({2: Limits(space_hard=8192, inodes_hard=1)})
    file = owner(1, 2, 3)
    quotas.charge(file, 1, 2)
    with pytest.raises(OSError) as caught:
        quotas.charge(file, 0, 1)
    assert caught.value.errno == errno.EDQUOT
    with pytest.raises(OSError):
        quotas.transfer(owner(5, 5, 5), uid=1, gid=2)
    assert use_of(quotas, 1, 2, 3) == [(1, 8192)] * 3
    quotas.set_limits("group", 2, space_hard=0)
    quotas.charge(file, 0, 1)
    quotas.set_limits("user", 1, space_hard=4096)
    with pytest.raises(OSError):
        quotas.charge(file, 0, 1)
    quotas.charge(file, 0, 1, privileged=True)
    assert use_of(quotas, 1, 2, 3) == [(1, 16384)] * 3


@pytest.mark.peer
@pytest.mark.parametrize("cut_off", [False, True])
@pytest.mark.parametrize("kernel_made", [False, True])
def test_fsck_agrees_with_what_a_volume_at_work_charges(kernel_made: bool, cut_off: bool, tmp_path: Path) -> None:
    path = tmp_path / "image"
    if kernel_made:
        path = images.reference("features").copy(tmp_path).path
    else:
        judges.mkfs(path, "-O", "extra_attr,quota,project_quota", size=96 << 20)
    volume = WritableVolume(open_device(path, write=True))
    chance = random.Random(5)
    directory = volume.mkdir(3, b"many", 0o755)
    files = [(b"%d" % number, chance.choice([0, 5, 1000, 70_000, 1 << 31]) + number % 40) for number in range(200)]
    for number, (name, uid) in enumerate(files):
        ino = volume.create(directory, name, 0o644, uid=uid, gid=number % 3)
        volume.write(ino, chance.choice([0, 0, 5 << 20]), bytes([number]) * chance.choice([10, 5000, 60_000]))
        if number % 7 == 0:
            volume.set_projid(ino, number)
        if number % 5 == 0:
            volume.setattr(ino, uid=number, gid=2)
        if number % 11 == 0:
            volume.setxattr(ino, "user.large", bytes(2000))
        if number % 50 == 0:
            volume.sync()
        if number % 3 == 0:
            volume.truncate(ino, 100)
            volume.fsync(ino)
    for name, _ in files[::2]:
        volume.unlink(directory, name)
    if cut_off:  # what was fsync'ed since the last checkpoint is charged by recovery
        volume.abandon()
        volume = WritableVolume(open_device(path, write=True))
        assert volume.recovered
        assert len(volume.recovered.files) > 10
    volume.close()
    judges.fsck_clean(path)


def quota_volume(path: Path) -> WritableVolume:
    judges.mkfs(path, "-O", "extra_attr,quota,project_quota", size=64 << 20)
    return WritableVolume(open_device(path, write=True), clock=lambda: NOW * 10**9)


def test_a_volume_refuses_what_is_beyond_a_limit(tmp_path: Path) -> None:
    volume = quota_volume(tmp_path / "image")
    volume.set_quota("user", 7, space_hard=40_960, inodes_hard=2)
    ino = volume.create(3, b"one", 0o644, uid=7)
    assert volume.write(ino, 0, bytes(40_960)) == 40_960
    with pytest.raises(OSError) as caught:
        volume.write(ino, 40_960, b"more")
    assert caught.value.errno == errno.EDQUOT
    other = volume.create(3, b"two", 0o644, uid=7)
    with pytest.raises(OSError):
        volume.create(3, b"three", 0o644, uid=7)
    with pytest.raises(FileNotFoundError):
        volume.lookup(3, b"three")
    with pytest.raises(OSError):
        volume.setattr(volume.create(3, b"four", 0o644), uid=7)
    volume.setattr(other, uid=8)
    assert volume.quota("user", 7) == Quota(7, 1, 0, 2, 40_960, 0, 40_960, 0, 0)
    with pytest.raises(ProcessLookupError):
        volume.set_quota("colour", 7, space_hard=1)
    volume.close()
    judges.fsck_clean(tmp_path / "image")
    with f2tools.open(tmp_path / "image") as reading:
        users = read_quotas(reading.sb, reading.nodes, reading.data)[0]
    assert next(entry for entry in users.entries if entry.id == 7).space_hard == 40_960


def test_recovery_is_above_limits(tmp_path: Path) -> None:
    volume = quota_volume(tmp_path / "image")
    ino = volume.create(3, b"file", 0o644, uid=7)
    volume.set_quota("user", 7, space_hard=4096)
    volume.sync()
    volume.set_quota("user", 7, space_hard=0)
    volume.write(ino, 0, bytes(40_960))
    volume.fsync(ino)
    volume.abandon()
    volume = WritableVolume(open_device(tmp_path / "image", write=True))
    assert volume.read_at(ino, 0, 50_000) == bytes(40_960)
    assert volume.quota("user", 7) == Quota(7, 1, 0, 0, 40_960, 0, 4096, 0, 0)
    volume.close()


def test_a_damaged_quota_file_does_not_keep_a_volume_from_being_written(tmp_path: Path) -> None:
    """The checkpoint says that quotas are to be checked, as the kernel's does."""
    path = tmp_path / "image"
    quota_volume(path).close()
    with f2tools.open(path) as reading:
        inode = reading.nodes.inode(quota_inos(reading.sb)["user"])
        place = int(reading.data.addresses(inode, 0, 1)[0]) * reading.geo.block_size
    with path.open("r+b") as file:
        file.seek(place + BLOCK)
        file.write(struct.pack("<I", 9999))  # in the root of the tree
    volume = WritableVolume(open_device(path, write=True))
    volume.create(3, b"file", 0o644)
    volume.close()
    with f2tools.open(path) as reading:
        assert reading.cp.ckpt_flags & CP_QUOTA_NEED_FSCK_FLAG


# -- what can't be ----------------------------------------------------------------------------------------------------


def spoiled(offset: int, value: int, numbers: Iterable[int] = range(20)) -> bytes:
    content = bytearray(fresh("user", dict.fromkeys(numbers, (1, 0))))
    struct.pack_into("<I", content, offset, value)
    return bytes(content)


@pytest.mark.parametrize(
    ("offset", "value", "says"),
    [
        (0, 0xDEADBEEF, "not a quota file"),
        (4, 2, "not a quota file"),
        (20, 1 << 30, "1073741824 quota blocks"),
        (20, 1, "1 quota blocks"),
        (24, 99, "quota block 99 does not exist"),
        (24, 4, "listed as free, but in use"),
        (28, 99, "quota block 99 does not exist"),
        (28, 5, "is full, but listed"),
        (BLOCK, 99, "quota block 99 does not exist"),
        (4 * BLOCK + 4, 3, "has no such entry"),
        (5 * BLOCK + 16 + 72, 77, "has no such entry"),
    ],
)
def test_a_tree_that_can_not_be_is_corrupt(offset: int, value: int, says: str) -> None:
    with pytest.raises(Corrupt, match=says):
        tree_of(spoiled(offset, value)).charge(dict.fromkeys([*range(20), *range(100, 2000)], (1, 0)))


@given(offset=st.integers(0, 6 * BLOCK // 4), value=st.integers(0, 12) | st.integers(0, 2**32 - 1))
@settings(max_examples=300)
def test_any_word_may_be_wrong_without_another_error(offset: int, value: int) -> None:
    try:
        tree = tree_of(spoiled(offset * 4, value))
        tree.charge(dict.fromkeys(range(0, 600, 3), (1, 0)))
        tree.charge(dict.fromkeys(range(600), (-9, 0)))
    except Corrupt:
        return
    assert tree.size <= 1 << 20
