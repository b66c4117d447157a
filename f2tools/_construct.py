"""How a `Layout` becomes a construct `Struct`; imported only when somebody asks for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import construct
import numpy as np

_INTEGERS = {1: construct.Int8ul, 2: construct.Int16ul, 4: construct.Int32ul, 8: construct.Int64ul}


class _IntArray(construct.Construct):
    """`count` integers as one numpy array: ten times faster than construct's own Array."""

    def __init__(self, size: int, count: int) -> None:
        super().__init__()
        self._dtype = np.dtype(f"<u{size}")
        self._count = count

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        raw = construct.stream_read(stream, self._dtype.itemsize * self._count, path)
        return np.frombuffer(raw, self._dtype).copy()

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        raw = np.asarray(obj).astype(self._dtype)
        if raw.shape != (self._count,):
            raise construct.RangeError(f"{self._count} integers needed, shape {raw.shape} given", path=path)
        construct.stream_write(stream, raw.tobytes(), raw.nbytes, path)
        return obj

    def _sizeof(self, context: Any, path: Any) -> Any:
        return self._dtype.itemsize * self._count


class _Nested(construct.Subconstruct):
    """A structure within a structure; builds from a Layout as well as from a mapping."""

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        return super()._build(getattr(obj, "__dict__", obj), stream, context, path)


def struct_of(members: Iterable[tuple[str, str, int, int | None, Any]]) -> Any:
    """The construct Struct of (name, "bytes", "integer" or "structure", size of one, count, Struct of a structure)."""
    return construct.Struct(*(name / _member(what, size, count, nested) for name, what, size, count, nested in members))


def _member(what: str, size: int, count: int | None, nested: Any) -> Any:
    if what == "bytes":
        return construct.Bytes(size)
    if what == "integer":
        return _INTEGERS[size] if count is None else _IntArray(size, count)
    return _Nested(nested) if count is None else construct.Array(count, _Nested(nested))
