"""Winning free blocks: what is in use in a block is marked as changed, so that the next commit writes it elsewhere.

A page's tag names its owner.  A file's pages remember the directory and the name under which they were written; where
the file has moved since, it is looked for in that directory, and then everywhere, once for all pages of a cleaning.
"""

from __future__ import annotations

from collections.abc import Callable

from f2tools.dffs.checkpoints import Checkpoints
from f2tools.dffs.layout import (
    BY_PAGE,
    DATA,
    DIRECTORY,
    FILE,
    FIRST_INO,
    INDEX,
    LINK,
    POINTER_BITS,
    ROOT_ID,
    SPACE,
    TABLE,
    VIRTUAL,
    index_place,
)
from f2tools.dffs.nodes import Directory, File, Link
from f2tools.dffs.pages import Tagged
from f2tools.errors import Corrupt, F2fsError, Where

LEAST_ROUNDS = 16
PAGES_EACH = 3
"""What moving one page may take: itself, the file's inode, the directory."""


def clean(engine: Checkpoints, enough: Callable[[], bool]) -> int:
    """Empty blocks until it is enough or nothing more can be won; how many were emptied."""
    emptied = 0
    for _ in range(LEAST_ROUNDS + engine.shape.blocks // 4):
        count = clean_once(engine)
        emptied += count
        if enough() or not count:
            break
    return emptied


def clean_once(engine: Checkpoints, most: int | None = None) -> int:
    """Empty the best blocks, as many as there is room to move; how many.  Ends with a checkpoint."""
    log, space = engine.log, engine.space
    budget = log.room - engine._checkpoint_cost(all_of_it=True) - engine.shape.pages_per_block
    victims = [block for block in log.failing if space.counts[block] and block != log.block]
    resting = space.resting(log.busy)
    if resting is not None:
        victims.append(resting)
    now = log.seq // engine.shape.pages_per_block
    victims += [block for block in space.victims(log.busy, engine.policy, now) if block not in victims]
    mover = Mover(engine)
    count = 0
    for block in victims[:most]:
        if engine.waiting + (PAGES_EACH if count else 1) * int(space.counts[block]) > budget:
            break
        mover.empty(block)
        count += 1
    engine.checkpoint()
    return count


class Mover:
    """One cleaning; see the module's docstring."""

    def __init__(self, engine: Checkpoints) -> None:
        self.engine = engine
        self.space = engine.space
        self._moved: dict[int, File] | None = None

    def empty(self, block: int) -> None:
        """Mark all that is in use in a block as changed."""
        for page in self.space.pages_of(block):
            tag = self.engine.pages.tag(page)
            if tag is None:
                raise Corrupt(Where(area=f"page {page}"), "it is in use, and its spare area does not say by whom")
            if self.space.live[page]:  # a page that was marked before may have taken this one with it
                self.page(page, tag)

    def page(self, page: int, tag: Tagged) -> None:
        """Mark what a page holds as changed."""
        engine = self.engine
        if tag.kind == TABLE:
            engine.table_page(tag.offset)
            engine._tables_changed.add(tag.offset)
        elif tag.kind == SPACE:
            engine.log.space_crcs.pop(tag.offset, None)
        elif tag.kind in (DIRECTORY, VIRTUAL) or (tag.kind == FILE and tag.id):
            engine.touch(engine.by_id(tag.id))
        elif tag.kind in (FILE, LINK):
            engine.touch(self._by_page(page, tag))
        elif tag.kind in (DATA, INDEX):
            self._content(page, tag)
        else:
            raise Corrupt(Where(area=f"page {page}"), f"a page of kind {tag.said} among those of the log")

    def _by_page(self, page: int, tag: Tagged) -> File | Link:
        pointer = BY_PAGE << POINTER_BITS | page
        directory = self.engine.directory(tag.parent)
        for found, _ in self.engine.bucket(directory, tag.hash % self.engine.shape.buckets):
            if found == pointer:
                node = self.engine.child(pointer)
                assert not isinstance(node, Directory)
                return node
        changed = next((node for node in self.engine._tokens.values() if node.page == page), None)
        if changed is not None:
            return changed  # it is written anew anyway
        raise Corrupt(Where(area=f"page {page}"), f"directory {tag.parent} has no entry for it")

    def _content(self, page: int, tag: Tagged) -> None:
        engine, file = self.engine, self._owner(page, tag)
        engine.touch(file)
        if tag.kind == DATA:
            if tag.offset not in file.fresh:
                file.fresh[tag.offset] = bytearray(engine.content_page(file, tag.offset))
                engine._fresh += 1
            return
        level, number = tag.offset >> 28, tag.offset & ((1 << 28) - 1)
        engine._changing_index(file, level, number)
        if file.ino in engine._nameless:  # it will not be written any more: what it says is kept in memory
            engine.forget_index(file, level, number)

    def _owner(self, page: int, tag: Tagged) -> File:
        """The file that has a page of content or index."""
        for look in (self._where_it_was, self._where_it_is_known, self._in_its_directory, self._anywhere):
            try:
                file = look(tag)
            except F2fsError:
                continue
            if file is not None and self._has(file, page, tag):
                return file
        raise Corrupt(Where(ino=tag.ino, area=f"page {page}"), "it is in use, and no file has it")

    def _has(self, file: File, page: int, tag: Tagged) -> bool:
        if tag.kind == INDEX:
            level, number = tag.offset >> 28, tag.offset & ((1 << 28) - 1)
            return level < 3 and self.engine.index_address(file, level, number) == page
        leaf, _ = index_place(self.engine.shape, tag.offset)
        return leaf < self.engine.shape.pages and self.engine.data_page(file, tag.offset) == page

    def _where_it_was(self, tag: Tagged) -> File | None:
        engine = self.engine
        if tag.id:
            node = engine.by_id(tag.id)
            return node if isinstance(node, File) and node.ino == tag.ino else None
        if tag.ino in engine._nameless:
            return None
        for pointer, hashed in engine.bucket(engine.directory(tag.parent), tag.hash % engine.shape.buckets):
            if hashed in (None, tag.hash):
                node = engine.child(pointer)
                if isinstance(node, File) and node.ino == tag.ino:
                    return node
        return None

    def _where_it_is_known(self, tag: Tagged) -> File | None:
        node = self.engine.file(tag.ino)
        return node if isinstance(node, File) else None

    def _in_its_directory(self, tag: Tagged) -> File | None:
        for entry in self.engine.entries(self.engine.directory(tag.parent)):
            if isinstance(entry.inode, File):
                self.engine.remember(entry.inode)
        return self._where_it_is_known(tag)

    def _anywhere(self, tag: Tagged) -> File | None:
        """By a walk over the tree.  It is made once for a cleaning: the files that it finds are remembered."""
        if self._moved is None:
            self._moved = {}
            todo, met = [ROOT_ID], {ROOT_ID}
            while todo:
                for entry in self.engine.entries(self.engine.directory(todo.pop())):
                    if isinstance(entry.inode, Directory):
                        if entry.inode.id not in met:
                            met.add(entry.inode.id)
                            todo.append(entry.inode.id)
                    else:
                        self.engine.remember(entry.inode)
                        if entry.inode.ino == tag.ino and tag.ino >= FIRST_INO:
                            return entry.inode
            return None
        return self._walk_for(tag)

    def _walk_for(self, tag: Tagged) -> File | None:
        self._moved = None
        return self._anywhere(tag)
