"""An image of which a superblock can't be read: the other one is enough to read all of it, and to repair it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import images
from tests.dump.craft import f2
from tests.unreadable import lose

OTHER_BLOCK = b"a loader that starts here".ljust(512, b".")


@pytest.fixture(params=["base", "blocks16k-casefold"])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = images.reference(request.param).copy(tmp_path).path
    with path.open("r+b") as file:
        file.write(OTHER_BLOCK)
    return path


def test_of_what_is_before_it_all_that_can_be_read_stays(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = copy.read_bytes()[:1024]
    with monkeypatch.context() as patch:
        lose(patch, 512, 1024)
        assert f2("fsck", "-y", "--force", copy).code in (0, 1)
    assert copy.read_bytes()[:1024] == content[:512] + bytes(512)
    assert f2("fsck", copy).code == 0


@pytest.mark.parametrize("lost", [0, 1024, 4096 - 512])
def test_the_second_superblock_is_enough(
    lost: int, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, content = f2("dump", "manifest", copy), copy.read_bytes()
    with monkeypatch.context() as patch:
        lose(patch, lost)
        assert f2("dump", "manifest", copy).out == whole.out
        salvaged = f2("fsck", "--salvage", tmp_path / "out", copy)
        assert salvaged.code in (0, 4), salvaged.err
        assert f2("fsck", "-y", "--dry-run", copy).code in (0, 4)
        refused = f2("fsck", "-y", copy)
        told = "Nothing was written: `ddrescue -r3 " in refused.err
        assert (refused.code, told) == ((4, True) if lost else (0, False))
        assert copy.read_bytes() == content
        repaired = f2("fsck", "-y", "--force", copy, "--json")
    assert repaired.code in (0, 1), repaired.err
    assert f2("dump", "manifest", copy).out == whole.out
    assert json.loads(f2("info", copy, "--json").text)
    assert f2("fsck", copy).code == 0
    assert copy.read_bytes()[:1024] == content[:1024]  # it can be read, and it is not ours
