"""The verbs: the columns of a target's row, those of its findings, and the function that fills them.

A function gets a name and the options, and returns (row, findings); it raises what the library raises.  It gives a
`reason` where something is wrong; `target`, `ok` and `looked_at` are added by `work`, `target` to each finding.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from f2tools.fleet.targets import parts_of

BOOL, INT, FLOAT, TEXT = "bool", "int64", "float64", "string"
KEPT_FINDINGS = 20_000  # of one target
BEGINNING = {"target": TEXT, "ok": BOOL}
END = {"reason": TEXT, "looked_at": BOOL}

Row = dict[str, Any]
Look = Callable[[str, "Options"], tuple[Row, list[Row]]]


@dataclass(frozen=True)
class Options:
    """What all targets are looked at with."""

    memory_bytes: int = 512 << 20  # of one check
    content: bool = False  # whether checks read compressed and sealed files too
    cache: str | None = None  # where each worker keeps what it reads of URLs


@dataclass(frozen=True)
class Verb:
    """One verb: its own columns and those of its findings, by name, with their types."""

    name: str
    own: dict[str, str]
    findings: dict[str, str]
    look: Look

    @property
    def columns(self) -> dict[str, str]:
        """All columns of the first table, in order."""
        return BEGINNING | self.own | END

    @property
    def finding_columns(self) -> dict[str, str]:
        """All columns of the second table, in order."""
        return {"target": TEXT} | self.findings


def _check(target: str, options: Options) -> tuple[Row, list[Row]]:
    from f2tools.fsck.check import check
    from f2tools.fsck.facts.image import open_image
    from f2tools.fsck.findings import Severity

    image = open_image(*parts_of(target))
    try:
        report = check(image, memory_bytes=options.memory_bytes, content=options.content)
        size, missing = image.geo.block_count * image.geo.block_size, image.missing_bytes
    finally:
        image.close()
    counts = report.severities
    row: Row = {
        "errors": counts[Severity.ERROR] + counts[Severity.FATAL],
        "warnings": counts[Severity.WARNING],
        "fatal": counts[Severity.FATAL],
        "inodes": report.inodes,
        "nodes": report.nodes,
        "dentries": report.dentries,
        "size_bytes": size,
        "missing_bytes": missing,
    }
    if not report.sound:
        worst = report.findings[0]
        row["reason"] = f"{worst.code}: {worst.message}"
    findings = []
    for finding in report.findings[:KEPT_FINDINGS]:
        shown = finding.as_dict()
        texts = {name: None if shown[name] is None else str(shown[name]) for name in ("found", "expected")}
        findings.append({name: shown[name] for name in CHECK.findings} | texts)
    return row, findings


CHECK = Verb(
    "check",
    {
        "errors": INT, "warnings": INT, "fatal": INT, "inodes": INT, "nodes": INT, "dentries": INT, "size_bytes": INT,
        "missing_bytes": INT,
    },
    {
        "code": TEXT, "name": TEXT, "severity": TEXT, "area": TEXT, "blkaddr": INT, "segno": INT, "nid": INT,
        "ino": INT, "path": TEXT, "found": TEXT, "expected": TEXT, "count": INT, "message": TEXT,
    },
    _check,
)  # fmt: skip


def _info(target: str, _: Options) -> tuple[Row, list[Row]]:
    from f2tools.dump.info import volume_info
    from f2tools.f2fs.volume.volume import open_volume

    with open_volume(*parts_of(target)) as volume:
        shown = volume_info(volume)
    space, state = shown["space"], shown["state"]
    written = shown["kbytes_written"]
    row: Row = {
        "label": shown["label"],
        "uuid": shown["uuid"],
        "format": shown["format"],
        "features": ",".join(shown["features"]),
        "size_bytes": shown["size_bytes"],
        "device_bytes": shown["device_bytes"],
        "block_size": shown["geometry"]["block_size"],
        "segs_per_sec": shown["geometry"]["segs_per_sec"],
        **{name: space[name] for name in _SPACE},
        "utilization": space["valid_block_count"] / space["user_block_count"] if space["user_block_count"] else None,
        "clean": state["clean"],
        "checkpoint_ver": state["checkpoint_ver"],
        "fsynced_files": state["fsynced_files"],
        "orphans": state["orphans"],
        "kbytes_written": written,
        "overwrites": None if written is None else written * 1024 / shown["size_bytes"],
        "version": shown["version"],
    }
    if shown["problems"]:
        row["reason"] = shown["problems"][0]
    findings = [{"code": code, "message": text} for code in ("problem", "warning") for text in shown[f"{code}s"]]
    return row, findings


_SPACE = (
    "user_block_count", "valid_block_count", "valid_node_count", "valid_inode_count", "free_segment_count",
    "overprov_segment_count",
)  # fmt: skip
INFO = Verb(
    "info",
    {
        "label": TEXT, "uuid": TEXT, "format": TEXT, "features": TEXT, "size_bytes": INT, "device_bytes": INT,
        "block_size": INT, "segs_per_sec": INT, **dict.fromkeys(_SPACE, INT), "utilization": FLOAT, "clean": BOOL,
        "checkpoint_ver": INT, "fsynced_files": INT, "orphans": INT, "kbytes_written": INT, "overwrites": FLOAT,
        "version": TEXT,
    },
    {"code": TEXT, "message": TEXT},
    _info,
)  # fmt: skip


def _scan(target: str, _: Options) -> tuple[Row, list[Row]]:
    from f2tools.forensics.index import figures, open_index
    from f2tools.forensics.without_start import open_to_examine

    devices: Any = parts_of(target)
    with open_to_examine(*devices) as volume, open_index(volume) as index:
        found = figures(index)
        warnings = [{"code": "warning", "message": text} for text in volume.warnings]
    return {name: found[name] for name in SCAN.own}, warnings


SCAN = Verb(
    "scan",
    dict.fromkeys(("nodes", "live", "inodes", "dirblocks", "names", "unreadable", "blocks_read", "bytes_read"), INT),
    {"code": TEXT, "message": TEXT},
    _scan,
)


def _undelete(target: str, _: Options) -> tuple[Row, list[Row]]:
    from f2tools.forensics.index import open_index
    from f2tools.forensics.undelete import GRADES, Undelete
    from f2tools.forensics.without_start import open_to_examine

    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    findings: list[Row] = []
    devices: Any = parts_of(target)
    with open_to_examine(*devices) as volume, open_index(volume) as index:
        for found in Undelete(volume, index).deleted():
            counts[found.grade] += 1
            sizes[found.grade] += found.inode.size if found.inode else 0
            if len(findings) < KEPT_FINDINGS:
                findings.append({
                    "grade": found.grade,
                    "type": found.type,
                    "path": found.path.decode("utf-8", "surrogateescape"),
                    "ino": found.ino,
                    "size": found.inode.size if found.inode else None,
                    "mtime_ns": found.inode.mtime_ns if found.inode else None,
                    "message": "; ".join(found.reasons),
                })  # fmt: skip
    row: Row = {"files": counts.total()}
    for grade in GRADES:
        row[grade.replace(" ", "_")] = counts[grade]
    for grade in GRADES[:-1]:
        row[f"{grade}_bytes"] = sizes[grade]
    return row, findings


UNDELETE = Verb(
    "undelete",
    {
        "files": INT, "certain": INT, "probable": INT, "partial": INT, "name_only": INT, "certain_bytes": INT,
        "probable_bytes": INT, "partial_bytes": INT,
    },
    {"grade": TEXT, "type": TEXT, "path": TEXT, "ino": INT, "size": INT, "mtime_ns": INT, "message": TEXT},
    _undelete,
)  # fmt: skip


class _Hashed:
    """A text file that keeps nothing of what is written but its SHA-256, and counts the entries by type."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, text: str) -> int:
        """As for any text file."""
        self.sha256.update(text.encode("utf-8", "surrogateescape"))
        return len(text)


def _manifest(target: str, _: Options) -> tuple[Row, list[Row]]:
    from f2tools.dump.manifest import write_manifest
    from f2tools.f2fs.volume.volume import open_volume

    out: Any = _Hashed()
    seen = Counter[str]()
    with open_volume(*parts_of(target)) as volume:
        errors = write_manifest(volume, out, advance=lambda: seen.update(("entries",)))
        inodes = volume.cp.valid_inode_count
    row: Row = {
        "entries": seen["entries"],
        "inodes": inodes,
        "unreadable": len(errors),
        "sha256": out.sha256.hexdigest(),
    }
    if errors:
        path, errno = next(iter(errors.items()))
        row["reason"] = f"{len(errors)} of its files can't be read; {path}: {errno}"
    findings = [{"code": errno, "path": path} for path, errno in islice(errors.items(), KEPT_FINDINGS)]
    return row, findings


MANIFEST = Verb(
    "manifest",
    {"entries": INT, "inodes": INT, "unreadable": INT, "sha256": TEXT},
    {"code": TEXT, "path": TEXT},
    _manifest,
)


def _trace(target: str, _: Options) -> tuple[Row, list[Row]]:
    from f2tools.trace.analyze import AnalysisRequest, analyze
    from f2tools.trace.metrics.catalogue import flat

    done = analyze(AnalysisRequest(target))
    numbers = flat(done.report)
    row: Row = {column(name): _number(numbers.get(name), kind) for name, kind in _METRICS.items()}
    damage = done.trace.damage
    if not damage.clean:
        row["reason"] = "; ".join(damage.summary())
    findings = [
        {"code": problem.kind, "stream": problem.stream, "offset": problem.offset, "message": problem.text}
        for problem in damage.problems
    ]
    return row, findings


def column(metric: str) -> str:
    """The column of a number of a trace's report: `latency.d2c.write.p99` is `latency_d2c_write_p99`."""
    return metric.replace(".", "_")


def _number(value: Any, kind: str) -> Any:
    return value if value is None or kind != FLOAT else float(value)


_METRICS = {
    "events": INT, "duration_ns": INT, "reads.requests": INT, "reads.bytes": INT, "writes.requests": INT,
    "writes.bytes": INT, "discards.requests": INT, "discards.bytes": INT, "flushes": INT, "fs_waf": FLOAT,
    "device_waf.ratio": FLOAT, "size_512k.request_share": FLOAT, "sequentiality.write.strict.byte_share": FLOAT,
    "sequentiality.write.last_32.byte_share": FLOAT, "discard_coverage.byte_share": FLOAT,
    "small_discards.issued.request_share": FLOAT, "sizes.write.issued.mean": FLOAT, "latency.d2c.read.p50": INT,
    "latency.d2c.read.p99": INT, "latency.d2c.write.p50": INT, "latency.d2c.write.p99": INT,
    "latency.q2c.write.p99": INT, "fsync_cost.mean": FLOAT, "queue_depth.mean_over_time": FLOAT, "damage.lost": INT,
}  # fmt: skip
TRACE = Verb(
    "trace",
    {column(name): kind for name, kind in _METRICS.items()},
    {"code": TEXT, "stream": TEXT, "offset": INT, "message": TEXT},
    _trace,
)

VERBS = {verb.name: verb for verb in (CHECK, INFO, SCAN, UNDELETE, MANIFEST, TRACE)}
