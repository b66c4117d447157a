"""A node of attributes that was given up before a crash: the kernel's recovery leaves it, and so does ours."""

from __future__ import annotations

from pathlib import Path

from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.write.recovered import open_recovered
from f2tools.f2fs.write.volume import WritableVolume
from tests import judges
from tests.f2fs.write.volumes import fresh, writable
from tests.images import copy_sparse


def file_with_a_node(volume: WritableVolume) -> int:
    """A file of which the attributes don't fit into the inode, made safe by fsync alone."""
    ino = volume.create(F2FS_ROOT_INO, b"file", 0o100644)
    volume.setxattr(ino, "user.large", bytes(2000))
    volume.fsync(ino)
    return ino


def test_an_attribute_that_is_gone_stays_gone_after_a_power_cut(tmp_path: Path) -> None:
    """A checkpoint is made, as recovery would bring it back."""
    image = fresh(tmp_path)
    with writable(image) as volume:
        ino = file_with_a_node(volume)
        volume.removexattr(ino, "user.large")
        volume.fsync(ino)
        cut = copy_sparse(image, tmp_path / "cut")
    with open_recovered(cut) as volume:
        found = volume.path("/file")
        assert found.inode.i_xattr_nid == 0
        assert not found.xattrs()


def test_recovery_leaves_the_node_as_the_kernel_does(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        ino = file_with_a_node(volume)
        volume.removexattr(ino, "user.large")
        volume.setxattr(ino, "user.small", b"1")
        volume._need_checkpoint = False  # as the kernel, which fsyncs without one
        volume.nodes.lost_nodes.clear()
        volume.fsync(ino)
        cut = copy_sparse(image, tmp_path / "cut")
    with writable(cut) as volume:
        assert volume.live(ino).i_xattr_nid
        assert volume.live(ino).i_blocks == 2
    judges.fsck_clean(cut)
    with open_recovered(cut) as volume:
        assert volume.path("/file").xattrs() == {"user.small": b"1"}
