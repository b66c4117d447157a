"""Where a trace comes from: a prefix, a directory, an export, a file, a URL, standard input; which files it has."""

from __future__ import annotations

import os
import re
from pathlib import Path

from f2tools.blktrace.exported import exported
from f2tools.blktrace.trace import Trace
from f2tools.device.media.remote import exists, expand, is_url, without_credentials
from f2tools.errors import DeviceError, Usage

PER_CPU = re.compile(r"(.*)\.blktrace\.(\d+)(\.gz|\.zst)?$")
PLAIN = re.compile(r"(.*)\.(?:blktrace|bin|blkparse\.txt|ftrace\.txt)(\.gz|\.zst)?$")


def open_trace(given: str) -> Trace:
    """The trace that `given` names: a prefix, a directory, an export, a file, or `-` for standard input."""
    if given == "-":
        return Trace("standard input", ("-",))
    if is_url(given):
        return _open_remote_trace(given)
    path = Path(given)
    if path.is_dir():
        if (kept := exported(given)) is not None:
            return kept
        names = sorted(os.listdir(path))
        files = [n for n in names if PER_CPU.match(n)] or [n for n in names if PLAIN.match(n)]
        files = files or [n for n in names if re.match(r"ftrace.*\.txt(\.gz|\.zst)?$|blkparse.*\.txt(\.gz|\.zst)?$", n)]
        if not files:
            raise Usage(f"{given}: no trace in this directory; expected files such as x.blktrace.0")
        return Trace(given, tuple(str(path / name) for name in _in_order_of_cpu(files)))
    if path.exists():
        return Trace(given, (given,))
    directory = path.parent
    prefix = path.name
    if directory.is_dir():
        files = [n for n in os.listdir(directory) if (m := PER_CPU.match(n)) and m[1] == prefix]
        if files:
            return Trace(given, tuple(str(directory / name) for name in _in_order_of_cpu(files)))
    raise DeviceError(f"{given}: no file of this name, nor {prefix}.blktrace.0 and so on")


def _open_remote_trace(given: str) -> Trace:
    """The same of a URL: a file, a prefix or a directory."""
    name = without_credentials(given)
    if not PER_CPU.match(name) and not PLAIN.match(name) and (kept := exported(given)) is not None:
        return kept
    if given.endswith("/"):
        found = [url for url in expand(f"{given}*") if PER_CPU.match(url) or PLAIN.match(url)]
    elif exists(given):
        return Trace(name, (given,))
    else:
        found = [url for url in expand(f"{given}.blktrace.*") if PER_CPU.match(url)]
    if not found:
        raise DeviceError(f"{name}: no trace of this name there, nor files of one")
    return Trace(name, tuple(_in_order_of_cpu(found)))


def _in_order_of_cpu(names: list[str]) -> list[str]:
    """One file for each stream: x.blktrace.0 rather than its compressed copy beside it."""
    best: dict[str, str] = {}
    for name in sorted(names, key=len, reverse=True):
        best[re.sub(r"\.(gz|zst)$", "", name)] = name
    return [best[key] for key in sorted(best, key=lambda key: (len(key), key))]
