"""What an fsync costs: roll-forward recovery against a checkpoint for each, in single blocks and under SQLite."""

from __future__ import annotations

from dataclasses import replace

from f2tools.experiment.loads import GIB, MIB
from f2tools.experiment.model import (
    Claim,
    Experiment,
    Numbers,
    Outcome,
    Part,
    Row,
    Setting,
    cant_tell,
    verdict,
)
from f2tools.experiment.places import CHECKPOINTS, load_parts, only_guest
from f2tools.experiment.studies.traffic import PLACES, bars, bytes_written, rows_of
from f2tools.pictures.svg import Picture

VOLUME = 12 * GIB  # the paper's eMMC partition
RECORDS = 1_000  # few as they are, they are not scaled
# A transaction took longer on the paper's eMMC than a tick of the kernel's clock.  Within one a file gets no new mtime,
# and ext4 has no metadata to write.
PAUSE = 0.005
FILES, FILE, WRITES = 100, 256 << 10, 2_000
BEFORE, AFTER = 0.54, 1.37  # bytes to ext4's: with roll-forward, and with a checkpoint for each fsync
PAPER = {"f2fs": "0.54", CHECKPOINTS: "1.37", "btrfs": "3", "nilfs2": "about 1"}
LIBRARY = "-fdatasync"  # SQLite itself, as it is built today
NEAR = 0.2  # the distance from the paper's number that still counts as equal


def sqlite_parts(setting: Setting) -> list[Part]:
    """Each file system, and F2FS without roll-forward."""
    size = setting.bytes(VOLUME, 256 * MIB)
    parts = load_parts(setting, "sqlite", {"records": RECORDS, "pause": PAUSE}, size, (CHECKPOINTS,))
    if setting.place != "engine":
        library = load_parts(setting, "sqlite", {"records": RECORDS, "library": True}, size)
        some = [one for one in library if one.name in ("f2fs", "ext4")]
        parts += [Part(f"{one.name}{LIBRARY}", one.function, one.given) for one in some]
    return parts


def fsync_parts(setting: Setting) -> list[Part]:
    """The same, in single blocks."""
    params = {"files": FILES, "file_bytes": FILE, "writes": WRITES, "pause": PAUSE}
    return load_parts(setting, "fsync", params, setting.bytes(VOLUME, 256 * MIB), (CHECKPOINTS,))


def near(here: float, paper: float) -> bool:
    """Whether a ratio is the paper's."""
    return abs(here / paper - 1) <= NEAR


def judge_sqlite(setting: Setting, found: dict[str, Numbers]) -> Outcome:
    """Bytes against ext4's."""
    claims = [_between(found)]
    for name, paper, what in (
        ("f2fs", BEFORE, "F2FS writes 46 % less than ext4"),
        (CHECKPOINTS, AFTER, "with a checkpoint for each fsync F2FS writes 37 % more than ext4"),
        ("btrfs", 3.0, "btrfs writes three times as much as ext4"),
        ("nilfs2", 1.0, "nilfs2 writes about as much as ext4"),
    ):
        if name not in found or "ext4" not in found:
            claims.append(cant_tell(what, f"{paper:g}", only_guest("them")))
            continue
        ratio = _to_ext4(found, name)
        same_way = (ratio < 1) == (paper < 1) if paper != 1.0 else 0.5 < ratio < 2
        each = ", ".join(f"{one} {_blocks_each(found[one]):.1f}" for one in (name, "ext4"))
        reason = "" if near(ratio, paper) else f"blocks of 4 KiB an fsync, of kernels ten years later: {each}"
        if found[name].get("enospc_in_round") is not None:
            reason += "; " * bool(reason) + "it ended with ENOSPC, so the bytes of an fsync are compared"
        told = verdict(near(ratio, paper), same_way)
        claims.append(Claim(what, f"{paper:g} of ext4's bytes", f"{ratio:.2f}", told, reason))
    today = [found.get(f"{name}{LIBRARY}") for name in ("f2fs", "ext4")]
    if today[0] and today[1]:
        ratio = bytes_written(today[0]) / bytes_written(today[1])
        claims.append(Claim(
            "the same with SQLite of today, which calls fdatasync", "0.54 (with fsync)", f"{ratio:.2f}",
            verdict(near(ratio, BEFORE), ratio < 1),
            "frames over old ones of the log change no metadata that fdatasync has to write, so ext4 writes no journal",
        ))  # fmt: skip
    claims.append(cant_tell("transactions per second, up to twice ext4's", "2", "no device here has a speed"))
    paper = {name: f"{number} of ext4's bytes" for name, number in PAPER.items()}
    return Outcome(claims, rows(found, paper), [_picture("sqlite", "Fig. 3b: bytes that SQLite writes", found)])


def judge_fsync(setting: Setting, found: dict[str, Numbers]) -> Outcome:
    """What roll-forward saves."""
    claims = [_between(found)]
    numbers = found["f2fs"]["run"]
    each = numbers["main_blocks"] / max(1, found["f2fs"]["calls"]["fsync"]) if "main_blocks" in numbers else None
    if each is not None:
        claims.append(Claim(
            "an fsync of one block writes that block and its direct node", "2 blocks", f"{each:.2f} blocks",
            verdict(abs(each - 2) < 0.1, each < 4),
        ))  # fmt: skip
    return Outcome(claims, rows(found), [_picture("fsync", "Bytes that fsyncs of single blocks write", found)])


def _between(found: dict[str, Numbers]) -> Claim:
    what = "a checkpoint for each fsync writes 2.5 times what roll-forward does"
    here = bytes_written(found[CHECKPOINTS]) / bytes_written(found["f2fs"])
    paper = AFTER / BEFORE
    reason = (
        ""
        if near(here, paper)
        else (
            f"a checkpoint on a volume of this size is a pack of {_pack(found):.1f} blocks beside the nodes of file, "
            "directory and tables"
        )
    )
    return Claim(what, f"{paper:.2f}", f"{here:.2f}", verdict(near(here, paper), here > 1.2), reason)


def _blocks_each(numbers: Numbers) -> float:
    """Blocks that an fsync wrote."""
    return bytes_written(numbers) / 4096 / max(1, numbers["calls"]["fsync"])


def _to_ext4(found: dict[str, Numbers], name: str) -> float:
    """Bytes of an fsync, to those of ext4's: a load that ran out of room has made fewer of them."""
    return _blocks_each(found[name]) / _blocks_each(found["ext4"])


def _pack(found: dict[str, Numbers]) -> float:
    """Blocks per fsync that a checkpoint adds."""
    fsyncs = max(1, found["f2fs"]["calls"]["fsync"])
    return (bytes_written(found[CHECKPOINTS]) - bytes_written(found["f2fs"])) / 4096 / fsyncs


def rows(found: dict[str, Numbers], paper: dict[str, str] | None = None) -> list[Row]:
    """What each wrote, beside what the paper has of it."""
    return [
        replace(row, here=f"{row.here}; {_blocks_each(found[row.what]):.2f} blocks of 4 KiB an fsync")
        for row in rows_of(found, paper)
    ]


def _picture(name: str, title: str, found: dict[str, Numbers]) -> Picture:
    if "ext4" in found:
        unit, values = "of ext4's bytes an fsync", [_to_ext4(found, each) for each in found]
    else:
        unit, values = "MiB written", [bytes_written(numbers) / MIB for numbers in found.values()]
    return bars(name, title, list(found), values, unit)


EXPERIMENTS = {
    "sqlite": Experiment(
        "sqlite", "SQLite, 1,000 records inserted, updated and deleted", "F2FS paper, 3.2.1, fig. 3b",
        "1,000 records in write-ahead mode with fsync, on an eMMC partition of 12 GB",
        PLACES, sqlite_parts, judge_sqlite,
    ),
    "fsync": Experiment(
        "fsync", "fsync of single blocks: roll-forward against a checkpoint for each", "F2FS paper, 2.7 and slides",
        "the SQLite test with roll-forward recovery and without it", PLACES, fsync_parts, judge_fsync,
    ),
}  # fmt: skip
