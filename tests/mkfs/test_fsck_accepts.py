"""fsck.f2fs finds nothing to say about what we make."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests import judges
from tests.mkfs.tools import f2mkfs

ALL = "encrypt,extra_attr,project_quota,inode_checksum,flexible_inline_xattr,quota,inode_crtime,verity,sb_checksum"
CASES = [
    "--size 46M", "--size 64M", "--size 100M", "--size 1G", "--size 64G", "--size 1T",
    "--size 1G -s 4 -z 2", "--size 512M -s 3 -z 2 -i -O extra_attr,quota -l label -C utf8", "--size 2G -z 5",
    "--size 64G -s 16", "--size 1T -i", "--size 1G -o 7.5", "--size 256M -o 30", f"--size 128M -O {ALL}",
    f"--size 1G -O {ALL},lost_found,compression,casefold", "--size 128M -O lost_found", "--size 128M -O ro",
    "--size 128M -O quota -R 1000:2000", "--size 128M -O extra_attr,project_quota -R 65534:0",
    "--size 128M -C utf8:strict,hashonly -O sb_checksum", "--size 128M -g android", "--size 1G -g android -C utf8 -i",
    "--size 128M -e abc -E def -l Käse -T 86400", "--size 128M -t 0", "--size 1G --erase-block 4M --partition-start 1M",
    "--size 1G --align auto", "--size 4G --erase-block 24M",
]  # fmt: skip


@pytest.mark.peer
@pytest.mark.parametrize("options", CASES)
def test_an_image_is_clean(options: str, tmp_path: Path) -> None:
    image = tmp_path / "image"
    f2mkfs("-q", image, *shlex.split(options))
    judges.fsck_clean(image)


@pytest.mark.peer
def test_a_volume_on_several_devices_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    f2mkfs("-q", "a", "--size", "64M", "--size", "256M", "--size", "100M", "-c", "b", "-c", "c", "-O", "sb_checksum")
    judges.fsck_clean(Path("a"), Path("b"), Path("c"))


@pytest.mark.peer
def test_a_check_that_may_write_leaves_our_version_and_our_bytes_alone(tmp_path: Path) -> None:
    image = tmp_path / "image"
    f2mkfs("-q", image, "--size", "64M", "-O", "extra_attr,inode_checksum,sb_checksum,quota,lost_found")
    before = image.read_bytes()
    for option in ("-a", "-p"):
        run = judges.run_tool("fsck.f2fs", option, image)
        assert run.rc == 0, str(run)
        assert "f2tools" in run.output
        assert image.read_bytes() == before, str(run)
