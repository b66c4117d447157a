"""Files that stand for a device: one to which was written as to any other, and one whose device is released."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

import f2tools
from f2tools.f2fs.layout.constants import (
    CURSEG_COLD_DATA,
    F2FS_DEVICE_ALIAS_FL,
    F2FS_INLINE_DATA,
    F2FS_PIN_FILE,
    F2FS_ROOT_INO,
    FEATURES,
)
from f2tools.f2fs.layout.hashes import INODE_CHECKSUM_OFFSET
from f2tools.f2fs.layout.node import Inode
from f2tools.f2fs.write.volume import open_for_writing
from f2tools.resize.resize import refuse_what_cannot_be
from tests.dump.craft import Result, f2
from tests.fsck.craft import Patient
from tests.images import reference

MIB = 1 << 20
EXTENT_LEN = Inode.offset_of("i_ext") + 8  # bytes into an inode


def lose_extent(image: Path, second: Path, fofs: int) -> None:
    """As a write did that knew nothing of aliases: the file gets a block of its own, and no extent."""
    with open_for_writing(image, [second]) as volume:
        inode = volume.live(volume.path("/disk").inode.ino)
        volume.space.add_blocks(inode, 1)
        inode.set(i_blocks=inode.i_blocks + 1)
        inode.addrs[fofs] = volume.segments.allocate_one(CURSEG_COLD_DATA, (inode.ino, 0, fofs))
        inode.forget_extent()
        volume.nodes.touch(inode)
        volume.stamp(inode, modified=True)


@pytest.mark.parametrize("fofs", [0, 700])
def test_an_aliased_device_is_found_again_where_its_file_was_written_to(fofs: int, tmp_path: Path) -> None:
    second = tmp_path / "second"
    content = random.Random(2).randbytes(64 * MIB)
    second.write_bytes(content)
    command = ["f2tools", "mkfs", "first", "--size", "64M", "-O", "device_alias,extra_attr", "-c", "second@disk", "-qf"]
    subprocess.run(command, cwd=tmp_path, check=True)
    image = tmp_path / "first"
    lose_extent(image, second, fofs)
    fsck = ["f2tools", "fsck", image, "--device", second]
    assert subprocess.run(fsck, capture_output=True, check=False).returncode == 4
    assert subprocess.run([*fsck, "-y"], capture_output=True, check=False).returncode == 1
    assert subprocess.run(fsck, capture_output=True, check=False).returncode == 0
    assert second.read_bytes() == content
    with f2tools.open(image, devices=[second]) as volume:
        inode = volume.path("/disk").inode
        assert inode.aliases_device
        assert not inode.addrs.any()
        assert volume.path("/disk").read() == content


# -- released by Linux 7.3 ---------------------------------------------------------------------------------------------


def fsck(patient: Patient, *options: str) -> Result:
    return f2("fsck", *options, patient.path, *(word for path in patient.image.extra for word in ("--device", path)))


def block_of(patient: Patient, path: str) -> bytes:
    """The inode, without the checksum: mkfs.f2fs writes one to aliases that have no room for it."""
    with f2tools.open(patient.path, list(patient.image.extra)) as volume:
        block = volume.device.pread(volume.path(path).inode.blkaddr * patient.size, patient.size)
    return block[:INODE_CHECKSUM_OFFSET] + block[INODE_CHECKSUM_OFFSET + 4 :]


def test_a_released_alias_is_sound_and_its_device_holds_files(tmp_path: Path) -> None:
    """See f2fs_ioc_release_dev_alias() in fs/f2fs/file.c: it is cut to nothing, and keeps flag, pin and name."""
    patient = Patient("alias-released", tmp_path)
    patient.close()
    assert fsck(patient).code == 0
    assert fsck(patient, "-y").code == 0
    with f2tools.open(patient.path, list(patient.image.extra)) as volume:
        inode = volume.path("/vdb").inode
        assert (inode.aliases_device, inode.pinned, inode.i_size, inode.i_blocks) == (True, True, 0, 1)
        assert not inode.cached_extent[2]
        assert not list(volume.data.layout(inode))
        assert volume.path("/vdb").read() == b""
        first = (volume.geo.segment0_blkaddr + volume.sb.devs[0].total_segments * 512) * patient.size
        end = first + patient.image.extra[0].stat().st_size
        assert any(
            first <= extent.blkaddr * patient.size < end
            for number in range(3, 9)
            for extent in volume.data.extents(volume.path(f"/fill{number}").inode)
        )
        assert volume.path("/vdc").inode.i_size == 48 * MIB


@pytest.mark.parametrize(
    ("path", "fields", "code"),
    [("/vdb", {"i_size": 4097}, "I036"), ("/vdb", {"i_inline": 0}, "I036"), ("/vdb", {"i_blocks": 9}, "I004"),
     ("/vdb", {"i_inline": F2FS_PIN_FILE | F2FS_INLINE_DATA}, "I010"), ("/vdb", {"i_inline": 0x44}, "I010"),
     ("/vdb", {"i_mode": 0o040700}, "I040"),
     ("/vdb", {"i_mode": 0o010700}, "I040"), ("/vdb", {"i_mode": 0o020700}, "I040"),
     ("/vdc", {"i_size": 0}, "I036"), ("/vdc", {"i_inline": 0}, "I036"), ("/vdc", {"i_blocks": 1}, "I004")],
)  # fmt: skip
def test_a_wrong_field_of_an_alias_is_put_right(path: str, fields: dict[str, int], code: str, tmp_path: Path) -> None:
    patient = Patient("alias-released", tmp_path)
    before = block_of(patient, path)
    patient.inode(path, **fields)
    patient.close()
    found = fsck(patient)
    assert (found.code, code in found.text) == (4, True), found.text
    assert fsck(patient, "-y").code == 1, found.text
    assert block_of(patient, path) == before
    assert fsck(patient).code == 0


@pytest.mark.parametrize("kind", ["address", "nid_pointer"])
def test_a_released_alias_stays_one_where_it_seems_to_lead_somewhere(kind: str, tmp_path: Path) -> None:
    patient = Patient("alias-released", tmp_path)
    root = patient.vol.root.inode
    getattr(patient, kind)("/vdb", 0, root.blkaddr if kind == "address" else root.ino)
    patient.close()
    assert fsck(patient, "-y").code in (0, 1)
    assert fsck(patient).code == 0
    with f2tools.open(patient.path, list(patient.image.extra)) as volume:
        assert volume.path("/vdb").inode.aliases_device


@pytest.mark.parametrize("length", [1, 512, 0xFFFF])
def test_a_released_alias_has_no_extent(length: int, tmp_path: Path) -> None:
    patient = Patient("alias-released", tmp_path)
    patient.inode_bytes("/vdb", EXTENT_LEN, length.to_bytes(4, "little"))
    patient.close()
    assert "I036 error" in fsck(patient).text
    assert fsck(patient, "-y").code == 1
    assert fsck(patient).code == 0
    with f2tools.open(patient.path, list(patient.image.extra)) as volume:
        assert volume.path("/vdb").inode.aliases_device
        assert not volume.path("/vdb").inode.cached_extent[2]


@pytest.mark.parametrize("lost", [{"i_size": 0}, {"i_blocks": 1}])
def test_an_alias_without_extent_has_the_device_of_its_name(lost: dict[str, int], tmp_path: Path) -> None:
    """Of two that are as large, and have no alias with blocks."""
    patient = Patient("alias-released", tmp_path)
    before = patient.vol.path("/vdc").inode.cached_extent
    patient.inode("/vdc", **lost)
    patient.inode_bytes("/vdc", EXTENT_LEN - 8, bytes(12))
    patient.close()
    assert fsck(patient, "-y").code == 1
    assert fsck(patient).code == 0
    with f2tools.open(patient.path, list(patient.image.extra)) as volume:
        inode = volume.path("/vdc").inode
        assert inode.cached_extent == before
        assert (inode.i_size, inode.i_blocks) == (48 * MIB, 48 * MIB // patient.size + 1)


def test_an_empty_file_with_the_flag_and_nothing_else_of_an_alias_loses_the_flag(tmp_path: Path) -> None:
    patient = Patient("alias-released", tmp_path)
    shown = patient.image.manifest()["entries"]
    empty = [path for path, entry in shown.items() if entry["type"] == "file" and not entry["size"] + entry["blocks"]]
    path = "/" + min(set(empty) - {"vdb"})
    before = block_of(patient, path)
    patient.inode(path, i_flags=F2FS_DEVICE_ALIAS_FL)
    patient.close()
    assert "it is not pinned, and has not the name of a device" in fsck(patient).text
    assert fsck(patient, "-y").code == 1
    assert block_of(patient, path) == before


def test_a_released_alias_speaks_for_its_feature(tmp_path: Path) -> None:
    patient = Patient("alias-released", tmp_path)
    for copy in (0, 1):
        patient.super(copy, feature=patient.vol.sb.feature & ~FEATURES["device_alias"])
    patient.close()
    assert "S012 error" in fsck(patient).text
    assert fsck(patient, "-y").code == 1
    assert fsck(patient).code == 0


def test_a_released_alias_takes_no_content_and_can_be_removed(tmp_path: Path) -> None:
    case = reference("alias-released").copy(tmp_path)
    extra = [word for path in case.extra for word in ("--device", str(path))]
    with open_for_writing(case.path, list(case.extra)) as volume:
        inode = volume.live(volume.path("/vdb").inode.ino)
        with pytest.raises(OSError, match="Input/output error"):
            volume.write(inode.ino, 0, b"x")
        free = volume.statfs()["f_bfree"]
        volume.unlink(F2FS_ROOT_INO, b"vdb", alias=True)
        assert volume.statfs()["f_bfree"] <= free + 1
    assert f2("fsck", case.path, *extra).code == 0


def test_a_released_device_that_is_the_last_may_get_another_size(tmp_path: Path) -> None:
    """Released as the kernel does it: it truncates the file and leaves the address in its extent."""
    case = reference("alias-released").copy(tmp_path)
    with open_for_writing(case.path, list(case.extra)) as volume:
        inode = volume.live(volume.path("/vdc").inode.ino)
        first = inode.cached_extent[1]
        volume.mapper.truncate(inode, 0)
        inode.set(i_size=0)
        inode.block[EXTENT_LEN - 4 : EXTENT_LEN] = list(first.to_bytes(4, "little"))
        volume.nodes.touch(inode)
        volume.checkpoint()
    extra = [word for path in case.extra for word in ("--device", str(path))]
    assert f2("fsck", case.path, *extra).code == 0
    with f2tools.open(case.path, list(case.extra)) as volume:
        assert volume.path("/vdc").inode.cached_extent == (0, first, 0)
        refuse_what_cannot_be(volume)
