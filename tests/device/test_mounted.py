"""The kernel's table of mounts, in which names may have any bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_a_mount_point_whose_name_is_not_utf_8_stops_nobody(tmp_path: Path) -> None:
    alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        missing_judge("namespaces of mounts can't be made here", "odd names among what is mounted")
    done = subprocess.run(
        [*alone, sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, errors="replace", check=False
    )
    assert done.stdout == "all asked\n", done.stderr
