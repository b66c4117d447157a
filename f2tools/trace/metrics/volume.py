"""Metrics of the F2FS volume that the writes went to: areas, logs, files, segments; all of them need an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from f2tools.blktrace.records import DISCARDS, READS, WRITES
from f2tools.f2fs.layout.constants import CURSEG_NAMES
from f2tools.trace.attribute.areas import by_name
from f2tools.trace.measure.sequential import share
from f2tools.trace.metrics.metric import (
    ABSENT,
    AREAS,
    BYTES,
    COUNT,
    LOGS,
    OTHER,
    SECTORS,
    SHARE,
    TEXT,
    TREE,
    Measured,
    Metric,
    Word,
    number,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from f2tools.f2fs.volume.volume import Volume
    from f2tools.trace.attribute.attribution import Attribution

DATA_LOGS = CURSEG_NAMES[:3]
EIGHTHS = 8
SUBMITTED = (*(f"{heat}_{kind}" for heat in ("hot", "warm", "cold") for kind in ("data", "node", "meta")),
             "meta", "other")  # fmt: skip


def _by_area(which: int) -> Callable[[Measured], dict[str, int] | None]:
    return lambda it: by_name(it.measures.area_bytes[which]) if it.areas else None


def _attributed(value: Callable[[Attribution], Any], otherwise: Any = None) -> Callable[[Measured], Any]:
    """The metrics that need the images, and those that exist without them."""
    return lambda it: otherwise if it.attribution is None else value(it.attribution)


def _files(it: Measured) -> dict[str, Any] | None:
    if it.attribution is None:
        return None
    files = list(it.attribution.files.items())
    return {str(ino): values for ino, values in (files[: it.top] if it.top > 0 else files)}


def _sequentialised(it: Measured) -> dict[str, Any] | None:
    if it.per_log is None:
        return None
    data = sum(it.per_log[name]["of_bytes"] for name in DATA_LOGS)
    large = sum(it.per_log[name]["large_sequential_bytes"] for name in DATA_LOGS)
    return {"bytes": large, "of_bytes": data, "byte_share": share(large, data)}


def _threaded(it: Measured) -> dict[str, Any] | None:
    found, before = it.attribution, it.before
    if found is None or before is None:
        return None
    size, blocks = before.geo.block_size, found.threaded
    return {
        "bytes": blocks.blocks * size, "of_bytes": found.total,
        "byte_share": share(blocks.blocks * size, found.total),
        "at_least": share(blocks.at_least * size, found.total),
        "at_most": share(blocks.at_most * size, found.total),
    }  # fmt: skip


def _valid_blocks(it: Measured) -> dict[str, Any] | None:
    if it.attribution is None:
        return None
    volumes = {"before": it.before, "after": it.after}
    return {name: valid_blocks(volume) for name, volume in volumes.items() if volume is not None}


def valid_blocks(volume: Volume) -> dict[str, Any]:
    """Dirty segments by how many of their blocks are valid."""
    per = volume.geo.blocks_per_seg
    valid = volume.sit.vblocks.astype(np.int64)
    dirty = valid[(valid > 0) & (valid < per)]
    numbers, segments = np.unique(dirty, return_counts=True)
    counts = np.bincount(np.minimum(dirty * EIGHTHS // per, EIGHTHS - 1), minlength=EIGHTHS)
    return {
        "dirty": len(dirty), "free": int(np.count_nonzero(valid == 0)), "full": int(np.count_nonzero(valid >= per)),
        "by_eighth": counts.tolist(),
        "by_blocks": dict(zip(map(str, numbers.tolist()), segments.tolist(), strict=True)),
    }  # fmt: skip


def _tracepoints(it: Measured) -> dict[str, Any] | None:
    pages = it.trace.pages
    if not pages.count:
        return None
    return {
        "blocks": pages.count,
        "logs": dict(sorted(pages.logs.items())),
        "inodes": {str(ino): count for ino, count in pages.inos.most_common(it.top if it.top > 0 else None)},
    }


# The shares of areas and logs are drawn by the reports; compare has their bytes in full.
AREAS_WRITTEN = Metric(
    "areas", BYTES,
    "Bytes written to sb, cp, sit, nat, ssa and main, exactly, from the superblock's bounds. sb is all ahead of cp.",
    _by_area(WRITES), AREAS, {"written by area": "", "area": ""}, number,
)  # fmt: skip
AREAS_READ = Metric("areas_read", BYTES, "Bytes read, by area as in `areas`.", _by_area(READS), AREAS, {}, number)
AREAS_DISCARDED = Metric(
    "areas_discarded", BYTES, "Bytes discarded, by area as in `areas`.", _by_area(DISCARDS), AREAS, {}, number
)
OFFSET = Metric(
    "offset", SECTORS, "Sectors between the start of the traced device and that of the volume.",
    lambda it: it.areas.offset if it.areas else None,
)  # fmt: skip
WRITTEN_LOGS = Metric(
    "logs", BYTES,
    "Bytes written to the main area by log: the type of the segment that a block lay in when it was written. What two "
    "images can't tell is in `ambiguous`, never guessed.",
    _attributed(lambda found: found.logs), LOGS,
    {"main by log": "", "Block address over time, writes by log": ""}, number,
)  # fmt: skip
AMBIGUOUS = Metric(
    "ambiguous", BYTES, "Bytes written to the main area whose log two images and the trace can't tell.",
    _attributed(lambda found: found.ambiguous), rendering=number,
)  # fmt: skip
AMBIGUOUS_SHARE = Metric(
    "ambiguous_share", SHARE, "`ambiguous` divided by all bytes written to the main area.",
    _attributed(lambda found: share(found.ambiguous, found.total), ABSENT), labels={"by log": ""},
)  # fmt: skip
FILES = Metric(
    "files", BYTES, "Bytes written by inode and path, data and nodes; what can't be told is in `files_ambiguous`.",
    _files,
    {
        "ino": Word("The number of the inode.", COUNT),
        "path": Word("A path of the inode, as it was after or else before.", TEXT),
        "data": Word("Bytes of its data blocks."),
        "nodes": Word("Bytes of its node blocks."),
        OTHER: Word("The number of an inode."),
    },
    {"inode": "ino"},
)  # fmt: skip
FILES_AMBIGUOUS = Metric(
    "files_ambiguous", BYTES, "Bytes written to the main area whose inode two images and the trace can't tell.",
    _attributed(lambda found: found.files_ambiguous, ABSENT), rendering=number,
)  # fmt: skip
FILES_AMBIGUOUS_SHARE = Metric(
    "files_ambiguous_share", SHARE, "`files_ambiguous` divided by all bytes written to the main area.",
    _attributed(lambda found: share(found.files_ambiguous, found.total), ABSENT), labels={"by file": ""},
)  # fmt: skip
FILES_COUNTED = Metric(
    "files_counted", COUNT, "How many inodes were written to; `files` has the first of them.",
    _attributed(lambda found: len(found.files), ABSENT),
)  # fmt: skip
SEQUENTIALISED = Metric(
    "sequentialised", TREE,
    "Bytes of application data (main area, data logs) in requests of 512 KiB or more that begin at the tail of their "
    "own log, divided by all application data bytes. Needs images; without them `null`.",
    _sequentialised, labels={"application data in sequential 512 KiB writes": "byte_share"},
)  # fmt: skip
THREADED_SHARE = Metric(
    "threaded_share", TREE,
    "Main-area blocks written into a segment that held valid blocks when it was opened / all main-area blocks written. "
    "`at_least` is sure; images can't tell a block that was written in place from one that was given out anew, so "
    "`at_most` has all that was written again; `byte_share` is by how a log goes upwards from free block to free "
    "block. Needs the image from before, and to be more than `at_least` the one from after.",
    _threaded,
    {
        "at_least": Word("What is sure.", SHARE, number),
        "at_most": Word("All that was written again.", SHARE, number),
    },
)  # fmt: skip
VALID_BLOCKS = Metric(
    "valid_block_histogram", COUNT,
    "Dirty segments of an image by their number of valid blocks: each by itself, and in eighths of a segment.",
    _valid_blocks,
    {
        "before": Word("In the image from before."),
        "after": Word("In the image from after."),
        "dirty": Word("Segments with valid blocks that are not full of them."),
        "free": Word("Segments without a valid block."),
        "full": Word("Segments all of whose blocks are valid."),
        "by_eighth": Word("Dirty segments by how many eighths of them are valid."),
        "by_blocks": Word("Dirty segments by how many of their blocks are valid."),
        OTHER: Word("So many valid blocks."),
    },
)  # fmt: skip
TRACEPOINTS = Metric(
    "tracepoints", COUNT,
    "What f2fs_submit_page_write said, where it was recorded: exact, by the kernel's own word. In blocks.",
    _tracepoints,
    {
        "blocks": Word("Blocks that F2FS submitted."),
        "logs": Word("By the temperature and type of the block, `meta` being metadata."),
        "inodes": Word("By inode."),
        **{name: Word(f"{name.replace('_', ' ').capitalize()} blocks.") for name in SUBMITTED},
        OTHER: Word("The number of an inode."),
    },
)  # fmt: skip
