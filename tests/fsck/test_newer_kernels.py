"""What kernels up to Linux 7.3 write, and refuse, that older ones don't."""

from __future__ import annotations

from pathlib import Path

import pytest

from f2tools.f2fs.layout.super import SuperBlock
from tests.dump.craft import f2
from tests.fsck.craft import Patient


@pytest.mark.parametrize(("bit", "name"), [(17, "inconsistent_orphan"), (40, "error_40")])
def test_an_error_that_a_newer_kernel_has_recorded_is_told(bit: int, name: str, tmp_path: Path) -> None:
    patient = Patient("base", tmp_path)
    at = 1024 + SuperBlock.offset_of("s_errors") + bit // 8
    for copy in (0, 1):
        patient.write(at + copy * patient.size, bytes([1 << bit % 8]))
    patient.close()
    assert f"S008 info    sb, blkaddr 0x0: the kernel has recorded errors: {name}" in f2("fsck", patient.path).text
    assert name in f2("dump", "info", patient.path).text
