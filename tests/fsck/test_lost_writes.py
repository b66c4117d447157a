"""Writes that never arrived though the disk said so: what was in none of them is there after a repair.

F2_LOST_WRITES=all tries every moment of every workload, and many random cases.
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import f2tools
from f2tools.device import open_device
from f2tools.device.wrappers import StaysOpen
from f2tools.dump.manifest import manifest
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import CURSEG_HOT_NODE, CURSEG_WARM_NODE, F2FS_ROOT_INO
from f2tools.f2fs.layout.footers import CP_VER_LOW, footer_in, footer_of
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra, NodeFooter
from f2tools.f2fs.volume.checkpoint import resealed
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.policy import Policy
from f2tools.f2fs.write.recovered import open_recovered
from f2tools.f2fs.write.volume import WritableVolume, open_for_writing
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image, open_image
from f2tools.fsck.findings import Severity
from f2tools.fsck.repair.copies import is_copy
from tests import judges
from tests.dump.craft import f2
from tests.f2fs.write.volumes import Above, fresh, reading
from tests.fsck import lost_writes
from tests.fsck.craft import Patient, codes, examine
from tests.fsck.test_kernel import MOUNT
from tests.images import copy_sparse
from tests.kernel import write_log
from tests.kernel.guest import Guest
from tests.kernel.log import assert_quiet
from tests.recover.test_recover import content

EVERY = os.environ.get("F2_LOST_WRITES") == "all"
MOMENTS = range(lost_writes.MOMENTS if EVERY else 1)
FOUND = (
    8229,  # a node that was written where another belongs made the whole table look old
    15665,  # a file became another: an older copy of a directory gave a name too many
    10052,  # a node was copied out of the chain of what was fsync'ed, and taken back, until -y gave up
    9255,  # a block that was to hold another node was taken for the newer copy of one, in turns, until -y gave up
    15447,  # nodes that had been copied, with another version, were taken for older ones, until -y gave up
    18263,  # so they were here
    16897,  # names of two files were exchanged, as one of them was in a directory of which a newer copy was known
    11718,  # an older summary gave a file a block twice
    6578,  # a log that the repair left without owners was taken for lost journals by the next check
)
BEYOND = {10186}  # journals, root and directories: nothing tells a file of then from deleted ones
JOURNALS = {7: (1,), 8: (2,), 10: (2,), 11: (5,), 12: (3,), 13: (3,)}  # moments that once went wrong
FILE = "/tree1/home/database"
CASES = 400 if EVERY else 12


def change(image: Path, patches: list[tuple[int, bytes]]) -> None:
    with image.open("r+b") as file:
        for offset, data in patches:
            file.seek(offset)
            file.write(data)


@pytest.mark.peer
@pytest.mark.parametrize("kind", range(len(lost_writes.KINDS) + len(write_log.KEPT)))
def test_the_journals_of_the_newest_checkpoint_never_arrived(kind: int, tmp_path: Path) -> None:
    """In their place stands what is of the checkpoint before the last, or nothing; the rest of the pack is whole."""
    judges.need_tool("fsck.f2fs")
    for moment in sorted({*MOMENTS, *JOURNALS.get(kind, ())}):
        case = lost_writes.without_summaries(kind, moment)
        blank = case._replace(patches=[(offset, bytes(len(data))) for offset, data in case.patches])
        for what, some in (("older", case), ("zeros", blank)):
            wrong = lost_writes.verdict_on(some, tmp_path).wrong
            assert not wrong, f"moment {moment}, {what}: {wrong}"


def test_the_kernel_shows_the_same_where_the_journals_never_arrived(guest: Guest, tmp_path: Path) -> None:
    """What the kernel wrote, as it then shows it after a repair."""
    disks: list[Path] = []
    wanted: list[dict[str, Any]] = []
    for kind in range(len(lost_writes.KINDS), len(lost_writes.KINDS) + len(write_log.KEPT), 2):
        case = lost_writes.without_summaries(kind, JOURNALS.get(kind, (0,))[0])
        disks.append(copy_sparse(case.path, tmp_path / f"{kind}.img"))
        change(disks[-1], case.patches)
        assert f2("fsck", "-y", disks[-1]).code == 1
        with open_recovered(disks[-1]) as volume:
            wanted.append(content(manifest(volume)["entries"]))
    result = guest.run(MOUNT, disks, timeout=900).must_succeed()
    assert_quiet(result)
    for number, entries in enumerate(wanted):
        found = result.json(f"manifest-{number}.json")
        assert not found.get("errors")
        assert content(found["entries"]) == entries, disks[number]


@pytest.mark.peer
@pytest.mark.parametrize("number", FOUND)
def test_what_once_went_wrong_is_saved(number: int, tmp_path: Path) -> None:
    judges.need_tool("fsck.f2fs")
    assert lost_writes.judged(number, tmp_path).wrong == ""


@pytest.mark.peer
@pytest.mark.parametrize("first", [0, lost_writes.KERNEL_FROM], ids=["ours", "kernel"])
def test_some_of_the_last_writes_never_arrived(first: int, tmp_path: Path) -> None:
    judges.need_tool("fsck.f2fs")
    for number in sorted({*range(first, first + CASES)} - BEYOND):
        wrong = lost_writes.judged(number, tmp_path).wrong
        assert not wrong, f"case {number}, {lost_writes.case(number).what}: {wrong}"


def test_whoever_reads_or_writes_is_told_that_files_are_older(tmp_path: Path) -> None:
    case = lost_writes.without_summaries(2, 0)
    image = copy_sparse(case.path, tmp_path / "image")
    content = f2("dump", "cat", image, FILE).out
    change(image, case.patches)
    assert "N007" in codes(examine(image))
    before = image.read_bytes()
    told = "the journals of the checkpoint are lost, or its tables older than its log"
    shown = f2("dump", "cat", image, FILE)
    assert told in shown.err
    assert shown.out != content
    refused = f2("recover", "--apply", image)
    assert refused.code == 1
    assert told in refused.err
    assert image.read_bytes() == before
    assert f2("fsck", "-y", "--undo", tmp_path / "undo", image).code == 1
    assert f2("dump", "cat", image, FILE).out == content
    assert not f2("dump", "ls", image).err
    assert f2("undo", tmp_path / "undo", image).code == 0
    assert image.read_bytes() == before


@pytest.mark.parametrize("kind", range(0, len(lost_writes.KINDS) + len(write_log.KEPT), 3))
def test_nothing_is_written_above_tables_that_are_older_than_the_log(kind: int, tmp_path: Path) -> None:
    """What files have got since lies in blocks that such tables call free."""
    image = copy_sparse(lost_writes.image(kind, 0), tmp_path / "image")
    inside = f"{image}:/new"
    change(image, lost_writes.without_summaries(kind, 0).patches)
    before = image.read_bytes()
    for words in (
        ["touch", inside], ["touch", "--dry-run", inside], ["cp", __file__, inside], ["clean", image],
        ["shell", "--write", image, "-c", "mkdir /new"], ["clean", "--discard", image], ["defrag", image],
        ["resize", image, "256M"], ["recover", "--apply", image],
    ):  # fmt: skip
        refused = f2(*words)
        assert refused.code in (1, 8), words
        assert any(why in refused.err for why in ("the journals of the checkpoint", "N007", "bring them back")), words
        assert image.read_bytes() == before, words


def test_what_is_said_of_older_files_leads_to_a_repair_and_to_nothing_that_gives_them_up(tmp_path: Path) -> None:
    """Also where something was fsync'ed after the checkpoint."""
    image = copy_sparse(lost_writes.image(0, 0), tmp_path / "image")
    assert "recover --apply" in f2("info", image).err
    change(image, lost_writes.without_summaries(0, 0).patches)
    for words in (
        ["info", image],
        ["dump", "ls", image],
        ["recover", image],
        ["cp", f"{image}:{FILE}", tmp_path],
    ):
        said = f2(*words)
        assert said.err.count("f2tools fsck -y --undo FILE") == 1, words
        assert "recover --apply" not in said.err, words
    assert any("f2tools fsck -y" in text for text in json.loads(f2("info", "--json", image).out)["info"]["warnings"])
    doctor = f2("doctor", image).text
    assert "The journals of the checkpoint are lost" in doctor
    assert "f2tools recover" not in doctor
    assert "the next mount" not in doctor


def test_what_is_recovered_in_memory_is_no_newer_for_that(tmp_path: Path) -> None:
    for kind, moment in ((8, 1), (9, 3), (12, 2), (15, 0)):
        image = copy_sparse(lost_writes.image(kind, moment), tmp_path / "image")
        change(image, lost_writes.without_summaries(kind, moment).patches)
        said = f2("dump", "ls", "--recovered", image)
        assert said.code == 0
        assert said.err.count("f2tools fsck -y --undo FILE") == 1


@pytest.mark.parametrize("new", [b"", b"a few words"], ids=["empty", "inline"])
def test_a_new_file_does_not_get_the_blocks_of_a_deleted_one_that_had_its_number(new: bytes, tmp_path: Path) -> None:
    """The table of segments still has them, as the journals are lost, and the node that the other leads to is, too."""
    image = tmp_path / "image"
    assert f2("mkfs", "--size", "256M", image).code == 0
    with open_for_writing(image) as volume:
        for number in range(60):  # more than a journal has room for
            volume.create(F2FS_ROOT_INO, b"%d" % number, 0o644)
        ino = volume.create(F2FS_ROOT_INO, b"deleted", 0o644)
        volume.write(ino, 0, b"deleted" * 1000)
    with open_for_writing(image) as volume:  # whole segments, so that summaries are written
        for number in range(8):
            volume.write(volume.create(F2FS_ROOT_INO, b"large%d" % number, 0o644), 0, os.urandom(3 << 20))
    with reading(image) as volume:
        lost = volume.nat.lookup(ino)[2]
    with open_for_writing(image) as volume:
        volume.unlink(F2FS_ROOT_INO, b"deleted")
    with open_for_writing(image) as volume:
        assert volume.create(F2FS_ROOT_INO, b"new", 0o644) == ino
        volume.write(ino, 0, new)
    with reading(image) as volume:
        journals = volume.pack.sum_blkaddr
    change(image, [(blkaddr * 4096, bytes(4096)) for blkaddr in (journals, lost)])
    assert f2("fsck", "-y", image).code == 1
    assert f2("dump", "cat", image, "/new").out == new
    assert f2("fsck", image).code == 0


def test_the_first_of_two_blocks_of_summaries_is_enough_to_tell_that_the_journals_are_lost(tmp_path: Path) -> None:
    """What stands in the second one is of the same log, and says nothing of the journals."""
    image = fresh(tmp_path)
    with WritableVolume(open_device(image, write=True), Policy(active_logs=2)) as volume:
        volume.write(volume.create(F2FS_ROOT_INO, b"file", 0o644), 0, os.urandom(460 * 4096))
    with reading(image) as volume:
        table, journals = volume.sit, volume.pack.sum_blkaddr
        assert not volume.summaries.journals_lost(volume.cp, lambda: table)
    change(image, [(journals * 4096, bytes(4096))])
    with reading(image) as volume:
        assert volume.summaries.cursegs[0].entries["nid"].any()
        assert volume.summaries.journals_lost(volume.cp, lambda: table)


def test_a_copy_of_a_node_differs_in_no_address() -> None:
    """Where inodes have no checksum one of their addresses stands in its place."""
    block = np.zeros(4096, np.uint8)
    footer_in(block)["nid"] = footer_in(block)["ino"] = 9
    later = block.copy()
    footer_in(later)["cp_ver"], footer_in(later)["next_blkaddr"] = 7, 0x1234
    assert is_copy(block, later, sealed=False)
    at = INODE_ADDR_OFFSET + InodeExtra.offset_of("i_inode_checksum")
    later[at : at + 4] = 1
    assert is_copy(block, later, sealed=True)
    assert not is_copy(block, later, sealed=False)
    for node in (block, later):
        footer_in(node)["nid"] = 10  # no inode
    assert not is_copy(block, later, sealed=True)


def test_a_sound_volume_is_behind_nothing() -> None:
    with f2tools.open(lost_writes.image(0, 0)) as volume:
        assert not volume.journals_lost


@pytest.mark.parametrize("kind", range(len(lost_writes.KINDS) + len(write_log.KEPT)))
def test_whole_checkpoints_that_are_lost_are_told_by_the_nodes_behind_them(kind: int, tmp_path: Path) -> None:
    for moment in range(lost_writes.MOMENTS):  # where something was written behind them
        case = lost_writes.without_checkpoints(kind, moment)
        image = copy_sparse(case.path, tmp_path / "image")
        assert "C021" not in codes(examine(image), Severity.INFO)
        change(image, case.patches)
        if "C021" in codes(examine(image), Severity.INFO):
            assert "(C021)" in f2("doctor", image).text
            return
    pytest.fail("not once")


@pytest.mark.parametrize("name", ["crash-namespace", "crash-sqlite-wal", "history-a", "phone"])
def test_where_only_the_version_of_a_node_is_older_the_log_is_as_it_was_written(name: str, tmp_path: Path) -> None:
    """What is further on in a log is newer; and what had the number of another file before is no copy of it."""
    with closing(Patient(name, tmp_path)) as p:
        tried = 0
        for kind in (CURSEG_HOT_NODE, CURSEG_WARM_NODE):
            segno, blkoff, _ = p.vol.pack.curseg(kind)
            start = int(p.geo.start_block(segno))
            for blkaddr in range(start, start + blkoff):
                footer = footer_of(p.read(blkaddr * p.size, p.size))
                place = p.vol.nat.get(footer.nid)[2]
                if place == blkaddr or not p.geo.in_main(place):
                    continue
                tried += 1
                at = (place + 1) * p.size - NodeFooter.size + NodeFooter.offset_of("cp_ver")
                before = p.read(at, 4)
                p.put(at, 4, (footer.cp_ver & CP_VER_LOW) - 1)
                with closing(open_image(p.path)) as image:
                    assert not image.journals_lost, f"{blkaddr:#x} is not newer than {place:#x}"
                p.write(at, before)
        assert tried > 20


@pytest.mark.parametrize("ino", [6, 182])
def test_where_an_older_copy_came_back_for_a_blank_inode_nothing_is_newer(ino: int, tmp_path: Path) -> None:
    with closing(Patient("history-a", tmp_path)) as p:
        p.write(p.node_at(ino) * p.size, bytes(p.size - NodeFooter.size))
        assert f2("fsck", "-y", p.path).code == 1
        assert f2("fsck", p.path).code == 0
        shown = f2("dump", "ls", p.path)
        assert not shown.err
        with closing(open_image(p.path)) as image:
            assert not image.journals_lost


@pytest.mark.parametrize("version", [(1 << 32) - 3, (1 << 63) - 3])
def test_a_version_may_be_as_large_as_its_field_and_begin_anew(version: int, tmp_path: Path) -> None:
    path = fresh(tmp_path)
    with open_device(path, write=True) as device, Volume(StaysOpen(device)) as volume:
        cp = Checkpoint.parse(volume.pack.head)
        cp.checkpoint_ver = version
        for offset, data in resealed(volume.pack, cp, volume.geo.block_size):
            device.pwrite(offset, data)
    for number in range(6):
        assert f2("touch", f"{path}:/file{number % 3}").code == 0
        shown = f2("dump", "ls", path)
        assert (shown.code, shown.err) == (0, "")
        assert not codes(examine(path))
    case = lost_writes.without_summaries(2, 0)
    with open_device(case.path) as device, Volume(StaysOpen(device)) as volume:
        larger = Above(device)
        for offset, data in case.patches:
            larger.pwrite(offset, data)
        for pack in volume.packs:
            cp = Checkpoint.parse(pack.head)
            cp.checkpoint_ver += 1 << 63
            for offset, data in resealed(pack, cp, volume.geo.block_size):
                larger.pwrite(offset, data)
        assert "N007" in check(Image(StaysOpen(larger))).counts
