"""Forged compressed files whose clusters all share one stored block, which stands for 128 blocks each time."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import f2tools
from f2tools.copyout.content import copy_content
from f2tools.copyout.extract import extract
from f2tools.dump.manifest import write_manifest
from f2tools.dump.tar import write_tar
from f2tools.errors import Corrupt
from f2tools.f2fs.layout.constants import COMPRESS_ADDR, F2FS_COMPR_FL
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, InodeExtra
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.volume.compress import ZSTD, compress_cluster
from f2tools.f2fs.volume.data import DataReader, Extent
from f2tools.f2fs.volume.inode import Inode
from tests.images import reference

LOG = 7
CLUSTER = 1 << LOG
MOST = 2 * CLUSTER
CLUSTERS = 6  # of each file: as many as the inode itself maps


@pytest.fixture
def forged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, bytes]:
    """An image, and the path of one of its files; a small volume, so that little shows what would be much."""
    image = reference("compress-zstd").copy(tmp_path).path
    monkeypatch.setattr(DataReader, "most_blocks", MOST)
    size = CLUSTER * CLUSTERS * 4096
    with f2tools.open(image) as vol:
        found = {
            entry.inode.ino: (path + b"/" + entry.dentry.name, entry.inode)
            for path, _, entries in vol.walk()
            for entry in entries
            if isinstance(entry.inode, Inode) and entry.inode.i_flags & F2FS_COMPR_FL and entry.inode.is_file
        }
        some = [inode for _, inode in found.values() if not inode.has_inline_data and not inode.nids.any()]
        block = next(int(a) for i in some for a in i.addrs if a and a < COMPRESS_ADDR)
    stored = compress_cluster(bytes(CLUSTER * 4096), ZSTD)
    assert stored is not None
    assert len(stored) == 4096
    addrs = np.zeros(CLUSTERS * CLUSTER, "<u4")
    addrs[::CLUSTER], addrs[1::CLUSTER] = COMPRESS_ADDR, block
    with image.open("r+b") as out:
        out.seek(block * 4096)
        out.write(stored)
        for inode in some:
            start = inode.blkaddr * 4096
            for at, value in (
                (InodeLayout.offset_of("i_size"), size.to_bytes(8, "little")),
                (INODE_ADDR_OFFSET + InodeExtra.offset_of("i_compress_algorithm"), bytes([ZSTD])),
                (INODE_ADDR_OFFSET + InodeExtra.offset_of("i_log_cluster_size"), bytes([LOG])),
                (INODE_ADDR_OFFSET + InodeExtra.offset_of("i_compress_flag"), bytes(2)),
                (INODE_ADDR_OFFSET + inode.extra_isize, addrs.tobytes()),
            ):
                out.seek(start + at)
                out.write(value)
    assert len(some) * CLUSTERS * CLUSTER > 20 * MOST, "far more is claimed than may come out"
    return image, found[some[0].ino][0]


def test_cat_of_clusters_that_share_a_block_stops(forged: tuple[Path, bytes]) -> None:
    image, path = forged
    out = io.BytesIO()
    with f2tools.open(image) as vol, pytest.raises(Corrupt, match="share them"):
        copy_content(vol.path(path), out)
    assert out.tell() <= (MOST + CLUSTER) * 4096


def test_extract_of_clusters_that_share_a_block_stops(forged: tuple[Path, bytes], tmp_path: Path) -> None:
    with f2tools.open(forged[0]) as vol:
        report = extract(vol, tmp_path / "out")
    assert any("share them" in str(lost) for lost in [*report.lost, *report.partial])
    taken = sum(f.lstat().st_blocks * 512 for f in (tmp_path / "out").rglob("*") if f.is_file())
    assert taken <= (2 * MOST + CLUSTER) * 4096


def test_tar_of_clusters_that_share_a_block_stops(forged: tuple[Path, bytes]) -> None:
    out = io.BytesIO()
    with f2tools.open(forged[0]) as vol:
        report = write_tar(vol, out)
    assert any("share them" in str(lost) for lost in report.lost)
    assert out.tell() <= (2 * MOST + CLUSTER) * 4096


def test_a_manifest_of_clusters_that_share_a_block_stops(forged: tuple[Path, bytes]) -> None:
    out = io.StringIO()
    with f2tools.open(forged[0]) as vol:
        assert write_manifest(vol, out)
    assert "EUCLEAN" in out.getvalue()


def test_a_sound_file_is_read_twice_at_the_price_of_its_stored_blocks() -> None:
    with f2tools.open(reference("compress-zstd").path) as vol:
        vol.data.limit()
        files = [e.inode for _, _, found in vol.walk() for e in found if isinstance(e.inode, Inode) and e.inode.is_file]
        for inode in (one for one in files if one.compressed and not one.has_inline_data):
            once = [vol.data.cost(inode, item) for item in vol.data.layout(inode)]
            again = [vol.data.cost(inode, item) for item in vol.data.layout(inode)]
            stored = [item.count if isinstance(item, Extent) else item.blkaddrs.size for item in vol.data.layout(inode)]
            assert once == again == stored
