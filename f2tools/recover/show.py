"""A plan for people: what counts, what goes, what comes back, and a picture of the log after the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from f2tools.options import human_size
from f2tools.pictures.svg import Line, Picture
from f2tools.recover.older import Verdict
from f2tools.recover.plan import Comeback, RecoveryPlan, Step
from f2tools.text import counted, printable, printable_name

WIDTH = 64  # node blocks in a line of the picture
FILES_SHOWN = 20
NAME_SHOWN = 16  # characters in the legend of the picture
# Okabe and Ito's colours, told apart by people who see colours differently; the last one is for all other files
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#666666")
NOT_APPLIED = "#dddddd"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def lines_of(plan: RecoveryPlan, image: str, verbose: bool) -> Iterator[str]:
    """The plan, line by line; `verbose`: also every block of the chain."""
    for pack in plan.packs:
        state = "is the state of the volume" if pack.chosen else "is not used"
        said = f"; not sound: {', '.join(pack.problems)}" if pack.problems else ""
        flags = f" ({', '.join(pack.flags)})" if pack.flags else ""
        yield f"checkpoint pack {pack.number} at {pack.blkaddr:#x}, version {pack.version:#x}{flags}: {state}{said}"
    yield f"  because {plan.why_this_pack}"
    if plan.older is not None:
        yield from older_lines(plan.older)
    if not plan.needed:
        yield f"{printable(image)}: unmounted cleanly; there is nothing to recover"
        return
    if plan.clean and plan.older is None:
        yield "the checkpoint was made by an unmount, yet something is to be done"
    for orphan in plan.orphans:
        held = (
            "its inode can't be read"
            if orphan.size is None
            else f"{human_size(orphan.size)}, {counted(orphan.blocks or 0, 'block')}"
        )
        name = f" {printable_name(orphan.name)!r}" if orphan.name else ""
        yield f"goes:       inode {orphan.ino}{name}, open without a name at the checkpoint: {held}"
    for bad in plan.refused:
        yield f"refused:    the node of inode {bad.ino} at {bad.blkaddr:#x}: {bad.why}; with it, nothing comes back"
    for file in plan.files:
        yield f"{'would come:' if plan.refused else 'comes back:'} {_said_of(file)}"
    for one in plan.contested:
        yield f"contested:  {one}"
    for ino in plan.dropped:
        yield f"can't come: inode {ino} was fsync'ed, but neither the checkpoint nor the log has its beginning"
    for ino in plan.behind:
        yield f"left:       inode {ino} was fsync'ed behind block {plan.end_blkaddr:#x}, where the chain ends"
    for line in plan.quota:
        yield f"quota:      {printable(line)}"
    if plan.steps:
        yield ""
        yield from picture(plan)
        if verbose:
            yield ""
            yield "  nr    blkaddr   segment        nid      inode node         marks"
            yield from map(_row, plan.steps)
    last = f"the chain of nodes starts at {plan.start_blkaddr:#x} and ends at {plan.end_blkaddr:#x}: {plan.end_reason}"
    yield last if plan.steps else f"no nodes were fsync'ed after the checkpoint: {plan.end_reason}"


def older_lines(older: Verdict) -> Iterator[str]:
    """Whether the older checkpoint's state is still there."""
    yield f"can the volume go back to it? {older.word}"
    for reason in older.reasons:
        yield f"  {reason}"
    if older.given_up:
        yield f"  given up: {counted(older.given_up, 'node block')} that were fsync'ed after the newer checkpoint"
    for file in older.files[:FILES_SHOWN]:
        name = printable_name(file.path) if file.path else f"inode {file.ino}"
        found = f"{file.overwritten} written over, {file.zero} only zeros"
        yield f"  {name} (inode {file.ino}): {counted(file.blocks, 'block')} not kept by the newer checkpoint; {found}"
    if len(older.files) > FILES_SHOWN:
        yield f"  ... and {len(older.files) - FILES_SHOWN} more files; --json has all"


def _said_of(file: Comeback) -> str:
    where = printable_name(file.path) if file.path else f"inode {file.ino}"
    parts = [f"{where} (inode {file.ino})"]
    if file.size_after is not None:
        after = human_size(file.size_after)
        changed = file.size_before not in (None, file.size_after)
        parts.append(f"{human_size(file.size_before or 0)} -> {after}" if changed else after)
    parts.append(f"{file.nodes} node block{'s' * (file.nodes != 1)}, {file.fsyncs} with the mark of an fsync")
    if file.new:
        parts.append("a new file")
    if file.name_added:
        parts.append(f"its name {printable_name(file.name_added)!r} is added to directory {file.in_directory}")
    if file.replaces:
        parts.append(f"in the place of inode {file.replaces}")
    if file.replaced_by:
        parts.append(f"but inode {file.replaced_by} gets its name: it goes, unless it has further names")
    return ", ".join(parts)


def _row(step: Step) -> str:
    marks = " ".join(
        word for word, there in (("fsync", step.fsync), ("dentry", step.dentry), ("ignored", not step.applied)) if there
    )
    return f"{step.index:>4} {step.blkaddr:#10x} {step.segno:>9} {step.nid:>10} {step.ino:>10} {step.node:<12} {marks}"


def picture(plan: RecoveryPlan) -> Iterator[str]:
    """The log after the checkpoint: a letter is a node block of a file, a capital carries the fsync mark."""
    letters = {file.ino: LETTERS[index % len(LETTERS)] for index, file in enumerate(plan.files)}
    yield "the warm node log after the checkpoint, a letter is a node block:"
    for segno, members in groupby(plan.steps, key=lambda step: step.segno):
        row = list(members)
        for at in range(0, len(row), WIDTH):
            cells = "".join(
                "." if not step.applied else letters[step.ino].upper() if step.fsync else letters[step.ino]
                for step in row[at : at + WIDTH]
            )
            yield f"  segment {segno:>6} {row[at].blkaddr:#10x}  {cells}"
    shown = [
        f"{letters[file.ino]} {printable(file.path or f'inode {file.ino}')}" for file in plan.files[: len(LETTERS)]
    ]
    yield "  " + "  ".join([*shown, "capital: fsync mark", ". not applied"])


def timeline(plan: RecoveryPlan, name: str) -> Picture:
    """The log after the checkpoint: a column is a node block, a row a file; the whole height of a row is an fsync mark.

    Files that come back first have rows at the top and colours of their own; what is not applied is at the bottom.
    """
    rows = {file.ino: row for row, file in enumerate(plan.files)}
    count = len(rows) + 1
    pixels = np.zeros((2 * count, max(1, len(plan.steps)), 4), np.uint8)
    for step in plan.steps:
        row = rows[step.ino] if step.applied else count - 1
        colour = COLOURS[min(row, len(COLOURS) - 1)] if step.applied else NOT_APPLIED
        rgb = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        pixels[2 * row + (0 if step.fsync else 1) : 2 * row + 2, step.index] = (*rgb, 255)
    shown = plan.files[: len(COLOURS) - 1]
    lines = [Line(_short(file), colour, [], []) for file, colour in zip(shown, COLOURS, strict=False)]
    if len(plan.files) > len(shown):
        lines.append(Line(f"{len(plan.files) - len(shown)} more", COLOURS[-1], [], []))
    return Picture(
        "timeline", f"{name}: the log of nodes after the checkpoint", "raster",
        f"node blocks from {plan.start_blkaddr:#x} on; {plan.end_reason}", "files, the last row: not applied",
        (0, max(1, len(plan.steps))), (0, count), lines=lines, pixels=pixels,
    )  # fmt: skip


def _short(file: Comeback) -> str:
    text = printable(file.path.rpartition("/")[2]) if file.path else f"inode {file.ino}"
    return text if len(text) <= NAME_SHOWN else text[: NAME_SHOWN - 1] + "…"
