"""The algorithm of a compressed file, from what its clusters hold; and the level, which readers don't need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

import numpy as np

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.compress import COMPRESS_HEADER_SIZE
from f2tools.f2fs.volume.compress import ALGORITHMS, LZ4, LZO, LZORLE, ZSTD, lzo_version
from f2tools.f2fs.volume.data import Cluster
from f2tools.f2fs.volume.inode import Inode
from f2tools.fsck.checks.clusters import plain_cluster
from f2tools.fsck.checks.contents import Readers
from f2tools.fsck.findings import Finding
from f2tools.fsck.plans import FindAlgorithm, SetLevel
from f2tools.fsck.repair.work import Work

MOST_TRIED = 64  # clusters of one file that are decompressed: nearly always the first one decides
MOST_ASKED = 1000  # other files whose algorithm is looked at


class Found(NamedTuple):
    """The algorithm of clusters, None where they don't say; and then why not, empty where there are none."""

    algorithm: int | None
    why: str = ""


def find_algorithm(work: Work, finding: Finding, plan: FindAlgorithm) -> bool:
    """The algorithm that alone reads the clusters; where none does, that of most other files, and this is said.

    A careful repair does not guess: the wrong number may still say which it was.
    """
    found = algorithm_of(work, plan.ino)
    if found.why and work.careful:
        return False
    number = found.algorithm
    if number is not None:
        note = "its clusters are read with it"
    else:
        number = _usual(work, plan.ino)
        note = "it has no compressed cluster"
        if found.why:
            note = work.guesses.doubtful[plan.ino] = f"its algorithm is a guess: {found.why}"
    work.note(finding, f"i_compress_algorithm = {number}, {ALGORITHMS[number]}: {note}")
    return work.surgery.set_field(plan.ino, "i_compress_algorithm", number)


def set_level(work: Work, finding: Finding, plan: SetLevel) -> bool:
    """The algorithm, where clusters are read with another one alone; else the level is the default."""
    found = algorithm_of(work, plan.ino).algorithm
    said = _inode(work, plan.ino).extra["i_compress_algorithm"]
    if found is not None and {found, said} != {LZO, LZORLE} and found != said:
        work.note(finding, f"i_compress_algorithm = {found}, {ALGORITHMS[found]}: its clusters are read with it")
        return work.surgery.set_field(plan.ino, "i_compress_algorithm", found)
    work.note(finding, f"i_compress_flag = {plan.value}: the default level")
    return work.surgery.set_field(plan.ino, "i_compress_flag", int(plan.value or 0))


def algorithm_of(work: Work, ino: int) -> Found:
    """The algorithm that alone reads a cluster of a file, the first of which this is so.

    A stream of LZO says itself whether it is LZO-RLE.
    """
    count = 0
    try:
        inode = _inode(work, ino)
        size = inode.cluster_size * work.image.geo.block_size
        for raw in _clusters(work, inode):
            count += 1
            if inode.encrypted:
                return Found(None, "its compressed clusters are encrypted")
            right = [number for number in (LZO, LZ4, ZSTD) if plain_cluster(raw, inode, number, size) is not None]
            if len(right) == 1:
                return Found(_of_stream(raw, right[0]))
    except F2fsError as error:
        return Found(None, f"what it holds can't be read: {error}")
    return Found(None, f"no algorithm alone reads a compressed cluster, of {count} tried" if count else "")


def _of_stream(raw: bytes, number: int) -> int:
    return LZORLE if number == LZO and lzo_version(raw[COMPRESS_HEADER_SIZE:]) else number


def _inode(work: Work, ino: int) -> Inode:
    return Readers(work.scan).nodes.inode(ino)


def _clusters(work: Work, inode: Inode) -> Iterator[bytes]:
    """The blocks of the first compressed clusters of a file, those that can be read, whatever its size says."""
    row = work.scan.inode_row(inode.ino)
    end = int(work.scan.inodes["last_written"][row]) + 1 if row >= 0 else None
    layout = Readers(work.scan).data.layout(inode, 0, end)
    items = (item for item in layout if isinstance(item, Cluster) and item.blkaddrs.size)
    for item in islice(items, MOST_TRIED):
        blkaddrs = item.blkaddrs.astype(np.int64)
        if work.image.geo.in_main(blkaddrs).all():
            yield work.image.read(blkaddrs).tobytes()


def _usual(work: Work, ino: int) -> int:
    """The algorithm of most compressed files; LZ4, the kernel's default, where there is no other."""
    inodes, scan = work.scan.inodes, work.scan
    votes: Counter[int] = Counter()
    for row in np.flatnonzero(inodes["compressed"])[:MOST_ASKED].tolist():
        with suppress(F2fsError):
            other = int(scan.nid[inodes["node"][row]])
            number = _inode(work, other).extra.get("i_compress_algorithm", -1)
            if other != ino and 0 <= number < len(ALGORITHMS):
                votes[number] += 1
    return votes.most_common(1)[0][0] if votes else LZ4
