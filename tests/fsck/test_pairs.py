"""Two structures of a crashed volume lost at once: what each of them alone leaves to the other is gone.

F2_PAIRS=all tries every pair on every image; else each pair is tried on one of them.  A failure names all that
`judged` needs: the image, and the pair.
"""

from __future__ import annotations

import os
import random
from itertools import combinations_with_replacement
from pathlib import Path

import pytest

import f2tools
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.layout.node import NodeFooter
from tests.dump.craft import f2
from tests.fsck import crashes
from tests.fsck.trees import tree_of
from tests.images import CRASH, reference

LOST = (
    "journals", "SIT zeroed", "SIT noise", "NAT zeroed", "NAT noise", "summaries", "inode", "footer", "root", "pack",
    "torn inode",
)  # fmt: skip
PAIRS = tuple(combinations_with_replacement(LOST, 2))
SECTOR = 512
UNDECIDED = {  # nothing is lost there, and nothing tells what is right
    "crash-unlinked-after": ("SIT noise", "NAT noise"),  # a deleted file of the same name comes back beside the other
    "crash-orphan": ("footer", "pack"),  # an older copy of a deleted file has its link still, and goes to lost+found
}


def chosen(number: int) -> tuple[tuple[str, str], ...]:
    """The pairs to be tried on the image with this number."""
    return PAIRS if os.environ.get("F2_PAIRS") == "all" else PAIRS[number :: len(CRASH)]


def damage(path: Path, pair: tuple[str, str]) -> list[tuple[int, bytes]]:
    """The (offset, bytes) that lose both."""
    chance = random.Random(" ".join(pair))
    with f2tools.open(path) as volume:
        size, geo, pack = volume.geo.block_size, volume.geo, volume.pack
        inodes = [volume.nat.get(nid)[2] for nid in volume.nat.inodes().tolist() if nid > F2FS_ROOT_INO]
        sit, nat = int(volume.sit.blkaddrs[0]) * size, int(volume.nat.blkaddrs[0]) * size
        root = volume.inode(F2FS_ROOT_INO).inode.blkaddr

    def one(what: str) -> tuple[int, bytes]:
        inode = chance.choice(inodes) * size
        return {
            "journals": lambda: (pack.sum_blkaddr * size, bytes(size)),
            "SIT zeroed": lambda: (sit, bytes(size)),
            "SIT noise": lambda: (sit, chance.randbytes(size)),
            "NAT zeroed": lambda: (nat, bytes(size)),
            "NAT noise": lambda: (nat, chance.randbytes(size)),
            "summaries": lambda: (geo.ssa_blkaddr * size, bytes(8 * size)),
            "inode": lambda: (inode, bytes(size)),
            "footer": lambda: (inode + size - NodeFooter.size, chance.randbytes(NodeFooter.size)),
            "root": lambda: (root * size, bytes(size)),
            "pack": lambda: (pack.blkaddr * size, bytes(size)),
            "torn inode": lambda: (inode, chance.randbytes(SECTOR)),
        }[what]()

    return [one(what) for what in pair]


@pytest.mark.parametrize("name", CRASH)
def test_what_two_losses_left_is_saved(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pair in chosen(CRASH.index(name)):
        if pair == UNDECIDED.get(name):
            continue
        patches = damage(crashes.truth(name).good.path, pair)
        monkeypatch.setattr(crashes, "damage", lambda *_, patches=patches: patches)
        wrong = crashes.judged(name, 0, tmp_path, peer=False).wrong
        assert not wrong, f"{name}, {' and '.join(pair)}: {wrong}"


@pytest.mark.parametrize("name", ["blocks16k", "packed-ssa"])
def test_without_node_and_segment_table_all_is_found_by_the_root_that_mkfs_wrote(name: str, tmp_path: Path) -> None:
    """Nothing of the segment table is in the journals, and the version of the root is not that of any checkpoint."""
    image = reference(name).copy(tmp_path).path
    before = tree_of(image)
    with f2tools.open(image) as volume:
        size, tables = volume.geo.block_size, [*volume.nat.blkaddrs.tolist(), *volume.sit.blkaddrs.tolist()]
    with image.open("r+b") as file:
        for blkaddr in tables:
            file.seek(blkaddr * size)
            file.write(bytes(size))
    assert f2("fsck", "-y", image).code == 1
    assert f2("fsck", image).code == 0
    assert tree_of(image) == before
