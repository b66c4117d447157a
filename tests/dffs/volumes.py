"""Small volumes for tests, in memory; what a volume holds as plain values; and what a power cut leaves of a chip."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count, islice
from zlib import crc32

from f2tools.codec import Layout
from f2tools.device.changes.record import Event, Recorder
from f2tools.dffs.check import DffsReport, check
from f2tools.dffs.layout import CHECKPOINT_MAGIC, INODE_MAGIC, LINK_MAGIC, ROOT_ID, VIRTUAL_MAGIC, Shape
from f2tools.dffs.mkfs import format_chip
from f2tools.dffs.nodes import Directory, File, name_hash
from f2tools.dffs.pages import build_spare, parse_tag
from f2tools.dffs.volume import Volume
from f2tools.dffs.write import WritableVolume
from f2tools.flash.nand import Geometry, Nand
from tests.device.memory import Memory

SMALL = Geometry(blocks=48, page_size=2048, spare_size=64, pages_per_block=16)
TIGHT = Geometry(blocks=40, page_size=2048, spare_size=64, pages_per_block=16)
WIDE = Geometry(blocks=128, page_size=2048, spare_size=64, pages_per_block=16)


def clock() -> Callable[[], int]:
    """A clock that goes on by a second each time it is looked at."""
    ticks = count(1_000)
    return lambda: next(ticks) * 1_000_000_000


def formatted(geometry: Geometry = SMALL, bad: tuple[int, ...] = ()) -> bytes:
    """The dump of a chip with an empty volume."""
    device = Memory(b"\xff" * geometry.raw_bytes)
    chip = Nand(geometry, device)
    for block in bad:
        chip.mark_bad(block)
    format_chip(chip, uuid=bytes(16), now=0)
    return bytes(device.content)


def reading(image: bytes, **more: int) -> Volume:
    return Volume(Memory(image), **more)


def writing(image: bytes, **more: int) -> WritableVolume:
    return WritableVolume(Memory(image), clock=clock(), **more)  # type: ignore[arg-type]


def volume(geometry: Geometry = SMALL, **more: int) -> WritableVolume:
    """An empty volume, to be changed."""
    return writing(formatted(geometry), **more)


def device_of(made: Volume) -> Memory:
    """The device in memory that a volume is in."""
    return made.pages.chip._store._device  # type: ignore[union-attr]


def content(of: Volume) -> bytes:
    """The dump that a volume is in, as it is."""
    return bytes(device_of(of).content)


def colliding(count: int, bucket: int = 7) -> list[bytes]:
    """Names that fall into one bucket of a directory."""
    buckets = Shape(SMALL.blocks, SMALL.page_size, SMALL.spare_size, SMALL.pages_per_block).buckets
    names = (b"n%d" % n for n in range(1 << 20))
    return list(islice((name for name in names if name_hash(name) % buckets == bucket), count))


def recorded(geometry: Geometry = TIGHT, filled: int = 110) -> tuple[WritableVolume, Recorder, bytes]:
    """A volume with so many pages of content, whose device records what is done from now on, and what it holds now."""
    made = volume(geometry)
    for number in range(filled):
        made.write(made.create(ROOT_ID, b"cold%d" % number, 0o644), 0, b"cold" * 300)
    made.close()
    before = bytes(device_of(made).content)
    recorder = Recorder(Memory(before))
    return WritableVolume(recorder, clock=clock()), recorder, before


def report(image: bytes) -> DffsReport:
    return check(reading(image))


def codes(image: bytes) -> set[str]:
    """The codes of what a check finds."""
    return {finding.code for finding in report(image).findings}


def tree(of: Volume) -> dict[bytes, object]:
    """By path: the bytes of files, the target of links, the number of links of directories."""
    found: dict[bytes, object] = {}
    todo: list[tuple[bytes, int]] = [(b"", ROOT_ID)]
    while todo:
        path, number = todo.pop()
        directory = of.directory(number)
        found[path or b"/"] = directory.links
        for entry in of.entries(directory):
            below = path + b"/" + entry.name
            if isinstance(entry.inode, Directory):
                todo.append((below, entry.inode.id))
            elif entry.inode.is_link:
                found[below] = (of.readlink(entry.inode),)
            else:
                found[below] = of.read_content(entry.inode, 0, entry.inode.size)
    return found


def torn(image: bytearray, event: Event, geometry: Geometry, chance: random.Random) -> None:
    """Do half of what was being done when the power went: some bytes of a page, some pages of an erased block."""
    end = event.offset + event.length
    old, new = bytes(image[event.offset : end]), bytes(event.data)
    if event.length == geometry.raw_page:
        whole = chance.randrange(len(new) + 1)
        partly = min(len(new), whole + chance.randrange(64))
        middle = bytes(byte | chance.randrange(256) for byte in new[whole:partly])
        image[event.offset : end] = new[:whole] + middle + old[partly:]
        return
    for at in range(0, event.length, geometry.raw_page):
        page = slice(event.offset + at, event.offset + at + geometry.raw_page)
        fate = chance.random()
        if fate < 0.4:
            image[page] = b"\xff" * geometry.raw_page
        elif fate < 0.7:
            image[page] = bytes(a | b for a, b in zip(image[page], chance.randbytes(geometry.raw_page), strict=True))


def sample(geometry: Geometry = SMALL) -> tuple[bytes, dict[str, int]]:
    """A dump with one of everything, and the pages in which that lies."""
    made = volume(geometry)
    parent = made.mkdir(1, b"folder", 0o755)
    inner = made.mkdir(parent, b"inner", 0o755)
    small = made.create(parent, b"small", 0o644)
    made.write(small, 0, b"content")
    large = made.create(parent, b"large", 0o644)
    made.write(large, 0, b"content" * 1000)
    made.write(large, 660_000, b"far")
    made.symlink(parent, b"link", b"large")
    for name in colliding(5):
        made.write(made.create(inner, name, 0o644), 0, name)
    made.link(small, inner, b"other")
    made.setxattr(large, "user.name", b"value")
    made.close()
    seen = reading(content(made))
    assert codes(content(made)) == set()
    big = seen.at_path(b"/folder/large")
    assert isinstance(big, File)
    directory = seen.at_path(b"/folder/inner")
    assert isinstance(directory, Directory)
    other = seen.find(directory, b"other")
    assert other is not None
    leaf = seen.index_address(big, 0, 0)
    pages = {
        "root": seen.root.page, "folder": seen.at_path(b"/folder").page, "inner": directory.page,
        "small": seen.at_path(b"/folder/small").page, "large": big.page, "link": other.holder.page,
        "virtual": seen.virtual(directory.first).page, "index": leaf, "data": big.slots[0],
        "symlink": seen.at_path(b"/folder/link", follow=False).page, "table": seen.state.table[0],
        "space": seen.state.space[0], "checkpoint": seen.state.place,
    }  # fmt: skip
    assert all(pages.values())
    return content(made), pages


def change_page(image: bytes, page: int, change: Callable[[bytearray], object], geometry: Geometry = SMALL) -> bytes:
    """A dump in which a page's content is changed, and every checksum of it right again."""
    raw = bytearray(image)
    at = page * geometry.raw_page
    data, spare = raw[at : at + geometry.page_size], bytes(raw[at + geometry.page_size : at + geometry.raw_page])
    before = bytes(data)
    change(data)
    assert bytes(data) != before
    magic = int.from_bytes(data[:4], "little")
    if magic in (INODE_MAGIC, VIRTUAL_MAGIC, LINK_MAGIC):
        data[4:8] = crc32(bytes(data[:4]) + bytes(4) + bytes(data[8:])).to_bytes(4, "little")
    elif data[:8] == CHECKPOINT_MAGIC:
        data[8:12] = crc32(bytes(data[:8]) + bytes(4) + bytes(data[12:])).to_bytes(4, "little")
    tag = parse_tag(spare)
    assert tag is not None
    shape = Shape(geometry.blocks, geometry.page_size, geometry.spare_size, geometry.pages_per_block)
    raw[at : at + geometry.raw_page] = bytes(data) + build_spare(shape, tag._replace(data_crc=crc32(data)), bytes(data))
    return bytes(raw)


def field(layout: type[Layout], name: str, value: int) -> Callable[[bytearray], None]:
    """Set a field of the structure that a page begins with."""

    def change(data: bytearray) -> None:
        form, names = layout.unpacker()
        size = form.size
        values = dict(zip(names, form.unpack_from(bytes(data)), strict=True))
        assert values[name] != value
        values[name] = value
        data[:size] = form.pack(*values.values())

    return change
