"""The tree of a damaged volume as it should be: what every directory has, and what has to change for that.

First what can be reached from the root and contradicts nothing; then what only one side says (an entry that leads to a
file of another directory, a file of a directory that has no entry for it); then what is left of files whose inode is
gone.  Nothing is written, and no page is given to two owners.
"""

from __future__ import annotations

import stat
from collections import Counter

import numpy as np

from f2tools.dffs.layout import (
    BY_ID,
    BY_PAGE,
    COLLISION,
    DATA,
    DIRECTORY,
    FILE,
    LINK,
    POINTER_BITS,
    POINTER_MASK,
    ROOT_ID,
    VIRTUAL,
)
from f2tools.dffs.mending import Mending
from f2tools.dffs.nodes import Directory, File, Link, Node, Virtual, by_id, name_hash, new_directory
from f2tools.dffs.regrown_files import Fix, RegrownFiles, shown
from f2tools.dffs.scan import WHOLE
from f2tools.errors import F2fsError
from f2tools.repaired import Repair, free_name

Holder = Directory | File | Link
LOST_AND_FOUND = b"lost+found"
OWNER_ONLY = 0o600
ELSEWHERE = -1
"""The directory for nodes without a name, which may not exist yet."""


class Regrown(RegrownFiles):
    """One look at one volume; see the module's docstring."""

    def __init__(self, volume: Mending, said: Repair) -> None:
        super().__init__(volume, said)
        self.wrong: set[int] = set()
        """Directories whose tables are made anew."""
        self.tables: dict[int, dict[bytes, int]] = {}
        """For those: what each name leads to."""
        self.added: dict[int, dict[bytes, int]] = {}
        """Names to be added to other directories."""
        self.sizes: dict[int, int] = {}
        self.made: dict[int, list[File]] = {}
        """Files whose inode is made anew, by directory."""
        self.remade: dict[int, Directory] = {}
        """Directories made anew."""
        self.below: Counter[int] = Counter()
        self.open: dict[int, set[int] | None] = {}
        """Of directories whose tables are made anew: buckets with something that can't be told, None for all."""
        self._here = 0
        self._doubtful: list[tuple[int, int]] = []
        self._named: set[int] = set()
        self._led: set[int] = set()  # inode numbers that an entry led to, whose inode can't be read
        self.told_ids: set[int] = set()
        """Logical ids that a directory has, of nodes that can't be read: its count of names tells of them."""

    def grow(self) -> None:
        """Look at all of it."""
        self.root()
        self.walk()
        self.settle_doubts()
        self.orphan_directories()
        self.orphan_files()
        self.files_without_inode()
        self.files_with_ids()
        self.count_names()
        self.say_untold()

    def count_names(self) -> None:
        """A directory's own count tells how many names are missing."""
        for number, names in self.tables.items():
            if number in self.remade or number == ELSEWHERE:
                continue
            directory = self.volume.directory(number)
            missing = directory.size - len(names)
            if missing > 0 and directory.page not in self.mending.older:
                self.said.lost.append(f"{missing} names of directory {number}, by its own count")

    def say_untold(self) -> None:
        """Pages in use that can't be read and that nothing leads to any more: what was there is lost, name and all."""
        scan, mending = self.scan, self.mending
        untold = mending.space.live & ~self.reached.live & (scan.state != WHOLE) & scan.written()
        tables = (*mending.state.table, *mending.state.space)
        ids = (number for number in self.told_ids | set(self.reached.ids) if 0 < number < self.shape.ids)
        named = (*tables, *self.told, *mending.led_from, *(mending.id_page(number) for number in ids))
        untold[[page for page in named if page < self.shape.pages]] = False
        of_file = np.flatnonzero(untold & (scan.kind == FILE))
        for ino in sorted({int(ino) for ino in scan.ino[of_file]} - self.inos - self._led):
            self.lose(f"inode {ino}, and all that was in it")
        count = int(np.count_nonzero(untold & ((scan.kind == 0) | (scan.kind == LINK))))
        if count:
            still = "" if mending.sure else ", if they were in use still"
            self.said.lost.append(
                f"what was on pages in use that can't be read, {count} of them{still}: nothing tells which files, "
                "names or content"
            )

    # -- what can be reached

    def root(self) -> None:
        """The root directory, made anew where no page of it is left."""
        self.reached.ids[ROOT_ID] = 0
        try:
            self.volume.directory(ROOT_ID)
        except F2fsError:
            self.remake(ROOT_ID)

    def walk(self) -> None:
        """Go through the directories that are known and were not gone through."""
        while self._todo:
            number, above = self._todo.pop()
            if number in self.remade:
                continue
            self.directory(self.volume.directory(number), above)

    def remake(self, number: int) -> Directory:
        """An empty directory in the place of one of which no page is left."""
        made = new_directory(self.shape, number, stat.S_IFDIR | (0o755 if number == ROOT_ID else 0o700))
        now = self.mending.clock()
        made.parent = ROOT_ID
        made.atime = made.mtime = made.ctime = made.crtime = now
        self.remade[number] = made
        self.reached.ids[number] = 0
        self.reached.directories += 1
        self.wrong.add(number)
        self.tables[number], self.open[number] = {}, None
        which = "the root directory" if number == ROOT_ID else f"directory {number}, and its name"
        self.said.lost.append(f"owner, permissions and times of {which}: it is made anew")
        return made

    def remake_gone(self, number: int) -> bool:
        """Make a directory anew that others name and of which no page is left, below lost+found."""
        if number in self.reached.ids or not ROOT_ID < number < self.shape.ids or self.is_directory(number):
            return False
        made = self.remake(number)
        made.name = free_name(set(self.added.get(ELSEWHERE, ())), b"#%d" % number)
        self.added_to(ELSEWHERE)[made.name] = by_id(number)
        self.fix(by_id(number)).parent = ELSEWHERE
        self.below[ELSEWHERE] += 1
        self.said.done.append(f"directory /lost+found/{shown(made.name)} made for what was in directory {number}")
        return True

    def take_id(self, number: int, ino: int) -> bool:
        if number in self.reached.ids and number != ROOT_ID:
            return False
        page = self.volume.id_page(number)
        if not self.take(page, ino):
            return False
        self.reached.ids[number] = page
        return True

    def directory(self, directory: Directory, above: int) -> None:
        self.advance(1)
        number = self._here = directory.id
        self.reached.directories += 1
        if number == ROOT_ID:
            self.take_id(ROOT_ID, ROOT_ID)
        if directory.page in self.mending.worn or directory.parent != above:
            self.fix(by_id(number)).parent = above
        if directory.page in self.mending.older:
            self.said.lost.append(f"what changed in directory {number} since an older page of it was written")
            self.wrong.add(number)
            self.tables[number], self.open[number] = {}, None
            return
        self._trouble = False
        virtuals = self.virtual_ids(directory)
        found: dict[bytes, int] = {}
        for name, holder in self.children(directory):
            pointer = self.pointer_to(holder)
            if self.claim(number, holder, pointer):
                found[name] = pointer
            else:
                self._trouble = True
        if not self._trouble:
            self.reached.names += len(found)
            if len(found) != directory.size:
                self.sizes[number] = len(found)
            return
        self.said.done.append(f"tables of directory {number} made anew")
        self.wrong.add(number)
        self.tables[number] = found
        for one in virtuals:
            self.reached.live[self.reached.ids.pop(one)] = False
        self.gather(directory)

    def virtual_ids(self, directory: Directory) -> list[int]:
        """The virtual inodes in a directory's list; trouble where it is not one, or a bucket leads to another."""
        number, before, found = directory.first, 0, list[int]()
        while number:
            try:
                virtual = self.volume.virtual(number)
            except F2fsError:
                self._trouble = True
                break
            worn = virtual.page in self.mending.worn
            if worn or (virtual.dir, virtual.prev) != (directory.id, before) or not self.take_id(number, directory.id):
                self._trouble = True
                break
            found.append(number)
            number, before = virtual.next, number
        led = {pointer & POINTER_MASK for pointer in directory.primary if pointer >> POINTER_BITS == COLLISION}
        if len(found) != directory.pages or not led <= set(found):
            self._trouble = True
        return found

    def gather(self, directory: Directory) -> None:
        """Take what any bucket or virtual inode of a directory leads to, in whatever bucket it should be."""
        unknown = self.open[directory.id] = set[int]()
        names = self.tables[directory.id]
        for number, pointer in self.every_pointer(directory, unknown):
            try:
                holder = self.volume.child(pointer)
            except F2fsError:
                unknown.add(number)
                self.led_to(pointer)
                continue
            name = holder.name
            if names.get(name) == pointer:
                continue
            unknown.add(number)
            if name and name not in names and self.claim(directory.id, holder, pointer):
                names[name] = pointer

    def led_to(self, pointer: int) -> None:
        """A file that an entry leads to has lost its inode: which one that is, its tags may tell."""
        place = pointer & POINTER_MASK
        (self.told if pointer >> POINTER_BITS == BY_PAGE else self.told_ids).add(place)
        if pointer >> POINTER_BITS == BY_PAGE and place < self.shape.pages and self.scan.kind[place] == FILE:
            self._led.add(int(self.scan.ino[place]))
        elif pointer >> POINTER_BITS == BY_ID:
            self._led.update(int(self.scan.ino[page]) for page in self.scan.of_id(place, (DATA, FILE))[:1])

    def every_pointer(self, directory: Directory, unknown: set[int]) -> list[tuple[int, int]]:
        """(bucket, what it leads to) of the tables of a directory, its own page's and those of virtual inodes that say
        to be its; buckets whose virtual inode can't be used are `unknown`."""
        found: list[tuple[int, int]] = []
        lost: set[int] = set()
        for number, pointer in enumerate(directory.primary):
            if pointer >> POINTER_BITS != COLLISION:
                found += [(number, pointer)] if pointer else []
                continue
            try:
                found += [(number, one) for one, _ in self.volume.bucket(directory, number)]
            except F2fsError:
                unknown.add(number)
                lost.add(pointer & POINTER_MASK)
                self.told_ids.add(pointer & POINTER_MASK)
        for page in self.scan.unowned(self.reached.live, (VIRTUAL,)):
            node = self.scan.node(page)
            if isinstance(node, Virtual) and node.dir == directory.id and (self.mending.sure or node.id in lost):
                slots = zip(node.hashes, node.pointers, strict=True)
                found += [(hashed % self.shape.buckets, one) for hashed, one in slots if one]
        return found

    def pointer_to(self, holder: Holder) -> int:
        """What a bucket holds to lead to a node as it lies on the flash."""
        return by_id(holder.id) if holder.id else BY_PAGE << POINTER_BITS | holder.page

    def claim(self, number: int, holder: Holder, pointer: int) -> bool:
        """A directory has a child, whose pages are in use then; False where that is not so, or not yet."""
        if not isinstance(holder, Directory) and holder.id and holder.id in self._named:
            return False
        if isinstance(holder, Directory) and holder.id in self.reached.ids:
            return False
        if holder.parent != number:
            self._doubtful.append((number, pointer))
            return False
        return self.take_child(number, holder, pointer)

    def take_child(self, number: int, holder: Holder, pointer: int) -> bool:
        """Take what a child has."""
        if isinstance(holder, Directory):
            if not self.take_id(holder.id, holder.ino):
                return False
            self.below[number] += 1
            self._todo.append((holder.id, number))
        elif isinstance(holder, Link):
            try:
                target = self.volume.target(holder)
            except F2fsError as error:
                self.lose(f"further name {shown(holder.name)} of directory {holder.parent}: {error}")
                return False
            if not self.take(holder.page, number):
                return False
            self.inos.add(target.ino)
            self.reached.links[holder.target] += 1
        elif holder.id:
            self._named.add(holder.id)
            self.inos.add(holder.ino)
            self.reached.links[holder.id] += 1
        else:
            if not self.leads_somewhere(holder) or not self.take(holder.page, holder.ino):
                return False
            self.file_at(holder, pointer)
            if holder.links != 1:
                self.fix(pointer).links = 1
        if holder.page in self.mending.worn:
            self.fix(pointer)
        return True

    # -- what only one side says

    def settle_doubts(self) -> None:
        """An entry leads to a node that names another place: it belongs here, if nothing else leads to it."""
        doubtful, self._doubtful = self._doubtful, []
        for number, pointer in doubtful:
            try:
                holder = self.volume.child(pointer)
            except F2fsError:
                continue
            if self.is_taken(holder) or holder.name in self.tables[number]:
                continue
            if self.take_child(number, holder, pointer):
                self.fix(pointer).parent = number
                self.tables[number][holder.name] = pointer
                self.said.done.append(f"{shown(holder.name)} in directory {number} says so itself again")
                self.walk()

    def is_taken(self, holder: Holder) -> bool:
        """Whether a node is taken."""
        if holder.id:
            return holder.id in self.reached.ids or holder.id in self._named
        return bool(self.reached.live[holder.page])

    def orphan_directories(self) -> None:
        """Directories that no entry leads to come back where they were, or below lost+found."""
        while True:
            waiting: dict[int, Directory] = {}
            for page in self.scan.unowned(self.reached.live, (DIRECTORY,)):
                node = self.scan.node(page)
                if isinstance(node, Directory) and node.id not in self.reached.ids and node.id not in waiting:
                    waiting[node.id] = node
            waiting = {
                number: node
                for number, node in waiting.items()
                if self.comes_back(node.page, node.parent, name_hash(node.name))
            }
            if not waiting:
                return
            ready = [node for node in waiting.values() if node.parent in self.reached.ids and node.parent != node.id]
            free = [node for node in waiting.values() if node.parent not in waiting]
            if not ready and free and self.remake_gone(free[0].parent):
                continue
            for node in ready or free[:1] or list(waiting.values())[:1]:
                self.bring_back(node, by_id(node.id))
            self.walk()
            self.settle_doubts()

    def comes_back(self, page: int, parent: int, hashed: int) -> bool:
        """Whether what no entry leads to was not deleted: all in use is known, or its bucket is damaged, or it is newer
        than the page of its directory, which would have been written after it."""
        if self.mending.sure or not self.is_directory(parent):
            return True
        if int(self.scan.seq[page]) > int(self.scan.seq[self.reached.ids.get(parent, 0)]):
            return parent in self.reached.ids
        unknown = self.open.get(parent, set[int]())
        return unknown is None or hashed % self.shape.buckets in unknown

    def is_directory(self, number: int) -> bool:
        """Whether there is a directory with this id, in the tree or waiting to be."""
        if number in self.reached.ids:
            return True
        pages = self.scan.of_id(number, (DIRECTORY,))
        return any(self.scan.counts[page] and self.scan.state[page] == WHOLE for page in pages)

    def bring_back(self, node: Holder, pointer: int) -> None:
        """Give a node its place again, or one below lost+found."""
        if isinstance(node, Directory):
            self.mending.lead_to(node.id, node.page)
            node = self.volume.directory(node.id)
        if not self.take_child(ELSEWHERE, node, pointer):
            if isinstance(node, Directory):
                self.reached.live[node.page] = True  # nothing can be made of it, and it is not asked for again
            return
        if isinstance(node, Directory):
            self._todo.pop()
            self.below[ELSEWHERE] -= 1
        self.place(node, pointer)

    def place(self, node: Holder, pointer: int) -> None:
        """Put a node into its directory, or below lost+found."""
        number, name = self.free_place(node.parent, node.name, node.id if isinstance(node, Directory) else node.ino)
        if number == ELSEWHERE or name != node.name:
            self.fix(pointer).name = name
        self.added_to(number)[name] = pointer
        if number == ELSEWHERE or number != node.parent:
            self.fix(pointer).parent = number
        self.said.done.append(f"{what_of(node)} {self.shown_place(number, name)} has a name again")
        if isinstance(node, Directory):
            self.below[number] += 1
            self._todo.append((node.id, number))

    def shown_place(self, number: int, name: bytes) -> str:
        """Where a name is, for people."""
        return f"/lost+found/{shown(name)}" if number == ELSEWHERE else f"{shown(name)} in directory {number}"

    def added_to(self, number: int) -> dict[bytes, int]:
        """The names that are put into a directory."""
        return self.tables[number] if number in self.tables else self.added.setdefault(number, {})

    def free_place(self, parent: int, name: bytes, ino: int) -> tuple[int, bytes]:
        """(directory, name) for what has lost its entry: what it says itself, if that is there and free."""
        if parent in self.reached.ids and name and not self.has_name(parent, name):
            return parent, name
        return ELSEWHERE, free_name(set(self.added.get(ELSEWHERE, ())), b"#%d" % ino)

    def has_name(self, number: int, name: bytes) -> bool:
        """Whether a directory has a name, or will have it."""
        if name in self.tables.get(number, ()) or name in self.added.get(number, ()):
            return True
        if any(file.name == name for file in self.made.get(number, ())):
            return True
        if number in self.tables:
            return False
        try:
            return self.volume.find(self.volume.directory(number), name) is not None
        except F2fsError:
            return True

    def orphan_files(self) -> None:
        """Files and further names that no entry leads to come back where they were, or below lost+found."""
        for parent in sorted(self.parents_without_page()):
            self.remake_gone(parent)
        for page in self.scan.unowned(self.reached.live, (FILE, LINK)):
            node = self.scan.node(page)
            if node is None or isinstance(node, (Directory, Virtual)) or self.reached.live[page]:
                continue
            if isinstance(node, File) and self.is_known(node):
                continue
            if not self.comes_back(page, node.parent, name_hash(node.name)) and node.ino not in self._led:
                continue
            if node.id:
                self.mending.lead_to(node.id, page)
            self.bring_back(node, self.pointer_to(node))
            if isinstance(node, File) and not node.id:
                self.inos.add(node.ino)

    def is_known(self, file: File) -> bool:
        """Whether a file is in the tree already, by another page or by its further names."""
        return file.ino in self.inos or bool(file.id and (file.id in self._named or file.id in self.reached.links))

    def parents_without_page(self) -> set[int]:
        """Directories that files name and of which no page is left."""
        named = {int(self.scan.parent[page]) for page in self.scan.unowned(self.reached.live, (FILE, LINK))}
        return {number for number in named if number and not self.is_directory(number)}

    # -- what has lost its inode

    def files_without_inode(self) -> None:
        """Files of which there is content, or an entry, and no inode: from an older page of it, or made anew."""
        lost = set(self._led)
        if self.mending.sure or self.wrong:
            for page in self.scan.unowned(self.reached.live, (DATA,)):
                if self.comes_back(page, int(self.scan.parent[page]), int(self.scan.hash[page])):
                    lost.add(int(self.scan.ino[page]))
        for ino in sorted(lost - self.inos):
            self.without_inode(ino)

    def without_inode(self, ino: int) -> None:
        """Make a file anew."""
        if self.has_id(ino):
            return
        for page in self.scan.of_ino(ino, (FILE,)):
            node = self.scan.node(page)
            if isinstance(node, File) and not node.id and not self.reached.live[page]:
                self.mending.older.add(page)
                self.bring_back(node, self.pointer_to(node))
                return
        content = self.scan.content_of(ino)
        made = File(ino, stat.S_IFREG | OWNER_ONLY, inline=None)
        found = {number: page for number, page in content.items() if self.take(page, ino)}
        if not found:
            self.said.lost.append(f"inode {ino}, and all that was in it")
            return
        made.size = (max(found) + 1) * self.shape.page_size
        made.atime = made.mtime = made.ctime = made.crtime = self.mending.clock()
        made.name = free_name(set(self.added.setdefault(ELSEWHERE, {})), b"#%d" % ino)
        pointer = -ino
        self.added[ELSEWHERE][made.name] = pointer
        self.made.setdefault(ELSEWHERE, []).append(made)
        self.fixes[pointer] = Fix(parent=ELSEWHERE, content=found)
        self.check_content(made, found, pointer)
        self.inos.add(ino)
        self.reached.files += 1
        self.reached.last_ino = max(self.reached.last_ino, ino)
        self.said.done.append(f"file /lost+found/{shown(made.name)} made of {len(found)} pages of content")
        self.said.lost.append(f"name, owner, permissions, times and end of inode {ino}")

    def has_id(self, ino: int) -> bool:
        """Whether a file with several names has this number."""
        for number in self.reached.links:
            try:
                if self.volume.by_id(number).ino == ino:
                    return True
            except F2fsError:
                continue
        return False

    def files_with_ids(self) -> None:
        """Files with a logical id, by all the names that lead to them."""
        for number in list(self.reached.links):
            file = self.volume.by_id(number)
            assert isinstance(file, File)
            if not self.take_id(number, file.ino):
                continue
            pointer = by_id(number)
            self.file_at(file, pointer)
            if file.name and number not in self._named:
                self.first_name(file, pointer)
            if file.links != self.reached.links[number]:
                self.fix(pointer).links = self.reached.links[number]
            if file.page in self.mending.worn:
                self.fix(pointer)

    def first_name(self, file: File, pointer: int) -> None:
        """A file whose further names are there, and the name in its own page is not: that comes back, or is none."""
        back = self.comes_back(file.page, file.parent, name_hash(file.name)) and file.parent in self.reached.ids
        if not back or self.has_name(file.parent, file.name):
            self.fix(pointer).name = b""
            return
        self.added_to(file.parent)[file.name] = pointer
        self.reached.links[file.id] += 1
        self._named.add(file.id)
        self.said.done.append(f"inode {file.ino} {shown(file.name)} in directory {file.parent} has a name again")


def what_of(node: Node) -> str:
    """What a node is, for people."""
    if isinstance(node, Directory):
        return f"directory {node.id}"
    return f"inode {node.ino}" if isinstance(node, File) else "a further name"
