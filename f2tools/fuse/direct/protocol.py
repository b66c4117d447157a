"""What goes over /dev/fuse, as include/uapi/linux/fuse.h has it: opcodes, flags, structures.

A structure is a line of a table in the kernel's names; numbers are those of this machine, as the kernel is.  Version
7.39 is spoken, and with older kernels theirs, from 7.33 on.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from enum import IntEnum, IntFlag

FUSE_KERNEL_VERSION = 7
FUSE_KERNEL_MINOR_VERSION = 39  # which has statx; what came later isn't used
DIRECT_WRITES_SEEN = 39  # minor version of Linux 6.6, the first that drops cached pages of what is written past them
OLDEST_MINOR_VERSION = 33  # Linux 5.13, the first with all that NEEDED names in `server`
FUSE_ROOT_ID = 1


class Opcode(IntEnum):
    """What is asked."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    IOCTL = 39
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47
    SYNCFS = 50
    TMPFILE = 51
    STATX = 52


class Init(IntFlag):
    """Flags of INIT; those from bit 32 on stand in `flags2`."""

    ASYNC_READ = 1 << 0
    ATOMIC_O_TRUNC = 1 << 3
    EXPORT_SUPPORT = 1 << 4
    BIG_WRITES = 1 << 5
    DONT_MASK = 1 << 6
    HAS_IOCTL_DIR = 1 << 11
    DO_READDIRPLUS = 1 << 13
    READDIRPLUS_AUTO = 1 << 14
    ASYNC_DIO = 1 << 15
    WRITEBACK_CACHE = 1 << 16
    PARALLEL_DIROPS = 1 << 18
    POSIX_ACL = 1 << 20
    MAX_PAGES = 1 << 22
    CACHE_SYMLINKS = 1 << 23
    HANDLE_KILLPRIV_V2 = 1 << 28
    SETXATTR_EXT = 1 << 29
    INIT_EXT = 1 << 30


# which fields of a setattr count
FATTR_MODE = 1 << 0
FATTR_UID = 1 << 1
FATTR_GID = 1 << 2
FATTR_SIZE = 1 << 3
FATTR_ATIME = 1 << 4
FATTR_MTIME = 1 << 5
FATTR_FH = 1 << 6
FATTR_ATIME_NOW = 1 << 7
FATTR_MTIME_NOW = 1 << 8
FATTR_LOCKOWNER = 1 << 9
FATTR_CTIME = 1 << 10
FATTR_KILL_SUIDGID = 1 << 11

FUSE_WRITE_CACHE, FUSE_WRITE_KILL_SUIDGID = 1 << 0, 1 << 2
FUSE_OPEN_KILL_SUIDGID = 1 << 0
FUSE_SETXATTR_ACL_KILL_SGID = 1 << 0
FUSE_FSYNC_FDATASYNC = 1 << 0
FUSE_NOTIFY_INVAL_INODE = 2
FOPEN_DIRECT_IO = 1 << 0
FOPEN_KEEP_CACHE = 1 << 1
FUSE_IOCTL_DIR = 1 << 4


class Structure(struct.Struct):
    """A structure of the protocol: packs and unpacks its fields in their order, `x` paddings left out."""

    def __init__(self, name: str, fields: str) -> None:
        words = fields.split()
        super().__init__("=" + "".join(words[::2]))
        self.name = name
        self.fields = tuple(words[1::2])
        self.kinds = tuple(words[::2])

    def offset_of(self, field: str) -> int:
        """Where a field lies, in bytes."""
        return struct.calcsize("=" + "".join(self.kinds[: self.fields.index(field)]))


# Each field with its letter of the module struct.  Times are signed: before 1970 the kernel reads them so.
ATTR = (
    "Q ino Q size Q blocks q atime q mtime q ctime I atimensec I mtimensec I ctimensec I mode I nlink I uid I gid"
    " I rdev I blksize I flags"
)
ENTRY = "Q nodeid Q generation Q entry_valid Q attr_valid I entry_valid_nsec I attr_valid_nsec "
TIME = "q {0}_sec I {0}_nsec 4x {0}_reserved"
DECLARED = {
    "fuse_in_header": "I len I opcode Q unique Q nodeid I uid I gid I pid H total_extlen 2x padding",
    "fuse_out_header": "I len i error Q unique",
    "fuse_init_in": "I major I minor I max_readahead I flags I flags2 44x unused",
    "fuse_init_out": (
        "I major I minor I max_readahead I flags H max_background H congestion_threshold I max_write I time_gran"
        " H max_pages H map_alignment I flags2 28x unused"
    ),
    "fuse_forget_in": "Q nlookup",
    "fuse_batch_forget_in": "I count 4x dummy",
    "fuse_forget_one": "Q nodeid Q nlookup",
    "fuse_entry_out": ENTRY + ATTR,  # with the attributes that follow
    "fuse_attr_out": "Q attr_valid I attr_valid_nsec 4x dummy " + ATTR,
    "fuse_getattr_in": "I getattr_flags 4x dummy Q fh",
    "fuse_statx_in": "I getattr_flags 4x reserved Q fh I sx_flags I sx_mask",
    "fuse_statx_out": (
        "Q attr_valid I attr_valid_nsec I flags 16x spare I mask I blksize Q attributes I nlink I uid I gid H mode"
        f" 2x __spare0 Q ino Q size Q blocks Q attributes_mask {TIME.format('atime')} {TIME.format('btime')}"
        f" {TIME.format('ctime')} {TIME.format('mtime')} I rdev_major I rdev_minor I dev_major I dev_minor"
        " 112x __spare2"
    ),
    "fuse_setattr_in": (
        "I valid 4x padding Q fh Q size Q lock_owner q atime q mtime q ctime I atimensec I mtimensec I ctimensec"
        " I mode 4x unused4 I uid I gid 4x unused5"
    ),
    "fuse_mknod_in": "I mode I rdev I umask 4x padding",
    "fuse_mkdir_in": "I mode I umask",
    "fuse_rename_in": "Q newdir",
    "fuse_rename2_in": "Q newdir I flags 4x padding",
    "fuse_link_in": "Q oldnodeid",
    "fuse_open_in": "I flags I open_flags",
    "fuse_open_out": "Q fh I open_flags 4x padding",
    "fuse_create_in": "I flags I mode I umask I open_flags",
    "fuse_release_in": "Q fh I flags I release_flags Q lock_owner",
    "fuse_read_in": "Q fh Q offset I size I read_flags Q lock_owner I flags 4x padding",
    "fuse_write_in": "Q fh Q offset I size I write_flags Q lock_owner I flags 4x padding",
    "fuse_write_out": "I size 4x padding",
    "fuse_statfs_out": (
        "Q blocks Q bfree Q bavail Q files Q ffree I bsize I namelen I frsize 4x padding 24x spare"
    ),
    "fuse_fsync_in": "Q fh I fsync_flags 4x padding",
    "fuse_setxattr_in": "I size I flags I setxattr_flags 4x padding",
    "fuse_getxattr_in": "I size 4x padding",
    "fuse_getxattr_out": "I size 4x padding",
    "fuse_ioctl_in": "Q fh I flags I cmd Q arg I in_size I out_size",
    "fuse_ioctl_out": "i result I flags I in_iovs I out_iovs",
    "fuse_fallocate_in": "Q fh Q offset Q length I mode 4x padding",
    "fuse_lseek_in": "Q fh Q offset I whence 4x padding",
    "fuse_lseek_out": "Q offset",
    "fuse_copy_file_range_in": "Q fh_in Q off_in Q nodeid_out Q fh_out Q off_out Q len Q flags",
    "fuse_dirent": "Q ino Q off I namelen I type",  # and the name, filled up to 8 bytes
    "fuse_notify_inval_inode_out": "Q ino q off q len",
}  # fmt: skip
STRUCTURES: Mapping[str, Structure] = {name: Structure(name, fields) for name, fields in DECLARED.items()}

IN_HEADER = STRUCTURES["fuse_in_header"]
OUT_HEADER = STRUCTURES["fuse_out_header"]
INIT_IN, INIT_OUT = STRUCTURES["fuse_init_in"], STRUCTURES["fuse_init_out"]
FORGET_IN, FORGET_ONE = STRUCTURES["fuse_forget_in"], STRUCTURES["fuse_forget_one"]
BATCH_FORGET_IN = STRUCTURES["fuse_batch_forget_in"]
ENTRY_OUT, ATTR_OUT = STRUCTURES["fuse_entry_out"], STRUCTURES["fuse_attr_out"]
STATX_IN, STATX_OUT = STRUCTURES["fuse_statx_in"], STRUCTURES["fuse_statx_out"]
SETATTR_IN = STRUCTURES["fuse_setattr_in"]
MKNOD_IN, MKDIR_IN, LINK_IN = STRUCTURES["fuse_mknod_in"], STRUCTURES["fuse_mkdir_in"], STRUCTURES["fuse_link_in"]
RENAME_IN, RENAME2_IN = STRUCTURES["fuse_rename_in"], STRUCTURES["fuse_rename2_in"]
OPEN_IN, OPEN_OUT, CREATE_IN = STRUCTURES["fuse_open_in"], STRUCTURES["fuse_open_out"], STRUCTURES["fuse_create_in"]
RELEASE_IN, FSYNC_IN = STRUCTURES["fuse_release_in"], STRUCTURES["fuse_fsync_in"]
READ_IN, WRITE_IN, WRITE_OUT = STRUCTURES["fuse_read_in"], STRUCTURES["fuse_write_in"], STRUCTURES["fuse_write_out"]
STATFS_OUT = STRUCTURES["fuse_statfs_out"]
SETXATTR_IN, GETXATTR_IN = STRUCTURES["fuse_setxattr_in"], STRUCTURES["fuse_getxattr_in"]
GETXATTR_OUT = STRUCTURES["fuse_getxattr_out"]
IOCTL_IN, IOCTL_OUT = STRUCTURES["fuse_ioctl_in"], STRUCTURES["fuse_ioctl_out"]
FALLOCATE_IN = STRUCTURES["fuse_fallocate_in"]
LSEEK_IN, LSEEK_OUT = STRUCTURES["fuse_lseek_in"], STRUCTURES["fuse_lseek_out"]
COPY_FILE_RANGE_IN = STRUCTURES["fuse_copy_file_range_in"]
DIRENT = STRUCTURES["fuse_dirent"]
INVAL_INODE_OUT = STRUCTURES["fuse_notify_inval_inode_out"]

# What a request begins with, and how many strings end it, for those that have any of both.
BODIES: Mapping[Opcode, tuple[Structure | None, int]] = {
    Opcode.LOOKUP: (None, 1), Opcode.FORGET: (FORGET_IN, 0), Opcode.SETATTR: (SETATTR_IN, 0),
    Opcode.SYMLINK: (None, 2), Opcode.MKNOD: (MKNOD_IN, 1), Opcode.MKDIR: (MKDIR_IN, 1), Opcode.UNLINK: (None, 1),
    Opcode.RMDIR: (None, 1), Opcode.RENAME: (RENAME_IN, 2), Opcode.LINK: (LINK_IN, 1), Opcode.OPEN: (OPEN_IN, 0),
    Opcode.READ: (READ_IN, 0), Opcode.WRITE: (WRITE_IN, 0), Opcode.RELEASE: (RELEASE_IN, 0),
    Opcode.FSYNC: (FSYNC_IN, 0), Opcode.SETXATTR: (SETXATTR_IN, 1), Opcode.GETXATTR: (GETXATTR_IN, 1),
    Opcode.LISTXATTR: (GETXATTR_IN, 0), Opcode.REMOVEXATTR: (None, 1), Opcode.READDIR: (READ_IN, 0),
    Opcode.RELEASEDIR: (RELEASE_IN, 0), Opcode.FSYNCDIR: (FSYNC_IN, 0), Opcode.CREATE: (CREATE_IN, 1),
    Opcode.IOCTL: (IOCTL_IN, 0), Opcode.BATCH_FORGET: (BATCH_FORGET_IN, 0), Opcode.FALLOCATE: (FALLOCATE_IN, 0),
    Opcode.READDIRPLUS: (READ_IN, 0), Opcode.RENAME2: (RENAME2_IN, 2), Opcode.LSEEK: (LSEEK_IN, 0),
    Opcode.COPY_FILE_RANGE: (COPY_FILE_RANGE_IN, 0), Opcode.TMPFILE: (CREATE_IN, 0),
}  # fmt: skip
MOST_NODE = (1 << 48) - 1  # no file system here has as many
MOST_OFFSET = (1 << 63) - 1  # loff_t has a sign
MOST_OF = {
    "newdir": MOST_NODE, "oldnodeid": MOST_NODE, "nodeid_out": MOST_NODE, "offset": MOST_OFFSET, "off_in": MOST_OFFSET,
    "off_out": MOST_OFFSET,
}  # fmt: skip


def is_malformed(opcode: int, node: int, body: memoryview) -> bool:
    """Whether no kernel sends such a request: it is cut off, lacks a string, has an inode or offset that can't be."""
    head, strings = BODIES.get(Opcode(opcode), (None, 0))
    size = head.size if head else 0
    if node > MOST_NODE or len(body) < size or bytes(body[size:]).count(b"\0") < strings:
        return True
    most = {head.offset_of(name): MOST_OF[name] for name in head.fields if name in MOST_OF} if head else {}
    return any(int.from_bytes(body[at : at + 8], sys.byteorder) > limit for at, limit in most.items())
