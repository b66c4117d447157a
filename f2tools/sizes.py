"""Sizes as users write them, on the command line and in the names of places on a device."""

from __future__ import annotations

import re

SIZE_UNITS = {"": 1, "b": 1, "s": 512, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(text: str) -> int:
    """Bytes of `4096`, `512K`, `1.5G`, `64MiB`, in powers of 1024, and `2048s` in sectors; ValueError otherwise."""
    if text.strip().startswith(("0x", "0X")) and re.fullmatch(r"0[xX][0-9a-fA-F]+", text.strip()):
        return int(text, 16)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgGtT]?(?:i?[bB])?|s)\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is not a size; write it like 512M or 1GiB")
    value = float(match[1]) * SIZE_UNITS[match[2][:1].lower()]
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(value)
