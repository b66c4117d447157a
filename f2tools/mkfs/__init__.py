"""Format an image or a device: `plan` decides where everything goes, `format` writes it."""

from __future__ import annotations

from f2tools.mkfs.plan import DeviceSpec, Options, Plan, Zones, make_plan

__all__ = ["DeviceSpec", "Options", "Plan", "Zones", "make_plan"]
