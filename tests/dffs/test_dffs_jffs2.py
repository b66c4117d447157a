"""What the report says of JFFS2 was measured, and comes out again."""

from __future__ import annotations

import json

from tests.dffs.jffs2 import RECORDED, measured
from tests.kernel.guest import Guest

A_LITTLE = 0.1  # pages, of the mean of 40 changes


def test_the_kernel_s_jffs2_writes_as_many_pages_for_a_change_as_the_record_says(guest: Guest) -> None:
    recorded = json.loads(RECORDED.read_text())
    found = measured(guest, ("calibration", "change"))
    assert found["calibration"] == recorded["calibration"] == {"reads": 10, "spares": 0, "writes": 10, "erases": 1}
    for what, row in recorded["change"].items():
        assert abs(found["change"][what]["written_each"] - row["written_each"]) < A_LITTLE, what
