"""`f2tools dffs mount`: the volume in a dump of a chip as a file system that is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from f2tools.fuse.command import mount_command

if TYPE_CHECKING:
    from f2tools.device.base import Device
    from f2tools.dffs.files import Files
    from f2tools.dffs.space import Policy

_OPTIONS = (
    click.Option(["--cache", "keep_nodes"], type=click.IntRange(64, 1 << 20), default=1024, show_default=True,
                 help="Inodes and directories kept in memory; it doesn't grow with their number."),
    click.Option(["--policy"], type=click.Choice(["greedy", "cost-benefit"]), default="greedy", show_default=True,
                 help="Which erase blocks are cleaned first."),
)  # fmt: skip


def _opened(file: Device, write: bool, _: list[str], keep_nodes: int, policy: Policy) -> Files:
    from f2tools.dffs.files import Files, LiveFiles
    from f2tools.dffs.volume import Volume
    from f2tools.dffs.write import WritableVolume

    if write:
        files = LiveFiles(WritableVolume(file, keep_nodes=keep_nodes, policy=policy))
    else:
        files = Files(Volume(file, keep_nodes=keep_nodes))
    files.inode(files.root_ino)  # what can't be used at all is told now
    return files


mount = mount_command("dffs", "card.nand", _opened, metavar="FLASH", options=_OPTIONS)
