"""Overlays that last: closed or killed, they can be opened again."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import numpy as np
import pytest

from f2tools.device.changes import overlay_log
from f2tools.device.changes.overlay import BLOCK, Overlay
from f2tools.device.changes.overlay_log import HEADER, RECORD
from f2tools.errors import DeviceError
from tests.device.memory import Memory

SIZE = 40 * BLOCK + 700


def noise(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(1, 256, size, np.uint8).tobytes()


def change(overlay: Overlay, model: bytearray, pick: random.Random) -> None:
    offset = pick.choice([pick.randrange(len(model)), pick.randrange(len(model)) // BLOCK * BLOCK])
    length = pick.choice([pick.randrange(10 * BLOCK), pick.randrange(10) * BLOCK])
    length = min(length, len(model) - offset)
    what = pick.random()
    if what < 0.6:
        overlay.pwrite(offset, data := noise(length, pick.randrange(99)))
        model[offset : offset + length] = data
    elif what < 0.85:
        overlay.write_zeroes(offset, length)
        model[offset : offset + length] = bytes(length)
    else:
        size = pick.randrange(BLOCK, 2 * SIZE)
        overlay.resize(size)
        del model[size:]
        model.extend(bytes(size - len(model)))


@pytest.mark.parametrize("seed", range(25))
def test_what_was_written_is_there_again(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay_log, "WORTH_REWRITING", 30 * BLOCK if seed % 2 else 1 << 30)
    below = noise(SIZE, 0)
    base = Memory(below, read_only=True)
    pick, model = random.Random(seed), bytearray(below)
    for _ in range(6):
        with Overlay(base, tmp_path / "overlay") as overlay:
            assert overlay.size_bytes == len(model)
            assert overlay.pread(0, len(model)) == model
            for _ in range(6):
                change(overlay, model, pick)
                overlay.flush()
                assert overlay.pread(0, len(model)) == model
    target = Memory(below)
    with Overlay(base, tmp_path / "overlay") as overlay:
        overlay.apply(target)
    assert target.content == model
    assert target.flushes == 1
    assert base.content == below
    assert [p.name for p in tmp_path.iterdir()] == ["overlay"]


def test_after_a_crash_a_prefix_of_the_writes_is_there(tmp_path: Path) -> None:
    below = noise(SIZE, 0)
    states = [below]
    with Overlay(Memory(below), tmp_path / "whole") as overlay:
        overlay.pwrite(5, b"first")
        states.append(overlay.pread(0, SIZE))
        overlay.write_zeroes(BLOCK, 3 * BLOCK)
        states.append(overlay.pread(0, SIZE))
        overlay.pwrite(0, noise(2 * BLOCK, 3))
        states.append(overlay.pread(0, SIZE))
    whole = (tmp_path / "whole").read_bytes()
    ends = np.cumsum([HEADER.size, RECORD.size + BLOCK, RECORD.size, RECORD.size + 2 * BLOCK]).tolist()
    assert ends[-1] == len(whole)
    for cut in sorted({c for end in [0, *ends] for c in range(end - 60, end + 60)} | {3000, 9000}):
        if not 0 <= cut <= len(whole):
            continue
        for tail in (b"", bytes(60)) if cut >= HEADER.size else (b"",):
            (tmp_path / "cut").write_bytes(whole[:cut] + tail)
            with Overlay(Memory(below), tmp_path / "cut") as overlay:
                assert overlay.pread(0, SIZE) == states[max(0, sum(end <= cut for end in ends) - 1)]
                overlay.pwrite(77, b"after")
            with Overlay(Memory(below), tmp_path / "cut") as overlay:
                assert overlay.pread(77, 5) == b"after"


def test_a_file_of_writes_again_and_again_does_not_grow_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay_log, "WORTH_REWRITING", 1 << 20)
    with Overlay(Memory(8 << 20), tmp_path / "overlay") as overlay:
        for i in range(50):
            overlay.pwrite(0, noise(256 << 10, i))
            overlay.flush()
        assert overlay.pread(0, 256 << 10) == noise(256 << 10, 49)
        assert (tmp_path / "overlay").stat().st_size < 3 << 20


def test_an_overlay_belongs_to_its_image(tmp_path: Path) -> None:
    below = noise(SIZE, 0)
    Overlay(Memory(below), tmp_path / "overlay").close()
    for other in (below + b"x", noise(SIZE, 1)):
        with pytest.raises(DeviceError, match="belongs to another image"):
            Overlay(Memory(other), tmp_path / "overlay")
    Overlay(Memory(below), tmp_path / "of a state", state=b"one").close()
    Overlay(Memory(below), tmp_path / "of a state", state=b"one").close()
    with pytest.raises(DeviceError, match="or that was changed since"):
        Overlay(Memory(below), tmp_path / "of a state", state=b"two")
    (tmp_path / "text").write_text("precious" * 20)
    with pytest.raises(DeviceError, match="no overlay"):
        Overlay(Memory(below), tmp_path / "text")
    assert (tmp_path / "text").read_text() == "precious" * 20
    with pytest.raises(DeviceError, match="No such file"):
        Overlay(Memory(below), tmp_path / "missing" / "overlay")


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with (
        Overlay(Memory(SIZE), tmp_path / "overlay"),
        pytest.raises(DeviceError, match="this program has it open"),
    ):
        Overlay(Memory(SIZE), tmp_path / "overlay")


@pytest.mark.parametrize(
    ("kind", "first", "count"),
    [(2, 0, 2**63 - 1), (2, 2**63, 2**64 - 1), (2, 16, 1), (1, 2**60, 1), (3, 2**64 - 1, 0), (3, 2**47, 0)],
)
def test_a_forged_record_that_reaches_beyond_the_device_is_refused(
    tmp_path: Path, kind: int, first: int, count: int
) -> None:
    path, base = tmp_path / "overlay", Memory(16 * BLOCK)
    Overlay(base, path).close()
    data = bytes(BLOCK) if kind == 1 else b""
    head = RECORD.pack(b"F2OR", kind, first, count, 0)[:-4]
    whole = path.read_bytes() + head + zlib.crc32(head + data).to_bytes(4, "little") + data
    path.write_bytes(whole)
    for _ in range(2):  # and it is let go
        with pytest.raises(DeviceError, match="further than the device"):
            Overlay(base, path)
    assert path.read_bytes() == whole
