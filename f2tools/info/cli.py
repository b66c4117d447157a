"""`f2tools info`: one command for an image of unknown content."""

from __future__ import annotations

import click

from f2tools.options import device_option, image_argument, json_option, print_json
from f2tools.text import printable


@click.command()
@image_argument
@device_option
@json_option
def info(image: str, devices: tuple[str, ...], as_json: bool) -> None:
    """Show what IMAGE holds: F2FS, DFS, DFFS, a virtualized storage layer or a foreign system; and one screen about it.

    What the tools for it say with `dump info` or `vsl info` follows.  Nothing is written.

    \b
    Example:
      f2tools info card.img
    """
    from f2tools.device.media.remote import without_credentials
    from f2tools.info.holds import look

    found = look(image, devices)
    image = without_credentials(image)
    for note in found.notes:
        click.echo(f"f2tools: note: {printable(note)}", err=True)
    if as_json:
        print_json({"image": image, "kind": found.kind, "holds": found.name, "info": found.facts})
        return
    click.echo(f"{printable(image)}: {found.name}")
    found.show()
