"""NAT, SIT and SSA as streams of numpy rows, a bounded piece of the table at a time, and as CSV, JSON or text lines.

A piece is a dictionary of columns of equal length; names are those of the kernel's fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from f2tools.errors import DeviceError, Usage
from f2tools.f2fs.layout.constants import CURSEG_NAMES, SUM_TYPE_NODE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from f2tools.f2fs.volume.volume import Volume

    Columns = dict[str, NDArray[Any]]

PIECE = 1 << 16  # rows of a table held at a time
SSA_PIECE = 64  # summaries read at a time
TYPE_NAMES = np.array([*CURSEG_NAMES, *(f"unknown_{i}" for i in range(len(CURSEG_NAMES), 64))])


def parse_ranges(texts: Sequence[str], count: int, what: str) -> NDArray[np.int64] | None:
    """The numbers below `count` that `5`, `3-9`, `100-` name; None for no text at all; Usage if it names none."""
    if not texts:
        return None
    chosen: list[NDArray[np.int64]] = []
    for text in texts:
        match = re.fullmatch(r"(\d+)(-(\d*))?", text.strip())
        if match is None:
            raise Usage(f"{text!r} is not a {what} or a range of them; write 5, 3-9 or 100-")
        first = int(match[1])
        last = first if match[2] is None else int(match[3]) if match[3] else count - 1
        if first > last or first >= count:
            raise Usage(f"{what} {text} does not exist; they go from 0 to {count - 1}")
        chosen.append(np.arange(first, min(last, count - 1) + 1))
    return np.unique(np.concatenate(chosen))


def nat_rows(vol: Volume, nids: NDArray[np.int64] | None = None, *, everything: bool = False) -> Iterator[Columns]:
    """Columns nid version ino block_addr journal; only entries in use unless `everything`."""
    in_journal = vol.summaries.journals.nat["nid"]
    if nids is None:
        nids = np.arange(len(vol.nat)) if everything else vol.nat.used()
    for start in range(0, nids.size, PIECE):
        some = nids[start : start + PIECE]
        rows = vol.nat.lookup(some)
        if not everything:
            keep = rows["block_addr"] != 0
            some, rows = some[keep], rows[keep]
        if some.size:
            yield (
                {"nid": some}
                | {name: rows[name] for name in ("version", "ino", "block_addr")}
                | {"journal": np.isin(some, in_journal)}
            )


def sit_rows(vol: Volume, segnos: NDArray[np.int64] | None = None, *, everything: bool = False) -> Iterator[Columns]:
    """Columns segno type vblocks mtime journal valid_map (hex); only segments with valid blocks unless `everything`."""
    sit = vol.sit
    in_journal = vol.summaries.journals.sit["segno"]
    if segnos is None:
        segnos = np.arange(len(sit))
    if not everything:
        segnos = segnos[sit.vblocks[segnos] != 0]
    for start in range(0, segnos.size, PIECE):
        some = segnos[start : start + PIECE]
        maps = np.ascontiguousarray(sit.valid_map(some))
        whole = maps.tobytes().hex()
        width = 2 * maps.shape[1]
        yield {
            "segno": some,
            "type": TYPE_NAMES[sit.types[some]],
            "vblocks": sit.vblocks[some],
            "mtime": sit.mtime[some],
            "journal": np.isin(some, in_journal),
            "valid_map": np.array([whole[i : i + width] for i in range(0, len(whole), width)]),
        }


def ssa_rows(
    vol: Volume,
    segnos: NDArray[np.int64] | None = None,
    *,
    everything: bool = False,
    lost: list[str] | None = None,
) -> Iterator[Columns]:
    """Columns segno blkoff blkaddr kind nid version ofs_in_node valid; only valid blocks unless `everything`.

    The summaries of open logs come from the checkpoint, where the live ones are.  Without `segnos`: all segments with
    valid blocks.  Segments whose summary can't be read are added to `lost`, where given.
    """
    geo, sit, summaries = vol.geo, vol.sit, vol.summaries
    if segnos is None:
        segnos = np.flatnonzero(sit.vblocks)
    open_logs = {c.segno for c in summaries.cursegs}
    per_seg = geo.blocks_per_seg
    for start in range(0, segnos.size, SSA_PIECE):
        some, rows = _readable_summaries(vol, segnos[start : start + SSA_PIECE], lost)
        entries = rows["entries"][:, :per_seg].copy()
        kinds = rows["footer"]["entry_type"].copy()
        for i, segno in enumerate(some.tolist()):
            if segno in open_logs:
                kinds[i], entries[i] = summaries.of_segment(segno)
        flat = entries.reshape(-1)
        segno = np.repeat(some, per_seg)
        blkoff = np.tile(np.arange(per_seg), some.size)
        blkaddr = geo.start_block(segno) + blkoff
        valid = sit.valid(blkaddr)
        kind = np.where(np.repeat(kinds, per_seg) == SUM_TYPE_NODE, "node", "data")
        keep = np.ones(valid.size, np.bool_) if everything else valid
        columns = {"segno": segno, "blkoff": blkoff, "blkaddr": blkaddr, "kind": kind}
        columns |= {name: flat[name] for name in ("nid", "version", "ofs_in_node")} | {"valid": valid}
        if keep.any():
            yield {name: column[keep] for name, column in columns.items()}


def _readable_summaries(
    vol: Volume, segnos: NDArray[np.int64], lost: list[str] | None
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """(segments, their summary blocks); without the segments that a cut-off image doesn't have."""
    try:
        return segnos, vol.summaries.ssa(segnos)
    except DeviceError as error:
        if lost is None:
            raise
        end = vol.device.size_bytes // vol.geo.block_size
        there = vol.summaries.ssa_place(segnos)[0] < end
        if there.all():
            raise
        missing = segnos[~there]
        lost.append(f"summaries of segments {missing[0]} to {missing[-1]}: {error}")
        return segnos[there], vol.summaries.ssa(segnos[there])


def nat_summary(vol: Volume) -> dict[str, Any]:
    """What there is to say of the NAT as a whole."""
    used = vol.nat.used()
    return {
        "entries": len(vol.nat),
        "used": int(used.size),
        "journal_entries": int(vol.summaries.journals.nat.size),
        "blocks": vol.geo.nat_blocks,
        "second_copies_live": int(vol.pack.nat_bitmap.sum()),
        "problems": list(vol.nat.problems) + [p for p in vol.summaries.journals.problems if p.startswith("NAT")],
    }


def sit_summary(vol: Volume) -> dict[str, Any]:
    """What there is to say of the SIT as a whole."""
    return {
        "segments": len(vol.sit),
        "used": int((vol.sit.vblocks != 0).sum()),
        "valid_blocks": int(vol.sit.vblocks.sum(dtype=np.int64)),
        "journal_entries": int(vol.summaries.journals.sit.size),
        "blocks": vol.geo.sit_blocks,
        "second_copies_live": int(vol.pack.sit_bitmap.sum()),
        "problems": list(vol.sit.problems) + [p for p in vol.summaries.journals.problems if p.startswith("SIT")],
    }


def csv_lines(pieces: Iterator[Columns], names: Sequence[str]) -> Iterator[str]:
    """CSV with a header, many lines at a time; truth is 0 or 1."""
    yield ",".join(names) + "\n"
    for columns in pieces:
        lists = [_plain(columns[name]) for name in names]
        form = ",".join(["%s"] * len(names)) + "\n"
        yield "".join([form % row for row in zip(*lists, strict=True)])


def json_lines(pieces: Iterator[Columns]) -> Iterator[str]:
    """The rows as JSON objects with commas between them, many at a time, for the inside of a JSON array."""
    first = True
    for columns in pieces:
        form = "{" + ", ".join(f'"{name}": {_json_form(column)}' for name, column in columns.items()) + "}"
        lists = [_json_plain(column) for column in columns.values()]
        text = ",\n".join([form % row for row in zip(*lists, strict=True)])
        yield text if first else ",\n" + text
        first = False


def _plain(column: NDArray[Any]) -> list[Any]:
    return (column.astype(np.uint8) if column.dtype == np.bool_ else column).tolist()


def _json_form(column: NDArray[Any]) -> str:
    return '"%s"' if column.dtype.kind == "U" else "%s"


def _json_plain(column: NDArray[Any]) -> list[Any]:
    return np.where(column, "true", "false").tolist() if column.dtype == np.bool_ else column.tolist()
