"""qcow2 images, read-only: clusters by two levels of tables, compressed ones, backing files.

The format is described in docs/interop/qcow2.txt of QEMU.  It is read here because libqcow was found to return wrong
bytes for compressed clusters.  Memory is bounded by a few tables and clusters that are kept.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.containers.beside import beside
from f2tools.device.containers.kept import LruCache
from f2tools.device.media.image import kind_of, open_source
from f2tools.errors import DeviceError, Unsupported

MAGIC = b"QFI\xfb"
_HEADER = struct.Struct(">4sIQIIQIIQ")
_V3 = struct.Struct(">QQQII")
_V3_AT = 72
COMPRESSION_AT = 104
DIRTY, CORRUPT, EXTERNAL_DATA, COMPRESSION_TYPE, EXTENDED_L2 = (1 << bit for bit in range(5))
OFFSET_MASK = 0x00FFFFFFFFFFFE00
COMPRESSED, READS_AS_ZERO = 1 << 62, 1
CLUSTER_BITS = range(9, 22)
MOST_L1_BYTES = 32 << 20
MOST_BACKING_FILES = 64
MOST_CHAIN_BYTES = 64 << 20  # of the first-level tables of all images that build on each other
KEPT_BYTES = 16 << 20  # of tables and unpacked clusters


class Qcow2(Device):
    """What is in a qcow2 image; `file` holds it, `backing` what it doesn't hold itself."""

    def __init__(self, file: Device, backing: Device | None, header: _Header) -> None:
        self._file = file
        self._backing = backing
        self._bits = header.cluster_bits
        self._zstd = header.zstd
        self.name = file.name
        self.size_bytes = header.size
        self.read_only = True
        self._per_table = 1 << (self._bits - 3)
        needed = -(-header.size // (self._per_table << self._bits))
        if header.l1_size < needed or needed * 8 > MOST_L1_BYTES:
            raise DeviceError(f"{self.name}: a qcow2 image whose table of tables has {header.l1_size} entries")
        self._l1 = np.frombuffer(file.pread(header.l1_offset, 8 * needed), ">u8").astype(np.uint64)
        used = self._l1[self._l1 & np.uint64(OFFSET_MASK) > 0] & np.uint64(OFFSET_MASK)
        if np.unique(used).size < used.size:
            raise DeviceError(f"{self.name}: a qcow2 image in which parts of the disk share a table of clusters")
        self.table_bytes = self._l1.nbytes + (backing.table_bytes if isinstance(backing, Qcow2) else 0)
        if self.table_bytes > MOST_CHAIN_BYTES:
            raise DeviceError(f"{self.name}: qcow2 images on each other whose tables have {self.table_bytes} bytes")
        self._kept = backing._kept if isinstance(backing, Qcow2) else LruCache(KEPT_BYTES)

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        done = 0
        while done < len(view):
            done += self._some(offset + done, view[done:])

    def _some(self, offset: int, view: memoryview) -> int:
        """Fill the beginning of a buffer as far as clusters lie in a row; how many bytes that was."""
        size = 1 << self._bits
        inside = offset & (size - 1)
        entry = self._entry(offset >> self._bits)
        length = min(size - inside, len(view))
        if entry & COMPRESSED:
            view[:length] = self._plain(entry)[inside : inside + length]
            return length
        host = entry & OFFSET_MASK
        if host and not entry & READS_AS_ZERO:
            while length < len(view):
                following = self._entry((offset + length) >> self._bits)
                plain = following & (COMPRESSED | READS_AS_ZERO) == 0
                if not plain or following & OFFSET_MASK != host + inside + length:
                    break
                length += min(size, len(view) - length)
            self._file.pread_into(host + inside, view[:length])
            return length
        held = 0
        if self._backing is not None and not entry & READS_AS_ZERO:
            held = max(0, min(length, self._backing.size_bytes - offset))
            if held:
                self._backing.pread_into(offset, view[:held])
        view[held:length] = bytes(length - held)
        return length

    def data_ranges(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        end = min(offset + length, self.size_bytes)
        start = -1
        while offset < end:
            number = offset >> self._bits
            if not int(self._l1[number // self._per_table]) & OFFSET_MASK and self._backing is None:
                there, stop = False, (number // self._per_table + 1) * self._per_table << self._bits
            else:
                entry = self._entry(number)
                there = not entry & READS_AS_ZERO or bool(entry & COMPRESSED)
                there = there and (entry != 0 or self._backing is not None)
                stop = (number + 1) << self._bits
            if there and start < 0:
                start = offset
            elif not there and start >= 0:
                yield start, offset - start
                start = -1
            offset = stop
        if start >= 0:
            yield start, end - start

    def files(self) -> list[str]:
        return [self.name, *(self._backing.files() if self._backing is not None else ())]

    def pwrite(self, offset: int, data: Data) -> None:
        self.check_writable()

    def flush(self) -> None:
        return None

    def close(self) -> None:
        self._file.close()
        if self._backing is not None:
            self._backing.close()

    def _entry(self, number: int) -> int:
        """What the tables say about a cluster."""
        offset = int(self._l1[number // self._per_table]) & OFFSET_MASK
        return int(self._table(offset)[number % self._per_table]) if offset else 0

    def _table(self, offset: int) -> NDArray[Any]:
        raw = self._kept.get((self, "table", offset), lambda: self._file.pread(offset, 8 * self._per_table))
        return np.frombuffer(raw, ">u8")

    def _plain(self, entry: int) -> bytes:
        return self._kept.get((self, "cluster", entry), lambda: self._decompress(entry))

    def _decompress(self, entry: int) -> bytes:
        size = 1 << self._bits
        split = 62 - (self._bits - 8)
        offset = entry & ((1 << split) - 1)
        sectors = (entry & (COMPRESSED - 1)) >> split
        length = (sectors + 1) * 512 - offset % 512
        raw = self._file.pread(offset, min(length, self._file.size_bytes - offset))
        try:
            data = self._unpacked(raw, size)
        except (zlib.error, ValueError) as error:
            raise DeviceError(f"{self.name}: a compressed cluster at offset {offset:#x}: {error}") from None
        if len(data) != size:
            raise DeviceError(f"{self.name}: a compressed cluster at offset {offset:#x} holds {len(data)} bytes")
        return data

    def _unpacked(self, raw: bytes, size: int) -> bytes:
        if not self._zstd:
            return zlib.decompressobj(-15).decompress(raw, size)
        import zstandard

        try:
            with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(raw) as reader:
                return reader.read(size)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None


class _Header:
    """What the header says, as far as it is needed."""

    def __init__(self, file: Device) -> None:
        name = file.name
        raw = file.pread(0, min(COMPRESSION_AT + 8, file.size_bytes)).ljust(COMPRESSION_AT + 8, b"\0")
        _, version, backing_at, backing_size, self.cluster_bits, self.size, crypt, self.l1_size, self.l1_offset = (
            _HEADER.unpack_from(raw)
        )
        if version not in (2, 3):
            raise Unsupported(f"{name}: a qcow image of version {version}; `qemu-img convert` makes a raw one of it")
        features, _, _, _, length = _V3.unpack_from(raw, _V3_AT) if version == 3 else (0, 0, 0, 0, _V3_AT)
        if crypt:
            raise Unsupported(f"{name}: an encrypted qcow2 image; `qemu-img convert` makes a raw one of it")
        if features & ~(DIRTY | CORRUPT | COMPRESSION_TYPE):
            raise Unsupported(f"{name}: a qcow2 image with features {features:#x}; `qemu-img convert` makes a raw one")
        if self.cluster_bits not in CLUSTER_BITS:
            raise DeviceError(f"{name}: a qcow2 image with clusters of 2^{self.cluster_bits} bytes")
        self.zstd = bool(features & COMPRESSION_TYPE) and length > COMPRESSION_AT and raw[COMPRESSION_AT] == 1
        self.backing = file.pread(backing_at, min(backing_size, 1023)) if backing_at and backing_size else b""


def _is_qcow2(path: str) -> bool:
    with open_source(path) as file:
        return file.size_bytes >= 4 and file.pread(0, 4) == MAGIC


def open_qcow2(path: str | Path, opened: Callable[[str], Device], behind: tuple[str, ...] = ()) -> Qcow2:
    """The disk in a qcow2 image, with what it builds on; DeviceError, Unsupported.

    `opened` opens what it builds on where that is no qcow2 image.
    """
    name = os.fspath(path)
    file = open_source(name)
    backing: Device | None = None
    try:
        header = _Header(file)
        if header.backing:
            below = beside(name, os.fsdecode(header.backing))
            real = os.path.realpath(below)
            if real in behind or len(behind) > MOST_BACKING_FILES:
                raise DeviceError(f"{name}: builds on {below}, which builds on it")
            known = (*behind, os.path.realpath(name))
            again = kind_of(below) == stat.S_IFREG and _is_qcow2(below)
            backing = open_qcow2(below, opened, known) if again else opened(below)
        return Qcow2(file, backing, header)
    except BaseException:
        file.close()
        if backing is not None:
            backing.close()
        raise
