"""The media of a log: a NAND chip, or an image file that is treated like one.

Both have erase blocks of pages, each page followed by its spare area, and are told to program pages in order and to
erase blocks.  On a chip what is programmed stays; a file may lose, in any order, what came after the last flush.
"""

from __future__ import annotations

from typing import Protocol

from f2tools.device.base import Device
from f2tools.errors import Corrupt, DeviceError, F2fsError, Unsupported, Where
from f2tools.flash.checksums import crc32
from f2tools.flash.format import BLOCK, SUPER_BYTES, SUPER_MAGIC, VERSION, PageTag, VslSuper, tag_bytes
from f2tools.flash.nand import EraseFailed, Nand, NandError, ProgramFailed

BLANK_NAND, BLANK_FILE = 0xFF, 0
MAX_SLOTS_PER_BLOCK = 1 << 24
MAX_PAGE = 64 << 10
LEAST_PAGES = 8  # of an erase block: with fewer, the head and what cleaning appends leave too little of it for data


class Medium(Protocol):
    """Erase blocks of pages; a raw page is its data and then its spare area."""

    name: str
    page_size: int
    spare_size: int
    pages_per_block: int
    blocks: int
    blank: int
    """What every byte of an erased page is."""
    volatile: bool
    """Whether programmed pages may be lost, in any order, until the next flush."""

    @property
    def read_only(self) -> bool: ...

    def read(self, block: int, page: int, count: int) -> bytes:
        """Raw pages."""
        ...

    def program(self, block: int, page: int, raw: bytes | memoryview) -> None:
        """Program whole raw pages; ProgramFailed names the first page, counted over all blocks, that didn't take it."""
        ...

    def erase(self, block: int) -> None: ...

    def is_bad(self, block: int) -> bool: ...

    def retire(self, block: int) -> None:
        """Never use this block again."""
        ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class NandMedium:
    """A log on a chip."""

    blank = BLANK_NAND
    volatile = False

    def __init__(self, nand: Nand) -> None:
        geometry = nand.geometry
        check_shape(nand.name, geometry.page_size, geometry.spare_size, geometry.pages_per_block)
        self.nand = nand
        self.name = nand.name
        self.page_size = geometry.page_size
        self.spare_size = geometry.spare_size
        self.pages_per_block = geometry.pages_per_block
        self.blocks = geometry.blocks

    @property
    def read_only(self) -> bool:
        return self.nand.read_only

    def read(self, block: int, page: int, count: int) -> bytes:
        return self.nand.read_raw(block * self.pages_per_block + page, count)

    def program(self, block: int, page: int, raw: bytes | memoryview) -> None:
        self.nand.program_raw(block * self.pages_per_block + page, raw)

    def erase(self, block: int) -> None:
        self.nand.erase(block)

    def is_bad(self, block: int) -> bool:
        return self.nand.is_bad(block)

    def retire(self, block: int) -> None:
        self.nand.mark_bad(block)

    def flush(self) -> None:
        self.nand.flush()

    def close(self) -> None:
        self.nand.close()


class FileMedium:
    """A log in an image file, or on any other device."""

    blank = BLANK_FILE
    volatile = True

    def __init__(self, device: Device, sb: VslSuper) -> None:
        self.device = device
        self.sb = sb
        self.name = device.name
        self.page_size = sb.page_size
        self.spare_size = sb.tag_bytes
        self.pages_per_block = sb.pages_per_block
        self.blocks = sb.blocks
        self._raw = sb.page_size + sb.tag_bytes

    @property
    def read_only(self) -> bool:
        return self.device.read_only

    def read(self, block: int, page: int, count: int) -> bytes:
        return self.device.pread(self._at(block, page), count * self._raw)

    def program(self, block: int, page: int, raw: bytes | memoryview) -> None:
        self.device.pwrite(self._at(block, page), raw)

    def erase(self, block: int) -> None:
        self.device.discard(self._at(block, 0), self.pages_per_block * self._raw)

    def is_bad(self, block: int) -> bool:
        return False

    def retire(self, block: int) -> None:
        raise DeviceError(f"{self.name}: erase block {block} can't be retired: this is no flash")

    def flush(self) -> None:
        self.device.flush()

    def close(self) -> None:
        self.device.close()

    def place(self, block: int, page: int) -> tuple[int, int]:
        """(offset, length) of a raw page in the image."""
        return self._at(block, page), self._raw

    def _at(self, block: int, page: int) -> int:
        return SUPER_BYTES + (block * self.pages_per_block + page) * self._raw


def check_shape(name: str, page_size: int, spare_size: int, pages_per_block: int) -> None:
    """Unsupported for pages or erase blocks that a log can't be kept on."""
    if not BLOCK <= page_size <= MAX_PAGE or page_size & (page_size - 1):
        raise Unsupported(f"{name}: pages of {page_size} bytes; a power of two from {BLOCK} to {MAX_PAGE} is needed")
    if spare_size < PageTag.at(page_size).size:
        raise Unsupported(
            f"{name}: a spare area of {spare_size} bytes; pages of {page_size} need {PageTag.at(page_size).size}"
        )
    if not LEAST_PAGES <= pages_per_block <= 0xFFFF or pages_per_block * page_size // BLOCK > MAX_SLOTS_PER_BLOCK:
        raise Unsupported(f"{name}: erase blocks of {pages_per_block} pages; they must have {LEAST_PAGES} to {0xFFFF}")


def image_bytes(page_size: int, pages_per_block: int, blocks: int) -> int:
    """The size of an image file with so many erase blocks."""
    return 2 * SUPER_BYTES + blocks * pages_per_block * (page_size + tag_bytes(page_size))


def format_file(device: Device, page_size: int, pages_per_block: int, blocks: int, uuid: bytes) -> FileMedium:
    """Write the superblock, twice, into a device that is all zeros."""
    check_shape(device.name, page_size, tag_bytes(page_size), pages_per_block)
    sb = VslSuper(
        magic=SUPER_MAGIC, version=VERSION, page_size=page_size, tag_bytes=tag_bytes(page_size),
        pages_per_block=pages_per_block, blocks=blocks, uuid=uuid,
    )  # fmt: skip
    sb.crc = crc32(sb.build()[:-4])
    for offset in super_places(device.size_bytes):
        device.pwrite(offset, sb.build())
    return FileMedium(device, sb)


def super_places(size_bytes: int) -> tuple[int, int]:
    """Where the two copies of the superblock lie."""
    return 0, size_bytes - SUPER_BYTES


class NotVsl(F2fsError):
    """There is no virtualized storage layer here."""


class CutShort(Corrupt):
    """The image is shorter than the layer in it; `longer` is the command that makes a copy of it as long as that.

    Erased pages are zeros in such an image.
    """

    def __init__(self, where: Where, message: str, wanted: int = 0) -> None:
        self.longer = f"truncate -s {wanted} COPY"
        cure = f".  Copy it again, or make a copy of it longer with zeros to see what is left: `{self.longer}`"
        super().__init__(where, message + cure if wanted else message)


def read_super(device: Device, offset: int) -> VslSuper:
    """One copy of the superblock; Corrupt where there is none that is whole."""
    where = Where(area="VSL superblock", offset=offset)
    if device.size_bytes < 2 * SUPER_BYTES:
        raise Corrupt(where, f"{device.name} has only {device.size_bytes} bytes")
    sb = VslSuper.parse(device.pread(offset, VslSuper.size))
    if sb.magic != SUPER_MAGIC or sb.crc != crc32(sb.build()[:-4]):
        raise Corrupt(where, "no superblock of a virtualized storage layer")
    if sb.version != VERSION:
        raise Unsupported(f"{device.name}: version {sb.version} of the layer's format; {VERSION} is known here")
    check_shape(device.name, sb.page_size, sb.tag_bytes, sb.pages_per_block)
    wanted = 2 * SUPER_BYTES + sb.blocks * sb.pages_per_block * (sb.page_size + sb.tag_bytes)
    if not sb.blocks:
        raise Corrupt(where, f"{device.name} has no erase blocks")
    if device.size_bytes < wanted:
        raise CutShort(
            where, f"{device.name} has {device.size_bytes} bytes; its {sb.blocks} erase blocks take {wanted}", wanted
        )
    return sb


def _has_magic(device: Device, offset: int) -> bool:
    return 0 <= offset <= device.size_bytes - SUPER_BYTES and (
        VslSuper.parse(device.pread(offset, VslSuper.size)).magic == SUPER_MAGIC
    )


def open_file(device: Device) -> FileMedium:
    """The log in an image file; its second superblock counts where the first is damaged.

    NotVsl where neither is there; Corrupt where none is whole, or the image is shorter than it says.
    """
    first, second = super_places(device.size_bytes)
    if not any(_has_magic(device, place) for place in (first, second)):
        raise NotVsl(f"{device.name}: no image of a virtualized storage layer; `f2tools vsl create` makes one")
    try:
        return FileMedium(device, read_super(device, first))
    except Corrupt as error:
        try:
            return FileMedium(device, read_super(device, second))
        except Corrupt:
            raise error from None


__all__ = [
    "CutShort", "EraseFailed", "FileMedium", "Medium", "NandError", "NandMedium", "NotVsl", "ProgramFailed",
    "check_shape", "format_file", "image_bytes", "open_file", "read_super", "super_places",
]  # fmt: skip
