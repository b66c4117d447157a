"""Writes that never arrived though the disk said so: what was in none of them is there after a repair.

F2_LOST_WRITES=all tries every moment of every workload, and many random cases.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import f2tools
from tests import judges
from tests.dump.craft import f2
from tests.fsck import lost_writes
from tests.fsck.craft import codes, examine
from tests.images import copy_sparse

EVERY = os.environ.get("F2_LOST_WRITES") == "all"
MOMENTS = range(lost_writes.MOMENTS if EVERY else 2)
FILE = "/tree1/home/database"
CASES = 400 if EVERY else 12


@pytest.mark.peer
@pytest.mark.parametrize("kind", range(len(lost_writes.KINDS)))
def test_the_journals_of_the_newest_checkpoint_never_arrived(kind: int, tmp_path: Path) -> None:
    """What stands in their place is of the checkpoint before the last; head and tail of the pack are whole."""
    judges.need_tool("fsck.f2fs")
    for moment in MOMENTS:
        wrong = lost_writes.verdict_on(lost_writes.without_summaries(kind, moment), tmp_path).wrong
        assert not wrong, f"moment {moment}: {wrong}"


@pytest.mark.peer
def test_some_of_the_last_writes_never_arrived(tmp_path: Path) -> None:
    judges.need_tool("fsck.f2fs")
    for number in range(CASES):
        wrong = lost_writes.judged(number, tmp_path).wrong
        assert not wrong, f"case {number}, {lost_writes.case(number).what}: {wrong}"


def test_whoever_reads_or_writes_is_told_that_files_are_older(tmp_path: Path) -> None:
    case = lost_writes.without_summaries(2, 0)
    image = copy_sparse(case.path, tmp_path / "image")
    content = f2("dump", "cat", image, FILE).out
    with image.open("r+b") as file:
        for offset, data in case.patches:
            file.seek(offset)
            file.write(data)
    assert "N007" in codes(examine(image))
    before = image.read_bytes()
    told = "the journals of the checkpoint are lost or older than it"
    shown = f2("dump", "cat", image, FILE)
    assert told in shown.err
    assert shown.out != content
    assert told in f2("touch", "--dry-run", f"{image}:/new").err
    refused = f2("recover", "--apply", image)
    assert refused.code == 1
    assert told in refused.err
    assert image.read_bytes() == before
    assert f2("fsck", "-y", "--undo", tmp_path / "undo", image).code == 1
    assert f2("dump", "cat", image, FILE).out == content
    assert not f2("dump", "ls", image).err
    assert f2("undo", tmp_path / "undo", image).code == 0
    assert image.read_bytes() == before


def test_a_sound_volume_is_behind_nothing(tmp_path: Path) -> None:
    with f2tools.open(lost_writes.image(0, 0)) as volume:
        assert not volume.journals_lost
