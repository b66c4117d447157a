"""Pages of a volume: read, corrected by the code in the spare area, compared with their tags; and where the volume
lies.

A dump may lack spare areas.  Then wrong bits can't be corrected, and nothing says what was written after the last
checkpoint; everything else is read as usual.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from f2tools.device.advice import instead
from f2tools.device.base import Device
from f2tools.device.containers.partition import Slice
from f2tools.dffs.layout import PAGE_KINDS, SUPER, SUPER_MAGIC, VERSION, Checkpoint, Shape, Superblock, Tag
from f2tools.errors import Corrupt, DeviceError, F2fsError, Unsupported, Where
from f2tools.flash import hamming
from f2tools.flash.checksums import crc32, mended
from f2tools.flash.format import SUPER_MAGIC as LAYER_MAGIC
from f2tools.flash.nand import Geometry, Nand
from f2tools.flash.vsl import Vsl
from f2tools.text import command_line

_TAG = Tag.unpacker()[0]
_CRC = struct.Struct("<I")
_BEFORE_CRC = Tag.size - _CRC.size
PAGE_SIZES = (2048, 4096, 8192, 16384)
BLOCK_PAGES = (16, 32, 64, 128, 256)
SEARCHED_BLOCKS = 8
MOST_BLOCKS = 1 << 17
MOST_PAGES = 1 << 24
LEAST_BLOCKS = 16


class NotDffs(F2fsError):
    """There is no Direct Flash File System here."""


class CutShort(DeviceError):
    """A part of the dump is missing; `longer` is the command that appends as many erased bytes to a copy of it."""

    def __init__(self, message: str, missing: int = 0) -> None:
        self.longer = f"head -c {missing} /dev/zero | tr '\\0' '\\377' >> COPY"
        super().__init__(message)


class Tagged(NamedTuple):
    """A tag: see layout.Tag."""

    kind: int
    flags: int
    id: int
    parent: int
    hash: int
    offset: int
    ino: int
    seq: int
    data_crc: int

    @property
    def said(self) -> str:
        """What the page is, in words."""
        return PAGE_KINDS.get(self.kind, f"kind {self.kind}")


def parse_tag(spare: bytes) -> Tagged | None:
    """The tag in a spare area, one wrong bit put right; None where there is none."""
    raw = spare[hamming.MARK_BYTES : hamming.MARK_BYTES + Tag.size]
    body = mended(raw[:_BEFORE_CRC], _CRC.unpack_from(raw, _BEFORE_CRC)[0])
    if body is None:
        return None
    values = _TAG.unpack(body + raw[_BEFORE_CRC:])
    return Tagged(*values[:-1]) if values[0] in PAGE_KINDS else None


def build_spare(shape: Shape, tag: Tagged, data: bytes) -> bytes:
    """The spare area of a page: no bad block mark, the tag, and at the end the code of the content."""
    body = _TAG.pack(*tag, 0)[:_BEFORE_CRC]
    head = b"\xff" * hamming.MARK_BYTES + body + _CRC.pack(crc32(body))
    code = hamming.code(data)
    return head.ljust(shape.spare_size - len(code), b"\xff") + code


class Pages:
    """The pages of a volume, on a chip or in a dump without spare areas."""

    def __init__(self, shape: Shape, chip: Nand | None, bare: Device | None = None) -> None:
        self.shape = shape
        self.chip = chip
        self._bare = bare
        place = chip if chip is not None else bare
        assert place is not None
        self.name = place.name
        self.reads = 0
        self.spare_reads = 0
        self.writes = 0
        self.put_right = 0
        self.wrong_spares: set[int] | None = None
        """Pages that were read whose spare area has wrong bits in its tag or its code; None where nobody looks."""

    @property
    def _used_of_spare(self) -> tuple[slice, slice]:
        """Where the tag and the code are."""
        tag = slice(hamming.MARK_BYTES, hamming.MARK_BYTES + Tag.size)
        return tag, slice(-hamming.code_bytes(self.shape.page_size), None)

    @property
    def has_spare(self) -> bool:
        """Whether there are spare areas."""
        return self.chip is not None

    def read(self, page: int, kinds: tuple[int, ...]) -> tuple[bytes, Tagged | None]:
        """A page that is of one of these kinds, with its tag if there are tags; Corrupt where it is not."""
        where = Where(area=f"page {page}")
        if not 0 < page < self.shape.pages:
            raise Corrupt(where, f"there is no such page for a {PAGE_KINDS[kinds[0]]}")
        self.reads += 1
        if self.chip is None:
            assert self._bare is not None
            return self._bare.pread(page * self.shape.page_size, self.shape.page_size), None
        data, spare = self.chip.read(page)
        tag = parse_tag(spare)
        if tag is None:
            raise Corrupt(where, "its spare area has no tag that is whole")
        if tag.kind not in kinds:
            raise Corrupt(where, f"it is a page of kind {tag.said}, where one of kind {PAGE_KINDS[kinds[0]]} is needed")
        return self._programmed(page, data, spare, tag), tag

    def content(self, page: int) -> bytes:
        """The content of a page, whatever it is, with bits put right where its spare area allows it."""
        if self.chip is None:
            assert self._bare is not None
            return self._bare.pread(page * self.shape.page_size, self.shape.page_size)
        data, spare = self.chip.read(page)
        tag = parse_tag(spare)
        return data if tag is None else self._programmed(page, data, spare, tag)

    def _programmed(self, page: int, data: bytes, spare: bytes, tag: Tagged) -> bytes:
        """Content as it was programmed, and the spare area compared with what it was."""
        right = self.right(data, spare, tag, Where(area=f"page {page}"))
        if self.wrong_spares is not None:
            written = build_spare(self.shape, tag, right)
            if any(spare[part] != written[part] for part in self._used_of_spare):
                self.wrong_spares.add(page)
        return right

    def right(self, data: bytes, spare: bytes, tag: Tagged, where: Where) -> bytes:
        """Content as it was programmed; Corrupt where more bits are wrong than the code bears."""
        if crc32(data) == tag.data_crc:
            return data
        fixed = hamming.mended(data, spare[-hamming.code_bytes(self.shape.page_size) :])
        if fixed is None or crc32(fixed) != tag.data_crc:
            raise Corrupt(where, "more bits are wrong than can be put right")
        self.put_right += 1
        return fixed

    def tag(self, page: int) -> Tagged | None:
        """The tag of a page; None where there is none that is whole."""
        if self.chip is None or not 0 <= page < self.shape.pages:
            return None
        self.spare_reads += 1
        try:
            return parse_tag(self.chip.read_spare(page))
        except DeviceError:
            return None

    def is_bad(self, block: int) -> bool:
        """Whether a block is marked bad; a dump without spare areas doesn't say."""
        return self.chip is not None and self.chip.is_bad(block)

    def close(self) -> None:
        for place in (self.chip, self._bare):
            if place is not None:
                place.close()


def parse_super(data: bytes, name: str) -> Superblock | None:
    """The superblock at the beginning of a page; None where there is none that is whole."""
    sb = Superblock.parse(data)
    if sb.magic != SUPER_MAGIC or sb.crc != crc32(sb.build()[: -_CRC.size]):
        return None
    if sb.version != VERSION:
        raise Unsupported(f"{name}: version {sb.version} of the format; {VERSION} is known here")
    return sb


def shape_of(sb: Superblock) -> Shape:
    """The shape of the chip; Corrupt where none can have it."""
    shape = Shape(sb.blocks, sb.page_size, sb.spare_size, sb.pages_per_block)
    problem = shape_problem(shape)
    if problem:
        raise Corrupt(Where(area="superblock"), problem)
    return shape


def shape_problem(shape: Shape) -> str | None:
    """Why no volume can be on such a chip; None where one can."""
    if shape.page_size not in PAGE_SIZES:
        return f"pages of {shape.page_size} bytes; known are those of {', '.join(map(str, PAGE_SIZES))}"
    if shape.pages_per_block not in BLOCK_PAGES:
        return f"erase blocks of {shape.pages_per_block} pages; known are those of {', '.join(map(str, BLOCK_PAGES))}"
    need = hamming.MARK_BYTES + Tag.size + hamming.code_bytes(shape.page_size)
    if not need <= shape.spare_size <= shape.page_size:
        return f"spare areas of {shape.spare_size} bytes; {need} are needed"
    room = (shape.page_size - Checkpoint.size) // 4
    if not LEAST_BLOCKS <= shape.blocks <= MOST_BLOCKS or shape.pages > MOST_PAGES:
        most = min(MOST_BLOCKS, MOST_PAGES // shape.pages_per_block)
        return f"{shape.blocks} erase blocks; a volume has {LEAST_BLOCKS} to {most}"
    if shape.table_pages + shape.space_pages > room:
        most = (room - shape.table_pages) * shape.records_per_page
        return f"{shape.blocks} erase blocks of such pages; a checkpoint has room for {most}"
    return None


def find_super(device: Device) -> Superblock | None:
    """The superblock of a volume on a chip of unknown shape; None where there is none."""
    found = _super_at(device, 0)
    if found is not None:
        return found
    met: set[int] = set()
    for page_size in PAGE_SIZES:
        for per_block in BLOCK_PAGES:
            for raw in (page_size + page_size // 32, page_size):
                for block in range(1, SEARCHED_BLOCKS):
                    at = block * per_block * raw
                    if at not in met:
                        met.add(at)
                        found = _super_at(device, at)
                        if found is not None:
                            return found
    return None


def _super_at(device: Device, at: int) -> Superblock | None:
    if at + Superblock.size > device.size_bytes:
        return None
    return parse_super(device.pread(at, Superblock.size), device.name)


def open_pages(place: Device | Nand) -> tuple[Superblock, Pages]:
    """The volume on a chip or in a dump, with spare areas or without, which this then owns.

    NotDffs where none is, DeviceError where a part of the dump is missing.
    """
    if isinstance(place, Nand):
        return _open_chip(place)
    sb = find_super(place)
    if sb is None:
        raise NotDffs(f"{place.name}: no Direct Flash File System; {_instead(place)}")
    return sb, pages_of(sb, place)


def _instead(place: Device) -> str:
    """What is in a file that is no dump of a chip with a volume."""
    if isinstance(place, Vsl):
        return "it is a virtualized storage layer; " + instead(place, "nothing that is known is in it")
    if place.size_bytes >= len(LAYER_MAGIC) and place.pread(0, len(LAYER_MAGIC)) == LAYER_MAGIC:
        return f"it is a virtualized storage layer; `{command_line('f2tools info', place.name)}` says what is in it"
    return instead(place, "`f2tools dffs mkfs` makes one")


def pages_of(sb: Superblock, place: Device) -> Pages:
    """The pages of a volume with this superblock in a dump, with spare areas or without; this then owns the dump.

    DeviceError where a part of the dump is missing.
    """
    shape = shape_of(sb)
    geometry = Geometry(shape.blocks, shape.page_size, shape.spare_size, shape.pages_per_block)
    if place.size_bytes >= geometry.raw_bytes:
        return Pages(shape, Nand(geometry, _cut(place, geometry.raw_bytes)))
    if _has_spare(place, geometry):
        said = f"{place.name} has {place.size_bytes} bytes; {_short(place.size_bytes, geometry)}"
        raise CutShort(said, geometry.raw_bytes - place.size_bytes)
    if place.size_bytes >= geometry.data_bytes:
        return Pages(shape, None, _cut(place, geometry.data_bytes))
    raise DeviceError(
        f"{place.name} has {place.size_bytes} bytes; the volume takes {geometry.raw_bytes} with spare areas and "
        f"{geometry.data_bytes} without"
    )


def _has_spare(dump: Device, geometry: Geometry) -> bool:
    """Whether a copy of the superblock has its tag behind it, as in a dump with spare areas."""
    for block in range(SEARCHED_BLOCKS):
        at = block * geometry.pages_per_block * geometry.raw_page
        if at + geometry.raw_page <= dump.size_bytes and _super_at(dump, at) is not None:
            tag = parse_tag(dump.pread(at + geometry.page_size, geometry.spare_size))
            if tag is not None and tag.kind == SUPER:
                return True
    return False


def _short(size: int, geometry: Geometry) -> str:
    """What is missing of a dump with spare areas, and what may help."""
    missing, block = geometry.raw_bytes - size, geometry.pages_per_block * geometry.raw_page
    said = f"with its spare areas the volume takes {geometry.raw_bytes}, so {missing} are missing"
    if missing % block:
        return f"{said}.  Read the flash again, or append as many bytes of 0xff to see what is left"
    blocks = "one erase block" if missing == block else f"{missing // block} erase blocks"
    return (
        f"{said}, {blocks}.  If bad blocks were left out, all that follows them is out of place: read the flash again, "
        "with `nanddump --oob --bb=dumpbad`.  If it was cut off, append as many bytes of 0xff to see what is left"
    )


def _open_chip(chip: Nand) -> tuple[Superblock, Pages]:
    """The volume on a chip, whose shape is known; a wrong bit of its superblock is put right."""
    geometry = chip.geometry
    shape = Shape(geometry.blocks, geometry.page_size, geometry.spare_size, geometry.pages_per_block)
    pages = Pages(shape, chip)
    for block in range(min(SEARCHED_BLOCKS, shape.blocks)):
        try:
            sb = parse_super(pages.content(block * shape.pages_per_block), chip.name)
        except (Corrupt, DeviceError):
            continue
        pages.reads += 1
        if sb is not None and shape_of(sb) == shape:
            return sb, pages
    raise NotDffs(f"{chip.name}: no Direct Flash File System; `f2tools dffs mkfs` makes one")


def _cut(device: Device, size: int) -> Device:
    return device if device.size_bytes == size else Slice(device, 0, size)
