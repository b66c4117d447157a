"""Ways to change the content of a file, each tried on a file of its own; run by itself it needs nothing but Python.

`python ways.py DIRECTORY` prints JSON: what became of DIRECTORY/WAY, `ok` or the name of an errno or a signal.  A way
that was refused must have left the file as it was; `changed` is added where it has not.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

BLOCK = 4096
CONTENT = b"not to be changed by those who may not. " * 1639 + b"123456"  # 65566 bytes
SIZE = 65536
assert len(CONTENT) >= SIZE
CONTENT = CONTENT[:SIZE]
KEEP, PUNCH, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32


def _open(path: str) -> int:
    """Open to read and write; where that is refused, to append."""
    try:
        return os.open(path, os.O_RDWR)
    except PermissionError:
        return os.open(path, os.O_RDWR | os.O_APPEND)


def pwrite(path: str) -> None:
    os.pwrite(os.open(path, os.O_RDWR), b"FORGED", 0)


def append(path: str) -> None:
    os.write(os.open(path, os.O_WRONLY | os.O_APPEND), b"more")


def beyond(path: str) -> None:
    os.pwrite(os.open(path, os.O_RDWR), b"more", SIZE)


def append_then_pwrite(path: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_APPEND)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_APPEND)
    os.pwrite(fd, b"FORGED", 0)


def shared_map(path: str) -> None:
    with mmap.mmap(_open(path), SIZE, mmap.MAP_SHARED) as there:
        there[:6] = b"FORGED"
        there.flush()


def truncate_short(path: str) -> None:
    os.truncate(path, 3 * BLOCK)


def truncate_long(path: str) -> None:
    os.truncate(path, SIZE + 16 * BLOCK)


def truncate_empty(path: str) -> None:
    os.truncate(path, 0)


def ftruncate(path: str) -> None:
    os.ftruncate(_open(path), 3 * BLOCK)


def open_emptied(path: str) -> None:
    os.open(path, os.O_WRONLY | os.O_TRUNC)


def copy_into(path: str) -> None:
    source = os.open(str(Path(path).parent / "source"), os.O_RDONLY)
    os.copy_file_range(source, _open(path), BLOCK, 0, 0)


def _fallocate(mode: int, offset: int) -> Callable[[str], None]:
    def way(path: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = _open(path)
        if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(BLOCK)):
            raise OSError(ctypes.get_errno(), "fallocate")

    return way


WAYS: dict[str, Callable[[str], None]] = {
    "pwrite": pwrite, "append": append, "beyond": beyond, "append_then_pwrite": append_then_pwrite,
    "shared_map": shared_map, "copy_into": copy_into,
    "truncate_short": truncate_short, "truncate_long": truncate_long, "truncate_empty": truncate_empty,
    "ftruncate": ftruncate, "open_emptied": open_emptied,
    "allocate": _fallocate(0, SIZE), "allocate_keeping": _fallocate(KEEP, SIZE),
    "punch": _fallocate(PUNCH | KEEP, 0), "collapse": _fallocate(COLLAPSE, 0), "zero": _fallocate(ZERO, 0),
    "insert": _fallocate(INSERT, 0),
}  # fmt: skip
FILES = (*WAYS, "source")


def tried(path: str, way: Callable[[str], None]) -> str:
    """What becomes of one way, in a process of its own: a map may end it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            way(path)
            said = "ok"
        except OSError as error:
            said = errno.errorcode[error.errno or errno.EIO]
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        said = answer.read().decode()
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return said or signal.Signals(-ended).name


def _is_changed(path: Path) -> bool:
    try:
        return path.read_bytes() != CONTENT
    except OSError:  # sealed, by a seal that is not there
        return False


def all_tried(directory: str) -> dict[str, str]:
    """What becomes of each way on its file below a directory."""
    found: dict[str, str] = {}
    for name, way in WAYS.items():
        path = Path(directory) / name
        found[name] = tried(str(path), way)
        if found[name] != "ok" and _is_changed(path):
            found[name] += " changed"
    return found


if __name__ == "__main__":
    print(json.dumps({one.name: all_tried(str(one)) for one in sorted(Path(sys.argv[1]).iterdir()) if one.is_dir()}))
