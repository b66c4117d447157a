"""Repair: check all, plan, apply, check again, in an overlay until nothing is left; only then is the image written.

Each round takes the findings of the first group that has any: what was lost is looked for before anything is removed,
and counts come last.  Structures are changed directly (`Surgery`) while they contradict each other; names are put back
through the engine once they don't.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

from f2tools.device import Device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.open import resizable
from f2tools.device.wrappers import StaysOpen
from f2tools.errors import Corrupt, F2fsError, Unsupported
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.layout.constants import CP_NOCRC_RECOVERY_FLAG
from f2tools.f2fs.layout.super import SuperBlock
from f2tools.f2fs.volume.checkpoint import read_packs, resealed
from f2tools.f2fs.volume.quota import quota_inos
from f2tools.f2fs.volume.super import unknown_features
from f2tools.f2fs.write.policy import Policy
from f2tools.f2fs.write.refused import find_refused
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.fsck.check import DEFAULT_MEMORY, CheckReport, check
from f2tools.fsck.checks.device import zones_below
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.leaks import OldName, filled_places, old_names
from f2tools.fsck.facts.tree import Tree
from f2tools.fsck.findings import Finding, Severity
from f2tools.fsck.newer import Newer, newer_state
from f2tools.fsck.plans import (
    DropOrphan,
    MoveEntry,
    PassGap,
    Reconnect,
    RenameTwin,
    RewriteBlock,
    SetField,
    SetLinks,
    SetMarks,
    TakeOut,
)
from f2tools.fsck.problems import (
    CP_LAYOUT,
    FSYNC_BEHIND,
    FSYNC_DEFECT,
    SB_DIFFERS,
)
from f2tools.fsck.refused import check_refused
from f2tools.fsck.repair.guesses import Guesses
from f2tools.fsck.repair.names import NameRepairs
from f2tools.fsck.repair.outcome import Outcome
from f2tools.fsck.repair.phases import LEFT_BY_P, Phase, repair, serves
from f2tools.fsck.repair.quota import quota_file
from f2tools.fsck.repair.work import Work
from f2tools.text import counted

MAX_ROUNDS = 400  # a lost tree comes back level by level
MOST_NAMES = 1 << 16  # a link count that is further off is a wrong link count
_REFITTED = f"{CP_LAYOUT.code} flags and cp_pack_start_sum are as the blocks of the pack say"
RECOVERIES = 6  # each opens the volume for writing and checks it
SAME_AGAIN = 2  # times that the same findings may come back


def _signature(report: CheckReport) -> int:
    return hash(tuple((finding.code, finding.where, str(finding.found), finding.count) for finding in report.findings))


def _asked_as(phase: Phase, finding: Finding) -> tuple[str, ...]:
    """What an answer is kept by; tables are computed anew as a whole, so there only the kinds of findings count."""
    if phase is Phase.TABLES:
        return phase.group, finding.code
    return phase.group, finding.code, finding.where, str(finding.found)


def _sound_but_for_fsynced(report: CheckReport) -> bool:
    """Whether nothing is wrong but what will come back."""
    return all(item.code == FSYNC_DEFECT.code for item in report.findings if item.severity >= Severity.WARNING)


def _gives_up_behind(report: CheckReport) -> bool:
    """Whether something of what was fsync'ed behind the end of its chain can't come back."""
    return any(isinstance(plan := finding.repair, PassGap) and plan.given_up for finding in report.findings)


def _takes_nothing(finding: Finding) -> bool:
    """Whether a repair that may not be done would free nothing: marks of clusters, an unreadable block of a table, what
    is only moved."""
    plan = finding.repair
    return isinstance(plan, SetMarks | TakeOut) or (isinstance(plan, RewriteBlock) and finding.area != "main")


class Repairer:
    """Repairs one device in an overlay; `commit` writes the result."""

    def __init__(
        self,
        device: Device,
        memory_bytes: int = DEFAULT_MEMORY,
        *,
        careful: bool = False,
        content: bool = False,
        ask: Callable[[str, list[Finding]], bool] | None = None,
        watch: Callable[[CheckReport], None] | None = None,
    ) -> None:
        """`careful`: nothing is given up, neither entry nor pointer.  `ask` decides about each group of repairs, and
        again where a later round has findings that were not in the question.

        `content`: compressed and sealed files are read and, where that is possible, repaired.  `watch` is shown what
        each check on the way finds, before anything is done about it.
        """
        self.device = device
        self.overlay = Overlay(StaysOpen(device))
        self._memory = memory_bytes
        self._careful = careful
        self._content = content
        self._ask = ask
        self._watch = watch
        self._answers: dict[tuple[str, ...], bool] = {}  # by `_asked_as`
        self._recoveries: list[int] = []  # the findings beside which it was tried
        self._refused = False  # whether it was the volume that spoke against it
        self._freed: set[int] = set()
        self._no_room = False  # whether something was found in this round that there is no room for
        self._remembered = False
        self._filled: NDArray[np.int64] | None = None  # where directories had entries before anything was repaired
        self._unsealed = False  # whether checksums were taken as evidence: later ones may be wrong by what was repaired
        self.done: list[str] = []
        self.newer: Newer | None = None  # the state that is given up with a pack that is not valid
        self.guesses = Guesses()
        self.rounds = 0

    def run(self, before: CheckReport) -> Outcome:
        """Repair until a check is silent, or nothing more can be done."""
        report, seen = before, Counter[int]()
        left = next((code for code in LEFT_BY_P if self._careful and before.counts[code]), "")
        if left:
            self.done.append(f"{left} left: {LEFT_BY_P[left]}")
            return Outcome(before, before, self.done)
        if self._careful and _gives_up_behind(before):
            self.done.append(f"{FSYNC_BEHIND.code} left: to write to the volume gives up what was fsync'ed there")
            return Outcome(before, before, self.done)
        self._settle(before)
        for self.rounds in range(1, MAX_ROUNDS + 1):
            image, report = self._check()
            if self._watch is not None:
                self._watch(report)
            if unknown_features(image.sb):
                self.done.append("S006 the volume has unknown features; it is not written to")
                break
            if image.pack is None or report.tree is None:
                break
            if report.sound:
                if self._end_of_chain(image, report):
                    continue
                break
            if self._filled is None:
                self._filled = filled_places(report.tree.scan)
            seen[signature := _signature(report)] += 1
            if seen[signature] > SAME_AGAIN:
                self.done.append("two repairs undo each other; given up")
                break
            if not self._round(image, report):
                break
        else:
            _, report = self._check()
        return Outcome(before, report, self.done, self.rounds, sum(length for _, length in self.overlay.dirty_ranges()))

    def _end_of_chain(self, image: Image, report: CheckReport) -> bool:
        """Bring back what was fsync'ed on a volume that was repaired, or end its chain: nobody could write to it else.

        The chain is ended only where a repair has kept it, by `CP_NOCRC_RECOVERY_FLAG`, for recovery to be tried again,
        and what lies in it can't be right.
        """
        if not self.done or not report.counts["R001"]:
            return False
        self._refused = False
        if self._recover(report, last=True):
            return True
        if self._careful or not self._refused:
            return False
        assert image.pack is not None
        cp = Checkpoint.parse(image.pack.head)
        former = read_packs(StaysOpen(self.device), image.geo)[image.pack.index]
        if not cp.ckpt_flags & ~former.cp.ckpt_flags & CP_NOCRC_RECOVERY_FLAG:
            return False
        cp.ckpt_flags &= ~CP_NOCRC_RECOVERY_FLAG
        for offset, data in resealed(image.pack, cp, image.block_size):
            self.overlay.pwrite(offset, data)
        self.done.append("R001 what was fsync'ed after the checkpoint, and can't be brought back, is given up")
        return True

    def commit(self, to: Device) -> None:
        """Write what has changed: the checkpoint area after all else, so that a power cut leaves a volume to repair."""
        image = Image(StaysOpen(self.overlay))
        geo, size = image.geo, image.geo.block_size
        self._must_be_writable(to)
        if not self.overlay.gaps:
            to.fill_gaps()
        if to.size_bytes < self.overlay.size_bytes:
            to.resize(self.overlay.size_bytes)
        cp_start, cp_end = geo.cp_blkaddr * size, geo.sit_blkaddr * size
        late: list[tuple[int, int]] = []
        for offset, length in self.overlay.dirty_ranges():
            low, high = max(offset, cp_start), min(offset + length, cp_end)
            if low < high:
                late.append((low, high - low))
                self._copy(to, offset, low - offset)
                self._copy(to, high, offset + length - high)
            else:
                self._copy(to, offset, length)
        to.flush()
        for offset, length in late:
            self._copy(to, offset, length)
        to.flush()

    def _must_be_writable(self, to: Device) -> None:
        """Zones that are written one block after the other take no change in place, and what is not there none at all;
        Unsupported, before any write."""
        zones = [zone for zone in zones_below(to) if zone.sequential]
        for offset, length in self.overlay.dirty_ranges():
            for name, start, size in self.overlay.gaps:
                if offset < start + size and start < offset + length:
                    raise Unsupported(f"{name}: is {size} bytes too short, and can't be made longer; repair a copy")
            for zone in zones:
                if offset < zone.start + zone.length and zone.start < offset + length:
                    where = f"at {max(offset, zone.start):#x}"
                    raise Unsupported(
                        f"{to.name}: a repair {where} lies in a sequential zone; repair a copy of the device"
                    )

    def _copy(self, to: Device, offset: int, length: int) -> None:
        end = min(offset + length, to.size_bytes)
        for at in range(offset, end, 1 << 20):
            to.pwrite(at, self.overlay.pread(at, min(1 << 20, end - at)))

    def _settle(self, before: CheckReport) -> None:
        """Write what the check had to assume about superblock and checkpoint."""
        if before.counts[SB_DIFFERS.code]:
            self._take_better_copy(before)
        image = Image(StaysOpen(self.overlay))
        self._write_assumed(image)
        if image.missing_bytes and resizable(self.device):
            self.overlay.resize(image.end_bytes)
            self.overlay.fill_gaps()
            if hasattr(image.raw, "set_layout"):
                longer = [f"{name} is made {length} bytes longer" for name, length in image.missing]
            else:
                longer = [f"the file is made {image.end_bytes} bytes long again"]
            self.done += [f"S009 {text}, with zeros at its end" for text in longer]
        if image.payload_was is not None:
            self.done.append(f"S014 cp_payload {image.sb.cp_payload}, not {image.payload_was}")
        elif image.super_patches:
            self.done.append("S001 superblock put together from what is left of it")
        self.newer = newer_state(image)
        self.guesses.pack_derived = image.pack_derived
        if image.pack is not None:
            self.guesses.journals_lost = image.pack_put_together or image.journals_lost
            self.guesses.journals_of = image.cp.checkpoint_ver if image.journals_lost else -1
        if image.turn is not None:
            versions = f"has version {image.turn.version:#x}, not {image.turn.was:#x}"
            self.done.append(f"C020 checkpoint pack {image.turn.pack + 1} {versions}")
        if image.pack_refitted:
            self.done.append(_REFITTED)
        elif image.pack_put_together:
            self.done.append("C002 checkpoint put together from what is left of it")
            once_more = Image(StaysOpen(self.overlay))  # its blocks may say more of a pack that can be read again
            if once_more.pack_refitted:
                self._write_assumed(once_more)
                self.done.append(_REFITTED)

    def _write_assumed(self, image: Image) -> None:
        for offset, data in [*image.super_patches, *image.pack_patches]:
            self.overlay.pwrite(offset, data)

    def _take_better_copy(self, before: CheckReport) -> None:
        """Believe the other copy of the superblock, where both are valid and with it the volume has fewer errors."""
        image, trial = Image(StaysOpen(self.overlay)), Overlay(StaysOpen(self.overlay))
        chosen, other = (image.super_copies[index] for index in (image.super_index, 1 - image.super_index))
        trial.pwrite(chosen.offset, trial.pread(other.offset, SuperBlock.size))
        try:
            after = check(Image(StaysOpen(trial)), memory_bytes=self._memory)
        except (F2fsError, OSError):
            return
        if after.tree is not None and after.errors < before.errors:
            trial.apply(self.overlay)
            counts = f"{counted(after.errors, 'error')} with it, {before.errors} with the other"
            text = f"copy {other.index} of the superblock is believed: {counts}"
            self.done.append(f"{SB_DIFFERS.code} {text}")

    def _check(self) -> tuple[Image, CheckReport]:
        image = Image(StaysOpen(self.overlay))
        image.journals_of, image.repaired = self.guesses.journals_of, bool(self.done)
        self.guesses.journals_lost |= image.pack is not None and image.stale is not None
        return image, check(image, memory_bytes=self._memory, content=self._content)

    def _round(self, image: Image, report: CheckReport) -> bool:
        """Carry out the first group that changes something."""
        assert report.tree is not None
        self._no_room = False
        todo = [finding for finding in report.findings if finding.severity >= Severity.WARNING]
        if any(self._apply(image, report.tree, phase, todo) for phase in (Phase.FORMAT, Phase.END_CHAIN)):
            return True
        refused = [finding for finding in todo if serves(Phase.LEAVE_OUT, finding)]
        if refused:  # nothing else is found then
            return (
                not self._careful
                and len(self._wanted(Phase.LEAVE_OUT, refused, todo)) == len(refused)
                and self._recover_others(report.tree, refused)
            )
        # many wrong checksums at once speak against the volume's identity, not against the inodes
        torn = sum(serves(Phase.UNSEAL, finding) for finding in todo)
        few = 2 * torn <= report.inodes and not self._unsealed
        self._unsealed = True
        if few and self._apply(image, report.tree, Phase.UNSEAL, todo):
            return True
        # recovery takes nids that are free, so the nodes that were lost come first
        if any(self._apply(image, report.tree, phase, todo) for phase in (Phase.EARLY, Phase.FIND)):
            return True
        if self._recover(report, last=_sound_but_for_fsynced(report)):
            return True
        gives_up = not self._careful and not self._no_room
        for phase in (Phase.PART, Phase.CORRECT, *((Phase.GIVE_UP,) if gives_up else ())):
            if self._apply(image, report.tree, phase, todo):
                return True
        if self._no_room or self._held_back(report.tree, todo):
            return False
        tables = [finding for finding in todo if serves(Phase.TABLES, finding)]
        if tables and len(self._wanted(Phase.TABLES, tables, todo)) == len(tables):
            work = Work(image, report.tree, self.done, self._freed, self.guesses)
            for code in sorted({finding.code for finding in tables}):
                work.note(next(finding for finding in tables if finding.code == code), "computed anew")
            work.surgery.dropped_orphans.update(
                plan.ino for finding in tables if isinstance(plan := finding.repair, DropOrphan)
            )
            try:
                work.surgery.rebuild()
            except OSError as error:  # there is not even a hole for a log
                self.done.append(f"L001 tables can't be computed anew: {error.strerror}")
                return False
            if work.surgery.changed:
                return True
        through = [finding for finding in todo if serves(Phase.NAMES, finding) or serves(Phase.QUOTA, finding)]
        if through and self._leave_out(image, report):
            return True
        if self._through_engine(report.tree, todo):
            return True
        if self._apply(image, report.tree, Phase.COUNT, todo):
            return True
        return self._quotas(report.tree, todo)

    def _leave_out(self, image: Image, report: CheckReport) -> bool:
        """Give up the fsync'ed nodes that can't be right, where the engine is needed: it brings back the others."""
        if self._careful or not report.counts["R001"]:
            return False
        refused = list(check_refused(image, lambda _: []))
        if not refused or len(self._wanted(Phase.LEAVE_OUT, refused, refused)) < len(refused):
            return False
        assert report.tree is not None
        if self._watch is not None:
            self._watch(CheckReport(findings=refused, tree=report.tree))
        return self._recover_others(report.tree, refused)

    def _held_back(self, tree: Tree, todo: list[Finding]) -> bool:
        """Whether something would be given up that may not be: tables, names and counts say what belongs to it.

        Computed anew without it, they would make its blocks free, and a later repair find nothing of it.  Each phase is
        tried, to see whether it would change anything.
        """
        for phase in (Phase.EARLY, Phase.FIND, Phase.PART, Phase.CORRECT, Phase.GIVE_UP):
            some = [finding for finding in todo if serves(phase, finding) and not _takes_nothing(finding)]
            if not self._careful:
                wanted = {id(finding) for finding in self._wanted(phase, some, todo)}
                some = [finding for finding in some if id(finding) not in wanted]
            if some and self._would_change(tree, phase, some):
                return True
        return False

    def _would_change(self, tree: Tree, phase: Phase, findings: list[Finding]) -> bool:
        """Whether a repair that may give things up would do something about these findings in this phase."""
        with Overlay(StaysOpen(self.overlay)) as trial:
            work = Work(Image(StaysOpen(trial)), tree, [], set(self._freed), deepcopy(self.guesses))
            for finding in findings:
                with suppress(OSError):
                    repair(phase, work, finding)
            return bool(work.surgery.changed)

    def _wanted(self, phase: Phase, findings: list[Finding], todo: list[Finding]) -> list[Finding]:
        """Those of these findings about which a phase may do something.

        A question is about all of `todo` that a phase of its group serves, and was not in a question of this group yet.
        """
        if self._ask is None or not findings:
            return findings
        if any(_asked_as(phase, finding) not in self._answers for finding in findings):
            together = [other for other in Phase if other.group == phase.group]
            new = [
                finding
                for finding in todo
                if any(serves(other, finding) for other in together) and _asked_as(phase, finding) not in self._answers
            ]
            self._answers |= dict.fromkeys([_asked_as(phase, finding) for finding in new], self._ask(phase.group, new))
        return [finding for finding in findings if self._answers[_asked_as(phase, finding)]]

    def _apply(self, image: Image, tree: Tree, phase: Phase, todo: list[Finding]) -> bool:
        todo = self._wanted(phase, [finding for finding in todo if serves(phase, finding)], todo)
        if not todo:
            return False
        work = Work(image, tree, self.done, self._freed, self.guesses)
        work.careful = self._careful
        for finding in todo:
            before = len(self.done)
            try:
                done = repair(phase, work, finding)
            except OSError as error:  # no room for what would have to be made
                del self.done[before:]
                self.done.append(f"{finding.code} {finding.where}: not repaired: {error.strerror}")
                self._no_room |= phase is Phase.FIND
                continue
            if done and isinstance(finding.repair, SetField) and finding.repair.field == "i_size":
                self.guesses.sized.add(finding.repair.ino)
        work.surgery.write_cleared()
        self.guesses.changed |= bool(work.surgery.changed) and phase not in (
            Phase.FORMAT,
            Phase.END_CHAIN,
            Phase.UNSEAL,
            Phase.EARLY,
        )
        return bool(work.surgery.changed)

    def _recover(self, report: CheckReport, last: bool = False) -> bool:
        """Bring back what was fsync'ed after the checkpoint before the next checkpoint cuts off the way to it.

        `last`: nothing else is left to be done, and it is tried however often it failed before.
        """
        if not report.counts["R001"] or (self._careful and _gives_up_behind(report)):
            return False
        if not last and (len(self._recoveries) >= RECOVERIES or _signature(report) in self._recoveries):
            return False
        self._recoveries.append(_signature(report))
        trial = Overlay(StaysOpen(self.overlay))
        try:
            volume = WritableVolume(StaysOpen(trial), self._recovering(report.tree), despite={"tables"})
            volume.close()
            if volume.recovered is None or not volume.recovered.files:
                return self._not_recovered(": its files are in no checkpoint, and not whole where they were fsync'ed")
            image = Image(StaysOpen(trial))
            after = check(image, memory_bytes=self._memory)
        except (F2fsError, OSError, ValueError, IndexError) as error:
            self._refused = isinstance(error, (Corrupt, ValueError, IndexError))
            return self._not_recovered(f": {error}")
        told = ["R001 what was fsync'ed after the checkpoint is brought back"]
        if after.errors > report.errors:
            # on a sound volume only what was fsync'ed can be wrong then, and is repaired as if it had been there before
            repairer = Repairer(
                trial, self._memory, careful=self._careful, content=self._content, ask=self._ask, watch=self._watch
            )
            repairer._answers = self._answers  # each group of repairs is asked about once
            if not _sound_but_for_fsynced(report) or not repairer.run(after).complete:
                self._refused = True
                return self._not_recovered(" on this volume")
            repairer.overlay.apply(trial)
            told += repairer.done
        trial.apply(self.overlay)
        self.done += told + self.guesses.note_contested(volume.recovered.contested)
        return True

    def _recovering(self, tree: Tree | None) -> Policy:
        awaited = frozenset[int]() if tree is None else tree.awaited
        return Policy(old_names=frozenset(self.guesses.older | self.guesses.made), kept_nids=awaited)

    def _recover_others(self, tree: Tree, refused: list[Finding]) -> bool:
        """Bring back what was fsync'ed, without the nodes that can't be right."""
        trial = Overlay(StaysOpen(self.overlay))
        try:
            bad = find_refused(self.overlay)
            volume = WritableVolume(StaysOpen(trial), self._recovering(tree), until=bad.stops, despite={"tables"})
            volume.checkpoint(unmount=True)  # the chain ends, also where nothing of it came back
            volume.close()
        except (F2fsError, OSError) as error:
            return self._not_recovered(f": {error}")
        trial.apply(self.overlay)
        assert volume.recovered is not None
        files = volume.recovered.files
        for finding in refused:
            assert finding.ino is not None
            text = "the file is lost, as it was never in a checkpoint"
            if finding.ino in files:
                text = "the file is as it was at the fsync before"
            elif tree.scan.row_of(finding.ino) >= 0:
                text = "the file is as it was at the checkpoint"
            self.done.append(f"{finding.code} {finding.where}: {finding.note}: given up; {text}")
        if others := len(files.keys() - {finding.ino for finding in refused}):
            self.done.append(f"R001 what was fsync'ed after the checkpoint is brought back, of {others} other files")
        self.done += self.guesses.note_contested(volume.recovered.contested)
        return True

    def _not_recovered(self, why: str) -> bool:
        """Say so, once for each reason: it is tried again when something else was repaired; False."""
        text = f"R001 what was fsync'ed can't be brought back{why}"
        if text not in self.done:
            self.done.append(text)
        return False

    def _quotas(self, tree: Tree, todo: list[Finding]) -> bool:
        """Write the quota files anew that count wrongly, or can't be read; limits are kept where they can be read."""
        wrong = self._wanted(Phase.QUOTA, [finding for finding in todo if serves(Phase.QUOTA, finding)], todo)
        if not wrong:
            return False
        inos = sorted({finding.ino for finding in wrong if finding.ino})
        try:
            volume = WritableVolume(StaysOpen(self.overlay), despite={"tables"})
            for kind, ino in quota_inos(volume.sb).items():
                if ino in inos:
                    volume.balance(64)
                    inode = volume.live(ino)
                    data = quota_file(tree, kind, ino)
                    volume.files.truncate(inode, 0)
                    volume.files.write(inode, 0, memoryview(data))
                    volume.nodes.touch(inode)
                    self.done.append(f"Q002 {kind} quota counted anew")
            volume.close()
        except (F2fsError, OSError) as error:
            self.done.append(f"Q001 quota can't be written: {error}")
            return False
        return True

    def _through_engine(self, tree: Tree, todo: list[Finding]) -> bool:
        here = [(finding, finding.repair) for finding in todo if serves(Phase.NAMES, finding)]
        missing: dict[int, int] = {}
        for finding, plan in here:
            if isinstance(plan, SetLinks) and not self._remembered:
                missing[plan.ino] = int(finding.found or 0) - int(plan.value or 0)
        missing = {ino: count for ino, count in missing.items() if 0 < count <= MOST_NAMES}
        lost = [(finding, plan) for finding, plan in here if isinstance(plan, Reconnect)]
        mixed = sorted({plan.dir for _, plan in here if isinstance(plan, MoveEntry | RenameTwin)})
        old: list[OldName] = []
        if missing and not lost and not mixed:  # what inodes remember comes first
            self._remembered = True
            assert self._filled is not None
            old = [entry for entry in old_names(tree.scan, self._filled) if entry.ino in missing]
        if not lost and not mixed and not old:
            return False
        if len(self._wanted(Phase.NAMES, [finding for finding, _ in here], todo)) < len(here):
            return False
        trial = Overlay(StaysOpen(self.overlay))
        done: list[str] = []
        try:
            volume = WritableVolume(StaysOpen(trial), despite={"tables"})
            names = NameRepairs(volume, done)
            for ino in mixed:
                names.rearrange(ino)
            names.reconnect(lost)
            names.remember(missing, old)
            volume.close()
        except (F2fsError, OSError) as error:
            self.done.append(f"U001 names can't be put back: {error}")
            return False
        if not done:
            return False
        trial.apply(self.overlay)
        self.done += done
        return True
