"""The metrics of a trace once more, as slowly as their definitions read: one event at a time, of what blkparse prints.

Nothing here knows the analyzer.  Pairing goes place by place, a place being what no bio and no request divides: each
has a queue of the bios that wait for it and one of the requests that are under way on it, so there are no intervals,
no groups and no windows that could go wrong.
"""

from __future__ import annotations

import bisect
import math
import re
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

KINDS = ("read", "write", "discard")
LINE = re.compile(r" *(\d+),(\d+) +(\d+) +(\d+) +(\d+)\.(\d{9}) +(\d+) +([A-Z]{1,2}) +([A-Z]+)(?: (.*))?$")
SIZES = ("<= 4 KiB", "<= 16 KiB", "<= 64 KiB", "<= 128 KiB", "< 512 KiB", "512 KiB", "> 512 KiB")
K512 = 524288


@dataclass
class Event:
    """A line of blkparse."""

    device: tuple[int, int]
    time: int
    pid: int
    op: str
    kind: str
    sector: int
    sectors: int
    fua: bool
    split: int = 0

    @property
    def bytes(self) -> int:
        return self.sectors * 512

    @property
    def end(self) -> int:
        return self.sector + self.sectors


@dataclass
class Asked:
    """A request at the device."""

    kind: str
    issued: int
    sector: int
    sectors: int
    left: int  # places
    bios: dict[int, tuple[int, int]] = field(default_factory=dict)  # first sector and sectors of each that are in it
    completed: int = 0


@dataclass
class Bio:
    """What was queued, or what a split left of it."""

    queued: int
    kind: str


def parse(text: str) -> list[Event]:
    """The events that blkparse printed, without messages and totals."""
    found = []
    for line in text.splitlines():
        match = LINE.match(line)
        if match is None:
            continue
        major, minor, _, _, seconds, nano, pid, op, letters, rest = match.groups()
        flush = letters[0] == "F" and len(letters) > 1
        first, after = (letters[1], letters[2:]) if flush else (letters[0], letters[1:])
        place = re.match(r"(\d+)(?: ([+/]) (\d+))?", rest or "")
        sector = int(place[1]) if place else 0
        size = int(place[3]) if place and place[2] == "+" else 0
        split = int(place[3]) if place and place[2] == "/" else 0
        split = sector + (split - sector) % (1 << 32) if split else 0  # 32 bits of it are printed
        if op == "X":
            size = split - sector
        kind = {"R": "read", "W": "write", "D": "discard"}.get(first, "other")
        if size == 0:
            kind = "flush" if flush else "other"
        found.append(Event((int(major), int(minor)), int(seconds) * 10**9 + int(nano), int(pid), op, kind, sector, size,
                           "F" in after, split))  # fmt: skip
    return found


@dataclass
class Paired:
    """Who belongs to whom."""

    requests: list[Asked]
    parts: list[tuple[str, int, int, int, int, int]]  # of bios: kind, queued, issued, completed, sector, bytes
    depth: list[tuple[int, int]]  # (time, requests under way from then on)
    at_issue: list[int]


def places(events: list[Event]) -> dict[Any, list[int]]:
    """By device and kind: every sector at which anything begins or ends."""
    found: dict[Any, set[int]] = defaultdict(set)
    for event in events:
        found[event.device, event.kind] |= {event.sector, event.end}
    return {key: sorted(values) for key, values in found.items()}


def pair(events: list[Event]) -> Paired:
    """Follow each place of each device."""
    bios: list[Bio] = []
    waiting: dict[Any, deque[int]] = defaultdict(deque)
    flying: dict[Any, deque[Asked]] = defaultdict(deque)
    requeued: dict[Any, list[Asked]] = defaultdict(list)
    found = Paired([], [], [], [])
    depth = 0
    borders = places(events)

    def cells(event: Event) -> list[tuple[Any, str, int]]:
        found = borders[event.device, event.kind]
        low, high = bisect.bisect_left(found, event.sector), bisect.bisect_left(found, event.end)
        return [(event.device, event.kind, at) for at in found[low : max(high, low + 1)]]

    def width(cell: tuple[Any, str, int]) -> int:
        found = borders[cell[0], cell[1]]
        at = bisect.bisect_left(found, cell[2])
        return found[at + 1] - cell[2] if at + 1 < len(found) else 1

    for event in events:
        if event.kind == "other":
            continue
        key = (event.device, event.kind, event.sector, event.sectors)
        if event.op == "Q" and event.kind != "flush":
            bios.append(Bio(event.time, event.kind))
            for cell in cells(event):
                waiting[cell].append(len(bios) - 1)
        elif event.op == "X":
            here = waiting[(event.device, event.kind, event.split)]
            if here:
                old = here[0]
                bios.append(Bio(bios[old].queued, event.kind))
                rest = borders[event.device, event.kind]
                for at in rest[bisect.bisect_left(rest, event.split) :]:
                    row = waiting[(event.device, event.kind, at)]
                    if old not in row:
                        break
                    row[row.index(old)] = len(bios) - 1
        elif event.op == "D":
            again = requeued[key]
            if again:
                request = again.pop()
                request.issued = event.time
            else:
                request = Asked(event.kind, event.time, event.sector, event.sectors, len(cells(event)))
                if event.kind != "flush":
                    for cell in cells(event):
                        if waiting[cell]:
                            bio = waiting[cell].popleft()
                            first, count = request.bios.get(bio, (cell[2], 0))
                            request.bios[bio] = first, count + width(cell)
            for cell in cells(event):
                flying[cell].append(request)
            depth += 1
            found.depth.append((event.time, depth))
            found.at_issue.append(depth)
        elif event.op == "R":
            here = [r for r in flying[cells(event)[0]] if (r.sector, r.sectors) == (event.sector, event.sectors)]
            if here:
                for cell in cells(event):
                    flying[cell].remove(here[-1])
                requeued[key].append(here[-1])
                depth -= 1
                found.depth.append((event.time, depth))
        elif event.op == "C":
            for cell in cells(event):
                if flying[cell]:
                    request = flying[cell].popleft()
                    request.left -= 1
                    if not request.left:
                        request.completed = event.time
                        found.requests.append(request)
                        found.parts += [
                            (bios[bio].kind, bios[bio].queued, request.issued, event.time, first, count * 512)
                            for bio, (first, count) in request.bios.items()
                        ]
                        depth -= 1
                        found.depth.append((event.time, depth))
    return found


def issues(events: list[Event]) -> list[Event]:
    """Issued requests, each once: the last issue ahead of the completion."""
    rows: list[Event | None] = []
    last: dict[Any, list[int]] = defaultdict(list)
    for event in events:
        key = (event.device, event.kind, event.sector, event.sectors)
        if event.op == "D":
            last[key].append(len(rows))
            rows.append(event)
        elif event.op == "R" and last[key]:
            rows[last[key].pop()] = None
    return [event for event in rows if event is not None]


def union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Disjoint spans in order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > start:
            found.append((start, end))
    return found


def length(spans: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans)


def common(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    """What two unions have in common."""
    found = i = j = 0
    while i < len(one) and j < len(other):
        found += max(0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def sized(rows: list[Event]) -> dict[str, int]:
    return {"requests": len(rows), "bytes": sum(row.bytes for row in rows)}


def shares(part: list[Event], whole: list[Event]) -> dict[str, Any]:
    """Requests and bytes of a part, and what share of the whole they are."""
    mine, every = sized(part), sized(whole)
    return {**mine, "request_share": share(mine["requests"], every["requests"]),
            "byte_share": share(mine["bytes"], every["bytes"])}  # fmt: skip


def sequential(rows: list[Event]) -> dict[str, Any]:
    """Requests of one kind under each definition, each after those of its own device."""
    chosen: dict[str, list[Event]] = defaultdict(list)
    ends_of: dict[Any, list[int]] = defaultdict(list)
    for row in rows:
        start, end, ends = row.sector, row.end, ends_of[row.device]
        if ends and start == ends[-1]:
            chosen["strict"].append(row)
        for k in (8, 16, 32, 64):
            if start in ends[-k:]:
                chosen[f"last_{k}"].append(row)
        if any(abs(start - each) * 512 <= 128 * 1024 for each in ends[-32:]):
            chosen["near_32_128k"].append(row)
        if row.bytes >= K512:
            chosen["large_512k"].append(row)
        ends.append(end)
    names_of = ("strict", "last_8", "last_16", "last_32", "last_64", "near_32_128k", "large_512k")
    return {name: shares(chosen[name], rows) for name in names_of}


def any_sequential(rows: list[Event]) -> dict[str, Any]:
    """Requests that start where the one before on their device, of whatever kind, ended."""
    data = [row for row in rows if row.sectors]
    found = []
    for device in {row.device for row in data}:
        found += [b for a, b in pairwise(row for row in data if row.device == device) if a.end == b.sector]
    return shares(found, data)


def times(values: list[int]) -> dict[str, Any]:
    """Count, ends, mean and quantiles by nearest rank."""
    if not values:
        return {"count": 0}
    ordered = sorted(values)
    found = {"count": len(ordered), "min": ordered[0], "mean": sum(ordered) / len(ordered), "max": ordered[-1]}
    for percent in (50, 90, 95, 99, 99.9, 99.99):
        found[f"p{percent:g}"] = ordered[max(math.ceil(round(len(ordered) * percent / 100, 6)), 1) - 1]
    return found


def size_name(size: int) -> str:
    limits = (4096, 16384, 65536, 131072, K512 - 1, K512)
    return next((SIZES[n] for n, limit in enumerate(limits) if size <= limit), SIZES[-1])


def area_name(sector: int, bounds: list[int]) -> str:
    """The area that a sector is in; `bounds` are seven sectors."""
    names = ("sb", "cp", "sit", "nat", "ssa", "main")
    return next((names[n] for n in range(6) if bounds[n] <= sector < bounds[n + 1]), "outside")


def by_area(rows: list[Event], bounds: list[int]) -> dict[str, int]:
    """Bytes in each area."""
    found = dict.fromkeys(("sb", "cp", "sit", "nat", "ssa", "main"), 0)
    outside = 0
    for row in rows:
        inside = 0
        for n, name in enumerate(list(found)):
            part = max(0, min(row.end, bounds[n + 1]) - max(row.sector, bounds[n])) * 512
            found[name] += part
            inside += part
        outside += row.bytes - inside
    return found | ({"outside": outside} if outside else {})


def fsync_cost(rows: list[Event], bounds: list[int] | None) -> list[int]:
    """Bytes between one flush or FUA write of a device and the next, the FUA write with what it ends."""
    found: list[int] = []
    since: dict[Any, int] = defaultdict(int)
    for row in rows:
        if row.kind == "write":
            low, high = (bounds[5], bounds[6]) if bounds else (0, 1 << 60)
            since[row.device] += max(0, min(row.end, high) - max(row.sector, low)) * 512
        if row.kind == "flush" or (row.kind == "write" and row.fua):
            found.append(since.pop(row.device, 0))
    return found


def metrics(text: str, bounds: list[int] | None = None, app_bytes: int | None = None) -> dict[str, Any]:
    """All metrics that need no image, and with an area's bounds (in sectors) those by area."""
    events = parse(text)
    asked, paired = issues(events), pair(events)
    devices: dict[Any, int] = {}
    for event in events:
        devices.setdefault(event.device, len(devices))
    of = {kind: [row for row in asked if row.kind == kind and row.sectors] for kind in KINDS}
    queued = {kind: [e for e in events if e.op == "Q" and e.kind == kind] for kind in KINDS}
    spans = {
        kind: union([(r.sector + (devices[r.device] << 60), r.end + (devices[r.device] << 60)) for r in of[kind]])
        for kind in KINDS
    }
    largest = max((row.bytes for row in of["write"]), default=0)
    at_largest = [row for row in of["write"] if row.bytes == largest]
    both = common(spans["discard"], spans["write"]) * 512
    under_way = {
        kind: union([(r.issued, r.completed) for r in paired.requests if r.kind == kind])
        for kind in ("read", "discard")
    }
    cost = fsync_cost(asked, bounds)
    empty = sum(e.op == "Q" and e.kind == "flush" for e in events)
    found: dict[str, Any] = {
        "events": len(events),
        "events_by_operation": dict(Counter(e.op for e in events)),
        "reads": sized(of["read"]),
        "writes": {"requests": len(of["write"]) + empty, "bytes": sized(of["write"])["bytes"],
                   "requests_with_data": len(of["write"])},
        "discards": sized(of["discard"]),
        "flushes": sum(row.kind == "flush" for row in asked),
        "empty_flushes": empty,
        "fua_writes": sum(row.fua and row.kind == "write" for row in asked),
        "size_512k": {
            **shares([r for r in of["write"] if r.bytes == K512], of["write"]),
            "at_least": shares([r for r in of["write"] if r.bytes >= K512], of["write"]),
            "largest": {"size": largest, "requests": len(at_largest),
                        "request_share": share(len(at_largest), len(of["write"]))},
        },
        "discard_coverage": {
            "bytes": both, "of_bytes": length(spans["write"]) * 512,
            "byte_share": share(both, length(spans["write"]) * 512),
            "discarded_bytes": sized(of["discard"])["bytes"],
            "discarded_unique_bytes": length(spans["discard"]) * 512, "written_bytes": sized(of["write"])["bytes"],
            "volume_share": share(sized(of["discard"])["bytes"], sized(of["write"])["bytes"]),
        },
        "sequentiality": {**{kind: sequential(of[kind]) for kind in KINDS}, "any": any_sequential(asked)},
        "small_discards": {
            "issued": shares([r for r in of["discard"] if r.bytes < 262144], of["discard"]),
            "queued": shares([r for r in queued["discard"] if r.bytes < 262144], queued["discard"]),
        },
        "fs_waf": share(sized(of["write"])["bytes"], app_bytes) if app_bytes else None,
        "fsync_cost": {"count": len(cost), **({"min": min(cost), "max": max(cost), "mean": sum(cost) / len(cost),
                       "median": sorted(cost)[(len(cost) - 1) // 2], "bytes": sum(cost)} if cost else {})},
        "latency": latency(paired, bounds),
        "discard_read_overlap": {
            "time_ns": common(under_way["read"], under_way["discard"]), "read_time_ns": length(under_way["read"]),
            "discard_time_ns": length(under_way["discard"]),
        },
        "merges": {"back": sum(e.op == "M" for e in events), "front": sum(e.op == "F" for e in events),
                   "splits": sum(e.op == "X" for e in events)},
        "queue_depth": depths(paired),
        "processes": processes([e for e in events if e.op == "Q"] or [e for e in events if e.op == "D"]),
        "sizes": {kind: {"issued": dict(Counter(r.bytes for r in of[kind])),
                         "queued": dict(Counter(r.bytes for r in queued[kind]))} for kind in KINDS},
    }  # fmt: skip
    if bounds is not None:
        found |= {"areas": by_area(of["write"], bounds), "areas_read": by_area(of["read"], bounds),
                  "areas_discarded": by_area(of["discard"], bounds)}  # fmt: skip
    return found


def latency(paired: Paired, bounds: list[int] | None) -> dict[str, Any]:
    """By operation, by size and by area."""
    rows: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for r in paired.requests:
        rows["d2c", r.kind].append(r.completed - r.issued)
        if r.kind in KINDS:
            rows["d2c_by_size", r.kind, size_name(r.sectors * 512)].append(r.completed - r.issued)
            if bounds:
                rows["d2c_by_area", r.kind, area_name(r.sector, bounds)].append(r.completed - r.issued)
    for kind, queued, issued, completed, sector, size in paired.parts:
        rows["q2c", kind].append(completed - queued)
        rows["q2d", kind].append(issued - queued)
        rows["q2c_by_size", kind, size_name(size)].append(completed - queued)
        if bounds:
            rows["q2c_by_area", kind, area_name(sector, bounds)].append(completed - queued)
    found: dict[str, Any] = {"d2c": {}, "q2c": {}, "q2d": {}, "d2c_by_size": {k: {} for k in KINDS},
                             "q2c_by_size": {k: {} for k in KINDS}}  # fmt: skip
    if bounds:
        found |= {"d2c_by_area": {k: {} for k in KINDS}, "q2c_by_area": {k: {} for k in KINDS}}
    for key, values in rows.items():
        place = found
        for name in key[:-1]:
            place = place[name]
        place[key[-1]] = times(values)
    return found


def depths(paired: Paired) -> dict[str, Any]:
    """Requests at the device."""
    weighted = sum((b[0] - a[0]) * a[1] for a, b in pairwise(paired.depth))
    span = paired.depth[-1][0] - paired.depth[0][0] if paired.depth else 0
    ordered = sorted(paired.at_issue)
    found: dict[str, Any] = {"max": max(ordered, default=0), "mean_over_time": share(weighted, span)}
    if ordered:
        found["mean_at_issue"] = sum(ordered) / len(ordered)
        found |= {f"p{q}_at_issue": ordered[max(math.ceil(len(ordered) * q / 100), 1) - 1] for q in (50, 90, 99)}
    return found


def processes(rows: list[Event]) -> dict[int, dict[str, Any]]:
    """Requests and bytes by process."""
    pids = {row.pid for row in rows}
    return {
        pid: {f"{kind}s": sized([r for r in rows if r.pid == pid and r.kind == kind]) for kind in KINDS} for pid in pids
    }


EXACT = 0.0011, 0.0081  # how far quantiles may be from the truth: of all, by size and area


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Where a report says something else than the reference."""
    ours = dict(ours)
    ours["processes"] = {
        row["pid"]: {name: row[name] for name in ("reads", "writes", "discards")} for row in ours["processes"]
    }
    ours["sizes"] = {
        kind: {at: {int(size): n for size, n in each.get("histogram", {}).items()} for at, each in both.items()}
        for kind, both in ours["sizes"].items()
    }
    found: list[str] = []
    _differ("", "", ours, theirs, found)
    return found


def _differ(name: str, part: str, ours: Any, theirs: Any, found: list[str]) -> None:
    if isinstance(theirs, dict):
        if not isinstance(ours, dict):
            found.append(f"{name}: {ours!r}, not a table")
            return
        for key, value in theirs.items():
            if key not in ours:
                found.append(f"{name}.{key} is missing; it is {value!r}")
            else:
                _differ(f"{name}.{key}", str(key), ours[key], value, found)
        if re.fullmatch(r"\.latency\.\w+(\.\w+)?|\.processes|\.sizes\.\w+\.\w+|\.areas\w*|\.events_by_operation", name):
            found += [f"{name}.{key} is not in the trace" for key in ours if key not in theirs]
        return
    near = 1e-12
    if name.startswith(".latency") and re.match(r"p\d", part):
        near = EXACT["_by_" in name]
    if name == ".fsync_cost.median":
        near = EXACT[0]
    same = ours == theirs
    if not same and isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        same = math.isclose(ours, theirs, rel_tol=near, abs_tol=1 if part.startswith("p") else 0)
    if not same:
        found.append(f"{name}: {ours!r}, by the reference {theirs!r}")
