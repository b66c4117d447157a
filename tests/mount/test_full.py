"""A mounted volume, or a quota, that gets full: write() itself says so, and what it took is there."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import F2FS_PROJINHERIT_FL
from tests.f2fs.write.volumes import FULL, fresh, judge, writable
from tests.judges import missing_judge
from tests.mount.mounted import FOR_USER, USER, as_user, both_servers, mounted

MIB = 1 << 20


def fill(path: Path, piece: bytes, most: int) -> tuple[int, str]:
    """Write without fsync until write() refuses, or `most` bytes were taken: (bytes taken, the errno's name)."""
    taken = 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        while taken < most:
            taken += os.write(fd, piece)
    except OSError as error:
        return taken, errno.errorcode[error.errno or 0]
    finally:
        os.close(fd)
    return taken, "nothing"


def write_and_sync(name: str, data: bytes) -> None:
    with open(name, "r+b", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())


@pytest.mark.parametrize("piece", [MIB, 10_000])
def test_write_itself_says_that_the_volume_is_full(tmp_path: Path, piece: int) -> None:
    image = fresh(tmp_path, "--size 64M")
    block = os.urandom(piece)
    with mounted(image, tmp_path / "mnt") as mount:
        taken, said = fill(mount.directory / "fill", block, 64 * MIB)
        assert said == "ENOSPC"
        assert taken > 8 * MIB
        assert (mount.directory / "fill").stat().st_size == taken
        assert (mount.directory / "fill").stat().st_blocks * 512 >= taken
        assert os.statvfs(mount.directory).f_bavail * 4096 < 16 * 4096  # nor was anything refused that has room
        whole = (block * (taken // piece + 1))[:taken]
    with mounted(image, tmp_path / "mnt", "-o", "ro") as mount:
        assert (mount.directory / "fill").read_bytes() == whole
    judge(image)


def test_a_copy_that_finds_no_room_leaves_no_file_larger_than_what_is_stored(tmp_path: Path) -> None:
    image, source = fresh(tmp_path, "--size 64M"), tmp_path / "source"
    source.write_bytes(os.urandom(MIB) * 64)
    with mounted(image, tmp_path / "mnt") as mount:
        done = subprocess.run(["cp", source, mount.directory / "copy"], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "No space left" in done.stderr
        copy = (mount.directory / "copy").read_bytes()
        assert copy == source.read_bytes()[: len(copy)]
        assert (mount.directory / "copy").stat().st_blocks * 512 >= len(copy) > 8 * MIB
    judge(image)


@both_servers
@pytest.mark.parametrize("option", ["relatime", "writeback_cache"])
def test_limits_bind_whoever_writes_but_root(tmp_path: Path, option: str, server: str) -> None:
    if os.geteuid():
        missing_judge("only root can write as root and as somebody else", "whom limits bind")
    image = fresh(tmp_path, f"--size 96M -O {FULL}")
    with writable(image) as volume:
        top = volume.mkdir(3, b"project", 0o777)
        volume.set_projid(top, 7)
        volume.set_flags(top, F2FS_PROJINHERIT_FL)
        volume.set_quota("project", 7, space_hard=2 * MIB, inodes_hard=12)
        volume.set_quota("user", USER, space_hard=MIB)
    with mounted(image, tmp_path / "mnt", "-o", option, *FOR_USER, server=server) as mount:
        assert fill(mount.directory / "project" / "root", bytes(MIB), 3 * MIB) == (3 * MIB, "nothing")
        os.sync()
        for number in range(20):
            (mount.directory / "project" / f"root{number}").touch()
        (mount.directory / "large").write_bytes(bytes(2 * MIB))
        os.chown(mount.directory / "large", USER, USER)
        with as_user(mount.directory / "project"), pytest.raises(OSError, match="quota"):
            Path("user").touch()
        (mount.directory / "mine").touch()
        os.chown(mount.directory / "mine", USER, USER)
        with as_user(mount.directory), pytest.raises(OSError, match="quota"):
            write_and_sync("mine", bytes(MIB))
    judge(image)


def test_df_shows_what_a_project_may_have(tmp_path: Path) -> None:
    image = fresh(tmp_path, f"--size 64M -O {FULL}")
    with writable(image) as volume:
        for project, name in enumerate((b"limited", b"soft", b"free", b"not inherited"), 7):
            top = volume.mkdir(3, name, 0o777)
            volume.set_projid(top, project)
            if project < 10:
                volume.set_flags(top, F2FS_PROJINHERIT_FL)
        volume.set_quota("project", 7, space_hard=2 * MIB, inodes_hard=12)
        volume.set_quota("project", 8, space_soft=MIB, space_hard=2 * MIB)
        volume.set_quota("project", 10, space_hard=MIB)
    with mounted(image, tmp_path / "mnt", server="direct") as mount:
        (mount.directory / "limited" / "file").write_bytes(bytes(MIB))
        (mount.directory / "soft" / "file").write_bytes(bytes(2 * MIB))  # by root, beyond the limit
        whole, limited, soft, free, other = (
            os.statvfs(mount.directory / name) for name in ("", "limited", "soft", "free", "not inherited")
        )
        assert (limited.f_blocks, limited.f_files, limited.f_ffree) == (512, 12, 10)
        assert limited.f_bfree == limited.f_bavail == 512 - 256
        assert (soft.f_blocks, soft.f_bavail, soft.f_files) == (256, 0, whole.f_files)
        assert free == other == whole


def test_df_shows_at_once_what_a_project_has_taken_and_given_back(tmp_path: Path) -> None:
    image = fresh(tmp_path, f"--size 64M -O {FULL}")
    with writable(image) as volume:
        top = volume.mkdir(3, b"project", 0o777)
        volume.set_projid(top, 7)
        volume.set_flags(top, F2FS_PROJINHERIT_FL)
        volume.set_quota("project", 7, space_hard=8 * MIB, inodes_hard=12)
    with mounted(image, tmp_path / "mnt", server="direct") as mount:
        top = mount.directory / "project"

        def used() -> tuple[int, int]:
            said = os.statvfs(top)
            return said.f_blocks - said.f_bfree, said.f_files - said.f_ffree

        for name in ("a", "b"):
            (top / name).write_bytes(bytes(MIB))
        assert used() == (512, 3)
        os.truncate(top / "b", 4096)
        assert used() == (257, 3)
        (mount.directory / "b").write_bytes(b"of another project")
        with (top / "a").open("rb") as open_:
            (top / "a").unlink()
            assert used() == (257, 3)
            assert len(open_.read()) == MIB
        assert used() == (1, 2)
        (mount.directory / "b").unlink()
        assert used() == (1, 2)
    judge(image)


@pytest.mark.parametrize("option", ["relatime", "writeback_cache"])
def test_no_file_claims_what_a_quota_refused(tmp_path: Path, option: str) -> None:
    image = fresh(tmp_path, f"--size 96M -O {FULL}")
    with writable(image) as volume:
        volume.mkdir(3, b"free", 0o777, USER, USER)
        volume.set_quota("user", USER, space_hard=3 * MIB)
    with mounted(image, tmp_path / "mnt", "-o", option, *FOR_USER) as mount, as_user(mount.directory):
        path = Path("free") / "big"
        if option == "writeback_cache":  # there it is known later, and told by fsync
            fd = os.open(path, os.O_WRONLY | os.O_CREAT)
            assert os.write(fd, bytes(8 * MIB)) == 8 * MIB
            with pytest.raises(OSError, match="quota"):
                os.fsync(fd)
            os.close(fd)
        else:
            taken, said = fill(path, bytes(MIB), 8 * MIB)
            assert said == "EDQUOT"
            assert taken == path.stat().st_size <= path.stat().st_blocks * 512 <= 3 * MIB
            assert taken > 2 * MIB
    judge(image)


def test_what_was_taken_for_a_file_can_be_used_by_the_next(tmp_path: Path) -> None:
    image = fresh(tmp_path, "--size 64M")
    with mounted(image, tmp_path / "mnt") as mount:
        kept: list[int] = []
        for _ in range(3):
            taken, said = fill(mount.directory / "fill", bytes(MIB), 64 * MIB)
            assert said == "ENOSPC"
            kept.append(taken)
            (mount.directory / "fill").unlink()
        assert min(kept) > max(kept) - MIB, kept
    judge(image)
