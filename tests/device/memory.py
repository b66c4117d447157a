"""A device in memory: the base class's own methods are all it has, so it tests those, and it counts its reads."""

from __future__ import annotations

from typing import Any

from f2tools.device.base import Device
from f2tools.device.buffers import Data, byte_view


class Memory(Device):
    """A bytearray as a device; `reads` and `writes` list (offset, length)."""

    def __init__(self, content: bytes | int, name: str = "memory", read_only: bool = False) -> None:
        self.content = bytearray(content)
        self.name = name
        self.size_bytes = len(self.content)
        self.read_only = read_only
        self.reads: list[tuple[int, int]] = []
        self.writes: list[tuple[int, int]] = []
        self.flushes = 0
        self.closed = False

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        self.reads.append((offset, len(view)))
        view[:] = self.content[offset : offset + len(view)]

    def pwrite(self, offset: int, data: Data) -> None:
        view = byte_view(data)
        self.check_writable()
        self.check_range(offset, len(view))
        self.writes.append((offset, len(view)))
        self.content[offset : offset + len(view)] = view

    def resize(self, size_bytes: int) -> None:
        del self.content[size_bytes:]
        self.content.extend(bytes(size_bytes - len(self.content)))
        self.size_bytes = size_bytes

    def flush(self) -> None:
        self.flushes += 1

    def close(self) -> None:
        self.closed = True
