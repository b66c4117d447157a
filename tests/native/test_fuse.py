"""What the core does for a mount: requests taken, answers given, attributes read from an inode, the hash of a name."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f2tools.errors import Corrupt, Where
from f2tools.f2fs.layout import hashes
from f2tools.f2fs.volume.inode import Inode
from f2tools.f2fs.write.node import LiveInode, fill_inode
from f2tools.fuse.direct import answers, server
from f2tools.fuse.direct.answers import Asked
from f2tools.fuse.direct.attributes import CAPABILITY
from f2tools.fuse.direct.protocol import GETXATTR_IN, IN_HEADER, IOCTL_IN, OUT_HEADER, Opcode
from f2tools.fuse.options import ServeOptions
from f2tools.mount import tree
from f2tools.native import core
from f2tools.vfs import Attributes
from tests.fuse.memory import MemoryFileSystem
from tests.native.test_core import in_python

U32, U64 = (1 << 32) - 1, (1 << 64) - 1
WIDE = st.integers(0, U32)
SECONDS = st.integers(0, U64) | st.integers(0, 1 << 33) | st.integers(U64 - (1 << 33), U64)
SIZES = st.integers(0, 1 << 63) | st.integers(0, 1 << 40)
HEADS = st.fixed_dictionaries(
    {
        "i_mode": st.sampled_from([0o100644, 0o104755, 0o040700]), "i_inline": st.integers(0, 31), "i_uid": WIDE,
        "i_gid": WIDE, "i_links": WIDE, "i_size": SIZES, "i_blocks": SIZES, "i_atime": SECONDS, "i_mtime": SECONDS,
        "i_ctime": SECONDS, "i_atime_nsec": WIDE, "i_mtime_nsec": WIDE, "i_ctime_nsec": WIDE, "i_generation": WIDE,
    }
)  # fmt: skip
TIMES = st.integers(-(1 << 62), 1 << 62) | st.integers(-(1 << 72), 1 << 72)
FOUND = st.tuples(
    WIDE, WIDE, WIDE, WIDE, WIDE, WIDE, st.integers(0, U64), SIZES, WIDE, SIZES, TIMES, TIMES, TIMES
).map(Attributes._make)  # fmt: skip


class OneInode(tree.Tree[Any]):
    """A tree of a single inode."""

    def __init__(self, inode: Inode) -> None:
        self._block_size = 4096
        self._only = inode

    def inode(self, ino: int) -> Inode:
        return self._only


@given(st.binary(max_size=300) | st.sampled_from([b".", b"..", b"..."]))
def test_the_hash_of_a_name(name: bytes) -> None:
    found = hashes.dentry_hash(name)
    with in_python(hashes):
        assert hashes.dentry_hash(name) == found


@given(HEADS)
def test_the_attributes_of_an_inode(head: dict[str, int]) -> None:
    block = np.zeros(4096, np.uint8)
    fill_inode(block, **head)
    files = OneInode(LiveInode(SimpleNamespace(block_size=4096), block, 5, 0))  # type: ignore[arg-type]
    found = files.attributes(5)
    with in_python(tree):
        assert files.attributes(5) == found
    assert type(found) is Attributes


def test_an_inode_that_is_cut_off_is_an_error() -> None:
    assert core is not None
    with pytest.raises(ValueError, match="longer"):
        core.plain_attributes(bytes(71), 5, 4096)


@given(FOUND, st.integers(0, U64), st.sampled_from([0, 86400]))
def test_the_answers_with_attributes(found: Attributes, node: int, known: int) -> None:
    made = answers.Answers(MemoryFileSystem(), ServeOptions())

    def both() -> list[bytes | None]:
        asked = (lambda: made.attr_out(found)), (lambda: made.entry_out(found, node, known))
        return [_or_none(ask) for ask in asked]

    with_core = both()
    with in_python(answers):
        assert both() == with_core


def _or_none(ask: Any) -> bytes | None:
    try:
        return ask()
    except struct.error:  # more than 64 bits of seconds, or the like
        return None


@pytest.mark.parametrize("found", [(), (1,) * 12, [1] * 13, 7])
def test_what_are_no_attributes_is_an_error(found: Any) -> None:
    assert core is not None
    with pytest.raises(ValueError, match="no attributes"):
        core.fuse_attr_out(found, 1)


# -- requests -------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """(the kernel's, the server's), which keep requests apart as /dev/fuse does."""
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    kernel.settimeout(10)
    with kernel, ours:
        yield kernel, ours


def question(node: int, name: bytes = CAPABILITY, opcode: int = Opcode.GETXATTR) -> bytes:
    body = GETXATTR_IN.pack(0) + name + b"\0"
    return IN_HEADER.pack(IN_HEADER.size + len(body), opcode, 77, node, 0, 0, 1, 0) + body


def of(files: MemoryFileSystem, fd: int, options: ServeOptions | None = None, all_out: bool = False) -> server.Direct:
    """`all_out`: the core hands every request out."""
    made = server.Direct(files, options or ServeOptions())
    made._fd = fd
    if all_out:
        made._serving = made._serving[0], [], *made._serving[2:]
    return made


def quiet() -> Any:
    """What the server asks of a loop that has nothing else to do."""
    return SimpleNamespace(next_check=float(1 << 30), attention=bytearray(1))


def test_a_question_for_capabilities_that_are_not_there_is_answered_at_once(ends: Any) -> None:
    kernel, ours = ends
    direct = of(MemoryFileSystem(), ours.fileno(), all_out=True)
    direct.served.without_capability.add(11)
    kernel.send(question(11))
    kernel.send(question(12))
    assert direct._read(0, quiet()) == len(question(12))
    assert bytes(direct._buffer[: len(question(12))]) == question(12)
    assert OUT_HEADER.unpack(kernel.recv(99)) == (OUT_HEADER.size, -errno.ENODATA, 77)
    assert direct._read(1000, quiet()) == 0


@pytest.mark.parametrize(
    "asked",
    [
        question(12),
        question(11 + answers.CACHED_NODES),
        question(0),
        question(11, b"security.capabilitx"),
        question(11, b"security.capability2"),
        question(11, b"user.a"),
        question(11, opcode=Opcode.REMOVEXATTR),
        question(11)[:-1],
        question(11)[:20],
    ],
)
def test_other_questions_are_not(ends: Any, asked: bytes) -> None:
    kernel, ours = ends
    direct = of(MemoryFileSystem(), ours.fileno(), all_out=True)
    direct.served.without_capability.add(11)
    kernel.send(asked)
    assert direct._read(0, quiet()) == len(asked)


def command(number: int) -> bytes:
    body = IOCTL_IN.pack(11, 0, number, 0, 0, 0)
    return IN_HEADER.pack(IN_HEADER.size + len(body), Opcode.IOCTL, 77, 11, 0, 0, 1, 0) + body


@pytest.mark.parametrize("number", [0x5401, 0x5400, 0x54FF, 0xC0185413])
def test_no_file_is_a_terminal(ends: Any, number: int) -> None:
    kernel, ours = ends
    direct = of(MemoryFileSystem(), ours.fileno(), all_out=True)
    with pytest.raises(OSError, match=f"{errno.ENOTTY}"):  # as without the core
        direct.served.ioctl(Asked(11, 0, 0, 1, memoryview(command(number))[IN_HEADER.size :]))
    kernel.send(command(number))
    kernel.send(question(12))
    assert direct._read(0, quiet()) == len(question(12))
    assert OUT_HEADER.unpack(kernel.recv(99)) == (OUT_HEADER.size, -errno.ENOTTY, 77)


@pytest.mark.parametrize("asked", [command(0x6601), command(0x5300), command(0x00540000), command(0x5401)[:-1]])
def test_other_commands_are_looked_at(ends: Any, asked: bytes) -> None:
    kernel, ours = ends
    direct = of(MemoryFileSystem(), ours.fileno(), all_out=True)
    kernel.send(asked)
    assert direct._read(0, quiet()) == len(asked)


def test_where_only_root_may_ask_each_question_is_looked_at(ends: Any) -> None:
    kernel, ours = ends
    direct = of(MemoryFileSystem(), ours.fileno(), ServeOptions(for_kernel=frozenset({"allow_root"})))
    direct.served.without_capability.add(11)
    for asked in (question(11), command(0x5401)):
        kernel.send(asked)
        assert direct._read(0, quiet()) == len(asked)


def test_a_node_that_takes_anothers_place_in_the_cache_is_the_one_that_is_known() -> None:
    cache = answers.NodeCache()
    cache.add(5)
    cache.add(5 + answers.CACHED_NODES)
    assert (5 in cache, 5 + answers.CACHED_NODES in cache) == (False, True)
    cache.discard(5)
    assert 5 + answers.CACHED_NODES in cache
    cache.discard(5 + answers.CACHED_NODES)
    assert 5 + answers.CACHED_NODES not in cache


def test_requests_and_answers_are_the_same_without_the_core(ends: Any) -> None:
    kernel, ours = ends
    direct = of(MemoryFileSystem(), ours.fileno(), all_out=True)
    seen = []
    for modules in ((), (server,)):
        with in_python(*modules):
            kernel.send(question(12))
            seen.append([direct._read(0, quiet()), bytes(direct._buffer[:99]), direct._read(0, quiet())])
            seen[-1] += [
                direct._reply(3, errno.EPERM, b""),
                direct._reply(4, 0, b"answer"),
                kernel.recv(99),
                kernel.recv(99),
            ]
    assert seen[0] == seen[1]
    assert seen[0][-2:] == [OUT_HEADER.pack(16, -errno.EPERM, 3), OUT_HEADER.pack(22, 0, 4) + b"answer"]


def test_a_descriptor_that_can_t_be_read_is_an_error(ends: Any) -> None:
    _, ours = ends
    direct = of(MemoryFileSystem(), ours.fileno())
    ours.close()
    for modules in ((), (server,)):
        with in_python(*modules), pytest.raises(OSError, match="Bad file descriptor"):
            direct._read(0, quiet())


SMALL = st.integers(0, 300)
NAMES = st.sampled_from([b"", b"a\0", b"b\0", b"a\0b\0", b"user.x\0", CAPABILITY + b"\0", b"without an end"])
NUMBERS = st.lists(SMALL, max_size=28).map(lambda numbers: struct.pack(f"<{len(numbers)}I", *numbers))
BODIES = st.builds(bytes.__add__, NUMBERS, NAMES)
REQUESTS = st.tuples(
    st.sampled_from(list(Opcode)) | st.integers(0, 70) | st.just(U32), st.sampled_from([1, 5, 7, 100, 101, U64]), BODIES
)
FAILURES = [
    OSError(errno.EPERM, ""), OSError(errno.ENOSPC, ""), OSError("without a number"), KeyError("a fault"),
    Corrupt(Where(ino=3), "damaged"),
]  # fmt: skip
FAILS = st.none() | st.sampled_from(FAILURES)


class Failing(MemoryFileSystem):
    """Some calls end with an error; the first for want of room can be made again."""

    def __init__(self, failures: list[Exception | None]) -> None:
        super().__init__()
        self._failures = iter(failures)

    @property
    def nameless(self) -> list[int]:
        return [100]

    def give_back(self, ino: int) -> bool:
        return True

    def attributes(self, ino: int) -> Attributes:
        failure = next(self._failures, None)
        if failure is not None:
            raise failure
        return super().attributes(ino)


def answers_to(requests: list[bytes], direct: server.Direct, kernel: socket.socket) -> list[bytes]:
    """What the kernel is told, request by request."""
    told = []
    kernel.setblocking(False)
    for request in requests:
        kernel.send(request)
        length = direct._read(0, quiet())
        if length:
            direct._serve(length)
        try:
            told.append(kernel.recv(1 << 17))
        except BlockingIOError:
            told.append(b"nothing")
    return told


@given(st.lists(REQUESTS, max_size=12), st.lists(FAILS, max_size=12))
def test_operations_are_called_by_the_core_as_without_it(
    asked: list[tuple[int, int, bytes]], failures: list[Exception | None]
) -> None:
    requests = [
        IN_HEADER.pack(IN_HEADER.size + len(body), opcode, number, node, 0, 0, 1, 0) + body
        for number, (opcode, node, body) in enumerate(asked)
        if opcode != Opcode.INIT
    ]
    seen = []
    for modules in ((), (server,)):
        kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with kernel, ours, in_python(*modules), pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: 1_000_000_007)
            files = Failing(failures)
            direct = of(files, ours.fileno())
            told = answers_to(requests, direct, kernel)
            seen.append((told, files.told, files.broken, direct.served._known, direct.served._open))
    assert seen[0] == seen[1]


def lookup(unique: int, name: bytes = b"a") -> bytes:
    return IN_HEADER.pack(IN_HEADER.size + len(name) + 1, Opcode.LOOKUP, unique, 1, 0, 0, 1, 0) + name + b"\0"


def test_with_patience_requests_are_answered_one_after_the_other(ends: Any) -> None:
    kernel, ours = ends
    direct = of(MemoryFileSystem(), ours.fileno())
    for unique in range(3):
        kernel.send(lookup(unique))
    assert direct._read(1000, quiet()) == 0
    assert [OUT_HEADER.unpack_from(kernel.recv(999))[2] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("busy", [{"attention": bytearray(b"\1")}, {"next_check": 0.0}, {}])
def test_one_request_is_answered_where_something_else_is_due(ends: Any, busy: dict[str, Any]) -> None:
    kernel, ours = ends
    direct = of(MemoryFileSystem(), ours.fileno())
    for unique in range(3):
        kernel.send(lookup(unique))
    loop = quiet()
    vars(loop).update(busy)
    assert direct._read(1000 if busy else 0, loop) == 0
    assert OUT_HEADER.unpack_from(kernel.recv(999))[2] == 0
    kernel.setblocking(False)
    with pytest.raises(BlockingIOError):
        kernel.recv(999)


@pytest.mark.parametrize("modules", [(), (server,)])
def test_of_an_answer_that_is_not_taken_the_kernel_knows_nothing(ends: Any, modules: tuple[Any, ...]) -> None:
    kernel, ours = ends
    files = MemoryFileSystem()
    direct = of(files, ours.fileno())
    mkdir = IN_HEADER.pack(IN_HEADER.size + 10, Opcode.MKDIR, 3, 1, 0, 0, 1, 0) + struct.pack("<II", 0o755, 0) + b"d\0"
    with in_python(*modules):
        kernel.send(mkdir)
        ours.shutdown(socket.SHUT_WR)
        length = direct._read(0, quiet())
        if length:
            direct._serve(length)
    assert (len(files.nodes), direct.served._known) == (2, {})


@pytest.mark.parametrize("modules", [(), (server,)])
def test_what_is_no_error_of_a_request_ends_the_server(ends: Any, modules: tuple[Any, ...]) -> None:
    kernel, ours = ends
    direct = of(Failing([KeyboardInterrupt()]), ours.fileno())  # type: ignore[list-item]
    kernel.send(IN_HEADER.pack(IN_HEADER.size, Opcode.GETATTR, 3, 1, 0, 0, 1, 0))
    with in_python(*modules), pytest.raises(KeyboardInterrupt):
        direct._serve(direct._read(0, quiet()))
