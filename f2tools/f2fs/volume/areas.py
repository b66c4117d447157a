"""How large the metadata areas of a volume are, and how much of it files don't get.  Pure arithmetic.

It is that of mkfs.f2fs after its release 1.16.0 (f2fs_prepare_super_block() in mkfs/f2fs_format.c), integer division
and truncation included, so that a volume that is formatted and one that is resized look alike.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cache
from itertools import accumulate, repeat

from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import (
    BLOCKS_PER_SEG,
    F2FS_FEATURE_PACKED_SSA,
    F2FS_FEATURE_RO,
    F2FS_MIN_BLOCK_SIZE,
    NR_CURSEG_TYPE,
    U32_MAX,
)
from f2tools.f2fs.volume.geometry import NAT_ENTRY_SIZE, SIT_ENTRY_SIZE
from f2tools.lazy import dataclass

F2FS_MAX_SEGMENT = 16 * 1024 * 1024 // 2
SEGMENT_COUNT_CKPT = 2
DEFAULT_NAT_ENTRY_RATIO = 20  # percentage of the NAT that would be needed if every block were a node
MIN_NAT_BITMAP_SIZE = 64
SMALL_MAIN_SEGMENTS = 256  # below it overprovision is chosen in steps of 5 percent
MOST_STEPS = 1000  # of percentages that are tried


def most_segments(segment0: int) -> int:
    """Segments from block `segment0` on, such that a block address names the end of the last one too.

    A volume of exactly 2^32 blocks is mounted by no kernel: see `Geometry.too_long`.
    """
    return min(F2FS_MAX_SEGMENT, (U32_MAX - segment0) // BLOCKS_PER_SEG)


@dataclass(frozen=True)
class Areas:
    """Segments of the metadata areas behind the checkpoint area, and blocks of checkpoint payload."""

    sit: int
    nat: int
    ssa: int
    cp_payload: int

    @property
    def total(self) -> int:
        """Segments of all metadata areas."""
        return SEGMENT_COUNT_CKPT + self.sit + self.nat + self.ssa


def ceil_div(value: int, unit: int) -> int:
    """A division that rounds up."""
    return -(-value // unit)


def sit_segments(segment_count: int, block_size: int) -> int:
    """Segments of the SIT area of a volume of so many segments, both copies."""
    return 2 * ceil_div(ceil_div(segment_count, block_size // SIT_ENTRY_SIZE), BLOCKS_PER_SEG)


def nat_segments(
    available_segments: int, sit: int, block_size: int, large_nat_bitmap: bool, least: int = 0
) -> tuple[int, int]:
    """(segments of the NAT area, blocks of checkpoint payload): both version bitmaps must fit in a pack.

    Where `least` segments would not fit otherwise, a payload makes room for them.
    """
    nat = ceil_div(ceil_div(available_segments * BLOCKS_PER_SEG, block_size // NAT_ENTRY_SIZE), BLOCKS_PER_SEG)
    room = block_size - 4 - Checkpoint.size  # MAX_BITMAP_SIZE_IN_CKPT
    largest_sit = ceil_div(ceil_div(F2FS_MAX_SEGMENT, block_size // SIT_ENTRY_SIZE), BLOCKS_PER_SEG)
    sit_bitmap = min(sit // 2, largest_sit) * BLOCKS_PER_SEG // 8
    if large_nat_bitmap:
        nat = max(1, nat * DEFAULT_NAT_ENTRY_RATIO // 100, least // 2)
        over = sit_bitmap + nat * BLOCKS_PER_SEG // 8 - room
        return 2 * nat, ceil_div(over, block_size) if over > 0 else 0
    nat = max(nat, least // 2)
    fits = (room - sit_bitmap) * 8 // BLOCKS_PER_SEG
    if sit_bitmap > room - MIN_NAT_BITMAP_SIZE or fits < least // 2:
        nat_bitmap, payload = room, ceil_div(sit_bitmap, block_size)
    else:
        nat_bitmap, payload = room - sit_bitmap, 0
    return 2 * min(nat, nat_bitmap * 8 // BLOCKS_PER_SEG), payload


def ssa_segments(available_segments: int, block_size: int, feature: int) -> int:
    """Segments of the SSA for so many segments of the main area."""
    if feature & F2FS_FEATURE_RO:
        return 0
    per_block = block_size // F2FS_MIN_BLOCK_SIZE if feature & F2FS_FEATURE_PACKED_SSA else 1
    return ceil_div(ceil_div(available_segments, per_block), BLOCKS_PER_SEG)


def areas_of(
    segment_count: int, segs_per_zone: int, block_size: int, feature: int, large_nat_bitmap: bool, least_nat: int = 0
) -> Areas | None:
    """The areas of a volume of so many segments, the main area at the next zone; None where they leave none for it.

    The NAT area has `least_nat` segments at least.
    """
    sit = sit_segments(segment_count, block_size)
    left = segment_count - SEGMENT_COUNT_CKPT - sit
    if left <= 0:
        return None
    nat, cp_payload = nat_segments(left, sit, block_size, large_nat_bitmap, least_nat)
    if left - nat <= 0:
        return None
    ssa = ssa_segments(left - nat, block_size, feature)
    ssa += -(SEGMENT_COUNT_CKPT + sit + nat + ssa) % segs_per_zone
    areas = Areas(sit, nat, ssa, cp_payload)
    return areas if segment_count - areas.total >= segs_per_zone else None


def reserved_segments(percent: float, usable: int, section_count: int, sections: int = 0) -> int:
    """Segments kept for cleaning when `percent` are overprovision: so many `sections`, or as many as that needs."""
    return _reserved(percent, ceil_div(usable, section_count), sections)


def _reserved(percent: float, per_section: int, sections: int) -> int:
    reserved = sections * per_section if sections else int((100 / percent + 1 + NR_CURSEG_TYPE) * per_section)
    return -(-reserved // per_section) * per_section


def best_overprovision(
    segment_count_main: int, usable: int, section_count: int, segs_per_sec: int, sections: int = 0
) -> float:
    """The percentage that leaves files the most space, 0 where none does; get_best_overprovision() in f2fs_fs.h."""
    first, last, step = (10.0, 95.0, 5.0) if segment_count_main < SMALL_MAIN_SEGMENTS else (0.01, 10.0, 0.01)
    tried = list(accumulate(repeat(step, MOST_STEPS), initial=first))
    del tried[bisect_right(tried, last) :]
    per_section = ceil_div(usable, section_count)

    def reserved(percent: float) -> int:
        return _reserved(percent, per_section, sections)

    def hidden(percent: float) -> float:
        return (usable - reserved(percent)) * percent / 100

    # With each step less is reserved and more is hidden, and files don't get the larger of both.  So the most is left
    # where they meet, or before that, by the first that reserves as little as the last one there.
    meet = bisect_left(tried, True, key=lambda percent: reserved(percent) <= min(usable, hidden(percent)))
    before = bisect_left(tried, -reserved(tried[meet - 1]), key=lambda percent: -reserved(percent)) if meet else 0
    best = most = 0.0
    for percent in (tried[before], *tried[meet : meet + 1]):
        space = usable - max(reserved(percent), hidden(percent)) - NR_CURSEG_TYPE * segs_per_sec
        if most < space:
            most, best = space, percent
    return best


def overprovision_segments(percent: float, usable: int, reserved: int, segs_per_sec: int) -> int:
    """Segments that files never get, the reserved ones and room for open logs included."""
    return max(reserved, int((usable - reserved) * percent / 100)) + NR_CURSEG_TYPE * segs_per_sec


@dataclass(frozen=True)
class Reserve:
    """The part of a main area that files don't get."""

    rsvd_segment_count: int
    overprov_segment_count: int
    user_block_count: int


@cache
def best_reserve(segment_count_main: int, segs_per_sec: int) -> Reserve | None:
    """The reserve that leaves files the most space; None where a main area is too small to have one."""
    sections = segment_count_main // segs_per_sec
    percent = best_overprovision(segment_count_main, segment_count_main, sections, segs_per_sec) if sections else 0.0
    if not percent:
        return None
    reserved = reserved_segments(percent, segment_count_main, sections)
    overprov = overprovision_segments(percent, segment_count_main, reserved, segs_per_sec)
    if segment_count_main - NR_CURSEG_TYPE < reserved or segment_count_main <= overprov:
        return None
    return Reserve(reserved, overprov, (segment_count_main - overprov) * BLOCKS_PER_SEG)
