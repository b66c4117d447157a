"""Measuring what the article claims, on small volumes in a temporary directory.

Requests and bytes are those that reach the image file below the storage layer, its own records and cleaning included.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import f2tools
from f2tools.device.base import Device, Wrapper
from f2tools.device.buffers import Data, byte_view
from f2tools.device.media.image import open_image
from f2tools.dfs.layout import BLOCK, ROOT_INO
from f2tools.dfs.mkfs import make_image
from f2tools.dfs.volume import Volume
from f2tools.dfs.write import WritableVolume
from f2tools.flash.vsl import open_vsl

SIZE = 32 << 20
LARGE = 2000  # files
LARGEST_REQUEST = 512 << 10
ALIGNMENTS = {"whole pages": 0, "whole blocks": BLOCK, "neither": 100}
DIRECTORIES = ("log", "hashed")
PAGE = 4096
OFFSETS = (0, 1 << 20, 1 << 30, 1 << 40, (1 << 41) - BLOCK)
# of F2FS with blocks of 4 KiB: addresses in an inode without attributes in it, in a node, nodes in an indirect node
F2FS_IN_INODE, F2FS_IN_NODE = 923, 1018
ENGINE = "layout inode dentries buckets names hashed journal wal volume engine write leftover acls files".split()  # noqa: SIM905


@dataclass
class Load:
    """A load: what was asked for by system calls, and what reached the image; and what is mapped more after it."""

    name: str
    directories: str
    asked_bytes: int
    requests: int
    merged_requests: int
    """As a kernel makes them: those that follow each other are one, up to 512 KiB."""
    written_bytes: int
    flushes: int
    mapped_blocks: int


@dataclass
class Claims:
    """Everything that was measured."""

    reads_to_open: int = 0
    reads_to_open_in_large: dict[str, int] = field(default_factory=dict)
    """By kind of directories: in a root of `LARGE` files."""
    reads_per_block: dict[int, int] = field(default_factory=dict)
    f2fs_node_reads: dict[int, int] = field(default_factory=dict)
    sparse_size: int = 0
    sparse_blocks: int = 0
    mapped_by_file: int = 0
    given_back_by_delete: int = 0
    aligned: dict[str, dict[str, int]] = field(default_factory=dict)
    """What 500 random writes of 4 KiB over a file of 2 MiB send, in whole pages and not."""
    loads: list[Load] = field(default_factory=list)
    beside: dict[str, Any] = field(default_factory=dict)
    """The same calls on ext4 and F2FS by a real kernel, as bench/dfs_peers.py measured them once."""
    lines: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Counting(Wrapper):
    """An image whose requests are counted."""

    def __init__(self, base: Device) -> None:
        super().__init__(base)
        self.reads = self.writes = self.merged = self.written = self.flushes = 0
        self._end, self._length = -1, 0  # of the request that the next one may follow

    def counts(self) -> tuple[int, int, int, int]:
        """(requests to write, the same merged, bytes of them, flushes) until now."""
        return self.writes, self.merged, self.written, self.flushes

    def pread_into(self, offset: int, buffer: Any) -> None:
        self.reads += 1
        self.base.pread_into(offset, buffer)

    def pwrite(self, offset: int, data: Data) -> None:
        length = len(byte_view(data))
        self.writes += 1
        self.written += length
        if offset == self._end and self._length + length <= LARGEST_REQUEST:
            self._length += length
        else:
            self.merged += 1
            self._length = length
        self._end = offset + length
        self.base.pwrite(offset, data)

    def flush(self) -> None:
        self.flushes += 1
        self._end = -1
        self.base.flush()


def measure() -> Claims:
    """Measure everything; some seconds."""
    claims = Claims(lines=_lines(), beside=peers())
    with tempfile.TemporaryDirectory(prefix="f2tools-dfs-") as directory:
        top = Path(directory)
        _addressing(claims, top)
        claims.aligned = {name: _page_writes(top / "direct", shift) for name, shift in ALIGNMENTS.items()}
        for kind in DIRECTORIES:
            claims.reads_to_open_in_large[kind] = _reads_in_large(top / "large", kind)
            claims.loads += [run_load(name, kind, top / "load") for name in LOADS]
    return claims


def peers() -> dict[str, Any]:
    """What ext4 and F2FS sent for the loads: `made` says how that was measured, `loads` is by load and by system."""
    return json.loads(Path(__file__).with_name("peers.json").read_text())


def run_load(name: str, directories: str, path: Path) -> Load:
    """Run one of `LOADS` on a new volume in a file at `path`, which is removed after that."""
    with counted_volume(path, directories) as (volume, image):
        before, mapped = image.counts(), volume.layer.mapped_blocks
        asked = LOADS[name](volume)
        volume.sync()
        requests, merged, written, flushes = (b - a for a, b in zip(before, image.counts(), strict=True))
        return Load(name, directories, asked, requests, merged, written, flushes, volume.layer.mapped_blocks - mapped)


def f2fs_nodes(offset: int) -> int:
    """How many nodes behind the inode F2FS reads for the address of a byte, in a file of less than 3.9 TiB."""
    block = offset // PAGE - F2FS_IN_INODE
    for level in range(2):
        if block < 0:
            return level
        block -= 2 * F2FS_IN_NODE ** (level + 1)  # there are two of each kind, and one with two levels below it
    return 2 if block < 0 else 3


@contextmanager
def counted_volume(path: Path, directories: str = "log", size: int = SIZE) -> Iterator[tuple[WritableVolume, Counting]]:
    """A new volume in a file at `path`, and that file, whose requests are counted; the file is removed at the end."""
    make_image(str(path), size, hashed=directories == "hashed")
    image = Counting(open_image(path, write=True))
    volume = WritableVolume(open_vsl(image))
    try:
        yield volume, image
    finally:
        volume.close()
        path.unlink()


def _addressing(claims: Claims, directory: Path) -> None:
    """Reads for an open and for a block, what a sparse file takes, what deleting it gives back."""
    path = directory / "addressing"
    make_image(str(path), SIZE)
    with open_image(path, write=True) as device:
        volume = WritableVolume(open_vsl(device))
        before = volume.layer.mapped_blocks
        file = volume.create(ROOT_INO, b"sparse", 0o644)
        volume.sync()
        for offset in OFFSETS:
            volume.write(file, offset, b"x" * BLOCK)
        volume.sync()
        claims.sparse_size = volume.inode(file).size
        claims.sparse_blocks = volume.mapped_blocks(volume.inode(file))
        volume.close()
    image = Counting(open_image(path))
    seen = Volume(open_vsl(image))
    _ = seen.waiting
    image.reads = 0
    inode = seen.at_path(b"/sparse")
    claims.reads_to_open = image.reads
    for offset in OFFSETS:
        image.reads = 0
        seen.read_content(inode, offset, BLOCK)
        claims.reads_per_block[offset] = image.reads
        claims.f2fs_node_reads[offset] = f2fs_nodes(offset)
    seen.close()
    with open_image(path, write=True) as device:
        volume = WritableVolume(open_vsl(device))
        full = volume.layer.mapped_blocks
        volume.unlink(ROOT_INO, b"sparse")
        volume.sync()
        claims.mapped_by_file, claims.given_back_by_delete = full - before, full - volume.layer.mapped_blocks
        volume.close()


def _page_writes(path: Path, shift: int) -> dict[str, int]:
    """What random writes of a page send that begin so many bytes behind a page's beginning."""
    with counted_volume(path) as (volume, image):
        file, chance = volume.create(ROOT_INO, b"file", 0o644), random.Random(0)
        volume.write(file, 0, bytes(513 * PAGE))
        volume.sync()
        reads, before = image.reads, image.counts()
        for _ in range(500):
            volume.write(file, chance.randrange(512) * PAGE + shift, bytes(PAGE))
        volume.sync()
        requests, _, written, _ = (b - a for a, b in zip(before, image.counts(), strict=True))
        return {"reads": image.reads - reads, "requests": requests, "written_bytes": written}


def _reads_in_large(path: Path, directories: str) -> int:
    """Reads to open a file in a root of `LARGE` files."""
    make_image(str(path), SIZE, hashed=directories == "hashed")
    volume = WritableVolume(open_vsl(open_image(path, write=True)))
    for number in range(LARGE):
        volume.create(ROOT_INO, b"file %d" % number, 0o644)
    volume.close()
    image = Counting(open_image(path))
    with Volume(open_vsl(image)) as seen:
        _ = seen.waiting
        image.reads = 0
        seen.at_path(b"/file %d" % (LARGE - 1))
    path.unlink()
    return image.reads


def _sequential(volume: WritableVolume) -> int:
    file = volume.create(ROOT_INO, b"file", 0o644)
    for at in range(0, 8 << 20, 64 << 10):
        volume.write(file, at, bytes(64 << 10))
    return 8 << 20


def _random(volume: WritableVolume) -> int:
    file, chance = volume.create(ROOT_INO, b"file", 0o644), random.Random(0)
    for _ in range(1000):
        volume.write(file, chance.randrange(4096) * PAGE, bytes(PAGE))
    return 1000 * PAGE


def _small_files(volume: WritableVolume) -> int:
    for number in range(500):
        volume.write(volume.create(ROOT_INO, b"file %d" % number, 0o644), 0, bytes(2048))
    return 500 * 2048


def _directories(volume: WritableVolume) -> int:
    for number in range(200):
        volume.mkdir(ROOT_INO, b"directory %d" % number, 0o755)
    return 0


def _database(volume: WritableVolume) -> int:
    """Transactions as SQLite makes them with a rollback journal: three pages each, made safe in its order."""
    base, chance = volume.create(ROOT_INO, b"base", 0o644), random.Random(0)
    volume.write(base, 0, bytes(256 * PAGE))
    for _ in range(50):
        journal = volume.create(ROOT_INO, b"base-journal", 0o644)
        volume.write(journal, 0, bytes(512 + 3 * (PAGE + 8)))
        volume.fsync(journal)
        for _ in range(3):
            volume.write(base, chance.randrange(256) * PAGE, bytes(PAGE))
        volume.fsync(base)
        volume.unlink(ROOT_INO, b"base-journal")
        volume.fsync(ROOT_INO)
    return 256 * PAGE + 50 * (512 + 3 * (PAGE + 8) + 3 * PAGE)


LOADS: dict[str, Callable[[WritableVolume], int]] = {
    "sequential, 64 KiB each": _sequential,
    "random, 4 KiB each": _random,
    "500 files of 2 KiB": _small_files,
    "200 directories": _directories,
    "50 transactions of SQLite": _database,
}
DIRECT = {"sequential, direct": "sequential, 64 KiB each", "random, direct": "random, 4 KiB each"}
"""Loads that others run past the page cache as well; DFS has none, so here they are the same."""


def _lines() -> dict[str, int]:
    """Lines that are not empty: of this engine, of the layer below, of F2FS as f2tools has it."""
    top = Path(os.fspath(f2tools.__file__)).parent

    def count(files: Iterator[Path]) -> int:
        return sum(bool(line.strip()) for file in files for line in file.read_text().splitlines())

    return {
        "dfs": count(top / "dfs" / f"{name}.py" for name in ENGINE),
        "layer": count((top / "flash").glob("*.py")),
        "f2fs": count((top / "f2fs").rglob("*.py")),
    }
