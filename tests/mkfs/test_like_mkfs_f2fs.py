"""The same options give the same volume as mkfs.f2fs: field by field, and page by page, with exceptions by name."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from f2tools.f2fs.layout.constants import CP_NAT_BITS_FLAG, F2FS_FEATURE_RO, FEATURES
from f2tools.f2fs.layout.super import SuperBlock
from tests import judges
from tests.mkfs.tools import GIB, MIB, TIB, UUID, blank, checkpoint, f2mkfs, fingerprint, pages, superblock

RECORDED = json.loads((Path(__file__).parent / "data/mkfs-1.16.json").read_text())
# What comes after the release of 1.16.0 calls itself 1.16.0 too, with another date.
OLDER = {" 1.15": "1.15", " 1.16.0 (2023-04-11)": "1.16.0"}
SECOND = 300 * MIB
COMMON = ("-r", "-U", UUID)
ALL = "encrypt,extra_attr,project_quota,inode_checksum,flexible_inline_xattr,quota,inode_crtime,verity,sb_checksum"

CASES = [
    (64 * MIB, ""), (100 * MIB, ""), (128 * MIB, "-t 0"), (512 * MIB, ""), (1 * GIB, ""), (7 * GIB, ""),
    (64 * GIB, ""), (1 * TIB, ""), (3 * TIB, ""), (16 * TIB - 4096, ""),
    (1 * GIB, "-s 4 -z 2"), (512 * MIB, "-s 3 -z 2"), (8 * GIB, "-s 3"), (2 * GIB, "-z 5"), (1 * TIB, "-s 16 -z 4"),
    (1 * GIB, "-o 7.5"), (256 * MIB, "-o 25"), (64 * GIB, "-o 0.5 -s 2"),
    (1 * GIB, "-i"), (1 * TIB, "-i"), (16 * TIB - 4096, "-i"),
    (256 * MIB, "-l LABEL"), (256 * MIB, "-l Käse😀"), (256 * MIB, "-e abc,def -E hot,vm"), (256 * MIB, "-R 7:8"),
    (256 * MIB, f"-O {ALL}"), (256 * MIB, "-O extra_attr -O project_quota"), (256 * MIB, "-O quota"),
    (256 * MIB, "-O extra_attr,compression"), (256 * MIB, "-O lost_found,extra_attr,inode_checksum"),
    (256 * MIB, "-O quota,lost_found"), (256 * MIB, "-O ro"), (256 * MIB, "-O casefold -C utf8"),
    (256 * MIB, "-O extra_attr -C utf8:strict"), (256 * MIB, "-g android"), (1 * GIB, "-w 4096 :sectors 65536"),
    (1 * GIB, ":sectors 400000"), (256 * MIB, "-c second.img"), (256 * MIB, "-s 2 -c second.img -O sb_checksum"),
]  # fmt: skip


def like(image: Path, size: int, options: str, ours: bool) -> None:
    """Format `image` with the options in the letters that both tools have."""
    words, _, sectors = options.partition(":sectors ")
    args = [*COMMON, *(() if "-T" in words else ("-T", "0")), *shlex.split(words)]
    blank(image, size)
    if "second.img" in words:
        blank(Path("second.img"), SECOND)
    if ours:
        f2mkfs("-q", *args, image, *sectors.split())
    else:
        run = judges.run_tool("mkfs.f2fs", "-f", *args, image, *sectors.split())
        assert run.rc == 0, str(run)


def counts_of_older(image: Path, options: str, release: str) -> dict[str, int]:
    """What the releases 1.15 and 1.16.0 compute by other rules than later versions.

    Both take segments after the last whole zone for usable, though they belong to no section.  For cleaning 1.15 keeps
    more, and adds what it hides; 1.16.0 hides the larger of both, and two sections for open logs where it is six now.
    """
    sb = superblock(image)
    words = shlex.split(options.partition(":")[0])
    percent = float(words[words.index("-o") + 1]) if "-o" in words else 0.0
    main = sb.segment_count_main
    if "-c" not in words:
        main = (sb.block_count - sb.main_blkaddr) // 512
    older = release == "1.15"
    spare = 0 if older else 2 * sb.segs_per_sec
    if sb.feature & F2FS_FEATURE_RO:
        return {"overprov_segment_count": spare, "user_block_count": (main - spare) * 512}
    per_section = -(-main // sb.section_count)

    def reserved(share: float) -> float:
        return ((2 if older else 1) * (100 / share + 1) + 6) * per_section

    def taken(share: float) -> float:
        hidden = (main - reserved(share)) * share / 100
        return main if hidden < 0 else reserved(share) + hidden if older else max(int(reserved(share)), hidden) + spare

    if not percent:
        candidate, end, step = (10.0, 95.0, 5.0) if sb.segment_count_main < 256 else (0.01, 10.0, 0.01)
        most = 0.0
        while candidate <= end:
            if main - taken(candidate) > most:
                most, percent = main - taken(candidate), candidate
            candidate += step
    kept = int(reserved(percent))
    hidden = int((main - kept) * percent / 100)
    overprov = hidden + kept if older else max(hidden, kept) + spare
    return {
        "rsvd_segment_count": kept,
        "overprov_segment_count": overprov,
        "user_block_count": (main - overprov) * 512,
        "free_segment_count": main - 6,
    }


def differences(a: Any, b: Any) -> set[str]:
    left, right = a.as_dict(), b.as_dict()
    return {name for name in left if left[name] != right[name]}


# mkfs.f2fs writes 8 GiB of zeros for this one, half a minute; its pages are held to the recorded ones like all others.
NOT_MADE = (16 * TIB - 4096, "-i")
MADE = [case for case in CASES if case != NOT_MADE]


@pytest.mark.peer
@pytest.mark.parametrize(("size", "options"), MADE, ids=[f"{size // MIB}M {options}" for size, options in MADE])
def test_superblock_and_checkpoint_are_those_of_the_installed_mkfs(
    size: int, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = judges.run_tool("mkfs.f2fs", "-V").output
    theirs, ours = tmp_path / "theirs/image", tmp_path / "ours/image"
    for image in (theirs, ours):
        image.parent.mkdir()
        monkeypatch.chdir(image.parent)  # the path of a device goes into the superblock
        like(Path("image"), size, options, ours=image is ours)
    sb, cp = superblock(theirs), checkpoint(theirs)
    their_pages, our_pages = pages(theirs), pages(ours)
    # the names of the makers, and the checksum over them
    may_differ = {"version", "init_version"} | ({"crc"} if sb.feature & FEATURES["sb_checksum"] else set())
    expected_cp: dict[str, Any] = {}
    release = next((name for word, name in OLDER.items() if word in version), "")
    if release:
        may_differ.add("devs")  # what lies behind a path's NUL is whatever they had in their memory
        expected_cp = counts_of_older(theirs, options, release)
        if "android" in options:  # later versions leave nat_bits out for Android
            expected_cp |= {"ckpt_flags": checkpoint(ours).ckpt_flags | CP_NAT_BITS_FLAG}
    if release == "1.15":
        may_differ.add("minor_ver")  # the second number of f2fs-tools: 15 there, 16 here
        if sb.feature & F2FS_FEATURE_RO:
            # 1.15 has the two logs side by side at the start, 1.16 puts the nodes at the end
            expected_cp |= {"cur_node_segno": [0, 0, 0], "cur_data_segno": [1, 0, 0]}
    assert differences(sb, superblock(ours)) <= may_differ
    assert device_table(sb) == device_table(superblock(ours))
    for name in differences(cp, checkpoint(ours)):
        assert name in expected_cp, f"{name}: {getattr(cp, name)} there, {getattr(checkpoint(ours), name)} here"
    for name, value in expected_cp.items():
        found = getattr(cp, name)
        assert (list(found[:3]) if isinstance(value, list) else found) == value, f"{release} has another {name}"
    # every page besides, where neither the checkpoint's own content nor a log's other place makes a difference
    start = sb.cp_blkaddr
    blocks = cp.cp_pack_total_block_count
    packs = {0, 1, start, start + blocks - 1, start + 512, start + 512 + blocks - 1}
    nat_bits = {page for page in their_pages.keys() | our_pages.keys() if start + blocks <= page < start + 512}
    skipped = packs | nat_bits | lost_found_page(ours)
    if release:
        # they write the first nodes into the NAT besides the journal, and list nodes first in the SIT journal
        skipped |= {sb.nat_blkaddr, start + 1 + sb.cp_payload}
        # and their quota files lack the flag NOATIME
        root = sb.main_blkaddr + int(cp.cur_node_segno[0]) * 512
        skipped |= {root + 1 + number for number in range(sum(1 for ino in sb.qf_ino if ino))}
    if not sb.feature & F2FS_FEATURE_RO and "-R" not in options:
        unequal = [p for p in sorted(their_pages.keys() | our_pages.keys()) if their_pages.get(p) != our_pages.get(p)]
        assert [page for page in unequal if page not in skipped] == []


def device_table(sb: SuperBlock) -> list[tuple[bytes, int]]:
    return [(device.path.split(b"\0", 1)[0], device.total_segments) for device in sb.devs]


def lost_found_page(image: Path) -> set[int]:
    """The directory block of lost+found, where mkfs.f2fs has ".." wrong: the last block of hot data that is in use."""
    sb, cp = superblock(image), checkpoint(image)
    if not sb.feature & FEATURES["lost_found"]:
        return set()
    return {sb.main_blkaddr + int(cp.cur_data_segno[0]) * 512 + int(cp.cur_data_blkoff[0]) - 1}


@pytest.mark.parametrize("case", RECORDED, ids=[f"{c['size'] // MIB}M {c['options']}" for c in RECORDED])
def test_every_page_is_that_of_mkfs_1_16(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    image = Path("image")
    like(image, case["size"], case["options"], ours=True)
    found, there = fingerprint(image), dict(case["pages"])
    unequal = {page for page in found.keys() | there.keys() if found.get(page) != there.get(page)}
    assert unequal == {str(page) for page in lost_found_page(image)}  # ".." there, see below


def test_dot_dot_of_lost_found_is_the_root(tmp_path: Path) -> None:
    """mkfs.f2fs 1.16 lets it name lost+found itself; 1.15 had it right."""
    image = tmp_path / "image"
    like(image, 64 * MIB, "-O lost_found", ours=True)
    (page,) = lost_found_page(image)
    content = pages(image)[page]
    assert [content[30 + 11 * slot + 4] for slot in range(2)] == [4, 3]


def test_casefold_without_an_encoding_gets_one(tmp_path: Path) -> None:
    """mkfs.f2fs -O casefold alone leaves s_encoding 0, which no kernel mounts."""
    image = tmp_path / "image"
    like(image, 64 * MIB, "-O casefold", ours=True)
    assert superblock(image).s_encoding == 1


def test_a_quota_file_finds_an_owner_that_is_not_root(tmp_path: Path) -> None:
    """mkfs.f2fs always writes the path of id 0 through the tree; the kernel looks for id 1000 at 0, 0, 3, 232."""
    image = tmp_path / "image"
    like(image, 64 * MIB, "-O quota -R 1000:1000", ours=True)
    sb, cp = superblock(image), checkpoint(image)
    first = sb.main_blkaddr + int(cp.cur_data_segno[0]) * 512 + 1  # after the root directory's block
    content = b"".join(pages(image)[first + index] for index in range(2))
    block = 1
    for byte in (1000).to_bytes(4, "big"):
        block = int.from_bytes(content[block * 1024 + 4 * byte :][:4], "little")
    assert content[block * 1024 + 16 :][:4] == (1000).to_bytes(4, "little")
