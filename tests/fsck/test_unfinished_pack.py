"""A checkpoint that a power cut left unfinished is no damage; one that was hit after it was complete is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.f2fs.layout.checkpoint import Checkpoint
from f2tools.f2fs.volume.checkpoint import Pack, seal_head
from f2tools.f2fs.volume.volume import Volume
from tests.dump.craft import f2
from tests.images import copy_sparse, reference
from tests.judges import need_tool, run_tool
from tests.kernel.guest import Guest
from tests.kernel.log import assert_quiet

SIZE = 4096


def begun(image: Path, *, behind: int = 1) -> tuple[Pack, int]:
    """Write the head of a pack behind the one that counts, and no more; the pack, and where its tail would be."""
    with open_device(image, write=True) as device:
        volume = Volume(device)
        other = volume.packs[1 - volume.pack.index]
        assert other.valid
        cp = Checkpoint.parse(other.head)
        cp.checkpoint_ver = volume.cp.checkpoint_ver + behind
        head = bytearray(other.head[:SIZE])
        head[: Checkpoint.size] = cp.build()
        seal_head(cp, head, SIZE)
        device.pwrite(other.blkaddr * SIZE, bytes(head))
        return other, other.blkaddr + cp.cp_pack_total_block_count - 1


def codes(image: Path) -> tuple[int, set[str]]:
    done = f2("fsck", "--json", image)
    return done.code, {code for code in ("C001", "C017", "C018", "C019", "C022") if f'"{code}"' in done.text}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    copy_sparse(reference("features").path, tmp_path / "image")
    return tmp_path / "image"


def test_a_pack_with_the_tail_of_an_older_one_was_not_finished(image: Path) -> None:
    assert codes(image) == (0, set())
    begun(image)
    assert codes(image) == (0, {"C017"})
    assert subprocess.run([need_tool("fsck.f2fs"), image], capture_output=True, check=False).returncode == 0


def test_no_reader_or_writer_calls_it_unusable_and_one_that_was_hit_all_do(image: Path) -> None:
    _, at = begun(image)
    touch = ["touch", f"{image}:/new", "--dry-run"]
    all_of_them = (["dump", "ls", image], ["recover", image], ["doctor", image], touch)
    for words in all_of_them:
        done = f2(*words)
        assert "is not usable" not in done.text + done.err, words
        assert done.code == 0, words
    with image.open("r+b") as file:
        file.seek(at * SIZE)
        file.write(bytes(SIZE))
    for words in all_of_them:
        done = f2(*words)
        assert "is not usable" in done.text + done.err, words


@pytest.mark.parametrize("tail", [bytes(SIZE), bytes(range(256)) * (SIZE // 256), b"x" * (SIZE - 5) + bytes(5)])
def test_what_an_older_pack_did_not_leave_there_is_damage(image: Path, tail: bytes) -> None:
    _, at = begun(image)
    with image.open("r+b") as file:
        file.seek(at * SIZE)
        file.write(tail)
    assert codes(image) == (4, {"C001"})


def test_a_head_that_is_not_the_next_one_is_damage(image: Path) -> None:
    begun(image, behind=2)
    assert codes(image) == (4, {"C001"})


def test_a_summary_of_an_older_pack_in_the_place_of_the_tail_is_left_over(image: Path) -> None:
    with Volume(open_device(image)) as volume:
        other = volume.packs[1 - volume.pack.index]
        assert other.unmounted
        last = other.blkaddr + other.cp.cp_pack_total_block_count - 1
        tail = volume.device.pread(last * SIZE, SIZE)
    begun(image)
    with open_device(image, write=True) as device:
        head = bytearray(device.pread(other.blkaddr * SIZE, SIZE))
        cp = Checkpoint.parse(head)
        cp.cp_pack_total_block_count -= 2  # now a summary of nodes lies where its tail will be
        head[: Checkpoint.size] = cp.build()
        seal_head(cp, head, SIZE)
        device.pwrite(other.blkaddr * SIZE, bytes(head))
    assert codes(image) == (0, {"C017"})
    with image.open("r+b") as file:
        file.seek(last * SIZE)
        file.write(bytes([tail[0] ^ 1]) + tail[1:])
    assert codes(image) == (4, {"C001"})


@pytest.mark.parametrize("proof", ["tail", "node"])
def test_a_pack_that_was_complete_is_damaged_however_old_what_lies_behind_it_is(proof: str, image: Path) -> None:
    with Volume(open_device(image)) as volume:
        version, size = volume.cp.checkpoint_ver + 1, volume.geo.block_size
    other, last = begun(image)
    with open_device(image, write=True) as device:
        head = bytearray(device.pread(other.blkaddr * SIZE, SIZE))
        cp = Checkpoint.parse(head)
        cp.cp_pack_total_block_count -= 2  # the tail of the older pack is still behind it
        head[: Checkpoint.size] = cp.build()
        seal_head(cp, head, SIZE)
        device.pwrite(other.blkaddr * SIZE, bytes(head))
        if proof == "tail":  # its own, with one wrong bit
            device.pwrite((last - 2) * SIZE, bytes([head[0], head[1] ^ 1]) + bytes(head[2:]))
        else:  # written after it
            segno, blkoff, _ = other.curseg(4)
            place = Volume(device).geo.start_block(segno) + blkoff
            footer = bytearray(24)
            footer[12:20] = version.to_bytes(8, "little")
            device.pwrite((place + 1) * size - 24, bytes(footer))
    assert codes(image) == (4, {"C001"})


def test_the_kernel_mounts_it_and_goes_on(guest: Guest, image: Path) -> None:
    with Volume(open_device(image)) as volume:
        files = sum(len(entries) for _, _, entries in volume.walk())
    begun(image)
    script = "mount -t f2fs /dev/vda /mnt && find /mnt -mindepth 1 | wc -l && touch /mnt/by-the-kernel && umount /mnt"
    result = guest.run(script, [image]).must_succeed()
    assert int(result.stdout) == files
    assert_quiet(result)
    assert codes(image) == (0, set())


@pytest.mark.peer
@pytest.mark.parametrize("filled", [False, True])
def test_the_pack_that_resize_f2fs_gives_up_is_no_damage(filled: bool, tmp_path: Path) -> None:
    (image := tmp_path / "image").touch()
    os.truncate(image, 64 << 20)
    assert run_tool("mkfs.f2fs", "-q", image).rc == 0
    if filled:
        (tree := tmp_path / "tree").mkdir()
        for number in range(40):
            (tree / f"file {number}").write_bytes(bytes([number]) * 1000 * number)
        assert run_tool("sload.f2fs", "-f", tree, image).rc == 0
    os.truncate(image, 128 << 20)
    assert run_tool("resize.f2fs", image).rc == 0
    assert run_tool("fsck.f2fs", "--dry-run", image).rc == 0
    assert codes(image) == (0, {"C022"})
    with open_device(image) as device:
        volume = Volume(device)
        other = volume.packs[1 - volume.pack.index]
    with image.open("r+b") as file:  # as it may be where a newer pack was hit
        file.seek((other.blkaddr + 1) * SIZE)
        file.write(bytes(SIZE))
    assert codes(image) == (4, {"C001"})
