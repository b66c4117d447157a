"""One tree, built twice under other circumstances, gives the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.judges import fsck_clean
from tests.mkfs.from_tools import same_bytes

EPOCH = 1_600_000_000
OPTIONS = ("--size", "64M", "-O", "extra_attr,inode_checksum,inode_crtime", "--map-owner", "all:0")


def build(directory: Path, seed: int, late: int) -> Path:
    """The same tree, its files made in an order of their own; those of the build are as new as it was late."""
    names = ["etc/passwd", "etc/hosts", "usr/bin/tool", "usr/share/doc/a/readme", "var/log/empty"]
    names += [f"many/{number:03}" for number in range(120)]
    order = random.Random(seed)
    order.shuffle(names)
    directory.mkdir(parents=True)
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if name.endswith("empty") else name.encode() * 700)
        path.chmod(0o644)
    os.symlink("tool", directory / "usr/bin/link")
    os.link(directory / "etc/hosts", directory / "usr/share/hosts")
    found = sorted([*directory.rglob("*"), directory], reverse=True)
    order.shuffle(found)
    for path in found:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
        old = path.name.startswith("0") or path.name == "passwd"
        when = EPOCH - 5000 if old else EPOCH + late + order.randrange(1000)
        os.utime(path, (EPOCH + order.randrange(10**6), when), follow_symlinks=False)
    return directory


def make(source: object, image: Path, cwd: Path, *more: str, **environment: str) -> Path:
    """A run of the command in a process of its own."""
    settings = {"SOURCE_DATE_EPOCH": str(EPOCH), **environment}
    done = subprocess.run(
        [sys.executable, "-m", "f2tools", "mkfs", "-q", image, "--from", source, *OPTIONS, *more],
        cwd=cwd, env=os.environ | settings, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return image


def test_another_day_path_user_and_order_give_the_same_image(tmp_path: Path) -> None:
    first, second = build(tmp_path / "one", 1, 0), build(tmp_path / "another/place/two", 2, 86_400)
    if os.geteuid() == 0:
        for path in [second, *second.rglob("*")]:
            os.chown(path, 4711, 4712, follow_symlinks=False)
    one = make(first, tmp_path / "one.img", tmp_path)
    two = make(
        "two", tmp_path / "another/second.img", second.parent, TZ="Pacific/Auckland", LC_ALL="C", PYTHONHASHSEED="7",
        HOME="/nowhere",
    )  # fmt: skip
    assert same_bytes(one, two)
    fsck_clean(one)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_directory_and_an_archive_of_it_give_the_same_image(form: int, tmp_path: Path) -> None:
    directory = build(tmp_path / "tree", 3, 50)

    def other_times(member: tarfile.TarInfo) -> tarfile.TarInfo:
        if form == tarfile.PAX_FORMAT:
            member.pax_headers = {"atime": "1234567890.5", "ctime": "1234567891.25"}
        return member

    with tarfile.open(tmp_path / "tree.tar", "w", format=form) as archive:
        archive.add(directory, ".", filter=other_times)
    image = make(directory, tmp_path / "folder.img", tmp_path)
    assert same_bytes(image, make(tmp_path / "tree.tar", tmp_path / "tar.img", tmp_path))


def test_the_epoch_is_the_newest_time_of_a_file_and_dash_t_the_time_of_all(tmp_path: Path) -> None:
    import f2tools

    directory = build(tmp_path / "tree", 4, 10)
    for more, old, new in (((), EPOCH - 5000, EPOCH), (("-T", "77"), 77, 77)):
        with f2tools.open(make(directory, tmp_path / f"{len(more)}.img", tmp_path, *more)) as volume:
            passwd, hosts = volume.path("/etc/passwd").inode, volume.path("/etc/hosts").inode
            assert (passwd.i_mtime, passwd.i_atime, passwd.i_ctime) == (old,) * 3
            assert (hosts.i_mtime, hosts.i_mtime_nsec) == (new, 0)
            assert volume.root.inode.i_mtime <= max(old, new)
    shutil.rmtree(directory)
