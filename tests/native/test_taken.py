"""Inodes that the compiled core reads and takes in one go, beside those that it is given, and beside Python alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from f2tools import native
from f2tools.device import open_device
from f2tools.device.base import Device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.media.image import FileDevice
from f2tools.errors import NotF2fs
from f2tools.f2fs.layout import hashes
from f2tools.fsck.check import DEFAULT_MEMORY
from f2tools.fsck.checks import inode, xattr
from f2tools.fsck.facts import addresses, arrays, dentries, inodes, nodes, owners, sound, taken
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.repair.rounds import StaysOpen
from tests.fsck import fuzz
from tests.images import copy_sparse
from tests.native.test_core import in_python
from tests.sweeps import ALL

CASES = 12 if ALL else 5
TWINS = (addresses, arrays, dentries, hashes, inodes, nodes, owners, sound, taken)
COLUMNS = ("footer", "kind", "read", "parent", "slot", "inode_of", "usable")
BATCHES = (nodes.BATCH_BYTES, 100 * 4096)  # one, and several of an uneven number of blocks
IMAGES = ["base", "features", "casefold", "checksums", "noinline", "phone", "compress-lz4", "blocks16k", "sections"]


def facts(device: Device, memory: int = DEFAULT_MEMORY) -> Any:
    """All that a pass over the nodes notes, and what it finds."""
    try:
        image = Image(device)
    except NotF2fs as error:
        return str(error)
    if image.pack is None:
        return None
    scan = Scan(image, memory)
    found: list[Any] = [str(finding) for finding in scan.run([*inode.CHECKS, *xattr.BATCH_CHECKS])]
    found += [scan.inodes[name].tolist() for name in inodes.ROW.names or ()]
    found += [getattr(scan, name).tolist() for name in COLUMNS]
    for _ in scan.windows():
        found += [column.tolist() for column in scan.owners.of_segments(scan.owners.segnos())]
    found += [[column.tolist() for column in clash] for clash in scan.clashes]
    found += [rows.tolist() for rows in (*scan.bad_edges, *scan.bad_pointers)]
    found += [scan.dentries.table.tolist(), {name: rows.tolist() for name, rows in scan.dentries.bad.items()}]
    return [*found, scan.shared_blocks, scan.reserved, sorted(image.raw.unreadable)]


def by_three(path: Path, memory: int = DEFAULT_MEMORY) -> tuple[Any, Any, Any]:
    """By the core that reads, by the core that is given blocks, and by Python."""
    with open_device(path) as device:
        assert device.plain_file() >= 0
        found = facts(Kept(device), memory), facts(StaysOpen(device), memory)
        with in_python(*TWINS):
            return (*found, facts(StaysOpen(device), memory))


class Kept(StaysOpen):
    """A file that stays open, and is still one."""

    def plain_file(self) -> int:
        return self.base.plain_file()


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", IMAGES)
def test_a_damaged_file_has_the_same_facts(
    name: str, batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one window of the main area, and in many."""
    monkeypatch.setattr(nodes, "BATCH_BYTES", batch)
    path = tmp_path / "x.img"
    copy_sparse(fuzz.healthy(name).path, path)
    for number in range(-1, CASES):
        damage = fuzz.damage(name, number) if number >= 0 else []
        with path.open("r+b") as file:
            before = [(at, os.pread(file.fileno(), len(data), at)) for at, data in damage]
            for at, data in damage:
                os.pwrite(file.fileno(), data, at)
            reading, given, python = by_three(path)
            assert reading == given, number
            assert reading == python, number
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(owners, "LEAST_SEGMENTS", 2)
                reading, given, python = by_three(path, 1)
                assert reading == given, number
                assert reading == python, number
            for at, data in reversed(before):
                os.pwrite(file.fileno(), data, at)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many inodes each call was asked for, and how many it took."""
    calls: list[tuple[int, int]] = []
    real = taken.Taker.take

    def take(self: taken.Taker, rows: Any, table: Any) -> taken.Taken:
        found = real(self, rows, table)
        calls.append((rows.size, found.number))
        return found

    monkeypatch.setattr(taken.Taker, "take", take)
    return calls


def test_inodes_of_a_sound_volume_are_taken_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    monkeypatch.setattr(nodes, "BATCH_BYTES", 100 * 4096)
    path = fuzz.healthy("checksums").path
    reading, given, python = by_three(path)
    assert reading == given == python
    assert calls == [(275, 275)]


def test_what_cannot_be_read_is_told_of_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that ends early behind the back of its device, and one that can't be read from at all."""
    monkeypatch.setattr(nodes, "BATCH_BYTES", 100 * 4096)
    path = tmp_path / "x.img"
    copy_sparse(fuzz.healthy("checksums").path, path)
    with open_device(path) as device:
        scan = Scan(Image(StaysOpen(device)), DEFAULT_MEMORY)
        middle = int(np.sort(scan.addr[scan.usable])[scan.addr.size // 2])
        calls = counted(monkeypatch)
        whole = facts(Kept(device))
        os.truncate(path, middle * 4096 + 100)
        found = facts(Kept(device))
        assert 0 < sum(took for _, took in calls[-len(calls) // 2 :]) < scan.nid.size
        assert middle * 4096 in found[-1]
        assert found != whole
        with in_python(*TWINS):
            assert found == facts(StaysOpen(device))


def test_a_descriptor_that_does_not_read_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_device(fuzz.healthy("checksums").path) as device:
        right = facts(StaysOpen(device))
        calls = counted(monkeypatch)
        descriptor = os.open(os.devnull, os.O_WRONLY)
        try:
            monkeypatch.setattr(FileDevice, "plain_file", lambda _: descriptor)
            assert facts(Kept(device)) == right
        finally:
            os.close(descriptor)
        assert calls
        assert not any(took for _, took in calls)


def test_changes_before_a_file_are_seen() -> None:
    """What stands before it is no plain file, and neither is one that ends before the volume does."""
    with open_device(fuzz.healthy("base").path) as device:
        assert Image(Kept(device)).device.plain_file() == device.plain_file() >= 0
        assert Image(StaysOpen(Overlay(StaysOpen(device)))).device.plain_file() == -1


VOLUME = (b"", 4096, 368, 0, 1, 2, 3)
ADDRESSES = dict.fromkeys(("row", "ofs", "addr"), bytearray(16384))


def arguments(**other: Any) -> list[Any]:
    """Those of a pass over two blocks of a file, as they should be but for the others."""
    numbers = np.arange(2, dtype=np.int64)
    given: dict[str, Any] = {
        "fd": 0, "bytes": 1 << 20, "batch": 2, "wanted": numbers, "nids": numbers, "rows": numbers,
        "table": bytearray(48), "volume": VOLUME, "offsets": numbers[:1], "columns": (bytearray(16),),
        "blocks": bytearray(8192), "which": bytearray(16), "facts": bytearray(288), "row": bytearray(8),
        "ofs": bytearray(8), "addr": bytearray(8), "edges": bytearray(288), "used": bytearray(32),
    }  # fmt: skip
    return list({**given, **other}.values())


@pytest.mark.parametrize(
    "other",
    [
        {"batch": 0}, {"batch": -1}, {"batch": 1 << 40}, {"bytes": -1}, {"rows": bytes(8)}, {"nids": bytes(8)},
        {"wanted": bytes(17), "nids": bytes(17), "rows": bytes(17)}, {"wanted": b"", "nids": b"", "rows": b""},
        {"volume": (b"", 2048, 368, 0, 1, 2, 3)}, {"volume": (b"", 1 << 17, 368, 0, 1, 2, 3)},
        {"volume": (b"", 4096, 4093, 0, 1, 2, 3)}, {"volume": (b"", 4096, -1, 0, 1, 2, 3)},
        {"columns": ()}, {"columns": (bytearray(17),)}, {"offsets": np.array([140])}, {"offsets": np.array([-1])},
        {"which": bytearray(8)}, {"facts": bytearray(287)}, {"addr": bytearray(16)}, {"used": bytearray(24)},
    ],
)  # fmt: skip
def test_buffers_that_do_not_agree_are_an_error(other: dict[str, Any]) -> None:
    assert native.core is not None
    with pytest.raises(ValueError, match="agree"):
        native.core.take_inodes(*arguments(**other))


@pytest.mark.parametrize(
    ("other", "stopped"),
    [
        ({}, 0),  # no room for all addresses that may be in two inodes
        ({**ADDRESSES, "blocks": bytearray(4096)}, 0),
        ({**ADDRESSES, "edges": bytearray(287)}, 0),
        (ADDRESSES, 1),  # no inodes are there
        ({**ADDRESSES, "fd": -1}, 1),
        ({**ADDRESSES, "bytes": 8191}, 1),
        ({**ADDRESSES, "wanted": np.array([-1, 0])}, 1),
        ({**ADDRESSES, "wanted": np.array([2**63 - 1, 0])}, 1),
        ({**ADDRESSES, "rows": np.array([-1, 0])}, 1),
        ({**ADDRESSES, "rows": np.array([2, 0])}, 1),
    ],
)
def test_nothing_is_taken_that_has_no_room_or_is_not_there(other: dict[str, Any], stopped: int, tmp_path: Path) -> None:
    assert native.core is not None
    path = tmp_path / "blank"
    path.write_bytes(bytes(1 << 20))
    with path.open("rb") as file:
        used = np.full(4, 7)
        given = {"fd": file.fileno(), **other, "used": used}
        assert native.core.take_inodes(*arguments(**given)) == 0
    assert used.tolist() == [0, 0, 0, stopped]
