"""An attribute that is computed when it is first asked for.

`functools.cached_property` of Python 3.11 takes a lock each time, which costs more than what most of an inode's
attributes are; later versions take none.  Whoever computes one twice at a time gets the same value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as once
else:

    class once:
        """Decorates a method without arguments; its value then stands in the object under the method's name."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._compute = compute
            self._name = compute.__name__
            self.__doc__ = compute.__doc__

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._compute(instance)
            return value
