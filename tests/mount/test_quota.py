"""A mount that no longer counts quota, so that no limit holds, tells its user, once, and what helps."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from f2tools.errors import DeviceError
from f2tools.f2fs.layout.constants import CP_QUOTA_NEED_FSCK_FLAG
from f2tools.f2fs.volume.quota import quota_inos
from f2tools.mount.tree import LiveTree
from tests.dump.craft import f2
from tests.f2fs.write.volumes import FULL, fresh, judge, reading, writable
from tests.f2fs.write.workload import FILE
from tests.fsck.craft import Made
from tests.mount.mounted import both_servers, mounted, need_fuse

GIVEN_UP = "quota is not counted any more and marked as out of date"
MARKED = "quota is marked as out of date, so it is not counted and no limit holds"
HELP = "f2tools fsck -y counts it anew"


def damaged(directory: Path) -> Path:
    """A volume on which a quota file is not sound."""
    image = fresh(directory, f"--size 64M -O {FULL}")
    with reading(image) as seen:
        inode = seen.nodes.inode(quota_inos(seen.sb)["user"])
        at = int(seen.data.addresses(inode, 0, 1)[0]) * seen.geo.block_size
    with image.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 4)
    return image


def marked(directory: Path) -> Path:
    """A volume whose checkpoint says that quota is out of date."""
    made = Made(fresh(directory, f"--size 64M -O {FULL}"))
    made.checkpoint(ckpt_flags=made.vol.cp.ckpt_flags | CP_QUOTA_NEED_FSCK_FLAG)
    made.close()
    return made.path


@both_servers
def test_a_quota_file_that_is_not_sound_is_said_when_it_is_mounted(tmp_path: Path, server: str) -> None:
    image = damaged(tmp_path)
    with mounted(image, tmp_path / "mnt", server=server, may_say=GIVEN_UP) as mount:
        for name in ("a", "b"):
            (mount.directory / name).write_bytes(b"content")
    assert mount.said().count(GIVEN_UP) == 1
    assert HELP in mount.said()
    assert f2("fsck", "-y", image).code == 1
    with mounted(image, tmp_path / "mnt", server=server) as mount:
        (mount.directory / "a").unlink()
    judge(image)


def test_the_mark_that_leaves_quota_off_is_said_by_a_mount_in_the_background(tmp_path: Path) -> None:
    need_fuse()
    image, directory = marked(tmp_path), tmp_path / "mnt"
    directory.mkdir()
    done = subprocess.run(["f2tools", "mount", image, directory], capture_output=True, text=True, check=True)
    try:
        assert done.stderr.count(MARKED) == 1
        assert HELP in done.stderr
    finally:
        subprocess.run(["fusermount3", "-u", directory], check=True)


def test_quota_that_is_given_up_while_it_is_mounted_is_said_on_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(*_: object) -> None:
        raise DeviceError("a bad sector")

    with closing(LiveTree(writable(fresh(tmp_path, f"--size 64M -O {FULL}")))) as tree:
        tree.create(3, b"before", FILE, 1000, 1000)
        assert not caplog.text
        monkeypatch.setattr(tree.volume.quotas, "charge", bad)
        for name in (b"a", b"b"):
            tree.create(3, name, FILE, 1000, 1000)
    assert caplog.text.count(GIVEN_UP) == 1
    assert "a bad sector" in caplog.text
    assert HELP in caplog.text
