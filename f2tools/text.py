"""Text from images, traces and file names on its way out: one function for each kind of reader.

A name may hold anything.  A terminal would obey it, a table begin a new row, a spreadsheet compute it, a page run it;
the text made here can only be read.  JSON needs none of this: its writer escapes, and keeps the bytes of names.  Paths
are counted and joined here too, patterns for them expanded, and bars and shades of pictures in text drawn.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from typing import Any

# characters that begin a formula in spreadsheets, the wide forms too
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NUMBERS = (int, float)
FULL = "█"
SHADES = "░▒▓" + FULL
EIGHTHS = " ▁▂▃▄▅▆▇" + FULL
EMPTY = "·"
# how pages and pictures begin that are made here, so that the next run may replace them
PAGE_HEAD = '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="f2tools">'
PICTURE_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!-- made by f2tools -->'
_MAGIC = re.compile(rb"[*?[]")
_ESCAPE = re.compile(r"\\(?=x[0-9A-Fa-f]{2})")


def printable(text: str) -> str:
    """For a terminal: control characters, marks of direction and undecodable bytes as escapes, nothing else touched."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def printable_name(name: str) -> str:
    """`printable` for a name, path or target on its own: no two look alike, and every byte can be read back.

    A backslash before what looks like one of our escapes is one itself, `\\x5c`.  `printable` changes nothing in what
    is made here, so it may become a part of a message; but it is made once.
    """
    return printable(_ESCAPE.sub(r"\\x5c", name) if "\\x" in name else name)


def printable_lines(text: str) -> str:
    """`printable` for several lines, which stay lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


def counted(count: int, one: str, more: str = "") -> str:
    """A count with what is counted: `1 file`, `2 files`; `more` where the plural is not `one` with an s."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def command_line(command: str, *paths: str, devices: Sequence[str] = ()) -> str:
    """A command to paste into a shell: our own words as they are, and behind them paths that the user has given.

    `devices`: the further ones of a volume on several, which every command has to be told of.
    """
    return " ".join((command, *map(pasted, paths), *(f"--device {pasted(device)}" for device in devices)))


def copies_failing(path: str) -> str:
    """The command that copies what can be read of a failing medium to COPY, with a map from which it can go on."""
    return f"{command_line('ddrescue -r3', path)} COPY COPY.map"


def pasted(path: str) -> str:
    """A path as a word of a command: never an option, and with what `printable` would change written $'...', byte by
    byte."""
    import shlex

    word = f"./{path}" if path.startswith("-") else path
    return shlex.quote(word) if word.isprintable() else f"$'{_ansi(word)}'"


def csv_line(values: Iterable[object]) -> str:
    """A row of a table, without its end: texts in quotes and on one line, none of them a formula; None is empty."""
    return ",".join([str(value) if isinstance(value, _NUMBERS) else _quoted(value) for value in values])


def csv_text(text: str) -> str:
    """A text in such a row, as of `printable_name`; an apostrophe is put before what would be a formula without one."""
    text = printable_name(text).replace('"', '""')
    return f'"\'{text}"' if text.lstrip("'").startswith(_FORMULA) else f'"{text}"'


def bodyfile_field(text: str) -> str:
    """A name for a body file of The Sleuth Kit, whose fields end at a `|`."""
    return printable_name(text).replace("|", "\\x7c")


def l2t_field(text: str) -> str:
    """A name for log2timeline's readers, which split rows at commas and know no quotes."""
    return printable_name(text).replace(",", "\\x2c")


def markup(text: str) -> str:
    """For HTML, SVG and XML such as DFXML, as content or as the value of an attribute; a name from `printable_name`."""
    import html

    return html.escape(printable(text))


def several(given: Any) -> list[Any]:
    """What an argument for several paths or words names; a single one stands for itself, and is never taken apart."""
    return [given] if isinstance(given, str | bytes | os.PathLike) else list(given)


def join(directory: bytes, name: bytes) -> bytes:
    """A path from a directory's path, which may be empty, and a name."""
    return directory + name if not directory or directory.endswith(b"/") else directory + b"/" + name


def upward(names: Sequence[bytes], top: bytes = b"/") -> bytes:
    """The path whose names were found from the last one up; `top` comes before the first."""
    return top + b"/".join(reversed(names))


def expanded(
    pattern: bytes, is_there: Callable[[bytes], bool], names_in: Callable[[bytes], Iterable[bytes]]
) -> list[bytes]:
    """The paths that a pattern means, as in a shell, sorted; nothing where none matches.

    `*`, `?` and `[...]` match within one name, and a leading dot only where the pattern has it.  What has no
    wildcard, or is really called like that, stays as it is.  `names_in` gives the names in a directory,
    none where it can't be read.
    """
    if _MAGIC.search(pattern) is None or is_there(pattern):
        return [pattern]
    from fnmatch import fnmatchcase

    found = [b"/"] if pattern.startswith(b"/") else [b""]
    for part in filter(None, pattern.split(b"/")):
        if _MAGIC.search(part) is None:
            found = [path for path in (join(directory, part) for directory in found) if is_there(path)]
            continue
        dots = part.startswith(b".")
        found = [
            join(directory, name)
            for directory in found
            for name in names_in(directory or b"/")
            if fnmatchcase(name, part) and (dots or name[:1] != b".")
        ]
    return sorted(found)


def shade(share: float, full_from: float = 0.75) -> str:
    """A shade for how much of something is in use, from a little to all; `full_from`: the least share shown as all."""
    return SHADES[min(len(SHADES) - 1, int(share * (len(SHADES) - 1) / full_from))]


def bar(count: float, most: float, width: int) -> str:
    """A bar for a count, `width` signs for the largest; even the smallest is visible."""
    return FULL * max(1, round(width * count / most))


def sparkline(values: list[float], width: int = 64) -> str:
    """A row of upright bars, at most `width` of them; each stands for as many values as it takes."""
    if not values:
        return ""
    step = max(-(-len(values) // width), 1)
    sums = [sum(values[at : at + step]) for at in range(0, len(values), step)]
    top = max(sums)
    return "".join(EIGHTHS[min(-(-int(8 * value) // int(top)), 8) if top >= 1 else 0] for value in sums)


def _quoted(value: object) -> str:
    """What csv.QUOTE_NONNUMERIC makes of a value that is no plain number, without its state for each row."""
    if value is None:
        return '""'
    if isinstance(value, str):
        return csv_text(value)
    import csv

    row = StringIO()
    csv.writer(row, lineterminator="", quoting=csv.QUOTE_NONNUMERIC).writerow((value,))
    return row.getvalue()


def _ansi(word: str) -> str:
    return "".join(f"\\{c}" if c in "\\'" else c if c.isprintable() else _escaped(c) for c in word)


def _escaped(c: str) -> str:
    raw = bytes([ord(c) - 0xDC00]) if "\udc80" <= c <= "\udcff" else c.encode("utf-8", "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in raw)
