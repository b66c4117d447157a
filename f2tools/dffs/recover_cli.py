"""`f2tools dffs recover`: what a power cut left, and putting it in order."""

from __future__ import annotations

import click

from f2tools.options import FileName, dry_run_option, json_option, print_json, undo_option
from f2tools.repair_cli import check_applying
from f2tools.text import command_line, printable


@click.command()
@click.argument("flash", type=FileName())
@click.option("--apply", "apply", is_flag=True, help="Put it in order, as the next mount would.")
@dry_run_option
@undo_option
@json_option
def recover(flash: str, apply: bool, dry_run: bool, undo: str | None, as_json: bool) -> None:
    """Say what a power cut left; nothing is written without --apply.

    What was committed is there in any case.  What was written and never committed is given up: nothing ever led to it.
    A checkpoint of one page puts the volume in order: if the command is killed before that, nothing has changed.

    \b
    Examples:
      f2tools dffs recover card.nand
      f2tools dffs recover card.nand --apply --dry-run
      f2tools dffs recover card.nand --apply --undo recover.undo
    """
    from f2tools.dffs.recover import look, put_in_order

    check_applying(apply, dry_run, undo)
    found = look(flash)
    if apply and found.needed:
        put_in_order(flash, undo, dry_run=dry_run)
    applied = apply and found.needed and not dry_run
    if as_json:
        print_json({"image": flash, **found.as_dict(), "applied": applied})
        return
    name = printable(flash)
    if not found.needed:
        click.echo(f"{name}: was closed; there is nothing to do")
        return
    click.echo(
        f"{name}: not closed; after checkpoint {found.checkpoint} {found.committed_pages} pages were committed "
        f"and count, {found.given_up_pages} never were; {found.ids_written} logical ids were written"
    )
    if applied:
        click.echo(f"{name}: put in order")
        if undo:
            click.echo(f"`{command_line('f2tools undo', undo, flash)}` takes that back")
    elif dry_run:
        click.echo(f"{name}: nothing was written; it can be put in order")
    else:
        click.echo(f"{name}: --apply puts it in order, and so does the next opening for writing")
