"""Dataclasses whose methods are written when the first object is made.

`dataclasses` compiles six methods a class, some 0.6 ms: a fifth of a short command for classes of which many have no
object in it.  Type checkers see the decorator of the standard library.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **settings: Any) -> Any:
        """As `dataclasses.dataclass`, but without `slots`: these need a class of their own from the beginning."""
        if cls is None:
            return lambda cls: _put_off(cls, settings)
        return _put_off(cls, settings)


_lock = threading.RLock()
_NOT_COPIED = frozenset(("__dict__", "__weakref__", "__dataclass_fields__", "__init__", "__setstate__"))


class _Later:
    """Stands for a class's `__dataclass_fields__`: whoever asks for them, or makes an object, completes the class."""

    def __init__(self, cls: type, settings: dict[str, Any]) -> None:
        self._cls = cls
        self._settings = settings
        stubs = {"__init__": _initializer(cls, self.complete), "__setstate__": _restorer(cls, self.complete)}
        self._own = {name: vars(cls)[name] for name in stubs if name in vars(cls)}
        for name, stub in stubs.items():
            setattr(cls, name, stub)

    def __get__(self, _object: object, _class: type) -> Any:
        self.complete()
        return self._cls.__dataclass_fields__

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
            body = {name: value for name, value in vars(cls).items() if name not in _NOT_COPIED} | self._own
            beside = type(cls)(cls.__name__, cls.__bases__, body | {"__qualname__": cls.__qualname__})
            before = dict(vars(beside))
            made = dict(vars(dataclass(**self._settings)(beside)))
            if self._settings.get("frozen"):
                made["__setattr__"], made["__delattr__"] = _frozen(cls)
            for name in before.keys() - made.keys():
                delattr(cls, name)
            for name, value in made.items():
                if name not in _NOT_COPIED and before.get(name, before) is not value:
                    setattr(cls, name, value)
            cls.__dataclass_fields__ = made["__dataclass_fields__"]  # type: ignore[attr-defined]
            for name in ("__setstate__", "__init__"):
                if name in made:
                    setattr(cls, name, made[name])
                else:
                    delattr(cls, name)


def _put_off(cls: type, settings: dict[str, Any]) -> type:
    if settings.get("slots") or "__slots__" in vars(cls):
        raise TypeError(f"{cls.__name__}: a class with slots can't be completed later")
    cls.__dataclass_fields__ = _Later(cls, settings)  # type: ignore[attr-defined]
    return cls


def _initializer(cls: type, complete: Callable[[], None]) -> Any:
    def __init__(self: Any, *args: Any, **named: Any) -> None:
        complete()
        cls.__init__(self, *args, **named)

    return __init__


def _restorer(cls: type, complete: Callable[[], None]) -> Any:
    def __setstate__(self: Any, state: dict[str, Any]) -> None:
        complete()
        own = getattr(cls, "__setstate__", None)
        if own:
            own(self, state)
        else:
            vars(self).update(state)

    return __setstate__


def _frozen(cls: type) -> tuple[Any, Any]:
    """What refuses to set and to delete: the only methods that dataclasses binds to the class they were written for."""
    from dataclasses import FrozenInstanceError

    def refuse(made: object, name: str, what: str) -> None:
        if type(made) is cls or name in cls.__dataclass_fields__:  # type: ignore[attr-defined]
            raise FrozenInstanceError(f"cannot {what} field {name!r}")

    def __setattr__(self: object, name: str, value: Any) -> None:
        refuse(self, name, "assign to")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        refuse(self, name, "delete")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__
