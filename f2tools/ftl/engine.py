"""The same source twice: as plain Python over arrays of the standard library, and compiled by numba over numpy's.

A function marked `@kernel` is written in the part of Python that both know: integers, arrays, named tuples of arrays,
and calls of other kernels.  Which way it runs is chosen once for a run; the results are the same to the last digit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from f2tools.errors import Usage

ENGINES = ("auto", "numba", "python")
DTYPES = {"b": np.int8, "i": np.int32, "q": np.int64}
ENTRIES = ("run", "replace")  # the kernels that Python calls
CACHE = "ftl-"  # directories of machine code begin like this, one for each version of the sources

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Mark a function that numba can compile."""
    function.is_kernel = True  # type: ignore[attr-defined]
    return function


def instead_of(loop: Callable[..., Any]) -> Callable[[Function], Function]:
    """Mark what plain Python does in place of a kernel, because it is faster there; numba compiles the kernel."""

    def mark(function: Function) -> Function:
        function.is_kernel = True  # type: ignore[attr-defined]
        function.loop = loop  # type: ignore[attr-defined]
        return function

    return mark


class Engine:
    """How kernels run: as they stand, or compiled."""

    def __init__(self, compiled: bool) -> None:
        self.compiled = compiled
        self.name = "numba" if compiled else "python"

    def run(self, function: Function) -> Function:
        """The kernel as this engine runs it."""
        return _compiled(sys.modules[function.__module__].__name__)[function.__name__] if self.compiled else function

    def filled(self, code: str, count: int, value: int = 0) -> Any:
        """An array of `count` numbers of 1, 4 or 8 bytes (b, i, q)."""
        if self.compiled:
            return np.full(count, value, DTYPES[code])
        return array(code, [value]) * count

    def given(self, values: Any, code: str) -> Any:
        """An array of numpy's as the kernels of this engine take it."""
        found = np.ascontiguousarray(values, DTYPES[code])
        return found if self.compiled else array(code, found.tobytes())


def engine(name: str) -> Engine:
    """The engine of this name; `auto` is numba where it is installed."""
    there = find_spec("numba") is not None
    if name == "numba" and not there:
        raise Usage("the engine numba needs numba: pip install 'f2tools[ftl]'; --engine python needs nothing")
    return Engine(there if name == "auto" else name == "numba")


@cache
def _compiled(module: str) -> dict[str, Any]:
    """The names of a module with its kernels, and those that it imports, compiled when they are first called."""
    names = dict(vars(sys.modules[module]))
    kernels = {name: value for name, value in names.items() if getattr(value, "is_kernel", False)}
    for name, value in kernels.items():
        if value.__module__ != module:
            names[name] = _compiled(value.__module__)[value.__name__]
            continue
        loop = getattr(value, "loop", value)
        names[name] = _with_cache(FunctionType(loop.__code__, names, loop.__name__), name in ENTRIES)
    return names


def _with_cache(function: FunctionType, called: bool) -> Any:
    """The function for numba, with its machine code kept in a directory of these sources' version, if there is one.

    numba tells by the time of one file whether what it kept still holds, which misses a change in a kernel that was
    compiled into another one.  Kernels allocate nothing, so no references are counted, which would take most of the
    time; what only kernels call needs no way in from Python, which would take most of the compiling.
    """
    import numba

    options: dict[str, Any] = {"_nrt": False, "no_cpython_wrapper": not called, "no_cfunc_wrapper": True}
    directory = _cache_directory()
    if directory is None:
        return numba.njit(**options)(function)
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = directory  # type: ignore[attr-defined]
    try:
        return numba.njit(cache=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]


@cache
def _cache_directory() -> str | None:
    """Where machine code is kept: below $XDG_CACHE_HOME or ~/.cache; None where nothing can be written there."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "f2tools"
    directory = base / f"{CACHE}{digest.hexdigest()[:16]}"
    try:
        if not directory.is_dir():
            directory.mkdir(parents=True)
            for old in base.glob(f"{CACHE}*"):
                if old != directory:
                    with suppress(OSError):
                        shutil.rmtree(old)
    except OSError:
        return None
    return str(directory) if os.access(directory, os.W_OK) else None
