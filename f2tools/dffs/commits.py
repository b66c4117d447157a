"""Commits: what waits in memory is written together, and counts from the last of its pages on.

Content, index pages, files, virtual inodes, directories: a directory is always written after its files, whose pages
its buckets name, and nothing above it has to be.
"""

from __future__ import annotations

from array import array

from f2tools.device.base import Device
from f2tools.dffs.layout import BY_PAGE, DATA, INDEX, POINTER_BITS, index_key, index_parent, index_place
from f2tools.dffs.log import Log
from f2tools.dffs.nodes import Directory, File, Link, Node, Virtual, name_hash
from f2tools.dffs.pages import Tagged
from f2tools.dffs.waiting import Waiting
from f2tools.errors import Unsupported
from f2tools.flash.nand import Nand


class Commits(Waiting):
    """A volume whose changes can be written; see the module's docstring."""

    def __init__(self, device: Device | Nand, *, keep_nodes: int) -> None:
        super().__init__(device, keep_nodes=keep_nodes)
        if not self.pages.has_spare:
            raise Unsupported(f"{self.name}: a dump without spare areas can only be read")
        self.log = Log(self.pages, self.sb, self.state, self.space)
        self._fresh = 0
        self._indexed: set[int] = set()

    def commit(self) -> None:
        """Write what has changed; from its last page on it counts."""
        nodes = list(self._tokens.values()) + [node for node in self._by_id.values() if isinstance(node, File)]
        for node in nodes:
            if isinstance(node, File):
                self._write_content(node)
        for node in self._nameless.values():
            if isinstance(node, File):
                self._write_fresh(node)
        order: list[Node] = [node for node in nodes if not node.id]
        order += [node for node in self._by_id.values() if isinstance(node, File)]
        order += [node for node in self._by_id.values() if isinstance(node, Virtual)]
        order += [node for node in self._by_id.values() if isinstance(node, Directory)]
        for number, node in enumerate(order):
            self._write_node(node, commit=number == len(order) - 1)
        self._tokens.clear()
        self._by_id.clear()
        self._indexed.clear()

    def _append(self, kind: int, data: bytes, tag: Tagged, *, commit: bool = False) -> int:
        """Write a page to the log; what was cached of its place dates from before the block was erased."""
        page = self.log.append(kind, data, tag, commit=commit)
        self._index.pop(page, None)
        self._nodes.pop(page, None)
        return page

    def _write_node(self, node: Node, *, commit: bool) -> None:
        page = self._append(node.page_kind, node.build(self.shape), self._tag(node), commit=commit)
        self.space.give(node.page)
        if node.id:
            self._set_id(node.id, page)
        else:
            assert isinstance(node, File | Link)
            directory = self.directory(node.parent)
            self.names.replace(directory, name_hash(node.name), node.token, BY_PAGE << POINTER_BITS | page)
            node.token = 0
        node.page, node.dirty = page, False
        super()._keep(node)

    def _tag(self, node: Node, offset: int = 0) -> Tagged:
        hashed = name_hash(node.name) if isinstance(node, File | Link) else 0
        return Tagged(0, 0, node.id, node.parent, hashed, offset, node.ino, 0, 0)

    def _write_content(self, file: File) -> None:
        self._write_fresh(file)
        for level, number in sorted(file.index):
            old = self._index_pointer(file, level, number)
            page = self._append(INDEX, file.index[level, number].tobytes(), self._tag(file, index_key(level, number)))
            self.space.give(old)
            file.pages += not old
            self._point(file, level, number, page)
        file.index.clear()

    def _write_fresh(self, file: File) -> None:
        for number in sorted(file.fresh):
            page = self._append(DATA, bytes(file.fresh[number]), self._tag(file, number))
            old = self._set_data(file, number, page)
            self.space.give(old)
            file.pages += not old
        self._fresh -= len(file.fresh)
        file.fresh.clear()

    def _set_data(self, file: File, number: int, page: int) -> int:
        """Let a page of a file's content lie elsewhere; where it lay."""
        leaf, place = index_place(self.shape, number)
        numbers = file.slots if leaf < 0 else self._changing_index(file, 0, leaf)
        old, numbers[place] = numbers[place], page
        return old

    def _changing_index(self, file: File, level: int, number: int) -> array[int]:
        """An index page that is about to change, and so are those above it; a new one where there is none."""
        found = file.index.get((level, number))
        if found is None:
            there = self.index_page(file, level, number)
            found = array("I", bytes(self.shape.page_size)) if there is None else array("I", there)
            file.index[level, number] = found
            self._indexed.add(file.ino)
            above, which, _ = index_parent(self.shape, level, number)
            if above >= 0:
                self._changing_index(file, above, which)
        return found

    def _index_pointer(self, file: File, level: int, number: int) -> int:
        above, which, place = index_parent(self.shape, level, number)
        return (file.slots if above < 0 else self._changing_index(file, above, which))[place]

    def _point(self, file: File, level: int, number: int, page: int) -> None:
        above, which, place = index_parent(self.shape, level, number)
        (file.slots if above < 0 else self._changing_index(file, above, which))[place] = page

    def forget_index(self, file: File, level: int, number: int) -> None:
        """An index page of a file without a name stays in memory; its place is given back."""
        page = self._index_pointer(file, level, number)
        self.space.give(page)
        file.pages -= bool(page)
        self._point(file, level, number, 0)
