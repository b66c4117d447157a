"""The facts of a volume as plain values, for people and for JSON."""

from __future__ import annotations

from typing import Any

from f2tools.copyout.tree_show import time_of
from f2tools.dffs.layout import BY_ID, COLLISION, POINTER_BITS, POINTER_MASK
from f2tools.dffs.nodes import Directory, File, Link, Malformed, Virtual, parse_node
from f2tools.dffs.pages import parse_tag
from f2tools.dffs.state import checkpoint_blocks
from f2tools.dffs.volume import Volume
from f2tools.errors import Corrupt, F2fsError, Usage, Where
from f2tools.options import human_size


def info(volume: Volume) -> dict[str, Any]:
    """The volume at a glance."""
    shape, head, rolled = volume.shape, volume.state.head, volume.rolled
    bad = [block for block in range(shape.blocks) if volume.pages.is_bad(block)]
    return {
        "uuid": str(volume.uuid),
        "made_ns": volume.sb.made,
        "clean": volume.clean,
        "spare": volume.pages.has_spare,
        "page_size": shape.page_size,
        "spare_size": shape.spare_size,
        "pages_per_block": shape.pages_per_block,
        "blocks": shape.blocks,
        "bad_blocks": bad,
        "checkpoint_blocks": checkpoint_blocks(volume.sb),
        "checkpoint": int(head.number),
        "checkpoint_page": volume.state.place,
        "checkpoint_ns": head.time,
        "log_block": head.log_block,
        "log_page": head.log_page,
        "chain": volume.state.chain,
        "pages_used": head.live,
        "pages_since_checkpoint": rolled.pages,
        "pages_committed": rolled.committed,
        "ids": shape.ids,
        "ids_used": head.ids,
        "buckets": shape.buckets,
        "max_size": shape.max_size,
        "inline_bytes": shape.body,
    }


def lines_of_info(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    block = found["page_size"] * found["pages_per_block"]
    state = "closed" if found["clean"] else "not closed: the next opening for writing puts it in order"
    lines = [
        f"uuid:        {found['uuid']}",
        f"made:        {time_of(found['made_ns'])}",
        f"state:       {state}",
        f"flash:       {found['blocks']} erase blocks of {human_size(block)}, pages of {found['page_size']}"
        f"+{found['spare_size']} bytes" + ("" if found["spare"] else "; a dump without spare areas"),
        f"bad blocks:  {', '.join(map(str, found['bad_blocks'])) or 'none'}",
        f"used:        {human_size(found['pages_used'] * found['page_size'])} of "
        f"{human_size(found['blocks'] * block)}, all copies of tables included",
        f"ids:         {found['ids_used']} of {found['ids'] - 1} logical ids (directories, collisions, hard links)",
        f"directories: {found['buckets']} buckets in a page; files up to {found['inline_bytes']} bytes lie in their "
        "inode's",
        f"checkpoint:  {found['checkpoint']}, page {found['checkpoint_page']}, of {time_of(found['checkpoint_ns'])}",
        f"log:         block {found['log_block']}, page {found['log_page']} of it, then {len(found['chain'])} blocks",
    ]
    if found["pages_since_checkpoint"]:
        lines.append(
            f"since:       {found['pages_since_checkpoint']} pages, of which {found['pages_committed']} were committed "
            "and count here"
        )
    return lines


def page_facts(volume: Volume, page: int) -> dict[str, Any]:
    """One page: its tag, and every field of what is in it."""
    if not 0 <= page < volume.shape.pages:
        raise Usage(f"there is no page {page}; the flash has {volume.shape.pages}")
    per = volume.shape.pages_per_block
    found: dict[str, Any] = {"page": page, "block": page // per, "place": page % per}
    chip = volume.pages.chip
    if chip is not None:
        found["bad_block"] = chip.is_bad(page // per)
        data, spare = chip.read(page)
        found["erased"] = not (data + spare).strip(b"\xff")
        tag = parse_tag(spare)
        found["tag"] = None if tag is None else {**tag._asdict(), "kind": tag.said}
    try:
        data = volume.pages.content(page)
    except F2fsError as error:
        found["error"] = str(error)
        return found
    try:
        found["content"] = _node_facts(parse_node(volume.shape, page, data))
    except Malformed:
        found["content"] = None
    return found


def _node_facts(node: Directory | File | Link | Virtual) -> dict[str, Any]:
    if isinstance(node, Link):
        return {"is": "link", "parent": node.parent, "name": _text(node.name), "target": node.target}
    if isinstance(node, Virtual):
        return {
            "is": "virtual", "id": node.id, "dir": node.dir, "prev": node.prev, "next": node.next,
            "slots": [
                {"slot": slot + 1, "pointer": pointer_text(pointer), "hash": node.hashes[slot],
                 "next": node.nexts[slot]}
                for slot, pointer in enumerate(node.pointers) if pointer
            ],
        }  # fmt: skip
    found = {
        "is": node.kind, "ino": node.ino, "id": node.id, "parent": node.parent, "name": _text(node.name),
        "mode": node.mode, "links": node.links, "uid": node.uid, "gid": node.gid, "size": node.size,
        "rdev": node.rdev, "atime": node.atime, "mtime": node.mtime, "ctime": node.ctime, "crtime": node.crtime,
        "generation": node.generation, "pages": node.pages,
        "xattrs": {name: value.hex() for name, value in node.xattrs.items()},
    }  # fmt: skip
    if isinstance(node, Directory):
        found |= {
            "first_virtual": node.first,
            "buckets": [
                {"bucket": number, "pointer": pointer_text(pointer), "chain": node.secondary[number]}
                for number, pointer in enumerate(node.primary) if pointer
            ],
        }  # fmt: skip
    else:
        found["inline"] = node.inline is not None
        found["addresses"] = [] if node.inline is not None else list(node.slots)
    return found


def pointer_text(pointer: int) -> str:
    """What a bucket holds, in words."""
    kind, number = pointer >> POINTER_BITS, pointer & POINTER_MASK
    return f"{'id' if kind == BY_ID else 'virtual' if kind == COLLISION else 'page'} {number}"


def map_of(volume: Volume, inode: Directory | File) -> dict[str, Any]:
    """Where an inode and its content lie."""
    found: dict[str, Any] = {"ino": inode.ino, "page": inode.page, "id": inode.id or None}
    if isinstance(inode, Directory):
        found["virtual"] = []
        number = inode.first
        while number and len(found["virtual"]) < volume.shape.ids:
            virtual = volume.virtual(number)
            if virtual.dir != inode.id:
                raise Corrupt(Where(ino=inode.ino), f"virtual inode {number} is another directory's")
            found["virtual"].append(
                {"id": number, "page": virtual.page, "children": len(virtual.pointers) - virtual.free}
            )
            number = virtual.next
        return found
    found["inline"] = inode.inline is not None
    runs: list[dict[str, int]] = []
    size = volume.shape.page_size
    for number, page in volume.mapped_pages(inode):
        last = runs[-1] if runs else None
        if last and last["page"] + last["count"] == page and last["offset"] + last["count"] * size == number * size:
            last["count"] += 1
        else:
            runs.append({"offset": number * size, "page": page, "count": 1})
    found["extents"] = runs
    return found


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
