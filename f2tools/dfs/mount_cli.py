"""`f2tools dfs mount`: the volume in an image file as a file system that is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from f2tools.fuse.command import mount_command

if TYPE_CHECKING:
    from f2tools.device.base import Device
    from f2tools.dfs.files import Files


def _opened(file: Device, write: bool, warnings: list[str]) -> Files:
    from f2tools.dfs.files import Files, LiveFiles
    from f2tools.dfs.volume import Volume, not_dfs
    from f2tools.dfs.write import WritableVolume
    from f2tools.flash.medium import NotVsl
    from f2tools.flash.vsl import open_vsl

    try:
        layer = open_vsl(file)
    except NotVsl:
        raise not_dfs(file) from None
    write = write and not layer.lost_pages
    files = LiveFiles(WritableVolume(layer)) if write else Files(Volume(layer))
    if files.volume.doubt is not None:
        warnings.append(f"mounted read-only: {files.volume.doubt}")
    files.volume.inode(files.root_ino)  # what can't be used at all is told now
    return files


mount = mount_command("dfs", "card.dfs", _opened)
