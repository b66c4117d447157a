"""A forged image in which all files share the same blocks: a small image must not fill a disk, nor take for ever."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import f2tools
from f2tools.errors import Corrupt
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET
from f2tools.f2fs.volume.data import DataReader
from f2tools.f2fs.volume.inode import Inode
from tests.images import reference

F2TOOLS = Path(sys.executable).parent / "f2tools"
CLAIMED = 800  # blocks of each file, all the same one


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    image = reference("noinline").copy(tmp_path_factory.mktemp("forged")).path
    with f2tools.open(image) as vol:
        files = [e.inode for _, _, found in vol.walk() for e in found if isinstance(e.inode, Inode) and e.inode.is_file]
        block = next(int(i.addrs[0]) for i in files if i.addrs[0])
        limit = 2 * vol.geo.segment_count_main * 512 * 4096
    assert len(files) * CLAIMED * 4096 > 4 * limit, "more is claimed than may come out"
    addrs = np.full(CLAIMED, block, "<u4").tobytes()
    with image.open("r+b") as out:
        for inode in files:
            start = inode.blkaddr * 4096
            out.seek(start + 16)
            out.write((CLAIMED * 4096).to_bytes(8, "little"))
            out.seek(start + INODE_ADDR_OFFSET + inode.extra_isize)
            out.write(addrs)
    return image


def run(*words: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([F2TOOLS, *map(str, words)], capture_output=True, check=False, timeout=60)


def most(image: Path) -> int:
    with f2tools.open(image) as vol:
        return 2 * vol.geo.segment_count_main * vol.geo.blocks_per_seg * vol.geo.block_size


def test_extract_stops_at_what_a_sound_volume_could_hold(forged: Path, tmp_path: Path) -> None:
    done = run("dump", "extract", forged, "-o", tmp_path / "out")
    assert done.returncode == 1
    assert b"share them" in done.stderr
    taken = sum(f.lstat().st_blocks * 512 for f in (tmp_path / "out").rglob("*"))
    assert taken <= most(forged) + (64 << 20)


def test_tar_stops_too(forged: Path, tmp_path: Path) -> None:
    done = run("dump", "tar", forged, "-o", tmp_path / "out.tar")
    assert done.returncode == 1
    assert b"share them" in done.stderr
    assert (tmp_path / "out.tar").stat().st_size <= most(forged) + (64 << 20)


def test_a_manifest_stops_too(forged: Path) -> None:
    done = run("dump", "manifest", forged)
    assert done.returncode == 1
    assert b"EUCLEAN" in done.stdout


def test_a_file_that_maps_more_than_there_is_ends_there(forged: Path) -> None:
    with f2tools.open(forged) as vol:
        inode = next(
            e.inode
            for _, _, found in vol.walk()
            for e in found
            if isinstance(e.inode, Inode) and e.inode.is_file and not e.inode.nids.any()
        )
        reader = DataReader(vol.device, replace(vol.geo, segment_count_main=1), vol.nodes)
        with pytest.raises(Corrupt, match="maps more blocks"):
            list(reader.layout(inode))
