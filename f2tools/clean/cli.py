"""`f2tools clean`: win free sections on a volume that is not mounted, and show what it took."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from f2tools.errors import Usage
from f2tools.options import (
    device_option,
    dry_run_option,
    human_size,
    image_argument,
    json_option,
    print_json,
    progress,
    undo_option,
)
from f2tools.pictures.files import picture_options, pictures
from f2tools.text import counted, printable

if TYPE_CHECKING:
    from f2tools.clean.clean import Outcome
    from f2tools.pictures.svg import Picture


class Percent(click.ParamType):
    """A share of 100: `20%` or `20`."""

    name = "percent"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            share = float(str(value).removesuffix("%"))
        except ValueError:
            share = -1.0
        if not 0 <= share <= 100:
            self.fail(f"{value!r} is no percentage; write it like 20%", param, ctx)
        return share


@click.command()
@image_argument
@click.option(
    "--policy",
    type=click.Choice(["greedy", "cost-benefit", "age-threshold"]),
    default="greedy",
    show_default=True,
    help="Which section is cleaned next, as the kernel would choose.",
)
@click.option("--target-free", type=Percent(), metavar="PERCENT", help="Stop when so many of all sections are free.")
@click.option("--sections", type=click.IntRange(min=0), metavar="N", help="Stop when so many sections are cleaned.")
@click.option(
    "--discard",
    is_flag=True,
    help="Give the segments that become free back: an image file shrinks. On a storage layer all free ones, before and "
    "after cleaning: a full one has room again.",
)
@picture_options
@click.option("--simulate", is_flag=True, help="Compare policies and numbers of logs under a load; change nothing.")
@click.option(
    "--workload",
    type=click.Choice(["uniform", "zipf", "hot-cold"]),
    default="uniform",
    show_default=True,
    help="With --simulate: which blocks of files are overwritten, all alike, by a Zipf law, or mostly a tenth.",
)
@click.option(
    "--times",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="N",
    help="With --simulate: how often the data of the volume is overwritten.",
)
@click.option(
    "--days",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="N",
    help="With --simulate: how long that takes; sections get older with it.",
)
@device_option
@dry_run_option
@undo_option
@json_option
def clean(
    image: str, policy: str, target_free: float | None, sections: int | None, discard: bool, svg: str | None,
    png: str | None, simulate: bool, workload: str, times: float, days: float, devices: tuple[str, ...], dry_run: bool,
    undo: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Win free sections: move the valid blocks of dirty sections together, as the kernel's cleaner does.

    Without --target-free and --sections it goes on until nothing more can be won.  --dry-run does the same work in
    memory, so its figures are exact.  The histogram shows how many dirty segments hold how many valid blocks before and
    after.  The waf is the total cost of filling the sections won: the blocks that go there and those that cleaning
    wrote, per block that goes there.  Exit code 1 when a target was not reached.

    --simulate changes nothing.  It overwrites single blocks of the files, in a model of the volume as it is, once for
    each policy with 6, 4 and 2 logs, adaptive logging on and off, and says what each costs.

    \b
    Examples:
      f2tools clean card.img --dry-run
      f2tools clean card.img --target-free 20% --policy cost-benefit --undo before.undo
      f2tools clean card.img --discard --svg histogram.svg
      f2tools clean card.img --simulate --workload hot-cold --svg waf.svg
    """
    if target_free is not None and sections is not None:
        raise Usage("--target-free and --sections exclude each other")
    if simulate and (target_free is not None or sections is not None or discard or undo):
        raise Usage("--simulate changes nothing; --target-free, --sections, --discard and --undo are for cleaning")
    with pictures(svg, png) as draw:
        if simulate:
            _simulate(image, devices, workload, times, days, as_json, draw)
            return
        outcome = _clean(image, devices, policy, target_free, sections, discard, dry_run, undo)
        draw(_histograms(image, outcome))
    if as_json:
        print_json({"image": image, "written": not dry_run, **outcome.as_dict()})
    else:
        _report(image, outcome, discard, dry_run)
    if not outcome.reached:
        sys.exit(1)


def _clean(
    image: str, devices: tuple[str, ...], policy: str, target_free: float | None, sections: int | None, discard: bool,
    dry_run: bool, undo: str | None,
) -> Outcome:  # fmt: skip
    from f2tools.clean.clean import Goal
    from f2tools.clean.clean import clean as clean_volume
    from f2tools.device import open_for_change
    from f2tools.device.media.zones import in_order
    from f2tools.f2fs.volume.volume import Volume
    from f2tools.f2fs.write.volume import WritableVolume, discard_unneeded

    device = in_order(open_for_change(image, extra=devices, dry_run=dry_run, undo=undo))
    try:
        if discard and device.room_bytes is not None:  # before anything is written: the device may be full
            discard_unneeded(Volume(device))
        volume = WritableVolume(device)
    except BaseException:
        device.close()
        raise
    with volume, progress("sections cleaned", None) as bar:
        wanted = None if target_free is None else int(-(-volume.segments.sections * target_free // 100))
        return clean_volume(volume, policy, Goal(wanted, sections), discard, bar.advance)


def _histograms(image: str, outcome: Outcome) -> Picture:
    from f2tools.clean.histogram import picture

    title = f"{printable(os.path.basename(image))}: {counted(outcome.sections, 'section')} cleaned, {outcome.policy}"
    return picture(outcome.before.histogram, outcome.after.histogram, title)


def _simulate(
    image: str, devices: tuple[str, ...], workload: str, times: float, days: float, as_json: bool,
    draw: Callable[[Picture], None],
) -> None:  # fmt: skip
    from f2tools.clean.simulate import Load, lines_of, load_blocks, picture, settings
    from f2tools.clean.simulate import simulate as run
    from f2tools.f2fs.write.recovered import open_recovered

    load = Load(workload, times, days)
    with open_recovered(image, devices) as volume:
        blocks = load_blocks(volume, load)
        with progress("blocks written", blocks * len(settings())) as bar:
            costs = run(volume, load, advance=bar.advance)
    draw(picture(costs, f"{printable(os.path.basename(image))}: {workload}, {times:g} times"))
    if as_json:
        print_json({"image": image, "load": {**vars(load), "blocks": blocks}, "costs": [c.as_dict() for c in costs]})
        return
    for line in lines_of(costs, load, blocks):
        click.echo(line)


def _report(image: str, outcome: Outcome, discard: bool, dry_run: bool) -> None:
    from f2tools.clean.histogram import lines_of

    for line in lines_of(outcome.before.histogram, outcome.after.histogram):
        click.echo(line)
    before, after = outcome.before.free_sections, outcome.after.free_sections
    click.echo("")
    click.echo(f"cleaned {counted(outcome.sections, 'section')}: {counted(outcome.data_blocks, 'data block')} and "
               f"{counted(outcome.node_blocks, 'node block')} moved, "
               f"{counted(outcome.blocks_written, 'block')} written")  # fmt: skip
    click.echo(f"free sections: {before} -> {after} of {outcome.all_sections}")
    if outcome.target_free_sections is not None and not outcome.reached:
        click.echo(f"{outcome.target_free_sections} free sections were asked for: not reached")
    if outcome.waf is not None:
        click.echo(f"waf: {outcome.waf:.3f}")
    if outcome.pinned_sections:
        click.echo(
            f"left alone: {counted(outcome.pinned_sections, 'section')} with files that must stay where they are"
        )
    if discard:
        click.echo(f"discarded: {human_size(outcome.discarded_bytes)}")
    click.echo(f"{printable(image)}: {outcome.stopped}{' (dry run, nothing written)' if dry_run else ''}")
