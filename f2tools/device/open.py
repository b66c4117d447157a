"""Open whatever a path names: it need not be said what kind of place it is."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from f2tools.device.base import Device
from f2tools.device.image import ImageFile, create_image, lock, open_fd
from f2tools.errors import DeviceError, Unsupported


def open_device(
    path: str | Path,
    *,
    write: bool = False,
    extra: Sequence[str | Path] = (),
    create_size: int | None = None,
) -> Device:
    """An image file, a block device or an Android sparse image; with `extra`, several of them as one volume.

    Read-only unless `write`.  `create_size` makes a new image file of that many bytes.
    """
    if create_size is not None:
        return create_image(path, create_size)
    if extra:
        from f2tools.device.multi import MultiDevice

        return MultiDevice([_open_one(one, write) for one in (path, *extra)])
    return _open_one(path, write)


def _open_one(path: str | Path, write: bool) -> Device:
    name = os.fspath(path)
    fd, status = open_fd(path, write)
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFREG:
        if os.pread(fd, 4, 0) == b"\x3a\xff\x26\xed":
            os.close(fd)
            if write:
                raise Unsupported(f"{name}: an Android sparse image can't be changed in place; convert it first")
            from f2tools.device.sparse import open_sparse

            return open_sparse(path)
        if write:
            lock(fd, name)
        return ImageFile(path, fd, status.st_size, write)
    os.close(fd)
    if kind == stat.S_IFBLK:
        from f2tools.device.block import open_block

        return open_block(path, write)
    what = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a character device"}
    raise DeviceError(
        f"{name}: {what.get(kind, 'neither a file nor a device')}; an image file or a block device is needed"
    )
