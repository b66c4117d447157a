"""The nodes of a file are gone through in order, each once, wherever in the tree they are."""

from __future__ import annotations

import random
import stat
from pathlib import Path
from typing import Any

import pytest

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.write.node import NodeManager
from f2tools.f2fs.write.volume import WritableVolume
from tests.f2fs.write.volumes import fresh, writable

BLOCK = 4096
PLACES = (0, 900, 1000, 3000, 5000, 500_000, 900_000, 1_040_000, 2_000_000, 2_100_000, 3_500_000, 900_000_000)


def spread(volume: WritableVolume) -> int:
    """A file with a block here and there, in every branch of its tree; its inode number."""
    ino = volume.create(F2FS_ROOT_INO, b"spread", stat.S_IFREG | 0o644, 0, 0)
    for fofs in PLACES:
        for further in (0, 1018, 5 * 1018):
            volume.write(ino, (fofs + further) * BLOCK, b"x")
    return ino


def test_the_nodes_within_a_range_are_those_that_are_there(tmp_path: Path) -> None:
    with writable(fresh(tmp_path)) as volume:
        inode, mapper = volume.live(spread(volume)), volume.mapper
        per, own = inode.addrs_per_block, inode.addrs_per_inode
        numbers = {max(-1, (fofs + further - own) // per) for fofs in PLACES for further in (0, 1018, 5 * 1018)}
        random_one = random.Random(5)
        edges = [0, own, own + per, mapper.end(inode), *PLACES]
        for _ in range(300):
            start, stop = sorted(random_one.choice(edges) + random_one.choice([0, 1, per, 7 * per]) for _ in "ab")
            if start == stop:
                continue
            found = [(node.nid, node.first + low, node.first + high) for node, low, high in
                     mapper.nodes_within(inode, start, stop)]  # fmt: skip
            wanted = []
            for number in sorted(numbers):
                node = mapper.node(inode, number)
                assert node is not None
                low, high = max(start, node.first), min(stop, node.first + (own if number < 0 else per))
                if low < high:
                    wanted.append((node.nid, low, high))
            assert found == wanted


def test_each_node_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writable(fresh(tmp_path)) as volume:
        inode, mapper = volume.live(spread(volume)), volume.mapper
        looked: list[int] = []
        block = NodeManager.block

        def noted(self: NodeManager, nid: int, *rest: Any) -> Any:
            looked.append(nid)
            return block(self, nid, *rest)

        monkeypatch.setattr(NodeManager, "block", noted)
        mapper.look(inode, 0)
        assert len(looked) == len(set(looked))
        assert len(looked) > 30
