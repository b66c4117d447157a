"""Erase blocks: which size a card has, and which sections and zones follow from it.

Flash is erased in blocks of a few MiB.  A section is what F2FS cleans and what a log fills, so if each section covers
whole erase blocks, the card's own translation layer finds nothing left to copy when a section is written anew.  The
start of segment 0 is rounded up to a zone of the medium, partition offset included, and the main area starts at a zone.
"""

from __future__ import annotations

import math
import os
import stat
from typing import TYPE_CHECKING

from f2tools.errors import Usage
from f2tools.f2fs.layout.constants import BLOCKS_PER_SEG
from f2tools.lazy import dataclass, replace
from f2tools.mkfs.plan import VolumePlan, make_plan
from f2tools.mkfs.request import DeviceSpec, Options, TooSmall
from f2tools.options import human_size

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_ERASE_BLOCK = 4 << 20  # the allocation unit that SDHC cards and most eMMC declare
LEAST_GRANULARITY = 1 << 20  # a smaller discard granularity is a page or a sector, not an erase block
LEAST_ERASE_BLOCK, MOST_ERASE_BLOCK = 4096, 1 << 30


@dataclass(frozen=True)
class EraseBlock:
    """The size of an erase block in bytes, and how it is known."""

    size: int
    source: str


def sysfs_directory(path: str) -> Path | None:
    """The directory of a block device, partition or disk, in /sys; None for anything else."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISBLK(status.st_mode):
        return None
    from pathlib import Path  # which an image has no use for

    directory = Path(f"/sys/dev/block/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}").resolve()
    return directory if directory.exists() else None


def whole_disk(directory: Path) -> Path:
    """The directory of the disk that a partition is on; that of a disk itself."""
    return directory.parent if (directory / "partition").exists() else directory


def partition_start(path: str) -> int:
    """Bytes from the start of the medium to the start of a partition; 0 for disks and image files."""
    directory = sysfs_directory(path)
    return 512 * (_number(directory / "start") or 0) if directory else 0


def erase_block_of(path: str) -> EraseBlock:
    """The erase block of the card that a device is on, as far as the kernel knows it."""
    directory = sysfs_directory(path)
    if directory is None:
        return EraseBlock(DEFAULT_ERASE_BLOCK, "usual for SD cards and eMMC; an image file does not say")
    return erase_block_in(whole_disk(directory))


def erase_block_in(disk: Path) -> EraseBlock:
    """The same from a disk's directory in /sys."""
    for name in ("device/preferred_erase_size", "device/erase_size", "queue/discard_granularity"):
        size = _number(disk / name)
        if size and size >= LEAST_GRANULARITY:
            return EraseBlock(size, f"{disk.name} says so in {name}")
    return EraseBlock(DEFAULT_ERASE_BLOCK, f"usual for SD cards and eMMC; {disk.name} does not say")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def aligned(options: Options, erase: EraseBlock) -> tuple[Options, list[str]]:
    """Options whose sections are whole erase blocks, and why; Usage where -s contradicts that."""
    if not LEAST_ERASE_BLOCK <= erase.size <= MOST_ERASE_BLOCK or erase.size % 512:
        low, high = human_size(LEAST_ERASE_BLOCK), human_size(MOST_ERASE_BLOCK)
        raise Usage(f"--erase-block {erase.size}: whole sectors between {low} and {high} are needed")
    segment = options.block_size * BLOCKS_PER_SEG
    unit = math.lcm(erase.size, segment)
    needed = unit // segment
    asked = options.segs_per_sec
    reasons = [f"erase block {human_size(erase.size)}: {erase.source}"]
    if asked == 1:
        asked = needed
    elif asked % needed:
        raise Usage(f"-s {asked}: sections of whole erase blocks have a multiple of {needed} segments; leave -s out")
    if needed == 1:
        reasons.append(f"a segment of {human_size(segment)} already covers whole erase blocks")
    else:
        reasons.append(
            f"{asked} segments per section: {human_size(asked * segment)} is the least that holds both whole segments "
            f"and whole erase blocks"
            if asked == needed
            else f"{asked} segments per section, as asked: {human_size(asked * segment)} is whole erase blocks"
        )
    return replace(options, segs_per_sec=asked), reasons


def plan_aligned(
    options: Options, specs: tuple[DeviceSpec, ...], erase: EraseBlock, give_way: bool
) -> tuple[VolumePlan, list[str]]:
    """A plan with aligned sections; with `give_way` a volume too small for them gets halves of the erase block."""
    size = erase.size
    while True:
        changed, reasons = aligned(options, replace(erase, size=size))
        try:
            plan = make_plan(changed, specs)
        except TooSmall:
            if not give_way or size % 2 or size // 2 < LEAST_GRANULARITY:
                raise
            size //= 2
            continue
        if size != erase.size:
            reasons[0] = f"erase block {human_size(erase.size)}: {erase.source}"
            reasons.insert(1, f"too large for sections of this small volume: aligned to {human_size(size)} instead")
        return plan, reasons + _starts(plan, size)


def _starts(plan: VolumePlan, erase_block: int) -> list[str]:
    """The result of the alignment: where segment 0 and the main area lie on the medium."""
    geo, start = plan.geometry, plan.options.start_bytes
    said: list[str] = []
    if start:
        said.append(f"the volume starts at {human_size(start)} ({start} bytes) of its medium")
    for name, blkaddr in (("segment 0", geo.segment0_blkaddr), ("main area", geo.main_blkaddr)):
        at = start + blkaddr * geo.block_size
        whole, rest = divmod(at, erase_block)
        fits = "" if not rest else f", {rest} bytes past an erase block"
        said.append(f"{name} starts at byte {at} of the medium, erase block {whole}{fits}")
    return said
