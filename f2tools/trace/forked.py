"""A value that a copy of this process computes in parallel.

It comes back through a file without a name: its arrays are mapped from there and not copied.  Only the value comes
back, so the computation must have no other effect.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import signal
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, NoReturn, Self, TypeVar

T = TypeVar("T")
ALIGNED = 64  # bytes, at multiples of which arrays begin in the file
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, include/uapi/linux/prctl.h


class Lost(Exception):
    """The process died before it had the value."""


class Forked(Generic[T]):
    """What `make` returns, or raises, in a process of its own, which lives no longer than this."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._file: Any = tempfile.TemporaryFile(prefix="f2trace-")  # noqa: SIM115 - closed in __exit__
        parent = os.getpid()
        self._process = os.fork()
        if not self._process:
            _be_other(make, self._file, parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
        self._file.close()

    def result(self) -> T:
        """Wait for the value; what was raised there is raised here, and Lost where nothing came."""
        process, self._process = self._process, 0
        _, status = os.waitpid(process, 0)
        if status:
            raise Lost(f"the process ended with {os.waitstatus_to_exitcode(status)}")
        raised, value = _read(self._file)
        if raised:
            raise value
        return value


def _be_other(make: Callable[[], T], file: Any, parent: int) -> NoReturn:
    """The whole work of the other process.  It ends without the exit handlers of the first one."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # signals are for the first process
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() == parent:
            try:
                made = False, make()
            except Exception as error:
                error.add_note(f"in a process that counted a part:\n{traceback.format_exc()}")
                made = True, error
            _write(file, made)
            code = 0
    except Exception:
        code = 1  # the first process sees Lost
    finally:
        os._exit(code)


def _write(file: Any, value: Any) -> None:
    arrays: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, 5, buffer_callback=arrays.append)
    raw = [array.raw() for array in arrays]
    pickle.dump(([len(part) for part in raw], head), file)
    for part in raw:
        file.seek(-file.tell() % ALIGNED, os.SEEK_CUR)
        file.write(part)
    file.flush()


def _read(file: Any) -> Any:
    file.seek(0)
    lengths, head = pickle.load(file)
    at = file.tell()
    arrays: list[memoryview] = []
    if any(lengths):
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        for length in lengths:
            at += -at % ALIGNED
            arrays.append(whole[at : at + length])
            at += length
    else:
        arrays = [memoryview(bytearray()) for _ in lengths]
    return pickle.loads(head, buffers=arrays)
