"""Runs the pieces of a shard, each in a process of its own that a warm one forks, and writes down how each ended.

Results lie in .cache/endurance/COMMIT/results-SHARD.jsonl, a line for each piece; what is there already, in whichever
shard, is not run again.  What was found lies beside them, in found/CAMPAIGN-SEED/.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.endurance.campaign import Campaign, Found, Outcome
from tests.endurance.plan import Piece
from tests.endurance.warm import Warm
from tests.images import ROOT, reference

RESULTS = ROOT / ".cache" / "endurance"
TOLD = 3000  # characters of what was found that go into a line
MARK = "\x1eoutcome "  # begins the line with which a piece ends


def commit() -> str:
    """The commit that is run, with `-changed` where the code is not as that has it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "f2tools", "tests")
    return f"{head}-changed" if changed else head


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def records(directory: Path) -> Iterator[dict[str, Any]]:
    """All lines of results below a directory; a last one that was cut off is left out."""
    for path in sorted(directory.glob("**/results-*.jsonl")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def run_shard(
    pieces: Sequence[Piece], label: str, seconds: float, jobs: int, elsewhere: Container[tuple[str, int]] = ()
) -> bool:
    """Run what is not done yet until the time is over, what was run `elsewhere` last; whether nothing was found."""
    here = RESULTS / commit()
    here.mkdir(parents=True, exist_ok=True)
    known = [line for line in records(here) if "missing" not in line]
    done = {(line["campaign"], line["seed"]) for line in known}
    took: dict[str, float] = {}  # the longest piece of each campaign
    for line in known:
        took[line["campaign"]] = max(took.get(line["campaign"], 0.0), line["seconds"])
    left = [piece for piece in pieces if (piece.campaign.name, piece.seed) not in done]
    left.sort(key=lambda piece: (piece.campaign.name, piece.seed) in elsewhere)
    print(f"shard {label} at {here.name}: {len(pieces)} pieces, {len(left)} to run, {seconds / 60:.0f} minutes")
    idle: SimpleQueue[Warm] = SimpleQueue()
    for _ in range(jobs):
        idle.put(Warm())
    deadline, writing, clean = time.monotonic() + seconds, threading.Lock(), True
    path = here / f"results-{label.replace('/', '-of-')}.jsonl"

    def one(piece: Piece) -> bool:
        room = deadline - time.monotonic()
        if room < took.get(piece.campaign.name, 60.0):
            return True
        warm = idle.get()
        try:
            line = run_piece(piece, here / "found", min(room, 60.0 * piece.campaign.minutes), room, warm)
        finally:
            idle.put(warm)
        if line is None:
            return True
        with writing, path.open("a") as file:
            took[piece.campaign.name] = max(took.get(piece.campaign.name, 0.0), line["seconds"])
            file.write(json.dumps(line, sort_keys=True) + "\n")
        _tell(line)
        return not line["found"]

    with ThreadPoolExecutor(jobs) as pool:
        for good in pool.map(one, left):
            clean &= good
    for _ in range(jobs):
        idle.get().close()
    return clean


def _tell(line: dict[str, Any]) -> None:
    what = line.get("missing") or (f"{len(line['found'])} FOUND" if line["found"] else "nothing found")
    counts = ", ".join(f"{count} {name}" for name, count in sorted(line["counts"].items()))
    print(f"{line['campaign']} {line['seed']}: {line['seconds']:.0f} s, {counts or line['done']}; {what}", flush=True)


def run_piece(piece: Piece, kept: Path, seconds: float, room: float, warm: Warm) -> dict[str, Any] | None:
    """A line of results; None where the shard's time ended before the piece had had its own."""
    name, seed = piece.campaign.name, piece.seed
    line: dict[str, Any] = {"campaign": name, "seed": seed, "done": 0, "counts": {}, "found": []}
    begun, before = time.monotonic(), set(_fuse_mounts())
    with tempfile.NamedTemporaryFile(prefix="f2-endurance-said-") as out:
        code = warm.run(piece, kept / f"{name}-{seed}", Path(out.name), seconds)
        if code is None:
            _unmount_dead(set(_fuse_mounts()) - before)
        said = out.read().decode("utf-8", "replace")
    line["seconds"] = round(time.monotonic() - begun, 1)
    if code is None and seconds >= room:
        return None
    report = last_words(said)
    if report is not None:
        return {**line, **report}
    how = f"still running after {seconds:.0f} s" if code is None else f"ended with {code}"
    directory = keep(Found(f"the piece {how}\n{said[-TOLD:]}"), piece.campaign, seed, kept / f"{name}-{seed}")
    return {**line, "found": [{"what": f"the piece {how}", "where": directory}]}


def last_words(said: str) -> dict[str, Any] | None:
    """What a piece said at its end of what it did; None where it did not get there."""
    _, mark, report = said.rpartition(MARK)
    return json.loads(report) if mark and report.endswith("\n") else None


def _fuse_mounts() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        words = line.split()
        if words[words.index("-") + 1].startswith("fuse"):
            yield words[4]


def _unmount_dead(directories: set[str]) -> None:
    """Take away mounts whose server was killed: only those answer so."""
    for directory in directories:
        try:
            os.stat(directory)
        except OSError as error:
            if error.errno == errno.ENOTCONN:
                subprocess.run(["fusermount3", "-u", "-z", directory], capture_output=True, check=False)


def outcome_line(outcome: Outcome, campaign: Campaign, seed: int, kept: Path, cpu_seconds: float) -> str:
    """What a piece did as its last line, and what of the processor it took; what it found is kept in a directory."""
    found = [
        {"what": one.what[:TOLD], "where": keep(one, campaign, seed, kept if not n else Path(f"{kept}.{n}"))}
        for n, one in enumerate(outcome.found)
    ]
    line = {"done": outcome.done, "counts": dict(outcome.counts), "cpu_seconds": round(cpu_seconds, 1), "found": found}
    return MARK + json.dumps(line | ({"said": outcome.said} if outcome.said else {}))


def keep(found: Found, campaign: Campaign, seed: int, directory: Path) -> str:
    """Write down how to see it again; returns the name of the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    story: dict[str, Any] = {
        "campaign": campaign.name,
        "seed": seed,
        "commit": commit(),
        "again": f".venv/bin/python -m tests.endurance piece {campaign.name} {seed}",
        "what": found.what,
    }
    if found.image:
        base = reference(found.image).path
        with base.open("rb") as file:
            rows = []
            for offset, new in found.patch:
                file.seek(offset)
                rows.append([offset, file.read(len(new)).hex(), new.hex()])
        story |= {"base": found.image, "patch": rows}
        story["image"] = f".venv/bin/python -m tests.endurance image {directory / 'story.json'} /tmp/image"
    if found.operations:
        story["operations"] = list(found.operations)
    (directory / "story.json").write_text(json.dumps(story, indent=1) + "\n")
    for name, data in found.files.items():
        (directory / name).write_bytes(data)
    return directory.name
