"""Reading the log's pages: tags that are whole, content that has the checksum it was written with.

One wrong bit is corrected; what was misread is read again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import DeviceError
from f2tools.flash.checksums import crc32, mended
from f2tools.flash.format import (
    BLOCK,
    COMMIT,
    DATA,
    HEAD,
    HEAD_MAGIC,
    POSITION_BITS,
    RECORDS,
    TX,
    TX_FIRST,
    TX_LAST,
    VERSION,
    BlockHead,
    PageTag,
)
from f2tools.flash.medium import Medium, NandError

RETRIES = 3


@dataclass(slots=True)
class Scan:
    """What an erase block holds."""

    end: int
    """Its first pages, so many, count."""
    tags: Any
    """Table of all tags; those that are not `valid` mean nothing."""
    valid: NDArray[np.bool_]
    """Of each page, whether its tag is whole, of this log block, and the page counts."""
    damaged: list[int] = field(default_factory=list)
    """Pages that should be there and are not."""
    junk: bool = False
    """Whether something was written after the last page that counts."""


def page_in(medium: Medium, block: int, page: int) -> bytes | None:
    """A raw page, read again where it fails; None where it can't be read at all."""
    for _ in range(RETRIES):
        try:
            return medium.read(block, page, 1)
        except NandError:
            continue
        except DeviceError:
            return None
    return None


def pages_in(medium: Medium, block: int, first: int, count: int) -> bytes:
    """Raw pages; those that can't be read are as if they were erased."""
    if not count:
        return b""
    try:
        return medium.read(block, first, count)
    except DeviceError:
        blank = bytes([medium.blank]) * (medium.page_size + medium.spare_size)
        return b"".join(page_in(medium, block, page) or blank for page in range(first, first + count))


def tag_of(medium: Medium, raw: bytes | memoryview) -> bytes | None:
    """The tag of a raw page, one wrong bit put right; None where it is none."""
    size = PageTag.at(medium.page_size).size
    tag = bytes(raw[medium.page_size : medium.page_size + size])
    body = mended(tag[:-4], int.from_bytes(tag[-4:], "little"))
    return None if body is None else body + crc32(body).to_bytes(4, "little")


def slot_of(medium: Medium, block: int, page: int, slot: int, vblock: int | None) -> tuple[bytes | None, int]:
    """(content of a slot, its stored checksum), read until it is right, one wrong bit put right; None where it is lost.

    It is also lost where it belongs to another virtual block than the one asked for.
    """
    at, crc = slot * BLOCK, 0
    for _ in range(RETRIES):
        raw = page_in(medium, block, page)
        tag = raw and tag_of(medium, raw)
        if not raw or not tag:
            continue
        table = PageTag.at(medium.page_size).table(tag)
        crc = int(table["slot_crc"][0, slot])
        if vblock is not None and int(table["vblock"][0, slot]) != vblock:
            return None, crc
        content = mended(raw[at : at + BLOCK], crc)
        if content is not None:
            return content, crc
    return None, crc


def content_of(medium: Medium, block: int, page: int, raw: bytes | memoryview, tags: Any) -> bytes | None:
    """The slots in use of one page whose tag is known, mended; None where any of it is lost."""
    parts: list[bytes] = []
    for slot in range(int(tags["slots"])):
        part = raw[slot * BLOCK : (slot + 1) * BLOCK]
        stored = int(tags["slot_crc"][slot])
        content = bytes(part) if crc32(part) == stored else slot_of(medium, block, page, slot, None)[0]
        if content is None:
            return None
        parts.append(content)
    return b"".join(parts)


def head_of(medium: Medium, block: int) -> BlockHead | None:
    """The head of the log block in an erase block; None where there is none."""
    for _ in range(RETRIES):
        raw = page_in(medium, block, 0)
        if raw is None or raw.count(medium.blank) == len(raw):
            return None
        body = mended(raw[: BlockHead.size - 4], int.from_bytes(raw[BlockHead.size - 4 : BlockHead.size], "little"))
        tag = tag_of(medium, raw)
        if body is None or tag is None or PageTag.at(medium.page_size).table(tag)["kind"][0] != HEAD:
            continue
        head = BlockHead.parse(body + bytes(4))
        if head.magic == HEAD_MAGIC and head.version == VERSION and 0 < head.seq < 1 << 63 - POSITION_BITS:
            return head
    return None


def scan(medium: Medium, block: int, seq: int, upto: int, newest: bool, *, start: int = 0) -> tuple[Scan, bytes]:
    """Which of the first `upto` pages of a log block count, and the raw pages; pages before `start` are not read.

    In the newest block, pages that no flush is known to follow count only up to the first gap.
    """
    raw = pages_in(medium, block, start, upto - start)
    stride = medium.page_size + medium.spare_size
    layout = PageTag.at(medium.page_size)
    rows = np.frombuffer(raw, np.uint8).reshape(upto - start, stride)
    tags = rows[:, medium.page_size : medium.page_size + layout.size].copy().view(layout.dtype)[:, 0]
    valid = np.zeros(upto - start, np.bool_)
    blank = np.zeros(upto - start, np.bool_)
    view = memoryview(raw)
    low = medium.page_size + layout.size - 4
    for page in range(upto - start):
        one = view[page * stride : (page + 1) * stride]
        if crc32(one[medium.page_size : low]) != int(tags["crc"][page]):
            blank[page] = bool((rows[page] == medium.blank).all())
            mine = None if blank[page] else _again(medium, block, start + page, one)
            if mine is None:
                continue
            tags[page] = layout.table(mine)[0]
        valid[page] = tags["seq"][page] == seq & 0xFFFFFFFF and tags["slots"][page] <= medium.page_size // BLOCK
    found = Scan(upto - start, tags, valid)
    if newest:
        _cut_tail(medium, found, view, block, start)
    last = int(np.flatnonzero(valid[: found.end])[-1]) + 1 if valid[: found.end].any() else 0
    found.junk = bool((~blank[found.end :]).any())
    found.damaged = [
        start + page
        for page in range(found.end)
        if not valid[page] and start + page and not (page >= last and blank[page])
    ]
    valid[found.end :] = False
    _drop_unfinished(found)
    found.end += start
    return found, raw


def _again(medium: Medium, block: int, page: int, raw: memoryview) -> bytes | None:
    tag = tag_of(medium, raw)
    for _ in range(RETRIES - 1):
        if tag is not None:
            break
        fresh = page_in(medium, block, page)
        tag = (fresh and tag_of(medium, fresh)) or None
    return tag


def _cut_tail(medium: Medium, found: Scan, view: memoryview, block: int, start: int) -> None:
    """Find where the newest block of the log ends."""
    stride = medium.page_size + medium.spare_size
    known = found.tags["durable"][found.valid]
    page = max(int(known.max(initial=0)) - start, 0)
    while page < found.end and found.valid[page]:
        tag, raw = found.tags[page], view[page * stride : (page + 1) * stride]
        # what a file forgot a part of is no page; on a chip a wrong bit is no reason to drop what was programmed
        if not _is_whole(tag, raw) and (medium.volatile or content_of(medium, block, start + page, raw, tag) is None):
            break
        page += 1
    found.end = min(max(page, 1 - start), found.end)


def _is_whole(tag: Any, raw: memoryview) -> bool:
    crcs = tag["slot_crc"].tolist()
    return all(crc32(raw[slot * BLOCK : (slot + 1) * BLOCK]) == crcs[slot] for slot in range(int(tag["slots"])))


def _drop_unfinished(found: Scan) -> None:
    """Pages written as one count only where the last of them is there."""
    flags, kinds = found.tags["flags"], found.tags["kind"]
    if not (flags[found.valid] & TX).any():
        return
    begun = -1
    for page in range(found.end):
        part = found.valid[page] and kinds[page] in (DATA, RECORDS) and flags[page] & TX
        if not found.valid[page] and begun >= 0:
            continue  # unreadable: what follows tells
        if begun >= 0 and (not part or flags[page] & TX_FIRST):
            found.valid[begun:page] = False
            begun = -1
        if part and begun < 0:
            begun = page
        if part and flags[page] & TX_LAST:
            begun = -1
    if begun >= 0:
        found.valid[begun : found.end] = False


def is_commit(found: Scan) -> bool:
    """Whether the last page that counts ends a checkpoint, and nothing came after it."""
    at = len(found.tags) - 1
    while at >= 0 and not found.valid[at]:
        at -= 1
    return not found.junk and at >= 0 and int(found.tags["kind"][at]) == COMMIT
