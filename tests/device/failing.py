"""A step that fails: the n-th call of some functions of an object ends with an error, and all before it are made."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from f2tools.errors import Corrupt, DeviceError, Where

Steps = Iterable[tuple[object, str]]
ERRORS: dict[str, Callable[[], BaseException]] = {
    "ENOSPC": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "EIO": lambda: DeviceError("the test lets this step fail"),
    "corrupt": lambda: Corrupt(Where(), "the test lets this step fail"),
    "Ctrl-C": KeyboardInterrupt,
}


@contextmanager
def failing(steps: Steps, number: int, error: BaseException) -> Iterator[list[str]]:
    """Step `number` of those made within fails, counted from 0; yields the names of the steps that were made."""
    made: list[str] = []
    steps = list(steps)

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **more: Any) -> Any:
            made.append(name)
            if len(made) == number + 1:
                raise error
            return real(*args, **more)

        return step

    for owner, name in steps:
        setattr(owner, name, counted(name, getattr(owner, name)))
    try:
        yield made
    finally:
        for owner, name in steps:
            delattr(owner, name)
