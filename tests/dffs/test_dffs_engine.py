"""What the engine promises beyond what a file system does: limits, wear, failing flash, memory, counts."""

from __future__ import annotations

import errno
import random
import tracemalloc
from pathlib import Path

import pytest

from f2tools.dffs.check import check
from f2tools.dffs.layout import MOST_INOS, Shape
from f2tools.dffs.mkfs import format_chip
from f2tools.dffs.nodes import Directory
from f2tools.dffs.problems import PROBLEMS
from f2tools.dffs.report import measure
from f2tools.dffs.volume import Volume
from f2tools.dffs.waiting import NoIds
from f2tools.dffs.write import WritableVolume
from f2tools.flash.nand import Faults, Geometry, Nand
from tests.device.interrupt import interrupted
from tests.dffs.volumes import SMALL, WIDE, clock, codes, colliding, content, device_of, reading, tree, volume

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dffs.md"


def on(chip: Nand, **more: object) -> WritableVolume:
    return WritableVolume(chip, clock=clock(), **more)  # type: ignore[arg-type]


def test_a_create_that_is_made_safe_takes_two_pages_and_of_many_together_one_and_a_share() -> None:
    made = volume()
    directory = made.mkdir(1, b"folder", 0o755)
    made.sync()
    before = made.pages.writes
    made.create(directory, b"file", 0o644)
    made.sync()
    assert made.pages.writes - before == 2
    before = made.pages.writes
    for number in range(10):
        made.create(directory, b"%d" % number, 0o644)
    made.sync()
    assert made.pages.writes - before == 11
    before = made.pages.writes
    made.unlink(directory, b"3")
    made.sync()
    assert made.pages.writes - before == 1


def test_no_change_of_a_closed_volume_succeeds() -> None:
    made = volume()
    file = made.create(1, b"f", 0o644)
    made.close()
    for change in (lambda: made.create(1, b"late", 0o644), lambda: made.write(file, 0, b"late"), made.sync):
        with pytest.raises(ValueError, match="closed"):
            change()
    made.close()


def test_a_mount_of_a_closed_volume_reads_three_pages() -> None:
    made = volume()
    for number in range(30):
        made.create(1, b"%d" % number, 0o644)
    made.close()
    seen = reading(content(made))
    assert seen.root.size == 30
    assert seen.pages.reads == 2  # checkpoint and root; the superblock is read before there are pages


def test_the_mapping_table_has_an_error_of_its_own_when_it_is_full_and_files_can_still_be_made() -> None:
    made = volume()
    made._load()
    table = made.shape.ids
    for which in range(made.shape.table_pages):
        numbers = made.table_page(which)
        for place in range(len(numbers)):
            numbers[place] = numbers[place] or 7  # as if in use
    with pytest.raises(NoIds, match="mapping table is full") as error:
        made.mkdir(1, b"folder", 0o755)
    assert (error.value.errno, table) == (errno.ENOSPC, 8192)
    made.create(1, b"file", 0o644)
    with pytest.raises(NoIds):
        made.link(made.lookup(1, b"file"), 1, b"other")
    assert made.lookup(1, b"file")
    with pytest.raises(FileNotFoundError):
        made.lookup(1, b"other")


def test_many_names_of_one_bucket_move_to_where_there_is_room_and_back() -> None:
    made = volume()
    names = colliding(60) + colliding(60, 8) + colliding(60, 9) + colliding(60, 10)
    for name in names:
        made.create(1, name, 0o644)
    assert made.directory(1).pages > 1
    assert all(made.lookup(1, name) for name in names)
    for name in names[:-1]:
        made.unlink(1, name)
    assert (made.directory(1).pages, made.directory(1).size) == (0, 1)
    made.close()
    assert check(reading(content(made))).sound


def test_blocks_wear_evenly_though_most_of_the_content_never_changes() -> None:
    chip = Nand(SMALL)
    format_chip(chip, uuid=bytes(16), now=0)
    made, chance = on(chip, policy="cost-benefit"), random.Random(1)
    for number in range(110):
        made.write(made.create(1, b"cold%d" % number, 0o644), 0, b"cold" * 500)
    hot = made.create(1, b"hot", 0o644)
    for number in range(3600):
        made.write(hot, 0, chance.randbytes(100))
        if number % 2:
            made.sync()
    erases = made.space.erases[made.space.usable]
    assert erases.mean() > 4
    assert erases.max() > 8
    assert erases.max() - erases.min() <= 12
    assert all(made.read_at(made.lookup(1, b"cold%d" % n), 0, 2000) == b"cold" * 500 for n in range(110))


def test_programs_and_erases_that_fail_lose_nothing_and_their_blocks_are_marked_bad() -> None:
    chip = Nand(WIDE, faults=Faults(seed=3, factory_bad=0.05))
    format_chip(chip, uuid=bytes(16), now=0)
    chip.faults = Faults(seed=3, program_failure=0.002, erase_failure=0.01)
    made, chance = on(chip), random.Random(1)
    bad = sum(map(chip.is_bad, range(WIDE.blocks)))
    files: dict[bytes, bytes] = {}
    for number in range(900):
        name = b"%d" % chance.randrange(60)
        if name not in files:
            made.create(1, name, 0o644)
        files[name] = chance.randbytes(chance.randrange(3000))
        made.truncate(made.lookup(1, name), 0)
        made.write(made.lookup(1, name), 0, files[name])
        if number % 3 == 0:
            made.sync()
    made.close()
    chip.faults = Faults()
    assert chip.counters.program_failures > 2
    assert sum(map(chip.is_bad, range(WIDE.blocks))) > bad
    seen = Volume(chip)
    assert check(seen).sound
    assert {path[1:]: value for path, value in tree(seen).items() if path != b"/"} == files


def test_reading_disturbed_bits_are_put_right() -> None:
    chip = Nand(SMALL, faults=Faults(seed=1))
    format_chip(chip, uuid=bytes(16), now=0)
    made = on(chip)
    made.write(made.create(1, b"file", 0o644), 0, b"content" * 5000)
    made.close()
    chip.faults = Faults(seed=1, bit_error=2e-6)
    seen = Volume(chip)
    for _ in range(20):
        assert seen.read_content(seen.at_path(b"/file"), 0, 35000) == b"content" * 5000
    assert seen.pages.put_right > 0


def test_memory_does_not_grow_with_the_number_of_files() -> None:
    """With a small cache: what remains are directories' pages that wait, and those are committed."""
    peaks = []
    for files in (300, 1500):
        chip = Nand(Geometry(256, 2048, 64, 64))
        format_chip(chip, uuid=bytes(16), now=0)
        tracemalloc.start()
        made = on(chip, keep_nodes=64)
        for number in range(files):
            if number % 100 == 0:
                directory = made.mkdir(1, b"dir%d" % number, 0o755)
                made.sync()
            made.create(directory, b"%d" % number, 0o644)
        made.sync()
        for entry in made.entries(made.directory(1)):
            assert isinstance(entry.inode, Directory)
            assert sum(1 for _ in made.entries(entry.inode)) == 100
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # places of files by number are kept up to a number, and take some hundred bytes each
    assert peaks[1] < peaks[0] + 1200 * 400


def test_the_figures_of_the_report_are_the_paper_s() -> None:
    found = measure(Shape(512, 2048, 64, 64), scale=50)
    assert 2.1 <= found["lookup"]["read_each"] <= 2.4
    assert found["mount"]["closed"]["pages_read"] == 3
    change = found["change"]
    assert 2 <= change["create"]["written_each"] < 2.2
    assert 1 <= change["delete"]["written_each"] < 1.2
    assert change["create"]["written_by_kind"]["file"] == 40
    assert found["models"]["measured"] is False
    assert found["measured"]["jffs2"]["lookup"]["read_each"] > 20 * found["lookup"]["read_each"]


def test_the_manual_lists_every_finding() -> None:
    page = PAGE.read_text()
    assert all(f"| {problem.code} | {problem.text} |" in page for problem in PROBLEMS.values())


def test_a_change_that_was_cut_off_by_ctrl_c_is_not_made_safe() -> None:
    def change(made: WritableVolume) -> None:
        directory = made.mkdir(1, b"folder", 0o755)
        for number in range(4):
            made.write(made.create(directory, b"%d" % number, 0o644), 0, b"new" * 900)
        made.unlink(1, b"kept")
        made.rename(directory, b"1", 1, b"kept")

    cut = 0
    for calls in range(1, 2000, 23):
        made = volume()
        made.write(made.create(1, b"kept", 0o644), 0, b"old" * 900)
        made.sync()
        if not interrupted("dffs", calls, lambda made=made: change(made)):
            break
        cut += 1
        made.close()
        assert codes(content(made)) == set(), calls
    assert cut > 10


def test_the_last_number_that_a_file_can_have_ends_the_numbers_and_not_the_volume() -> None:
    made = volume()
    made.create(1, b"first", 0o644)
    made._next_ino = MOST_INOS - 1
    made.create(1, b"last", 0o644)
    with pytest.raises(OSError, match="No space left"):
        made.create(1, b"none", 0o644)
    made.checkpoint()
    again = Volume(device_of(made))
    assert check(again).sound
    assert again.state.head.next_ino == MOST_INOS
