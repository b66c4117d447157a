"""One node or inode as plain data: every field decoded, addresses as runs, and what in it contradicts itself.

A node that is not what it should be is shown all the same; `problems` says what is wrong.
"""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from f2tools.dump.owners import first_file_block, paths_of
from f2tools.errors import Corrupt, F2fsError, Where
from f2tools.f2fs.layout.constants import (
    ADVISE_FLAGS,
    COMPRESS_ADDR,
    COMPRESS_ALGORITHMS,
    F2FS_FEATURE_INODE_CHKSUM,
    INLINE_FLAGS,
    INODE_FLAGS,
    NEW_ADDR,
    OFFSET_BIT_SHIFT,
    XATTR_NODE_OFFSET,
    flag_names,
)
from f2tools.f2fs.layout.dentry import dentries_in
from f2tools.f2fs.layout.footers import body_of, footer_of
from f2tools.f2fs.layout.hashes import inode_checksum
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.layout.node_tree import kind_of_node
from f2tools.f2fs.layout.xattr import F2FS_XATTR_MAGIC
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.xattr import xattrs_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from f2tools.f2fs.volume.inode import Inode
    from f2tools.f2fs.volume.volume import Volume

FOOTER_FLAGS = {"cold": 1, "fsync": 2, "dent": 4}
NID_NAMES = ("direct", "direct", "indirect", "indirect", "double_indirect")
VALUE_SHOWN = 64  # bytes of an xattr value in text; JSON has all


def node(vol: Volume, nid: int) -> dict[str, Any]:
    """The node with this number: NAT entry, footer, and by its kind the inode, addresses, nids or xattrs.

    Corrupt where the NAT has no block for it.
    """
    if not 0 < nid < vol.geo.max_nid:
        raise Corrupt(Where(nid=nid), f"no such node number; they go from 1 to {vol.geo.max_nid - 1}")
    version, ino, blkaddr = vol.nat.get(nid)
    entry = {"version": version, "ino": ino, "block_addr": blkaddr}
    blkaddr = vol.nodes.address(nid)
    shown: dict[str, Any] = {"nid": nid, "blkaddr": blkaddr, "nat": entry}
    shown |= node_block(vol, vol.device.read_range(blkaddr, 1, vol.geo.block_size)[0], blkaddr)
    footer = shown["footer"]
    if footer["nid"] != nid:
        shown["problems"].append(f"the footer names nid {footer['nid']}, the NAT has {nid} here")
    if footer["ino"] != ino:
        shown["problems"].append(f"the footer names inode {footer['ino']}, the NAT inode {ino}")
    return shown


def node_block(vol: Volume, block: NDArray[np.uint8], blkaddr: int) -> dict[str, Any]:
    """What a node block says, whether or not anything points to it."""
    raw = footer_of(block)
    ofs = raw.flag >> OFFSET_BIT_SHIFT
    kind = "inode" if raw.nid == raw.ino else kind_of_node(ofs, vol.geo.addrs_per_block)
    shown: dict[str, Any] = {
        "kind": kind,
        "footer": raw.as_dict()
        | {"flags": flag_names(raw.flag & 7, FOOTER_FLAGS), "ofs": None if ofs == XATTR_NODE_OFFSET else ofs},
        "problems": [],
    }
    body = block[: 4 * vol.geo.addrs_per_block].view("<u4")
    if kind == "inode":
        found = inode_fields(vol, Inode(vol.geo, block, raw.nid, blkaddr))
        shown["problems"] += found.pop("problems")
        shown["inode"] = found
    elif kind == "xattr":
        head = int(body[0])
        shown["xattr_magic"] = head == F2FS_XATTR_MAGIC
        shown["used_bytes"] = len(body_of(block).tobytes().rstrip(b"\0"))
    elif kind == "direct":
        shown |= _direct(vol, raw.ino, ofs, body)
    else:
        shown["nids"] = runs(body)
        shown["children"] = int((body != 0).sum())
    return shown


def _direct(vol: Volume, ino: int, ofs: int, body: NDArray[Any]) -> dict[str, Any]:
    first = None
    try:
        owner = vol.nodes.inode(ino)
        first = first_file_block(ofs, owner)
        body = body[: owner.addrs_per_block]
    except F2fsError:
        pass
    return {"fofs": first, "addrs": runs(body), "mapped": int((body != 0).sum())}


def inode(vol: Volume, which: str | bytes | int, *, all_paths: bool = False) -> dict[str, Any]:
    """An inode by number or path, with footer, extra attributes, checksum, addresses, nids, xattrs and paths."""
    found = resolve(vol, which)
    paths, confirmed = paths_of(vol, found.ino, everywhere=all_paths)
    shown = {"ino": found.ino, "blkaddr": found.blkaddr, "paths": paths, "paths_confirmed": confirmed}
    if found.encrypted_name:
        shown["name_encrypted"] = True
    return shown | inode_fields(vol, found)


def resolve(vol: Volume, which: str | bytes | int) -> Inode:
    """The inode meant by a number, by digits, by `ino:N`, or by a path (a last symbolic link is not followed)."""
    if isinstance(which, int):
        return vol.nodes.inode(which)
    text = os.fsencode(which)
    digits = text.removeprefix(b"ino:")
    if digits.isdigit():
        return vol.nodes.inode(int(digits))
    return vol.path(text, follow=False).inode


def inode_fields(vol: Volume, found: Inode) -> dict[str, Any]:
    """All that an inode block says of itself."""
    problems: list[str] = []
    fields = {
        f.name: getattr(found, f.name) for f in InodeLayout.fields if isinstance(getattr(found, f.name, None), int)
    }
    shown: dict[str, Any] = {
        "kind": found.kind,
        "name": os.fsdecode(found.name),
        "fields": fields | {"i_name": found.i_name.rstrip(b"\0").hex(), "i_mode_octal": f"{found.i_mode:06o}"},
        "times": {
            "atime": shown_time(found.atime_ns),
            "ctime": shown_time(found.ctime_ns),
            "mtime": shown_time(found.mtime_ns),
            "crtime": None if found.crtime_ns is None else shown_time(found.crtime_ns),
        },
        "inline_flags": flag_names(found.i_inline, INLINE_FLAGS),
        "advise_flags": flag_names(found.i_advise, ADVISE_FLAGS),
        "flags": flag_names(found.i_flags, INODE_FLAGS),
        "i_ext": dict(zip(("fofs", "blk_addr", "len"), found.cached_extent, strict=True)),
        "extra": found.extra,
        "checksum": checksum(vol, found),
        "i_nid": {f"{name}[{i}]": int(nid) for i, (name, nid) in enumerate(zip(NID_NAMES, found.nids, strict=True))},
        "footer": found.footer,
    }
    if shown["checksum"] and not shown["checksum"]["ok"]:
        problems.append("the checksum is wrong")
    for part, make in (("compression", _compression), ("inline", _inline), ("i_addr", _addresses)):
        try:
            shown[part] = make(found)
        except F2fsError as error:
            shown[part] = None
            problems.append(str(error))
    try:
        shown["xattrs"] = xattrs(vol, found)
    except F2fsError as error:
        shown["xattrs"] = []
        problems.append(str(error))
    return shown | {"problems": problems}


def checksum(vol: Volume, found: Inode) -> dict[str, Any] | None:
    """The inode checksum as stored and as it must be; None where the volume has none."""
    if not vol.geo.feature & F2FS_FEATURE_INODE_CHKSUM or "i_inode_checksum" not in found.extra:
        return None
    stored, right = found.extra["i_inode_checksum"], inode_checksum(vol.sb.uuid, found.block.tobytes())
    return {"stored": stored, "computed": right, "ok": stored == right}


def xattrs(vol: Volume, found: Inode) -> list[dict[str, Any]]:
    """Every attribute as it lies on the disk, the kernel's own included; values in hex."""
    return [
        {
            "index": item.index,
            "name": None if item.full_name is None else os.fsdecode(item.full_name),
            "raw_name": item.name.hex(),
            "value": item.value.hex(),
        }
        for item in xattrs_of(vol.nodes, found)
    ]


def _compression(found: Inode) -> dict[str, Any] | None:
    if not found.compressed:
        return None
    algorithm, flag = found.extra["i_compress_algorithm"], found.extra["i_compress_flag"]
    return {
        "algorithm": COMPRESS_ALGORITHMS[algorithm] if algorithm < len(COMPRESS_ALGORITHMS) else f"unknown {algorithm}",
        "cluster_blocks": found.cluster_size,
        "level": flag >> 8,
        "chksum": bool(flag & 1),
        "saved_blocks": found.extra["i_compr_blocks"],
    }


def _inline(found: Inode) -> dict[str, Any]:
    shown: dict[str, Any] = {"xattr_bytes": int(found.inline_xattr_area.size)}
    if found.has_inline_data:
        shown |= {"data_bytes": found.i_size, "data_room": int(found.inline_area.size)}
    if found.has_inline_dentry:
        shown |= {"dentry_bytes": int(found.inline_area.size), "dentry_slots": dentries_in(found.inline_area.size)}
    if found.kind in ("char", "block"):
        shown["rdev"] = list(found.rdev)
    return shown


def _addresses(found: Inode) -> list[dict[str, Any]]:
    if found.has_inline_data or found.has_inline_dentry or found.kind in ("char", "block", "fifo", "socket"):
        return []
    return runs(found.addrs)


def runs(words: NDArray[np.integer]) -> list[dict[str, Any]]:
    """Addresses or nids as runs of consecutive numbers: `index`, `first`, `count`; zeros are left out."""
    wide = words.astype(np.int64)
    if not wide.any():
        return []
    step = np.diff(wide)
    special = (wide == 0) | (wide >= COMPRESS_ADDR)
    joined = np.where(special[1:] | special[:-1], step == 0, step == 1)
    starts = np.concatenate(([0], np.flatnonzero(~joined) + 1))
    ends = np.append(starts[1:], wide.size)
    return [
        {"index": start, "first": first, "count": end - start}
        for start, end, first in zip(starts.tolist(), ends.tolist(), wide[starts].tolist(), strict=True)
        if first
    ]


def shown_address(address: int) -> str:
    """A block address for people, the special ones by name."""
    return {0: "-", NEW_ADDR: "NEW", COMPRESS_ADDR: "COMPRESS"}.get(address, f"{address:#x}")


def shown_time(ns: int) -> str:
    """A time as ISO 8601 in UTC with nanoseconds; years that no calendar has stay seconds."""
    seconds, rest = divmod(ns, 1_000_000_000)
    try:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return f"{seconds}.{rest:09d} s"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z" if moment.year >= 1000 else f"{seconds}.{rest:09d} s"
