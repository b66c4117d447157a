"""Whether a volume can go back to its older checkpoint.

What the older checkpoint refers to is kept until the newer one is complete.  From then on its blocks that the newer one
has no use for may be written over, or discarded, and a checkpoint that was begun after the newer one may have written
over its tables.  Nodes say whose they are and when they were written, and every block must be exactly where the SIT
says, so what happened to nodes and tables is seen.  Data blocks say nothing: it is only known whether they may have
been written over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from f2tools.errors import F2fsError
from f2tools.f2fs.layout.constants import (
    CP_CRC_RECOVERY_FLAG,
    F2FS_DEVICE_ALIAS_FL,
    NEW_ADDR,
    NULL_ADDR,
    OFFSET_BIT_SHIFT,
)
from f2tools.f2fs.layout.footers import body_of, footers_of
from f2tools.f2fs.layout.node_tree import kind_of_node
from f2tools.f2fs.volume.checkpoint import Pack
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.volume.recovery import find_fsync_chain
from f2tools.f2fs.volume.volume import RESERVED_NODES, Volume
from f2tools.recover.paths import path_of

BATCH = 4096  # nodes, or blocks, looked at together


@dataclass(frozen=True)
class AtRisk:
    """A file with blocks that the newer checkpoint no longer keeps."""

    ino: int
    path: str | None
    blocks: int  # that may have been written over
    overwritten: int  # that have been: the newer log says so
    zero: int  # that hold nothing but zeros, as discarded ones do


@dataclass(frozen=True)
class Verdict:
    """What is known about the older checkpoint's state; fields are stable names of the JSON."""

    possible: bool  # its tables and nodes are there, and no file's block is known to be lost
    certain: bool  # and no file's content can have been lost
    reasons: list[str]  # why not
    files: list[AtRisk]
    given_up: int  # nodes that were fsync'ed after the newer checkpoint
    valid_blocks: dict[str, int] = field(default_factory=dict)  # of both checkpoints

    @property
    def word(self) -> str:
        """In one word."""
        return "yes" if self.certain else "perhaps" if self.possible else "no"


def judge_older(older: Volume, newest: Volume) -> Verdict:
    """Compare the older checkpoint's state with what may have been written since; nothing is written."""
    return _Judge(older, newest).run()


class _Judge:
    def __init__(self, older: Volume, newest: Volume) -> None:
        self._old, self._new, self._geo = older, newest, older.geo
        self._later = _cp_ver(newest.pack)
        count = self._geo.segment_count_main * self._geo.blocks_per_seg
        self._kept = np.unpackbits(older.sit.valid_map()).astype(np.bool_)[:count]
        self._loose = self._kept & ~np.unpackbits(newest.sit.valid_map()).astype(np.bool_)[:count]
        self._reached = np.zeros(count, np.bool_)
        self._lost_nodes: list[int] = []
        self._late_nodes: list[int] = []
        self._aliases = False
        self._owners: list[tuple[int, NDArray[np.int64]]] = []  # (ino, addresses that are loose)

    def run(self) -> Verdict:
        reasons = [*self._old.nat.problems, *self._old.sit.problems]
        chain = find_fsync_chain(self._new)
        overwritten = self._written_since(chain.chain)
        self._look_at_nodes()
        self._look_at_what_comes_back()
        reasons += self._of_tables()
        files = self._files(overwritten)
        lost = sum(file.overwritten for file in files)
        if lost:
            reasons.append(f"{lost} blocks of files have been written over since")
        possible = not reasons
        unsure = 0
        if self._new.clean and not chain.chain:
            unsure = sum(file.zero for file in files)
            if unsure:
                reasons.append(f"{unsure} blocks of files hold only zeros: they may have been discarded")
        else:
            unsure = sum(file.blocks for file in files)
            if unsure:
                reasons.append(
                    f"{unsure} blocks of files were free after the newer checkpoint, and the volume was written to "
                    "after it: whether they were written over can't be seen"
                )
        counts = {"older": int(self._old.cp.valid_block_count), "newer": int(self._new.cp.valid_block_count)}
        return Verdict(possible, possible and not unsure, reasons, files, len(chain.chain), counts)

    def _look_at_nodes(self) -> None:
        nat, device, size = self._old.nat, self._old.device, self._geo.block_size
        used = nat.used()
        used = used[used >= RESERVED_NODES]
        for at in range(0, used.size, BATCH):
            nids = used[at : at + BATCH]
            rows = nat.lookup(nids)
            addrs = rows["block_addr"].astype(np.int64)
            inside = self._geo.in_main(addrs) & (addrs != NEW_ADDR)
            self._lost_nodes += nids[~inside].tolist()
            nids, addrs, inos = nids[inside], addrs[inside], rows["ino"][inside]
            try:
                blocks = device.read_blocks(addrs, size)
            except F2fsError:
                self._lost_nodes += nids.tolist()
                continue
            footers = footers_of(blocks)
            bad = (footers["nid"] != nids) | (footers["ino"] != inos)
            late = ~bad & (footers["cp_ver"] == self._later)
            self._lost_nodes += nids[bad].tolist()
            self._late_nodes += nids[late].tolist()
            self._reached[addrs - self._geo.main_blkaddr] = True
            fine = np.flatnonzero(~bad & ~late)
            for index, nid, ino, flag in zip(
                fine.tolist(), nids[fine].tolist(), inos[fine].tolist(), footers["flag"][fine].tolist(), strict=True
            ):
                self._addresses(ino, self._words(blocks[index], nid, ino, flag >> OFFSET_BIT_SHIFT, int(addrs[index])))

    def _words(self, block: NDArray[np.uint8], nid: int, ino: int, offset: int, blkaddr: int) -> NDArray[Any]:
        """The block addresses in a node; none where it has no such."""
        none = np.zeros(0, "<u4")
        if nid != ino:
            holds = kind_of_node(offset, self._geo.addrs_per_block) == "direct"
            return body_of(block).view("<u4")[: self._geo.addrs_per_block] if holds else none
        inode = Inode(self._geo, block, ino, blkaddr)
        if inode.i_flags & F2FS_DEVICE_ALIAS_FL:
            self._aliases = True
            return none
        if inode.kind not in ("file", "dir", "symlink") or inode.has_inline_data or inode.has_inline_dentry:
            return none
        return inode.addrs

    def _addresses(self, ino: int, words: NDArray[Any]) -> None:
        if not words.any():
            return
        addrs = words.astype(np.int64)
        places = addrs[self._geo.in_main(addrs)] - self._geo.main_blkaddr
        self._reached[places] = True
        loose = places[self._loose[places]]
        if loose.size:
            self._owners.append((ino, loose + self._geo.main_blkaddr))

    def _look_at_what_comes_back(self) -> None:
        """Blocks fsync'ed after the older checkpoint that the newer one does not keep for the same node."""
        found = find_fsync_chain(self._old)
        for file in found.files.values():
            for at in range(0, len(file.nodes), BATCH):
                nodes = [found.chain[index] for index in file.nodes[at : at + BATCH]]
                places = np.array([node.blkaddr for node in nodes], np.int64)
                blocks = self._old.device.read_blocks(places, self._geo.block_size)
                for block, node in zip(blocks, nodes, strict=True):
                    words = self._words(block, node.nid, node.ino, node.offset, node.blkaddr).astype(np.int64)
                    words = words[self._geo.in_main(words)]
                    words = words[~self._old.sit.valid(words)]
                    gone = ~self._new.sit.valid(words) | (self._owners_now(words) != node.nid)
                    if gone.any():
                        self._owners.append((file.ino, words[gone]))

    def _owners_now(self, blkaddrs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The nids that the newer checkpoint's summaries give for blocks."""
        owners = np.zeros(blkaddrs.size, np.int64)
        segnos = self._geo.segno(blkaddrs)
        for segno in np.unique(segnos).tolist():
            here = segnos == segno
            entries = self._new.summaries.of_segment(segno)[1]
            owners[here] = entries["nid"][blkaddrs[here] - self._geo.start_block(segno)]
        return owners

    def _of_tables(self) -> Iterator[str]:
        for nids, text in (
            (self._lost_nodes, "are not where its tables say"),
            (self._late_nodes, "have been written over since"),
        ):
            if nids:
                yield f"{len(nids)} nodes {text}, the first is {nids[0]}"
        if self._lost_nodes or self._late_nodes or self._aliases:
            return
        odd = int((self._reached != self._kept).sum())
        if odd:
            yield f"its tables have been written over since: {odd} blocks are in use for one and free for another"

    def _written_since(self, chain: list[Any]) -> NDArray[np.int64]:
        """Addresses that the log after the newer checkpoint names, rising: nodes and their data."""
        found: list[NDArray[np.int64]] = [np.array([node.blkaddr for node in chain], np.int64)]
        for at in range(0, len(chain), BATCH):
            some = chain[at : at + BATCH]
            blocks = self._new.device.read_blocks(
                np.array([node.blkaddr for node in some], np.int64), self._geo.block_size
            )
            for block, node in zip(blocks, some, strict=True):
                words = self._words(block, node.nid, node.ino, node.offset, node.blkaddr).astype(np.int64)
                words = words[(words != NULL_ADDR) & self._geo.in_main(words)]
                found.append(words[~self._new.sit.valid(words)])
        return np.unique(np.concatenate(found))

    def _files(self, overwritten: NDArray[np.int64]) -> list[AtRisk]:
        by_ino: dict[int, list[NDArray[np.int64]]] = {}
        for ino, addrs in self._owners:
            by_ino.setdefault(ino, []).append(addrs)
        files: list[AtRisk] = []
        for ino, parts in sorted(by_ino.items()):
            addrs = np.concatenate(parts)
            zero = 0
            for at in range(0, addrs.size, BATCH):
                blocks = self._old.device.read_blocks(addrs[at : at + BATCH], self._geo.block_size)
                zero += int((~blocks.any(axis=1)).sum())
            files.append(AtRisk(ino, self._path(ino), addrs.size, int(np.isin(addrs, overwritten).sum()), zero))
        return files

    def _path(self, ino: int) -> str | None:
        try:
            path = path_of(self._old, self._old.nodes.inode(ino))
        except F2fsError:
            return None
        return None if path is None else os.fsdecode(path)


def _cp_ver(pack: Pack) -> int:
    """What the footers of nodes carry that were written after a checkpoint."""
    version = pack.cp.checkpoint_ver
    if pack.cp.ckpt_flags & CP_CRC_RECOVERY_FLAG:
        version |= pack.crc << 32
    return version & (1 << 64) - 1
