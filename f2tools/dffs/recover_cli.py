"""`f2tools dffs recover`: what a power cut left, and putting it in order."""

from __future__ import annotations

from typing import Any

import click

from f2tools.errors import Usage
from f2tools.options import json_option, print_json, undo_option
from f2tools.text import printable


@click.command()
@click.argument("flash", type=click.Path(path_type=str))
@click.option("--apply", "applied", is_flag=True, help="Put it in order, as the next mount would.")
@undo_option
@json_option
def recover(flash: str, applied: bool, undo: str | None, as_json: bool) -> None:
    """Say what a power cut left; nothing is written without --apply.

    What was committed is there in any case.  What was written and never committed is given up: nothing ever led to it.

    \b
    Example:
      f2tools dffs recover card.nand
      f2tools dffs recover card.nand --apply --undo recover.undo
    """
    from f2tools.dffs.volume import open_volume

    if undo and not applied:
        raise Usage("--undo goes with --apply")
    with open_volume(flash) as volume:
        rolled = volume.rolled
        found: dict[str, Any] = {
            "needed": not volume.clean, "checkpoint": int(volume.state.head.number),
            "committed_pages": rolled.committed, "given_up_pages": rolled.pages - rolled.committed,
            "ids_written": len(rolled.ids), "blocks_entered": rolled.blocks,
        }  # fmt: skip
    if applied and found["needed"]:
        from f2tools.device.open import open_for_change
        from f2tools.dffs.write import open_for_writing

        device = open_for_change(flash, undo=undo)
        try:
            volume = open_for_writing(device)
        except BaseException:
            device.close()
            raise
        volume.close()
    found["applied"] = applied and found["needed"]
    if as_json:
        print_json({"image": flash, **found})
        return
    name = printable(flash)
    if not found["needed"]:
        click.echo(f"{name}: was closed; there is nothing to do")
        return
    click.echo(
        f"{name}: not closed; after checkpoint {found['checkpoint']} {found['committed_pages']} pages were committed "
        f"and count, {found['given_up_pages']} never were; {found['ids_written']} logical ids were written"
    )
    click.echo(f"{name}: {'put in order' if found['applied'] else 'the next opening for writing puts it in order'}")
