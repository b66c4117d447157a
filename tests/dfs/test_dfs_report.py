"""What the article claims holds of what is here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from f2tools.dfs.report import DIRECT, LOADS, OFFSETS, _lines, f2fs_nodes, peers
from tests.dump.craft import f2

PAGE = Path(__file__).resolve().parents[2] / "docs" / "json.md"


def test_a_block_at_any_offset_is_one_read_and_deleting_gives_back_what_was_mapped() -> None:
    found = json.loads(f2("dfs", "report", "--json").text)
    assert found["reads_per_block"] == {str(offset): 1 for offset in OFFSETS}
    assert found["reads_to_open"] == 3
    assert found["reads_to_open_in_large"]["hashed"] == 3 < found["reads_to_open_in_large"]["log"]
    loads = {(load["name"], load["directories"]): load for load in found["loads"]}
    for name in LOADS:
        assert loads[name, "hashed"]["flushes"] <= loads[name, "log"]["flushes"] + 1, name
    assert (found["sparse_size"], found["sparse_blocks"]) == (1 << 41, len(OFFSETS))
    assert found["given_back_by_delete"] == found["mapped_by_file"] == len(OFFSETS) + 1
    assert all(load["requests"] >= load["merged_requests"] > 0 for load in found["loads"])
    assert found["aligned"]["whole pages"]["reads"] == 0 < found["aligned"]["neither"]["reads"]
    assert all(load["written_bytes"] > load["asked_bytes"] for load in found["loads"])
    assert found["lines"]["f2fs"] > 4 * found["lines"]["dfs"]
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith("| `dfs report` |"))
    assert set(found) == set(re.findall(r"`([^`]*)`", row.split("|")[3])[0].split())


def test_the_manual_gives_the_lines_of_code_as_the_report_counts_them() -> None:
    counted = _lines()
    manual, experiments = ((PAGE.parent / name).read_text() for name in ("dfs.md", "experiments.md"))
    said = re.search(r"some ([\d,]+) lines with both .* some ([\d,]+) of the layer.* has some (\d+) times", manual)
    share = re.search(r"some 1/(\d+) of the F2FS of f2tools", experiments)
    assert said
    assert share
    dfs, layer, times = (int(number.replace(",", "")) for number in said.groups())
    assert dfs == pytest.approx(counted["dfs"], abs=100)
    assert layer == pytest.approx(counted["layer"], abs=100)
    assert times == int(share[1]) == pytest.approx(counted["f2fs"] / counted["dfs"], rel=0.1)


def test_what_other_systems_send_was_measured_for_the_same_loads_and_says_how() -> None:
    found = peers()
    assert set(found["loads"]) == {*LOADS, *DIRECT}
    assert all(set(systems) == {"ext4", "f2fs"} for systems in found["loads"].values())
    assert {"command", "date", "kernel", "disk", "formatted_by", "mounted_with"} == set(found["made"])
    assert (PAGE.parents[1] / found["made"]["command"]).is_file()


def test_the_nodes_of_f2fs_are_counted_as_its_tree_has_them() -> None:
    edges = (923, 923 + 2 * 1018, 923 + 2 * 1018 + 2 * 1018**2)
    assert [f2fs_nodes(edge * 4096) - f2fs_nodes(edge * 4096 - 1) for edge in edges] == [1, 1, 1]
    assert f2fs_nodes(0) == 0
