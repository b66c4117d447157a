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

from f2tools.fsck.findings import Severity
from f2tools.fsck.problems import CATALOGUE
from f2tools.layout.constants import OFFSET_BIT_SHIFT
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
    from f2tools.volume.checkpoint import read_nat_bits

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


# -- inodes -----------------------------------------------------------------------------------------------------------


@one("I021")
def nanoseconds(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_mtime_nsec=2_000_000_000)}


@one("I022", "features")
def creation_time(p: Patient) -> dict[str, Any]:
    path = "/small/empty" if False else _some_file(p)
    return {"blkaddr": p.inode(path, i_crtime=1 << 62)}


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


def _empty_file(p: Patient) -> str:
    for path, _, entries in p.vol.walk():
        for entry in entries:
            if getattr(entry.inode, "is_file", False) and not entry.inode.i_size and entry.inode.i_blocks == 1:
                return f"{path.decode().rstrip('/')}/{entry.name.decode()}"
    raise AssertionError("no empty file")


@one("I006")
def size_of_zero(p: Patient) -> dict[str, Any]:
    return {"blkaddr": p.inode("/medium/one", i_size=0)}


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
    blkaddr, entry, _ = p.dentry("/links", b"fifo2")
    p.put(entry + 4, 4, p.ino("/bigdir"))
    return {"blkaddr": blkaddr}


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


@pytest.mark.parametrize(("name", "image", "code", "change", "also"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES])
def test_it_is_found_where_it_is(
    name: str, image: str, code: str, change: Change, also: set[str], patient: Callable[[str], Patient]
) -> None:
    p = patient(image)
    place = change(p)
    report = p.check()
    hits = [f for f in report.findings if f.code == code and all(getattr(f, k) == v for k, v in place.items())]
    assert hits, f"{place}:\n{said(report)}"
    least = min(CATALOGUE[code].severity, Severity.WARNING)
    assert set(codes(report)) <= {code} | also, said(report)
    if least == Severity.WARNING:
        assert bad(report)
