"""Images without damage: the check has nothing to say of what the real kernel and the C tools write."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.f2fs.layout.constants import F2FS_EXTRA_ATTR
from f2tools.f2fs.volume.volume import Volume
from f2tools.fsck.facts import owners
from f2tools.fsck.findings import Severity
from tests.dump.craft import f2
from tests.fsck.craft import Patient, bad, examine, said
from tests.images import CASES, CRASH, HISTORY, reference
from tests.judges import fsck, mkfs, run_tool
from tests.mkfs.tools import f2mkfs

UNCLEAN = (*CRASH, "history-d", "checkpoint-disabled")
FEATURES = (
    "", "extra_attr,inode_checksum,sb_checksum,compression", "extra_attr,project_quota,quota,verity,inode_crtime",
    "encrypt,casefold,lost_found",
)  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CASES if name not in UNCLEAN])
def test_a_sound_image_is_silent(name: str) -> None:
    image = reference(name)
    report = examine(image.path, *image.extra, content=True)
    assert not bad(report), said(report)
    assert report.inodes > 2


@pytest.mark.parametrize("name", UNCLEAN)
def test_after_a_power_cut_nothing_is_called_damage(name: str) -> None:
    image = reference(name)
    report = examine(image.path, *image.extra, content=True)
    assert not bad(report, Severity.WARNING), said(report)


def test_there_are_histories_among_the_images() -> None:
    assert set(HISTORY) <= set(CASES)


@pytest.mark.peer
@pytest.mark.parametrize("features", FEATURES)
def test_a_fresh_volume_of_mkfs_f2fs_is_silent(tmp_path: Path, features: str) -> None:
    image = tmp_path / "x.img"
    options = ["-O", features] if features else []
    if "casefold" in features:
        options += ["-C", "utf8"]
    mkfs(image, *options, size=128 << 20)
    assert fsck(image).rc == 0
    report = examine(image)
    assert not bad(report), said(report)


@pytest.mark.peer
@pytest.mark.parametrize("name", ["crash-several", "crash-namespace", "crash-orphan", "crash-stress-1"])
def test_what_fsck_f2fs_leaves_of_a_power_cut_is_silent(name: str, tmp_path: Path) -> None:
    """Its checkpoint says that nodes are told without a checksum; those that the kernel wrote have one."""
    image = reference(name).copy(tmp_path).path
    run_tool("fsck.f2fs", "-f", image)
    report = examine(image)
    assert not bad(report, Severity.WARNING), said(report)


@pytest.mark.parametrize("year", [1, 1500, 1601, 9999])
def test_a_time_that_a_program_can_set_is_no_damage(year: int, tmp_path: Path) -> None:
    """A FAT archive of the future, a zero of Windows (1601), a photo that was dated by hand."""
    p = Patient("base", tmp_path)
    p.inode("/medium/one", i_mtime=int(datetime(year, 1, 1, tzinfo=UTC).timestamp()))
    p.close()
    report = examine(p.path)
    assert not bad(report), said(report)


@pytest.mark.parametrize("name", ["plain", "features", "multi-device", "sections"])
def test_little_memory_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "LEAST_SEGMENTS", 2)
    image = reference(name)
    report = examine(image.path, *image.extra, memory_bytes=1)
    assert not bad(report), said(report)


def test_aliases_of_devices_are_no_reason_to_switch_a_feature_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mkfs.f2fs gives them a size of extra attributes, and not the flag; two of them outnumber the root."""
    monkeypatch.chdir(tmp_path)  # the superblock has 64 bytes for a device's path
    images = [Path(name) for name in ("a", "b", "c")]
    for image in images:
        image.write_bytes(b"")
        os.truncate(image, 64 << 20)
    features = "extra_attr,flexible_inline_xattr,device_alias"
    f2mkfs("-q", "-f", "-O", features, "-c", f"{images[1]}@one", "-c", f"{images[2]}@two", images[0])
    with Volume(open_device(images[0], extra=images[1:])) as vol:
        places = [vol.path(name).inode.blkaddr * vol.geo.block_size + 3 for name in ("/one", "/two")]
    with images[0].open("r+b") as file:
        for place in places:
            file.seek(place)
            inline = file.read(1)[0]
            file.seek(place)
            file.write(bytes([inline & ~F2FS_EXTRA_ATTR]))
    done = f2("fsck", images[0], "--device", images[1], "--device", images[2])
    assert (done.code, b"S007" in done.out) == (0, False), done.out
