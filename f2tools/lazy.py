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


class _Later:
    """Stands for a class's `__dataclass_fields__`: whoever asks for them, or makes an object, completes the class."""

    def __init__(self, cls: type, settings: dict[str, Any]) -> None:
        self._cls = cls
        self._settings = settings
        self._stubs = {"__init__": _initializer(self.complete), "__setstate__": _restorer(self.complete)}
        for name, stub in self._stubs.items():
            setattr(cls, name, stub)

    def __get__(self, _object: object, _class: type) -> Any:
        self.complete()
        return self._cls.__dataclass_fields__

    def complete(self) -> None:
        """Make it a dataclass; its bases become so before, since `dataclasses` asks for their fields."""
        from dataclasses import dataclass

        with _lock:
            if vars(self._cls).get("__dataclass_fields__") is self:
                for name in (*self._stubs, "__dataclass_fields__"):
                    delattr(self._cls, name)
                dataclass(**self._settings)(self._cls)


def _put_off(cls: type, settings: dict[str, Any]) -> type:
    if settings.get("slots"):
        raise TypeError(f"{cls.__name__}: a class with slots can't be completed later")
    cls.__dataclass_fields__ = _Later(cls, settings)  # type: ignore[attr-defined]
    return cls


def _initializer(complete: Callable[[], None]) -> Any:
    def __init__(self: Any, *args: Any, **named: Any) -> None:
        complete()
        self.__init__(*args, **named)

    return __init__


def _restorer(complete: Callable[[], None]) -> Any:
    def __setstate__(self: Any, state: dict[str, Any]) -> None:
        complete()
        vars(self).update(state)

    return __setstate__
