"""What whoever reads a volume should know of the state that is shown: it may be old, or not all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from f2tools.device.media.remote import without_credentials
from f2tools.device.open import only_read
from f2tools.errors import F2fsError
from f2tools.f2fs.volume.recovery import files_behind, fsynced_files
from f2tools.text import command_line, printable

if TYPE_CHECKING:
    from f2tools.f2fs.volume.volume import Volume


def said_of_waiting(volume: Volume, image: str, *, option: bool = False) -> str:
    """How many files were fsync'ed after the checkpoint, and so are not shown, and how to see them; empty for none.

    `option`: the command has --recovered itself.
    """
    count = fsynced_files(volume)
    if not count:
        return ""
    behind = files_behind(volume)
    refused, image = only_read(image), without_credentials(image)
    contradicted = _is_contradicted(volume)
    files = "1 file was" if count == 1 else f"{count:,} files were"
    listed = "--recovered" if option else f"`{command_line('f2tools dump ls -R --recovered', image)}`"
    command = "f2tools fsck -y --undo before.undo" if behind or contradicted else "f2tools recover --apply"
    brings = f"`{command_line(command, image if refused is None else 'COPY')}` brings it back for good"
    if behind:
        brings += f", and what it can of {behind:,} more behind a damaged node, which any other change gives up (R004)"
    if refused is not None:
        made = f"`{refused.command}` makes a raw copy" if refused.command else "make a raw copy of it"
        brings = f"{refused.what} is not written to: {made}, in which {brings}"
    before = "" if contradicted else f"{listed} shows what is not seen here, "
    return f"{files} fsync'ed after the last checkpoint, before a crash; {before}{brings}"


def _is_contradicted(volume: Volume) -> bool:
    """Whether the tables contradict themselves or the logs, so that nothing can be brought back without a repair."""
    from f2tools.f2fs.volume.believable import must_be_believable

    try:
        must_be_believable(volume)
    except F2fsError:
        return True
    return False


def said_of_state(volume: Volume, image: str, *, option: bool = False) -> list[str]:
    """What a reader should know of the state shown: that files may be older, else what `said_of_waiting` says.

    Where they may be, a repair comes first, and brings back what was fsync'ed, too.
    """
    if volume.shown_older:
        return [volume.shown_older]
    waiting = said_of_waiting(volume, image, option=option)
    return [waiting] if waiting else []


def say_state(volume: Volume, image: str, *, option: bool = False) -> None:
    """Say on stderr what `said_of_state` has to say."""
    for text in said_of_state(volume, image, option=option):
        click.echo(f"f2tools: note: {printable(text)}", err=True)
