"""The format of the Direct Flash File System: its structures, all little-endian, and the arithmetic that follows from
the shape of the chip.

Everything is pages.  A page of a tree (inode, virtual inode, link) begins with a head that has a CRC-32 over the page;
a page of numbers (index, mapping table, space) and a page of content have none, and are verified by the tag in the
page's spare area.  Structures whose arrays fill a page are declared for pages of 4096 bytes; `at(page_size)` gives them
for others.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from f2tools.codec import Array, Bytes, Layout, field, u8, u16, u32, u64

SUPER_MAGIC = b"F2DFFSIM"
CHECKPOINT_MAGIC = b"F2DFFSCP"
INODE_MAGIC, VIRTUAL_MAGIC, LINK_MAGIC = 0x49464644, 0x56464644, 0x4C464644  # DFFI, DFFV, DFFL
VERSION = 1

ROOT_ID = 1
FIRST_INO = 1 << 16
"""Directories have their logical id for a number, all other files one from here on, which is used once."""
MOST_INOS = (1 << 32) - 1
"""The last number is given to no file: a checkpoint could not tell the next one."""
MOST_IDS = 1 << 15
"""Logical ids, the first of which is none: as many as the article's mapping table has."""
NAME_LEN = 255
LINK_MAX = 65000
TARGET_MAX = 4095
MOST_SUPERS, MOST_CHECKPOINT_BLOCKS, MOST_CHAIN = 2, 8, 32
MOST_SLOTS = 255  # of a virtual inode: a bucket names one in a byte, and 0 is none

# Kinds of pages, as their tag says.
SUPER, CHECKPOINT, DIRECTORY, VIRTUAL, FILE, LINK, INDEX, DATA, TABLE, SPACE = range(1, 11)
PAGE_KINDS = dict(
    zip(
        range(1, 11),
        ["super", "checkpoint", "dir", "virtual", "file", "link", "index", "data", "table", "space"],
        strict=True,
    )
)

COMMIT = 1
"""Of a tag: what was written since the last page with this flag counts together, from this page on."""

# What a bucket leads to, in the upper bits of its four bytes.
BY_PAGE, BY_ID, COLLISION, IN_MEMORY = 0, 1, 2, 3
POINTER_BITS = 30
POINTER_MASK = (1 << POINTER_BITS) - 1

INLINE = 1
"""Of an inode: its content lies in its page."""


class Tag(Layout):
    """struct dffs_tag: in the spare area behind the bad block mark; who owns the page, and when it was written."""

    t_kind: u8 = field("kind of the page")
    t_flags: u8 = field("1: a commit")
    t_id: u16 = field("logical id of what the page belongs to; 0 for a file that a directory finds by its page")
    t_parent: u16 = field("logical id of the directory in which the file was, then")
    t_hash: u32 = field("hash of the name that it had there")
    t_offset: u32 = field("of data: page of the file; of an index page: level and number; of a table: which page of it")
    t_ino: u32 = field("inode number; 0 where the page belongs to none")
    t_seq: u64 = field("how many pages were written to the log before, and some; never the same twice")
    t_data_crc: u32 = field("CRC-32 of the page")
    t_crc: u32 = field("CRC-32 of what is before it")


class Superblock(Layout):
    """struct dffs_super: the first page of the first good blocks; never written again."""

    magic: Annotated[bytes, Bytes(8)] = field("F2DFFSIM")
    version: u32 = field("of the format, 1")
    page_size: u32 = field("bytes of a page without its spare area")
    spare_size: u32 = field("bytes of the spare area")
    pages_per_block: u32 = field("of an erase block")
    blocks: u32 = field("erase blocks of the volume")
    supers: Annotated[object, Array(u32, MOST_SUPERS)] = field("blocks with a superblock")
    cp_blocks: Annotated[object, Array(u32, MOST_CHECKPOINT_BLOCKS)] = field("blocks for checkpoints, 0 for none")
    uuid: Annotated[bytes, Bytes(16)] = field("of the volume")
    made: u64 = field("when, in nanoseconds since 1970")
    crc: u32 = field("CRC-32 of what is before it")


class Checkpoint(Layout):
    """struct dffs_checkpoint: one page; behind it, as u32, the pages of the mapping table and of the space table."""

    magic: Annotated[bytes, Bytes(8)] = field("F2DFFSCP")
    crc: u32 = field("CRC-32 of the page, this field taken as zero")
    clean: u32 = field("1 where the volume was closed")
    number: u64 = field("how many checkpoints there were before")
    seq: u64 = field("the number that the next page of the log has")
    log_block: u32 = field("the block that the log is in")
    log_page: u32 = field("the page of it that is written next; as many as a block has where it is full")
    next_ino: u32 = field("the inode number that is given out next")
    live: u32 = field("pages in use")
    root: u32 = field("the page of the root directory")
    ids: u32 = field("logical ids in use")
    uuid: Annotated[bytes, Bytes(16)] = field("of the volume")
    time: u64 = field("when, in nanoseconds since 1970")
    chain: Annotated[object, Array(u32, MOST_CHAIN)] = field("the blocks that the log goes to next, in order; then 0")


class InodeHead(Layout):
    """struct dffs_inode: the head of a directory's or file's page; name and extended attributes follow."""

    i_magic: u32 = field("0x49464644")
    i_crc: u32 = field("CRC-32 of the page, this field taken as zero")
    i_id: u16 = field("logical id; 0 for a file that a directory finds by its page")
    i_parent: u16 = field("logical id of the directory that has the name below")
    i_name_len: u16 = field("bytes of the name; 0 for the root, and for a file whose first name is gone")
    i_xattr_len: u16 = field("bytes of extended attributes behind the name")
    i_ino: u32 = field("inode number")
    i_mode: u16 = field("type and permissions, as in st_mode")
    i_flags: u16 = field("1: the content is in this page")
    i_links: u32 = field("names, and for a directory also `.` and the `..` of those in it")
    i_uid: u32 = field("owner")
    i_gid: u32 = field("group")
    i_size: u64 = field("bytes; of a directory: children")
    i_rdev: u64 = field("of a device: the major number in the upper half, the minor in the lower")
    i_atime: u64 = field("last read, in nanoseconds since 1970")
    i_mtime: u64 = field("last change of the content")
    i_ctime: u64 = field("last change of the inode")
    i_crtime: u64 = field("when it was made")
    i_generation: u32 = field("tells an inode from an older one of the same number")
    i_pages: u32 = field("pages of content and index; of a directory: virtual inodes")
    i_first: u16 = field("of a directory: logical id of the first virtual inode; 0 for none")
    i_spare: Annotated[bytes, Bytes(22)] = field("zero")


class XattrRecord(Layout):
    """struct dffs_xattr: the head of an extended attribute; name and value follow."""

    name_len: u8 = field("bytes of the name, its name space included")
    value_len: u16 = field("bytes of the value")


class VirtualHead(Layout):
    """struct dffs_virtual: the head of a virtual inode, which holds the children of buckets with more than one."""

    v_magic: u32 = field("0x56464644")
    v_crc: u32 = field("CRC-32 of the page, this field taken as zero")
    v_id: u16 = field("logical id")
    v_dir: u16 = field("logical id of the directory")
    v_prev: u16 = field("logical id of the virtual inode before it in the directory's list; 0 for none")
    v_next: u16 = field("of the one after it")
    v_spare: Annotated[bytes, Bytes(16)] = field("zero")


class LinkPage(Layout):
    """struct dffs_link: a further name of a file; fills a page up with zeros."""

    l_magic: u32 = field("0x4c464644")
    l_crc: u32 = field("CRC-32 of the page, this field taken as zero")
    l_parent: u16 = field("logical id of the directory that has this name")
    l_target: u16 = field("logical id of the file")
    l_name_len: u16 = field("bytes of the name")
    l_name: Annotated[bytes, Bytes(NAME_LEN)] = field("the name")


class SpaceRecord(Layout):
    """struct dffs_space: what is known of an erase block; a bit for each page that is in use follows."""

    s_erases: u32 = field("how often it was erased")
    s_age: u32 = field("when it was last written, in blocks of the log")


@dataclass(frozen=True)
class Shape:
    """A chip's shape, and what follows from it."""

    blocks: int
    page_size: int
    spare_size: int
    pages_per_block: int

    @cached_property
    def pages(self) -> int:
        return self.blocks * self.pages_per_block

    @cached_property
    def ids(self) -> int:
        """Entries of the mapping table: at most an erase block of them."""
        return min(MOST_IDS, self.page_size * self.pages_per_block // 4)

    @cached_property
    def pointers(self) -> int:
        """Numbers of four bytes in a page."""
        return self.page_size // 4

    @cached_property
    def table_pages(self) -> int:
        return self.ids // self.pointers

    @cached_property
    def space_record(self) -> int:
        """Bytes of an erase block's record."""
        return SpaceRecord.size + -(-self.pages_per_block // 8)

    @cached_property
    def records_per_page(self) -> int:
        return self.page_size // self.space_record

    @cached_property
    def space_pages(self) -> int:
        return -(-self.blocks // self.records_per_page)

    @cached_property
    def buckets(self) -> int:
        """Of a directory: what is left of its page behind head and names takes four bytes and one for each."""
        return (self.page_size - InodeHead.size - self.dir_text) // 5

    @cached_property
    def dir_text(self) -> int:
        """Bytes for name and extended attributes of a directory: a name of 255 bytes, or a shorter one and those."""
        return NAME_LEN + 1 + (self.page_size - 2048) // 8

    @cached_property
    def body(self) -> int:
        """Bytes for the content of a file in its inode's page, or for the addresses of its pages."""
        return self.page_size * 5 // 8

    @cached_property
    def file_text(self) -> int:
        """Bytes for name and extended attributes of a file."""
        return self.page_size - InodeHead.size - self.body

    @cached_property
    def direct(self) -> int:
        """Pages whose address stands in the inode itself; three more lead to index pages of one, two, three levels."""
        return self.body // 4 - 3

    @cached_property
    def most_pages(self) -> int:
        """Pages of the largest file."""
        return self.direct + self.pointers + self.pointers**2 + self.pointers**3

    @cached_property
    def max_size(self) -> int:
        """Bytes of the largest file."""
        return min(self.most_pages, 1 << 28) * self.page_size

    @cached_property
    def slots(self) -> int:
        """Children that a virtual inode has room for."""
        return min(MOST_SLOTS, (self.page_size - VirtualHead.size) // 9)


def index_place(shape: Shape, number: int) -> tuple[int, int]:
    """(leaf, place in it) of a page of a file behind the direct ones; the leaf is -1 for those."""
    number -= shape.direct
    return (-1, number + shape.direct) if number < 0 else divmod(number, shape.pointers)


def index_parent(shape: Shape, level: int, number: int) -> tuple[int, int, int]:
    """(level, number, place) of what leads to an index page; level -1 is the inode, and the place one of its three.

    Leaves are level 0 and counted over the file.  Leaf 0 stands in the inode, so does the first page of level 1, which
    leads to the next leaves, and the one of level 2, which leads to all further pages of level 1.
    """
    if number == 0:
        return -1, 0, shape.direct + level
    above, place = divmod(number - 1, shape.pointers)
    return level + 1, above, place


def index_key(level: int, number: int) -> int:
    """What the tag of an index page says of its place."""
    return level << 28 | number


def index_range(shape: Shape, level: int, number: int) -> int:
    """The first page of a file that an index page is for."""
    while level:
        level, number = level - 1, number * shape.pointers + 1
    return shape.direct + number * shape.pointers
