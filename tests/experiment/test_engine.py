"""Loads on the engine: the same seed gives the same numbers, other seeds nearly so, and the claims come out."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from f2tools.experiment.measure import on_engine
from f2tools.experiment.model import DIRECTION, NOT_REPRODUCED, REPRODUCED, Setting, Work
from f2tools.experiment.studies import cleaning, fsync

MIB = 1 << 20
SMALL = {"files": 40, "file_bytes": 65536, "writes": 60}


def measured(load: str, params: dict[str, Any], size: int = 128 * MIB, seed: int = 1, **more: Any) -> dict[str, Any]:
    return on_engine(Work(Setting(Fraction(1, 64), seed=seed), None, lambda _: None), load, params, size, **more)


def test_the_same_seed_gives_the_same_numbers_and_another_one_does_not() -> None:
    params = {"files": 64, "width": 200, "file_bytes": 131072, "append_bytes": 16384, "loops": 50}
    first, again = measured("fileserver", params), measured("fileserver", params)
    assert first == again
    assert measured("fileserver", params, seed=2)["run"] != first["run"]


def overwritten(adaptive: bool, seed: int) -> dict[str, Any]:
    params = {"cold": 60, "hot": 37.5, "rounds": 2, "round_bytes": 24 * MIB}
    return measured(
        "cleaning", params, 160 * MIB, seed, policy={"adaptive": adaptive}, overprovision=12.0, analyzed=False
    )


def test_append_only_logging_moves_blocks_where_adaptive_logging_fills_holes_whatever_the_seed() -> None:
    found = {seed: [overwritten(adaptive, seed) for adaptive in (True, False)] for seed in range(1, 6)}
    wafs = {seed: [cleaning.waf(one["run"]) for one in pair] for seed, pair in found.items()}
    assert all(adaptive < 1.5 < 2 < append for adaptive, append in wafs.values()), wafs
    appended = [append for _, append in wafs.values()]
    assert max(appended) / min(appended) < 1.15, wafs
    for adaptive, append in found.values():
        assert adaptive["run"]["threaded_blocks"] > adaptive["run"]["data_blocks"] // 2
        assert append["run"]["threaded_blocks"] == 0
        assert append["run"]["moved_data"] > append["run"]["asked_bytes"] // 4096
        assert 0.97 < adaptive["full"] < 0.99


def test_the_simulator_of_cleaning_is_held_against_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "SIMULATED", 160 * MIB)
    work = Work(Setting(), None, lambda _: None)
    found = {f"simulator-{name}": cleaning.simulator(work, adaptive) for adaptive, name in cleaning.NAMES.items()}
    append = found["simulator-append"]
    assert append["simulator"]["waf"] > 1.5 < append["engine"]["waf"]
    claims = cleaning._simulated(found)
    assert {claim.verdict for claim in claims} <= {REPRODUCED, DIRECTION}, claims  # a small volume is a coarse one
    append["simulator"]["waf"] *= 2
    assert cleaning._simulated(found)[1].verdict == NOT_REPRODUCED


def test_a_checkpoint_for_each_fsync_costs_more_than_roll_forward() -> None:
    found = {
        "f2fs": measured("fsync", SMALL),
        "f2fs-checkpoint": measured("fsync", SMALL, checkpoint_each=True),
    }
    claims = fsync.judge_fsync(Setting(), found).claims
    assert [claim.verdict for claim in claims] == [REPRODUCED, REPRODUCED], claims


def test_random_writes_reach_the_device_as_large_ones() -> None:
    found = measured("iozone", {"file_bytes": 16 * MIB})
    assert found["trace"]["size_512k"]["at_least"]["byte_share"] > 0.9
    assert found["calls"] == {"write": 4096, "write_bytes": 16 * MIB, "fsync": 1}


@pytest.mark.parametrize("real", [False, True])
def test_sqlite_is_asked_for_in_frames_of_its_log(real: bool, tmp_path: Path) -> None:
    """The calls that stand for SQLite's own: as many frames as it writes itself, within a tenth."""
    from f2tools.experiment.files import Directory, Files, Watch
    from f2tools.experiment.loads import Sqlite

    class Counting(Files):
        frames = 0

        def create(self, path: str) -> int:
            return 0 if path == "test.db" else 1

        def write(self, file: int, offset: int, size: int) -> None:
            self.frames += file == 1 and size == 4096

        def fsync(self, file: int) -> None: ...
        def close(self, file: int) -> None: ...
        def unlink(self, path: str) -> None: ...

    load = Sqlite({"records": 300, "library": real}, 1)
    if real:
        files = Directory(str(tmp_path))
        sizes: list[int] = []

        class Look(Watch):
            def advance(self, share: float) -> None:
                sizes.append((tmp_path / "test.db-wal").stat().st_size)

        load.run(files, Look())
        assert len(sizes) == 900
        assert sizes[-1] // Sqlite.FRAME == pytest.approx(950, rel=0.1)
    else:
        counting = Counting()
        load.run(counting, Watch())
        assert counting.frames == pytest.approx(950, rel=0.1)
