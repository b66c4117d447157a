"""Requests as the kernel sends them over /dev/fuse, fuzzed: any opcode, any inode, bodies of any length.

An input is a byte that says how the volume is served, and requests; a request is a head and so many bytes of a body.
The volume is small, sound and in memory, and nothing is mounted.  A request is answered, with an errno where it can't
be granted, and neither makes the server say that something unforeseen has happened.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

from f2tools.device.base import Data, Device
from f2tools.device.buffers import byte_view
from f2tools.errors import F2fsError
from f2tools.f2fs.volume.volume import Volume
from f2tools.f2fs.write.volume import Policy, WritableVolume
from f2tools.fuse.direct import protocol
from f2tools.fuse.direct.ioctl import (
    FITRIM,
    FS_IOC_FSGETXATTR,
    FS_IOC_FSSETXATTR,
    FS_IOC_GETFLAGS,
    FS_IOC_MEASURE_VERITY,
    FS_IOC_SETFLAGS,
    FSTRIM_RANGE,
    FSXATTR,
)
from f2tools.fuse.direct.protocol import IN_HEADER, OUT_HEADER, Opcode
from f2tools.fuse.direct.server import UNANSWERED, Direct
from f2tools.fuse.options import ServeOptions
from f2tools.mount.tree import LiveTree, Tree
from f2tools.native import core
from tests.f2fs.write.volumes import FULL, Ticks, formatted, writable
from tests.hostile.exercise import ended
from tests.images import copy_sparse

HEAD = struct.Struct("<BQBH")  # opcode, node, uid, bytes of the body
READ_ONLY, SYNC, WRITEBACK, STRICT, OTHER_OWNER, BY_CORE = (1 << n for n in range(6))
MOST_REQUESTS = 40
MOST_ANSWER = 1 << 22  # bytes that fit into the socket
BLOCK = 4096
FILE, DIRECTORY, LINK, NAMES = 7, 8, 9, 40  # inodes 4 to 6 are those of quotas


class Blocks(Device):
    """A device in memory of the blocks with something in them."""

    def __init__(self, blocks: dict[int, bytes], size_bytes: int) -> None:
        self.name = "blocks"
        self.size_bytes = size_bytes
        self.read_only = False
        self.blocks = dict(blocks)

    def pread_into(self, offset: int, buffer: Any) -> None:
        view = byte_view(buffer)
        self.check_range(offset, len(view))
        for number, at, done, count in _spans(offset, len(view)):
            view[done : done + count] = self.blocks.get(number, bytes(BLOCK))[at : at + count]

    def pwrite(self, offset: int, data: Data) -> None:
        view = byte_view(data)
        self.check_range(offset, len(view))
        for number, at, done, count in _spans(offset, len(view)):
            before = self.blocks.get(number, bytes(BLOCK))
            self.blocks[number] = before[:at] + bytes(view[done : done + count]) + before[at + count :]

    def flush(self) -> None:
        return

    def close(self) -> None:
        return


def _spans(offset: int, length: int) -> Iterator[tuple[int, int, int, int]]:
    """(block, place in it, bytes before it, bytes in it) of a range."""
    done = 0
    while done < length:
        number, at = divmod(offset + done, BLOCK)
        count = min(BLOCK - at, length - done)
        yield number, at, done, count
        done += count


@cache
def _volume() -> tuple[dict[int, bytes], int]:
    """A volume with a file, a directory of many names, a link, attributes of each kind."""
    path = copy_sparse(formatted(f"--size 64M -O {FULL}"), formatted().parent / "served")
    made = writable(path)
    file = made.create(3, b"file", stat.S_IFREG | 0o6755, 0, 0)
    made.write(file, 0, b"content" * 2000)
    made.setxattr(file, "user.x", b"value")
    directory = made.mkdir(3, b"directory", 0o755, 0, 0)
    assert (file, directory, made.symlink(3, b"link", b"file", 0, 0)) == (FILE, DIRECTORY, LINK)
    for number in range(NAMES):
        made.create(directory, b"name%d" % number, stat.S_IFREG | 0o644, 0, 0)
    made.close()
    raw = path.read_bytes()
    pieces = {at // BLOCK: raw[at : at + BLOCK] for at in range(0, len(raw), BLOCK)}
    return {number: piece for number, piece in pieces.items() if any(piece)}, len(raw)


def served(how: int) -> Direct:
    """The volume, to be served in this way."""
    device = Blocks(*_volume())
    options = ServeOptions(
        sync=bool(how & SYNC), writeback_cache=bool(how & WRITEBACK),
        atime="strictatime" if how & STRICT else "noatime",
        uid=1000 if how & OTHER_OWNER else None, umask=0o22 if how & OTHER_OWNER else 0,
    )  # fmt: skip
    live = not how & READ_ONLY
    tree = LiveTree(WritableVolume(device, Policy(), Ticks(), seed=1)) if live else Tree(Volume(device))
    return Direct(tree, options)


def _failed(what: str, error: Exception) -> int:
    if isinstance(error, F2fsError):
        return errno.EIO
    raise AssertionError(f"{what}: nobody has foreseen this") from error


def requests_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(opcode, request) of an input, behind its first byte."""
    at = 1
    for unique in range(1, MOST_REQUESTS + 1):
        if len(data) < at + HEAD.size:
            return
        opcode, node, uid, length = HEAD.unpack_from(data, at)
        body = data[at + HEAD.size : at + HEAD.size + length]
        at += HEAD.size + length
        yield opcode, IN_HEADER.pack(IN_HEADER.size + len(body), opcode, unique, node, uid, uid, 0, 0) + body


def one_input(data: bytes) -> None:
    """Serve a volume to the requests of an input."""
    how = data[0] if data else 0
    _volume()

    def run() -> None:
        direct = served(how)
        direct.served.failed = _failed  # type: ignore[method-assign]
        (_by_core if how & BY_CORE and core is not None else _by_python)(direct, data)

    said = ended(run)
    if said:
        raise AssertionError(said)


def _by_python(direct: Direct, data: bytes) -> None:
    answered: list[int] = []

    def reply(unique: int, number: int, answer: bytes) -> int:
        assert 0 <= number < 4096, number
        assert isinstance(answer, bytes)
        answered.append(unique)
        return 0

    direct._reply = reply  # type: ignore[method-assign]
    for opcode, request in requests_of(data):
        direct._buffer[: len(request)] = request
        answered.clear()
        direct._serve(len(request))
        assert len(answered) == (opcode not in UNANSWERED), opcode


def _by_core(direct: Direct, data: bytes) -> None:
    """Over a socket, which keeps requests apart as /dev/fuse does: the core answers what it can."""
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with kernel, ours:
        ours.setblocking(False)
        kernel.setblocking(False)
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_ANSWER)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_ANSWER)
        direct._fd = ours.fileno()
        loop: Any = SimpleNamespace(next_check=float(1 << 30), attention=bytearray(1))
        for _, request in requests_of(data):
            kernel.send(request)
            length = direct._read(0, loop)
            if length:
                direct._serve(length)
            try:
                answer = kernel.recv(MOST_ANSWER)
            except BlockingIOError:
                continue
            size, number, _ = OUT_HEADER.unpack_from(answer)
            assert size == len(answer), size
            assert -4096 < number <= 0 or number == protocol.FUSE_NOTIFY_INVAL_INODE, number


# -- to begin with --------------------------------------------------------------------------------------------------


def asked(opcode: int, body: bytes = b"", node: int = 1, uid: int = 0) -> bytes:
    """A request in an input."""
    return HEAD.pack(opcode, node, uid, len(body)) + body


def seeds() -> list[bytes]:
    """Each request once, alone, by each way; what a program does, one after the other; and numbers near their ends."""
    each = _each()
    ends = [asked(opcode, b"\xff" * 64, node) for opcode in Opcode for node in (FILE, (1 << 64) - 1)]
    ways = (0, READ_ONLY, SYNC | STRICT, WRITEBACK | OTHER_OWNER, BY_CORE)
    whole = [bytes([how]) + b"".join(each[at : at + MOST_REQUESTS]) for how in ways
             for at in range(0, len(each), MOST_REQUESTS)]  # fmt: skip
    alone = [bytes([n % 2 * BY_CORE]) + one for n, one in enumerate(each)]
    short = [bytes([n % 2 * BY_CORE]) + asked(opcode, b"", FILE) for n, opcode in enumerate(Opcode)]
    return [b"", *whole, *alone, *short, *(bytes([n % 2 * BY_CORE]) + one for n, one in enumerate(ends))]


def _each() -> list[bytes]:
    p = protocol
    name, far, most = b"name\0", (1 << 64) - 4096, (1 << 32) - 1
    set_mode = p.SETATTR_IN.pack(p.FATTR_MODE | p.FATTR_MTIME, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0o644, 0, 0)
    set_size = p.SETATTR_IN.pack(p.FATTR_SIZE, 0, 1 << 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    return [
        asked(Opcode.LOOKUP, b"file\0"), asked(Opcode.LOOKUP, b"none\0"), asked(Opcode.LOOKUP, b"directory\0"),
        asked(Opcode.LOOKUP, b".\0", FILE), asked(Opcode.GETATTR, bytes(16), FILE),
        asked(Opcode.STATX, bytes(24), FILE), asked(Opcode.SETATTR, set_mode, FILE, 7),
        asked(Opcode.SETATTR, set_size, FILE), asked(Opcode.READ, p.READ_IN.pack(FILE, 0, most, 0, 0, 0), FILE),
        asked(Opcode.READDIRPLUS, p.READ_IN.pack(1, 0, most, 0, 0, 0), DIRECTORY), asked(Opcode.READLINK, b"", LINK),
        asked(Opcode.READLINK, b"", FILE), asked(Opcode.SYMLINK, b"new\0target\0"), asked(Opcode.SYMLINK, b"new"),
        asked(Opcode.MKNOD, p.MKNOD_IN.pack(stat.S_IFCHR | 0o600, 259, 0o22) + name),
        asked(Opcode.MKDIR, p.MKDIR_IN.pack(0o755, 0) + b"made\0"), asked(Opcode.UNLINK, b"file\0"),
        asked(Opcode.RMDIR, b"directory\0"), asked(Opcode.RMDIR, b"made\0"),
        asked(Opcode.RENAME, p.RENAME_IN.pack(DIRECTORY) + b"link\0link2\0"),
        asked(Opcode.RENAME2, p.RENAME2_IN.pack(DIRECTORY, 1) + b"file\0name1\0"),
        asked(Opcode.RENAME2, p.RENAME2_IN.pack(1, 4) + b"file\0x\0"), asked(Opcode.RENAME, p.RENAME_IN.pack(1) + b"x"),
        asked(Opcode.LINK, p.LINK_IN.pack(FILE) + b"hard\0"), asked(Opcode.OPEN, p.OPEN_IN.pack(os.O_RDWR, 0), FILE),
        asked(Opcode.OPEN, p.OPEN_IN.pack(os.O_WRONLY | os.O_TRUNC, 1), FILE, 7),
        asked(Opcode.READ, p.READ_IN.pack(FILE, 0, 1 << 17, 0, 0, 0), FILE),
        asked(Opcode.READ, p.READ_IN.pack(FILE, far, most, 0, 0, 0), FILE),
        asked(Opcode.READ, p.READ_IN.pack(FILE, 0, most, 0, 0, 0), FILE),
        asked(Opcode.WRITE, p.WRITE_IN.pack(FILE, 100, 5, 0, 0, 0) + b"other", FILE),
        asked(Opcode.WRITE, p.WRITE_IN.pack(FILE, far, 5, 4, 0, 0) + b"other", FILE),
        asked(Opcode.WRITE, p.WRITE_IN.pack(FILE, 0, 500, 0, 0, 0) + b"short", FILE), asked(Opcode.STATFS),
        asked(Opcode.RELEASE, p.RELEASE_IN.pack(FILE, 0, 0, 0), FILE),
        asked(Opcode.FSYNC, p.FSYNC_IN.pack(FILE, 1), FILE), asked(Opcode.SYNCFS, bytes(8)),
        asked(Opcode.SETXATTR, p.SETXATTR_IN.pack(3, 0, 1) + b"user.y\0abc", FILE),
        asked(Opcode.SETXATTR, p.SETXATTR_IN.pack(44, 0, 1) + b"system.posix_acl_access\0" + bytes(44), FILE),
        asked(Opcode.SETXATTR, p.SETXATTR_IN.pack(3, 2, 0) + b"trusted.y\0abc", FILE),
        asked(Opcode.GETXATTR, p.GETXATTR_IN.pack(0) + b"user.x\0", FILE),
        asked(Opcode.GETXATTR, p.GETXATTR_IN.pack(99) + b"security.capability\0", FILE),
        asked(Opcode.LISTXATTR, p.GETXATTR_IN.pack(1000), FILE, 7), asked(Opcode.REMOVEXATTR, b"user.x\0", FILE),
        asked(Opcode.OPENDIR, bytes(8), DIRECTORY),
        asked(Opcode.READDIR, p.READ_IN.pack(1, 0, 500, 0, 0, 0), DIRECTORY),
        asked(Opcode.READDIRPLUS, p.READ_IN.pack(1, 3, 5000, 0, 0, 0), DIRECTORY),
        asked(Opcode.READDIR, p.READ_IN.pack(9, far, 1 << 31, 0, 0, 0), DIRECTORY),
        asked(Opcode.FSYNCDIR, p.FSYNC_IN.pack(1, 0), DIRECTORY), asked(Opcode.FSYNCDIR, p.FSYNC_IN.pack(5, 0)),
        asked(Opcode.RELEASEDIR, p.RELEASE_IN.pack(1, 0, 0, 0), DIRECTORY),
        asked(Opcode.CREATE, p.CREATE_IN.pack(os.O_RDWR, stat.S_IFREG | 0o2755, 0, 0) + b"created\0", 1, 7),
        asked(Opcode.TMPFILE, p.CREATE_IN.pack(os.O_RDWR, stat.S_IFREG | 0o644, 0, 0) + b"/\0"),
        asked(Opcode.FALLOCATE, p.FALLOCATE_IN.pack(FILE, 0, 1 << 20, 0), FILE),
        asked(Opcode.FALLOCATE, p.FALLOCATE_IN.pack(FILE, 0, 8192, 3), FILE, 7),
        asked(Opcode.FALLOCATE, p.FALLOCATE_IN.pack(FILE, far, far, 0), FILE),
        asked(Opcode.FALLOCATE, p.FALLOCATE_IN.pack(FILE, 0, 4096, 8), FILE),
        asked(Opcode.LSEEK, p.LSEEK_IN.pack(FILE, 0, os.SEEK_HOLE), FILE),
        asked(Opcode.COPY_FILE_RANGE, p.COPY_FILE_RANGE_IN.pack(FILE, 0, FILE, FILE, 1 << 20, 9000, 0), FILE),
        asked(Opcode.COPY_FILE_RANGE, p.COPY_FILE_RANGE_IN.pack(FILE, 0, FILE, FILE, far, far, 0), FILE),
        *(asked(Opcode.IOCTL, p.IOCTL_IN.pack(FILE, 0, number, 0, len(given), 64) + given, FILE) for number, given in (
            (FS_IOC_GETFLAGS, b""), (FS_IOC_SETFLAGS, (0x10).to_bytes(4, "little")), (FS_IOC_FSGETXATTR, b""),
            (FS_IOC_FSSETXATTR, FSXATTR.pack(0x8, 0, 0, 5, 0)), (FITRIM, FSTRIM_RANGE.pack(0, far, 0)),
            (FS_IOC_MEASURE_VERITY, bytes(4)), (0x5401, b""),
        )),
        asked(Opcode.FORGET, p.FORGET_IN.pack(1), FILE),
        asked(Opcode.BATCH_FORGET, p.BATCH_FORGET_IN.pack(2) + p.FORGET_ONE.pack(FILE, 1) + p.FORGET_ONE.pack(5, far)),
        asked(Opcode.INTERRUPT, bytes(8)), asked(Opcode.FLUSH, bytes(24), FILE), asked(Opcode.ACCESS, bytes(8), FILE),
        asked(Opcode.DESTROY), asked(Opcode.INIT, bytes(64)), asked(200, bytes(9)),
    ]  # fmt: skip
