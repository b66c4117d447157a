"""Small files of one directory, made together where nothing but content, mode and times is to be set."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from itertools import groupby

from f2tools.copyout.making import Directory, Maker
from f2tools.f2fs.volume.inode import Inode
from f2tools.native import core

# What `core.make_files` is told of a file: permissions, atime_ns, mtime_ns; where its content lies, and its size.
NEW_FILE = struct.Struct("=5q")
MADE, LEFT = -1, -2  # what it says of one; else the descriptor of a file that was begun
_TIMES = range(-(1 << 63), 1 << 63)

Small = tuple[bytes, Inode, int]  # name, inode, where its content begins


def make_together(maker: Maker, directory: Directory, files: Sequence[Small], content: memoryview) -> None:
    """Make files of one name each, whose contents lie in a buffer; what goes wrong is noted, as by Maker.create."""
    if core is None:
        _one_by_one(maker, directory, files, content)
        return
    for plain, some in groupby(files, lambda file: _plain(maker, file[1])):
        (_at_once if plain else _one_by_one)(maker, directory, list(some), content)


def _one_by_one(maker: Maker, directory: Directory, files: Sequence[Small], content: memoryview) -> None:
    for name, inode, at in files:
        maker.create(directory, name, inode, content[at : at + inode.i_size])


def _plain(maker: Maker, inode: Inode) -> bool:
    """Whether a file needs nothing that only Python does."""
    return maker.as_made(inode) and inode.atime_ns in _TIMES and inode.mtime_ns in _TIMES


def _at_once(maker: Maker, directory: Directory, files: Sequence[Small], content: memoryview) -> None:
    assert core is not None
    names, wanted = bytearray(), bytearray()
    for name, inode, at in files:
        names += name + b"\0"
        wanted += NEW_FILE.pack(inode.i_mode & 0o777, inode.atime_ns, inode.mtime_ns, at, inode.i_size)
    made = memoryview(bytearray(4 * len(files))).cast("i")
    core.make_files(directory.fd, names, wanted, content, made)
    for found, (name, inode, at) in zip(made, files, strict=True):
        data = content[at : at + inode.i_size]
        if found == MADE:
            maker.report.files += 1
            maker.report.bytes += len(data)
        elif found == LEFT:
            maker.create(directory, name, inode, data)
        else:
            os.lseek(found, 0, os.SEEK_SET)
            maker.complete(directory, name, inode, data, found)
