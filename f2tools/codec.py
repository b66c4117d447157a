"""One declaration of an on-disk structure; from it everything that reads or writes the structure.

A structure is a subclass of `Layout` whose annotated fields stand in disk order.  From that list come a parser and a
builder (`parse`, `build`: one structure at a time), a packed little-endian numpy dtype (`table`: a whole area at once),
a construct `Struct`, the size, the offsets, and typed attributes.  Every `Layout` has a fixed size.  Where the kernel
sizes an array by the block size, the count is a function of it: the class itself is the 4096-byte version and
`X.at(16384)` another.  A union is declared as bytes (or as its largest member) and reinterpreted where it is known what
it holds.

Modules that declare structures don't postpone the evaluation of annotations: the declarations are data.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self, cast, get_args

if TYPE_CHECKING:  # slow to import; a command that does not need it must not pay for it
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[Any]
    Rows = NDArray[Any]
else:
    Ints = Rows = Any

DEFAULT_BLOCK_SIZE = 4096
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}  # of struct, by size

Count = int | Callable[[int], int]  # a number, or a function of the block size


class _Meaning:
    """What a field is for; the marker that a class attribute is a field of the structure."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def field(meaning: str) -> Any:
    """Declare a field; `meaning` is what documentation and `dump layout` say of it."""
    return _Meaning(meaning)


# Plain classes: every command starts with these, and `dataclasses` takes a millisecond for each.
class Int:
    """An unsigned little-endian integer of 1, 2, 4 or 8 bytes."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def __str__(self) -> str:
        return "__u8" if self.size == 1 else f"__le{8 * self.size}"


class Bytes:
    """Raw bytes: names, bitmaps, unions, reserved space.  An attribute is `bytes`, a table column is uint8."""

    __slots__ = ("count",)

    def __init__(self, count: Count) -> None:
        self.count = count


class Array:
    """`count` integers (the attribute is a numpy array) or structures (the attribute is a list)."""

    __slots__ = ("count", "of")

    def __init__(self, of: Any, count: Count) -> None:
        self.of = of
        self.count = count


u8 = Annotated[int, Int(1)]
u16 = Annotated[int, Int(2)]
u32 = Annotated[int, Int(4)]
u64 = Annotated[int, Int(8)]


class Field:
    """One resolved field: `kind` is an `Int`, `Bytes` or a `Layout` class; `count` is None unless it is an array."""

    __slots__ = ("count", "kind", "meaning", "name", "offset", "size")

    def __init__(self, name: str, offset: int, size: int, kind: Any, count: int | None, meaning: str) -> None:
        self.name = name
        self.offset = offset
        self.size = size
        self.kind = kind
        self.count = count
        self.meaning = meaning

    @property
    def is_number(self) -> bool:
        """Whether it is one integer."""
        return self.count is None and isinstance(self.kind, Int)

    @property
    def type_name(self) -> str:
        """The type in the kernel's spelling."""
        if isinstance(self.kind, Bytes):
            return f"__u8[{self.size}]"
        base = str(self.kind) if isinstance(self.kind, Int) else f"struct {self.kind.kernel_name()}"
        return base if self.count is None else f"{base}[{self.count}]"


class Construct(Protocol):
    """The part of construct's `Struct` that is used: it parses and builds one structure, by its fields' names."""

    def parse(self, data: bytes, /) -> Any: ...
    def build(self, obj: Any, /) -> bytes: ...


def _resolve(annotation: Any, block_size: int) -> tuple[Any, int | None, int]:
    """(kind, count, size in bytes) of an annotated type."""
    spec = annotation
    for item in get_args(annotation):
        if isinstance(item, Int | Bytes | Array):
            spec = item
    if isinstance(spec, Int):
        return spec, None, spec.size
    if isinstance(spec, Bytes):
        count = spec.count if isinstance(spec.count, int) else spec.count(block_size)
        return spec, count, count
    if isinstance(spec, Array):
        kind, _, size = _resolve(spec.of, block_size)
        count = spec.count if isinstance(spec.count, int) else spec.count(block_size)
        return kind, count, size * count
    if isinstance(spec, LayoutType):
        sized: Any = spec
        sized = sized.at(block_size)
        return sized, None, sized.size
    raise TypeError(f"{annotation!r} can't be a field of a Layout")


class _Once:
    """A property of a class, computed when first asked for; `functools.cached_property` can't write to a class."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self._compute = compute
        self._name = "_once_" + compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, cls: Any, _owner: Any = None) -> Any:
        if cls is None:
            return self
        try:
            return cls.__dict__[self._name]
        except KeyError:
            value = self._compute(cls)
            setattr(cls, self._name, value)
            return value


if TYPE_CHECKING:
    _once = property
else:
    _once = _Once


class LayoutType(type):
    """Resolves a declaration once, when it is first used."""

    block_size: int

    @_once
    def fields(cls) -> tuple[Field, ...]:
        """The fields in disk order."""
        found: list[Field] = []
        offset = 0
        for owner in reversed(cls.__mro__):
            for name, marker in vars(owner).items():
                if not isinstance(marker, _Meaning):
                    continue
                kind, count, size = _resolve(vars(owner)["__annotations__"][name], cls.block_size)
                found.append(Field(name, offset, size, kind, count, marker.text))
                offset += size
        return tuple(found)

    @_once
    def size(cls) -> int:
        """The size in bytes."""
        return sum(item.size for item in cls.fields)

    @_once
    def dtype(cls) -> np.dtype[Any]:
        """The packed numpy dtype of one structure."""
        import numpy as np

        columns: list[Any] = []
        for item in cls.fields:
            if isinstance(item.kind, Bytes):
                columns.append((item.name, "u1", (item.size,)))
                continue
            base = f"<u{item.kind.size}" if isinstance(item.kind, Int) else item.kind.dtype
            columns.append((item.name, base) if item.count is None else (item.name, base, (item.count,)))
        return np.dtype(columns)

    @_once
    def form(cls) -> struct.Struct:
        """All fields in one call; arrays and nested structures are bytes in it."""
        return _form(cls.fields)

    @_once
    def names(cls) -> tuple[str, ...]:
        """The names of all fields."""
        return tuple(item.name for item in cls.fields)

    @_once
    def composed(cls) -> tuple[Field, ...]:
        """The fields of which `form` has bytes and the attribute is more: arrays and nested structures."""
        return tuple(item for item in cls.fields if not item.is_number and not isinstance(item.kind, Bytes))

    @_once
    def construct(cls) -> Construct:
        """The same structure for construct, for who declares more with that; slower than `parse` and `build`."""
        from f2tools import _construct

        return _construct.struct_of([_member(item) for item in cls.fields])

    def offset_of(cls, name: str) -> int:
        """Where a field starts, in bytes from the start of the structure; KeyError where it has no such field."""
        for item in cls.fields:
            if item.name == name:
                return item.offset
        raise KeyError(f"{cls.__name__} has no field {name!r}")

    def kernel_name(cls) -> str:
        """The name of the C struct, from the first words of the docstring."""
        words = (cls.__doc__ or "").split()
        return words[1].rstrip(":") if words[:1] == ["struct"] else cls.__name__


@functools.cache
def _sized(cls: LayoutType, block_size: int) -> Any:
    body = {"block_size": block_size, "_origin": cls, "__doc__": cls.__doc__, "__module__": cls.__module__}
    return LayoutType(cls.__name__, (cls,), body)


class Layout(metaclass=LayoutType):
    """An on-disk structure; see the module's docstring."""

    block_size: ClassVar[int] = DEFAULT_BLOCK_SIZE

    def __init_subclass__(cls) -> None:
        for name, marker in vars(cls).items():
            if isinstance(marker, _Meaning) and (hasattr(Layout, name) or hasattr(LayoutType, name)):
                raise TypeError(f"{cls.__name__}.{name}: the codec uses this name itself")

    def __init__(self, **values: Any) -> None:
        """A zeroed structure with the given fields set."""
        for item in type(self).fields:
            if item.name not in values:
                vars(self)[item.name] = _zero(item)
        for name, value in values.items():
            if name not in vars(self) and not any(item.name == name for item in type(self).fields):
                raise TypeError(f"{type(self).__name__} has no field {name}")
            vars(self)[name] = value

    @classmethod
    def at(cls, block_size: int) -> type[Self]:
        """The version of this structure for volumes with blocks of `block_size` bytes."""
        if block_size == cls.block_size:
            return cls
        origin: Any = vars(cls).get("_origin", cls)
        return origin if block_size == origin.block_size else _sized(origin, block_size)

    @classmethod
    def unpacker(cls, until: str | None = None) -> tuple[struct.Struct, tuple[str, ...]]:
        """A `struct.Struct` of the fields before `until`, and their names: the quick way to a few of them.

        Arrays and nested structures come as bytes.
        """
        if until is None:
            return cls.form, cls.names
        chosen = [item for item in cls.fields if item.offset < cls.offset_of(until)]
        return _form(chosen), tuple(item.name for item in chosen)

    @classmethod
    def parse(cls, data: bytes | memoryview | NDArray[np.uint8]) -> Self:
        """One structure from the first `size` bytes of `data`; ValueError when there are fewer."""
        raw = bytes(data[: cls.size])
        if len(raw) < cls.size:
            raise ValueError(f"{cls.__name__} takes {cls.size} bytes, {len(raw)} given")
        made = cls.__new__(cls)
        values = vars(made)
        for name, value in zip(cls.names, cls.form.unpack(raw), strict=True):
            values[name] = value
        for item in cls.composed:
            values[item.name] = _parsed(item, values[item.name])
        return made

    def build(self) -> bytes:
        """The bytes of this structure; ValueError where a value doesn't fit its field."""
        values = vars(self)
        made = [values[item.name] if item.is_number else _built(item, values[item.name]) for item in type(self).fields]
        try:
            return type(self).form.pack(*made)
        except struct.error as error:
            raise ValueError(f"{type(self).__name__}: {_unfit(type(self).fields, values) or error}") from None

    @classmethod
    def table(cls, data: bytes | memoryview | NDArray[np.uint8]) -> Rows:
        """A view of as many whole structures as `data` holds, shape (n,), dtype `cls.dtype`; nothing is copied."""
        import numpy as np

        flat = np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data.reshape(-1)
        count = flat.size // cls.size
        return flat[: count * cls.size].view(cls.dtype)

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain Python values, nested structures as dictionaries; bytes stay bytes."""
        return {item.name: _plain(vars(self)[item.name]) for item in type(self).fields}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.build() == other.build()  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"{type(self).__name__}({shown})"


def _form(items: Iterable[Field]) -> struct.Struct:
    return struct.Struct("<" + "".join(_CODES[item.size] if item.is_number else f"{item.size}s" for item in items))


def _parsed(item: Field, raw: bytes) -> Any:
    """The attribute of an array or a nested structure."""
    if isinstance(item.kind, Int):
        import numpy as np

        return np.frombuffer(raw, f"<u{item.kind.size}").copy()
    kind: Any = item.kind
    if item.count is None:
        return kind.parse(raw)
    return [kind.parse(raw[at : at + kind.size]) for at in range(0, item.size, kind.size)]


def _built(item: Field, value: Any) -> bytes:
    """The bytes of a field that is not one integer; ValueError where they are not as many as it takes."""
    if isinstance(item.kind, Int):
        import numpy as np

        given = np.asarray(value)
        if given.dtype == object:  # numbers of more than 64 bits
            raise ValueError(f"{item.name} has {item.kind.size} bytes a number, too few for {value}")
        with np.errstate(invalid="ignore"):
            numbers = given.astype(f"<u{item.kind.size}")
        if given.dtype.kind != "u" or given.dtype.itemsize > item.kind.size:
            for at in np.flatnonzero(numbers != given)[:1].tolist():
                raise ValueError(f"{item.name} has {item.kind.size} bytes a number, too few for {given.flat[at]}")
        raw = numbers.tobytes()
    elif isinstance(item.kind, Bytes):
        raw = bytes(memoryview(value))
    else:
        raw = value.build() if item.count is None else b"".join(one.build() for one in value)
    if len(raw) != item.size:
        raise ValueError(f"{item.name} takes {item.size} bytes, {len(raw)} given")
    return raw


def _unfit(fields: Iterable[Field], values: dict[str, Any]) -> str:
    """Which integer its field has no room for."""
    for item in fields:
        value = values[item.name]
        if item.is_number and not (hasattr(value, "__index__") and 0 <= value < 1 << 8 * item.size):
            return f"{item.name} has {item.size} bytes, too few for {value!s}"
    return ""


def _member(item: Field) -> tuple[str, str, int, int | None, Construct | None]:
    """A field as `_construct` takes it: name, what it is, size of one, count, the parser of a nested structure."""
    if isinstance(item.kind, Bytes):
        return item.name, "bytes", item.size, None, None
    if isinstance(item.kind, Int):
        return item.name, "integer", item.kind.size, item.count, None
    return item.name, "structure", item.kind.size, item.count, item.kind.construct


def _zero(item: Field) -> Any:
    if isinstance(item.kind, Bytes):
        return bytes(item.size)
    if isinstance(item.kind, Int):
        if item.count is None:
            return 0
        import numpy as np

        return np.zeros(item.count, f"<u{item.kind.size}")
    return item.kind() if item.count is None else [item.kind() for _ in range(item.count)]


def _plain(value: Any) -> Any:
    if isinstance(value, Layout):
        return value.as_dict()
    if isinstance(value, list):
        return [_plain(one) for one in cast("list[Any]", value)]
    return value.tolist() if hasattr(value, "tolist") else value
