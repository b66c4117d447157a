"""The format of the Direct File System: its structures, all little-endian, and the arithmetic of addresses.

Addresses are blocks of 512 bytes of the virtual space.  The space is cut into chunks of equal size.  Chunk 0 is the
system file; some chunks after it are cut into slots for small files; of the others each is one file's.  Which slot and
which chunk are a file's follows from its inode number, so there is nothing to allocate and no index: the address of a
byte is the file's base plus its offset, and the owner of any address is known without reading anything.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from f2tools.codec import Bytes, Layout, field, u8, u16, u32, u64

BLOCK = 512
SPACE_BITS = 64  # blocks of the whole space
MAGIC = b"F2DFSIMG"
WAL_MAGIC = b"F2DFSWAL"
VERSION, VERSION_HASHED = 1, 2
DOTS = (b".", b"..")

SUPER_PLACES = (16, 48)
"""The blocks with the two copies of the superblock; those before the first are for boot code."""
WAL_START = 64
INODE_START = 1 << 16
"""The block of inode 0, which is never used."""
ROOT_INO = 1
MOST_INOS = (1 << 32) - 1

CHUNK_BITS = 32
LEAST_CHUNK_BITS, MOST_CHUNK_BITS = 17, 48
SLOT_BLOCKS = 64
MOST_SLOT_BLOCKS = 1 << 11
LEAST_WAL_BLOCKS, MOST_WAL_BLOCKS = 64, 4096

NAME_LEN = 255
LINK_MAX = 65000

WAL_IDLE, WAL_COMMITTED = 0, 1
WAL_IMAGE, WAL_TRIM = 1, 2

SYSTEM, INODE, SLOT, CHUNK, NOBODY = "system", "inode", "slot", "chunk", "nobody"


class Superblock(Layout):
    """struct dfs_super: the shape of the volume; two copies, of which the one with the higher seq counts."""

    magic: Annotated[bytes, Bytes(8)] = field("F2DFSIMG")
    version: u32 = field("of the format: 1, or 2 where directories are hashed and there is no log")
    chunk_bits: u32 = field("a chunk has two to the power of this blocks")
    slot_blocks: u32 = field("blocks of a small file's slot, a power of two")
    wal_blocks: u32 = field("blocks of the write-ahead log, its head included; 0 where there is none")
    uuid: Annotated[bytes, Bytes(16)] = field("of the volume")
    made: u64 = field("when, in nanoseconds since 1970")
    seq: u64 = field("how often the superblock was written")
    clean: u32 = field("1 where the volume was closed, 0 where it is or was open for writing")
    crc: u32 = field("CRC-32 of what is before it")


class InodeBlock(Layout):
    """struct dfs_inode: one block each; the first 72 bytes are the article's, the rest is ours."""

    i_number: u32 = field("the inode number; 0 in a block that holds none")
    i_base: u64 = field("the block at which the content begins; 0 where there is none")
    i_mode: u16 = field("type and permissions, as in st_mode")
    i_links: u16 = field("names, and for a directory also `.` and the `..` of those in it")
    i_size: u64 = field("bytes")
    i_uid: u32 = field("owner")
    i_gid: u32 = field("group")
    i_flags: u32 = field("none is defined")
    i_generation: u32 = field("tells an inode from an older one of the same number")
    i_atime: u64 = field("last read, in nanoseconds since 1970")
    i_mtime: u64 = field("last change of the content")
    i_ctime: u64 = field("last change of the inode")
    i_crtime: u64 = field("when it was made")
    i_crc: u32 = field("CRC-32 of the block, this field taken as zero")
    i_rdev: u64 = field("of a device: the major number in the upper half, the minor in the lower")
    i_inline_len: u16 = field("bytes of a link's target that stand in `i_spare`")
    i_xattr_len: u16 = field("bytes of extended attributes that stand in `i_spare` behind the target")
    i_spare: Annotated[bytes, Bytes(424)] = field("a link's target, then extended attributes")


class DirRecord(Layout):
    """struct dfs_dirent: the head of a directory entry, as in FFS; the name follows, filled up to four bytes."""

    ino: u32 = field("inode number; 0 for room that is free")
    rec_len: u16 = field("bytes to the next record; the last one ends with its block")
    type: u8 = field("type of the file, as in st_mode >> 12")
    name_len: u8 = field("bytes of the name")


class XattrRecord(Layout):
    """struct dfs_xattr: the head of an extended attribute; name and value follow."""

    name_len: u8 = field("bytes of the name, its name space included")
    value_len: u16 = field("bytes of the value")


class WalHead(Layout):
    """struct dfs_wal_head: the first block of the write-ahead log; written after what it describes."""

    magic: Annotated[bytes, Bytes(8)] = field("F2DFSWAL")
    seq: u64 = field("number of the transaction")
    state: u32 = field("1: committed and perhaps not yet all at its place; 0: nothing to do")
    entries: u32 = field("records in the blocks behind the head")
    images: u32 = field("blocks behind the records")
    body_crc: u32 = field("CRC-32 of records and blocks, each as whole blocks")
    crc: u32 = field("CRC-32 of what is before it")


class WalEntry(Layout):
    """struct dfs_wal_entry: one thing that a transaction does."""

    kind: u32 = field("1: the next block behind the records belongs at `start`; 2: trim")
    start: u64 = field("the block")
    count: u64 = field("blocks to trim; 1 for a block to write")


@dataclass(frozen=True)
class Geometry:
    """Where everything lies, from the three numbers in the superblock."""

    chunk_bits: int
    slot_blocks: int
    wal_blocks: int

    @property
    def hashed(self) -> bool:
        """Whether directories are hashed; several blocks become safe by one write of the layer then, without a log."""
        return not self.wal_blocks

    @cached_property
    def chunk_blocks(self) -> int:
        return 1 << self.chunk_bits

    @cached_property
    def chunks(self) -> int:
        return 1 << (SPACE_BITS - self.chunk_bits)

    @cached_property
    def _inodes_that_fit(self) -> int:
        return min(MOST_INOS, self.chunk_blocks - INODE_START - 1)

    @cached_property
    def first_own_chunk(self) -> int:
        """The chunk of inode 0; those before it, but for chunk 0, hold the slots."""
        return 1 + -(-(self._inodes_that_fit + 1) * self.slot_blocks // self.chunk_blocks)

    @cached_property
    def max_ino(self) -> int:
        """The highest inode number: as many as the system file has room for and there are chunks for."""
        return min(self._inodes_that_fit, self.chunks - self.first_own_chunk - 1)

    @cached_property
    def slot_bytes(self) -> int:
        """The largest small file."""
        return self.slot_blocks * BLOCK

    @cached_property
    def max_size(self) -> int:
        """The largest file: a chunk."""
        return self.chunk_blocks * BLOCK

    def inode_block(self, ino: int) -> int:
        """Where an inode lies."""
        return INODE_START + ino

    def slot(self, ino: int) -> int:
        """The base of a small file."""
        return self.chunk_blocks + ino * self.slot_blocks

    def own_chunk(self, ino: int) -> int:
        """The base of a directory, or of a file that is not small any more."""
        return (self.first_own_chunk + ino) << self.chunk_bits

    def place_blocks(self, ino: int, base: int) -> int:
        """How many blocks a file may have at that base; 0 where the base is not one of this inode's."""
        if base == self.slot(ino):
            return self.slot_blocks
        return self.chunk_blocks if base == self.own_chunk(ino) else 0

    def owner(self, block: int) -> tuple[str, int, int]:
        """(what lies at an address, its inode, the end of that place); the inode is 0 where there is none."""
        chunk = block >> self.chunk_bits
        if chunk == 0:
            if block < INODE_START:
                return SYSTEM, 0, INODE_START
            ino = block - INODE_START
            return (INODE, ino, block + 1) if 0 < ino <= self.max_ino else (NOBODY, 0, block + 1)
        if chunk < self.first_own_chunk:
            ino = (block - self.chunk_blocks) // self.slot_blocks
            kind = SLOT if 0 < ino <= self.max_ino else NOBODY
            return kind, ino if kind == SLOT else 0, self.slot(ino + 1)
        ino = chunk - self.first_own_chunk
        kind = CHUNK if 0 < ino <= self.max_ino else NOBODY
        return kind, ino if kind == CHUNK else 0, self.own_chunk(ino + 1)
