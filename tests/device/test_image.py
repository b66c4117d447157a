"""Image files: read without a trace, holes kept, nothing overwritten that was not meant."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from f2tools.device import open_device
from f2tools.device.media import image as image_module
from f2tools.device.media.image import ImageFile, create_image, open_image
from f2tools.device.media.multi import MultiDevice
from f2tools.errors import DeviceError, Taken, Unsupported, Usage


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    path.write_bytes(bytes(range(256)) * 40 + b"tail")  # 10244 bytes: no multiple of a sector
    return path


def test_reading_leaves_no_trace(file: Path) -> None:
    os.utime(file, (1, 2))
    os.chmod(file, 0o400)
    before = file.read_bytes()
    os.utime(file, (1, 2))
    status = file.stat()
    with open_device(file) as device:
        assert device.read_only
        assert device.size_bytes == 10244
        assert device.pread(10240, 4) == b"tail"
        assert device.pread(0, 10244) == before
        device.flush()
        for change in (lambda: device.pwrite(0, b"x"), lambda: device.discard(0, 1), lambda: device.resize(1)):
            with pytest.raises(DeviceError, match="opened read-only"):
                change()
    assert file.stat() == status


def test_past_the_end_is_an_error_that_says_where(file: Path) -> None:
    with open_device(file, write=True) as device:
        for change in (
            lambda: device.pread(10244, 1),
            lambda: device.pwrite(10243, b"xy"),
            lambda: device.pread(-1, 1),
        ):
            with pytest.raises(
                DeviceError, match=r"image: \d+ bytes at offset -?0x\w+ are past its end \(10244 bytes\)"
            ):
                change()
        assert device.pread(10244, 0) == b""


def test_a_file_that_shrinks_while_it_is_read(file: Path) -> None:
    with open_device(file) as device:
        os.truncate(file, 100)
        with pytest.raises(DeviceError, match="ends at offset 0x64; it shrank"):
            device.pread(50, 100)


def test_short_reads_and_writes_are_continued(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv, pread, pwrite = os.preadv, os.pread, os.pwrite
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:7]], at))
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 7), at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:7], at))
    with open_device(file, write=True) as device:
        device.pwrite(100, b"0123456789" * 5)
        assert device.pread(98, 54) == b"\x62\x63" + b"0123456789" * 5 + b"\x96\x97"


@pytest.mark.parametrize("punching", [True, False])
def test_zeroes_and_discards_become_holes_and_holes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, punching: bool
) -> None:
    path = tmp_path / "image"
    with create_image(path, 64 << 20) as device:
        assert allocated(path) == 0
        device.pwrite(16 << 20, b"x" * (1 << 20))
        assert list(device.data_ranges(0, 64 << 20)) == [(16 << 20, 1 << 20)]
        assert list(device.data_ranges((16 << 20) + 4096, 8192)) == [((16 << 20) + 4096, 8192)]
        assert list(device.data_ranges(32 << 20, 4096)) == []
        if not punching:
            monkeypatch.setattr(image_module, "punch_hole", lambda *_: False)
        device.discard((16 << 20) + 1, (1 << 20) - 2)
        device.write_zeroes(32 << 20, 32 << 20)
        device.write_zeroes(0, 0)
        assert device.pread(16 << 20, 1 << 20) == b"x" + bytes((1 << 20) - 2) + b"x"
        device.flush()
    assert allocated(path) <= (64 << 10 if punching else 1 << 20)
    assert path.stat().st_size == 64 << 20


def test_a_full_disk_is_an_error_that_names_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open_device(file, write=True) as device:
        monkeypatch.setattr(os, "pwrite", full)
        monkeypatch.setattr(os, "fdatasync", full)
        with pytest.raises(DeviceError, match="image: writing at offset 0x10 failed: No space left on device"):
            device.pwrite(16, b"x")
        with pytest.raises(DeviceError, match="image: flushing failed: No space left on device"):
            device.flush()


def test_a_file_larger_than_the_host_can_hold(tmp_path: Path) -> None:
    for size in (1 << 62, 1 << 70, -1):
        with pytest.raises(DeviceError, match=f"can't be made {size} bytes long"):
            create_image(tmp_path / "image", size)
        assert not (tmp_path / "image").exists()


def test_creating_never_overwrites(file: Path, tmp_path: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(Taken, match="image: it exists, and a new image is not written over it"):
        open_device(file, create_size=1 << 20)
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(Taken, match="dangling: it exists"):
        open_device(tmp_path / "dangling", create_size=1 << 20)
    assert file.read_bytes() == before
    with open_device(tmp_path / "new", create_size=12345) as device:
        assert not device.read_only
        assert device.size_bytes == (tmp_path / "new").stat().st_size == 12345


def test_resizing(file: Path) -> None:
    with open_image(file, write=True) as device:
        device.resize(20000)
        assert device.pread(10240, 9760) == b"tail" + bytes(9756)
        device.resize(3)
    assert file.read_bytes() == b"\0\1\2"


def test_only_one_writer_at_a_time_and_any_reader(file: Path) -> None:
    with open_device(file, write=True):
        with pytest.raises(DeviceError, match="image: this program has it open for writing already"):
            open_device(file, write=True)
        other = "import sys; from f2tools.device import open_device as o; o(sys.argv[1]); o(sys.argv[1], write=True)"
        found = subprocess.run([sys.executable, "-c", other, file], capture_output=True, text=True, check=False)
        assert found.returncode == 1
        assert "DeviceError: " in found.stderr
        assert "another program is writing to it" in found.stderr
        with open_device(file) as reader:
            assert reader.pread(0, 1) == b"\0"
    open_device(file, write=True).close()


def test_what_is_not_an_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.fspath(tmp_path / "socket"))
    cases = {
        tmp_path: "a directory; an image file or a block device is needed",
        tmp_path / "pipe": "a pipe; an image file",
        tmp_path / "socket": "neither a file nor a device",
        Path("/dev/null"): "a character device",
        tmp_path / "missing": "No such file or directory",
        tmp_path / "loop": "Too many levels of symbolic links",
        tmp_path / "a\0b": "null",
    }
    for path, why in cases.items():
        for write in (False, True):
            with pytest.raises(DeviceError, match=why):
                open_device(path, write=write)
    listener.close()


def test_the_file_of_somebody_else_can_be_read_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O_NOATIME is for a file's owner."""
    really = os.open

    def as_somebody_else(name: str, flags: int, *more: Any) -> int:
        if flags & os.O_NOATIME:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return really(name, flags, *more)

    monkeypatch.setattr(os, "open", as_somebody_else)
    with open_device(file) as device:
        assert device.pread(10240, 4) == b"tail"
    monkeypatch.setattr(os, "open", lambda *_: really("/nowhere/at/all", os.O_RDONLY))
    with pytest.raises(DeviceError, match="image: No such file"):
        open_device(file)


def test_a_file_system_without_locks_can_be_written_to(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = errno.EOPNOTSUPP

    def no_locks(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(image_module.fcntl, "flock", no_locks)
    with open_device(file, write=True) as device:
        device.pwrite(0, b"x")
    number = errno.EIO
    with pytest.raises(DeviceError, match="image: can't be locked: Input/output error"):
        open_device(file, write=True)


def test_an_empty_file_is_an_image_of_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with open_device(tmp_path / "empty") as device:
        assert device.size_bytes == 0
        assert list(device.data_ranges(0, 10)) == []


def test_an_android_sparse_image_is_known_by_its_magic(file: Path) -> None:
    file.write_bytes(b"\x3a\xff\x26\xed\1\0\0\0" + bytes(100))
    with pytest.raises(DeviceError, match="Android sparse image"):
        open_device(file)
    with pytest.raises(Unsupported, match=r"an Android sparse image is only read; .*`simg2img "):
        open_device(file, write=True)


def test_several_paths_are_one_volume(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    for same in (file, tmp_path / "link"):
        with pytest.raises(Usage, match="named twice"):
            open_device(file, extra=[same])
    (tmp_path / "two").write_bytes(b"two")
    with open_device(tmp_path / "new", create_size=4096, extra=[tmp_path / "two"]) as volume:
        assert isinstance(volume, MultiDevice)
        assert not volume.read_only
        assert [member.name for member in volume.members] == [str(tmp_path / "new"), str(tmp_path / "two")]


def test_when_one_of_several_fails_nothing_is_left_open_or_made(file: Path, tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for first, extra in ((file, tmp_path / "missing"), (tmp_path / "missing", file)):
        with pytest.raises(DeviceError, match="missing"):
            open_device(first, extra=[extra], write=True)
    with pytest.raises(DeviceError, match="missing"):
        open_device(tmp_path / "new", create_size=4096, extra=[tmp_path / "missing"])
    assert not (tmp_path / "new").exists()
    assert os.listdir("/proc/self/fd") == before


def test_the_kernel_can_copy_from_an_image(file: Path, tmp_path: Path) -> None:
    with open_device(file) as device, (tmp_path / "out").open("wb") as out:
        source = device.extent_source(10240, 4)
        assert source is not None
        assert os.copy_file_range(source[0], out.fileno(), 4, source[1]) == 4
        assert isinstance(device, ImageFile)
    assert (tmp_path / "out").read_bytes() == b"tail"


def test_a_lock_that_is_refused_leaves_the_descriptor_to_its_owner(file: Path) -> None:
    with open_image(file, write=True), open_device(file) as reader:
        assert isinstance(reader, ImageFile)
        with pytest.raises(DeviceError, match="writing"):
            image_module.lock(reader.fd, reader.name, shared=True)
        assert reader.pread(10240, 4) == b"tail"
        before = os.listdir("/proc/self/fd")
        with pytest.raises(DeviceError, match="writing"):
            open_image(file, write=True)
        assert len(os.listdir("/proc/self/fd")) == len(before)
