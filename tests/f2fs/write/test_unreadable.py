"""A volume is written to while one block of it can't be read: what was there before is there afterwards.

Each operation is done or fails with an error of the device; when all can be read again, the volume is consistent and no
file, name or attribute is missing that no operation took away.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from f2tools.device import Device, open_device
from f2tools.errors import Corrupt, DeviceError
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO as ROOT
from f2tools.f2fs.layout.constants import NR_CURSEG_DATA_TYPE
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import Policy, WritableVolume, open_for_writing
from tests.dump.craft import f2
from tests.f2fs.write.consistency import assert_consistent
from tests.f2fs.write.model import BLOCK, Model
from tests.f2fs.write.test_device_fails import OneBlockLost
from tests.f2fs.write.volumes import Above, Ticks, fresh, model_of, writable
from tests.f2fs.write.workload import FILE
from tests.fsck.craft import Patient

FILES, XATTRS = 600, 20
GONE, MOVED = b"file-3", b"file-4"
EVERY = 16  # nodes and blocks of files; of the tables each block is lost in turn


class Filled:
    """A volume with two blocks of the NAT, indirect nodes, a large directory and a node of attributes."""

    def __init__(self, directory: Path) -> None:
        self.image = fresh(directory)
        with writable(self.image) as volume:
            self.dir = volume.mkdir(ROOT, b"dir", 0o755)
            for number in range(FILES):
                ino = volume.create(self.dir, b"file-%d" % number, FILE)
                volume.write(ino, 0, b"%d" % number * 50)
            self.big = volume.create(ROOT, b"big", FILE)
            volume.write(self.big, 0, b"x" * 1500 * BLOCK)
            self.many = volume.create(ROOT, b"many", FILE)
            for number in range(XATTRS):
                volume.setxattr(self.many, f"user.a{number}", b"v" * 100)
        with open_device(self.image) as device, Volume(device) as volume:
            self.before = model_of(volume)
            self.blocks = self._blocks(device, volume)

    def _blocks(self, device: Device, volume: Volume) -> list[int]:
        """The blocks that are lost in turn: those that hold something."""
        geo = volume.geo
        valid = np.flatnonzero(np.unpackbits(volume.sit.valid_map(), axis=1).reshape(-1)) + geo.main_blkaddr
        ranges = list(device.data_ranges(0, device.size_bytes))
        tables = [
            block
            for start, length in ranges
            for block in range(start // BLOCK, -(-(start + length) // BLOCK))
            if block < geo.main_blkaddr
        ]
        return [*tables, *valid[::EVERY].tolist()]

    def operations(self, volume: WritableVolume) -> list[Callable[[], object]]:
        """What is done while a block is lost."""
        return [
            lambda: volume.create(self.dir, b"new", FILE),
            lambda: volume.mkdir(ROOT, b"new directory", 0o755),
            lambda: volume.unlink(self.dir, GONE),
            lambda: volume.rename(self.dir, MOVED, ROOT, MOVED),
            lambda: volume.write(self.big, 700 * BLOCK + 100, b"y" * 5000),
            lambda: volume.truncate(self.big, 1450 * BLOCK + 5),
            lambda: volume.setxattr(self.many, "user.new", b"w" * 50),
            lambda: volume.setxattr(self.many, "user.a3", b"w" * 90),
            lambda: volume.link(self.many, self.dir, b"second"),
            lambda: [volume.create(self.dir, b"more-%d" % number, FILE) for number in range(30)],
            lambda: volume.fsync(self.big),
            volume.sync,
            lambda: volume.checkpoint(unmount=True),
        ]

    def missing(self, after: Model) -> list[str]:
        """What is not there any more, or not as it was."""
        found: list[str] = []
        for ino in (ROOT, self.dir):
            names = self.before.nodes[ino].children.keys() - after.nodes[ino].children.keys() - {GONE, MOVED}
            found += [f"the name {name!r}" for name in names]
        gone = self.before.nodes[self.dir].children[GONE]
        for ino, node in self.before.nodes.items():
            now = after.nodes.get(ino)
            if now is None:
                found += [] if ino == gone else [f"inode {ino}"]
            elif node.is_file and ino != self.big and (now.size, now.blocks) != (node.size, node.blocks):
                found.append(f"the content of inode {ino}")
        kept = after.nodes[self.many].xattrs
        return found + [f"the attribute {name}" for name in self.before.nodes[self.many].xattrs if name not in kept]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return Filled(tmp_path_factory.mktemp("unreadable"))


def test_no_block_that_cannot_be_read_costs_anything_but_the_operations_that_need_it(filled: Filled) -> None:
    refused = 0
    with open_device(filled.image) as base:
        for block in filled.blocks:
            top = Above(base)
            device = OneBlockLost(top)
            device.lost = block
            try:
                volume = WritableVolume(device, Policy(), Ticks(), seed=1)
            except DeviceError:
                refused += 1
                continue
            for operation in filled.operations(volume):
                with suppress(DeviceError):  # anything else is a lie about what is there, or a mistake
                    operation()
            with Volume(Above(top)) as read:
                assert_consistent(read, f"block {block:#x} could not be read")
                assert not filled.missing(model_of(read)), f"block {block:#x} could not be read"
    assert 0 < refused < len(filled.blocks) // 4


def test_a_file_of_which_a_node_cannot_be_read_keeps_its_name(filled: Filled) -> None:
    """Its blocks could not be given back; the name that leads to them would be gone."""
    with open_device(filled.image) as base:
        top = Above(base)
        with Volume(Above(top)) as read:
            nid = int(read.nodes.inode(filled.big).nids[0])
            lost = int(read.nat.get(nid)[2])
        device = OneBlockLost(top)
        volume = WritableVolume(device, Policy(), Ticks(), seed=1)
        device.lost = lost
        for remove in (
            lambda: volume.unlink(ROOT, b"big"),
            lambda: volume.rename(ROOT, b"many", ROOT, b"big"),
        ):
            with pytest.raises(DeviceError):
                remove()
            assert volume.broken is None
        volume.create(ROOT, b"new", FILE)
        volume.sync()
        with Volume(Above(top)) as read:
            assert_consistent(read, "a node could not be read")
            assert {child.path for child in read.root.iterdir()} == {b"/dir", b"/big", b"/many", b"/new"}


@pytest.mark.parametrize("count", [0, 500], ids=["in use, and called free", "free, and called in use"])
def test_a_segment_table_that_contradicts_itself_is_not_written_by(count: int, tmp_path: Path) -> None:
    patient = Patient("plain", tmp_path)
    kinds = patient.vol.sit.types < NR_CURSEG_DATA_TYPE
    open_ones = {*patient.vol.pack.cp.cur_data_segno[:3], *patient.vol.summaries.journals.sit["segno"].tolist()}
    of_that_kind = kinds & ((patient.vol.sit.vblocks == 0) == bool(count))
    segno = next(segno for segno in np.flatnonzero(of_that_kind).tolist() if segno not in open_ones)
    patient.put(patient.sit_at(segno)[1], 2, count)
    patient.close()
    before = patient.path.read_bytes()
    with pytest.raises(Corrupt, match=r"segment table says .* run f2tools fsck"):
        open_for_writing(patient.path)
    for words in (("cp", __file__, f"{patient.path}:/new"), ("clean", "--dry-run", patient.path)):
        ended = f2(*words)
        assert ended.code in (1, 8)
        assert "run f2tools fsck" in ended.err
    assert patient.path.read_bytes() == before
