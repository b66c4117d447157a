"""Repairs, judged by a second check, by fsck.f2fs, and by the tree of the image before it was damaged."""

from __future__ import annotations

import os
import re
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from f2tools.device import open_device
from f2tools.f2fs.layout.constants import F2FS_IMMUTABLE_FL, F2FS_INLINE_XATTR
from f2tools.f2fs.layout.node import Inode as INODE
from f2tools.f2fs.volume.volume import Volume
from f2tools.fsck.findings import Severity
from f2tools.fsck.problems import CATALOGUE
from f2tools.fsck.repair.outcome import Outcome
from f2tools.fsck.repair.rounds import Repairer
from tests import judges
from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh, writable
from tests.fsck.craft import Patient, bad, examine, said
from tests.fsck.test_one_field import CASES, CONTENT, Change
from tests.fsck.trees import tree_of
from tests.images import DAMAGED, Reference, reference

F2TOOLS = Path(sys.executable).parent / "f2tools"


def repair(path: Path, *extra: Path, **settings: Any) -> Outcome:
    """Check, repair, write the result."""
    before = examine(path, *extra, content=settings.get("content", False))
    with open_device(path, write=True, extra=list(extra)) as device:
        repairer = Repairer(device, **settings)
        outcome = repairer.run(before)
        if outcome.better:
            repairer.commit(device)
    return outcome


def assert_silent(path: Path, *extra: Path, content: bool = False, peer: bool = True) -> None:
    """A second check finds nothing, neither ours nor, with `peer`, that of the C tools."""
    report = examine(path, *extra, content=content)
    assert not bad(report), said(report)
    if not peer:
        return
    run = judges.fsck(path, *extra)
    assert run.rc == 0, str(run)
    assert not judges.complaints(run.output), str(run)


# -- the corpus -------------------------------------------------------------------------------------------------------

# what can't be had again, path by path
GONE: dict[str, dict[bytes, str]] = {
    "inode-checksum": {b"/small/a-05331-61": "which field was changed, nobody knows"},
    "xattr-length": {b"/xattr/tiny": "the length of its only attribute is gone"},
}


@pytest.mark.peer
@pytest.mark.parametrize("name", DAMAGED)
def test_a_damage_of_the_corpus_is_mended_without_loss(name: str, damaged: Callable[[str], Reference]) -> None:
    image = damaged(name)
    good = tree_of(reference(image.case["base"]).path)
    outcome = repair(image.path)
    assert outcome.complete, said(outcome.after)
    assert_silent(image.path)
    now = tree_of(image.path)
    assert now.keys() == good.keys()
    different = {path for path in good if now[path] != good[path]}
    assert different <= GONE.get(name, {}).keys()


# -- what costs fsck.f2fs everything ----------------------------------------------------------------------------------

TABLE: list[Callable[[Patient], None]] = []


def row(change: Callable[[Patient], None]) -> Callable[[Patient], None]:
    """A row of the table of damages that the C tool loses files by."""
    TABLE.append(change)
    return change


@row
def one_superblock_lost(p: Patient) -> None:
    p.write(p.size + 1024, bytes(3072))


@row
def both_superblocks_lost(p: Patient) -> None:
    p.write(1024, bytes(3072))
    p.write(p.size + 1024, bytes(3072))


@row
def both_checkpoint_heads_bad(p: Patient) -> None:
    for pack in p.vol.packs:
        p.write(pack.blkaddr * p.size, bytes(p.size))


@row
def checkpoint_area_zeroed(p: Patient) -> None:
    p.write(p.geo.cp_blkaddr * p.size, bytes(1024 * p.size))


@row
def a_nat_block_zeroed(p: Patient) -> None:
    p.write(int(p.vol.nat.blkaddrs[0]) * p.size, bytes(p.size))


@row
def root_inode_zeroed(p: Patient) -> None:
    p.write(p.at("/") * p.size, bytes(p.size))


@row
def root_entries_zeroed(p: Patient) -> None:
    inode = p.vol.path("/").inode
    p.write(int(p.vol.data.addresses(inode, 0, 1)[0]) * p.size, bytes(p.size))


@row
def directory_unlinked(p: Patient) -> None:
    p.clear_bits("/", b"bigdir")


@row
def file_unlinked(p: Patient) -> None:
    p.clear_bits("/medium", b"noise")


@row
def directory_level(p: Patient) -> None:
    p.inode("/bigdir", i_dir_level=200)


@row
def name_with_a_slash(p: Patient) -> None:
    _, _, name = p.dentry("/medium", b"noise")
    p.write(name, b"no/se")


@row
def a_sit_block_zeroed(p: Patient) -> None:
    p.write(int(p.vol.sit.blkaddrs[0]) * p.size, bytes(p.size))


@row
def summaries_zeroed(p: Patient) -> None:
    p.write(p.geo.ssa_blkaddr * p.size, bytes(20 * p.size))


@row
def nat_and_sit_block_zeroed(p: Patient) -> None:
    a_nat_block_zeroed(p)
    a_sit_block_zeroed(p)


@row
def checkpoints_and_nat_zeroed(p: Patient) -> None:
    p.write(p.geo.cp_blkaddr * p.size, bytes(1024 * p.size))
    p.write(p.geo.nat_blkaddr * p.size, bytes((p.geo.ssa_blkaddr - p.geo.nat_blkaddr) * p.size))


@row
def double_indirect_node_zeroed(p: Patient) -> None:
    nid = int(p.vol.path("/sparse/depths").inode.nids[4])
    p.write(p.node_at(nid) * p.size, bytes(p.size))


@row
def direct_node_zeroed(p: Patient) -> None:
    nid = int(p.vol.path("/medium/one").inode.nids[0])
    p.write(p.node_at(nid) * p.size, bytes(p.size))


@row
def inode_of_a_directory_zeroed(p: Patient) -> None:
    p.write(p.at("/bigdir") * p.size, bytes(p.size))


@pytest.mark.peer
@pytest.mark.parametrize("change", TABLE, ids=lambda change: change.__name__)
def test_every_file_is_saved(change: Callable[[Patient], None], tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    good = tree_of(reference("base").path)
    change(p)
    p.close()
    outcome = repair(p.path)
    assert outcome.complete, said(outcome.after)
    assert_silent(p.path)
    now = tree_of(p.path)
    if change is inode_of_a_directory_zeroed:  # its own mode is in no other place
        assert now[b"/bigdir"][0] == "dir"
        now[b"/bigdir"] = good[b"/bigdir"]
    assert now == good


def _words(p: Patient, nid: int) -> list[int]:
    block = p.read(p.node_at(nid) * p.size, p.size)
    return [word for word in struct.unpack_from("<1018I", block) if word]


@pytest.mark.peer
@pytest.mark.parametrize("lost", ["pointer and node", "node and one below", "all that lead to nodes", "indirect"])
def test_a_file_comes_back_where_several_of_its_nodes_are_lost(lost: str, tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    good = tree_of(reference("base").path)
    inode = p.vol.path("/sparse/depths").inode
    double = int(inode.nids[4])
    below = _words(p, double)
    gone = {"pointer and node": [double], "node and one below": [double, below[0]], "indirect": [below[1]]}
    for nid in gone.get(lost, [double, *below]):
        p.write(p.node_at(nid) * p.size, bytes(p.size))
    if lost == "pointer and node":
        p.write(p.at("/sparse/depths") * p.size + 360 + 4 * (923 + 4), bytes(4))
    p.close()
    outcome = repair(p.path)
    assert outcome.complete, said(outcome.after)
    assert_silent(p.path)
    assert tree_of(p.path) == good, outcome.done


@pytest.mark.peer
@pytest.mark.parametrize("path", ["/medium/two", "/sparse/depths", "/sparse/last"])
@pytest.mark.parametrize("name", ["base", "plain"])
def test_the_nodes_of_a_file_without_inode_keep_their_content(name: str, path: str, tmp_path: Path) -> None:
    p = Patient(name, tmp_path)
    good = tree_of(reference(name).path)
    p.write(p.at(path) * p.size, bytes(p.size))
    p.close()
    outcome = repair(p.path)
    assert outcome.complete, said(outcome.after)
    assert_silent(p.path)
    now = tree_of(p.path)
    content = 6  # size, mode and times were in the inode alone
    assert now[path.encode()][content] == good[path.encode()][content]
    assert {**now, path.encode(): ()} == {**good, path.encode(): ()}


@pytest.mark.peer
def test_a_file_without_inode_and_name_is_found_again(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    good = tree_of(reference("base").path)
    p.write(p.at("/medium/one") * p.size, bytes(p.size))
    p.clear_bits("/medium", b"one")
    p.close()
    assert repair(p.path).complete
    assert_silent(p.path)
    now = tree_of(p.path)
    del now[b"/lost+found"]
    (found,) = now.keys() - good.keys()
    assert found.startswith(b"/lost+found/")
    assert now[found][6] == good[b"/medium/one"][6]


@pytest.mark.peer
@pytest.mark.parametrize(("name", "path"), [("base", "/medium/two"), ("features", "/xattr/spill")])
def test_a_node_that_the_table_alone_calls_an_inode_stays_what_it_is(name: str, path: str, tmp_path: Path) -> None:
    p = Patient(name, tmp_path)
    good = tree_of(reference(name).path)
    inode = p.vol.path(path).inode
    nid = inode.i_xattr_nid or int(inode.nids[0])
    p.nat(nid, ino=nid)
    p.close()
    assert [finding.code for finding in p.check().findings if finding.severity >= Severity.ERROR] == ["N002"]
    assert repair(p.path).complete
    assert_silent(p.path)
    assert tree_of(p.path) == good


@pytest.mark.peer
@pytest.mark.parametrize("name", ["plain", "checksums"])
def test_an_entry_in_an_inode_that_may_have_no_attributes_inside_is_mended_where_it_lies(
    name: str, tmp_path: Path
) -> None:
    """As a mount with noinline_xattr makes them: without the flag, but with the room."""
    p = Patient(name, tmp_path)
    p.inode("/small", i_inline=p.vol.path("/small").inode.i_inline & ~F2FS_INLINE_XATTR)
    good = tree_of(p.path)
    entry = next(entry for entry in p.vol.dirs.entries(p.vol.path("/small").inode) if entry.slot > 2)
    _, at, _ = p.dentry("/small", entry.name)
    p.put(at, 4, entry.hash_code ^ 0x100)
    p.seal_inode(p.at("/small"))
    p.clear_bits("/small", b".")
    p.seal_inode(p.at("/small"))
    p.close()
    outcome = repair(p.path)
    assert outcome.complete, said(outcome.after)
    assert_silent(p.path)
    assert tree_of(p.path) == good


@pytest.mark.peer
@pytest.mark.parametrize("name", ["plain", "noinline-xattr"])
@pytest.mark.parametrize("path", ["/links", "/links/sub"])
def test_a_directory_inside_its_inode_stays_there_whatever_its_counts_and_pointers_say(
    path: str, name: str, tmp_path: Path
) -> None:
    p = Patient(name, tmp_path)
    p.inode(path, i_blocks=2)
    p.nid_pointer(path, 0, 7)
    good = tree_of(reference(name).path)
    p.close()
    assert repair(p.path).complete
    assert_silent(p.path)
    assert tree_of(p.path) == good


@pytest.mark.peer
def test_a_file_with_a_hole_where_others_keep_attributes_is_sound(tmp_path: Path) -> None:
    """Its inode keeps no room for them, and says so; `-p` set the flag, by which all behind moved by 50 blocks."""
    image = reference("noinline-xattr").copy(tmp_path).path
    with writable(image) as volume:
        ino = volume.path("/small/f10-3688").inode.ino
        for number in [*range(860, 873), *range(930, 1000)]:
            volume.write(ino, number * 4096, bytes([number % 251 + 1]) * 4096)
        assert not volume.live(ino).i_inline & F2FS_INLINE_XATTR
    assert_silent(image)


@pytest.mark.parametrize("core", ["on", "off"])
def test_attributes_of_which_a_directory_says_nothing_are_found(core: str, tmp_path: Path) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        ino = volume.mkdir(3, b"d", 0o755)
        volume.setxattr(ino, "user.a", b"x")
    with Volume(open_device(image)) as volume:
        inode = volume.inode(ino).inode
        at = inode.blkaddr * volume.geo.block_size + INODE.offset_of("i_inline")
    with image.open("r+b") as file:
        file.seek(at)
        file.write(bytes([inode.i_inline & ~F2FS_INLINE_XATTR]))
    run = subprocess.run([F2TOOLS, "fsck", image], env={**os.environ, "F2TOOLS_CORE": core}, capture_output=True)
    assert run.returncode == 4
    assert b"I010" in run.stdout


@pytest.mark.peer
def test_a_lost_file_has_a_place_in_a_root_that_nobody_may_change(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    good = tree_of(reference("base").path)
    p.inode("/", i_flags=F2FS_IMMUTABLE_FL)
    p.inode("/medium/one", i_pino=0)
    p.clear_bits("/medium", b"one")
    p.close()
    assert repair(p.path).complete
    assert_silent(p.path)
    assert tree_of(p.path)[b"/lost+found/one"][6] == good[b"/medium/one"][6]
    with Volume(open_device(p.path)) as vol:
        assert vol.root.inode.i_flags & F2FS_IMMUTABLE_FL


@pytest.mark.peer
@pytest.mark.parametrize("value", [0, 0x77777777, 0xFFFFFFFF, 0x1007])
@pytest.mark.parametrize("name", ["compress-lz4", "compress-zstd"])
def test_the_mark_of_a_compressed_cluster_comes_back(name: str, value: int, tmp_path: Path) -> None:
    p = Patient(name, tmp_path)
    good = tree_of(reference(name).path)
    p.address("/single", 0, value)
    p.close()
    assert repair(p.path).complete
    assert_silent(p.path)
    assert tree_of(p.path) == good


@pytest.mark.peer
def test_a_full_volume_without_a_checkpoint_gets_another(tmp_path: Path) -> None:
    p = Patient("full", tmp_path)
    good = tree_of(reference("full").path)
    checkpoint_area_zeroed(p)
    p.close()
    outcome = repair(p.path)
    assert outcome.complete, said(outcome.after)
    assert_silent(p.path)
    assert tree_of(p.path) == good


@pytest.mark.peer
@pytest.mark.parametrize("name", ["checksums", "plain", "noinline"])
def test_a_lost_nat_block_is_rebuilt_from_the_nodes(name: str, tmp_path: Path) -> None:
    p = Patient(name, tmp_path)
    good = tree_of(reference(name).path)
    a_nat_block_zeroed(p)
    p.close()
    assert repair(p.path).complete
    assert_silent(p.path)
    assert tree_of(p.path) == good


def test_a_node_that_was_found_is_counted_once(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    nids = p.vol.nat.used()
    lost = nids[(nids > 2) & (nids < p.geo.nat_entries_per_block)]
    a_nat_block_zeroed(p)
    p.close()
    done = repair(p.path).done
    several = [re.search(r": (\d+) (lost nodes found|entries rebuilt)", line) for line in done]
    found = sum(int(match[1]) for match in several if match) + sum("found by its footer" in line for line in done)
    assert found == lost.size, done


@pytest.mark.peer
def test_names_that_inodes_remember_are_put_back_when_a_directory_block_is_lost(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    good = tree_of(reference("base").path)
    inode = p.vol.path("/bigdir").inode
    p.write(int(p.vol.data.addresses(inode, 0, 1)[0]) * p.size, bytes(p.size))
    p.close()
    assert repair(p.path).complete
    assert_silent(p.path)
    now = tree_of(p.path)
    # further names of hard links are nowhere else: every file is there, under the name that it remembers
    assert {shown[6] for shown in now.values()} == {shown[6] for shown in good.values()}
    assert set(now) - {b"/lost+found"} <= set(good)


def test_lost_names_are_put_back_where_no_node_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("f2tools.f2fs.write.node.CLEAN_NODES_HELD", 0)
    p = Patient("base", tmp_path)
    good = tree_of(p.path)
    inode = p.vol.path("/bigdir").inode
    p.write(int(p.vol.data.addresses(inode, 0, 1)[0]) * p.size, bytes(p.size))
    p.close()
    assert repair(p.path).complete
    assert {shown[6] for shown in tree_of(p.path).values()} == {shown[6] for shown in good.values()}


# -- one field wrong --------------------------------------------------------------------------------------------------

# what has no repair, and why: the catalogue says it too
UNREPAIRABLE = {
    "S006": "what the bit means is not known", "C003": "there is nothing of which to make another",
    "R001": "no damage: the next mount, or any repair, brings the files back",
}  # fmt: skip
UNKNOWN_TO_PEER = {"device-alias"}  # fsck.f2fs 1.15 calls the undamaged image broken
NAMES_CHANGE = {"name_twice", "entry_of_the_root", "directory_twice", "entry_in_the_wrong_bucket"}
GIVEN_UP = {"C018", "C019"}  # of two states the older one stays, as a mount has it; what goes with the newer is told
REPAIRED = [case for case in CASES if case[2] not in UNREPAIRABLE]


def worst(code: str) -> bool:
    """Whether the problem counts as damage; what is only noted is left as it is."""
    return CATALOGUE[code].severity >= Severity.WARNING


@pytest.mark.peer
@pytest.mark.parametrize(
    ("name", "image", "code", "change"), [case[:4] for case in REPAIRED], ids=[f"{c[0]}-{c[2]}" for c in REPAIRED]
)
def test_one_wrong_field_costs_no_file(name: str, image: str, code: str, change: Change, tmp_path: Path) -> None:
    p = Patient(image, tmp_path)
    good = set(tree_of(p.path, *p.image.extra))
    change(p)
    p.close()
    outcome = repair(p.path, *p.image.extra, content=code in CONTENT)
    assert outcome.complete, said(outcome.after)
    assert outcome.done or not worst(code)
    assert_silent(p.path, *p.image.extra, content=code in CONTENT, peer=image not in UNKNOWN_TO_PEER and worst(code))
    now = set(tree_of(p.path, *p.image.extra))
    assert now >= good or name in NAMES_CHANGE or code in GIVEN_UP, good - now


def test_the_catalogue_says_why_where_there_is_no_repair() -> None:
    for code in UNREPAIRABLE:
        assert CATALOGUE[code].repair.startswith("none"), code


# -- the command ------------------------------------------------------------------------------------------------------


def test_yes_repairs_and_is_exit_code_1_then_0(damaged: Callable[[str], Reference]) -> None:
    image = damaged("inode-nlink").path
    done = f2("fsck", "-y", image)
    assert done.code == 1
    assert "repaired" in done.err
    assert f2("fsck", "-y", image).code == 0


def test_a_dry_run_writes_nothing_and_says_what_it_would_do(damaged: Callable[[str], Reference]) -> None:
    image = damaged("nat-zero").path
    before = image.read_bytes()
    done = f2("fsck", "-y", "--dry-run", image)
    assert done.code == 4
    assert "nid 48 found by its footer" in done.out.decode()
    assert "nothing was written" in done.err
    assert image.read_bytes() == before


def test_a_repair_can_be_taken_back(damaged: Callable[[str], Reference], tmp_path: Path) -> None:
    image = damaged("unreachable-inode").path
    before = image.read_bytes()
    assert f2("fsck", "-y", "--undo", tmp_path / "undo", image).code == 1
    assert image.read_bytes() != before
    assert f2("undo", tmp_path / "undo", image).code == 0
    assert image.read_bytes() == before


def test_preen_gives_nothing_up(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    p.write(p.at("/links/fifo") * p.size, bytes(p.size))  # of a fifo nothing is left but its entry
    p.close()
    done = f2("fsck", "-p", p.path)
    assert done.code == 4
    assert f2("fsck", "-y", p.path).code == 1


def test_nobody_is_asked_when_standard_input_is_no_terminal(damaged: Callable[[str], Reference]) -> None:
    image = damaged("inode-nlink").path
    before = image.read_bytes()
    done = f2("fsck", "-i", image)
    assert done.code == 4
    assert "nobody can be asked" in done.err
    assert image.read_bytes() == before


@pytest.mark.parametrize("words", [["-y", "-n"], ["-y", "--only", "N"], ["--undo", "x"]])
def test_contradicting_options_are_wrong_usage(words: list[str]) -> None:
    assert f2("fsck", *words, reference("base").path).code == 16


def test_a_volume_with_unknown_features_is_not_written_to(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    for copy in (0, 1):
        p.super(copy, feature=p.vol.sb.feature | 0x40000000)
    p.inode("/medium/one", i_links=9)
    p.close()
    before = p.path.read_bytes()
    assert f2("fsck", "-y", p.path).code == 4
    assert p.path.read_bytes() == before


def test_a_lost_flag_is_told_where_the_room_for_attributes_looks_like_an_address(tmp_path: Path) -> None:
    """On a large volume the two words of extra attributes lead into the main area, if they are read as an address."""
    image = fresh(tmp_path, "--size 20G -O extra_attr,flexible_inline_xattr")
    with writable(image) as vol:
        ino = vol.create(3, b"file", stat.S_IFREG | 0o644)
        vol.write(ino, 0, b"content")
    with Volume(open_device(image)) as vol:
        inode = vol.path("/file").inode
        word = inode.block[360:364].view("<u4")[0]
        assert vol.geo.in_main(word)
        at = inode.blkaddr * vol.geo.block_size + 3
    with image.open("r+b") as file:
        file.seek(at)
        file.write(bytes([inode.i_inline & ~0x20]))
    assert [(finding.code, finding.ino) for finding in bad(examine(image))] == [("I013", ino)]
    assert repair(image).complete
    assert_silent(image, peer=False)
    assert f2("dump", "cat", image, "/file").out == b"content"


def test_what_was_fsynced_is_brought_back_before_a_repair(tmp_path: Path) -> None:
    p = Patient("crash-new-file", tmp_path)
    recovered = set(p.image.manifest("recovered")["entries"])
    name = next(n for n in sorted(recovered) if n != "." and "/" not in n)
    inode = p.vol.root.inode
    p.put(inode.blkaddr * p.size + struct.calcsize("<HBBII"), 4, inode.i_links + 7)
    p.close()
    assert repair(p.path).complete
    now = {path.decode().lstrip("/") for path in tree_of(p.path)}
    assert recovered - {"."} <= now, (name, recovered - now)
