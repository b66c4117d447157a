"""What a volume will look like: from options and device sizes to every address and count.  Pure; nothing is touched.

The arithmetic is that of mkfs.f2fs after its release 1.16.0, which hid two sections for open logs where it is six now
(f2fs_prepare_super_block() in mkfs/f2fs_format.c), so that the same options give the same volume, integer division
and truncation included.  Where we differ, a comment says so and why.
"""

from __future__ import annotations

from f2tools.errors import Usage
from f2tools.f2fs.layout.constants import (
    BLOCKS_PER_SEG,
    CURSEG_COLD_DATA,
    CURSEG_COLD_NODE,
    CURSEG_HOT_DATA,
    CURSEG_HOT_NODE,
    CURSEG_WARM_DATA,
    CURSEG_WARM_NODE,
    F2FS_FEATURE_LOST_FOUND,
    F2FS_FEATURE_RO,
    FEATURES,
    NR_CURSEG_TYPE,
)
from f2tools.f2fs.volume.areas import (
    F2FS_MAX_SEGMENT,
    SEGMENT_COUNT_CKPT,
    best_overprovision,
    ceil_div,
    most_segments,
    nat_segments,
    overprovision_segments,
    reserved_segments,
    sit_segments,
    ssa_segments,
)
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.lazy import dataclass, replace
from f2tools.mkfs.request import (
    DeviceSpec,
    Options,
    TooSmall,
    checked,
    extension_lists,
)
from f2tools.options import human_size

F2FS_MIN_SEGMENTS = 9
MIN_RSVD_SECS = NR_CURSEG_TYPE + 2
CONFIG_RSVD_DEFAULT_OP_RATIO = 3.0
FIRST_FREE_NID = 4


@dataclass(frozen=True)
class PlannedDevice:
    """A device and the blocks of the volume that it holds, metadata before segment 0 included on the first."""

    spec: DeviceSpec
    start_blkaddr: int
    end_blkaddr: int  # the last one
    total_segments: int


@dataclass(frozen=True)
class VolumePlan:
    """Everything that is decided about a volume before its first block is written."""

    options: Options
    geometry: Geometry
    devices: tuple[PlannedDevice, ...]
    sector_size: int
    cursegs: tuple[int, ...]  # segno by CURSEG_* number
    overprovision: float  # percent
    usable_segments: int  # of the main area
    rsvd_segment_count: int
    overprov_segment_count: int
    user_block_count: int
    qf_ino: tuple[int, int, int]
    lost_found_ino: int
    alias_inos: tuple[int, ...]  # by planned device, 0 where it has none
    next_free_nid: int
    cold_extensions: tuple[str, ...]
    hot_extensions: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def feature(self) -> int:
        return self.geometry.feature

    @property
    def read_only(self) -> bool:
        """Whether this is a volume with the feature ro: two logs only, no SSA, no overprovision."""
        return bool(self.feature & F2FS_FEATURE_RO)

    @property
    def aliased_segments(self) -> int:
        return sum(device.total_segments for device in self.devices if device.spec.alias)

    @property
    def free_segment_count(self) -> int:
        """Segments without a valid block and not open."""
        return self.usable_segments - self.aliased_segments - (2 if self.read_only else NR_CURSEG_TYPE)

    @property
    def size_bytes(self) -> int:
        """Bytes of all devices as far as the volume may use them."""
        return self.geometry.block_count * self.geometry.block_size


def extra_isize(feature: int) -> int:
    """Bytes of extra attributes that an inode of a volume with these features has; calc_extra_isize() in libf2fs.c."""
    for bit, size in (("compression", 36), ("inode_crtime", 24), ("inode_checksum", 12), ("project_quota", 8)):
        if feature & FEATURES[bit]:
            return size
    return 4


def make_plan(options: Options, devices: tuple[DeviceSpec, ...] | list[DeviceSpec]) -> VolumePlan:
    """Decide everything about a volume; Usage where options contradict each other or the devices are too small."""
    specs = tuple(devices)
    notes: list[str] = []
    options = checked(options, specs, notes)
    try:
        return _Planner(options, specs, notes).plan()
    except TooSmall as error:
        least = _least_size(options, specs)
        hint = f"; the smallest size for these options is {human_size(least)} ({least} bytes)" if least else ""
        more = "" if options.segs_per_sec * options.secs_per_zone == 1 else ", or ask for smaller sections or zones"
        raise TooSmall(f"{specs[0].path}: {error}{hint}{more}") from None


def _least_size(options: Options, specs: tuple[DeviceSpec, ...]) -> int | None:
    """The smallest size of the first device that a plan can be made for, in whole MiB; None where none helps."""
    if options.zoned or any(spec.zones for spec in specs):
        return None

    def fits(mib: int) -> bool:
        whole = replace(options, total_sectors=None)
        try:
            _Planner(whole, (replace(specs[0], size_bytes=mib << 20), *specs[1:]), []).plan()
        except Usage:
            return False
        return True

    high = 16
    while not fits(high):
        high *= 2
        if high > 16 << 20:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high << 20


class _Planner:
    """One run of the arithmetic; its attributes are the variables of f2fs_prepare_super_block()."""

    def __init__(self, options: Options, specs: tuple[DeviceSpec, ...], notes: list[str]) -> None:
        self.options = options
        self.notes = list(notes)
        self.feature = options.features
        self.block_size = options.block_size
        self.segment_bytes = self.block_size * BLOCKS_PER_SEG
        self.sector_size = specs[0].sector_size
        self.specs = self._sized(specs)
        self.segs_per_sec, self.secs_per_zone = options.segs_per_sec, options.secs_per_zone
        self.overprovision = options.overprovision
        self.reserved_sections = options.reserved_sections
        self.zone_blocks = 0
        self.managed = any(spec.zones and spec.zones.managed for spec in specs)
        self._look_at_zones()
        self.segs_per_zone = self.segs_per_sec * self.secs_per_zone
        self.zone_bytes = self.segs_per_zone * self.segment_bytes

    def plan(self) -> VolumePlan:
        segment0 = self._segment0()
        devices = self._devices(segment0)
        self._check_zone_starts(segment0, devices)
        geometry = self._areas(segment0, devices)
        self.main_blkaddr = geometry.main_blkaddr
        self.devices = devices
        self._check_zoned_metadata(geometry)
        usable = self._usable_segments(geometry)
        reserved = self._reserve(geometry, usable)
        overprov = self._overprov_segments(geometry, usable, reserved)
        total_zones = geometry.section_count // self.secs_per_zone
        cursegs = self._cursegs(total_zones)
        qf_ino, lost_found_ino, alias_inos, next_free_nid = self._inos()
        cold, hot = extension_lists(self.options.cold_extensions, self.options.hot_extensions)
        return VolumePlan(
            options=self.options,
            geometry=geometry,
            devices=devices,
            sector_size=self.sector_size,
            cursegs=cursegs,
            overprovision=self.overprovision,
            usable_segments=usable,
            rsvd_segment_count=reserved,
            overprov_segment_count=overprov,
            user_block_count=(usable - overprov) * BLOCKS_PER_SEG,
            qf_ino=qf_ino,
            lost_found_ino=lost_found_ino,
            alias_inos=alias_inos,
            next_free_nid=next_free_nid,
            cold_extensions=cold,
            hot_extensions=hot,
            notes=tuple(self.notes),
        )

    # ---- sizes and alignment ----

    def _sized(self, specs: tuple[DeviceSpec, ...]) -> tuple[DeviceSpec, ...]:
        """The devices in whole sectors, the first one as long as was asked for."""
        if self.block_size % self.sector_size:
            raise Usage(f"sectors of {self.sector_size} bytes are larger than blocks of {self.block_size}")
        first = specs[0]
        wanted = self.options.total_sectors
        if wanted is not None:
            if wanted * self.sector_size > first.size_bytes:
                have = first.size_bytes // self.sector_size
                raise Usage(f"{first.path} has {have} sectors of {self.sector_size} bytes; {wanted} were asked for")
            specs = (replace(first, size_bytes=wanted * self.sector_size), *specs[1:])
        whole = tuple(replace(s, size_bytes=s.size_bytes // self.sector_size * self.sector_size) for s in specs)
        if sum(s.size_bytes for s in whole) > F2FS_MAX_SEGMENT * 2 << 20:
            raise Usage("an F2FS volume has 16 TiB at most; give a smaller --size, or fewer devices")
        return whole

    def _look_at_zones(self) -> None:
        """Sections are zones on a zoned device; f2fs_get_f2fs_info() in libf2fs.c."""
        sizes = {spec.zones.size for spec in self.specs if spec.zones}
        if not sizes:
            if self.options.zoned:
                raise Usage(f"{self.specs[0].path} is not a zoned block device; leave -m out, or give --zone-size")
            return
        if not self.options.zoned:
            raise Usage("a zoned block device needs -m")
        if not self.options.discard:
            raise Usage("a zoned block device needs discard (-t 1): its zones must be reset")
        if len(sizes) > 1:
            raise Usage(f"the devices have zones of different sizes ({', '.join(map(str, sorted(sizes)))} bytes)")
        size = sizes.pop()
        if size % self.segment_bytes:
            raise Usage(f"zones of {human_size(size)} are no multiple of a segment ({human_size(self.segment_bytes)})")
        self.zone_blocks = size // self.block_size
        self.segs_per_sec, self.secs_per_zone = size // self.segment_bytes, 1
        first = self.specs[0].zones
        if first and first.managed and not first.conventional:
            raise Usage(f"{self.specs[0].path} has no conventional zone for the superblock; put another device first")
        if self.reserved_sections:
            if self.reserved_sections < MIN_RSVD_SECS:
                self.notes.append(f"-Z {self.reserved_sections} is too small: {MIN_RSVD_SECS} sections are reserved")
                self.reserved_sections = MIN_RSVD_SECS
            self.overprovision = self.overprovision or CONFIG_RSVD_DEFAULT_OP_RATIO

    def _segment0(self) -> int:
        """The first block after the superblocks that starts a zone of the medium."""
        start = self.options.start_bytes
        unit = self.segment_bytes if self.options.zoned and len(self.specs) > 1 else self.zone_bytes
        offset = ceil_div(start + 2 * self.block_size, unit) * unit - start
        if self.feature & F2FS_FEATURE_RO:
            # mkfs.f2fs takes 8192 bytes whatever the block size, which overlaps the superblocks for blocks above 4096
            # bytes.
            offset = 2 * self.block_size
        if start % self.block_size:
            said = f"the volume starts {start} bytes into its medium, which is no multiple of the block size"
            if self.options.zoned:
                raise Usage(f"{said}; move the partition")
            self.notes.append(said)
        if self.options.zoned and len(self.specs) > 1:
            offset += (self.specs[0].size_bytes - offset) % self.zone_bytes
        return offset // self.block_size

    def _devices(self, segment0: int) -> tuple[PlannedDevice, ...]:
        found: list[PlannedDevice] = []
        for spec in self.specs:
            if not found:
                room = spec.size_bytes - segment0 * self.block_size
                if room < 0:
                    raise TooSmall(f"{human_size(spec.size_bytes)} end before segment 0")
                segments = room // self.segment_bytes // self.segs_per_zone * self.segs_per_zone
                start, end = 0, segments * BLOCKS_PER_SEG - 1 + segment0
            else:
                segments = spec.size_bytes // self.segment_bytes // self.segs_per_zone * self.segs_per_zone
                start = found[-1].end_blkaddr + 1
                end = start + segments * BLOCKS_PER_SEG - 1
                if not segments:
                    raise Usage(f"{spec.path}: {human_size(spec.size_bytes)} are less than a zone of this volume")
                if spec.alias and spec.zones and spec.zones.managed:
                    raise Usage(f"{spec.path}: a host-managed zoned device can't have an alias")
            found.append(PlannedDevice(spec, start, end, segments))
        return self._within_addresses(segment0, found)

    def _within_addresses(self, segment0: int, devices: list[PlannedDevice]) -> tuple[PlannedDevice, ...]:
        """Without the zones at the end of the last device that no block address leads to."""
        last = devices[-1]
        over = sum(device.total_segments for device in devices) - most_segments(segment0)
        over = ceil_div(max(0, over), self.segs_per_zone) * self.segs_per_zone
        if over:
            if over >= last.total_segments:
                raise Usage(f"{last.spec.path}: no block address leads there; leave it out")
            unused = human_size(over * self.segment_bytes)
            self.notes.append(f"the last {unused} stay unused: block addresses have 32 bits")
            end = last.end_blkaddr - over * BLOCKS_PER_SEG
            devices[-1] = replace(last, end_blkaddr=end, total_segments=last.total_segments - over)
        return tuple(devices)

    def _check_zone_starts(self, segment0: int, devices: tuple[PlannedDevice, ...]) -> None:
        if not self.zone_blocks:
            return
        if len(devices) == 1 and (segment0 + self.options.start_bytes // self.block_size) % self.zone_blocks:
            raise Usage(f"segment 0 at block {segment0} does not start a zone of {self.zone_blocks} blocks")
        if len(devices) > 1 and (devices[1].start_blkaddr - segment0) % self.zone_blocks:
            raise Usage(f"{devices[1].spec.path} does not start at a zone; give the first device a size of whole zones")

    def _areas(self, segment0: int, devices: tuple[PlannedDevice, ...]) -> Geometry:
        """Checkpoint, SIT, NAT and SSA area one after the other, the main area at the next zone."""
        segment_count = sum(device.total_segments for device in devices)
        sit = sit_segments(segment_count, self.block_size)
        self._enough(segment_count, SEGMENT_COUNT_CKPT + sit)
        left = segment_count - SEGMENT_COUNT_CKPT - sit
        nat, cp_payload = nat_segments(left, sit, self.block_size, self.options.large_nat_bitmap)
        self._enough(segment_count, SEGMENT_COUNT_CKPT + sit + nat)
        ssa = ssa_segments(left - nat, self.block_size, self.feature)
        meta = SEGMENT_COUNT_CKPT + sit + nat + ssa
        ssa += -meta % self.segs_per_zone
        meta_zones = ceil_div(meta, self.segs_per_zone)
        zones = segment_count // self.segs_per_zone
        if zones <= meta_zones:
            raise TooSmall(f"{zones} zones are not more than the {meta_zones} that metadata takes")
        section_count = (zones - meta_zones) * self.secs_per_zone
        sit_blkaddr = segment0 + SEGMENT_COUNT_CKPT * BLOCKS_PER_SEG
        nat_blkaddr = sit_blkaddr + sit * BLOCKS_PER_SEG
        return Geometry(
            block_size=self.block_size,
            segs_per_sec=self.segs_per_sec,
            secs_per_zone=self.secs_per_zone,
            block_count=sum(device.spec.size_bytes for device in devices) // self.block_size,
            segment0_blkaddr=segment0,
            cp_blkaddr=segment0,
            sit_blkaddr=sit_blkaddr,
            nat_blkaddr=nat_blkaddr,
            ssa_blkaddr=nat_blkaddr + nat * BLOCKS_PER_SEG,
            main_blkaddr=segment0 + meta_zones * self.segs_per_zone * BLOCKS_PER_SEG,
            segment_count=segment_count,
            segment_count_sit=sit,
            segment_count_nat=nat,
            segment_count_ssa=ssa,
            segment_count_main=section_count * self.segs_per_sec,
            section_count=section_count,
            cp_payload=cp_payload,
            feature=self.feature,
        )

    @staticmethod
    def _enough(segment_count: int, meta: int) -> None:
        if segment_count <= meta:
            raise TooSmall(f"{segment_count} segments are not more than the {meta} that metadata takes")

    def _check_zoned_metadata(self, geometry: Geometry) -> None:
        """Metadata is rewritten in place and must lie in conventional zones."""
        if not self.zone_blocks:
            return
        needed = geometry.main_blkaddr // self.zone_blocks
        first = self.specs[0].zones
        if first and first.managed and first.conventional < needed:
            raise Usage(f"{self.specs[0].path} has {first.conventional} conventional zones; metadata needs {needed}")
        for device in self.devices[1:]:
            if device.spec.zones and device.start_blkaddr < geometry.main_blkaddr:
                missing = (geometry.main_blkaddr - device.start_blkaddr) * self.block_size
                raise Usage(f"{self.specs[0].path} is too small for the metadata: {human_size(missing)} are missing")

    # ---- space that files don't get ----

    def _usable_segments(self, geometry: Geometry) -> int:
        """Segments of the main area without those past the capacity of their zone; f2fs_get_usable_segments()."""
        total = 0
        for device in self.devices:
            zones = device.spec.zones
            if len(self.devices) == 1 or not (zones and zones.managed):
                total += device.total_segments
            else:
                total += sum(ceil_div(capacity, self.segment_bytes) for capacity in zones.capacities)
        return total - (geometry.main_blkaddr - geometry.segment0_blkaddr) // BLOCKS_PER_SEG

    def _reserve(self, geometry: Geometry, usable: int) -> int:
        """Segments kept for cleaning; settles the overprovision percentage."""
        total = geometry.segment_count
        if self.feature & F2FS_FEATURE_RO:
            self.overprovision, reserved = 0.0, 0
        else:
            self.overprovision = self.overprovision or best_overprovision(
                geometry.segment_count_main, usable, geometry.section_count, self.segs_per_sec, self.reserved_sections
            )
            if not self.overprovision:
                raise TooSmall(f"{geometry.segment_count_main} segments leave nothing besides what cleaning needs")
            reserved = reserved_segments(self.overprovision, usable, geometry.section_count, self.reserved_sections)
        if total < F2FS_MIN_SEGMENTS:
            raise TooSmall(f"{total} segments are less than the {F2FS_MIN_SEGMENTS} that every volume needs")
        if geometry.segment_count_main - NR_CURSEG_TYPE < reserved:
            raise TooSmall(
                f"of {geometry.segment_count_main} segments {reserved} are reserved and {NR_CURSEG_TYPE} open at once"
            )
        return reserved

    def _overprov_segments(self, geometry: Geometry, usable: int, reserved: int) -> int:
        if self.reserved_sections:
            buffer = NR_CURSEG_TYPE * self.segs_per_sec
            overprov = int((usable - reserved) * self.overprovision / 100)
            if overprov < buffer:
                raise Usage(f"-o {self.overprovision:g} gives {overprov} segments; {buffer} are needed at least")
            overprov += reserved
        else:
            overprov = overprovision_segments(self.overprovision, usable, reserved, self.segs_per_sec)
        if usable <= overprov:
            raise TooSmall(f"of {usable} segments {overprov} would be overprovision, nothing for files")
        return overprov

    # ---- logs and inodes ----

    def _cursegs(self, total_zones: int) -> tuple[int, ...]:
        """Where the six logs start, a zone each."""
        aliased = sum(device.total_segments for device in self.devices if device.spec.alias)
        needed = (2 if self.feature & F2FS_FEATURE_RO else NR_CURSEG_TYPE) + aliased // self.segs_per_zone
        if total_zones <= needed:
            raise TooSmall(f"{total_zones} zones are not more than the {needed} that logs and aliases take")
        cur = [0] * NR_CURSEG_TYPE
        if self.feature & F2FS_FEATURE_RO:
            cur[CURSEG_HOT_NODE] = self._last_zone(total_zones) + (self.secs_per_zone - 1) * self.segs_per_sec
            return tuple(cur)
        cur[CURSEG_HOT_NODE] = self._first_sequential(total_zones, needed) if self.options.zoned else 0
        cur[CURSEG_WARM_NODE] = self._next_zone(cur[CURSEG_HOT_NODE])
        cur[CURSEG_COLD_NODE] = self._next_zone(cur[CURSEG_WARM_NODE])
        cur[CURSEG_HOT_DATA] = self._next_zone(cur[CURSEG_COLD_NODE])
        if self.options.zoned:
            cur[CURSEG_WARM_DATA] = self._next_zone(cur[CURSEG_HOT_DATA])
            cur[CURSEG_COLD_DATA] = self._next_zone(cur[CURSEG_WARM_DATA])
        else:
            cur[CURSEG_COLD_DATA] = max(self._last_zone(total_zones >> 2), self._next_zone(cur[CURSEG_HOT_DATA]))
            cur[CURSEG_WARM_DATA] = max(self._last_zone(total_zones >> 1), self._next_zone(cur[CURSEG_COLD_DATA]))
        if len(set(cur)) < NR_CURSEG_TYPE:
            cur[0] = 0
            for log in range(1, NR_CURSEG_TYPE):
                cur[log] = self._next_zone(cur[log - 1])
        return tuple(cur)

    def _first_sequential(self, total_zones: int, needed: int) -> int:
        """On a zoned volume of a conventional and a sequential device the logs start on the latter."""
        if not self.managed or len(self.devices) < 2:
            return 0
        in_first = (self.devices[0].end_blkaddr + 1 - self.main_blkaddr) // BLOCKS_PER_SEG // self.segs_per_zone
        if total_zones - in_first < needed:
            return 0
        return (self.devices[1].start_blkaddr - self.main_blkaddr) // BLOCKS_PER_SEG

    def _device_of(self, blkaddr: int) -> int:
        for index, device in enumerate(self.devices):
            if device.start_blkaddr <= blkaddr <= device.end_blkaddr:
                return index
        return 0

    def _segno(self, blkaddr: int) -> int:
        return (blkaddr - self.main_blkaddr) // BLOCKS_PER_SEG

    def _next_zone(self, segno: int) -> int:
        """The zone after that of a segment, aliased devices passed over."""
        following = segno + self.segs_per_zone
        index = self._device_of(self.main_blkaddr + following * BLOCKS_PER_SEG)
        if not self.devices[index].spec.alias:
            return following
        while index < len(self.devices) and self.devices[index].spec.alias:
            index += 1
        return self._segno(self.devices[index - 1].end_blkaddr + 1)

    def _last_zone(self, total_zones: int) -> int:
        """The last of so many zones, aliased devices passed over."""
        last = (total_zones - 1) * self.segs_per_zone
        index = self._device_of(self.main_blkaddr + last * BLOCKS_PER_SEG)
        if not self.devices[index].spec.alias:
            return last
        while index > 0 and self.devices[index].spec.alias:
            index -= 1
        return self._segno(self.devices[index + 1].start_blkaddr) - self.segs_per_zone

    def _inos(self) -> tuple[tuple[int, int, int], int, tuple[int, ...], int]:
        """(quota files, lost+found, aliases, next free nid)."""
        nid = FIRST_FREE_NID
        qf = [0, 0, 0]
        for kind in self.options.quota_kinds:
            qf[kind], nid = nid, nid + 1
        lost_found_ino = 0
        if self.feature & F2FS_FEATURE_LOST_FOUND:
            lost_found_ino, nid = nid, nid + 1
        aliases: list[int] = []
        for device in self.devices:
            aliases.append(nid if device.spec.alias else 0)
            nid += bool(device.spec.alias)
        return (qf[0], qf[1], qf[2]), lost_found_ino, tuple(aliases), nid
