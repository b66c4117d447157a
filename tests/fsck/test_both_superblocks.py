"""Fields that are wrong in both superblocks, as a kernel writes them whose memory was hit: nothing is given up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from f2tools.f2fs.layout.constants import F2FS_FEATURE_RO, F2FS_SUPER_OFFSET
from f2tools.f2fs.layout.super import SuperBlock
from tests import judges
from tests.dump.craft import f2
from tests.fsck.test_turns import shown, wanted
from tests.images import reference

SIZE = 4096


def set_in_both(image: Path, field: str, value: int) -> None:
    with image.open("r+b") as file:
        for copy in range(2):
            file.seek(copy * SIZE + F2FS_SUPER_OFFSET + SuperBlock.offset_of(field))
            file.write(value.to_bytes(4, "little"))


@pytest.mark.parametrize("payload", [1, 2, 16, 500])
@pytest.mark.parametrize("name", ["crash-stress-3", "history-d", "features"])
def test_cp_payload_is_set_by_the_checkpoints(name: str, payload: int, tmp_path: Path) -> None:
    image = reference(name).copy(tmp_path / "image").path
    set_in_both(image, "cp_payload", payload)
    rows = [json.loads(line) for line in f2("fsck", "--json", image).text.splitlines()]
    (finding,) = [row for row in rows if row.get("code") == "S014"]
    assert (finding["found"], finding["expected"]) == (payload, 0)
    done = f2("fsck", "-p", image)
    assert done.code == 1, done.text
    assert f2("fsck", "-y", image).code in (0, 1)
    assert shown(image) == wanted(name)
    judged = judges.fsck(image)
    assert judged.rc == 0, judged.output


def test_a_payload_that_is_needed_comes_back(tmp_path: Path) -> None:
    """The bitmap of the SIT of 4 TiB has no room behind the head of a pack."""
    image = tmp_path / "large.img"
    assert f2("mkfs", "-q", image, "--size", "4T").code == 0
    before = json.loads(f2("dump", "superblock", "--json", image).text)
    payload = before["copies"][0]["fields"]["cp_payload"]
    assert payload > 0
    set_in_both(image, "cp_payload", 0)
    assert f2("fsck", "-y", image).code == 1
    assert json.loads(f2("dump", "superblock", "--json", image).text) == before


def test_a_volume_that_was_written_to_is_not_ro(tmp_path: Path) -> None:
    """What is made for reading only has no summaries, and nothing is reserved for cleaning."""
    image = reference("crash-stress-3").copy(tmp_path / "image").path
    set_in_both(image, "feature", F2FS_FEATURE_RO)
    assert f2("fsck", "-p", image).code == 1
    assert shown(image) == wanted("crash-stress-3")
