"""`f2tools ftl` as a user calls it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from f2tools.errors import Usage
from f2tools.ftl import theory
from f2tools.ftl.cli import ftl


def run(*words: object) -> str:
    """What the command prints."""
    done = CliRunner().invoke(ftl, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


SMALL = ("--workload", "uniform", "--blocks", 200, "--pages-per-block", 16)


def test_simulate_prints_what_scripts_rely_on() -> None:
    found = json.loads(run("simulate", *SMALL, "--model", "page", "--gc", "greedy", "--op", "0.07", "--json"))
    assert {
        "waf", "host_writes", "flash_writes", "erases", "merges", "map_reads", "map_writes", "requests_per_cpu_second",
    } <= set(found)  # fmt: skip
    assert set(found["merges"]) == {"switch", "partial", "full"}
    assert found["waf"] == found["flash_writes"] / found["host_writes"]
    assert found["waf"] == pytest.approx(theory.greedy(0.07, 16), rel=0.05)
    assert found["theory"] == pytest.approx(theory.greedy(found["device"]["op"], 16))
    assert sum(found["victims"]["valid_histogram"]) == found["victims"]["count"]


def test_a_share_is_a_number_or_percent() -> None:
    assert (
        run("simulate", *SMALL, "--op", "25%").splitlines()[:2]
        == run("simulate", *SMALL, "--op", "0.25").splitlines()[:2]
    )
    assert CliRunner().invoke(ftl, ["simulate", "--op", "7"]).exit_code == 2


def test_what_can_not_be_is_refused() -> None:
    for words in (("simulate",), ("simulate", "--workload", "uniform"), ("simulate", *SMALL, "--op", "0")):
        with pytest.raises(Usage):
            CliRunner().invoke(ftl, [str(word) for word in words], catch_exceptions=False)


def test_the_seed_decides() -> None:
    first, again, other = (
        json.loads(run("simulate", *SMALL, "--seed", seed, "--json"))["erases"] for seed in (1, 1, 2)
    )
    assert first == again != other
