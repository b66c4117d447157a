"""fsx on a mount by each server: buffered, mapped, past the page cache; both checkers are silent afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import judges
from tests.endurance.campaign import Campaign, Found, Outcome
from tests.mount.mounted import mounted
from tests.mount.suite_tools import fsx, mount_point

OPERATIONS = 10_000  # in a piece
SERVERS = ("direct", "pyfuse3")
WAYS = ("mapped", "buffered", "O_DIRECT", "mapped, with holes")
FORMATS = ("-O extra_attr,inode_checksum", "", "-O extra_attr,compression", "-s 2")
OPTIONS = ("default_permissions,allow_other", "default_permissions,allow_other,writeback_cache")


def piece(seed: int, work: Path) -> Outcome:
    """So many operations on one file of a fresh volume."""
    server, way = SERVERS[seed % 2], WAYS[seed // 2 % 4]
    options, form = OPTIONS[seed // 8 % 2], FORMATS[seed // 16 % 4]
    if "holes" in way and server != "direct":
        way = "mapped"  # only this server knows holes
    outcome = Outcome()
    image = work / "image"
    subprocess.run(["f2tools", "mkfs", "-q", image, "--size", "256M", *form.split()], check=True)
    try:
        with mount_point() as directory, mounted(image, directory, "-o", options, server=server) as mount:
            if "compression" in form:
                subprocess.run(["chattr", "+c", mount.directory], capture_output=True, check=False)
            if way == "O_DIRECT":
                _direct(mount.directory / "file", seed)
            else:
                fsx(mount.directory, work, OPERATIONS, seed, mapped="mapped" in way, holes="holes" in way)
        done = subprocess.run(["f2tools", "fsck", image], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        judges.fsck_clean(image)
    except AssertionError as error:
        outcome.found.append(Found(f"{way} by {server}, mount -o {options}, mkfs {form or 'plain'}:\n{error}"))
    outcome.done = OPERATIONS
    outcome.counts[f"{way} by {server}"] = OPERATIONS
    return outcome


def _direct(path: Path, seed: int) -> None:
    program = Path(__file__).with_name("direct_io.py")
    command = [sys.executable, program, path, str(seed), str(OPERATIONS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


FSX = Campaign(
    "fsx",
    "fsx over read and write, mmap, O_DIRECT and fallocate, by both servers, with and without the kernel's cache of"
    " writes; our fsck and fsck.f2fs are silent afterwards",
    "operations", 10_000_000, OPERATIONS, piece, minutes=30,
)  # fmt: skip
