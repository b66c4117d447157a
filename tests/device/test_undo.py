"""The undo log: whatever was done, and whenever it was cut short, the device gets back what it held."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from f2tools.device.base import Device
from f2tools.device.buffers import Data
from f2tools.device.changes.appended import sealed
from f2tools.device.changes.undo import UndoLog, apply_undo
from f2tools.device.changes.undo_log import CLOSED, HEADER, RECORD_MAGIC
from f2tools.device.media.image import create_image, open_image
from f2tools.device.media.multi import MultiDevice
from f2tools.errors import DeviceError, Taken
from tests.device.memory import Memory

SIZE = 100 * 1024 + 123
RECORDS = HEADER.size + CLOSED.size


def noise(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(1, 256, size, np.uint8).tobytes()


@dataclass
class Change:
    """Something to do to a device."""

    what: str
    offset: int = 0
    length: int = 0
    seed: int = 1

    def __call__(self, device: Device) -> None:
        if self.what == "resize":
            device.resize(self.length)
            return
        offset = min(self.offset, device.size_bytes)
        length = min(self.length, device.size_bytes - offset)
        if self.what == "pwrite":
            device.pwrite(offset, noise(length, self.seed))
        elif self.what == "write_blocks":
            last = device.size_bytes // 4096
            blocks = np.random.default_rng(self.seed).integers(0, max(last, 1), 6 if last else 0)
            device.write_blocks(blocks, np.frombuffer(noise(4096 * blocks.size, self.seed), np.uint8), 4096)
        else:
            getattr(device, self.what)(offset, length)


offsets = st.one_of(st.integers(0, SIZE), st.integers(0, SIZE // 4096).map(lambda n: n * 4096))
changes = st.builds(
    Change,
    st.sampled_from(["pwrite", "pwrite", "write_blocks", "discard", "trim", "write_zeroes", "resize"]),
    offsets,
    offsets,
    st.integers(1, 9),
)


def untouched(path: Path) -> bytes:
    """An image with a superblock's place, noise, zeros and holes in it."""
    content = bytearray(SIZE)
    content[1024 : 1024 + 3072] = noise(3072, 5)
    content[40960:57344] = noise(16384, 6)
    content[99000:SIZE] = noise(SIZE - 99000, 7)
    with create_image(path, SIZE) as image:
        for at in range(0, SIZE, 4096):
            if any(content[at : at + 4096]):
                image.pwrite(at, content[at : at + 4096])
        image.pwrite(65536, bytes(4096))
    return bytes(content)


def undo(log: Path, image: Path) -> Any:
    with open_image(image, write=True) as device:
        return apply_undo(log, device)


def refuses(log: Path, image: Path, says: str) -> None:
    before = image.read_bytes()
    with pytest.raises(DeviceError, match=says):
        undo(log, image)
    assert image.read_bytes() == before, "a refused undo changes nothing"


@settings(max_examples=150)
@given(st.lists(changes, max_size=8))
def test_whatever_was_done_is_undone(tmp_path_factory: pytest.TempPathFactory, todo: list[Change]) -> None:
    directory = tmp_path_factory.mktemp("undo")
    before = untouched(directory / "image")
    with UndoLog(open_image(directory / "image", write=True), directory / "log") as device:
        for change in todo:
            change(device)
    for _ in range(2):
        undo(directory / "log", directory / "image")
        assert (directory / "image").read_bytes() == before


def test_the_device_behaves_as_without_a_log(tmp_path: Path) -> None:
    plain, logged = Memory(noise(SIZE)), Memory(noise(SIZE))
    with UndoLog(logged, tmp_path / "log") as device:
        for seed in range(30):
            pick = random.Random(seed)
            what = pick.choice(["pwrite", "write_blocks", "discard", "trim", "write_zeroes", "resize"])
            change = Change(what, pick.randrange(SIZE), pick.randrange(SIZE), seed)
            change(plain)
            change(device)
            assert device.size_bytes == plain.size_bytes
            assert device.pread(0, device.size_bytes) == plain.content
        device.flush()
    assert logged.flushes == 1
    assert logged.closed


SCRIPT = [
    Change("pwrite", 1024, 3072, 1),
    Change("pwrite", 5000, 100, 2),
    Change("write_zeroes", 0, 50000),
    Change("write_blocks", seed=3),
    Change("resize", length=60000),
    Change("resize", length=200000),
    Change("pwrite", 0, 200000, 4),
]


class Watched(Memory):
    """Tells, before each change, what is about to be the state a crash would leave."""

    def __init__(self, content: bytes, tell: Callable[[bytes], None]) -> None:
        super().__init__(content)
        self.tell = tell

    def pwrite(self, offset: int, data: Any) -> None:
        self.tell(bytes(self.content))
        view = memoryview(data).cast("B")
        half = len(view) // 2 // 512 * 512
        super().pwrite(offset, view[:half])  # a write may be torn between two sectors
        self.tell(bytes(self.content))
        super().pwrite(offset + half, view[half:])

    def resize(self, size_bytes: int) -> None:
        self.tell(bytes(self.content))
        super().resize(size_bytes)


def crashes(before: bytes, directory: Path) -> list[tuple[bytes, bytes]]:
    """(image, log) at each moment of the script at which the machine may have stopped."""
    log, states = directory / "log", []
    base = Watched(before, lambda content: states.append((content, log.read_bytes())))
    with UndoLog(base, log) as device:
        for change in SCRIPT:
            change(device)
    states.append((bytes(base.content), log.read_bytes()))
    return states


def test_killed_at_any_moment_it_can_be_undone(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    states = crashes(before, tmp_path)
    assert len(states) > 15
    for image, log in states:
        (tmp_path / "cut").write_bytes(log)
        device = Memory(image)
        report = apply_undo(tmp_path / "cut", device)
        assert device.content == before
        assert not report.torn


def test_a_log_torn_at_any_byte_is_as_good(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    shorter, torn = b"", 0
    for image, log in crashes(before, tmp_path):
        # The image as it was when the batch between `shorter` and `log` was being written: the change was not made yet.
        if len(log) > len(shorter) and log.startswith(shorter):
            cuts = {*range(len(shorter), min(len(shorter) + 200, len(log))), *range(len(log) - 200, len(log))}
            cuts |= {
                at + d for at in range(len(shorter), len(log)) if log.startswith(RECORD_MAGIC, at) for d in (0, 1, 43)
            }
            for cut in sorted(cut for cut in cuts if len(shorter) <= cut < len(log)):
                tail = (b"", bytes(100), noise(100))[cut % 3]
                if cut < RECORDS:
                    tail = b""  # a header that isn't whole, then something else: not what a crash leaves
                (tmp_path / "cut").write_bytes(log[:cut] + tail)
                device = Memory(image)
                report = apply_undo(tmp_path / "cut", device)
                assert device.content == before
                torn += report.torn
            shorter = log
    assert torn > 500


def test_undoing_may_be_cut_short_and_repeated(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    image, _ = crashes(before, tmp_path)[-1]

    class Dying(Memory):
        left = 0

        def pwrite(self, offset: int, data: Any) -> None:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            super().pwrite(offset, data)

    for left in range(30):
        device = Dying(image)
        device.left = left
        try:
            apply_undo(tmp_path / "log", device)
        except KeyboardInterrupt:
            device.left = 1000
            apply_undo(tmp_path / "log", device)
        assert device.content == before


def test_a_flipped_bit_before_a_later_batch_is_damage(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    image, log = crashes(before, tmp_path)[-1]
    first_data = log.index(RECORD_MAGIC, RECORDS + 1)
    starts = (9, 39, RECORDS, RECORDS + 3, RECORDS + 50)
    for at in (*starts, *(first_data + more for more in (0, 5, 30, 900))):
        bad = bytearray(log)
        bad[at] ^= 4
        (tmp_path / "bad").write_bytes(bad)
        device = Memory(image)
        with pytest.raises(DeviceError, match=r"damaged|version"):
            apply_undo(tmp_path / "bad", device)
        assert device.content == image


def unsealed(log: bytes) -> bytes:
    """The log of a command that was killed just before it would have sealed it."""
    end = log.rindex(RECORD_MAGIC, 0, log.rindex(RECORD_MAGIC))  # with the seal the log says in which state all is
    return log[: HEADER.size] + bytes(CLOSED.size) + log[RECORDS:end]


def first_version(log: bytes) -> bytes:
    """The log as version 1 had it, which doesn't tell whether it was closed."""
    head = log[:8] + struct.pack("<I", 1) + log[12 : HEADER.size]
    return sealed(head) + log[RECORDS:]


def test_a_log_that_was_cut_off_is_refused_unless_forced(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    image, log = crashes(before, tmp_path)[-1]
    assert log.count(RECORD_MAGIC) > 10
    for cut in sorted({RECORDS, RECORDS + 48, *range(RECORDS, len(log), 997), log.rindex(RECORD_MAGIC), len(log) - 1}):
        (tmp_path / "cut").write_bytes(log[:cut])
        device = Memory(image)
        with pytest.raises(DeviceError, match=rf"cut: this undo log was cut off: it had {len(log)} bytes, and "):
            apply_undo(tmp_path / "cut", device)
        assert device.content == image
        assert apply_undo(tmp_path / "cut", Memory(image), force=True).ending == "cut"


@pytest.mark.parametrize("aged", [lambda log: log, first_version])
def test_a_torn_batch_whose_changes_were_made_shows_that_the_log_was_cut_off(
    tmp_path: Path, aged: Callable[[bytes], bytes]
) -> None:
    before = untouched(tmp_path / "image")
    device = Memory(before)
    with UndoLog(device, tmp_path / "log") as logged:
        logged.pwrite(80000, b"x")
        logged.write_blocks(np.array([10, 12, 15]), np.ones((3, 4096), np.uint8), 4096)
    log, after = aged(unsealed((tmp_path / "log").read_bytes())), bytes(device.content)
    last = log.rindex(RECORD_MAGIC)
    (tmp_path / "log").write_bytes(log[:last])
    with pytest.raises(DeviceError, match=r"cut off, or .* was changed .*: the log ends before the change at offset"):
        apply_undo(tmp_path / "log", device)
    assert device.content == after
    untorn = Memory(before)
    untorn.pwrite(80000, b"x")
    assert apply_undo(tmp_path / "log", untorn).torn
    assert untorn.content == before


def test_how_a_log_ends(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    image, log = crashes(before, tmp_path)[-1]
    killed = unsealed(log)
    for content, ending in (
        (log, "sealed"), (first_version(log), "sealed"), (killed, "killed"), (first_version(killed), "unknown"),
    ):  # fmt: skip
        (tmp_path / "one").write_bytes(content)
        device = Memory(image)
        report = apply_undo(tmp_path / "one", device)
        assert (report.ending, bytes(device.content)) == (ending, before)


def test_a_kill_between_the_seal_and_the_length_does_no_harm(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    image, log = crashes(before, tmp_path)[-1]
    for half in range(CLOSED.size):
        length = log[HEADER.size : HEADER.size + half].ljust(CLOSED.size, b"\0")
        (tmp_path / "half").write_bytes(log[: HEADER.size] + length + log[RECORDS:])
        device = Memory(image)
        assert apply_undo(tmp_path / "half", device).ending == "sealed"
        assert device.content == before


def test_an_image_that_does_not_fit_a_log_without_a_seal_blames_the_log_too(tmp_path: Path) -> None:
    untouched(tmp_path / "image")
    with UndoLog(open_image(tmp_path / "image", write=True), tmp_path / "log") as device:
        device.pwrite(1024, noise(3072, 9))
    log = first_version(unsealed((tmp_path / "log").read_bytes()))
    (tmp_path / "log").write_bytes(log[: log.index(RECORD_MAGIC, HEADER.size + 1)])
    refuses(tmp_path / "log", tmp_path / "image", "0x400 were changed .*, unless this log, which ends without its seal")


def test_an_image_that_was_changed_since_is_refused(tmp_path: Path) -> None:
    untouched(tmp_path / "image")
    with UndoLog(open_image(tmp_path / "image", write=True), tmp_path / "log") as device:
        device.pwrite(1024, noise(3072, 9))
        device.pwrite(50000, noise(3072, 9))
    with open_image(tmp_path / "image", write=True) as image:
        image.pwrite(2000, b"!")
    refuses(tmp_path / "log", tmp_path / "image", r"doesn't belong to .*image as it is now: its bytes at offset 0x600")


@pytest.mark.parametrize("formatted", [False, True])
def test_another_image_is_refused(tmp_path: Path, formatted: bool) -> None:
    for name, seed in (("one", 1), ("other", 2)):
        with create_image(tmp_path / name, SIZE) as image:
            image.pwrite(1024, noise(3072, seed))
    with UndoLog(open_image(tmp_path / "one", write=True), tmp_path / "log") as device:
        device.pwrite(70000, b"x")
        if formatted:  # the whole head was replaced, so that the log could make any image look right
            device.discard(0, SIZE)
            device.pwrite(1024, noise(3072, 3))
    refuses(tmp_path / "log", tmp_path / "other", "its bytes at offset 0x400")
    with open_image(tmp_path / "one", write=True) as image:
        image.resize(SIZE + 1)
    refuses(tmp_path / "log", tmp_path / "one", rf"it is {SIZE + 1} bytes long, not {SIZE}")


@pytest.mark.parametrize(
    ("offset", "says"),
    [
        (40960, "its bytes at offset 0xa000 were changed"),
        (80000, "its block at offset 0x13000 was changed"),
        (SIZE - 1, "its bytes at offset 0x19000 were changed"),
    ],
)
def test_an_image_that_was_mounted_since_is_refused_unless_forced(tmp_path: Path, offset: int, says: str) -> None:
    before = untouched(tmp_path / "image")
    with UndoLog(open_image(tmp_path / "image", write=True), tmp_path / "log") as device:
        device.write_zeroes(40960, 9000)
        device.resize(90000)
        device.resize(SIZE + 5000)
    with open_image(tmp_path / "image", write=True) as image:
        image.pwrite(SIZE + 10, b"what is past the old end does not matter")
        image.pwrite(offset, b"!")
    refuses(tmp_path / "log", tmp_path / "image", says)
    with open_image(tmp_path / "image", write=True) as image:
        image.pwrite(80000, before[80000:80001])
        apply_undo(tmp_path / "log", image, force=True)
    assert (tmp_path / "image").read_bytes() == before


def test_what_is_no_undo_log(tmp_path: Path) -> None:
    untouched(tmp_path / "image")
    for content in (b"something else", bytes(500), b"F2TUNDX"):
        (tmp_path / "log").write_bytes(content)
        refuses(tmp_path / "log", tmp_path / "image", "not an undo log")
    with pytest.raises(DeviceError, match="No such file"):
        undo(tmp_path / "missing", tmp_path / "image")


def test_killed_before_the_first_change_there_is_nothing_to_undo(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    UndoLog(Memory(before), tmp_path / "whole").close()
    whole = (tmp_path / "whole").read_bytes()
    whole = whole[: HEADER.size] + bytes(CLOSED.size) + whole[RECORDS:]  # a kill comes before the end is known
    for cut in range(len(whole)):
        (tmp_path / "log").write_bytes(whole[:cut])
        assert undo(tmp_path / "log", tmp_path / "image").does_nothing
    assert (tmp_path / "image").read_bytes() == before


def test_a_log_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("precious")
    with pytest.raises(Taken, match="never overwritten"):
        UndoLog(Memory(SIZE), tmp_path / "log")
    assert (tmp_path / "log").read_text() == "precious"
    with pytest.raises(DeviceError, match="No such file"):
        UndoLog(Memory(SIZE), tmp_path / "missing" / "log")


def test_a_dry_run_says_what_it_would_do_and_does_nothing(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    with UndoLog(open_image(tmp_path / "image", write=True), tmp_path / "log") as device:
        device.pwrite(40960, b"x" * 9000)
        device.resize(50 * 1024)
    changed = (tmp_path / "image").read_bytes()
    with open_image(tmp_path / "image") as image:
        report = apply_undo(tmp_path / "log", image, dry_run=True)
        with pytest.raises(DeviceError, match="read-only"):
            apply_undo(tmp_path / "log", image)
    assert (tmp_path / "image").read_bytes() == changed
    assert (report.size_before, report.size_after, report.torn) == (50 * 1024, SIZE, False)
    assert undo(tmp_path / "log", tmp_path / "image") == report
    assert (tmp_path / "image").read_bytes() == before


def test_undoing_a_format_of_a_huge_sparse_image_takes_little_room(tmp_path: Path) -> None:
    size = 1 << 40
    with create_image(tmp_path / "image", size) as image:
        image.pwrite(1024, noise(3072))
        image.pwrite(1 << 39, noise(1 << 20))
    with UndoLog(open_image(tmp_path / "image", write=True), tmp_path / "log") as device:
        device.discard(0, size)
        device.pwrite(4096, noise(8192, 1))
        device.pwrite(1 << 38, noise(8192, 1))
    assert (tmp_path / "log").stat().st_size < 1100 << 10
    undo(tmp_path / "log", tmp_path / "image")
    assert (tmp_path / "image").stat().st_blocks * 512 < 1200 << 10
    with open_image(tmp_path / "image") as image:
        assert image.pread(1024, 3072) == noise(3072)
        assert image.pread(1 << 39, 1 << 20) == noise(1 << 20)
        assert image.pread(1 << 38, 8192) == bytes(8192)


def test_one_call_waits_for_the_disk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    monkeypatch.setattr(os, "fdatasync", waits.append)
    with UndoLog(Memory(noise(1 << 20)), tmp_path / "log") as device:
        device.pwrite(40960, b"x")
        waits.clear()
        blocks = np.arange(20, 200, 3)
        device.write_blocks(blocks, np.ones((blocks.size, 4096), np.uint8), 4096)
        assert len(waits) == 1
        device.write_blocks(blocks, np.zeros((blocks.size, 4096), np.uint8), 4096)
        assert len(waits) == 2, "what blocks are about to become is told in one go"
        device.foresee((device, int(block) * 4096, 4096) for block in (*blocks, 100))
        assert len(waits) == 3
        for block in (*blocks, 100):
            device.pwrite(int(block) * 4096, device.pread(int(block) * 4096, 4096))
        assert len(waits) == 3, "what was foreseen needs nothing more"


def test_what_cannot_be_logged_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = noise(SIZE)
    base = Memory(before)
    device = UndoLog(base, tmp_path / "log")
    device.pwrite(0, b"x" * 5000)
    changed, log = bytes(base.content), (tmp_path / "log").read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(DeviceError, match=r"log: .*No space left"):
            device.pwrite(60000, b"y" * 5000)
    assert base.content == changed
    assert (tmp_path / "log").read_bytes() == log
    device.pwrite(60000, b"y" * 5000)
    device.close()
    apply_undo(tmp_path / "log", base)
    assert base.content == before


def test_wrong_changes_are_refused_before_anything_is_logged(tmp_path: Path) -> None:
    with UndoLog(Memory(SIZE, read_only=True), tmp_path / "log") as device:
        for change in (Change("pwrite", 0, 1), Change("discard", 0, 1), Change("resize", 0, 1), Change("write_blocks")):
            with pytest.raises(DeviceError, match="read-only"):
                change(device)
        assert (tmp_path / "log").stat().st_size == 0
    with UndoLog(Memory(SIZE), tmp_path / "log2") as device:
        with pytest.raises(DeviceError, match="past its end"):
            device.pwrite(SIZE, b"x")
        with pytest.raises(DeviceError, match="past its end"):
            device.write_blocks(np.array([1, SIZE // 4096]), np.zeros((2, 4096), np.uint8), 4096)
        assert (tmp_path / "log2").stat().st_size == 0


def test_nothing_is_restored_where_one_of_several_devices_is_too_short(tmp_path: Path) -> None:
    members = [Memory(bytes([number + 1]) * 8 * 4096, f"m{number}") for number in range(3)]

    def volume() -> MultiDevice:
        device = MultiDevice(members)
        device.set_layout([(number * 8 * 4096, 8 * 4096) for number in range(3)])
        return device

    with UndoLog(volume(), tmp_path / "undo") as log:
        log.pwrite(0, b"new" * 100)
        log.pwrite(15 * 4096, b"new" * 100)
    members[1].resize(7 * 4096)
    changed = [bytes(member.content) for member in members]
    with pytest.raises(DeviceError, match="m1: is 4096 bytes too short for what has to be restored on it"):
        apply_undo(tmp_path / "undo", volume(), force=True)
    assert [bytes(member.content) for member in members] == changed


def killed(tmp_path: Path, before: bytes) -> tuple[bytes, bytes]:
    """(image, log) of a command that was killed behind a write far from the start of the image."""
    states = []
    device = Watched(before, lambda content: states.append((content, (tmp_path / "log").read_bytes())))
    with UndoLog(device, tmp_path / "log") as log:
        log.pwrite(70000, noise(9000, 3))
        log.pwrite(90112, noise(8192, 4))
    return states[-1]


def test_what_something_else_wrote_over_the_changes_of_a_killed_command_is_told(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    image, log = killed(tmp_path, before)
    (tmp_path / "log").write_bytes(log)
    untorn = Memory(image)
    assert apply_undo(tmp_path / "log", untorn).ending == "killed"
    assert untorn.content == before
    for offset in (70000, 78999, 90112, 98302):
        other = Memory(image)
        other.pwrite(offset, b"!!")
        changed = bytes(other.content)
        with pytest.raises(
            DeviceError, match=f"its bytes at offset {offset // 512 * 512:#x} were changed by something"
        ):
            apply_undo(tmp_path / "log", other)
        assert other.content == changed


def test_what_something_else_wrote_over_changes_far_behind_is_told(tmp_path: Path) -> None:
    far = 5 << 30
    with create_image(tmp_path / "image", 8 << 30) as image:
        image.pwrite(1024, noise(3072))
    with UndoLog(open_image(tmp_path / "image", write=True), tmp_path / "log") as device:
        device.discard(0, 8 << 30)
        device.pwrite(far + 100, noise(5000, 1))
    for offset in (far, far + 5000, 6 << 30):
        with open_image(tmp_path / "image", write=True) as image:
            kept = image.pread(offset, 10)
            image.pwrite(offset, b"0123456789")
            with pytest.raises(DeviceError, match=f"its bytes at offset {offset // 512 * 512:#x} were changed"):
                apply_undo(tmp_path / "log", image)
            image.pwrite(offset, kept)
    undo(tmp_path / "log", tmp_path / "image")
    with open_image(tmp_path / "image") as image:
        assert image.pread(1024, 3072) == noise(3072)
        assert not list(image.data_ranges(far, 1 << 20))


@pytest.mark.parametrize(
    ("first", "second"),
    [((0, 65536), (40960, 4096)), ((28672, 8192), (32768, 4096)), ((40960, 8192), (45056, 4096))],
    ids=["all of it at once", "from the head on", "more than was foreseen"],
)
def test_what_is_written_again_after_it_was_foreseen_is_announced_anew(
    tmp_path: Path, first: tuple[int, int], second: tuple[int, int]
) -> None:
    before = untouched(tmp_path / "image")
    device = Memory(before)
    log = UndoLog(device, tmp_path / "log")
    offset, length = first
    source = Memory(noise(SIZE, 5))
    log.foresee([(source, offset, length)])
    log.pwrite(offset, source.pread(offset, length) + noise(4096, 6))
    log.pwrite(second[0], noise(second[1], 7))
    left, written = bytes(device.content), (tmp_path / "log").read_bytes()  # as a kill leaves them
    log.close()
    (tmp_path / "log").write_bytes(written)
    killed_there = Memory(left)
    apply_undo(tmp_path / "log", killed_there)
    assert killed_there.content == before


def test_what_is_written_after_a_write_failed_is_announced_anew(tmp_path: Path) -> None:
    class Failing(Memory):
        fails = True

        def pwrite(self, offset: int, data: Data) -> None:
            if self.fails:
                raise DeviceError("memory: I/O error")
            super().pwrite(offset, data)

    before = untouched(tmp_path / "image")
    device = Failing(before)
    log = UndoLog(device, tmp_path / "log")
    with pytest.raises(DeviceError, match="I/O error"):
        log.write_blocks(np.array([10, 12]), np.full((2, 4096), 7, np.uint8), 4096)
    device.fails = False
    log.pwrite(12 * 4096, noise(4096, 7))
    left, written = bytes(device.content), (tmp_path / "log").read_bytes()
    log.close()
    (tmp_path / "log").write_bytes(written)
    killed_there = Memory(left)
    apply_undo(tmp_path / "log", killed_there)
    assert killed_there.content == before


class Disk(Memory):
    """As a disk that promises nothing of what was given up, and keeps it."""

    def trim(self, offset: int, length: int) -> None:
        self.check_range(offset, length)

    @property
    def trims_to_zeros(self) -> bool:
        return False


def test_what_was_given_up_may_hold_anything(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    device = Disk(before)
    with UndoLog(device, tmp_path / "log") as log:
        log.trim(40000, 20000)
    (tmp_path / "log").write_bytes(unsealed((tmp_path / "log").read_bytes()))
    device.content[40960:50000] = noise(9040, 8)
    apply_undo(tmp_path / "log", device)
    assert device.content == before


def test_what_was_given_up_where_that_leaves_zeros_is_zeros(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    device = Memory(before)
    with UndoLog(device, tmp_path / "log") as log:
        log.trim(40000, 20000)
    (tmp_path / "log").write_bytes(unsealed((tmp_path / "log").read_bytes()))
    device.content[40960:50000] = noise(9040, 8)
    with pytest.raises(DeviceError, match="its bytes at offset 0xa000 were changed by something"):
        apply_undo(tmp_path / "log", device)


@pytest.mark.parametrize("what", ["pwrite", "write_zeroes"])
def test_what_was_given_up_and_written_then_is_as_written(tmp_path: Path, what: str) -> None:
    before = untouched(tmp_path / "image")
    device = Disk(before)
    with UndoLog(device, tmp_path / "log") as log:
        log.trim(40000, 40000)
        if what == "pwrite":
            log.pwrite(45056, noise(4096, 8))
        else:
            log.write_zeroes(45056, 4096)
    (tmp_path / "log").write_bytes(unsealed((tmp_path / "log").read_bytes()))
    written = bytes(device.content)
    for content in (b"\0" * 4096, b"\xff" * 4096, before[45056:49152], written[45056:49152]):
        there = Disk(written)
        there.content[45056:49152] = content
        apply_undo(tmp_path / "log", there)
        assert there.content == before
    device.content[46000] ^= 1
    with pytest.raises(DeviceError, match="its bytes at offset 0xb200 were changed by something"):
        apply_undo(tmp_path / "log", device)


def test_what_was_written_and_given_up_then_may_hold_anything(tmp_path: Path) -> None:
    before = untouched(tmp_path / "image")
    device = Disk(before)
    with UndoLog(device, tmp_path / "log") as log:
        log.pwrite(45056, noise(4096, 8))
        log.trim(40000, 40000)
    (tmp_path / "log").write_bytes(unsealed((tmp_path / "log").read_bytes()))
    device.content[46000:47000] = noise(1000, 9)
    apply_undo(tmp_path / "log", device)
    assert device.content == before


def test_where_flushing_fails_the_way_back_is_said(tmp_path: Path) -> None:
    class Full(Memory):
        def flush(self) -> None:
            raise DeviceError("memory: flushing failed")

    log = UndoLog(Full(noise(SIZE)), tmp_path / "log")
    with pytest.raises(DeviceError, match="flushing failed; memory was not changed"):
        log.flush()
    log.pwrite(40960, b"x")
    with pytest.raises(DeviceError, match=r"flushing failed; `f2tools undo .*log memory` takes back what was changed"):
        log.flush()
