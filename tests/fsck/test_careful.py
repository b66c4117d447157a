"""`fsck -p` gives nothing up: what a full repair brings back, it brings back after a careful one, too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from f2tools.device import Device, open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.errors import F2fsError
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.volume import File, Volume
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.findings import Finding
from f2tools.fsck.repair.rounds import Repairer, StaysOpen
from tests.dump.craft import f2
from tests.fsck import fuzz
from tests.fsck.craft import Patient
from tests.fsck.trees import shown
from tests.images import DIRECTORY, reference

CASES = int(os.environ.get("F2_FSCK_CAREFUL", "6"))  # damages of each image


def repaired(device: Device, *, careful: bool) -> None:
    """Repair in place, as `fsck -p` or `fsck -y`."""
    repairer = Repairer(device, careful=careful)
    outcome = repairer.run(check(Image(StaysOpen(device))))
    if outcome.better:
        repairer.commit(device)


def trees(name: str, patches: list[tuple[int, bytes]]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """What is there after a full repair, and after a careful and a full one."""
    found = []
    for careful in (False, True):
        with open_device(reference(name).path) as device:
            image = Overlay(StaysOpen(device))
            for offset, data in patches:
                image.pwrite(offset, data)
            if careful:
                repaired(image, careful=True)
            repaired(image, careful=False)
            found.append(everything(image))
    return found[0], found[1]


def everything(device: Device) -> dict[bytes, Any]:
    """What each path shows; of a file that can't be read, the error."""
    found: dict[bytes, Any] = {}
    with Volume(StaysOpen(device)) as volume:
        for directory, _, entries in volume.walk():
            for entry in entries:
                path = directory.rstrip(b"/") + b"/" + entry.name
                try:
                    assert isinstance(entry.inode, Inode)
                    found[path] = shown(File(volume, entry.inode, path))
                except F2fsError as error:
                    found[path] = str(error)
    return found


@pytest.mark.parametrize("name", ["base", "features", "casefold", "compress-lz4"])
@pytest.mark.parametrize("number", range(CASES))
def test_a_careful_repair_takes_nothing_from_the_full_one(name: str, number: int) -> None:
    full, both = trees(name, fuzz.damage(name, 5_000_000 + number))
    assert {path for path, item in full.items() if both.get(path) != item} == set()


@pytest.mark.parametrize("path", ["/small/file-12340-29", "/small/some.longer.name-04096-19", "/sparse/stripes"])
def test_the_blocks_of_a_file_whose_inode_is_lost_stay_its_own(path: str, tmp_path: Path) -> None:
    image = reference("base").copy(tmp_path).path
    with Volume(open_device(image)) as volume:
        at = volume.path(path).inode.blkaddr
    with image.open("r+b") as file:
        file.seek(at * 4096)
        file.write(bytes(4096))
    full, both = trees("base", [(at * 4096, bytes(4096))])
    assert full == both
    damaged = image.read_bytes()
    told = f2("fsck", "-p", image)
    assert told.code == 4
    assert "gone" not in told.text
    assert f"`f2tools fsck -y --undo FILE {image}` repairs more, and says what is lost" in told.err
    assert image.read_bytes() == damaged


def test_an_address_that_leads_nowhere_is_left(tmp_path: Path) -> None:
    image = reference("base").copy(tmp_path).path
    with Volume(open_device(image)) as volume:
        inode = volume.path("/sparse/stripes").inode
        hole = inode.addrs.tolist().index(0)
        place = inode.blkaddr * 4096 + INODE_ADDR_OFFSET + 4 * hole
    with image.open("r+b") as file:
        file.seek(place)
        file.write(b"\0\0\0\x46")
    assert f2("fsck", "-p", image).code == 4
    with image.open("rb") as file:
        file.seek(place)
        assert file.read(4) == b"\0\0\0\x46"


def test_a_short_image_is_not_made_longer(tmp_path: Path) -> None:
    """The rest of a copy that was interrupted may still come."""
    image = reference("base").copy(tmp_path).path
    os.truncate(image, 30 << 20)
    told = f2("fsck", "-p", image)
    assert told.code == 4
    assert "S009 left: what is missing may still be found" in told.text
    assert told.err.endswith("; get a whole copy of it\n")
    assert image.stat().st_size == 30 << 20


def test_who_declines_what_is_given_up_loses_no_block_of_it(tmp_path: Path) -> None:
    """By `-i`: without it, tables computed anew would make the blocks free."""
    image = reference("base").copy(tmp_path).path
    with Volume(open_device(image)) as volume:
        at = volume.path("/small/file-12340-29").inode.blkaddr
    with image.open("r+b") as file:
        file.seek(at * 4096)
        file.write(bytes(4096))
    asked: list[str] = []

    def answer(group: str, _findings: object) -> bool:
        asked.append(group)
        return group not in ("give up", "find")

    with open_device(image) as device:
        overlay = Overlay(StaysOpen(device))
        repairer = Repairer(overlay, ask=answer)
        outcome = repairer.run(check(Image(StaysOpen(overlay))))
        assert asked
        assert not any("computed anew" in line for line in outcome.done)


def test_what_is_only_counted_wrongly_is_counted_anew(tmp_path: Path) -> None:
    """Nothing is given up by it."""
    patient = Patient("base", tmp_path)
    patient.inode("/small/file-12340-29", i_blocks=77)
    patient.inode("/links/hard0", i_links=8)
    patient.close()
    assert f2("fsck", "-p", patient.path).code == 1
    assert f2("fsck", patient.path).code == 0


def test_no_table_is_needed_for_a_careful_repair_of_tables(tmp_path: Path) -> None:
    patient = Patient("plain", tmp_path)
    patient.write(int(patient.vol.sit.blkaddrs[0]) * patient.size, bytes(patient.size))
    patient.close()
    assert f2("fsck", "-p", patient.path).code == 1
    assert f2("fsck", patient.path).code == 0


def test_a_block_that_is_taken_is_marked_so_or_nothing_is_written(tmp_path: Path) -> None:
    """A copy of a shared block lies in a free one: the tables must say that it is in use."""
    patient = Patient("base", tmp_path)
    other = int(patient.vol.path("/small/some.longer.name-04096-19").inode.addrs[0])
    patient.address("/small/file-12340-29", 20, other)
    patient.nid_pointer("/small/some.longer.name-03489-14", 0, 0x46000000)
    patient.close()
    before = patient.path.read_bytes()
    assert f2("fsck", "-p", patient.path).code == 4
    assert patient.path.read_bytes() == before


def test_no_finding_is_repaired_that_was_not_in_a_question(tmp_path: Path) -> None:
    """What is corrected in later phases is asked about, too: the phases of one group are one question."""
    image = reference("base").copy(tmp_path).path
    with image.open("r+b") as file:
        for damage in ("dentry-hash", "xattr-length", "dentry-missing-inode", "inode-blocks"):
            for offset, _, data in json.loads((DIRECTORY / "damaged" / f"{damage}.json").read_text())["patch"]:
                file.seek(offset)
                file.write(bytes.fromhex(data))
    asked: set[str] = set()

    def answer(_group: str, findings: list[Finding]) -> bool:
        asked.update(finding.code for finding in findings)
        return True

    with open_device(image) as device:
        repairer = Repairer(device, ask=answer)
        outcome = repairer.run(check(Image(StaysOpen(device))))
    assert outcome.complete
    assert {"D005", "X002"} <= {line.partition(" ")[0] for line in outcome.done} <= asked
