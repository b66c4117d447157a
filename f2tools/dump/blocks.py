"""Any block of a volume: which area and structure it belongs to, whether it is live, who owns it, what it holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from f2tools.dump.directory import slots
from f2tools.dump.nodes import node_block
from f2tools.dump.owners import Owner, owner_of
from f2tools.dump.structures import pack_contents, superblock_fields
from f2tools.errors import DeviceError, F2fsError, Usage
from f2tools.f2fs.layout.checkpoint import Checkpoint, OrphanBlock
from f2tools.f2fs.layout.constants import CURSEG_NAMES, F2FS_FEATURE_RO, SUM_TYPE_NODE
from f2tools.f2fs.layout.footers import footer_of
from f2tools.f2fs.layout.nat import NatBlock
from f2tools.f2fs.layout.node import NodeFooter
from f2tools.f2fs.layout.sit import SIT_VBLOCKS_MASK, SIT_VBLOCKS_SHIFT, SitBlock
from f2tools.f2fs.layout.summary import SummaryBlock
from f2tools.f2fs.volume import nat as nat_table
from f2tools.f2fs.volume import sit as sit_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from f2tools.f2fs.volume.volume import Volume

AREA_NAMES = {
    "sb": "superblocks",
    "cp": "checkpoint area",
    "sit": "segment information table (SIT)",
    "nat": "node address table (NAT)",
    "ssa": "segment summary area (SSA)",
    "main": "main area",
}


def block(vol: Volume, blkaddr: int) -> dict[str, Any]:
    """Everything that is known about a block; `data` has its bytes.  Usage for an address outside the device."""
    size = vol.geo.block_size
    if blkaddr < 0 or (blkaddr + 1) * size > max(vol.device.size_bytes, vol.geo.end_blkaddr * size):
        last = max(vol.device.size_bytes // size, vol.geo.end_blkaddr) - 1
        raise Usage(f"there is no block {blkaddr:#x}; the last one is {last:#x}")
    area = vol.geo.area_of(blkaddr)
    try:
        raw = vol.device.read_range(blkaddr, 1, size)[0]
    except DeviceError as error:
        return {
            "blkaddr": blkaddr,
            "offset": blkaddr * size,
            "area": area,
            "area_name": AREA_NAMES[area] if area else _outside(vol, blkaddr),
            "problems": [str(error)],
            "data": b"",
        }
    shown: dict[str, Any] = {
        "blkaddr": blkaddr,
        "offset": blkaddr * size,
        "area": area,
        "area_name": AREA_NAMES[area] if area else _outside(vol, blkaddr),
        "zero": not raw.any(),
        "problems": [],
    }
    describe = {"sb": _sb, "cp": _cp, "sit": _sit, "nat": _nat, "ssa": _ssa, "main": _main}
    if area:
        shown |= describe[area](vol, blkaddr, raw)
    return shown | {"data": raw.tobytes()}


def _outside(vol: Volume, blkaddr: int) -> str:
    if blkaddr < vol.geo.cp_blkaddr:
        return "gap before the checkpoint area, unused"
    return "past the end of the main area, unused"


def _sb(vol: Volume, blkaddr: int, raw: NDArray[np.uint8]) -> dict[str, Any]:
    copy = vol.super_copies[blkaddr]
    return {
        "what": f"superblock copy {blkaddr}, from byte 1024 of the block",
        "live": vol.sb is copy.sb,
        "valid": copy.valid,
        "fields": None if copy.sb is None else superblock_fields(copy.sb),
    }


def _cp(vol: Volume, blkaddr: int, raw: NDArray[np.uint8]) -> dict[str, Any]:
    index = (blkaddr - vol.geo.cp_blkaddr) // vol.geo.blocks_per_seg
    if index > 1:
        return {"what": "after the two checkpoint packs, unused", "live": False}
    pack = vol.packs[index]
    shown = {"pack": index + 1, "live": False, "what": f"pack {index + 1}, past its end"}
    if not pack.valid:
        return shown | {"what": f"pack {index + 1}, which is not usable: {', '.join(pack.problems)}"}
    for part in pack_contents(vol.geo, pack):
        if part["blkaddr"] <= blkaddr < part["blkaddr"] + part["count"]:
            shown |= {"what": f"pack {index + 1}: {part['what']}", "live": index == vol.pack.index}
            return shown | _cp_content(vol, part["what"], raw)
    return shown


def _cp_content(vol: Volume, what: str, raw: NDArray[np.uint8]) -> dict[str, Any]:
    if what in ("head", "tail"):
        cp = Checkpoint.parse(raw)
        return {"fields": cp.as_dict() | {"alloc_type": list(cp.alloc_type)}}
    if what == "orphan inodes":
        orphans = OrphanBlock.at(vol.geo.block_size).parse(raw)
        return {"orphans": orphans.ino[: orphans.entry_count].tolist()}
    if what.startswith("summary of"):
        row = SummaryBlock.at(vol.geo.sum_block_size).table(raw[: vol.geo.sum_block_size])[0]
        return {"entries": _summary_entries(row["entries"])}
    return {}


def _summary_entries(rows: Any) -> list[dict[str, int]]:
    """The entries of a summary that name an owner."""
    return [
        {"blkoff": i, "nid": nid, "version": version, "ofs_in_node": ofs}
        for i, (nid, version, ofs) in enumerate(rows.tolist())
        if nid
    ]


def _sit(vol: Volume, blkaddr: int, raw: NDArray[np.uint8]) -> dict[str, Any]:
    geo = vol.geo
    half = geo.segment_count_sit // 2 * geo.blocks_per_seg
    copy, number = divmod(blkaddr - geo.sit_blkaddr, half)
    first = number * geo.sit_entries_per_block
    if number >= geo.sit_blocks:
        return {"what": f"SIT copy {copy + 1}, block {number}: beyond the last segment, unused", "live": False}
    last = min(first + geo.sit_entries_per_block, geo.segment_count_main) - 1
    live = int(sit_table.live_blkaddrs(geo, vol.pack.sit_bitmap)[number]) == blkaddr
    journal = vol.summaries.journals.sit["segno"]
    return {
        "what": f"SIT copy {copy + 1}, block {number}: segments {first} to {last}",
        "live": live,
        "segnos": [first, last],
        "overridden_by_journal": journal[(journal >= first) & (journal <= last)].tolist(),
        "entries": [
            {
                "segno": first + i,
                "type": word >> SIT_VBLOCKS_SHIFT,
                "vblocks": word & SIT_VBLOCKS_MASK,
                "mtime": int(row["mtime"]),
            }
            for i, row in enumerate(SitBlock.at(geo.block_size).table(raw)[0]["entries"][: last - first + 1])
            if (word := int(row["vblocks"]))
        ],
    }


def _nat(vol: Volume, blkaddr: int, raw: NDArray[np.uint8]) -> dict[str, Any]:
    geo = vol.geo
    pair, rest = divmod(blkaddr - geo.nat_blkaddr, 2 * geo.blocks_per_seg)
    copy, offset = divmod(rest, geo.blocks_per_seg)
    number = pair * geo.blocks_per_seg + offset
    if number >= geo.nat_blocks:
        return {"what": "after the NAT, unused", "live": False}
    first = number * geo.nat_entries_per_block
    last = first + geo.nat_entries_per_block - 1
    live = int(nat_table.live_blkaddrs(geo, vol.pack.nat_bitmap)[number]) == blkaddr
    journal = vol.summaries.journals.nat["nid"]
    return {
        "what": f"NAT copy {copy + 1}, block {number}: nids {first} to {last}",
        "live": live,
        "nids": [first, last],
        "overridden_by_journal": journal[(journal >= first) & (journal <= last)].tolist(),
        "entries": [
            {"nid": first + i, "version": version, "ino": ino, "block_addr": block_addr}
            for i, (version, ino, block_addr) in enumerate(
                NatBlock.at(geo.block_size).table(raw)[0]["entries"].tolist()
            )
            if block_addr or ino
        ],
    }


def _ssa(vol: Volume, blkaddr: int, raw: NDArray[np.uint8]) -> dict[str, Any]:
    geo = vol.geo
    if geo.feature & F2FS_FEATURE_RO:
        return {"what": "a read-only volume has no summaries", "live": False}
    each = geo.block_size // geo.sum_block_size
    first = (blkaddr - geo.ssa_blkaddr) * each
    segnos = [segno for segno in range(first, first + each) if segno < geo.segment_count_main]
    if not segnos:
        return {"what": "beyond the last segment, unused", "live": False}
    rows = vol.summaries.ssa(_array(segnos))
    kinds = ["node" if kind == SUM_TYPE_NODE else "data" for kind in rows["footer"]["entry_type"].tolist()]
    open_logs = {c.segno: c.name for c in vol.summaries.cursegs}
    return {
        "what": "summary of "
        + ", ".join(f"segment {segno} ({kind} blocks)" for segno, kind in zip(segnos, kinds, strict=True)),
        "live": not all(segno in open_logs for segno in segnos),
        "segnos": segnos,
        "superseded_by_checkpoint": [segno for segno in segnos if segno in open_logs],
        "entries": [
            {"segno": segno} | entry
            for segno, row in zip(segnos, rows, strict=True)
            for entry in _summary_entries(row["entries"])
        ],
    }


def _main(vol: Volume, blkaddr: int, raw: NDArray[np.uint8]) -> dict[str, Any]:
    geo = vol.geo
    segno = int(geo.segno(blkaddr))
    blkoff = (blkaddr - geo.main_blkaddr) % geo.blocks_per_seg
    kind = int(vol.sit.types[segno])
    valid = bool(vol.sit.valid(_array([blkaddr]))[0])
    log = next((c for c in vol.summaries.cursegs if c.segno == segno), None)
    shown: dict[str, Any] = {
        "segno": segno,
        "secno": int(geo.secno(segno)),
        "zoneno": int(geo.zoneno(segno)),
        "blkoff": int(blkoff),
        "segment_type": CURSEG_NAMES[kind] if kind < len(CURSEG_NAMES) else f"unknown_{kind}",
        "segment_valid_blocks": int(vol.sit.vblocks[segno]),
        "valid": valid,
        "open_log": log.name if log else None,
    }
    problems: list[str] = []
    owner = None
    try:
        owner = owner_of(vol, blkaddr)
    except F2fsError as error:
        problems.append(str(error))
    shown["owner"] = None if owner is None else asdict(owner)
    shown["live"] = owner.live if owner else valid
    if owner and owner.live != valid:
        problems.append(
            "the SIT marks it as not valid, but its owner points to it"
            if owner.live
            else "the SIT marks it as valid, but its owner does not point to it"
        )
    shown["content"], decoded = _content(vol, blkaddr, raw, owner)
    shown["what"] = ("live " if shown["live"] else "stale ") + shown["content"]
    return shown | decoded | {"problems": problems}


def _content(vol: Volume, blkaddr: int, raw: NDArray[np.uint8], owner: Owner | None) -> tuple[str, dict[str, Any]]:
    """(what a block of the main area holds, the decoded form)."""
    if not raw.any():
        return "block of zeros", {}
    is_node = owner.kind == "node" if owner else None
    footer = footer_of(raw)
    if is_node or (is_node is None and _looks_like_node(vol, footer)):
        try:
            found = node_block(vol, raw, blkaddr)
        except F2fsError as error:
            return "node that can't be decoded", {"problem": str(error)}
        return f"node ({found['kind']})", {"node": found}
    if owner and owner.live and owner.ino:
        try:
            inode = vol.nodes.inode(owner.ino)
        except F2fsError:
            return "data block", {}
        if inode.is_dir:
            return "directory block", {"dentries": slots(raw, owner.fofs or 0, blkaddr, encrypted=inode.encrypted)}
        return f"data block of a {inode.kind}", {}
    return "data block", {}


def _looks_like_node(vol: Volume, footer: NodeFooter) -> bool:
    return 0 < footer.nid < vol.geo.max_nid and 0 < footer.ino < vol.geo.max_nid


def _array(values: list[int]) -> Any:
    return np.array(values, np.int64)
