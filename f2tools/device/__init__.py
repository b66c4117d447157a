"""Where blocks live: image files, block devices, several devices as one, Android sparse images; and wrappers."""

from __future__ import annotations

from f2tools.device.base import Device
from f2tools.device.open import open_device, open_for_change

__all__ = ["Device", "open_device", "open_for_change"]
