"""Repairing: what is damaged becomes sound, what is there twice is brought back, and a repair that was killed is done
again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from f2tools.device.changes.record import WRITE, Recorder
from f2tools.dffs.layout import CHECKPOINT, DATA, DIRECTORY, FILE, LINK, ROOT_ID, SPACE, SUPER, TABLE, VIRTUAL
from f2tools.dffs.mending import Mending
from f2tools.dffs.nodes import File
from f2tools.dffs.pages import NotDffs, build_spare, parse_tag
from f2tools.dffs.repair import repair
from f2tools.dffs.scan import NODES, Scan
from f2tools.dffs.state import NoCheckpoint, checkpoint_blocks
from f2tools.errors import F2fsError
from f2tools.repaired import Repair
from tests.device.memory import Memory
from tests.dffs.test_dffs_hostile import AT, DAMAGE, IMAGE, bucket_of
from tests.dffs.volumes import SMALL, change_page, codes, colliding, content, reading, torn, tree, volume, writing
from tests.dump.craft import f2

NOW = 2_000_000_000 * 10**9
WHOLE = tree(reading(IMAGE))
RAW, PAGE, SPARE = SMALL.raw_page, SMALL.page_size, SMALL.spare_size
Damage = Callable[[bytearray, int], None]


def repaired(image: bytes) -> tuple[bytes, Repair]:
    device = Memory(image)
    said = repair(device, now=NOW)
    return bytes(device.content), said


def damaged(what: str) -> bytes:
    where, change, _ = DAMAGE[what]
    return change_page(IMAGE, AT[where], change)


def garbled(image: bytes, page: int, start: int = 0, end: int = RAW) -> bytes:
    """A dump in which bytes of a page and its spare area are noise; it has no bad block mark."""
    made, page = bytearray(image), int(page)
    made[page * RAW + start : page * RAW + end] = random.Random(page).randbytes(end - start)
    made[page * RAW + PAGE] = 0xFF
    return bytes(made)


@cache
def lived(*, closed: bool) -> bytes:
    """A volume that has seen some changes, many of them made safe by themselves."""
    made, chance = volume(), random.Random(3)
    directories = [ROOT_ID]
    for number in range(4):
        directories.append(made.mkdir(chance.choice(directories), b"dir%d" % number, 0o755))
        made.sync()
    files: dict[int, tuple[int, bytes]] = {}

    def change(number: int) -> None:
        where, name = chance.choice(directories), b"file%d" % number
        ino = made.create(where, name, 0o644)
        made.write(ino, 0, b"%d" % number * chance.choice([10, 900, 3000]))
        files[number] = where, name
        if number % 5 == 0:
            made.sync()
        if number % 7 == 3:
            files[number] = directories[2], b"moved%d" % number
            made.rename(where, name, *files[number])
        if number % 9 == 4:
            made.link(ino, directories[3], b"link%d" % number)
        if number % 6 == 5:
            made.unlink(*files.pop(chance.choice(list(files))))

    for number in range(50):
        change(number)
    for name in colliding(4):
        made.create(directories[1], name, 0o644)
    if closed:
        made.close()
        return content(made)
    made.checkpoint()
    for number in range(50, 70):
        change(number)
    made.sync()
    return content(made)


def scanned(image: bytes) -> Scan:
    seen = reading(image)
    return Scan(seen.pages, checkpoint_blocks(seen.sb))


def codes_of(image: bytes) -> set[str]:
    """What a check finds, also of a volume that can't be opened."""
    try:
        return codes(image)
    except NoCheckpoint:
        return {"DFF004"}
    except NotDffs:
        return {"DFF001"}


@pytest.mark.parametrize("what", DAMAGE)
def test_each_kind_of_damage_is_repaired_and_what_is_made_of_it_can_be_written_to(what: str) -> None:
    after, said = repaired(damaged(what))
    assert codes(after) == set()
    assert said.done
    assert reading(after).clean
    more = writing(after)
    more.write(more.create(1, b"after", 0o644), 0, b"x" * 3000)
    more.close()
    assert codes(content(more)) == set()


KNOWN_BY_NOTHING_ELSE = {
    "a file's mode", "a file's end", "a huge file", "a long name", "an attribute", "a link's target",
    "a link to nothing",
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(set(DAMAGE) - KNOWN_BY_NOTHING_ELSE))
def test_damage_that_the_rest_of_the_volume_tells_all_about_costs_nothing(what: str) -> None:
    after, said = repaired(damaged(what))
    assert tree(reading(after)) == WHOLE
    assert said.lost == []


def test_a_file_whose_inode_is_gone_is_made_of_its_pages_of_content() -> None:
    after, said = repaired(damaged("a file's mode"))
    seen = reading(after)
    entries = list(seen.entries(seen.directory(seen.at_path(b"/lost+found").ino)))
    assert [entry.name for entry in entries] == [b"#%d" % entries[0].inode.ino]
    found = seen.read_content(entries[0].inode, 0, 1 << 20)
    assert (found[:7000], found[660_000:].strip(b"\0")) == (b"content" * 1000, b"far")
    assert entries[0].inode.mode & 0o7777 == 0o600
    assert any("name, owner, permissions" in line for line in said.lost)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("kind", [DIRECTORY, FILE, LINK, VIRTUAL, DATA, TABLE, SPACE, SUPER, CHECKPOINT])
@pytest.mark.parametrize(("start", "end"), [(0, RAW), (0, PAGE), (PAGE, RAW)], ids=["all", "content", "spare"])
def test_a_page_that_is_gone_costs_the_names_of_one_file_at_most_and_that_is_said(
    closed: bool, kind: int, start: int, end: int
) -> None:
    image = lived(closed=closed)
    whole, scan = tree(reading(image)), scanned(image)
    pages = [page for page in range(SMALL.pages) if scan.kind[page] == kind]
    for page in pages[-2:]:
        broken = garbled(image, page, start, end)
        if not codes_of(broken):
            continue  # nothing leads there any more
        after, said = repaired(broken)
        assert codes(after) == set(), page
        found = tree(reading(after))
        gone = {path for path, was in whole.items() if isinstance(was, bytes) and found.get(path) != was}
        known = {reading(image).at_path(path).ino for path in gone}
        assert len(known) <= 1, (page, gone)
        assert said.lost or not gone, page
        if kind in (VIRTUAL, TABLE, SPACE, SUPER) or (start == PAGE and kind in (DIRECTORY, FILE, LINK)):
            assert found == whole, page  # all that they say is there twice


def test_a_file_that_is_lost_with_the_directory_that_names_it_is_counted_among_the_losses() -> None:
    image = lived(closed=True)
    scan = Mending(Memory(image), clock=lambda: NOW).scan
    tried = 0
    for directory in np.flatnonzero(scan.counts & (scan.kind == DIRECTORY)):
        files = scan.counts & (scan.kind == FILE) & (scan.id == 0) & (scan.parent == scan.id[directory])
        for page in np.flatnonzero(files)[:2]:
            after, said = repaired(garbled(garbled(image, directory), page))
            assert codes(after) == set()
            tried += 1
            assert any("1 of them: nothing tells which" in line for line in said.lost), (directory, page)
    assert tried > 3


@pytest.mark.parametrize("kind", [VIRTUAL, TABLE, SPACE, DIRECTORY])
def test_what_is_known_of_a_page_that_is_gone_is_not_counted_as_unknown(kind: int) -> None:
    image = lived(closed=True)
    for page in np.flatnonzero(scanned(image).kind == kind):
        said = repaired(garbled(image, page))[1] if codes_of(garbled(image, page)) else Repair()
        assert not any("nothing tells which" in line for line in said.lost), page


def without_its_supers(image: bytes) -> bytes:
    for block in reading(image).sb.supers:  # type: ignore[attr-defined]
        image = garbled(image, block * SMALL.pages_per_block)
    return image


def without_its_checkpoints(image: bytes) -> bytes:
    scan = scanned(image)
    for page in range(SMALL.pages):
        if scan.kind[page] == CHECKPOINT:
            image = garbled(image, page)
    return image


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("break_it", [without_its_supers, without_its_checkpoints])
def test_superblocks_and_checkpoints_are_made_anew_from_the_other_pages(
    break_it: Callable[[bytes], bytes], closed: bool
) -> None:
    image = lived(closed=closed)
    after, said = repaired(break_it(image))
    assert codes(after) == set()
    assert tree(reading(after)) == tree(reading(image))
    assert any("made anew" in line for line in said.done)
    assert reading(after).uuid == reading(image).uuid


def test_the_newest_checkpoint_that_can_not_be_read_is_not_taken_for_none() -> None:
    made = volume()
    made.create(ROOT_ID, b"old", 0o644)
    made.checkpoint()
    for number in range(40):
        made.create(ROOT_ID, b"new%d" % number, 0o644)
        made.sync()
    made.unlink(ROOT_ID, b"old")
    made.checkpoint()
    place = made.state.place
    made.close()
    image = content(made)
    last = reading(image).state.place
    broken = garbled(garbled(image, place), last, 0, PAGE)
    assert "DFF004" in codes(broken)
    after, said = repaired(broken)
    assert codes(after) == set()
    assert tree(reading(after)) == tree(reading(image))
    assert any("deleted" in line for line in said.lost)


def test_content_with_more_wrong_bits_than_can_be_put_right_is_kept_as_it_is_read() -> None:
    image = bytearray(IMAGE)
    image[AT["data"] * RAW + 700 : AT["data"] * RAW + 702] = b"\xaa\x55"
    after, said = repaired(bytes(image))
    seen = reading(after)
    found = seen.read_content(seen.at_path(b"/folder/large"), 0, 7000)
    assert found == b"content" * 100 + b"\xaa\x55" + (b"content" * 1000)[702:]
    assert any("large: bits of its content" in line and "in bytes 0 to 2047" in line for line in said.lost)


def test_an_index_page_that_is_gone_is_made_anew_from_the_tags_of_the_content() -> None:
    after, said = repaired(garbled(IMAGE, AT["index"]))
    assert tree(reading(after)) == WHOLE
    assert said.lost == []


def test_what_was_deleted_after_the_checkpoint_stays_deleted_when_a_neighbour_is_repaired() -> None:
    made = volume()
    where = made.mkdir(ROOT_ID, b"where", 0o755)
    for number in range(20):
        made.write(made.create(where, b"%d" % number, 0o644), 0, b"%d" % number * 2000)
    made.checkpoint()
    made.unlink(where, b"3")
    made.sync()
    image = content(made)
    entry = reading(image).at_path(b"/where/7")
    after, _ = repaired(garbled(image, entry.page))
    assert codes(after) == set()
    names = set(tree(reading(after)))
    assert b"/where/3" not in names
    assert {b"/where/%d" % number for number in range(20) if number not in (3, 7)} <= names


@pytest.mark.parametrize(
    "break_it",
    [lambda image: garbled(image, reading(image).root.page), without_its_checkpoints, without_its_supers,
     lambda image: garbled(image, next(p for p in range(SMALL.pages) if scanned(image).kind[p] == DATA))],
    ids=["root", "checkpoints", "supers", "content"],
)  # fmt: skip
def test_a_repair_that_loses_power_at_any_program_or_erase_is_ended_by_the_next(
    break_it: Callable[[bytes], bytes],
) -> None:
    broken = break_it(lived(closed=True))
    recorder = Recorder(Memory(broken))
    repair(recorder, now=NOW)
    expected = tree(reading(repaired(broken)[0]))
    chance, state = random.Random(1), bytearray(broken)
    events = [event for event in recorder.events if event.kind == WRITE]
    for number, event in enumerate(events):
        image = bytearray(state)
        torn(image, event, SMALL, chance)
        state[event.offset : event.offset + event.length] = event.data
        if number % max(1, len(events) // 10) and number < len(events) - 6:
            continue
        again, _ = repaired(bytes(image)) if codes_of(bytes(image)) else (bytes(image), None)
        assert codes(again) == set(), number
        assert tree(reading(again)) == expected, number


def test_damage_by_chance_ends_in_a_sound_volume_or_a_clear_error() -> None:
    image = lived(closed=True)
    scan = scanned(image)
    pages = [page for page in range(SMALL.pages) if scan.kind[page]]
    sound = 0
    for seed in range(20):
        chance = random.Random(seed)
        broken = image
        for _ in range(chance.randrange(1, 12)):
            broken = garbled(broken, chance.choice(pages), *chance.choice([(0, RAW), (0, PAGE), (PAGE, RAW)]))
        with suppress(F2fsError):
            after, said = repaired(broken)
            assert codes(after) == set(), seed
            lost = set(tree(reading(image))) - set(tree(reading(after)))
            assert said.lost or not lost, seed
            sound += 1
    assert sound > 17


def test_a_symbolic_link_without_its_target_goes_and_that_is_said() -> None:
    made = volume()
    made.symlink(ROOT_ID, b"link", b"target" * 300)
    made.close()
    image = content(made)
    link = reading(image).at_path(b"/link", follow=False)
    assert isinstance(link, File)
    after, said = repaired(garbled(image, link.slots[0]))
    assert (codes(after), set(tree(reading(after)))) == (set(), {b"/"})
    assert any("symbolic link link" in line for line in said.lost)


def test_fsck_repairs_what_it_has_rehearsed_says_so_and_can_be_taken_back(tmp_path: Path) -> None:
    flash, undo = tmp_path / "card.nand", tmp_path / "undo"
    broken = garbled(IMAGE, AT["inner"])
    flash.write_bytes(broken)
    done = f2("dffs", "fsck", flash)
    assert (done.code, "DFF024" in done.text) == (4, True)
    done = f2("dffs", "fsck", "-y", "--dry-run", "--undo", flash, flash)
    assert (done.code, "is there already" in done.err) == (8, True)
    done = f2("dffs", "fsck", "-y", "--dry-run", "--undo", undo, flash)
    assert (done.code, "would be done: " in done.text, "nothing was written" in done.text) == (4, True, True)
    assert flash.read_bytes() == broken
    done = f2("dffs", "fsck", "-y", "--undo", undo, flash)
    assert (done.code, "sound after that" in done.text, "takes the repair back" in done.text) == (1, True, True)
    assert f2("dffs", "fsck", "-y", flash).code == 0
    assert f2("undo", undo, flash).code == 0
    assert flash.read_bytes() == broken
    done = f2("dffs", "fsck", "-y", "--json", flash)
    said = json.loads(done.text)
    assert (done.code, said["repair"]["complete"], said["repair"]["dry_run"]) == (1, True, False)
    for words in (["-n", "-y"], ["--dry-run"], ["--undo", undo]):
        assert f2("dffs", "fsck", *words, flash).code == 16, words


@pytest.mark.parametrize("break_it", [without_its_supers, without_its_checkpoints])
def test_fsck_finds_and_repairs_a_volume_that_nothing_else_can_open(
    break_it: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    flash = tmp_path / "card.nand"
    flash.write_bytes(break_it(IMAGE))
    assert f2("dffs", "dump", "ls", flash).code != 0
    assert f2("dffs", "fsck", flash).code == 4
    assert f2("dffs", "fsck", "-y", flash).code == 1
    assert f2("dffs", "fsck", flash).code == 0
    assert tree(reading(flash.read_bytes())) == WHOLE


def test_a_dump_without_spare_areas_is_not_repaired_and_is_told_why(tmp_path: Path) -> None:
    flash = tmp_path / "bare"
    broken = damaged("a directory's links")
    flash.write_bytes(b"".join(broken[at : at + PAGE] for at in range(0, len(broken), RAW)))
    done = f2("dffs", "fsck", "-y", flash)
    assert (done.code, "without spare areas" in done.err) == (8, True)


def test_a_tag_with_an_id_beyond_the_table_costs_no_more_than_its_page() -> None:
    image = bytearray(IMAGE)
    at = AT["small"] * RAW
    data, spare = bytes(image[at : at + PAGE]), bytes(image[at + PAGE : at + RAW])
    tag = parse_tag(spare)
    assert tag is not None
    image[at : at + RAW] = data + build_spare(reading(IMAGE).shape, tag._replace(id=60_000), data)
    made, _ = repaired(change_page(bytes(image), AT["folder"], bucket_of("folder", 0, 0)))
    assert codes(made) == set()


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("lost", [TABLE, CHECKPOINT])
def test_a_table_made_anew_leads_each_id_to_the_newest_page_that_counts(lost: int, closed: bool) -> None:
    image = lived(closed=closed)
    scan = scanned(image)
    pages, nodes = np.flatnonzero(scan.kind == lost), np.flatnonzero(np.isin(scan.kind, NODES))
    for seed in range(4):
        broken = image
        for page in (*pages, *random.Random(seed).sample(nodes.tolist(), seed)):
            broken = garbled(broken, page)
        mending = Mending(Memory(broken), clock=lambda: NOW)
        assert mending.remade_tables
        for which in mending.remade_tables:
            first = which * mending.shape.pointers
            leads = mending.table_page(which).tolist()
            assert any(leads) or which
            for number, page in enumerate(leads, first):
                known = mending.scan.of_id(number, (DIRECTORY, FILE, VIRTUAL)) if number else []
                assert page == next((each for each in known if mending.scan.counts[each]), 0), number


@pytest.mark.parametrize("closed", [True, False])
def test_what_lies_in_a_block_with_a_bad_block_mark_and_can_be_read_is_kept(closed: bool) -> None:
    image = lived(closed=closed)
    whole = tree(reading(image))
    for block in sorted({int(page) // SMALL.pages_per_block for page in np.flatnonzero(scanned(image).counts)}):
        marked = bytearray(image)
        marked[block * SMALL.pages_per_block * RAW + PAGE] = 0
        if tree(reading(bytes(marked))) != whole:
            continue  # the log after the last checkpoint, which reading takes to end there
        after, said = repaired(bytes(marked))
        assert codes(after) == set(), block
        assert tree(reading(after)) == whole, block
        assert [line for line in said.lost if "superblock" not in line] == [], block


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_no_content_is_zeros_after_a_repair_without_a_word_on_the_file_and_the_bytes(byte: int) -> None:
    made = volume()
    first, second = (made.create(ROOT_ID, name, 0o644) for name in (b"first", b"second"))
    for number in range(40):
        made.write(first, number * PAGE, bytes([number + 1]) * PAGE)
        made.write(second, number * PAGE, bytes([number + 101]) * PAGE)
        made.sync()
    made.close()
    image = content(made)
    whole, scan = tree(reading(image)), scanned(image)
    pages = [page for page in range(0, SMALL.pages, SMALL.pages_per_block) if scan.counts[page]]
    tried = 0
    for page in (page for page in pages if scan.kind[page] == DATA):
        broken = bytearray(image)
        broken[page * RAW : (page + 1) * RAW] = bytes([byte]) * RAW
        after, said = repaired(bytes(broken))
        found = tree(reading(after))
        assert codes(after) == set()
        name = b"first" if scan.ino[page] == first else b"second"
        assert {path for path, was in whole.items() if found.get(path) != was} == {b"/" + name}
        start = int(scan.offset[page]) * PAGE
        words = f"{name.decode()}: ", f"in bytes {start} to {start + PAGE - 1}"
        assert any(all(word in line for word in words) for line in said.lost), (page, said.lost)
        assert not any("nothing tells which" in line for line in said.lost)
        was, now = whole[b"/" + name], found[b"/" + name]
        assert isinstance(was, bytes)
        assert isinstance(now, bytes)
        assert was[:start] + was[start + PAGE :] == now[:start] + now[start + PAGE :]
        tried += 1
    assert tried
