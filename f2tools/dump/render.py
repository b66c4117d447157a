"""Text for people: two-column lists, tables, hex dumps; as wide as the terminal, and never cut off in a pipe.

rich is imported when the first console is made.  Addresses are hexadecimal, counts decimal, everywhere alike.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from f2tools.f2fs.layout.constants import COMPRESS_ADDR, NEW_ADDR, NULL_SEGNO
from f2tools.text import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PIPE_WIDTH = 200  # columns where there is no terminal
TERMINAL = (80, 25)  # of one that doesn't know its size
FOLDED = 16  # columns that text is folded to, at least
HEX_WORDS = ("blkaddr", "block_addr", "blk_addr", "magic", "hash_code", "cp_ver", "checkpoint_ver", "feature", "crc")
HEX_WORDS += ("offset", "ckpt_flags", "stored", "computed", "i_inode_checksum", "i_generation", "i_flags", "check_sum")
DECIMAL = ("checksum_offset",)
ADDRESS_WORDS = ("blkaddr", "block_addr", "blk_addr")


def make_console() -> Console:
    """A console on stdout; without a terminal as wide as $COLUMNS says, or wide enough for anything."""
    from rich.console import Console

    class OurConsole(Console):
        """Lets the command line handle a reader that has gone, where rich would exit with 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    size = shutil.get_terminal_size(TERMINAL if sys.stdout.isatty() else (PIPE_WIDTH, TERMINAL[1]))
    return OurConsole(highlight=False, markup=False, emoji=False, width=size.columns, height=size.lines)


def value(name: str, item: Any) -> str:
    """One value as text, by the name of its field."""
    if item is None:
        return "-"
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, int):
        return number(name, item)
    if isinstance(item, list) and name.endswith(("_segno", "_blkoff")):
        return " ".join("-" if one == NULL_SEGNO else str(one) for one in item)
    if isinstance(item, list):
        return ", ".join(value(name, one) for one in item) if item else "-"
    if isinstance(item, dict):
        return ", ".join(f"{key} {value(key, one)}" for key, one in item.items()) if item else "-"
    return printable(str(item))


def number(name: str, item: int) -> str:
    """Hexadecimal for addresses, hashes and bit fields; decimal for the rest."""
    name = name.rpartition(".")[2]
    if name in DECIMAL or not any(name == word or name.endswith("_" + word) for word in HEX_WORDS):
        return str(item)
    if any(name == word or name.endswith("_" + word) for word in ADDRESS_WORDS):
        return {0: "0", NEW_ADDR: "NEW", COMPRESS_ADDR: "COMPRESS"}.get(item, f"{item:#x}")
    return f"{item:#x}"


def _put(console: Console, what: RenderableType, least: int) -> None:
    """Print, `least` columns wide at least; without a terminal, without the spaces that fill lines up."""
    width = console.width
    console.width = max(width, least)  # a terminal breaks long lines; rich would leave columns out
    try:
        _print(console, what)
    finally:
        console.width = width


def _print(console: Console, what: RenderableType) -> None:
    if console.is_terminal:
        console.print(what)
        return
    with console.capture() as captured:
        console.print(what)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def title(console: Console, text: str) -> None:
    """A heading."""
    from rich.text import Text

    console.print(Text(text, style="bold"), soft_wrap=True)


def pairs(console: Console, rows: Iterable[tuple[str, Any]], indent: int = 2) -> None:
    """Names and values in two columns; a long value goes on below itself."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    longest = 0
    for name, item in rows:
        grid.add_row(Text(name, style="cyan"), Text(value(name, item)))
        longest = max(longest, len(name))
    _put(console, Padding(grid, (0, 0, 0, indent), expand=False), indent + longest + 2 + FOLDED)


def table(
    console: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    left: Sequence[str] = (),
    indent: int = 2,
) -> None:
    """Rows under a header; columns are aligned to the right unless in `left`."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    fixed = [i == 0 or name not in left for i, name in enumerate(columns)]
    widths = [max(len(name), 0 if whole else FOLDED) for name, whole in zip(columns, fixed, strict=True)]
    for name, whole in zip(columns, fixed, strict=True):
        made.add_column(name, justify="left" if name in left else "right", overflow="fold", no_wrap=whole)
    for row in rows:
        cells = [Text(value(name, item)) for name, item in zip(columns, row, strict=True)]
        widths = [max(width, cell.cell_len) if whole else width
                  for width, cell, whole in zip(widths, cells, fixed, strict=True)]  # fmt: skip
        made.add_row(*cells)
    _put(console, Padding(made, (0, 0, 0, indent), expand=False), indent + sum(width + 2 for width in widths))


def dicts(console: Console, rows: Sequence[dict[str, Any]], *, left: Sequence[str] = (), indent: int = 2) -> None:
    """Dictionaries of equal keys as a table; says so where there are none."""
    if not rows:
        console.print(" " * indent + "(none)")
        return
    names = list(rows[0])
    table(console, names, ([row.get(name) for name in names] for row in rows), left=left, indent=indent)


def hex_dump(data: bytes, base: int = 0) -> Iterator[str]:
    """Lines of 16 bytes with offset, hexadecimal and characters; a run of equal lines is one `*`."""
    previous, skipping = None, False
    for at in range(0, len(data), 16):
        line = data[at : at + 16]
        if line == previous and at + 16 < len(data):
            if not skipping:
                yield "*"
            skipping = True
            continue
        previous, skipping = line, False
        left, right = line[:8].hex(" "), line[8:].hex(" ")
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        yield f"{base + at:08x}  {left:<23}  {right:<23}  {text}"
