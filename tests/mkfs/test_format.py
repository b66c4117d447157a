"""Writing: in which order, what is left when it is cut short, what a created file is until it is complete."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from f2tools.device import Device, open_device
from f2tools.device.changes.undo import apply_undo
from f2tools.device.media.new_image import unnamed_image
from f2tools.errors import DeviceError, F2fsError, NotF2fs
from f2tools.f2fs.layout.constants import FEATURES
from f2tools.f2fs.layout.node import Inode, NodeFooter
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.super import choose_superblock, read_superblocks
from f2tools.mkfs.contents import Contents, packed
from f2tools.mkfs.format import build, superblock_bytes, write
from f2tools.mkfs.plan import make_plan
from f2tools.mkfs.request import DeviceSpec, Options
from tests.mkfs.tools import GIB, MIB, TIB, blank, f2mkfs, superblock

SIZE = 64 * MIB


class Memory(Device):
    """A device in memory that notes what is done to it, and dies after so many writes."""

    def __init__(self, size: int, dies_after: int = 1 << 30) -> None:
        self.name, self.size_bytes, self.read_only = "memory", size, False
        self.data = bytearray(size)
        self.log: list[tuple[str, int, int]] = []
        self.dies_after = dies_after

    def pread_into(self, offset: int, buffer: object) -> None:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        view[:] = self.data[offset : offset + len(view)]

    def _note(self, what: str, offset: int, length: int) -> None:
        if len(self.log) >= self.dies_after:
            raise DeviceError("the power is gone")
        self.log.append((what, offset, length))

    def pwrite(self, offset: int, data: object) -> None:
        raw = bytes(data)  # type: ignore[call-overload]
        self._note("write", offset, len(raw))
        self.data[offset : offset + len(raw)] = raw

    def write_zeroes(self, offset: int, length: int) -> None:
        self._note("zero", offset, length)
        self.data[offset : offset + length] = bytes(length)

    def discard(self, offset: int, length: int) -> None:
        self._note("discard", offset, length)
        self.data[offset : offset + length] = bytes(length)

    def flush(self) -> None:
        self._note("flush", 0, 0)

    def close(self) -> None:
        pass


def volume(**options: object):
    return build(make_plan(Options(uuid=b"u" * 16, **options), [DeviceSpec("image", SIZE)]))  # type: ignore[arg-type]


def test_the_superblock_comes_last_between_flushes() -> None:
    device = Memory(SIZE)
    write(volume(), [device])
    assert [entry[0] for entry in device.log[:2]] == ["zero", "flush"]
    assert device.log[0][1] == 0
    assert device.log[-4:] == [("flush", 0, 0), ("write", 4096, 4096), ("write", 0, 4096), ("flush", 0, 0)]
    assert not [entry for entry in device.log[2:-3] if entry[0] == "write" and entry[1] < 8192]


def test_a_format_that_is_cut_short_leaves_no_volume_old_or_new() -> None:
    whole = Memory(SIZE)
    write(volume(discard=False), [whole])
    for steps in range(1, len(whole.log) - 2):
        device = Memory(SIZE, dies_after=steps)
        device.data[:] = whole.data
        with pytest.raises(DeviceError):
            write(volume(discard=False, checkpoint_ver=7), [device])
        device.dies_after = 1 << 30
        with pytest.raises(NotF2fs):
            choose_superblock(read_superblocks(device), device)


def test_without_discard_old_tables_are_zeroed_all_the_same() -> None:
    device = Memory(SIZE)
    device.data[:] = b"\xa5" * SIZE
    made = volume(discard=False)
    write(made, [device])
    fresh = Memory(SIZE)
    write(made, [fresh])
    geo = made.plan.geometry
    for start, count in made.zeroed:
        begin, end = start * 4096, (start + count) * 4096
        assert device.data[begin:end] == fresh.data[begin:end]
    log = geo.start_block(made.plan.cursegs[4]) * 4096
    assert not any(device.data[log : log + 4096])


def test_a_device_with_an_alias_keeps_its_content() -> None:
    plan = make_plan(Options(), [DeviceSpec("a", SIZE), DeviceSpec("b", SIZE, alias="disk")])
    first, second = Memory(SIZE), Memory(SIZE)
    second.data[:] = b"\x5a" * SIZE
    write(build(plan), [first, second])
    assert second.log == [("flush", 0, 0)] * len(second.log)
    assert second.data == b"\x5a" * SIZE


def test_quick_packing_builds_what_the_codec_builds() -> None:
    plan = make_plan(Options(label="x", features=FEATURES["sb_checksum"]), [DeviceSpec("image", SIZE)])
    raw = superblock_bytes(plan)
    assert SuperBlock.parse(raw).build() == raw
    inode = Contents(plan).blocks[1][1]
    assert Inode.parse(inode).build() == inode
    with pytest.raises(TypeError, match="no field"):
        packed(NodeFooter, colour=1)


def test_a_created_image_is_sparse_and_has_the_size_asked_for(tmp_path: Path) -> None:
    image = tmp_path / "image"
    f2mkfs("-q", image, "--size", "1T")
    status = image.stat()
    assert status.st_size == TIB
    assert status.st_blocks * 512 < 1 * MIB
    assert status.st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_nothing_is_left_of_an_image_that_could_not_be_made(tmp_path: Path) -> None:
    with pytest.raises(F2fsError):
        f2mkfs(tmp_path / "image", "--size", "1M")
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "image")
    assert list(tmp_path.iterdir()) == []


def interrupted(path: Path) -> None:
    with unnamed_image(str(path), GIB) as (device, _):
        device.pwrite(0, b"half")
        raise KeyboardInterrupt


def test_a_full_disk_is_told_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "image"
    with unnamed_image(str(path), MIB) as (device, _):
        device.pwrite(0, b"something")
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(DeviceError, match=r"No space left on device; it was not made$"):
            device.pwrite(4096, b"more")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_was_taken_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "image"
    with unnamed_image(str(path), MIB) as (_, publish):
        path.write_text("mine")
        with pytest.raises(DeviceError, match="meanwhile"):
            publish()
    assert path.read_text() == "mine"


def test_where_files_without_a_name_are_unknown_a_temporary_one_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # opening a directory for writing fails with EISDIR
    path = tmp_path / "image"
    with unnamed_image(str(path), MIB) as (_, publish):
        publish()
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "other")
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_command_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import time; from f2tools.device.media.new_image import unnamed_image\n"
        f"with unnamed_image({str(tmp_path / 'image')!r}, 1 << 30): print('ready', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert list(tmp_path.iterdir()) == []


def test_an_android_sparse_image_holds_the_same_volume(tmp_path: Path) -> None:
    raw, sparse = tmp_path / "raw", tmp_path / "sparse"
    f2mkfs("-q", "-r", "-T", 0, "-t", 0, "-U", "11111111-2222-3333-4444-555555555555", raw, "--size", "64M")
    f2mkfs("-q", "-r", "-T", 0, "-U", "11111111-2222-3333-4444-555555555555", "-S", "64M", sparse)
    assert sparse.read_bytes()[:4] == b"\x3a\xff\x26\xed"
    assert sparse.stat().st_size < MIB
    with open_device(sparse) as a, open_device(raw) as b:
        assert a.size_bytes == b.size_bytes
        assert a.pread(0, SIZE) == b.pread(0, SIZE)


def test_several_devices_are_created_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    f2mkfs(
        "-q",
        "a",
        "--size",
        "64M",
        "--size",
        "128M",
        "-c",
        "b",
        "--device-path",
        "/dev/sda",
        "--device-path",
        "/dev/sdb",
    )
    devs = superblock(Path("a")).devs
    assert [d.path.rstrip(b"\0") for d in devs[:3]] == [b"/dev/sda", b"/dev/sdb", b""]
    assert Path("b").stat().st_size == 128 * MIB


def test_a_number_of_sectors_limits_the_volume(tmp_path: Path) -> None:
    image = blank(tmp_path / "image", GIB)
    f2mkfs("-q", image, 64 * 2048)
    assert superblock(image).block_count == 64 * 256


def test_an_existing_image_grows_with_size(tmp_path: Path) -> None:
    image = blank(tmp_path / "image", 0)
    f2mkfs("-q", image, "--size", "64M")
    assert image.stat().st_size == 64 * MIB
    assert superblock(image).block_count == 64 * 256


@pytest.mark.parametrize("more", [(), ("--size", "80M"), ("-t", "0"), ("--size", "32M", "-s", "1", "-O", "ro")])
def test_a_format_can_be_undone(more: tuple[str, ...], tmp_path: Path) -> None:
    image, log = tmp_path / "image", tmp_path / "undo"
    f2mkfs("-q", image, "--size", "64M", "-l", "first")
    with image.open("r+b") as f:
        f.seek(40 * MIB)
        f.write(b"somebody's data")
    before = image.read_bytes()
    f2mkfs("-q", "-f", image, "--undo", log, "-l", "second", *more)
    assert image.read_bytes() != before
    with open_device(image, write=True) as device:
        apply_undo(log, device)
    assert image.read_bytes() == before


def test_formatting_loads_no_parser_and_no_terminal_library(tmp_path: Path) -> None:
    script = (
        "import sys; from f2tools.cli import main\n"
        f"main(['mkfs', '-q', {str(tmp_path / 'image')!r}, '--size', '64M'], standalone_mode=False)\n"
        "print([name for name in ('construct', 'rich', 'json', 'hashlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "construct" not in done.stdout
    assert "rich" not in done.stdout
