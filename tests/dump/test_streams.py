"""Where output goes: readers that go away, streams that are closed, disks that are full."""

from __future__ import annotations

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


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_standard_output_is_survived(command: str) -> None:
    done = shell("{} >&-", command)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_said_in_a_line(command: str) -> None:
    done = shell("{} > /dev/full", command)
    assert done.returncode == 1
    assert done.stderr == "f2tools: No space left on device\n"


def test_an_archive_of_what_is_not_there_leaves_no_file(tmp_path: Path) -> None:
    assert f2("dump", "tar", reference("plain").path, "/nope", "-o", tmp_path / "x.tar").code == 1
    assert not (tmp_path / "x.tar").exists()
