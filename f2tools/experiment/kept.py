"""The file with what a part found.  Anybody may have changed it since: a checksum tells, and what no part leaves there,
checksum or not, is refused before anything is made of it.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from pathlib import Path
from typing import Any

from f2tools import newfile, untrusted_json
from f2tools.experiment.model import Numbers

MOST_BYTES = 8 << 20  # of a file; the largest have some hundred KiB
MOST_DEEP = 32
MOST = (1 << 63) - 1  # of a number: none counts more bytes than a device can have
SUM = "crc32"


def write(path: Path, content: Numbers) -> None:
    """Write the file, with its checksum."""
    newfile.create_directory(str(path.parent))
    if not path.is_file():
        path.unlink(missing_ok=True)  # a pipe would be written into, and wait for a reader
    with newfile.replacing(str(path)) as file:
        file.write(json.dumps({**content, SUM: _sum(content)}).encode())


def read(path: Path) -> Numbers:
    """What the file has; ValueError says what is wrong with it."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError("it is no object")
    _check(content)
    if content.pop(SUM, None) != _sum(content):
        raise ValueError("its checksum is another one")
    for name, kind in (("asked", dict), ("numbers", dict), ("seconds", float), ("cpu_seconds", float)):
        if not isinstance(content.get(name), kind):
            raise ValueError(f"it has no {name}")
    return content


def read_json(path: Path) -> Any:
    """The JSON of a regular file that is not too large to be meant; ValueError where there is none."""
    with open(path, "rb", opener=_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no regular file")
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    return untrusted_json.loads(text)


def _at_once(name: str, _: int) -> int:
    return os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # or a pipe would wait for a writer


def _sum(content: Numbers) -> int:
    as_read = json.loads(json.dumps(content))  # whole numbers as keys become text, which is sorted otherwise
    return zlib.crc32(json.dumps(as_read, sort_keys=True).encode())


def _check(content: Any) -> None:
    """ValueError for a number or a depth that no part has."""
    left = [(content, 0)]
    while left:
        value, depth = left.pop()
        if isinstance(value, (int, float)) and not -MOST <= value <= MOST:  # nor NaN
            raise ValueError("a number in it is none, or too large")
        if isinstance(value, (dict, list)):
            if depth == MOST_DEEP:
                raise ValueError("it is nested too deeply")
            inner = value.values() if isinstance(value, dict) else value
            left += [(one, depth + 1) for one in inner]
