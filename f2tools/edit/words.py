"""Lines of a script into words, as a shell does."""

from __future__ import annotations

import os
import re

from f2tools.errors import Usage

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "a": b"\a", "b": b"\b", "e": b"\x1b"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-3]?[0-7]{1,2})|(.))")


def words_of(line: str) -> list[str]:
    """A line into words as a shell does, with '...', "...", $'...' and backslashes; `#` at a word's start ends it.

    $'...' knows \\n, \\t, \\xHH and octal, so that a script can name any byte.  Usage for a quote that is left open.
    """
    words: list[str] = []
    word: list[str] | None = None
    at = 0
    while at < len(line):
        one = line[at]
        if one in " \t\r\n\f\v":
            if word is not None:
                words.append("".join(word))
                word = None
            at += 1
            continue
        if one == "#" and word is None:
            break
        word = [] if word is None else word
        if one == "$" and line[at + 1 : at + 2] == "'":
            text, at = _ansi(line, at + 2)
        elif one == "'":
            end = line.find("'", at + 1)
            text, at = line[at + 1 : end], _closed(end)
        elif one == '"':
            text, at = _double(line, at + 1)
        elif one == "\\":
            text, at = line[at + 1 : at + 2], at + 2
        else:
            text, at = one, at + 1
        word.append(text)
    if word is not None:
        words.append("".join(word))
    return words


def _closed(end: int) -> int:
    if end < 0:
        raise Usage("a quote is left open")
    return end + 1


def _double(line: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while at < len(line):
        if line[at] == '"':
            return "".join(parts), at + 1
        if line[at] == "\\" and line[at + 1 : at + 2] in ('"', "\\", "$", "`"):
            at += 1
        parts.append(line[at : at + 1])
        at += 1
    raise Usage("a quote is left open")


def _ansi(line: str, at: int) -> tuple[str, int]:
    raw = bytearray()
    while at < len(line):
        if line[at] == "'":
            return os.fsdecode(bytes(raw)), at + 1
        match = _ESCAPE.match(line, at)
        if match is None:
            raw += os.fsencode(line[at])
            at += 1
            continue
        if match[1] or match[2]:
            raw.append(int(match[1], 16) if match[1] else int(match[2], 8))
        else:
            raw += _ESCAPES.get(match[3], os.fsencode(match[3]))
        at = match.end()
    raise Usage("a quote is left open")
