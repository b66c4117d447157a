"""What a file shows: the tree of an image as values that can be compared."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import f2tools
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File

PIECE = 4096


def tree_of(path: Path, *extra: Path) -> dict[bytes, tuple[Any, ...]]:
    """Path to what a file is: kind, mode, owner, links, size, content, target, attributes."""
    found: dict[bytes, tuple[Any, ...]] = {}
    with f2tools.open(path, list(extra)) as volume:
        for directory, _, entries in volume.walk():
            for entry in entries:
                assert isinstance(entry.inode, Inode), entry
                name = directory.rstrip(b"/") + b"/" + entry.name
                found[name] = shown(File(volume, entry.inode, name))
    return found


def shown(file: File) -> tuple[Any, ...]:
    """Kind, mode, owner, group, links, size, content or target, time, attributes."""
    inode = file.inode
    content = b""
    if inode.kind == "symlink":
        content = file.readlink()
    elif inode.is_file and not inode.encrypted:
        digest = hashlib.sha256()
        for offset, data in file.chunks():
            for at in range(0, len(data), PIECE):  # however the chunks are cut, holes or zeros; size is beside
                piece = bytes(data[at : at + PIECE]).rstrip(b"\0")
                if piece:
                    digest.update((offset + at).to_bytes(8, "little") + len(piece).to_bytes(8, "little") + piece)
        content = digest.digest()
    size = 0 if inode.is_dir else inode.i_size
    mtime = 0 if inode.is_dir else inode.mtime_ns
    return (inode.kind, inode.i_mode, inode.i_uid, inode.i_gid, inode.i_links, size, content, mtime, file.xattrs())
