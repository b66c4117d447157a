"""Where output goes: readers that go away, streams that are closed, disks that are full."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dump.craft import f2
from tests.images import reference

F2TOOLS = Path(sys.executable).parent / "f2tools"
COMMANDS = ("info", "superblock", "nat", "segments", "tree", "manifest", "ls -lR", "nat --csv", "superblock --json")


def shell(line: str, command: str) -> subprocess.CompletedProcess[str]:
    image = reference("plain").path
    words = f"{F2TOOLS} dump {command} {image}"
    return subprocess.run(["bash", "-c", line.format(words)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_goes_away_is_no_failure_of_the_image(command: str) -> None:
    done = shell("{} | true; echo ${{PIPESTATUS[0]}}", command)
    assert done.stdout.strip() in ("0", "141")
    assert done.stderr == ""


@pytest.mark.parametrize("command", [*COMMANDS, "tar"])
def test_a_closed_standard_output_is_said_in_a_line(command: str) -> None:
    done = shell("{} >&-", command)
    assert done.returncode == 1
    assert done.stderr == "f2tools: Bad file descriptor: what this command was writing is not whole\n"


def test_a_command_that_prints_nothing_needs_no_standard_output(tmp_path: Path) -> None:
    for words in (f"mkfs -q {tmp_path}/image --size 64M", f"dump tar {tmp_path}/image -o {tmp_path}/tar"):
        done = subprocess.run(["bash", "-c", f"{F2TOOLS} {words} >&-"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_said_in_a_line(command: str) -> None:
    done = shell("{} > /dev/full", command)
    assert done.returncode == 1
    assert done.stderr == "f2tools: No space left on device: what this command was writing is not whole\n"


def test_a_full_disk_is_said_with_the_file_that_has_no_room_there_and_leaves_nothing(tmp_path: Path) -> None:
    done = shell(f"ulimit -f 64; {{}} -o '{tmp_path}/all files.tar'", "tar")
    assert (done.returncode, done.stderr) == (1, f"f2tools: {tmp_path}/all files.tar: File too large\n")
    assert not list(tmp_path.iterdir())


def test_what_the_locale_cannot_write_is_written_in_ascii(tmp_path: Path) -> None:
    image, labelled = reference("history-a").path, tmp_path / "labelled"
    assert f2("mkfs", "-q", labelled, "--size", "64M", "-l", "é").code == 0
    latin_1, ascii_only = {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}
    for words, wanted, locale in (
        (("dump", "tree", image), b"+-- docs\n", latin_1),
        (("history", image, "/"), b"Za\\u017c\xf3\\u0142\\u0107", latin_1),
        (("dump", "superblock", labelled), b" \\xe9\n", ascii_only),
    ):
        done = subprocess.run([F2TOOLS, *words], capture_output=True, env=os.environ | locale, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert wanted in done.stdout


EVIDENCE = {
    "dfxml": "timeline --format dfxml",
    "bodyfile": "timeline --format bodyfile",
    "csv": "timeline",
    "l2tcsv": "timeline --format l2tcsv",
    "sha256": "hashes --format sha256",
    "hashdeep": "hashes",
    "fls": "fls -r -m /",
}


@pytest.mark.parametrize("form", EVIDENCE)
def test_what_programs_read_is_utf_8_in_any_locale(form: str) -> None:
    words = [F2TOOLS, *EVIDENCE[form].split(), reference("history-a").path]
    wanted = subprocess.run(words, capture_output=True, env=os.environ | {"LC_ALL": "C.UTF-8"}, check=True).stdout
    assert not wanted.isascii()
    for locale in ({"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}):
        done = subprocess.run(words, capture_output=True, env=os.environ | locale, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert made_at_any_time(done.stdout) == made_at_any_time(wanted)


def made_at_any_time(text: bytes) -> bytes:
    """Without the date and the command line that DFXML says."""
    return re.sub(rb"<(start_time|command_line)>[^<]*", b"", text)


def test_an_image_with_a_name_of_any_bytes_is_named(tmp_path: Path) -> None:
    image = os.fsencode(tmp_path) + b"/\xff.img"
    os.symlink(os.fsencode(reference("plain").path), image)
    environment = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run([F2TOOLS, "fsck", image], capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\xff.img: sound" in done.stdout


def test_an_archive_of_what_is_not_there_leaves_no_file(tmp_path: Path) -> None:
    assert f2("dump", "tar", reference("plain").path, "/nope", "-o", tmp_path / "x.tar").code == 1
    assert not (tmp_path / "x.tar").exists()


def test_an_image_that_may_not_be_read_is_8_like_one_that_is_not_there(tmp_path: Path) -> None:
    image = tmp_path / "secret.img"
    image.write_bytes(reference("plain").path.read_bytes()[:8192])
    image.chmod(0)
    powerless = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []  # root's name without root's rights
    done = subprocess.run([*powerless, F2TOOLS, "dump", "info", image], capture_output=True, text=True, check=False)
    assert done.returncode == 8, done.stderr
    assert "Permission denied" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("name", "code"), [("fsck.f2fs", 8), ("dump.f2fs", 255), ("fsstat", 1)])
def test_a_full_disk_has_the_exit_code_of_the_program_that_a_link_calls(name: str, code: int, tmp_path: Path) -> None:
    """1 of fsck.f2fs would say that something was repaired."""
    (tmp_path / name).symlink_to(F2TOOLS)
    line = f"{tmp_path / name} {reference('plain').path} > /dev/full"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1
