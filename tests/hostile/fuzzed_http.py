"""What a server answers for an image behind a URL, fuzzed: statuses, headers, ranges and bodies that lie.

An input is a byte that says which command reads the image, and answers, which the server gives in turn, the last one
for good.  An answer says how it differs from the right one: another status, headers of its own, a body that begins or
ends elsewhere or breaks off; or it is what the server sends, byte by byte.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from f2tools.device.media import remote
from tests.f2fs.write.volumes import fresh
from tests.hostile.exercise import exercise

COMMANDS = (
    ("info", "{url}"), ("dump", "info", "{url}"), ("dump", "ls", "{url}"), ("dump", "manifest", "{url}"),
    ("fsck", "{url}"), ("dump", "cat", "{url}", "/file"), ("trace", "events", "{url}"),
    ("info", "{url}", "--cache", "{work}/cache"),
)  # fmt: skip
ANSWER = struct.Struct("<HBbbB")  # status, how, what the body's begin and end differ by, bytes of own text
RAW, NO_RANGE, NO_LENGTH, CUT_OFF, WHOLE, NO_ACCEPT = (1 << n for n in range(6))
MOST_ANSWERS = 12
MOST_REQUEST = 1 << 16
MOST_BODY = 8 << 20
RANGE = re.compile(rb"range: *bytes=(\d+)-(\d+)", re.IGNORECASE)
ELSEWHERE = b"//"  # a redirect to another host, where a fuzzer should not look around


class Answer(NamedTuple):
    """How an answer differs."""

    status: int
    how: int
    begin: int
    end: int
    text: bytes


HONEST = Answer(206, 0, 0, 0, b"")


def answers_of(data: bytes) -> list[Answer]:
    """The answers of an input, behind its first byte."""
    found: list[Answer] = []
    at = 1
    while len(data) >= at + ANSWER.size and len(found) < MOST_ANSWERS:
        status, how, begin, end, length = ANSWER.unpack_from(data, at)
        at += ANSWER.size
        found.append(Answer(status, how, begin, end, data[at : at + length]))
        at += length
    return found or [HONEST]


def sent(answer: Answer, request: bytes, image: Path) -> bytes:
    """What goes over the wire for a request."""
    if answer.how & RAW:
        return answer.text
    size = image.stat().st_size
    asked = RANGE.search(request)
    start, end = (int(asked[1]), int(asked[2]) + 1) if asked and not answer.how & WHOLE else (0, size)
    with image.open("rb") as file:
        file.seek(max(0, start + answer.begin))
        body = file.read(min(MOST_BODY, max(0, min(end, size) - start + answer.end - answer.begin)))
    head = [b"HTTP/1.1 %d Said" % answer.status, b"Connection: close"]
    if not answer.how & NO_ACCEPT:
        head.append(b"Accept-Ranges: bytes")
    if asked and not answer.how & NO_RANGE:
        head.append(b"Content-Range: bytes %d-%d/%d" % (start, min(end, size) - 1, size))
    if not answer.how & NO_LENGTH:
        head.append(b"Content-Length: %d" % (size if request.startswith(b"HEAD") else len(body)))
    head += [answer.text, b"\r\n"] if answer.text else [b"\r\n"]
    if request.startswith(b"HEAD"):
        body = b""
    return b"\r\n".join(head) + body[: len(body) // 2 if answer.how & CUT_OFF else len(body)]


class Server:
    """Answers on a port of this machine, a request for each connection."""

    def __init__(self, image: Path) -> None:
        self.image = image
        self.begin([])
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/image"
        threading.Thread(target=self._serve, daemon=True).start()

    def begin(self, answers: list[Answer]) -> None:
        """These are the answers from now on."""
        self._next: Iterator[Answer] = iter(answers)
        self._last = HONEST

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection, suppress(OSError):
                connection.settimeout(0.5)
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request and len(request) < MOST_REQUEST:
            more = connection.recv(MOST_REQUEST)
            if not more:
                return
            request += more
        self._last = next(self._next, self._last)
        connection.sendall(sent(self._last, request, self.image))
        connection.shutdown(socket.SHUT_WR)


def judge(work: Path) -> Callable[[bytes], None]:
    """Takes an input; raises where that has shown a mistake of ours."""
    remote.PAUSE_SECONDS, remote.SILENT_SECONDS, remote.REQUEST_SECONDS = 0.0, 1, 3  # a server so near needs none
    remote.SLOWEST = remote.LONGEST  # nor does a long request get longer
    server = Server(fresh(work, "--size 64M", "served"))
    commands = [tuple(word.replace("{url}", server.url) for word in command) for command in COMMANDS]

    def one(data: bytes) -> None:
        if ELSEWHERE in data:
            return
        server.begin(answers_of(data))
        said = exercise(server.image, work, 3, 0, (commands[(data[0] if data else 0) % len(commands)],))
        if said:
            raise AssertionError("\n".join(said))

    return one


def seeds() -> list[bytes]:
    """The right answers to each command; each lie once, at first and behind what was right."""

    def answer(status: int = 206, how: int = 0, begin: int = 0, end: int = 0, text: bytes = b"") -> bytes:
        return ANSWER.pack(status, how, begin, end, len(text)) + text

    right = answer()
    lies = [
        *(answer(status) for status in (0, 200, 204, 206, 301, 304, 401, 403, 404, 405, 410, 416, 429, 500, 503, 999)),
        *(answer(how=how) for how in (NO_RANGE, NO_LENGTH, CUT_OFF, WHOLE, NO_ACCEPT, WHOLE | NO_RANGE, NO_LENGTH | 1)),
        answer(begin=1), answer(begin=-1), answer(end=9), answer(end=-9), answer(200, WHOLE | NO_LENGTH | NO_RANGE),
        *(answer(text=text) for text in (
            b"Content-Range: bytes 5-1/0", b"Content-Range: bytes */*", b"Content-Range: bytes 0-9/99999999999999999",
            b"Transfer-Encoding: chunked", b"Content-Encoding: gzip", b"Content-Encoding: identity",
            b"ETag: x\r\nLast-Modified: never",
        )),
        *(answer(how=NO_LENGTH, text=text) for text in (
            b"Content-Length: 0", b"Content-Length: -1", b"Content-Length: 18446744073709551615", b"Content-Length: x",
            b"Content-Length: 5\r\nContent-Length: 6", b"Content-Length: 1_0",
        )),
        *(answer(status, text=b"Location: " + to) for status in (301, 302, 307) for to in (b"/image", b"image?x", b"")),
        *(answer(how=RAW, text=text) for text in (
            b"", b"HTTP/1.1 206\r\n\r\n", b"HTTP/9.9 x y\r\n\r\n", b"garbage\r\n" * 9,
            b"HTTP/1.1 200 OK\r\n" + b"a" * 200,
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nAccept-Ranges: bytes\r\n\r\nabcd",
            b"HTTP/1.1 206 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc",
        )),
    ]  # fmt: skip
    whole = [bytes([number]) + right for number in range(len(COMMANDS))]
    first = [bytes([number % len(COMMANDS)]) + lie for number, lie in enumerate(lies)]
    later = [bytes([number % len(COMMANDS)]) + right * (1 + number % 3) + lie for number, lie in enumerate(lies)]
    return [b"", *whole, *first, *later, *(one + right for one in first)]
