"""The commands fls, icat, istat, blkcat and fsstat: The Sleuth Kit's options and layouts, on F2FS.

Thin: options in, a listing or a file, its lines printed.  Options have The Sleuth Kit's letters, also where f2tools has
others elsewhere; the kind of image is found out, so `-i` and `-f` are only checked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from f2tools import newfile
from f2tools.errors import F2fsError, Unsupported, Usage
from f2tools.options import Address, FileName, Size, image_argument, key_option
from f2tools.text import printable
from f2tools.version import __version__

if TYPE_CHECKING:
    from f2tools.forensics.tsk.meta import Case, Clock, File

CONTEXT = {"help_option_names": ["--help"]}  # where -h means something else
FORMATS = ("raw", "aff", "afd", "afm", "afflib", "ewf", "vmdk", "vhd", "vhdx", "qcow2", "sparse", "split")
SECTOR = 512


def _listed(names: tuple[str, ...], what: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def check(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value == "list":
            click.echo(f"Supported {what} types:", err=True)
            for name in names:
                click.echo(f"\t{name}", err=True)
            ctx.exit(1)
        if value is not None and value not in names:
            raise Usage(f"Unsupported {what} type: {value}; there are {', '.join(names)}")

    return check


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"f2tools {__version__}, with the options of The Sleuth Kit ver 4.11.1")
        ctx.exit()


def tsk_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What all programs of The Sleuth Kit take."""
    for option in (
        click.option("-o", "sectors", type=click.IntRange(min=0), metavar="SECTORS", help="Where the volume begins."),
        click.option("-b", "sector_bytes", type=Size(), default=SECTOR, show_default=True, help="Bytes of a sector."),
        click.option(
            "-i", "image_type", metavar="TYPE", expose_value=False, callback=_listed(FORMATS, "image format"),
            help="Kind of image; it is found out.",
        ),
        click.option(
            "-f", "fs_type", metavar="TYPE", expose_value=False, help="Kind of file system: f2fs.",
            callback=_listed(("f2fs", "detect"), "file system"),
        ),
        click.option("-v", "verbose", is_flag=True, expose_value=False, help="Taken, and changes nothing."),
        click.option(
            "-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version,
            help="Show the version and exit.",
        ),
        key_option,
        image_argument,
    ):  # fmt: skip
        command = option(command)
    return command


def _index_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--index",
        "index_path",
        type=FileName(),
        metavar="INDEX",
        help="Use the index that `f2tools scan` made.  [default: scan now]",
    )(command)


def _zone_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("-z", "zone", metavar="ZONE", default="UTC", show_default=True,
                           help="Time zone to print in, as EST5EDT or Europe/Berlin.")(command)  # fmt: skip
    return click.option("-s", "skew", type=int, default=0, metavar="SECONDS",
                        help="How far the clock of the machine was ahead.")(command)  # fmt: skip


def _clock(zone: str, skew: int) -> Clock:
    from f2tools.forensics.tsk.meta import Clock
    from f2tools.forensics.tsk.zones import zone_of

    try:
        return Clock(zone_of(zone), skew)
    except ValueError:
        raise Usage(f"{zone!r} is no time zone that this machine knows, as UTC, EST5EDT or Europe/Berlin") from None


@contextmanager
def _case(
    image: str, sectors: int | None, sector_bytes: int, keys: tuple[str, ...], index_path: str | None = None
) -> Iterator[Case]:
    from f2tools.forensics.tsk.meta import Case
    from f2tools.forensics.without_start import open_to_examine
    from f2tools.remarks import say_state

    name = image if sectors is None else f"{image}@+{sectors * sector_bytes}"
    with open_to_examine(name, (), keys) as volume, Case(volume, index_path) as case:
        for text in volume.warnings:
            click.echo(f"f2tools: warning: {printable(text)}", err=True)
        say_state(volume, name)
        yield case


@click.command(context_settings=CONTEXT)
@tsk_options
@click.argument("inode", required=False)
@click.option("-a", "dots", is_flag=True, help="Also . and .. of directories.")
@click.option("-d", "only_deleted", is_flag=True, help="Deleted names only.")
@click.option("-u", "only_living", is_flag=True, help="Undeleted names only; nothing is scanned for.")
@click.option("-D", "only_directories", is_flag=True, help="Directories only.")
@click.option("-F", "only_files", is_flag=True, help="Files only: all that are no directories.")
@click.option("-l", "long", is_flag=True, help="Times (mtime atime ctime crtime), size, gid and uid too.")
@click.option("-m", "mount", metavar="DIR", help="For mactime, below DIR.")
@click.option("-h", "with_md5", is_flag=True, help="With -m: the MD5 of each file.")
@click.option("-p", "full", is_flag=True, help="The full path of each name.")
@click.option("-r", "recurse", is_flag=True, help="Directories below too.")
@_zone_options
@_index_option
def fls(
    image: str, inode: str | None, dots: bool, only_deleted: bool, only_living: bool, only_directories: bool,
    only_files: bool, long: bool, mount: str | None, with_md5: bool, full: bool, recurse: bool, zone: str, skew: int,
    index_path: str | None, sectors: int | None, sector_bytes: int, keys: tuple[str, ...],
) -> None:  # fmt: skip
    """List the names in IMAGE, living and deleted, as fls of The Sleuth Kit does.

    INODE is the address of a directory, as the listing has it; the root unless one is given.  A deleted name has a
    star.  The address of what lives is its inode number; that of what is deleted is INO-BLOCK, which names one block
    that holds an inode, as numbers are used again.

    \b
    Example:
      f2tools fls -r -p card.img
      f2tools fls -r -m / card.img > body && mactime -b body -d
    """
    from f2tools.forensics.tsk.fls import Listing, Wanted, body_line, line, md5_of

    clock = _clock(zone, skew)
    wanted = Wanted(
        recurse, not only_living or only_deleted, not only_deleted or only_living, not only_directories or only_files,
        not only_files or only_directories, dots,
    )  # fmt: skip
    full = full or (recurse and not (wanted.living and wanted.directories))
    with _case(image, sectors, sector_bytes, keys, index_path) as case:
        listing = Listing(case, wanted)
        if mount is not None:
            with newfile.text_output(None) as out:
                for name in listing.names(inode):
                    out.write(body_line(name, mount, clock, md5_of(case, name) if with_md5 else "0") + "\n")
        else:
            for name in listing.names(inode):
                click.echo(line(name, full, clock if long else None))
        for text in listing.problems:
            click.echo(f"f2tools: {printable(text)}", err=True)
    if listing.problems:
        click.get_current_context().exit(1)


@click.command(context_settings=CONTEXT)
@tsk_options
@click.argument("inode")
@click.option("-h", "skip_holes", is_flag=True, help="Leave holes out, instead of zeros.")
@click.option("-r", "recover", is_flag=True, help="Taken: what was deleted is brought back anyhow.")
@click.option("-R", "recover_quietly", is_flag=True, help="The same, and nothing is said of what is missing.")
@click.option("-s", "slack", is_flag=True, help="Also what is after the end in the last block.")
@_index_option
def icat(
    image: str, inode: str, skip_holes: bool, recover: bool, recover_quietly: bool, slack: bool,
    index_path: str | None, sectors: int | None, sector_bytes: int, keys: tuple[str, ...],
) -> None:  # fmt: skip
    """Write the content of a file to standard output, by its address, as icat of The Sleuth Kit does.

    INODE is an inode number (what lives, else the last file that had the number) or INO-BLOCK as `f2tools fls` prints
    it.  What is gone is zeros; a message says so, and the exit code is 1.

    \b
    Example:
      f2tools icat card.img 97-4987 > IMG.jpg
    """
    with _case(image, sectors, sector_bytes, keys, index_path) as case:
        file = case.file(inode)
        _write(file, skip_holes, slack)
        found = file.found
        if found is None or found.grade in ("certain", "probable"):
            return
        if not recover_quietly:
            click.echo(f"f2tools: {found.grade}: {printable('; '.join(found.reasons))}", err=True)
    if not recover_quietly:
        click.get_current_context().exit(1)


def _write(file: File, skip_holes: bool, slack: bool) -> None:
    out = sys.stdout.buffer
    at = 0
    for offset, data in file.chunks():
        if not skip_holes:
            _zeros(out, offset - at)
        out.write(data)
        at = offset + len(data)
    if not skip_holes:
        _zeros(out, file.meta.size - at)
    if slack:
        out.write(file.slack())
    out.flush()


def _zeros(out: Any, count: int) -> None:
    while count > 0:
        out.write(bytes(min(count, 1 << 20)))
        count -= 1 << 20


@click.command()
@tsk_options
@click.argument("inode")
@click.option("-r", "runs", is_flag=True, help="Runs of blocks, instead of each block.")
@_zone_options
@_index_option
def istat(
    image: str, inode: str, runs: bool, zone: str, skew: int, index_path: str | None, sectors: int | None,
    sector_bytes: int, keys: tuple[str, ...],
) -> None:  # fmt: skip
    """Show everything that an inode says, by its address, as istat of The Sleuth Kit does.

    \b
    Example:
      f2tools istat card.img 97-4987
    """
    from f2tools.forensics.tsk.stat import inode_lines

    clock = _clock(zone, skew)
    with _case(image, sectors, sector_bytes, keys, index_path) as case:
        for text in inode_lines(case.file(inode), clock, runs):
            click.echo(text)


@click.command(context_settings=CONTEXT)
@tsk_options
@click.argument("blkaddr", type=Address(), required=False)
@click.argument("count", type=click.IntRange(min=1), default=1)
@click.option("-a", "ascii_", is_flag=True, help="As characters; what is none is a dot.")
@click.option("-h", "hexadecimal", is_flag=True, help="As a hex dump.")
@click.option("-w", "web", is_flag=True, help="As a page of HTML.")
@click.option("-s", "stats", is_flag=True, help="Only say how large a block is.")
def blkcat(
    image: str, blkaddr: int | None, count: int, ascii_: bool, hexadecimal: bool, web: bool, stats: bool,
    sectors: int | None, sector_bytes: int, keys: tuple[str, ...],
) -> None:  # fmt: skip
    """Write blocks of the volume to standard output, as blkcat of The Sleuth Kit does.

    \b
    Example:
      f2tools blkcat -h card.img 4987
    """
    from f2tools.forensics.tsk.stat import hex_lines, plain, web_page

    with _case(image, sectors, sector_bytes, keys) as case:
        size = case.volume.geo.block_size
        if stats:
            click.echo(f"{size}: Size of Addressable Unit")
            return
        if blkaddr is None:
            raise Usage("Missing block address")
        last = case.volume.geo.block_count
        if blkaddr + count > last:
            raise F2fsError(f"block {blkaddr + count - 1} is beyond the volume, which ends at {last - 1}")
        if hexadecimal or web or ascii_:
            if count > 4096:
                raise Unsupported(f"{count} blocks are too many to print; leave out the letter for bytes")
            data = case.volume.device.pread(blkaddr * size, count * size)
            if web:
                click.echo(web_page(blkaddr, data, size))
            else:
                click.echo("\n".join([*hex_lines(data), ""]) if hexadecimal else plain(data))
            return
        for at in range(blkaddr, blkaddr + count):
            sys.stdout.buffer.write(case.volume.device.pread(at * size, size))
        sys.stdout.buffer.flush()


@click.command()
@tsk_options
@click.option("-t", "only_type", is_flag=True, help="Only the type.")
@_zone_options
def fsstat(
    image: str, only_type: bool, zone: str, skew: int, sectors: int | None, sector_bytes: int, keys: tuple[str, ...]
) -> None:
    """Show what a volume is, as fsstat of The Sleuth Kit does.

    \b
    Example:
      f2tools fsstat card.img
    """
    from f2tools.forensics.tsk.stat import volume_lines

    clock = _clock(zone, skew)
    with _case(image, sectors, sector_bytes, keys) as case:
        for text in ["f2fs"] if only_type else volume_lines(case.volume, clock):
            click.echo(text)
