"""Reading what a file holds now: what is on the disk, and over it the pages that wait for their place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.f2fs.layout.constants import F2FS_DEVICE_ALIAS_FL, NEW_ADDR, NULL_ADDR
from f2tools.f2fs.volume.data import Cluster, DataReader, Extent
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.write.mapping import Mapper
from f2tools.f2fs.write.node import NodeManager

SHORT_READ = 4 << 20


class LiveData(DataReader):
    """Reads what a file holds now, pages that are not written yet included."""

    def __init__(self, device: Device, geo: Geometry, nodes: NodeManager) -> None:
        super().__init__(device, geo, nodes)
        self.geo_main = geo.main_blkaddr, geo.end_blkaddr
        self.pages: dict[int, dict[int, NDArray[np.uint8]]] = {}  # ino -> file block -> content
        self.mapper: Mapper | None = None

    def read(self, inode: Inode, offset: int = 0, length: int | None = None) -> bytes:
        mapper = self.mapper if inode.cluster_size == 1 else None
        if mapper is not None and length is not None and 0 <= length <= SHORT_READ and offset >= 0:
            found = self._read_short(mapper, inode, offset, min(length, inode.i_size - offset))
            if found is not None:
                return found
        return super().read(inode, offset, length)

    def _read_short(self, mapper: Mapper, inode: Any, offset: int, length: int) -> bytes | None:
        """Bytes that lie in one block, or in blocks that follow each other on the disk; None where they don't."""
        if length <= 0 or inode.has_inline_data or inode.i_flags & F2FS_DEVICE_ALIAS_FL:
            return None
        size = self._geo.block_size
        first, start = divmod(offset, size)
        last = (offset + length - 1) // size
        pages = self.pages.get(inode.ino)
        if first == last:
            page = None if pages is None else pages.get(first)
            if page is not None:
                return page[start : start + length].tobytes()
            addr = mapper.get_one(inode, first)
            if addr in (NULL_ADDR, NEW_ADDR):
                return bytes(length)
        else:
            addrs = mapper.get(inode, np.arange(first, last + 1))
            if pages and not pages.keys().isdisjoint(range(first, last + 1)):
                found = self._blocks(first, addrs.tolist(), pages)
                return None if found is None else found[start : start + length]
            addr = int(addrs[0])
            if not (addrs - addrs[0] == np.arange(addrs.size)).all():
                found = self._blocks(first, addrs.tolist(), {})
                return None if found is None else found[start : start + length]
        if not (self.geo_main[0] <= addr and addr + last - first < self.geo_main[1]):
            return None
        return self._device.pread(addr * size + start, length)

    def _blocks(self, first: int, addrs: list[int], pages: dict[int, NDArray[np.uint8]]) -> bytes | None:
        """Whole file blocks from `first` on, which lie at these addresses; None where one of them can't be."""
        size, low, high = self._geo.block_size, *self.geo_main
        parts: list[bytes] = []
        at, count = 0, len(addrs)
        while at < count:
            page, addr = pages.get(first + at), addrs[at]
            if page is not None:
                parts.append(page.tobytes())
                at += 1
            elif addr in (NULL_ADDR, NEW_ADDR):
                parts.append(bytes(size))
                at += 1
            else:
                end = at + 1
                while end < count and addrs[end] == addr + end - at and first + end not in pages:
                    end += 1
                if not (low <= addr and addr + end - at <= high):
                    return None
                parts.append(self._device.pread(addr * size, (end - at) * size))
                at = end
        return b"".join(parts)

    def _extent(self, inode: Inode, extent: Extent) -> Iterator[tuple[int, memoryview]]:
        pages = self.pages.get(inode.ino)
        if not pages:
            yield from super()._extent(inode, extent)
            return
        size = self._geo.block_size
        if extent.blkaddr == NEW_ADDR:
            for fofs in sorted(f for f in pages if extent.fofs <= f < extent.fofs + extent.count):
                yield fofs * size, memoryview(pages[fofs].tobytes())
            return
        for offset, data in super()._extent(inode, extent):
            yield offset, self._overlaid(pages, offset, data)

    def _cluster(self, inode: Inode, cluster: Cluster) -> Iterator[tuple[int, memoryview]]:
        pages = self.pages.get(inode.ino)
        for offset, data in super()._cluster(inode, cluster):
            yield offset, self._overlaid(pages, offset, data) if pages else data

    def _overlaid(self, pages: dict[int, NDArray[np.uint8]], offset: int, data: memoryview) -> memoryview:
        size = self._geo.block_size
        first, count = offset // size, len(data) // size
        found = [f for f in pages if first <= f < first + count] if len(pages) < count else [
            f for f in range(first, first + count) if f in pages
        ]  # fmt: skip
        if not found:
            return data
        rows = np.frombuffer(data, np.uint8).reshape(count, size).copy()
        for fofs in found:
            rows[fofs - first] = pages[fofs]
        flat: Any = rows.reshape(-1)
        return memoryview(flat)
