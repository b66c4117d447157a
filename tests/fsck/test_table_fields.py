"""A field of what holds a volume together is wrong: readers bear it, and a repair loses nothing.

`make nightly` tries every field with every wrong value (F2_FSCK_EVERY); here it is some of them, from all over.
`python -m tests.fsck.table_fields IMAGE 1 WORD...` tells the story of one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.layout.xattr import XattrEntry, XattrHeader, xattr_places
from f2tools.f2fs.volume.checkpoint import checkpoint_crc
from f2tools.fsck.repair.attributes import sound_xattrs
from tests.f2fs.write.volumes import fresh, reading, writable
from tests.fsck import fields, table_fields
from tests.fsck.trees import tree_of

ALL = bool(int(os.environ.get("F2_FSCK_EVERY", "0")))
MORE = (
    "plain", "features", "blocks16k-compress", "packed-ssa", "multi-device", "zoned", "sections", "phone",
    "checkpoint-disabled", "crash-append-inline", "crash-several", "crash-xattr", "crash-stress-3",
)  # fmt: skip
IMAGES = ("base", "checksums", "crash-orphan", *(MORE if ALL else ()))
SLICE = 1 << 30 if ALL else 20  # cases of an image
TOLD = 5


@pytest.mark.parametrize("name", IMAGES)
def test_one_wrong_field_of_a_table_costs_nothing_that_another_place_knows(name: str) -> None:
    cases = table_fields.facts(name).cases
    failures = [
        f"{case}: {wrong[:TOLD]}"
        for case in cases[:: max(1, len(cases) // SLICE)]
        if (wrong := table_fields.judged(name, case)[0])
    ]
    assert not failures, "\n".join(failures)


def _holds(name: str, words: str) -> None:
    cases = [case for case in table_fields.facts(name).cases if str(case).startswith(words)][:2]
    assert cases
    assert not [wrong for case in cases for wrong in table_fields.judged(name, case)[0]]


@pytest.mark.parametrize(
    ("name", "words"),
    [("crash-orphan", "sit vblocks segno 3 in the journal"), ("crash-orphan", "journal n_sits sit"),
     ("crash-xattr", "nat block_addr nid 9 in the journal = 00000000"), ("crash-xattr", "journal n_nats nat"),
     ("crash-append-inline", "nat block_addr nid 22 = 00000001"),
     ("crash-append-inline", "journal nid nat entry 18 = 00000013"), ("crash-several", "journal nid nat entry 13"),
     ("crash-stress-3", "journal nid nat entry 36 = 0001006f"),
     ("crash-stress-3", "journal nid nat entry 18 = 00000003"), ("crash-stress-3", "journal n_nats nat = ffff"),
     ("crash-stress-3", "journal nid nat entry 18 = ffffffff"),
     ("crash-stress-3", "checkpoint ckpt_flags newest = 000000c3"),
     ("crash-stress-3", "checkpoint cp_pack_start_sum newest = 00000002")],
)  # fmt: skip
def test_what_was_fsynced_comes_back_beside_a_wrong_entry(name: str, words: str) -> None:
    _holds(name, words)


@pytest.mark.parametrize(
    "words",
    ["checkpoint cp_pack_start_sum newest = 00000003", "checkpoint ckpt_flags newest = 000000c2",
     "checkpoint ckpt_flags newest = 000000c4"],
)  # fmt: skip
def test_the_blocks_of_a_pack_tell_what_they_are(words: str) -> None:
    _holds("crash-orphan", words)


@pytest.mark.parametrize(
    ("name", "words"),
    [("crash-orphan", "super feature copy 0 = 00004000"), ("features", "super qf_ino[0] copy 0 sealed"),
     ("features", "super segment_count copy 0+1 sealed = 0000023f"),
     ("checksums", "super feature copy 0+1 sealed = 00000820"),
     ("features", "super feature copy 0+1 sealed = 00000f78"), ("features", "super feature copy 0 sealed = 00000f78"),
     ("crash-orphan", "super cp_payload copy 0 = 00000001"), ("phone", "super feature copy 0 = 00001519"),
     ("packed-ssa", "super feature copy 0 = 00010002"),
     ("features", "super cp_blkaddr copy 0+1 sealed = 00010200"),
     ("crash-orphan", "checkpoint valid_inode_count newest = 00000000"),
     ("zoned", "checkpoint alloc_type[0] newest = 01"), ("zoned", "checkpoint alloc_type[1] newest = 01")],
)  # fmt: skip
def test_what_the_volume_shows_is_believed(name: str, words: str) -> None:
    _holds(name, words)


@pytest.mark.parametrize(
    ("name", "words"),
    [("crash-several", "fsynced next_blkaddr block 0x1227 ino 12 = 00000000"),
     ("crash-several", "fsynced next_blkaddr block 0x1227 ino 12 = 00001229"),
     ("crash-several", "fsynced next_blkaddr block 0x1229 ino 31 = 0000122b"),
     ("crash-several", "fsynced i_addr[0] block 0x1227 ino 12 = 00001632"),
     ("crash-append-inline", "fsynced next_blkaddr block 0x121d ino 22")],
)  # fmt: skip
def test_a_wrong_field_of_what_was_fsynced_costs_no_other_file(name: str, words: str) -> None:
    _holds(name, words)


@pytest.mark.parametrize("words", ["nat block_addr nid 38 = 00001821", "journal n_nats nat = 0026"])
def test_an_older_copy_of_a_node_does_not_come_back_in_its_place(words: str) -> None:
    _holds("zoned", words)


@pytest.mark.parametrize("name", ["base", "features"])
def test_a_wrong_length_costs_one_attribute(name: str) -> None:
    _holds(name, "xattr e_value_size of /xattr/many entry 24 = ffff")
    _holds(name, "xattr e_name_len of /xattr/many")


def test_a_wrong_length_of_a_name_that_leads_to_the_end_costs_one_attribute() -> None:
    _holds("plain", "xattr e_name_len of /acl/dir entry 24 = 2c")


def _area(attributes: dict[bytes, bytes], size: int = 400) -> bytes:
    parts = [XattrHeader(h_magic=0xF2F52011, h_refcount=1, h_reserved=[0] * 4).build()]
    for name, value in attributes.items():
        entry = XattrEntry(e_name_index=1, e_name_len=len(name), e_value_size=len(value)).build() + name + value
        parts.append(entry + bytes(-len(entry) % 4))
    return b"".join(parts).ljust(size, b"\0")


@pytest.mark.parametrize(
    "words",
    ["xattr e_name_len of /xattr/changed entry 24 = 42", "xattr e_name_len of /xattr/many entry 24 = 13",
     "xattr e_value_size of /xattr/many entry 836 = 012c"],
)  # fmt: skip
def test_what_a_wrong_length_runs_over_is_found_within_it(words: str) -> None:
    _holds("base", words)


def test_sound_attributes_stay_as_they_are() -> None:
    area = _area({b"one": b"\x01" * 10, b"two": b"", b"zeros": bytes(9), b"last": b"value\0"})
    assert sound_xattrs(area) == area


def test_behind_a_wrong_length_the_list_goes_on() -> None:
    area = bytearray(_area({b"one": b"abc", b"two": b"defg" * 5, b"three": b"hi"}))
    second = list(xattr_places(bytes(area)))[1].at
    for length in (0xFFFF, 0x400, 1, 0):
        area[second + 2 : second + 4] = length.to_bytes(2, "little")
        kept = sound_xattrs(bytes(area))
        names = {kept[item.name_at : item.value_at]: kept[item.value_at : item.end] for item in xattr_places(kept)}
        assert b"defg".startswith(names.pop(b"two", b"")[:4])
        assert names == {b"one": b"abc", b"three": b"hi"}


def _attributes(area: bytes) -> dict[bytes, bytes]:
    return {area[item.name_at : item.value_at]: area[item.value_at : item.end] for item in xattr_places(area)}


@pytest.mark.parametrize("size", [400, 4272, 16384])
def test_an_entry_that_is_wrong_in_itself_costs_no_other(size: int) -> None:
    """Its lengths are right; values are bytes among which anything may look like an entry."""
    chance = random.Random(size)
    for _ in range(300):
        wanted = {b"a%d" % number: chance.randbytes(chance.randrange(4, size // 4)) for number in range(3)}
        area = bytearray(_area(wanted, size))
        for item in list(xattr_places(bytes(area)))[chance.randrange(3) :][:1]:
            area[item.at] = 0x41
            del wanted[bytes(area[item.name_at : item.value_at])]
        assert _attributes(sound_xattrs(bytes(area))) == wanted


def test_what_lies_behind_the_list_does_not_come_back() -> None:
    removed = _area({b"removed": b"long ago"})[XattrHeader.size :]
    wanted = {b"one": b"abc"}
    area = bytearray(_area(wanted))
    end = max(item.end for item in xattr_places(bytes(area))) + 9 & ~3
    area[end : end + 40] = removed[:40]
    assert _attributes(sound_xattrs(bytes(area))) == wanted


def test_a_directory_is_no_quota_file_whatever_the_superblock_says() -> None:
    """The quota file is found in lost+found."""
    words = "super qf_ino[2] copy 0+1 sealed = 00000008"
    case = next(case for case in table_fields.facts("features").cases if str(case) == words)
    assert table_fields.judged("features", case)[0] == ["b'/lost+found/#6' is new"]


def _entry(index: int, name: bytes, value: bytes) -> bytes:
    entry = XattrEntry(e_name_index=index, e_name_len=len(name), e_value_size=len(value)).build() + name + value
    return entry + bytes(-len(entry) % 4)


def _lists() -> Iterator[bytes]:
    """Lists in which a user's values hold what looks like attributes that only root may set."""
    chance = random.Random(3)
    for _ in range(40):
        fakes = b"".join(_entry(chance.choice((4, 6)), b"capability", chance.randbytes(20)) for _ in range(3))
        lead = bytes(chance.randrange(0, 9, 4))
        tail = _entry(6, b"capability", bytes(chance.randrange(4, 90)))[: -chance.randrange(4, 60)]
        parts = [
            _entry(1, b"a", lead + fakes + tail),
            _entry(6, b"selinux", b"user_u:object_r:x"),
            _entry(1, b"b", b"1234"),
        ]
        chance.shuffle(parts)
        area = XattrHeader(h_magic=0xF2F52011, h_refcount=1, h_reserved=[0] * 4).build() + b"".join(parts)
        yield area.ljust(chance.choice((len(area) + 4, 400)), b"\0")


def test_no_flipped_bit_makes_of_a_value_what_only_root_may_set() -> None:
    for area in _lists():
        mine = {(item.name_index, area[item.name_at : item.value_at]) for item in xattr_places(area)}
        for item in xattr_places(area):
            for bit in range(8 * (item.value_at - item.at)):
                wrong = bytearray(area)
                wrong[item.at + bit // 8] ^= 1 << bit % 8
                kept = sound_xattrs(bytes(wrong))
                assert len(kept) == len(area)
                found = {(each.name_index, kept[each.name_at : each.value_at]) for each in xattr_places(kept)}
                size = wrong[item.at + 1]  # its own name may be cut
                itself = {(wrong[item.at], bytes(wrong[item.name_at : item.name_at + size]))}
                assert {each for each in found - mine if each[0] in (4, 6)} <= itself


def test_an_orphan_block_that_was_emptied_is_no_summary(tmp_path: Path) -> None:
    """A pack may have one, as fsck.f2fs leaves it, and lose the flag of orphans: its journals lie behind it."""
    image = fresh(tmp_path)
    with writable(image) as volume:
        made = [volume.create(F2FS_ROOT_INO, b"f%d" % number, 0o644) for number in range(40)]
    with writable(image) as volume:
        for ino in made[:10]:
            volume.write(ino, 0, b"newer" * 1000)
        volume.create(volume.mkdir(F2FS_ROOT_INO, b"new", 0o755), b"file", 0o644)
    good = tree_of(image)
    with reading(image) as volume:
        assert len(volume.summaries.journals.nat)
        pack, cp = volume.pack, volume.pack.cp
    assert cp.cp_pack_start_sum == 1
    start, count = pack.blkaddr * 4096, cp.cp_pack_total_block_count
    raw = image.read_bytes()[start : start + 4096 * count]
    cp.cp_pack_total_block_count, cp.cp_pack_start_sum = count + 1, 2
    head = bytearray(raw[:4096])
    head[: len(cp.build())] = cp.build()
    at = cp.checksum_offset
    head[at : at + 4] = checkpoint_crc(bytes(head), at).to_bytes(4, "little")
    with image.open("r+b") as file:
        file.seek(start)
        file.write(bytes(head) + bytes(4096) + raw[4096:-4096] + bytes(head))
    assert tree_of(image) == good
    with open_device(image, write=True) as device:
        left, _ = fields.mended(device)
    assert not left
    assert tree_of(image) == good
