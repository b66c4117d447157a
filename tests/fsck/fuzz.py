"""Random damage to metadata, one to a hundred places at once, and what must hold after a repair of it.

A case is an image and a number; both together give the same damage everywhere.  `python -m tests.fsck.fuzz IMAGE
NUMBER` tells the story of one; `python -m tests.fsck.fuzz IMAGE FIRST LAST` runs many.
"""

from __future__ import annotations

import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import NotF2fs
from f2tools.f2fs.layout.constants import F2FS_FEATURE_INODE_CHKSUM
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.f2fs.write.node import seal_inode
from f2tools.fsck.check import DEFAULT_MEMORY, check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.findings import Severity
from f2tools.fsck.repair.rounds import Repairer, StaysOpen
from f2tools.fsck.rescue import prepare
from tests import judges
from tests.fsck.trees import shown
from tests.hostile.damage import flips, resealed
from tests.hostile.targets import Place, structures
from tests.images import reference

SECONDS = 60
DAMAGES = (1, 1, 1, 2, 3, 5, 10, 20, 50, 100)
WHOLE_BLOCKS = 8  # one damage of so many is a whole block, zeroed or noise; of tables fewer
TABLES = (
    "superblock", "checkpoint head", "checkpoint tail", "checkpoint summaries", "nat", "sit", "ssa",
)  # fmt: skip
# what no repair can decide: features that nobody knows in both copies
BEYOND = {"S006"}
TOLD = 6  # lines of a code
CAREFUL_EVERY = 4  # one case of so many is repaired by `-p` first: what that leaves, `-y` must still bring back
# a checkpoint with another checksum is another one: what was fsync'ed after the first does not belong to it
RESEALED = ("superblock", "checkpoint head")
NOT_METADATA = ("compressed cluster",)
# from this number on one case of so many has a directory too whose depth or level is another
DEPTHS_FROM, DEPTHS_EVERY = 1_010_000, 8
DEPTHS = (0, 1, 2, 3, 5, 10, 62, 63, 64, 65, 255, 1 << 16, (1 << 32) - 1)
LEVELS = (0, 1, 2, 5, 10, 30, 62, 63, 64, 128, 255)


@dataclass
class Healthy:
    """An image before the damage: where its structures lie, and for each inode what it shows, where, and its blocks."""

    path: Path
    block_size: int
    places: dict[str, list[Place]]
    shown: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    names: dict[int, set[bytes]] = field(default_factory=dict)
    blocks: dict[int, set[int]] = field(default_factory=dict)
    way: dict[bytes, set[int]] = field(default_factory=dict)  # path -> blocks that lead there
    directories: list[int] = field(default_factory=list)  # addresses of their inodes, those of several levels first


@cache
def healthy(name: str) -> Healthy:
    """The facts of a reference image, without further devices; or of another, by its path."""
    path = Path(name) if "/" in name else reference(name).path
    with Volume(open_device(path)) as vol:
        places = {kind: where for kind, where in structures(vol).items() if kind not in NOT_METADATA}
        found = Healthy(path, vol.geo.block_size, places)
        look(vol, found)
    return found


def look(vol: Volume, found: Healthy) -> None:
    """Note each file of a volume: what it shows, its names, its blocks and those that lead to it."""
    ways: dict[bytes, set[int]] = {b"": set(_blocks(vol, vol.root.inode))}
    directories: list[Inode] = []
    for directory, inode, entries in vol.walk():
        directories.append(inode)
        above = ways[directory.rstrip(b"/")]
        for entry in entries:
            assert isinstance(entry.inode, Inode)
            where = directory.rstrip(b"/") + b"/" + entry.name
            ino = entry.inode.ino
            if ino not in found.blocks:
                found.blocks[ino] = _blocks(vol, entry.inode)
                found.shown[ino] = shown(File(vol, entry.inode, where))
            found.names.setdefault(ino, set()).add(where)
            found.way[where] = above
            if entry.inode.is_dir:
                ways[where] = above | found.blocks[ino]
    directories.sort(key=lambda inode: (-inode.i_current_depth, inode.blkaddr))
    found.directories = [inode.blkaddr for inode in directories]


def _blocks(vol: Volume, inode: Inode) -> set[int]:
    """All blocks of a file: inode, nodes and data."""
    blocks = {inode.blkaddr}
    if inode.i_xattr_nid:
        blocks.add(vol.nodes.address(inode.i_xattr_nid))
    if inode.has_inline_data or inode.has_inline_dentry:
        return blocks
    per = vol.geo.addrs_per_block
    stack = [(int(nid), (1, 1, 2, 2, 3)[at]) for at, nid in enumerate(inode.nids.tolist()) if nid]
    while stack:
        nid, level = stack.pop()
        blkaddr = vol.nodes.address(nid)
        blocks.add(blkaddr)
        words = vol.device.read_range(blkaddr, 1, vol.geo.block_size)[0][: 4 * per].view("<u4")
        if level > 1:
            stack += [(int(below), level - 1) for below in words[words != 0].tolist()]
    for extent in vol.data.extents(inode):
        if extent.blkaddr and vol.geo.in_main(extent.blkaddr):
            blocks.update(range(extent.blkaddr, extent.blkaddr + extent.count))
    return blocks


def damage(name: str, number: int, further: Mapping[str, list[Place]] | None = None) -> list[tuple[int, bytes]]:
    """The (offset, bytes) that case `number` writes over an image; `further` are places that only some state has."""
    good = healthy(name)
    rng = random.Random(f"{name}-{number}")
    size = good.path.stat().st_size
    every = good.places | dict(further or {})
    places = {kind: [p for p in where if sum(p) <= size] for kind, where in every.items()}
    kinds = sorted(kind for kind, where in places.items() if where)
    patches: list[tuple[int, bytes]] = []
    for _ in range(rng.choice(DAMAGES)):
        kind = rng.choices(kinds, [1 if kind in TABLES else 3 for kind in kinds])[0]
        if rng.randrange(WHOLE_BLOCKS * (5 if kind in TABLES else 1)) == 0:
            start = rng.choice(places[kind])[0] // 4096 * 4096
            patches.append((start, bytes(4096) if rng.randrange(2) else rng.randbytes(4096)))
            continue
        some = flips(rng, good.path, places[kind], 1)
        if kind in RESEALED[: 1 if further else 2] and rng.randrange(4):
            some = resealed(good.path, some, places[kind], kind)
        patches += some
    if number >= DEPTHS_FROM and number % DEPTHS_EVERY == 0:
        patches += other_depth(name, random.Random(f"depth-{name}-{number}"))
    return patches


def other_depth(name: str, rng: random.Random) -> list[tuple[int, bytes]]:
    """A directory with another number of levels, or whose first level has another number of buckets, its checksum
    being right: entries lie on levels that are not searched, or in buckets that are not theirs."""
    good = healthy(name)
    some = good.directories
    blkaddr = rng.choice(some[:3] if rng.randrange(2) else some)
    with open_device(good.path) as device, Volume(StaysOpen(device)) as vol:
        block = device.read_range(blkaddr, 1, good.block_size)[0]
        before = block.copy()
        what = rng.randrange(3)
        if what != 1:
            at = InodeLayout.offset_of("i_current_depth")
            block[at : at + 4].view("<u4")[0] = rng.choice(DEPTHS)
        if what != 0:
            block[InodeLayout.offset_of("i_dir_level")] = rng.choice(LEVELS)
        if vol.geo.feature & F2FS_FEATURE_INODE_CHKSUM:
            seal_inode(vol.sb.uuid, block)
    changed = np.flatnonzero(block != before).tolist()
    return [(blkaddr * good.block_size + at, block[at : at + 1].tobytes()) for at in changed]


@dataclass
class Verdict:
    """How a case ended: what went wrong, if anything; what was found; how long it took."""

    wrong: str = ""
    found: Counter[str] = field(default_factory=Counter)
    done: list[str] = field(default_factory=list)
    seconds: float = 0.0
    lost: int = 0


class TooLong(BaseException):
    """It took longer than anything may."""


def _alarm(*_: object) -> None:
    raise TooLong


def judged(name: str, number: int, work: Path, peer: bool = True, keep: Path | None = None) -> Verdict:
    """Damage, check, repair, check again, look at all files, ask fsck.f2fs; `keep` is where the result is put."""
    return verdict_of(
        healthy(name).path, lambda device, verdict: _judged(name, number, device, work, peer, keep, verdict)
    )


def verdict_of(path: Path, judge: Callable[[Device, Verdict], str]) -> Verdict:
    """What a judge says of an image, in at most so many seconds; that it ended with an error is a verdict too."""
    verdict = Verdict()
    before = signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(SECONDS)
    begun = time.monotonic()
    try:
        with open_device(path) as device:
            verdict.wrong = judge(device, verdict)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        verdict.wrong = traceback.format_exc(limit=-8)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    verdict.seconds = time.monotonic() - begun
    return verdict


def _judged(name: str, number: int, device: Device, work: Path, peer: bool, keep: Path | None, verdict: Verdict) -> str:
    patches = damage(name, number)
    image = Overlay(StaysOpen(device))
    for offset, data in patches:
        image.pwrite(offset, data)
    try:
        report = check(Image(StaysOpen(image)))
    except NotF2fs as error:
        return "" if beyond_all(name, patches) else f"can't be checked: {error}"
    verdict.found = report.counts
    if not report.sound and number % CAREFUL_EVERY == 1:
        first = Repairer(image, careful=True)
        if first.run(report).better:
            first.commit(image)
            report = check(Image(StaysOpen(image)))
    if not report.sound:
        repairer = Repairer(image)
        outcome = repairer.run(report)
        if "C003" in outcome.left:  # what `fsck -y --rescue` is for
            repairer = Repairer(image)
            repairer.done += prepare(repairer.overlay, DEFAULT_MEMORY)
            outcome = repairer.run(report)
        verdict.done = outcome.done
        if not outcome.complete:
            return "" if set(outcome.left) & BEYOND else f"left: {dict(outcome.left)}"
        repairer.commit(image)
        again = check(Image(StaysOpen(image)))
        if not again.sound:
            return f"a second check finds {dict(again.counts)}"
    size = healthy(name).block_size
    said = [line for lines in lost(healthy(name), image, touched_by(patches, size)).values() for line in lines]
    verdict.lost = len(said)
    if said:
        return f"{len(said)} files: {'; '.join(said[:4])}"
    peer &= size == 4096  # fsck.f2fs knows no other blocks here
    if peer or keep is not None:
        copy = keep or work / f"{name}.img"
        write_out(image, copy)
        if peer:
            run = judges.fsck(copy)
            bad = judges.complaints_in_words(run.output)
            if run.rc or bad:
                return f"fsck.f2fs: {run.rc} {bad[:4]}"
    return ""


def touched_by(patches: Sequence[tuple[int, bytes]], block_size: int) -> set[int]:
    """Block addresses that were written to."""
    return {at // block_size for offset, data in patches for at in (offset, offset + len(data) - 1)}


def beyond_all(name: str, patches: Sequence[tuple[int, bytes]]) -> bool:
    """Whether both superblocks and both checkpoints were hit: then nothing may be left to go by."""
    hit = {offset // 4096 for offset, _ in patches}
    heads = {place[0] // 4096 for place in healthy(name).places["checkpoint head"]}
    return {0, 1} <= hit and heads <= hit


def lost(good: Healthy, image: Device, touched: set[int]) -> dict[int, list[str]]:
    """Inode number -> what of it is not as it was although nothing of it was touched; 0 for what can't be read."""
    now: dict[int, tuple[Any, ...]] = {}
    where: dict[bytes, int] = {}
    with Volume(StaysOpen(image)) as vol:
        for directory, _, entries in vol.walk():
            for entry in entries:
                if not isinstance(entry.inode, Inode):
                    return {0: [f"{directory!r} {entry.name!r} can't be read"]}
                path = directory.rstrip(b"/") + b"/" + entry.name
                where[path] = entry.inode.ino
                if entry.inode.ino in now:
                    continue
                ino = entry.inode.ino
                if ino in good.blocks and not good.blocks[ino] & touched:
                    now[ino] = shown(File(vol, entry.inode, path))
    said: dict[int, list[str]] = {}
    for ino, blocks in good.blocks.items():
        if blocks & touched:
            continue
        name = sorted(good.names[ino])[0]
        if ino not in now:
            said[ino] = [f"ino {ino} {name!r} is gone"]
            continue
        wrong: list[str] = []
        if but_links(now[ino]) != but_links(good.shown[ino]):
            wrong.append(f"ino {ino} {name!r} is another: {now[ino]} for {good.shown[ino]}")
        wrong += [
            f"{path!r} leads to {where.get(path)}, not {ino}"
            for path in good.names[ino]
            if not good.way[path] & touched and where.get(path) != ino
        ]
        if wrong:
            said[ino] = wrong
    return said


def but_links(item: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a file shows, without the count of its names: others of them may have been hit."""
    return item[:4] + item[5:]


def write_out(image: Device, path: Path) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(image.size_bytes)
        for offset, length in image.data_ranges(0, image.size_bytes):
            for at in range(offset, offset + length, 1 << 20):
                file.seek(at)
                file.write(image.pread(at, min(1 << 20, offset + length - at)))


def _tell(name: str, number: int, verdict: Verdict) -> None:
    """What was found, and what was done: a few lines of each code."""
    with open_device(healthy(name).path) as device:
        image = Overlay(StaysOpen(device))
        for offset, data in damage(name, number):
            image.pwrite(offset, data)
        lines = [
            f"{f.code} {f.message}" for f in check(Image(StaysOpen(image))).findings if f.severity >= Severity.WARNING
        ]
    for title, some in (("found", lines), ("did", verdict.done)):
        told: Counter[str] = Counter()
        for line in some:
            told[line[:4]] += 1
            if told[line[:4]] <= TOLD:
                print(f"{title} {line[:220]}")


def _main(words: list[str]) -> None:
    words = [word for word in words if word != "-v"]
    name, first = words[0], int(words[1])
    last = int(words[2]) if len(words) > 2 else first
    work = Path(words[3]) if len(words) > 3 else Path("/tmp")
    bad = 0
    for number in range(first, last + 1):
        verdict = judged(name, number, work)
        if "-v" in sys.argv:
            _tell(name, number, verdict)
        if verdict.wrong or verdict.seconds > SECONDS / 4:
            bad += 1
            print(f"{name} {number} ({verdict.seconds:.1f} s): {verdict.wrong}", flush=True)
    print(f"{name}: {last - first + 1} cases, {bad} failures")


if __name__ == "__main__":
    _main(sys.argv[1:])
