"""Images that no kernel wrote: an empty volume of ours into which structures are put by hand, as hostile as need be."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import f2tools
from f2tools.f2fs.layout.dentry import SIZE_OF_DIR_ENTRY, bitmap_size, dentries_in, reserved_size
from f2tools.f2fs.layout.hashes import dentry_hash
from f2tools.f2fs.layout.nat import NatEntry
from f2tools.f2fs.layout.node import INODE_ADDR_OFFSET, Inode, NodeFooter
from tests.dump.craft import f2

SIZE = 4096
DIR, FILE, LINK = 0o40755, 0o100644, 0o120777
DOTS = [(b".", 3), (b"..", 3)]
NIDS_AT = SIZE - NodeFooter.size - 20
FIRST_FREE_SEGMENT = 6  # beyond the six open logs


class Forge:
    """Writes nodes and blocks one after the other; the NAT follows, all other tables are left as they were."""

    def __init__(self, path: Path) -> None:
        assert f2("mkfs", path, "--size", "256M", "-q").code == 0
        with f2tools.open(path) as volume:
            self._nat = volume.nat.blkaddrs.copy()
            self._per_block = volume.geo.nat_entries_per_block
            self._root = volume.root.inode.blkaddr
            self._next = volume.geo.main_blkaddr + FIRST_FREE_SEGMENT * 512
        self.path = path
        self._file = path.open("r+b")
        self._nid = 100

    def __enter__(self) -> Forge:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def new_nid(self) -> int:
        self._nid += 1
        return self._nid

    def block(self, data: bytes, blkaddr: int | None = None) -> int:
        """Write a block; returns its address."""
        if blkaddr is None:
            blkaddr, self._next = self._next, self._next + 1
        self._file.seek(blkaddr * SIZE)
        self._file.write(data.ljust(SIZE, b"\0"))
        return blkaddr

    def entries(self, *entries: tuple[bytes, int]) -> int:
        """A directory block with these names and inode numbers."""
        slots = dentries_in(SIZE)
        raw = bytearray(SIZE)
        table = bitmap_size(slots) + reserved_size(SIZE)
        names = table + SIZE_OF_DIR_ENTRY * slots
        slot = 0
        for name, ino in entries:
            taken = -(-len(name) // 8)
            assert slot + taken <= slots
            for used in range(slot, slot + taken):
                raw[used // 8] |= 1 << used % 8
            struct.pack_into("<IIHB", raw, table + SIZE_OF_DIR_ENTRY * slot, dentry_hash(name), ino, len(name), 1)
            raw[names + 8 * slot : names + 8 * slot + len(name)] = name
            slot += taken
        return self.block(bytes(raw))

    def inode(
        self,
        mode: int,
        size: int,
        addrs: Sequence[int] = (),
        nids: Sequence[int] = (),
        *,
        nid: int = 0,
        links: int = 1,
        xattr_nid: int = 0,
        blkaddr: int | None = None,
    ) -> int:
        """An inode without anything inline; returns its number."""
        nid = nid or self.new_nid()
        raw = bytearray(SIZE)
        for name, code, value in (
            ("i_mode", "<H", mode), ("i_links", "<I", links), ("i_size", "<Q", size), ("i_blocks", "<Q", 8),
            ("i_current_depth", "<I", 1), ("i_xattr_nid", "<I", xattr_nid), ("i_pino", "<I", 3),
        ):  # fmt: skip
            struct.pack_into(code, raw, Inode.offset_of(name), value)
        struct.pack_into(f"<{len(addrs)}I", raw, INODE_ADDR_OFFSET, *addrs)
        struct.pack_into(f"<{len(nids)}I", raw, NIDS_AT, *nids)
        return self._node(raw, nid, nid, blkaddr)

    def node(self, ino: int, words: Sequence[int], nid: int = 0) -> int:
        """A node of any other kind that holds these words."""
        raw = bytearray(SIZE)
        raw[: 4 * len(words)] = np.asarray(words, "<u4").tobytes()
        return self._node(raw, nid or self.new_nid(), ino, None)

    def root(self, *entries: tuple[bytes, int]) -> None:
        """Let the root directory hold these."""
        self.inode(DIR, SIZE, [self.entries(*DOTS, *entries)], nid=3, links=3, blkaddr=self._root)

    def directory(self, *entries: tuple[bytes, int], nid: int = 0) -> int:
        """A directory of one block."""
        return self.inode(DIR, SIZE, [self.entries(*DOTS, *entries)], nid=nid, links=2)

    def text(self, content: bytes, mode: int = FILE, links: int = 1) -> int:
        """A file or a symbolic link with this content."""
        return self.inode(mode, len(content), [self.block(content)], links=links)

    def _node(self, raw: bytearray, nid: int, ino: int, blkaddr: int | None) -> int:
        struct.pack_into("<IIIQI", raw, SIZE - NodeFooter.size, nid, ino, 0, 1, 0)
        blkaddr = self.block(bytes(raw), blkaddr)
        block, index = divmod(nid, self._per_block)
        self._file.seek(int(self._nat[block]) * SIZE + index * NatEntry.size)
        self._file.write(NatEntry(version=0, ino=ino, block_addr=blkaddr).build())
        return nid
