"""The commands scan, history, timeline and undelete.  Thin: options in, a library call, its result printed."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from f2tools import newfile
from f2tools.copyout.keep import Keep, keep_options
from f2tools.options import (
    FileName,
    device_option,
    force_option,
    human_size,
    image_argument,
    json_option,
    key_option,
    layout_option,
    must_be_free,
    path_in_image,
    print_json,
    progress,
    require,
    say_unknown,
)
from f2tools.text import counted, printable, printable_name

ROWS_AT_ONCE = 1 << 10  # that are written together

if TYPE_CHECKING:
    from f2tools.copyout.report import CopyReport
    from f2tools.f2fs.volume.layouts import Layout
    from f2tools.f2fs.volume.volume import Volume
    from f2tools.forensics.history import History, Version
    from f2tools.forensics.index import Index
    from f2tools.forensics.undelete import Found, Undelete


def index_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """An index that `f2tools scan` made."""
    return click.option(
        "--index",
        "index_path",
        type=FileName(),
        metavar="INDEX",
        help="Use the index that `f2tools scan` made.  [default: scan now]",
    )(command)


def _open(image: str, devices: tuple[str, ...], keys: tuple[str, ...], layout: Layout | None) -> Volume:
    from f2tools.forensics.without_start import open_to_examine
    from f2tools.remarks import say_state

    volume = open_to_examine(image, devices, keys, layout)
    for text in volume.warnings:
        click.echo(f"f2tools: warning: {printable(text)}", err=True)
    say_state(volume, image)
    return volume


@contextmanager
def _indexed(
    image: str, devices: tuple[str, ...], index_path: str | None, keys: tuple[str, ...], layout: Layout | None
) -> Iterator[tuple[Volume, Index]]:
    from f2tools.forensics.index import open_index

    with _open(image, devices, keys, layout) as volume:
        geo = volume.geo
        with progress("scanning", geo.segment_count_main * geo.blocks_per_seg) as bar:
            index = open_index(volume, index_path, bar.advance)
        with index:
            say_unknown(index.problems)
            say_unreadable(index.tables.unreadable())
            yield volume, index


def say_unreadable(ranges: Sequence[tuple[int, int]]) -> bool:
    """Say how many blocks, as (first, count), could not be read; whether there are any: a command then ends with 1."""
    if ranges:
        count = sum(count for _, count in ranges)
        click.echo(f"f2tools: {counted(count, 'block')} could not be read, the first is {ranges[0][0]:#x}", err=True)
    return bool(ranges)


@click.command()
@image_argument
@click.option(
    "-o", "--output", type=FileName(), metavar="INDEX",
    help="The file to write.  [default: IMAGE's name and .f2index in the current directory, unless IMAGE lies there]",
)  # fmt: skip
@device_option
@layout_option
@force_option
@json_option
def scan(
    image: str, output: str | None, devices: tuple[str, ...], layout: Layout | None, force: bool, as_json: bool
) -> None:  # fmt: skip
    """Find every node and directory block of IMAGE, live or not, and keep them in an index.

    The index is an SQLite database; undelete, history and timeline take it with --index.

    \b
    Example:
      f2tools scan card.img -o card.f2index
    """
    import time

    from f2tools.forensics.index import build_index, figures

    path = output or _here(image)
    must_be_free(path, force)
    fresh = f"{path}.new" if os.path.exists(path) else path
    started = time.monotonic()
    with _open(image, devices, (), layout) as volume:
        geo = volume.geo
        with progress("scanning", geo.segment_count_main * geo.blocks_per_seg) as bar:
            index = build_index(volume, fresh, bar.advance)
        with index:
            found, problems, lost = figures(index), index.problems, index.tables.unreadable()
    if fresh != path:
        os.replace(fresh, path)
    say_unknown(problems)
    if as_json:
        print_json({"index": path, **found})
    else:
        _show_figures(path, found, time.monotonic() - started)
    if say_unreadable(lost):
        click.get_current_context().exit(1)


def _show_figures(path: str, found: dict[str, int], taken: float) -> None:
    rate = found["bytes_read"] / taken if taken else 0
    click.echo(
        f"{found['nodes']} node blocks ({found['live']} live), {found['inodes']} of them inodes; "
        f"{found['dirblocks']} directory blocks with {found['names']} names"
    )
    click.echo(f"{human_size(found['bytes_read'])} read in {taken:.1f} s, {human_size(rate)}/s -> {printable(path)}")


def _here(image: str) -> str:
    """A name for an index in the current directory; Usage where that is the image's own, which is not written to."""
    name = os.path.basename(image.rstrip("/")) + ".f2index"
    require(
        os.path.realpath(os.path.dirname(image) or ".") != os.path.realpath("."),
        f"the index would lie beside {image}; say where it is to be with -o INDEX (-o ./{name} if it may lie there)",
    )
    return name


def known_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Sets of hashes of known files, and whether those files are left out."""
    command = click.option("--hide-known", is_flag=True, help="Leave known files out.")(command)
    return click.option(
        "--known", "sets", multiple=True, metavar="SET", type=FileName(exists=True, dir_okay=False),
        help="Mark files whose hash is in SET: a list, output of md5sum or hashdeep, or NSRL's CSV (repeatable).",
    )(command)  # fmt: skip


@click.command()
@image_argument
@click.argument("pattern", required=False)
@click.option(
    "-o", "--output", "target", type=FileName(), metavar="DIR", help="Put the files below DIR; made if need be."
)
@click.option("--list", "listing", is_flag=True, help="Only list what can be brought back; so it is without -o.")
@click.option("--versions", is_flag=True, help="Older versions too, of living and of deleted files.")
@click.option(
    "--grade", "least", type=click.Choice(["certain", "probable", "partial", "name only"]), default="name only",
    show_default=True, help="The lowest grade to show or write.",
)  # fmt: skip
@keep_options
@known_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line for each file.")
@index_option
@key_option
@device_option
@force_option
@layout_option
def undelete(
    image: str, pattern: str | None, target: str | None, listing: bool, versions: bool, least: str, keep: Keep,
    sets: tuple[str, ...], hide_known: bool,
    as_json: bool, index_path: str | None, keys: tuple[str, ...], devices: tuple[str, ...],
    layout: Layout | None, force: bool,
) -> None:  # fmt: skip
    """Bring back deleted files, with their paths, attributes and times, and say how certain that is.

    PATTERN selects by path or name, as in a shell; a directory stands for everything that was in it.  Owners, ACLs,
    devices, set-user-ID bits and whatever else gives rights come back only on request, as from an archive.

    \b
    Grades:
      certain    the exact inode, and nothing newer claims its blocks
      probable   whole, but something speaks against being sure; the reasons say what
      partial    ranges are missing; they become holes
      name only  nothing but the name (and what the inode said) is left

    \b
    Example:
      f2tools undelete card.img
      f2tools undelete card.img 'DCIM/*.jpg' -o rescued
    """
    require(not (listing and target), "--list and -o DIR contradict each other")
    require(not hide_known or bool(sets), "--hide-known needs a --known SET")
    require(
        pattern is None or os.path.isdir(pattern) or not os.path.exists(pattern),
        f"{pattern} is a file of its own: one image at a time, and a pattern that is no file",
    )
    must_be_free(target, force)
    from f2tools.forensics.restore import Restorer
    from f2tools.forensics.undelete import GRADES, Undelete, as_dict, selected

    with _indexed(image, devices, index_path, keys, layout) as (volume, index):
        run, lost = Undelete(volume, index), index.tables.unreadable()
        with Restorer(volume, run.contents, target, keep) if target else nullcontext() as restorer:
            counts: dict[str, int] = dict.fromkeys(GRADES, 0)
            header, hidden, locked = not as_json, 0, 0
            for found in _marked(run, versions, sets):
                if hide_known and found.known:
                    hidden += 1
                    continue
                if not selected(found, pattern) or GRADES.index(found.grade) > GRADES.index(least):
                    continue
                if restorer is not None:
                    restorer.put(found)
                elif as_json and found.state != "older":
                    run.digest(found)
                counts[found.grade] += 1
                locked += bool(found.locked)
                if header:
                    click.echo(f"{'GRADE':9}  {'TYPE':7} {'SIZE':>10}  {'MODIFIED (UTC)':19}  PATH")
                    header = False
                for line in [json.dumps(as_dict(found))] if as_json else _lines(found):
                    click.echo(line)
    nothing = pattern is not None and not any(counts.values())
    if nothing:
        click.echo(f"f2tools: nothing that was deleted is called {printable(pattern or '')}", err=True)
    if not as_json:
        left_out = f", {hidden} known and left out" if hide_known else ""
        no_key = f"; {locked} of them encrypted, and their key was not given (--key)" if locked else ""
        click.echo(", ".join(f"{count} {grade}" for grade, count in counts.items()) + left_out + no_key, err=True)
    if restorer is not None:
        _say_restored(restorer.report)
    if nothing or lost or not (restorer is None or restorer.report.complete):
        click.get_current_context().exit(1)


def _say_restored(report: CopyReport) -> None:
    """What was brought back otherwise than it was, in part, or not at all."""
    from f2tools.copyout.times import said_of_times
    from f2tools.copyout.walk import shown

    if report.left_out:
        click.echo(f"f2tools: {report.left_out}", err=True)
    if report.times_not_set:
        click.echo(f"f2tools: {said_of_times(report.times_not_set)}", err=True)
    if count := len(report.lost):
        click.echo(f"f2tools: {count} {'was' if count == 1 else 'were'} not brought back:", err=True)
    for item in report.lost:  # there is nothing on the host
        click.echo(f"f2tools: {printable_name(shown(item.path))}: {printable(item.reason)}", err=True)
    for item in report.partial:
        click.echo(f"f2tools: {printable(report.place(item))}: {printable(item.reason)}", err=True)


def _found(run: Undelete, versions: bool) -> Iterator[Found]:
    yield from run.deleted()
    if versions:
        yield from run.older()


def _marked(run: Undelete, versions: bool, sets: tuple[str, ...]) -> Iterator[Found]:
    """What is found, with the sets that know it."""
    if not sets:
        yield from _found(run, versions)
        return
    from f2tools.forensics.known import HASHES, Hashed, mark

    every = list(_found(run, versions))
    hashed = [Hashed(one.path, 0, one.state, run.hashes(one, HASHES) or {}, one.known) for one in every]
    for text in mark(hashed, sets):
        click.echo(f"f2tools: {printable(text)}", err=True)
    yield from every


def _lines(found: Found) -> Iterator[str]:
    """A row for a file; below it the names that it had before, and why it is not certain, or can't be read."""
    from f2tools.copyout.walk import shown
    from f2tools.forensics.times import local_time
    from f2tools.forensics.undelete import CERTAIN

    inode = found.inode
    number = f"  (version {found.version})" if found.version is not None else ""
    size, when = ("", "") if inode is None else (human_size(inode.size), local_time(inode.mtime_ns))
    yield f"{found.grade:9}  {found.type:7} {size:>10}  {when:19}  {printable_name(shown(found.path))}{number}"
    below = " " * 11
    for path in found.paths[1:]:
        yield f"{below}linked as {printable_name(shown(path))}"
    for path in found.also:
        yield f"{below}also known as {printable_name(shown(path))}"
    if found.known:
        yield f"{below}known by {printable(', '.join(found.known))}"
    if found.grade != CERTAIN or found.locked:
        yield f"{below}{found.grade}: {printable('; '.join(found.reasons))}"


@click.command()
@image_argument
@click.argument("what", metavar="PATH|INO", shell_complete=path_in_image)
@click.option("--extract", "wanted", metavar="VERSION", help="Write the content of this version.")
@click.option(
    "-o", "--output", type=FileName(), metavar="FILE", help="With --extract: write here, a new file.  [default: stdout]"
)
@click.option("--diff", "pair", nargs=2, metavar="A B", help="Show how two versions differ.")
@index_option
@key_option
@device_option
@layout_option
@force_option
@json_option
def history(
    image: str, what: str, wanted: str | None, output: str | None, pair: tuple[str, str] | None,
    index_path: str | None, keys: tuple[str, ...], devices: tuple[str, ...], layout: Layout | None, force: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """All versions of a file or directory that are left, oldest first, and what changed.

    PATH is any path that it ever had; a number is an inode number, of which all uses are shown.

    \b
    Example:
      f2tools history card.img /docs/letter.txt
      f2tools history card.img /docs/letter.txt --extract 2 -o letter-2.txt
      f2tools history card.img /docs/letter.txt --diff 1 2
    """
    require(not (wanted and pair), "--extract and --diff contradict each other")
    require(not output or wanted is not None, "-o FILE goes with --extract")
    must_be_free(output, force)
    from f2tools.forensics.history import History
    from f2tools.forensics.undelete import Undelete

    with _indexed(image, devices, index_path, keys, layout) as (volume, index):
        found = History(Undelete(volume, index))
        versions = found.of(what)
        if wanted is not None:
            _extract(found, found.pick(versions, wanted), output)
        elif pair:
            for line in found.diff(*(found.pick(versions, name) for name in pair)):
                click.echo(printable(line))
        elif as_json:
            print_json([version.as_dict() for version in versions])
        else:
            click.echo(
                f"{'VERSION':>7}  {'STATE':8}  {'CHECKPOINT':13}  {'MODE':10} {'OWNER':>9} {'SIZE':>10}"
                f"  {'MODIFIED (UTC)':30}  PATH"
            )
            for version in versions:
                _show_version(version)
        _exit_where_unreadable(index)


def _exit_where_unreadable(index: Index) -> None:
    if index.tables.unreadable():
        click.get_current_context().exit(1)


def _show_version(version: Version) -> None:
    from f2tools.copyout.walk import shown
    from f2tools.forensics.times import iso

    inode = version.inode
    owner = f"{inode.uid}:{inode.gid}"
    click.echo(
        f"{version.id:>7}  {version.state:8}  cp {inode.cp_ver:<10}  {stat.filemode(inode.mode)}"
        f" {owner:>9} {inode.size:>10}  {iso(inode.mtime_ns)}  {printable_name(shown(version.paths[0]))}"
    )
    click.echo(f"{'':9}{printable('; '.join(version.changes))}")


def _extract(found: History, version: Version, output: str | None) -> None:
    chosen = found.found(version)
    assert chosen.inode is not None
    click.echo(f"f2tools: {chosen.grade}: {'; '.join(chosen.reasons)}", err=True)
    with newfile.replacing(output) if output else nullcontext(sys.stdout.buffer) as out:
        at = 0
        for offset, data in found.content(chosen):
            _pad(out, offset - at, bool(output))
            out.write(data)
            at = offset + len(data)
        _pad(out, chosen.inode.size - at, bool(output))
        if output:
            out.truncate(chosen.inode.size)
    if chosen.grade in ("partial", "name only"):
        click.get_current_context().exit(1)


def _pad(out: Any, count: int, seekable: bool) -> None:
    """Zeros, or a hole where there can be one."""
    if seekable:
        out.seek(max(0, count), 1)
        return
    while count > 0:
        out.write(bytes(min(count, 1 << 20)))
        count -= 1 << 20


@click.command()
@image_argument
@click.option(
    "--format", "form", type=click.Choice(["bodyfile", "csv", "jsonl", "l2tcsv", "dfxml"]),
    help="bodyfile is for mactime of The Sleuth Kit, l2tcsv for readers of log2timeline's.  [default: csv]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as --format jsonl.")
@click.option("--no-hashes", is_flag=True, help="Leave hashes out of DFXML, which cost reading all contents.")
@click.option("-o", "--output", type=FileName(), metavar="FILE", help="Write here.  [default: stdout]")
@index_option
@key_option
@device_option
@force_option
@layout_option
def timeline(
    image: str, form: str | None, as_json: bool, no_hashes: bool, output: str | None, index_path: str | None,
    keys: tuple[str, ...], devices: tuple[str, ...], layout: Layout | None, force: bool,
) -> None:  # fmt: skip
    """When files were made, written, changed and deleted: living and deleted ones, and older versions.

    Each line says which of these it is.

    \b
    Example:
      f2tools timeline card.img --format bodyfile | mactime -b - -d
    """
    require(not as_json or form in (None, "jsonl"), f"--json is --format jsonl, and --format {form} is another")
    form = form or ("jsonl" if as_json else "csv")
    must_be_free(output, force)
    from f2tools.forensics.timeline import write
    from f2tools.forensics.undelete import Undelete

    with _indexed(image, devices, index_path, keys, layout) as (volume, index):
        run = Undelete(volume, index)
        with newfile.text_output(output) as out:
            rows = write(run, form, not no_hashes)
            while some := list(islice(rows, ROWS_AT_ONCE)):
                out.write("\n".join(some) + "\n")
        _exit_where_unreadable(index)


@click.command()
@image_argument
@click.option("--format", "form", type=click.Choice(["hashdeep", "md5", "sha1", "sha256", "nsrl"]), default="hashdeep",
              show_default=True, help="md5, sha1 and sha256 are what md5sum and its kin check.")  # fmt: skip
@click.option("--living", "which", flag_value="live", help="Files that a mount shows only.")
@click.option("--deleted", "which", flag_value="deleted", help="Only deleted files whose content is complete.")
@click.option("-o", "--output", type=FileName(), metavar="FILE", help="Write here.  [default: stdout]")
@known_options
@click.option("--only-known", is_flag=True, help="Known files only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line for each file.")
@index_option
@key_option
@device_option
@force_option
@layout_option
def hashes(
    image: str, form: str, which: str | None, output: str | None, sets: tuple[str, ...], hide_known: bool,
    only_known: bool, as_json: bool, index_path: str | None, keys: tuple[str, ...], devices: tuple[str, ...],
    layout: Layout | None, force: bool,
) -> None:  # fmt: skip
    """Hashes of all files, living and deleted, as a set of known files; or those that such sets know, or don't.

    \b
    Example:
      f2tools hashes clean.img -o clean.hashes
      f2tools hashes card.img --known clean.hashes --hide-known
      f2tools hashes card.img --living --format sha256 | (cd /mnt && sha256sum -c)
    """
    require(bool(sets) or not (hide_known or only_known), "--hide-known and --only-known need a --known SET")
    require(not (hide_known and only_known), "--hide-known and --only-known contradict each other")
    must_be_free(output, force)
    from f2tools.forensics.known import deleted, living, mark, set_lines
    from f2tools.forensics.undelete import Undelete

    problems: list[str] = []
    lost: list[tuple[int, int]] = []
    with _open(image, devices, keys, layout) if which == "live" else nullcontext() as alone:
        if alone is not None:
            files = list(living(alone, problems))
        else:
            with _indexed(image, devices, index_path, keys, layout) as (volume, index):
                lost = index.tables.unreadable()
                files = [] if which else list(living(volume, problems))
                files += deleted(Undelete(volume, index), problems)
    for text in mark(files, sets):
        click.echo(f"f2tools: {printable(text)}", err=True)
    files = [one for one in files if not (hide_known and one.known) and (one.known or not only_known)]
    with newfile.text_output(output) as out:
        found = (json.dumps(one.as_dict()) for one in files) if as_json else set_lines(files, form, out.isatty())
        out.writelines(line + "\n" for line in found)
    for text in problems:
        click.echo(f"f2tools: {printable(text)}", err=True)
    if problems or lost or (only_known and not files):
        click.get_current_context().exit(1)
