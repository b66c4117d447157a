"""What a mount offers that speaks with the kernel itself (--server direct), asked for by the programs that use it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import shutil
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from f2tools.fuse.direct import ioctl
from f2tools.fuse.needed import what_is_missing, with_server
from f2tools.mount.options import parse_options
from tests import images
from tests.f2fs.write.volumes import fresh, judge, reading
from tests.judges import missing_judge
from tests.mount.mounted import Mount, mounted
from tests.mount.suite_tools import mount_point

FEATURES = "--size 64M -O extra_attr,inode_crtime,inode_checksum,compression,project_quota,quota"


@contextmanager
def direct(image: Path, tmp_path: Path, *options: str) -> Iterator[Mount]:
    with mounted(image, tmp_path / "m", *options, server="direct") as mount:
        yield mount


def run(*words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    if shutil.which(str(words[0])) is None:
        missing_judge(f"{words[0]} is not installed", f"what {words[0]} sees on a mount")
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=check, env=environment)


def fill(source: int, target: int, length: int) -> None:
    """Copy one file behind another, again and again."""
    at = 0
    while True:
        at += os.copy_file_range(source, target, length, 0, at)


def named(fd: int, path: Path) -> None:
    """Give an open file a name; a directory is named only for the call to be linkat(2), which follows links."""
    here = os.open("/", os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=here, follow_symlinks=True)
    finally:
        os.close(here)


def segments(path: Path) -> list[tuple[int, int]]:
    """The ranges of a file that hold data, as SEEK_DATA and SEEK_HOLE find them."""
    found, at = [], 0
    with path.open("rb") as file:
        while True:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return found
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            found.append((at, end))
            at = end


def test_fallocate_reserves_punches_and_zeroes(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    with direct(image, tmp_path) as mount:
        file = mount.directory / "file"
        run("fallocate", "-l", "1M", file)
        assert (file.stat().st_size, file.stat().st_blocks) == (1 << 20, 2048)
        file.write_bytes(b"x" * (1 << 20))
        run("fallocate", "-n", "-o", "1M", "-l", "64K", file)
        assert (file.stat().st_size, file.stat().st_blocks) == (1 << 20, 2048 + 128)
        run("fallocate", "-p", "-o", "8192", "-l", "16384", file)
        assert file.stat().st_blocks == 2048 + 128 - 32
        run("fallocate", "-z", "-o", "100K", "-l", "10000", file)
        content = file.read_bytes()
        wanted = bytearray(b"x" * (1 << 20))
        wanted[8192:24576] = bytes(16384)
        wanted[102400:112400] = bytes(10000)
        assert content == wanted
        for words in (("-c", "-o", "0", "-l", "4096"), ("-i", "-o", "0", "-l", "4096")):  # FUSE has none of these
            assert "not supported" in run("fallocate", *words, file, check=False).stderr
        assert "No space left" in run("fallocate", "-l", "1T", file, check=False).stderr
        assert run("fallocate", "-p", "-o", "4096", "-l", "9E", file, check=False).returncode in (0, 1)
        assert mount.directory.stat()
    with reading(image) as volume:
        assert volume.path("/file").read()[:8192] == b"x" * 4096 + bytes(4096) or volume.path("/file").inode.i_size
    judge(image)


def test_data_and_holes_are_found_and_sparse_files_stay_sparse(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    with direct(image, tmp_path) as mount:
        file, copy = mount.directory / "file", mount.directory / "copy"
        with file.open("wb") as out:
            for at in (0, 1 << 20, 5 << 20):
                out.seek(at)
                out.write(b"d" * 8192)
            out.truncate(8 << 20)
        assert segments(file) == [(at, at + 8192) for at in (0, 1 << 20, 5 << 20)]
        with file.open("rb") as out, pytest.raises(OSError, match="No such device or address"):
            os.lseek(out.fileno(), 9 << 20, os.SEEK_DATA)
        run("cp", "--sparse=auto", "--reflink=never", file, copy)
        assert segments(copy) == segments(file)
        assert copy.stat().st_blocks == file.stat().st_blocks
    with direct(image, tmp_path, "-o", "ro") as mount:
        assert segments(mount.directory / "file") == [(at, at + 8192) for at in (0, 1 << 20, 5 << 20)]
    judge(image)


def test_a_range_is_copied_within_the_volume(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    data = os.urandom(9 << 20)
    with direct(image, tmp_path) as mount:
        source, target = mount.directory / "source", mount.directory / "target"
        source.write_bytes(data)
        target.write_bytes(b"before" * 1000)
        with source.open("rb") as one, target.open("r+b") as other:
            asked = 0
            while (
                asked < len(data)
                and (took := os.copy_file_range(one.fileno(), other.fileno(), 1 << 30, asked, 3 + asked)) > 0
            ):
                asked += took
            assert asked == len(data)
            assert os.copy_file_range(one.fileno(), other.fileno(), 10, len(data), 0) == 0
        assert target.read_bytes() == b"bef" + data
        assert os.stat(target).st_size == len(data) + 3
        full = mount.directory / "full"
        with source.open("rb") as one, full.open("wb") as other, pytest.raises(OSError, match="No space left"):
            fill(one.fileno(), other.fileno(), len(data))
    judge(image)


def test_flags_are_listed_changed_and_obeyed(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    with direct(image, tmp_path) as mount:
        file, directory = mount.directory / "file", mount.directory / "directory"
        file.write_bytes(b"as it is")
        directory.mkdir()
        run("chattr", "+id", file)
        shown = run("lsattr", file).stdout.split()[0]
        assert {"i", "d"} <= set(shown), shown
        for refused in (lambda: file.open("ab"), lambda: file.unlink(), lambda: file.chmod(0o600)):
            with pytest.raises(PermissionError):
                refused()
        run("chattr", "-i", file)
        run("chattr", "=a", file)
        with pytest.raises(PermissionError):
            file.write_bytes(b"other")
        with file.open("ab") as out:
            out.write(b", and more")
        run("chattr", "+c", directory)
        (directory / "inherits").write_bytes(bytes(100_000))
        assert "c" in run("lsattr", directory / "inherits").stdout.split()[0]
        assert "not supported" in run("chattr", "+j", file, check=False).stderr
        assert "not supported" in run("chattr", "+P", file, check=False).stderr
        run("chattr", "-p", "77", directory)
        assert run("lsattr", "-pd", directory).stdout.split()[0] == "77"
        assert file.read_bytes() == b"as it is, and more"
    with reading(image) as volume:
        assert volume.path("/directory").inode.extra["i_projid"] == 77
    judge(image)


def test_a_file_that_is_open_as_it_becomes_immutable_takes_only_what_was_written_before(tmp_path: Path) -> None:
    """As generic/553 of xfstests has it of copy_file_range(2), and f2fs_file_write_iter() of write(2)."""
    image = fresh(tmp_path, FEATURES)
    with direct(image, tmp_path) as mount:
        file = mount.directory / "file"
        file.write_bytes(bytes(8192))
        (mount.directory / "other").write_bytes(b"other" * 1000)
        fd = os.open(file, os.O_RDWR)
        source = os.open(mount.directory / "other", os.O_RDONLY)
        with mmap.mmap(fd, 8192) as mapped:
            mapped[:6] = b"before"
            run("chattr", "+i", file)
            for refused in (
                lambda: os.pwrite(fd, b"after", 0),
                lambda: os.copy_file_range(source, fd, 4096, 0, 0),
                lambda: os.ftruncate(fd, 0),
                lambda: os.posix_fallocate(fd, 0, 16384),
            ):
                with pytest.raises(PermissionError):
                    refused()
            mapped.flush()
        run("chattr", "-i", file)
        assert os.pwrite(fd, b"after", 4096) == 5
        os.close(fd)
        os.close(source)
        assert file.read_bytes() == b"before".ljust(4096, b"\0") + b"after".ljust(4096, b"\0")
    judge(image)


def test_what_is_only_added_to_takes_the_times_of_now_and_no_others(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    with direct(image, tmp_path) as mount:
        file, directory = mount.directory / "file", mount.directory / "directory"
        file.write_bytes(b"as it is")
        directory.mkdir()
        for path in (file, directory):
            os.utime(path, (1, 1))
            run("chattr", "+a", path)
            for times in ((2, 2), (1, 2)):
                with pytest.raises(PermissionError):
                    os.utime(path, times)
            assert path.stat().st_mtime == 1
            os.utime(path)
            assert path.stat().st_mtime > 1
    judge(image)


def test_a_file_without_a_name_gets_one_later_or_goes(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    with direct(image, tmp_path) as mount:
        free = os.statvfs(mount.directory).f_bfree
        fd = os.open(mount.directory, os.O_TMPFILE | os.O_RDWR, 0o640)
        gone = os.open(mount.directory, os.O_TMPFILE | os.O_RDWR, 0o600)
        os.write(fd, b"content" * 1000)
        os.write(gone, bytes(1 << 20))
        assert os.fstat(fd).st_nlink == 0
        assert os.listdir(mount.directory) == []
        os.fsync(fd)
        named(fd, mount.directory / "named")
        os.close(fd)
        os.close(gone)
        exclusive = os.open(mount.directory, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
        with pytest.raises(FileNotFoundError):
            named(exclusive, mount.directory / "never")
        os.close(exclusive)
        found = (mount.directory / "named").stat()
        assert (found.st_nlink, stat.S_IMODE(found.st_mode)) == (1, 0o640)
        assert (mount.directory / "named").read_bytes() == b"content" * 1000
    with direct(image, tmp_path) as mount:
        assert os.listdir(mount.directory) == ["named"]
        assert os.statvfs(mount.directory).f_bfree == free - 3  # the inode, and two blocks of content
    judge(image)


def test_a_file_without_a_name_is_gone_after_a_kill(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    with direct(image, tmp_path) as mount:
        free = os.statvfs(mount.directory).f_ffree
        fd = os.open(mount.directory, os.O_TMPFILE | os.O_RDWR, 0o640)
        os.write(fd, bytes(1 << 20))
        os.fsync(fd)
        mount.kill()
        with suppress(OSError):
            os.close(fd)
    with direct(image, tmp_path) as mount:
        assert os.statvfs(mount.directory).f_ffree == free
    judge(image)


def test_the_time_of_birth_is_told(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    with direct(image, tmp_path) as mount:
        file = mount.directory / "file"
        file.touch()
        born = run("stat", "-c", "%W %Z", file).stdout.split()
        assert born[0] == born[1] != "0"
        os.utime(file, (5, 5))
        file.chmod(0o600)
        assert run("stat", "-c", "%W %Y", file).stdout.split() == [born[0], "5"]
        assert run("stat", "-c", "%i %s %h %a", file).stdout == f"{file.stat().st_ino} 0 1 600\n"
    with direct(fresh(tmp_path, "--size 64M", name="plain"), tmp_path) as mount:  # which doesn't keep it
        (mount.directory / "file").touch()
        assert run("stat", "-c", "%W", mount.directory / "file").stdout == "0\n"


def test_fstrim_tells_the_device_of_free_segments(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    with direct(image, tmp_path, "-o", "nodiscard") as mount:
        (mount.directory / "file").write_bytes(os.urandom(12 << 20))
        os.sync()
        os.fsync(fd := os.open(mount.directory, os.O_RDONLY))
        os.close(fd)
        before = image.stat().st_blocks
        (mount.directory / "file").unlink()
        said = run("fstrim", "-v", mount.directory).stdout
        assert image.stat().st_blocks < before - 8 * 2048, said
        assert "bytes) trimmed" in said
        assert "Invalid argument" in run("fstrim", "-o", "1T", mount.directory, check=False).stderr
    judge(image)


def test_a_sealed_file_tells_its_digest(tmp_path: Path) -> None:
    case = images.reference("features")
    path, entry = next((path, e) for path, e in case.manifest()["entries"].items() if "verity" in e)
    with direct(case.path, tmp_path, "-o", "ro") as mount, (mount.directory / path).open("rb") as file:
        room = bytearray(struct.pack("=HH", 0, 64) + bytes(64))
        fcntl.ioctl(file.fileno(), 0xC0046686, room)
        size = struct.unpack_from("=H", room, 2)[0]
        assert entry["verity"]["digest"].endswith(room[4 : 4 + size].hex())
        with pytest.raises(OSError, match="Value too large"):
            fcntl.ioctl(file.fileno(), 0xC0046686, bytearray(struct.pack("=HH", 0, 2)))
        assert "V" in run("lsattr", mount.directory / path).stdout.split()[0]


def test_the_mask_gives_way_to_a_default_acl(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    entries = ((0x01, 7, -1), (0x04, 7, -1), (0x10, 7, -1), (0x20, 5, -1))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    before = os.umask(0o077)
    try:
        with direct(image, tmp_path) as mount:
            for name in ("with", "without"):
                (mount.directory / name).mkdir(0o777)
            os.setxattr(mount.directory / "with", "system.posix_acl_default", acl)
            for name, wanted in (("with", 0o664), ("without", 0o600)):
                made = mount.directory / name / "file"
                os.close(os.open(made, os.O_CREAT | os.O_WRONLY, 0o666))
                assert stat.S_IMODE(made.stat().st_mode) == wanted
    finally:
        os.umask(before)
    judge(image)


def test_a_write_takes_privileges_away(tmp_path: Path) -> None:
    if os.geteuid():
        missing_judge("only root can become somebody else", "what a write takes away")
    image = fresh(tmp_path, FEATURES)
    with mount_point() as point, mounted(image, point, "-o", "allow_other", server="direct") as mount:
        mount.directory.chmod(0o777)

        def as_nobody(code: str) -> None:
            prelude = "import os,sys;os.setgroups([]);os.setgid(65534);os.setuid(65534);p=sys.argv[1];"
            subprocess.run([sys.executable, "-c", prelude + code, mount.directory / "file"], check=True)

        changes = (
            "f=os.open(p,os.O_WRONLY);os.write(f,b'x')",
            "os.truncate(p,1)",
            "os.close(os.open(p,os.O_WRONLY|os.O_TRUNC))",
            "f=os.open(p,os.O_WRONLY);os.posix_fallocate(f,0,9999)",
            "f=os.open(p,os.O_WRONLY);os.copy_file_range(os.open(p,os.O_RDONLY),f,3,offset_dst=3)",
        )
        for change in changes:
            file = mount.directory / "file"
            file.write_bytes(b"program")
            os.setxattr(file, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
            file.chmod(0o6777)
            assert "security.capability" in os.listxattr(file)
            as_nobody(change)
            assert stat.S_IMODE(file.stat().st_mode) == 0o777, change
            assert "security.capability" not in os.listxattr(file), change
            file.chmod(0o6777)
            fd = os.open(file, os.O_RDWR)
            os.posix_fallocate(fd, 0, 99_999)
            os.close(fd)
            assert stat.S_IMODE(file.stat().st_mode) == 0o6777, "root may"
            file.unlink()
    judge(image)


def test_a_request_carries_a_mebibyte(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    data = os.urandom(8 << 20)
    with direct(image, tmp_path) as mount:
        (mount.directory / "file").write_bytes(data)
        fd = os.open(mount.directory / "file", os.O_RDONLY | os.O_DIRECT)
        try:
            libc = ctypes.CDLL(None)
            room = ctypes.create_string_buffer((1 << 20) + 4096)
            place = ctypes.addressof(room) + -ctypes.addressof(room) % 4096
            for at in range(0, len(data), 1 << 20):
                assert libc.pread(fd, ctypes.c_void_p(place), 1 << 20, ctypes.c_long(at)) == 1 << 20
                assert ctypes.string_at(place, 1 << 20) == data[at : at + (1 << 20)]
        finally:
            os.close(fd)
        assert hashlib.sha256((mount.directory / "file").read_bytes()).digest() == hashlib.sha256(data).digest()
    judge(image)


class Aio(ctypes.Structure):
    """struct iocb of linux/aio_abi.h."""

    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_uint32),
                ("opcode", ctypes.c_uint16), ("prio", ctypes.c_int16), ("fd", ctypes.c_uint32),
                ("buf", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("offset", ctypes.c_int64),
                ("reserved", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("resfd", ctypes.c_uint32)]  # fmt: skip


def test_pages_that_are_read_beside_an_asynchronous_direct_write_do_not_stay_old(tmp_path: Path) -> None:
    size, system = 640 << 10, ctypes.CDLL(None, use_errno=True).syscall
    setup, destroy, get_events, submit = 206, 207, 208, 209  # numbers of system calls of x86-64
    buffer = mmap.mmap(-1, size)
    with direct(fresh(tmp_path, "--size 64M"), tmp_path) as mount:
        path = mount.directory / "file"
        path.write_bytes(bytes(size))
        fd, reading = os.open(path, os.O_RDWR | os.O_DIRECT), os.open(path, os.O_RDONLY)
        program = f"import os, sys\nwhile True: os.pread(os.open(sys.argv[1], 0), {size}, 0); os.close(3)"
        readers = [subprocess.Popen([sys.executable, "-S", "-c", program, path]) for _ in range(2)]
        context = ctypes.c_ulong()
        assert system(setup, 4, ctypes.byref(context)) == 0
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        request = Aio(opcode=1, fd=fd, buf=address, bytes=size)
        event = ctypes.create_string_buffer(32)
        try:
            for number in range(1, 200):
                wanted = bytes([number]) * size
                buffer[:] = wanted
                assert system(submit, context, 1, ctypes.byref(ctypes.pointer(request))) == 1
                assert system(get_events, context, 1, 1, event, None) == 1
                assert os.pread(reading, size, 0) == wanted, f"old bytes after write {number}"
        finally:
            for reader in readers:
                reader.kill()
                reader.wait()
            system(destroy, context)
            os.close(fd)
            os.close(reading)


@pytest.mark.parametrize("changed", ["flags", "project"])
def test_a_change_by_ioctl_shows_in_ctime_at_once(tmp_path: Path, changed: str) -> None:
    with direct(fresh(tmp_path, FEATURES), tmp_path) as mount:
        file = mount.directory / "file"
        file.touch()
        before = file.stat().st_ctime_ns
        time.sleep(0.05)
        fd = os.open(file, os.O_RDONLY)
        if changed == "flags":
            fcntl.ioctl(fd, ioctl.FS_IOC_SETFLAGS, struct.pack("=Q", 0x40))  # nodump
        else:
            fcntl.ioctl(fd, ioctl.FS_IOC_FSSETXATTR, struct.pack("=IIIII8x", 0, 0, 0, 7, 0))
        os.close(fd)
        assert file.stat().st_ctime_ns > before


def test_attributes_that_f2fs_does_not_have_are_refused(tmp_path: Path) -> None:
    with direct(fresh(tmp_path, FEATURES), tmp_path) as mount:
        for file in (mount.directory / "file", mount.directory):
            if file != mount.directory:
                file.touch()
            fd = os.open(file, os.O_RDONLY)
            for xflags in (0x8000, 0x80 | 0x1):  # DAX; REALTIME beside NODUMP
                with pytest.raises(OSError, match="not supported"):
                    fcntl.ioctl(fd, ioctl.FS_IOC_FSSETXATTR, struct.pack("=IIIII8x", xflags, 0, 0, 0, 0))
            fcntl.ioctl(fd, ioctl.FS_IOC_FSSETXATTR, struct.pack("=IIIII8x", 0x80, 0, 0, 0, 0))
            assert struct.unpack_from("=I", fcntl.ioctl(fd, ioctl.FS_IOC_FSGETXATTR, bytes(28)))[0] == 0x80
            os.close(fd)


def test_any_time_that_a_program_sets_is_no_damage(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    with direct(image, tmp_path) as mount:
        for number, when in enumerate(("@-62167219200", "@67767976233532799", "@4611686018427387903")):
            run("touch", "-d", when, mount.directory / str(number))
    done = run(sys.executable, "-m", "f2tools", "fsck", image)
    assert "I022" in done.stdout
    assert ": sound" in done.stdout


def test_extended_attributes_are_created_and_replaced_as_asked(tmp_path: Path) -> None:
    image = fresh(tmp_path, FEATURES)
    with direct(image, tmp_path) as mount:
        file = mount.directory / "file"
        file.touch()
        with pytest.raises(OSError, match="No data"):
            os.setxattr(file, "user.a", b"1", os.XATTR_REPLACE)
        os.setxattr(file, "user.a", b"1", os.XATTR_CREATE)
        with pytest.raises(FileExistsError):
            os.setxattr(file, "user.a", b"2", os.XATTR_CREATE)
        assert os.getxattr(file, "user.a") == b"1"
    judge(image)


def test_locks_of_processes_are_the_kernels(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    take = "import fcntl,sys;fcntl.{}(open(sys.argv[1],'r+b'),fcntl.LOCK_EX|fcntl.LOCK_NB)"
    with direct(image, tmp_path) as mount, (mount.directory / "file").open("w+b") as file:
        for kind, lock in (("lockf", fcntl.lockf), ("flock", fcntl.flock)):
            lock(file, fcntl.LOCK_EX)
            command = [sys.executable, "-c", take.format(kind), mount.directory / "file"]
            assert subprocess.run(command, capture_output=True, check=False).returncode == 1
            lock(file, fcntl.LOCK_UN)
            assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_without_pyfuse3_it_serves_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("f2tools.fuse.needed.find_spec", lambda name: None)
    warnings: list[str] = []
    assert with_server(parse_options([]), warnings).server == "direct"
    assert len(warnings) == 1
    assert "--server direct" in warnings[0]
    assert with_server(parse_options(["server=direct"]), warnings).server == "direct"
    assert len(warnings) == 1
    monkeypatch.setitem(sys.modules, "pyfuse3", None)
    assert not [text for text in what_is_missing(parse_options(["server=direct"])) if "pyfuse3" in text]


def _asks(change: Callable[[], object]) -> int | None:
    try:
        change()
    except OSError as error:
        return error.errno
    return None


def test_names_and_sizes_beyond_the_bounds_are_refused(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with direct(image, tmp_path) as mount:
        top = mount.directory
        file = top / "file"
        file.write_bytes(b"x")
        assert _asks(lambda: (top / ("n" * 256)).touch()) == errno.ENAMETOOLONG
        (top / ("n" * 255)).touch()
        assert _asks(lambda: os.symlink("t" * 4095, top / "link")) in (None, errno.ENAMETOOLONG)
        assert _asks(lambda: os.truncate(file, 1 << 62)) == errno.EFBIG
        assert _asks(lambda: os.setxattr(file, "user.big", bytes(65536))) in (errno.E2BIG, errno.ENOSPC, errno.ERANGE)
        assert _asks(lambda: os.setxattr(file, "other.name", b"")) == errno.EOPNOTSUPP
        with file.open("r+b") as out:
            assert _asks(lambda: os.pwrite(out.fileno(), b"x", (1 << 62))) == errno.EFBIG
            assert _asks(lambda: fcntl.ioctl(out.fileno(), 0x12345678, bytes(8))) == errno.ENOTTY
            assert _asks(lambda: os.posix_fallocate(out.fileno(), 0, 1 << 60)) in (errno.EFBIG, errno.ENOSPC)
        assert file.read_bytes() == b"x"
    judge(image)
