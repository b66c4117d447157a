"""An image packed with zstd.  Read-only.

A stream of zstd can only be read from its beginning, so it is unpacked once into a file without a name in $TMPDIR,
where zeros take no room; that goes with the device.  Memory stays the same whatever it holds.
"""

from __future__ import annotations

import errno
import os
import tempfile
from typing import BinaryIO

from f2tools.device.base import Wrapper
from f2tools.device.media.image import ImageFile
from f2tools.errors import DeviceError
from f2tools.text import pasted

SKIPPABLE = 0x184D2A50  # to ...5F: frames of other programs
_PIECE = 1 << 20
_HEAD = 18  # the longest header of a frame
_BLOCK_RLE, _BLOCK_RESERVED = 1, 3


class ZstImage(Wrapper):
    """What a packed image holds."""


def open_zst(name: str, fd: int) -> ZstImage:
    """Unpack the image that is open as `fd`, which stays open; DeviceError where it is cut off or damaged, or there is
    no room for it."""
    import zstandard

    with os.fdopen(os.dup(fd), "rb") as packed:
        _must_be_whole(name, packed)
        packed.seek(0)
        room, path = tempfile.mkstemp(prefix="f2tools-")
        os.unlink(path)
        try:
            with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as content:
                size = _unpack(content, room)
        except zstandard.ZstdError as error:
            os.close(room)
            raise DeviceError(f"{name}: unpacking it with zstd failed: {error}") from None
        except OSError as error:
            os.close(room)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            where = os.path.dirname(path)
            raise DeviceError(
                f"{name}: {where} has no room to unpack it ({error.strerror}); name another directory in TMPDIR, or "
                f"unpack it where there is room: zstd -d --sparse"
            ) from None
        except BaseException:
            os.close(room)
            raise
    return ZstImage(ImageFile(name, room, size, False))


def _unpack(content: BinaryIO, fd: int) -> int:
    """Write what isn't zeros; how many bytes were unpacked."""
    zeros = bytes(_PIECE)
    at = 0
    while data := content.read(_PIECE):
        if data != zeros[: len(data)]:
            os.pwrite(fd, data, at)
        at += len(data)
    os.ftruncate(fd, at)
    return at


def _must_be_whole(name: str, file: BinaryIO) -> None:
    """DeviceError unless frames follow each other up to the end of the file: the library ends early without a word."""
    import zstandard

    end = os.fstat(file.fileno()).st_size
    at = 0
    try:
        while at < end:
            file.seek(at)
            head = file.read(_HEAD)
            if int.from_bytes(head[:4], "little") & ~0xF == SKIPPABLE:
                at += 8 + int.from_bytes(head[4:8], "little")
                continue
            frame = zstandard.get_frame_parameters(head)
            at += zstandard.frame_header_size(head)
            at = _behind_blocks(file, at) + (4 if frame.has_checksum else 0)
    except (zstandard.ZstdError, ValueError) as error:
        raise DeviceError(f"{name}: what begins at byte {at} is not zstd: {error}") from None
    if at != end:
        raise DeviceError(
            f"{name}: is cut off: {end} bytes of at least {at} are there; get a whole copy of it.  If there is none,"
            f" `zstd -dc {pasted(name)} > COPY` unpacks what is there, and `f2tools fsck --salvage DIR COPY` copies"
            " out what is left of the volume"
        )


def _behind_blocks(file: BinaryIO, at: int) -> int:
    """Where the blocks of a frame end; beyond the end of the file where they are cut off."""
    while True:
        file.seek(at)
        raw = file.read(3)
        if len(raw) < 3:
            return at + 3
        header = int.from_bytes(raw, "little")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind == _BLOCK_RESERVED:
            raise ValueError("a block of an unknown kind")
        at += 3 + (1 if kind == _BLOCK_RLE else size)
        if last:
            return at
