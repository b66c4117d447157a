"""A write that fails, and what nobody has foreseen: one clear line, an exit code that says so, and a way back."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from f2tools.cli import run
from f2tools.device.changes import undo
from tests.dump.craft import f2, poke
from tests.images import copy_sparse, reference

F2TOOLS = Path(sys.executable).parent / "f2tools"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return copy_sparse(reference("base").path, tmp_path / "card.img")


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    path = tmp_path / "payload"
    path.write_bytes(os.urandom(300_000))
    return path


@contextmanager
def full_after(path: Path, writes: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The disk under one file is full after so many writes to it."""
    real, left = os.pwrite, [writes]

    def pwrite(fd: int, data: Any, offset: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}") == str(path):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        yield
    assert left[0] < 0, "the disk was never full"


# -- the undo log -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", [0, 1])
def test_without_room_for_the_undo_log_nothing_is_changed(
    writes: int, image: Path, payload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, log = digest(image), tmp_path / "log.undo"
    with full_after(log, writes, monkeypatch):
        done = f2("cp", payload, f"{image}:/new", "--undo", log)
    assert done.code == 8
    assert len(done.err.splitlines()) == 1
    assert f"{log}: writing at offset" in done.err
    assert f"No space left on device; what is to be overwritten can't be kept; {image} was not changed" in done.err
    assert digest(image) == before
    assert not log.exists(), "the next run may have that name"


def test_when_the_undo_log_is_full_half_way_it_takes_back_what_was_changed(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, log = digest(image), tmp_path / "log.undo"
    with full_after(log, 5, monkeypatch):
        done = f2("resize", "--undo", log, image, "80M")
    assert done.code == 8
    assert f"`f2tools undo {log} {image}` takes back what was changed" in done.err
    assert digest(image) != before
    assert f2("undo", log, image).code == 0
    assert digest(image) == before


def test_fsck_without_room_for_the_undo_log_ends_with_8_and_changes_nothing(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poke(image, 1024, bytes(512))
    before, log = digest(image), tmp_path / "log.undo"
    with full_after(log, 1, monkeypatch):
        done = f2("fsck", "-y", "--undo", log, image)
    assert done.code == 8
    assert f"{image} was not changed" in done.err.splitlines()[-1]
    assert digest(image) == before
    assert not log.exists()


@pytest.mark.parametrize("command", [("label", "--undo"), ("fsck", "-y", "--undo")], ids=" ".join)
def test_an_undo_log_without_room_for_its_seal_is_told_as_that(
    command: tuple[str, ...], image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poke(image, 1024, bytes(512))
    before, log, sealing = digest(image), tmp_path / "log.undo", undo.seal

    def seal(*args: Any) -> Any:
        patch.setattr(os, "pwrite", full)
        return sealing(*args)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(undo, "seal", seal)
        done = f2(*command, log, image, *(["NEW"] if command[0] == "label" else []))
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert f"{log}: all that was overwritten is in it, and `f2tools undo {log} {image}` takes back" in last
    assert "no room for the log's seal" in last
    assert digest(image) != before
    assert f2("undo", log, image).code == 0
    assert digest(image) == before


def test_an_undo_log_that_can_t_be_made_is_one_line(image: Path, payload: Path) -> None:
    before = digest(image)
    done = f2("cp", payload, f"{image}:/new", "--undo", "/proc/log.undo")
    assert done.code == 8
    assert len(done.err.splitlines()) == 1
    assert "no undo log can be kept there, and nothing was changed" in done.err
    assert digest(image) == before


# -- the image --------------------------------------------------------------------------------------------------------


def test_a_full_disk_below_the_image_is_told_with_what_became_of_it(
    image: Path, payload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for writes, state in ((0, "nothing of it was changed"), (1, "it was changed in part")):
        with full_after(image, writes, monkeypatch):
            done = f2("cp", payload, f"{image}:/new")
        assert done.code == 8
        assert len(done.err.splitlines()) == 1
        assert done.err.endswith(f"No space left on device; {state}\n")
    assert f2("dump", "ls", image).code == 0


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("system", ["dfs", "dffs", "vsl"])
def test_of_a_new_image_that_is_not_made_to_its_end_nothing_is_left(
    system: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, command = tmp_path / "new", "create" if system == "vsl" else "mkfs"
    real, count = os.pwrite, 0

    def pwrite(fd: int, data: Any, offset: int) -> int:
        nonlocal count
        count += os.readlink(f"/proc/self/fd/{fd}").startswith(f"{tmp_path}/")  # without a name until it is whole
        if count == fails_at:
            raise error
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    for fails_at in (1, 2, 4):
        new.unlink(missing_ok=True)
        count = 0
        done = f2(system, command, new, "--size", "8M")
        assert (done.code != 0, new.exists()) == (True, False), fails_at
        if isinstance(error, OSError):
            assert "No space left on device; it was not made\n" in done.err


def test_a_full_disk_below_the_image_is_told_with_the_way_back(
    image: Path, payload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, log = digest(image), tmp_path / "log.undo"
    with full_after(image, 2, monkeypatch):
        done = f2("cp", payload, f"{image}:/new", "--undo", log)
    assert done.code == 8
    assert f"{image}: writing at offset" in done.err
    assert f"`f2tools undo {log} {image}` takes back what was changed" in done.err
    assert f2("undo", log, image).code == 0
    assert digest(image) == before


# -- the index --------------------------------------------------------------------------------------------------------


def test_an_index_on_a_full_disk_is_one_line_and_leaves_nothing(image: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [F2TOOLS, "scan", image, "-o", tmp_path / "index"], capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384)),
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # the limit would leave compiled modules cut off
    )  # fmt: skip
    assert done.returncode == 8
    assert len(done.stderr.splitlines()) == 1
    assert "the index can't be written" in done.stderr
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("directory", ["/nowhere", "/proc"])
def test_an_index_that_can_t_be_made_is_one_line(directory: str, image: Path) -> None:
    done = f2("scan", image, "-o", f"{directory}/index")
    assert done.code == 8
    assert len(done.err.splitlines()) == 1
    assert f"{directory}/index: " in done.err
    assert "say with -o where it can lie" in done.err


def test_a_scan_writes_beside_the_image_only_when_told(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there = set(tmp_path.iterdir())
    for name in (image, image.name, f"./{image.name}"):
        done = f2("scan", name)
        assert done.code == 2
        assert "-o ./card.img.f2index" in done.err
    assert set(tmp_path.iterdir()) == there
    other = tmp_path / "case"
    other.mkdir()
    monkeypatch.chdir(other)
    assert f2("scan", image).code == 0
    assert [path.name for path in other.iterdir()] == ["card.img.f2index"]


# -- what nobody has foreseen -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "where", "code"),
    [
        (["dump", "info"], "f2tools.dump.info.volume_info", 70),
        (["recover"], "f2tools.recover.plan.make_plan", 70),
        (["fsck"], "f2tools.fsck.check.check", 8),
        (["fsck", "-y"], "f2tools.fsck.check.check", 8),
    ],
)
def test_a_mistake_of_ours_shows_its_traceback_and_is_no_success(
    words: list[str], where: str, code: int, image: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fails(*_: Any, **__: Any) -> None:
        raise KeyError("nobody thought of this")

    monkeypatch.setattr(where, fails)
    monkeypatch.setattr(sys, "argv", ["f2tools", *words, str(image)])
    with pytest.raises(SystemExit) as stop:
        run()
    assert stop.value.code == code
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.splitlines()[-1].startswith("f2tools: KeyError: this is a mistake in f2tools")
