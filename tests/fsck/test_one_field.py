"""A good image, one field of it wrong: exactly that code, at that place.

Among these is all that fsck.f2fs is known to miss: names twice or with `/`, continuation slots, sizes, remembered
parents and names, times, unknown flags, marks of encryption and verity without what they need, compression
parameters, footers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from f2tools.f2fs.layout.constants import F2FS_CASEFOLD_FL, OFFSET_BIT_SHIFT
from f2tools.f2fs.layout.footers import footer_in, low_cp_ver
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, NodeFooter
from f2tools.f2fs.layout.node import Inode as InodeLayout
from f2tools.f2fs.volume.checkpoint import seal_head
from f2tools.f2fs.volume.xattr import encryption_context
from f2tools.fsck.findings import Severity
from f2tools.fsck.problems import CATALOGUE
from tests.fsck.craft import Patient, bad, codes, said

Change = Callable[[Patient], dict[str, Any]]
CASES: list[tuple[str, str, str, Change, set[str]]] = []  # name, image, code, change -> place, company


def one(code: str, image: str = "base", also: set[str] | None = None) -> Callable[[Change], Change]:
    """Register a damage; `also` are codes that are rightly told too."""

    def register(change: Change) -> Change:
        CASES.append((change.__name__.removesuffix("_"), image, code, change, also or set()))
        return change

    return register


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Callable[[str], Patient]]:
    made: list[Patient] = []

    def make(name: str) -> Patient:
        made.append(Patient(name, tmp_path))
        return made[-1]

    yield make
    for one_patient in made:
        one_patient.close()


# -- superblock, checkpoint -------------------------------------------------------------------------------------------


@one("S001")
def second_superblock_lost(p: Patient) -> dict[str, Any]:
    p.write(p.size + 1024, bytes(3072))
    return {"blkaddr": 1}


@one("S004")
def superblocks_differ(p: Patient) -> dict[str, Any]:
    p.super(1, hot_ext_count=p.vol.sb.hot_ext_count - 1)
    return {"blkaddr": 1}


@one("S006")
def unknown_feature(p: Patient) -> dict[str, Any]:
    for copy in (0, 1):
        p.super(copy, feature=p.vol.sb.feature | 0x40000000)
    return {"blkaddr": 0}


@one("S007")
def feature_without_extra_attr(p: Patient) -> dict[str, Any]:
    for copy in (0, 1):
        p.super(copy, feature=p.vol.sb.feature | 0x10)
    return {"blkaddr": 0}


@one("S007")
def flexible_room_in_inodes_that_cannot_say_so(p: Patient) -> dict[str, Any]:
    """Kernels up to 6.4 refuse each inode of such a volume."""
    for copy in (0, 1):
        p.super(copy, feature=p.vol.sb.feature | 0x48)
    return {"blkaddr": 0}


@one("S012", "compress-lz4", {"B003", "C004", "I004", "I006", "I023"})
def lost_feature(p: Patient) -> dict[str, Any]:
    for copy in (0, 1):
        p.super(copy, feature=p.vol.sb.feature & ~0x2000)
    return {"blkaddr": 0}


@one("S003")
def superblock_geometry(p: Patient) -> dict[str, Any]:
    p.super(0, nat_blkaddr=p.vol.sb.nat_blkaddr + 512)
    return {"blkaddr": 0}


@one("S011", "casefold")
def unknown_encoding(p: Patient) -> dict[str, Any]:
    for copy in (0, 1):
        p.super(copy, s_encoding=7)
    return {"blkaddr": 0}


@one("S010", "features", also={"U001", "Q001"})
def quota_ino_out_of_range(p: Patient) -> dict[str, Any]:
    for copy in (0, 1):
        p.super(copy, qf_ino=0x00FFFFFF)
    return {"blkaddr": 0}


@one("C005")
def node_count(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.checkpoint(valid_node_count=p.vol.cp.valid_node_count + 3)}


@one("C006")
def inode_count(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.checkpoint(valid_inode_count=p.vol.cp.valid_inode_count - 1)}


@one("C008")
def user_blocks(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.checkpoint(user_block_count=1 << 40)}


@one("C010")
def marked_for_check(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.checkpoint(ckpt_flags=p.vol.cp.ckpt_flags | 0x10)}


@one("C012")
def next_free_nid(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.checkpoint(next_free_nid=0x7FFFFFFF)}


@one("C013", "compress-user")
def nat_bits_(p: Patient) -> dict[str, Any]:
    from f2tools.f2fs.volume.checkpoint import read_nat_bits

    bits = read_nat_bits(p.vol.device, p.geo, p.vol.pack)
    assert bits is not None
    at = bits.blkaddr * p.size + 8
    p.write(at, bytes([p.read(at, 1)[0] ^ 2]))
    return {"blkaddr": bits.blkaddr}


@one("O001", "crash-orphan")
def orphan_count(p: Patient) -> dict[str, Any]:
    blkaddr = p.vol.pack.blkaddr + 1 + p.geo.cp_payload
    p.put(blkaddr * p.size + 4096 - 8, 4, 5000)
    return {"blkaddr": blkaddr}


@one("O002", "crash-orphan", also={"U001"})
def orphan_that_is_none(p: Patient) -> dict[str, Any]:
    blkaddr = p.vol.pack.blkaddr + 1 + p.geo.cp_payload
    p.put(blkaddr * p.size, 4, 4000)
    return {"blkaddr": blkaddr, "ino": 4000}


@one("R002", "crash-several")
def chain_loops(p: Patient) -> dict[str, Any]:
    segno, blkoff, _ = p.vol.pack.curseg(4)
    blkaddr = int(p.geo.start_block(segno)) + blkoff
    p.put((blkaddr + 1) * p.size - 4, 4, blkaddr)
    return {"blkaddr": blkaddr}


@one("R003", "crash-several")
def fsynced_address_out_of_main(p: Patient) -> dict[str, Any]:
    segno, blkoff, _ = p.vol.pack.curseg(4)
    blkaddr = int(p.geo.start_block(segno)) + blkoff + 1
    p.put(blkaddr * p.size + INODE_ADDR_OFFSET, 4, 0x7FFFFFFF)
    return {"blkaddr": blkaddr}


@one("R004", "crash-new-file")
def fsynced_behind_a_gap(p: Patient) -> dict[str, Any]:
    segno, blkoff, _ = p.vol.pack.curseg(4)
    blkaddr = int(p.geo.start_block(segno)) + blkoff + 2
    p.write(blkaddr * p.size, bytes(p.size))
    return {"blkaddr": blkaddr}


@one("R005", "crash-several")
def fsynced_time_out_of_range(p: Patient) -> dict[str, Any]:
    segno, blkoff, _ = p.vol.pack.curseg(4)
    blkaddr = int(p.geo.start_block(segno)) + blkoff + 3
    p.put(blkaddr * p.size + InodeLayout.offset_of("i_mtime_nsec"), 4, 0xFFFFFFFF)
    return {"blkaddr": blkaddr}


@one("R006", "crash-several", also={"C014", "R001"})
def block_fsynced_in_two_files(p: Patient) -> dict[str, Any]:
    segno, blkoff, _ = p.vol.pack.curseg(4)
    first, second = (int(p.geo.start_block(segno)) + blkoff + at for at in (1, 2))
    blkaddr = int.from_bytes(p.read(first * p.size + INODE_ADDR_OFFSET + 20, 4), "little")
    p.put(second * p.size + INODE_ADDR_OFFSET + 4, 4, blkaddr)
    return {"blkaddr": blkaddr}


# -- NAT, nodes -------------------------------------------------------------------------------------------------------


@one("N001")
def nat_placeholder(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.nat(1, block_addr=77), "nid": 1}


@one("N004", also={"C005"})
def two_nids_in_one_block(p: Patient) -> dict[str, Any]:
    free = next(nid for nid in range(400, 455) if not p.vol.nat.get(nid)[2])
    ino = p.ino("/medium/one")
    return {"blkaddr": p.nat(free, block_addr=p.at("/medium/one"), ino=ino), "nid": free}


@one("F003")
def node_offset(p: Patient) -> dict[str, Any]:
    nid = int(p.vol.path("/medium/one").inode.nids[0])
    return {"blkaddr": p.footer(nid, "flag", 7 << OFFSET_BIT_SHIFT | 1), "nid": nid}


@one("F004")
def node_of_the_future(p: Patient) -> dict[str, Any]:
    nid = p.ino("/medium/one")
    found = p.vol.path("/medium/one").inode.footer["cp_ver"]
    return {"blkaddr": p.footer(nid, "cp_ver", found + 1000), "nid": nid}


@one("F006", also={"U003"})
def node_out_of_range(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.nid_pointer("/medium/one", 0, 0x7FFFFFFF)}


@one("F007", also={"U003"})
def node_cycle(p: Patient) -> dict[str, Any]:
    inode = p.vol.path("/sparse/depths").inode
    first = int(inode.nids[2])
    blkaddr = p.node_at(first)
    p.put(blkaddr * p.size, 4, first)
    return {"blkaddr": blkaddr, "nid": first}


@one("F009", also={"U003"})
def inode_as_a_node(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.nid_pointer("/medium/one", 0, p.ino("/medium/noise"))}


@one("F009", also={"U003"})
def node_of_another_place_of_the_file(p: Patient) -> dict[str, Any]:
    """The right one and those below it are then pointed to by nothing; the node itself stays where it belongs."""
    other = p.node_at(int(p.vol.path("/sparse/depths").inode.nids[3]))
    below = next(word for word in struct.unpack("<1018I", p.read(other * p.size, 4072)) if word)
    return {"blkaddr": p.nid_pointer("/sparse/depths", 2, below), "nid": p.ino("/sparse/depths")}


# -- inodes -----------------------------------------------------------------------------------------------------------


@one("I021")
def nanoseconds(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_mtime_nsec=2_000_000_000)}


@one("I022", "features")
def creation_time(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode(_some_file(p), i_crtime=1 << 62)}


def _some_file(p: Patient, compressed: bool = False) -> str:
    for path, _, entries in p.vol.walk():
        for entry in entries:
            if getattr(entry.inode, "is_file", False) and not entry.inode.i_advise & 0x44:
                if compressed and not entry.inode.compressed:
                    continue
                return f"{path.decode().rstrip('/')}/{entry.name.decode()}"
    raise AssertionError("no file")


@one("I024")
def unknown_flag(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_flags=0x00400000)}


@one("I023")
def casefold_on_a_file(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_flags=0x40000000)}


@one("I025")
def encrypted_plain_file(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_advise=0x04)}


@one("I025", "fscrypt")
def encrypted_without_context(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode(_some_file(p), i_advise=0x04)}


@one("I042", "fscrypt")
def encryption_policy_of_nobody_else(p: Patient) -> dict[str, Any]:
    inode = p.vol.path("/v2-aes256xts-pad32").inode
    context = encryption_context(p.vol.nodes, inode)
    assert context
    at = inode.block.tobytes().index(context)
    p.write(4096 * inode.blkaddr + at + 9, bytes([context[9] ^ 1]))
    return {"ino": inode.ino}


@one("V001")
def sealed_plain_file(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_advise=0x40)}


@one("V001", "features")
def sealed_without_descriptor(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode(_some_file(p), i_advise=0x40)}


@one("I027", "checksums")
def project_without_feature(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode(_some_file(p), i_projid=9)}


@one("I028", "compress-lz4")
def cluster_size(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode(_compressed_inline_free(p), i_log_cluster_size=200)}


def _compressed_inline_free(p: Patient) -> str:
    """A compressed file without a compressed cluster, so that its parameters mean nothing yet."""
    for path, _, entries in p.vol.walk():
        for entry in entries:
            if getattr(entry.inode, "compressed", False) and not entry.inode.extra["i_compr_blocks"]:
                return f"{path.decode().rstrip('/')}/{entry.name.decode()}"
    raise AssertionError("no such file")


@one("I028", "compress-lz4")
def compression_algorithm(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode(_some_file(p, compressed=True), i_compress_algorithm=99)}


@one("I029", "compress-lz4")
def compressed_blocks(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode(_some_file(p, compressed=True), i_compr_blocks=12345)}


@one("I030")
def owner_is_nobody(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_uid=0xFFFFFFFF)}


@one("I011", "features")
def extra_size_is_odd(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode(_some_file(p), i_extra_isize=35)}


@one("I013")
def extra_flag(p: Patient) -> dict[str, Any]:
    path = _empty_file(p)
    return {"blkaddr": p.inode(path, i_inline=p.vol.path(path).inode.i_inline | 0x20)}


@one("I013", "checksums")
def extra_flag_lost(p: Patient) -> dict[str, Any]:
    path = "/small/file-04097-20"
    return {"blkaddr": p.inode(path, i_inline=p.vol.path(path).inode.i_inline & ~0x20)}


@one("I013", "features")
def extra_flag_lost_of_a_file_inside_its_inode(p: Patient) -> dict[str, Any]:
    path = _some_file(p)
    assert p.vol.path(path).inode.has_inline_data
    return {"blkaddr": p.inode(path, i_inline=p.vol.path(path).inode.i_inline & ~0x20)}


def _empty_file(p: Patient) -> str:
    for path, _, entries in p.vol.walk():
        for entry in entries:
            if getattr(entry.inode, "is_file", False) and not entry.inode.i_size and entry.inode.i_blocks == 1:
                return f"{path.decode().rstrip('/')}/{entry.name.decode()}"
    raise AssertionError("no empty file")


@one("I006")
def size_of_zero(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_size=0)}


@one("I041")
def size_in_a_hole_before_blocks(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/sparse/depths", i_size=p.vol.path("/sparse/depths").inode.i_size // 2)}


@one("I034")
def size_beyond_mapping(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_size=1 << 60)}


@one("I035")
def size_of_a_tebibyte(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_size=1 << 40), "ino": p.ino("/medium/one")}


@one("I007")
def directory_size_of_zero(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/bigdir", i_size=0)}


@one("I007")
def directory_size_of_a_tebibyte(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/bigdir", i_size=1 << 40)}


@one("I017")
def directory_level(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/bigdir", i_dir_level=200), "expected": 0}


@one("I018")
def name_length(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_namelen=300)}


@one("I019")
def parent_of_a_directory(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/bigdir", i_pino=42), "expected": 3}


@one("I020")
def parent_of_a_file(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_pino=3), "ino": p.ino("/medium/one")}


@one("I020")
def name_of_a_file(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode_bytes("/medium/one", 92, b"two"), "ino": p.ino("/medium/one")}


@one("I031")
def symlink_of_length_zero(p: Patient) -> dict[str, Any]:
    path = next(
        f"{path.decode().rstrip('/')}/{e.name.decode()}"
        for path, _, entries in p.vol.walk() for e in entries
        if getattr(e.inode, "kind", "") == "symlink" and e.inode.has_inline_data
    )  # fmt: skip
    return {"blkaddr": p.inode(path, i_size=0)}


@one("I005")
def inline_size(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/small/a-03383-6", i_size=4000)}


@one("I006")
def inline_bytes_behind_the_end(p: Patient) -> dict[str, Any]:
    path = "/small/a-03383-6"
    size = p.vol.path(path).inode.i_size
    return {"blkaddr": p.inode(path, i_size=5), "expected": size}


@one("I008")
def inline_reserved(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode_bytes("/small/a-03383-6", 360, b"\1\2\3\4")}


@one("I009")
def data_exists(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/small/a-03383-6", i_inline=p.vol.path("/small/a-03383-6").inode.i_inline & ~8)}


@one("I015")
def cached_extent(p: Patient) -> dict[str, Any]:
    blkaddr = p.at("/medium/noise")
    p.put(blkaddr * p.size + 348 + 4, 4, 0x1650)
    return {"blkaddr": blkaddr}


# -- directories ------------------------------------------------------------------------------------------------------


@one("D004")
def entry_past_the_end(p: Patient) -> dict[str, Any]:
    inode = p.vol.path("/bigdir").inode
    addrs = p.vol.data.addresses(inode, 0, inode.i_size // p.size).tolist()
    blkaddr = next(a for a in addrs if a and not p.read(a * p.size + 26, 1)[0] & 1 << 5)
    base = blkaddr * p.size
    p.write(base + 26, bytes([p.read(base + 26, 1)[0] | 1 << 5]))  # slot 213 of 214
    p.write(base + 30 + 11 * 213, struct.pack("<IIHB", 1, 4, 255, 1))
    return {"blkaddr": blkaddr}


@one("D007", also={"D005"})
def slash_in_a_name(p: Patient) -> dict[str, Any]:
    blkaddr, _, name = p.dentry("/medium", b"noise")
    p.write(name, b"no/se")
    return {"blkaddr": blkaddr}


@one("D007", also={"D005"})
def nul_in_a_name(p: Patient) -> dict[str, Any]:
    blkaddr, _, name = p.dentry("/medium", b"noise")
    p.write(name, b"no\0se")
    return {"blkaddr": blkaddr}


@one("D008")
def name_twice(p: Patient) -> dict[str, Any]:
    blkaddr, entry, name = p.dentry("/links", b"fifo2")
    _, other, _ = p.dentry("/links", b"hard0")
    p.write(name, b"hard0")
    p.write(entry, p.read(other, 4))
    return {"blkaddr": blkaddr}


@one("D011")
def continuation_slot(p: Patient) -> dict[str, Any]:
    name = next(e.name for e in p.vol.dirs.entries(p.vol.path("/bigdir").inode) if len(e.name) > 16)
    blkaddr, _, _ = p.dentry("/bigdir", name)
    offset, mask = p.dentry_bit("/bigdir", name, 1)
    p.write(offset, bytes([p.read(offset, 1)[0] & ~mask]))
    return {"blkaddr": blkaddr}


@one("D009")
def dotdot_gone(p: Patient) -> dict[str, Any]:
    p.clear_bits("/bigdir", b"..")
    return {"blkaddr": p.at("/bigdir"), "note": ".."}


@one("D010")
def dotdot_elsewhere(p: Patient) -> dict[str, Any]:
    blkaddr, entry, _ = p.dentry("/bigdir", b"..")
    p.put(entry + 4, 4, 42)
    return {"blkaddr": blkaddr, "expected": 3}


@one("D013", also={"U001"})
def entry_of_the_root(p: Patient) -> dict[str, Any]:
    p.inode("/links/fifo2", i_pino=p.ino("/medium"))  # else it would have its name back
    blkaddr, entry, _ = p.dentry("/links", b"fifo2")
    p.put(entry + 4, 4, 3)
    return {"blkaddr": blkaddr}


@one("U002")
def directory_without_name(p: Patient) -> dict[str, Any]:
    blkaddr = p.at("/bigdir")
    p.clear_bits("/", b"bigdir")
    return {"blkaddr": blkaddr}


@one("D012", also={"I003", "I002", "D002", "U001"})
def directory_twice(p: Patient) -> dict[str, Any]:
    p.inode("/links/fifo2", i_pino=p.ino("/medium"))
    blkaddr, entry, _ = p.dentry("/links", b"fifo2")
    p.put(entry + 4, 4, p.ino("/bigdir"))
    return {"blkaddr": blkaddr}


@one("I040", also={"G003", "I004", "I039", "C004", "I015"})
def file_turned_into_a_fifo(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/noise", i_mode=0o010644), "expected": "file"}


@one("D015", also={"U001"})
def entry_of_another_inode(p: Patient) -> dict[str, Any]:
    blkaddr, entry, _ = p.dentry("/links", b"fifo2")
    own = p.ino("/links/fifo2")
    p.put(entry + 4, 4, 3000)
    return {"blkaddr": blkaddr, "expected": own}


@one("I016")
def directory_too_deep(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/bigdir", i_current_depth=60)}


# -- attributes, summaries, segments ----------------------------------------------------------------------------------


def _xattr_at(p: Patient, path: str) -> int:
    return INODE_END - 4 * p.vol.path(path).inode.inline_xattr_addrs


INODE_END = 360 + 4 * 923


@one("X004")
def attribute_index(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode_bytes("/xattr/tiny", _xattr_at(p, "/xattr/tiny") + 24, b"\x63")}


@one("X003")
def junk_after_attributes(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode_bytes("/xattr/tiny", INODE_END - 4, b"junk")}


@one("G002", also={"G001"})
def segment_type(p: Patient) -> dict[str, Any]:
    blkaddr, at = p.sit_at(10)
    p.put(at, 2, 503 | 9 << 10)
    return {"blkaddr": blkaddr, "segno": 10}


@one("G005", also={"L001"})
def segment_of_the_other_kind(p: Patient) -> dict[str, Any]:
    segno = 4
    _, at = p.sit_at(segno)
    word = struct.unpack("<H", p.read(at, 2))[0]
    p.put(at, 2, word & 1023 | 4 << 10)
    return {"segno": segno}


@one("A003", "plain")
def summary_of_a_node(p: Patient) -> dict[str, Any]:
    logs = {log.segno for log in p.vol.summaries.cursegs}
    segno = next(s for s in range(len(p.vol.sit)) if p.vol.sit.vblocks[s] and p.vol.sit.types[s] >= 3 and s not in logs)
    first = int(np.unpackbits(p.vol.sit.valid_map(np.array([segno]))[0]).argmax())
    p.put(p.vol.summaries.ssa_place(segno)[0] * p.size + 7 * first, 4, 9)
    return {"segno": segno}


@one("A004")
def summary_version(p: Patient) -> dict[str, Any]:
    p.put(p.vol.summaries.ssa_place(4)[0] * p.size + 4, 1, 99)
    return {"segno": 4}


# -- and the rest of the catalogue ------------------------------------------------------------------------------------


@one("S005", also={"S001"})
def no_superblock_left(p: Patient) -> dict[str, Any]:
    p.write(1024, bytes(3072))
    p.write(p.size + 1024, bytes(3072))
    return {"blkaddr": 0}


@one("S008")
def kernel_recorded_an_error(p: Patient) -> dict[str, Any]:
    for copy in (0, 1):
        p.super(copy, s_stop_reason=1)
    return {"area": "sb"}


@one("S009")
def image_cut_off(p: Patient) -> dict[str, Any]:
    end = p.geo.end_blkaddr * p.size - 10 * p.size
    with p.path.open("r+b") as file:
        file.truncate(end)
    return {"blkaddr": end // p.size}


@one("C009")
def unknown_checkpoint_flag(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.checkpoint(ckpt_flags=p.vol.cp.ckpt_flags | 0x80000)}


@one("C011", "features")
def quota_out_of_date(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.checkpoint(ckpt_flags=p.vol.cp.ckpt_flags | 0x800)}


@one("C015", "crash-orphan", also={"U001"})
def orphans_without_their_flag(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.checkpoint(ckpt_flags=p.vol.cp.ckpt_flags & ~2)}


@one("C016", also={"C002", "A001", "A002", "A003", "C004", "C005", "C006", "C007", "G003", "G004", "G005", "L001"})
def no_checkpoint_left(p: Patient) -> dict[str, Any]:
    p.write(p.geo.cp_blkaddr * p.size, bytes(1024 * p.size))
    return {"blkaddr": p.geo.cp_blkaddr}


@one("J001")
def nat_journal_too_long(p: Patient) -> dict[str, Any]:
    p.put(p.vol.pack.sum_blkaddr * p.size, 2, 999)
    return {"blkaddr": p.vol.pack.sum_blkaddr}


@one("J002", also={"G001", "G003", "G004", "G005", "C004", "C007", "L001"})
def sit_journal_too_long(p: Patient) -> dict[str, Any]:
    p.put(p.vol.pack.sum_blkaddr * p.size + 507, 2, 999)
    return {"blkaddr": p.vol.pack.sum_blkaddr}


@one("N005", also={"D001", "G003"})
def node_never_written(p: Patient) -> dict[str, Any]:
    nid = p.ino("/medium/noise")
    return {"blkaddr": p.nat(nid, block_addr=0xFFFFFFFF), "nid": nid}


@one("N006", also={"C005", "C006", "C013", "G003", "N001", "U001", "U002", "U004"})
def nat_block_lost(p: Patient) -> dict[str, Any]:
    blkaddr = int(p.vol.nat.blkaddrs[0])
    p.write(blkaddr * p.size, bytes(p.size))
    return {"blkaddr": blkaddr}


@one("N007", "crash-sqlite-rollback", also={"C004", "G003", "G004", "L005"})
def journals_lost(p: Patient) -> dict[str, Any]:
    nid, newest = p.ino("/db/test.sqlite"), p.at("/db/test.sqlite")
    p.write(p.vol.pack.sum_blkaddr * p.size, bytes(p.size))
    return {"blkaddr": int(p.vol.nat.blkaddrs[0]), "nid": nid, "expected": f"{newest:#x}"}


@one("G006")
def segment_from_the_future(p: Patient) -> dict[str, Any]:
    blkaddr, at = p.sit_at(10)
    p.put(at + 66, 8, 1 << 50)
    return {"blkaddr": blkaddr, "segno": 10}


@one("L002")
def next_block_in_use(p: Patient) -> dict[str, Any]:
    log = next(log for log in p.vol.summaries.cursegs if log.kind == 4)
    p.checkpoint_item("cur_node_blkoff", 1, log.next_blkoff - 1)
    return {"segno": log.segno, "blkaddr": int(p.geo.start_block(log.segno)) + log.next_blkoff - 1}


@one("L003", also={"L002"})
def blocks_ahead_of_a_log(p: Patient) -> dict[str, Any]:
    log = next(log for log in p.vol.summaries.cursegs if log.kind == 4)
    p.checkpoint_item("cur_node_blkoff", 1, log.next_blkoff - 2)
    return {"segno": log.segno}


@one("L001", "noinline")
def empty_log_of_the_other_kind(p: Patient) -> dict[str, Any]:
    """fsck.f2fs calls it damage, and the kernel cleans what is written there as the kind that the entry says."""
    sit = p.vol.sit
    inside = set(p.vol.summaries.journals.sit["segno"].tolist())
    log = next(log for log in p.vol.summaries.cursegs if not sit.vblocks[log.segno] and log.segno not in inside)
    _, at = p.sit_at(log.segno)
    p.put(at, 2, (0 if log.kind >= 3 else 4) << 10)
    return {"segno": log.segno}


@one("L004", also={"A001", "L001", "L002", "L003", "L005", "A003", "C007"})
def two_logs_in_one_segment(p: Patient) -> dict[str, Any]:
    first = next(log for log in p.vol.summaries.cursegs if log.kind == 3)
    p.checkpoint_item("cur_node_segno", 1, first.segno)
    return {"segno": first.segno}


@one("L007")
def log_behind_its_segment(p: Patient) -> dict[str, Any]:
    """A full segment is left at once; the kernel and fsck.f2fs take no checkpoint that says otherwise."""
    p.checkpoint_item("cur_node_blkoff", 0, p.geo.blocks_per_seg)
    return {"found": p.geo.blocks_per_seg}


@one("L006")
def log_of_an_unknown_kind(p: Patient) -> dict[str, Any]:
    p.checkpoint_item("alloc_type", 4, 7)
    return {"found": 7}


@one("I012", "features")
def room_for_attributes(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode(_some_file(p), i_inline_xattr_size=2000)}


@one("I032")
def failed_moves(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_current_depth=5)}


@one("I038", also={"G003", "I002", "D002", "U001"})
def blank_inode(p: Patient) -> dict[str, Any]:
    blkaddr = p.at("/medium/noise")
    p.write(blkaddr * p.size, bytes(p.size - 24))
    return {"blkaddr": blkaddr}


@one("I039")
def fifo_with_nodes(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.nid_pointer("/links/fifo", 0, 77)}


@one("B003", also={"G003", "I004", "C004", "I015"})
def cluster_in_a_plain_file(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.address("/medium/one", 2, 0xFFFFFFFE)}


@one("D006", also={"I020"})
def entry_in_the_wrong_bucket(p: Patient) -> dict[str, Any]:
    from f2tools.f2fs.layout.hashes import dentry_hash

    directory = p.vol.path("/bigdir").inode
    entry = next(e for e in p.vol.dirs.entries(directory) if e.block > 2 and len(e.name) > 6)
    blkaddr, at, name_at = p.dentry("/bigdir", entry.name)
    for letter in b"abcdefgh":
        name = bytes([letter]) + entry.name[1:]
        if dentry_hash(name) % 2 != entry.hash_code % 2:
            p.write(name_at, name)
            p.put(at, 4, dentry_hash(name))
            return {"blkaddr": blkaddr}
    raise AssertionError("no name that hashes elsewhere")


@one("D014", "noinline", also={"G003", "I004", "I015", "U001", "U002", "C004", "I002"})
def directory_without_blocks(p: Patient) -> dict[str, Any]:
    path = "/links"
    assert p.vol.path(path).inode.i_size == p.size
    return {"blkaddr": p.address(path, 0, 0)}


@one("X005")
def attribute_without_a_name(p: Patient) -> dict[str, Any]:
    at = _xattr_at(p, "/xattr/tiny") + 24
    return {"blkaddr": p.inode_bytes("/xattr/tiny", at + 1, b"\0\2\0")}


def _attributes_at(p: Patient, path: str) -> list[tuple[int, int, int, int]]:
    """(byte in the block, name space, length of the name, length of the value) of the attributes inside an inode."""
    at = _xattr_at(p, path) + 24
    block = p.read(p.at(path) * p.size, p.size)
    found = []
    while at + 4 <= INODE_END and block[at : at + 4] != bytes(4):
        index, name, value = struct.unpack_from("<BBH", block, at)
        found.append((at, index, name, value))
        at += -(-(4 + name + value) // 4) * 4
    return found


def _with_attributes(p: Patient, wanted: Callable[[list[tuple[int, int, int, int]]], bool]) -> str:
    for directory, _, entries in p.vol.walk():
        for entry in entries:
            if entry.inode.inline_xattr_area.any() and not entry.inode.i_xattr_nid:
                path = f"{directory.decode().rstrip('/')}/{entry.name.decode()}"
                if entry.inode.kind in ("file", "dir") and wanted(_attributes_at(p, path)):
                    return path
    raise AssertionError("no file with such attributes")


@one("X006")
def access_control_list(p: Patient) -> dict[str, Any]:
    path = _with_attributes(p, lambda items: any(item[1] == 2 for item in items))
    at = next(item[0] for item in _attributes_at(p, path) if item[1] == 2)
    return {"blkaddr": p.inode_bytes(path, at + 4, b"\x09")}


@one("X007")
def attribute_twice(p: Patient) -> dict[str, Any]:
    ((at, _, name, value),) = _attributes_at(p, "/xattr/tiny")
    size = -(-(4 + name + value) // 4) * 4
    entry = p.read(p.at("/xattr/tiny") * p.size + at, size)
    return {"blkaddr": p.inode_bytes("/xattr/tiny", at + size, entry)}


@one("L001")
def log_of_another_temperature(p: Patient) -> dict[str, Any]:
    log = next(log for log in p.vol.summaries.cursegs if log.kind == 2)
    _, at = p.sit_at(log.segno)
    p.put(at, 2, struct.unpack("<H", p.read(at, 2))[0] & 1023 | 1 << 10)
    return {"segno": log.segno}


@one("Z001", "compress-lz4", also={"G003", "I004", "I029", "I015", "C004"})
def cluster_without_blocks(p: Patient) -> dict[str, Any]:
    path = next(_compressed(p))
    inode = p.vol.path(path).inode
    head = int(np.flatnonzero(inode.addrs == 0xFFFFFFFE)[0])
    start = 360 + inode.extra_isize + 4 * (head + 1)
    return {"blkaddr": p.inode_bytes(path, start, bytes(4 * (inode.cluster_size - 1)))}


def _compressed(p: Patient) -> Iterator[str]:
    for directory, _, entries in p.vol.walk():
        for entry in entries:
            if getattr(entry.inode, "compressed", False) and (entry.inode.addrs == 0xFFFFFFFE).any():
                yield f"{directory.decode().rstrip('/')}/{entry.name.decode()}"


@one("Q002", "features")
def use_of_a_user(p: Patient) -> dict[str, Any]:
    p.inode(_some_file(p), i_uid=777)
    return {"ino": int(p.vol.sb.qf_ino[0])}


@one("I002", "crash-orphan")
def orphan_with_a_link(p: Patient) -> dict[str, Any]:
    ino = int(p.vol.orphans()[0])
    blkaddr = p.node_at(ino)
    p.put(blkaddr * p.size + InodeLayout.offset_of("i_links"), 4, 1)
    p.seal_inode(blkaddr)
    return {"ino": ino, "blkaddr": blkaddr}


@one("O003", "crash-orphan", also={"U001"})
def orphan_with_a_name(p: Patient) -> dict[str, Any]:
    blkaddr = p.vol.pack.blkaddr + 1 + p.geo.cp_payload
    ino = p.ino(_some_file(p))
    p.put(blkaddr * p.size, 4, ino)
    return {"blkaddr": blkaddr, "ino": ino}


@one("O003", "crash-orphan", also={"I002"})
def orphan_whose_name_came_back(p: Patient) -> dict[str, Any]:
    blkaddr, _, name = p.dentry("/b", b"inline")
    at, mask = p.dentry_bit("/b", b"inline", 0)
    gone = blkaddr * p.size + p.read(blkaddr * p.size, p.size).index(b"orphan0")
    byte, bit = divmod(mask.bit_length() - 1 + (gone - name) // 8, 8)
    p.write(at + byte, bytes([p.read(at + byte, 1)[0] | 1 << bit]))
    return {"blkaddr": p.vol.pack.blkaddr + 1 + p.geo.cp_payload}


@one("U004", also={"F010", "G003", "U002", "U001"})
def root_lost(p: Patient) -> dict[str, Any]:
    p.write(p.at("/") * p.size, bytes(p.size))
    return {"nid": 3}


@one("U005", also={"U002"})
def below_a_lost_directory(p: Patient) -> dict[str, Any]:
    entries = p.vol.dirs.entries(p.vol.path("/bigdir").inode)
    child = next(e.ino for e in entries if len(e.name) > 8)
    p.clear_bits("/", b"bigdir")
    return {"ino": child}


@one("D016", "fscrypt-android", also={"I020"})
def length_of_a_name_with_a_keyed_hash(p: Patient) -> dict[str, Any]:
    for path, directory, _ in p.vol.walk():
        if directory.encrypted and directory.i_flags & F2FS_CASEFOLD_FL:
            names = [entry.name for entry in p.vol.dirs.entries(directory)]
            name = next((name for name in names if len(name) > 16), None)
            if name is not None:
                blkaddr, entry, _ = p.dentry(path.decode(), name)
                p.put(entry + 8, 2, len(name) - 1)
                return {"blkaddr": blkaddr, "ino": directory.ino}
    raise AssertionError("no directory that is encrypted and casefolded has a name")


@one("Z003", "compress-released")
def mark_of_a_released_cluster(p: Patient) -> dict[str, Any]:
    path = "/compressed/text"
    head = int(np.flatnonzero(p.vol.path(path).inode.addrs == 0xFFFFFFFE)[0])
    p.address(path, head, 0)
    return {"ino": p.ino(path)}


@one("Z003", "compress-lz4", also={"I029", "B002"})
def mark_of_a_cluster_that_is_a_block(p: Patient) -> dict[str, Any]:
    path = next(_compressed(p))
    head = int(np.flatnonzero(p.vol.path(path).inode.addrs == 0xFFFFFFFE)[0])
    p.address(path, head, p.at("/"))
    return {"ino": p.ino(path)}


@one("Z002", "compress-lz4")
def cluster_of_a_wrong_length(p: Patient) -> dict[str, Any]:
    inode = p.vol.path(next(_compressed(p))).inode
    head = int(np.flatnonzero(inode.addrs == 0xFFFFFFFE)[0])
    p.put(int(inode.addrs[head + 1]) * p.size, 4, 1 << 30)  # the length of the compressed bytes
    return {"ino": inode.ino}


@one("Z002", "compress-lz4")
def files_of_another_algorithm(p: Patient) -> dict[str, Any]:
    path = next(_compressed(p))
    p.inode(path, i_compress_algorithm=2)
    return {"ino": p.ino(path)}


@one("V002", "features")
def tree_of_a_sealed_file(p: Patient) -> dict[str, Any]:
    for inode in (entry.inode for _, _, entries in p.vol.walk() for entry in entries):
        if getattr(inode, "verity", False) and inode.i_size > p.size:
            first = -(-inode.i_size // 65536) * 65536 // p.size
            blkaddr = int(p.vol.data.addresses(inode, first, 1)[0])
            p.write(blkaddr * p.size, bytes([p.read(blkaddr * p.size, 1)[0] ^ 1]))
            return {"ino": inode.ino}
    raise AssertionError("no sealed file with a tree")


@one("I036", "device-alias", also={"G003", "C007", "I004", "C004", "L001", "L002", "L003", "A001", "I006"})
def extent_of_a_device(p: Patient) -> dict[str, Any]:
    path = "/" + p.image.case["alias"].lstrip("/")
    blkaddr = p.at(path)
    p.put(blkaddr * p.size + 356, 4, 512)
    return {"blkaddr": blkaddr, "ino": p.ino(path)}


@one("C001")
def older_pack_lost(p: Patient) -> dict[str, Any]:
    other = next(pack for pack in p.vol.packs if pack.index != p.vol.pack.index)
    p.put(other.blkaddr * p.size + 100, 4, 0x12345678)
    return {"blkaddr": other.blkaddr}


@one("C022")
def older_pack_given_up(p: Patient) -> dict[str, Any]:
    other = next(pack for pack in p.vol.packs if pack.index != p.vol.pack.index)
    p.write(other.blkaddr * p.size, bytes(p.size))
    return {"blkaddr": other.blkaddr}


@one("C018", "crash-new-file", also={"C001"})
def newer_pack_lost(p: Patient) -> dict[str, Any]:
    p.put(p.vol.pack.blkaddr * p.size + 100, 4, 0x12345678)
    return {"blkaddr": p.vol.pack.blkaddr}


@one("C019", "crash-stress-3", also={"C001"})
def newer_pack_gone(p: Patient) -> dict[str, Any]:
    p.write(p.vol.pack.blkaddr * p.size, bytes(p.vol.geo.blocks_per_seg * p.size))
    return {"blkaddr": p.vol.pack.blkaddr}


@one("C020", "crash-stress-3", also={"I020"})
def newer_pack_lowered(p: Patient) -> dict[str, Any]:
    blkaddr = p.checkpoint(checkpoint_ver=p.vol.cp.checkpoint_ver - 100)
    return {"blkaddr": blkaddr}


@one("S014", "crash-stress-3", also={"I020"})
def payload_of_none(p: Patient) -> dict[str, Any]:
    for copy in (0, 1):
        p.super(copy, cp_payload=3)
    return {"blkaddr": 0}


@one("C017")
def a_newer_pack_begun(p: Patient) -> dict[str, Any]:
    other = next(pack for pack in p.vol.packs if pack.index != p.vol.pack.index)
    head = bytearray(other.head[: p.size])
    head[:8] = (p.vol.cp.checkpoint_ver + 1).to_bytes(8, "little")  # checkpoint_ver
    seal_head(other.cp, head, p.size)
    p.write(other.blkaddr * p.size, bytes(head))
    return {"blkaddr": other.blkaddr}


@one("C021", "crash-new-file", also={"C014", "R001"})
def a_node_of_a_later_checkpoint(p: Patient) -> dict[str, Any]:
    segno, blkoff, _ = p.vol.pack.curseg(4)
    blkaddr = int(p.geo.start_block(segno)) + blkoff
    while low_cp_ver(footer_in(p.vol.device.read_range(blkaddr + 1, 1, p.size)[0])) == p.vol.cp.checkpoint_ver:
        blkaddr += 1  # the last of the chain
    at = (blkaddr + 1) * p.size - NodeFooter.size + NodeFooter.offset_of("cp_ver")
    p.put(at, 4, p.vol.cp.checkpoint_ver + 1)
    return {"blkaddr": blkaddr}


@one("C002")
def checksums_of_both_packs(p: Patient) -> dict[str, Any]:
    for pack in p.vol.packs:
        for at in (0, pack.cp.cp_pack_total_block_count - 1):
            p.put((pack.blkaddr + at) * p.size + 4092, 4, 0x12345678)
    return {"blkaddr": p.vol.pack.blkaddr}


@one("C003", also={"C002"})
def nothing_to_make_a_checkpoint_of(p: Patient) -> dict[str, Any]:
    p.write(p.geo.cp_blkaddr * p.size, bytes(1024 * p.size))
    p.write(p.geo.main_blkaddr * p.size, bytes(p.geo.segment_count_main * 512 * p.size))
    return {"blkaddr": p.geo.cp_blkaddr}


@one("C004")
def block_count(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.checkpoint(valid_block_count=p.vol.cp.valid_block_count + 7)}


@one("C007")
def free_segments(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.checkpoint(free_segment_count=p.vol.cp.free_segment_count + 1)}


@one("C014")
def unmounted_mark_gone(p: Patient) -> dict[str, Any]:
    pack = p.vol.pack
    return {"blkaddr": p.checkpoint(ckpt_flags=p.vol.cp.ckpt_flags & ~1 | 0x20), "area": "cp"} if pack else {}


@one("R001", "crash-new-file", also={"C014"})
def fsynced_after_the_checkpoint(p: Patient) -> dict[str, Any]:
    segno, blkoff, _ = p.vol.pack.curseg(4)
    return {"blkaddr": int(p.geo.start_block(segno)) + blkoff}


@one("Q001", "features")
def entries_of_a_quota_block(p: Patient) -> dict[str, Any]:
    ino = int(p.vol.sb.qf_ino[0])
    inode = p.vol.nodes.inode(ino)
    addresses = p.vol.data.addresses(inode, 0, -(-inode.i_size // p.size)).tolist()
    last = (inode.i_size // 1024 - 1) * 1024
    p.put(addresses[last // p.size] * p.size + last % p.size + 8, 2, 99)
    return {"ino": ino}


@one("U003", also={"I004", "I015", "G003", "C004", "F005"})
def pointer_to_a_node_gone(p: Patient) -> dict[str, Any]:
    nid = int(p.vol.path("/medium/one").inode.nids[0])
    p.nid_pointer("/medium/one", 0, 0)
    return {"blkaddr": p.node_at(nid), "nid": nid}


@one("F010", also={"F005", "G003", "I004", "C004", "I015"})
def node_blanked(p: Patient) -> dict[str, Any]:
    nid = int(p.vol.path("/medium/one").inode.nids[0])
    blkaddr = p.node_at(nid)
    p.write(blkaddr * p.size, bytes(p.size))
    return {"blkaddr": blkaddr, "nid": nid}


CONTENT = {"Z002", "V002"}  # looked for only when content is read
# told in test_device.py, as they need a device that is torn or short, or has zones; the last where 16 TiB are resized
DEVICES = {"H001", "W001", "B004", "S013"}


def test_content_is_read_only_when_asked_for(patient: Callable[[str], Patient]) -> None:
    p = patient("compress-lz4")
    cluster_of_a_wrong_length(p)
    assert not bad(p.check())
    assert set(codes(p.check(content=True))) == {"Z002"}


def test_changed_content_of_a_sealed_file_has_no_repair(patient: Callable[[str], Patient]) -> None:
    p = patient("features")
    inodes = [entry.inode for _, _, entries in p.vol.walk() for entry in entries]
    sealed = next(inode for inode in inodes if getattr(inode, "verity", False) and inode.i_size)
    blkaddr = int(p.vol.data.addresses(sealed, 0, 1)[0])
    p.write(blkaddr * p.size, bytes([p.read(blkaddr * p.size, 1)[0] ^ 1]))
    assert not bad(p.check())
    report = p.check(content=True)
    assert [(f.code, f.ino) for f in bad(report)] == [("V002", sealed.ino)]


def test_every_code_of_the_catalogue_is_tried() -> None:
    from tests.fsck.test_corpus import EXPECTED

    corpus = {code for code, _, _ in EXPECTED.values()}
    assert {case[2] for case in CASES} | corpus | DEVICES == set(CATALOGUE)


@pytest.mark.parametrize(("name", "image", "code", "change", "also"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES])
def test_it_is_found_where_it_is(
    name: str, image: str, code: str, change: Change, also: set[str], patient: Callable[[str], Patient]
) -> None:
    p = patient(image)
    place = change(p)
    report = p.check(content=code in CONTENT)
    hits = [f for f in report.findings if f.code == code and all(getattr(f, k) == v for k, v in place.items())]
    assert hits, f"{place}:\n{said(report)}"
    least = min(CATALOGUE[code].severity, Severity.WARNING)
    assert set(codes(report)) <= {code} | also, said(report)
    if least == Severity.WARNING:
        assert bad(report)
