"""The workers: processes on this machine, or those of a running dask cluster.  Only this module knows dask.

Which worker does what, and what happens when one dies or is slow, is left to dask: a task of a dead worker goes to
another one, and a task that has cost several workers their lives is given up: its exception is its result.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import re
import signal
import socket
import struct
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import active_children
from typing import TYPE_CHECKING, Any, TypeVar

from f2tools.errors import DeviceError, Usage

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
PER_WORKER = 3  # tasks that are on their way to each, so that it never waits for us
# Packages whose versions must be the same here and there, for tasks to be understood and results to be equal.
PACKAGES = ("f2tools", "numpy", "dask", "distributed")
SECONDS_TO_CONNECT = 20
SECONDS_TO_ANSWER = 10
# what bytes of another protocol lead to when dask takes them for lengths and messages of its own
NO_DASK = (MemoryError, OverflowError, ValueError, TypeError, KeyError, AssertionError, struct.error)


class SchedulerGone(DeviceError):
    """The scheduler went away, and what it had under way with it."""


@contextmanager
def cluster(jobs: int, scheduler: str | None) -> Iterator[Client]:
    """A client of the cluster at `scheduler`, or of one of `jobs` processes that lasts as long as this."""
    try:
        from dask import config
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise Usage(f"{error.name} is not installed: pip install 'f2tools[fleet]'") from error
    quiet = {"distributed.logging.distributed": "critical", "distributed.comm.timeouts.connect": SECONDS_TO_CONNECT}
    with config.set(quiet), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `same_versions` reports other versions in a sentence
        if scheduler is not None:
            with _connected(scheduler) as client:
                same_versions(client, scheduler)
                yield client
            return
        processes: dict[str, Any] = {"n_workers": jobs, "threads_per_worker": 1, "processes": True}
        silent: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
        with _ended_at_once(), ExitStack() as stack:
            with _deaf():
                client = stack.enter_context(Client(stack.enter_context(LocalCluster(**processes, **silent))))
            yield client


@contextmanager
def _ended_at_once() -> Iterator[None]:
    """Within this SIGTERM and SIGHUP end the process and those that it has started, without a word.

    Dask waits up to ten seconds for processes that it has half started, and complains of those that got the signal too;
    and there is nothing to put in order, as what is done is in the journal.
    """

    def end(number: int, _frame: object) -> None:
        for process in active_children():
            process.kill()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    before: dict[int, Any] = {}
    try:
        with suppress(ValueError):  # not in the main thread
            for number in (signal.SIGTERM, signal.SIGHUP):
                if callable(signal.getsignal(number)):
                    before[number] = signal.signal(number, end)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes started within this ignore Ctrl-C, which a terminal sends to all: this process ends the others,
    quietly.

    They inherit that the signal is ignored, so for that second it is ignored here too.
    """
    if threading.current_thread() is not threading.main_thread():  # where it can't be changed
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    from distributed import Client

    for name in ("distributed", "distributed.client"):  # those that dask gives levels of their own
        logging.getLogger(name).setLevel(logging.CRITICAL)
    check_address(address)
    _must_answer(address)
    try:
        client = Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        raise DeviceError(f"{address}: no dask scheduler answers there ({error})") from None
    with client:
        if not client.scheduler_info()["workers"]:
            raise DeviceError(f"{address}: the scheduler has no workers; start some there with `dask worker {address}`")
        yield client


def check_address(address: str) -> None:
    """Usage where this is no address of a scheduler."""
    if not re.fullmatch(r"(tcp://)?[^/]+:\d{1,5}", address):
        raise Usage(f"--scheduler {address}: is no address; one is tcp://HOST:PORT")


def _must_answer(address: str) -> None:
    """DeviceError where no dask scheduler answers in SECONDS_TO_ANSWER; a client would wait longer, or for ever."""
    from distributed.comm.core import connect

    async def ask() -> None:
        comm = await connect(address, timeout=SECONDS_TO_ANSWER / 2)
        try:
            await comm.write({"op": "identity", "reply": True})
            if (await comm.read())["type"] != "Scheduler":
                raise ValueError
        finally:
            comm.abort()

    async def ask_for_a_while() -> None:
        await asyncio.wait_for(ask(), SECONDS_TO_ANSWER)

    hint = "a scheduler has port 8786 unless told otherwise, 8787 is its dashboard"
    with ThreadPoolExecutor(1) as thread:  # this one may have a loop of its own
        try:
            thread.submit(asyncio.run, ask_for_a_while()).result()
        except OSError as error:
            raise DeviceError(
                f"{address}: no dask scheduler answers there ({_reason(error, address)}); {hint}"
            ) from None
        except NO_DASK:
            raise DeviceError(f"{address}: no dask scheduler answers there, but something else; {hint}") from None


def _reason(error: BaseException, address: str) -> str:
    """The system's word on why there is no connection."""
    while isinstance(error.__cause__, Exception):  # behind a wait that has ended is what ended it, which is none
        error = error.__cause__
    if isinstance(error, TimeoutError):  # dask tells of its last try alone, which may have had no time left
        from distributed.comm.addressing import get_address_host_port

        try:
            socket.create_connection(get_address_host_port(address), SECONDS_TO_ANSWER / 2).close()
        except OSError as refused:
            error = refused
    said = error.strerror if isinstance(error, OSError) else str(error)
    return said or f"no answer within {SECONDS_TO_ANSWER} s"


def installed(package: str) -> str:
    """The version of a package on this machine."""
    return version(package)


def same_versions(client: Client, address: str) -> None:
    """Usage, in one sentence, where a worker lacks what is installed here.

    Workers come and go between the questions: each is held to what it was asked.
    """
    run: Any = client.run  # a coroutine for clients that are asynchronous; this one is not
    here: dict[str, str] = {"Python": ".".join(platform.python_version_tuple()[:2])}
    there: dict[str, dict[str, str]] = {}
    for worker, found in run(platform.python_version_tuple).items():
        there.setdefault(worker, {})["Python"] = ".".join(found[:2])
    for package in PACKAGES:
        here[package] = installed(package)
        for worker, found in run(version, package, on_error="return").items():
            missing = isinstance(found, PackageNotFoundError)
            there.setdefault(worker, {})[package] = "none" if missing else str(found)
    for worker, found in sorted(there.items()):
        for name, wanted in here.items():
            if found.get(name, wanted) != wanted:
                raise Usage(
                    f"{address}: worker {worker} has {name} {found[name]} and this machine has {wanted};"
                    " install the same on both, nothing is installed from here"
                )


def threads_of(client: Client) -> int:
    """How many tasks the workers do at once."""
    threads: Any = client.nthreads()  # a coroutine for clients that are asynchronous
    return max(1, sum(threads.values()))


def mapped(client: Client, do: Callable[[Any], T], values: Iterable[Any]) -> Iterator[tuple[Any, T | BaseException]]:
    """(value, what `do` makes of it) as they are finished; an exception in its place where no worker could do it.
    SchedulerGone where the scheduler is lost meanwhile.

    Only a few tasks for each worker are handed out at a time, so that neither they nor their results pile up.
    """
    assert client.scheduler is not None  # until it is closed
    address = client.scheduler.address
    try:
        yield from _mapped(client, do, values)
    except (OSError, CancelledError):  # of the client: what a task raises is its result
        raise SchedulerGone(
            f"{address}: the dask scheduler is gone; start it again and give the same command"
        ) from None


def _mapped(client: Client, do: Callable[[Any], T], values: Iterable[Any]) -> Iterator[tuple[Any, T | BaseException]]:
    from distributed import as_completed

    todo = iter(values)
    waiting: dict[Any, Any] = {}
    running = as_completed(loop=client.loop)

    def hand_out() -> bool:
        for value in todo:
            future = client.submit(do, value, pure=False)
            waiting[future.key] = value
            running.add(future)
            return True
        return False

    while len(waiting) < PER_WORKER * threads_of(client) and hand_out():
        pass
    for future in running:
        error = future.exception()
        yield waiting.pop(future.key), future.result() if error is None else error
        future.release()
        hand_out()
