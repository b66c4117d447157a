"""What other commands say about an image.  Tools don't import each other: they are run like any program."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

from f2tools.device.containers.beside import backing_paths

_RUN = "from f2tools.cli import run; run()"


class Answer(NamedTuple):
    """JSON values, one for each document or line of the output; what was said on stderr; the exit code."""

    values: list[Any]
    said: str
    exit_code: int


def ask(*args: str) -> Answer:
    """What `f2tools ARGS` prints as one JSON document or as lines of JSON, whatever its exit code."""
    also = [word for path in backing_paths() for word in ("--backing", path)]
    done = subprocess.run([sys.executable, "-c", _RUN, *args, *also], stdin=subprocess.DEVNULL, capture_output=True)
    text = done.stdout.decode("utf-8", "surrogateescape")
    said = done.stderr.decode("utf-8", "replace").strip()
    decoder, values, at = json.JSONDecoder(), [], 0
    try:
        while rest := text[at:].lstrip():
            at = len(text) - len(rest)
            value, at = decoder.raw_decode(text, at)
            values.append(value)
    except ValueError:
        said = f"{said}\nthe output could not be read".strip()
    return Answer(values, said, done.returncode)
