"""Entries of the node address table that the journal overrides: wrong ones mislead a kernel and fsck.f2fs, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.f2fs.layout.constants import NEW_ADDR
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.volume.volume import Volume
from tests import judges
from tests.dump.craft import f2
from tests.fsck.test_turns import shown, wanted
from tests.images import reference


@pytest.mark.parametrize(
    ("ino", "block_addr", "code"),
    [(0, 0x400, "N002"), (5, NEW_ADDR, "N005"), (0, NEW_ADDR, "N005")],
)
def test_a_wrong_one_is_told_and_becomes_that_of_the_journal(
    ino: int, block_addr: int, code: str, tmp_path: Path
) -> None:
    image = reference("crash-several").copy(tmp_path / "image").path
    with Volume(open_device(image)) as volume:
        nid = max(volume.summaries.journals.nat["nid"].tolist())
        number, index = divmod(nid, volume.geo.nat_entries_per_block)
        at = int(volume.nat.blkaddrs[number]) * volume.geo.block_size + index * NatEntry.size
    with image.open("r+b") as file:
        file.seek(at)
        file.write(NatEntry(version=0, ino=ino, block_addr=block_addr).build())
    assert ino or judges.fsck(image).rc != 0
    found = [json.loads(line) for line in f2("fsck", "--json", image).text.splitlines()]
    assert [row["nid"] for row in found if row.get("code") == code] == [nid]
    assert f2("fsck", "-y", image).code == 1
    judged = judges.fsck(image)
    assert judged.rc == 0, judged.output
    assert shown(image) == wanted("crash-several")


def test_an_old_place_beyond_the_end_is_none(tmp_path: Path) -> None:
    """As a volume has it that was longer: what lay there has moved, and only the journal says so yet."""
    image = reference("crash-several").copy(tmp_path / "image").path
    with Volume(open_device(image)) as volume:
        nid = max(volume.summaries.journals.nat["nid"].tolist())
        number, index = divmod(nid, volume.geo.nat_entries_per_block)
        at = int(volume.nat.blkaddrs[number]) * volume.geo.block_size + index * NatEntry.size
        beyond = volume.geo.end_blkaddr + 5000
    with image.open("r+b") as file:
        file.seek(at)
        file.write(NatEntry(version=0, ino=nid, block_addr=beyond).build())
    assert f2("fsck", image).code == 0
    assert judges.fsck(image).rc == 0
