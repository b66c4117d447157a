"""What is believed when two statements contradict each other: the one that a checksum, a summary, an age speaks for."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import f2tools
from f2tools.f2fs.layout.constants import CP_COMPACT_SUM_FLAG
from f2tools.f2fs.volume.inode import Inode
from f2tools.fsck.facts.checksums import wrong_byte
from tests import judges
from tests.fsck.craft import Patient, bad, said
from tests.fsck.test_repair import assert_silent, repair
from tests.fsck.trees import tree_of
from tests.images import reference

PLACES = {"i_mode": 1, "i_inline": 3, "i_size": 20, "i_generation": 68}


@pytest.mark.parametrize("name", PLACES)
def test_one_wrong_byte_of_an_inode_is_put_back_by_its_checksum(name: str, tmp_path: Path) -> None:
    p = Patient("checksums", tmp_path)
    good = tree_of(reference("checksums").path)
    at = _mapped(p)[0].blkaddr * p.size + PLACES[name]
    p.write(at, bytes([p.read(at, 1)[0] ^ 0x5A]))
    p.close()
    outcome = repair(p.path)
    assert outcome.complete, said(outcome.after)
    assert any("with it the checksum is right" in line for line in outcome.done), outcome.done
    assert tree_of(p.path) == good


def test_a_checksum_that_is_itself_wrong_says_nothing_of_the_inode(tmp_path: Path) -> None:
    p = Patient("checksums", tmp_path)
    block = np.frombuffer(p.read(_mapped(p)[0].blkaddr * p.size, p.size), np.uint8).copy()
    assert wrong_byte(p.vol.sb.uuid, block) is None
    block[370] ^= 0x40
    assert wrong_byte(p.vol.sb.uuid, block) is None
    block[1234] ^= 0x11
    assert wrong_byte(p.vol.sb.uuid, block) is None  # two errors
    block[370] ^= 0x40
    assert wrong_byte(p.vol.sb.uuid, block) == (1234, int(block[1234]) ^ 0x11)
    p.close()


def _mapped(p: Patient) -> list[Inode]:
    """Files with blocks of their own."""
    inodes = [entry.inode for _, _, entries in p.vol.walk() for entry in entries]
    files = [inode for inode in inodes if isinstance(inode, Inode) and inode.is_file and not inode.has_inline_data]
    return [inode for inode in files if p.geo.in_main(int(inode.addrs[0]))]


def _forged_address(p: Patient) -> tuple[int, Inode]:
    """Let a file have a block of another; the block, and the file that has no right to it."""
    owner, forger = _mapped(p)[:2]
    blkaddr = int(owner.addrs[0])
    p.write(forger.blkaddr * p.size + 360 + forger.extra_isize, struct.pack("<I", blkaddr))
    return blkaddr, forger


def test_of_two_claims_of_a_block_the_one_that_the_summary_names_holds(tmp_path: Path) -> None:
    p = Patient("base", tmp_path)
    good = tree_of(reference("base").path)
    blkaddr, forger = _forged_address(p)
    p.seal_inode(forger.blkaddr)
    finding = next(f for f in bad(p.check()) if f.code == "B002")
    assert (finding.blkaddr, finding.ino) == (blkaddr, forger.ino)
    p.close()
    assert repair(p.path).complete
    assert_silent(p.path)
    assert tree_of(p.path) == good  # its own block was still there, and the summary names it


def test_where_the_summary_is_gone_a_wrong_checksum_tells_the_forger(tmp_path: Path) -> None:
    p = Patient("checksums", tmp_path)
    blkaddr, forger = _forged_address(p)
    segno, index = divmod(blkaddr - p.geo.main_blkaddr, 512)
    log = next(log for log in p.vol.summaries.cursegs if log.segno == segno)  # its summary lies in the checkpoint
    assert log.kind == 0
    assert p.vol.cp.ckpt_flags & CP_COMPACT_SUM_FLAG  # it follows the two journals
    p.write(p.vol.pack.sum_blkaddr * p.size + 2 * 507 + 7 * index, bytes(7))
    finding = next(f for f in bad(p.check()) if f.code == "B002")
    assert finding.ino == forger.ino
    p.close()


def test_further_names_of_a_file_come_back_from_an_older_copy_of_the_directory(tmp_path: Path) -> None:
    image = tmp_path / "x.img"
    judges.mkfs(image, "-q", size=128 << 20)
    with f2tools.open(image, write=True) as volume:
        directory = volume.mkdir(3, b"folder", 0o755)
        for number in range(200):  # too many for the inode
            volume.create(directory, b"file-%03d" % number, 0o644)
        first = volume.create(directory, b"first", 0o644)
        for number in range(8):
            volume.link(first, directory, b"name-%d" % number)
    with f2tools.open(image, write=True) as volume:  # the block with these names is written anew, elsewhere
        for number in range(200):
            volume.unlink(directory, b"file-%03d" % number)
    good = tree_of(image)
    with f2tools.open(image) as volume:
        inode = volume.path("/folder").inode
        addresses = volume.data.addresses(inode, 0, inode.i_size // 4096)
        addresses = addresses[volume.geo.in_main(addresses)].tolist()
    with image.open("r+b") as file:
        for blkaddr in addresses:
            file.seek(blkaddr * 4096)
            file.write(bytes(4096))
    assert len(tree_of(image)) < len(good)
    outcome = repair(image)
    assert outcome.complete, said(outcome.after)
    assert_silent(image)
    assert tree_of(image) == good
