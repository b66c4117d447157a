"""Open what a path names, whatever kind of place it is.

`IMAGE@PART` names a partition of a disk, by its number, its name or its GUID, and `IMAGE@+BYTES` what begins there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from f2tools.device.base import Device, Wrapper
from f2tools.device.containers.only_read import OnlyRead, refused
from f2tools.device.media.image import FileDevice, ImageFile, create_image, kind_of, open_source
from f2tools.device.media.remote import exists, is_url
from f2tools.errors import DeviceError, F2fsError, Unsupported, Usage
from f2tools.process import why_not_here
from f2tools.text import pasted

if TYPE_CHECKING:
    from pathlib import Path

SPARSE_MAGIC = b"\x3a\xff\x26\xed"
ZST_MAGIC = b"\x28\xb5\x2f\xfd"
HEAD = 512  # bytes by which an image is told
# first bytes of the kinds in `containers`; a raw image of F2FS begins with zeros or boot code
CONTAINER_STARTS = (
    b"EVF",
    b"QFI\xfb",
    b"KDMV",
    b"COWD",
    b"# Disk D",
    b"vhdxfile",
    b"conectix",
    b"AFF10",
    b"<<< ",
    b"PK\x03\x04",
)

# Kinds of images that a library above this one opens: how they begin, and who does it.  It is looked up by its name, as
# commands are: devices know nothing of what is built on them.
LAYERS = {b"F2VSLIMG": "f2tools.flash.vsl:open_vsl"}


def open_device(
    path: str | Path,
    *,
    write: bool = False,
    extra: Sequence[str | Path] = (),
    create_size: int | None = None,
    whole: bool = False,
    below_layers: bool = False,
) -> Device:
    """An image, a block device, or a partition of one; with `extra`, several of them as one volume.

    An image may be raw, in pieces, packed with zstd, Android sparse, or a container such as E01 or qcow2; only raw ones
    are written to, and those of a virtualized storage layer.
    Of a disk with one F2FS partition that one is opened, unless the `whole` is wanted; of an image of a storage layer
    what is in its space, unless what is `below_layers` is wanted.

    Read-only unless `write`.  `create_size` makes a new image file of that many bytes at `path`; Taken where
    there is something by that name.  Usage where the same place is named twice.
    """
    if why := why_not_here():
        raise F2fsError(why)
    _check_distinct([path, *extra])
    others: list[Device] = []
    try:
        others += (_open_one(one, write or create_size is not None, True) for one in extra)
        first = (
            create_image(path, create_size) if create_size is not None else _open_one(path, write, whole, below_layers)
        )
    except BaseException:
        for device in others:
            device.close()
        raise
    if not others:
        return first
    from f2tools.device.media.multi import MultiDevice

    return MultiDevice([first, *others])


def open_for_change(
    path: str | Path,
    *,
    extra: Sequence[str | Path] = (),
    dry_run: bool = False,
    undo: str | None = None,
    whole: bool = False,
) -> Device:
    """What a command that changes an image opens: itself; with `undo` behind a log of what is overwritten; for a
    `dry_run` read-only below changes in memory, refused where the log would be.  `whole` as in `open_device`."""
    if dry_run:
        from f2tools.device.changes.overlay import Overlay

        if undo is not None:
            from f2tools.device.changes.undo import must_be_free

            must_be_free(undo)
        return Overlay(open_device(path, extra=extra, whole=whole))
    device = open_device(path, write=True, extra=extra, whole=whole)
    if undo is None:
        return device
    from f2tools.device.changes.undo import UndoLog

    try:
        return UndoLog(device, undo)
    except BaseException:
        device.close()
        raise


def only_read(path: str | Path) -> OnlyRead | None:
    """Why nothing is written to what a path names, where that lies in its kind; DeviceError where it can't be read."""
    name, _ = file_and_part(path)
    if kind_of(name) == stat.S_IFBLK:
        return None
    try:
        with open_source(name, write=is_url(name)) as image:
            _open_other(name, image, write=True)
    except OnlyRead as why:
        return why
    return None


def lacks_its_end(path: str | Path) -> bool:
    """Whether an image of a kind that says its size is cut off; no copying of the file brings back what is missing."""
    with open_device(path, whole=True) as device:
        return device.missing_bytes > 0


def resizable(device: Device) -> bool:
    """Whether what lies below overlays and logs is a file, or several, which can be made longer."""
    from f2tools.device.media.multi import MultiDevice

    can = device.resizable  # a partition can't, though it lies in a file
    while isinstance(device, Wrapper):
        device = device.base
    if isinstance(device, MultiDevice):
        return all(resizable(member) for member in device.members)
    return can and isinstance(device, ImageFile)


def can_grow(path: str | Path, extra: Sequence[str | Path] = ()) -> bool:
    """Whether what these paths name can be made longer: a device and a partition can't."""
    with open_device(path, extra=extra) as device:
        return resizable(device)


def files_below(device: Device) -> list[FileDevice]:
    """The files and block devices that changes go to; none of an overlay, which leaves them as they are."""
    from f2tools.device.changes.overlay import Overlay
    from f2tools.device.media.multi import MultiDevice

    if isinstance(device, MultiDevice):
        return [file for member in device.members for file in files_below(member)]
    while isinstance(device, Wrapper) and not isinstance(device, Overlay):
        device = device.base
    return [device] if isinstance(device, FileDevice) else []


def file_and_part(path: str | Path) -> tuple[str, str]:
    """`IMAGE@PART` taken apart; PART is empty where there is none, or where a file has just this name.

    PART may have an @ too where IMAGE is a file: it begins after the longest name that there is.
    """
    name = os.fspath(path)
    if is_url(name):
        image, _, part = name.rpartition("@")
        named = image and "/" not in part and "::" not in name and not (part[:1] != "+" and exists(name))
        return (image, part) if named else (name, "")
    if "@" not in name or "\0" in name or os.path.lexists(name):
        return name, ""
    at = len(name)
    while (at := name.rfind("@", 0, at)) >= 0:
        image, part = name[:at], name[at + 1 :]
        if part and os.path.lexists(image):
            return image, part
    return name, ""


def _open_one(path: str | Path, write: bool, whole: bool, below_layers: bool = False) -> Device:
    name, part = file_and_part(path)
    device = _open_disk(name, write, below_layers)
    if not part and whole:
        return device
    from f2tools.device.containers.partition import choose, the_only_volume

    return choose(device, part) if part else the_only_volume(device)


def _open_disk(name: str, write: bool, below_layers: bool) -> Device:
    if kind_of(name) == stat.S_IFBLK:
        from f2tools.device.media.block import open_block

        return open_block(name, write)
    image = open_source(name, write)
    try:
        layer = None if below_layers else _open_layer(image)
        if layer is not None:
            return layer
        other = _open_other(name, image, write)
    except BaseException:
        image.close()
        raise
    if other is None:
        return image
    image.close()
    return other


def _head_of(image: Device) -> bytes:
    """The first bytes; none where a medium doesn't give them: a volume is opened by its second superblock then."""
    try:
        return image.pread(0, min(HEAD, image.size_bytes))
    except DeviceError as error:
        if not error.failing:
            raise
        return b""


def _open_layer(image: Device) -> Device | None:
    """The device that a library above makes of an image, which it then owns; None for images of other kinds."""
    head = _head_of(image)
    for magic, opener in LAYERS.items():
        if head.startswith(magic):
            module, _, function = opener.partition(":")
            return getattr(import_module(module), function)(image)
    return None


def _open_other(name: str, image: Device, write: bool) -> Device | None:
    """What is in an image that isn't raw, or is only the first piece of one; None for a raw one."""
    from f2tools.device.containers.split import joined_by, open_split, pieces_of

    head = _head_of(image)
    if head.startswith(SPARSE_MAGIC):
        if write:
            raise refused(name, "an Android sparse image")
        from f2tools.device.containers.sparse import open_sparse

        return open_sparse(name)
    if head.startswith(ZST_MAGIC) and not is_url(name):
        if write:
            raise refused(name, "an image packed with zstd")
        from f2tools.device.containers.zst import open_zst

        unpacked = open_zst(name, image.plain_file())
        if unpacked.pread(0, min(HEAD, unpacked.size_bytes)).startswith((SPARSE_MAGIC, ZST_MAGIC, *CONTAINER_STARTS)):
            unpacked.close()
            command = f"zstd -d {pasted(name)} -o COPY"
            raise Unsupported(f"{name}: what is packed in it is no raw image; unpack it first: `{command}`")
        return unpacked
    if head.startswith(CONTAINER_STARTS):
        from f2tools.device.containers.aff4 import is_aff4, open_aff4
        from f2tools.device.containers.libyal import kind_of_container, open_container
        from f2tools.device.containers.qcow2 import MAGIC, open_qcow2

        if head.startswith(MAGIC):
            if write:
                raise refused(name, "a qcow2 image")
            return open_qcow2(name, lambda below: open_device(below, whole=True))
        if is_aff4(image, head):
            if write:
                raise refused(name, "an AFF4 image")
            return open_aff4(name)
        kind = kind_of_container(head)
        if kind is not None:
            if write:
                raise refused(name, kind.name)
            return open_container(name, kind)
    pieces = [] if is_url(name) else pieces_of(name)
    if not pieces:
        return None
    if write:
        raise OnlyRead(name, f"an image in {len(pieces)} pieces", joined_by(pieces))
    return open_split(pieces)


def _check_distinct(paths: Sequence[str | Path]) -> None:
    """The same place twice would be a volume with itself as its second device."""
    seen: set[str] = set()
    for path in paths:
        name = os.fspath(path)
        real = os.path.realpath(name) if "\0" not in name else name
        if real in seen:
            raise Usage(f"{name}: named twice")
        seen.add(real)
