"""Carved files on the host: what is there already, and two that begin in one block."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from f2tools.forensics.carve import Carver
from tests.dump.craft import f2
from tests.images import reference


def test_carving_again_with_force_replaces_what_was_carved_and_nothing_else(tmp_path: Path) -> None:
    image, target = reference("phone").path, tmp_path / "carved"
    assert f2("carve", image, "--type", "png", "-o", target).code == 0
    first = {path.name: path.read_bytes() for path in target.iterdir()}
    assert first
    (target / "own").write_text("somebody's own")
    (target / next(iter(first))).write_bytes(b"older")
    assert f2("carve", image, "--type", "png", "-o", target, "--force").code == 0
    assert {path.name: path.read_bytes() for path in target.iterdir()} == first | {"own": b"somebody's own"}


def test_two_files_that_begin_in_one_block_are_both_written(tmp_path: Path) -> None:
    carver = Carver.__new__(Carver)
    carver._written = set()
    carver._pieces = lambda carved: iter([b"content"])  # type: ignore[method-assign]
    for size in (3, 4, 5):
        carver.write(SimpleNamespace(blkaddrs=[0x1234], extension="png", size=size, inline=None), str(tmp_path))
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {"00001234.png": b"con", "00001234~2.png": b"cont", "00001234~3.png": b"conte"}
