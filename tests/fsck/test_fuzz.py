"""Repairs of random damage: they end, a second check and fsck.f2fs are silent, and what was not touched is there.

`make nightly` tries thousands: F2_FSCK_FUZZ is the number of cases for each image, F2_FSCK_FIRST the
first of them.  A failure names image and number; `python -m tests.fsck.fuzz IMAGE NUMBER -v` tells its story.
"""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.f2fs.layout.node import Inode as INODE
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.node import seal_inode
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.repair.rounds import StaysOpen
from tests import judges
from tests.fsck import fuzz
from tests.hostile.exercise import in_child

IMAGES = ("base", "features", "casefold", "compress-lz4", "checksums", "plain", "noinline", "sections")
CASES = int(os.environ.get("F2_FSCK_FUZZ", "5"))
FIRST = int(os.environ.get("F2_FSCK_FIRST", "0"))
TOLD = 5


def _all(name: str, work: Path) -> list[str]:
    failures: list[str] = []
    for number in range(FIRST, FIRST + CASES):
        verdict = fuzz.judged(name, number, work)
        if verdict.wrong:
            failures.append(f"{name} {number}: {verdict.wrong}")
    return failures


@pytest.mark.peer
@pytest.mark.parametrize("name", IMAGES)
def test_what_random_damage_left_is_saved(name: str, tmp_path: Path) -> None:
    judges.need_tool("fsck.f2fs")
    print(f"{name}: cases {FIRST} to {FIRST + CASES - 1}")
    failures = in_child(lambda: _all(name, tmp_path))
    assert not failures, f"{len(failures)} failures\n" + "\n".join(failures[:TOLD])


@pytest.mark.peer
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("base", 1_006_165),  # two blocks whose summaries name one place: each was put there in turn
        ("plain", 1_006_936),
        ("casefold", 1_000_985),  # a lost node whose summary names another
        ("casefold", 1_002_107),  # i_dir_level 255: no name could be put back into that directory
        ("compress-lz4", 1_002_593),  # a clock beyond 63 bits
        ("checksums", 1_014_287),  # a superblock whose features, and with them its checksum, were cleared
        ("compress-lz4", 1_047_954),
        ("compress-lz4", 1_049_632),  # one whose features are all there are
        ("features", 1_038_092),  # room for attributes inside an inode that is more than any mount may give
        ("features", 1_030_576),  # both packs hit, one of which told of itself more once it could be read again
        ("casefold", 1_030_902),
        ("checksums", 1_040_606),  # both copies hit, one of them in its block size
        ("checksums", 1_014_845),  # no pack is left, and a footer names the last version that there can be
        ("sections", 1_035_351),
        ("casefold", 1_023_386),  # quota inodes without the feature
        ("plain", 1_041_098),
        ("casefold", 1_026_747),  # fewer nodes counted than inodes
        ("sections", 1_010_714),  # a segment table that is older than the inodes
        ("plain", 1_069_658),  # a name with NUL bytes that was put back as it was
        ("sections", 1_028_071),  # more segments reserved than there are
        ("sections", 1_004_714),  # both packs and the newer copy of a NAT block: nodes that no name leads to
        ("checksums", 1_012_207),
        ("checksums", 1_031_084),
        ("plain", 1_018_933),  # an inode without a NAT entry lost its name to the only file that had one too few
        ("compress-lz4", 1_021_315),  # as many KiB written as there can be: one more was too much
        ("casefold", 1_048_585),  # both packs and a NAT entry that the other copy has
        ("sections", 1_000_712),  # the journals and a NAT entry that the other copy has, with an older address
        ("sections", 1_059_991),  # the journals, in a pack that is valid otherwise: the SIT is behind the log
        ("casefold", 1_090_583),  # both packs, and a superblock with features that no inode uses
        ("sections", 1_000_399),  # entries in an inode without attributes inside, of which the room is kept
        ("sections", 1_000_556),  # names that are lost, and a root that nobody may change
        ("casefold", 1_014_742),  # an open log behind the end of its segment, which the kernel refuses
        ("base", 1_022_880),  # an i_dir_level that sends names beyond what a file can have, and wrong entries beside it
        ("plain", 1_022_455),  # a name that leads to an inode of which the NAT entry is nonsense
        ("noinline", 1_015_023),  # an empty open log whose segment has another type in the SIT
    ],
)
def test_what_once_went_wrong_is_saved(name: str, number: int, tmp_path: Path) -> None:
    judges.need_tool("fsck.f2fs")
    assert fuzz.judged(name, number, tmp_path).wrong == ""


@pytest.mark.parametrize(("name", "level"), [("checksums", 29), ("checksums", 255), ("checksums", 28)])
def test_a_level_at_which_names_lie_beyond_any_directory_is_told(name: str, level: int) -> None:
    good = fuzz.healthy(name)
    with Overlay(open_device(good.path)) as image, Volume(StaysOpen(image)) as vol:
        inodes = [entry.inode for _, _, entries in vol.walk() for entry in entries]
        found = next(inode for inode in inodes if isinstance(inode, Inode) and inode.has_inline_dentry)
        block = found.block.copy()
        block[INODE.offset_of("i_dir_level")] = level
        seal_inode(vol.sb.uuid, block)
        image.pwrite(found.blkaddr * good.block_size, block.tobytes())
        told = [(item.code, item.ino, item.expected) for item in check(Image(image)).findings]
    assert told == ([("I017", found.ino, 0)] if level > 28 else [])


def test_a_case_is_the_same_damage_every_time() -> None:
    assert fuzz.damage("base", 7) == fuzz.damage("base", 7)
    assert fuzz.damage("base", 7) != fuzz.damage("base", 8)


@pytest.mark.peer
@pytest.mark.parametrize("name", IMAGES)
def test_a_directory_of_another_depth_is_repaired(name: str, tmp_path: Path) -> None:
    """Entries lie on levels that are not searched, or in buckets that are not theirs, besides other damage."""
    judges.need_tool("fsck.f2fs")
    numbers = [fuzz.DEPTHS_FROM + at * fuzz.DEPTHS_EVERY for at in range(CASES)]
    failures = in_child(lambda: [f"{n}: {wrong}" for n in numbers if (wrong := fuzz.judged(name, n, tmp_path).wrong)])
    assert not failures, f"{len(failures)} failures\n" + "\n".join(failures[:TOLD])


def test_a_directory_gets_another_depth_with_a_right_checksum() -> None:
    good = fuzz.healthy("checksums")
    fields = {*range(INODE.offset_of("i_current_depth"), INODE.offset_of("i_current_depth") + 4)}
    fields.add(INODE.offset_of("i_dir_level"))
    for seed in range(20):
        patches = fuzz.other_depth("checksums", random.Random(seed))
        image = Overlay(open_device(good.path))
        for offset, data in patches:
            image.pwrite(offset, data)
        assert not patches or {offset % good.block_size for offset, _ in patches} & fields
        with image:
            found = check(Image(image)).counts
        assert not set(found) - {"I016", "I017", "I035"}, (patches, found)
    number = fuzz.DEPTHS_FROM
    alone = fuzz.other_depth("checksums", random.Random(f"depth-checksums-{number}"))
    assert alone
    assert fuzz.damage("checksums", number)[-len(alone) :] == alone


@pytest.mark.parametrize(
    ("number", "digest"),
    [(7, "a8efec4d7de73dea"), (1_000_225, "3cb81f427a715713"), (1_002_869, "232cc00d6b7ce5eb")],
)
def test_a_number_that_was_run_before_does_the_same_damage(number: int, digest: str) -> None:
    """The ledger counts what they did."""
    assert hashlib.sha256(repr(fuzz.damage("base", number)).encode()).hexdigest()[:16] == digest


def test_a_summary_that_names_a_place_beyond_its_node_is_not_believed(tmp_path: Path) -> None:
    """A lost inode was made anew with an address behind its end: a traceback, or another number in its place."""
    verdict = fuzz.judged("full", 1_360_310, tmp_path)
    assert not verdict.wrong
