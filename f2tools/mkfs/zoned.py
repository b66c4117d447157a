"""Zoned block devices: what a plan needs to know of their zones, and the reset that makes them empty."""

from __future__ import annotations

from f2tools.device.media.block import BlockDevice, Zone
from f2tools.mkfs.align import sysfs_directory, whole_disk
from f2tools.mkfs.request import Zones


def zones_of(device: BlockDevice) -> Zones | None:
    """The zones of a zoned block device; None for any other."""
    size = device.zone_size
    if not size:
        return None
    directory = sysfs_directory(device.name)
    try:
        model = (whole_disk(directory) / "queue/zoned").read_text().strip() if directory else ""
    except OSError:
        model = ""
    return summary(size, device.zones(), managed=model != "host-aware")


def summary(size: int, zones: list[Zone], managed: bool) -> Zones:
    """`zones` as a plan takes them; `size` is the distance between their starts, in bytes."""
    conventional = 0
    for zone in zones:
        if zone.sequential or zone.condition in ("read-only", "offline"):
            break
        conventional += 1
    return Zones(size, tuple(zone.capacity for zone in zones), conventional, managed)


def reset_zones(device: BlockDevice) -> None:
    """Empty every sequential zone."""
    for zone in device.zones():
        if zone.type == "conventional" or zone.condition == "empty":
            continue
        device.reset(zone.start, zone.length)
