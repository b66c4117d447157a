"""The layer in an image file, opened by commands that change its content, for a rehearsal or with an undo log."""

from __future__ import annotations

from f2tools.device.base import Device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.undo import UndoLog
from f2tools.device.media.image import open_image
from f2tools.flash.vsl import Vsl, open_vsl


def layer_in_memory(path: str) -> Vsl:
    """The layer in an image, which itself stays as it is: whatever is written is in memory."""
    return _opened(Overlay(open_image(path)))


def layer_to_change(path: str, undo: str | None = None) -> Vsl:
    """The layer in an image, for writing; with `undo`, what is overwritten in the image is kept in that new file."""
    device = open_image(path, write=True)
    try:
        return _opened(UndoLog(device, undo) if undo is not None else device)
    except BaseException:
        device.close()
        raise


def _opened(device: Device) -> Vsl:
    try:
        return open_vsl(device)
    except BaseException:
        device.close()
        raise
