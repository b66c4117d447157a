"""What has changed and waits in memory: nodes by logical id, by token, and files by their number.

A file that changed has a token in its directory's bucket until it is written and its page is known.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

from f2tools.device.base import Device
from f2tools.dffs.layout import BY_PAGE, FIRST_INO, IN_MEMORY, MOST_INOS, POINTER_BITS, ROOT_ID
from f2tools.dffs.names import NameTree
from f2tools.dffs.nodes import Directory, File, Link, Node, Virtual, by_id, name_hash
from f2tools.dffs.space import Space
from f2tools.dffs.state import checkpoint_blocks
from f2tools.dffs.volume import Volume, fail
from f2tools.errors import Corrupt, Where
from f2tools.flash.nand import Nand

KEPT_PLACES = 16384


class NoIds(OSError):
    """The mapping table is full: no further directory, virtual inode or file with a second name is possible."""


class Waiting(Volume):
    """A volume and its changes; see the module's docstring."""

    def __init__(self, device: Device | Nand, *, keep_nodes: int) -> None:
        super().__init__(device, keep_nodes=keep_nodes)
        self.names = NameTree(self)
        self.space = Space(self.shape, self._kept_blocks())
        self._tables_changed: set[int] = set()
        self._ids_cursor = ROOT_ID
        self._ids_used = self.state.head.ids
        self._next_ino = max(self.state.head.next_ino, FIRST_INO)
        self._by_id: dict[int, Directory | File | Virtual] = {}
        self._tokens: dict[int, File | Link] = {}
        self._next_token = 1
        self._held: dict[int, int] = {}
        self._nameless: dict[int, Directory | File] = {}
        self._pinned: dict[int, tuple[int, int]] = {}
        self._recent: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._inside = False

    def _kept_blocks(self) -> list[int]:
        supers = [int(block) for block in self.sb.supers if block < self.shape.blocks]  # type: ignore[attr-defined]
        bad = [block for block in range(self.shape.blocks) if self.pages.is_bad(block)]
        return [*supers, *checkpoint_blocks(self.sb), *bad]

    # -- the mapping table

    def id_page(self, number: int) -> int:
        if number == ROOT_ID and not self._tables_changed and not self.rolled.ids:
            return self.state.head.root
        if self.rolled.ids:
            return super().id_page(number)
        if not 0 < number < self.shape.ids:
            raise Corrupt(Where(area=f"logical id {number}"), "there is no such id")
        which, place = divmod(number, self.shape.pointers)
        return self.table_page(which)[place]

    def _set_id(self, number: int, page: int) -> None:
        which, place = divmod(number, self.shape.pointers)
        self.table_page(which)[place] = page
        self._tables_changed.add(which)

    def new_id(self) -> int:
        """A logical id that is free; NoIds where there is none."""
        self.check_ids(1)
        self._ids_cursor = next(self._free_ids())
        self._ids_used += 1
        return self._ids_cursor

    def check_ids(self, count: int) -> None:
        """NoIds where so many logical ids are not free."""
        if sum(1 for _ in islice(self._free_ids(), count)) < count:
            raise NoIds(
                errno.ENOSPC,
                f"the mapping table is full: {self.shape.ids - 1} directories, virtual inodes and files with several "
                "names",
            )

    def _free_ids(self) -> Iterator[int]:
        for step in range(1, self.shape.ids):
            number = (self._ids_cursor + step) % self.shape.ids
            if number and number not in self._by_id and number not in self._nameless and not self.id_page(number):
                yield number

    def drop_id(self, node: Directory | File | Virtual) -> None:
        """Note that the node with this logical id is gone from the tree."""
        self.space.give(node.page)
        self._nodes.pop(node.page, None)
        self._by_id.pop(node.id, None)
        self._set_id(node.id, 0)
        self._ids_used -= 1
        node.page = 0
        node.dirty = False

    # -- nodes

    def by_id(self, number: int) -> Directory | File | Virtual:
        found = self._by_id.get(number)
        return super().by_id(number) if found is None else found

    def child(self, pointer: int) -> Directory | File | Link:
        found = self._tokens.get(pointer)
        return super().child(pointer) if found is None else found  # a token on the flash is none of ours

    def _keep(self, node: Node) -> None:
        if self._inside:  # an operation holds nodes; they must stay the only ones of their pages
            self._nodes[node.page] = node
        else:
            super()._keep(node)

    def touch(self, node: Node) -> None:
        """Note that a node is about to change: it is kept in memory until it is written."""
        if node.dirty:
            return
        node.dirty = True
        self._nodes.pop(node.page, None)
        if not isinstance(node, Link) and node.ino in self._nameless:
            return
        if node.id:
            assert not isinstance(node, Link)
            self._by_id[node.id] = node
            return
        assert isinstance(node, File | Link)
        self._with_token(node)
        parent = self.directory(node.parent)
        self.names.replace(parent, name_hash(node.name), BY_PAGE << POINTER_BITS | node.page, node.token)

    def adopt(self, node: Node) -> None:
        """Note a new node."""
        node.dirty = True
        if node.id:
            assert not isinstance(node, Link)
            self._by_id[node.id] = node
        else:
            assert isinstance(node, File | Link)
            self._with_token(node)

    def _with_token(self, node: File | Link) -> None:
        node.token = IN_MEMORY << POINTER_BITS | self._next_token
        self._next_token += 1
        self._tokens[node.token] = node

    def pointer_to(self, node: Directory | File | Link) -> int:
        """The value of a bucket that leads to a node."""
        if node.id:
            return by_id(node.id)
        assert not isinstance(node, Directory)
        return node.token if node.dirty else BY_PAGE << POINTER_BITS | node.page

    # -- files by number

    def file(self, ino: int) -> Directory | File:
        """The inode with this number, if it was found by its name before; else Corrupt."""
        found = self._nameless.get(ino)
        if found is not None:
            return found
        if ino < FIRST_INO:
            return self.directory(ino)
        place = self._pinned.get(ino) or self._recent.get(ino)
        if place is not None:
            number, hashed = place
            if hashed < 0:
                node = self.by_id(number)
                if isinstance(node, File) and node.ino == ino:
                    return node
            else:
                for pointer, known in self.bucket(self.directory(number), hashed % self.shape.buckets):
                    if known in (None, hashed):
                        node = self.child(pointer)
                        if isinstance(node, File) and node.ino == ino:
                            return node
        raise Corrupt(Where(ino=ino), "nobody knows where a file with this number is")

    def remember(self, inode: Directory | File) -> None:
        """Know where a file is, by its number."""
        if isinstance(inode, Directory):
            return
        place = (inode.id, -1) if inode.id else (inode.parent, name_hash(inode.name))
        if inode.ino in self._held:
            self._pinned[inode.ino] = place
            return
        self._recent[inode.ino] = place
        self._recent.move_to_end(inode.ino)
        while len(self._recent) > KEPT_PLACES:
            self._recent.popitem(last=False)

    def new_ino(self) -> int:
        """A number for a new file; each is used once."""
        if self._next_ino >= MOST_INOS:
            raise fail(errno.ENOSPC)
        self._next_ino += 1
        return self._next_ino - 1

    def hold(self, ino: int) -> None:
        """Hold an inode: it stays when its last name goes."""
        self._held[ino] = self._held.get(ino, 0) + 1
        place = self._recent.pop(ino, None)
        if place is not None:
            self._pinned[ino] = place

    @property
    def nameless(self) -> list[int]:
        """The inodes without a name that are held."""
        return sorted(self._nameless)
