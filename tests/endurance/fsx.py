"""fsx on a mount by each server: buffered, mapped, past the page cache; both checkers are silent afterwards.

A piece is one mount and many runs on its files, each with other sizes.  Short runs in memory: fsx keeps each map that
it has read from, which makes a long run slow, and a disk below would take most of the time.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from f2tools import open as open_volume
from tests import judges
from tests.endurance.campaign import Campaign, Found, Outcome
from tests.endurance.direct_io import SIZES
from tests.mount.mounted import mounted
from tests.mount.suite_tools import fsx, mount_point

OPERATIONS = 50_000  # in a piece
RUN = 1_000  # operations on one file
FILES = 4  # which runs take in turn; the next one finds what the last one left there
SERVERS = ("direct", "pyfuse3")
WAYS = ("mapped", "buffered", "O_DIRECT", "mapped, with holes")
FORMATS = ("-O extra_attr,inode_checksum", "", "-O extra_attr,compression", "-s 2")
OPTIONS = ("default_permissions,allow_other", "default_permissions,allow_other,writeback_cache")


def piece(seed: int, work: Path) -> Outcome:
    """So many operations on the files of a fresh volume."""
    server, way = SERVERS[seed % 2], WAYS[seed // 2 % 4]
    options, form = OPTIONS[seed // 8 % 2], FORMATS[seed // 16 % 4]
    if "holes" in way and (server != "direct" or "compression" in form):
        way = "mapped"  # only this server knows holes; files that are compressed have none, as in the kernel
    outcome = Outcome()
    image = work / "image"
    subprocess.run(["f2tools", "mkfs", "-q", image, "--size", "256M", *form.split()], check=True)
    try:
        with mount_point() as directory, mounted(image, directory, "-o", options, server=server) as mount:
            if "compression" in form:
                subprocess.run(["chattr", "+c", mount.directory], capture_output=True, check=False)
            if way == "O_DIRECT":
                _direct(mount.directory, seed)
            else:
                _fsx(mount.directory, work, seed, way)
            left = {path.name: path.read_bytes() for path in mount.directory.iterdir()}
        done = subprocess.run(["f2tools", "fsck", image], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        judges.fsck_clean(image)
        with open_volume(image) as volume:
            other = [name for name, data in left.items() if volume.path(f"/{name}").read() != data]
        assert not other, f"unmounted, these files are not as they were: {other}"
    except AssertionError as error:  # how far it came is not known
        outcome.found.append(Found(f"{way} by {server}, mount -o {options}, mkfs {form or 'plain'}:\n{error}"))
        return outcome
    outcome.done = OPERATIONS
    outcome.counts[f"{way} by {server}"] = OPERATIONS
    return outcome


def _fsx(directory: Path, work: Path, seed: int, way: str) -> None:
    chance = random.Random(seed)
    for number in range(OPERATIONS // RUN):
        longest, most = chance.choice(SIZES)
        fsx(
            directory / f"file{number % FILES}", work, RUN, chance.getrandbits(32), mapped="mapped" in way,
            holes="holes" in way, synced=chance.random() < 0.25, longest=longest, most=most,
        )  # fmt: skip


def _direct(directory: Path, seed: int) -> None:
    program = Path(__file__).with_name("direct_io.py")
    command = [sys.executable, program, directory, *map(str, (seed, OPERATIONS // RUN, RUN, FILES))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


FSX = Campaign(
    "fsx",
    "fsx over read and write, mmap, O_DIRECT and fallocate, by both servers, with and without the kernel's cache of"
    " writes, on files from some kilobytes to a megabyte; our fsck and fsck.f2fs are silent afterwards, and the files"
    " are as they were in the mount",
    "operations", 10_000_000, OPERATIONS, piece, minutes=30, in_memory=True,
)  # fmt: skip
