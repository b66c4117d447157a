"""A volume of DFS or DFFS for its owner: what it is, what a check finds, and what can be done next."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from f2tools.device.advice import foreign, steps
from f2tools.device.containers.partition import read_partitions
from f2tools.device.known import DFFS, DFS
from f2tools.device.media.remote import without_credentials
from f2tools.device.open import only_read, open_device
from f2tools.dffs import volume as dffs
from f2tools.dffs.check import check as check_dffs
from f2tools.dffs.pages import CutShort
from f2tools.dffs.state import NoCheckpoint
from f2tools.dfs import volume as dfs
from f2tools.dfs.check import check as check_dfs
from f2tools.dfs.layout import BLOCK
from f2tools.doctor.diagnosis import SHOWN, Diagnosis, sentence
from f2tools.errors import F2fsError
from f2tools.options import human_size
from f2tools.text import command_line, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from f2tools.flash.findings import Case

GROUPS = {DFS: "dfs", DFFS: "dffs"}
SOUND = "Sound: a check finds nothing wrong; as far as is known, nothing has to be done."
TAKES = ("file or directory takes", "files and directories take")
CLOSED = "It was closed properly."
NOT_CLOSED = (
    "It was not closed: power was lost, or it is in use. That is no damage; the next opening for writing puts it in"
    " order."
)


def sister(image: str) -> Diagnosis | None:
    """What there is to say of an image with DFS or DFFS; None for any other."""
    name = without_credentials(image)
    with open_device(image, whole=True) as device:
        others = [] if read_partitions(device) else foreign(device)
        kind = others[0].name if others else ""
        if kind not in GROUPS:
            return None
        todo = steps(device)
    found = Diagnosis(name, False, [f"A volume of {kind}."])
    try:
        findings, more = _looked_at_dfs(image, found) if kind == DFS else _looked_at_dffs(image, found)
    except CutShort as error:
        return cut_short(image, found, str(error), error.longer)
    except NoCheckpoint as error:  # a repair makes one anew
        found.health = ["DAMAGED: it can't be opened.", sentence(str(error))]
        found.steps = _steps_of_damaged(image, name, GROUPS[kind], found)[1:]
        return found
    except F2fsError as error:
        found.health = [f"It can't be opened: {sentence(str(error).removeprefix(f'{name}: '))}"]
        found.steps = [step for step in todo if not step[0].startswith(f"f2tools {GROUPS[kind]} dump")]
        return found
    found.healthy = not findings
    found.health = _health(findings, more) if findings else [SOUND, *found.health]
    found.steps = todo if found.healthy else _steps_of_damaged(image, name, GROUPS[kind], found)
    return found


def cut_short(image: str, found: Diagnosis, why: str, longer: str) -> Diagnosis:
    """Of an image whose end is missing: how a copy is made that can be read."""
    found.health = ["Its end is missing, so it can't be opened as it is.", sentence(why)]
    found.risks = ["What lay behind its end is lost, unless what it was copied from still exists."]
    refused = only_read(image)
    copy = command_line("cp", found.image, "COPY") if os.path.exists(found.image) else ""  # no partition behind an @
    copy = copy if refused is None else refused.command
    if copy:
        found.steps = [
            (copy, "makes a raw copy, so that this stays as it is"),
            (longer, "makes the copy as long as it has to be"),
            ("f2tools doctor COPY", "says what to do with that"),
        ]
    return found


def _looked_at_dfs(image: str, found: Diagnosis) -> tuple[Sequence[Case], int]:
    """(what a check finds, how much more)."""
    with dfs.open_volume(image) as volume:
        report = check_dfs(volume)
        used, all_of_it = volume.layer.mapped_blocks * BLOCK, volume.layer.capacity_blocks * BLOCK
    found.what += [
        f"{counted(report.inodes, *TAKES)} {human_size(used)} of {human_size(all_of_it)}.",
        CLOSED if report.clean else NOT_CLOSED,
    ]
    reads = command_line("f2tools vsl check", found.image)
    found.health = [f"Not all content of files was read for that; `{reads}` does."]
    return report.findings, 0


def _looked_at_dffs(image: str, found: Diagnosis) -> tuple[Sequence[Case], int]:
    """(what a check finds, how much more)."""
    with dffs.open_volume(image) as volume:
        report = check_dffs(volume)
        shape = volume.shape
    used, all_of_it = report.pages_used * shape.page_size, shape.pages * shape.page_size
    found.what += [
        f"{counted(report.files + report.directories, *TAKES)} {human_size(used)} of {human_size(all_of_it)}.",
        CLOSED if report.clean else NOT_CLOSED,
    ]
    if not report.spare:
        found.risks = ["The dump has no spare areas: nothing vouches for content, and it can't be changed or repaired."]
    return report.findings, report.left_out


def _health(findings: Sequence[Case], more: int) -> list[str]:
    lines = [f"DAMAGED: {counted(len(findings) + more, 'finding')}.", *map(str, findings[:SHOWN])]
    return lines + ([f"and {len(findings) + more - SHOWN:,} more"] if len(findings) + more > SHOWN else [])


def _steps_of_damaged(image: str, name: str, group: str, found: Diagnosis) -> list[tuple[str, str]]:
    """What can be done with a damaged volume: first what loses nothing."""
    copies = (f"{command_line(f'f2tools {group} dump extract', name)} -o DIR", "copies out what can be read")
    refused = only_read(image)
    if refused is not None:
        raw = [(refused.command, "makes a raw copy, which can be repaired")] if refused.command else []
        return [
            copies, *raw,
            ("f2tools doctor COPY", f"says what to do with a raw copy; {refused.what} is not written to"),
        ]  # fmt: skip
    if found.risks:  # no spare areas
        return [copies]
    undo = f"{os.path.basename(name.rstrip('/'))}.undo"
    return [
        copies,
        (command_line(f"f2tools {group} fsck -y --undo", undo, name), "repairs, and keeps what it overwrites"),
        (command_line("f2tools undo", undo, name), "takes the repair back"),
    ]
