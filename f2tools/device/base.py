"""What every place where blocks live can do, and the vectorised block reads that all of them share.

A device is a range of bytes.  It is read-only unless it was opened for writing.  Reading past the end is an error that
says where; nothing is ever returned short.  A `Wrapper` is a device on top of another one, and owns it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Self, cast

from f2tools.device.buffers import Data
from f2tools.errors import DeviceError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ZEROES = 1 << 20


class Device(ABC):
    """A range of bytes that hold blocks; see the module's docstring."""

    name: str
    size_bytes: int
    read_only: bool

    @abstractmethod
    def pread_into(self, offset: int, buffer: Any) -> None:
        """Fill a writable buffer from `offset`; DeviceError where the device ends before that."""

    @abstractmethod
    def pwrite(self, offset: int, data: Data) -> None:
        """Write all of `data` at `offset`; DeviceError on a read-only device or past the end."""

    @abstractmethod
    def flush(self) -> None:
        """Make everything written so far durable."""

    @abstractmethod
    def close(self) -> None:
        """Close the device; more than once is fine."""

    def discard(self, offset: int, length: int) -> None:
        """Give space back; the range reads as zeros after."""
        self.write_zeroes(offset, length)

    def trim(self, offset: int, length: int) -> None:
        """Say that a range isn't needed any more: what it reads as then is undefined.  Cheaper than `discard`."""
        self.discard(offset, length)

    @property
    def trims_to_zeros(self) -> bool:
        """Whether what `trim` takes reads as zeros all the same, or stays as it was."""
        return True

    def resize(self, size_bytes: int) -> None:
        """Make the device longer, by zeros, or shorter; DeviceError where its size is fixed."""
        raise DeviceError(f"{self.name}: its size can't be changed")

    @property
    def resizable(self) -> bool:
        """Whether `resize` does something: a file can have any size, the size of a disk or a partition is fixed."""
        return False

    @property
    def room_bytes(self) -> int | None:
        """How many bytes may be written where nothing is yet; None where there is room for the whole device.

        `discard` and `trim` win room.
        """
        return None

    @property
    def missing_bytes(self) -> int:
        """How many bytes at its end can't be read, as the file below is cut off."""
        return 0

    @property
    def gaps(self) -> list[tuple[str, int, int]]:
        """(name, offset, length) of what is not there before the end, as one of several devices is too short."""
        return []

    def fill_gaps(self) -> None:
        """Make devices that are too short as long as they should be, by zeros; DeviceError where a size is fixed."""
        for name, _, _ in self.gaps:
            raise DeviceError(f"{name}: its size can't be changed")

    @property
    def whole_bytes(self) -> int:
        """How many bytes there would be with what lies behind a volume on the last of several devices."""
        return self.size_bytes

    @property
    def loss(self) -> str:
        """What is known to be lost below, so that older content or zeros may show, as a sentence; empty for nothing."""
        return ""

    def stored_hashes(self) -> dict[str, str]:
        """Hashes of all its bytes that a container keeps, in hex, by the names of hashlib; most keep none."""
        return {}

    def wrong_checksums(self) -> Iterator[str]:
        """Checksums in a container that are wrong, and that reading doesn't look at: a sentence each.  Reads all."""
        return iter(())

    def write_zeroes(self, offset: int, length: int) -> None:
        """Make a range read as zeros, as cheaply as this device can."""
        self.check_writable()
        self.check_range(offset, length)
        zeroes = bytes(min(ZEROES, length))
        for at in range(offset, offset + length, ZEROES):
            self.pwrite(at, zeroes[: offset + length - at])

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        """(offset, length) of what may hold data within a range; the rest is known to be zero."""
        if length > 0:
            yield offset, length

    def plain_file(self) -> int:
        """The descriptor of a file that has these bytes and no others, where reading is nothing but a read; else -1."""
        return -1

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        """(file descriptor, offset in it) from which the kernel can copy these bytes; None where there is none."""
        return None

    def extent_target(self, offset: int, length: int) -> tuple[int, int] | None:
        """The same for writing; None also where a write is more than that, as in whatever stands before a device."""
        return None

    def pread(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`."""
        self.check_range(offset, length)  # before an absurd length takes memory
        buffer = bytearray(length)
        self.pread_into(offset, buffer)
        return bytes(buffer)

    def read_range(self, blkaddr: int, count: int, block_size: int) -> NDArray[np.uint8]:
        """`count` blocks from `blkaddr`, shape (count, block_size)."""
        return _vectors().read_range(self, blkaddr, count, block_size)

    def read_blocks(self, blkaddrs: NDArray[Any], block_size: int, max_gap: int = 0) -> NDArray[np.uint8]:
        """These blocks in the order asked, shape (n, block_size); duplicates are fine.

        The device sees one read per run of adjacent addresses, in address order.  With `max_gap`, up to that many
        blocks between two wanted ones are read along and dropped, where one long read is cheaper than two short ones.
        """
        return _vectors().read_blocks(self, blkaddrs, block_size, max_gap, self.plain_file())

    def write_blocks(self, blkaddrs: NDArray[Any], data: NDArray[np.uint8], block_size: int) -> None:
        """Write row i of `data`, shape (n, block_size), to block `blkaddrs[i]`; of duplicates the last one counts."""
        _vectors().write_blocks(self, blkaddrs, data, block_size)

    def write_few(self, blkaddrs: Sequence[int], blocks: Sequence[NDArray[np.uint8]], block_size: int) -> None:
        """As `write_blocks`, of a few blocks, each an array of its own, in the order given and without arrays of them.

        The device sees one write per run of adjacent addresses.
        """
        run, begin, count = cast(Any, blocks), 0, len(blkaddrs)
        if count == 1:
            self.pwrite(blkaddrs[0] * block_size, blocks[0])
            return
        while begin < count:
            first, end = blkaddrs[begin], begin + 1
            while end < count and blkaddrs[end] == first + end - begin:
                end += 1
            self.pwrite(first * block_size, run[begin] if end - begin == 1 else b"".join(run[begin:end]))
            begin = end

    def files(self) -> list[str]:
        """The files and devices that are read for this one, the first first."""
        return [self.name]

    @property
    def has_write_pointers(self) -> bool:
        """Whether there are zones that must be written in order and reset before they are written again."""
        return False

    def sequential_zones(self) -> list[tuple[int, int, int]]:
        """(start, length, write pointer) in bytes of the zones to be written in order; most devices have none."""
        return []

    def check_range(self, offset: int, length: int) -> None:
        """DeviceError where a range is not within the device."""
        if offset < 0 or length < 0 or offset + length > self.size_bytes:
            raise DeviceError(
                f"{self.name}: {length} bytes at offset {offset:#x} are past its end ({self.size_bytes} bytes)"
            )

    def check_writable(self) -> None:
        """DeviceError on a read-only device."""
        if self.read_only:
            raise DeviceError(f"{self.name}: opened read-only")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Wrapper(Device):
    """A device on top of another: everything goes through to that, and closing this closes it."""

    def __init__(self, base: Device) -> None:
        self.base = base
        self.name = base.name
        self.size_bytes = base.size_bytes
        self.read_only = base.read_only

    @property
    def set_layout(self) -> Callable[[Sequence[tuple[int, int]]], None]:
        """As `MultiDevice.set_layout`; an AttributeError, as on any single device, unless several are below."""
        return self._set_layout if callable(getattr(self.base, "set_layout", None)) else self._none()

    def _none(self) -> Callable[[Sequence[tuple[int, int]]], None]:
        raise AttributeError("set_layout")

    def _set_layout(self, layout: Sequence[tuple[int, int]]) -> None:
        getattr(self.base, "set_layout")(layout)  # noqa: B009 (not every device has one)
        self.size_bytes = self.base.size_bytes

    def files(self) -> list[str]:
        return self.base.files()

    @property
    def gaps(self) -> list[tuple[str, int, int]]:
        return self.base.gaps

    def fill_gaps(self) -> None:
        self.base.fill_gaps()

    @property
    def has_write_pointers(self) -> bool:
        return self.base.has_write_pointers

    def sequential_zones(self) -> list[tuple[int, int, int]]:
        return self.base.sequential_zones()

    def pread_into(self, offset: int, buffer: Any) -> None:
        self.base.pread_into(offset, buffer)

    def pwrite(self, offset: int, data: Data) -> None:
        self.base.pwrite(offset, data)

    def discard(self, offset: int, length: int) -> None:
        self.base.discard(offset, length)

    def write_zeroes(self, offset: int, length: int) -> None:
        self.base.write_zeroes(offset, length)

    @property
    def missing_bytes(self) -> int:
        return self.base.missing_bytes

    @property
    def loss(self) -> str:
        return self.base.loss

    @property
    def room_bytes(self) -> int | None:
        return self.base.room_bytes

    @property
    def resizable(self) -> bool:
        return self.base.resizable

    def resize(self, size_bytes: int) -> None:
        self.base.resize(size_bytes)
        self.size_bytes = self.base.size_bytes

    def flush(self) -> None:
        self.base.flush()

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        return self.base.data_ranges(offset, length)

    def extent_source(self, offset: int, length: int) -> tuple[int, int] | None:
        return self.base.extent_source(offset, length)

    def close(self) -> None:
        self.base.close()


@cache
def _vectors() -> Any:
    """The reads and writes of many blocks at once.  They need numpy, which a writer of a few blocks can do without."""
    from f2tools.device import vectors

    return vectors
