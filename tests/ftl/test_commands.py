"""`f2tools ftl` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from f2tools.cli import main
from f2tools.errors import Taken, Usage
from f2tools.ftl import theory
from f2tools.ftl.cli import ftl
from f2tools.ftl.models import Setting
from f2tools.ftl.options import MODEL_NAMES
from tests.dump.craft import f2
from tests.trace import traces


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
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `ftl simulate` |"))
    assert set(found) == set(row.split("`")[3].split())
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


@pytest.mark.parametrize("option", ["--times", "--warm-up"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e300"])
def test_how_often_has_an_end(option: str, value: str) -> None:
    done = CliRunner().invoke(ftl, ["simulate", *map(str, SMALL), option, value])
    assert done.exit_code == 2
    assert option in done.output
    assert "0<=x<=1000000" in done.output


@pytest.mark.parametrize("model", ["page", "dftl"])
@pytest.mark.parametrize("size", ["0", "1", "511"])
def test_a_page_has_a_sector_or_more(model: str, size: str) -> None:
    done = CliRunner().invoke(ftl, ["simulate", *map(str, SMALL), "--model", model, "--page", size])
    assert done.exit_code == 2
    assert f"a page of {size} bytes; it has 512 or more" in done.output


@pytest.mark.parametrize("share", ["50%", "75%", "1.0"])
def test_with_as_many_discards_as_writes_nothing_is_moved(share: str) -> None:
    found = json.loads(run("simulate", *SMALL, "--discards", share, "--engine", "python", "--json"))
    assert found["theory"] == 1
    assert found["waf"] == pytest.approx(1, abs=0.01)
    with pytest.raises(Usage, match="100% at most"):
        run("simulate", *SMALL, "--discards", "101%")


def test_the_seed_decides() -> None:
    first, again, other = (
        json.loads(run("simulate", *SMALL, "--seed", seed, "--json"))["erases"] for seed in (1, 1, 2)
    )
    assert first == again != other


CHURN = traces.DIRECTORY / "churn"


def of_churn(*words: object) -> dict:
    """A run of the trace `churn` as JSON."""
    return json.loads(run(*words, CHURN, "--engine", "python", "--json"))


def test_a_trace_is_simulated() -> None:
    found = of_churn("simulate", "--model", "fast", "--precondition", "sequential")
    assert found["host_writes"] * 4096 == 67158016
    assert found["source"]["forms"] == ["blktrace"]
    assert found["waf"] > 1
    assert found["requests"] == 723


def test_of_several_devices_one_is_played(tmp_path: Path) -> None:
    """On one of them page 0 is written again and again, on the other each page once."""
    for name, number, pages in (("sda", 0, [0] * 1000), ("sdb", 16, list(range(1000)))):
        events = [traces.Ev(1000 * n + number, "D", page * 8, device=8 << 20 | number) for n, page in enumerate(pages)]
        traces.write(tmp_path / "both", events, name=name)
    both = tmp_path / "both"
    for chosen, pages in (("8,0", 1), ("8,16", 1000)):
        for words in (("simulate",), ("compare", "--model", "page"), ("sweep", "--op", "10..20%:10")):
            found = json.loads(run(*words, both, "--device", chosen, "--json"))
            for one in found.get("runs", [found]):
                assert one["host_writes"] == 1000
                assert one["flash_writes"] == 1000 or pages == 1
                assert (one["device"]["logical_pages"] < 1000) == (pages == 1)
    for words in (("simulate",), ("compare",), ("sweep",), ("export", "-o", tmp_path / "o")):
        with pytest.raises(Usage, match="requests to several devices, 8,0 and 8,16"):
            run(*words, both)
        with pytest.raises(Usage, match="nothing of device 'nonsense' in it; there are: 8,0, 8,16"):
            run(*words, both, "--device", "nonsense")
    assert not (tmp_path / "o").exists()


MSR = "128166372003061629,hm,0,Read,0,4096,1\n" * 5000 + "128166372003061629,hm,1,Read,0,4096,1\n"


def test_export_to_standard_output_writes_nothing_where_a_second_device_shows_up_late(tmp_path: Path) -> None:
    (tmp_path / "msr.csv").write_text(MSR)
    done = f2("ftl", "export", tmp_path / "msr.csv")
    assert (done.code, done.out) == (1, b"")
    assert "a second device, 'hm/1' after 'hm/0'" in done.err
    assert f2("ftl", "export", tmp_path / "msr.csv", "--device", "hm/1").code == 0


def test_what_export_wrote_of_a_trace_that_is_read_once_is_said_to_be_a_part() -> None:
    words = [sys.executable, "-m", "f2tools", "ftl", "export", "-"]
    done = subprocess.run(words, input=MSR + MSR, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "a second device, 'hm/1' after 'hm/0'" in done.stderr
    assert "only a part of the trace was written" in done.stderr


def test_what_a_trace_lacks_is_noted(tmp_path: Path) -> None:
    whole = tmp_path / "whole.txt"
    whole.write_text(traces.as_ftrace([event for n in range(9) for event in traces.request(n * 10**6 + 10**9, 8 * n)]))
    lines = whole.read_text().splitlines(keepends=True)
    lossy = tmp_path / "lossy.txt"
    lossy.write_text("".join([*lines[:12], "CPU:0 [LOST 42 EVENTS]\n", *lines[12:]]))
    done = CliRunner().invoke(main, ["ftl", "simulate", str(lossy), "--engine", "python", "--json"])
    assert json.loads(done.stdout)["source"]["damage"] == {"lost": 42}
    assert done.stderr == f"f2tools: note: {lossy}: 42 events lost; what is missing is not replayed\n"
    done = CliRunner().invoke(main, ["ftl", "export", str(lossy)])
    assert done.stderr == f"f2tools: note: {lossy}: 42 events lost; what is missing is not written\n"
    done = CliRunner().invoke(main, ["ftl", "simulate", str(whole), "--engine", "python", "--json"])
    assert json.loads(done.stdout)["source"]["damage"] == {}
    assert not done.stderr


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_for_a_small_trace_the_device_is_large_enough_to_work(tmp_path: Path, model: str) -> None:
    (tmp_path / "a.csv").write_text("3,W,4096,4096,1000\n")
    found = json.loads(run("simulate", tmp_path / "a.csv", "--model", model, "--engine", "python", "--json"))
    assert found["host_writes"] == 1
    assert found["device"]["op"] == pytest.approx(0.07, abs=0.01)
    assert found["device"]["blocks"] <= 32


def test_a_device_that_no_size_makes_work_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("3,W,4096,4096,1000\n")
    with pytest.raises(Usage, match="4 blocks, of which 4 hold data"):
        run("simulate", tmp_path / "a.csv", "--model", "fast", "--log-blocks", "1")


def test_rounding_makes_no_device_too_small() -> None:
    setting = Setting("page", 0.007, 2)
    assert setting.shape(100).logical_pages >= 100


def test_a_trace_that_does_not_fit_is_refused() -> None:
    with pytest.raises(Usage, match="leave out --blocks"):
        CliRunner().invoke(
            ftl, ["simulate", str(CHURN), "--blocks", "20", "--engine", "python"], catch_exceptions=False
        )


def test_logs_in_zones_of_their_own_take_fewer_merges() -> None:
    image = str(traces.image("churn", "after"))
    words = ["ftl", "compare", str(CHURN), "--model", "set", "--image", image, "--zones", "1", "--zones", "6"]
    done = CliRunner().invoke(main, [*words, "--op", "12%", "--engine", "python", "--json"], catch_exceptions=False)
    one, six = json.loads(done.output)["runs"]
    assert one["host_writes"] == six["host_writes"] == 67158016 // 4096
    assert six["merges"]["full"] < one["merges"]["full"]
    assert six["waf"] < one["waf"]
    assert (one["source"]["zones"], six["source"]["zones"]) == (1, 6)


def test_the_logs_of_a_volume_are_streams() -> None:
    image = str(traces.image("churn", "after"))
    words = ["ftl", "simulate", str(CHURN), "--model", "streams", "--streams", "f2fs-logs", "--image", image]
    more = ["--engine", "python", "--op", "30%", "--json"]
    done = CliRunner().invoke(main, [*words, *more], catch_exceptions=False)
    found = json.loads(done.output)
    assert found["model"] == "streams"
    assert found["host_writes"] == 67158016 // 4096
    with pytest.raises(Usage, match="--image names it"):
        CliRunner().invoke(main, ["ftl", "simulate", str(CHURN), "--streams", "f2fs-logs"], catch_exceptions=False)


def test_runs_stand_side_by_side(tmp_path: Path) -> None:
    words = (
        "--workload",
        "zipf",
        "--blocks",
        40,
        "--pages-per-block",
        16,
        "--op",
        "20%",
        "--engine",
        "python",
        "--times",
        1,
    )
    models = ("--model", "page", "--model", "bast")
    shown = run("compare", *words, *models, "--html", tmp_path / "c.html", "--svg", tmp_path / "c.svg").splitlines()
    assert [line.split()[0] for line in shown] == ["WAF", "page", "bast"]
    page = (tmp_path / "c.html").read_text()
    assert page.count("<svg") == 5
    assert "<script" not in page
    assert (tmp_path / "c.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("option", ["--html", "--svg", "--png"])
def test_only_what_f2tools_made_is_replaced(tmp_path: Path, option: str) -> None:
    trace, page, made = tmp_path / "t", tmp_path / "mine.html", tmp_path / "made"
    trace.write_text("fio version 2 iolog\nf write 0 8388608\n")
    page.write_text("<!DOCTYPE html><p>mine</p>")
    words = ("simulate", trace, "--engine", "python", option)
    for there in (trace, page):
        before = there.read_bytes()
        with pytest.raises(Taken, match="is there already, and is not"):
            run(*words, there)
        assert there.read_bytes() == before
    for _ in range(2):
        run(*words, made)


def test_a_sweep_has_theory_beside_it(tmp_path: Path) -> None:
    words = ("--workload", "uniform", "--blocks", 128, "--pages-per-block", 16, "--engine", "python", "--times", 1)
    found = json.loads(run("sweep", *words, "--op", "10..30%:10", "--png", tmp_path / "s.png", "--json"))["runs"]
    assert [one["device"]["op"] for one in found] == pytest.approx([0.1, 0.2, 0.3], abs=1e-3)
    for one in found:
        assert one["waf"] == pytest.approx(one["theory"], rel=0.05)
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_a_large_discard_is_cut_into_pieces(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("fio version 2 iolog\nf write 0 8192\nf trim 2048 1073741824\nf write 4096 1000\n")
    found = json.loads(run("simulate", tmp_path / "t", "--engine", "python", "--json"))
    assert found["host_writes"] == 3
    assert found["host_discards"] == (2048 + (1 << 30)) // 4096 - 1
    assert found["source"]["partial_writes"] == 1
    assert found["requests"] == 3
