"""The room that an inode keeps for attributes, with flexible_inline_xattr: what kernels refuse, and what is legal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import F2FS_INLINE_XATTR, F2FS_ROOT_INO
from tests.dump.craft import f2
from tests.f2fs.write.volumes import FULL, fresh, reading, writable
from tests.fsck.craft import Made

BLOCK = 4096
F2TOOLS = Path(sys.executable).parent / "f2tools"


def volume(directory: Path) -> Path:
    """Files with and without attributes, inside and outside of their inodes."""
    image = fresh(directory, f"--size 64M -O {FULL}")
    with writable(image) as made:
        for name, size in ((b"inside", 900), (b"small", 9 * BLOCK), (b"nodes", 1000 * BLOCK), (b"named", 900)):
            ino = made.create(F2FS_ROOT_INO, name, 0o100644)
            made.write(ino, 0, bytes(range(1, 251)) * (size // 250) + b"x" * (size % 250))
        made.setxattr(ino, "user.a", b"value")
        made.mkdir(F2FS_ROOT_INO, b"dir", 0o755)
    return image


def content(image: Path) -> dict[str, bytes]:
    with reading(image) as made:
        files = {name: made.path(f"/{name}").read() for name in ("inside", "small", "nodes", "named")}
        return files | {"xattr": made.path("/named").xattrs()["user.a"]}


@pytest.mark.parametrize("words", [0, 5, 904])
@pytest.mark.parametrize("name", ["inside", "small", "nodes", "named", "dir"])
def test_a_room_that_cannot_be_is_that_of_other_inodes(name: str, words: int, tmp_path: Path) -> None:
    """See sanity_check_inode() in fs/f2fs/inode.c: MIN_INLINE_XATTR_SIZE is 6, MAX_INLINE_XATTR_SIZE 903."""
    image = volume(tmp_path)
    before = content(image)
    made = Made(image)
    assert made.vol.path(f"/{name}").inode.i_inline & F2FS_INLINE_XATTR
    made.inode(f"/{name}", i_inline_xattr_size=words)
    made.close()
    assert "I012 error" in f2("fsck", image).text
    assert f2("fsck", "-y", image).code == 1
    assert f2("fsck", image).code == 0
    assert content(image) == before
    with reading(image) as now:
        assert now.path(f"/{name}").inode.extra["i_inline_xattr_size"] == 50


@pytest.mark.parametrize(("words", "right"), [(5, False), (6, True), (903, True), (904, False)])
@pytest.mark.parametrize("core", ["on", "off"])
def test_which_rooms_there_may_be(words: int, right: bool, core: str, tmp_path: Path) -> None:
    image = fresh(tmp_path, f"--size 64M -O {FULL}")
    made = Made(image)
    made.inode("/", i_inline_xattr_size=words, i_inline=made.vol.root.inode.i_inline | F2FS_INLINE_XATTR)
    made.close()
    done = subprocess.run(
        [F2TOOLS, "fsck", image], env={**os.environ, "F2TOOLS_CORE": core}, capture_output=True, text=True, check=False
    )
    assert ("I012 error" not in done.stdout) is right, done.stdout


@pytest.mark.parametrize("words", [0, 5])
def test_where_other_things_lie_in_the_usual_room_the_flag_is_wrong(words: int, tmp_path: Path) -> None:
    image = volume(tmp_path)
    with writable(image) as made:
        ino = made.create(F2FS_ROOT_INO, b"full", 0o100644)
        inode = made.live(ino)
        inode.set(i_inline_xattr_size=words, i_inline=inode.i_inline & ~F2FS_INLINE_XATTR)
        inode.forget_derived()
        made.write(ino, 0, b"y" * BLOCK * 950)
    with reading(image) as made:
        assert made.path("/full").inode.addrs_per_inode == 923 - 9 - words
    assert f2("fsck", image).code == 0
    damaged = Made(image)
    inode = damaged.vol.path("/full").inode
    damaged.inode("/full", i_inline=inode.i_inline | F2FS_INLINE_XATTR)
    damaged.close()
    assert "I012 error" in f2("fsck", image).text
    assert f2("fsck", "-y", image).code == 1
    assert f2("fsck", image).code == 0
    with reading(image) as now:
        assert not now.path("/full").inode.i_inline & F2FS_INLINE_XATTR
        assert now.path("/full").read() == b"y" * BLOCK * 950
