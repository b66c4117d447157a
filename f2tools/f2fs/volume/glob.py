"""Patterns for paths on a volume, as a shell has them; and the paths that begin as what was typed so far."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import F2FS_FT_DIR
from f2tools.text import expanded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from f2tools.f2fs.volume.dentries import Dentry
    from f2tools.f2fs.volume.inode import Inode
    from f2tools.f2fs.volume.volume import Volume


def expand(volume: Volume, pattern: bytes) -> list[bytes]:
    """The paths that a pattern means; `text.expanded` says how."""
    return expanded(pattern, partial(_is_there, volume), partial(_names, volume))


def expand_all(volume: Volume, paths: tuple[str, ...]) -> tuple[str, ...]:
    """`expand` for paths of a command line; one that matches nothing stays, to be reported as missing."""
    return tuple(
        os.fsdecode(path) for text in paths for path in expand(volume, os.fsencode(text)) or [os.fsencode(text)]
    )


def beginning(volume: Volume, path: bytes) -> list[tuple[bytes, bool]]:
    """(path, whether it is a directory) of all files whose path begins so, sorted; hidden ones only after a dot."""
    above, slash, begun = path.rpartition(b"/")
    found: list[tuple[bytes, bool]] = []
    with suppress(OSError, F2fsError):
        directory = volume.path(above or b"/").inode
        if not directory.is_dir:
            return []
        for entry, name in _entries(volume, directory):
            if name.startswith(begun) and (begun or not name.startswith(b".")):
                found.append((above + slash + name, entry.file_type == F2FS_FT_DIR))
    return sorted(found)


def _names(volume: Volume, directory: bytes) -> list[bytes]:
    """Names in a directory; none if it is not a directory, or can't be read."""
    with suppress(OSError, F2fsError):
        inode = volume.path(directory).inode
        if inode.is_dir:
            return [name for _, name in _entries(volume, inode)]
    return []


def _entries(volume: Volume, directory: Inode) -> Iterator[tuple[Dentry, bytes]]:
    """The entries of a directory with the names that a reader sees, and paths have."""
    entries = [entry for entry in volume.dirs.entries(directory) if entry.name not in (b".", b"..")]
    return zip(entries, volume.dirs.shown(directory, entries), strict=True)


def _is_there(volume: Volume, path: bytes) -> bool:
    try:
        volume.path(path, follow=False)
    except (OSError, F2fsError):
        return False
    return True
