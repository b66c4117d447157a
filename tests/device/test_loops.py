"""A file that is attached to a loop device is not written to, nor a loop device whose file is in use."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.device.media import block, loops
from f2tools.errors import DeviceError
from tests.command_lines import CHANGING, FORMATTING, filled
from tests.device.test_block import loop  # noqa: F401 - a fixture
from tests.dump.craft import f2, poke

SIZE = 64 << 20
READING_ONLY = ("undo {d}", "resize {i} --minimum", "recover")  # the last on a sound volume


@pytest.fixture
def attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A volume that a loop device is said to be over, on machines without one too."""
    image = tmp_path / "card.img"
    f2("mkfs", image, "--size", SIZE, "-q")
    (tmp_path / "sys/loop7654/loop").mkdir(parents=True)
    (tmp_path / "sys/loop7654/loop/backing_file").write_bytes(os.fsencode(image) + b"\n")
    monkeypatch.setattr(loops, "SYS_BLOCK", str(tmp_path / "sys"))
    return image


def test_a_struct_loop_info64_begins_with_the_file() -> None:
    assert struct.calcsize("=5Q4I64s64s32s2Q") == loops.LOOP_INFO_BYTES


def test_no_command_writes_to_a_file_that_is_attached(attached: Path, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    poke(attached, 4096 + 1024, bytes(4))  # the second superblock
    before = attached.read_bytes()
    for line in (*CHANGING, FORMATTING[1], "resize {i} 48M"):
        words = filled(line, i=str(attached), d=str(tmp_path / "d"), f=__file__, t="")
        done = f2(*words)
        if not line.startswith(READING_ONLY):
            assert done.code == 8, f"{words}: {done.code} {done.out!r} {done.err}"
            assert f"{attached}: attached to /dev/loop7654; detach it first (losetup -d /dev/loop7654)" in done.err
    assert attached.read_bytes() == before
    assert f2("dump", "ls", attached).code == 0, "it is read all the same"


def test_a_name_that_leads_to_another_file_by_now_is_in_nobodys_way(attached: Path) -> None:
    (attached.parent / "sys/loop7654/loop/backing_file").write_bytes(b"/card (deleted)\n")
    assert f2("label", attached, "NEW").code == 0


def test_a_loop_device_whose_file_is_written_to_is_not(attached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "path_below", lambda _: str(attached))
    with attached.open("rb") as device:  # any descriptor does
        block.check_file_below(device.fileno(), "/dev/loop7654")
        with attached.open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(
                DeviceError, match=r"/dev/loop7654: it is a loop device of a file .*card\.img: this program"
            ):
                block.check_file_below(device.fileno(), "/dev/loop7654")


def test_a_real_loop_device_and_its_file(loop: tuple[Path, Path]) -> None:  # noqa: F811
    device, backing = loop
    moved = backing.rename(backing.with_name("moved"))
    with pytest.raises(DeviceError, match=f"attached to {device}; detach it first"):
        open_device(moved, write=True)
    open_device(moved).close()
    with moved.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DeviceError, match="moved: this program has it open"):
            open_device(device, write=True)
    open_device(device, write=True).close()
