"""What every change of a volume goes through: operations, nodes that changed, commits, checkpoints, what a cut left.

What changed collects in memory and is written together: content, index pages, files, virtual inodes, directories, and
the last of these pages is marked as a commit.  A file that changed has a token in its directory's bucket until it is
written and its page is known; so a directory is always written after its files, and nothing above it has to be.  After
an error of the flash nothing is written any more.
"""

from __future__ import annotations

import errno
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from f2tools.device.base import Device
from f2tools.dffs.layout import (
    BY_PAGE,
    DATA,
    FIRST_INO,
    IN_MEMORY,
    INDEX,
    MOST_INOS,
    POINTER_BITS,
    ROOT_ID,
    SPACE,
    index_key,
    index_parent,
    index_place,
)
from f2tools.dffs.log import Log
from f2tools.dffs.names import NameTree
from f2tools.dffs.nodes import Directory, File, Link, Node, Virtual, by_id, name_hash
from f2tools.dffs.opening import go_on, recover, right_table
from f2tools.dffs.pages import Tagged
from f2tools.dffs.space import Policy, Space
from f2tools.dffs.state import Rolled, checkpoint_blocks
from f2tools.dffs.volume import KEPT_NODES, Volume, fail
from f2tools.errors import Corrupt, F2fsError, Unsupported, Where
from f2tools.flash.nand import Nand

KEPT_PLACES = 16384
MOST_FRESH = 512  # pages of content that wait in memory
MOST_WAITING = 4096  # nodes
SHARE_WON_IDLE = 8  # one part in so many of the blocks is won while nobody asks
SHARE_KEPT_FREE = 6  # one part in so many, for cleaning to be cheap
LEAST_TO_CLEAN, MOST_TO_CLEAN = 6, 16  # blocks that the log always has left, for cleaning to move much at once


class NoIds(OSError):
    """The mapping table is full: no further directory, virtual inode or file with a second name can be."""


class Engine(Volume):
    """A volume that is open for writing; see the module's docstring."""

    def __init__(
        self,
        device: Device | Nand,
        *,
        clock: Callable[[], int] = time.time_ns,
        keep_nodes: int = KEPT_NODES,
        policy: Policy = "greedy",
    ) -> None:
        super().__init__(device, keep_nodes=keep_nodes)
        if not self.pages.has_spare:
            raise Unsupported(f"{self.name}: a dump without spare areas can only be read")
        self.clock = clock
        self.policy: Policy = policy
        self.names = NameTree(self)
        self.space = Space(self.shape, self._kept_blocks())
        self.log = Log(self.pages, self.sb, self.state, self.space)
        self._loaded = False
        self._tables_changed: set[int] = set()
        self._ids_cursor = ROOT_ID
        self._ids_used = self.state.head.ids
        self._next_ino = max(self.state.head.next_ino, FIRST_INO)
        self._by_id: dict[int, Directory | File | Virtual] = {}
        self._tokens: dict[int, File | Link] = {}
        self._next_token = 1
        self._fresh = 0
        self._indexed: set[int] = set()
        self._held: dict[int, int] = {}
        self._nameless: dict[int, Directory | File] = {}
        self._pinned: dict[int, tuple[int, int]] = {}
        self._recent: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._inside = False
        self._broken: str | None = None
        self._changed = False
        self._closed = False
        self._generation = self.clock() // 1_000_000
        if not self.clean:
            with self._guarded():
                recover(self)

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
        for step in range(1, self.shape.ids):
            number = (self._ids_cursor + step) % self.shape.ids
            if number and number not in self._by_id and number not in self._nameless and not self.id_page(number):
                self._ids_cursor = number
                self._ids_used += 1
                return number
        raise NoIds(
            errno.ENOSPC,
            f"the mapping table is full: {self.shape.ids - 1} directories, virtual inodes and files with several names",
        )

    def drop_id(self, node: Directory | File | Virtual) -> None:
        """What has this logical id is gone from the tree."""
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
        if pointer >> POINTER_BITS == IN_MEMORY:
            return self._tokens[pointer]
        return super().child(pointer)

    def _keep(self, node: Node) -> None:
        if self._inside:  # an operation holds nodes; they must stay the only ones of their pages
            self._nodes[node.page] = node
        else:
            super()._keep(node)

    def touch(self, node: Node) -> None:
        """A node is about to change: it is kept in memory until it is written."""
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
        """A node is new."""
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
        """What a bucket has to hold to lead to a node."""
        if node.id:
            return by_id(node.id)
        assert not isinstance(node, Directory)
        return node.token if node.dirty else BY_PAGE << POINTER_BITS | node.page

    # -- files by number

    def file(self, ino: int) -> Directory | File:
        """The inode with this number, which somebody found by its name before; Corrupt where nobody did."""
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
        """Somebody knows this inode: it stays when its last name goes."""
        self._held[ino] = self._held.get(ino, 0) + 1
        place = self._recent.pop(ino, None)
        if place is not None:
            self._pinned[ino] = place

    def release(self, ino: int) -> None:
        """One who knew it has forgotten it; without a name it goes."""
        count = self._held.get(ino, 0) - 1
        if count > 0:
            self._held[ino] = count
            return
        self._held.pop(ino, None)
        place = self._pinned.pop(ino, None)
        if place is not None:
            self._recent[ino] = place
        gone = self._nameless.get(ino)
        if gone is not None and self._broken is None:
            with self._operation(0):
                self._evict(gone)

    @property
    def nameless(self) -> list[int]:
        """The inodes without a name that are held."""
        return sorted(self._nameless)

    # -- making it safe

    def fsync(self, ino: int, datasync: bool = False) -> None:
        """Make one file or directory safe, and all else with it."""
        self.sync()

    def sync(self) -> None:
        """Make everything safe."""
        if self._broken is not None:
            raise fail(errno.EROFS)
        if self._changed:
            with self._guarded():
                self.commit()
                self.log.chip.flush()
                self._changed = False

    @property
    def unsaved(self) -> bool:
        """Whether anything has changed since the last sync."""
        return self._changed

    @property
    def broken(self) -> str | None:
        """Why nothing is written any more, if that is so."""
        return self._broken

    def stop_writing(self, why: str) -> bool:
        """Change nothing on the flash any more, what is not safe is lost; False where that was so already."""
        if self._broken is not None:
            return False
        self._broken = why
        return True

    def close(self) -> None:
        """Make everything safe, write a checkpoint that says so, and let go of the device."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._broken is None and self._loaded:
                for ino in self.nameless:
                    self._evict(self._nameless[ino])
                self.commit()
                if self.log.since or not self.state.head.clean:
                    self.checkpoint(clean=True)
        finally:
            self.pages.close()

    def abandon(self) -> None:
        """Let go without writing anything more, as a power cut would."""
        self._closed = True
        self.pages.close()

    # -- operations

    @contextmanager
    def _operation(self, pages: int) -> Iterator[None]:
        """One change; room for so many pages more is seen to first."""
        if self._broken is not None:
            raise fail(errno.EROFS)
        with self._guarded():
            self._load()
            self.make_room(pages)
            self._changed = self._inside = True
            try:
                yield
            except OSError:  # refused before anything was changed
                raise
            except BaseException as error:  # half of the change may be made, and must not be made safe
                self._broken = self._broken or str(error) or type(error).__name__
                raise
            finally:
                self._inside = False
                while len(self._nodes) > self.keep_nodes:
                    self._nodes.popitem(last=False)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """An error of the flash ends all writing: what is in memory and what is on it may not agree any more."""
        try:
            yield
        except Corrupt:
            raise
        except F2fsError as error:
            self._broken = self._broken or str(error)
            raise

    @property
    def waiting(self) -> int:
        """Pages that a commit would write at most."""
        return self._fresh + len(self._tokens) + len(self._by_id) + self._index_waiting()

    def _index_waiting(self) -> int:
        return 4 * len(self._indexed) + self._fresh // self.shape.pointers

    @property
    def capacity(self) -> int:
        """Pages that can be in use; the rest is for cleaning and checkpoints."""
        return max(0, self.space.log_pages - self._reserve())

    def _left_to_clean(self) -> int:
        blocks = min(max(self.shape.blocks // 16, LEAST_TO_CLEAN), MOST_TO_CLEAN)
        return blocks * self.shape.pages_per_block

    def _reserve(self) -> int:
        return (
            2 * self._left_to_clean()
            + 2 * self._checkpoint_cost(all_of_it=True)
            + self.space.log_pages // SHARE_KEPT_FREE
        )

    def _checkpoint_cost(self, all_of_it: bool = False) -> int:
        tables = self.shape.table_pages if all_of_it else len(self._tables_changed) + 2
        return min(tables, self.shape.table_pages) + self.shape.space_pages

    def make_room(self, pages: int) -> None:
        """See to it that so many pages can be written and be in use, and a checkpoint after them; ENOSPC."""
        from f2tools.dffs.cleaning import clean, clean_once

        if self._fresh >= MOST_FRESH or self.waiting + pages > self.log.room // 3:
            self.commit()
        if self.space.used + self.waiting + pages > self.capacity:
            self.commit()
            if pages and self.space.used + pages > self.capacity:
                raise fail(errno.ENOSPC)
        if not self._fits(pages):
            self.commit()
            self.checkpoint()
            if not self._fits(pages):
                clean(self, lambda: self._fits(pages))
            elif self.space.resting(self.log.busy) is not None:
                clean_once(self, most=1)
            if pages and not self._fits(pages):
                raise fail(errno.ENOSPC)

    def _fits(self, pages: int) -> bool:
        """Whether the log has room for what waits, so much more, a checkpoint, and cleaning after that."""
        need = self.waiting + pages + self._checkpoint_cost() + self._left_to_clean()
        return self.log.room >= need

    # -- commits

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
        """Write a page to the log; what was kept of its place is of a time before the block was erased."""
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

    def checkpoint(self, clean: bool = False) -> None:
        """Write a checkpoint; what is not in use after it can be written over."""
        self.commit()
        self.state = self.log.checkpoint(
            self.state, self._table, self.id_page(ROOT_ID), changed=self._tables_changed, clean=clean,
            next_ino=self._next_ino, ids=self._ids_used, now=self.clock(),
        )  # fmt: skip
        self._tables_changed.clear()

    def balance(self) -> None:
        """Write what waits where it is much."""
        if self._fresh >= MOST_FRESH or self.waiting > MOST_WAITING:
            with self._guarded():
                self.commit()

    def clean_idle(self) -> bool:
        """Empty a block while nobody asks, where few are free; whether there may be more to do."""
        from f2tools.dffs.cleaning import clean_once

        if self._broken is not None or not self._loaded:
            return False
        free = len(self.space.free(self.log.busy)) + len(self.log.chain)
        if free * SHARE_WON_IDLE >= self.shape.blocks or self.space.used * 2 < self.space.log_pages:
            return False
        with self._guarded():
            return clean_once(self, most=1) > 0

    # -- opening

    def _load(self) -> None:
        """Before the first change: what is in use, and whether the log can go on where it is."""
        if self._loaded:
            return
        pages = [
            self.pages.read(page, (SPACE,))[0] if page else bytes(self.shape.page_size) for page in self.state.space
        ]
        self.space.load(pages, [*self.state.table, *self.state.space])
        go_on(self)
        self._loaded = True

    def forget_log(self, ids: dict[int, int], next_ino: int) -> None:
        """What the log said after the checkpoint is in the mapping table from now on: these ids and no others."""
        right = {which: right_table(self, which, ids) for which in range(self.shape.table_pages)}
        for which, numbers in right.items():
            if numbers is not None:
                self._table[which] = numbers
                self._tables_changed.add(which)
        self.rolled = Rolled(seq=self.rolled.seq)
        self._ids_used = len(ids)
        self._next_ino = max(self._next_ino, next_ino)
        self._loaded = True

    # -- what goes

    def _evict(self, gone: Directory | File) -> None:
        """A file or directory that has no name is gone: its pages are given back."""
        self._nameless.pop(gone.ino, None)
        self._recent.pop(gone.ino, None)
        if isinstance(gone, File):
            self.free_content(gone, 0)

    def free_content(self, file: File, keep: int) -> None:
        """Give back the pages of a file from page `keep` on."""
        raise NotImplementedError

    def forget_index(self, file: File, level: int, number: int) -> None:
        """An index page of a file without a name stays in memory; its place is given back."""
        page = self._index_pointer(file, level, number)
        self.space.give(page)
        file.pages -= bool(page)
        self._point(file, level, number, 0)
