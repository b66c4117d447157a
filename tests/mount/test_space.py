"""What df shows of a mount."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.fuse.options import ServeOptions
from f2tools.fuse.served import Served
from f2tools.mount.tree import LiveTree
from tests.f2fs.write.volumes import fresh, writable


def test_the_space_of_a_deleted_file_is_free_at_once_unless_it_is_open(tmp_path: Path) -> None:
    tree = LiveTree(writable(fresh(tmp_path)))
    served = Served(tree, ServeOptions())
    before = served.space_for(F2FS_ROOT_INO)
    ino = tree.create(F2FS_ROOT_INO, b"file", stat.S_IFREG | 0o644, 0, 0)
    served.told(ino)
    handle = served.opened(ino, os.O_RDWR, 0)
    tree.write(ino, 0, b"x" * (1 << 20))
    full = served.space_for(F2FS_ROOT_INO)
    assert full.f_bfree == before.f_bfree - 257
    assert full.f_ffree < before.f_ffree
    tree.unlink(F2FS_ROOT_INO, b"file")
    assert served.space_for(F2FS_ROOT_INO) == full
    served.closed(handle)
    assert served.space_for(F2FS_ROOT_INO) == before
    assert tree.read(ino, 0, 3) == b"xxx"  # the kernel still knows it
    served.forgotten(ino, 1)
    assert served.space_for(F2FS_ROOT_INO) == before
    tree.close()
