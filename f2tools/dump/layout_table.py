"""The declarations of the format as tables, for `dump layout` and docs/layout.md."""

from __future__ import annotations

import difflib
from typing import Any

from f2tools.codec import Layout
from f2tools.errors import Usage
from f2tools.f2fs.layout import structures


def meaning_of(layout: type[Layout]) -> str:
    """What a structure is for: its docstring without the name."""
    return " ".join((layout.__doc__ or "").split()).partition(": ")[2].rstrip(".")


def structure_list(block_size: int = 4096) -> list[dict[str, Any]]:
    """Every structure: `name`, `kernel_name`, `size`, `meaning`."""
    return [_head(one.at(block_size)) for one in structures()]


def structure_table(name: str, block_size: int = 4096) -> dict[str, Any]:
    """One structure, and under `fields` the offset, size, type and meaning of each; Usage for an unknown name."""
    found = find_structure(name).at(block_size)
    return _head(found) | {
        "fields": [
            {"offset": f.offset, "size": f.size, "type": f.type_name, "name": f.name, "meaning": f.meaning}
            for f in found.fields
        ]
    }


def find_structure(name: str) -> type[Layout]:
    """A structure by its name here or in the kernel (with or without `f2fs_`), upper and lower case alike."""
    wanted = _plain(name)
    names: dict[str, type[Layout]] = {}
    for one in structures():
        for called in (one.__name__, one.kernel_name(), one.kernel_name().removeprefix("f2fs_")):
            names.setdefault(_plain(called), one)
    if wanted in names:
        return names[wanted]
    close = [names[n].__name__ for n in difflib.get_close_matches(wanted, names, 3, 0.5)]
    hint = f"; close to it: {', '.join(dict.fromkeys(close))}" if close else ""
    raise Usage(f"no structure is called {name!r}{hint}; without a name, all are listed")


def _plain(name: str) -> str:
    return name.lower().removeprefix("struct ").replace("_", "")


def _head(one: type[Layout]) -> dict[str, Any]:
    return {
        "name": one.__name__,
        "kernel_name": one.kernel_name(),
        "size": one.size,
        "meaning": meaning_of(one),
    }
