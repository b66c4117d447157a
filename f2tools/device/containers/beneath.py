"""Open a file below a directory, so that no link leads out of it even while somebody swaps names there.

The kernel does that since 5.6, by openat2(), which libc has no function for yet.  Without it the path is followed
directory by directory, and links are refused.
"""

from __future__ import annotations

import errno
import os
import stat

SYS_OPENAT2 = 437  # the same number on every Linux architecture that Python runs on, except Alpha
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_BENEATH = 0x08
TRIES = 100  # the kernel says EAGAIN when something is renamed while it looks
_LOOK = os.O_PATH | os.O_CLOEXEC


def open_beneath(directory: int, name: str) -> int:
    """A descriptor (O_PATH) of what a name leads to below an open directory; OSError, EXDEV where it leads out."""
    import ctypes  # few images build on others

    # struct open_how: flags, mode, resolve
    how = (ctypes.c_uint64 * 3)(_LOOK, 0, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    for _ in range(TRIES):
        fd = call(
            ctypes.c_long(SYS_OPENAT2), ctypes.c_int(directory), ctypes.c_char_p(os.fsencode(name)), ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )  # fmt: skip
        if fd >= 0:
            return fd
        error = ctypes.get_errno()
        if error in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a sandbox that doesn't know it
            return step_beneath(directory, name)
        if error not in (errno.EAGAIN, errno.EINTR):
            raise OSError(error, os.strerror(error), name)
    raise OSError(errno.EAGAIN, "names there change all the time", name)


def step_beneath(directory: int, name: str) -> int:
    """`open_beneath` without the kernel's help; ELOOP or ENOTDIR for links, wherever they lead."""
    *directories, last = [part for part in name.split("/") if part not in ("", ".")] or ["."]
    here = os.dup(directory)
    try:
        for part in directories:
            step = os.open(part, _LOOK | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = step
        fd = os.open(last, _LOOK | os.O_NOFOLLOW, dir_fd=here)
    finally:
        os.close(here)
    if stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return fd
