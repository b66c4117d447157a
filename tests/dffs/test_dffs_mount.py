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

from tests.dump.craft import f2
from tests.mount.mounted import END_SECONDS, READY_SECONDS, need_fuse
from tests.mount.suite_tools import fio_verify, fsx, mount_point, pjdfstest

FACTOR = int(os.environ.get("F2_SUITE_FACTOR", "1"))  # 25 at night: 50,000 operations of fsx


@contextmanager
def mounted(image: Path, directory: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A volume, made where there is none, under `f2tools dffs mount -f`; sound at the end."""
    need_fuse()
    if not image.exists() and "@" not in image.name:
        assert f2("dffs", "mkfs", image, "--size", "16M").code == 0
    directory.mkdir(exist_ok=True)
    process = subprocess.Popen(["f2tools", "dffs", "mount", "-f", *options, image, directory])
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
    checked = f2("dffs", "fsck", image)
    assert checked.code == 0, checked.text


def test_what_is_mounted_for_writing_is_not_mounted_a_second_time_to_read(tmp_path: Path) -> None:
    image, top, other = tmp_path / "card.nand", tmp_path / "mnt", tmp_path / "other"
    other.mkdir()
    with mounted(image, top):
        for words in ((), ("-f",)):
            refused = f2("dffs", "mount", "-o", "ro", *words, image, other)
            assert refused.code == 8, refused.err
            assert refused.err.startswith(f"f2tools: {image}: mounted on {top}; unmount it first")


def test_programs_find_under_a_mount_what_they_wrote(tmp_path: Path) -> None:
    image, top = tmp_path / "card.nand", tmp_path / "mnt"
    with mounted(image, top):
        (top / "folder").mkdir()
        (top / "folder" / "file").write_bytes(b"content" * 10000)
        os.symlink("folder/file", top / "link")
        os.link(top / "folder" / "file", top / "other")
        os.setxattr(top / "other", b"user.name", b"value")
        for number in range(400):
            (top / "folder" / f"small{number}").write_bytes(b"%d" % number)
        data = sqlite3.connect(top / "base")
        data.execute("create table numbers (number)")
        data.executemany("insert into numbers values (?)", ((n,) for n in range(1000)))
        data.commit()
        data.close()
    with mounted(image, top, "-o", "ro"):
        assert (top / "link").read_bytes() == b"content" * 10000
        assert os.getxattr(top / "folder" / "file", b"user.name") == b"value"
        assert len(os.listdir(top / "folder")) == 401
        assert all((top / "folder" / f"small{number}").read_bytes() == b"%d" % number for number in range(400))
        data = sqlite3.connect(f"file:{top / 'base'}?immutable=1", uri=True)
        assert data.execute("select sum(number) from numbers").fetchone() == (499500,)
        data.close()
        with pytest.raises(OSError, match="Read-only") as error:
            (top / "new").touch()
        assert error.value.errno == errno.EROFS


def test_what_was_fsynced_survives_kill_9(tmp_path: Path) -> None:
    image, top = tmp_path / "card.nand", tmp_path / "mnt"
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
    assert "committed after the last checkpoint" in f2("dffs", "fsck", image).text
    with mounted(image, top):
        assert (top / "b").read_bytes() == b"safe" * 20000
        assert os.listdir(top / "a") == []


def fill(file: io.RawIOBase) -> None:
    while True:
        file.write(bytes(1 << 20))


def test_a_full_volume_is_told_by_write_and_takes_more_after_a_deletion(tmp_path: Path) -> None:
    with mounted(tmp_path / "card.nand", tmp_path / "mnt"):
        for _ in range(2):
            with (tmp_path / "mnt" / "file").open("wb", buffering=0) as file:
                with pytest.raises(OSError, match="No space") as error:
                    fill(file)
                assert error.value.errno == errno.ENOSPC
                assert file.tell() > 9 << 20
            (tmp_path / "mnt" / "file").unlink()


def test_a_volume_in_a_partition_of_a_dump_is_mounted_there(tmp_path: Path) -> None:
    part, chip = tmp_path / "part.nand", tmp_path / "chip.nand"
    assert f2("dffs", "mkfs", part, "--size", "16M").code == 0
    before = os.urandom(64 * 2112)
    chip.write_bytes(before + part.read_bytes() + before)
    with mounted(Path(f"{chip}@+{len(before)}"), tmp_path / "mnt"):
        (tmp_path / "mnt" / "file").write_bytes(b"content")
    assert f2("dffs", "dump", "cat", f"{chip}@+{len(before)}", "/file").out == b"content"
    assert (chip.read_bytes()[: len(before)], chip.read_bytes()[-len(before) :]) == (before, before)


def test_fsx_finds_the_bytes_that_it_wrote(tmp_path: Path) -> None:
    with mounted(tmp_path / "card.nand", tmp_path / "mnt"):
        fsx(tmp_path / "mnt" / "fsx", tmp_path, 2000 * FACTOR, seed=1, mapped=True)


def test_fio_verifies_what_it_wrote_buffered_mapped_and_direct(tmp_path: Path) -> None:
    with mounted(tmp_path / "card.nand", tmp_path / "mnt"):
        fio_verify(tmp_path / "mnt", 2)


def test_pjdfstest_complains_of_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    work = tmp_path_factory.mktemp("pjdfstest")
    with mount_point() as directory, mounted(work / "card.nand", directory, "-o", "allow_other,suid,dev"):
        cases, said = pjdfstest(directory, work)
    failed = sorted(name for name, outcome in cases.items() if outcome == "FAILED")
    assert not failed, f"{failed}\n{said[-6000:]}"
