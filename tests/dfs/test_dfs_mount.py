"""A volume under a mount: what programs ask of a file system, what survives kill -9, what a full volume answers."""

from __future__ import annotations

import errno
import io
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.dfs import volumes
from tests.dfs.test_dfs_lost_pages import not_closed
from tests.dump.craft import f2
from tests.mount.mounted import END_SECONDS, READY_SECONDS, need_fuse
from tests.mount.suite_tools import fio_verify, fsx, mount_point, pjdfstest

pytestmark = pytest.mark.usefixtures("directories")

FACTOR = int(os.environ.get("F2_SUITE_FACTOR", "1"))  # 25 at night: 100,000 operations of fsx


@contextmanager
def mounted(image: Path, directory: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A volume, made where there is none, under `f2tools dfs mount -f`; sound at the end."""
    need_fuse()
    if not image.exists():
        kind = "hashed" if volumes.hashed else "log"
        assert f2("dfs", "mkfs", image, "--size", "16M", "--directories", kind).code == 0
    directory.mkdir(exist_ok=True)
    process = subprocess.Popen(["f2tools", "dfs", "mount", "-f", *options, image, directory])
    deadline = time.monotonic() + READY_SECONDS
    while os.fsencode(directory) not in Path("/proc/self/mountinfo").read_bytes():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    try:
        yield process
    finally:
        subprocess.run(["fusermount3", "-u", "-z", directory], check=False, capture_output=True)
        code = process.wait(END_SECONDS)
    assert code in (0, -signal.SIGKILL)
    assert f2("dfs", "fsck", image).code == 0


def test_what_is_mounted_for_writing_is_not_mounted_a_second_time_to_read(tmp_path: Path) -> None:
    image, top, other = tmp_path / "card.dfs", tmp_path / "mnt", tmp_path / "other"
    other.mkdir()
    with mounted(image, top):
        for words in ((), ("-f",)):
            refused = f2("dfs", "mount", "-o", "ro", *words, image, other)
            assert refused.code == 8, refused.err
            assert refused.err.startswith(f"f2tools: {image}: mounted on {top}; unmount it first")


def test_programs_find_under_a_mount_what_they_wrote(tmp_path: Path) -> None:
    image, top = tmp_path / "card.dfs", tmp_path / "mnt"
    with mounted(image, top):
        (top / "folder").mkdir()
        (top / "folder" / "file").write_bytes(b"content" * 10000)
        os.symlink("folder/file", top / "link")
        os.link(top / "folder" / "file", top / "other")
        os.setxattr(top / "other", b"user.name", b"value")
        with (top / "sparse").open("wb") as sparse:
            sparse.seek(1 << 40)
            sparse.write(b"x")
        assert (top / "sparse").stat().st_blocks == 1
        data = sqlite3.connect(top / "base")
        data.execute("create table numbers (number)")
        data.executemany("insert into numbers values (?)", ((n,) for n in range(1000)))
        data.commit()
        data.close()
    with mounted(image, top, "-o", "ro"):
        assert (top / "link").read_bytes() == b"content" * 10000
        assert os.getxattr(top / "folder" / "file", b"user.name") == b"value"
        data = sqlite3.connect(f"file:{top / 'base'}?immutable=1", uri=True)
        assert data.execute("select sum(number) from numbers").fetchone() == (499500,)
        data.close()
        with pytest.raises(OSError, match="Read-only") as error:
            (top / "new").touch()
        assert error.value.errno == errno.EROFS


def test_a_volume_whose_layer_has_lost_a_page_is_mounted_read_only_with_a_word(tmp_path: Path) -> None:
    need_fuse()
    image, top = not_closed(tmp_path, lost=True), tmp_path / "mnt"
    top.mkdir()
    done = f2("dfs", "mount", image, top)
    try:
        assert (done.code, done.err.count("content may be missing or older")) == (0, 1)
        with pytest.raises(OSError, match="Read-only"):
            (top / "new").write_bytes(b"")
    finally:
        assert f2("umount", top).code == 0


def test_git_finds_all_that_was_committed(tmp_path: Path) -> None:
    image, top = tmp_path / "card.dfs", tmp_path / "mnt"
    work = top / "work"

    def git(*words: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        return subprocess.run(["git", *who, "-C", work, *words], check=True, capture_output=True, text=True).stdout

    with mounted(image, top):
        work.mkdir()
        git("init", "-q")
        for number in range(30):
            (work / f"file {number}").write_text(f"content {number}\n" * 50)
        for message in ("first", "second"):
            (work / "file 0").write_text(message)
            git("add", ".")
            git("commit", "-q", "-m", message)
        git("gc", "-q")
    with mounted(image, top):
        git("fsck", "--strict")
        assert git("status", "--short") == ""
        assert len(git("log", "--format=%h").split()) == 2


def fill(file: io.RawIOBase) -> None:
    while True:
        file.write(bytes(1 << 20))


def test_what_was_fsynced_survives_kill_9(tmp_path: Path) -> None:
    image, top = tmp_path / "card.dfs", tmp_path / "mnt"
    with mounted(image, top) as process:
        (top / "a").mkdir()
        with (top / "a" / "file").open("wb") as file:
            file.write(b"safe" * 20000)
            file.flush()
            os.fsync(file.fileno())
        (top / "a" / "file").rename(top / "b")
        directory = os.open(top, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        process.send_signal(signal.SIGKILL)
        process.wait(END_SECONDS)
    with mounted(image, top):
        assert (top / "b").read_bytes() == b"safe" * 20000
        assert os.listdir(top / "a") == []


def test_a_full_volume_is_told_by_write_and_takes_more_after_a_deletion(tmp_path: Path) -> None:
    with mounted(tmp_path / "card.dfs", tmp_path / "mnt"):
        for _ in range(2):
            with (tmp_path / "mnt" / "file").open("wb", buffering=0) as file:
                with pytest.raises(OSError, match="No space") as error:
                    fill(file)
                assert error.value.errno == errno.ENOSPC
                assert file.tell() > 14 << 20
            (tmp_path / "mnt" / "file").unlink()


@pytest.mark.parametrize("directories", ["log"], indirect=True)  # content is the same with both
def test_fsx_finds_the_bytes_that_it_wrote(directories: str, tmp_path: Path) -> None:
    with mounted(tmp_path / "card.dfs", tmp_path / "mnt"):
        fsx(tmp_path / "mnt" / "fsx", tmp_path, 4000 * FACTOR, seed=1, mapped=True)


@pytest.mark.parametrize("directories", ["log"], indirect=True)
def test_fio_verifies_what_it_wrote_buffered_mapped_and_direct(directories: str, tmp_path: Path) -> None:
    with mounted(tmp_path / "card.dfs", tmp_path / "mnt"):
        fio_verify(tmp_path / "mnt", 2)


def test_pjdfstest_complains_of_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    work = tmp_path_factory.mktemp("pjdfstest")
    with mount_point() as directory, mounted(work / "card.dfs", directory, "-o", "allow_other,suid,dev"):
        cases, said = pjdfstest(directory, work)
    failed = sorted(name for name, outcome in cases.items() if outcome == "FAILED")
    assert not failed, f"{failed}\n{said[-6000:]}"


def test_the_server_that_needs_no_pyfuse3_serves_it_too(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with mounted(image, tmp_path / "mount", "--server", "direct"):
        (tmp_path / "mount" / "file").write_bytes(b"content")
    with mounted(image, tmp_path / "mount", "-o", "server=direct"):
        assert (tmp_path / "mount" / "file").read_bytes() == b"content"
