"""File systems that know nothing of the layer run on it unchanged: F2FS by f2tools, ext4 by e2fsprogs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from f2tools.device import open_device
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import WritableVolume
from f2tools.flash.nand import Geometry, Nand
from f2tools.flash.vsl import create_on_nand, create_vsl, open_on_nand
from f2tools.vsl.check import check
from tests.dump.craft import f2
from tests.f2fs.write.volumes import formatted
from tests.judges import TOOL_PATH, missing_judge
from tests.mount.mounted import mounted, need_fuse

SIZE = 48 << 20


def tree(directory: Path) -> Path:
    """Files of many sizes in some directories."""
    for number in range(30):
        path = directory / f"d{number % 4}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * (number * number * 97))
    return directory


def same(one: Path, two: Path) -> None:
    done = subprocess.run(["diff", "-r", one, two], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_f2fs_is_made_filled_checked_changed_and_read_on_a_layer(tmp_path: Path) -> None:
    image, source = tmp_path / "card.vsl", tree(tmp_path / "tree")
    assert f2("vsl", "create", image, "--size", "48M").code == 0
    assert f2("mkfs", image, "--from", source).code == 0
    assert f2("fsck", image).code == 0
    assert f2("mkdir", f"{image}:/new").code == 0
    assert f2("cp", source / "d1" / "f29", f"{image}:/new/copy").code == 0
    assert f2("rm", f"{image}:/d0/f8").code == 0
    assert f2("fsck", image).code == 0
    assert f2("vsl", "check", image).code == 0
    assert f2("dump", "extract", image, "/", "-o", tmp_path / "out").code == 0
    (source / "new").mkdir()
    shutil.copy(source / "d1" / "f29", source / "new" / "copy")
    (source / "d0" / "f8").unlink()
    same(source, tmp_path / "out")
    assert f2("vsl", "export", image, tmp_path / "raw.img").code == 0
    assert f2("fsck", tmp_path / "raw.img").code == 0
    assert image.stat().st_blocks * 512 < 12 << 20  # and it takes no more room than what was written


def test_what_f2fs_fsynced_survives_the_death_of_a_mount_on_a_layer(tmp_path: Path) -> None:
    image = tmp_path / "card.vsl"
    assert f2("vsl", "create", image, "--size", "48M").code == 0
    assert f2("mkfs", image).code == 0
    with mounted(image, tmp_path / "mnt") as mount:
        with (mount.directory / "kept").open("wb") as file:
            file.write(b"kept" * 20_000)
            file.flush()
            os.fsync(file.fileno())
        mount.kill()
    assert f2("vsl", "check", image).code == 0
    assert f2("dump", "cat", image, "/kept", "--recovered").out == b"kept" * 20_000


def test_f2fs_on_a_chip_is_whole_after_it_was_closed() -> None:
    nand = Nand(Geometry(blocks=720, page_size=4096, spare_size=128, pages_per_block=32))
    layer = create_on_nand(nand, space_blocks=(64 << 20) // 512)
    with open_device(formatted("--size 64M")) as image:
        for offset, length in image.data_ranges(0, image.size_bytes):
            layer.pwrite(offset, image.pread(offset, length))
    with WritableVolume(layer) as volume:
        ino = volume.create(3, b"file", 0o644, uid=0, gid=0)
        volume.write(ino, 0, b"on flash" * 1000)
    with Volume(open_on_nand(nand)) as volume:
        assert volume.path("/file").read() == b"on flash" * 1000


@contextmanager
def served(image: Path, directory: Path) -> Iterator[Path]:
    """The layer in an image as a file."""
    need_fuse()
    directory.mkdir()
    process = subprocess.Popen([sys.executable, "-m", "tests.flash.served", image, directory], stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 60
        while not os.path.ismount(directory):
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < end
            time.sleep(0.02)
        yield directory / "disk"
    finally:
        subprocess.run(["fusermount3", "-u", directory], check=False, capture_output=True)
        assert process.wait(60) == 0


def e2(tool: str, *words: object) -> str:
    """A tool of e2fsprogs, which must succeed."""
    path = shutil.which(tool, path=TOOL_PATH)
    if path is None:
        missing_judge(tool, "ext4 on the layer")
    done = subprocess.run([path, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_ext4_is_made_changed_and_checked_on_a_layer_by_its_own_tools(tmp_path: Path) -> None:
    image, source = tmp_path / "card.vsl", tree(tmp_path / "tree")
    create_vsl(image, SIZE).close()
    with served(image, tmp_path / "mnt") as disk:
        e2("mke2fs", "-F", "-q", "-t", "ext4", "-E", "nodiscard", "-d", source, disk)
        e2("e2fsck", "-f", "-n", disk)
        e2("debugfs", "-w", "-R", f"write {source / 'd1' / 'f29'} copy", disk)
        e2("debugfs", "-w", "-R", "rm /d0/f8", disk)
        e2("e2fsck", "-f", "-n", disk)
    with open_device(image) as device:
        assert check(device.medium.device).sound
    with served(image, tmp_path / "again") as disk:  # from its checkpoint
        e2("e2fsck", "-f", "-n", disk)
        out = tmp_path / "out"
        out.mkdir()
        e2("debugfs", "-R", f"rdump / {out}", disk)
    shutil.copy(source / "d1" / "f29", source / "copy")
    (source / "d0" / "f8").unlink()
    shutil.rmtree(out / "lost+found")
    same(source, out)
    # and as a file of its own it is the same ext4
    assert f2("vsl", "export", image, tmp_path / "raw.img").code == 0
    e2("e2fsck", "-f", "-n", tmp_path / "raw.img")
