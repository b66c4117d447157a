"""Repairs of crashed volumes that were damaged as well: what was fsync'ed comes back, or it is said that it does not.

F2_CRASH_FUZZ is the number of cases for each image, F2_CRASH_FIRST the first of them.  A failure names image and
number; `python -m tests.fsck.crashes IMAGE NUMBER -v` tells its story.
"""

from __future__ import annotations

import os
import random
import stat
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import f2tools
from f2tools.device import open_device
from f2tools.dump.manifest import manifest
from f2tools.f2fs.layout.constants import CURSEG_WARM_NODE, DENT_BIT_SHIFT, F2FS_ROOT_INO, NR_CURSEG_TYPE
from f2tools.f2fs.layout.footers import footer_in
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, Inode, NodeFooter
from f2tools.f2fs.layout.sit import SitEntry
from f2tools.f2fs.write.recovered import open_recovered
from f2tools.fsck.check import check
from f2tools.fsck.checks import recovery as chain
from f2tools.fsck.facts.image import Image, open_image
from f2tools.fsck.facts.leaks import Leaks
from f2tools.fsck.facts.orphans import orphans_of
from tests import judges
from tests.dump.craft import f2
from tests.fsck import crashes
from tests.fsck.craft import Patient, codes, examine, said
from tests.fsck.test_kernel import MOUNT
from tests.hostile.exercise import in_child
from tests.images import CRASH, reference
from tests.kernel.guest import Guest
from tests.recover.test_recover import content

IMAGES = ("crash-new-file", "crash-several", "crash-orphan", "crash-xattr", "crash-stress-1")
CASES = int(os.environ.get("F2_CRASH_FUZZ", str(crashes.WAYS)))
FIRST = int(os.environ.get("F2_CRASH_FIRST", "0"))


def failures(name: str, numbers: range, work: Path) -> list[str]:
    return [f"{name} {n}: {wrong}" for n in numbers if (wrong := crashes.judged(name, n, work).wrong)]


@pytest.mark.peer
@pytest.mark.parametrize("name", IMAGES)
def test_what_a_power_cut_and_random_damage_left_is_saved(name: str, tmp_path: Path) -> None:
    judges.need_tool("fsck.f2fs")
    found = in_child(lambda: failures(name, range(FIRST, FIRST + CASES), tmp_path))
    assert not found, f"{len(found)} failures\n" + "\n".join(found[:5])


def test_the_first_of_two_copies_in_a_segment_is_the_older_one_whatever_a_garbled_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were written before one checkpoint; the segment table, all noise, calls the later one free."""
    good = crashes.truth("crash-append-inline").good
    with f2tools.open(good.path) as volume:
        blkaddr = int(volume.sit.blkaddrs[0])
    for seed in range(4):
        data = random.Random(seed).randbytes(good.block_size)
        monkeypatch.setattr(crashes, "damage", lambda *_, data=data: [(blkaddr * good.block_size, data)])
        assert crashes.judged("crash-append-inline", 4, tmp_path, peer=False).wrong == ""


@pytest.mark.parametrize("name", ["crash-append-inline", "crash-sqlite-wal"])
def test_what_a_garbled_table_calls_valid_is_not_taken_before_what_is_newer(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older copies of nodes were, where the journals are lost; and older blocks for space that is only reserved."""
    good = crashes.truth(name).good
    with f2tools.open(good.path) as volume:
        size, table = good.block_size, int(volume.sit.blkaddrs[0])
        journals = volume.pack.sum_blkaddr * size, bytes(size)
    for seed in range(1, 3):
        noise = table * size, random.Random(seed).randbytes(size)
        monkeypatch.setattr(crashes, "damage", lambda *_, noise=noise: [noise, journals])
        assert crashes.judged(name, 0, tmp_path, peer=False).wrong == ""


def test_where_all_segments_are_in_use_by_a_garbled_table_there_is_room_for_what_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of the chain are copied out of it; names were given up as nothing could be."""
    good = crashes.truth("crash-several-strict").good
    with f2tools.open(good.path) as volume:
        size, table = good.block_size, int(volume.sit.blkaddrs[0])
        journals = volume.pack.sum_blkaddr * size, bytes(size)
    for seed in range(4):
        noise = table * size, random.Random(seed).randbytes(size)
        monkeypatch.setattr(crashes, "damage", lambda *_, noise=noise: [noise, journals])
        assert crashes.judged("crash-several-strict", 4, tmp_path, peer=False).wrong == ""


def test_what_was_found_and_has_no_room_is_not_given_up(tmp_path: Path) -> None:
    """As above, and no segment is blank: the volume is left as it was, for `--rescue`, which finds all."""
    image = reference("crash-several-strict").copy(tmp_path).path
    with f2tools.open(image) as volume:
        size, geo, table, journals = volume.geo.block_size, volume.geo, volume.sit.blkaddrs[0], volume.pack.sum_blkaddr
        noise = {int(table): random.Random(0).randbytes(size), journals: bytes(size)}
        noise |= {int(geo.start_block(segno)): b"what was deleted" for segno in volume.sit.free_segments()}
        for kind in range(NR_CURSEG_TYPE):
            segno, at, _ = volume.pack.curseg(kind)
            assert int(geo.start_block(segno)) not in noise or not at
    with image.open("r+b") as disk:
        for blkaddr, data in noise.items():
            disk.seek(blkaddr * size)
            disk.write(data)
    damaged = image.read_bytes()
    left = f2("fsck", "-y", image)
    assert (left.code, image.read_bytes() == damaged) == (4, True)
    assert "no free segment" in left.text
    assert "fsck --rescue" in left.err
    assert f2("fsck", "-y", "--rescue", "--undo", tmp_path / "undo", image).code == 1
    with f2tools.open(image) as volume, open_recovered(reference("crash-several-strict").path) as whole:
        assert content(manifest(volume)["entries"]) == content(manifest(whole)["entries"])


def test_a_lost_node_whose_footer_names_a_reserved_number_is_none_to_be_found(tmp_path: Path) -> None:
    """It was brought back as that and taken away again, without end: nothing else was repaired then."""
    image = reference("fragmented").copy(tmp_path).path
    with f2tools.open(image) as volume:
        size, per = volume.geo.block_size, volume.geo.nat_entries_per_block
        overridden = set(volume.summaries.journals.nat["nid"].tolist())
        nid = next(nid for nid in volume.nat.used().tolist() if nid > 3 and nid not in overridden)
        entry = int(volume.nat.blkaddrs[nid // per]) * size + nid % per * NatEntry.size
        footer = (volume.nat.get(nid)[2] + 1) * size - NodeFooter.size
    with image.open("r+b") as disk:
        for at, data in ((entry, bytes(NatEntry.size)), (footer, (2).to_bytes(4, "little"))):
            disk.seek(at)
            disk.write(data)
    with open_device(image) as device:
        tree = check(Image(device)).tree
        assert tree is not None
        assert min(Leaks(tree.scan).nodes, default=3) >= 3
    assert f2("fsck", "-y", image).code == 1


@pytest.mark.parametrize("name", ["fragmented", "crash-namespace"])
def test_an_inode_of_which_one_number_in_the_footer_was_hit_is_found_by_its_summary_or_name(
    name: str, tmp_path: Path
) -> None:
    """Of two, the first had the number of the second: both were found for it, in turns.

    After a crash the summaries of the open logs are made of the footers.
    """
    image = reference(name).copy(tmp_path).path
    with open_recovered(image) as volume:
        before = content(manifest(volume)["entries"])
    with f2tools.open(image) as volume:
        size, per = volume.geo.block_size, volume.geo.nat_entries_per_block
        inodes = [nid for nid in volume.nat.used().tolist() if nid > F2FS_ROOT_INO and volume.nat.get(nid)[1] == nid]
        first, second = [nid for nid in inodes if volume.inode(nid).inode.kind == "file"][:2]
        entries = [int(volume.nat.blkaddrs[nid // per]) * size + nid % per * NatEntry.size for nid in (first, second)]
        journal = volume.summaries.journals.nat
        block = volume.device.pread(volume.pack.sum_blkaddr * size, size)
        rows = [row.tobytes() for row in journal[np.isin(journal["nid"], (first, second))]]
        end = volume.pack.sum_blkaddr * size - NatEntry.size
        entries += [end + block.index(row) + len(row) for row in rows]
        footers = [(volume.nat.get(nid)[2] + 1) * size - NodeFooter.size for nid in (first, second)]
    with image.open("r+b") as disk:
        for at, data in (
            *((entry, bytes(NatEntry.size)) for entry in entries),
            (footers[0], second.to_bytes(4, "little")),
            (footers[1] + NodeFooter.offset_of("ino"), b"\xff" * 4),
        ):
            disk.seek(at)
            disk.write(data)
    assert f2("fsck", "-y", image).code == 1
    with f2tools.open(image) as volume:
        assert content(manifest(volume)["entries"]) == before


def test_an_inode_in_an_open_log_with_the_number_of_another_is_not_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its inode number was hit as well, and the segment table calls the block of the other one free."""
    good = crashes.truth("crash-stress-2").good
    with f2tools.open(good.path) as volume:
        size, log = good.block_size, volume.summaries.cursegs[CURSEG_WARM_NODE].segno
        inodes = [nid for nid in volume.nat.used().tolist() if nid > F2FS_ROOT_INO and volume.nat.get(nid)[1] == nid]
        files = [nid for nid in inodes if volume.inode(nid).inode.kind == "file"]
        other = next(nid for nid in files if volume.geo.segno(volume.nat.get(nid)[2]) != log)
        hit = next(nid for nid in files if volume.geo.segno(volume.nat.get(nid)[2]) == log)
        footer = (volume.nat.get(hit)[2] + 1) * size - NodeFooter.size
        segno, at = divmod(volume.nat.get(other)[2] - volume.geo.main_blkaddr, volume.geo.blocks_per_seg)
        assert segno not in volume.summaries.journals.sit["segno"]
        block, index = divmod(segno, volume.geo.sit_entries_per_block)
        byte = (
            int(volume.sit.blkaddrs[block]) * size + index * SitEntry.size + SitEntry.offset_of("valid_map") + at // 8
        )
        bits = volume.device.pread(byte, 1)[0] & ~(0x80 >> at % 8)
    patches = [(footer, other.to_bytes(4, "little") + b"\x01\0\0\x40"), (byte, bytes([bits]))]
    monkeypatch.setattr(crashes, "damage", lambda *_: patches)
    assert crashes.judged("crash-stress-2", 0, tmp_path, peer=False).wrong == ""


def test_a_repair_is_at_work_as_long_as_there_is_less_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run of lost blocks all but the first were put back; that it was lost still was taken for no change."""
    good = crashes.truth("crash-namespace").good
    with f2tools.open(good.path) as volume:
        size, big = good.block_size, volume.path("/b/big").inode
        node = volume.nat.get(int(big.nids[0]))[2] * size
        other = volume.path("/a/f1-renamed").inode.blkaddr * size + INODE_ADDR_OFFSET
    patches = [(node + 4 * 108 + 2, b"\xff" * 64), (other + 4 * 600, b"\xff" * 4)]
    monkeypatch.setattr(crashes, "damage", lambda *_: patches)
    assert crashes.judged("crash-namespace", 0, tmp_path, peer=False).wrong == ""


def test_nodes_are_not_put_back_into_what_can_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that became a socket, of which nothing else speaks: its pointers were cleared and set in turns."""
    facts = crashes.truth("crash-collapsed")
    size = facts.good.block_size
    with f2tools.open(facts.good.path) as volume:
        known, names = volume.path("/known").inode.blkaddr, int(volume.path("/").inode.addrs[0])
    fsynced = next(node for node in facts.chain if node.is_inode and node.blkaddr > known and node.ino == 8)
    patches = [
        (known * size, bytes(size)),
        (names * size, random.Random(1).randbytes(size)),
        (fsynced.blkaddr * size, (stat.S_IFSOCK | 0o644).to_bytes(2, "little")),
    ]
    monkeypatch.setattr(crashes, "damage", lambda *_: patches)
    assert crashes.judged("crash-collapsed", 0, tmp_path, peer=False).wrong == ""


def test_a_node_that_an_inode_leads_to_is_no_inode_by_its_summary(tmp_path: Path) -> None:
    """Its offset in the footer was hit, and its few addresses look like an inode: the end of the file was given up."""
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "file").write_bytes(data := random.Random(0).randbytes((873 + 6) * 4096))
    image = tmp_path / "image"
    assert f2("mkfs", image, "--size", "64M", "--from", tmp_path / "from").code == 0
    with f2tools.open(image) as volume:
        nid = int(volume.path("/file").inode.nids[0])
        version, ino, blkaddr = volume.nat.get(nid)
        entry = struct.pack("<IBII", nid, version, ino, blkaddr)
        at = volume.pack.sum_blkaddr * 4096
    with image.open("r+b") as disk:
        disk.seek((blkaddr + 1) * 4096 - NodeFooter.size + NodeFooter.offset_of("flag"))
        disk.write(bytes(4))
        disk.seek(at)
        journal = disk.read(4096)
        assert entry in journal
        disk.seek(at)
        disk.write(journal.replace(entry, entry[:4] + bytes(9)))
    assert f2("fsck", "-y", "--undo", tmp_path / "undo", image).code == 1
    with f2tools.open(image) as volume:
        assert volume.path("/file").read() == data


@pytest.mark.parametrize(("name", "directory"), [("crash-stress-4", "/s"), ("crash-holes", "/a/sub")])
def test_where_the_journals_and_a_directory_are_lost_files_are_found(
    name: str, directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older copy of /s leads to deleted ones instead, as the table does: the counts are full of them.

    Of /a/sub there is no other copy, and its number went to a node of what was fsync'ed: no directory could have it.
    """
    good = crashes.truth(name).good
    size = good.block_size
    with f2tools.open(good.path) as volume:
        footer = (volume.path(directory).inode.blkaddr + 1) * size - NodeFooter.size
        patches = [(footer, bytes(NodeFooter.size)), (volume.pack.sum_blkaddr * size, bytes(size))]
    monkeypatch.setattr(crashes, "damage", lambda *_: patches)
    assert crashes.judged(name, 0, tmp_path, peer=False).wrong == ""


@pytest.mark.parametrize(
    ("name", "torn", "lost"),
    [
        ("crash-several", ("/a/f8", "/a/f7"), ""),
        ("crash-new-file", ("/a/f2",), "sit"),
        ("crash-orphan", ("orphan",), "root"),
    ],
)
def test_what_was_fsynced_comes_back_however_much_has_to_be_repaired_before(
    name: str, torn: tuple[str, ...], lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was tried in vain six times on the way, and then given up on a volume that was sound; or it left a defect."""
    good = crashes.truth(name).good
    chance = random.Random(2)
    with f2tools.open(good.path) as volume:
        size = good.block_size
        places = {"sit": int(volume.sit.blkaddrs[0]), "root": volume.path("/").inode.blkaddr}
        inodes = [volume.inode(int(volume.orphans()[0])) if path == "orphan" else volume.path(path) for path in torn]
        patches = [(places[lost] * size, bytes(size))] if lost else []
        patches += [(one.inode.blkaddr * size, chance.randbytes(512)) for one in inodes]
    monkeypatch.setattr(crashes, "damage", lambda *_: patches)
    assert crashes.judged(name, 0, tmp_path, peer=False).wrong == ""


def test_a_name_is_not_led_to_what_its_footer_calls_a_node_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of it, in which the inode number was hit, were found in turns, as a name leads to inodes alone."""
    facts = crashes.truth("crash-sqlite-wal")
    size, chain = facts.good.block_size, facts.chain
    with f2tools.open(facts.good.path) as volume:
        ino = volume.path("/db/test.sqlite-wal").inode.ino
        known = volume.nat.get(ino)[2]
    footers = [(node.blkaddr + 1) * size - NodeFooter.size for node in chain if node.nid == ino]
    patches = [
        ((chain[0].blkaddr + 1) * size - NodeFooter.size + NodeFooter.offset_of("cp_ver") + 1, b"\xb2"),
        ((known + 1) * size - NodeFooter.size, bytes(8)),
        *((at + NodeFooter.offset_of("ino") + 1, b"\xff") for at in footers),
    ]
    monkeypatch.setattr(crashes, "damage", lambda *_: patches)
    assert crashes.judged("crash-sqlite-wal", 0, tmp_path, peer=False).wrong == ""


def test_a_node_that_is_found_ahead_of_the_log_does_not_end_the_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was fsync'ed, and its version hit; left there, it moved the log, and nothing was led to that comes behind."""
    facts = crashes.truth("crash-several-strict")
    with f2tools.open(facts.good.path) as volume:
        ino = volume.path("/a/f4").inode.ino
        at_checkpoint = volume.nat.get(ino)[2]
    fsynced = [node for node in facts.chain if node.nid == ino][-1].blkaddr
    hit, lost = ((blkaddr + 1) * facts.good.block_size - NodeFooter.size for blkaddr in (fsynced, at_checkpoint))
    patches = [
        (hit + NodeFooter.offset_of("cp_ver") + 1, b"\0"),
        (lost, random.Random(1).randbytes(NodeFooter.size)),
    ]
    monkeypatch.setattr(crashes, "damage", lambda *_: patches)
    assert crashes.judged("crash-several-strict", 0, tmp_path, peer=False).wrong == ""


def test_what_was_fsynced_takes_no_name_of_an_older_directory_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is an older copy, in which a file has the name that it had before a rename."""
    good = crashes.truth("crash-stress-2").good
    with f2tools.open(good.path) as volume:
        blkaddr = volume.path("/s").inode.blkaddr
    monkeypatch.setattr(crashes, "damage", lambda *_: [(blkaddr * good.block_size, bytes(good.block_size))])
    assert crashes.judged("crash-stress-2", 0, tmp_path, peer=False).wrong == ""


def test_a_mark_that_asks_for_a_name_is_not_believed_of_a_file_of_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It remembers a name that it had before a rename, and that is another file's now."""
    facts = crashes.truth("crash-stress-0")
    inode = facts.chain[-1]
    assert inode.is_inode
    flag = (inode.blkaddr + 1) * facts.good.block_size - NodeFooter.size + NodeFooter.offset_of("flag")
    with facts.good.path.open("rb") as disk:
        disk.seek(flag)
        word = disk.read(1)[0]
    monkeypatch.setattr(crashes, "damage", lambda *_: [(flag, bytes([word | 1 << DENT_BIT_SHIFT]))])
    assert crashes.judged("crash-stress-0", 0, tmp_path, peer=False).wrong == ""


@pytest.mark.parametrize(
    ("name", "lost"), [("crash-namespace", "noise"), ("crash-sqlite-wal", "noise"), ("crash-stress-4", "zeros")]
)
def test_where_the_journals_are_lost_files_are_as_the_log_has_them_last(
    name: str, lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that the tables lead to is whole then, and old; some of it they never heard of."""
    good = crashes.truth(name).good
    with f2tools.open(good.path) as volume:
        at = volume.pack.sum_blkaddr * good.block_size
    data = bytes(good.block_size) if lost == "zeros" else random.Random(1).randbytes(good.block_size)
    monkeypatch.setattr(crashes, "damage", lambda *_: [(at, data)])
    assert crashes.judged(name, 0, tmp_path, peer=False).wrong == ""


def test_where_the_journals_were_lost_the_log_is_searched_once_in_each_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = reference("crash-sqlite-rollback").copy(tmp_path).path
    with f2tools.open(image) as volume:
        at, size = volume.pack.sum_blkaddr * volume.geo.block_size, volume.geo.block_size
    with image.open("r+b") as disk:
        disk.seek(at)
        disk.write(bytes(size))
    searched: list[Image] = []
    search = Leaks._search
    monkeypatch.setattr(Leaks, "_search", lambda leaks: searched.append(leaks._image) or search(leaks))
    assert f2("fsck", "-y", image).code == 1
    assert len(searched) > 2
    assert len({id(state) for state in searched}) == len(searched)


def test_a_copy_of_a_node_that_leads_to_what_is_others_is_not_believed(tmp_path: Path) -> None:
    """As recovery can leave one behind: newer than the node, and never in a checkpoint."""
    image = reference("crash-sqlite-rollback").copy(tmp_path).path
    with f2tools.open(image) as volume:
        size, pack = volume.geo.block_size, volume.pack
        file, big = (volume.path(path).inode for path in ("/db/test.sqlite", "/b/big"))
        end = (volume.geo.end_blkaddr - 1) * size
    with image.open("r+b") as disk:
        disk.seek(pack.sum_blkaddr * size)
        disk.write(bytes(size))
        for inode, ino in ((big, file.ino), (file, file.ino), (file, 30_000)):
            disk.seek(inode.blkaddr * size)
            copy = np.frombuffer(bytearray(disk.read(size)), np.uint8)
            footer_in(copy)["nid"], footer_in(copy)["ino"] = file.ino, ino
            footer_in(copy)["cp_ver"] = pack.cp.checkpoint_ver - 1
            disk.seek(end)
            disk.write(copy.tobytes())
            disk.flush()
            taken = {f.ino: f.expected for f in examine(image).findings if f.code == "N007"}
            assert (taken[file.ino] == f"{end // size:#x}") == (inode is file)
        old = int(str(next(f.found for f in examine(image).findings if (f.code, f.ino) == ("N007", file.ino))), 16)
        disk.seek((old + 1) * size - NodeFooter.size + NodeFooter.offset_of("cp_ver"))
        disk.write(b"\xff\xff\xff\xff")  # whether this copy is older is not known then
        disk.flush()
        assert file.ino not in {f.ino for f in examine(image).findings if f.code == "N007"}


@pytest.mark.parametrize("name", CRASH)
def test_the_truth_is_the_kernels(name: str) -> None:
    good = crashes.truth(name).good
    kernel = reference(name).manifest("manifest-recovered")["entries"]
    ours = {os.fsdecode(path).lstrip("/"): ino for ino, paths in good.names.items() for path in paths}
    assert ours == {path: entry["ino"] for path, entry in kernel.items() if path not in ("", ".", "/")}
    sizes = {path: kernel[path]["size"] for path in ours if kernel[path]["type"] == "file"}
    assert sizes == {path: good.shown[ours[path]][5] for path in sizes}


@pytest.mark.parametrize("way", range(crashes.WAYS))
def test_the_judge_sees_that_nothing_is_said_of_what_lies_behind_a_gap(
    way: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "crash-new-file"
    facts = crashes.truth(name)
    second = facts.chain[1].blkaddr * facts.good.block_size

    def gap(*_: object) -> list[tuple[int, bytes]]:
        return [(second, bytes(facts.good.block_size))]

    monkeypatch.setattr(crashes, "damage", gap)
    assert crashes.judged(name, way, tmp_path, peer=False).wrong == ""
    monkeypatch.setattr(chain, "nodes_behind", lambda *_: [])
    monkeypatch.setattr("f2tools.f2fs.volume.recovery.nodes_behind", lambda *_: [])
    wrong = crashes.judged(name, way, tmp_path, peer=False).wrong
    assert ("is not there" if way == crashes.SALVAGED else "was not said") in wrong


def test_the_judge_sees_that_what_was_fsynced_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = crashes.WritableVolume

    def forgetful(device: Any, **options: Any) -> Any:
        return real(device, **{"recover": "orphans", **options})

    monkeypatch.setattr(crashes, "damage", lambda *_: [])
    assert crashes.judged("crash-several", 0, tmp_path, peer=False).wrong == ""
    monkeypatch.setattr(crashes, "WritableVolume", forgetful)
    assert " files: " in crashes.judged("crash-several", 0, tmp_path, peer=False).wrong


def test_the_kernel_shows_the_same_after_a_repair(guest: Guest, tmp_path: Path) -> None:
    """What is left to be brought back by the mount comes back there, too."""
    disks: list[Path] = []
    wanted: list[dict[str, Any]] = []
    for name in ("crash-new-file", "crash-several-strict", "crash-several", "crash-unlinked-after", "crash-holes"):
        for part in (0, 2):
            facts = crashes.truth(name)
            end = (facts.chain[part].blkaddr + 1) * facts.good.block_size
            disks.append(reference(name).copy(tmp_path / f"{name}-{part}").path)
            with disks[-1].open("r+b") as file:
                file.seek(end - NodeFooter.size)
                file.write(bytes(NodeFooter.size))
            f2("fsck", "-y", disks[-1])
            with open_recovered(disks[-1]) as volume:
                wanted.append(content(manifest(volume)["entries"]))
    result = guest.run(MOUNT, disks, timeout=900).must_succeed()
    for number, entries in enumerate(wanted):
        found = result.json(f"manifest-{number}.json")
        assert not found.get("errors")
        assert content(found["entries"]) == entries, disks[number]


def test_a_directory_that_was_removed_while_it_was_open_has_no_size(tmp_path: Path) -> None:
    """The kernel sets it to 0, and the list of orphans has it: that was told as damage."""
    p = Patient("crash-orphan", tmp_path)
    image = open_image(p.path)
    orphan = int(orphans_of(image)[0])
    image.close()
    ino, start = p.ino("/a/sub"), p.node_at(orphan) * p.size
    dot, its_dot = (struct.pack("<IIHB", 0, number, 1, 2) for number in (ino, orphan))
    p.write(start, p.read(p.at("/a/sub") * p.size, p.size - NodeFooter.size).replace(dot, its_dot))
    for field in ("i_links", "i_size"):
        p.write(start + Inode.offset_of(field), bytes(4))
    p.close()
    report = examine(p.path)
    assert codes(report).keys() <= {"C004", "G003"}, said(report)  # for the content of what was a file
