"""Several threads and one volume: what would damage it is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

import f2tools
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO as ROOT
from f2tools.f2fs.write.volume import WritableVolume
from tests.f2fs.write.volumes import fresh, writable
from tests.f2fs.write.workload import FILE


def elsewhere(do: Callable[[], object]) -> Exception | None:
    """What a call raises in another thread."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            do()
        except Exception as error:
            raised.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize("outer", ["create", "write"])
def test_an_operation_within_that_of_another_thread_is_refused_and_changes_nothing(tmp_path: Path, outer: str) -> None:
    image = fresh(tmp_path)
    with writable(image) as volume:
        ino = volume.create(ROOT, b"file", FILE)
        inner: list[Callable[[], object]] = [
            lambda: volume.create(ROOT, b"refused", FILE),
            lambda: volume.write(ino, 0, b"refused"),
            lambda: volume.write(ino, 0, b"refused" * 10_000),
            lambda: volume.unlink(ROOT, b"file"),
            lambda: volume.fsync(ino),
            lambda: volume.sync(),
            lambda: volume.close(),
        ]
        raised: list[Exception | None] = []
        ticks = volume.clock

        def now() -> int:  # is asked in the midst of an operation
            volume.clock = ticks
            raised.extend(map(elsewhere, inner))
            return ticks()

        volume.clock = now
        volume.create(ROOT, b"done", FILE) if outer == "create" else volume.write(ino, 0, b"done")
        assert len(raised) == len(inner)
        for error in raised:
            assert isinstance(error, RuntimeError)
            assert "a volume is for one thread at a time" in str(error)
        assert volume.broken is None
        assert elsewhere(lambda: volume.create(ROOT, b"later", FILE)) is None
    assert f2tools.check(image).findings == []
    with f2tools.open(image) as read:
        assert read.path("/file").read() == (b"done" if outer == "write" else b"")
        assert {child.path for child in read.root.iterdir()} >= {b"/file", b"/later"}
        assert not any(child.path == b"/refused" for child in read.root.iterdir())


def test_four_threads_that_write_at_once_leave_a_sound_volume(tmp_path: Path) -> None:
    image = fresh(tmp_path)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with writable(image) as volume:
            threads = [Thread(target=busy, args=(volume, b"%d" % number)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert volume.broken is None
    finally:
        sys.setswitchinterval(interval)
    assert f2tools.check(image).findings == []


def busy(volume: WritableVolume, name: bytes) -> None:
    """Make a directory, and files with content in it, each until it is not refused."""
    directory = insist(lambda: volume.mkdir(ROOT, name, 0o755))
    for number in range(60):
        ino = insist(lambda number=number: volume.create(directory, b"%d" % number, FILE))
        insist(lambda ino=ino: volume.write(ino, 0, name * 3000))
        insist(lambda ino=ino: volume.write(ino, 0, name * 30_000))


def insist(do: Callable[[], int]) -> int:
    while True:
        try:
            return do()
        except RuntimeError:
            continue
