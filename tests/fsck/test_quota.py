"""Quota after a crash: what a checkpoint counts wrongly stays wrong, as nothing but a check counts anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import CP_QUOTA_NEED_FSCK_FLAG, F2FS_ROOT_INO
from f2tools.f2fs.write.volume import WritableVolume
from tests import judges
from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh, reading, writable
from tests.fsck.craft import Made

OPTIONS = "--size 64M -O extra_attr,project_quota,quota"
FILE = 0o100644


def files(volume: WritableVolume, prefix: str, count: int, *, fsync: bool = False) -> None:
    for number in range(count):
        ino = volume.create(F2FS_ROOT_INO, f"{prefix}{number}".encode(), FILE)
        volume.write(ino, 0, bytes([number + 1]) * 9000)
        if fsync:
            volume.fsync(ino)


def crashed(directory: Path, monkeypatch: pytest.MonkeyPatch, *, flushed: bool) -> Path:
    """A volume with files, an orphan and fsync'ed files after the checkpoint.

    Not `flushed`: quota was not written with the checkpoint, as Linux 7.3 does at that of a freeze, without a mark.
    """
    image = fresh(directory, OPTIONS)
    with writable(image) as volume:
        files(volume, "old", 2)
        volume.sync()
        files(volume, "more", 3)
        ino = volume.path(b"/old1").inode.ino
        volume.hold(ino)
        volume.unlink(F2FS_ROOT_INO, b"old1")
        with monkeypatch.context() as patch:
            if not flushed:
                patch.setattr(WritableVolume, "_flush_quota", lambda _: None)
            volume.sync()
        files(volume, "synced", 4, fsync=True)
        volume.abandon()
    return image


def wrong_users(image: Path) -> list[str]:
    """What fsck says of the use of users; its exit code is that of damage where there is something."""
    done = f2("fsck", image)
    found = [line.split(": ", 2)[2] for line in done.text.splitlines() if "Q002" in line and ": user" in line]
    assert done.code == (4 if found else 0), done.text
    return found


def test_quota_that_a_checkpoint_counts_wrongly_is_told_before_and_after_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = crashed(tmp_path, monkeypatch, flushed=False)
    assert wrong_users(image) == ["user 0: 3 files, 28672 bytes, must be 6 files, 65536 bytes"]
    assert f2("recover", "--apply", image).code == 0
    # the orphan is gone, and what was recovered is counted: wrong by as much as before
    assert wrong_users(image) == ["user 0: 6 files, 65536 bytes, must be 9 files, 102400 bytes"]


@pytest.mark.parametrize("option", ["-p", "-y"])
def test_wrong_quota_of_a_crashed_volume_is_counted_anew(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = crashed(tmp_path, monkeypatch, flushed=False)
    assert f2("fsck", option, image).code == 1
    assert not wrong_users(image)
    with reading(image) as volume:
        assert all(volume.path(b"/synced%d" % number).inode.i_size == 9000 for number in range(4))
    judges.fsck_clean(image)


def test_right_quota_of_a_crashed_volume_stays_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = crashed(tmp_path, monkeypatch, flushed=True)
    assert not wrong_users(image)
    assert f2("recover", "--apply", image).code == 0
    assert not wrong_users(image)
    judges.fsck_clean(image)


def said_by_recover(image: Path, *options: str) -> list[str]:
    done = f2("recover", *options, image)
    assert done.code == 0, done.text
    return [line.split(None, 1)[1] for line in done.text.splitlines() if line.startswith("quota:")]


@pytest.mark.parametrize("change", ["--apply", "--rollback"])
def test_recover_says_that_quota_was_wrong_before_and_stays_so(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = crashed(tmp_path, monkeypatch, flushed=False)
    wrong = "user 0: 3 files, 28672 bytes, must be 6 files, 65536 bytes"
    before = image.read_bytes()
    for options in ((change, "--dry-run"), (change,)):
        said = said_by_recover(image, *options)
        assert any(wrong in line for line in said), said
        assert f"f2tools fsck -y --undo FILE {image}" in said[-1]
        assert "stays" in said[-1]
        assert (image.read_bytes() == before) == (len(options) == 2)
    assert len(wrong_users(image)) == 1


def test_recover_says_nothing_of_right_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = crashed(tmp_path, monkeypatch, flushed=True)
    assert not said_by_recover(image, "--apply", "--dry-run")
    assert json.loads(f2("recover", "--apply", "--json", image).out)["quota"] == []


def test_recover_says_that_quota_is_marked_as_out_of_date_and_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = crashed(tmp_path, monkeypatch, flushed=True)
    made = Made(image)
    made.checkpoint(ckpt_flags=made.vol.cp.ckpt_flags | CP_QUOTA_NEED_FSCK_FLAG)
    made.close()
    said = json.loads(f2("recover", "--apply", "--json", image).out)["quota"]
    assert [line for line in said if "marked as out of date" in line], said
    with reading(image) as volume:
        assert volume.cp.ckpt_flags & CP_QUOTA_NEED_FSCK_FLAG
    assert f2("fsck", "-p", image).code == 1
    assert f2("fsck", image).code == 0


def marked(directory: Path, *, right: bool) -> Path:
    """A volume whose checkpoint says that quota is out of date."""
    image = fresh(directory, OPTIONS)
    with writable(image) as volume:
        files(volume, "f", 3)
        if not right:
            volume.quotas.charge(volume.live(volume.path(b"/f0").inode.ino), 5, 7)
    made = Made(image)
    made.checkpoint(ckpt_flags=made.vol.cp.ckpt_flags | CP_QUOTA_NEED_FSCK_FLAG)
    made.close()
    return image


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("option", ["-p", "-y"])
def test_the_mark_that_leaves_quota_off_at_every_mount_goes(option: str, right: bool, tmp_path: Path) -> None:
    image = marked(tmp_path, right=right)
    done = f2("fsck", image)
    assert done.code == 4
    assert "C011 warning cp" in done.text
    assert f2("fsck", option, image).code == 1
    assert f2("fsck", image).code == 0
    with reading(image) as volume:
        assert not volume.cp.ckpt_flags & CP_QUOTA_NEED_FSCK_FLAG
    judges.fsck_clean(image)


def test_marked_quota_is_not_counted_and_stays_marked(tmp_path: Path) -> None:
    """As f2fs_enable_quotas() does it: "quota file may be corrupted, skip loading it"."""
    image = marked(tmp_path, right=True)
    with writable(image) as volume:
        assert volume.quotas is None
        files(volume, "new", 2)
    with reading(image) as volume:
        assert volume.cp.ckpt_flags & CP_QUOTA_NEED_FSCK_FLAG
    assert f2("fsck", "-p", image).code == 1
    assert f2("fsck", image).code == 0
