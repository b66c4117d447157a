"""verify finds what verity and compression checksums can tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import f2tools
from f2tools.f2fs.volume.data import Cluster
from tests import images
from tests.dump.craft import copy_of, f2, poke


def test_sealed_files_are_listed_with_their_digest() -> None:
    case = images.reference("features")
    report = json.loads(f2("dump", "verify", "--json", case.path).out)
    sealed = {"/" + p: e["verity"]["digest"] for p, e in case.manifest()["entries"].items() if "verity" in e}
    assert {path: seal["digest"] for path, seal in report["verity"].items()} == sealed
    assert report["failed"] == []


@pytest.mark.parametrize(
    "name", ["compress-lz4", "compress-lz4hc", "compress-lzo", "compress-lzo-rle", "compress-zstd", "checksums"]
)
def test_sound_clusters_are_good(name: str) -> None:
    result = f2("dump", "verify", "--json", images.reference(name).path)
    assert result.code == 0
    report = json.loads(result.out)
    assert (report["clusters"] > 0) == (name != "checksums")


def test_a_changed_sealed_file_fails(tmp_path: Path) -> None:
    case = copy_of("features", tmp_path)
    with f2tools.open(case.path) as volume:
        at = int(volume.data.addresses(volume.path("verity/v4096").inode, 0, 1)[0]) * 4096
    poke(case.path, at, b"\0\0\0\0")
    result = f2("dump", "verify", case.path)
    assert result.code == 1
    assert "/verity/v4096: " in result.err
    assert "1 failed" in result.text


def test_a_damaged_cluster_fails(tmp_path: Path) -> None:
    case = copy_of("compress-lz4", tmp_path)
    with f2tools.open(case.path) as volume:
        inode = volume.path("compressed/flat").inode
        cluster = next(item for item in volume.data.layout(inode) if isinstance(item, Cluster))
        at = int(cluster.blkaddrs[0]) * 4096
    poke(case.path, at, b"\xff\xff\xff\x7f")
    result = f2("dump", "verify", "--json", case.path)
    assert result.code == 1
    assert [item["path"] for item in json.loads(result.out)["failed"]] == ["/compressed/flat"]
