"""Open whatever a path names: it need not be said what kind of place it is."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from f2tools.device.base import Device
from f2tools.device.image import create_image, kind_of, open_image
from f2tools.errors import Unsupported, Usage

SPARSE_MAGIC = b"\x3a\xff\x26\xed"


def open_device(
    path: str | Path,
    *,
    write: bool = False,
    extra: Sequence[str | Path] = (),
    create_size: int | None = None,
) -> Device:
    """An image file, a block device or an Android sparse image; with `extra`, several of them as one volume.

    Read-only unless `write`.  `create_size` makes a new image file of that many bytes at `path`; DeviceError where
    there is something by that name.  Usage where the same place is named twice.
    """
    _check_distinct([path, *extra])
    others: list[Device] = []
    try:
        others += (_open_one(one, write or create_size is not None) for one in extra)
        first = create_image(path, create_size) if create_size is not None else _open_one(path, write)
    except BaseException:
        for device in others:
            device.close()
        raise
    if not others:
        return first
    from f2tools.device.multi import MultiDevice

    return MultiDevice([first, *others])


def open_for_change(
    path: str | Path, *, extra: Sequence[str | Path] = (), dry_run: bool = False, undo: str | None = None
) -> Device:
    """What a command that changes an image opens: itself; with `undo` behind a log of what is overwritten; for a
    `dry_run` read-only below changes in memory."""
    if dry_run:
        from f2tools.device.overlay import Overlay

        return Overlay(open_device(path, extra=extra))
    device = open_device(path, write=True, extra=extra)
    if not undo:
        return device
    from f2tools.device.undo import UndoLog

    try:
        return UndoLog(device, undo)
    except BaseException:
        device.close()
        raise


def _open_one(path: str | Path, write: bool) -> Device:
    if kind_of(path) == stat.S_IFBLK:
        from f2tools.device.block import open_block

        return open_block(path, write)
    image = open_image(path, write)
    if image.size_bytes < 4 or image.pread(0, 4) != SPARSE_MAGIC:
        return image
    image.close()
    if write:
        raise Unsupported(f"{os.fspath(path)}: an Android sparse image can't be changed in place; convert it first")
    from f2tools.device.sparse import open_sparse

    return open_sparse(path)


def _check_distinct(paths: Sequence[str | Path]) -> None:
    """The same place twice would be a volume with itself as its second device."""
    seen: set[str] = set()
    for path in paths:
        name = os.fspath(path)
        real = os.path.realpath(name) if "\0" not in name else name
        if real in seen:
            raise Usage(f"{name}: named twice")
        seen.add(real)
