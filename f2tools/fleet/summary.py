"""The summary of a run: counts, distributions in fixed bins, and the targets that stand out; its size is fixed."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Any

from f2tools.fleet.work import Result

MOST_CODES = 10_000
SHOWN = 20  # outliers, codes, reasons
RARE = 20  # one target in so many; a sound one stands out where so few have as much

# What is drawn of each verb: column, title, upper ends of the bins (the last one is open).
SHARES = tuple(n / 10 for n in range(1, 11))
TIMES = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
AMPLIFICATION = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10)
COUNTS = (0, 1, 3, 10, 30, 100, 300, 1000, 10_000, 100_000)
LATENCIES = (10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**7, 3 * 10**7, 10**8, 3 * 10**8, 10**9, 10**10)
DISTRIBUTIONS: dict[str, dict[str, tuple[str, tuple[float, ...]]]] = {
    "info": {
        "utilization": ("Utilisation: valid blocks of those for users", SHARES),
        "overwrites": ("Wear: how often the volume's size was written in its life", TIMES),
    },
    "check": {"errors": ("Errors", COUNTS), "warnings": ("Warnings", COUNTS)},
    "scan": {"names": ("Names in directory blocks", COUNTS)},
    "undelete": {"certain": ("Deleted files that are certain", COUNTS), "files": ("Deleted files", COUNTS)},
    "manifest": {"entries": ("Names", COUNTS), "unreadable": ("Files that can't be read", COUNTS)},
    "trace": {
        "fs_waf": ("Write amplification of the file system", AMPLIFICATION),
        "device_waf_ratio": ("Write amplification of the device", AMPLIFICATION),
        "size_512k_request_share": ("Share of writes of 512 KiB", SHARES),
        "latency_d2c_write_p99": ("99th percentile of write latency, ns", LATENCIES),
    },
}
# By which columns a target stands out, the first one first.
STANDS_OUT = {
    "info": ("overwrites", "utilization"),
    "check": ("errors", "warnings"),
    "scan": ("unreadable", "nodes"),
    "undelete": ("files",),
    "manifest": ("unreadable", "entries"),
    "trace": ("fs_waf", "latency_d2c_write_p99"),
}


class Summary:
    """Filled row by row with `add`."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        self.targets = self.ok = self.not_looked_at = self.findings = 0
        self.codes: Counter[str] = Counter()
        self.targets_by_code: Counter[str] = Counter()
        self.kinds: dict[str, str] = {}  # severity and name by code, where findings have them
        self.bins: dict[str, list[int]] = {
            name: [0] * (len(edges) + 1) for name, (_, edges) in DISTRIBUTIONS[verb].items()
        }
        self.reasons: Counter[str] = Counter()  # why targets could not be looked at, without their names
        self._outliers: list[tuple[tuple[float, ...], int, dict[str, Any]]] = []

    def add(self, result: Result) -> Result:
        """Count a result, and hand it on."""
        row = result.row
        self.targets += 1
        self.ok += row["ok"]
        self.not_looked_at += not result.done
        self.findings += len(result.findings)
        codes = [str(finding.get("code") or finding.get("grade")) for finding in result.findings]
        for counter, seen in ((self.codes, codes), (self.targets_by_code, set(codes))):
            counter.update(code if code in counter or len(counter) < MOST_CODES else "others" for code in seen)
        for finding in result.findings:
            code = str(finding.get("code"))
            if code in self.codes and "severity" in finding:
                self.kinds[code] = f"{finding['severity']}: {finding['name']}"
        if not result.done:
            reason = (row["reason"] or "").replace(f"{row['target']}: ", "").replace(row["target"] or "-", "TARGET")
            self.reasons[reason if reason in self.reasons or len(self.reasons) < MOST_CODES else "others"] += 1
        for name, (_, edges) in DISTRIBUTIONS[self.verb].items():
            value = row.get(name)
            if value is not None:
                self.bins[name][_bin(value, edges)] += 1
        self._stands_out(row)
        return result

    def _stands_out(self, row: dict[str, Any]) -> None:
        rank = (float(not row["ok"]), *(float(row.get(name) or 0) for name in STANDS_OUT[self.verb]))
        if any(rank):
            entry = (rank, -self.targets, row)  # among equals the one that was named first
            (heapq.heappush if len(self._outliers) < SHOWN else heapq.heappushpop)(self._outliers, entry)

    @property
    def outliers(self) -> list[dict[str, Any]]:
        """The rows that stand out most, the first first: what is not ok, and what has as much of something as few."""
        ranked = (row for _, _, row in sorted(self._outliers, key=lambda entry: entry[:2], reverse=True))
        return [row for row in ranked if not row["ok"] or any(self._is_rare(row, name) for name in self.bins)]

    def _is_rare(self, row: dict[str, Any], name: str) -> bool:
        value = row.get(name)
        if name not in STANDS_OUT[self.verb] or value is None:
            return False
        bins = self.bins[name]
        at = _bin(value, DISTRIBUTIONS[self.verb][name][1])
        return at > 0 and sum(bins[at:]) * RARE <= sum(bins)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "verb": self.verb,
            "targets": self.targets,
            "ok": self.ok,
            "not_ok": self.targets - self.ok,
            "not_looked_at": self.not_looked_at,
            "findings": self.findings,
            "codes": dict(sorted(self.codes.items())),
            "distributions": {
                name: {"upto": [*edges, None], "targets": self.bins[name]}
                for name, (_, edges) in DISTRIBUTIONS[self.verb].items()
            },
            "reasons": dict(self.reasons.most_common()),
            "outliers": self.outliers,
        }

    def lines(self) -> Iterator[str]:
        """For a terminal: outliers first, then findings by code, then the sum."""
        outliers = [row for row in self.outliers if not row["ok"]]
        for row in outliers:
            said = f"{row['target']}: "
            yield row["reason"] if row["reason"].startswith(said) else said + row["reason"]
        left = self.targets - self.ok - len(outliers)
        if left:
            yield f"... and {left:,} more that are not ok"
        for code, count in self.targets_by_code.most_common(SHOWN):
            yield f"{code:10} {self.codes[code]:>9,} in {count:,} of {self.targets:,} targets"
        said = f"{self.targets:,} target{'s' * (self.targets != 1)}: {self.ok:,} ok, {self.targets - self.ok:,} not"
        if self.not_looked_at:
            said += f", {self.not_looked_at:,} of them could not be looked at"
        yield said


def _bin(value: float, edges: tuple[float, ...]) -> int:
    return next((number for number, edge in enumerate(edges) if value <= edge), len(edges))
