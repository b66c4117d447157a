"""What was fsync'ed after the checkpoint, on volumes that need a repair, too: it comes back, or the volume goes on
without it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.layout.sit import SitEntry
from f2tools.f2fs.volume.recovery import find_fsync_chain
from f2tools.f2fs.write.recovered import recovered
from f2tools.fsck.check import check
from f2tools.fsck.facts.image import Image
from f2tools.fsck.repair.rounds import StaysOpen
from tests.dump.craft import f2
from tests.f2fs.write.volumes import fresh, reading, writable
from tests.fsck import fields
from tests.fsck.sweep import tree_on
from tests.images import reference

FILE = 0o100644
OLD, NEW = b"h-old " * 2000, b"h-new " * 5000


def test_a_volume_that_went_on_from_the_older_checkpoint_keeps_what_it_wrote_since(tmp_path: Path) -> None:
    """The power is cut while the last block of a checkpoint is written, and again before the next one."""
    image = fresh(tmp_path)
    volume = writable(image)
    first = volume.create(F2FS_ROOT_INO, b"H", FILE)
    volume.write(first, 0, OLD)
    volume.sync()
    volume.sync()
    volume.mkdir(F2FS_ROOT_INO, b"d", 0o755)
    volume.sync()
    before = image.read_bytes()
    volume.unlink(F2FS_ROOT_INO, b"H")
    volume.sync()
    volume.abandon()
    with reading(image) as now:
        pack = now.pack
    torn = (pack.blkaddr + pack.cp.cp_pack_total_block_count - 1) * 4096 + 3584
    with image.open("r+b") as file:
        file.seek(torn)
        file.write(before[torn : torn + 512])
    volume = writable(image)
    assert volume.pack.cp.checkpoint_ver < pack.cp.checkpoint_ver
    volume.write(first, 0, NEW)
    volume.fsync(first)
    other = volume.create(F2FS_ROOT_INO, b"C", FILE)
    volume.write(other, 0, NEW)
    volume.fsync(other)
    volume.abandon()
    f2("fsck", "-y", image)
    writable(image).close()
    with reading(image) as now:
        root = now.nodes.inode(F2FS_ROOT_INO)
        assert {entry.name for entry in now.dirs.entries(root)} - {b".", b".."} == {b"d", b"H", b"C"}
        assert now.path("/H").read() == now.path("/C").read() == NEW


@pytest.mark.parametrize(
    ("name", "offset", "byte"), [("crash-new-file", 0x40108E, 0x9E), ("crash-several", 0x20115C, 131)]
)
def test_it_comes_back_where_finding_what_was_lost_is_all_that_is_to_be_done(
    name: str, offset: int, byte: int, tmp_path: Path
) -> None:
    image = reference(name).copy(tmp_path).path
    with open_device(image) as device:
        wanted, _ = tree_on(device, recovered)
    with open_device(image, write=True) as device:
        device.pwrite(offset, bytes([byte]))
        left, _ = fields.mended(device)
        found, _ = tree_on(device)
        assert not left
        assert not check(Image(StaysOpen(device))).counts["R001"]
    assert {path for path, item in wanted.items() if found.get(path, item) == item} == wanted.keys()


@pytest.mark.parametrize("name", ["crash-several", "crash-xattr"])
def test_a_chain_that_recovery_refuses_is_given_up_where_the_volume_is_repaired(name: str, tmp_path: Path) -> None:
    image = reference(name).copy(tmp_path).path
    with reading(image) as volume:
        last = find_fsync_chain(volume).chain[-1].blkaddr
        block, row = divmod(volume.pack.curseg(1)[0], volume.geo.sit_entries_per_block)
        entry = int(volume.sit.blkaddrs[block]) * 4096 + SitEntry.size * row
    with image.open("r+b") as file:
        file.seek(entry + SitEntry.offset_of("valid_map") + 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x55]))
        file.seek(last * 4096 + INODE_ADDR_OFFSET + 8)
        file.write(b"\xff\xff\0\0" * 6)
    said = f2("fsck", "-y", image).text
    assert "R001 what was fsync'ed" in said
    assert "given up" in said
    volume = writable(image)
    volume.create(F2FS_ROOT_INO, b"fresh", FILE)
    volume.close()
    assert "sound" in f2("fsck", image).text
