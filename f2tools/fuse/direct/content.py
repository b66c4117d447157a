"""Content: opening, reading, writing, making safe; space, holes, copies within the volume."""

from __future__ import annotations

import errno
import os

from f2tools.fuse.direct.answers import Answers, Asked, refuse
from f2tools.fuse.direct.protocol import (
    COPY_FILE_RANGE_IN,
    FALLOCATE_IN,
    FOPEN_DIRECT_IO,
    FOPEN_KEEP_CACHE,
    FSYNC_IN,
    FUSE_FSYNC_FDATASYNC,
    FUSE_OPEN_KILL_SUIDGID,
    FUSE_WRITE_CACHE,
    FUSE_WRITE_KILL_SUIDGID,
    LSEEK_IN,
    LSEEK_OUT,
    OPEN_IN,
    OPEN_OUT,
    READ_IN,
    RELEASE_IN,
    WRITE_IN,
    WRITE_OUT,
)
from f2tools.fuse.served import ASKED, NO_ROOM, NUMBER, UNPRIVILEGED

MOST_BYTES = 1 << 20  # of one read or write, as is agreed with the kernel
COPIED_AT_ONCE = 1 << 20  # bytes held in memory while they are copied
COPIED_BYTES = 8 << 20  # by one request, while others wait; the caller asks again for the rest


class Content(Answers):
    """Operations on content."""

    # Whether who reads a file from the kernel's cache sees what is written past it (FOPEN_DIRECT_IO): since Linux 6.6.
    # Where not, such writes go through the cache as all others, and are judged when they come.
    direct_writes_are_seen = False

    def open(self, asked: Asked) -> bytes:
        flags, how = OPEN_IN.unpack_from(asked.body)
        ino = self.ino_of(asked.node)
        self.files.check_open(ino, flags)
        if flags & os.O_TRUNC:
            if self.runs(ino):  # the kernel asks only after it has emptied what the program runs from
                refuse(errno.ETXTBSY)
            self.files.truncate(ino, 0)
            self.strip(asked, ino, bool(how & FUSE_OPEN_KILL_SUIDGID))
        handle = self.opened(ino, flags, asked.uid)
        if handle & ASKED and self.direct_writes_are_seen:
            return OPEN_OUT.pack(handle, FOPEN_DIRECT_IO)
        return OPEN_OUT.pack(handle, FOPEN_KEEP_CACHE if self.keeps_pages else 0)

    def release(self, asked: Asked) -> bytes:
        self.closed(RELEASE_IN.unpack_from(asked.body)[0])
        return b""

    def read(self, asked: Asked) -> bytes:
        handle, offset, size, *_ = READ_IN.unpack_from(asked.body)
        ino = handle & NUMBER
        self.accessed(ino)
        return self.files.read(ino, offset, min(size, MOST_BYTES))

    def write(self, asked: Asked) -> bytes:
        handle, offset, size, how, *_ = WRITE_IN.unpack_from(asked.body)
        ino = handle & NUMBER
        data = bytes(asked.body[WRITE_IN.size :])
        if len(data) != size:
            refuse(errno.EINVAL)
        if ino in self.immutable and not how & FUSE_WRITE_CACHE:  # what is in a cache was written before
            refuse(errno.EPERM)
        cached = self.writeback_cache and (how & FUSE_WRITE_CACHE or not handle & ASKED)
        if how & FUSE_WRITE_CACHE:  # the kernel's own request, long after the one who wrote, by any handle
            self.files.by_root(not handle & UNPRIVILEGED)
        if not how & FUSE_WRITE_CACHE or not self.writeback_cache:  # else what was appended comes as whole pages
            self.may_write(handle, offset, size)
        written = self.files.write(ino, offset, data, stamp=not cached)
        while cached and written < size:  # for its page cache the kernel takes errors, not partial writes
            written += self.files.write(ino, offset + written, data[written:], stamp=False)
        self.bytes_written += written
        if how & FUSE_WRITE_KILL_SUIDGID or ino not in self.without_capability:
            self.strip(asked, ino, bool(how & FUSE_WRITE_KILL_SUIDGID))
        if self.options.sync:
            self.files.fsync(ino)
        return WRITE_OUT.pack(written)

    def fsync(self, asked: Asked) -> bytes:
        handle, flags = FSYNC_IN.unpack_from(asked.body)
        if self.writable:
            self.files.fsync(handle & NUMBER, bool(flags & FUSE_FSYNC_FDATASYNC))
        return b""

    def syncfs(self, asked: Asked) -> bytes:
        if self.writable:
            self.files.sync()
        return b""

    # -- space and holes --------------------------------------------------------------------------------------------

    def fallocate(self, asked: Asked) -> bytes:
        handle, offset, length, mode = FALLOCATE_IN.unpack_from(asked.body)
        self.files.fallocate(handle & NUMBER, mode, offset, length)
        self.strip(asked, handle & NUMBER, asked.uid != 0)  # the kernel does not say what goes
        if self.options.sync:
            self.files.fsync(handle & NUMBER)
        return b""

    def lseek(self, asked: Asked) -> bytes:
        handle, offset, whence = LSEEK_IN.unpack_from(asked.body)
        if whence not in (os.SEEK_DATA, os.SEEK_HOLE):
            refuse(errno.EINVAL)
        return LSEEK_OUT.pack(self.files.seek(handle & NUMBER, offset, whence))

    def copy_file_range(self, asked: Asked) -> bytes:
        """Copy within the volume: as much as one request may take, cut at the end of the source."""
        source, offset, _, target, to, length, flags = COPY_FILE_RANGE_IN.unpack_from(asked.body)
        if flags:
            refuse(errno.EINVAL)
        if target & NUMBER in self.immutable:
            refuse(errno.EPERM)
        self.strip(asked, target & NUMBER, asked.uid != 0)
        there = max(0, self.files.attributes(source & NUMBER).size - offset)
        copied, wanted = 0, min(length, COPIED_BYTES, there)
        if source & NUMBER == target & NUMBER and abs(to - offset) < wanted:
            refuse(errno.EINVAL)  # as copy_file_range(2) has it; the end would move with what is copied
        self.may_write(target, to, wanted)
        try:
            while copied < wanted:
                data = self.files.read(source & NUMBER, offset + copied, min(COPIED_AT_ONCE, wanted - copied))
                if not data:
                    break
                written = self.files.write(target & NUMBER, to + copied, data)
                copied += written
                if written < len(data):
                    break
        except OSError as error:
            if not copied or error.errno not in NO_ROOM:
                raise
        self.bytes_written += copied
        if self.options.sync:
            self.files.fsync(target & NUMBER)
        return WRITE_OUT.pack(copied)
