"""fs-verity: digests are the kernel's, and a changed byte is found wherever it is."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import f2tools
from f2tools.errors import Corrupt
from f2tools.f2fs.volume.verity import Verity, read_verity, tree_levels, verify_content
from tests import images


def test_digests_are_those_that_the_kernel_measured(reference: Any) -> None:
    case = reference("features")
    sealed = {path: e["verity"] for path, e in case.manifest()["entries"].items() if "verity" in e}
    assert len(sealed) == 4
    with f2tools.open(case.path) as volume:
        for path, expected in sealed.items():
            verity = read_verity(volume.nodes, volume.data, volume.path(path).inode)
            assert verity is not None
            assert (verity.algorithm, verity.digest.hex()) == (expected["algorithm"], expected["digest"])
            verify_content(volume.data, volume.path(path).inode, verity)


def test_a_file_that_is_not_sealed_has_no_verity(reference: Any) -> None:
    with f2tools.open(reference("features").path) as volume:
        assert read_verity(volume.nodes, volume.data, volume.root.inode) is None


@pytest.mark.parametrize(
    ("block", "says"),
    [
        (0, "not what verity sealed"),
        (100, "not what verity sealed"),
        (170, "not what verity sealed"),  # the last, in part behind the end
        (176, "contradicts itself"),
        (177, "not what verity sealed|contradicts itself"),
    ],
)
def test_a_changed_byte_is_found(tmp_path: Path, block: int, says: str) -> None:
    case = images.reference("features").copy(tmp_path)
    with f2tools.open(case.path) as volume:
        inode = volume.path("verity/v700001").inode
        at = int(volume.data.addresses(inode, block, 1)[0]) * volume.geo.block_size
    with case.path.open("r+b") as file:
        file.seek(at + 7)
        old = file.read(1)
        file.seek(at + 7)
        file.write(bytes([old[0] ^ 1]))
    with f2tools.open(case.path) as volume:
        inode = volume.path("verity/v700001").inode
        verity = read_verity(volume.nodes, volume.data, inode)
        assert verity is not None
        with pytest.raises(Corrupt, match=says):
            verify_content(volume.data, inode, verity)


def test_levels_are_stored_from_the_root_down() -> None:
    verity = Verity(1, 1, 4096, b"", b"", 700_001, b"", hashlib.sha256().digest(), 720_896)
    assert tree_levels(verity, 32) == [(4096, 2), (0, 1)]
    assert tree_levels(Verity(1, 1, 4096, b"", b"", 4096, b"", b"", 0), 32) == []


def test_a_changed_byte_in_the_unused_end_of_the_root_block_is_found(tmp_path: Path) -> None:
    case = images.reference("features").copy(tmp_path)
    with f2tools.open(case.path) as volume:
        at = int(volume.data.addresses(volume.path("verity/v700001").inode, 176, 1)[0]) * 4096 + 4095
    with case.path.open("r+b") as file:
        file.seek(at)
        file.write(b"\1")
    with f2tools.open(case.path) as volume:
        inode = volume.path("verity/v700001").inode
        verity = read_verity(volume.nodes, volume.data, inode)
        assert verity is not None
        with pytest.raises(Corrupt, match="does not lead to the root hash"):
            verify_content(volume.data, inode, verity)
