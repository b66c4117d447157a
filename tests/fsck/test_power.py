"""A repair that is cut off at any moment: running it again finishes the work, and nothing that was saved is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.record import Recorder
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.repair.rounds import Repairer, StaysOpen
from tests.fsck.craft import Patient, examine, said
from tests.fsck.test_repair import TABLE, tree_of
from tests.images import reference

CUTS = int(os.environ.get("F2_FSCK_CUTS", "6"))  # of each row, spread over all writes


@pytest.mark.parametrize("change", TABLE, ids=lambda change: change.__name__)
def test_a_repair_that_was_cut_off_can_be_finished(change: Callable[[Patient], None], tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    good = set(tree_of(reference("base").path))
    change(p)
    p.close()
    with open_device(p.path) as device:
        repairer = Repairer(device)
        assert repairer.run(examine(p.path)).complete
        recorder = Recorder(Overlay(StaysOpen(device)))
        repairer.commit(recorder)
        onto = Overlay(StaysOpen(device))
        counts = list(recorder.prefixes(onto))
        wanted = set(counts[:: max(1, len(counts) // CUTS)])
        onto = Overlay(StaysOpen(device))
        for count in recorder.prefixes(onto):
            if count not in wanted:
                continue
            again = Repairer(onto)
            outcome = again.run(check(Image(StaysOpen(onto))))
            assert outcome.complete, f"cut after {count}: {said(outcome.after)}"
            finished = tmp_path / "finished.img"
            finished.write_bytes(again.overlay.pread(0, again.overlay.size_bytes))
            missing = good - set(tree_of(finished))
            assert not missing, f"cut after {count}: {sorted(missing)[:5]}"
