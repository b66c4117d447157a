"""Every page of a chip looked at once: what its tag says, what it holds, and which pages count.

A page can be trusted without its tag, since inodes, virtual inodes and links have a checksum of their own; where tag
and page disagree on the owner, the tag is trusted.  What counts is what was in use at the last checkpoint or was
committed since; where that can't be told, it is the newest page of its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from f2tools.dffs.layout import (
    CHECKPOINT,
    COMMIT,
    DATA,
    DIRECTORY,
    FILE,
    FIRST_INO,
    INDEX,
    INODE_MAGIC,
    LINK,
    LINK_MAGIC,
    VIRTUAL,
    VIRTUAL_MAGIC,
    Shape,
)
from f2tools.dffs.nodes import Link, Malformed, Node, Virtual, name_hash, parse_node
from f2tools.dffs.pages import Pages, Tagged, parse_tag
from f2tools.errors import Corrupt, DeviceError, Where

ERASED, WHOLE, WRONG, UNKNOWN = range(4)
"""States of a page: nothing is in it; its content is right; bits of it are wrong for good; it has no tag and no
checksum of its own."""
NODES = (DIRECTORY, VIRTUAL, FILE, LINK)
_NODE_MAGICS = {magic.to_bytes(4, "little") for magic in (INODE_MAGIC, VIRTUAL_MAGIC, LINK_MAGIC)}


class Scan:
    """What was found, by page; see the module's docstring."""

    def __init__(
        self, pages: Pages, cp_blocks: Iterable[int], advance: Callable[[int], None] = lambda _: None
    ) -> None:  # fmt: skip
        self.pages = pages
        self.shape: Shape = pages.shape
        count = self.shape.pages
        self.state: NDArray[np.uint8] = np.zeros(count, np.uint8)
        self.kind: NDArray[np.uint8] = np.zeros(count, np.uint8)
        self.commits: NDArray[np.bool_] = np.zeros(count, np.bool_)
        self.id: NDArray[np.uint16] = np.zeros(count, np.uint16)
        self.parent: NDArray[np.uint16] = np.zeros(count, np.uint16)
        self.hash: NDArray[np.uint32] = np.zeros(count, np.uint32)
        self.offset: NDArray[np.uint32] = np.zeros(count, np.uint32)
        self.ino: NDArray[np.uint32] = np.zeros(count, np.uint32)
        self.seq: NDArray[np.uint64] = np.zeros(count, np.uint64)
        for block in range(self.shape.blocks):
            self._block(block)  # one with a bad block mark, too: what was written there before is read as ever
            advance(1)
        block_of = np.arange(count) // self.shape.pages_per_block
        self.kind[(self.kind == CHECKPOINT) & ~np.isin(block_of, list(cp_blocks))] = 0
        self.counts: NDArray[np.bool_] = self.kind != 0
        self._index()

    def _block(self, block: int) -> None:
        assert self.pages.chip is not None
        first, size = block * self.shape.pages_per_block, self.shape.page_size
        for page in range(first, first + self.shape.pages_per_block):
            try:
                data, spare = self.pages.chip.read(page)
            except DeviceError:
                self.state[page] = WRONG
                continue
            if not (data + spare).strip(b"\xff"):
                continue
            tag = parse_tag(spare)
            if tag is not None:
                self._note(page, tag)
                self.state[page] = WHOLE if self._is_right(data, spare, tag, page) else WRONG
                if self.state[page] == WRONG and data[:4] in _NODE_MAGICS and self._parsed(page, data) is not None:
                    self.state[page] = WHOLE
            else:
                self._note_untagged(page, data[:size])

    def _is_right(self, data: bytes, spare: bytes, tag: Tagged, page: int) -> bool:
        try:
            self.pages.right(data, spare, tag, Where(area=f"page {page}"))
        except Corrupt:
            return False
        return True

    def _parsed(self, page: int, data: bytes) -> Node | None:
        try:
            return parse_node(self.shape, page, data)
        except Malformed:
            return None

    def _note_untagged(self, page: int, data: bytes) -> None:
        node = self._parsed(page, data) if data[:4] in _NODE_MAGICS else None
        self.state[page] = UNKNOWN if node is None else WHOLE
        if node is not None:
            hashed = 0 if isinstance(node, Virtual) else name_hash(node.name)
            self._note(page, Tagged(node.page_kind, 0, node.id, node.parent, hashed, 0, node.ino, 0, 0))

    def _note(self, page: int, tag: Tagged) -> None:
        self.kind[page], self.commits[page], self.id[page] = tag.kind, bool(tag.flags & COMMIT), tag.id
        self.parent[page], self.hash[page], self.offset[page] = tag.parent, tag.hash, tag.offset
        self.ino[page], self.seq[page] = tag.ino, tag.seq

    def _index(self) -> None:
        """Pages by inode number and by logical id, the newest last."""
        there = np.flatnonzero(self.kind != 0)
        self._by_ino = there[np.lexsort((self.seq[there], self.ino[there]))]
        self._inos = self.ino[self._by_ino]
        self._by_id = there[np.lexsort((self.seq[there], self.id[there]))]
        self._ids = self.id[self._by_id]

    # -- what counts

    @property
    def last_seq(self) -> int:
        """The highest number that any page has."""
        return int(self.seq.max(initial=0))

    def last_checkpoint(self) -> int:
        """The number of the newest checkpoint, also of one that can't be read."""
        return int(self.offset[self.kind == CHECKPOINT].max(initial=0))

    def end_of_log(self) -> int:
        """The number behind the last page that is marked as a commit: what a volume without a checkpoint ends with."""
        return int(self.seq[self.commits].max(initial=0)) + 1

    def was_committed(self, first: int, end: int) -> bool:
        """Whether a page with a number in this range is marked as a commit."""
        return bool((self.commits & (self.seq >= first) & (self.seq < end)).any())

    def forget_from(self, seq: int) -> None:
        """What was written from this number on never counted."""
        self.kind[(self.seq >= seq) & (self.kind != CHECKPOINT)] = 0
        self.counts = self.kind != 0
        self._index()

    def in_use(self, live: NDArray[np.bool_], since: int) -> None:
        """What counts is what was in use at the checkpoint, and what was written from number `since` on."""
        self.counts = (self.kind != 0) & (live | (self.seq >= since))
        self._newest_only()

    def newest(self) -> None:
        """What counts is the newest page of each owner, as nothing else is known."""
        self.counts = self.kind != 0
        self._newest_only()

    def _newest_only(self) -> None:
        """Of pages that say to be the same thing, the newest is."""
        there = np.flatnonzero(self.counts)
        kind, by_id = self.kind[there], self.id[there]
        content = np.isin(kind, (DATA, INDEX))
        named = kind == LINK
        # the owner: an id, or an inode number, or for a link the directory; then the place in it
        owner = np.where(content, self.ino[there].astype(np.uint64), 0)
        owner = np.where(named, self.parent[there].astype(np.uint64) << np.uint64(33), owner)
        owner = np.where(
            np.isin(kind, (DIRECTORY, VIRTUAL, FILE)),
            np.where(by_id > 0, by_id.astype(np.uint64), self.ino[there].astype(np.uint64)), owner,
        )  # fmt: skip
        place = np.where(named, self.hash[there], np.where(content, self.offset[there], 0))
        group = np.where(content | named, kind, 0)
        group = np.where(np.isin(kind, (DIRECTORY, VIRTUAL, FILE)), FILE, group)
        rest = group == 0
        order = np.lexsort((self.seq[there], place, owner, group))
        same = np.zeros(len(there), np.bool_)
        same[:-1] = (
            (group[order][1:] == group[order][:-1])
            & (owner[order][1:] == owner[order][:-1])
            & (place[order][1:] == place[order][:-1])
        )
        older = np.zeros(len(there), np.bool_)
        older[order] = same
        self.counts[there[older & ~rest]] = False

    # -- questions

    def written(self) -> NDArray[np.bool_]:
        """Of each page, whether it or one behind it in its erase block has something: what is free has not."""
        there = (self.state != ERASED).reshape(self.shape.blocks, -1)
        return np.logical_or.accumulate(there[:, ::-1], axis=1)[:, ::-1].reshape(-1)

    def of_ino(self, ino: int, kinds: Iterable[int]) -> list[int]:
        """Pages of these kinds of an inode number, those that count first, then the newest first."""
        low, high = np.searchsorted(self._inos, [ino, ino + 1])
        return self._sorted(self._by_ino[low:high], kinds)

    def of_id(self, number: int, kinds: Iterable[int]) -> list[int]:
        """Pages of these kinds of a logical id, those that count first, then the newest first."""
        low, high = np.searchsorted(self._ids, [number, number + 1])
        return self._sorted(self._by_id[low:high], kinds)

    def with_ids(self, kinds: Iterable[int]) -> list[int]:
        """All pages of these kinds that count and say a logical id, the newest of an id last."""
        found = self._by_id[self._ids > 0]
        return found[self.counts[found] & np.isin(self.kind[found], list(kinds))].tolist()

    def _sorted(self, pages: NDArray[np.int64], kinds: Iterable[int]) -> list[int]:
        found = pages[np.isin(self.kind[pages], list(kinds))]
        order = np.lexsort((self.seq[found], self.counts[found]))[::-1]
        return found[order].tolist()

    def content_of(self, ino: int) -> dict[int, int]:
        """By page of a file: where it lies, of what counts."""
        found = [page for page in self.of_ino(ino, (DATA,)) if self.counts[page]]
        return {int(self.offset[page]): page for page in reversed(found)}

    def is_content(self, page: int, kind: int, ino: int, offset: int) -> bool:
        """Whether a page is this page of content or index of a file; one whose tag is lost may be."""
        if not 0 < page < self.shape.pages or self.state[page] == ERASED:
            return False
        if self.state[page] == UNKNOWN:
            return kind == DATA
        return (int(self.kind[page]), int(self.ino[page]), int(self.offset[page])) == (kind, ino, offset)

    def unowned(self, taken: NDArray[np.bool_], kinds: Iterable[int]) -> list[int]:
        """Pages of these kinds that count and are not taken; the newest first."""
        found = np.flatnonzero(self.counts & ~taken & np.isin(self.kind, list(kinds)))
        return found[np.argsort(self.seq[found], kind="stable")[::-1]].tolist()

    def node(self, page: int) -> Node | None:
        """The inode, virtual inode or link in a page, if it can be used; the tag names its owner, if there is one."""
        if not 0 < page < self.shape.pages or self.state[page] != WHOLE or self.kind[page] not in NODES:
            return None
        assert self.pages.chip is not None
        data = self._parsed(page, self.pages.chip.read(page)[0])
        node = self._parsed(page, self.pages.content(page)) if data is None else data
        if node is None or node.page_kind != self.kind[page] or self.id[page] >= self.shape.ids:
            return None
        if isinstance(node, Virtual):
            node.id = int(self.id[page])
        elif not isinstance(node, Link):
            ino, number = int(self.ino[page]), int(self.id[page])
            if (node.page_kind == DIRECTORY and ino == number) or (node.page_kind == FILE and ino >= FIRST_INO):
                node.ino, node.id = ino, number
            else:
                return None
        return node

    def as_read(self, page: int) -> bytes:
        """The content of a page with whatever bits are wrong."""
        assert self.pages.chip is not None
        try:
            return self.pages.chip.read(page)[0]
        except DeviceError:
            return bytes(self.shape.page_size)
