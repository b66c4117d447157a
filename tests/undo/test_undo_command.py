"""`f2tools undo` gives an image back, byte for byte; what it can't be sure of it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from f2tools.cli import main
from f2tools.device.changes.appended import sealed
from f2tools.device.changes.undo import UndoLog
from f2tools.device.changes.undo_log import CLOSED, HEADER, RECORD_MAGIC
from f2tools.device.media.image import open_image
from tests.dump.craft import f2
from tests.images import reference

F2TOOLS = Path(sys.executable).parent / "f2tools"


def f2tools(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([F2TOOLS, *map(str, words)], capture_output=True, text=True, check=False)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_formatted_image_comes_back_whole(tmp_path: Path) -> None:
    image = reference("features").copy(tmp_path).path
    before = digest(image)
    assert f2tools("mkfs", image, "-f", "-q", "--undo", tmp_path / "undo").returncode == 0
    assert digest(image) != before
    planned = f2tools("undo", tmp_path / "undo", image, "--dry-run", "--json")
    assert planned.returncode == 0
    assert json.loads(planned.stdout)["data_bytes"] > 0
    assert digest(image) != before, "a rehearsal writes nothing"
    assert f2tools("undo", tmp_path / "undo", image).returncode == 0
    assert digest(image) == before


def test_an_image_that_was_changed_since_is_refused(tmp_path: Path) -> None:
    image = reference("features").copy(tmp_path).path
    f2tools("mkfs", image, "-f", "-q", "--undo", tmp_path / "undo")
    f2tools("mkfs", image, "-f", "-q", "-l", "another")
    after = digest(image)
    refused = f2tools("undo", tmp_path / "undo", image)
    assert refused.returncode == 8
    assert "Traceback" not in refused.stderr
    assert digest(image) == after


def test_something_that_is_no_undo_log_is_refused(tmp_path: Path) -> None:
    image = reference("features").copy(tmp_path).path
    before = digest(image)
    (tmp_path / "undo").write_bytes(b"not a log")
    refused = f2tools("undo", tmp_path / "undo", image)
    assert refused.returncode == 8
    assert refused.stderr.startswith("f2tools: ")
    assert digest(image) == before


@pytest.mark.parametrize(("length", "said"), [(0, "empty"), (5, "torn at its start")])
def test_a_log_without_a_beginning_is_no_success(length: int, said: str, tmp_path: Path) -> None:
    image = reference("features").copy(tmp_path).path
    f2tools("mkfs", image, "-f", "-q", "--undo", tmp_path / "undo")
    before = digest(image)
    os.truncate(tmp_path / "undo", length)
    for words in ((), ("--dry-run",), ("--json",)):
        done = f2tools("undo", tmp_path / "undo", image, *words)
        assert done.returncode == 1, done.stderr
        assert f"{said}; nothing was restored" in done.stderr
    assert digest(image) == before


CHANGES = (
    "label IMAGE NEW", "tune IMAGE -L NEW", "resize IMAGE 90M", "clean IMAGE", "defrag IMAGE", "mkfs IMAGE -f",
    "mkdir IMAGE:/new", "edit IMAGE -c mkdir:/new", "load IMAGE --from SOURCE", "fsck -y DAMAGED",
    "recover --apply CRASHED", "vsl trim LAYER 0 4096",
)  # fmt: skip


@pytest.mark.parametrize("line", CHANGES)
def test_a_rehearsal_knows_whether_the_undo_log_can_be_made(line: str, tmp_path: Path) -> None:
    image, crashed = reference("features").copy(tmp_path).path, reference("crash-several").copy(tmp_path).path
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").touch()
    places: dict[str, Path] = {"IMAGE": image, "CRASHED": crashed, "SOURCE": tmp_path / "source"}
    if "DAMAGED" in line:
        places["DAMAGED"] = image
        with image.open("r+b") as file:
            file.seek(1024)
            file.write(bytes(512))
    if "LAYER" in line:
        places["LAYER"] = tmp_path / "layer"
        assert f2("vsl", "create", places["LAYER"], "--size", "4M").code == 0
    words = [word.replace("IMAGE", str(image)) if ":" in word else str(places.get(word, word)) for word in line.split()]
    words = ["mkdir /new" if word == "mkdir:/new" else word for word in words]
    before, free = {path: digest(path) for path in tmp_path.iterdir() if path.is_file()}, tmp_path / "free"
    rehearsed = f2(*words, "--dry-run", "--undo", free)
    assert rehearsed.code == {"fsck": 4, "defrag": 1}.get(words[0], 0), rehearsed.err  # as without --undo
    assert not free.exists()
    (tmp_path / "taken").write_text("precious")
    for log, said in ((tmp_path / "taken", "is there already"), (tmp_path / "not" / "there", "No such file")):
        rehearsed, done = f2(*words, "--dry-run", "--undo", log), f2(*words, "--undo", log)
        assert (rehearsed.code, rehearsed.err) == (done.code, done.err)
        assert rehearsed.code
        assert f"{log}: {said}" in done.err
    assert {path: digest(path) for path in before} == before


def labelled(directory: Path) -> tuple[Path, Path]:
    """An image that got a label, and the log of that."""
    image, log = reference("features").copy(directory).path, directory / "undo"
    assert f2tools("label", image, "NEW", "--undo", log).returncode == 0
    return image, log


@pytest.mark.parametrize("length", [60, 100, 200, 700, 5000])
def test_a_log_that_was_cut_off_is_refused(length: int, tmp_path: Path) -> None:
    image, log = labelled(tmp_path)
    before = digest(image)
    os.truncate(log, length)
    for words in ((), ("--dry-run",), ("--json",)):
        refused = f2tools("undo", log, image, *words)
        assert refused.returncode == 8, refused.stderr
        assert f"{log}: this undo log was cut off: it had " in refused.stderr
    assert digest(image) == before
    forced = f2tools("undo", log, image, "--force")
    assert "cut off since it was written" in forced.stderr


def unsealed(log: Path, version: int = 3) -> None:
    """Make a log that of a command that was killed at its end."""
    content = log.read_bytes()
    head = sealed(HEADER.pack(*HEADER.unpack(content[: HEADER.size])[:1], version, *HEADER.unpack_from(content)[2:]))
    closed = bytes(CLOSED.size) if version > 1 else b""
    end = content.rindex(RECORD_MAGIC, 0, content.rindex(RECORD_MAGIC))  # with the seal goes the state of all
    log.write_bytes(head + closed + content[HEADER.size + CLOSED.size : end])


def test_the_log_of_a_killed_command_is_undone_and_that_is_said(tmp_path: Path) -> None:
    before = reference("features").path.read_bytes()
    image, log = labelled(tmp_path)
    unsealed(log)
    done = f2tools("undo", log, image)
    assert done.returncode == 0
    assert "ends without its seal: the command was killed, or had no room for it" in done.stderr
    assert image.read_bytes() == before


def test_where_a_log_does_not_tell_a_kill_from_a_cut_both_are_named(tmp_path: Path) -> None:
    before = reference("features").path.read_bytes()
    image, log = labelled(tmp_path)
    unsealed(log, version=1)
    for words, code in (((), 1), (("--force",), 0)):
        done = f2tools("undo", log, image, *words)
        assert done.returncode == code
        assert "the command was killed or had no room for it, or this file was cut off since" in done.stderr
    assert image.read_bytes() == before


def test_killed_before_any_change_is_no_success(tmp_path: Path) -> None:
    image, log = reference("features").copy(tmp_path).path, tmp_path / "undo"
    UndoLog(open_image(image, write=True), log).close()
    unsealed(log)
    done = f2tools("undo", log, image)
    assert done.returncode == 1
    assert "ends without its seal, before any change; nothing was restored" in done.stderr


def test_output_into_a_closed_pipe_is_no_failure() -> None:
    image = reference("plain").path
    done = subprocess.run(
        f"{F2TOOLS} dump ls -R {image} | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_a_log_that_is_refused_leaves_no_file_open(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 16))
    (tmp_path / "undo").write_bytes(b"not a log")
    assert CliRunner().invoke(main, ["undo", str(tmp_path / "undo"), str(image)]).exit_code
    leading = subprocess.run(["ls", "-l", f"/proc/{os.getpid()}/fd"], capture_output=True, text=True, check=False)
    assert "->" in leading.stdout
    assert str(tmp_path) not in leading.stdout


def test_devices_in_another_order_are_refused_before_anything_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [Path("a.img"), Path("b.img"), Path("c.img")]
    devices = ("--device", "b.img", "--device", "c.img")
    sizes = ("--size", "40M") * 3
    assert f2("mkfs", "a.img", "-c", "b.img", "-c", "c.img", *sizes).code == 0
    Path("one").write_bytes(b"one" * (10 << 20))
    assert f2("cp", "one", "a.img:/", *devices).code == 0
    before = [digest(path) for path in files]
    Path("two").write_bytes(b"two!" * (7 << 20))
    assert f2("edit", "a.img", *devices, "--undo", "u", "-c", "rm /one", "-c", "cp two :/two").code == 0
    after = [digest(path) for path in files]
    refused = f2("undo", "u", "a.img", "--device", "c.img", "--device", "b.img")
    assert refused.code == 2
    assert "c.img was named in the place of b.img" in refused.err
    assert [digest(path) for path in files] == after
    assert f2("undo", "u", "a.img", *devices).code == 0
    assert [digest(path) for path in files] == before
