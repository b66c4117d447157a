"""Reading a volume: superblock, checkpoint, directories, files.  Nothing is written.

A mount reads the superblock, the newest checkpoint and the root directory; pages of the mapping table come as ids are
asked for.  What was committed after the checkpoint is seen as if it were in it.  Nodes are kept up to a number that can
be chosen, so memory doesn't grow with the number of files.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple, Self
from uuid import UUID

from f2tools.copyout.parts import Part
from f2tools.device.base import Device
from f2tools.device.open import open_device
from f2tools.dffs.layout import (
    BY_ID,
    BY_PAGE,
    COLLISION,
    DATA,
    DIRECTORY,
    FILE,
    FIRST_INO,
    INDEX,
    LINK,
    POINTER_BITS,
    POINTER_MASK,
    ROOT_ID,
    TABLE,
    TARGET_MAX,
    VIRTUAL,
    Superblock,
    index_key,
    index_parent,
    index_place,
)
from f2tools.dffs.nodes import Directory, File, Inode, Link, Malformed, Node, Virtual, name_hash, parse_node, slots_of
from f2tools.dffs.pages import Pages, open_pages, shape_of
from f2tools.dffs.state import Rolled, State, newest, roll_forward
from f2tools.errors import Corrupt, DeviceError, F2fsError, Where
from f2tools.flash.nand import Nand

KEPT_NODES = 1024
KEPT_INDEX = 64
MAX_LINKS = 40  # symbolic links on the way to a file, as the kernel has it


class Entry(NamedTuple):
    """A name in a directory: its file, the position behind it, what its bucket holds, the node that has the name."""

    name: bytes
    inode: Directory | File
    after: int
    pointer: int
    holder: Directory | File | Link


def fail(number: int, name: bytes | str | None = None) -> OSError:
    """An error of a system call."""
    shown = os.fsdecode(name) if name is not None else None
    return OSError(number, os.strerror(number), shown) if shown is not None else OSError(number, os.strerror(number))


class Volume:
    """A Direct Flash File System on a device, which it owns; see the module's docstring."""

    def __init__(self, device: Device | Nand, *, keep_nodes: int = KEPT_NODES) -> None:
        self.sb, self.pages = self._opened(device)
        self.name = device.name
        self.shape = shape_of(self.sb)
        self.uuid = UUID(bytes=self.sb.uuid)
        self.state, self.rolled = self._stands()
        self.keep_nodes = keep_nodes
        self._table: dict[int, array[int]] = {}
        self._nodes: OrderedDict[int, Node] = OrderedDict()
        self._index: OrderedDict[int, array[int]] = OrderedDict()

    def _opened(self, device: Device | Nand) -> tuple[Superblock, Pages]:
        """Where it lies."""
        return open_pages(device)

    def _stands(self) -> tuple[State, Rolled]:
        """The checkpoint that counts, and what was committed after it."""
        state = newest(self.pages, self.sb)
        return state, roll_forward(self.pages, state) if self.pages.has_spare else Rolled(seq=state.head.seq)

    @property
    def clean(self) -> bool:
        """Whether the volume was closed, and nothing was written since."""
        return bool(self.state.head.clean) and not self.rolled.pages

    def close(self) -> None:
        self.pages.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the mapping table

    def id_page(self, number: int) -> int:
        """The page of a logical id; 0 where it is free."""
        rolled = self.rolled.ids.get(number)
        if rolled is not None:
            return rolled
        if not 0 < number < self.shape.ids:
            raise Corrupt(Where(area=f"logical id {number}"), "there is no such id")
        if number == ROOT_ID:
            return self.state.head.root  # so that a mount needs no page of the table
        which, place = divmod(number, self.shape.pointers)
        return self.table_page(which)[place]

    def table_page(self, which: int) -> array[int]:
        """A page of the mapping table, as the checkpoint has it."""
        found = self._table.get(which)
        if found is None:
            page = self.state.table[which]
            found = self._numbers(page, TABLE, which) if page else array("I", bytes(self.shape.page_size))
            self._table[which] = found
        return found

    def _numbers(self, page: int, kind: int, offset: int, ino: int = 0) -> array[int]:
        data, tag = self.pages.read(page, (kind,))
        if tag is not None and (tag.offset != offset or tag.ino != ino):
            raise Corrupt(Where(area=f"page {page}"), f"its tag says that it is page {tag.offset} of inode {tag.ino}")
        return array("I", data)

    # -- nodes

    def by_id(self, number: int) -> Directory | File | Virtual:
        """The node with a logical id; Corrupt where there is no usable one."""
        page = self.id_page(number)
        if not page:
            raise Corrupt(Where(area=f"logical id {number}"), "the id is free")
        node = self._node(page, (DIRECTORY, FILE, VIRTUAL))
        if isinstance(node, Link) or node.id != number:
            raise Corrupt(Where(area=f"page {page}"), f"it belongs to another logical id than {number}")
        return node

    def directory(self, number: int) -> Directory:
        """The directory with a logical id, which is its inode number."""
        node = self.by_id(number)
        if not isinstance(node, Directory):
            raise Corrupt(Where(area=f"logical id {number}"), "it is no directory")
        if node.ino != number:
            raise Corrupt(Where(area=f"logical id {number}"), f"it says that it is directory {node.ino}")
        return node

    def virtual(self, number: int) -> Virtual:
        """The virtual inode with a logical id."""
        node = self.by_id(number)
        if not isinstance(node, Virtual):
            raise Corrupt(Where(area=f"logical id {number}"), "it is no virtual inode")
        return node

    def child(self, pointer: int) -> Directory | File | Link:
        """What a bucket leads to."""
        kind, number = pointer >> POINTER_BITS, pointer & POINTER_MASK
        if kind == BY_ID:
            node = self.by_id(number)
        elif kind == BY_PAGE:
            node = self._node(number, (FILE, LINK))
            if isinstance(node, File) and (node.id or node.ino < FIRST_INO):
                raise Corrupt(Where(area=f"page {number}"), f"inode {node.ino} can't be reached by its page")
        else:
            raise Corrupt(Where(area="directory"), f"an entry leads to {pointer:#x}, which is nothing")
        if isinstance(node, Virtual):
            raise Corrupt(Where(area=f"logical id {number}"), "a virtual inode where a file should be")
        return node

    def target(self, link: Link) -> File:
        """The file that a further name leads to."""
        node = self.by_id(link.target)
        if not isinstance(node, File):
            raise Corrupt(Where(area=f"logical id {link.target}"), "a further name leads to what is no file")
        return node

    def _node(self, page: int, kinds: tuple[int, ...]) -> Node:
        found = self._nodes.get(page)
        if found is None:
            data, tag = self.pages.read(page, kinds)
            try:
                found = parse_node(self.shape, page, data)
            except Malformed as error:
                raise Corrupt(Where(area=f"page {page}"), str(error)) from None
            if tag is not None and (tag.ino, tag.id) != (found.ino, found.id):
                raise Corrupt(Where(area=f"page {page}"), f"its tag says that it is of inode {tag.ino}, id {tag.id}")
            self._keep(found)
        else:
            self._nodes.move_to_end(page)
        if found.page_kind not in kinds:
            raise Corrupt(Where(area=f"page {page}"), "it holds something else than is looked for")
        return found

    def _keep(self, node: Node) -> None:
        self._nodes[node.page] = node
        while len(self._nodes) > self.keep_nodes:
            self._nodes.popitem(last=False)

    # -- directories

    def bucket(self, directory: Directory, number: int) -> list[tuple[int, int | None]]:
        """(what it leads to, hash of its name where that is known) of each child in a bucket."""
        pointer = directory.primary[number]
        virtual = None
        if pointer >> POINTER_BITS == COLLISION:
            virtual = self.virtual(pointer & POINTER_MASK)
        try:
            return slots_of(directory, virtual, number)
        except Malformed as error:
            raise Corrupt(Where(area=f"directory {directory.id}"), str(error)) from None

    def find(self, directory: Inode, name: bytes) -> Entry | None:
        """The entry of that name."""
        if not isinstance(directory, Directory):
            raise fail(errno.ENOTDIR, name)
        wanted = name_hash(name)
        for pointer, hashed in self.bucket(directory, wanted % self.shape.buckets):
            if hashed is None or hashed == wanted:
                holder = self.child(pointer)
                if holder.name == name and holder.parent == directory.id:
                    return self.entry(directory, pointer, holder)
        return None

    def entry(self, directory: Directory, pointer: int, holder: Directory | File | Link, more: int = 0) -> Entry:
        """An entry whose name is in `holder`."""
        hashed = name_hash(holder.name)
        inode = self.target(holder) if isinstance(holder, Link) else holder
        after = ((hashed % self.shape.buckets) << 40 | hashed << 8 | more) + 1
        return Entry(holder.name, inode, after, pointer, holder)

    def entries(self, directory: Directory, start: int = 0, problems: list[str] | None = None) -> Iterator[Entry]:
        """The entries of a directory from a position on: 0, or an entry's `after`.

        Nonsense is Corrupt, or with `problems` noted there and passed over.
        """
        for number in range(start >> 40, self.shape.buckets):
            try:
                yield from self._entries_of(directory, number, start, problems)
            except F2fsError as error:
                if problems is None:
                    raise
                problems.append(str(error))

    def _entries_of(
        self, directory: Directory, number: int, start: int, problems: list[str] | None
    ) -> Iterator[Entry]:  # fmt: skip
        found: list[Entry] = []
        met: dict[int, int] = {}
        for pointer, _ in self.bucket(directory, number):
            try:
                holder = self.child(pointer)
                hashed = name_hash(holder.name)
                if holder.parent != directory.id or hashed % self.shape.buckets != number or not holder.name:
                    raise Corrupt(
                        Where(area=f"directory {directory.id}"), f"bucket {number} leads to what has no name in it"
                    )
                more = met[hashed] = met.get(hashed, -1) + 1
                found.append(self.entry(directory, pointer, holder, min(more, 255)))
            except F2fsError as error:
                if problems is None:
                    raise
                problems.append(str(error))
        yield from sorted((entry for entry in found if entry.after > start), key=lambda entry: entry.after)

    # -- content

    def data_page(self, file: File, number: int) -> int:
        """Where a page of a file's content lies; 0 for a hole."""
        leaf, place = index_place(self.shape, number)
        if leaf < 0:
            return file.slots[place]
        found = self.index_page(file, 0, leaf)
        return 0 if found is None else found[place]

    def index_page(self, file: File, level: int, number: int) -> array[int] | None:
        """An index page; None where there is none."""
        changed = file.index.get((level, number))
        if changed is not None:
            return changed
        page = self.index_address(file, level, number)
        if not page:
            return None
        found = self._index.get(page)
        if found is None:
            found = self._index[page] = self._numbers(page, INDEX, index_key(level, number), file.ino)
            while len(self._index) > KEPT_INDEX:
                self._index.popitem(last=False)
        return found

    def index_address(self, file: File, level: int, number: int) -> int:
        """Where an index page lies; 0 where there is none."""
        above, which, place = index_parent(self.shape, level, number)
        if above < 0:
            return file.slots[place]
        if above > 2:
            return 0
        found = self.index_page(file, above, which)
        return 0 if found is None else found[place]

    def read_content(self, inode: Inode, offset: int, length: int) -> bytes:
        """Bytes of a file or a link, cut at its end."""
        length = max(0, min(length, inode.size - offset))
        if not length or not isinstance(inode, File):
            return b""
        if inode.inline is not None:
            return inode.inline[offset : offset + length].ljust(length, b"\0")
        size = self.shape.page_size
        first, last = offset // size, (offset + length - 1) // size
        parts = [self.content_page(inode, number) for number in range(first, last + 1)]
        whole = b"".join(parts)
        return whole[offset - first * size :][:length]

    def content_page(self, file: File, number: int) -> bytes:
        """A page of a file's content."""
        fresh = file.fresh.get(number)
        if fresh is not None:
            return bytes(fresh)
        page = self.data_page(file, number)
        if not page:
            return bytes(self.shape.page_size)
        data, tag = self.pages.read(page, (DATA,))
        if tag is not None and (tag.ino, tag.offset) != (file.ino, number):
            raise Corrupt(Where(area=f"page {page}"), f"it is page {tag.offset} of inode {tag.ino}")
        return data

    def mapped_pages(self, file: File, unknown: list[Part] | None = None) -> Iterator[tuple[int, int]]:
        """(page of the file, where it lies) of what is not a hole; 0 for what is only in memory.

        What is below an index page that can't be read is added to `unknown`, and passed over; F2fsError where that is
        None.
        """
        if file.inline is not None:
            return
        count = -(-file.size // self.shape.page_size)
        number = there_are = 0
        fresh = sorted(file.fresh)
        while number < count:
            leaf, place = index_place(self.shape, number)
            try:
                is_hole = leaf >= 0 and place == 0 and self.index_page(file, 0, leaf) is None
                after = self._next_leaf(file, leaf, count, fresh) if is_hole else 0
            except (Corrupt, DeviceError) as error:
                if unknown is None:
                    raise
                size, pages = self.shape.page_size, min(self.shape.pointers, count - number)
                unknown.append(Part(number * size, pages * size, b"", error))
                number += pages
                continue
            if is_hole:
                there = [one for one in fresh if number <= one < number + self.shape.pointers]
                yield from ((one, 0) for one in there)
                number = after
                continue
            page = self.data_page(file, number)
            if page or number in file.fresh:
                there_are += 1
                if there_are > self.shape.pages:
                    raise Corrupt(Where(ino=file.ino), "it has more pages than the flash has")
                yield number, page
            number += 1

    def _next_leaf(self, file: File, leaf: int, count: int, fresh: list[int]) -> int:
        """The first page behind a leaf that is not there; where the index above it is not either, behind that."""
        per, first = self.shape.pointers, self.shape.direct
        step = 1
        if leaf and self.index_page(file, 1, (leaf - 1) // per) is None:
            step = per - (leaf - 1) % per
        after = first + (leaf + step) * per
        later = [one for one in fresh if one >= first + (leaf + 1) * per]
        return min([after, count, *(first + (one - first) // per * per for one in later[:1])])

    def data_ranges(self, inode: Inode, unknown: list[Part] | None = None) -> Iterator[tuple[int, int]]:
        """(offset, length) of what is not a hole in a file; see `mapped_pages` for what is `unknown`."""
        if not isinstance(inode, File) or not inode.size:
            return
        if inode.inline is not None:
            yield 0, inode.size
            return
        size, start, end = self.shape.page_size, -1, -1
        for number, _ in self.mapped_pages(inode, unknown):
            if number != end:
                if start >= 0:
                    yield start * size, (end - start) * size
                start = number
            end = number + 1
        if start >= 0:
            yield start * size, min(end * size, inode.size) - start * size

    def readlink(self, inode: Inode) -> bytes:
        """Where a symbolic link leads."""
        if not inode.is_link:
            raise fail(errno.EINVAL)
        if inode.size > TARGET_MAX:
            raise Corrupt(Where(ino=inode.ino), f"a link of {inode.size} bytes")
        return self.read_content(inode, 0, inode.size)

    # -- as a tree to be listed and copied out

    @property
    def root(self) -> Directory:
        """The root directory."""
        return self.directory(ROOT_ID)

    def names_in(self, directory: Inode, problems: list[str]) -> Iterator[tuple[bytes, int]]:
        """(name, what its bucket holds) of what is in a directory; what can't be used is noted."""
        if isinstance(directory, Directory):
            yield from ((entry.name, entry.pointer) for entry in self.entries(directory, problems=problems))

    def opened(self, key: int) -> Directory | File:
        """The inode that a bucket leads to."""
        holder = self.child(key)
        return self.target(holder) if isinstance(holder, Link) else holder

    def bytes_taken(self, inode: Inode) -> int:
        """How much room a file takes, without the page of its inode; of a directory with that."""
        return (inode.pages + inode.is_dir) * self.shape.page_size

    # -- paths

    def at_path(self, path: bytes, *, follow: bool = True) -> Directory | File:
        """The inode behind a path from the root; `ino:NUMBER` is one by its number.  ENOENT, ENOTDIR, ELOOP."""
        if path.startswith(b"ino:") and path[4:].isdigit():
            return self.at_number(int(path[4:]))
        here: Directory | File = self.directory(ROOT_ID)
        todo = [part for part in path.split(b"/") if part][::-1]
        links = 0
        while todo:
            name = todo.pop()
            if name in (b".", b".."):
                if not isinstance(here, Directory):
                    raise fail(errno.ENOTDIR, path)
                here = here if name == b"." or here.id == ROOT_ID else self.directory(here.parent)
                continue
            found = self.find(here, name)
            if found is None:
                raise fail(errno.ENOENT, path)
            if found.inode.is_link and (todo or follow):
                links += 1
                if links > MAX_LINKS:
                    raise fail(errno.ELOOP, path)
                target = self.readlink(found.inode)
                todo += [part for part in target.split(b"/") if part][::-1]
                here = self.directory(ROOT_ID) if target.startswith(b"/") else here
                continue
            here = found.inode
        return here

    def at_number(self, ino: int) -> Directory | File:
        """The inode with a number; of a file that takes a walk over the tree, as nothing leads from number to place."""
        if ino < FIRST_INO:
            return self.directory(ino)
        todo, met = [ROOT_ID], {ROOT_ID}
        while todo:
            for entry in self.entries(self.directory(todo.pop()), problems=[]):
                if entry.inode.ino == ino:
                    return entry.inode
                if isinstance(entry.inode, Directory) and entry.inode.id not in met:
                    met.add(entry.inode.id)
                    todo.append(entry.inode.id)
        raise fail(errno.ENOENT, f"ino:{ino}")


def open_volume(path: str, *, keep_nodes: int = KEPT_NODES) -> Volume:
    """The Direct Flash File System in a dump, for reading; NotDffs where there is none."""
    device = open_device(path, whole=True)
    try:
        return Volume(device, keep_nodes=keep_nodes)
    except BaseException:
        device.close()
        raise
