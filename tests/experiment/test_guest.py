"""Loads on a real kernel: what the guest traced is what its disk counted, and what is missing is said."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from f2tools.experiment import onguest
from f2tools.experiment.model import Setting, Work
from f2tools.experiment.places import CHECKPOINTS, VARIANTS, load_parts
from f2tools.guest.build import NoGuest
from f2tools.trace.analyze import AnalysisRequest, analyze
from tests.kernel.guest import Guest

MIB = 1 << 20
SETTING = Setting(Fraction(1, 64), "guest")


def test_a_file_system_has_a_part_of_its_own_and_f2fs_its_variants() -> None:
    parts = load_parts(SETTING, "fsync", {}, 64 * MIB, (CHECKPOINTS,))
    assert [part.name for part in parts] == ["f2fs", "ext4", "btrfs", "nilfs2", CHECKPOINTS]
    assert parts[-1].given["mount"] == VARIANTS[CHECKPOINTS][1] == "fastboot"


def test_what_the_host_lacks_is_named_before_anything_is_booted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onguest, "which", lambda program: None)
    with pytest.raises(NoGuest, match=r"mkfs\.btrfs is not installed here.*apt-get install btrfs-progs"):
        onguest.on_guest(Work(SETTING, None, lambda _: None), "btrfs", "", "fsync", {}, 64 * MIB)


def test_bytes_of_the_trace_are_those_that_the_disk_of_the_guest_counted(
    guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onguest, "Guest", type("Ours", (), {"ready": staticmethod(lambda work: guest)}))
    shares: list[float] = []
    params = {"files": 10, "file_bytes": 65536, "writes": 50}
    found = onguest.on_guest(Work(SETTING, tmp_path, shares.append), "f2fs", "", "fsync", params, 128 * MIB)
    assert found["run"]["write_bytes"] == found["trace"]["writes"]["bytes"]
    assert found["run"]["writes"] == found["trace"]["writes"]["requests"]
    assert found["run"]["discard_bytes"] == found["trace"]["discards"]["bytes"]
    assert found["trace"]["lost_events"] == 0
    assert found["calls"] == {"write": 50, "write_bytes": 50 * 4096, "fsync": 50}
    assert 2 * 50 * 4096 <= found["trace"]["writes"]["bytes"] < 4 * 50 * 4096, "a block and its node, and a checkpoint"
    kept = analyze(AnalysisRequest(str(tmp_path))).report
    assert kept["writes"]["bytes"] == found["trace"]["writes"]["bytes"]
    assert json.loads((tmp_path / "run.json").read_text())["calls"] == found["calls"]
    assert shares == [1.0]
