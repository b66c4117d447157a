"""Quota files say what the tree adds up to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.errors import Corrupt
from f2tools.f2fs.volume.quota import quota_inos, read_quota, read_quotas
from tests import images


def test_quota_files_hold_what_the_files_use(reference: Any) -> None:
    with f2tools.open(reference("features").path) as volume:
        files = {item.kind: item for item in read_quotas(volume.sb, volume.nodes, volume.data)}
        assert set(files) == {"user", "group", "project"}
        inodes: Counter[tuple[str, int]] = Counter()
        space: Counter[tuple[str, int]] = Counter()
        met: set[int] = set()
        everything = [(volume.root.inode)]
        for _, _, entries in volume.walk():
            everything += [entry.inode for entry in entries]
        for inode in everything:
            if inode.ino in met:
                continue
            met.add(inode.ino)
            for kind, number in (
                ("user", inode.i_uid),
                ("group", inode.i_gid),
                ("project", inode.extra.get("i_projid", 0)),
            ):
                inodes[kind, number] += 1
                space[kind, number] += (inode.i_blocks - 1) * 4096  # the inode's own block isn't counted
        for kind, item in files.items():
            for entry in item.entries:
                assert entry.inodes == inodes[kind, entry.id], (kind, entry)
                assert entry.space == space[kind, entry.id], (kind, entry)
            assert {entry.id for entry in item.entries} >= {number for name, number in inodes if name == kind}
            assert item.space_grace == item.inodes_grace == 7 * 86400


def test_a_volume_without_quota_has_no_quota_files(reference: Any) -> None:
    with f2tools.open(reference("base").path) as volume:
        assert quota_inos(volume.sb) == {}
        assert read_quotas(volume.sb, volume.nodes, volume.data) == []


@pytest.mark.parametrize(
    ("offset", "value", "says"),
    [
        (0, 0xDEADBEEF, "not a user quota file"),
        (1024, 0x7FFFFFFF, "past the end"),
        (1024, 1, "stands twice"),
    ],
)
def test_a_quota_tree_that_can_not_be_is_corrupt(tmp_path: Path, offset: int, value: int, says: str) -> None:
    case = images.reference("features").copy(tmp_path)
    with f2tools.open(case.path) as volume:
        inode = volume.nodes.inode(quota_inos(volume.sb)["user"])
        block, within = divmod(offset, volume.geo.block_size)
        at = int(volume.data.addresses(inode, block, 1)[0]) * volume.geo.block_size + within
    with case.path.open("r+b") as file:
        file.seek(at)
        file.write(value.to_bytes(4, "little"))
    with f2tools.open(case.path) as volume, pytest.raises(Corrupt, match=says):
        read_quota(volume.data, volume.nodes.inode(quota_inos(volume.sb)["user"]), "user")
