"""An image that something else changed after the command with the undo log is refused, however far behind and however
the command ended; with the log of whatever came last undone first, all of them are undone."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from f2tools.cli import main
from f2tools.device import open_device
from f2tools.device.changes import undo as undo_module
from f2tools.device.changes.undo import UndoLog
from f2tools.device.changes.undo_log import TRIMMED, ZEROED, ReadLog
from f2tools.device.media.image import FileDevice, open_image
from f2tools.dffs.write import open_for_writing
from f2tools.errors import DeviceError, Unsealed
from f2tools.f2fs.layout.constants import F2FS_ROOT_INO
from f2tools.f2fs.write.volume import WritableVolume
from tests.images import reference

BLOCK = 4096
F2TOOLS = Path(sys.executable).parent / "f2tools"
REFUSED = "doesn't belong to "


def f2tools(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([F2TOOLS, *map(str, words)], capture_output=True, text=True, check=False)


def done(*words: object) -> str:
    result = f2tools(*words)
    assert not result.returncode, result.stderr
    return result.stdout


def digest(path: Path) -> str:
    """Of an image's content, wherever holes are, without reading these."""
    found = hashlib.sha256(b"%d" % path.stat().st_size)
    with open_image(path) as image:
        for start, length in image.data_ranges(0, image.size_bytes):
            for at in range(start, start + length, BLOCK):
                block = image.pread(at, min(BLOCK, start + length - at))
                if any(block):
                    found.update(b"%d" % at + block)
    return found.hexdigest()


def refuses(log: Path, image: Path) -> None:
    before = digest(image)
    result = f2tools("undo", log, image)
    assert result.returncode == 8
    assert REFUSED in result.stderr
    assert "undo that one first" in result.stderr
    assert digest(image) == before


def fsync_and_crash(image: Path, name: bytes, content: bytes) -> None:
    """What a mount leaves that is killed after an fsync."""
    volume = WritableVolume(open_image(image, write=True))
    ino = volume.create(F2FS_ROOT_INO, name, 0o644)
    volume.write(ino, 0, content)
    volume.fsync(ino)
    volume.abandon()


@pytest.mark.parametrize("erase_block", ["2M", "64M"])
def test_of_two_logs_the_last_one_is_undone_first(tmp_path: Path, erase_block: str) -> None:
    image, states = tmp_path / "a.img", []
    done("mkfs", image, "--size", "4G", "--erase-block", erase_block, "-q")
    for number, file in enumerate(("/etc/passwd", "/etc/group", "/etc/hosts")):
        states.append(digest(image))
        done("cp", file, f"{image}:/{number}", "--undo", tmp_path / f"{number}.undo")
    for number in (0, 1):
        refuses(tmp_path / f"{number}.undo", image)
    for number in (2, 1, 0):
        done("undo", tmp_path / f"{number}.undo", image)
        assert digest(image) == states[number]
        done("undo", tmp_path / f"{number}.undo", image)  # once more does no harm


def test_a_command_without_a_log_came_after_that(tmp_path: Path) -> None:
    image = tmp_path / "b.img"
    done("mkfs", image, "--size", "4G", "--erase-block", "64M", "-q")
    done("cp", "/etc/passwd", f"{image}:/pw", "--undo", tmp_path / "undo")
    done("cp", "/etc/group", f"{image}:/gr")
    refuses(tmp_path / "undo", image)
    assert done("dump", "cat", image, "/gr") == Path("/etc/group").read_text()


def kill_at(write: int, image: Path, log: Path, monkeypatch: pytest.MonkeyPatch, *command: object) -> None:
    """`cp`, or the command, that is killed at a write to the image; 0: before it seals its log."""
    pid = os.fork()
    if pid:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        return
    try:
        left, real = write, UndoLog.pwrite

        def pwrite(self: UndoLog, offset: int, data: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            real(self, offset, data)  # type: ignore[arg-type]

        def close(self: UndoLog) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(UndoLog, "pwrite", pwrite)
        if not write:
            monkeypatch.setattr(UndoLog, "close", close)
        words = command or ("cp", "/etc/services", f"{image}:/new")
        CliRunner().invoke(main, [*map(str, words), "--undo", str(log)])
    finally:
        os._exit(0)


@pytest.mark.parametrize("later", [1, 2])
@pytest.mark.parametrize("write", [1, 2, 3, 5, 0])
def test_a_command_was_killed_and_others_came_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int, later: int
) -> None:
    image, log = reference("base").copy(tmp_path).path, tmp_path / "undo"
    before = digest(image)
    kill_at(write, image, log, monkeypatch)
    kept = shutil.copyfile(image, tmp_path / "kept")
    done("undo", log, kept)
    assert digest(kept) == before
    for number in range(later):
        done("cp", "/etc/passwd", f"{image}:/later{number}")
    refuses(log, image)
    assert done("dump", "cat", image, "/later0") == Path("/etc/passwd").read_text()


@pytest.mark.parametrize("write", [None, 2, 0])
def test_a_file_was_fsynced_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int | None) -> None:
    image, log = tmp_path / "a.img", tmp_path / "undo"
    done("mkfs", image, "--size", "4G", "-q")
    if write is None:
        done("label", image, "NEW", "--undo", log)
    else:
        kill_at(write, image, log, monkeypatch)
    fsync_and_crash(image, b"kept", b"precious\n" * 1000)
    refuses(log, image)
    done("recover", image, "--apply")
    refuses(log, image)
    assert done("dump", "cat", image, "/kept") == "precious\n" * 1000


def give_up_and_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on images are as disks that promise nothing of what is given up."""
    monkeypatch.setattr(FileDevice, "trim", lambda *_: None)
    monkeypatch.setattr(FileDevice, "trims_to_zeros", False)


@pytest.mark.parametrize("disk", [False, True])
@pytest.mark.parametrize("later", ["cp", "fsync", "overwritten"])
def test_formatting_was_killed_before_its_seal_and_others_came_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str, disk: bool
) -> None:
    image, log = reference("base").copy(tmp_path).path, tmp_path / "undo"
    before = digest(image)
    with monkeypatch.context() as patch:
        if disk:
            give_up_and_keep(patch)
        kill_at(0, image, log, patch, "mkfs", "-f", "-q", image)
    kept = shutil.copyfile(image, tmp_path / "kept")
    done("undo", log, kept)
    assert digest(kept) == before
    if later == "cp":
        done("cp", "/etc/passwd", f"{image}:/later")
    elif later == "fsync":
        fsync_and_crash(image, b"later", b"precious\n" * 1000)
    else:
        with open_image(image, write=True) as device:
            device.pwrite(device.size_bytes - (5 << 20), b"precious")
        if disk:  # which may have made that of what was given up
            done("undo", log, image)
            assert digest(image) == before
            return
    refuses(log, image)


def test_where_there_is_no_room_for_the_seal_of_a_format_later_work_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> bytes:
        raise DeviceError("No space left on device")

    image, log = reference("base").copy(tmp_path).path, tmp_path / "undo"
    with monkeypatch.context() as patch:
        patch.setattr(undo_module, "seal", no_room)
        result = CliRunner().invoke(main, ["mkfs", "-f", "-q", str(image), "--undo", str(log)])
        assert isinstance(result.exception, Unsealed)
    done("cp", "/etc/passwd", f"{image}:/later")
    refuses(log, image)


@pytest.mark.parametrize("disk", [False, True])
def test_what_was_written_since_where_cleaning_gave_segments_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: bool
) -> None:
    image, log = tmp_path / "a.img", tmp_path / "undo"
    done("mkfs", image, "--size", "256M", "-q")
    (tmp_path / "data").write_bytes(os.urandom(5 << 20))
    for number in range(6):
        done("cp", tmp_path / "data", f"{image}:/{number}")
    for number in range(0, 6, 2):
        done("rm", f"{image}:/{number}")
    before = digest(image)
    with monkeypatch.context() as patch:
        if disk:
            give_up_and_keep(patch)
        kill_at(0, image, log, patch, "clean", "--discard", image)
    kept = shutil.copyfile(image, tmp_path / "kept")
    done("undo", log, kept)
    assert digest(kept) == before
    with open_image(log) as file:
        rows = ReadLog(file).records
        given_up = rows[rows["kind"] == (TRIMMED if disk else ZEROED)]
    assert given_up.size
    if not disk:
        shutil.copyfile(image, kept)
        with open_image(kept, write=True) as device:
            device.pwrite(int(given_up["offset"][-1]) + 8192, b"precious")
        refuses(log, kept)
    fsync_and_crash(image, b"later", b"precious\n" * 1000)
    refuses(log, image)


def test_what_was_fsynced_before_the_command_is_no_change(tmp_path: Path) -> None:
    image = tmp_path / "a.img"
    done("mkfs", image, "--size", "256M", "-q")
    fsync_and_crash(image, b"kept", b"precious\n" * 1000)
    before = digest(image)
    done("recover", image, "--apply", "--undo", tmp_path / "undo")
    assert digest(image) != before
    done("undo", tmp_path / "undo", image)
    assert digest(image) == before


def test_a_storage_layer_was_written_to_since(tmp_path: Path) -> None:
    image, log = tmp_path / "c.vsl", tmp_path / "undo"
    done("vsl", "create", image, "--size", "128M")
    done("mkfs", image, "-q")
    (tmp_path / "big").write_bytes(os.urandom(40 << 20))
    done("cp", tmp_path / "big", f"{image}:/big")
    before = digest(image)
    done("vsl", "trim", image, "90M", "4K", "--undo", log)
    done("undo", log, image)
    assert digest(image) == before
    log.unlink()
    done("vsl", "trim", image, "90M", "4K", "--undo", log)
    done("cp", "/etc/services", f"{image}:/svc")
    refuses(log, image)
    assert "sound" in done("vsl", "check", image)


def test_a_flash_file_system_was_written_to_since(tmp_path: Path) -> None:
    image, log = tmp_path / "card.nand", tmp_path / "undo"

    def written(name: bytes) -> None:
        volume = open_for_writing(open_device(image, write=True, whole=True))
        volume.create(1, name, 0o644)
        volume.sync()
        volume.abandon()

    done("dffs", "mkfs", image, "--size", "8M")
    written(b"safe")
    before = digest(image)
    done("dffs", "recover", image, "--apply", "--undo", log)
    kept = shutil.copyfile(image, tmp_path / "kept")
    done("undo", log, kept)
    assert digest(kept) == before
    written(b"later")
    refuses(log, image)
    done("dffs", "recover", image, "--apply")
    refuses(log, image)
    assert done("dffs", "dump", "ls", image).split() == ["later", "safe"]


@pytest.mark.parametrize("line", [
    "label {image} NEW --undo", "mount {image} {dir} --overlay", "fsck -y {image} --undo", "mkfs {image} -f --undo",
    "cp /etc/hosts {image}:/h --undo", "vsl trim {image} 0 4K --undo", "dfs fsck -y {image} --undo",
    "dffs fsck -y {image} --undo", "dffs recover {image} --apply --undo", "dump tar {image} -o",
    "mkfs {image} -f --from",
    "dump cat {image} / --key", "undelete {image} -o", "mount {image} {dir} -o overlay=",
])  # fmt: skip
def test_an_empty_name_is_no_name_of_a_file(tmp_path: Path, line: str) -> None:
    image = reference("base").copy(tmp_path).path
    before = digest(image)
    words = line.format(image=image, dir=tmp_path).split()
    result = f2tools(*words, *([] if words[-1].endswith("=") else [""]))
    assert result.returncode == (16 if words[0] == "fsck" or words[1] == "fsck" else 2), result.stderr
    assert "empty" in result.stderr or "a file is needed" in result.stderr
    assert digest(image) == before


def test_an_empty_file_that_a_killed_command_left_is_no_log_yet(tmp_path: Path) -> None:
    image, log = reference("base").copy(tmp_path).path, tmp_path / "undo"
    before = digest(image)
    log.touch()
    assert f2tools("label", image, "NEW", "--undo", log, "--dry-run").returncode == 0
    done("label", image, "NEW", "--undo", log)
    assert f2tools("label", image, "OTHER", "--undo", log).returncode
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "empty").touch()
    assert f2tools("label", image, "OTHER", "--undo", tmp_path / "link").returncode
    done("undo", log, image)
    assert digest(image) == before
