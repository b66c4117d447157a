"""A disk that fails, by the kernel's device mapper: ranges that can't be read or written, or no write at all.

Commands end with a word and a documented exit code, a mount tells the program that asks for safety; when the disk is
sound again, the volume is repaired, or was sound all along.  /dev/vda is the disk, /dev/vdb keeps the volume as it was.
F2_FAILING_SEED says which failures, F2_FAILING_CASES how many of a kind.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.command_lines import exit_codes
from tests.kernel.onboard.aboard import MIB, Done, f2, fill, fsck_f2fs, mounted, sh

DISK, KEPT, BAD = "/dev/vda", "/dev/vdb", "/dev/mapper/bad"
SIZE = 64 * MIB
SECTORS, SECTORS_OF_BLOCK, BLOCKS = SIZE // 512, 8, SIZE // 4096
SOUND = f"0 {SECTORS} linear {DISK} 0"
NO_WRITE = f"0 {SECTORS} flakey {DISK} 0 0 180 1 error_writes"
SEED, CASES = int(os.environ.get("F2_FAILING_SEED", "0")), int(os.environ.get("F2_FAILING_CASES", "4"))
READING = "fsck", "dump ls -R", "doctor", "info", "manifest", "history"
CHANGING = "fsck -y", "clean", "defrag", "resize 60M", "mkdir {i}:/new", "label NEW", "rm -r {i}:/a", "recover --apply"
BEGIN_OF_MAIN = 16 * 512  # block; the areas before it are read by most commands


def load(table: str) -> None:
    """The disk behaves so from now on."""
    sh("dmsetup suspend --nolockfs bad; dmsetup load bad; dmsetup resume bad", input=table + "\n")


@contextmanager
def disk() -> Iterator[None]:
    """A disk that can be made to fail."""
    sh(f"modprobe dm_flakey; dmsetup create bad --table '{SOUND}'; dmsetup mknodes bad")
    try:
        f2("fsck", BAD)
        yield
    finally:
        load(SOUND)
        sh("for n in 1 2 3 4 5 6 7 8 9; do dmsetup remove bad && break; sleep 0.5; done")


def bad_range(first: int, count: int) -> str:
    """A table with blocks that can be neither read nor written."""
    start, length = first * SECTORS_OF_BLOCK, count * SECTORS_OF_BLOCK
    after = start + length
    before, behind = f"linear {DISK} 0", f"linear {DISK} {after}"
    parts = (0, start, before), (start, length, "error"), (after, SECTORS - after, behind)
    return "\n".join(f"{at} {size} {target}" for at, size, target in parts if size)


def made() -> None:
    """A volume with files, and a copy of it."""
    f2("mkfs", "-q", "-f", DISK, SECTORS)
    with mounted(DISK) as where:
        fill(where / "a", files=30)
        fill(where / "b", files=6, size=900_000)
    sh(f"dd if={DISK} of={KEPT} bs=1M count={SIZE // MIB}")


def restored() -> None:
    """The volume as it was."""
    sh(f"dd if={KEPT} of={DISK} bs=1M count={SIZE // MIB} conv=fsync")


def ranges(kind: str) -> Iterator[tuple[int, int]]:
    """Places to fail, half of them among the metadata: (first block, count)."""
    chance = random.Random(f"{kind} {SEED}")
    while True:
        first = chance.randrange(BEGIN_OF_MAIN if chance.random() < 0.5 else BLOCKS)
        yield first, min(chance.choice((1, 2, 16, 64)), BLOCKS - first)


def run(line: str, device: str) -> Done:
    """A command on a device."""
    verb, *rest = line.replace("{i}", device).split()
    words = [verb, *rest] if "{i}" in line else [verb, *rest, device]
    if line.startswith(("resize", "label")):
        words = [verb, device, *rest]
    elif line.startswith("dump"):
        words = [verb, rest[0], device, *rest[1:]]
    return f2(*words, code=None)


def told(line: str, done: Done, where: object) -> None:
    """It ended as documented, with a word where it failed."""
    assert done.code in exit_codes(line.split()[0]), (line, where, done)
    assert done.code == 0 or done.err.strip() or done.out.strip(), (line, where, "ended without a word", done.code)


def test_what_cannot_be_read_is_told() -> None:
    made()
    sound = {line: run(line, DISK) for line in READING}
    with disk():
        lines = itertools.cycle(READING)
        for place, _ in zip(ranges("read"), range(2 * CASES), strict=False):
            load(bad_range(*place))
            line = next(lines)
            done = run(line, BAD)
            told(line, done, place)
            if done.out.replace(BAD, DISK) != sound[line].out:
                assert done.code or done.err != sound[line].err, (line, place, done)


def test_what_cannot_be_written_is_told_and_the_volume_stays_repairable() -> None:
    made()
    with disk():
        lines = itertools.cycle(CHANGING)
        for place, number in zip(ranges("write"), range(2 * CASES), strict=False):
            restored()
            line = next(lines)
            if line == "fsck -y":  # there must be something to repair
                sh(f"dd if=/dev/zero of={DISK} bs=4096 seek={0x600} count=1 conv=fsync")
            load(NO_WRITE if number % 3 == 2 else bad_range(*place))
            done = run(line, BAD)
            told(line, done, place)
            load(SOUND)
            f2("fsck", "-y", BAD, code=None)
            f2("fsck", BAD)
            fsck_f2fs(BAD)


def test_a_mount_on_a_disk_that_fails_tells_who_asks_for_safety() -> None:
    for number in range(max(1, CASES // 4)):
        made()
        with disk():
            _mount_that_fails(number)


def _mount_that_fails(number: int) -> None:
    where = Path(f"/mnt/failing-{number}")
    where.mkdir(exist_ok=True)
    sh("modprobe fuse")
    with open("/tmp/mount.said", "wb") as said:
        command = ["f2tools", "mount", "-f", "--server", "direct", BAD, str(where)]
        process = subprocess.Popen(command, stdout=said, stderr=said)
    while not os.path.ismount(where):
        assert process.poll() is None, Path("/tmp/mount.said").read_text()
        time.sleep(0.1)
    safe: dict[str, bytes] = {}
    failed = False
    for n in range(200):
        if n == 10 + 7 * (SEED + number) % 20:
            load(NO_WRITE)
        data = os.urandom(5000)
        try:
            with open(where / f"f{n}", "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            safe[f"f{n}"] = data
        except OSError:
            failed = True
            break
    assert failed, "no write reaches the disk, and nobody is told"
    with suppress(OSError):
        assert {name: (where / name).read_bytes() for name in safe} == safe
    sh(f"fusermount3 -u {where}")
    code = process.wait(120)
    text = Path("/tmp/mount.said").read_text()
    assert code in exit_codes("mount"), (code, text)
    assert "read-only from now on" in text, text
    assert "Traceback" not in text, text
    load(SOUND)
    f2("recover", BAD, "--apply")
    f2("fsck", BAD)
    fsck_f2fs(BAD)
    with mounted(BAD) as there:
        assert {name: (there / name).read_bytes() for name in safe} == safe
