"""Names that directories had before: what was overwritten stays in the log of the layer until it is cleaned."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from f2tools.dfs.buckets import BUCKET_BLOCKS, bucket_of
from f2tools.dfs.dentries import Malformed, entries_of, entry_problem
from f2tools.dfs.layout import BLOCK, DOTS
from f2tools.dfs.volume import Volume
from f2tools.flash.checksums import crc32
from f2tools.flash.format import DATA
from f2tools.flash.pages import scan


def older_names(
    volume: Volume, directories: Collection[int], wanted: dict[int, int]
) -> dict[int, list[tuple[int, bytes]]]:  # fmt: skip
    """(directory, name) by inode, the newest first, of those in `wanted` (inode: its kind, as in st_mode >> 12).

    They are those that blocks of `directories` say which are still in the log.
    """
    geo, found = volume.geo, dict[int, dict[tuple[int, bytes], None]]()
    for block, content in _older_blocks(volume, directories):
        owner = (block >> geo.chunk_bits) - geo.first_own_chunk
        try:
            entries = entries_of(content, (block - geo.own_chunk(owner)) * BLOCK)
        except Malformed:
            continue
        for entry in entries:
            if wanted.get(entry.ino) != entry.type or entry.name in DOTS or entry_problem(geo, entry) is not None:
                continue
            bucket = entry.offset // BLOCK // BUCKET_BLOCKS * BUCKET_BLOCKS
            if not geo.hashed or bucket_of(geo, volume.hash_key, entry.name) == bucket:
                names = found.setdefault(entry.ino, {})
                names.pop((owner, entry.name), None)
                names[owner, entry.name] = None
    return {ino: list(names)[::-1] for ino, names in found.items()}


def _older_blocks(volume: Volume, directories: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """(block, content) of everything in the log that was written to these directories, the newest last."""
    geo, layer = volume.geo, volume.layer
    medium, table = layer.medium, layer.table
    chunks = np.array(sorted(geo.first_own_chunk + ino for ino in directories), np.uint64)
    stride = medium.page_size + medium.spare_size
    for erase_block in table.by_seq():
        seen, raw = scan(medium, erase_block, int(table.seq[erase_block]), medium.pages_per_block, False)
        vblocks = np.atleast_2d(seen.tags["vblock"])
        used = np.arange(vblocks.shape[1]) < seen.tags["slots"][:, None]
        mine = np.isin(vblocks >> np.uint64(geo.chunk_bits), chunks) & used
        mine &= (seen.valid & (seen.tags["kind"] == DATA))[:, None]
        for page, slot in zip(*np.nonzero(mine), strict=True):
            at = int(page) * stride + int(slot) * BLOCK
            content = raw[at : at + BLOCK]
            if crc32(content) == int(seen.tags["slot_crc"][page, slot]):
                yield int(vblocks[page, slot]), content
