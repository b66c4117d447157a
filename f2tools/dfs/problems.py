"""What can be wrong with a volume, each with a code that stays for good."""

from __future__ import annotations

from dataclasses import dataclass

from f2tools.flash.findings import Case, Problem, catalogue

PROBLEMS = catalogue(
    Problem("DFS001", "a copy of the superblock is damaged: {detail}"),
    Problem("DFS002", "the two copies of the superblock say different things of the layout"),
    Problem("DFS003", "the write-ahead log is damaged: {detail}"),
    Problem("DFS010", "the inode can't be used: {detail}"),
    Problem("DFS011", "the inode has {found} links by its own count, and {counted} lead to it"),
    Problem("DFS012", "no directory has a name for this {detail}"),
    Problem("DFS013", "the inode has no links, and the volume was closed"),
    Problem("DFS014", "the symbolic link leads nowhere: {detail}"),
    Problem("DFS020", "a block of the directory is damaged: {detail}"),
    Problem("DFS021", "the directory has holes: {found} of its {counted} blocks are there"),
    Problem("DFS022", "an entry of the directory: {detail}"),
    Problem("DFS023", "the name {name} stands there twice"),
    Problem("DFS024", "the entry {name} leads to inode {found}, which {detail}"),
    Problem("DFS025", "the entry {name} says type {found}, and inode {counted} has another one"),
    Problem("DFS026", "the entry {name} should lead to inode {counted}, and leads to {found}"),
    Problem("DFS027", "the entry {name} is missing"),
    Problem("DFS028", "the directory stands at a second place, as {name} of inode {found}"),
    Problem("DFS029", "the directory can't be reached from the root: those above it lead in a circle"),
    Problem("DFS030", "the root directory can't be used: {detail}"),
    Problem("DFS031", "the entry {name} stands in a bucket to which its name doesn't lead"),
    Problem("DFS032", "the directory counts {found} names, and has {counted}"),
    Problem("DFS040", "{count} blocks that no file has, of this inode's place: {detail}"),
    Problem("DFS041", "{count} blocks are mapped where nothing can be"),
    Problem("DFS042", "a block that is part of the volume can't be read: {detail}"),
    Problem("DFS043", "the storage layer can't read {count} of its pages, and nothing tells what was there: {detail}"),
    Problem("DFS044", "{count} blocks of the file are empty: holes, or what lost pages of the storage layer held"),
)


@dataclass(frozen=True, slots=True)
class Finding(Case):
    """One case: which problem, of which inode, and at which block of the space or which byte of a directory."""

    block: int | None = None
    offset: int | None = None

    def where(self) -> list[str]:
        block = [] if self.block is None else [f"block {self.block:#x}"]
        offset = [] if self.offset is None else [f"byte {self.offset:#x}"]
        return [*Case.where(self), *block, *offset]


def finding(
    code: str, ino: int | None = None, block: int | None = None, offset: int | None = None, **details: object
) -> Finding:  # fmt: skip
    """A case of a problem."""
    return Finding(code, PROBLEMS[code].text.format(**details), ino, block, offset)
