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
        return _of_files(given, [str(path / name) for name in files])
    if path.exists():
        return Trace(given, (given,))
    directory = path.parent
    prefix = path.name
    if directory.is_dir():
        files = [n for n in os.listdir(directory) if (m := PER_CPU.match(n)) and m[1] == prefix]
        if files:
            return _of_files(given, [str(directory / name) for name in files])
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
    return _of_files(name, found)


def _of_files(name: str, files: list[str]) -> Trace:
    """The trace in these files; a CPU that has none, below one that has, is noted: blktrace leaves an empty file where
    nothing happened."""
    trace = Trace(name, tuple(_in_order_of_cpu(files)))
    cpus: dict[str, set[int]] = {}
    for match in map(PER_CPU.match, map(without_credentials, files)):
        if match:
            cpus.setdefault(match[1], set()).add(int(match[2]))
    for prefix, seen in cpus.items():
        count = max(seen) + 1 - len(seen)
        if count:
            first = next(cpu for cpu in range(max(seen)) if cpu not in seen)
            others = f", nor of {count - 1} others" if count > 1 else ""
            text = f"no file of CPU {first}{others}; unless it was offline, its events are missing"
            trace.damage.note("missing", f"{os.path.basename(prefix)}.blktrace.{first}", None, text, count)
    return trace


def _in_order_of_cpu(names: list[str]) -> list[str]:
    """One file for each stream: x.blktrace.0 rather than its compressed copy beside it."""
    best: dict[str, str] = {}
    for name in sorted(names, key=len, reverse=True):
        best[re.sub(r"\.(gz|zst)$", "", name)] = name
    return [best[key] for key in sorted(best, key=lambda key: (len(key), key))]
