"""Time zones by name, or spelled out as POSIX has them in TZ: `EST5EDT`, `CET-1CEST,M3.5.0,M10.5.0/3`.

Names are looked up among the machine's zones.  Some that The Sleuth Kit's users write may not be there: Debian 13 has
EST5EDT in a package of its own.  The C library, and so The Sleuth Kit, then reads the name itself.
"""

from __future__ import annotations

import io
import re
import struct
from datetime import tzinfo

_NAME = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)"
_OFFSET = r"[+-]?\d{1,2}(?::\d{2}){0,2}"
_SPELLED_OUT = re.compile(rf"{_NAME}{_OFFSET}(?P<summer>{_NAME}(?:{_OFFSET})?(?P<rules>,.+)?)?")
_USUAL_RULES = ",M3.2.0,M11.1.0"  # where none are given, summer time is that of the USA
_HEADER = struct.Struct(">4sc15x6I")


def zone_of(name: str) -> tzinfo:
    """The time zone; ValueError where there is none of this name and it spells out none."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        found = _SPELLED_OUT.fullmatch(name)
    if found is None or not name.isascii():
        raise ValueError(name)
    rules = _USUAL_RULES if found["summer"] and not found["rules"] else ""
    return ZoneInfo.from_file(io.BytesIO(_zone_file(f"{name}{rules}")), key=name)


def _zone_file(rules: str) -> bytes:
    """A file as in /usr/share/zoneinfo (RFC 8536) that says nothing but the rules at its end."""
    block = _HEADER.pack(b"TZif", b"2", 0, 0, 0, 0, 1, 4) + struct.pack(">iBB4s", 0, 0, 0, b"UTC\0")
    return block * 2 + f"\n{rules}\n".encode("ascii")
