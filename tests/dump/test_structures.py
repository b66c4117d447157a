"""`f2tools dump` of structures, held against the kernel's own counts, the C tools, and the manifests."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import f2tools
from f2tools.dump.blocks import block
from f2tools.dump.directory import dentries
from f2tools.dump.info import fsynced_nodes, volume_info
from f2tools.dump.mapping import file_map
from f2tools.dump.nodes import inode, node, resolve
from f2tools.dump.owners import first_file_block, owner_of, paths_of
from f2tools.dump.segments import picture, segment_summary
from f2tools.dump.structures import checkpoints, superblocks
from f2tools.dump.tables import nat_rows, sit_rows, ssa_rows
from f2tools.errors import Corrupt
from f2tools.f2fs.layout.constants import CURSEG_NAMES, SUM_TYPE_NODE
from f2tools.f2fs.layout.node_tree import kind_of_node
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from tests import images, judges

Open = Callable[[str], Volume]
KERNEL_NAMES = {
    "COLD   data": "cold_data", "WARM   data": "warm_data", "HOT    data": "hot_data",
    "Dir   dnode": "hot_node", "File  dnode": "warm_node", "Indir nodes": "cold_node",
}  # fmt: skip
# the kernel's counts were taken just before the unmount wrote again; these were not idle then
STATUS_BUSY = {"history-a", "phone", "fragmented"}
WITH_STATUS = [n for n in images.CLEAN if (images.DIRECTORY / n / "status.txt").exists() and n not in STATUS_BUSY]


@pytest.fixture
def vol(reference: Callable[[str], images.Reference]) -> Open:
    def opened(name: str) -> Volume:
        case = reference(name)
        return f2tools.open(case.path, case.extra)

    return opened


# -- segments ---------------------------------------------------------------------------------------------------


def status_table(text: str) -> dict[str, tuple[int, int, int]]:
    """type -> (dirty, full, valid blocks) of /sys/kernel/debug/f2fs/status."""
    found: dict[str, tuple[int, int, int]] = {}
    for line in text.splitlines():
        match = re.match(r"\s+- (.*?):\s+-?\d+\s+-?\d+\s+-?\d+\s+(\d+)\s+(\d+)\s+(\d+)$", line)
        if match and match[1] in KERNEL_NAMES:
            found[KERNEL_NAMES[match[1]]] = (int(match[2]), int(match[3]), int(match[4]))
    return found


@pytest.mark.parametrize("name", WITH_STATUS)
def test_segments_by_type_are_what_the_kernel_counted(name: str, vol: Open) -> None:
    expected = status_table(images.reference(name).text("status.txt"))
    assert expected
    shown = segment_summary(vol(name))
    found = {t["type"]: (t["dirty_segments"], t["full_segments"], t["valid_blocks"]) for t in shown["by_type"]}
    assert {kind: found[kind] for kind in expected} == expected


@pytest.mark.parametrize("name", images.CASES)
def test_counts_of_segments_add_up(name: str, vol: Open) -> None:
    if name in images.SPARSE:
        return
    volume = vol(name)
    shown = segment_summary(volume)
    assert shown["used_segments"] + shown["free_segments"] == shown["segments"] == len(volume.sit)
    assert sum(t["dirty_segments"] + t["full_segments"] for t in shown["by_type"]) == shown["used_segments"]
    assert sum(shown["histogram"]) == shown["used_segments"]
    # blocks reserved but not written, and those that compression saved, are counted without being anywhere
    assert shown["valid_blocks"] <= volume.cp.valid_block_count
    if name in ("plain", "features", "full", "blocks16k", "noinline"):
        assert shown["valid_blocks"] == volume.cp.valid_block_count


def test_the_picture_has_a_cell_for_every_segment_or_group(vol: Open) -> None:
    volume = vol("fragmented")
    single = picture(volume, 1000)
    assert (single.segs_per_cell, single.types.size) == (1, len(volume.sit))
    assert np.array_equal(single.types >= 0, volume.sit.vblocks > 0)
    assert np.allclose(single.fill * 512, volume.sit.vblocks)
    grouped = picture(volume, 10)
    assert grouped.segs_per_cell == 4
    assert grouped.types.size == -(-len(volume.sit) // 4)
    assert np.flatnonzero(grouped.is_open).tolist() == sorted({c.segno // 4 for c in volume.summaries.cursegs})


# -- superblock, checkpoint, info -------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.parametrize("name", ["plain", "features", "sections", "casefold", "crash-several", "multi-device"])
def test_superblock_and_checkpoint_are_what_dump_f2fs_prints(name: str, vol: Open) -> None:
    case = images.reference(name)
    volume = vol(name)
    theirs = judges.superblock_fields(case.path, *case.extra)
    ours = superblocks(volume.device)["copies"][0]["fields"]
    compared = [key for key, value in theirs.items() if isinstance(value, int) and isinstance(ours.get(key), int)]
    assert len(compared) > 20
    assert {key: ours[key] for key in compared} == {key: theirs[key] for key in compared}
    shown = checkpoints(volume.device)
    fields = shown["packs"][shown["live"]]["fields"]
    flat: dict[str, Any] = {}
    for key, value in fields.items():
        flat |= {f"{key}[{i}]": one for i, one in enumerate(value)} if isinstance(value, list) else {key: value}
    theirs = judges.checkpoint_fields(case.path, *case.extra)
    compared = [key for key, value in theirs.items() if isinstance(value, int) and key in flat]
    assert len(compared) > 20
    assert {key: flat[key] for key in compared} == {key: theirs[key] for key in compared}


def test_a_damaged_second_superblock_is_shown_with_what_is_wrong(tmp_path: Path) -> None:
    case = images.reference("features").copy(tmp_path)
    write(case.path, 4096 + 1024 + 36, b"\x01")
    with f2tools.open(case.path) as volume:
        shown = superblocks(volume.device)
    assert shown["live"] == 0
    assert shown["copies"][1]["problems"][0].startswith("checksum is")
    assert shown["differences"] == ["block_count"]


@pytest.mark.parametrize(
    ("name", "live", "why"),
    [
        ("plain", 1, "both packs are sound; pack 2 is newer: version 0x6b8b456e against 0x6b8b456d"),
        ("crash-several", 0, "both packs are sound; pack 1 is newer: version 0x3ac4f6f9 against 0x3ac4f6f8"),
    ],
)
def test_the_live_pack_is_named_with_the_reason(name: str, live: int, why: str, vol: Open) -> None:
    shown = checkpoints(vol(name).device, "older")
    assert (shown["live"], shown["selected"], shown["why"]) == (live, 1 - live, why)


def test_the_only_sound_pack_is_live_because_the_other_is_not(tmp_path: Path) -> None:
    case = images.reference("plain").copy(tmp_path)
    write(case.path, 0x400 * 4096 + 8, b"\xff")
    with f2tools.open(case.path) as volume:
        shown = checkpoints(volume.device, "older")
    assert shown["why"] == ("pack 1 is the only sound one; pack 2 is not usable: checksum of the head is wrong")
    assert (shown["live"], shown["selected"]) == (0, None)
    assert shown["packs"][1]["fields"]["user_block_count"] % 256 == 255


@pytest.mark.parametrize("name", [n for n in images.CASES if n not in images.SPARSE])
def test_the_blocks_of_a_pack_have_no_gap(name: str, vol: Open) -> None:
    for pack in checkpoints(vol(name).device)["packs"]:
        if not pack["valid"]:
            continue
        parts = [part for part in pack["contents"] if part["what"] != "nat_bits"]
        at = pack["blkaddr"]
        for part in parts:
            assert part["blkaddr"] == at
            at += part["count"]
        assert at == pack["blkaddr"] + pack["fields"]["cp_pack_total_block_count"]


REFUSED = [n for n in images.CRASH if (images.DIRECTORY / n / "dmesg-disable-roll-forward.txt").exists()]


@pytest.mark.parametrize("name", REFUSED)
def test_what_waits_for_roll_forward_is_what_the_kernel_saw(name: str, vol: Open) -> None:
    said = images.reference(name).text("dmesg-disable-roll-forward.txt")
    assert bool(fsynced_nodes(vol(name))) == ("Need to recover fsync data" in said)


def test_info_says_what_the_volume_is(vol: Open) -> None:
    shown = volume_info(vol("features"))
    assert "verity" in shown["features"]
    assert shown["quota_inodes"] == {"user": 4, "group": 5, "project": 6}
    assert shown["statfs"] == {k: images.reference("features").manifest()["statfs"][k] for k in shown["statfs"]}
    assert shown["space"]["valid_inode_count"] == 134
    assert shown["state"]["clean"]
    assert shown["kbytes_written"] == 3916
    assert shown["extensions"]["hot"] == ["db", "vmdk", "vdi", "qcow2"]
    assert volume_info(vol("casefold"))["encoding"] == {"name": "utf8", "version": "12.1.0", "flags": []}
    assert len(volume_info(vol("multi-device"))["devices"]) == 2


# -- tables -----------------------------------------------------------------------------------------------------


def rows_of(pieces: Any) -> list[tuple[Any, ...]]:
    return [row for columns in pieces for row in zip(*(c.tolist() for c in columns.values()), strict=True)]


def test_nat_rows_are_the_entries_in_use_and_all_of_them_on_request(vol: Open) -> None:
    volume = vol("features")
    rows = rows_of(nat_rows(volume))
    assert [r[0] for r in rows] == volume.nat.used().tolist()
    assert rows[0][:4] == (1, 0, 1, 1)
    everything = rows_of(nat_rows(volume, everything=True))
    assert len(everything) == len(volume.nat)
    some = rows_of(nat_rows(volume, np.array([0, 3, 100000]), everything=True))
    assert [r[0] for r in some] == [0, 3, 100000]
    assert rows_of(nat_rows(volume, np.array([0, 3, 100000]))) == [some[1]]


@pytest.mark.peer
def test_nat_and_sit_are_what_dump_f2fs_says(vol: Open, tmp_path: Path) -> None:
    volume = vol("features")
    private = images.reference("features").copy(tmp_path)
    tool = judges.need_tool("dump.f2fs")
    subprocess.run([tool, "-n", "0~-1", "-s", "0~-1", private.path], cwd=tmp_path, capture_output=True, check=False)
    told = [re.findall(r"-?\d+", line) for line in (tmp_path / "dump_nat").read_text().splitlines() if "nid" in line]
    theirs = {int(w[0]): (int(w[1]), int(w[3])) for w in told if int(w[3])}
    ours = {nid: (ino, address) for nid, _, ino, address, _ in rows_of(nat_rows(volume)) if nid > 2}
    assert {nid: theirs[nid] for nid in theirs if nid > 2} == ours
    text = (tmp_path / "dump_sit").read_text()
    counts = [int(n) for n in re.findall(r"vblocks:\s*(\d+)", text)]
    assert counts == [row[2] for row in rows_of(sit_rows(volume, everything=True))]


@pytest.mark.parametrize("name", ["features", "crash-several", "blocks16k", "packed-ssa", "full"])
def test_sit_rows_count_what_their_maps_show(name: str, vol: Open) -> None:
    for segno, kind, vblocks, _mtime, _journal, valid_map in rows_of(sit_rows(vol(name))):
        assert bin(int(valid_map, 16)).count("1") == vblocks > 0, segno
        assert kind in CURSEG_NAMES


@pytest.mark.parametrize("name", ["features", "fragmented", "crash-several", "blocks16k", "packed-ssa", "zoned"])
def test_every_valid_block_has_an_owner_in_the_summaries(name: str, vol: Open) -> None:
    volume = vol(name)
    rows = rows_of(ssa_rows(volume))
    assert len(rows) == int(volume.sit.vblocks.sum())
    nat = volume.nat
    for _segno, _off, blkaddr, kind, nid, version, _ofs, valid in rows:
        assert valid
        found_version, _ino, address = nat.get(nid)
        assert address != 0
        assert address == blkaddr if kind == "node" else found_version == version


# -- nodes, inodes, directories ---------------------------------------------------------------------------------


def test_the_kind_of_a_node_follows_from_its_offset_as_in_the_kernel() -> None:
    kinds = [kind_of_node(ofs, 1018) for ofs in (1, 2, 3, 4, 1021, 1022, 1023, 2040, 2041, 2042, 2043, 3060, 3061)]
    direct, indirect = "direct", "indirect"
    assert kinds == [
        direct, direct, indirect, direct, direct, indirect, direct, direct, "double indirect", indirect, direct, direct,
        indirect,
    ]  # fmt: skip
    assert kind_of_node(0x1FFFFFFF, 1018) == "xattr"


def test_the_first_file_block_of_a_direct_node_follows_from_its_offset() -> None:
    class Small:
        class geo:
            addrs_per_block = 3

        addrs_per_inode, addrs_per_block = 7, 3

    def children(level: int) -> list[str]:
        return ["direct"] if level == 0 else ["indirect", *(kind for _ in range(3) for kind in children(level - 1))]

    kinds = ["inode", "direct", "direct", *children(1), *children(1), "double indirect", *children(2)[1:]]
    at = 7
    for ofs, kind in enumerate(kinds[1:], 1):
        assert kind_of_node(ofs, 3) == kind
        if kind == "direct":
            assert first_file_block(ofs, Small) == at  # type: ignore[arg-type]
            at += 3


def test_the_first_file_block_of_every_node_is_where_the_tree_has_it(vol: Open) -> None:
    volume = vol("features")
    found = volume.path("sparse/depths").inode
    checked = 0
    for nid, _v, ino, _address, _j in rows_of(nat_rows(volume)):
        if ino != found.ino or nid == ino:
            continue
        shown = node(volume, nid)
        assert shown["problems"] == []
        if shown["kind"] != "direct":
            continue
        for run in shown["addrs"]:
            addresses = volume.data.addresses(found, shown["fofs"] + run["index"], run["count"])
            assert addresses.tolist() == list(range(run["first"], run["first"] + run["count"]))
            checked += 1
    assert checked > 10
    assert first_file_block(0, found) == 0


@pytest.mark.parametrize("name", ["features", "checksums", "compress-zstd", "plain"])
def test_inodes_say_what_the_manifest_says(name: str, vol: Open) -> None:
    volume, manifest = vol(name), images.reference(name).manifest()
    checked = 0
    for path, entry in list(manifest["entries"].items())[:150]:
        shown = inode(volume, os.fsencode("/" if path == "." else "/" + path))
        fields = shown["fields"]
        assert shown["ino"] == entry["ino"]
        assert (fields["i_mode"] & 0o7777, fields["i_uid"], fields["i_gid"]) == (
            int(entry["mode"], 8),
            entry["uid"],
            entry["gid"],
        )
        assert (fields["i_size"], fields["i_links"]) == (entry["size"], entry["nlink"])
        assert shown["problems"] == []
        assert shown["paths_confirmed"]
        assert shown["checksum"] is None or shown["checksum"]["ok"]
        names = {x["name"] for x in shown["xattrs"] if x["name"]}
        assert names == set(entry.get("xattrs", {}))
        checked += 1
    assert checked > 10


def test_every_name_of_an_inode_with_hard_links_is_found_on_request(vol: Open) -> None:
    volume = vol("features")
    manifest = images.reference("features").manifest()["entries"]
    ino = next(e["ino"] for e in manifest.values() if e["nlink"] > 2 and e["type"] == "file")
    expected = {"/" + path for path, e in manifest.items() if e["ino"] == ino}
    paths, confirmed = paths_of(volume, ino, everywhere=True)
    assert (set(paths), confirmed) == (expected, True)
    assert set(paths_of(volume, ino)[0]) <= expected


def test_a_wrong_inode_checksum_is_said_and_the_inode_shown(tmp_path: Path) -> None:
    case = images.reference("features").copy(tmp_path)
    with f2tools.open(case.path) as volume:
        blkaddr = volume.path("small/a-00060-4").inode.blkaddr
    write(case.path, blkaddr * 4096 + 4, b"\x07")
    with f2tools.open(case.path) as volume:
        shown = inode(volume, "small/a-00060-4")
    assert shown["fields"]["i_uid"] == 7
    assert shown["problems"] == ["the checksum is wrong"]
    assert not shown["checksum"]["ok"]


def test_a_node_whose_footer_lies_is_shown_with_what_is_wrong(tmp_path: Path) -> None:
    case = images.reference("features").copy(tmp_path)
    with f2tools.open(case.path) as volume:
        blkaddr = volume.nodes.address(60)
    write(case.path, (blkaddr + 1) * 4096 - 24, (61).to_bytes(4, "little"))
    with f2tools.open(case.path) as volume:
        shown = node(volume, 60)
        with pytest.raises(Corrupt, match="no such node number"):
            node(volume, len(volume.nat))
        with pytest.raises(Corrupt, match="the node is free"):
            node(volume, len(volume.nat) - 1)
    assert shown["problems"] == ["the footer names nid 61, the NAT has 60 here"]


def test_an_inode_is_found_by_number_and_by_path_with_or_without_the_slash(vol: Open) -> None:
    volume = vol("features")
    ino = volume.path("/small").inode.ino
    assert [resolve(volume, w).ino for w in ("small", "/small", b"small/", str(ino), f"ino:{ino}", ino)] == [ino] * 6


@pytest.mark.parametrize("name", ["plain", "features", "casefold", "fscrypt", "noinline", "blocks16k-casefold"])
def test_every_entry_of_every_directory_is_listed_with_its_right_hash(name: str, vol: Open) -> None:
    volume = vol(name)
    for directory in {found.ino: found for _path, found, _entries in volume.walk()}.values():
        entries = volume.listdir(directory)
        shown = dentries(volume, directory)
        assert shown["problems"] == []
        listed = [(e["ino"], e["block"], e["slot"]) for e in shown["entries"] if e["name"] not in (".", "..")]
        assert listed == [(e.dentry.ino, e.dentry.block, e.dentry.slot) for e in entries]
        assert all(e["hash_ok"] is (None if directory.encrypted else True) for e in shown["entries"])


def test_raw_dentries_show_names_that_were_removed(vol: Open) -> None:
    volume = vol("history-a")
    unused: list[dict[str, Any]] = []
    for _path, directory, _entries in volume.walk():
        unused += [e for e in dentries(volume, directory, raw=True)["entries"] if e["state"] == "unused"]
        assert all(e["state"] == "used" for e in dentries(volume, directory)["entries"])
    assert any(e["hash_ok"] for e in unused)


# -- maps -------------------------------------------------------------------------------------------------------

FIEMAP_EXTENT_UNKNOWN, FIEMAP_UNWRITTEN, FIEMAP_ENCODED, FIEMAP_INLINE = 0x2, 0x800, 0x8, 0x200


@pytest.mark.parametrize("name", ["plain", "features", "fragmented", "noinline", "sections", "multi-device"])
def test_the_map_of_a_file_is_its_fiemap(name: str, vol: Open) -> None:
    volume, manifest = vol(name), images.reference(name).manifest()
    size = volume.geo.block_size
    checked = 0
    for entry in manifest["entries"].values():
        if entry["type"] != "file" or "extents" not in entry or len(entry["extents"]) >= 64:
            continue
        found = volume.inode(entry["ino"]).inode
        parts = file_map(volume, found)["extents"]
        if any(extent[3] & FIEMAP_INLINE for extent in entry["extents"]):
            assert [p["kind"] for p in parts] == ["inline"]
            continue
        expected: dict[int, int] = {}
        for logical, physical, length, flags in entry["extents"]:
            if not flags & FIEMAP_UNWRITTEN:
                expected |= {(logical // size) + i: physical // size + i for i in range(length // size)}
        ours = {
            p["fofs"] + i: p["blkaddr"] + i
            for p in parts
            if p["kind"] == "extent"
            for i in range(min(p["count"], 4096))
        }
        if max((len(expected), len(ours))) < 4096:
            assert ours == expected, entry
            checked += 1
    assert checked > 0


@pytest.mark.parametrize("name", ["compress-lz4", "compress-zstd", "blocks16k-compress"])
def test_compressed_clusters_are_shown_with_the_blocks_they_take(name: str, vol: Open) -> None:
    volume = vol(name)
    seen = 0
    for _path, _directory, entries in volume.walk():
        for entry in entries:
            if not isinstance(entry.inode, Inode) or not entry.inode.compressed or entry.inode.has_inline_data:
                continue
            for part in file_map(volume, entry.inode)["extents"]:
                if part["kind"] != "compressed":
                    continue
                taken = sum(run["count"] for run in part["blocks"])
                assert part["fofs"] % entry.inode.cluster_size == 0
                assert 0 < taken < part["count"] == entry.inode.cluster_size
                seen += 1
    assert seen > 0


def test_a_map_covers_the_file_without_overlap(vol: Open) -> None:
    volume = vol("features")
    for path in ("sparse/depths", "sparse/last", "sparse/size-only", "sparse/fallocate"):
        found = volume.path(path).inode
        at = 0
        for part in file_map(volume, found)["extents"]:
            if part["beyond_eof"]:
                continue
            assert part["fofs"] == at
            at += part["count"]
        assert at == -(-found.i_size // 4096)


# -- any block --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["features", "compress-lz4", "blocks16k", "packed-ssa", "multi-device"])
def test_valid_blocks_are_live_and_the_others_are_not(name: str, vol: Open) -> None:
    volume = vol(name)
    valid = [row[2] for row in rows_of(ssa_rows(volume))][:: max(1, volume.cp.valid_block_count // 150)]
    for blkaddr in valid:
        owner = owner_of(volume, blkaddr)
        assert owner is not None
        assert owner.live, owner
    segno = volume.summaries.cursegs[0].segno
    start = volume.geo.start_block(segno)
    stale = [b for b in range(start, start + 512) if not volume.sit.valid(np.array([b]))[0]][:50]
    for blkaddr in stale:
        owner = owner_of(volume, blkaddr)
        assert owner is None or not owner.live


def test_data_blocks_of_a_file_name_its_path_and_place(vol: Open) -> None:
    volume = vol("features")
    for path in ("/sparse/depths", "/sparse/fallocate"):
        for part in file_map(volume, volume.path(path).inode)["extents"]:
            if part["kind"] != "extent":
                continue
            shown = block(volume, part["blkaddr"])
            assert shown["live"]
            assert shown["owner"]["paths"] == [path]
            assert shown["owner"]["fofs"] == part["fofs"]
            assert shown["problems"] == []


def test_a_block_of_an_aliased_device_belongs_to_its_file(vol: Open) -> None:
    volume = vol("device-alias")
    last = volume.geo.end_blkaddr - 1
    shown = block(volume, last)
    assert shown["live"]
    assert shown["problems"] == []
    alias = volume.inode(shown["owner"]["ino"]).inode
    assert alias.cached_extent[1] + shown["owner"]["fofs"] == last


def test_every_kind_of_block_is_named(vol: Open) -> None:
    volume = vol("features")
    what = {b: block(volume, b)["what"] for b in (0, 1, 0x200, 0x406, 0x600, 0x800, 0xA00, 0xE00, 0x1016, 0x1400)}
    assert what == {
        0: "superblock copy 0, from byte 1024 of the block",
        1: "superblock copy 1, from byte 1024 of the block",
        0x200: "pack 1: head",
        0x406: "pack 2: tail",
        0x600: "SIT copy 1, block 0: segments 0 to 54",
        0x800: "SIT copy 2, block 0: segments 0 to 54",
        0xA00: "NAT copy 1, block 0: nids 0 to 454",
        0xE00: "summary of segment 0 (data blocks)",
        0x1016: "live node (inode)",
        0x1400: "live node (indirect)",
    }
    assert block(volume, 0x100)["area_name"] == "gap before the checkpoint area, unused"
    root = block(volume, int(volume.root.inode.addrs[0]))
    assert root["what"] == "live directory block"
    assert [e["name"] for e in root["dentries"]][:3] == [".", "..", "lost+found"]


def test_summaries_and_nodes_agree_on_the_kind_of_every_open_log(vol: Open) -> None:
    volume = vol("plain")
    for curseg in volume.summaries.cursegs:
        assert (curseg.entry_type == SUM_TYPE_NODE) == (curseg.kind >= 3)


def write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as f:
        f.seek(offset)
        assert f.read(len(data)) != data
        f.seek(offset)
        f.write(data)


def test_json_of_every_library_call_is_plain_data(vol: Open) -> None:
    volume = vol("features")
    for shown in (volume_info(volume), checkpoints(volume.device), superblocks(volume.device), node(volume, 3)):
        assert json.loads(json.dumps(shown))
