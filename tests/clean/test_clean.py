"""`f2tools clean`: the tree stays what it was, the volume stays sound, and sections are won."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import f2tools
from f2tools.clean.clean import ALL_YOUNG, ENOUGH_CLEANED, NOTHING_LEFT, TARGET_FREE
from f2tools.clean.cli import clean
from f2tools.clean.histogram import BINS, histogram, picture
from f2tools.dump.manifest import manifest
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.volume.volume import open_volume
from f2tools.f2fs.write.gc import (
    ACCURACY,
    AGE_THRESHOLD,
    POLICIES,
    Candidates,
    age_threshold,
    cost_benefit,
    greedy,
    worth_cleaning,
)
from f2tools.pictures.svg import svg
from tests import images, judges
from tests.dump.craft import f2
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.volumes import fresh, writable

ROOT_INO = 3
BLOCK = 4096
AGED = ("fragmented", "full", "sections", "base", "history-a", "phone", "compress-lz4", "plain",
        "active-logs-2", "active-logs-4", "features", "checksums", "zoned", "multi-device")  # fmt: skip
BEYOND_FSCK_F2FS = ("device-alias", "blocks16k", "packed-ssa")  # 1.15 refuses them before anything was cleaned
# a mount brings back what these hold before anything is cleaned
CRASHED = ("crash-several", "crash-orphan", "crash-stress-1", "crash-sqlite-wal")


def run(*args: object, code: int = 0) -> str:
    """Run the command; what it printed."""
    names = ["-h", "--help"]  # as the group of all tools has them: click keeps what the first call says
    result = CliRunner().invoke(clean, [str(arg) for arg in args], help_option_names=names)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def report(*args: object, code: int = 0) -> dict[str, Any]:
    return json.loads(run(*args, "--json", code=code))


def tree(path: Path, extra: Sequence[Path] = ()) -> dict[str, Any]:
    """All that is in a volume but where on the device it lies."""
    with open_volume(path, extra) as volume:
        return {
            name: {key: value for key, value in entry.items() if key != "extents"}
            for name, entry in manifest(volume)["entries"].items()
        }


def named(devices: Sequence[Path]) -> list[object]:
    return [word for device in devices for word in ("--device", device)]


def sound(path: Path, extra: Sequence[Path] = ()) -> None:
    judges.fsck_clean(path, *extra)
    with open_volume(path, extra) as volume:
        assert_consistent(volume)


def used_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.fixture(scope="module")
def holey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume with many dirty segments: of most files that were written one after the other a few were left."""
    path = fresh(tmp_path_factory.mktemp("holey"), "--size 128M")
    rng = np.random.default_rng(7)
    with writable(path, adaptive=False) as volume:
        for number in range(900):
            ino = volume.create(ROOT_INO, b"f%d" % number, 0o644)
            volume.write(ino, 0, rng.bytes(BLOCK * int(rng.integers(2, 30))))
        volume.sync()
        for number in range(900):
            if rng.random() < 0.65:
                volume.unlink(ROOT_INO, b"f%d" % number)
    return path


@pytest.fixture
def copy(holey: Path, tmp_path: Path) -> Path:
    return images.copy_sparse(holey, tmp_path / "copy")


# -- volumes of the kernel ----------------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", AGED)
def test_the_tree_of_a_volume_of_the_kernel_stays(name: str, policy: str, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    before = tree(case.path, case.extra)
    done = report(case.path, "--policy", policy, *named(case.extra))
    assert done["stopped"] in (NOTHING_LEFT, ALL_YOUNG)
    assert done["free_sections"]["after"] >= done["free_sections"]["before"]
    assert tree(case.path, case.extra) == before
    sound(case.path, case.extra)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", BEYOND_FSCK_F2FS)
def test_the_tree_of_a_volume_of_a_newer_kernel_stays(name: str, policy: str, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path)
    before = tree(case.path, case.extra)
    run(case.path, "--policy", policy, *named(case.extra))
    assert tree(case.path, case.extra) == before
    assert f2("fsck", case.path, *named(case.extra)).code == 0
    if name != "device-alias":  # which that check knows nothing of
        with open_volume(case.path, case.extra) as volume:
            assert_consistent(volume)


@pytest.mark.peer
@pytest.mark.parametrize("name", CRASHED)
def test_what_was_fsynced_before_a_crash_comes_back_first(name: str, tmp_path: Path) -> None:
    case = images.reference(name).copy(tmp_path / "cleaned")
    other = images.reference(name).copy(tmp_path / "recovered")
    assert f2("recover", other.path, "--apply").code == 0
    run(case.path)

    def timeless(path: Path) -> dict[str, Any]:  # a directory gets new times when a name comes back to it
        return {
            name: {key: value for key, value in entry.items() if key not in ("mtime_ns", "ctime_ns")}
            for name, entry in tree(path).items()
        }

    assert timeless(case.path) == timeless(other.path)
    sound(case.path)


# -- a volume with many holes -------------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.parametrize("policy", POLICIES)
def test_sections_are_won(policy: str, copy: Path) -> None:
    before = tree(copy)
    done = report(copy, "--policy", policy)
    assert done["stopped"] == NOTHING_LEFT
    won = done["free_sections"]["after"] - done["free_sections"]["before"]
    assert won >= 5
    assert done["sections_cleaned"] > won
    assert done["blocks_written"] >= done["data_blocks_moved"] + done["node_blocks_moved"] > 0
    assert done["waf"] == (won * 512 + done["blocks_written"]) / (won * 512)
    assert done["histogram"]["after"]["dirty"] < done["histogram"]["before"]["dirty"]
    assert tree(copy) == before
    sound(copy)
    with open_volume(copy) as volume:
        assert volume.cp.free_segment_count == done["free_segments"]["after"]
        after = histogram(volume.sit.vblocks, volume.geo.blocks_per_seg)
    assert after.as_dict() == done["histogram"]["after"]
    again = report(copy, "--policy", policy)
    assert again["stopped"] == NOTHING_LEFT
    assert again["free_sections"]["after"] - again["free_sections"]["before"] <= 1


def test_a_rehearsal_says_exactly_what_happens_and_writes_nothing(copy: Path, tmp_path: Path) -> None:
    bytes_before = copy.read_bytes()
    said = report(copy, "--dry-run", "--discard", "--svg", tmp_path / "rehearsed.svg")
    assert copy.read_bytes() == bytes_before
    assert said.pop("written") is False
    done = report(copy, "--discard")
    assert done.pop("written") is True
    assert said == done


@pytest.mark.parametrize("options", [(), ("--discard",), ("--sections", "3")])
def test_undo_gives_every_byte_back(options: tuple[str, ...], copy: Path, tmp_path: Path) -> None:
    before = copy.read_bytes()
    run(copy, *options, "--undo", tmp_path / "undo")
    assert copy.read_bytes() != before
    assert f2("undo", tmp_path / "undo", copy).code == 0
    assert copy.read_bytes() == before


@pytest.mark.peer
def test_discarding_makes_the_image_file_smaller(copy: Path) -> None:
    before, size = tree(copy), used_bytes(copy)
    done = report(copy, "--discard")
    assert done["discarded_bytes"] >= 5 * 512 * BLOCK
    assert used_bytes(copy) < size - 4 * 512 * BLOCK
    assert tree(copy) == before
    sound(copy)
    with open_volume(copy) as volume:
        free = volume.sit.free_segments()
        blocks = np.concatenate([volume.geo.start_block(int(segno)) + np.arange(512) for segno in free])
        assert (~volume.device.read_blocks(blocks, BLOCK).any(axis=1)).sum() * BLOCK >= done["discarded_bytes"]


def test_it_stops_when_the_target_is_reached(copy: Path) -> None:
    first = report(copy, "--dry-run")
    sections, free = first["sections"], first["free_sections"]
    share = 100 * (free["before"] + 3) / sections
    done = report(copy, "--target-free", f"{share}%")
    assert done["stopped"] == TARGET_FREE
    assert done["free_sections"]["after"] >= free["before"] + 3
    assert done["sections_cleaned"] < first["sections_cleaned"]
    again = report(copy, "--target-free", f"{share}%")
    assert (again["stopped"], again["sections_cleaned"]) == (TARGET_FREE, 0)


def test_a_target_out_of_reach_is_said(copy: Path) -> None:
    said = run(copy, "--target-free", "100%", code=1)
    assert NOTHING_LEFT in said
    assert run(copy, "--sections", "10000", code=1)


def test_so_many_sections(copy: Path) -> None:
    done = report(copy, "--sections", "3")
    assert (done["sections_cleaned"], done["stopped"]) == (3, ENOUGH_CLEANED)


def test_a_volume_with_nothing_to_win_is_left_alone(tmp_path: Path) -> None:
    case = images.reference("base").copy(tmp_path)
    before = case.path.read_bytes()
    assert NOTHING_LEFT in run(case.path, "--discard")
    assert case.path.read_bytes() == before


def test_pinned_files_stay_where_they_are(copy: Path) -> None:
    with writable(copy) as volume:
        inos = [volume.lookup(ROOT_INO, entry.encode()) for entry in tree(copy) if entry not in (".", "/")][:40:4]
        for ino in inos:
            inode = volume.live(ino)
            inode.set(i_inline=inode.i_inline | 0x40)
            volume.nodes.touch(inode)
        volume.checkpoint()

    def extents() -> list[Any]:
        with open_volume(copy) as volume:
            every = manifest(volume)["entries"]
        return [entry["extents"] for _, entry in sorted(every.items()) if entry["ino"] in inos]

    before = extents()
    done = report(copy)
    assert done["sections_pinned"] > 0
    assert extents() == before


def test_a_full_volume_can_be_written_to_again(copy: Path) -> None:
    run(copy)
    with f2tools.open(copy, write=True) as volume:
        ino = volume.create(ROOT_INO, b"after", 0o644)
        volume.write(ino, 0, b"cleaned" * 100000)
    with f2tools.open(copy) as volume:
        assert volume.path("/after").read() == b"cleaned" * 100000
        assert_consistent(volume)


def test_the_histogram_is_shown_and_drawn(copy: Path, tmp_path: Path) -> None:
    said = run(copy, "--svg", tmp_path / "h.svg", "--png", tmp_path / "h.png")
    assert "dirty segments before" in said
    assert "█" in said
    drawn = ElementTree.parse(tmp_path / "h.svg").getroot()
    bars = [node for node in drawn.iter("{http://www.w3.org/2000/svg}rect") if len(node)]
    assert len(bars) == 2 * BINS
    assert (tmp_path / "h.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize(
    "options", [("--target-free", "5%", "--sections", "1"), ("--simulate", "--undo", "x")]
)  # fmt: skip
def test_what_contradicts_itself_is_refused(options: tuple[str, ...], copy: Path) -> None:
    with pytest.raises(Usage):
        run(copy, *options)


@pytest.mark.parametrize("share", ["101%", "-1", "much", "nan"])
def test_what_is_no_share_is_refused(share: str, copy: Path) -> None:
    run(copy, "--target-free", share, code=2)


def test_a_picture_that_cant_be_written_is_an_error(copy: Path, tmp_path: Path) -> None:
    before = copy.read_bytes()
    with pytest.raises(F2fsError):
        run(copy, "--svg", tmp_path / "nowhere" / "h.svg")
    assert copy.read_bytes() == before, "found out too late"


# -- the parts ----------------------------------------------------------------------------------------------------


def among(valid: list[int], mtime: list[int], now: int = 1000, oldest: int = 0) -> Candidates:
    count = len(valid)
    return Candidates(
        np.arange(count) + 100, np.array(valid, np.int64), np.array(mtime, np.int64), np.zeros(count, np.int64), 512,
        oldest, now,
    )  # fmt: skip


def test_greedy_takes_the_emptiest() -> None:
    assert greedy(among([30, 10, 20], [0, 1000, 0])) == 101
    assert greedy(among([], [])) is None


def test_cost_benefit_takes_what_is_old_though_fuller() -> None:
    assert cost_benefit(among([300, 100], [0, 990])) == 100
    assert cost_benefit(among([300, 100], [500, 500])) == 101
    assert cost_benefit(among([], [])) is None


@pytest.mark.parametrize("seed", range(20))
def test_cost_benefit_is_what_the_kernel_reckons(seed: int) -> None:
    rng = np.random.default_rng(seed)
    valid, mtime = rng.integers(1, 512, 50).tolist(), rng.integers(5, 1000, 50).tolist()
    costs = []
    for blocks, time in zip(valid, mtime, strict=True):
        u = blocks * 100 >> 9
        age = 100 - 100 * (time - 5) // (1000 - 5)
        costs.append(2**32 - 1 - 100 * (100 - u) * age // (100 + u))
    chosen = cost_benefit(among(valid, mtime, oldest=5))
    assert chosen is not None
    assert costs[chosen - 100] == min(costs)


def test_age_threshold_leaves_the_young_alone() -> None:
    late = 10 * AGE_THRESHOLD
    assert age_threshold(among([10, 400], [late, 0], now=late)) == 101
    assert age_threshold(among([10, 400], [late, late - 5], now=late)) is None
    assert age_threshold(among([10, 400], [50, 45], now=100)) is not None, "no threshold on a young volume"
    assert age_threshold(among([], [])) is None


def test_age_threshold_looks_at_the_oldest_only() -> None:
    valid, mtime = [500] * 10 + [1] * 10, list(range(20))
    assert age_threshold(among(valid, mtime, now=100)) == 100
    assert ACCURACY * 512 * 100 < 2**63


def test_what_is_worth_cleaning() -> None:
    def chosen(valid: list[int], room: int = 0) -> list[bool]:
        return worth_cleaning(np.array(valid, np.int64), room, 512).tolist()

    assert chosen([]) == []
    assert chosen([100]) == [False]
    assert chosen([100], room=100) == [True]
    assert chosen([500, 100, 400]) == [False, True, True]
    assert chosen([300, 300, 300]) == [True, True, True]
    assert chosen([511, 511], room=500) == [False, False]


def test_the_bins_of_a_histogram() -> None:
    seen = histogram(np.array([0, 0, 512, 1, 31, 32, 511], np.int32), 512)
    assert (seen.free, seen.full, seen.dirty) == (2, 1, 4)
    assert (seen.counts[0], seen.counts[1], seen.counts[-1]) == (2, 1, 1)
    ElementTree.fromstring(svg(picture(seen, seen, "<&>")))


def test_the_help_has_an_example() -> None:
    assert isinstance(clean, click.Command)
    assert "f2tools clean card.img" in run("--help")
