"""Making a damaged volume sound from what is left of it, and saying what was lost.

What is on the flash twice tells it: the page of an inode has name and parent, so tables of names are made anew from the
files; the tag of a page of content has inode and place, so its index is; the newest page of a logical id is in the
mapping table.  What has lost its name goes to `lost+found`, what leads nowhere is removed.

All of a repair is one commit: it goes into free erase blocks, and the checkpoint at its end makes it count.  Killed
before that, it has changed nothing that the volume needs, and the next one begins anew.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from itertools import count

from f2tools.device.base import Device
from f2tools.device.open import open_for_change
from f2tools.dffs.check import check
from f2tools.dffs.engine import MOST_FRESH, MOST_WAITING
from f2tools.dffs.layout import LINK_MAX, ROOT_ID, SUPER
from f2tools.dffs.log import NOTHING
from f2tools.dffs.mending import Mending
from f2tools.dffs.nodes import Directory, File, Link, by_id, name_hash, new_directory, new_slots
from f2tools.dffs.pages import build_spare
from f2tools.dffs.regrown import ELSEWHERE, LOST_AND_FOUND, Regrown
from f2tools.dffs.regrown_files import Fix, shown
from f2tools.dffs.volume import Volume
from f2tools.errors import Corrupt, DeviceError, F2fsError, Where
from f2tools.flash.checksums import crc32
from f2tools.flash.nand import EraseFailed, Nand, ProgramFailed
from f2tools.repaired import Repair, free_name

Advance = Callable[[int], None]
LOOK_EACH = 256  # steps, between two looks at how much room is left


def rehearse(path: str, now: int, advance: Advance = lambda _: None) -> tuple[Repair, bool]:
    """(what a repair of a dump does, whether its volume is sound after it), all of it in memory."""
    device = open_for_change(path, dry_run=True, whole=True)
    try:
        return _repair(device, now, advance), check(Volume(device)).sound
    finally:
        device.close()


def repair_image(path: str, now: int, undo: str | None = None, advance: Advance = lambda _: None) -> Repair:
    """Repair the volume in a dump; with `undo`, what is overwritten is kept in that new file."""
    device = open_for_change(path, undo=undo, whole=True)
    try:
        return _repair(device, now, advance)
    finally:
        device.close()


def repair(place: Device | Nand, *, now: int) -> Repair:
    """Repair the volume on a chip or in a dump, which stay open; NotDffs where nothing of one is left.  `now` is for
    what is made anew."""
    return _repair(place, now, lambda _: None)


def _repair(place: Device | Nand, now: int, advance: Advance) -> Repair:
    ticks = count(now)
    return _Repairer(Mending(place, clock=lambda: next(ticks), advance=advance)).run()


class _Repairer:
    """One repair of one volume."""

    def __init__(self, volume: Mending) -> None:
        self.volume = volume
        self.said = volume.said
        self.tree = Regrown(volume, self.said)
        self.opened: dict[int, Directory | File | Link] = {}
        self.steps = 0

    def run(self) -> Repair:
        """Find out what the volume should be, write that, and let it count."""
        volume, tree = self.volume, self.tree
        tree.grow()
        for number, pointer in ((number, by_id(number)) for number in tree.remade):
            self.opened[pointer] = tree.remade[number]
        volume.make_ready(tree.reached.live, tree.reached.ids, max(volume.last_ino(), tree.reached.last_ino))
        try:
            for made in tree.remade.values():
                volume.adopt(made)
            self.elsewhere()
            self.directories()
            for pointer, fix in tree.fixes.items():
                self.mend(pointer, fix)
                self.not_too_much()
            self.links_of_directories()
            self.steps = -1
            self.not_too_much()
            volume.checkpoint(clean=True)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise Corrupt(Where(area="volume"), f"it is too full to be repaired: {error}") from None
        self.said.done.append("mapping table, space table and checkpoint written anew")
        self.supers()
        volume.log.chip.flush()
        return self.said

    def not_too_much(self) -> None:
        """Write what waits if it is much; it doesn't count before the checkpoint."""
        self.steps += 1
        if self.steps % LOOK_EACH and self.volume._fresh <= MOST_FRESH:
            return
        if self.volume.waiting > MOST_WAITING or self.volume._fresh > MOST_FRESH:
            self.volume.commit()
        if self.volume.log.room < self.volume.waiting + self.volume._checkpoint_cost(all_of_it=True):
            raise OSError(errno.ENOSPC, "no erase block is free for what has to be written")

    # -- directories

    def elsewhere(self) -> None:
        """What has lost its name goes to `lost+found` in the root, made where there is none."""
        tree, volume = self.tree, self.volume
        waiting = tree.added.pop(ELSEWHERE, {})
        if not waiting:
            return
        found = self.lost_and_found()
        names = set(tree.tables.get(found.id, ())) | set(tree.added.get(found.id, ()))
        if found.id not in tree.tables:
            names |= {entry.name for entry in volume.entries(found, problems=[])}
        into = tree.added_to(found.id)
        for name, pointer in waiting.items():
            fix = tree.fix(pointer)
            fix.parent = found.id
            fix.name = free_name(names, name)
            names.add(fix.name)
            into[fix.name] = pointer
        tree.below[found.id] += tree.below.pop(ELSEWHERE, 0)
        for made in tree.made.pop(ELSEWHERE, []):
            self.opened[-made.ino] = made

    def lost_and_found(self) -> Directory:
        """The directory of that name in the root."""
        tree, volume = self.tree, self.volume
        pointer = tree.tables.get(ROOT_ID, {}).get(LOST_AND_FOUND)
        if ROOT_ID in tree.tables:
            there = None if pointer is None else volume.child(pointer)
            names = set(tree.tables[ROOT_ID])
        else:
            root = volume.directory(ROOT_ID)
            entry = volume.find(root, LOST_AND_FOUND)
            there = None if entry is None else entry.inode
            names = {one.name for one in volume.entries(root, problems=[])}
        names |= set(tree.added.get(ROOT_ID, ()))
        if isinstance(there, Directory) and there.id in tree.reached.ids:
            return there
        made = new_directory(volume.shape, volume.new_id(), stat.S_IFDIR | 0o700)
        made.name, made.parent = free_name(names, LOST_AND_FOUND), ROOT_ID
        made.atime = made.mtime = made.ctime = made.crtime = volume.clock()
        volume.adopt(made)
        self.opened[by_id(made.id)] = made
        tree.added_to(ROOT_ID)[made.name] = by_id(made.id)
        tree.tables[made.id] = {}
        tree.reached.ids[made.id] = 0
        tree.below[ROOT_ID] += 1
        self.said.done.append(f"directory /{shown(made.name)} made")
        return made

    def directories(self) -> None:
        """Tables that are made anew, and what comes into others."""
        tree, volume = self.tree, self.volume
        for number, names in tree.tables.items():
            directory = volume.directory(number)
            volume.touch(directory)
            directory.primary[:] = type(directory.primary)("I", bytes(4 * len(directory.primary)))
            directory.secondary[:] = bytes(len(directory.secondary))
            directory.first = directory.pages = directory.size = 0
            self.insert_all(directory, names)
        for number, size in tree.sizes.items():
            directory = volume.directory(number)
            volume.touch(directory)
            directory.size = size
            self.said.done.append(f"directory {number}: {size} children counted")
        for number, names in tree.added.items():
            self.insert_all(volume.directory(number), names)

    def insert_all(self, directory: Directory, names: dict[bytes, int]) -> None:
        """Put children into a directory, under these names."""
        volume = self.volume
        for name, pointer in names.items():
            fix = self.tree.fixes.get(pointer)
            if fix is not None and (fix.name is not None or fix.parent is not None or pointer < 0):
                node = self.opened.get(pointer) or volume.child(pointer)
                node.name = name
                node.parent = directory.id
                if not node.dirty:
                    volume.adopt(node)
                self.opened[pointer] = node
                pointer = volume.pointer_to(node)
            volume.names.insert(directory, name_hash(name), pointer)
            self.not_too_much()

    # -- inodes

    def mend(self, pointer: int, fix: Fix) -> None:
        """Carry out the changes to a node."""
        volume = self.volume
        node = self.opened.get(pointer)
        if node is None:
            node = volume.child(pointer)
        volume.touch(node)
        if isinstance(node, Directory):
            if fix.parent not in (None, ELSEWHERE):
                node.parent = fix.parent or node.parent
            return
        if isinstance(node, Link):
            return
        if fix.name == b"":
            node.name, node.parent = b"", 0
        self.say_counts(node, fix)
        node.links = node.links if fix.links is None else min(fix.links, LINK_MAX)
        node.pages = node.pages if fix.pages is None else fix.pages
        node.size = node.size if fix.size is None else fix.size
        if fix.content is not None:
            self.put_content(node, fix.content)
        for number in fix.as_read:
            page = volume.data_page(node, number)
            node.fresh[number] = bytearray(volume.scan.as_read(page))
            volume._fresh += 1
            if number >= volume.shape.direct:
                volume._indexed.add(node.ino)

    def say_counts(self, file: File, fix: Fix) -> None:
        """Report what is counted anew for a file."""
        if fix.links is not None and file.page:
            self.said.done.append(f"inode {file.ino}: {fix.links} names lead to it, instead of {file.links}")
        if fix.pages is not None:
            self.said.done.append(f"inode {file.ino}: {fix.pages} pages, instead of {file.pages}")
        if fix == Fix():
            self.said.done.append(f"inode {file.ino} written anew: its page can't be read by others as it is")

    def put_content(self, file: File, content: dict[int, int]) -> None:
        """Let the pages of a file be these, by new index pages; what no file can have is none of its pages."""
        content = {number: page for number, page in content.items() if number < self.volume.shape.most_pages}
        file.inline, file.slots, file.pages = None, new_slots(self.volume.shape), len(content)
        file.index.clear()
        for number, page in content.items():
            self.volume._set_data(file, number, page)

    def links_of_directories(self) -> None:
        """Every directory counts those in it."""
        for number in self.tree.reached.ids:
            try:
                directory = self.volume.by_id(number)
            except F2fsError:
                continue
            wanted = 2 + self.tree.below[number]
            if isinstance(directory, Directory) and directory.links != wanted:
                self.volume.touch(directory)
                self.said.done.append(f"directory {number}: {wanted} links, instead of {directory.links}")
                directory.links = wanted
                self.not_too_much()

    # -- superblocks

    def supers(self) -> None:
        """Every copy of the superblock is as the one that counts; one after the other, so one is always there."""
        volume, shape = self.volume, self.volume.shape
        page = volume.sb.build().ljust(shape.page_size, b"\0")
        spare = build_spare(shape, NOTHING._replace(kind=SUPER, data_crc=crc32(page)), page)
        chip = volume.log.chip
        for block in (int(one) for one in volume.sb.supers):  # type: ignore[attr-defined]
            if block >= shape.blocks:
                continue
            first = block * shape.pages_per_block
            try:
                if volume.pages.content(first) == page:
                    continue
            except (Corrupt, DeviceError):
                pass
            try:
                chip.erase(block)
                chip.program(first, page, spare)
                self.said.done.append(f"superblock in block {block} written anew")
            except (EraseFailed, ProgramFailed) as error:
                self.said.lost.append(f"the copy of the superblock in block {block}: {error}")
