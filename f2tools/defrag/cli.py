"""`f2tools defrag`: files in one piece, in order; blocks moved from here to there; how fragmented a volume is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import click

from f2tools import newfile
from f2tools.errors import F2fsError, Usage
from f2tools.options import (
    Address,
    FileName,
    device_option,
    dry_run_option,
    human_size,
    image_argument,
    json_option,
    print_json,
    progress,
    undo_option,
)
from f2tools.pictures.files import unfinished
from f2tools.text import counted, printable, printable_name

if TYPE_CHECKING:
    from f2tools.defrag.block_range import Moved
    from f2tools.defrag.defrag import Outcome
    from f2tools.defrag.files import FileMap
    from f2tools.f2fs.write.volume import WritableVolume

DRAWN = 4  # files in the text, and more in the picture
DRAWN_SVG = 12
SAID = 10  # files that are worse than they could be


@dataclass(frozen=True)
class Where:
    """The image and how it is changed."""

    image: str
    devices: tuple[str, ...]
    dry_run: bool
    undo: str | None


@click.command()
@image_argument
@click.argument("paths", nargs=-1)
@click.option("--paths", "more_paths", multiple=True, metavar="PATH", help="The same as an argument (repeatable).")
@click.option(
    "--sort",
    type=click.Choice(["path", "size", "access-list"]),
    help="Lay the files down one behind the other: by path, small ones first, or as --access-list has them.",
)
@click.option(
    "--access-list",
    type=FileName(),
    metavar="FILE",
    help="Paths in the order in which they are read at boot, one a line.",
)
@click.option("--pinned", is_flag=True, help="Move pinned files too; not if something knows their block addresses.")
@click.option("--report", "only_report", is_flag=True, help="Only say how fragmented files and free space are.")
@click.option("-s", "--start", type=Address(), metavar="BLOCK", help="Move a range of blocks: the first of them.")
@click.option("-l", "--length", type=Address(), metavar="COUNT", help="How many; 512 if not said.")
@click.option("-t", "--target", type=Address(), metavar="BLOCK", help="Where to; beside the range if not said.")
@click.option("-i", "--left", is_flag=True, help="To the free blocks left of the target, instead of from it on.")
@click.option("-f", "--force", is_flag=True, help="Move a range though files get more fragments by it.")
@click.option("--svg", type=FileName(), metavar="FILE", help="Draw files and segments into FILE.")
@device_option
@dry_run_option
@undo_option
@json_option
def defrag(
    image: str, paths: tuple[str, ...], more_paths: tuple[str, ...], sort: str | None, access_list: str | None,
    pinned: bool, only_report: bool, start: int | None, length: int | None, target: int | None, left: bool,
    force: bool, svg: str | None, devices: tuple[str, ...], dry_run: bool, undo: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Make files contiguous: those at and below PATHS, or all.

    Only files in more fragments than necessary are moved, each as a whole where a free run is long enough, else some
    neighbouring fragments of it; where no run is long enough, sections are emptied.  No file ever has more fragments
    than before.  Content is copied as it is, compressed or encrypted; holes and preallocated blocks, times and the logs
    (hot, warm, cold) stay.  Pinned files stay where they are without --pinned, aliases of devices always.

    A fragment is a stretch of blocks that follow each other in the file and on the device; holes don't end one.  The
    score of --report is 0 where there are as few as can be, and 100 where no two blocks lie one after the other.

    With --sort all chosen files are laid down one behind the other.  With -s, -l or -t a range of blocks is moved, as
    defrag.f2fs does, to the nearest free blocks from the target on.

    --dry-run does the same work in memory, so its figures are exact.  Exit code 1 when files are left in more fragments
    than necessary, or without a place in the order.

    \b
    Examples:
      f2tools defrag card.img --report
      f2tools defrag card.img /var/log --dry-run
      f2tools defrag card.img --access-list boot.txt --undo before.undo --svg boot.svg
      f2tools defrag card.img -s 0x4000 -l 0x100 -t 0x10000 -i
    """
    by_range = start is not None or length is not None or target is not None or left
    if sum((by_range, only_report, bool(sort or access_list))) > 1:
        raise Usage("--report, --sort and moving a range (-s -l -t -i) exclude each other")
    if by_range and (paths or more_paths or svg or pinned):
        raise Usage("a range of blocks is moved whatever files it belongs to: no paths, --pinned nor --svg")
    if (sort == "access-list" and not access_list) or (access_list and sort not in (None, "access-list")):
        raise Usage("--sort access-list and --access-list FILE belong together")
    if access_list and (paths or more_paths):
        raise Usage("--access-list says which files; leave out the paths")
    newfile.only_over_its_kind(*filter(None, [undo]), svg=svg)
    where = Where(image, devices, dry_run, undo)
    chosen = (*paths, *more_paths) or ("/",)
    if only_report:
        _report(where, chosen, svg, as_json)
    elif by_range:
        _move_range(where, (start, length, target, left), force, as_json)
    else:
        _defrag(where, chosen, access_list, "access-list" if access_list else sort, pinned, svg, as_json)


# -- the three things it does -----------------------------------------------------------------------------------------


def _report(where: Where, paths: tuple[str, ...], svg: str | None, as_json: bool) -> None:
    from f2tools.defrag.report import report
    from f2tools.f2fs.volume.volume import open_volume

    with unfinished(svg) as picture, open_volume(where.image, where.devices) as volume:
        found = report(volume, paths)
        if picture:
            _draw(picture, f"{os.path.basename(where.image)}: {len(found.fragmented)} fragmented files", volume.geo,
                  [("now", found.vblocks)], [(file, None) for file in found.fragmented[:DRAWN_SVG]])  # fmt: skip
    if as_json:
        print_json({"image": where.image, **found.as_dict()})
        return
    for line in found.lines():
        click.echo(line)


def _defrag(
    where: Where, paths: tuple[str, ...], access_list: str | None, sort: str | None, pinned: bool, svg: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    from f2tools.defrag.defrag import Defrag
    from f2tools.defrag.files import chosen_files
    from f2tools.f2fs.volume.glob import expand_all

    listed = _read_list(access_list) if access_list else None
    problems: list[tuple[bytes, str]] = []
    with unfinished(svg) as picture, _opened(where) as volume:
        if listed is None:
            files = chosen_files(volume, expand_all(volume, paths), problems)
            files.sort(key=(lambda file: (file.i_size, file.path)) if sort == "size" else (lambda file: file.path))
        else:
            files = _those_listed(volume, listed, problems)
        most = sum(file.blocks for file in files if sort or file.fragments > file.ideal)
        with progress("blocks moved", most) as bar:
            run = Defrag(volume, pinned, bar.advance)
            outcome = run.ordered(files) if sort else run.contiguous(files)
        if picture:
            title = f"{os.path.basename(where.image)}: {counted(outcome.moved_files, 'file')} moved"
            heat = [("before", outcome.state_before.vblocks), ("after", outcome.state_after.vblocks)]
            _draw(picture, title, volume.geo, heat, list(_changed(outcome))[:DRAWN_SVG])
        blocks_per_seg, block_size = volume.geo.blocks_per_seg, volume.geo.block_size
    if as_json:
        said = {"image": where.image, "written": not where.dry_run, "sort": sort}
        print_json({**said, **outcome.as_dict(), "problems": [{"path": p, "message": t} for p, t in problems]})
    else:
        for line in _lines(where, outcome, bool(sort), blocks_per_seg, block_size):
            click.echo(line)
    for path, text in problems:
        click.echo(f"f2tools: not moved: {printable(os.fsdecode(path))}: {text}", err=True)
    if outcome.left or problems:
        sys.exit(1)


def _move_range(
    where: Where, given: tuple[int | None, int | None, int | None, bool], force: bool, as_json: bool
) -> None:
    from f2tools.defrag.block_range import move_range, range_of

    with _opened(where) as volume:
        wanted = range_of(volume, *given)
        with progress("blocks moved", wanted.count) as bar:
            moved = move_range(volume, wanted, force, bar.advance)
    note = " (dry run, nothing written)" if where.dry_run else ""
    if as_json:
        print_json({"image": where.image, "written": not where.dry_run, **_range_dict(moved)})
        return
    click.echo(
        f"{printable(where.image)}: {counted(moved.data_blocks, 'data block')} and "
        f"{counted(moved.node_blocks, 'node block')} of {wanted.start:#x} to {wanted.start + wanted.count - 1:#x} moved"
        + (f" to {moved.first:#x} to {moved.last:#x}{note}" if moved.first else note)
    )
    for old, new in moved.files:
        if old.fragments != new.fragments:
            click.echo(f"inode {old.ino}: fragments {old.fragments} -> {new.fragments}")


def _range_dict(moved: Moved) -> dict[str, Any]:
    return {
        "data_blocks_moved": moved.data_blocks,
        "node_blocks_moved": moved.node_blocks,
        "first": moved.first,
        "last": moved.last,
        "files": [{"ino": old.ino, "fragments": [old.fragments, new.fragments]} for old, new in moved.files],
    }


# -- its parts --------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(where: Where) -> Iterator[WritableVolume]:
    from f2tools.device import open_for_change
    from f2tools.f2fs.write.volume import WritableVolume

    device = open_for_change(where.image, extra=where.devices, dry_run=where.dry_run, undo=where.undo)
    try:
        volume = WritableVolume(device)
    except BaseException:
        device.close()
        raise
    with volume:
        yield volume


def _read_list(path: str) -> list[bytes]:
    """Paths, one a line; empty lines and those that begin with # are left out."""
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise Usage(f"{path}: {error.strerror}") from None
    return [line for line in lines if line.strip() and not line.startswith(b"#")]


def _those_listed(volume: WritableVolume, listed: list[bytes], problems: list[tuple[bytes, str]]) -> list[FileMap]:
    """The files of a list, in its order, each once; what is not there any more goes into `problems`."""
    from f2tools.defrag.files import map_file

    found: dict[int, FileMap] = {}
    for path in listed:
        try:
            file = volume.path(path)
            if file.inode.ino not in found:
                found[file.inode.ino] = map_file(volume, file.inode, file.path or path)
        except (OSError, F2fsError) as error:
            problems.append((path, str(error.strerror if isinstance(error, OSError) else error)))
    return list(found.values())


def _changed(outcome: Outcome) -> Iterator[tuple[FileMap, FileMap]]:
    """Files whose data moved, before and after, those that gained most first."""
    pairs = zip(outcome.before, outcome.after, strict=True)
    moved = [(old, new) for old, new in pairs if old.runs.tolist() != new.runs.tolist()]
    yield from sorted(moved, key=lambda pair: pair[1].fragments - pair[0].fragments)


def _lines(where: Where, outcome: Outcome, ordered: bool, blocks_per_seg: int, block_size: int) -> Iterator[str]:
    from f2tools.defrag.picture import file_lines, heat_lines
    from f2tools.defrag.report import free_lines

    changed = list(_changed(outcome))
    if changed:
        yield "fragments before and after:"
        yield from file_lines(changed[:DRAWN])
        if len(changed) > DRAWN:
            yield f"... and {len(changed) - DRAWN} more files"
        for name, state in (("before", outcome.state_before), ("after", outcome.state_after)):
            yield ""
            yield f"valid blocks in segments {name}:"
            yield from heat_lines(state.vblocks, blocks_per_seg)
        yield ""
        yield from free_lines(outcome.state_after.free_runs, block_size)
        yield ""
    for file, why in outcome.left[:SAID]:
        yield f"left: {printable_name(file.shown)} in {counted(file.fragments, 'fragment')}: {why}"
    if len(outcome.left) > SAID:
        yield f"... and {len(outcome.left) - SAID} more files left"
    old, new = outcome.fragments
    yield f"moved {counted(outcome.data_blocks, 'data block')} ({human_size(outcome.data_blocks * block_size)}) and " \
          f"{counted(outcome.node_blocks, 'node block')} of {counted(outcome.moved_files, 'file')}"  # fmt: skip
    if outcome.emptied_sections:
        yield f"emptied {counted(outcome.emptied_sections, 'section')} for them"
    files = len(outcome.before)
    yield f"fragments: {old} -> {new} in {files} {'file' if files == 1 else 'files'}"
    if ordered:
        yield "jumps of a reader of all of them in order: {} -> {}".format(*outcome.jumps)
    before, after = outcome.state_before.free_sections, outcome.state_after.free_sections
    note = " (dry run, nothing written)" if where.dry_run else ""
    yield f"{printable(where.image)}: free sections {before} -> {after}{note}"


def _draw(picture: IO[bytes], title: str, geo: Any, heat: Any, files: Any) -> None:
    from f2tools.defrag.picture import svg

    drawn = svg(title, heat, files, (geo.main_blkaddr, geo.end_blkaddr), geo.blocks_per_seg)
    picture.write(drawn.encode(errors="replace"))
