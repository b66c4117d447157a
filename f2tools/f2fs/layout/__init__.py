"""Every on-disk structure, constant and flag of F2FS, in kernel spelling; one module per part of the volume."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from f2tools.codec import Layout

MODULES = ("super", "checkpoint", "sit", "nat", "summary", "node", "dentry", "xattr", "compress", "verity", "quota")


def structures() -> Iterator[type[Layout]]:
    """Every declared structure, in disk order."""
    for name in MODULES:
        module = import_module(f"{__name__}.{name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Layout) and value.__module__ == module.__name__:
                yield value
