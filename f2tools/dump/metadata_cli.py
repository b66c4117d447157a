"""`f2tools dump metadata`: a copy of a volume without its content, to go with a report of a bug."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import click

from f2tools.dump.structures_cli import end, say
from f2tools.options import (
    FileName,
    device_option,
    force_option,
    human_size,
    image_argument,
    json_option,
    layout_option,
    must_be_free,
    print_json,
    require,
)
from f2tools.text import printable

if TYPE_CHECKING:
    from f2tools.dump.metadata import MetadataCopy
    from f2tools.f2fs.volume.layouts import Layout


@click.command()
@image_argument
@click.argument("output", metavar="OUT", type=FileName())
@click.option("--scramble", is_flag=True, help="Give names, symbolic links and attribute values letters at random.")
@force_option
@device_option
@layout_option
@json_option
def metadata(
    image: str,
    output: str,
    scramble: bool,
    force: bool,
    devices: tuple[str, ...],
    layout: Layout | None,
    as_json: bool,
) -> None:
    """A copy without the content of files, for a report of a bug; sparse, and of a damaged volume, too.

    Everything that a check looks at is at its place: superblocks, checkpoints, tables, nodes, directories, quota files,
    what was fsync'ed before a crash.  The blocks of files are left out, and so is content that lies in an inode.

    What stays in it: sizes, times, owners, permissions, the names of attributes, the label, UUID and paths of devices
    in the superblock.  With --scramble a name keeps its length only; `lost+found`, encrypted names, ACLs, labels of
    SELinux, capabilities and the root hash of a file that verity seals stay what they are.  Where a damage has put
    content in the place of a structure, it may be in the copy.

    \b
    Example:
      f2tools dump metadata card.img card.meta --scramble
      tar -cSf - card.meta | zstd > card.meta.tar.zst
    """
    from f2tools.dump.metadata import copy_metadata
    from f2tools.dump.scramble import Scrambler
    from f2tools.forensics.without_start import open_to_examine

    must_be_free(output, force)
    require(not os.path.lexists(output) or os.path.isfile(output), f"{output}: is no regular file")
    with open_to_examine(image, devices, layout=layout) as volume:
        require(output not in volume.device.files(), f"{output}: is the image itself")
        say(volume.warnings)
        made = copy_metadata(volume, output, Scrambler(secrets.token_bytes(16)) if scramble else None)
    if as_json:
        print_json(made.as_dict())
    else:
        for line in _lines(made):
            click.echo(line)
    end(f"not copied: {text}" for text in made.lost)


def _lines(made: MetadataCopy) -> list[str]:
    names = ", ".join(map(printable, made.targets))
    lines = [
        f"{names}: the metadata of {human_size(made.size_bytes)} in {human_size(made.stored_bytes)}",
        f"copied: {made.tables} blocks of tables, {made.nodes} of nodes, {made.directory_blocks} of directories,"
        f" {made.other_blocks} of quota files and symbolic links",
        f"left out: the content of files; of {made.inline_cleared} that lie in their inodes, too",
    ]
    if made.names_scrambled is None:
        lines.append("names, symbolic links and attributes are in it as they are; --scramble makes them letters")
    else:
        lines.append(
            f"{made.names_scrambled} names were scrambled, and targets of symbolic links and values of attributes"
        )
        if made.names_kept:
            lines.append(f"{made.names_kept} short names are as they were, as nothing else has their length and hash")
        lines.append("still in it: sizes, times, owners, the names of attributes, label, UUID, paths of devices")
    lines.append("send it packed, as it is mostly holes: tar -cSf - FILE | zstd > FILE.tar.zst")
    return lines
