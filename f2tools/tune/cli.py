"""`f2tools label` and `f2tools tune`."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import click

from f2tools.errors import F2fsError, Usage
from f2tools.options import (
    device_option,
    dry_run_option,
    image_argument,
    json_option,
    print_json,
    progress,
    undo_option,
)
from f2tools.text import command_line, printable

if TYPE_CHECKING:
    from f2tools.tune.tune import TunePlan, TuneRequest

NOTHING = "nothing to change"


def _words(values: tuple[str, ...]) -> list[str]:
    return [word for value in values for word in value.split(",") if word]


def _lists(values: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(to add, to take out) of words, of which those with a ! are taken out."""
    words = _words(values)
    return tuple(w for w in words if not w.startswith("!")), tuple(w[1:] for w in words if w.startswith("!"))


@click.command()
@image_argument
@click.argument("new", required=False)
@device_option
@dry_run_option
@undo_option
@json_option
def label(
    image: str, new: str | None, devices: tuple[str, ...], dry_run: bool, undo: str | None, as_json: bool
) -> None:
    """Print the label of a volume, or set it to NEW; '' takes it away.

    A label has at most 512 UTF-16 units.  Both copies of the superblock are written, one after the other.

    \b
    Examples:
      f2tools label card.img
      f2tools label card.img HOLIDAYS
    """
    from f2tools.tune.tune import TuneRequest, described

    if new is None:
        _reject(dry_run, undo)
        from f2tools.f2fs.volume.volume import open_volume

        with open_volume(image, devices) as volume:
            said = described(volume.sb)["label"]
        print_json({"image": image, "label": said}) if as_json else click.echo(printable(said))
        return
    _change(image, devices, TuneRequest(label=new), dry_run, undo, as_json)


def _features(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names for the last word of a list of features, with the ! before it."""
    from f2tools.tune.features import SWITCHES

    before, comma, last = incomplete.rpartition(",")
    mark = "!" if last.startswith("!") else ""
    return [before + comma + mark + name for name in SWITCHES if name.startswith(last.removeprefix("!"))]


def _reject(dry_run: bool, undo: str | None) -> None:
    if dry_run or undo:
        raise Usage("there is nothing to change: --dry-run and --undo are for changes")


@click.command()
@image_argument
@click.option("-L", "--label", "new_label", metavar="TEXT", help="Another label; '' takes it away.")
@click.option("-U", "--uuid", metavar="UUID|random", help="Another UUID.")
@click.option(
    "-O", "--features", multiple=True, metavar="FEATURE,...", shell_complete=_features,
    help="Switch features on, or off with a ! before the name (repeatable).",
)  # fmt: skip
@click.option("-C", "--encoding", metavar="NAME[:strict]", help="For casefold: utf8, which is the only one there is.")
@click.option(
    "-e", "--cold-extensions", multiple=True, metavar="EXT,...",
    help="More file name extensions of cold data; with a ! before it one is taken out (repeatable).",
)  # fmt: skip
@click.option(
    "-E", "--hot-extensions", multiple=True, metavar="EXT,...", help="The same for hot data (repeatable)."
)  # fmt: skip
@click.option("--salt", metavar="HEX|random|none", help="Another salt for keys of fscrypt that are made of a phrase.")
@device_option
@dry_run_option
@undo_option
@json_option
def tune(
    image: str, new_label: str | None, uuid: str | None, features: tuple[str, ...], encoding: str | None,
    cold_extensions: tuple[str, ...], hot_extensions: tuple[str, ...], salt: str | None, devices: tuple[str, ...],
    dry_run: bool, undo: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show or change what a volume says about itself: label, UUID, features, extensions.

    Without options it says which features are on, and which can be switched, or why they can't.  A feature is switched
    only where everything on the volume reads the same afterwards; where inodes must be rewritten for that (checksums
    and a new UUID, xattrs), or quota files made, it is done.  Exit code 1 when something can't be done, and then
    nothing is changed.

    A power cut during this leaves the same tree on a volume that mounts.  Where inodes are rewritten, inode_checksum
    may then be off, and quota files that nobody uses yet be left for fsck; `f2tools tune` shows what is on.

    \b
    Examples:
      f2tools tune card.img
      f2tools tune card.img --uuid random -O quota,casefold
      f2tools tune card.img -O '!inode_checksum' -e webp -E '!db' --dry-run
    """
    from f2tools.tune.tune import TuneRequest

    on, off = _lists(features)
    add_cold, drop_cold = _lists(cold_extensions)
    add_hot, drop_hot = _lists(hot_extensions)
    request = TuneRequest(
        new_label, None if uuid is None else _uuid(uuid), on, off, encoding, None if salt is None else _salt(salt),
        add_cold, drop_cold, add_hot, drop_hot,
    )  # fmt: skip
    if request == TuneRequest():
        _reject(dry_run, undo)
        _show(image, devices, as_json)
        return
    _change(image, devices, request, dry_run, undo, as_json)


def _uuid(text: str) -> bytes:
    if text == "random":
        return uuid4().bytes
    try:
        return UUID(text).bytes
    except ValueError:
        raise Usage(f"{text!r} is no UUID; write it like {UUID(int=0)}, or `random`") from None


def _salt(text: str) -> bytes:
    if text == "random":
        return os.urandom(16)
    if text == "none":
        return bytes(16)
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != 16:
        raise Usage(f"{text!r} is no salt: 16 bytes as 32 hexadecimal digits, `random` or `none`")
    return raw


def _change(
    image: str, devices: tuple[str, ...], request: TuneRequest, dry_run: bool, undo: str | None, as_json: bool
) -> None:
    from f2tools.device import open_device
    from f2tools.f2fs.volume.volume import Volume
    from f2tools.tune.tune import apply, plan

    with open_device(image, extra=devices, write=not dry_run) as device:  # judged before anything is opened to change
        made = plan(Volume(device), request)
    if not made.empty:
        from f2tools.device import open_for_change

        device = open_for_change(image, extra=devices, dry_run=dry_run, undo=undo)
        try:
            made = plan(Volume(device), request)
            with progress("inodes rewritten", None) as bar:
                apply(device, made, bar.advance)
        except OSError as error:
            if error.errno == errno.ENOSPC and not error.filename:  # the volume is full, not what it lies on
                raise _no_room(image, devices) from None
            raise
        finally:
            device.close()
    _say(image, made, dry_run, as_json)


def _no_room(image: str, devices: tuple[str, ...]) -> F2fsError:
    shows = command_line("f2tools tune", image, devices=devices)
    larger = command_line("f2tools resize", image, "SIZE", devices=devices)
    return F2fsError(
        f"{image}: no space is left in the volume for what this has to write; every file is as it was, and `{shows}`"
        f" shows what is on. Delete something, or make it larger (`{larger}`)"
    )


def _say(image: str, made: TunePlan, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"image": image, "written": not made.empty and not dry_run, **made.as_dict()})
        return
    for name, (old, new) in made.changes.items():
        click.echo(f"{name.replace('_', ' ')}: {_text(old, new)}")
    for note in made.notes:
        click.echo(f"note: {printable(note)}")
    if made.empty:
        click.echo(f"{printable(image)}: {NOTHING}: it is so already")
    elif dry_run:
        click.echo(f"{printable(image)}: dry run, nothing written")


def _text(old: Any, new: Any) -> str:
    if isinstance(old, list):
        gone = [f"-{one}" for one in old if one not in new]
        come = [f"+{one}" for one in new if one not in old]
        return printable(" ".join(come + gone))
    return printable(f"{old or '(none)'} -> {new or '(none)'}")


def _show(image: str, devices: tuple[str, ...], as_json: bool) -> None:
    from f2tools.f2fs.layout.constants import FEATURES
    from f2tools.f2fs.volume.volume import open_volume
    from f2tools.tune.facts import gather
    from f2tools.tune.features import why_not
    from f2tools.tune.tune import described

    with open_volume(image, devices) as volume:
        said = described(volume.sb)
        facts = gather(volume)
        feature = volume.sb.feature
    switches = {
        name: {"on": bool(feature & bit), "stays_because": why_not(name, not feature & bit, feature ^ bit, facts)}
        for name, bit in FEATURES.items()
    }
    if as_json:
        print_json({"image": image, **said, "switches": switches})
        return
    for name, value in said.items():
        if name != "features":
            text = " ".join(value) if isinstance(value, list) else str(value or "")
            click.echo(printable(f"{name.replace('_', ' '):<16} {text}").rstrip())
    click.echo("")
    for name, switch in switches.items():
        state = "on" if switch["on"] else "off"
        why = switch["stays_because"]
        click.echo(f"{name:<22} {state:<4} {f'stays: {why}' if why else 'can be switched'}")
