"""What the command line decides for its own process, and what of that the programs of others don't get.

Nothing here is done by importing f2tools: a program that uses the library keeps its environment and its collector.
"""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

# numpy's OpenBLAS starts a thread per core when it is loaded, which costs more than loading numpy; nothing of ours
# multiplies matrices.  OMP_NUM_THREADS is left alone: pyarrow and numba go by it, and they have work for threads.
_SETTINGS = {"OPENBLAS_NUM_THREADS": "1"}
_ours: set[str] = set()
# Imports make some 50,000 objects, all of which stay: the collector comes when a command has made more than that.  From
# then on not rarer than this, and through all objects as often as ever: a ring of a few may hold an image's worth of
# arrays.
_AT_START = 60_000
_LATER = (10_000, 5, 2)
_settled = False


def settle() -> None:
    """Make this process one of a command: no threads for matrices, the collector less often, a quick end.

    Best before anything large is imported; a second call does nothing.
    """
    global _settled
    if _settled:
        return
    _settled = True
    for name, value in _SETTINGS.items():
        if name not in os.environ:
            os.environ[name] = value
            _ours.add(name)
    gc.set_threshold(_AT_START)
    gc.callbacks.append(_collect_often)
    # The interpreter looks twice for cycles when it ends, among all that is gone in a moment anyway.
    atexit.register(gc.freeze)


def _collect_often(_phase: str, _found: dict[str, int]) -> None:
    gc.callbacks.remove(_collect_often)
    gc.set_threshold(*_LATER)


@contextmanager
def without_collector() -> Iterator[None]:
    """No garbage collection, which would find no cycles among a hundred thousand files: it is a fifth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def environment_of_others() -> dict[str, str]:
    """The environment for a program that the user named: the user's own."""
    return {name: value for name, value in os.environ.items() if name not in _ours}
