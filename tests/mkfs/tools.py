"""What the tests of mkfs share: running the command in this process, and images as their non-zero blocks."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from f2tools.cli import main
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.super import SuperBlock

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
UUID = "11111111-2222-3333-4444-555555555555"
PAGE = 4096


def f2mkfs(*args: str | Path | int) -> str:
    """Run `f2tools mkfs`; what it printed.  Its errors come through as exceptions."""
    done = CliRunner().invoke(main, ["mkfs", *map(str, args)], catch_exceptions=True, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def planned(*args: str | Path | int) -> dict[str, Any]:
    """What `f2tools mkfs --json` says."""
    return json.loads(f2mkfs(*args, "--json"))


def superblock(path: Path) -> SuperBlock:
    with path.open("rb") as f:
        f.seek(1024)
        return SuperBlock.parse(f.read(SuperBlock.size))


def checkpoint(path: Path) -> Checkpoint:
    """The head of the first checkpoint pack."""
    sb = superblock(path)
    with path.open("rb") as f:
        f.seek(sb.cp_blkaddr << sb.log_blocksize)
        return Checkpoint.parse(f.read(Checkpoint.size))


def pages(path: Path) -> dict[int, bytes]:
    """The pages of 4096 bytes of a sparse file that are not zero, by number."""
    found: dict[int, bytes] = {}
    with path.open("rb") as f:
        fd, at = f.fileno(), 0
        while True:
            try:
                start = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:
                return found
            at = os.lseek(fd, start, os.SEEK_HOLE)
            for chunk in range(start // PAGE * PAGE, at, MIB):
                data = os.pread(fd, min(MIB, at - chunk), chunk)
                if data.count(0) == len(data):
                    continue
                for offset in range(0, len(data), PAGE):
                    page = data[offset : offset + PAGE]
                    if page.count(0) != len(page):
                        found[(chunk + offset) // PAGE] = page


def anonymous(super_page: bytes) -> bytes:
    """The page of a superblock without what names its maker: the version strings, and the checksum over them."""
    page = bytearray(super_page)
    for name, size in (("version", 256), ("init_version", 256), ("crc", 4)):
        at = 1024 + SuperBlock.offset_of(name)
        page[at : at + size] = bytes(size)
    return bytes(page)


def fingerprint(path: Path) -> dict[str, int]:
    """CRC-32 by page number of every page that is not zero, superblocks without their versions."""
    block = 1 << superblock(path).log_blocksize
    supers = {0, block // PAGE}
    return {
        str(number): zlib.crc32(anonymous(page) if number in supers else page) for number, page in pages(path).items()
    }


def blank(path: Path, size: int) -> Path:
    with path.open("wb") as f:
        f.truncate(size)
    return path
