"""Files that commands make: never through links that somebody planted, and for nobody else to read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from f2tools import newfile
from f2tools.device import open_device
from f2tools.device.changes.overlay import Overlay
from f2tools.device.changes.undo import UndoLog
from f2tools.errors import DeviceError, Taken
from f2tools.trace.record.capture import Recording, record
from tests import images
from tests.dump.craft import Result, f2
from tests.trace import traces

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can own what others may not touch")


@pytest.fixture
def private_image(tmp_path: Path) -> Path:
    """An image that only its owner may read."""
    image = images.reference("base").copy(tmp_path / "image").path
    image.chmod(0o600)
    return image


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A directory of another user."""
    directory = tmp_path / "theirs"
    directory.mkdir()
    os.chown(directory, NOBODY, NOBODY)
    return directory


def undo_log(image: Path, directory: Path) -> None:
    with UndoLog(open_device(image, write=True), directory / "undo") as log:
        log.pwrite(1 << 20, b"x" * 4096)


def overlay(image: Path, directory: Path) -> None:
    with Overlay(open_device(image), directory / "overlay") as over:
        over.pwrite(1 << 20, b"x" * 4096)


def command(*words: str) -> Callable[[Path, Path], Result]:
    """A command on the image that writes into the directory."""

    def run(image: Path, directory: Path) -> Result:
        return f2(*(word.format(image=image, out=directory) for word in words))

    return run


WRITERS: dict[str, Callable[[Path, Path], Result | None]] = {
    "undo log": undo_log,
    "overlay": overlay,
    "index": command("scan", "{image}", "-o", "{out}/index"),
    "report": command("report", "{image}", "--no-hashes", "-o", "{out}/report"),
    "tar": command("dump", "tar", "{image}", "-o", "{out}/x.tar"),
    "tar.gz": command("dump", "tar", "{image}", "-o", "{out}/x.tar.gz"),
    "manifest": command("dump", "manifest", "{image}", "-o", "{out}/manifest"),
    "timeline": command("timeline", "{image}", "-o", "{out}/timeline"),
    "history": command("history", "{image}", "3", "--extract", "1", "-o", "{out}/old"),
    "slack": command("slack", "{image}", "-o", "{out}/slack"),
    "picture": command("defrag", "--report", "{image}", "--svg", "{out}/picture.svg"),
}  # fmt: skip


def attempt(writer: str, image: Path, directory: Path) -> tuple[int, str]:
    """(exit code, what was said) of a writer that may be refused."""
    try:
        done = WRITERS[writer](image, directory)
    except (DeviceError, Taken) as error:
        return error.exit_code, str(error)
    return (done.code, done.err) if done is not None else (0, "")


@pytest.mark.parametrize("writer", WRITERS)
def test_what_holds_an_image_s_content_is_for_its_owner_alone(writer: str, private_image: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "out").mkdir(0o755)
        assert attempt(writer, private_image, tmp_path / "out")[0] == 0
    finally:
        os.umask(before)
    made = list((tmp_path / "out").rglob("*"))
    assert any(path.is_file() for path in made)
    wide = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in made if path.stat().st_mode & 0o077}
    assert not wide


@as_root
@pytest.mark.parametrize("writer", WRITERS)
def test_root_makes_no_files_in_directories_of_others(writer: str, private_image: Path, theirs: Path) -> None:
    code, said = attempt(writer, private_image, theirs)
    assert code == 8
    assert "belongs to user 65534" in said
    assert os.listdir(theirs) == []


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_is_written_through_a_link(writer: str, private_image: Path, tmp_path: Path) -> None:
    """Whatever names a command gives to its files, links of those names stood there before."""
    (tmp_path / "first").mkdir()
    attempt(writer, private_image, tmp_path / "first")
    names = [path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*") if path.is_file()]
    assert names
    victim, out = tmp_path / "victim", tmp_path / "out"
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        for planted in (out / name, out / f"{name}.new"):
            victim.write_bytes(b"precious")
            planted.symlink_to(victim)
    attempt(writer, private_image, out)
    assert victim.read_bytes() == b"precious"
    for name in names:
        (out / name).unlink()
        (out / name).symlink_to(tmp_path / "nowhere")
    attempt(writer, private_image, out)
    assert not (tmp_path / "nowhere").exists()


def test_an_overlay_is_written_anew_beside_a_file_named_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("f2tools.device.changes.overlay_log.WORTH_REWRITING", 1 << 16)
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "overlay.new").symlink_to(victim)
    with Overlay(open_device(image), tmp_path / "overlay") as over:
        for number in range(64):
            over.pwrite(0, bytes([number]) * 4096)
        over.flush()
        assert (tmp_path / "overlay").stat().st_size < 32 * 4096, "it was written anew"
    assert victim.read_bytes() == b"precious"
    assert stat.S_IMODE((tmp_path / "overlay").stat().st_mode) == 0o600
    with Overlay(open_device(image), tmp_path / "overlay") as over:
        assert np.frombuffer(over.pread(0, 4096), np.uint8).max() == 63
    assert sorted(os.listdir(tmp_path)) == ["image", "overlay", "overlay.new", "victim"]


def test_what_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"before")
    with suppress(KeyboardInterrupt), newfile.replacing(str(target)) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert target.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file"]


def test_a_pipe_is_written_into_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with newfile.replacing(str(pipe)) as file:
            file.write(b"through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


@as_root
def test_a_link_of_another_user_on_the_way_is_refused(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (theirs / "link").symlink_to(tmp_path / "mine")
    for path in (theirs / "link" / "file", theirs / "link" / ".." / "file", theirs / "made" / "below" / "file"):
        with pytest.raises(DeviceError, match="belongs to user 65534"):
            newfile.create(str(path))
    (tmp_path / "way").symlink_to(theirs)
    with pytest.raises(DeviceError, match="belongs to user 65534"):
        newfile.create(str(tmp_path / "way" / "file"))
    os.close(newfile.create(str(tmp_path / "mine" / "file")))


@as_root
def test_a_directory_that_anyone_may_change_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(DeviceError, match="anyone may change it"):
        newfile.create(str(tmp_path / "open" / "file"))
    (tmp_path / "open").chmod(0o1777)
    os.close(newfile.create(str(tmp_path / "open" / "file")))


@as_root
def test_who_called_sudo_may_have_files_in_an_own_directory(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    os.close(newfile.create(str(theirs / "file")))


@as_root
def test_a_recording_is_not_put_where_another_user_can_plant_links(theirs: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (theirs / "run").mkdir()
    for directory in (theirs, theirs / "run", theirs / "new"):
        with pytest.raises(DeviceError, match="belongs to user 65534"):
            record(Recording(str(victim), directory, ["true"]))
    assert sorted(os.listdir(theirs)) == ["run"]
    assert os.listdir(theirs / "run") == []


def test_what_a_trace_gives_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        words = ("--csv", tmp_path / "csv", "--html", tmp_path / "x.html", "--svg", tmp_path / "x.svg")
        assert f2("trace", "analyze", traces.DIRECTORY / "churn", *words).code == 0
    finally:
        os.umask(before)
    made = list(tmp_path.rglob("*"))
    assert {"x.html", "x.svg", "metrics.csv"} <= {path.name for path in made}
    assert not [path for path in made if path.stat().st_mode & 0o077]
