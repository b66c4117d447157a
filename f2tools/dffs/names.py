"""Directories that change: a child in its bucket, further ones of the same bucket in a virtual inode of the directory.

All children of a bucket with more than one stand in one virtual inode, chained by slots, so that finding any of them
takes one page more and no walk.  The virtual inodes of a directory are a doubly linked list; a chain that has no room
where it is moves as a whole.
"""

from __future__ import annotations

import errno
from typing import Protocol

from f2tools.dffs.layout import COLLISION, POINTER_BITS, POINTER_MASK, Shape
from f2tools.dffs.nodes import Directory, File, Link, Malformed, Virtual, name_hash, new_virtual
from f2tools.errors import Corrupt, Where


class Nodes(Protocol):
    """What the directories need of the engine."""

    shape: Shape

    def virtual(self, number: int) -> Virtual: ...

    def child(self, pointer: int) -> Directory | File | Link: ...

    def touch(self, node: Directory | Virtual) -> None:
        """Note that a node is about to change."""
        ...

    def new_id(self) -> int: ...

    def drop_id(self, node: Virtual) -> None:
        """Note that a virtual inode is gone."""
        ...

    def adopt(self, node: Virtual) -> None:
        """Note a new virtual inode."""
        ...


class DirectoryFull(OSError):
    """So many names of a directory fall into one bucket that no virtual inode holds them."""


class NameTree:
    """The children of directories, by hash and by what leads to them."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.shape = nodes.shape

    def ids_for(self, directory: Directory, hashed: int) -> int:
        """How many logical ids `insert` takes; DirectoryFull."""
        there, count = directory.primary[hashed % self.shape.buckets], 2
        if not there:
            return 0
        if there >> POINTER_BITS == COLLISION:
            virtual = self.nodes.virtual(there & POINTER_MASK)
            if virtual.free:
                return 0
            count = len(self._slots(directory, virtual, hashed % self.shape.buckets)) + 1
        return int(self._found_room(directory, count) is None)

    def insert(self, directory: Directory, hashed: int, pointer: int) -> None:
        """Add a child; OSError where the directory has no room or no logical id is left, see `ids_for`."""
        number = hashed % self.shape.buckets
        there = directory.primary[number]
        if not there:
            self.nodes.touch(directory)
            directory.primary[number] = pointer
        elif there >> POINTER_BITS != COLLISION:
            first = name_hash(self.nodes.child(there).name)
            virtual = self._with_room(directory, 2)
            self._chain(directory, number, virtual, [(there, first), (pointer, hashed)])
        else:
            virtual = self.nodes.virtual(there & POINTER_MASK)
            if virtual.free:
                self._chain(directory, number, virtual, [(pointer, hashed)], directory.secondary[number])
            else:
                chain = self._slots(directory, virtual, number)
                all_of_it = [(virtual.pointers[slot], virtual.hashes[slot]) for slot in chain] + [(pointer, hashed)]
                other = self._with_room(directory, len(all_of_it))
                self._clear(directory, virtual, chain)
                self._chain(directory, number, other, all_of_it)
        self.nodes.touch(directory)
        directory.size += 1

    def remove(self, directory: Directory, hashed: int, pointer: int) -> None:
        """Take a child away."""
        number = hashed % self.shape.buckets
        there = directory.primary[number]
        self.nodes.touch(directory)
        if there >> POINTER_BITS != COLLISION:
            self._must(directory, there == pointer)
            directory.primary[number] = 0
        else:
            virtual = self.nodes.virtual(there & POINTER_MASK)
            chain = self._slots(directory, virtual, number)
            rest = [(virtual.pointers[slot], virtual.hashes[slot]) for slot in chain]
            self._must(directory, any(one == pointer for one, _ in rest))
            rest = [(one, found) for one, found in rest if one != pointer]
            self.nodes.touch(virtual)
            if len(rest) > 1:
                self._unchain(directory, virtual, number, chain, pointer)
            else:
                directory.primary[number], directory.secondary[number] = rest[0][0] if rest else 0, 0
                self._clear(directory, virtual, chain)
        directory.size = max(0, directory.size - 1)

    def replace(self, directory: Directory, hashed: int, old: int, new: int) -> None:
        """Let a child's place lead elsewhere."""
        number = hashed % self.shape.buckets
        there = directory.primary[number]
        self.nodes.touch(directory)
        if there >> POINTER_BITS != COLLISION:
            self._must(directory, there == old)
            directory.primary[number] = new
            return
        virtual = self.nodes.virtual(there & POINTER_MASK)
        slot = next((s for s in self._slots(directory, virtual, number) if virtual.pointers[s] == old), None)
        self._must(directory, slot is not None)
        assert slot is not None
        self.nodes.touch(virtual)
        virtual.pointers[slot] = new

    # -- inside

    def _chain(
        self, directory: Directory, number: int, virtual: Virtual, children: list[tuple[int, int]], after: int = 0
    ) -> None:  # fmt: skip
        """Put children of a bucket into free slots, in front of those that are chained from `after` on."""
        self.nodes.touch(directory)
        self.nodes.touch(virtual)
        free = 0
        for pointer, hashed in children:
            free = virtual.pointers.index(0, free)
            virtual.pointers[free], virtual.hashes[free], virtual.nexts[free] = pointer, hashed, after
            after = free + 1
        directory.primary[number] = COLLISION << POINTER_BITS | virtual.id
        directory.secondary[number] = after

    def _unchain(self, directory: Directory, virtual: Virtual, number: int, chain: list[int], pointer: int) -> None:
        at = next(i for i, slot in enumerate(chain) if virtual.pointers[slot] == pointer)
        after = virtual.nexts[chain[at]]
        if at:
            virtual.nexts[chain[at - 1]] = after
        else:
            directory.secondary[number] = after
        self._free(virtual, chain[at])

    def _clear(self, directory: Directory, virtual: Virtual, chain: list[int]) -> None:
        """Free the slots of a chain; a virtual inode that is empty then leaves the list."""
        self.nodes.touch(virtual)
        for slot in chain:
            self._free(virtual, slot)
        if any(virtual.pointers):
            return
        if virtual.prev:
            before = self._of(directory, virtual.prev)
            self.nodes.touch(before)
            before.next = virtual.next
        else:
            self.nodes.touch(directory)
            directory.first = virtual.next
        if virtual.next:
            after = self._of(directory, virtual.next)
            self.nodes.touch(after)
            after.prev = virtual.prev
        directory.pages -= 1
        self.nodes.drop_id(virtual)

    def _free(self, virtual: Virtual, slot: int) -> None:
        virtual.pointers[slot] = virtual.hashes[slot] = virtual.nexts[slot] = 0

    def _with_room(self, directory: Directory, count: int) -> Virtual:
        """A virtual inode of the directory with so many free slots, a new one at the head of the list if need be."""
        return self._found_room(directory, count) or self._new_virtual(directory)

    def _found_room(self, directory: Directory, count: int) -> Virtual | None:
        """The first virtual inode of the directory with so many free slots; DirectoryFull where none can have them."""
        if count > self.shape.slots:
            raise DirectoryFull(
                errno.ENOSPC, f"too many names of this directory share a bucket; {self.shape.slots} can"
            )
        number, met = directory.first, 0
        while number:
            virtual = self._of(directory, number)
            if virtual.free >= count:
                return virtual
            number, met = virtual.next, met + 1
            self._must(directory, met <= self.shape.ids)
        return None

    def _new_virtual(self, directory: Directory) -> Virtual:
        made = new_virtual(self.shape, self.nodes.new_id(), directory.id)
        made.next = directory.first
        self.nodes.touch(directory)
        if directory.first:
            head = self._of(directory, directory.first)
            self.nodes.touch(head)
            head.prev = made.id
        directory.first = made.id
        directory.pages += 1
        self.nodes.adopt(made)
        return made

    def _of(self, directory: Directory, number: int) -> Virtual:
        virtual = self.nodes.virtual(number)
        self._must(directory, virtual.dir == directory.id)
        return virtual

    def _slots(self, directory: Directory, virtual: Virtual, number: int) -> list[int]:
        self._must(directory, virtual.dir == directory.id)
        try:
            return virtual.chain(directory.secondary[number])
        except Malformed as error:
            raise Corrupt(Where(area=f"directory {directory.id}"), str(error)) from None

    def _must(self, directory: Directory, holds: bool) -> None:
        if not holds:
            raise Corrupt(
                Where(area=f"directory {directory.id}"), "its entries don't fit together; `f2tools dffs fsck` says more"
            )
