"""The `f2tools fsck` command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from f2tools.errors import F2fsError
from f2tools.options import Size, device_option, image_argument, progress

if TYPE_CHECKING:
    from f2tools.fsck.check import Report

FINE, FINDINGS_LEFT, FAILED, WRONG_USAGE, CANCELLED = 0, 4, 8, 16, 32  # fsck(8)


class WrongUsage(click.UsageError):
    """Wrong usage, with the exit code that fsck(8) has for it."""

    exit_code = WRONG_USAGE


class FsckCommand(click.Command):
    """A command with the exit codes of fsck(8), where 1 and 2 mean something else than elsewhere."""

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        try:
            return super().make_context(*args, **settings)
        except click.UsageError as error:
            raise WrongUsage(error.format_message(), error.ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise WrongUsage(error.format_message(), error.ctx) from None
        except F2fsError as error:
            error.exit_code = WRONG_USAGE if error.exit_code == 2 else FAILED
            raise
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise F2fsError(f"{error.filename or ''}: {error.strerror}") from None
        except (KeyboardInterrupt, click.Abort):
            click.echo("f2tools: interrupted", err=True)
            ctx.exit(CANCELLED)


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


@click.command(cls=FsckCommand)
@image_argument
@device_option
@click.option("-n", "dry", is_flag=True, help="Check only, change nothing: what happens without any option too.")
@click.option("-f", "force", is_flag=True, help="Check even if the volume looks clean; always done, known to scripts.")
@click.option("--data", is_flag=True, help="Also read compressed and sealed files and hold them to their checksums.")
@click.option("--json", "as_json", is_flag=True, help="Print one finding a line, as JSON.")
@click.option("--only", multiple=True, metavar="CODES", help="Report only these: N003, or N for all of a letter.")
@click.option("--skip", multiple=True, metavar="CODES", help="Leave these out.")
@click.option("-v", "--verbose", is_flag=True, help="Show every finding, however many there are of a kind.")
@click.option("--memory", type=Size(), default="512M", show_default=True, help="How much may be used.")
@click.option("--explain", multiple=True, metavar="CODE", is_eager=True, expose_value=False, callback=explain,
              help="Say what a problem means, and end.")  # fmt: skip
@click.pass_context
def fsck(
    ctx: click.Context, image: str, devices: tuple[str, ...], dry: bool, force: bool, data: bool, as_json: bool,
    only: tuple[str, ...], skip: tuple[str, ...], verbose: bool, memory: int,
) -> None:  # fmt: skip
    """Check every structure of a volume against every other, and say what is wrong and where.

    Never writes.  The exit code is 0 when nothing of severity warning or above was found, 4 otherwise, 8 when the image
    can't be checked, 16 for wrong usage and 32 when interrupted, as fsck(8) has it.

    \b
    Examples:
      f2tools fsck card.img
      f2tools fsck --json card.img
      f2tools fsck --only I,D --verbose card.img
      f2tools fsck --explain D006
    """
    wanted = code_filter(only, skip)
    report, geo = _checked(image, devices, memory, data, wanted)
    if as_json:
        for finding in report.findings:
            click.echo(json.dumps(finding.as_dict(), default=str))
    else:
        from f2tools.fsck.report import lines_of

        for line in lines_of(report, image, geo, verbose):
            click.echo(line)
    ctx.exit(FINE if report.sound else FINDINGS_LEFT)


def _checked(
    path: str, devices: tuple[str, ...], memory: int, data: bool, wanted: Callable[[str], bool]
) -> tuple[Report, Any]:
    from f2tools.fsck.check import check
    from f2tools.fsck.image import open_image

    image = open_image(path, devices)
    try:
        total = image.cp.valid_node_count if image.pack is not None else None
        with progress("checking", total) as bar:
            report = check(image, memory_bytes=memory, content=data, wanted=wanted, progress=bar.advance)
        return report, image.geo
    finally:
        image.close()
