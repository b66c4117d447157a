"""Cleaning where there is hardly any room, targets that can't be reached, and ages that tell the policies apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from f2tools.clean.clean import NO_ROOM, NOTHING_LEFT, Goal, Outcome
from f2tools.clean.clean import clean as clean_volume
from f2tools.device import open_device
from f2tools.f2fs.write.gc import AGE_THRESHOLD
from f2tools.f2fs.write.volume import Policy, WritableVolume
from tests.clean.aged import of_three_ages, overwritten, sound, tree, without_free_sections
from tests.dump.craft import f2
from tests.f2fs.write.volumes import Ticks


def cleaned(path: Path, policy: str = "greedy", goal: Goal | None = None, adaptive: bool = True) -> Outcome:
    with WritableVolume(open_device(path, write=True), Policy(adaptive=adaptive), Ticks(), seed=1) as volume:
        return clean_volume(volume, policy, goal)


@pytest.mark.peer
@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("percent", [90, 95, 97.5])
def test_a_volume_that_is_nearly_full(percent: float, adaptive: bool, tmp_path: Path) -> None:
    path = overwritten(tmp_path, percent, adaptive)
    before = tree(path)
    done = cleaned(path)
    assert done.stopped == NOTHING_LEFT
    assert done.after.free_sections > done.before.free_sections
    assert tree(path) == before
    sound(path)


@pytest.mark.peer
@pytest.mark.parametrize("options", ["--size 64M", "--size 96M -s 2"])
@pytest.mark.parametrize("left", [0, 1])
def test_without_free_sections_blocks_go_into_holes(left: int, options: str, tmp_path: Path) -> None:
    path = without_free_sections(tmp_path, left, options)
    before = tree(path)
    done = cleaned(path)
    assert done.before.free_sections <= left + 1
    assert done.stopped == NOTHING_LEFT
    assert done.after.free_sections >= done.before.free_sections + 4
    assert tree(path) == before
    sound(path)


def test_where_holes_may_not_be_used_it_stops_and_leaves_all_as_it_was(tmp_path: Path) -> None:
    path = without_free_sections(tmp_path, 0)
    before = tree(path)
    done = cleaned(path, adaptive=False)
    assert done.stopped == NO_ROOM
    assert not done.sections
    assert tree(path) == before
    sound(path)


def test_a_target_that_cannot_be_reached_is_said_and_what_can_be_won_is_won(tmp_path: Path) -> None:
    path = overwritten(tmp_path, 90, True)
    before = tree(path)
    result = f2("clean", path, "--target-free", "80%")
    assert result.code == 1
    assert "not reached" in result.text
    assert tree(path) == before
    sound(path)
    said = json.loads(f2("clean", path, "--target-free", "80%", "--json").out)
    assert not said["reached"]
    assert said["free_sections"]["after"] < said["target_free_sections"]


@pytest.mark.parametrize(
    ("policy", "apart", "first"),
    [
        ("greedy", 40 * 24 * 3600, 2),  # the emptiest
        ("cost-benefit", 40 * 24 * 3600, 1),  # not so empty, but older; of the oldest too much is valid
        ("age-threshold", 40 * 24 * 3600, 0),  # the oldest
        ("cost-benefit", 0, 2),  # all of one age: as greedy
        ("age-threshold", AGE_THRESHOLD // 5, 0),  # mounted for less than the threshold: all may be taken
    ],
)
def test_ages_tell_the_policies_apart(policy: str, apart: int, first: int, tmp_path: Path) -> None:
    path, sections = of_three_ages(tmp_path, apart)
    assert all(sections)
    before = tree(path)
    with WritableVolume(open_device(path, write=True), None, Ticks(), seed=1) as volume:
        per = volume.geo.segs_per_sec
        used = volume.segments.vblocks.reshape(-1, per).sum(axis=1)
        clean_volume(volume, policy, Goal(sections=1))
        emptied = (used > 0) & (volume.segments.vblocks.reshape(-1, per).sum(axis=1) == 0)
    assert set(emptied.nonzero()[0].tolist()) <= sections[first]
    assert emptied.any()
    assert tree(path) == before
