"""Paths of files by what their inodes remember, where directories can't be asked."""

from __future__ import annotations

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.text import join

DEPTH = 4096  # directories from a file up to the root, at most


def path_of(volume: Volume, inode: Inode) -> bytes | None:
    """The path by what the inodes remember of their parents; None where that leads nowhere."""
    parts: list[bytes] = []
    for _ in range(DEPTH):
        if inode.ino == inode.i_pino or inode.ino == F2FS_ROOT_INO:
            break
        parts.append(inode.name)
        if inode.i_pino == F2FS_ROOT_INO:
            break
        try:
            inode = volume.nodes.inode(inode.i_pino)
        except F2fsError:
            return None
    else:
        return None
    path = b"/"
    for part in reversed(parts):
        path = join(path, part)
    return path
