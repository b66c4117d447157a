"""Random damage to volumes that a power cut left, and what must hold of what was fsync'ed after the checkpoint.

The truth is what recovery makes of the sound image.  After damage and a repair the volume is mounted, as it were: what
was fsync'ed is brought back.  Then each file of which nothing was hit, neither in the checkpoint's state nor in the
recovered one, must be as it is in the truth.  Where a node of the chain of fsync'ed nodes was hit, or the checkpoint
that it begins at, the kernel comes to an end there: files that come back behind it may be in a state that they had
before, and that must have been said.

`python -m tests.fsck.crashes IMAGE NUMBER -v` tells the story of a case, `python -m tests.fsck.crashes IMAGE FIRST
LAST` runs many.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import F2fsError, NotF2fs
from f2tools.f2fs.layout.constants import CURSEG_WARM_NODE
from f2tools.f2fs.volume.recovery import ChainNode, find_fsync_chain
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.fsck.check import DEFAULT_MEMORY, CheckReport, check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.fates import fates_of
from f2tools.fsck.findings import Severity
from f2tools.fsck.losses import Losses
from f2tools.fsck.repair.rounds import Repairer, StaysOpen
from f2tools.fsck.rescue import prepare
from f2tools.fsck.salvage import FILES, salvage
from tests import judges
from tests.dump.craft import f2
from tests.fsck import fuzz
from tests.fsck.trees import PIECE
from tests.hostile.targets import Place
from tests.images import CRASH, data_ranges

TORN_EVERY = 4  # one case of so many has a block too of which only some sectors were written
SECTOR = 512
CAREFUL, APPLIED, SALVAGED = 1, 2, 3  # cases with these remainders are `fsck -p`, `recover --apply`, salvage first
WAYS = 5
# what speaks of all that was fsync'ed, or of a checkpoint
TELLS = frozenset({"R002", "R003", "R004", "C018", "C019"})
NEWER = frozenset({"C002", "C003", "C016", "C018", "C019"})  # with these the volume goes on from an older checkpoint
GIVEN_UP = "can't be brought back"
CONTENT = 6  # in what `shown` gives

Shown = tuple[Any, ...]


@dataclass
class Truth:
    """A crashed volume as recovery leaves it."""

    name: str
    good: fuzz.Healthy  # its files; the blocks are those of both states
    chain: list[ChainNode]
    places: dict[str, list[Place]]  # of what was fsync'ed
    states: dict[int, list[Shown]] = field(default_factory=dict)  # what files showed before the last fsync
    older: fuzz.Healthy | None = None  # under the older checkpoint
    packs: set[int] = field(default_factory=set)  # blocks of the checkpoint that the chain begins at

    other: set[int] = field(default_factory=set)  # of the one before

    @property
    def pack(self) -> int:
        """Block address of that checkpoint."""
        return min(self.packs)

    @property
    def behind(self) -> dict[int, int]:
        """Inode number -> index of its last node of the chain."""
        return {node.ino: index for index, node in enumerate(self.chain)}

    def cut(self, touched: set[int]) -> int:
        """The index of the first node of the chain that can't be reached."""
        if self.packs & touched:
            return 0
        return next((at for at, node in enumerate(self.chain) if node.blkaddr in touched), len(self.chain))


def _recovered(device: Device, until: int | None = None) -> Volume:
    """The volume after recovery, in memory; `until` so many nodes of the chain."""
    above = Overlay(StaysOpen(device))
    WritableVolume(above, until=until).checkpoint(unmount=True)
    return Volume(above)


@cache
def truth(name: str) -> Truth:
    """The facts of a crashed reference image."""
    before = fuzz.healthy(name)
    good = fuzz.Healthy(before.path, before.block_size, before.places)
    with open_device(before.path) as device:
        with Volume(StaysOpen(device)) as volume:
            chain = find_fsync_chain(volume).chain
            pack, segno = volume.pack, volume.pack.curseg(CURSEG_WARM_NODE)[0]
            packs, other = (
                set(range(some.blkaddr, some.blkaddr + some.cp.cp_pack_total_block_count))
                for some in (pack, volume.packs[1 - pack.index])
            )
            assert all(volume.geo.segno(node.blkaddr) >= 0 for node in chain), segno
        with _recovered(device) as volume:
            fuzz.look(volume, good)
        for ino, blocks in before.blocks.items():
            good.blocks.setdefault(ino, set()).update(blocks if ino in good.shown else ())
        good.blocks = {ino: blocks for ino, blocks in good.blocks.items() if ino in good.shown}
        for node in chain:
            if node.ino in good.blocks:
                good.blocks[node.ino].add(node.blkaddr)
        for path in good.way:
            good.way[path] = good.way[path] | before.way.get(path, set())
        found = Truth(name, good, chain, _places(chain, good.block_size), packs=packs, other=other)
        for until in range(len(chain)):
            state = fuzz.Healthy(before.path, before.block_size, {})
            with suppress(F2fsError), _recovered(device, until) as volume:  # it may be in the middle of a file
                fuzz.look(volume, state)
            for ino, item in state.shown.items():
                if item not in found.states.setdefault(ino, []):
                    found.states[ino].append(item)
        found.older = _older(device, before)
    return found


def _older(device: Device, before: fuzz.Healthy) -> fuzz.Healthy | None:
    """The files under the older checkpoint, recovered, where these can still be read."""
    found = fuzz.Healthy(before.path, before.block_size, {})
    above = Overlay(StaysOpen(device))
    try:
        WritableVolume(above, which="older").checkpoint(unmount=True)
        with Volume(above) as volume:
            fuzz.look(volume, found)
    except (F2fsError, OSError, ValueError, IndexError, AssertionError):
        return None
    return found


def _places(chain: list[ChainNode], size: int) -> dict[str, list[Place]]:
    """Where the nodes that were fsync'ed are hit."""
    found: dict[str, list[Place]] = {}
    for node in chain:
        start = node.blkaddr * size
        found.setdefault("fsync'ed footer", []).append((start + size - 24, 24))
        if node.is_inode:
            found.setdefault("fsync'ed inode", []).append((start, 400))
            found.setdefault("fsync'ed content", []).append((start + 360, size - 384))
        else:
            found.setdefault("fsync'ed node", []).append((start, size - 24))
    return found


def damage(name: str, number: int) -> list[tuple[int, bytes]]:
    """The (offset, bytes) that case `number` writes over an image."""
    facts = truth(name)
    patches = fuzz.damage(name, number, facts.places)
    rng = random.Random(f"torn-{name}-{number}")
    if rng.randrange(TORN_EVERY) == 0:
        size = facts.good.block_size
        blkaddr = rng.choice([*(node.blkaddr for node in facts.chain), facts.pack, max(facts.packs)])
        cut = SECTOR * rng.randrange(1, size // SECTOR)
        torn = (0, cut) if rng.randrange(2) else (cut, size - cut)
        patches.append((blkaddr * size + torn[0], bytes(torn[1])))
    return patches


@dataclass
class Case:
    """One case on its way: the image, and what was said about it."""

    facts: Truth
    number: int
    image: Device
    touched: set[int]
    said: list[str] = field(default_factory=list)
    codes: set[str] = field(default_factory=set)
    inos: set[int] = field(default_factory=set)
    older: bool = False  # whether a newer state was given up, and said to be

    def heard(self, report: CheckReport) -> None:
        """Note what a check says."""
        for finding in report.findings:
            if finding.code == "R006":
                self.said.append(finding.message)
            if finding.severity >= Severity.WARNING:
                self.codes.add(finding.code)
                self.older |= finding.code in NEWER or (finding.code == "C001" and finding.blkaddr == self.facts.pack)
                if finding.ino is not None:
                    self.inos.add(finding.ino)
                self.said.append(f"{finding.code} {finding.where} {finding.message}")

    def contested(self, ino: int) -> bool:
        """Whether another fsync'ed file took a block from this one, as it does in the kernel, and that was said."""
        return any(f" in inode {ino} and then in " in line for line in self.said)

    def told_of(self, ino: int) -> bool:
        """Whether it was said that something of this file, or of what was fsync'ed, is lost."""
        names = [os.fsdecode(name) for name in self.facts.good.names.get(ino, ())]
        return (
            bool(self.codes & TELLS)
            or ino in self.inos
            or any(GIVEN_UP in line or any(name in line for name in names) for line in self.said)
        )


def judged(
    name: str,
    number: int,
    work: Path,
    peer: bool = True,
    keep: Path | None = None,
    patches: Sequence[tuple[int, bytes]] | None = None,
    older: bool = False,
) -> fuzz.Verdict:
    """Damage, check, repair, bring back, check again, look at all files, ask fsck.f2fs.

    `patches` are the damage, else it is that of case `number`; with `older` that leads to an older checkpoint, without
    a word; `keep` gets the result.
    """
    patches = damage(name, number) if patches is None else patches
    return fuzz.verdict_of(
        truth(name).good.path,
        lambda device, verdict: _judged(name, number, patches, older, device, work, peer, keep, verdict),
    )


def _judged(
    name: str, number: int, patches: Sequence[tuple[int, bytes]], older: bool, device: Device, work: Path,
    peer: bool, keep: Path | None, verdict: fuzz.Verdict,
) -> str:  # fmt: skip
    image = Overlay(StaysOpen(device))
    for offset, data in patches:
        image.pwrite(offset, data)
    facts = truth(name)
    case = Case(facts, number, image, fuzz.touched_by(patches, facts.good.block_size), older=older)
    try:
        report = check(Image(StaysOpen(image)))
    except NotF2fs as error:
        return "" if fuzz.beyond_all(name, patches) else f"can't be checked: {error}"
    verdict.found = report.counts
    case.heard(report)
    first: Callable[[Case, Path], str] | None = {CAREFUL: _careful, APPLIED: _applied, SALVAGED: _salvaged}.get(
        number % WAYS
    )
    wrong = first(case, work) if first is not None else ""
    wrong = wrong or _repaired(case, verdict)
    if wrong:
        return "" if wrong == "beyond" else wrong
    wrong = _mounted(case) or _lost(case, case.image, verdict)
    if wrong:
        return wrong
    if peer or keep is not None:
        copy = keep or work / f"{Path(name).name}.img"
        fuzz.write_out(case.image, copy)
        if peer:
            run = judges.fsck(copy)
            bad = judges.complaints_in_words(run.output)
            if run.rc or bad:
                return f"fsck.f2fs: {run.rc} {bad[:4]}"
    return ""


def _careful(case: Case, _: Path) -> str:
    """`fsck -p` first: what that leaves, `-y` must still bring back."""
    report = check(Image(StaysOpen(case.image)))
    if not report.sound:
        case.heard(report)
        repairer = Repairer(case.image, careful=True, watch=case.heard)
        if repairer.run(report).better:
            case.said += repairer.done
            repairer.commit(case.image)
    return ""


def _applied(case: Case, work: Path) -> str:
    """`recover --apply` first: it refuses and changes nothing, or what it leaves is no worse."""
    copy = work / f"{Path(case.facts.name).name}-applied.img"
    fuzz.write_out(case.image, copy)
    before = _digest(copy)
    done = f2("recover", copy, "--apply")
    case.said += done.text.splitlines() + done.err.splitlines()
    if done.code:
        return "" if _digest(copy) == before else f"recover --apply ended with {done.code} and has written: {done.err}"
    image = Overlay(open_device(copy))
    case.image = image
    return ""


def _salvaged(case: Case, work: Path) -> str:
    """`fsck --salvage`: what was not hit is in the copy, or in none of its lists of what is whole."""
    target = work / f"{Path(case.facts.name).name}-salvaged"
    shutil.rmtree(target, ignore_errors=True)
    try:
        result = salvage(StaysOpen(case.image), "image", str(target))
    except NotF2fs:
        return ""
    good = case.facts.good
    told = {item.path for some in (result.partial, result.guessed, result.doubtful, result.empty) for item in some}
    told |= {path for path, _ in result.name_only}
    everything = not result.repaired or any("R00" in line for line in result.notes)
    cut = case.facts.cut(case.touched)
    wrong: list[str] = []
    for ino, blocks in good.blocks.items():
        if blocks & case.touched or good.shown[ino][0] not in ("file", "symlink"):
            continue
        if case.older and not _same(case, ino):
            continue
        for path in good.names[ino]:
            if good.way[path] & case.touched:
                continue
            found = _content(target / FILES / os.fsdecode(path).lstrip("/"))
            late = case.facts.behind.get(ino, -1) >= cut
            if found != good.shown[ino][CONTENT] and not (late and everything) and os.fsdecode(path) not in told:
                wrong.append(f"{path!r} is {'not there' if found is None else 'another'}")
    if wrong:
        return f"salvage: {len(wrong)} files: {'; '.join(wrong[:4])}"
    shutil.rmtree(target, ignore_errors=True)
    return ""


def _content(path: Path) -> bytes | None:
    """What a copied file shows, in the way of `trees.shown`; None where it is not there."""
    if path.is_symlink():
        return os.fsencode(path.readlink())
    if not path.is_file():
        return None
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for start, length in data_ranges(file.fileno(), path.stat().st_size):
            for at in range(start // PIECE * PIECE, start + length, PIECE):
                kept = os.pread(file.fileno(), PIECE, at).rstrip(b"\0")
                if kept:
                    digest.update(at.to_bytes(8, "little") + len(kept).to_bytes(8, "little") + kept)
    return digest.digest()


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _repaired(case: Case, verdict: fuzz.Verdict) -> str:
    """`fsck -y`, and a second check; "beyond" where no repair can decide."""
    report = check(Image(StaysOpen(case.image)))
    case.heard(report)
    if report.sound:
        return ""
    losses = Losses(case.image)

    def watch(report: CheckReport) -> None:
        case.heard(report)
        losses.watch(report)

    repairer = Repairer(case.image, watch=watch)
    outcome = repairer.run(report)
    if "C003" in outcome.left:  # what `fsck -y --rescue` is for
        repairer = Repairer(case.image, watch=watch)
        repairer.done += prepare(repairer.overlay, DEFAULT_MEMORY)
        outcome = repairer.run(report)
        case.older = True
    verdict.done = outcome.done
    case.said += outcome.done
    case.older |= repairer.newer is not None
    if not outcome.complete:
        return "beyond" if set(outcome.left) & fuzz.BEYOND else f"left: {dict(outcome.left)}"
    losses.tree = outcome.after.tree or losses.tree
    told = fates_of(losses, repairer)
    if told is None:
        return "what became of the files is not told"
    case.said += [fate.message for fate in told.files]
    case.inos |= {fate.ino for fate in told.files}
    repairer.commit(case.image)
    again = check(Image(StaysOpen(case.image)))
    return "" if again.sound else f"a second check finds {dict(again.counts)}"


def _mounted(case: Case) -> str:
    """What is left to be brought back comes back, as at a mount, and a check is silent then."""
    try:
        WritableVolume(StaysOpen(case.image)).close()
    except (F2fsError, OSError) as error:
        return f"it is sound, and can't be mounted: {error}"
    report = check(Image(StaysOpen(case.image)))
    return "" if report.sound else f"after recovery a check finds {dict(report.counts)}"


def _lost(case: Case, image: Device, verdict: fuzz.Verdict) -> str:
    """Files that are not as they must be."""
    facts = case.facts
    late = facts.cut(case.touched)
    wrong: list[str] = []
    for ino, lines in fuzz.lost(facts.good, image, case.touched).items():
        if case.older and not _same(case, ino):
            continue
        if facts.behind.get(ino, -1) < late and not case.older:
            wrong += [] if case.contested(ino) else lines
        elif not _earlier(case, ino, image):
            wrong += [f"{line} (as it never was)" for line in lines]
        elif not case.told_of(ino):
            wrong += [f"{line} (and that was not said)" for line in lines]
    verdict.lost = len(wrong)
    return f"{len(wrong)} files: {'; '.join(wrong[:4])}" if wrong else ""


def _same(case: Case, ino: int) -> bool:
    """Whether a file is under the older checkpoint, which is whole, what it is after recovery."""
    facts = case.facts
    if facts.older is None or facts.other & case.touched:
        return False
    before, after = fuzz.healthy(facts.name).shown.get(ino), facts.good.shown[ino]
    same = facts.older.shown.get(ino) == before == after
    return (
        same and facts.older.names[ino] == facts.good.names[ino] and facts.older.blocks[ino] <= facts.good.blocks[ino]
    )


def _earlier(case: Case, ino: int, image: Device) -> bool:
    """Whether a file is as it was at some moment, or not there because it was not yet."""
    states = [fuzz.but_links(item) for item in [*case.facts.states.get(ino, []), case.facts.good.shown[ino]]]
    found = fuzz.Healthy(case.facts.good.path, case.facts.good.block_size, {})
    with Volume(StaysOpen(image)) as volume:
        fuzz.look(volume, found)
    if ino not in found.shown:
        return ino not in fuzz.healthy(case.facts.name).shown
    return fuzz.but_links(found.shown[ino]) in states


def _tell(name: str, number: int, verdict: fuzz.Verdict) -> None:
    facts = truth(name)
    touched = fuzz.touched_by(damage(name, number), facts.good.block_size)
    print("damage:", [(hex(at), data[:8].hex(), len(data)) for at, data in damage(name, number)][:20])
    kinds = {kind for kind, some in (facts.good.places | facts.places).items() for start, length in some
             if any(start < at + len(data) and at < start + length for at, data in damage(name, number))}  # fmt: skip
    print("hit:", sorted(kinds), "chain", len(facts.chain), "cut at", facts.cut(touched))
    with open_device(facts.good.path) as device:
        image = Overlay(StaysOpen(device))
        for offset, data in damage(name, number):
            image.pwrite(offset, data)
        for finding in check(Image(StaysOpen(image))).findings[:30]:
            print("found", finding.code, finding.where, finding.message[:200])
    for line in verdict.done[:40]:
        print("did", line[:220])


def _main(words: list[str]) -> None:
    words = [word for word in words if word != "-v"]
    names = [words[0]] if words[0] != "all" else list(CRASH)
    first, last = int(words[1]), int(words[2]) if len(words) > 2 else int(words[1])
    work = Path(words[3]) if len(words) > 3 else Path("/tmp")
    for name in names:
        bad = 0
        for number in range(first, last + 1):
            verdict = judged(name, number, work)
            if "-v" in sys.argv:
                _tell(name, number, verdict)
            if verdict.wrong or verdict.seconds > fuzz.SECONDS / 4:
                bad += 1
                print(f"{name} {number} ({verdict.seconds:.1f} s): {verdict.wrong}", flush=True)
        print(f"{name}: {last - first + 1} cases, {bad} failures", flush=True)


if __name__ == "__main__":
    _main(sys.argv[1:])


__all__ = ["WAYS", "damage", "judged", "truth"]
