"""Damaged and hostile dumps: each damage has its finding, and nothing ends in a traceback, a hang, an escape."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest

from f2tools.copyout.tree_extract import extract
from f2tools.copyout.tree_show import manifest
from f2tools.copyout.tree_tar import write_tar
from f2tools.dffs.check import check
from f2tools.dffs.layout import BY_ID, COLLISION, IN_MEMORY, POINTER_BITS, InodeHead, LinkPage, VirtualHead
from f2tools.dffs.pages import NotDffs
from f2tools.dffs.show import info, map_of, page_facts
from f2tools.dffs.volume import Volume
from f2tools.errors import DeviceError, F2fsError
from tests.device.memory import Memory
from tests.dffs.volumes import SMALL, change_page, codes, content, field, reading, sample, writing

PAGE = SMALL.raw_page
IMAGE, AT = sample()
BUCKETS_AT = InodeHead.size + 256


def number_at(at: int, value: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[at : at + 4] = value.to_bytes(4, "little")

    return change


def bucket_of(where: str, kind: int, value: int) -> Callable[[bytearray], None]:
    """Let the first bucket of a directory that leads anywhere lead elsewhere."""

    def change(data: bytearray) -> None:
        at = BUCKETS_AT
        while not any(data[at : at + 4]):
            at += 4
        data[at : at + 4] = (kind << POINTER_BITS | value).to_bytes(4, "little")

    return change


DAMAGE: dict[str, tuple[str, Callable[[bytearray], object], set[str]]] = {
    "a directory's links": ("folder", field(InodeHead, "i_links", 9), {"DFF011"}),
    "a directory's children": ("folder", field(InodeHead, "i_size", 900), {"DFF021"}),
    "a directory's parent": ("folder", field(InodeHead, "i_parent", 3), {"DFF026"}),
    "a directory's id": ("folder", field(InodeHead, "i_id", 9), {"DFF024"}),
    "a directory's list": ("inner", field(InodeHead, "i_first", 1), {"DFF030", "DFF041"}),
    "a directory's virtual inodes": ("inner", field(InodeHead, "i_pages", 7), {"DFF032"}),
    "no virtual inode": ("inner", field(InodeHead, "i_first", 900), {"DFF040", "DFF030"}),
    "a file's links": ("large", field(InodeHead, "i_links", 3), {"DFF011"}),
    "a file's pages": ("large", field(InodeHead, "i_pages", 3), {"DFF012"}),
    "a file's mode": ("large", field(InodeHead, "i_mode", 0o170644), {"DFF024"}),
    "a file's end": ("large", field(InodeHead, "i_size", 100), {"DFF044"}),
    "a file's parent": ("large", field(InodeHead, "i_parent", 1), {"DFF027"}),
    "a huge file": ("large", field(InodeHead, "i_size", 1 << 60), {"DFF024"}),
    "a file's number": ("large", field(InodeHead, "i_ino", 3), {"DFF024"}),
    "a long name": ("large", field(InodeHead, "i_name_len", 400), {"DFF024"}),
    "an attribute": ("large", field(InodeHead, "i_xattr_len", 5), {"DFF024"}),
    "a link's target": ("link", field(LinkPage, "l_target", 1), {"DFF024"}),
    "a link to nothing": ("link", field(LinkPage, "l_target", 999), {"DFF024"}),
    "a virtual inode's directory": ("virtual", field(VirtualHead, "v_dir", 1), {"DFF022", "DFF031"}),
    "a circle of virtual inodes": ("virtual", field(VirtualHead, "v_next", 4), {"DFF042"}),
    "a bucket to a page beyond": ("folder", bucket_of("folder", 0, 1 << 29), {"DFF024"}),
    "a bucket to the root": ("folder", bucket_of("folder", BY_ID, 1), {"DFF023"}),
    "a bucket to what waited in memory": ("folder", bucket_of("folder", IN_MEMORY, 7), {"DFF024"}),
    "a bucket to no virtual inode": ("folder", bucket_of("folder", COLLISION, 1), {"DFF022"}),
    "an address beyond": ("large", number_at(SMALL.page_size - 1280, 1 << 28), {"DFF040"}),
    "an address twice": ("large", lambda data: data.__setitem__(slice(768, 772), bytes(data[772:776])), {"DFF041"}),
    "an index of itself": ("index", number_at(4 * ((660_000 // 2048) - 317), AT["index"]), {"DFF041"}),
    "a table of itself": ("table", number_at(8, AT["table"]), {"DFF024"}),
    "a lost id": ("table", number_at(4 * 400, AT["small"]), {"DFF013"}),
    "a free page that is in use": ("space", lambda data: data.__setitem__(slice(60, 480), bytes(420)), {"DFF051"}),
    "pages in use that are free": ("space", lambda data: data.__setitem__(slice(0, 480), b"\xff" * 480), {"DFF052"}),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_each_kind_of_damage_has_its_finding(what: str, tmp_path: Path) -> None:
    where, change, expected = DAMAGE[what]
    image = change_page(IMAGE, AT[where], change)
    found = codes(image)
    assert found & expected, found
    look_at_all_of(image, tmp_path)


def look_at_all_of(image: bytes, directory: Path) -> None:
    """Everything that reads, and a change; errors are those that say what is wrong."""
    for look in (
        lambda v: manifest(v, b"/", {}),
        lambda v: write_tar(v, BytesIO()),
        lambda v: extract(v, str(directory / "target")),
        lambda v: [map_of(v, v.at_path(path)) for path in (b"/folder/inner", b"/folder/large")],
        lambda v: [page_facts(v, page) for page in AT.values()],
        check,
        info,
    ):
        with suppress(F2fsError, OSError):
            look(reading(image))
    with suppress(F2fsError, OSError):
        after = writing(image)
        after.create(1, b"new", 0o644)
        after.unlink(after.lookup(1, b"folder"), b"large")
        after.close()


@pytest.mark.parametrize("seed", range(4))
def test_damage_by_chance_whose_checksums_are_right_ends_in_findings_and_errors(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for number in range(20):
        image = IMAGE
        for _ in range(chance.randrange(1, 3)):
            page = chance.choice(sorted(set(AT.values()) - {AT["data"]}))

            def change(data: bytearray) -> None:
                for _ in range(chance.randrange(1, 5)):
                    at = chance.randrange(8, 130) if chance.random() < 0.7 else chance.randrange(8, len(data))
                    data[at] ^= chance.randrange(1, 256)

            image = change_page(image, page, change)
        look_at_all_of(image, tmp_path / str(number))


def test_bits_that_flip_are_put_right_and_more_are_told(tmp_path: Path) -> None:
    chance = random.Random(1)
    one, many = bytearray(IMAGE), bytearray(IMAGE)
    for page in AT.values():
        for step in range(8):
            one[page * PAGE + step * 256 + chance.randrange(256)] ^= 1 << chance.randrange(8)
        one[page * PAGE + 2048 + 2 + chance.randrange(34)] ^= 1 << chance.randrange(8)
    seen = reading(bytes(one))
    report = check(seen)
    assert (report.sound, report.bits_put_right > 10) == (True, True)
    many[AT["data"] * PAGE + 7 : AT["data"] * PAGE + 9] = b"\xaa\x55"
    assert codes(bytes(many)) == {"DFF045"}
    after = writing(bytes(one))
    after.write(after.create(1, b"new", 0o644), 0, b"more")
    after.close()
    assert codes(content(after)) == set()


@pytest.mark.parametrize("at", [2 + 5, 64 - 3])
def test_a_bit_that_flips_in_a_spare_area_is_told_by_a_check(at: int) -> None:
    """In the tag, which is put right, and in the code."""
    flipped = bytearray(IMAGE)
    flipped[AT["data"] * PAGE + 2048 + at] ^= 1
    report = check(reading(bytes(flipped)))
    assert (report.sound, report.bits_put_right, report.spares_wrong) == (True, 0, 1)
    assert check(reading(IMAGE)).spares_wrong == 0


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (1, "so 1 are missing"),
        (1000, "so 1000 are missing"),
        (SMALL.pages_per_block * PAGE, "one erase block.  If bad blocks were left out"),
        (2 * SMALL.pages_per_block * PAGE, "2 erase blocks.  If bad blocks were left out"),
        (len(IMAGE) - 2 * PAGE, "are missing"),
    ],
)
def test_a_dump_that_is_too_short_is_not_taken_for_one_without_spare_areas(missing: int, said: str) -> None:
    with pytest.raises(DeviceError, match=rf"has {len(IMAGE) - missing} bytes; .* takes {len(IMAGE)}, .*{said}"):
        reading(IMAGE[:-missing])


def test_a_dump_that_lacks_the_end_of_an_empty_block_is_sound_once_it_is_filled_up() -> None:
    assert check(reading(IMAGE[:-1000] + b"\xff" * 1000)).sound


def test_a_dump_without_spare_areas_that_is_too_short_can_t_be_checked() -> None:
    bare = b"".join(IMAGE[at : at + 2048] for at in range(0, len(IMAGE), PAGE))
    with pytest.raises(DeviceError, match=r"with spare areas and .* without"):
        reading(bare[:-1])


def test_a_superblock_is_found_in_the_second_block_and_none_is_said_to_be_none() -> None:
    lost = bytearray(IMAGE)
    lost[:PAGE] = bytes(PAGE)
    assert codes(bytes(lost)) == {"DFF001"}
    lost[16 * PAGE : 17 * PAGE] = bytes(PAGE)
    with pytest.raises(NotDffs, match="dffs mkfs"):
        reading(bytes(lost))


def test_a_dump_without_spare_areas_is_read_as_its_last_checkpoint_has_it() -> None:
    bare = b"".join(IMAGE[at : at + 2048] for at in range(0, len(IMAGE), PAGE))
    seen = Volume(Memory(bare))
    assert (check(seen).sound, seen.pages.has_spare) == (True, False)
    large = seen.at_path(b"/folder/large")
    assert seen.read_content(large, 0, 7000) == b"content" * 1000
    with pytest.raises(F2fsError, match="without spare areas"):
        writing(bare)


def test_a_volume_that_begins_within_a_dump_is_found_there(tmp_path: Path) -> None:
    from f2tools.dffs.volume import open_volume

    path = tmp_path / "chip.nand"
    path.write_bytes(b"\xff" * 4 * 16 * PAGE + IMAGE + b"\xff" * 16 * PAGE)
    with open_volume(f"{path}@+{4 * 16 * PAGE}") as seen:
        assert check(seen).sound
