"""Whatever offers `vfs.FileSystem` can be mounted; here one that is a dict."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from f2tools.fuse.options import ServeOptions
from tests.fuse.memory import ROOT_INO
from tests.images import ROOT
from tests.mount.mounted import READY_SECONDS, need_fuse

PROGRAM = """
import pickle, sys
from pathlib import Path
from f2tools.fuse.session import serve
from tests.fuse.memory import MemoryFileSystem

directory, said, options = sys.argv[1:]
files = MemoryFileSystem()
serve(files, "/in memory", directory, pickle.loads(bytes.fromhex(options)), lambda: None)
Path(said).write_text("\\n".join(files.told))
"""


@contextmanager
def mounted(directory: Path, said: Path, options: ServeOptions) -> Iterator[Path]:
    """A file system in memory, served by a process of its own; what it was told at last stands in `said`."""
    need_fuse()
    directory.mkdir()
    words = [str(directory), str(said), pickle.dumps(options).hex()]
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *words], cwd=ROOT)
    try:
        deadline = time.monotonic() + READY_SECONDS
        while os.fsencode(directory) not in Path("/proc/self/mountinfo").read_bytes():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        try:
            yield directory
        finally:
            subprocess.run(["fusermount3", "-u", "-z", directory], check=True)
        assert process.wait(READY_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def test_a_file_system_that_is_no_f2fs_can_be_mounted(tmp_path: Path) -> None:
    with mounted(tmp_path / "mnt", tmp_path / "said", ServeOptions()) as top:
        assert top.stat().st_ino == ROOT_INO
        (top / "folder").mkdir()
        file = top / "folder" / "file"
        file.write_bytes(b"content")
        os.truncate(file, 3)
        os.utime(file, ns=(5, 6))
        assert (file.read_bytes(), file.stat().st_mtime_ns) == (b"con", 6)
        os.link(file, top / "other")
        assert (top / "other").stat().st_nlink == 2
        os.symlink("folder/file", top / "link")
        assert (top / "link").read_bytes() == b"con"
        assert sorted(os.listdir(top)) == ["folder", "link", "other"]
        file.rename(top / "other2")
        (top / "folder").rmdir()
        os.setxattr(top / "other2", b"user.name", b"value")
        assert os.listxattr(top / "other2") == ["user.name"]
        assert os.getxattr(top / "other", b"user.name") == b"value"
        (top / "pipe").touch()
        os.mkfifo(top / "fifo")
        assert stat.S_ISFIFO((top / "fifo").stat().st_mode)
        with pytest.raises(OSError, match="too long") as error:
            (top / ("n" * 101)).touch()
        assert error.value.errno == errno.ENAMETOOLONG
        with (top / "other").open("r+b") as opened:
            os.fsync(opened)
        assert os.statvfs(top).f_namemax == 100
    told = (tmp_path / "said").read_text().split("\n")
    assert [word.split()[0] for word in told][:1] == ["fsync"]
    assert told[-1] == "close"


def test_room_of_deleted_files_is_given_back_before_a_write_is_refused(tmp_path: Path) -> None:
    with mounted(tmp_path / "mnt", tmp_path / "said", ServeOptions()) as top:
        for _ in range(8):  # each takes all of it; the kernel forgets the one before when it likes
            (top / "file").write_bytes(bytes(1 << 20))
            (top / "file").unlink()
        (top / "stays").write_bytes(bytes(1 << 19))
        with pytest.raises(OSError, match="No space left"):
            (top / "more").write_bytes(bytes(1 << 20))


def test_owners_and_permissions_are_shown_as_the_options_have_it(tmp_path: Path) -> None:
    options = ServeOptions(uid=os.getuid(), gid=4321, umask=0o077)
    with mounted(tmp_path / "mnt", tmp_path / "said", options) as top:
        (top / "file").touch(0o666)
        found = (top / "file").stat()
        assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (4321, 0o600)


def test_what_the_file_system_refuses_to_open_is_not_opened(tmp_path: Path) -> None:
    with mounted(tmp_path / "mnt", tmp_path / "said", ServeOptions(sync=True)) as top:
        (top / "file").write_bytes(b"as it is")
        os.setxattr(top / "file", b"user.locked", b"")
        with pytest.raises(PermissionError):
            (top / "file").write_bytes(b"other")
        assert (top / "file").read_bytes() == b"as it is"
    assert "sync" in (tmp_path / "said").read_text()
