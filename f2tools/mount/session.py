"""One mount from beginning to end: open the volume as its options say, and let FUSE serve it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.overlay_log import NotItsOverlay
from f2tools.device.media.image import FileDevice, lock
from f2tools.device.media.mounted import identity_of, mark_mounted, mounted_on
from f2tools.device.media.multi import MultiDevice
from f2tools.device.media.remote import is_url
from f2tools.device.open import file_and_part, files_below
from f2tools.errors import DeviceError, F2fsError, NotF2fs, Usage
from f2tools.f2fs.volume.fscrypt import Keyring
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.recovered import recovered
from f2tools.f2fs.write.volume import Policy, WritableVolume
from f2tools.fuse import session
from f2tools.mount.options import MountOptions
from f2tools.mount.tree import AnyTree, LiveTree, RecoveredTree, Tree

MOST_INODES = 1 << 14  # that are read to find what a key opens, before there is a mount: 64 MiB
ENDING_SECONDS = 30.0  # how long an overlay that was mounted a moment ago may take to end


@dataclass
class MountRequest:
    """What is to be mounted, and how; `warnings` is what its user should know."""

    image: str
    directory: str
    options: MountOptions
    devices: Sequence[str] = ()
    overlay: str | None = None
    keys: Sequence[str] = ()
    warnings: list[str] = field(default_factory=list)


# -- opening --------------------------------------------------------------------------------------------------------


def open_tree(request: MountRequest) -> AnyTree:
    """The volume, recovered as a mount does it; read-only where it may not or can't be written."""
    options = request.options
    image, _ = file_and_part(request.image)
    if options.as_of is not None:
        return _open_as_of(request, options.as_of)
    if request.keys:
        return _open_with_keys(request)
    if not options.read_only and request.overlay is None and not os.access(image, os.W_OK):
        if os.access(image, os.R_OK):
            request.warnings.append(f"mounted read-only: {request.image} can't be written by this user")
    elif not options.read_only:
        tree = _open_writable(request)
        if tree is not None:
            return tree
    if options.checkpoint == "newest" and not options.norecovery:
        tree = _open_recovered(request)
        if tree is not None:
            return tree
    return _read_only(request, lambda device: Volume(device, options.checkpoint))


def _read_only(request: MountRequest, volume_on: Callable[[Device], Volume]) -> AnyTree:
    device = _open_to_read(request)
    try:
        volume = volume_on(device)
        _say_state(request, volume)
        volume.nodes.inode(3)  # what can't be used at all is reported now
        with suppress(F2fsError):
            far = any(map(is_url, (request.image, *request.devices)))
            request.warnings += volume.idle_keys(0 if far else MOST_INODES)
        return Tree(volume)
    except BaseException:
        device.close()
        raise


def _say_state(request: MountRequest, volume: Volume) -> None:
    request.warnings += volume.warnings
    what, *_ = volume.shown_older.partition(",")
    if what and not any(what in text for text in request.warnings):
        request.warnings.append(volume.shown_older)


def _open_with_keys(request: MountRequest) -> AnyTree:
    """Read-only: encrypted files are only read."""
    options = request.options
    keyring = Keyring(request.keys)
    if not options.read_only:
        request.warnings.append("mounted read-only: files are not encrypted here, only decrypted")
    if options.norecovery or options.checkpoint != "newest":
        return _read_only(request, lambda device: Volume(device, options.checkpoint, keyring))
    return _read_only(request, lambda device: recovered(device, keyring=keyring))


def _open_as_of(request: MountRequest, when: str) -> AnyTree:
    """Read-only, as the tree was at a checkpoint or a time."""
    from f2tools.forensics.view import as_of

    return _read_only(request, lambda device: as_of(Volume(device, keyring=Keyring(request.keys)), when))


def _open_writable(request: MountRequest) -> AnyTree | None:
    device = _open_overlay(request, request.overlay, False) if request.overlay is not None else _open_image(request)
    try:
        policy = Policy(active_logs=request.options.active_logs, fsync_mode=request.options.fsync_mode)
        volume = WritableVolume(device, policy)
        request.warnings += volume.warnings
        if volume.quotas is None and volume.quota_note:
            request.warnings.append(volume.quota_note)
        return LiveTree(volume, request.options.discard)
    except NotF2fs:
        device.close()
        raise
    except (F2fsError, OSError) as error:
        device.close()
        request.warnings.append(f"mounted read-only: {getattr(error, 'strerror', None) or error}")
        return None
    except BaseException:
        device.close()
        raise


def _open_recovered(request: MountRequest) -> AnyTree | None:
    """Read-only, with what was fsync'ed after the checkpoint: recovery writes into memory."""
    device = Overlay(_open_to_read(request))
    try:
        volume = WritableVolume(device, despite={"ro", "tables"})
        _say_state(request, volume)
        return RecoveredTree(volume)
    except NotF2fs:
        device.close()
        raise
    except Exception as error:
        device.close()
        why = getattr(error, "strerror", None) or str(error)
        request.warnings.append(f"what was fsync'ed after the last checkpoint is not shown: {why}")
        return None  # then as it lies there


def _open_image(request: MountRequest) -> Device:
    device = open_device(request.image, write=True, extra=list(request.devices))
    first = _first_file(device)
    if first is not None:
        mark_mounted(first.fd)
    return device


def _open_below(request: MountRequest) -> Device:
    """The image, locked against other writers."""
    device = open_device(request.image, extra=list(request.devices))
    first = _first_file(device)
    if first is not None:
        try:
            lock(first.fd, first.name, shared=True)
        except DeviceError:
            device.close()
            raise
    return device


def _open_to_read(request: MountRequest) -> Device:
    """The image, below the changes that an overlay's file has."""
    return _open_overlay(request, request.overlay, True) if request.overlay is not None else _open_below(request)


def _open_overlay(request: MountRequest, path: str, read_only: bool) -> Device:
    deadline = time.monotonic() + ENDING_SECONDS
    while True:
        below = _open_below(request)
        names = [file_and_part(request.image)[0], *request.devices, *(file.name for file in files_below(below))]
        if identity_of(path) in map(identity_of, names):
            below.close()
            raise Usage(f"{path}: an overlay is a file of its own, and this one is what {request.image} consists of")
        try:
            return Overlay(below, path, state=_state_of(below), read_only=read_only)
        except DeviceError as error:
            below.close()
            if isinstance(error, NotItsOverlay):
                raise
            # unmounted a moment ago, its last checkpoint is being written
            if mounted_on(request.image) is not None or time.monotonic() > deadline or not os.path.exists(path):
                raise
            time.sleep(0.1)


def _state_of(below: Device) -> bytes:
    """The heads of both checkpoint packs, of which every checkpoint, and every repair of a table, writes one anew.

    Nothing of no volume, nor of a pack that can't be read.  A repair that corrects fields of nodes or entries alone
    writes none: there an overlay still lies over the same state.
    """
    heads: list[bytes] = []
    with suppress(F2fsError):
        geo = Volume(below).geo
        for pack in (geo.cp_blkaddr, geo.cp_blkaddr + geo.blocks_per_seg):
            with suppress(DeviceError):
                heads.append(below.pread(pack * geo.block_size, geo.block_size))
    return b"".join(heads)


def _first_file(device: Device) -> FileDevice | None:
    first = device.members[0] if isinstance(device, MultiDevice) else device
    return first if isinstance(first, FileDevice) else None


# -- serving --------------------------------------------------------------------------------------------------------


def serve(request: MountRequest, ready: Callable[[], None]) -> None:
    """Mount, say that it is `ready`, and serve until it is unmounted; the volume is closed then."""
    tree = open_tree(request)
    files = files_below(tree.volume.device) if tree.writable else []
    session.serve(tree, request.image, request.directory, request.options, ready, [file.fd for file in files])
