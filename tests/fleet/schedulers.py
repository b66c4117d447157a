"""Schedulers of dask that a test may kill."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client


@contextmanager
def own_scheduler() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """(address, process) of a scheduler that a test may kill; it has one worker."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    dask = (sys.executable, "-m", "dask")
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = (*dask, "scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2], "--no-dashboard")
    process = subprocess.Popen(words, **quiet)
    worker = subprocess.Popen((*dask, "worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny"), **quiet)
    try:
        with Client(address, set_as_default=False, timeout=60) as client:
            client.wait_for_workers(1, timeout=60)
        yield address, process
    finally:
        for each in (process, worker):
            each.kill()
            each.wait()
