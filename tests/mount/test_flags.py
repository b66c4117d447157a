"""What the flags of a file keep from being changed, in every way to change it: as the kernel has it.

The table is what Linux answers; `test_the_kernel_agrees` asks it.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import f2tools
from f2tools.f2fs.write.volume import WritableVolume
from tests.f2fs.write.consistency import assert_consistent
from tests.images import copy_sparse
from tests.kernel.guest import Guest
from tests.mount.flagged import COMPRESSED, PLAIN, compressed, flagged
from tests.mount.mounted import both_servers, mounted
from tests.mount.ways import BLOCK, COLLAPSE, CONTENT, INSERT, KEEP, PUNCH, SIZE, WAYS, ZERO, all_tried

WRITES = ("pwrite", "append", "beyond", "append_then_pwrite", "copy_into")
SIZES = ("truncate_short", "truncate_long", "truncate_empty", "ftruncate", "open_emptied")
ROOM = ("allocate", "allocate_keeping")
HOLES = ("punch", "collapse", "zero", "insert")
EVERY = dict.fromkeys(WAYS, "EPERM")


def all_of(ways: Iterable[str], said: str) -> dict[str, str]:
    """The same answer to each way."""
    return dict.fromkeys(ways, said)


# what is not named here is allowed
TABLE: dict[str, dict[str, str]] = {
    "none": {},
    "immutable": EVERY,
    "verity": EVERY,
    "released_immutable": EVERY,
    "append": (
        all_of(("pwrite", "beyond", "append_then_pwrite", *SIZES, *HOLES), "EPERM")
        | {"copy_into": "EBADF", "shared_map": "EACCES"}
    ),
    "pinned": (
        all_of(("append", "beyond"), "EIO")
        | all_of(("truncate_short", "truncate_long", "ftruncate"), "EINVAL")
        | all_of(HOLES, "ENOTSUP")
    ),
    "compressed": all_of(HOLES, "ENOTSUP"),
    "released": (
        all_of((*WRITES, *ROOM), "EPERM")
        | {"truncate_short": "EINVAL", "ftruncate": "EINVAL", "shared_map": "SIGBUS"}
        | all_of(HOLES, "ENOTSUP")
    ),
}  # fmt: skip

# where Linux 6.1 goes on: later ones refuse the first two since 6.10, the next two since 6.18, the last one in 7.3
OLDER = {("pinned", way) for way in ("append", "beyond", "truncate_short", "ftruncate", "truncate_long")}
# it would clean a section first, and reserves room in clusters that were released
OTHERWISE = {(flag, way) for flag in ("pinned", "released") for way in ROOM}
IN_GUEST = """set -e
for i in 0 1; do
    mount -t f2fs ${IMAGES[$i]} /mnt
    python3 /share/ways.py /mnt > $OUT/$i.json
    umount /mnt
done
"""


def table(flag: str) -> dict[str, str]:
    """What becomes of each way."""
    return {way: TABLE[flag].get(way, "ok") for way in WAYS}


def test_the_kernel_agrees(guest: Guest, tmp_path: Path) -> None:
    images = [flagged(tmp_path), compressed(tmp_path)]
    ways = Path(sys.modules["tests.mount.ways"].__file__ or "").read_text()
    result = guest.run(IN_GUEST, images, files={"ways.py": ways}).must_succeed()
    found: dict[str, dict[str, str]] = {}
    for number in range(2):
        found |= json.loads((result.out / f"{number}.json").read_text())
    assert set(found) == {*PLAIN, *COMPRESSED}
    for flag, became in found.items():
        for way, expected in table(flag).items():
            if (flag, way) not in OTHERWISE and not ((flag, way) in OLDER and became[way] == "ok"):
                assert became[way] == expected, (flag, way)


def as_served(flag: str, server: str) -> dict[str, str]:
    """The table where FUSE has other errors: for maps of what is not cached, and for calls that it does not know."""
    expected = table(flag)
    if flag in ("append", "pinned", "released"):
        expected["shared_map"] = "ENODEV"
    for way in (*ROOM, *HOLES) if server == "pyfuse3" else ("collapse", "insert"):
        if TABLE[flag] is not EVERY:
            expected[way] = "ENOTSUP"
    return expected


@both_servers
@pytest.mark.parametrize("make", [flagged, compressed])
def test_a_mount_refuses_what_the_kernel_refuses(make: Callable[[Path], Path], server: str, tmp_path: Path) -> None:
    image = make(tmp_path)
    with mounted(image, tmp_path / "mnt", server=server):
        for flag in sorted(os.listdir(tmp_path / "mnt")):
            assert all_tried(str(tmp_path / "mnt" / flag)) == as_served(flag, server), flag
    if make is compressed:  # what was sealed has no seal
        assert subprocess.run(["f2tools", "fsck", image], capture_output=True, check=False).returncode == 0
        return
    with f2tools.open(image) as volume:  # and what was refused is not on the disk
        for flag in ("immutable", "append", "pinned"):
            for way in (way for way, said in table(flag).items() if said != "ok"):
                assert volume.path(f"/{flag}/{way}").read() == CONTENT, (flag, way)
        assert volume.path("/append/append").read() == CONTENT + b"more"


@both_servers
def test_what_is_appended_shows_at_once_with_its_time(server: str, tmp_path: Path) -> None:
    """The kernel keeps no pages of an append-only file, and must not go by what it knew of it before."""
    image = flagged(tmp_path)
    with mounted(image, tmp_path / "mnt", server=server):
        file = tmp_path / "mnt" / "append" / "append"
        before = file.stat()
        with file.open("ab", buffering=0) as log, file.open("rb") as reader:
            assert reader.read() == CONTENT
            log.write(b"one")
            log.write(b"two")
            assert reader.read() == b"onetwo"
        assert file.stat().st_size == SIZE + 6
        assert file.stat().st_mtime_ns > before.st_mtime_ns


READ_WHILE_WRITTEN = """set -e
modprobe fuse
mkdir -p /tmp/mnt
for how in rw rw,writeback_cache; do
    f2tools mount --server direct -o $how $IMAGES /tmp/mnt
    python /share/follow.py /tmp/mnt
    f2tools umount /tmp/mnt
    IMAGES=("${IMAGES[@]:1}")
done
"""
FOLLOW = """import os, subprocess, sys
path = os.path.join(sys.argv[1], "append", "append")
before = os.stat(path).st_size
log = os.open(path, os.O_WRONLY | os.O_APPEND)
reader = os.open(path, os.O_RDONLY)
was = os.pread(reader, 1 << 20, 0)
assert len(was) == before
for word in (b"one", b"two"):
    os.write(log, word)
    was += word
    assert os.pread(reader, 1 << 20, 0) == was
os.close(log)
with open(path, "rb") as file:
    assert file.read() == was
subprocess.run(["chattr", "-a", path], check=True)
with open(path, "r+b", buffering=0) as file:
    file.write(b"F")
    os.fsync(file.fileno())
"""


def test_who_reads_what_is_appended_sees_it_with_an_older_kernel(guest: Guest, tmp_path: Path) -> None:
    """Before Linux 6.6 pages in the cache stay as they are where a write goes past them."""
    images = [flagged(tmp_path)]
    images.append(copy_sparse(images[0], tmp_path / "second"))
    files = {"follow.py": FOLLOW}
    guest.run(READ_WHILE_WRITTEN, images, files=files, with_f2tools=True, timeout=300).must_succeed()
    for image in images:
        with f2tools.open(image) as volume:
            assert volume.path("/append/append").read() == b"F" + CONTENT[1:] + b"onetwo", image


def library_ways(volume: WritableVolume, ino: int) -> dict[str, Callable[[], object]]:
    """The ways that the library has."""
    return {
        "pwrite": lambda: volume.write(ino, 0, b"FORGED"),
        "append": lambda: volume.write(ino, SIZE, b"more"),
        "truncate_short": lambda: volume.truncate(ino, 3 * BLOCK),
        "truncate_long": lambda: volume.truncate(ino, SIZE + 16 * BLOCK),
        "truncate_empty": lambda: volume.truncate(ino, 0),
        "allocate": lambda: volume.fallocate(ino, 0, SIZE, BLOCK),
        "allocate_keeping": lambda: volume.fallocate(ino, KEEP, SIZE, BLOCK),
        "punch": lambda: volume.fallocate(ino, PUNCH | KEEP, 0, BLOCK),
        "collapse": lambda: volume.fallocate(ino, COLLAPSE, 0, BLOCK),
        "zero": lambda: volume.fallocate(ino, ZERO, 0, BLOCK),
        "insert": lambda: volume.fallocate(ino, INSERT, 0, BLOCK),
    }


@pytest.mark.parametrize(("make", "flags"), [(flagged, PLAIN), (compressed, COMPRESSED)])
def test_the_library_refuses_what_the_kernel_refuses(
    make: Callable[[Path], Path], flags: tuple[str, ...], tmp_path: Path
) -> None:
    image = make(tmp_path)
    with f2tools.open(image, write=True) as volume:
        for flag in flags:
            for way in library_ways(volume, 0):
                ino = volume.path(f"/{flag}/{way}").inode.ino
                said = "ok"
                try:
                    library_ways(volume, ino)[way]()
                except OSError as error:
                    said = errno.errorcode[error.errno or errno.EIO]
                assert said == table(flag)[way], (flag, way)
                if said != "ok" and flag != "verity":
                    assert volume.path(f"/{flag}/{way}").read() == CONTENT, (flag, way)
    if make is compressed:
        with f2tools.open(image) as volume:
            assert_consistent(volume)


@pytest.mark.parametrize("flag", ["immutable", "append", "verity", "released", "released_immutable"])
def test_commands_that_edit_leave_such_files_alone(flag: str, tmp_path: Path) -> None:
    image = flagged(tmp_path) if flag in PLAIN else compressed(tmp_path)
    before = image.read_bytes()
    (tmp_path / "new").write_bytes(b"new content")
    for command in (
        ["cp", tmp_path / "new", f"{image}:/{flag}/pwrite"],
        ["truncate", "-s", "5000", f"{image}:/{flag}/pwrite"],
    ):
        done = subprocess.run(["f2tools", *map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        assert f"/{flag}/pwrite" in done.stderr
        assert image.read_bytes() == before
