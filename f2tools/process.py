"""What the command line decides for its own process, and what of that the programs of others don't get.

Nothing here is done by importing f2tools: a program that uses the library keeps its environment and its collector.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

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
_PR_SET_PDEATHSIG = 1
_TO_END = (signal.SIGTERM, signal.SIGHUP)
_taken: set[int] = set()  # those of them that this process takes
_told = 0  # the first that came


class Stopped(KeyboardInterrupt):
    """SIGTERM or SIGHUP: everything ends as at Ctrl-C, also what would go on after that."""


def why_not_here() -> str:
    """Why f2tools can't work in this Python; empty where it can.

    Indices and times of more than 32 bits are counted on, and words as they lie on the disk are compared as they are.
    """
    bits = 64 if sys.maxsize > 1 << 32 else 32
    if bits == 64 and sys.byteorder == "little":
        return ""
    return (
        f"f2tools works on 64-bit little-endian machines, such as x86-64 and arm64; this Python is {bits}-bit"
        f" {sys.byteorder}-endian"
    )


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
    atexit.register(_end_as_told)  # first, and so the last of all
    os.register_at_fork(after_in_child=_forget_signals)
    gc.set_threshold(_AT_START)
    gc.callbacks.append(_collect_often)
    # The interpreter looks twice for cycles when it ends, among all that is gone in a moment anyway.
    atexit.register(gc.freeze)


def _collect_often(_phase: str, _found: dict[str, int]) -> None:
    gc.callbacks.remove(_collect_often)
    gc.set_threshold(*_LATER)


@contextmanager
def told_to_end() -> Iterator[None]:
    """Within this SIGTERM and SIGHUP are raised as `Stopped`, and Ctrl-C as KeyboardInterrupt: what lies about is put
    in order first.  A command ends by that very signal after all.

    What is ignored, as SIGHUP by nohup, stays so; and a process that is forked within this is ended at once.
    """
    before: dict[int, Any] = {}
    try:
        with suppress(ValueError):  # not in the main thread, where signals are the caller's
            if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
                before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
            for number in _TO_END:
                if signal.getsignal(number) == signal.SIG_DFL:
                    _taken.add(number)
                    before[number] = signal.signal(number, _stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
            _taken.discard(number)


def _stop(number: int, _frame: object) -> None:
    global _told
    _told = _told or number
    under_way = sys.exception()
    while under_way is not None:
        if isinstance(under_way, Stopped):
            return  # a service manager sends both, one after the other
        under_way = under_way.__context__
    raise Stopped(signal.Signals(number).name)


def _forget_signals() -> None:
    for number in _taken:
        signal.signal(number, signal.SIG_DFL)
    _taken.clear()


def _end_as_told() -> None:
    if _told:
        signal.signal(_told, signal.SIG_DFL)
        os.kill(os.getpid(), _told)


@contextmanager
def processes(jobs: int, method: str) -> Iterator[Callable[..., Iterator[Any]]]:
    """A `map` by so many processes, started by `fork` or `spawn`, which end when this ends with an exception, and with
    this process.  Ctrl-C is not for them: a terminal sends it to all."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    others = set(active_children())
    with ProcessPoolExecutor(jobs, get_context(method), _begin, (os.getpid(),)) as pool:

        def mapped(work: Callable[..., Any], *values: Iterable[Any]) -> Iterator[Any]:
            # that of the pool takes back what waits, which a pool whose processes are ended complains about
            waiting = deque([pool.submit(work, *one) for one in zip(*values)])  # noqa: B905 - some never end
            while waiting:
                yield waiting.popleft().result()

        try:
            yield mapped
        except BaseException:
            for process in set(active_children()) - others:
                process.terminate()
            raise


def _begin(parent: int) -> None:
    import ctypes

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        os._exit(1)


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
