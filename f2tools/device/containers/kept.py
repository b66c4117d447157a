"""What was read or unpacked last, up to so many bytes; not so many items, whose size a lying image chooses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class LruCache:
    """Bytes and arrays by a key, those that were used last."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held: OrderedDict[Hashable, Any] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What is kept under a key, else what `make` gives."""
        if key in self._held:
            self._held.move_to_end(key)
            return self._held[key]
        value = self._held[key] = make()
        self._bytes += memoryview(value).nbytes
        while self._bytes > self._most and len(self._held) > 1:
            _, gone = self._held.popitem(last=False)
            self._bytes -= memoryview(gone).nbytes
        return value
