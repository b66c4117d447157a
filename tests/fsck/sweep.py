"""Every block of metadata lost in turn, one at a time and in pairs: what comes back must be the whole tree.

A case is an image, one or two blocks and what becomes of them: zeros, noise, zeros in the second half, or an older
version of the same.  What is
in no other place is known beforehand (`Block`), and nothing else may differ by a byte: neither a file, nor a name.
`python -m tests.fsck.sweep IMAGE [KIND [WAY [BLKADDR...]]]` runs cases and tells of those that fail; so does
`python -m tests.fsck.sweep IMAGE pairs WAY EVERY` with every so manieth of the pairs.
"""

from __future__ import annotations

import hashlib
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.f2fs.layout.constants import F2FS_INLINE_DATA, FADVISE_VERITY_BIT
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.nodes import DIRECT, INODE, XATTR
from f2tools.fsck.repair.rounds import Repairer, StaysOpen
from tests.fsck.trees import shown
from tests.images import reference

LOST_FOUND = b"/lost+found"
ZERO, NOISE, TORN, STALE = WAYS = ("zero", "noise", "torn", "stale")
CONTENT, XATTRS = 6, 8  # in what `shown` gives
ROOT = 3
EMPTY = hashlib.sha256().digest()


@dataclass(frozen=True)
class Block:
    """A block of metadata: what is in no other place is the inode `ino`, its attributes, names of hard links."""

    kind: str
    blkaddr: int
    ino: int = 0  # whose it is
    names: frozenset[bytes] = frozenset()  # that stand in it
    older: bytes = b""  # an older version
    alone: bool = False  # whether nothing else tells the content: inline data, compression, a seal behind the end


@dataclass
class Good:
    """A sound image: its tree, the inode of each path, the metadata blocks."""

    name: str
    block_size: int
    tree: dict[bytes, tuple[Any, ...]]
    inos: dict[bytes, int]
    blocks: list[Block]
    paths: dict[int, list[bytes]] = field(default_factory=dict)


def tree_on(
    device: Device,
    opened: Callable[[Device], Volume] = Volume,
    more: Callable[[Volume, Inode], tuple[Any, ...]] = lambda *_: (),
) -> tuple[dict[bytes, tuple[Any, ...]], dict[bytes, int]]:
    """Path to what a file shows and to its inode number; `opened` may recover the volume first."""
    found: dict[bytes, tuple[Any, ...]] = {}
    inos: dict[bytes, int] = {}
    with opened(StaysOpen(device)) as volume:
        for directory, _, entries in volume.walk():
            for entry in entries:
                path = directory.rstrip(b"/") + b"/" + entry.name
                if not isinstance(entry.inode, Inode):
                    found[path], inos[path] = ("unreadable",), 0
                    continue
                found[path] = shown(File(volume, entry.inode, path)) + more(volume, entry.inode)
                inos[path] = entry.inode.ino
    return found, inos


@cache
def good(name: str) -> Good:
    """The facts of a reference image."""
    image = reference(name)
    with open_device(image.path, extra=list(image.extra)) as device:
        with Volume(StaysOpen(device)) as volume:
            size = volume.geo.block_size
        tree, inos = tree_on(device)
        found = Good(name, size, tree, inos, list(_blocks(Image(StaysOpen(device)), inos)))
    for path, ino in inos.items():
        found.paths.setdefault(ino, []).append(path)
    return found


def _blocks(image: Image, inos: dict[bytes, int]) -> Iterator[Block]:
    yield from _tables(image)
    report = check(image)
    assert report.tree is not None
    scan = report.tree.scan
    older = _older(image, scan)
    names: dict[int, set[bytes]] = {}
    of_dir: dict[int, int] = {}
    paths = {ino: path for path, ino in inos.items()} | {int(image.sb.root_ino): b""}
    for entry in np.flatnonzero(report.tree.named).tolist():
        row = report.tree.entries[entry]
        directory = report.tree.ino(int(row["dir"]))
        of_dir[int(row["blkaddr"])] = directory
        names.setdefault(int(row["blkaddr"]), set()).add(paths.get(directory, b"") + b"/" + report.tree.name(entry))
    for row in range(scan.nid.size):
        blkaddr, nid = int(scan.addr[row]), int(scan.nid[row])
        if scan.inode_of[row] < 0:
            continue
        ino = int(scan.inode_nids[scan.inode_of[row]])
        kind = {INODE: "inode", DIRECT: "direct", XATTR: "xattr"}.get(int(scan.kind[row]), "indirect")
        inode = scan.inodes[scan.inode_of[row]]
        alone = bool(inode["inline"] & F2FS_INLINE_DATA or inode["compressed"] or inode["advise"] & FADVISE_VERITY_BIT)
        yield Block(kind, blkaddr, ino, frozenset(names.pop(blkaddr, ())), older.get(nid, b""), alone)
    for blkaddr, some in sorted(names.items()):
        yield Block("dentries", blkaddr, of_dir[blkaddr], frozenset(some))


def _tables(image: Image) -> Iterator[Block]:
    geo, size = image.geo, image.geo.block_size
    for copy in (0, 1):
        yield Block("superblock", copy)
    for pack in image.packs:
        for at in range(pack.blkaddr, pack.blkaddr + pack.cp.cp_pack_total_block_count):
            yield Block("checkpoint", at)
    for number in np.unique(image.nat.used() // geo.nat_entries_per_block).tolist():
        live = int(image.nat.blkaddrs[number])
        pair = (live - geo.nat_blkaddr) // geo.blocks_per_seg % 2
        other = live + (-geo.blocks_per_seg if pair else geo.blocks_per_seg)
        yield Block("nat", live, older=image.device.pread(other * size, size))
    used = np.flatnonzero(image.sit.vblocks)
    for number in np.unique(used // geo.sit_entries_per_block).tolist():
        live = int(image.sit.blkaddrs[number])
        half = image.sb.segment_count_sit // 2 * geo.blocks_per_seg
        other = live + half if live < geo.sit_blkaddr + half else live - half
        yield Block("sit", live, older=image.device.pread(other * size, size))
    for blkaddr in sorted({int(image.summaries.ssa_place(int(segno))[0]) for segno in used}):
        yield Block("ssa", blkaddr)


def _older(image: Image, scan: Any) -> dict[int, bytes]:
    """nid -> the newest older copy of a node that the log still has."""
    geo, found = image.geo, {}
    ages: dict[int, int] = {}
    start, size = geo.main_blkaddr * geo.block_size, geo.block_size
    for offset, length in image.device.data_ranges(start, geo.end_blkaddr * size - start):
        for at in range(offset // size, (offset + length) // size):
            segno, slot = divmod(at - geo.main_blkaddr, geo.blocks_per_seg)
            owned, _ = scan.owners.of_segments(np.array([segno]))
            if owned[0][slot]:
                continue
            block = image.block(at)
            own = block[-NodeFooter.size :].view(NodeFooter.dtype)[0]
            nid, ver = int(own["nid"]), int(own["cp_ver"]) & 0xFFFFFFFF
            row = scan.row_of(nid)
            if nid < 3 or row < 0 or int(own["ino"]) != int(scan.footer["ino"][row]):
                continue
            if int(own["flag"]) >> 3 == int(scan.footer["flag"][row]) >> 3 and ver >= ages.get(nid, 0):
                ages[nid], found[nid] = ver, block.tobytes()
    return found


# -- a case -----------------------------------------------------------------------------------------------------------


def patch(name: str, block: Block, way: str) -> tuple[int, bytes] | None:
    """(byte offset, bytes) of what becomes of a block; None where it has no older version."""
    size = good(name).block_size
    offset, length = block.blkaddr * size, size
    if block.kind == "superblock":
        offset, length = 1024 + block.blkaddr * size, 3072
    if way == STALE:
        return (offset, block.older) if block.older else None
    if way == TORN:
        return offset + length // 2, bytes(length // 2)
    rng = random.Random(f"{name}-{block.blkaddr}")
    return offset, bytes(length) if way == ZERO else rng.randbytes(length)


def judged(name: str, blocks: Sequence[Block], way: str) -> tuple[list[str], list[str]]:
    """Lose these blocks, repair, compare the whole tree: (what is wrong, what was done)."""
    image = reference(name)
    with open_device(image.path, extra=list(image.extra)) as device:
        lost = Overlay(StaysOpen(device))
        for block in blocks:
            change = patch(name, block, way)
            if change is None:
                return [], []
            lost.pwrite(*change)
        try:
            report = check(Image(StaysOpen(lost)))
            done: list[str] = []
            if not report.sound:
                repairer = Repairer(lost)
                outcome = repairer.run(report)
                done = outcome.done
                if not outcome.complete:
                    return [f"left: {dict(outcome.left)}"], done
                repairer.commit(lost)
                if not check(Image(StaysOpen(lost))).sound:
                    return ["a second check finds something"], done
            now, inos = tree_on(lost)
        except Exception:
            return [traceback.format_exc(limit=-6)], []
        return list(_differences(good(name), now, inos, blocks, way)), done


def _differences(
    before: Good, now: dict[bytes, tuple[Any, ...]], inos: dict[bytes, int], blocks: Sequence[Block], way: str
) -> Iterator[str]:
    inodes = {block.ino for block in blocks if block.kind == "inode" or (way == STALE and block.ino)}
    xattrs = {block.ino for block in blocks if block.kind == "xattr"}
    outside = {block.ino for block in blocks if not block.alone}
    # where a node below a lost one belongs is said nowhere
    above = {block.ino for block in blocks if block.kind == "indirect"}
    unplaced = {block.ino for block in blocks if block.kind in ("direct", "indirect") and len(blocks) > 1} & above
    names = {name for block in blocks for name in block.names}
    there = set(inos.values())
    fewer = {  # whose further names are gone; the inode remembers one, perhaps one that it has no more
        before.inos[path]
        for path in names
        if path not in now and before.inos[path] in there and len(before.paths[before.inos[path]]) > 1
    }
    # directories of which nothing has the name: what is in them is in lost+found too
    moved = {
        path + b"/": LOST_FOUND + b"/#%d/" % before.inos[path]
        for path in names
        if before.inos[path] in inodes and before.tree[path][0] == "dir"
    }
    for path, was in before.tree.items():
        above = next((above for above in moved if path.startswith(above)), b"")
        ino, found = before.inos[path], now.get(moved.get(above, b"") + path[len(above) :])
        if found == was or (moved and path == LOST_FOUND and found is not None):
            continue
        if found is None:
            content = ino in outside and was[CONTENT] != EMPTY and was[0] == "file"
            if ino in inodes and path in names:  # nothing has its name; the content is in lost+found
                content &= all(item[CONTENT] != was[CONTENT] for item in now.values())
            if not (ino in fewer and path in names) and (ino not in inodes or content):
                yield f"{path!r} is gone"
            continue
        if ino in unplaced and found[:CONTENT] + found[CONTENT + 1 :] == was[:CONTENT] + was[CONTENT + 1 :]:
            continue
        if ino in inodes:
            if way != STALE and ino in outside and found[0] == "file" and found[CONTENT] != was[CONTENT]:
                yield f"{path!r} has not its content; inode {ino}"
            continue
        keep = [at for at in range(len(was)) if not (at == 4 and ino in fewer) and not (at == XATTRS and ino in xattrs)]
        if len(found) != len(was) or [was[at] for at in keep] != [found[at] for at in keep]:
            yield f"{path!r} is {found}, was {was}"
    for path in now.keys() - before.tree.keys():
        if inos[path] in fewer:
            ino = inos[path]
            was = before.tree[before.paths[ino][0]]
            if now[path][:4] + now[path][5:] != was[:4] + was[5:]:
                yield f"{path!r} is {now[path]}, was {was}"
            continue
        if path != LOST_FOUND and not any(path.startswith(LOST_FOUND + b"/#%d" % ino) for ino in inodes):
            yield f"{path!r} is new"


def cases(name: str, kinds: Sequence[str] = (), ways: Sequence[str] = WAYS) -> list[tuple[Block, str]]:
    """All losses of one block."""
    return [(b, way) for b in good(name).blocks if not kinds or b.kind in kinds for way in ways if patch(name, b, way)]


def pairs(name: str) -> list[tuple[Block, Block]]:
    """Pairs of blocks of one file, of one directory, and of a directory and what is in it."""
    facts = good(name)
    by_ino: dict[int, list[Block]] = {}
    for block in facts.blocks:
        if block.ino:
            by_ino.setdefault(block.ino, []).append(block)
    found = [pair for some in by_ino.values() for pair in combinations(some, 2)]
    for path, ino in facts.inos.items():
        above = facts.inos.get(path.rpartition(b"/")[0], ROOT)
        found += [(a, b) for a in by_ino.get(above, []) for b in by_ino.get(ino, []) if a.ino != b.ino]
    return found


def _main(words: list[str]) -> None:
    verbose = "-v" in words
    name, *rest = [word for word in words if word != "-v"]
    if rest and rest[0] == "pairs":
        _pairs(name, rest[1], int(rest[2]))
        return
    kinds = [] if not rest or rest[0] == "all" else [rest[0]]
    ways = WAYS if len(rest) < 2 or rest[1] == "all" else (rest[1],)
    chosen = {int(word) for word in rest[2:]}
    total = bad = 0
    for block, way in cases(name, kinds, ways):
        if chosen and block.blkaddr not in chosen:
            continue
        total += 1
        wrong, done = judged(name, [block], way)
        if wrong:
            bad += 1
            print(f"{name} {block.kind} {way} {block.blkaddr} (ino {block.ino}): {len(wrong)}", flush=True)
            for line in wrong[: 50 if verbose else 3]:
                print("   ", line[: 2000 if "Trace" in line else 300], flush=True)
        if verbose:
            print("    did:", *done, sep="\n      ")
    print(f"{name}: {total} cases, {bad} failures")


def _pairs(name: str, way: str, every: int) -> None:
    some = pairs(name)[::every]
    bad = 0
    for first, second in some:
        wrong, _ = judged(name, (first, second), way)
        bad += bool(wrong)
        if wrong:
            told = [f"{block.kind} {block.blkaddr} (ino {block.ino})" for block in (first, second)]
            print(name, way, *told, *[f"\n    {line[:1500]}" for line in wrong[:3]], flush=True)
    print(f"{name}: {len(some)} pairs, {bad} failures")


if __name__ == "__main__":
    _main(sys.argv[1:])


__all__ = ["WAYS", "Block", "cases", "good", "judged", "pairs"]
