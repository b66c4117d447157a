"""An input of a fuzzer as a list of patches to a sound image: which structure, where in it, which bytes.

So the fuzzer spends its time on the structures and not on what lies between them, and its inputs are small.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.hostile.targets import Place

PATCH = struct.Struct("<HHB")  # which structure, where in it, how many bytes follow
MOST_PATCHES, MOST_BYTES = 6, 8


def patches_of(data: bytes, places: Sequence[Place]) -> list[tuple[int, bytes]]:
    """(offset in the image, new bytes) of each patch in an input."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while len(found) < MOST_PATCHES and len(data) - at > PATCH.size:
        which, where, count = PATCH.unpack_from(data, at)
        at += PATCH.size
        start, length = places[which % len(places)]
        count = 1 + count % MOST_BYTES
        found.append((start + where % length, data[at : at + count]))
        at += count
    return found
