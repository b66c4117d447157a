"""The arithmetic of a file's nodes against a tree that is built node by node."""

from __future__ import annotations

import numpy as np
import pytest

from f2tools.f2fs.layout.constants import XATTR_NODE_OFFSET
from f2tools.f2fs.layout.node_tree import (
    are_dnodes,
    branches,
    direct_nodes,
    is_dnode,
    kind_of_node,
    leads_to_nodes,
    max_blocks,
    node_path,
    number_of,
    place_of,
)


class Tree:
    """Every node of a file whose indirect nodes have room for `n`, depth first as IS_DNODE() counts."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.level: dict[int, int] = {}  # by offset
        self.above: dict[int, tuple[int, int] | None] = {}
        self.direct: list[list[tuple[int, int]]] = []  # the path to each direct node, in file order
        for slot, level in enumerate((0, 0, 1, 1, 2)):
            self._add(slot, level, None, [])

    def _add(self, slot: int, level: int, above: int | None, path: list[tuple[int, int]]) -> None:
        offset = len(self.level) + 1
        self.level[offset] = level
        self.above[offset] = None if above is None else (above, slot)
        path = [*path, (slot, offset)]
        if not level:
            self.direct.append(path)
        for child in range(self.n if level else 0):
            self._add(child, level - 1, offset, path)


@pytest.fixture(params=[1, 2, 5], scope="module")
def tree(request: pytest.FixtureRequest) -> Tree:
    return Tree(request.param)


def test_direct_nodes_are_found_from_their_number_and_say_it_by_their_offset(tree: Tree) -> None:
    assert direct_nodes(tree.n) == len(tree.direct)
    assert [node_path(number, tree.n) for number in range(len(tree.direct))] == tree.direct
    assert [number_of(path[-1][1], tree.n) for path in tree.direct] == list(range(len(tree.direct)))
    assert (node_path(-1, tree.n), number_of(0, tree.n)) == ([], -1)
    with pytest.raises(OSError, match="File too large"):
        node_path(len(tree.direct), tree.n)


def test_every_node_knows_the_one_above(tree: Tree) -> None:
    assert {offset: place_of(offset, tree.n) for offset in tree.level} == tree.above
    assert place_of(XATTR_NODE_OFFSET, tree.n) is None
    assert place_of(max(tree.level) + 1, tree.n) is None


def test_an_offset_tells_what_a_node_holds(tree: Tree) -> None:
    words = ("direct", "indirect", "double indirect")
    assert {offset: kind_of_node(offset, tree.n) for offset in tree.level} == {
        offset: words[level] for offset, level in tree.level.items()
    }
    assert kind_of_node(XATTR_NODE_OFFSET, tree.n) == "xattr"
    every = np.array([0, *tree.level, XATTR_NODE_OFFSET], np.uint32)
    dnodes = [is_dnode(offset, tree.n) for offset in every.tolist()]
    assert dnodes == [True, *(not level for level in tree.level.values()), True]
    assert are_dnodes(every, tree.n).tolist() == dnodes
    assert [not leads_to_nodes(offset, tree.n) for offset in every.tolist()] == [False, *dnodes[1:-1], False]


def test_branches_cover_the_file_without_gap(tree: Tree) -> None:
    at = 0
    for slot, branch in enumerate(branches(tree.n)):
        below = [path for path in tree.direct if path[0][0] == slot]
        assert (branch.first, branch.nodes) == (at, len(below))
        assert {(branch.level + 1, branch.offset)} == {(len(path), path[0][1]) for path in below}
        at += branch.nodes
    assert max_blocks(tree.n, 3, 7) == 7 + 3 * at
