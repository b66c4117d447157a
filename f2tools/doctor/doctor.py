"""A diagnosis: what the volume says about itself, what a check finds, and the steps that lose nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from f2tools.device.advice import foreign, steps
from f2tools.device.containers.partition import read_partitions
from f2tools.device.media.remote import without_credentials
from f2tools.device.open import can_grow, file_and_part, only_read, open_device
from f2tools.doctor.diagnosis import SHOWN, Diagnosis, sentence
from f2tools.doctor.sisters import TAKES, cut_short, sister
from f2tools.errors import NotF2fs
from f2tools.f2fs.layout.constants import CP_ERROR_FLAG, CP_FSCK_FLAG, FADVISE_ENCRYPT_BIT
from f2tools.f2fs.volume.recovery import files_behind, fsynced_files
from f2tools.f2fs.volume.summary import LOST_SINCE
from f2tools.f2fs.volume.volume import open_volume
from f2tools.flash.medium import CutShort
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import open_image
from f2tools.fsck.findings import Severity
from f2tools.fsck.problems import CATALOGUE, CP_LATER, CP_NEWER, CP_PERHAPS_NEWER, FSYNC_REFUSED
from f2tools.options import human_size
from f2tools.remarks import said_of_waiting
from f2tools.text import command_line, copies_failing, counted, pasted

if TYPE_CHECKING:
    from f2tools.device.containers.only_read import OnlyRead
    from f2tools.f2fs.volume.volume import Volume
    from f2tools.fsck.check import CheckReport
    from f2tools.fsck.findings import Finding

LOST = ((("S005",), "superblocks"), (("C002", "C016"), "checkpoints"))  # by the codes that say so
NEWER = (CP_NEWER.code, CP_PERHAPS_NEWER.code)
FULL_PERCENT = 95
LATER_LOST = (
    "The disk has lost a checkpoint, and the volume is as it was before; what was written since is not shown, and"
    " further writes go over it (C021). `f2tools undelete` finds files of it."
)
COPY_AGAIN = "If what it was copied from still exists, copy it again: no repair brings back what is not there."


def diagnose(image: str, devices: Sequence[str] = ()) -> Diagnosis:
    """Look at an image; DeviceError where it can't be opened at all."""
    try:
        volume = open_volume(image, devices)
    except NotF2fs as error:
        found = (None if devices else sister(image)) or _only_checked(image, devices)
        return _not_a_volume(image, devices, str(error)) if found is None else found
    except CutShort as error:
        layer = Diagnosis(without_credentials(image), False, ["An image of a virtualized storage layer."])
        return cut_short(image, layer, error.message, error.longer)
    with volume:
        opened = open_image(image, devices)
        try:
            report = check(opened)
        finally:
            opened.close()
        encrypted = _encrypted(report)
        found = Diagnosis(without_credentials(image), True, _what(volume, encrypted))
        if report.resizing:
            found.what[-1] = "A resize of it was interrupted."
        refused = report.counts[FSYNC_REFUSED.code]  # then a mount brings nothing back
        nothing = bool(refused) or volume.journals_lost  # comes back by a mount
        waiting = 0 if nothing else fsynced_files(volume)
        found.note = "" if nothing else said_of_waiting(volume, image)
        found.risks += [sentence(LOST_SINCE)] if volume.journals_lost else []
        found.risks += [sentence(text) for text in volume.warnings]
        found.risks += _risks(volume, waiting)
        missing = bool(volume.device.missing_bytes)
    _say_checked(found, report)
    container = next(filter(None, map(only_read, (image, *devices))), None)
    found.steps = _steps(found, devices, waiting, container, encrypted)
    _change_steps(found, report, image, devices, container, missing=missing)
    return found


def _only_checked(image: str, devices: Sequence[str]) -> Diagnosis | None:
    """Of a volume that can't be opened, as both superblocks or checkpoints are lost, and that a check can go through;
    None for anything else."""
    try:
        opened = open_image(image, devices)
    except NotF2fs:
        return None
    try:
        if read_partitions(opened.device) or foreign(opened.device):
            return None
        report = check(opened)
        size, missing = human_size(opened.geo.block_count * opened.geo.block_size), bool(opened.missing_bytes)
    finally:
        opened.close()
    if report.tree is None:
        return None
    lost = [what for codes, what in LOST if any(report.counts[code] for code in codes)]
    as_it_is = f"Both {' and both '.join(lost)} are lost, so it can't be mounted as it is."
    found = Diagnosis(without_credentials(image), False, [f"An F2FS volume, {size}.", *([as_it_is] if lost else [])])
    _say_checked(found, report)
    container = next(filter(None, map(only_read, (image, *devices))), None)
    found.steps = _steps(found, devices, 0, container, 0)
    _change_steps(found, report, image, devices, container, missing=missing)
    return found


def _say_checked(found: Diagnosis, report: CheckReport) -> None:
    """What the check found, and what is at risk by it."""
    found.healthy = report.sound
    found.health = _health(report)
    newer = _newer(report)
    if newer is not None:
        perhaps = "" if newer.code == CP_NEWER.code else ", or was never in one"
        found.risks.append(f"A newer state was lost from sight with a checkpoint{perhaps}: {newer.found}.")
    if report.counts[CP_LATER.code]:
        found.risks.append(LATER_LOST)


def _newer(report: CheckReport) -> Finding | None:
    return next((finding for finding in report.findings if finding.code in NEWER), None)


def _change_steps(
    found: Diagnosis, report: CheckReport, image: str, devices: Sequence[str], container: OnlyRead | None, *,
    missing: bool,
) -> None:  # fmt: skip
    """Where the usual steps are not the right ones; `missing`: an end of the volume is."""
    lost, newer = report.counts["H001"] or missing, _newer(report)
    if report.only_resizing and container is None:
        again = command_line("f2tools resize", found.image, "SIZE", devices=devices)
        finish = (again, "finishes the resize, with the SIZE of the one that was interrupted")
        undo = command_line("f2tools undo FILE", found.image, devices=devices)
        back = (undo, "takes it back, if that one had --undo FILE")
        found.steps = [finish, back, *found.steps] if report.sound else [finish, back]
    elif report.only_too_long and container is None:
        shorter = command_line("f2tools resize", found.image, "max", devices=devices)
        found.steps = [(shorter, "makes the volume smaller by a segment or more; nothing else is wrong")]
    if newer is not None and container is None:
        goes_on = command_line("f2tools fsck -y --rescue", found.image, devices=devices)
        found.steps = _with_newer(found.steps, "" if newer.note or newer.code != CP_NEWER.code else goes_on)
    if lost and container is not None:
        found.risks += [COPY_AGAIN] if COPY_AGAIN not in found.risks else []
        found.steps = found.steps[:1]  # what can be copied out
    elif report.counts["H001"]:
        found.steps = [
            (copies_failing(found.image), "copies what can be read, and tries the rest again"),
            ("f2tools doctor COPY", "says what to do with the copy"),
        ]
    elif report.counts["S009"] and container is None and (devices or not can_grow(image, devices)):
        found.steps = [*found.steps[:1], *_copies(image, devices)]


def _copies(image: str, devices: Sequence[str]) -> list[tuple[str, str]]:
    """What is done about a device or a partition that is too short: a file can be made longer."""
    says = ("f2tools doctor COPY", "says what to do with a copy in a file; this can't be made longer, a file can")
    if devices:  # an undo log keeps the length of the last one only
        longer = "makes a copy of the device that is too short as long as that was; then name COPY instead"
        return [("truncate -s SIZE COPY", longer)]
    if file_and_part(image)[1]:  # `dd` knows no partition behind an @
        return [says]
    return [(f"dd if={pasted(image)} of=COPY bs=1M conv=sparse", "copies it to a file"), says]


def _what(volume: Volume, encrypted: int) -> list[str]:
    stat, geo = volume.statfs(), volume.geo
    label = bytes(volume.sb.volume_name).decode("utf-16-le", "replace").split("\0")[0]
    total, free = _for_files(volume) * geo.block_size, stat["f_bfree"] * geo.block_size
    files = max(0, volume.cp.valid_inode_count - 1)
    name = f"called {label!r}" if label else "without a label"
    return [
        f"An F2FS volume {name}, {human_size(geo.block_count * geo.block_size)}.",
        f"{counted(files, *TAKES)} {human_size(total - free)} of {human_size(total)}; {human_size(free)} are free.",
        *([f"{encrypted:,} of them {'is' if encrypted == 1 else 'are'} encrypted."] if encrypted else []),
        "It was unmounted properly."
        if volume.clean and not fsynced_files(volume)
        else "It was not unmounted: power was lost, or it is in use.",
    ]


def _for_files(volume: Volume) -> int:
    """Blocks that files can have; statfs(2) counts tables and what cleaning needs as taken."""
    return volume.cp.user_block_count


def _risks(volume: Volume, waiting: int) -> list[str]:
    found: list[str] = []
    device, end = volume.device, volume.geo.end_blkaddr * volume.geo.block_size
    if device.size_bytes - device.missing_bytes < end or device.gaps:
        found.append(COPY_AGAIN)
    if waiting:
        behind = files_behind(volume)
        but = f", and gives up {behind:,} more, which were saved behind a damaged node" if behind else ""
        saved, them = ("1 file was", "it") if waiting == 1 else (f"{waiting:,} files were", "them")
        found.append(f"{saved} saved after the last checkpoint; the next mount brings {them} back{but}.")
    if volume.cp.ckpt_flags & (CP_ERROR_FLAG | CP_FSCK_FLAG):
        found.append("The kernel has asked for a check of this volume.")
    used = 100 - 100 * volume.statfs()["f_bavail"] / max(1, _for_files(volume))
    if used >= FULL_PERCENT:
        found.append(f"It is {used:.0f} % full; writing gets slow, and wears the flash, when little is free.")
    return found


def _health(report: CheckReport) -> list[str]:
    """What is wrong, by kind."""
    if report.sound:
        names = f"{counted(report.inodes, 'inode')} and {counted(report.dentries, 'name')}"
        return [f"Sound: {names} agree with each other and with the tables."]
    bad = [code for code in report.counts if CATALOGUE[code].severity >= Severity.WARNING and report.counts[code]]
    bad.sort(key=lambda code: (-CATALOGUE[code].severity, -report.counts[code]))
    lines = [f"DAMAGED: {counted(sum(report.counts[code] for code in bad), 'finding')}."]
    lines += [f"{report.counts[code]:>6,} x {CATALOGUE[code].text} ({code})" for code in bad[:SHOWN]]
    if len(bad) > SHOWN:
        lines.append(f"       and {counted(len(bad) - SHOWN, 'more kind')}")
    return lines


def _encrypted(report: CheckReport) -> int:
    """How many inodes are."""
    return int(np.count_nonzero(report.tree.scan.inodes["advise"] & FADVISE_ENCRYPT_BIT)) if report.tree else 0


def _steps(
    found: Diagnosis, devices: Sequence[str], waiting: int, refused: OnlyRead | None, encrypted: int
) -> list[tuple[str, str]]:
    image = found.image

    def command(words: str, *paths: str) -> str:
        return command_line(words, *paths, devices=devices)

    undo = f"{os.path.basename(image.rstrip('/'))}.undo"
    if not found.healthy:
        salvage = (command("f2tools fsck --salvage DIR", image), "copies out what can be read")
        if refused is not None:
            copy = [(refused.command, "makes a raw copy, which can be repaired")] if refused.command else []
            return [
                salvage,
                *copy,
                ("f2tools doctor COPY", f"says what to do with a raw copy; {refused.what} is not written to"),
            ]
        return [
            salvage,
            (command("f2tools fsck -y --undo", undo, image), "repairs, and keeps what it overwrites"),
            (command("f2tools undo", undo, image), "takes the repair back"),
        ]
    steps: list[tuple[str, str]] = []
    if waiting:
        steps.append((command("f2tools recover", image), "shows what the next mount brings back"))
    extract = "f2tools dump extract --recovered" if waiting else "f2tools dump extract"
    if encrypted:
        keys = "copies all files out; each --key FILE opens encrypted ones, which are left out without their keys"
        steps.append((f"{command(extract, image)} --key FILE -o DIR", keys))
    else:
        steps.append((f"{command(extract, image)} -o DIR", "copies all files out"))
    steps.append((command("f2tools undelete", image), "lists what was deleted and can come back"))
    return steps


def _with_newer(steps: list[tuple[str, str]], goes_on: str) -> list[tuple[str, str]]:
    """The steps of a damaged volume, where a newer state lies behind a pack; `goes_on`: the command, or empty."""
    (salvage, copies), (repair, repairs), *others = steps
    return [
        (salvage, f"{copies}, of the newer state, too"),
        *([(goes_on, "goes on from the newer state, and keeps what it overwrites in an undo file")] if goes_on else []),
        (repair, f"{repairs}; gives the newer state up, as a mount does"),
        *others,
    ]


def _not_a_volume(image: str, devices: Sequence[str], why: str) -> Diagnosis:
    name = without_credentials(image)
    what = [sentence(why.removeprefix(f"{name}: "))]
    with open_device(image, extra=devices) as device:
        return Diagnosis(name, False, what, ["It can't be opened as an F2FS volume."], [], steps(device))
