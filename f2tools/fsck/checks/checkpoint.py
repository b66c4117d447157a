"""Both checkpoint packs, their journals, nat_bits and orphans; and, after the scan, the counts of the one in use."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    CP_COMPACT_SUM_FLAG,
    CP_DISABLED_FLAG,
    CP_ERROR_FLAG,
    CP_FASTBOOT_FLAG,
    CP_FLAGS,
    CP_FSCK_FLAG,
    CP_ORPHAN_PRESENT_FLAG,
    CP_QUOTA_NEED_FSCK_FLAG,
    CP_UMOUNT_FLAG,
    F2FS_FEATURE_RO,
    NULL_ADDR,
)
from f2tools.f2fs.volume.checkpoint import Pack, read_nat_bits, was_begun
from f2tools.f2fs.volume.derived import sound_tails
from f2tools.fsck import problems
from f2tools.fsck.facts.image import Image
from f2tools.fsck.facts.nodes import INODE, UNKNOWN
from f2tools.fsck.facts.orphans import orphan_rows, orphans_of
from f2tools.fsck.facts.scan import Scan
from f2tools.fsck.findings import Finding
from f2tools.fsck.newer import behind_no_pack, newer_state
from f2tools.fsck.plans import ComputeAnew, CountNodes, DropOrphan, PutTogetherPack, RewritePack
from f2tools.text import counted


def check_packs(image: Image) -> Iterator[Finding]:
    """Head and tail of each pack agree in version and pass their checksums."""
    lost = not any(pack.valid for pack in image.packs)
    problem, plan = (problems.CP_LOST, PutTogetherPack) if lost else (problems.CP_PACK, RewritePack)
    for pack in image.packs:
        if pack.valid:
            continue
        if image.pack is not None and not lost and was_begun(image.device, image.geo, pack, image.pack):
            yield Finding(problems.CP_UNFINISHED, area="cp", blkaddr=pack.blkaddr, note="; ".join(pack.problems))
            continue
        newer = newer_state(image) if image.pack is not None and pack.index != image.pack.index else None
        if newer is None and not lost and not image.repaired and _was_given_up(image, pack):
            yield Finding(problems.CP_GIVEN_UP, area="cp", blkaddr=pack.blkaddr)
            continue
        yield Finding(problem, area="cp", blkaddr=pack.blkaddr, note="; ".join(pack.problems), repair=plan(pack.index))
        if newer is not None:
            problem = problems.CP_NEWER if newer.sure else problems.CP_PERHAPS_NEWER
            note = "" if newer.whole or not newer.sure else problems.ONLY_NODES
            yield Finding(problem, area="cp", blkaddr=pack.blkaddr, note=note, found=newer.much)
    if image.turn is not None:
        pack, was, version = image.turn[:3]
        place = {"area": "cp", "blkaddr": image.packs[pack].blkaddr, "repair": PutTogetherPack(pack)}
        yield Finding(problems.CP_TURN, **place, found=f"{was:#x}", expected=f"{version:#x}")
    if image.pack is None:
        yield Finding(problems.CP_UNUSABLE, area="cp", blkaddr=image.geo.cp_blkaddr)
    elif image.pack_derived:
        note = "the check goes on with what tables and nodes imply"
        yield Finding(
            problems.CP_GONE,
            area="cp",
            blkaddr=image.geo.cp_blkaddr,
            note=note,
            repair=PutTogetherPack(0),
        )


def _was_given_up(image: Image, pack: Pack) -> bool:
    """Whether only the head of the pack before was made zeros, as rebuild_checkpoint() in resize.f2fs does.

    What follows it is still there: where that is zeros, too, a newer pack may have been hit, and this be an older tail.
    """
    if image.pack is None or not pack.empty or not image.cp.ckpt_flags & CP_UMOUNT_FLAG:
        return False
    blocks = image.device.read_range(pack.blkaddr, image.geo.blocks_per_seg, image.block_size)
    versions = [tail.checkpoint_ver for tail, _ in sound_tails(blocks, image.geo)]
    return versions == [image.cp.checkpoint_ver - 1] and bool(blocks[1 + image.geo.cp_payload].any())


def check_flags(image: Image) -> Iterator[Finding]:
    """The flags are known, and do not ask for a check."""
    if image.pack is None:
        return
    flags, place = image.cp.ckpt_flags, {"area": "cp", "blkaddr": image.pack.blkaddr}
    unknown = flags & ~sum(CP_FLAGS.values())
    if unknown:
        yield Finding(problems.CP_FLAGS_UNKNOWN, **place, found=f"{unknown:#x}")
    if flags & (CP_ERROR_FLAG | CP_FSCK_FLAG):
        yield Finding(problems.CP_WANTS_CHECK, **place, found=f"{flags:#x}", repair=ComputeAnew("checkpoint-flags"))
    if flags & CP_QUOTA_NEED_FSCK_FLAG:
        yield Finding(problems.CP_QUOTA_STALE, **place, repair=ComputeAnew("quota"))
    if not flags & CP_UMOUNT_FLAG:
        yield Finding(problems.CP_NOT_CLEAN, **place)


def check_space(image: Image) -> Iterator[Finding]:
    """user_block_count leaves out overprovision and holds what is in use; overprovision is there."""
    if image.pack is None:
        return
    cp, place = image.cp, {"area": "cp", "blkaddr": image.pack.blkaddr, "repair": ComputeAnew("user-blocks")}
    blocks = image.geo.segment_count_main * image.geo.blocks_per_seg
    if not 0 < cp.user_block_count <= blocks or cp.valid_block_count > cp.user_block_count:
        yield Finding(
            problems.CP_USER_BLOCKS, **place,
            note=f"user_block_count {cp.user_block_count}, in use {cp.valid_block_count}, main area {blocks}",
        )  # fmt: skip
    if image.geo.feature & F2FS_FEATURE_RO:
        return
    if not cp.rsvd_segment_count or not cp.overprov_segment_count:
        yield Finding(
            problems.CP_USER_BLOCKS, **place,
            note=f"{counted(cp.rsvd_segment_count, 'segment')} reserved, {cp.overprov_segment_count} overprovisioned",
        )  # fmt: skip
    elif cp.overprov_segment_count >= image.geo.segment_count_main:
        yield Finding(
            problems.CP_USER_BLOCKS, **place, note=f"overprovision of {counted(cp.overprov_segment_count, 'segment')}"
        )
    elif cp.rsvd_segment_count >= image.geo.segment_count_main:
        yield Finding(problems.CP_USER_BLOCKS, **place, note=f"{counted(cp.rsvd_segment_count, 'segment')} reserved")


def check_next_nid(image: Image) -> Iterator[Finding]:
    """next_free_nid is a node number."""
    if image.pack is not None and image.cp.next_free_nid >= image.geo.max_nid:
        yield Finding(
            problems.CP_NEXT_NID, area="cp", blkaddr=image.pack.blkaddr, found=image.cp.next_free_nid,
            repair=ComputeAnew("next-free-nid"),
        )  # fmt: skip


def check_layout(image: Image) -> Iterator[Finding]:
    """Orphan blocks, summaries and tail fill the pack without a gap."""
    if image.pack is None:
        return
    cp, payload = image.cp, image.geo.cp_payload
    orphans = cp.cp_pack_start_sum - 1 - payload
    said = ""
    if orphans and not cp.ckpt_flags & CP_ORPHAN_PRESENT_FLAG:
        said = f"{orphans} orphan blocks without the flag"
    summaries = cp.cp_pack_total_block_count - 1 - cp.cp_pack_start_sum
    node = 3 if cp.ckpt_flags & (CP_UMOUNT_FLAG | CP_FASTBOOT_FLAG) else 0
    data = (1, 2, 3) if cp.ckpt_flags & CP_COMPACT_SUM_FLAG else (3,)
    if summaries - node not in data:
        said = f"{summaries} summary blocks, {node} of them for nodes"
    if image.pack_refitted:
        was = image.packs[image.pack.index].cp
        said = f"flags {was.ckpt_flags:#x} and cp_pack_start_sum {was.cp_pack_start_sum} are not what its blocks say"
    if said:
        yield Finding(
            problems.CP_LAYOUT,
            area="cp",
            blkaddr=image.pack.blkaddr,
            note=said,
            repair=ComputeAnew("rewrite-checkpoint"),
        )


def check_later(image: Image) -> Iterator[Finding]:
    """No node was written behind a checkpoint later than both packs, where these are whole."""
    if image.pack is None or not all(pack.valid for pack in image.packs):
        return
    later = behind_no_pack(image)
    if later.size:
        note = "1 node block" if later.size == 1 else f"{later.size} node blocks"
        yield Finding(problems.CP_LATER, area="main", blkaddr=int(later[0]), note=note)


def check_journals(image: Image) -> Iterator[Finding]:
    """The journals hold as many entries as fit, each for another nid or segment that exists."""
    if image.pack is None:
        return
    place = {"area": "cp", "blkaddr": image.pack.sum_blkaddr}
    journals = image.summaries.journals
    for text in journals.problems:
        problem = problems.NAT_JOURNAL if text.startswith("NAT") else problems.SIT_JOURNAL
        yield Finding(problem, **place, note=text, repair=ComputeAnew("journal"))
    for problem, numbers in (
        (problems.NAT_JOURNAL, journals.nat["nid"]),
        (problems.SIT_JOURNAL, journals.sit["segno"]),
    ):
        values, counts = np.unique(numbers, return_counts=True)
        for value in values[counts > 1].tolist():
            yield Finding(problem, **place, note=f"{value} stands in it twice", repair=ComputeAnew("journal"))


def check_nat_bits(image: Image) -> Iterator[Finding]:
    """nat_bits say correctly which NAT blocks are full and which are empty."""
    if image.pack is None:
        return
    try:
        bits = read_nat_bits(image.device, image.geo, image.pack)
    except F2fsError:
        return
    if bits is None or not bits.matches:  # the kernel ignores bits that carry another key
        return
    geo = image.geo
    used = image.nat.in_use()
    capacity = np.full(geo.nat_blocks, geo.nat_entries_per_block)
    capacity[0] -= 1  # nid 0 is never in use
    full = used >= capacity
    wrong = (bits.full[: geo.nat_blocks] & ~full) | (bits.empty[: geo.nat_blocks] != (used == 0))
    if wrong.any():
        number = int(np.flatnonzero(wrong)[0])
        yield Finding(
            problems.CP_NAT_BITS, area="cp", blkaddr=bits.blkaddr, nid=number * geo.nat_entries_per_block,
            note=f"NAT block {number} has {used[number]} entries in use", count=int(wrong.sum()),
            repair=ComputeAnew("nat-bits"),
        )  # fmt: skip


def check_orphan_blocks(image: Image) -> Iterator[Finding]:
    """Orphan blocks are numbered, and hold as many inodes as they say."""
    if image.pack is None or not image.cp.ckpt_flags & CP_ORPHAN_PRESENT_FLAG:
        return
    start, rows = orphan_rows(image)
    for number, row in enumerate(rows):
        place = {"area": "cp", "blkaddr": start + number, "repair": ComputeAnew("orphans")}
        if row["entry_count"] > row["ino"].size:
            yield Finding(
                problems.ORPHAN_LIST, **place, note="entries", found=int(row["entry_count"]),
                expected=f"at most {row['ino'].size}",
            )  # fmt: skip
        if row["blk_count"] != len(rows) or row["blk_addr"] != number + 1:
            yield Finding(
                problems.ORPHAN_LIST, **place, found=f"block {row['blk_addr']} of {row['blk_count']}",
                expected=f"block {number + 1} of {len(rows)}",
            )  # fmt: skip


# -- after the scan ---------------------------------------------------------------------------------------------------


def check_counts(scan: Scan) -> Iterator[Finding]:
    """Counts of blocks, nodes and inodes agree with the NAT; either way of counting blocks will do.

    A block that only the SIT knows, or only a pointer, is reported where it is; here, only a count that neither gives.
    """
    image = scan.image
    assert image.pack is not None
    place = {"area": "cp", "blkaddr": image.pack.blkaddr}
    cp, counts = image.cp, ComputeAnew("counts")
    nodes = scan.nid.size
    by_files = int(scan.inodes["data"].sum()) + int(np.count_nonzero(scan.kind != UNKNOWN))
    by_sit = int(image.sit.vblocks.astype(np.int64).sum()) + scan.reserved
    if cp.valid_block_count not in (by_files, by_sit):
        yield Finding(problems.CP_BLOCKS, **place, found=cp.valid_block_count, expected=by_files, repair=counts)
    if cp.valid_node_count != nodes:
        yield Finding(problems.CP_NODES, **place, found=cp.valid_node_count, expected=nodes, repair=CountNodes())
    inodes = count_inodes(scan)
    if cp.valid_inode_count != inodes:
        yield Finding(problems.CP_INODES, **place, found=cp.valid_inode_count, expected=inodes, repair=counts)


def count_inodes(scan: Scan) -> int:
    """How many nodes are inodes; of those that can't be read the NAT says it."""
    return int(np.count_nonzero((scan.kind == INODE) | ((scan.kind == UNKNOWN) & (scan.nat_ino == scan.nid))))


def check_free_segments(scan: Scan) -> Iterator[Finding]:
    """free_segment_count is the number of segments without valid blocks, open logs left out."""
    image = scan.image
    assert image.pack is not None
    if image.cp.ckpt_flags & CP_DISABLED_FLAG:  # segments that hold the last checkpoint's blocks are not free
        return
    empty = image.sit.vblocks == 0
    for curseg in image.summaries.cursegs:
        empty[curseg.segno] = False
    free = int(np.count_nonzero(empty))
    if image.cp.free_segment_count != free:
        yield Finding(
            problems.CP_FREE_SEGMENTS, area="cp", blkaddr=image.pack.blkaddr, found=image.cp.free_segment_count,
            expected=free, repair=ComputeAnew("counts"),
        )  # fmt: skip


def check_orphans(scan: Scan) -> Iterator[Finding]:
    """Every orphan is an inode that no directory entry leads to."""
    image = scan.image
    assert image.pack is not None
    inos = orphans_of(image)
    rows = scan.rows_of(inos)
    table = scan.dentries.table
    named = np.isin(inos, table["ino"][table["dots"] == 0])
    for i, (ino, row) in enumerate(zip(inos.tolist(), rows.tolist(), strict=True)):
        place = {"area": "cp", "blkaddr": image.pack.blkaddr + 1 + image.geo.cp_payload, "ino": ino}
        if row < 0 or scan.addr[row] == NULL_ADDR or scan.kind[row] != INODE:
            yield Finding(problems.ORPHAN_INODE, **place, repair=DropOrphan(ino))
        elif named[i]:
            yield Finding(problems.ORPHAN_LINKED, **place, repair=DropOrphan(ino))


IMAGE_CHECKS = (
    check_packs, check_later, check_flags, check_space, check_next_nid, check_layout, check_journals, check_nat_bits,
    check_orphan_blocks,
)  # fmt: skip
SCAN_CHECKS = (check_counts, check_free_segments, check_orphans)
