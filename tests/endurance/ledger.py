"""The ledger, docs/endurance.md: what was run, on which commit, with which seeds, what it found, what became of that.

results.json is the sum of what runs left; findings.json is written by hand: what was found, what became of it, and what
was not reached at all, with the reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.endurance import xfstests
from tests.endurance.campaign import Campaign
from tests.endurance.plan import CAMPAIGNS
from tests.endurance.runner import records
from tests.images import ROOT

HERE = Path(__file__).parent
RESULTS, FINDINGS = HERE / "results.json", HERE / "findings.json"
CASES = HERE / "cases.json"  # campaign -> case -> how it ended the last time, and on which commit
PAGE = ROOT / "docs" / "endurance.md"
ROW = 4  # numbers with the same distance that are written as one range
NO_SEED = "-"  # of what was found beside the pieces
LONG = 120  # characters of seeds that the page has no room for
HEAD = """# Endurance

This page is generated from `tests/endurance/results.json` and `findings.json` by `make endurance-ledger`. It says what
was really run of the tests that have no end. `make endurance LIST=1` lists the campaigns, `make endurance SHARD=3/20`
runs the third of twenty shards for at most 60 minutes on two cores; run again, it goes on where it ended. A piece does
the same each time, as its seed says; `python -m tests.endurance piece CAMPAIGN SEED` repeats one. Of seeds, `12-40/7`
means each seventh from 12 to 40; where they are many, `results.json` has them all.

"""


def ranges(numbers: Iterable[int]) -> str:
    """`0-4, 7, 12-40/7`: the last is each seventh from 12 to 40."""
    left = sorted(set(numbers))
    found: list[str] = []
    start = 0
    while start < len(left):
        end = start
        step = left[start + 1] - left[start] if start + 1 < len(left) else 1
        while end + 1 < len(left) and left[end + 1] - left[end] == step:
            end += 1
        if step > 1 and end - start < ROW - 1:
            end = start
        steps = f"/{step}" if step > 1 else ""
        found.append(f"{left[start]}-{left[end]}{steps}" if end > start else f"{left[start]}")
        start = end + 1
    return ", ".join(found)


def numbers(text: str) -> set[int]:
    """What `ranges` wrote; none of `NO_SEED`."""
    found: set[int] = set()
    for word in filter(None, "" if text == NO_SEED else text.split(", ")):
        span, _, step = word.partition("/")
        first, _, last = span.partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def run_before(directory: Path) -> set[tuple[str, int]]:
    """Campaign and seed of all that was run, on any commit: by results.json, and by what lies in .cache/endurance."""
    rows = json.loads(RESULTS.read_text())
    lines = [line for line in records(directory) if "missing" not in line]
    return {(row["campaign"], seed) for row in rows for seed in numbers(row["seeds"])} | {
        (line["campaign"], line["seed"]) for line in lines
    }


def add_results(directory: Path) -> None:
    """Add what lies in .cache/endurance to results.json; what is known there of a commit is not counted twice."""
    rows = {(row["campaign"], row["commit"]): row for row in json.loads(RESULTS.read_text())}
    cases = json.loads(CASES.read_text())
    for where in sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime):
        if where.name.endswith("-changed") or not where.is_dir():
            continue
        for line in records(where):
            if "missing" in line:
                continue
            row = rows.setdefault((line["campaign"], where.name), {
                "campaign": line["campaign"], "commit": where.name, "seeds": "", "done": 0, "counts": {},
                "found": "", "minutes": 0.0, "cpu_minutes": 0.0,
            })  # fmt: skip
            seeds = numbers(row["seeds"])
            if line["seed"] in seeds:
                continue
            row["seeds"] = ranges(seeds | {line["seed"]})
            row["done"] += line["done"]
            row["counts"] = dict(sorted((Counter(row["counts"]) + Counter(line["counts"])).items()))
            row["minutes"] = round(row["minutes"] + line["seconds"] / 60, 2)
            row["cpu_minutes"] = round(row["cpu_minutes"] + line.get("cpu_seconds", line["seconds"]) / 60, 2)
            for case, said in line.get("said", {}).items():
                cases.setdefault(line["campaign"], {})[case] = [_plain(said), where.name]
            if line["found"]:
                row["found"] = ranges(numbers(row["found"]) | {line["seed"]})
    order = [campaign.name for campaign in CAMPAIGNS]
    kept = sorted(rows.values(), key=lambda row: (order.index(row["campaign"]), row["commit"]))
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    rows_of = {name: ",\n".join(f"  {json.dumps(case)}: {json.dumps(own[case])}" for case in sorted(own))
               for name, own in sorted(cases.items())}  # fmt: skip
    CASES.write_text(
        "{\n" + ",\n".join(f" {json.dumps(name)}: {{\n{text}\n }}" for name, text in rows_of.items()) + "\n}\n"
    )


def page() -> str:
    """docs/endurance.md."""
    rows = json.loads(RESULTS.read_text())
    notes = json.loads(FINDINGS.read_text())
    cases = json.loads(CASES.read_text())
    parts = [HEAD, "## What was run\n\n", *overview(rows), "\n"]
    for campaign in CAMPAIGNS:
        own = [row for row in rows if row["campaign"] == campaign.name]
        parts += _campaign(campaign, own, [note for note in notes["found"] if note["campaign"] == campaign.name])
        parts += _cases(cases.get(campaign.name, {}))
    parts += ["## What was not reached\n\n", *(f"- {text}\n" for text in notes["not reached"])]
    return "".join(parts)


def overview(rows: list[dict[str, Any]]) -> Iterable[str]:
    """The table of all campaigns, with their pace."""
    yield (
        "| campaign | goal | done | in an hour of a core | hours of a core to the goal"
        " | pieces in which something was found |\n| --- | --- | --- | --- | --- | --- |\n"
    )
    for campaign in CAMPAIGNS:
        own = [row for row in rows if row["campaign"] == campaign.name]
        by_kind = _by_kind(campaign, own)
        done = sum(by_kind.values()) if by_kind else sum(row["done"] for row in own)
        found = sum(len(numbers(row["found"])) for row in own)
        rate, left = _pace(campaign, max(own, key=lambda row: row["done"], default=None), done)
        if by_kind:
            hours = sum(1 - by_kind[kind] / goal for kind, goal in campaign.an_hour_of.items())
            rate, left = "as below", f"{hours:.1f}"
        yield f"| {campaign.name} | {campaign.goal:,} {campaign.unit} | {done:,} | {rate} | {left} | {found} |\n"
    yield (
        "\nThe rate is that of the commit on which most was done. It counts the processor time of a piece and of all"
        " that it starts, on a machine with much else to do.\n"
    )


def _by_kind(campaign: Campaign, rows: list[dict[str, Any]]) -> dict[str, int]:
    """What was done of each kind, of none more than its goal: more of one is not less of another."""
    counts = Counter[str]()
    for row in rows if campaign.an_hour_of else ():
        counts.update(row["counts"])
    return {kind: min(counts[kind], goal) for kind, goal in campaign.an_hour_of.items()}


def _pace(campaign: Campaign, row: dict[str, Any] | None, done: int) -> tuple[str, str]:
    """What an hour of a core does, and how many of them are left to the goal; of old rows the clock is known alone."""
    minutes = (row.get("cpu_minutes") or row["minutes"]) if row else 0
    if row is None or not row["done"] or not minutes:
        return "-", "-"
    per_hour = 60 * row["done"] / minutes
    left = max(0, campaign.goal - done) / per_hour
    return f"{per_hour:,.0f}", f"{left:,.0f}" if left >= 1 else f"{left:.1f}"


def _campaign(campaign: Campaign, rows: list[dict[str, Any]], notes: list[dict[str, str]]) -> Iterable[str]:
    yield f"## {campaign.name}\n\n{campaign.what[0].upper()}{campaign.what[1:]}.\n"
    about = " on the average" if campaign.an_hour_of else ""
    unit = campaign.unit if campaign.size > 1 else campaign.unit.removesuffix("s")
    yield f"A piece is{about} {campaign.size:,} {unit}.\n\n"
    if campaign.an_hour_of:
        done = _by_kind(campaign, rows)
        each = (f"{kind} {done[kind]:,} of {goal:,}" for kind, goal in campaign.an_hour_of.items())
        yield f"Of each kind: {', '.join(each)}.\n\n"
    if not rows:
        yield "None of it has been run yet.\n\n"
        return
    yield "| commit | seeds | done | minutes | found in seeds |\n| --- | --- | --- | --- | --- |\n"
    for row in rows:
        counts = "; ".join(f"{count:,} {name}" for name, count in row["counts"].items())
        counts = f" ({counts})" if counts else ""
        done = f"{row['done']:,} {campaign.unit}{counts}"
        seeds, found = _briefly(row["seeds"]), row["found"] or "-"
        yield f"| `{row['commit']}` | {seeds} | {done} | {row['minutes']:.0f} | {found} |\n"
    yield "\n"
    for note in notes:
        where = "" if note["seeds"] == NO_SEED else f" ({note['seeds']})"
        yield f"- Found{where}: {note['what']} {note['became']}\n"
    if notes:
        yield "\n"


def _briefly(seeds: str) -> str:
    """The seeds, or how many there are of them, and between which."""
    if len(seeds) <= LONG:
        return seeds
    all_of_them = numbers(seeds)
    return f"{len(all_of_them):,} from {min(all_of_them)} to {max(all_of_them)}"


def _plain(said: str) -> str:
    """What a case said, alike wherever it was run: without the directory of this checkout, with single spaces."""
    return " ".join(re.sub(r"/\S*/\.cache/", ".cache/", said).split()).removesuffix(".")


def _cases(own: dict[str, tuple[str, str]]) -> Iterable[str]:
    """How each case ended the last time, those that ended alike together."""
    if not own:
        return
    alike: dict[str, list[str]] = {}
    for case in sorted(own):
        alike.setdefault(_plain(own[case][0]), []).append(case)
    yield "A test that ended alike by both servers is named without them.\n\n"
    yield "| how they ended the last time | how many | which |\n| --- | --- | --- |\n"
    for said in sorted(alike, key=lambda said: (said.partition(":")[0] != "failed", said)):
        words = said.replace("|", "\\|").replace("<", "&lt;")
        yield f"| {words} | {len(alike[said])} | {', '.join(_together(alike[said]))} |\n"
    yield "\n"


def _together(cases: list[str]) -> list[str]:
    """The names of cases, `NAME direct` and `NAME pyfuse3` as NAME where both are there."""
    servers: dict[str, list[str]] = {}
    for case in cases:
        name, _, server = case.partition(" ")
        servers.setdefault(name, []).append(server)
    return [
        word
        for name, own in servers.items()
        for word in ([name] if len(own) == len(xfstests.SERVERS) else [f"{name} {server}".rstrip() for server in own])
    ]


def write_page() -> None:
    """Write the page anew."""
    PAGE.write_text(page(), encoding="utf-8")
