"""An operation that is refused something, at any request, leaves the old tree or makes the new one, and says which.

What it asks for: blocks, nodes and inodes (what the volume has, and what the owner's quota leaves), node numbers, a
place among the files without a name, room before it begins, a free segment; and what it reads from the device.

Either it is a refusal: the tree and all counts are as before, in memory and in the checkpoint that comes next, and the
same operation is done when it is asked again.  Or nothing is written any more, and the device has what was safe.
"""

from __future__ import annotations

import errno
import os
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from f2tools.device.base import Wrapper
from f2tools.errors import DeviceError, F2fsError, NoFreeSegment
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import Policy, WritableVolume
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.findings import Severity
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.model import BLOCK
from tests.f2fs.write.refusals import (
    COLLAPSE,
    IN_INODE,
    IN_NODE,
    INSERT,
    OPERATIONS,
    PEOPLE,
    ROOT,
    Seen,
    at,
    base,
    begun,
    counts,
    full,
    opened,
    seen,
    timeless,
)
from tests.f2fs.write.test_refused import full_volume
from tests.f2fs.write.volumes import FULL, Above, Twin, assert_same, fresh, judge, writable
from tests.f2fs.write.workload import FILE, noise

Tree = dict[bytes, Seen]


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


REFUSALS: dict[str, Callable[[], Exception]] = {
    "blocks": lambda: _os_error(errno.ENOSPC),
    "quota": lambda: _os_error(errno.EDQUOT),
    "nid": lambda: _os_error(errno.ENOSPC),
    "orphan": lambda: _os_error(errno.ENOSPC),
    "operation": lambda: _os_error(errno.ENOSPC),
    "segment": NoFreeSegment,
    "read": lambda: DeviceError("a bad sector"),
    "first read": lambda: DeviceError("a bad sector"),
}
READS = ("read", "first read")
ALL, SOME = bool(os.environ.get("F2_REFUSALS")), 2
MADE_SAFE = ("fsync", "sync")  # operations that make something safe themselves
IN_PLACE = ("pinned",)  # what is written over where it lies is old or new block by block
CUT_SHORT = ("write", "append")  # takes as much as there is room for, and says how much
READ_TWICE = ("collapse", "insert")  # what is moved is looked at first, and can fail the second time
NAMELESS = ("release", "give back", "link of a file without a name")


class FailingReads(Wrapper):
    """A device on which a read asks first."""

    ask: Callable[[str], None] | None = None

    def pread_into(self, offset: int, buffer: Any) -> None:
        if self.ask is not None:
            self.ask("read")
        self.base.pread_into(offset, buffer)


class Requests:
    """Counts requests of some kind, and refuses one of them."""

    def __init__(self, volume: WritableVolume, kind: str, refused: int) -> None:
        self.volume, self.kind, self.refused = volume, kind, refused
        self.made: list[str] = []

    def ask(self, what: str) -> None:
        self.made.append(what)
        if len(self.made) == self.refused + 1:
            raise REFUSALS[self.kind]()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """The parts of the volume ask here first."""
        volume = self.volume
        asked: dict[str, tuple[tuple[object, str, Callable[..., bool]], ...]] = {
            "blocks": ((volume.space, "require", lambda blocks, nodes=0: blocks > 0 or nodes > 0),),
            "quota": (
                (volume.space, "charge", lambda _, inodes, blocks: inodes > 0 or blocks > 0),
                (volume, "transfer", lambda *_: True),
            ),
            "nid": ((volume.nat, "take_one", lambda: True),),
            "orphan": ((volume, "_room_for_orphan", lambda *_: True),),
            "operation": ((volume, "begin", lambda *_: True),),
            "segment": ((volume.segments, "_free_segment", lambda *_: True),),
        }
        with pytest.MonkeyPatch.context() as patched:
            for owner, name, wanted in asked.get(self.kind, ()):
                patched.setattr(owner, name, self._counting(name, getattr(owner, name), wanted))
            if self.kind in READS:
                patched.setattr(volume.device.base, "ask", self.ask)  # type: ignore[attr-defined]
            yield

    def _counting(self, name: str, real: Callable[..., Any], wanted: Callable[..., bool]) -> Callable[..., Any]:
        def asking(*args: Any) -> Any:
            if wanted(*args):
                self.ask(name)
            return real(*args)

        return asking


def started(name: str, kind: str) -> WritableVolume:
    """A volume on which an operation is to begin, at every call the same."""
    device = FailingReads(Above(base()))
    if kind == "first read" and name not in NAMELESS:
        volume = opened(device)
        volume.hold(at(volume, "/open"))
        return volume
    made = begun(device, Policy(adaptive=kind != "segment"))
    if kind == "segment":  # with the next block each log comes to the end of its segment
        made.sync()
        made.write(at(made, "/cut"), 100, b"Changed")
        for curseg in made.segments.cursegs:
            curseg.next_blkoff = made.geo.blocks_per_seg - 1
    return made


def sound_tree(device: Any) -> Tree:
    """The tree that is on a device, whose volume is sound."""
    above = Above(device)
    with Volume(Above(above)) as read:
        assert_consistent(read)
        found = seen(read)
    wrong = [f for f in check(Image(above)).findings if f.severity >= Severity.WARNING]
    assert not wrong, wrong
    return found


def safe_tree(device: Any) -> Tree:
    """What a mount finds on a device."""
    above = Above(device)
    again = WritableVolume(Above(above), Policy(), seed=1)
    again.sync()
    return sound_tree(again.device)


def outcome(name: str, made: WritableVolume, requests: Requests) -> Exception | None:
    """What an operation says while one of its requests is refused."""
    try:
        with requests.counted():
            OPERATIONS[name](made)
    except (OSError, F2fsError) as error:
        return error
    return None


def judge_refusal(name: str, made: WritableVolume, before: Tree, after: Any, save_first: bool) -> None:
    """The tree is the old one, and the operation is done when it is asked again."""
    assert seen(made) == before
    if save_first:
        made.sync()
        assert sound_tree(made.device) == before
    OPERATIONS[name](made)
    shown = seen(made)
    assert timeless(shown) == after
    made.finish()
    assert sound_tree(made.device) == shown


def cases(name: str) -> list[tuple[str, int]]:
    """(kind, which request of it is refused) of an operation: some of them, all with $F2_REFUSALS."""
    found: list[tuple[str, int]] = []
    for kind in REFUSALS:
        made = started(name, kind)
        requests = Requests(made, kind, -1)
        assert outcome(name, made, requests) is None
        found += [(kind, number) for number in range(len(requests.made))]
    return found if ALL else random.Random(name).sample(found, min(len(found), SOME))


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_is_refused_something_has_changed_nothing_or_ends_writing(name: str) -> None:
    for kind, refused in cases(name):
        wanted = started(name, kind)
        before, used = seen(wanted), counts(wanted)
        OPERATIONS[name](wanted)
        after = timeless(seen(wanted))
        made = started(name, kind)
        requests = Requests(made, kind, refused)
        error = outcome(name, made, requests)
        print(f"{name}: {kind} refused at {refused} ({requests.made[refused]})")
        if error is None:
            assert timeless(seen(made)) == after
        elif made.broken is None:
            assert type(error) is type(REFUSALS[kind]())
            assert getattr(error, "errno", None) == getattr(REFUSALS[kind](), "errno", None)
            assert counts(made) == used
            judge_refusal(name, made, before, after, bool(refused % 2))
        else:
            assert kind == "segment" or name.startswith(READ_TWICE)
            with pytest.raises(OSError, match="read-only"):
                made.finish()
            found = timeless(safe_tree(made.device))
            safe = timeless(safe_tree(started(name, kind).device))
            if not any(word in name for word in IN_PLACE):
                assert found == safe or (name.startswith(MADE_SAFE) and found == after)


def assert_refused(name: str, made: WritableVolume, owner: object, method: str, blkaddr: int | None = None) -> None:
    """What can't be read, ever, ends an operation, and not all writing; once it can be read, that is done.

    `method` of `owner` reads; `blkaddr` is the block, with that of a device.
    """
    twin = started(name, "read")
    before, used = seen(twin), counts(twin)
    OPERATIONS[name](twin)
    real = getattr(owner, method)

    def failing(*asked: Any) -> Any:
        if blkaddr is None or asked[0] <= blkaddr * BLOCK < asked[0] + memoryview(asked[1]).nbytes:
            raise DeviceError("a bad sector")
        return real(*asked)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, method, failing)
        with pytest.raises(DeviceError):
            OPERATIONS[name](made)
    assert made.broken is None
    assert counts(made) == used
    judge_refusal(name, made, before, timeless(seen(twin)), save_first=True)


@pytest.mark.parametrize("name", ["collapse", "insert", "insert nodes"])
@pytest.mark.parametrize("block", [39, IN_INODE + IN_NODE + 3])
def test_a_range_is_not_shifted_where_what_lies_behind_it_has_a_block_that_cant_be_read(name: str, block: int) -> None:
    made = started(name, "read")
    inode = made.live(at(made, "/large"))
    device: Any = made.device
    assert_refused(name, made, device.base, "pread_into", int(made.mapper.get_one(inode, block)))


@pytest.mark.parametrize(
    "name", ["write far out of the inode", "allocate nodes", "insert nodes", "insert what is reserved"]
)
@pytest.mark.parametrize("left", [0, 1])
def test_a_block_of_the_nat_that_cant_be_read_does_not_end_the_making_of_nodes(name: str, left: int) -> None:
    """The node numbers that are known to be free are few, and the next ones are in it."""
    made = started(name, "read")
    made.nat._free = deque(list(made.nat._free)[:left])
    assert_refused(name, made, made.nat, "_find_free")


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_a_full_volume_says_of_an_operation_is_true(name: str) -> None:
    """It has so many blocks to spare; what a write took of what it was given is what it says."""
    roomy = begun()
    OPERATIONS[name](roomy)
    after = timeless(seen(roomy))
    for left in range(3, 10) if ALL else random.Random(name).sample(range(3, 10), 1):  # 4 for what has begun
        made = begun(full(left))
        before, used = seen(made), counts(made)
        filler = before[b"/filler"].node
        error = outcome(name, made, Requests(made, "none", 0))
        shown = seen(made)
        if error is not None:
            assert isinstance(error, OSError)
            assert error.errno == errno.ENOSPC
            assert shown == before
            assert counts(made) == used
        elif timeless(shown) != after | {b"/filler": filler}:
            assert name.startswith(CUT_SHORT)
            assert made.space.free_blocks < 4
        assert made.broken is None
        made.finish()
        assert sound_tree(made.device) == shown


SPREAD = (0, 923 + 1018 + 5, 923 + 3 * 1018 + 7)  # blocks of a file with holes where whole nodes would be


def spread_file(volume: WritableVolume) -> int:
    ino = volume.create(ROOT, b"spread", FILE, PEOPLE, PEOPLE)
    for block in SPREAD:
        volume.write(ino, block * BLOCK, noise(block, 3 * BLOCK))
    volume.sync()
    return ino


def test_a_file_of_which_a_full_volume_does_not_collapse_a_range_keeps_its_content(tmp_path: Path) -> None:
    """What lies behind the range would lie where the file has no nodes."""
    volume = writable(fresh(tmp_path))
    ino = spread_file(volume)
    twin = full_volume(tmp_path, {}, 0, volume)
    with pytest.raises(OSError, match="No space"):
        volume.fallocate(ino, COLLAPSE, 4 * BLOCK, 700 * BLOCK)
    assert volume.space.free_blocks == 0
    assert_same(volume, twin.model)
    twin.fallocate(ino, COLLAPSE, BLOCK, BLOCK)  # which needs no node
    volume.close()
    judge(tmp_path / "image")


@pytest.mark.parametrize("mode", [COLLAPSE, INSERT])
def test_a_range_of_a_file_whose_owner_has_more_than_the_limit_is_shifted(mode: int, tmp_path: Path) -> None:
    """Where nothing is taken no limit is asked; where nodes are, it refuses before anything has changed."""
    twin = Twin(writable(fresh(tmp_path, f"--size 64M -O {FULL}")))
    volume = twin.volume
    ino = spread_file(volume)
    twin = Twin(volume)
    volume.set_quota("user", PEOPLE, space_hard=5 * BLOCK)
    twin.fallocate(ino, mode, BLOCK, BLOCK)
    assert twin.attempt("fallocate", ino, INSERT, BLOCK, 1100 * BLOCK) is None
    assert twin.full == 1
    assert_same(volume, twin.model)
    volume.close()
    judge(tmp_path / "image", twin.model)
