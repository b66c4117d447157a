"""`python -m tests.endurance list | shard 3/20 | piece NAME SEED | image STORY OUT | ...`: see `make help`."""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.endurance import injected, ledger, warm
from tests.endurance.campaign import Outcome
from tests.endurance.plan import CAMPAIGNS, named, shard
from tests.endurance.runner import MARK, RESULTS, commit, outcome_line, records, run_shard
from tests.images import copy_sparse, reference


def list_campaigns(_: argparse.Namespace) -> int:
    """The campaigns, and how much of each was run at this commit."""
    lines = list(records(RESULTS / commit()))
    for campaign in CAMPAIGNS:
        own = [line for line in lines if line["campaign"] == campaign.name and "missing" not in line]
        done, seconds = Counter[str](), sum(line["seconds"] for line in own)
        for line in own:
            done[campaign.unit] += line["done"]
        hours = f", {campaign.pieces * seconds / len(own) / 3600:.1f} h in all" if own else ""
        print(f"{campaign.name:12} {len(own)} of {campaign.pieces} pieces, {done[campaign.unit]:,} of {campaign.goal:,}"
              f" {campaign.unit}{hours}\n{'':12} {campaign.what}")  # fmt: skip
    return 0


def run_one_shard(given: argparse.Namespace) -> int:
    """Run a shard."""
    number, count = map(int, given.shard.split("/"))
    if not 1 <= number <= count:
        raise SystemExit("SHARD is as 3/20: the third of twenty")
    chosen = [named(name) for name in given.only.split(",")] if given.only else CAMPAIGNS
    label = given.shard + (f"-{given.only.replace(',', '-')}" if given.only else "")
    pieces, before = shard(number, count, chosen), ledger.run_before(RESULTS)
    clean = run_shard(pieces, label, 60.0 * given.minutes, given.jobs, before)
    return 0 if clean else 1


def run_one_piece(given: argparse.Namespace) -> int:
    """Run a piece in this process, and say what was found."""
    kept = given.kept or RESULTS / commit() / "found" / f"{given.campaign}-{given.seed}"
    return _piece(given.campaign, given.seed, Path(kept))


def _piece(name: str, seed: int, kept: Path) -> int:
    campaign = named(name)
    work = Path(tempfile.mkdtemp(prefix=warm.prefix(os.getpid()), dir=warm.in_memory() if campaign.in_memory else None))
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    os.environ["TMPDIR"] = tempfile.tempdir = str(work)
    faulthandler.enable()
    try:
        outcome = campaign.piece(seed, work)
        line = outcome_line(outcome, campaign, seed, kept, sum(os.times()[:4]))
    except pytest.skip.Exception as reason:
        line = MARK + json.dumps({"missing": str(reason)})
        outcome = Outcome()
    finally:
        subprocess.run(["rm", "-rf", work], check=False)  # shutil can't go as deep as a forged tree
    for found in outcome.found:
        print(found.what)
    print(line, flush=True)
    return 1 if outcome.found else 0


def make_image(given: argparse.Namespace) -> int:
    """The image of something that was found."""
    story = json.loads(Path(given.story).read_text())
    copy_sparse(reference(story["base"]).path, Path(given.out))
    with Path(given.out).open("r+b") as file:
        for offset, old, _ in story["patch"]:  # all of them first: later ones may lie on earlier ones
            file.seek(offset)
            assert file.read(len(old) // 2).hex() == old, "the reference image is another"
        for offset, _, new in story["patch"]:
            file.seek(offset)
            file.write(bytes.fromhex(new))
    return 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tests.endurance", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    verbs.add_parser("list").set_defaults(run=list_campaigns)
    one = verbs.add_parser("shard")
    one.add_argument("shard")
    one.add_argument("--only", default="", help="campaigns, between commas")
    one.add_argument("--minutes", type=float, default=60)
    one.add_argument("--jobs", type=int, default=2)
    one.set_defaults(run=run_one_shard)
    one = verbs.add_parser("piece")
    one.add_argument("campaign")
    one.add_argument("seed", type=int)
    one.add_argument("kept", nargs="?", help="directory for what is found")
    one.set_defaults(run=run_one_piece)
    one = verbs.add_parser("warm")
    one.add_argument("kind")
    one.set_defaults(run=lambda given: warm.serve(given.kind, _piece))
    one = verbs.add_parser("image")
    one.add_argument("story")
    one.add_argument("out")
    one.set_defaults(run=make_image)
    verbs.add_parser("requests").set_defaults(run=lambda _: injected.write_counts())
    verbs.add_parser("sum").set_defaults(run=lambda _: ledger.add_results(RESULTS))
    verbs.add_parser("ledger").set_defaults(run=lambda _: ledger.write_page())
    given = parser.parse_args()
    return given.run(given) or 0


if __name__ == "__main__":
    sys.exit(main())
