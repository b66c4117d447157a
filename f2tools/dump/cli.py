"""The `f2tools dump` group: names of the commands and where each is; none is imported before it is run."""

from __future__ import annotations

import click

from f2tools.groups import LazyGroup

_STRUCTURES = "f2tools.dump.structures_cli"
_FILES = "f2tools.dump.files_cli"

COMMANDS = {
    "info": (f"{_STRUCTURES}:info", "What the volume is, how full, and in which state: one screen."),
    "superblock": (f"{_STRUCTURES}:superblock", "Both superblock copies, and how they differ."),
    "checkpoint": (f"{_STRUCTURES}:checkpoint", "Both checkpoint packs, which is live, and why."),
    "nat": (f"{_STRUCTURES}:nat", "The node address table."),
    "sit": (f"{_STRUCTURES}:sit", "The segment information table."),
    "ssa": (f"{_STRUCTURES}:ssa", "Who owns the blocks of segments, by their summaries."),
    "segments": (f"{_STRUCTURES}:segments", "A picture of the volume, and how full its segments are."),
    "node": (f"{_STRUCTURES}:node", "One node, of whatever kind, by its number."),
    "inode": (f"{_STRUCTURES}:inode", "One inode with every field."),
    "dentries": (f"{_STRUCTURES}:dentries", "The entries of a directory, slot by slot."),
    "block": (f"{_STRUCTURES}:block", "One block: what it is, who owns it, what it holds."),
    "map": (f"{_STRUCTURES}:map_", "Where the blocks of a file lie."),
    "layout": (f"{_STRUCTURES}:layout", "Offset, size, type and meaning of every field of the format."),
    "ls": (f"{_FILES}:ls", "List directories."),
    "tree": (f"{_FILES}:tree", "Show the tree of names."),
    "stat": (f"{_FILES}:stat", "What stat says of files."),
    "cat": (f"{_FILES}:cat", "Write the content of files to stdout."),
    "extract": (f"{_FILES}:extract", "Copy files out with all their metadata."),
    "tar": (f"{_FILES}:tar", "Write the tree, or parts of it, as a tar archive."),
    "manifest": (f"{_FILES}:manifest", "The whole tree as JSON, with metadata and hashes."),
    "verify": (f"{_FILES}:verify", "Check fs-verity and compression checksums."),
    "metadata": ("f2tools.dump.metadata_cli:metadata", "A copy without content, for a report of a bug."),
}


@click.group(cls=LazyGroup, commands=COMMANDS)
def dump() -> None:
    """Look at every structure of a volume; list, extract and verify its files.  Nothing is ever written to it.

    \b
    Example:
      f2tools dump info card.img
      f2tools dump inode card.img /etc/passwd
      f2tools dump extract card.img -o files
    """
