"""A disk that said it had flushed, and had not: some of the last writes never arrived, or in another place.

A case is a number: a recorded workload, a moment in it, and which of the blocks written before it are as they were.
`python -m tests.fsck.lost_writes FIRST [LAST]` runs cases and tells of those that fail.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from f2tools.device import open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.record import WRITE, Recorder
from f2tools.f2fs.volume.volume import Volume
from tests.f2fs.write.model import BLOCK
from tests.f2fs.write.volumes import Above
from tests.f2fs.write.workload import Workload
from tests.fsck import crashes, fuzz
from tests.images import lasting_directory
from tests.kernel import write_log
from tests.power.recording import Recording, mixed, record

FULL = "--size 64M -O extra_attr,inode_checksum,quota,project_quota,inode_crtime,flexible_inline_xattr"
ALL = f"{FULL},compression,casefold -C utf8"
KERNEL_FROM = 10_000  # from this case on it is the kernel that wrote
MOMENTS = 6  # of a recording: the last one, and others
WINDOWS = (1, 3, 10, 30, 100, 300, 1000)  # so many of the last blocks written may be lost
SHARES = (0.05, 0.3, 0.5, 0.8, 1.0)
ASTRAY = (0, 0, 0, 1, 1, 5)  # of the lost ones so many overwrote another block
ERASE_BLOCKS = (0, 0, 64 << 10, 512 << 10, 2 << 20)  # bytes


class Kind(NamedTuple):
    """A volume, what is done to it, and how many logs are open."""

    options: str = "--size 64M"
    work: Callable[[Workload], None] = mixed
    active_logs: int = 6


def churning(work: Workload) -> None:
    """Files that come, change and go, in several directories, with a checkpoint now and then."""
    for n in range(4):
        work.random = random.Random(n)
        work.churn(rounds=40, files=12, largest=40000)
        work.top = work.make(work.top, b"below%d" % n)
    work.names()


def everything(work: Workload) -> None:
    """Files of all kinds, large ones, attributes, compression; a checkpoint after each part."""
    for part in (work.small, work.xattrs, work.large, work.holes, work.links, work.flags, work.churn, work.names):
        part()
        work.sync()


KINDS = (
    Kind(), Kind(FULL), Kind(active_logs=2), Kind("--size 128M -s 2"), Kind(work=churning), Kind(FULL, churning),
    Kind(ALL, everything),
)  # fmt: skip


@cache
def _directory() -> Path:
    return lasting_directory("f2-lost-writes-")


@cache
def recorded(kind: int) -> Recording:
    """What was written; behind our own kinds come the logs of what the kernel wrote."""
    if kind >= len(KINDS):
        return _of_kernel(kind - len(KINDS))
    some = KINDS[kind]
    return record(_directory() / str(kind), some.options, some.work, active_logs=some.active_logs)


def _of_kernel(number: int) -> Recording:
    path, events = _directory() / f"kernel-{number}", write_log.kept(number)
    with path.open("wb") as file:
        file.truncate(max(event.offset + event.length for event in events))
    recorder = Recorder(Overlay(open_device(path)))
    recorder.events = events
    above = Overlay(open_device(path))
    recorder.replay(len(events), above)
    with Volume(above) as volume:
        size, main = volume.geo.end_blkaddr * BLOCK, volume.geo.main_blkaddr * BLOCK
    os.truncate(path, size)
    return Recording(path, recorder, {}, main)


@cache
def moments(kind: int) -> tuple[int, ...]:
    """Numbers of events at which the power goes."""
    count = len(recorded(kind).recorder.events)
    chance = random.Random(kind)
    return (count, *(chance.randrange(count // 8, count) for _ in range(MOMENTS - 1)))


@cache
def image(kind: int, moment: int) -> Path:
    """The volume as it is where nothing is lost."""
    return recorded(kind).at(moments(kind)[moment], _directory() / f"{kind}-{moment}.img")


Written = tuple[int, int]  # number of the event, and offset of a block in the volume


def load() -> None:
    """Record all, and look what it is at each moment."""
    for kind in range(len(KINDS) + len(write_log.KEPT)):
        for moment in range(MOMENTS):
            crashes.truth(str(image(kind, moment)))


class Case(NamedTuple):
    """An image, and the (offset, bytes) that it has instead of what was written."""

    path: Path
    patches: list[tuple[int, bytes]]
    what: str


def case(number: int) -> Case:
    """What a case is."""
    chance = random.Random(number)
    own = number < KERNEL_FROM
    kind = chance.randrange(len(KINDS)) if own else len(KINDS) + chance.randrange(len(write_log.KEPT))
    moment = chance.randrange(MOMENTS)
    written = _written(kind, moment)
    main = recorded(kind).main_offset
    window, share = chance.choice(WINDOWS), chance.choice(SHARES)
    size = chance.choice(ERASE_BLOCKS)
    if size:  # a whole one is as it was
        some = chance.choice(written[-window:])[1] // size * size
        where, window, share = range(some, some + size), chance.choice(WINDOWS), 1.0
    else:
        where = chance.choice([range(main), range(main, 1 << 60), range(1 << 60)])
    there = [one for one in written if one[1] in where] or written
    lost = {one for one in there[-window:] if chance.random() < share} or {there[-1]}
    astray = chance.choice(ASTRAY)
    places = {one: chance.choice(written)[1] for one in chance.sample(sorted(lost), min(astray, len(lost)))}
    return without(kind, moment, lost, places)


def _written(kind: int, moment: int) -> list[Written]:
    """All blocks that were written before a moment, but by mkfs."""
    events = recorded(kind).recorder.events[: moments(kind)[moment]]
    first = write_log.made(kind - len(KINDS)) if kind >= len(KINDS) else 0
    return [
        (index, at)
        for index, event in enumerate(events)
        if event.kind == WRITE and index >= first
        for at in range(event.offset, event.offset + event.length, BLOCK)
    ]


def without(
    kind: int, moment: int, lost: Collection[Written], places: Mapping[Written, int] = MappingProxyType({})
) -> Case:
    """The case in which these blocks were not written, or at another of the `places`; see `_written`."""
    recording, count = recorded(kind), moments(kind)[moment]
    path = image(kind, moment)
    with open_device(recording.image) as base, open_device(path) as whole:
        top = Above(base)
        for index, event in enumerate(recording.recorder.events[:count]):
            if event.kind != WRITE:
                recording.recorder.replay(index + 1, top, start=index)
                continue
            for at in range(event.offset, event.offset + event.length, BLOCK):
                if (index, at) not in lost or (index, at) in places:
                    place = places.get((index, at), at)
                    top.pwrite(place, event.data[at - event.offset : at - event.offset + BLOCK])
        patches = [
            (at, bytes(top.pread(at, BLOCK)))
            for at in sorted({at for _, at in lost} | set(places.values()))
            if top.pread(at, BLOCK) != whole.pread(at, BLOCK)
        ]
    return Case(path, patches, f"kind {kind}, event {count}, without {len(patches)} blocks")


def without_summaries(kind: int, moment: int) -> Case:
    """The case in which the summaries of the newest checkpoint, and with them the journals, were not written."""
    pack = sorted(crashes.truth(str(image(kind, moment))).packs)
    inner = {blkaddr * BLOCK for blkaddr in pack[1:-1]}
    last = {at: index for index, at in _written(kind, moment) if at in inner}
    return without(kind, moment, {(index, at) for at, index in last.items()})


def without_checkpoints(kind: int, moment: int) -> Case:
    """The case in which the last two checkpoints were not written, and all else was."""
    facts = crashes.truth(str(image(kind, moment)))
    heads = {min(facts.packs) * BLOCK, min(facts.other) * BLOCK}
    packs = {at + n * BLOCK for at in heads for n in range(512)}
    written = _written(kind, moment)
    since = [index for index, at in written if at in heads][-2]
    return without(kind, moment, {(index, at) for index, at in written if at in packs and index >= since})


def judged(number: int, work: Path, peer: bool = True, keep: Path | None = None) -> fuzz.Verdict:
    """The verdict on a case."""
    return verdict_on(case(number), work, peer, keep)


def verdict_on(some: Case, work: Path, peer: bool = True, keep: Path | None = None) -> fuzz.Verdict:
    """The verdict on a case that is given."""
    pack = crashes.truth(str(some.path)).packs
    older = bool({min(pack), max(pack)} & fuzz.touched_by(some.patches, BLOCK))  # as if it had not been made
    return crashes.judged(str(some.path), len(some.patches), work, peer, keep, some.patches, older)


def _main(words: list[str]) -> None:
    first = int(words[0])
    last = int(words[-1])
    bad = 0
    with tempfile.TemporaryDirectory() as work:
        for number in range(first, last + 1):
            verdict = judged(number, Path(work))
            if verdict.wrong:
                bad += 1
                print(f"{number} ({case(number).what}, {verdict.seconds:.1f} s): {verdict.wrong}", flush=True)
    print(f"{last - first + 1} cases, {bad} failures")


if __name__ == "__main__":
    _main(sys.argv[1:])
