"""Who asks a mount what it does, and who answers: nobody but the user himself, and root."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from f2tools.errors import F2fsError
from f2tools.fuse import status
from tests.judges import missing_judge

NOBODY = 65534


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of the sockets, and a mount on /mnt that the kernel's table is made to show."""
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:  # the name of a socket has 108 bytes
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.setattr(status, "mounts", lambda: [("/image", "/mnt")])
        (Path(runtime) / "f2tools").mkdir(mode=0o700)
        yield Path(runtime) / "f2tools"


@contextmanager
def answering(answer: bytes) -> Iterator[list[int]]:
    """Somebody who answers with these bytes, over and over if they are many."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(os.fspath(status._socket_of("/mnt")))
    listening.listen(1)
    listening.settimeout(10)
    sent: list[int] = []

    def serve() -> None:
        with suppress(OSError), listening.accept()[0] as connection:
            connection.recv(100)
            sent.extend(connection.send(answer) for _ in range(200 if len(answer) > 1000 else 1))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield sent
    finally:
        listening.close()


WHOLE: dict[str, Any] = {"image": "/image", "directory": "/mnt", "mounted_seconds": 1.5, "read_only": True}


def test_an_answer_of_ones_own_is_taken(place: Path) -> None:
    with answering(json.dumps(WHOLE).encode()):
        assert status.ask("/mnt") == WHOLE


@pytest.mark.parametrize("answer", [
    b"[1]", b"", b"null", b'"text"', b"{}", b"no json", b"[" * 900_000,
    json.dumps(WHOLE | {"mounted_seconds": "long"}).encode(),
    json.dumps(WHOLE | {"read_only": 0}).encode(),
])  # fmt: skip
def test_an_answer_that_makes_no_sense_is_none(place: Path, answer: bytes) -> None:
    with answering(answer):
        assert status.ask("/mnt") is None


def test_an_answer_without_end_is_not_read_to_its_end(place: Path) -> None:
    with answering(b" " * (1 << 20)) as sent:
        assert status.ask("/mnt") is None
    assert sum(sent) < 8 << 20


@pytest.mark.parametrize("waiting", [0, 8])
def test_a_program_that_does_not_answer_is_named(place: Path, monkeypatch: pytest.MonkeyPatch, waiting: int) -> None:
    monkeypatch.setattr(status, "ASK_SECONDS", 0.1)
    path = os.fspath(status._socket_of("/mnt"))
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listening.bind(path)
        listening.listen(1)
        for _ in range(waiting):  # as many as wait for it already
            other = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            other.setblocking(False)
            with suppress(BlockingIOError):
                other.connect(path)
        with pytest.raises(F2fsError, match="does not answer") as raised:
            status.ask("/mnt")
    assert waiting or f"process {os.getpid()}," in str(raised.value)


@pytest.mark.parametrize("mode", [0o755, 0o701, 0o770, 0o777])
def test_a_directory_that_others_can_look_into_is_not_trusted(place: Path, mode: int) -> None:
    with answering(json.dumps(WHOLE).encode()):
        place.chmod(mode)
        assert status.ask("/mnt") is None
        with pytest.raises(PermissionError):
            status.make_private(place)


def test_a_link_to_a_directory_of_ones_own_is_not_trusted(place: Path) -> None:
    place.symlink_to(place.rename(place.with_name("elsewhere")))
    with pytest.raises(PermissionError):
        status.make_private(place)


def test_a_runtime_directory_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        missing_judge("only root can give a directory away", "whose runtime directory is used under sudo")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert status.runtime_directory() == tmp_path / "f2tools"
    os.chown(tmp_path, NOBODY, NOBODY)
    assert status.runtime_directory() == Path("/run/f2tools")


FORGING = """
import os, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
os.setuid(65534)
listening.listen(4)
print("ready", flush=True)
while True:
    connection, _ = listening.accept()
    connection.sendall(b"forged")
    connection.close()
"""


def test_another_users_answer_is_not_believed(place: Path) -> None:
    if os.geteuid():
        missing_judge("only root can become somebody else", "whose answers are believed")
    command = [sys.executable, "-c", FORGING, status._socket_of("/mnt")]
    forger = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert forger.stdout is not None
    try:
        assert forger.stdout.readline() == b"ready\n"
        with pytest.raises(PermissionError):
            status.connect("/mnt", status.NUMBERS)
        assert status.ask("/mnt") is None
    finally:
        forger.kill()
        forger.wait()


def test_what_the_kernel_did_not_wait_for_at_the_end_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pyfuse3")
    from f2tools.fuse.pyfuse import of_interest

    logger = logging.getLogger("pyfuse3")
    logger.addFilter(of_interest)
    try:
        logger.error("fuse_release(): fuse_reply_* failed with %s", os.strerror(2))
        assert not caplog.text
        logger.error("fuse_release(): fuse_reply_* failed with %s", os.strerror(5))
        assert os.strerror(5) in caplog.text
    finally:
        logger.removeFilter(of_interest)
