"""`f2tools recover`: explain what a crash left, and bring it back."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from f2tools.errors import Corrupt, F2fsError, Usage, Where
from f2tools.options import (
    checkpoint_option,
    device_option,
    dry_run_option,
    image_argument,
    json_option,
    print_json,
    undo_option,
)
from f2tools.pictures.files import picture_options, pictures
from f2tools.text import command_line, printable

if TYPE_CHECKING:
    from f2tools.f2fs.volume.volume import Volume
    from f2tools.recover.plan import RecoveryPlan


@click.command()
@image_argument
@click.option("--plan", "plan_only", is_flag=True, help="Explain and change nothing: what happens without option too.")
@click.option("--apply", "apply", is_flag=True, help="Do it, and write the checkpoint.")
@click.option("--rollback", is_flag=True, help="Go back to the checkpoint: what was fsync'ed after it is given up.")
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="Only the first N nodes of the chain count.")
@checkpoint_option
@device_option
@click.option(
    "-f",
    "--force",
    is_flag=True,
    help="Go back to the older checkpoint though files may have lost blocks since, or go on from it though a newer"
    " state lies behind a checkpoint that was hit, or its journals are lost.",
)
@dry_run_option
@undo_option
@click.option("-v", "--verbose", is_flag=True, help="Show every node block of the chain.")
@picture_options
@json_option
def recover(
    image: str, plan_only: bool, apply: bool, rollback: bool, until: int | None, checkpoint: Any,
    devices: tuple[str, ...], force: bool, dry_run: bool, undo: str | None, verbose: bool, svg: str | None,
    png: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Bring back what was fsync'ed before a crash, as a mount by the kernel would; explain it first.

    After a crash the volume is in the state of its last checkpoint.  Files that were open without a name then are
    freed, and what fsync wrote to the log since is brought back, file by file.  Without --apply or --rollback nothing
    is changed.

    --checkpoint older starts from the checkpoint before the newest one.  Whether that can still be done is said first:
    its tables, nodes and files may have been written over or discarded since.  No: it is refused.  Perhaps: --force
    does it.

    \b
    Examples:
      f2tools recover card.img
      f2tools recover card.img --apply --undo before.undo
      f2tools recover card.img --plan --json
      f2tools recover card.img --checkpoint older
      f2tools recover card.img --svg log.svg
    """
    if plan_only + apply + rollback > 1:
        raise Usage("--plan, --apply and --rollback exclude each other")
    changes = apply or rollback
    if (dry_run or undo) and not changes:
        raise Usage("--dry-run and --undo go with --apply or --rollback")
    if force and not changes:
        raise Usage("--force goes with --apply or --rollback")
    if rollback and until is not None:
        raise Usage("--until goes with --apply")
    with pictures(svg, png) as draw:
        plan = _looked_at(image, devices, checkpoint, 0 if rollback else until)
        if svg or png:
            from f2tools.recover.show import timeline

            draw(timeline(plan, printable(os.path.basename(image))))
    if changes and plan.needed:
        _must_be_possible(image, plan, force)
        if checkpoint == "newest" and not force:
            _must_be_newest(image, devices)
        if checkpoint == "newest":
            plan = replace(plan, quota=_wrong_quota(image, devices))
        if not rollback:
            _must_lead_on(image, devices, plan)
        how: dict[str, Any] = {"recover": "orphans" if rollback else True, "until": until, "which": checkpoint}
        _change(image, devices, how | {"despite": {"tables"} if force else ()}, dry_run, undo)
    _report(plan, image, devices, changes, dry_run, verbose, as_json)


def _looked_at(image: str, devices: tuple[str, ...], checkpoint: Any, until: int | None) -> RecoveryPlan:
    from f2tools.f2fs.volume.volume import open_volume
    from f2tools.recover.plan import make_plan

    with open_volume(image, devices, checkpoint) as volume:
        for text in [*volume.warnings, *filter(None, [volume.shown_older])]:
            click.echo(f"f2tools: note: {printable(text)}", err=True)
        plan = make_plan(volume, until)
        if checkpoint == "newest":
            return plan if until is not None or not plan.files else _tried(plan, volume)
        from f2tools.recover.older import judge_older

        with open_volume(image, devices) as newest:
            return replace(plan, needed=True, older=judge_older(volume, newest))


def _tried(plan: RecoveryPlan, volume: Volume) -> RecoveryPlan:
    """A plan with what shows only when it is tried, in memory."""
    from f2tools.f2fs.write.refused import find_refused
    from f2tools.recover.plan import Bad

    try:
        found = find_refused(volume.device)
    except (F2fsError, OSError):
        return plan  # it is not a node that stands against it
    refused = [Bad(error.node.ino, error.node.blkaddr, error.why) for error in found.nodes]
    return replace(plan, refused=refused, contested=found.contested)


def _must_be_possible(image: str, plan: RecoveryPlan, force: bool) -> None:
    older = plan.older
    if older is None or older.certain:
        return
    why = "; ".join(older.reasons)
    if not older.possible:
        raise Corrupt(Where(path=image), f"the older checkpoint's state is not there any more: {why}")
    if not force:
        raise Corrupt(Where(path=image), f"the older checkpoint's state may not be whole: {why}; --force goes on")


def _must_lead_on(image: str, devices: tuple[str, ...], plan: RecoveryPlan) -> None:
    if plan.looped:
        where = Where(path=image, blkaddr=plan.end_blkaddr)
        raise Corrupt(where, f"{plan.end_reason}; --rollback goes back to the checkpoint, --until N stops before")
    if plan.behind:
        count = len(plan.behind)
        what = f"{'a file was' if count == 1 else f'{count} files were'} fsync'ed behind it, and would be given up"
        again = command_line("f2tools fsck -y --undo FILE", image, devices=devices)
        why = f"the chain ends here; {what}: {again} brings back what can be, --until {len(plan.steps)} ends here"
        raise Corrupt(Where(path=image, blkaddr=plan.end_blkaddr), why)


def _change(image: str, devices: tuple[str, ...], how: dict[str, Any], dry_run: bool, undo: str | None) -> None:
    from f2tools.device import open_for_change
    from f2tools.device.media.zones import in_order
    from f2tools.f2fs.write.volume import WritableVolume

    # in memory first: that tables contradict the nodes can come out when the checkpoint is made, after all else
    for rehearsed in (True,) if dry_run else (True, False):
        device = in_order(open_for_change(image, extra=devices, dry_run=rehearsed, undo=undo))
        try:
            volume = WritableVolume(device, **how)
        except BaseException:
            device.close()
            raise
        volume.close()


def _must_be_newest(image: str, devices: tuple[str, ...]) -> None:
    """Corrupt where a newer state lies behind a checkpoint that was hit, or in its journals: to write gives it up."""
    from f2tools.device import open_device
    from f2tools.fsck.facts.image import Image
    from f2tools.fsck.newer import newer_state

    with open_device(image, extra=list(devices)) as device:
        found = Image(device)
        if found.pack is not None and found.journals_lost:
            again = command_line("f2tools fsck -y --undo FILE", image, devices=devices)
            why = "the journals of the checkpoint are lost, or its tables older than its log"
            why += f": {again} finds what is newer"
            raise Corrupt(Where(path=image, blkaddr=found.pack.sum_blkaddr), f"{why}, --force gives it up")
        newer = newer_state(found)
        if newer is None or not newer.sure or found.pack is None:
            return
        where = Where(path=image, blkaddr=found.packs[1 - found.pack.index].blkaddr)
    again = command_line("f2tools fsck", image, devices=devices)
    why = f"a newer state lies behind this checkpoint, which was hit: {newer}; {again} says more, --force gives it up"
    raise Corrupt(where, why)


def _wrong_quota(image: str, devices: tuple[str, ...]) -> list[str]:
    from f2tools.device import open_device
    from f2tools.recover.quota import wrong_quota

    with open_device(image, extra=list(devices)) as device:
        return wrong_quota(device, command_line("f2tools fsck -y --undo FILE", image, devices=devices))


def _report(
    plan: RecoveryPlan, image: str, devices: tuple[str, ...], changes: bool, dry_run: bool, verbose: bool, as_json: bool
) -> None:  # fmt: skip
    from f2tools.device.media.remote import without_credentials
    from f2tools.recover.show import lines_of

    image = without_credentials(image)
    written = changes and plan.needed and not dry_run
    if as_json:
        print_json({**plan.as_dict(), "image": image, "written": written})
        return
    for line in lines_of(plan, image, verbose):
        click.echo(line)
    if written:
        click.echo(f"{printable(image)}: done; the volume has a new checkpoint and needs no recovery")
    elif changes and plan.needed:
        click.echo(f"{printable(image)}: would be recovered (dry run, nothing written)")
    elif plan.refused or plan.behind:
        command = command_line("f2tools fsck -y --undo FILE", image, devices=devices)
        click.echo(f"{printable(image)}: nothing was written; {command} brings back what can be")
    elif plan.needed and (plan.older is None or plan.older.possible):
        option = "" if plan.older is None else " --checkpoint older"
        command = command_line("f2tools recover", image, devices=devices)
        click.echo(f"{printable(image)}: nothing was written; {command}{option} --apply does it")
