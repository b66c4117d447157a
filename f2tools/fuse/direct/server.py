"""The server that speaks with the kernel itself: reads a request, lets its operation answer, writes the answer.

One request after the other, in one thread.  An interrupt needs no answer: the request that it would interrupt was
answered before it is read.
"""

from __future__ import annotations

import errno
import logging
import os
import select
from collections.abc import Callable
from contextlib import suppress

from f2tools.errors import F2fsError
from f2tools.fuse.direct.answers import Asked
from f2tools.fuse.direct.attributes import FileAttributes
from f2tools.fuse.direct.connection import Connection
from f2tools.fuse.direct.content import MOST_BYTES, Content
from f2tools.fuse.direct.ioctl import Ioctl
from f2tools.fuse.direct.names import Names
from f2tools.fuse.direct.protocol import (
    DIRECT_WRITES_SEEN,
    ENTRY_OUT,
    FUSE_KERNEL_MINOR_VERSION,
    FUSE_KERNEL_VERSION,
    FUSE_NOTIFY_INVAL_INODE,
    IN_HEADER,
    INIT_IN,
    INIT_OUT,
    INVAL_INODE_OUT,
    OLDEST_MINOR_VERSION,
    OUT_HEADER,
    Init,
    Opcode,
    is_malformed,
)
from f2tools.fuse.loop import Loop
from f2tools.fuse.options import ServeOptions
from f2tools.fuse.served import NO_ROOM
from f2tools.native import core
from f2tools.vfs import FileSystem

log = logging.getLogger("f2tools.fuse")

PAGE = os.sysconf("SC_PAGESIZE")
PLAIN_BYTES = 32 * PAGE  # where the kernel can't be told how much
FIRST_SECONDS = 10.0  # a kernel that says nothing for so long after the mount says nothing at all
IN_BACKGROUND = 64  # requests of the kernel's own, such as reading ahead
# Not ASYNC_DIO: with that the kernel leaves old pages where a file is read while it is written by O_DIRECT and AIO.
WANTED = (
    Init.ASYNC_READ | Init.ATOMIC_O_TRUNC | Init.EXPORT_SUPPORT | Init.BIG_WRITES | Init.DONT_MASK | Init.HAS_IOCTL_DIR
    | Init.DO_READDIRPLUS | Init.READDIRPLUS_AUTO | Init.PARALLEL_DIROPS | Init.POSIX_ACL
    | Init.MAX_PAGES | Init.CACHE_SYMLINKS | Init.HANDLE_KILLPRIV_V2 | Init.SETXATTR_EXT | Init.INIT_EXT
)  # fmt: skip
NEEDED = Init.ATOMIC_O_TRUNC | Init.POSIX_ACL | Init.HANDLE_KILLPRIV_V2 | Init.SETXATTR_EXT
UNANSWERED = {Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.INTERRUPT}
TAKING = {  # what may charge somebody's quota
    Opcode.CREATE, Opcode.MKNOD, Opcode.MKDIR, Opcode.SYMLINK, Opcode.TMPFILE, Opcode.LINK, Opcode.RENAME,
    Opcode.RENAME2, Opcode.OPEN, Opcode.WRITE, Opcode.FALLOCATE, Opcode.COPY_FILE_RANGE, Opcode.SETATTR,
    Opcode.SETXATTR, Opcode.REMOVEXATTR, Opcode.IOCTL,
}  # fmt: skip
TELLING = Opcode.LOOKUP, Opcode.MKNOD, Opcode.MKDIR, Opcode.SYMLINK, Opcode.LINK, Opcode.CREATE, Opcode.TMPFILE
new_tuple = tuple.__new__  # a NamedTuple's own is a call of Python
FOR_OTHERS = {  # what -o allow_root lets others do: use what is open
    Opcode.READ, Opcode.WRITE, Opcode.FSYNC, Opcode.RELEASE, Opcode.READDIR, Opcode.READDIRPLUS,
    Opcode.FSYNCDIR, Opcode.RELEASEDIR, Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.INTERRUPT,
}  # fmt: skip


class Operations(Names, Content, FileAttributes, Ioctl):
    """Everything that the kernel may ask; each operation has its opcode's name."""

    def table(self) -> list[Callable[[Asked], bytes | None] | None]:
        """The operation of each opcode; None for what isn't served."""
        named = {opcode: getattr(self, opcode.name.lower(), None) for opcode in Opcode if opcode is not Opcode.INIT}
        if self.writable:
            named |= {opcode: self._as_its_caller(getattr(self, opcode.name.lower())) for opcode in TAKING}
        return [named.get(number) for number in range(max(Opcode) + 1)]  # type: ignore[call-overload]

    def _as_its_caller(self, operation: Callable[[Asked], bytes | None]) -> Callable[[Asked], bytes | None]:
        by_root = self.files.by_root

        def changing(asked: Asked) -> bytes | None:
            by_root(asked.uid == 0)
            return operation(asked)

        return changing


class Direct:
    """One mount, from `mount` to `unmount`."""

    def __init__(self, files: FileSystem, options: ServeOptions) -> None:
        self.served = Operations(files, options)
        self.served.invalidate = self._invalidate
        self._operations = self.served.table()
        self._connection: Connection | None = None
        self._buffer = bytearray(MOST_BYTES + PAGE)
        self._whole = memoryview(self._buffer)
        self._fd = -1
        self._root_only = "allow_root" in options.for_kernel
        # the core answers questions for capabilities that are known not to be there; not where it depends on the caller
        self._quick = b"" if self._root_only else self.served.without_capability.nodes
        # and it calls the operation of a request, and sends what that returns; not where it may have to be refused
        by_core = [] if self._root_only else self._operations
        unanswered = set(map(int, UNANSWERED))
        self._serving = self._whole, by_core, unanswered, new_tuple, Asked, self._after_error, self._untaken

    def mount(self, image: str, directory: str) -> None:
        """The directory shows the file system as soon as it is served."""
        words = set(self.served.options.for_kernel)
        if not self.served.writable:
            words.add("ro")
        self._connection = Connection(image, directory, words)
        self._fd = self._connection.fd
        try:
            self._agree()
        except BaseException:
            self.unmount()
            raise

    def unmount(self) -> None:
        """Stop serving; unmount, if that was not done yet."""
        if self._connection is not None:
            self._connection.close()
            self._connection, self._fd = None, -1

    # -- the loop ---------------------------------------------------------------------------------------------------

    def run(self, loop: Loop) -> None:
        """Serve until it is unmounted, or the loop says stop."""
        self.served.connected()
        os.set_blocking(self._fd, False)
        while length := self._next(loop):
            self._serve(length)

    def _next(self, loop: Loop) -> int:
        """The length of the next request that the core does not answer, once it came; 0 when the session is over."""
        ready = False
        while True:
            patience = loop.patience if core is not None else 0
            length = self._read(patience, loop) if patience or ready else 0
            if length:
                return max(length, 0)
            ready = loop.wait(self._fd, looked=patience > 0)
            if not ready:
                return 0

    def _read(self, patience: int, loop: Loop) -> int:
        """The length of a request; 0 where none came within so many nanoseconds, -1 once it is unmounted.

        The core answers what it can on the way, with patience one request after the other.
        """
        if core is not None:
            until = int(loop.next_check * 1e9)
            got = core.fuse_serve(self._fd, patience, until, loop.attention, self._quick, self._serving)
        else:
            try:
                got = os.readv(self._fd, (self._buffer,))
            except OSError as error:
                got = -(error.errno or errno.EIO)
        if got >= 0:
            return got
        if got == -errno.ENODEV:
            return -1
        if -got in (errno.ENOENT, errno.EINTR, errno.EAGAIN):  # the caller went away
            return 0
        raise OSError(-got, os.strerror(-got))

    def _serve(self, length: int) -> None:
        _, opcode, unique, node, uid, gid, pid, _ = IN_HEADER.unpack_from(self._buffer)
        asked = new_tuple(Asked, (node, uid, gid, pid, self._whole[IN_HEADER.size : length]))
        number, answer = self._answer(opcode, asked)
        if opcode in UNANSWERED:
            return
        refused = self._reply(unique, number, answer)
        if refused:
            self._untaken(refused, opcode, b"" if number else answer)

    def _answer(self, opcode: int, asked: Asked) -> tuple[int, bytes]:
        """(errno, answer) to a request."""
        operation = self._operations[opcode] if opcode < len(self._operations) else None
        if operation is None:
            return errno.ENOSYS, b""
        if self._root_only and asked.uid not in (0, os.geteuid()) and opcode not in FOR_OTHERS:
            return errno.EACCES, b""
        try:
            return 0, operation(asked) or b""
        except Exception as error:
            return self._after_error(error, opcode, asked)

    def _after_error(self, error: Exception, opcode: int, asked: Asked) -> tuple[int, bytes]:
        """(errno, answer) where an operation has failed; where it was for want of room, it may be tried again."""
        operation = self._operations[opcode]
        assert operation is not None
        try:
            if isinstance(error, OSError) and error.errno in NO_ROOM and self.served.give_back_deleted():
                return 0, operation(asked) or b""
        except Exception as again:
            error = again
        if isinstance(error, OSError):
            return error.errno or errno.EIO, b""
        if is_malformed(opcode, asked.node, asked.body):
            return errno.EINVAL, b""
        return self.served.failed(Opcode(opcode).name.lower(), error), b""

    def _untaken(self, refused: int, opcode: int, answer: bytes) -> None:
        """The kernel has not taken an answer, with which an operation has succeeded if it isn't empty."""
        if refused not in (errno.ENOENT, errno.ENODEV):
            log.error("the kernel refused an answer: %s", os.strerror(refused))
        told = ENTRY_OUT.unpack_from(answer)[0] if opcode in TELLING and answer else 0
        if told:  # the kernel knows nothing of it
            self.served.forgotten(told, 1)

    def _reply(self, unique: int, number: int, answer: bytes) -> int:
        """Answer a request; the errno with which the kernel refuses that, or 0: the caller may have been killed."""
        return (_write if core is None else core.fuse_reply)(self._fd, unique, number, answer)

    def _invalidate(self, node: int) -> None:
        """Let the kernel ask for the attributes of an inode again."""
        told = INVAL_INODE_OUT.pack(node, -1, 0)
        head = OUT_HEADER.pack(OUT_HEADER.size + len(told), FUSE_NOTIFY_INVAL_INODE, 0)
        with suppress(OSError):  # the kernel may know nothing of it
            os.writev(self._fd, (head, told))

    # -- agreeing ---------------------------------------------------------------------------------------------------

    def _agree(self) -> None:
        """The first request: the kernel says what it supports, and is told what will be used."""
        while True:
            select.select([self._fd], [], [], FIRST_SECONDS)
            length = os.readv(self._fd, (self._buffer,))
            _, opcode, unique, *_ = IN_HEADER.unpack_from(self._buffer)
            if opcode != Opcode.INIT:
                raise F2fsError(f"the kernel began with request {opcode}, not with INIT")
            # an older kernel sends less
            given = bytes(self._whole[IN_HEADER.size : length]).ljust(INIT_IN.size, b"\0")
            major, minor, readahead, low, high = INIT_IN.unpack_from(given)
            if major <= FUSE_KERNEL_VERSION:
                break
            # it asks again, as the version that it is answered
            self._reply(unique, 0, INIT_OUT.pack(FUSE_KERNEL_VERSION, *[0] * 10))
        offered = low | high << 32 if low & Init.INIT_EXT else low
        if (major, minor) < (FUSE_KERNEL_VERSION, OLDEST_MINOR_VERSION) or NEEDED & ~offered:
            self._reply(unique, errno.EPROTO, b"")
            raise F2fsError("--server direct takes Linux 5.13 or later; --server pyfuse3 does with an older one")
        self.served.direct_writes_are_seen = minor >= DIRECT_WRITES_SEEN
        wanted = int(WANTED) | (int(Init.WRITEBACK_CACHE) if self.served.writeback_cache else 0)
        flags = wanted & offered
        most = MOST_BYTES if flags & Init.MAX_PAGES else PLAIN_BYTES
        said = INIT_OUT.pack(
            FUSE_KERNEL_VERSION, min(minor, FUSE_KERNEL_MINOR_VERSION), readahead, flags & 0xFFFFFFFF,
            IN_BACKGROUND, IN_BACKGROUND * 3 // 4, most, 1, MOST_BYTES // PAGE, 0, flags >> 32,
        )  # fmt: skip
        self._reply(unique, 0, said)


def _write(fd: int, unique: int, number: int, answer: bytes) -> int:
    """Answer a request; the errno with which the kernel refuses that, or 0."""
    head = OUT_HEADER.pack(OUT_HEADER.size + len(answer), -number, unique)
    try:
        os.writev(fd, (head, answer))
    except OSError as error:
        return error.errno or errno.EIO
    return 0
