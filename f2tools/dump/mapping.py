"""Where the blocks of a file lie: extents, holes, unwritten blocks, compressed clusters, inline content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from f2tools.dump.nodes import runs
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import CURSEG_NAMES, F2FS_DEVICE_ALIAS_FL, NEW_ADDR
from f2tools.f2fs.layout.node_tree import max_blocks
from f2tools.f2fs.volume.data import Cluster

if TYPE_CHECKING:
    from f2tools.f2fs.volume.data import Cluster, Extent
    from f2tools.f2fs.volume.inode import Inode
    from f2tools.f2fs.volume.volume import Volume


def file_map(vol: Volume, inode: Inode) -> dict[str, Any]:
    """The map of a file, in file order and in blocks: `extents` with `kind` fofs count blkaddr segno type.

    Kinds are extent, hole, unwritten, compressed (`blocks` has where the compressed bytes lie) and inline.  What lies
    past i_size (preallocated blocks, a Merkle tree) is shown too.  `fragments` counts the runs on the disk.  Where a
    node can't be read the map ends, and `problems` says why.
    """
    problems: list[str] = []
    parts = list(parts_of(vol, inode, problems))
    return _head(vol, inode) | _counted(parts) | {"extents": parts, "problems": problems}


def counts_of(vol: Volume, inode: Inode) -> dict[str, Any]:
    """`file_map` without the extents, of which there may be millions: `parts_of` yields them."""
    problems: list[str] = []
    return _head(vol, inode) | _counted(parts_of(vol, inode, problems)) | {"problems": problems}


def parts_of(vol: Volume, inode: Inode, problems: list[str]) -> Iterator[dict[str, Any]]:
    """The extents of `file_map`, one after the other; where they end before the file does, `problems` is told why."""
    if inode.has_inline_data or inode.has_inline_dentry:
        part = {"kind": "inline", "fofs": 0, "count": 0, "blkaddr": inode.blkaddr, "bytes": inode.i_size}
        yield part | _place(vol, inode.blkaddr, 1)
        return
    yield from _with_holes(vol, inode, _items(vol, inode, problems))


def _items(vol: Volume, inode: Inode, problems: list[str]) -> Iterator[Extent | Cluster]:
    try:
        yield from vol.data.layout(inode, 0, None if inode.i_flags & F2FS_DEVICE_ALIAS_FL else _most(vol, inode))
    except F2fsError as error:
        problems.append(str(error))


def _head(vol: Volume, inode: Inode) -> dict[str, Any]:
    return {
        "ino": inode.ino,
        "kind": inode.kind,
        "i_size": inode.i_size,
        "i_blocks": inode.i_blocks,
        "block_size": vol.geo.block_size,
    }


def _most(vol: Volume, inode: Inode) -> int:
    """How many blocks an inode can map."""
    return max_blocks(vol.geo.addrs_per_block, inode.addrs_per_block, inode.addrs_per_inode)


def _with_holes(vol: Volume, inode: Inode, items: Iterator[Extent | Cluster]) -> Iterator[dict[str, Any]]:
    end = -(-inode.i_size // vol.geo.block_size)
    at = 0
    for item in items:
        yield from _hole(at, min(item.fofs, end), 0)
        yield from _hole(max(at, end), item.fofs, end)
        if isinstance(item, Cluster):
            count = inode.cluster_size
            where = item.blkaddrs.tolist()
            yield {
                "kind": "compressed",
                "fofs": item.fofs,
                "count": count,
                "blkaddr": where[0] if where else None,
                "blocks": [{"blkaddr": run["first"], "count": run["count"]} for run in runs(item.blkaddrs)],
                "beyond_eof": item.fofs >= end,
            } | (_place(vol, where[0], 1) if where else {"segno": None, "type": None})
        else:
            count = item.count
            unwritten = item.blkaddr == NEW_ADDR
            yield {
                "kind": "unwritten" if unwritten else "extent",
                "fofs": item.fofs,
                "count": count,
                "blkaddr": None if unwritten else item.blkaddr,
                "beyond_eof": item.fofs >= end,
            } | ({"segno": None, "type": None} if unwritten else _place(vol, item.blkaddr, count))
        at = item.fofs + count
    yield from _hole(at, end, 0)


def _hole(start: int, stop: int, past: int) -> Iterator[dict[str, Any]]:
    """A hole, where there is room for one; gaps past the end of the file (`past`) are none."""
    if start < stop and not past:
        yield {
            "kind": "hole",
            "fofs": start,
            "count": stop - start,
            "blkaddr": None,
            "beyond_eof": False,
            "segno": None,
            "type": None,
        }


def _place(vol: Volume, blkaddr: int, count: int) -> dict[str, Any]:
    """Segment and type of a block; of the last block too where a run goes over several segments."""
    if not vol.geo.in_main(blkaddr):
        return {"segno": None, "last_segno": None, "type": None}
    segno = int(vol.geo.segno(blkaddr))
    kind = int(vol.sit.types[segno])
    last = blkaddr + count - 1
    return {
        "segno": segno,
        "last_segno": int(vol.geo.segno(last)) if vol.geo.in_main(last) else None,
        "type": CURSEG_NAMES[kind] if kind < len(CURSEG_NAMES) else f"unknown {kind}",
    }


def _runs_of(part: dict[str, Any]) -> list[tuple[int, int]]:
    """(block address, count) of what a part takes on the disk."""
    if part["kind"] == "compressed":
        return [(run["blkaddr"], run["count"]) for run in part["blocks"]]
    return [(part["blkaddr"], part["count"])] if part["kind"] == "extent" else []


def _counted(parts: Iterable[dict[str, Any]]) -> dict[str, int]:
    """`mapped_blocks`, and how many runs a sequential reader meets.

    Neighbours on the disk count as one, holes between them or not.
    """
    fragments, mapped, follows = 0, 0, None
    for part in parts:
        for blkaddr, count in _runs_of(part):
            fragments += blkaddr != follows
            mapped += count
            follows = blkaddr + count
    return {"fragments": fragments, "mapped_blocks": mapped}
