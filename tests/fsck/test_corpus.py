"""The 40 damages of the base image: each is found, under its code and at its place, without false company."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fsck.craft import bad, examine, said
from tests.images import DAMAGED, Reference

# name: (code, block, inode or node or segment that the finding names), consequences that are right to be told too
EXPECTED: dict[str, tuple[str, dict[str, int], set[str]]] = {
    "checkpoint-both": ("C002", {"blkaddr": 0x200}, {"C002"}),
    "checkpoint-counts": ("C004", {"blkaddr": 0x200}, {"C007"}),
    "checkpoint-crc": ("C001", {"blkaddr": 0x200}, set()),
    "checkpoint-footer": ("C001", {"blkaddr": 0x200}, set()),
    "current-summary": ("L005", {"segno": 3}, {"L005"}),
    "dentry-hash": ("D005", {"blkaddr": 0x1638, "ino": 111}, set()),
    "dentry-hash-inline": ("D005", {"blkaddr": 0x100A, "ino": 85}, set()),
    "dentry-missing-inode": ("D015", {"blkaddr": 0x100A, "ino": 85}, {"U001"}),
    "dentry-name-length": ("D003", {"blkaddr": 0x100A, "ino": 85}, {"U001"}),
    "dentry-type": ("D002", {"blkaddr": 0x100A, "ino": 85}, set()),
    "duplicate-block": ("B002", {"blkaddr": 0x1C19, "ino": 43}, {"G003"}),
    "footer-ino": ("F002", {"blkaddr": 0x1224, "nid": 39}, set()),
    "footer-nid": ("F001", {"blkaddr": 0x1224, "nid": 39}, set()),
    "foreign-node": ("F008", {"blkaddr": 0x125B, "ino": 43}, {"U003"}),
    "inline-flag-cleared": ("I037", {"blkaddr": 0x1206, "ino": 11}, set()),
    "inline-flag-set": ("I010", {"blkaddr": 0x12C3, "ino": 48}, set()),
    "inode-blocks": ("I004", {"blkaddr": 0x125B, "ino": 43}, set()),
    "inode-checksum": ("I014", {"blkaddr": 0x12F2, "ino": 66}, set()),
    "inode-depth": ("I016", {"blkaddr": 0x100C, "ino": 111}, set()),
    "inode-dir-size": ("I007", {"blkaddr": 0x100C, "ino": 111}, set()),
    "inode-mode": ("I001", {"blkaddr": 0x1222, "ino": 38}, {"I040"}),
    "inode-nlink": ("I002", {"blkaddr": 0x12D9, "ino": 87}, set()),
    "inode-nlink-dir": ("I003", {"blkaddr": 0x100A, "ino": 85}, set()),
    "nat-ino": ("N002", {"blkaddr": 0xC00, "nid": 43}, set()),
    "nat-outside": ("N003", {"blkaddr": 0xC00, "nid": 87}, {"D001", "G003"}),
    "nat-zero": ("D001", {"blkaddr": 0x1005, "ino": 42}, {"C005", "C006", "G003"}),
    "node-missing": ("F005", {"blkaddr": 0x125B, "ino": 43}, {"U003"}),
    "pointer-into-metadata": ("B001", {"blkaddr": 0x125B, "ino": 43}, {"G003"}),
    "pointer-outside": ("B001", {"blkaddr": 0x125B, "ino": 43}, {"G003"}),
    "sit-bit-added": ("G003", {"blkaddr": 0x3E54, "segno": 23}, {"C007"}),
    "sit-bit-cleared": ("G004", {"blkaddr": 0x2485, "segno": 10}, set()),
    "sit-count": ("G001", {"blkaddr": 0x800, "segno": 10}, set()),
    "ssa-nid": ("A002", {"blkaddr": 0x1800, "segno": 4}, set()),
    "ssa-type": ("A001", {"blkaddr": 0xE04, "segno": 4}, set()),
    "superblock-both": ("S001", {"blkaddr": 0}, {"S001"}),
    "superblock-checksum": ("S002", {"blkaddr": 0}, set()),
    "superblock-first": ("S001", {"blkaddr": 0}, set()),
    "unreachable-inode": ("U001", {"blkaddr": 0x12C3, "ino": 48}, set()),
    "xattr-length": ("X002", {"blkaddr": 0x12A5, "ino": 479}, set()),
    "xattr-magic": ("X001", {"blkaddr": 0x12DB, "ino": 480}, set()),
}


def test_every_damage_has_an_expectation() -> None:
    assert set(EXPECTED) == set(DAMAGED)


@pytest.mark.parametrize("name", DAMAGED)
def test_the_damage_is_found_where_it_is(name: str, damaged: Callable[[str], Reference]) -> None:
    image = damaged(name)
    report = examine(image.path)
    code, place, company = EXPECTED[name]
    found = bad(report)
    assert any(f.code == code and all(getattr(f, k) == v for k, v in place.items()) for f in found), said(report)
    assert {f.code for f in found} <= {code} | company, said(report)
    assert len([f for f in found if f.code == code]) == 1 or code in company, said(report)
