"""The plan alone: arithmetic that nothing has to be written for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from f2tools.errors import Usage
from f2tools.f2fs.layout.constants import FEATURES, NR_CURSEG_TYPE
from f2tools.f2fs.volume.geometry import Geometry
from f2tools.mkfs.align import EraseBlock, aligned, erase_block_in, plan_aligned
from f2tools.mkfs.plan import VolumePlan, make_plan
from f2tools.mkfs.request import DeviceSpec, Options, Zones, parse_encoding, parse_features
from tests import images
from tests.mkfs.tools import GIB, MIB, TIB, superblock


def plan_of(size: int, **options: object) -> VolumePlan:
    return make_plan(Options(**options), [DeviceSpec("image", size)])  # type: ignore[arg-type]


def test_areas_follow_each_other_and_end_within_the_device_whatever_is_asked_for() -> None:
    rng = random.Random(1)
    made = 0
    for _ in range(400):
        size = int(2 ** rng.uniform(26, 44)) // 512 * 512
        options = Options(
            segs_per_sec=rng.choice((1, 1, 2, 3, 7, 64)),
            secs_per_zone=rng.choice((1, 1, 2, 5)),
            large_nat_bitmap=rng.random() < 0.3,
            block_size=rng.choice((4096, 4096, 8192, 16384)),
            features=rng.choice((0, FEATURES["ro"], FEATURES["packed_ssa"], FEATURES["quota"])),
            start_bytes=rng.choice((0, 0, 1 << 20, 63 * 512)),
        )
        try:
            plan = make_plan(options, [DeviceSpec("image", size)])
        except Usage:
            continue
        made += 1
        geo = plan.geometry
        starts = [geo.segment0_blkaddr, geo.sit_blkaddr, geo.nat_blkaddr, geo.ssa_blkaddr, geo.main_blkaddr]
        assert starts == sorted(starts)
        assert geo.segment0_blkaddr >= 2
        assert geo.end_blkaddr * geo.block_size <= size
        assert geo.section_count * geo.segs_per_sec == geo.segment_count_main
        assert geo.end_blkaddr == geo.segment0_blkaddr + geo.segment_count * 512
        assert geo.sit_blocks <= geo.segment_count_sit // 2 * 512
        assert 0 < plan.user_block_count < geo.segment_count_main * 512 or plan.read_only
        logs = plan.cursegs[3:4] + plan.cursegs[:1] if plan.read_only else plan.cursegs
        assert len(set(logs)) == len(logs)
        assert all(0 <= segno < geo.segment_count_main for segno in logs)
        zones = {geo.zoneno(segno) for segno in logs}
        assert plan.read_only or len(zones) == NR_CURSEG_TYPE
        if not plan.read_only:
            assert (options.start_bytes + geo.segment0_blkaddr * geo.block_size) % geo.block_size < geo.block_size
    assert made > 250


@pytest.mark.parametrize("name", [n for n in images.CLEAN if "history" not in n])
def test_reference_volumes_are_planned_as_they_are(name: str) -> None:
    """The superblocks that mkfs.f2fs wrote, from their own sizes and options."""
    case = images.reference(name)
    sb = superblock(case.path)
    sector = 1 << sb.log_sectorsize
    specs = [DeviceSpec("image", path.stat().st_size, sector) for path in case.devices]
    zoned = bool(sb.feature & FEATURES["blkzoned"])
    if zoned:  # 64 zones of 4 MiB, the first 12 conventional
        specs = [DeviceSpec("image", specs[0].size_bytes, sector, zones=Zones(4 * MIB, (4 * MIB,) * 64, 12))]
    options = Options(
        features=sb.feature & ~FEATURES["blkzoned"],
        encoding=sb.s_encoding,
        zoned=zoned,
        segs_per_sec=sb.segs_per_sec,
        secs_per_zone=sb.secs_per_zone,
        block_size=1 << sb.log_blocksize,
    )
    plan = make_plan(options, specs)
    assert plan.geometry == Geometry.of(sb)
    if len(specs) > 1:
        assert [d.total_segments for d in plan.devices] == [d.total_segments for d in sb.devs[: len(specs)]]


def test_the_smallest_size_is_said_and_true() -> None:
    with pytest.raises(Usage, match=r"the smallest size for these options is 46 MiB \(48234496 bytes\)"):
        plan_of(20 * MIB)
    assert plan_of(46 * MIB).user_block_count > 0
    with pytest.raises(Usage):
        plan_of(45 * MIB)


def test_a_volume_has_16_tib_at_most() -> None:
    plan = plan_of(16 * TIB)
    assert plan.geometry.end_blkaddr == (1 << 32) - 512, "a kernel has no address for 2^32"
    assert plan.notes == ("the last 2 MiB stay unused: block addresses have 32 bits",)
    assert plan_of(16 * TIB - 2 * MIB).geometry.segment_count == plan.geometry.segment_count
    assert plan_of(16 * TIB, segs_per_sec=2).geometry.end_blkaddr == (1 << 32) - 1024
    with pytest.raises(Usage, match="last: no block address leads there; leave it out"):
        make_plan(Options(), [DeviceSpec("first", 16 * TIB - 2 * MIB), DeviceSpec("last", 2 * MIB)])
    with pytest.raises(Usage, match="16 TiB at most"):
        plan_of(16 * TIB + 512)


def test_large_volumes_keep_the_sit_bitmap_in_the_payload() -> None:
    assert plan_of(1 * TIB).geometry.cp_payload == 0
    assert plan_of(16 * TIB).geometry.cp_payload == 5
    assert plan_of(16 * TIB, large_nat_bitmap=True).geometry.cp_payload > 5


def test_unknown_features_are_answered_with_all_there_are() -> None:
    with pytest.raises(Usage, match=r"no feature 'colour'; there are encrypt, blkzoned, .*packed_ssa"):
        parse_features(["quota,colour"])


@pytest.mark.parametrize(
    "name", ["project_quota", "inode_checksum", "flexible_inline_xattr", "inode_crtime", "compression"]
)
def test_features_of_the_inode_need_extra_attr(name: str) -> None:
    with pytest.raises(Usage, match=f"-O extra_attr,{name}"):
        plan_of(64 * MIB, features=FEATURES[name])
    assert plan_of(64 * MIB, features=FEATURES[name] | FEATURES["extra_attr"])


def test_project_quota_brings_quota_files_with_it() -> None:
    feature = FEATURES["project_quota"] | FEATURES["extra_attr"]
    assert plan_of(64 * MIB, features=feature).qf_ino == (0, 0, 4)
    assert plan_of(64 * MIB, features=feature | FEATURES["quota"]).qf_ino == (4, 5, 6)


def test_features_that_follow_from_devices_are_not_asked_for_alone() -> None:
    for name, hint in (("device_alias", "-c"), ("blkzoned", "-m")):
        with pytest.raises(Usage, match=hint):
            plan_of(64 * MIB, features=FEATURES[name])


def test_packed_ssa_is_left_out_where_blocks_have_4096_bytes() -> None:
    plan = plan_of(1 * GIB, features=FEATURES["packed_ssa"])
    assert not plan.feature & FEATURES["packed_ssa"]
    assert "packed_ssa" in plan.notes[0]


def test_encoding_flags_can_be_switched_on_and_off() -> None:
    assert parse_encoding("utf8") == (1, 0, 0)
    assert parse_encoding("utf8:strict,hashonly") == (1, 3, 0)
    assert parse_encoding("utf8:strict,nostrict") == (1, 0, 1)
    with pytest.raises(Usage, match="utf8"):
        parse_encoding("latin1")


def test_logs_pass_over_a_device_with_an_alias() -> None:
    specs = [DeviceSpec("a", 64 * MIB), DeviceSpec("b", 512 * MIB, alias="disk"), DeviceSpec("c", 256 * MIB)]
    plan = make_plan(Options(), specs)
    geo, alias = plan.geometry, plan.devices[1]
    inside = range(geo.segno(alias.start_blkaddr), geo.segno(alias.end_blkaddr + 1))
    assert not [segno for segno in plan.cursegs if segno in inside]
    assert plan.alias_inos == (0, 4, 0)


@pytest.mark.parametrize(
    ("zones", "options", "said"),
    [
        (None, Options(zoned=True), "not a zoned block device"),
        (Zones(4 * MIB, (4 * MIB,) * 64, 12), Options(), "needs -m"),
        (Zones(4 * MIB, (4 * MIB,) * 64, 12), Options(zoned=True, discard=False), "discard"),
        (Zones(4 * MIB, (4 * MIB,) * 64, 2), Options(zoned=True), "metadata needs"),
        (Zones(4 * MIB, (4 * MIB,) * 64, 0), Options(zoned=True), "no conventional zone"),
        (Zones(3 * MIB, (3 * MIB,) * 85, 12), Options(zoned=True), "no multiple of a segment"),
    ],
)
def test_zones_that_do_not_fit_are_refused(zones: Zones | None, options: Options, said: str) -> None:
    with pytest.raises(Usage, match=said):
        make_plan(options, [DeviceSpec("disk", 256 * MIB, zones=zones)])


def test_on_a_conventional_and_a_zoned_device_the_logs_start_on_the_latter() -> None:
    zones = Zones(4 * MIB, (3 * MIB,) * 256, 0)
    plan = make_plan(Options(zoned=True), [DeviceSpec("a", 128 * MIB), DeviceSpec("b", 1 * GIB, zones=zones)])
    geo = plan.geometry
    assert geo.start_block(plan.cursegs[3]) == plan.devices[1].start_blkaddr
    assert (plan.devices[1].start_blkaddr - geo.segment0_blkaddr) % 1024 == 0
    assert plan.usable_segments == geo.segment_count_main  # 3 MiB of capacity still touch both segments of a zone


def test_reserved_sections_are_for_zoned_volumes() -> None:
    with pytest.raises(Usage, match="-m"):
        plan_of(1 * GIB, reserved_sections=20)
    zones = Zones(4 * MIB, (4 * MIB,) * 1024, 20)
    plan = make_plan(Options(zoned=True, reserved_sections=3), [DeviceSpec("disk", 4 * GIB, zones=zones)])
    assert plan.rsvd_segment_count >= 8 * 2
    assert plan.overprovision == 3.0
    assert "8 sections" in plan.notes[0]


# ---- alignment ----


@pytest.mark.parametrize(
    ("erase", "segments"),
    [(4 * MIB, 2), (2 * MIB, 1), (1 * MIB, 1), (6 * MIB, 3), (3 * MIB, 3), (3 * MIB // 2, 3), (16 * MIB, 8)],
)
@pytest.mark.parametrize("start", [0, 1 * MIB, 4 * MIB, 5 * MIB + 4096])
def test_sections_and_main_area_start_at_erase_blocks(erase: int, segments: int, start: int) -> None:
    spec = (DeviceSpec("card", 8 * GIB),)
    plan, reasons = plan_aligned(Options(start_bytes=start), spec, EraseBlock(erase, "as asked"), give_way=False)
    geo = plan.geometry
    assert geo.segs_per_sec == segments
    for blkaddr in (geo.segment0_blkaddr, geo.main_blkaddr):
        assert (start + blkaddr * 4096) % erase == 0
    assert geo.segs_per_sec * 2 * MIB % erase == 0
    assert reasons
    assert not [reason for reason in reasons if "past an erase block" in reason]


def test_sections_asked_for_must_hold_whole_erase_blocks() -> None:
    assert aligned(Options(segs_per_sec=4), EraseBlock(4 * MIB, ""))[0].segs_per_sec == 4
    with pytest.raises(Usage, match="multiple of 2"):
        aligned(Options(segs_per_sec=3), EraseBlock(4 * MIB, ""))


def test_a_small_volume_gets_halves_when_the_card_decides() -> None:
    spec = (DeviceSpec("card", 128 * MIB),)
    plan, reasons = plan_aligned(Options(), spec, EraseBlock(16 * MIB, "mmcblk0 says so"), give_way=True)
    assert plan.geometry.segs_per_sec < 8
    assert "instead" in reasons[1]
    with pytest.raises(Usage, match="smallest size"):
        plan_aligned(Options(), spec, EraseBlock(16 * MIB, "as asked"), give_way=False)


def test_the_card_says_how_large_its_erase_blocks_are(tmp_path: Path) -> None:
    disk = tmp_path / "mmcblk0"
    (disk / "device").mkdir(parents=True)
    (disk / "queue").mkdir()
    (disk / "queue/discard_granularity").write_text("4096\n")
    assert erase_block_in(disk).size == 4 * MIB  # a page of the card is no erase block
    (disk / "queue/discard_granularity").write_text(f"{8 * MIB}\n")
    assert erase_block_in(disk).size == 8 * MIB
    (disk / "device/preferred_erase_size").write_text(f"{16 * MIB}\n")
    assert erase_block_in(disk) == EraseBlock(16 * MIB, "mmcblk0 says so in device/preferred_erase_size")
