"""Format an image or a device: `plan` decides where everything goes, `format` writes it."""

from __future__ import annotations

from f2tools.mkfs.plan import VolumePlan, make_plan
from f2tools.mkfs.request import DeviceSpec, Options, Zones

__all__ = ["DeviceSpec", "Options", "VolumePlan", "Zones", "make_plan"]
