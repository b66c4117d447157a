"""What is read into and written from: bytes and arrays of any shape, seen as their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Data = bytes | bytearray | memoryview | NDArray[Any]
else:
    Data = Any


def byte_view(data: Any) -> memoryview:
    """The bytes of a contiguous buffer or array of any shape; an empty one is fine."""
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")
