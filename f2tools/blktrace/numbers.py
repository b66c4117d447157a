"""Numbers of devices as the kernel traces them."""

from __future__ import annotations

MINOR_BITS = 20  # of a dev_t in the kernel


def device_of(major: int, minor: int) -> int:
    """A device as the kernel traces it."""
    return major << MINOR_BITS | minor


def device_numbers(device: int) -> tuple[int, int]:
    """Its major and minor number."""
    return device >> MINOR_BITS, device & (1 << MINOR_BITS) - 1


def device_name(device: int) -> str:
    """The same as text: "8,0"."""
    return "{},{}".format(*device_numbers(device))
