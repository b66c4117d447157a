"""The work on one target, as a worker does it: whatever goes wrong with it becomes its row."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from f2tools.device.media.remote import cached_in, without_credentials
from f2tools.errors import F2fsError
from f2tools.fleet.verbs import VERBS, Options, Row
from f2tools.options import said_by_system
from f2tools.text import printable


@dataclass(frozen=True)
class Result:
    """The result of the work on one target."""

    row: Row
    findings: list[Row]

    @property
    def done(self) -> bool:
        """Whether the target could be looked at."""
        return self.row["looked_at"]


def look_at(verb: str, target: str, options: Options) -> Result:
    """The row of a target and its findings; a target that can't be looked at has a row that says why, and no findings.

    An unforeseen error is reported as one: a single target must not end the run of the others.
    """
    try:
        with cached_in(options.cache) if options.cache else nullcontext():
            row, findings = VERBS[verb].look(target, options)
    except F2fsError as error:
        return failed(target, str(error))
    except OSError as error:
        return failed(target, said_by_system(error))
    except MemoryError:
        return failed(target, "there is not enough memory for it on this worker")
    except Exception as error:
        return failed(target, f"{type(error).__name__}: {error}: this is a mistake in f2tools; please report it")
    name = without_credentials(target)
    whole = {"target": name, "ok": "reason" not in row, "reason": None, "looked_at": True} | row
    return Result(_plain(whole), [_plain({"target": name} | finding) for finding in findings])


def failed(target: str, reason: str) -> Result:
    """The row of a target that could not be looked at."""
    name = without_credentials(target)
    return Result(_plain({"target": name, "ok": False, "reason": reason, "looked_at": False}), [])


def _plain(row: dict[str, Any]) -> Row:
    """Numbers of numpy as numbers of Python, text as tables can hold it: bytes that are no UTF-8 as escapes."""
    return {name: _value(value) for name, value in row.items()}


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    return value.item() if hasattr(value, "item") else value
