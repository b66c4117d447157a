"""How a repair went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from f2tools.fsck.check import CheckReport
from f2tools.fsck.findings import Severity
from f2tools.fsck.problems import FSYNC_REFUSED, SIT_MISSING


@dataclass
class Outcome:
    """How a repair went: what was found first, what is left, what was done in each round, whether the image changed."""

    before: CheckReport
    after: CheckReport
    done: list[str] = field(default_factory=list)
    rounds: int = 0
    written_bytes: int = 0

    @property
    def complete(self) -> bool:
        """Whether the result is sound."""
        return self.after.sound

    @property
    def left(self) -> Counter[str]:
        """Codes of severity warning or above that are still found, with their counts."""
        return Counter(f.code for f in self.after.findings if f.severity >= Severity.WARNING)

    @property
    def better(self) -> bool:
        """Whether the result is sound, or at least has less damage and none of a new kind."""
        if self.complete:
            return True
        # a refused node is found where all else is sound
        before, after = (report.errors - report.counts[FSYNC_REFUSED.code] for report in (self.before, self.after))
        fewer = after < before and _in_danger(self.after) <= _in_danger(self.before)
        return fewer and set(self.left) <= {*self.before.counts, FSYNC_REFUSED.code}


def _in_danger(report: CheckReport) -> int:
    """Blocks in use that the next writer would take, as they are marked free."""
    return sum(finding.count for finding in report.findings if finding.code == SIT_MISSING.code)
