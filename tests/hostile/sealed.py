"""Checksums that a fuzzer would not guess, made right in whatever it has made, so that it gets behind them."""

from __future__ import annotations

import struct
from zlib import crc32

from f2tools.device.changes import overlay_log
from f2tools.device.changes import undo_log as undo_format
from f2tools.device.changes.appended import sealed
from tests.device.memory import Memory

TAR_BLOCK, TAR_SUM = 512, slice(148, 156)
GPT_SECTORS = (512, 4096)
GPT_HEADER = struct.Struct("<8sIII4xQQQQ16sQIII")  # see `f2tools.device.containers.partition`
OVERLAID_BYTES = 1 << 20  # of the device below an overlay


def tar(data: bytes) -> bytes:
    """Of each header of an archive that is not compressed."""
    out = bytearray(data)
    for at in range(0, len(out) - TAR_BLOCK + 1, TAR_BLOCK):
        if out[at + 257 : at + 262] == b"ustar":
            head = out[at : at + TAR_BLOCK]
            head[TAR_SUM] = b" " * 8
            head[TAR_SUM] = b"%06o\0 " % sum(head)
            out[at : at + TAR_BLOCK] = head
    return bytes(out)


def undo_log(data: bytes) -> bytes:
    """Of the header and of the records that follow each other."""
    size = undo_format.HEADER.size
    if len(data) < size:
        return data
    out, at = bytearray(data), size
    if undo_format.HEADER.unpack(out[:size])[1] > 1:
        at += undo_format.CLOSED.size
    out[:size] = sealed(bytes(out[:size]))
    seed = crc32(undo_format.HEADER.unpack(out[:size])[3])
    while out[at : at + 4] == undo_format.RECORD_MAGIC and at + undo_format.RECORD.size <= len(out):
        raw = bytes(out[at : at + undo_format.RECORD.size])
        _, kind, _, _, _, length, _ = undo_format.RECORD.unpack(raw)
        start = at + undo_format.RECORD.size
        end = start + (length if kind in undo_format.FOLLOWED else 0)
        if end > len(out):
            break
        out[at:start] = sealed(raw, bytes(out[start:end]), seed)
        at = end
    return bytes(out)


def overlay(data: bytes) -> bytes:
    """Of the records of an overlay, which belongs to the device that `f2tools` is given."""
    head = overlay_log.header_of(Memory(OVERLAID_BYTES), b"")
    if len(data) < len(head):
        return data
    out, at, size = bytearray(head + data[len(head) :]), len(head), overlay_log.RECORD.size
    while out[at : at + 4] == overlay_log.RECORD_MAGIC and at + size <= len(out):
        raw = bytes(out[at : at + size])
        _, kind, _, count, _ = overlay_log.RECORD.unpack(raw)
        end = at + size + (count * overlay_log.BLOCK if kind == overlay_log.DATA else 0)
        if end > len(out):
            break
        out[at : at + size] = sealed(raw, bytes(out[at + size : end]))
        at = end
    return bytes(out)


def partitions(data: bytes) -> bytes:
    """Of a GPT at its place."""
    for sector in GPT_SECTORS:
        if data[sector : sector + 8] != b"EFI PART" or len(data) < sector + GPT_HEADER.size:
            continue
        out = bytearray(data)
        _, _, size, _, _, _, _, _, _, table, count, each, _ = GPT_HEADER.unpack_from(data, sector)
        if table * sector + count * each <= len(out):
            entries = bytes(out[table * sector : table * sector + count * each])
            out[sector + 88 : sector + 92] = crc32(entries).to_bytes(4, "little")
        raw = bytes(out[sector : sector + min(size, sector)])
        out[sector + 16 : sector + 20] = crc32(raw[:16] + bytes(4) + raw[20:]).to_bytes(4, "little")
        return bytes(out)
    return data
