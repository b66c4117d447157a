"""A volume to examine whose superblocks, or checkpoints, are gone: found by its nodes, in memory.

What the tables still say counts.  Where the node table is gone too, nothing tells living files from deleted ones, and
all of them count as deleted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import NotF2fs
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.checkpoint import read_packs
from f2tools.f2fs.volume.derived import derived_pack, nat_leads, patches_of
from f2tools.f2fs.volume.found_layout import superblock_of_nodes
from f2tools.f2fs.volume.fscrypt import Keyring
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.f2fs.volume.layouts import Layout
from f2tools.f2fs.volume.super import overwritten_by, read_superblocks
from f2tools.f2fs.volume.volume import Volume

Path = str | os.PathLike[str]


def open_to_examine(
    path: Path, devices: Sequence[Path] = (), keys: Sequence[Path | bytes] = (), layout: Layout | None = None
) -> Volume:
    """Open an image for reading, by its nodes where it has no superblock or no checkpoint; `warnings` say so.

    layout: of the volume, where no superblock is left.  NotF2fs where there are no nodes either.
    """
    keyring = Keyring([os.fspath(key) if not isinstance(key, bytes) else key for key in keys])
    device = open_device(os.fspath(path), extra=[os.fspath(one) for one in devices])
    try:
        try:
            return Volume(device, keyring=keyring)
        except NotF2fs as error:
            overlay, warnings = _found(device, layout, error)
            volume = Volume(overlay, keyring=keyring)
            volume.warnings[:0] = warnings
            return volume
    except BaseException:
        device.close()
        raise


def _found(device: Device, layout: Layout | None, error: NotF2fs) -> tuple[Overlay, list[str]]:
    """The device with what is missing put in place in memory; what that was, in words."""
    warnings: list[str] = []
    overlay = Overlay(device)
    sb = next((copy.sb for copy in read_superblocks(device) if copy.valid), None)
    if sb is None:
        sb = _superblock(device, layout, error)
        for offset, data in patches_of(sb):
            overlay.pwrite(offset, data)
        warnings.append(f"no superblock is left: the layout was found by nodes, the main area at {sb.main_blkaddr:#x}")
        other = overwritten_by(device, read_superblocks(device))
        if other:
            warnings.append(f"{other} is there now, made over the volume whose remains are shown")
    geo = Geometry.of(sb)
    if not any(pack.valid for pack in read_packs(overlay, geo)):
        patches = derived_pack(overlay, geo, nodes_live=False)
        if not patches:
            raise error
        warnings.append("no checkpoint is left: what it alone held is not known")
        if not nat_leads(overlay, geo):
            warnings.append("no node table is left: living files can't be told from deleted ones, all count as deleted")
        for offset, data in patches:
            overlay.pwrite(offset, data)
    return overlay, warnings


def _superblock(device: Device, layout: Layout | None, error: NotF2fs) -> SuperBlock:
    sb = superblock_of_nodes(device, layout)
    if sb is None:
        with_it = "" if layout is None else " with this layout"
        raise NotF2fs(f"{error}; no nodes of a volume{with_it} are found either") from None
    sb.uuid = bytes(16)  # opening it again finds the same, and an index of it fits
    return sb
