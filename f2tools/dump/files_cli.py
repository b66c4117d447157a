"""The commands of `f2tools dump` that show or copy files.  Thin: options in, a library call, its result printed.

Nothing of the engine is imported before a command runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

import f2tools
from f2tools import newfile
from f2tools.copyout.keep import Keep, keep_options
from f2tools.copyout.walk import THERE_ALREADY, not_in_full, placed, shown
from f2tools.errors import F2fsError
from f2tools.options import (
    FileName,
    JsonArray,
    as_of_option,
    checkpoint_option,
    device_option,
    force_option,
    human_size,
    image_argument,
    json_option,
    key_option,
    must_be_free,
    path_in_image,
    print_json,
    progress,
    recovered_option,
    require,
    said_of,
)
from f2tools.text import counted, printable, printable_name

if TYPE_CHECKING:
    from f2tools.copyout.walk import Lost
    from f2tools.f2fs.volume.volume import Volume

_SHOWN_LOSSES = 1000


class Opening(NamedTuple):
    """The options that say how the volume is opened, for all of these commands."""

    devices: tuple[str, ...]
    checkpoint: Any
    recovered: bool
    keys: tuple[str, ...]
    as_of: str | None


def _volume_options(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def run(
        *,
        devices: tuple[str, ...],
        checkpoint: Any,
        recovered: bool,
        keys: tuple[str, ...],
        as_of: str | None,
        **others: Any,
    ) -> Any:
        require(not (as_of and (recovered or checkpoint != "newest")), "--as-of says by itself which state is meant")
        return command(opening=Opening(devices, checkpoint, recovered, keys, as_of), **others)

    return device_option(checkpoint_option(recovered_option(as_of_option(key_option(json_option(run))))))


def _open(image: str, opening: Opening) -> Volume:
    devices, checkpoint, recovered, keys, as_of = opening
    if as_of is not None:
        from f2tools.forensics.view import open_as_of

        volume = open_as_of(image, as_of, devices, keys=keys)
    else:
        volume = f2tools.open(image, devices, checkpoint, recovered=recovered, keys=keys)
    for text in volume.warnings:
        click.echo(f"f2tools: warning: {printable(text)}", err=True)
    if as_of is None:
        from f2tools.remarks import say_state

        say_state(volume, image, option=True)
    return volume


def _say_lost(lost: Iterable[Lost], what: str = "", target: str | None = None) -> None:
    """Say what could not be read, or not copied to `target`, which is named by its path there."""
    for index, item in enumerate(lost):
        if index == _SHOWN_LOSSES:
            click.echo("f2tools: ... and more; --json has all", err=True)
            return
        name = shown(item.path) if target is None else placed(target, item.path)
        click.echo(f"f2tools: {what}{printable_name(name)}: {printable(item.reason)}", err=True)


def _partly(image: str, opening: Opening, reasons: Iterable[str]) -> NoReturn:
    """End with the exit code of what is not whole; of the newest state, how what is lost may be had yet."""
    if opening.as_of is None and opening.checkpoint == "newest":
        from f2tools.copyout.report import said_of_losses

        text = said_of_losses(image, opening.devices, reasons)
        if text:
            click.echo(f"f2tools: note: {printable(text)}", err=True)
    click.get_current_context().exit(1)


def _expanded(volume: Volume, paths: tuple[str, ...]) -> tuple[str, ...]:
    """The paths with their patterns expanded; Usage, before anything is printed, where one is `ino:` and no number."""
    from f2tools.dump.listing import number_of
    from f2tools.f2fs.volume.glob import expand_all

    for path in paths:
        number_of(path)
    return expand_all(volume, paths)


@contextmanager
def _going_on(path: str, failed: list[str]) -> Iterator[None]:
    """Say why the file of a PATH can't be read, and put that into `failed`, so that the others are still shown."""
    try:
        yield
    except BrokenPipeError:
        raise
    except F2fsError as error:
        click.echo(f"f2tools: {printable_name(path)}: {said_of(error)}", err=True)
        failed.append(str(error))
    except OSError as error:
        if error.filename is None:  # our own output, not the image
            raise
        click.echo(f"f2tools: {printable_name(path)}: {error.strerror}", err=True)
        failed.append("")  # it is not there


def _paths(default: str | None = None) -> Callable[..., Any]:
    return click.argument(
        "paths",
        nargs=-1,
        required=default is None,
        metavar="PATH..." if default is None else "[PATH]...",
        shell_complete=path_in_image,
    )


@click.command()
@image_argument
@_paths("/")
@click.option("-l", "long", is_flag=True, help="Mode, links, owner, size and time too.")
@click.option("-R", "recursive", is_flag=True, help="Everything below as well.")
@click.option("-a", "everything", is_flag=True, help="Names that start with a dot too.")
@click.option("-i", "inodes", is_flag=True, help="Inode numbers too.")
@click.option("--human", is_flag=True, help="With -l: sizes like 1.5 MiB.")
@click.option("-d", "itself", is_flag=True, help="A directory itself, not what is in it.")
@_volume_options
def ls(
    image: str,
    paths: tuple[str, ...],
    long: bool,
    recursive: bool,
    everything: bool,
    inodes: bool,
    human: bool,
    itself: bool,
    opening: Opening,
    as_json: bool,
) -> None:
    """List directories.  PATH is a path, or ino:NUMBER for an inode.

    \b
    Example:
      f2tools dump ls -l card.img /etc
      f2tools dump ls -R --json card.img
    """
    from f2tools.dump import listing

    lost: list[Lost] = []
    failed: list[str] = []
    documents = JsonArray()
    first = True

    def show(found: list[listing.Row]) -> None:
        chosen = found if everything else [row for row in found if not row.name.startswith(b".")]
        lines = listing.long_lines(chosen, inodes=inodes, human=human) if long else None
        text = "\n".join(lines or listing.short_lines(chosen, inodes=inodes))
        if chosen:  # all at once: click looks at the terminal for each line
            click.echo(text)

    def list_one(volume: Volume, path: str, several: bool) -> None:
        nonlocal first
        file = listing.file_at(volume, path, follow=not long)
        if not file.inode.is_dir or itself:
            row = listing.row_of(volume, path.encode("utf-8", "surrogateescape"), file.inode, file.inode.ino)
            if as_json:
                documents.add({"path": path, **row.as_dict()})
            else:
                lines = listing.long_lines([row], inodes=inodes, human=human) if long else None
                for line in lines or listing.short_lines([row], inodes=inodes):
                    click.echo(line)
            first = False
            return
        brief = not (long or as_json)
        for where, _, found in listing.directories(volume, file, lost, recursive=recursive, brief=brief):
            if as_json:
                documents.add({"path": shown(where), "entries": [row.as_dict() for row in found]})
                continue
            if several:
                click.echo(("" if first else "\n") + printable_name(shown(where)) + ":")
            show(found)
            first = False

    with _open(image, opening) as volume:
        paths = _expanded(volume, paths) or ("/",)
        for path in paths:
            with _going_on(path, failed):
                list_one(volume, path, len(paths) > 1 or recursive)
    if as_json:
        documents.end()
    _say_lost(lost)
    if lost or failed:
        _partly(image, opening, [*failed, *(item.reason for item in lost)])


@click.command()
@image_argument
@click.argument("path", default="/", shell_complete=path_in_image)
@click.option("-s", "--sizes", is_flag=True, help="The size of each file too.")
@click.option("-d", "directories", is_flag=True, help="Directories only.")
@click.option("-L", "deepest", type=click.IntRange(1), metavar="LEVELS", help="No deeper than this.")
@_volume_options
def tree(
    image: str,
    path: str,
    sizes: bool,
    directories: bool,
    deepest: int | None,
    opening: Opening,
    as_json: bool,
) -> None:
    """Show the tree of names below PATH, like tree(1).

    \b
    Example:
      f2tools dump tree -s card.img /etc
    """
    from f2tools.dump import listing

    lost: list[Lost] = []
    counts = {"dir": 0, "other": 0}
    with _open(image, opening) as volume:
        file = listing.file_at(volume, path, follow=True)
        if not as_json:
            click.echo(printable_name(path))
        else:
            click.echo("[", nl=False)
        separator = "\n"
        for branch in listing.branches(volume, file, lost, deepest=deepest, directories_only=directories):
            row = branch.row
            counts["dir" if row.kind == "dir" else "other"] += 1
            if as_json:
                item = {"path": shown(branch.path), "depth": branch.depth, **row.as_dict()}
                click.echo(separator + json.dumps(item), nl=False)
                separator = ",\n"
                continue
            size = f"[{human_size(row.size):>10}]  " if sizes else ""
            target = f" -> {printable_name(shown(row.target))}" if row.target is not None else ""
            click.echo(f"{branch.prefix}{size}{printable_name(shown(row.name))}{target}")
        if as_json:
            click.echo("\n]")
        else:
            click.echo(f"\n{counts['dir']} directories, {counts['other']} files")
    _say_lost(lost)
    if lost:
        _partly(image, opening, [item.reason for item in lost])


@click.command()
@image_argument
@_paths()
@_volume_options
def stat(image: str, paths: tuple[str, ...], opening: Opening, as_json: bool) -> None:
    """Show everything about files except their content.  Symbolic links are not followed.

    \b
    Example:
      f2tools dump stat card.img /etc/passwd
      f2tools dump stat --json card.img ino:4
    """
    from f2tools.dump import listing

    found: list[dict[str, Any]] = []
    failed: list[str] = []
    with _open(image, opening) as volume:
        for path in _expanded(volume, paths):
            with _going_on(path, failed):
                facts = listing.facts(listing.file_at(volume, path, follow=False))
                if not as_json:
                    if found:
                        click.echo()
                    for line in listing.stat_lines(facts):
                        click.echo(line)
                found.append(facts)
    if as_json:
        print_json(found)
    for item in found:
        for key, what in (("read_error", "what belongs to it"), ("xattr_error", "its extended attributes")):
            if key in item:
                name = item["path"] or f"inode {item['ino']}"
                failed.append(item[key])
                why = f"{what} can't all be read: {printable(item[key])}"
                click.echo(f"f2tools: {printable_name(name)}: {why}", err=True)
    if failed:
        _partly(image, opening, failed)


@click.command()
@image_argument
@_paths()
@_volume_options
def cat(image: str, paths: tuple[str, ...], opening: Opening, as_json: bool) -> None:
    """Write the content of files to standard output; compressed files come out plain.

    With --json: path, size and content in base64.

    \b
    Example:
      f2tools dump cat card.img /etc/passwd
    """
    import base64

    from f2tools.copyout.content import copy_content
    from f2tools.dump import listing

    failed: list[str] = []
    found: list[dict[str, Any]] = []
    with _open(image, opening) as volume:
        for path in _expanded(volume, paths):
            with _going_on(path, failed):
                file = listing.file_at(volume, path, follow=True)
                if as_json:
                    content = file.read()
                    found.append({"path": path, "size": len(content), "base64": base64.b64encode(content).decode()})
                else:
                    copy_content(file, sys.stdout.buffer)
    if as_json:
        print_json(found)
    else:
        sys.stdout.buffer.flush()
    if failed:
        _partly(image, opening, failed)


@click.command()
@image_argument
@_paths("/")
@click.option(
    "-o",
    "--output",
    "target",
    required=True,
    type=FileName(),
    metavar="DIR",
    help="The directory to put files in; made if need be.",
)
@keep_options
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out paths or names like this (repeatable).")
@click.option("-f", "--force", is_flag=True, help="Replace files that are in the way.")
@_volume_options
def extract(
    image: str,
    paths: tuple[str, ...],
    target: str,
    keep: Keep,
    exclude: tuple[str, ...],
    force: bool,
    opening: Opening,
    as_json: bool,
) -> None:
    """Copy files out, all or those below PATHs, with times, links, holes, attributes, and modes under the umask.

    Files keep their path below DIR; directories that are there keep their mode and owner.  Owners, ACLs, devices,
    set-user-ID bits and whatever else gives rights are copied only on request, as from an archive.  What can't be read
    is said at the end, and the exit code is 1.

    \b
    Example:
      f2tools dump extract card.img -o files
      f2tools dump extract card.img /etc /var/log -o files
      sudo f2tools dump extract --all rootfs.img -o /srv/rootfs
    """
    import time

    from f2tools.copyout.extract import extract as run
    from f2tools.dump.listing import file_at

    started = time.monotonic()
    from f2tools.f2fs.volume.glob import expand_all

    with _open(image, opening) as volume:
        paths = expand_all(volume, paths)
        tops = [file_at(volume, path, follow=False) if path.startswith("ino:") else path for path in paths]
        with progress("extracting", _count(volume)) as bar:
            report = run(volume, target, tops, keep=keep, force=force, exclude=exclude, advance=bar.advance)
        warnings = [*volume.warnings, *filter(None, [volume.shown_older])]
    if as_json:
        print_json({**report.as_dict(), "warnings": warnings})
    else:
        taken = time.monotonic() - started
        for line in _extract_lines(report, taken):
            click.echo(line)
        _say_lost(report.partial, "only partly: ", target)
        _say_lost([item for item in report.lost if item.reason != THERE_ALREADY], "lost: ", target)
        _say_lost([item for item in report.lost if item.reason == THERE_ALREADY], "not copied: ", target)
    if not report.complete:
        _partly(image, opening, [item.reason for item in (*report.lost, *report.partial)])


def _extract_lines(report: Any, taken: float) -> Iterable[str]:
    from f2tools.copyout.times import said_of_times

    counts = [
        (report.files, "file", ""),
        (report.directories, "directory", "directories"),
        (report.symlinks, "symbolic link", ""),
        (report.hard_links, "further hard link", ""),
        (report.specials, "special file", ""),
    ]
    words = ", ".join(counted(count, one, more) for count, one, more in counts if count or one == "file")
    yield f"{words}; {human_size(report.bytes)} in {taken:.1f} s -> {printable(report.target)}"
    if report.excluded:
        yield f"{report.excluded} left out as asked"
    if report.left_out:
        yield report.left_out
    for reason, count in report.xattrs_not_set.items():
        yield f"{counted(count, 'extended attribute was', 'extended attributes were')} not set ({reason})"
    if report.times_not_set:
        yield said_of_times(report.times_not_set)
    there = sum(item.reason == THERE_ALREADY for item in report.lost)
    if there:
        yield f"{there} not copied, as something of that name is there already; --force replaces files"
    if report.partial or len(report.lost) > there:
        yield f"{len(report.lost) - there} lost, {len(report.partial)} only partly"


def _count(volume: Volume) -> int:
    return min(volume.cp.valid_inode_count, volume.geo.max_nid)


@click.command()
@image_argument
@_paths("/")
@click.option(
    "-o",
    "--output",
    type=FileName(),
    metavar="FILE",
    help="Write here; .gz and .zst are compressed.  [default: stdout]",
)
@force_option
@_volume_options
def tar(
    image: str,
    paths: tuple[str, ...],
    output: str | None,
    force: bool,
    opening: Opening,
    as_json: bool,
) -> None:
    """Write the tree, or what is below PATHs, as a pax archive with times, attributes, holes and hard links.

    \b
    Example:
      f2tools dump tar card.img -o card.tar.zst
      f2tools dump tar card.img /etc | tar -tv
    """
    from f2tools.copyout.archive import open_archive
    from f2tools.dump.listing import file_at
    from f2tools.dump.tar import write_tar

    require(not (as_json and output in (None, "-")), "--json and the archive can't both go to stdout; give -o FILE")
    must_be_free(output, force)
    from f2tools.f2fs.volume.glob import expand_all

    with _open(image, opening) as volume:
        paths = expand_all(volume, paths)
        for path in paths:  # a wrong path must not cost an output file
            file_at(volume, path, follow=False)
        with open_archive(output) as out, progress("archiving", _count(volume)) as bar:
            report = write_tar(volume, out, paths, advance=bar.advance)
    if as_json:
        print_json(
            {
                "entries": report.entries,
                "sockets_left_out": report.sockets,
                "lost": [{"path": shown(item.path), "reason": item.reason} for item in report.lost],
                "partial": [{"path": shown(item.path), "reason": item.reason} for item in report.partial],
            }
        )
    elif report.sockets:
        click.echo(f"f2tools: {counted(report.sockets, 'socket')} left out: tar has no form for them", err=True)
    if not as_json:
        _say_lost(report.partial, "only partly: ")
        _say_lost(report.lost, "lost: ")
    if not report.complete:
        _partly(image, opening, [item.reason for item in (*report.lost, *report.partial)])


@click.command()
@image_argument
@click.argument("path", default="/", shell_complete=path_in_image)
@click.option("-o", "--output", type=FileName(), metavar="FILE", help="Write here.  [default: stdout]")
@force_option
@_volume_options
def manifest(image: str, path: str, output: str | None, force: bool, opening: Opening, as_json: bool) -> None:
    """The whole tree as JSON, with metadata and hashes, so that two trees can be compared.  Always JSON.

    \b
    Example:
      f2tools dump manifest card.img > card.json
    """
    from f2tools.dump.manifest import write_manifest

    must_be_free(output, force)
    with _open(image, opening) as volume:
        volume.path(path, follow=False)  # a wrong path must not cost an output file
        with (
            newfile.text_output(output) as out,
            progress("reading", _count(volume)) as bar,
        ):
            errors = write_manifest(volume, out, path, advance=bar.advance)
    if errors:
        click.echo(f"f2tools: {not_in_full(len(errors))}", err=True)
        _partly(image, opening, errors.values())


@click.command()
@image_argument
@_paths("/")
@_volume_options
def verify(image: str, paths: tuple[str, ...], opening: Opening, as_json: bool) -> None:
    """Check fs-verity (Merkle trees and digests) and compressed clusters (checksums, and that they unpack).

    \b
    Example:
      f2tools dump verify card.img
    """
    from f2tools.dump.listing import file_at
    from f2tools.dump.verify import verify as run
    from f2tools.f2fs.volume.glob import expand_all

    with _open(image, opening) as volume:
        paths = expand_all(volume, paths)
        tops = [file_at(volume, path, follow=False) for path in paths or ("/",)]
        with progress("verifying", _count(volume)) as bar:
            report = run(volume, tops, advance=bar.advance)
    if as_json:
        print_json(report.as_dict())
    else:
        for path, seal in report.verity.items():
            click.echo(f"{seal['algorithm']}:{seal['digest']} {printable_name(path)}")
        kinds = ", ".join(f"{count} {name}" for name, count in report.clusters_by_algorithm.items())
        click.echo(f"{counted(report.names, 'name')} looked at")
        click.echo(f"verity: {counted(len(report.verity), 'file is', 'files are')} what was sealed")
        click.echo(
            f"compression: {counted(report.compressed_files, 'file')}, {counted(report.clusters, 'cluster')}"
            + (f" ({kinds}; {report.clusters_with_checksum} with checksum)" if kinds else "")
        )
        if report.unreadable:
            click.echo(f"{counted(report.unreadable, 'encrypted file')} could not be checked")
        click.echo("all good" if report.good else f"{len(report.failed)} failed")
        _say_lost(report.failed)
    if not report.good:
        _partly(image, opening, ())
