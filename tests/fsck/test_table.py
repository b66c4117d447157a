"""The damages by which fsck.f2fs was seen to lose files: how many of 405 are there after a repair, path and content.

`python -m tests.fsck.test_table` prints the table of docs/fsck.md, with what fsck.f2fs leaves beside it.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import f2tools
from f2tools.errors import F2fsError
from f2tools.f2fs.volume.volume import Volume
from tests import judges
from tests.fsck.craft import Patient, said
from tests.fsck.test_repair import assert_silent, repair
from tests.images import copy_sparse

MANY, FEW = 400, 5
FILES = MANY + FEW
ROWS: dict[str, Callable[[Patient], None]] = {}


def row(name: str) -> Callable[[Callable[[Patient], None]], Callable[[Patient], None]]:
    """Register a damage under its name in the table."""

    def register(change: Callable[[Patient], None]) -> Callable[[Patient], None]:
        ROWS[name] = change
        return change

    return register


class Made(Patient):
    """A private copy of the image that was made for the table."""

    def __init__(self, source: Path, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = copy_sparse(source, directory / "image.img")
        self.vol = f2tools.open(self.path)
        self.geo = self.vol.geo
        self.size = self.geo.block_size


@row("one superblock copy lost")
def _one_superblock(p: Patient) -> None:
    p.write(1024, bytes(3072))


@row("both superblock copies lost")
def _both_superblocks(p: Patient) -> None:
    p.write(1024, bytes(3072))
    p.write(p.size + 1024, bytes(3072))


@row("both checkpoint heads zeroed")
def _both_heads(p: Patient) -> None:
    for pack in p.vol.packs:
        p.write(pack.blkaddr * p.size, bytes(p.size), same=True)


@row("both checkpoint packs zeroed")
def _both_packs(p: Patient) -> None:
    p.write(p.geo.cp_blkaddr * p.size, bytes(1024 * p.size))


@row("a NAT block zeroed")
def _nat_block(p: Patient) -> None:
    p.write(int(p.vol.nat.blkaddrs[0]) * p.size, bytes(p.size))


@row("the SIT zeroed, both copies")
def _sit(p: Patient) -> None:
    p.write(p.geo.sit_blkaddr * p.size, bytes((p.geo.nat_blkaddr - p.geo.sit_blkaddr) * p.size))


@row("root inode zeroed")
def _root(p: Patient) -> None:
    p.write(p.at("/") * p.size, bytes(p.size))


@row("inode of a directory zeroed")
def _directory(p: Patient) -> None:
    p.write(p.at("/many") * p.size, bytes(p.size))


@row("a block of directory entries zeroed")
def _dentries(p: Patient) -> None:
    inode = p.vol.path("/many").inode
    addresses = p.vol.data.addresses(inode, 0, inode.i_size // p.size)
    p.write(int(addresses[addresses > 0][1]) * p.size, bytes(p.size))


@row("a directory unlinked")
def _unlinked_directory(p: Patient) -> None:
    p.clear_bits("/", b"many")


@row("a file unlinked")
def _unlinked_file(p: Patient) -> None:
    p.clear_bits("/many", b"file-0123")


@row("`i_dir_level` 200")
def _dir_level(p: Patient) -> None:
    p.inode("/many", i_dir_level=200)


def content_of(number: int) -> bytes:
    """What a file holds: some inside the inode, some in a block, some in several."""
    return (b"file %d " % number) * (10, 400, 2000)[number % 3]


def make(image: Path) -> None:
    """A volume with 405 files, most of them in one directory, and a symbolic link."""
    judges.mkfs(image, "-q", size=128 << 20)
    with f2tools.open(image, write=True) as volume:
        many = volume.mkdir(3, b"many", 0o755)
        for number in range(FILES):
            directory, name = (many, b"file-%04d") if number < MANY else (3, b"top-%d")
            ino = volume.create(directory, name % number, 0o644)
            volume.write(ino, 0, content_of(number))
        volume.symlink(3, b"link", b"many/file-0001")


def survivors(image: Path) -> int:
    """How many files are there under their path, whole."""
    count = 0
    with suppress(F2fsError, OSError), f2tools.open(image) as volume:
        for number in range(FILES):
            path = f"/many/file-{number:04}" if number < MANY else f"/top-{number}"
            count += _whole(volume, path, content_of(number))
    return count


def _whole(volume: Volume, path: str, content: bytes) -> bool:
    with suppress(F2fsError, OSError):
        return volume.path(path).read() == content
    return False


@pytest.fixture(scope="module")
def volume_of_405(tmp_path_factory: pytest.TempPathFactory) -> Path:
    image = tmp_path_factory.mktemp("table") / "made.img"
    make(image)
    assert survivors(image) == FILES
    return image


@pytest.mark.peer
@pytest.mark.parametrize("name", ROWS)
def test_all_405_files_are_there_after_a_repair(name: str, volume_of_405: Path, tmp_path: Path) -> None:
    p = Made(volume_of_405, tmp_path)
    ROWS[name](p)
    p.close()
    outcome = repair(p.path)
    assert outcome.complete, said(outcome.after)
    assert_silent(p.path)
    assert survivors(p.path) == FILES


def _main() -> None:
    print("| damage | f2tools fsck -y | fsck.f2fs -f -y |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        make(work / "made.img")
        for title, change in ROWS.items():
            p = Made(work / "made.img", work / "copy")
            change(p)
            p.close()
            peer = copy_sparse(p.path, work / "peer.img")
            command = [judges.need_tool("fsck.f2fs"), "-f", "-y", peer]
            done = subprocess.run(command, input=b"y\n" * 100, capture_output=True, timeout=300)
            repair(p.path)
            note = "" if done.returncode in (0, 1) else f" (exit status {done.returncode})"
            print(f"| {title} | {survivors(p.path)} | {survivors(peer)}{note} |")


if __name__ == "__main__":
    _main()
