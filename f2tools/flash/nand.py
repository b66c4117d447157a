"""Raw NAND flash: pages with a spare area, programmed once and in order, in blocks that are erased whole.

Not a `Device`: nothing can be overwritten.  The bytes live in memory or in a file in the order of nanddump, each page
followed by its spare area; an erased byte is 0xFF.  Wear, faults and power cuts come from a seeded model, so that a run
can be repeated; time comes from figures of data sheets, and is a model too: what the commands would have taken, one
after the other, pages of several planes together.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from f2tools.device.base import Device
from f2tools.device.media.image import open_image
from f2tools.device.media.new_image import new_image
from f2tools.errors import DeviceError, Usage

ERASED = 0xFF
BAD_MARK_BYTES = 2  # of the first page's spare area; a block is bad when its first byte is not erased
FILL_BYTES = 4 << 20


class NandError(DeviceError):
    """The flash could not do what it was told; `page` or `block` says where."""


class ReadFailed(NandError):
    """A page can't be read, this time at least: more bits are wrong than the chip's own correction can handle."""


class ProgramFailed(NandError):
    """A page did not take what was programmed; its block should be retired."""

    def __init__(self, message: str, page: int) -> None:
        super().__init__(message)
        self.page = page


class EraseFailed(NandError):
    """A block could not be erased; it should be marked bad."""


class PowerCut(Exception):
    """The power is gone, as a test wanted; nothing works before `power_on`."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of a chip; `planes` are groups of blocks (block modulo planes) that work at the same time."""

    blocks: int
    page_size: int = 2048
    spare_size: int = 64
    pages_per_block: int = 64
    planes: int = 1

    def __post_init__(self) -> None:
        if min(self.blocks, self.page_size, self.spare_size, self.pages_per_block, self.planes) < 1:
            raise Usage(f"NAND needs at least one of everything: {self}")
        if self.blocks % self.planes:
            raise Usage(f"{self.blocks} blocks don't spread evenly over {self.planes} planes")

    @property
    def pages(self) -> int:
        """All pages."""
        return self.blocks * self.pages_per_block

    @property
    def raw_page(self) -> int:
        """Bytes of a page with its spare area."""
        return self.page_size + self.spare_size

    @property
    def raw_bytes(self) -> int:
        """Bytes of a dump with spare areas."""
        return self.pages * self.raw_page

    @property
    def data_bytes(self) -> int:
        """Bytes of all pages without spare areas."""
        return self.pages * self.page_size


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the chip's commands take, in nanoseconds; typical values, as data sheets print them."""

    name: str
    read_ns: int
    program_ns: int
    erase_ns: int
    byte_ns: float
    """One byte between chip and controller."""


TIMINGS = {
    timing.name: timing
    for timing in (
        Timing("slc", 25_000, 200_000, 1_500_000, 25.0),  # K9F1G08-like: 2 KiB pages, asynchronous bus of 40 MB/s
        Timing("mlc", 60_000, 800_000, 2_500_000, 25.0),  # K9GAG08-like: 4 KiB pages
        Timing("emmc", 75_000, 1_300_000, 5_000_000, 5.0),  # TLC of 16 KiB pages behind HS200, 200 MB/s
    )
}


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong, by chance from `seed`; all rates are probabilities of one command (or bit) to fail."""

    seed: int = 0
    factory_bad: float = 0.0
    read_failure: float = 0.0
    program_failure: float = 0.0
    erase_failure: float = 0.0
    bit_error: float = 0.0
    """A bit of a page read wrong, this time: what is stored stays right."""
    endurance: int | None = None
    """Erases after which a block wears out: from then on programs and erases fail with growing probability."""


@dataclass(slots=True)
class Counters:
    """What was done to the chip."""

    reads: int = 0
    programs: int = 0
    erases: int = 0
    busy_ns: int = 0
    flipped_bits: int = 0
    read_failures: int = 0
    program_failures: int = 0
    erase_failures: int = 0


@dataclass(slots=True)
class _Power:
    """The cut that is planned, and whether it has come."""

    left: int | None = None
    torn: bool = True
    off: bool = False
    chance: random.Random = field(default_factory=lambda: random.Random(0))


class Nand:
    """A chip; see the module's docstring.  Pages and blocks are numbered from 0 over the whole chip."""

    def __init__(
        self,
        geometry: Geometry,
        backing: Device | None = None,
        *,
        faults: Faults | None = None,
        timing: Timing | None = None,
    ) -> None:
        """In memory, or in the dump that `backing` holds, which this then owns."""
        if backing is not None and backing.size_bytes != geometry.raw_bytes:
            raise DeviceError(
                f"{backing.name}: {backing.size_bytes} bytes; {geometry.blocks} blocks of {geometry.pages_per_block} "
                f"pages of {geometry.page_size}+{geometry.spare_size} bytes take {geometry.raw_bytes}"
            )
        self.geometry = geometry
        self.name = "NAND in memory" if backing is None else backing.name
        self.faults = faults or Faults()
        self.timing = timing or TIMINGS["slc"]
        self.counters = Counters()
        self.erase_counts: NDArray[np.uint32] = np.zeros(geometry.blocks, np.uint32)
        self._chance = random.Random(self.faults.seed)
        self._noise = np.random.default_rng(self.faults.seed)
        self._power = _Power()
        self._store: _Memory | _Dump = _Memory(geometry) if backing is None else _Dump(geometry, backing)
        # the first page that can still be programmed; -1 where only looking at the block would tell
        fresh = 0 if backing is None else -1
        self._next: NDArray[np.int32] = np.full(geometry.blocks, fresh, np.int32)
        self._bad: NDArray[np.int8] = np.full(geometry.blocks, fresh, np.int8)
        if backing is None and self.faults.factory_bad:
            for block in range(1, geometry.blocks):  # data sheets warrant the first block
                if self._chance.random() < self.faults.factory_bad:
                    self._write_mark(block)

    @classmethod
    def create(cls, path: str | Path, geometry: Geometry, **more: Any) -> Self:
        """A new dump file of an erased chip."""
        with new_image(path, geometry.raw_bytes) as image:
            return cls.erased(image, geometry, **more)

    @classmethod
    def erased(cls, image: Device, geometry: Geometry, **more: Any) -> Self:
        """An erased chip on a device of its size, all of which is written."""
        erased = bytes([ERASED]) * min(FILL_BYTES, geometry.raw_bytes)
        for at in range(0, geometry.raw_bytes, len(erased)):
            image.pwrite(at, erased[: geometry.raw_bytes - at])
        return cls(geometry, image, **more)

    @classmethod
    def open(cls, path: str | Path, geometry: Geometry, *, write: bool = False, **more: Any) -> Self:
        """A dump that is there, as nanddump or `create` made it."""
        image = open_image(path, write)
        try:
            return cls(geometry, image, **more)
        except BaseException:
            image.close()
            raise

    @property
    def read_only(self) -> bool:
        """Whether programming and erasing are refused."""
        return self._store.read_only

    # -- the commands of a chip

    def read(self, page: int) -> tuple[bytes, bytes]:
        """A page and its spare area, with whatever bits were read wrong; ReadFailed."""
        raw = self.read_raw(page, 1)
        return raw[: self.geometry.page_size], raw[self.geometry.page_size :]

    def read_raw(self, page: int, count: int) -> bytes:
        """`count` pages, each followed by its spare area."""
        self._check_pages(page, count)
        self._check_power()
        self._spend_reads(page, count, self.geometry.raw_page)
        raw = self._store.load(page, count)
        return self._disturbed(raw, page) if self.faults.bit_error or self.faults.read_failure else raw

    def read_spare(self, page: int) -> bytes:
        """The spare area of a page alone; takes a page read, but hardly any transfer."""
        self._check_pages(page, 1)
        self._check_power()
        self._spend_reads(page, 1, self.geometry.spare_size)
        raw = self._store.load(page, 1)
        if self.faults.bit_error or self.faults.read_failure:
            raw = self._disturbed(raw, page)
        return raw[self.geometry.page_size :]

    def program(self, page: int, data: bytes | memoryview, spare: bytes | memoryview) -> None:
        """Program a page, which must be the next of its block or a later one; short data are filled with 0xFF."""
        geometry = self.geometry
        if len(data) > geometry.page_size or len(spare) > geometry.spare_size:
            raise Usage(
                f"{self.name}: {len(data)}+{len(spare)} bytes for a page of {geometry.page_size}+{geometry.spare_size}"
            )
        self.program_raw(
            page, bytes(data).ljust(geometry.page_size, b"\xff") + bytes(spare).ljust(geometry.spare_size, b"\xff")
        )

    def program_raw(self, page: int, raw: bytes | memoryview) -> None:
        """Program pages one after the other, from `page` on; `raw` has each followed by its spare area.

        ProgramFailed names the page that failed; those before it are programmed.
        """
        count, rest = divmod(len(raw), self.geometry.raw_page)
        if rest:
            raise Usage(f"{self.name}: {len(raw)} bytes are no whole pages of {self.geometry.raw_page}")
        self._check_pages(page, count)
        view = memoryview(raw)
        size = self.geometry.raw_page
        for index in range(count):
            self._program_one(page + index, view[index * size : (index + 1) * size])
        self._spend(count, self.timing.program_ns, size)

    def program_planes(self, pages: Sequence[int], data: Sequence[bytes], spares: Sequence[bytes]) -> None:
        """Program one page in each of several planes at once: they take the time of one."""
        planes = {page // self.geometry.pages_per_block % self.geometry.planes for page in pages}
        offsets = {page % self.geometry.pages_per_block for page in pages}
        if len(planes) < len(pages) or len(offsets) > 1:
            raise Usage(f"{self.name}: pages {list(pages)} are not the same page of different planes")
        before = self.counters.busy_ns
        for page, content, spare in zip(pages, data, spares, strict=True):
            self.program(page, content, spare)
        self.counters.busy_ns = before + self.timing.program_ns + self._transfer_ns(self.geometry.raw_page) * len(pages)

    def erase(self, block: int) -> None:
        """Erase a block; EraseFailed leaves it as it was."""
        self._check_block(block)
        self._check_writable()
        self._check_power()
        if self.is_bad(block):
            raise EraseFailed(f"{self.name}: block {block} is bad")
        if self._cut_now():
            self._tear_erase(block)
            raise PowerCut
        self.counters.erases += 1
        self.counters.busy_ns += self.timing.erase_ns
        if self._fails(self.faults.erase_failure, block):
            self.counters.erase_failures += 1
            raise EraseFailed(f"{self.name}: erasing block {block} failed")
        self._store.clear(block)
        self.erase_counts[block] += 1
        self._next[block] = 0

    def is_bad(self, block: int) -> bool:
        """Whether a block is marked bad, by the factory or since."""
        self._check_block(block)
        if self._bad[block] < 0:
            spare = self._store.load(block * self.geometry.pages_per_block, 1)[self.geometry.page_size :]
            self._bad[block] = spare[0] != ERASED
        return bool(self._bad[block])

    def mark_bad(self, block: int) -> None:
        """Mark a block bad for good, in its first page's spare area, as the kernel does."""
        self._check_block(block)
        self._check_writable()
        self._check_power()
        self._write_mark(block)

    def next_page(self, block: int) -> int:
        """The first page of a block, from 0, that can still be programmed; `pages_per_block` when it is full."""
        self._check_block(block)
        if self._next[block] < 0:
            first, count = block * self.geometry.pages_per_block, self.geometry.pages_per_block
            rows = np.frombuffer(self._store.load(first, count), np.uint8).reshape(count, -1)
            used = np.flatnonzero((rows != ERASED).any(axis=1))
            self._next[block] = int(used[-1]) + 1 if used.size else 0
        return int(self._next[block])

    def flush(self) -> None:
        """Make programmed pages durable, which only a dump in a file needs."""
        self._check_power()
        self._store.flush()

    def close(self) -> None:
        """Close the dump."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what tests and simulations do to it

    def cut_power(self, after: int, *, torn: bool = True, seed: int = 0) -> None:
        """Cut the power at the program or erase after so many more: PowerCut, and with `torn` it is half done."""
        self._power = _Power(after, torn, False, random.Random(seed))

    def power_on(self) -> None:
        """Bring the power back, with no further cut planned."""
        self._power = _Power()

    def flip(self, page: int, bits: Iterable[int]) -> None:
        """Flip stored bits, counted from the first of the page on, as years in a drawer do."""
        self._check_pages(page, 1)
        raw = bytearray(self._store.load(page, 1))
        for bit in bits:
            raw[bit >> 3] ^= 1 << (bit & 7)
        self._store.store(page, bytes(raw))

    def dump(self) -> bytes:
        """All pages with their spare areas, as nanddump writes them."""
        return self._store.load(0, self.geometry.pages)

    # -- inside

    def _program_one(self, page: int, raw: memoryview) -> None:
        block, index = divmod(page, self.geometry.pages_per_block)
        self._check_writable()
        self._check_power()
        if self.is_bad(block):
            raise ProgramFailed(f"{self.name}: block {block} is bad", page)
        if index < self.next_page(block):
            raise Usage(f"{self.name}: page {page} can't be programmed: page {self.next_page(block)} of block {block} "
                        "is the next one before it is erased")  # fmt: skip
        if self._cut_now():
            if self._power.torn:
                self._store.store(page, self._torn(bytes(raw)))
                self._next[block] = -1
            raise PowerCut
        self.counters.programs += 1
        self._next[block] = index + 1
        if self._fails(self.faults.program_failure, block):
            self.counters.program_failures += 1
            self._store.store(page, self._torn(bytes(raw)))
            raise ProgramFailed(f"{self.name}: programming page {page} failed", page)
        self._store.store(page, raw)

    def _fails(self, rate: float, block: int) -> bool:
        endurance = self.faults.endurance
        if endurance is not None and self.erase_counts[block] >= endurance:
            rate += (int(self.erase_counts[block]) - endurance + 1) / (10 * endurance)
        return rate > 0 and self._chance.random() < rate

    def _disturbed(self, raw: bytes, page: int) -> bytes:
        """The result of reading stored bytes: a failure, or some wrong bits."""
        if self.faults.read_failure and self._chance.random() < self.faults.read_failure:
            self.counters.read_failures += 1
            raise ReadFailed(f"{self.name}: reading page {page} failed")
        count = int(self._noise.binomial(len(raw) * 8, self.faults.bit_error))
        if not count:
            return raw
        self.counters.flipped_bits += count
        wrong = bytearray(raw)
        for bit in self._noise.integers(0, len(raw) * 8, count).tolist():
            wrong[bit >> 3] ^= 1 << (bit & 7)
        return bytes(wrong)

    def _cut_now(self) -> bool:
        if self._power.left is None:
            return False
        self._power.left -= 1
        if self._power.left >= 0:
            return False
        self._power.off = True
        return True

    def _torn(self, raw: bytes) -> bytes:
        """A page whose programming was cut: some bytes are there, some of them in part, the rest is erased."""
        chance = self._power.chance
        whole = chance.randrange(len(raw) + 1)
        partly = min(len(raw), whole + chance.randrange(64))
        middle = bytes(byte | chance.randrange(256) for byte in raw[whole:partly])
        return raw[:whole] + middle + bytes([ERASED]) * (len(raw) - partly)

    def _tear_erase(self, block: int) -> None:
        """A block whose erasing was cut: some pages are erased, some in part, others are as they were."""
        if not self._power.torn:
            return
        chance, first = self._power.chance, block * self.geometry.pages_per_block
        for page in range(first, first + self.geometry.pages_per_block):
            fate = chance.random()
            if fate < 0.4:
                self._store.store(page, bytes([ERASED]) * self.geometry.raw_page)
            elif fate < 0.7:
                noise = chance.randbytes(self.geometry.raw_page)
                old = self._store.load(page, 1)
                mixed = np.frombuffer(old, np.uint8) | np.frombuffer(noise, np.uint8)
                self._store.store(page, mixed.tobytes())
        self._next[block] = self.geometry.pages_per_block  # whatever it looks like, it must be erased again

    def _write_mark(self, block: int) -> None:
        page = block * self.geometry.pages_per_block
        raw = bytearray(self._store.load(page, 1))
        at = self.geometry.page_size
        raw[at : at + BAD_MARK_BYTES] = bytes(min(BAD_MARK_BYTES, self.geometry.spare_size))
        self._store.store(page, bytes(raw))
        self._bad[block] = True

    def _spend_reads(self, page: int, count: int, size: int) -> None:
        self.counters.reads += count
        self.counters.busy_ns += count * (self.timing.read_ns + self._transfer_ns(size))

    def _spend(self, count: int, each_ns: int, size: int) -> None:
        self.counters.busy_ns += count * (each_ns + self._transfer_ns(size))

    def _transfer_ns(self, size: int) -> int:
        return round(size * self.timing.byte_ns)

    def _check_pages(self, page: int, count: int) -> None:
        if page < 0 or count < 0 or page + count > self.geometry.pages:
            raise DeviceError(
                f"{self.name}: {count} pages from {page} on are past the end ({self.geometry.pages} pages)"
            )

    def _check_block(self, block: int) -> None:
        if not 0 <= block < self.geometry.blocks:
            raise DeviceError(f"{self.name}: there is no block {block} ({self.geometry.blocks} blocks)")

    def _check_power(self) -> None:
        if self._power.off:
            raise PowerCut

    def _check_writable(self) -> None:
        if self._store.read_only:
            raise DeviceError(f"{self.name}: opened read-only")


class _Memory:
    """Pages in memory.  Bytes are kept inverted, so that what was never programmed takes no memory."""

    read_only = False

    def __init__(self, geometry: Geometry) -> None:
        self._pages_per_block = geometry.pages_per_block
        self._rows = np.zeros((geometry.pages, geometry.raw_page), np.uint8)

    def load(self, page: int, count: int) -> bytes:
        return (~self._rows[page : page + count]).tobytes()

    def store(self, page: int, raw: bytes | memoryview) -> None:
        self._rows[page] = ~np.frombuffer(raw, np.uint8)

    def clear(self, block: int) -> None:
        first = block * self._pages_per_block
        self._rows[first : first + self._pages_per_block] = 0

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Dump:
    """Pages in a dump with spare areas."""

    def __init__(self, geometry: Geometry, device: Device) -> None:
        self._device = device
        self._size = geometry.raw_page
        self._pages_per_block = geometry.pages_per_block
        self.read_only = device.read_only

    def load(self, page: int, count: int) -> bytes:
        return self._device.pread(page * self._size, count * self._size)

    def store(self, page: int, raw: bytes | memoryview) -> None:
        self._device.pwrite(page * self._size, raw)

    def clear(self, block: int) -> None:
        size = self._pages_per_block * self._size
        self._device.pwrite(block * size, bytes([ERASED]) * size)

    def flush(self) -> None:
        self._device.flush()

    def close(self) -> None:
        self._device.close()
