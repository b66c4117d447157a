"""Everything that can be reached from the root, by a walk over directories, inodes and index pages; no content is read.

What is in use follows from it: an opening for writing after a power cut needs that, and a check compares the space
table with it.  Nothing is trusted: a page that is reached twice, an id without a page, a circular list is reported to
the caller, who decides whether the walk goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from f2tools.dffs.layout import ROOT_ID, Shape
from f2tools.dffs.nodes import Directory, File, Link, name_hash
from f2tools.dffs.volume import Volume
from f2tools.errors import F2fsError

Tell = Callable[[str, str, int | None, int | None], None]
"""(code, detail, inode number, page) of something that is wrong."""


@dataclass
class Reached:
    """What a walk found."""

    live: NDArray[np.bool_]
    ids: dict[int, int] = field(default_factory=dict)
    """Logical ids that something leads to, and their pages."""
    links: Counter[int] = field(default_factory=Counter)
    """By logical id of a file: the names that lead to it."""
    directories: int = 0
    files: int = 0
    names: int = 0
    last_ino: int = 0


class Walk:
    """One walk; see the module's docstring."""

    def __init__(self, volume: Volume, tell: Tell, advance: Callable[[int], None] = lambda _: None) -> None:
        self.volume = volume
        self.shape: Shape = volume.shape
        self.tell = tell
        self.advance = advance
        self.reached = Reached(np.zeros(volume.shape.pages, np.bool_))
        self._todo: list[tuple[int, int]] = [(ROOT_ID, ROOT_ID)]  # directories, and those that they were found in
        self._by_id: dict[int, File] = {}

    def run(self) -> Reached:
        """Go through all of it."""
        self.reached.ids[ROOT_ID] = 0
        while self._todo:
            number, above = self._todo.pop()
            try:
                directory = self.volume.directory(number)
            except F2fsError as error:
                self.tell("DFF020", str(error), number, None)
                continue
            self.directory(directory, above)
        for number, count in self.reached.links.items():
            self.linked(number, count)
        return self.reached

    def take(self, page: int, ino: int | None) -> bool:
        """A page is in use; whether it is so for the first time."""
        if not 0 < page < self.shape.pages:
            self.tell("DFF040", f"page {page} can't be part of a file", ino, page)
            return False
        if self.reached.live[page]:
            self.tell("DFF041", "", ino, page)
            return False
        self.reached.live[page] = True
        return True

    def take_id(self, number: int, ino: int) -> bool:
        """A logical id is in use, and so is its page; whether it can be read for the first time."""
        if number in self.reached.ids and number != ROOT_ID:
            self.tell("DFF042", f"logical id {number}", ino, None)
            return False
        try:
            page = self.volume.id_page(number)
        except F2fsError as error:
            self.tell("DFF010", str(error), ino, None)
            return False
        self.reached.ids[number] = page
        return self.take(page, ino)

    # -- directories

    def directory(self, directory: Directory, above: int) -> None:
        """A directory, and what is in it."""
        self.advance(1)
        number = directory.id
        self.reached.directories += 1
        if number == ROOT_ID:
            self.take_id(ROOT_ID, ROOT_ID)
        if directory.parent != above:
            self.tell("DFF026", f"directory {directory.parent} where it is in {above}", number, directory.page)
        self.virtuals(directory)
        below = children = 0
        for name, holder in self.children(directory):
            children += 1
            self.reached.names += 1
            if isinstance(holder, Directory):
                below += 1
            self.child(directory, holder, name)
        if children != directory.size:
            self.tell("DFF021", f"{directory.size} children by its own count, and {children}", number, directory.page)
        if directory.links != 2 + below:
            self.tell("DFF011", f"{directory.links} links by its own count, and {2 + below}", number, directory.page)

    def virtuals(self, directory: Directory) -> None:
        """The list of a directory's virtual inodes."""
        number, before, count = directory.first, 0, 0
        while number:
            if not self.take_id(number, directory.id):
                return
            try:
                virtual = self.volume.virtual(number)
            except F2fsError as error:
                self.tell("DFF030", str(error), directory.id, None)
                return
            if (virtual.dir, virtual.prev) != (directory.id, before):
                self.tell("DFF031", f"virtual inode {number}", directory.id, virtual.page)
            number, before, count = virtual.next, number, count + 1
        if count != directory.pages:
            self.tell("DFF032", f"{directory.pages} by its own count, and {count}", directory.id, directory.page)

    def children(self, directory: Directory) -> Iterator[tuple[bytes, Directory | File | Link]]:
        """The children of a directory that can be used."""
        names: set[bytes] = set()
        for number in range(self.shape.buckets):
            try:
                bucket = self.volume.bucket(directory, number)
            except F2fsError as error:
                self.tell("DFF022", f"bucket {number}: {error}", directory.id, directory.page)
                continue
            for pointer, hashed in bucket:
                try:
                    holder = self.volume.child(pointer)
                except F2fsError as error:
                    self.tell("DFF024", f"bucket {number}: {error}", directory.id, directory.page)
                    continue
                found = name_hash(holder.name)
                if not holder.name or found % self.shape.buckets != number or hashed not in (None, found):
                    self.tell("DFF023", f"bucket {number} leads to a name of another one", directory.id, directory.page)
                elif holder.name in names:
                    self.tell("DFF025", repr(holder.name), directory.id, directory.page)
                else:
                    names.add(holder.name)
                    yield holder.name, holder

    def child(self, directory: Directory, holder: Directory | File | Link, name: bytes) -> None:
        """A child of a directory."""
        if not isinstance(holder, Directory) and holder.parent != directory.id:
            self.tell("DFF027", f"{name!r} says that it is in directory {holder.parent}", directory.id, holder.page)
        if isinstance(holder, Directory):
            if holder.id in self.reached.ids:
                self.tell("DFF028", repr(name), holder.id, holder.page)
            elif self.take_id(holder.id, holder.ino):
                self._todo.append((holder.id, directory.id))
        elif isinstance(holder, Link):
            self.take(holder.page, directory.id)
            self.reached.links[holder.target] += 1
        elif holder.id:
            self.reached.links[holder.id] += 1
        elif self.take(holder.page, holder.ino):
            self.file(holder)
            if holder.links != 1:
                self.tell("DFF011", f"{holder.links} links by its own count, and 1", holder.ino, holder.page)

    def linked(self, number: int, count: int) -> None:
        """A file with a logical id, which so many names lead to."""
        try:
            file = self.volume.by_id(number)
            if not isinstance(file, File):
                self.tell("DFF024", f"a further name leads to logical id {number}, which is no file", None, None)
                return
            if self.take_id(number, file.ino):
                self.file(file)
        except F2fsError as error:
            self.tell("DFF024", str(error), None, None)
            return
        if file.links != count:
            self.tell("DFF011", f"{file.links} links by its own count, and {count}", file.ino, file.page)

    # -- files

    def file(self, file: File) -> None:
        """A file's pages."""
        self.advance(1)
        self.reached.files += 1
        self.reached.last_ino = max(self.reached.last_ino, file.ino)
        if file.inline is not None or not (file.is_file or file.is_link):
            return
        try:
            count = sum(self.content(file))
        except F2fsError as error:
            self.tell("DFF043", str(error), file.ino, None)
            return
        if count != file.pages:
            self.tell("DFF012", f"{file.pages} by its own count, and {count}", file.ino, file.page)

    def content(self, file: File) -> Iterator[bool]:
        """For each page of index and content: whether it is this file's alone.  What is another's is not gone into."""
        end = -(-file.size // self.shape.page_size)
        direct, per = self.shape.direct, self.shape.pointers
        yield from (self.data(file, place, page, end) for place, page in enumerate(file.slots[:direct]) if page)
        todo = [(level, 0, file.slots[direct + level]) for level in (2, 1, 0) if file.slots[direct + level]]
        while todo:
            level, number, page = todo.pop()
            alone = self.take(page, file.ino)
            yield alone
            if not alone:
                continue
            found = self.volume.index_page(file, level, number) or ()
            if level:
                base = number * per + 1
                todo += [(level - 1, base + place, one) for place, one in enumerate(found) if one]
            else:
                base = direct + number * per
                yield from (self.data(file, base + place, one, end) for place, one in enumerate(found) if one)

    def data(self, file: File, number: int, page: int, end: int) -> bool:
        """A page of content."""
        if number >= end:
            self.tell("DFF044", f"page {number} of the file, which has {end}", file.ino, page)
        return self.take(page, file.ino)
