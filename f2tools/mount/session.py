"""One mount from beginning to end: open the volume, hand it to FUSE, serve, make the last checkpoint."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyfuse3

from f2tools.device import Device, open_device
from f2tools.errors import Corrupt, DeviceError, F2fsError, NotF2fs, Unsupported
from f2tools.mount.background import Tending
from f2tools.mount.loop import Loop
from f2tools.mount.operations import FileSystem
from f2tools.mount.options import MountOptions
from f2tools.mount.tree import LiveTree, Tree
from f2tools.volume.volume import Volume
from f2tools.volume.writer import Policy, WritableVolume

log = logging.getLogger("f2tools.mount")


@dataclass
class Request:
    """What is to be mounted, and how."""

    image: str
    directory: str
    options: MountOptions
    devices: Sequence[str] = ()
    overlay: str | None = None
    warnings: list[str] = field(default_factory=list)


def open_tree(request: Request) -> Tree:
    """The volume, recovered as a mount does it; read-only where it may not, or can't, be written."""
    options = request.options
    if not options.read_only:
        device = _open(request, write=True)
        try:
            return LiveTree(WritableVolume(device, Policy(active_logs=options.active_logs)))
        except NotF2fs:
            device.close()
            raise
        except (F2fsError, OSError) as error:
            device.close()
            request.warnings.append(f"mounted read-only: {error}")
    device = _open(request, write=False)
    try:
        volume = Volume(device, options.checkpoint)
        volume.nat  # noqa: B018 - what can't be read at all is told now
        request.warnings += volume.warnings
        return Tree(volume)
    except BaseException:
        device.close()
        raise


def _open(request: Request, write: bool) -> Device:
    return open_device(request.image, write=write, extra=list(request.devices))


def serve(request: Request, ready: Callable[[], None]) -> None:
    """Mount, say that it is `ready`, and serve until it is unmounted."""
    tree = open_tree(request)
    try:
        files = FileSystem(tree, request.options)
        for text in request.warnings:
            log.warning("%s: %s", request.image, text)
        _init(files, request)
        try:
            volume = tree.volume if isinstance(tree.volume, WritableVolume) else None
            tending = Tending(files, volume, request.options)
            loop = Loop(tending)
            ready()
            loop.run()
        finally:
            pyfuse3.close(unmount=True)
    finally:
        tree.close()


def _init(files: FileSystem, request: Request) -> None:
    name = os.path.abspath(request.image).replace("\\", "\\\\").replace(",", "\\,")
    options = {"default_permissions", "fsname=" + name, "subtype=f2tools"} | request.options.for_kernel
    if not files.tree.writable:
        options.add("ro")
    try:
        pyfuse3.init(files, request.directory, options)
    except RuntimeError as error:
        raise OSError(errno.EIO, f"the kernel did not take the mount ({error})", request.directory) from None


__all__ = ["Corrupt", "DeviceError", "Request", "Unsupported", "open_tree", "serve"]
