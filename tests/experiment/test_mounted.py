"""Loads on what is mounted or on a spare device: what is refused before anything is overwritten, what is judged."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from f2tools.errors import DeviceError, Usage
from f2tools.experiment import cli, mounted, places, run
from f2tools.experiment.model import CANT_BE_TOLD, Setting
from f2tools.experiment.registry import EXPERIMENTS, experiment
from f2tools.experiment.studies import fsync
from f2tools.options import progress
from tests.dump.craft import f2

MIB = 1 << 20


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is taken for a block device nobody uses."""
    path = tmp_path / "device"
    with path.open("wb") as file:
        file.truncate(600 * MIB)
    monkeypatch.setattr(mounted, "is_device", lambda _: True)
    monkeypatch.setattr(mounted, "in_use", lambda _: "")
    monkeypatch.setattr(mounted, "start_tracer", lambda _: pytest.fail("nothing is traced here"))
    return path


def test_who_is_not_root_is_told_so_before_anything_is_written(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    refused = f2("experiment", "iozone", "--on", device, "--overwrite")
    assert (refused.code, "only root can trace" in refused.err, "--on guest" in refused.err) == (2, True, True)


def test_a_device_is_left_alone_where_the_kernel_lacks_a_file_system(
    device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(mounted, "which", lambda program: Path("/sbin") / program)
    monkeypatch.setattr(mounted, "_kernel_has", lambda fs: fs == "f2fs")
    with pytest.raises(DeviceError, match="the kernel here has no nilfs2; leave nilfs2 out of --fs"):
        mounted.check_place(str(device), ("f2fs", "nilfs2"))
    assert not any(device.read_bytes()[:MIB])


def test_all_leaves_out_what_a_device_has_not_the_size_for(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setting = Setting(Fraction(1, 64), str(device))
    chosen = [experiment(name) for name in ("iozone", "fileserver", "sqlite")]
    assert [one.name for one in cli._of_their_size(chosen, setting)] == ["iozone", "sqlite"]
    assert "fileserver is left out" in capsys.readouterr().err
    with pytest.raises(Usage, match="at this scale"):
        cli._of_their_size([experiment("fileserver")], setting)


def numbers_of(work: Any, load: str, **_: Any) -> dict[str, Any]:
    """What a load on a kernel would find, in as far as judges look at it."""
    counted = {"bytes": 4096, "requests_with_data": 1}
    share = {"at_least": {"byte_share": 0.0, "request_share": 0.0}, "request_share": 0.0}
    trace = {
        "writes": counted, "discards": {"bytes": 0}, "flushes": 0, "size_512k": share, "sizes": {"4096": 1},
        "discard_coverage": {"byte_share": 0.0}, "small_discards": {"issued": {"request_share": 0.0}},
    }  # fmt: skip
    rounds = [{"write_bytes": 4096, "writes": 1, "read_bytes": 0, "reads": 0}] * 5
    return {
        "calls": {"write_bytes": 4096, "fsync": 1}, "trace": trace, "rounds": rounds, "full": 0.5,
        "run": {"write_bytes": 4096}, "enospc_in_round": None, "enospc_before": False,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["f2fs", "ext4"])
@pytest.mark.parametrize(
    "name", [name for name in EXPERIMENTS if "mounted" in experiment(name).places and name != "dfs"]
)
def test_a_directory_is_judged_with_what_can_be_had_of_its_file_system(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounted, "source_of", lambda _: ("/dev/null", kind))
    monkeypatch.setattr(places, "_on_mounted", numbers_of)
    setting = Setting(Fraction(1, 512), str(tmp_path))
    (report,) = run.run([experiment(name)], setting, run.Store(None), 1, progress)
    assert report.outcome.rows
    if kind == "ext4":
        assert [(claim.claim, claim.verdict) for claim in report.outcome.claims] == [("what F2FS does", CANT_BE_TOLD)]


def test_a_load_that_ran_out_of_room_is_compared_by_its_fsyncs_and_not_as_a_whole() -> None:
    found = {name: numbers_of(None, "sqlite") for name in ("f2fs", "ext4", "f2fs-checkpoint", "nilfs2")}
    found["ext4"]["calls"]["fsync"] = 4
    found["nilfs2"]["enospc_in_round"] = 0
    outcome = fsync.judge_sqlite(Setting(on="guest"), found)
    (claim,) = (one for one in outcome.claims if one.claim.startswith("nilfs2"))
    assert (claim.here, "it ended with ENOSPC" in claim.reason) == ("4.00", True)
    (row,) = (one for one in outcome.rows if one.what == "nilfs2")
    assert "of ext4's" not in row.here
    assert "ended with ENOSPC" in row.here
