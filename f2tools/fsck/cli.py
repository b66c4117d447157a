"""The `f2tools fsck` command."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from f2tools.copyout.keep import NOTHING, Keep, keep_options
from f2tools.device import open_device
from f2tools.device.media.mounted import mounted_by_the_kernel
from f2tools.errors import F2fsError, NotF2fs, Unsealed, Usage
from f2tools.options import (
    FINDINGS_LEFT,
    FINE,
    REPAIRED,
    CheckCommand,
    FileName,
    Size,
    at_offset,
    device_option,
    human_size,
    image_argument,
    layout_option,
    print_json,
    progress,
)
from f2tools.text import copies_failing, counted, printable

if TYPE_CHECKING:
    from f2tools.device import Device
    from f2tools.f2fs.volume.geometry import Geometry
    from f2tools.f2fs.volume.layouts import Layout
    from f2tools.fsck.check import CheckReport
    from f2tools.fsck.fates import Fates
    from f2tools.fsck.findings import Finding
    from f2tools.fsck.newer import Newer
    from f2tools.fsck.repair.outcome import Outcome
    from f2tools.fsck.salvage import Preparation, Salvage

DONE_SHOWN = 30
CODE = re.compile(r"[A-Z]\d{3}")
GROUPS = {
    "find": "Look for what was lost, and put it back",
    "correct": "Correct fields",
    "give up": "Remove what leads nowhere",
    "tables": "Compute tables and checkpoint anew",
    "names": "Put names back",
    "count": "Correct counts",
    "quota": "Write quota files anew",
}


def explain(ctx: click.Context, _: click.Parameter, codes: tuple[str, ...]) -> None:
    """Say what the catalogue knows of a code, and end."""
    if not codes or ctx.resilient_parsing:
        return
    from f2tools.fsck.problems import CATALOGUE

    for code in codes:
        problem = CATALOGUE.get(code.upper()) or next((p for p in CATALOGUE.values() if p.name == code), None)
        if problem is None:
            raise click.BadParameter(f"there is no problem {code!r}; docs/problems.md lists them", ctx)
        click.echo(f"{problem.code} {problem.name} ({problem.severity}): {problem.text}.")
        click.echo(f"{problem.meaning}")
        if problem.repair != "none":
            click.echo(f"What would put it right: {problem.repair}.")
    ctx.exit(FINE)


def _codes(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Codes of the catalogue."""
    from f2tools.fsck.problems import CATALOGUE

    return [code for code in CATALOGUE if code.startswith(incomplete.upper())]


def code_filter(only: tuple[str, ...], skip: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a code is wanted.  `N` stands for all codes that start so, `N003` for one."""
    from f2tools.fsck.problems import CATALOGUE

    def listed(words: tuple[str, ...]) -> list[str]:
        found = [word.strip().upper() for text in words for word in re.split(r"[,\s]+", text) if word.strip()]
        for word in found:
            if not any(code.startswith(word) for code in CATALOGUE):
                raise click.UsageError(f"there is no problem {word!r}")
        return found

    wanted, unwanted = listed(only), listed(skip)
    return lambda code: (not wanted or code.startswith(tuple(wanted))) and not code.startswith(tuple(unwanted) or "-")


@click.command(cls=CheckCommand)
@image_argument
@click.argument("more", nargs=-1, type=FileName(), metavar="[IMAGE]...")
@device_option
@click.option("-n", "dry", is_flag=True, help="Check only, change nothing: what happens without any option too.")
@click.option("-y", "yes", is_flag=True, help="Repair everything that can be, without asking.")
@click.option("-p", "preen", is_flag=True, help="Repair, but give nothing up: no name, no content and no attribute.")
@click.option("-a", "auto", is_flag=True, help="The same as -p.")
@click.option("-i", "interactive", is_flag=True, help="Ask before each group of repairs; no, where nobody can answer.")
@click.option("-f", "always", is_flag=True, help="Check even if the volume looks clean; always done, known to scripts.")
@click.option("--dry-run", is_flag=True, help="With -y, -p or -i: go through with it in memory, and write nothing.")
@click.option(
    "--undo", type=FileName(), metavar="FILE", help="Keep what is overwritten, for `f2tools undo FILE IMAGE`."
)
@click.option("--salvage", "salvage_to", metavar="DIR", type=FileName(file_okay=False),
              help="Copy what can be read into this new directory, with a report; the image is not touched.  A newer"
              " state behind a checkpoint that was hit goes into DIR/newer.")  # fmt: skip
@partial(keep_options, only_with="With --salvage: ")
@click.option("--rescue", is_flag=True,
              help="For the worst: look for nodes in every block, and say what a repair would make of them.  Writes"
              " only with -y, and then keeps an undo file; also goes with --salvage.")  # fmt: skip
@layout_option
@click.option("--force", is_flag=True,
              help="Repair though another file system was made over the volume, or blocks can't be read.")  # fmt: skip
@click.option("--data", is_flag=True, help="Also read compressed and sealed files and hold them to their checksums.")
@click.option("--json", "as_json", is_flag=True, help="Print a finding, repair or file a line, as JSON.")
@click.option("--only", multiple=True, metavar="CODES", help="Report only these: N003, or N for all of a letter.")
@click.option("--skip", multiple=True, metavar="CODES", help="Leave these out; the exit code is that of the others.")
@click.option("-v", "--verbose", "--every", is_flag=True, help="Fold no list: every finding, repair and file.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N",
              help="Processes that check several images.  [default: one for each CPU]")  # fmt: skip
@click.option("--memory", type=Size(), default="512M", show_default=True, help="How much may be used.")
@click.option("--explain", multiple=True, metavar="CODE", is_eager=True, expose_value=False, callback=explain,
              shell_complete=_codes,
              help="Say what a problem means, and end.")  # fmt: skip
@click.pass_context
def fsck(
    ctx: click.Context, image: str, more: tuple[str, ...], jobs: int | None, devices: tuple[str, ...], dry: bool,
    yes: bool, preen: bool, auto: bool, interactive: bool, always: bool, dry_run: bool, undo: str | None,
    salvage_to: str | None, rescue: bool, layout: Layout | None, force: bool, data: bool, keep: Keep, as_json: bool,
    only: tuple[str, ...], skip: tuple[str, ...], verbose: bool, memory: int,
) -> None:  # fmt: skip
    """Check every structure of a volume against every other, and say what is wrong and where.

    Writes only with -y, -p, -a or -i, and only a result that was checked before: the repair is made in memory first.
    What is lost is looked for before anything is removed: nodes by their footers, data by the summaries, names by what
    inodes remember, older copies in the log.

    Several images are checked in one call, with a line each.

    Where the volume can't be opened any more, --rescue says what can be found of it; --salvage with it copies files
    out; -y with it repairs, and keeps what is overwritten in IMAGE.undo in the current directory unless --undo names
    another file.

    Exit codes are those of fsck(8): 0 nothing of severity warning or above; 1 all of it repaired; 4 something is left;
    5 some of it repaired; 8 the image can't be checked; 16 wrong usage; 32 interrupted.

    \b
    Examples:
      f2tools fsck card.img
      f2tools fsck --json card.img
      f2tools fsck *.img --jobs 4
      f2tools fsck -y --undo before.undo card.img
      f2tools fsck -y --dry-run -v card.img
      f2tools fsck --rescue card.img
      f2tools fsck --explain D006
    """
    if salvage_to is not None and (yes or preen or auto or interactive or dry_run or undo):
        raise click.UsageError("--salvage leaves the image as it is; it goes with --rescue, --memory, --json and -v")
    if keep != NOTHING and salvage_to is None:
        raise click.UsageError("--same-owner, --devices, --special-bits and --all go with --salvage")
    if rescue and (preen or auto or interactive):
        raise click.UsageError("--rescue goes with -y, or without any option that writes")
    if layout is not None and not rescue and salvage_to is None:
        raise click.UsageError("--layout goes with --rescue or --salvage")
    if salvage_to is not None:
        result = _salvaged(image, devices, salvage_to, keep, memory, _preparation(rescue, layout))
        ctx.exit(_say_salvaged(result, as_json, verbose))
    repairing = yes or preen or auto or interactive
    if sum((dry, yes, preen or auto, interactive)) > 1:
        raise click.UsageError("-n, -y, -p and -i exclude each other")
    if more:
        if repairing or rescue or devices or only or skip:
            raise click.UsageError("several images are checked, and nothing else; repair them one by one")
        ctx.exit(_check_many((image, *map(at_offset, more)), jobs, memory, data, as_json))
    if undo and not repairing:
        raise click.UsageError("--undo goes with -y, -p, -a or -i")
    if (repairing or rescue) and (only or skip):
        raise click.UsageError("--only and --skip choose what is reported; a repair looks at everything")
    _say_mounted(image)
    report, geo, other = _checked(image, devices, memory, data, code_filter(only, skip), rescue)
    _say_findings(image, report, geo, as_json, verbose, last=not (repairing or rescue))
    if not (as_json or report.sound or repairing or rescue):
        from f2tools.fsck.next_steps import say_next_step

        say_next_step(image, devices, other, report)
    if (report.sound and geo is not None) or not (repairing or rescue):
        ctx.exit(FINE if report.sound else FINDINGS_LEFT)
    way = Way(
        preen or auto, data, _ask if interactive else None, undo, dry_run or not repairing, verbose, rescue, layout,
        force, as_json,
    )  # fmt: skip
    if not _may_write_over(image, report, report.counts["H001"], way):
        ctx.exit(FINDINGS_LEFT)
    ctx.exit(_repaired(image, devices, report, memory, way))


def _say_findings(
    image: str, report: CheckReport, geo: Geometry | None, as_json: bool, verbose: bool, last: bool
) -> None:  # fmt: skip
    """What was found; as JSON with a summary where nothing comes after it."""
    if as_json:
        for finding in report.findings:
            _say_json("finding", finding.as_dict())
        if last:
            from f2tools.fsck.many import summary_dict

            _say_json("summary", summary_dict(image, report))
    elif geo is not None:
        from f2tools.fsck.report import lines_of

        for line in lines_of(report, printable(image), geo, verbose):
            click.echo(line)


def _say_mounted(image: str) -> None:
    """Warn where the kernel may change the volume meanwhile."""
    where = mounted_by_the_kernel(image)
    if where is not None:
        click.echo(
            f"f2tools: note: {printable(image)} is mounted on {printable(where)}; "
            "what the kernel changes meanwhile may look like damage", err=True,
        )  # fmt: skip


def _check_many(images: tuple[str, ...], jobs: int | None, memory: int, content: bool, as_json: bool) -> int:
    """A line for each image; all their exit codes in one, as fsck(8) has it."""
    from f2tools.fsck.many import check_many

    code = FINE
    for row in check_many(images, jobs, memory, content):
        code |= row.code
        if as_json:
            _say_json("summary", row.summary)
        else:
            click.echo(printable(row.said))
    return code


def _checked(
    path: str, devices: tuple[str, ...], memory: int, data: bool, wanted: Callable[[str], bool], rescue: bool
) -> tuple[CheckReport, Any, str]:
    """(report of a check, geometry, what was made over the volume); empty where it can't be opened and is rescued."""
    from f2tools.fsck.check import CheckReport, check
    from f2tools.fsck.facts.image import open_image
    from f2tools.fsck.problems import FSYNC_DATA, FSYNC_REFUSED

    try:
        image = open_image(path, devices)
    except NotF2fs as error:
        if not rescue:
            raise
        click.echo(f"f2tools: note: {printable(str(error))}", err=True)
        return CheckReport(), None, ""
    try:
        other = _say_what_is_above(image.raw, path)
        if image.raw.loss:
            click.echo(f"f2tools: note: {printable(path)}: {image.raw.loss}", err=True)
        _say_memory(image, memory)
        total = image.cp.valid_node_count if image.pack is not None else None
        with progress("checking", total) as bar:
            report = check(image, memory_bytes=memory, content=data, wanted=wanted, progress=bar.advance)
        report.tree = None  # it holds the image
        if report.resizing:
            then = "the same `f2tools resize` once more finishes it, before any repair"
            then = then if report.only_resizing else "more is wrong than that leaves"
            click.echo(f"f2tools: note: {printable(path)}: a resize was interrupted; {then}", err=True)
        if report.counts[FSYNC_DATA.code] and not report.counts[FSYNC_REFUSED.code]:
            from f2tools.f2fs.volume.volume import Volume
            from f2tools.remarks import say_state

            with suppress(F2fsError):
                say_state(Volume(image.device), path)
        return report, image.geo, other
    finally:
        image.close()


def _say_memory(image: Any, memory: int) -> None:
    """Say where a volume needs more memory than is allowed; it is checked all the same, as nothing else helps."""
    from f2tools.fsck.facts.scan import needed_bytes

    if image.pack is None:
        return
    nodes = min(image.cp.valid_node_count, image.geo.max_nid)
    needed = needed_bytes(nodes, min(image.cp.valid_inode_count, nodes))
    if needed > memory:
        click.echo(
            f"f2tools: note: {nodes:,} nodes take about {human_size(needed)} to check, more than the "
            f"{human_size(memory)} of --memory", err=True,
        )  # fmt: skip


class Way(NamedTuple):
    """How to repair, from the options."""

    careful: bool
    data: bool
    ask: Callable[[str, list[Finding]], bool] | None
    undo: str | None
    dry_run: bool
    verbose: bool
    rescue: bool
    layout: Layout | None
    force: bool
    as_json: bool


def _repaired(path: str, devices: tuple[str, ...], before: CheckReport, memory: int, way: Way) -> int:
    """Repair and say so; the exit code."""
    from f2tools.fsck.fates import fates_of
    from f2tools.fsck.losses import Losses
    from f2tools.fsck.next_steps import say_what_next, undo_name
    from f2tools.fsck.repair.rounds import Repairer

    device = open_device(path, write=not way.dry_run, extra=list(devices))
    undo, begun = None, False
    try:
        other = _must_not_be_another(device, path, way)
        wanted = None if way.dry_run else way.undo or (undo_name(path) if way.rescue else None)
        if wanted:
            from f2tools.device.changes.undo import UndoLog

            device, undo = UndoLog(device, wanted), wanted
        elif way.undo:
            from f2tools.device.changes.undo import must_be_free

            must_be_free(way.undo)
        losses, unread = Losses(device), before.counts["H001"]

        def watch(report: CheckReport) -> None:
            nonlocal unread
            unread = max(unread, report.counts["H001"])
            losses.watch(report)

        repairer = Repairer(device, memory, careful=way.careful, content=way.data, ask=way.ask, watch=watch)
        if way.rescue:
            from f2tools.fsck.rescue import prepare

            repairer.done += prepare(repairer.overlay, memory, way.layout)
        outcome = repairer.run(before)
        if unread > before.counts["H001"] and not _may_write_over(path, before, unread, way):
            return FINDINGS_LEFT
        _say_done(outcome.done, way)
        if outcome.better:
            losses.tree = outcome.after.tree or losses.tree
            _say_fates(fates_of(losses, repairer), way)
            if not way.dry_run:
                begun = True
                repairer.commit(device)
        _say_result(path, outcome, undo if begun else None, way, repairer.newer)
        if way.rescue and way.dry_run and outcome.better and not way.as_json:
            say_what_next(path, other)
    finally:
        try:
            device.close()
        except Unsealed as error:  # the exit code says that it was repaired
            click.echo(f"f2tools: {printable(str(error))}", err=True)
        if undo and not begun:  # there is nothing in it, and its name would be taken
            with suppress(OSError):
                os.unlink(undo)
    if way.dry_run or not outcome.better:
        return FINDINGS_LEFT
    return REPAIRED if outcome.complete else REPAIRED | FINDINGS_LEFT


def _say_done(done: list[str], way: Way) -> None:
    """What was done, in the stream of the findings."""
    if way.as_json:
        for line in done:
            code = line.partition(" ")[0]
            _say_json("repair", {"code": code if CODE.fullmatch(code) else None, "message": line})
        return
    for line in _folded([f"repair: {printable(line)}" for line in done], "repair", way.verbose):
        click.echo(line)


def _say_fates(found: Fates | None, way: Way) -> None:
    """What became of the files."""
    if found is None:
        click.echo("f2tools: note: what became of the files can't be told: the result can't be read", err=True)
        return
    if way.as_json:
        for fate in found.files:
            _say_json("file", fate.as_dict())
        _say_json("files", {"untouched": found.untouched, "counts": dict(found.counts)})
        return
    for line in _folded([f"file: {printable(fate.message)}" for fate in found.files], "file", way.verbose):
        click.echo(line)
    click.echo(f"files: {found.summary}")


def _folded(lines: list[str], what: str, everything: bool) -> list[str]:
    if everything or len(lines) <= DONE_SHOWN:
        return lines
    return [*lines[:DONE_SHOWN], f"{what}: ... and {len(lines) - DONE_SHOWN:,} more; --every shows all"]


def _say_result(path: str, outcome: Outcome, undo: str | None, way: Way, newer: Newer | None) -> None:
    """The state of the image now, what it is given up for, and what can be done next."""
    from f2tools.fsck.next_steps import command, say_given_up

    left = ", ".join(f"{code} ({count})" for code, count in sorted(outcome.left.items()))
    name, size = printable(path), human_size(outcome.written_bytes)
    written = outcome.better and not way.dry_run
    if way.as_json:
        _say_result_json(path, outcome, written, undo, newer)
    further = ""
    if (way.careful or not outcome.better) and outcome.before.counts["S009"]:
        further = "; get a whole copy of it"
    elif way.careful and not outcome.complete:
        further = f"; -p gives nothing up: {command('fsck -y --undo FILE', path)} repairs more, and says what is lost"
    elif outcome.before.only_too_long:
        further = f"; {command('resize', path, 'max')} makes it smaller, and sound"
    elif not (outcome.better or way.rescue):
        further = f"; {command('fsck --rescue', path)} tries more, and writes nothing"
    if newer is not None and outcome.better:
        say_given_up(path, newer, undo, dry_run=way.dry_run)
    if not outcome.better:
        click.echo(f"{name}: not repaired, nothing was written; left: {left}{further}", err=True)
        return
    if way.dry_run:
        what = "would be repaired" if outcome.complete else f"would be repaired but for {left}"
        click.echo(f"{name}: {what}; {size} to write, nothing was written", err=True)
        return
    if undo:
        takes_back = command("undo", undo, path)
        click.echo(f"{name}: what was overwritten is in {printable(undo)}; {takes_back} takes it back", err=True)
    click.echo(f"{name}: repaired{'' if outcome.complete else f' but for {left}'}; {size} written{further}", err=True)


def _say_result_json(
    path: str, outcome: Outcome, written: bool, undo: str | None, newer: Newer | None = None
) -> None:  # fmt: skip
    _say_json("result", {
        "image": path, "complete": outcome.complete, "written": written, "left": dict(outcome.left),
        "bytes": outcome.written_bytes if outcome.better else 0, "undo": undo,
        "given_up": newer._asdict() if newer is not None and outcome.better else None,
    })  # fmt: skip


def _say_json(record: str, fields: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps({"record": record, **fields}, default=str))


def _may_write_over(path: str, before: CheckReport, unread: int, way: Way) -> bool:
    """Whether a repair may write to a medium of which so many blocks can't be read; says why not, or warns."""
    from f2tools.fsck.next_steps import command

    if not unread:
        return True
    what = "a block" if unread == 1 else f"{unread} blocks"
    why = f"{what} of {printable(path)} can't be read: a repair writes over what is there, and no undo file has it"
    if way.dry_run or way.force or way.ask is not None:
        click.echo(f"f2tools: warning: {why}; `{copies_failing(path)}` copies what can be read first", err=True)
        return True
    if way.as_json:
        from f2tools.fsck.repair.outcome import Outcome

        _say_result_json(path, Outcome(before, before), written=False, undo=None)
    again = command(f"fsck {'-p' if way.careful else '-y'} --force", path)
    click.echo(
        f"f2tools: {why}.  Nothing was written: `{copies_failing(path)}` copies what can be read, and the copy can be"
        f" repaired; {again} repairs all the same", err=True,
    )  # fmt: skip
    return False


def _say_what_is_above(device: Device, path: str) -> str:
    """Say what was made over the volume, and return its name; empty where nothing was."""
    from f2tools.f2fs.volume.super import overwritten_by, read_superblocks

    other = overwritten_by(device, read_superblocks(device))
    if other:
        click.echo(
            f"f2tools: note: {printable(path)} holds {other} now, made over an older F2FS volume; what is found is of"
            " that one, and a repair of it destroys what is there now", err=True,
        )  # fmt: skip
    return other


def _must_not_be_another(device: Device, path: str, way: Way) -> str:
    """What was made over the volume, or empty; Usage where a repair would destroy that."""
    from f2tools.f2fs.volume.super import overwritten_by, read_superblocks
    from f2tools.fsck.next_steps import command

    other = overwritten_by(device, read_superblocks(device))
    if other and not way.dry_run and not way.force:
        raise Usage(
            f"{path}: holds {other} now; a repair of the F2FS volume that was there before destroys it.  Nothing was"
            f" written: {command('fsck --rescue --salvage DIR', path)} copies out what is left; --force"
            " repairs all the same"
        )
    return other


def _preparation(rescue: bool, layout: Layout | None) -> Preparation:
    """What is done to the overlay before files are copied out."""
    from f2tools.fsck.rescue import lay_out, prepare

    if rescue:
        return lambda overlay, memory: prepare(overlay, memory, layout)
    return lambda overlay, memory: lay_out(overlay, layout)


def _salvaged(
    path: str, devices: tuple[str, ...], target: str, keep: Keep, memory: int, preparation: Preparation
) -> Salvage:
    """Copy out what is readable."""
    from f2tools.fsck.salvage import salvage

    with open_device(path, extra=list(devices)) as device:
        result = salvage(device, path, target, keep=keep, memory_bytes=memory, prepare=preparation)
        _say_what_is_above(device, path)  # now that there is a volume below it
        return result


def _say_salvaged(result: Salvage, as_json: bool, verbose: bool) -> int:
    """What was copied out; the exit code: 0 when nothing is missing, else 4."""
    from f2tools.fsck.salvage import lines_of

    if as_json:
        print_json(result.as_dict())
    else:
        for line in lines_of(result, verbose):
            click.echo(line)
    return FINE if result.complete else FINDINGS_LEFT


def _ask(group: str, findings: list[Finding]) -> bool:
    """Ask about a group of repairs; the answer is no where nobody can be asked."""
    codes = ", ".join(sorted({finding.code for finding in findings}))
    text = f"{GROUPS.get(group, group)} ({counted(len(findings), 'finding')}: {codes})"
    if not sys.stdin.isatty():
        click.echo(f"{printable(text)}: no, as nobody can be asked", err=True)
        return False
    return click.confirm(f"{text}?", err=True)
