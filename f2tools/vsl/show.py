"""The facts of a layer, and its space as a raw image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from f2tools.device.media.new_image import new_image
from f2tools.flash.format import BLOCK
from f2tools.flash.log import BAD, USED
from f2tools.flash.vsl import Vsl
from f2tools.options import human_size

PIECE = 4 << 20


def facts(layer: Vsl) -> dict[str, Any]:
    """The layout of an image, how full it is, how it was opened."""
    table, medium = layer.table, layer.medium
    good = table.state != BAD
    return {
        "uuid": str(layer.uuid),
        "space_blocks": layer.space_blocks,
        "capacity_blocks": layer.capacity_blocks,
        "mapped_blocks": layer.mapped_blocks,
        "extents": layer.map.extents,
        "page_size": medium.page_size,
        "spare_size": medium.spare_size,
        "pages_per_block": medium.pages_per_block,
        "erase_blocks": medium.blocks,
        "used_blocks": int((table.state == USED).sum()),
        "free_blocks": table.free(),
        "bad_blocks": int((~good).sum()),
        "log_seq": int(table.seq.max()),
        "erases": {
            "least": int(table.erases[good].min()), "most": int(table.erases[good].max()),
            "mean": round(float(table.erases[good].mean()), 2),
        },
        "clean": layer.opened.clean,
        "from_checkpoint": layer.opened.from_checkpoint,
        "blocks_read": layer.opened.blocks_read,
        "damaged_pages": len(layer.opened.damaged),
        "lost_blocks": len(layer.opened.lost),
    }  # fmt: skip


def lines_of(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    space = "2^64 blocks" if found["space_blocks"] == 1 << 64 else human_size(found["space_blocks"] * BLOCK)
    erase_block = found["pages_per_block"] * found["page_size"]
    opened = "its checkpoint" if found["from_checkpoint"] else "all of its log"
    state = (
        "closed"
        if found["clean"]
        else "not closed: what was appended since the last checkpoint is read when it is opened"
    )
    blocks_read = "1 block" if found["blocks_read"] == 1 else f"{found['blocks_read']} blocks"
    lines = [
        f"uuid:          {found['uuid']}",
        f"space:         {space}, in blocks of {BLOCK} bytes",
        f"mapped:        {human_size(found['mapped_blocks'] * BLOCK)} of "
        f"{human_size(found['capacity_blocks'] * BLOCK)}, in {found['extents']} extents",
        f"erase blocks:  {found['erase_blocks']} of {human_size(erase_block)} (pages of {found['page_size']}+"
        f"{found['spare_size']}): {found['used_blocks']} used, {found['free_blocks']} free, {found['bad_blocks']} bad",
        f"erased:        {found['erases']['least']} to {found['erases']['most']} times, "
        f"{found['erases']['mean']} on the average",
        f"state:         {state}",
        f"opened from:   {opened}; {blocks_read} of the log read",
    ]
    if found["damaged_pages"]:
        lines.append(f"damaged pages: {found['damaged_pages']}; `f2tools vsl check` names them")
    if found["lost_blocks"]:
        lines.append(f"lost blocks:   {found['lost_blocks']} of the log; `f2tools vsl check` names them")
    return lines


def export(layer: Vsl, output: str, start: int, length: int, advance: Callable[[int], None] = lambda _: None) -> int:
    """Write a part of the space to a new file, holes as holes; how many bytes were mapped."""
    copied = 0
    with new_image(output, length) as image:
        for offset, size in layer.data_ranges(start, length):
            for at in range(offset, offset + size, PIECE):
                piece = min(PIECE, offset + size - at)
                image.pwrite(at - start, layer.pread(at, piece))
                advance(piece)
            copied += size
        image.close()
    return copied
