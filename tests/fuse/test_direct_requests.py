"""Requests that no kernel sends: each is refused, and the volume stays what it was, writable too."""

from __future__ import annotations

import errno

import pytest

from f2tools.fuse.direct.answers import Asked
from f2tools.fuse.direct.content import MOST_BYTES
from f2tools.fuse.direct.protocol import (
    BATCH_FORGET_IN,
    BODIES,
    COPY_FILE_RANGE_IN,
    FORGET_ONE,
    IN_HEADER,
    LINK_IN,
    MKNOD_IN,
    READ_IN,
    RENAME_IN,
    WRITE_IN,
    Opcode,
)
from f2tools.fuse.direct.server import UNANSWERED
from tests.hostile.fuzzed_fuse import FILE, served

FAR = (1 << 64) - 1
MALFORMED = {
    **{f"{opcode.name}, cut off": (opcode, FILE, b"") for opcode, (head, _) in BODIES.items() if head},
    "a link with one string": (Opcode.SYMLINK, 1, b"name"),
    "a rename to no name": (Opcode.RENAME, 1, RENAME_IN.pack(1) + b"file"),
    "an inode that can't be": (Opcode.GETATTR, FAR, bytes(16)),
    "a name in a directory that can't be": (Opcode.UNLINK, FAR, b"file\0"),
    "a link to an inode that can't be": (Opcode.LINK, 1, LINK_IN.pack(FAR) + b"file2\0"),
    "an offset that can't be": (Opcode.WRITE, FILE, WRITE_IN.pack(FILE, FAR, 1, 0, 0, 0) + b"x"),
    "a copy to an offset that can't be": (Opcode.COPY_FILE_RANGE, FILE,
                                          COPY_FILE_RANGE_IN.pack(FILE, 0, FILE, FILE, FAR, 9, 0)),
}  # fmt: skip


def answered(opcode: Opcode, node: int, body: bytes) -> tuple[list[int], str | None]:
    """The errnos with which a request is answered, and what has ended writing."""
    direct = served(0)
    numbers: list[int] = []
    direct._reply = lambda unique, number, answer: numbers.append(number) or 0  # type: ignore[method-assign]
    request = IN_HEADER.pack(IN_HEADER.size + len(body), opcode, 1, node, 0, 0, 0, 0) + body
    direct._buffer[: len(request)] = request
    direct._serve(len(request))
    return numbers, direct.served.files.broken


@pytest.mark.parametrize("what", MALFORMED)
def test_a_request_that_no_kernel_sends_is_refused_and_ends_no_writing(what: str) -> None:
    numbers, broken = answered(*MALFORMED[what])
    assert broken is None
    if MALFORMED[what][0] not in UNANSWERED:
        (number,) = numbers
        assert number in (errno.EINVAL, errno.EFBIG)


@pytest.mark.parametrize("opcode", [Opcode.READDIR, Opcode.READDIRPLUS, Opcode.FSYNCDIR])
def test_a_directory_that_nobody_has_open_is_not_listed(opcode: Opcode) -> None:
    assert answered(opcode, 1, READ_IN.pack(99, 0, 4096, 0, 0, 0)) == ([errno.EBADF], None)


def test_a_read_of_more_than_was_agreed_takes_no_more_memory() -> None:
    direct = served(0)
    direct.served.files.truncate(FILE, 1 << 30)
    read = Asked(FILE, 0, 0, 0, memoryview(READ_IN.pack(FILE, 0, 1 << 29, 0, 0, 0)))
    assert len(direct.served.read(read)) == MOST_BYTES


def test_bits_that_no_mode_has_are_left_out() -> None:
    assert answered(Opcode.MKNOD, 1, MKNOD_IN.pack(0xFFFF81A4, 0, 0) + b"new\0") == ([0], None)


def test_inodes_are_forgotten_where_the_last_of_them_is_cut_off() -> None:
    body = BATCH_FORGET_IN.pack(2) + FORGET_ONE.pack(FILE, 1) + FORGET_ONE.pack(FILE, 1)[:5]
    assert answered(Opcode.BATCH_FORGET, 1, body) == ([], None)
