"""The judges judged: they must see what is wrong and keep quiet about what is not."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import images, judges
from tests.images import Reference

# fsck.f2fs 1.15 says nothing about these
UNNOTICED = {"inode-depth", "inode-dir-size", "xattr-length", "xattr-magic"}


@pytest.mark.peer
@pytest.mark.parametrize("name", images.CLEAN + images.CRASH + images.FSCRYPT + images.HISTORY)
def test_fsck_is_content_with_what_the_kernel_wrote(reference: Callable[[str], Reference], name: str) -> None:
    image = reference(name)
    judges.fsck_clean(image.path, *image.extra)


@pytest.mark.parametrize("name", [n for n in images.CLEAN if (images.DIRECTORY / n / "fsck.txt").exists()])
def test_a_recorded_clean_verdict_has_no_complaints(name: str) -> None:
    assert judges.complaints((images.DIRECTORY / name / "fsck.txt").read_text()) == []


@pytest.mark.peer
@pytest.mark.parametrize("name", images.DAMAGED)
def test_damage_is_complained_of_where_fsck_notices(damaged: Callable[[str], Reference], name: str) -> None:
    image = damaged(name)
    verdict = judges.fsck(image.path)
    assert verdict.rc == image.case["fsck_dry_run"]["exit"]
    assert bool(judges.complaints(verdict.output)) == (name not in UNNOTICED)


@pytest.mark.peer
def test_superblock_and_checkpoint_fields_are_read_from_the_tools_output(tmp_path: Path) -> None:
    image = tmp_path / "image"
    judges.mkfs(image, "-l", "some label", size=64 << 20)
    sb, cp = judges.superblock_fields(image), judges.checkpoint_fields(image)
    assert (sb["magic"], sb["volum_name"], sb["main_blkaddr"]) == (judges.F2FS_MAGIC, "some label", 0x1000)
    assert (cp["valid_inode_count"], cp["cur_data_blkoff[0]"], cp["next_free_nid"]) == (1, 1, 4)


@pytest.mark.peer
def test_a_volume_on_two_devices_is_checked_wherever_its_files_have_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="f2") as short:  # the superblock has room for 63 bytes of path
        first, second = Path(short, "1"), Path(short, "2")
        second.write_bytes(b"")
        os.truncate(second, 64 << 20)
        judges.mkfs(first, "-O", "extra_attr,sb_checksum", size=64 << 20, devices=[second])
        moved = [images.copy_sparse(p, tmp_path / f"moved{p.name}") for p in (first, second)]
    far = tmp_path / ("far" * 20)  # a judge's own copies may lie where the superblock has no room for the path
    far.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(far))
    judges.fsck_clean(*moved)
    assert judges.superblock_fields(*moved)["segment_count"] == 63


def test_what_is_missing_fails_in_ci_and_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"no-such-tool\.f2fs is not installed"):
        judges.need_tool("no-such-tool.f2fs")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match=r"missing judge: no-such-tool\.f2fs"):
        judges.need_tool("no-such-tool.f2fs")
