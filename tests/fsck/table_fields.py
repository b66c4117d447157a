"""One wrong field at a time in what holds a volume together: superblocks, checkpoints, tables, journals, summaries,
orphans, extended attributes.

As `fields.py` does for inodes and entries: after a repair the whole tree, as recovery leaves it, must be as it was.
Before it, whoever reads the volume gets an error of the project's at most, in bounded time and memory.
`python -m tests.fsck.table_fields IMAGE EVERY [WORD...]` runs every so manieth case with these words; `IMAGE judge
EVERY [WORD...]` tells of which damage fsck.f2fs complains that our check does not see.
"""

from __future__ import annotations

import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import F2fsError
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.recovered import recovered
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.repair.rounds import StaysOpen
from tests.fsck import fields
from tests.fsck.fields import LINKS
from tests.fsck.sweep import LOST_FOUND, XATTRS, tree_on
from tests.fsck.table_cases import Case, Cases
from tests.images import copy_open, reference
from tests.judges import complaints, fsck

Tree = dict[bytes, tuple[Any, ...]]
SECONDS, MEMORY = 10, 2 << 30  # of the processor, and bytes, that reading, or a repair, may take


@cache
def facts(name: str) -> fields.Facts:
    """The tree of a reference image as recovery leaves it, and all cases of it."""
    image = reference(name)
    with open_device(image.path, extra=list(image.extra)) as device:
        tree, inos = tree_on(device, recovered)
        return fields.Facts(tree, inos, list(Cases(device)))  # type: ignore[arg-type]


# -- a case -----------------------------------------------------------------------------------------------------------


def cases(name: str) -> list[Any]:
    """All cases of a reference image."""
    return facts(name).cases


def patch(name: str, case: Case) -> list[tuple[int, bytes]]:
    """What a case writes over the image: (byte offset, bytes)."""
    del name
    return list(case.patches)


@contextmanager
def bounded() -> Iterator[None]:
    """End what takes too long, or too much memory."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"it takes more than {SECONDS} seconds of the processor")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    former = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, former)


def _readers(device: Device) -> tuple[list[str], tuple[Tree, dict[bytes, int]]]:
    """Read all that can be read, as recovery leaves it and as it is, where that differs.

    (What goes wrong beyond the project's errors, `tree_on` as recovery leaves it.)
    """
    said: list[str] = []
    trees: list[tuple[Tree, dict[bytes, int]]] = []
    differs = True

    def opened(device: Device) -> Volume:
        nonlocal differs
        volume = recovered(device)
        differs = isinstance(volume.device, Overlay)
        return volume

    for opener in (opened, Volume):
        if not differs:
            break
        try:
            with bounded():
                trees.append(tree_on(device, opener))
        except TimeoutError as error:
            said.append(f"{opener.__name__}: {error}")
        except (F2fsError, OSError):
            pass
        except (MemoryError, Exception):
            said.append(traceback.format_exc(limit=-6))
    return said, trees[0] if trees else ({}, {})


def judged(name: str, case: Case) -> tuple[list[str], list[str]]:
    """Set the field, read, repair, compare the whole tree: (what is wrong, what was found and done)."""
    image, before = reference(name), facts(name)
    with open_device(image.path, extra=list(image.extra)) as device:
        wrong = Overlay(StaysOpen(device))
        for patch in case.patches:
            wrong.pwrite(*patch)
        given_up = _version(wrong) < _version(device)
        said, unmended = _readers(wrong)
        try:
            with bounded():
                left, story = fields.mended(wrong)
            unknown = case.field == "feature" and "S006" in "".join(story)
            if unknown:
                return [line for line in said if "Unsupported" not in line], story  # it is not written to
            if said or left or fields.as_it_was(wrong, device):
                return said + left, story
            if case.what == "fsynced":  # as a mount brings it back, and what that brings is repaired
                WritableVolume(StaysOpen(wrong)).close()
                left, more = fields.mended(wrong)
                story += more
                if left:
                    return left, story
            now, inos = tree_on(wrong, recovered)
        except Exception:
            return [*said, traceback.format_exc(limit=-6)], []
    if case.what == "fsynced":
        return list(_of_others(name, case, now, inos)), story
    # a file without a name that no list, and no entry of the table, calls deleted gets one: it may be wanted
    if case.what in ("orphan", "journal", "nat"):
        now = {path: item for path, item in now.items() if path in before.tree or not _brought_back(path, item)}
    differ = list(fields.differences(before, _but_for(before, now, case), case))  # type: ignore[arg-type]
    if differ and given_up:  # as the kernel gives up a newer pack that is not valid: it may have gone on without it
        tree, inos = unmended
        differ = list(fields.differences(replace(before, tree=tree, inos=inos), now, case))  # type: ignore[arg-type]
    return differ, story


def _brought_back(path: bytes, item: tuple[Any, ...]) -> bool:
    return item[LINKS] == 1 or path == LOST_FOUND


def _version(device: Device) -> int:
    """Of the checkpoint that is taken; 0 if there is none."""
    try:
        with Volume(StaysOpen(device)) as volume:
            return int(volume.cp.checkpoint_ver)
    except F2fsError:
        return 0


def _of_others(name: str, case: Case, now: Tree, inos: dict[bytes, int]) -> Iterator[str]:
    """What of the other files is not as it was; of its own, which only that node tells, something has to be there."""
    before = facts(name)
    own = {case.ino, *([int.from_bytes(case.wrong, "little")] if case.field == "ino" else [])}  # it says whose it is
    others = {path: item for path, item in before.tree.items() if before.inos[path] not in own}
    mine = {path for path, ino in inos.items() if ino in own}
    yield from fields.differences(
        replace(before, tree=others), {path: item for path, item in now.items() if path not in mine}, case
    )  # type: ignore[arg-type]
    if not mine and case.ino in at_checkpoint(name):
        yield f"of inode {case.ino} nothing is left"


@cache
def at_checkpoint(name: str) -> set[int]:
    """The inodes that have a name in the newest checkpoint."""
    image = reference(name)
    with open_device(image.path, extra=list(image.extra)) as device:
        return set(tree_on(device)[1].values())


def _but_for(before: fields.Facts, now: Tree, case: Case) -> Tree:
    """What is there now, with the one attribute put back of which a case made a field wrong."""
    was, found = before.tree.get(case.path), now.get(case.path)
    if not case.attribute or was is None or found is None:
        return now
    others = {key: value for key, value in was[XATTRS].items() if key != case.attribute}
    if case.field in ("e_name_len", "e_value_size"):  # what only root may set is not looked for where the list goes on
        gone = {key for key in others if key not in found[XATTRS] and key.startswith(("trusted.", "security."))}
        others = {key: value for key, value in others.items() if key not in gone}
    left = {key: value for key, value in found[XATTRS].items() if key in others}
    more = set(found[XATTRS]) - set(others)
    if left != others or len(more) > 1:
        return now
    mended = dict(now)
    for path, ino in before.inos.items():
        if ino == case.ino and path in now:
            mended[path] = (*now[path][:XATTRS], was[XATTRS])
    return mended


def unseen(name: str, case: Case) -> list[str]:
    """What fsck.f2fs complains of where our check finds nothing."""
    image = reference(name)
    with open_device(image.path, extra=list(image.extra)) as device:
        wrong = Overlay(StaysOpen(device))
        for patch in case.patches:
            wrong.pwrite(*patch)
        if not check(Image(StaysOpen(wrong))).sound:
            return []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        path = Path(directory) / "image"
        with image.path.open("rb") as source:
            copy_open(source.fileno(), path)
        path.chmod(0o644)
        with path.open("r+b") as file:
            for at, data in case.patches:
                file.seek(at)
                file.write(data)
        run = fsck(path, *image.extra)
    return [f"exit status {run.rc}", *complaints(run.output)] if run.rc or complaints(run.output) else []


def _main(words: list[str]) -> None:
    name, *rest = words
    judge = judged
    if rest[0] == "judge":
        rest = rest[1:]
        judge = lambda name, case: (unseen(name, case), [])  # noqa: E731
    every, *rest = rest
    some = [case for case in cases(name) if all(word in str(case) for word in rest)]
    fields.told(name, some[:: int(every)], judge)


if __name__ == "__main__":
    _main(sys.argv[1:])


__all__ = ["Case", "cases", "facts", "judged", "patch"]
