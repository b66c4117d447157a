"""The kernel's table of mounts, in which names may have any bytes; images that are mounted, and who waits for them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from f2tools.device import open_device
from f2tools.device.media import mounted
from f2tools.device.media.mounted import Mount
from f2tools.errors import DeviceError
from tests.judges import missing_judge

# What asks who has mounted what, in a namespace with a mount point that is not UTF-8.
PROGRAM = r"""
import os, subprocess, sys
from f2tools.device.media.mounted import in_use, mount_table
from f2tools.errors import Usage
from f2tools.experiment.mounted import source_of
from f2tools.trace.record.capture import _mount_point

directory = os.fsencode(sys.argv[1]) + b"/no \xff\\UTF-8"
os.mkdir(directory)
subprocess.run(["mount", "-t", "tmpfs", "nobody's", directory], check=True)
number = os.stat(directory).st_dev
mine = [mount for mount in mount_table() if mount.directory == os.fsdecode(directory)]
assert [mount[2:] for mount in mine] == [("tmpfs", "nobody's")], mount_table()
assert mine[0].number == f"{os.major(number)}:{os.minor(number)}"
try:
    source_of(os.fsdecode(directory))
except Usage as error:
    assert ": tmpfs;" in str(error), error
assert _mount_point((os.major(number), os.minor(number))) is None
block = "/dev/" + next(name for name in os.listdir("/sys/block"))
if os.path.exists(block):
    in_use(block)
print("all asked")
"""


@pytest.mark.xdist_group("namespaces")  # one made meanwhile has a copy of every mount
def test_a_mount_point_whose_name_is_not_utf_8_stops_nobody(tmp_path: Path) -> None:
    alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        missing_judge("namespaces of mounts can't be made here", "odd names among what is mounted")
    done = subprocess.run(
        [*alone, sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, errors="replace", check=False
    )
    assert done.stdout == "all asked\n", done.stderr


# -- marks of mounts ----------------------------------------------------------------------------------------------


@pytest.fixture
def marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An image that a mount with the device number 0:77 is said to have, under a name that it has no more."""
    image = tmp_path / "renamed.img"
    image.write_bytes(bytes(4096))
    (tmp_path / "bdi/0:77").mkdir(parents=True)
    monkeypatch.setattr(mounted, "BDI", str(tmp_path / "bdi"))
    table = [Mount("0:77", "/mnt/card", mounted.KIND, str(tmp_path / "card.img"))]
    monkeypatch.setattr(mounted, "mount_table", lambda: table)
    with image.open("r+b") as served:
        fcntl.flock(served, fcntl.LOCK_EX)
        mounted.mark_mounted(served.fileno())
        mounted.mark_number([served.fileno()], "/mnt/card")
        yield image


def test_a_mounted_image_is_known_by_any_name(marked: Path) -> None:
    begun = time.monotonic()
    with open_device(marked) as device:
        assert mounted.number_of(device.fd) == "0:77"
    with pytest.raises(DeviceError, match=r"mounted on /mnt/card; unmount it first \(f2tools umount /mnt/card\)"):
        open_device(marked, write=True)
    assert time.monotonic() < begun + 5


def test_a_mount_in_another_namespace_is_told_of(marked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounted, "mount_table", list)
    monkeypatch.setattr(mounted, "copies_of", lambda _: [(4711, "f2tools")])
    open_device(marked).close()
    with pytest.raises(DeviceError, match=r"mounted in another namespace, that of process 4711 \(f2tools\)"):
        open_device(marked, write=True)


def test_a_mount_that_was_let_go_lazily_is_not_called_one_of_another_namespace(
    marked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounted, "mount_table", list)
    monkeypatch.setattr(mounted, "copies_of", lambda _: [])
    with pytest.raises(DeviceError, match=r"unmounted lazily .* it is free when that program has closed its files"):
        open_device(marked, write=True)


def test_who_waits_for_the_last_checkpoint_says_so(
    marked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mounted, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(mounted, "SAID_AFTER_SECONDS", 0.1)
    for table in ([], [Mount("0:77", "/home", "nfs4", "server:/")]):  # the number may be another's by now
        monkeypatch.setattr(mounted, "mount_table", lambda found=table: found)
        if not table:
            (marked.parent / "bdi/0:77").rmdir()
        open_device(marked).close()
        waiting, old = capsys.readouterr().err.splitlines()
        assert waiting.endswith("img: mounted, or unmounted a moment ago; waiting for a checkpoint")
        assert old.endswith("does not answer; what it has not made safe is not seen")
