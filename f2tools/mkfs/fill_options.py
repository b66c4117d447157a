"""The options about the files that a volume is filled with, which `mkfs --from` and `load` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from f2tools.errors import Usage
from f2tools.mkfs.populate import Fill, parse_compress
from f2tools.options import FileName, human_size

if TYPE_CHECKING:
    from f2tools.f2fs.write.bulk.tree import CompressPolicy

FILL_OPTIONS = (
    "exclude",
    "exclude_from",
    "map_owner",
    "one_file_system",
    "no_xattrs",
    "selinux",
    "fs_config",
    "compress",
)

_OPTIONS = (
    click.option(
        "--map-owner",
        "map_owner",
        multiple=True,
        metavar="[u:|g:]FROM:TO",
        help="Change owners: FROM is an id, a range like 100000-165535, `all`, or `me` for the caller (repeatable).",
    ),
    click.option(
        "--exclude",
        multiple=True,
        metavar="PATTERN",
        help="Leave out what matches: a name like *.o anywhere, a path like /var/cache/*; dir/ for directories alone "
        "(repeatable).",
    ),
    click.option("--exclude-from", multiple=True, type=FileName(), metavar="FILE", help="Patterns, a line each."),
    click.option("--one-file-system", is_flag=True, help="Don't go into other file systems mounted below DIR."),
    click.option("--no-xattrs", is_flag=True, help="Leave out extended attributes and ACLs."),
    click.option(
        "--sort",
        default="name",
        show_default=True,
        type=FileName(),
        metavar="name|size|FILE",
        help="Order in which files are laid out; FILE lists paths, the first to be read first.",
    ),
    click.option(
        "--selinux",
        type=FileName(),
        metavar="FILE_CONTEXTS",
        multiple=True,
        help="Label files by the rules of an SELinux file_contexts (repeatable).",
    ),
    click.option(
        "--selinux-mount",
        "mount_point",
        default="/",
        show_default=True,
        metavar="PATH",
        help="Where the volume will be mounted, as --selinux and --fs-config name it.",
    ),
    click.option(
        "--fs-config",
        type=FileName(),
        metavar="FILE",
        help="Owners, modes and capabilities of an Android build: path, uid, gid, octal mode, a line each.",
    ),
    click.option(
        "--compress",
        metavar="ALGORITHM[:LEVEL]",
        help="Compress files: lz4, zstd, lzo or lzo-rle; turns on the features that it needs.",
    ),
    click.option(
        "--compress-ext",
        multiple=True,
        metavar="EXT,...",
        help="Compress only files with these extensions (repeatable).",
    ),
    click.option(
        "--compress-log-size",
        type=int,
        default=2,
        show_default=True,
        metavar="N",
        help="Blocks of a compressed cluster, as a power of two.",
    ),
    click.option("--release", is_flag=True, help="Free the saved blocks, which makes compressed files immutable."),
)


def fill_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which files go into the volume, whose they are there, and how they are written."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def said_of_saving(how: CompressPolicy | None, block_size: int) -> list[str]:
    """What compression saved, and whether that can be used; nothing where nothing was compressed."""
    if how is None or not how.saving.files:
        return []
    saving = how.saving
    plain, saved = saving.blocks * block_size, saving.saved * block_size
    files = "1 file" if saving.files == 1 else f"{saving.files} files"
    if not saved:
        return [f"compressed: {files} of {human_size(plain)}, which saves nothing"]
    said = f"compressed: {files} of {human_size(plain)} in {human_size(plain - saved)}"
    if how.release:
        return [f"{said}; the {human_size(saved)} saved are free, and the files immutable"]
    would = "--release would free them and make the files immutable"
    return [f"{said}; the {human_size(saved)} saved stay theirs: {would}"]


def saving_json(how: CompressPolicy | None, block_size: int) -> dict[str, int]:
    """The same for JSON."""
    if how is None:
        return {}
    saving = how.saving
    plain, saved = saving.blocks * block_size, saving.saved * block_size
    return {"compressed_files": saving.files, "compressed_bytes": plain, "saved_bytes": saved}


def fill_of(given: dict[str, Any], owner: tuple[int, int] | None = None) -> Fill | None:
    """What the options say; None without a source, and Usage where options need one."""
    how = None
    if given["compress"] is not None:
        how = parse_compress(
            given["compress"], words_of(given["compress_ext"]), given["compress_log_size"], given["release"]
        )
    elif given["release"] or given["compress_ext"]:
        raise Usage("--release and --compress-ext go with --compress")
    if given["source"] is None:
        for name in FILL_OPTIONS:
            if given[name]:
                raise Usage(f"--{name.replace('_', '-')} says how a volume is filled: --from DIR says with what")
        return None
    return Fill(
        given["source"],
        exclude=given["exclude"],
        exclude_from=given["exclude_from"],
        one_file_system=given["one_file_system"],
        xattrs=not given["no_xattrs"],
        map_owner=given["map_owner"],
        root_owner=owner,
        sort=given["sort"],
        selinux=given["selinux"],
        fs_config=given["fs_config"],
        mount_point=given["mount_point"],
        compress=how,
    )


def words_of(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The words of lists that are separated by commas or blanks."""
    return tuple(word for text in texts for word in text.replace(",", " ").split())
