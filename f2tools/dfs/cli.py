"""The `f2tools dfs` group: volumes of the Direct File System made, checked, and looked into."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from f2tools.dfs.dump_cli import dump
from f2tools.dfs.mount_cli import mount
from f2tools.errors import Usage
from f2tools.groups import Group
from f2tools.options import (
    CheckCommand,
    FileName,
    Share,
    Size,
    dry_run_option,
    human_size,
    json_option,
    print_json,
    progress,
    undo_option,
)
from f2tools.repair_cli import Made, Wanted, check_applying, exit_code, make, repair_options, say, wanted
from f2tools.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from f2tools.dfs.check import DfsReport
    from f2tools.dfs.recover import DfsRecoveryPlan
    from f2tools.dfs.report import Claims


@click.group(cls=Group)
def dfs() -> None:
    """The Direct File System: files at addresses that follow from their numbers, over a storage layer in an image.

    \b
    Example:
      f2tools dfs mkfs card.dfs --size 256M
      f2tools dfs dump info card.dfs
    """


@dfs.command()
@click.argument("image", type=FileName())
@click.option("--size", type=Size(), required=True, help="How much it can hold, for example 256M.")
@click.option("--chunk", type=Size(), default="2T", show_default=True, help="Size of a chunk: the largest file.")
@click.option("--small-file", type=Size(), default="32K", show_default=True,
              help="Files up to this size share chunks; a larger one has its own.")  # fmt: skip
@click.option("--op", type=Share(), default="10%", show_default=True, metavar="PERCENT",
              help="Over-provisioning: so much more than --size, for cleaning to be cheap.")  # fmt: skip
@click.option("--directories", type=click.Choice(["log", "hashed"]), default="log", show_default=True,
              help="Lists of names, changed through a log; or hashed, changed by atomic writes.")  # fmt: skip
@click.option(
    "--from", "source", type=FileName(), metavar="DIR|TAR|-", help="Fill it with these files; - is an archive on stdin."
)
@click.option("--no-xattrs", is_flag=True, help="With --from: leave out extended attributes and ACLs.")
def mkfs(
    image: str,
    size: int,
    chunk: int,
    small_file: int,
    op: float,
    directories: str,
    source: str | None,
    no_xattrs: bool,
) -> None:
    """Make a new image with a volume, empty or filled.  The file is sparse: it takes what is written to it.

    \b
    Examples:
      f2tools dfs mkfs card.dfs --size 256M
      f2tools dfs mkfs card.dfs --size 64M --chunk 1G --small-file 4K
      f2tools dfs mkfs card.dfs --size 1G --directories hashed --from photos
    """
    from f2tools.dfs.mkfs import make_image

    if no_xattrs and source is None:
        raise Usage("--no-xattrs goes with --from")
    report = None
    shape: dict[str, Any] = {
        "chunk_bytes": chunk,
        "slot_bytes": small_file,
        "hashed": directories == "hashed",
        "overprovision": op,
    }
    if source is None:
        geo = make_image(image, size, **shape)
    else:
        from f2tools.copyin.filling import read_source
        from f2tools.dfs.fill import make_filled_image

        with closing(read_source(source, xattrs=not no_xattrs)) as tree:
            with progress("filling", len(tree.entries)) as bar:
                geo, report = make_filled_image(image, size, tree, bar.advance, **shape)
            for note in tree.notes:
                click.echo(f"f2tools: note: {printable(note)}", err=True)
    click.echo(
        f"{printable(image)}: holds {human_size(size)}; files up to {human_size(geo.max_size)}, {geo.max_ino} of them "
        "at most"
    )
    if report is not None:
        directories = counted(report.directories, "directory", "directories")
        click.echo(f"filled with {counted(report.files, 'file')} and {directories}, {human_size(report.bytes)}")


@dfs.command(cls=CheckCommand)
@click.argument("image", type=FileName())
@repair_options
@json_option
def fsck(image: str, no: bool, yes: bool, dry_run: bool, undo: str | None, as_json: bool) -> None:
    """Check a volume; say what is wrong and where.

    Writes only with -y, and only a repair that was made in memory first and checked.  A file without a name gets one
    back that the log of the layer still has, or goes to /lost+found; losses are reported.  A repair that was killed is
    done again by the same command.

    Exit codes are those of fsck(8): 0 for a sound volume, also after a power cut; 1 damage, and all of it repaired; 4
    damage is left; 8 where it can't be checked; 16 wrong usage; 32 interrupted.  The layer below is checked by
    `f2tools vsl check`, which reads all content too.

    \b
    Examples:
      f2tools dfs fsck card.dfs
      f2tools dfs fsck -y --dry-run card.dfs
      f2tools dfs fsck -y --undo before.undo card.dfs
    """
    from f2tools.dfs.check import check
    from f2tools.dfs.volume import open_volume

    asked = wanted(no, yes, dry_run, undo)
    with open_volume(image) as volume, progress("inodes", None) as bar:
        report = check(volume, bar.advance)
    made = None if report.sound or not asked.repair else _repaired(image, asked)
    if as_json:
        print_json({"image": image, **report.as_dict(), **({} if made is None else {"repair": made.as_dict()})})
    else:
        _say_report(image, report)
        if made is not None:
            say(image, made, asked, "f2tools dfs dump extract")
    sys.exit(exit_code(report.sound, made))


def _repaired(image: str, asked: Wanted) -> Made:
    from f2tools.dfs.repair import rehearse, repair_image

    now = time.time_ns()
    return make(asked, lambda: rehearse(image, now), lambda undo: repair_image(image, now, undo))


def _say_report(image: str, report: DfsReport) -> None:
    for finding in report.findings:
        click.echo(printable(str(finding)))
    for line in _said_of(report):
        click.echo(f"{printable(image)}: {line}")
    verdict = "sound" if report.sound else f"damaged, {counted(len(report.findings), 'finding')}"
    click.echo(
        f"{printable(image)}: {verdict}; {report.inodes} inodes, {report.directories} of them directories, "
        f"{report.mapped_blocks} blocks mapped"
    )


def _said_of(report: DfsReport) -> list[str]:
    """The changes that a repair, or the next opening for writing, will make."""
    if report.lost_pages:
        return ["-y can't bring back what lost pages held: it gives that up, and makes sound what is there"]
    if report.clean:
        return []
    lines = ["not closed; the next opening for writing puts it in order"]
    if report.waiting is not None:
        lines.append(f"transaction {report.waiting} of the write-ahead log counts as done")
    if report.left_over:
        lines.append(f"{report.left_over} blocks of content that never became part of a file")
    if report.nameless:
        lines.append(f"{report.nameless} files without a name, which were open or had just been deleted")
    return lines


@dfs.command()
@click.argument("image", type=FileName())
@click.option("--apply", "apply", is_flag=True, help="Do it, and close the volume.")
@dry_run_option
@undo_option
@json_option
def recover(image: str, apply: bool, dry_run: bool, undo: str | None, as_json: bool) -> None:
    """Explain what a power cut left and how it is put in order; with --apply, do it.

    The transaction in the write-ahead log counts as done; files that were open without a name are removed, and so is
    content that never became part of a file.  The next opening for writing, such as a mount, does the same.

    \b
    Examples:
      f2tools dfs recover card.dfs
      f2tools dfs recover card.dfs --apply --undo before.undo
    """
    from f2tools.dfs.recover import apply as put_in_order
    from f2tools.dfs.recover import make_plan

    check_applying(apply, dry_run, undo)
    plan = make_plan(image)
    if apply and plan.needed:
        put_in_order(image, undo, dry_run=dry_run)
    applied = apply and plan.needed and not dry_run
    if as_json:
        print_json({"image": image, **plan.as_dict(), "applied": applied})
        return
    for line in _lines_of(plan):
        click.echo(printable(line))
    if plan.needed and plan.doubt is None:
        click.echo("done" if applied else "nothing was written; --apply does it, and so does the next mount")


def _lines_of(plan: DfsRecoveryPlan) -> Iterator[str]:
    """A plan for people."""
    if plan.doubt is not None:
        yield f"not to be recovered as it is: {plan.doubt}"
    if not plan.needed:
        yield "closed; there is nothing to recover"
        return
    yield f"not closed; {plan.log_blocks_read} blocks of the layer's log were read for what was appended last"
    if plan.transaction is None:
        yield "no transaction waits in the write-ahead log"
    else:
        yield f"brought back: transaction {plan.transaction} of the write-ahead log"
    for one in plan.changes:
        yield f"  {one.what} {one.ino}{_path(one.path)}: {one.text}"
    if plan.given_up:
        yield "given up, as it never became safe:"
    for one in plan.given_up:
        yield f"  {one.what} of inode {one.ino}{_path(one.path)}: {one.text}"


def _path(path: str | None) -> str:
    return "" if path is None else f" ({path})"


@dfs.command()
@json_option
def report(as_json: bool) -> None:
    """Measure what the article claims, on small volumes in a temporary directory; what an image has says dump info.

    \b
    Example:
      f2tools dfs report
    """
    from f2tools.dfs.report import LARGE, measure

    claims = measure()
    if as_json:
        print_json(claims.as_dict())
        return
    click.echo(f"requests to open a file in the root: {claims.reads_to_open} reads, of root, its entries and the inode")
    large = claims.reads_to_open_in_large
    click.echo(f"among {LARGE} files: {large['log']} reads; with hashed directories {large['hashed']}")
    click.echo(f"\n{'offset in the file':>20} {'reads':>6} {'nodes that F2FS reads first':>28}")
    for offset, reads in claims.reads_per_block.items():
        click.echo(f"{offset:>20,} {reads:>6} {claims.f2fs_node_reads[offset]:>28}")
    click.echo(
        f"\na file of {human_size(claims.sparse_size)} with {claims.sparse_blocks} blocks written takes these and its "
        f"inode: {claims.mapped_by_file} blocks; deleting it gave back {claims.given_back_by_delete}"
    )
    click.echo(
        f"\n{'load':<26} {'directories':<11} {'asked':>12} {'requests':>9} {'written':>12} {'flushes':>8} {'mapped':>8}"
    )
    for load in claims.loads:
        click.echo(
            f"{load.name:<26} {load.directories:<11} {load.asked_bytes:>12,} {load.requests:>9,} "
            f"{load.written_bytes:>12,} {load.flushes:>8,} {load.mapped_blocks:>8,}"
        )
    _say_beside(claims)
    lines = claims.lines
    click.echo(
        f"\nlines of code: {lines['dfs']:,}, and {lines['layer']:,} of the layer below; of F2FS in f2tools "
        f"{lines['f2fs']:,}, {lines['f2fs'] / lines['dfs']:.1f} times as many"
    )


def _say_beside(claims: Claims) -> None:
    """Direct writes, and what others sent for the same calls."""
    from f2tools.dfs.report import DIRECT, DIRECTORIES

    click.echo(f"\n{'500 random writes of 4 KiB in':<30} {'reads':>8} {'requests':>9} {'written':>12}")
    for name, sent in claims.aligned.items():
        click.echo(f"{name:<30} {sent['reads']:>8,} {sent['requests']:>9,} {sent['written_bytes']:>12,}")
    made = claims.beside["made"]
    click.echo(f"\nthe same calls, on a virtual disk by Linux {made['kernel']} on {made['date']}, requests merged:")
    click.echo(f"{'load':<26} {'system':<11} {'requests':>9} {'written':>12} {'flushes':>8}")
    own = {(load.name, load.directories): load for load in claims.loads}
    for name, systems in claims.beside["loads"].items():
        same = str(DIRECT.get(name, name))
        loads = ((kind, own[same, kind]) for kind in DIRECTORIES)
        rows = [(f"DFS, {kind}", load.merged_requests, load.written_bytes, load.flushes) for kind, load in loads]
        rows += [(system, sent["requests"], sent["written_bytes"], sent["flushes"]) for system, sent in systems.items()]
        for number, (system, requests, written, flushes) in enumerate(rows):
            click.echo(f"{'' if number else name:<26} {system:<11} {requests:>9,} {written:>12,} {flushes:>8,}")


dfs.add_command(dump)
dfs.add_command(mount)
