"""A volume as a mount would leave it after a crash, for reading: what recovery writes stays in memory.

Through this a reader sees one state, whatever the disk holds: files that were open without a name are gone, and
what was fsync'ed after the checkpoint is there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.f2fs.volume.checkpoint import Which
from f2tools.f2fs.volume.fscrypt import Keyring
from f2tools.f2fs.volume.recovery import find_fsync_chain
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import WritableVolume


class _InMemory(Overlay):
    """Changes above a device that is only read, which therefore does not decide how they are written."""

    @property
    def has_write_pointers(self) -> bool:
        return False


def recovered(device: Device, which: Which = "newest", keyring: Keyring | None = None) -> Volume:
    """The volume on `device` after recovery; closing it closes the device, which is never written to.

    Where there is nothing to recover it is read as it is.  Corrupt where recovery can't be done, DeviceError where a
    part of the volume is missing.
    """
    found = Volume(device, which, keyring)
    if not found.orphans().size and not find_fsync_chain(found).needed:
        return found
    above = _InMemory(device)
    writable = WritableVolume(above, which=which, despite={"tables"})
    writable.checkpoint(unmount=True)
    volume = Volume(above, keyring=keyring)
    volume.warnings = found.warnings
    if writable.recovered is not None:
        volume.warnings += writable.recovered.notes
    return volume


def open_recovered(
    path: str | Path,
    devices: Sequence[str | Path] = (),
    checkpoint: Which = "newest",
    keys: Sequence[str | os.PathLike[str] | bytes] = (),
) -> Volume:
    """As `open_volume`, after recovery in memory."""
    keyring = Keyring(keys)
    device = open_device(path, extra=list(devices))
    try:
        return recovered(device, checkpoint, keyring)
    except BaseException:
        device.close()
        raise


__all__ = ["open_recovered", "recovered"]
