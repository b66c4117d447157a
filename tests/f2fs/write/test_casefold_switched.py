"""A directory that no longer ignores the case of names, and what is synced in it; one that may not begin to."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import F2FS_CASEFOLD_FL
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO as ROOT
from f2tools.f2fs.volume.inode import Inode
from tests import images
from tests.f2fs.write.volumes import fresh, judge, writable
from tests.f2fs.write.workload import FILE


def test_names_that_differ_in_case_are_both_there_after_a_power_cut(tmp_path: Path) -> None:
    image = fresh(tmp_path, "--size 64M -C utf8")
    with writable(image) as volume:
        home = volume.mkdir(ROOT, b"home", 0o755)
        volume.set_flags(home, F2FS_CASEFOLD_FL)
    volume = writable(image)
    volume.set_flags(home, 0)
    for name in (b"name", b"NAME"):
        ino = volume.create(home, name, FILE)
        volume.write(ino, 0, name)
        volume.fsync(ino)
    volume.abandon()
    with writable(image) as volume:
        for name in (b"name", b"NAME"):
            assert volume.read_at(volume.lookup(home, name), 0, 9) == name
    judge(image)


def test_names_that_are_encrypted_are_not_folded_without_their_key(tmp_path: Path) -> None:
    """The kernel asks for the key before anything else: see fscrypt_prepare_setflags()."""
    path = images.reference("fscrypt-android").copy(tmp_path).path
    with writable(path) as volume:
        found = [entry.inode for entry in volume.listdir(volume.live(ROOT)) if isinstance(entry.inode, Inode)]
        found = [inode for inode in found if inode.encrypted and inode.is_dir]
        assert found
        for inode in found:
            other = 0 if inode.i_flags & F2FS_CASEFOLD_FL else F2FS_CASEFOLD_FL
            with pytest.raises(OSError) as caught:
                volume.set_flags(inode.ino, other)
            assert caught.value.errno == (errno.ENOKEY if other else errno.ENOTEMPTY)
