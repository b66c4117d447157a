"""Repairing: what is damaged becomes sound, what can be kept is kept, and a repair that was killed is done again."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from f2tools.device.changes.record import Recorder
from f2tools.dfs.check import check
from f2tools.dfs.layout import ROOT_INO, WAL_START
from f2tools.dfs.repair import Repair, repair
from f2tools.dfs.volume import Volume
from f2tools.errors import F2fsError
from f2tools.flash.vsl import Vsl, open_vsl
from tests.device.memory import Memory
from tests.dfs.test_dfs_hostile import CASES, DAMAGE, FILE, GEO, damaged, directory_with, sample
from tests.dfs.volumes import codes, content, reading, report, tree, volume, without_past, writing
from tests.flash.chips import after_cut, cuts

pytestmark = pytest.mark.usefixtures("directories")

NOW = 2_000_000_000 * 10**9
WHOLE = tree(reading(sample()))
CONTENT = b"content" * 100


def repaired(image: bytes) -> tuple[bytes, Repair]:
    layer = open_vsl(Memory(image))
    said = repair(layer, now=NOW)
    layer.close()
    return bytes(layer.medium.device.content), said  # type: ignore[attr-defined]


@pytest.mark.parametrize(("directories", "what"), CASES, indirect=["directories"])
def test_each_kind_of_damage_is_repaired_and_a_second_repair_finds_nothing_to_do(directories: str, what: str) -> None:
    after, said = repaired(damaged(DAMAGE[what][0]))
    assert codes(after) == set()
    assert said.done or said.lost
    assert not reading(after).waiting
    again, nothing = repaired(after)
    assert (nothing.done, nothing.lost) == ([], [])
    assert tree(reading(again)) == tree(reading(after))
    with_writes = writing(after)
    with_writes.write(with_writes.create(ROOT_INO, b"after", 0o644), 0, b"x")
    with_writes.close()
    assert codes(content(with_writes)) == set()


@pytest.mark.parametrize(
    "what",
    ["a superblock", "the log's head", "an inode's bits", "an inode's base", "an inode's size", "an inode's links",
     "an open file",
     "a directory's links", "no `..`", "a wrong `..`", "a wrong `.`", "a type", "a slash", "a name twice",
     "a directory twice", "the root within", "no root", "nobody's place", "between"],
)  # fmt: skip
def test_damage_that_the_rest_of_the_volume_tells_all_about_costs_no_file_and_no_name(what: str) -> None:
    after, _ = repaired(damaged(DAMAGE[what][0]))
    found = tree(reading(after))
    if what in ("an inode's size", "an inode's bits"):  # what mapped blocks tell is where the last one ends
        content = found.pop(b"/folder/file")
        assert (content[:700], content.strip(b"\0")) == (CONTENT, CONTENT)
        found[b"/folder/file"] = CONTENT
    if b"/folder/again" in found:  # a directory twice: nothing tells which of its names came first
        found[b"/folder/inner"] = found.pop(b"/folder/again")
    assert found == WHOLE


@pytest.mark.parametrize("what", ["a name", "a target", "a number beyond", "a chain", "an empty block", "a circle"])
def test_what_has_lost_its_name_is_found_again_below_lost_and_found(what: str) -> None:
    after, said = repaired(without_past(damaged(DAMAGE[what][0])))
    found = tree(reading(after))
    assert CONTENT in found.values()
    assert any(path.startswith(b"/lost+found/#") for path in found)
    assert any("lost+found" in line for line in said.done)


@pytest.mark.parametrize(
    "what", ["a name", "a name of a directory", "a target", "a number beyond", "a chain", "an empty block", "a circle"]
)  # fmt: skip
def test_what_has_lost_its_name_has_it_again_where_the_log_still_knows_it(what: str) -> None:
    after, said = repaired(damaged(DAMAGE[what][0]))
    assert tree(reading(after)) == WHOLE
    assert any("as it did before" in line for line in said.done)


def test_a_name_that_another_file_has_by_now_is_not_given_back() -> None:
    made = volume()
    old = made.create(ROOT_INO, b"name", 0o644)
    made.write(old, 0, b"old")
    made.sync()
    made.rename(ROOT_INO, b"name", ROOT_INO, b"moved")
    made.write(made.create(ROOT_INO, b"name", 0o644), 0, b"new")
    made.sync()
    made.rename(ROOT_INO, b"moved", ROOT_INO, b"last")
    moved = made.names.find(made.inode(ROOT_INO), b"last")
    assert moved is not None
    made.names.remove(made.inode(ROOT_INO), moved)
    made.close()
    after, _ = repaired(content(made))
    found = {path: value for path, value in tree(reading(after)).items() if isinstance(value, bytes)}
    assert found == {b"/name": b"new", b"/moved": b"old"}


def test_entries_in_a_block_that_is_no_chain_any_more_are_told_by_their_inodes() -> None:
    after, said = repaired(damaged(directory_with(lambda block: bytes([*block[:4], 3, *block[5:]]))))
    assert tree(reading(after)) == WHOLE
    assert said.lost


def test_a_file_whose_inode_is_gone_is_made_anew_from_its_place_and_its_name() -> None:
    after, said = repaired(damaged(lambda layer: layer.trim_vblocks(GEO.inode_block(FILE), 1)))
    seen = reading(after)
    inode = seen.at_path(b"/folder/file")
    assert (inode.kind, inode.mode & 0o7777, inode.uid) == ("file", 0o600, 0)
    assert seen.read_content(inode, 0, 700) == CONTENT
    assert any("owner" in line for line in said.lost)


def test_a_wrong_bit_in_a_mode_gives_nobody_more_power() -> None:
    def change(block: bytearray) -> None:
        block[12:14] = (0o104777).to_bytes(2, "little")

    from tests.dfs.volumes import change_block

    after, _ = repaired(damaged(lambda layer: change_block(layer, GEO.inode_block(FILE), change)))
    assert not reading(after).inode(FILE).mode & 0o7000


def test_a_transaction_that_waits_is_done_and_what_never_became_safe_is_not_brought_back() -> None:
    made = volume()
    made.write(made.create(ROOT_INO, b"safe", 0o644), 0, b"safe")
    made.sync()
    made.write(made.create(ROOT_INO, b"unsafe", 0o644), 0, b"lost" * 1000)
    made.layer.flush()
    made.abandon()
    after, said = repaired(content(made))
    assert set(tree(reading(after))) == {b"/", b"/safe"}
    assert said.lost == []
    assert report(after).clean


def test_a_repair_that_loses_power_anywhere_is_done_again_and_loses_nothing_more() -> None:
    for what in ("a chain", "a circle", "no root", "a directory's size"):
        before = damaged(DAMAGE[what][0])
        kept = set(map(str, tree(reading(repaired(before)[0])).values()))
        recorder = Recorder(Memory(before))
        layer = open_vsl(recorder)
        repair(layer, now=NOW)
        layer.close()
        for cut in cuts(recorder):
            after, _ = repaired(bytes(after_cut(recorder, before, cut).content))
            assert codes(after) == set(), (what, cut)
            assert set(map(str, tree(reading(after)).values())) >= kept - {"2", "3", "4"}, (what, cut)


def test_damage_by_chance_ends_in_a_sound_volume_or_a_clear_error() -> None:
    image = sample()
    known = open_vsl(Memory(image))
    blocks = [block for start, count in known.extents() for block in range(start, start + count)]
    interesting = [block for block in blocks if not WAL_START < block < 1 << 16]
    sound = 0
    for seed in range(60):
        chance = random.Random(seed)
        layer = open_vsl(Memory(image))
        for _ in range(chance.randrange(1, 5)):
            block = chance.choice(interesting)
            data = bytearray(layer.read_vblocks(block, 1))
            for _ in range(chance.randrange(1, 40)):
                data[chance.randrange(512)] = chance.randrange(256)
            layer.write_vblocks(block, bytes(data))
        with suppress(F2fsError):
            repair(layer, now=NOW)
            assert check(Volume(layer)).findings == [], seed
            sound += 1
    assert sound > 55


def test_a_directory_of_many_orphans_takes_them_all() -> None:
    made = volume()
    for number in range(300):
        made.create(ROOT_INO, b"a file with a longer name, %d" % number, 0o644)
    made.close()

    def forget(layer: Vsl) -> None:
        root = Volume(layer).inode(ROOT_INO)
        layer.trim_vblocks(root.base, GEO.chunk_blocks)

    layer = open_vsl(Memory(content(made)))
    forget(layer)
    layer.close()
    layer = open_vsl(Memory(without_past(bytes(layer.medium.device.content))))  # type: ignore[attr-defined]
    repair(layer, now=NOW)
    assert check(Volume(layer)).findings == []
    assert len(tree(Volume(layer))) == 302


def test_an_inode_whose_block_can_t_be_read_costs_its_file_and_nothing_more() -> None:
    image = sample()
    block = reading(image).block(GEO.inode_block(FILE))
    hurt = bytearray(image)
    at = image.rfind(block)
    hurt[at : at + len(block)] = random.Random(1).randbytes(len(block))
    assert "DFS010" in codes(bytes(hurt))
    after, said = repaired(bytes(hurt))
    assert codes(after) == set()
    assert said.lost
    assert WHOLE.keys() - tree(reading(after)).keys() <= {b"/folder/file"}
