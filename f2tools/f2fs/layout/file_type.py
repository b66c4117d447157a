"""The types of files: S_IFMT of an inode's mode, F2FS_FT_* of a directory entry, and the words for them;
and the numbers of the device that a device node stands for."""

from __future__ import annotations

import stat

import numpy as np

from f2tools.volumes import KINDS

S_IFMT = np.uint16(0o170000)  # the bits of a mode that are its type, for arrays of modes
# In the order of F2FS_FT_REG_FILE (1) to F2FS_FT_SYMLINK (7); 0 is F2FS_FT_UNKNOWN.
S_IFMTS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFLNK)
_FILE_TYPES = {kind: number for number, kind in enumerate(S_IFMTS, 1)}
# F2FS_FT_* by mode >> 12; 0 where the mode has no known type.
FILE_TYPE_OF_MODE = np.zeros(16, np.uint8)
for _kind, _number in _FILE_TYPES.items():
    FILE_TYPE_OF_MODE[_kind >> 12] = _number


def file_type(mode: int) -> int:
    """F2FS_FT_* of a mode; KeyError where it has no known type."""
    return _FILE_TYPES[stat.S_IFMT(mode)]


def mode_of_type(file_type: int) -> int | None:
    """S_IFMT of F2FS_FT_*; None where there is no such type."""
    return S_IFMTS[file_type - 1] if 0 < file_type <= len(S_IFMTS) else None


def kind_of_mode(mode: int) -> str:
    """The word for a mode's type: "file", "dir", "symlink" ...; "unknown" where it has none of these."""
    return KINDS.get(mode & 0o170000, "unknown")


# As old_encode_dev() and new_encode_dev() of include/linux/kdev_t.h: 8 bits each, or 12 and 20.
BYTE = 0xFF
MOST_MAJOR, MOST_MINOR = (1 << 12) - 1, (1 << 20) - 1


def device_words(major: int, minor: int) -> tuple[int, int, int]:
    """The first three words of i_addr of a device node: the old form in the first, or the new in the second."""
    if major <= BYTE and minor <= BYTE:
        return major << 8 | minor, 0, 0
    return 0, minor & BYTE | major << 8 | (minor & ~BYTE) << 12, 0


def device_numbers(old: int, new: int) -> tuple[int, int]:
    """(major, minor) from the first two words of i_addr."""
    if old:
        return old >> 8 & BYTE, old & BYTE
    return (new & 0xFFF00) >> 8, new & BYTE | new >> 12 & 0xFFF00
