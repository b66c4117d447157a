"""Dataclasses whose methods are written when many objects are made, or when somebody asks for more than an object.

`dataclasses` compiles six methods a class, 1 to 3 ms: a third of a short command, for classes of which most have one
object in it or none.  So one initializer for all makes the first objects of a class, and every other use completes the
class.  Type checkers see the decorator of the standard library.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:

    def dataclass(cls: type | None = None, /, **settings: Any) -> Any:
        """As `dataclasses.dataclass`, but without `slots`: these need a class of their own from the beginning."""
        if cls is None:
            return lambda cls: _put_off(cls, settings)
        return _put_off(cls, settings)

    def replace(made: Any, /, **changes: Any) -> Any:
        """As `dataclasses.replace`."""
        later = vars(type(made)).get("__dataclass_fields__")
        if isinstance(later, _Later) and later.fields is not None:
            return type(made)(**{name: vars(made)[name] for name in later.fields} | changes)
        from dataclasses import replace

        return replace(made, **changes)


FEW = 200  # objects; for more an initializer of their own has been cheaper
_lock = threading.RLock()
_NOT_COPIED = frozenset(("__dict__", "__weakref__", "__dataclass_fields__"))
_NO_FIELDS = ("ClassVar", "InitVar", "KW_ONLY")
_WRITTEN = frozenset(("__init__", "__setattr__", "__delattr__", "__match_args__"))


class _Later:
    """Stands for a class's `__dataclass_fields__`: who asks for them, or makes many objects, completes the class."""

    def __init__(self, cls: type, settings: dict[str, Any]) -> None:
        self._cls = cls
        self._settings = settings
        self.fields = _simple_fields(cls, settings)
        self._made = 0
        self._stubs = self._simple_stubs() if self.fields is not None else self._stubs_that_complete()
        self._own = {name: vars(cls)[name] for name in self._stubs if name in vars(cls)}
        for name, stub in self._stubs.items():
            setattr(cls, name, stub)
        for name in self.fields or ():
            self._show_default(name)

    def __get__(self, _object: object, _class: type) -> Any:
        self.complete()
        return self._cls.__dataclass_fields__

    def _show_default(self, name: str) -> None:
        """The class shows the default of a `field()`, or nothing where there is only what makes one."""
        value: Any = vars(self._cls).get(name)
        if not hasattr(value, "default_factory"):
            return
        self._own[name] = value
        delattr(self._cls, name)
        if value.default is not sys.modules["dataclasses"].MISSING:
            setattr(self._cls, name, value.default)

    def _stubs_that_complete(self) -> dict[str, Any]:
        """The two ways in which an object comes to be."""

        def __setstate__(made: Any, state: dict[str, Any]) -> None:
            self.complete()
            own = getattr(self._cls, "__setstate__", None)
            if own:
                own(made, state)
            else:
                vars(made).update(state)

        return {"__init__": self._completing("__init__"), "__setstate__": __setstate__}

    def _simple_stubs(self) -> dict[str, Any]:
        """What makes the first objects, and all that `dataclasses` would give them."""
        frozen = bool(self._settings.get("frozen"))
        stubs: dict[str, Any] = {"__init__": self._initializer(), "__match_args__": _MatchArgs(self)}
        stubs |= {name: self._completing(name) for name in ("__repr__", "__eq__") if name not in vars(self._cls)}
        if vars(self._cls).get("__hash__") is None:
            stubs["__hash__"] = self._completing("__hash__") if frozen else None
        if frozen:
            stubs["__setattr__"], stubs["__delattr__"] = _frozen(self._cls)
        return stubs

    def _initializer(self) -> Any:
        def __init__(made: Any, *args: Any, **named: Any) -> None:
            self._made += 1
            values = self._values(args, named) if self._made <= FEW else None
            if values is None:
                self.complete()
                self._cls.__init__(made, *args, **named)  # type: ignore[misc]
                return
            vars(made).update(values)
            after = getattr(made, "__post_init__", None)
            if after:
                after()

        return __init__

    def _values(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any] | None:
        """Of all fields of an object, in their order; None where the arguments don't fit, which others say better."""
        fields = self.fields or {}
        values = dict(zip(fields, args, strict=False))
        if len(args) > len(fields) or not values.keys().isdisjoint(named) or not named.keys() <= fields.keys():
            return None
        for name, make in fields.items():
            if name in named:
                values[name] = named[name]
            elif name not in values:
                if make is None:
                    return None
                values[name] = make()
        return values

    def _completing(self, name: str) -> Any:
        def stub(made: Any, *args: Any, **named: Any) -> Any:
            self.complete()
            return getattr(self._cls, name)(made, *args, **named)

        return stub

    def complete(self) -> None:
        """Make it a dataclass; its bases become so before, since `dataclasses` asks for their fields.

        The methods are written for a class beside it and taken over from there, the initializer last: another thread
        finds either what waits here or a dataclass that is whole.
        """
        from dataclasses import dataclass

        with _lock:
            cls = self._cls
            if vars(cls).get("__dataclass_fields__") is not self:
                return
            left_out = _NOT_COPIED | self._stubs.keys()
            body = {name: value for name, value in vars(cls).items() if name not in left_out} | self._own
            beside = type(cls)(cls.__name__, cls.__bases__, body | {"__qualname__": cls.__qualname__})
            before = dict(vars(beside))
            made = dict(vars(dataclass(**self._settings)(beside)))
            if self._settings.get("frozen"):
                made["__setattr__"], made["__delattr__"] = _frozen(cls)
            for name in (before.keys() - made.keys()) & vars(cls).keys():
                delattr(cls, name)
            late = ("__dataclass_fields__", *self._stubs)
            for name, value in made.items():
                if name not in late and name not in _NOT_COPIED and before.get(name, before) is not value:
                    setattr(cls, name, value)
            cls.__dataclass_fields__ = made["__dataclass_fields__"]  # type: ignore[attr-defined]
            for name in reversed(late[1:]):
                if name in made:
                    setattr(cls, name, made[name])
                else:
                    delattr(cls, name)


class _MatchArgs:
    """The names by which a pattern takes an object apart."""

    def __init__(self, later: _Later) -> None:
        self._later = later

    def __get__(self, _object: object, cls: Any) -> Any:
        self._later.complete()
        return cls.__match_args__


def _put_off(cls: type, settings: dict[str, Any]) -> type:
    if settings.get("slots") or "__slots__" in vars(cls):
        raise TypeError(f"{cls.__name__}: a class with slots can't be completed later")
    cls.__dataclass_fields__ = _Later(cls, settings)  # type: ignore[attr-defined]
    return cls


def _simple_fields(cls: type, settings: dict[str, Any]) -> dict[str, Callable[[], Any] | None] | None:
    """Each field with what makes its default; None for a class that only `dataclasses` knows how to make."""
    own = vars(cls)
    if settings.keys() - {"frozen"} or not _WRITTEN.isdisjoint(own):
        return None
    found: dict[str, Callable[[], Any] | None] = {}
    for base in reversed(cls.__mro__[1:]):
        above = vars(base).get("__dataclass_fields__")
        if above is not None:
            if not isinstance(above, _Later) or above.fields is None:
                return None
            found |= above.fields
    library = sys.modules.get("dataclasses")  # where it is not loaded no default can be one of its fields
    absent = library.MISSING if library else object()
    for name, kind in own.get("__annotations__", {}).items():
        value: Any = own.get(name, absent)
        make: Any = absent
        if any(word in str(kind) for word in _NO_FIELDS):
            return None
        if library and isinstance(value, library.Field):
            if not value.init or value.kw_only is True:
                return None
            value, make = value.default, value.default_factory
        if value is not absent:
            if value.__class__.__hash__ is None:  # it can be changed, so `dataclasses` refuses it
                return None
            make = _always(value)
        found[name] = None if make is absent else make
    return found


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _frozen(cls: type) -> tuple[Any, Any]:
    """What refuses to set and to delete: the only methods that dataclasses binds to the class they were written for."""

    def refuse(made: object, name: str, what: str) -> None:
        if type(made) is cls or name in cls.__dataclass_fields__:  # type: ignore[attr-defined]
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot {what} field {name!r}")

    def __setattr__(self: object, name: str, value: Any) -> None:
        refuse(self, name, "assign to")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        refuse(self, name, "delete")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__
