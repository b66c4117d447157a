"""One block at a time comes to what arrays of blocks come to: addresses of nodes, valid blocks, owners, writes."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from f2tools.device.base import Data, Wrapper
from f2tools.device.buffers import byte_view
from f2tools.errors import Corrupt
from f2tools.f2fs.layout.constants import CURSEG_WARM_DATA, F2FS_ROOT_INO, NEW_ADDR
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.layout.summary import Summary
from f2tools.f2fs.volume.data import DataReader
from f2tools.f2fs.write import file
from f2tools.f2fs.write.volume import WritableVolume
from tests.device.memory import Memory
from tests.f2fs.write.volumes import fresh, writable
from tests.f2fs.write.workload import FILE

BLOCK = 4096


class Written(Wrapper):
    """Notes the offset and length of each write."""

    def __init__(self, inner: Memory) -> None:
        super().__init__(inner)
        self.ranges: list[tuple[int, int]] = []

    def pwrite(self, offset: int, data: Data) -> None:
        self.ranges.append((offset // BLOCK, byte_view(data).nbytes // BLOCK))
        super().pwrite(offset, data)


def test_few_blocks_are_written_by_runs_and_as_many_are() -> None:
    random_one = random.Random(7)
    for _ in range(200):
        blkaddrs = random_one.sample(range(12), random_one.randrange(1, 9))
        blocks = [np.frombuffer(random_one.randbytes(BLOCK), np.uint8) for _ in blkaddrs]
        few, many = Written(Memory(bytes(12 * BLOCK))), Memory(bytes(12 * BLOCK))
        few.write_few(blkaddrs, blocks, BLOCK)
        many.write_blocks(np.array(blkaddrs), np.stack(blocks), BLOCK)
        assert few.pread(0, 12 * BLOCK) == many.pread(0, 12 * BLOCK)
        breaks = sum(b != a + 1 for a, b in pairwise(blkaddrs))
        assert len(few.ranges) == breaks + 1
        assert sum(count for _, count in few.ranges) == len(blkaddrs)


def test_one_node_address_is_set_as_many_are(tmp_path: Path) -> None:
    volume, other = writable(fresh(tmp_path)), writable(fresh(tmp_path, name="other.img"))
    random_one = random.Random(3)
    for _ in range(300):
        nid, ino = random_one.randrange(100, 2000), random_one.randrange(1 << 32)
        blkaddr = random_one.choice([0, NEW_ADDR, random_one.randrange(1 << 32)])
        before = int(other.nat.lookup([nid])["block_addr"][0])
        assert volume.nat.move(nid, ino, blkaddr) == before
        other.nat.set([nid, nid + 5000], [ino, 1], [blkaddr, 1])
        if random_one.random() < 0.3:
            volume.nat.release([nid])
            other.nat.release([nid, nid + 5000])
        assert volume.nat.get(nid) == other.nat.lookup([nid])[0].item()
    for one in (volume, other):
        one.abandon()


def test_one_block_is_given_and_taken_as_many_are(tmp_path: Path) -> None:
    one, many = writable(fresh(tmp_path)), writable(fresh(tmp_path, name="other.img"))
    owners = np.zeros(9, Summary.dtype)
    owners["nid"], owners["version"], owners["ofs_in_node"] = np.arange(9) + 70, 255, np.arange(9) + 65000
    for turn in range(40):
        given = [one.segments.allocate_one(CURSEG_WARM_DATA, row) for row in owners.tolist()]
        assert given == many.segments.allocate(CURSEG_WARM_DATA, owners).tolist()
        for blkaddr in given[: turn % 10]:
            one.segments.invalidate_one(blkaddr)
            segno = int(one.geo.segno(blkaddr))
            many.segments._mark_invalid(segno, np.array([blkaddr - one.geo.start_block(segno)]))
        assert one.segments.waiting_holes == many.segments.waiting_holes
    for name in ("vblocks", "valid_map", "held"):
        assert np.array_equal(getattr(one.segments, name), getattr(many.segments, name)), name
    a, b = (volume.segments.cursegs[CURSEG_WARM_DATA].entries for volume in (one, many))
    assert np.array_equal(a, b)
    for volume in (one, many):
        volume.abandon()


@pytest.mark.parametrize("size", [0, 2, 3, 4, 8, 12, 20, 24, 32, 36, 1000, 65535])
def test_extra_attributes_are_those_that_fit(size: int, tmp_path: Path) -> None:
    volume = writable(fresh(tmp_path, "--size 64M -O extra_attr"))
    inode = volume.live(volume.create(F2FS_ROOT_INO, b"file", FILE))
    inode.block[INODE_ADDR_OFFSET : INODE_ADDR_OFFSET + 2].view("<u2")[0] = size
    inode.forget_derived()
    values = InodeExtra.parse(inode.block[INODE_ADDR_OFFSET:].tobytes())
    fitting = [item.name for item in InodeExtra.fields if item.offset + item.size <= size]
    assert inode.extra == {name: getattr(values, name) for name in fitting}
    volume.abandon()


@pytest.mark.parametrize("held", [0, 1, 256])
def test_an_fdatasync_leaves_out_times_alone_whether_inodes_are_kept_whole_or_as_digests(
    held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "WHOLE_HELD", held)
    image = fresh(tmp_path)
    volume = writable(image)
    inos = [volume.create(F2FS_ROOT_INO, b"%d" % number, FILE) for number in range(3)]
    for ino in inos:
        volume.write(ino, 0, bytes(5 * BLOCK))
    volume.sync()
    for turn in range(3):
        for ino in inos:
            volume.write(ino, 0, b"%d" % turn)
            volume.fsync(ino)
            assert ino not in volume.nodes.dirty
            volume.write(ino, BLOCK, b"%d" % turn)
            volume.fsync(ino, datasync=True)
            assert ino in volume.nodes.dirty, "its times alone were written"
            volume.write(ino, 5 * BLOCK + turn, b"longer")
            volume.fsync(ino, datasync=True)
            assert ino not in volume.nodes.dirty, "its size was left out"
    volume.abandon()
    with writable(image) as recovered:
        for ino in inos:
            assert recovered.read_at(ino, 0, 1) == recovered.read_at(ino, BLOCK, 1) == b"2"
            assert recovered.live(ino).i_size == 5 * BLOCK + 8


def test_of_a_file_that_is_gone_nothing_is_kept_for_its_next_fsync(tmp_path: Path) -> None:
    with writable(fresh(tmp_path)) as volume:
        for _ in range(3):
            ino = volume.create(F2FS_ROOT_INO, b"journal", FILE)
            volume.write(ino, 0, b"rows")
            volume.fsync(ino, datasync=True)
            assert list(volume._synced) == [ino]
            volume.unlink(F2FS_ROOT_INO, b"journal")
            assert not volume._synced


def test_small_writes_are_those_of_large_ones(tmp_path: Path) -> None:
    """Bytes take a shorter way into the pages than other buffers."""
    random_one, model = random.Random(11), bytearray()
    volumes: list[WritableVolume] = [writable(fresh(tmp_path, name=f"{n}.img")) for n in range(2)]
    inos = [volume.create(F2FS_ROOT_INO, b"file", FILE) for volume in volumes]
    for turn in range(400):
        offset = random_one.choice([0, 3000, BLOCK - 1, BLOCK, random_one.randrange(9 * BLOCK)])
        data = random_one.randbytes(random_one.choice([1, 4, 512, BLOCK - 1, BLOCK]))
        model[len(model) :] = bytes(max(0, offset + len(data) - len(model)))
        model[offset : offset + len(data)] = data
        volumes[0].write(inos[0], offset, data)
        volumes[1].write(inos[1], offset, bytearray(data))
        if turn % 50 == 49:
            for volume, ino in zip(volumes, inos, strict=True):
                volume.fsync(ino)
        if turn % 130 == 129:
            del model[random_one.randrange(len(model)) :]
            for volume, ino in zip(volumes, inos, strict=True):
                volume.truncate(ino, len(model))
        for volume, ino in zip(volumes, inos, strict=True):
            assert volume.read_at(ino, 0, 1 << 20) == model
    assert volumes[0].space.valid_blocks == volumes[1].space.valid_blocks
    for volume in volumes:
        volume.close()


def test_runs_pages_and_holes_are_read_together(tmp_path: Path) -> None:
    volume = writable(fresh(tmp_path))
    random_one = random.Random(5)
    ino = volume.create(F2FS_ROOT_INO, b"file", FILE)
    longest = 60 * BLOCK
    model = bytearray()
    for number in range(400):
        at, length = random_one.randrange(longest), random_one.randrange(1, 3 * BLOCK)
        if number % 20 == 19:
            volume.truncate(ino, at)
            model[at:] = bytes(max(0, at - len(model)))
        elif number % 20 == 9:
            volume.fsync(ino)
        else:
            model.extend(bytes(max(0, at - len(model))))
            data = random_one.randbytes(length)
            volume.write(ino, at, data)
            model[at : at + length] = data
        at, length = random_one.randrange(longest), random_one.randrange(1, 20 * BLOCK)
        assert volume.read_at(ino, at, length) == model[at : at + length]
        assert DataReader.read(volume.data, volume.live(ino), at, length) == model[at : at + length]


def test_a_block_outside_the_main_area_is_refused_beside_others(tmp_path: Path) -> None:
    volume = writable(fresh(tmp_path))
    ino = volume.create(F2FS_ROOT_INO, b"file", FILE)
    volume.write(ino, 0, bytes(6 * BLOCK))
    volume.fsync(ino)
    volume.write(ino, BLOCK, b"a page")
    addrs = volume.live(ino).addrs
    for wrong in (1, volume.geo.end_blkaddr):
        addrs[3] = wrong
        with pytest.raises(Corrupt, match="outside the main area"):
            volume.read_at(ino, 0, 6 * BLOCK)
