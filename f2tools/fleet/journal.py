"""The finished part of a run, so that an interrupted one can go on: an object a line after a line that names the run.

The file lies beside the output until that is whole.  A line that a crash tore, or that is no
result, counts as not written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Self

from f2tools import newfile, untrusted_json
from f2tools.device.media.remote import without_credentials
from f2tools.errors import DeviceError, Taken, Usage
from f2tools.fleet.tables import fits
from f2tools.fleet.verbs import VERBS, Options
from f2tools.fleet.work import Result
from f2tools.version import __version__

FORMAT = 1
SUFFIX = ".part"
_BEGIN = b'{"format": '
_MOST_HEAD = 1 << 16  # bytes of the line that names the run


class Journal:
    """Results by target in a file, in the order in which they came; only their places are in memory."""

    def __init__(self, output: str, verb: str, options: Options, *, fresh: bool = False) -> None:
        self.path = output + SUFFIX
        self._places: dict[str, int] = {}
        self._verb = VERBS[verb]
        self._head = {"format": FORMAT, "f2tools": __version__, "verb": verb, "options": asdict(options)}
        try:
            fd = newfile.create(self.path)
        except FileExistsError:
            fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._file = open(fd, "r+b")  # noqa: SIM115 (closed in __exit__)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise DeviceError(f"{self.path}: another run is writing {output}; wait for it, or name another") from None
        try:
            self._resume(fresh)
        except BaseException:
            self._file.close()
            raise

    def _resume(self, fresh: bool) -> None:
        line = self._file.readline(_MOST_HEAD)
        if not (line.startswith(_BEGIN) or _BEGIN.startswith(line)):
            raise Taken(f"{self.path}: is there already, and is not of `f2tools fleet`; remove it, or name another OUT")
        if fresh or not line.endswith(b"\n"):
            self._file.truncate(0)
            self._append(self._head)
            return
        head = _object(line)
        if head != self._head:
            was = head.get("verb", "something else") if head else "something else"
            raise Usage(
                f"{self.path}: the beginning of another run (`fleet {was}`, or other options or another f2tools);"
                " give --fresh to begin anew, or another output"
            )
        place = self._file.tell()
        while (line := self._file.readline()).endswith(b"\n"):
            found = _object(line)
            if found is None or not self._is_result(found):
                break
            self._places[found["name"]] = place
            place = self._file.tell()
        self._file.truncate(place)

    def _is_result(self, found: dict[str, Any]) -> bool:
        row, findings, columns = found.get("row"), found.get("findings"), self._verb.finding_columns
        if not isinstance(found.get("name"), str) or not isinstance(findings, list):
            return False
        if not all(fits(one, columns) and one.keys() == columns.keys() for one in findings):
            return False
        if not fits(row, self._verb.columns) or not {"target", "ok", "reason", "looked_at"} <= row.keys():
            return False
        told = ("target",) if row["ok"] else ("target", "reason")
        return None not in (row["ok"], row["looked_at"], *(row[name] for name in told))

    def __contains__(self, target: str) -> bool:
        return _key(target) in self._places

    def add(self, target: str, result: Result) -> None:
        """Keep the result of a target."""
        key = _key(target)
        self._places[key] = self._append({"name": key, "row": result.row, "findings": result.findings})

    def _append(self, value: dict[str, Any]) -> int:
        place = self._file.seek(0, os.SEEK_END)
        self._file.write(json.dumps(value).encode() + b"\n")
        self._file.flush()
        return place

    def results(self, targets: Iterable[str]) -> Iterator[Result]:
        """The results of these targets in their order, one at a time."""
        for target in targets:
            self._file.seek(self._places[_key(target)])
            found = json.loads(self._file.readline())
            yield Result(found["row"], found["findings"])

    def drop(self) -> None:
        """Remove the journal, as the run is complete."""
        os.unlink(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _key(target: str) -> str:
    """The key of a target in the file: its name, with a hash for the parts that must stay secret."""
    name = without_credentials(target)
    return name if name == target else f"{name} {hashlib.sha256(target.encode('utf-8', 'surrogateescape')).hexdigest()}"


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = untrusted_json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
