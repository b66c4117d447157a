"""Writing the superblock: copy by copy, so that a power cut leaves at least one good."""

from __future__ import annotations

from typing import Any

from f2tools.device import Device
from f2tools.device.buffers import Data, byte_view
from f2tools.device.wrappers import NotClosed
from f2tools.errors import F2fsError, Usage
from f2tools.f2fs.layout.constants import (
    F2FS_EXTENSION_LEN,
    F2FS_FEATURE_SB_CHKSUM,
    F2FS_MAX_EXTENSION,
    MAX_VOLUME_NAME,
)
from f2tools.f2fs.layout.hashes import f2fs_crc32
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.super import CRC_OFFSET, SuperCopy, must_be_in_place, problems_of, read_superblocks


def built(sb: SuperBlock) -> bytes:
    """The bytes of a superblock, with its checksum where it has one; F2fsError where it would not be a sound one."""
    checksum = bool(sb.feature & F2FS_FEATURE_SB_CHKSUM)
    sb.checksum_offset = CRC_OFFSET if checksum else 0
    sb.crc = 0
    raw = sb.build()
    if checksum:
        sb.crc = f2fs_crc32(raw[:CRC_OFFSET])
        raw = sb.build()
    problems = list(problems_of(sb, raw))
    if problems:
        raise F2fsError(f"not written: the superblock would be wrong: {'; '.join(problems)}")
    return raw


def write_copies(device: Device, sb: SuperBlock) -> None:
    """Write both copies; one that is bad first, else the second, and the other when that is safe."""
    raw = built(sb)
    copies = read_superblocks(device)
    must_be_in_place(device, copies)
    for copy in sorted(copies, key=_order):
        device.pwrite(offset_of(copy, sb), raw)
        device.flush()


def _order(copy: SuperCopy) -> tuple[bool, int]:
    return copy.valid, -copy.index


def offset_of(copy: SuperCopy, sb: SuperBlock) -> int:
    """Where a copy is to be, whatever was found there."""
    return 1024 + (copy.index << sb.log_blocksize)


class WithSuperblock(NotClosed):
    """A device that shows another superblock than it has, and stays open when a volume on it is closed."""

    def __init__(self, base: Device, sb: SuperBlock) -> None:
        super().__init__(base)
        raw = built(sb)
        self._shown = [(1024, raw), (1024 + (1 << sb.log_blocksize), raw)]

    def pread_into(self, offset: int, buffer: Any) -> None:
        self.base.pread_into(offset, buffer)
        view = byte_view(buffer)
        for at, raw in self._shown:
            low, high = max(at, offset), min(at + len(raw), offset + len(view))
            if low < high:
                view[low - offset : high - offset] = raw[low - at : high - at]

    def pwrite(self, offset: int, data: Data) -> None:
        if offset < self._shown[-1][0] + len(self._shown[-1][1]):
            raise F2fsError("the superblock is written by itself, not as part of the volume")
        self.base.pwrite(offset, data)


# -- fields -----------------------------------------------------------------------------------------------------------


def encoded_label(label: str) -> bytes:
    """A label as the superblock has it; Usage where it is too long or not text."""
    try:
        raw = label.encode("utf-16-le")
    except UnicodeEncodeError:
        raise Usage("the label is not valid UTF-8") from None
    if "\0" in label:
        raise Usage("the label has a NUL in it, which would end it")
    if len(raw) > 2 * MAX_VOLUME_NAME:
        raise Usage(f"the label takes {len(raw) // 2} UTF-16 units; {MAX_VOLUME_NAME} fit")
    return raw.ljust(2 * MAX_VOLUME_NAME, b"\0")


def encoded_extensions(cold: list[str], hot: list[str]) -> bytes:
    """The table of extensions; Usage where they are too many."""
    both = [name.encode("utf-8", "surrogateescape") for name in (*cold, *hot)]
    if len(both) > F2FS_MAX_EXTENSION:
        raise Usage(f"{len(both)} extensions; there is room for {F2FS_MAX_EXTENSION}")
    return b"".join(name.ljust(F2FS_EXTENSION_LEN, b"\0") for name in both).ljust(
        F2FS_MAX_EXTENSION * F2FS_EXTENSION_LEN, b"\0"
    )
