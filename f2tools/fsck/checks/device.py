"""The device below: blocks that can't be read, and the write pointers of a zoned one."""

from __future__ import annotations

from collections.abc import Iterator

from f2tools.fsck import problems
from f2tools.fsck.findings import Finding
from f2tools.fsck.image import Image

TOLD = 1000


def check_unreadable(image: Image) -> Iterator[Finding]:
    """Every block that the check needed could be read."""
    size = image.block_size
    for blkaddr in sorted({offset // size for offset in image.raw.unreadable})[:TOLD]:
        yield Finding(problems.UNREADABLE, area=image.geo.area_of(blkaddr), blkaddr=blkaddr)


CHECKS = (check_unreadable,)
