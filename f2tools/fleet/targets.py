"""The targets of a fleet: names of images and traces, from globs, lists and URLs, each once and in a fixed order.

Nothing is opened here.  A name that stands for no file is kept: its row will say what is wrong with it.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from f2tools.blktrace.exported import MANIFEST
from f2tools.device.media.remote import expand, is_url
from f2tools.errors import Usage

LIST = "@"
WILD = re.compile(r"[*?\[]")
PER_CPU = re.compile(r"(.*)\.blktrace\.\d+(\.gz|\.zst)?$")


def targets_of(words: Iterable[str], *, traces: bool = False) -> list[str]:
    """The targets that the words name, each once and as it was written first.

    Usage where a pattern fits nothing, or a list can't be read.

    A word is a name, a pattern (`cards/*.img`, `**` for any depth), a URL that fsspec knows, with or without a pattern,
    or `@FILE`: a name, pattern or URL a line, `@-` for standard input.  Of `traces`, the files of one by CPU are one,
    and a directory that fits a pattern is one where `trace export` wrote it.
    """
    found: dict[tuple[str, ...], str] = {}
    for word in _lines(words):
        for name in _expanded(word, traces):
            per_cpu = PER_CPU.match(name) if traces else None
            target = per_cpu[1] if per_cpu else name
            found.setdefault(_place(target), target)
    if not found:
        raise Usage("no targets: the lists are empty")
    return list(found.values())


def _place(target: str) -> tuple[str, ...]:
    """The same for `a.img` and `./a.img`."""
    first, others = parts_of(target)
    return tuple(name if is_url(name) else os.path.abspath(name) for name in (first, *others))


def _lines(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if not word.startswith(LIST) or os.path.lexists(word):
            yield word
            continue
        try:
            text = sys.stdin.read() if word == "@-" else Path(word[1:]).read_text(errors="surrogateescape")
        except OSError as error:
            raise Usage(f"{word[1:]}: {error.strerror}; @FILE is a list of targets, one a line") from None
        yield from (line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#"))


def parts_of(target: str) -> tuple[str, list[str]]:
    """The first device of a volume and its others: `a.img,b.img` where there is no file of that name."""
    if is_url(target) or "," not in target or os.path.lexists(target):
        return target, []
    first, *others = target.split(",")
    return first, others


def _expanded(word: str, traces: bool) -> list[str]:
    if not WILD.search(word) or (not is_url(word) and os.path.lexists(word)):
        return [word]
    found = expand(word) if is_url(word) else sorted(glob.glob(word, recursive=True))
    found = [
        name
        for name in found
        if is_url(name) or not os.path.isdir(name) or (traces and os.path.isfile(os.path.join(name, MANIFEST)))
    ]
    if not found:
        raise Usage(f"{word}: nothing fits this pattern")
    return found
