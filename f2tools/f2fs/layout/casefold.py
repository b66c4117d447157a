"""Folding of names for casefolded directories: the kernel's utf8 12.1 NFDICF, on which hash and comparison rest.

It is canonical decomposition, full case folding, and removal of what Unicode calls ignorable, frozen at Unicode 12.1.
Code points that were unassigned then stay as they are.  Python's own tables are newer, but what was assigned in 12.1
decomposes and folds today as it did then (Unicode's stability policies); a small table made by
scripts/make_unicode_table.py tells which code points those are, and is read when the first name that isn't ASCII comes.
"""

from __future__ import annotations

import os
import unicodedata
from bisect import bisect_right
from functools import lru_cache

from f2tools.f2fs.layout.constants import F2FS_NAME_LEN

_ASSIGNED, _IGNORABLE = 1, 2  # kinds in the table, see scripts/make_unicode_table.py; 0 is unassigned
_ROW = 7


def casefold(name: bytes, *, keep_ignorable: bool = False) -> bytes | None:
    """The name as a casefolded directory hashes and compares it; None where the bytes themselves are taken instead.

    That is so for names that are not UTF-8, that fold to nothing, or that fold to F2FS_NAME_LEN bytes or more (see
    f2fs_init_casefolded_name() in fs/f2fs/dir.c); where the encoding is strict the kernel refuses such names.
    keep_ignorable: as Linux 6.12, and stable kernels of that time, did before the change was reverted.
    """
    end = name.find(b"\0")  # in a damaged directory; the kernel's cursor ends there
    if end >= 0:
        name = name[:end]
    folded = name.lower() if name.isascii() else _fold(name, keep_ignorable)
    return folded if folded and len(folded) < F2FS_NAME_LEN else None


def _fold(name: bytes, keep_ignorable: bool) -> bytes | None:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return _fold_malformed(name, keep_ignorable)
    # Runs between barriers are put in canonical order; a barrier itself is a code point that nothing moves across.
    done: list[str] = []
    run: list[str] = []
    for char in text:
        kind = _kind(char)
        if kind == _ASSIGNED:
            run.append(_fold_char(char))
            continue
        done.append(_ordered(run))
        run.clear()
        if kind != _IGNORABLE or keep_ignorable:
            done.append(char)
    done.append(_ordered(run))
    return "".join(done).encode()


def _ordered(run: list[str]) -> str:
    """Folded characters, marks in canonical order across them."""
    return unicodedata.normalize("NFD", "".join(run))


@lru_cache(maxsize=4096)
def _fold_char(char: str) -> str:
    """Full decomposition of one assigned character, case folded."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", char).casefold())


@lru_cache(maxsize=4096)
def _kind(char: str) -> int:
    starts, ends, kinds = _table()
    row = bisect_right(starts, ord(char)) - 1
    return kinds[row] if row >= 0 and ord(char) <= ends[row] else 0


@lru_cache(maxsize=1)
def _table() -> tuple[list[int], list[int], bytes]:
    """First code points, last code points and kinds of the ranges."""
    with open(os.path.join(os.path.dirname(__file__), "unicode12_1.bin"), "rb") as file:
        data = file.read()
    starts = [int.from_bytes(data[row : row + 3], "little") for row in range(0, len(data), _ROW)]
    ends = [int.from_bytes(data[row + 3 : row + 6], "little") for row in range(0, len(data), _ROW)]
    return starts, ends, data[6::_ROW]


# Names that aren't UTF-8. The kernel does not refuse all of them: its cursor, utf8byte() in fs/unicode/utf8-norm.c,
# takes every continuation byte for the rest of a character that it has looked up. So superfluous ones pass, and come
# out again in each pass that sorts the marks around them. Hashes on the disk depend on it.

_STRAY = -1  # class of a superfluous continuation byte
_LAST_CLASS = 255  # above every combining class


def _fold_malformed(name: bytes, keep_ignorable: bool) -> bytes | None:
    parts = _parts(name, keep_ignorable)
    return None if parts is None else _sorted_as_the_cursor_does(parts)


def _parts(name: bytes, keep_ignorable: bool) -> list[tuple[int, bytes]] | None:
    """(combining class or _STRAY, bytes) of what the name folds to; no bytes for what is ignorable; None if refused."""
    parts: list[tuple[int, bytes]] = []
    at = 0
    while at < len(name):
        lead = name[at]
        if 0x80 <= lead < 0xC0:
            if at == 0:
                return None
            parts.append((_STRAY, name[at : at + 1]))
            at += 1
            continue
        size = 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)
        try:
            char = name[at : at + size].decode()
        except UnicodeDecodeError:
            return None
        at += size
        kind = _kind(char)
        if kind == _ASSIGNED:
            parts += [(unicodedata.combining(folded), folded.encode()) for folded in _fold_char(char)]
        else:
            parts.append((0, b"" if kind == _IGNORABLE and not keep_ignorable else char.encode()))
    return parts


def _sorted_as_the_cursor_does(parts: list[tuple[int, bytes]]) -> bytes:
    """Marks between two characters of class 0 in the order of their classes, one pass over them for each class."""
    out = bytearray()
    at = restart = 0
    current = following = 0  # the class that this pass emits, and the next one met; both 0 outside a run of marks
    while len(out) < F2FS_NAME_LEN:
        ccc, data = parts[at] if at < len(parts) else (0, b"")
        if ccc == _STRAY:
            out += data
            at += 1
            continue
        if ccc and current < ccc < following:
            following = ccc
        if ccc == current:
            if at >= len(parts):
                break
            out += data
            at += 1
        elif not following:  # the first mark of a run: look for the lowest class
            restart, current, following = at, -1, ccc
            at += 1
        elif ccc:
            at += 1
        elif following != _LAST_CLASS:
            at, current, following = restart, following, _LAST_CLASS
        else:
            current = following = 0
    return bytes(out)
