"""Whether a volume is sound.  Nothing is written, and nothing is taken on trust.

What was committed after the last checkpoint counts as it does for every reader; what the next opening puts in order
(pages that were never committed, ids of what was deleted) is no damage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from f2tools.device.open import open_device
from f2tools.dffs.derive import Reached, Walk
from f2tools.dffs.layout import CHECKPOINT, SPACE
from f2tools.dffs.lost_super import super_from_scan
from f2tools.dffs.nodes import File
from f2tools.dffs.pages import NotDffs, parse_super
from f2tools.dffs.problems import Finding, finding
from f2tools.dffs.space import Space
from f2tools.dffs.state import NoCheckpoint, behind_the_end, checkpoint_blocks
from f2tools.dffs.volume import Volume, open_volume
from f2tools.errors import F2fsError
from f2tools.text import printable

MOST_FINDINGS = 10_000


@dataclass
class DffsReport:
    """What a check found."""

    clean: bool = False
    spare: bool = True
    findings: list[Finding] = field(default_factory=list)
    left_out: int = 0  # findings beyond so many
    directories: int = 0
    files: int = 0
    names: int = 0
    pages_used: int = 0
    committed_since: int = 0  # pages of the log behind the checkpoint that count
    uncommitted: int = 0  # and pages that don't
    bits_put_right: int = 0  # pages with wrong bits
    spares_wrong: int = 0  # spare areas with wrong bits in the tag or the code

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "sound": self.sound, "clean": self.clean, "spare": self.spare, "directories": self.directories,
            "files": self.files, "names": self.names, "pages_used": self.pages_used,
            "committed_since_checkpoint": self.committed_since, "uncommitted": self.uncommitted,
            "pages_put_right": self.bits_put_right, "spares_wrong": self.spares_wrong,
            "findings_left_out": self.left_out,
            "findings": [
                {"code": one.code, "text": one.text, "ino": one.ino, "page": one.page} for one in self.findings
            ],
        }  # fmt: skip


class _Check(Walk):
    """One check of one volume: the walk, and the content of files."""

    def __init__(self, volume: Volume, advance: Callable[[int], None]) -> None:
        super().__init__(volume, self.found, advance)
        self.report = DffsReport(clean=volume.clean, spare=volume.pages.has_spare)

    def found(self, code: str, detail: str = "", ino: int | None = None, page: int | None = None) -> None:
        if len(self.report.findings) < MOST_FINDINGS:
            self.report.findings.append(finding(code, printable(detail), ino, page))
        else:
            self.report.left_out += 1

    def supers(self) -> None:
        """All copies of the superblock are whole and say the same."""
        volume, seen = self.volume, set[bytes]()
        per = self.shape.pages_per_block
        for block in (int(one) for one in volume.sb.supers):  # type: ignore[attr-defined]
            try:
                # the first page of the flash is none for a pointer, so it is read by itself
                data = volume.pages.content(block * per) if block < self.shape.blocks else b""
                sb = parse_super(data, volume.name) if data else None
                if sb is None:
                    self.found("DFF001", "it is not whole", page=block * per)
                else:
                    seen.add(sb.build())
            except F2fsError as error:
                self.found("DFF001", str(error), page=block * per)
        if len(seen) > 1:
            self.found("DFF002")

    def checkpoints(self) -> None:
        """No checkpoint that is newer than the one that counts has been lost, and nothing of the log behind it."""
        volume, per = self.volume, self.shape.pages_per_block
        tags = (
            (volume.pages.tag(page), page)
            for block in checkpoint_blocks(volume.sb)
            for page in range(block * per, (block + 1) * per)
        )
        lost = behind_the_end(volume.pages, volume.state, volume.rolled)
        if lost is not None:
            self.found("DFF005", f"it ends at number {volume.rolled.seq}", page=lost)
        last = max(((tag.offset, page) for tag, page in tags if tag and tag.kind == CHECKPOINT), default=(0, 0))
        if last[0] > volume.state.head.number & 0xFFFFFFFF:
            self.found("DFF004", f"number {last[0]}, and number {volume.state.head.number} counts", page=last[1])

    def tables(self) -> None:
        """Every page of the mapping table is there, and names lead to everything that it lists."""
        for which in range(self.shape.table_pages):
            try:
                page = self.volume.state.table[which]
                if page:
                    self.take(page, None)
                numbers = self.volume.table_page(which)
            except F2fsError as error:
                self.found("DFF010", str(error), page=self.volume.state.table[which])
                continue
            if not self.volume.clean:
                continue
            for place, page in enumerate(numbers):
                number = which * self.shape.pointers + place
                if page and number and number not in self.reached.ids:
                    self.found("DFF013", f"logical id {number}", page=page)

    def file(self, file: File) -> None:
        super().file(file)
        if file.is_link:
            try:
                target = self.volume.readlink(file)
                if not target or b"\0" in target:
                    self.found("DFF046", "its target is empty or holds a NUL", file.ino, file.page)
            except F2fsError as error:
                self.found("DFF046", str(error), file.ino, file.page)

    def data(self, file: File, number: int, page: int, end: int) -> bool:
        alone = super().data(file, number, page, end)
        if alone:
            self.advance(1)
            try:
                self.volume.content_page(file, number)
            except F2fsError as error:
                self.found("DFF045", str(error), file.ino, page)
        return alone

    def space(self, reached: Reached) -> None:
        """On a volume that was closed, the space table says exactly what is in use."""
        volume, state = self.volume, self.volume.state
        for page in state.space:
            if page:
                self.take(page, None)
        if not volume.clean:
            return
        try:
            pages = [
                volume.pages.read(page, (SPACE,))[0] if page else bytes(self.shape.page_size) for page in state.space
            ]
        except F2fsError as error:
            self.found("DFF050", str(error))
            return
        known = Space(self.shape, ())
        known.load(pages, [page for page in (*state.table, *state.space) if page < self.shape.pages])
        for page in np.flatnonzero(reached.live & ~known.live).tolist():
            self.found("DFF051", page=page)
        lost = np.flatnonzero(known.live & ~reached.live)
        if lost.size:
            self.found("DFF052", str(lost.size), page=int(lost[0]))
        if state.head.live != known.used:
            self.found("DFF003", f"{state.head.live} pages in use, and the space table {known.used}")
        if state.head.ids != len(reached.ids):
            self.found("DFF003", f"{state.head.ids} logical ids, and {len(reached.ids)} are in use")


def check(volume: Volume, advance: Callable[[int], None] = lambda _: None) -> DffsReport:
    """Check a volume that was opened for reading."""
    volume.pages.wrong_spares = wrong_spares = set[int]()
    checking = _Check(volume, advance)
    checking.supers()
    checking.checkpoints()
    reached = checking.run()
    checking.tables()
    checking.space(reached)
    made = checking.report
    made.directories, made.files, made.names = reached.directories, reached.files, reached.names
    made.pages_used = int(reached.live.sum())
    made.committed_since, made.uncommitted = volume.rolled.committed, volume.rolled.pages - volume.rolled.committed
    made.bits_put_right, made.spares_wrong = volume.pages.put_right, len(wrong_spares)
    return made


def check_dump(path: str, advance: Callable[[int], None] = lambda _: None) -> DffsReport:
    """Check the volume in a dump, also one that can't be opened and could be repaired; NotDffs where there is none."""
    try:
        with open_volume(path) as volume:
            return check(volume, advance)
    except NoCheckpoint as error:
        return DffsReport(findings=[finding("DFF004", str(error))])
    except NotDffs:
        with open_device(path, whole=True) as device:
            if super_from_scan(device) is None:
                raise
        return DffsReport(findings=[finding("DFF001", "no copy is whole; checkpoints tell what it said")])
