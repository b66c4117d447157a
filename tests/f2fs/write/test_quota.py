"""Quota files after every checkpoint: what a count over the tree gives, and nothing for fsck.f2fs to fix."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.errors import DeviceError
from f2tools.f2fs.layout.constants import CP_QUOTA_NEED_FSCK_FLAG, F2FS_COMPR_FL, F2FS_ROOT_INO
from f2tools.f2fs.volume.quota import quota_inos
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.bulk.inodes import load
from f2tools.f2fs.write.bulk.tree import SourceEntry
from f2tools.f2fs.write.volume import WritableVolume
from tests import judges
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.volumes import fresh, judge, writable
from tests.f2fs.write.workload import FILE, noise, text

ROOT = F2FS_ROOT_INO
PACKED = "extra_attr,compression,inode_checksum,project_quota,quota"
OWNERS = (0, 1000, 1001, 65536, 0xFFFFFFFE)


def change(volume: WritableVolume, dice: random.Random, files: dict[bytes, int]) -> None:
    """One random operation on the files by name, which it keeps."""
    deed = dice.choice(
        ("create", "create", "write", "write", "truncate", "chown", "project", "link", "unlink", "xattr")
    )
    name = b"n%d" % dice.randrange(10_000)
    if deed == "create" or not files:
        if name not in files:
            files[name] = volume.create(ROOT, name, FILE, dice.choice(OWNERS), dice.choice(OWNERS))
            if dice.random() < 0.5:
                volume.set_flags(files[name], F2FS_COMPR_FL)
        return
    some = dice.choice(sorted(files))
    ino = files[some]
    if deed == "write":
        at, length = dice.randrange(1 << 22), dice.randrange(1, 1 << 17)
        volume.write(ino, at, dice.choice((text, noise))(at, length))
    elif deed == "truncate":
        volume.truncate(ino, dice.randrange(1 << 22))
    elif deed == "chown":
        volume.setattr(ino, uid=dice.choice(OWNERS), gid=dice.choice(OWNERS))
    elif deed == "project":
        volume.set_projid(ino, dice.choice((0, 0, 42, 1 << 20)))
    elif deed == "link" and name not in files:
        if not volume.live(ino).extra.get("i_projid"):
            volume.link(ino, ROOT, name)
            files[name] = ino
    elif deed == "unlink":
        volume.unlink(ROOT, some)
        del files[some]
    elif deed == "xattr":
        volume.setxattr(ino, "user.long", noise(ino, 3000))


@pytest.mark.peer
@pytest.mark.parametrize("seed", range(3))
def test_random_operations_are_paid_for(seed: int, tmp_path: Path) -> None:
    path = fresh(tmp_path, f"--size 256M -O {PACKED}")
    dice, files = random.Random(seed), dict[bytes, int]()
    volume = writable(path)
    for number in range(250):
        change(volume, dice, files)
        if number % 100 == 99:
            volume.sync()
            with Volume(open_device(path)) as seen:
                assert_consistent(seen, f"after {number + 1} operations")
    assert any(volume.live(ino).extra["i_compr_blocks"] for ino in files.values())
    volume.close()
    judge(path)


@pytest.mark.peer
def test_a_loaded_tree_is_paid_for(tmp_path: Path) -> None:
    path = fresh(tmp_path, f"--size 128M -O {PACKED}")
    entries = [SourceEntry(b"", 0o40755, 7, 8)]
    entries += [SourceEntry(b"d%d" % n, 0o40755, 100 + n, n) for n in range(40)]
    entries += [SourceEntry(b"d%d/f" % n, FILE, n, n, xattrs={"user.long": noise(n, 3000)}) for n in range(40)]
    volume = writable(path)
    load(volume, entries)
    volume.close()
    judge(path)


@pytest.mark.peer
def test_a_file_held_without_a_name_is_paid_for_until_released(tmp_path: Path) -> None:
    path = fresh(tmp_path, f"--size 64M -O {PACKED}")
    volume = writable(path)
    ino = volume.create(ROOT, b"held", FILE, 1000, 1000)
    volume.write(ino, 0, noise(1, 100_000))
    volume.hold(ino)
    volume.unlink(ROOT, b"held")
    volume.sync()
    found = volume.quota("user", 1000)
    assert found is not None
    assert found.inodes == 1
    assert found.space >= 100_000
    volume.release(ino)
    assert volume.quota("user", 1000) is None
    volume.close()
    judge(path)


@pytest.mark.peer
def test_what_was_made_safe_by_fsync_is_paid_for_after_recovery(tmp_path: Path) -> None:
    path = fresh(tmp_path, f"--size 64M -O {PACKED}")
    volume = writable(path)
    ino = volume.create(ROOT, b"safe", FILE, 1000, 1000)
    volume.sync()
    volume.write(ino, 0, noise(2, 5_000_000))
    volume.fsync(ino)
    volume.abandon()
    volume = writable(path)
    found = volume.quota("user", 1000)
    assert found is not None
    assert found.space >= 5_000_000
    volume.close()
    judge(path)


@pytest.mark.peer
def test_a_limit_refuses_and_nothing_has_changed(tmp_path: Path) -> None:
    path = fresh(tmp_path, f"--size 64M -O {PACKED}")
    volume = writable(path)
    ino = volume.create(ROOT, b"limited", FILE, 1000, 1000)
    volume.set_quota("user", 1000, space_hard=40_960, inodes_hard=1)
    volume.write(ino, 0, noise(3, 40_960))
    for refused in (
        lambda: volume.write(ino, 40_960, noise(4, 8192)),
        lambda: volume.create(ROOT, b"second", FILE, 1000, 1000),
    ):
        with pytest.raises(OSError) as caught:
            refused()
        assert caught.value.errno == errno.EDQUOT
    volume.close()
    judge(path)


@pytest.mark.peer
def test_damaged_quota_files_are_left_to_fsck(tmp_path: Path) -> None:
    path = fresh(tmp_path, f"--size 64M -O {PACKED}")
    with Volume(open_device(path)) as seen:
        inode = seen.nodes.inode(quota_inos(seen.sb)["user"])
        at = int(seen.data.addresses(inode, 0, 1)[0]) * seen.geo.block_size
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 4)
    volume = writable(path)
    volume.create(ROOT, b"unpaid", FILE, 1000, 1000)
    volume.close()
    with Volume(open_device(path)) as seen:
        assert seen.cp.ckpt_flags & CP_QUOTA_NEED_FSCK_FLAG
    with writable(path) as volume, pytest.raises(OSError) as asked:  # before anything was charged
        volume.quota("group", 1000)
    assert asked.value.errno == errno.ESRCH, "what is marked as out of date is not counted on"
    judges.run_tool("fsck.f2fs", "-f", "-y", path)
    judge(path)


def test_a_quota_file_that_can_not_be_read_is_not_said_to_count_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writable(fresh(tmp_path, f"--size 64M -O {PACKED}")) as volume:
        for ask in (lambda: volume.quota("user", 1000), lambda: volume.set_quota("user", 1000, space_hard=1 << 30)):
            with monkeypatch.context() as broken:
                broken.setattr(volume.data, "read", _bad_sector)
                with pytest.raises(DeviceError, match="a bad sector"):
                    ask()
            ask()
            vars(volume).pop("quotas")


def _bad_sector(*_: object) -> None:
    raise DeviceError("a bad sector")
