"""Copying from a hostile image into a sound one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dump.craft import f2
from tests.hostile.forge import Forge
from tests.hostile.test_forged import loops, names, sizes


@pytest.mark.parametrize("make", [names, loops, sizes], ids=lambda make: make.__name__)
def test_a_hostile_image_does_no_harm_to_the_one_that_is_copied_to(make: Any, tmp_path: Path) -> None:
    with Forge(tmp_path / "hostile") as forge:
        make(forge)
    target = tmp_path / "target"
    assert f2("mkfs", target, "--size", "128M", "-q").code == 0
    done = f2("cp", "-a", f"{forge.path}:/", f"{target}:/copy")
    assert "Traceback" not in done.err
    assert done.code in (0, 1)
    assert done.code == 0 or done.err.strip()
    assert f2("fsck", target).code == 0
    assert f2("dump", "ls", target, "/").text.split() in ([], ["copy"])
